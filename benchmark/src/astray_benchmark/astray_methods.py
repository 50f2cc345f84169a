"""astray as methods under test: a model for each person, a fleet with a shared reward, and a fleet in a stream (P7)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.irl.shared import trip_rewards
from astray.scoring.decisions import NORMAL
from astray.scoring.normality import trip_normality
from astray_benchmark.array_types import Floats
from astray_benchmark.contenders import TRIP_COLUMNS, Lesson, Person, Seconds, Strangers

if TYPE_CHECKING:
    from astray import Detector


STREAMING = ("stream-a-nothing", "stream-b-unflagged", "stream-c-asked", "stream-d-everything", "stream-e-normal")
"""astray's ways to follow a stream (P7)."""


@dataclass(frozen=True, eq=False)
class FittedDetector:
    """A fitted detector; ``detector`` can also explain its scores."""

    detector: Detector
    seconds: Seconds

    def trips(self, test: Trajectories) -> pl.DataFrame:
        """See :class:`Fitted`."""
        return self.detector.score(test).rename({"segment_normality": "part"}).select(TRIP_COLUMNS)

    def begun(self, test: Trajectories) -> Floats:
        """See :class:`Fitted`. A trip reward does not take the last fix for the destination."""
        reward = self.detector.reward_.trip
        if reward is None:
            return self.detector.score_samples(test)
        found = np.full(len(test), np.nan)
        for agent in test.agents:
            at = np.flatnonzero(test.agent_ids == agent)
            featurizer = self.detector.agent_model(agent).featurizer
            rows = featurizer.rows(test[at])
            rows = replace(rows, finished=np.zeros(rows.n_trips, np.bool_))
            maker = np.repeat(featurizer.popularity.number_of([agent]), rows.n_trips)
            statistics = featurizer.measure(rows, None, maker)[1]
            rewards = trip_rewards(reward, statistics)
            for i, began in zip(at.tolist(), test.columns["time"][test.offsets[:-1]][at].tolist(), strict=True):
                scale = self.detector.agent_model(agent, began=began).unfinished
                found[i] = trip_normality(rewards[at == i], scale).score[0]
        return found

    def fixes(self, test: Trajectories) -> Floats:
        """See :class:`Fitted`."""
        return self.detector.score_fixes(test)["normality"].fill_null(np.nan).to_numpy()


@dataclass(frozen=True)
class Own:
    """One :class:`~astray.Detector` for each person."""

    name: str = "astray"  # in tables
    population: bool = True  # True if it may learn from other people's trips
    options: Mapping[str, Any] = field(default_factory=dict)  # parameters that differ from the default

    def fit(self, lesson: Lesson, seed: int) -> FittedDetector:
        """Learns a model of the person."""
        from astray import Detector

        began = time.process_time()
        # One memory for all trips of the lesson, even if they name several agents.
        by_default = {"seed": seed, "preset": "own" if lesson.pooled else "default", "pooled": True}
        detector = Detector(**{**by_default, **self.options})
        detector.fit(lesson.train, population=lesson.population if self.population else None)
        return FittedDetector(detector, Seconds(time.process_time() - began))


@dataclass(eq=False)
class _LearnedFleet:
    """A fleet fitted on strangers."""

    key: tuple[str, int]  # the key of the strangers, and the seed
    fleet: Detector
    seconds: float  # processor seconds of learning
    guests: tuple[str, ...] = ()  # agents enrolled in addition to the strangers


_fleets: dict[str, _LearnedFleet] = {}
"""The last fleet for each set of options, cached because it takes a minute or two to learn and serves a whole seed."""


