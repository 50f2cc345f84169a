"""Packed files: gzip, and zip archives, around any format.

They are unpacked into a temporary folder, within bounds: a small file that unpacks to terabytes is refused. A zip
archive counts as a folder of its name, a gzip file as the file in it.
"""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from astray.errors import DataError, Place

MAX_BYTES = 8 << 30
"""What one packed file may unpack to."""

MAX_RATIO = 200
"""How many times larger than packed; tables of fixes are about ten times larger, a bomb a thousand times."""

FREE_BYTES = 64 << 20
"""Whatever unpacks to less is unpacked at any ratio."""

MAX_FILES = 100_000

SUFFIXES = (".gz", ".zip", ".kmz")

_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_CHUNK = 1 << 20


def is_packed(path: Path) -> bool:
    """Whether the file begins as gzip or zip does."""
    try:
        with open(path, "rb") as file:
            return file.read(4).startswith((_GZIP, _ZIP))
    except OSError:
        return False  # whoever reads it says what is wrong


def peek(path: Path, n_bytes: int = 1 << 16) -> tuple[Path, bytes]:
    """The name and the first bytes of what is packed; of an archive, of the first file in it."""
    with _refusing(path):
        if not _is_zip(path):
            with gzip.open(path, "rb") as stream:
                return _inner_name(path), stream.read(n_bytes)
        with zipfile.ZipFile(path) as archive:
            first = min(_members(path, archive), key=lambda member: member.filename)
            with archive.open(first) as stream:
                return Path(first.filename), stream.read(n_bytes)


def size_of(path: Path) -> int:
    """About how many bytes it unpacks to, as the file itself says; what it really is shows when it is unpacked."""
    with _refusing(path):
        if _is_zip(path):
            with zipfile.ZipFile(path) as archive:
                return sum(member.file_size for member in _members(path, archive))
        with open(path, "rb") as file:
            file.seek(-4, io.SEEK_END)
            return max(int.from_bytes(file.read(4), "little"), path.stat().st_size)


def unpack(path: Path, target: Path) -> dict[Path, str]:
    """Unpack into a folder; gives what was written there (a file, or the folder of an archive) and how it is shown."""
    with _refusing(path):
        if not _is_zip(path):
            # The name of the folder may say whose tracks these are.
            file = target / (path.resolve().parent.name or "root") / _inner_name(path).name
            file.parent.mkdir(parents=True)
            with gzip.open(path, "rb") as stream:
                _copied(path, stream, file, 0)
            return {file: str(path)}
        root = target / path.stem
        root.mkdir(parents=True)
        done = 0
        with zipfile.ZipFile(path) as archive:
            for member in _members(path, archive):
                file = root / member.filename
                file.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as stream:
                    done = _copied(path, stream, file, done)
        return {root: str(path)}


def _is_zip(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == _ZIP


def _inner_name(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def _members(path: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The files of an archive that may be unpacked; what systems put beside them is passed over."""
    found = []
    for member in archive.infolist():
        parts = PurePosixPath(member.filename).parts
        if member.is_dir() or any(part == "__MACOSX" or (part[0] == "." and part != "..") for part in parts):
            continue
        if ".." in parts or member.filename.startswith(("/", "\\")) or "\\" in member.filename or ":" in parts[0]:
            raise DataError(f"a name in it leads out of the archive ({member.filename[:80]})", remedy="do not trust it")
        if member.flag_bits & 1:
            raise DataError("the archive is encrypted", remedy="unpack it with its password, and give the folder")
        if (member.external_attr >> 16) & 0o170000 == 0o120000:
            raise DataError(f"it holds a link ({member.filename[:80]})", remedy="do not trust it")
        found.append(member)
    if len(found) > MAX_FILES:
        raise DataError(f"{len(found):,} files in one archive", remedy="unpack it, and give the folder")
    if not found:
        raise DataError("the archive holds no file", remedy="look into it")
    return found


def _copied(path: Path, stream: IO[bytes] | gzip.GzipFile, file: Path, done: int) -> int:
    """Write what a stream holds to a file, within bounds; ``done`` bytes came out of the packed file before."""
    most = min(MAX_BYTES, max(FREE_BYTES, MAX_RATIO * path.stat().st_size))
    with open(file, "wb") as out:
        while chunk := stream.read(_CHUNK):
            done += len(chunk)
            if done > most:
                reason = (
                    f"it unpacks to more than {most >> 20:,} MB, {done // max(path.stat().st_size, 1):,} times its size"
                )
                raise DataError(reason, remedy="if you trust it, unpack it, and give what was in it")
            out.write(chunk)
    return done


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    place = Place(str(path))
    try:
        yield
    except DataError as error:
        error.place = error.place or place
        raise
    # zipfile raises NotImplementedError on an archive that is packed in a way which it cannot unpack.
    except (EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile, NotImplementedError) as error:
        what = str(error) or type(error).__name__
        raise DataError(f"it cannot be unpacked ({what})", place=place, remedy="pack or fetch it again") from error
    except OSError as error:
        raise DataError(f"{error.strerror or error}", place=place, remedy="check the file and the disk") from error
