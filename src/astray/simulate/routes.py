"""Routes, the points that a trip passes, and journeys, which add the mode, the time and the speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.simulate.streets import Floats, Ints, metres_along

MODES = ("walk", "cycle", "drive", "bus", "train", "metro")
"""Modes of travel. A trip by public transport is named after its longest ride. A metro runs underground."""

WALK, CYCLE, DRIVE, BUS, TRAIN, METRO = range(6)

NOWHERE, EVERYWHERE = (np.inf, -np.inf), (-np.inf, np.inf)
"""The marked stretch of a journey without an anomaly, and of one that is anomalous throughout."""


@dataclass(frozen=True, eq=False)
class Route:
    """A route: a chain of points."""

    xy: Floats  # the points in metres
    node: Ints  # the crossing at each point; -1 where there is none
    edge: Ints  # the street from each point to the next; -1 at the last point and on rails
    mode: Ints  # the mode of travel from each point to the next
    dwell: Floats  # typical seconds of standing at each point: waits for a bus, its stops, errands

    @classmethod
    def by_mode(cls, xy: Floats, node: Ints, edge: Ints, mode: int) -> Route:
        """Returns a route by one mode of travel without stops."""
        return cls(xy, node, edge, np.full(len(node), mode), np.zeros(len(node)))

    @property
    def rides(self) -> bool:
        """True if a part of the route is by public transport."""
        return bool((self.mode >= BUS).any())

    @property
    def arc(self) -> Floats:
        """Metres from the start at each point."""
        return metres_along(self.xy)

    def reversed(self) -> Route:
        """Returns the same route from its end to its start."""
        mode, edge = np.append(self.mode[-2::-1], self.mode[0]), np.append(self.edge[-2::-1], -1)
        return Route(self.xy[::-1], self.node[::-1], edge, mode, self.dwell[::-1])

    def with_point(self, metres: float) -> tuple[Route, int]:
        """Inserts a point ``metres`` after the start. Returns the new route and the position of the point."""
        arc = self.arc
        k = int(np.clip(np.searchsorted(arc, metres), 1, len(arc) - 1))
        route = Route(
            np.insert(self.xy, k, [np.interp(metres, arc, self.xy[:, axis]) for axis in (0, 1)], axis=0),
            np.insert(self.node, k, -1),
            np.insert(self.edge, k, self.edge[k - 1]),
            np.insert(self.mode, k, self.mode[k - 1]),
            np.insert(self.dwell, k, 0.0),
        )
        return route, k


@dataclass(frozen=True, eq=False)
class Journey:
    """A planned trip with its route."""

    route: Route  # the way from door to door
    mode: int  # index into `MODES`
    depart: float  # seconds after the first midnight
    speed: float  # the person's speed relative to the average person
    haste: float = 1.0  # A factor on speeds and accelerations, and a divisor of waits; 1 is usual
    halt: tuple[int, float] | None = None  # one deliberate stop: the position of a point on the route, and seconds
    idle: tuple[float, float] = (0.0, 0.0)  # additional seconds of standing before the departure and after the arrival
    marked: tuple[float, float] = NOWHERE  # the anomalous stretch, in metres from the start


def chain(routes: Sequence[Route], stays: Sequence[float]) -> Route:
    """Joins routes end to end, with a stay of ``stays`` seconds between each pair."""

    def joined(name: str) -> NDArray[Any]:
        """Joins a column; all routes but the last lose their last point, which is the first point of the next."""
        parts = [getattr(route, name) for route in routes]
        return np.concatenate([*(part[:-1] for part in parts[:-1]), parts[-1]])

    route = Route(*(joined(field.name) for field in fields(Route)))
    route.dwell[np.cumsum([len(part.node) - 1 for part in routes[:-1]])] = stays
    return route
