"""Counterfactuals: named functions that change a demonstrated trip into one that went wrong.

The reward compares demonstrations with the background, so it detects what the background contains. Each counterfactual
changes one aspect of a demonstrated path (its place, route, manner or time) and returns which part it changed; the
other points are still normal and do not become background.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.features.paths import make_paths, resample

Array = NDArray[Any]


class Path(NamedTuple):
    """A counterfactual path: times, places, and the changed span of time (after its first time, up to its second)."""

    time: Array
    xy: Array
    changed: tuple[float, float]


NEAR = 300.0  # metres; a place nearer than this is the same place

BORROW_WITHIN = 400.0  # metres; where two trips come this close, one may continue as the other

# Takes the times and places of a trip, the other trips of its agent, and the random generator.
Counterfactual = Callable[[Array, Array, Trajectories, np.random.Generator], Path]


def shift(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Place: moves the trip by 0.3 to 30 km, log-uniformly."""
    return _whole(time, xy + _toss(rng, np.exp(rng.uniform(np.log(NEAR), np.log(100 * NEAR)))))


def rotate(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Place: turns the trip about its start."""
    return _whole(time, _turned(xy, xy[0], rng.uniform(0.15, 1.85) * np.pi))


def transplant(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Place: moves the trip to the start of another trip of the agent or, without one, anywhere (:func:`shift`)."""
    starts = others.columns["xy"][others.offsets[:-1]]
    starts = starts[np.hypot(*(starts - xy[0]).T) > NEAR]
    if not len(starts):
        return shift(time, xy, others, rng)
    return _whole(time, xy - xy[0] + starts[rng.integers(len(starts))])


def walk(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Place: replaces the trip by a correlated random walk with its start and speeds, and a random persistence."""
    if len(xy) < 2:
        return _whole(time, xy)
    stride = np.hypot(*np.diff(xy, axis=0).T)
    turns = rng.normal(scale=np.exp(rng.uniform(np.log(0.1), np.log(1.0))), size=len(stride))
    heading = rng.uniform(0, 2 * np.pi) + np.cumsum(turns)
    moves = stride[:, None] * np.column_stack([np.cos(heading), np.sin(heading)])
    return _whole(time, np.vstack([xy[:1], xy[0] + np.cumsum(moves, axis=0)]))


def turn_off(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Route: turns the rest of the trip about a random point."""
    i = _somewhere(len(xy), rng)
    bent = xy.copy()
    bent[i:] = _turned(xy[i:], xy[i], rng.choice([-1, 1]) * rng.uniform(0.15, 1.0) * np.pi)
    return Path(time, bent, (time[i], time[-1]))


def borrow(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Route: switches to another trip of the agent where the two pass near each other."""
    for _ in range(8):
        i, k, when, where = _near_another(xy, others, rng)
        if k is None:
            continue
        rest = where[k + 1 :]
        # As long as both go the same way, nothing has changed (never, if the other trip is this one).
        leaves = np.flatnonzero(np.hypot(*(rest[:, None] - xy).T).min(axis=0) >= BORROW_WITHIN)
        if len(leaves):
            times = np.r_[time[: i + 1], time[i] + (when[k + 1 :] - when[k])]
            return Path(times, np.vstack([xy[: i + 1], rest]), (times[i + leaves[0]], times[-1]))
    return turn_off(time, xy, others, rng)


def detour(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Route: bends a part of the trip sideways and back."""
    n = len(xy)
    run = max(2, int(n * rng.uniform(0.15, 0.5)))
    if n < 4:
        return _whole(time, xy + _toss(rng, 1000.0))
    i = int(rng.integers(0, n - min(run, n - 1)))
    j = min(i + run, n - 1)
    chord = xy[j] - xy[i]
    length = float(np.hypot(*chord))
    height = max(length, 500.0) * rng.uniform(0.2, 0.8) * rng.choice([-1, 1])
    across = np.array([-chord[1], chord[0]]) / length if length > 1.0 else _toss(rng, 1.0)
    bent = xy.copy()
    bent[i : j + 1] += height * np.sin(np.linspace(0, np.pi, j + 1 - i))[:, None] * across
    return Path(time, bent, (time[i], time[j]))


def excursion(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Route: follows another trip of the agent for a while, and returns.

    If the other trip meets the original way again, the trip continues from there; otherwise it turns round.
    """
    for _ in range(8):
        i, k, when, where = _near_another(xy, others, rng)
        if k is None or k + 1 >= len(where):
            continue
        rest, since = where[k + 1 :], when[k + 1 :] - when[k]
        # Distances from each of its points to each remaining point of the original.
        to_way = np.hypot(*(rest[:, None] - xy[i:]).T).T
        far = np.flatnonzero(to_way.min(axis=1) >= NEAR)
        if not len(far):
            continue
        met = np.flatnonzero((to_way.min(axis=1) < NEAR) & (np.arange(len(rest)) > far[0]))
        if len(met):
            last, back = int(met[0]), i + int(to_way[met[0]].argmin())
            out, took = rest[: last + 1], since[: last + 1]
        else:
            last, back = min(int(far[0]) + int(rng.integers(1, max(len(xy) // 3, 2) + 1)), len(rest) - 1), i
            out = np.vstack([rest[: last + 1], rest[:last][::-1]])
            took = np.r_[since[: last + 1], 2 * since[last] - since[:last][::-1]]
        away = time[i] + took
        later = away[-1] + (took[0] if len(took) == 1 else took[-1] - took[-2])
        times = np.r_[time[: i + 1], away, later + time[back:] - time[back]]
        if not (np.diff(times) > 0).all():
            continue
        return Path(times, np.vstack([xy[: i + 1], out, xy[back:]]), (times[i], later))
    return detour(time, xy, others, rng)


def reverse(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Route: reverses the trip."""
    return _whole(time[0] + time[-1] - time[::-1], xy[::-1])


def pace(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Manner: makes the trip 1.5 to 4 times as fast or as slow."""
    factor = np.exp(rng.choice([-1, 1]) * rng.uniform(np.log(1.5), np.log(4.0)))
    return _whole(time[0] + (time - time[0]) * factor, xy)


def stop(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Manner: adds a stop of 5 to 60 minutes."""
    i = _somewhere(len(xy), rng)
    pause = np.exp(rng.uniform(np.log(300.0), np.log(3600.0)))
    later = np.r_[time[: i + 1], time[i:] + pause]
    return Path(later, np.vstack([xy[: i + 1], xy[i:]]), (time[i], time[i] + pause))


def hour(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Time: moves the trip to another hour, and possibly another day of the week."""
    return _whole(time + 3600.0 * rng.uniform(2.0, 22.0) + 86_400.0 * rng.integers(0, 7), xy)


_BY_KIND: dict[str, tuple[Counterfactual, ...]] = {
    "place": (shift, rotate, transplant, walk),
    "route": (turn_off, borrow, detour, excursion, reverse),
    "manner": (pace, stop),
    "time": (hour,),
}
COUNTERFACTUALS = {made.__name__: made for kind in _BY_KIND.values() for made in kind}
KINDS = {kind: tuple(made.__name__ for made in known) for kind, known in _BY_KIND.items()}

# Every counterfactual at least once; those that improve detection most, several times.
DEFAULT_EXPLORERS = (*COUNTERFACTUALS, *("shift",) * 2, "pace", "excursion")


def explore(
    paths: Trajectories,
    n: int,
    names: Sequence[str],
    interval: float,
    rng: np.random.Generator,
    own: Mapping[str, Counterfactual] = MappingProxyType({}),
) -> tuple[Trajectories, NDArray[np.bool_]]:
    """Draws ``n`` counterfactuals: applies a random one of ``names`` to a random path; resamples to the interval.

    ``own`` maps names to the user's own counterfactuals. Returns the paths, with the context and trip of their
    originals, and a mask of the changed points.
    """
    known = {**COUNTERFACTUALS, **own}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise DataError(
            f"no counterfactual named {(unknown or ['(none)'])[0]!r}", remedy=f"give some of {', '.join(known)}"
        )
    source = rng.integers(len(paths), size=n)
    kind = rng.integers(len(names), size=n)
    time, xy, offsets = paths.columns["time"], paths.columns["xy"], paths.offsets
    made = [
        known[names[k]](time[offsets[i] : offsets[i + 1]], xy[offsets[i] : offsets[i + 1]], paths, rng)
        for i, k in zip(source, kind, strict=True)
    ]
    for path, k in zip(made, kind, strict=True):
        if names[k] in own:
            _check_path(names[k], path)
    raw = make_paths(
        np.concatenate([p.time for p in made]),
        np.concatenate([p.xy for p in made]),
        np.r_[0, np.cumsum([len(p.time) for p in made])],
    )
    drawn = resample(raw, interval)
    drawn.context.update({name: values[source] for name, values in paths.context.items()})
    start, end = np.array([p.changed for p in made]).T
    at = drawn.columns["time"]
    row = drawn.trajectory_of_row
    # The step that reaches the turning point is still normal; the millisecond allows for rounding.
    return drawn, (at > start[row] + 1e-3) & (at <= end[row] + 1e-3)


def _check_path(name: str, path: Any) -> None:
    """Raises an error if one of the user's own counterfactuals returned something that is not a path."""
    fits = isinstance(path, Path) and np.shape(path.xy) == (len(path.time), 2) and len(path.time) > 0
    fits = fits and bool(np.isfinite(path.time).all() and np.isfinite(path.xy).all())
    if not fits or (np.diff(path.time) < 0).any():
        raise DataError(
            f"the explorer {name!r} did not return a path",
            remedy="return Path(time, xy, changed) with as many rising times as places, in seconds and metres",
        )


def _near_another(xy: Array, others: Trajectories, rng: np.random.Generator) -> tuple[int, int | None, Array, Array]:
    """Draws a point and another trip; returns the point, the nearest one of that trip (None if far), times, places."""
    j = int(rng.integers(len(others)))
    rows = slice(int(others.offsets[j]), int(others.offsets[j + 1]))
    where = others.columns["xy"][rows]
    i = _somewhere(len(xy), rng)
    apart = np.hypot(*(where - xy[i]).T)
    k = int(apart.argmin())
    return i, k if apart[k] < BORROW_WITHIN else None, others.columns["time"][rows], where


def _whole(time: Array, xy: Array) -> Path:
    return Path(time, xy, (-np.inf, np.inf))


def _somewhere(n: int, rng: np.random.Generator) -> int:
    """Draws a point of the path: not near its ends if possible, and never the last."""
    return min(int(n * rng.uniform(0.1, 0.8)), max(n - 2, 0))


def _toss(rng: np.random.Generator, length: float) -> Array:
    angle = rng.uniform(0, 2 * np.pi)
    return length * np.array([np.cos(angle), np.sin(angle)])


def _turned(xy: Array, about: Array, angle: float) -> Array:
    c, s = np.cos(angle), np.sin(angle)
    return np.asarray((xy - about) @ np.array([[c, s], [-s, c]]) + about)
