"""Simulates one person's trips: from the diary, through the streets, to the fixes that the logger records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from astray.core.trajectories import Trajectories
from astray.simulate.gps_loggers import Fixes, Logger, record
from astray.simulate.life_changes import Phase, fill_diary
from astray.simulate.movement import DAY, Motion, move
from astray.simulate.people import Person
from astray.simulate.places import Places
from astray.simulate.planned_trips import Diary, Plans, Stop, stop_column
from astray.simulate.route_choice import IMPROVISED, Traveller
from astray.simulate.routes import BUS, MODES
from astray.simulate.streets import Bools, Floats, Ints, to_degrees
from astray.simulate.town import Town

_VARIANTS = (0.58, 0.74, 0.79)
"""Cumulative shares of trips by the usual, the second and the third route; the other trips are improvised."""

_PAUSE = 180.0  # the fewest seconds between an arrival and the next departure
_FEWEST, _MOST = 14, 800  # fewest and most trips of a person who does not record everything
_LONGEST = 6 * 3600.0  # the approximate longest duration, in seconds, of a recording of several trips
_PACE = np.array([1.2, 3.5, 6.0, 3.5, 7.0, 7.0])  # straight-line metres per second by mode, waits included


def simulate_person(
    town: Town, who: Person, phases: Sequence[Phase], position: int, days: int
) -> tuple[Plans, Trajectories]:
    """Simulates the life of one person; ``position`` is the person's position among the simulation's people."""
    rng, recording = town.stream(5, who.index), town.stream(31, who.index)
    traveller = Traveller(town, who)
    plans = _recorded_plans(traveller, phases, position, days, rng, recording)
    if len(plans.depart) == 0:
        nothing = Fixes(np.zeros(0, np.int64), np.zeros(0), np.zeros((0, 2)), np.zeros(0, np.bool_))
        return plans, recorded_trips(town, nothing, plans.depart, [], [], plans.mode)
    motion = move(town.streets, [plans.journey(k, traveller) for k in range(len(plans.depart))], rng)
    # Nobody leaves before arriving: t_k = max(planned_k, t_(k-1) + duration_(k-1) + pause), in closed form.
    busy = np.concatenate([[0.0], np.cumsum(motion.duration + _PAUSE)[:-1]])
    plans = replace(plans, depart=busy + np.maximum.accumulate(plans.depart - busy))
    if not who.logger.is_default:
        plans, motion = _switch_and_break(plans, motion, who.logger, recording)
    n = len(plans.depart)
    fixes = record(motion, [who.logger] * n, rng, late=plans.late, early=plans.early)
    names = [f"{who.id}-{k:04d}" for k in range(n)]
    return plans, recorded_trips(town, fixes, plans.depart, [who.id] * n, names, plans.mode)


def recorded_trips(
    town: Town,
    fixes: Fixes,
    depart: Floats,
    agents: Sequence[str] | NDArray[np.str_],
    names: Sequence[str] | NDArray[np.str_],
    mode: Ints,
) -> Trajectories:
    """Returns recorded journeys as trips; the agent, name, mode and departure of each journey are given."""
    lat, lon = to_degrees(fixes.xy, town.streets.centre)
    return Trajectories(
        {"time": town.midnight + depart[fixes.journey] + fixes.seconds, "lat": lat, "lon": lon},
        np.concatenate([[0], np.cumsum(np.bincount(fixes.journey, minlength=len(names)))]),
        agents,
        names,
        {"mode": np.array(MODES)[mode]},
    )


def _recorded_plans(
    traveller: Traveller,
    phases: Sequence[Phase],
    position: int,
    days: int,
    rng: np.random.Generator,
    recording: np.random.Generator,
) -> Plans:
    """Plans all trips of a person and returns the recorded ones, one row per recording."""
    diary = Diary(traveller)
    fill_diary(diary, phases)
    n, town, logger = len(diary.entries), traveller.town, traveller.who.logger
    variant = np.searchsorted(_VARIANTS, rng.random(n), side="right")
    variant = np.where(variant < IMPROVISED, variant, IMPROVISED + np.arange(n))
    plans = Plans.of_diary(diary.entries, position, variant)
    continues = np.array([entry.continues for entry in diary.entries], dtype=bool)
    if not logger.is_default:
        kept = _recorded(plans.depart, logger, days, recording)
        kept[1:] = np.where(continues[1:], kept[:-1], kept[1:])
        plans, continues = plans.rows(np.flatnonzero(kept)), continues[kept]
    continues[1:] |= _runs_through(plans, town.places, logger, recording)
    plans = _add_errands(_join(plans, town.places, continues), town, traveller.who, recording)
    return _add_idling(plans, logger, recording) if logger.idle else plans


def _recorded(depart: Floats, logger: Logger, days: int, rng: np.random.Generator) -> Bools:
    """Draws a mask of the recorded trips: those within a span of days, except some whole days and some single trips."""
    day = (depart // DAY).astype(np.int64)
    carried = rng.random(days + 2)[np.clip(day, 0, days + 1)] < np.sqrt(logger.share)
    whim = rng.random(len(depart)) / np.sqrt(logger.share)
    whim[~carried | (day < logger.span[0] * days) | (day >= logger.span[1] * days)] += 1e3
    rank = np.argsort(np.argsort(whim, kind="stable"), kind="stable")
    return np.asarray(((whim < 1.0) | (rank < _FEWEST)) & (rank < _MOST))


def _travel_time(plans: Plans, places: Places) -> Floats:
    """Estimates how many seconds each trip takes."""
    return np.asarray(60.0 + places.distance(plans.origin, plans.destination) / _PACE[plans.mode])


def _runs_through(plans: Plans, places: Places, logger: Logger, rng: np.random.Generator) -> Bools:
    """Returns, for all trips but the first, True if the logger runs through the stop before the trip."""
    if not logger.runs_on:
        return np.zeros(max(len(plans.depart) - 1, 0), dtype=bool)
    stays = plans.depart[1:] - (plans.depart + _travel_time(plans, places))[:-1]
    return np.asarray((stays < 60.0 * logger.stop) & (rng.random(len(stays)) < logger.runs_on))


def _join(plans: Plans, places: Places, continues: Bools) -> Plans:
    """Joins each trip that continues a recording to the trip before it, with a stop in between."""
    if not continues.any():
        return plans
    travel = _travel_time(plans, places)
    first, last = [0], [0]
    via: list[tuple[Stop, ...]] = [()]
    for k in range(1, len(plans.depart)):
        same = plans.destination[k - 1] == plans.origin[k] and plans.phase[k - 1] == plans.phase[k]
        if continues[k] and same and plans.depart[k] + travel[k] - plans.depart[first[-1]] < _LONGEST:
            stay = float(max(plans.depart[k] - plans.depart[k - 1] - travel[k - 1], 30.0))
            via[-1] += (Stop(int(plans.origin[k]), stay, int(plans.mode[k]), int(plans.variant[k])),)
            last[-1] = k
        else:
            first.append(k)
            last.append(k)
            via.append(())
    return replace(plans.rows(np.array(first)), destination=plans.destination[last], via=stop_column(via))


def _add_errands(plans: Plans, town: Town, who: Person, rng: np.random.Generator) -> Plans:
    """Adds short stops to some trips, at one of three places near the way."""
    places = town.places
    stock = np.sort(np.concatenate([places.of_kind("shop"), places.of_kind("leisure")]))
    via = list(plans.via)
    for k in np.flatnonzero(rng.random(len(via)) < who.errands).tolist():
        a, b = int(plans.origin[k]), int(plans.destination[k])
        if not via[k] and plans.mode[k] < BUS and a < town.local and b < town.local:
            near = stock[np.argsort(places.distance(a, stock) + places.distance(b, stock))[:3]]
            place = int(rng.choice(near, p=[0.7, 0.2, 0.1]))
            if place not in (a, b):
                stay = float(min(60.0 * np.exp(rng.normal(1.8, 0.8)), 3000.0))
                via[k] = (Stop(place, stay, int(plans.mode[k]), int(plans.variant[k])),)
    return replace(plans, via=stop_column(via))


def _add_idling(plans: Plans, logger: Logger, rng: np.random.Generator) -> Plans:
    """Lets the logger run before some departures and after some arrivals."""
    n = len(plans.depart)
    late, early = (
        np.where(rng.random(n) < logger.idle, -rng.exponential(120.0 * logger.minutes, n), 0.0) for _ in range(2)
    )
    return replace(plans, late=late, early=early)


def _switch_and_break(plans: Plans, motion: Motion, logger: Logger, rng: np.random.Generator) -> tuple[Plans, Motion]:
    """Switches the logger on late and off early, and breaks some recordings in two."""
    n = len(plans.depart)
    broken = (rng.random(n) < logger.cuts) & (motion.duration > np.maximum(900.0, 50 * logger.interval))
    most = np.where(broken, 0.12, 0.4) * motion.duration

    def lost_seconds(idle: Floats, share: float) -> Floats:
        """Draws the seconds lost at one end of each trip; none are lost where the logger idles."""
        lost = np.minimum(rng.exponential(60.0 * logger.minutes, n), most)
        return np.where(idle < 0, idle, np.where(rng.random(n) < share, lost, 0.0))

    late, early = lost_seconds(plans.late, logger.late), lost_seconds(plans.early, logger.early)
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
