"""q(tau) in the importance weights of Eq. 3: the mixture of everything that the trajectories of a batch came from.

A trajectory of the policy may have come from any of its versions; the density under the mixture of all of them is the
balance heuristic of multiple importance sampling (Veach and Guibas 1995). Trajectories that no known policy generated
(demonstrations, other people, counterfactuals) have the density of a behaviour clone, as in guided cost learning (Finn
et al. 2016). Densities are of the start and of the actions: the dynamics are the same for all, and cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.irl.demonstrations import Rows

Array = NDArray[Any]

LogDensity = Callable[[Array, Array], Array]  # of actions, given states
LogStart = Callable[[Array], Array]  # of first states

DEMONSTRATED = "demonstrated"  # the name of the demonstrations among the sources
POLICY = "policy"
CLONE_UPDATES = 400  # gradient steps of a behaviour clone


class Proposals:
    """The densities of all trajectories under all policies so far, and under the clones of the other sources.

    They are kept for each trajectory: a new policy is evaluated once on the old trajectories, and a new trajectory once
    under the old policies.

    Parameters
    ----------
    horizon
        Longer trajectories are cut into parts of at most this many steps; None: they stay whole.
    log_start
        The log-density of first states (n, d), if the dynamics can begin elsewhere than the demonstrations; None if
        all begin alike, so that their densities cancel.
    seed
        The seed of the clones.
    """

    def __init__(self, horizon: int | None = None, log_start: LogStart | None = None, seed: int = 0) -> None:
        self.horizon = horizon
        self._log_start = log_start
        self._seed = seed
        self._policies: list[LogDensity] = []
        self._sets: dict[str, Rows] = {}
        self._by_policy: dict[str, Array] = {}  # log of the summed densities under all policies, by trajectory
        self._started: dict[str, Array] = {}  # log-density of the first states
        self._clones: dict[str, LogDensity] = {}
        self._by_clone: dict[tuple[str, str], Array] = {}  # by the source of the clone, and the set of trajectories

    def note(self, name: str, rows: Rows, new: Rows, density: LogDensity | None = None) -> None:
        """Takes note that a set now holds ``rows``, of which ``new`` were appended; ``density`` is a new policy's."""
        if density is not None:
            self._policies.append(density)
            for other, known in self._sets.items():
                self._by_policy[other] = np.logaddexp(self._by_policy[other], _sums(density, known))
        self._sets[name] = rows
        for kept, values in ((self._by_policy, self._under_policies(new)), (self._started, self._starts(new))):
            before = kept.get(name, np.zeros(0))
            kept[name] = np.concatenate([before, values])[-rows.n_paths :]
        self._clones.pop(name, None)
        self._by_clone = {pair: values for pair, values in self._by_clone.items() if name not in pair}

    def know(self, demonstrations: Rows) -> str:
        """Returns the name of a set of demonstrations; the first one is cloned, others may be for measuring."""
        named = {n: rows for n, rows in self._sets.items() if n.startswith(DEMONSTRATED)}
        for name, rows in named.items():
            if rows is demonstrations:
                return name
        name = f"{DEMONSTRATED} {len(named)}" if named else DEMONSTRATED
        self.note(name, demonstrations, demonstrations)
        return name

    def log_q(self, name: str, paths: Array, mixture: Mapping[str, float]) -> NDArray[np.float64]:
        """Returns the log-density of some trajectories of a set under a mixture of sources with these shares."""
        shares, logs = [], []
        for source, share in mixture.items():
            if source == POLICY and self._policies:
                logs.append(self._by_policy[name][paths] - np.log(len(self._policies)))
            else:
                logs.append(self._under_clone(source, name)[paths])
            shares.append(share)
        return fused_log_density(np.column_stack(logs), np.array(shares)) + self._started[name][paths]

    def _under_policies(self, rows: Rows) -> Array:
        none = np.full(rows.n_paths, -np.inf)
        return np.asarray(np.logaddexp.reduce([none, *(_sums(policy, rows) for policy in self._policies)]))

    def _starts(self, rows: Rows) -> Array:
        return np.zeros(rows.n_paths) if self._log_start is None else self._log_start(rows.states[rows.first])

    def _under_clone(self, source: str, name: str) -> Array:
        if source not in self._clones:
            self._clones[source] = clone(self._sets[source], np.random.default_rng(self._seed))
        if (source, name) not in self._by_clone:
            self._by_clone[source, name] = _sums(self._clones[source], self._sets[name])
        return self._by_clone[source, name]


def _sums(log_prob: LogDensity, rows: Rows) -> Array:
    """Returns the log-density of the actions of each trajectory."""
    return np.bincount(rows.path, log_prob(rows.states, rows.actions), rows.n_paths)


def clone(rows: Rows, rng: np.random.Generator) -> LogDensity:
    """Trains a policy to imitate these rows; returns the log-density of its actions.

    Without it in the mixture, a demonstration that the policy would hardly ever generate would get an enormous weight.
    How exact it is decides how exact Z is: with a Gaussian around a linear function of the state instead, the learned
    rewards of the known MDPs in the tests are half as far again from the true ones.
    """
    import torch

    from astray.irl.categorical_policy import policy_for
    from astray.irl.policy import clone_behaviour

    policy = policy_for(rows.states, rows.actions, rng)
    clone_behaviour(policy, rows.states, rows.actions, CLONE_UPDATES, rng)

    def log_prob(states: Array, actions: Array) -> Array:
        with torch.no_grad():
            return np.asarray(policy.log_prob(states, actions).double())

    return log_prob


def fused_log_density(log_densities: Array, shares: Array) -> NDArray[np.float64]:
    """Returns log sum_m share_m q_m(tau), the log-density of trajectories under a mixture of proposals.

    ``log_densities`` is (trajectories, proposals).
    """
    with np.errstate(divide="ignore"):
        terms = log_densities + np.log(np.asarray(shares) / np.sum(shares))
    top = terms.max(axis=1, keepdims=True)
    return np.asarray((top + np.log(np.exp(terms - top).sum(axis=1, keepdims=True)))[:, 0])
