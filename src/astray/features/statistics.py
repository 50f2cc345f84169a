"""Trip statistics: a whole trip in numbers, compared with its agent's past trips.

A step shows where an agent is; only the whole trip shows where it begins and stops. The statistics of a trip are:
the familiarity of its steps (mean, lowest and highest two minutes, first, last, share of new ones), the number of past
trips that began at, ended at or went between the same places, its length and speed, and the number of other agents that
go to its places. No statistic identifies a place, so one reward can serve every agent.

For a finished trip, all rows are summed at once. For an open trip, :class:`RunningStatistics` keeps the same sums and
:func:`count_rows` adds a row to them: summing all rows again would take five times as long (see ``bench/engine.py``).
:func:`statistics_from_sums` turns the sums into statistics in both cases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.features.familiarity import GRIDS, Frame, Habit, familiarity, familiarity_to_each
from astray.features.memory import Memory
from astray.features.moves import deviation, expect
from astray.features.popularity import Popularity
from astray.features.row_windows import windows
from astray.features.steps import Step
from astray.features.trip_rows import (
    BANDS,
    HOUR,
    LOOKED_UP,
    MOTION,
    START,
    STOP,
    TRIP_HABITS,
    WORDS,
    MotionSums,
    TripHabit,
    TripRows,
    band_words,
    hour_words,
    mixed,
    motion_of,
    place_words,
)

Array = NDArray[Any]
Keys = NDArray[np.uint64]
Floats = NDArray[np.float32]

WAY = "unexpected way"
"""The last statistic: how far the moves of a trip deviate from those expected of its agent, given where the trip ends.
The network of the reward does not see it (:data:`SEEN`)."""
SEEN = slice(-1)
"""The statistics that the network of the reward sees."""
OVER_STEPS = ("mean", "lowest", "highest", "first", "last", "new")
OVER_OTHERS = ("mean", "first", "last", "where new")
GROUPS = ("population", "clock", "destination", "end")
"""Groups of statistics that are missing together: if there are no other agents or no clock times, as long as the
destination of an open trip is unknown, or until the trip ends."""


class Statistic(NamedTuple):
    """A statistic of trips: its name, and the groups (of :data:`GROUPS`) that it belongs to."""

    name: str
    groups: frozenset[str] = frozenset()


@lru_cache(maxsize=16)
def statistics_of(habits: tuple[Habit, ...], popularity_cells: tuple[float, ...]) -> tuple[Statistic, ...]:
    """Returns the names and groups of the columns of :func:`statistics`."""

    def over_steps(habit: Habit, what: str) -> Statistic:
        groups = {"clock": habit.hours is not None or habit.weekend, "end": what == "last"}
        return Statistic(f"{habit.name}: {what}", _names(groups))

    def over_trips(habit: TripHabit) -> Statistic:
        groups = {"clock": "hour" in habit.now, "destination": habit.tells_where, "end": habit.tells_how_far}
        return Statistic(habit.name, _names(groups))

    def over_others(size: float, what: str) -> Statistic:
        return Statistic(f"others {size:g} m: {what}", _names({"population": True, "end": what == "last"}))

    return (
        *(over_steps(habit, what) for habit in habits for what in OVER_STEPS),
        *(over_trips(habit) for habit in TRIP_HABITS),
        *(Statistic(what) for what in MOTION),
        *(over_others(size, what) for size in popularity_cells for what in OVER_OTHERS),
        Statistic("past trips"),
        Statistic(WAY, frozenset({"end"})),
    )


def _names(groups: Mapping[str, bool]) -> frozenset[str]:
    return frozenset(name for name, belongs in groups.items() if belongs)


def members(known: Sequence[Statistic], group: str) -> NDArray[np.bool_]:
    """Returns a mask of the statistics that belong to a group."""
    return np.array([group in s.groups for s in known], np.bool_)


def statistics(
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
    way: bool = True,
) -> Floats:
    """Returns the statistics of trips, compared with a memory: (trips, statistics); NaN for a trip without rows.

    ``familiar`` is the familiarity of the rows by the ``habits`` of their keys. The least and the most familiar part of
    a trip have ``window`` rows. For each trip, ``without`` is the number of a remembered trip to ignore, and ``maker``
    the number (in the popularity) of the agent that made the trip, to ignore there; -1 for none. ``before`` is how many
    of the memory's first trips to compare the trip with; by default all. If ``way`` is False, the last statistic is
    NaN.
    """
    starts, lengths, present = rows.starts, rows.lengths, rows.present
    known = statistics_of(tuple(habits), popularity.cells)
    found = np.full((rows.n_trips, len(known)), np.nan, np.float32)
    if not len(starts):
        return found
    last = starts + lengths - 1

    def total(values: Array) -> Array:
        return np.asarray(np.add.reduceat(values, starts, axis=0, dtype=np.float64))

    is_new = familiar == 0
    low, high = windows(familiar, starts, lengths, window)
    over_steps = (total(familiar), total(is_new), low, high, familiar[starts], familiar[last])
    there = popularity.encode(rows.keys, habits, None if maker is None else maker[rows.steps.trip])
    new_places = is_new[:, [habits.index(habit) for habit in popularity.habits]]
    sums = np.hstack([*over_steps, total(there), total(there * new_places), there[starts], there[last]])
    whole, first = (None if of_trip is None else of_trip[present] for of_trip in (without, before))
    alike = familiarity(rows.looked_up, memory, whole, first)
    history = memory.history if first is None else memory.earlier_history(first)
    past = np.log1p(history - (np.zeros(len(starts)) if whole is None else whole >= 0))
    layout = layout_of(len(habits), len(popularity.cells))
    found[present] = statistics_from_sums(layout, lengths, sums, alike, rows.motion, past)
    if way and rows.finished.any():
        held = [None if of_trip is None else of_trip[rows.moves.trip] for of_trip in (without, maker, before)]
        p = expect(rows.moves, memory, popularity, *held)
        found[present, -1] = deviation(rows.moves, p, rows.n_trips, rows.goals)[present]
    found[np.ix_(~rows.finished, members(known, "end"))] = np.nan
    found[np.ix_(~rows.told, members(known, "destination"))] = np.nan
    if not len(popularity.agents):
        found[:, members(known, "population")] = np.nan
    return found


_SUM, _NEW, _LOW, _HIGH, _FIRST, _LAST = range(6)
_OVER_STEPS = [OVER_STEPS.index(what) for what in ("mean", "new", "lowest", "highest", "first", "last")]
_OVER_OTHERS = [OVER_OTHERS.index(what) for what in ("mean", "where new", "first", "last")]


class Layout(NamedTuple):
    """The position of each sum among the statistics of a trip."""

    columns: NDArray[np.int64]  # the statistic that each sum becomes
    is_mean: NDArray[np.bool_]  # True if the statistic is the sum divided by the number of rows
    alike: slice
    motion: slice
    width: int  # the number of statistics


@lru_cache(maxsize=16)
def layout_of(habits: int, sizes: int) -> Layout:
    """Returns the position of each sum, for a number of habits and of sizes of cells."""
    steps = [len(OVER_STEPS) * h + what for what in _OVER_STEPS for h in range(habits)]
    trips, motion, others = np.cumsum([len(OVER_STEPS) * habits, len(TRIP_HABITS), len(MOTION)]).tolist()
    there = [others + len(OVER_OTHERS) * size + what for what in _OVER_OTHERS for size in range(sizes)]
    is_mean = np.repeat([True, False, True, False], [2 * habits, 4 * habits, 2 * sizes, 2 * sizes])
    width = others + len(OVER_OTHERS) * sizes + 2
    return Layout(np.array(steps + there), is_mean, slice(trips, motion), slice(motion, others), width)


def statistics_from_sums(layout: Layout, rows: Array, sums: Array, alike: Array, motion: Array, past: Array) -> Floats:
    """Returns the statistics of trips, (trips, statistics), from sums over their ``rows``.

    ``sums`` (trips, 6 habits + 4 sizes) are, for each habit, the sum of the familiarity, the number of new rows, the
    lowest and highest window, and the first and last row; then, for each size of cell, the sum of the popularity, its
    sum over new places, and the first and last row. ``alike`` is the familiarity of whole trips by :data:`TRIP_HABITS`,
    ``motion`` the quantities that :data:`MOTION` names, ``past`` the logarithm of the number of past trips.
    """
    found = np.empty((len(rows), layout.width), np.float32)
    found[:, layout.columns] = sums / np.where(layout.is_mean, rows[:, None], 1)
    found[:, layout.alike] = alike
    found[:, layout.motion] = motion
    found[:, -2] = past
    found[:, -1] = np.nan  # the way is judged when the trip is over
    return found


# -------------------------------------------------------------------- open trips


_OPEN = tuple(h for h, habit in enumerate(TRIP_HABITS) if "stop" not in habit.now)
_BANDED = tuple(h for h in _OPEN if set(LOOKED_UP[h].tolist()) & set(BANDS))
_TOLD = tuple(h for h, habit in enumerate(TRIP_HABITS) if habit.tells_where)
"""The habits known for an open trip; those of them that change from row to row; those that need the destination."""


class RunningStatistics:
    """The statistics of an open trip so far: sums over its rows, and counts of past trips like it.

    :func:`count_rows` adds a row. :func:`statistics_so_far` returns the result of :func:`statistics` for the rows so
    far, equal to the last bit; only motion and, with a half-life, counts may differ by rounding. The arguments are
    those of :func:`statistics`; ``destination`` is the place in metres where the trip is expected to stop, if known.
    """

    __slots__ = (
        *("all_sums", "alike", "destination", "frame", "looked_up", "maker", "memory", "motion", "others", "past"),
        *("place_keys", "places", "popularity", "rows", "sums", "there", "width", "window", "words"),
    )

    def __init__(
        self,
        habits: Sequence[Habit],
        memory: Memory,
        popularity: Popularity,
        frame: Frame,
        *,
        window: int,
        maker: int = -1,
        destination: tuple[float, float] | None = None,
    ) -> None:
        self.memory, self.popularity, self.frame, self.maker = memory, popularity, frame, np.array([maker])
        self.destination = destination
        self.places = [habits.index(habit) for habit in popularity.habits] if len(popularity.agents) else []
        self.rows, self.width, self.past = 0, window, float(np.log1p(memory.history))
        n, sizes = len(habits), len(popularity.cells)
        self.all_sums = np.zeros(6 * n + 4 * sizes)
        self.sums, self.others = self.all_sums[: 6 * n].reshape(6, n), self.all_sums[6 * n :].reshape(4, sizes)
        self.sums[_LAST] = self.others[3] = np.nan  # unknown until the trip ends
        if not self.places:
            self.others[:] = np.nan
        self.window = deque([np.zeros(len(habits))], window + 1)  # the sums after each of the last rows
        self.place_keys = b""  # of the last row
        self.there: Array = np.zeros(len(self.places), np.float32)  # the popularity of the last row
        self.words = np.zeros((len(WORDS), GRIDS), np.uint64)
        self.alike = np.full(len(TRIP_HABITS), np.nan, np.float32)
        self.looked_up = False  # True once ``alike`` holds the habits of an open trip
        self.motion = MotionSums()

    def head_for(self, destination: tuple[float, float] | None) -> None:
        """Sets the place in metres where the trip is expected to stop; None if it is no longer known."""
        self.destination = destination
        if self.rows:
            self._count_ends()

    def _begin(self, step: Step, familiar: Floats) -> None:
        """Sets the values that depend only on the first row."""
        self.sums[_FIRST] = familiar
        if self.places:
            self.others[2] = self.there
        self.words[START] = self._place_words(step.location)
        self.words[HOUR] = hour_words(np.array([step.time + self.frame.utc_offset]))
        self._count_ends()

    def _see_others(self, keys: Keys, is_new: Array) -> None:
        """Adds the number of other agents that go to the place of a row."""
        place_keys = keys[self.places]
        known = place_keys.tobytes()
        if known != self.place_keys:
            self.place_keys = known
            (self.there,) = self.popularity.encode_places(place_keys[None], self.maker)
        self.others[0] += self.there
        self.others[1] += self.there * is_new[self.places]

    def _count_ends(self) -> None:
        """Looks up the past trips that ended at the destination; NaN if it is unknown."""
        if self.destination is None:
            self.alike[list(_TOLD)] = np.nan
            return
        self.words[STOP] = self._place_words(self.destination)
        _look_up([self], _TOLD)

    def _place_words(self, place: tuple[float, float]) -> Keys:
        words: Keys = place_words(self.frame.projection.to_grid(np.array([place])))[0]
        return words


def count_rows(running: Sequence[RunningStatistics], steps: Sequence[Step], keys: Keys, familiar: Floats) -> None:
    """Adds a row to each of some trips: its step, its keys (trips, habits, grids) and their familiarity.

    All trips must have the same configuration.
    """
    for one in running:
        one.rows += 1
    rows, width = np.array([[one.rows] for one in running]), running[0].width
    sums, is_new = _stacked([one.sums for one in running]), familiar == 0
    sums[:, _SUM] += familiar
    sums[:, _NEW] += is_new
    for one, own in zip(running, sums[:, _SUM], strict=True):
        one.window.append(own.copy())
    # A trip shorter than a window has one window: all of it.
    mean = (sums[:, _SUM] - _stacked([one.window[0] for one in running])) / np.minimum(rows, width)
    is_short = rows <= width
    sums[:, _LOW] = np.where(is_short, mean, np.minimum(sums[:, _LOW], mean))
    sums[:, _HIGH] = np.where(is_short, mean, np.maximum(sums[:, _HIGH], mean))
    for i, (one, step) in enumerate(zip(running, steps, strict=True)):
        one.sums[:] = sums[i]
        one.motion.add(step)
        if one.places:
            one._see_others(keys[i], is_new[i])
        if one.rows == 1:
            one._begin(step, familiar[i])


def statistics_so_far(running: Sequence[RunningStatistics]) -> Floats:
    """Returns the statistics of the rows so far of some trips: (trips, statistics)."""
    motion = motion_of(np.array([one.motion.sums for one in running]).T)
    _count_trips(running, motion)
    return statistics_from_sums(
        layout_of(running[0].sums.shape[1], running[0].others.shape[1]),
        np.array([one.rows for one in running]),
        _stacked([one.all_sums for one in running]),
        _stacked([one.alike for one in running]),
        motion,
        np.array([one.past for one in running]),
    )


def _stacked(arrays: Sequence[Array]) -> Array:
    """Stacks arrays; does not copy a single array."""
    return arrays[0][None] if len(arrays) == 1 else np.array(arrays)


def _count_trips(running: Sequence[RunningStatistics], motion: Array) -> None:
    """Looks up the past trips with the same start, or about as long or fast, if any of this has changed."""
    bands = band_words(motion)
    changed = (bands != _stacked([one.words[BANDS] for one in running])).any(axis=(1, 2)).tolist()
    begun, further = list[RunningStatistics](), list[RunningStatistics]()
    for one, has_changed, own in zip(running, changed, bands, strict=True):
        if not one.looked_up or has_changed:
            (further if one.looked_up else begun).append(one)
            one.words[BANDS], one.looked_up = own, True
    _look_up(begun, _OPEN)
    _look_up(further, _BANDED)  # the other habits depend on the start, which does not change


def _look_up(running: Sequence[RunningStatistics], habits: tuple[int, ...]) -> None:
    """Looks up trips by some habits, whose words must all be known."""
    if not running:
        return
    keys = mixed(_stacked([one.words for one in running]), "now", habits)
    for one, counted in zip(running, familiarity_to_each(keys, [one.memory for one in running]), strict=True):
        one.alike[list(habits)] = counted
