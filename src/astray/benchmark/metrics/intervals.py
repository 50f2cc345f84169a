"""A mean over people and draws, with the interval in which it would lie for other people of the same kind."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from astray.errors import AstrayError, DataError


class Interval(NamedTuple):
    """A mean and its confidence interval; without two clusters there is none, and its ends are not numbers."""

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
) -> Interval:
    """The mean of values that come in clusters, and its interval by resampling whole clusters.

    The draws of one person are alike, so people are resampled and not draws; each person counts the same, however many
    draws there are. A percentile interval of few clusters is too narrow; its level is widened so that it is about as
    wide as Student's interval would be (Hesterberg 2015, the expanded percentile interval).

    Parameters
    ----------
    values
        One figure a draw. To compare two methods give the differences of their figures on the same draws.
    clusters
        Who each figure is of: the person, or the seed where there is one pool.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> mean, low, high = mean_interval([0.8, 0.6, 0.9, 0.9], ["ana", "ana", "bob", "bob"], rng)
    >>> round(mean, 3), low < mean < high
    (0.8, True)
    """
    figures, who = np.asarray(values, np.float64), np.asarray(clusters).astype(np.str_)
    if figures.ndim != 1 or figures.shape != who.shape or not figures.size:
        raise DataError(f"{figures.size} values of {who.size} clusters; give one of each a draw, and at least one")
    if not np.isfinite(figures).all():
        raise DataError("a value is not a finite number; leave that draw out for every method")
    if not 0.0 < confidence < 1.0:
        raise DataError(f"confidence is {confidence}; give a share between 0 and 1, such as 0.95")
    _, member = np.unique(who, return_inverse=True)
    means = np.bincount(member, figures) / np.bincount(member)
    n = len(means)
    mean = float(means.mean())
    if n < 2:
        return Interval(mean, float("nan"), float("nan"))
    drawn = means[rng.integers(n, size=(resamples, n))].mean(axis=1)
    tail = _expanded_tail(1.0 - confidence, n)
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    return Interval(mean, float(low), float(high))


def _expanded_tail(alpha: float, n: int) -> float:
    """Phi(sqrt(n / (n - 1)) t_{alpha / 2, n - 1}): the normal tail that is as far out as Student's."""
    try:
        special = import_module("scipy.special")
    except ModuleNotFoundError as missing:
        raise AstrayError("intervals need scipy; install it with: pip install 'astray[bench]'") from missing
    return float(special.ndtr(np.sqrt(n / (n - 1)) * special.stdtrit(n - 1, alpha / 2)))
