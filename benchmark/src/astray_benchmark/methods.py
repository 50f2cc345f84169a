"""Methods under test: every detector behind one interface, all decided by one rule, with the seconds that they took.

A method is fitted on one person's (or one pool's) training trips and scores test trips. All scores are normalities in
standard deviations of normal trips, so that one threshold, eps = -2, is the same demand of every method, and all have
p-values, so that one rate of false alarms is: astray calibrates itself so, and :class:`BaselineMethod` does it for the
baselines, which have no threshold of theirs.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.errors import DataError
from astray.irl.shared import trip_rewards
from astray.scoring.normality import Sample, trip_normality
from astray.trajectories import Trajectories
from astray.trip_ids import TripId
from astray_benchmark.baselines import BASELINES, COMPARISONS, GENERATORS, Comparison
from astray_benchmark.learned_once import learned_once
from astray_benchmark.variants import PRETRAINED, VARIANTS, WHOLE

if TYPE_CHECKING:
    from astray.detectors.estimator import Detector
    from astray.detectors.fleet import FleetDetector
    from astray_benchmark.baselines.baseline import StepDetector

Array = NDArray[Any]
Floats = NDArray[np.float64]

TRIP_COLUMNS = ("normality", "score", "uncertainty", "p_value", "aspect", "part")
LEFT_OUT = 50  # training trips that a baseline is calibrated on, at least, if there are so many: enough to tell 2 %
FOLDS = 4


@dataclass(frozen=True, eq=False)
class Strangers:
    """Trips of people who are never tested: what a shared reward is learned from.

    ``key`` names the set; equal keys mean equal trips, so that a fitted reward may be used again.
    """

    key: str
    trips: Callable[[], Trajectories]


class Lesson(NamedTuple):
    """What a method may learn from."""

    train: Trajectories
    population: Trajectories | None = None
    strangers: Strangers | None = None
    pooled: bool = False  # whether the trips are those of a pool of agents, who are not named


class Seconds(NamedTuple):
    """Processor seconds of learning: of the model, of its threshold, and of what is learned once for everybody."""

    fit: float
    calibrate: float = 0.0
    shared: float = 0.0


class Fitted(Protocol):
    """A method that has learned."""

    @property
    def seconds(self) -> Seconds:
        """What the learning took."""

    def trips(self, test: Trajectories) -> pl.DataFrame:
        """One row a trip: normality (N(tau)), score (what decides), uncertainty, p_value, aspect; null if unknown.

        ``part`` is the normality of the segment in which the trip lost most of it.
        """

    def begun(self, test: Trajectories) -> Floats:
        """The scores of trips that are not finished; not a number where there is none."""

    def fixes(self, test: Trajectories) -> Floats:
        """The normality of every fix, not a number where there is none."""


@runtime_checkable
class Method(Protocol):
    """A method, not fitted yet."""

    @property
    def name(self) -> str:
        """What the command line and the tables call it."""

    def fit(self, lesson: Lesson, seed: int) -> Fitted:
        """Learn; the same lesson and seed give the same scores."""


Person = Callable[[Iterable[TripId]], bool]
"""Somebody who knows whether trips, by name, are mostly the subject's own."""


class Follower(Protocol):
    """A method that has learned from the past and follows a stream, trip by trip (P7)."""

    @property
    def seconds(self) -> Seconds:
        """What learning from the past took."""

    def score(self, trip: Trajectories) -> pl.DataFrame:
        """One row, as :meth:`Fitted.trips` gives it, and ``flagged``: what is decided. Nothing is learned."""

    def learn(self, trip: Trajectories, person: Person) -> int:
        """Go on learning from the trip that was scored last; says how many answers a person was asked for.

        Nothing is fitted anew. Only a bound asks ``person`` about trips without counting it.
        """


@runtime_checkable
class StreamMethod(Protocol):
    """A method that goes on learning, not begun yet."""

    @property
    def name(self) -> str:
        """What the command line and the tables call it."""

    def begin(self, lesson: Lesson, seed: int) -> Follower:
        """Learn from the past; the same lesson, seed and stream give the same scores."""


Contender = Method | StreamMethod


# -------------------------------------------------------------------- astray


