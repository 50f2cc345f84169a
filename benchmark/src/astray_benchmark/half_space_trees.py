"""River's Half-Space Trees in the stream (P7), a detector designed for streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from astray.core.trajectories import Trajectories
from astray_benchmark.array_types import Floats
from astray_benchmark.baselines.baseline import Baseline, Rows
from astray_benchmark.baselines.trip_outliers import FEATURES, trip_features
from astray_benchmark.calibration import CalibratedModel, PValueFollower, fit_and_calibrate
from astray_benchmark.contenders import Lesson, Person
from astray_benchmark.libraries import library

LEAST_WINDOW = 5  # trips

Row = dict[str, float]
"""The features of a trip by their names, as river takes them."""


@dataclass(frozen=True)
class HalfSpaceTreesStream:
    """River's Half-Space Trees (Tan et al. 2011), on trip features scaled to the training set's range.

    Their window is 250 trips, or half of the training trips if that is less, because the trees score nothing before two
    windows have passed.
    """

    name: str  # in tables
    flagged_too: bool = True  # True: learn from every trip, as published; False: only from unflagged ones
    options: Mapping[str, Any] = field(default_factory=dict)  # parameters of river's class that differ from its default

    def begin(self, lesson: Lesson, seed: int) -> TreesFollower:
        """Learns from the training trips in their order, and measures the scale on left-out ones."""
        began = time.process_time()
        features = _TripFeatures().fit(lesson.train)
        known = features.of(lesson.train)
        known = known[~np.isnan(known[:, 0])]
        low, high = np.nanmin(known, axis=0), np.nanmax(known, axis=0)

        def rows_of(values: Floats) -> list[Row]:
            # The trees cut between 0 and 1, so clip values beyond the training set's range.
            scaled = np.clip((values - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
            return [dict(zip(FEATURES, row, strict=True)) for row in scaled.tolist()]

        def row_of(trip: Trajectories) -> Row | None:
            values = features.of(trip)
            return None if np.isnan(values[0, 0]) else rows_of(values)[0]

        def trip_scores(trees: Any, trip: Trajectories) -> Floats:
            row = row_of(trip)
            return np.array([np.nan if row is None else -trees.score_one(row)])

        prepared = time.process_time() - began
        trees, left_out, seconds = fit_and_calibrate(
            known,
            seed,
            lambda values: self._grow(rows_of(values), seed),
            lambda trees, values: (np.array([-trees.score_one(row) for row in rows_of(values)]), np.zeros(0)),
        )
        seconds = seconds._replace(fit=seconds.fit + prepared)
        fitted = CalibratedModel(trees, left_out, seconds, trip_scores, _no_fix_scores)
        return TreesFollower(fitted, row_of, self.flagged_too)

    def _grow(self, rows: list[Row], seed: int) -> Any:
        window = min(250, max(LEAST_WINDOW, len(rows) // 2))
        trees = library("river.anomaly").HalfSpaceTrees(**{"seed": seed, "window_size": window, **self.options})
        for row in rows:
            trees.learn_one(row)
        return trees


@dataclass(eq=False)
class TreesFollower(PValueFollower):
    """Half-Space Trees that follow a stream; see :class:`~astray_benchmark.contenders.Follower`."""

    fitted: CalibratedModel
    row_of: Callable[[Trajectories], Row | None]
    flagged_too: bool

    def learn(self, trip: Trajectories, person: Person) -> int:
        """Learns from the trip; asks nobody."""
        row = self.row_of(trip)
        if row is not None and (self.flagged_too or not self.flagged):
            self.fitted.model.learn_one(row)
        return 0


def _no_fix_scores(trees: Any, trips: Trajectories) -> Floats:
    return np.full(trips.n_rows, np.nan)


class _TripFeatures(Baseline):
    """Makes the same features of trips as for PyOD's detectors; scores nothing."""

    name: ClassVar[str] = "trip features"

    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        """Learns nothing."""

    def _anomaly(self, rows: Rows) -> Floats:
        return np.zeros(len(rows.path))

    def of(self, trips: Trajectories) -> Floats:
        return trip_features(self.featurize(trips).steps, len(trips))
