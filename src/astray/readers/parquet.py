"""Parquet, GeoParquet, Feather and other Arrow IPC files as tables.

The points of GeoParquet's primary geometry (geoparquet.org, versions 1.0 and 1.1) become the columns lat and lon.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import DataError, Place
from astray.readers.read_report import Intake, Progress, raising_data_errors
from astray.readers.table_blocks import Block, Table

PARQUET = (".parquet", ".pq", ".geoparquet")
ARROW = (".feather", ".arrow", ".ipc")
LAT, LON = "lat", "lon"

_DEGREES = {("EPSG", "4326"), ("OGC", "CRS84"), ("OGC", "CRS84H"), ("EPSG", "4979")}


def is_columnar(name: Path, head: bytes) -> bool:
    """Returns True if the first bytes or the suffix are those of Parquet or Arrow."""
    return head.startswith((b"PAR1", b"ARROW1", b"FEA1")) or name.suffix.lower() in (*PARQUET, *ARROW)


def open_parquet(path: Path, head: bytes) -> Table:
    """Opens a Parquet or Arrow file and reads only its schema; its first row is row 1."""
    if head.startswith(b"FEA1"):
        remedy = "write it again as version 2, or as Parquet"
        raise DataError("Feather of version 1", place=Place(str(path)), remedy=remedy)
    is_parquet = head.startswith(b"PAR1") or (not head.startswith(b"ARROW1") and path.suffix.lower() in PARQUET)

    def errors() -> AbstractContextManager[None]:
        remedy = "write it again; the end of the file may be missing"
        return raising_data_errors(path, f"not a whole {'Parquet' if is_parquet else 'Arrow'} file", remedy)

    with errors():
        scan = pl.scan_parquet(path, glob=False) if is_parquet else pl.scan_ipc(path, glob=False)
        stored = scan.collect_schema().names()
        geometry = _geometry(path, stored) if is_parquet else None
    names = stored if geometry is None else [*(n for n in stored if n != geometry.column), LAT, LON]

    def blocks(wanted: Mapping[str, int], intake: Intake, progress: Progress | None, max_rows: int) -> Iterator[Block]:
        columns = list(dict.fromkeys(names[i] for i in wanted.values()))
        needed = columns
        if geometry is not None:
            needed = [*(name for name in columns if name not in (LAT, LON)), geometry.column]
        with errors():
            lazy = scan.select(needed)
            total = int(lazy.select(pl.len()).collect().item())
            for start in range(0, total, max_rows):
                frame = lazy.slice(start, max_rows).collect()
                if geometry is not None:
                    frame = geometry.split(path, frame, start + 1).select(columns)
                yield Block(frame, np.arange(start + 1, start + 1 + frame.height)).select(names, wanted)
                if progress is not None:
                    progress(min(start + max_rows, total), total)

    return Table(names, blocks)


class _Geometry(NamedTuple):
    """The column that holds the points, and their encoding."""

    column: str
    encoding: str

    def split(self, file: Path, frame: pl.DataFrame, first_row: int) -> pl.DataFrame:
        """Returns the frame with the columns lat and lon in place of the points."""
        series = frame[self.column]
        if self.encoding == "point":
            lat, lon = (series.struct.field(name).to_numpy() for name in ("y", "x"))
        else:
            lat, lon = wkb_points(file, series, first_row)
        return frame.drop(self.column).with_columns(pl.Series(LAT, lat), pl.Series(LON, lon))


def _geometry(file: Path, names: Sequence[str]) -> _Geometry | None:
    """Returns the geometry in the GeoParquet metadata; None if there is none or the table has columns lat and lon."""
    metadata = pl.read_parquet_metadata(file).get("geo")
    if metadata is None:
        return None
    try:
        geo = json.loads(metadata)
        column = geo["primary_column"]
        described = geo["columns"][column]
        encoding = str(described["encoding"])
    except (ValueError, LookupError, TypeError) as error:
        remedy = "write it again with GeoPandas or GDAL"
        raise DataError("its GeoParquet metadata cannot be read", remedy=remedy) from error
    if {LAT, LON} <= set(names) or column not in names:
        return None
    _check_degrees(described)
    if encoding not in ("WKB", "point"):
        raise DataError(f"a geometry encoded as {encoding}", remedy="store points as WKB")
    return _Geometry(column, encoding)


def _check_degrees(described: dict[str, Any]) -> None:
    """Raises an error if the coordinates are not degrees; the default of GeoParquet is longitude and latitude."""
    crs = described.get("crs")
    if not isinstance(crs, dict):
        return
    name = crs.get("id") or {}
    if (str(name.get("authority")), str(name.get("code"))) in _DEGREES or crs.get("type") == "GeographicCRS":
        return
    reason = f"coordinates in {crs.get('name', 'another system')}, not in degrees"
    raise DataError(reason, remedy="convert them first: frame.to_crs(4326) in GeoPandas")


def wkb_points(file: Path, series: pl.Series, first_row: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns latitudes and longitudes of points in well-known binary (ISO 19125 and EWKB); NaN where null.

    >>> point = bytes.fromhex("0101000000" "0000000000001c40" "0000000000804640")
    >>> wkb_points(Path("a.parquet"), pl.Series([point, None]))
    (array([45., nan]), array([ 7., nan]))
    """
    lat, lon = np.full(len(series), np.nan), np.full(len(series), np.nan)
    for i, value in enumerate(series.cast(pl.Binary).to_list()):
        if value is None:
            continue
        order = "<" if value[:1] == b"\x01" else ">"
        kind = int(np.frombuffer(value[1:5], f"{order}u4")[0]) if len(value) >= 21 else 0
        begin = 9 if kind & 0x2000_0000 else 5  # EWKB puts the number of the reference system before the coordinates
        if (kind & 0x0FFF_FFFF) % 1000 != 1 or len(value) < begin + 16:
            reason, remedy = "a geometry that is not a point", "give one point a row (explode lines into vertices)"
            raise DataError(reason, place=Place(str(file), first_row + i), remedy=remedy)
        lon[i], lat[i] = np.frombuffer(value[begin : begin + 16], f"{order}f8")
    return lat, lon
