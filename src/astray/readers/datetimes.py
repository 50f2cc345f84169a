"""A column of dates and a column of times of day, put together."""

from __future__ import annotations

import polars as pl

_TIME_OF_DAY = r"^\s*\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*([AaPp]\.?[Mm]\.?)?\s*(Z|UTC|GMT|[+-]\d{2}:?\d{2})?\s*$"


def is_time_of_day(times: pl.Series) -> bool:
    """Whether a column holds times without a date: 14:05:09, a share of a day, 140509.

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


def joined(dates: pl.Series, times: pl.Series) -> pl.Series:
    """Dates and times of day as one column.

    >>> joined(pl.Series(["1.7.2013", "20130702"]), pl.Series(["0:00:58", "235959"])).to_list()
    ['1.7.2013 0:00:58', '2013-07-02 23:59:59']
    >>> joined(pl.Series([41456]), pl.Series([0.25])).to_list()
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
