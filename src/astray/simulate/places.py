"""The places of a made city: doors on its streets where people live, work, shop, train, learn and meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from astray.simulate.streets import CENTRE, SIDE, Floats, Ints, Streets, to_degrees

PLACE_KINDS = ("home", "work", "shop", "gym", "school", "leisure", "campus", "stand", "resort")
"""What a place can be; a city has none of the last three: campuses, taxi stands, rooms and beaches of a resort."""

_STOCK = {"home": 1200, "work": 90, "shop": 70, "gym": 18, "school": 20, "leisure": 60}
"""How many places of each kind the city has."""


def stream(seed: int, *key: int) -> np.random.Generator:
    """The random numbers of one part of the city; parts with different keys are independent."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


@dataclass(frozen=True, eq=False)
class Places:
    """Doors on the streets.

    Attributes
    ----------
    kind
        What each place is, an index into :data:`PLACE_KINDS`.
    xy
        The door, in metres; it lies on a street.
    node, far
        The nearer and the farther crossing of that street.
    edge
        The street.
    centre
        Latitude and longitude of the point from which ``xy`` counts.
    """

    kind: Ints
    xy: Floats
    node: Ints
    far: Ints
    edge: Ints
    centre: tuple[float, float] = CENTRE

    @property
    def lat(self) -> Floats:
        """Latitude of each door."""
        return to_degrees(self.xy, self.centre)[0]

    @property
    def lon(self) -> Floats:
        """Longitude of each door."""
        return to_degrees(self.xy, self.centre)[1]

    def of_kind(self, name: str) -> Ints:
        """The numbers of all places of one kind."""
        return np.flatnonzero(self.kind == PLACE_KINDS.index(name))

    def distance(self, a: int | Ints, b: int | Ints) -> Floats:
        """Metres between places as the crow flies."""
        between = self.xy[a] - self.xy[b]
        return np.asarray(np.hypot(between[..., 0], between[..., 1]))


def settle(streets: Streets, rng: np.random.Generator) -> Places:
    """Found the city's places: homes in a few districts, work mostly in the centre, the rest in between."""
    bearing = rng.uniform(0, 2 * np.pi) + np.arange(3) * np.pi / 3 + rng.normal(0, 0.2, 3)
    districts = (rng.uniform(1900, 2900, 3) * np.stack([np.cos(bearing), np.sin(bearing)])).T
    park = districts[:1] * 0.9 + rng.normal(0, 400, (1, 2))  # a business park, out of the centre
    centre = np.zeros((1, 2))
    weights = {
        "home": density(streets, districts, 550.0, 0.05),
        "work": 0.85 * density(streets, centre, 450.0, 0.03) + 0.15 * density(streets, park, 300.0, 0.0),
        "shop": density(streets, np.concatenate([districts, centre, centre]), 600.0, 0.3),
        "gym": density(streets, np.concatenate([districts, centre]), 700.0, 0.3),
        "school": density(streets, districts, 700.0, 0.3),
        "leisure": density(streets, np.concatenate([districts, centre, centre, centre]), 800.0, 0.5),
    }
    return build(streets, weights, _STOCK, rng)


def density(streets: Streets, hearts: Floats, spread: float, elsewhere: float) -> Floats:
    """Probability of each side street: high within ``spread`` metres of the hearts, and a share everywhere."""
    middle = streets.xy[streets.edges[streets.road == SIDE]].mean(axis=1)
    squared = ((middle[:, None, :] - hearts) ** 2).sum(axis=2)
    near = np.exp(-squared / (2 * spread**2)).sum(axis=1)
    weight = near / near.sum() + elsewhere / len(middle)
    return np.asarray(weight / weight.sum())


def build(
    streets: Streets, weights: Mapping[str, Floats], stock: Mapping[str, int], rng: np.random.Generator
) -> Places:
    """Put so many doors of each kind on side streets, which are drawn with these probabilities."""
    side = np.flatnonzero(streets.road == SIDE)
    street = side[np.concatenate([rng.choice(len(side), n, p=weights[kind]) for kind, n in stock.items()])]
    ends = streets.edges[street]
    ends = np.where(rng.random((len(ends), 1)) < 0.5, ends, ends[:, ::-1])
    share = rng.uniform(0.1, 0.5, (len(ends), 1))
    door = streets.xy[ends[:, 0]] * (1 - share) + streets.xy[ends[:, 1]] * share
    kind = np.repeat([PLACE_KINDS.index(name) for name in stock], list(stock.values()))
    return Places(kind, door, ends[:, 0], ends[:, 1], street, streets.centre)
