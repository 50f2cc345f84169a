"""A coarse map of fixes in letters, for a terminal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SHADES = " .:*#"
ASPECT = 2.0
"""How much taller than wide a letter is."""

Floats = NDArray[np.float64]


def centred(lon: NDArray[Any]) -> Floats:
    """Longitudes without a jump where the map is: around their middle on the circle.

    >>> centred(np.array([179.5, -179.5])).tolist()
    [179.5, 180.5]
    """
    middle = float(np.degrees(np.angle(np.exp(1j * np.radians(lon)).mean())))
    return np.asarray((lon - middle + 180.0) % 360.0 - 180.0 + middle, np.float64)


def text_map(lat: NDArray[Any], lon: NDArray[Any], width: int = 60, height: int = 20) -> list[str]:
    """Lines of letters, north up: the more fixes in a cell, the darker.

    >>> text_map(np.array([0.0, 1.0]), np.array([0.0, 1.0]), width=6, height=3)
    ['    .', '', '.']
    """
    x, y = centred(lon) * np.cos(np.radians(np.median(lat))), np.asarray(lat, np.float64)
    span = max(np.ptp(x) / (width - 1), np.ptp(y) / (height - 1) / ASPECT, 1e-9)
    columns = np.rint((x - x.min()) / span).astype(np.int64)
    rows = np.rint((y.max() - y) / (span * ASPECT)).astype(np.int64)
    counts = np.zeros((int(rows.max()) + 1, int(columns.max()) + 1), np.int64)
    np.add.at(counts, (rows, columns), 1)
    shade = np.zeros_like(counts)
    some = counts > 0
    share = np.log1p(counts[some]) / np.log1p(counts.max()) if counts.max() > 1 else np.zeros(int(some.sum()))
    shade[some] = 1 + np.minimum((share * (len(SHADES) - 1)).astype(np.int64), len(SHADES) - 2)
    return ["".join(SHADES[s] for s in row).rstrip() for row in shade.tolist()]
