"""A population: trips of many agents, with the keys that any agent's memory knows them by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.features.featurizer import Featurizer
from astray.features.paths import resample
from astray.features.trip_rows import TripRows
from astray.trajectories import Trajectories

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Population:
    """Trips of many agents, with their keys: made once, seen through anybody's memory.

    Attributes
    ----------
    all_rows, all_agents
        The rows of all trips, and who made each trip.
    which
        The trips that are meant.
    """

    all_rows: TripRows
    all_agents: NDArray[np.str_]
    which: NDArray[np.int64]

    @classmethod
    def of(cls, trips: Trajectories, featurizer: Featurizer) -> Population:
        """Trips as the rows that trip statistics are made of."""
        paths = resample(featurizer.paths(trips), featurizer.config.interval)
        return cls(featurizer.trip_rows(featurizer.steps(paths), len(trips)), trips.agent_ids, np.arange(len(trips)))

    def __len__(self) -> int:
        return len(self.which)

    @property
    def rows(self) -> TripRows:
        """The rows of the trips that are meant; made when asked for, so that many may stand side by side."""
        return self.all_rows[self.which]

    @property
    def agents(self) -> NDArray[np.str_]:
        """Who made them."""
        return self.all_agents[self.which]

    def others(self, agent: str, n: int, rng: np.random.Generator) -> Population:
        """``n`` trips of anybody else, drawn at random; all, if there are fewer."""
        found = np.flatnonzero(self.all_agents != agent)
        return replace(self, which=np.sort(rng.choice(found, min(n, len(found)), replace=False)))
