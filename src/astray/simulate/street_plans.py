"""Street plans of simulated towns: grid, organic, radial and villages; and a holiday resort far from town."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from astray.simulate.streets import (
    AVENUE,
    EXPRESS,
    RING,
    SIDE,
    Bools,
    Floats,
    Ints,
    Streets,
    cheapest_path,
    directions,
    largest_part,
    lattice,
    nearest_point,
    rotate,
)

Web = tuple[Floats, Ints, Ints]  # crossings, the streets between them, and the class of each street

_NO_OUTLINE = np.zeros((0, 2))

_HALF = 22  # the most grid lines from the centre to the edge; larger towns have longer blocks instead


def lay_out(plan: str, radius: float, block: float, centre: tuple[float, float], rng: np.random.Generator) -> Streets:
    """Lays out the streets of a town by a plan of :data:`PLANS`, with blocks of ``block`` metres in the centre."""
    xy, ends, kinds = PLANS[plan](radius, block, rng)
    river = _NO_OUTLINE
    if rng.random() < 0.5:
        river, bank = _river(xy, radius, rng)
        across = bank[ends[:, 0]] != bank[ends[:, 1]]
        keep = ~across | (kinds > SIDE) | (rng.random(len(ends)) < 0.06)
        ends, kinds = ends[keep], kinds[keep]
    xy, ends, kinds = largest_part(xy, ends, kinds)
    if radius > 4000.0:
        kinds = _expressways(xy, ends, np.where(kinds == RING, EXPRESS, kinds), radius, rng)
    middle = np.hypot(*xy[ends].mean(axis=1).T)
    busy = np.array([0.2, 0.4, 0.35, 0.3])[kinds] + 0.2 * np.exp(-((3 * middle / radius) ** 2))
    patience = float(rng.uniform(0.7, 2.5))
    return Streets(xy, ends, kinds, busy * rng.uniform(0.5, 1.3), river, _NO_OUTLINE, centre, patience)


def grid(radius: float, block: float, rng: np.random.Generator) -> Web:
    """Makes straight streets; some are avenues, and half of the towns have a ring road."""
    half = _grid_lines(radius, block)
    size = 2 * half + 1
    column, row = lattice(half, half)
    number = np.arange(size * size).reshape(size, size)
    ends = np.concatenate(
        [
            np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1),
            np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1),
        ]
    )
    every = int(rng.integers(3, 7))
    ring = int(rng.integers(half // 3, half - 1)) if rng.random() < 0.5 else half + 1
    level = row[ends[:, 0]] == row[ends[:, 1]]
    line = np.where(level, row[ends[:, 0]], column[ends[:, 0]])
    reach = np.where(level, np.abs(column[ends]).max(axis=1), np.abs(row[ends]).max(axis=1))
    kinds = np.where(line % every == 0, AVENUE, SIDE)
    kinds[(np.abs(line) == ring) & (reach <= ring)] = RING
    points = np.stack([_stretch(axis.astype(np.float64), half, radius, block) for axis in (column, row)], axis=1)
    points += rng.normal(0, rng.uniform(0.01, 0.08), points.shape) * _spacing(points, half, radius, block)
    ragged = np.hypot(*points.T) < radius * rng.normal(1.0, 0.06, len(points))
    keep = ragged[ends].all(axis=1) & ((kinds > SIDE) | (rng.random(len(ends)) > rng.uniform(0.05, 0.2)))
    return _bend(points, radius, rng), ends[keep], kinds[keep]


def organic(radius: float, block: float, rng: np.random.Generator) -> Web:
    """Makes crooked streets between neighbouring crossings, and avenues towards the centre."""
    half = _grid_lines(radius, block)
    column, row = lattice(half, half)
    points = np.stack([column + 0.5 * (row % 2), row * 0.9], axis=1) + rng.normal(0, 0.25, (len(column), 2))
    points = points[np.hypot(*points.T) < half]
    away = np.hypot(*points.T)
    points *= (_stretch(away, half, radius, block) / np.maximum(away, 1e-9))[:, None]
    points = _bend(points, radius, rng)
    ends = gabriel_graph(points)
    ends = ends[rng.random(len(ends)) > 0.08]
    points, ends, kinds = largest_part(points, ends, np.full(len(ends), SIDE))
    bearing = rng.uniform(0, 2 * np.pi) + np.arange(7) * 2 * np.pi / 7 + rng.normal(0, 0.2, 7)
    heart = nearest_point(points, np.zeros(2))
    pairs = [(heart, nearest_point(points, radius * direction)) for direction in directions(bearing)]
    return points, ends, _widen(points, ends, kinds, pairs, AVENUE, rng)


def radial(radius: float, block: float, rng: np.random.Generator) -> Web:
    """Makes avenues out of the centre and rings around it; one of the rings is a ring road."""
    rings, spokes = _grid_lines(radius, block), int(rng.integers(5, 9))
    away = _stretch(np.arange(1, rings + 1).astype(np.float64), rings, radius, block)
    width = np.gradient(np.append(0.0, away))[1:]
    doubled = np.ceil(np.log2(np.maximum(2 * np.pi * away / (spokes * width), 1.0)))
    count = spokes * 2 ** np.maximum.accumulate(np.minimum(doubled, 4)).astype(np.int64)
    first = 1 + np.concatenate([[0], np.cumsum(count)[:-1]])
    xy, ends, kinds = [np.zeros((1, 2))], [], []
    fast = int(rng.integers(rings // 3, rings - 1))
    for k in range(rings):
        xy.append(away[k] * directions(2 * np.pi * np.arange(count[k]) / count[k]))
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
    return _bend(points, radius, rng), edges[keep], road[keep]


def villages(radius: float, block: float, rng: np.random.Generator) -> Web:
    """Makes one larger and several smaller organic street networks, with country roads between them."""
    n = int(rng.integers(3, 8))
    bearing = rng.uniform(0, 2 * np.pi) + 2.4 * np.arange(n)
    away = radius * np.sqrt(np.arange(n) / n) * rng.uniform(0.8, 1.1, n)
    hearts = away[:, None] * directions(bearing)
    sizes = np.clip(radius * rng.uniform(0.12, 0.22, n) * np.where(np.arange(n) == 0, 2.0, 1.0), 500, 5000)
    webs = [organic(size, max(1.2 * block, size / 11), rng) for size in sizes.tolist()]
    moved = [(xy + heart, ends, kinds) for heart, (xy, ends, kinds) in zip(hearts, webs, strict=True)]
    return _link(moved, hearts, rng)


PLANS: dict[str, Callable[[float, float, np.random.Generator], Web]] = {
    "grid": grid,
    "organic": organic,
    "radial": radial,
    "villages": villages,
}
"""The street plans: functions of the town's radius, the length of central blocks, and random numbers."""


