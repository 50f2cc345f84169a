"""Familiarity: the number of past trips in which the agent did something similar.

A habit defines what two steps must share to count as the same: the cell, the cell and the direction, the origin of the
trip, the hour, the speed, the way taken. Each habit turns a step into keys (hashes), and a
:class:`~astray.features.memory.Memory` counts the trips in which each key occurred.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from astray.core.projection import Projection, Projections
from astray.features.grid import cells, row_narrowing
from astray.features.hashing import mix, mix_one
from astray.features.memory import Memory
from astray.features.steps import Step, Steps

Array = NDArray[Any]

DAY = 86_400.0
WEEK = 7 * DAY
GRIDS = 2  # every habit has a key on each of two grids, half a cell apart; their counts are averaged
SHIFTS = tuple(grid / GRIDS for grid in range(GRIDS))  # of each grid, in cells
STANDING = 0.5  # metres per second; below that an agent has no direction of travel
SECTORS = 8
AT_ONCE = 4000  # steps whose keys are made together, few enough for the processor's cache


@dataclass(frozen=True)
class Habit:
    """The properties that two steps must share to count as the same.

    >>> Habit(cell=500, heading=True).name
    'cell 500 m, heading'
    """

    cell: float | None = None  # metres: the place reached lies in the same cell
    origin: float | None = None  # metres: the path began in the same cell
    heading: bool = False  # the same of eight directions, or standing
    speed: bool = False  # the same band of speed (bands grow by sqrt 2)
    hours: float | None = None  # the same part of the day; a part lasts this many hours
    weekend: bool = False  # both on a working day, or both on a weekend
    trail: int | None = None  # was in the same cell some time ago; the position of that time among the lags

    @property
    def name(self) -> str:
        """Names the habit in a few words."""
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
        """Returns the number from which the habit's keys on a grid are hashed."""
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
    """The projection of steps, and the seconds by which local time there is ahead of UTC.

    Keys depend only on places and local times, so one agent's steps can be looked up in another agent's memory.
    """

    projection: Projection = Projection(0.0, 0.0)
    utc_offset: float = 0.0


GRID_ORIGIN = Frame()


class Frames(NamedTuple):
    """The frames of many steps, one for each step, for steps of several agents."""

    projection: Projections
    utc_offset: Array

    @classmethod
    def of(cls, frames: Sequence[Frame]) -> Frames:
        """Joins single frames into arrays."""
        offsets = np.array([frame.utc_offset for frame in frames])
        return cls(Projections.of(frame.projection for frame in frames), offsets)

    def rows(self, rows: slice) -> Frames:
        """Returns the frames of some of the steps."""
        return Frames(Projections(*(values[rows] for values in self.projection)), self.utc_offset[rows])


def keys_of(steps: Steps, habits: Sequence[Habit], frame: Frame | Frames = GRID_ORIGIN) -> NDArray[np.uint64]:
    """Returns the keys of every step: (steps, habits, grids), stored key by key.

    Steps of several agents may each have their own frame.
    """
    keys = np.empty((len(habits) * GRIDS, len(steps)), np.uint64)
    for start in range(0, len(steps), AT_ONCE):
        rows = slice(start, start + AT_ONCE)
        own = frame if isinstance(frame, Frame) else frame.rows(rows)
        _put_keys(steps if len(steps) <= AT_ONCE else steps[rows], _plan_of(tuple(habits)), own, keys[:, rows])
    return keys.reshape(len(habits), GRIDS, len(steps)).transpose(2, 0, 1)


def _put_keys(steps: Steps, plan: _Plan, frame: Frame | Frames, keys: Array) -> None:
    """Writes the keys of steps into ``keys``, (keys, steps)."""
    vx, vy = steps.velocity.T
    speed, local = np.sqrt(vx * vx + vy * vy), steps.time + frame.utc_offset
    at = (steps.location, steps.origin, *(steps.trail[:, k] for k in range(steps.trail.shape[1])))

    def cell_words(which: Array, size: Array, shift: Array) -> Array:
        needed = np.stack([places.T for places in at[: int(which.max()) + 1]]).swapaxes(1, 2)
        places = frame.projection.to_grid(needed)
        row, column = cells(places[:, which[:, 0].astype(np.intp)], size, shift)
        return mix(_as_words(row), _as_words(column))

    def sector_words(shift: Array) -> Array:
        turn = np.arctan2(vy, vx) / (2 * np.pi) * SECTORS
        sectors = np.floor(turn + shift).astype(np.int64) & (SECTORS - 1)  # modulo a power of two
        sectors[:, speed < STANDING] = SECTORS
        return _as_words(sectors)

    def pace_words(shift: Array) -> Array:
        return _as_words(np.floor(2 * np.log2(np.maximum(speed, STANDING) / STANDING) + shift))

    def slot_words(slots: Array, shift: Array) -> Array:
        seconds = local - np.floor(local / DAY) * DAY  # local % DAY in a fraction of the time
        found = np.floor(np.where(seconds < 0, seconds + DAY, seconds) / DAY * slots + shift)
        return _as_words(found * (found < slots))  # the last half of a slot belongs to the first one

    def weekend_words() -> Array:
        # 1970-01-01 was a Thursday; days 2 and 3 of that count are the weekend.
        return _as_words(np.isin(np.floor(local / DAY) % 7, (2, 3)))

    make: dict[str, Callable[..., Array]] = {
        "cell": cell_words,
        "sector": sector_words,
        "pace": pace_words,
        "slot": slot_words,
        "weekend": weekend_words,
    }
    words = np.empty((len(plan.serves), len(steps)), np.uint64)
    for kind, numbers, parameters in plan.columns:
        words[numbers] = make[kind](*parameters)
    for i, (some, word) in enumerate(plan.rounds):
        keys[some] = mix(keys[some] if i else plan.salt_column[some], words[word])
    if plan.bare:
        keys[plan.bare] = plan.salt_column[plan.bare]


