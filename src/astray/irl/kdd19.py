"""The paper on one page: Oh & Iyengar, "Sequential Anomaly Detection using Inverse Reinforcement Learning", KDD 2019.

==============================================  ==========================================================
in the paper                                    here
==============================================  ==========================================================
R(tau | theta), Section 3.2, Eq. 1              :func:`trajectory_reward`
p(tau | theta), Z and gradient, Eqs. 1 and 2    :func:`trajectory_loss`, which estimates them
bootstrap data sets D_k, Section 4.1.1          :func:`bootstrap`: the mask of each head over the trips
network with K heads, Section 4.1.2             :func:`first_reward` (:class:`astray.irl.reward.RewardHeads`)
prior p(theta), Sections 4.1.2 and 4.2          ``RewardHeads.neg_log_prior``
gradient with weights w_j / W, Eq. 3            :func:`trajectory_loss`
policy pi, Section 4.2                          :func:`first_policy` (:class:`astray.irl.policy.Policy`)
TRPO, Section 4.2                               :class:`astray.irl.trpo.TRPO`
Algorithm 1, IRL with bootstrapped reward       :func:`algorithm_1`; its line 2: ``first_reward``, ``first_policy``
Algorithm 2, reward function update             :func:`algorithm_2` with :func:`trajectory_estimate`
n(s, a), Section 4.4, Eq. 4                     :func:`mean_reward`, :func:`normality_score`
N(tau), Section 4.4                             :func:`trajectory_normality`
sigma_r(s, a), Section 4.5                      :func:`reward_deviation`
IRL-AD, Sections 4.4 and 5                      :func:`irl_ad`
IRL-ADU, Sections 4.5 and 5                     :func:`irl_adu`
K = 10, 64 and 16 units, epsilon, gamma         :data:`KDD19`, :data:`EPSILON`, :data:`GAMMA`
==============================================  ==========================================================

The preset ``kdd19`` runs these functions with the settings :data:`KDD19`. The default for states and actions runs them
with other settings and, in place of Eq. 3, with the loss of :mod:`astray.irl.objective`; :mod:`astray.irl.trainer`
calls both. Equations have the numbers of the printed paper, which numbers four: the model (1), its gradient (2), the
sampled gradient (3), n(s, a) (4).

Where this differs from the paper
---------------------------------
- Inputs. Reward and policy standardise their inputs; the reward clips them at 5 standard deviations.
- Initial weights: the reward's are as printed; the policy's are Glorot-uniform with a small last layer, because weights
  of variance 0.1 begin with actions far from any demonstrated one (the paper says "e.g.").
- TRPO is astray's own; the paper used OpenAI baselines. The policy is improved on r - log pi: the return of r alone has
  a deterministic optimum, which is not the policy of Eq. 1. The trust region shrinks, and the critic sees the steps
  left, because R(tau) is a sum over a trajectory with an end.
- q(tau), which the paper does not define, is the density of everything that the batch came from: all policies so far
  and, because Algorithm 2 appends demonstrations, a policy that was trained to imitate them. The transition
  probabilities cancel and are left out.
- Aspects. The paper has one reward and one background, and so has :data:`KDD19`. The functions also serve a reward
  with an aspect for each kind of alternative, each aspect with its own K heads and background.
- Optimiser: Adam with a falling learning rate, J = 100, N = 60; the paper gives none of these numbers.
- Scores. sigma_r is divided by sigma_bar, so gamma is in units of n and not of a reward whose scale is arbitrary; for a
  trip it is the deviation of N(tau) over the heads. N(tau) weighs a step by its duration.
- Decisions are of trips; :func:`irl_ad` and :func:`irl_adu` decide single steps. Where IRL-AD finds an anomaly that
  IRL-ADU does not confirm, or an agent has few past trips, astray says "review".

What the paper leaves open for GPS trips
----------------------------------------
- Trips are resampled to one fix every 15 minutes. R(tau) is a sum, so a likelihood that is settled for a whole trip
  leaves less to each of its steps the more there are.
- Reward and policy see normal scores of the state and the action (:mod:`astray.features.normal_scores`), and entropies
  are measured in them. Coordinates of people have tails of thousands of kilometres.
- Half of the policy's trajectories begin near the start of a demonstrated trip, the others anywhere, with a density
  that is a part of q(tau): Z sums over all trajectories, and a reward that is never compared elsewhere says nothing
  about other places.
- Rollouts are as long as demonstrations.

States and actions without given dynamics: the policy acts in dynamics that are fitted to the demonstrations.

:data:`KDD19_FOURIER` is ours, and differs from the paper in two more things. Its reward also sees the place that a step
leads to, which state and action determine, and random Fourier features of that place and of the start (of states and
actions: of both). And every iteration updates all heads, each on its own bootstrap, where Algorithm 1 updates the
sampled one: a head that is sampled less often is learned worse, and has its part in every mean and spread over the
heads. ``docs/algorithm.md`` says what each choice is worth.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import TrainingError
from astray.irl.background import Background, Batch
from astray.irl.demonstrations import ActingDemonstrator, Rows
from astray.irl.learn_config import LearnConfig, RewardConfig, TRPOConfig
from astray.irl.objective import Loss, effective_sample_size, energy_distance, weighted_mean

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from astray.irl.policy import Generator
    from astray.irl.reward import RewardHeads

Array = NDArray[Any]
Measures = dict[str, float]

MEASURED = 256  # steps of demonstrations, and of rollouts, to measure the generator's distance

KDD19 = LearnConfig(
    reward=RewardConfig(
        hidden=(64, 16),  # Appendix A
        heads=10,  # K, Section 5.4 and Appendix A
        prior_variance=100.0,  # sigma^2 of the prior, Section 4.1.2; the paper gives no number
        initial_variance=0.1,  # Section 4.3
    ),
    # R(tau) is an undiscounted sum over the whole trajectory.
    policy=TRPOConfig(max_kl=0.1, last_kl=0.01, discount=1.0, gae_lambda=0.97, bootstrap=False),
    iterations=60,  # N
    updates=100,  # J
    objective="trajectory",  # Eq. 3
    temperature=1.0,  # Eq. 3 as printed
    all_heads=False,  # Algorithm 1 updates the sampled head
    aspects=False,  # one reward
    clone_updates=0,  # the policy begins with random weights
    weights=(("policy", 1.0),),  # T_s is what the policy generates
    waves=0,  # the reward sees the state and the action themselves
    horizon=None,  # whole trajectories
    capacity=10_000_000,  # T_s keeps all samples
    divide_prior=False,  # Section 4.2 prints E[log p(tau | theta) + log p(theta)]
    held_out=0.0,  # all demonstrations are learned from
    patience=1000,
)
"""The settings of the paper; those that it does not print have the defaults of ``LearnConfig``."""

KDD19_FOURIER = replace(KDD19, waves=32, all_heads=True)
"""A preset of ours: the paper's, with random Fourier features beside the reward's inputs, and all heads updated."""

EPSILON = -2.0  # Section 5.4: an observation with n <= epsilon is an anomaly for IRL-AD,
GAMMA = 1.5  # and for IRL-ADU if also sigma_r <= gamma


# -------------------------------------------------------------------- Algorithm 1: IRL with bootstrapped reward


@dataclass(frozen=True)
class Evidence:
    """The data from which the reward is learned."""

    demonstrations: Rows  # T_d
    backgrounds: Mapping[str, Background]  # T_s, of each aspect
    bootstrap: Tensor  # the masks (trips, K): how often D_k contains each trip
    made: Tensor | None = None  # (trips + 1, K): 1 where k also learns from what was made from a trip; last: from none


Estimate = Callable[["RewardHeads", Evidence, LearnConfig, np.random.Generator], Loss]


@dataclass
class Learner:
    """The state that Algorithm 1 changes, and the data that it needs."""

    reward: RewardHeads  # the K reward functions r_theta_k
    generator: Generator | None  # the policy pi, with TRPO to improve it; None: the background needs no policy
    evidence: Evidence
    independent: int  # the number of independent demonstrations, by which the prior is divided
    estimate: Estimate  # of the loss: trajectory_estimate is the paper's
    optimiser: Optimizer
    schedule: LRScheduler

    def distance(self, generated: Rows, rng: np.random.Generator) -> float:
        """Returns the energy distance between generated steps and demonstrations, as the reward sees them."""
        own = self.evidence.demonstrations
        drawn = [rows.features[rows.draw(MEASURED, rng)] for rows in (own, generated)]
        return energy_distance(*(self.reward.standardised(rows) for rows in drawn))


def algorithm_1(
    learner: Learner, agent: ActingDemonstrator, lengths: Array, config: LearnConfig, rng: np.random.Generator
) -> Iterator[Measures]:
    """Runs lines 3 to 9 of Algorithm 1, and yields the measures of each iteration.

    Line 1, T_d, is ``agent.demonstrations()``; line 2 is :func:`first_reward` and :func:`first_policy`; line 10 returns
    what ``learner`` holds afterwards. ``lengths`` are those of the demonstrated trajectories: rollouts are as long.
    """
    pi, reward, dynamics = learner.generator, learner.reward, agent.dynamics
    assert pi is not None
    for _ in range(config.iterations):  # line 3
        k = int(rng.integers(reward.n_heads))  # line 4: sample a reward function
        n_steps = rng.choice(lengths, config.rollouts)
        rollout = pi.rollout(dynamics, config.rollouts, int(n_steps.max()), rng, n_steps)  # line 5: generate samples
        generated = agent.realise(rollout)
        log_density = copy.deepcopy(pi).log_prob  # of pi as it is now: q(tau) of these samples
        for background in learner.evidence.backgrounds.values():  # line 6: append them to T_s
            background.append("policy", generated, log_density)
        measures = algorithm_2(learner, None if config.all_heads else k, config, rng)  # line 7: update r_theta_k
        rewards = reward.posterior()(generated.features)[:, :, k].mean(axis=1)
        by_step = np.zeros(rollout.mask.shape)
        # The policy of the maximum-entropy model is soft-optimal: it maximises the sum of r - log pi (Ziebart 2010).
        by_step[rollout.mask] = rewards - config.policy_temperature * rollout.log_prob[rollout.mask]
        done = pi.improve(rollout, by_step)  # line 8: update pi with respect to r_theta_k by TRPO
        measures |= {"policy_reward": float(rewards.mean()), "kl": done.kl, "entropy": done.entropy}
        measures["generator_distance"] = learner.distance(generated, rng)
        yield {"head": k} | measures


def first_reward(
    demonstrations: Rows, backgrounds: Mapping[str, Background], config: LearnConfig, rng: np.random.Generator
) -> RewardHeads:
    """Initialises the reward network with K heads (Algorithm 1, line 2; Section 4.1.2).

    Demonstrations and the background so far, in equal parts, set the scale of its inputs.
    """
    from astray.irl.reward import RewardHeads

    reward = RewardHeads(demonstrations.features.shape[1], config.reward, rng, tuple(backgrounds))
    n = len(demonstrations) // len(backgrounds)
    seen = [background.draw_rows(n, rng) for background in backgrounds.values() if background.rows]
    reward.standardise(np.concatenate([demonstrations.features, *seen]))
    return reward


def first_policy(demonstrations: Rows, config: LearnConfig, rng: np.random.Generator) -> Generator:
    """Initialises the policy, a neural network that TRPO improves (Algorithm 1, line 2; Section 4.2)."""
    from astray.irl.categorical_policy import policy_for
    from astray.irl.policy import clone_behaviour
    from astray.irl.trpo import TRPO

    policy = policy_for(demonstrations.states, demonstrations.actions, rng)
    # With clone_updates=0, as in the paper, the policy begins with random weights.
    clone_behaviour(policy, demonstrations.states, demonstrations.actions, config.clone_updates, rng)
    return TRPO(policy, rng, config.policy, config.iterations)


def bootstrap(n_trips: int, n_heads: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draws the bootstrap masks, (trips, K): the number of times that D_k contains each trip (Section 4.1.1).

    Each D_k has as many trips as T_d, drawn from it with replacement.
    """
    return rng.multinomial(n_trips, np.full(n_trips, 1.0 / n_trips), n_heads).T


