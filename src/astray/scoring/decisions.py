"""Turns scores into decisions: normal, anomaly, or review.

Thresholds may depend on the hour or on a trip's context.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.features.context import context_column
from astray.irl.kdd19 import EPSILON, GAMMA, irl_adu

if TYPE_CHECKING:
    from astray.scoring.normality import AspectScores, Calibration, Sample

Array = NDArray[Any]
Floats = NDArray[np.float64]

NORMAL, ANOMALY, REVIEW = "normal", "anomaly", "review"
PAPER_EPS = EPSILON  # the threshold of the paper, in standard deviations
BAND = 2.0  # lo and hi lie this many standard deviations over the heads from the normality


@dataclass(frozen=True)
class ByHour:
    """A threshold by the hour of the day at which a trip starts.

    Parameters
    ----------
    hours
        Hour (0 to 23) to threshold.
    otherwise
        The threshold in all other hours.
    utc_offset
        Seconds by which local time is ahead of UTC; by default from the longitude, as in a model.

    Examples
    --------
    >>> trips = Trajectories.from_fixes(time=[0, 50_000], lat=[0, 0], lon=[0, 0], trajectory=["night", "day"])
    >>> ByHour({0: -3.0, 1: -3.0}, otherwise=-2.0)(trips)
    array([-3., -2.])
    """

    hours: Mapping[int, float]
    otherwise: float
    utc_offset: float | None = None

    def __call__(self, trips: Trajectories) -> Floats:
        """Returns one threshold for each trip."""
        if not trips.holds("time", "lon"):
            raise DataError(
                "these trajectories have no time, so thresholds cannot depend on the hour",
                remedy="give a number instead",
            )
        wrong = [h for h in self.hours if h not in range(24)]
        if wrong:
            raise DataError(f"{wrong[0]!r} is not an hour of the day", remedy="give hours from 0 to 23")
        starts = trips.offsets[:-1]
        offset: Any = self.utc_offset
        if offset is None:
            offset = 3600.0 * np.round(trips.columns["lon"][starts] / 15.0)
        hour = ((trips.columns["time"][starts] + offset) % 86_400.0 // 3600.0).astype(np.int64)
        table = np.array([self.hours.get(h, self.otherwise) for h in range(24)], np.float64)
        return np.asarray(table[hour])


@dataclass(frozen=True)
class ByContext:
    """A threshold by a context column of the trips (the kind of call, the driver's shift, ...).

    >>> trips = Trajectories.from_fixes(time=[0, 0], lat=[0, 0], lon=[0, 0], trajectory=["a", "b"],
    ...                                 context={"call": ["stand", "street"]})
    >>> ByContext("call", {"street": -2.5}, otherwise=-2.0)(trips)
    array([-2. , -2.5])
    """

    column: str
    thresholds: Mapping[str, float]
    otherwise: float

    def __call__(self, trips: Trajectories) -> Floats:
        """Returns one threshold for each trip."""
        labels = context_column(trips, self.column).astype(str).tolist()
        return np.array([self.thresholds.get(label, self.otherwise) for label in labels], np.float64)


Threshold = float | ByHour | ByContext | Callable[[Trajectories], ArrayLike]


def threshold(value: Threshold, trips: Trajectories, name: str = "eps") -> Floats:
    """Returns one threshold for each trip, from a number or from a function of the trips such as :class:`ByHour`."""
    made = value(trips) if callable(value) else value
    try:
        given = np.asarray(made, np.float64)
    except (TypeError, ValueError):
        given = np.full((), np.nan)  # raises the error below
    if given.shape not in ((), (len(trips),)) or np.isnan(given).any():
        raise DataError(
            f"{name} does not give one threshold for each trip",
            remedy=f"give a number, or a function that gives one for each of the {len(trips)} trips",
        )
    return np.broadcast_to(given, len(trips)).astype(np.float64)


Rate = float | Mapping[str, float]
"""The share of normal trips that may be flagged: one for the score, or one for each of some aspects."""


class Levels(NamedTuple):
    """Which trips are low: those that score at most ``eps``, one for each trip.

    If rates are promised by aspect, a trip is low instead if the p-value of any aspect is at most the aspect's rate;
    ``eps`` is then the level of their sum, at which segments open.
    """

    eps: Floats
    rates: tuple[float, ...] = ()  # of each aspect, 0 for one without a rate; empty if the score decides

    def low_aspects(self, by_aspect: AspectScores) -> NDArray[np.bool_]:
        """Returns a mask of the aspects of trips, (trips, aspects), whose p-value is at most their rate."""
        return np.asarray(by_aspect.p_value <= np.array(self.rates))

    def aspect(self, lowest: NDArray[np.int64], by_aspect: AspectScores) -> NDArray[np.int64]:
        """Returns the aspect to name for each trip: of those that flag it the rarest for its rate, else the lowest."""
        if not self.rates:
            return lowest
        low = self.low_aspects(by_aspect)
        used = np.divide(by_aspect.p_value, self.rates, out=np.full(low.shape, np.inf), where=low)
        return np.asarray(np.where(low.any(axis=1), used.argmin(axis=1), lowest))


class Bounds(NamedTuple):
    """The thresholds of one trip: see :func:`decide` and :class:`Levels`."""

    eps: float
    gamma: float
    min_history: float
    rates: tuple[float, ...] = ()

    @property
    def levels(self) -> Levels:
        """The same thresholds in the form of those of many trips."""
        return Levels(np.array([self.eps]), self.rates)


def decide(
    low: Array,
    uncertainty: Array,
    history: Array,
    *,
    gamma: Array | float = GAMMA,
    min_history: float = 5.0,
) -> NDArray[np.str_]:
    """Returns a decision for each trip: normal, anomaly or review.

    Parameters
    ----------
    low
        True if the score is at most ``eps``, or at most the :func:`level` for a false-alarm rate.
    uncertainty
        The spread over the heads; NaN for a trip without a usable fix, which goes to review.
    history
        The number of past trips that the score is based on. If there are none, the agent is unknown: all its trips go
        to review.
    gamma
        Above this spread the heads disagree: a trip with a low score goes to review and is not called an anomaly.
    min_history
        With fewer past trips than this, a trip with a low score goes to review, too.

    Examples
    --------
    >>> decide(np.array([False, True, True, True]), np.array([9, 1, 9, 1]), np.array([50, 50, 50, 2])).tolist()
    ['normal', 'anomaly', 'review', 'review']
    >>> decide(np.array([False]), np.array([0.1]), np.array([0])).tolist()
    ['review']
    """
    unusable = np.isnan(np.asarray(uncertainty, np.float64))
    sure = irl_adu(low, uncertainty, gamma) & (np.asarray(history) >= min_history)
    unknown = np.asarray(history) <= 0
    return np.where(low | unusable, np.where(sure, ANOMALY, REVIEW), np.where(unknown, REVIEW, NORMAL))


def doubt(score: ArrayLike, uncertainty: ArrayLike, eps: ArrayLike = -2.0) -> Floats:
    """Returns the doubt about each decision, from 0 to 1; review the trips with the greatest doubt first.

    It is spread / (spread + distance from ``eps``), with the spread over the heads, so it is high near the threshold
    and where the heads disagree. It is not a probability. It is 1 for a trip without a usable fix, which has no score.

    >>> doubt([-2.1, -2.1, 0.0], [0.1, 0.9, 0.5]).round(2).tolist()
    [0.5, 0.9, 0.2]
    """
    away = np.abs(np.asarray(score, np.float64) - np.asarray(eps, np.float64))
    spread = np.asarray(uncertainty, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = 1.0 / (1.0 + away / spread)
    return np.where(np.isnan(share), 1.0, share)


def level(false_alarm_rate: float, normal: Sample, of: str = "") -> float:
    """Returns the score at or below which at most a share ``false_alarm_rate`` of normal trips lies.

    A score is at most this level if, and only if, its conformal p-value is at most the rate. A rate that is not between
    0 and 1, or is too low for the number of past trips, is an error; ``of`` says in it what the rate is for.

    >>> from astray.scoring.normality import Sample
    >>> level(0.5, Sample.of(np.array([-3.0, -1.0, 0.0])))  # just below -1: one past trip, and the new one, are lower
    -1.0000000000000002
    """
    if not 0.0 < false_alarm_rate < 1.0:
        raise DataError(f"false_alarm_rate is {false_alarm_rate}", remedy="give a share between 0 and 1, such as 0.02")
    if not len(normal.scores):
        raise DataError(
            "no trip was held out of learning, so no rate of false alarms can be promised",
            remedy="fit on more trips, or decide by eps",
        )
    # The p-value of a score with none, one, two, ... of the past trips as low.
    p_values = (1.0 + np.r_[0.0, np.cumsum(normal.weights)]) / (1.0 + normal.total)
    as_low = int(np.searchsorted(p_values, false_alarm_rate, side="right")) - 1
    if as_low < 0:
        own = normal.weights >= 1.0  # all trips of others together weigh as many as are missing
        others = normal.total - normal.weights[own].sum()
        each = normal.weights[own].mean() if own.any() else 1.0
        counted = "" if each == 1.0 else f", counted {each:.2g} times"
        borrowed = (
            f" ({own.sum():,} of the agent{counted}, {others:,.0f} borrowed from others)" if round(others) else ""
        )
        raise DataError(
            f"a false-alarm rate of {false_alarm_rate:g}{of} cannot be told from {normal.total:.0f} past trips"
            f"{borrowed}",
            remedy=f"ask for at least {least_rate(normal.total):g}{of}, or fit on more trips",
        )
    return float(np.nextafter(normal.scores[min(as_low, len(normal.scores) - 1)], -np.inf))


def total_rate(rate: Rate) -> float:
    """Returns the highest share of normal trips that a rate allows to flag: over aspects, at most the sum.

    >>> total_rate({"place": 0.015, "manner": 0.005})
    0.02
    """
    return float(sum(rate.values())) if isinstance(rate, Mapping) else float(rate)


def aspect_rates(rate: Rate, aspects: Sequence[str], weights: Sequence[float]) -> tuple[float, ...]:
    """Returns the rate of each aspect of a reward, 0 for one without; empty if one rate holds for the score.

    A rate for an aspect that the reward does not have, or that ``look_for`` leaves out (its weight is 0), is an error.

    >>> aspect_rates({"manner": 0.01}, ("place", "manner"), (1.0, 0.3)), aspect_rates(0.02, ("place",), (1.0,))
    ((0.0, 0.01), ())
    """
    if not isinstance(rate, Mapping):
        return ()
    known = dict(zip(aspects, weights, strict=True)) if len(aspects) > 1 else {}
    for aspect, share in rate.items():
        if not known:
            raise DataError(
                "the reward of this model has no aspects that false_alarm_rate could promise rates for",
                remedy="give one rate",
            )
        if aspect not in known:
            raise DataError(
                f"false_alarm_rate names {aspect!r}, which is no aspect of the reward",
                remedy=f"give rates for some of {', '.join(aspects)}",
            )
        if not known[aspect]:
            raise DataError(
                f"false_alarm_rate promises a rate for {aspect}, which look_for leaves out",
                remedy=f"leave {aspect} out of false_alarm_rate, or fit with look_for that has it",
            )
        if not 0.0 < share < 1.0:
            raise DataError(
                f"false_alarm_rate is {share} for {aspect}", remedy="give a share between 0 and 1, such as 0.01"
            )
    if not rate or total_rate(rate) >= 1.0:
        raise DataError(f"false_alarm_rate is {dict(rate)}", remedy="give aspects with rates whose sum is below 1")
    return tuple(float(rate.get(aspect, 0.0)) for aspect in aspects)


def rate_level(rate: Rate, calibration: Calibration, rates: Sequence[float] = ()) -> float:
    """Returns the level of the score for a rate; for ``rates`` by aspect, that of their sum.

    A rate that is too low for the number of past trips is an error, which names the aspect.
    """
    if rates:
        aspect_levels(rates, calibration)
    return level(total_rate(rate), calibration.normal)


def aspect_levels(rates: Sequence[float], calibration: Calibration) -> tuple[float, ...]:
    """Returns the level of each aspect's own score for its rate; -inf for an aspect without a rate."""
    if not calibration.by_aspect:
        raise DataError("this model has no scale for each aspect", remedy="fit it again, or give one rate")
    found = []
    for rate, aspect, scale in zip(rates, calibration.aspects, calibration.by_aspect, strict=True):
        found.append(level(rate, scale.normal, f" for {aspect}") if rate else -math.inf)
    return tuple(found)


def least_rate(past: float) -> float:
    """Returns the lowest false-alarm rate that this number of past trips can promise, rounded up to two digits.

    >>> least_rate(15), least_rate(1)
    (0.063, 0.5)
    """
    share = 1 / (1 + past)
    digits = 1 - math.floor(math.log10(share))
    return math.ceil(round(share * 10.0**digits, 6)) / 10.0**digits
