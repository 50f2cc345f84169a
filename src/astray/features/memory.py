"""Memory: an agent's past trips, as sparse counts.

A memory holds keys (hashes of "this cell", "this cell at this hour", ...) and, for each key, the trips in which it
occurred. The reward is the same for all agents, so agents differ only by their memories: adding trips enrols an agent
or lets it learn online, and removing trips makes it forget.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypeVar

from astray.core.errors import DataError
from astray.core.trip_ids import TripId
from astray.features.hashing import changes

Array = NDArray[Any]
Name = TypeVar("Name", TripId, str, default=TripId)
"""The names of what a memory counts: ids of trips, or agents, if it counts the agents that go to a place."""


A_FEW = 64  # up to this number of keys, bisection is fast enough
BISECTED = 16  # without a look-up table, bisect if the memory holds this many times more keys than are looked up


@dataclass(frozen=True)
class Forgetting:
    """The rules by which a memory forgets; by default it keeps everything."""

    max_trips: int | None = None  # the number of newest trips to keep
    window: float | None = None  # forget trips that are more than this many seconds older than the newest
    half_life: float | None = None  # seconds after which the weight of a trip has halved

    def __post_init__(self) -> None:
        for name in ("max_trips", "window", "half_life"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise DataError(f"{name} is {value}", remedy="give a number above 0, or None to switch it off")


@dataclass(frozen=True, eq=False)
class Memory(Generic[Name]):
    """The past trips of one agent. Adding and removing return a new memory; the old one does not change.

    Attributes
    ----------
    trip_ids, times
        The remembered trips, and when each was made (seconds since 1970).
    keys, trips
        The postings: ``keys[i]`` occurred in trip number ``trips[i]``; sorted by key, then trip, without duplicates.

    Examples
    --------
    >>> key = np.array([7, 8, 9], np.uint64)
    >>> memory = Memory().add({"monday": key[:2], "tuesday": key[1:]})
    >>> memory.counts(key).tolist()
    [1.0, 2.0, 1.0]
    >>> memory.counts(key, without=np.array([1, 1, 1])).tolist()   # ignoring tuesday
    [1.0, 1.0, 0.0]
    >>> memory.remove(["monday"]).counts(key).tolist()
    [0.0, 1.0, 1.0]
    """

    trip_ids: tuple[Name, ...] = ()
    times: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    keys: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    trips: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    forgetting: Forgetting = Forgetting()

    def __len__(self) -> int:
        return len(self.trip_ids)

    # ---------------------------------------------------------------- changing

    def add(self, trips: Mapping[Name, Array], times: Mapping[Name, float] | None = None) -> Memory[Name]:
        """Returns a memory with further trips, given the keys in each, in any order; repeated keys count once."""
        keys = [np.asarray(k, np.uint64) for k in trips.values()]
        number = np.repeat(np.arange(len(keys), dtype=np.int32), [len(k) for k in keys])
        new = Memory(
            tuple(trips),
            np.array([0.0 if times is None else times[t] for t in trips]),
            *_postings(np.concatenate(keys) if keys else self.keys[:0], number),
        )
        return self.merge(new)

    def merge(self, other: Memory[Name]) -> Memory[Name]:
        """Returns a memory with the trips of both, which forgets by this one's rules."""
        known = set(self.trip_ids).intersection(other.trip_ids)
        if known:
            raise DataError(
                f"trip {str(min(known))!r} is remembered already", remedy="remove it first, or give it another id"
            )
        # The other trips get the higher numbers, so their postings come after those of this memory with equal keys.
        at = np.searchsorted(self.keys, other.keys, side="right")
        merged = Memory(
            self.trip_ids + other.trip_ids,
            np.concatenate([self.times, other.times]),
            np.insert(self.keys, at, other.keys),
            np.insert(self.trips, at, other.trips + np.int32(len(self))),
            self.forgetting,
        )
        return merged._forget()

    def ordered(self) -> Memory[Name]:
        """Returns the same memory with its trips sorted by time, then by name.

        >>> key = np.array([7], np.uint64)
        >>> memory = Memory().add({"late": key, "early": key}, {"late": 9.0, "early": 5.0})
        >>> memory.ordered().trip_ids, memory.ordered().times.tolist()
        (('early', 'late'), [5.0, 9.0])
        """
        order = sorted(range(len(self)), key=lambda i: (self.times[i], self.trip_ids[i]))
        if order == list(range(len(self))):
            return self
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        trips = rank[self.trips]
        at = np.lexsort((trips, self.keys))
        ids = tuple(self.trip_ids[i] for i in order)
        return Memory(ids, self.times[order], self.keys[at], trips[at], self.forgetting)

    def remove(self, trip_ids: Iterable[Name]) -> Memory[Name]:
        """Returns a memory without some trips, as if they had never been added; ignores unknown ids."""
        gone = set(trip_ids)
        return self._keep(np.array([t not in gone for t in self.trip_ids], bool))

    def _forget(self) -> Memory[Name]:
        rule = self.forgetting
        keep = np.ones(len(self), bool)
        if rule.window is not None and len(self):
            keep &= self.times >= self.times.max() - rule.window
        if rule.max_trips is not None and keep.sum() > rule.max_trips:
            # Among trips made at the same time, the one added last counts as the newest.
            oldest_first = np.argsort(np.where(keep, self.times, -np.inf), kind="stable")
            keep[oldest_first[: len(self) - rule.max_trips]] = False
        return self._keep(keep)

    def _keep(self, keep: Array) -> Memory[Name]:
        if keep.all():
            return self
        number = np.cumsum(keep, dtype=np.int32) - np.int32(1)
        stays = keep[self.trips]
        return Memory(
            tuple(t for t, k in zip(self.trip_ids, keep, strict=True) if k),
            self.times[keep],
            self.keys[stays],
            number[self.trips[stays]],
            self.forgetting,
        )

    # ---------------------------------------------------------------- looking up

    @cached_property
    def _weights(self) -> NDArray[np.float64]:
        """Returns the weight of each trip."""
        if self.forgetting.half_life is None or not len(self):
            return np.ones(len(self))
        age: Array = self.times.max() - self.times
        return np.asarray(0.5 ** (age / self.forgetting.half_life))

    @cached_property
    def _index(self) -> _Index:
        return _Index.of(self.keys, self.trips, self._weights)

    @cached_property
    def history(self) -> float:
        """Returns the sum of the weights of all trips; without a half-life, their number."""
        return float(self._weights.sum())

    def counts(self, keys: Array, without: Array | None = None) -> NDArray[np.float32]:
        """Returns the number of trips in which each key occurred, by weight.

        ``without`` (broadcast against ``keys``) gives, for each key, the number of a trip to ignore; -1 for none. So a
        remembered trip can be scored as if it were new.
        """
        flat = np.ascontiguousarray(keys, np.uint64).reshape(-1)
        held_out = None if without is None else np.broadcast_to(without, keys.shape).reshape(-1)
        if self._are_few(flat, held_out):
            return self._bisect(flat, held_out).reshape(keys.shape)
        at = self._index.find(flat)
        counts = self._index.count.take(at)
        if held_out is not None:
            own, left = self._counts_without(at, held_out)
            counts[own] = left
        return counts.reshape(keys.shape)

    def earlier_counts(self, keys: Array, before: Array) -> NDArray[np.float32]:
        """Returns the number of early trips in which each key occurred, by weight, as a memory of them alone counts.

        ``before`` gives, for each key, how many of the first trips to count. The trips must be :meth:`ordered`, so
        these are the earliest ones. So each remembered trip can be scored by what came before it.

        >>> key = np.array([7, 7, 7], np.uint64)
        >>> memory = Memory().add({"a": key, "b": key[:0], "c": key}, {"a": 1.0, "b": 2.0, "c": 3.0})
        >>> memory.earlier_counts(key, np.array([0, 2, 3])).tolist()
        [0.0, 1.0, 2.0]
        """
        if self._are_few(keys, None):
            start, end = self.keys.searchsorted(keys), self.keys.searchsorted(keys, side="right")
            end = _first_from(self.trips, start, end, before)
        else:
            at = self._index.find(keys)
            start, end = self._index.starts.take(at), self._index.first_from(at, before)
        there = end - start
        if self.forgetting.half_life is None:
            return np.asarray(there, np.float32)
        found = np.zeros(len(keys))
        some = np.flatnonzero(there)
        last = self.trips[end[some] - 1]
        found[some] = self._decayed[end[some] - 1] * self._decay(self.times[before[some] - 1] - self.times[last])
        return found.astype(np.float32)

    def earlier_history(self, before: Array) -> NDArray[np.float64]:
        """Returns the :attr:`history` of a memory of the first trips alone, for each number of them in ``before``."""
        if self.forgetting.half_life is None:
            return np.asarray(before, np.float64)
        decayed = self._summed(np.zeros(len(self), np.int64), self.times)
        return np.asarray(np.append(decayed, 0.0)[np.asarray(before) - 1])

    @cached_property
    def _decayed(self) -> NDArray[np.float64]:
        """Returns, for each posting, the weight of its key's postings up to this one, at the time of this one."""
        return self._summed(self.keys, self.times[self.trips])

    def _decay(self, age: Array) -> NDArray[np.float64]:
        assert self.forgetting.half_life is not None
        return np.asarray(0.5 ** (age / self.forgetting.half_life))

    def _summed(self, groups: Array, times: Array) -> NDArray[np.float64]:
        """Returns the weights of each group's entries up to each one, summed, as they are at the time of that one."""
        found, step = np.ones(len(times)), 1
        # Each round doubles the number of entries that a sum covers, so it is exact however old the entries are.
        while step < len(times) and (same := groups[step:] == groups[:-step]).any():
            found[step:] += np.where(same, self._decay(times[step:] - times[:-step]) * found[:-step], 0.0)
            step *= 2
        return found

    def log_counts(self, keys: Array, without: Array | None = None, before: Array | None = None) -> NDArray[np.float32]:
        """Returns log(1 + count) of each key of a flat array.

        ``without`` is as in :meth:`counts`, ``before`` as in :meth:`earlier_counts`.
        """
        if before is not None:
            return np.log1p(self.earlier_counts(keys, before))
        if self._are_few(keys, without):
            return np.log1p(self._bisect(keys, without))
        at = self._index.find(keys)
        logs = self._index.log_count.take(at)
        if without is not None:
            own, left = self._counts_without(at, without)
            logs[own] = np.log1p(left)
        return logs

    def _are_few(self, keys: Array, without: Array | None) -> bool:
        """Returns True if bisection finds the keys faster than building a look-up table would take.

        A table for each of many agents would also take much memory.
        """
        if len(keys) <= A_FEW:
            return True
        can_bisect = without is None and self.forgetting.half_life is None and "_index" not in vars(self)
        return can_bisect and BISECTED * len(keys) < len(self.keys)

    def _bisect(self, keys: Array, without: Array | None) -> NDArray[np.float32]:
        """Counts a few keys by bisection, without building a look-up table."""
        low, high = self.keys.searchsorted(keys), self.keys.searchsorted(keys, side="right")
        counts = np.asarray(high - low, np.float32)
        if self.forgetting.half_life is not None:
            for i in np.flatnonzero(high > low):
                counts[i] = np.add.reduceat(self._weights[self.trips[low[i] : high[i]]], [0])[0]
        if without is not None:
            for i in np.flatnonzero((high > low) & (without >= 0)):
                if without[i] in self.trips[low[i] : high[i]]:
                    counts[i] = max(counts[i] - np.float32(self._weights[without[i]]), np.float32(0))
        return counts

    def _counts_without(self, at: Array, without: Array) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Returns the positions of keys that occurred in the trip to ignore, and their counts without it."""
        index = self._index
        own = np.flatnonzero((at > 0) & (without >= 0))
        own = own[index.holds(at[own], without[own])]
        left = index.count[at[own]] - self._weights[without[own]].astype(np.float32)
        return own, np.maximum(left, np.float32(0))

    def number_of(self, trip_ids: Iterable[Name]) -> NDArray[np.int64]:
        """Returns the number of each trip, for ``without``; -1 for trips that are not remembered."""
        numbers = self._numbers
        return np.array([numbers.get(t, -1) for t in trip_ids], np.int64)

    @cached_property
    def _numbers(self) -> dict[Name, int]:
        return {t: i for i, t in enumerate(self.trip_ids)}


def _postings(keys: Array, trips: Array) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Returns pairs of key and trip sorted by key, then trip, without duplicates."""
    order = np.lexsort((trips, keys))
    keys, trips = keys[order], trips[order]
    new = changes(keys) | changes(trips)
    return keys[new], trips[new]


