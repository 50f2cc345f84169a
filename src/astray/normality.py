"""Normality: from rewards to scores that mean the same for everybody, and how sure they are. Pure numpy.

n(s, a) is the mean reward over the heads in standard deviations of the agent's own left-out behaviour (the paper's
normality score). N(tau), the (soft) mean of n over a trip, is given in standard deviations of left-out trips, so that
eps = -2 asks of a trip what it asks of a step; ``scale="step"`` leaves it as the plain mean that the paper prints.
How rows make a trip is told in :mod:`astray.aggregate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.aggregate import Runs, over_trips
from astray.errors import DataError

Array = NDArray[Any]
Floats = NDArray[np.float64]


# Chosen on simulated people and on GeoLife users outside the ten of the published table (docs/results).
DISTINCT = 3.0  # an aspect whose counterfactuals stand this far off, in deviations, is trusted as it is
MOST_TOLERANT = 10.0
WINDOW_TOLERANCE = 1.35  # a short stretch has to be further off than a whole trip


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


class Overall(NamedTuple):
    """Centre and spread of the lowest aspect: of steps, of trips, of worst windows."""

    step: Location
    trip: Location
    window: Location


@dataclass(frozen=True)
class Calibration:
    """What is normal for this agent, measured on demonstrations that the reward was not trained on.

    A reward may have several aspects (place, route, manner, time), each with heads of its own. Every aspect is measured
    on its own scale, divided by its tolerance, and the lowest of them counts: somebody in the right place at the wrong
    speed is not normal. What the lowest comes to is measured once more, so that eps means the same for any number of
    aspects.

    Attributes
    ----------
    aspects
        Their names.
    tolerance
        How far each aspect has to be off to count as much as the first one that is off by 1.
    softness
        T of each aspect's soft mean over a trip; 0: the plain mean.
    step
        r_bar and sigma_bar of each aspect: centre and spread of the reward of single steps.
    trip, window
        Of each aspect: centre and spread of the (soft) mean n of left-out trips, and of their worst window.
    overall
        The same of the lowest aspect, whichever it is.
    trips
        The scores of trips that nothing was learned from, sorted: what conformal p-values are read from.
    window_seconds
        The length of the worst window.
    scale
        "trip" (default): N is standardised over trips; "step": N is the plain mean of n, as printed in the paper.
    """

    aspects: tuple[str, ...]
    tolerance: tuple[float, ...]
    softness: tuple[float, ...]
    step: tuple[Location, ...]
    trip: tuple[Location, ...]
    window: tuple[Location, ...]
    overall: Overall
    trips: Floats
    window_seconds: float = 120.0
    scale: str = "trip"

    def of_steps(self, rewards: Array) -> Floats:
        """The n(s, a) of each aspect: (rows, aspects), from rewards (rows, aspects, heads)."""
        return _standardised(_over_heads(rewards), self.step)


@dataclass(frozen=True, eq=False)
class Scale:
    """What scores are measured on.

    ``step_noise`` and ``trip_noise`` are standard deviations, in sigma_bar, that a short history adds to the heads'
    own: how far scores would move had as many other trips of the agent been seen.
    """

    calibration: Calibration
    step_noise: float = 0.0
    trip_noise: float = 0.0


class StepScores(NamedTuple):
    """Scores of steps, one entry a row."""

    normality: Floats  # n(s, a), of the lowest aspect
    uncertainty: Floats  # standard deviation over the heads of that aspect, in the same unit
    aspect: NDArray[np.int64]  # which aspect is lowest


class TripScores(NamedTuple):
    """Scores of trips, one entry a trip."""

    normality: Floats  # N(tau), of the lowest aspect
    uncertainty: Floats  # standard deviation over the heads of the trip's plain mean, in sigma_bar
    worst_window: Floats  # the lowest mean of n over a window, standardised over left-out trips, by WINDOW_TOLERANCE
    score: Floats  # the lower of the two, which decides
    p_value: Floats  # the share of left-out trips that score as low; small = anomalous
    aspect: NDArray[np.int64]  # which aspect the score is of; -1 where there is none


def calibrate(
    rewards: Array,
    trip: Array,
    time: Array,
    weight: Array,
    *,
    aspects: Sequence[str] = ("behaviour",),
    softness: Sequence[float] = (),
    backgrounds: Sequence[Array] = (),
    unseen: Array | None = None,
    doubted: Array | None = None,
    robust: bool = False,
    scale: str = "trip",
    window_seconds: float = 120.0,
) -> Calibration:
    """Set r_bar, sigma_bar and the scales of trips, from left-out demonstrations' rewards (rows, aspects, heads).

    ``softness`` is that of each aspect; without it all means are plain, as they are on the paper's scale. Only the
    first may have one where there are backgrounds, for these are measured by plain means. ``backgrounds`` holds, for
    each aspect, the mean rewards of what that aspect was trained against, one a trajectory: they set the tolerances.
    Without them all aspects are trusted alike. ``unseen`` says of each row whether nothing at all was learned from its
    trip: from such trips alone p-values are read; by default from every one. ``doubted`` says whether its trip may be
    somebody else's: such trips count for the last step, the scales of the lowest aspect, but not for what is normal in
    each.
    """
    if scale not in ("trip", "step"):
        raise DataError(f"scale is 'trip' or 'step', not {scale!r}")
    plain = Location(0.0, 1.0)
    mean = _over_heads(rewards)
    of = np.unique(trip, return_inverse=True)[1]
    sure = np.ones(len(of), np.bool_) if doubted is None or np.all(doubted) else ~np.asarray(doubted)
    sure_trips = np.bincount(of, sure) > 0
    step = tuple(locate(r, robust) for r in mean[sure].T)
    n = _standardised(mean, step)
    softness = tuple(softness) if softness and scale == "trip" else (0.0,) * len(step)
    runs = Runs.of(of)
    share = runs.shares(weight)
    means, worst = (v.T for v in over_trips(n.T, runs, share, softness, of, time, weight, window_seconds))
    blank = Calibration(
        tuple(aspects),
        (1.0,) * len(step),
        softness,
        step,
        tuple(locate(m, robust) for m in means[sure_trips].T) if scale == "trip" else (plain,) * len(step),
        tuple(locate(w, robust) for w in worst[sure_trips].T),
        Overall(plain, plain, Location(0.0, WINDOW_TOLERANCE)),
        np.zeros(0),
        window_seconds,
        scale,
    )
    if backgrounds:
        blank = replace(blank, tolerance=_tolerances(blank, backgrounds))
    if len(step) > 1:
        lowest = [
            lowest_aspect(blank, v)[0]
            for v in (n, _standardised(means, blank.trip), _standardised(worst, blank.window))
        ]
        of_step, of_trip, (centre, spread) = (locate(values, robust) for values in lowest)
        blank = replace(blank, overall=Overall(of_step, of_trip, Location(centre, WINDOW_TOLERANCE * spread)))
    score = _decide(blank, means, worst)[2]
    promised = slice(None) if unseen is None else np.bincount(of, unseen) > 0
    return replace(blank, trips=np.sort(score[promised]))


def _tolerances(calibration: Calibration, backgrounds: Sequence[Array]) -> tuple[float, ...]:
    """How far off each aspect has to be: the less, the better it tells the agent's trips from their counterfactuals.

    Where they can hardly be told apart (some people go at any hour), a low value means little. The first aspect,
    whether it was this agent at all, is what the others are measured by.
    """
    found = [1.0]
    for rewards, step, trip in list(zip(backgrounds, calibration.step, calibration.trip, strict=True))[1:]:
        away = -trip.standardise(step.standardise(rewards))
        distinct = away.mean() / np.sqrt((1.0 + away.var()) / 2.0)
        found.append(float(np.clip(DISTINCT / max(distinct, 1e-9), 1.0, MOST_TOLERANT)))
    return tuple(found)


def lowest_aspect(calibration: Calibration, values: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """The lowest of standardised values (rows, aspects), each over its aspect's tolerance; and which that is."""
    over = values / np.asarray(calibration.tolerance)
    which = over.argmin(axis=1)
    return over[np.arange(len(over)), which], which


