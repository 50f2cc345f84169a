"""The rows of trips, and the keys under which a memory counts whole trips.

A trip is made into rows once, and is then seen through any agent's memory: what past trips have in common with it is
looked up by keys that depend on places and local times alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.features.familiarity import DAY, GRIDS, SHIFTS, STANDING, Frame, Habit, keys_of
from astray.features.grid import cells
from astray.features.hashing import changes, mix
from astray.features.steps import Step, Steps

Array = NDArray[Any]
Keys = NDArray[np.uint64]

END_CELLS = (500.0, 2000.0)  # metres: cells in which trips begin and end
LENGTH_BANDS, DURATION_BANDS, SPEED_BANDS = 4.0, 3.0, 4.0  # bands to a factor e: trips that are about as long, as fast
HOURS = 3.0  # of the day, in which trips that begin at about the same time begin
MOTION = ("length", "duration", "speed", "straightness", "standing", "highest speed", "spread of speed")


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

    @property
    def tells_how_far(self) -> bool:
        """Whether it is known only when the trip has ended: how long it was to where it stopped."""
        return "stop" in self.now and not {"length", "duration"}.isdisjoint(self.now)

    @property
    def tells_where(self) -> bool:
        """Whether it is known as soon as it is known where the trip stops."""
        return "stop" in self.now and not self.tells_how_far


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
        Whether each trip has ended; if not, where it stops is known from its destination alone.
    destinations
        Where trips that go on are meant to stop: (trips, 2), metres, not a number where that is not known; None: of no
        trip.
    """

    steps: Steps
    keys: Keys
    frame: Frame
    n_trips: int
    finished: NDArray[np.bool_]
    destinations: NDArray[np.float64] | None = None

    @classmethod
    def of(
        cls, steps: Steps, habits: Sequence[Habit], frame: Frame, n_trips: int, finished: bool | Array = True
    ) -> TripRows:
        """The rows of steps."""
        ended = np.broadcast_to(np.asarray(finished, np.bool_), n_trips)
        return cls(steps, keys_of(steps, habits, frame), frame, n_trips, ended)

    @classmethod
    def without_keys(cls, steps: Steps, frame: Frame, n_trips: int) -> TripRows:
        """The rows of steps, where only whole trips are asked about."""
        return cls(steps, np.zeros((len(steps), 0, GRIDS), np.uint64), frame, n_trips, np.ones(n_trips, np.bool_))

    @property
    def present(self) -> NDArray[np.int64]:
        """The trips that have a row."""
        return self.steps.trip[self.starts]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each trip that has one."""
        return np.flatnonzero(changes(self.steps.trip))

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
        destinations = None if self.destinations is None else self.destinations[trips]
        return TripRows(steps, self.keys[rows], self.frame, len(trips), self.finished[trips], destinations)

    def prefixes(self, share: Array) -> TripRows:
        """The same trips as far as a ``share`` of their rows, rounded up, and not finished."""
        rows, going_on = self._first_rows(share), np.zeros(self.n_trips, np.bool_)
        return TripRows(self.steps[rows], self.keys[rows], self.frame, self.n_trips, going_on)

    def _first_rows(self, share: Array) -> NDArray[np.int64]:
        wanted = np.ceil(share[self.present] * self.lengths).astype(np.int64)
        place = np.arange(len(self.steps)) - np.repeat(self.starts, self.lengths)
        return np.flatnonzero(place < np.repeat(np.maximum(wanted, 1), self.lengths))

    def with_prefixes(self, share: float) -> tuple[TripRows, NDArray[np.int64]]:
        """These trips, then each of them as far as a share of its rows, not finished; and which rows these are."""
        n, first = self.n_trips, self._first_rows(np.full(self.n_trips, share))
        rows = np.concatenate([np.arange(len(self.steps)), first])
        trip = np.concatenate([self.steps.trip, n + self.steps.trip[first]])
        finished = np.concatenate([self.finished, np.zeros(n, np.bool_)])
        return TripRows(replace(self.steps[rows], trip=trip), self.keys[rows], self.frame, 2 * n, finished), rows

    @property
    def told(self) -> NDArray[np.bool_]:
        """Which trips have stopped, or have a known destination."""
        return self.finished if self.destinations is None else self.finished | ~np.isnan(self.destinations[:, 0])

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
        return mixed(self._words, "now")

    @cached_property
    def remembered(self) -> Keys:
        """Of each present trip the keys under which it is counted itself: (trips, habits, grids)."""
        return mixed(self._words, "past")

    @cached_property
    def _words(self) -> Keys:
        """What the keys of each present trip are made of: (trips, words, grids)."""
        n, ends = len(self.starts), self.starts + self.lengths - 1
        stops = self.steps.location[ends]
        if self.destinations is not None:
            known = (self.told & ~self.finished)[self.present]
            stops[known] = self.destinations[self.present[known]]
        both = self.frame.projection.to_grid(np.concatenate([self.steps.location[self.starts], stops]))[:, :, None]
        places = {"start": both[:, :n], "stop": both[:, n:]}
        began = (self.steps.time[self.starts] + self.frame.utc_offset) % DAY / DAY * SLOTS
        bands = {
            "hour": began,
            "length": LENGTH_BANDS * self.motion[:, 0],
            "duration": DURATION_BANDS * self.motion[:, 1],
            "speed": SPEED_BANDS * self.motion[:, 2],
        }
        shifts = np.array(SHIFTS)
        words = np.zeros((n, len(WORDS), GRIDS), np.uint64)
        for w, (part, size) in enumerate(WORDS):
            if part in places:
                row, column = (v.astype(np.int64).view(np.uint64) for v in cells(places[part], size, shifts))
                words[:, w] = mix(row, column)
            elif part in bands:
                band = np.floor(bands[part][:, None] + shifts).astype(np.int64)
                words[:, w] = (band % SLOTS if part == "hour" else band).view(np.uint64)
        return words


SLOTS = round(24 / HOURS)  # of the day
_NO_WORD = ("", 0.0)
WORDS = tuple(
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
    number = {word: i for i, word in enumerate(WORDS)}
    rows = [[number[part, size if part in ("start", "stop") else 0.0] for part in parts] for parts, size in parts_of]
    most = max(map(len, rows))
    return np.array([row + [0] * (most - len(row)) for row in rows])


LOOKED_UP = _word_numbers([(h.now, h.size) for h in TRIP_HABITS])
_REMEMBERED = _word_numbers([(h.past, h.size) for h in TRIP_HABITS])
# What is counted under a key is what past trips had: two habits that ask for the same share the key.
_KINDS = list(dict.fromkeys((h.past, h.size) for h in TRIP_HABITS))
SALTS = np.array(
    [[(1 << 32) + GRIDS * _KINDS.index((h.past, h.size)) + g for g in range(GRIDS)] for h in TRIP_HABITS], np.uint64
)


@cache
def _rounds(which: str, habits: tuple[int, ...]) -> tuple[Keys, tuple[tuple[Array, Array], ...]]:
    """The salts of habits; then the habits that have a first, second, ... word, and these words."""
    numbers = (LOOKED_UP if which == "now" else _REMEMBERED)[list(habits)]
    rounds = ((np.flatnonzero(column), column[column > 0]) for column in numbers.T)
    return SALTS[list(habits)], tuple((here, words) for here, words in rounds if len(here))


ALL_HABITS = tuple(range(len(TRIP_HABITS)))


def mixed(words: Keys, which: str, habits: tuple[int, ...] = ALL_HABITS) -> Keys:
    """The keys of trips (trips, habits, grids) from their words (trips, words, grids): a salt, then word after word.

    ``which`` says whether the keys are those of the trip ``now``, or those under which it is remembered as ``past``.
    """
    salts, rounds = _rounds(which, habits)
    keys = np.repeat(salts[None], len(words), axis=0)
    for here, column in rounds:
        keys[:, here] = mix(keys[:, here], words[:, column])
    return keys


# -------------------------------------------------------------------- a trip that goes on


class RunningMotion:
    """What :data:`MOTION` names of the rows so far, from running sums: :attr:`TripRows.motion` to rounding."""

    __slots__ = ("_duration", "_first", "_last", "_length", "_moving", "_squares", "_standing", "_sum", "_top")

    def __init__(self) -> None:
        self._first: Step | None = None
        self._last: Step | None = None
        self._length = self._duration = self._sum = self._squares = self._top = 0.0
        self._moving = self._standing = 0

    def add(self, step: Step) -> None:
        """Count a further row."""
        vx, vy = step.velocity
        speed = math.sqrt(vx * vx + vy * vy)
        self._top = max(self._top, speed)
        if self._last is None or step.first:
            self._first = self._first or step  # which has no speed of its own yet, as no first step of a path has
        else:
            (x, y), (left_x, left_y) = step.location, self._last.location
            self._length += math.hypot(x - left_x, y - left_y)
            self._duration += step.time - self._last.time
            self._moving += 1
            self._sum += speed
            self._squares += speed * speed
            self._standing += speed < STANDING
        self._last = step

    @property
    def values(self) -> tuple[float, ...]:
        """One value for each of :data:`MOTION`."""
        assert self._first is not None
        assert self._last is not None
        moving, length, duration = max(self._moving, 1), self._length, max(self._duration, 1.0)
        mean = self._sum / moving
        (x0, y0), (x, y) = self._first.location, self._last.location
        return (
            math.log1p(length),
            math.log(duration),
            math.log1p(length / duration),
            math.hypot(x - x0, y - y0) / (length + 100.0),
            self._standing / moving,
            math.log1p(self._top),
            math.log1p(math.sqrt(max(self._squares / moving - mean * mean, 0.0))),
        )
