"""The reward network: shared layers that branch into K heads, each trained on its own bootstrap (Section 4.1.2).

If the reward has several aspects (place, route, manner, time), each aspect has its own K heads on the shared layers.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from astray.irl.learn_config import RewardConfig
from astray.irl.posterior import RewardPosterior

Array = NDArray[Any]


class RewardHeads(nn.Module):
    """Computes r_theta_k(s, a) for k = 1..K, for all aspects and heads at once.

    >>> reward = RewardHeads(3, RewardConfig(heads=4), np.random.default_rng(0), aspects=("place", "manner"))
    >>> reward(torch.zeros(5, 3)).shape
    torch.Size([5, 2, 4])
    """

    mean: Tensor
    scale: Tensor
    clip: float = 5.0

    def __init__(
        self,
        n_features: int,
        config: RewardConfig,
        rng: np.random.Generator,
        aspects: tuple[str, ...] = ("behaviour",),
    ) -> None:
        super().__init__()
        self.config = config
        self.aspects = aspects
        sizes = (n_features, *config.hidden, len(aspects) * config.heads)
        self.weights = nn.ParameterList(_gaussian_layers(sizes, config, rng))
        self.biases = nn.ParameterList([_bias(out, config, rng) for out in sizes[1:]])
        self.prior_mean: list[Tensor] = []  # the prior's mean of each parameter; zero if empty
        self.prior = _gaussian_layers(sizes, config, rng) if config.random_prior else []
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))

    @property
    def n_heads(self) -> int:
        """The number of reward functions of each aspect: heads times networks."""
        return self.config.heads * self.config.networks

    def standardise(self, features: Array) -> None:
        """Sets the mean and scale of the inputs from features; NaN means missing."""
        # Use double precision: in single precision, a constant summed over many rows seems to vary.
        known = ~np.isnan(features)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, features, 0.0).sum(axis=0, dtype=np.float64) / count
        self.mean.copy_(torch.as_tensor(mean))
        spread = np.sqrt(np.square(np.where(known, features - mean, 0.0)).sum(axis=0) / count)
        # A constant feature carries no information; scale 1 keeps it at 0.
        self.scale.copy_(torch.as_tensor(np.where(spread > 1e-6, spread, 1.0)))

    def forward(self, features: Tensor) -> Tensor:
        """Returns the reward of every row under every head: (rows, aspects, heads)."""
        x = self._inputs(features)
        rewards = _forward(list(self.weights), list(self.biases), x)
        if self.prior:
            zeros = [torch.zeros_like(b) for b in self.biases]
            rewards = rewards + self.config.random_prior * _forward(self.prior, zeros, x)
        by_aspect = rewards.view(len(x), self.config.networks, len(self.aspects), self.config.heads)
        return by_aspect.transpose(1, 2).reshape(len(x), len(self.aspects), self.n_heads)

    def _inputs(self, features: Tensor) -> Tensor:
        """Returns standardised and clipped features; a missing one counts as the mean."""
        return torch.nan_to_num(((features - self.mean) / self.scale).clamp(-self.clip, self.clip), nan=0.0)

    def standardised(self, features: Array) -> Array:
        """Returns the inputs of the network for features, as arrays."""
        return self._inputs(torch.from_numpy(features)).double().numpy()

    def use_as_prior(self) -> None:
        """Sets the mean of the prior to the present weights, so that further learning stays near them."""
        self.prior_mean = [p.detach().clone() for p in (*self.weights, *self.biases)]

    def neg_log_prior(self, head: int | None = None) -> Tensor:
        """Returns -log p(theta) up to a constant: of one head or, by default, averaged over the heads.

        For head k it is |theta_s|^2 / 2 sigma^2 + |theta_k|^2 / 2 sigma^2, where theta is the deviation from the mean
        of the prior, theta_s are the shared layers of the head's network, and theta_k are the head's own weights
        (averaged over the aspects). The prior of the other heads has no part in it: before a head is first sampled,
        Adam would turn that small gradient into full steps to zero.
        """
        means = self.prior_mean or itertools.repeat(0.0)
        moved = [p - mean for p, mean in zip((*self.weights, *self.biases), means, strict=False)]
        last = {len(self.weights) - 1, len(moved) - 1}  # weights and biases of the heads
        aspects, heads = len(self.aspects), self.config.heads
        networks, share = self.config.networks, aspects * heads
        if head is not None:
            network, k = divmod(head, heads)
            moved = [m[network] for m in moved]
            moved = [m.view(-1, aspects, heads)[..., k] if i in last else m for i, m in enumerate(moved)]
            networks, share = 1, aspects
        squares = [m.square().sum() / (share if i in last else 1) for i, m in enumerate(moved)]
        return torch.stack(squares).sum() / (2 * self.config.prior_variance * networks)

    def posterior(self) -> RewardPosterior:
        """Returns the reward as arrays that need no torch."""

        def array(p: Tensor) -> NDArray[np.float32]:
            return p.detach().numpy().copy()

        layers = tuple((array(w), array(b)) for w, b in zip(self.weights, self.biases, strict=True))
        prior = [(array(w), np.zeros_like(array(b))) for w, b in zip(self.prior, self.biases, strict=False)]
        if prior:
            prior[-1] = (prior[-1][0] * np.float32(self.config.random_prior), prior[-1][1])
        return RewardPosterior(array(self.mean), array(self.scale), layers, tuple(prior), self.clip, self.aspects)


def _gaussian_layers(sizes: tuple[int, ...], config: RewardConfig, rng: np.random.Generator) -> list[Tensor]:
    layers = []
    for n_in, n_out in itertools.pairwise(sizes):
        variance = config.initial_variance or 1.0 / n_in
        draw = rng.normal(scale=variance**0.5, size=(config.networks, n_in, n_out))
        layers.append(torch.as_tensor(draw, dtype=torch.float32))
    return layers


def _bias(n_out: int, config: RewardConfig, rng: np.random.Generator) -> Tensor:
    """Returns biases that are 0, or drawn like the weights if their variance is given."""
    shape = (config.networks, 1, n_out)
    if config.initial_variance is None:
        return torch.zeros(shape)
    return torch.as_tensor(rng.normal(scale=config.initial_variance**0.5, size=shape), dtype=torch.float32)


def _forward(weights: list[Tensor], biases: list[Tensor], x: Tensor) -> Tensor:
    h = x.unsqueeze(0)
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        h = torch.relu(h @ weight + bias)
    return (h @ weights[-1] + biases[-1]).permute(1, 0, 2).reshape(len(x), -1)
