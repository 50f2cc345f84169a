"""The people of a made city: where they live and what they do every week.

A person is a pure function of the city's seed and the person's number, so "p07" is the same person whether
the city has ten people or a hundred thousand.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from astray.simulate.movement import CYCLE, DAY, DRIVE, HOUR, WALK
from astray.simulate.places import Town, stream
from astray.simulate.streets import Ints


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


def person(town: Town, index: int, interval: tuple[float, float]) -> Person:
    """The person of this number; the logger's interval is drawn (log-uniform) from ``interval``."""
    rng = stream(town.seed, 2, index)
    places = town.places
    home = int(rng.choice(places.of_kind("home")))

    def around(kind: str, nearest: float, farthest: float = np.inf) -> Ints:
        """The places of a kind so far from home, or failing these all of them."""
        stock = places.of_kind(kind)
        away = places.distance(home, stock)
        fit = (away >= nearest) & (away <= farthest)
        return stock[fit] if fit.any() else stock

    work = int(rng.choice(around("work", 900.0)))

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


# ---------------------------------------------------------------- habits


class Diary:
    """The trips that a person means to make, in order: one entry a trip in each list.

    Departures are in seconds after the first midnight. Whoever is late leaves later than this.
    """

    def __init__(self, town: Town, who: Person, days: int) -> None:
        self.origin: list[int] = []
        self.destination: list[int] = []
        self.mode: list[int] = []
        self.depart: list[float] = []
        self._places, self._who, self._rng = town.places, who, stream(town.seed, 3, who.index)
        for day in range(days):
            works = day % 7 < 5 and day % 7 != who.home_office and self._rng.random() > 0.05
            if works:
                self._working_day(day)
            else:
                self._free_day(day)

    def _working_day(self, day: int) -> None:
        who, rng = self._who, self._rng
        mode = self._mode_to(who.work)
        leaves, returns = who.leaves + 0.2 * rng.normal(), who.returns + 0.3 * rng.normal()
        if who.school >= 0 and rng.random() < 0.8:
            self._tour(day, mode, [who.home, who.school, who.work], [leaves - 0.3, leaves])
        else:
            self._tour(day, mode, [who.home, who.work], [leaves])
        if rng.random() < who.visits:
            client, begin = self._anywhere(), rng.uniform(9.5, 14.5)
            ride = CYCLE if mode == WALK else mode
            self._tour(day, ride, [who.work, client, who.work], [begin, begin + rng.uniform(0.8, 1.6)])
        elif rng.random() < who.sociable and 300 < self._places.distance(who.work, who.cafe) < 1500:
            begin = 12.3 + 0.2 * rng.normal()
            self._tour(day, WALK, [who.work, who.cafe, who.work], [begin, begin + rng.uniform(0.7, 1.0)])
        if day % 7 in who.gym_days and rng.random() < 0.9:
            trained = returns + 1.7 + 0.15 * rng.normal()
            self._tour(day, mode, [who.work, who.gym, who.home], [returns, trained])
        elif rng.random() < 0.25:
            shop = self._one_of(who.shops, novelty=0.15)
            self._tour(day, mode, [who.work, shop, who.home], [returns, returns + 0.8 + 0.15 * rng.normal()])
        else:
            self._tour(day, mode, [who.work, who.home], [returns])
        if rng.random() < who.sociable:
            evening = max(20.0, who.returns + 2.6) + 0.4 * rng.normal()
            self._outing(day, self._one_of(who.friends, novelty=0.3), evening)

    def _free_day(self, day: int) -> None:
        who, rng = self._who, self._rng
        if rng.random() < 0.7:
            self._outing(day, self._one_of(who.shops, novelty=0.2), 10.6 + 0.5 * rng.normal())
        if rng.random() < 0.5:
            self._outing(day, self._one_of(who.haunts + who.friends, novelty=0.35), 15.0 + 0.7 * rng.normal())

    def _outing(self, day: int, there: int, begin: float) -> None:
        home, stay = self._who.home, self._rng.uniform(1.0, 2.5)
        self._tour(day, self._mode_to(there), [home, there, home], [begin, begin + stay])

    def _tour(self, day: int, mode: int, stops: list[int], hours: list[float]) -> None:
        """Trips from stop to stop, leaving at these hours; where one is already one does not go."""
        for (a, b), hour in zip(pairwise(stops), hours, strict=True):
            if a != b:
                self.origin.append(a)
                self.destination.append(b)
                self.mode.append(mode)
                self.depart.append(DAY * day + HOUR * hour)

    def _mode_to(self, place: int) -> int:
        far = float(self._places.distance(self._who.home, place))
        return WALK if far < 1500 else CYCLE if self._who.cyclist and far < 5500 else DRIVE

    def _anywhere(self) -> int:
        """A place that need not be one of the person's own, 800 m or more from home and from work."""
        while True:
            place = int(self._rng.integers(len(self._places.kind)))
            if self._places.distance(place, np.array([self._who.home, self._who.work])).min() > 800.0:
                return place

    def _one_of(self, habitual: tuple[int, ...], novelty: float) -> int:
        """Mostly the favourite, sometimes another habitual place, now and then somewhere new."""
        if self._rng.random() < novelty:
            return self._anywhere()
        return habitual[0] if self._rng.random() < 0.5 else int(self._rng.choice(habitual))
