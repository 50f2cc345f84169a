"""Which format files hold: by the layout of the folder, the first bytes, the header, and last the name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from astray.errors import DataError, Option, Place
from astray.readers import delimited, packed
from astray.readers.columnar import column_names, is_columnar
from astray.readers.columns import recognised
from astray.readers.fit import is_fit
from astray.readers.geolife import is_geolife
from astray.readers.jsonlines import is_jsonlines
from astray.readers.nmea import is_nmea
from astray.readers.porto import is_porto
from astray.readers.sources import SUFFIXES, Asked, files_of, listed, shown
from astray.readers.takeout import is_takeout
from astray.readers.text import decoded, opening

_ROOT = re.compile(r"<(?:[\w.-]+:)?(gpx|kml|TrainingCenterDatabase)[\s>/]")


def recognise(path: Asked) -> str:
    """The format of a file, of a folder or of several files, one of :data:`astray.readers.FORMATS`."""
    return one_format([file for asked in listed(path) for file in files_of(asked)], shown(path))


def one_format(files: Sequence[Path], where: str) -> str:
    """The format that all files have; a mixture is refused."""
    found: dict[str, Path] = {}
    for file in files:
        found.setdefault(format_of(file, alone=len(files) == 1), file)
    if len(found) > 1:
        kinds = " and ".join(sorted(found))
        raise DataError(
            f"it holds {kinds} files", place=Place(where), remedy=("choose with ", Option("format", min(found)))
        )
    return next(iter(found))


def format_of(file: Path, *, alone: bool = True) -> str:
    """The format of one file; where it cannot be looked at and is not alone, its name decides, and reading says why."""
    try:
        return _of_file(file)
    except DataError:
        if alone:
            raise
        return SUFFIXES.get(file.suffix.lower(), "table")


def _of_file(file: Path) -> str:
    if is_geolife(file):
        return "geolife"
    is_packed = packed.is_packed(file)
    name, head = packed.peek(file) if is_packed else (file, opening(file))
    if head[8:].startswith(b'{"__metadata__"') or head.startswith(b"SQLite format 3"):  # of one agent, or of a fleet
        raise DataError("a model, not trips", place=Place(str(file)), remedy="give the file of trips")
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
