"""Measures the use of an uncertainty: risk against coverage, review of the most uncertain cases, calibration."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from astray.core.errors import DataError
from astray_benchmark.array_types import Bools, Floats
from astray_benchmark.metrics.ranking import as_flags, auroc

NOMINAL = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


class RiskCoverage(NamedTuple):
    """The risk-coverage curve: the share of wrong decisions among the most certain ones.

    Attributes
    ----------
    coverage, risk
        The curve: of the most certain share ``coverage`` of decisions, the share ``risk`` is wrong.
    aurc
        The area under the curve, which is the mean risk over all coverages; in random order it is the error rate.
    excess
        The area minus that of a perfect order, in which every wrong decision is more uncertain than every right one.
    """

    coverage: Floats
    risk: Floats
    aurc: float
    excess: float


class Review(NamedTuple):
    """The decisions that remain when the most uncertain ones are sent to review.

    ``errors_removed`` is the share of the wrong decisions that is reviewed; for a random review, this is the share of
    all cases reviewed.
    """

    precision: float
    recall: float
    f1: float
    errors_removed: float


class Reliability(NamedTuple):
    """The observed rate of false alarms at each nominal one, with its 95 % interval (Wilson)."""

    nominal: Floats
    observed: Floats
    low: Floats
    high: Floats


def risk_coverage(wrong: ArrayLike, uncertainty: ArrayLike) -> RiskCoverage:
    """Returns the risk-coverage curve and its area (El-Yaniv and Wiener 2010; excess: Geifman et al. 2019).

    Cases of equal uncertainty have no order, so the curve uses their mean risk for each of them.

    >>> curve = risk_coverage([0, 0, 1, 0], [0.1, 0.2, 0.9, 0.3])
    >>> curve.risk, curve.aurc, curve.excess
    (array([0.  , 0.  , 0.  , 0.25]), 0.0625, 0.0)
    """
    errors, spread = _cases(wrong, uncertainty)
    _, group, size = np.unique(spread, return_inverse=True, return_counts=True)
    shared = (np.bincount(group, errors) / size)[np.sort(group)]
    n = len(errors)
    counted = np.arange(1, n + 1)
    risk = np.cumsum(shared) / counted
    best = np.maximum(counted - (n - int(errors.sum())), 0) / counted
    return RiskCoverage(counted / n, risk, float(risk.mean()), float(risk.mean() - best.mean()))


def error_auroc(wrong: ArrayLike, uncertainty: ArrayLike) -> float:
    """Returns the probability that a wrong decision is more uncertain than a right one; NaN without both kinds.

    >>> error_auroc([0, 1, 0, 0, 0], [1.0, 3.0, 2.0, 4.0, np.inf])
    0.5
    """
    errors, spread = _cases(wrong, uncertainty)
    rank = np.unique(spread, return_inverse=True)[1]  # ranks exist for infinities, too
    return auroc(-rank, errors) if errors.any() and not errors.all() else float("nan")


def review(flagged: ArrayLike, label: ArrayLike, uncertainty: ArrayLike, share: float) -> Review:
    """Sends the most uncertain ``share`` of the cases to review; measures the remaining decisions.

    If only some cases of the same uncertainty fit into the share, each of them is reviewed in part: the value is the
    mean over all ways to choose among them. ``errors_removed`` is NaN if no decision is wrong, and the precision is NaN
    if no alarm is left.

    Examples
    --------
    >>> review([1, 1, 0, 0], [1, 0, 0, 0], [0.1, 0.9, 0.2, 0.3], share=0.25)
    Review(precision=1.0, recall=1.0, f1=1.0, errors_removed=1.0)
    """
    found, positive = as_flags(flagged, "flagged"), as_flags(label, "label")
    if found.shape != positive.shape:
        raise DataError(f"{found.size} decisions for {positive.size} labels", remedy="give one of each per case")
    wrong, spread = _cases(found != positive, uncertainty)
    if not 0.0 <= share <= 1.0:
        raise DataError(f"share is {share}", remedy="give a share from 0 to 1")
    kept = 1.0 - _reviewed(spread, share * len(spread))
    hits, alarms, anomalies = (float(kept[which].sum()) for which in (found & positive, found, positive))
    return Review(
        hits / alarms if alarms else float("nan"),
        hits / anomalies if anomalies else 0.0,
        2 * hits / (alarms + anomalies) if alarms + anomalies else 0.0,
        float(1.0 - kept[wrong].mean()) if wrong.any() else float("nan"),
    )


def reliability(p_value: ArrayLike, nominal: ArrayLike = NOMINAL) -> Reliability:
    """Compares observed and nominal rates of false alarms: the share of normal cases with a p-value up to the rate.

    Give only p-values of normal cases. The interval assumes that cases are independent; if they share people or a set
    of left-out trips, it is too narrow.

    >>> reliability([0.04, 0.2, 0.5, 0.9], nominal=[0.05, 0.5]).observed
    array([0.25, 0.75])
    """
    p, rate = np.asarray(p_value, np.float64), np.atleast_1d(np.asarray(nominal, np.float64))
    if not p.size or not ((p >= 0) & (p <= 1)).all():
        raise DataError("a p-value is not from 0 to 1, or there is none", remedy="leave out cases without one")
    observed = (p[:, None] <= rate).mean(axis=0)
    z2 = 1.959963984540054**2
    centre = (observed + z2 / (2 * p.size)) / (1 + z2 / p.size)
    half = np.sqrt(z2 * (observed * (1 - observed) / p.size + z2 / (4 * p.size**2))) / (1 + z2 / p.size)
    return Reliability(rate, observed, np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0))


def _cases(wrong: ArrayLike, uncertainty: ArrayLike) -> tuple[Bools, Floats]:
    errors, spread = as_flags(wrong, "wrong"), np.asarray(uncertainty, np.float64)
    if errors.shape != spread.shape or not errors.size:
        raise DataError(f"{spread.size} uncertainties for {errors.size} decisions", remedy="give one of each per case")
    if np.isnan(spread).any():
        raise DataError("an uncertainty is not a number", remedy="give infinity for cases to review first")
    return errors, spread


def _reviewed(spread: Floats, count: float) -> Floats:
    """Returns the part of each case that is reviewed when the ``count`` most uncertain cases are reviewed."""
    _, group, size = np.unique(-spread, return_inverse=True, return_counts=True)
    before = np.cumsum(size) - size
    return np.asarray(np.clip((count - before) / size, 0.0, 1.0)[group])
