"""Baselines in the stream (P7): fitted anew now and then, with the trips that they have not flagged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from astray.trajectories import Trajectories
from astray_benchmark.measures import RATE
from astray_benchmark.methods import BaselineMethod, Fitted, Lesson, Person, Seconds

EVERY = 10  # trips that wait to be learned from, until all is fitted anew


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
class RefittedFollower:
    """A baseline that follows a stream; see :class:`~astray_benchmark.methods.Follower`."""

    method: BaselineMethod
    lesson: Lesson
    seed: int
    fitted: Fitted
    waiting: list[Trajectories] = field(default_factory=list)
    flagged: bool = False

    def __post_init__(self) -> None:
        self.began = self.fitted.seconds

    @property
    def seconds(self) -> Seconds:
        """What learning from the past took."""
        return self.began

    def score(self, trip: Trajectories) -> pl.DataFrame:
        """One row; flagged if the p-value is at most the rate that astray has by default."""
        found = self.fitted.trips(trip)
        self.flagged = bool(found["p_value"].fill_null(1.0)[0] <= RATE)
        return found.with_columns(pl.lit(self.flagged).alias("flagged"))

    def learn(self, trip: Trajectories, person: Person) -> int:
        """Learn from the trip, if it was not flagged, once there are enough; nobody is asked."""
        if not self.flagged:
            self.waiting.append(trip)
        if len(self.waiting) == EVERY:
            self.lesson = self.lesson._replace(train=Trajectories.concat([self.lesson.train, *self.waiting]))
            self.waiting.clear()
            self.fitted = self.method.fit(self.lesson, self.seed)
        return 0
