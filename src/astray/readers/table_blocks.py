"""A table to read: the names of its columns, and its rows in blocks, whatever file or memory holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.readers.read_report import Intake, Progress


class Block(NamedTuple):
    """Some rows of a table: the selected columns as they are stored, and the number of each row in the file."""

    frame: pl.DataFrame
    rows: NDArray[np.int64]

    def select(self, names: Sequence[str], wanted: Mapping[str, int]) -> Block:
        """Returns the wanted columns, given by their positions in ``names``, under the keys of ``wanted``."""
        return Block(self.frame.select(pl.col(names[i]).alias(key) for key, i in wanted.items()), self.rows)

    def filter(self, good: NDArray[np.bool_]) -> Block:
        """Returns the rows where ``good`` is true."""
        return self if good.all() else Block(self.frame.filter(good), self.rows[good])


class Table(Protocol):
    """An open table."""

    @property
    def names(self) -> Sequence[str]:
        """Returns the names of the columns."""

    @property
    def lines_above(self) -> int:
        """Returns the number of lines above the column names that are not part of the table."""

    def blocks(
        self,
        wanted: Mapping[str, int],
        intake: Intake,
        *,
        progress: Progress | None = None,
        max_rows: int | None = None,
    ) -> Iterator[Block]:
        """Yields the rows in order; ``wanted`` maps the names in the result to positions in :attr:`names`."""


class FrameTable:
    """A data frame in memory; its first row is row 0."""

    lines_above = 0

    def __init__(self, frame: pl.DataFrame) -> None:
        self.names, self._frame = frame.columns, frame

    def blocks(
        self,
        wanted: Mapping[str, int],
        intake: Intake,
        *,
        progress: Progress | None = None,
        max_rows: int | None = None,
    ) -> Iterator[Block]:
        """Yields the whole frame as one block."""
        yield Block(self._frame, np.arange(self._frame.height)).select(self.names, wanted)
