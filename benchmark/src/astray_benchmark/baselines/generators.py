"""Baselines that predict trips cell by cell: a trip is anomalous if its cells are improbable after those before them.

Both follow published methods, but are smaller, so that they learn on a processor in minutes. They learn from the
agent's trips, by default after learning from other people's trips how people move in this town. What they learn from
others is reused for every agent.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.trajectories import Trajectories
from astray_benchmark.array_types import Array, Ints
from astray_benchmark.baselines.autoencoders import Training, hold_out, stretches
from astray_benchmark.baselines.baseline import Rows
from astray_benchmark.baselines.cells import Keys, joined, look_up
from astray_benchmark.baselines.comparisons import Comparison, Crowd
from astray_benchmark.libraries import library

if TYPE_CHECKING:
    from astray_benchmark.baselines.cell_networks import CellNetwork, MixtureAutoencoder, Transformer
    from astray_benchmark.baselines.networks import Epoch, Sequences


ME = 0  # the number of the tested agent; others count from 1 on


class Vocabulary(NamedTuple):
    """Numbers cells from 1 on; all unknown cells have the number 0."""

    keys: Keys  # sorted
    numbers: Ints

    @classmethod
    def of(cls, cell: Keys, trip: Array, most: int, known: Vocabulary | None = None) -> Vocabulary:
        """Adds cells that two or more trips have entered, at most ``most`` of them, to the ``known`` ones.

        >>> words = Vocabulary.of(np.array([7, 9, 7, 8]), np.array([0, 0, 1, 1]), most=10)
        >>> words(np.array([9, 7])).tolist(), len(words)
        ([0, 1], 1)
        """
        _, once = np.unique(joined(cell, trip), return_index=True)
        met, count = np.unique(cell[once], return_counts=True)
        count = np.where(np.isin(met, known.keys), 0, count) if known else count
        order = np.argsort(-count, kind="stable")[:most]
        fresh = met[order][count[order] >= 2]
        first = len(known) if known else 0
        keys = np.r_[known.keys, fresh] if known else fresh
        numbers = np.r_[known.numbers if known else np.zeros(0, np.int64), first + 1 + np.arange(len(fresh))]
        order = np.argsort(keys)
        return cls(keys[order], numbers[order])

    def __len__(self) -> int:
        return len(self.keys)

    def __call__(self, cell: Keys) -> Ints:
        """Returns the numbers of cells."""
        return look_up(self.keys, self.numbers, cell)


class Learned(NamedTuple):
    """What the network has learned from others, before it learns from the agent's own trips."""

    vocabulary: Vocabulary
    sequences: Sequences
    network: CellNetwork
    history: list[Epoch]


