"""Planned trips: a person's diary, and the plans of all trips as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.simulate.movement import DAY, HOUR
from astray.simulate.route_choice import Traveller
from astray.simulate.routes import BUS, CYCLE, DRIVE, WALK, Journey, chain
from astray.simulate.streets import Floats, Ints


class Entry(NamedTuple):
    """One trip in a diary.

    ``depart`` is the planned departure in seconds after the first midnight; a person who is still under way leaves
    later. A trip that ``continues`` belongs to the same recording as the trip before it.
    """

    origin: int
    destination: int
    mode: int
    depart: float
    phase: int
    continues: bool


class Diary:
    """Collects the trips that a person plans, in the order of time.

    In a new phase of life, ``phase`` gets its number and ``who`` the person's traits from then on.
    """

    def __init__(self, traveller: Traveller) -> None:
        self.entries: list[Entry] = []
        self.town, self.places = traveller.town, traveller.town.places
        self.who, self.phase = traveller.who, 0
        self.rng = self.town.stream(3, self.who.index)
        self._traveller = traveller

    def outing(self, day: int, there: int, begin: float, stay: tuple[float, float] = (1.0, 2.5)) -> None:
        """Adds trips from home to a place and back; the shortest and longest ``stay`` are in hours."""
        home, hours = self.who.home, self.rng.uniform(*stay)
        self.tour(day, self.mode_to(there), [home, there, home], [begin, begin + hours])

    def stroll(self, day: int, there: int, begin: float) -> None:
        """Adds one trip on foot that passes a place and ends at home, where it began."""
        home = self.who.home
        self.tour(day, WALK, [home, there, home], [begin, begin + 0.01], one_trip=True)

    def tour(self, day: int, mode: int, stops: list[int], hours: list[float], *, one_trip: bool = False) -> None:
        """Adds trips from stop to stop that leave at these hours. Skips trips that end where they begin."""
        before = len(self.entries)
        for (a, b), hour in zip(pairwise(stops), hours, strict=True):
            if a != b:
                used = self._by_line(a, b) if mode >= BUS else mode
                continues = one_trip and len(self.entries) > before
                self.entries.append(Entry(a, b, used, DAY * day + HOUR * hour, self.phase, continues))

    def mode_to(self, place: int, origin: int = -1) -> int:
        """Returns how the person travels to a place from ``origin``, or from home."""
        origin = self.who.home if origin < 0 else origin
        far, ride = float(self.places.distance(origin, place)), self.who.ride
        usual = ride.usual
        if ride.fickle is not None and self.rng.random() < ride.fickle:
            usual = int(self.rng.choice([CYCLE, DRIVE, BUS]))
        if far < ride.walks:
            return WALK
        if usual == CYCLE and far > ride.cycles:
            usual = ride.beyond
        return self._by_line(origin, place) if usual == BUS else usual

    def _by_line(self, origin: int, destination: int) -> int:
        """Returns public transport if a ride pays; otherwise walking if it is near, and a taxi if it is far."""
        line = self._traveller.line_to(origin, destination)
        if line != WALK:
            return line
        return WALK if self.places.distance(origin, destination) < 2000.0 else DRIVE

    def anywhere(self) -> int:
        """Draws a place in town that is more than 800 m from home and from work."""
        while True:
            place = int(self.rng.integers(self.town.local))
            if self.places.distance(place, np.array([self.who.home, self.who.work])).min() > 800.0:
                return place

    def one_of(self, habitual: tuple[int, ...], novelty: float) -> int:
        """Draws the favourite, another habitual place or, with probability ``novelty`` times curiosity, any place."""
        if self.rng.random() < novelty * self.who.curiosity:
            return self.anywhere()
        return habitual[0] if self.rng.random() < 0.5 else int(self.rng.choice(habitual))

    def about(self, hour: float, spread: float) -> float:
        """Draws an hour around ``hour``; the person's looseness scales the spread."""
        return hour + spread * self.who.looseness * float(self.rng.normal())


class Stop(NamedTuple):
    """A stop within one recording: its place and duration, and the mode and variant by which the person continues."""

    place: int
    seconds: float
    mode: int
    variant: int


@dataclass(frozen=True, eq=False)
class Plans:
    """The plans of normal trips, one row per trip."""

    person: Ints  # position of the person among the simulation's people; trips are sorted by it
    origin: Ints  # number of a place
    destination: Ints  # number of a place
    mode: Ints  # index of the mode of travel
    variant: Ints  # variant of the route (see `Traveller`)
    depart: Floats  # departure in seconds after the first midnight
    late: Floats  # seconds from the departure until the logger runs; negative if it runs before the departure
    early: Floats  # seconds from the end of the recording to the arrival; negative if it ends after the arrival
    phase: Ints  # the phase of the person's life
    via: NDArray[np.object_]  # the stops of each trip, a tuple of `Stop`

    @classmethod
    def of_diary(cls, entries: Sequence[Entry], person: int, variant: Ints) -> Plans:
        """Returns the plans of one person's diary."""
        n = len(entries)
        origin, destination, mode, phase = (
            np.array([getattr(entry, name) for entry in entries], dtype=np.int64)
            for name in ("origin", "destination", "mode", "phase")
        )
        depart = np.array([entry.depart for entry in entries])
        via = stop_column([()] * n)
        return cls(np.full(n, person), origin, destination, mode, variant, depart, np.zeros(n), np.zeros(n), phase, via)

    def journey(self, trip: int, traveller: Traveller) -> Journey:
        """Returns the journey of one trip, on its traveller's route."""
        stops = self.via[trip]
        places = [int(self.origin[trip]), *(stop.place for stop in stops), int(self.destination[trip])]
        mode = int(self.mode[trip])
        ways = [(mode, int(self.variant[trip])), *((stop.mode, stop.variant) for stop in stops)]
        routes = [traveller.route(a, b, *way) for (a, b), way in zip(pairwise(places), ways, strict=True)]
        idle = max(-float(self.late[trip]), 0.0), max(-float(self.early[trip]), 0.0)
        route = chain(routes, [stop.seconds for stop in stops]) if stops else routes[0]
        return Journey(route, mode, float(self.depart[trip]), traveller.who.speed, idle=idle)

    def rows(self, chosen: Ints | slice) -> Plans:
        """Returns some of the plans."""
        return Plans(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def of(self, who: int) -> Plans:
        """Returns the plans of the person at one position."""
        lo, hi = np.searchsorted(self.person, [who, who + 1])
        return self.rows(slice(int(lo), int(hi)))

    @classmethod
    def concat(cls, parts: Sequence[Plans]) -> Plans:
        """Joins plans end to end."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def stop_column(values: Sequence[tuple[Stop, ...]]) -> NDArray[np.object_]:
    """Returns a column of tuples of stops."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
