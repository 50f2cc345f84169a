"""Encoders: from steps to the numbers that the reward network sees. Three, replaceable: raw, fourier, familiarity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.trip_ids import TripId
from astray.features.familiarity import (
    DEFAULT_HABITS,
    DEFAULT_LAGS,
    GRIDS,
    Frame,
    Habit,
    StepKeys,
    familiarity_of,
    few_familiarity,
    keys_by_trip,
)
from astray.features.memory import Memory
from astray.features.steps import Step, Steps

Array = NDArray[Any]
Features = NDArray[np.float32]


class Encoder(Protocol):
    """Turns steps into features; ``without`` names, for each step, the remembered trip that must not count."""

    @property
    def names(self) -> list[str]:
        """One name a feature."""

    @property
    def lags(self) -> tuple[float, ...]:
        """The seconds by which the steps must look back."""

    def encode(self, steps: Steps, without: Array | None = None) -> Features:
        """Features, one row a step; in memory in whichever order is made fastest."""


@dataclass(frozen=True)
class RawEncoder:
    """The paper's input to the letter: location, start, time since the start, velocity."""

    lags: tuple[float, ...] = ()

    @property
    def names(self) -> list[str]:
        """One name a feature."""
        return ["x", "y", "x0", "y0", "elapsed", "vx", "vy"]

    def encode(self, steps: Steps, without: Array | None = None) -> Features:
        """Features, one row a step."""
        state = steps.state
        return np.column_stack([state[:, :4] / 1000.0, state[:, 4] / 600.0, steps.velocity / 10.0]).astype(np.float32)


@dataclass(frozen=True)
class FourierEncoder:
    """Random Fourier features of the location and the start at several scales (Rahimi and Recht 2007), then motion.

    A small network cannot carve a street out of raw coordinates; out of waves of the street's size it can.
    """

    frequencies: Array  # (2, m), waves a metre
    lags: tuple[float, ...] = ()

    @classmethod
    def draw(
        cls, rng: np.random.Generator, scales: Sequence[float] = (300, 1000, 3000, 10000), waves: int = 16
    ) -> FourierEncoder:
        """Draw ``waves`` frequencies for each length scale (metres)."""
        return cls(np.hstack([rng.normal(size=(2, waves)) / (2 * np.pi * s) for s in scales]))

    @property
    def names(self) -> list[str]:
        """One name a feature."""
        m = self.frequencies.shape[1]
        waves = [f"{f} {i}" for f in ("sin", "cos") for i in range(m)]
        starts = [f"start {w}" for w in waves]
        return [*waves, *starts, *_MOTION]

    def encode(self, steps: Steps, without: Array | None = None) -> Features:
        """Features, one row a step."""
        waves = []
        for xy in (steps.location, steps.origin):
            phase = (2 * np.pi) * (xy @ self.frequencies)
            waves += [np.sin(phase), np.cos(phase)]
        return np.hstack([*waves, _motion(steps)]).astype(np.float32)


@dataclass(frozen=True)
class FamiliarityEncoder:
    """How familiar a step is to an agent's memory, in each habit; then motion and the length of the history."""

    memory: Memory = field(default_factory=Memory)
    habits: tuple[Habit, ...] = DEFAULT_HABITS
    lags: tuple[float, ...] = DEFAULT_LAGS
    frame: Frame = Frame()

    @property
    def names(self) -> list[str]:
        """One name a feature."""
        return [*(h.name for h in self.habits), *_MOTION, "history"]

    def encode(self, steps: Steps, without: Array | None = None) -> Features:
        """Features, one row a step."""
        return self.features(steps, familiarity_of(steps, self.habits, self.memory, self.frame, without))

    def features(self, steps: Steps, familiar: Features) -> Features:
        """The same, where the familiarity of the steps is known already."""
        features = np.empty((len(self.habits) + len(_MOTION) + 1, len(steps)), np.float32)
        features[: len(self.habits)] = familiar.T
        features[len(self.habits) : -1] = _motion(steps).T
        # The history is that of the whole memory, held-out trip or not: it must not tell training rows from others.
        features[-1] = np.log1p(self.memory.history)
        return features.T

    def remember(
        self, steps: Steps, trip_ids: Sequence[TripId], whole: Mapping[int, Array] | None = None
    ) -> FamiliarityEncoder:
        """The same encoder with further trips in its memory; ``steps.trip`` counts into ``trip_ids``.

        ``whole`` holds further keys of trips, those of the trips as a whole.
        """
        if len(set(trip_ids)) < len(trip_ids):
            twice = next(t for t in trip_ids if trip_ids.count(t) > 1)
            raise DataError(
                f"two trips are called {str(twice)!r}", remedy="give each trajectory of an agent an id of its own"
            )
        trips = keys_by_trip(steps, self.habits, self.frame)
        if whole:
            trips = {i: np.concatenate([keys, whole[i]]) if i in whole else keys for i, keys in trips.items()}
        _, first = np.unique(steps.trip, return_index=True)
        times = {trip_ids[i]: float(steps.time[row]) for i, row in zip(steps.trip[first], first, strict=True)}
        return self.with_memory(self.memory.add({trip_ids[i]: keys for i, keys in trips.items()}, times))

    def with_memory(self, memory: Memory) -> FamiliarityEncoder:
        """The same habits over another agent's memory."""
        return FamiliarityEncoder(memory, self.habits, self.lags, self.frame)


