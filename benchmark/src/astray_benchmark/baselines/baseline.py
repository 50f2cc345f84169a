"""The base class of every baseline, which fits on trips, and scores steps and trips.

A baseline has the same inputs as the reward: the same trips, cut at the same gaps, resampled to an interval, and for
each step the paper's state and action (location, start, time since the start, velocity).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError, NotFittedError
from astray.core.projection import Projection
from astray.core.trajectories import Trajectories
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.paths import resample
from astray.features.steps import Steps
from astray_benchmark.array_types import Array, Floats


class StepScores(NamedTuple):
    """The anomaly of every step, high = anomalous, and the position of its trip."""

    anomaly: Floats
    trip: NDArray[np.int64]


class Scaling(NamedTuple):
    """The mean and spread of each feature in the training set."""

    mean: Floats
    scale: Floats

    @classmethod
    def of(cls, features: Array) -> Scaling:
        """Measures features; sets the spread of a constant one to 1, so that it becomes 0."""
        spread = features.std(axis=0, dtype=np.float64)
        return cls(features.mean(axis=0, dtype=np.float64), np.where(spread > 1e-6, spread, 1.0))

    def standardise(self, features: Array) -> Floats:
        """Returns features that have mean 0 and variance 1 over the training set."""
        return np.asarray((features - self.mean) / self.scale)


class Rows(NamedTuple):
    """Steps to fit or score a baseline on, one per row."""

    features: Floats  # the paper's state and action, standardised over the training set
    steps: Steps  # in metres and seconds
    path: NDArray[np.int64]  # the path (a stretch of a trip without a gap) of each step
    around: Projection  # from metres to degrees


@dataclass(eq=False)
class Baseline(ABC):
    """A detector that gives every step an anomaly score; a trip's score is minus the mean over its steps.

    Parameters
    ----------
    interval
        The seconds between steps, to which trips are resampled.
    seed
        The seed of all random numbers; the same seed gives the same scores.

    Attributes
    ----------
    featurizer_
        Turns fixes into steps; it is centred on the training set.
    scaling_
        The training set's mean and spread of each feature.
    """

    interval: float = 30.0
    seed: int = 0
    featurizer_: Featurizer | None = field(default=None, init=False, repr=False)
    scaling_: Scaling | None = field(default=None, init=False, repr=False)

    @property
    @abstractmethod
    def name(self) -> str:
        """Returns the baseline's name in tables."""

    @abstractmethod
    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        """Learns from the training steps."""

    @abstractmethod
    def _anomaly(self, rows: Rows) -> Array:
        """Returns the anomaly of every step, high = anomalous."""

    def fit(self, train: Trajectories) -> Self:
        """Learns from trips, which are assumed to be normal."""
        rng = np.random.default_rng(self.seed)
        featurizer = Featurizer.of(train, FeaturizerConfig(encoder="raw", interval=self.interval), rng)
        steps, path = self._moves(featurizer, train)
        trips = len(np.unique(steps.trip))
        if trips < 2:
            raise DataError(
                f"{trips} of the {len(train)} training trips have two usable fixes at different times",
                remedy=f"give at least two such trips to {self.name}",
            )
        features = featurizer.encode(steps)
        scaling = Scaling.of(features)
        self._learn(Rows(scaling.standardise(features), steps, path, featurizer.projection), rng)
        self.featurizer_, self.scaling_ = featurizer, scaling
        return self

    def featurize(self, trips: Trajectories) -> Rows:
        """Returns the steps of trips, in the rows that :meth:`score_steps` scores."""
        if self.featurizer_ is None or self.scaling_ is None:
            raise NotFittedError(f"{self.name} has not been fitted yet", remedy="call fit with normal trips first")
        if not len(trips):
            raise DataError("no trajectories were given to score", remedy="give at least one")
        steps, path = self._moves(self.featurizer_, trips)
        features = self.scaling_.standardise(self.featurizer_.encode(steps))
        return Rows(features, steps, path, self.featurizer_.projection)

    def _moves(self, featurizer: Featurizer, fixes: Trajectories) -> tuple[Steps, NDArray[np.int64]]:
        """Returns about one step per interval, and the path of each.

        The first point of a path is not a step.
        """
        paths = resample(featurizer.paths(fixes), featurizer.config.interval)
        steps = featurizer.steps(paths)
        return steps[~steps.first], paths.trajectory_of_row[~steps.first]

    def score_steps(self, trips: Trajectories) -> StepScores:
        """Returns the anomaly of every step, and the position of its trip."""
        rows = self.featurize(trips)
        anomaly = self._anomaly(rows) if len(rows.path) else np.zeros(0)
        return StepScores(np.asarray(anomaly, np.float64), rows.steps.trip.astype(np.int64))

    def score_samples(self, trips: Trajectories) -> Floats:
        """Returns a score for each trip, high = normal: minus the mean anomaly of its steps; NaN if it has none."""
        anomaly, trip = self.score_steps(trips)
        with np.errstate(invalid="ignore"):
            return -np.bincount(trip, anomaly, len(trips)) / np.bincount(trip, minlength=len(trips))
