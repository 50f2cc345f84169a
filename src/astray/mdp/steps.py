"""Steps: the (state, action) pairs of paths, as the paper defines them.

A step is the move by which a point was reached: its action is the velocity over the last ``interval`` seconds, its
state the place left, the start of the path, and the time since that start. Because the dynamics are known (the next
location is the location plus velocity times time), the place reached is a function of the pair, and rewards may look
at it: a fix can be scored when it arrives, not one fix later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.mdp.paths import locations_before
from astray.trajectories import Trajectories

Array = NDArray[Any]


@dataclass(frozen=True)
class Steps:
    """The steps of a set of paths, one a row.

    Attributes
    ----------
    location, velocity
        Where the step led (metres, (n, 2)) and how fast (metres a second, (n, 2)).
    window
        The seconds over which the velocity was measured: the interval, or less near the start, or more in sparse data.
    origin, elapsed
        Where the path began, and how long ago.
    time
        Seconds since 1970 at the place reached.
    trail
        Where the agent was some time before, for each lag: (n, lags, 2). With it the state remembers the way taken.
    trip
        The position of the trajectory that each step belongs to.
    first
        Whether the row is the first of its path, where nothing has been done yet.
    given
        Context that came with the trip, repeated on each of its steps: (n, columns).
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
        """Steps one after the other."""
        return Steps(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in vars(parts[0])})

    @property
    def state(self) -> NDArray[np.float64]:
        """The paper's state before the step: location, start, time since the start; then the time of departure."""
        left = self.location - self.velocity * self.window[:, None]
        return np.column_stack([left, self.origin, self.elapsed - self.window, self.time - self.window])


def steps_of(paths: Trajectories, interval: float, lags: tuple[float, ...] = ()) -> Steps:
    """The steps of paths, every point a row; velocities look back over ``interval`` seconds at least."""
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
    # In memory one coordinate after the other: what is done to all of them is done much faster so.
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
    """Which steps stand for a trip: the first, one about every ``interval`` seconds, and the last.

    Whether a step is chosen depends on what was before it alone, but for the last: so a live feed chooses the same.
    """
    if not len(steps):
        return np.zeros(0, np.bool_)
    tick = np.floor(steps.elapsed / interval + 0.5)
    found = steps.first.copy()
    found[1:] |= tick[1:] != tick[:-1]
    found[np.flatnonzero(np.r_[steps.trip[1:] != steps.trip[:-1], True])] = True
    return found
