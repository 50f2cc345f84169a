"""Haunts: how many other agents go to a place, whether or not the agent itself has been there.

A place where an agent has never been says little by itself. If many others go there, it speaks for one of them; if
nobody does, it may as well be something new. So beside how familiar a place is to the agent, a reward that was learned
against other agents' trips sees how many of them frequent it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.mdp.familiarity import GRIDS, SHIFTS
from astray.mdp.hashing import changes, mix, mix_one
from astray.mdp.memory import Memory
from astray.mdp.projection import METRES_A_DEGREE

Array = NDArray[Any]

FEWEST = 30  # agents: of fewer, how many go somewhere tells who they are rather than what the place is


@dataclass(frozen=True, eq=False)
class Haunts:
    """The cells that some agents have been to; without cells there is nothing to see.

    Cells lie on a grid of the whole earth, the same for every agent.

    Attributes
    ----------
    cells
        Their sizes in metres.
    agents
        A memory whose trips are agents: the ids are their names, the keys their cells.
    absent
        An agent that does not count: the one through whose eyes trips are seen.

    Examples
    --------
    >>> lat, lon = np.array([41.15, 41.15, 41.16]), np.array([-8.61, -8.61, -8.61])
    >>> haunts = Haunts((500.0,)).visited(["ann", "bob"], np.array([0, 1, 1]), lat, lon)
    >>> np.expm1(haunts.encode(lat[1:], lon[1:])).round().tolist()
    [[2.0], [1.0]]
    >>> np.expm1(haunts.encode(lat[1:], lon[1:], own=haunts.number_of(["ann", "bob"]))).round().tolist()
    [[1.0], [0.0]]
    """

    cells: tuple[float, ...] = ()
    agents: Memory = field(default_factory=Memory)
    absent: str | None = None

    @property
    def names(self) -> list[str]:
        """One name a feature."""
        return [f"others, cell {size:g} m" for size in self.cells]

    def visited(self, agents: Sequence[str], which: Array, lat: Array, lon: Array) -> Haunts:
        """With further places, row by row, of agents that are known or not.

        ``which`` numbers the agent of each row. Who has no name is left out: its trips may be anybody's, also those of
        somebody who is here already.
        """
        # Agent by agent, for most of the points of one lie in few cells.
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], np.arange(1, len(agents) + 1)).tolist()
        found = {}
        known = self.number_of(agents).tolist()
        for name, number, start, end in zip(agents, known, [0, *ends], ends, strict=False):
            rows = order[start:end]
            if name and len(rows):
                here = [np.unique(_keys(grid, *_cells(grid, lat[rows], lon[rows]))) for grid in self._grids]
                found[name] = np.unique(np.concatenate([*here, self.agents.keys[self.agents.trips == number]]))
        return replace(self, agents=self.agents.remove(found).add(found))

    def of_enough(self) -> Haunts:
        """The same; none if they are of so few agents that they tell little."""
        return self if len(self.agents) >= FEWEST else Haunts()

    def without(self, agents: Iterable[str]) -> Haunts:
        """As if some agents had never been; unknown ones are ignored."""
        return replace(self, agents=self.agents.remove(agents))

    def seen_by(self, agent: str) -> Haunts:
        """The haunts of everybody but this agent."""
        return replace(self, absent=agent)

    def number_of(self, agents: Iterable[str]) -> NDArray[np.int64]:
        """The number of each agent, -1 of one that is not among them."""
        return self.agents.number_of(agents)

    def of_trips(self, agents: Iterable[str], trip: Array) -> NDArray[np.int64] | None:
        """The number of the agent that made each row's trip, for ``own``; None where nobody is among them."""
        if not self.cells:
            return None
        number = self.number_of(agents)
        return number[trip] if (number >= 0).any() else None

    def encode(self, lat: Array, lon: Array, own: Array | None = None) -> NDArray[np.float32]:
        """log(1 + agents) of every place and size of cell, averaged over the grids: (rows, sizes).

        ``own`` numbers, for each row, the agent that made the trip, which does not count either; -1 for none.
        """
        found = np.zeros((len(self.cells), len(lat)), np.float32)
        absent = self._absent
        for i, grid in enumerate(self._grids):
            row, column = _cells(grid, lat, lon)
            # A step mostly stays in the cell of the step before: every stay is looked up once.
            came = changes(row) | changes(column) if own is None else changes(row) | changes(column) | changes(own)
            stays = np.flatnonzero(came)
            keys, who = _keys(grid, row[stays], column[stays]), None if own is None else own[stays]
            count = self.agents.counts(keys, who)
            if absent >= 0:
                there: Array = self.agents.counts(keys) - self.agents.counts(keys, np.array(absent))
                count -= there if who is None else np.where(who == absent, 0, there)
            found[i // GRIDS] += np.repeat(np.log1p(count), np.diff(stays, append=len(lat)))
        found /= GRIDS
        return found.T

    def encode_one(self, lat: float, lon: float) -> NDArray[np.float32]:
        """What :meth:`encode` says of a single place, to the last bit, in a fraction of the time.

        >>> haunts = Haunts((500.0,)).visited(["ann"], np.array([0]), np.array([41.15]), np.array([-8.61]))
        >>> haunts.encode_one(41.15, -8.61) == haunts.encode(np.array([41.15]), np.array([-8.61]))[0]
        array([ True])
        """
        cells = ((grid.salt, *_cells(grid, lat, lon)) for grid in self._grids)
        keys = [mix_one(salt, mix_one(int(row), int(column))) for salt, row, column in cells]
        counts = self.agents.few_counts(np.array(keys, np.uint64), self._absent)
        return np.asarray(np.add.reduce(np.log1p(counts).reshape(-1, GRIDS), axis=1) / GRIDS, np.float32)

    @property
    def _absent(self) -> int:
        return -1 if self.absent is None else int(self.number_of([self.absent])[0])

    @cached_property
    def _grids(self) -> list[_Grid]:
        return [
            _Grid(salt, METRES_A_DEGREE / size, shift)
            for salt, (size, shift) in enumerate(product(self.cells, SHIFTS), start=1)
        ]


class _Grid(NamedTuple):
    """A grid over the earth: rows of latitude, and cells as wide as they are high."""

    salt: int
    a_degree: float  # how many cells a degree of latitude has
    shift: float


def _cells(grid: _Grid, lat: Any, lon: Any) -> tuple[Any, Any]:
    """The row and column of places, or of one."""
    row = np.floor(lat * grid.a_degree + grid.shift)
    # Parallels are shorter towards the poles: all places of a row are measured by its middle.
    a_degree = grid.a_degree * np.cos(np.radians((row - grid.shift + 0.5) / grid.a_degree))
    return row, np.floor(lon * a_degree + grid.shift)


def _keys(grid: _Grid, row: Array, column: Array) -> NDArray[np.uint64]:
    cell = mix(row.astype(np.int64).view(np.uint64), column.astype(np.int64).view(np.uint64))
    return mix(np.full(1, grid.salt, np.uint64), cell)
