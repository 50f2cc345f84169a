"""Columnar files (Parquet, GeoParquet, Feather and other Arrow IPC files): their columns, and blocks of rows.

Of GeoParquet (geoparquet.org, versions 1.0 and 1.1) the points of the primary geometry become the columns lat and lon.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import DataError, Place
from astray.readers import delimited
from astray.readers.line_blocks import opening
from astray.readers.refusals import Progress, refusing

ROWS = 262_144
"""How many rows are held at a time."""

PARQUET = (".parquet", ".pq", ".geoparquet")
ARROW = (".feather", ".arrow", ".ipc")
LAT, LON = "lat", "lon"

_DEGREES = {("EPSG", "4326"), ("OGC", "CRS84"), ("OGC", "CRS84H"), ("EPSG", "4979")}


def is_columnar(name: Path, head: bytes) -> bool:
    """Whether a file begins as these do, or says so by its name."""
    return head.startswith((b"PAR1", b"ARROW1", b"FEA1")) or name.suffix.lower() in (*PARQUET, *ARROW)


def columnar(file: Path) -> bool:
    """Whether a file is one of these."""
    return is_columnar(file, opening(file, 8))


def column_names(file: Path) -> list[str]:
    """The columns of a file; those of a geometry are lat and lon."""
    with _reading(file):
        names = _scan(file).collect_schema().names()
        geometry = _geometry(file, names)
    return names if geometry is None else [*(name for name in names if name != geometry.column), LAT, LON]


def blocks(
    file: Path,
    names: Sequence[str],
    wanted: Mapping[str, int],
    *,
    n_rows: int = ROWS,
    progress: Progress | None = None,
) -> Iterator[delimited.Block]:
    """Some rows of a file at a time; the first row is row 1.

    ``names`` are its :func:`column_names`, and ``wanted`` maps names in the result to positions among them.
    """
    columns = list(dict.fromkeys(names[i] for i in wanted.values()))
    with _reading(file):
        lazy = _scan(file)
        geometry = _geometry(file, lazy.collect_schema().names())
        stored = [name for name in columns if geometry is None or name not in (LAT, LON)]
        lazy = lazy.select(stored if geometry is None else [*stored, geometry.column])
        total = int(lazy.select(pl.len()).collect().item())
        for start in range(0, total, n_rows):
            frame = lazy.slice(start, n_rows).collect()
            if geometry is not None:
                frame = geometry.split(file, frame, start + 1).select(columns)
            block = delimited.Block(frame, np.arange(start + 1, start + 1 + frame.height))
            yield delimited.selected(block, names, wanted)
            if progress is not None:
                progress(min(start + n_rows, total), total)


def _reading(file: Path) -> Any:
    kind = "Parquet" if _is_parquet(file) else "Arrow"
    return refusing(file, f"not a whole {kind} file", "write it again; the end of the file may be missing")


def _is_parquet(file: Path) -> bool:
    head = opening(file, 8)
    if head.startswith(b"FEA1"):
        place, remedy = Place(str(file)), "write it again as version 2, or as Parquet"
        raise DataError("Feather of version 1", place=place, remedy=remedy)
    return head.startswith(b"PAR1") or (not head.startswith(b"ARROW1") and file.suffix.lower() in PARQUET)


def _scan(file: Path) -> pl.LazyFrame:
    return pl.scan_parquet(file, glob=False) if _is_parquet(file) else pl.scan_ipc(file, glob=False)


@dataclass(frozen=True)
class Geometry:
    """The column that holds the points, and how it is encoded."""

    column: str
    encoding: str

    def split(self, file: Path, frame: pl.DataFrame, first_row: int) -> pl.DataFrame:
        """The frame with lat and lon in place of its points."""
        series = frame[self.column]
        if self.encoding == "point":
            fields = series.struct
            lat, lon = fields.field("y").to_numpy(), fields.field("x").to_numpy()
        else:
            lat, lon = wkb_points(file, series, first_row)
        return frame.drop(self.column).with_columns(pl.Series(LAT, lat), pl.Series(LON, lon))


def _geometry(file: Path, names: Sequence[str]) -> Geometry | None:
    """The geometry that GeoParquet's metadata tell of, unless the table has degrees of its own."""
    if not _is_parquet(file):
        return None
    said = pl.read_parquet_metadata(file).get("geo")
    if said is None:
        return None
    try:
        geo = json.loads(said)
        column = geo["primary_column"]
        told = geo["columns"][column]
        encoding = str(told["encoding"])
    except (ValueError, LookupError, TypeError) as error:
        remedy = "write it again with GeoPandas or GDAL"
        raise DataError("its GeoParquet metadata cannot be read", remedy=remedy) from error
    if {LAT, LON} <= set(names) or column not in names:
        return None
    _check_degrees(told)
    if encoding not in ("WKB", "point"):
        raise DataError(f"a geometry encoded as {encoding}", remedy="store points as WKB")
    return Geometry(column, encoding)


def _check_degrees(told: dict[str, Any]) -> None:
    """Refuse coordinates that are no degrees; without a word on it they are longitude and latitude."""
    crs = told.get("crs")
    if not isinstance(crs, dict):
        return
    name = crs.get("id") or {}
    if (str(name.get("authority")), str(name.get("code"))) in _DEGREES or crs.get("type") == "GeographicCRS":
        return
    reason = f"coordinates in {crs.get('name', 'another system')}, not in degrees"
    raise DataError(reason, remedy="convert them first: frame.to_crs(4326) in GeoPandas")


def wkb_points(file: Path, series: pl.Series, first_row: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Latitudes and longitudes of points in well-known binary (ISO 19125 and its extension EWKB); NaN where null.

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
        begin = 9 if kind & 0x2000_0000 else 5  # with the number of a reference system
        if (kind & 0x0FFF_FFFF) % 1000 != 1 or len(value) < begin + 16:
            reason, remedy = "a geometry that is no point", "give one point a row (explode lines into their vertices)"
            raise DataError(reason, place=Place(str(file), first_row + i), remedy=remedy)
        lon[i], lat[i] = np.frombuffer(value[begin : begin + 16], f"{order}f8")
    return lat, lon
