"""The distributions over actions that a policy's network parametrises, with the derivatives that TRPO needs.

Each has a row of network outputs for each state, and constants that are the same in every state. Derivatives are
written out, because they are a few products. All means are over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self

import torch
from torch import Tensor


class ActionDistribution(Protocol):
    """Distributions over actions, one for each row of outputs."""

    def log_prob(self, actions: Tensor) -> Tensor:
        """Returns the log-probability (or density, without its constant factor) of the action in each row."""

    def gradient(self, actions: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the gradient of the mean of ``weights * log_prob(actions)``, by the outputs and by the constants."""

    def entropy(self) -> Tensor:
        """Returns the mean entropy, without a constant."""

    def entropy_gradient(self) -> tuple[Tensor, Tensor]:
        """Returns the gradient of the mean entropy, by the outputs and by the constants."""

    def fisher(self, outputs: Tensor, constants: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the product of the mean Fisher matrix with a direction (outputs, constants)."""

    def kl(self, new: Self) -> Tensor:
        """Returns the mean KL(self || new)."""


@dataclass(frozen=True)
class DiagonalNormal:
    """Independent Gaussians; the network gives their means, and the constants are their log standard deviations."""

    mean: Tensor  # (n, actions)
    log_std: Tensor  # (actions,)

    def standardise(self, actions: Tensor) -> Tensor:
        """Returns z = (a - mu) / sigma."""
        return (actions - self.mean) * torch.exp(-self.log_std)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Returns -z^2/2 - log sigma, summed over the columns of the action."""
        return -0.5 * self.standardise(actions).square().sum(dim=1) - self.log_std.sum()

    def gradient(self, actions: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the weighted gradient, which for log pi is z / sigma by the mean and z^2 - 1 by log sigma."""
        z, w = self.standardise(actions), weights[:, None]
        return w * z * torch.exp(-self.log_std) / len(z), (w * (z * z - 1.0)).mean(dim=0)

    def entropy(self) -> Tensor:
        """Returns the sum of log sigma."""
        return self.log_std.sum()

    def entropy_gradient(self) -> tuple[Tensor, Tensor]:
        """Returns 0 by the mean, and 1 by each log sigma."""
        return torch.zeros_like(self.mean), torch.ones_like(self.log_std)

    @cached_property
    def _precision(self) -> Tensor:
        return torch.exp(-2.0 * self.log_std) / len(self.mean)

    def fisher(self, outputs: Tensor, constants: Tensor) -> tuple[Tensor, Tensor]:
        """Returns Sigma^-1 times the direction of the mean, and twice that of log sigma."""
        return outputs * self._precision, 2.0 * constants

    def kl(self, new: DiagonalNormal) -> Tensor:
        """Returns log(s'/s) + (s^2 + (mu - mu')^2) / (2 s'^2) - 1/2, summed over the columns of the action."""
        wider = new.log_std - self.log_std
        shift = new.standardise(self.mean).square().sum(dim=1).mean()
        return (wider + 0.5 * torch.expm1(-2.0 * wider)).sum() + 0.5 * shift


@dataclass(frozen=True)
class Categorical:
    """One of several actions; the network gives their log-odds (logits), and there are no constants.

    Actions are one-hot rows.
    """

    logits: Tensor  # (n, actions)
    constants: Tensor  # (0,)

    @cached_property
    def log_p(self) -> Tensor:
        """The log-probability of every action."""
        return self.logits.log_softmax(dim=1)

    @cached_property
    def p(self) -> Tensor:
        """The probability of every action."""
        return self.log_p.exp()

    def log_prob(self, actions: Tensor) -> Tensor:
        """Returns log p of the chosen action."""
        return (actions * self.log_p).sum(dim=1)

    def gradient(self, actions: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the weighted gradient, which for log pi is a - p by the logits."""
        return weights[:, None] * (actions - self.p) / len(actions), self.constants

    def entropy(self) -> Tensor:
        """Returns -sum p log p."""
        return -(self.p * self.log_p).sum(dim=1).mean()

    def entropy_gradient(self) -> tuple[Tensor, Tensor]:
        """Returns -p (log p + H) by the logits, where H is the entropy of the row."""
        surprise = self.p * self.log_p
        return (self.p * surprise.sum(dim=1, keepdim=True) - surprise) / len(surprise), self.constants

    def fisher(self, outputs: Tensor, constants: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (diag p - p p^T) times the direction of the logits."""
        weighed = self.p * outputs
        return (weighed - self.p * weighed.sum(dim=1, keepdim=True)) / len(outputs), constants

    def kl(self, new: Categorical) -> Tensor:
        """Returns sum p log(p / p')."""
        return (self.p * (self.log_p - new.log_p)).sum(dim=1).mean()
