"""Street plans of made towns: grid, organic, radial with a ring, several villages; and a resort far off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from astray.simulate.streets import (
    AVENUE,
    EXPRESS,
    RING,
    SIDE,
    Floats,
    Ints,
    Streets,
    arcs_of,
    cheapest_ways,
    follow_back,
    largest_part,
)

Web = tuple[Floats, Ints, Ints]
"""Crossings, the streets between them, and the class of each street."""

_HALF = 22
"""Most lines of a plan from its middle to its edge; greater towns have longer blocks outside."""


def lay_out(plan: str, radius: float, block: float, centre: tuple[float, float], rng: np.random.Generator) -> Streets:
    """The streets of a town with a plan of :data:`PLANS`, and blocks of ``block`` metres in the middle."""
    xy, ends, kinds = PLANS[plan](radius, block, rng)
    river = np.zeros((0, 2))
    if rng.random() < 0.5:
        river, bank = _river(xy, radius, rng)
        across = bank[ends[:, 0]] != bank[ends[:, 1]]
        dry = ~across | (kinds > SIDE) | (rng.random(len(ends)) < 0.06)
        ends, kinds = ends[dry], kinds[dry]
    xy, ends, kinds = largest_part(xy, ends, kinds)
    if radius > 4000.0:
        kinds = _expressways(xy, ends, np.where(kinds == RING, EXPRESS, kinds), radius, rng)
    middle = np.hypot(*xy[ends].mean(axis=1).T)
    busy = np.array([0.2, 0.4, 0.35, 0.3])[kinds] + 0.2 * np.exp(-((3 * middle / radius) ** 2))
    patience = float(rng.uniform(0.7, 2.5))
    return Streets(xy, ends, kinds, busy * rng.uniform(0.5, 1.3), river, np.zeros((0, 2)), centre, patience)


def grid(radius: float, block: float, rng: np.random.Generator) -> Web:
    """Straight lines, every few of them wide, with a ring road at times."""
    half = _lines(radius, block)
    size = 2 * half + 1
    column, row = (axis.ravel() for axis in np.meshgrid(np.arange(-half, half + 1), np.arange(-half, half + 1)))
    number = np.arange(size * size).reshape(size, size)
    ends = np.concatenate(
        [
            np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1),
            np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1),
        ]
    )
    every = int(rng.integers(3, 7))
    ring = int(rng.integers(half // 3, half - 1)) if rng.random() < 0.5 else half + 1
    level = (row[ends[:, 0]] == row[ends[:, 1]], column[ends[:, 0]] == column[ends[:, 1]])
    line = np.where(level[0], row[ends[:, 0]], column[ends[:, 0]])
    reach = np.where(level[0], np.abs(column[ends]).max(axis=1), np.abs(row[ends]).max(axis=1))
    kinds = np.where(line % every == 0, AVENUE, SIDE)
    kinds[(np.abs(line) == ring) & (reach <= ring)] = RING
    points = np.stack([_stretched(axis.astype(np.float64), half, radius, block) for axis in (column, row)], axis=1)
    points += rng.normal(0, rng.uniform(0.01, 0.08), points.shape) * _spacing(points, half, radius, block)
    ragged = np.hypot(*points.T) < radius * rng.normal(1.0, 0.06, len(points))
    keep = ragged[ends].all(axis=1) & ((kinds > SIDE) | (rng.random(len(ends)) > rng.uniform(0.05, 0.2)))
    return _bent(points, radius, rng), ends[keep], kinds[keep]


def organic(radius: float, block: float, rng: np.random.Generator) -> Web:
    """No plan: crooked streets that join neighbours, and wide roads that grew along the ways to the middle."""
    half = _lines(radius, block)
    column, row = (axis.ravel() for axis in np.meshgrid(np.arange(-half, half + 1), np.arange(-half, half + 1)))
    points = np.stack([column + 0.5 * (row % 2), row * 0.9], axis=1) + rng.normal(0, 0.25, (len(column), 2))
    points = points[np.hypot(*points.T) < half]
    away = np.hypot(*points.T)
    points *= (_stretched(away, half, radius, block) / np.maximum(away, 1e-9))[:, None]
    points = _bent(points, radius, rng)
    ends = neighbours(points)
    ends = ends[rng.random(len(ends)) > 0.08]
    points, ends, kinds = largest_part(points, ends, np.full(len(ends), SIDE))
    bearing = rng.uniform(0, 2 * np.pi) + np.arange(7) * 2 * np.pi / 7 + rng.normal(0, 0.2, 7)
    rim = [_nearest(points, radius * np.array([np.cos(b), np.sin(b)])) for b in bearing]
    pairs = [(_nearest(points, np.zeros(2)), gate) for gate in rim]
    return points, ends, _widened(points, ends, kinds, pairs, AVENUE, rng)


def radial(radius: float, block: float, rng: np.random.Generator) -> Web:
    """Wide spokes from the middle, rings around it, one of them a ring road."""
    rings, spokes = _lines(radius, block), int(rng.integers(5, 9))
    away = _stretched(np.arange(1, rings + 1).astype(np.float64), rings, radius, block)
    width = np.gradient(np.append(0.0, away))[1:]
    doubled = np.ceil(np.log2(np.maximum(2 * np.pi * away / (spokes * width), 1.0)))
    count = spokes * 2 ** np.maximum.accumulate(np.minimum(doubled, 4)).astype(np.int64)
    first = 1 + np.concatenate([[0], np.cumsum(count)[:-1]])
    xy, ends, kinds = [np.zeros((1, 2))], [], []
    fast = int(rng.integers(rings // 3, rings - 1))
    for k in range(rings):
        angle = 2 * np.pi * np.arange(count[k]) / count[k]
        xy.append(away[k] * np.stack([np.cos(angle), np.sin(angle)], axis=1))
        here = first[k] + np.arange(count[k])
        ends.append(np.stack([here, np.roll(here, -1)], axis=1))
        kinds.append(np.full(count[k], RING if k == fast else AVENUE if k % 6 == 3 else SIDE))
        inside = count[k - 1] if k else spokes
        spoke = np.arange(inside)
        inner = first[k - 1] + spoke if k else np.zeros(spokes, dtype=np.int64)
        ends.append(np.stack([inner, first[k] + spoke * (count[k] // inside)], axis=1))
        kinds.append(np.where(spoke % (inside // spokes) == 0, AVENUE, SIDE))
    points, edges, road = np.concatenate(xy), np.concatenate(ends), np.concatenate(kinds)
    points += rng.normal(0, 0.1 * block, points.shape) * (1 + 2 * np.hypot(*points.T)[:, None] / radius)
    keep = (road > SIDE) | (rng.random(len(road)) > rng.uniform(0.08, 0.25))
    return _bent(points, radius, rng), edges[keep], road[keep]


def villages(radius: float, block: float, rng: np.random.Generator) -> Web:
    """One larger and several smaller places with country roads between them."""
    n = int(rng.integers(3, 8))
    bearing = rng.uniform(0, 2 * np.pi) + 2.4 * np.arange(n)
    away = radius * np.sqrt(np.arange(n) / n) * rng.uniform(0.8, 1.1, n)
    hearts = (away * np.stack([np.cos(bearing), np.sin(bearing)])).T
    sizes = np.clip(radius * rng.uniform(0.12, 0.22, n) * np.where(np.arange(n) == 0, 2.0, 1.0), 500, 5000)
    webs = [organic(size, max(1.2 * block, size / 11), rng) for size in sizes.tolist()]
    moved = [(xy + heart, ends, kinds) for heart, (xy, ends, kinds) in zip(hearts, webs, strict=True)]
    return _linked(moved, hearts, rng)


PLANS: dict[str, Callable[[float, float, np.random.Generator], Web]] = {
    "grid": grid,
    "organic": organic,
    "radial": radial,
    "villages": villages,
}
"""How the streets of a town can lie."""


@dataclass(frozen=True, eq=False)
class Resort:
    """A small place far from town: where it is, and which streets are its own."""

    heart: Floats
    streets: NDArray[np.bool_]


def with_resort(streets: Streets, rng: np.random.Generator) -> tuple[Streets, Resort]:
    """The same streets, and a country road of 40 to 90 km to a resort; crossings and streets keep their numbers."""
    bearing, far = rng.uniform(0, 2 * np.pi), rng.uniform(40_000, 90_000)
    heart = far * np.array([np.cos(bearing), np.sin(bearing)])
    xy, ends, kinds = organic(float(rng.uniform(600, 1500)), 150.0, rng)
    old = (streets.xy, streets.edges, streets.road)
    points, edges, road = _linked([old, (xy + heart, ends, kinds)], np.stack([np.zeros(2), heart]), rng)
    road[len(streets.edges) + len(ends) :] = EXPRESS
    own = np.zeros(len(edges), dtype=bool)
    own[len(streets.edges) : len(streets.edges) + len(ends)] = True
    congestion = np.append(streets.congestion, np.zeros(len(edges) - len(streets.edges)))
    return replace(streets, xy=points, edges=edges, road=road, congestion=congestion), Resort(heart, own)


# ---------------------------------------------------------------- parts


def neighbours(points: Floats, among: int = 10) -> Ints:
    """The pairs of points with no third one in the circle over them (Gabriel's graph)."""
    squared = ((points[:, None] - points) ** 2).sum(axis=2)
    np.fill_diagonal(squared, np.inf)
    near = np.argsort(squared, axis=1, kind="stable")[:, : min(among, len(points) - 1)]
    middle = (points[:, None] + points[near]) / 2
    reach = ((points[:, None] - points[near]) ** 2).sum(axis=2) / 4
    others = ((middle[:, :, None] - points[near][:, None]) ** 2).sum(axis=3)
    free = (others >= reach[:, :, None] * (1 - 1e-9)).all(axis=2)
    a, k = np.nonzero(free)
    pairs = np.sort(np.stack([a, near[a, k]], axis=1), axis=1)
    return np.unique(pairs, axis=0)


def _lines(radius: float, block: float) -> int:
    return int(np.clip(round(radius / block), 5, _HALF))


def _stretched(line: Floats, half: int, radius: float, block: float) -> Floats:
    """Metres of a line: blocks of one length in the middle that grow so that the last line is at the radius."""
    growth = max(radius / (block * half) - 1.0, 0.0) / half
    return np.asarray(block * line * (1 + growth * np.abs(line)))


def _spacing(points: Floats, half: int, radius: float, block: float) -> Floats:
    growth = max(radius / (block * half) - 1.0, 0.0)
    return block * (1 + 2 * growth * np.abs(points) / radius)


def _bent(points: Floats, radius: float, rng: np.random.Generator) -> Floats:
    """Bend the ground in long waves, and turn it."""
    phase, strength = rng.uniform(0, 2 * np.pi, 2), rng.uniform(0.0, 0.05) * radius
    waves = np.sin(3 * points[:, ::-1] / radius + phase)
    angle = rng.uniform(0, 2 * np.pi)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.asarray((points + strength * waves) @ turn.T)


def _river(xy: Floats, radius: float, rng: np.random.Generator) -> tuple[Floats, NDArray[np.bool_]]:
    """A river across town: its line, and on which bank each crossing lies."""
    angle, phase, aside = rng.uniform(0, 2 * np.pi), rng.uniform(0, 2 * np.pi), rng.uniform(-0.4, 0.4) * radius
    along = np.array([np.cos(angle), np.sin(angle)])
    across = np.array([-along[1], along[0]])

    def course(u: Floats) -> Floats:
        return np.asarray(aside + 0.15 * radius * np.sin(2.5 * u / radius + phase))

    u = np.linspace(-1.1 * radius, 1.1 * radius, 80)
    return u[:, None] * along + course(u)[:, None] * across, xy @ across > course(xy @ along)


def _nearest(points: Floats, place: Floats) -> int:
    return int(np.argmin(((points - place) ** 2).sum(axis=1)))


def _widened(
    xy: Floats, ends: Ints, kinds: Ints, pairs: list[tuple[int, int]], road: int, rng: np.random.Generator
) -> Ints:
    """The classes of the streets after those on the ways between pairs of crossings have been widened."""
    streets = Streets(xy, ends, kinds, np.zeros(len(ends)), np.zeros((0, 2)), np.zeros((0, 2)))
    cost = np.tile(streets.length, 2) * np.exp(0.2 * rng.normal(size=2 * len(ends)))
    wide = kinds.copy()
    for a, b in pairs:
        way = follow_back(cheapest_ways(streets, cost.tolist(), a, b)[1], a, b)
        taken = [arc % len(ends) for arc in arcs_of(streets, way)]
        wide[taken] = np.maximum(wide[taken], road)
    return wide


def _expressways(xy: Floats, ends: Ints, kinds: Ints, radius: float, rng: np.random.Generator) -> Ints:
    """The classes of the streets with a fast ring round the middle and fast roads out of town."""
    bearing = rng.uniform(0, 2 * np.pi) + np.arange(8) * np.pi / 4
    compass = np.stack([np.cos(bearing), np.sin(bearing)], axis=1)
    ring = [_nearest(xy, point) for point in rng.uniform(0.3, 0.55) * radius * compass]
    rim = [_nearest(xy, point) for point in radius * compass]
    out = [(ring[k], rim[k]) for k in rng.choice(8, 3, replace=False).tolist()]
    return _widened(xy, ends, kinds, [*pairwise([*ring, ring[0]]), *out], EXPRESS, rng)


def _linked(webs: list[Web], hearts: Floats, rng: np.random.Generator) -> Web:
    """Several webs as one, with country roads between neighbouring hearts."""
    first = np.cumsum([0] + [len(xy) for xy, _, _ in webs])
    points = [xy for xy, _, _ in webs]
    ends = [edges + first[k] for k, (_, edges, _) in enumerate(webs)]
    kinds = [road for _, _, road in webs]
    count = int(first[-1])
    pairs = neighbours(hearts) if len(hearts) > 2 else np.array([[0, 1]])
    for a, b in pairs.tolist():
        start = int(first[a]) + _nearest(webs[a][0], hearts[a] + 0.5 * (hearts[b] - hearts[a]))
        goal = int(first[b]) + _nearest(webs[b][0], hearts[b] + 0.5 * (hearts[a] - hearts[b]))
        p, q = webs[a][0][start - first[a]], webs[b][0][goal - first[b]]
        bends = max(int(np.hypot(*(q - p)) // 900.0), 1)
        share = np.linspace(0, 1, bends + 2)[1:-1, None]
        aside = np.array([p[1] - q[1], q[0] - p[0]]) * np.sin(np.pi * share) * rng.normal(0, 0.06)
        points.append(p + share * (q - p) + aside + rng.normal(0, 60.0, (bends, 2)))
        road = [start, *range(count, count + bends), goal]
        ends.append(np.stack([road[:-1], road[1:]], axis=1))
        kinds.append(np.full(bends + 1, RING))
        count += bends
    return np.concatenate(points), np.concatenate(ends), np.concatenate(kinds)
