"""Converts dates as people write them (31/12/2013 2:05 PM, 12/31/2013, 31.12.2013, 31 Dec 2013) to ISO 8601.

astray never guesses which number is the day: a number above 12 or points between the numbers show it, or the user says.
"""

from __future__ import annotations

import calendar

import numpy as np
import polars as pl

from astray.core.errors import DataError, Option

ORDERS = ("dmy", "mdy", "ymd")

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = r"(?P<clock>\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)\s*(?P<half>[AaPp])?(?:\.?[Mm]\.?)?"
_TIME = rf"(?:[T,\s]\s*{_CLOCK}\s*(?P<zone>Z|UTC|GMT|[+-]\d{{2}}:?\d{{2}})?)?$"
_NUMBERS = r"^(?P<a>\d{1,2})(?P<mark>[./-])(?P<b>\d{1,2})[./-](?P<c>\d{4}|\d{2})" + _TIME
_NAMED = (
    r"^(?:(?P<a>\d{1,2})[\s.-]*)?(?P<b>[A-Za-z]{3})[a-z]*[\s.,-]*(?:(?P<a2>\d{1,2})(?:,\s*|\s+))?(?P<c>\d{4})" + _TIME
)

_TIME_OF_DAY = r"^\s*\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*([AaPp]\.?[Mm]\.?)?\s*(Z|UTC|GMT|[+-]\d{2}:?\d{2})?\s*$"


def as_iso(text: pl.Series, order: str | None) -> tuple[pl.Series, str | None]:
    """Returns such dates as ISO 8601, with null for any other text, and the order of day, month and year in them.

    >>> as_iso(pl.Series(["31/12/2013 2:05 PM", "1/2/2013 14:05:09"]), None)[0].to_list()
    ['2013-12-31 14:05:00', '2013-02-01 14:05:09']
    >>> as_iso(pl.Series(["Dec 31, 2013 23:00", "31-Dec-2013", "noon"]), None)[0].to_list()
    ['2013-12-31 23:00:00', '2013-12-31', None]
    >>> as_iso(pl.Series(["1/2/2013"]), None)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    astray.core.errors.DataError: 1/2/2013 can be in February or in January; say which: date_order='dmy' or ...
    """
    trimmed = text.str.strip_chars()
    numbers = trimmed.str.extract_groups(_NUMBERS).struct.unnest()
    if order is None and numbers["a"].is_not_null().any():
        order = _order(trimmed, numbers)
    day, month, year = (numbers["abc"[(order or "dmy").index(part)]] for part in "dmy")
    found = _iso(year, month, day, numbers)
    if found.null_count() == len(found) or found.null_count() > text.null_count():
        named = trimmed.str.extract_groups(_NAMED).struct.unnest()
        number = named["b"].str.to_lowercase().replace_strict(_MONTHS, [str(i + 1) for i in range(12)], default=None)
        found = found.fill_null(_iso(named["c"], number, named["a"].fill_null(named["a2"]), named))
    return found, order


def _order(text: pl.Series, numbers: pl.DataFrame) -> str:
    """Returns the order of day, month and year, found by the numbers that can only be days."""
    first, second = (numbers[name].cast(pl.Int64) for name in "ab")
    if (numbers["mark"] == ".").any() or (first > 12).any():
        return "dmy"
    if (second > 12).any():
        return "mdy"
    i = int(np.argmax(numbers["a"].is_not_null().to_numpy()))
    names = [calendar.month_name[number or 1] for number in (second[i], first[i])]
    either = f"in {names[0]} or in {names[1]}" if names[0] != names[1] else f"read in two ways in {names[0]}"
    raise DataError(
        f"{text[i]} can be {either}",
        remedy=("say which: ", Option("date_order", "dmy"), " or ", Option("date_order", "mdy")),
    )


def _iso(year: pl.Series, month: pl.Series, day: pl.Series, rest: pl.DataFrame) -> pl.Series:
    """Joins the parts of dates as ISO 8601; years of two digits are 1970 to 2069."""
    frame = pl.DataFrame(
        {"y": year, "m": month, "d": day, "clock": rest["clock"], "half": rest["half"], "zone": rest["zone"]}
    )
    short = pl.col("y").str.len_chars() == 2
    century = pl.when(pl.col("y").cast(pl.Int64, strict=False) < 70).then(pl.lit("20")).otherwise(pl.lit("19"))
    hour = pl.col("clock").str.split(":").list.get(0, null_on_oob=True).cast(pl.Int64, strict=False)
    hour = (
        pl.when(pl.col("half").is_null())
        .then(hour)
        .otherwise(hour % 12 + pl.when(pl.col("half").str.to_lowercase() == "p").then(12).otherwise(0))
    )
    rest_of_clock = pl.col("clock").str.replace(r"^\d{1,2}", "").str.replace(",", ".", literal=True)
    seconds = pl.when(rest_of_clock.str.count_matches(":") == 1).then(pl.lit(":00")).otherwise(pl.lit(""))
    date = pl.concat_str(
        pl.when(short).then(century).otherwise(pl.lit("")) + pl.col("y"),
        pl.col("m").str.zfill(2),
        pl.col("d").str.zfill(2),
        separator="-",
    )
    clock = pl.concat_str(
        pl.lit(" "), hour.cast(pl.String).str.zfill(2), rest_of_clock, seconds, pl.col("zone").fill_null("")
    )
    return frame.select(date + clock.fill_null("")).to_series()


def is_time_of_day(times: pl.Series) -> bool:
    """Returns True if a column holds times without a date: 14:05:09, a fraction of a day, 140509.

    >>> is_time_of_day(pl.Series(["14:05:09", "2:05 PM"])), is_time_of_day(pl.Series(["2013-07-01 14:05:09"]))
    (True, False)
    >>> is_time_of_day(pl.Series([0.5, 0.75])), is_time_of_day(pl.Series([1372636858]))
    (True, False)
    """
    if times.dtype == pl.Time:
        return True
    known = times.drop_nulls()
    if not len(known):
        return False
    if known.dtype.is_float():
        return bool(((known >= 0) & (known < 1)).all())
    if known.dtype.is_integer():
        return bool((known.is_between(0, 235_959)).all())
    if known.dtype != pl.String:
        return False
    return bool(known.str.contains(_TIME_OF_DAY).all() or known.str.contains(r"^\d{6}(\.\d+)?$").all())


def join_dates_and_times(dates: pl.Series, times: pl.Series) -> pl.Series:
    """Joins a column of dates and a column of times of day.

    >>> join_dates_and_times(pl.Series(["1.7.2013", "20130702"]), pl.Series(["0:00:58", "235959"])).to_list()
    ['1.7.2013 0:00:58', '2013-07-02 23:59:59']
    >>> join_dates_and_times(pl.Series([41456]), pl.Series([0.25])).to_list()
    [41456.25]
    """
    if dates.dtype.is_numeric() and times.dtype.is_float():
        return dates.cast(pl.Float64) + times
    day = dates.dt.date().cast(pl.String) if isinstance(dates.dtype, pl.Datetime) else dates.cast(pl.String)
    clock = times.cast(pl.String)
    if times.dtype.is_integer():
        clock = clock.str.zfill(6)
    day = day.str.strip_chars().str.replace(r"^(\d{4})(\d{2})(\d{2})$", "$1-$2-$3")
    day = day.str.replace(r"[T ]00:00(:00(\.0+)?)?$", "")  # a spreadsheet's midnight
    clock = clock.str.strip_chars().str.replace(r"^(\d{2})(\d{2})(\d{2})", "$1:$2:$3")
    return day + " " + clock
