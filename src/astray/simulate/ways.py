"""The ways of a made city: which streets a person takes from door to door."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.simulate.lines import unfold
from astray.simulate.movement import CRUISE
from astray.simulate.people import Person
from astray.simulate.places import stream
from astray.simulate.routes import BUS, WALK, Journey, Route, chain
from astray.simulate.streets import SIDE, Floats, Ints, Streets, arcs_of, cheapest_ways, follow_back
from astray.simulate.town import Town

_LONG_WALK = 2500.0
"""Metres that nobody walks to and from stops, both ends together."""

IMPROVISED = 3
"""Variants of a way from this number on are each taken once."""


class Traveller:
    """A person on the streets: finds the ways that this person takes, each once.

    A street costs its travel time times the person's taste: a liking or dislike of wide roads, of parts of
    town, of single streets, and of single directions. So two people go different ways between the same two
    doors, and one person may come back another way. Of each way there are variants: 0 is the usual one, 1
    and 2 are taken when tired of it, and those from :data:`IMPROVISED` on are the whim of one day.
    """

    def __init__(self, town: Town, who: Person) -> None:
        self.town, self.who = town, who
        rng = stream(town.seed, 4, who.index)
        streets = town.streets
        n = len(streets.edges)
        middle = streets.xy[streets.edges].mean(axis=1)
        waves, phases = rng.normal(0, 1 / 900.0, (2, 4)), rng.uniform(0, 2 * np.pi, 4)
        parts_of_town = 0.2 * np.sin(middle @ waves + phases).sum(axis=1)
        wide = np.array([0.0, 1.0, 1.3, 1.3])[streets.road] * rng.normal(-0.15, 0.2)
        both_ways = 0.35 * rng.normal(size=n) + parts_of_town + wide
        self._taste = np.exp(np.tile(both_ways, 2) + 0.15 * rng.normal(size=2 * n))
        self._cost: dict[int, list[float]] = {}
        self._trees: dict[tuple[int, bool], list[int]] = {}
        self._ways: dict[tuple[int, int, int, int], list[int]] = {}
        self._routes: dict[tuple[int, int, int, int], Route] = {}

    def graph(self, mode: int) -> Streets:
        """Where the person looks for the way: on the streets, or for public transport in the whole network."""
        return self.town.network.graph if mode >= BUS else self.town.streets

    def cost(self, mode: int) -> list[float]:
        """What each arc of the graph costs this person: its seconds of travel, times the taste."""
        mode = min(mode, BUS)
        if mode not in self._cost:
            streets = self.town.streets
            if mode == BUS:
                there, back = np.split(np.tile(1.5 * streets.length / CRUISE[WALK, SIDE], 2) * self._taste, 2)
                seconds = self.town.network.seconds
                self._cost[mode] = np.concatenate([there, seconds, back, seconds]).tolist()
            else:
                seconds = streets.length / CRUISE[mode, streets.road]
                self._cost[mode] = (np.tile(seconds, 2) * self._taste).tolist()
        return self._cost[mode]

    def way(self, start: int, goal: int, mode: int, variant: int = 0) -> list[int]:
        """The crossings of the person's way from one crossing to another."""
        key = (start, goal, min(mode, BUS), variant)
        if key not in self._ways:
            self._ways[key] = self._usual(start, goal, mode) if variant == 0 else self._other(*key)
        return self._ways[key]

    def route(self, origin: int, destination: int, mode: int, variant: int = 0) -> Route:
        """The person's way from door to door."""
        key = (origin, destination, min(mode, BUS), variant)
        if key not in self._routes:
            places = self.town.places
            way = self.way(int(places.node[origin]), int(places.node[destination]), mode, variant)
            make = by_line if mode >= BUS else door_to_door
            route = make(self.town, origin, destination, way)
            if mode >= BUS and variant > 0 and not ride_pays(route):
                route = self.route(origin, destination, mode)
            self._routes[key] = route
        return self._routes[key]

    def line_to(self, origin: int, destination: int) -> int:
        """The mode of the longest ride between two doors by public transport; walking if no ride pays."""
        route = self.route(origin, destination, BUS)
        if not ride_pays(route):
            return WALK
        metres = np.bincount(route.modes(WALK)[:-1], np.diff(route.arc))
        return int(BUS + np.argmax(metres[BUS:]))

    def _usual(self, start: int, goal: int, mode: int) -> list[int]:
        # One search from home, and one back to it against the direction of travel, serve most trips.
        mode = min(mode, BUS)
        streets, cost = self.graph(mode), self.cost(mode)
        home = int(self.town.places.node[self.who.home])
        if home not in (start, goal):
            return follow_back(cheapest_ways(streets, cost, start, goal)[1], start, goal)
        homewards = goal == home
        if (mode, homewards) not in self._trees:
            n = len(streets.edges)
            directed = cost[n:] + cost[:n] if homewards else cost
            self._trees[mode, homewards] = cheapest_ways(streets, directed, home)[1]
        way = follow_back(self._trees[mode, homewards], home, start if homewards else goal)
        return way[::-1] if homewards else way

    def _other(self, start: int, goal: int, mode: int, variant: int) -> list[int]:
        streets = self.graph(mode)
        cost = list(self.cost(mode))
        if variant >= IMPROVISED:
            rng = stream(self.town.seed, 6, self.who.index, variant)
            cost = (np.array(cost) * np.exp(0.45 * rng.normal(size=len(cost)))).tolist()
        else:
            for liked in range(variant):
                for arc in arcs_of(streets, self.way(start, goal, mode, liked)):
                    cost[arc] *= 1.35
        return follow_back(cheapest_ways(streets, cost, start, goal)[1], start, goal)


