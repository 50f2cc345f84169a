"""The kinds of anomaly: functions that turn the plan of a normal trip into an anomalous journey, or reject the trip.

The same code moves and records normal and anomalous journeys; only their plans differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from astray.simulate.movement import DAY, HOUR, weekend
from astray.simulate.planned_trips import Plans
from astray.simulate.route_choice import Traveller
from astray.simulate.routes import BUS, EVERYWHERE, WALK, Journey, Route
from astray.simulate.streets import Bools, Ints, Streets, cheapest_paths, trace_path


@dataclass(frozen=True, eq=False)
class Past:
    """One person's past: the person as a traveller, and the plans of all the person's normal trips."""

    traveller: Traveller
    plans: Plans

    @cached_property
    def visited(self) -> Ints:
        """The places that the person has visited."""
        return np.unique(np.concatenate([self.plans.origin, self.plans.destination]))

    @cached_property
    def known_streets(self) -> Bools:
        """A mask of the streets on routes that the person has taken at least twice."""
        p = self.plans
        ways, times = np.unique(
            np.stack([p.origin, p.destination, p.mode, p.variant], axis=1), axis=0, return_counts=True
        )
        known = np.zeros(len(self.traveller.town.streets.edges), dtype=bool)
        for origin, destination, mode, variant in ways[times >= 2].tolist():
            taken = self.traveller.route(origin, destination, mode, variant).edge
            known[taken[taken >= 0]] = True
        return known

    def hours_from(self, depart: float, origin: int, destination: int) -> tuple[float, int]:
        """Compares a departure with the person's other trips between two places.

        Returns the hours to the nearest departure of these trips by the time of day, and the number of trips.
        Without such trips, the hours are infinite.
        """
        same = (self.plans.origin == origin) & (self.plans.destination == destination)
        apart = np.abs(self.plans.depart[same] - depart) % DAY
        return float(np.minimum(apart, DAY - apart).min(initial=np.inf)) / HOUR, int(same.sum())


Donor = Callable[[np.random.Generator, bool], Journey | None]
"""Draws a trip of another person, on a weekend if the flag is True, otherwise on a working day."""


@dataclass(frozen=True, eq=False)
class Case:
    """A normal trip to turn into an anomaly."""

    journey: Journey  # the planned trip
    origin: int  # the place where the trip begins
    destination: int  # the place where the trip ends
    past: Past  # the person's past
    donor: Donor  # draws a trip of another person


def agent_swap(case: Case, rng: np.random.Generator) -> Journey | None:
    """Replaces the trip by another person's normal trip (route, mode, speed and time of day), on the same day."""
    theirs = case.donor(rng, bool(weekend(case.journey.depart)))
    if theirs is None or _same_route(theirs.route, case.journey.route):
        return None
    midnight = case.journey.depart // DAY * DAY
    return replace(theirs, depart=midnight + theirs.depart % DAY, marked=EVERYWHERE)


def detour(case: Case, rng: np.random.Generator) -> Journey | None:
    """Leaves the route at a crossing, takes other streets, and returns to the route some crossings later.

    Of several detours it takes the one with the largest share of streets that the person knows from other trips:
    the places are familiar, the route is not. The detour adds 15 % to 80 % to the cost of the trip. It rejects
    trips by public transport and trips with a stop.
    """
    if case.journey.mode >= BUS or case.journey.route.dwell.any():
        return None
    traveller, known = case.past.traveller, case.past.known_streets
    streets, cost, n = traveller.town.streets, traveller.cost(case.journey.mode), len(known)
    path = [node for node in case.journey.route.node.tolist() if node >= 0]
    if len(path) < 8:
        return None
    so_far = np.concatenate([[0.0], np.cumsum([cost[arc] for arc in streets.arcs_along(path)])])
    whole = float(so_far[-1])
    eager = (np.array(cost) * np.where(np.tile(known, 2), 0.2, 1.0)).tolist()
    backwards = eager[n:] + eager[:n]
    crossings = np.unique(streets.edges[known])
    best, most = None, -1.0
    for _ in range(8):
        span = max(2, round(len(path) * rng.uniform(0.15, 0.45)))
        leave = int(rng.integers(1, len(path) - span - 1))
        here, there = path[leave], path[leave + span]
        usual = float(so_far[leave + span] - so_far[leave])
        closed, within = set(path) - {here, there}, usual + 0.8 * whole
        out, before = cheapest_paths(streets, eager, here, closed=closed | {there}, within=within)
        back, after = cheapest_paths(streets, backwards, there, closed=closed | {here}, within=within)
        turning = np.flatnonzero(np.array(out) + np.array(back) < within)
        familiar = turning[np.isin(turning, crossings)]
        turning = familiar if len(familiar) else turning
        for turn in rng.permutation(turning)[:12].tolist():
            round_about = trace_path(before, here, turn) + trace_path(after, there, turn)[-2::-1]
            if len(set(round_about)) < len(round_about):
                continue  # it would go along a street and back
            arcs = np.array(streets.arcs_along(round_about))
            extra = sum(cost[arc] for arc in arcs) - usual
            metres = streets.length[arcs % n]
            share = float((metres * known[arcs % n]).sum() / metres.sum())
            if share > most and 0.15 * whole <= extra <= 0.8 * whole:
                best, most = round_about, share
        if most > 0.75:
            break
    return None if best is None else _splice(case.journey, best, streets)


