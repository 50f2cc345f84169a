"""A world of whole trips: what the learner sees of one agent when a demonstration is a trajectory, not a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.features.featurizer import Featurizer
from astray.features.paths import of_trips
from astray.features.statistics import members
from astray.features.trip_rows import TripRows
from astray.irl.counterfactuals import explore
from astray.irl.demonstrations import Rows
from astray.irl.gps_demonstrator import GpsDemonstrator
from astray.irl.keyed_trips import KeyedTrips

Array = NDArray[Any]

SHORTEST, LONGEST = 0.1, 0.9  # share of a trip that a prefix holds


@dataclass(frozen=True, eq=False)
class TripDemonstrator:
    """Whole GPS trips of one agent: a row of the learner is a trip's statistics, and a trajectory has one row.

    Every trip is there twice, whole and as a prefix, so that the reward learns to judge trips that go on. All that is
    compared is seen through a memory that lacks one trip: the demonstrations through one that lacks themselves, what
    they are compared with through one that lacks a trip drawn at random. Otherwise a count of all trips would tell them
    apart.

    Parameters
    ----------
    featurizer
        The agent's memory, and where others go.
    agent
        Its name.
    trips
        The demonstrations.
    rows
        Their rows.
    paths
        Their paths, resampled: what counterfactuals are made of.
    rng
        Draws prefixes and the trips that are left out.
    """

    featurizer: Featurizer
    agent: str
    trips: Trajectories
    rows: TripRows
    paths: Trajectories = field(repr=False)
    rng: np.random.Generator = field(repr=False)

    @classmethod
    def of(cls, trips: Trajectories, featurizer: Featurizer, rng: np.random.Generator) -> TripDemonstrator | None:
        """The world of some trips of one agent; None if they hold no step."""
        return cls.among(KeyedTrips.of(trips, featurizer), np.arange(len(trips)), featurizer, rng)

    @classmethod
    def among(
        cls, population: KeyedTrips, which: Array, featurizer: Featurizer, rng: np.random.Generator
    ) -> TripDemonstrator | None:
        """The same, of trips of one agent among a population, by their positions in rising order."""
        paths, trips = of_trips(population.paths, which), population.trips[which]
        paths = paths[paths.lengths > 1]
        agent, rows = str(trips.agent_ids[0]), population.all_rows[which]
        return cls(featurizer, agent, trips, rows, paths, rng) if len(paths) else None

    @property
    def names(self) -> list[TripId]:
        """What the demonstrations are called."""
        return self.trips.ids

    @property
    def groups(self) -> list[NDArray[np.bool_]]:
        """Statistics that may be missing together."""
        return [members(self.featurizer.statistics, group) for group in ("population", "clock")]

    def steps(self, trips: int) -> GpsDemonstrator | None:
        """The world of the steps of the first so many trips; None if they hold none."""
        paths = self.paths[self.paths.context["trip"] < trips]
        return GpsDemonstrator(self.featurizer, self.trips[:trips], paths) if len(paths) else None

    def demonstrations(self) -> Rows:
        """What the agent did, each trip left out of the memory."""
        return self._both(self.rows, self._number(np.arange(self.rows.n_trips)), np.arange(self.rows.n_trips))

    def imagine(self, n: int, names: Sequence[str], rng: np.random.Generator) -> Rows:
        """``n`` counterfactual trips; the trip that was changed does not count for them."""
        paths, _ = explore(self.paths, n, names, self.featurizer.config.interval, rng)
        source = paths.context["trip"]
        steps = self.featurizer.steps(paths.with_columns(context={"trip": np.arange(n)}))
        return self._both(self.featurizer.trip_rows(steps, n), self._number(source))

    def others(self, population: KeyedTrips) -> Rows:
        """What other agents did, seen through this agent's memory."""
        remembered = len(self.featurizer.memory)
        without = self.rng.integers(remembered, size=len(population)) if remembered else None
        maker = self.featurizer.popularity.number_of(population.agents)
        return self._both(population.rows, without, maker=maker)

    def _number(self, trip: Array) -> NDArray[np.int64]:
        return self.featurizer.memory.number_of(self.names)[trip]

    def _both(
        self, rows: TripRows, without: Array | None, trip: Array | None = None, maker: Array | None = None
    ) -> Rows:
        """Whole trips, then prefixes of them."""
        parts = [rows, rows.prefixes(self.rng.uniform(SHORTEST, LONGEST, rows.n_trips))]
        found = []
        for part in parts:
            _, features = self.featurizer.measure(part, without, maker)
            present = part.present
            of = np.full(len(present), -1) if trip is None else trip[present]
            nothing = np.zeros((len(present), 0))
            found.append(Rows(features[present], np.arange(len(present)), nothing, nothing, of))
        both = Rows.concat(found)
        # The learner draws a trip first, then one of its rows: those of one trip stand next to each other.
        return replace(both[np.argsort(both.trip, kind="stable")], path=np.arange(len(both)))
