"""Reads and writes rewards, such as the one that ships with astray, which ``astray pretrain`` makes."""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from astray.core.errors import ModelFileError
from astray.irl.shared import Reward
from astray.model.file import is_database
from astray.model.packing import FilePath, check_readable, read, write
from astray.model.parts import unpack_reward

KIND = "reward"


@cache
def pretrained() -> Reward:
    """Returns the reward that ships with astray; its ``made`` says how it was made.

    >>> pretrained().aspects
    ('place', 'route', 'manner', 'time')
    """
    with as_file(files("astray.model") / "pretrained.safetensors") as path:
        return read_reward(path)


def read_reward(path: FilePath) -> Reward:
    """Reads a reward from a file that :func:`write_reward` wrote."""
    source = Path(path)
    check_readable(source)
    model = None if is_database(source) else read(source)
    if model is None or model.kind != KIND:
        what = "model" if model is None else model.kind
        raise ModelFileError(f"a {what}, not a reward", place=source, remedy="give a file that astray pretrain wrote")
    return unpack_reward(model, "reward")


def write_reward(path: FilePath, reward: Reward) -> None:
    """Writes a reward to a file, whole or not at all."""
    write(path, KIND, {"reward": reward})
