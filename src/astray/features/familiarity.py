"""Familiarity: in how many past trips did the agent do something like this?

Each habit is a way in which a step can be like an earlier one: the same cell, the same cell in the same direction,
from the same origin, at the same hour, at such a speed, having come the same way. Habits are data; a habit turns steps
into keys, a :class:`~astray.features.memory.Memory` counts the trips in which the keys occurred.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from astray.core.projection import Projection, Projections
from astray.features.grid import cell, cells
from astray.features.hashing import Word, changes, mix, mix_one
from astray.features.memory import Memory
from astray.features.steps import Steps

Array = NDArray[Any]

DAY = 86_400.0
WEEK = 7 * DAY
GRIDS = 2  # each key is taken on two grids, half a cell apart, and the counts are averaged
SHIFTS = tuple(grid / GRIDS for grid in range(GRIDS))  # of each grid, in cells
STANDING = 0.5  # metres a second below which there is no direction of travel
SECTORS = 8
FEW = 4000  # steps up to which all keys are made at once


@dataclass(frozen=True)
class Habit:
    """What two steps must have in common to count as the same.

    >>> Habit(cell=500, heading=True).name
    'cell 500 m, heading'
    """

    cell: float | None = None  # metres: the place reached lies in the same cell
    origin: float | None = None  # metres: the path began in the same cell
    heading: bool = False  # the same of eight directions, or standing
    speed: bool = False  # the same band of speed (bands grow by sqrt 2)
    hours: float | None = None  # the same part of the day, of so many hours
    weekend: bool = False  # both on a working day, or both on a weekend
    trail: int | None = None  # came from the same cell, as many seconds ago as this lag of the steps says

    @property
    def name(self) -> str:
        """The habit in a few words."""
        parts = [
            f"cell {self.cell:g} m" if self.cell else "",
            f"origin {self.origin:g} m" if self.origin else "",
            "heading" if self.heading else "",
            "speed" if self.speed else "",
            f"{self.hours:g} h of day" if self.hours else "",
            "weekend" if self.weekend else "",
            f"way {self.trail}" if self.trail is not None else "",
        ]
        return ", ".join(p for p in parts if p)

    def salt(self, grid: int) -> int:
        """The number that the habit's keys on a grid begin with."""
        return crc32(self.name.encode()) * GRIDS + grid + 1


PLACE = tuple(Habit(cell=c) for c in (150, 500, 1500, 5000))
HEADING = tuple(Habit(cell=c, heading=True) for c in (300, 1000))
ORIGIN = (Habit(cell=200, origin=500), Habit(cell=500, origin=2000), Habit(cell=300, origin=500, heading=True))
HOUR = (Habit(cell=500, hours=2), Habit(cell=1000, heading=True, hours=3), Habit(origin=500, hours=2))
SPEED = (Habit(cell=200, speed=True), Habit(cell=1000, speed=True), Habit(speed=True))
WAY = (Habit(cell=150, trail=0), Habit(cell=500, trail=1))

DEFAULT_HABITS = PLACE + HEADING + ORIGIN + HOUR + SPEED + WAY
DEFAULT_LAGS = (60.0, 300.0)


class Frame(NamedTuple):
    """Where on the earth the metres of steps begin, and what local time is there.

    Keys depend on places and local times alone, so that one agent's steps can be looked up in another one's memory.
    """

    projection: Projection = Projection(0.0, 0.0)
    utc_offset: float = 0.0


GRID_ORIGIN = Frame()


class Frames(NamedTuple):
    """The frames of as many steps, each its own."""

    projection: Projections
    utc_offset: Array

    @classmethod
    def of(cls, frames: Sequence[Frame]) -> Frames:
        """Some frames, one after the other."""
        offsets = np.array([frame.utc_offset for frame in frames])
        return cls(Projections.of(frame.projection for frame in frames), offsets)


def keys_of(steps: Steps, habits: Sequence[Habit], frame: Frame = GRID_ORIGIN) -> NDArray[np.uint64]:
    """The keys of every step: an array of shape (steps, habits, grids), in memory key by key."""
    if len(steps) <= FEW:
        return few_keys(steps, habits, frame)
    keys = np.empty((len(habits), GRIDS, len(steps)), np.uint64)
    for h, grid, key in _keys(steps, habits, frame):
        keys[h, grid] = key.spread(key.hashes)
    return keys.transpose(2, 0, 1)


