"""The streets of a made city: a warped grid with avenues, a ring road, a park, a river and few bridges.

Everything is in metres around the city's centre, except :attr:`Streets.lat` and :attr:`Streets.lon`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CENTRE = (45.0, 7.0)
"""Latitude and longitude of the city's centre."""

METRES_PER_DEGREE = 6_371_008.8 * np.pi / 180.0

SIDE: int = 0
AVENUE: int = 1
RING: int = 2
EXPRESS: int = 3
ROADS = ("side street", "avenue", "ring road", "expressway")

_COLUMNS, _ROWS = 16, 14
"""The grid reaches this many lines to the east and west, and to the north and south, of the centre."""

_BRIDGES = (-9, 0, 5, 9)
"""The only columns that cross the river."""


@dataclass(frozen=True, eq=False)
class Streets:
    """A street network: crossings joined by straight streets, to be driven both ways.

    Attributes
    ----------
    xy
        Position of each crossing, metres east and north of the centre.
    edges
        The two crossings that each street joins.
    road
        The class of each street, an index into :data:`ROADS`.
    congestion
        How much of its speed each street loses at the height of the rush, 0 to 1.
    river, park
        Outlines for drawing: the river's middle line and the park's edge, in metres.
    centre
        Latitude and longitude of the centre.
    patience
        How long the waits at crossings are, relative to those of the city.

    Examples
    --------
    >>> streets = grow(np.random.default_rng(0))
    >>> len(streets.lat) == len(streets.lon) == len(streets.xy), int(streets.edges.max()) < len(streets.xy)
    (True, True)
    """

    xy: Floats
    edges: Ints
    road: Ints
    congestion: Floats
    river: Floats
    park: Floats
    centre: tuple[float, float] = CENTRE
    patience: float = 1.0

    @property
    def lat(self) -> Floats:
        """Latitude of each crossing."""
        return to_degrees(self.xy, self.centre)[0]

    @property
    def lon(self) -> Floats:
        """Longitude of each crossing."""
        return to_degrees(self.xy, self.centre)[1]

    @cached_property
    def length(self) -> Floats:
        """Length of each street in metres."""
        ends = self.xy[self.edges]
        return np.asarray(np.hypot(*(ends[:, 0] - ends[:, 1]).T))

    @cached_property
    def signals(self) -> NDArray[np.bool_]:
        """Which crossings have traffic lights: those of four or more streets, one of them wide."""
        wide = np.bincount(self.edges[self.road > SIDE].ravel(), minlength=len(self.xy))
        every = np.bincount(self.edges.ravel(), minlength=len(self.xy))
        return (wide >= 1) & (every >= 4)

    @cached_property
    def arcs(self) -> list[list[tuple[int, int]]]:
        """For each crossing its neighbours and the arcs to them.

        Arc ``e`` is street ``e`` in the order of its ends; ``e + len(edges)`` is the same street the other
        way.
        """
        leaving: list[list[tuple[int, int]]] = [[] for _ in self.xy]
        for e, (a, b) in enumerate(self.edges.tolist()):
            leaving[a].append((b, e))
            leaving[b].append((a, e + len(self.edges)))
        return leaving


def to_degrees(xy: ArrayLike, centre: tuple[float, float] = CENTRE) -> tuple[Floats, Floats]:
    """Latitude and longitude of points given in metres around the city's centre."""
    points = np.asarray(xy, dtype=np.float64)
    lat = centre[0] + points[..., 1] / METRES_PER_DEGREE
    lon = centre[1] + points[..., 0] / (METRES_PER_DEGREE * np.cos(np.radians(centre[0])))
    return lat, lon


def to_metres(lat: ArrayLike, lon: ArrayLike, centre: tuple[float, float] = CENTRE) -> Floats:
    """Metres around the city's centre of points given in degrees.

    >>> lat, lon = to_degrees([[1200.0, -300.0]])
    >>> to_metres(lat, lon).round(6)
    array([[1200., -300.]])
    """
    north = (np.asarray(lat, dtype=np.float64) - centre[0]) * METRES_PER_DEGREE
    east = (np.asarray(lon, dtype=np.float64) - centre[1]) * METRES_PER_DEGREE * np.cos(np.radians(centre[0]))
    return np.stack([east, north], axis=-1)


