"""Algorithms 1 and 2 of the paper: learn a bootstrapped reward and a policy that generates the background.

:func:`learn` is Algorithm 1 (IRL with bootstrapped reward), :func:`update_reward` is Algorithm 2 (reward update). What
goes beyond the paper is a field of :class:`LearnConfig` with the paper's value in the preset :data:`KDD19`.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from astray.errors import DataError, TrainingError
from astray.irl.background import Background, LogDensity, take_paths
from astray.irl.objective import Loss, step_loss, trajectory_loss
from astray.irl.policy import GaussianPolicy, Generator, Rollout
from astray.irl.posterior import RewardPosterior
from astray.irl.reward import RewardConfig, RewardHeads
from astray.irl.trpo import TRPO, TRPOConfig
from astray.mdp.counterfactuals import COUNTERFACTUALS
from astray.mdp.world import Rows, World
from astray.trajectories import Trajectories

Array = NDArray[Any]
Progress = Callable[[int, int, Mapping[str, float]], None]

# Every counterfactual once; those that a detection needs most, more often.
DEFAULT_EXPLORERS = (*COUNTERFACTUALS, *("shift",) * 4, *("pace",) * 3, *("borrow", "detour") * 2, "stop")


@dataclass(frozen=True)
class LearnConfig:
    """How the reward and the policy are learned. The defaults are what measures best; KDD19 is the paper."""

    reward: RewardConfig = RewardConfig()
    policy: TRPOConfig = TRPOConfig()
    iterations: int = 30  # N of Algorithm 1
    updates: int = 25  # J of Algorithm 2: reward gradient steps an iteration
    objective: str = "step"  # 'step': the discriminator form; 'trajectory': Eq. 9
    temperature: float | None = None  # of the trajectory weights; None: the horizon; 1: Eq. 9 as printed
    all_heads: bool = True  # update every head each time, each on its own bootstrap; False: only the sampled one
    learning_rate: float = 6e-3  # of Adam on the reward, falling linearly to nothing
    batch_rows: int = 1024  # demonstrated and background steps, each, in a 'step' update
    batch_paths: int = 32  # demonstrated and background trajectories, each, in a 'trajectory' update
    horizon: int = 50  # steps of a rollout, and of the stretches that Eq. 9 sums over
    rollouts: int = 64  # trajectories that the policy makes an iteration; 0: no policy
    clone_updates: int = 300  # gradient steps that first make the policy imitate the demonstrations
    weights: tuple[tuple[str, float], ...] = (("policy", 0.2), ("explore", 2.0), ("population", 4.0))
    explorers: tuple[str, ...] = DEFAULT_EXPLORERS  # which counterfactuals, repeated as often as they are to weigh
    imagined: int = 600  # counterfactual trips
    most_rows: int = 300  # of one trip: a very long one must not be all that is learned from
    capacity: int = 100_000  # rows kept of each source of the background
    held_out: float = 0.2  # share of the demonstrations that only calibrate and stop early
    patience: int = 10  # iterations without a better held-out score before stopping

    def __post_init__(self) -> None:
        if self.objective not in ("step", "trajectory"):
            raise DataError(f"objective is 'step' or 'trajectory', not {self.objective!r}")
        if self.iterations < 1 or self.updates < 1:
            raise DataError("iterations and updates must be at least 1")
        if not 0.0 <= self.held_out < 1.0:
            raise DataError(f"held_out is a share of the demonstrations in [0, 1), not {self.held_out}")


KDD19 = LearnConfig(
    reward=RewardConfig(prior_variance=0.1, initial_variance=0.1),
    iterations=100,
    objective="trajectory",
    temperature=1.0,
    all_heads=False,
    clone_updates=0,
    weights=(("policy", 1.0),),
    held_out=0.0,
    patience=100,
)

PRESETS = {"default": LearnConfig(), "kdd19": KDD19}


@dataclass(frozen=True)
class Learned:
    """What learning gives back, and all that is needed to go on learning."""

    posterior: RewardPosterior  # the K reward functions, as arrays
    history: pl.DataFrame  # one row an iteration
    held_out: NDArray[np.int64]  # the trips that the reward was not trained on (positions in the training set)
    reward: RewardHeads = field(repr=False)
    generator: Generator | None = field(repr=False)
    background: Background = field(repr=False)


def learn(
    worlds: World | Sequence[World],
    config: LearnConfig,
    rng: np.random.Generator,
    *,
    population: Trajectories | Sequence[Trajectories | None] | None = None,
    generator: Generator | None = None,
    start: Learned | None = None,
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
    generator
        A policy with its own way to improve, in place of TRPO.
    start
        An earlier result to go on from, after the world has gained demonstrations: its reward, policy and background
        are kept, the background is seen anew through the present memory.
    progress
        Called as ``progress(iteration, iterations, measures)`` after each iteration.

    Raises
    ------
    TrainingError
        If a loss or a reward is not a finite number. Nothing that went in has been changed.
    """
    several = isinstance(worlds, Sequence)
    all_worlds: Sequence[World] = worlds if isinstance(worlds, Sequence) else [worlds]
    crowds = population if isinstance(population, Sequence) else [population] * len(all_worlds)

    # Line 1: obtain trajectories T_d from the target agent.
    demonstrations = _demonstrations(all_worlds)
    n_trips = sum(w.n_trips for w in all_worlds)
    held_out = rng.permutation(n_trips)[: _n_held_out(n_trips, config.held_out)]
    training = _capped(demonstrations[~np.isin(demonstrations.trip, held_out)], config.most_rows, rng)
    left_out = _capped(demonstrations[np.isin(demonstrations.trip, held_out)], config.most_rows, rng)

    # Line 2: initialise the policy and the reward functions; T_s begins with what needs no policy.
    background = _background(all_worlds, crowds, config, rng, start)
    reward = _reward(demonstrations, background, config, rng, start)
    if several or not config.rollouts:
        generator = None
    elif generator is None:
        generator = copy.deepcopy(start.generator) if start else _generator(demonstrations, config, rng)
    bootstrap = _bootstrap(n_trips, reward.n_heads, training, rng)
    optimiser = torch.optim.Adam(reward.parameters(), lr=config.learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, total_iters=config.iterations * config.updates)
    dynamics = all_worlds[0].dynamics if generator is not None else None
    lengths = np.bincount(demonstrations.path)

    history: list[dict[str, float]] = []
    best, best_state, since_best = 0.0, copy.deepcopy(reward.state_dict()), 0
    for iteration in range(config.iterations):
        # Line 4: sample a reward function uniformly at random.
        head = int(rng.integers(reward.n_heads))
        measures: dict[str, float] = {"iteration": iteration, "head": head}

        # Lines 5-6: generate samples from the policy and append them to the background.
        rollout = rolled = None
        if generator is not None and dynamics is not None:
            n_steps = np.minimum(rng.choice(lengths, config.rollouts), config.horizon)
            rollout = generator.rollout(dynamics, config.rollouts, config.horizon, rng, n_steps)
            rolled = all_worlds[0].realise(rollout)
            background.append("policy", rolled, _snapshot(generator))

        # Line 7: update the reward with T_s (Algorithm 2).
        chosen = None if config.all_heads else head
        measures |= update_reward(
            reward, training, background, bootstrap, chosen, optimiser, schedule, config, n_trips, rng
        )

        # Line 8: update the policy with respect to the sampled reward.
        if generator is not None and rollout is not None and rolled is not None:
            measures |= _improve(generator, rollout, reward.posterior()(rolled.features)[:, head])

        score = _held_out_score(reward, left_out if len(left_out) else training, background, config, rng)
        measures |= score
        history.append(measures)
        if progress is not None:
            progress(iteration + 1, config.iterations, measures)
        since_best += 1
        if score["held_out_score"] > best * 1.005 or not history[1:]:
            best, best_state, since_best = score["held_out_score"], copy.deepcopy(reward.state_dict()), 0
        if since_best >= config.patience:
            break
    if config.held_out:
        reward.load_state_dict(best_state)
    return Learned(reward.posterior(), pl.DataFrame(history), held_out, reward, generator, background)


