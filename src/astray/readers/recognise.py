"""Which format files hold: by the layout of the folder, the first bytes, the header, and last the name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from astray.core.errors import DataError, Option, Place
from astray.core.fixes import candidates
from astray.readers import delimited, packed
from astray.readers.columnar import column_names, columnar, is_columnar
from astray.readers.columns import recognised
from astray.readers.garmin_fit import is_fit
from astray.readers.geolife import is_geolife
from astray.readers.jsonlines import is_jsonlines
from astray.readers.line_blocks import decoded, opening
from astray.readers.nmea import is_nmea
from astray.readers.porto import is_porto
from astray.readers.sources import SUFFIXES, Asked, files_of, listed, shown
from astray.readers.takeout import is_takeout

_EXPORT = "export it as CSV, GeoJSON or GeoParquet"
_OTHERS = (
    (8, b'{"__metadata__"', "a model, not trips", "give the file of trips"),
    (68, b"astr", "a model of a fleet, not trips", "give the file of trips"),
    (68, b"GPKG", "a GeoPackage, which is not read", _EXPORT),
    (0, b"SQLite format 3", "a database, which is not read", _EXPORT),
    (0, b"\x00\x00\x27\x0a", "a shapefile, which is not read", _EXPORT),
    (0, b"\x89HDF", "an HDF5 or NetCDF file, which is not read", _EXPORT),
    (0, b"\xd0\xcf\x11\xe0", "an old Excel workbook, which is not read", "save the sheet as CSV"),
    (0, b"%PDF", "a PDF, which holds no trips", "give the file that it was made of"),
    (0, b"7z\xbc\xaf", "a 7z archive, which is not unpacked", "unpack it, and give the folder"),
    (0, b"Rar!", "a RAR archive, which is not unpacked", "unpack it, and give the folder"),
    (257, b"ustar", "a tar archive, which is not unpacked", "unpack it, and give the folder"),
)
"""Files of other kinds: where a mark stands in them, the mark, what they are, and what to do."""

_ROOT = re.compile(r"<(?:[\w.-]+:)?(gpx|kml|TrainingCenterDatabase)[\s>/]")


def recognise(path: Asked) -> str:
    """The format of a file, of a folder or of several files, one of :data:`astray.readers.FORMATS`."""
    found = recognised_formats(path)
    if len(found) > 1:
        kinds = " and ".join(found)
        raise DataError(
            f"it holds {kinds} files", place=Place(shown(path)), remedy=("choose with ", Option("format", found[0]))
        )
    return found[0]


def recognised_formats(path: Asked) -> list[str]:
    """All formats that files have, by name."""
    return list(by_format([file for asked in listed(path) for file in files_of(asked)]))


def by_format(files: Sequence[Path]) -> dict[str, list[Path]]:
    """Files by their format; the formats are in the order of their names."""
    found: dict[str, list[Path]] = {}
    for file in files:
        found.setdefault(format_of(file, alone=len(files) == 1), []).append(file)
    return dict(sorted(found.items()))


def has_positions(file: Path) -> bool:
    """Whether a table has columns of latitude and longitude under names that are known."""
    if columnar(file):
        names: Sequence[str] = column_names(file)
    else:
        names = delimited.sniff(file, recognised).names
    return {"lat", "lon"} <= candidates(names).keys()


def format_of(file: Path, *, alone: bool = True) -> str:
    """The format of one file; where it cannot be looked at and is not alone, its name decides, and reading says why."""
    try:
        return _of_file(file)
    except DataError:
        if alone:
            raise
        return SUFFIXES.get(file.suffix.lower(), "table")


def _refuse_other(file: Path, head: bytes) -> None:
    """Refuse what begins as a file that holds no trips, or holds them in a form that is not read."""
    for at, mark, reason, remedy in _OTHERS:
        if head[at:].startswith(mark):
            raise DataError(reason, place=Place(str(file)), remedy=remedy)


def _of_file(file: Path) -> str:
    if is_geolife(file):
        return "geolife"
    is_packed = packed.is_packed(file)
    name, head = packed.peek(file) if is_packed else (file, opening(file))
    _refuse_other(file, head)
    if name.suffix.lower() == ".plt":
        return "geolife"
    if is_fit(head):
        return "fit"
    if is_columnar(name, head):
        return "porto" if not is_packed and is_porto(column_names(file)) else "table"
    text = decoded(file, head, None).lstrip("\ufeff \t\r\n")
    if text.startswith("<"):
        root = _ROOT.search(text)
        return "gpx" if root is None else {"gpx": "gpx", "kml": "kml"}.get(root[1], "tcx")
    if text.startswith(("{", "[")):
        return "takeout" if is_takeout(text) else "jsonlines" if is_jsonlines(name, text) else "geojson"
    if is_jsonlines(name, text):
        return "jsonlines"
    if is_nmea(text):
        return "nmea"
    named = SUFFIXES.get(name.suffix.lower(), "table")
    if named != "table":
        return named
    names = delimited.sniff(file, lambda names: recognised(names) + 5 * is_porto(names), head=head).names
    return "porto" if is_porto(names) else "table"
