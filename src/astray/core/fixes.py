"""Checks fixes: the names of their columns, their degrees, and the names of agents and trips.

Files (columns of many fixes) and the live feed (one fix at a time) share these rules, so that both accept the same
fixes with the same values, and reject the others for the same reasons. :mod:`astray.core.times` has those for times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import DataError, Option, Remedy
from astray.core.text import UNWRITABLE, printable

# Earlier names are preferred: x and y count as degrees only if no better name is there.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "time": (
        *("time", "t", "timestamp", "datetime", "date_time", "tst", "ts", "time_utc", "utc_time", "utc"),
        "date_time_utc",
        *("timestamp_utc", "gps_time", "recorded_at", "unix_time", "epoch", "event_time"),
        "base_date_time",  # AIS of MarineCadastre
        "fix_time",  # Traccar
        "tracked_at",  # trackintel
        "when",  # KML, and what is made of it
    ),
    "lat": ("lat", "latitude", "gps_lat", "gps_latitude", "position_lat", "location_lat", "y"),
    "lon": (
        *("lon", "lng", "long", "longitude", "gps_lon", "gps_lng", "gps_longitude"),
        *("position_lon", "position_long", "location_long", "location_lon", "x"),
    ),
    "agent": (
        *("agent", "agent_id", "user", "user_id", "uid", "person", "person_id", "driver", "driver_id"),
        *("vehicle", "vehicle_id", "taxi", "taxi_id", "vessel", "mmsi", "device", "device_id", "individual"),
        *("animal", "animal_id", "tracker", "tracker_id", "imei", "vin", "license_plate", "rider", "rider_id"),
        *("individual_local_identifier", "tag_local_identifier"),  # Movebank
    ),
    "trajectory": (
        *("trajectory", "trajectory_id", "traj", "traj_id", "trip", "trip_id", "track", "track_id"),
        *("journey", "journey_id", "ride", "ride_id"),
    ),
}
REQUIRED = ("time", "lat", "lon")

TEXTUAL = (pl.String, pl.Categorical, pl.Enum, pl.Null)
NULL_WORDS = ("", "na", "n/a", "nan", "null", "none", "nil", "-")

MAX_NAME = 200
"""The greatest length of the name of an agent or a trip."""

_USUAL_NUMBER = re.compile(r"-?[0-9]{1,15}([.][0-9]{1,15})?")  # float() reads it as polars does


class Fault(NamedTuple):
    """One kind of fault: a mask of the rows that cannot be used, the reason, and what to do."""

    rows: NDArray[np.bool_]
    reason: str
    remedy: Remedy
    values: pl.Series | NDArray[Any] | None = None

    def detail(self, i: int) -> str:
        """Returns the value of row ``i`` in brackets, for the message."""
        return "" if self.values is None else shown(self.values[i])


def shown(value: object) -> str:
    """Returns a value in brackets, shortened if it is long; empty text for None."""
    if value is None:
        return ""
    text = str(value)
    return f" ({printable(text if len(text) <= 40 else text[:37] + '...')})"


# -------------------------------------------------------------------- names of columns


def plain(name: str) -> str:
    """Normalises a column's name: lower case, no spaces, dashes, quotes, byte-order mark or comment mark.

    >>> plain("User-ID "), plain("timeStamp"), plain("GPS.Lat")
    ('user_id', 'timestamp', 'gps_lat')
    """
    return re.sub(r"[\s\-.:]+", "_", name.strip("\ufeff\"'# \t\r\n")).strip("_").casefold()


def candidates(names: Sequence[str]) -> dict[str, list[int]]:
    """Returns the columns for each role by their names, the preferred one first; userId counts as user_id.

    >>> candidates(["UID", "lng", "speed", "x"]), candidates(["fixTime"])
    ({'lon': [1, 3], 'agent': [0]}, {'time': [0]})
    """
    bare = [plain(name).replace("_", "") for name in names]
    found = {role: [i for alias in aliases for i, n in enumerate(bare) if n == alias] for role, aliases in _ROLES}
    return {role: positions for role, positions in found.items() if positions}


_ROLES = tuple((role, [alias.replace("_", "") for alias in aliases]) for role, aliases in ALIASES.items())


def parts(said: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the entries of one fix by role, and the other entries; the one-row form of :func:`candidates`.

    >>> parts({"uid": 17, "lng": 7.5, "speed": 3})
    ({'lon': 7.5, 'agent': 17}, {'speed': 3})
    """
    if "_type" in said:
        return _split_owntracks(said)
    found, others = _keys(tuple(said))
    if "date" in said and not any(role == "time" for role, _ in found):  # as in a table without a time column
        found, others = (*found, ("time", "date")), tuple(key for key in others if key != "date")
    return {role: said[key] for role, key in found}, {key: said[key] for key in others}


