"""Baselines by outlier detectors of whole trips: PyOD's ECOD and KNN, with their default settings.

They get a row of numbers for each trip: either features of the trip alone (:func:`trip_features`), or its familiarity
and popularity (:data:`~astray_benchmark.baselines.familiarity.STATISTICS`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from astray.features.steps import Steps
from astray_benchmark.array_types import Array, Floats
from astray_benchmark.baselines.baseline import Baseline, Rows, Scaling
from astray_benchmark.baselines.familiarity import DAY, FamiliarityBaseline, Seen, statistics
from astray_benchmark.libraries import library

FEATURES = (
    *("start east", "start north", "end east", "end north", "middle east", "middle north"),
    *("length", "duration", "speed", "furthest from the start", "straightness", "hour, sine", "hour, cosine"),
)
"""The features of a trip alone, in metres and seconds; those that measure its size are logarithms."""


def trip_features(steps: Steps, n_trips: int) -> Floats:
    """Returns the :data:`FEATURES` of trips: (trips, features); NaN for a trip without a step."""
    found = np.full((n_trips, len(FEATURES)), np.nan)
    trip = steps.trip
    begins = np.flatnonzero(np.diff(trip, prepend=-1))
    ends = np.append(begins[1:], len(trip)) - 1
    size = ends - begins + 1

    def total(values: Array) -> Floats:
        return np.asarray(np.add.reduceat(values, begins), np.float64) if len(begins) else np.zeros(0)

    moved = np.hypot(*(steps.velocity * steps.window[:, None]).T)
    away = np.hypot(*(steps.location - steps.origin[np.repeat(begins, size)]).T)
    length, duration = total(moved), steps.time[ends] - steps.time[begins] + steps.window[begins]
    hour = 2 * np.pi * (steps.time[begins] % DAY) / DAY
    found[trip[begins]] = np.column_stack(
        [
            *(steps.origin[begins], steps.location[ends]),
            *(total(steps.location[:, i]) / size for i in range(2)),
            *(np.log1p(length), np.log1p(duration), np.log1p(length / np.maximum(duration, 1.0))),
            np.log1p(np.maximum.reduceat(away, begins)) if len(begins) else np.zeros(0),
            away[ends] / np.maximum(length, 1.0),
            *(np.sin(hour), np.cos(hour)),
        ]
    )
    return found


@dataclass(eq=False)
class TripOutlier(Baseline):
    """A detector of PyOD on the standardised :data:`FEATURES`; all steps of a trip have the same anomaly.

    Parameters
    ----------
    kind
        ``ecod`` (Li et al. 2022) scores how far a trip lies in the tails of the features; ``knn`` (Ramaswamy et al.
        2000) scores the distance to the fifth nearest trip.
    """

    kind: str = "ecod"
    model_: Any = field(default=None, init=False, repr=False)
    scaling_of_: Scaling = field(init=False, repr=False)

    @property
    def name(self) -> str:
        """Returns its name in tables."""
        return f"PyOD {self.kind.upper()}"

    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        features = trip_features(rows.steps, int(rows.steps.trip.max()) + 1)
        features = features[~np.isnan(features[:, 0])]
        self.scaling_of_ = Scaling.of(features)
        self.model_ = _fitted(self.kind, self.scaling_of_.standardise(features))

    def _anomaly(self, rows: Rows) -> Array:
        features = trip_features(rows.steps, int(rows.steps.trip.max()) + 1)
        trip = rows.steps.trip
        return _one_by_one(self.model_, self.scaling_of_.standardise(features), trip)[trip]


@dataclass(eq=False)
class FamiliarityOutlier(FamiliarityBaseline):
    """A detector of PyOD on the same statistics of familiarity and popularity as the regression.

    It learns from the person's own trips, each compared with the person's other trips.

    Parameters
    ----------
    kind
        See :class:`TripOutlier`.
    """

    kind: str = "ecod"

    @property
    def name(self) -> str:
        """Returns its name in tables."""
        return f"PyOD {self.kind.upper()}, familiarity"

    def _learn_trips(self, mine: Seen, rng: np.random.Generator) -> None:
        features = statistics(mine, self.past_, True, self.known_.visitors(mine))
        self.scaling_of_ = Scaling.of(features)
        self.model_ = _fitted(self.kind, self.scaling_of_.standardise(features))

    def _anomaly_of_trips(self, features: Floats, trip: Array) -> Floats:
        return _one_by_one(self.model_, features, trip)


def _fitted(kind: str, features: Floats) -> Any:
    if kind == "ecod":
        return library("pyod.models.ecod").ECOD().fit(features)
    model = library("pyod.models.knn").KNN()
    model.n_neighbors = min(model.n_neighbors, max(1, len(features) - 1))
    return model.fit(features)


def _one_by_one(model: Any, features: Floats, trip: Array) -> Floats:
    """Returns the anomaly of the trips that occur in ``trip``; 0 for others.

    It scores one trip at a time, because ECOD adds the trips that it scores to those that it knows: a trip's score
    would otherwise depend on the rest of the test set.
    """
    found = np.zeros(len(features))
    for i in np.unique(trip).tolist():
        found[i] = model.decision_function(features[i : i + 1])[0]
    return found
