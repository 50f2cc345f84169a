"""Opens a table file once: delimited text, Parquet or Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from astray.readers.delimited import open_delimited
from astray.readers.parquet import ParquetTable, is_columnar
from astray.readers.table_blocks import Table
from astray.readers.text_files import first_bytes

__all__ = ["is_columnar", "open_table"]


def open_table(
    path: Path,
    *,
    head: bytes | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    names: Sequence[str] | None = None,
) -> Table:
    """Opens a table; ``head`` is the beginning of the file if the caller has read it, the others apply to text."""
    head = first_bytes(path) if head is None else head
    if is_columnar(path, head):
        return ParquetTable(path, head)
    return open_delimited(path, head, delimiter=delimiter, encoding=encoding, names=names)
