"""Converts to bytes and back what a store keeps: the memory of each agent, and the popularity of places."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
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
from astray.features.popularity import Counted, Popularity, Visits
from astray.irl.shared import Reward
from astray.model.agent_memory import COARSE, FINE, AgentMemory
from astray.model.array_bytes import (
    KEYS,
    POSTINGS,
    TEXTS,
    TRIP_IDS,
    as_postings,
    as_rising,
    as_texts,
    as_trip_ids,
    pack_arrays,
    postings,
    rising,
    texts,
    trip_ids,
    unpack_arrays,
)
from astray.model.inbox import Inbox, flags_of
from astray.model.store import ANOMALOUS, POPULARITY, Row, Store
from astray.scoring.normality import Location
from astray.scoring.own_scale import SCALES, OwnScores

Array = NDArray[Any]

_NAMED_KEYS = (*TRIP_IDS, np.float64, np.uint32, *KEYS)  # trips that wait, or that were rejected
_KEPT = (np.uint32, np.uint32, np.int64, np.int64, np.int64)  # which trips, how many fixes, time, lat, lon
_PARTS = {
    "numbers": (np.float64,),
    "bits": (np.int64,),
    "frame": (np.float64,),
    "ids": TRIP_IDS,
    "times": (np.float64,),
    "postings": POSTINGS,
    "scores": (np.float32,),
    "kept": _KEPT,
    "cells": KEYS,
    "waiting": _NAMED_KEYS,
    "rejected": _NAMED_KEYS,
    "rest": (np.uint8,),  # as JSON
}
"""The parts of a memory, in their order, with the types of their arrays."""
MEMORY = tuple(dtype for dtypes in _PARTS.values() for dtype in dtypes)


@dataclass(frozen=True)
class MemoryCodec:
    """Writes memories as bytes and reads them back, checked."""

    forgetting: Forgetting
    aspects: int
    context: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # context columns to keep: numbers, texts

    @classmethod
    def of(cls, config: FeaturizerConfig, reward: Reward) -> MemoryCodec:
        """Returns the codec of a model."""
        return cls(config.forgetting, len(reward.aspects), (config.context.numeric, config.context.categorical))

    def row(self, memory: AgentMemory) -> Row:
        """Returns a memory as a row of a model file."""
        return self.glance(memory)._replace(data=self.pack(memory))

    @staticmethod
    def glance(memory: AgentMemory) -> Row:
        """Returns the row without its bytes, as lists show it."""
        times = memory.counts.times
        first, last = (float(times.min()), float(times.max())) if len(times) else (np.nan, np.nan)
        waiting = bool(len(memory.inbox.waiting) or memory.inbox.asked)
        return Row(b"", len(memory.counts), first, last, waiting, str(memory.zone or ""))

    # ---------------------------------------------------------------- writing

    def pack(self, memory: AgentMemory) -> bytes:
        """Returns a memory as bytes."""
        counts, inbox, step, kept = memory.counts, memory.inbox, memory.own.step, memory.kept
        rest: dict[str, Any] = {
            "zone": str(memory.zone or ""),
            "asked": [[list(trip) for trip in group] for group in inbox.asked],
            "suspects": [list(trip) for trip in memory.suspects],
        }
        if kept is not None and any(self.context):
            numeric, categorical = self.context
            rest["numbers"] = {name: kept.context[name].astype(float).tolist() for name in numeric}
            rest["texts"] = {name: kept.context[name].astype(str).tolist() for name in categorical}
        frame = memory.frame
        place = [] if frame is None else [frame.projection.lat, frame.projection.lon, frame.utc_offset]
        parts: dict[str, Sequence[Array]] = {
            "numbers": [np.array([*(step or (np.nan, np.nan)), inbox.tokens], np.float64)],
            "bits": [np.array([inbox.bits, memory.measured], np.int64)],
            "frame": [np.array(place, np.float64)],
            "ids": trip_ids(counts.trip_ids),
            "times": [counts.times],
            "postings": postings(counts.keys, counts.trips),
            "scores": [memory.own.of_aspects(self.aspects).reshape(-1)],
            "kept": _pack_kept(memory),
            "cells": [rising(memory.cells)],
            "waiting": _pack_named(inbox.waiting),
            "rejected": _pack_named(inbox.rejected),
            "rest": [np.frombuffer(json.dumps(rest, separators=(",", ":"), allow_nan=False).encode(), np.uint8)],
        }
        return pack_arrays([array for name in _PARTS for array in parts[name]])

    # ---------------------------------------------------------------- reading

    def unpack(self, data: bytes) -> AgentMemory:
        """Returns the memory that :meth:`pack` wrote; raises ``ValueError`` if these bytes are not a memory."""
        arrays = iter(unpack_arrays(data, MEMORY))
        parts = {name: list(islice(arrays, len(dtypes))) for name, dtypes in _PARTS.items()}
        (numbers,), (bits,), (place,), (times,) = (parts[name] for name in ("numbers", "bits", "frame", "times"))
        (scores,), (cells,), (text,) = (parts[name] for name in ("scores", "cells", "rest"))
        if len(numbers) != 3 or len(bits) != 2 or bits[0] < 1 or bits[1] not in (0, 1) or not np.isfinite(numbers[2]):
            raise ValueError("its numbers are not those of an agent")
        frame, rest, ids = _unpack_frame(place), json.loads(text.tobytes()), as_trip_ids(parts["ids"])
        if len(times) != len(ids) or not np.isfinite(times).all():
            raise ValueError("its trips do not fit together")
        counts = Memory(ids, times, *as_postings(parts["postings"], len(ids)), self.forgetting)
        inbox = Inbox(
            _unpack_named(parts["waiting"]),
            _unpack_named(parts["rejected"]),
            tuple(_trip_ids(group) for group in rest["asked"]),
            float(numbers[2]),
            flags_of(int(bits[0])),
        )
        return AgentMemory(
            counts,
            self._unpack_kept(counts, parts["kept"], frame, rest),
            self._unpack_own(scores, len(ids), numbers[:2]),
            bool(bits[1]),
            inbox,
            as_rising(cells),
            Zone.of(rest["zone"]) if rest["zone"] else None,
            frame,
            _trip_ids(rest["suspects"]),
        )

    def _unpack_own(self, scores: Array, n: int, step: Array) -> OwnScores:
        if len(scores) != n * SCALES * self.aspects or (np.isnan(step).any() and not np.isnan(step).all()):
            raise ValueError("its scores are not one for each trip")
        location = None if np.isnan(step).any() else Location(*step.tolist())
        return OwnScores(scores.reshape(n, SCALES, self.aspects), location)

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
            raise ValueError("its trips are impossible")
        agents, names = (np.array(part) for part in zip(*ids, strict=True))
        return Trajectories.unchecked({"time": time, "lat": lat, "lon": lon}, offsets, agents, names, context)


def _pack_kept(memory: AgentMemory) -> list[Array]:
    kept = memory.kept
    if kept is None:
        return [np.zeros(0, t) for t in _KEPT]
    which = replace(memory.counts).number_of(kept.ids)
    precision = COARSE if memory.frame is None else FINE
    whole = [np.rint(kept.columns[name] * per).astype(np.int64) for name, per in precision.items()]
    return [which.astype(np.uint32), kept.lengths.astype(np.uint32), *(np.diff(v, prepend=0) for v in whole)]


def _unpack_frame(numbers: Array) -> Frame | None:
    if len(numbers) not in (0, 3) or not np.isfinite(numbers).all():
        raise ValueError("its frame is not a place and a local time")
    if not len(numbers):
        return None
    lat, lon, utc_offset = numbers.tolist()
    return Frame(Projection(lat, lon), utc_offset)


def _trip_ids(pairs: Sequence[Sequence[str]]) -> tuple[TripId, ...]:
    return tuple(TripId(str(agent), str(trip)) for agent, trip in pairs)


def _pack_named(memory: Memory) -> list[Array]:
    """Packs trips that wait or were rejected: their ids, times and keys."""
    sizes = np.bincount(memory.trips, minlength=len(memory)).astype(np.uint32)
    keys = memory.keys[np.argsort(memory.trips, kind="stable")]
    return [*trip_ids(memory.trip_ids), memory.times, sizes, keys]


def _unpack_named(arrays: Sequence[Array]) -> Memory:
    ids, (times, sizes, keys) = as_trip_ids(arrays[:4]), arrays[4:]
    fits = len(ids) == len(times) == len(sizes) and sizes.sum(dtype=np.int64) == len(keys)
    if not fits or not np.isfinite(times).all():
        raise ValueError("its waiting trips do not fit together")
    cut = np.split(keys, np.cumsum(sizes)[:-1]) if len(ids) else []
    return Memory().add(dict(zip(ids, cut, strict=True)), dict(zip(ids, times.tolist(), strict=True)))


# -------------------------------------------------------------------- what all agents share

_COUNTED = (*KEYS, np.uint32, np.int64)  # cells, how many agents go there, how many agents there are
_BY_NAME = (*TEXTS, np.float64, *POSTINGS)  # agents, and where each of them goes


def pack_popularity(popularity: Popularity) -> bytes:
    """Packs how many agents go where: with the agents' names where they are known, else as counts."""
    agents = popularity.agents
    counted = agents.counted if isinstance(agents, Visits) else Counted()
    named = Memory[str]() if isinstance(agents, Visits) else agents
    return pack_arrays(
        [
            np.array([isinstance(agents, Visits)], np.uint8),
            *(rising(counted.keys), counted.agents.astype(np.uint32), np.array([counted.total], np.int64)),
            *(*texts(named.trip_ids), named.times, *postings(named.keys, named.trips)),
        ]
    )


