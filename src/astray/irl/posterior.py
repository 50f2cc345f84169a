"""The learned reward as plain arrays: an approximate posterior of K heads, which needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Layers = tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]
Network = tuple[NDArray[Any], ...]  # the weights of one layer after the other

BATCH = 4096  # rows evaluated at a time, so that hidden layers stay in the cache
BLOCK = 16  # rows in one matrix product; always 16, so that a row's reward does not depend on the other rows


@dataclass(frozen=True, eq=False)
class RewardPosterior:
    """The K reward functions (heads) of each aspect, over one set of features.

    Hidden layers are rectified. The last layer is linear, so that the reward keeps falling beyond the training data.
    """

    mean: NDArray[np.float32]  # mean and scale standardise the features
    scale: NDArray[np.float32]
    layers: Layers  # weights (networks, in, out) and biases
    prior: Layers = ()  # layers of fixed random networks whose output is added (randomised prior functions)
    clip: float = 5.0  # features are clipped at this many standard deviations from their mean
    aspects: tuple[str, ...] = ("behaviour",)  # their names; each has its own K heads

    @property
    def n_heads(self) -> int:
        """The number of reward functions of each aspect."""
        weight = self.layers[-1][0]
        return int(weight.shape[0] * weight.shape[2]) // len(self.aspects)

    @cached_property
    def _networks(self) -> list[Network]:
        """The learned network and, if there is one, the fixed network that is added to it."""
        return [_with_bias(layers) for layers in (self.layers, self.prior) if layers]

    def __call__(self, features: Array) -> NDArray[np.float32]:
        """Returns the reward of every row under every head: (rows, aspects, heads).

        Rows are contiguous in memory, because callers reduce over heads.
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
            np.copyto(here, 0.0, where=np.isnan(here))  # a missing feature counts as the mean
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
    """Combines the rewards of several aspects, (rows, aspects, heads), into one reward (rows, heads).

    The reward R_a of an aspect is the log-ratio of two densities: of the agent's behaviour and of one kind of
    alternative. With the mixture of all alternatives, by ``weights`` (equal by default), in place of that one, the
    log-ratio is -log sum_a w_a exp(-R_a). An aspect near 0 has little effect; one far below 0 decides alone.

    >>> combined(np.array([[[3.0], [-4.0]]])).round(2).tolist()
    [[-3.31]]
    """
    share = np.full(rewards.shape[1], 1.0 / rewards.shape[1]) if weights is None else np.asarray(weights, np.float64)
    lowest = rewards.min(axis=1, keepdims=True).astype(np.float64)
    total = np.einsum("a,rah->rh", share / share.sum(), np.exp(lowest - rewards))
    return np.asarray(lowest[:, 0] - np.log(total))


def _with_bias(layers: Layers) -> Network:
    """Returns the layers as matrices (networks, out, in + 1); the last column is the bias."""
    return tuple(np.concatenate([w, b], axis=1).swapaxes(1, 2).copy() for w, b in layers)


def _forward(network: Network, x: Array) -> Array:
    """Returns outputs (networks, blocks, outputs, rows) for inputs (blocks, inputs + 1, rows); the last input is 1."""
    for weights in network[:-1]:
        h = _with_ones((len(weights), x.shape[-3], weights.shape[1], x.shape[-1]), weights.dtype)
        z = h[..., :-1, :]
        np.matmul(weights[:, None], x, out=z)
        np.maximum(z, 0.0, out=z)
        x = h
    return np.asarray(network[-1][:, None] @ x)


def _with_ones(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Allocates units (..., units + 1, rows); the last unit is 1 and multiplies the biases."""
    made = np.empty((*shape[:-2], shape[-2] + 1, shape[-1]), dtype)
    made[..., -1, :] = 1.0
    return made
