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
from astray.features.memory import Memory, index_of_counts

Array = NDArray[Any]
Keys = NDArray[np.uint64]
NO_KEYS: Keys = np.zeros(0, np.uint64)


@dataclass(frozen=True, eq=False)
class Counted:
    """How many agents have been to each cell, without their names.

    Attributes
    ----------
    keys, agents
        The cells, in order, and how many agents have been to each.
    total
        How many agents were counted.
    """

    keys: Keys = field(default_factory=lambda: NO_KEYS)
    agents: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    total: int = 0

    @classmethod
    def of(cls, visitors: Memory[str]) -> Counted:
        """The counts of a memory whose trips are agents."""
        keys, agents = np.unique(visitors.keys, return_counts=True)
        return cls(keys, agents.astype(np.int32), len(visitors))

    def without(self, cells: Keys) -> Counted:
        """As if an agent who has been to these cells had never been; without any cells, it was not counted."""
        if not len(cells):
            return self
        left = self.agents - np.isin(self.keys, cells, assume_unique=True)
        return Counted(self.keys[left > 0], left[left > 0].astype(np.int32), self.total - 1)

    @cached_property
    def index(self) -> Any:
        """A table for look-ups."""
        return index_of_counts(self.keys, self.agents)


@dataclass(frozen=True, eq=False)
class Visits:
    """Counts of agents, of which one may be told apart: what :class:`Memory` says of many agents, in far less room.

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
        """The one agent that is told apart, if it was counted."""
        return (self.agent,) if len(self.cells) else ()

    def number_of(self, agents: Iterable[str]) -> NDArray[np.int64]:
        """0 for the agent that is told apart, -1 for everybody else."""
        return np.array([0 if agent in self.trip_ids else -1 for agent in agents], np.int64)

    def counts(self, keys: Array, without: Array | None = None) -> NDArray[np.float32]:
        """How many agents have been to each cell; where ``without`` is 0, the one told apart does not count."""
        index = self.counted.index
        count: NDArray[np.float32] = index.count.take(index.find(np.ascontiguousarray(keys, np.uint64).ravel()))
        if without is not None:
            own = self._is_own(keys.ravel()) & (np.broadcast_to(without, keys.shape).ravel() == 0)
            count = np.maximum(count - own, np.float32(0))
        return count.reshape(keys.shape)

    def few_counts(self, keys: Array, without: int = -1) -> NDArray[np.float32]:
        """The same for a handful of keys: found by bisection, no table is made."""
        known, agents = self.counted.keys, self.counted.agents
        at = np.searchsorted(known, keys)
        inside = np.minimum(at, max(len(known) - 1, 0))
        count = np.zeros(len(keys), np.float32)
        if len(known):
            count += np.where(known[inside] == keys, agents[inside], 0)
        if without == 0:
            count = np.maximum(count - self._is_own(keys), np.float32(0))
        return count

    def _is_own(self, keys: Array) -> NDArray[np.bool_]:
        if not len(self.cells):
            return np.zeros(len(keys), bool)
        at = np.minimum(np.searchsorted(self.cells, keys), len(self.cells) - 1)
        return np.asarray(self.cells[at] == keys)


@dataclass(frozen=True, eq=False)
class Popularity:
    """The cells that some agents have been to.

    Attributes
    ----------
    cells
        Their sizes in metres.
    agents
        A memory whose trips are agents: the ids are their names, the keys their cells; or :class:`Visits`, which counts
        them without their names.
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
    agents: Memory[str] | Visits = field(default_factory=lambda: Memory[str]())
    excluded: str | None = None

    @property
    def habits(self) -> tuple[Habit, ...]:
        """What two places must have in common to count as one, for each size of cell."""
        return tuple(Habit(cell=size) for size in self.cells)

    def visited(self, keys: Mapping[str, Array]) -> Popularity:
        """With further places, by the keys of :attr:`habits`, of agents that are known or not.

        Trips without an agent's name are left out: they may be anybody's, also those of somebody who is here already.
        """
        known, found = self.by_name, {}
        for agent, places in keys.items():
            number = int(known.number_of([agent])[0])
            if agent and len(places):
                found[agent] = np.unique(np.concatenate([places, known.keys[known.trips == number]]))
        return replace(self, agents=known.remove(found).add(found))

    def without(self, agents: Iterable[str]) -> Popularity:
        """As if some agents had never been; unknown ones are ignored."""
        return replace(self, agents=self.by_name.remove(agents))

    @property
    def by_name(self) -> Memory[str]:
        """The agents with their names and cells, where these are known."""
        assert isinstance(self.agents, Memory), "where agents are counted without their names, nobody is named"
        return self.agents

    def excluding(self, agent: str) -> Popularity:
        """The popularity among everybody but this agent."""
        return replace(self, excluded=agent)

    def of_the_same(self, other: Popularity) -> bool:
        """Whether both are views of the same counts of agents."""
        mine, others = (of.agents.counted if isinstance(of.agents, Visits) else of.agents for of in (self, other))
        return mine is others

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
        if excluded >= 0 and (maker is None or (maker != excluded).any()):
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
