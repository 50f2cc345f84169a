"""Moves people along their routes: speeds, accelerations, crossings and rush hours.

All journeys of a batch lie end to end on one clock and on one "tape" of metres, so that a few array operations move
all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from astray.simulate.routes import METRO, Journey
from astray.simulate.streets import Bools, Floats, Ints, Streets

HOUR, DAY = 3600.0, 86_400.0

CRUISE = np.array(
    [
        [1.4, 1.4, 1.4, 1.4],
        [5.0, 5.0, 4.5, 4.0],
        [8.3, 12.5, 17.5, 26.0],
        [7.5, 11.0, 14.0, 22.0],
        [20.0, 20.0, 20.0, 20.0],
        [17.0, 17.0, 17.0, 17.0],
    ]
)
"""Free speed in m/s, by mode and class of road (side street, avenue, ring road, expressway)."""

_ACCELERATION = np.array([0.7, 0.8, 1.8, 1.1, 0.9, 1.0])
_CORNER = np.array([1.4, 3.2, 5.0, 4.0, 20.0, 17.0])  # highest speed through a sharp turn, by mode

_STOP = np.array([[0.02, 0.25], [0.08, 0.35], [0.12, 0.4], [0.08, 0.35], [0.0, 0.0], [0.0, 0.0]])
"""Probability of a stop at a crossing, by mode and whether it has lights."""

_WAIT = np.array([[2.0, 5.0], [5.0, 40.0]])  # shortest and longest wait in seconds, without and with lights
_CONGESTED = np.array([0.0, 0.15, 1.0, 0.8, 0.0, 0.0])  # the share of a street's congestion that slows each mode


@dataclass(frozen=True, eq=False)
class Motion:
    """Journeys in motion: pieces of constant acceleration, end to end on one clock and one tape measure."""

    clock: Floats  # when each piece begins
    arc: Floats  # where each piece begins, in metres of tape
    speed: Floats  # the speed at which each piece begins
    acceleration: Floats  # of each piece
    tape: Floats  # metres of tape at each point of the routes
    xy: Floats  # position of each point of the routes
    begin: Floats  # clock at the departure of each journey
    origin: Floats  # metres of tape at the first point of each journey
    duration: Floats  # seconds that each journey takes
    underground: Bools  # True if the leg after each point of the routes is underground

    def take(self, journeys: Ints) -> Motion:
        """Returns the motion of some journeys, by their positions, which may repeat."""
        return replace(self, begin=self.begin[journeys], origin=self.origin[journeys], duration=self.duration[journeys])

    def hidden(self, arc: Floats) -> Bools:
        """Returns a mask of the positions, in metres of tape, that are underground."""
        return np.asarray(self.underground[np.searchsorted(self.tape, arc, side="right") - 1])

    def standing(self, clock: Floats) -> tuple[Ints, Floats]:
        """Returns, at times on the common clock, the last point passed and how many seconds the person stands there.

        The seconds are 0 while the person moves.
        """
        piece = np.searchsorted(self.clock, clock, side="right") - 1
        length = np.diff(self.clock, append=self.clock[-1])
        return piece // 4, np.where(piece % 4 == 0, length[piece], 0.0)

    def at(self, clock: Floats) -> tuple[Floats, Floats]:
        """Returns positions and metres of tape at times on the common clock."""
        piece = np.searchsorted(self.clock, clock, side="right") - 1
        since = clock - self.clock[piece]
        arc = self.arc[piece] + since * (self.speed[piece] + 0.5 * self.acceleration[piece] * since)
        return np.stack([np.interp(arc, self.tape, self.xy[:, axis]) for axis in (0, 1)], axis=1), arc


def weekend(seconds: ArrayLike) -> Bools:
    """Returns True on Saturdays and Sundays; ``seconds`` count from the first midnight, a Monday's."""
    return np.asarray(seconds, dtype=np.float64) // DAY % 7 >= 5


def rush(seconds: ArrayLike) -> Floats:
    """Returns the strength of the rush hour, 0 to 1; ``seconds`` count from the first midnight, a Monday's.

    >>> rush(np.array([3.0, 8.0, 12.0, 17.3, 5 * 24 + 8.0]) * 3600).round(2)
    array([0., 1., 0., 1., 0.])
    """
    hour = np.asarray(seconds, dtype=np.float64) / HOUR % 24.0
    height = np.exp(-(((hour - 8.0) / 0.9) ** 2)) + np.exp(-(((hour - 17.3) / 1.1) ** 2))
    return np.where(weekend(seconds), 0.0, height)


