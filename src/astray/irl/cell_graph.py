"""The graph on which an agent plans: the cells of a window, with the probabilities of moves from its memory.

A state is a cell together with the move that led there, because that move is half of what the probabilities know: on a
street that the agent goes both ways, the cell alone would let it turn back at every step. Where nobody ever came by a
move, the probabilities do not depend on it; so a cell has one state for all such moves, and one for each that was made.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.features.memory import Memory
from astray.features.moves import MOVES, NONE, Moves, looked_up, probabilities
from astray.features.popularity import Popularity
from astray.irl.planning import Graph

Array = NDArray[Any]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LENGTHS = np.hypot(*MOVES.T)


@dataclass(frozen=True, eq=False)
class Window:
    """A rectangle of cells in one band of latitude."""

    low: tuple[int, int]  # the lowest row and column
    shape: tuple[int, int]  # the numbers of rows and columns
    band: float

    def __len__(self) -> int:
        return self.shape[0] * self.shape[1]

    @classmethod
    def around(cls, cells: Array, band: float, margin: int) -> Window:
        """Returns the least window around some cells (n, 2) and ``margin`` further ones on each side."""
        low, high = cells.min(axis=0) - margin, cells.max(axis=0) + margin
        rows, columns = (high - low + 1).tolist()
        return cls((int(low[0]), int(low[1])), (rows, columns), band)

    @cached_property
    def cells(self) -> Ints:
        """Returns all cells, row by row: (cells, 2)."""
        row, column = np.divmod(np.arange(len(self)), self.shape[1])
        return np.column_stack([row + self.low[0], column + self.low[1]])

    def number(self, cells: Array) -> Ints:
        """Returns the numbers of cells (..., 2); the number of cells for those outside of the window."""
        row, column = np.moveaxis(np.asarray(cells) - np.array(self.low), -1, 0)
        inside = (row >= 0) & (row < self.shape[0]) & (column >= 0) & (column < self.shape[1])
        return np.asarray(np.where(inside, row * self.shape[1] + column, len(self)), np.int64)


@dataclass(frozen=True, eq=False)
class CellGraph:
    """The moves of an agent over the cells of a window."""

    window: Window
    graph: Graph
    state: Ints  # (cells, last moves): the number of each state; the last column is for no move before
    cell: Ints  # (states,): the number of the cell of each state
    made: Bools  # (cells, moves): True for a move that the agent made
    made_by_any: Bools  # the same of a move that the agent or another one made

    def goal(self, cell: Array) -> Bools:
        """Returns a mask of the states of a cell (2,)."""
        return np.asarray(self.cell == self.window.number(cell))

    def start(self, cell: Array, last: int = NONE) -> int:
        """Returns the state of a cell (2,) of the window after a move."""
        return int(self.state[int(self.window.number(cell)), last])

    def cells_on(self, start: Array, moves: Array) -> Ints:
        """Returns the cells of a way: the start, and where each move leads: (moves + 1, 2)."""
        return np.concatenate([np.asarray(start)[None], start + np.cumsum(MOVES[moves], axis=0)])


def cell_graph(window: Window, memory: Memory, popularity: Popularity, without: int = -1, maker: int = -1) -> CellGraph:
    """Returns the graph of a window by what a memory and, where it says little, a popularity know.

    ``without`` is the number of a remembered trip that must not count, ``maker`` that of its agent in the popularity;
    -1 for none.
    """
    n = len(window)

    def counts(cell: Ints, last: Ints, contexts: int) -> tuple[Array, Array]:
        band = np.full(len(cell), window.band)
        keys = looked_up(Moves(last, band, window.cells[cell], last, last))[:, :contexts]
        own = memory.counts(keys, None if without < 0 else np.array(without))
        return own, popularity.counts(keys, None if maker < 0 else np.full(len(cell), maker))

    own, others = counts(np.arange(n), np.full(n, NONE), 1)
    p = probabilities(own, probabilities(others))
    # A context of a cell and a last move can only have counts if that move was made into the cell.
    made, made_by_any = own[:, 0] > 0, (own[:, 0] + others[:, 0]) > 0
    came_from, move = np.nonzero(made_by_any)
    into = window.number(window.cells[came_from] + MOVES[move])
    inside = into < n
    # Ways also begin in cells, without a move before.
    began = np.unique(came_from)
    cell = np.concatenate([into[inside], began])
    last = np.concatenate([move[inside], np.full(len(began), NONE)])
    own, others = counts(cell, last, 2)
    p = np.concatenate([p, probabilities(own, probabilities(others))]).astype(np.float64)

    state = np.repeat(np.arange(n)[:, None], NONE + 1, axis=1)
    state[cell, last] = n + np.arange(len(cell))
    cell = np.concatenate([np.arange(n), cell])
    to = window.number(window.cells[cell][None] + MOVES[:, None])
    after = np.where(to < n, state[np.minimum(to, n - 1), np.arange(NONE)[:, None]], len(cell))
    return CellGraph(window, Graph(-np.log(p.T), after, _LENGTHS), state, cell, made, made_by_any)