def update_reward(
    reward: RewardHeads,
    demonstrations: Rows,
    background: Background,
    bootstrap: Tensor,
    head: int | None,
    optimiser: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    config: LearnConfig,
    n_trips: int,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Algorithm 2: J gradient steps on one head, or on all, each on its own bootstrap (``bootstrap``: trips, heads)."""
    estimate = _step_estimate if config.objective == "step" else _trajectory_estimate
    losses, gaps, sizes = [], [], []
    for _ in range(config.updates):
        # Lines 2-5: sample background and demonstrations, estimate the loss whose gradient is Eq. 9.
        loss = estimate(reward, demonstrations, background, bootstrap, config, rng)
        chosen = loss.per_head.mean() if head is None else loss.per_head[head]
        # MAP: the sum over n demonstrations of log p(tau) plus one log p(theta), divided by n.
        objective = chosen + reward.neg_log_prior() / n_trips
        if not torch.isfinite(objective):
            raise TrainingError(
                f"the reward's loss became {objective.item()}; nothing was changed. Lower learning_rate, or raise "
                "the temperature of the trajectory objective"
            )
        # Line 6: update the parameters.
        optimiser.zero_grad()
        objective.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        losses.append(float(chosen.detach()))
        gaps.append(float(loss.gap.mean()))
        sizes.append(float(loss.effective_sample_size.mean()))
    return {
        "loss": float(np.mean(losses)),
        "reward_gap": float(np.mean(gaps)),
        "effective_sample_size": float(np.mean(sizes)),
    }


def _step_estimate(
    reward: RewardHeads,
    demonstrations: Rows,
    background: Background,
    bootstrap: Tensor,
    config: LearnConfig,
    rng: np.random.Generator,
) -> Loss:
    n = config.batch_rows
    chosen = rng.integers(len(demonstrations), size=n)
    features = np.concatenate([demonstrations.features[chosen], background.draw_rows(n, rng)])
    rewards = reward(torch.from_numpy(features))
    return step_loss(rewards[:n], rewards[n:], bootstrap[demonstrations.trip[chosen]])


def _trajectory_estimate(
    reward: RewardHeads,
    demonstrations: Rows,
    background: Background,
    bootstrap: Tensor,
    config: LearnConfig,
    rng: np.random.Generator,
) -> Loss:
    demonstrated = take_paths(demonstrations, config.batch_paths, config.horizon, rng)
    # Line 4: append the demonstrations to the background batch, which stands first.
    batch = background.draw_paths(config.batch_paths, demonstrated, config.horizon, rng)
    rewards = reward(torch.from_numpy(batch.features))
    returns = torch.zeros(len(batch.log_q), rewards.shape[1]).index_add(0, torch.from_numpy(batch.path), rewards)
    first = np.searchsorted(demonstrated.path, np.arange(config.batch_paths))
    temperature = float(config.horizon) if config.temperature is None else config.temperature
    return trajectory_loss(
        returns[-config.batch_paths :],
        returns,
        torch.from_numpy(batch.log_q).float(),
        bootstrap[demonstrated.trip[first]],
        temperature,
    )


def _demonstrations(worlds: Sequence[World]) -> Rows:
    """The demonstrations of all worlds; trips are numbered through."""
    starts = itertools.accumulate([0, *(w.n_trips for w in worlds)])
    parts = [w.demonstrations() for w in worlds]
    return Rows.concat([replace(p, trip=p.trip + first) for p, first in zip(parts, starts, strict=False)])


def _background(
    worlds: Sequence[World],
    crowds: Sequence[Trajectories | None],
    config: LearnConfig,
    rng: np.random.Generator,
    start: Learned | None,
) -> Background:
    background = Background(dict(config.weights), config.capacity)
    if start is not None and len(worlds) == 1:
        background = start.background.refreshed(worlds[0].refresh)
    weights = background.weights
    share = max(1, config.imagined // len(worlds))
    for world, crowd in zip(worlds, crowds, strict=True):
        if weights.get("explore", 0.0) > 0:
            background.append("explore", world.imagine(share, config.explorers, rng))
        if crowd is not None and len(crowd) and weights.get("population", 0.0) > 0:
            background.append("population", world.others(crowd))
    return background


def _reward(
    demonstrations: Rows,
    background: Background,
    config: LearnConfig,
    rng: np.random.Generator,
    start: Learned | None,
) -> RewardHeads:
    if start is not None:
        return copy.deepcopy(start.reward)
    reward = RewardHeads(demonstrations.features.shape[1], config.reward, rng)
    seen = [demonstrations.features]
    if background.rows:
        seen.append(background.draw_rows(len(demonstrations), rng))
    reward.standardise(np.concatenate(seen))
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


def _bootstrap(n_trips: int, n_heads: int, training: Rows, rng: np.random.Generator) -> Tensor:
    """How often each head's bootstrap drew each trip: Poisson(1), the limit of drawing n of n with replacement."""
    drawn = rng.poisson(1.0, (n_trips, n_heads))
    empty = drawn[np.unique(training.trip)].sum(axis=0) == 0
    drawn[:, empty] = 1
    return torch.as_tensor(drawn, dtype=torch.float32)


def _capped(rows: Rows, most: int, rng: np.random.Generator) -> Rows:
    """At most ``most`` rows of each trip, drawn at random, in their order."""
    if not len(rows) or np.bincount(rows.trip).max() <= most:
        return rows
    order = np.lexsort((rng.random(len(rows)), rows.trip))
    rank = np.arange(len(rows)) - np.searchsorted(rows.trip[order], rows.trip[order])
    return rows[np.sort(order[rank < most])]


def _n_held_out(n_trips: int, share: float) -> int:
    """At least one where any are to be held out, but never the only demonstration."""
    return max(1, round(share * n_trips)) if share > 0 and n_trips > 1 else 0


@torch.no_grad()
def _held_out_score(
    reward: RewardHeads, left_out: Rows, background: Background, config: LearnConfig, rng: np.random.Generator
) -> dict[str, float]:
    """How far held-out demonstrations stand above the background: the difference of means over the pooled spread."""
    n = min(2048, max(len(left_out), 256))
    posterior = reward.posterior()
    own = posterior(left_out.features[rng.integers(len(left_out), size=n)])
    other = posterior(background.draw_rows(n, rng))
    if not (np.isfinite(own).all() and np.isfinite(other).all()):
        raise TrainingError("the reward exploded; the model was not changed. Lower learning_rate")
    spread = np.sqrt((own.mean(axis=1).var() + other.mean(axis=1).var()) / 2) + 1e-9
    return {
        "held_out_score": float((own.mean() - other.mean()) / spread),
        "head_spread": float(own.std(axis=1).mean()),
        "background_head_spread": float(other.std(axis=1).mean()),
    }
