"""Baselines that compare a trip with the person's own trips and with other people's."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray_benchmark.array_types import Array
from astray_benchmark.baselines.baseline import Rows
from astray_benchmark.baselines.cells import CellDetector, Trigram, entered


@dataclass(frozen=True, eq=False)
class Crowd:
    """Other people's trips, featurised once to compare many persons with them."""

    rows: Rows  # the cells that the trips enter, without features
    agents: NDArray[np.str_]  # the agent of each trip

    @classmethod
    def of(cls, trips: Trajectories, look: CellDetector) -> Crowd:
        """Featurises people's trips for a baseline."""
        config = FeaturizerConfig(encoder="raw", interval=look.interval)
        featurizer = Featurizer.of(trips, config, np.random.default_rng(0))
        steps, path = entered(featurizer, trips, look.interval, look.cell)
        return cls(Rows(np.zeros((len(path), 0)), steps, path, featurizer.projection), trips.agent_ids)


@dataclass(eq=False)
class Comparison(CellDetector):
    """A baseline that needs other people's trips; ``known_`` holds what it has learned from them."""

    known_: Any = field(default=None, init=False, repr=False)

    @abstractmethod
    def know(self, crowd: Crowd) -> Any:
        """Learns from others; the result does not depend on the person, so :meth:`fit` can reuse it."""

    def others(self, population: Trajectories | None, train: Trajectories) -> Any:
        """Learns from a population, without the agents of these training trips."""
        found = None if population is None else population[~np.isin(population.agent_ids, train.agents)]
        if not found:
            raise DataError(
                f"{self.name} compares with other people's trips, and there are none", remedy="give a population"
            )
        return self.know(Crowd.of(found, self))

    def fit(self, train: Trajectories, known: Any = None) -> Self:
        """Learns from the person's own trips; ``known`` are other people's trips, or what :meth:`others` returned."""
        if known is None or isinstance(known, Trajectories):
            known = self.others(known, train)
        self.known_ = known
        return super().fit(train)


@dataclass(eq=False)
class CellRatio(Comparison):
    """Compares the probability of a trip's cells, or trigrams of cells, among the person's trips and among others'.

    The anomaly of a cell is minus the logarithm of the ratio of the two. The person's trigrams back off to those of the
    others (:class:`~astray_benchmark.baselines.cells.Trigram`).

    Parameters
    ----------
    order
        1: each cell alone; 3: each cell after the two before it.
    """

    order: int = 1
    own_: Trigram = field(init=False, repr=False)

    @property
    def name(self) -> str:
        """Returns its name in tables."""
        return "cell ratio" if self.order == 1 else "trigram ratio"

    def know(self, crowd: Crowd) -> Trigram:
        """See :meth:`Comparison.know`."""
        return Trigram.of(self.sequence(crowd.rows))

    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        self.own_ = Trigram.of(self.sequence(rows), self.known_)

    def _anomaly(self, rows: Rows) -> Array:
        met = self.sequence(rows)
        others: Trigram = self.known_
        return others.log_probability(met, self.order) - self.own_.log_probability(met, self.order)
