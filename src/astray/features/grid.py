"""The grid of the earth: square cells of any size, the same ones for every agent.

A row of cells lies between two parallels. All places of a row are measured by the row's middle, so that a cell is as
wide as it is high everywhere on earth. Neighbouring rows are not aligned; counting does not need that.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.projection import METRES_A_DEGREE
from astray.features.hashing import changes

Array = NDArray[Any]

MANY = 4096  # places from which on it is faster to take the cosine of every run of equal rows only once


def cells(places: Array, size: float | Array, shift: float | Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns row and column of places on a grid that is shifted by a share of a cell.

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
    """Returns how much shorter the middle of each row is than the equator."""
    latitude = (row - shift + 0.5) * (size / METRES_A_DEGREE)
    if latitude.size < MANY:
        return np.asarray(np.cos(np.radians(latitude)))
    flat = latitude.ravel()
    starts = np.flatnonzero(changes(flat))  # an agent mostly stays in the row where it was
    narrowing = np.cos(np.radians(flat[starts]))
    return np.repeat(narrowing, np.diff(starts, append=len(flat))).reshape(latitude.shape)


@lru_cache(maxsize=65_536)
def row_narrowing(row: int, size: float, shift: float) -> float:
    """Returns how much shorter the middle of one row is than the equator; a live feed asks for the same few rows."""
    return float(_narrowing(np.array(float(row)), size, shift))
