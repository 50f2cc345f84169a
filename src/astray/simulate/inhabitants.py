"""People who differ: what life they lead, with whom they share home and work, how they travel and record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from astray.simulate.loggers import Logger
from astray.simulate.people import Person, Ride, person
from astray.simulate.places import stream
from astray.simulate.routes import BUS, CYCLE, DRIVE
from astray.simulate.streets import Ints
from astray.simulate.town import Town
from astray.simulate.variety import Variety

_SHARES = {"commuter": 4.0, "shift": 1.2, "student": 1.5, "pensioner": 1.2, "parent": 1.2, "courier": 0.6, "taxi": 0.6}
"""How common each kind of life is; towns differ."""

_HOUSEHOLD, _COLLEAGUE = 0.25, 0.25
"""Probability of living with, and of working with, the person of the number before."""


def inhabitant(town: Town, index: int, variety: Variety, interval: tuple[float, float]) -> Person:
    """The person of this number; a pure function of the town, the number and the kinds of variety."""
    who = _alive(town, index, interval) if variety.lives else person(town, index, interval)
    if variety.modes:
        who = replace(who, ride=_ride(town, who))
    if variety.loggers:
        who = _recording(town, who)
    return who


def home_of(town: Town, index: int) -> int:
    """Where the person of this number lives at first."""
    if index > 0 and stream(town.seed, 7, index, 0).random() < _HOUSEHOLD:
        return home_of(town, index - 1)
    return int(stream(town.seed, 2, index).choice(town.places.of_kind("home")))


def life_of(town: Town, index: int) -> str:
    """The kind of life of the person of this number."""
    shares = stream(town.seed, 7).dirichlet(list(_SHARES.values()))
    return str(stream(town.seed, 7, index, 1).choice(list(_SHARES), p=shares))


def work_of(town: Town, index: int, home: int, rng: np.random.Generator) -> int:
    """A workplace: popular ones are shared by many, and near ones are likelier; students go to a campus."""
    life = life_of(town, index)
    if index > 0 and life == life_of(town, index - 1) and stream(town.seed, 7, index, 2).random() < _COLLEAGUE:
        return work_of(town, index - 1, home_of(town, index - 1), stream(town.seed, 7, index - 1, 3))
    stock = town.places.of_kind("campus" if life == "student" else "work")
    far = town.places.distance(home, stock)
    return _drawn(town, stock[far > min(600.0, float(far.max()) - 1.0)], home, 2 * float(np.median(far)), rng)


def _alive(town: Town, index: int, interval: tuple[float, float]) -> Person:
    home, life = home_of(town, index), life_of(town, index)
    who = person(town, index, interval, home, work_of(town, index, home, stream(town.seed, 7, index, 3)))
    rng = stream(town.seed, 7, index, 4)
    regular = rng.random()
    curiosity, looseness = (0.1, 0.4) if regular < 0.25 else (2.5, 2.0) if regular > 0.8 else (0.8, 1.0)
    near = 700.0 if life == "pensioner" else 1500.0
    reach = near if life == "pensioner" else float(np.exp(rng.uniform(np.log(1000.0), np.log(12_000.0))))
    shops, leisure = town.places.of_kind("shop"), town.places.of_kind("leisure")
    neighbours = tuple(home_of(town, int(k)) for k in rng.integers(0, 60, 3))
    schools = town.places.of_kind("school")
    nearest = int(schools[np.argmin(town.places.distance(home, schools))])
    return replace(
        who,
        life=life,
        curiosity=curiosity * float(rng.uniform(0.7, 1.3)),
        looseness=looseness * float(rng.uniform(0.7, 1.3)),
        errands=float(rng.choice([0.0, rng.uniform(0.0, 0.5), rng.uniform(0.0, 0.5)])) if life != "taxi" else 0.0,
        shops=tuple(_drawn(town, shops, home, near, rng) for _ in range(int(rng.integers(1, 4)))),
        haunts=tuple(_drawn(town, leisure, home, reach, rng) for _ in range(int(rng.integers(2, 5)))),
        friends=tuple(place if place != home else who.friends[0] for place in neighbours),
        school=nearest if life == "parent" else who.school if life == "commuter" else -1,
        speed=who.speed * (0.85 if life == "pensioner" else 1.0),
    )


def _drawn(town: Town, stock: Ints, home: int, reach: float, rng: np.random.Generator) -> int:
    """One place of a stock, likelier if popular and within reach of home."""
    far = town.places.distance(home, stock)
    weight = town.popularity[stock] * np.exp(-(far - far.min()) / reach)
    return int(rng.choice(stock, p=weight / weight.sum()))


def _ride(town: Town, who: Person) -> Ride:
    shares = stream(town.seed, 9).dirichlet([1.0, 2.0, 2.5 if town.lines else 0.2])
    rng = stream(town.seed, 9, who.index)
    usual = int(rng.choice([CYCLE, DRIVE, BUS], p=shares))
    walks = float(np.exp(rng.uniform(np.log(400.0), np.log(2500.0))))
    return Ride(walks, float(rng.uniform(2500.0, 9000.0)), usual, float(rng.choice([0.0, 0.05, 0.25])))


def _recording(town: Town, who: Person) -> Person:
    rng = stream(town.seed, 10, who.index)
    interval = float(np.exp(rng.uniform(np.log(1.0), np.log(120.0))))
    busy = who.life in ("taxi", "courier")
    interval = max(interval, 4.0) if busy else interval
    share = float(rng.choice([1.0, np.exp(rng.uniform(np.log(0.1), 0.0))]))
    begin = float(rng.choice([0.0, rng.uniform(0.0, 0.5)]))
    end = float(rng.choice([1.0, rng.uniform(begin + 0.35, 1.0)]))
    whole = busy and rng.random() < (0.5 if who.life == "courier" else 0.1)
    through = float(rng.choice([0.0, rng.uniform(0.1, 0.9), rng.uniform(0.5, 1.0)]))
    logger = Logger(
        noise=float(np.exp(rng.normal(0.1, 0.45))),
        white=float(min(interval / 6.0, 1.0) ** 0.8),
        jitter=float(rng.choice([0.02, 0.3, 1.0])),
        gaps=float(rng.uniform(0.0, 0.25)),
        dropouts=float(np.exp(rng.uniform(np.log(0.3), np.log(12.0)))),
        indoors=float(rng.beta(1.5, 1.0)),
        rests=float(rng.choice([0.0, 0.0, 0.9])),
        spikes=float(rng.choice([0.0, 0.002])),
        share=share * (0.4 if busy and not whole else 1.0),
        late=float(rng.beta(0.8, 1.5)),
        early=float(rng.beta(0.8, 1.5)),
        minutes=float(rng.uniform(1.0, 12.0)),
        idle=float(rng.choice([0.0, rng.uniform(0.0, 0.8), rng.uniform(0.0, 0.8)])),
        runs_on=0.95 if whole else 0.0 if busy else through,
        stop=float(np.exp(rng.uniform(np.log(10.0), np.log(150.0)))),
        cuts=float(rng.choice([0.0, rng.uniform(0.0, 0.25)])),
        span=(begin, end),
    )
    return replace(who, interval=interval, logger=logger)
