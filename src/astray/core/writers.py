"""Writes tables as Parquet, CSV, JSON lines or GeoJSON, by the file's suffix; a file appears whole or not at all."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl

from astray.core import atomic
from astray.core.atomic import replacing
from astray.core.errors import AstrayError
from astray.core.text import in_a_cell
from astray.core.times import as_moments, moments
from astray.core.trajectories import Trajectories
from astray.core.zones import local_text

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".geojson": "geojson",
}
STREAMS = ("csv", "jsonl", "geojson")
"""The formats that astray can write to standard output."""

HELD_BYTES = 128 << 20
"""Once rows of a Parquet file take this much memory, they are written to disk as a separate part."""

Write = Callable[[pl.DataFrame, Trajectories | None], None]
"""Adds some rows: ``write(rows, trips)``. Only GeoJSON uses the trips: it draws them for rows without lat and lon."""


def format_of(path: Path) -> str:
    """Returns the format of a file by its suffix.

    >>> format_of(Path("scores.csv")), format_of(Path("scores.PARQUET"))
    ('csv', 'parquet')
    """
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        reason = f"tables are written as {', '.join(FORMATS)}"
        raise AstrayError(reason, place=path, remedy="give a name with one of these suffixes")
    return kind


def check_target(path: Path) -> None:
    """Raises an error before the work begins if the file cannot be written."""
    format_of(path)
    atomic.check_target(path)


@contextlib.contextmanager
def table_writer(path: Path | None, to: str = "csv") -> Iterator[Write]:
    """Yields a function that adds rows to a file; the file appears when the block ends without an error.

    Without a path the rows go to standard output, in the format ``to`` (one of :data:`STREAMS`).

    >>> folder = tempfile.TemporaryDirectory()
    >>> target = Path(folder.name, "scores.csv")
    >>> with table_writer(target) as write:
    ...     write(pl.DataFrame({"trip": ["a"], "score": [0.5]}), None)
    ...     write(pl.DataFrame({"trip": ["b"], "score": [-2.5]}), None)
    ...     target.exists()
    False
    >>> target.read_text().splitlines()
    ['trip,score', 'a,0.5', 'b,-2.5']
    >>> folder.cleanup()
    """
    if path is None:
        if to not in STREAMS:
            raise AstrayError(
                f"{to!r} cannot go to standard output", remedy=f"{', '.join(STREAMS)} can, or name a file"
            )
        with _OPENED[to](sys.stdout.buffer) as write:
            yield write
        sys.stdout.buffer.flush()
        return
    kind = format_of(path)
    check_target(path)
    try:
        with replacing(path) as file, _OPENED[kind](file) as write:
            yield write
    except OSError as error:
        raise AstrayError(
            f"it was not written ({error.strerror or error})",
            place=path,
            remedy="make room or choose another place; an older file of that name is untouched",
        ) from error


def write_table(frame: pl.DataFrame, path: Path, trips: Trajectories | None = None) -> None:
    """Writes one table to a file, whole or not at all."""
    with table_writer(path) as write:
        write(frame, trips)


def fixes_and_trips(trips: Trajectories, path: Path | None) -> pl.DataFrame:
    """Returns trajectories as a table to write: one row per fix, or for GeoJSON one row per trip.

    Reading the file gives the same trajectories.
    """
    if path is not None and format_of(path) == "geojson":
        return pl.DataFrame({"agent": trips.agent_ids, "trajectory": trips.trajectory_ids, **trips.context})
    return moments(trips.to_frame(), "time")


# -------------------------------------------------------------------- the formats


@contextlib.contextmanager
def _csv(file: BinaryIO) -> Iterator[Write]:
    begun = False

    def write(frame: pl.DataFrame, trips: Trajectories | None) -> None:
        nonlocal begun
        file.write(_in_cells(_textual(frame)).write_csv(include_header=not begun).encode())
        begun = True

    yield write


@contextlib.contextmanager
def _jsonl(file: BinaryIO) -> Iterator[Write]:
    def write(frame: pl.DataFrame, trips: Trajectories | None) -> None:
        file.write(_textual(frame).write_ndjson().encode())

    yield write


@contextlib.contextmanager
def _parquet(file: BinaryIO) -> Iterator[Write]:
    """Writes Parquet; rows that do not fit into memory wait in separate files, because a Parquet file cannot grow."""
    held: list[pl.DataFrame] = []
    parts: list[Path] = []
    size = 0
    beside = Path(file.name)
    with contextlib.ExitStack() as stack:

        def write(frame: pl.DataFrame, trips: Trajectories | None) -> None:
            nonlocal size
            held.append(frame)
            size += int(frame.estimated_size())
            if size > HELD_BYTES:
                spill()

        def spill() -> None:
            nonlocal size
            if not parts:
                folder = tempfile.TemporaryDirectory(prefix=f"{beside.name}.", dir=beside.parent)
                parts.append(Path(stack.enter_context(folder)) / "0.parquet")
            else:
                parts.append(parts[0].with_name(f"{len(parts)}.parquet"))
            pl.concat(held).write_parquet(parts[-1], compression="lz4")
            held.clear()
            size = 0

        yield write
        if not parts:
            (pl.concat(held) if held else pl.DataFrame()).write_parquet(file)
            return
        if held:
            spill()
        file.flush()
        pl.scan_parquet(parts, glob=False).sink_parquet(beside, maintain_order=True)


@contextlib.contextmanager
def _geojson(file: BinaryIO) -> Iterator[Write]:
    between = b"\n"
    file.write(b'{"type": "FeatureCollection", "features": [')

    def write(frame: pl.DataFrame, trips: Trajectories | None) -> None:
        nonlocal between
        for feature in _features(frame, trips):
            file.write(between + json.dumps(feature, allow_nan=False).encode())
            between = b",\n"

    yield write
    file.write(b"\n]}\n")


def _features(frame: pl.DataFrame, trips: Trajectories | None) -> Iterator[dict[str, Any]]:
    """Yields a point for each row with a place, or else a line for each trip."""
    if {"lat", "lon"} <= set(frame.columns):
        lat, lon = frame["lat"].round(7).to_list(), frame["lon"].round(7).to_list()
        for x, y, row in zip(lon, lat, _textual(frame.drop("lat", "lon")).iter_rows(named=True), strict=True):
            yield _feature("Point", [x, y], row)
        return
    if trips is None or not trips.holds("time", "lat", "lon"):
        raise AstrayError(
            "there are no places in this table, so it cannot be GeoJSON", remedy="write .parquet, .csv or .jsonl"
        )
    places = np.column_stack([trips.columns["lon"], trips.columns["lat"]]).round(7)
    clock = _textual(pl.DataFrame({"time": as_moments(trips.columns["time"])}))["time"].to_list()
    for i, row in enumerate(_textual(frame).iter_rows(named=True)):
        a, b = trips.offsets[i : i + 2].tolist()
        line = places[a:b].tolist()
        if b - a == 1:  # a line needs two points
            yield _feature("Point", line[0], row | {"time": clock[a]})
        else:
            yield _feature("LineString", line, row | {"coordTimes": clock[a:b]})


def _feature(kind: str, coordinates: list[Any], properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, "properties": properties}


def _in_cells(frame: pl.DataFrame) -> pl.DataFrame:
    """Escapes text that a spreadsheet would take for a formula, such as a name that begins with =."""
    texts = [column for column in frame if column.dtype == pl.String]
    risky = [column for column in texts if column.str.contains("^[=+@-]").any()]
    return frame.with_columns(column.map_elements(in_a_cell, return_dtype=pl.String) for column in risky)


def _textual(frame: pl.DataFrame) -> pl.DataFrame:
    """Converts date-times to ISO 8601 and NaN to null, which every reader of text understands.

    Times have the offset of the column ``zone`` if there is one; else they are in UTC.
    """
    frame = frame.with_columns(pl.col(pl.Float64, pl.Float32).fill_nan(None))
    if "zone" in frame.columns:
        moments = [column for column in frame if isinstance(column.dtype, pl.Datetime)]
        return frame.with_columns(local_text(column, frame["zone"]).alias(column.name) for column in moments)
    return frame.with_columns(pl.col(pl.Datetime).dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ"))


_OPENED: dict[str, Callable[[BinaryIO], AbstractContextManager[Write]]] = {
    "csv": _csv,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "geojson": _geojson,
}
