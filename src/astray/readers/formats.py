"""Lists the formats, and recognises the format of a file.

``formats.toml`` lists the formats in the order in which astray tries them. A reader's module is imported when it is
first needed.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from astray.core.errors import DataError, Place
from astray.readers import compression
from astray.readers.reader import InputFile, Reader, Sample
from astray.readers.text_files import first_bytes

_MODULES: Mapping[str, str] = tomllib.loads(Path(__file__).with_name("formats.toml").read_text("utf-8"))

FORMATS = tuple(_MODULES)
"""The names of the formats."""

DEFAULT = "table"
"""The format of a file that neither its content nor its name reveals."""

_EXPORT = "export it as CSV, GeoJSON or GeoParquet"
_UNREADABLE = (
    (8, b'{"__metadata__"', "a model, not trips", "give the file of trips"),
    (68, b"astr", "a model of a fleet, not trips", "give the file of trips"),
    (68, b"GPKG", "a GeoPackage, which astray cannot read", _EXPORT),
    (0, b"SQLite format 3", "a database, which astray cannot read", _EXPORT),
    (0, b"\x00\x00\x27\x0a", "a shapefile, which astray cannot read", _EXPORT),
    (0, b"\x89HDF", "an HDF5 or NetCDF file, which astray cannot read", _EXPORT),
    (0, b"\xd0\xcf\x11\xe0", "an old Excel workbook, which astray cannot read", "save the sheet as CSV"),
    (0, b"%PDF", "a PDF, which holds no trips", "give the file that it was made from"),
    (0, b"7z\xbc\xaf", "a 7z archive, which astray cannot unpack", "unpack it, and give the folder"),
    (0, b"Rar!", "a RAR archive, which astray cannot unpack", "unpack it, and give the folder"),
    (257, b"ustar", "a tar archive, which astray cannot unpack", "unpack it, and give the folder"),
)
"""Files that astray cannot read: the position of some bytes, these bytes, what the file is, and what to do."""


@cache
def reader_of(name: str) -> Reader:
    """Returns the reader of a format."""
    reader: Reader = importlib.import_module(f"astray.readers.{_MODULES[name]}").READER
    return reader


@cache
def readers() -> Mapping[str, Reader]:
    """Returns all readers by the names of their formats."""
    return {name: reader_of(name) for name in FORMATS}


@cache
def format_by_suffix() -> Mapping[str, str]:
    """Returns the format for each file suffix; astray reads files with these suffixes from folders and archives."""
    return {suffix: name for name, reader in readers().items() for suffix in reader.suffixes}


def group_by_format(files: Sequence[Path]) -> dict[str, list[InputFile]]:
    """Returns the files by format, the formats sorted by name."""
    found: dict[str, list[InputFile]] = {}
    for file in files:
        name, recognised = recognise_file(file, alone=len(files) == 1)
        found.setdefault(name, []).append(recognised)
    return dict(sorted(found.items()))


def recognise_file(file: Path, *, alone: bool) -> tuple[str, InputFile]:
    """Returns the format of a file, and the file as its reader takes it.

    If one of several files cannot be recognised, its suffix decides, and reading it raises the error.
    """
    try:
        return _recognise(file)
    except DataError:
        if alone:
            raise
        return format_by_suffix().get(file.suffix.lower(), DEFAULT), InputFile(file)


def claimed_by(path: Path) -> str | None:
    """Returns the format that reads this path as a whole, such as GeoLife's folder; None if there is none."""
    claims = ((name, reader.claims) for name, reader in readers().items())
    return next((name for name, claim in claims if claim is not None and claim(path)), None)


def _recognise(file: Path) -> tuple[str, InputFile]:
    claimed = claimed_by(file)
    if claimed is not None:
        return claimed, InputFile(file)
    is_compressed = compression.is_compressed(file)
    inner, head = compression.peek(file) if is_compressed else (file, first_bytes(file))
    for at, mark, reason, remedy in _UNREADABLE:
        if head[at:].startswith(mark):
            raise DataError(reason, place=Place(str(file)), remedy=remedy)
    sample = Sample(file, head, inner, is_compressed)
    for name, reader in readers().items():
        if not reader.is_table and reader.recognises(sample):
            return name, InputFile(file)
    suggested = format_by_suffix().get(inner.suffix.lower(), DEFAULT)
    if not reader_of(suggested).is_table and not sample.is_columnar:
        return suggested, InputFile(file)  # the content fits no format: this reader will say what is wrong
    tables = (name for name, reader in readers().items() if reader.is_table and reader.recognises(sample))
    return next(tables), InputFile(file, None if is_compressed else sample.table)