def _as_words(values: Array) -> NDArray[np.uint64]:
    return values.astype(np.int64).view(np.uint64)


class _Plan(NamedTuple):
    """The way to build the keys of some habits. A key is a hash of words, 64-bit numbers such as a cell or an hour."""

    salts: tuple[int, ...]  # of each key, habit by habit, grid by grid
    keys: tuple[tuple[int, ...], ...]  # the numbers of the words of each key
    serves: tuple[tuple[int, ...], ...]  # the keys that each word is part of
    of_kind: dict[str, tuple[tuple[Any, ...], ...]]  # the number and the parameters of each word, by its kind
    places: int  # how many of the places of a step the words need
    # The same for arrays.
    salt_column: NDArray[np.uint64]
    bare: list[int]  # keys without a word: their salt is the key
    columns: list[tuple[str, Array, tuple[Array, ...]]]  # each kind, its words, their parameters as columns
    rounds: list[tuple[Array | slice, Array]]  # the keys that have a first, second, ... word, and these words


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
    of_kind = {
        kind: tuple((w, *parameters) for (of, *parameters), w in words.items() if of == kind)
        for kind in ("cell", "sector", "pace", "slot", "weekend")
    }
    columns = []
    for kind, known in of_kind.items():
        if known:
            numbers, *parameters = (np.array(column, np.float64)[:, None] for column in zip(*known, strict=True))
            columns.append((kind, numbers[:, 0].astype(np.intp), tuple(parameters)))
    rounds: list[tuple[Array | slice, Array]] = []
    for i in range(max(map(len, keys), default=0)):
        some = [k for k, parts in enumerate(keys) if len(parts) > i]
        rounds.append((slice(None) if len(some) == len(keys) else np.array(some), np.array([keys[k][i] for k in some])))
    column, bare = np.array(salts, np.uint64)[:, None], [k for k, parts in enumerate(keys) if not parts]
    places = 1 + max((which for _, which, _, _ in of_kind["cell"]), default=0)
    return _Plan(salts, tuple(keys), serves, of_kind, places, column, bare, columns, rounds)


class StepKeys:
    """Makes the keys of one step after another, equal to those of :func:`keys_of`.

    This is the one-row form of :func:`keys_of`, for a live feed: 30 instead of 150 microseconds per step, because numpy
    takes as long for one row as for a hundred. A step mostly stays in the cells of the step before it, so only keys
    with a changed word are hashed again.

    >>> keys = StepKeys((Habit(cell=500), Habit(cell=500, speed=True)))
    >>> keys(Step(0.0, (120.0, 30.0), (3.0, 4.0), 0.0, (0.0, 0.0), 0.0, (), True)).shape, keys.changed
    ((2, 2), True)
    """

    __slots__ = ("_frame", "_keys", "_last", "_narrowing", "_places", "_plan", "changed")

    def __init__(self, habits: Sequence[Habit], frame: Frame = GRID_ORIGIN) -> None:
        self._frame = frame
        self.changed = True  # whether the last step has other keys than the one before
        self._plan = _plan_of(tuple(habits))
        self._last: list[Any] = [None] * len(self._plan.serves)
        self._narrowing = [1.0] * len(self._last)  # of the row of each cell
        self._places: list[Any] = [None] * self._plan.places
        self._keys = self._plan.salt_column[:, 0].copy()

    def __call__(self, step: Step) -> NDArray[np.uint64]:
        """Returns the keys of a step: (habits, grids); the next step overwrites the array."""
        vx, vy = step.velocity
        speed = math.sqrt(vx * vx + vy * vy)
        # Use numpy's functions: those of another library may differ in the last bit.
        turn = float(np.arctan2(vy, vx)) / (2 * np.pi) * SECTORS
        band = 2 * float(np.log2(max(speed, STANDING) / STANDING))
        local = step.time + self._frame.utc_offset
        hour = local % DAY / DAY
        plan, floor, grid_place, narrowing = self._plan, math.floor, self._frame.projection.grid_place, self._narrowing
        of_kind = plan.of_kind
        now = list(self._last)
        places = (step.location, step.origin, *step.trail)
        moved = [place != last for place, last in zip(places, self._places, strict=False)]
        on_grid = [grid_place(*place) if m else None for place, m in zip(places, moved, strict=False)]
        self._places[: len(moved)] = places[: len(moved)]
        for w, which, size, shift in of_kind["cell"]:
            here = on_grid[which]
            if here is not None:
                row, last = floor(here[1] / size + shift), now[w]
                if last is None or last[0] != row:
                    narrowing[w] = row_narrowing(row, size, shift)
                now[w] = row, floor(here[0] * narrowing[w] / size + shift)
        for w, shift in of_kind["sector"]:
            now[w] = SECTORS if speed < STANDING else floor(turn + shift) % SECTORS
        for w, shift in of_kind["pace"]:
            now[w] = floor(band + shift)
        for w, slots, shift in of_kind["slot"]:
            now[w] = floor(hour * slots + shift) % slots
        for (w,) in of_kind["weekend"]:
            now[w] = int(floor(local / DAY) % 7 in (2, 3))
        self.changed = now != self._last
        if self.changed:
            changed = [w for w, (a, b) in enumerate(zip(now, self._last, strict=True)) if a != b]
            self._last = now
            for k in {k for w in changed for k in plan.serves[w]}:
                key = plan.salts[k]
                for w in plan.keys[k]:
                    value = now[w]
                    key = mix_one(key, value if isinstance(value, int) else mix_one(*value))
                self._keys[k] = key
        return self._keys.reshape(-1, GRIDS)


