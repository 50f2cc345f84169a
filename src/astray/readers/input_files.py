"""Finds the files for a path, a list of paths, a pattern or a folder, and unpacks compressed ones."""

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
from astray.readers import compression
from astray.readers.formats import claimed_by, format_by_suffix, readers
from astray.readers.read_report import FilePath, Intake, Report, raising_data_errors

PathOrPaths: TypeAlias = FilePath | Sequence[FilePath]
"""A file, a folder, a pattern such as ``tracks/*.gpx``, or several of them."""


@dataclass(frozen=True)
class OpenFiles:
    """Files to read; ``real_names`` maps the temporary folders of unpacked files to the names for messages."""

    files: list[Path]
    real_names: dict[str, str] = field(default_factory=dict)

    def with_real_names(self, text: str) -> str:
        """Returns a text with the real names in place of temporary ones."""
        for temporary, real in self.real_names.items():
            text = text.replace(temporary, real)
        return text

    def rename(self, report: Report) -> None:
        """Puts the real names into a report."""
        if self.real_names:
            report.rename(self.with_real_names)


def shown(asked: PathOrPaths) -> str:
    """Returns the paths for a message.

    >>> shown("a.csv"), shown([Path("a.csv"), Path("b.csv")])
    ('a.csv', 'a.csv, b.csv')
    """
    return str(asked) if isinstance(asked, (str, PathLike)) else some_names([str(one) for one in asked])


def expand_patterns(asked: PathOrPaths) -> list[Path]:
    """Returns the paths, with each pattern replaced by the paths that match it."""
    wanted = [asked] if isinstance(asked, (str, PathLike)) else list(asked)
    if not wanted:
        raise DataError("an empty list of files", remedy="name at least one")
    paths: list[Path] = []
    for one in map(str, wanted):
        if glob.has_magic(one) and not Path(one).exists():
            found = sorted(glob.glob(one, recursive=True))
            if not found:
                raise DataError("no file matches this pattern", place=Place(one), remedy="check it")
            paths += map(Path, found)
        else:
            paths.append(Path(one))
    return list(dict.fromkeys(paths))


def find_files(asked: PathOrPaths) -> list[Path]:
    """Returns the files for these paths; a folder gives all files in it that astray may be able to read."""
    return [file for path in expand_patterns(asked) for file in _files_at(path)]


def _files_at(path: Path) -> list[Path]:
    with raising_data_errors(path, "the path could not be read", "check it"):
        if not path.exists():
            raise DataError("there is no such file or folder", remedy="check the path")
        if not path.is_file() and not path.is_dir():
            raise DataError("a pipe or a device, which cannot be read twice", remedy="write it to a file first")
        if not path.is_dir() or claimed_by(path) is not None:
            return [path]
        suffixes = (*format_by_suffix(), *compression.SUFFIXES)
        ignored = {name for reader in readers().values() for name in reader.ignored_files}
        found = (p for p in path.rglob("*") if p.suffix.lower() in suffixes and p.name not in ignored)
        files = sorted(p for p in found if p.is_file())
    if not files:
        raise DataError(
            "nothing in this folder is recognised",
            place=Place(str(path)),
            remedy=f"give GeoLife's Data folder, or a folder of {', '.join(suffixes)}",
        )
    return files


@contextmanager
def open_files(asked: PathOrPaths, intake: Intake) -> Iterator[OpenFiles]:
    """Yields the files, unpacked where they are compressed; deletes the unpacked ones at the end."""
    files = find_files(asked)
    compressed = {file for file in files if compression.is_compressed(file)}
    if not compressed:
        yield OpenFiles(files)
        return
    with tempfile.TemporaryDirectory(prefix="astray-") as folder:
        given = OpenFiles([])
        try:
            for i, file in enumerate(files):
                if file not in compressed:
                    given.files.append(file)
                    continue
                with intake.skipping_bad_file(file, n_files=len(files)):
                    for unpacked, real in compression.unpack(file, Path(folder, str(i))).items():
                        given.real_names[str(unpacked)] = real
                        given.files.extend(_unpacked_files(unpacked))
            if not given.files:
                raise intake.nothing_usable(files[0], "file")
            yield given
        except DataError as error:
            if isinstance(error.place, Place):
                error.place = error.place._replace(file=given.with_real_names(error.place.file))
            error.reason = given.with_real_names(error.reason)
            raise


def _unpacked_files(path: Path) -> list[Path]:
    """Returns the unpacked files; a compressed one among them is an error."""
    while path.is_dir() and claimed_by(path) is None and [p.is_dir() for p in path.iterdir()] == [True]:
        path = next(path.iterdir())  # GeoLife's archive holds one folder with everything in it
    files = _files_at(path)
    for file in files:
        if compression.is_compressed(file):
            reason = "a compressed file inside a compressed file"
            raise DataError(reason, place=Place(str(file)), remedy="unpack the outer one")
    return files
