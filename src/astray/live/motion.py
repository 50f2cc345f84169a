"""Motion: the recent way of an open path, and the step that each new fix makes; what ``steps_of`` is for files."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.mdp.projection import Place
from astray.mdp.steps import Steps
from astray.tape import Tape

Array = NDArray[Any]


class Step(NamedTuple):
    """One step, in plain numbers: a row of :class:`~astray.mdp.steps.Steps`."""

    time: float
    location: Place
    velocity: Place
    window: float
    origin: Place
    elapsed: float
    trail: tuple[Place, ...]
    first: bool

    def row(self, given: Array) -> Steps:
        """The same as arrays of one row, with the trip's context."""
        return as_steps(np.array([self.numbers()]), given)

    @staticmethod
    def width(lags: int) -> int:
        """How many numbers a step is."""
        return 10 + 2 * lags

    def numbers(self) -> list[float]:
        """All of it as a row of numbers."""
        trail = [value for place in self.trail for value in place]
        pairs = [*self.location, *self.velocity, *self.origin]
        return [self.time, self.window, self.elapsed, float(self.first), *pairs, *trail]

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Step:
        """The step that gave these numbers."""
        time, window, elapsed, first, x, y, vx, vy, x0, y0, *trail = numbers
        places = tuple(zip(trail[::2], trail[1::2], strict=True))
        return cls(time, (x, y), (vx, vy), window, (x0, y0), elapsed, places, bool(first))


def as_steps(numbers: Array, given: Array) -> Steps:
    """Rows of :meth:`Step.numbers` of one trip as arrays, with the trip's context."""
    n = len(numbers)
    return Steps(
        time=numbers[:, 0],
        window=numbers[:, 1],
        elapsed=numbers[:, 2],
        first=numbers[:, 3] > 0,
        location=numbers[:, 4:6],
        velocity=numbers[:, 6:8],
        origin=numbers[:, 8:10],
        trail=numbers[:, 10:].reshape(n, -1, 2),
        trip=np.zeros(n, np.int64),
        given=np.repeat(given[None], n, axis=0),
    )


class Motion:
    """The points of a path that are still looked back at: those of the last lag, and one before.

    >>> motion = Motion(interval=30.0, lags=(60.0,))
    >>> for second in range(100):
    ...     step = motion.step(float(second), (2.0 * second, 0.0))
    >>> step.velocity, step.trail, step.elapsed
    ((2.0, 0.0), ((78.0, 0.0),), 99.0)
    >>> len(motion) < 100
    True
    """

    __slots__ = ("_head", "_interval", "_lags", "_reach", "_times", "_xs", "_ys", "origin", "start")

    def __init__(self, interval: float, lags: tuple[float, ...]) -> None:
        self._interval, self._lags = interval, lags
        self._reach = max((interval, *lags))
        self._times, self._xs, self._ys = array("d"), array("d"), array("d")
        self._head = 0
        self.start = 0.0
        self.origin: Place = (0.0, 0.0)

    def __len__(self) -> int:
        return len(self._times) - self._head

    def restart(self) -> None:
        """A new path begins: nothing before it is looked back at."""
        self._times, self._xs, self._ys = array("d"), array("d"), array("d")
        self._head = 0

    def step(self, time: float, place: Place) -> Step:
        """The step by which a place was reached; times rise from step to step."""
        x, y = place
        first = not self._times
        if first:
            self.start, self.origin = time, place
        since = 0.0 if first else time - self._times[-1]
        self._times.append(time)
        self._xs.append(x)
        self._ys.append(y)
        elapsed = time - self.start
        # Where fixes are further apart than the interval, the velocity is that since the last fix.
        window = max(min(self._interval, elapsed), since)
        left_x, left_y = (self._xs[-2], self._ys[-2]) if since > self._interval else self._before(time - self._interval)
        span = window if window > 0 else 1.0
        trail = tuple(self._before(time - lag) for lag in self._lags)
        self._let_go(time - self._reach)
        velocity = ((x - left_x) / span, (y - left_y) / span)
        return Step(time, place, velocity, window, self.origin, elapsed, trail, first)

    def _before(self, time: float) -> Place:
        """Where the agent was at an earlier time, in a straight line between two points; before the start, there."""
        times, xs, ys = self._times, self._xs, self._ys
        low = max(bisect_right(times, time, self._head) - 1, self._head)
        high = min(low + 1, len(times) - 1)
        span = times[high] - times[low]
        share = min(max((time - times[low]) / span, 0.0), 1.0) if span > 0 else 0.0
        return xs[low] + share * (xs[high] - xs[low]), ys[low] + share * (ys[high] - ys[low])

    def _let_go(self, time: float) -> None:
        """Forget the points before the last one at or before a time; arrays shrink now and then, not every time."""
        while self._head + 1 < len(self._times) and self._times[self._head + 1] <= time:
            self._head += 1
        if self._head > 32 and 2 * self._head > len(self._times):
            del self._times[: self._head], self._xs[: self._head], self._ys[: self._head]
            self._head = 0

    def freeze(self, tape: Tape) -> None:
        """Put what is held on a tape."""
        tape.put(self.start, *self.origin)
        for values in (self._times, self._xs, self._ys):
            tape.put_many(values[self._head :])

    def thaw(self, tape: Tape) -> None:
        """Take it off again."""
        self.start, self.origin = tape.take(), (tape.take(), tape.take())
        self._times, self._xs, self._ys = tape.many(), tape.many(), tape.many()
        self._head = 0