@dataclass(eq=False)
class CellGenerator(Comparison):
    """A network that predicts the cells of trips. It does not need other people's trips, but uses them if it can.

    Parameters
    ----------
    longest
        The most cells in a sequence; longer paths are cut into parts of about equal length.
    most_cells
        The most cells entered by others to number.
    most_trips
        The most trips of others to learn from.
    alone
        Learn only from the agent's own trips, even if there are others.
    training
        The settings for learning from others, or from the agent if there are none.
    tuning
        The settings for then learning from the agent's own trips.

    Attributes
    ----------
    history_
        The mean surprise of a cell in every epoch with the agent's trips, over those trained on and those held out.
    """

    longest: int = 128
    most_cells: int = 20_000
    most_trips: int = 1000
    alone: bool = False
    training: Training = Training(batch=64, learning_rate=3e-3, budget=1_500_000, patience=4, held_out=0.05)
    tuning: Training = Training(batch=32, learning_rate=2e-3, budget=1_500_000, patience=4)
    among_others: ClassVar[bool] = True  # True to tune on the agent's own trips and as many of others
    vocabulary_: Vocabulary = field(init=False, repr=False)
    network_: Any = field(default=None, init=False, repr=False)
    history_: list[Epoch] = field(default_factory=list, init=False, repr=False)

    @abstractmethod
    def _new(self, n_cells: int, n_agents: int) -> CellNetwork:
        """Makes an untrained network."""

    @abstractmethod
    def _tune(
        self, network: Any, sequences: Sequences, held_out: NDArray[np.bool_], rng: np.random.Generator
    ) -> list[Epoch]:
        """Trains the network on sequences that include the agent's own."""

    def _surprise(self, sequences: Sequences) -> Array:
        """Returns minus the log probability of every cell."""
        from astray_benchmark.baselines.networks import errors

        return errors(self.network_, sequences)

    def others(self, population: Trajectories | None, train: Trajectories) -> Learned | None:
        """Learns from a population without the agents of the training trips; returns None if nobody is left."""
        if self.alone:
            return None
        found = None if population is None else population[~np.isin(population.agent_ids, train.agents)]
        return self.know(Crowd.of(found, self)) if found else None

    def know(self, crowd: Crowd) -> Learned:
        """See :meth:`Comparison.know`."""
        from astray_benchmark.baselines.networks import drawn_from, train_to_plateau

        rng = np.random.default_rng([self.seed, 1])
        trip = crowd.rows.steps.trip
        chosen = np.isin(trip, rng.permutation(np.unique(trip))[: self.most_trips])
        who, agent = np.unique(crowd.agents, return_inverse=True)
        cell = self.cells(crowd.rows)[chosen]
        words = Vocabulary.of(cell, trip[chosen], self.most_cells)
        sequences = self._sequences(words(cell), agent[trip[chosen]] + 1, crowd.rows.path[chosen])
        with drawn_from(rng):
            network = self._new(1, len(who) + 1)
            network.table.grow(len(words) + 1, _counts(sequences, words))
            held_out = hold_out(trip[chosen][sequences.offsets[:-1]], self.training.held_out, rng)
            history = train_to_plateau(network, sequences, held_out, self.training, rng)
        return Learned(words, sequences, network, history)

    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        from astray_benchmark.baselines.networks import Sequences, drawn_from

        known: Learned | None = self.known_
        cell, trip = self.cells(rows), rows.steps.trip
        words = Vocabulary.of(cell, trip, self.most_cells, known.vocabulary if known else None)
        mine = self._sequences(words(cell), np.full(len(cell), ME), rows.path)
        held_out = hold_out(trip[mine.offsets[:-1]], self.tuning.held_out, rng)
        shown = mine
        if known and self.among_others:
            # Add as many trips of others, so that the network does not forget the other agents and the town.
            some = rng.permutation(len(known.sequences))[: len(mine)]
            rest = [known.sequences.features[slice(*known.sequences.offsets[i : i + 2])] for i in some.tolist()]
            offsets = np.cumsum([mine.offsets[-1], *(len(part) for part in rest)])
            shown = Sequences(np.concatenate([mine.features, *rest]), np.r_[mine.offsets[:-1], offsets])
            held_out = np.r_[held_out, np.zeros(len(some), np.bool_)]
        with drawn_from(rng):
            counts = _counts(shown, words)
            network: Any = known.network.grown(len(words) + 1, counts) if known else self._new(1, 1)
            if not known:
                network.table.grow(len(words) + 1, counts)
            self.history_ = self._tune(network, shown, held_out, rng)
        self.network_, self.vocabulary_ = network, words

    def _anomaly(self, rows: Rows) -> Array:
        cell = self.cells(rows)
        return self._surprise(self._sequences(self.vocabulary_(cell), np.full(len(cell), ME), rows.path))

    def _sequences(self, cell: Ints, agent: Ints, path: Array) -> Sequences:
        """Cuts cells and their agents into sequences of at most ``longest`` cells."""
        from astray_benchmark.baselines.networks import Sequences

        return Sequences(np.column_stack([cell, agent]).astype(np.int64), stretches(path, self.longest))


