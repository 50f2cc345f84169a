"""Popularity: the number of other agents that go to a place.

That the agent has never been to a place says little. If many others go there, one of them may have made the trip; if
nobody does, the agent may simply be somewhere new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.features.familiarity import Habit
from astray.features.memory import A_FEW, Memory, index_of_counts

Array = NDArray[Any]
Keys = NDArray[np.uint64]
NO_KEYS: Keys = np.zeros(0, np.uint64)


@dataclass(frozen=True, eq=False)
class Counted:
    """The number of agents that have been to each cell, without their names."""

    keys: Keys = field(default_factory=lambda: NO_KEYS)  # of the cells, sorted
    agents: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))  # the number for each cell
    total: int = 0  # the number of agents

    @classmethod
    def of(cls, visitors: Memory[str]) -> Counted:
        """Makes the counts from a memory that counts agents."""
        keys, agents = np.unique(visitors.keys, return_counts=True)
        return cls(keys, agents.astype(np.int32), len(visitors))

    def without(self, cells: Keys) -> Counted:
        """Returns the counts without an agent that has been to these cells; without cells, the counts are unchanged."""
        if not len(cells):
            return self
        left = self.agents - np.isin(self.keys, cells, assume_unique=True)
        return Counted(self.keys[left > 0], left[left > 0].astype(np.int32), self.total - 1)

    def look_up(self, keys: Keys) -> NDArray[np.float32]:
        """Returns the number of agents that have been to each cell, by bisection for few cells, else by a table."""
        if len(keys) > A_FEW:
            return np.asarray(self._index.count.take(self._index.find(keys)), np.float32)
        count = np.zeros(len(keys), np.float32)
        if len(self.keys):
            at = np.minimum(self.keys.searchsorted(keys), len(self.keys) - 1)
            count += np.where(self.keys[at] == keys, self.agents[at], 0)
        return count

    @cached_property
    def _index(self) -> Any:
        return index_of_counts(self.keys, self.agents)


@dataclass(frozen=True, eq=False)
class Visits:
    """Counts of agents that can ignore one named agent; takes far less memory than a :class:`Memory` of all agents.

    >>> counted = Counted(np.array([7, 8], np.uint64), np.array([2, 1], np.int32), 2)
    >>> visits = Visits(counted, "ann", np.array([7], np.uint64))
    >>> visits.counts(np.array([7, 8, 9], np.uint64), np.array(visits.number_of(["ann"])[0])).tolist()
    [1.0, 1.0, 0.0]
    """

    counted: Counted
    agent: str = ""
    cells: Keys = field(default_factory=lambda: NO_KEYS)

    def __len__(self) -> int:
        return self.counted.total

    @property
    def trip_ids(self) -> tuple[str, ...]:
        """Returns the named agent, if it was counted."""
        return (self.agent,) if len(self.cells) else ()

    def number_of(self, agents: Iterable[str]) -> NDArray[np.int64]:
        """Returns 0 for the named agent, -1 for everybody else."""
        return np.array([0 if agent in self.trip_ids else -1 for agent in agents], np.int64)

    def counts(self, keys: Array, without: Array | None = None) -> NDArray[np.float32]:
        """Returns the number of agents that have been to each cell, without the named agent where ``without`` is 0."""
        flat = np.ascontiguousarray(keys, np.uint64).reshape(-1)
        count = self.counted.look_up(flat).reshape(keys.shape)
        if without is not None and len(self.cells):
            count = np.maximum(count - (self._is_own(flat).reshape(keys.shape) & (without == 0)), np.float32(0))
        return count

    def _is_own(self, keys: Array) -> NDArray[np.bool_]:
        at = np.minimum(self.cells.searchsorted(keys), len(self.cells) - 1)
        return np.asarray(self.cells[at] == keys)


@dataclass(frozen=True, eq=False)
class Popularity:
    """Counts the agents that have been to each cell.

    Attributes
    ----------
    cells
        The sizes of the cells in metres.
    agents
        A :class:`Memory` that counts agents (its ids are their names, its keys their cells); or :class:`Visits`, which
        counts them without their names.
    excluded
        The agent whose trips are scored; it is not counted.

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
    agents: Memory[str] | Visits = field(default_factory=lambda: Memory[str]())
    excluded: str | None = None

    @property
    def habits(self) -> tuple[Habit, ...]:
        """Returns a habit for each size of cell, by which two places are the same if they share that cell."""
        return tuple(Habit(cell=size) for size in self.cells)

    def visited(self, keys: Mapping[str, Array]) -> Popularity:
        """Returns a popularity with further places of known or new agents, given as keys of :attr:`habits`.

        Ignores trips without an agent's name, because a known agent may have made them.
        """
        known, found = self.by_name, {}
        for agent, places in keys.items():
            number = int(known.number_of([agent])[0])
            if agent and len(places):
                found[agent] = np.unique(np.concatenate([places, known.keys[known.trips == number]]))
        return replace(self, agents=known.remove(found).add(found))

    def without(self, agents: Iterable[str]) -> Popularity:
        """Returns a popularity without some agents; ignores unknown ones."""
        return replace(self, agents=self.by_name.remove(agents))

    @property
    def by_name(self) -> Memory[str]:
        """Returns the agents with their names and cells; the names must be known."""
        assert isinstance(self.agents, Memory), "agents that are counted without their names have no names"
        return self.agents

    def excluding(self, agent: str) -> Popularity:
        """Returns the popularity without counting this agent."""
        return replace(self, excluded=agent)

    def of_the_same(self, other: Popularity) -> bool:
        """Returns True if both share the same counts of agents."""
        mine, others = (of.agents.counted if isinstance(of.agents, Visits) else of.agents for of in (self, other))
        return mine is others

    def number_of(self, agents: Iterable[str]) -> NDArray[np.int64]:
        """Returns the number of each agent; -1 for an unknown one."""
        return self.agents.number_of(agents)

    def encode(self, keys: Array, habits: Sequence[Habit], maker: Array | None = None) -> NDArray[np.float32]:
        """Returns log(1 + agents) of every row and size of cell, averaged over the grids: (rows, sizes).

        ``keys`` are those of ``habits``, (rows, habits, grids), which must include :attr:`habits`. ``maker`` gives, for
        each row, the number of the agent that made the trip, which is not counted either; -1 for none.
        """
        return self.encode_places(keys[:, [habits.index(habit) for habit in self.habits]], maker)

    def encode_places(self, places: Array, maker: Array | None = None) -> NDArray[np.float32]:
        """Returns the same as :meth:`encode`, from keys of :attr:`habits` alone: (rows, sizes, grids)."""
        count = self.counts(places, maker)
        return np.asarray(np.add.reduce(np.log1p(count), axis=2) / count.shape[2], np.float32)

    def counts(self, keys: Array, maker: Array | None = None) -> NDArray[np.float32]:
        """Returns the number of agents that have each key, (rows, ..., ...); ``maker`` as in :meth:`encode`."""
        count = self.agents.counts(keys, None if maker is None else maker[:, None, None])
        excluded = self._excluded_number
        if excluded >= 0 and (maker is None or (maker != excluded).any()):
            visited: Array = self.agents.counts(keys) - self.agents.counts(keys, np.array(excluded))
            count -= visited if maker is None else np.where(maker[:, None, None] == excluded, 0, visited)
        return count

    @cached_property
    def _excluded_number(self) -> int:
        return -1 if self.excluded is None else int(self.number_of([self.excluded])[0])
