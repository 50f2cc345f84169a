"""The policy, a distribution over actions given by a small tanh network of the state, and its rollouts.

Discrete actions have a policy of their own: :mod:`astray.irl.categorical_policy`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from astray.core.errors import DataError
from astray.irl.action_distributions import ActionDistribution, DiagonalNormal
from astray.irl.dynamics import Dynamics, standard_scale
from astray.irl.network import MLP, forward

Array = NDArray[Any]


class Policy(nn.Module, ABC):
    """A distribution over actions in each state, whose parameters are the outputs of a small tanh network.

    ``theta`` holds all parameters in one flat vector: the network's, then constants that are the same in every state.
    The network has the precision ``dtype``; standardisation is always in float64, because metres and seconds would lose
    digits in single precision.
    """

    state_mean: Tensor
    state_scale: Tensor
    net: MLP
    theta: nn.Parameter
    n_actions: int  # the number of columns of an action
    action_type: type[np.generic] = np.float64

    def __init__(self, states: ArrayLike) -> None:
        super().__init__()
        self._standardise_by("state", states)

    def _standardise_by(self, name: str, given: ArrayLike) -> None:
        rows = np.asarray(given, np.float64)
        if rows.ndim != 2 or not len(rows) or not np.isfinite(rows).all():
            raise DataError(
                f"the demonstrations' {name}s (shape {rows.shape}) are not rows of finite numbers",
                remedy="give rows x columns, and drop or repair the rows that are wrong",
            )
        self.register_buffer(f"{name}_mean", torch.from_numpy(rows.mean(axis=0)))
        self.register_buffer(f"{name}_scale", torch.from_numpy(standard_scale(rows)))

    def _begin(self, hidden: Sequence[int], constants: Tensor, rng: np.random.Generator) -> None:
        """Makes the network, of the constants' precision, and draws its weights."""
        self.net = MLP((len(self.state_mean), *hidden, self.n_actions))
        self.theta = nn.Parameter(torch.cat([self.net.initial(rng, constants.dtype), constants]))

    def split(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the network's parameters and the constants, as views of ``theta``."""
        return theta[: self.net.n_parameters], theta[self.net.n_parameters :]

    def standardise_states(self, states: Tensor | Array) -> Tensor:
        """Returns standardised states, which are the network's inputs."""
        return ((torch.as_tensor(states) - self.state_mean) / self.state_scale).to(self.theta.dtype)

    @abstractmethod
    def distribution(self, output: Tensor, constants: Tensor) -> ActionDistribution:
        """Returns the distributions over actions (in the form of :meth:`encode`) for rows of the network's outputs."""

    @abstractmethod
    def encode(self, actions: Tensor | Array) -> Tensor:
        """Returns actions in the form that :meth:`distribution` is about."""

    @abstractmethod
    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws the noise of this number of actions, for :meth:`actor`: (..., a)."""

    @abstractmethod
    def actor(self) -> Callable[[Tensor | Array, Tensor | Array], Tensor]:
        """Returns a function of states and noise that returns the actions.

        It unpacks the present parameters only once, which makes many small calls fast.
        """

    @abstractmethod
    def log_prob(self, states: Tensor | Array, actions: Tensor | Array) -> Tensor:
        """Returns the log-density of each action in its own units, or its log-probability, differentiable by torch."""

    def log_prob_of_draw(self, states: Array, actions: Array, noise: Array) -> Tensor:
        """Returns the log-density of actions that :meth:`actor` drew."""
        return self.log_prob(states, actions)

    @abstractmethod
    def entropy(self, states: Tensor | Array) -> Tensor:
        """Returns the mean entropy of the action in these states, in nats."""


class GaussianPolicy(Policy):
    """A diagonal Gaussian over unbounded actions; a tanh network gives its mean, and its deviation is constant.

    The policy standardises states and actions by the demonstrations' mean and scale: a network output of 0 is the mean
    demonstrated action. Densities are in the units of the action (with the Jacobian of the scale), because they serve
    as q(tau) in importance weights. The constants of ``theta`` are one log standard deviation for each action, in units
    of the demonstrations' standard deviation.

    >>> rng = np.random.default_rng(0)
    >>> velocities = rng.normal([3.0, 0.0], [1.0, 2.0], (500, 2))
    >>> policy = GaussianPolicy(rng.normal(size=(500, 5)), velocities, rng)
    >>> policy.mean(np.zeros((1, 5))).allclose(policy.action_mean, atol=0.1)
    True
    >>> policy.log_prob(np.zeros((4, 5)), velocities[:4]).shape
    torch.Size([4])
    """

    action_mean: Tensor
    action_scale: Tensor

    def __init__(
        self,
        states: ArrayLike,
        actions: ArrayLike,
        rng: np.random.Generator,
        *,
        hidden: Sequence[int] = (64, 64),
        log_std: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(states)
        self._standardise_by("action", actions)
        self.n_actions = len(self.action_mean)
        self._begin(hidden, torch.full((self.n_actions,), log_std, dtype=dtype), rng)

    @property
    def std(self) -> Tensor:
        """The standard deviation of each action, in the units of the action."""
        return self.action_scale * self.split(self.theta)[1].exp()

    def distribution(self, output: Tensor, constants: Tensor) -> DiagonalNormal:
        """Returns the Gaussians of standardised actions."""
        return DiagonalNormal(output, constants)

    def encode(self, actions: Tensor | Array) -> Tensor:
        """Returns standardised actions, which are in the units of the network's outputs."""
        return ((torch.as_tensor(actions) - self.action_mean) / self.action_scale).to(self.theta.dtype)

    def mean(self, states: Tensor | Array) -> Tensor:
        """Returns the mean action in each state (..., d), in the units of the action."""
        output = self.net.forward(self.split(self.theta)[0], self.standardise_states(states))
        return self.action_mean + self.action_scale * output

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws standard normal noise."""
        return rng.standard_normal((*shape, self.n_actions))

    def actor(self) -> Callable[[Tensor | Array, Tensor | Array], Tensor]:
        """Returns a function of states and standard normal noise (..., a) that returns the actions mean + std * noise.

        It unpacks the present parameters only once, which makes many small calls fast.
        """
        layers, std = self.net.layers(self.split(self.theta)[0]), self.std
        mean, scale = self.action_mean, self.action_scale

        def act(states: Tensor | Array, noise: Tensor | Array) -> Tensor:
            output = forward(layers, self.standardise_states(states))
            return torch.addcmul(torch.addcmul(mean, scale, output), std, torch.as_tensor(noise))

        return act

    def log_prob(self, states: Tensor | Array, actions: Tensor | Array) -> Tensor:
        """Returns the log-density of each action in its own units; torch can differentiate it by ``theta``."""
        weights, log_std = self.split(self.theta)
        output = self.net.forward(weights, self.standardise_states(states))
        return self.log_prob_of_noise((self.encode(actions) - output) * torch.exp(-log_std))

    def log_prob_of_noise(self, noise: Tensor) -> Tensor:
        """Returns the log-density of the action that ``noise`` picks; it does not depend on the state.

        log N(a; mu, sigma) = -z^2/2 - log sigma - log(2 pi)/2, summed over actions, with z = (a - mu)/sigma.
        """
        log_scale = torch.log(self.std).sum() + 0.5 * self.n_actions * math.log(2.0 * math.pi)
        return -0.5 * noise.square().sum(dim=-1) - log_scale

    def log_prob_of_draw(self, states: Array, actions: Array, noise: Array) -> Tensor:
        """Returns the log-density of actions that :meth:`actor` drew."""
        return self.log_prob_of_noise(torch.from_numpy(noise))

    def entropy(self, states: Tensor | Array | None = None) -> Tensor:
        """Returns the differential entropy of an action in nats; it is the same in every state."""
        return torch.log(self.std).sum() + 0.5 * self.n_actions * (1.0 + math.log(2.0 * math.pi))


def clone_behaviour(policy: Policy, states: Array, actions: Array, updates: int, rng: np.random.Generator) -> None:
    """Trains the policy to imitate demonstrated actions: takes gradient steps on their likelihood."""
    optimiser = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for _ in range(updates):
        chosen = rng.integers(len(states), size=min(512, len(states)))
        loss = -policy.log_prob(states[chosen], actions[chosen]).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


# -------------------------------------------------------------------- rollouts


@dataclass(frozen=True)
class Rollout:
    """n trajectories of a policy, of at most H steps each, as dense arrays.

    Steps that were not taken (``mask`` false) hold zeros, so ``log_prob.sum(axis=1)`` is log q(tau) without the factor
    from the dynamics.
    """

    states: Array  # (n, H, d)
    actions: Array  # (n, H, a)
    log_prob: Array  # (n, H) log density or probability of each action under the policy that took it
    mask: NDArray[np.bool_]  # (n, H) true where a step was taken, which is at the beginning of each row
    next_states: Array  # (n, H, d)
    ended: NDArray[np.bool_]  # (n,) true if the dynamics ended the trajectory, false if it reached the limit of steps
    limits: NDArray[np.int64] | None = None  # (n,) the most steps of each; None: those that were taken

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of steps of each trajectory."""
        return np.asarray(np.count_nonzero(self.mask, axis=1), np.int64)


@dataclass(frozen=True)
class Improvement:
    """Measures of one improvement of the policy."""

    kl: float  # mean KL(old || new) over the visited states; 0 if the policy did not change
    entropy: float  # entropy of the improved policy's action, in nats
    surrogate_gain: float  # the rise of the surrogate objective, in standard deviations of the advantage
    value_loss: float  # the critic's squared error on this rollout before its fit, divided by the targets' variance
    line_search_steps: int  # the number of step lengths that were tried
    accepted: bool  # True if one of them was taken


class Generator(Protocol):
    """The interface of a policy with its policy-gradient method, such as ``astray.irl.trpo.TRPO``."""

    def rollout(
        self,
        dynamics: Dynamics,
        n: int,
        horizon: int,
        rng: np.random.Generator,
        lengths: ArrayLike | None = None,
    ) -> Rollout:
        """Draws n trajectories of at most ``horizon`` steps."""

    def improve(self, rollout: Rollout, rewards: Array) -> Improvement:
        """Improves the policy on its own latest rollout, given the reward (n, H) of each step."""

    def log_prob(self, states: Array, actions: Array) -> Array:
        """Returns the log-density of actions (..., a) in states (..., d), in the units of the actions."""


def rollout(
    policy: Policy,
    dynamics: Dynamics,
    n: int,
    horizon: int,
    rng: np.random.Generator,
    lengths: ArrayLike | None = None,
) -> Rollout:
    """Draws ``n`` trajectories of at most ``horizon`` steps: lets the policy act in the dynamics.

    ``lengths`` (n,) limits the steps of each trajectory further. All random numbers come from ``rng``.

    >>> from astray.irl.dynamics import Integrator
    >>> rng = np.random.default_rng(0)
    >>> policy = GaussianPolicy(rng.normal(size=(9, 5)), rng.normal(size=(9, 2)), rng)
    >>> drawn = rollout(policy, Integrator(np.zeros((1, 5)), interval=30.0), 2, 4, rng, lengths=[4, 2])
    >>> drawn.mask.astype(int).tolist(), drawn.next_states[0, :, 4].tolist()
    ([[1, 1, 1, 1], [1, 1, 0, 0]], [30.0, 60.0, 90.0, 120.0])
    """
    limits = np.full(n, horizon) if lengths is None else np.minimum(np.asarray(lengths), horizon)
    if n < 1 or horizon < 1 or limits.shape != (n,) or (limits < 1).any():
        raise DataError(f"{n} trajectories of {limits} steps", remedy="give n lengths, all of them at least 1")
    noise = policy.noise((horizon, n), rng)
    first = np.asarray(dynamics.reset(n, rng))
    if first.shape != (n, len(policy.state_mean)):
        raise DataError(
            f"the dynamics began {n} trajectories with states of the shape {first.shape}, but the demonstrations' "
            f"states have {len(policy.state_mean)} columns",
            remedy=f"return ({n}, {len(policy.state_mean)}) from reset(n, rng)",
        )
    # Time is the first axis here, so that each step writes contiguous memory.
    path = np.zeros((horizon + 1, n, first.shape[1]))
    path[0] = first
    actions = np.zeros((horizon, n, policy.n_actions), policy.action_type)
    mask = np.zeros((horizon, n), dtype=bool)
    running = np.ones(n, dtype=bool)
    ended = np.zeros(n, dtype=bool)
    with torch.no_grad():
        act = policy.actor()
        for t in range(horizon):
            mask[t] = running
            actions[t] = act(path[t], noise[t]).numpy()
            following, alive = dynamics.step(path[t], actions[t], rng)
            if np.shape(following) != first.shape or np.shape(alive) != (n,):
                raise DataError(
                    f"the dynamics stepped to states of the shape {np.shape(following)}, alive {np.shape(alive)}",
                    remedy=f"return {first.shape} and ({n},) from step(states, actions, rng)",
                )
            path[t + 1] = following
            ended |= running & ~alive
            running &= alive & (t + 1 < limits)
            if not running.any():
                break
        log_prob = policy.log_prob_of_draw(path[:-1], actions, noise).double().numpy()

    def dense(steps: Array) -> Array:
        taken = mask if steps.ndim == 2 else mask[:, :, None]
        return np.ascontiguousarray(np.where(taken, steps, np.zeros((), steps.dtype)).swapaxes(0, 1))

    return Rollout(
        states=dense(path[:-1]),
        actions=dense(actions),
        log_prob=dense(log_prob),
        mask=np.ascontiguousarray(mask.T),
        next_states=dense(path[1:]),
        ended=ended,
        limits=np.asarray(limits, np.int64),
    )
