"""Finds the segments of a trip in which it is anomalous."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import DataError

Array = NDArray[Any]
Floats = NDArray[np.float64]


class Segment(NamedTuple):
    """An anomalous segment of a trip: rows ``start`` to ``stop`` (exclusive), and its mean normality."""

    trip: int
    start: int
    stop: int
    normality: float


def leaving(enter: ArrayLike) -> Floats:
    """Returns the level at which a segment opened at ``enter`` closes: half-way back to normal, but never lower.

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
    """Finds anomalous segments: each opens at n <= enter and closes at n > leave (hysteresis).

    Leaves out segments shorter than ``min_seconds``, which are noise, unless they are the whole trip. The levels are
    numbers, or arrays with one level per row.

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
    # In each run of rows at or below leave, a segment begins with the first row at or below enter. Few rows are low.
    runs = np.flatnonzero(fresh[low] | (np.diff(low, prepend=-2) > 1))
    stops = low[np.append(runs[1:], len(low)) - 1] + 1
    starts = np.minimum.reduceat(np.where((n <= enter)[low], low, len(n)), runs)
    opened = starts < len(n)
    starts, stops = starts[opened], stops[opened]
    lasts = (fresh[starts] & fresh[stops]) | (time[stops - 1] - time[starts] >= min_seconds)
    starts, stops = starts[lasts], stops[lasts]
    if not len(starts):
        return []
    # Every second sum is over the rows between two segments.
    sums = np.add.reduceat(np.append(n, 0.0), np.column_stack([starts, stops]).ravel())[::2]
    means = sums / (stops - starts)
    return [Segment(*s) for s in zip(*(a.tolist() for a in (trip[starts], starts, stops, means)), strict=True)]


def lasting_segment(n: Array, time: Array, enter: float, leave: float, min_seconds: float) -> Segment | None:
    """Returns the segment that includes the last row of an open trip; None if there is none.

    It is the last one that :func:`segments` finds in these rows; its mean may differ by rounding.

    >>> lasting_segment(np.array([0.0, -3, -1.5, -3]), np.arange(4) * 60.0, -2.0, -1.0, 60.0)
    Segment(trip=0, start=1, stop=4, normality=-2.5)
    """
    if not n[-1] <= leave:
        return None
    above = np.flatnonzero(n > leave)
    begin = int(above[-1]) + 1 if len(above) else 0
    low = np.flatnonzero(n[begin:] <= enter)
    if not len(low):
        return None
    start = begin + int(low[0])
    if start and time[-1] - time[start] < min_seconds:
        return None
    return Segment(0, start, len(n), float(np.add.reduce(n[start:]) / (len(n) - start)))
