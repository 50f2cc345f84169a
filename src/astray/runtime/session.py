"""Scores one agent's live trips at every fix, without changing the model."""

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
from astray.runtime.json_fixes import read_fix
from astray.runtime.live_scores import Score, TripScore
from astray.runtime.trip import OpenTrip, one_fix, score_open
from astray.scoring.decisions import Rate, Threshold, aspect_levels, rate_level, threshold
from astray.scoring.segments import leaving

if TYPE_CHECKING:
    from astray.core.trajectories import Trajectories
    from astray.core.zones import Zone
    from astray.detector import Detector
    from astray.scoring.scores import AgentModel

LATE, TOO_OFTEN = "late", "too often"
MAX_RATE = 100  # fixes a second; more are skipped, to bound the size of an open trip
MAX_PENDING = 10_000  # the most fixes that are held back; with more, the oldest are settled early


class Advance(NamedTuple):
    """What a settled fix changed."""

    time: float
    fault: str
    ended: TripScore | None = None  # the trip that ended before this fix
    counted: bool = False  # True if the fix is part of the open trip
    last: str = ""  # why the trip ends with this fix; empty if it does not


class TripLevels(NamedTuple):
    """The thresholds of a trip: see :class:`astray.scoring.decisions.Levels`."""

    eps: float  # of the score of the finished trip
    open_eps: float  # of the score while the trip is open
    rates: tuple[float, ...] = ()  # of each aspect, 0 for one without a rate; empty if the score decides
    closes: tuple[float, ...] = ()  # the score that each aspect must exceed for an alert to close


