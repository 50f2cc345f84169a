"""The places of a simulated town: doors on its streets, where people live, work, shop, train, learn and meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from astray.simulate.streets import CENTRE, SIDE, Floats, Ints, OnEarth, Streets

PLACE_KINDS = ("home", "work", "shop", "gym", "school", "leisure", "campus", "stand", "resort")
"""The kinds of place. The city has none of the last three: campuses, taxi stands, and places in a holiday resort."""


@dataclass(frozen=True, eq=False)
class Places(OnEarth):
    """Doors on the streets."""

    kind: Ints  # the kind of each place, an index into `PLACE_KINDS`
    xy: Floats  # position of the door in metres; it lies on a street
    node: Ints  # the nearer crossing of that street
    far: Ints  # the farther crossing
    edge: Ints  # the street
    centre: tuple[float, float] = CENTRE  # latitude and longitude of the origin of ``xy``

    @cached_property
    def _by_kind(self) -> dict[str, Ints]:
        return {name: np.flatnonzero(self.kind == k) for k, name in enumerate(PLACE_KINDS)}

    def of_kind(self, name: str) -> Ints:
        """Returns the numbers of all places of one kind."""
        return self._by_kind[name]

    def distance(self, a: int | Ints, b: int | Ints) -> Floats:
        """Returns the straight-line distance between places in metres."""
        between = self.xy[a] - self.xy[b]
        return np.asarray(np.hypot(between[..., 0], between[..., 1]))

    def nearest(self, place: int, stock: Ints, n: int) -> Ints:
        """Returns the ``n`` places among ``stock`` that are nearest to one place, nearest first."""
        return stock[np.argsort(self.distance(place, stock))[:n]]

    def join(self, more: Places) -> Places:
        """Returns these places followed by more places of the same town."""
        names = ("kind", "xy", "node", "far", "edge")
        joined: dict[str, Any] = {name: np.concatenate([getattr(self, name), getattr(more, name)]) for name in names}
        return replace(self, **joined)


def density(streets: Streets, hearts: Floats, spread: float, elsewhere: float) -> Floats:
    """Returns a probability for each side street: high within ``spread`` metres of the ``hearts``, which are centres.

    ``elsewhere`` is the weight, relative to the hearts, of a uniform distribution over all side streets.
    """
    middle = streets.side_middles
    squared = ((middle[:, None, :] - hearts) ** 2).sum(axis=2)
    near = np.exp(-squared / (2 * spread**2)).sum(axis=1)
    weight = near / near.sum() + elsewhere / len(middle)
    return np.asarray(weight / weight.sum())


def build(
    streets: Streets, weights: Mapping[str, Floats], stock: Mapping[str, int], rng: np.random.Generator
) -> Places:
    """Puts ``stock[kind]`` doors of each kind on side streets drawn with the probabilities ``weights[kind]``."""
    side = np.flatnonzero(streets.road == SIDE)
    street = side[np.concatenate([rng.choice(len(side), n, p=weights[kind]) for kind, n in stock.items()])]
    ends = streets.edges[street]
    ends = np.where(rng.random((len(ends), 1)) < 0.5, ends, ends[:, ::-1])
    share = rng.uniform(0.1, 0.5, (len(ends), 1))
    door = streets.xy[ends[:, 0]] * (1 - share) + streets.xy[ends[:, 1]] * share
    kind = np.repeat([PLACE_KINDS.index(name) for name in stock], list(stock.values()))
    return Places(kind, door, ends[:, 0], ends[:, 1], street, streets.centre)
