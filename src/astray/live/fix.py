"""A fix as it is given live: anything with a time, a latitude and a longitude; checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from astray.errors import DataError
from astray.live.score import moment
from astray.trajectories import Trajectories


def read_fix(fix: Any) -> tuple[float, float, float]:
    """Time, latitude and longitude of a fix, checked.

    >>> read_fix({"time": 0, "lat": 45, "lon": 7}), read_fix((0, 45, 7))
    ((0.0, 45.0, 7.0), (0.0, 45.0, 7.0))
    >>> read_fix((0, 91, 7))
    Traceback (most recent call last):
    ...
    astray.errors.DataError: latitude 91.0 is outside [-90, 90]; are lat and lon swapped?
    """
    try:
        if type(fix) is tuple:
            given = fix[:3]
        elif isinstance(fix, Mapping):
            given = (fix["time"], fix["lat"], fix["lon"])
        elif hasattr(fix, "lat"):
            given = (fix.time, fix.lat, fix.lon)
        else:
            given = tuple(fix)[:3]
        time, lat, lon = (float(value) for value in given)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(f"{fix!r:.100} is no fix; give time, lat and lon as numbers") from None
    if not (math.isfinite(time) and math.isfinite(lat) and math.isfinite(lon)):
        raise DataError("a fix has a time, lat or lon that is not a finite number; drop or repair it")
    if not -90 <= lat <= 90:
        raise DataError(f"latitude {lat} is outside [-90, 90]; are lat and lon swapped?")
    if not -360 <= lon <= 360:
        raise DataError(f"longitude {lon} is outside [-360, 360]; degrees are expected")
    return time, lat, lon


def one_fix(agent: str, time: float, lat: float, lon: float, context: Mapping[str, Any]) -> Trajectories:
    """The beginning of a trip, for thresholds and context that depend on it."""
    return Trajectories._trusted(
        {"time": np.array([time]), "lat": np.array([lat]), "lon": np.array([lon])},
        np.array([0, 1]),
        np.array([agent]),
        np.array([moment(time)]),
        {name: np.array([value]) for name, value in context.items()},
    )
