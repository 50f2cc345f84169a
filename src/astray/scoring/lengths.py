"""Scales scores by the length of the trip: a longer trip has a steadier mean and a lower worst window.

A trip's mean of n and its worst window are compared with those of normal trips after the same number of steps or
seconds, so that no trip is flagged only because it is long or short. Needs only numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.scoring.scale_config import LengthConfig
from astray.scoring.windows import Runs, lowest_windows

Array = NDArray[Any]
Floats = NDArray[np.float64]
Locate = Callable[[Array], tuple[float, float]]

DRAWS = 500  # values drawn from a distribution to measure its centre and spread
FURTHER = 1e6  # the worst window is assumed to keep falling up to this multiple of the longest measured length


class LengthScale(NamedTuple):
    """Centres and spreads at rising lengths; in between, they are interpolated by the logarithm of the length."""

    lengths: Floats
    mean: Floats  # (2, lengths): centre and spread of the mean of n
    lowest: Floats  # (2, lengths): centre and spread of the worst window

    def standardise(self, means: Array, lowest: Array, length: Array) -> tuple[Floats, Floats, Floats]:
        """Returns means and worst windows in standard deviations of normal trips of that length; and the means' one."""
        known, at = np.log(self.lengths), np.log(np.maximum(length, self.lengths[0]))
        (centre, spread), (low, low_spread) = (
            [np.interp(at, known, values) for values in scale] for scale in (self.mean, self.lowest)
        )
        return (means - centre) / spread, (lowest - low) / low_spread, spread


def length_scale(
    n: Array, trip: Array, time: Array, weight: Array, window: float, locate: Locate, config: LengthConfig
) -> LengthScale:
    """Measures normal trips at a series of lengths, from n(s, a) of their rows; trips are numbered from 0.

    Beyond the longest of these lengths, a trip is assumed to continue like the later halves of normal trips: its worst
    window is the lowest of more and more windows, and its mean gets no steadier than theirs.
    """
    far = so_far(trip, weight)
    total = np.zeros(int(trip.max()) + 1)
    np.maximum.at(total, trip, far)
    longest = float(np.sort(total)[-min(config.enough, math.ceil(config.share * len(total)))])

    def part(start: float, stop: float) -> tuple[float, Floats, Floats]:
        """Measures this part of the trips that reach its end: the mean length; the means and the worst windows."""
        # Include the row in which a length is reached, so that every trip has a row.
        begun = far - weight
        rows = np.flatnonzero((begun >= start) & (begun < stop) & (total[trip] >= min(stop, longest)))
        of = np.unique(trip[rows], return_inverse=True)[1]
        runs = Runs.of(of)
        means = runs.means(n[rows], runs.shares(weight[rows]))
        lowest = lowest_windows(n[rows], means, of, time[rows], weight[rows], window)
        return float(runs.sums(weight[rows]).sum()) / max(runs.n_trips, 1), means, lowest

    found: dict[float, tuple[float, ...]] = {}
    length = window * config.shortest
    while not found or length <= longest:
        lasted, means, lowest = part(0.0, length)
        found[lasted or length] = (*locate(means), *locate(lowest))
        length *= config.ratio
    lasted, means, whole = part(0.0, longest)
    half, _, late = part(lasted / 2, longest)
    mean, length = locate(means), lasted
    while half > 0 and (length - lasted) / half <= len(late) / 4:
        found[length] = (*mean, *locate(lowest_of(whole, late, (length - lasted) / half)))
        length *= config.ratio
    lengths = np.array(sorted(found))
    scales = np.array([found[length] for length in lengths]).T
    # With more draws, the lowest value in the data alone would decide, so from here on extrapolate.
    if len(lengths) > 2:
        falls = min(0.0, (scales[2, -1] - scales[2, -3]) / np.log(lengths[-1] / lengths[-3]))
        lengths = np.append(lengths, lengths[-1] * FURTHER)
        scales = np.column_stack([scales, scales[:, -1] + np.array([0.0, 0.0, falls * np.log(FURTHER), 0.0])])
    return LengthScale(lengths, scales[:2], scales[2:])


def lowest_of(first: Array, further: Array, times: float) -> Floats:
    """Returns equally likely values of the minimum of one ``first`` and ``times`` independent ``further`` values.

    >>> values = np.random.default_rng(0).normal(size=2000)
    >>> [round(float(np.median(lowest_of(values, values, times))), 1) for times in (0.0, 1.0, 29.0)]
    [-0.0, -0.6, -2.0]
    """
    values = np.sort(np.append(first, further))
    above = [1.0 - np.searchsorted(np.sort(of), values, side="right") / len(of) for of in (first, further)]
    below = 1.0 - above[0] * above[1] ** times
    return np.asarray(values[np.searchsorted(below, (np.arange(DRAWS) + 0.5) / DRAWS)], np.float64)


def so_far(trip: Array, weight: Array) -> Floats:
    """Returns the length of the trip up to each of its rows.

    >>> so_far(np.array([0, 0, 1, 1]), np.array([1.0, 2.0, 5.0, 5.0])).tolist()
    [1.0, 3.0, 5.0, 10.0]
    """
    order = np.argsort(trip, kind="stable")
    total = np.cumsum(weight[order])
    starts = np.searchsorted(trip[order], trip[order])
    far = np.empty(len(total))
    far[order] = total - (total[starts] - weight[order][starts])
    return far
