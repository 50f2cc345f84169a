"""Finds faulty fixes, which are the receiver's errors (repeated times, teleports), and the gaps where a trip breaks.

A fault is the receiver's error, not the agent's behaviour, so it is never an anomaly. The rules look only backwards:
the same filter serves whole files and the live feed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

GOOD, REPEATED, TELEPORT = 0, 1, 2
FAULT_NAMES = ("", "repeated time", "teleport")


@dataclass(frozen=True)
class FaultRules:
    """The limits by which a fix counts as faulty and a gap ends a trip."""

    gap: float = 1200.0  # seconds without a fix after which a new trip begins
    top_speed: float = 100.0  # metres per second; a fix that can be reached only faster is a teleport
    confirmations: int = 3  # agreeing fixes after which a far place is accepted and a new trip begins there


class Verdict(NamedTuple):
    """The filter's result for one fix."""

    fault: int
    begins: bool


class FaultFilter:
    """Filters faulty fixes, one fix at a time.

    A fix is a teleport if ``top_speed`` reaches it neither from the last good fix nor from the place where the last
    velocity would have led (an aeroplane is fast but steady; a jumping receiver is not). If several fixes agree on a
    far place, the receiver woke up elsewhere: the filter accepts the place and starts a new trip.

    >>> f = FaultFilter(FaultRules())
    >>> [f.update(t, x, 0.0).fault for t, x in [(0, 0.0), (10, 80.0), (10, 99.0), (20, 90000.0), (30, 200.0)]]
    [0, 0, 1, 2, 0]
    """

    def __init__(self, rules: FaultRules) -> None:
        self.rules = rules
        self.last: tuple[float, float, float] | None = None
        self.velocity = (0.0, 0.0)
        self.far: list[tuple[float, float, float]] = []  # fixes that agree, not accepted yet

    def update(self, t: float, x: float, y: float) -> Verdict:
        """Filters the next fix (seconds, metres)."""
        if self.last is None:
            return self._begin(t, x, y)
        t0, x0, y0 = self.last
        dt = t - t0
        if dt <= 0:
            return Verdict(REPEATED, False)
        if dt > self.rules.gap:
            return self._begin(t, x, y)
        vx, vy = self.velocity
        reach = self.rules.top_speed * dt
        if min(_distance(x - x0, y - y0), _distance(x - x0 - vx * dt, y - y0 - vy * dt)) <= reach:
            self.last, self.velocity = (t, x, y), ((x - x0) / dt, (y - y0) / dt)
            self.far.clear()
            return Verdict(GOOD, False)
        if self.far:
            ts, xs, ys = self.far[-1]
            if t <= ts:
                # A message that is received twice confirms nothing.
                return Verdict(REPEATED, False)
            if _distance(x - xs, y - ys) > self.rules.top_speed * (t - ts):
                self.far.clear()
        self.far.append((t, x, y))
        if len(self.far) >= self.rules.confirmations:
            return self._begin(t, x, y)
        return Verdict(TELEPORT, False)

    def _begin(self, t: float, x: float, y: float) -> Verdict:
        self.last, self.velocity = (t, x, y), (0.0, 0.0)
        self.far.clear()
        return Verdict(GOOD, True)


def _distance(dx: float, dy: float) -> float:
    return math.sqrt(dx * dx + dy * dy)


def find_faults(
    time: Array, xy: Array, offsets: Array, rules: FaultRules
) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Returns the fault of every fix, and a mask of the fixes that begin a new trip, for many trajectories at once.

    The result equals that of :class:`FaultFilter`, but the filter runs only where it must: from a fix that cannot be
    reached from the one before to the next good fix.
    """
    n = len(time)
    fault = np.zeros(n, np.int8)
    begins = np.zeros(n, bool)
    starts = offsets[:-1]
    begins[starts] = True
    if n == 0:
        return fault, begins
    fault[1:][np.diff(time) <= 0] = REPEATED
    fault[starts] = GOOD

    kept = np.flatnonzero(fault == GOOD)
    rows = slice(None) if len(kept) == n else kept  # usually all of them: then nothing is copied
    dt = np.diff(time[rows])
    inside = ~begins[rows][1:]
    silent = dt > rules.gap
    begins[kept[1:][inside & silent]] = True
    dx, dy = np.diff(xy.T[:, rows])
    distance = np.sqrt(dx * dx + dy * dy)  # the same arithmetic as in the filter
    fast = inside & ~silent & (distance > rules.top_speed * dt)
    # A fix that is not fast is good, whatever came before; so the filter runs from a fast fix to the next good one.
    done = -1
    for row in kept[1:][fast].tolist():
        if row > done:
            stop = int(offsets[np.searchsorted(offsets, row, side="right")])
            done = _filter(time, xy, row, stop, rules, fault, begins)
    return fault, begins


def _filter(
    time: Array,
    xy: Array,
    row: int,
    stop: int,
    rules: FaultRules,
    fault: NDArray[np.int8],
    begins: NDArray[np.bool_],
) -> int:
    """Filters the fixes from a fast one to the next good one; returns the last filtered row."""
    one_by_one = FaultFilter(rules)
    last = _good_before(fault, row)
    one_by_one.last = (float(time[last]), float(xy[last, 0]), float(xy[last, 1]))
    if not begins[last]:
        before = _good_before(fault, last)
        x0, y0 = xy[before].tolist()
        dt = one_by_one.last[0] - float(time[before])
        one_by_one.velocity = ((one_by_one.last[1] - x0) / dt, (one_by_one.last[2] - y0) / dt)
    for i in range(row, stop):
        assumed = fault[i]
        fault[i], begins[i] = one_by_one.update(float(time[i]), float(xy[i, 0]), float(xy[i, 1]))
        if fault[i] == GOOD and assumed == GOOD:
            return i
    return stop - 1


def _good_before(fault: NDArray[np.int8], row: int) -> int:
    row -= 1
    while fault[row] != GOOD:
        row -= 1
    return row
