"""The people of a made city: where they live, what they do every week, and what they record with.

A person is a pure function of the city's seed and the person's number, so "p07" is the same person whether
the city has ten people or a hundred thousand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from astray.simulate.loggers import Logger
from astray.simulate.places import stream
from astray.simulate.streets import Ints
from astray.simulate.town import Town


@dataclass(frozen=True)
class Person:
    """One person's constant traits. Places are numbers into :class:`Places`; hours are hours of the day.

    Attributes
    ----------
    id, index
        Name ("p07") and number (7).
    home, work
        Where the person lives and works.
    school
        Where a parent takes the children in the morning; -1 for the others.
    shops, gym, friends, haunts
        Habitual places; the first of each is the favourite.
    leaves, returns
        Habitual hours of leaving home and of leaving work.
    gym_days
        Weekdays (Monday is 0) on which the person trains after work.
    home_office
        The weekday spent working at home; -1 for none.
    cafe
        Where the person walks for lunch, if it is near work.
    sociable
        Probability, each working day, of a lunch out and of an evening out.
    visits
        Probability, each working day, of a trip to some client.
    cyclist
        Whether the person cycles where others would drive.
    speed
        Personal speed relative to everybody's.
    interval
        Typical seconds between two fixes of the person's logger.
    life
        The kind of life, a key of :data:`astray.simulate.lives.LIVES`.
    curiosity
        How often the person goes to new places, relative to a commuter of the city.
    looseness
        How much the person's hours vary, relative to a commuter of the city.
    errands
        Share of trips with a short stop on the way.
    ride
        How the person gets about; none for the rule of the city: walk where it is near, cycle or drive else.
    logger
        How the person records.
    """

    id: str
    index: int
    home: int
    work: int
    school: int
    shops: tuple[int, ...]
    gym: int
    friends: tuple[int, ...]
    haunts: tuple[int, ...]
    leaves: float
    returns: float
    gym_days: tuple[int, ...]
    home_office: int
    cafe: int
    sociable: float
    visits: float
    cyclist: bool
    speed: float
    interval: float
    life: str = "commuter"
    curiosity: float = 1.0
    looseness: float = 1.0
    errands: float = 0.0
    ride: Ride | None = None
    logger: Logger = Logger()


@dataclass(frozen=True)
class Ride:
    """How a person gets about.

    Attributes
    ----------
    walks, cycles
        Metres, as the crow flies, up to which the person walks, and cycles.
    usual
        What the person takes farther than that, an index into :data:`astray.simulate.routes.MODES`; a bus
        stands for all public transport.
    fickle
        Probability of taking something else.
    """

    walks: float
    cycles: float
    usual: int
    fickle: float


def person(
    town: Town, index: int, interval: tuple[float, float], home: int | None = None, work: int | None = None
) -> Person:
    """The person of this number; the logger's interval is drawn (log-uniform) from ``interval``.

    Home and work are drawn too unless they are given.
    """
    rng = stream(town.seed, 2, index)
    places = town.places
    drawn = int(rng.choice(places.of_kind("home")))
    home = drawn if home is None else home

    def around(kind: str, nearest: float, farthest: float = np.inf) -> Ints:
        """The places of a kind so far from home, or failing these all of them."""
        stock = places.of_kind(kind)
        away = places.distance(home, stock)
        fit = (away >= nearest) & (away <= farthest)
        return stock[fit] if fit.any() else stock

    drawn = int(rng.choice(around("work", 900.0)))
    work = drawn if work is None else work

    def on_the_way(kind: str, n: int) -> tuple[int, ...]:
        """Places of a kind that lengthen the way from work to home little."""
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
        cyclist=bool(rng.random() < 0.3),
        speed=float(np.exp(rng.normal(0, 0.07))),
        interval=float(np.exp(rng.uniform(*np.log(interval)))),
    )
