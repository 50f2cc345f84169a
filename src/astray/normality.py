"""Normality: from rewards to scores that mean the same for everybody, and how sure they are. Pure numpy.

n(s, a) is the mean reward over the heads in standard deviations of the agent's own left-out behaviour (the paper's
normality score). N(tau), the mean of n over a trip, is given in standard deviations of left-out trips, so that
eps = -2 asks of a trip what it asks of a step; ``scale="step"`` leaves it as the plain mean that the paper prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.errors import DataError

Array = NDArray[Any]
Floats = NDArray[np.float64]


class Location(NamedTuple):
    """A centre and a spread."""

    centre: float
    spread: float

    def standardise(self, values: Array) -> Floats:
        """Values in units of the spread, from the centre."""
        return np.asarray((values - self.centre) / self.spread, np.float64)


def locate(values: Array, robust: bool = False) -> Location:
    """Mean and standard deviation; or, robustly, the median and the distance from it down to the 16th percentile.

    Only the lower side counts for an anomaly score, and a few wild trips must not stretch the scale: for a Gaussian
    both definitions agree.

    >>> locate(np.array([0.0, 0, 0, 0, 1, 1, 1, 1])).spread
    0.5
    """
    values = np.asarray(values, np.float64)
    if not len(values):
        raise DataError("no left-out demonstrations to set the scale by; at least one trajectory is needed")
    if robust:
        low, centre = np.quantile(values, [0.1587, 0.5])
        spread = float(centre - low)
    else:
        centre, spread = values.mean(), float(values.std())
    # One trip, or identical ones, have no spread: then a unit of reward is the unit.
    return Location(float(centre), spread if spread > 1e-3 else 1.0)


@dataclass(frozen=True)
class Calibration:
    """What is normal for this agent, measured on demonstrations that the reward was not trained on.

    Attributes
    ----------
    step
        r_bar and sigma_bar: centre and spread of the reward of single steps.
    trip, window
        Centre and spread of the mean n of left-out trips, and of their worst window.
    trips
        The scores of the left-out trips, sorted: what conformal p-values are read from.
    window_seconds
        The length of the worst window.
    scale
        "trip" (default): N is standardised over trips; "step": N is the plain mean of n, as printed in the paper.
    """

    step: Location
    trip: Location
    window: Location
    trips: Floats
    window_seconds: float = 120.0
    scale: str = "trip"


class TripScores(NamedTuple):
    """Scores of trips, one entry a trip."""

    normality: Floats  # N(tau)
    uncertainty: Floats  # standard deviation over the heads of the trip's mean, in sigma_bar
    worst_window: Floats  # the lowest mean of n over a window, standardised over left-out trips
    score: Floats  # the lower of the two, which decides
    p_value: Floats  # the share of left-out trips that score as low; small = anomalous


def calibrate(
    rewards: Array,
    trip: Array,
    time: Array,
    weight: Array,
    *,
    robust: bool = False,
    scale: str = "trip",
    window_seconds: float = 120.0,
) -> Calibration:
    """Set r_bar, sigma_bar and the scales of trips from the rewards (rows, heads) of left-out demonstrations."""
    if scale not in ("trip", "step"):
        raise DataError(f"scale is 'trip' or 'step', not {scale!r}")
    step = locate(rewards.mean(axis=1), robust)
    n = step.standardise(rewards.mean(axis=1))
    of = np.unique(trip, return_inverse=True)[1]
    mean = trip_means(n, of, weight)
    worst = worst_windows(n, of, time, weight, window_seconds)
    plain = Location(0.0, 1.0)
    blank = Calibration(
        step,
        locate(mean, robust) if scale == "trip" else plain,
        locate(worst, robust),
        np.zeros(0),
        window_seconds,
        scale,
    )
    score = _decide(blank, mean, worst)[1]
    return Calibration(step, blank.trip, blank.window, np.sort(score), window_seconds, scale)


def step_normality(rewards: Array, calibration: Calibration) -> tuple[Floats, Floats]:
    """n(s, a) of every row, and the standard deviation over the heads, both in sigma_bar."""
    n = calibration.step.standardise(rewards.mean(axis=1))
    return n, np.asarray(rewards.std(axis=1) / calibration.step.spread, np.float64)


def trip_normality(
    rewards: Array, trip: Array, time: Array, weight: Array, calibration: Calibration, n_trips: int
) -> TripScores:
    """Score trips from the rewards of their rows; a trip without a usable row is not a number."""
    n = calibration.step.standardise(rewards.mean(axis=1))
    mean = trip_means(n, trip, weight, n_trips)
    heads = _head_means(rewards, trip, weight, n_trips)
    worst = worst_windows(n, trip, time, weight, calibration.window_seconds, n_trips)
    (normality, window), score = _decide(calibration, mean, worst)
    return TripScores(
        normality,
        np.asarray(heads.std(axis=1) / calibration.step.spread),
        window,
        score,
        p_values(score, calibration.trips),
    )


def _head_means(rewards: Array, trip: Array, weight: Array, n_trips: int) -> Floats:
    """The weighted mean of each trip under each head: (trips, heads)."""
    total, counts = np.bincount(trip, weight, n_trips), np.bincount(trip, minlength=n_trips)
    # What each row contributes to its trip's mean; where a trip has no weight at all, the plain mean.
    share = np.where(total[trip] > 0, weight, 1.0) / np.where(total > 0, total, counts)[trip]
    means = np.column_stack([np.bincount(trip, share * head, n_trips) for head in rewards.T])
    return np.where(counts[:, None] > 0, means, np.nan)


def _decide(calibration: Calibration, mean: Floats, worst: Floats) -> tuple[tuple[Floats, Floats], Floats]:
    normality = calibration.trip.standardise(mean)
    window = calibration.window.standardise(worst)
    # The paper decides by the mean alone; a mean hides a short detour, so by default the worst window may object.
    return (normality, window), normality if calibration.scale == "step" else np.minimum(normality, window)


def trip_means(values: Array, trip: Array, weight: Array, n_trips: int | None = None) -> Floats:
    """The weighted mean of each trip; where a trip has no weight at all, the plain mean.

    >>> trip_means(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1]), np.array([1.0, 3.0, 0.0])).tolist()
    [2.5, 5.0]
    """
    size = (int(trip.max()) + 1 if len(trip) else 0) if n_trips is None else n_trips
    total = np.bincount(trip, weight, size)
    sums = np.bincount(trip, weight * values, size)
    counts = np.bincount(trip, minlength=size)
    plain = np.bincount(trip, values, size)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, sums / total, plain / counts)


def worst_windows(
    n: Array, trip: Array, time: Array, weight: Array, seconds: float, n_trips: int | None = None
) -> Floats:
    """The lowest weighted mean of n over any window that ends at a row and reaches back ``seconds``, for each trip.

    A window that would begin before its path is cut there, but counts only from half its length on: one odd fix is no
    window. A path begins with the trip and with every row of no weight (after a gap). A trip whose paths are all
    shorter than that has its mean.
    """
    size = (int(trip.max()) + 1 if len(trip) else 0) if n_trips is None else n_trips
    worst = trip_means(n, trip, weight, size)
    if not len(n):
        return worst
    begins = np.flatnonzero(np.r_[True, trip[1:] != trip[:-1]] | (weight == 0))
    first = np.repeat(begins, np.diff(np.r_[begins, len(trip)]))
    # One clock for all paths, so that one search finds where every window starts.
    duration = time[np.r_[begins[1:], len(time)] - 1] - time[begins]
    shift = np.cumsum(np.r_[0.0, duration[:-1] + 1.0]) - time[begins]
    clock = time + np.repeat(shift, np.diff(np.r_[begins, len(trip)]))
    low = np.maximum(np.searchsorted(clock, clock - seconds, side="right"), first)
    total = np.r_[0.0, np.cumsum(weight)]
    sums = np.r_[0.0, np.cumsum(weight * n)]
    rows = np.arange(len(n))
    mass = total[rows + 1] - total[low]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (sums[rows + 1] - sums[low]) / mass
    full = (time - time[first] >= seconds / 2) & (mass > 0)
    np.minimum.at(worst, trip[full], mean[full])
    return worst


def p_values(scores: Array, calibration_scores: Array) -> Floats:
    """Conformal p-values: the share of left-out trips, the new one counted, that score as low (Vovk et al. 2005).

    If a new trip is exchangeable with the left-out ones, P(p <= alpha) <= alpha.

    >>> p_values(np.array([-9.0, 0.5, 9.0]), np.array([0.0, 1.0, 2.0])).tolist()
    [0.25, 0.5, 1.0]
    """
    as_low = np.searchsorted(calibration_scores, scores, side="right")
    return np.where(np.isnan(scores), np.nan, (1.0 + as_low) / (1.0 + len(calibration_scores)))


class Segment(NamedTuple):
    """A stretch of a trip that is not normal: rows ``start`` to ``stop`` (exclusive), and its mean normality."""

    trip: int
    start: int
    stop: int
    normality: float


def segments(
    n: Array, trip: Array, time: Array, enter: float = -2.0, leave: float = -1.0, min_seconds: float = 60.0
) -> list[Segment]:
    """Where anomalies start and end: a segment opens at n <= enter and closes at n > leave (hysteresis).

    Segments shorter than ``min_seconds`` are noise and left out, unless they are the whole trip.

    >>> n = np.array([0.0, -3, -1.5, -3, 0, 0])
    >>> segments(n, np.zeros(6, int), np.arange(6) * 60.0)
    [Segment(trip=0, start=1, stop=4, normality=-2.5)]
    """
    if leave < enter:
        raise DataError(f"a segment must not close ({leave}) below where it opens ({enter})")
    if not len(n):
        return []
    fresh = np.r_[True, trip[1:] != trip[:-1]]
    # The state after each row is set by the last row that decided something: below enter, above leave, or a new trip.
    decided = np.where(n <= enter, 1, np.where((n > leave) | fresh, 0, -1))
    last = np.maximum.accumulate(np.where(decided >= 0, np.arange(len(n)), -1))
    inside = decided[last] == 1
    starts = np.flatnonzero(inside & (fresh | np.r_[True, ~inside[:-1]]))
    stops = np.flatnonzero(inside & np.r_[fresh[1:] | ~inside[1:], True]) + 1
    found = []
    for a, b in zip(starts, stops, strict=True):
        whole = fresh[a] and (b == len(n) or fresh[b])
        if whole or time[b - 1] - time[a] >= min_seconds:
            found.append(Segment(int(trip[a]), int(a), int(b), float(n[a:b].mean())))
    return found
