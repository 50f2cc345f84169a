"""Route choice: finds the streets and lines that a person takes from door to door."""

from __future__ import annotations

import numpy as np

from astray.simulate.movement import CRUISE
from astray.simulate.people import Person
from astray.simulate.routes import BUS, WALK, Route, chain
from astray.simulate.streets import SIDE, Streets, cheapest_path, cheapest_paths, trace_path
from astray.simulate.town import Town
from astray.simulate.transit import legs_of

_LONG_WALK = 2500.0  # people do not ride if they would have to walk more metres than this at both ends together

IMPROVISED = 3  # the first variant of a route that a person takes only once


class Traveller:
    """Finds and caches the routes of one person.

    A street costs its travel time multiplied by the person's taste: a preference for wide roads, for parts of
    town, for single streets and for single directions. So two people take different routes between the same
    doors, and one person may return by another route. Each route has variants: 0 is the usual one, 1 and 2 are
    alternatives, and each variant from :data:`IMPROVISED` on is improvised on one day.
    """

    def __init__(self, town: Town, who: Person) -> None:
        self.town, self.who = town, who
        rng = town.stream(4, who.index)
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
        self._paths: dict[tuple[int, int, int, int], list[int]] = {}
        self._routes: dict[tuple[int, int, int, int], Route] = {}

    def graph(self, mode: int) -> Streets:
        """Returns the graph of the route search: the streets, or the whole network for public transport."""
        return self.town.network.graph if mode >= BUS else self.town.streets

    def cost(self, mode: int) -> list[float]:
        """Returns the cost of each arc of the graph for this person: seconds of travel, times the taste."""
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

    def path(self, start: int, goal: int, mode: int, variant: int = 0) -> list[int]:
        """Returns the crossings that the person passes between two crossings."""
        key = (start, goal, min(mode, BUS), variant)
        if key not in self._paths:
            self._paths[key] = self._usual(*key[:3]) if variant == 0 else self._alternative(*key)
        return self._paths[key]

    def route(self, origin: int, destination: int, mode: int, variant: int = 0) -> Route:
        """Returns the person's route from door to door."""
        mode = min(mode, BUS)
        key = (origin, destination, mode, variant)
        if key not in self._routes:
            nodes = self.town.places.node
            path = self.path(int(nodes[origin]), int(nodes[destination]), mode, variant)
            if mode < BUS:
                route = _by_street(self.town, origin, destination, path, mode)
            else:
                route = _by_line(self.town, origin, destination, path)
                if variant > 0 and not _ride_pays(route):
                    route = self.route(origin, destination, mode)
            self._routes[key] = route
        return self._routes[key]

    def line_to(self, origin: int, destination: int) -> int:
        """Returns the mode of the longest ride between two doors by public transport; walking if no ride pays."""
        route = self.route(origin, destination, BUS)
        if not _ride_pays(route):
            return WALK
        metres = np.bincount(route.mode[:-1], np.diff(route.arc))
        return int(BUS + np.argmax(metres[BUS:]))

    def _usual(self, start: int, goal: int, mode: int) -> list[int]:
        # One search from home, and one back to it against the direction of travel, serve most trips.
        streets, cost = self.graph(mode), self.cost(mode)
        home = int(self.town.places.node[self.who.home])
        if home not in (start, goal):
            return cheapest_path(streets, cost, start, goal)
        homewards = goal == home
        if (mode, homewards) not in self._trees:
            n = len(streets.edges)
            directed = cost[n:] + cost[:n] if homewards else cost
            self._trees[mode, homewards] = cheapest_paths(streets, directed, home)[1]
        path = trace_path(self._trees[mode, homewards], home, start if homewards else goal)
        return path[::-1] if homewards else path

    def _alternative(self, start: int, goal: int, mode: int, variant: int) -> list[int]:
        streets, cost = self.graph(mode), list(self.cost(mode))
        if variant >= IMPROVISED:
            rng = self.town.stream(6, self.who.index, variant)
            cost = (np.array(cost) * np.exp(0.45 * rng.normal(size=len(cost)))).tolist()
        else:
            for preferred in range(variant):
                for arc in streets.arcs_along(self.path(start, goal, mode, preferred)):
                    cost[arc] *= 1.35
        return cheapest_path(streets, cost, start, goal)


def _by_street(town: Town, origin: int, destination: int, path: list[int], mode: int) -> Route:
    """Joins two doors to the path of crossings between them."""
    streets, places = town.streets, town.places
    nodes = _trim(town, origin, destination, path)
    edge = [int(places.edge[origin]), *streets.edges_along(nodes), int(places.edge[destination])]
    edge = edge if nodes else edge[:1]
    xy = np.concatenate([places.xy[[origin]], streets.xy[nodes], places.xy[[destination]]])
    return Route.by_mode(xy, np.array([-1, *nodes, -1]), np.array([*edge, -1]), mode)


def _by_line(town: Town, origin: int, destination: int, path: list[int]) -> Route:
    """Joins two doors to a path through the network of streets and lines."""
    nodes = _trim(town, origin, destination, path)
    if max(nodes, default=0) < len(town.streets.xy):
        return _by_street(town, origin, destination, nodes, WALK)

    def walk(door: int, ends: list[np.ndarray]) -> Route:
        """Returns the walk between a door and the first or last crossing, in the order of ``ends``."""
        return Route.by_mode(np.stack(ends), np.full(2, -1), np.array([town.places.edge[door], -1]), WALK)

    xy, crossings = town.places.xy, town.streets.xy
    parts = [
        walk(origin, [xy[origin], crossings[nodes[0]]]),
        *legs_of(town.streets, town.lines, town.network, nodes),
        walk(destination, [crossings[nodes[-1]], xy[destination]]),
    ]
    return chain(parts, [float(part.dwell[0]) for part in parts[1:]])


def _ride_pays(route: Route) -> bool:
    """Returns True if the person rides farther than they walk, and the walk is not too long."""
    ridden = route.mode[:-1] >= BUS
    metres = np.diff(route.arc)
    walked = float(metres[~ridden].sum())
    return bool(metres[ridden].sum() > walked) and walked < _LONG_WALK


def _trim(town: Town, origin: int, destination: int, path: list[int]) -> list[int]:
    """Removes crossings at the ends where the person would travel along a door's own street and back."""
    places = town.places
    nodes = [] if places.edge[origin] == places.edge[destination] else path
    if len(nodes) > 1 and nodes[1] == places.far[origin]:
        nodes = nodes[1:]
    if len(nodes) > 1 and nodes[-2] == places.far[destination]:
        nodes = nodes[:-1]
    return nodes
