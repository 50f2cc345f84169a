"""The parts of a model that all agents share, as bytes: how many agents go where, and which trips were anomalous."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from astray.core.trip_ids import TripId
from astray.features.featurizer import FeaturizerConfig
from astray.features.memory import Memory
from astray.features.popularity import NO_KEYS, Counted, Popularity, Visits
from astray.irl.shared import Reward
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
from astray.model.packing import Contents
from astray.model.store import ANOMALOUS, POPULARITY, Store

_COUNTS = (*KEYS, np.uint32, np.int64)  # cells, how many agents go there, how many agents there are
_NAMES = (*TEXTS, np.float64, *POSTINGS)  # agents, and where each of them goes


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
        is_counted, *arrays = unpack_arrays(store.shared(POPULARITY), (np.uint8, *_COUNTS, *_NAMES))
        if len(is_counted) != 1:
            raise ValueError("it does not say how agents are counted")
        agents: Memory[str] | Visits
        if is_counted[0]:
            agents = Visits(_counted(*arrays[:3]))
        else:
            names = as_texts(arrays[3:5])
            if len(set(names)) < len(names) or len(arrays[5]) != len(names):
                raise ValueError("its agents do not fit together")
            agents = Memory(tuple(names), arrays[5], *as_postings(arrays[6:], len(names)))
        return Popularity(config.popularity, agents)


def _counted(steps: np.ndarray, agents: np.ndarray, total: np.ndarray) -> Counted:
    if len(steps) != len(agents) or len(total) != 1 or not 0 <= total[0] < 2**31 or (agents > total[0]).any():
        raise ValueError("it does not say how many agents have been where")
    return Counted(as_rising(steps) if len(steps) else NO_KEYS, agents.astype(np.int32), int(total[0]))


def pack_trip_ids(trips: Iterable[TripId]) -> bytes:
    """Packs the names of trips."""
    known = sorted(trips)
    return pack_arrays([*texts(trip.agent for trip in known), *texts(trip.trajectory for trip in known)])


def unpack_anomalous(store: Store) -> frozenset[TripId]:
    """Reads the names of the trips that proved anomalous."""
    with _checked(store):
        arrays = unpack_arrays(store.shared(ANOMALOUS), (*TEXTS, *TEXTS))
        return frozenset(map(TripId, as_texts(arrays[:2]), as_texts(arrays[2:], len(arrays[0]))))


def unpack_weights(model: Contents, reward: Reward) -> tuple[float, ...]:
    """Reads how much each aspect of a reward counts."""
    weights: tuple[float, ...] = model.value("aspect_weights", tuple[float, ...])
    if len(weights) != len(reward.aspects) or min(weights, default=0.0) < 0 or not any(weights):
        raise model.wrong("its aspects and their weights do not fit together")
    return weights


@contextmanager
def _checked(store: Store) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise store.wrong(f"its parts do not fit together ({error})") from error
