"""Towns that differ: how large, where on earth, with which streets, places and lines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from astray.simulate.layouts import PLANS, Resort, lay_out, with_resort
from astray.simulate.lines import lay_lines
from astray.simulate.places import Places, build, density, settle, stream
from astray.simulate.streets import SIDE, Floats, Streets, grow
from astray.simulate.town import Town
from astray.simulate.variety import Variety

_STOCK = {"home": 900, "work": 80, "shop": 70, "gym": 16, "school": 18, "leisure": 60}
"""How many places of each kind a town of middling size and density has."""


def found(seed: int, variety: Variety) -> Town:
    """The town of this seed."""
    if variety.towns:
        streets, places = _town(stream(seed, 20))
    else:
        streets = grow(stream(seed, 0))
        places = settle(streets, stream(seed, 1))
    if variety.lives:
        places = _joined(places, _campus_and_stands(streets, stream(seed, 21)))
    if variety.drift:
        streets, resort = with_resort(streets, stream(seed, 22))
        places = _joined(places, _rooms(streets, resort, stream(seed, 23)))
    town = Town(seed, streets, places)
    if variety.modes:
        rng = stream(seed, 24)
        doors = places.xy[np.concatenate([places.of_kind("home"), places.of_kind("work")])]
        radius = float(np.quantile(np.hypot(*doors.T), 0.97))
        quarters = np.concatenate([np.zeros((1, 2)), rng.choice(doors, 8)])
        town = replace(town, lines=tuple(lay_lines(streets, quarters, radius, float(rng.uniform(0.2, 1.0)), rng)))
    return town


def _town(rng: np.random.Generator) -> tuple[Streets, Places]:
    plan = str(rng.choice(list(PLANS)))
    radius = float(np.exp(rng.uniform(np.log(2200.0), np.log(20_000.0))))
    block = float(rng.uniform(130.0, 220.0) * (radius / 4000.0) ** 0.25)
    # Near the middle of a time zone, so that the whole town has the same solar hour.
    centre = float(rng.uniform(-45.0, 60.0)), float(15.0 * rng.integers(-8, 12) + rng.uniform(-5.0, 5.0))
    streets = lay_out(plan, radius, block, centre, rng)
    crowd = float(np.exp(rng.uniform(-0.7, 0.7)) * (radius / 5000.0) ** 0.4)
    stock = {kind: max(round(n * crowd), 12) for kind, n in _STOCK.items()}
    if plan == "villages":
        side = streets.xy[streets.edges[streets.road == SIDE]].mean(axis=1)
        hearts = side[rng.integers(len(side), size=5)]
    else:
        n = int(rng.integers(3, 9))
        bearing, away = rng.uniform(0, 2 * np.pi, n), radius * rng.uniform(0.2, 0.75, n)
        hearts = (away * np.stack([np.cos(bearing), np.sin(bearing)])).T
    return streets, _quarters(streets, hearts, radius, stock, rng)


def _quarters(
    streets: Streets, hearts: Floats, radius: float, stock: dict[str, int], rng: np.random.Generator
) -> Places:
    """Homes in the quarters, work in the middle and in one or two parks, the rest in between."""
    centre, near, everywhere = np.zeros((1, 2)), max(0.13 * radius, 300.0), float(rng.uniform(0.05, 0.4))
    parks = hearts[: int(rng.integers(1, 3))] + rng.normal(0, near / 2, 2)
    middle = float(rng.uniform(0.3, 0.9))
    both = np.concatenate([hearts, centre, centre])
    weights = {
        "home": density(streets, hearts, near, everywhere),
        "work": middle * density(streets, centre, near, 0.1) + (1 - middle) * density(streets, parks, near / 2, 0.1),
        "shop": density(streets, both, near, 0.3),
        "gym": density(streets, both, 1.2 * near, 0.3),
        "school": density(streets, hearts, 1.2 * near, 0.3),
        "leisure": density(streets, np.concatenate([both, centre]), 1.3 * near, 0.5),
    }
    return build(streets, weights, stock, rng)


def _campus_and_stands(streets: Streets, rng: np.random.Generator) -> Places:
    """Two campuses with a few doors each, and taxi stands all over town."""
    side = streets.xy[streets.edges[streets.road == SIDE]].mean(axis=1)
    campus = side[rng.integers(len(side), size=2)]
    weights = {"campus": density(streets, campus, 150.0, 0.0), "stand": np.full(len(side), 1 / len(side))}
    return build(streets, weights, {"campus": 6, "stand": 8}, rng)


def _rooms(streets: Streets, resort: Resort, rng: np.random.Generator) -> Places:
    """Rooms, beaches and restaurants of the resort."""
    own = resort.streets[streets.road == SIDE].astype(np.float64)
    return build(streets, {"resort": own / own.sum()}, {"resort": 60}, rng)


def _joined(places: Places, more: Places) -> Places:
    """Places and more places, in this order."""
    return replace(
        places,
        kind=np.concatenate([places.kind, more.kind]),
        xy=np.concatenate([places.xy, more.xy]),
        node=np.concatenate([places.node, more.node]),
        far=np.concatenate([places.far, more.far]),
        edge=np.concatenate([places.edge, more.edge]),
    )