def _counts(sequences: Sequences, words: Vocabulary) -> Ints:
    """Counts how often each cell occurs."""
    return np.bincount(sequences.features[:, 0], minlength=len(words) + 1)


@dataclass(eq=False)
class CellTransformer(CellGenerator):
    """A causal transformer over cells with the agent as the first token, after LM-TAD (Mbuya et al. 2024).

    As in the paper, a trip's score is minus the logarithm of its perplexity, and a step's anomaly is its surprisal. A
    public run of the authors' code on Porto has 8 layers, 12 heads and 768 units; here it is 2 layers, 4 heads and 64
    units.

    Parameters
    ----------
    width, layers, heads, dropout
        The size of the transformer.
    """

    width: int = 64
    layers: int = 2
    heads: int = 4
    dropout: float = 0.1

    name: ClassVar[str] = "LM-TAD"

    def _new(self, n_cells: int, n_agents: int) -> Transformer:
        from astray_benchmark.baselines.cell_networks import Transformer

        return Transformer(n_cells, n_agents, self.longest, self.width, self.layers, self.heads, self.dropout)

    def _tune(
        self, network: Transformer, sequences: Sequences, held_out: NDArray[np.bool_], rng: np.random.Generator
    ) -> list[Epoch]:
        from astray_benchmark.baselines.networks import train_to_plateau

        network.new_agent(ME)
        how = self.tuning if self.known_ else self.training
        return train_to_plateau(network, sequences, held_out, how, rng)


@dataclass(eq=False)
class MixtureSequenceAutoencoder(CellGenerator):
    """A Gaussian-mixture variational sequence autoencoder, after GM-VSAE (Liu et al. 2020).

    A trip's score is the mean log probability of its cells, generated from the component of the prior that explains it
    best ("detection via generation"). As in the authors' code, the network first learns to reproduce trips without a
    prior, the components begin at the k-means centres of the codes, and cells are embedded in 32 dimensions. The GRUs
    have 128 units instead of 256. The method does not distinguish agents: the components come from the agent's own
    trips; others only teach the network how people move.

    Parameters
    ----------
    width, hidden, code
        The dimensions of embeddings, of the GRUs, and of a trip's code.
    components
        The number of components of the prior, one for each kind of route; the paper has 5 and 10.
    mixing
        The settings for learning once there are components.
    """

    among_others: ClassVar[bool] = False
    width: int = 32
    hidden: int = 128
    code: int = 32
    components: int = 10
    mixing: Training = Training(batch=32, learning_rate=1e-3, budget=400_000, patience=4, most_epochs=30)

    name: ClassVar[str] = "GM-VSAE"

    def _new(self, n_cells: int, n_agents: int) -> MixtureAutoencoder:
        from astray_benchmark.baselines.cell_networks import MixtureAutoencoder

        return MixtureAutoencoder(n_cells, self.width, self.hidden, self.code, self.components)

    def _tune(
        self, network: MixtureAutoencoder, sequences: Sequences, held_out: NDArray[np.bool_], rng: np.random.Generator
    ) -> list[Epoch]:
        from astray_benchmark.baselines.networks import train_to_plateau

        how = self.tuning if self.known_ else self.training
        history = train_to_plateau(network, sequences, held_out, how, rng)
        codes = network.codes(sequences)
        count = min(self.components, len(np.unique(codes, axis=0)))
        groups = library("sklearn.cluster").KMeans(count, n_init=4, random_state=int(rng.integers(2**31))).fit(codes)
        network.place(groups.cluster_centers_)
        return history + train_to_plateau(network, sequences, held_out, self.mixing, rng)

    def _surprise(self, sequences: Sequences) -> Array:
        from astray_benchmark.baselines.cell_networks import Generation
        from astray_benchmark.baselines.networks import errors

        return errors(Generation(self.network_), sequences)
