"""Paths: where an agent was when, in metres, cut at gaps; resampled for learning, traced for memory.

A set of paths is a :class:`~astray.Trajectories` with the columns ``time`` and ``xy``. Everything that the learner
looks at is made of paths in the same way: demonstrations, counterfactuals, other people's trips, the policy's rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.faults import GOOD, FaultRules, find_faults
from astray.core.projection import Projection
from astray.core.trajectories import Trajectories
from astray.features.clock import first_after, shifts

Array = NDArray[Any]


def paths_of(
    fixes: Trajectories, projection: Projection, rules: FaultRules | None = None
) -> tuple[Trajectories, NDArray[np.int8]]:
    """The paths of GPS trajectories, and the fault of every fix.

    Faulty fixes are left out. A path ends at a gap, so a trajectory may give several; the context ``trip`` says which
    trajectory a path is of, the column ``row`` which fix each point was.
    """
    xy = projection.to_metres(fixes.columns["lat"], fixes.columns["lon"])
    time = fixes.columns["time"].astype(np.float64, copy=False)
    fault, begins = find_faults(time, xy, fixes.offsets, rules or FaultRules())
    kept = np.flatnonzero(fault == GOOD)
    starts = np.flatnonzero(begins[kept])
    trip = np.searchsorted(fixes.offsets, kept[starts], side="right") - 1
    whole = len(kept) == len(time)
    return make_paths(
        time if whole else time[kept],
        xy if whole else xy.T[:, kept].T,
        np.r_[starts, len(kept)],
        fixes.agent_ids[trip],
        fixes.trajectory_ids[trip],
        trip=trip,
        row=kept,
    ), fault


def make_paths(
    time: Array,
    xy: Array,
    offsets: Array,
    agent_ids: Array | None = None,
    trajectory_ids: Array | None = None,
    *,
    trip: Array | None = None,
    row: Array | None = None,
) -> Trajectories:
    """Paths of checked arrays; by default each is a trip of its own."""
    n = len(offsets) - 1
    blank = np.full(n, "")
    columns = {"time": time, "xy": xy} | ({} if row is None else {"row": row})
    return Trajectories.unchecked(
        columns,
        np.asarray(offsets, np.int64),
        blank if agent_ids is None else agent_ids,
        blank if trajectory_ids is None else trajectory_ids,
        {"trip": np.arange(n) if trip is None else trip},
    )


def of_trips(paths: Trajectories, trips: Array) -> Trajectories:
    """The paths of some trips, given by their positions in rising order; the trips are counted anew."""
    number = np.full(max(paths.context["trip"].max(initial=-1), trips.max(initial=-1)) + 1, -1)
    number[trips] = np.arange(len(trips))
    kept = paths[number[paths.context["trip"]] >= 0]
    context = {**kept.context, "trip": number[kept.context["trip"]]}
    return Trajectories.unchecked(dict(kept.columns), kept.offsets, kept.agent_ids, kept.trajectory_ids, context)


def resample(paths: Trajectories, interval: float) -> Trajectories:
    """The same paths with equally spaced points, as near to ``interval`` seconds apart as both end points allow."""
    time, offsets = paths.columns["time"], paths.offsets
    first, last = time[offsets[:-1]], time[offsets[1:] - 1]
    pieces = np.maximum(1, np.rint((last - first) / interval)).astype(np.int64)
    pieces[last == first] = 0
    return _at(paths, first, (last - first) / np.maximum(pieces, 1), pieces + 1)


def trace(paths: Trajectories, spacing: float) -> Trajectories:
    """The same paths with points put in, in a straight line, wherever two are more than ``spacing`` metres apart.

    A memory that counts visits must not depend on how often the receiver spoke.
    """
    time, xy = paths.columns["time"], paths.columns["xy"]
    distance = np.hypot(*np.diff(xy, axis=0, append=xy[-1:]).T)
    distance[paths.offsets[1:] - 1] = 0.0
    parts = np.clip(np.ceil(distance / spacing), 1, 1000).astype(np.int64)
    source = np.repeat(np.arange(len(time)), parts)
    share = (np.arange(len(source)) - np.repeat(np.cumsum(parts) - parts, parts)) / parts[source]
    after = np.minimum(source + 1, len(time) - 1)
    offsets = np.r_[0, np.cumsum(parts)][paths.offsets]
    return _derived(
        paths,
        time[source] + share * (time[after] - time[source]),
        xy[source] + share[:, None] * (xy[after] - xy[source]),
        offsets,
    )


def locations_before(paths: Trajectories, lags: Sequence[float]) -> list[NDArray[np.float64]]:
    """Where each point's agent was some seconds earlier, for each lag; before the path's start, at its start.

    In memory all east before all north.
    """
    time, rows = paths.columns["time"], np.arange(paths.n_rows)
    start = np.repeat(paths.offsets[:-1], paths.lengths)
    clock = time + np.repeat(shifts(time, paths.offsets), paths.lengths)
    found = []
    for lag in lags:
        after = first_after(clock, lag, start)
        found.append(_between(paths, np.maximum(after - 1, start), np.minimum(after, rows), time - lag))
    return found


def _at(paths: Trajectories, first: Array, interval: Array, count: Array) -> Trajectories:
    """Points of each path at ``first + interval * (0 .. count - 1)``."""
    offsets = np.r_[0, np.cumsum(count)]
    path = np.repeat(np.arange(len(paths)), count)
    step = np.arange(offsets[-1]) - offsets[:-1][path]
    time = first[path] + interval[path] * step
    return _derived(paths, time, _interpolate(paths, time, path), offsets)


def _derived(paths: Trajectories, time: Array, xy: Array, offsets: Array) -> Trajectories:
    return Trajectories.unchecked(
        {"time": time, "xy": xy},
        offsets.astype(np.int64),
        paths.agent_ids,
        paths.trajectory_ids,
        paths.context,
    )


def _interpolate(paths: Trajectories, time: Array, path: Array) -> NDArray[np.float64]:
    """Locations of paths ``path`` at times ``time``, in one search; outside its duration a path stays at its end."""
    own, offsets = paths.columns["time"], paths.offsets
    shift = shifts(own, offsets)
    clock = own + np.repeat(shift, paths.lengths)
    at = np.searchsorted(clock, time + shift[path], side="right") - 1
    last = offsets[1:][path] - 1
    low = np.clip(at, offsets[:-1][path], last)
    return _between(paths, low, np.minimum(low + 1, last), time)


def _between(paths: Trajectories, low: Array, high: Array, time: Array) -> NDArray[np.float64]:
    """Locations at times between two points each, in a straight line; at the nearer one outside of them."""
    own, xy = paths.columns["time"], np.ascontiguousarray(paths.columns["xy"].T)
    before = own.take(low)
    span = own.take(high) - before
    share = np.clip((time - before) / (span + (span == 0)), 0.0, 1.0)
    here = xy.take(low, axis=1)
    # Two points at the same time are one: there is nowhere to go between them.
    share *= span > 0
    return np.asarray((here + share * (xy.take(high, axis=1) - here)).T)
