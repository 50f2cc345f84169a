"""Familiarity: in how many past trips did the agent do something like this?

Each habit is a way in which a step can be like an earlier one: the same cell, the same cell in the same direction,
from the same origin, at the same hour, at such a speed, having come the same way. Habits are data; a habit turns steps
into keys, a :class:`~astray.mdp.memory.Memory` counts the trips in which the keys occurred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.mdp.memory import Memory
from astray.mdp.steps import Steps

Array = NDArray[Any]

DAY = 86_400.0
WEEK = 7 * DAY
GRIDS = 2  # each key is taken on two grids, half a cell apart, and the counts are averaged
STANDING = 0.5  # metres a second below which there is no direction of travel
SECTORS = 8


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
    hours: float | None = None  # the same stretch of the day, of so many hours
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


PLACE = tuple(Habit(cell=c) for c in (150, 500, 1500, 5000))
HEADING = tuple(Habit(cell=c, heading=True) for c in (300, 1000))
ORIGIN = (Habit(cell=200, origin=500), Habit(cell=500, origin=2000), Habit(cell=300, origin=500, heading=True))
HOUR = (Habit(cell=500, hours=2), Habit(cell=1000, heading=True, hours=3), Habit(origin=500, hours=2))
SPEED = (Habit(cell=200, speed=True), Habit(cell=1000, speed=True), Habit(speed=True))
WAY = (Habit(cell=150, trail=0), Habit(cell=500, trail=1))

DEFAULT_HABITS = PLACE + HEADING + ORIGIN + HOUR + SPEED + WAY
DEFAULT_LAGS = (60.0, 300.0)


def keys_of(steps: Steps, habits: Sequence[Habit], utc_offset: float = 0.0) -> NDArray[np.uint64]:
    """The keys of every step: an array of shape (steps, habits, grids), in memory habit by habit."""
    keys = np.empty((len(habits), GRIDS, len(steps)), np.uint64)
    places = (steps.location, steps.origin, *np.moveaxis(steps.trail, 1, 0))
    speed = np.hypot(steps.velocity[:, 0], steps.velocity[:, 1])
    turn = np.arctan2(steps.velocity[:, 1], steps.velocity[:, 0]) / (2 * np.pi) * SECTORS
    band = 2 * np.log2(np.maximum(speed, STANDING) / STANDING)
    local = steps.time + utc_offset
    hour = local % DAY / DAY
    # 1970-01-01 was a Thursday; days 2 and 3 of that count are the weekend.
    weekend = np.isin(np.floor(local / DAY) % 7, (2, 3)).astype(np.uint64)

    # Many habits ask for the same cell, sector, band or hour: each is made once.
    @cache
    def cell(which: int, size: float, shift: float) -> Array:
        ij = np.floor(places[which].T / size + shift).astype(np.int64).view(np.uint64)
        return _mix(ij[0], ij[1])

    @cache
    def sector(shift: float) -> Array:
        return np.where(speed < STANDING, SECTORS, np.floor(turn + shift) % SECTORS).astype(np.uint64)

    @cache
    def pace(shift: float) -> Array:
        return np.floor(band + shift).astype(np.uint64)

    @cache
    def slot(slots: int, shift: float) -> Array:
        return (np.floor(hour * slots + shift) % slots).astype(np.uint64)

    for grid in range(GRIDS):
        shift = grid / GRIDS
        for h, habit in enumerate(habits):
            key: Array = np.full(1, h * GRIDS + grid + 1, np.uint64)
            if habit.cell is not None:
                key = _mix(key, cell(0, habit.cell, shift))
            if habit.origin is not None:
                key = _mix(key, cell(1, habit.origin, shift))
            if habit.trail is not None:
                key = _mix(key, cell(2 + habit.trail, habit.cell or 1000.0, shift))
            if habit.heading:
                key = _mix(key, sector(shift))
            if habit.speed:
                key = _mix(key, pace(shift))
            if habit.hours is not None:
                key = _mix(key, slot(round(24 / habit.hours), shift))
            if habit.weekend:
                key = _mix(key, weekend)
            keys[h, grid] = key
    return keys.transpose(2, 0, 1)


def keys_by_trip(steps: Steps, habits: Sequence[Habit], utc_offset: float = 0.0) -> dict[int, NDArray[np.uint64]]:
    """The distinct keys of each trip (by its number in ``steps.trip``), as a memory takes them."""
    if not len(steps):
        return {}
    keys = keys_of(steps, habits, utc_offset).reshape(len(steps), -1)
    # Most steps stay in the cell of the step before: drop those repeats first, they are cheap to see.
    fresh = np.ones(keys.shape, bool)
    fresh[1:] = (keys[1:] != keys[:-1]) | (steps.trip[1:] != steps.trip[:-1])[:, None]
    starts = np.flatnonzero(np.r_[True, steps.trip[1:] != steps.trip[:-1]])
    ends = np.r_[starts[1:], len(steps)]
    return {int(steps.trip[a]): np.unique(keys[a:b][fresh[a:b]]) for a, b in zip(starts, ends, strict=True)}


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
    counts = memory.counts(rows.ravel()[run], None if without is None else without[run % n])
    logs = np.repeat(np.log1p(counts), np.diff(run, append=rows.size)).reshape(habits, grids, n)
    return np.asarray(logs.mean(axis=1, dtype=np.float32).T)


def _mix(a: Array, b: Array) -> NDArray[np.uint64]:
    """Hash two words into one (a multiply, xor-shift round as in SplitMix64, Steele et al. 2014)."""
    # Neighbouring cells are small numbers: spread the first word over all bits before the second one comes in.
    h = a * np.uint64(0x9E3779B97F4A7C15) + b
    shifted = h >> np.uint64(30)
    h ^= shifted
    h *= np.uint64(0xBF58476D1CE4E5B9)
    h ^= np.right_shift(h, np.uint64(27), out=shifted)
    h *= np.uint64(0x94D049BB133111EB)
    h ^= np.right_shift(h, np.uint64(31), out=shifted)
    return np.asarray(h)
