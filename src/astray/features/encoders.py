"""Encoders, which turn steps into the inputs of the reward network: raw, fourier, familiarity, or the user's own."""

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
    Frame,
    Habit,
    familiarity_of,
    keys_by_trip,
)
from astray.features.memory import Memory
from astray.features.normal_scores import StepScores
from astray.features.steps import Step, Steps

Array = NDArray[Any]
Features = NDArray[np.float32]


WAVES, WIDTH = 64, 0.15  # of a FourierEncoder


class Encoder(Protocol):
    """Turns steps into features; ``without`` gives, for each step, the number of a remembered trip to ignore."""

    @property
    def names(self) -> list[str]:
        """Returns one name for each feature."""

    @property
    def lags(self) -> tuple[float, ...]:
        """Returns the seconds by which steps must look back."""

    def encode(self, steps: Steps, without: Array | None = None) -> Features:
        """Returns features, one row for each step, in C or Fortran order."""


@dataclass(frozen=True, eq=False)
class RawEncoder:
    """Returns exactly the paper's input, as normal scores: location, start, time since the start, velocity."""

    scores: StepScores
    lags: tuple[float, ...] = ()

    @property
    def names(self) -> list[str]:
        """Returns one name for each feature."""
        return list(_RAW)

    def encode(self, steps: Steps, without: Array | None = None) -> Features:
        """Returns features, one row a step."""
        return _raw(self.scores, steps).astype(np.float32)


@dataclass(frozen=True, eq=False)
class FourierEncoder:
    """Returns the paper's input, the place that the step leads to, and waves of that place and of the start.

    State and action determine the place that a step leads to, but a small network cannot compute it from normal scores.
    Waves of the place before a step would show only the start during the first interval of a trip. The waves are random
    Fourier features (Rahimi and Recht 2007): the network cannot learn a street from coordinates, but it can from waves
    that are about as long. They are over normal scores, so that they are short where the agent often is.
    """

    scores: StepScores
    frequencies: Array  # (2, m), in radians per score
    lags: tuple[float, ...] = ()

    @classmethod
    def of(cls, scores: StepScores, noise: Array, width: float = WIDTH) -> FourierEncoder:
        """Makes frequencies of standard normal ``noise`` (2, m), for a Gaussian kernel of this width."""
        return cls(scores, noise / width)

    @property
    def names(self) -> list[str]:
        """Returns one name for each feature."""
        waves = [f"{f} {i}" for f in ("sin", "cos") for i in range(self.frequencies.shape[1])]
        return [*_RAW, "x reached", "y reached", *(f"{place} {w}" for place in ("reached", "start") for w in waves)]

    def encode(self, steps: Steps, without: Array | None = None) -> Features:
        """Returns features, one row a step."""
        raw, reached = _raw(self.scores, steps), self.scores.place(steps.location)
        phases = [place @ self.frequencies for place in (reached, raw[:, 2:4])]
        waves = [wave(phase) for phase in phases for wave in (np.sin, np.cos)]
        return np.hstack([raw, reached, *waves]).astype(np.float32)


