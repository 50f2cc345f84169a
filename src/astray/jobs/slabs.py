"""Selects the trips of a job: those of a part of the agents, sorted by agent, or of a sample of agents."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.trajectories import Trajectories
from astray.model.store import shard_of
from astray.scoring.scores import chunks

Array = NDArray[Any]

Batch = tuple[Trajectories, float]
"""Some trips, and the share of all data that was read by then."""

SLAB_FIXES = 8_000_000
"""How many fixes are sorted by agent at a time: with more, fewer memories are read twice."""

AT_A_TIME = 100_000
"""About how many fixes of a fleet one job gets."""


def part_of(agent: str, n: int) -> int:
    """Returns the part, from 1 to ``n``, that an agent belongs to; the same in every process and on every machine.

    >>> [part_of(agent, 4) for agent in ("ana", "bob", "cem")]
    [2, 1, 4]
    """
    return 1 + _hash_of(agent) % n


def _hash_of(agent: str, key: bytes = b"") -> int:
    return int.from_bytes(hashlib.blake2b(agent.encode(), digest_size=8, key=key).digest(), "little")


def in_part(batches: Iterable[Batch], part: tuple[int, int] | None) -> Iterator[Batch]:
    """Yields the trips of the agents in ``part`` (number, number of parts); all trips if ``part`` is None."""
    for trips, share in batches:
        chosen = trips if part is None else _of_agents(trips, lambda agent: part_of(agent, part[1]) == part[0])
        if len(chosen):
            yield chosen, share


def _of_agents(trips: Trajectories, wanted: Callable[[str], bool]) -> Trajectories:
    """Returns the trips of the agents for which ``wanted`` returns True."""
    mine = {agent: wanted(agent) for agent in trips.agents}
    return trips[np.array([mine[agent] for agent in trips.agent_ids.tolist()], bool)]


class Slab(NamedTuple):
    """A group of trips that is sorted by agent."""

    trips: Trajectories
    share: float
    is_last: bool


def slabs(batches: Iterable[Batch]) -> Iterator[Slab]:
    """Concatenates batches until they have :data:`SLAB_FIXES` fixes."""
    held: list[Trajectories] = []
    n, share = 0, 0.0
    for trips, now in batches:
        if n >= SLAB_FIXES:  # and this is not the last batch
            yield Slab(Trajectories.concat(held), share, False)
            held, n = [], 0
        held.append(trips)
        n, share = n + trips.n_rows, now
    if held:
        yield Slab(Trajectories.concat(held), share, True)


def agent_by_agent(trips: Trajectories) -> list[NDArray[np.int64]]:
    """Returns the positions of the trips of each job; jobs have whole agents, in the order of their hashes."""
    agents, agent = np.unique(trips.agent_ids, return_inverse=True)
    shard = np.array([shard_of(name) for name in agents.tolist()], np.int64)
    order = np.lexsort((agent, shard[agent]))
    starts = np.flatnonzero(np.diff(agent[order], prepend=-1))
    stops = np.append(starts[1:], len(order))
    sizes = np.add.reduceat(trips.lengths[order], starts)
    return [order[starts[some.start] : stops[some.stop - 1]] for some in chunks(sizes, AT_A_TIME)]


def sampled(
    batches: Iterable[Batch], seed: int, fixes: int | None = None, watch: Callable[[float], None] = lambda share: None
) -> tuple[Trajectories, bool]:
    """Returns the trips of a sample of agents with at most ``fixes`` fixes in all, and True if these are all agents.

    It takes agents by a hash of the seed and their names, lowest first. So the order of the trips does not matter, and
    the samples of all parts contain the sample of the whole.
    """
    most = fixes or SLAB_FIXES
    key = seed.to_bytes(16, "little")
    held: list[Trajectories] = []
    bound, n = EVERYBODY, 0

    def thin() -> None:
        nonlocal bound, held, n
        bound = min(bound, _bound(held, most, key))
        held = [some for trips in held if len(some := _below(bound, trips, key))]
        n = sum(trips.n_rows for trips in held)

    for batch, share in batches:
        watch(share)
        held.append(_below(bound, batch, key))
        n += held[-1].n_rows
        if n > most * 5 // 4:
            thin()
    thin()
    return Trajectories.concat(held), bound == EVERYBODY


EVERYBODY = 1 << 64
"""A number above the hash of every agent."""


def _below(bound: int, trips: Trajectories, key: bytes) -> Trajectories:
    """Returns the trips of the agents whose hash is below a bound."""
    return trips if bound == EVERYBODY else _of_agents(trips, lambda agent: _hash_of(agent, key) < bound)


def _bound(held: Iterable[Trajectories], most: int, key: bytes) -> int:
    """Returns the hash of the agent whose fixes make the sum exceed ``most``, but never that of the first agent."""
    sizes: Counter[str] = Counter()
    for trips in held:
        for agent, size in zip(trips.agent_ids.tolist(), trips.lengths.tolist(), strict=True):
            sizes[agent] += size
    total = 0
    for k, (number, size) in enumerate(sorted((_hash_of(agent, key), size) for agent, size in sizes.items())):
        total += size
        if total > most and k:
            return number
    return EVERYBODY
