"""Puts the scores of every method on one scale: standard deviations of normal trips, and p-values.

So the threshold eps = -2, or a rate of false alarms, means the same for every method. astray calibrates itself; this
module calibrates the baselines. It leaves out a quarter of the training trips and scores them by a model fitted on the
others; then another quarter, until 50 or all trips have been left out. The mean and standard deviation of these scores
standardise the test scores (which does not change AUROC and AP), and the same scores give conformal p-values.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.trajectories import Trajectories
from astray.scoring.normality import Sample
from astray_benchmark.array_types import Array, Floats
from astray_benchmark.contenders import Fitted, Person, Seconds

LEFT_OUT = 50  # training trips to calibrate a baseline, if there are as many; fewer cannot show a rate of 2 %
FOLDS = 4
RATE = 0.02  # where p-values decide, trips are flagged at this p-value or less: astray's default

Model = TypeVar("Model")


class LeftOut(NamedTuple):
    """Raw scores of left-out training trips, by models fitted without them."""

    trips: Floats  # sorted
    steps: Floats


def fit_and_calibrate(
    train: Any, seed: int, fit: Callable[[Any], Model], scores: Callable[[Model, Any], tuple[Floats, Floats]]
) -> tuple[Model, LeftOut, Seconds]:
    """Fits a model on all training trips, and further models to score training trips that they are fitted without.

    ``train`` may be trips or rows of features: anything that a mask can index. ``scores`` returns the raw scores of
    trips and of steps, with NaN for missing ones.
    """
    began = time.process_time()
    model = fit(train)
    fitted = time.process_time()
    parts = [
        scores(fit(train[~held]), train[held]) for held in folds(len(train), np.random.default_rng([seed, len(train)]))
    ]
    trips, steps = (values[~np.isnan(values)] for values in map(np.concatenate, zip(*parts, strict=True)))
    return model, LeftOut(np.sort(trips), steps), Seconds(fitted - began, time.process_time() - fitted)


def trip_table(raw: Floats, left_out: LeftOut) -> pl.DataFrame:
    """Returns the table of :meth:`~astray_benchmark.contenders.Fitted.trips` for raw scores; NaN becomes null."""
    normality, nothing = standardise(raw, left_out.trips), [None] * len(raw)
    return pl.DataFrame(
        {
            "normality": normality,
            "score": normality,
            "uncertainty": pl.Series(nothing, dtype=pl.Float64),
            "p_value": Sample.of(left_out.trips).p_values(raw),
            "aspect": pl.Series(nothing, dtype=pl.String),
            "part": pl.Series(nothing, dtype=pl.Float64),
        }
    ).with_columns(pl.col("normality", "score", "p_value").fill_nan(None))


@dataclass(frozen=True, eq=False)
class CalibratedModel:
    """A fitted model that converts its raw scores to standard deviations of left-out trips."""

    model: Any
    left_out: LeftOut
    seconds: Seconds
    trip_scores: Callable[[Any, Trajectories], Floats]
    fix_scores: Callable[[Any, Trajectories], Floats]

    def trips(self, test: Trajectories) -> pl.DataFrame:
        """See :class:`~astray_benchmark.contenders.Fitted`."""
        return trip_table(self.trip_scores(self.model, test), self.left_out)

    def begun(self, test: Trajectories) -> Floats:
        """See :class:`~astray_benchmark.contenders.Fitted`."""
        return standardise(self.trip_scores(self.model, test), self.left_out.trips)

    def fixes(self, test: Trajectories) -> Floats:
        """See :class:`~astray_benchmark.contenders.Fitted`."""
        return standardise(self.fix_scores(self.model, test), self.left_out.steps)


def on_one_scale(models: Sequence[Fitted]) -> Sequence[Fitted]:
    """Returns the models of a trial's folds, all with one scale, from the trips that any of them left out.

    Scores of all folds are ranked together, so different scales would change the order of trips. A detector of astray
    keeps its own scale.
    """
    calibrated = [model for model in models if isinstance(model, CalibratedModel)]
    if len(calibrated) < 2 or len(calibrated) < len(models):
        return models
    trips, steps = (np.concatenate(parts) for parts in zip(*(model.left_out for model in calibrated), strict=True))
    return [replace(model, left_out=LeftOut(np.sort(trips), steps)) for model in calibrated]


@dataclass(eq=False)
class PValueFollower(ABC):
    """A method in a stream that flags a trip if its p-value is at most astray's default rate of false alarms."""

    fitted: Fitted
    seconds: Seconds = field(init=False)  # for learning from the past; refitting later does not count
    flagged: bool = field(default=False, init=False)  # the decision on the trip that was scored last

    def __post_init__(self) -> None:
        self.seconds = self.fitted.seconds

    def score(self, trip: Trajectories) -> pl.DataFrame:
        """Scores a trip and decides; see :class:`~astray_benchmark.contenders.Follower`."""
        row = self.fitted.trips(trip)
        self.flagged = bool(row["p_value"].fill_null(1.0)[0] <= RATE)
        return row.with_columns(pl.lit(self.flagged).alias("flagged"))

    @abstractmethod
    def learn(self, trip: Trajectories, person: Person) -> int:
        """See :class:`~astray_benchmark.contenders.Follower`."""


def folds(n: int, rng: np.random.Generator, enough: int = LEFT_OUT) -> list[NDArray[np.bool_]]:
    """Returns disjoint quarters of ``n`` trips to leave out, until they hold ``enough`` trips.

    >>> [int(f.sum()) for f in folds(120, np.random.default_rng(0))]
    [30, 30]
    >>> [int(f.sum()) for f in folds(201, np.random.default_rng(0))]
    [51]
    >>> [int(f.sum()) for f in folds(5, np.random.default_rng(0))]
    [2, 1, 1, 1]
    """
    quarter = rng.permutation(n) % FOLDS
    wanted = min(FOLDS, -(-enough * FOLDS // n))
    return [found for k in range(wanted) if (found := quarter == k).any()]


def standardise(values: Array, left_out: Array) -> Floats:
    """Standardises values by the mean and standard deviation of left-out ones; only by the mean if these are all equal.

    >>> standardise(np.array([0.0, 4.0]), np.array([1.0, 3.0])).tolist()
    [-2.0, 2.0]
    """
    spread = float(left_out.std()) if len(left_out) else 0.0
    centre = float(left_out.mean()) if len(left_out) else 0.0
    return np.asarray((values - centre) / (spread if spread > 0.0 else 1.0), np.float64)