def with_resort(streets: Streets, rng: np.random.Generator) -> tuple[Streets, Bools]:
    """Adds a country road of 40 to 90 km and a resort at its end.

    Returns the longer network, in which old crossings and streets keep their numbers, and a mask of the streets
    of the resort.
    """
    bearing, far = rng.uniform(0, 2 * np.pi), rng.uniform(40_000, 90_000)
    heart = far * directions(bearing)
    xy, ends, kinds = organic(float(rng.uniform(600, 1500)), 150.0, rng)
    town = (streets.xy, streets.edges, streets.road)
    points, edges, road = _link([town, (xy + heart, ends, kinds)], np.stack([np.zeros(2), heart]), rng)
    first, last = len(streets.edges), len(streets.edges) + len(ends)
    road[last:] = EXPRESS
    in_resort = np.zeros(len(edges), dtype=bool)
    in_resort[first:last] = True
    congestion = np.append(streets.congestion, np.zeros(len(edges) - first))
    return replace(streets, xy=points, edges=edges, road=road, congestion=congestion), in_resort


# ---------------------------------------------------------------- parts of plans


def gabriel_graph(points: Floats, among: int = 10) -> Ints:
    """Returns the pairs of points whose diametral circle contains no third point.

    Only the ``among`` nearest neighbours of each point are considered.
    """
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


def _grid_lines(radius: float, block: float) -> int:
    """Returns the number of grid lines between the centre and the edge."""
    return int(np.clip(round(radius / block), 5, _HALF))


def _stretch(line: Floats, half: int, radius: float, block: float) -> Floats:
    """Converts grid lines to metres; blocks grow outwards so that the last line lies at the radius."""
    growth = max(radius / (block * half) - 1.0, 0.0) / half
    return np.asarray(block * line * (1 + growth * np.abs(line)))


