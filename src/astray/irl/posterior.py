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
    """K reward functions over one set of features, for each aspect.

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
    aspects
        What the reward is asked about; each aspect has its own K heads.
    """

    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    layers: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]
    prior: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...] = ()
    clip: float = 5.0
    aspects: tuple[str, ...] = ("behaviour",)

    @property
    def n_heads(self) -> int:
        """The number of reward functions of an aspect."""
        weight = self.layers[-1][0]
        return int(weight.shape[0] * weight.shape[2]) // len(self.aspects)

    def __call__(self, features: Array, batch: int = 4096) -> NDArray[np.float32]:
        """The reward of every row under every head: (rows, aspects, heads).

        Rows lie next to each other in memory, whatever the shape says: what follows sums over heads.
        """
        rewards = np.empty((len(self.aspects), self.n_heads, len(features)), np.float32)
        for rows in _batches(len(features), batch):
            x = np.clip((features[rows] - self.mean) / self.scale, -self.clip, self.clip)
            found = _forward(self.layers, x)
            if self.prior:
                found = found + _forward(self.prior, x)
            # (networks, aspects x heads, rows) -> (aspects, networks x heads, rows)
            by_aspect = found.reshape(len(found), len(self.aspects), -1, len(x)).swapaxes(0, 1)
            rewards[..., rows] = by_aspect.reshape(len(self.aspects), -1, len(x))
        return rewards.transpose(2, 0, 1)


def _forward(layers: tuple[tuple[Array, Array], ...], x: Array) -> Array:
    """The network's outputs: (networks, outputs, rows)."""
    h = x.T
    for weight, bias in layers[:-1]:
        h = weight.swapaxes(1, 2) @ h
        h += bias.swapaxes(1, 2)
        np.tanh(h, out=h)
    weight, bias = layers[-1]
    return np.asarray(weight.swapaxes(1, 2) @ h + bias.swapaxes(1, 2))


def _batches(n: int, size: int) -> Iterator[slice]:
    return (slice(i, min(i + size, n)) for i in range(0, n, size))