def step_normality(rewards: Array, calibration: Calibration, n: Floats | None = None) -> StepScores:
    """n(s, a) of every row, the standard deviation over the heads in the same unit, and the aspect that is lowest.

    ``n`` is what :meth:`Calibration.of_steps` says of the rewards, where that is known already.
    """
    low, which = lowest_aspect(calibration, calibration.of_steps(rewards) if n is None else n)
    spread = np.empty(len(rewards))
    for aspect, unit in enumerate(_units(calibration)):
        rows = which == aspect
        spread[rows] = rewards[rows, aspect].std(axis=1, dtype=np.float64) / unit
    return StepScores(calibration.overall.step.standardise(low), spread, which)


def lowest_of_steps(calibration: Calibration, n: Floats) -> Floats:
    """n(s, a) of every row alone, from that of its aspects."""
    return calibration.overall.step.standardise((n / np.asarray(calibration.tolerance)).min(axis=1))


def trip_normality(
    rewards: Array,
    trip: Array,
    time: Array,
    weight: Array,
    calibration: Calibration,
    n_trips: int,
    n: Floats | None = None,
) -> TripScores:
    """Score trips from the rewards (rows, aspects, heads) of their rows; one without a usable row is not a number.

    ``n`` is what :meth:`Calibration.of_steps` says of the rewards, where that is known already.
    """
    n = calibration.of_steps(rewards) if n is None else n
    runs = Runs.of(trip, n_trips)
    share, softness, seconds = runs.shares(weight), calibration.softness, calibration.window_seconds
    means, worst = over_trips(n.T, runs, share, softness, trip, time, weight, seconds)
    normality, window, score, which = _decide(calibration, means.T, worst.T)
    spread = _head_spread(rewards, runs, share, which) / _units(calibration)[which]
    none = np.isnan(score)
    return TripScores(normality, spread, window, score, p_values(score, calibration.trips), np.where(none, -1, which))


