"""A population: trips of many agents, with the keys that any agent's memory knows them by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.mdp.paths import resample
from astray.mdp.statistics import TripRows
from astray.mdp.view import View
from astray.trajectories import Trajectories

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Population:
    """Trips of many agents, with their keys: made once, seen through anybody's memory."""

    rows: TripRows
    agents: NDArray[np.str_]  # who made each trip

    @classmethod
    def of(cls, trips: Trajectories, view: View) -> Population:
        """Trips as the rows that trip statistics are made of."""
        paths = resample(view.paths(trips), view.config.interval)
        return cls(view.trip_rows(view.steps(paths), len(trips)), trips.agent_ids)

    def __len__(self) -> int:
        return len(self.agents)

    def __getitem__(self, which: Array) -> Population:
        return Population(self.rows[which], self.agents[which])

    def others(self, agent: str, n: int, rng: np.random.Generator) -> Population:
        """``n`` trips of anybody else, drawn at random; all, if there are fewer."""
        found = np.flatnonzero(self.agents != agent)
        return self[np.sort(rng.choice(found, min(n, len(found)), replace=False))]
