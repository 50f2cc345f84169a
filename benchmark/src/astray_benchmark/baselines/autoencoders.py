"""Autoencoders: a step or trip is anomalous if a network trained on normal ones cannot reproduce it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from astray_benchmark.array_types import Array
from astray_benchmark.baselines.baseline import Baseline, Rows

if TYPE_CHECKING:
    from astray_benchmark.baselines.networks import Epoch, Network


@dataclass(frozen=True)
class Training:
    """The settings for training a network: by Adam, until the error on held-out trips stops falling.

    The learning rate falls from its first value to zero, along a half cosine, over ``budget`` rows, so training ends on
    a plateau, after a time that does not depend on the size of the training set.
    """

    batch: int = 512  # rows, or stretches of trips, in a gradient step; fewer if an epoch would have less than 20 steps
    learning_rate: float = 3e-3  # the first
    budget: int = 1_000_000  # rows seen in training, counted again in every epoch
    held_out: float = 0.15  # share of the trips that are only for deciding when to stop
    patience: int = 20  # epochs without a gain before training stops; the result is the network of the best epoch
    least_gain: float = 1e-3  # the share by which the held-out error must fall to count as a gain
    most_epochs: int = 150
    least_epochs: int = 10  # the fewest epochs, even if they need more rows than the budget
    clip: float = 1.0  # the gradient's largest norm


@dataclass(eq=False)
class _Autoencoder(Baseline):
    """An autoencoder; the anomaly of a step is its mean squared error over the standardised features."""

    training: Training = Training()
    history_: list[Epoch] = field(default_factory=list, init=False, repr=False)
    network_: Any = field(default=None, init=False, repr=False)

    @abstractmethod
    def _new(self, n_features: int) -> Network:
        """Makes an untrained network."""

    @abstractmethod
    def _offsets(self, rows: Rows) -> NDArray[np.int64]:
        """Returns the offsets of the network's sequences."""

    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        from astray_benchmark.baselines.networks import Sequences, drawn_from, train_to_plateau

        sequences = Sequences(rows.features, self._offsets(rows))
        held_out = hold_out(rows.steps.trip[sequences.offsets[:-1]], self.training.held_out, rng)
        with drawn_from(rng):
            network = self._new(rows.features.shape[1])
        self.history_ = train_to_plateau(network, sequences, held_out, self.training, rng)
        self.network_ = network

    def _anomaly(self, rows: Rows) -> Array:
        from astray_benchmark.baselines.networks import Sequences, errors

        return errors(self.network_, Sequences(rows.features, self._offsets(rows)))


@dataclass(eq=False)
class FNNAutoencoder(_Autoencoder):
    """The paper's feed-forward autoencoder of single steps: layers of 64, 16 and 64 with ReLU, and a linear output.

    Parameters
    ----------
    hidden
        The widths of the hidden layers.
    training
        The settings for training.

    Attributes
    ----------
    history_
        The mean squared error of every epoch, of the trips trained on and of those held out.
    """

    hidden: tuple[int, ...] = (64, 16, 64)
    training: Training = Training(batch=2048, budget=3_000_000)

    name: ClassVar[str] = "FNN-AE"

    def _new(self, n_features: int) -> Network:
        from astray_benchmark.baselines.networks import FeedForward

        return FeedForward(n_features, self.hidden)

    def _offsets(self, rows: Rows) -> NDArray[np.int64]:
        return np.arange(len(rows.path) + 1)


@dataclass(eq=False)
class LSTMAutoencoder(_Autoencoder):
    """A recurrent autoencoder of trips: one LSTM encodes the steps into a code, another decodes them from it.

    Like EncDec-AD (Malhotra et al. 2016) it decodes in reverse order, and gets stretches of limited length.

    Parameters
    ----------
    hidden
        The width of both LSTMs, and so of the code between them.
    longest
        The most steps in a stretch; longer paths are cut into parts of about equal length.
    training
        The settings for training.

    Attributes
    ----------
    history_
        The mean squared error of every epoch, of the trips trained on and of those held out.
    """

    hidden: int = 64
    longest: int = 100
    training: Training = Training(batch=32, learning_rate=5e-3, budget=2_400_000)

    name: ClassVar[str] = "LSTM-AE"

    def _new(self, n_features: int) -> Network:
        from astray_benchmark.baselines.networks import Recurrent

        return Recurrent(n_features, self.hidden)

    def _offsets(self, rows: Rows) -> NDArray[np.int64]:
        return stretches(rows.path, self.longest)


def hold_out(trip: Array, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draws a share of the trips, at least one; returns a mask of the sequences of these trips."""
    every = rng.permutation(np.unique(trip))
    return np.isin(trip, every[: max(1, round(share * len(every)))])


def stretches(path: Array, longest: int) -> NDArray[np.int64]:
    """Cuts paths into parts of at most ``longest`` steps and about equal length; returns the offsets of the parts.

    ``path`` is the path of each step.

    >>> stretches(np.repeat([4, 5], [3, 7]), 3).tolist()
    [0, 3, 5, 7, 10]
    """
    lengths = np.unique(path, return_counts=True)[1]
    parts = -(-lengths // longest)
    of = np.repeat(np.arange(len(lengths)), parts)
    part = np.arange(len(of)) - np.repeat(np.cumsum(parts) - parts, parts)
    starts = (np.cumsum(lengths) - lengths)[of] + part * lengths[of] // parts[of]
    return np.append(starts, lengths.sum()).astype(np.int64)