# -------------------------------------------------------------------- Algorithm 2: reward function update


def algorithm_2(learner: Learner, head: int | None, config: LearnConfig, rng: np.random.Generator) -> Measures:
    """Runs Algorithm 2: J gradient steps on the MAP objective of Section 4.2, for the sampled head; for all if None."""
    measured = []
    for _ in range(config.updates):  # line 1
        loss = learner.estimate(learner.reward, learner.evidence, config, rng)  # lines 2 to 5
        chosen = loss.per_head.mean() if head is None else loss.per_head[head]
        # The sum of log p(tau | theta) over n demonstrations, plus log p(theta), all divided by n.
        objective = chosen + learner.reward.neg_log_prior(head) / learner.independent
        if not math.isfinite(objective.item()):
            raise TrainingError(
                f"the reward's loss became {objective.item()}, so nothing was changed",
                remedy="lower learning_rate, or raise the temperature of the trajectory objective",
            )
        learner.optimiser.zero_grad()
        objective.backward()  # type: ignore[no-untyped-call]
        learner.optimiser.step()  # line 6
        learner.schedule.step()
        measured.append((float(chosen.detach()), float(loss.gap.mean()), float(loss.effective_sample_size.mean())))
    names = ("loss", "reward_gap", "effective_sample_size")
    return {name: float(np.mean(values)) for name, values in zip(names, zip(*measured, strict=True), strict=True)}


