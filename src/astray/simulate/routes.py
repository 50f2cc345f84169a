"""A trip before it is made: the way as a chain of points, how it is travelled, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from astray.simulate.streets import Floats, Ints

MODES = ("walk", "cycle", "drive", "bus", "train", "metro")
"""How a trip is made. One by public transport is named after its longest ride; a metro is under ground."""

WALK, CYCLE, DRIVE, BUS, TRAIN, METRO = range(6)

NOWHERE, EVERYWHERE = (np.inf, -np.inf), (-np.inf, np.inf)
"""Marked stretches of a journey that has no anomaly, and of one that is anomalous throughout."""


@dataclass(frozen=True, eq=False)
class Route:
    """A way on the streets as a chain of points.

    Attributes
    ----------
    xy
        The points in metres.
    node
        The crossing that each point is, -1 where it is none.
    edge
        The street from each point to the next; -1 at the last, and where there is no street (on rails).
    mode
        The mode of travel from each point to the next, where it changes on the way.
    dwell
        Typical seconds of standing at each point: waits for a bus, its stops, errands on the way.
    """

    xy: Floats
    node: Ints
    edge: Ints
    mode: Ints | None = None
    dwell: Floats | None = None

    def modes(self, usual: int) -> Ints:
        """The mode of travel from each point to the next; ``usual`` where the way does not say."""
        return np.full(len(self.node), usual) if self.mode is None else self.mode

    @property
    def stays(self) -> Floats:
        """Seconds of standing at each point."""
        return np.zeros(len(self.node)) if self.dwell is None else self.dwell

    @property
    def rides(self) -> bool:
        """Whether some of the way is by public transport."""
        return self.mode is not None and bool((self.mode >= BUS).any())

    @property
    def arc(self) -> Floats:
        """Metres along the way at each point."""
        return np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(self.xy, axis=0).T))])

    def reversed(self) -> Route:
        """The same way from its end to its beginning."""
        mode = None if self.mode is None else np.append(self.mode[-2::-1], self.mode[0])
        dwell = None if self.dwell is None else self.dwell[::-1]
        return Route(self.xy[::-1], self.node[::-1], np.append(self.edge[-2::-1], -1), mode, dwell)

    def with_point(self, metres: float) -> tuple[Route, int]:
        """The same way with one more point so many metres along it, and its position in the chain."""
        arc = self.arc
        k = int(np.clip(np.searchsorted(arc, metres), 1, len(arc) - 1))
        point = [np.interp(metres, arc, self.xy[:, axis]) for axis in (0, 1)]
        return (
            Route(
                np.insert(self.xy, k, point, axis=0),
                np.insert(self.node, k, -1),
                np.insert(self.edge, k, self.edge[k - 1]),
                None if self.mode is None else np.insert(self.mode, k, self.mode[k - 1]),
                None if self.dwell is None else np.insert(self.dwell, k, 0.0),
            ),
            k,
        )


@dataclass(frozen=True, eq=False)
class Journey:
    """One trip to be made.

    Attributes
    ----------
    route, mode, depart
        The way, an index into :data:`MODES`, and the departure in seconds after the first midnight.
    speed
        The person's speed relative to everybody's.
    haste
        Factor on speeds and accelerations, and divisor of waits; 1 is usual.
    halt
        Position in the chain of points and seconds of one deliberate stop there.
    idle
        Seconds of standing before the departure and after the arrival, beside the usual ones.
    marked
        The stretch, in metres along the way, that is anomalous.
    """

    route: Route
    mode: int
    depart: float
    speed: float
    haste: float = 1.0
    halt: tuple[int, float] | None = None
    idle: tuple[float, float] = (0.0, 0.0)
    marked: tuple[float, float] = NOWHERE


def chain(routes: Sequence[Route], modes: Sequence[int], stays: Sequence[float]) -> Route:
    """Several ways, each travelled by its mode, one after the other as one way with so long stays in between."""
    parts = [slice(None, -1)] * (len(routes) - 1) + [slice(None)]
    dwell = [route.stays[part].copy() for route, part in zip(routes, parts, strict=True)]
    for ahead, stay in zip(dwell[1:], stays, strict=True):
        ahead[:1] = stay
    return Route(
        np.concatenate([route.xy[part] for route, part in zip(routes, parts, strict=True)]),
        np.concatenate([route.node[part] for route, part in zip(routes, parts, strict=True)]),
        np.concatenate([route.edge[part] for route, part in zip(routes, parts, strict=True)]),
        np.concatenate([route.modes(mode)[part] for route, mode, part in zip(routes, modes, parts, strict=True)]),
        np.concatenate(dwell),
    )
