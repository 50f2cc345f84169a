"""Trip statistics: what a whole trip is like, relative to what its agent has done before.

A step shows where an agent is, not where it chose to begin and to stop: that is seen in the trip. Its statistics are
those of the familiarity of its steps (mean, lowest and highest two minutes, first, last, share of what is new), in how
many past trips the agent began, ended or travelled between here and there, how long and fast the trip was, and how
many other agents go where it went. None of them names a place, so one reward can serve every agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.mdp.familiarity import DAY, GRIDS, SHIFTS, STANDING, Frame, Habit, familiarity, keys_of
from astray.mdp.grid import cells
from astray.mdp.hashing import mix
from astray.mdp.memory import Memory
from astray.mdp.popularity import Popularity
from astray.mdp.steps import Steps

Array = NDArray[Any]
Keys = NDArray[np.uint64]
Floats = NDArray[np.float32]

END_CELLS = (500.0, 2000.0)  # metres: cells in which trips begin and end
WINDOW = 120.0  # seconds of the lowest and highest stretch
LENGTH_BANDS, DURATION_BANDS, SPEED_BANDS = 4.0, 3.0, 4.0  # bands to a factor e: trips that are about as long, as fast
HOURS = 3.0  # of the day, in which trips that begin at about the same time begin

OVER_STEPS = ("mean", "lowest", "highest", "first", "last", "new")
MOTION = ("length", "duration", "speed", "straightness", "standing", "highest speed", "spread of speed")
GROUPS = ("population", "clock", "end")
"""Statistics that may be missing together: there are no other agents, no clock, or the trip goes on."""


class TripHabit(NamedTuple):
    """What two trips must have in common: among the past trips are counted those whose ``past`` is this one's ``now``.

    The parts of a trip are its ``start`` and ``stop`` (cells of ``size`` metres), the ``hour`` at which it began, and
    bands of its ``length``, ``duration`` and ``speed``.
    """

    now: tuple[str, ...]
    past: tuple[str, ...]
    size: float = 0.0

    @property
    def name(self) -> str:
        """The habit in a few words."""
        said = " and ".join(self.now) if self.now == self.past else f"{self.now[0]} where past trips {self.past[0]}"
        if self.now[::-1] == self.past != self.now:
            said = "the way back"
        return f"{said} {self.size:g} m" if self.size else said


def _same(*parts: str, size: float = 0.0) -> TripHabit:
    return TripHabit(parts, parts, size)


TRIP_HABITS = (
    *(
        habit
        for size in END_CELLS
        for habit in (
            _same("start", size=size),
            _same("stop", size=size),
            TripHabit(("start",), ("stop",), size),
            TripHabit(("stop",), ("start",), size),
            _same("start", "stop", size=size),
            TripHabit(("stop", "start"), ("start", "stop"), size),
            _same("start", "hour", size=size),
            _same("stop", "hour", size=size),
            _same("start", "stop", "length", size=size),
            _same("start", "stop", "duration", size=size),
        )
    ),
    _same("hour"),
    _same("length"),
    _same("duration"),
    _same("speed"),
)
"""What is counted of whole trips."""


@dataclass(frozen=True, eq=False)
class TripRows:
    """Steps of trips with the keys that memories know them by: made once, then seen through any agent's memory.

    Attributes
    ----------
    steps
        One row a step, trip by trip.
    keys
        Their keys: (rows, habits, grids).
    frame
        Where and when they are.
    n_trips
        How many trips there are; ``steps.trip`` counts into them.
    finished
        Whether each trip has ended; if not, where it stops is not known.
    """

    steps: Steps
    keys: Keys
    frame: Frame
    n_trips: int
    finished: NDArray[np.bool_]

    @classmethod
    def of(
        cls, steps: Steps, habits: Sequence[Habit], frame: Frame, n_trips: int, finished: bool | Array = True
    ) -> TripRows:
        """The rows of steps."""
        ended = np.broadcast_to(np.asarray(finished, np.bool_), n_trips)
        return cls(steps, keys_of(steps, habits, frame), frame, n_trips, ended)

    @property
    def present(self) -> NDArray[np.int64]:
        """The trips that have a row."""
        return self.steps.trip[self.starts]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each trip that has one."""
        trip = self.steps.trip
        return np.flatnonzero(np.r_[True, trip[1:] != trip[:-1]]) if len(trip) else np.zeros(0, np.int64)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """How many rows each of these trips has."""
        return np.diff(self.starts, append=len(self.steps))

    def __getitem__(self, trips: Array) -> TripRows:
        """Some trips, by their positions, in any order; a trip without rows stays one."""
        first = np.searchsorted(self.steps.trip, trips)
        count = np.searchsorted(self.steps.trip, trips, side="right") - first
        rows = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
        steps = replace(self.steps[rows], trip=np.repeat(np.arange(len(trips)), count))
        return TripRows(steps, self.keys[rows], self.frame, len(trips), self.finished[trips])

    def prefixes(self, share: Array) -> TripRows:
        """The same trips as far as a ``share`` of their rows, rounded up, and not finished."""
        wanted = np.ceil(share[self.present] * self.lengths).astype(np.int64)
        place = np.arange(len(self.steps)) - np.repeat(self.starts, self.lengths)
        rows = np.flatnonzero(place < np.repeat(np.maximum(wanted, 1), self.lengths))
        return TripRows(self.steps[rows], self.keys[rows], self.frame, self.n_trips, np.zeros(self.n_trips, np.bool_))

    @staticmethod
    def concat(parts: Sequence[TripRows]) -> TripRows:
        """Trips one after the other; they must be of one frame, or already have their keys."""
        firsts = np.cumsum([0, *(p.n_trips for p in parts)])
        return TripRows(
            Steps.concat([replace(p.steps, trip=p.steps.trip + f) for p, f in zip(parts, firsts, strict=False)]),
            np.concatenate([p.keys for p in parts]),
            parts[0].frame,
            int(firsts[-1]),
            np.concatenate([p.finished for p in parts]),
        )

    # ---------------------------------------------------------------- whole trips

    @cached_property
    def motion(self) -> NDArray[np.float64]:
        """Of each present trip what :data:`MOTION` names: (trips, 7)."""
        steps, starts, lengths = self.steps, self.starts, self.lengths
        vx, vy = steps.velocity.T
        speed = np.sqrt(vx * vx + vy * vy)
        moved = np.hypot(*np.diff(steps.location, axis=0, prepend=steps.location[:1]).T) * ~steps.first
        passed = np.diff(steps.time, prepend=steps.time[:1]) * ~steps.first

        def total(values: Array) -> Array:
            return np.add.reduceat(np.asarray(values, np.float64), starts)

        # The first row of a path has no speed of its own yet.
        moving = np.maximum(total(~steps.first), 1)
        length, duration = total(moved), np.maximum(total(passed), 1.0)
        mean = total(speed * ~steps.first) / moving
        square = total(speed * speed * ~steps.first) / moving
        apart = np.hypot(*(steps.location[starts + lengths - 1] - steps.location[starts]).T)
        return np.column_stack(
            [
                np.log1p(length),
                np.log(duration),
                np.log1p(length / duration),
                apart / (length + 100.0),
                total((speed < STANDING) & ~steps.first) / moving,
                np.log1p(np.maximum.reduceat(speed, starts)),
                np.log1p(np.sqrt(np.maximum(square - mean * mean, 0.0))),
            ]
        )

    @cached_property
    def looked_up(self) -> Keys:
        """Of each present trip the keys under which past trips like it are counted: (trips, habits, grids)."""
        return _mixed(self._words, _LOOKED_UP)

    @cached_property
    def remembered(self) -> Keys:
        """Of each present trip the keys under which it is counted itself: (trips, habits, grids)."""
        return _mixed(self._words, _REMEMBERED)

    @cached_property
    def _words(self) -> Keys:
        """What the keys of each present trip are made of: (trips, words, grids)."""
        n, ends = len(self.starts), self.starts + self.lengths - 1
        both = self.frame.projection.to_grid(self.steps.location[np.concatenate([self.starts, ends])])[:, :, None]
        places = {"start": both[:, :n], "stop": both[:, n:]}
        began = (self.steps.time[self.starts] + self.frame.utc_offset) % DAY / DAY * SLOTS
        bands = {
            "hour": began,
            "length": LENGTH_BANDS * self.motion[:, 0],
            "duration": DURATION_BANDS * self.motion[:, 1],
            "speed": SPEED_BANDS * self.motion[:, 2],
        }
        shifts = np.array(SHIFTS)
        words = np.zeros((n, len(_WORDS), GRIDS), np.uint64)
        for w, (part, size) in enumerate(_WORDS):
            if part in places:
                row, column = (v.astype(np.int64).view(np.uint64) for v in cells(places[part], size, shifts))
                words[:, w] = mix(row, column)
            elif part in bands:
                band = np.floor(bands[part][:, None] + shifts).astype(np.int64)
                words[:, w] = (band % SLOTS if part == "hour" else band).view(np.uint64)
        return words


