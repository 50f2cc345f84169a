"""Converts times as files and messages write them to seconds since 1970 in UTC."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.dates import ORDERS, as_iso
from astray.core.errors import DataError, Option, Remedy
from astray.core.fixes import TEXTUAL, Fault, as_numbers, number, shown, without_null_words

UTC_OFFSET = "utc_offset"
"""The name of an optional column: the seconds by which the file's clock is ahead of UTC."""
UTC_NAMES = ("UTC", "GMT", "Etc/UTC", "Etc/GMT", "Zulu", "Z")
UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
SERIAL = "excel"
"""The unit of a spreadsheet's dates: days since 1899-12-30, without a zone."""
POLARS_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises; for some corrupt data that is a panic, which is not an ``Exception``."""

# A unit fits a number if the time then lies between 1973 and 2201; seconds may also count from a start other than 1970.
# Numbers between the bands are implausible: 20081023025304 is a date without punctuation, not milliseconds.
_LATEST = 7.3e9
_EARLIEST = 1e8
_BANDS = {unit: (0.0 if unit == "s" else _EARLIEST * per, _LATEST * per) for unit, per in UNITS.items()}

# The dates of a spreadsheet between 1970 and 2100, for fixes that follow each other within minutes.
_SERIALS = (25_569.0, 73_050.0)
_SERIAL_STEP = 0.02

NOT_UNDERSTOOD: tuple[str, Remedy] = (
    "time is missing or not understood",
    (
        "write ISO 8601 (2013-07-01T00:00:58Z) or seconds since 1970, or name the format of a table: ",
        Option("time_format", "%d.%m.%Y %H:%M"),
    ),
)
IMPLAUSIBLE: tuple[str, Remedy] = (
    "time is not a plausible number of s, ms, us or ns since 1970",
    (
        "name the unit, ",
        Option("time_unit", "ms"),
        ", or the format: 20081023025304 is ",
        Option("time_format", "%Y%m%d%H%M%S"),
    ),
)

BEYOND: tuple[str, Remedy] = ("time lies before the year 1739 or after 2201", "correct it")

# Most feeds send this form, which the standard library parses fastest.
_USUAL = re.compile(r"[0-9]{4}(-[0-9]{2}){2}[T ][0-9]{2}(:[0-9]{2}){2}([.][0-9]{1,6})?(Z|[+-][0-9]{2}:?[0-9]{2})?")

_ZONE = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?\s*(Z|z|UTC|GMT|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)$"
_BODIES = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y/%m/%d %H:%M:%S")
_RARE_BODIES = (
    *(body + "%.f" for body in _BODIES),
    *(body.removesuffix(":%S") for body in _BODIES),
    *("%Y-%m-%d", "%Y/%m/%d"),
)


def moments(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """Converts columns of seconds since 1970 to date-times in UTC, to the microsecond."""
    return frame.with_columns(as_moments(frame[name]).alias(name) for name in names)


def as_moments(seconds: Sequence[float | None] | NDArray[np.float64] | pl.Series) -> pl.Series:
    """Returns seconds since 1970 as a column of date-times in UTC, to the microsecond.

    >>> as_moments([1.5, None]).to_list()
    [datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=zoneinfo.ZoneInfo(key='UTC')), None]
    """
    column = pl.Series(seconds, dtype=pl.Float64)
    return (column * 1e6).round().cast(pl.Int64).cast(pl.Datetime("us", "UTC"))


class Clock:
    """Converts the time column of one file, block by block; the first block determines the form of the others.

    Parameters
    ----------
    unit
        ``"s"``, ``"ms"``, ``"us"``, ``"ns"``, or ``"excel"`` for a spreadsheet's serial dates; by default found
        by the magnitude of the numbers.
    zone
        The zone of times without one, for example ``"Europe/Lisbon"``; by default UTC.
    format
        A strftime format for text in another form.
    date_order
        ``"dmy"``, ``"mdy"`` or ``"ymd"`` for dates such as 1/2/2013, if no number above 12 shows the order.

    Examples
    --------
    >>> Clock().seconds(pl.Series(["1372636858000", "1372636873000"]))[0]
    array([1.37263686e+09, 1.37263687e+09])
    >>> Clock().seconds(pl.Series(["1970-01-01T01:00:00+01:00", "1970-01-01 00:00:01.5"]))[0]
    array([0. , 1.5])
    """

    def __init__(
        self,
        unit: str | None = None,
        zone: str | None = None,
        format: str | None = None,
        date_order: str | None = None,
    ) -> None:
        if unit is not None and unit not in (*UNITS, SERIAL):
            raise DataError(f"time_unit={unit!r} is unknown", remedy=f"give one of {', '.join((*UNITS, SERIAL))}")
        if date_order not in (None, *ORDERS):
            raise DataError(f"date_order={date_order!r} is unknown", remedy=f"give one of {', '.join(ORDERS)}")
        if unit is not None and format is not None:
            raise DataError("time_unit is for numbers and time_format for text", remedy="give one of them")
        self.unit, self.zone, self.format, self.date_order = unit, zone, format, date_order
        self.naive = False
        self.early = False
        self._told = unit is not None
        self._supposed_serials = False
        self._text: bool | None = True if format is not None else False if unit is not None else None

    def seconds(self, series: pl.Series) -> tuple[NDArray[np.float64], list[Fault]]:
        """Returns the seconds since 1970 of each row, NaN where there is a fault, and the faults."""
        try:
            seconds, faults = self._seconds(series)
            beyond = np.abs(seconds) > _LATEST
            return seconds, [*faults, Fault(beyond, *BEYOND, series)] if beyond.any() else faults
        except POLARS_ERRORS as error:
            given = (Option("time_format", self.format), Option("time_zone", self.zone))
            raise DataError(
                f"the times cannot be read this way ({str(error).strip().splitlines()[0]})",
                remedy=("correct ", *(option for option in given if option.value is not None)),
            ) from error

    def _seconds(self, series: pl.Series) -> tuple[NDArray[np.float64], list[Fault]]:
        if series.dtype == pl.Date:
            series = series.cast(pl.Datetime("us"))
        if isinstance(series.dtype, pl.Datetime):
            stamps = series if series.dtype.time_zone else self._placed(series)
            seconds = _epoch(stamps)
            return seconds, self._faults(seconds, series, series.is_not_null().to_numpy())
        if series.dtype.is_integer() and self.format is not None:
            series = series.cast(pl.String)
        if series.dtype.is_numeric():
            return self._numbers(series.cast(pl.Float64), series)
        if series.dtype not in TEXTUAL:
            remedy = "store date-times, numbers or ISO 8601 text"
            raise DataError(f"the time column holds {series.dtype}", remedy=remedy)
        text = without_null_words(series)
        if self._text is not True:
            numbers = as_numbers(text)
            if self._text is None and text.null_count() < len(text):
                self._text = 2 * (len(text) - numbers.null_count()) < len(text) - text.null_count()
            if not self._text:
                return self._numbers(numbers, series)
        seconds = self._text_seconds(text)
        understood = ~np.isnan(seconds)
        if self.zone is not None and not understood.all():
            open_ = np.flatnonzero(~understood)
            in_utc = Clock(format=self.format, date_order=self.date_order)
            understood[open_] = ~np.isnan(in_utc._text_seconds(text.gather(open_)))
        return seconds, self._faults(seconds, series, understood)

    def _faults(self, seconds: NDArray[np.float64], values: pl.Series, understood: NDArray[np.bool_]) -> list[Fault]:
        """Returns the faults of rows whose time is not understood or is not unique in the given zone."""
        unplaced = np.isnan(seconds) & understood
        return [
            Fault(~understood, *NOT_UNDERSTOOD, values),
            Fault(
                unplaced,
                f"this hour occurs twice or never in {self.zone}, because clocks change",
                "write ISO 8601 with an offset (2013-07-01T00:00:58+01:00)",
                values,
            ),
        ]

    # ---------------------------------------------------------------- numbers

    def _numbers(self, numbers: pl.Series, as_written: pl.Series) -> tuple[NDArray[np.float64], list[Fault]]:
        values = numbers.fill_null(np.nan).to_numpy().astype(np.float64)
        unknown = ~np.isfinite(values)
        if self.unit is None and _are_serials(values):
            self.unit, self._supposed_serials, self._text = SERIAL, True, False
        if self.unit == SERIAL:
            micros = pl.Series(np.round((values - _SERIALS[0]) * 86_400e3) * 1e3, nan_to_null=True)
            stamps = micros.cast(pl.Int64, strict=False).cast(pl.Datetime("us"))
            seconds = _epoch(self._placed(stamps))
            return seconds, self._faults(seconds, as_written, ~unknown)
        if self._told:
            unit = self.unit or "s"
            return np.where(unknown, np.nan, values) / UNITS[unit], [Fault(unknown, *NOT_UNDERSTOOD, as_written)]
        size = np.abs(values)
        bands = {unit: (size >= least) & (size <= most) for unit, (least, most) in _BANDS.items()}
        if self.unit is None and not unknown.all():
            counts = {u: int(band.sum()) for u, band in bands.items()}
            self.unit = max(counts, key=lambda u: counts[u])
            self._text = False
        unit = self.unit or "s"
        fits = bands[unit]
        elsewhere = np.logical_or.reduce(list(bands.values())) & ~fits
        implausible = ~unknown & ~fits & ~elsewhere
        seconds = np.where(fits, values, np.nan) / UNITS[unit]
        self.early |= bool((np.abs(seconds[fits]) < _EARLIEST).any())
        return seconds, [
            Fault(unknown, *NOT_UNDERSTOOD, as_written),
            Fault(
                elsewhere,
                f"times of different units are mixed: this one is not in {unit} as the others are",
                "convert the column to one unit",
                as_written,
            ),
            Fault(implausible, *IMPLAUSIBLE, as_written),
        ]

    # ---------------------------------------------------------------- text

    def _text_seconds(self, text: pl.Series) -> NDArray[np.float64]:
        if self.format is not None:
            stamps = text.str.to_datetime(self.format, strict=False, time_unit="us")
            dtype = stamps.dtype
            names_zone = isinstance(dtype, pl.Datetime) and dtype.time_zone is not None
            return _epoch(stamps if names_zone else self._placed(stamps))
        seconds = np.full(len(text), np.nan)
        left = np.flatnonzero(text.is_not_null().to_numpy())
        for body in _BODIES:
            seconds[left] = self._parsed(text, left, body)
            left = left[np.isnan(seconds[left])]
        if not len(left):
            return seconds
        zone = text.gather(left).str.extract(_ZONE, 1)
        zoned = zone.is_not_null().to_numpy()
        rest = left[~zoned]
        for body in _RARE_BODIES:
            seconds[rest] = self._parsed(text, rest, body)
            rest = rest[np.isnan(seconds[rest])]
        left, zone = left[zoned], zone.filter(zone.is_not_null())
        offsets = _offset_seconds(zone)
        bodies = text.gather(left).str.strip_suffix("UTC").str.strip_suffix("GMT")
        bodies = bodies.str.replace(r"\s*(Z|z|[+-][0-9]{2}(?::?[0-9]{2})?)?\s*$", "")
        for body in (*_BODIES, *_RARE_BODIES):
            open_ = np.flatnonzero(np.isnan(seconds[left]))
            if not len(open_):
                break
            stamps = bodies.gather(open_).str.to_datetime(body, strict=False, time_unit="us")
            seconds[left[open_]] = _epoch(stamps, offsets[open_])
        return self._in_other_forms(text, seconds)

    def _in_other_forms(self, text: pl.Series, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Fills in the dates that are not ISO 8601 but written as people write them."""
        left = np.flatnonzero(np.isnan(seconds) & text.is_not_null().to_numpy())
        if len(left):
            iso, self.date_order = as_iso(text.gather(left), self.date_order)
            known = np.flatnonzero(iso.is_not_null().to_numpy())
            if len(known):
                seconds[left[known]] = self._text_seconds(iso.gather(known))
        return seconds

    def _parsed(self, text: pl.Series, rows: NDArray[np.int64], format: str) -> NDArray[np.float64]:
        if not len(rows):
            return np.zeros(0)
        some = text if len(rows) == len(text) else text.gather(rows)
        stamps = some.str.to_datetime(format, strict=False, time_unit="us")
        if stamps.null_count() == len(stamps):
            return np.full(len(rows), np.nan)
        return _epoch(self._placed(stamps))

    def _placed(self, stamps: pl.Series) -> pl.Series:
        """Attaches the given zone, or else UTC, to date-times without one."""
        self.naive = True
        if self.zone is None:
            return stamps
        return stamps.dt.replace_time_zone(self.zone, ambiguous="null", non_existent="null")

    def offsets(self, series: pl.Series, seconds: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Returns the seconds by which the clocks that wrote these times were ahead of UTC; None if unknown.

        ``seconds`` are the times of the same rows. Offsets that are all 0 say nothing about the place, because many
        programs write UTC everywhere.

        >>> clock, text = Clock(), pl.Series(["2013-07-01T01:00:00+01:00", "2013-12-01T00:00:00+00:00"])
        >>> clock.offsets(text, clock.seconds(text)[0]).tolist()
        [3600.0, 0.0]
        """
        named = series.dtype.time_zone if isinstance(series.dtype, pl.Datetime) else None
        if named is not None:
            return None if named in UTC_NAMES else zone_offsets(named, seconds)
        found = None
        if series.dtype == pl.String and self._text and self.format is None and not series.str.ends_with("Z").all():
            zone = series.str.extract(_ZONE, 1)
            offsets = np.where(zone.is_null().to_numpy(), np.nan, _offset_seconds(zone.fill_null("")))
            found = offsets if np.isfinite(offsets).any() else None
        if self.zone is None or self.zone in UTC_NAMES or not self.naive:
            return found
        in_zone = zone_offsets(self.zone, seconds)
        return in_zone if found is None else np.where(np.isnan(found), in_zone, found)

    def told(self) -> str:
        """Returns a description of how the times are written."""
        if self.naive:
            kind = "a spreadsheet's dates" if self.unit == SERIAL else "date-times"
            return f"{kind} without a zone, read as {self.zone or 'UTC'}"
        return "date-times with a zone" if self.unit is None else f"numbers: {self.unit} since 1970"

    def remarks(self) -> Iterator[tuple[str, Remedy]]:
        """Yields each assumption about the times, with what to do if it is wrong."""
        if self.naive and self.zone is None:
            zone = Option("time_zone", "Europe/Lisbon")
            yield "times name no zone and were read as UTC", ("pass their zone if that is wrong, such as ", zone)
        if self._supposed_serials:
            unit = Option("time_unit", "s")
            yield "times look like a spreadsheet's serial dates and were read as such", ("name the unit if not: ", unit)
        if self.early:
            unit = Option("time_unit", "ms")
            yield "times lie before 1973 and were read as seconds since another start", ("name the unit if not: ", unit)


def seconds_of(value: object, zone: str | None = None) -> float:
    """Returns the seconds since 1970 of one time in a message; the one-row form of :meth:`Clock.seconds`.

    ``zone`` applies to a time without a zone; by default UTC.

    >>> seconds_of(1372636858000), seconds_of("1970-01-01T01:00:00+01:00"), seconds_of("1970-01-01")
    (1372636858.0, 0.0, 0.0)
    """
    if not isinstance(value, str):
        count = number(value)
        for unit, (least, most) in _BANDS.items():
            if least <= abs(count) <= most:
                return count / UNITS[unit]
        reason, remedy = IMPLAUSIBLE if math.isfinite(count) else NOT_UNDERSTOOD
        raise DataError(reason + shown(value), remedy=remedy)
    if _USUAL.fullmatch(value):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            pass  # the clock below knows more forms
        else:
            if (moment.tzinfo or zone is None) and 1739 <= moment.year <= 2200:
                return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    seconds, faults = Clock(zone=zone).seconds(pl.Series([value]))
    for fault in faults:
        if fault.rows[0]:
            raise DataError(fault.reason + fault.detail(0), remedy=fault.remedy)
    return float(seconds[0])


def moment(time: float, offset: float | None = None) -> str:
    """Returns a time as text: in UTC, or by clocks that are ``offset`` seconds ahead of UTC.

    >>> moment(1372636858.25), moment(0.0), moment(0.0, offset=3600.0)
    ('2013-07-01T00:00:58.250Z', '1970-01-01T00:00:00Z', '1970-01-01T01:00:00+01:00')
    """
    ahead = UTC if offset is None else timezone(timedelta(seconds=offset))
    try:
        text = datetime.fromtimestamp(round(time, 3), ahead).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # beyond the calendar, if seconds count from a start other than 1970
        return f"{time:.3f}"
    return text.replace(".000", "") if offset is not None else text.replace(".000", "").replace("+00:00", "Z")


def _are_serials(values: NDArray[np.float64]) -> bool:
    """Returns True if numbers look like a spreadsheet's dates: days since 1900 with fractions, in steps of minutes.

    >>> _are_serials(np.array([41456.0007, 41456.0014])), _are_serials(np.array([41456.0, 41471.0]))
    (True, False)
    """
    known = values[np.isfinite(values)]
    if len(known) < 2 or not ((known >= _SERIALS[0]) & (known <= _SERIALS[1])).all() or (known % 1 == 0).all():
        return False
    return bool(np.median(np.abs(np.diff(known))) < _SERIAL_STEP)


def zone_offsets(name: str, seconds: NDArray[Any]) -> NDArray[np.float64]:
    """Returns the seconds by which the clocks of a zone are ahead of UTC, from the zone database of polars.

    >>> zone_offsets("Asia/Tokyo", np.array([0.0, np.nan])).tolist()
    [32400.0, nan]
    """
    micros = pl.Series(np.rint(np.asarray(seconds, np.float64) * 1e6), nan_to_null=True).cast(pl.Int64)
    local = micros.cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(name)
    ahead = (local.dt.base_utc_offset() + local.dt.dst_offset()).dt.total_seconds()
    return ahead.cast(pl.Float64).fill_null(np.nan).to_numpy()


def _epoch(stamps: pl.Series, offsets: NDArray[np.float64] | float = 0.0) -> NDArray[np.float64]:
    micros = stamps.dt.epoch("us")
    return (micros.cast(pl.Float64).fill_null(np.nan).to_numpy() - 1e6 * offsets) / 1e6


def _offset_seconds(zone: pl.Series) -> NDArray[np.float64]:
    """Returns the offset in seconds of ``Z``, ``UTC``, ``+02``, ``+0200``, ``+02:00``."""
    digits = zone.str.replace_all(r"[^0-9]", "")
    hours = digits.str.slice(0, 2).cast(pl.Float64, strict=False).fill_null(0.0).to_numpy()
    minutes = digits.str.slice(2, 2).cast(pl.Float64, strict=False).fill_null(0.0).to_numpy()
    sign = np.where(zone.str.starts_with("-").to_numpy(), -1.0, 1.0)
    return np.asarray(sign * (hours * 3600 + minutes * 60), dtype=np.float64)
