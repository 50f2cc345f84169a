"""Suggests columns for roles by their values if the names are unknown."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import polars as pl

from astray.core.dates import is_time_of_day
from astray.core.errors import DataError
from astray.core.fixes import candidates, numbers, plain
from astray.core.times import Clock
from astray.readers.read_report import Intake
from astray.readers.reader import InputFile

HINTS = {"lat": ("lat", "breite"), "lon": ("lon", "lng", "laenge", "länge")}
"""Parts of the names of columns of degrees, in some languages."""

ROWS = 1000
"""The number of rows that a suggestion is based on."""


def suggest_columns(file: Path, missing: Collection[str], delimiter: str | None = None) -> dict[str, str]:
    """Returns, for each missing role, a column whose values fit; astray only shows it to the user.

    If one column holds times of day and another one dates, the result names both.
    """
    table = InputFile(file).open(delimiter)
    wanted = {name: i for i, name in enumerate(table.names)}
    frame = next(table.blocks(wanted, Intake(True, None), None, ROWS)).frame
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


def _role(series: pl.Series, missing: Collection[str]) -> str | None:
    """Returns the first missing role that the values fit: degrees have a fraction, latitudes precede longitudes."""
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