@dataclass(frozen=True)
class OwnEncoder:
    """An encoder of one's own: any object with ``names`` and ``encode``, whose features are checked."""

    encoder: Any

    def __post_init__(self) -> None:
        wrong = [name for name in ("names", "encode") if not hasattr(self.encoder, name)]
        if wrong:
            raise DataError(
                f"the encoder {type(self.encoder).__name__} has no {wrong[0]}",
                remedy="give the names of its features as names, and encode(steps, without) that returns them",
            )

    @property
    def names(self) -> list[str]:
        """One name a feature."""
        return list(self.encoder.names)

    @property
    def lags(self) -> tuple[float, ...]:
        """The seconds by which the steps must look back; none unless the encoder says so."""
        return tuple(getattr(self.encoder, "lags", ()))

    def encode(self, steps: Steps, without: Array | None = None) -> Features:
        """Features, one row a step."""
        found = np.asarray(self.encoder.encode(steps, without), np.float32)
        wanted = (len(steps), len(self.names))
        if found.shape != wanted or not np.isfinite(found).all():
            what = f"features of the shape {found.shape}" if found.shape != wanted else "features that are not finite"
            raise DataError(
                f"the encoder {type(self.encoder).__name__} gave {what}",
                remedy=f"give one row a step and a finite number for each of its names: {wanted}",
            )
        return found


class StepEncoder:
    """The features of one step after another, for a live feed: to the last bit those of :class:`FamiliarityEncoder`."""

    __slots__ = ("_log_history", "_memory", "_step_keys", "familiar", "keys")

    def __init__(self, encoder: FamiliarityEncoder) -> None:
        self._memory = encoder.memory
        self._step_keys = StepKeys(encoder.habits, encoder.frame)
        self._log_history = float(np.log1p(encoder.memory.history))
        self.keys: Array = np.zeros((len(encoder.habits), GRIDS), np.uint64)  # of the last step: (habits, grids)
        self.familiar: Array = np.zeros(len(encoder.habits), np.float32)  # of the last step: (habits,)

    def encode(self, step: Step) -> Features:
        """The features of the next step: (1, features)."""
        keys = self._step_keys(step.time, (step.location, step.origin, *step.trail), step.velocity)
        if self._step_keys.changed:
            self.keys = keys.reshape(-1, GRIDS).copy()
            (self.familiar,) = few_familiarity(self.keys[None], [self._memory])
        vx, vy = step.velocity
        habits = len(self.familiar)
        features = np.empty((1, habits + len(_MOTION) + 1), np.float32)
        features[0, :habits] = self.familiar
        features[0, habits:] = (
            np.log(1.0 + math.sqrt(vx * vx + vy * vy)),
            vx / 10.0,
            vy / 10.0,
            np.log(1.0 + step.elapsed / 60.0),
            self._log_history,
        )
        return features


_MOTION = ["speed", "vx", "vy", "elapsed"]


def _motion(steps: Steps) -> Array:
    vx, vy = steps.velocity.T
    # A plain logarithm takes half as long as log1p, and in single precision they are the same.
    speed = np.log(1.0 + np.sqrt(vx * vx + vy * vy))
    return np.stack([speed, vx / 10.0, vy / 10.0, np.log(1.0 + steps.elapsed / 60.0)]).T
