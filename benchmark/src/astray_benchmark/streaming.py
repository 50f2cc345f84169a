"""Methods that follow a stream (P7): each trip is scored and decided, and then something is learned from it, or not.

A further method has a ``begin`` that learns from the past and gives a :class:`~astray_benchmark.methods.Follower`:
``score`` says what it thinks of the next trip, ``learn`` goes on from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import polars as pl

from astray.detectors.fleet import FleetDetector
from astray.scoring.decisions import NORMAL
from astray.trajectories import Trajectories
from astray_benchmark.methods import STREAMING, TRIP_COLUMNS, Lesson, Person, Seconds, Shared


@dataclass(frozen=True)
class FleetStream:
    """A :class:`~astray.FleetDetector` that knows one person's past, and goes on learning in one of five ways.

    Its reward is learned once a seed, from strangers, and shared with ``astray-shared``.

    Parameters
    ----------
    name
        What the tables call it.
    way
        What is learned after each trip: a name of :data:`~astray_benchmark.methods.STREAMING`.
    options
        Parameters of the detector that differ from the default.
    """

    name: str
    way: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def begin(self, lesson: Lesson, seed: int) -> FleetFollower:
        """Enrol the person; learn the shared reward first if need be."""
        fitted = Shared(self.name, self.options).fit(lesson, seed)
        return FleetFollower(cast(FleetDetector, fitted.detector), _WAYS[self.way], fitted.seconds)


@dataclass(frozen=True, eq=False)
class FleetFollower:
    """A fleet that follows a person's stream."""

    fleet: FleetDetector
    way: Callable[[FleetDetector, Trajectories, Person], int]
    seconds: Seconds

    def score(self, trip: Trajectories) -> pl.DataFrame:
        """See :class:`~astray_benchmark.methods.Follower`."""
        found = self.fleet.score(trip).rename({"segment_normality": "part"})
        return found.select(*TRIP_COLUMNS, (pl.col("decision") != NORMAL).alias("flagged"))

    def learn(self, trip: Trajectories, person: Person) -> int:
        """See :class:`~astray_benchmark.methods.Follower`."""
        return self.way(self.fleet, trip, person)


def _nothing(fleet: FleetDetector, trip: Trajectories, person: Person) -> int:
    return 0


def _unflagged(fleet: FleetDetector, trip: Trajectories, person: Person) -> int:
    fleet.observe(trip)
    return 0


def _asked(fleet: FleetDetector, trip: Trajectories, person: Person) -> int:
    fleet.observe(trip)
    answers = 0
    while fleet.questions_:
        question = fleet.questions_[0]
        fleet.answer(question, mine=person(question.trips))
        answers += 1
    return answers


def _everything(fleet: FleetDetector, trip: Trajectories, person: Person) -> int:
    fleet.enroll(trip)
    return 0


def _normal(fleet: FleetDetector, trip: Trajectories, person: Person) -> int:
    if person(trip.ids):
        fleet.enroll(trip)
    return 0


_WAYS = dict(zip(STREAMING, (_nothing, _unflagged, _asked, _everything, _normal), strict=True))
