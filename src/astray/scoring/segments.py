"""Segments: where in a trip an anomaly starts and ends; for a trip at once, and for one that goes on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import DataError

Array = NDArray[Any]
Floats = NDArray[np.float64]


class Segment(NamedTuple):
    """A segment of a trip that is not normal: rows ``start`` to ``stop`` (exclusive), and its mean normality."""

    trip: int
    start: int
    stop: int
    normality: float


def leaving(enter: ArrayLike) -> Floats:
    """Where a segment closes that opens at ``enter``: half-way back to normal, and never below where it opens.

    >>> leaving([-2.0, 1.0]).tolist()
    [-1.0, 1.0]
    """
    opens = np.asarray(enter, np.float64)
    return np.asarray(np.maximum(opens, opens / 2))


def segments(
    n: Array,
    trip: Array,
    time: Array,
    enter: float | Array = -2.0,
    leave: float | Array = -1.0,
    min_seconds: float = 60.0,
) -> list[Segment]:
    """Where anomalies start and end: a segment opens at n <= enter and closes at n > leave (hysteresis).

    Segments shorter than ``min_seconds`` are noise and left out, unless they are the whole trip. The levels are
    numbers, or one a row.

    >>> n = np.array([0.0, -3, -1.5, -3, 0, 0])
    >>> segments(n, np.zeros(6, int), np.arange(6) * 60.0)
    [Segment(trip=0, start=1, stop=4, normality=-2.5)]
    """
    if np.any(np.less(leave, enter)):
        raise DataError(
            f"a segment closes ({leave}) below where it opens ({enter})", remedy="give leave at least as high as enter"
        )
    low = np.flatnonzero(n <= leave)
    if not len(low):
        return []
    fresh = np.ones(len(n) + 1, bool)
    np.not_equal(trip[1:], trip[:-1], out=fresh[1:-1])
    # Of each run of rows that are not above leave, from the first that is not above enter on; few rows are low.
    runs = np.flatnonzero(fresh[low] | (np.diff(low, prepend=-2) > 1))
    stops = low[np.append(runs[1:], len(low)) - 1] + 1
    starts = np.minimum.reduceat(np.where((n <= enter)[low], low, len(n)), runs)
    opened = starts < len(n)
    starts, stops = starts[opened], stops[opened]
    lasts = (fresh[starts] & fresh[stops]) | (time[stops - 1] - time[starts] >= min_seconds)
    starts, stops = starts[lasts], stops[lasts]
    if not len(starts):
        return []
    # Every other of the sums between these is of what lies between two segments.
    sums = np.add.reduceat(np.append(n, 0.0), np.column_stack([starts, stops]).ravel())[::2]
    means = sums / (stops - starts)
    return [Segment(*s) for s in zip(*(a.tolist() for a in (trip[starts], starts, stops, means)), strict=True)]


class OpenSegment:
    """The segment that still lasts of a trip that goes on: the last one that :func:`segments` finds of its rows so far.

    Its mean is that of a running sum: equal to rounding.

    >>> still = OpenSegment(enter=-2.0, leave=-1.0, min_seconds=60.0)
    >>> for row, n in enumerate([0.0, -3, -1.5, -3]):
    ...     still.add(n, 60.0 * row)
    >>> still.lasting
    (60.0, 180.0, -2.5)
    """

    __slots__ = ("_end", "_enter", "_leave", "_min_seconds", "_n", "_start", "_sum", "_whole")

    def __init__(self, enter: float, leave: float, min_seconds: float) -> None:
        self._enter, self._leave, self._min_seconds = enter, leave, min_seconds
        self._n, self._sum, self._start, self._end = 0, 0.0, 0.0, 0.0
        self._whole = True  # whether it is the whole trip

    def add(self, n: float, time: float) -> None:
        """Take in the next row of the trip."""
        if n > self._leave:
            self._n, self._whole = 0, False
        elif self._n or n <= self._enter:
            if not self._n:
                self._sum, self._start = 0.0, time
            self._n, self._sum, self._end = self._n + 1, self._sum + n, time
        else:
            self._whole = False

    @property
    def lasting(self) -> tuple[float, float, float] | None:
        """Its start and end in time and its mean normality; None where no segment lasts."""
        if not self._n or not (self._whole or self._end - self._start >= self._min_seconds):
            return None
        return self._start, self._end, self._sum / self._n
