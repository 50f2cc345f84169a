"""The grid of the earth: square cells of any size, which are the same for every agent.

A row of cells lies between two parallels. Its middle parallel sets the width of its cells, so that a cell is as wide as
it is high everywhere on earth. Neighbouring rows are not aligned, which does not matter for counting.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.projection import METRES_A_DEGREE
from astray.features.hashing import changes

Array = NDArray[Any]

MANY = 4096  # from this number of places on, it is faster to take one cosine for each run of places in the same row


def cells(places: Array, size: float | Array, shift: float | Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the row and column of places on a grid shifted by a fraction of a cell.

    ``places`` are (2, n), as :meth:`Projection.to_grid` gives them.

    >>> from astray.core.projection import Projection
    >>> here = np.array([[100.0, 0.0]])
    >>> near, far = Projection(41.15, -8.61), Projection(41.0, -8.0)
    >>> other = far.to_metres(*near.to_degrees(here))
    >>> cells(near.to_grid(here), 500.0, 0.5) == cells(far.to_grid(other), 500.0, 0.5)
    True
    """
    x, y = places
    row = np.floor(y / size + shift)
    return row, np.floor(x * _narrowing(row, size, shift) / size + shift)


def _narrowing(row: Array, size: Any, shift: Any) -> Array:
    """Returns the length of each row's middle parallel as a fraction of the equator."""
    latitude = (row - shift + 0.5) * (size / METRES_A_DEGREE)
    if latitude.size < MANY:
        return np.asarray(np.cos(np.radians(latitude)))
    flat = latitude.ravel()
    starts = np.flatnonzero(changes(flat))  # an agent mostly stays in the same row
    narrowing = np.cos(np.radians(flat[starts]))
    return np.repeat(narrowing, np.diff(starts, append=len(flat))).reshape(latitude.shape)


@lru_cache(maxsize=65_536)
def row_narrowing(row: int, size: float, shift: float) -> float:
    """Returns the length of one row's middle parallel as a fraction of the equator, cached for live feeds."""
    return float(_narrowing(np.array(float(row)), size, shift))
