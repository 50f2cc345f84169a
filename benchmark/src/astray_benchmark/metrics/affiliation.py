"""Affiliation precision and recall: how near flagged and anomalous fixes are to each other (Huet et al., KDD 2022)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from astray.core.errors import DataError
from astray_benchmark.array_types import Bools, Floats, Ints
from astray_benchmark.metrics.ranges import rows_of_trips, runs
from astray_benchmark.metrics.ranking import Decisions

# Fix i of a trip is the interval [i, i + 1). Events begin and end at whole numbers and zones at halves, so every
# integrand is linear within each quarter of a fix, and its value in the middle is the exact mean.
QUARTERS = 4


def affiliation(flagged: ArrayLike, truth: ArrayLike, offsets: ArrayLike) -> Decisions:
    """Returns affiliation precision, recall and their harmonic mean (Huet et al. 2022), in trips with an anomaly.

    The zone of an anomalous range consists of all fixes of its trip that are nearer to it than to any other range. In a
    zone, a flagged fix scores the probability that a random place is at least as far from the range; a place in the
    range scores the probability that a random place is at least as far from it as the nearest flagged fix. Precision is
    the mean over zones with flagged fixes, recall the mean over all zones. A random alarm scores about one half, not
    zero.

    Trips without an anomaly have no zones, so alarms in them are ignored: report :func:`false_alarms`, too.

    Examples
    --------
    >>> truth = np.array([0, 0, 0, 0, 1, 1, 0, 0, 0, 0])
    >>> late = np.array([0, 0, 0, 0, 0, 0, 0, 1, 0, 0])
    >>> precision, recall, _ = affiliation(late, truth, [0, 10])
    >>> round(precision, 6), round(recall, 6)
    (0.5, 0.6)
    """
    found, cuts = rows_of_trips(flagged, offsets, "flagged")
    real, _ = rows_of_trips(truth, offsets)
    events = runs(real, cuts)
    if not len(events.start):
        raise DataError("no fix is anomalous, so there is nothing to be near to", remedy="measure false alarms instead")
    low, high = _zones(events.start, events.stop, events.trip, cuts)
    precision, recall = [], []
    for start, stop, z0, z1 in zip(events.start, events.stop, low, high, strict=True):
        cells = np.arange(round(QUARTERS * z0), round(QUARTERS * z1))
        hit = found[cells // QUARTERS]
        if not hit.any():
            recall.append(0.0)
            continue
        middle = (cells + 0.5) / QUARTERS
        precision.append(float(_nearness(middle[hit], start, stop, z0, z1).mean()))
        inside = (middle > start) & (middle < stop)
        recall.append(float(_reached(cells, middle, hit, z0, z1)[inside].mean()))
    p = float(np.mean(precision)) if precision else 0.0
    r = float(np.mean(recall))
    return Decisions(p, r, 2 * p * r / (p + r) if p + r else 0.0)


def _zones(start: Ints, stop: Ints, trip: Ints, cuts: Ints) -> tuple[Floats, Floats]:
    """Returns each range's zone: from half-way to the range before to half-way to the next, or to the trip's ends."""
    halfway = (stop[:-1] + start[1:]) / 2
    same = trip[1:] == trip[:-1]
    low = np.r_[cuts[trip[0]], np.where(same, halfway, cuts[trip[1:]])]
    high = np.r_[np.where(same, halfway, cuts[trip[:-1] + 1]), cuts[trip[-1] + 1]]
    return low.astype(np.float64), high.astype(np.float64)


def _nearness(x: Floats, start: int, stop: int, z0: float, z1: float) -> Floats:
    """Returns P(distance of a random place of the zone from the range >= that of x)."""
    d = np.maximum(np.maximum(start - x, x - stop), 0.0)
    farther = np.maximum(start - d - z0, 0.0) + np.maximum(z1 - stop - d, 0.0)
    return np.where(d == 0.0, 1.0, farther / (z1 - z0))


def _reached(cells: Ints, y: Floats, hit: Bools, z0: float, z1: float) -> Floats:
    """Returns P(distance of a random place of the zone from y >= that of the nearest flagged place)."""
    left = np.maximum.accumulate(np.where(hit, cells + 1.0, -np.inf)) / QUARTERS
    right = np.minimum.accumulate(np.where(hit, cells.astype(np.float64), np.inf)[::-1])[::-1] / QUARTERS
    d = np.where(hit, 0.0, np.minimum(y - left, right - y))
    nearer = np.minimum(y + d, z1) - np.maximum(y - d, z0)
    return np.asarray(1.0 - nearer / (z1 - z0))
