"""From checked columns of fixes to trajectories: what a fix must be, and how fixes are grouped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.errors import DataError, Option, Place
from astray.readers.refusals import Fault
from astray.readers.times import TEXTUAL, as_numbers, without_null_words
from astray.trajectories import Trajectories

KEYS = ("agent", "trajectory")


def numbers(file: object, name: str, series: pl.Series) -> NDArray[np.float64]:
    """A column as numbers, NaN where there is none."""
    if series.dtype in TEXTUAL:
        series = as_numbers(without_null_words(series))
    elif not series.dtype.is_numeric():
        raise DataError(
            f"column {name!r} holds {series.dtype}, not numbers", place=Place(str(file)), remedy="convert that column"
        )
    return series.cast(pl.Float64).fill_null(np.nan).to_numpy().astype(np.float64)


def refuse_swapped(file: object, lat: NDArray[np.float64], lon: NDArray[np.float64]) -> None:
    """Refuse a file whose latitudes are mostly impossible and would be possible longitudes.

    Not corrected on the quiet: the range gives a swap away only east of 90 E or west of 90 W, so among
    several files of one person a correction by guess would turn some and leave others.
    """
    known = np.isfinite(lat) & np.isfinite(lon)
    beyond = known & (np.abs(lat) > 90)
    if 2 * beyond.sum() > known.sum() and (np.abs(lon[beyond]) <= 90).all() and (np.abs(lat[beyond]) <= 180).all():
        i = int(np.argmax(beyond))
        raise DataError(
            f"latitude and longitude are swapped ({beyond.sum():,} of {known.sum():,} latitudes lie "
            f"outside [-90, 90], the first is {lat[i]})",
            place=Place(str(file)),
            remedy=("exchange the two columns, or name them: ", Option("lat", "NAME"), ", ", Option("lon", "NAME")),
        )


def place_faults(
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    shown: tuple[pl.Series, pl.Series] | None = None,
    *,
    zero_ok: bool = False,
) -> list[Fault]:
    """What is wrong with places: not numbers, off the globe, or the (0, 0) of a receiver that had no fix.

    ``shown`` are the values as they stand in the file, for the message.
    """
    lats, lons = shown or (lat, lon)
    swapped = "correct the fix (are lat and lon swapped?)"
    faults = [
        Fault(~np.isfinite(lat), "latitude is missing or not a finite number", "correct the fix", lats),
        Fault(~np.isfinite(lon), "longitude is missing or not a finite number", "correct the fix", lons),
        Fault(np.abs(lat) > 90, "latitude outside [-90, 90]", swapped, lats),
        Fault(np.abs(lon) > 360, "longitude outside [-360, 360]", "correct the fix (degrees are expected)", lons),
    ]
    if not zero_ok:
        remedy = ("drop the fix, or pass ", Option("zero_ok", True), " if the place is meant")
        faults.append(Fault((lat == 0) & (lon == 0), "(0, 0) is what a receiver without a fix writes", remedy))
    return faults


def wrapped(lon: NDArray[np.float64]) -> NDArray[np.float64]:
    """Longitudes in [-180, 180], so that one place has one longitude.

    >>> wrapped(np.array([-8.6, 180.0, 351.4, -190.0])).round(6).tolist()
    [-8.6, 180.0, -8.6, 170.0]
    """
    beyond = np.isfinite(lon) & (np.abs(lon) > 180)
    if not beyond.any():
        return lon
    lon = lon.copy()
    lon[beyond] = (lon[beyond] + 180) % 360 - 180
    return lon


def time_ordered(time: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The order that sorts each trajectory by time (equal times keep theirs); None if all are sorted."""
    backwards = np.diff(time) < 0
    ends = offsets[1:-1]
    backwards[ends[(ends > 0) & (ends < len(time))] - 1] = False
    if not backwards.any():
        return None
    return np.lexsort((time, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))))


def run_starts(keys: pl.DataFrame) -> NDArray[np.int64]:
    """Where the key differs from the row before."""
    if not keys.height:
        return np.zeros(0, np.int64)
    change = np.zeros(keys.height, dtype=np.bool_)
    for series in keys:
        change |= (series != series.shift(1)).fill_null(True).to_numpy()
    change[0] = True
    return np.flatnonzero(change)


def grouped(fixes: pl.DataFrame, columns: Sequence[str] = (), context: Sequence[str] = ()) -> Trajectories:
    """Trajectories of checked fixes in any order; they keep the order in which they first appear.

    ``fixes`` has the columns agent, trajectory (text), time, lat, lon (numbers) and those named in
    ``columns`` (one value a fix) and ``context`` (the first of each trajectory is kept). Keys are compared
    run by run, not row by row, so a file that is grouped already costs little.
    """
    starts = run_starts(fixes.select(KEYS))
    lengths = np.diff(np.r_[starts, fixes.height])
    heads = fixes.select(KEYS)[starts].with_row_index("run")
    first = heads.group_by(KEYS, maintain_order=True).agg(pl.col("run").first().alias("first"))
    time = fixes["time"].to_numpy()
    if first.height == len(starts):
        order = time_ordered(time, np.r_[starts, fixes.height])
    else:
        runs = heads.join(first, on=KEYS, how="left", maintain_order="left")["first"].to_numpy()
        codes = np.repeat(runs, lengths)
        order = np.lexsort((time, codes))
        sorted_codes = codes[order]
        starts = np.flatnonzero(np.r_[True, sorted_codes[1:] != sorted_codes[:-1]])

    def column(name: str) -> NDArray[np.generic]:
        values = fixes[name].to_numpy()
        return values if order is None else values[order]

    trips = fixes[starts if order is None else order[starts]]
    return Trajectories(
        {name: column(name) for name in ("time", "lat", "lon", *columns)},
        np.r_[starts, fixes.height],
        trips["agent"].to_numpy(),
        trips["trajectory"].to_numpy(),
        {name: _context(trips[name]) for name in context},
    )


def _context(series: pl.Series) -> NDArray[np.generic]:
    """One value a trajectory; text that is missing is empty text."""
    if series.dtype.is_numeric() or series.dtype == pl.Boolean:
        return series.to_numpy()
    return series.cast(pl.String).fill_null("").to_numpy().astype(np.str_)