def few_keys(steps: Steps, habits: Sequence[Habit], frame: Frame | Frames = GRID_ORIGIN) -> NDArray[np.uint64]:
    """The same for few steps, those of a trip or two: all keys at once, which does not gain from what steps share.

    Steps of many agents may each have a frame of its own.
    """
    plan = _plan_of(tuple(habits))
    vx, vy = steps.velocity.T
    speed, local = np.sqrt(vx * vx + vy * vy), steps.time + frame.utc_offset
    at = (steps.location, steps.origin, *(steps.trail[:, k] for k in range(steps.trail.shape[1])))

    def cell_words(which: Array, size: Array, shift: Array) -> Array:
        places = np.stack([frame.projection.to_grid(at[k]) for k in range(int(which.max()) + 1)], axis=1)
        row, column = cells(places[:, which[:, 0].astype(np.intp)], size, shift)
        return mix(_as_words(row), _as_words(column))

    def sectors(shift: Array) -> Array:
        ways = np.floor(_turn(vx, vy) + shift).astype(np.int64) & (SECTORS - 1)
        ways[:, speed < STANDING] = SECTORS
        return _as_words(ways)

    def slots(of_a_day: Array, shift: Array) -> Array:
        found = np.floor(_share_of_day(local) * of_a_day + shift)
        return _as_words(found * (found < of_a_day))  # the last half of a slot is the first one again

    made: dict[str, Callable[..., Array]] = {
        "cell": cell_words,
        "sector": sectors,
        "pace": lambda shift: _as_words(np.floor(_band(speed) + shift)),
        "slot": slots,
        "weekend": lambda: _as_words(_is_weekend(local)),
    }
    words = np.empty((len(plan.words), len(steps)), np.uint64)
    for kind, numbers, given in plan.columns:
        words[numbers] = made[kind](*given)
    keys = np.repeat(np.array(plan.salts, np.uint64)[:, None], len(steps), axis=1)
    for some, word in plan.rounds:
        keys[some] = mix(keys[some], words[word])
    return keys.reshape(len(habits), GRIDS, len(steps)).transpose(2, 0, 1)


def _as_words(values: Array) -> NDArray[np.uint64]:
    return values.astype(np.int64).view(np.uint64)


def _turn(vx: Array, vy: Array) -> Array:
    """The direction of travel, in sectors."""
    return np.asarray(np.arctan2(vy, vx) / (2 * np.pi) * SECTORS)


def _band(speed: Array) -> Array:
    """The band of a speed; bands grow by sqrt 2."""
    return np.asarray(2 * np.log2(np.maximum(speed, STANDING) / STANDING))


def _share_of_day(local: Array) -> Array:
    """The share of the day that has passed: ``local % DAY / DAY`` in a fraction of the time."""
    seconds = local - np.floor(local / DAY) * DAY
    return np.where(seconds < 0, seconds + DAY, seconds) / DAY


def _is_weekend(local: Array) -> Array:
    # 1970-01-01 was a Thursday; days 2 and 3 of that count are the weekend.
    return np.isin(np.floor(local / DAY) % 7, (2, 3))


class _Place(NamedTuple):
    """Where steps are on the grid of the earth, (2, n); each for one step, or for ``lasts`` of them."""

    places: Array
    lasts: Array | None = None

    def cells(self, size: float, shift: float) -> Word:
        """The cells of a grid that they lie in."""
        row, column = cells(self.places, size, shift)
        south, west = row.min(), column.min()
        wide = int(column.max() - west) + 1
        number = (row - south) * wide + (column - west)
        found = Word.of(number.astype(np.int64), (int(row.max() - south) + 1) * wide)
        rows = found.values // wide
        columns = found.values - rows * wide
        hashed = found.hashed(mix((rows + int(south)).view(np.uint64), (columns + int(west)).view(np.uint64)))
        return hashed if self.lasts is None else hashed.lasting(self.lasts)


