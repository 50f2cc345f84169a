"""Statistics of trips at several looks: what a live feed computes as a trip goes on, for many trips at once.

A look is a row of a trip at which its score so far is read. The statistics at a look are those of
:func:`~astray.features.statistics.statistics` for the trip's rows up to this one, as an unfinished trip. They come from
cumulative sums, so that many looks at a trip cost little more than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.features.familiarity import Habit, familiarity
from astray.features.memory import Memory
from astray.features.popularity import Popularity
from astray.features.statistics import layout_of, members, statistics_from_sums, statistics_of
from astray.features.trip_rows import TripRows

Array = NDArray[Any]
Floats = NDArray[np.float32]


def looks(time: Array, starts: Array, most: int, settled: float) -> NDArray[np.int64]:
    """Returns the rows at which to look at each trip: at most ``most``, evenly spaced, the last one among them.

    ``time`` is the time of each row, ``starts`` the first row of each trip. No look is earlier than ``settled`` seconds
    after the trip's begin, except at a trip that ends before.

    >>> every_15_s = np.r_[0.0:180.0:15.0, 0.0:30.0:15.0]  # a trip of 12 rows, and one of two
    >>> looks(every_15_s, np.array([0, 12]), most=3, settled=60.0).tolist()
    [7, 9, 11, 13]
    """
    if not len(starts):
        return np.zeros(0, np.int64)
    lengths = np.diff(starts, append=len(time))
    last = starts + lengths - 1
    early = time - np.repeat(time[starts], lengths) < settled
    first = np.minimum(starts + np.add.reduceat(early, starts, dtype=np.int64), last)
    share = np.arange(1, most + 1) / most
    return np.unique(last[:, None] - np.floor((last - first)[:, None] * (1.0 - share)).astype(np.int64))


def statistics_at(
    ends: Array,
    rows: TripRows,
    familiar: Floats,
    habits: Sequence[Habit],
    memory: Memory,
    popularity: Popularity,
    *,
    window: int,
    without: Array | None = None,
    maker: Array | None = None,
    before: Array | None = None,
) -> Floats:
    """Returns the statistics of trips up to each of the rows ``ends``, which rise: (looks, statistics).

    The other arguments are those of :func:`~astray.features.statistics.statistics`.
    """
    starts, lengths = rows.starts, rows.lengths
    known, layout = statistics_of(tuple(habits), popularity.cells), layout_of(len(habits), len(popularity.cells))
    of = np.searchsorted(starts, ends, side="right") - 1  # the trip of each look, among those present
    begun = starts[of]
    n = ends - begun + 1

    def total(values: Array) -> Array:
        sums = np.zeros((len(values) + 1, values.shape[1]))
        np.cumsum(values, axis=0, out=sums[1:], dtype=np.float64)
        return np.asarray(sums[ends + 1] - sums[begun])

    is_new = familiar == 0
    low, high = _running_windows(familiar, starts, lengths, window)
    unknown = np.full((len(ends), len(habits)), np.nan)
    over_steps = (total(familiar), total(is_new), low[ends], high[ends], familiar[begun], unknown)
    there = popularity.encode(rows.keys, habits, None if maker is None else maker[rows.steps.trip])
    new_places = is_new[:, [habits.index(habit) for habit in popularity.habits]]
    over_others = (total(there), total(there * new_places), there[begun], np.full((len(ends), there.shape[1]), np.nan))
    trip = rows.present[of]
    left_out, first = (None if of_trip is None else of_trip[trip] for of_trip in (without, before))
    motion = rows.motion_at(ends, of)
    alike = familiarity(rows.looked_up_so_far(motion, of), memory, left_out, first)
    history = memory.history if first is None else memory.earlier_history(first)
    past = np.log1p(history - (np.zeros(len(ends)) if left_out is None else left_out >= 0))
    sums = np.hstack([*over_steps, *over_others])
    found = statistics_from_sums(layout, n, sums, alike, motion, past)
    for group in ("end", "destination"):
        found[:, members(known, group)] = np.nan
    if not len(popularity.agents):
        found[:, members(known, "population")] = np.nan
    return found


def _running_windows(values: Array, starts: Array, lengths: Array, size: int) -> tuple[Array, Array]:
    """Returns the lowest and highest mean of ``size`` consecutive rows up to each row; of fewer rows, their mean."""
    sums = np.zeros((len(values) + 1, values.shape[1]))
    np.cumsum(values, axis=0, out=sums[1:], dtype=np.float64)
    row = np.arange(len(values))
    wide = np.minimum(size, row - np.repeat(starts, lengths) + 1)
    low = (sums[1:] - sums[row + 1 - wide]) / wide[:, None]
    high = low.copy()
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        full = slice(start + size - 1, start + length)  # the rows at which a whole window ends
        if length > size:
            np.minimum.accumulate(low[full], axis=0, out=low[full])
            np.maximum.accumulate(high[full], axis=0, out=high[full])
    return low, high
