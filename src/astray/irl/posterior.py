"""The learned reward as plain arrays: an approximate posterior of K heads, evaluated without the training library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Network = tuple[NDArray[Any], ...]  # the weights of one layer after the other

BATCH = 4096  # rows at a time: what is in between then stays in the cache
BLOCK = 16  # rows that are multiplied together, always as many: so a reward does not depend on the rows beside it


@dataclass(frozen=True, eq=False)
class RewardPosterior:
    """K reward functions over one set of features, for each aspect.

    Attributes
    ----------
    mean, scale
        The features are standardised by these first, then clipped to ``clip`` either way.
    layers
        Weights and biases; weights have the shape (networks, in, out). Hidden layers are rectified, the last one is
        linear: what is stranger than anything that was seen goes on to be worse.
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

    @cached_property
    def _networks(self) -> list[Network]:
        """The network that was learned, and the fixed one that is added to it, if there is one."""
        return [_with_bias(layers) for layers in (self.layers, self.prior) if layers]

    def __call__(self, features: Array) -> NDArray[np.float32]:
        """The reward of every row under every head: (rows, aspects, heads).

        Rows lie next to each other in memory, whatever the shape says: what follows sums over heads.
        """
        networks, inputs = self._networks, len(self.mean)
        rewards = np.empty((len(self.aspects), self.n_heads, len(features)), networks[0][0].dtype)
        for start in range(0, len(features), BATCH):
            some = features[start : start + BATCH]
            blocks = -(-len(some) // BLOCK)
            standard = np.zeros((blocks * BLOCK, inputs), rewards.dtype)
            here = standard[: len(some)]
            np.subtract(some, self.mean, out=here)
            here /= self.scale
            np.clip(here, -self.clip, self.clip, out=here)
            np.copyto(here, 0.0, where=np.isnan(here))  # what is missing stands at the mean
            x = _with_ones((blocks, inputs, BLOCK), rewards.dtype)
            x[:, :-1] = standard.reshape(blocks, BLOCK, inputs).swapaxes(1, 2)
            found = _forward(networks[0], x)
            for prior in networks[1:]:
                found = found + _forward(prior, x)
            # (networks, blocks, aspects x heads, rows) -> (aspects, networks x heads, rows)
            by_aspect = found.reshape(len(found), blocks, len(self.aspects), -1, BLOCK).transpose(2, 0, 3, 1, 4)
            by_aspect = by_aspect.reshape(len(self.aspects), self.n_heads, blocks * BLOCK)
            rewards[..., start : start + BATCH] = by_aspect[..., : len(some)]
        return rewards.transpose(2, 0, 1)


def combined(rewards: Array, weights: Sequence[float] | None = None) -> NDArray[np.float64]:
    """One reward of several aspects, (rows, heads), from rewards (rows, aspects, heads).

    Each aspect is the log-ratio of what the agent does to one kind of alternative; against their mixture by ``weights``
    (alike by default) the log-ratio is -log sum_a w_a exp(-R_a). An aspect that cannot tell stays near 0 and decides
    nothing; one that is sure decides alone.

    >>> combined(np.array([[[3.0], [-4.0]]])).round(2).tolist()
    [[-3.31]]
    """
    share = np.full(rewards.shape[1], 1.0 / rewards.shape[1]) if weights is None else np.asarray(weights, np.float64)
    lowest = rewards.min(axis=1, keepdims=True).astype(np.float64)
    total = np.einsum("a,rah->rh", share / share.sum(), np.exp(lowest - rewards))
    return np.asarray(lowest[:, 0] - np.log(total))


def _with_bias(layers: tuple[tuple[Array, Array], ...]) -> Network:
    """The layers as matrices (networks, out, in and a bias)."""
    return tuple(np.concatenate([w, b], axis=1).swapaxes(1, 2).copy() for w, b in layers)


def _forward(network: Network, x: Array) -> Array:
    """The network's outputs, (networks, blocks, outputs, rows), from inputs (blocks, inputs and a one, rows)."""
    for weights in network[:-1]:
        h = _with_ones((len(weights), x.shape[-3], weights.shape[1], x.shape[-1]), weights.dtype)
        z = h[..., :-1, :]
        np.matmul(weights[:, None], x, out=z)
        np.maximum(z, 0.0, out=z)
        x = h
    return np.asarray(network[-1][:, None] @ x)


def _with_ones(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Room for units (..., units, rows), and behind them for the ones that the biases are multiplied with."""
    made = np.empty((*shape[:-2], shape[-2] + 1, shape[-1]), dtype)
    made[..., -1, :] = 1.0
    return made
