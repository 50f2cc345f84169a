"""The people of a simulated town: their homes, weekly habits, ways to travel and loggers.

A person is a pure function of the town's seed and the person's number, so "p07" is the same person in a town of ten
people and of a hundred thousand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from astray.simulate.gps_loggers import Logger, draw_logger
from astray.simulate.routes import BUS, CYCLE, DRIVE
from astray.simulate.streets import Ints
from astray.simulate.town import Town
from astray.simulate.variety import Variety

_SHARES = {"commuter": 4.0, "shift": 1.2, "student": 1.5, "pensioner": 1.2, "parent": 1.2, "courier": 0.6, "taxi": 0.6}
"""The share of each kind of life, on average over towns."""

_HOUSEHOLD, _COLLEAGUE = 0.25, 0.25
"""The probabilities that a person lives, and works, with the person of the previous number."""


@dataclass(frozen=True)
class Ride:
    """A person's rules for choosing the mode of travel."""

    walks: float  # straight-line metres up to which the person walks
    cycles: float  # straight-line metres up to which a cyclist cycles
    usual: int  # the mode for longer distances, an index into `MODES`; a bus stands for all public transport
    beyond: int  # the mode of a cyclist for distances that are too long for cycling
    fickle: float | None = None  # probability of choosing another mode at random; None in the city


@dataclass(frozen=True)
class Person:
    """The constant traits of one person. Places are numbers into :class:`Places`; hours are hours of the day."""

    id: str  # name, such as "p07"
    index: int  # number, such as 7
    home: int  # where the person lives
    work: int  # where the person works
    school: int  # where a parent takes the children in the morning; -1 for the others
    shops: tuple[int, ...]  # habitual places of each kind; the first is the favourite
    gym: int
    friends: tuple[int, ...]
    haunts: tuple[int, ...]  # for leisure
    leaves: float  # habitual hour of leaving home
    returns: float  # habitual hour of leaving work
    gym_days: tuple[int, ...]  # weekdays (Monday is 0) on which the person trains after work
    home_office: int  # the weekday on which the person works at home; -1 for none
    cafe: int  # where the person walks for lunch, if it is near work
    sociable: float  # probability, on each working day, of a lunch out and of an evening out
    visits: float  # probability, on each working day, of a trip to a client
    cyclist: bool  # True if the person cycles where others would drive
    speed: float  # speed relative to the average person
    ride: Ride  # how the person chooses the mode of travel
    logger: Logger  # the person's GPS logger
    life: str = "commuter"  # the kind of life, a key of `astray.simulate.daily_routines.ROUTINES`
    curiosity: float = 1.0  # how often the person goes to new places, relative to a commuter of the city
    looseness: float = 1.0  # how much the person's hours vary, relative to a commuter of the city
    errands: float = 0.0  # share of trips with a short stop on the way

    @property
    def interval(self) -> float:
        """Typical seconds between two fixes of the person's logger."""
        return self.logger.interval


def draw_person(town: Town, index: int, variety: Variety, interval: tuple[float, float]) -> Person:
    """Draws the person of this number.

    Without variety of loggers, the logger's interval is log-uniform between the two values of ``interval``.
    """
    if variety.lives:
        home = _home_of(town, index)
        work = _work_of(town, index, home)
        who = _vary_life(town, _commuter(town, index, interval, home, work))
    else:
        who = _commuter(town, index, interval)
    if variety.modes:
        who = replace(who, ride=_draw_ride(town, index))
    if variety.loggers:
        who = replace(who, logger=draw_logger(town.stream(10, index), who.life))
    return who


def _commuter(
    town: Town, index: int, interval: tuple[float, float], home: int | None = None, work: int | None = None
) -> Person:
    """Draws a commuter of the city, who lives and works at these places if they are given."""
    rng = town.stream(2, index)
    places = town.places
    drawn = int(rng.choice(places.of_kind("home")))
    home = drawn if home is None else home

    def around(kind: str, nearest: float, farthest: float = np.inf) -> Ints:
        """Returns the places of a kind at this distance from home, or all of the kind if there are none."""
        stock = places.of_kind(kind)
        away = places.distance(home, stock)
        fit = (away >= nearest) & (away <= farthest)
        return stock[fit] if fit.any() else stock

    drawn = int(rng.choice(around("work", 900.0)))
    work = drawn if work is None else work

    def on_the_way(kind: str, n: int) -> tuple[int, ...]:
        """Draws places of a kind that are a short detour on the way from work to home."""
        stock = around(kind, 700.0)
        to_work = places.distance(work, stock)
        extra = places.distance(home, stock) + np.where(to_work > 700.0, to_work, np.inf)
        return tuple(int(p) for p in rng.permutation(stock[np.argsort(extra)[: 3 * n]])[:n])

    cafes = places.of_kind("leisure")
    schools = around("school", 600.0, 2500.0)
    return Person(
        id=f"p{index:02d}",
        index=index,
        home=home,
        work=work,
        school=int(rng.choice(schools)) if rng.random() < 0.25 else -1,
        shops=on_the_way("shop", 2),
        gym=on_the_way("gym", 1)[0],
        friends=tuple(int(p) for p in rng.choice(around("home", 800.0, 6000.0), 3)),
        haunts=tuple(int(p) for p in rng.choice(around("leisure", 900.0, 7000.0), 3)),
        leaves=float(rng.normal(7.9, 0.6)),
        returns=float(rng.normal(17.2, 0.6)),
        gym_days=tuple(sorted(int(d) for d in rng.choice(5, rng.integers(0, 3), replace=False))),
        home_office=int(rng.integers(0, 5)) if rng.random() < 0.2 else -1,
        cafe=int(cafes[np.argmin(np.abs(places.distance(work, cafes) - rng.uniform(500.0, 900.0)))]),
        sociable=float(rng.uniform(0.05, 0.25)),
        visits=float(rng.uniform(0.0, 0.25)),
        cyclist=(cyclist := bool(rng.random() < 0.3)),
        ride=Ride(walks=1500.0, cycles=5500.0, usual=CYCLE if cyclist else DRIVE, beyond=DRIVE),
        speed=float(np.exp(rng.normal(0, 0.07))),
        logger=Logger(float(np.exp(rng.uniform(*np.log(interval))))),
    )


