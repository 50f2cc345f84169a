"""Reads text files of any size and encoding as blocks of whole lines in UTF-8."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from pathlib import Path

from astray.core.errors import DataError, Option, Place
from astray.readers import compression
from astray.readers.read_report import Intake, Progress, raising_data_errors

BLOCK_BYTES = 2 << 20

_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def first_bytes(path: Path, n_bytes: int = 1 << 16) -> bytes:
    """Returns the beginning of a file; an empty or compressed file is an error."""
    with raising_data_errors(path, "the file could not be opened", "check it"), open(path, "rb") as file:
        head = file.read(n_bytes)
    if not head:
        place = Place(str(path))
        raise DataError("the file is empty (0 bytes)", place=place, remedy="write it again or leave it out")
    if compression.magic_of(head) is not None:
        remedy = "unpack it first, or give it to astray.read"
        raise DataError("the file is compressed", place=Place(str(path)), remedy=remedy)
    return head


def marked_encoding(head: bytes) -> str | None:
    """Returns the encoding given by a byte-order mark at the beginning, or None if there is no mark."""
    return next((name for mark, name in _BYTE_ORDER_MARKS.items() if head.startswith(mark)), None)


def decoded(path: Path, head: bytes, encoding: str | None) -> str:
    """Returns the beginning of a file as text; ignores an incomplete character at its end."""
    chosen = encoding or marked_encoding(head) or "utf-8"
    try:
        return _decoder(path, chosen).decode(head)
    except UnicodeDecodeError:
        return head.decode("latin-1")


def _decoder(path: Path, encoding: str) -> codecs.IncrementalDecoder:
    try:
        return codecs.getincrementaldecoder(encoding)()
    except LookupError as error:
        remedy = "give one such as 'utf-8' or 'latin-1'"
        raise DataError(f"encoding={encoding!r} is unknown", place=Place(str(path)), remedy=remedy) from error


def ends_lines_with_returns(text: bytes) -> bool:
    """Returns True if lines end with carriage returns alone, as spreadsheets on a Mac may still write them."""
    return b"\r" in text[:-1] and b"\n" not in text


def blocks_of_lines(
    path: Path,
    intake: Intake,
    encoding: str | None = None,
    block_bytes: int = BLOCK_BYTES,
    progress: Progress | None = None,
) -> Iterator[bytes]:
    """Yields the file as UTF-8, in blocks that end at the end of a line and, if possible, outside quotation marks.

    Without a byte-order mark or a given encoding, the file is UTF-8, or latin-1 from the first byte that is not UTF-8.
    """
    with raising_data_errors(path, "the file could not be read", "check it"), open(path, "rb") as file:
        total = os.fstat(file.fileno()).st_size
        head = file.read(3)
        chosen = encoding or marked_encoding(head)
        file.seek(0)
        decoder = _decoder(path, chosen) if chosen not in (None, "utf-8", "utf8") else None
        text = _Utf8(path, intake)
        rest, done, returns = b"", 0, None
        while chunk := file.read(block_bytes):
            done += len(chunk)
            more = chunk if decoder is None else _recode(path, decoder, chunk, text.line)
            if returns is None:
                returns = ends_lines_with_returns(more)
            rest += more.replace(b"\r", b"\n") if returns else more
            cut = _end_of_block(rest, block_bytes)
            if cut:
                block, rest = rest[:cut], rest[cut:]
                yield text.check(block)
            if progress is not None:
                progress(min(done, total), max(done, total))
        if decoder is not None:
            rest += _recode(path, decoder, b"", text.line, final=True)
        if rest:
            yield text.check(rest if rest.endswith(b"\n") else rest + b"\n")


def numbered_lines(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[tuple[int, str]]:
    """Yields the lines of a text file with their numbers, the first of which is 1."""
    number = 0
    for block in blocks_of_lines(file, intake, progress=progress):
        for line in block.decode("utf-8").removeprefix("\ufeff").splitlines():
            number += 1
            yield number, line


def _recode(path: Path, decoder: codecs.IncrementalDecoder, chunk: bytes, line: int, *, final: bool = False) -> bytes:
    try:
        return decoder.decode(chunk, final).encode("utf-8")
    except UnicodeError as error:
        reason = getattr(error, "reason", "bytes that cannot be decoded")
        raise DataError(
            reason,
            place=Place(str(path), line, "after row"),
            remedy=("name the encoding with ", Option("encoding", "latin-1"), ", or write it in UTF-8"),
        ) from error


def _end_of_block(buffer: bytes, block_bytes: int) -> int:
    """Returns the end of the last line that leaves no quotation open; 0 if there is none yet."""
    end = buffer.rfind(b"\n") + 1
    quotes = buffer.count(b'"', 0, end)
    while end and quotes % 2:
        before = buffer.rfind(b"\n", 0, end - 1) + 1
        quotes -= buffer.count(b'"', before, end)
        end = before
    if not end and len(buffer) > 4 * block_bytes:
        # This is a stray quotation mark, not a long quotation: continue, and the parser will name the line.
        return buffer.rfind(b"\n") + 1
    return end


class _Utf8:
    """Decides between UTF-8 and latin-1 at the first byte that is not ASCII, and rejects a mixture."""

    def __init__(self, path: Path, intake: Intake) -> None:
        self.path, self.intake = path, intake
        self.encoding: str | None = None
        self.line = 1

    def check(self, block: bytes) -> bytes:
        if b"\0" in block:
            line = self.line + block.count(b"\n", 0, block.index(b"\0"))
            remedy = "give a CSV, Parquet, GPX or GeoJSON file"
            raise DataError("not text (a zero byte)", place=Place(str(self.path), line), remedy=remedy)
        line, self.line = self.line, self.line + block.count(b"\n")
        if block.isascii():
            return block
        if self.encoding != "latin-1":
            try:
                block.decode("utf-8")
            except UnicodeDecodeError as error:
                if self.encoding == "utf-8":
                    row = line + block.count(b"\n", 0, error.start)
                    raise DataError(
                        "the file begins in UTF-8 and continues in another encoding",
                        place=Place(str(self.path), row),
                        remedy=("write it again in UTF-8, or name the encoding: ", Option("encoding", "latin-1")),
                    ) from error
                self.encoding = "latin-1"
                other = ("name another encoding if that is wrong: ", Option("encoding", "cp1252"))
                self.intake.report.assume(self.path, "not UTF-8, read as latin-1", other)
            else:
                self.encoding = "utf-8"
                return block
        return block.decode("latin-1").encode("utf-8")