class _Plan(NamedTuple):
    """How keys are put together: the words that habits ask for, each once, and the words of every key."""

    words: tuple[tuple[Any, ...], ...]  # a kind, and what is to be known of it
    salts: tuple[int, ...]  # of each key, habit by habit, grid by grid
    keys: tuple[tuple[int, ...], ...]  # the words of each key
    serves: tuple[tuple[int, ...], ...]  # the keys that each word is part of
    columns: tuple[tuple[str, Array, tuple[Array, ...]], ...]  # each kind, its words, what is known of them as columns
    rounds: tuple[tuple[Array, Array], ...]  # the keys that have a first, second, ... word, and these words

    def of_kind(self, kind: str) -> tuple[tuple[Any, ...], ...]:
        """The number of each word of a kind, and what is to be known of it."""
        return tuple((w, *given) for w, (name, *given) in enumerate(self.words) if name == kind)


@lru_cache(maxsize=16)
def _plan_of(habits: tuple[Habit, ...]) -> _Plan:
    words: dict[tuple[Any, ...], int] = {}
    keys: list[tuple[int, ...]] = []
    for habit in habits:
        for shift in SHIFTS:
            parts: list[tuple[Any, ...]] = []
            if habit.cell is not None:
                parts.append(("cell", 0, habit.cell, shift))
            if habit.origin is not None:
                parts.append(("cell", 1, habit.origin, shift))
            if habit.trail is not None:
                parts.append(("cell", 2 + habit.trail, habit.cell or 1000.0, shift))
            if habit.heading:
                parts.append(("sector", shift))
            if habit.speed:
                parts.append(("pace", shift))
            if habit.hours is not None:
                parts.append(("slot", round(24 / habit.hours), shift))
            if habit.weekend:
                parts.append(("weekend",))
            keys.append(tuple(words.setdefault(part, len(words)) for part in parts))
    salts = tuple(habit.salt(grid) for habit in habits for grid in range(GRIDS))
    serves = tuple(tuple(k for k, parts in enumerate(keys) if w in parts) for w in range(len(words)))
    columns = []
    for kind in dict.fromkeys(kind for kind, *_ in words):
        known = [(w, *given) for (of, *given), w in words.items() if of == kind]
        numbers, *given = (np.array(column, np.float64)[:, None] for column in zip(*known, strict=True))
        columns.append((kind, numbers[:, 0].astype(np.intp), tuple(given)))
    rounds = []
    for i in range(max(map(len, keys), default=0)):
        some = [k for k, parts in enumerate(keys) if len(parts) > i]
        rounds.append((np.array(some), np.array([keys[k][i] for k in some])))
    return _Plan(tuple(words), salts, tuple(keys), serves, tuple(columns), tuple(rounds))


def _keys(steps: Steps, habits: Sequence[Habit], frame: Frame) -> Iterator[tuple[int, int, Word]]:
    """The keys of steps, habit by habit, grid by grid.

    The different keys of many steps are few, for trips share streets; only they are hashed and looked up.
    """
    if not len(steps):
        return
    plan = _plan_of(tuple(habits))
    words = _words(steps, frame, plan.words)
    for k, (salt, parts) in enumerate(zip(plan.salts, plan.keys, strict=True)):
        begin = np.full(1, salt, np.uint64)
        if parts:
            first = words[parts[0]]
            key = reduce(Word.then, (words[w] for w in parts[1:]), first.hashed(mix(begin, first.hashes)))
        else:
            key = Word.of(np.zeros(len(steps), np.int64), 1).hashed(begin)
        yield k // GRIDS, k % GRIDS, key


