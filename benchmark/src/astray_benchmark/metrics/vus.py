"""Volume under the surface of precision and recall for single fixes (VUS-PR, Paparrizos et al., VLDB 2022)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from astray.core.errors import DataError
from astray_benchmark.array_types import Bools, Floats, Ints
from astray_benchmark.metrics.ranges import Ranges, rows_of_trips, runs
from astray_benchmark.metrics.ranking import anomaly_score


def vus_pr(score: ArrayLike, truth: ArrayLike, offsets: ArrayLike, buffer: int) -> float:
    """Returns VUS-PR of the scores of fixes: the mean, over buffer lengths 0 to ``buffer``, of the range-based PR area.

    With a buffer of length l, the labels on either side of an anomalous range are sqrt(1 - distance / l), up to a
    distance of l // 2 fixes and within the trip. With these soft labels, the precision at a threshold is (sum of the
    flagged labels) / (number of flagged fixes). The recall is (sum of the flagged labels) / (mean of the number of
    anomalous fixes and the sum of all soft labels), at most 1, times the share of anomalies with any flagged fix in or
    around them.

    Two things differ from the authors' program. The area is summed by steps, like average precision: with straight
    lines between points, a constant score, which is useless, would get (1 + base rate) / 2. And it uses every
    threshold, not 250 of them. With one anomalous range and ``buffer = 0``, the result is the average precision.

    Parameters
    ----------
    score
        Normality of each fix: high is normal.
    truth
        True for each anomalous fix.
    offsets
        The first fix of each trip, and the end of the last, as in :class:`astray.Trajectories`.
    buffer
        The longest buffer, in fixes; choose it before looking at scores, and report it.

    Examples
    --------
    >>> vus_pr([0.0, 0.0, -3.0, -2.0, 0.0], [0, 0, 1, 1, 0], [0, 5], buffer=0)
    1.0
    """
    values = anomaly_score(score)
    real, cuts = rows_of_trips(truth, offsets)
    if values.shape != real.shape:
        raise DataError(f"{values.size} scores for {real.size} fixes", remedy="give one per fix")
    if buffer < 0:
        raise DataError(f"buffer is {buffer}", remedy="give a number of fixes, 0 or more")
    if not real.any():
        raise DataError("no fix is anomalous, so there is nothing to find", remedy="measure false alarms instead")
    ranges, away = runs(real, cuts), _distance(real, cuts)
    order = np.argsort(-values, kind="stable")
    ranked = values[order]
    last = np.r_[np.flatnonzero(np.diff(ranked)), len(ranked) - 1]  # fixes of equal score are flagged together
    flagged, thresholds = last + 1.0, ranked[last]
    areas = []
    for length in range(buffer + 1):
        label = soft_labels(away, length)
        hit = np.cumsum(label[order])[last]
        peaks = np.sort(-_peaks(values, ranges, cuts, length // 2))
        exist = np.searchsorted(peaks, -thresholds, side="right") / len(peaks)
        recall = np.minimum(hit / (0.5 * (real.sum() + label.sum())), 1.0) * exist
        areas.append(float((np.diff(recall, prepend=0.0) * hit / flagged).sum()))
    return float(np.mean(areas))


def soft_labels(away: Floats, length: int) -> Floats:
    """Returns soft labels: 1 inside the anomaly, sqrt(1 - distance / length) in the buffer around it."""
    if length == 0:
        return np.asarray(away == 0, np.float64)
    return np.asarray(np.where(away <= length // 2, np.sqrt(np.maximum(1.0 - away / length, 0.0)), 0.0))


def _distance(truth: Bools, cuts: Ints) -> Floats:
    """Returns each fix's distance, in fixes, from the nearest anomalous fix of its trip; infinite if it has none."""
    row = np.arange(len(truth))
    begin, end = (np.repeat(edge, np.diff(cuts)) for edge in (cuts[:-1], cuts[1:]))
    before = np.maximum.accumulate(np.where(truth, row, -1))
    after = np.minimum.accumulate(np.where(truth, row, len(truth))[::-1])[::-1]
    behind = np.where(before >= begin, row - before, np.inf)
    ahead = np.where(after < end, after - row, np.inf)
    return np.asarray(np.minimum(behind, ahead))


def _peaks(values: Floats, ranges: Ranges, cuts: Ints, reach: int) -> Floats:
    """Returns the highest score in each range and in the buffer around it, within the trip."""
    low = np.maximum(ranges.start - reach, cuts[ranges.trip])
    high = np.minimum(ranges.stop + reach, cuts[ranges.trip + 1])
    padded = np.r_[values, -np.inf]  # so that a range may end with the last row
    return np.asarray(np.maximum.reduceat(padded, np.column_stack([low, high]).ravel())[::2])
