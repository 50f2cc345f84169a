"""Which files are meant: one, a list, those that a pattern finds, those below a folder, those in a packed file."""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from astray.core.errors import DataError, Place, some_names
from astray.readers import packed
from astray.readers.geolife import is_geolife
from astray.readers.refusals import FilePath, Intake, Report, refusing
from astray.readers.takeout import BESIDE

Asked: TypeAlias = FilePath | Sequence[FilePath]
"""A file, a folder, a pattern such as ``tracks/*.gpx``, or several of them."""

SUFFIXES = {
    ".gpx": "gpx",
    ".kml": "kml",
    ".tcx": "tcx",
    ".fit": "fit",
    ".nmea": "nmea",
    ".nma": "nmea",
    ".geojson": "geojson",
    ".json": "geojson",
    ".jsonl": "jsonlines",
    ".ndjson": "jsonlines",
    ".geojsonl": "jsonlines",
    ".rec": "jsonlines",
    ".csv": "table",
    ".tsv": "table",
    ".txt": "table",
    ".parquet": "table",
    ".geoparquet": "table",
    ".pq": "table",
    ".feather": "table",
    ".arrow": "table",
    ".ipc": "table",
}
"""The files that are looked for in folders and archives, and what they are if their content does not say."""


@dataclass(frozen=True)
class Opened:
    """Files to read; those that were packed lie in a temporary folder, and ``shown`` are their real names."""

    files: list[Path]
    shown: dict[str, str] = field(default_factory=dict)

    def name(self, text: str) -> str:
        """A text with the real names in it."""
        for temporary, real in self.shown.items():
            text = text.replace(temporary, real)
        return text

    def rename(self, report: Report) -> None:
        """Put the real names into a report."""
        if self.shown:
            report.rename(self.name)


def shown(asked: Asked) -> str:
    """What is asked for, for a message.

    >>> shown("a.csv"), shown([Path("a.csv"), Path("b.csv")])
    ('a.csv', 'a.csv, b.csv')
    """
    return str(asked) if isinstance(asked, (str, PathLike)) else some_names([str(one) for one in asked])


def listed(asked: Asked) -> list[Path]:
    """The paths that are asked for, patterns replaced by what they find."""
    wanted = [asked] if isinstance(asked, (str, PathLike)) else list(asked)
    if not wanted:
        raise DataError("an empty list of files", remedy="name at least one")
    paths: list[Path] = []
    for one in map(str, wanted):
        if glob.has_magic(one) and not Path(one).exists():
            found = sorted(glob.glob(one, recursive=True))
            if not found:
                raise DataError("no file is found by this pattern", place=Place(one), remedy="check it")
            paths += map(Path, found)
        else:
            paths.append(Path(one))
    return list(dict.fromkeys(paths))


def files_of(path: Path) -> list[Path]:
    """The path itself, or the files below a folder whose names say that they may be read; GeoLife's folder stays."""
    with refusing(path, "the path could not be looked at", "check it"):
        if not path.exists():
            raise DataError("there is no such file or folder", remedy="check the path")
        if not path.is_file() and not path.is_dir():
            raise DataError("a pipe or a device, which cannot be read twice", remedy="write it to a file first")
        if not path.is_dir() or is_geolife(path):
            return [path]
        files = sorted(p for p in path.rglob("*") if _may_be_read(p) and p.is_file())
    if not files:
        known = ", ".join((*SUFFIXES, *packed.SUFFIXES))
        raise DataError(
            "nothing in this folder is recognised",
            place=Place(str(path)),
            remedy=f"give GeoLife's Data folder, or a folder of {known}",
        )
    return files


@contextmanager
def opened(asked: Asked, intake: Intake) -> Iterator[Opened]:
    """The files that are asked for, unpacked where they are packed, as long as the context lasts."""
    files = [file for path in listed(asked) for file in files_of(path)]
    if not any(packed.is_packed(file) for file in files):
        yield Opened(files)
        return
    with tempfile.TemporaryDirectory(prefix="astray-") as folder:
        given = Opened([])
        try:
            for i, file in enumerate(files):
                if not packed.is_packed(file):
                    given.files.append(file)
                    continue
                with intake.sparing_the_rest(file, of=len(files)):
                    for where, real in packed.unpack(file, Path(folder, str(i))).items():
                        given.shown[str(where)] = real
                        given.files.extend(_checked(where))
            if not given.files:
                raise intake.nothing(files[0], "file")
            yield given
        except DataError as error:
            if isinstance(error.place, Place):
                error.place = error.place._replace(file=given.name(error.place.file))
            error.reason = given.name(error.reason)
            raise


def _checked(path: Path) -> list[Path]:
    """What was unpacked, if it is not packed once more."""
    while path.is_dir() and not is_geolife(path) and [p.is_dir() for p in path.iterdir()] == [True]:
        path = next(path.iterdir())  # GeoLife's archive holds one folder in which all is
    files = files_of(path)
    for file in files:
        if packed.is_packed(file):
            raise DataError("packed inside a packed file", place=Place(str(file)), remedy="unpack the outer one")
    return files


def _may_be_read(path: Path) -> bool:
    suffix = path.suffix.lower()
    return (suffix in SUFFIXES or suffix in packed.SUFFIXES) and path.name not in BESIDE
