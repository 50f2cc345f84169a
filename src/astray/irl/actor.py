"""The learned policy as plain arrays, so that it can act without torch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Actor:
    """A diagonal Gaussian over actions; a tanh network of the state gives its mean.

    ``theta`` holds all parameters in the order of :class:`astray.irl.policy.GaussianPolicy`: for each layer the weight
    (outputs x inputs) and the bias, then one log standard deviation for each action. If the actions are ``discrete``,
    the network gives their log-odds instead, and there are no deviations.

    >>> theta = np.zeros(5 * 2 + 2 + 2, np.float32)
    >>> actor = Actor(np.zeros(5), np.ones(5), np.array([3.0, 0.0]), np.ones(2), (), theta)
    >>> actor.mean(np.zeros((1, 5))).tolist(), actor.std.tolist()
    ([[3.0, 0.0]], [1.0, 1.0])
    """

    state_mean: NDArray[np.float64]
    state_scale: NDArray[np.float64]
    action_mean: NDArray[np.float64]
    action_scale: NDArray[np.float64]
    hidden: tuple[int, ...]  # widths
    theta: NDArray[np.float32]
    discrete: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """The widths of all layers, input first."""
        return (len(self.state_mean), *self.hidden, len(self.action_mean))

    @property
    def n_parameters(self) -> int:
        """The length that ``theta`` must have."""
        constants = 0 if self.discrete else len(self.action_mean)
        return sum((n_in + 1) * n_out for n_in, n_out in pairwise(self.sizes)) + constants

    @property
    def std(self) -> NDArray[np.float64]:
        """The standard deviation of each action, in the units of the action."""
        return np.asarray(self.action_scale * np.exp(self.theta[-len(self.action_mean) :]), np.float64)

    def mean(self, states: Array) -> NDArray[np.float64]:
        """Returns the mean action in each state (n, d), in the units of the action."""
        h = ((states - self.state_mean) / self.state_scale).astype(np.float32)
        at = 0
        for layer, (n_in, n_out) in enumerate(pairwise(self.sizes)):
            end = at + n_in * n_out
            h = h @ self.theta[at:end].reshape(n_out, n_in).T + self.theta[end : end + n_out]
            if layer < len(self.hidden):
                h = np.tanh(h)
            at = end + n_out
        return np.asarray(self.action_mean + self.action_scale * h, np.float64)