def _spacing(points: Floats, half: int, radius: float, block: float) -> Floats:
    """Returns the length of the blocks at each point, along both axes."""
    growth = max(radius / (block * half) - 1.0, 0.0)
    return block * (1 + 2 * growth * np.abs(points) / radius)


def _bend(points: Floats, radius: float, rng: np.random.Generator) -> Floats:
    """Bends the plan in long waves and turns it."""
    phase, strength = rng.uniform(0, 2 * np.pi, 2), rng.uniform(0.0, 0.05) * radius
    waves = np.sin(3 * points[:, ::-1] / radius + phase)
    return rotate(points + strength * waves, rng.uniform(0, 2 * np.pi))


def _river(xy: Floats, radius: float, rng: np.random.Generator) -> tuple[Floats, Bools]:
    """Draws a river across town. Returns its line, and a mask of the crossings on its left bank."""
    angle, phase, aside = rng.uniform(0, 2 * np.pi), rng.uniform(0, 2 * np.pi), rng.uniform(-0.4, 0.4) * radius
    along = directions(angle)
    across = np.array([-along[1], along[0]])

    def course(u: Floats) -> Floats:
        return np.asarray(aside + 0.15 * radius * np.sin(2.5 * u / radius + phase))

    u = np.linspace(-1.1 * radius, 1.1 * radius, 80)
    return u[:, None] * along + course(u)[:, None] * across, xy @ across > course(xy @ along)


def _widen(
    xy: Floats, ends: Ints, kinds: Ints, pairs: list[tuple[int, int]], road: int, rng: np.random.Generator
) -> Ints:
    """Returns the classes of the streets after widening those on the shortest paths between pairs of crossings."""
    streets = Streets(xy, ends, kinds, np.zeros(len(ends)), _NO_OUTLINE, _NO_OUTLINE)
    cost = (np.tile(streets.length, 2) * np.exp(0.2 * rng.normal(size=2 * len(ends)))).tolist()
    wide = kinds.copy()
    for a, b in pairs:
        taken = streets.edges_along(cheapest_path(streets, cost, a, b))
        wide[taken] = np.maximum(wide[taken], road)
    return wide


def _expressways(xy: Floats, ends: Ints, kinds: Ints, radius: float, rng: np.random.Generator) -> Ints:
    """Returns the classes of the streets with a fast ring around the centre and fast roads out of town."""
    compass = directions(rng.uniform(0, 2 * np.pi) + np.arange(8) * np.pi / 4)
    ring = [nearest_point(xy, point) for point in rng.uniform(0.3, 0.55) * radius * compass]
    rim = [nearest_point(xy, point) for point in radius * compass]
    out = [(ring[k], rim[k]) for k in rng.choice(8, 3, replace=False).tolist()]
    return _widen(xy, ends, kinds, [*pairwise([*ring, ring[0]]), *out], EXPRESS, rng)


def _link(webs: list[Web], hearts: Floats, rng: np.random.Generator) -> Web:
    """Joins several webs into one by country roads between neighbouring hearts."""
    first = np.cumsum([0] + [len(xy) for xy, _, _ in webs])
    points = [xy for xy, _, _ in webs]
    ends = [edges + first[k] for k, (_, edges, _) in enumerate(webs)]
    kinds = [road for _, _, road in webs]
    count = int(first[-1])
    pairs = gabriel_graph(hearts) if len(hearts) > 2 else np.array([[0, 1]])
    for a, b in pairs.tolist():
        leave = nearest_point(webs[a][0], hearts[a] + 0.5 * (hearts[b] - hearts[a]))
        arrive = nearest_point(webs[b][0], hearts[b] + 0.5 * (hearts[a] - hearts[b]))
        p, q = webs[a][0][leave], webs[b][0][arrive]
        bends = max(int(np.hypot(*(q - p)) // 900.0), 1)
        share = np.linspace(0, 1, bends + 2)[1:-1, None]
        aside = np.array([p[1] - q[1], q[0] - p[0]]) * np.sin(np.pi * share) * rng.normal(0, 0.06)
        points.append(p + share * (q - p) + aside + rng.normal(0, 60.0, (bends, 2)))
        road = [int(first[a]) + leave, *range(count, count + bends), int(first[b]) + arrive]
        ends.append(np.stack([road[:-1], road[1:]], axis=1))
        kinds.append(np.full(bends + 1, RING))
        count += bends
    return np.concatenate(points), np.concatenate(ends), np.concatenate(kinds)
