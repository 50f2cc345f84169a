"""What is said of a live fix and of its trip so far."""

from __future__ import annotations

from typing import NamedTuple

from astray.core.trip_ids import TripId


class LiveSegment(NamedTuple):
    """A segment of a trip that is not normal: from when to when (seconds since 1970), and its mean normality."""

    start: float
    end: float
    normality: float


class TripScore(NamedTuple):
    """The scores of a trip, so far or final: those that ``det.score`` gives of the same fixes.

    Attributes
    ----------
    id
        What the trip is called: whose it is (``agent``), and its own name (``trip``), the one that the feed gives, or
        else the time of its first fix. The same fixes in a file have the same id.
    start, end
        When its first and last good fix were made, in seconds since 1970.
    fixes, faults
        How many fixes it has, and how many of them are the receiver's fault.
    normality, uncertainty, score, p_value, aspect
        As in the table of ``det.score``. While the trip is open, of the trip as far as it had come when it was last
        looked at (about every interval of the model), measured against past trips that were as unfinished.
    decision
        ``normal``, ``anomaly`` or ``review``.
    history
        How many past trips stand behind it.
    segment
        The segment in which a finished trip lost most normality; None if there is none.
    ended
        Why the trip is over: ``gap`` (the receiver was silent), ``stay`` (the agent stayed somewhere), ``elsewhere``
        (the receiver woke up at another place), ``next`` (the feed named another trip), ``closed`` (somebody ended it),
        ``long`` (it lasted for days), ``evicted`` (to make room for other agents). Empty while the trip is open.
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

    @property
    def agent(self) -> str:
        """Whose trip it is."""
        return self.id.agent

    @property
    def trip(self) -> str:
        """Which of the agent's trips."""
        return self.id.trajectory


class Score(NamedTuple):
    """What is said of one fix.

    Attributes
    ----------
    time
        When the fix was made, in seconds since 1970.
    fault
        What is wrong with it, if it is the receiver's fault and not the agent's: ``repeated time``, ``teleport``,
        ``late`` (behind what is settled already) or ``too often`` (beyond a hundred in one second); then there are no
        numbers. Otherwise empty.
    normality, uncertainty, aspect
        n(s, a) of the fix, its standard deviation over the heads, and the side of it that is lowest; as in the table
        of ``det.score_fixes``.
    alert
        ``anomaly`` or ``review`` from when the trip so far scores low until it is half-way back; otherwise empty.
    segment
        The segment that is not normal and still lasts; None if there is none.
    trip
        The trip so far; None while the agent rests between two trips.
    ended
        The trip that this fix brought to an end, with its final scores; None if it did not.
    pending
        How many fixes are held back, because earlier ones may still come.
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
