"""Steps: the (state, action) pairs of paths, by the definition of the paper.

A step is the move that led to a point: its action is the velocity over the last ``interval`` seconds; its state is the
place before, the start of the path, and the time since that start. State and action determine the place reached (the
place before plus velocity times time), so a reward may depend on it, and a fix can be scored as soon as it arrives.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.projection import Place
from astray.core.trajectories import Trajectories
from astray.features.paths import locations_before

Array = NDArray[Any]


@dataclass(frozen=True)
class Steps:
    """The steps of a set of paths, one per row.

    Attributes
    ----------
    location, velocity
        The place that the step led to (metres, (n, 2)), and the velocity (metres per second, (n, 2)).
    window
        The seconds over which the velocity was measured: the interval; less near the start, more in sparse data.
    origin, elapsed
        The start of the path, and the seconds since then.
    time
        Seconds since 1970 at the place reached.
    trail
        The place of the agent one lag earlier, for each lag: (n, lags, 2). It shows the way that the agent took.
    trip
        The position of the trajectory that each step belongs to.
    first
        True for the first row of each path, where the agent has not moved yet.
    given
        The context of the trip, repeated on each of its steps: (n, columns).
    """

    location: Array
    velocity: Array
    window: Array
    origin: Array
    elapsed: Array
    time: Array
    trail: Array
    trip: Array
    first: Array
    given: Array

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, rows: Array | slice) -> Steps:
        return Steps(**{name: values[rows] for name, values in vars(self).items()})

    @staticmethod
    def concat(parts: Sequence[Steps]) -> Steps:
        """Concatenates steps."""
        return Steps(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in vars(parts[0])})

    @property
    def state(self) -> NDArray[np.float64]:
        """Returns the paper's state before the step: location, start, time since the start; then the departure time."""
        left = self.location - self.velocity * self.window[:, None]
        return np.column_stack([left, self.origin, self.elapsed - self.window, self.time - self.window])


def steps_of(paths: Trajectories, interval: float, lags: tuple[float, ...] = ()) -> Steps:
    """Returns the steps of paths, one per point; velocities are measured over at least ``interval`` seconds."""
    time, offsets = paths.columns["time"], paths.offsets
    xy = np.ascontiguousarray(paths.columns["xy"].T)
    lengths = paths.lengths
    starts = offsets[:-1]
    first = np.zeros(len(time), bool)
    first[starts] = True
    elapsed = time - np.repeat(time[starts], lengths)
    since_last = np.diff(time, prepend=time[:1])
    since_last[starts] = 0.0

    # Where fixes are further apart than the interval, the velocity is that since the last fix.
    window = np.maximum(np.minimum(interval, elapsed), since_last)
    before, *trail = (places.T for places in locations_before(paths, (interval, *lags)))
    sparse = np.flatnonzero(since_last > interval)
    before[:, sparse] = xy[:, sparse - 1]
    velocity = (xy - before) / (window + (window == 0))
    # Coordinates are stored column by column, which makes computing with them much faster.
    return Steps(
        location=xy.T,
        velocity=velocity.T,
        window=window,
        origin=np.repeat(xy[:, starts], lengths, axis=1).T,
        elapsed=elapsed,
        time=time,
        trail=np.stack(trail).transpose(2, 0, 1) if trail else np.zeros((len(time), 0, 2)),
        trip=np.repeat(paths.context["trip"], lengths),
        first=first,
        given=np.repeat(paths.context.get("given", np.zeros((len(paths), 0))), lengths, axis=0),
    )


def chosen(steps: Steps, interval: float) -> NDArray[np.bool_]:
    """Returns a mask of the steps that represent a trip: the first, about one per ``interval`` seconds, and the last.

    Except for the last, the choice of a step depends only on the steps before it, so a live feed chooses the same ones.
    """
    if not len(steps):
        return np.zeros(0, np.bool_)
    tick = np.floor(steps.elapsed / interval + 0.5)
    found = steps.first.copy()
    found[1:] |= tick[1:] != tick[:-1]
    found[np.flatnonzero(np.r_[steps.trip[1:] != steps.trip[:-1], True])] = True
    return found


def looked_at(steps: Steps, interval: float, every: bool) -> tuple[NDArray[np.int64], Steps, NDArray[np.float64]]:
    """Returns every step, or the :func:`chosen` ones: their positions, the steps, and the seconds that each represents.

    A step represents the seconds since the step before, at most the interval, so the mean over a trip does not depend
    on how often the receiver reported.
    """
    kept = np.arange(len(steps)) if every else np.flatnonzero(chosen(steps, interval))
    steps = steps if len(kept) == len(steps) else steps[kept]
    since = np.diff(steps.time, prepend=steps.time[:1])
    return kept, steps, np.where(steps.first, 0.0, np.minimum(since, interval))


# -------------------------------------------------------------------- open trips


