"""The loss over single steps, for which the reward discriminates between demonstrations and background.

The paper's loss over whole trajectories is in :mod:`astray.irl.kdd19`. Rewards and returns have the shape (rows or
trajectories, heads); so do the bootstrap weights of demonstrations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from astray.irl.kdd19 import Evidence
    from astray.irl.learn_config import LearnConfig
    from astray.irl.reward import RewardHeads


class Loss(NamedTuple):
    """A loss for each head, and two measures of the quality of the estimate."""

    per_head: Tensor
    gap: Tensor  # the mean reward of the demonstrations minus that of the background
    effective_sample_size: Tensor  # of the background's importance weights, as a share of the batch

    @classmethod
    def total(cls, losses: Sequence[Loss]) -> Loss:
        """Adds the losses of several aspects; stacks their measures."""
        import torch

        return cls(
            torch.stack([loss.per_head for loss in losses]).sum(dim=0),
            torch.stack([loss.gap.mean().double() for loss in losses]),
            torch.stack([loss.effective_sample_size.mean().double() for loss in losses]),
        )


def step_estimate(
    reward: RewardHeads,
    evidence: Evidence,
    config: LearnConfig,
    rng: np.random.Generator,
    groups: Sequence[NDArray[np.bool_]] = (),
) -> Loss:
    """Samples steps from the demonstrations and from each background; returns the sum of the losses.

    Each of the ``groups`` of features is hidden from a share of the rows.
    """
    import torch

    n, demonstrations = config.batch_rows, evidence.demonstrations
    chosen = demonstrations.draw(n, rng)
    backgrounds = evidence.backgrounds.values()
    drawn, trips = zip(*(background.draw_with_trips(n, rng) for background in backgrounds), strict=True)
    features = np.concatenate([demonstrations.features[chosen], *drawn])
    rewards = reward(torch.from_numpy(hide_groups(features, groups, config.missing, rng)))
    own, *others = rewards.split(n)
    weights = evidence.bootstrap[demonstrations.trip[chosen]]
    made = [None if evidence.made is None else evidence.made[torch.from_numpy(trip)] for trip in trips]
    return Loss.total([step_loss(own[:, i], other[:, i], weights, made[i]) for i, other in enumerate(others)])


def step_loss(
    demonstration_rewards: Tensor,
    background_rewards: Tensor,
    demonstration_weights: Tensor | None = None,
    background_weights: Tensor | None = None,
) -> Loss:
    """Returns the logistic loss for classifying steps as demonstrated or background (Finn et al. 2016, on GANs).

    With as many background steps as demonstrated ones, the reward that minimises this loss is log p/q, the log-ratio of
    the densities of demonstrations and background: the reward of relative-entropy IRL, p = q exp R (Boularias, Kober
    and Peters 2011), and not that of maximum entropy, which would be log p.
    """
    from torch.nn.functional import softplus

    positive = weighted_mean(softplus(-demonstration_rewards), demonstration_weights)
    negative = weighted_mean(softplus(background_rewards), background_weights)
    gap = demonstration_rewards.mean(dim=0) - background_rewards.mean(dim=0)
    return Loss(positive + negative, gap.detach(), effective_sample_size(background_rewards))


def hide_groups(
    features: NDArray[np.float32], groups: Sequence[NDArray[np.bool_]], share: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Sets each group of features to NaN in a share of the rows, so that the reward learns to do without it."""
    for group in groups:
        features[np.ix_(rng.random(len(features)) < share, group)] = np.nan
    return features


def effective_sample_size(log_weights: Tensor) -> Tensor:
    """Returns (sum w)^2 / sum w^2 of each column, as a share of the n rows: 1 for equal weights, 1/n if one has all.

    >>> import torch
    >>> effective_sample_size(torch.zeros(4, 1)).item(), effective_sample_size(torch.tensor([[0.0], [99.0]])).item()
    (1.0, 0.5)
    """
    share = log_weights.detach().softmax(dim=0)
    return 1.0 / share.square().sum(dim=0) / len(share)


def weighted_mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """Returns the mean of each column with bootstrap weights; 0 for a head that has no row in the batch."""
    if weights is None:
        return values.mean(dim=0)
    return (values * weights).sum(dim=0) / weights.sum(dim=0).clamp_min(1e-12)


def energy_distance(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Returns the energy distance between two samples of rows: 0 if they have one distribution, at most 1.

    It is 1 - (E|a - a'| + E|b - b'|) / 2 E|a - b| (Szekely and Rizzo 2013).

    >>> points = np.array([[0.0], [1.0]])
    >>> energy_distance(points, points), round(energy_distance(points, points + 100.0), 2)
    (0.0, 0.99)
    """
    across, within_a, within_b = (_mean_distance(x, y) for x, y in ((a, b), (a, a), (b, b)))
    return 1.0 - (within_a + within_b) / (2.0 * across) if across else 0.0


def _mean_distance(a: NDArray[Any], b: NDArray[Any]) -> float:
    squares = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2.0 * a @ b.T
    return float(np.sqrt(np.maximum(squares, 0.0)).mean())
