"""Popularity: how many other agents go to a place, whether or not the agent itself has been there.

A place where an agent has never been says little by itself. If many others go there, it speaks for one of them; if
nobody does, it may as well be something new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.features.familiarity import Habit
from astray.features.memory import Memory

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Popularity:
    """The cells that some agents have been to.

    Attributes
    ----------
    cells
        Their sizes in metres.
    agents
        A memory whose trips are agents: the ids are their names, the keys their cells.
    excluded
        An agent that does not count: the one whose trips are looked at.

    Examples
    --------
    >>> key = np.array([[[7, 8]]], np.uint64)  # one place: the keys of one habit on two grids
    >>> popularity = Popularity((500.0,)).visited({"ann": key.ravel(), "bob": key.ravel()})
    >>> np.expm1(popularity.encode(key, (Habit(cell=500.0),))).round().tolist()
    [[2.0]]
    >>> np.expm1(popularity.excluding("bob").encode(key, (Habit(cell=500.0),))).round().tolist()
    [[1.0]]
    """

    cells: tuple[float, ...] = (150.0, 500.0)
    agents: Memory[str] = field(default_factory=Memory)
    excluded: str | None = None

    @property
    def habits(self) -> tuple[Habit, ...]:
        """What two places must have in common to count as one, for each size of cell."""
        return tuple(Habit(cell=size) for size in self.cells)

    def visited(self, keys: Mapping[str, Array]) -> Popularity:
        """With further places, by the keys of :attr:`habits`, of agents that are known or not.

        Trips without an agent's name are left out: they may be anybody's, also those of somebody who is here already.
        """
        found = {}
        for agent, places in keys.items():
            number = int(self.agents.number_of([agent])[0])
            if agent and len(places):
                found[agent] = np.unique(np.concatenate([places, self.agents.keys[self.agents.trips == number]]))
        return replace(self, agents=self.agents.remove(found).add(found))

    def without(self, agents: Iterable[str]) -> Popularity:
        """As if some agents had never been; unknown ones are ignored."""
        return replace(self, agents=self.agents.remove(agents))

    def excluding(self, agent: str) -> Popularity:
        """The popularity among everybody but this agent."""
        return replace(self, excluded=agent)

    def number_of(self, agents: Iterable[str]) -> NDArray[np.int64]:
        """The number of each agent, -1 of one that is not among them."""
        return self.agents.number_of(agents)

    def encode(self, keys: Array, habits: Sequence[Habit], maker: Array | None = None) -> NDArray[np.float32]:
        """log(1 + agents) of every row and size of cell, averaged over the grids: (rows, sizes).

        ``keys`` are those of ``habits``, (rows, habits, grids), among which must be cells of these sizes. ``maker``
        numbers, for each row, the agent that made the trip, which does not count either; -1 for none.
        """
        columns = [habits.index(habit) for habit in self.habits]
        places = keys[:, columns]
        count = self.agents.counts(places, None if maker is None else maker[:, None, None])
        excluded = self._excluded_number
        if excluded >= 0:
            visited: Array = self.agents.counts(places) - self.agents.counts(places, np.array(excluded))
            count -= visited if maker is None else np.where(maker[:, None, None] == excluded, 0, visited)
        return np.asarray(np.log1p(count).mean(axis=2), np.float32)

    def encode_step(self, keys: Array, maker: int = -1) -> NDArray[np.float32]:
        """What :meth:`encode` says of one row, to the last bit, from its keys of :attr:`habits`: (sizes, grids)."""
        few, flat, excluded = self.agents.few_counts, keys.ravel(), self._excluded_number
        count = few(flat, maker)
        if excluded >= 0 and excluded != maker:
            count -= few(flat) - few(flat, excluded)
        return np.asarray(np.log1p(count).reshape(keys.shape).mean(axis=1), np.float32)

    @cached_property
    def _excluded_number(self) -> int:
        return -1 if self.excluded is None else int(self.number_of([self.excluded])[0])
