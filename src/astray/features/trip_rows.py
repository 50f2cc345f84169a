"""The rows of trips, and the keys of whole trips, by which a memory counts them.

The rows of a trip are made once and can be looked up in any agent's memory, because their keys depend only on places
and local times.
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
from astray.features.moves import Moves, moves_of
from astray.features.steps import Step, Steps

Array = NDArray[Any]
Keys = NDArray[np.uint64]

END_CELLS = (500.0, 2000.0)  # metres: cells in which trips begin and end
LENGTH_BANDS, DURATION_BANDS, SPEED_BANDS = 4.0, 3.0, 4.0  # bands per factor of e, to find trips about as long, as fast
HOURS = 3.0  # length of a part of the day; trips that begin in the same part begin at about the same time
MOTION = ("length", "duration", "speed", "straightness", "standing", "highest speed", "spread of speed")


class TripHabit(NamedTuple):
    """The parts that two trips must share: it counts the past trips whose ``past`` parts equal a trip's ``now`` parts.

    The parts of a trip are its ``start`` and ``stop`` (cells of ``size`` metres), the ``hour`` at which it began, and
    bands of its ``length``, ``duration`` and ``speed``.
    """

    now: tuple[str, ...]
    past: tuple[str, ...]
    size: float = 0.0

    @property
    def name(self) -> str:
        """Names the habit in a few words."""
        said = " and ".join(self.now) if self.now == self.past else f"{self.now[0]} where past trips {self.past[0]}"
        if self.now[::-1] == self.past != self.now:
            said = "the way back"
        return f"{said} {self.size:g} m" if self.size else said

    @property
    def tells_how_far(self) -> bool:
        """Returns True if the habit is known only at the end of a trip, because it needs the stop and a band."""
        return "stop" in self.now and not {"length", "duration"}.isdisjoint(self.now)

    @property
    def tells_where(self) -> bool:
        """Returns True if the habit is known as soon as the destination is."""
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
"""The habits by which a memory counts whole trips."""


@dataclass(frozen=True, eq=False)
class TripRows:
    """Steps of trips with their keys, to look up in any agent's memory."""

    steps: Steps  # one row per step, trip by trip
    keys: Keys  # (rows, habits, grids)
    frame: Frame  # the projection and local time
    n_trips: int  # ``steps.trip`` is below this number
    finished: NDArray[np.bool_]  # True for trips that have ended; others stop at their destination, if it is known
    destinations: NDArray[np.float64] | None = None  # of open trips: (trips, 2), metres, NaN or None where unknown

    @classmethod
    def of(cls, steps: Steps, habits: Sequence[Habit], frame: Frame, n_trips: int) -> TripRows:
        """Makes the rows of finished trips."""
        return cls(steps, keys_of(steps, habits, frame), frame, n_trips, np.ones(n_trips, np.bool_))

    @property
    def present(self) -> NDArray[np.int64]:
        """Returns the numbers of the trips that have rows; these are called present."""
        return self.steps.trip[self.starts]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Returns the first row of each present trip."""
        return np.flatnonzero(changes(self.steps.trip))

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Returns the number of rows of each present trip."""
        return np.diff(self.starts, append=len(self.steps))

    def __getitem__(self, trips: Array) -> TripRows:
        """Returns some trips, by their positions, in any order; keeps trips without rows."""
        first = np.searchsorted(self.steps.trip, trips)
        count = np.searchsorted(self.steps.trip, trips, side="right") - first
        rows = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
        steps = replace(self.steps[rows], trip=np.repeat(np.arange(len(trips)), count))
        destinations = None if self.destinations is None else self.destinations[trips]
        return TripRows(steps, self.keys[rows], self.frame, len(trips), self.finished[trips], destinations)

    def prefixes(self, share: Array) -> TripRows:
        """Returns the first ``share`` of the rows of each trip, rounded up, as unfinished trips."""
        rows, finished = self._first_rows(share), np.zeros(self.n_trips, np.bool_)
        return TripRows(self.steps[rows], self.keys[rows], self.frame, self.n_trips, finished)

    def _first_rows(self, share: Array) -> NDArray[np.int64]:
        wanted = np.ceil(share[self.present] * self.lengths).astype(np.int64)
        place = np.arange(len(self.steps)) - np.repeat(self.starts, self.lengths)
        return np.flatnonzero(place < np.repeat(np.maximum(wanted, 1), self.lengths))

    @property
    def told(self) -> NDArray[np.bool_]:
        """Returns a mask of the trips that have ended or have a known destination."""
        return self.finished if self.destinations is None else self.finished | ~np.isnan(self.destinations[:, 0])

    # ---------------------------------------------------------------- whole trips

    @cached_property
    def moves(self) -> Moves:
        """Returns the moves of the trips over cells."""
        return moves_of(self.steps, self.frame)

    @property
    def goals(self) -> NDArray[np.float64]:
        """Returns where each trip ends on the grid of the earth, (2, trips); NaN where that is unknown."""
        found = np.full((2, self.n_trips), np.nan)
        found[:, self.present] = self._ends[:, len(self.present) :]
        found[:, ~self.told] = np.nan
        return found

    @cached_property
    def motion(self) -> NDArray[np.float64]:
        """Returns, for each present trip, the quantities that :data:`MOTION` names: (trips, 7)."""
        starts, last = self.starts, self.starts + self.lengths - 1
        summed, speed = self._moves
        sums = np.add.reduceat(summed, starts, axis=1)
        return motion_of(np.array([*sums, np.maximum.reduceat(speed, starts), self._apart(starts, last)]))

    def motion_at(self, ends: Array, of: Array) -> NDArray[np.float64]:
        """Returns the same as :attr:`motion` for the rows up to each of ``ends``; ``of`` are the trips of these."""
        summed, speed = self._moves
        starts, fastest = self.starts, speed.copy()
        for start, length in zip(starts.tolist(), self.lengths.tolist(), strict=True):
            here = fastest[start : start + length]
            np.maximum.accumulate(here, out=here)
        sums = np.zeros((len(summed), len(speed) + 1))
        np.cumsum(summed, axis=1, out=sums[:, 1:])
        so_far = sums[:, ends + 1] - sums[:, starts[of]]
        return motion_of(np.array([*so_far, fastest[ends], self._apart(starts[of], ends)]))

    @cached_property
    def _moves(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the quantities of each row that :func:`motion_of` needs the sums of, (6, rows), and its speed."""
        steps = self.steps
        vx, vy = steps.velocity.T
        speed = np.sqrt(vx * vx + vy * vy)
        goes_on = ~steps.first  # the first row of a path has no speed yet
        moved = np.hypot(*np.diff(steps.location, axis=0, prepend=steps.location[:1]).T) * goes_on
        passed = np.diff(steps.time, prepend=steps.time[:1]) * goes_on
        summed = (moved, passed, goes_on, speed * goes_on, speed * speed * goes_on, (speed < STANDING) & goes_on)
        return np.array(summed, np.float64), np.asarray(speed, np.float64)

    def _apart(self, first: Array, last: Array) -> NDArray[np.float64]:
        """Returns the distances in metres between rows."""
        return np.asarray(np.hypot(*(self.steps.location[last] - self.steps.location[first]).T))

    @cached_property
    def looked_up(self) -> Keys:
        """Returns, for each present trip, the keys that count past trips like it: (trips, habits, grids)."""
        return mixed(self._words, "now")

    def looked_up_so_far(self, motion: Array, of: Array) -> Keys:
        """Returns the same as :attr:`looked_up` for trips so far, given their ``motion`` and which trips they are.

        Keys of habits that need the end of a trip mean nothing.
        """
        words = self._words[of]
        words[:, BANDS] = band_words(motion)
        return mixed(words, "now")

    @cached_property
    def remembered(self) -> Keys:
        """Returns, for each present trip, the keys by which a memory counts it: (trips, habits, grids)."""
        return mixed(self._words, "past")

    @cached_property
    def _words(self) -> Keys:
        """Returns the words of the keys of each present trip: (trips, words, grids)."""
        n, both = len(self.starts), place_words(self._ends)
        words = np.zeros((n, len(WORDS), GRIDS), np.uint64)
        words[:, START], words[:, STOP] = both[:n], both[n:]
        words[:, HOUR] = hour_words(self.steps.time[self.starts] + self.frame.utc_offset)
        words[:, BANDS] = band_words(self.motion)
        return words

    @cached_property
    def _ends(self) -> NDArray[np.float64]:
        """Returns where the present trips begin, then where they stop, on the grid of the earth: (2, 2 trips)."""
        stops = self.steps.location[self.starts + self.lengths - 1]
        if self.destinations is not None:
            known = (self.told & ~self.finished)[self.present]
            stops[known] = self.destinations[self.present[known]]
        return self.frame.projection.to_grid(np.concatenate([self.steps.location[self.starts], stops]))


WORDS = tuple(
    dict.fromkeys(
        [("", 0.0), *((part, h.size if part in ("start", "stop") else 0.0) for h in TRIP_HABITS for part in h.now)]
    )
)
"""The words in the keys of trips, each with the size of its cell; the first means "no word"."""

_NUMBER = {word: w for w, word in enumerate(WORDS)}
START, STOP = ([_NUMBER[part, size] for size in END_CELLS] for part in ("start", "stop"))
HOUR, BANDS = _NUMBER["hour", 0.0], [_NUMBER[part, 0.0] for part in ("length", "duration", "speed")]

_SLOTS = round(24 / HOURS)  # of the day
_SIZES, _SHIFTS = np.array(END_CELLS)[:, None], np.array(SHIFTS)
_BANDS_TO_E = np.array([[LENGTH_BANDS], [DURATION_BANDS], [SPEED_BANDS]])


def place_words(places: Array) -> Keys:
    """Returns the words of places (2, n) on the grid of the earth: (n, sizes of :data:`END_CELLS`, grids)."""
    row, column = (v.astype(np.int64).view(np.uint64) for v in cells(places[:, :, None, None], _SIZES, _SHIFTS))
    return mix(row, column)


def hour_words(local: Array) -> Keys:
    """Returns the words of the local times at which trips begin: (n, grids)."""
    slots: NDArray[np.int64] = np.floor((local % DAY / DAY * _SLOTS)[:, None] + _SHIFTS).astype(np.int64) % _SLOTS
    return slots.view(np.uint64)


def band_words(motion: Array) -> Keys:
    """Returns the words of the lengths, durations and speeds of trips, from their motion: (n, 3, grids)."""
    bands: NDArray[np.int64] = np.floor(_BANDS_TO_E * motion[:, :3, None] + _SHIFTS).astype(np.int64)
    return bands.view(np.uint64)


def _word_numbers(parts_of: Sequence[tuple[tuple[str, ...], float]]) -> NDArray[np.int64]:
    """Returns, for each habit, the numbers of its words, (habits, most words), filled up with 0."""
    rows = [[_NUMBER[part, size if part in ("start", "stop") else 0.0] for part in parts] for parts, size in parts_of]
    most = max(map(len, rows))
    return np.array([row + [0] * (most - len(row)) for row in rows])


LOOKED_UP = _word_numbers([(h.now, h.size) for h in TRIP_HABITS])
_REMEMBERED = _word_numbers([(h.past, h.size) for h in TRIP_HABITS])
# A key counts past trips by their parts, so habits with the same ``past`` parts share a key.
_KINDS = list(dict.fromkeys((h.past, h.size) for h in TRIP_HABITS))
SALTS = np.array(
    [[(1 << 32) + GRIDS * _KINDS.index((h.past, h.size)) + g for g in range(GRIDS)] for h in TRIP_HABITS], np.uint64
)


@cache
def _rounds(which: str, habits: tuple[int, ...]) -> tuple[Keys, tuple[tuple[Array, Array], ...]]:
    """Returns the salts of habits; then, for the first, second, ... word, the habits that have one, and these words."""
    numbers = (LOOKED_UP if which == "now" else _REMEMBERED)[list(habits)]
    rounds = ((np.flatnonzero(column), column[column > 0]) for column in numbers.T)
    return SALTS[list(habits)], tuple((here, words) for here, words in rounds if len(here))


ALL_HABITS = tuple(range(len(TRIP_HABITS)))


def mixed(words: Keys, which: str, habits: tuple[int, ...] = ALL_HABITS) -> Keys:
    """Hashes the words of trips (trips, words, grids) into keys (trips, habits, grids): a salt, then word after word.

    ``which`` is "now" for the keys that a trip looks up, "past" for those by which a memory counts it.
    """
    salts, rounds = _rounds(which, habits)
    keys = np.repeat(salts[None], len(words), axis=0)
    for here, column in rounds:
        keys[:, here] = mix(keys[:, here], words[:, column])
    return keys


def motion_of(sums: Array) -> NDArray[np.float64]:
    """Returns the quantities that :data:`MOTION` names, (trips, 7), from sums over the rows of trips, (8, trips).

    The sums are distances, seconds, rows, speeds, squares of speeds and rows without motion, over all rows but the
    first of each path; then come the highest speed, and the distance between the first and the last row.
    """
    length, duration, moving, speeds, squares, standing, highest, apart = sums
    duration, moving = np.maximum(duration, 1.0), np.maximum(moving, 1.0)
    mean = speeds / moving
    found = np.zeros((7, len(length)))
    found[0], found[2], found[5] = length, length / duration, highest
    np.sqrt(np.maximum(squares / moving - mean * mean, 0.0), out=found[6])
    np.log1p(found, out=found)
    found[1], found[3], found[4] = np.log(duration), apart / (length + 100.0), standing / moving
    return found.T


class MotionSums:
    """Adds up, row by row, the sums for :func:`motion_of`: the one-row form of :attr:`TripRows.motion`.

    The sums may differ by rounding.
    """

    __slots__ = ("_duration", "_first", "_last", "_length", "_moving", "_squares", "_standing", "_sum", "_top")

    def __init__(self) -> None:
        self._first: Step | None = None
        self._last: Step | None = None
        self._length = self._duration = self._sum = self._squares = self._top = 0.0
        self._moving = self._standing = 0

    def add(self, step: Step) -> None:
        """Adds a row."""
        vx, vy = step.velocity
        speed = math.sqrt(vx * vx + vy * vy)
        self._top = max(self._top, speed)
        if self._last is None or step.first:
            self._first = self._first or step
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
    def sums(self) -> tuple[float, ...]:
        """Returns the sums over the rows so far."""
        assert self._first is not None
        assert self._last is not None
        (x0, y0), (x, y) = self._first.location, self._last.location
        totals = (self._length, self._duration, self._moving, self._sum, self._squares, self._standing, self._top)
        return *totals, math.hypot(x - x0, y - y0)
