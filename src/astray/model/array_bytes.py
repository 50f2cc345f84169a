"""Packs arrays into few bytes: those of an agent's memory, and of the parts that grow with the number of agents.

The reader knows the types of the arrays; a blob says only how long each one is. The bytes of numbers are sorted by
significance (all lowest bytes, then all second ones, ...) and deflated. The lower bytes of keys are hashes, which do
not compress: they are not deflated.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.trip_ids import TripId
from astray.features.hashing import changes

Array = NDArray[Any]
Keys = NDArray[np.uint64]

LEVEL = 1  # of deflating: higher levels take much longer and gain little
MOST_DEFLATED = 1100  # deflating never shrinks bytes by more than this factor: a blob that claims more is damaged
PLAIN_BYTES = 5  # the lower bytes of a key's eight, which are not deflated


def pack_arrays(arrays: Sequence[Array]) -> bytes:
    """Returns one-dimensional arrays as one blob.

    >>> blob = pack_arrays([np.arange(3.0), np.array([7, 300], np.uint32)])
    >>> [a.tolist() for a in unpack_arrays(blob, [np.float64, np.uint32])]
    [[0.0, 1.0, 2.0], [7, 300]]
    """
    little = [np.ascontiguousarray(a, a.dtype.newbyteorder("<")) for a in arrays]
    bytes_of = [a.view(np.uint8).reshape(-1, a.dtype.itemsize) for a in little]
    plain = b"".join(b[:, :PLAIN_BYTES].tobytes() for a, b in zip(little, bytes_of, strict=True) if _is_keys(a.dtype))
    planes = [b[:, PLAIN_BYTES:] if _is_keys(a.dtype) else b for a, b in zip(little, bytes_of, strict=True)]
    deflated = zlib.compress(b"".join(b.T.tobytes() for b in planes), LEVEL)
    counts = struct.pack(f"<{len(arrays)}I", *map(len, arrays))
    return counts + deflated + plain


def unpack_arrays(blob: bytes, dtypes: Sequence[Any]) -> list[Array]:
    """Returns the arrays of a blob that :func:`pack_arrays` made; raises ``ValueError`` if it does not hold them."""
    types = [np.dtype(t).newbyteorder("<") for t in dtypes]
    head = 4 * len(types)
    if len(blob) < head:
        raise ValueError("it is too short")
    counts = struct.unpack(f"<{len(types)}I", blob[:head])
    n_plain = sum(PLAIN_BYTES * n for n, t in zip(counts, types, strict=True) if _is_keys(t))
    n_planes = sum(n * _plane_bytes(t) for n, t in zip(counts, types, strict=True))
    packed = len(blob) - head - n_plain
    if packed < 0 or n_planes > MOST_DEFLATED * packed:
        raise ValueError("it claims to hold more than it can")
    inflating = zlib.decompressobj()
    try:
        planes = inflating.decompress(memoryview(blob)[head : head + packed], n_planes + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(planes) != n_planes or not inflating.eof or inflating.unused_data or inflating.unconsumed_tail:
        raise ValueError("it does not hold what it claims to")
    arrays, at, plain_at = [], 0, head + packed
    for n, t in zip(counts, types, strict=True):
        width = _plane_bytes(t)
        numbers = np.empty((n, t.itemsize), np.uint8)
        numbers[:, t.itemsize - width :] = np.frombuffer(planes, np.uint8, n * width, at).reshape(width, n).T
        at += n * width
        if _is_keys(t):
            lower = np.frombuffer(blob, np.uint8, n * PLAIN_BYTES, plain_at)
            numbers[:, :PLAIN_BYTES] = lower.reshape(n, PLAIN_BYTES)
            plain_at += n * PLAIN_BYTES
        arrays.append(numbers.reshape(-1).view(t).astype(t.newbyteorder("="), copy=False))
    return arrays


def _is_keys(dtype: np.dtype[Any]) -> bool:
    """Returns True for the type that only arrays of keys have."""
    return dtype.kind == "u" and dtype.itemsize == 8


def _plane_bytes(dtype: np.dtype[Any]) -> int:
    """Returns the number of bytes of each number that are deflated."""
    return dtype.itemsize - (PLAIN_BYTES if _is_keys(dtype) else 0)


# -------------------------------------------------------------------- texts, trips, keys and postings

TEXTS = (np.uint32, np.uint8)
TRIP_IDS = (*TEXTS, *TEXTS)
KEYS = (np.uint64,)
POSTINGS = (np.uint64, np.uint32, np.uint32)


def texts(values: Iterable[str]) -> list[Array]:
    """Returns texts as arrays of :data:`TEXTS`: their lengths, and all their letters."""
    encoded = [value.encode() for value in values]
    return [np.array([len(e) for e in encoded], np.uint32), np.frombuffer(b"".join(encoded), np.uint8)]


def as_texts(arrays: Sequence[Array]) -> list[str]:
    """Returns the texts that :func:`texts` made into arrays."""
    lengths, letters = arrays
    if int(lengths.sum(dtype=np.int64)) != len(letters):
        raise ValueError("its texts do not fit together")
    whole, ends = letters.tobytes(), np.cumsum(np.r_[0, lengths.astype(np.int64)]).tolist()
    return [whole[a:b].decode() for a, b in pairwise(ends)]


def trip_ids(trips: Iterable[TripId]) -> list[Array]:
    """Returns the ids of trips as arrays of :data:`TRIP_IDS`."""
    known = list(trips)
    return [*texts(trip.agent for trip in known), *texts(trip.trajectory for trip in known)]


def as_trip_ids(arrays: Sequence[Array]) -> tuple[TripId, ...]:
    """Returns the ids that :func:`trip_ids` made into arrays; raises ``ValueError`` if one occurs twice."""
    agents, trajectories = as_texts(arrays[:2]), as_texts(arrays[2:])
    ids = tuple(map(TripId, agents, trajectories))
    if len(agents) != len(trajectories) or len(set(ids)) < len(ids):
        raise ValueError("its trips do not fit together")
    return ids


def rising(keys: Keys) -> Array:
    """Returns sorted, distinct keys as an array of :data:`KEYS`: the difference of each from the one before."""
    return np.diff(keys, prepend=np.uint64(0))


def as_rising(steps: Keys) -> Keys:
    """Returns the keys that :func:`rising` made into steps."""
    keys = np.cumsum(steps, dtype=np.uint64)
    if (keys[1:] <= keys[:-1]).any():
        raise ValueError("its keys are not in order")
    return keys


def postings(keys: Keys, trips: NDArray[np.int32]) -> list[Array]:
    """Returns postings, sorted by key and then trip, as arrays of :data:`POSTINGS`."""
    first = np.flatnonzero(changes(keys))
    higher = np.diff(trips, prepend=np.int32(0))
    higher[first] = trips[first]
    return [rising(keys[first]), np.diff(first, append=len(keys)).astype(np.uint32), higher.astype(np.uint32)]


def as_postings(arrays: Sequence[Array], n_trips: int) -> tuple[Keys, NDArray[np.int32]]:
    """Returns the keys and trips that :func:`postings` made into arrays; raises ``ValueError`` if they cannot be."""
    steps, counts, higher = arrays
    distinct, many = as_rising(steps), counts.astype(np.int64)
    if len(many) != len(distinct) or (many < 1).any() or many.sum() != len(higher):
        raise ValueError("its postings do not fit together")
    first = np.cumsum(many) - many
    total = np.cumsum(higher, dtype=np.int64)
    before = np.r_[0, total][first]
    trips = total - np.repeat(before, many)
    again = np.ones(len(higher), bool)
    again[first] = False
    if (higher[again] == 0).any() or (len(trips) and trips.max() >= n_trips):
        raise ValueError("its postings are not sorted, or name trips that are not there")
    return np.repeat(distinct, many), trips.astype(np.int32)
