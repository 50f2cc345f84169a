"""Projections: degrees to metres around a centre, and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Place = tuple[float, float]
"""East and north, in metres."""

EARTH_RADIUS = 6_371_008.8  # metres, the mean radius
METRES_A_DEGREE = float(np.radians(1) * EARTH_RADIUS)  # of latitude


def middle_longitude(lon: Array) -> float:
    """Returns the mean of longitudes on the circle.

    >>> round(middle_longitude(np.array([179.0, -177.0])), 6)
    -179.0
    """
    return float(np.degrees(np.angle(np.exp(1j * np.radians(lon)).mean())))


@dataclass(frozen=True)
class Projection:
    """A local equirectangular projection: true to scale near its centre, a continuous map across the antimeridian.

    >>> here = Projection(lat=41.15, lon=-8.61)
    >>> here.to_metres(np.array([41.16]), np.array([-8.61])).round(1)
    array([[   0., 1112.]])
    >>> lat, lon = here.to_degrees(here.to_metres(np.array([41.2]), np.array([-8.5])))
    >>> float(lat[0].round(6)), float(lon[0].round(6))
    (41.2, -8.5)
    """

    lat: float
    lon: float

    @classmethod
    def centred_on(cls, lat: Array, lon: Array) -> Projection:
        """Centres a projection on the middle of some fixes; averages longitudes on the circle."""
        return cls(float(np.median(lat)), middle_longitude(lon))

    @cached_property
    def _east_metres_a_degree(self) -> float:
        # At a pole all longitudes would fall together, so the centre stays a tenth of a degree off it.
        return float(METRES_A_DEGREE * np.cos(np.radians(min(abs(self.lat), 89.9))))

    @property
    def solar_offset(self) -> float:
        """Returns the seconds by which solar time is ahead of UTC: an hour for every 15 degrees of longitude."""
        return 3600.0 * round(self.lon / 15.0)

    def to_metres(self, lat: Array, lon: Array) -> NDArray[np.float64]:
        """Returns metres east and north of the centre: (n, 2), stored column by column."""
        east = _wrapped(np.asarray(lon, np.float64) - self.lon)
        north = np.asarray(lat, np.float64) - self.lat
        return np.stack([east * self._east_metres_a_degree, north * METRES_A_DEGREE]).T

    def place(self, lat: float, lon: float) -> Place:
        """Returns one fix in metres, equal to the last bit to what :meth:`to_metres` returns.

        >>> here = Projection(lat=41.15, lon=-8.61)
        >>> here.place(41.2, -8.5) == tuple(here.to_metres(np.array([41.2]), np.array([-8.5]))[0].tolist())
        True
        """
        east = (lon - self.lon + 180.0) % 360.0 - 180.0
        return east * self._east_metres_a_degree, (lat - self.lat) * METRES_A_DEGREE

    def to_grid(self, xy: Array) -> NDArray[np.float64]:
        """Returns points (..., 2) on the grid of the earth, (2, ...): metres east along the equator, and north of it.

        The result does not depend on the projection's centre; see :func:`astray.features.grid.cells`.
        """
        return _on_grid(xy, self.lat, self.lon, self._east_metres_a_degree)

    def grid_place(self, x: float, y: float) -> Place:
        """Returns one place on the grid of the earth, equal to the last bit to what :meth:`to_grid` returns."""
        lon = (self.lon + x / self._east_metres_a_degree + 180.0) % 360.0 - 180.0
        return lon * METRES_A_DEGREE, (self.lat + y / METRES_A_DEGREE) * METRES_A_DEGREE

    def to_degrees(self, xy: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns latitude and longitude of points in metres."""
        lon, lat = _degrees(xy, self.lat, self.lon, self._east_metres_a_degree)
        return lat, lon


class Projections(NamedTuple):
    """The projections of many points, one for each point.

    >>> porto, turin = Projection(41.15, -8.61), Projection(45.07, 7.69)
    >>> xy = np.array([[10.0, 20.0], [30.0, 40.0]])
    >>> together = Projections.of([porto, turin]).to_grid(xy)
    >>> all((together[:, i] == one.to_grid(xy)[:, i]).all() for i, one in enumerate([porto, turin]))
    True
    """

    lat: Array
    lon: Array
    east_metres_a_degree: Array

    @classmethod
    def of(cls, projections: Iterable[Projection]) -> Projections:
        """Joins single projections into arrays."""
        known = [(one.lat, one.lon, one._east_metres_a_degree) for one in projections]
        return cls(*np.array(known).T)

    def to_grid(self, xy: Array) -> NDArray[np.float64]:
        """Returns each point on the grid of the earth, as :meth:`Projection.to_grid` does."""
        return _on_grid(xy, *self)


def _degrees(xy: Array, lat: Any, lon: Any, east: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns longitude and latitude of points in metres around a centre."""
    return _wrapped(lon + xy[..., 0] / east), lat + xy[..., 1] / METRES_A_DEGREE


def _wrapped(lon: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns longitudes from -180 to 180 degrees, 180 excluded."""
    east = lon + 180.0
    # A modulo would take as long as everything else together, and is hardly ever needed.
    if east.size and not (east.min() >= 0.0 and east.max() < 360.0):
        east %= 360.0
    return np.asarray(east - 180.0)


def _on_grid(xy: Array, lat: Any, lon: Any, east: Any) -> NDArray[np.float64]:
    return np.stack(_degrees(xy, lat, lon, east)) * METRES_A_DEGREE
