"""A mean over people and draws, with a confidence interval for other people of the same kind."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from astray.core.errors import DataError
from astray_benchmark.libraries import library

FEW = 8  # with fewer clusters than this, resampling gives too narrow intervals


class Interval(NamedTuple):
    """A mean and its confidence interval, whose ends are NaN with fewer than two clusters."""

    mean: float
    low: float
    high: float


def mean_interval(
    values: ArrayLike,
    clusters: ArrayLike,
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 5000,
    within: tuple[float, float] = (-np.inf, np.inf),
) -> Interval:
    """Returns the mean of clustered values with its interval: by bootstrap, or Student's if there are few clusters.

    The draws of one person are similar, so the interval is over people: each has the same weight, whatever the number
    of draws. With eight people or more, it resamples whole people and returns the expanded percentile interval, which
    is widened to be about as wide as Student's (Hesterberg 2015). With fewer people that would still be too narrow, so
    it returns Student's interval, mean ± t s / √n with n - 1 degrees of freedom.

    Parameters
    ----------
    values
        One figure for each draw. To compare two methods, give the differences of their figures on the same draws.
    clusters
        The cluster of each figure: the person, or the seed if there is one pool.
    within
        The bounds of the mean, and so of its interval: 0 and 1 for a share.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> mean, low, high = mean_interval([0.8, 0.6, 0.9, 0.9], ["ana", "ana", "bob", "bob"], rng)
    >>> round(mean, 3), low < mean < high
    (0.8, True)
    """
    figures, who = np.asarray(values, np.float64), np.asarray(clusters).astype(np.str_)
    if figures.ndim != 1 or figures.shape != who.shape or not figures.size:
        raise DataError(
            f"{figures.size} values of {who.size} clusters", remedy="give both for each draw, and at least one draw"
        )
    if not np.isfinite(figures).all():
        raise DataError("a value is not a finite number", remedy="leave that draw out for every method")
    if not 0.0 < confidence < 1.0:
        raise DataError(f"confidence is {confidence}", remedy="give a share between 0 and 1, such as 0.95")
    _, member = np.unique(who, return_inverse=True)
    means = np.bincount(member, figures) / np.bincount(member)
    n = len(means)
    mean = float(means.mean())
    if n < 2:
        return Interval(mean, float("nan"), float("nan"))
    special = library("scipy.special")
    t = float(special.stdtrit(n - 1, 0.5 + confidence / 2))
    if n < FEW:
        half = t * float(means.std(ddof=1) / np.sqrt(n))
        return Interval(mean, max(mean - half, within[0]), min(mean + half, within[1]))
    drawn = means[rng.integers(n, size=(resamples, n))].mean(axis=1)
    tail = special.ndtr(-np.sqrt(n / (n - 1)) * t)  # the level at which a normal quantile is as far out as Student's
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    return Interval(mean, float(low), float(high))
