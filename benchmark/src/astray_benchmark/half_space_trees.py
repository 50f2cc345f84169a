"""river's Half-Space Trees in the stream (P7): a detector that its authors made for streams."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.trajectories import Trajectories
from astray_benchmark.baselines.baseline import Rows, StepDetector
from astray_benchmark.baselines.trip_outliers import FEATURES, trip_features
from astray_benchmark.calibration import LeftOut, PValueFollower, fit_and_calibrate, trip_table
from astray_benchmark.contenders import Lesson, Person, Seconds
from astray_benchmark.libraries import library

Floats = NDArray[np.float64]

LEAST_WINDOW = 5  # trips


@dataclass(frozen=True)
class HalfSpaceTreesStream:
    """Half-Space Trees (Tan et al. 2011) as river has them, on trip features scaled to the training set's range.

    Parameters
    ----------
    name
        What the tables call it.
    flagged_too
        Whether it learns from every trip, as its authors do, or from those alone that it does not flag.
    options
        Parameters of river's class that differ from its default. Its window is 250 trips, or as many as half of the
        training trips: before two windows have passed it knows nothing.
    """

    name: str
    flagged_too: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def begin(self, lesson: Lesson, seed: int) -> TreesFollower:
        """Learn from the training trips in their order, and measure the scale on left-out ones."""
        began = time.process_time()
        look = _TripFeatures().fit(lesson.train)
        features = look.of(lesson.train)
        known = features[~np.isnan(features[:, 0])]
        ranges = np.nanmin(known, axis=0), np.nanmax(known, axis=0)
        prepared = time.process_time() - began
        trees, left_out, seconds = fit_and_calibrate(
            _scaled(known, ranges),
            seed,
            lambda rows: self._grown(rows, seed),
            lambda trees, rows: (np.array([-trees.score_one(row) for row in _named(rows)]), np.zeros(0)),
        )
        seconds = seconds._replace(fit=seconds.fit + prepared)
        return TreesFollower(look, ranges, trees, left_out, self.flagged_too, seconds)

    def _grown(self, rows: Floats, seed: int) -> Any:
        made = library("river.anomaly").HalfSpaceTrees
        window = min(250, max(LEAST_WINDOW, len(rows) // 2))
        trees = made(**{"seed": seed, "window_size": window, **self.options})
        for row in _named(rows):
            trees.learn_one(row)
        return trees


@dataclass(eq=False)
class TreesFollower(PValueFollower):
    """Half-Space Trees that follow a stream; see :class:`~astray_benchmark.contenders.Follower`."""

    look: _TripFeatures
    ranges: tuple[Floats, Floats]
    trees: Any
    left_out: LeftOut
    flagged_too: bool
    seconds: Seconds

    def table(self, trip: Trajectories) -> pl.DataFrame:
        """Scores a trip."""
        row = self._row(trip)
        return trip_table(np.array([np.nan if row is None else -self.trees.score_one(row)]), self.left_out)

    def learn(self, trip: Trajectories, person: Person) -> int:
        """Learn from the trip; nobody is asked."""
        row = self._row(trip)
        if row is not None and (self.flagged_too or not self.flagged):
            self.trees.learn_one(row)
        return 0

    def _row(self, trip: Trajectories) -> dict[str, float] | None:
        features = self.look.of(trip)
        return None if np.isnan(features[0, 0]) else _named(_scaled(features, self.ranges))[0]


class _TripFeatures(StepDetector):
    """The way from trips to their features alone, the same that PyOD's detectors are given."""

    @property
    def name(self) -> str:
        return "trip features"

    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        """Learns nothing."""

    def _anomaly(self, rows: Rows) -> Floats:
        return np.zeros(len(rows.path))

    def of(self, trips: Trajectories) -> Floats:
        return trip_features(self.featurize(trips).steps, len(trips))


def _scaled(features: Floats, ranges: tuple[Floats, Floats]) -> Floats:
    """Scales features to 0 to 1 over the training set, where the trees cut; values beyond go to the border."""
    low, high = ranges
    return np.asarray(np.clip((features - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0))


def _named(rows: Floats) -> list[dict[str, float]]:
    return [dict(zip(FEATURES, row, strict=True)) for row in rows.tolist()]
