"""Living: from what a person means to do, through the streets, to what the logger records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from astray.simulate.changes import Phase, note
from astray.simulate.diary import Diary
from astray.simulate.loggers import Logger
from astray.simulate.movement import DAY, Motion, move
from astray.simulate.people import Person
from astray.simulate.places import PLACE_KINDS, Places, stream
from astray.simulate.recording import record
from astray.simulate.routes import BUS, NOWHERE
from astray.simulate.streets import Floats, Ints
from astray.simulate.town import Town
from astray.simulate.ways import IMPROVISED, Plans, Stop, Traveller

_VARIANTS = (0.58, 0.74, 0.79)
"""Up to here in [0, 1) a trip takes the usual way, the second, the third; the rest are improvised."""

_PAUSE = 180.0
"""Least seconds between an arrival and the next departure."""

_FEWEST, _MOST = 14, 800
"""Trips that a person who does not record everything records at least, and at most."""

_LONGEST = 6 * 3600.0
"""Seconds that a recording of several trips lasts at most, or so."""

_PACE = np.array([1.2, 3.5, 6.0, 3.5, 7.0, 7.0])
"""Metres per second, by mode, as the crow flies and with all waits."""


@dataclass(frozen=True, eq=False)
class Lived:
    """One person's trips and the fixes of them."""

    plans: Plans
    lengths: Ints
    time: Floats
    xy: Floats


def live(town: Town, who: Person, told: Sequence[Phase], position: int, days: int) -> Lived:
    """Let one person live for so many days."""
    rng, chance = stream(town.seed, 5, who.index), stream(town.seed, 31, who.index)
    traveller = Traveller(town, who)
    book = Diary(town, traveller)
    note(book, told)
    n = len(book.depart)
    variant = np.searchsorted(_VARIANTS, rng.random(n), side="right")
    plans = Plans(
        np.full(n, position),
        np.array(book.origin, dtype=np.int64),
        np.array(book.destination, dtype=np.int64),
        np.array(book.mode, dtype=np.int64),
        np.where(variant < IMPROVISED, variant, IMPROVISED + np.arange(n)),
        np.array(book.depart),
        np.zeros(n),
        np.zeros(n),
        np.array(book.phase, dtype=np.int64),
        _tuples([()] * n),
    )
    logger = who.logger
    joined = np.array(book.goes_on, dtype=bool)
    if logger != Logger():
        kept = _recorded(plans.depart, logger, days, chance)
        kept[1:] = np.where(joined[1:], kept[:-1], kept[1:])  # a trip that goes on is recorded with the one before it
        plans, joined = plans.rows(np.flatnonzero(kept)), joined[kept]
    joined[1:] |= _runs_through(plans, town.places, logger, chance)
    plans = _errands(_joined(plans, town.places, joined), town, who, chance)
    if logger.idle:
        plans = _idle(plans, logger, chance)
    n = len(plans.depart)
    if n == 0:
        return Lived(plans, np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, 2)))
    motion = move(town.streets, [plans.journey(k, traveller) for k in range(n)], rng)
    # Nobody leaves before arriving: t_k = max(meant_k, t_(k-1) + duration_(k-1) + pause), in closed form.
    busy = np.concatenate([[0.0], np.cumsum(motion.duration + _PAUSE)[:-1]])
    plans = replace(plans, depart=busy + np.maximum.accumulate(plans.depart - busy))
    if logger != Logger():
        plans, motion = _switched(plans, motion, who, chance)
    n = len(plans.depart)
    fixes = record(
        motion,
        np.full(n, who.interval),
        [NOWHERE] * n,
        rng,
        loggers=[logger] * n,
        late=np.maximum(plans.late, 0.0),
        early=np.maximum(plans.early, 0.0),
    )
    lengths = np.bincount(fixes.journey, minlength=n)
    return Lived(plans, lengths, town.midnight + plans.depart[fixes.journey] + fixes.seconds, fixes.xy)


