"""The grid of the earth: square cells of any size, the same ones for every agent.

A row of cells lies between two parallels; all places of a row are measured by the row's middle, so that a cell is as
wide as it is high wherever it is. Rows next to each other are not aligned, which counting does not mind.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.projection import METRES_A_DEGREE

Array = NDArray[Any]


def cells(places: Array, size: float | Array, shift: float | Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Row and column of places (2, n), as :meth:`Projection.to_grid` gives them, on a grid moved by a share of a cell.

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


def cell(x: float, y: float, size: float, shift: float) -> tuple[int, int]:
    """What :func:`cells` says of one place, to the last bit."""
    row = math.floor(y / size + shift)
    return row, math.floor(x * _narrowing_of(row, size, shift) / size + shift)


def _narrowing(row: Any, size: Any, shift: Any) -> Any:
    """How much shorter the middle of a row is than the equator."""
    return np.cos(np.radians((row - shift + 0.5) * (size / METRES_A_DEGREE)))


@lru_cache(maxsize=65_536)
def _narrowing_of(row: int, size: float, shift: float) -> float:
    """The same of one row of cells; a live feed asks for the same few rows again and again."""
    return float(_narrowing(np.float64(row), size, shift))
