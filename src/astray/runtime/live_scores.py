"""The scores of a live fix and of its trip so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from astray.core.trip_ids import TripId


class LiveSegment(NamedTuple):
    """A segment of a trip that is not normal: its start and end (seconds since 1970), and its mean normality."""

    start: float
    end: float
    normality: float


class TripScore(NamedTuple):
    """The scores of a trip, open or finished; final ones equal those of ``det.score`` for the same fixes.

    Attributes
    ----------
    id
        The agent and the name of the trip: the one that the feed gives, or else the time of its first fix. The same
        fixes in a file have the same id.
    start, end
        The times of its first and last good fix, in seconds since 1970.
    fixes, faults
        How many fixes it has, and how many of them are faults of the receiver.
    normality, uncertainty, score, p_value, aspect
        As in the table of ``det.score``. An open trip is scored about every interval of the model; its score compares
        the trip so far with past trips that were cut off in the same way.
    decision
        ``normal``, ``anomaly`` or ``review``.
    history
        The number of past trips that the score is based on.
    segment
        The segment in which a finished trip lost most normality; None if there is none.
    ended
        Why the trip is over: ``gap`` (the receiver was silent), ``stay`` (the agent stayed somewhere), ``elsewhere``
        (the receiver woke up at another place), ``next`` (the feed named another trip), ``closed`` (the session was
        closed), ``long`` (it lasted for days), ``evicted`` (to make room for other agents). Empty while it is open.
    p_aspects
        The p-value of each aspect alone, by its name; NaN for one that is not looked for. Empty if none is known.
    """

    id: TripId
    start: float
    end: float
    fixes: int
    faults: int
    normality: float
    uncertainty: float
    score: float
    p_value: float
    aspect: str
    decision: str
    history: float
    segment: LiveSegment | None
    ended: str = ""
    p_aspects: Mapping[str, float] = {}

    @property
    def agent(self) -> str:
        """The agent that made the trip."""
        return self.id.agent

    @property
    def trip(self) -> str:
        """The name of the trip among those of its agent."""
        return self.id.trajectory


class Score(NamedTuple):
    """The score of one fix.

    Attributes
    ----------
    time
        The time of the fix, in seconds since 1970.
    fault
        What is wrong with the fix: ``repeated time``, ``teleport``, ``late`` (older than a settled fix) or ``too
        often`` (beyond a hundred in one second); its numbers are NaN then. Empty for a good fix.
    normality, uncertainty, aspect
        n(s, a) of the fix, its standard deviation over the heads, and its lowest aspect; as in the table of
        ``det.score_fixes``.
    alert
        ``anomaly`` or ``review`` from when the trip so far scores low until its score is half-way back to normal;
        otherwise empty.
    segment
        The current segment that is not normal; None if there is none.
    trip
        The trip so far; None while the agent rests between two trips.
    ended
        The trip that this fix brought to an end, with its final scores; None if it did not.
    pending
        How many fixes the session holds back, because earlier ones may still arrive.
    """

    time: float
    fault: str
    normality: float
    uncertainty: float
    aspect: str
    alert: str
    segment: LiveSegment | None
    trip: TripScore | None
    ended: TripScore | None
    pending: int
