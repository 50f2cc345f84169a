"""A second stage of the trip reward, learned from other people's trips in a second, without torch.

The reward that serves everybody was learned from simulated people. Where it is used, people live differently: it errs
about all of them in the same direction. So a linear function of the statistics is added to its logit: ridge logistic
regression with the earlier reward as offset, which tells trips that agents made from trips that others made, each
compared with the agent's memory. Few people cannot teach more. The new reward is one of the same kind: every head gets
a unit of its own in each hidden layer (:func:`add_linear`).

:func:`measure_held_out` measures on people held out of it whether it is better than the earlier reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.irl.posterior import RewardPosterior

Array = NDArray[Any]
Floats = NDArray[np.float64]

STEPS, SMALL = 25, 1e-4  # Newton's method: the most steps, and the length of a step that ends it


@dataclass(frozen=True, eq=False)
class Compared:
    """Trips, each compared with the memory of an agent, who made it or did not."""

    statistics: NDArray[np.float32]  # those that the network sees: (trips, statistics)
    made: NDArray[np.bool_]  # True if the agent made the trip
    agent: NDArray[np.str_]  # whose memory it was
    maker: NDArray[np.str_]  # who made it

    def __len__(self) -> int:
        return len(self.made)

    def __getitem__(self, which: Array) -> Compared:
        return Compared(self.statistics[which], self.made[which], self.agent[which], self.maker[which])

    @property
    def balance(self) -> Floats:
        """The weights by which agents' own trips and others' weigh the same, 1 on average."""
        n, own = len(self), int(self.made.sum())
        return np.where(self.made, 0.5 * n / max(own, 1), 0.5 * n / max(n - own, 1))


class SecondStage(NamedTuple):
    """A linear function of the standardised statistics, for each head."""

    weights: Floats  # (heads, statistics)
    bias: Floats  # (heads,)


def learn_second_stage(
    reward: RewardPosterior, trips: Compared, aspect: str, ridge: float, rng: np.random.Generator
) -> SecondStage:
    """Learns what to add to the reward of an aspect; each head learns from its own bootstrap of agents."""
    begun = _rewards(reward, trips.statistics, aspect)
    inputs, balance = standardised(reward, trips.statistics), trips.balance
    agents, number = np.unique(trips.agent, return_inverse=True)
    counts = rng.poisson(1.0, (reward.n_heads, len(agents))).astype(np.float64)
    counts[counts.sum(axis=1) == 0] = 1.0  # a head that drew nobody learns from everybody
    found = [
        ridge_logistic(inputs, trips.made, balance * count[number], offset, ridge)
        for count, offset in zip(counts, begun.T, strict=True)
    ]
    return SecondStage(np.array([w[:-1] for w in found]), np.array([w[-1] for w in found]))


class HeldOut(NamedTuple):
    """How well a reward tells the trips of agents that it has not learned from: one value for each agent."""

    loss: Floats  # the logistic loss
    auroc: Floats  # the share of pairs, an own trip and another's, in which the own trip has the higher reward


def measure_held_out(
    reward: RewardPosterior, trips: Compared, aspect: str, ridge: float, folds: int
) -> tuple[HeldOut, HeldOut]:
    """Measures the reward of an aspect on each agent, as it is and with a second stage that was learned without it.

    Agents are held out in ``folds`` groups. What is learned for a group knows no trip that one of the group made.
    """
    begun = _rewards(reward, trips.statistics, aspect).mean(axis=1)
    inputs = standardised(reward, trips.statistics)
    agents = np.unique(trips.agent)
    before, after = list[tuple[float, float]](), list[tuple[float, float]]()
    for fold in range(min(folds, len(agents))):
        out = agents[fold::folds]
        known = ~np.isin(trips.agent, out) & ~np.isin(trips.maker, out)
        weights = ridge_logistic(inputs[known], trips.made[known], trips[known].balance, begun[known], ridge)
        for agent in out:
            at = np.flatnonzero(trips.agent == agent)
            some = trips[at]
            if some.made.any() and not some.made.all():
                before.append(_quality(begun[at], some))
                after.append(_quality(begun[at] + inputs[at] @ weights[:-1] + weights[-1], some))
    return _by_agent(before), _by_agent(after)


def is_better(before: HeldOut, after: HeldOut) -> bool:
    """Returns True if on average over the agents the loss falls and the AUROC does not.

    >>> before = HeldOut(np.array([0.5, 0.6]), np.array([0.9, 0.8]))
    >>> is_better(before, HeldOut(np.array([0.4, 0.4]), np.array([0.9, 0.9])))
    True
    >>> is_better(before, HeldOut(np.array([0.4, 0.4]), np.array([0.9, 0.7])))
    False
    >>> is_better(before, HeldOut(np.array([0.3, 0.9]), np.array([0.9, 0.9])))
    False
    """
    return bool(
        len(before.loss) and after.loss.mean() < before.loss.mean() and after.auroc.mean() >= before.auroc.mean()
    )


def ridge_logistic(inputs: Floats, made: Array, weights: Floats, offset: Floats, ridge: float) -> Floats:
    """Returns the coefficients (the last is the bias) of a logistic regression, by Newton's method.

    It minimises the weighted logistic loss of offset + inputs w + b, plus ridge |w|^2 / 2. The bias is free.
    """
    rows = np.c_[inputs, np.ones(len(inputs))]
    penalty = np.append(np.full(inputs.shape[1], ridge), 1e-6)  # a tiny one, should there be trips of one kind only
    sign = np.where(made, -1.0, 1.0)

    def objective(w: Floats) -> float:
        losses = np.logaddexp(0.0, sign * (offset + rows @ w))
        return float(weights @ losses + 0.5 * penalty @ np.square(w))

    w = np.zeros(rows.shape[1])
    lowest = objective(w)
    for _ in range(STEPS):
        p = _sigmoid(offset + rows @ w)
        gradient = rows.T @ (weights * (p - made)) + penalty * w
        curvature = (rows * (weights * p * (1.0 - p))[:, None]).T @ rows + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        # Where the offset is far from what the trips say, a whole step may lead away: halve it until the loss falls.
        while (there := objective(w - step)) > lowest and np.abs(step).max() > SMALL:
            step *= 0.5
        if there > lowest:
            break
        w, lowest = w - step, there
        if np.abs(step).max() < SMALL:
            break
    return w


def standardised(reward: RewardPosterior, statistics: Array) -> Floats:
    """Returns statistics as the network of a reward sees them; a missing one counts as the mean."""
    scaled = (statistics.astype(np.float64) - reward.mean) / reward.scale
    return np.nan_to_num(np.clip(scaled, -reward.clip, reward.clip), nan=0.0)


def add_linear(reward: RewardPosterior, aspect: str, stage: SecondStage) -> RewardPosterior:
    """Returns a reward whose heads of an aspect have a linear function of the standardised statistics added.

    The inputs of the network are clipped, so a linear function of them is bounded: with a bias that is large enough, a
    rectified unit computes it exactly. Each head gets such a unit in every hidden layer of its network.
    """
    networks = reward.layers[0][0].shape[0]
    heads, k = reward.n_heads // networks, reward.aspects.index(aspect)
    weights = stage.weights.reshape(networks, heads, -1).transpose(0, 2, 1)
    lift = 1.0 + reward.clip * np.abs(weights).sum(axis=1, keepdims=True)
    (first, bias), *deeper = reward.layers
    layers = [(np.concatenate([first, weights], axis=2), np.concatenate([bias, lift], axis=2))]
    for weight, bias in deeper[:-1]:
        layers.append((_beside(weight, np.eye(heads)), np.concatenate([bias, np.zeros_like(lift)], axis=2)))
    weight, bias = deeper[-1]
    there = slice(k * heads, (k + 1) * heads)
    further, moved = np.zeros((networks, heads, weight.shape[2])), bias.astype(np.float64)
    further[:, :, there] = np.eye(heads)
    moved[:, :, there] += stage.bias.reshape(networks, 1, heads) - lift
    layers.append((np.concatenate([weight, further], axis=1), moved))
    return replace(reward, layers=tuple((w.astype(np.float32), b.astype(np.float32)) for w, b in layers))


def _beside(weight: Array, unit: Array) -> Array:
    """Returns block-diagonal weights of each network: those of a layer, and those of further units."""
    networks, n_in, n_out = weight.shape
    found = np.zeros((networks, n_in + len(unit), n_out + len(unit)))
    found[:, :n_in, :n_out], found[:, n_in:, n_out:] = weight, unit
    return found


def _rewards(reward: RewardPosterior, statistics: Array, aspect: str) -> Floats:
    return reward(statistics)[:, reward.aspects.index(aspect)].astype(np.float64)


def _by_agent(found: Sequence[tuple[float, float]]) -> HeldOut:
    return HeldOut(*np.reshape(found, (-1, 2)).T)


def _quality(rewards: Floats, trips: Compared) -> tuple[float, float]:
    """Returns the logistic loss, in which own trips and others' weigh the same, and the AUROC of rewards."""
    signed = np.where(trips.made, -rewards, rewards)
    own, others = rewards[trips.made], np.sort(rewards[~trips.made])
    below, up_to = (np.searchsorted(others, own, side=side) for side in ("left", "right"))
    return float(np.mean(trips.balance * np.logaddexp(0.0, signed))), float(np.mean(below + up_to) / (2 * len(others)))


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))
