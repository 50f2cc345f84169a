"""Keeps the state of a watch across restarts in one file: versioned, checked, replaced whole, without pickle."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from astray.core.errors import DataError
from astray.core.snapshot import ANEW, Snapshot
from astray.model.file import is_database
from astray.model.packing import check_readable, read, write
from astray.model.plain_values import pack_text
from astray.runtime.position import Position

if TYPE_CHECKING:
    from astray.detector import Detector

KIND = "watch"
VERSION = 7


@dataclass
class State:
    """The state of a watch: which lines it has read, how many events it has written, and every agent's open trip."""

    model: str
    position: Position = field(default_factory=Position)
    sequence: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    agents: dict[str, Snapshot] = field(default_factory=dict)  # from the least to the most recent one

    def save(self, path: Path) -> None:
        """Writes the state to a file, whole or not at all."""
        numbers = [snapshot.numbers for snapshot in self.agents.values()]
        values = {
            "state": VERSION,
            "model": self.model,
            "lines": self.position.lines,
            "sequence": self.sequence,
            "counts": self.counts,
        }
        arrays = {
            **pack_text("agents", list(self.agents)),
            "agents.offsets": np.cumsum([0, *map(len, numbers)], dtype=np.int64),
            "agents.held": np.concatenate([np.zeros(0), *(np.frombuffer(held, np.float64) for held in numbers)]),
            "lines.head": np.array(self.position.head, np.uint64),
            "lines.tail": np.array(self.position.tail, np.uint64),
        }
        write(path, KIND, values, arrays)

    @classmethod
    def load(cls, path: Path, model: str) -> State:
        """Reads the state from a file; raises a DataError if it belongs to another model."""
        check_readable(path)
        file = None if is_database(path) else read(path)
        if file is None or file.kind != KIND:
            raise DataError("a model, not the state of a watch", place=path, remedy="name another file for the state")
        version = file.value("state", int)
        if version > VERSION:
            raise DataError("written by a newer astray", place=path, remedy=f"upgrade astray, or {ANEW}")
        if version < VERSION:
            raise DataError("written by an earlier astray", place=path, remedy=ANEW)
        if file.value("model", str) != model:
            reason = "this state belongs to another model (or to this one before it was fitted again)"
            raise DataError(reason, place=path, remedy=f"give the model that it was made with, or {ANEW}")
        names = file.text("agents")
        held = file.array("agents.held", np.float64, None, unbounded=True)
        offsets = file.offsets("agents.offsets", len(held), len(names)).tolist()
        snapshots = [Snapshot(held[a:b]) for a, b in pairwise(offsets)]
        position = Position(
            file.value("lines", int),
            file.array("lines.head", np.uint64, None).tolist(),
            file.array("lines.tail", np.uint64, None).tolist(),
        )
        counts: Mapping[str, int] = file.value("counts", dict[str, int])
        return cls(model, position, file.value("sequence", int), dict(counts), dict(zip(names, snapshots, strict=True)))


def fingerprint(model: Detector) -> str:
    """Returns a digest of a model's reward and features; enrolling further trips does not change it."""
    agent_model = model.agent_model("", (0.0, 0.0))
    digest = hashlib.blake2b(repr((model.is_one, agent_model.featurizer.config)).encode(), digest_size=16)
    for reward in filter(None, (model.reward_.step, model.reward_.trip)):
        digest.update(repr((reward.clip, reward.aspects)).encode())
        for array in (reward.mean, reward.scale, *(a for layer in reward.layers for a in layer)):
            digest.update(np.ascontiguousarray(array).tobytes())
    if model.reward_.trip is None:
        c = agent_model.calibration
        digest.update(repr((c.step, c.trip, c.by_length, c.weights, c.window_length, c.scale)).encode())
        digest.update(c.normal.scores.tobytes())
    return digest.hexdigest()
