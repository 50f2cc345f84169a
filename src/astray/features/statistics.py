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
from functools import lru_cache, reduce
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
from astray.features.hashing import mix_one
from astray.features.memory import Memory
from astray.features.popularity import Popularity
from astray.features.steps import Step
from astray.features.trip_rows import (
    DURATION_BANDS,
    LENGTH_BANDS,
    LOOKED_UP,
    MOTION,
    SALTS,
    SLOTS,
    SPEED_BANDS,
    TRIP_HABITS,
    WORDS,
    RunningMotion,
    TripHabit,
    TripRows,
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
_BANDS = tuple(_NUMBER[part, 0.0] for part in ("length", "duration", "speed"))
_GOING_ON = [h for h, habit in enumerate(TRIP_HABITS) if "stop" not in habit.now]
_BANDED = [h for h in _GOING_ON if set(LOOKED_UP[h].tolist()) & set(_BANDS)]
_TOLD = [h for h, habit in enumerate(TRIP_HABITS) if habit.tells_where]
"""What is counted of a trip that goes on, what of that changes with it, and what is counted of a known destination."""


class RunningStatistics:
    """The statistics of a trip that goes on, from running sums: those that :func:`statistics` gives of its rows so far.

    What is said of its rows' familiarity, of past trips like it and of other agents is equal to the last bit (under a
    half-life, to rounding: then counts are fractions); what is said of its motion is equal to rounding.

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
        *("_alike", "_destination", "_frame", "_high", "_low", "_maker", "_memory", "_motion", "_motion_values"),
        *("_new", "_others", "_over", "_place_keys", "_places", "_popularity", "_rows", "_sums", "_there"),
        *("_there_new", "_there_sum", "_values", "_width", "_window", "_words"),
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
        self._memory, self._popularity, self._frame, self._maker = memory, popularity, frame, maker
        self._destination = destination
        self._places = [habits.index(habit) for habit in popularity.habits] if len(popularity.agents) else []
        n, sizes = len(habits), len(popularity.cells)
        # Where the trip stops is not known yet, nor, without a population, where others go: that stays not a number.
        self._values = np.full((1, len(statistics_of(tuple(habits), popularity.cells))), np.nan, np.float32)
        self._values[0, -1] = np.log1p(memory.history)
        ends = np.cumsum([len(OVER_STEPS) * n, len(TRIP_HABITS), len(MOTION), 4 * sizes])
        over, self._alike, self._motion_values, others, _ = np.split(self._values[0], ends)
        self._over, self._others = over.reshape(n, len(OVER_STEPS)), others.reshape(sizes, 4)
        self._rows = 0
        self._sums, self._new = np.zeros(n), np.zeros(n)
        self._low = self._high = self._sums
        self._width = window
        self._window = deque([self._sums], self._width + 1)  # the sums after each of the last rows
        self._place_keys: Array = np.zeros(0, np.uint64)
        self._there: Array = np.zeros(len(self._places), np.float32)
        self._there_sum, self._there_new = np.zeros(len(self._places)), np.zeros(len(self._places))
        self._words: list[list[int]] = []
        self._motion = RunningMotion()

    def add(self, step: Step, keys: Keys, familiar: Floats) -> None:
        """Count a further row: its step, its keys (habits, grids) and their familiarity."""
        self._rows += 1
        new = familiar == 0
        self._new += new
        self._sums = self._sums + familiar
        self._window.append(self._sums)
        if self._rows <= self._width:
            self._low = self._high = self._sums / self._rows
        else:
            mean = (self._sums - self._window[0]) / self._width
            self._low, self._high = np.minimum(self._low, mean), np.maximum(self._high, mean)
        if self._places:
            place_keys = keys[self._places]
            if not np.array_equal(place_keys, self._place_keys):
                self._place_keys = place_keys
                self._there = self._popularity.encode_step(place_keys, self._maker)
            self._there_sum += self._there
            self._there_new += self._there * new[self._places]
        self._motion.add(step)
        if self._rows == 1:
            self._over[:, 3] = familiar
            if self._places:
                self._others[:, 1] = self._there
            self._words = _first_words(step, self._frame)
            self._count_ends()

    def head_for(self, destination: tuple[float, float] | None) -> None:
        """Set where the trip is meant to stop, in metres; None: not known any more."""
        self._destination = destination
        if self._rows:
            self._count_ends()

    @property
    def values(self) -> Floats:
        """The statistics of the trip so far, (1, statistics); overwritten by the next call."""
        over, n, motion = self._over, self._rows, self._motion.values
        over[:, 0] = self._sums / n
        over[:, 1] = self._low
        over[:, 2] = self._high
        over[:, 5] = self._new / n
        self._count_trips(*motion[:3])
        self._motion_values[:] = motion
        if self._places:
            self._others[:, 0] = self._there_sum / n
            self._others[:, 3] = self._there_new / n
        return self._values

    def _count_trips(self, length: float, duration: float, speed: float) -> None:
        """Look up the past trips that began alike, or were about as long or as fast, unless these are the same ones."""
        bands = (LENGTH_BANDS * length, DURATION_BANDS * duration, SPEED_BANDS * speed)
        now = [[math.floor(band + shift) for shift in SHIFTS] for band in bands]
        if now == [self._words[w] for w in _BANDS]:
            return
        known = self._words[_BANDS[0]]
        for w, word in zip(_BANDS, now, strict=True):
            self._words[w] = word
        habits = _BANDED if known else _GOING_ON  # where and when it began stays as it is
        self._alike[habits] = self._counted(habits)

    def _count_ends(self) -> None:
        """Look up the past trips that ended where this one is meant to; not a number if that is not known."""
        if self._destination is None:
            self._alike[_TOLD] = np.nan
            return
        x, y = self._frame.projection.grid_place(*self._destination)
        for w, (part, size) in enumerate(WORDS):
            if part == "stop":
                self._words[w] = [word_of(cell(x, y, size, shift)) for shift in SHIFTS]
        self._alike[_TOLD] = self._counted(_TOLD)

    def _counted(self, habits: Sequence[int]) -> Floats:
        """The familiarity of the trip by some habits, all of whose words are known."""
        keys = [
            reduce(mix_one, (self._words[w][grid] for w in LOOKED_UP[h].tolist() if w), int(SALTS[h, grid]))
            for h in habits
            for grid in range(GRIDS)
        ]
        return few_familiarity(np.array(keys, np.uint64).reshape(-1, GRIDS), self._memory)


def _first_words(step: Step, frame: Frame) -> list[list[int]]:
    """The words, each on every grid, that the first row of a trip tells; the others are left empty."""
    x, y = frame.projection.grid_place(*step.location)
    began = (step.time + frame.utc_offset) % DAY / DAY * SLOTS
    words: list[list[int]] = []
    for part, size in WORDS:
        if part == "start":
            words.append([word_of(cell(x, y, size, shift)) for shift in SHIFTS])
        elif part == "hour":
            words.append([math.floor(began + shift) % SLOTS for shift in SHIFTS])
        else:
            words.append([])
    return words
