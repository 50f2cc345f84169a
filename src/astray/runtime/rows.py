"""The rows by which an open trip is scored, in arrays that grow with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.features.encoders import FamiliarityEncoder
from astray.features.familiarity import GRIDS, familiarity_to_each, keys_of
from astray.features.featurizer import Featurizer
from astray.features.steps import Step, Steps, as_steps

Array = NDArray[Any]

Seen = tuple[NDArray[np.uint64], NDArray[np.float32]]
"""The keys of a step (habits, grids), and their familiarity (habits,)."""

FEW = 16  # rows to make room for at first


class Rows:
    """Holds steps with their n(s, a) and, where the featurizer has a memory, with their keys and familiarity.

    The last row is the last fix of the trip. Unless that row stays, the next fix replaces it.

    >>> from astray import Trajectories
    >>> from astray.features.featurizer import FeaturizerConfig
    >>> trips = Trajectories.from_fixes(time=[0.0], lat=[45.0], lon=[7.0])
    >>> featurizer = Featurizer.of(trips, FeaturizerConfig(encoder="raw"), np.random.default_rng(0))
    >>> rows = Rows(featurizer)
    >>> here = Step(0.0, (0.0, 0.0), (0.0, 0.0), 0.0, (0.0, 0.0), 0.0, (), True)
    >>> for time, stays in ((0.0, True), (10.0, False), (20.0, False)):
    ...     rows.put(here._replace(time=time), stays)
    >>> rows.steps(rows.total, np.zeros(0)).time.tolist(), rows.kept
    ([0.0, 20.0], 1)
    """

    __slots__ = ("familiar", "kept", "keys", "numbers", "seen", "total")

    def __init__(self, featurizer: Featurizer) -> None:
        habits = len(featurizer.config.habits) if featurizer.counts else 0
        # The first ``total`` rows are in use; the rest is room for more.
        self.numbers: Array = np.empty((FEW, Step.width(len(featurizer.encoder.lags)) + 1))  # a step, and its n(s, a)
        self.keys: Array = np.empty((FEW, habits, GRIDS), np.uint64)
        self.familiar: Array = np.empty((FEW, habits), np.float32)
        self.kept = 0  # rows that stay
        self.total = 0  # rows, including the last fix
        self.seen = True  # True if the last row has its keys and familiarity; a row that does not stay may lack them

    def put(self, step: Step, stays: bool) -> None:
        """Adds a row without n(s, a), keys and familiarity: see :meth:`see` and :meth:`score`."""
        at = self.kept
        if at == len(self.numbers):
            self._grow()
        self.numbers[at] = (*step.numbers(), math.nan)
        self.total = at + 1
        self.kept = at + stays
        self.seen = False

    def score(self, normality: float) -> None:
        """Sets n(s, a) of the last row."""
        self.numbers[self.total - 1, -1] = normality

    def see(self, keys: Array, familiar: Array) -> None:
        """Sets the keys and the familiarity of the last row."""
        self.keys[self.total - 1] = keys
        self.familiar[self.total - 1] = familiar
        self.seen = True

    @property
    def last(self) -> Seen:
        """Returns the keys and the familiarity of the last row."""
        return self.keys[self.total - 1], self.familiar[self.total - 1]

    def _grow(self) -> None:
        for name in ("numbers", "keys", "familiar"):
            old = getattr(self, name)
            new = np.empty((2 * len(old), *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    def steps(self, n: int, given: Array) -> Steps:
        """Returns the first ``n`` rows, with the trip's context."""
        return as_steps(self.numbers[:n, :-1], given)

    def __getitem__(self, row: int) -> tuple[Step, Array, Array]:
        """Returns a row: the step, its keys and their familiarity."""
        return Step.of(self.numbers[row, :-1].tolist()), self.keys[row], self.familiar[row]

    @classmethod
    def of(cls, featurizer: Featurizer, numbers: Sequence[float], kept: int, given: Array) -> Rows:
        """Makes rows from their numbers."""
        rows = cls(featurizer)
        held = np.array(numbers).reshape(-1, rows.numbers.shape[1])
        rows.total, rows.kept = len(held), kept
        while len(rows.numbers) < rows.total:
            rows._grow()
        rows.numbers[: rows.total] = held
        if isinstance(featurizer.encoder, FamiliarityEncoder):
            keys = keys_of(rows.steps(rows.total, given), featurizer.encoder.habits, featurizer.encoder.frame)
            rows.keys[: rows.total] = keys
            rows.familiar[: rows.total] = familiarity_to_each(keys, [featurizer.memory] * rows.total)
        return rows
