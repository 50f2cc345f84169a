"""Counterfactual trips: named ways in which a person's own trip could have gone wrong.

The reward is a ratio against the background, so it becomes sensitive to what the background contains and blind to the
rest. Each counterfactual changes one thing about a demonstrated path (its place, its route, its manner, its time) and
says which points it changed; the others are as normal as before and do not count as background.
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
    """One path: times, places, and the span of time in which it was changed (after the first, up to the second)."""

    time: Array
    xy: Array
    changed: tuple[float, float]


NEAR = 300.0  # metres: less is hardly another place

BORROW_WITHIN = 400.0  # metres between two trips that may be exchanged

Counterfactual = Callable[[Array, Array, Trajectories, np.random.Generator], Path]


def shift(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Place: the same trip elsewhere, 0.3 to 30 km away, at no preferred scale."""
    return _whole(time, xy + _toss(rng, np.exp(rng.uniform(np.log(NEAR), np.log(100 * NEAR)))))


def rotate(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Place: the same start, another direction."""
    return _whole(time, _turned(xy, xy[0], rng.uniform(0.15, 1.85) * np.pi))


def transplant(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Place: the trip as it would be from another of the person's starts, or, where there is none, from anywhere."""
    starts = others.columns["xy"][others.offsets[:-1]]
    starts = starts[np.hypot(*(starts - xy[0]).T) > NEAR]
    if not len(starts):
        return shift(time, xy, others, rng)
    return _whole(time, xy - xy[0] + starts[rng.integers(len(starts))])


def walk(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Place: a correlated random walk from the same start, with the trip's own speeds and a drawn persistence."""
    if len(xy) < 2:
        return _whole(time, xy)
    stride = np.hypot(*np.diff(xy, axis=0).T)
    turns = rng.normal(scale=np.exp(rng.uniform(np.log(0.1), np.log(1.0))), size=len(stride))
    heading = rng.uniform(0, 2 * np.pi) + np.cumsum(turns)
    moves = stride[:, None] * np.column_stack([np.cos(heading), np.sin(heading)])
    return _whole(time, np.vstack([xy[:1], xy[0] + np.cumsum(moves, axis=0)]))


def turn_off(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Route: from some point on, the rest of the trip goes another way."""
    i = _somewhere(len(xy), rng)
    bent = xy.copy()
    bent[i:] = _turned(xy[i:], xy[i], rng.choice([-1, 1]) * rng.uniform(0.15, 1.0) * np.pi)
    return Path(time, bent, (time[i], time[-1]))


def borrow(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Route: where another of the person's own trips passes by, the trip leaves its way and follows that one."""
    for _ in range(8):
        i, k, when, where = _near_another(xy, others, rng)
        if k is None:
            continue
        rest = where[k + 1 :]
        # As long as both go the same way nothing has changed (and never does, if the trip drawn is this one).
        leaves = np.flatnonzero(np.hypot(*(rest[:, None] - xy).T).min(axis=0) >= BORROW_WITHIN)
        if len(leaves):
            times = np.r_[time[: i + 1], time[i] + (when[k + 1 :] - when[k])]
            return Path(times, np.vstack([xy[: i + 1], rest]), (times[i + leaves[0]], times[-1]))
    return turn_off(time, xy, others, rng)


def detour(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Route: a part of the trip bulges sideways and comes back."""
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
    """Route: the trip leaves its way along another of the person's own trips, and comes back to it.

    Where that other trip meets the way again, the trip goes on from there; where it does not, it turns round.
    """
    for _ in range(8):
        i, k, when, where = _near_another(xy, others, rng)
        if k is None or k + 1 >= len(where):
            continue
        rest, since = where[k + 1 :], when[k + 1 :] - when[k]
        to_way = np.hypot(*(rest[:, None] - xy[i:]).T).T  # from each of its points to each that is still to come
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
    """Route: the same way, driven backwards."""
    return _whole(time[0] + time[-1] - time[::-1], xy[::-1])


def pace(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Manner: the same way, 1.5 to 4 times as fast or as slow."""
    factor = np.exp(rng.choice([-1, 1]) * rng.uniform(np.log(1.5), np.log(4.0)))
    return _whole(time[0] + (time - time[0]) * factor, xy)


def stop(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Manner: a stop of 5 to 60 minutes on the way."""
    i = _somewhere(len(xy), rng)
    pause = np.exp(rng.uniform(np.log(300.0), np.log(3600.0)))
    later = np.r_[time[: i + 1], time[i:] + pause]
    return Path(later, np.vstack([xy[: i + 1], xy[i:]]), (time[i], time[i] + pause))


def hour(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Path:
    """Time: the same trip at another hour, on the same kind of day or another."""
    return _whole(time + 3600.0 * rng.uniform(2.0, 22.0) + 86_400.0 * rng.integers(0, 7), xy)


COUNTERFACTUALS: dict[str, Counterfactual] = {
    "shift": shift,
    "rotate": rotate,
    "transplant": transplant,
    "walk": walk,
    "turn_off": turn_off,
    "borrow": borrow,
    "detour": detour,
    "excursion": excursion,
    "reverse": reverse,
    "pace": pace,
    "stop": stop,
    "hour": hour,
}

# Every counterfactual once; those that a detection needs most, more often.
DEFAULT_EXPLORERS = (*COUNTERFACTUALS, *("shift",) * 2, "pace", "excursion")

KINDS = {
    "place": ("shift", "rotate", "transplant", "walk"),
    "route": ("turn_off", "borrow", "detour", "excursion", "reverse"),
    "manner": ("pace", "stop"),
    "time": ("hour",),
}


def explore(
    paths: Trajectories,
    n: int,
    names: Sequence[str],
    interval: float,
    rng: np.random.Generator,
    own: Mapping[str, Counterfactual] = MappingProxyType({}),
) -> tuple[Trajectories, NDArray[np.bool_]]:
    """Draw ``n`` counterfactuals of random paths, each of a random one of ``names``, resampled to the interval.

    ``own`` are further counterfactuals, by name.
    Returns the paths, with the context (and the trip) of those that they were made of, and which of their points were
    changed.
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
    # The step by which the turning point was reached is as normal as ever; a millisecond stands for rounding.
    return drawn, (at > start[row] + 1e-3) & (at <= end[row] + 1e-3)


def _check_path(name: str, path: Any) -> None:
    """Refuse what an explorer of one's own gave, if it is no path."""
    fits = isinstance(path, Path) and np.shape(path.xy) == (len(path.time), 2) and len(path.time) > 0
    fits = fits and bool(np.isfinite(path.time).all() and np.isfinite(path.xy).all())
    if not fits or (np.diff(path.time) < 0).any():
        raise DataError(
            f"the explorer {name!r} gave no path",
            remedy="return Path(time, xy, changed) with as many rising times as places, in seconds and metres",
        )


def _near_another(xy: Array, others: Trajectories, rng: np.random.Generator) -> tuple[int, int | None, Array, Array]:
    """A point of the way, and the nearest one of another trip with its times and places; None if that is far away."""
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
    """A point of the path, not near its ends where it has a middle, and never its last."""
    return min(int(n * rng.uniform(0.1, 0.8)), max(n - 2, 0))


def _toss(rng: np.random.Generator, length: float) -> Array:
    angle = rng.uniform(0, 2 * np.pi)
    return length * np.array([np.cos(angle), np.sin(angle)])


def _turned(xy: Array, about: Array, angle: float) -> Array:
    c, s = np.cos(angle), np.sin(angle)
    return np.asarray((xy - about) @ np.array([[c, s], [-s, c]]) + about)
