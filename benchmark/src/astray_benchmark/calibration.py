"""Puts the scores of every method on one scale: standard deviations of normal trips, and p-values.

So one threshold, eps = -2, is the same demand of every method, and one rate of false alarms is. astray calibrates
itself; a baseline is calibrated here: a quarter of the training trips is left out, and a model fitted on the others
scores it, then another quarter, until 50 trips have been left out or all have. The mean and standard deviation of those
scores standardise the test scores (which leaves AUROC and AP untouched), and the same scores give conformal p-values.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.trajectories import Trajectories
from astray.scoring.normality import Sample
from astray_benchmark.contenders import Array, Fitted, Floats, Seconds

LEFT_OUT = 50  # training trips that calibrate a baseline, if there are enough: fewer cannot show 2 %
FOLDS = 4
RATE = 0.02  # p-values of at most this are flagged where p-values decide: astray's own default

Model = TypeVar("Model")


class LeftOut(NamedTuple):
    """What a method says of training trips that it has not seen: the raw scores of trips (sorted) and of steps."""

    trips: Floats
    steps: Floats


def fit_and_calibrate(
    train: Any, seed: int, fit: Callable[[Any], Model], scores: Callable[[Model, Any], tuple[Floats, Floats]]
) -> tuple[Model, LeftOut, Seconds]:
    """Fits a model on all training trips, and others of its kind that score the trips that they were fitted without.

    ``train`` may be trips or rows of features: anything that a mask selects from. ``scores`` gives the raw scores of
    trips and of steps; NaN where there is none.
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
    """Makes the table of :meth:`~astray_benchmark.contenders.Fitted.trips` from raw scores; NaN becomes null."""
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


class PValueFollower(ABC):
    """A method in a stream that flags a trip whose p-value is at most the rate that astray flags at by default."""

    flagged: bool = False  # whether the trip that was scored last is flagged

    @abstractmethod
    def table(self, trip: Trajectories) -> pl.DataFrame:
        """Scores a trip: see :meth:`~astray_benchmark.contenders.Fitted.trips`."""

    def score(self, trip: Trajectories) -> pl.DataFrame:
        """Scores a trip and decides; see :class:`~astray_benchmark.contenders.Follower`."""
        row = self.table(trip)
        self.flagged = bool(row["p_value"].fill_null(1.0)[0] <= RATE)
        return row.with_columns(pl.lit(self.flagged).alias("flagged"))


@runtime_checkable
class Calibrated(Protocol):
    """A method that has learned, and whose scores are in standard deviations of left-out trips; a dataclass."""

    left_out: LeftOut


def on_one_scale(models: Sequence[Fitted]) -> Sequence[Fitted]:
    """Returns the models of a trial's folds, with the scale of all trips that any of them left out.

    Their scores are ranked together, and what is no further from normal must not look so for its fold's scale. A
    detector of astray's keeps the scale that it finds itself.
    """
    scales = [model.left_out for model in models if isinstance(model, Calibrated)]
    if len(scales) < 2 or len(scales) < len(models):
        return models
    trips, steps = (np.concatenate(parts) for parts in zip(*scales, strict=True))
    return [replace(model, left_out=LeftOut(np.sort(trips), steps)) for model in models]  # type: ignore[type-var]


def folds(n: int, rng: np.random.Generator, enough: int = LEFT_OUT) -> list[NDArray[np.bool_]]:
    """Returns disjoint quarters of ``n`` trips to leave out: as many as hold ``enough`` trips, at most all four.

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
    """Standardises values by the mean and standard deviation of the left-out ones; by the mean if these are equal.

    >>> standardise(np.array([0.0, 4.0]), np.array([1.0, 3.0])).tolist()
    [-2.0, 2.0]
    """
    spread = float(left_out.std()) if len(left_out) else 0.0
    centre = float(left_out.mean()) if len(left_out) else 0.0
    return np.asarray((values - centre) / (spread if spread > 0.0 else 1.0), np.float64)
