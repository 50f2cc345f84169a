"""What the reward is trained to do: Eq. 9 on whole trajectories, or its discriminator form on single steps.

Both return one loss a head, to be minimised, and report how the estimate fares. Shapes: rewards and returns are
(rows or trajectories, heads); weights of demonstrations are bootstrap weights of the same shape.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Loss(NamedTuple):
    """One loss a head, and what is worth watching."""

    per_head: Tensor
    gap: Tensor  # demonstrations' mean reward over that of the background
    effective_sample_size: Tensor  # of the background's importance weights, as a share of the batch


def trajectory_loss(
    demonstration_returns: Tensor,
    background_returns: Tensor,
    log_q: Tensor,
    demonstration_weights: Tensor | None = None,
    temperature: float = 1.0,
) -> Loss:
    """The negative log-likelihood whose gradient is Eq. 9, with log Z estimated by importance sampling.

    ``log Z ~ log mean_j exp(R(tau_j)) / q(tau_j)``: the gradient of the log-sum-exp is the self-normalised sum
    ``sum_j (w_j / W) dR(tau_j)`` of Eq. 9, and nothing leaves the log domain. ``log_q`` is the log-density of each
    background trajectory (demonstrations that were appended included) under the mixture of everything that proposed
    it. ``temperature`` divides the exponent: at 1 this is Eq. 9; at the horizon the weights no longer collapse on one
    trajectory, at the price of a bias.
    """
    log_w = (background_returns - log_q[:, None]) / temperature
    log_z = temperature * (torch.logsumexp(log_w, dim=0) - torch.log(torch.tensor(float(len(log_w)))))
    demonstrated = _weighted_mean(demonstration_returns, demonstration_weights)
    gap = demonstrated - background_returns.mean(dim=0)
    return Loss(log_z - demonstrated, gap.detach(), effective_sample_size(log_w))


def step_loss(
    demonstration_rewards: Tensor,
    background_rewards: Tensor,
    demonstration_weights: Tensor | None = None,
) -> Loss:
    """The same model seen as a discriminator of single steps (Finn et al. 2016, on GANs, IRL and energy models).

    With as many background steps as demonstrated ones, the reward that minimises this logistic loss is the log-ratio
    of the two densities: what this agent does, against what might have been done.
    """
    positive = _weighted_mean(F.softplus(-demonstration_rewards), demonstration_weights)
    negative = F.softplus(background_rewards).mean(dim=0)
    gap = demonstration_rewards.mean(dim=0) - background_rewards.mean(dim=0)
    return Loss(positive + negative, gap.detach(), effective_sample_size(background_rewards))


def effective_sample_size(log_weights: Tensor) -> Tensor:
    """(sum w)^2 / sum w^2 of each column, as a share of the rows: 1 when all weigh the same, 1/n when one is all.

    >>> effective_sample_size(torch.zeros(4, 1)).item(), effective_sample_size(torch.tensor([[0.0], [99.0]])).item()
    (1.0, 0.5)
    """
    share = torch.softmax(log_weights.detach(), dim=0)
    return 1.0 / share.square().sum(dim=0) / len(share)


def _weighted_mean(values: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return values.mean(dim=0)
    # A head whose bootstrap drew nothing of this batch learns nothing from it.
    return (values * weights).sum(dim=0) / weights.sum(dim=0).clamp_min(1e-12)
