"""Turns rewards into scores that mean the same for every agent, with their uncertainty. Needs only numpy.

n(s, a) is the paper's normality score: the mean reward over the heads, in standard deviations of the agent's held-out
behaviour. N(tau) is the same for a trip: the standardised trip reward R(tau) if there is one, otherwise the
standardised mean of n. With ``scale="step"`` N is the plain mean of n, as printed in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.irl.kdd19 import mean_reward, normality_score, reward_deviation
from astray.irl.posterior import combined
from astray.scoring.lengths import LengthScale, length_scale
from astray.scoring.scale_config import ScaleConfig
from astray.scoring.windows import Runs, lowest_windows

Array = NDArray[Any]
Floats = NDArray[np.float64]


class Location(NamedTuple):
    """A centre and a spread."""

    centre: float
    spread: float

    def standardise(self, values: Array) -> Floats:
        """Returns the distances of values from the centre, in units of the spread."""
        return normality_score(values, self.centre, self.spread)


def locate(values: Array, robust: bool = False) -> Location:
    """Returns the mean and standard deviation or, if ``robust``, the median and its distance from the 16th percentile.

    The robust spread uses the lower side because anomalies score low, and a few wild trips do not stretch it. For a
    Gaussian, both definitions agree.

    >>> locate(np.array([0.0, 0, 0, 0, 1, 1, 1, 1])).spread
    0.5
    """
    values = np.asarray(values, np.float64)
    if not len(values):
        raise DataError("no held-out demonstrations to set the scale by", remedy="give at least one trajectory")
    if robust:
        low, centre = np.quantile(values, [0.1587, 0.5])
        spread = float(centre - low)
    else:
        centre, spread = values.mean(), float(values.std())
    # A single trip, or identical ones, have no spread: then keep the unit of the reward.
    return Location(float(centre), spread if spread > 1e-3 else 1.0)


def shrunk(values: Array, towards: Location, pseudo: float) -> Location:
    """Returns the centre and spread of values, shrunk as if ``pseudo`` more values had the location ``towards``.

    >>> shrunk(np.zeros(0), Location(2.0, 3.0), 10.0)
    Location(centre=2.0, spread=3.0)
    >>> shrunk(np.full(30, 6.0), Location(2.0, 3.0), 10.0).centre
    5.0
    """
    n = len(values)
    share = n / (n + pseudo)
    own = Location(float(np.mean(values)), float(np.std(values))) if n else towards
    centre = share * own.centre + (1.0 - share) * towards.centre
    return Location(centre, float(np.sqrt(share * own.spread**2 + (1.0 - share) * towards.spread**2)))


@dataclass(frozen=True, eq=False)
class Sample:
    """The sorted scores of normal trips, each with a weight, from which to compute p-values."""

    scores: Floats = field(default_factory=lambda: np.zeros(0))
    weights: Floats = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(cls, scores: Array, weights: Array | None = None) -> Sample:
        """Makes a sample of scores in any order; by default each weighs 1."""
        order = np.argsort(scores, kind="stable")
        weight = np.ones(len(order)) if weights is None else np.asarray(weights, np.float64)
        return cls(np.asarray(scores, np.float64)[order], weight[order])

    @cached_property
    def total(self) -> float:
        """The number of trips that the sample stands for."""
        return float(self.weights.sum())

    @cached_property
    def _below(self) -> Floats:
        """The total weight of the first 0, 1, 2, ... scores."""
        return np.append(0.0, np.cumsum(self.weights))

    def p_values(self, scores: Array) -> Floats:
        """Returns conformal p-values: the share of normal trips and the new one that score as low (Vovk et al. 2005).

        If a new trip is exchangeable with those of the sample, P(p <= alpha) <= alpha. NaN if the sample is empty.

        >>> Sample.of(np.array([0.0, 1.0, 2.0])).p_values(np.array([-9.0, 0.5, 9.0])).tolist()
        [0.25, 0.5, 1.0]
        """
        below = self._below[np.searchsorted(self.scores, scores, side="right")]
        known = ~np.isnan(scores) & (len(self.scores) > 0)
        return np.where(known, (1.0 + below) / (1.0 + self.total), np.nan)

    def p_value(self, score: float) -> float:
        """Returns the p-value of one score, without the cost of arrays."""
        if not len(self.scores):
            return math.nan
        below = self._below[self.scores.searchsorted(score, side="right")]
        return float((1.0 + below) / (1.0 + self.total))


@dataclass(frozen=True)
class AspectScale:
    """The scale of one aspect of the trip reward, R_a, and the scores of normal trips on it.

    The sample is empty if the aspect is not looked for, or if no trip was held out of learning.
    """

    location: Location = Location(0.0, 1.0)
    normal: Sample = field(default_factory=Sample)


@dataclass(frozen=True)
class Calibration:
    """The scales for an agent's scores, measured on demonstrations that the reward was not trained on.

    Attributes
    ----------
    aspects, weights, step_weights
        The aspects of the reward, and their weights for trips and for steps when they are combined
        (:func:`astray.irl.posterior.combined`); an aspect of weight 0 is ignored.
    step
        r_bar and sigma_bar: centre and spread of the combined reward of single steps.
    trip
        Centre and spread of the combined trip reward or, without one, of the mean n of trips, scaled by length.
    by_length
        The mean n and the worst window of normal trips by length; None if a trip reward decides.
    lowest
        Centre and spread of the minimum of N and the worst window; None if windows are not scored.
    normal
        The scores of normal trips, for p-values; empty if no trip was held out of learning.
    window_length
        Seconds (or steps) of a window.
    scale
        "trip" (default): N is standardised over trips; "step": N is the plain mean of n, as printed in the paper.
    trip_noise
        The uncertainty from a short history, as a standard deviation in units of N; it adds to that of the heads.
    least_segment
        The shortest segment in seconds (or steps); a shorter one is noise.
    by_aspect
        The scale of each aspect alone, in the order of ``aspects``; empty if none was measured.
    """

    aspects: tuple[str, ...]
    weights: tuple[float, ...]
    step: Location
    trip: Location
    by_length: LengthScale | None = None
    normal: Sample = field(default_factory=Sample)
    window_length: float = 120.0
    scale: str = "trip"
    trip_noise: float = 0.0
    lowest: Location = Location(0.0, 1.0)
    step_weights: tuple[float, ...] = (1.0,)
    least_segment: float = ScaleConfig.least_segment
    by_aspect: tuple[AspectScale, ...] = ()


def over_heads(rewards: Array, weights: Sequence[float]) -> Floats:
    """Averages rewards (rows, aspects, heads) over the heads, then combines the aspects."""
    return combined(mean_reward(rewards)[:, :, None], weights)[:, 0]


class StepScores(NamedTuple):
    """Scores of steps, one entry for each row."""

    normality: Floats  # n(s, a)
    uncertainty: Floats  # standard deviation over the heads, in the same unit
    aspect: NDArray[np.int64]  # the aspect that lowers the score most


class TripScores(NamedTuple):
    """Scores of trips, one entry for each trip."""

    normality: Floats  # N(tau)
    uncertainty: Floats  # its standard deviation over the heads
    score: Floats  # what decisions use: N(tau) or, without a trip reward, the worst window if that is lower
    p_value: Floats  # the share of normal trips that score as low; small = anomalous; NaN if none was held out
    aspect: NDArray[np.int64]  # the aspect that lowers the score most; -1 if the trip has no score


class AspectScores(NamedTuple):
    """How normal each aspect of trips is by itself: (trips, aspects); NaN where an aspect is not known."""

    score: Floats  # R_a, in standard deviations of normal trips
    p_value: Floats  # the share of normal trips whose R_a is as low


def aspect_scores(means: Array, calibration: Calibration) -> AspectScores:
    """Scores each aspect of trips alone, from their rewards (trips, aspects), averaged over the heads.

    >>> scale = AspectScale(Location(1.0, 2.0), Sample.of(np.array([-1.0, 0.0, 1.0])))
    >>> of_place = Calibration(("place",), (1.0,), Location(0, 1), Location(0, 1), by_aspect=(scale,))
    >>> found = aspect_scores(np.array([[-3.0], [1.0]]), of_place)
    >>> found.score.tolist(), found.p_value.tolist()
    ([[-2.0], [0.0]], [[0.25], [0.75]])
    """
    found = AspectScores(*np.full((2, *means.shape), np.nan))
    for k, (location, normal) in enumerate((scale.location, scale.normal) for scale in calibration.by_aspect):
        found.score[:, k] = location.standardise(means[:, k])
        found.p_value[:, k] = normal.p_values(found.score[:, k])
    return found


def aspect_scores_of_one(means: Sequence[float], calibration: Calibration) -> tuple[list[float], list[float]]:
    """Returns the same for one trip, (scores, p-values), without the cost of arrays; empty if no aspect has a scale."""
    scales = calibration.by_aspect
    scores = [(m - scale.location.centre) / scale.location.spread for m, scale in zip(means, scales, strict=False)]
    return scores, [scale.normal.p_value(score) for score, scale in zip(scores, scales, strict=True)]


def aspect_means(rewards: Array, trip: Array, weight: Array, n_trips: int) -> Floats:
    """Returns the mean reward of each aspect over the rows of each trip: (trips, aspects); NaN for one without rows."""
    runs = Runs.of(trip, n_trips)
    return runs.means(mean_reward(rewards).T, runs.shares(weight)).T


def lowest_aspect(means: Array, weights: Sequence[float]) -> NDArray[np.int64]:
    """Returns the aspect that lowers each row's combined reward most.

    ``means`` are the rewards (rows, aspects), averaged over the heads.
    """
    with np.errstate(divide="ignore"):
        against = np.log(np.asarray(weights, np.float64)) - means
    return np.asarray(against.argmax(axis=1), np.int64)


def step_normality(rewards: Array, calibration: Calibration) -> StepScores:
    """Returns n(s, a) of every row, its standard deviation over the heads, and the lowest aspect."""
    return _standardised(rewards, calibration.step_weights, calibration.step)


def trip_normality(rewards: Array, calibration: Calibration) -> TripScores:
    """Scores trips by their trip rewards (trips, aspects, heads); a trip without a usable fix scores NaN."""
    known = ~np.isnan(rewards[:, 0, 0])
    n, uncertainty = np.full((2, len(rewards)), np.nan)
    aspect = np.full(len(rewards), -1)
    n[known], spread, aspect[known] = _standardised(rewards[known], calibration.weights, calibration.trip)
    uncertainty[known] = np.hypot(spread, calibration.trip_noise)
    return TripScores(n, uncertainty, n, calibration.normal.p_values(n), aspect)


def _standardised(rewards: Array, weights: Sequence[float], scale: Location) -> StepScores:
    """Returns the combined rewards on this scale, their standard deviation over the heads, and the lowest aspect."""
    means = mean_reward(rewards)
    n = scale.standardise(combined(means[:, :, None], weights)[:, 0])
    return StepScores(n, reward_deviation(combined(rewards, weights)) / scale.spread, lowest_aspect(means, weights))


def normality_of(
    rewards: Array, weights: Sequence[tuple[float, ...]], scales: Sequence[Location]
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Returns normality, standard deviation over the heads and lowest aspect of rows, each on a different scale.

    ``rewards`` are (rows, aspects, heads). The results equal those of :func:`step_normality` and :func:`trip_normality`
    to rounding; the result of a row does not depend on the other rows.

    >>> rewards = np.array([[[3.0, 5.0], [-4.0, -6.0]]])
    >>> [values.round(2).tolist() for values in normality_of(rewards, [(0.5, 0.5)], [Location(0.0, 2.0)])]
    [[-2.15], [0.5], [1]]
    """
    rows, aspects, heads = rewards.shape
    shares, logs = (np.array(known) for known in zip(*map(_shares, weights), strict=True))
    centre, spread = np.array([scale.centre for scale in scales]), np.array([scale.spread for scale in scales])
    values = np.empty((rows, aspects, heads + 1))  # of each head, and their mean
    values[:, :, :heads] = rewards
    means = values[:, :, heads] = np.add.reduce(values[:, :, :heads], axis=2) / heads
    lowest = np.minimum.reduce(values, axis=1)
    total = np.add.reduce(shares[:, :, None] * np.exp(lowest[:, None] - values), axis=1)
    rewarded = lowest - np.log(total)  # the combined aspects, for each head and for the mean
    by_head = rewarded[:, :heads]
    off = by_head - np.add.reduce(by_head, axis=1, keepdims=True) / heads
    apart = np.sqrt(np.add.reduce(off * off, axis=1) / heads) / spread
    return (rewarded[:, heads] - centre) / spread, apart, (logs - means).argmax(axis=1)


