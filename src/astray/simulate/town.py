"""A simulated town: its streets, its places, its public transport and its clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from astray.simulate.city_plan import city_places, city_streets
from astray.simulate.places import Places, build, density
from astray.simulate.street_plans import PLANS, lay_out, with_resort
from astray.simulate.streets import SIDE, Bools, Floats, Streets, directions
from astray.simulate.transit import Line, Network, join, lay_lines
from astray.simulate.variety import Variety

EPOCH = 1_736_121_600.0  # the first midnight: Monday 2025-01-06 00:00 UTC. The city's clocks show UTC

_STOCK = {"home": 900, "work": 80, "shop": 70, "gym": 16, "school": 18, "leisure": 60}
"""The number of places of each kind in a town of average size and density."""


def random_stream(seed: int, *key: int) -> np.random.Generator:
    """Returns the random numbers of one part of the simulation; streams with different keys are independent."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


@dataclass(frozen=True, eq=False)
class Town:
    """A town without its people, on whom it does not depend."""

    seed: int  # the seed that made the town
    streets: Streets  # the street network
    places: Places  # the doors on the streets
    lines: tuple[Line, ...] = ()  # lines of public transport; the city has none

    def stream(self, *key: int) -> np.random.Generator:
        """Returns the random numbers of one part of the simulation (see :func:`random_stream`)."""
        return random_stream(self.seed, *key)

    @property
    def midnight(self) -> float:
        """The first midnight by the town's clock, in seconds since 1970 (UTC).

        Local time is ahead of UTC by one whole hour for every 15 degrees of longitude.
        """
        return EPOCH - 3600.0 * round(self.streets.centre[1] / 15.0)

    @cached_property
    def local(self) -> int:
        """The number of places in town. The places of the resort have higher numbers."""
        return len(self.places.kind) - len(self.places.of_kind("resort"))

    @cached_property
    def network(self) -> Network:
        """The streets joined with the platforms of the lines, for route search by public transport."""
        return join(self.streets, self.lines)

    @cached_property
    def popularity(self) -> Floats:
        """The popularity of each place; many people share a few places of each kind."""
        return np.asarray(self.stream(8).pareto(1.1, len(self.places.kind)) + 0.3)


def make_town(seed: int, variety: Variety) -> Town:
    """Makes the town of this seed."""
    if variety.towns:
        streets, places = _varied_town(random_stream(seed, 20))
    else:
        streets = city_streets(random_stream(seed, 0))
        places = city_places(streets, random_stream(seed, 1))
    if variety.lives:
        places = places.join(_campuses_and_stands(streets, random_stream(seed, 21)))
    if variety.drift:
        streets, in_resort = with_resort(streets, random_stream(seed, 22))
        places = places.join(_resort_places(streets, in_resort, random_stream(seed, 23)))
    lines = _lines(streets, places, random_stream(seed, 24)) if variety.modes else ()
    return Town(seed, streets, places, lines)


def _varied_town(rng: np.random.Generator) -> tuple[Streets, Places]:
    """Draws the size, the street plan, the position on earth and the places of a town."""
    plan = str(rng.choice(list(PLANS)))
    radius = float(np.exp(rng.uniform(np.log(2200.0), np.log(20_000.0))))
    block = float(rng.uniform(130.0, 220.0) * (radius / 4000.0) ** 0.25)
    # Near the middle of a time zone, so that the whole town has the same solar hour.
    centre = float(rng.uniform(-45.0, 60.0)), float(15.0 * rng.integers(-8, 12) + rng.uniform(-5.0, 5.0))
    streets = lay_out(plan, radius, block, centre, rng)
    crowd = float(np.exp(rng.uniform(-0.7, 0.7)) * (radius / 5000.0) ** 0.4)
    stock = {kind: max(round(n * crowd), 12) for kind, n in _STOCK.items()}
    if plan == "villages":
        districts = streets.side_middles[rng.integers(len(streets.side_middles), size=5)]
    else:
        n = int(rng.integers(3, 9))
        bearing, away = rng.uniform(0, 2 * np.pi, n), radius * rng.uniform(0.2, 0.75, n)
        districts = away[:, None] * directions(bearing)
    return streets, _district_places(streets, districts, radius, stock, rng)


def _district_places(
    streets: Streets, districts: Floats, radius: float, stock: dict[str, int], rng: np.random.Generator
) -> Places:
    """Builds homes in the districts, work in the centre and in one or two business parks, the rest in both."""
    centre, near, everywhere = np.zeros((1, 2)), max(0.13 * radius, 300.0), float(rng.uniform(0.05, 0.4))
    parks = districts[: int(rng.integers(1, 3))] + rng.normal(0, near / 2, 2)
    central = float(rng.uniform(0.3, 0.9))
    both = np.concatenate([districts, centre, centre])
    weights = {
        "home": density(streets, districts, near, everywhere),
        "work": central * density(streets, centre, near, 0.1) + (1 - central) * density(streets, parks, near / 2, 0.1),
        "shop": density(streets, both, near, 0.3),
        "gym": density(streets, both, 1.2 * near, 0.3),
        "school": density(streets, districts, 1.2 * near, 0.3),
        "leisure": density(streets, np.concatenate([both, centre]), 1.3 * near, 0.5),
    }
    return build(streets, weights, stock, rng)


def _campuses_and_stands(streets: Streets, rng: np.random.Generator) -> Places:
    """Builds two campuses with a few doors each, and taxi stands all over town."""
    n = len(streets.side_middles)
    campuses = streets.side_middles[rng.integers(n, size=2)]
    weights = {"campus": density(streets, campuses, 150.0, 0.0), "stand": np.full(n, 1 / n)}
    return build(streets, weights, {"campus": 6, "stand": 8}, rng)


def _resort_places(streets: Streets, in_resort: Bools, rng: np.random.Generator) -> Places:
    """Builds rooms, beaches and restaurants on the side streets of the resort."""
    weight = in_resort[streets.road == SIDE].astype(np.float64)
    return build(streets, {"resort": weight / weight.sum()}, {"resort": 60}, rng)


def _lines(streets: Streets, places: Places, rng: np.random.Generator) -> tuple[Line, ...]:
    """Lays lines of public transport through the part of the town where people live and work."""
    doors = places.xy[np.concatenate([places.of_kind("home"), places.of_kind("work")])]
    radius = float(np.quantile(np.hypot(*doors.T), 0.97))
    hearts = np.concatenate([np.zeros((1, 2)), rng.choice(doors, 8)])
    return tuple(lay_lines(streets, hearts, radius, float(rng.uniform(0.2, 1.0)), rng))