def trajectory_estimate(reward: RewardHeads, evidence: Evidence, config: LearnConfig, rng: np.random.Generator) -> Loss:
    """Samples the batches of Algorithm 2 (lines 2 to 4) and returns the loss whose gradient is Eq. 3 (line 5)."""
    import torch

    demonstrations = evidence.demonstrations
    chosen = rng.integers(demonstrations.n_paths, size=config.batch_paths)  # line 3
    weights = evidence.bootstrap[demonstrations.trip[demonstrations.first[chosen]]]
    temperature = float(config.horizon or 1) if config.temperature is None else config.temperature
    losses = []
    for aspect, background in enumerate(evidence.backgrounds.values()):
        # Lines 2 and 4: the background batch, with the demonstrations appended at its end.
        batch = background.draw_paths(config.batch_paths, demonstrations, chosen, rng)
        returns = trajectory_reward(reward, batch, aspect)
        log_q = torch.from_numpy(batch.log_q).float()
        losses.append(trajectory_loss(returns[-config.batch_paths :], returns, log_q, weights, temperature))
    return Loss.total(losses)


def trajectory_reward(reward: RewardHeads, batch: Batch, aspect: int = 0) -> Tensor:
    """Returns R(tau | theta_k), the sum of r_theta_k(s, a) over each trajectory (Section 3.2): (trajectories, K)."""
    import torch

    rewards = reward(torch.from_numpy(batch.features))[:, aspect]
    zero = torch.zeros(len(batch.log_q), rewards.shape[1])
    return zero.index_add(0, torch.from_numpy(batch.path), rewards)


