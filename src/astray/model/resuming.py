"""Going on learning: the learner's networks as plain arrays, and the learner's state made of them again.

The background is not kept: the policy rolls out anew, counterfactuals are imagined anew, and other agents' trips come
from the sample that a model keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.extras import require_extra
from astray.irl.actor import Actor
from astray.irl.posterior import RewardPosterior
from astray.model.files import ModelFile
from astray.model.parts import Packed, pack_actor, unpack_actor

if TYPE_CHECKING:
    from astray.irl.learn import Learned
    from astray.irl.learn_config import LearnConfig


@dataclass(frozen=True, eq=False)
class Generated:
    """The policy and its critic, as arrays."""

    actor: Actor
    critic: NDArray[np.float32]  # the value network's parameters
    critic_hidden: tuple[int, ...]
    critic_centre: float
    critic_scale: float

    @classmethod
    def of(cls, learned: Learned) -> Generated | None:
        """The policy of a learner; None if it had none."""
        from astray.irl.trpo import TRPO

        generator = learned.generator
        if not isinstance(generator, TRPO):
            return None
        policy, critic = generator.policy, generator.critic
        actor = Actor(
            policy.state_mean.numpy().copy(),
            policy.state_scale.numpy().copy(),
            policy.action_mean.numpy().copy(),
            policy.action_scale.numpy().copy(),
            policy.net.sizes[1:-1],
            policy.theta.detach().numpy().copy(),
        )
        theta = critic.theta.detach().numpy().copy()
        return cls(actor, theta, critic.net.sizes[1:-1], critic.centre, critic.scale)

    def pack(self, name: str) -> Packed:
        """As a model file holds it."""
        critic = {"hidden": self.critic_hidden, "centre": self.critic_centre, "scale": self.critic_scale}
        own = Packed({f"{name}.critic": critic}, {f"{name}.critic": self.critic})
        return Packed.together([own, pack_actor(f"{name}.actor", self.actor)])

    @classmethod
    def unpack(cls, model: ModelFile, name: str) -> Generated:
        """Out of a model file."""
        said = model.within(f"{name}.critic")
        actor, hidden = unpack_actor(model, f"{name}.actor"), said.value("hidden", tuple[int, ...])
        size = sum((n_in + 1) * n_out for n_in, n_out in pairwise((len(actor.state_mean), *hidden, 1)))
        critic = model.array(f"{name}.critic", np.float32, size)
        return cls(actor, critic, hidden, said.value("centre", float), said.value("scale", float))


def revive(
    posterior: RewardPosterior, generated: Generated | None, config: LearnConfig, rng: np.random.Generator
) -> Learned:
    """The state that :func:`astray.irl.learn.learn` goes on from; its backgrounds are empty and will be filled."""
    require_extra("learn", "learning a reward", "torch")
    from astray.irl.learn import Learned

    return Learned(
        posterior,
        pl.DataFrame(),
        np.zeros((0, 0), np.bool_),
        _reward(posterior, config, rng),
        None if generated is None else _generator(generated, config, rng),
        {},
    )


def _reward(posterior: RewardPosterior, config: LearnConfig, rng: np.random.Generator) -> Any:
    import torch

    from astray.irl.reward import RewardHeads

    # The shape is that of the arrays, whatever the configuration has come to say.
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
        prior[-1] /= shape.random_prior  # the arrays hold it multiplied
    reward.prior = prior
    return reward


def _generator(generated: Generated, config: LearnConfig, rng: np.random.Generator) -> Any:
    import torch

    from astray.irl.network import MLP
    from astray.irl.policy import GaussianPolicy
    from astray.irl.trpo import TRPO, Critic

    actor = generated.actor
    policy = GaussianPolicy(actor.state_mean[None], actor.action_mean[None], rng, hidden=actor.hidden)
    with torch.no_grad():
        for name in ("state_mean", "state_scale", "action_mean", "action_scale", "theta"):
            getattr(policy, name).copy_(torch.from_numpy(getattr(actor, name)))
    trpo = TRPO(policy, rng, replace(config.policy, critic_hidden=generated.critic_hidden))
    net = MLP((len(actor.state_mean), *generated.critic_hidden, 1))
    theta = torch.from_numpy(generated.critic.copy())
    trpo.critic = Critic(net, theta, generated.critic_centre, generated.critic_scale)
    return trpo
