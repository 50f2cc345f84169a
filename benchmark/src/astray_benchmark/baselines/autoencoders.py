"""Autoencoders: a step, or a whole trip, is anomalous if a network trained on normal ones cannot reproduce it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from astray_benchmark.baselines.baseline import Rows, StepDetector

if TYPE_CHECKING:
    from astray_benchmark.baselines.networks import Epoch, Network

Array = NDArray[Any]


@dataclass(frozen=True)
class Training:
    """How an autoencoder is trained: Adam, until trips held out are reproduced no better.

    The learning rate falls from its first value to nothing, along a half cosine, over ``budget`` rows:
    so training ends on a plateau after a time that does not grow with the training set.
    """

    batch: int = 512  # rows, or stretches of trips, in a gradient step; fewer if an epoch had less than 20 steps
    learning_rate: float = 3e-3  # the first
    budget: int = 1_000_000  # rows seen in training, counted again in every epoch
    held_out: float = 0.15  # share of the trips that only say when to stop
    patience: int = 20  # epochs without a gain after which training stops, and the best epoch's network is taken
    least_gain: float = 1e-3  # the share by which the held-out error must fall to count as a gain
    most_epochs: int = 150
    least_epochs: int = 10  # however many rows that are
    clip: float = 1.0  # the gradient's largest norm


@dataclass(eq=False)
class _Autoencoder(StepDetector):
    """What both autoencoders share; the anomaly of a step is its mean squared error over the standardised features."""

    training: Training = Training()
    history_: list[Epoch] = field(default_factory=list, init=False, repr=False)
    network_: Any = field(default=None, init=False, repr=False)

    @abstractmethod
    def _new(self, n_features: int) -> Network:
        """Returns the network, not trained yet."""

    @abstractmethod
    def _offsets(self, rows: Rows) -> NDArray[np.int64]:
        """Returns where the sequences that the network sees begin and end."""

    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        from astray_benchmark.baselines.networks import Sequences, drawn_from, train_to_plateau

        sequences = Sequences(rows.features, self._offsets(rows))
        trips = rng.permutation(np.unique(rows.steps.trip))
        held_out = trips[: max(1, round(self.training.held_out * len(trips)))]
        left_out = np.isin(rows.steps.trip[sequences.offsets[:-1]], held_out)
        with drawn_from(rng):
            network = self._new(rows.features.shape[1])
        self.history_ = train_to_plateau(network, sequences, left_out, self.training, rng)
        self.network_ = network

    def _anomaly(self, rows: Rows) -> Array:
        from astray_benchmark.baselines.networks import Sequences, errors

        return errors(self.network_, Sequences(rows.features, self._offsets(rows)))


@dataclass(eq=False)
class FNNAutoencoder(_Autoencoder):
    """A feed-forward autoencoder of single steps: layers of 64, 16 and 64 with ReLU, a linear output (the paper's).

    Parameters
    ----------
    hidden
        The widths of the hidden layers.
    training
        How it is trained.

    Attributes
    ----------
    history_
        The mean squared error of every epoch, of the trips trained on and of those held out.
    """

    hidden: tuple[int, ...] = (64, 16, 64)
    training: Training = Training(batch=2048, budget=3_000_000)

    @property
    def name(self) -> str:
        """Returns its name in tables."""
        return "FNN-AE"

    def _new(self, n_features: int) -> Network:
        from astray_benchmark.baselines.networks import FeedForward

        return FeedForward(n_features, self.hidden)

    def _offsets(self, rows: Rows) -> NDArray[np.int64]:
        return np.arange(len(rows.path) + 1)


@dataclass(eq=False)
class LSTMAutoencoder(_Autoencoder):
    """A recurrent autoencoder of trips: one LSTM reads the steps, another writes them out again from what it remembers.

    Like EncDec-AD (Malhotra et al. 2016) it writes in reverse order, and is shown stretches of bounded length.

    Parameters
    ----------
    hidden
        The width of both LSTMs, and so of the code between them.
    longest
        Steps of a stretch at most; longer paths are cut into parts of about equal length.
    training
        How it is trained.

    Attributes
    ----------
    history_
        The mean squared error of every epoch, of the trips trained on and of those held out.
    """

    hidden: int = 64
    longest: int = 100
    training: Training = Training(batch=32, learning_rate=5e-3, budget=2_400_000)

    @property
    def name(self) -> str:
        """Returns its name in tables."""
        return "LSTM-AE"

    def _new(self, n_features: int) -> Network:
        from astray_benchmark.baselines.networks import Recurrent

        return Recurrent(n_features, self.hidden)

    def _offsets(self, rows: Rows) -> NDArray[np.int64]:
        starts = np.flatnonzero(np.diff(rows.path, prepend=-1))
        return stretches(np.diff(np.append(starts, len(rows.path))), self.longest)


def stretches(lengths: Array, longest: int) -> NDArray[np.int64]:
    """Offsets of the parts of paths, each part at most ``longest`` steps, the parts of a path as equal as can be.

    >>> stretches(np.array([3, 7]), 3).tolist()
    [0, 3, 5, 7, 10]
    """
    parts = -(-lengths // longest)
    path = np.repeat(np.arange(len(lengths)), parts)
    part = np.arange(len(path)) - np.repeat(np.cumsum(parts) - parts, parts)
    starts = (np.cumsum(lengths) - lengths)[path] + part * lengths[path] // parts[path]
    return np.append(starts, lengths.sum()).astype(np.int64)
