"""Strays: demonstrations that are somebody else's by mistake, found by how other agents' trips score.

The demonstrations are a mixture: mostly the agent's own, and a share c of strays. Where strays score as other agents'
trips do, at least a share c F(t) of the demonstrations scores below any t, F being the distribution of other agents'
scores; so c is at most the lowest ratio of the two distributions (a mixture proportion: Blanchard, Lee and Scott 2010).
Own trips hardly ever score as low as the middle of the others, so for clean demonstrations the bound is about 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LEAST_DEMONSTRATIONS = 50  # of fewer, one odd trip would be a large share
LEAST_OTHERS = 20
COMPARED_FROM = 0.5  # the share of the others' trips from which on the distributions are compared
MOST = 0.25  # of the demonstrations that are suspected


def likely_strays(own: Array, others: Array, suspicion: float) -> NDArray[np.bool_]:
    """Which demonstrations are likely strays, by their scores and those of other agents' trips.

    The lowest of them, up to where there are ``suspicion`` times as many as the estimated share explains: strays score
    higher than others do, for they are demonstrations and make each other familiar, so the share is estimated too low.
    One that has no score is none.

    >>> rng = np.random.default_rng(0)
    >>> own, others = rng.normal(0, 1, 300), rng.normal(-6, 1, 200)
    >>> int(likely_strays(own, others, 10.0).sum())
    0
    >>> mixed = np.r_[own, rng.normal(-5, 1, 20)]
    >>> found = likely_strays(mixed, others, 10.0)
    >>> int(found[:300].sum()), int(found[300:].sum())
    (0, 15)
    """
    scored, others = np.sort(own[~np.isnan(own)]), np.sort(others)
    if len(scored) < LEAST_DEMONSTRATIONS or len(others) < LEAST_OTHERS or not suspicion:
        return np.zeros(len(own), np.bool_)
    share_of_others = np.arange(1, len(others) + 1) / len(others)
    ratio = np.searchsorted(scored, others, side="right") / len(scored) / share_of_others
    strays = ratio[share_of_others >= COMPARED_FROM].min()
    if strays == 0.0:
        return np.zeros(len(own), np.bool_)
    within = np.flatnonzero(ratio <= suspicion * strays)
    return np.asarray(own <= min(others[within[-1]], np.quantile(scored, MOST)))
