"""Keeps what the service holds of an agent between two fixes: its stream, and where its log ends."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from astray.runtime.agent_stream import AgentStream, Emit
from astray.runtime.live_scores import Score, TripScore
from astray.runtime.session import Advance
from astray.runtime.trip import OpenTrip
from astray.service.batches import FeedFix
from astray.service.scoring.event_rows import alert_id

if TYPE_CHECKING:
    from astray.core.projection import Place
    from astray.detector import Detector

SESSION_BYTES = 30_000  # about how much memory an agent without an open trip takes


class Tracked(AgentStream):
    """The stream of an agent, and what the service keeps beside it."""

    def __init__(self, detector: Detector, agent: str, emit: Emit) -> None:
        super().__init__(detector, agent, emit, least_history=float(detector.min_history), score_steps=False)
        self.n = self.kept = 0  # fixes in the log, and how many of them the last snapshot contains
        self.newest = -math.inf  # the time of the newest fix in the log
        self.place = (0.0, 0.0)  # of that fix
        self.since = self.arrived = 0.0  # by the service's clock: when the first and the last fix came
        self.delay = 0.0  # how many seconds the last fixes took to arrive
        self.past = 0  # remembered trips
        self.normality: float | None = None  # of the open trip so far
        self.drift: str | None = None
        self.late: tuple[float, float] | None = None  # times of the first and last late fix that no stored trip has
        self.turned = False  # True if a trip began or ended since the last snapshot
        self.fresh: list[FeedFix] = []  # fixes that are not in the log yet

    def begin(self, time: float, lat: float, lon: float, trip: str = "", destination: Place | None = None) -> Advance:
        """Adds a fix that is not late, and notes whether a trip begins with it."""
        was = self.current
        advance = super().begin(time, lat, lon, trip, destination)
        self.turned |= self.current is not was
        return advance

    def finish(self, advance: Advance) -> Score:
        """Returns the score of a fix after its trip was scored, and reports the events that the fix caused."""
        score = super().finish(advance)
        self.normality = None if self.current is None or score.trip is None else score.trip.normality
        return score

    def report_end(self, final: TripScore, was: OpenTrip) -> None:
        """Reports that a trip is over, and notes that a snapshot is due."""
        self.turned = True
        super().report_end(final, was)

    @property
    def alert(self) -> str | None:
        """The id of the open alert; None if there is none."""
        return alert_id(self.agent, self.open_trip or "", self.alerts) if self.alerting else None

    @property
    def open_since(self) -> float:
        """The start of the open trip; infinity if none is open."""
        return math.inf if self.current is None else self.current.start

    @property
    def nbytes(self) -> int:
        """The approximate size of the stream in memory, in bytes."""
        if self.current is None:
            return SESSION_BYTES
        memory, rows = self.current.agent_model.featurizer.memory, self.current.rows
        return SESSION_BYTES + 40 * len(memory.keys) + rows.numbers.nbytes + rows.keys.nbytes
