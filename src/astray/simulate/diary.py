"""What a person means to do: trips noted down day by day."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import numpy as np

from astray.simulate.movement import DAY, HOUR
from astray.simulate.people import Person
from astray.simulate.places import stream
from astray.simulate.routes import BUS, CYCLE, DRIVE, WALK
from astray.simulate.town import Town
from astray.simulate.ways import Traveller

Life = Callable[["Diary", int], None]
"""Notes down what a person does on one day."""


class Diary:
    """The trips that a person means to make, in order: one entry a trip in each list.

    Departures are in seconds after the first midnight. Whoever is late leaves later than this. A trip that
    ``goes_on`` is one with the trip before it.
    """

    def __init__(self, town: Town, traveller: Traveller) -> None:
        self.origin: list[int] = []
        self.destination: list[int] = []
        self.mode: list[int] = []
        self.depart: list[float] = []
        self.phase: list[int] = []
        self.goes_on: list[bool] = []
        self.town, self.places, self.who = town, town.places, traveller.who
        self.rng = stream(town.seed, 3, traveller.who.index)
        self._traveller, self._phase = traveller, 0

    def live(self, who: Person, days: Iterable[int], lives: Mapping[str, Life], phase: int = 0) -> None:
        """Note down some days of a phase of life, in which the person is ``who``."""
        self.who, self._phase = who, phase
        for day in days:
            lives[who.life](self, day)

    def outing(self, day: int, there: int, begin: float, stay: tuple[float, float] = (1.0, 2.5)) -> None:
        """From home to a place at an hour, and back after a stay of so many hours."""
        home, hours = self.who.home, self.rng.uniform(*stay)
        self.tour(day, self.mode_to(there), [home, there, home], [begin, begin + hours])

    def stroll(self, day: int, there: int, begin: float) -> None:
        """From home to a place on foot and straight back: one trip that ends where it began."""
        home, noted = self.who.home, len(self.depart)
        self.tour(day, WALK, [home, there, home], [begin, begin + 0.01])
        self.goes_on[noted + 1 :] = [True] * (len(self.depart) - noted - 1)

    def tour(self, day: int, mode: int, stops: list[int], hours: list[float]) -> None:
        """Trips from stop to stop, leaving at these hours; where one is already one does not go."""
        for (a, b), hour in zip(pairwise(stops), hours, strict=True):
            if a != b:
                self.origin.append(a)
                self.destination.append(b)
                self.mode.append(self._by_line(a, b) if mode >= BUS else mode)
                self.depart.append(DAY * day + HOUR * hour)
                self.phase.append(self._phase)
                self.goes_on.append(False)

    def mode_to(self, place: int, origin: int = -1) -> int:
        """How the person goes to a place, from home if nothing else is said."""
        origin = self.who.home if origin < 0 else origin
        far, ride = float(self.places.distance(origin, place)), self.who.ride
        if ride is None:
            return WALK if far < 1500 else CYCLE if self.who.cyclist and far < 5500 else DRIVE
        usual = ride.usual
        if self.rng.random() < ride.fickle:
            usual = int(self.rng.choice([CYCLE, DRIVE, BUS]))
        if far < ride.walks:
            return WALK
        if usual == CYCLE and far > ride.cycles:
            usual = BUS
        return self._by_line(origin, place) if usual == BUS else usual

    def _by_line(self, origin: int, destination: int) -> int:
        """Public transport if a ride pays; else on foot where it is near, and by taxi where it is far."""
        line = self._traveller.line_to(origin, destination)
        if line != WALK:
            return line
        return WALK if self.places.distance(origin, destination) < 2000.0 else DRIVE

    def anywhere(self) -> int:
        """A place that need not be one of the person's own, 800 m or more from home and from work."""
        while True:
            place = int(self.rng.integers(self.town.local))
            if self.places.distance(place, np.array([self.who.home, self.who.work])).min() > 800.0:
                return place

    def one_of(self, habitual: tuple[int, ...], novelty: float) -> int:
        """Mostly the favourite, sometimes another habitual place, now and then somewhere new."""
        if self.rng.random() < novelty * self.who.curiosity:
            return self.anywhere()
        return habitual[0] if self.rng.random() < 0.5 else int(self.rng.choice(habitual))

    def about(self, hour: float, spread: float) -> float:
        """An hour of the day, give or take a spread that the person's looseness scales."""
        return hour + spread * self.who.looseness * float(self.rng.normal())
