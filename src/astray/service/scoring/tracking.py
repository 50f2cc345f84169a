"""What is held of an agent between two of its fixes: its session, where its log ends, what was said of its trip."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from astray.core.snapshot import Snapshot
from astray.runtime.live_scores import Score, TripScore
from astray.runtime.session import Advance, Session
from astray.runtime.trip import OpenTrip, score_open
from astray.service.batches import FeedFix

if TYPE_CHECKING:
    from astray.detector import Detector

SESSION_BYTES = 30_000  # that an agent at rest takes, about

Ended = Callable[["Tracked", TripScore, OpenTrip], None]
"""Called with the scores of a trip that is over, and with the trip, before the next one begins."""


class Tracked(Session):
    """The session of an agent, with what the service notes of it."""

    def __init__(self, detector: Detector, agent: str, ended: Ended, **settings: Any) -> None:
        super().__init__(detector, agent, score_steps=False, **settings)
        self.ended = ended
        self.n = self.kept = 0  # fixes in the log, and how many of them the last snapshot knows
        self.newest = -math.inf  # the time of the newest fix in the log
        self.place = (0.0, 0.0)  # of that fix
        self.since = self.arrived = 0.0  # on our clock: when its first and its last fix came
        self.delay = 0.0  # seconds that the last fixes were on the way
        self.past = 0  # trips that are remembered
        self.normality: float | None = None  # of the open trip so far
        self.drift: str | None = None
        self.late: tuple[float, float] | None = None  # from when to when fixes came that no trip knows of yet
        self.alerts = 0  # of the open trip
        self.alert: str | None = None  # the id of the one that is open
        self.model = 0  # the version of the model that the open trip is scored by
        self.turned = False  # whether a trip began or ended since the last snapshot
        self.fresh: list[FeedFix] = []  # fixes that are in no log yet

    def advance(self, fix: FeedFix) -> Advance:
        """Take in a fix that is not late; the trip that it ends, if it comes after it, is told to ``ended``."""
        was = self._open
        self._newest = max(self._newest, fix.time)
        advance = self._advance(fix.time, fix.lat, fix.lon, fix.trip, fix.destination)
        self.turned |= self._open is not was
        return advance

    def score(self, advance: Advance) -> Score:
        """What is said of the fix, once its trip is scored; the trip that it is the last of is told to ``ended``."""
        was = self._open
        score = self._score(advance)
        if was is not None and self._open is None and score.ended is not None:
            self.turned = True
            self.ended(self, score.ended, was)
        self.normality = None if self._open is None or score.trip is None else score.trip.normality
        return score

    def take(self, fix: FeedFix) -> Score:
        """Take in one fix and score it."""
        advance = self.advance(fix)
        if self.due is not None:
            score_open([self.due])
        return self.score(advance)

    def end_trip(self, why: str) -> TripScore | None:
        """Ends the open trip and reports it; returns its final score."""
        was = self._open
        final = super().end_trip(why)
        if final is not None and was is not None:
            self.turned = True
            self.ended(self, final, was)
        return final

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
    def open_trip(self) -> str | None:
        """The name of the trip under way; None if there is none."""
        return None if self._open is None else self._open.name

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

    def snapshot(self) -> Snapshot:
        """The session, and what was said of its open trip."""
        snapshot = super().snapshot()
        snapshot.put(self.alerts, self.alert is not None)
        snapshot.put_text(self.alert or "")
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        """Take up what :meth:`snapshot` gave."""
        super().restore(snapshot)
        self.alerts, alerting, alert = snapshot.count(), snapshot.take(), snapshot.text()
        self.alert = alert if alerting else None
