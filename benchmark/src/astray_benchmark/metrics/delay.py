"""Measures the delay of alarms, and the rate of false alarms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from astray.core.errors import DataError
from astray_benchmark.array_types import Bools, Floats, Ints
from astray_benchmark.metrics.ranges import rows_of_trips, runs


class Delays(NamedTuple):
    """The delay of the first alarm in each anomalous range; NaN if there is none."""

    fixes: Floats
    seconds: Floats

    @property
    def detected(self) -> float:
        """Returns the share of anomalous ranges that had an alarm in time."""
        return float(np.isfinite(self.fixes).mean())

    @property
    def median_fixes(self) -> float:
        """Returns the median delay in fixes; a missed anomaly has an infinite delay."""
        return float(np.median(np.where(np.isnan(self.fixes), np.inf, self.fixes)))

    @property
    def median_seconds(self) -> float:
        """Returns the median delay in seconds; a missed anomaly has an infinite delay."""
        return float(np.median(np.where(np.isnan(self.seconds), np.inf, self.seconds)))


class FalseAlarms(NamedTuple):
    """The rates of false alarms.

    Attributes
    ----------
    fixes, alarms
        The number, per 1,000 normal fixes, of flagged fixes, and of runs of flagged fixes that touch no anomaly.
    trips
        The share of normal trips in which any fix is flagged; NaN if every trip has an anomaly.
    """

    fixes: float
    alarms: float
    trips: float


def detection_delay(
    flagged: ArrayLike, truth: ArrayLike, offsets: ArrayLike, time: ArrayLike, *, grace: int = 0
) -> Delays:
    """Measures the delay from the first fix of each anomalous range to its first alarm.

    The alarm must begin at most ``grace`` fixes after the end of the range, and within the trip. An alarm that began
    before the anomaly and still lasts has a delay of 0.

    Examples
    --------
    >>> detection_delay([0, 0, 0, 1, 0], [0, 1, 1, 1, 0], [0, 5], time=[0, 15, 30, 45, 60])
    Delays(fixes=array([2.]), seconds=array([30.]))
    """
    found, cuts = rows_of_trips(flagged, offsets, "flagged")
    real, _ = rows_of_trips(truth, offsets)
    seconds = np.asarray(time, np.float64)
    if seconds.shape != real.shape:
        raise DataError(f"{seconds.size} times for {real.size} fixes", remedy="give one per fix")
    ranges = runs(real, cuts)
    if not len(ranges.start):
        raise DataError("no fix is anomalous, so there is no delay to measure", remedy="measure false alarms instead")
    due = np.minimum(ranges.stop + grace, cuts[ranges.trip + 1])
    rows = np.r_[np.flatnonzero(found), len(found)]
    first = rows[np.searchsorted(rows, ranges.start)]
    noticed = first < due
    at = np.where(noticed, first, ranges.start)
    late, later = (at - ranges.start).astype(np.float64), seconds[at] - seconds[ranges.start]
    return Delays(np.where(noticed, late, np.nan), np.where(noticed, later, np.nan))


def false_alarms(flagged: ArrayLike, truth: ArrayLike, offsets: ArrayLike) -> FalseAlarms:
    """Returns the rates of false alarms per 1,000 normal fixes, and the share of normal trips with any.

    >>> truth = [0, 0, 0, 0, 1, 1, 0, 0]  # of 6 normal fixes 3 are flagged, in 1 false alarm; the second trip is quiet
    >>> false_alarms([1, 1, 0, 1, 1, 0, 0, 0], truth, [0, 6, 8])
    FalseAlarms(fixes=500.0, alarms=166.66666666666666, trips=0.0)
    """
    found, cuts = rows_of_trips(flagged, offsets, "flagged")
    real, _ = rows_of_trips(truth, offsets)
    normal = int((~real).sum())
    if not normal:
        raise DataError("every fix is anomalous, so no alarm can be false", remedy="add normal trips")
    alarms = runs(found, cuts)
    anomalous = np.r_[0, np.cumsum(real)]
    wrong = anomalous[alarms.stop] == anomalous[alarms.start]
    starts = cuts[:-1]
    usual = ~np.logical_or.reduceat(real, starts)
    return FalseAlarms(
        1000.0 * float((found & ~real).sum()) / normal,
        1000.0 * float(wrong.sum()) / normal,
        float(np.logical_or.reduceat(found, starts)[usual].mean()) if usual.any() else float("nan"),
    )


def onsets(truth: ArrayLike, offsets: ArrayLike) -> Ints:
    """Returns the position, within each trip, of its first anomalous fix; -1 if there is none.

    >>> onsets([0, 1, 1, 0, 0], [0, 3, 5])
    array([ 1, -1])
    """
    real, cuts = rows_of_trips(truth, offsets)
    ranges = runs(real, cuts)
    place = np.full(len(cuts) - 1, -1, np.int64)
    trips, first = np.unique(ranges.trip, return_index=True)
    place[trips] = ranges.start[first] - cuts[trips]
    return place


def begun(truth: ArrayLike, offsets: ArrayLike, seen: ArrayLike) -> Bools:
    """Returns a mask of trips whose anomaly begins in their first ``seen`` fixes, which are the labels of prefixes.

    >>> truth, offsets = [0, 0, 1, 1, 0, 0], [0, 4, 6]
    >>> begun(truth, offsets, seen=[2, 2]).tolist(), begun(truth, offsets, seen=[3, 2]).tolist()
    ([False, False], [True, False])
    """
    place = onsets(truth, offsets)
    return np.asarray((place >= 0) & (place < np.asarray(seen, np.int64)))
