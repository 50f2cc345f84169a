"""An agent's memory as bytes: what a row of a model file holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.projection import Projection
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.core.zones import Zone
from astray.features.familiarity import Frame
from astray.features.featurizer import FeaturizerConfig
from astray.features.memory import Forgetting, Memory
from astray.irl.shared import Reward
from astray.model.agent_memory import COARSE, FINE, AgentMemory
from astray.model.array_bytes import (
    KEYS,
    POSTINGS,
    TEXTS,
    as_postings,
    as_rising,
    as_texts,
    pack_arrays,
    postings,
    rising,
    texts,
    unpack_arrays,
)
from astray.model.inbox import Inbox, flags_of
from astray.model.store import Row
from astray.scoring.normality import Location
from astray.scoring.own_scale import OwnScores

Array = NDArray[Any]

_NAMED_KEYS = (*TEXTS, *TEXTS, np.float64, np.uint32, *KEYS)  # trips that wait, or that were rejected
_KEPT = (np.uint32, np.uint32, np.int64, np.int64, np.int64)  # which trips, how many fixes, time, lat, lon
_FRAME = 3  # latitude and longitude of its centre, and the offset of local time
_MEMORY = (
    *(np.float64, np.int64, np.float64),  # numbers, bits and the frame
    *(*TEXTS, np.uint32, np.float64, *POSTINGS),  # the counts; of a pool also whose each trip is
    np.float32,  # scores
    *_KEPT,
    *KEYS,  # cells
    *_NAMED_KEYS,
    *_NAMED_KEYS,
    np.uint8,  # the rest, as JSON
)


@dataclass(frozen=True)
class MemoryCodec:
    """Writes memories as bytes and reads them back, checked."""

    forgetting: Forgetting
    aspects: int
    context: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # columns of trips, numbers and texts, that are kept

    @classmethod
    def of(cls, config: FeaturizerConfig, reward: Reward) -> MemoryCodec:
        """Returns the codec of a model."""
        return cls(config.forgetting, len(reward.aspects), (config.context.numeric, config.context.categorical))

    def row(self, memory: AgentMemory) -> Row:
        """Returns a memory as a row of a model file."""
        return self.glance(memory)._replace(data=self.pack(memory))

    @staticmethod
    def glance(memory: AgentMemory) -> Row:
        """Returns the row without its bytes: what can be listed without reading a memory."""
        times = memory.counts.times
        first, last = (float(times.min()), float(times.max())) if len(times) else (np.nan, np.nan)
        waiting = bool(len(memory.inbox.waiting) or memory.inbox.asked)
        return Row(b"", len(memory.counts), first, last, waiting, str(memory.zone or ""))

    # ---------------------------------------------------------------- writing

    def pack(self, memory: AgentMemory) -> bytes:
        """Returns a memory as bytes."""
        counts, inbox, step = memory.counts, memory.inbox, memory.own.step
        pool, whose = _pack_pool(memory)
        rest: dict[str, Any] = {
            "zone": str(memory.zone or ""),
            "asked": [[list(trip) for trip in group] for group in inbox.asked],
            "suspects": [list(trip) for trip in memory.suspects],
            "pool": pool,
        }
        kept = memory.kept
        if kept is not None and any(self.context):
            numeric, categorical = self.context
            rest["numbers"] = {name: kept.context[name].astype(float).tolist() for name in numeric}
            rest["texts"] = {name: kept.context[name].astype(str).tolist() for name in categorical}
        frame = (
            ()
            if memory.frame is None
            else (memory.frame.projection.lat, memory.frame.projection.lon, memory.frame.utc_offset)
        )
        arrays = [
            np.array([*(step or (np.nan, np.nan)), inbox.tokens], np.float64),
            np.array([inbox.bits, memory.measured], np.int64),
            np.array(frame, np.float64),
            *texts(trip.trajectory for trip in counts.trip_ids),
            whose,
            counts.times,
            *postings(counts.keys, counts.trips),
            memory.own.of_aspects(self.aspects).reshape(-1),
            *_pack_kept(memory),
            rising(memory.cells),
            *_pack_named(inbox.waiting),
            *_pack_named(inbox.rejected),
            np.frombuffer(json.dumps(rest, separators=(",", ":"), allow_nan=False).encode(), np.uint8),
        ]
        return pack_arrays(arrays)

    # ---------------------------------------------------------------- reading

    def unpack(self, data: bytes) -> AgentMemory:
        """Returns the memory that :meth:`pack` wrote; raises ``ValueError`` if the bytes hold none."""
        parts = iter(unpack_arrays(data, _MEMORY))

        def take(n: int) -> list[Array]:
            return [next(parts) for _ in range(n)]

        numbers, bits, place = take(3)
        frame = _unpack_frame(place)
        if len(numbers) != 3 or len(bits) != 2 or bits[0] < 1 or bits[1] not in (0, 1) or not np.isfinite(numbers[2]):
            raise ValueError("its numbers are not those of an agent")
        names, (whose, times) = as_texts(take(2)), take(2)
        n, posted = len(names), take(3)
        (scores,), kept, (cells,), waiting, rejected, (text,) = (take(k) for k in (1, 5, 1, 7, 7, 1))
        rest = json.loads(text.tobytes())
        if len(times) != n or not np.isfinite(times).all():
            raise ValueError("its trips do not fit together")
        ids = tuple(map(TripId, _whose(n, whose, rest["pool"]), names))
        if len(set(ids)) < n:
            raise ValueError("its trips do not fit together")
        counts = Memory(ids, times, *as_postings(posted, n), self.forgetting)
        inbox = Inbox(
            _unpack_named(waiting),
            _unpack_named(rejected),
            tuple(_trip_ids(group) for group in rest["asked"]),
            float(numbers[2]),
            flags_of(int(bits[0])),
        )
        return AgentMemory(
            counts,
            self._unpack_kept(counts, kept, frame, rest),
            self._own(scores, n, numbers[:2]),
            bool(bits[1]),
            inbox,
            as_rising(cells),
            Zone.of(rest["zone"]) if rest["zone"] else None,
            frame,
            _trip_ids(rest["suspects"]),
        )

    def _own(self, scores: Array, n: int, step: Array) -> OwnScores:
        if len(scores) != n * 2 * self.aspects or (np.isnan(step).any() and not np.isnan(step).all()):
            raise ValueError("its scores are not one for each trip")
        location = None if np.isnan(step).any() else Location(*step.tolist())
        return OwnScores(scores.reshape(n, 2, self.aspects), location)

    def _unpack_kept(
        self, counts: Memory, kept: Sequence[Array], frame: Frame | None, rest: dict[str, Any]
    ) -> Trajectories | None:
        which, lengths, *columns = kept
        n_fixes = int(lengths.sum(dtype=np.int64))
        if (
            len(which) != len(lengths)
            or any(len(c) != n_fixes for c in columns)
            or (len(which) and which.max() >= len(counts))
        ):
            raise ValueError("its trips do not fit together")
        if not len(which):
            return None
        precision = COARSE if frame is None else FINE
        time, lat, lon = (np.cumsum(c) / per for c, per in zip(columns, precision.values(), strict=True))
        context: dict[str, Array] = {}
        if any(self.context):
            context = {name: np.array(rest["numbers"][name], np.float64) for name in self.context[0]}
            context |= {name: np.array(rest["texts"][name], np.str_) for name in self.context[1]}
        ids = [counts.trip_ids[i] for i in which.tolist()]
        offsets = np.cumsum(np.r_[0, lengths.astype(np.int64)])
        later = np.diff(time, prepend=time[:1])
        later[offsets[:-1][lengths > 0]] = 0.0
        possible = (
            (lengths > 0).all() and (later >= 0).all() and (np.abs(lat) <= 90).all() and (np.abs(lon) <= 360).all()
        )
        if not possible or any(len(values) != len(ids) for values in context.values()):
            raise ValueError("no agent can make its trips")
        agents, names = (np.array(part) for part in zip(*ids, strict=True))
        return Trajectories.unchecked({"time": time, "lat": lat, "lon": lon}, offsets, agents, names, context)


def _pack_pool(memory: AgentMemory) -> tuple[list[str], Array]:
    """Returns the agents whose trips these are and, where they are several, the number of each trip's agent."""
    agents = list(dict.fromkeys(trip.agent for trip in memory.counts.trip_ids))
    if len(agents) < 2:
        return agents, np.zeros(0, np.uint32)
    number = {agent: i for i, agent in enumerate(agents)}
    return agents, np.array([number[trip.agent] for trip in memory.counts.trip_ids], np.uint32)


