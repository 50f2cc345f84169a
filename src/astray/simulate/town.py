"""A made town: its streets, its places, its lines of public transport, and its clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from astray.simulate.lines import Line, Network, join
from astray.simulate.places import Places, settle, stream
from astray.simulate.streets import Floats, Streets, grow

EPOCH = 1_736_121_600.0
"""The first midnight: Monday 2025-01-06 00:00 UTC. The city's clocks show UTC."""


@dataclass(frozen=True, eq=False)
class Town:
    """What does not depend on anybody: the streets, the places, the lines, and the seed that made them.

    Attributes
    ----------
    seed, streets, places
        What the town is made of, and from which seed.
    lines
        Lines of public transport; a city has none.
    """

    seed: int
    streets: Streets
    places: Places
    lines: tuple[Line, ...] = ()

    @classmethod
    def found(cls, seed: int) -> Town:
        """The city of this seed."""
        streets = grow(stream(seed, 0))
        return cls(seed, streets, settle(streets, stream(seed, 1)))

    @property
    def midnight(self) -> float:
        """The first midnight of the town's clock, in seconds since 1970 (UTC).

        Local time is ahead of UTC by a whole hour for every 15 degrees of longitude.
        """
        return EPOCH - 3600.0 * round(self.streets.centre[1] / 15.0)

    @cached_property
    def local(self) -> int:
        """How many places are in town; those of the resort come after them."""
        return len(self.places.kind) - len(self.places.of_kind("resort"))

    @cached_property
    def network(self) -> Network:
        """The streets joined with the platforms of the lines, for finding the way by public transport."""
        return join(self.streets, self.lines)

    @cached_property
    def popularity(self) -> Floats:
        """How popular each place is; of the places of one kind few are visited by many."""
        return np.asarray(stream(self.seed, 8).pareto(1.1, len(self.places.kind)) + 0.3)
