"""Which column of a table may play which part, by what stands in it, where no name tells."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from astray.core.errors import DataError
from astray.core.fixes import candidates, numbers, plain
from astray.core.times import Clock
from astray.readers import columnar, delimited
from astray.readers.columns import recognised
from astray.readers.datetimes import is_time_of_day
from astray.readers.refusals import Intake

HINTS = {"lat": ("lat", "breite"), "lon": ("lon", "lng", "laenge", "länge")}
"""What stands in the names of columns of degrees, in some languages."""

ROWS = 1000
"""Rows that are looked at."""


def guess(file: Path, missing: Collection[str], delimiter: str | None = None) -> dict[str, str]:
    """For each of these parts a column that may play it; a suggestion to a person, never used unasked.

    Where times of day stand in one column and dates in another, both are named.
    """
    frame = _beginning(file, delimiter)
    taken = {i for positions in candidates(frame.columns).values() for i in positions}
    free = [frame[name] for i, name in enumerate(frame.columns) if i not in taken]
    found: dict[str, str] = {}
    for series in free:
        role = _role(series, [role for role in missing if role not in found])
        if role is not None:
            found[role] = series.name
    clock = next((series.name for series in free if is_time_of_day(series)), None)
    if clock is not None and "time" in found:
        found |= {"time": clock, "date": found["time"]}
    return found


def _beginning(file: Path, delimiter: str | None) -> pl.DataFrame:
    if columnar.columnar(file):
        names = columnar.column_names(file)
        return next(columnar.blocks(file, names, _all(names), n_rows=ROWS)).frame
    dialect = delimited.sniff(file, recognised, delimiter=delimiter)
    blocks = delimited.blocks(file, dialect, _all(dialect.names), Intake(True, None), block_bytes=1 << 18)
    return next(blocks).frame.head(ROWS)


def _all(names: Sequence[str]) -> dict[str, int]:
    return {name: i for i, name in enumerate(names)}


def _role(series: pl.Series, missing: Collection[str]) -> str | None:
    """The first missing part that the values fit: degrees have a fraction, latitudes come before longitudes."""
    try:
        degrees = numbers("", series)
    except DataError:
        degrees = np.full(len(series), np.nan)
    known = degrees[np.isfinite(degrees)]
    if 2 * len(known) > len(series):
        fractional = float(np.mean(known % 1 != 0)) > 0.9
        hinted = [role for role, words in HINTS.items() if any(word in plain(series.name) for word in words)]
        for role, most in (("lat", 90), ("lon", 180)):
            fits = fractional and np.mean(np.abs(known) <= most) > 0.9
            if fits and role in missing and (not hinted or role in hinted):
                return role
        return "time" if "time" in missing and (known > 1e8).all() else None
    if "time" not in missing:
        return None
    try:
        seconds, _ = Clock(date_order="dmy").seconds(series)
    except DataError:
        return None
    return "time" if 2 * np.isfinite(seconds).sum() > len(series) else None
