"""What the service holds of an agent between two of its fixes: its stream, and where its log ends."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from astray.runtime.agent_stream import AgentStream, Emit
from astray.runtime.live_scores import Score, TripScore
from astray.runtime.session import Advance
from astray.runtime.trip import OpenTrip, score_open
from astray.service.batches import FeedFix
from astray.service.scoring.event_rows import alert_id

if TYPE_CHECKING:
    from astray.detector import Detector

SESSION_BYTES = 30_000  # that an agent at rest takes, about


class Tracked(AgentStream):
    """The stream of an agent, with what the service notes of it."""

    def __init__(self, detector: Detector, agent: str, emit: Emit, **settings: Any) -> None:
        least = float(detector.min_history)
        super().__init__(detector, agent, emit, least_history=least, score_steps=False, **settings)
        self.n = self.kept = 0  # fixes in the log, and how many of them the last snapshot knows
        self.newest = -math.inf  # the time of the newest fix in the log
        self.place = (0.0, 0.0)  # of that fix
        self.since = self.arrived = 0.0  # on our clock: when its first and its last fix came
        self.delay = 0.0  # seconds that the last fixes were on the way
        self.past = 0  # trips that are remembered
        self.normality: float | None = None  # of the open trip so far
        self.drift: str | None = None
        self.late: tuple[float, float] | None = None  # from when to when fixes came that no trip knows of yet
        self.model = 0  # the version of the model that the open trip is scored by
        self.turned = False  # whether a trip began or ended since the last snapshot
        self.fresh: list[FeedFix] = []  # fixes that are in no log yet

    def advance(self, fix: FeedFix) -> Advance:
        """Moves to a fix that is not late."""
        was = self._open
        advance = self.begin(fix.time, fix.lat, fix.lon, fix.trip, fix.destination)
        self.turned |= self._open is not was
        return advance

    def finish(self, advance: Advance) -> Score:
        """Reports what a fix has brought about, once its trip is scored."""
        was = self._open
        score = super().finish(advance)
        self.turned |= self._open is not was
        self.normality = None if self._open is None or score.trip is None else score.trip.normality
        return score

    def take_fix(self, fix: FeedFix) -> Score:
        """Takes in one fix and scores it."""
        advance = self.advance(fix)
        if self.due is not None:
            score_open([self.due])
        return self.finish(advance)

    def report_end(self, final: TripScore, was: OpenTrip) -> None:
        """Reports that a trip is over, and notes that a snapshot is due."""
        self.turned = True
        super().report_end(final, was)

    @property
    def alert(self) -> str | None:
        """The id of the alert that is open; None if there is none."""
        return alert_id(self.agent, self.open_trip or "", self.alerts) if self.alerting else None

    def is_late(self, fix: FeedFix) -> bool:
        """Whether a fix belongs before what is settled, or to a trip that was taken to be over."""
        if self._settled is None:
            return False
        if fix.time < self._settled:
            return True
        silenced = self._open is None and self._cutter.start is None
        if fix.trip or self._named:
            return silenced and fix.trip == self._named
        return silenced and fix.time - self._settled <= self.rules.faults.gap

    @property
    def open_since(self) -> float:
        """When the trip under way began; infinitely late if there is none."""
        return math.inf if self._open is None else self._open.start

    @property
    def settled(self) -> float | None:
        """The time of the last fix that was scored."""
        return self._settled

    @property
    def nbytes(self) -> int:
        """The room that it takes, about."""
        trip = self._open
        if trip is None:
            return SESSION_BYTES
        memory, rows = trip.agent_model.featurizer.memory, trip.rows
        return SESSION_BYTES + 40 * len(memory.keys) + rows.numbers.nbytes + rows.keys.nbytes
