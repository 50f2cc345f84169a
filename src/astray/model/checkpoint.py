"""Checkpoints: the learner's networks as plain arrays, and how learning resumes from them.

A checkpoint does not hold the background. When learning resumes, the policy generates new rollouts, counterfactuals are
drawn again, and other agents' trips come from the sample that the model keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.extras import require_extra
from astray.irl.actor import Actor
from astray.irl.posterior import RewardPosterior

if TYPE_CHECKING:
    from astray.irl.learn_config import LearnConfig
    from astray.irl.reward import RewardHeads
    from astray.irl.trainer import Learned
    from astray.irl.trpo import TRPO


@dataclass(frozen=True, eq=False)
class PolicyCheckpoint:
    """The policy and its critic as arrays."""

    actor: Actor
    critic: NDArray[np.float32]  # the parameters of the value network
    critic_inputs: int  # the columns of a state, and the steps left if the critic sees them
    critic_hidden: tuple[int, ...]
    critic_centre: float
    critic_scale: float

    @classmethod
    def of(cls, learned: Learned) -> PolicyCheckpoint | None:
        """Copies the policy out of a learner; returns None if the learner had no policy of ours."""
        from astray.irl.policy import GaussianPolicy
        from astray.irl.trpo import TRPO

        generator = learned.generator
        if not isinstance(generator, TRPO):
            return None
        policy, critic = generator.policy, generator.critic
        mean, scale = np.zeros(policy.n_actions), np.ones(policy.n_actions)
        if isinstance(policy, GaussianPolicy):
            mean, scale = policy.action_mean.numpy().copy(), policy.action_scale.numpy().copy()
        actor = Actor(
            policy.state_mean.numpy().copy(),
            policy.state_scale.numpy().copy(),
            mean,
            scale,
            policy.net.sizes[1:-1],
            policy.theta.detach().numpy().copy(),
            discrete=policy.action_type is np.bool_,
        )
        theta = critic.theta.detach().numpy().copy()
        return cls(actor, theta, critic.net.sizes[0], critic.net.sizes[1:-1], critic.centre, critic.scale)


def restore_learner(
    posterior: RewardPosterior, policy: PolicyCheckpoint | None, config: LearnConfig, rng: np.random.Generator
) -> Learned:
    """Rebuilds what :func:`astray.irl.trainer.learn_agent_reward` resumes from, with an empty background."""
    require_extra("learn", "learning a reward", "torch")
    from astray.irl.trainer import Learned

    return Learned(
        posterior,
        pl.DataFrame(),
        np.zeros((0, 0), np.bool_),
        np.zeros((0, 0), np.bool_),
        restore_reward(posterior, config, rng),
        None if policy is None else _restore_policy(policy, config, rng),
        {},
    )


def restore_reward(posterior: RewardPosterior, config: LearnConfig, rng: np.random.Generator) -> RewardHeads:
    """Rebuilds the reward network from its arrays, so that it can continue to learn."""
    require_extra("learn", "learning a reward", "torch")
    import torch

    from astray.irl.reward import RewardHeads

    # The arrays give the shape, even if the configuration has changed since.
    weights = [w for w, _ in posterior.layers]
    shape = replace(
        config.reward,
        hidden=tuple(w.shape[2] for w in weights[:-1]),
        heads=weights[-1].shape[2] // len(posterior.aspects),
        networks=weights[-1].shape[0],
        random_prior=config.reward.random_prior if posterior.prior else 0.0,
    )
    reward = RewardHeads(len(posterior.mean), shape, rng, posterior.aspects)
    with torch.no_grad():
        for layer, (weight, bias) in enumerate(posterior.layers):
            reward.weights[layer].copy_(torch.from_numpy(weight))
            reward.biases[layer].copy_(torch.from_numpy(bias))
        reward.mean.copy_(torch.from_numpy(posterior.mean))
        reward.scale.copy_(torch.from_numpy(posterior.scale))
    prior = [torch.from_numpy(w.copy()) for w, _ in posterior.prior]
    if prior:
        prior[-1] /= shape.random_prior  # the arrays hold the product
    reward.prior = prior
    return reward


def _restore_policy(checkpoint: PolicyCheckpoint, config: LearnConfig, rng: np.random.Generator) -> TRPO:
    import torch

    from astray.irl.categorical_policy import policy_for
    from astray.irl.network import MLP
    from astray.irl.trpo import TRPO, Critic

    actor = checkpoint.actor
    actions = actor.action_mean[None].astype(np.bool_ if actor.discrete else np.float64)
    policy = policy_for(actor.state_mean[None], actions, rng, hidden=actor.hidden)
    with torch.no_grad():
        for name, values in (*policy.named_buffers(), *policy.named_parameters()):
            values.copy_(torch.from_numpy(getattr(actor, name)))
    sees_time = checkpoint.critic_inputs > len(actor.state_mean)
    own = replace(config.policy, critic_hidden=checkpoint.critic_hidden, bootstrap=not sees_time)
    trpo = TRPO(policy, rng, own, config.iterations)
    net = MLP((checkpoint.critic_inputs, *checkpoint.critic_hidden, 1))
    theta = torch.from_numpy(checkpoint.critic.copy())
    trpo.critic = Critic(net, theta, checkpoint.critic_centre, checkpoint.critic_scale)
    return trpo