def door_to_door(town: Town, origin: int, destination: int, way: list[int]) -> Route:
    """Join two doors to the crossings between them."""
    streets, places = town.streets, town.places
    nodes = _trimmed(town, origin, destination, way)
    inner = [arc % len(streets.edges) for arc in arcs_of(streets, nodes)]
    edge = [int(places.edge[origin]), *inner, int(places.edge[destination])] if nodes else [int(places.edge[origin])]
    xy = np.concatenate([places.xy[[origin]], streets.xy[nodes], places.xy[[destination]]])
    return Route(xy, np.array([-1, *nodes, -1]), np.array([*edge, -1]))


def by_line(town: Town, origin: int, destination: int, way: list[int]) -> Route:
    """Join two doors to a way through the network of streets and lines."""
    nodes = _trimmed(town, origin, destination, way)
    if max(nodes, default=0) < len(town.streets.xy):
        walk = door_to_door(town, origin, destination, nodes)
        return replace(walk, mode=np.full(len(walk.node), WALK))
    legs = unfold(town.streets, town.lines, town.network, nodes)
    xy, edge = town.places.xy, town.places.edge
    ends = [town.streets.xy[[nodes[0]]], town.streets.xy[[nodes[-1]]]]
    on_foot, nowhere = np.full(2, WALK), np.full(2, -1)
    out = Route(np.concatenate([xy[[origin]], ends[0]]), nowhere, np.array([edge[origin], -1]), on_foot)
    back = Route(np.concatenate([ends[1], xy[[destination]]]), nowhere, np.array([edge[destination], -1]), on_foot)
    parts = [out, *legs, back]
    waits = [float(part.stays[0]) for part in parts[1:]]
    return chain(parts, [WALK] * len(parts), waits)


def ride_pays(route: Route) -> bool:
    """Whether a way is more by public transport than on foot, with no more than a long walk in it."""
    ridden = route.modes(WALK)[:-1] >= BUS
    metres = np.diff(route.arc)
    walked = float(metres[~ridden].sum())
    return bool(metres[ridden].sum() > walked) and walked < _LONG_WALK


def _trimmed(town: Town, origin: int, destination: int, way: list[int]) -> list[int]:
    """The crossings between two doors: a door's own street is not driven up and down."""
    places = town.places
    nodes = [] if places.edge[origin] == places.edge[destination] else way
    if len(nodes) > 1 and nodes[1] == places.far[origin]:
        nodes = nodes[1:]
    if len(nodes) > 1 and nodes[-2] == places.far[destination]:
        nodes = nodes[:-1]
    return nodes


class Stop(NamedTuple):
    """A stop on the way that the logger does not notice: where, for how long, and how one goes on."""

    place: int
    seconds: float
    mode: int
    variant: int


@dataclass(frozen=True, eq=False)
class Plans:
    """What normal trips were meant to be: whose, from door to door, how, which way, and when.

    Attributes
    ----------
    person
        Position of the person among the simulation's people; trips are sorted by it.
    origin, destination
        Numbers of places.
    mode, variant
        Indices of the mode of travel, and of the variant of the way (see :class:`Traveller`).
    depart
        Departure in seconds after the first midnight.
    late, early
        Seconds after the departure at which the logger is switched on, and before the arrival off; below zero
        where it runs for so long before the departure, and after the arrival.
    phase
        The phase of the person's life.
    via
        The stops of each trip, a tuple of :class:`Stop`.
    """

    person: Ints
    origin: Ints
    destination: Ints
    mode: Ints
    variant: Ints
    depart: Floats
    late: Floats
    early: Floats
    phase: Ints
    via: NDArray[np.object_]

    def journey(self, trip: int, traveller: Traveller) -> Journey:
        """The journey of one trip, made by this traveller."""
        mode, variant = int(self.mode[trip]), int(self.variant[trip])
        here, stops = int(self.origin[trip]), self.via[trip]
        if not stops:
            route = traveller.route(here, int(self.destination[trip]), mode, variant)
        else:
            places = [here, *(stop.place for stop in stops), int(self.destination[trip])]
            ways = [(mode, variant), *((stop.mode, stop.variant) for stop in stops)]
            routes = [traveller.route(a, b, *way) for (a, b), way in zip(pairwise(places), ways, strict=True)]
            route = chain(routes, [m for m, _ in ways], [stop.seconds for stop in stops])
        idle = max(-float(self.late[trip]), 0.0), max(-float(self.early[trip]), 0.0)
        return Journey(route, mode, float(self.depart[trip]), traveller.who.speed, idle=idle)

    def rows(self, chosen: Ints | slice) -> Plans:
        """Some of the plans."""
        return Plans(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def of(self, who: int) -> Plans:
        """The plans of the person at one position."""
        lo, hi = np.searchsorted(self.person, [who, who + 1])
        return self.rows(slice(int(lo), int(hi)))

    @classmethod
    def concat(cls, parts: Sequence[Plans]) -> Plans:
        """Plans one after the other."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))
