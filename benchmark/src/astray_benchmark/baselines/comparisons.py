"""Baselines that compare a person with others: is a trip more like the person's own ones, or like other people's?"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray_benchmark.baselines.baseline import Rows
from astray_benchmark.baselines.cells import CellDetector, Trigram, entered

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Crowd:
    """Other people's trips, featurised once for all persons who are compared with them.

    Attributes
    ----------
    rows
        The cells that they enter; without features.
    agents
        Whose each trip is.
    """

    rows: Rows
    agents: NDArray[np.str_]

    @classmethod
    def of(cls, trips: Trajectories, look: CellDetector) -> Crowd:
        """Look at some people's trips as a baseline does."""
        config = FeaturizerConfig(encoder="raw", interval=look.interval)
        featurizer = Featurizer.of(trips, config, np.random.default_rng(0))
        steps, path = entered(featurizer, trips, look.interval, look.cell)
        return cls(Rows(np.zeros((len(path), 0)), steps, path, featurizer.projection), trips.agent_ids)


@dataclass(eq=False)
class Comparison(CellDetector):
    """A baseline that needs other people's trips.

    Attributes
    ----------
    known_
        What is known of the others.
    """

    known_: Any = field(default=None, init=False, repr=False)

    @abstractmethod
    def know(self, crowd: Crowd) -> Any:
        """Learns what is needed of others; it does not depend on the person, so :meth:`fit` may be given it again."""

    def others(self, population: Trajectories | None, train: Trajectories) -> Any:
        """Learns what is needed of a population, without the agents of these training trips."""
        found = None if population is None else population[~np.isin(population.agent_ids, train.agents)]
        if not found:
            raise DataError(
                f"{self.name} compares with other people's trips, and there are none", remedy="give a population"
            )
        return self.know(Crowd.of(found, self))

    def fit(self, train: Trajectories, known: Any = None) -> Self:
        """Learn what is normal from the person's own trips, and from what is known of others."""
        if known is None or isinstance(known, Trajectories):
            known = self.others(known, train)
        self.known_ = known
        return super().fit(train)


@dataclass(eq=False)
class CellRatio(Comparison):
    """How much more probable a trip's cells, or its trigrams of cells, are among the person's trips than among others'.

    The logarithm of the ratio of both likelihoods, with minus, in the mean over the cells. What is known of the person
    backs off to what is known of others (:class:`~astray_benchmark.baselines.cells.Trigram`).

    Parameters
    ----------
    order
        1: each cell for itself; 3: after the two before it.
    """

    order: int = 1
    own_: Trigram | None = field(default=None, init=False, repr=False)

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
        assert self.own_ is not None
        met = self.sequence(rows)
        others: Trigram = self.known_
        return others.log_probability(met, self.order) - self.own_.log_probability(met, self.order)
