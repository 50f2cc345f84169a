"""The networks of the autoencoders, and the training of all networks of the baselines to a plateau."""

from __future__ import annotations

import copy
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from astray.core.errors import TrainingError
from astray_benchmark.array_types import Array

if TYPE_CHECKING:
    from astray_benchmark.baselines.autoencoders import Training


class Network(nn.Module, ABC):
    """A network that returns the loss of every step, which in training may be an estimate."""

    @abstractmethod
    def losses(self, x: Tensor, lengths: Tensor, rows: Array) -> Tensor:
        """Returns the loss of every real step, sequence by sequence; :meth:`Sequences.padded` makes the arguments."""


class Reproducing(Network):
    """A network that reproduces its input; the loss of a step is its mean squared error over the features."""

    def losses(self, x: Tensor, lengths: Tensor, rows: Array) -> Tensor:
        """See :class:`Network`."""
        squares: Tensor = (self(x, lengths) - x).square().mean(dim=2)
        return squares[torch.from_numpy(rows >= 0)]


class FeedForward(Reproducing):
    """Fully connected layers that take each step alone: ReLU inside, linear at the output."""

    def __init__(self, n_features: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n_in, n_out in itertools.pairwise((n_features, *hidden)):
            layers += [nn.Linear(n_in, n_out), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear((n_features, *hidden)[-1], n_features))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Returns the reproduced sequences: (sequences, steps, features)."""
        reproduced: Tensor = self.layers(x)
        return reproduced


class Recurrent(Reproducing):
    """Two LSTMs: one encodes a sequence; the other starts from its last state and decodes the sequence in reverse."""

    def __init__(self, n_features: int, hidden: int) -> None:
        super().__init__()
        self.encoder = nn.LSTM(n_features, hidden, batch_first=True)
        self.decoder = nn.LSTM(hidden, hidden, batch_first=True)
        self.output = nn.Linear(hidden, n_features)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Returns the reproduced sequences: (sequences, steps, features), with arbitrary values in the padding."""
        # Padding comes after the last step, so it does not affect the states that are used.
        read, _ = self.encoder(x)
        code = read[torch.arange(len(x)), lengths - 1]
        begin = code[None].contiguous()
        written, _ = self.decoder(code[:, None].expand(-1, x.shape[1], -1), (begin, torch.zeros_like(begin)))
        turned = (lengths[:, None] - 1 - torch.arange(x.shape[1])).clamp(min=0)
        reproduced: Tensor = self.output(written.gather(1, turned[..., None].expand(-1, -1, written.shape[2])))
        return reproduced


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of features, one after the other; ``offsets`` are the start of each, and the end of the last."""

    features: Array
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Returns the number of steps of each sequence."""
        return np.diff(self.offsets)

    def padded(self, which: Array) -> tuple[Tensor, Tensor, Array]:
        """Pads some sequences with zeros to the longest; also returns lengths, and each step's row (-1: padding)."""
        lengths = self.lengths[which]
        step = np.arange(lengths.max())
        rows = np.where(step < lengths[:, None], self.offsets[which][:, None] + step, -1)
        x = np.where(rows[..., None] < 0, 0, self.features[rows])
        whole = np.issubdtype(x.dtype, np.integer)  # keep numbers of cells and agents as integers
        return torch.from_numpy(x.astype(np.int64 if whole else np.float32)), torch.from_numpy(lengths), rows

    def batches(self, which: Array, size: int, rng: np.random.Generator) -> list[Array]:
        """Returns batches of some sequences in random order; sequences in a batch have similar lengths, to pad less."""
        order = np.argsort(self.lengths[which] * rng.uniform(0.8, 1.25, len(which)))
        parts = [which[order[i : i + size]] for i in range(0, len(which), size)]
        return [parts[i] for i in rng.permutation(len(parts))]


class Epoch(NamedTuple):
    """The mean loss of a step after a pass over the data (for an autoencoder, the mean squared error)."""

    trained: float
    held_out: float


def train_to_plateau(
    network: Network, sequences: Sequences, held_out: NDArray[np.bool_], training: Training, rng: np.random.Generator
) -> list[Epoch]:
    """Trains until the held-out loss stops falling; the network ends in its best state."""
    learned, left_out = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    optimiser = torch.optim.Adam(network.parameters(), lr=training.learning_rate, fused=True)
    # Patience counts epochs, so an epoch needs enough gradient steps even if the training set is small.
    batch_size = min(training.batch, max(8, len(learned) // 20))
    rows_an_epoch = int(sequences.lengths[learned].sum())
    epochs = min(training.most_epochs, max(training.least_epochs, training.budget // rows_an_epoch))
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * -(-len(learned) // batch_size))
    history: list[Epoch] = []
    best, best_state, since_best = np.inf, copy.deepcopy(network.state_dict()), 0
    while len(history) < epochs and since_best < training.patience:
        total, count = 0.0, 0
        network.train()
        for batch in sequences.batches(learned, batch_size, rng):
            x, lengths, rows = sequences.padded(batch)
            error = network.losses(x, lengths, rows)
            loss = error.mean()
            if not torch.isfinite(loss):
                raise TrainingError(f"the network's loss became {loss.item()}", remedy="lower learning_rate")
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), training.clip)
            optimiser.step()
            falling.step()
            total, count = total + float(error.detach().sum()), count + len(error)
        missed = float(errors(network, sequences, left_out).sum() / sequences.lengths[left_out].sum())
        history.append(Epoch(total / count, missed))
        since_best += 1
        if missed < best * (1.0 - training.least_gain):
            best, best_state, since_best = missed, copy.deepcopy(network.state_dict()), 0
    network.load_state_dict(best_state)
    network.eval()
    return history


@torch.no_grad()
def errors(network: Network, sequences: Sequences, which: Array | None = None) -> NDArray[np.float64]:
    """Returns the loss of every row, or only of the sequences ``which`` and 0 for the others."""
    network.eval()
    found = np.zeros(len(sequences.features))
    chosen = np.arange(len(sequences)) if which is None else which
    lengths = sequences.lengths[chosen]
    chosen = chosen[np.argsort(lengths, kind="stable")]
    size = max(1, 8192 // int(lengths.max(initial=1)))
    for i in range(0, len(chosen), size):
        x, n, rows = sequences.padded(chosen[i : i + size])
        found[rows[rows >= 0]] = network.losses(x, n, rows).numpy()
    return found


@contextmanager
def drawn_from(rng: np.random.Generator) -> Iterator[None]:
    """Lets networks made in the block draw initial weights from ``rng``, without changing torch's own generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        yield
