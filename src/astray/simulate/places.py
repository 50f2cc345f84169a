"""The places of a made city: doors on its streets where people live, work, shop, train, learn and meet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from astray.simulate.streets import SIDE, Floats, Ints, Streets, grow, to_degrees

PLACE_KINDS = ("home", "work", "shop", "gym", "school", "leisure")
_STOCK = (1200, 90, 70, 18, 20, 60)
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
    """

    kind: Ints
    xy: Floats
    node: Ints
    far: Ints
    edge: Ints

    @property
    def lat(self) -> Floats:
        """Latitude of each door."""
        return to_degrees(self.xy)[0]

    @property
    def lon(self) -> Floats:
        """Longitude of each door."""
        return to_degrees(self.xy)[1]

    def of_kind(self, name: str) -> Ints:
        """The numbers of all places of one kind."""
        return np.flatnonzero(self.kind == PLACE_KINDS.index(name))

    def distance(self, a: int | Ints, b: int | Ints) -> Floats:
        """Metres between places as the crow flies."""
        between = self.xy[a] - self.xy[b]
        return np.asarray(np.hypot(between[..., 0], between[..., 1]))


def settle(streets: Streets, rng: np.random.Generator) -> Places:
    """Found the city's places: homes in a few districts, work mostly in the centre, the rest in between."""
    side = np.flatnonzero(streets.road == SIDE)
    middle = streets.xy[streets.edges[side]].mean(axis=1)
    bearing = rng.uniform(0, 2 * np.pi) + np.arange(3) * np.pi / 3 + rng.normal(0, 0.2, 3)
    districts = (rng.uniform(1900, 2900, 3) * np.stack([np.cos(bearing), np.sin(bearing)])).T
    park = districts[:1] * 0.9 + rng.normal(0, 400, (1, 2))  # a business park, out of the centre
    centre = np.zeros((1, 2))

    def density(hearts: Floats, spread: float, elsewhere: float) -> Floats:
        squared = ((middle[:, None, :] - hearts) ** 2).sum(axis=2)
        near = np.exp(-squared / (2 * spread**2)).sum(axis=1)
        weight = near / near.sum() + elsewhere / len(middle)
        return np.asarray(weight / weight.sum())

    weights = {
        "home": density(districts, 550.0, 0.05),
        "work": 0.85 * density(centre, 450.0, 0.03) + 0.15 * density(park, 300.0, 0.0),
        "shop": density(np.concatenate([districts, centre, centre]), 600.0, 0.3),
        "gym": density(np.concatenate([districts, centre]), 700.0, 0.3),
        "school": density(districts, 700.0, 0.3),
        "leisure": density(np.concatenate([districts, centre, centre, centre]), 800.0, 0.5),
    }
    street = side[
        np.concatenate([rng.choice(len(side), n, p=weights[k]) for k, n in zip(PLACE_KINDS, _STOCK, strict=True)])
    ]
    ends = streets.edges[street]
    ends = np.where(rng.random((len(ends), 1)) < 0.5, ends, ends[:, ::-1])
    share = rng.uniform(0.1, 0.5, (len(ends), 1))
    door = streets.xy[ends[:, 0]] * (1 - share) + streets.xy[ends[:, 1]] * share
    return Places(np.repeat(np.arange(len(_STOCK)), _STOCK), door, ends[:, 0], ends[:, 1], street)


@dataclass(frozen=True, eq=False)
class Town:
    """What does not depend on anybody: the streets, the places, and the seed that made them."""

    seed: int
    streets: Streets
    places: Places

    @classmethod
    def found(cls, seed: int) -> Town:
        """The town of this seed."""
        streets = grow(stream(seed, 0))
        return cls(seed, streets, settle(streets, stream(seed, 1)))
