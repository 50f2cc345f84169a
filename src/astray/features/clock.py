"""Puts many paths on one clock, one after the other, so that one search can look back along all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def shifts(time: Array, offsets: Array) -> NDArray[np.float64]:
    """Returns the seconds to add to the times of each path, so that each begins a second after the one before it ends.

    >>> shifts(np.array([5.0, 7.0, 100.0, 101.0]), np.array([0, 2, 4])).tolist()
    [-5.0, -97.0]
    """
    first, last = time[offsets[:-1]], time[offsets[1:] - 1]
    return np.asarray(np.r_[0.0, np.cumsum(last - first + 1.0)[:-1]] - first)


def first_after(clock: Array, seconds: float, first: Array) -> NDArray[np.int64]:
    """Returns, for each row, the first row of its path that is less than ``seconds`` before it.

    ``first`` is the first row of each row's path.

    >>> first_after(np.array([0.0, 10, 20, 30, 31, 41]), 20.0, np.array([0, 0, 0, 0, 4, 4])).tolist()
    [0, 0, 1, 2, 4, 4]
    """
    rows, before = np.arange(len(clock)), clock - seconds
    # Receivers mostly report at regular times, so guess the same number of rows for all: the median. Where the guess is
    # wrong, search, which takes five times as long.
    some = rows[:: len(rows) // 100 + 1]
    back = int(np.median(some - np.searchsorted(clock, before[some], side="right"))) if len(some) else 0
    found = np.maximum(rows - max(back, 0), first)
    wrong = np.flatnonzero((clock.take(found) <= before) | (clock.take(found - 1) > before) & (found > first))
    if len(wrong):
        found[wrong] = np.maximum(np.searchsorted(clock, before[wrong], side="right"), first[wrong])
    return found
