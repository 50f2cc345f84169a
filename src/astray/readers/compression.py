"""Compressed files of any format: zip archives, gzip, bzip2, xz and Zstandard.

astray unpacks them into a temporary folder and limits the size, because a small file may unpack to terabytes. It reads
a zip archive as a folder, and any other compressed file as the file in it.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from astray.core.errors import DataError
from astray.readers.read_report import raising_data_errors

MAX_BYTES = 8 << 30
"""The largest size that one compressed file may unpack to."""

MAX_RATIO = 200
"""The largest ratio of unpacked to compressed size: about ten for tables of fixes, a thousand for a zip bomb."""

_USUAL_RATIO = 5

FREE_BYTES = 64 << 20
"""Files that unpack to less than this may have any ratio."""

MAX_FILES = 100_000

_STREAM_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
SUFFIXES = (*_STREAM_SUFFIXES, ".zip", ".kmz")

_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_CHUNK = 1 << 20
_FEW = 2048  # bytes of Zstandard to unpack at once; they may unpack to some 64 MB


def is_compressed(path: Path) -> bool:
    """Returns True if the first bytes of the file are those of a compressed one."""
    try:
        return _magic(path) is not None
    except OSError:
        return False  # the reader opens it next and reports the error


class _Zstandard(io.RawIOBase):
    """Reads a Zstandard file frame by frame; the reader of zstandard does not notice a truncated file."""

    def __init__(self, path: Path) -> None:
        try:
            self._decompressor = importlib.import_module("zstandard").ZstdDecompressor()
        except ImportError as error:
            remedy = "pip install 'astray[zstd]', or unpack the file with zstd -d"
            raise DataError("compressed with Zstandard, and zstandard is not installed", remedy=remedy) from error
        self._file = open(path, "rb")  # noqa: SIM115  (closed with this)
        self._frame: Any = None
        self._packed, self._content = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, target: Any) -> int:
        while not self._content:
            self._packed = self._packed or self._file.read(_FEW)
            if not self._packed:
                if self._frame is not None:
                    raise EOFError("the end is missing")
                return 0
            self._frame = self._frame or self._decompressor.decompressobj()
            self._content = memoryview(self._frame.decompress(self._packed))
            self._packed = b""
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        n = min(len(target), len(self._content))
        target[:n], self._content = self._content[:n], self._content[n:]
        return n


_STREAMS: Mapping[bytes, Callable[[Path, str], Any]] = {
    _GZIP: gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
    b"\x28\xb5\x2f\xfd": lambda path, mode: io.BufferedReader(_Zstandard(path)),
}
"""How to open a compressed stream, by its first bytes."""


def magic_of(head: bytes) -> bytes | None:
    """Returns the first bytes that identify the compression; None if the file is not compressed."""
    return next((magic for magic in (*_STREAMS, _ZIP) if head.startswith(magic)), None)


def _magic(path: Path) -> bytes | None:
    with open(path, "rb") as file:
        return magic_of(file.read(8))


def _stream(path: Path) -> Any:
    """Opens the content of a compressed file that is not an archive."""
    return _STREAMS[_magic(path) or _GZIP](path, "rb")


def peek(path: Path, n_bytes: int = 1 << 16) -> tuple[Path, bytes]:
    """Returns the name and the first bytes of the content; for an archive, of its first file."""
    with _raising_data_errors(path):
        if not _is_zip(path):
            with _stream(path) as stream:
                return _inner_name(path), stream.read(n_bytes)
        with zipfile.ZipFile(path) as archive:
            first = min(_members(archive), key=lambda member: member.filename)
            with archive.open(first) as stream:
                return Path(first.filename), stream.read(n_bytes)


def size_of(path: Path) -> int:
    """Returns the approximate unpacked size, as stated in the file."""
    with _raising_data_errors(path):
        if _is_zip(path):
            with zipfile.ZipFile(path) as archive:
                return sum(member.file_size for member in _members(archive))
        if _magic(path) != _GZIP:
            return _USUAL_RATIO * path.stat().st_size
        with open(path, "rb") as file:
            file.seek(-4, io.SEEK_END)
            return max(int.from_bytes(file.read(4), "little"), path.stat().st_size)


def unpack(path: Path, target: Path) -> dict[Path, str]:
    """Unpacks a file into a folder; returns the path of the result (a file, or a folder) and its name for messages."""
    with _raising_data_errors(path):
        if not _is_zip(path):
            # Keep the name of the folder: it may name the agent.
            file = target / (path.resolve().parent.name or "root") / _inner_name(path).name
            file.parent.mkdir(parents=True)
            with _stream(path) as stream:
                _copied(path, stream, file, 0)
            return {file: str(path)}
        root = target / path.stem
        root.mkdir(parents=True)
        done = 0
        with zipfile.ZipFile(path) as archive:
            for member in _members(archive):
                file = root / member.filename
                file.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as stream:
                    done = _copied(path, stream, file, done)
        return {root: str(path)}


def _is_zip(path: Path) -> bool:
    return _magic(path) == _ZIP


def _inner_name(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() in _STREAM_SUFFIXES else path


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Returns the files of an archive, without hidden ones; an unsafe archive is an error."""
    found = []
    for member in archive.infolist():
        parts = PurePosixPath(member.filename).parts
        if member.is_dir() or any(part == "__MACOSX" or (part[0] == "." and part != "..") for part in parts):
            continue
        if ".." in parts or member.filename.startswith(("/", "\\")) or "\\" in member.filename or ":" in parts[0]:
            raise DataError(
                f"a file name in it points outside the archive ({member.filename[:80]})", remedy="do not trust it"
            )
        if member.flag_bits & 1:
            raise DataError("the archive is encrypted", remedy="unpack it with its password, and give the folder")
        if (member.external_attr >> 16) & 0o170000 == 0o120000:
            raise DataError(f"it holds a link ({member.filename[:80]})", remedy="do not trust it")
        found.append(member)
    names = {member.filename for member in found}
    if len({PurePosixPath(name) for name in names}) < len(found):
        raise DataError("two files in it have the same name", remedy="pack it again, each file under a different name")
    if "[Content_Types].xml" in names or {"mimetype", "content.xml"} <= names:
        raise DataError("a workbook or another document of an office program", remedy="save the sheet as CSV")
    if len(found) > MAX_FILES:
        raise DataError(f"{len(found):,} files in one archive", remedy="unpack it, and give the folder")
    if not found:
        raise DataError("the archive holds no file", remedy="check its contents")
    return found


def _copied(path: Path, stream: IO[bytes], file: Path, done: int) -> int:
    """Copies a stream to a file; returns the bytes unpacked so far, of which ``done`` were unpacked before."""
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


# zipfile raises NotImplementedError for a compression method that it does not know.
_BROKEN = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, ValueError)


@contextmanager
def _raising_data_errors(path: Path) -> Iterator[None]:
    """Turns the errors of the operating system and of the unpackers into a DataError that names the file."""
    with raising_data_errors(path, "it cannot be unpacked", "pack or fetch it again"):
        try:
            yield
        except DataError:
            raise
        except Exception as error:
            # gzip and bz2 raise an OSError without a number for a damaged file.
            is_broken = error.errno is None if isinstance(error, OSError) else isinstance(error, _BROKEN)
            if not is_broken and type(error).__name__ != "ZstdError":
                raise
            what = str(error) or type(error).__name__
            raise DataError(f"it cannot be unpacked ({what})", remedy="pack or fetch it again") from error