def unpack_popularity(store: Store, config: FeaturizerConfig) -> Popularity:
    """Reads how many agents go where."""
    with _checked(store):
        is_counted, *arrays = unpack_arrays(store.shared(POPULARITY), (np.uint8, *_COUNTED, *_BY_NAME))
        if len(is_counted) != 1:
            raise ValueError("it does not say how agents are counted")
        if is_counted[0]:
            return Popularity(config.popularity, Visits(_unpack_counted(*arrays[:3])))
        names, times = as_texts(arrays[3:5]), arrays[5]
        if len(set(names)) < len(names) or len(times) != len(names):
            raise ValueError("its agents do not fit together")
        return Popularity(config.popularity, Memory(tuple(names), times, *as_postings(arrays[6:], len(names))))


def _unpack_counted(steps: Array, agents: Array, total: Array) -> Counted:
    if len(steps) != len(agents) or len(total) != 1 or not 0 <= total[0] < 2**31 or (agents > total[0]).any():
        raise ValueError("it does not say how many agents have been where")
    return Counted(as_rising(steps), agents.astype(np.int32), int(total[0]))


def pack_anomalous(trips: Iterable[TripId]) -> bytes:
    """Packs the ids of the trips that proved anomalous."""
    return pack_arrays(trip_ids(sorted(trips)))


def unpack_anomalous(store: Store) -> frozenset[TripId]:
    """Reads the ids of the trips that proved anomalous."""
    with _checked(store):
        return frozenset(as_trip_ids(unpack_arrays(store.shared(ANOMALOUS), TRIP_IDS)))


@contextmanager
def _checked(store: Store) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise store.wrong(f"its parts do not fit together ({error})") from error
