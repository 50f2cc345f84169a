"""Cuts fixes into trips: at a gap, at a stay, or where the receiver wakes up elsewhere.

:func:`cut` cuts files whose fixes name no trips, a :class:`Cutter` for each agent cuts the live feed. Both follow the
same rules: the same fixes give the same trips under the same names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.faults import GOOD, FaultFilter, FaultRules
from astray.core.grouping import FIX_COLUMNS, ROWS, Grouped
from astray.core.projection import Place, Projection
from astray.core.snapshot import Snapshot
from astray.core.times import moment
from astray.core.trajectories import Trajectories

Array = NDArray[Any]
Fix = tuple[float, float, float]
"""Time, latitude and longitude."""

_AT_A_TIME = 1 << 16  # fixes converted to Python numbers at a time
FEWEST_ROWS = 16
"""For fewer fixes than this a :class:`Cutter` is faster than arrays."""
TOLERANCE = 1e-6
"""Arrays may round differently from single numbers, so a value this close to a limit is left to a :class:`Cutter`."""


@dataclass(frozen=True)
class TripRules:
    """The limits by which a trip ends."""

    stay: float | None = 1200.0  # seconds within a circle that end a trip; None: stays do not end trips
    stay_radius: float = 150.0  # metres, of that circle
    longest: float = 3 * 86_400.0  # seconds after which every trip ends
    faults: FaultRules = field(default_factory=FaultRules)  # includes the gap that ends a trip

    def __post_init__(self) -> None:
        if not ((self.stay is None or self.stay > 0) and self.stay_radius > 0 and self.longest > 0):
            raise DataError(
                f"stay is {self.stay}, stay_radius {self.stay_radius}, longest {self.longest}",
                remedy="give seconds and metres above 0",
            )


class Cut(NamedTuple):
    """The effect of one fix on its agent's trips."""

    fault: int = GOOD
    ended: str = ""  # why the trip before this fix ended: gap or elsewhere
    start: Fix | None = None  # the first fix of a new trip: this one, or the last one at rest
    last: str = ""  # why this fix is the last of its trip: stay or long
    resting: bool = False  # True if the agent rests, so that the fix belongs to no trip
    breaks: bool = False  # True if a gap or a jump before this fix breaks the path of the current trip


class Anchor:
    """A possible stay: its first time and place, and the mean of its fixes."""

    __slots__ = ("place", "rows", "since", "sum")

    def __init__(self, since: float, place: Place) -> None:
        self.since, self.place = since, place
        self.sum, self.rows = place, 1

    @property
    def centre(self) -> Place:
        """Returns the mean of the fixes."""
        return self.sum[0] / self.rows, self.sum[1] / self.rows

    def add(self, at: Place) -> None:
        """Adds a fix."""
        self.sum, self.rows = (self.sum[0] + at[0], self.sum[1] + at[1]), self.rows + 1


