"""Windows of consecutive rows of trips."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def windows(values: Array, starts: Array, lengths: Array, size: int) -> tuple[Array, Array]:
    """Returns the lowest and highest mean of any ``size`` consecutive rows of each trip; of a shorter trip, its mean.

    >>> low, high = windows(np.array([[0.0], [1.0], [5.0], [3.0]]), np.array([0, 3]), np.array([3, 1]), 2)
    >>> low.tolist(), high.tolist()
    ([[0.5], [3.0]], [[3.0], [3.0]])
    """
    sums = np.zeros((len(values) + 1, values.shape[1]))
    np.cumsum(values, axis=0, out=sums[1:], dtype=np.float64)
    place = np.arange(len(values)) - np.repeat(starts, lengths)
    wide = np.minimum(size, np.repeat(lengths, lengths))
    ends = np.flatnonzero(place + 1 >= wide)
    means = (sums[ends + 1] - sums[ends + 1 - wide[ends]]) / wide[ends, None]
    cut = np.searchsorted(ends, starts)
    return np.minimum.reduceat(means, cut, axis=0), np.maximum.reduceat(means, cut, axis=0)
