"""Making simulations: the city, and worlds in which towns, people and loggers differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.simulate.changes import Change, Phase, phases
from astray.simulate.inhabitants import inhabitant
from astray.simulate.living import live
from astray.simulate.movement import DAY
from astray.simulate.routes import MODES
from astray.simulate.simulation import Simulation
from astray.simulate.streets import to_degrees
from astray.simulate.towns import found
from astray.simulate.variety import Variety
from astray.simulate.ways import Plans


def city(
    people: int | Sequence[int] = 20,
    days: int = 60,
    seed: int = 0,
    *,
    interval: tuple[float, float] = (2.0, 12.0),
) -> Simulation:
    """Make a city and let its people live there.

    The time taken is proportional to the number of people: on one core a second or two for 20 people and
    60 days, and 6 ms a person for two days with ``interval=(30, 60)``.

    Parameters
    ----------
    people
        How many people, or the numbers of those wanted: ``people=range(500, 1000)`` is one part of a larger
        city that several processes make together.
    days
        How many days from Monday 2025-01-06 on. Each person makes two to four trips a day.
    seed
        The same seed makes the same city; its person "p07" is the same, and does the same, whoever else is
        there.
    interval
        Shortest and longest typical seconds between two fixes; each person's logger has its own.

    Examples
    --------
    >>> sim = city(people=2, days=7, seed=0)
    >>> sim.people[1].id, sim.trips.agents, list(sim.trips.columns)
    ('p01', ['p00', 'p01'], ['time', 'lat', 'lon'])
    >>> sim.trips.trajectory_ids[:2].tolist()
    ['p00-0000', 'p00-0001']
    """
    return _made(people, days, seed, Variety.none(), interval)


def world(seed: int, people: int | Sequence[int] = 40, days: int = 60, *, variety: Variety | None = None) -> Simulation:
    """Make a town of its own kind, with people of all kinds and the loggers they have: one seed, one world.

    Parameters
    ----------
    seed
        The same seed makes the same world; its person "p07" is the same, and does the same, whoever else is
        there.
    people
        How many people, or the numbers of those wanted, as in :func:`city`.
    days
        How many days from Monday 2025-01-06 on, by the town's clock.
    variety
        What the seed draws (see :class:`Variety`); everything if nothing is given.

    Returns
    -------
    Simulation
        As of :func:`city`. Trips have the further contexts ``life`` and ``phase``, and ``changes`` says what
        changed in whose life and when.

    Examples
    --------
    >>> sim = world(3, people=4, days=14)
    >>> sim.trips.agents, sorted(sim.trips.context)
    (['p00', 'p01', 'p02', 'p03'], ['life', 'mode', 'phase'])
    """
    variety = Variety() if variety is None else variety
    sim = _made(people, days, seed, variety, (2.0, 12.0))
    life = np.array([who.life for who in sim.people])[sim.plans.person]
    trips = sim.trips.with_columns({}, {"life": life, "phase": sim.plans.phase})
    return Simulation(trips, sim.people, sim.plans, sim.town, sim.changes)


def _made(
    people: int | Sequence[int], days: int, seed: int, variety: Variety, interval: tuple[float, float]
) -> Simulation:
    numbers = list(range(people)) if isinstance(people, (int, np.integer)) else list(people)
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers) or days < 1:
        raise DataError(f"people {people!r} for {days} days", remedy="give one or more of each, nobody twice")
    if not 0 < interval[0] <= interval[1]:
        raise DataError(f"interval is {interval}", remedy="give the shortest and longest seconds, such as (2, 12)")
    town = found(seed, variety)
    persons = tuple(inhabitant(town, number, variety, interval) for number in numbers)
    told = [phases(town, who, days) if variety.drift else [Phase(0, days, "", 0, who)] for who in persons]
    lives = [live(town, who, told[position], position, days) for position, who in enumerate(persons)]
    lat, lon = to_degrees(np.concatenate([life.xy for life in lives]), town.streets.centre)
    plans = Plans.concat([life.plans for life in lives])
    trips = Trajectories(
        {"time": np.concatenate([life.time for life in lives]), "lat": lat, "lon": lon},
        np.concatenate([[0], np.cumsum(np.concatenate([life.lengths for life in lives]))]),
        [who.id for who, life in zip(persons, lives, strict=True) for _ in life.lengths],
        [f"{who.id}-{k:04d}" for who, life in zip(persons, lives, strict=True) for k in range(len(life.lengths))],
        {"mode": np.array(MODES)[plans.mode]},
    )
    changes = tuple(
        Change(who.id, town.midnight + DAY * phase.first, phase.what, phase.number, phase.who)
        for who, life in zip(persons, told, strict=True)
        for phase in life[1:]
    )
    return Simulation(trips, persons, plans, town, changes)
