"""A behaviour clone for discrete actions: the probability of each action in a state, fitted in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

UNIFORM = 0.01  # the share of a uniform choice, which limits the weight of a trajectory with an odd action
RIDGE = 1e-3  # added to the covariance of standardised states


@dataclass(frozen=True)
class DiscreteClone:
    """Linear discriminant analysis: log-odds that are linear in the state, mixed with a little uniform choice.

    The states in which the agent takes one action are modelled as a Gaussian, with one covariance for all actions. By
    Bayes' rule the probability of an action is then a softmax of linear functions of the state. Every action counts as
    demonstrated once more than it was, in the mean state.

    >>> rng = np.random.default_rng(0)
    >>> states = rng.normal(size=(2000, 1))
    >>> right = rng.random(2000) < 1 / (1 + np.exp(-2 * states[:, 0]))
    >>> clone = DiscreteClone.fit(states, np.column_stack([~right, right]))
    >>> np.exp(clone.log_prob(np.array([[1.0], [1.0]]), np.eye(2, dtype=bool))).round(1).tolist()
    [0.1, 0.9]
    """

    mean: Array
    scale: Array
    weights: Array  # (d, actions)
    bias: Array  # (actions,)

    @classmethod
    def fit(cls, states: Array, actions: Array) -> Self:
        """Fits the clone to rows of states and one-hot actions."""
        mean, scale = states.mean(axis=0), states.std(axis=0)
        scale = np.where(scale > 1e-9, scale, 1.0)
        z, chosen = (states - mean) / scale, actions.astype(np.float64)
        counts = chosen.sum(axis=0) + 1.0
        centres = chosen.T @ z / counts[:, None]
        rest = z - chosen @ centres
        covariance = rest.T @ rest / len(z) + RIDGE * np.eye(z.shape[1])
        weights = np.linalg.solve(covariance, centres.T)
        return cls(mean, scale, weights, np.log(counts) - 0.5 * (centres.T * weights).sum(axis=0))

    def log_prob(self, states: Array, actions: Array) -> NDArray[np.float64]:
        """Returns the log-probability of each action in its state."""
        odds = (states - self.mean) / self.scale @ self.weights + self.bias
        odds = np.exp(odds - odds.max(axis=1, keepdims=True))
        p = (odds * actions).sum(axis=1) / odds.sum(axis=1)
        return np.asarray(np.log((1.0 - UNIFORM) * p + UNIFORM / actions.shape[1]))
