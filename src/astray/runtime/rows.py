"""The rows of an open trip: what it is scored by, in arrays that grow with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.features.encoders import FamiliarityEncoder
from astray.features.familiarity import GRIDS, few_familiarity, keys_of
from astray.features.featurizer import Featurizer
from astray.features.steps import Step, Steps, as_steps

Array = NDArray[Any]

Seen = tuple[NDArray[np.uint64], NDArray[np.float32]]
"""The keys of a step (habits, grids), and their familiarity (habits,)."""

FEW = 16  # rows that there is room for at first


class Rows:
    """Steps with their n(s, a), and with their keys and familiarity where the featurizer has a memory.

    The last row is the last fix, which a trip ends with; unless it stays, the next one takes its place.

    >>> from astray import Trajectories
    >>> from astray.features.featurizer import FeaturizerConfig
    >>> trips = Trajectories.from_fixes(time=[0.0], lat=[45.0], lon=[7.0])
    >>> featurizer = Featurizer.of(trips, FeaturizerConfig(encoder="raw"), np.random.default_rng(0))
    >>> rows = Rows(featurizer)
    >>> here = Step(0.0, (0.0, 0.0), (0.0, 0.0), 0.0, (0.0, 0.0), 0.0, (), True)
    >>> for time, stays in ((0.0, True), (10.0, False), (20.0, False)):
    ...     rows.put(here._replace(time=time), 0.0, (np.zeros((0, GRIDS), np.uint64), np.zeros(0)), stays)
    >>> rows.steps(rows.total, np.zeros(0)).time.tolist(), rows.kept
    ([0.0, 20.0], 1)
    """

    __slots__ = ("familiar", "kept", "keys", "numbers", "seen", "total")

    def __init__(self, featurizer: Featurizer) -> None:
        habits = len(featurizer.config.habits) if featurizer.counts else 0
        # The first rows are in use; there is room for more.
        self.numbers: Array = np.empty((FEW, Step.width(len(featurizer.encoder.lags)) + 1))  # a step, and its n(s, a)
        self.keys: Array = np.empty((FEW, habits, GRIDS), np.uint64)
        self.familiar: Array = np.empty((FEW, habits), np.float32)
        self.kept = 0  # rows that stay
        self.total = 0  # rows, with the last fix
        self.seen = True  # whether keys and familiarity of the last row are there, too

    def put(self, step: Step, normality: float, seen: Sequence[Array] | None, stays: bool) -> None:
        """Add a row; of one that does not stay, keys and familiarity may be left open until somebody asks."""
        at = self.kept
        if at == len(self.numbers):
            self._grow()
        self.numbers[at] = (*step.numbers(), normality)
        self.total = at + 1
        self.kept = at + stays
        self.seen = seen is not None
        if seen is not None:
            self.see(*seen)

    def see(self, keys: Array, familiar: Array) -> None:
        """Set the keys and the familiarity of the last row."""
        self.keys[self.total - 1] = keys
        self.familiar[self.total - 1] = familiar
        self.seen = True

    @property
    def last(self) -> Seen:
        """The keys and the familiarity of the last row."""
        return self.keys[self.total - 1], self.familiar[self.total - 1]

    def _grow(self) -> None:
        for name in ("numbers", "keys", "familiar"):
            old = getattr(self, name)
            new = np.empty((2 * len(old), *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    def steps(self, n: int, given: Array) -> Steps:
        """The first ``n`` rows, with the trip's context."""
        return as_steps(self.numbers[:n, :-1], given)

    def __getitem__(self, row: int) -> tuple[Step, float, Array, Array]:
        """A row as it was put: the step, its n(s, a), its keys and their familiarity."""
        *numbers, normality = self.numbers[row].tolist()
        return Step.of(numbers), normality, self.keys[row], self.familiar[row]

    @classmethod
    def of(cls, featurizer: Featurizer, numbers: Sequence[float], kept: int, given: Array) -> Rows:
        """The rows that gave these numbers."""
        rows = cls(featurizer)
        held = np.array(numbers).reshape(-1, rows.numbers.shape[1])
        rows.total, rows.kept = len(held), kept
        while len(rows.numbers) < rows.total:
            rows._grow()
        rows.numbers[: rows.total] = held
        if isinstance(featurizer.encoder, FamiliarityEncoder):
            keys = keys_of(rows.steps(rows.total, given), featurizer.encoder.habits, featurizer.encoder.frame)
            rows.keys[: rows.total] = keys
            rows.familiar[: rows.total] = few_familiarity(keys, [featurizer.memory] * rows.total)
        return rows
