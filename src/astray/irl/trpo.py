"""Trust region policy optimisation, the policy-gradient method that improves the generator.

It follows Schulman, Levine, Moritz, Jordan & Abbeel 2015, "Trust Region Policy Optimization" (TRPO below), with
advantages and critic after Schulman, Moritz, Levine, Jordan & Abbeel 2016, "High-Dimensional Continuous
Control Using Generalized Advantage Estimation" (GAE below). The policy is a Gaussian or a choice among
discrete actions (:mod:`astray.irl.action_distributions`) and the networks are small, so each derivative is a few matrix
products, which are written out instead of differentiated automatically.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from astray.core.errors import DataError, TrainingError
from astray.irl.action_distributions import ActionDistribution
from astray.irl.dynamics import Dynamics
from astray.irl.learn_config import TRPOConfig
from astray.irl.network import MLP, Linearised
from astray.irl.policy import Array, Improvement, Policy, Rollout, rollout


class TRPO:
    """A policy and its critic, improved by trust region steps: a ``astray.irl.policy.Generator``.

    Parameters
    ----------
    policy
        The policy, which is improved in place.
    rng
        Draws the initial weights of the critic; improvements use no random numbers.
    config
        The settings.
    improvements
        The number of improvements over which the trust region shrinks, if ``config.last_kl`` is given.

    Examples
    --------
    >>> from astray.irl.dynamics import Integrator
    >>> from astray.irl.policy import GaussianPolicy
    >>> rng = np.random.default_rng(0)
    >>> policy = GaussianPolicy(rng.normal(size=(99, 5)), rng.normal(size=(99, 2)), rng)
    >>> generator = TRPO(policy, rng)
    >>> drawn = generator.rollout(Integrator(np.zeros((1, 5)), interval=1.0), 16, 10, rng)
    >>> done = generator.improve(drawn, rewards=drawn.actions[..., 0])  # faster to the east is better
    >>> done.accepted, done.kl <= 0.01, done.surrogate_gain > 0
    (True, True, True)
    """

    def __init__(
        self, policy: Policy, rng: np.random.Generator, config: TRPOConfig | None = None, improvements: int = 1
    ) -> None:
        self.policy = policy
        self._improvements, self._done = improvements, 0
        self.config = config or TRPOConfig()
        net = MLP((len(policy.state_mean) + (not self.config.bootstrap), *self.config.critic_hidden, 1))
        self.critic = Critic(net, net.initial(rng, policy.theta.dtype))

    def rollout(
        self,
        dynamics: Dynamics,
        n: int,
        horizon: int,
        rng: np.random.Generator,
        lengths: ArrayLike | None = None,
    ) -> Rollout:
        """Draws n trajectories of at most ``horizon`` steps; see :func:`astray.irl.policy.rollout`."""
        return rollout(self.policy, dynamics, n, horizon, rng, lengths)

    def log_prob(self, states: Array, actions: Array) -> Array:
        """Returns the log-density of actions (..., a) in states (..., d), in the units of the actions."""
        with torch.no_grad():
            return self.policy.log_prob(states, actions).double().numpy()

    @torch.no_grad()
    def improve(self, rollout: Rollout, rewards: Array) -> Improvement:
        """Takes one TRPO step on a rollout of the present policy, given the reward (n, H) of each step.

        Raises
        ------
        TrainingError
            If anything is not a finite number. Policy and critic are then unchanged.
        """
        c, mask = self.config, rollout.mask
        _check(rollout, rewards)
        inputs = self.policy.standardise_states(rollout.states[mask])
        actions = self.policy.encode(rollout.actions[mask])

        # The values of all states and, if it counts, of the state after each trajectory's last step, in one batch.
        last = (np.arange(len(mask)), rollout.lengths - 1)
        after = self.policy.standardise_states(rollout.next_states[last])
        seen = torch.cat([inputs, after]) if c.bootstrap else _with_time_left(inputs, rollout)
        predicted = self.critic.values(seen)
        seen = seen[: len(inputs)]
        values, next_values = np.zeros(mask.shape), np.zeros(mask.shape)
        values[mask] = predicted[: len(inputs)]
        next_values[:, :-1] = values[:, 1:]
        next_values[last] = np.where(rollout.ended, 0.0, predicted[len(inputs) :]) if c.bootstrap else 0.0

        advantages = gae(rewards, values, next_values, mask, c.discount, c.gae_lambda)[mask]
        targets = advantages + values[mask]  # TD(lambda) returns
        with np.errstate(all="ignore"):  # the check below rejects what overflows here
            value_loss = np.mean(advantages**2) / max(np.var(targets), np.finfo(np.float64).tiny)
            normalised = advantages - advantages.mean()
            spread = normalised.std()
        if not np.isfinite(spread):
            raise TrainingError("the advantages are not finite numbers", remedy="look for exploding rewards or states")
        # Do not scale advantages that are only rounding errors to a standard deviation of 1.
        normalised /= spread if spread > 1e-12 * np.abs(targets).max() else np.inf

        step = self._trust_region_step(inputs, actions, torch.from_numpy(normalised).to(inputs.dtype))
        critic = self.critic.fit(seen, values[mask], targets, c)
        # Nothing has changed up to here, so an error leaves everything as it was.
        self._done += 1
        self.policy.theta.copy_(step.theta)
        self.critic = critic
        return Improvement(
            kl=step.kl,
            entropy=float(self.policy.entropy(rollout.states[mask])),
            surrogate_gain=step.gain,
            value_loss=float(value_loss),
            line_search_steps=step.tried,
            accepted=step.accepted,
        )

    @property
    def _max_kl(self) -> float:
        """The trust region of the next improvement: every step goes to its edge, so a constant one never settles."""
        first, last = self.config.max_kl, self.config.last_kl
        if last is None:
            return first
        part = min(self._done / max(self._improvements - 1, 1), 1.0)
        return math.exp((1.0 - part) * math.log(first) + part * math.log(last))

    def _trust_region_step(self, inputs: Tensor, actions: Tensor, advantages: Tensor) -> _Step:
        """Maximises L(theta) = E[pi/pi_old A] subject to E[KL(pi_old || pi)] <= delta (TRPO Eq. 14).

        Ratios of densities and KL do not depend on the units of the actions.
        """
        c, policy, max_kl = self.config, self.policy, self._max_kl
        theta = policy.theta.detach()
        weights, constants = policy.split(theta)
        at = policy.net.linearise(weights, inputs)
        old = policy.distribution(at.output, constants)

        # g = grad L at theta_old, where the ratio is 1, is E[A grad log pi], plus that of the bonus.
        by_output, by_constants = old.gradient(actions, advantages)
        gradient = torch.cat([at.vjp(by_output), by_constants])
        if c.entropy_bonus:
            by_output, by_constants = old.entropy_gradient()
            gradient += c.entropy_bonus * torch.cat([at.vjp(by_output), by_constants])

        # Natural gradient x = F^-1 g (TRPO Appendix C), scaled to the edge of the trust region, where
        # 1/2 (beta x)^T F (beta x) = delta. Conjugate gradients leave r = g - F x, so x^T F x = x^T (g - r).
        some = at.every(max(1, len(inputs) // c.fisher_rows))
        fisher = fisher_product(some, policy.distribution(some.output, constants), c.cg_damping)
        direction, residual = conjugate_gradient(fisher, gradient, c.cg_iterations)
        curvature = float(direction @ (gradient - residual))
        if not np.isfinite(curvature):
            raise TrainingError("the policy's gradient is not a finite number", remedy="look for exploding rewards")
        if curvature <= 0.0:  # no gradient: all actions are equally good
            return _Step(theta, kl=0.0, gain=0.0, tried=0, accepted=False)
        full_step = direction * (2.0 * max_kl / curvature) ** 0.5

        # Backtracking line search on the true surrogate and the true KL (TRPO Appendix C).
        log_prob = old.log_prob(actions)
        for k in range(c.line_search_steps):
            tried = theta + c.line_search_shrink**k * full_step
            new_weights, new_constants = policy.split(tried)
            new = policy.distribution(policy.net.forward(new_weights, inputs), new_constants)
            ratio = torch.exp(new.log_prob(actions) - log_prob)
            wider = new.entropy() - old.entropy() if c.entropy_bonus else 0.0
            gain = float(((ratio - 1.0) * advantages).mean() + c.entropy_bonus * wider)
            kl = float(old.kl(new))
            if gain > 0.0 and kl <= max_kl:
                return _Step(tried, kl, gain, tried=k + 1, accepted=True)
        return _Step(theta, kl=0.0, gain=0.0, tried=c.line_search_steps, accepted=False)


class _Step(NamedTuple):
    """The result of the line search."""

    theta: Tensor
    kl: float
    gain: float
    tried: int
    accepted: bool


def _with_time_left(inputs: Tensor, rollout: Rollout) -> Tensor:
    """Returns the critic's inputs where a trajectory has no value beyond its last step: the steps left are one of them.

    Without them the critic cannot know how much is still to come (Pardo et al. 2018, "Time Limits in Reinforcement
    Learning"). They are a share of the longest trajectory, up to the limit: when the dynamics will end it is not known.
    """
    limits = rollout.lengths if rollout.limits is None else rollout.limits
    left = limits[:, None] - np.arange(rollout.mask.shape[1])
    share = torch.from_numpy(left[rollout.mask] / rollout.mask.shape[1]).to(inputs.dtype)
    return torch.cat([inputs, share[:, None]], dim=1)


def gae(rewards: Array, values: Array, next_values: Array, mask: Array, discount: float, lam: float) -> Array:
    """Returns generalised advantage estimates (n, H); 0 where the mask is false.

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t) and A_t = delta_t + gamma lambda A_{t+1} (GAE Section 3). The arrays r_t,
    V(s_t), V(s_{t+1}) (0 after a trajectory's end) and the mask of the steps taken are all (n, H).

    >>> zero, taken = np.zeros((1, 3)), np.array([[True, True, False]])
    >>> gae(np.ones((1, 3)), zero, zero, taken, discount=0.5, lam=1.0)
    array([[1.5, 1. , 0. ]])
    """
    # Time is the first axis here, so that each step of the recursion reads and writes contiguous memory.
    advantages = np.ascontiguousarray(np.where(mask, rewards + discount * next_values - values, 0.0).T)
    for t in range(len(advantages) - 2, -1, -1):
        advantages[t] += discount * lam * advantages[t + 1]
    return np.ascontiguousarray(advantages.T)


def fisher_product(at: Linearised, policy: ActionDistribution, damping: float) -> Callable[[Tensor], Tensor]:
    """Returns v -> (F + damping I) v, with the Fisher matrix F of a policy whose outputs are ``at.output``.

    F = E[J^T M J], with the outputs' Jacobian J and the Fisher matrix M of the distribution by its outputs. This is
    exactly the Hessian of KL(pi_old || pi) at theta_old (TRPO Appendix C), because M is that of the KL by the outputs.
    """

    def product(v: Tensor) -> Tensor:
        n = at.n_parameters
        by_output, by_constants = policy.fisher(at.jvp(v[:n]), v[n:])
        return torch.cat([at.vjp(by_output), by_constants]).add_(v, alpha=damping)

    return product


def gauss_newton_product(at: Linearised, damping: float) -> Callable[[Tensor], Tensor]:
    """Returns v -> (J^T J / N + damping I) v for a squared error, with the Jacobian J of N outputs."""
    n = len(at.output)
    return lambda v: at.vjp(at.jvp(v).div_(n)).add_(v, alpha=damping)


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, iterations: int, tolerance: float = 1e-10
) -> tuple[Tensor, Tensor]:
    """Solves A x = b approximately, given v -> A v with A positive definite; returns x and the residual b - A x.

    The method of Hestenes & Stiefel 1952; it stops early when |b - A x|^2 <= tolerance |b|^2.
    """
    x, residual, direction = torch.zeros_like(b), b.clone(), b.clone()
    squared = residual @ residual
    enough = tolerance * float(squared)
    for _ in range(iterations):
        if float(squared) <= enough:
            break
        image = product(direction)
        length = squared / (direction @ image)
        x += length * direction
        residual -= length * image
        previous, squared = squared, residual @ residual
        direction = residual + (squared / previous) * direction
    return x, residual


@dataclass(frozen=True)
class Critic:
    """The value network: V(s) = centre + scale * net(s), with the centre and scale of its latest targets."""

    net: MLP
    theta: Tensor
    centre: float = 0.0
    scale: float = 1.0

    def values(self, inputs: Tensor) -> Array:
        """Returns the value of each row of standardised states."""
        return self.centre + self.scale * self.net.forward(self.theta, inputs)[:, 0].double().numpy()

    def fit(self, inputs: Tensor, values: Array, targets: Array, config: TRPOConfig) -> Critic:
        """Returns a critic fitted to the targets, by damped Gauss-Newton and conjugate gradients (GAE Section 5).

        ``values`` are those of this critic. Each round solves (J^T J / N + damping I) d = J^T (target - V) / N over
        every k-th row, with different rows in each round. Three rounds learn as much as hundreds of stochastic gradient
        steps, in a tenth of the time.
        """
        begun = self._rescaled(values, targets)
        wanted = torch.from_numpy((targets - begun.centre) / begun.scale).to(inputs.dtype)[:, None]
        theta = begun.theta
        stride = max(1, len(inputs) // config.critic_rows)
        for k in range(config.critic_rounds):
            rows = slice(k % stride, None, stride)
            part = inputs[rows].contiguous()
            at = self.net.linearise(theta, part)
            error = wanted[rows] - at.output
            product = gauss_newton_product(at, config.critic_damping)
            step, _ = conjugate_gradient(product, at.vjp(error / len(part)), config.critic_cg_iterations)
            left = wanted[rows] - self.net.forward(theta + step, part)
            if not torch.isfinite(left).all():
                raise TrainingError("the critic's fit is not a finite number", remedy="look for exploding rewards")
            if left.square().sum() < error.square().sum():  # do not take a step that overshoots
                theta = theta + step
        return replace(begun, theta=theta)

    def _rescaled(self, values: Array, targets: Array) -> Critic:
        """Returns the critic with centre and scale changed so that its values are nearest to the targets.

        The offset and scale of a reward change while it is learned, and from head to head. Adopting them at once is
        faster than learning them step by step (compare "PopArt", van Hasselt et al. 2016).
        """
        centre, spread, varied = float(targets.mean()), float(targets.std()), float(values.var())
        scale = spread if spread > 1e-12 * abs(centre) else 1.0
        slope = float(np.mean((values - values.mean()) * (targets - centre))) / varied if varied > 0.0 else 0.0
        # Solves centre + slope (V - mean V) = centre + scale (W h + b), V = old centre + old scale (old ...).
        theta = self.theta.clone()
        weight, bias = self.net.layers(theta)[-1]
        weight.mul_(slope * self.scale / scale)
        bias.mul_(slope * self.scale / scale).add_(slope * (self.centre - float(values.mean())) / scale)
        return replace(self, theta=theta, centre=centre, scale=scale)


def _check(rollout: Rollout, rewards: Array) -> None:
    mask = rollout.mask
    if np.shape(rewards) != mask.shape:
        raise DataError(f"rewards have the shape {np.shape(rewards)}", remedy=f"give one a step, {mask.shape}")
    for name, numbers in (
        ("reward", rewards[:, :, None]),
        ("state", rollout.states),
        ("action", rollout.actions),
        ("next state", rollout.next_states),
    ):
        wrong = mask & ~np.isfinite(numbers).all(axis=2)
        if wrong.any():
            i, t = np.argwhere(wrong)[0]
            raise TrainingError(
                f"the {name} of trajectory {i} at step {t} is not a finite number, so the policy is unchanged",
                remedy="learn more slowly, or give the reward a stronger prior",
            )