@dataclass(frozen=True, eq=False)
class FittedDetector:
    """A detector that has learned; ``detector`` can also explain its scores."""

    detector: Detector
    seconds: Seconds

    def trips(self, test: Trajectories) -> pl.DataFrame:
        """See :class:`Fitted`."""
        return self.detector.score(test).rename({"segment_normality": "part"}).select(TRIP_COLUMNS)

    def begun(self, test: Trajectories) -> Floats:
        """See :class:`Fitted`. Where a trip reward decides, where the trip stops says nothing yet."""
        reward = self.detector.reward_.trip
        if reward is None:
            return self.detector.score_samples(test)
        found = np.full(len(test), np.nan)
        for agent in test.agents:
            at = np.flatnonzero(test.agent_ids == agent)
            model = self.detector.agent_model(agent)
            featurizer = model.featurizer
            rows = featurizer.rows(test[at])
            rows = replace(rows, finished=np.zeros(rows.n_trips, np.bool_))
            maker = np.repeat(featurizer.popularity.number_of([agent]), rows.n_trips)
            statistics = featurizer.measure(rows, None, maker)[1]
            found[at] = trip_normality(trip_rewards(reward, statistics), model.unfinished).score
        return found

    def fixes(self, test: Trajectories) -> Floats:
        """See :class:`Fitted`."""
        return self.detector.score_fixes(test)["normality"].fill_null(np.nan).to_numpy()


@dataclass(frozen=True)
class Own:
    """One :class:`~astray.IRLDetector` a person.

    Parameters
    ----------
    name
        What the tables call it.
    population
        Whether it may learn from other people's trips.
    options
        Parameters of the detector that differ from the default.
    """

    name: str = "astray"
    population: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    def fit(self, lesson: Lesson, seed: int) -> FittedDetector:
        """Learn what is normal for the person."""
        from astray.detectors.agent import IRLDetector

        began = time.process_time()
        by_default = {"seed": seed, "preset": "own" if lesson.pooled else "default"}
        detector = IRLDetector(**{**by_default, **self.options})
        detector.fit(lesson.train, population=lesson.population if self.population else None)
        return FittedDetector(detector, Seconds(time.process_time() - began))


@dataclass(eq=False)
class _Taught:
    """A fleet that has learned from strangers, what that took, and who is enrolled beside them."""

    key: tuple[str, int]
    fleet: FleetDetector
    seconds: float
    guests: tuple[str, ...] = ()


_taught: dict[str, _Taught] = {}
"""The last fleet with some options. It is learned in a minute or two, and serves every case and way of one seed."""


@dataclass(frozen=True)
class Shared:
    """One :class:`~astray.FleetDetector`, learned from strangers; the person tested is enrolled, which is counting.

    The reward is kept from case to case, in this process, as long as the strangers, the seed and the options are the
    same.
    """

    name: str = "astray-shared"
    options: Mapping[str, Any] = field(default_factory=dict)

    def fit(self, lesson: Lesson, seed: int) -> FittedDetector:
        """Enrol the person; learn the shared reward first if need be."""
        if lesson.strangers is None:
            raise DataError(
                f"{self.name} needs trips of people who are not tested, and this data set has none",
                remedy="leave the method out",
            )
        taught = self._taught(lesson.strangers, seed)
        fleet = taught.fleet
        # Those that the reward was learned from stay: where they go is part of what it sees.
        for agent in taught.guests:
            fleet.forget(agent)
        taught.guests = ()
        among = set(fleet.agents).intersection(lesson.train.agents)
        if among:
            raise DataError(
                f"{min(among)!r} is tested, and stands among those that the shared reward was learned from",
                remedy="test other people",
            )
        began = time.process_time()
        fleet.enroll(lesson.train)
        taught.guests = tuple(lesson.train.agents)
        return FittedDetector(fleet, Seconds(time.process_time() - began, shared=taught.seconds))

    def _taught(self, strangers: Strangers, seed: int) -> _Taught:
        from astray.detectors.fleet import FleetDetector

        key, options = (strangers.key, seed), json.dumps(dict(self.options), sort_keys=True)
        if options not in _taught or _taught[options].key != key:
            _taught.pop(options, None)  # there need not be two in memory
            trips = strangers.trips()
            began = time.process_time()
            fleet = FleetDetector(**{"seed": seed, **self.options}).fit(trips)
            _taught[options] = _Taught(key, fleet, time.process_time() - began)
        return _taught[options]


# -------------------------------------------------------------------- baselines


class LeftOut(NamedTuple):
    """What a baseline says of training trips that it has not seen: the raw scores of trips (sorted) and of steps."""

    trips: Floats
    steps: Floats

    @classmethod
    def of(cls, parts: Iterable[tuple[StepDetector, Trajectories]]) -> LeftOut:
        """The scores of some trips by models that have not seen them."""
        trips, steps = [], []
        for model, unseen in parts:
            anomaly, trip = model.score_steps(unseen)
            counts = np.bincount(trip, minlength=len(unseen))
            trips.append(-np.bincount(trip, anomaly, len(unseen))[counts > 0] / counts[counts > 0])
            steps.append(-anomaly)
        return cls(np.sort(np.concatenate(trips)), np.concatenate(steps))


