"""Haunts: how many other agents go to a place, wherever the agent itself has been.

A place where an agent has never been says little by itself. If many others go there, it speaks for one of them; if
nobody does, it may as well be something new. So beside how familiar a place is to the agent, a reward that was learned
against other agents' trips sees how many of them frequent it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.mdp.familiarity import GRIDS, SHIFTS
from astray.mdp.hashing import mix
from astray.mdp.memory import Memory
from astray.mdp.projection import METRES_A_DEGREE
from astray.trajectories import Trajectories

Array = NDArray[Any]

FEWEST = 10  # agents: of fewer, how many go somewhere tells who they are rather than what the place is


@dataclass(frozen=True, eq=False)
class Haunts:
    """The cells that some agents have been to; without cells there is nothing to see.

    Cells lie on a grid of the whole earth, the same for every agent.

    Attributes
    ----------
    cells
        Their sizes in metres.
    agents
        The cells of each agent, which stands where a memory has a trip.
    absent
        An agent that does not count: the one through whose eyes trips are seen.

    Examples
    --------
    >>> lat, lon = np.array([41.15, 41.15, 41.16]), np.array([-8.61, -8.61, -8.61])
    >>> haunts = Haunts((500.0,)).visited(["ann", "bob", "bob"], lat, lon)
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

    def visited(self, agent: Iterable[str], lat: Array, lon: Array) -> Haunts:
        """With the places (one a row) of further agents; of an agent that is known, they are put in their stead."""
        names, number = np.unique(np.asarray(agent, str), return_inverse=True)
        # Agent by agent, for most of the points of one lie in few cells.
        order = np.argsort(number, kind="stable")
        ends = np.searchsorted(number[order], np.arange(1, len(names) + 1)).tolist()
        found = {}
        for name, start, end in zip(names.tolist(), [0, *ends], ends, strict=False):
            rows = order[start:end]
            found[name] = np.unique(np.concatenate([np.unique(k) for k in self._keys(lat[rows], lon[rows])]))
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

    def encode(self, lat: Array, lon: Array, own: Array | None = None) -> NDArray[np.float32]:
        """log(1 + agents) of every place and size of cell, averaged over the grids: (rows, sizes).

        ``own`` numbers, for each row, the agent that made the trip, which does not count either; -1 for none.
        """
        found = np.zeros((len(self.cells), len(lat)), np.float32)
        absent = -1 if self.absent is None else int(self.number_of([self.absent])[0])
        for i, keys in enumerate(self._keys(lat, lon)):
            count = self.agents.counts(keys, own)
            if absent >= 0:
                there: Array = self.agents.counts(keys) - self.agents.counts(keys, np.array(absent))
                count -= there if own is None else np.where(own == absent, 0, there)
            found[i // GRIDS] += np.log1p(count)
        found /= GRIDS
        return found.T

    def _keys(self, lat: Array, lon: Array) -> Iterator[NDArray[np.uint64]]:
        """The keys of places: of each size of cell, on each grid."""
        salt = 0
        for size in self.cells:
            a_degree = METRES_A_DEGREE / size
            for shift in SHIFTS:
                salt += 1
                row = np.floor(lat * a_degree + shift)
                # Parallels are shorter towards the poles: all places of a row are measured by its middle.
                column = np.floor(lon * (a_degree * np.cos(np.radians((row - shift + 0.5) / a_degree))) + shift)
                cell = mix(row.astype(np.int64).view(np.uint64), column.astype(np.int64).view(np.uint64))
                yield mix(np.full(1, salt, np.uint64), cell)


def whose(trips: Trajectories) -> NDArray[np.str_]:
    """By whom each trip counts: by its agent; a trip of nobody in particular by itself."""
    agents = trips.agent_ids.astype(str)
    return np.asarray(np.where(agents == "", np.char.add("/", trips.trajectory_ids.astype(str)), agents), str)
