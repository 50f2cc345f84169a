"""The learned reward as plain arrays: an approximate posterior of K heads, evaluated without the training library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class RewardPosterior:
    """K reward functions over one set of features.

    Attributes
    ----------
    mean, scale
        The features are standardised by these first, then clipped to ``clip`` either way.
    layers
        Weights and biases; weights have the shape (networks, in, out). Hidden layers are tanh, the last one linear.
    prior
        Layers of fixed random networks that are added to the output (randomised prior functions), or none.
    clip
        How many standard deviations a feature may lie off: beyond what was seen, the reward stays level.
    """

    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    layers: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]
    prior: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...] = ()
    clip: float = 5.0

    @property
    def n_heads(self) -> int:
        """The number of reward functions."""
        weight = self.layers[-1][0]
        return int(weight.shape[0] * weight.shape[2])

    def __call__(self, features: Array, batch: int = 65_536) -> NDArray[np.float32]:
        """The reward of every row under every head: (rows, heads)."""
        rewards = np.empty((len(features), self.n_heads), np.float32)
        for rows in _batches(len(features), batch):
            x = np.clip((features[rows] - self.mean) / self.scale, -self.clip, self.clip)
            rewards[rows] = _forward(self.layers, x)
            if self.prior:
                rewards[rows] += _forward(self.prior, x)
        return rewards


def _forward(layers: tuple[tuple[Array, Array], ...], x: Array) -> Array:
    h = x[None]
    for weight, bias in layers[:-1]:
        h = np.tanh(h @ weight + bias)
    weight, bias = layers[-1]
    return (h @ weight + bias).transpose(1, 0, 2).reshape(len(x), -1)


def _batches(n: int, size: int) -> Iterator[slice]:
    return (slice(i, min(i + size, n)) for i in range(0, n, size))