class Cutter:
    """Cuts the fixes of one agent, one fix at a time; times must not run backwards.

    It measures metres around the first fix of each trip, so that a trip depends only on its own fixes.

    >>> cutter = Cutter(TripRules())
    >>> cutter.update(0.0, 45.0, 7.0).start
    (0.0, 45.0, 7.0)
    >>> cutter.update(1200.0, 45.001, 7.0).last                  # 111 m away
    'stay'
    >>> cutter.update(1300.0, 45.001, 7.0).resting
    True
    >>> cutter.update(1400.0, 45.01, 7.0).start                   # the agent leaves: the trip begins where it rested
    (1300.0, 45.001, 7.0)
    """

    __slots__ = ("anchor", "filter", "projection", "rest", "rules", "start")

    def __init__(self, rules: TripRules) -> None:
        self.rules = rules
        self.start: Fix | None = None  # of the open trip, or of the trip before the rest
        self.rest: Fix | None = None  # the last fix at rest
        self.projection: Projection
        self.filter: FaultFilter
        self.anchor: Anchor

    def begin(self, fix: Fix) -> None:
        """Begins a trip with this fix."""
        self.start, self.rest = fix, None
        self.projection = Projection(fix[1], fix[2])
        self.filter = FaultFilter(self.rules.faults)
        at = self.projection.place(fix[1], fix[2])
        self.filter.update(fix[0], *at)
        self.anchor = Anchor(fix[0], at)

    def update(self, time: float, lat: float, lon: float, *, named: bool = False) -> Cut:
        """Processes the next fix; if trips are ``named``, only a new name ends a trip."""
        fix = (time, lat, lon)
        if self.start is None:
            self.begin(fix)
            return Cut(start=fix)
        at = self.projection.place(lat, lon)
        before = self.filter.last
        verdict = self.filter.update(time, *at)
        if verdict.fault != GOOD:
            return Cut(verdict.fault, resting=self.rest is not None)
        if named:
            return Cut(breaks=verdict.begins)
        if verdict.begins:
            silent = before is None or time - before[0] > self.rules.faults.gap
            self.begin(fix)
            return Cut(ended="gap" if silent else "elsewhere", start=fix)
        if self.rest is not None:
            return self._at_rest(self.rest, fix, at)
        return Cut(last=self._reason_to_end(fix, at))

    def save(self, snapshot: Snapshot) -> None:
        """Saves the state to a snapshot."""
        snapshot.put_many(self.start or ())
        snapshot.put_many(self.rest or ())
        if self.start is not None:
            faults, anchor = self.filter, self.anchor
            snapshot.put_many(faults.last or ())
            snapshot.put(*faults.velocity)
            snapshot.put_many(value for fix in faults.far for value in fix)
            snapshot.put(anchor.since, *anchor.place, *anchor.sum, anchor.rows)

    def restore(self, snapshot: Snapshot) -> None:
        """Restores the state from a snapshot."""
        start, rest = _take_fixes(snapshot), _take_fixes(snapshot)
        if not start:
            return
        self.begin(start[0])
        self.rest = rest[0] if rest else None
        self.filter.last = next(iter(_take_fixes(snapshot)), None)
        self.filter.velocity = (snapshot.take(), snapshot.take())
        self.filter.far = _take_fixes(snapshot)
        self.anchor = Anchor(snapshot.take(), (snapshot.take(), snapshot.take()))
        self.anchor.sum, self.anchor.rows = (snapshot.take(), snapshot.take()), snapshot.count()

    def _at_rest(self, rest: Fix, fix: Fix, at: Place) -> Cut:
        """Processes a good fix while the agent rests: it stays at rest, or it leaves."""
        x, y = self.anchor.centre
        if math.hypot(at[0] - x, at[1] - y) <= self.rules.stay_radius:
            self.rest = fix
            return Cut(resting=True)
        # The trip begins at the last fix at rest, as a recording that starts there would.
        self.begin(rest)
        cut = self.update(*fix)
        return cut if cut.start is not None else cut._replace(start=rest)

    def _reason_to_end(self, fix: Fix, at: Place) -> str:
        """Returns why the trip ends with this fix; empty text if it does not."""
        rules, anchor, time = self.rules, self.anchor, fix[0]
        x, y = anchor.place
        if math.hypot(at[0] - x, at[1] - y) > rules.stay_radius:
            self.anchor = Anchor(time, at)
        else:
            anchor.add(at)
            if rules.stay is not None and time - anchor.since >= rules.stay:
                self.rest = fix
                return "stay"
        if self.start is not None and time - self.start[0] >= rules.longest:
            self.rest = fix
            return "long"
        return ""


def _take_fixes(snapshot: Snapshot) -> list[Fix]:
    values = snapshot.many().tolist()
    return list(zip(*(values[i::3] for i in range(3)), strict=True))


def cut(fixes: Trajectories, rules: TripRules | None = None) -> Trajectories:
    """Cuts trajectories of raw fixes into trips, each named after the time of its first fix, as in the live feed.

    Fixes at rest between two trips belong to neither; the last of them begins the next trip. Faulty fixes (repeated
    times, teleports) stay in their trip; scoring finds them again.

    >>> time = [0, 60, 120, 9000, 9060]
    >>> life = Trajectories.from_fixes(time=time, lat=[45, 45.01, 45.02, 45.1, 45.11], lon=[7] * 5, agent="ana")
    >>> trips = cut(life)
    >>> trips.trajectory_ids.tolist(), trips.lengths.tolist()
    (['1970-01-01T00:00:00Z', '1970-01-01T02:30:00Z'], [3, 2])
    """
    return Trajectories.unchecked(*cut_raw(fixes._grouped(), np.ones(len(fixes), np.bool_), rules))


def cut_raw(fixes: Grouped, raw: NDArray[np.bool_], rules: TripRules | None = None) -> Grouped:
    """Cuts the trajectories where ``raw`` is True; the others stay as they are.

    The columns are moved out of ``fixes`` one after the other, so that at most one is in memory twice.
    """
    rules = rules or TripRules()
    kept = _Kept(fixes.columns)
    for i in range(len(raw)):
        kept.add(i, int(fixes.offsets[i]), int(fixes.offsets[i + 1]), rules if raw[i] else None)
    columns = {name: kept.rows_of(fixes.columns.pop(name)) for name in list(fixes.columns)}
    offsets, of = np.array([*kept.starts, kept.n_rows], np.int64), np.array(kept.of, np.int64)
    begun = columns["time"][offsets[:-1]].tolist()
    names = fixes.trajectory_ids[of].tolist()
    named = [moment(time) if raw[i] else name for i, time, name in zip(kept.of, begun, names, strict=True)]
    context = {name: values[of] for name, values in fixes.context.items()}
    return Grouped(columns, offsets, fixes.agent_ids[of], np.array(named, np.str_), context)


