"""Guards against leaks: no trip in two sets, nobody both injected and in the background. Broken ones are errors."""

from __future__ import annotations

import hashlib
from itertools import combinations, pairwise

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.errors import DataError
from astray.trajectories import FIX_COLUMNS, Trajectories


def no_trip_twice(**sets: ArrayLike) -> None:
    """Refuse sets of positions of trips that overlap, or that hold a trip twice.

    >>> no_trip_twice(train=[0, 1], test=[2])
    >>> no_trip_twice(train=[0, 1], test=[1, 2])
    Traceback (most recent call last):
    ...
    astray.errors.DataError: 1 trip stands both in train and in test; draw without replacement from disjoint sets
    """
    held = {name: np.asarray(positions, np.int64) for name, positions in sets.items()}
    for name, positions in held.items():
        if len(np.unique(positions)) < len(positions):
            raise DataError(f"a trip stands twice in {name}; draw without replacement")
    for (one, a), (other, b) in combinations(held.items(), 2):
        shared = len(np.intersect1d(a, b))
        if shared:
            trips = "1 trip stands" if shared == 1 else f"{shared} trips stand"
            raise DataError(f"{trips} both in {one} and in {other}; draw without replacement from disjoint sets")


def nobody_in_both(**people: ArrayLike) -> None:
    """Refuse sets of agents that have somebody in common.

    >>> nobody_in_both(subject=["017"], anomalies=["003", "003"], population=["003"])
    Traceback (most recent call last):
    ...
    astray.errors.DataError: '003' stands both in anomalies and in population; split people before trips are drawn
    """
    held = {name: set(np.asarray(who).astype(np.str_).tolist()) for name, who in people.items()}
    for (one, a), (other, b) in combinations(held.items(), 2):
        if a & b:
            raise DataError(f"{min(a & b)!r} stands both in {one} and in {other}; split people before trips are drawn")


def no_path_twice(train: Trajectories, test: Trajectories) -> None:
    """Refuse a test trip whose very fixes, times included, are those of a training trip, whatever their names."""
    known = set(fingerprints(train))
    twice = [i for i, mark in enumerate(fingerprints(test)) if mark in known]
    if twice:
        raise DataError(f"test trip {twice[0]} ({len(twice)} in all) is a copy of a training trip; remove duplicates")


def fingerprints(trips: Trajectories) -> list[bytes]:
    """The SHA-256 of each trip's times, latitudes and longitudes; copies have the same, whoever they stand under."""
    columns = [np.ascontiguousarray(trips.columns[name], "<f8") for name in FIX_COLUMNS]
    cuts = trips.offsets.tolist()
    return [hashlib.sha256(b"".join([column[a:b].tobytes() for column in columns])).digest() for a, b in pairwise(cuts)]


def fingerprint(trips: Trajectories, marks: list[bytes] | None = None) -> str:
    """The SHA-256 of a set of trips: of their agents, names and fixes, in any order of the trips."""
    names = zip(trips.agent_ids.tolist(), trips.trajectory_ids.tolist(), strict=True)
    lines = [
        f"{agent}/{trip}/".encode() + mark
        for (agent, trip), mark in zip(names, marks or fingerprints(trips), strict=True)
    ]
    return hashlib.sha256(b"\n".join(sorted(lines))).hexdigest()


def copies(trips: Trajectories, share: float = 0.5) -> NDArray[np.bool_]:
    """Which trips are copies: they have at least a ``share`` of the shorter one's fixes in common, to the last bit.

    Copies under two people are all marked, for nobody can say whose they are; of copies under one person all but the
    longest (or first) are. A single fix is the same if time, latitude and longitude are.
    """
    marked = np.zeros(len(trips), np.bool_)
    hashed = pl.DataFrame({name: trips.columns[name] for name in FIX_COLUMNS}).hash_rows(seed=1)
    twice = hashed.is_duplicated().to_numpy()  # few fixes are, and only they are sorted
    if not twice.any():
        return marked
    row, key = trips.trajectory_of_row[twice], hashed.to_numpy()[twice]
    order = np.lexsort((row, key))
    key, row = key[order], row[order]
    again = np.r_[False, (key[1:] == key[:-1]) & (row[1:] == row[:-1])]  # a logger that stands repeats its fixes
    distinct = trips.lengths - np.bincount(row[again], minlength=len(trips))
    key, row = key[~again], row[~again]
    pairs = [np.zeros(0, np.int64)]
    for step in range(1, len(key)):
        met = np.flatnonzero(key[step:] == key[:-step])
        if not len(met):
            break
        pairs.append(row[met] * len(trips) + row[met + step])
    pair, shared = np.unique(np.concatenate(pairs), return_counts=True)
    a, b = np.divmod(pair, len(trips))
    enough = shared >= share * np.minimum(distinct[a], distinct[b])
    a, b = a[enough], b[enough]
    same = trips.agent_ids[a] == trips.agent_ids[b]
    marked[np.r_[a[~same], b[~same]]] = True
    marked[np.where(distinct[a] < distinct[b], a, b)[same]] = True
    return marked