@lru_cache(1024)
def _shares(weights: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Returns the weights of aspects as shares of their sum, and their logarithms."""
    given = np.array(weights)
    with np.errstate(divide="ignore"):
        return given / given.sum(), np.log(given)


def mean_normality(
    rewards: Array, trip: Array, time: Array, weight: Array, calibration: Calibration, n_trips: int
) -> TripScores:
    """Scores trips by the rewards (rows, aspects, heads) of their steps; for models without a trip reward."""
    weights = calibration.step_weights
    heads = calibration.step.standardise(combined(rewards, weights))
    n = calibration.step.standardise(over_heads(rewards, weights))
    runs = Runs.of(trip, n_trips)
    share = runs.shares(weight)
    by_head, means = runs.means(heads.T, share), runs.means(n, share)
    unit, lowest = np.ones(n_trips), means
    if calibration.by_length is not None:
        lowest = lowest_windows(n, means, trip, time, weight, calibration.window_length)
        means, lowest, unit = calibration.by_length.standardise(means, lowest, runs.sums(weight))
    mean = score = calibration.trip.standardise(means)
    uncertainty = np.hypot(by_head.std(axis=0) / (unit * calibration.trip.spread), calibration.trip_noise)
    if calibration.by_length is not None:
        score = calibration.lowest.standardise(np.fmin(mean, lowest))
    by_aspect = runs.means(mean_reward(rewards).T, share).T
    aspect = np.where(np.isnan(score), -1, lowest_aspect(np.nan_to_num(by_aspect), weights))
    return TripScores(mean, uncertainty, score, calibration.normal.p_values(score), aspect)


def calibrate(
    rewards: Array,
    trip: Array,
    time: Array,
    weight: Array,
    *,
    aspects: Sequence[str] = ("behaviour",),
    held_out: Array | None = None,
    robust: bool = False,
    scale: str = "trip",
    window_length: float = 120.0,
    least_segment: float = ScaleConfig.least_segment,
    config: ScaleConfig | None = None,
) -> Calibration:
    """Measures r_bar, sigma_bar and the scales of trips and windows from the step rewards of demonstrations.

    ``rewards`` are (rows, aspects, heads). ``held_out`` marks the rows of trips that the reward has not learned from;
    by default all rows. P-values come from these trips alone; so do the scales if there are enough of them.
    """
    config = config or ScaleConfig()
    if scale not in ("trip", "step"):
        raise DataError(f"scale is {scale!r}", remedy="give 'trip' or 'step'")
    of = np.unique(trip, return_inverse=True)[1]
    weights = (1.0 / len(aspects),) * len(aspects)
    reward = over_heads(rewards, weights)
    promised = np.ones(of.max() + 1, np.bool_) if held_out is None else np.bincount(of, held_out) > 0
    setting = promised if np.count_nonzero(promised) >= config.least_held_out else np.ones_like(promised)
    step = locate(reward[setting[of]], robust)
    flat = Location(0.0, 1.0)
    blank = Calibration(
        tuple(aspects),
        weights,
        step,
        flat,
        window_length=window_length,
        scale=scale,
        step_weights=weights,
        least_segment=least_segment,
    )
    n = step.standardise(reward)
    runs = Runs.of(of)
    if scale == "trip":
        located = partial(locate, robust=robust)
        by_length = length_scale(n, of, time, weight, window_length, located, config.lengths)
        blank = replace(blank, by_length=by_length)
        means = mean_normality(rewards, of, time, weight, blank, runs.n_trips).normality
        blank = replace(blank, trip=locate(means[setting], robust))
    score = mean_normality(rewards, of, time, weight, blank, runs.n_trips).score
    if blank.by_length is not None:  # the minimum of two scores is lower than each, so it needs a separate scale
        lowest = locate(score[setting], robust)
        blank, score = replace(blank, lowest=lowest), lowest.standardise(score)
    scales: tuple[AspectScale, ...] = ()
    if len(aspects) > 1:  # a single aspect is the score itself
        means = aspect_means(rewards, of, weight, runs.n_trips)
        scales = tuple(_aspect_scale(means[:, k], promised, setting, robust) for k in range(len(aspects)))
    return replace(blank, normal=Sample.of(score[promised]), by_aspect=scales)


def _aspect_scale(means: Array, promised: Array, setting: Array, robust: bool) -> AspectScale:
    """Returns the scale of one aspect: the location of the ``setting`` trips, and the scores of the promised ones."""
    location = locate(means[setting], robust)
    return AspectScale(location, Sample.of(location.standardise(means[promised])))


def out_of_bag(rewards: Array, held_out: Array) -> Array:
    """Returns the mean reward (rows, aspects, 1), for each row over the heads that have not learned from its trip.

    Every row needs at least one such head.

    >>> out_of_bag(np.array([[[1.0, 2.0, 6.0]]]), np.array([[False, True, True]])).tolist()
    [[[4.0]]]
    """
    total = np.where(held_out[:, None, :], rewards, 0.0).sum(axis=2, keepdims=True, dtype=np.float64)
    return np.asarray(total / held_out.sum(axis=1)[:, None, None])
