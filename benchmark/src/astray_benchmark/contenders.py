"""The interfaces of the methods under test, and of the data that they may learn from.

A method is fitted on the training trips of one person, or of one pool, and scores test trips. A method for streams is
fitted on the past, then gets the stream trip by trip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import polars as pl

from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray_benchmark.array_types import Floats

TRIP_COLUMNS = ("normality", "score", "uncertainty", "p_value", "aspect", "part")


@dataclass(frozen=True, eq=False)
class Strangers:
    """Trips of people who are never tested, to learn a shared reward from."""

    key: str  # equal keys mean equal trips, so that a fitted reward may be used again
    trips: Callable[[], Trajectories]


class Lesson(NamedTuple):
    """The data that a method may learn from."""

    train: Trajectories
    population: Trajectories | None = None
    strangers: Strangers | None = None
    pooled: bool = False  # True if the trips are those of a pool of unnamed agents


class Seconds(NamedTuple):
    """Processor seconds for learning: of the model, of its scale, and of parts shared by all cases."""

    fit: float
    calibrate: float = 0.0
    shared: float = 0.0


class Fitted(Protocol):
    """A fitted method."""

    @property
    def seconds(self) -> Seconds:
        """Returns the seconds that learning took."""

    def trips(self, test: Trajectories) -> pl.DataFrame:
        """Returns a row for each trip with the columns :data:`TRIP_COLUMNS`, null where a value is unknown.

        ``normality`` is N(tau), ``score`` is the number that decides, and ``part`` is the normality of the worst
        segment of the trip.
        """

    def begun(self, test: Trajectories) -> Floats:
        """Returns the scores of unfinished trips; NaN for a trip without a score."""

    def fixes(self, test: Trajectories) -> Floats:
        """Returns the normality of every fix; NaN for a fix without one."""


@runtime_checkable
class Method(Protocol):
    """An unfitted method."""

    @property
    def name(self) -> str:
        """Returns its name on the command line and in tables."""

    def fit(self, lesson: Lesson, seed: int) -> Fitted:
        """Learns from a lesson; the same lesson and seed give the same scores."""


Person = Callable[[Iterable[TripId]], bool]
"""Stands for a person who is asked whether most of these trips are the subject's own."""


class Follower(Protocol):
    """A method that is fitted on the past and follows a stream, trip by trip (P7)."""

    @property
    def seconds(self) -> Seconds:
        """Returns the seconds that learning from the past took."""

    def score(self, trip: Trajectories) -> pl.DataFrame:
        """Returns one row like :meth:`Fitted.trips`, plus the decision ``flagged``; learns nothing."""

    def learn(self, trip: Trajectories, person: Person) -> int:
        """Learns from the trip that was scored last; returns the number of questions asked.

        Only "stream-e-normal", which is an upper bound, asks ``person`` without counting it.
        """


@runtime_checkable
class StreamMethod(Protocol):
    """An unfitted method for streams."""

    @property
    def name(self) -> str:
        """Returns its name on the command line and in tables."""

    def begin(self, lesson: Lesson, seed: int) -> Follower:
        """Learns from the past; the same lesson, seed and stream give the same scores."""


Contender = Method | StreamMethod