def loiter(case: Case, rng: np.random.Generator) -> Journey | None:
    """Adds a stop of 8 to 25 minutes in the middle of the trip, at least 200 m from all places of the person."""
    doors = case.past.traveller.town.places.xy[case.past.visited]
    length = float(case.journey.route.arc[-1])
    for share in rng.uniform(0.25, 0.75, 20).tolist():
        route, k = case.journey.route.with_point(share * length)
        if route.rides and route.mode[k] != WALK:
            continue  # passengers cannot stop the bus
        if np.hypot(*(doors - route.xy[k]).T).min() >= 200.0:
            halt = (k, float(rng.uniform(480.0, 1500.0)))
            marked = (share * length - 1.0, share * length + 1.0)
            return replace(case.journey, route=route, halt=halt, marked=marked)
    return None


def reversed_route(case: Case, rng: np.random.Generator) -> Journey | None:
    """Reverses the route at the same hour; rejects trips whose way back the person also makes at about that hour."""
    apart, _ = case.past.hours_from(case.journey.depart, case.destination, case.origin)
    if apart < 1.5:
        return None
    return replace(case.journey, route=case.journey.route.reversed(), marked=EVERYWHERE)


def wrong_time(case: Case, rng: np.random.Generator) -> Journey | None:
    """Moves a habitual trip (made at least three times) to at least 2.5 hours from all its usual departures."""
    midnight = case.journey.depart // DAY * DAY
    for depart in (midnight + rng.uniform(0, DAY, 20)).tolist():
        apart, times = case.past.hours_from(depart, case.origin, case.destination)
        if times >= 3 and apart >= 2.5:
            return replace(case.journey, depart=depart, marked=EVERYWHERE)
    return None


def speeding(case: Case, rng: np.random.Generator) -> Journey | None:
    """Makes the trip two to three times faster on the same route; rejects trips by public transport."""
    if case.journey.route.rides:
        return None
    return replace(case.journey, haste=float(rng.uniform(2.0, 3.0)), marked=EVERYWHERE)


def new_destination(case: Case, rng: np.random.Generator) -> Journey | None:
    """Sends the person from the usual origin, at the usual hour, to a new place about as far away as the usual one.

    The destination is at least 300 m from all places that the person visits. The trip is anomalous from the point
    where it leaves the usual route.
    """
    traveller, visited = case.past.traveller, case.past.visited
    places, old = traveller.town.places, case.journey.route
    usual = float(places.distance(case.origin, case.destination))
    away = places.distance(case.origin, np.arange(len(places.kind)))
    options = np.flatnonzero((away > max(0.6 * usual, 700.0)) & (away < max(1.6 * usual, 1500.0)))
    for place in rng.permutation(options)[:20].tolist():
        if places.distance(place, visited).min() < 300.0:
            continue
        route = traveller.route(case.origin, place, case.journey.mode)
        n = min(len(route.xy), len(old.xy))
        same = np.append((route.xy[:n] == old.xy[:n]).all(axis=1), False)
        parting = float(route.arc[int(np.argmin(same)) - 1])
        if route.arc[-1] - parting > 400.0:
            return replace(case.journey, route=route, marked=(parting, np.inf))
    return None


KINDS: dict[str, Callable[[Case, np.random.Generator], Journey | None]] = {
    "agent-swap": agent_swap,
    "detour": detour,
    "loiter": loiter,
    "reversed": reversed_route,
    "wrong-time": wrong_time,
    "speeding": speeding,
    "new-destination": new_destination,
}
"""The kinds of anomaly by name. Each returns the anomalous journey, or None if the trip does not suit the kind."""


def _same_route(a: Route, b: Route) -> bool:
    return a.xy.shape == b.xy.shape and bool((a.xy == b.xy).all())


def _splice(journey: Journey, detour: list[int], streets: Streets) -> Journey:
    """Replaces the part of the journey between the ends of the detour by the detour, and marks it."""
    old, edges = journey.route, streets.edges_along(detour)
    lead = int(np.flatnonzero(old.node == detour[0])[0])
    tail = int(np.flatnonzero(old.node == detour[-1])[0])
    route = Route.by_mode(
        np.concatenate([old.xy[:lead], streets.xy[detour], old.xy[tail + 1 :]]),
        np.concatenate([old.node[:lead], detour, old.node[tail + 1 :]]),
        np.concatenate([old.edge[:lead], edges, old.edge[tail:]]),
        journey.mode,
    )
    return replace(journey, route=route, marked=(float(route.arc[lead]), float(route.arc[lead + len(edges)])))
