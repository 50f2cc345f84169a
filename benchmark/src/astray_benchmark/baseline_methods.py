"""Baselines under test: calibrated as astray is, and in a stream fitted anew now and then."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray_benchmark.baselines import BASELINES, COMPARISONS, GENERATORS, CellGenerator, Comparison
from astray_benchmark.calibration import LeftOut, PValueFollower, fit_and_calibrate, standardise, trip_table
from astray_benchmark.contenders import Array, Fitted, Floats, Lesson, Person, Seconds
from astray_benchmark.guards import fingerprint

if TYPE_CHECKING:
    from astray_benchmark.baselines.baseline import StepDetector

EVERY = 10  # trips that wait to be learned from, until all is fitted anew


@dataclass(frozen=True)
class BaselineMethod:
    """A baseline whose scores are in standard deviations of left-out training trips, of trips as of steps."""

    name: str
    baseline: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def fit(self, lesson: Lesson, seed: int) -> Fitted:
        """Learns from all training trips, and measures the scale on left-out ones."""
        # What is known of others is the same whichever of the person's own trips are left out.
        known: tuple[Any, ...] = ()
        shared = 0.0
        model = self._new(seed)
        if isinstance(model, Comparison):
            learned, shared = learn_from_others(self.name, model, lesson, seed)
            known = (learned,)
        model, left_out, seconds = fit_and_calibrate(
            lesson.train, seed, lambda train: self._new(seed).fit(train, *known), _raw_scores
        )
        return _FittedBaseline(model, left_out, seconds._replace(shared=shared))

    def _new(self, seed: int) -> Any:
        return (BASELINES | COMPARISONS | GENERATORS)[self.baseline](**{"seed": seed, **self.options})


@dataclass(frozen=True, eq=False)
class _FittedBaseline:
    baseline: StepDetector
    left_out: LeftOut
    seconds: Seconds

    def trips(self, test: Trajectories) -> pl.DataFrame:
        return trip_table(self.baseline.score_samples(test), self.left_out)

    def begun(self, test: Trajectories) -> Floats:
        return standardise(self.baseline.score_samples(test), self.left_out.trips)

    def fixes(self, test: Trajectories) -> Floats:
        steps = self.baseline.featurize(test).steps
        anomaly, trip = self.baseline.score_steps(test)
        return of_fixes(test, trip, steps.time, standardise(-anomaly, self.left_out.steps))


def _raw_scores(model: StepDetector, trips: Trajectories) -> tuple[Floats, Floats]:
    """Returns the raw scores of the trips that have steps, and of their steps."""
    anomaly, trip = model.score_steps(trips)
    counts = np.bincount(trip, minlength=len(trips))
    return -np.bincount(trip, anomaly, len(trips))[counts > 0] / counts[counts > 0], -anomaly


def of_fixes(test: Trajectories, trip: Array, when: Array, values: Array) -> Floats:
    """Spreads values at the ends of steps over fixes: each fix gets the value of its step, or of the last one.

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
"""What each method has learned last: there need not be two in memory."""


def learn_from_others(method: str, model: Comparison, lesson: Lesson, seed: int) -> tuple[Any, float]:
    """Returns what a model learns from other people before it meets the person, and the processor seconds that it took.

    It is learned once for the same people and seed, and kept in this process.

    The others are the population, which is the same in all cases of a person and a draw but for those by time and of
    another rate. A generator, which takes minutes, learns from the strangers where there are any: they are the same in
    every case of a draw, because nobody among them is tested.
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
                f"{min(among)!r} is tested, and stands among those that {method} learns from first",
                remedy="test other people",
            )
        began = time.process_time()
        learned = model.others(others, lesson.train)
        _kept[method] = _Kept((key, seed), learned, time.process_time() - began)
    return _kept[method].learned, _kept[method].seconds


# -------------------------------------------------------------------- in a stream


@dataclass(frozen=True)
class RefittedStream:
    """A baseline that goes on learning.

    Parameters
    ----------
    name
        What the tables call it.
    baseline
        Which it is.
    options
        Its parameters that differ from the default.
    """

    name: str
    baseline: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def begin(self, lesson: Lesson, seed: int) -> RefittedFollower:
        """Learn from the past."""
        method = BaselineMethod(self.name, self.baseline, self.options)
        return RefittedFollower(method, lesson, seed, method.fit(lesson, seed))


@dataclass(eq=False)
class RefittedFollower(PValueFollower):
    """A baseline that follows a stream; see :class:`~astray_benchmark.contenders.Follower`."""

    method: BaselineMethod
    lesson: Lesson
    seed: int
    fitted: Fitted
    waiting: list[Trajectories] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = self.fitted.seconds

    @property
    def seconds(self) -> Seconds:
        """Returns the seconds that learning from the past took."""
        return self.began

    def table(self, trip: Trajectories) -> pl.DataFrame:
        """Scores a trip with the last model."""
        return self.fitted.trips(trip)

    def learn(self, trip: Trajectories, person: Person) -> int:
        """Learn from the trip, if it was not flagged, once there are enough; nobody is asked."""
        if not self.flagged:
            self.waiting.append(trip)
        if len(self.waiting) == EVERY:
            self.lesson = self.lesson._replace(train=Trajectories.concat([self.lesson.train, *self.waiting]))
            self.waiting.clear()
            self.fitted = self.method.fit(self.lesson, self.seed)
        return 0
