"""Summarises the rows of a trip: their mean, and the worst window. Needs only numpy.

A trip consists of paths. A path ends at a gap, and its first row has no weight, because the agent has not moved yet.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.features.clock import first_after, shifts
from astray.features.hashing import changes
from astray.irl.kdd19 import trajectory_normality

Array = NDArray[Any]
Floats = NDArray[np.float64]


class Runs(NamedTuple):
    """Runs of neighbouring rows of the same trip; a trip with several paths may have several runs."""

    trip: NDArray[np.int64]
    lengths: NDArray[np.int64]
    n_trips: int

    @classmethod
    def of(cls, trip: Array, n_trips: int | None = None) -> Runs:
        """Finds the runs, given the trip of each row."""
        starts = np.flatnonzero(changes(trip))
        size = (int(trip.max()) + 1 if len(trip) else 0) if n_trips is None else n_trips
        return cls(trip[starts], np.diff(starts, append=len(trip)), size)

    def sums(self, values: Array) -> Floats:
        """Returns the sums over each trip of values (..., rows)."""
        of_runs = np.add.reduceat(values, self._starts, axis=-1) if len(self.trip) else values[..., :0]
        return self._add_runs(of_runs)

    def shares(self, weight: Array) -> Floats:
        """Returns the share of each row in its trip's mean; equal shares if all weights of the trip are 0."""
        total, counts = self.sums(weight), np.bincount(self.trip, self.lengths, self.n_trips)
        with np.errstate(divide="ignore"):
            share = weight * np.repeat(np.where(total > 0, 1.0 / total, 0.0)[self.trip], self.lengths)
            alike = np.where(total > 0, 0.0, 1.0 / counts)[self.trip]
        return np.asarray(share + np.repeat(alike, self.lengths) if alike.any() else share)

    def means(self, values: Array, share: Array) -> Floats:
        """Returns the means over each trip, N(tau), of values (..., rows); NaN for a trip without rows."""
        of_runs = trajectory_normality(values, self._starts, share) if len(self.trip) else values[..., :0]
        means = self._add_runs(of_runs)
        means[..., np.bincount(self.trip, minlength=self.n_trips) == 0] = np.nan
        return means

    @property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum(self.lengths) - self.lengths

    def _add_runs(self, of_runs: Array) -> Floats:
        """Adds up, for each trip, the values of its runs (..., runs)."""
        total = np.zeros((*of_runs.shape[:-1], self.n_trips))
        np.add.at(total.T, self.trip, of_runs.T)
        return total


def lowest_windows(n: Array, means: Floats, trip: Array, time: Array, weight: Array, length: float) -> Floats:
    """Returns, for each trip, the lowest weighted mean of n over any window of ``length`` that ends at a row.

    A window that would begin before its path is cut off there, and is ignored if less than half of it remains, so that
    one odd fix is not a window. A path begins with the trip and with every row without weight (after a gap). For a trip
    whose paths are all shorter than half a window, the result is its mean, from ``means``.
    """
    worst = means.copy()
    if not len(time):
        return worst
    low, mass = _windows(trip, time, weight, length)
    ends = np.flatnonzero(mass > 0)
    if not len(ends):
        return worst
    sums = np.r_[0.0, np.cumsum(n * weight)]
    in_window = (sums[ends + 1] - sums[low[ends]]) / mass[ends]
    np.minimum.at(worst, trip[ends], in_window)
    return worst


def _windows(trip: Array, time: Array, weight: Array, seconds: float) -> tuple[NDArray[np.int64], Floats]:
    """Returns the first row of the window that ends at each row, and its weight, which is 0 for an ignored window."""
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