class _Kept:
    """Collects the rows that each trip keeps; a row may belong to no trip, or end one trip and begin the next."""

    def __init__(self, columns: Mapping[str, Array]) -> None:
        self._columns = columns
        self._times = bytearray(len(columns["time"]))  # how many trips hold each row
        self.n_rows = 0
        self.starts: list[int] = []  # where each trip begins among the kept rows
        self.of: list[int] = []  # the trajectory of each trip

    def add(self, trajectory: int, first: int, end: int, rules: TripRules | None) -> None:
        """Adds the trips of a trajectory, given its rows; without rules it is one trip."""
        n_before = len(self.starts)
        if rules is None:
            self._keep_all(first, end)
        else:
            time = self._columns["time"][first:end]
            # A gap ends every trip and stay, so the parts between gaps are independent.
            starts = first + np.flatnonzero(np.diff(time) > rules.faults.gap) + 1
            for low, high in pairwise((first, *starts.tolist(), end)):
                if self._is_one_trip(low, high, rules):
                    self._keep_all(low, high)
                else:
                    self._cut(low, high, rules)
        self.of += [trajectory] * (len(self.starts) - n_before)

    def _keep_all(self, first: int, end: int) -> None:
        self.starts.append(self.n_rows)
        self._times[first:end] = b"\1" * (end - first)
        self.n_rows += end - first

    def _is_one_trip(self, first: int, end: int, rules: TripRules) -> bool:
        """Returns True if it is certain, without running a :class:`Cutter`, that these rows are one trip.

        It is certain if the trip is short enough, no fix can be a teleport, and no fix is near the place where the
        agent was ``stay`` seconds before: two fixes of a stay are at most twice its radius apart.
        """
        if not FEWEST_ROWS <= end - first <= ROWS:
            return False
        time, lat, lon = (np.asarray(self._columns[name][first:end], np.float64) for name in FIX_COLUMNS)
        if time[-1] - time[0] >= rules.longest:
            return False
        east, north = Projection(lat[0], lon[0]).to_metres(lat, lon).T
        later = np.diff(time, prepend=-np.inf) > 0
        if not later.all():  # fixes with repeated times are faulty and do not matter here
            time, east, north = time[later], east[later], north[later]
        reach = (1.0 - TOLERANCE) * rules.faults.top_speed * np.diff(time)
        if (np.hypot(np.diff(east), np.diff(north)) > reach).any():
            return False
        if rules.stay is None or time[-1] - time[0] < rules.stay:
            return True
        before = np.searchsorted(time, time - rules.stay + TOLERANCE * rules.stay, side="right") - 1
        rows = np.flatnonzero(before >= 0)
        before = before[rows]
        distance = np.hypot(east[rows] - east[before], north[rows] - north[before])
        return bool((distance > (2.0 + TOLERANCE) * rules.stay_radius).all())

    def _cut(self, first: int, end: int, rules: TripRules) -> None:
        cutter, times, n, rest = Cutter(rules), self._times, self.n_rows, first
        for row, fix in enumerate(self._fixes(first, end), first):
            found = cutter.update(*fix)
            if found.start is not None:
                self.starts.append(n)
                if found.start[0] != fix[0]:
                    times[rest] += 1
                    n += 1
            if found.resting:
                rest = rest if found.fault else row
                continue
            times[row] += 1
            n += 1
            rest = row if found.last else rest
        self.n_rows = n

    def _fixes(self, first: int, end: int) -> Iterator[Fix]:
        for low in range(first, end, _AT_A_TIME):
            here = slice(low, min(low + _AT_A_TIME, end))
            yield from zip(*(self._columns[name][here].tolist() for name in FIX_COLUMNS), strict=True)

    def rows_of(self, values: Array) -> Array:
        """Returns the values of the kept rows."""
        found = np.empty((self.n_rows, *values.shape[1:]), values.dtype)
        times = np.frombuffer(self._times, np.uint8)
        n = 0
        for low in range(0, len(values), ROWS):
            some = np.repeat(values[low : low + ROWS], times[low : low + ROWS], axis=0)
            found[n : n + len(some)] = some
            n += len(some)
        return found
