"""Algorithms 1 and 2 of the paper: learn a bootstrapped reward and a policy that generates the background.

:func:`learn` is Algorithm 1 (IRL with bootstrapped reward), :func:`update_reward` is Algorithm 2 (reward update). What
goes beyond the paper is a field of :class:`~astray.irl.learn_config.LearnConfig`.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from astray.core.errors import TrainingError
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.irl.background import Background, LogDensity, take_paths
from astray.irl.learn_config import LearnConfig, explorers_of
from astray.irl.objective import Loss, step_loss, trajectory_loss
from astray.irl.policy import GaussianPolicy, Generator, Rollout
from astray.irl.posterior import RewardPosterior
from astray.irl.reward import RewardHeads
from astray.irl.trpo import TRPO
from astray.irl.world import ActingWorld, Rows, World

Array = NDArray[Any]
Progress = Callable[[int, int, Mapping[str, float]], None]

PLATEAU = 1e-3  # a held-out loss that falls by less has not fallen


@dataclass(frozen=True)
class Learned:
    """What learning gives back, and all that is needed to go on learning."""

    posterior: RewardPosterior  # the K reward functions, as arrays
    history: pl.DataFrame  # one row an iteration
    unseen: NDArray[np.bool_]  # (trips, heads): which demonstrations the layer of each head has not learned from
    reward: RewardHeads = field(repr=False)
    generator: Generator | None = field(repr=False)
    backgrounds: dict[str, Background] = field(repr=False)  # of each aspect


def learn(
    worlds: ActingWorld | Sequence[World],
    config: LearnConfig,
    rng: np.random.Generator,
    *,
    population: Trajectories | Sequence[Sized | None] | None = None,
    given: Trajectories | None = None,
    generator: Generator | None = None,
    start: Learned | None = None,
    groups: Sequence[NDArray[np.bool_]] = (),
    progress: Progress | None = None,
) -> Learned:
    """Algorithm 1: IRL with bootstrapped reward.

    Parameters
    ----------
    worlds
        The world of the target agent; or several, for one reward that serves all of their agents (no policy is learned
        then, for each agent would need its own).
    population
        Other agents' trajectories for the background; with several worlds, one set for each.
    given
        Trajectories for the background that nobody made; by default they weigh 1.
    generator
        A policy with its own way to improve, in place of TRPO.
    start
        An earlier result to go on from, after the world has gained demonstrations: its reward, policy and background
        are kept, the background is seen anew through the present memory. With several worlds the reward alone goes on.
    groups
        Features that may be missing together: each group is hidden from a share of what is learned from
        (``config.missing``), so that the reward can do without it.
    progress
        Called as ``progress(iteration, iterations, measures)`` after each iteration.

    Raises
    ------
    TrainingError
        If a loss or a reward is not a finite number. Nothing that went in has been changed.
    """
    acting = None if isinstance(worlds, Sequence) else worlds
    all_worlds: Sequence[World] = worlds if isinstance(worlds, Sequence) else [worlds]
    all_others: Sequence[Sized | None] = (
        population if isinstance(population, list | tuple) else [population] * len(all_worlds)
    )

    # Line 1: obtain trajectories T_d from the target agent.
    demonstrations = _demonstrations(all_worlds)
    # Trips of one agent are alike: of several agents it is these that are drawn, held out and counted.
    agents = [w.agent for w in all_worlds]
    whose = np.repeat(agents, [len(w.names) for w in all_worlds])
    n_agents = len(set(agents))
    names = [name for w in all_worlds for name in w.names]
    units = whose.tolist() if n_agents * config.held_out >= 1 else names  # nobody is held out where there are few
    out = held_out(units, np.unique(demonstrations.trip), config.held_out)
    is_out = np.isin(demonstrations.trip, out)
    training, tested = demonstrations[~is_out], demonstrations[is_out]

    if acting is not None and len(out):
        # What is made of the demonstrations, and could be taken for one, is not made of those that are held out.
        acting = acting[~np.isin(np.arange(len(names)), out)]
        all_worlds = [acting]

    # Line 2: initialise the policy and the reward functions; T_s begins with what needs no policy.
    backgrounds = _backgrounds(all_worlds, acting, all_others, config, rng, start)
    if given is not None:
        for background in backgrounds.values():
            background.weights.setdefault("given", 1.0)
            background.append("given", all_worlds[0].others(given))
    reward = _reward(demonstrations, backgrounds, config, rng, start)
    if start is not None and acting is None:
        reward.believe()
    independent = training.n_trips if n_agents == 1 else len(np.unique(whose[np.unique(training.trip)]))
    if acting is None or not config.rollouts:
        generator = None
    elif generator is None:
        generator = copy.deepcopy(start.generator) if start else _generator(demonstrations, config, rng)
    bootstrap = _bootstrap(whose, reward.n_heads, training, rng)
    evidence = Evidence(training, backgrounds, bootstrap, groups, independent)
    optimiser = torch.optim.Adam(reward.parameters(), lr=config.learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, total_iters=config.iterations * config.updates)
    dynamics = acting.dynamics if acting is not None and generator is not None else None
    lengths = np.bincount(demonstrations.path)

    history: list[dict[str, float]] = []
    best = _Best(reward)
    seed = int(rng.integers(2**32))  # every iteration is measured on the same draws
    # Line 3: N times.
    for iteration in range(config.iterations):
        # Line 4: sample a reward function uniformly at random.
        head = int(rng.integers(reward.n_heads))
        measures: dict[str, float] = {"iteration": iteration, "head": head}

        # Lines 5-6: generate samples from the policy and append them to the background.
        rollout = rolled = None
        if generator is not None and dynamics is not None and acting is not None:
            n_steps = np.minimum(rng.choice(lengths, config.rollouts), config.horizon)
            rollout = generator.rollout(dynamics, config.rollouts, config.horizon, rng, n_steps)
            rolled = acting.realise(rollout)
            for background in backgrounds.values():
                if background.weights.get("policy", 0.0) > 0:
                    background.append("policy", rolled, _snapshot(generator))

        # Line 7: update the reward with T_s (Algorithm 2).
        chosen = None if config.all_heads else head
        measures |= update_reward(reward, evidence, chosen, optimiser, schedule, config, rng)

        # Line 8: update the policy with respect to the sampled reward.
        if generator is not None and rollout is not None and rolled is not None:
            measures |= _improve(generator, rollout, reward.posterior()(rolled.features)[:, :, head].mean(axis=1))

        measures |= _held_out_measures(reward, tested if len(tested) else training, backgrounds, config, seed)
        history.append(measures)
        if progress is not None:
            progress(iteration + 1, config.iterations, measures)
        if best.since(reward, measures["held_out_loss"]) >= config.patience:
            break
    if config.held_out:
        reward.load_state_dict(best.state)
    # What an earlier reward has learned from is not known by head.
    unseen = (bootstrap.numpy() == 0) & (start is None)
    unseen[out] = True
    return Learned(reward.posterior(), pl.DataFrame(history), unseen, reward, generator, backgrounds)


@dataclass(frozen=True)
class Evidence:
    """What Algorithm 2 learns from.

    Attributes
    ----------
    demonstrations
        T_d.
    backgrounds
        T_s of each aspect.
    bootstrap
        How often each head's bootstrap drew each trip: (trips, heads).
    groups
        Features that are hidden together from a share of the rows.
    independent
        The prior counts as one of so many independent observations: trips, or agents where several teach.
    """

    demonstrations: Rows
    backgrounds: Mapping[str, Background]
    bootstrap: Tensor
    groups: Sequence[NDArray[np.bool_]] = ()
    independent: int = 1


def update_reward(
    reward: RewardHeads,
    evidence: Evidence,
    head: int | None,
    optimiser: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    config: LearnConfig,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Algorithm 2: J gradient steps on one head, or on all, each on its own bootstrap."""
    estimate = _step_estimate if config.objective == "step" else _trajectory_estimate
    losses, gaps, sizes = [], [], []
    for _ in range(config.updates):
        # Lines 2-5: sample background and demonstrations, estimate the loss whose gradient is Eq. 9.
        losses_by_aspect = estimate(reward, evidence, config, rng)
        per_head = torch.stack([loss.per_head for loss in losses_by_aspect]).sum(dim=0)
        chosen = per_head.mean() if head is None else per_head[head]
        # MAP: the sum over n demonstrations of log p(tau) plus one log p(theta), divided by n.
        objective = chosen + reward.neg_log_prior() / evidence.independent
        if not torch.isfinite(objective):
            raise TrainingError(
                f"the reward's loss became {objective.item()}, so nothing was changed",
                remedy="lower learning_rate, or raise the temperature of the trajectory objective",
            )
        # Line 6: update the parameters.
        optimiser.zero_grad()
        objective.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        losses.append(float(chosen.detach()))
        gaps += [float(loss.gap.mean()) for loss in losses_by_aspect]
        sizes += [float(loss.effective_sample_size.mean()) for loss in losses_by_aspect]
    return {
        "loss": float(np.mean(losses)),
        "reward_gap": float(np.mean(gaps)),
        "effective_sample_size": float(np.mean(sizes)),
    }


