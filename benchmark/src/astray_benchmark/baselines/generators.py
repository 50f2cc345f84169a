"""Baselines that generate trips cell by cell: a trip is anomalous if its cells are improbable after those before them.

Both follow published methods, smaller than published so that they learn on a processor in minutes. They learn from the
agent's trips alone, or first from other people's: how one moves in this town. What they learned of others is shared by
everybody who is compared with these people.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.trajectories import Trajectories
from astray_benchmark.baselines.autoencoders import Training, stretches
from astray_benchmark.baselines.baseline import Rows
from astray_benchmark.baselines.cells import Keys, joined
from astray_benchmark.baselines.comparisons import Comparison, Crowd
from astray_benchmark.libraries import library

if TYPE_CHECKING:
    from astray_benchmark.baselines.cell_networks import CellNetwork, MixtureAutoencoder, Transformer
    from astray_benchmark.baselines.networks import Epoch, Sequences

Array = NDArray[Any]
Ints = NDArray[np.int64]

ME = 0  # the number of the agent in question; others count from 1 on


class Vocabulary(NamedTuple):
    """The cells that have a number of their own, from 1 on; all others share the number 0."""

    keys: Keys  # sorted
    numbers: Ints

    @classmethod
    def of(cls, cell: Keys, trip: Array, most: int, known: Vocabulary | None = None) -> Vocabulary:
        """Adds the cells that two trips or more have entered, at most ``most``, after those known already.

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
        if not len(self.keys):
            return np.zeros(len(cell), np.int64)
        at = np.minimum(np.searchsorted(self.keys, cell), len(self.keys) - 1)
        return np.where(self.keys[at] == cell, self.numbers[at], 0)


class Learned(NamedTuple):
    """What was learned from others: cells and sequences, and a network that has not been trained on the agent yet."""

    vocabulary: Vocabulary
    sequences: Sequences
    network: CellNetwork
    history: list[Epoch]


@dataclass(eq=False)
class CellGenerator(Comparison):
    """What both share. Other people's trips are of use and not needed: without them it learns from the agent alone.

    Parameters
    ----------
    longest
        Cells of a sequence at most; longer paths are cut into parts of about equal length.
    most_cells
        Cells that have a number of their own, of those that others enter.
    most_trips
        Of others that are learned from.
    alone
        Whether the agent's own trips are all that it learns from, though there be others'.
    training
        How it learns from others, or, where there are none, from the agent.
    tuning
        How it goes on with the agent's own trips.

    Attributes
    ----------
    history_
        The mean surprise of a cell in every epoch with the agent's trips, of those trained on and of those held out.
    """

    longest: int = 128
    most_cells: int = 20_000
    most_trips: int = 1000
    alone: bool = False
    training: Training = Training(batch=64, learning_rate=3e-3, budget=1_500_000, patience=4, held_out=0.05)
    tuning: Training = Training(batch=32, learning_rate=2e-3, budget=1_500_000, patience=4)
    among_others: ClassVar[bool] = True  # whether it goes on with as many of the others' trips among the agent's own
    vocabulary_: Vocabulary | None = field(default=None, init=False, repr=False)
    network_: Any = field(default=None, init=False, repr=False)
    history_: list[Epoch] = field(default_factory=list, init=False, repr=False)

    @abstractmethod
    def _new(self, n_cells: int, n_agents: int) -> CellNetwork:
        """Returns the network, not trained yet."""

    @abstractmethod
    def _go_on(
        self, network: Any, sequences: Sequences, held_out: NDArray[np.bool_], rng: np.random.Generator
    ) -> list[Epoch]:
        """Train it on sequences with the agent's own among them, and perhaps on others' before."""

    def _surprise(self, network: Any, sequences: Sequences) -> Array:
        """Minus the log probability of every cell."""
        from astray_benchmark.baselines.networks import errors

        return errors(network, sequences)

    def others(self, population: Trajectories | None, train: Trajectories) -> Learned | None:
        """Learns from a population without the agents of these training trips; None if nobody is left."""
        if self.alone:
            return None
        found = None if population is None else population[~np.isin(population.agent_ids, train.agents)]
        return self.know(Crowd.of(found, self)) if found else None

    def know(self, crowd: Crowd) -> Learned:
        """Learn from others."""
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
            held_out = _some_trips(trip[chosen][sequences.offsets[:-1]], self.training.held_out, rng)
            history = train_to_plateau(network, sequences, held_out, self.training, rng)
        return Learned(words, sequences, network, history)

    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        from astray_benchmark.baselines.networks import Sequences, drawn_from

        known: Learned | None = self.known_
        cell, trip = self.cells(rows), rows.steps.trip
        words = Vocabulary.of(cell, trip, self.most_cells, known.vocabulary if known else None)
        mine = self._sequences(words(cell), np.full(len(cell), ME), rows.path)
        held_out = _some_trips(trip[mine.offsets[:-1]], self.tuning.held_out, rng)
        shown = mine
        if known and self.among_others:
            # As many of the others', so that the network keeps telling agents apart and keeps the town.
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
            self.history_ = self._go_on(network, shown, held_out, rng)
        self.network_, self.vocabulary_ = network, words

    def _anomaly(self, rows: Rows) -> Array:
        assert self.vocabulary_ is not None
        cell = self.cells(rows)
        return self._surprise(self.network_, self._sequences(self.vocabulary_(cell), np.full(len(cell), ME), rows.path))

    def _sequences(self, cell: Ints, agent: Ints, path: Array) -> Sequences:
        """Cuts cells and their agents into sequences that are not too long."""
        from astray_benchmark.baselines.networks import Sequences

        starts = np.flatnonzero(np.diff(path, prepend=-1))
        offsets = stretches(np.diff(np.append(starts, len(path))), self.longest)
        return Sequences(np.column_stack([cell, agent]).astype(np.int64), offsets)