class Session:
    """Scores one agent's live trips fix by fix; ``det.open(agent)`` makes one.

    A trip ends when the receiver is silent for long (``gap`` of the model's fault rules), when it wakes up elsewhere,
    when the agent stays somewhere, or after three days; then the next trip begins (see :mod:`astray.core.trips`). If
    the feed names trips, their names decide instead. The scores of a finished trip equal those of ``det.score`` and
    ``det.score_fixes`` on the same fixes, to rounding. (For an agent that a fleet does not know, a session centres the
    projection on the first fix, and ``det.score`` on the middle of the trip: the scores then agree to about 0.1 %.)

    A session never changes the model. It scores a trip by the model as it was when the trip began.

    Parameters
    ----------
    detector
        A fitted detector of GPS trips.
    agent
        The agent that makes these fixes.
    reorder
        Seconds for which the session holds a fix back, because earlier ones may still arrive. A fix is settled, which
        means put in order and scored, when one comes that is this much newer; :meth:`settle` settles all. A fix that is
        older than a settled one is ``late``. With 0, the default, every fix is scored when it comes.
    stay, stay_radius
        A trip ends when the agent has stayed within ``stay_radius`` metres for ``stay`` seconds; the next one begins
        with the last fix before it leaves that circle. None: a stay does not end a trip.
    eps, gamma, false_alarm_rate
        Thresholds that replace the detector's own, as for ``det.score``. A threshold that depends on the trip is
        evaluated when the trip begins.
    context
        The context columns of the trips, if the model uses them.
    score_steps
        If False, the session does not score single fixes, which is faster: n(s, a) is NaN then, and no segment is
        named.

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
        false_alarm_rate: Rate | None = None,
        context: Mapping[str, Any] | None = None,
        score_steps: bool = True,
    ) -> None:
        if not reorder >= 0:
            raise DataError(f"reorder is {reorder}", remedy="give a number of seconds, 0 for none")
        model = detector.agent_model(agent, (0.0, 0.0))  # raises an error unless the detector is one of GPS trips
        example = one_fix(agent, 0.0, 0.0, 0.0, context or {})
        model.featurizer.context.given(example)  # raises an error if a context column is missing
        if eps is not None and false_alarm_rate is not None:
            raise DataError("eps and false_alarm_rate are each a threshold by itself", remedy="give one, not both")
        self.detector, self.agent, self.reorder = detector, agent, float(reorder)
        self.rules = TripRules(stay, stay_radius, faults=model.featurizer.config.faults)
        self.eps, self.gamma, self.false_alarm_rate = eps, gamma, false_alarm_rate
        self.context, self.score_steps = dict(context or {}), score_steps
        self._cutter = Cutter(self.rules)
        self._named = ""  # the name that the feed gives to the open trip, if it names trips
        self.destination: Place | None = None  # of the open trip or, at rest, of the next one
        self._near: Place | None = None  # where the first trip began
        self._zone: tuple[Place | None, Zone] | None = None  # cached, with the place that it is for
        self._settled: float | None = None  # the time of the last settled fix
        self._newest = -math.inf
        self._pending: list[tuple[float, int, float, float, str, Place | None]] = []  # a heap, by time and arrival
        self._order = 0
        self._second = (0, 0)  # the last full second, and how many fixes it has had
        self._open: OpenTrip | None = None
        if false_alarm_rate is not None:
            self.levels(example, model)  # raises an error if the model has too few past trips for this rate

    def levels(self, trip: Trajectories, model: AgentModel) -> TripLevels:
        """Returns the thresholds for a trip that begins now."""
        given = self.eps if self.eps is not None or self.false_alarm_rate is not None else self.detector.fitted.eps
        if given is not None:
            eps = float(threshold(given, trip)[0])
            return TripLevels(eps, eps)
        rate = self.detector.false_alarm_rate if self.false_alarm_rate is None else self.false_alarm_rate
        rates = self.detector.fitted.rates(rate)
        eps, open_eps = (rate_level(rate, scale, rates) for scale in (model.calibration, model.unfinished))
        closes = leaving(aspect_levels(rates, model.unfinished)).tolist() if rates else ()
        return TripLevels(eps, open_eps, rates, tuple(closes))

    # ---------------------------------------------------------------- fixes

    def update(self, fix: Any, trip: str = "", destination: Place | None = None) -> Score:
        """Takes in a fix and returns the score of the newest settled one.

        Without a ``reorder`` window that is this fix. With one it is an earlier fix (``score.time`` says which). Before
        the first fix is settled, the numbers of the score are NaN and ``score.pending`` says how many fixes wait.

        Parameters
        ----------
        fix
            Time (seconds since 1970), lat and lon: as a sequence, a mapping or an object with these names.
        trip
            The name of its trip, if the sender knows it. Such a trip ends when another name comes, and not at a gap or
            a stay.
        destination
            Where the trip is meant to end (lat, lon), if that is known, for example of a booked ride: the open trip is
            then compared with past trips that ended there. It holds until another one is given or the trip ends.
        """
        scores = self.push(fix, trip, destination)
        if scores:
            return scores[-1]
        return self._unscored(self._newest if self._settled is None else self._settled, "")

    def push(self, fix: Any, trip: str = "", destination: Place | None = None) -> list[Score]:
        """Takes in a fix and returns the scores of all fixes that it settles, in the order of time."""
        time, lat, lon = read_fix(fix)
        goal = None if destination is None else place(*destination)
        if self._settled is not None and time < self._settled:
            return [self._unscored(time, LATE)]
        if self.reorder == 0:
            return [self.take(time, lat, lon, trip, goal)]
        self._newest = max(self._newest, time)
        self._order += 1
        heapq.heappush(self._pending, (time, self._order, lat, lon, trip, goal))
        return self._settle_until(self._newest - self.reorder)

    def settle(self) -> list[Score]:
        """Settles the fixes that are held back, and returns their scores."""
        return self._settle_until(math.inf)

    def close(self, why: str = "closed") -> TripScore | None:
        """Settles all fixes and ends the open trip; returns its final scores, or None if no trip is open.

        Call :meth:`settle` first if you want the scores of the fixes held back, and the trips that they end.
        """
        self.settle()
        final = self.end_trip(why)
        if final is not None:
            self._cutter = Cutter(self.rules)
        return final

    @property
    def zone(self) -> Zone:
        """The time zone in which the times of its trips are written."""
        if self._zone is None or self._zone[0] != self._near:
            self._zone = self._near, self.detector.zone(self.agent, self._near)
        return self._zone[1]

    @property
    def trip(self) -> TripScore | None:
        """The scores of the open trip so far; None if no trip is open."""
        return None if self._open is None else self._open.so_far

    @property
    def pending(self) -> int:
        """The number of fixes that are held back."""
        return len(self._pending)

    def silent_since(self, time: float) -> bool:
        """Returns True if the agent has been silent until ``time`` for long enough to end a trip."""
        return math.isfinite(self._newest) and time - self._newest > self.rules.faults.gap + self.reorder

    def describe(self) -> str:
        """Says in words what is unfamiliar about the last step; empty if the model has no memory to compare with."""
        return "" if self._open is None else self._open.describe()

    @property
    def settled(self) -> float | None:
        """The time of the last settled fix; None before the first."""
        return self._settled

    @property
    def current(self) -> OpenTrip | None:
        """The open trip with everything that scores it; None if no trip is open."""
        return self._open

    def comes_late(self, time: float, trip: str = "") -> bool:
        """Returns True if a fix is older than the settled ones, or belongs to a trip that silence has ended."""
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
            scores.append(self.take(t, lat, lon, trip, destination))
        return scores

    # ---------------------------------------------------------------- one settled fix

    def take(self, time: float, lat: float, lon: float, trip: str = "", destination: Place | None = None) -> Score:
        """Takes in one checked fix that is not late, and scores it."""
        advance = self.begin(time, lat, lon, trip, destination)
        if self.due is not None:
            score_open([self.due])
        return self.finish(advance)

    @property
    def due(self) -> OpenTrip | None:
        """The open trip if its last fix still has to be scored by :func:`score_open`."""
        return self._open if self._open is not None and self._open.moved else None

    def begin(self, time: float, lat: float, lon: float, trip: str = "", destination: Place | None = None) -> Advance:
        """Adds a fix that is not late to the open trip, and ends or begins trips.

        Then :func:`score_open` scores the trip that is :attr:`due`, alone or with those of other agents, and
        :meth:`finish` returns the score.
        """
        self._newest = max(self._newest, time)
        second, rate = math.floor(time), 1
        if self._settled is not None and second == self._second[0]:
            rate = self._second[1] + 1
        self._settled, self._second = time, (second, rate)
        if rate > MAX_RATE:
            return Advance(time, TOO_OFTEN)
        fix, ended = (time, lat, lon), None
        if trip != self._named:
            ended = self.end_trip("next")
            self._cutter, self._named = Cutter(self.rules), trip
        cut = self._cutter.update(*fix, named=bool(trip))
        if cut.ended:
            ended = self.end_trip(cut.ended)
        if destination is not None:
            self.destination = destination
            if self._open is not None:
                self._open.head_for(destination)
        if cut.start is not None:
            if self._near is None:
                self._near = cut.start[1:]
            self._open = OpenTrip(self, *cut.start, trip)
            if cut.start[0] != time:
                self._open.add(*cut.start)
                score_open([self._open])
        now = self._open
        if cut.fault or cut.resting or now is None:
            if cut.fault and now is not None:
                now.fixes, now.faults = now.fixes + 1, now.faults + 1
            return Advance(time, FAULT_NAMES[cut.fault], ended)
        now.add(*fix, breaks=cut.breaks)
        last = cut.last or ("long" if now.full else "")
        if last and not trip:
            self._cutter.rest = fix
        return Advance(time, "", ended, True, last)

    def finish(self, advance: Advance) -> Score:
        """Returns the score of a fix after its trip was scored."""
        trip = self._open
        if not advance.counted or trip is None:
            return self._unscored(advance.time, advance.fault, advance.ended)
        score, ended = trip.so_far, advance.ended
        if advance.last:
            score = ended = trip.finished()._replace(ended=advance.last)
            self._open = self.destination = None
            if self._named:
                self._cutter = Cutter(self.rules)  # further fixes under this name are a new trip
        pending = len(self._pending)
        return Score(advance.time, "", *trip.of_step, trip.alert, trip.segment, score, ended, pending)

    def end_trip(self, why: str) -> TripScore | None:
        """Ends the open trip and returns its final scores; None if no trip is open."""
        if self._open is None:
            return None
        final = self._open.finished()._replace(ended=why)
        self._open = self.destination = None
        return final

    def _unscored(self, time: float, fault: str, ended: TripScore | None = None) -> Score:
        """Returns the score, without numbers, of a fix that is not part of a trip."""
        of = self._open
        alert, segment = ("", None) if of is None else (of.alert, of.segment)
        return Score(time, fault, math.nan, math.nan, "", alert, segment, self.trip, ended, len(self._pending))

    # ---------------------------------------------------------------- saving

    def snapshot(self) -> Snapshot:
        """Returns the state of the session as numbers, without the model and the settings."""
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
        """Restores what :meth:`snapshot` returned; the session must have the same agent, model and settings."""
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
