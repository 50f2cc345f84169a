"""The street network of a simulated town, crossings joined by straight streets, and Dijkstra's algorithm on it.

Positions are metres east and north of the town's centre, except :attr:`Streets.lat` and :attr:`Streets.lon`.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

CENTRE = (45.0, 7.0)  # latitude and longitude of the centre of the city of `astray.simulate.city`

# METRES_A_DEGREE of `astray.core.projection` differs in the last bit; with it, each seed would give other bytes.
METRES_PER_DEGREE = 6_371_008.8 * np.pi / 180.0

SIDE, AVENUE, RING, EXPRESS = range(4)
"""The classes of streets: side streets, avenues, ring roads and expressways."""


class OnEarth:
    """Points in metres around a centre, which also have latitudes and longitudes."""

    xy: Floats
    centre: tuple[float, float]

    @property
    def lat(self) -> Floats:
        """The latitude of each point."""
        return to_degrees(self.xy, self.centre)[0]

    @property
    def lon(self) -> Floats:
        """The longitude of each point."""
        return to_degrees(self.xy, self.centre)[1]


@dataclass(frozen=True, eq=False)
class Streets(OnEarth):
    """A street network. People use every street in both directions.

    Examples
    --------
    >>> from astray.simulate import city
    >>> streets = city(people=1, days=1).streets
    >>> len(streets.lat) == len(streets.lon) == len(streets.xy), int(streets.edges.max()) < len(streets.xy)
    (True, True)
    """

    xy: Floats  # position of each crossing, metres east and north of the centre
    edges: Ints  # the two crossings that each street joins
    road: Ints  # the class of each street, such as `SIDE` or `AVENUE`
    congestion: Floats  # the share of its speed that each street loses at the peak of the rush hour, 0 to 1
    river: Floats  # the river's middle line, for maps
    park: Floats  # the outline of the park, for maps
    centre: tuple[float, float] = CENTRE  # latitude and longitude of the centre
    patience: float = 1.0  # A factor on the waiting times at crossings; 1 in the city

    @cached_property
    def length(self) -> Floats:
        """Length of each street in metres."""
        ends = self.xy[self.edges]
        return np.asarray(np.hypot(*(ends[:, 0] - ends[:, 1]).T))

    @cached_property
    def side_middles(self) -> Floats:
        """The middle point of each side street, in the order of the side streets."""
        return np.asarray(self.xy[self.edges[self.road == SIDE]].mean(axis=1))

    @cached_property
    def signals(self) -> Bools:
        """A mask of the crossings with traffic lights: four or more streets meet, and one of them is wide."""
        wide = np.bincount(self.edges[self.road > SIDE].ravel(), minlength=len(self.xy))
        every = np.bincount(self.edges.ravel(), minlength=len(self.xy))
        return (wide >= 1) & (every >= 4)

    @cached_property
    def arcs(self) -> list[list[tuple[int, int]]]:
        """For each crossing, its neighbours and the arcs that lead to them.

        Arc ``e`` is street ``e`` in the order of its ends. Arc ``e + len(edges)`` is the same street in the
        opposite direction.
        """
        leaving: list[list[tuple[int, int]]] = [[] for _ in self.xy]
        for e, (a, b) in enumerate(self.edges.tolist()):
            leaving[a].append((b, e))
            leaving[b].append((a, e + len(self.edges)))
        return leaving

    def arcs_along(self, path: Sequence[int]) -> list[int]:
        """Returns the arcs along a sequence of neighbouring crossings."""
        return [next(arc for there, arc in self.arcs[a] if there == b) for a, b in pairwise(path)]

    def edges_along(self, path: Sequence[int]) -> list[int]:
        """Returns the streets along a sequence of neighbouring crossings."""
        return [arc % len(self.edges) for arc in self.arcs_along(path)]


def to_degrees(xy: Floats, centre: tuple[float, float]) -> tuple[Floats, Floats]:
    """Converts metres around the town's centre to latitudes and longitudes."""
    lat = centre[0] + xy[:, 1] / METRES_PER_DEGREE
    lon = centre[1] + xy[:, 0] / (METRES_PER_DEGREE * np.cos(np.radians(centre[0])))
    return lat, lon


def metres_along(xy: Floats) -> Floats:
    """Returns the distance travelled at each point of a polyline."""
    return np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(xy, axis=0).T))])


def nearest_point(points: Floats, place: Floats) -> int:
    """Returns the index of the point nearest to a place."""
    return int(np.argmin(((points - place) ** 2).sum(axis=1)))


def directions(bearing: ArrayLike) -> Floats:
    """Returns a unit vector for each angle in radians."""
    return np.stack([np.cos(bearing), np.sin(bearing)], axis=-1)


def rotate(points: Floats, angle: float) -> Floats:
    """Turns points around the centre by an angle in radians."""
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.asarray(points @ turn.T)


def lattice(columns: int, rows: int) -> tuple[Ints, Ints]:
    """Returns column and row numbers of all points of a grid around (0, 0), row by row."""
    column, row = np.meshgrid(np.arange(-columns, columns + 1), np.arange(-rows, rows + 1))
    return column.ravel(), row.ravel()


def largest_part(xy: Floats, ends: Ints, kinds: Ints) -> tuple[Floats, Ints, Ints]:
    """Keeps the largest connected part of a network and renumbers its crossings."""
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


# ---------------------------------------------------------------- cheapest paths


def cheapest_paths(
    streets: Streets,
    cost: Sequence[float],
    start: int,
    goal: int = -1,
    closed: Collection[int] = (),
    within: float = np.inf,
) -> tuple[list[float], list[int]]:
    """Returns, for each crossing, the least cost from ``start``, and the crossing before it on the cheapest path.

    ``cost`` has one number per arc (see :attr:`Streets.arcs`). The search stops at ``goal`` or where the cost
    exceeds ``within``, and never enters a ``closed`` crossing. Crossings that it does not reach have infinite
    cost and the predecessor -1.
    """
    least = [np.inf] * len(streets.xy)
    before = [-1] * len(streets.xy)
    for crossing in closed:
        least[crossing] = -np.inf  # so that no path there is an improvement
    least[start] = 0.0
    queue = [(0.0, start)]
    arcs, push, pop = streets.arcs, heapq.heappush, heapq.heappop
    while queue:
        so_far, here = pop(queue)
        if so_far > least[here]:
            continue  # a cheaper path was found after this one was queued
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


def trace_path(before: Sequence[int], start: int, goal: int) -> list[int]:
    """Returns the crossings from ``start`` to ``goal``, by the predecessors ``before``; empty if there is no path."""
    path = [goal]
    while path[-1] != start:
        previous = before[path[-1]]
        if previous < 0:
            return []
        path.append(previous)
    return path[::-1]


def cheapest_path(streets: Streets, cost: Sequence[float], start: int, goal: int) -> list[int]:
    """Returns the crossings of the cheapest path; an empty list if there is no path."""
    return trace_path(cheapest_paths(streets, cost, start, goal)[1], start, goal)
