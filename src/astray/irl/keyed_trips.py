"""Trips of many agents with their keys."""

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
    """Trips of many agents with their keys, computed once to look them up in any agent's memory."""

    trips: Trajectories
    paths: Trajectories  # resampled
    all_rows: TripRows
    which: NDArray[np.int64]  # the positions of the selected trips

    @classmethod
    def of(cls, trips: Trajectories, featurizer: Featurizer, paths: Trajectories | None = None) -> KeyedTrips:
        """Computes the rows and keys of trips; ``paths`` are their paths, if the caller has them already."""
        even = resample(featurizer.paths(trips) if paths is None else paths, featurizer.config.interval)
        rows = featurizer.trip_rows(featurizer.steps(even), len(trips))
        return cls(trips, even, rows, np.arange(len(trips)))

    def __len__(self) -> int:
        return len(self.which)

    @property
    def rows(self) -> TripRows:
        """The rows of the selected trips; computed on each use, so that many selections take little memory."""
        return self.all_rows[self.which]

    @property
    def agents(self) -> NDArray[np.str_]:
        """The agent of each selected trip."""
        return self.trips.agent_ids[self.which]

    def others(self, agent: str, n: int, rng: np.random.Generator) -> KeyedTrips:
        """Draws ``n`` trips of other agents; returns all if there are fewer."""
        found = np.flatnonzero(self.trips.agent_ids != agent)
        return replace(self, which=np.sort(rng.choice(found, min(n, len(found)), replace=False)))
