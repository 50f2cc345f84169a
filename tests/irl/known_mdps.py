"""Two small MDPs whose maximum-entropy policies dynamic programming finds: a line that is walked, a grid of cells.

Both have a horizon; an expert acts by the soft-optimal policy of a known reward (Ziebart 2010): pi_t(a | s) is
proportional to exp(r(s, a) + V_{t+1}(s')), and V_t(s) is the logarithm of the sum of that over the actions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray import Trajectories

Floats = NDArray[np.float64]
Policy = NDArray[np.float64]  # log pi_t(a | s): (time, states, actions)


class KnownMDP(ABC):
    """An MDP with a horizon, tabulated: the states and actions as a learner sees them, and where each action leads."""

    horizon: int
    states: Floats  # (states, d)
    actions: NDArray[Any]  # (actions, a)
    cell: float = 1.0  # the volume of action space that a tabulated action stands for

    @abstractmethod
    def true_reward(self) -> Floats:
        """Returns the expert's reward: (states, actions)."""

    @abstractmethod
    def following(self, values: Floats) -> Floats:
        """Returns the value of the state that each action leads to: (states, actions)."""

    @abstractmethod
    def first(self, n: int, rng: np.random.Generator) -> NDArray[Any]:
        """Draws initial states."""

    @abstractmethod
    def move(self, states: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        """Returns the next states."""

    @abstractmethod
    def act(self, choice: NDArray[np.int64], rng: np.random.Generator) -> NDArray[Any]:
        """Returns actions, given their numbers."""

    @abstractmethod
    def number(self, states: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the tabulated states nearest to states (..., d)."""

    @abstractmethod
    def occupancy(self, states: NDArray[Any]) -> Floats:
        """Returns the share of visits of each part of the state space."""

    def reset(self, n: int, rng: np.random.Generator) -> NDArray[Any]:
        return self.first(n, rng)

    def step(
        self, states: NDArray[Any], actions: NDArray[Any], rng: np.random.Generator
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        return self.move(states, actions), np.ones(len(states), np.bool_)

    def soft_optimal(self, reward: Floats) -> Policy:
        """Returns the maximum-entropy policy of a reward, by backward induction."""
        values, policy = np.zeros(len(self.states)), []
        for _ in range(self.horizon):
            q = reward + self.following(values)
            top = q.max(axis=1, keepdims=True)
            values = (top + np.log(np.exp(q - top).sum(axis=1, keepdims=True) * self.cell))[:, 0]
            policy.append(q - values[:, None])
        return np.stack(policy[::-1])

    @cached_property
    def expert(self) -> Policy:
        return self.soft_optimal(self.true_reward())

    def sample(self, policy: Policy, n: int, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
        """Draws trajectories of a policy: states (n, time, d) and actions (n, time, a)."""
        now = self.first(n, rng)
        states, actions = [], []
        for t in range(self.horizon):
            share = np.exp(policy[t][self.number(now)]) * self.cell
            below = np.cumsum(share / share.sum(axis=1, keepdims=True), axis=1)
            chosen = np.minimum((below < rng.random((n, 1))).sum(axis=1), len(self.actions) - 1)
            action = self.act(chosen, rng)
            states.append(now)
            actions.append(action)
            now = self.move(now, action)
        return np.stack(states, axis=1), np.stack(actions, axis=1)

    @abstractmethod
    def demonstrations(self, n: int, rng: np.random.Generator) -> Trajectories:
        """Draws trajectories of the expert."""

    def divergence(self, reward: Floats, visited: NDArray[Any]) -> float:
        """Returns KL(expert || soft-optimal policy of ``reward``), a step, in the states that the expert visited."""
        found, total = self.soft_optimal(reward), 0.0
        for t in range(self.horizon):
            at = self.number(visited[:, t])
            p, q = self.expert[t][at], found[t][at]
            total += float((np.exp(p) * self.cell * (p - q)).sum(axis=1).mean())
        return total / self.horizon

    def tabulate(self, reward: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]) -> Floats:
        """Returns the reward of every state and action, given a function of rows of states and actions."""
        s, a = len(self.states), len(self.actions)
        rows = reward(np.repeat(self.states, a, axis=0), np.tile(self.actions, (s, 1)))
        return np.asarray(rows, np.float64).reshape(s, a)


class Line(KnownMDP):
    """A line from -5 to 5 on which an agent walks; hills attract it, a pit deters it, effort costs."""

    horizon = 20
    states = np.linspace(-5.0, 5.0, 201)[:, None]
    actions = np.linspace(-2.0, 2.0, 81)[:, None]
    cell = 0.05

    def __init__(self, hill: float = 2.0, pit: float = -0.3) -> None:
        self.hill, self.pit = hill, pit
        self._place = (np.clip(self.states + self.actions[:, 0], -5.0, 5.0) + 5.0) / 0.05
        self._low = np.minimum(self._place.astype(np.int64), len(self.states) - 2)

    def true_reward(self) -> Floats:
        x, a = self.states, self.actions[:, 0]
        hill, pit = np.exp(-(((x - self.hill) / 0.8) ** 2)), np.exp(-(((x - self.pit) / 0.5) ** 2))
        return np.asarray(1.2 * hill - 1.5 * pit - 0.5 * (a / 0.7) ** 2)

    def following(self, values: Floats) -> Floats:
        part = self._place - self._low
        return np.asarray(values[self._low] * (1.0 - part) + values[self._low + 1] * part)

    def first(self, n: int, rng: np.random.Generator) -> NDArray[Any]:
        return rng.uniform(-3.5, 3.5, (n, 1))

    def move(self, states: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        return np.clip(states + actions, -5.0, 5.0)

    def act(self, choice: NDArray[np.int64], rng: np.random.Generator) -> NDArray[Any]:
        return self.actions[choice] + rng.uniform(-self.cell / 2, self.cell / 2, (len(choice), 1))

    def number(self, states: NDArray[Any]) -> NDArray[np.int64]:
        return np.clip(np.rint((states[..., 0] + 5.0) / 0.05), 0, len(self.states) - 1).astype(np.int64)

    def occupancy(self, states: NDArray[Any]) -> Floats:
        count, _ = np.histogram(states[..., 0], np.linspace(-5.0, 5.0, 41))
        return count / count.sum()

    def demonstrations(self, n: int, rng: np.random.Generator) -> Trajectories:
        states, actions = self.sample(self.expert, n, rng)
        return Trajectories.from_steps(list(states), list(actions))


class Cells(KnownMDP):
    """A grid of 5 x 5 cells with five moves (stay and the four sides); the reward is smooth, with two good places."""

    horizon, side = 12, 5
    actions = np.eye(5, dtype=np.bool_)
    moves = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])

    def __init__(self, best: tuple[float, float] = (4.0, 3.0), cost: float = 0.5) -> None:
        self.best, self.cost = np.array(best), cost
        self.states = np.array([(i, j) for i in range(self.side) for j in range(self.side)], np.float64)
        reached = np.clip(self.states[:, None] + self.moves, 0, self.side - 1)
        self._after = (reached[..., 0] * self.side + reached[..., 1]).astype(np.int64)

    def true_reward(self) -> Floats:
        near = np.exp(-np.square(self.states - self.best).sum(axis=1) / 2.0)
        shunned = np.exp(-np.square(self.states - 2.0).sum(axis=1))
        return np.asarray(1.5 * near[:, None] - 1.5 * shunned[:, None] - self.cost * (np.arange(5) > 0))

    def following(self, values: Floats) -> Floats:
        return np.asarray(values[self._after])

    def first(self, n: int, rng: np.random.Generator) -> NDArray[Any]:
        return self.states[rng.integers(len(self.states), size=n)]

    def move(self, states: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        return self.states[self._after[self.number(states), actions.argmax(axis=1)]]

    def act(self, choice: NDArray[np.int64], rng: np.random.Generator) -> NDArray[Any]:
        return self.actions[choice]

    def number(self, states: NDArray[Any]) -> NDArray[np.int64]:
        cell = np.rint(states).astype(np.int64)
        return np.asarray(cell[..., 0] * self.side + cell[..., 1])

    def occupancy(self, states: NDArray[Any]) -> Floats:
        count = np.bincount(self.number(states).ravel(), minlength=len(self.states))
        return count / count.sum()

    def demonstrations(self, n: int, rng: np.random.Generator) -> Trajectories:
        states, actions = self.sample(self.expert, n, rng)
        return Trajectories.from_steps(list(states), list(actions.argmax(axis=2)), n_actions=5)
