"""Delimited text (CSV and its cousins), as blocks of text columns with the row number of each record."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import DataError, Option, Place
from astray.core.fixes import REQUIRED, Fault
from astray.core.times import POLARS_ERRORS
from astray.readers.line_blocks import BLOCK_BYTES, blocks_of_lines, decoded, only_returns, opening
from astray.readers.refusals import Intake, Progress

DELIMITERS = (",", ";", "\t", "|", " ")

LOOKED_FOR = 20
"""Among so many lines the column names are looked for: reports have a title and notes above them."""

_SEPARATOR = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # what spreadsheet programs write above the column names


@dataclass(frozen=True)
class Dialect:
    """How a delimited file is written."""

    delimiter: str
    names: tuple[str, ...]
    header_lines: int
    encoding: str | None
    above: int = 0  # lines above the column names that are no part of the table


@dataclass(frozen=True)
class Block:
    """Some records of a file: the wanted columns as they stand there, and the row number of each record."""

    frame: pl.DataFrame
    rows: NDArray[np.int64]


def selected(block: Block, names: Sequence[str], wanted: Mapping[str, int]) -> Block:
    """The wanted columns, by their positions among ``names``, under the names that they are wanted by."""
    return Block(block.frame.select(pl.col(names[i]).alias(key) for key, i in wanted.items()), block.rows)


def sniff(
    path: Path,
    score: Callable[[Sequence[str]], int],
    *,
    head: bytes | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    names: Sequence[str] | None = None,
) -> Dialect:
    """Find the delimiter and the column names: the split of a line whose names score best.

    That is the first line, unless a line below it, and not itself, names time, latitude and longitude.
    ``head`` is the beginning of the file, if it is at hand; ``names`` are the columns of one without a header line.
    """
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii()):
        raise DataError(f"delimiter={delimiter!r} cannot be used", remedy='give one character such as "," or ";"')
    begun = decoded(path, opening(path) if head is None else head, encoding).lstrip("\ufeff")
    lines = begun.split("\r" if only_returns(begun.encode("utf-8", "replace")) else "\n")
    blank = next((i for i, line in enumerate(lines) if line.strip()), None)
    if blank is None:
        raise DataError(
            "the file has no text at its beginning", place=Place(str(path)), remedy="give a table with a header line"
        )
    above = 0
    if separator := _SEPARATOR.fullmatch(lines[blank]):
        delimiter, blank, above = delimiter or separator[1], blank + 1, 1
    choices = [delimiter] if delimiter else DELIMITERS
    first = lines[blank].rstrip("\r") if blank < len(lines) else ""
    splits = {choice: _fields(first, choice) for choice in choices}
    if names is not None:
        best = max(splits, key=lambda choice: (len(splits[choice]) == len(names), len(splits[choice])))
        return Dialect(best, tuple(names), blank, encoding, above)
    best = _best(splits, score)
    if score(splits[best]) < len(REQUIRED):
        for i in range(blank + 1, min(blank + LOOKED_FOR, len(lines))):
            below = {choice: _fields(lines[i].rstrip("\r"), choice) for choice in choices}
            found = _best(below, score)
            if score(below[found]) >= len(REQUIRED):
                return Dialect(found, tuple(name.strip() for name in below[found]), i + 1, encoding, above + i - blank)
        if score(splits[best]) == 0 and any(sum(map(_is_number, split)) >= 2 for split in splits.values()):
            raise DataError(
                f"the first line is data, not column names ({first[:60]})",
                place=Place(str(path), blank + 1),
                remedy=("add a header line, or give the names: ", Option("names", ["agent", "time", "lon", "lat"])),
            )
    return Dialect(best, tuple(name.strip() for name in splits[best]), blank + 1, encoding, above)


def _best(splits: Mapping[str, Sequence[str]], score: Callable[[Sequence[str]], int]) -> str:
    """The delimiter that gives the most names that are known, then the most names; a space only if it is better."""
    return max(splits, key=lambda choice: (score(splits[choice]), choice != " ", len(splits[choice])))


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter))
    except csv.Error:
        return line.split(delimiter)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def blocks(
    path: Path,
    dialect: Dialect,
    wanted: Mapping[str, int],
    intake: Intake,
    *,
    progress: Progress | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[Block]:
    """The records of a file, block by block; ``wanted`` maps names in the result to positions in the file.

    Rows with more fields than the header are refused or left out here; fields that are absent are null.
    """
    line, skip = 1, dialect.header_lines
    for text in blocks_of_lines(path, intake, encoding=dialect.encoding, block_bytes=block_bytes, progress=progress):
        start = 0
        while skip and start < len(text):
            start = text.index(b"\n", start) + 1
            skip, line = skip - 1, line + 1
        body = text[start:].removeprefix(b"\xef\xbb\xbf")
        if not body.strip():
            line += body.count(b"\n")
            continue
        block = _parse(path, body, dialect, wanted, line)
        line += body.count(b"\n")
        frame, rows = block.frame, block.rows
        blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series().to_numpy()
        if blank.any():
            intake.report.note(f"{path}: blank rows were passed over")
        ragged = Fault(
            frame["more"].is_not_null().to_numpy(),
            f"more fields than the {len(dialect.names)} columns",
            "quote fields that contain the delimiter, and mind decimal commas",
        )
        good = intake.sift(path, rows, [ragged]) & ~blank
        kept = frame.drop("more")
        yield Block(kept, rows) if good.all() else Block(kept.filter(good), rows[good])


def _parse(path: Path, body: bytes, dialect: Dialect, wanted: Mapping[str, int], line: int) -> Block:
    """Parse whole lines: by polars where its answer can be trusted row for row, else by the csv module."""
    n = len(dialect.names)
    marks = [f"c{i}" for i in range(n)] + ["more"]
    quoted = b'"' in body
    lines = body.count(b"\n")
    try:
        frame = pl.read_csv(
            dialect.delimiter.join(marks).encode() + b"\n" + body,
            schema=dict.fromkeys(marks, pl.String),
            columns=[*dict.fromkeys(f"c{i}" for i in wanted.values()), "more"],
            separator=dialect.delimiter,
            quote_char='"' if quoted else None,
            truncate_ragged_lines=True,
        )
    except POLARS_ERRORS:
        return _parse_slowly(path, body, dialect, wanted, line)
    if frame.height != lines:
        return _parse_slowly(path, body, dialect, wanted, line)
    chosen = {name: frame[f"c{i}"] for name, i in wanted.items()}
    return Block(pl.DataFrame({**chosen, "more": frame["more"]}), np.arange(line, line + lines))


def _parse_slowly(path: Path, body: bytes, dialect: Dialect, wanted: Mapping[str, int], line: int) -> Block:
    """Parse with the csv module, which knows the line of every record (quotations may hold line breaks)."""
    lines = io.StringIO(body.decode("utf-8", "replace"), newline="\n")
    reader = csv.reader(lines, delimiter=dialect.delimiter, strict=True)
    n = len(dialect.names)
    values: dict[str, list[str | None]] = {name: [] for name in (*wanted, "more")}
    rows: list[int] = []
    begin = line
    try:
        for record in reader:
            for name, i in wanted.items():
                values[name].append(record[i] or None if i < len(record) else None)
            values["more"].append(next((extra for extra in record[n:] if extra), None))
            rows.append(begin)
            begin = line + reader.line_num
    except csv.Error as error:
        place = Place(str(path), line + reader.line_num - 1)
        raise DataError(str(error), place=place, remedy="mend the quotation marks and line ends there") from error
    return Block(pl.DataFrame(values, schema=dict.fromkeys(values, pl.String)), np.asarray(rows, np.int64))
