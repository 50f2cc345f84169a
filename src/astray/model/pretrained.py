"""The reward that ships with astray, learned from simulated people; ``astray pretrain`` makes it again."""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files

from astray.irl.shared import Reward
from astray.model.packing import FilePath, read, write
from astray.model.parts import pack_reward, unpack_reward

KIND = "reward"


@cache
def pretrained() -> Reward:
    """The shipped reward: what it was made from is in its ``made``.

    >>> pretrained().aspects
    ('place', 'route', 'manner', 'time')
    """
    with as_file(files("astray.model") / "pretrained.safetensors") as path:
        return read_reward(path)


def read_reward(path: FilePath) -> Reward:
    """A reward from a file that :func:`write_reward` wrote."""
    model = read(path)
    if model.kind != KIND:
        raise model.wrong(f"a {model.kind}, not a reward; give a file that astray pretrain wrote")
    return unpack_reward(model, "reward")


def write_reward(path: FilePath, reward: Reward) -> None:
    """Write a reward to a file, whole or not at all."""
    packed = pack_reward("reward", reward)
    write(path, KIND, packed.values, packed.arrays)
