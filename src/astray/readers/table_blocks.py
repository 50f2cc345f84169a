"""Defines :class:`Table`: the names of its columns, and its rows in blocks, from any file or from memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.readers.read_report import Intake, Progress

ROWS = 262_144
"""The number of rows in a block, unless the caller wants fewer."""


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


Blocks: TypeAlias = Callable[[Mapping[str, int], Intake, Progress | None, int], Iterator[Block]]
"""Yields the rows of a table in order: ``blocks(wanted, intake, progress, max_rows)``.

``wanted`` maps the names of the columns in the result to their positions in the table.
"""


class Table(NamedTuple):
    """An open table."""

    names: Sequence[str]
    blocks: Blocks
    lines_above: int = 0  # lines above the column names that are not part of the table


def frame_table(frame: pl.DataFrame) -> Table:
    """Returns a data frame in memory as a table of one block; its first row is row 0."""
    block = Block(frame, np.arange(frame.height))
    return Table(frame.columns, lambda wanted, *_: iter([block.select(frame.columns, wanted)]))