def _tuples(values: Sequence[tuple[Stop, ...]]) -> NDArray[np.object_]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _recorded(depart: Floats, logger: Logger, days: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which trips are recorded: those of a span of days, less some whole days and some trips of the others."""
    day = (depart // DAY).astype(np.int64)
    carried = rng.random(days + 2)[np.clip(day, 0, days + 1)] < np.sqrt(logger.share)
    whim = rng.random(len(depart)) / np.sqrt(logger.share)
    whim[~carried | (day < logger.span[0] * days) | (day >= logger.span[1] * days)] += 1e3
    rank = np.argsort(np.argsort(whim, kind="stable"), kind="stable")
    return np.asarray(((whim < 1.0) | (rank < _FEWEST)) & (rank < _MOST))


def _travel(plans: Plans, places: Places) -> Floats:
    """About how many seconds each trip takes."""
    return np.asarray(60.0 + places.distance(plans.origin, plans.destination) / _PACE[plans.mode])


def _runs_through(plans: Plans, places: Places, logger: Logger, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Of all trips but the first, whether the logger runs through the stop before it."""
    if not logger.runs_on:
        return np.zeros(max(len(plans.depart) - 1, 0), dtype=bool)
    stays = plans.depart[1:] - (plans.depart + _travel(plans, places))[:-1]
    return np.asarray((stays < 60.0 * logger.stop) & (rng.random(len(stays)) < logger.runs_on))


def _joined(plans: Plans, places: Places, joined: NDArray[np.bool_]) -> Plans:
    """Make one trip of those that go on and the one before them, with a stop in between."""
    if not joined.any():
        return plans
    travel = _travel(plans, places)
    first, last = [0], [0]
    via: list[tuple[Stop, ...]] = [()]
    for k in range(1, len(plans.depart)):
        same = plans.destination[k - 1] == plans.origin[k] and plans.phase[k - 1] == plans.phase[k]
        if joined[k] and same and plans.depart[k] + travel[k] - plans.depart[first[-1]] < _LONGEST:
            stay = float(max(plans.depart[k] - plans.depart[k - 1] - travel[k - 1], 30.0))
            via[-1] += (Stop(int(plans.origin[k]), stay, int(plans.mode[k]), int(plans.variant[k])),)
            last[-1] = k
        else:
            first.append(k)
            last.append(k)
            via.append(())
    return replace(plans.rows(np.array(first)), destination=plans.destination[last], via=_tuples(via))


def _errands(plans: Plans, town: Town, who: Person, rng: np.random.Generator) -> Plans:
    """Put short stops into some trips, at one of few places near the way."""
    stock = np.flatnonzero(np.isin(town.places.kind, [PLACE_KINDS.index("shop"), PLACE_KINDS.index("leisure")]))
    via = list(plans.via)
    for k in np.flatnonzero(rng.random(len(via)) < who.errands).tolist():
        a, b = int(plans.origin[k]), int(plans.destination[k])
        if not via[k] and plans.mode[k] < BUS and a < town.local and b < town.local:
            near = stock[np.argsort(town.places.distance(a, stock) + town.places.distance(b, stock))[:3]]
            place = int(rng.choice(near, p=[0.7, 0.2, 0.1]))
            if place not in (a, b):
                stay = float(min(60.0 * np.exp(rng.normal(1.8, 0.8)), 3000.0))
                via[k] = (Stop(place, stay, int(plans.mode[k]), int(plans.variant[k])),)
    return replace(plans, via=_tuples(via))


def _idle(plans: Plans, logger: Logger, rng: np.random.Generator) -> Plans:
    """Let the logger run before some departures and after some arrivals."""
    n = len(plans.depart)
    late, early = (
        np.where(rng.random(n) < logger.idle, -rng.exponential(120.0 * logger.minutes, n), 0.0) for _ in range(2)
    )
    return replace(plans, late=late, early=early)


def _switched(plans: Plans, motion: Motion, who: Person, rng: np.random.Generator) -> tuple[Plans, Motion]:
    """Switch the logger on late and off early, and break some recordings in two."""
    n, logger = len(plans.depart), who.logger
    broken = (rng.random(n) < logger.cuts) & (motion.duration > np.maximum(900.0, 50 * who.interval))
    most = np.where(broken, 0.12, 0.4) * motion.duration

    def ends(idle: Floats, share: float) -> Floats:
        """Seconds lost at one end of each trip; where the logger idles there, nothing is lost."""
        lost = np.minimum(rng.exponential(60.0 * logger.minutes, n), most)
        return np.where(idle < 0, idle, np.where(rng.random(n) < share, lost, 0.0))

    late, early = ends(plans.late, logger.late), ends(plans.early, logger.early)
    moment, pause = rng.uniform(0.42, 0.58, n) * motion.duration, rng.uniform(5.0, 120.0, n)
    rows = np.repeat(np.arange(n), 1 + broken)
    second = np.append(False, rows[1:] == rows[:-1])
    before = np.append(second[1:], False)
    plans = replace(
        plans.rows(rows),
        late=np.where(second, moment[rows] + pause[rows], late[rows]),
        early=np.where(before, (motion.duration - moment)[rows], early[rows]),
    )
    return plans, motion.take(rows)
