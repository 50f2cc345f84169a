"""Public transport of a simulated town: lines with stops, and the network of streets and platforms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from astray.simulate.movement import CRUISE
from astray.simulate.routes import BUS, METRO, TRAIN, WALK, Route
from astray.simulate.streets import (
    AVENUE,
    SIDE,
    Floats,
    Ints,
    Streets,
    cheapest_path,
    directions,
    metres_along,
    nearest_point,
)

_DWELL = {BUS: 18.0, TRAIN: 35.0, METRO: 30.0}  # typical seconds that a bus or a train stands at a stop
_BOARD = 90.0  # seconds that boarding counts as in the route search, in addition to the wait


@dataclass(frozen=True, eq=False)
class Line:
    """One line, served in both directions."""

    mode: int  # bus, train or metro, an index into `astray.simulate.routes.MODES`
    path: tuple[int, ...]  # the crossings that the line passes, in order. A train goes straight from one to the next
    stops: tuple[int, ...]  # positions in ``path`` where the line stops, the first and the last included
    headway: float  # seconds from one bus or train to the next

    def ride(self, streets: Streets, board: int, alight: int) -> Route:
        """Returns the ride between two stops (positions in ``stops``), with the wait at the first."""
        lo, hi = sorted((self.stops[board], self.stops[alight]))
        step = 1 if board < alight else -1
        passed = np.array(self.path[lo : hi + 1])[::step]
        stands = np.isin(np.arange(lo, hi + 1), self.stops)[::step]
        dwell = np.where(stands, _DWELL[self.mode], 0.0)
        dwell[0] = self.headway / 2
        node = edge = np.full(len(passed), -1)  # rails are not streets
        if self.mode == BUS:
            node, edge = passed, np.append(streets.edges_along(passed.tolist()), -1)
        return Route(streets.xy[passed], node, edge, np.full(len(passed), self.mode), dwell)


@dataclass(frozen=True, eq=False)
class Network:
    """Streets and platforms as one graph for route search.

    The graph has the streets, then edges from crossings to platforms and from platform to platform. Crossings and
    streets keep their numbers.
    """

    graph: Streets
    seconds: Floats  # travel time of each added edge
    line: Ints  # the line of each platform
    stop: Ints  # the position of each platform among the stops of its line


def join(streets: Streets, lines: Sequence[Line]) -> Network:
    """Returns the network of streets and lines, with a platform for each stop of each line."""
    at: list[int] = []
    edges: list[tuple[int, int]] = []
    seconds: list[float] = []
    line: list[int] = []
    stop: list[int] = []
    for number, one in enumerate(lines):
        speed = 0.75 * float(CRUISE[one.mode, AVENUE])
        metres = metres_along(streets.xy[list(one.path)])[list(one.stops)]
        platforms = (len(streets.xy) + len(at) + np.arange(len(one.stops))).tolist()
        crossings = [one.path[k] for k in one.stops]
        at += crossings
        edges += [*zip(crossings, platforms, strict=True), *pairwise(platforms)]
        seconds += [one.headway / 4 + _BOARD / 2] * len(one.stops)
        seconds += (np.diff(metres) / speed + _DWELL[one.mode]).tolist()
        line += [number] * len(one.stops)
        stop += list(range(len(one.stops)))
    graph = replace(
        streets,
        xy=np.concatenate([streets.xy, streets.xy[at].reshape(-1, 2)]),
        edges=np.concatenate([streets.edges, np.array(edges, dtype=np.int64).reshape(-1, 2)]),
        road=np.concatenate([streets.road, np.full(len(edges), SIDE)]),
        congestion=np.concatenate([streets.congestion, np.zeros(len(edges))]),
    )
    return Network(graph, np.array(seconds), np.array(line, dtype=np.int64), np.array(stop, dtype=np.int64))


def legs_of(streets: Streets, lines: Sequence[Line], network: Network, path: Sequence[int]) -> list[Route]:
    """Splits a path through the network into walks and rides, each from crossing to crossing."""
    n, legs, k = len(streets.xy), [], 0
    while k < len(path):
        last = k
        if path[k] < n:
            while last + 1 < len(path) and path[last + 1] < n:
                last += 1
            walked = list(path[k : last + 1])
            edge = np.array([*streets.edges_along(walked), -1])
            legs.append(Route.by_mode(streets.xy[walked], np.array(walked), edge, WALK))
        else:
            line = int(network.line[path[k] - n])
            while path[last + 1] >= n:
                last += 1
            stops = network.stop[np.array([path[k], path[last]]) - n].tolist()
            if stops[0] != stops[1]:
                legs.append(lines[line].ride(streets, *stops))
        k = last + 1
    return legs


# ---------------------------------------------------------------- laying lines


def lay_lines(streets: Streets, hearts: Floats, radius: float, supply: float, rng: np.random.Generator) -> list[Line]:
    """Lays lines through the centre and between districts; more in large towns and with a high ``supply`` (0 to 1)."""
    rails = round(supply * radius / 3000.0)
    buses = round(supply * np.clip(radius / 350.0, 8, 26))
    mode = METRO if rng.random() < 0.6 else TRAIN
    turn = rng.uniform(0, np.pi)
    lines = []
    for k in range(min(rails, 5)):
        bearing = turn + np.pi * k / max(rails, 1)
        lines.append(_railway(streets, hearts, radius, bearing, mode, rng))
    cost = np.tile(streets.length / CRUISE[BUS, streets.road] * np.where(streets.road == SIDE, 1.6, 1.0), 2)
    for _ in range(buses):
        a, b = (nearest_point(streets.xy, heart + rng.normal(0, radius / 8, 2)) for heart in rng.choice(hearts, 2))
        if rng.random() < 0.5:
            b = nearest_point(streets.xy, rng.normal(0, radius / 3, 2))
        varied = (cost * np.exp(0.3 * rng.normal(size=len(cost)))).tolist()
        path = cheapest_path(streets, varied, a, b)
        if len(path) >= 5:
            lines.append(Line(BUS, tuple(path), _bus_stops(streets, path, 420.0), float(rng.uniform(240, 900))))
    return [line for line in lines if len(line.stops) >= 3]


def _railway(
    streets: Streets, hearts: Floats, radius: float, bearing: float, mode: int, rng: np.random.Generator
) -> Line:
    """Lays a railway across town that bends towards the districts, with a station about every kilometre."""
    along = np.arange(-0.85 * radius, 0.86 * radius, rng.uniform(900, 1500))
    direction = directions(bearing)
    across = np.array([-direction[1], direction[0]])
    ahead, aside = hearts @ direction, hearts @ across
    pull = np.exp(-(((along[:, None] - ahead) / (radius / 5)) ** 2) - (aside / (radius / 2)) ** 2)
    bend = (pull @ aside) / (pull.sum(axis=1) + 0.3)
    points = along[:, None] * direction + bend[:, None] * across
    path = tuple(dict.fromkeys(nearest_point(streets.xy, point) for point in points))
    return Line(mode, path, tuple(range(len(path))), float(rng.uniform(150, 600)))


def _bus_stops(streets: Streets, path: Sequence[int], apart: float) -> tuple[int, ...]:
    """Returns positions on the path about ``apart`` metres apart, and both of its ends."""
    stands = np.diff(metres_along(streets.xy[list(path)]) // apart, prepend=-1.0) > 0
    stands[-1] = True
    return tuple(np.flatnonzero(stands).tolist())
