"""Living: from what a person means to do, through the streets, to what the logger records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from astray.simulate.changes import Phase, note
from astray.simulate.diary import Diary
from astray.simulate.loggers import Logger
from astray.simulate.movement import DAY, Motion, move, record
from astray.simulate.people import Person
from astray.simulate.places import Places, stream
from astray.simulate.routes import NOWHERE
from astray.simulate.streets import Floats, Ints
from astray.simulate.town import Town
from astray.simulate.ways import IMPROVISED, Plans, Stop, Traveller

_VARIANTS = (0.58, 0.74, 0.79)
"""Up to here in [0, 1) a trip takes the usual way, the second, the third; the rest are improvised."""

_PAUSE = 180.0
"""Least seconds between an arrival and the next departure."""

_FEWEST, _MOST = 10, 700
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
    if logger != Logger():
        plans = plans.rows(np.flatnonzero(_recorded(plans.depart, logger, days, chance)))
        plans = _run_on(plans, town.places, logger, chance)
    n = len(plans.depart)
    if n == 0:
        return Lived(plans, np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, 2)))
    motion = move(town.streets, [plans.journey(k, traveller) for k in range(n)], rng)
    # Nobody leaves before arriving: t_k = max(meant_k, t_(k-1) + duration_(k-1) + pause), in closed form.
    busy = np.concatenate([[0.0], np.cumsum(motion.duration + _PAUSE)[:-1]])
    plans = replace(plans, depart=busy + np.maximum.accumulate(plans.depart - busy))
    if logger != Logger():
        plans, motion = _switched(plans, motion, logger, chance)
    n = len(plans.depart)
    fixes = record(
        motion,
        np.full(n, who.interval),
        [NOWHERE] * n,
        rng,
        noise=logger.noise,
        gaps=logger.gaps,
        late=plans.late,
        early=plans.early,
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


def _run_on(plans: Plans, places: Places, logger: Logger, rng: np.random.Generator) -> Plans:
    """Make one recording of trips with a short stop in between, where the logger runs through it."""
    n = len(plans.depart)
    if n == 0:
        return plans
    travel = 60.0 + places.distance(plans.origin, plans.destination) / _PACE[plans.mode]
    stays = plans.depart[1:] - (plans.depart + travel)[:-1]
    joined = (stays < 60.0 * logger.stop) & (rng.random(n - 1) < logger.runs_on)
    joined &= (plans.destination[:-1] == plans.origin[1:]) & (plans.phase[:-1] == plans.phase[1:])
    first, last = [0], [0]
    via: list[tuple[Stop, ...]] = [()]
    for k in range(1, n):
        if joined[k - 1] and plans.depart[k] + travel[k] - plans.depart[first[-1]] < _LONGEST:
            stay = float(max(stays[k - 1], 120.0))
            via[-1] += (Stop(int(plans.origin[k]), stay, int(plans.mode[k]), int(plans.variant[k])),)
            last[-1] = k
        else:
            first.append(k)
            last.append(k)
            via.append(())
    return replace(plans.rows(np.array(first)), destination=plans.destination[last], via=_tuples(via))


def _switched(plans: Plans, motion: Motion, logger: Logger, rng: np.random.Generator) -> tuple[Plans, Motion]:
    """Switch the logger on late and off early, and break some recordings in two."""
    n = len(plans.depart)
    late, early = (
        np.where(
            rng.random(n) < share, np.minimum(rng.exponential(60.0 * logger.minutes, n), 0.4 * motion.duration), 0.0
        )
        for share in (logger.late, logger.early)
    )
    broken = (rng.random(n) < logger.cuts) & (motion.duration > 600.0)
    moment, pause = rng.uniform(0.42, 0.58, n) * motion.duration, rng.uniform(5.0, 120.0, n)
    rows = np.repeat(np.arange(n), 1 + broken)
    second = np.append(False, rows[1:] == rows[:-1])
    before = np.append(second[1:], False)
    plans = replace(
        plans.rows(rows),
        late=np.where(second, moment[rows] + pause[rows], late[rows]),
        early=np.where(before, motion.duration[rows] - moment[rows], early[rows]),
    )
    return plans, motion.take(rows)
