"""The policy for discrete actions, and the choice of the policy that fits some demonstrations.

Discrete actions are one-hot rows of the type ``bool``, as :meth:`astray.Trajectories.from_steps` makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from astray.irl.action_distributions import Categorical
from astray.irl.network import forward
from astray.irl.policy import GaussianPolicy, Policy

Array = NDArray[Any]


class CategoricalPolicy(Policy):
    """A choice among discrete actions; a tanh network gives their log-odds. At first all actions are about as likely.

    >>> rng = np.random.default_rng(0)
    >>> policy = CategoricalPolicy(rng.normal(size=(500, 4)), 3, rng)
    >>> probabilities = policy.log_prob(np.zeros((2, 4)), np.eye(3, dtype=bool)[[0, 2]]).exp()
    >>> [round(p, 1) for p in probabilities.tolist()]
    [0.3, 0.3]
    """

    action_type = np.bool_

    def __init__(
        self,
        states: ArrayLike,
        n_actions: int,
        rng: np.random.Generator,
        *,
        hidden: Sequence[int] = (64, 64),
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(states)
        self.n_actions = n_actions
        self._begin(hidden, torch.zeros(0, dtype=dtype), rng)

    def distribution(self, output: Tensor, constants: Tensor) -> Categorical:
        """Returns the distributions over one-hot actions."""
        return Categorical(output, constants)

    def encode(self, actions: Tensor | Array) -> Tensor:
        """Returns one-hot actions as numbers."""
        return torch.as_tensor(actions).to(self.theta.dtype)

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws Gumbel noise: the largest of log-odds plus Gumbel noise is a draw from their distribution."""
        return rng.gumbel(size=(*shape, self.n_actions))

    def actor(self) -> Callable[[Tensor | Array, Tensor | Array], Tensor]:
        """Returns a function of states and Gumbel noise (..., a) that returns the actions, one-hot."""
        layers = self.net.layers(self.split(self.theta)[0])

        def act(states: Tensor | Array, noise: Tensor | Array) -> Tensor:
            chosen = (forward(layers, self.standardise_states(states)) + torch.as_tensor(noise)).argmax(dim=-1)
            return torch.nn.functional.one_hot(chosen, self.n_actions).bool()

        return act

    def log_prob(self, states: Tensor | Array, actions: Tensor | Array) -> Tensor:
        """Returns the log-probability of each action; torch can differentiate it by ``theta``."""
        return (self._log_p(states) * self.encode(actions)).sum(dim=-1)

    def entropy(self, states: Tensor | Array) -> Tensor:
        """Returns the mean entropy of the action in these states, in nats."""
        log_p = self._log_p(states)
        return -(log_p.exp() * log_p).sum(dim=-1).mean()

    def _log_p(self, states: Tensor | Array) -> Tensor:
        """Returns the log-probability of every action."""
        weights, _ = self.split(self.theta)
        return self.net.forward(weights, self.standardise_states(states)).log_softmax(dim=-1)


def policy_for(
    states: Array, actions: Array, rng: np.random.Generator, hidden: Sequence[int] = (64, 64)
) -> GaussianPolicy | CategoricalPolicy:
    """Returns a new policy for demonstrated states and actions: categorical if the actions are discrete."""
    if actions.dtype == np.bool_:
        return CategoricalPolicy(states, actions.shape[1], rng, hidden=hidden)
    return GaussianPolicy(states, actions, rng, hidden=hidden)
