"""One agent's open trip: a score at every fix, and the model is never changed."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from astray.decide import Threshold, level, threshold
from astray.errors import DataError
from astray.live.fix import one_fix, read_fix
from astray.live.score import Score, TripScore
from astray.live.snapshot import Snapshot
from astray.live.trip import OpenTrip
from astray.mdp.faults import FAULT_NAMES, GOOD
from astray.mdp.steps import Place

if TYPE_CHECKING:
    from astray.detectors.estimator import Detector
    from astray.detectors.scoring import Lens
    from astray.trajectories import Trajectories

Spot = tuple[float, float, float]  # time, lat, lon
Fix = Any  # a sequence, a mapping or an object with time, lat and lon

LATE, TOO_OFTEN = "late", "too often"
MAX_RATE = 100  # fixes in one second; what comes on top is passed over, so that an open trip has a bounded size
MAX_PENDING = 10_000  # fixes held back at most; above that the oldest are settled before their time


class Rest(NamedTuple):
    """Between two trips: the one that ended, and the last fix at rest (time, lat, lon)."""

    trip: OpenTrip
    last: Spot


class Session:
    """One agent's live trips, scored fix by fix; ``det.open(agent)`` makes one.

    A trip ends when the receiver was silent for long (``gap`` of the model's fault rules), when it woke up elsewhere,
    or when the agent stays somewhere; then the next one begins. The scores of a finished trip equal those of
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

    Examples
    --------
    >>> from astray import IRLDetector
    >>> from astray.simulate import city
    >>> trips = city(people=2, days=10, seed=0).trips
    >>> mine, last = trips.agent("p00")[:-1], trips.agent("p00")[-1:]
    >>> detector = IRLDetector().fit(mine)
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
    ) -> None:
        if not reorder >= 0:
            raise DataError(f"reorder is {reorder}; give a number of seconds, 0 for none")
        if not ((stay is None or stay > 0) and stay_radius > 0):
            raise DataError(f"stay is {stay} and stay_radius {stay_radius}; give seconds and metres above 0")
        detector._require_fitted()
        model = detector.lens(agent, (0.0, 0.0))  # says so if this detector is not one for GPS trips
        model.view.context.given(one_fix(agent, 0.0, 0.0, 0.0, context or {}))
        if eps is not None and false_alarm_rate is not None:
            raise DataError("give eps or false_alarm_rate, not both: each is a threshold by itself")
        self.detector, self.agent, self.reorder = detector, agent, float(reorder)
        self.stay, self.stay_radius = stay, stay_radius
        self.eps, self.gamma, self.false_alarm_rate = eps, gamma, false_alarm_rate
        self.context = dict(context or {})
        self._gap = model.view.config.faults.gap
        self._near: Place | None = None
        self._settled: float | None = None
        self._newest = -math.inf
        self._pending: list[tuple[float, int, float, float]] = []
        self._order = 0
        self._second = (0, 0)  # the last full second, and how many fixes it has had
        self._open: OpenTrip | None = None
        self._resting: Rest | None = None
        if false_alarm_rate is not None:
            self.levels(one_fix(agent, 0.0, 0.0, 0.0, context or {}), model)  # says so if it cannot be promised

    def levels(self, trip: Trajectories, model: Lens) -> tuple[float, float]:
        """The thresholds of a trip that begins: when it is whole, and as long as it goes on."""
        given = self.eps if self.eps is not None or self.false_alarm_rate is not None else self.detector._eps()
        if given is not None:
            eps = float(threshold(given, trip)[0])
            return eps, eps
        rate = self.detector.false_alarm_rate if self.false_alarm_rate is None else self.false_alarm_rate
        return level(rate, model.calibration.normal), level(rate, model.unfinished.normal)

    # ---------------------------------------------------------------- fixes

    def update(self, fix: Fix) -> Score:
        """Take in a fix and give the score of the newest one that is settled.

        Without a ``reorder`` window that is this fix. With one it is an earlier fix (``score.time`` says which), or,
        before the first is settled, none: then its numbers are not numbers and ``score.pending`` says how many wait.

        Parameters
        ----------
        fix
            Time (seconds since 1970), lat and lon: as a sequence, a mapping or an object with these names.
        """
        scores = self.push(fix)
        if scores:
            return scores[-1]
        time = self._newest if self._settled is None else self._settled
        return self._unscored(time, "")

    def push(self, fix: Fix) -> list[Score]:
        """Take in a fix and give the scores of all fixes that are settled by it, in the order of time."""
        time, lat, lon = read_fix(fix)
        if self._settled is not None and time < self._settled:
            return [self._unscored(time, LATE)]
        if self.reorder == 0:
            return [self._settle(time, lat, lon)]
        self._order += 1
        heapq.heappush(self._pending, (time, self._order, lat, lon))
        self._newest = max(self._newest, time)
        return self._settle_until(self._newest - self.reorder)

    def settle(self) -> list[Score]:
        """Settle the fixes that are held back, and give their scores."""
        return self._settle_until(math.inf)

    def close(self, why: str = "closed") -> TripScore | None:
        """Settle what is held back and end the open trip; its final scores, or None if no trip is open.

        Ask :meth:`settle` first for the scores of the fixes held back, and for trips that they end.
        """
        self.settle()
        return self._end(why)

    @property
    def trip(self) -> TripScore | None:
        """The open trip so far."""
        return None if self._open is None else self._open.so_far

    @property
    def pending(self) -> int:
        """How many fixes are held back."""
        return len(self._pending)

    @property
    def newest(self) -> float | None:
        """The time of the newest fix taken in, held back or not."""
        times = [t for t in (self._settled, self._newest) if t is not None and math.isfinite(t)]
        return max(times, default=None)

    def silent_since(self, time: float) -> bool:
        """Whether no fix has come for so long before ``time`` that a trip would be over."""
        return self.newest is not None and time - self.newest > self._gap + self.reorder

    def _settle_until(self, time: float) -> list[Score]:
        scores = []
        while self._pending and (self._pending[0][0] <= time or len(self._pending) > MAX_PENDING):
            t, _, lat, lon = heapq.heappop(self._pending)
            scores.append(self._settle(t, lat, lon))
        return scores

    # ---------------------------------------------------------------- one settled fix

    @property
    def _latest(self) -> OpenTrip | None:
        """The open trip, or the one that the agent rests after."""
        return self._open if self._resting is None else self._resting.trip

    def _settle(self, time: float, lat: float, lon: float) -> Score:
        second, rate = math.floor(time), 1
        if self._settled is not None and second == self._second[0]:
            rate = self._second[1] + 1
        self._settled, self._second = time, (second, rate)
        return self._unscored(time, TOO_OFTEN) if rate > MAX_RATE else self._take((time, lat, lon))

    def _take(self, fix: Spot) -> Score:
        """The receiver's fault, the beginning of a trip, or a fix to score."""
        latest, (time, lat, lon) = self._latest, fix
        if latest is None:
            return self._begin(fix, None)
        at, filter_ = latest.place(lat, lon), latest.filter
        silent = math.inf if filter_.last is None else time - filter_.last[0]
        verdict = filter_.update(time, *at)
        if verdict.fault != GOOD:
            if self._open is not None:
                self._open.fixes, self._open.faults = self._open.fixes + 1, self._open.faults + 1
            return self._unscored(time, FAULT_NAMES[verdict.fault])
        if verdict.begins:
            return self._begin(fix, self._end("gap" if silent > filter_.rules.gap else "elsewhere"))
        if self._resting is not None:
            return self._rest(self._resting, fix, at)
        return self._go_on(latest, fix, at, None)

    def _begin(self, fix: Spot, ended: TripScore | None) -> Score:
        """A trip begins with this fix."""
        self._resting = None
        if self._near is None:
            self._near = fix[1:]
        self._open = trip = OpenTrip(self, *fix)
        at = trip.place(*fix[1:])
        trip.filter.update(fix[0], *at)
        return self._go_on(trip, fix, at, ended)

    def _go_on(self, trip: OpenTrip, fix: Spot, at: Place, ended: TripScore | None) -> Score:
        """A good fix of the open trip."""
        time = fix[0]
        n, uncertainty, aspect = trip.add(time, at)
        score = trip.so_far
        if self.stay is not None and trip.stays(time, at, self.stay, self.stay_radius):
            score = ended = trip.finished()._replace(ended="stay")
            self._open, self._resting = None, Rest(trip, fix)
        elif trip.full:
            score = ended = trip.finished()._replace(ended="long")
            self._open, self._resting = None, Rest(trip, fix)
        return Score(time, "", n, uncertainty, aspect, trip.alert, trip.stretch, score, ended, len(self._pending))

    def _rest(self, rest: Rest, fix: Spot, at: Place) -> Score:
        """A good fix while the agent rests: still there, or leaving."""
        x, y = rest.trip.anchor.centre
        if math.hypot(at[0] - x, at[1] - y) <= self.stay_radius:
            self._resting = rest._replace(last=fix)
            return self._unscored(fix[0], "")
        # The trip begins where the agent was last seen at rest, as a recording that starts there would.
        self._begin(rest.last, None)
        return self._take(fix)

    def _end(self, why: str) -> TripScore | None:
        if self._open is None:
            return None
        final = self._open.finished()._replace(ended=why)
        self._open = None
        return final

    def _unscored(self, time: float, fault: str) -> Score:
        """What is said of a fix that is not scored."""
        of = self._open
        alert, stretch = ("", None) if of is None else (of.alert, of.stretch)
        return Score(time, fault, math.nan, math.nan, "", alert, stretch, self.trip, None, len(self._pending))

    def describe(self) -> str:
        """What is unfamiliar about the last step, in words; empty where the model has no memory to compare with."""
        return "" if self._latest is None else self._latest.describe()

    # ---------------------------------------------------------------- saving

    def snapshot(self) -> Snapshot:
        """All that the session holds, as numbers; the model and the settings are not among them."""
        snapshot = Snapshot()
        snapshot.put(self._settled, self._order, *self._second, *(self._near or (None, None)))
        snapshot.put_many(value for pending in sorted(self._pending) for value in pending)
        rest, trip = self._resting, self._latest
        snapshot.put(trip is not None, rest is not None)
        if rest is not None:
            snapshot.put(*rest.last)
        if trip is not None:
            trip.save(snapshot)
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        """Take up what :meth:`snapshot` gave; the session must have the same agent, model and settings."""
        self._settled, self._order = snapshot.maybe(), snapshot.count()
        self._second = (int(snapshot.take()), snapshot.count())
        lat, lon = snapshot.maybe(), snapshot.maybe()
        self._near = None if lat is None or lon is None else (lat, lon)
        pending = snapshot.many().tolist()
        self._pending = [(t, int(o), y, x) for t, o, y, x in zip(*(pending[i::4] for i in range(4)), strict=True)]
        self._newest = max((p[0] for p in self._pending), default=-math.inf)
        moving, resting = bool(snapshot.take()), bool(snapshot.take())
        last = (snapshot.take(), snapshot.take(), snapshot.take()) if resting else None
        self._open = self._resting = None
        if moving:
            trip = OpenTrip.restored(self, snapshot)
            if last is None:
                self._open = trip
            else:
                self._resting = Rest(trip, last)
