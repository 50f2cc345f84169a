"""Which format a path holds: by the layout of the folder, the first bytes, the header, and last the name."""

from __future__ import annotations

from pathlib import Path

from astray.errors import DataError, Option, Place
from astray.readers import delimited
from astray.readers.columns import recognised
from astray.readers.geolife import is_geolife
from astray.readers.jsonlines import is_jsonlines
from astray.readers.porto import is_porto
from astray.readers.refusals import refusing
from astray.readers.table import is_parquet, parquet_schema
from astray.readers.text import decoded, opening

FORMATS = ("geolife", "porto", "table", "gpx", "geojson", "jsonlines")
SUFFIXES = {
    ".gpx": "gpx",
    ".geojson": "geojson",
    ".json": "geojson",
    ".jsonl": "jsonlines",
    ".ndjson": "jsonlines",
    ".csv": "table",
    ".tsv": "table",
    ".txt": "table",
    ".parquet": "table",
    ".pq": "table",
}


def recognise(path: Path) -> str:
    """The format of a file or folder, one of :data:`FORMATS`."""
    with refusing(path, "the path could not be looked at", "check it"):
        if not path.exists():
            raise DataError("there is no such file or folder", remedy="check the path")
        if is_geolife(path):
            return "geolife"
    return _of_folder(path) if path.is_dir() else _of_file(path)


def files_of(path: Path, format: str) -> list[Path]:
    """The files of one format under a path: the path itself, or all files below a folder, by name."""
    if not path.is_dir():
        return [path]
    with refusing(path, "the folder could not be listed", "check it"):
        wanted = "table" if format == "porto" else format
        files = sorted(p for p in path.rglob("*") if SUFFIXES.get(p.suffix.lower()) == wanted and p.is_file())
    if not files:
        remedy = f"give a file, or a folder of {', '.join(SUFFIXES)}"
        raise DataError(f"a folder without {format} files", place=Place(str(path)), remedy=remedy)
    return files


def _of_folder(path: Path) -> str:
    with refusing(path, "the folder could not be listed", "check it"):
        found = {SUFFIXES.get(p.suffix.lower()): p for p in sorted(path.rglob("*"), reverse=True) if p.is_file()}
    found.pop(None, None)
    if not found:
        raise DataError(
            "nothing in this folder is recognised",
            place=Place(str(path)),
            remedy=f"give GeoLife's Data folder, or a folder of {', '.join(SUFFIXES)}",
        )
    if len(found) > 1:
        kinds = " and ".join(sorted(str(kind) for kind in found))
        remedy = ("choose with ", Option("format", min(map(str, found))))
        raise DataError(f"the folder holds {kinds} files", place=Place(str(path)), remedy=remedy)
    kind, first = next(iter(found.items()))
    return _of_file(first) if kind == "table" else str(kind)


def _of_file(path: Path) -> str:
    head = opening(path)
    if is_parquet(path):
        return "porto" if is_porto(parquet_schema(path).names()) else "table"
    text = decoded(path, head, None).lstrip("\ufeff \t\r\n")
    if text.startswith("<"):
        return "gpx"
    if text.startswith("{"):
        return "jsonlines" if is_jsonlines(path, text) else "geojson"
    named = SUFFIXES.get(path.suffix.lower())
    if named in ("gpx", "geojson", "jsonlines"):
        return named
    names = delimited.sniff(path, lambda names: recognised(names) + 5 * is_porto(names)).names
    return "porto" if is_porto(names) else "table"