def _whose(n: int, whose: Array, pool: Sequence[str]) -> Iterator[str]:
    if len(pool) == 1 and not len(whose):
        return iter([str(pool[0])] * n)
    if len(whose) != n or (n and whose.max() >= len(pool)):
        raise ValueError("its trips are of agents that it does not name")
    return (str(pool[i]) for i in whose.tolist())


def _pack_kept(memory: AgentMemory) -> list[Array]:
    kept = memory.kept
    if kept is None:
        return [np.zeros(0, t) for t in _KEPT]
    which = replace(memory.counts).number_of(kept.ids)
    precision = COARSE if memory.frame is None else FINE
    whole = [np.rint(kept.columns[name] * per).astype(np.int64) for name, per in precision.items()]
    return [which.astype(np.uint32), kept.lengths.astype(np.uint32), *(np.diff(v, prepend=0) for v in whole)]


def _unpack_frame(numbers: Array) -> Frame | None:
    if len(numbers) not in (0, _FRAME) or not np.isfinite(numbers).all():
        raise ValueError("its frame is not a place and a local time")
    if not len(numbers):
        return None
    lat, lon, utc_offset = numbers.tolist()
    return Frame(Projection(lat, lon), utc_offset)


def _trip_ids(pairs: Sequence[Sequence[str]]) -> tuple[TripId, ...]:
    return tuple(TripId(str(agent), str(trip)) for agent, trip in pairs)


def _pack_named(memory: Memory) -> list[Array]:
    """Packs trips that wait or were rejected: their names, times and keys."""
    keys = memory.keys[np.argsort(memory.trips, kind="stable")]
    return [
        *texts(trip.agent for trip in memory.trip_ids),
        *texts(trip.trajectory for trip in memory.trip_ids),
        memory.times,
        np.bincount(memory.trips, minlength=len(memory)).astype(np.uint32),
        keys,
    ]


def _unpack_named(arrays: Sequence[Array]) -> Memory:
    agents, trajectories = as_texts(arrays[:2]), as_texts(arrays[2:4])
    times, sizes, keys = arrays[4:]
    if len({len(agents), len(trajectories), len(times), len(sizes)}) > 1 or sizes.sum(dtype=np.int64) != len(keys):
        raise ValueError("its waiting trips do not fit together")
    ids = list(map(TripId, agents, trajectories))
    if len(set(ids)) < len(ids) or not np.isfinite(times).all():
        raise ValueError("its waiting trips do not fit together")
    cut = np.split(keys, np.cumsum(sizes)[:-1]) if len(ids) else []
    return Memory().add(dict(zip(ids, cut, strict=True)), dict(zip(ids, times.tolist(), strict=True)))
