"""Which trips a job has: those of one part of the agents, sorted by agent, some agents at a time; or of a sample."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.trajectories import Trajectories
from astray.model.store import shard_of
from astray.scoring.scores import chunks

Array = NDArray[Any]

Batch = tuple[Trajectories, float]
"""Some trips, and which share of everything had been read when they came."""

SLAB_FIXES = 8_000_000
"""Fixes of a fleet's trips that are sorted by agent together: what is known of an agent is then read once for many."""

AT_A_TIME = 100_000
"""Fixes of a fleet's trips, about, that a job has."""


def part_of(agent: str, n: int) -> int:
    """Which of ``n`` parts, from 1 on, an agent belongs to; the same in every process and on every machine.

    >>> [part_of(agent, 4) for agent in ("ana", "bob", "cem")]
    [2, 1, 4]
    """
    told = hashlib.blake2b(agent.encode(), digest_size=8).digest()
    return 1 + int.from_bytes(told, "little") % n


def in_part(batches: Iterable[Batch], part: tuple[int, int] | None) -> Iterator[Batch]:
    """The trips of those agents that belong to a part (number, of how many): by a hash of the agent's name."""
    for trips, share in batches:
        if part is None:
            yield trips, share
            continue
        number, n = part
        mine = {agent: part_of(agent, n) == number for agent in trips.agents}
        chosen = trips[np.array([mine[agent] for agent in trips.agent_ids.tolist()], bool)]
        if len(chosen):
            yield chosen, share


class Slab(NamedTuple):
    """Trips that are sorted by agent together."""

    trips: Trajectories
    share: float
    is_last: bool


def slabs(batches: Iterable[Batch]) -> Iterator[Slab]:
    """Batches put together until they have :data:`SLAB_FIXES` fixes."""
    held: list[Trajectories] = []
    n, share = 0, 0.0
    for trips, now in batches:
        if n >= SLAB_FIXES:  # and there is something after it
            yield Slab(Trajectories.concat(held), share, False)
            held, n = [], 0
        held.append(trips)
        n, share = n + trips.n_rows, now
    if held:
        yield Slab(Trajectories.concat(held), share, True)


def by_hash(trips: Trajectories) -> NDArray[np.int64]:
    """The order in which the trips of each agent stand together, agents by a hash of their names."""
    agents, agent = np.unique(trips.agent_ids, return_inverse=True)
    shard = np.array([shard_of(name) for name in agents.tolist()], np.int64)
    return np.lexsort((agent, shard[agent]))


def agents_together(trips: Trajectories, order: Array) -> list[slice]:
    """Pieces of trips in an order agent by agent, none of which ends within an agent."""
    ids, lengths = trips.agent_ids[order], trips.lengths[order]
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
    stops = [*starts[1:].tolist(), len(ids)]
    pieces = chunks(np.add.reduceat(lengths, starts), AT_A_TIME)
    return [slice(int(starts[some.start]), stops[some.stop - 1]) for some in pieces]


def sampled(
    batches: Iterable[Batch], seed: int, fixes: int | None = None, watch: Callable[[float], None] = lambda share: None
) -> tuple[Trajectories, bool]:
    """The trips of some agents, and whether these are all: as many agents as have at most so many fixes together.

    They are those with the lowest hashes of the seed and their names. So it does not matter in which order the trips
    come, and samples of parts have the sample of the whole in them.
    """
    most = fixes or SLAB_FIXES
    held: list[Trajectories] = []
    bound, n = 1 << 64, 0
    hashes: dict[str, int] = {}

    def below(trips: Trajectories) -> Trajectories:
        for agent in trips.agents:
            hashes.setdefault(agent, _seeded(agent, seed))
        return trips[np.array([hashes[agent] < bound for agent in trips.agent_ids.tolist()], bool)]

    def thinned() -> int:
        """The hash from which on agents are too many."""
        sizes: dict[str, int] = {}
        for trips in held:
            for agent, size in zip(trips.agent_ids.tolist(), trips.lengths.tolist(), strict=True):
                sizes[agent] = sizes.get(agent, 0) + size
        total = 0
        for k, agent in enumerate(sorted(sizes, key=hashes.__getitem__)):
            total += sizes[agent]
            if total > most and k:  # somebody is learned from, however many trips that are
                return hashes[agent]
        return bound

    def thin() -> None:
        nonlocal bound, held, n, hashes
        bound = thinned()
        held = [some for some in map(below, held) if len(some)]
        n = sum(trips.n_rows for trips in held)
        hashes = {agent: number for agent, number in hashes.items() if number < bound}

    for batch, share in batches:
        watch(share)
        held.append(below(batch))
        n += held[-1].n_rows
        if n > most * 5 // 4:
            thin()
    thin()
    return Trajectories.concat(held), bound == 1 << 64


def _seeded(agent: str, seed: int) -> int:
    told = hashlib.blake2b(agent.encode(), digest_size=8, key=seed.to_bytes(16, "little")).digest()
    return int.from_bytes(told, "little")
