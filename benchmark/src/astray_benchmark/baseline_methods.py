"""Baselines as methods under test, calibrated like astray; in a stream they are refitted after every few trips."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray_benchmark.array_types import Array, Floats
from astray_benchmark.baselines import BASELINES, COMPARISONS, GENERATORS, Baseline, CellGenerator, Comparison
from astray_benchmark.calibration import CalibratedModel, PValueFollower, fit_and_calibrate
from astray_benchmark.contenders import Lesson, Person
from astray_benchmark.guards import fingerprint

EVERY = 10  # a baseline in a stream is refitted after this number of trips


@dataclass(frozen=True)
class BaselineMethod:
    """A baseline, whose scores are in standard deviations of left-out training trips."""

    name: str  # in tables
    baseline: str  # in the registries of astray_benchmark.baselines
    options: Mapping[str, Any] = field(default_factory=dict)  # parameters that differ from the default

    def fit(self, lesson: Lesson, seed: int) -> CalibratedModel:
        """Fits a model on all training trips, and measures its scale by models that leave some out."""
        # Whichever of the person's own trips are left out, a model learns the same from others.
        known: tuple[Any, ...] = ()
        shared = 0.0
        model = self._new(seed)
        if isinstance(model, Comparison):
            learned, shared = learn_from_others(self.name, model, lesson, seed)
            known = (learned,)
        model, left_out, seconds = fit_and_calibrate(
            lesson.train, seed, lambda train: self._new(seed).fit(train, *known), _raw_scores
        )
        return CalibratedModel(model, left_out, seconds._replace(shared=shared), _trip_scores, _fix_scores)

    def _new(self, seed: int) -> Any:
        return (BASELINES | COMPARISONS | GENERATORS)[self.baseline](**{"seed": seed, **self.options})


def _trip_scores(model: Baseline, trips: Trajectories) -> Floats:
    return model.score_samples(trips)


def _fix_scores(model: Baseline, trips: Trajectories) -> Floats:
    anomaly, trip = model.score_steps(trips)
    return of_fixes(trips, trip, model.featurize(trips).steps.time, -anomaly)


def _raw_scores(model: Baseline, trips: Trajectories) -> tuple[Floats, Floats]:
    """Returns the raw scores of the trips that have steps, and of their steps."""
    anomaly, trip = model.score_steps(trips)
    counts = np.bincount(trip, minlength=len(trips))
    return -np.bincount(trip, anomaly, len(trips))[counts > 0] / counts[counts > 0], -anomaly


def of_fixes(test: Trajectories, trip: Array, when: Array, values: Array) -> Floats:
    """Returns a value for each fix, from values of steps, which end at ``when``: that of its step, or the last one.

    >>> test = Trajectories.from_fixes(time=[0, 5, 10, 15, 25], lat=[0] * 5, lon=[0] * 5)
    >>> of_fixes(test, np.array([0, 0]), np.array([10.0, 20.0]), np.array([1.0, 2.0])).tolist()
    [1.0, 1.0, 1.0, 2.0, 2.0]
    """
    found = np.full(test.n_rows, np.nan)
    for i, (start, stop) in enumerate(zip(test.offsets[:-1], test.offsets[1:], strict=True)):
        a, b = np.searchsorted(trip, [i, i + 1])
        if b > a:
            step = np.searchsorted(when[a:b], test.columns["time"][start:stop] - 1e-6)
            found[start:stop] = values[a:b][np.minimum(step, b - a - 1)]
    return found


# -------------------------------------------------------------------- what is learned from others


class _Kept(NamedTuple):
    others: tuple[str, int]  # the set of people, and the seed
    learned: Any
    seconds: float


_kept: dict[str, _Kept] = {}
"""A cache of what each method has last learned from others."""


def learn_from_others(method: str, model: Comparison, lesson: Lesson, seed: int) -> tuple[Any, float]:
    """Returns what a model learns from other people before it learns from the person, and the processor seconds.

    The process caches it for the same people and seed. The other people are the population, which is the same in most
    cases of a person and a draw, but changes with the split and the rate. A generator takes minutes to learn, so it
    learns from the strangers instead if there are any: they are the same in every case of a draw.
    """
    strangers = None
    if isinstance(model, CellGenerator):
        if model.alone or (lesson.strangers is None and lesson.population is None):
            return None, 0.0
        strangers = lesson.strangers
    key = strangers.key if strangers else fingerprint(lesson.population) if lesson.population else ""
    if method not in _kept or _kept[method].others != (key, seed):
        _kept.pop(method, None)
        others = strangers.trips() if strangers else lesson.population
        if others is not None and (among := set(others.agents).intersection(lesson.train.agents)):
            raise DataError(
                f"{min(among)!r} is tested, and is also one of those that {method} learns from first",
                remedy="test other people",
            )
        began = time.process_time()
        learned = model.others(others, lesson.train)
        _kept[method] = _Kept((key, seed), learned, time.process_time() - began)
    return _kept[method].learned, _kept[method].seconds


# -------------------------------------------------------------------- in a stream


@dataclass(frozen=True)
class RefittedStream:
    """A baseline that follows a stream; the fields are those of :class:`BaselineMethod`."""

    name: str
    baseline: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def begin(self, lesson: Lesson, seed: int) -> RefittedFollower:
        """Learns from the past."""
        method = BaselineMethod(self.name, self.baseline, self.options)
        return RefittedFollower(method.fit(lesson, seed), method, lesson, seed)


@dataclass(eq=False)
class RefittedFollower(PValueFollower):
    """A baseline that follows a stream; see :class:`~astray_benchmark.contenders.Follower`."""

    method: BaselineMethod
    lesson: Lesson
    seed: int
    waiting: list[Trajectories] = field(default_factory=list)  # trips to include in the next fit

    def learn(self, trip: Trajectories, person: Person) -> int:
        """Refits on the unflagged trips after every :data:`EVERY` of them; asks nobody."""
        if not self.flagged:
            self.waiting.append(trip)
        if len(self.waiting) == EVERY:
            self.lesson = self.lesson._replace(train=Trajectories.concat([self.lesson.train, *self.waiting]))
            self.waiting.clear()
            self.fitted = self.method.fit(self.lesson, self.seed)
        return 0