@runtime_checkable
class Calibrated(Protocol):
    """A method that has learned, and whose scores are in standard deviations of left-out trips; a dataclass."""

    left_out: LeftOut


def on_one_scale(models: Sequence[Fitted]) -> Sequence[Fitted]:
    """The models of a trial's folds, with the scale of all trips that any of them left out.

    Their scores are ranked together, and what is no further from normal must not look so for its fold's scale. A
    detector of astray's keeps the scale that it finds itself.
    """
    scales = [model.left_out for model in models if isinstance(model, Calibrated)]
    if len(scales) < 2 or len(scales) < len(models):
        return models
    trips, steps = (np.concatenate(parts) for parts in zip(*scales, strict=True))
    return [replace(model, left_out=LeftOut(np.sort(trips), steps)) for model in models]  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class _FittedBaseline:
    baseline: StepDetector
    left_out: LeftOut
    seconds: Seconds

    def trips(self, test: Trajectories) -> pl.DataFrame:
        raw = self.baseline.score_samples(test)
        normality = standardise(raw, self.left_out.trips)
        nothing = [None] * len(test)
        return pl.DataFrame(
            {
                "normality": normality,
                "score": normality,
                "uncertainty": pl.Series(nothing, dtype=pl.Float64),
                "p_value": Sample.of(self.left_out.trips).p_values(raw),
                "aspect": pl.Series(nothing, dtype=pl.String),
                "part": pl.Series(nothing, dtype=pl.Float64),
            }
        ).with_columns(pl.col("normality", "score", "p_value").fill_nan(None))

    def begun(self, test: Trajectories) -> Floats:
        return standardise(self.baseline.score_samples(test), self.left_out.trips)

    def fixes(self, test: Trajectories) -> Floats:
        steps = self.baseline.featurize(test).steps
        anomaly, trip = self.baseline.score_steps(test)
        return of_fixes(test, trip, steps.time, standardise(-anomaly, self.left_out.steps))


@dataclass(frozen=True)
class BaselineMethod:
    """A baseline, calibrated as astray is: its scores in standard deviations of left-out training trips.

    The model that scores is fitted on all training trips. Its scale comes from models of the same kind fitted without
    some of them: a quarter of the trips is left out and scored, then another quarter, until 50 trips have been left
    out or all have. The mean and standard deviation of those scores standardise the test scores (which leaves AUROC
    and AP untouched), of trips as of steps, and the same scores give conformal p-values.
    """

    name: str
    baseline: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def fit(self, lesson: Lesson, seed: int) -> Fitted:
        """Learn from all training trips, and measure the scale on left-out ones."""
        train, model = lesson.train, self._new(seed)
        # What is known of others is the same whichever of the person's own trips are left out.
        known: tuple[Any, ...] = ()
        shared = 0.0
        if isinstance(model, Comparison):
            learned, shared = learned_once(self.name, model, lesson, seed)
            known = (learned,)
        began = time.process_time()
        model.fit(train, *known)
        fitted = time.process_time()
        rng = np.random.default_rng([seed, len(train)])
        parts = ((self._new(seed).fit(train[~held], *known), train[held]) for held in folds(len(train), rng))
        left_out = LeftOut.of(parts)
        return _FittedBaseline(model, left_out, Seconds(fitted - began, time.process_time() - fitted, shared))

    def _new(self, seed: int) -> Any:
        return (BASELINES | COMPARISONS | GENERATORS)[self.baseline](**{"seed": seed, **self.options})


def folds(n: int, rng: np.random.Generator, enough: int = LEFT_OUT) -> list[NDArray[np.bool_]]:
    """Disjoint quarters of ``n`` trips to leave out, as many as it takes to leave out ``enough``, at most all four.

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
    """Values in standard deviations of the left-out ones, from their mean; where these are all equal, from it alone.

    >>> standardise(np.array([0.0, 4.0]), np.array([1.0, 3.0])).tolist()
    [-2.0, 2.0]
    """
    spread = float(left_out.std()) if len(left_out) else 0.0
    centre = float(left_out.mean()) if len(left_out) else 0.0
    return np.asarray((values - centre) / (spread if spread > 0.0 else 1.0), np.float64)


def of_fixes(test: Trajectories, trip: Array, when: Array, values: Array) -> Floats:
    """The value at every fix of values at the ends of steps: that of the step under way, or of the last one.

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


