"""Baselines by outlier detectors of scikit-learn: nearest neighbours, LOF, one-class SVM, isolation forest."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from astray_benchmark.array_types import Array
from astray_benchmark.baselines.baseline import Baseline, Rows
from astray_benchmark.libraries import library


@dataclass(eq=False)
class KNNLocation(Baseline):
    """Scores a step by the mean distance to the nearest places of the training set: the rival to beat.

    It takes the logarithm of the distance: up to a factor and a constant, this is minus the logarithm of the density
    that the neighbours estimate (Loftsgaarden and Quesenberry 1965), so a trip's score is the mean log-likelihood of
    its places. In metres, one far excursion would outweigh the rest of its trip, and the few far excursions in a
    training set would dominate the spread of the scores.

    Parameters
    ----------
    neighbours
        The number of nearest places.
    start
        Compare the start and the place together, by distances in four dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> from astray import Trajectories
    >>> lat, lon = np.tile(45 + np.arange(60) * 1e-3, 4), np.full(240, 7.0)
    >>> trips = Trajectories.from_fixes(
    ...     time=np.arange(240) * 30.0, lat=lat, lon=lon, trajectory=np.repeat(["a", "b", "c", "d"], 60))
    >>> away = Trajectories.from_fixes(time=trips.columns["time"], lat=lat, lon=lon + 0.1)
    >>> knn = KNNLocation().fit(trips)
    >>> bool(knn.score_samples(away)[0] < knn.score_samples(trips).min())
    True
    """

    neighbours: int = 5
    start: bool = False
    index_: Any = field(default=None, init=False, repr=False)

    @property
    def name(self) -> str:
        """Returns its name in tables."""
        return "kNN location + start" if self.start else "kNN location"

    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        places = self._places(rows)
        count = min(self.neighbours, len(places))
        self.index_ = library("sklearn.neighbors").NearestNeighbors(n_neighbors=count).fit(places)

    def _anomaly(self, rows: Rows) -> Array:
        distances, _ = self.index_.kneighbors(self._places(rows))
        metres = np.asarray(distances.mean(axis=1), np.float64)
        return np.log1p(metres)  # one metre is added, so that a distance of 0 stays finite

    def _places(self, rows: Rows) -> Array:
        location, origin = rows.steps.location, rows.steps.origin
        return np.hstack([location, origin]) if self.start else location


@dataclass(eq=False)
class _Estimator(Baseline):
    """A scikit-learn outlier detector with its default settings, on standardised states and actions.

    Parameters
    ----------
    location
        Use only the location.
    """

    location: bool = False
    title: ClassVar[str]
    estimator_: Any = field(default=None, init=False, repr=False)

    @property
    def name(self) -> str:
        """Returns its name in tables."""
        return f"{self.title}, location" if self.location else self.title

    @abstractmethod
    def _new(self, rng: np.random.Generator) -> Any:
        """Makes an unfitted estimator."""

    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        self.estimator_ = self._new(rng).fit(self._training_rows(self._features(rows), rng))

    def _training_rows(self, features: Array, rng: np.random.Generator) -> Array:
        return features

    def _anomaly(self, rows: Rows) -> Array:
        return -np.asarray(self.estimator_.score_samples(self._features(rows)))

    def _features(self, rows: Rows) -> Array:
        return rows.features[:, :2] if self.location else rows.features


@dataclass(eq=False)
class LOF(_Estimator):
    """Local Outlier Factor (Breunig et al. 2000): compares the density of the data here and around the neighbours."""

    title: ClassVar[str] = "LOF"

    def _new(self, rng: np.random.Generator) -> Any:
        return library("sklearn.neighbors").LocalOutlierFactor(novelty=True)


@dataclass(eq=False)
class OneClassSVM(_Estimator):
    """One-class support vector machine (Schoelkopf et al. 2001): the distance from a boundary around half of the data.

    Parameters
    ----------
    most_rows
        The most rows to train on, drawn at random, because the time is quadratic in their number.
    """

    most_rows: int = 10_000
    title: ClassVar[str] = "One-class SVM"

    def _new(self, rng: np.random.Generator) -> Any:
        return library("sklearn.svm").OneClassSVM()

    def _training_rows(self, features: Array, rng: np.random.Generator) -> Array:
        if len(features) <= self.most_rows:
            return features
        return features[np.sort(rng.choice(len(features), self.most_rows, replace=False))]


@dataclass(eq=False)
class IsolationForest(_Estimator):
    """Isolation Forest (Liu et al. 2008): the fewer random cuts isolate a step, the more anomalous it is."""

    title: ClassVar[str] = "Isolation Forest"

    def _new(self, rng: np.random.Generator) -> Any:
        return library("sklearn.ensemble").IsolationForest(random_state=int(rng.integers(2**31)))