def index_of_counts(keys: NDArray[np.uint64], counts: Array) -> _Index:
    """Builds a look-up table of distinct, sorted keys with known counts."""
    return _Index.of(keys, np.arange(len(keys), dtype=np.int32), counts.astype(np.float64))


def _first_from(trips: Array, start: Array, end: Array, trip: Array) -> NDArray[np.int64]:
    """Returns the first posting from ``start`` to ``end`` that is of the given trip or a later one, else ``end``."""
    found = start.astype(np.int64)
    step = 1 << int((end - found).max(initial=0)).bit_length() >> 1  # 0 if there are no postings
    while step:  # passes ``step`` postings if the last of them is of an earlier trip
        last = found + (step - 1)
        earlier = last < end
        earlier &= trips.take(last, mode="clip") < trip
        found += step * earlier
        step >>= 1
    return found


@dataclass(frozen=True)
class _Index:
    """Distinct keys with their counts, and a look-up table by the leading bits of the keys.

    The keys are hashes and thus evenly spread: with about as many buckets as keys, a look-up reads one bucket and one
    or two keys, whereas a binary search would miss the cache twenty times.
    """

    keys: NDArray[np.uint64]
    count: NDArray[np.float32]
    log_count: NDArray[np.float32]  # log(1 + count), stored because it is faster to look up than to compute
    bucket: NDArray[np.int32]
    shift: np.uint64
    starts: NDArray[np.int64]
    trips: NDArray[np.int32]

    @classmethod
    def of(cls, keys: Array, trips: Array, weights: Array) -> _Index:
        starts = np.flatnonzero(changes(keys))
        distinct = keys[starts]
        plain = len(weights) == 0 or bool((weights == 1.0).all())
        if plain:
            count = np.diff(np.r_[starts, len(keys)])
        else:
            count = np.add.reduceat(weights[trips], starts) if len(starts) else np.zeros(0)
        bits = max(1, len(distinct).bit_length())
        shift = np.uint64(64 - bits)
        sizes = np.bincount((distinct >> shift).astype(np.int64), minlength=1 << bits)
        bucket = (np.cumsum(sizes) - sizes + 1).astype(np.int32)
        # The entry before the first means "not found"; the one past the last ends every search.
        count = np.r_[0, count, 0].astype(np.float32)
        return cls(
            np.r_[np.uint64(0), distinct, np.uint64(0xFFFF_FFFF_FFFF_FFFF)],
            count,
            np.log1p(count),
            bucket,
            shift,
            np.r_[0, starts, len(keys), len(keys)],
            np.append(trips, np.int32(-1)),
        )

    def find(self, keys: Array) -> NDArray[np.int32]:
        """Returns the position of each key among the distinct ones; 0 if it is not there."""
        at = self.bucket.take((keys >> self.shift).view(np.int64))
        there = self.keys.take(at)
        # The keys of a bucket are sorted: advance to the first that is not lower.
        lower = np.flatnonzero(there < keys)
        while len(lower):
            after = at.take(lower) + 1
            next_ = self.keys.take(after)
            at[lower], there[lower] = after, next_
            lower = lower.take(np.flatnonzero(next_ < keys.take(lower)))
        at *= there == keys
        return at

    def first_from(self, at: Array, trip: Array) -> NDArray[np.int64]:
        """Returns the first posting of the key at a position that is of the given trip or a later one, by bisection.

        If there is none, this is the posting after the key's last one.
        """
        return _first_from(self.trips, self.starts.take(at), self.starts.take(at + 1), trip)

    def holds(self, at: Array, trip: Array) -> NDArray[np.bool_]:
        """Returns True where the key at a position occurred in the given trip."""
        found = self.first_from(at, trip)
        return np.asarray((found < self.starts.take(at + 1)) & (self.trips.take(found) == trip))
