"""Exports trips, fixes, alerts and reviews as CSV, GeoJSON or Parquet, in parts."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from astray.core.times import moments
from astray.core.trajectories import Trajectories
from astray.core.writers import table_writer
from astray.service.scoring.event_rows import Alert
from astray.service.scoring.scorer import TRIP, trip_by_name
from astray.service.store import Connection, Store
from astray.service.web.queries import among

FORMATS = {
    "csv": "text/csv; charset=utf-8",
    "geojson": "application/geo+json",
    "parquet": "application/vnd.apache.parquet",
}
PART = 50_000  # rows held in memory at a time

_REAL, _TEXT, _WHOLE = pl.Float64, pl.String, pl.Int64
TABLES: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "trips": (
        dict.fromkeys(TRIP, _REAL)
        | dict.fromkeys(("agent", "trip", "decision", "aspect", "why", "state", "words"), _TEXT)
        | dict.fromkeys(("fixes", "faults", "late"), _WHOLE),
        ("started", "ended"),
        "started, agent, trip",
    ),
    "fixes": (
        {"agent": _TEXT, **dict.fromkeys(("time", "lat", "lon", "accuracy"), _REAL)},
        ("time",),
        "agent, time, lat, lon",
    ),
    "alerts": (
        dict.fromkeys(Alert._fields, _TEXT)
        | dict.fromkeys(("began", "opened", "closed", "at"), _REAL)
        | {"late": _WHOLE},
        ("opened", "closed", "began", "at"),
        "opened, id",
    ),
    "reviews": (
        dict.fromkeys(("item", "kind", "agent", "trips", "verdict", "by"), _TEXT)
        | dict.fromkeys(("score", "opened", "at", "teaches_at", "taught_at"), _REAL),
        ("opened", "at", "teaches_at", "taught_at"),
        "opened, item",
    ),
}
"""The tables for export: their columns with types, the columns that are times (``since`` and ``until`` apply to the
first of these), and the order of the rows."""


def export(
    store: Store, table: str, ending: str, only: Sequence[str] | None, since: float | None, until: float | None
) -> Iterator[bytes]:
    """Yields the pieces of a file with a table; it writes the file to a temporary folder first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{table}.{ending}"
        connection = store.reader()
        try:
            _write_rows(connection, path, table, only, since, until)
        finally:
            connection.close()
        with open(path, "rb") as file:
            while piece := file.read(1 << 18):
                yield piece


def _write_rows(
    connection: Connection,
    path: Path,
    table: str,
    only: Sequence[str] | None,
    since: float | None,
    until: float | None,
) -> None:
    """Writes a table to a file in the format of its ending; times are date-times in UTC."""
    columns, times, key = TABLES[table]
    where, values = among("agent", only)
    bounds = (-1e300 if since is None else since, 1e300 if until is None else until)
    asked = (
        f"SELECT {', '.join(columns)} FROM {table} WHERE {where} AND {times[0]} >= ? AND {times[0]} <= ? "
        f"ORDER BY {key} LIMIT ? OFFSET ?"
    )
    lines = path.suffix == ".geojson" and "lat" not in columns
    part = 500 if lines else PART
    with table_writer(path) as write:
        offset = 0
        while True:
            rows = connection.rows(asked, (*values, *bounds, part, offset))
            shown, found = rows, []
            if lines:  # a row whose trip is gone has no line
                trips = [_trip_of(connection, dict(zip(columns, row, strict=True))) for row in rows]
                shown = [row for row, trip in zip(rows, trips, strict=True) if trip is not None]
                found = [trip for trip in trips if trip is not None]
            if shown or not offset:
                frame = moments(pl.DataFrame(shown, columns, orient="row"), *times)
                write(frame, Trajectories.concat(found) if found else NOTHING)
            if len(rows) < part:
                return
            offset += part


NOTHING = Trajectories.from_fixes(time=[], lat=[], lon=[])


def _trip_of(connection: Connection, row: dict[str, Any]) -> Trajectories | None:
    """Returns the trip of a row: an alert's trip, or the first trip of a review."""
    return trip_by_name(connection, row["agent"], row["trip"] if "trip" in row else json.loads(row["trips"])[0])