def out_of_bag(rewards: Array, unseen: Array) -> Array:
    """The mean reward (rows, aspects, 1) over the heads that have not learned from a row's trip: at least one each.

    >>> out_of_bag(np.array([[[1.0, 2.0, 6.0]]]), np.array([[False, True, True]])).tolist()
    [[[4.0]]]
    """
    total = np.where(unseen[:, None, :], rewards, 0.0).sum(axis=2, keepdims=True, dtype=np.float64)
    return np.asarray(total / unseen.sum(axis=1)[:, None, None])


def _over_heads(rewards: Array) -> Floats:
    """The mean over the heads, summed in double: in what order the heads are taken must not matter."""
    return np.asarray(rewards.mean(axis=2, dtype=np.float64))


def _standardised(values: Array, scales: Sequence[Location]) -> Floats:
    centres, spreads = np.array(scales).T
    return np.asarray((values - centres) / spreads, np.float64)


def _units(calibration: Calibration) -> Floats:
    """How much reward of each aspect makes one unit of n(s, a)."""
    spreads = np.array([s.spread for s in calibration.step])
    return np.asarray(spreads * np.asarray(calibration.tolerance) * calibration.overall.step.spread)


def _head_spread(rewards: Array, runs: Runs, share: Floats, which: NDArray[np.int64]) -> Floats:
    """The standard deviation over the heads of each trip's plain mean reward, in the aspect that counts for it."""
    spread = np.full(len(which), np.nan)
    of_run = which[runs.trip]
    for aspect in np.unique(of_run):
        mine = of_run == aspect
        rows = np.flatnonzero(np.repeat(mine, runs.lengths))
        heads = rewards[:, aspect].T.take(rows, axis=1)
        means = Runs(runs.trip[mine], runs.lengths[mine], runs.n_trips).means(heads, share[rows])
        chosen = which == aspect
        spread[chosen] = means[:, chosen].std(axis=0)
    return spread


def _decide(calibration: Calibration, means: Floats, worst: Floats) -> tuple[Floats, Floats, Floats, NDArray[np.int64]]:
    """N(tau), the worst window, the score and the aspect that it is of."""
    mean, of_mean = lowest_aspect(calibration, _standardised(means, calibration.trip))
    window, of_window = lowest_aspect(calibration, _standardised(worst, calibration.window))
    mean, window = calibration.overall.trip.standardise(mean), calibration.overall.window.standardise(window)
    if calibration.scale == "step":  # the paper decides by the mean alone
        return mean, window, mean, of_mean
    # A mean hides a short detour, so by default the worst window may object.
    return mean, window, np.minimum(mean, window), np.where(window < mean, of_window, of_mean)


def p_values(scores: Array, calibration_scores: Array) -> Floats:
    """Conformal p-values: the share of left-out trips, the new one counted, that score as low (Vovk et al. 2005).

    If a new trip is exchangeable with the left-out ones, P(p <= alpha) <= alpha.

    >>> p_values(np.array([-9.0, 0.5, 9.0]), np.array([0.0, 1.0, 2.0])).tolist()
    [0.25, 0.5, 1.0]
    """
    as_low = np.searchsorted(calibration_scores, scores, side="right")
    return np.where(np.isnan(scores), np.nan, (1.0 + as_low) / (1.0 + len(calibration_scores)))