def move(streets: Streets, journeys: Sequence[Journey], rng: np.random.Generator) -> Motion:
    """Computes the motion: speeds by street, person and hour; stops and waits at crossings; slow corners."""
    count = np.array([len(j.route.node) for j in journeys])
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    last = first + count - 1
    of = np.repeat(np.arange(len(journeys)), count)
    xy = np.concatenate([j.route.xy for j in journeys])
    node = np.concatenate([j.route.node for j in journeys])
    edge = np.concatenate([j.route.edge for j in journeys])
    mode = np.concatenate([j.route.mode for j in journeys])
    haste = np.array([j.haste for j in journeys])[of]
    busy = rush([j.depart for j in journeys])[of]
    n = len(xy)

    # The cruising speed of the leg after each point; the "leg" after a journey's last point has no length.
    pace = np.array([j.speed for j in journeys]) * np.exp(rng.normal(0, 0.05, len(journeys)))
    cruise = CRUISE[mode, streets.road[edge]] * pace[of] * np.exp(rng.normal(0, 0.08, n)) * haste
    cruise *= 1.0 - busy * streets.congestion[edge] * _CONGESTED[mode]
    leg = np.append(np.diff(xy, axis=0), [[0.0, 0.0]], axis=0)
    leg[last] = 0.0
    length = np.hypot(*leg.T)

    # The highest speed at each point: that of the slower leg, lower at corners, zero at stops and ends.
    limit = np.minimum(cruise, np.roll(cruise, 1))
    cosine = (leg * np.roll(leg, 1, axis=0)).sum(axis=1)
    sharp = cosine < 0.8 * length * np.roll(length, 1)
    limit = np.where(sharp, np.minimum(limit, _CORNER[mode] * haste), limit)
    lights = np.where(node >= 0, streets.signals[node], False).astype(np.int64)
    stops = (node >= 0) & (rng.random(n) < _STOP[mode, lights])
    wait = np.where(
        stops, streets.patience * rng.uniform(_WAIT[lights, 0], _WAIT[lights, 1]) * (1 + 0.5 * busy) / haste, 0.0
    )
    dwell = np.concatenate([j.route.dwell for j in journeys])
    if dwell.any():
        wait = np.where(dwell > 0, dwell * rng.uniform(0.4, 1.6, n) / haste, wait)
    for k, journey in enumerate(journeys):
        if journey.halt is not None:
            wait[first[k] + journey.halt[0]] = journey.halt[1]
    idle = np.array([j.idle for j in journeys])
    wait[first] = rng.uniform(5, 45, len(journeys)) / haste[first] + idle[:, 0]
    wait[last] = rng.uniform(5, 45, len(journeys)) / haste[last] + idle[:, 1]
    limit[wait > 0] = 0.0

    # The speeds that acceleration allows: v_i^2 <= v_j^2 + 2 a |s_i - s_j| for all points i and j. Journeys begin and
    # end at rest, so no journey limits another.
    accelerate = _ACCELERATION[mode] * haste
    reach = np.concatenate([[0.0], np.cumsum(2 * accelerate * length)[:-1]])
    square = reach + np.minimum.accumulate(limit**2 - reach)
    square = np.minimum.accumulate((square + reach)[::-1])[::-1] - reach
    square = np.maximum(square, 0.0)
    after = np.append(square[1:], 0.0)
    peak = np.sqrt(np.minimum(cruise**2, (square + after) / 2 + accelerate * length))
    peak = np.maximum(peak, np.sqrt(np.maximum(square, after)))  # they differ only by rounding
    v0, v1 = np.sqrt(square), np.sqrt(after)

    # Four pieces per point: wait, speed up, cruise, slow down. Between journeys, there is a second of rest on the
    # clock and a metre on the tape.
    up, down = (peak - v0) / accelerate, (peak - v1) / accelerate
    up_length, down_length = up * (peak + v0) / 2, down * (peak + v1) / 2
    level = np.maximum(length - up_length - down_length, 0.0)
    rest = np.zeros((n, 4))
    rest[:, 0], rest[:, 1], rest[:, 3] = wait, up, down
    np.divide(level, peak, out=rest[:, 2], where=peak > 0)
    rest[last, 1:] = (1.0, 0.0, 0.0)
    clock = np.concatenate([[0.0], np.cumsum(rest.ravel())])
    apart = length.copy()
    apart[last] = 1.0
    tape = np.concatenate([[0.0], np.cumsum(apart)[:-1]])
    zero = np.zeros(n)
    speed = np.stack([zero, v0, peak, peak], axis=1)
    slope = np.stack([zero, accelerate, zero, -accelerate], axis=1)
    speed[last], slope[last] = 0.0, 0.0
    arc = np.stack([tape, tape, tape + up_length, tape + up_length + level], axis=1)
    arc[last] = tape[last, None]
    begin = clock[4 * first]
    return Motion(
        clock[:-1],
        arc.ravel(),
        speed.ravel(),
        slope.ravel(),
        tape,
        xy,
        begin,
        tape[first],
        clock[4 * last + 1] - begin,
        mode == METRO,
    )