def _step_estimate(
    reward: RewardHeads, evidence: Evidence, config: LearnConfig, rng: np.random.Generator
) -> list[Loss]:
    n, demonstrations = config.batch_rows, evidence.demonstrations
    chosen = demonstrations.draw(n, rng)
    drawn = [background.draw_rows(n, rng) for background in evidence.backgrounds.values()]
    features = hidden(np.concatenate([demonstrations.features[chosen], *drawn]), evidence.groups, config.missing, rng)
    rewards = reward(torch.from_numpy(features))
    own, *others = rewards.split(n)
    weights = evidence.bootstrap[demonstrations.trip[chosen]]
    return [step_loss(own[:, i], other[:, i], weights) for i, other in enumerate(others)]


def _trajectory_estimate(
    reward: RewardHeads, evidence: Evidence, config: LearnConfig, rng: np.random.Generator
) -> list[Loss]:
    demonstrated = take_paths(evidence.demonstrations, config.batch_paths, config.horizon, rng)
    first = np.searchsorted(demonstrated.path, np.arange(config.batch_paths))
    weights = evidence.bootstrap[demonstrated.trip[first]]
    temperature = float(config.horizon) if config.temperature is None else config.temperature
    losses = []
    for i, background in enumerate(evidence.backgrounds.values()):
        # Line 4: append the demonstrations to the background batch, which stands first.
        batch = background.draw_paths(config.batch_paths, demonstrated, config.horizon, rng)
        rewards = reward(torch.from_numpy(batch.features))[:, i]
        returns = torch.zeros(len(batch.log_q), rewards.shape[1]).index_add(0, torch.from_numpy(batch.path), rewards)
        log_q = torch.from_numpy(batch.log_q).float()
        losses.append(trajectory_loss(returns[-config.batch_paths :], returns, log_q, weights, temperature))
    return losses


