"""A population: trips of many agents, with the keys that any agent's memory knows them by."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from astray.core.trajectories import Trajectories
from astray.features.featurizer import Featurizer
from astray.features.paths import resample
from astray.features.trip_rows import TripRows


@dataclass(frozen=True, eq=False)
class KeyedTrips:
    """Trips of many agents, with their keys: made once, seen through anybody's memory.

    Attributes
    ----------
    trips, paths, all_rows
        All trips, their paths, resampled, and their rows.
    which
        The trips that are meant.
    """

    trips: Trajectories
    paths: Trajectories
    all_rows: TripRows
    which: NDArray[np.int64]

    @classmethod
    def of(cls, trips: Trajectories, featurizer: Featurizer, paths: Trajectories | None = None) -> KeyedTrips:
        """Trips as the rows that trip statistics are made of; ``paths`` are theirs, if they are known already."""
        even = resample(featurizer.paths(trips) if paths is None else paths, featurizer.config.interval)
        rows = featurizer.trip_rows(featurizer.steps(even), len(trips))
        return cls(trips, even, rows, np.arange(len(trips)))

    def __len__(self) -> int:
        return len(self.which)

    @property
    def rows(self) -> TripRows:
        """The rows of the trips that are meant; made when asked for, so that many may stand side by side."""
        return self.all_rows[self.which]

    @property
    def agents(self) -> NDArray[np.str_]:
        """Who made them."""
        return self.trips.agent_ids[self.which]

    def others(self, agent: str, n: int, rng: np.random.Generator) -> KeyedTrips:
        """``n`` trips of anybody else, drawn at random; all, if there are fewer."""
        found = np.flatnonzero(self.trips.agent_ids != agent)
        return replace(self, which=np.sort(rng.choice(found, min(n, len(found)), replace=False)))
