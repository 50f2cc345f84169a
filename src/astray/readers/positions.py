"""Positions of a JSON document, each with what it says of itself, to trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from astray.errors import DataError
from astray.fixes import numbers, place_faults, refuse_swapped, wrapped
from astray.readers.grouping import grouped
from astray.readers.refusals import Intake, refusing
from astray.times import Clock
from astray.trajectories import Trajectories


@dataclass(frozen=True)
class JsonOptions:
    """How positions in JSON are read.

    Parameters
    ----------
    agent
        Whose trajectories these are, where the file does not say; by default the name of the file's folder.
    time_unit, time_zone
        See :class:`astray.times.Clock`.
    zero_ok
        Whether a fix at exactly (0, 0) is meant.
    """

    agent: str | None = None
    time_unit: str | None = None
    time_zone: str | None = None
    zero_ok: bool = False

    def owner(self, file: Path) -> str:
        """Whose trajectories those of a file are that do not say it."""
        return self.agent if self.agent is not None else file.resolve().parent.name


@dataclass(frozen=True, slots=True)
class Position:
    """One position: degrees and time as they stand in the file, whose it is, and where it stands there."""

    row: int
    agent: str
    trajectory: str
    time: object
    lat: object
    lon: object


def trajectories_of(
    file: Path, positions: Sequence[Position], options: JsonOptions, intake: Intake, *, unit: str
) -> Trajectories:
    """Trajectories of the positions that can be used; the others are refused or left out."""
    clock = Clock(options.time_unit, options.time_zone)
    with refusing(file, "the positions could not be read", "check them"):
        lat = numbers("lat", _series([p.lat for p in positions]))
        lon = numbers("lon", _series([p.lon for p in positions]))
        refuse_swapped(lat, lon)
        time, faults = clock.seconds(_series([p.time for p in positions]))
    rows = np.array([p.row for p in positions], dtype=np.int64)
    good = intake.sift(file, rows, [*place_faults(lat, lon, zero_ok=options.zero_ok), *faults], unit=unit)
    for remark in clock.remarks():
        intake.report.assume(file, *remark)
    if not good.any():
        raise intake.nothing(file, "position")
    labels = {"agent": [p.agent for p in positions], "trajectory": [p.trajectory for p in positions]}
    return grouped(pl.DataFrame({**labels, "time": time, "lat": lat, "lon": wrapped(lon)}).filter(good))


def _series(values: Sequence[object]) -> pl.Series:
    """Values of JSON as numbers if all are, else as text."""
    if all(type(value) in (int, float) or value is None for value in values):
        try:
            return pl.Series([None if value is None else float(value) for value in values], dtype=pl.Float64)  # type: ignore[arg-type]
        except OverflowError as error:
            raise DataError(f"a number too large to be a time or a place ({error})", remedy="correct it") from error
    return pl.Series([None if value is None else str(value) for value in values], dtype=pl.String)