@dataclass(frozen=True)
class Shared:
    """One :class:`~astray.Detector`, learned from strangers; the tested person is only enrolled, without learning.

    The process reuses the reward for all cases with the same strangers, seed and options.
    """

    name: str = "astray-shared"
    options: Mapping[str, Any] = field(default_factory=dict)

    def fit(self, lesson: Lesson, seed: int) -> FittedDetector:
        """Enrols the person, after learning the shared reward if necessary."""
        if lesson.strangers is None:
            raise DataError(
                f"{self.name} needs trips of people who are not tested, and this data set has none",
                remedy="leave the method out",
            )
        taught = self._learned_fleet(lesson.strangers, seed)
        fleet = taught.fleet
        # Keep the agents that the reward was learned from: popularity, one of its features, counts them.
        for agent in taught.guests:
            fleet.forget(agent)
        taught.guests = ()
        among = set(fleet.agents).intersection(lesson.train.agents)
        if among:
            raise DataError(
                f"{min(among)!r} is tested, and is also one of those that the shared reward was learned from",
                remedy="test other people",
            )
        began = time.process_time()
        fleet.enroll(lesson.train)
        taught.guests = tuple(lesson.train.agents)
        return FittedDetector(fleet, Seconds(time.process_time() - began, shared=taught.seconds))

    def _learned_fleet(self, strangers: Strangers, seed: int) -> _LearnedFleet:
        from astray import Detector

        key, options = (strangers.key, seed), json.dumps(dict(self.options), sort_keys=True)
        if options not in _fleets or _fleets[options].key != key:
            _fleets.pop(options, None)  # frees the memory before learning the next one
            trips = strangers.trips()
            began = time.process_time()
            fleet = Detector(**{"seed": seed, "pooled": False, **self.options}).fit(trips)
            _fleets[options] = _LearnedFleet(key, fleet, time.process_time() - began)
        return _fleets[options]


# -------------------------------------------------------------------- in a stream


@dataclass(frozen=True)
class FleetStream:
    """A :class:`~astray.Detector` that starts with one person's past and learns from the stream in one of five ways.

    Its reward is learned once per seed, from strangers, and shared with ``astray-shared``.
    """

    name: str  # in tables
    way: str  # the name in STREAMING of what it learns after each trip
    options: Mapping[str, Any] = field(default_factory=dict)  # parameters that differ from the default

    def begin(self, lesson: Lesson, seed: int) -> FleetFollower:
        """Enrols the person, after learning the shared reward if necessary."""
        fitted = Shared(self.name, self.options).fit(lesson, seed)
        return FleetFollower(fitted.detector, _WAYS[self.way], fitted.seconds)


@dataclass(frozen=True, eq=False)
class FleetFollower:
    """A fleet that follows a person's stream."""

    fleet: Detector
    way: Callable[[Detector, Trajectories, Person], int]
    seconds: Seconds

    def score(self, trip: Trajectories) -> pl.DataFrame:
        """See :class:`~astray_benchmark.contenders.Follower`."""
        found = self.fleet.score(trip).rename({"segment_normality": "part"})
        return found.select(*TRIP_COLUMNS, (pl.col("decision") != NORMAL).alias("flagged"))

    def learn(self, trip: Trajectories, person: Person) -> int:
        """See :class:`~astray_benchmark.contenders.Follower`."""
        return self.way(self.fleet, trip, person)


def _nothing(fleet: Detector, trip: Trajectories, person: Person) -> int:
    return 0


def _unflagged(fleet: Detector, trip: Trajectories, person: Person) -> int:
    fleet.observe(trip)
    return 0


def _asked(fleet: Detector, trip: Trajectories, person: Person) -> int:
    fleet.observe(trip)
    answers = 0
    while fleet.questions_:
        question = fleet.questions_[0]
        fleet.answer(question, mine=person(question.trips))
        answers += 1
    return answers


def _everything(fleet: Detector, trip: Trajectories, person: Person) -> int:
    fleet.enroll(trip)
    return 0


def _normal(fleet: Detector, trip: Trajectories, person: Person) -> int:
    if person(trip.ids):
        fleet.enroll(trip)
    return 0


_WAYS = dict(zip(STREAMING, (_nothing, _unflagged, _asked, _everything, _normal), strict=True))
