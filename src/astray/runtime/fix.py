"""A fix as it is given live: anything with a time, a latitude and a longitude; checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from astray.core.errors import DataError
from astray.core.fixes import REQUIRED, parts, place
from astray.core.times import moment, seconds_of
from astray.core.trajectories import Trajectories


def read_fix(fix: Any, time_zone: str | None = None) -> tuple[float, float, float]:
    """Time, latitude and longitude of a fix, checked; a time that names no zone is of ``time_zone``, or else UTC.

    >>> read_fix({"time": 0, "lat": 45, "lon": 7}), read_fix((0, 45, 7))
    ((0.0, 45.0, 7.0), (0.0, 45.0, 7.0))
    >>> read_fix((0, 91, 7))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    astray.core.errors.DataError: latitude outside [-90, 90] (91); correct the fix (...)
    """
    if type(fix) is tuple and len(fix) >= 3:
        given = fix[:3]
    elif isinstance(fix, Mapping):
        found = parts(fix)[0]
        given = tuple(found.get(role) for role in REQUIRED)
    elif hasattr(fix, "lat"):
        given = tuple(getattr(fix, role, None) for role in REQUIRED)
    elif isinstance(fix, (Sequence, np.ndarray)) and len(fix) >= 3 and not isinstance(fix, str):
        given = tuple(fix[:3])
    else:
        raise DataError(f"{fix!r:.100} is no fix", remedy="give time, lat and lon as numbers")
    lat, lon = place(*given[1:])
    return seconds_of(given[0], time_zone), lat, lon


def one_fix(agent: str, time: float, lat: float, lon: float, context: Mapping[str, Any]) -> Trajectories:
    """The beginning of a trip, for thresholds and context that depend on it."""
    return Trajectories.unchecked(
        {"time": np.array([time]), "lat": np.array([lat]), "lon": np.array([lon])},
        np.array([0, 1]),
        np.array([agent]),
        np.array([moment(time)]),
        {name: np.array([value]) for name, value in context.items()},
    )
