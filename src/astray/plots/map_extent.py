"""Chooses the part of the map to show: the trip, with the habitual ways if the trip stays readable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.projection import EARTH_RADIUS, Projection
from astray.explain import Explanation, Way
from astray.plots.trip_text import usable_fixes

Array = NDArray[Any]
Floats = NDArray[np.float64]

MARGIN = 0.1  # around what is shown, as a share of the longer side
LEAST_MARGIN = 150.0  # metres
READABLE = 0.2  # the map shows habitual ways only if the trip still takes this share of the longer side
LOOKED_AT = 500  # distances are measured from at most this many places of the trip, to four times as many past ones

WINDS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")
ARROWS = "↑↗→↘↓↙←↖"


class Away(NamedTuple):
    """The distance and direction of habitual ways that the map does not show."""

    metres: float
    bearing: float  # degrees east of north

    def __str__(self) -> str:
        """Returns the distance and direction in words.

        >>> str(Away(2_003_400.0, 226.0)), str(Away(8_140.0, 359.0))
        ('↙ habitual ways 2,003 km to the south-west', '↑ habitual ways 8.1 km to the north')
        """
        wind = round(self.bearing / 45.0) % 8
        far = self.metres / 1000.0
        return f"{ARROWS[wind]} habitual ways {f'{far:,.0f}' if far >= 10 else f'{far:.1f}'} km to the {WINDS[wind]}"


class Frame(NamedTuple):
    """The part of the map to show, in metres east and north of the trip's centre, without margin."""

    centre: Projection
    low: Floats
    high: Floats
    away: Away | None  # the habitual ways, if none of them is in view


def frame(e: Explanation) -> Frame:
    """Returns the extent of the trip and its expected ways, and of the habitual ways unless the trip gets too small.

    Faulty fixes do not count: some lie on the other side of the world.
    """
    centre, usable = Projection.centred_on(e.lat, e.lon), usable_fixes(e)
    chosen = usable if usable.any() else np.ones_like(usable)
    ways = [centre.to_metres(e.lat[chosen], e.lon[chosen]), *(centre.to_metres(*way) for way in e.expected)]
    low, high = _box(ways)
    past = [centre.to_metres(*way) for way in e.habitual if len(way[0])]
    if not past:
        return Frame(centre, low, high, None)
    margin = max(MARGIN * float((high - low).max()), LEAST_MARGIN)
    if any(((way > low - margin) & (way < high + margin)).all(axis=1).any() for way in past):
        return Frame(centre, low, high, None)
    wide_low, wide_high = _box([*ways, *past])
    if max(float((high - low).max()), LEAST_MARGIN) >= READABLE * float((wide_high - wide_low).max()):
        return Frame(centre, wide_low, wide_high, None)
    return Frame(centre, low, high, _away((e.lat[chosen], e.lon[chosen]), e.habitual))


def _box(ways: Sequence[Array]) -> tuple[Floats, Floats]:
    places = np.concatenate(ways)
    return places.min(axis=0), places.max(axis=0)


def _away(trip: Way, past: Sequence[Way]) -> Away:
    """Measures from the trip to the nearest habitual way on the globe, as a flat map is wrong over long distances."""
    lat, lon = _thinned(trip, LOOKED_AT)
    all_lat, all_lon = (np.concatenate(part) for part in zip(*past, strict=True))
    to_lat, to_lon = _thinned((all_lat, all_lon), 4 * LOOKED_AT)
    # The haversine formula, of each place of the trip with each place of the past.
    northwards, eastwards = to_lat - lat[:, None], to_lon - lon[:, None]
    squared = np.sin(northwards / 2) ** 2 + np.cos(lat)[:, None] * np.cos(to_lat) * np.sin(eastwards / 2) ** 2
    i, j = np.unravel_index(int(squared.argmin()), squared.shape)
    metres = 2.0 * EARTH_RADIUS * float(np.arcsin(np.sqrt(min(float(squared[i, j]), 1.0))))
    apart = eastwards[i, j]
    east = np.sin(apart) * np.cos(to_lat[j])
    north = np.cos(lat[i]) * np.sin(to_lat[j]) - np.sin(lat[i]) * np.cos(to_lat[j]) * np.cos(apart)
    return Away(metres, float(np.degrees(np.arctan2(east, north)) % 360.0))


def _thinned(way: Way, most: int) -> Way:
    """Returns at most ``most`` places of a way, in radians."""
    lat, lon = np.radians(way)
    rows = np.unique(np.linspace(0, len(lat) - 1, min(len(lat), most)).astype(int))
    return lat[rows], lon[rows]
