"""Defines :class:`Reader`: each format has one, which recognises and reads files of the format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from astray.core.trajectories import Trajectories
from astray.readers.delimited import open_delimited
from astray.readers.parquet import is_columnar, open_parquet
from astray.readers.read_report import Intake, Progress
from astray.readers.table_blocks import Table
from astray.readers.text_files import decoded, first_bytes

_XML_ROOT = re.compile(r"<(?:[\w.-]+:)?(gpx|kml|TrainingCenterDatabase)[\s>/]")


class InputFile(NamedTuple):
    """A file to read, with its open table if recognising the format has opened one."""

    path: Path
    table: Table | None = None

    def open(
        self, delimiter: str | None = None, encoding: str | None = None, names: Sequence[str] | None = None
    ) -> Table:
        """Returns the file's table; opens it again if an option gives the delimiter, encoding or names."""
        if self.table is not None and delimiter is None and encoding is None and names is None:
            return self.table
        return open_table(self.path, first_bytes(self.path), delimiter, encoding, names)


def open_table(
    path: Path,
    head: bytes,
    delimiter: str | None = None,
    encoding: str | None = None,
    names: Sequence[str] | None = None,
) -> Table:
    """Opens a table whose first bytes are ``head``; the options apply only to text."""
    if is_columnar(path, head):
        return open_parquet(path, head)
    return open_delimited(path, head, delimiter, encoding, names)


class Request(NamedTuple):
    """The options and the report for reading files of one format."""

    options: Any  # an instance of the reader's options
    intake: Intake
    progress: Progress | None = None
    trips: str | None = None  # see astray.read


@dataclass(frozen=True)
class Reader:
    """Recognises and reads one format."""

    recognises: Callable[[Sample], bool]
    read: Callable[[Sequence[InputFile], Request], Trajectories]
    options: type  # a dataclass
    suffixes: tuple[str, ...] = ()  # they decide if no reader recognises the content
    stream: Callable[[InputFile, int, Request], Iterator[Trajectories]] | None = None  # yields batches of about n rows
    is_table: bool = False  # tried last, after the suffixes of the others; its files come with their open table
    claims: Callable[[Path], bool] | None = None  # True for a folder or file to read as it is, without a sample
    ignored_files: tuple[str, ...] = ()  # names of files beside the data that hold no positions

    @property
    def option_names(self) -> list[str]:
        """Returns the names of the options."""
        return [field.name for field in fields(self.options)]


@dataclass
class Sample:
    """The beginning of a file, decoded and parsed only if a reader asks for it."""

    path: Path
    head: bytes
    name: Path  # the file's name, or the name inside a compressed file
    is_compressed: bool = False

    @cached_property
    def is_columnar(self) -> bool:
        """Returns True for Parquet and Arrow files."""
        return is_columnar(self.name, self.head)

    @cached_property
    def text(self) -> str:
        """Returns the beginning as text, without blanks before it; empty for Parquet and Arrow files."""
        return "" if self.is_columnar else decoded(self.path, self.head, None).lstrip("\ufeff \t\r\n")

    @cached_property
    def is_json(self) -> bool:
        """Returns True if the text begins as JSON does."""
        return self.text.startswith(("{", "["))

    @cached_property
    def xml_root(self) -> str | None:
        """Returns the outermost XML element if it is a known one, "" for other XML, None if this is not XML."""
        if not self.text.startswith("<"):
            return None
        root = _XML_ROOT.search(self.text)
        return "" if root is None else root[1]

    @cached_property
    def table(self) -> Table | None:
        """Returns the file as an open table; None for a compressed Parquet file, whose columns are at its end."""
        return None if self.is_columnar and self.is_compressed else open_table(self.path, self.head)