def keys_by_trip(steps: Steps, habits: Sequence[Habit], frame: Frame = GRID_ORIGIN) -> dict[int, NDArray[np.uint64]]:
    """Returns the distinct keys of each trip, by its number in ``steps.trip``, as a memory takes them."""
    if not len(steps):
        return {}
    keys = keys_of(steps, habits, frame).reshape(len(steps), -1)
    # Most steps stay in the cell of the step before. These repeats are cheap to find, so drop them first.
    fresh = np.ones(keys.shape, bool)
    fresh[1:] = (keys[1:] != keys[:-1]) | (steps.trip[1:] != steps.trip[:-1])[:, None]
    starts = np.flatnonzero(np.r_[True, steps.trip[1:] != steps.trip[:-1]])
    ends = np.r_[starts[1:], len(steps)]
    return {int(steps.trip[a]): np.unique(keys[a:b][fresh[a:b]]) for a, b in zip(starts, ends, strict=True)}


def familiarity(
    keys: Array, memory: Memory, without: Array | None = None, before: Array | None = None
) -> NDArray[np.float32]:
    """Returns log(1 + count) of every habit, averaged over the grids: (steps, habits), stored habit by habit.

    ``without`` gives, for each step, the number of a remembered trip to ignore; -1 for none. ``before`` gives, for each
    step, how many of the first trips to count; by default all.
    """
    n, habits, grids = keys.shape
    rows = keys.transpose(1, 2, 0).reshape(habits * grids, n)
    # A cell is larger than a step, so a step mostly has the same key as the one before: look up each run of them once.
    fresh = np.ones(rows.shape, bool)
    np.not_equal(rows[:, 1:], rows[:, :-1], out=fresh[:, 1:])
    for of_step in (without, before):
        if of_step is not None:
            fresh[:, 1:] |= of_step[1:] != of_step[:-1]
    run = np.flatnonzero(fresh)
    of_runs = [None if of_step is None else of_step[run % n] for of_step in (without, before)]
    logs = memory.log_counts(rows.ravel()[run], *of_runs)
    logs = np.repeat(logs, np.diff(run, append=rows.size)).reshape(habits, grids, n)
    return np.asarray(logs.mean(axis=1, dtype=np.float32).T)


def familiarity_of(
    steps: Steps, habits: Sequence[Habit], memory: Memory, frame: Frame, without: Array | None = None
) -> NDArray[np.float32]:
    """Returns the :func:`familiarity` of steps, some at a time, because the keys of all would take too much memory."""
    found = np.empty((len(habits), len(steps)), np.float32)
    for start in range(0, len(steps), AT_ONCE):
        rows = slice(start, start + AT_ONCE)
        keys = keys_of(steps[rows], habits, frame)
        found[:, rows] = familiarity(keys, memory, None if without is None else without[rows]).T
    return found.T


def familiarity_to_each(keys: Array, memories: Sequence[Memory]) -> NDArray[np.float32]:
    """Returns the :func:`familiarity` of each row of keys (rows, habits, grids), each with a different memory."""
    counts = [memory.counts(own) for memory, own in zip(memories, keys, strict=True)]
    found: NDArray[np.float32] = np.add.reduce(np.log1p(np.array(counts)), axis=-1) / GRIDS
    return found