SLOTS = round(24 / HOURS)  # of the day
_NO_WORD = ("", 0.0)
_WORDS = tuple(
    dict.fromkeys(
        [
            _NO_WORD,
            *((part, h.size if part in ("start", "stop") else 0.0) for h in TRIP_HABITS for part in h.now),
        ]
    )
)
"""What keys of trips are made of, each with its size; the first is none."""


def _word_numbers(parts_of: Sequence[tuple[tuple[str, ...], float]]) -> NDArray[np.int64]:
    """For each habit the numbers of its words, (habits, most words); 0 where it has no more."""
    number = {word: i for i, word in enumerate(_WORDS)}
    rows = [[number[part, size if part in ("start", "stop") else 0.0] for part in parts] for parts, size in parts_of]
    most = max(map(len, rows))
    return np.array([row + [0] * (most - len(row)) for row in rows])


_LOOKED_UP = _word_numbers([(h.now, h.size) for h in TRIP_HABITS])
_REMEMBERED = _word_numbers([(h.past, h.size) for h in TRIP_HABITS])
# What is counted under a key is what past trips had: two habits that ask for the same share the key.
_KINDS = list(dict.fromkeys((h.past, h.size) for h in TRIP_HABITS))
_SALTS = np.array(
    [[(1 << 32) + GRIDS * _KINDS.index((h.past, h.size)) + g for g in range(GRIDS)] for h in TRIP_HABITS], np.uint64
)


def _mixed(words: Keys, numbers: NDArray[np.int64]) -> Keys:
    """The keys of trips (trips, habits, grids) from their words (trips, words, grids): a salt, then word after word."""
    keys = np.broadcast_to(_SALTS, (len(words), *_SALTS.shape)).copy()
    for column in numbers.T:
        here = np.flatnonzero(column)
        keys[:, here] = mix(keys[:, here], words[:, column[here]])
    return keys


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
        return Statistic(habit.name, _those({"clock": "hour" in habit.now, "end": "stop" in habit.now}))

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
    interval: float,
    without: Array | None = None,
    maker: Array | None = None,
) -> Floats:
    """The statistics of trips through an agent's memory: (trips, statistics); of a trip without rows, not numbers.

    Parameters
    ----------
    rows
        The trips.
    familiar
        What :func:`~astray.mdp.familiarity.familiarity` says of the rows' keys.
    habits
        What the rows' keys stand for.
    memory
        What the agent has done.
    popularity
        Where other agents go.
    interval
        Seconds between rows, about.
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

    low, high = windows(familiar, starts, lengths, max(1, round(WINDOW / interval)))
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