def _words(steps: Steps, frame: Frame, wanted: Sequence[tuple[Any, ...]]) -> list[Word]:
    """The words of a plan, of every step."""
    local = steps.time + frame.utc_offset
    vx, vy = steps.velocity.T
    speed = np.sqrt(vx * vx + vy * vy)

    # Many words are of the same place, direction, speed or hour: each of these is made once.
    @cache
    def place(which: int) -> _Place:
        if which != 1:
            return _Place(frame.projection.to_grid(steps.location if which == 0 else steps.trail[:, which - 2]))
        # The origin is what a path keeps: only where it changes it is looked at.
        starts = np.flatnonzero(changes(steps.origin[:, 0]) | changes(steps.origin[:, 1]))
        return _Place(frame.projection.to_grid(steps.origin[starts]), np.diff(starts, append=len(steps)))

    turn, band, hour = cache(lambda: _turn(vx, vy)), cache(lambda: _band(speed)), cache(lambda: _share_of_day(local))

    def cell_word(which: int, size: float, shift: float) -> Word:
        return place(which).cells(size, shift)

    def sector(shift: float) -> Word:
        # The rest of a division by a power of two, of negative numbers as well.
        ways = np.floor(turn() + shift).astype(np.int64) & (SECTORS - 1)
        ways[speed < STANDING] = SECTORS
        return Word.of(ways, SECTORS + 1)

    def pace(shift: float) -> Word:
        bands = np.floor(band() + shift).astype(np.int64)
        return Word.of(bands, int(bands.max()) + 1)

    def slot(slots: int, shift: float) -> Word:
        found = np.floor(hour() * slots + shift)
        found *= found < slots  # the last half of a slot is the first one again
        return Word.of(found.astype(np.int64), slots)

    def weekend() -> Word:
        return Word.of(_is_weekend(local).astype(np.int64), 2)

    made: dict[str, Callable[..., Word]] = {
        "cell": cell_word,
        "sector": sector,
        "pace": pace,
        "slot": slot,
        "weekend": weekend,
    }
    return [made[kind](*given) for kind, *given in wanted]


class StepKeys:
    """The keys of one step after another, for a live feed: to the last bit those of :func:`keys_of`.

    A call of numpy costs the same for one row as for a hundred, and :func:`keys_of` makes some seven hundred of them.
    Here plain integers do; and since a step mostly stays in the cells of the step before, only keys of which a word
    has changed are made anew.

    >>> keys = StepKeys((Habit(cell=500), Habit(cell=500, speed=True)))
    >>> keys(0.0, ((120.0, 30.0),), (3.0, 4.0)).shape, keys.changed
    ((4,), True)
    """

    __slots__ = (
        *("_cells", "_frame", "_keys", "_last", "_paces", "_places", "_plan", "_sectors", "_slots", "_weekends"),
        "changed",
    )

    def __init__(self, habits: Sequence[Habit], frame: Frame = GRID_ORIGIN) -> None:
        self._frame = frame
        self.changed = True  # whether the last step has other keys than the one before
        self._plan = _plan_of(tuple(habits))
        self._last: list[Any] = [None] * len(self._plan.serves)
        self._cells, self._sectors, self._paces, self._slots, self._weekends = (
            self._plan.of_kind(kind) for kind in ("cell", "sector", "pace", "slot", "weekend")
        )
        self._places: list[Any] = [None] * (1 + max((which for _, which, _, _ in self._cells), default=0))
        self._keys = np.array(self._plan.salts, np.uint64)

    def __call__(
        self, time: float, places: Sequence[tuple[float, float]], velocity: tuple[float, float]
    ) -> NDArray[np.uint64]:
        """The keys of a step, habit by habit, grid by grid; the array is overwritten by the next step.

        ``places`` are the place reached, the origin, and where the agent was some lags before.
        """
        vx, vy = velocity
        speed = math.sqrt(vx * vx + vy * vy)
        # numpy's own functions, for the last bit of another library's may differ.
        turn = float(np.arctan2(vy, vx)) / (2 * np.pi) * SECTORS
        band = 2 * float(np.log2(max(speed, STANDING) / STANDING))
        local = time + self._frame.utc_offset
        hour = local % DAY / DAY
        plan, floor, grid_place = self._plan, math.floor, self._frame.projection.grid_place
        now = list(self._last)
        moved = [place != last for place, last in zip(places, self._places, strict=False)]
        on_grid = [grid_place(*place) if m else None for place, m in zip(places, moved, strict=False)]
        self._places[: len(moved)] = places[: len(moved)]
        for w, which, size, shift in self._cells:
            here = on_grid[which]
            if here is not None:
                now[w] = cell(here[0], here[1], size, shift)
        for w, shift in self._sectors:
            now[w] = SECTORS if speed < STANDING else floor(turn + shift) % SECTORS
        for w, shift in self._paces:
            now[w] = floor(band + shift)
        for w, slots, shift in self._slots:
            now[w] = floor(hour * slots + shift) % slots
        for (w,) in self._weekends:
            now[w] = int(floor(local / DAY) % 7 in (2, 3))
        self.changed = now != self._last
        if self.changed:
            changed = [w for w, (a, b) in enumerate(zip(now, self._last, strict=True)) if a != b]
            self._last = now
            for k in {k for w in changed for k in plan.serves[w]}:
                key = plan.salts[k]
                for w in plan.keys[k]:
                    key = mix_one(key, word_of(now[w]))
                self._keys[k] = key
        return self._keys


