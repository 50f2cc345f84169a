"""Makes simulations: worlds in which towns, people and loggers differ, and the city, where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.simulate.life_changes import Change, Phase, draw_phases
from astray.simulate.movement import DAY
from astray.simulate.people import draw_person
from astray.simulate.person_trips import simulate_person
from astray.simulate.planned_trips import Plans
from astray.simulate.simulation import Simulation
from astray.simulate.town import make_town
from astray.simulate.variety import Variety


def city(
    people: int | Sequence[int] = 20,
    days: int = 60,
    seed: int = 0,
    *,
    interval: tuple[float, float] = (2.0, 12.0),
) -> Simulation:
    """Simulates commuters in a city: a :func:`world` without variety.

    The time is proportional to the number of people: one or two seconds on one core for 20 people and 60 days,
    and 6 ms per person for two days with ``interval=(30, 60)``.

    Parameters
    ----------
    people
        How many people to simulate, or their numbers: ``people=range(500, 1000)`` is one part of a larger city that
        several processes make together.
    days
        The number of days from Monday 2025-01-06 on. Each person makes two to four trips a day.
    seed
        The same seed makes the same city. Its person "p07" makes the same trips, whoever else is simulated.
    interval
        Shortest and longest typical seconds between two fixes; each person's logger has an interval in between.

    Examples
    --------
    >>> sim = city(people=2, days=7, seed=0)
    >>> sim.people[1].id, sim.trips.agents, list(sim.trips.columns)
    ('p01', ['p00', 'p01'], ['time', 'lat', 'lon'])
    >>> sim.trips.trajectory_ids[:2].tolist()
    ['p00-0000', 'p00-0001']
    """
    return _simulate(people, days, seed, Variety.none(), interval)


def world(seed: int, people: int | Sequence[int] = 40, days: int = 60, *, variety: Variety | None = None) -> Simulation:
    """Simulates a town in which streets, people and loggers depend on the seed.

    Parameters
    ----------
    seed
        The same seed makes the same world. Its person "p07" makes the same trips, whoever else is simulated.
    people
        How many people to simulate, or their numbers, as in :func:`city`.
    days
        The number of days from Monday 2025-01-06 on, by the town's clock.
    variety
        The properties that the seed draws (see :class:`Variety`); all by default.

    Returns
    -------
    Simulation
        As from :func:`city`, with the additional contexts ``life`` and ``phase`` of the trips, and with the
        ``changes`` in people's lives.

    Examples
    --------
    >>> sim = world(3, people=4, days=14)
    >>> sim.trips.agents, sorted(sim.trips.context)
    (['p00', 'p01', 'p02', 'p03'], ['life', 'mode', 'phase'])
    """
    sim = _simulate(people, days, seed, Variety() if variety is None else variety, (2.0, 12.0))
    life = np.array([who.life for who in sim.people])[sim.plans.person]
    return replace(sim, trips=sim.trips.with_columns({}, {"life": life, "phase": sim.plans.phase}))


def _simulate(
    people: int | Sequence[int], days: int, seed: int, variety: Variety, interval: tuple[float, float]
) -> Simulation:
    numbers = list(range(people)) if isinstance(people, (int, np.integer)) else list(people)
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers) or days < 1:
        raise DataError(f"people {people!r} for {days} days", remedy="give one or more of each, and nobody twice")
    if not 0 < interval[0] <= interval[1]:
        raise DataError(f"interval is {interval}", remedy="give the shortest and longest seconds, such as (2, 12)")
    town = make_town(seed, variety)
    persons = tuple(draw_person(town, number, variety, interval) for number in numbers)
    phases = [draw_phases(town, who, days) if variety.drift else [Phase(0, days, "", 0, who)] for who in persons]
    made = (simulate_person(town, who, phases[i], i, days) for i, who in enumerate(persons))
    plans, trips = zip(*made, strict=True)
    changes = tuple(
        Change(who.id, town.midnight + DAY * phase.first, phase.what, phase.number, phase.who)
        for who, life in zip(persons, phases, strict=True)
        for phase in life[1:]
    )
    return Simulation(Trajectories.concat(trips), persons, Plans.concat(plans), town, changes)