# -------------------------------------------------------------------- by name

_ASTRAY: dict[str, Callable[[str, Mapping[str, Any]], Method]] = {
    "astray": lambda name, options: Own(name, True, options),
    "astray-alone": lambda name, options: Own(name, False, options),
    "astray-shared": lambda name, options: Shared(name, options),
    "astray-pretrained": lambda name, options: Own(name, True, {**PRETRAINED, **options}),
    "kdd19": lambda name, options: Own(name, False, {"preset": "kdd19", **options}),
}

CONTROLS = {"recorder-interval": "astray_benchmark.baselines.recorder:RecorderInterval"}
"""What betrays somebody without any behaviour, and where its class stands."""

METHODS = (*_ASTRAY, *BASELINES, *COMPARISONS, *GENERATORS, *CONTROLS)
"""The names of all methods."""

OWN_BACKGROUND = ("astray", "kdd19", *BASELINES, *GENERATORS)
"""The methods for data in which everybody is one pool, so that there are no others."""

QUICK = ("astray", "astray-alone", "familiarity", "cell-ratio", "cell-trigram", "knn-location", "lof", "iforest")
"""The methods that take seconds a person."""

QUICK_POOL = tuple(name for name in QUICK if name not in ("astray-alone", *COMPARISONS))
"""Those of them that differ where everybody is one pool."""

STREAMING = ("stream-a-nothing", "stream-b-unflagged", "stream-c-asked", "stream-d-everything", "stream-e-normal")
"""astray's ways to follow a stream (P7)."""

TREES = {"river-trees": True, "river-trees-unflagged": False}
"""Half-Space Trees that follow a stream; whether they learn from what they flag, too."""

REFITTED = {f"{name}-unflagged": name for name in ("familiarity", "cell-trigram")}
"""Baselines that follow a stream: fitted anew now and then."""

FOLLOWING = (*STREAMING, *TREES, *REFITTED)
"""All methods that follow a stream."""

_OUTSIDE_BRACKETS = re.compile(r",(?![^\[{]*[\]}])")


def method(spec: str) -> Contender:
    """A method by its name, or by a name and options, set off by colons: values are JSON, or else plain text.

    ``package.module:Class`` is anybody's own; see :mod:`astray_benchmark.imported`.

    >>> method("lof").name
    'lof'
    >>> method("astray:encoder=raw:iterations=20").options
    {'encoder': 'raw', 'iterations': 20}
    """
    if spec in VARIANTS:
        return Own(spec, True, VARIANTS[spec])
    base, *given = re.split(r":(?=[A-Za-z_]\w*=)", spec)
    options = {}
    for part in given:
        key, _, value = part.partition("=")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
    if base in _ASTRAY:
        return _ASTRAY[base](spec, options)
    if base in STREAMING:
        from astray_benchmark.streaming import FleetStream

        return FleetStream(spec, base, options)
    if base in TREES:
        from astray_benchmark.half_space_trees import HalfSpaceTreesStream

        return HalfSpaceTreesStream(spec, TREES[base], options)
    if base in REFITTED:
        from astray_benchmark.refitted import RefittedStream

        return RefittedStream(spec, REFITTED[base], options)
    if base in BASELINES or base in COMPARISONS or base in GENERATORS:
        return BaselineMethod(spec, base, options)
    if ":" in base or base in CONTROLS:
        from astray_benchmark.imported import imported

        return imported(spec, CONTROLS.get(base, base), options)
    if "." in base:
        module, _, name = base.rpartition(".")
        raise DataError(f"no method named {base!r}", remedy=f"a class of your own is {module}:{name}, with a colon")
    known = ", ".join((*METHODS, *FOLLOWING))
    raise DataError(f"no method named {base!r}", remedy=f"there are {known}, or give package.module:Class")


_GROUPS = {"ablation": (WHOLE, *VARIANTS), "stream": FOLLOWING}


def methods(specs: Iterable[str]) -> list[Contender]:
    """Methods by their names; one text may hold several, with commas between them.

    ``ablation`` is astray in parts, ``stream`` is astray in all ways to go on learning, and its rivals in a stream.

    >>> [m.name for m in methods(["astray,lof", 'astray:weights={"policy": 0, "explore": 1}'])]
    ['astray', 'lof', 'astray:weights={"policy": 0, "explore": 1}']
    """
    wanted = [one.strip() for spec in specs for one in _OUTSIDE_BRACKETS.split(spec) if one.strip()]
    named = [one for spec in wanted for one in _GROUPS.get(spec, (spec,))]
    return [method(spec) for spec in dict.fromkeys(named)]