class Step(NamedTuple):
    """One row of :class:`Steps`, in plain numbers."""

    time: float
    location: Place
    velocity: Place
    window: float
    origin: Place
    elapsed: float
    trail: tuple[Place, ...]
    first: bool

    def row(self, given: Array) -> Steps:
        """Returns the step as arrays of one row, with the trip's context."""
        return as_steps(np.array([self.numbers()]), given)

    @staticmethod
    def width(lags: int) -> int:
        """Returns the length of the list that :meth:`numbers` returns."""
        return 10 + 2 * lags

    def numbers(self) -> list[float]:
        """Returns the step as a row of numbers."""
        trail = [value for place in self.trail for value in place]
        pairs = [*self.location, *self.velocity, *self.origin]
        return [self.time, self.window, self.elapsed, float(self.first), *pairs, *trail]

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Step:
        """Makes the step from its :meth:`numbers`."""
        time, window, elapsed, first, x, y, vx, vy, x0, y0, *trail = numbers
        places = tuple(zip(trail[::2], trail[1::2], strict=True))
        return cls(time, (x, y), (vx, vy), window, (x0, y0), elapsed, places, bool(first))


def as_steps(numbers: Array, given: Array) -> Steps:
    """Makes steps from rows of :meth:`Step.numbers` of one trip, with the trip's context."""
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
        given=given[None] if n == 1 else np.repeat(given[None], n, axis=0),
    )


class OpenPath:
    """The path of an open trip: turns each new point into a step, equal to the last bit to that of :func:`steps_of`.

    This is the one-row form of :func:`steps_of`: 5 instead of 190 microseconds per point. It keeps the points within
    the longest lag, and one before.

    >>> path = OpenPath(interval=30.0, lags=(60.0,))
    >>> for second in range(100):
    ...     step = path.step(float(second), (2.0 * second, 0.0))
    >>> step.velocity, step.trail, step.elapsed
    ((2.0, 0.0), ((78.0, 0.0),), 99.0)
    >>> len(path) < 100
    True
    """

    __slots__ = ("_clock", "_head", "_interval", "_lags", "_reach", "_times", "_xs", "_ys", "origin", "start")

    def __init__(self, interval: float, lags: tuple[float, ...]) -> None:
        self._interval, self._lags = interval, lags
        self._reach = max((interval, *lags))
        self._times, self._xs, self._ys = array("d"), array("d"), array("d")
        self._clock = array("d")  # seconds since the start
        self._head = 0
        self.start = 0.0
        self.origin: Place = (0.0, 0.0)

    def __len__(self) -> int:
        return len(self._times) - self._head

    def restart(self) -> None:
        """Begins a new path; its steps ignore the points before it."""
        for values in (self._times, self._clock, self._xs, self._ys):
            del values[:]
        self._head = 0

    def step(self, time: float, place: Place) -> Step:
        """Returns the step that led to a place; times must rise from step to step."""
        x, y = place
        first = not self._times
        if first:
            self.start, self.origin = time, place
        since = 0.0 if first else time - self._times[-1]
        elapsed = time - self.start
        self._times.append(time)
        self._clock.append(elapsed)
        self._xs.append(x)
        self._ys.append(y)
        # Where fixes are further apart than the interval, the velocity is that since the last fix.
        window = max(min(self._interval, elapsed), since)
        left_x, left_y = (self._xs[-2], self._ys[-2]) if since > self._interval else self._before(self._interval)
        span = window if window > 0 else 1.0
        trail = tuple([self._before(lag) for lag in self._lags])
        self._drop_before(elapsed - self._reach)
        velocity = ((x - left_x) / span, (y - left_y) / span)
        return Step(time, place, velocity, window, self.origin, elapsed, trail, first)

    def _before(self, lag: float) -> Place:
        """Returns the agent's place ``lag`` seconds ago, interpolated, or the start of the path if that is later."""
        times, xs, ys = self._times, self._xs, self._ys
        low = max(bisect_right(self._clock, self._clock[-1] - lag, self._head) - 1, self._head)
        high = min(low + 1, len(times) - 1)
        span = times[high] - times[low]
        share = min(max((times[-1] - lag - times[low]) / span, 0.0), 1.0) if span > 0 else 0.0
        return xs[low] + share * (xs[high] - xs[low]), ys[low] + share * (ys[high] - ys[low])

    def _drop_before(self, elapsed: float) -> None:
        """Drops points that are no longer needed for looking back to a time; shrinks the arrays only now and then."""
        while self._head + 1 < len(self._clock) and self._clock[self._head + 1] <= elapsed:
            self._head += 1
        if self._head > 32 and 2 * self._head > len(self._clock):
            for values in (self._times, self._clock, self._xs, self._ys):
                del values[: self._head]
            self._head = 0

    @property
    def points(self) -> tuple[array[float], array[float], array[float]]:
        """Returns the times and the metres east and north of the points kept."""
        return self._times[self._head :], self._xs[self._head :], self._ys[self._head :]

    def restore(self, start: float, origin: Place, points: Sequence[array[float]]) -> None:
        """Continues another path from its :attr:`points`."""
        self.start, self.origin = start, origin
        self._times, self._xs, self._ys = points
        self._clock = array("d", [time - start for time in self._times])
        self._head = 0
