"""Raises errors about leaks, such as a trip in two sets, or a person both injected and in the background."""

from __future__ import annotations

import hashlib
from itertools import combinations, pairwise

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import DataError
from astray.core.grouping import FIX_COLUMNS
from astray.core.projection import METRES_A_DEGREE
from astray.core.trajectories import Trajectories


def no_trip_twice(**sets: ArrayLike) -> None:
    """Raises an error if sets of trips, given by their positions, overlap or hold a trip twice.

    >>> no_trip_twice(train=[0, 1], test=[2])
    >>> no_trip_twice(train=[0, 1], test=[1, 2])
    Traceback (most recent call last):
    ...
    astray.core.errors.DataError: 1 trip is both in train and in test; draw without replacement from disjoint sets
    """
    held = {name: np.asarray(positions, np.int64) for name, positions in sets.items()}
    for name, positions in held.items():
        if len(np.unique(positions)) < len(positions):
            raise DataError(f"a trip is twice in {name}", remedy="draw without replacement")
    for (one, a), (other, b) in combinations(held.items(), 2):
        shared = len(np.intersect1d(a, b))
        if shared:
            trips = "1 trip is" if shared == 1 else f"{shared} trips are"
            raise DataError(
                f"{trips} both in {one} and in {other}", remedy="draw without replacement from disjoint sets"
            )


def nobody_in_both(**people: ArrayLike) -> None:
    """Raises an error if an agent is in two sets of agents.

    >>> nobody_in_both(subject=["017"], anomalies=["003", "003"], population=["003"])
    Traceback (most recent call last):
    ...
    astray.core.errors.DataError: '003' is both in anomalies and in population; split people before drawing trips
    """
    held = {name: set(np.asarray(who).astype(np.str_).tolist()) for name, who in people.items()}
    for (one, a), (other, b) in combinations(held.items(), 2):
        if a & b:
            raise DataError(
                f"{min(a & b)!r} is both in {one} and in {other}", remedy="split people before drawing trips"
            )


def no_path_twice(train: Trajectories, test: Trajectories) -> None:
    """Raises an error if a test trip has the same fixes, times included, as a training trip of any name."""
    known = set(fingerprints(train))
    twice = [i for i, mark in enumerate(fingerprints(test)) if mark in known]
    if twice:
        raise DataError(
            f"test trip {twice[0]} ({len(twice)} in all) is a copy of a training trip", remedy="remove duplicates"
        )


def fingerprints(trips: Trajectories) -> list[bytes]:
    """Returns the SHA-256 of each trip's times, latitudes and longitudes; that of a copy is the same for any agent."""
    columns = [np.ascontiguousarray(trips.columns[name], "<f8") for name in FIX_COLUMNS]
    cuts = trips.offsets.tolist()
    return [hashlib.sha256(b"".join([column[a:b].tobytes() for column in columns])).digest() for a, b in pairwise(cuts)]


def fingerprint(trips: Trajectories, marks: list[bytes] | None = None) -> str:
    """Returns the SHA-256 of the agents, names and fixes of trips; the order of the trips does not matter."""
    names = zip(trips.agent_ids.tolist(), trips.trajectory_ids.tolist(), strict=True)
    lines = [
        f"{agent}/{trip}/".encode() + mark
        for (agent, trip), mark in zip(names, marks or fingerprints(trips), strict=True)
    ]
    return hashlib.sha256(b"\n".join(sorted(lines))).hexdigest()


def together(trips: Trajectories, within: float = 100.0, least: float = 60.0) -> NDArray[np.int64]:
    """Finds pairs of trips that two people made together: for ``least`` seconds, with a median distance ``within``.

    Two receivers on the same outing write different fixes, so neither trip is a copy of the other, although the
    behaviour is the same. ``within`` is in metres. Returns an array of positions (pairs, 2).
    """
    time, lat, lon = (trips.columns[name] for name in FIX_COLUMNS)
    first, last = time[trips.offsets[:-1]], time[trips.offsets[1:] - 1]
    edges = [ufunc.reduceat(values, trips.offsets[:-1]) for values in (lat, lon) for ufunc in (np.minimum, np.maximum)]
    south, north, west, east = edges
    margin = 2 * within / METRES_A_DEGREE
    order = np.argsort(first, kind="stable")
    longest = float((last - first).max(initial=0.0))
    found = []
    for place, i in enumerate(order.tolist()):
        # Compare with trips that began earlier and may not have ended, so that each pair is found once.
        begin = int(np.searchsorted(first, first[i] - longest, sorter=order))
        j = order[begin:place]
        wide = margin / max(np.cos(np.radians(lat[trips.offsets[i]])), 0.01)
        near = (np.minimum(last[j], last[i]) - first[i] >= least) & (trips.agent_ids[j] != trips.agent_ids[i])
        near &= (south[j] <= north[i] + margin) & (north[j] >= south[i] - margin)
        near &= (west[j] <= east[i] + wide) & (east[j] >= west[i] - wide)
        found += [(min(i, k), max(i, k)) for k in j[near].tolist() if _median_distance(trips, i, k) <= within]
    return np.array(sorted(found), np.int64).reshape(-1, 2)


def _median_distance(trips: Trajectories, one: int, other: int) -> float:
    """Returns the median distance in metres of two trips over the time that they have in common."""
    (t, lat, lon), (u, *places) = (
        [trips.columns[name][trips.offsets[i] : trips.offsets[i + 1]] for name in FIX_COLUMNS] for i in (one, other)
    )
    both = (t >= u[0]) & (t <= u[-1])
    if not both.any():
        return float("inf")
    north, east = (np.interp(t[both], u, place) for place in places)
    x = (lon[both] - east) * np.cos(np.radians(lat[both]))
    return float(np.median(np.hypot(lat[both] - north, x)) * METRES_A_DEGREE)


def copies(trips: Trajectories, share: float = 0.5) -> NDArray[np.bool_]:
    """Marks copies: trips that share at least ``share`` of the shorter one's fixes, to the last bit.

    If the copies belong to several people, all are marked, because their owner is unknown; if they belong to one
    person, all but the longest (or first). Two fixes are the same if time, latitude and longitude are equal.
    """
    marked = np.zeros(len(trips), np.bool_)
    hashed = pl.DataFrame({name: trips.columns[name] for name in FIX_COLUMNS}).hash_rows(seed=1)
    twice = hashed.is_duplicated().to_numpy()  # only these few fixes are sorted
    if not twice.any():
        return marked
    row, key = trips.trajectory_of_row[twice], hashed.to_numpy()[twice]
    order = np.lexsort((row, key))
    key, row = key[order], row[order]
    again = np.r_[False, (key[1:] == key[:-1]) & (row[1:] == row[:-1])]  # a logger at rest repeats its fixes
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
