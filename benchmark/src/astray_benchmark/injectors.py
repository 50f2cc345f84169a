"""Injectors, which make a known change to recorded trips and return which fixes are anomalous.

An injector is a pure function of trips and a random generator. It returns the changed trips (mutants), each under the
agent and name of its original. It leaves out trips that the change does not suit (too short, standing, without a second
route), and mutants that hardly differ from their originals.

Injectors are named after their mechanisms, because published code confuses "detour" and "route switch". Some mechanisms
are also in :mod:`astray.irl.counterfactuals`, from which astray's reward learns, unlike its rivals. The code here is
separate: it changes recorded fixes instead of resampled paths, has parameters for the strength instead of drawing it,
sets the height of a bend by the whole trip instead of the bent run, and makes the bend take time. Only a reversed trip
is the same in both. :mod:`astray.simulate` has other anomalies, planned on its streets.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from astray.core.errors import DataError
from astray.core.grouping import FIX_COLUMNS
from astray.core.projection import Projection
from astray.core.trajectories import Trajectories
from astray_benchmark.array_types import Bools, Floats, Ints

CELL = 100.0  # metres; the unit of the distances d
LEAST = 50.0  # metres; a mutant that is nowhere this far from its original is like the original with GPS noise
NEAR = 300.0  # metres; two starts, or two ends, within this distance are the same place
GAP = 200.0  # metres; two routes may be this far apart where a trip changes from one to the other
SCATTER = 4.0  # metres; the standard GPS error on each axis of a receiver that stands
STEEPEST = 10.0  # no driver takes a detour that makes its stretch more than this many times longer
DAY, WEEK = 86_400.0, 604_800.0  # seconds
TRIES = 8  # the number of places in a trip, or of partners, to try
DECIMALS = 6  # of degrees (0.1 m), as recorders write them, so that digits do not give mutants away

_KING = np.array([(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if x or y], np.float64)  # the 8 directions


class Injected(NamedTuple):
    """Changed trips."""

    trips: Trajectories
    truth: Bools  # True for anomalous fixes
    source: Ints  # the position of each trip's original


class Path(NamedTuple):
    """One trip in metres around its first fix."""

    time: Floats
    xy: Floats
    around: Projection


class Mutant(NamedTuple):
    """A changed path, with a mask of its anomalous fixes."""

    time: Floats
    xy: Floats
    truth: Bools


def _injector(change: Callable[..., Mutant | None]) -> Callable[..., Injected]:
    """Makes an injector from a function that changes one path, or returns None if the change does not suit the trip.

    The injector changes trips one by one, until there are ``most`` mutants; ``settings`` are those of the function.
    """

    @wraps(change)
    def injector(
        trips: Trajectories, rng: np.random.Generator, *, most: int | None = None, **settings: Any
    ) -> Injected:
        if not trips.is_gps:
            raise DataError(
                "anomalies are injected into fixes (time, lat, lon)", remedy="these trajectories hold other columns"
            )
        time, lat, lon, truth = [], [], [], []
        source: list[int] = []
        for i in range(len(trips)):
            if len(source) == most:
                break
            rows = slice(trips.offsets[i], trips.offsets[i + 1])
            when, y, x = (np.asarray(trips.columns[name][rows], np.float64) for name in FIX_COLUMNS)
            around = Projection(float(y[0]), float(x[0]))
            mutant = change(Path(when, around.to_metres(y, x), around), rng, **settings)
            if mutant is not None:
                places = around.to_degrees(mutant.xy)
                time.append(mutant.time)
                lat.append(places[0].round(DECIMALS))
                lon.append(places[1].round(DECIMALS))
                truth.append(mutant.truth)
                source.append(i)
        if not source:
            return Injected(trips[:0], np.zeros(0, np.bool_), np.zeros(0, np.int64))
        chosen = np.array(source, np.int64)
        changed = Trajectories(
            {"time": np.concatenate(time), "lat": np.concatenate(lat), "lon": np.concatenate(lon)},
            np.r_[0, np.cumsum([len(part) for part in truth])],
            trips.agent_ids[chosen],
            trips.trajectory_ids[chosen],
            {name: values[chosen] for name, values in trips.context.items()},
        )
        return Injected(changed, np.concatenate(truth), chosen)

    return injector


@_injector
def point_jitter(path: Path, rng: np.random.Generator, *, alpha: float = 0.3, d: float = 3.0) -> Mutant | None:
    """Moves each interior fix, with probability ``alpha``, by ``d`` cells of 100 m in one of 8 directions.

    A diagonal is d cells along both axes. Times and end points do not change. Anomalous: the moved fixes.
    """
    _check_share("alpha", alpha)
    _check_positive("d", d)
    n = len(path.time)
    moved = rng.random(n) < alpha
    moved[[0, -1]] = False
    step = CELL * d * _KING[rng.integers(len(_KING), size=n)]
    return Mutant(path.time, path.xy + np.where(moved[:, None], step, 0.0), moved) if moved.any() else None


@_injector
def segment_shift(path: Path, rng: np.random.Generator, *, alpha: float = 0.3, d: float = 3.0) -> Mutant | None:
    """Moves a run of floor(alpha (n - 2)) interior fixes as a whole by ``d`` cells, across the direction of travel.

    Times and end points do not change. Anomalous: the run.
    """
    _check_share("alpha", alpha)
    _check_positive("d", d)
    run = _run(len(path.time), alpha, rng)
    if run is None:
        return None
    xy, truth = path.xy.copy(), np.zeros(len(path.xy), np.bool_)
    xy[run] += CELL * d * _across(path.xy, run, rng)
    truth[run] = True
    return Mutant(path.time, xy, truth)


@_injector
def half_sine_detour(path: Path, rng: np.random.Generator, *, alpha: float = 0.3, h: float = 0.3) -> Mutant | None:
    """Bends a run of floor(alpha (n - 2)) interior fixes sideways by a half sine.

    The height of the bend is ``h`` times the distance from origin to destination. The longer way takes longer, at the
    same speed: it has more fixes, at the same intervals, and all later fixes are later. The fixes around the run do not
    move. Anomalous: the bent run. It leaves out round trips, whose ends are too near to each other to set the height.
    """
    _check_share("alpha", alpha)
    _check_positive("h", h)
    height = h * float(np.hypot(*(path.xy[-1] - path.xy[0])))
    for _ in range(TRIES if height >= LEAST else 0):
        run = _run(len(path.time), alpha, rng)
        mutant = None if run is None else _bent(path, run, height * _across(path.xy, run, rng))
        if mutant is not None:
            return mutant
    return None


@_injector
def splice(path: Path, rng: np.random.Generator, *, pool: Trajectories, near: float = NEAR) -> Mutant | None:
    """Switches from a trip to another one between the same places, where the two are nearest.

    Partners come from ``pool``: trips that start and end within ``near`` metres of this one's start and end. Both are
    cut in their middle halves at their nearest fixes, which are at most 200 m apart. The mutant ends where its partner
    ended. Anomalous: the fixes after the switch that are more than a cell away from the original route. A partner with
    fewer than three such fixes takes the same route and is skipped.

    The mutant contains fixes of its partner, so the pool should hold no trip that a method learns from: otherwise the
    mutant has neighbours in the training set at a distance of zero.
    """
    _check_positive("near", near)
    start, end = pool.offsets[:-1], pool.offsets[1:] - 1
    lat, lon = pool.columns["lat"], pool.columns["lon"]
    first, last = (path.around.to_metres(lat[rows], lon[rows]) for rows in (start, end))
    same = (np.hypot(*(first - path.xy[0]).T) <= near) & (np.hypot(*(last - path.xy[-1]).T) <= near)
    for k in rng.permutation(np.flatnonzero(same))[:TRIES].tolist():
        rows = slice(start[k], end[k] + 1)
        partner = Path(pool.columns["time"][rows], path.around.to_metres(lat[rows], lon[rows]), path.around)
        mutant = _spliced(path, partner)
        if mutant is not None:
            return mutant
    return None


@_injector
def loiter(path: Path, rng: np.random.Generator, *, minutes: float = 15.0) -> Mutant | None:
    """Adds a stop of some minutes in the middle half of the trip; all later fixes are later by as much.

    The stop has fixes at the trip's usual interval, with the error of a receiver that stands still. End points do not
    change. Anomalous: the fixes of the stop.
    """
    _check_positive("minutes", minutes)
    n = len(path.time)
    gaps = np.diff(path.time)
    gaps = gaps[gaps > 0]
    if n < 3 or not len(gaps):
        return None
    i = int(rng.integers(max(n // 4, 1), n - max(n // 4, 1))) + 1  # the stop is after fix i - 1
    interval = float(np.median(gaps))
    count = max(round(60.0 * minutes / interval), 1)
    stood = path.time[i - 1] + interval * np.arange(1, count + 1)
    there = path.xy[i - 1] + rng.normal(scale=SCATTER, size=(count, 2))
    truth = np.zeros(n + count, np.bool_)
    truth[i : i + count] = True
    return Mutant(
        np.r_[path.time[:i], stood, path.time[i:] + interval * count],
        np.vstack([path.xy[:i], there, path.xy[i:]]),
        truth,
    )


@_injector
def reverse(path: Path, rng: np.random.Generator) -> Mutant | None:
    """Reverses the route, from the same departure on; the end points are exchanged. Anomalous: every fix."""
    back = path.xy[::-1]
    if np.hypot(*(back - path.xy).T).max() < LEAST:
        return None
    return Mutant(path.time[0] + path.time[-1] - path.time[::-1], back, np.ones(len(back), np.bool_))


@_injector
def speed(path: Path, rng: np.random.Generator, *, k: float = 2.0) -> Mutant | None:
    """Makes the trip about ``k`` times faster (slower below 1), with fixes at the same intervals. Anomalous: every fix.

    Places are interpolated at the original intervals: if only the times were scaled, the recorder's interval would give
    the change away. The factor is adjusted to a whole number of intervals, so that the end points do not change.
    """
    _check_positive("k", k)
    if k == 1:
        raise DataError("k is 1, which changes nothing", remedy="give a factor such as 2")
    since = path.time - path.time[0]
    whole = float(since[-1])
    if whole <= 0 or float(np.hypot(*np.diff(path.xy, axis=0).T).sum()) < LEAST:
        return None
    # A slower trip needs more intervals than there are, so repeat them.
    ticks = np.unique(since + whole * np.arange(int(np.ceil(1 / k)) + 1)[:, None])
    ticks = ticks[: max(int(np.abs(ticks - whole / k).argmin()), 1) + 1]
    along = ticks * (whole / ticks[-1])
    if len(ticks) == len(np.unique(since)):
        return None
    xy = np.column_stack([np.interp(along, since, path.xy[:, axis]) for axis in (0, 1)])
    return Mutant(path.time[0] + ticks, xy, np.ones(len(xy), np.bool_))


def agent_swap(
    trips: Trajectories, rng: np.random.Generator, *, pool: Trajectories, most: int | None = None
) -> Injected:
    """Replaces a trip by another agent's normal trip, which is used only once. Anomalous: every fix.

    The other trip keeps its hour and its day of the week, and is moved by whole weeks to about the time of the trip
    that it replaces, so that the date does not give it away.
    """
    made: list[Trajectories] = []
    source: list[int] = []
    order = rng.permutation(len(pool))
    owner, free = pool.agent_ids[order], np.ones(len(pool), np.bool_)
    for i, trip in enumerate(trips):
        if len(made) == most:
            break
        for j in np.flatnonzero((owner != trip.agent_ids[0]) & free).tolist():
            other = pool[int(order[j])]
            if not np.array_equal(other.columns["lat"], trip.columns["lat"]):
                free[j] = False
                made.append(submitted_as(other, trip))
                source.append(i)
                break
    swapped = Trajectories.concat(made) if made else trips[:0]
    return Injected(swapped, np.ones(swapped.n_rows, np.bool_), np.array(source, np.int64))


def submitted_as(other: Trajectories, trip: Trajectories, period: float = WEEK) -> Trajectories:
    """Returns ``other`` with the agent, name and context of ``trip``, moved by whole periods to about its time."""
    start, due = float(other.columns["time"][0]), float(trip.columns["time"][0])
    fixes = {name: other.columns[name] for name in ("lat", "lon")}
    time = other.columns["time"] + period * round((due - start) / period)
    return Trajectories({"time": time} | fixes, other.offsets, trip.agent_ids, trip.trajectory_ids, trip.context)


INJECTORS: dict[str, Callable[..., Injected]] = {
    "point-jitter": point_jitter,
    "segment-shift": segment_shift,
    "detour": half_sine_detour,
    "splice": splice,
    "loiter": loiter,
    "reverse": reverse,
    "speed": speed,
    "agent-swap": agent_swap,
}
"""Every injector by its name."""

NEED_A_POOL = ("splice", "agent-swap")
"""The injectors that need other trips: ``pool``."""


# -------------------------------------------------------------------- the geometry


def _run(n: int, alpha: float, rng: np.random.Generator) -> slice | None:
    """Draws a run of floor(alpha (n - 2)) interior fixes; returns None if there are none."""
    size = int(alpha * (n - 2) + 1e-9)
    if size < 1:
        return None
    start = int(rng.integers(1, n - size))
    return slice(start, start + size)


def _across(xy: Floats, run: slice, rng: np.random.Generator) -> Floats:
    """Draws one of the two unit vectors across the line from before the run to after it."""
    for way in (xy[run.stop] - xy[run.start - 1], xy[-1] - xy[0]):
        length = float(np.hypot(*way))
        if length >= 1.0:
            return np.array([-way[1], way[0]], np.float64) * (float(rng.choice([-1.0, 1.0])) / length)
    angle = rng.uniform(0, 2 * np.pi)
    return np.array([np.cos(angle), np.sin(angle)])


def _bent(path: Path, run: slice, top: Floats) -> Mutant | None:
    """Bends a run by a half sine, which reaches ``top`` half-way in time; the longer way takes longer."""
    section = slice(run.start - 1, run.stop + 1)
    when, where = path.time[section], path.xy[section]
    lasted = float(when[-1] - when[0])
    length = float(np.hypot(*np.diff(where, axis=0).T).sum())
    if lasted <= 0 or length < LEAST:
        return None
    share = (when - when[0]) / lasted
    swung = where + np.sin(np.pi * share)[:, None] * top
    stretch = max(float(np.hypot(*np.diff(swung, axis=0).T).sum()) / length, 1.0)
    if stretch > STEEPEST:
        return None
    steps = len(when) - 1
    longer = round(steps * stretch)
    new = np.arange(1, longer) / longer
    places = np.column_stack([np.interp(new, share, where[:, axis]) for axis in (0, 1)])
    sideways = np.sin(np.pi * new)
    if sideways.max() * float(np.hypot(*top)) < LEAST:
        return None
    interval = lasted / steps
    times = when[0] + interval * np.arange(1, longer)
    n, extra = len(path.time), longer - steps
    truth = np.zeros(n + extra, np.bool_)
    truth[run.start : run.stop + extra] = True
    return Mutant(
        np.r_[path.time[: run.start], times, path.time[run.stop :] + interval * extra],
        np.vstack([path.xy[: run.start], places + sideways[:, None] * top, path.xy[run.stop :]]),
        truth,
    )


def _spliced(path: Path, other: Path) -> Mutant | None:
    """Follows ``path`` to where the two are nearest, then ``other``; returns None if both take the same route."""
    mine, theirs = (np.arange(len(p.time) // 4, len(p.time) - len(p.time) // 4) for p in (path, other))
    apart = np.hypot(*(path.xy[mine, None] - other.xy[theirs]).transpose(2, 0, 1))
    i, k = np.unravel_index(int(apart.argmin()), apart.shape)
    leave, join = int(mine[i]), int(theirs[k])
    if apart[i, k] > GAP or leave == 0 or join >= len(other.time) - 1:
        return None
    rest = other.xy[join + 1 :]
    strayed = _off_route(rest, path.xy) > CELL
    if strayed.sum() < 3:
        return None
    return Mutant(
        np.r_[path.time[: leave + 1], path.time[leave] + (other.time[join + 1 :] - other.time[join])],
        np.vstack([path.xy[: leave + 1], rest]),
        np.r_[np.zeros(leave + 1, np.bool_), strayed],
    )


def _off_route(points: Floats, route: Floats) -> Floats:
    """Returns each point's distance from the line through the route's fixes."""
    start, along = route[:-1], np.diff(route, axis=0)
    square = np.maximum((along**2).sum(axis=1), 1e-9)
    away = points[:, None] - start
    share = np.clip((away * along).sum(axis=2) / square, 0.0, 1.0)
    return np.asarray(np.linalg.norm(away - share[..., None] * along, axis=2).min(axis=1))


def _check_share(name: str, value: float) -> None:
    if not 0.0 < value <= 1.0:
        raise DataError(f"{name} is {value}", remedy="give a share above 0 and up to 1")


def _check_positive(name: str, value: float) -> None:
    if not 0.0 < value < np.inf:
        raise DataError(f"{name} is {value}", remedy="give a number above 0")
