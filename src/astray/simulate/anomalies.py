"""The ways in which a trip can be wrong: each makes of a normal trip's plan another journey, or none.

An anomalous journey is driven, slowed, stopped and recorded by the same code as a normal one; only its plan
is different.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from astray.simulate.movement import DAY, HOUR, weekend
from astray.simulate.routes import EVERYWHERE, WALK, Journey, Route
from astray.simulate.streets import Floats, Ints, arcs_of, cheapest_ways, follow_back
from astray.simulate.ways import Plans, Traveller


@dataclass(frozen=True, eq=False)
class Past:
    """All that one person has done: the person on the streets, and the plans of all trips made there."""

    traveller: Traveller
    plans: Plans

    @cached_property
    def visited(self) -> Ints:
        """The places where the person has been."""
        return np.unique(np.concatenate([self.plans.origin, self.plans.destination]))

    @cached_property
    def known_streets(self) -> NDArray[np.bool_]:
        """For each street whether it lies on a way that the person has taken twice or more."""
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
        """Hours, round the clock, between a departure and the nearest of those from one place to another.

        Also how many of those there are; if none, the hours are infinite.
        """
        same = (self.plans.origin == origin) & (self.plans.destination == destination)
        apart = np.abs(self.plans.depart[same] - depart) % DAY
        return float(np.minimum(apart, DAY - apart).min(initial=np.inf)) / HOUR, int(same.sum())


@dataclass(frozen=True, eq=False)
class Case:
    """A normal trip that is about to go wrong.

    Attributes
    ----------
    journey, origin, destination
        The trip as it was planned, and the places that it joins.
    past
        All that this person has done.
    donor
        Draws a trip of somebody else, on a weekend or not as asked.
    """

    journey: Journey
    origin: int
    destination: int
    past: Past
    donor: Callable[[np.random.Generator, bool], Journey | None]


def agent_swap(case: Case, rng: np.random.Generator) -> Journey | None:
    """Somebody else's normal trip: that person's way, mode, speed and hour of the day, on this trip's day."""
    theirs = case.donor(rng, bool(weekend(case.journey.depart)))
    if theirs is None or _same_way(theirs.route, case.journey.route):
        return None
    midnight = case.journey.depart // DAY * DAY
    return replace(theirs, depart=midnight + theirs.depart % DAY, marked=EVERYWHERE)


def detour(case: Case, rng: np.random.Generator) -> Journey | None:
    """Leaves the own way at a crossing, goes round by other streets, and is back on it some crossings later.

    Of several detours the one is taken that is mostly on streets which the person knows from other trips: the
    places are familiar, the way is not. It adds 15 % to 80 % to the cost of the trip. Trips by public
    transport and trips with a stop on the way cannot carry it.
    """
    if case.journey.route.mode is not None:
        return None
    traveller, known = case.past.traveller, case.past.known_streets
    streets, cost, n = traveller.town.streets, traveller.cost(case.journey.mode), len(known)
    way = [node for node in case.journey.route.node.tolist() if node >= 0]
    if len(way) < 8:
        return None
    so_far = np.concatenate([[0.0], np.cumsum([cost[arc] for arc in arcs_of(streets, way)])])
    whole = float(so_far[-1])
    eager = (np.array(cost) * np.where(np.tile(known, 2), 0.2, 1.0)).tolist()
    backwards = eager[n:] + eager[:n]
    crossings = np.unique(streets.edges[known])
    best, most = None, -1.0
    for _ in range(8):
        span = max(2, round(len(way) * rng.uniform(0.15, 0.45)))
        leave = int(rng.integers(1, len(way) - span - 1))
        here, there = way[leave], way[leave + span]
        usual = float(so_far[leave + span] - so_far[leave])
        closed, within = set(way) - {here, there}, usual + 0.8 * whole
        out, before = cheapest_ways(streets, eager, here, closed=closed | {there}, within=within)
        back, after = cheapest_ways(streets, backwards, there, closed=closed | {here}, within=within)
        turning = np.flatnonzero(np.array(out) + np.array(back) < within)
        familiar = turning[np.isin(turning, crossings)]
        turning = familiar if len(familiar) else turning
        for turn in rng.permutation(turning)[:12].tolist():
            round_about = follow_back(before, here, turn) + follow_back(after, there, turn)[-2::-1]
            if len(set(round_about)) < len(round_about):
                continue  # goes up a street and down again
            arcs = np.array(arcs_of(streets, round_about))
            extra = sum(cost[arc] for arc in arcs) - usual
            metres = streets.length[arcs % n]
            share = float((metres * known[arcs % n]).sum() / metres.sum())
            if share > most and 0.15 * whole <= extra <= 0.8 * whole:
                best, most = round_about, share
        if most > 0.75:
            break
    return None if best is None else _spliced(case.journey, best, arcs_of(streets, best), case.past)