def hidden(
    features: NDArray[np.float32], groups: Sequence[NDArray[np.bool_]], share: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Features with each group missing (not a number) in a share of the rows."""
    for group in groups:
        features[np.ix_(rng.random(len(features)) < share, group)] = np.nan
    return features


def _demonstrations(worlds: Sequence[World]) -> Rows:
    """The demonstrations of all worlds; trips are numbered through."""
    starts = itertools.accumulate([0, *(len(w.names) for w in worlds)])
    parts = [w.demonstrations() for w in worlds]
    return Rows.concat([replace(p, trip=p.trip + first) for p, first in zip(parts, starts, strict=False)])


def _backgrounds(
    worlds: Sequence[World],
    acting: ActingWorld | None,
    all_others: Sequence[Sized | None],
    config: LearnConfig,
    rng: np.random.Generator,
    start: Learned | None,
) -> dict[str, Background]:
    """T_s of each aspect, as far as it needs no policy."""
    aspects = explorers_of(config)
    first, *_ = aspects
    share = max(1, config.imagined // len(worlds))
    backgrounds = {}
    for aspect, explorers in aspects.items():
        weights = dict(config.weights) if aspect == first else {"explore": 1.0}
        background = Background(weights if explorers else weights | {"explore": 0.0}, config.capacity)
        if start is not None and acting is not None and aspect in start.backgrounds:
            background = start.backgrounds[aspect].refreshed(acting.refresh)
        for world, others in zip(worlds, all_others, strict=True):
            if explorers:
                background.append("explore", world.imagine(share, explorers, rng))
            if others is not None and len(others) and background.weights.get("population", 0.0) > 0:
                background.append("population", world.others(others))
        backgrounds[aspect] = background
    return backgrounds


def _reward(
    demonstrations: Rows,
    backgrounds: Mapping[str, Background],
    config: LearnConfig,
    rng: np.random.Generator,
    start: Learned | None,
) -> RewardHeads:
    if start is not None:
        return copy.deepcopy(start.reward)
    reward = RewardHeads(demonstrations.features.shape[1], config.reward, rng, tuple(backgrounds))
    n = len(demonstrations) // len(backgrounds)
    seen = [background.draw_rows(n, rng) for background in backgrounds.values() if background.rows]
    reward.standardise(np.concatenate([demonstrations.features, *seen]))
    return reward


def _generator(demonstrations: Rows, config: LearnConfig, rng: np.random.Generator) -> TRPO:
    policy = GaussianPolicy(demonstrations.states, demonstrations.actions, rng)
    optimiser = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for _ in range(config.clone_updates):
        chosen = rng.integers(len(demonstrations), size=min(512, len(demonstrations)))
        loss = -policy.log_prob(demonstrations.states[chosen], demonstrations.actions[chosen]).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return TRPO(policy, rng, config.policy)


def _snapshot(generator: Generator) -> LogDensity:
    """The density of the policy as it is now, whatever becomes of it."""
    return copy.deepcopy(generator).log_prob


def _improve(generator: Generator, rollout: Rollout, rewards: Array) -> dict[str, float]:
    dense = np.zeros(rollout.mask.shape)
    dense[rollout.mask] = rewards
    done = generator.improve(rollout, dense)
    return {"policy_reward": float(rewards.mean()), "kl": done.kl, "entropy": done.entropy}


class _Best:
    """The reward as it was when its held-out loss was lowest."""

    def __init__(self, reward: RewardHeads) -> None:
        self.loss, self.state, self._since = np.inf, copy.deepcopy(reward.state_dict()), 0

    def since(self, reward: RewardHeads, loss: float) -> int:
        """Take note of a loss: how many iterations have passed since the lowest."""
        self._since += 1
        if loss < self.loss - PLATEAU:
            self.loss, self.state, self._since = loss, copy.deepcopy(reward.state_dict()), 0
        return self._since


def _bootstrap(whose: NDArray[np.str_], n_heads: int, training: Rows, rng: np.random.Generator) -> Tensor:
    """How often each head's bootstrap drew each trip: Poisson(1), the limit of drawing n of n with replacement.

    Of several agents (``whose`` says who made each trip) agents are drawn, and trips of these.
    """
    drawn = rng.poisson(1.0, (len(whose), n_heads))
    agents, number = np.unique(whose, return_inverse=True)
    if len(agents) > 1:
        drawn *= rng.poisson(1.0, (len(agents), n_heads))[number]
    empty = drawn[np.unique(training.trip)].sum(axis=0) == 0
    drawn[:, empty] = 1
    return torch.as_tensor(drawn, dtype=torch.float32)


def held_out(names: Sequence[TripId] | Sequence[str], present: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """The demonstrations that nothing is learned from: chosen by their names, so that an update leaves out the same.

    Those of one name are left out together; at least one name where any are to be held out, but never all.
    """
    known = sorted({names[i] for i in present})
    if share == 0 or len(known) < 2:
        return present[:0]
    texts = (name if isinstance(name, str) else "/".join(name) for name in known)
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
    drawn = np.array([int.from_bytes(d, "little") for d in digests]) / 2.0**64  # uniform in [0, 1)
    n = np.clip(np.count_nonzero(drawn < share), 1, len(known) - 1)
    out = {known[i] for i in np.argsort(drawn)[:n]}
    return present[[names[i] in out for i in present]]


@torch.no_grad()
def _held_out_measures(
    reward: RewardHeads, tested: Rows, backgrounds: Mapping[str, Background], config: LearnConfig, seed: int
) -> dict[str, float]:
    """The loss of Algorithm 2 on demonstrations that it does not learn from, and how far the heads lie apart there."""
    rng = np.random.default_rng(seed)
    estimate = _step_estimate if config.objective == "step" else _trajectory_estimate
    alike = torch.ones(int(tested.trip.max()) + 1, reward.n_heads)
    losses = estimate(reward, Evidence(tested, backgrounds, alike), config, rng)
    posterior, n = reward.posterior(), 1024
    own = posterior(tested.features[tested.draw(n, rng)])
    other = np.concatenate([posterior(b.draw_rows(n // len(backgrounds), rng)) for b in backgrounds.values()])
    if not (np.isfinite(own).all() and np.isfinite(other).all()):
        raise TrainingError("the reward exploded, so the model was not changed", remedy="lower learning_rate")
    return {
        "held_out_loss": float(torch.stack([loss.per_head for loss in losses]).mean()),
        "head_spread": float(own.std(axis=2).mean()),
        "background_head_spread": float(other.std(axis=2).mean()),
    }
