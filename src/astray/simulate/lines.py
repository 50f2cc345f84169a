"""Public transport of a made town: lines with stops, and the network of streets and platforms they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from astray.simulate.movement import CRUISE
from astray.simulate.routes import BUS, METRO, TRAIN, WALK, Route
from astray.simulate.streets import AVENUE, SIDE, Floats, Ints, Streets, arcs_of, cheapest_ways, follow_back

_DWELL = {BUS: 18.0, TRAIN: 35.0, METRO: 30.0}
"""Typical seconds that a bus or a train stands at a stop."""

_BOARD = 90.0
"""Seconds that changing is worth to people, beside the wait."""


@dataclass(frozen=True, eq=False)
class Line:
    """One line, served both ways.

    Attributes
    ----------
    mode
        Bus, train or metro, an index into :data:`astray.simulate.routes.MODES`.
    way
        The crossings that the line passes, in order; a train goes straight from one to the next.
    stops
        Positions in ``way`` where it stops, the first and the last among them.
    headway
        Seconds from one bus or train to the next.
    """

    mode: int
    way: tuple[int, ...]
    stops: tuple[int, ...]
    headway: float

    def ride(self, streets: Streets, board: int, alight: int) -> Route:
        """The ride from one stop to another, numbers into ``stops``, with the wait at the first."""
        lo, hi = sorted((self.stops[board], self.stops[alight]))
        step = 1 if board < alight else -1
        passed = np.array(self.way[lo : hi + 1])[::step]
        stands = np.isin(np.arange(lo, hi + 1), self.stops)[::step]
        dwell = np.where(stands, _DWELL[self.mode], 0.0)
        dwell[0] = self.headway / 2
        rails = self.mode != BUS
        edge = np.full(len(passed), -1)
        if not rails:
            edge[:-1] = [arc % len(streets.edges) for arc in arcs_of(streets, passed.tolist())]
        node = np.full(len(passed), -1) if rails else passed
        return Route(streets.xy[passed], node, edge, np.full(len(passed), self.mode), dwell)


@dataclass(frozen=True, eq=False)
class Network:
    """Streets and platforms as one network to find the way in.

    Attributes
    ----------
    graph
        The streets, then edges from crossings up to platforms and from platform to platform. The crossings
        and the streets keep their numbers.
    seconds
        What each of the further edges takes.
    line, stop
        Of each platform the line, and the number of its stop there.
    """

    graph: Streets
    seconds: Floats
    line: Ints
    stop: Ints


def join(streets: Streets, lines: Sequence[Line]) -> Network:
    """The streets with a platform for each stop of each line."""
    at: list[int] = []
    edges: list[tuple[int, int]] = []
    seconds: list[float] = []
    line: list[int] = []
    stop: list[int] = []
    for number, one in enumerate(lines):
        speed = 0.75 * float(CRUISE[one.mode, AVENUE])
        metres = np.append(0.0, np.cumsum(np.hypot(*np.diff(streets.xy[list(one.way)], axis=0).T)))[list(one.stops)]
        platforms = len(streets.xy) + len(at) + np.arange(len(one.stops))
        at += [one.way[k] for k in one.stops]
        edges += [*zip(at[-len(one.stops) :], platforms.tolist(), strict=True), *pairwise(platforms.tolist())]
        seconds += [one.headway / 4 + _BOARD / 2] * len(one.stops)
        seconds += (np.diff(metres) / speed + _DWELL[one.mode]).tolist()
        line += [number] * len(one.stops)
        stop += list(range(len(one.stops)))
    more = len(edges)
    graph = replace(
        streets,
        xy=np.concatenate([streets.xy, streets.xy[at].reshape(-1, 2)]),
        edges=np.concatenate([streets.edges, np.array(edges, dtype=np.int64).reshape(-1, 2)]),
        road=np.concatenate([streets.road, np.full(more, SIDE)]),
        congestion=np.concatenate([streets.congestion, np.zeros(more)]),
    )
    return Network(graph, np.array(seconds), np.array(line, dtype=np.int64), np.array(stop, dtype=np.int64))


def unfold(streets: Streets, lines: Sequence[Line], network: Network, way: Sequence[int]) -> list[Route]:
    """The walks and rides of a way through the network, each from crossing to crossing."""
    n, legs, k = len(streets.xy), [], 0
    while k < len(way):
        last = k
        if way[k] < n:
            while last + 1 < len(way) and way[last + 1] < n:
                last += 1
            walked = list(way[k : last + 1])
            edge = [arc % len(streets.edges) for arc in arcs_of(streets, walked)]
            legs.append(Route(streets.xy[walked], np.array(walked), np.array([*edge, -1]), np.full(len(walked), WALK)))
        else:
            line = int(network.line[way[k] - n])
            while way[last + 1] >= n:
                last += 1
            stops = network.stop[np.array([way[k], way[last]]) - n].tolist()
            if stops[0] != stops[1]:
                legs.append(lines[line].ride(streets, *stops))
        k = last + 1
    return legs


# ---------------------------------------------------------------- laying lines


def lay_lines(streets: Streets, hearts: Floats, radius: float, supply: float, rng: np.random.Generator) -> list[Line]:
    """Lines through the middle and between quarters, the more the greater the town and the ``supply``, 0 to 1."""
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
        a, b = (_crossing_near(streets, heart + rng.normal(0, radius / 8, 2)) for heart in rng.choice(hearts, 2))
        if rng.random() < 0.5:
            b = _crossing_near(streets, rng.normal(0, radius / 3, 2))
        whim = (cost * np.exp(0.3 * rng.normal(size=len(cost)))).tolist()
        way = follow_back(cheapest_ways(streets, whim, a, b)[1], a, b)
        if len(way) >= 5:
            lines.append(Line(BUS, tuple(way), _stops(streets, way, 420.0), float(rng.uniform(240, 900))))
    return [line for line in lines if len(line.stops) >= 3]


def _railway(
    streets: Streets, hearts: Floats, radius: float, bearing: float, mode: int, rng: np.random.Generator
) -> Line:
    """A railway across town, bent towards the quarters on its way, with a station every kilometre or so."""
    along = np.arange(-0.85 * radius, 0.86 * radius, rng.uniform(900, 1500))
    direction, across = np.array([np.cos(bearing), np.sin(bearing)]), np.array([-np.sin(bearing), np.cos(bearing)])
    ahead, aside = hearts @ direction, hearts @ across
    pull = np.exp(-(((along[:, None] - ahead) / (radius / 5)) ** 2) - (aside / (radius / 2)) ** 2)
    bend = (pull @ aside) / (pull.sum(axis=1) + 0.3)
    points = along[:, None] * direction + bend[:, None] * across
    stations = [_crossing_near(streets, point) for point in points]
    way = list(dict.fromkeys(stations))
    return Line(mode, tuple(way), tuple(range(len(way))), float(rng.uniform(150, 600)))


def _crossing_near(streets: Streets, point: Floats) -> int:
    return int(np.argmin(((streets.xy - point) ** 2).sum(axis=1)))


def _stops(streets: Streets, way: Sequence[int], apart: float) -> tuple[int, ...]:
    """Positions on the way about so many metres apart, and its ends."""
    metres = np.append(0.0, np.cumsum(np.hypot(*np.diff(streets.xy[list(way)], axis=0).T)))
    stands = np.diff(metres // apart, prepend=-1.0) > 0
    stands[-1] = True
    return tuple(np.flatnonzero(stands).tolist())