def keys_by_trip(steps: Steps, habits: Sequence[Habit], frame: Frame = GRID_ORIGIN) -> dict[int, NDArray[np.uint64]]:
    """The distinct keys of each trip (by its number in ``steps.trip``), as a memory takes them."""
    if not len(steps):
        return {}
    keys = keys_of(steps, habits, frame).reshape(len(steps), -1)
    # Most steps stay in the cell of the step before: drop those repeats first, they are cheap to see.
    fresh = np.ones(keys.shape, bool)
    fresh[1:] = (keys[1:] != keys[:-1]) | (steps.trip[1:] != steps.trip[:-1])[:, None]
    starts = np.flatnonzero(np.r_[True, steps.trip[1:] != steps.trip[:-1]])
    ends = np.r_[starts[1:], len(steps)]
    return {int(steps.trip[a]): np.unique(keys[a:b][fresh[a:b]]) for a, b in zip(starts, ends, strict=True)}


def familiarity_of(
    steps: Steps,
    habits: Sequence[Habit],
    memory: Memory,
    frame: Frame = GRID_ORIGIN,
    without: Array | None = None,
    out: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """The familiarity of steps: what :func:`familiarity` says of their keys; in memory habit by habit.

    ``out`` is where it is to stand, (steps, habits), if that is known.
    """
    found = np.empty((len(habits), len(steps)), np.float32) if out is None else out.T
    found[:] = 0.0
    if not found.size:
        return found.T
    own = None if without is None else Word.of(without + 1, int(without.max()) + 2)
    keys: list[tuple[int, Word]] = []
    for h, _, key in _keys(steps, habits, frame):
        if own is None:
            keys.append((h, key))
        else:
            both, one, two = key.pairs(own)
            found[h] += both.spread(memory.log_counts(key.hashes.take(one), own.values.take(two) - 1))
    if keys:
        # One look-up of all keys is cheaper than one for each habit.
        logs = memory.log_counts(np.concatenate([key.hashes for _, key in keys]))
        ends = np.cumsum([len(key.hashes) for _, key in keys])
        for (h, key), of_key in zip(keys, np.split(logs, ends[:-1]), strict=True):
            found[h] += key.spread(of_key)
    found /= GRIDS
    return found.T


def familiarity(keys: Array, memory: Memory, without: Array | None = None) -> NDArray[np.float32]:
    """log(1 + count) of every habit, averaged over the grids: an array of shape (steps, habits)."""
    n, habits, grids = keys.shape
    rows = keys.transpose(1, 2, 0).reshape(habits * grids, n)
    # A step mostly has the key of the step before, for a cell is larger than a step: look every run of equals up once.
    fresh = np.ones(rows.shape, bool)
    np.not_equal(rows[:, 1:], rows[:, :-1], out=fresh[:, 1:])
    if without is not None:
        fresh[:, 1:] |= without[1:] != without[:-1]
    run = np.flatnonzero(fresh)
    logs = memory.log_counts(rows.ravel()[run], None if without is None else without[run % n])
    logs = np.repeat(logs, np.diff(run, append=rows.size)).reshape(habits, grids, n)
    return np.asarray(logs.mean(axis=1, dtype=np.float32).T)


def few_familiarity(keys: Array, memories: Sequence[Memory]) -> NDArray[np.float32]:
    """What :func:`familiarity` says of few keys (memories, habits, grids) to each memory, to the last bit.

    No look-up table is made and kept.
    """
    counts = [memory.few_counts(own.ravel()) for memory, own in zip(memories, keys, strict=True)]
    logs = np.log1p(np.array(counts)).reshape(keys.shape)
    found: NDArray[np.float32] = np.add.reduce(logs, axis=-1) / GRIDS
    return found


def word_of(value: int | tuple[int, int]) -> int:
    """A cell, or a small number, as a word of 64 bits."""
    return value if isinstance(value, int) else mix_one(*value)
