"""Time zones, to show the local time of a trip. Inside astray, times are seconds since 1970 in UTC."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.projection import Projection
from astray.core.times import POLARS_ERRORS, UTC_OFFSET, moment, zone_offsets
from astray.core.trajectories import Trajectories

Array = NDArray[Any]
Floats = NDArray[np.float64]

BY_LONGITUDE, AS_IN_THE_FILE = "by longitude", "as in the file"
QUARTER = 900  # seconds: clocks change at quarters of an hour
_CALENDAR = 2.5e11  # the calendar of Python covers this many seconds before and after 1970
_FIXED = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?")


@dataclass(frozen=True)
class Zone:
    """A time zone: its name and, if the user did not give it, how astray found it.

    >>> Zone.of("Europe/Lisbon").iso(1372636858.0), Zone.of("UTC+5:30, as in the file").iso(0.0)
    ('2013-07-01T01:00:58+01:00', '1970-01-01T05:30:00+05:30')
    >>> str(by_longitude(116.4)), f"{by_longitude(116.4).clock(0.0):%H:%M}"
    ('UTC+8, by longitude', '08:00')
    """

    name: str  # of the IANA database, or a fixed offset: UTC+5:30
    how: str = ""

    @classmethod
    def of(cls, text: str) -> Zone:
        """Returns the zone with this name; an unknown name is an error."""
        name, _, how = text.partition(", ")
        fixed = _fixed_offset(name)
        if fixed is not None:
            return cls(_fixed_name(fixed), how)
        if not is_known(name):
            raise DataError(f"no time zone is named {name!r}", remedy="give one such as Europe/Lisbon")
        return cls(name, how)

    def __str__(self) -> str:
        return f"{self.name}, {self.how}" if self.how else self.name

    def offset(self, time: float) -> float:
        """Returns the seconds by which the zone is ahead of UTC at a time."""
        return _offset(self.name, math.floor(time / QUARTER)) if abs(time) < _CALENDAR else 0.0

    def offsets(self, times: Array) -> Floats:
        """Returns the offset at each of many times.

        >>> (Zone("Europe/Lisbon").offsets(np.array([1.7e9, 1.72e9])) / 3600).tolist()
        [0.0, 1.0]
        """
        fixed = _fixed_offset(self.name)
        return np.full(len(times), fixed) if fixed is not None else zone_offsets(self.name, times)

    def clock(self, time: float) -> datetime:
        """Returns the local date and time."""
        return datetime.fromtimestamp(float(time), timezone(timedelta(seconds=self.offset(time))))

    def iso(self, time: float) -> str:
        """Returns the local time as ISO 8601 with its offset."""
        return moment(time, self.offset(time))


UTC_ZONE = Zone("UTC")


def by_longitude(lon: float) -> Zone:
    """Returns the zone of a longitude by solar time: one hour for every 15 degrees."""
    return Zone(_fixed_name(3600.0 * round(lon / 15.0)), BY_LONGITUDE)


def by_place(lat: float, lon: float) -> Zone:
    """Returns the zone of a place: from ``timezonefinder`` (``astray[timezone]``) if installed, else by longitude."""
    finder = _finder()
    name = None if finder is None else finder.timezone_at(lat=lat, lng=(lon + 180.0) % 360.0 - 180.0)
    # At sea the zones follow the longitude.
    return by_longitude(lon) if name is None or name.startswith("Etc/") or not is_known(name) else Zone(name)


def home_of(trips: Trajectories) -> Zone:
    """Returns the zone of most trips: by their central place, or else by the offsets in their files."""
    middle = Projection.centred_on(trips.columns["lat"], trips.columns["lon"])
    found, own = by_place(middle.lat, middle.lon), _offsets_in_files(trips)
    known = own[np.isfinite(own)]
    if not found.how or not len(known):
        return found
    values, counts = np.unique(known, return_counts=True)
    return Zone(_fixed_name(float(values[counts.argmax()])), AS_IN_THE_FILE)


def zones_of(trips: Trajectories, given: Zone | None = None, homes: Mapping[str, Zone] | None = None) -> list[Zone]:
    """Returns the zone of each trip: the given one; else that of its file; else that of its agent, or of its place.

    If the file's offset equals that of the agent's zone, and that zone has a name, the result is the agent's zone.
    """
    if given is not None:
        return [given] * len(trips)
    known = dict(homes or {})
    starts, own = trips.offsets[:-1], _offsets_in_files(trips).tolist()
    time, lat, lon = (trips.columns[name][starts].tolist() for name in ("time", "lat", "lon"))
    zones = []
    for i, agent in enumerate(trips.agent_ids.tolist()):
        if agent not in known:
            known[agent] = by_place(lat[i], lon[i])
        home = known[agent]
        told = math.isnan(own[i]) or (not home.how and home.offset(time[i]) == own[i])
        zones.append(home if told else Zone(_fixed_name(own[i]), AS_IN_THE_FILE))
    return zones


def _offsets_in_files(trips: Trajectories) -> Floats:
    """Returns the offset that the file gave for each trip; NaN if it gave none."""
    if UTC_OFFSET not in trips.columns:
        return np.full(len(trips), np.nan)
    return np.asarray(trips.columns[UTC_OFFSET][trips.offsets[:-1]], np.float64)


def standard_offset(name: str, time: float) -> float:
    """Returns the offset of a zone without daylight saving time, in the year of ``time``.

    >>> standard_offset("Europe/Lisbon", 1.72e9), standard_offset("Australia/Sydney", 1.72e9) / 3600
    (0.0, 10.0)
    """
    zone, year = Zone.of(name), datetime.fromtimestamp(time, UTC).year
    return min(zone.offset(datetime(year, month, 1, tzinfo=UTC).timestamp()) for month in (1, 7))


@lru_cache(1024)
def is_known(name: str) -> bool:
    """Returns True if a name is in the zone database.

    >>> is_known("Asia/Tokyo"), is_known("Mars/Base"), is_known("")
    (True, False, False)
    """
    try:
        return bool(name) and zone_offsets(name, np.zeros(1)) is not None
    except POLARS_ERRORS:
        return False


def local_text(moments: pl.Series, zones: pl.Series) -> pl.Series:
    """Returns date-times in UTC as ISO 8601 with the offset of each row's zone.

    >>> moments = pl.Series([0, 0]).cast(pl.Datetime("us", "UTC"))
    >>> local_text(moments, pl.Series(["Asia/Tokyo", "UTC-3, by longitude"])).to_list()
    ['1970-01-01T09:00:00+09:00', '1969-12-31T21:00:00-03:00']
    """
    seconds = moments.dt.epoch("us").cast(pl.Float64).fill_null(np.nan).to_numpy() / 1e6
    offsets = np.zeros(len(seconds))
    for text in zones.unique().drop_nulls().to_list():
        here = (zones == text).fill_null(False).to_numpy() & np.isfinite(seconds)
        offsets[here] = Zone.of(text).offsets(seconds[here])
    known, which = np.unique(offsets, return_inverse=True)
    suffix = pl.Series([_iso_offset(offset) for offset in known.tolist()]).gather(which)
    local = moments.dt.replace_time_zone(None) + pl.Series(np.rint(offsets * 1e6)).cast(pl.Duration("us"))
    return local.dt.strftime("%Y-%m-%dT%H:%M:%S%.f") + suffix


def _iso_offset(offset: float) -> str:
    """Returns an offset as ISO 8601 writes it, to the minute."""
    hours, minutes = divmod(round(abs(offset) / 60), 60)
    return f"{'-' if offset < 0 else '+'}{hours:02}:{minutes:02}"


def _fixed_name(offset: float) -> str:
    """Returns the name of a fixed offset.

    >>> _fixed_name(19800.0), _fixed_name(-10800.0), _fixed_name(0.0)
    ('UTC+5:30', 'UTC-3', 'UTC+0')
    """
    hours, minutes = divmod(round(abs(offset) / 60), 60)
    return f"UTC{'-' if offset < 0 else '+'}{hours}" + (f":{minutes:02}" if minutes else "")


def _fixed_offset(name: str) -> float | None:
    fixed = _FIXED.fullmatch(name)
    if fixed is None:
        return None
    sign, hours, minutes = fixed.groups()
    return float(sign + "1") * (3600 * int(hours) + 60 * int(minutes or 0))


@lru_cache(maxsize=4096)
def _offset(name: str, quarter: int) -> float:
    return float(Zone(name).offsets(np.array([quarter * QUARTER], np.float64))[0])


@lru_cache(maxsize=1)
def _finder() -> Any:
    # If numba is installed, timezonefinder imports it (a second, 120 MB), although its compiled code is as fast.
    hidden = "numba" not in sys.modules
    if hidden:
        sys.modules["numba"] = None  # type: ignore[assignment]
    try:
        from timezonefinder import TimezoneFinder
    except ImportError:
        return None
    finally:
        if hidden:
            del sys.modules["numba"]
    return TimezoneFinder()
