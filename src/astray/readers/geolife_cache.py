"""The cache of GeoLife: one Parquet file with the trajectories and the report on reading them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from astray.core.atomic import replacing
from astray.core.errors import DataError, Place
from astray.core.grouping import FIX_COLUMNS
from astray.core.times import POLARS_ERRORS
from astray.core.trajectories import Trajectories
from astray.readers.read_report import Intake, Report

_KEY, _TRIPS, _REPORT = "astray.key", "astray.core.trips", "astray.report"


def read_cached(path: Path, key: str, intake: Intake, parse: Callable[[Intake], Trajectories]) -> Trajectories:
    """Returns the cached trajectories if the file was written for this key; otherwise parses them and caches them."""
    if path.is_dir():
        example = path / "geolife.parquet"
        raise DataError("the cache is a folder", place=Place(str(path)), remedy=f'name a file, for example "{example}"')
    trips = _load(path, key, intake)
    if trips is None:
        # The cache must not store what earlier calls wrote into the caller's report.
        fresh = Intake(intake.skip_bad, Report())
        trips = parse(fresh)
        _save(path, key, trips, fresh.report)
        intake.report.update(fresh.report.to_dict())
    return trips


def _load(path: Path, key: str, intake: Intake) -> Trajectories | None:
    """Returns the trajectories if the file is whole and was written for this key; else None."""
    try:
        metadata = pl.read_parquet_metadata(path)
        if metadata.get(_KEY) != key:
            return None
        report = json.loads(metadata[_REPORT])
        Report().update(report)  # another version may have written an incomplete one
        labels = json.loads(metadata[_TRIPS])
        frame = pl.read_parquet(path, glob=False)
        trips = Trajectories(
            {name: frame[name].to_numpy() for name in FIX_COLUMNS},
            np.r_[0, np.cumsum(labels["length"])],
            labels["agent"],
            labels["trajectory"],
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, *POLARS_ERRORS) as error:
        intake.report.note(f"{path}: the cache could not be used ({type(error).__name__}) and is written again")
        return None
    intake.report.update(report)
    return trips


def _save(path: Path, key: str, trips: Trajectories, report: Report) -> None:
    """Writes the trajectories whole or not at all: under a temporary name, then renamed.

    If that fails, the report says so, and the next call parses the files again.
    """
    labels = {
        "agent": trips.agent_ids.tolist(),
        "trajectory": trips.trajectory_ids.tolist(),
        "length": trips.lengths.tolist(),
    }
    metadata = {_KEY: key, _TRIPS: json.dumps(labels), _REPORT: json.dumps(report.to_dict())}
    frame = pl.DataFrame({name: trips.columns[name] for name in FIX_COLUMNS})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            frame.write_parquet(file, metadata=metadata)
    except (OSError, *POLARS_ERRORS) as error:
        report.assume(path, f"the cache was not written ({error}), so the next reading will parse again")