def _counts(sequences: Sequences, words: Vocabulary) -> Ints:
    """Counts how often each cell occurs."""
    return np.bincount(sequences.features[:, 0], minlength=len(words) + 1)


def _some_trips(trip: Array, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Returns a mask of the sequences to hold out: those of some trips, one at least."""
    every = rng.permutation(np.unique(trip))
    return np.isin(trip, every[: max(1, round(share * len(every)))])


@dataclass(eq=False)
class CellTransformer(CellGenerator):
    """A causal transformer over cells with the agent as the first token, after LM-TAD (Mbuya et al. 2024).

    The score of a trip is minus the logarithm of its perplexity, that of a step its surprisal, both theirs. A
    public run of their code on Porto has 8 layers, 12 heads and 768 units; here it is 2 layers, 4 heads and 64 units.

    Parameters
    ----------
    width, layers, heads, dropout
        The size of the transformer.
    """

    width: int = 64
    layers: int = 2
    heads: int = 4
    dropout: float = 0.1

    @property
    def name(self) -> str:
        """Returns its name in tables."""
        return "LM-TAD"

    def _new(self, n_cells: int, n_agents: int) -> Transformer:
        from astray_benchmark.baselines.cell_networks import Transformer

        return Transformer(n_cells, n_agents, self.longest, self.width, self.layers, self.heads, self.dropout)

    def _go_on(
        self, network: Transformer, sequences: Sequences, held_out: NDArray[np.bool_], rng: np.random.Generator
    ) -> list[Epoch]:
        from astray_benchmark.baselines.networks import train_to_plateau

        network.new_agent(ME)
        how = self.tuning if self.known_ else self.training
        return train_to_plateau(network, sequences, held_out, how, rng)


@dataclass(eq=False)
class MixtureSequenceAutoencoder(CellGenerator):
    """A Gaussian-mixture variational sequence autoencoder, after GM-VSAE (Liu et al. 2020).

    A trip's score is the mean log probability of its cells if it is generated from the component of the prior that
    explains it best ("detection via generation"). As in the authors' code the network first learns to reproduce
    without a prior, the components begin where k-means finds groups of codes, and cells are embedded in 32 dimensions;
    the GRUs have 128 units instead of 256. The method knows no agents: the components are of the agent's own trips,
    and of others it learns how one moves.

    Parameters
    ----------
    width, hidden, code
        Dimensions of embeddings, of the GRUs, and of what a trip is coded in.
    components
        Of the prior: kinds of routes; theirs are 5 and 10.
    mixing
        How it goes on with the components.
    """

    among_others: ClassVar[bool] = False
    width: int = 32
    hidden: int = 128
    code: int = 32
    components: int = 10
    mixing: Training = Training(batch=32, learning_rate=1e-3, budget=400_000, patience=4, most_epochs=30)

    @property
    def name(self) -> str:
        """Returns its name in tables."""
        return "GM-VSAE"

    def _new(self, n_cells: int, n_agents: int) -> MixtureAutoencoder:
        from astray_benchmark.baselines.cell_networks import MixtureAutoencoder

        return MixtureAutoencoder(n_cells, self.width, self.hidden, self.code, self.components)

    def _go_on(
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

    def _surprise(self, network: MixtureAutoencoder, sequences: Sequences) -> Array:
        from astray_benchmark.baselines.cell_networks import Generation
        from astray_benchmark.baselines.networks import errors

        return errors(Generation(network), sequences)