@dataclass(frozen=True)
class FamiliarityEncoder:
    """Returns the familiarity of a step by each habit, then motion and the number of past trips."""

    memory: Memory = field(default_factory=Memory)
    habits: tuple[Habit, ...] = DEFAULT_HABITS
    lags: tuple[float, ...] = DEFAULT_LAGS
    frame: Frame = Frame()

    @property
    def names(self) -> list[str]:
        """Returns one name for each feature."""
        return [*(h.name for h in self.habits), *_MOTION, "history"]

    def encode(self, steps: Steps, without: Array | None = None) -> Features:
        """Returns features, one row a step."""
        return self.features(steps, familiarity_of(steps, self.habits, self.memory, self.frame, without))

    def features(self, steps: Steps, familiar: Features) -> Features:
        """Returns the features of steps whose familiarity is known."""
        features = np.empty((len(self.habits) + len(_MOTION) + 1, len(steps)), np.float32)
        features[: len(self.habits)] = familiar.T
        _put_motion(steps, features[len(self.habits) : -1])
        # The number of past trips includes a held-out one; otherwise it would distinguish training rows from others.
        features[-1] = np.log1p(self.memory.history)
        return features.T

    def features_of_step(self, step: Step, familiar: Features) -> Features:
        """Returns the features of one step, (1, features), equal to the last bit to those of :meth:`features`.

        For one step this is five times as fast, because plain Python is faster than numpy on single numbers.
        """
        vx, vy = step.velocity
        features = np.empty((1, len(familiar) + len(_MOTION) + 1), np.float32)
        features[0, : len(familiar)] = familiar
        features[0, len(familiar) :] = (
            np.log(1.0 + math.sqrt(vx * vx + vy * vy)),
            vx / 10.0,
            vy / 10.0,
            np.log(1.0 + step.elapsed / 60.0),
            np.log1p(self.memory.history),
        )
        return features

    def remember(
        self, steps: Steps, trip_ids: Sequence[TripId], whole: Mapping[int, Array] | None = None
    ) -> FamiliarityEncoder:
        """Returns an encoder with further trips in its memory; ``steps.trip`` gives positions in ``trip_ids``.

        ``whole`` maps each of these positions to the keys that count the trip as a whole.
        """
        if len(set(trip_ids)) < len(trip_ids):
            twice = next(t for t in trip_ids if trip_ids.count(t) > 1)
            raise DataError(
                f"two trips are called {str(twice)!r}", remedy="give each trajectory of an agent a different id"
            )
        trips = keys_by_trip(steps, self.habits, self.frame)
        if whole:
            trips = {i: np.concatenate([keys, whole[i]]) if i in whole else keys for i, keys in trips.items()}
        _, first = np.unique(steps.trip, return_index=True)
        times = {trip_ids[i]: float(steps.time[row]) for i, row in zip(steps.trip[first], first, strict=True)}
        return self.with_memory(self.memory.add({trip_ids[i]: keys for i, keys in trips.items()}, times))

    def with_memory(self, memory: Memory) -> FamiliarityEncoder:
        """Returns an encoder with the same habits and another agent's memory."""
        return FamiliarityEncoder(memory, self.habits, self.lags, self.frame)


@dataclass(frozen=True)
class OwnEncoder:
    """Wraps a user's encoder, any object with ``names`` and ``encode``, and checks its features."""

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
        """Returns one name for each feature."""
        return list(self.encoder.names)

    @property
    def lags(self) -> tuple[float, ...]:
        """Returns the seconds by which steps must look back; none unless the encoder has ``lags``."""
        return tuple(getattr(self.encoder, "lags", ()))

    def encode(self, steps: Steps, without: Array | None = None) -> Features:
        """Returns features, one row a step."""
        found = np.asarray(self.encoder.encode(steps, without), np.float32)
        wanted = (len(steps), len(self.names))
        if found.shape != wanted or not np.isfinite(found).all():
            what = f"features of the shape {found.shape}" if found.shape != wanted else "features that are not finite"
            raise DataError(
                f"the encoder {type(self.encoder).__name__} gave {what}",
                remedy=f"return one row per step and a finite number for each of its names: {wanted}",
            )
        return found


_RAW = ("x", "y", "x0", "y0", "elapsed", "vx", "vy")


def _raw(scores: StepScores, steps: Steps) -> NDArray[np.float64]:
    return np.hstack([scores.states(steps.state[:, :5]), scores.velocity(steps.velocity)])


def scores_of(encoder: Encoder) -> StepScores | None:
    """Returns the normal scores in which an encoder sees the paper's state and action; None if it sees others."""
    return encoder.scores if isinstance(encoder, RawEncoder | FourierEncoder) else None


_MOTION = ["speed", "vx", "vy", "elapsed"]


def _put_motion(steps: Steps, columns: Array) -> None:
    """Writes the speed, velocity and elapsed time of steps into four columns, scaled for a network."""
    vx, vy = steps.velocity.T
    # A plain logarithm takes half as long as log1p; in single precision they are equal.
    columns[0] = np.log(1.0 + np.sqrt(vx * vx + vy * vy))
    columns[1] = vx / 10.0
    columns[2] = vy / 10.0
    columns[3] = np.log(1.0 + steps.elapsed / 60.0)
