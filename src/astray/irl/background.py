"""The background: what the agent might have done instead. The reward detects only anomalies that resemble it.

It mixes four sources by weight: ``policy`` (the generator's rollouts, the paper's T_s), ``explore`` (counterfactuals of
the agent's own trips), ``population`` (other agents) and ``given`` (trajectories that the user made).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.irl.demonstrations import Rows
from astray.irl.discrete_clone import DiscreteClone

Array = NDArray[Any]

SOURCES = ("policy", "explore", "population", "given")

LogDensity = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Batch:
    """Trajectories drawn for Eq. 3 of the paper: their rows, and the log-density of each trajectory."""

    features: NDArray[np.float32]
    path: NDArray[np.int64]
    log_q: NDArray[np.float64]


class Background:
    """Trajectories by source, T_s of Algorithm 1; a full source drops its oldest trajectories.

    Parameters
    ----------
    weights
        The share of each source in a draw; empty sources leave their share to the others.
    capacity
        The largest number of rows that a source keeps.
    snapshots
        The number of past policies to keep, to evaluate the density of their rollouts.
    """

    def __init__(self, weights: Mapping[str, float], capacity: int = 100_000, snapshots: int = 8) -> None:
        unknown = set(weights) - set(SOURCES)
        if unknown or not any(w > 0 for w in weights.values()):
            raise DataError(
                f"background weights are {dict(weights)}",
                remedy=f"give weights for {', '.join(SOURCES)}, at least one of them above 0",
            )
        self.weights = dict(weights)
        self.capacity = capacity
        self.rows: dict[str, Rows] = {}
        self.policies: deque[LogDensity] = deque(maxlen=snapshots)
        self._clones: dict[str, CloneDensity | DiscreteClone] = {}

    def append(self, source: str, rows: Rows, density: LogDensity | None = None) -> None:
        """Appends trajectories to a source, unless its weight is 0; ``density`` is the log-density of their actions."""
        if not len(rows) or self.weights.get(source, 0.0) <= 0:
            return
        kept = [self.rows[source], rows] if source in self.rows else [rows]
        merged = Rows.concat(kept)
        if len(merged) > self.capacity:
            last_to_go = merged.path[len(merged) - self.capacity - 1]
            # Drop whole trajectories; a single one longer than the capacity loses its start.
            whole = merged.path > last_to_go
            merged = merged[whole if whole.any() else np.arange(len(merged)) >= len(merged) - self.capacity]
        self.rows[source] = merged
        if density is not None:
            self.policies.append(density)
        self._clones.pop(source, None)

    def refreshed(self, refresh: Callable[[Rows], Rows]) -> Background:
        """Returns the background with recomputed features and no counterfactuals, which the caller draws anew."""
        new = Background(self.weights, self.capacity, self.policies.maxlen or 1)
        new.policies.extend(self.policies)
        new.rows = {source: refresh(rows) for source, rows in self.rows.items() if source != "explore"}
        new._clones = {source: clone for source, clone in self._clones.items() if source in new.rows}
        return new

    @property
    def shares(self) -> dict[str, float]:
        """The share of each source; empty sources have none."""
        present = {s: self.weights.get(s, 0.0) for s in self.rows if self.weights.get(s, 0.0) > 0}
        total = sum(present.values())
        if total == 0:
            raise DataError("the background is empty", remedy="give a population or explorers, or set rollouts above 0")
        return {s: w / total for s, w in present.items()}

    def draw_rows(self, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draws the features of ``n`` steps, mixed by weight; within a source every trajectory is equally likely."""
        shares = self.shares
        counts = rng.multinomial(n, list(shares.values()))
        return np.concatenate(
            [self.rows[s].features[self.rows[s].draw(c, rng)] for s, c in zip(shares, counts, strict=True)]
        )

    def draw_paths(self, n: int, demonstrations: Rows, horizon: int, rng: np.random.Generator) -> Batch:
        """Draws ``n`` trajectories, mixed by weight, and adds demonstrations to them (Algorithm 2, lines 2 and 4).

        q(tau) is the mixture density of all sources: the policy has one density for each kept snapshot; for every other
        source, and for the demonstrations, the density is that of a behaviour clone (:class:`CloneDensity`).
        """
        shares = self.shares
        counts = rng.multinomial(n, list(shares.values()))
        parts = [take_paths(self.rows[s], c, horizon, rng) for s, c in zip(shares, counts, strict=True) if c]
        rows = Rows.concat([*parts, demonstrations])
        proposals: list[tuple[float, LogDensity]] = []
        for source, share in shares.items():
            if source == "policy" and self.policies:
                proposals += [(n * share / len(self.policies), policy) for policy in self.policies]
            else:
                proposals.append((n * share, self._clone(source).log_prob))
        own = clone(demonstrations)
        proposals.append((demonstrations.n_paths, own.log_prob))
        logs = [np.bincount(rows.path, log_prob(rows.states, rows.actions), rows.n_paths) for _, log_prob in proposals]
        log_q = fused_log_density(np.column_stack(logs), np.array([share for share, _ in proposals]))
        return Batch(rows.features, rows.path, log_q)

    def _clone(self, source: str) -> CloneDensity | DiscreteClone:
        if source not in self._clones:
            self._clones[source] = clone(self.rows[source])
        return self._clones[source]


def take_paths(rows: Rows, n: int, horizon: int, rng: np.random.Generator) -> Rows:
    """Draws ``n`` trajectories, and from each a random part of at most ``horizon`` steps."""
    starts = np.searchsorted(rows.path, np.arange(rows.n_paths + 1))
    chosen = rng.integers(rows.n_paths, size=n)
    length = np.minimum(np.diff(starts)[chosen], horizon)
    begin = starts[chosen] + rng.integers(np.diff(starts)[chosen] - length + 1)
    index = np.concatenate([np.arange(b, b + m) for b, m in zip(begin, length, strict=True)])
    taken = rows[index]
    # Number by draw: the same trajectory may be drawn twice in a row.
    return Rows(taken.features, np.repeat(np.arange(n), length), taken.states, taken.actions, taken.trip, taken.steps)


# -------------------------------------------------------------------- q(tau) of the importance weights in Eq. 3


@dataclass(frozen=True)
class CloneDensity:
    """A behaviour clone: actions as a Gaussian around a linear function of the state, by least squares.

    It is the density of trajectories that no known policy generated (demonstrations, other people, counterfactuals), as
    in guided cost learning (Finn et al. 2016). Without it in the mixture, a demonstration that the policy would hardly
    ever generate would get an enormous weight.

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


def clone(rows: Rows) -> CloneDensity | DiscreteClone:
    """Fits the behaviour clone that suits the actions of these rows."""
    return (DiscreteClone if rows.actions.dtype == np.bool_ else CloneDensity).fit(rows.states, rows.actions)


def fused_log_density(log_densities: Array, shares: Array) -> NDArray[np.float64]:
    """Returns log sum_m share_m q_m(tau), the log-density of trajectories under a mixture of proposals.

    This is the balance heuristic of multiple importance sampling (Veach and Guibas 1995). ``log_densities`` is
    (trajectories, proposals).
    """
    with np.errstate(divide="ignore"):
        terms = log_densities + np.log(np.asarray(shares) / np.sum(shares))
    top = terms.max(axis=1, keepdims=True)
    return np.asarray((top + np.log(np.exp(terms - top).sum(axis=1, keepdims=True)))[:, 0])


def _design(states: Array, mean: Array, scale: Array) -> Array:
    return np.hstack([(states - mean) / scale, np.ones((len(states), 1))])
