"""Delimited text (CSV and the like) as a table: finds the delimiter and the header, and parses blocks of rows."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from astray.core.errors import DataError, Option, Place
from astray.core.fixes import REQUIRED, Fault
from astray.core.times import POLARS_ERRORS
from astray.readers.column_roles import header_score
from astray.readers.read_report import Intake, Progress
from astray.readers.table_blocks import Block, Table
from astray.readers.text_files import BLOCK_BYTES, blocks_of_lines, decoded, ends_lines_with_returns

DELIMITERS = (",", ";", "\t", "|", " ")

HEADER_LINES = 20
"""The column names must be within this many lines; reports have a title and notes above them."""

_SEPARATOR = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # spreadsheet programs write it above the column names


@dataclass(frozen=True)
class Dialect:
    """The delimiter, encoding and header of a delimited file."""

    delimiter: str
    names: tuple[str, ...]
    header_lines: int
    encoding: str | None
    lines_above: int = 0  # lines above the column names that are not part of the table


def open_delimited(
    path: Path,
    head: bytes,
    delimiter: str | None = None,
    encoding: str | None = None,
    names: Sequence[str] | None = None,
) -> Table:
    """Opens delimited text after finding the delimiter and the header; ``names`` are the columns if it has no header.

    The header is the first line, unless only a later line names time, latitude and longitude.
    """
    dialect = _sniff(path, head, delimiter, encoding, names)
    return Table(dialect.names, partial(read_blocks, path, dialect), dialect.lines_above)


def _sniff(
    path: Path, head: bytes, delimiter: str | None, encoding: str | None, names: Sequence[str] | None
) -> Dialect:
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii()):
        raise DataError(f"delimiter={delimiter!r} cannot be used", remedy='give one character such as "," or ";"')
    begun = decoded(path, head, encoding).lstrip("\ufeff")
    lines = begun.split("\r" if ends_lines_with_returns(begun.encode("utf-8", "replace")) else "\n")
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
    best = _best(splits)
    if header_score(splits[best]) < len(REQUIRED):
        for i in range(blank + 1, min(blank + HEADER_LINES, len(lines))):
            below = {choice: _fields(lines[i].rstrip("\r"), choice) for choice in choices}
            found = _best(below)
            if header_score(below[found]) >= len(REQUIRED):
                return Dialect(found, tuple(name.strip() for name in below[found]), i + 1, encoding, above + i - blank)
        if header_score(splits[best]) == 0 and any(sum(map(_is_number, split)) >= 2 for split in splits.values()):
            raise DataError(
                f"the first line is data, not column names ({first[:60]})",
                place=Place(str(path), blank + 1),
                remedy=("add a header line, or give the names: ", Option("names", ["agent", "time", "lon", "lat"])),
            )
    return Dialect(best, tuple(name.strip() for name in splits[best]), blank + 1, encoding, above)


def _best(splits: Mapping[str, Sequence[str]]) -> str:
    """Returns the delimiter that gives the most known names, then the most names; a space only if it gives more."""
    return max(splits, key=lambda choice: (header_score(splits[choice]), choice != " ", len(splits[choice])))


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


def read_blocks(
    path: Path, dialect: Dialect, wanted: Mapping[str, int], intake: Intake, progress: Progress | None, max_rows: int
) -> Iterator[Block]:
    """Yields the rows of a file whose dialect is known, numbered by lines; see :data:`~.table_blocks.Blocks`.

    A row with more fields than the header is bad data; missing fields are null.
    """
    line, skip = 1, dialect.header_lines
    for text in blocks_of_lines(path, intake, dialect.encoding, BLOCK_BYTES, progress):
        start = 0
        while skip and start < len(text):
            start = text.index(b"\n", start) + 1
            skip, line = skip - 1, line + 1
        body = text[start:].removeprefix(b"\xef\xbb\xbf")
        if not body.strip():
            line += body.count(b"\n")
            continue
        frame, rows = _parse(path, body, dialect, wanted, line)
        line += body.count(b"\n")
        blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series().to_numpy()
        if blank.any():
            intake.report.note(f"{path}: blank rows were ignored")
        too_long = Fault(
            frame["more"].is_not_null().to_numpy(),
            f"more fields than the {len(dialect.names)} columns",
            "quote fields that contain the delimiter, and mind decimal commas",
        )
        good = intake.good_rows(path, rows, [too_long]) & ~blank
        frame, rows = Block(frame.drop("more"), rows).filter(good)
        for low in range(0, frame.height, max_rows):
            yield Block(frame[low : low + max_rows], rows[low : low + max_rows])


def _parse(path: Path, body: bytes, dialect: Dialect, wanted: Mapping[str, int], line: int) -> Block:
    """Parses whole lines with polars, or with the csv module if polars does not return one row per line."""
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
        return _parse_with_csv(path, body, dialect, wanted, line)
    if frame.height != lines:
        return _parse_with_csv(path, body, dialect, wanted, line)
    chosen = {name: frame[f"c{i}"] for name, i in wanted.items()}
    return Block(pl.DataFrame({**chosen, "more": frame["more"]}), np.arange(line, line + lines))


def _parse_with_csv(path: Path, body: bytes, dialect: Dialect, wanted: Mapping[str, int], line: int) -> Block:
    """Parses with the csv module, which knows the line of every record (quoted fields may hold line breaks)."""
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
        raise DataError(str(error), place=place, remedy="repair the quotation marks and line ends there") from error
    return Block(pl.DataFrame(values, schema=dict.fromkeys(values, pl.String)), np.asarray(rows, np.int64))
