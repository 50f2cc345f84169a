"""Trip statistics: what a whole trip is like, relative to what its agent has done before.

A step shows where an agent is, not where it chose to begin and to stop: that is seen in the trip. Its statistics are
those of the familiarity of its steps (mean, lowest and highest two minutes, first, last, share of what is new), in how
many past trips the agent began, ended or travelled between here and there, how long and fast the trip was, and how
many other agents go where it went. None of them names a place, so one reward can serve every agent.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.features.familiarity import (
    DAY,
    GRIDS,
    SHIFTS,
    Frame,
    Habit,
    familiarity,
    few_familiarity,
    word_of,
)
from astray.features.grid import cell
from astray.features.memory import Memory
from astray.features.popularity import Popularity
from astray.features.steps import Step
from astray.features.trip_rows import (
    DURATION_BANDS,
    LENGTH_BANDS,
    LOOKED_UP,
    MOTION,
    SLOTS,
    SPEED_BANDS,
    TRIP_HABITS,
    WORDS,
    RunningMotion,
    TripHabit,
    TripRows,
    mixed,
)

Array = NDArray[Any]
Keys = NDArray[np.uint64]
Floats = NDArray[np.float32]

OVER_STEPS = ("mean", "lowest", "highest", "first", "last", "new")
GROUPS = ("population", "clock", "destination", "end")
"""Statistics that may be missing together: there are no other agents, no clock, or the trip goes on, whose destination
may be known all the same."""


class Statistic(NamedTuple):
    """A statistic of trips: its name, and the groups (of :data:`GROUPS`) with which it may be missing."""

    name: str
    groups: frozenset[str] = frozenset()


@lru_cache(maxsize=16)
def statistics_of(habits: tuple[Habit, ...], popularity_cells: tuple[float, ...]) -> tuple[Statistic, ...]:
    """What :func:`statistics` gives, column by column."""

    def over_steps(habit: Habit, what: str) -> Statistic:
        groups = {"clock": habit.hours is not None or habit.weekend, "end": what == "last"}
        return Statistic(f"{habit.name}: {what}", _those(groups))

    def over_trips(habit: TripHabit) -> Statistic:
        groups = {"clock": "hour" in habit.now, "destination": habit.tells_where, "end": habit.tells_how_far}
        return Statistic(habit.name, _those(groups))

    def over_others(size: float, what: str) -> Statistic:
        return Statistic(f"others {size:g} m: {what}", _those({"population": True, "end": what == "last"}))

    return (
        *(over_steps(habit, what) for habit in habits for what in OVER_STEPS),
        *(over_trips(habit) for habit in TRIP_HABITS),
        *(Statistic(what) for what in MOTION),
        *(over_others(size, what) for size in popularity_cells for what in ("mean", "first", "last", "where new")),
        Statistic("past trips"),
    )


def _those(groups: Mapping[str, bool]) -> frozenset[str]:
    return frozenset(name for name, belongs in groups.items() if belongs)


def members(known: Sequence[Statistic], group: str) -> NDArray[np.bool_]:
    """Which statistics belong to a group."""
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
) -> Floats:
    """The statistics of trips through an agent's memory: (trips, statistics); of a trip without rows, not numbers.

    Parameters
    ----------
    rows
        The trips.
    familiar
        What :func:`~astray.features.familiarity.familiarity` says of the rows' keys.
    habits
        What the rows' keys stand for.
    memory
        What the agent has done.
    popularity
        Where other agents go.
    window
        Rows of the least and of the most familiar part of a trip.
    without
        Of each trip the number of a remembered one that is not to count, -1 for none.
    maker
        Of each trip the number of the agent that made it, among those of the popularity; -1 for none.
    """
    starts, lengths, present = rows.starts, rows.lengths, rows.present
    known = statistics_of(tuple(habits), popularity.cells)
    found = np.full((rows.n_trips, len(known)), np.nan, np.float32)
    if not len(starts):
        return found
    last = starts + lengths - 1

    def mean(values: Array) -> Array:
        return np.asarray(np.add.reduceat(values, starts, axis=0, dtype=np.float64) / lengths[:, None])

    low, high = windows(familiar, starts, lengths, window)
    over = np.stack([mean(familiar), low, high, familiar[starts], familiar[last], mean(familiar == 0)], axis=2)
    whole = None if without is None else without[present]
    alike = familiarity(rows.looked_up, memory, whole)
    there = popularity.encode(rows.keys, habits, None if maker is None else maker[rows.steps.trip])
    new = familiar[:, [habits.index(habit) for habit in popularity.habits]] == 0
    others = np.stack([mean(there), there[starts], there[last], mean(there * new)], axis=2)
    past = memory.history - (np.zeros(len(starts)) if whole is None else whole >= 0)
    parts = [over.reshape(len(starts), -1), alike, rows.motion, others.reshape(len(starts), -1), np.log1p(past)]
    found[present] = np.column_stack(parts)
    found[np.ix_(~rows.finished, members(known, "end"))] = np.nan
    found[np.ix_(~rows.told, members(known, "destination"))] = np.nan
    if not len(popularity.agents):
        found[:, members(known, "population")] = np.nan
    return found


def windows(values: Array, starts: Array, lengths: Array, size: int) -> tuple[Array, Array]:
    """The lowest and the highest mean over any ``size`` rows in a row of each trip; a shorter trip has its mean.

    >>> low, high = windows(np.array([[0.0], [1.0], [5.0], [3.0]]), np.array([0, 3]), np.array([3, 1]), 2)
    >>> low.tolist(), high.tolist()
    ([[0.5], [3.0]], [[3.0], [3.0]])
    """
    sums = np.zeros((len(values) + 1, values.shape[1]))
    np.cumsum(values, axis=0, out=sums[1:], dtype=np.float64)
    place = np.arange(len(values)) - np.repeat(starts, lengths)
    wide = np.minimum(size, np.repeat(lengths, lengths))
    ends = np.flatnonzero(place + 1 >= wide)
    means = (sums[ends + 1] - sums[ends + 1 - wide[ends]]) / wide[ends, None]
    cut = np.searchsorted(ends, starts)
    return np.minimum.reduceat(means, cut, axis=0), np.maximum.reduceat(means, cut, axis=0)


# -------------------------------------------------------------------- a trip that goes on


_NUMBER = {word: w for w, word in enumerate(WORDS)}
_BANDS = [_NUMBER[part, 0.0] for part in ("length", "duration", "speed")]
_A_FACTOR_E = np.array([[LENGTH_BANDS], [DURATION_BANDS], [SPEED_BANDS]])
_GOING_ON = tuple(h for h, habit in enumerate(TRIP_HABITS) if "stop" not in habit.now)
_BANDED = tuple(h for h in _GOING_ON if set(LOOKED_UP[h].tolist()) & set(_BANDS))
_TOLD = tuple(h for h, habit in enumerate(TRIP_HABITS) if habit.tells_where)
"""What is counted of a trip that goes on, what of that changes with it, and what is counted of a known destination."""

_SUM, _NEW, _LOW, _HIGH = range(4)


class RunningStatistics:
    """What is kept of a trip that goes on, to give the statistics of its rows so far from running sums.

    :func:`count_rows` counts a further row of some trips, :func:`statistics_so_far` gives what :func:`statistics` would
    give of all of them. What is said of the familiarity of rows, of past trips like it and of other agents is equal to
    the last bit (under a half-life, to rounding: then counts are fractions); what is said of its motion is equal to
    rounding.

    Parameters
    ----------
    habits, memory, popularity, window
        As for :func:`statistics`.
    frame
        Where and when the trip is.
    maker
        The number of the agent that makes it, among those of the popularity; -1 for none.
    destination
        Where it is meant to stop, in metres, if that is known.
    """

    __slots__ = (
        *("alike", "destination", "ends", "frame", "looked_up", "maker", "memory", "motion", "others", "place_keys"),
        *("places", "popularity", "rows", "sums", "there", "there_sums", "values", "width", "window", "words"),
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
        self.memory, self.popularity, self.frame, self.maker = memory, popularity, frame, maker
        self.destination = destination
        self.places = [habits.index(habit) for habit in popularity.habits] if len(popularity.agents) else []
        n, sizes = len(habits), len(popularity.cells)
        # Where the trip stops is not known yet, nor, without a population, where others go: that stays not a number.
        self.values = np.full(len(statistics_of(tuple(habits), popularity.cells)), np.nan, np.float32)
        self.values[-1] = np.log1p(memory.history)
        ends = np.cumsum([len(OVER_STEPS) * n, len(TRIP_HABITS), len(MOTION), 4 * sizes]).tolist()
        self.alike, self.ends = self.values[ends[0] : ends[1]], ends
        self.others = self.values[ends[2] : ends[3]].reshape(sizes, 4)
        self.rows = 0
        self.sums = np.zeros((4, n))  # of familiarity, of what is new; and the lowest and the highest window
        self.width = window
        self.window = deque([np.zeros(n)], window + 1)  # the sums after each of the last rows
        self.place_keys: Array = np.zeros(0, np.uint64)
        self.there: Array = np.zeros(len(self.places), np.float32)
        self.there_sums = np.zeros((2, len(self.places)))  # over all rows, and over those that are new
        self.words = np.zeros((len(WORDS), GRIDS), np.uint64)
        self.looked_up = False  # whether past trips that are about as long or as fast were
        self.motion = RunningMotion()

    def head_for(self, destination: tuple[float, float] | None) -> None:
        """Set where the trip is meant to stop, in metres; None: not known any more."""
        self.destination = destination
        if self.rows:
            self._count_ends()

    def _begin(self, step: Step, familiar: Floats) -> None:
        """Note what the first row tells."""
        self.values[3 : len(OVER_STEPS) * len(familiar) : len(OVER_STEPS)] = familiar
        if self.places:
            self.others[:, 1] = self.there
        _first_words(step, self.frame, self.words)
        self._count_ends()

    def _see_others(self, keys: Keys, new: Array) -> None:
        """Count how many other agents go where a row is."""
        place_keys = keys[self.places]
        if not np.array_equal(place_keys, self.place_keys):
            self.place_keys = place_keys
            self.there = self.popularity.encode_step(place_keys, self.maker)
        self.there_sums += self.there, self.there * new[self.places]

    def _count_ends(self) -> None:
        """Look up the past trips that ended where this one is meant to; not a number if that is not known."""
        if self.destination is None:
            self.alike[list(_TOLD)] = np.nan
            return
        x, y = self.frame.projection.grid_place(*self.destination)
        for w, (part, size) in enumerate(WORDS):
            if part == "stop":
                self.words[w] = [word_of(cell(x, y, size, shift)) for shift in SHIFTS]
        _look_up([self], _TOLD)


def count_rows(running: Sequence[RunningStatistics], steps: Sequence[Step], keys: Keys, familiar: Floats) -> None:
    """Count a further row of each of some trips: its step, its keys (trips, habits, grids) and their familiarity.

    All of them are of one configuration.
    """
    for one in running:
        one.rows += 1
    rows, width = np.array([[one.rows] for one in running]), running[0].width
    sums, new = _stacked([one.sums for one in running]), familiar == 0
    sums[:, _SUM] += familiar
    sums[:, _NEW] += new
    for one, own in zip(running, sums[:, _SUM], strict=True):
        one.window.append(own.copy())
    # As long as the trip is shorter than a window, the sum before it is none, and its mean is the only one.
    mean = (sums[:, _SUM] - _stacked([one.window[0] for one in running])) / np.minimum(rows, width)
    low, high, is_short = np.minimum(sums[:, _LOW], mean), np.maximum(sums[:, _HIGH], mean), rows <= width
    if is_short.any():
        low, high = np.where(is_short, mean, low), np.where(is_short, mean, high)
    sums[:, _LOW], sums[:, _HIGH] = low, high
    for i, (one, step) in enumerate(zip(running, steps, strict=True)):
        one.sums[:] = sums[i]
        one.motion.add(step)
        if one.places:
            one._see_others(keys[i], new[i])
        if one.rows == 1:
            one._begin(step, familiar[i])


def statistics_so_far(running: Sequence[RunningStatistics]) -> Floats:
    """The statistics of some trips as far as their rows were counted: (trips, statistics)."""
    n, (_, habits) = len(running), running[0].sums.shape
    motion = np.array([one.motion.values for one in running])
    _count_trips(running, motion)
    found = np.array([one.values for one in running])
    sums, rows = _stacked([one.sums for one in running]), np.array([[one.rows] for one in running])
    steps, trips, moved, others = running[0].ends
    over = found[:, :steps].reshape(n, habits, len(OVER_STEPS))
    over[:, :, 0] = sums[:, _SUM] / rows
    over[:, :, 1] = sums[:, _LOW]
    over[:, :, 2] = sums[:, _HIGH]
    over[:, :, 5] = sums[:, _NEW] / rows
    found[:, trips:moved] = motion
    if running[0].places:
        there = _stacked([one.there_sums for one in running]) / rows[:, :, None]
        of_others = found[:, moved:others].reshape(n, -1, 4)
        of_others[:, :, 0], of_others[:, :, 3] = there[:, 0], there[:, 1]
    return found


def _stacked(arrays: Sequence[Array]) -> Array:
    """Arrays one above the other; of one, a view."""
    return arrays[0][None] if len(arrays) == 1 else np.array(arrays)


def _count_trips(running: Sequence[RunningStatistics], motion: Array) -> None:
    """Look up the past trips that began alike, or were about as long or as fast, unless these are the same ones."""
    bands = np.floor(_A_FACTOR_E * motion[:, :3, None] + SHIFTS).astype(np.int64).view(np.uint64)
    known = _stacked([one.words[_BANDS] for one in running])
    changed = (bands != known).any(axis=(1, 2)).tolist()
    begun, going_on = list[RunningStatistics](), list[RunningStatistics]()
    for one, has_changed, own in zip(running, changed, bands, strict=True):
        if not one.looked_up or has_changed:
            (going_on if one.looked_up else begun).append(one)
            one.words[_BANDS], one.looked_up = own, True
    _look_up(begun, _GOING_ON)
    _look_up(going_on, _BANDED)  # where and when they began stays as it is


def _look_up(running: Sequence[RunningStatistics], habits: tuple[int, ...]) -> None:
    """Note the familiarity of trips by some habits, all of whose words are known."""
    if not running:
        return
    keys = mixed(_stacked([one.words for one in running]), "now", habits)
    for one, counted in zip(running, few_familiarity(keys, [one.memory for one in running]), strict=True):
        one.alike[list(habits)] = counted


def _first_words(step: Step, frame: Frame, words: Keys) -> None:
    """Set the words, each on every grid, that the first row of a trip tells."""
    x, y = frame.projection.grid_place(*step.location)
    began = (step.time + frame.utc_offset) % DAY / DAY * SLOTS
    for w, (part, size) in enumerate(WORDS):
        if part == "start":
            words[w] = [word_of(cell(x, y, size, shift)) for shift in SHIFTS]
        elif part == "hour":
            words[w] = [math.floor(began + shift) % SLOTS for shift in SHIFTS]
