"""The demonstrator of whole trips: each row to learn from is a trip, not a step."""

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
from astray.features.statistics import SEEN, members
from astray.features.trip_rows import TripRows
from astray.irl.counterfactuals import explore
from astray.irl.demonstrations import Rows
from astray.irl.gps_demonstrator import GpsDemonstrator
from astray.irl.keyed_trips import KeyedTrips

Array = NDArray[Any]

SHORTEST, LONGEST = 0.1, 0.9  # the limits of a prefix's length, as a share of its trip


@dataclass(frozen=True, eq=False)
class TripDemonstrator:
    """An agent that demonstrates whole GPS trips; each row holds the statistics of a trip.

    Every trip occurs twice, whole and as a prefix, so that the reward learns to judge open trips, too. Each row is
    computed with a memory that lacks one trip: for a demonstration, the trip itself; for background, a random trip.
    Otherwise the number of past trips would distinguish demonstrations from background.
    """

    featurizer: Featurizer  # with the agent's memory, and the popularity of places among other agents
    agent: str
    trips: Trajectories  # the demonstrations
    rows: TripRows  # of the demonstrations
    paths: Trajectories = field(repr=False)  # resampled; counterfactuals are made from them
    rng: np.random.Generator = field(repr=False)  # draws prefixes, and the random trips that the memory lacks

    @classmethod
    def of(cls, trips: Trajectories, featurizer: Featurizer, rng: np.random.Generator) -> TripDemonstrator | None:
        """Makes a demonstrator of trips of one agent; returns None if they have no step."""
        return cls.among(KeyedTrips.of(trips, featurizer), np.arange(len(trips)), featurizer, rng)

    @classmethod
    def among(
        cls, population: KeyedTrips, which: Array, featurizer: Featurizer, rng: np.random.Generator
    ) -> TripDemonstrator | None:
        """Makes a demonstrator of one agent from the prepared trips of many; its trips are at rising positions."""
        paths, trips = of_trips(population.paths, which), population.trips[which]
        paths = paths[paths.lengths > 1]
        agent, rows = str(trips.agent_ids[0]), population.all_rows[which]
        return cls(featurizer, agent, trips, rows, paths, rng) if len(paths) else None

    @property
    def names(self) -> list[TripId]:
        """The ids of the demonstrated trips."""
        return self.trips.ids

    @property
    def groups(self) -> list[NDArray[np.bool_]]:
        """Masks of the statistics that may be missing together."""
        return [members(self.featurizer.statistics[SEEN], group) for group in ("population", "clock")]

    def steps(self, trips: int) -> GpsDemonstrator | None:
        """Returns a demonstrator of the steps of the first trips; None if they have no step."""
        paths = self.paths[self.paths.context["trip"] < trips]
        return GpsDemonstrator(self.featurizer, self.trips[:trips], paths) if len(paths) else None

    def demonstrations(self) -> Rows:
        """Returns the agent's trips; the statistics of each ignore the trip itself in the memory."""
        return self._both(self.rows, self._number(np.arange(self.rows.n_trips)), np.arange(self.rows.n_trips))

    def imagine(self, n: int, names: Sequence[str], rng: np.random.Generator) -> Rows:
        """Draws ``n`` counterfactual trips; the statistics of each ignore its original in the memory."""
        paths, _ = explore(self.paths, n, names, self.featurizer.config.interval, rng)
        source = paths.context["trip"]
        steps = self.featurizer.steps(paths.with_columns(context={"trip": np.arange(n)}))
        return self._both(self.featurizer.trip_rows(steps, n), self._number(source))

    def others(self, population: KeyedTrips) -> Rows:
        """Returns the trips of other agents, with statistics computed from this agent's memory."""
        without, maker = self._as_foreign(population)
        return self._both(population.rows, without, maker=maker)

    def whole(self) -> NDArray[np.float32]:
        """Returns the statistics of the agent's whole trips, each without the trip itself in the memory."""
        return self._measured(self.rows, self._number(np.arange(self.rows.n_trips)))

    def whole_of(self, population: KeyedTrips) -> NDArray[np.float32]:
        """Returns the statistics of other agents' whole trips, computed from this agent's memory."""
        return self._measured(population.rows, *self._as_foreign(population))

    def _as_foreign(self, population: KeyedTrips) -> tuple[Array | None, NDArray[np.int64]]:
        """Draws a trip for the memory to lack for each foreign trip; returns the makers' numbers, too."""
        remembered = len(self.featurizer.memory)
        without = self.rng.integers(remembered, size=len(population)) if remembered else None
        return without, self.featurizer.popularity.number_of(population.agents)

    def _measured(self, rows: TripRows, without: Array | None, maker: Array | None = None) -> NDArray[np.float32]:
        return self.featurizer.measure(rows, without, maker, way=False)[1][:, SEEN]

    def _number(self, trip: Array) -> NDArray[np.int64]:
        return self.featurizer.memory.number_of(self.names)[trip]

    def _both(
        self, rows: TripRows, without: Array | None, trip: Array | None = None, maker: Array | None = None
    ) -> Rows:
        """Returns each trip twice: whole, and as a prefix of random length."""
        parts = [rows, rows.prefixes(self.rng.uniform(SHORTEST, LONGEST, rows.n_trips))]
        found = []
        for part in parts:
            features = self._measured(part, without, maker)
            present = part.present
            of = np.full(len(present), -1) if trip is None else trip[present]
            nothing = np.zeros((len(present), 0))
            found.append(Rows(features[present], np.arange(len(present)), nothing, nothing, of))
        both = Rows.concat(found)
        # The learner draws a trip first, then one of its rows, so the rows of one trip must be neighbours.
        return replace(both[np.argsort(both.trip, kind="stable")], path=np.arange(len(both)))