# ---------------------------------------------------------------- finding the way


def cheapest_ways(
    streets: Streets,
    cost: Sequence[float],
    start: int,
    goal: int = -1,
    closed: Collection[int] = (),
    within: float = np.inf,
) -> tuple[list[float], list[int]]:
    """Dijkstra's algorithm: the least cost from ``start`` to each crossing, and the one before it on the way.

    ``cost`` is one number an arc (see :attr:`Streets.arcs`). The search ends early at ``goal`` or where the
    cost exceeds ``within``, and never enters a ``closed`` crossing. Crossings that were not reached cost
    infinity and have -1 before them.
    """
    least = [np.inf] * len(streets.xy)
    before = [-1] * len(streets.xy)
    for crossing in closed:
        least[crossing] = -np.inf  # no way there can be an improvement
    least[start] = 0.0
    queue = [(0.0, start)]
    arcs, push, pop = streets.arcs, heapq.heappush, heapq.heappop
    while queue:
        so_far, here = pop(queue)
        if so_far > least[here]:
            continue  # reached more cheaply since it was queued
        if here == goal or so_far > within:
            break
        for there, arc in arcs[here]:
            total = so_far + cost[arc]
            if total < least[there]:
                least[there] = total
                before[there] = here
                push(queue, (total, there))
    for crossing in closed:
        least[crossing] = np.inf
    return least, before


def follow_back(before: Sequence[int], start: int, goal: int) -> list[int]:
    """The crossings from ``start`` to ``goal`` as :func:`cheapest_ways` found them; none if no way."""
    way = [goal]
    while way[-1] != start:
        previous = before[way[-1]]
        if previous < 0:
            return []
        way.append(previous)
    return way[::-1]


def arcs_of(streets: Streets, way: Sequence[int]) -> list[int]:
    """The arcs that a sequence of neighbouring crossings runs along."""
    return [next(arc for there, arc in streets.arcs[a] if there == b) for a, b in pairwise(way)]


# ---------------------------------------------------------------- growing a city