def trajectory_loss(
    demonstration_returns: Tensor,
    background_returns: Tensor,
    log_q: Tensor,
    demonstration_weights: Tensor | None = None,
    temperature: float = 1.0,
) -> Loss:
    """Returns the negative log-likelihood whose gradient is Eq. 3 without its prior, for each head.

    log Z is estimated as ``log mean_j w_j`` with ``w_j = exp(R(tau_j)) / q(tau_j)``; its gradient is the second sum of
    Eq. 3, ``sum_j (w_j / W) dR(tau_j)``. The computation stays in the log domain. ``log_q`` is the log-density of each
    background trajectory, including the appended demonstrations, under the mixture of all proposals. ``temperature``
    divides the exponent: 1 gives Eq. 3; a temperature as high as the horizon keeps the weights from collapsing on one
    trajectory, but biases the estimate.
    """
    log_w = (background_returns - log_q[:, None]) / temperature
    log_z = temperature * (log_w.logsumexp(dim=0) - math.log(len(log_w)))
    demonstrated = weighted_mean(demonstration_returns, demonstration_weights)
    gap = demonstrated - background_returns.mean(dim=0)
    return Loss(log_z - demonstrated, gap.detach(), effective_sample_size(log_w))


# -------------------------------------------------------------------- scores and decisions (numpy alone)


def mean_reward(rewards: Array) -> NDArray[np.float64]:
    """Returns the mean reward over the K heads, from rewards (..., K) (Section 4.4)."""
    return np.asarray(rewards.mean(axis=-1, dtype=np.float64))


def normality_score(reward: Array, r_bar: float, sigma_bar: float) -> NDArray[np.float64]:
    """Returns n(s, a) = (r(s, a) - r_bar) / sigma_bar (Eq. 4), from mean rewards over the heads.

    >>> normality_score(np.array([1.0, 4.0]), r_bar=3.0, sigma_bar=2.0).tolist()
    [-1.0, 0.5]
    """
    return np.asarray((reward - r_bar) / sigma_bar, np.float64)


def trajectory_normality(n: Array, starts: Array, share: Array | None = None) -> NDArray[np.float64]:
    """Returns N(tau), the mean of n(s, a) over each trajectory (Section 4.4), from n (..., steps).

    ``starts`` are the first steps of the trajectories. ``share`` is the weight of each step in its trajectory's mean;
    by default 1 / |tau|, as printed.

    >>> trajectory_normality(np.array([0.0, -1.0, -5.0]), np.array([0, 2])).tolist()
    [-0.5, -5.0]
    """
    lengths = np.diff(starts, append=n.shape[-1])
    weighed = n / np.repeat(lengths, lengths) if share is None else n * share
    return np.asarray(np.add.reduceat(weighed, starts, axis=-1))


def reward_deviation(rewards: Array) -> Array:
    """Returns sigma_r(s, a), the standard deviation over the K heads of rewards (..., K) (Section 4.5)."""
    return np.asarray(rewards.std(axis=-1))


def irl_ad(normality: Array, epsilon: ArrayLike = EPSILON) -> NDArray[np.bool_]:
    """Returns True for anomalies by IRL-AD: steps or trajectories with normality of at most epsilon (Section 4.4).

    >>> irl_ad(np.array([-2.5, -2.0, 0.3])).tolist()
    [True, True, False]
    """
    return np.asarray(normality <= np.asarray(epsilon))


def irl_adu(found: Array, uncertainty: Array, gamma: ArrayLike = GAMMA) -> NDArray[np.bool_]:
    """Returns True for anomalies by IRL-ADU: those of IRL-AD with deviation over the heads of at most gamma (4.5).

    >>> irl_adu(irl_ad(np.array([-2.5, -2.5, 0.3])), np.array([0.4, 1.6, 0.1])).tolist()
    [True, False, False]
    """
    return np.asarray(found & (np.asarray(uncertainty) <= np.asarray(gamma)))
