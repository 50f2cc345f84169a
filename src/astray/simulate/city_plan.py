"""The plan of the city that every seed of :func:`astray.simulate.city` varies: its streets and its places.

It is a warped grid with avenues, a ring road, a park, a river and a few bridges.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from astray.simulate.places import Places, build, density
from astray.simulate.streets import (
    AVENUE,
    RING,
    SIDE,
    Floats,
    Ints,
    Streets,
    directions,
    largest_part,
    lattice,
    rotate,
)

_COLUMNS, _ROWS = 16, 14  # grid lines to the east and west, and to the north and south, of the centre
_BRIDGES = (-9, 0, 5, 9)  # the only columns that cross the river
_WIDE_COLUMNS, _WIDE_ROWS = (-12, -6, 0, 5, 11), (-11, -6, 0, 5, 10)  # grid lines that are avenues
_PARK_CENTRE, _PARK_SIZE = (6.5, 7.4), (2.7, 2.2)  # the park's centre and half axes, in grid lines

_STOCK = {"home": 1200, "work": 90, "shop": 70, "gym": 18, "school": 20, "leisure": 60}
"""How many places of each kind the city has."""


def city_streets(rng: np.random.Generator) -> Streets:
    """Lays out about 12 by 10 km with some 730 crossings: short blocks in the centre, long ones outside."""
    column, row = lattice(_COLUMNS, _ROWS)
    ends, kinds = _grid_streets(column, row)
    phase = rng.uniform(0, 2 * np.pi)

    def river_row(u: Floats) -> Floats:
        return np.asarray(-3.5 + 1.2 * np.sin(u / 4.3 + phase))

    u, v = column.astype(np.float64), row.astype(np.float64)
    above = v > river_row(u)
    bank = np.where(above, np.maximum(v, river_row(u) + 0.4), np.minimum(v, river_row(u) - 0.4))
    ground = _ground(rng)
    spacing = np.stack([_stretch(u + 0.5) - _stretch(u - 0.5), _stretch(v + 0.5) - _stretch(v - 0.5)], axis=1)
    xy = ground(u, bank) + np.clip(rng.normal(0, 0.09, (len(u), 2)), -0.2, 0.2) * spacing

    # Remove streets across the river away from the bridges, streets in the park, streets beyond the ragged
    # edge of town, and 12 % of the side streets.
    inside = ((u - _PARK_CENTRE[0]) / _PARK_SIZE[0]) ** 2 + ((v - _PARK_CENTRE[1]) / _PARK_SIZE[1]) ** 2 < 1
    beyond = np.hypot(u / (_COLUMNS + 0.5), v / (_ROWS + 0.5)) > rng.normal(1.0, 0.05, len(u))
    a, b = ends.T
    crossing = above[a] != above[b]
    bridge = crossing & (column[a] == column[b]) & np.isin(column[a], _BRIDGES)
    kinds[bridge] = np.maximum(kinds[bridge], AVENUE)
    missing = (kinds == SIDE) & (rng.random(len(ends)) < 0.12)
    keep = ~missing & (~crossing | bridge) & ~beyond[a] & ~beyond[b]
    keep &= ~((kinds == SIDE) & (inside[a] | inside[b]))

    xy, ends, kinds = largest_part(xy, ends[keep], kinds[keep])
    middle = np.hypot(*xy[ends].mean(axis=1).T)
    congestion = np.array([0.25, 0.45, 0.4])[kinds] + 0.2 * np.exp(-((middle / 2000.0) ** 2))
    line, turn = np.linspace(-_COLUMNS - 1, _COLUMNS + 1, 120), np.linspace(0, 2 * np.pi, 60)
    river = ground(line, river_row(line))
    park = ground(
        _PARK_CENTRE[0] + 0.92 * _PARK_SIZE[0] * np.cos(turn),
        _PARK_CENTRE[1] + 0.92 * _PARK_SIZE[1] * np.sin(turn),
    )
    return Streets(xy, ends, kinds, congestion, river, park)


def city_places(streets: Streets, rng: np.random.Generator) -> Places:
    """Builds the city's places: homes in three districts, work mostly in the centre, the rest in both."""
    bearing = rng.uniform(0, 2 * np.pi) + np.arange(3) * np.pi / 3 + rng.normal(0, 0.2, 3)
    districts = rng.uniform(1900, 2900, 3)[:, None] * directions(bearing)
    business_park = districts[:1] * 0.9 + rng.normal(0, 400, (1, 2))
    centre = np.zeros((1, 2))
    weights = {
        "home": density(streets, districts, 550.0, 0.05),
        "work": 0.85 * density(streets, centre, 450.0, 0.03) + 0.15 * density(streets, business_park, 300.0, 0.0),
        "shop": density(streets, np.concatenate([districts, centre, centre]), 600.0, 0.3),
        "gym": density(streets, np.concatenate([districts, centre]), 700.0, 0.3),
        "school": density(streets, districts, 700.0, 0.3),
        "leisure": density(streets, np.concatenate([districts, centre, centre, centre]), 800.0, 0.5),
    }
    return build(streets, weights, _STOCK, rng)


def _grid_streets(column: Ints, row: Ints) -> tuple[Ints, Ints]:
    """Returns the ends and the classes of the streets of the full grid, diagonal avenues included."""
    number = {(int(i), int(j)): k for k, (i, j) in enumerate(zip(column, row, strict=True))}
    edges: list[tuple[int, int]] = []
    road: list[int] = []
    for (i, j), here in number.items():
        for across, up in ((1, 0), (0, 1), (1, 1), (1, -1)):
            there = number.get((i + across, j + up))
            if there is None:
                continue
            if up == 0:
                kind = RING if abs(j) == 8 and -9 <= i < 9 else AVENUE if j in _WIDE_ROWS else SIDE
            elif across == 0:
                kind = RING if abs(i) == 9 and -8 <= j < 8 else AVENUE if i in _WIDE_COLUMNS else SIDE
            elif (up == 1 and i == j and -8 <= i < 8) or (up == -1 and i == -j and -8 <= i < 0):
                kind = AVENUE  # the diagonal avenues meet in the centre
            else:
                continue
            edges.append((here, there))
            road.append(kind)
    return np.array(edges), np.array(road)


def _stretch(line: Floats) -> Floats:
    """Converts grid lines to metres: blocks of 230 m in the centre grow to 560 m at the edge of town."""
    return 230.0 * line * (1 + 0.045 * np.abs(line))


def _ground(rng: np.random.Generator) -> Callable[[Floats, Floats], Floats]:
    """Returns a smooth map from grid lines to metres that stretches, bends and turns the grid."""
    bend = rng.uniform(0, 2 * np.pi, 4)
    angle = rng.uniform(0.1, 0.4)

    def ground(u: Floats, v: Floats) -> Floats:
        x, y = _stretch(u), _stretch(v)
        bent = np.stack(
            [
                x + 220 * np.sin(y / 1900 + bend[0]) + 90 * np.sin(x / 900 + bend[1]),
                y + 260 * np.sin(x / 2100 + bend[2]) + 90 * np.sin(y / 800 + bend[3]),
            ],
            axis=-1,
        )
        return rotate(bent, angle)

    return ground
