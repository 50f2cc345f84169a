"""One agent's open trip: a score at every fix, and the model is never changed."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from astray.core.errors import DataError
from astray.core.faults import FAULT_NAMES
from astray.core.fixes import place
from astray.core.projection import Place
from astray.core.snapshot import Snapshot
from astray.core.trips import Cutter, TripRules
from astray.runtime.fix import one_fix, read_fix
from astray.runtime.live_scores import Score, TripScore
from astray.runtime.trip import OpenTrip, score_open
from astray.scoring.decisions import Threshold, level, threshold

if TYPE_CHECKING:
    from astray.core.trajectories import Trajectories
    from astray.core.zones import Zone
    from astray.detector import Detector
    from astray.scoring.scores import AgentModel

Fix = Any  # a sequence, a mapping or an object with time, lat and lon

LATE, TOO_OFTEN = "late", "too often"
MAX_RATE = 100  # fixes in one second; what comes on top is passed over, so that an open trip has a bounded size
MAX_PENDING = 10_000  # fixes held back at most; above that the oldest are settled before their time


class Advance(NamedTuple):
    """A fix that was taken in, and what became of it."""

    time: float
    fault: str
    ended: TripScore | None = None  # the trip that it ended, if it was the first after it
    counted: bool = False  # whether it is part of the open trip
    last: str = ""  # why the trip ends with it, if it does


class Session:
    """One agent's live trips, scored fix by fix; ``det.open(agent)`` makes one.

    A trip ends when the receiver was silent for long (``gap`` of the model's fault rules), when it woke up elsewhere,
    when the agent stays somewhere, or after three days; then the next one begins (see :mod:`astray.core.trips`). Where
    the feed names trips, their names decide instead. The scores of a finished trip equal those of
    ``det.score`` and ``det.score_fixes`` on the same fixes, to rounding. (For an agent that a fleet has never met the
    projection is centred on its first fix, not on the middle of the file: then they agree to about a part in a
    thousand.)

    The model is only read. A trip is scored by the model as it was when the trip began.

    Parameters
    ----------
    detector
        A fitted detector of GPS trips.
    agent
        Whose fixes these are.
    reorder
        Seconds for which a fix is held back, because earlier ones may still arrive. It is settled, and scored, as soon
        as a fix comes that is so much newer; :meth:`settle` settles all. A fix that comes even later is ``late``. With
        0, the default, every fix is scored when it comes.
    stay, stay_radius
        A trip ends when the agent has stayed within ``stay_radius`` metres for ``stay`` seconds; the next one begins
        with the last fix before it leaves that circle. None: a stay ends nothing.
    eps, gamma, false_alarm_rate
        Other thresholds than the detector's own, as for ``det.score``. Thresholds that depend on the trip are asked
        when it begins.
    context
        The context columns of the trips, if the model looks at them.
    score_steps
        Whether single fixes are scored, too. Without that it is faster; n(s, a) is not a number then, and no segment
        is named.

    Examples
    --------
    >>> from astray import Detector
    >>> from astray.simulate import city
    >>> trips = city(people=2, days=10, seed=0).trips
    >>> mine, last = trips.agent("p00")[:-1], trips.agent("p00")[-1:]
    >>> detector = Detector().fit(mine)
    >>> session = detector.open("p00")
    >>> for fix in zip(*(last.columns[name].tolist() for name in ("time", "lat", "lon"))):
    ...     score = session.update(fix)
    >>> final = session.close()
    >>> bool(abs(final.normality - detector.score_samples(last)[0]) < 1e-3)
    True
    >>> bool(final.decision == detector.decide(last)[0]), final.fixes == last.n_rows, final.ended
    (True, True, 'closed')
    """

    def __init__(
        self,
        detector: Detector,
        agent: str = "",
        *,
        reorder: float = 0.0,
        stay: float | None = 1200.0,
        stay_radius: float = 150.0,
        eps: Threshold | None = None,
        gamma: Threshold | None = None,
        false_alarm_rate: float | None = None,
        context: Mapping[str, Any] | None = None,
        score_steps: bool = True,
    ) -> None:
        if not reorder >= 0:
            raise DataError(f"reorder is {reorder}", remedy="give a number of seconds, 0 for none")
        model = detector.agent_model(agent, (0.0, 0.0))  # says so if this detector is not one for GPS trips
        model.featurizer.context.given(one_fix(agent, 0.0, 0.0, 0.0, context or {}))
        if eps is not None and false_alarm_rate is not None:
            raise DataError("eps and false_alarm_rate are each a threshold by itself", remedy="give one, not both")
        self.detector, self.agent, self.reorder = detector, agent, float(reorder)
        self.rules = TripRules(stay, stay_radius, faults=model.featurizer.config.faults)
        self.eps, self.gamma, self.false_alarm_rate = eps, gamma, false_alarm_rate
        self.context, self.score_steps = dict(context or {}), score_steps
        self._cutter = Cutter(self.rules)
        self._named = ""  # the name that the feed gives to the open trip, if it names trips
        self.destination: Place | None = None  # of the open trip or, at rest, of the next one
        self._near: Place | None = None
        self._zone: tuple[Place | None, Zone] | None = None
        self._settled: float | None = None
        self._newest = -math.inf
        self._pending: list[tuple[float, int, float, float, str, Place | None]] = []
        self._order = 0
        self._second = (0, 0)  # the last full second, and how many fixes it has had
        self._open: OpenTrip | None = None
        if false_alarm_rate is not None:
            self.levels(one_fix(agent, 0.0, 0.0, 0.0, context or {}), model)  # says so if it cannot be promised

    def levels(self, trip: Trajectories, model: AgentModel) -> tuple[float, float]:
        """The thresholds of a trip that begins: when it is whole, and as long as it goes on."""
        given = self.eps if self.eps is not None or self.false_alarm_rate is not None else self.detector.fitted.eps
        if given is not None:
            eps = float(threshold(given, trip)[0])
            return eps, eps
        rate = self.detector.false_alarm_rate if self.false_alarm_rate is None else self.false_alarm_rate
        return level(rate, model.calibration.normal), level(rate, model.unfinished.normal)

    # ---------------------------------------------------------------- fixes

    def update(self, fix: Fix, trip: str = "", destination: Place | None = None) -> Score:
        """Take in a fix and give the score of the newest one that is settled.

        Without a ``reorder`` window that is this fix. With one it is an earlier fix (``score.time`` says which), or,
        before the first is settled, none: then its numbers are not numbers and ``score.pending`` says how many wait.

        Parameters
        ----------
        fix
            Time (seconds since 1970), lat and lon: as a sequence, a mapping or an object with these names.
        trip
            The name of its trip, where whoever sends the fixes knows it. Such a trip ends when another name comes, and
            not at a gap or a stay.
        destination
            Where the trip is meant to end (lat, lon), if that is known, as of a booked ride: then it is compared with
            past trips that ended there while it still goes on. It holds until another one is given or the trip ends.
        """
        scores = self.push(fix, trip, destination)
        if scores:
            return scores[-1]
        time = self._newest if self._settled is None else self._settled
        return self._unscored(time, "")

    def push(self, fix: Fix, trip: str = "", destination: Place | None = None) -> list[Score]:
        """Take in a fix and give the scores of all fixes that are settled by it, in the order of time."""
        time, lat, lon = read_fix(fix)
        goal = None if destination is None else place(*destination)
        if self._settled is not None and time < self._settled:
            return [self._unscored(time, LATE)]
        self._newest = max(self._newest, time)
        if self.reorder == 0:
            return [self._settle(time, lat, lon, trip, goal)]
        self._order += 1
        heapq.heappush(self._pending, (time, self._order, lat, lon, trip, goal))
        return self._settle_until(self._newest - self.reorder)

    def settle(self) -> list[Score]:
        """Settle the fixes that are held back, and give their scores."""
        return self._settle_until(math.inf)

    def close(self, why: str = "closed") -> TripScore | None:
        """Settle what is held back and end the open trip; its final scores, or None if no trip is open.

        Ask :meth:`settle` first for the scores of the fixes held back, and for trips that they end.
        """
        self.settle()
        final = self.end_trip(why)
        if final is not None:
            self._cutter = Cutter(self.rules)
        return final

    @property
    def zone(self) -> Zone:
        """The time zone that its trips are told in."""
        if self._zone is None or self._zone[0] != self._near:
            self._zone = self._near, self.detector.zone(self.agent, self._near)
        return self._zone[1]

    @property
    def trip(self) -> TripScore | None:
        """The open trip so far."""
        return None if self._open is None else self._open.so_far

    @property
    def pending(self) -> int:
        """How many fixes are held back."""
        return len(self._pending)

    def silent_since(self, time: float) -> bool:
        """Whether no fix has come for so long before ``time`` that a trip would be over."""
        return math.isfinite(self._newest) and time - self._newest > self.rules.faults.gap + self.reorder

    @property
    def settled(self) -> float | None:
        """The time of the last settled fix; None before the first."""
        return self._settled

    @property
    def current(self) -> OpenTrip | None:
        """The open trip with everything that scores it; None if no trip is open."""
        return self._open

    def comes_late(self, time: float, trip: str = "") -> bool:
        """Returns True if a fix belongs before the settled ones, or to a trip that silence has ended."""
        if self._settled is None:
            return False
        if time < self._settled:
            return True
        silenced = self._open is None and self._cutter.start is None
        if trip or self._named:
            return silenced and trip == self._named
        return silenced and time - self._settled <= self.rules.faults.gap

    def _settle_until(self, time: float) -> list[Score]:
        scores = []
        while self._pending and (self._pending[0][0] <= time or len(self._pending) > MAX_PENDING):
            t, _, lat, lon, trip, destination = heapq.heappop(self._pending)
            scores.append(self._settle(t, lat, lon, trip, destination))
        return scores

    # ---------------------------------------------------------------- one settled fix

    def _settle(self, time: float, lat: float, lon: float, name: str, destination: Place | None) -> Score:
        advance = self._advance(time, lat, lon, name, destination)
        if self.due is not None:
            score_open([self.due])
        return self._score(advance)

    @property
    def due(self) -> OpenTrip | None:
        """The open trip, if it has come further than it was taken in."""
        return self._open if self._open is not None and self._open.moved else None

    def _advance(self, time: float, lat: float, lon: float, name: str, destination: Place | None) -> Advance:
        """Move the trip to a settled fix, with which it may end or begin; :func:`score_open` then takes it in."""
        second, rate = math.floor(time), 1
        if self._settled is not None and second == self._second[0]:
            rate = self._second[1] + 1
        self._settled, self._second = time, (second, rate)
        if rate > MAX_RATE:
            return Advance(time, TOO_OFTEN)
        fix, ended = (time, lat, lon), None
        if name != self._named:
            ended = self.end_trip("next")
            self._cutter, self._named = Cutter(self.rules), name
        cut = self._cutter.update(*fix, named=bool(name))
        if cut.ended:
            ended = self.end_trip(cut.ended)
        if destination is not None:
            self.destination = destination
            if self._open is not None:
                self._open.head_for(destination)
        if cut.start is not None:
            if self._near is None:
                self._near = cut.start[1:]
            self._open = OpenTrip(self, *cut.start, name)
            if cut.start[0] != fix[0]:
                self._open.add(*cut.start)
                score_open([self._open])
        trip = self._open
        if cut.fault or cut.resting or trip is None:
            if cut.fault and trip is not None:
                trip.fixes, trip.faults = trip.fixes + 1, trip.faults + 1
            return Advance(time, FAULT_NAMES[cut.fault], ended)
        trip.add(*fix, breaks=cut.breaks)
        last = cut.last or ("long" if trip.full else "")
        if last and not name:
            self._cutter.rest = fix
        return Advance(time, "", ended, True, last)

    def _score(self, advance: Advance) -> Score:
        """What is said of a fix that was taken in, once its trip is scored."""
        trip = self._open
        if not advance.counted or trip is None:
            return self._unscored(advance.time, advance.fault, advance.ended)
        score, ended = trip.so_far, advance.ended
        if advance.last:
            score = ended = trip.finished()._replace(ended=advance.last)
            self._open = self.destination = None
            if self._named:
                self._cutter = Cutter(self.rules)  # what else comes under this name is a trip again
        pending = len(self._pending)
        return Score(advance.time, "", *trip.of_step, trip.alert, trip.segment, score, ended, pending)

    def end_trip(self, why: str) -> TripScore | None:
        """Ends the open trip and returns its final score; None if no trip is open."""
        if self._open is None:
            return None
        final = self._open.finished()._replace(ended=why)
        self._open = self.destination = None
        return final

    def _unscored(self, time: float, fault: str, ended: TripScore | None = None) -> Score:
        """What is said of a fix that is not scored."""
        of = self._open
        alert, segment = ("", None) if of is None else (of.alert, of.segment)
        return Score(time, fault, math.nan, math.nan, "", alert, segment, self.trip, ended, len(self._pending))

    def describe(self) -> str:
        """What is unfamiliar about the last step, in words; empty where the model has no memory to compare with."""
        return "" if self._open is None else self._open.describe()

    # ---------------------------------------------------------------- saving

    def snapshot(self) -> Snapshot:
        """All that the session holds, as numbers; the model and the settings are not among them."""
        snapshot = Snapshot()
        snapshot.put(self._settled, self._order, *self._second, *(self._near or (None, None)))
        snapshot.put(len(self._pending))
        for time, order, lat, lon, name, destination in sorted(self._pending, key=lambda fix: fix[:2]):
            snapshot.put(time, order, lat, lon, *(destination or (None, None)))
            snapshot.put_text(name)
        snapshot.put_text(self._named)
        snapshot.put(*(self.destination or (None, None)))
        self._cutter.save(snapshot)
        snapshot.put(self._open is not None)
        if self._open is not None:
            self._open.save(snapshot)
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        """Take up what :meth:`snapshot` gave; the session must have the same agent, model and settings."""
        self._settled, self._order = snapshot.maybe(), snapshot.count()
        self._second = (int(snapshot.take()), snapshot.count())
        self._near = _maybe_place(snapshot)
        self._pending = []
        for _ in range(snapshot.count()):
            fix = snapshot.take(), snapshot.count(), snapshot.take(), snapshot.take()
            destination = _maybe_place(snapshot)
            self._pending.append((*fix, snapshot.text(), destination))
        self._newest = max([-math.inf if self._settled is None else self._settled, *(p[0] for p in self._pending)])
        self._named = snapshot.text()
        self.destination = _maybe_place(snapshot)
        self._cutter = Cutter(self.rules)
        self._cutter.restore(snapshot)
        self._open = OpenTrip.restored(self, snapshot) if snapshot.take() else None


def _maybe_place(snapshot: Snapshot) -> Place | None:
    lat, lon = snapshot.maybe(), snapshot.maybe()
    return None if lat is None or lon is None else (lat, lon)
