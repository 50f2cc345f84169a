"""Densities of trajectories: the q(tau) of the importance weights in Eq. 3 of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class CloneDensity:
    """A behaviour clone: actions as a Gaussian around a linear function of the state, by least squares.

    It gives a density to trajectories that no known policy proposed (demonstrations, other people, counterfactuals), as
    guided cost learning does (Finn et al. 2016). With it in the mixture, a demonstration that the policy would hardly
    ever propose does not get an enormous weight.

    >>> rng = np.random.default_rng(0)
    >>> states = rng.normal(size=(500, 1))
    >>> clone = CloneDensity.fit(states, 2 * states + rng.normal(size=(500, 1)))
    >>> float(clone.log_prob(np.zeros((1, 1)), np.zeros((1, 1)))[0].round(1))   # -log(sqrt(2 pi))
    -0.9
    """

    weights: Array
    mean: Array
    scale: Array
    whiten: Array
    log_norm: float

    @classmethod
    def fit(cls, states: Array, actions: Array) -> CloneDensity:
        """Fits the clone to rows of states and actions."""
        mean, scale = states.mean(axis=0), states.std(axis=0)
        scale = np.where(scale > 1e-9, scale, 1.0)
        x = _design(states, mean, scale)
        weights = np.linalg.solve(x.T @ x + 1e-3 * np.eye(x.shape[1]), x.T @ actions)
        rest = actions - x @ weights
        covariance = rest.T @ rest / max(len(rest), 1) + 1e-6 * np.eye(actions.shape[1])
        root = np.linalg.cholesky(covariance)
        log_norm = float(np.log(np.diag(root)).sum() + 0.5 * actions.shape[1] * np.log(2 * np.pi))
        return cls(weights, mean, scale, np.linalg.inv(root), log_norm)

    def log_prob(self, states: Array, actions: Array) -> NDArray[np.float64]:
        """Returns the log-density of each action in its state."""
        rest = actions - _design(states, self.mean, self.scale) @ self.weights
        return np.asarray(-0.5 * np.square(rest @ self.whiten.T).sum(axis=1) - self.log_norm)


def fused_log_density(log_densities: Array, shares: Array) -> NDArray[np.float64]:
    """Returns log sum_m share_m q_m(tau), the log-density of trajectories that a mixture of proposals generated.

    This is the balance heuristic of multiple importance sampling (Veach and Guibas 1995). ``log_densities`` is
    (trajectories, proposals).
    """
    with np.errstate(divide="ignore"):
        terms = log_densities + np.log(np.asarray(shares) / np.sum(shares))
    top = terms.max(axis=1, keepdims=True)
    return np.asarray((top + np.log(np.exp(terms - top).sum(axis=1, keepdims=True)))[:, 0])


def _design(states: Array, mean: Array, scale: Array) -> Array:
    return np.hstack([(states - mean) / scale, np.ones((len(states), 1))])