def grow(rng: np.random.Generator) -> Streets:
    """Lay out a city of about 12 by 10 km with some 730 crossings, dense in the centre, wide outside."""
    column, row = (
        axis.ravel() for axis in np.meshgrid(np.arange(-_COLUMNS, _COLUMNS + 1), np.arange(-_ROWS, _ROWS + 1))
    )
    number = {(int(i), int(j)): k for k, (i, j) in enumerate(zip(column, row, strict=True))}
    wide_columns, wide_rows = (-12, -6, 0, 5, 11), (-11, -6, 0, 5, 10)

    edges: list[tuple[int, int]] = []
    road: list[int] = []
    for (i, j), here in number.items():
        for step in ((1, 0), (0, 1), (1, 1), (1, -1)):
            there = number.get((i + step[0], j + step[1]))
            if there is None:
                continue
            across, up = step
            if up == 0:
                kind = RING if abs(j) == 8 and -9 <= i < 9 else AVENUE if j in wide_rows else SIDE
            elif across == 0:
                kind = RING if abs(i) == 9 and -8 <= j < 8 else AVENUE if i in wide_columns else SIDE
            elif (step == (1, 1) and i == j and -8 <= i < 8) or (step == (1, -1) and i == -j and -8 <= i < 0):
                kind = AVENUE  # the slanting avenues that meet in the centre
            else:
                continue
            edges.append((here, there))
            road.append(kind)
    ends, kinds = np.array(edges), np.array(road)

    phase = rng.uniform(0, 2 * np.pi)

    def river_row(u: Floats) -> Floats:
        return np.asarray(-3.5 + 1.2 * np.sin(u / 4.3 + phase))

    u, v = column.astype(np.float64), row.astype(np.float64)
    above = v > river_row(u)
    bank = np.where(above, np.maximum(v, river_row(u) + 0.4), np.minimum(v, river_row(u) - 0.4))
    ground = _ground(rng)
    spacing = np.stack([_stretch(u + 0.5) - _stretch(u - 0.5), _stretch(v + 0.5) - _stretch(v - 0.5)], axis=1)
    xy = ground(u, bank) + np.clip(rng.normal(0, 0.09, (len(u), 2)), -0.2, 0.2) * spacing

    # What is not there: links across the river away from the bridges, the park's inside, the ragged edge of
    # town, and one side street in eight.
    park_centre, park_size = (6.5, 7.4), (2.7, 2.2)
    inside = ((u - park_centre[0]) / park_size[0]) ** 2 + ((v - park_centre[1]) / park_size[1]) ** 2 < 1
    beyond = np.hypot(u / (_COLUMNS + 0.5), v / (_ROWS + 0.5)) > rng.normal(1.0, 0.05, len(u))
    a, b = ends.T
    crossing = above[a] != above[b]
    bridge = crossing & (column[a] == column[b]) & np.isin(column[a], _BRIDGES)
    kinds[bridge] = np.maximum(kinds[bridge], AVENUE)
    missing = (kinds == SIDE) & (rng.random(len(ends)) < 0.12)
    keep = ~missing & (~crossing | bridge) & ~beyond[a] & ~beyond[b]
    keep &= ~((kinds == SIDE) & (inside[a] | inside[b]))
    ends, kinds = ends[keep], kinds[keep]

    xy, ends, kinds = largest_part(xy, ends, kinds)
    middle = np.hypot(*xy[ends].mean(axis=1).T)
    congestion = np.array([0.25, 0.45, 0.4])[kinds] + 0.2 * np.exp(-((middle / 2000.0) ** 2))
    line, turn = np.linspace(-_COLUMNS - 1, _COLUMNS + 1, 120), np.linspace(0, 2 * np.pi, 60)
    river = ground(line, river_row(line))
    park = ground(
        park_centre[0] + 0.92 * park_size[0] * np.cos(turn),
        park_centre[1] + 0.92 * park_size[1] * np.sin(turn),
    )
    return Streets(xy, ends, kinds, congestion, river, park)


def _stretch(line: Floats) -> Floats:
    """Metres of a grid line: blocks of 230 m in the centre that grow to 560 m at the edge of town."""
    return 230.0 * line * (1 + 0.045 * np.abs(line))


def _ground(rng: np.random.Generator) -> Callable[[Floats, Floats], Floats]:
    """A smooth map from grid lines to metres: stretched, gently bent and turned."""
    bend = rng.uniform(0, 2 * np.pi, 4)
    angle = rng.uniform(0.1, 0.4)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    def ground(u: Floats, v: Floats) -> Floats:
        x, y = _stretch(u), _stretch(v)
        bent = np.stack(
            [
                x + 220 * np.sin(y / 1900 + bend[0]) + 90 * np.sin(x / 900 + bend[1]),
                y + 260 * np.sin(x / 2100 + bend[2]) + 90 * np.sin(y / 800 + bend[3]),
            ],
            axis=-1,
        )
        return np.asarray(bent @ turn.T)

    return ground


def largest_part(xy: Floats, ends: Ints, kinds: Ints) -> tuple[Floats, Ints, Ints]:
    """Keep the largest connected part of the network and number its crossings afresh."""
    part = np.arange(len(xy))
    while True:  # every crossing takes the smallest number among its neighbours until nothing changes
        smallest = part.copy()
        np.minimum.at(smallest, ends[:, 0], part[ends[:, 1]])
        np.minimum.at(smallest, ends[:, 1], part[ends[:, 0]])
        smallest = smallest[smallest]
        if np.array_equal(smallest, part):
            break
        part = smallest
    kept = part == np.bincount(part).argmax()
    fresh = np.cumsum(kept) - 1
    inside = kept[ends[:, 0]]
    return xy[kept], fresh[ends[inside]], kinds[inside]
