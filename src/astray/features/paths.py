"""Paths: the places and times of an agent in metres, cut at gaps; resampled for learning, traced for the memory.

A set of paths is a :class:`~astray.Trajectories` with the columns ``time`` and ``xy``. Demonstrations, counterfactuals,
other agents' trips and the policy's rollouts all become paths before they become steps.
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
    """Returns the paths of GPS trajectories without faulty fixes, and the fault of every fix.

    A path ends at a gap, so a trajectory may have several. The context ``trip`` is the position of a path's trajectory,
    the column ``row`` the position of each point's fix.
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
    """Makes paths from arrays that were checked before; by default each path is a trip."""
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
    """Returns the paths of some trips, given by their positions in rising order, with these trips numbered from 0."""
    number = np.full(max(paths.context["trip"].max(initial=-1), trips.max(initial=-1)) + 1, -1)
    number[trips] = np.arange(len(trips))
    kept = paths[number[paths.context["trip"]] >= 0]
    context = {**kept.context, "trip": number[kept.context["trip"]]}
    return Trajectories.unchecked(dict(kept.columns), kept.offsets, kept.agent_ids, kept.trajectory_ids, context)


def resample(paths: Trajectories, interval: float) -> Trajectories:
    """Returns the paths with points at equal intervals near ``interval`` seconds; keeps the first and last points."""
    own, offsets = paths.columns["time"], paths.offsets
    first, last = own[offsets[:-1]], own[offsets[1:] - 1]
    pieces = np.maximum(1, np.rint((last - first) / interval)).astype(np.int64)
    pieces[last == first] = 0
    apart = (last - first) / np.maximum(pieces, 1)
    starts = np.r_[0, np.cumsum(pieces + 1)]
    path = np.repeat(np.arange(len(paths)), pieces + 1)
    time = first[path] + apart[path] * (np.arange(starts[-1]) - starts[:-1][path])
    # One search for all paths, on one clock.
    shift = shifts(own, offsets)
    after = np.searchsorted(own + np.repeat(shift, paths.lengths), time + shift[path], side="right")
    end = offsets[1:][path] - 1
    low = np.clip(after - 1, offsets[:-1][path], end)
    return _derived(paths, time, _between(paths, low, np.minimum(low + 1, end), time), starts)


def trace(paths: Trajectories, spacing: float) -> Trajectories:
    """Returns the paths with points added on the straight line between any two more than ``spacing`` metres apart.

    So the visits that a memory counts do not depend on how often the receiver reported.
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
    """Returns, for each lag, the agent's place ``lag`` seconds before each point, or the start of the path if later.

    The arrays are stored column by column.
    """
    time, rows = paths.columns["time"], np.arange(paths.n_rows)
    start = np.repeat(paths.offsets[:-1], paths.lengths)
    clock = time + np.repeat(shifts(time, paths.offsets), paths.lengths)
    found = []
    for lag in lags:
        after = first_after(clock, lag, start)
        found.append(_between(paths, np.maximum(after - 1, start), np.minimum(after, rows), time - lag))
    return found


def _derived(paths: Trajectories, time: Array, xy: Array, offsets: Array) -> Trajectories:
    """Returns the same paths with other points."""
    return Trajectories.unchecked(
        {"time": time, "xy": xy},
        offsets.astype(np.int64),
        paths.agent_ids,
        paths.trajectory_ids,
        paths.context,
    )


def _between(paths: Trajectories, low: Array, high: Array, time: Array) -> NDArray[np.float64]:
    """Interpolates at each time between two points, ``low`` and ``high``; outside of them, returns the nearer one."""
    own, xy = paths.columns["time"], np.ascontiguousarray(paths.columns["xy"].T)
    before = own.take(low)
    span = own.take(high) - before
    share = np.clip((time - before) / (span + (span == 0)), 0.0, 1.0)
    here = xy.take(low, axis=1)
    # If both points have the same time, the result is the first one.
    share *= span > 0
    return np.asarray((here + share * (xy.take(high, axis=1) - here)).T)