def _split_owntracks(said: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits an OwnTracks location: its ``t`` is not the time, and its topic (owntracks/ana/phone) names the agent."""
    topic = str(said.get("topic") or "").split("/")
    who = "/".join(topic[1:3]) if len(topic) >= 3 else said.get("tid")
    found = {"time": said.get("tst"), "lat": said.get("lat"), "lon": said.get("lon"), "agent": who or None}
    return found, {key: said[key] for key in said if key not in ("_type", "topic", "tid", "tst", "lat", "lon")}


def no_location(entry: Mapping[str, Any]) -> str:
    """Returns why a JSON object is not a location (OwnTracks also sends other messages); empty text if it is one."""
    kind = entry.get("_type", "location")
    return "" if kind == "location" else f"a message of OwnTracks that is not a location ({kind!s:.20})"


class RawFix(NamedTuple):
    """A fix as its sender wrote it, by role; nothing is checked."""

    agent: object
    trajectory: object
    time: object
    lat: object
    lon: object
    others: dict[str, Any]


def split_fix(entry: Mapping[str, Any]) -> RawFix:
    """Splits a fix that is given as a JSON object into its roles, for files and for the live feed.

    >>> split_fix({"uid": 17, "tst": 60, "lat": 45, "lng": 7, "speed": 3})
    RawFix(agent=17, trajectory=None, time=60, lat=45, lon=7, others={'speed': 3})
    """
    found, others = parts(entry)
    agent, trajectory, time, lat, lon = (found.get(role) for role in ("agent", "trajectory", *REQUIRED))
    return RawFix(agent, trajectory, time, lat, lon, others)


class Refused(NamedTuple):
    """A fix or message that cannot be used: the reason and, if known, its agent."""

    reason: str
    agent: str | None = None


@lru_cache(1024)  # the messages of a feed have the same few sets of keys
def _keys(names: tuple[str, ...]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    found = candidates(names)
    taken = {i for positions in found.values() for i in positions}
    first = tuple((role, names[positions[0]]) for role, positions in found.items())
    return first, tuple(name for i, name in enumerate(names) if i not in taken)


# -------------------------------------------------------------------- numbers


def numbers(name: str, series: pl.Series) -> NDArray[np.float64]:
    """Returns a column as numbers, NaN where a value is not a number."""
    if series.dtype in TEXTUAL:
        series = as_numbers(without_null_words(series))
    elif not series.dtype.is_numeric():
        raise DataError(f"column {name!r} holds {series.dtype}, not numbers", remedy="convert that column")
    return series.cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)


def number(value: object) -> float:
    """Returns one value as a number, NaN if it is not one; the one-row form of :func:`numbers`.

    >>> number(7), number("7,5"), number(None), number(True)
    (7.0, 7.5, nan, nan)
    """
    if type(value) is float:
        return value
    if isinstance(value, str):
        return float(value if _USUAL_NUMBER.fullmatch(value) else numbers("", pl.Series([value]))[0])
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def as_numbers(text: pl.Series) -> pl.Series:
    """Parses numbers with a decimal point or a decimal comma; null for other text.

    >>> as_numbers(pl.Series(["41.5", " -8,61", "1,234.5", "x"])).to_list()
    [41.5, -8.61, None, None]
    """
    found = text.cast(pl.Float64, strict=False)
    if found.null_count() > text.null_count():
        tidy = text.str.strip_chars().str.replace(",", ".", literal=True)
        found = tidy.cast(pl.Float64, strict=False)
    return found


def as_labels(series: pl.Series) -> pl.Series:
    """Returns labels as text, with null for NaN.

    >>> as_labels(pl.Series([7.5, float("nan")])).to_list()
    ['7.5', None]
    """
    return (series.fill_nan(None) if series.dtype.is_float() else series).cast(pl.String)


def without_null_words(series: pl.Series, words: Sequence[str] = NULL_WORDS) -> pl.Series:
    """Returns text without blanks at its ends, and with null in place of words that mean "no value"."""
    text = series.cast(pl.String).str.strip_chars()
    # Such words are short, so only short text is compared with them.
    suspects = text.str.len_bytes() <= 4
    if not suspects.any():
        return text
    nothing = suspects & text.str.to_lowercase().is_in(list(words))
    return text.set(nothing, None) if nothing.any() else text


# -------------------------------------------------------------------- places


class PlaceRule(NamedTuple):
    """A rule for places; ``broken(lat, lon)`` takes two numbers or arrays and returns True where a place breaks it."""

    broken: Callable[[Any, Any], Any]
    reason: str
    remedy: Remedy
    shows: str | None


_NUMBER = "give degrees as a number such as 45.0016"
_SWAPPED = "correct the fix (degrees are expected; are lat and lon swapped?)"
_DEGREES = "correct the fix (degrees are expected)"
_ZERO = ("drop the fix, or pass ", Option("zero_ok", True), " to a reader if the place is meant")
PLACE_RULES = (
    PlaceRule(lambda y, x: ~np.isfinite(y), "latitude is missing or not a finite number", _NUMBER, "lat"),
    PlaceRule(lambda y, x: ~np.isfinite(x), "longitude is missing or not a finite number", _NUMBER, "lon"),
    PlaceRule(lambda y, x: abs(y) > 90, "latitude outside [-90, 90]", _SWAPPED, "lat"),
    PlaceRule(lambda y, x: abs(x) > 360, "longitude outside [-360, 360]", _DEGREES, "lon"),
)
ZERO_RULE = PlaceRule(
    lambda y, x: (y == 0) & ((x == 0) | (abs(x) == 360)), "(0, 0) is what a receiver without a fix writes", _ZERO, None
)


def place_faults(
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    values: tuple[pl.Series, pl.Series] | None = None,
    *,
    zero_ok: bool = False,
) -> list[Fault]:
    """Returns the faults of places; ``values`` are the degrees as the file writes them, to quote in messages."""
    lats, lons = values or (lat, lon)
    of = {"lat": lats, "lon": lons, None: None}
    rules = PLACE_RULES if zero_ok else (*PLACE_RULES, ZERO_RULE)
    return [Fault(rule.broken(lat, lon), rule.reason, rule.remedy, of[rule.shows]) for rule in rules]


def place(lat: object, lon: object) -> tuple[float, float]:
    """Checks one place and returns its degrees; the one-row form of :func:`place_faults` and :func:`wrapped`.

    >>> place(41, "-8.6"), place(45.0, 358)
    ((41.0, -8.6), (45.0, -2.0))
    >>> place(95, 7)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    astray.core.errors.DataError: latitude outside [-90, 90] (95); correct the fix (...)
    """
    y, x = number(lat), number(lon)
    if not (-90 <= y <= 90 and -180 <= x <= 180 and (y or x)):
        for rule in (*PLACE_RULES, ZERO_RULE):
            if rule.broken(y, x):
                detail = "" if rule.shows is None else shown(lat if rule.shows == "lat" else lon)
                raise DataError(rule.reason + detail, remedy=rule.remedy)
        x = (x + 180) % 360 - 180
    return y, x


def wrapped(lon: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns longitudes brought into [-180, 180].

    >>> wrapped(np.array([-8.6, 180.0, 351.4, -190.0])).round(6).tolist()
    [-8.6, 180.0, -8.6, 170.0]
    """
    beyond = np.isfinite(lon) & (np.abs(lon) > 180)
    if not beyond.any():
        return lon
    lon = lon.copy()
    lon[beyond] = (lon[beyond] + 180) % 360 - 180
    return lon


def refuse_swapped(lat: NDArray[np.float64], lon: NDArray[np.float64]) -> None:
    """Raises an error if most latitudes are impossible but would be possible longitudes.

    astray does not swap them itself: a swap is visible only east of 90 E or west of 90 W, so it would correct some of a
    person's files and not others.
    """
    known = np.isfinite(lat) & np.isfinite(lon)
    beyond = known & (np.abs(lat) > 90)
    if 2 * beyond.sum() > known.sum() and (np.abs(lon[beyond]) <= 90).all() and (np.abs(lat[beyond]) <= 180).all():
        i = int(np.argmax(beyond))
        raise DataError(
            f"latitude and longitude are swapped ({beyond.sum():,} of {known.sum():,} latitudes lie "
            f"outside [-90, 90], the first is {lat[i]})",
            remedy=("exchange the two columns, or name them: ", Option("lat", "NAME"), ", ", Option("lon", "NAME")),
        )


# -------------------------------------------------------------------- names of agents and trips


def label_faults(role: str, labels: pl.Series) -> Iterator[Fault]:
    """Yields the faults in the names of agents or trips."""
    yield Fault(labels.is_null().to_numpy(), f"the {role} is missing", "fill it in")
    bad: dict[str, list[str]] = {}
    for text in labels.unique().drop_nulls().to_list():
        if reason := _unusable(role, text):
            bad.setdefault(reason, []).append(text)
    for reason, texts in bad.items():
        yield Fault(labels.is_in(texts).fill_null(False).to_numpy(), reason, "give a short plain name")


def label(role: str, value: object) -> str:
    """Checks one name of an agent or a trip and returns it as text; the one-row form of :func:`label_faults`.

    >>> label("agent", " ana "), label("agent", 17)
    ('ana', '17')
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise DataError(f"the {role} is neither text nor a number", remedy="give a short plain name")
    text = str(value).strip()
    if reason := _unusable(role, text) if text else f"the {role} is missing":
        raise DataError(reason, remedy="give a short plain name")
    return text


def optional_label(role: str, value: object) -> str:
    """Returns the name of an agent or trip, or empty text if there is none."""
    return "" if value is None or value == "" else label(role, value)


def _unusable(role: str, text: str) -> str:
    if len(text) > MAX_NAME:
        return f"the name of the {role} is longer than {MAX_NAME} letters"
    return f"the name of the {role} holds characters that cannot be shown" if UNWRITABLE.search(text) else ""