def _vary_life(town: Town, who: Person) -> Person:
    """Draws the kind of life of a person whose home and work are known, and the habits that go with it."""
    life, rng, home = _life_of(town, who.index), town.stream(7, who.index, 4), who.home
    regular = rng.random()
    curiosity, looseness = (0.1, 0.4) if regular < 0.25 else (2.5, 2.0) if regular > 0.8 else (0.8, 1.0)
    near = 700.0 if life == "pensioner" else 1500.0
    reach = near if life == "pensioner" else float(np.exp(rng.uniform(np.log(1000.0), np.log(12_000.0))))
    shops, leisure = town.places.of_kind("shop"), town.places.of_kind("leisure")
    acquaintances = tuple(_home_of(town, int(k)) for k in rng.integers(0, 60, 3))
    school = int(town.places.nearest(home, town.places.of_kind("school"), 1)[0])
    return replace(
        who,
        life=life,
        curiosity=curiosity * float(rng.uniform(0.7, 1.3)),
        looseness=looseness * float(rng.uniform(0.7, 1.3)),
        errands=float(rng.choice([0.0, rng.uniform(0.0, 0.5), rng.uniform(0.0, 0.5)])) if life != "taxi" else 0.0,
        shops=tuple(_draw_place(town, shops, home, near, rng) for _ in range(int(rng.integers(1, 4)))),
        haunts=tuple(_draw_place(town, leisure, home, reach, rng) for _ in range(int(rng.integers(2, 5)))),
        friends=tuple(place if place != home else who.friends[0] for place in acquaintances),
        school=school if life == "parent" else who.school if life == "commuter" else -1,
        speed=who.speed * (0.85 if life == "pensioner" else 1.0),
    )


def _home_of(town: Town, index: int) -> int:
    """Returns the first home of a person, who may live with the person of the previous number."""
    if index > 0 and town.stream(7, index, 0).random() < _HOUSEHOLD:
        return _home_of(town, index - 1)
    return int(town.stream(2, index).choice(town.places.of_kind("home")))


def _life_of(town: Town, index: int) -> str:
    """Returns a person's kind of life; the shares differ by town."""
    shares = town.stream(7).dirichlet(list(_SHARES.values()))
    return str(town.stream(7, index, 1).choice(list(_SHARES), p=shares))


def _work_of(town: Town, index: int, home: int) -> int:
    """Returns a person's workplace: a popular one near home is likelier; students go to a campus."""
    life = _life_of(town, index)
    if index > 0 and life == _life_of(town, index - 1) and town.stream(7, index, 2).random() < _COLLEAGUE:
        return _work_of(town, index - 1, _home_of(town, index - 1))
    stock = town.places.of_kind("campus" if life == "student" else "work")
    far = town.places.distance(home, stock)
    stock = stock[far > min(600.0, float(far.max()) - 1.0)]
    return _draw_place(town, stock, home, 2 * float(np.median(far)), town.stream(7, index, 3))


def _draw_place(town: Town, stock: Ints, home: int, reach: float, rng: np.random.Generator) -> int:
    """Draws one place; popular places and places within ``reach`` metres of home are likelier."""
    far = town.places.distance(home, stock)
    weight = town.popularity[stock] * np.exp(-(far - far.min()) / reach)
    return int(rng.choice(stock, p=weight / weight.sum()))


def _draw_ride(town: Town, index: int) -> Ride:
    """Draws how a person chooses the mode of travel; the shares of the modes differ by town."""
    shares = town.stream(9).dirichlet([1.0, 2.0, 2.5 if town.lines else 0.2])
    rng = town.stream(9, index)
    usual = int(rng.choice([CYCLE, DRIVE, BUS], p=shares))
    walks = float(np.exp(rng.uniform(np.log(400.0), np.log(2500.0))))
    return Ride(walks, float(rng.uniform(2500.0, 9000.0)), usual, BUS, float(rng.choice([0.0, 0.05, 0.25])))
