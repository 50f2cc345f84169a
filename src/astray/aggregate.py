"""From rows to trips: their means, plain or soft, and their worst window. Pure numpy.

Where a reward tells an agent from other agents, it is a matter of the best evidence whether it was this one: somebody
who goes somewhere new sets out from home all the same, and a stranger hardly anywhere does what the agent does. Such a
reward has a soft mean over a trip, T log mean exp(n / T), in which the steps that are most the agent's count most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.mdp.clock import first_after, shifts

Array = NDArray[Any]
Floats = NDArray[np.float64]

SOFTNESS = 1.0  # T of the soft mean, in units of n: towards 0 the best step alone counts, towards infinity all alike
MOST_EVIDENCE = 100.0  # of a step, in units of T, either way: its exponential must stay a number


class Runs(NamedTuple):
    """Rows that stand together and are of one trip: which trip, and how many they are."""

    trip: NDArray[np.int64]
    lengths: NDArray[np.int64]
    n_trips: int

    @classmethod
    def of(cls, trip: Array, n_trips: int | None = None) -> Runs:
        """The runs of rows whose trips are numbered so."""
        starts = _starts(trip)
        size = (int(trip.max()) + 1 if len(trip) else 0) if n_trips is None else n_trips
        return cls(trip[starts], np.diff(starts, append=len(trip)), size)

    def sums(self, values: Array) -> Floats:
        """The sums over each trip of values (..., rows)."""
        total = np.zeros((*values.shape[:-1], self.n_trips))
        if len(self.trip):
            starts = np.cumsum(self.lengths) - self.lengths
            np.add.at(total.T, self.trip, np.add.reduceat(values, starts, axis=-1).T)
        return total

    def shares(self, weight: Array) -> Floats:
        """What each row contributes to its trip's mean; where a trip has no weight at all, all rows the same."""
        total, counts = self.sums(weight), np.bincount(self.trip, self.lengths, self.n_trips)
        with np.errstate(divide="ignore"):
            share = weight * np.repeat(np.where(total > 0, 1.0 / total, 0.0)[self.trip], self.lengths)
            alike = np.where(total > 0, 0.0, 1.0 / counts)[self.trip]
        return np.asarray(share + np.repeat(alike, self.lengths) if alike.any() else share)

    def means(self, values: Array, share: Array, softness: float = 0.0) -> Floats:
        """The (soft) means over each trip of values (..., rows); of a trip without a row, not a number."""
        if softness:
            values = np.exp(np.clip(values / softness, -MOST_EVIDENCE, MOST_EVIDENCE))
        means = self.sums(values * share)
        means[..., np.bincount(self.trip, minlength=self.n_trips) == 0] = np.nan
        return softness * np.log(means) if softness else means


def _starts(values: Array) -> NDArray[np.int64]:
    """Where each run of equal values starts."""
    return np.flatnonzero(np.r_[True, values[1:] != values[:-1]]) if len(values) else np.zeros(0, np.int64)


def over_trips(
    n: Array,
    runs: Runs,
    share: Array,
    softness: Sequence[float],
    trip: Array,
    time: Array,
    weight: Array,
    seconds: float,
) -> tuple[Floats, Floats]:
    """Of n (aspects, rows): the mean over each trip, soft where an aspect's is, and the worst of its plain windows."""
    means = runs.means(n, share)
    worst = _lowest_windows(n, means, trip, time, weight, seconds)
    for mean, values, soft in zip(means, n, softness, strict=True):
        if soft:
            mean[:] = runs.means(values, share, soft)
    return means, worst


def trip_means(values: Array, trip: Array, weight: Array, n_trips: int | None = None, softness: float = 0.0) -> Floats:
    """The weighted mean of each trip; where a trip has no weight at all, every row counts the same.

    With a ``softness`` T it is the soft mean, T log mean exp(values / T).

    >>> values, trip, weight = np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1]), np.array([1.0, 3.0, 0.0])
    >>> trip_means(values, trip, weight).tolist()
    [2.5, 5.0]
    >>> trip_means(values, trip, weight, softness=0.5).round(2).tolist()
    [2.86, 5.0]
    """
    runs = Runs.of(trip, n_trips)
    return runs.means(values, runs.shares(weight), softness)


def _lowest_windows(n: Array, means: Floats, trip: Array, time: Array, weight: Array, seconds: float) -> Floats:
    """The lowest weighted mean of n (..., rows) over any window that ends at a row and reaches back ``seconds``.

    One a trip. A window that would begin before its path is cut there, but counts only from half its length on: one odd
    fix is no window. A path begins with the trip and with every row of no weight (after a gap). A trip whose paths are
    all shorter than that has its plain mean, of ``means`` (..., trips).
    """
    worst = means.copy()
    if not len(time):
        return worst
    low, mass = _windows(trip, time, weight, seconds)
    ends = np.flatnonzero(mass > 0)
    if len(ends):
        sums = np.zeros((*n.shape[:-1], len(time) + 1))
        np.cumsum(n * weight, axis=-1, out=sums[..., 1:])
        in_window = sums.take(ends + 1, axis=-1)
        in_window -= sums.take(low[ends], axis=-1)
        in_window /= mass[ends]
        of = trip[ends]
        starts = _starts(of)
        np.minimum.at(worst.T, of[starts], np.minimum.reduceat(in_window, starts, axis=-1).T)
    return worst


def _windows(trip: Array, time: Array, weight: Array, seconds: float) -> tuple[NDArray[np.int64], Floats]:
    """For each row: where the window that ends there starts, and its weight; 0 if it does not count."""
    new_path = weight == 0
    new_path[0] = True
    new_path[1:] |= trip[1:] != trip[:-1]
    begins = np.append(np.flatnonzero(new_path), len(time))
    rows = np.diff(begins)
    clock = time + np.repeat(shifts(time, begins), rows)
    low = first_after(clock, seconds, np.repeat(begins[:-1], rows))
    total = np.r_[0.0, np.cumsum(weight)]
    mass = total[1:] - total.take(low)
    mass *= time - np.repeat(time[begins[:-1]], rows) >= seconds / 2
    return low, mass
