"""The inbox of an agent: trips that were flagged and not learned from, until a person has spoken about them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.trip_ids import TripId
from astray.features.memory import Memory
from astray.model.packing import Contents
from astray.model.parts import Packed, pack_ids, unpack_ids

Array = NDArray[Any]


@dataclass(frozen=True)
class ObservingConfig:
    """What becomes of flagged trips: when a question is asked, and when habits are said to drift."""

    alike: float = 0.1  # share of what is new about two trips that alike ones have in common
    together: int = 2  # alike trips, at least, that a question is about
    tokens: float = 2.0  # at first; a question costs one
    tokens_a_trip: float = 0.05  # that each trip adds
    most_tokens: float = 5.0  # that may be saved up
    most_waiting: int = 50  # trips that wait; the oldest leave
    doubt: float = 2.0  # times the share of flagged trips lately: a trip is learned if its p-value is higher,
    most_doubt: float = 0.5  # or higher than this
    lately: int = 20  # last trips of which it is known whether they were flagged
    drifting: int = 5  # flagged trips among these, at least, that are a drift


@dataclass(frozen=True, eq=False)
class Inbox:
    """Trips of an agent that were flagged and not learned from.

    Attributes
    ----------
    waiting, rejected
        Those that nobody has spoken about, and those that proved not to be the agent's.
    asked
        The groups of waiting trips that a person was asked about and has not answered.
    tokens
        How many questions may be asked.
    flags
        Whether each of the last trips was flagged.
    """

    waiting: Memory = field(default_factory=Memory)
    rejected: Memory = field(default_factory=Memory)
    asked: tuple[tuple[TripId, ...], ...] = ()
    tokens: float = ObservingConfig.tokens
    flags: tuple[bool, ...] = ()

    @property
    def bits(self) -> int:
        """The flags as a number: a leading one, then a bit for each."""
        return int("1" + "".join("1" if flag else "0" for flag in self.flags), 2)

    def with_flag(self, flagged: bool, config: ObservingConfig) -> Inbox:
        """One more trip has come, flagged or not."""
        tokens = min(self.tokens + config.tokens_a_trip, config.most_tokens)
        return replace(self, tokens=tokens, flags=(*self.flags, flagged)[-config.lately :])

    def without(self, trips: Collection[TripId]) -> Inbox:
        """The same after somebody has decided on some waiting trips; a question that keeps one trip is closed."""
        gone = set(trips)
        left = [(group, tuple(t for t in group if t not in gone)) for group in self.asked]
        asked = tuple(now for before, now in left if now == before or len(now) > 1)
        return replace(self, waiting=self.waiting.remove(gone), asked=asked)

    def reject(self, trips: Collection[TripId]) -> Inbox:
        """The same after some of the waiting trips proved not to be the agent's: what is alike is refused from then."""
        proved = self.waiting.remove(set(self.waiting.trip_ids) - set(trips))
        return replace(self.without(trips), rejected=self.rejected.merge(proved))

    def know(self, proved: Memory) -> Inbox:
        """The same, with further trips that proved not to be the agent's."""
        return replace(self, rejected=self.rejected.merge(proved.remove(self.rejected.trip_ids)))

    def allow(self, names: Collection[TripId]) -> Inbox:
        """The same after some trips, rejected or not, proved to be the agent's."""
        return replace(self, rejected=self.rejected.remove(names))

    def add(self, trip: Memory, config: ObservingConfig) -> Inbox:
        """One more trip waits; the oldest may have to go."""
        waiting = self.waiting.merge(trip)
        gone = set(waiting.trip_ids[: max(len(waiting) - config.most_waiting, 0)])
        asked = tuple(group for group in self.asked if not gone.intersection(group))
        return replace(self, waiting=waiting.remove(gone), asked=asked)


# -------------------------------------------------------------------- as a file holds them


KINDS = ("waiting", "rejected")


def pack_inbox(name: str, inbox: Inbox) -> Packed:
    """Packs an inbox: all trips that wait or were rejected, and which of the two."""
    memories = [inbox.waiting, inbox.rejected]
    keys, sizes = zip(*map(postings_by_trip, memories), strict=True)
    arrays = {
        **pack_ids(f"{name}.trip_ids", [t for m in memories for t in m.trip_ids]),
        f"{name}.kind": np.repeat(np.arange(len(KINDS), dtype=np.int64), [len(m) for m in memories]),
        f"{name}.times": np.concatenate([m.times for m in memories]),
        f"{name}.keys": np.concatenate(keys),
        f"{name}.sizes": np.concatenate(sizes),
        f"{name}.tokens": np.array([inbox.tokens], np.float64),
        f"{name}.flags": np.array([inbox.bits], np.int64),
    }
    return Packed({f"{name}.asked": inbox.asked}, arrays)


def postings_by_trip(memory: Memory) -> tuple[Array, Array]:
    """The keys of a memory, trip by trip, and how many each trip has."""
    return memory.keys[np.argsort(memory.trips, kind="stable")], np.bincount(memory.trips, minlength=len(memory))


def flags_of(bits: int) -> tuple[bool, ...]:
    """The flags that :attr:`Inbox.bits` made into a number."""
    return tuple(bit == "1" for bit in f"{bits:b}"[1:])


def unpack_inbox(model: Contents, name: str) -> Inbox:
    """Returns the inbox that :func:`pack_inbox` packed."""
    ids = unpack_ids(model, f"{name}.trip_ids")
    kind = model.array(f"{name}.kind", np.int64, len(ids))
    times = model.array(f"{name}.times", np.float64, len(ids))
    sizes = model.array(f"{name}.sizes", np.int64, len(ids))
    keys = model.array(f"{name}.keys", np.uint64, None)
    tokens = float(model.array(f"{name}.tokens", np.float64, 1)[0])
    bits = int(model.array(f"{name}.flags", np.int64, 1)[0])
    asked = model.value(f"{name}.asked", tuple[tuple[tuple[str, str], ...], ...])
    whole = (sizes >= 0).all() and sizes.sum() == len(keys) and bits > 0
    if not whole or not np.isin(kind, range(len(KINDS))).all():
        raise model.wrong(f"the trips of {name} do not fit together")
    cuts = np.r_[0, np.cumsum(sizes)]
    memories: list[Memory] = [Memory() for _ in KINDS]
    for k, trip in enumerate(ids):
        memory = memories[kind[k]]
        memories[kind[k]] = memory.add({trip: keys[cuts[k] : cuts[k + 1]]}, {trip: float(times[k])})
    groups = tuple(tuple(TripId(*trip) for trip in group) for group in asked)
    waiting, rejected = memories
    return Inbox(waiting, rejected, groups, tokens, flags_of(bits))