def loiter(case: Case, rng: np.random.Generator) -> Journey | None:
    """A stop of 8 to 25 minutes in the middle of the trip, 200 m or more from wherever the person goes."""
    doors = case.past.traveller.town.places.xy[case.past.visited]
    length = float(case.journey.route.arc[-1])
    for share in rng.uniform(0.25, 0.75, 20).tolist():
        route, k = case.journey.route.with_point(share * length)
        if route.rides and route.modes(WALK)[k] != WALK:
            continue  # passengers cannot stop the bus
        if np.hypot(*(doors - route.xy[k]).T).min() >= 200.0:
            halt = (k, float(rng.uniform(480.0, 1500.0)))
            marked = (share * length - 1.0, share * length + 1.0)
            return replace(case.journey, route=route, halt=halt, marked=marked)
    return None


def reversed_route(case: Case, rng: np.random.Generator) -> Journey | None:
    """The same way driven backwards at the same hour, unless the person ever goes back at about that hour."""
    apart, _ = case.past.hours_from(case.journey.depart, case.destination, case.origin)
    if apart < 1.5:
        return None
    return replace(case.journey, route=case.journey.route.reversed(), marked=EVERYWHERE)


def wrong_time(case: Case, rng: np.random.Generator) -> Journey | None:
    """A habitual trip (made three times or more) 2.5 hours or more from whenever the person makes it."""
    midnight = case.journey.depart // DAY * DAY
    for depart in (midnight + rng.uniform(0, DAY, 20)).tolist():
        apart, times = case.past.hours_from(depart, case.origin, case.destination)
        if times >= 3 and apart >= 2.5:
            return replace(case.journey, depart=depart, marked=EVERYWHERE)
    return None


def speeding(case: Case, rng: np.random.Generator) -> Journey | None:
    """The same way two to three times faster; passengers of public transport cannot."""
    if case.journey.route.rides:
        return None
    return replace(case.journey, haste=float(rng.uniform(2.0, 3.0)), marked=EVERYWHERE)


def new_destination(case: Case, rng: np.random.Generator) -> Journey | None:
    """From the usual start at the usual hour to where the person has never been, about as far as usual.

    The destination is 300 m or more from wherever the person goes. Anomalous from where the ways part.
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
"""What each kind of anomaly makes of a trip; none where the trip cannot carry it."""


def _same_way(a: Route, b: Route) -> bool:
    return a.xy.shape == b.xy.shape and bool((a.xy == b.xy).all())


def _spliced(journey: Journey, round_about: list[int], arcs: list[int], past: Past) -> Journey:
    """The journey with the part between the ends of the detour replaced by the detour, and that marked."""
    streets, old = past.traveller.town.streets, journey.route
    lead = int(np.flatnonzero(old.node == round_about[0])[0])
    tail = int(np.flatnonzero(old.node == round_about[-1])[0])
    route = Route(
        np.concatenate([old.xy[:lead], streets.xy[round_about], old.xy[tail + 1 :]]),
        np.concatenate([old.node[:lead], round_about, old.node[tail + 1 :]]),
        np.concatenate([old.edge[:lead], np.array(arcs) % len(streets.edges), old.edge[tail:]]),
    )
    arc: Floats = route.arc
    return replace(journey, route=route, marked=(float(arc[lead]), float(arc[lead + len(arcs)])))
