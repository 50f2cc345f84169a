"""Turns one agent's live fixes into typed events: scores, alerts and finished trips.

Every live consumer uses this class: ``astray watch`` writes its events as JSON lines, the service writes them as rows
of its store, and :func:`~astray.runtime.advance` returns them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from astray.core.snapshot import Snapshot
from astray.core.trip_ids import TripId
from astray.runtime.live_scores import Score, TripScore
from astray.runtime.session import Advance, Session
from astray.runtime.trip import OpenTrip

if TYPE_CHECKING:
    from astray.detector import Detector


class FixScored(NamedTuple):
    """A fix was scored, or set aside as a fault of the receiver."""

    score: Score


class AlertOpened(NamedTuple):
    """The open trip scores low."""

    trip: TripScore
    ordinal: int  # counts the alerts of a trip, from 1
    time: float
    level: str  # anomaly or review
    score: Score


class AlertClosed(NamedTuple):
    """The open trip is back to normal, or over."""

    trip: TripScore
    ordinal: int
    time: float
    why: str
    score: Score | None = None  # of the fix that closed it; None if the trip ended


class TripEnded(NamedTuple):
    """A trip is over."""

    trip: TripScore
    was: OpenTrip
    alerts: int  # how many alerts it had

    @property
    def id(self) -> TripId:
        """The name of the trip."""
        return self.trip.id


Event = FixScored | AlertOpened | AlertClosed | TripEnded
Emit = Callable[["AgentStream", Event], None]
"""Called with each event when it happens; a trip that ended is reported before the next one begins."""


class AgentStream(Session):
    """A session that reports an agent's events.

    Parameters
    ----------
    detector, agent, settings
        As for :class:`~astray.runtime.Session`.
    emit
        Called with each event.
    least_history
        An agent with fewer past trips than this gets no alerts.
    """

    def __init__(
        self, detector: Detector, agent: str, emit: Emit, *, least_history: float = 0.0, **settings: Any
    ) -> None:
        super().__init__(detector, agent, **settings)
        self.emit, self.least_history = emit, least_history
        self.alerts = 0  # of the open trip
        self.alerting = False

    def finish(self, advance: Advance) -> Score:
        """Returns the score of a fix after its trip was scored, and reports the events that the fix caused."""
        was = self._open
        score = super().finish(advance)
        self.emit(self, FixScored(score))
        if was is not None and self._open is None and score.ended is not None:
            self.report_end(score.ended, was)
        else:
            self._report_alert(score)
        return score

    def end_trip(self, why: str) -> TripScore | None:
        """Ends the open trip and reports it; returns its final scores, or None if no trip is open."""
        was = self._open
        final = super().end_trip(why)
        if final is not None and was is not None:
            self.report_end(final, was)
        return final

    def report_end(self, final: TripScore, was: OpenTrip) -> None:
        """Reports that a trip is over, and closes its alert."""
        if self.alerting:
            self.emit(self, AlertClosed(final, self.alerts, final.end, "trip ended"))
        alerts, self.alerts, self.alerting = self.alerts, 0, False
        self.emit(self, TripEnded(final, was, alerts))

    def _report_alert(self, score: Score) -> None:
        trip = score.trip
        if score.fault or trip is None or self._open is None or bool(score.alert) == self.alerting:
            return
        if self.alerting:
            self.alerting = False
            self.emit(self, AlertClosed(trip, self.alerts, score.time, "back to normal", score))
        elif trip.history >= self.least_history:
            self.alerting = True
            self.alerts += 1
            self.emit(self, AlertOpened(trip, self.alerts, score.time, score.alert, score))

    @property
    def open_trip(self) -> str | None:
        """The name of the open trip; None if no trip is open."""
        return None if self._open is None else self._open.name

    # ---------------------------------------------------------------- saving

    def snapshot(self) -> Snapshot:
        """Returns the state of the session and its alerts."""
        snapshot = super().snapshot()
        snapshot.put(self.alerts, self.alerting)
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        """Restores what :meth:`snapshot` returned."""
        super().restore(snapshot)
        self.alerts, self.alerting = snapshot.count(), bool(snapshot.take())
