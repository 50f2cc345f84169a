"""Learns a reward: from one agent by the algorithms of the paper, or from many agents without a policy.

:func:`learn_agent_reward` runs Algorithm 1 (:mod:`astray.irl.kdd19`), with additions that fields of
:class:`~astray.irl.learn_config.LearnConfig` switch on: held-out demonstrations that decide when to stop, several
sources of background, and a reward for each aspect. :func:`learn_shared_reward` learns one reward from many agents and
leaves out the policy, because each agent would need its own.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from astray.core.errors import TrainingError
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.irl.background import Background
from astray.irl.demonstrations import ActingDemonstrator, Demonstrator, Rows, cross_fit, held_out
from astray.irl.kdd19 import (
    Estimate,
    Evidence,
    Learner,
    Measures,
    algorithm_1,
    algorithm_2,
    bootstrap,
    first_policy,
    first_reward,
    trajectory_estimate,
)
from astray.irl.learn_config import LearnConfig, explorers_of
from astray.irl.objective import step_estimate
from astray.irl.policy import Generator
from astray.irl.posterior import RewardPosterior
from astray.irl.proposals import LogStart, Proposals
from astray.irl.reward import RewardHeads

Array = NDArray[Any]
Progress = Callable[[int, int, Mapping[str, float]], None]

PLATEAU = 1e-3  # the held-out loss has fallen only if it fell by more
LAST_RATE = 0.05  # the learning rate at the end, as a share of the first one
MEASURED = 1024  # rows of demonstrations, and of background, to measure the spread over the heads


@dataclass(frozen=True)
class Learned:
    """The result of learning, with everything needed to continue it."""

    posterior: RewardPosterior  # the K reward functions, as arrays
    history: pl.DataFrame  # one row for each iteration
    unseen: NDArray[np.bool_]  # (trips, heads): True where a head has not learned from a demonstration
    apart: NDArray[np.bool_]  # (trips, heads): True where no head of its network has, which shares layers with it
    reward: RewardHeads = field(repr=False)
    generator: Generator | None = field(repr=False)
    backgrounds: dict[str, Background] = field(repr=False)  # by aspect


# -------------------------------------------------------------------- one agent


def learn_agent_reward(
    agent: ActingDemonstrator,
    config: LearnConfig,
    rng: np.random.Generator,
    *,
    population: Sized | None = None,
    given: Trajectories | None = None,
    generator: Generator | None = None,
    start: Learned | None = None,
    progress: Progress | None = None,
) -> Learned:
    """Learns the reward of one agent, and the policy that generates its background.

    Parameters
    ----------
    agent
        The target agent.
    config
        The settings; :data:`astray.irl.kdd19.KDD19` are those of the paper.
    population
        Trajectories of other agents, for the background.
    given
        The user's own trajectories for the background; their weight is 1 unless ``config.weights`` has another.
    generator
        A policy with its policy-gradient method, to use instead of TRPO.
    start
        An earlier result to continue, after the agent has gained demonstrations. Its reward, policy and background are
        kept; the features of the background are recomputed with the present memory.
    progress
        Called as ``progress(iteration, iterations, measures)`` after each iteration.

    Raises
    ------
    TrainingError
        If a loss or a reward is not a finite number. Nothing that was passed in has been changed.
    """
    demonstrations, names = agent.demonstrations(), agent.names  # Algorithm 1, line 1
    if config.objective == "trajectory":
        demonstrations = demonstrations.cut(config.horizon)
    apart = hold_out(names, np.unique(demonstrations.trip), config)
    out = np.flatnonzero(apart.all(axis=1))
    if len(out):
        # Counterfactuals and rollouts resemble their originals, so make none from held-out demonstrations.
        agent = agent[~np.isin(np.arange(len(names)), out)]
    earlier = {} if start is None else {a: b.refreshed(agent.refresh) for a, b in start.backgrounds.items()}
    log_start = getattr(agent.dynamics, "log_start", None) if config.rollouts else None
    backgrounds = fill_backgrounds([agent], [population], config, rng, earlier, log_start)
    for background in backgrounds.values() if given is not None else ():
        background.weights.setdefault("given", 1.0)
        background.append("given", agent.others(given))
    reward = first_reward(demonstrations, backgrounds, config, rng) if start is None else copy.deepcopy(start.reward)
    if not config.rollouts:  # the policy's part of Algorithm 1, line 2
        generator = None
    elif generator is None:
        generator = copy.deepcopy(start.generator) if start else first_policy(demonstrations, config, rng)
    who = np.repeat(agent.agent, len(names))
    learner = _learner(reward, generator, demonstrations, apart, who, backgrounds, config, rng)
    if generator is None:
        iterations = reward_updates(learner, config, rng)
    else:
        lengths = np.bincount(demonstrations.path)
        lengths = lengths if config.horizon is None else np.minimum(lengths, config.horizon)
        iterations = algorithm_1(learner, agent, lengths, config, rng)
    return _run(iterations, learner, demonstrations, apart, config, rng, progress, resumed=start is not None)


# -------------------------------------------------------------------- many agents


def learn_shared_reward(
    agents: Sequence[Demonstrator],
    config: LearnConfig,
    rng: np.random.Generator,
    *,
    others: Sequence[Sized | None] | None = None,
    groups: Sequence[NDArray[np.bool_]] = (),
    start: RewardHeads | None = None,
    progress: Progress | None = None,
) -> Learned:
    """Learns one reward that serves all of these agents, without a policy.

    Parameters
    ----------
    agents
        The agents that demonstrate; the same agent may occur several times, with different memories.
    config
        The settings; the trips of an agent are drawn and held out together.
    others
        Trips of other agents for the background, one set for each agent.
    groups
        Features that may be missing together: each group is hidden from a share of the rows (``config.missing``), so
        that the reward learns to do without it.
    start
        An earlier reward to continue; its weights become the mean of the prior.
    progress
        Called as ``progress(iteration, iterations, measures)`` after each iteration.

    Raises
    ------
    TrainingError
        If a loss or a reward is not a finite number. Nothing that was passed in has been changed.
    """
    demonstrations = _number_trips(agents)
    who = np.repeat([a.agent for a in agents], [len(a.names) for a in agents])
    # If there are too few agents to hold one out, hold out single trips.
    by_agent = len(np.unique(who)) * config.held_out >= 1
    units = who.tolist() if by_agent else [name for a in agents for name in a.names]
    apart = hold_out(units, np.unique(demonstrations.trip), config)
    backgrounds = fill_backgrounds(agents, others or [None] * len(agents), config, rng)
    if start is None:
        reward = first_reward(demonstrations, backgrounds, config, rng)
    else:
        reward = copy.deepcopy(start)
        reward.use_as_prior()
    learner = _learner(reward, None, demonstrations, apart, who, backgrounds, config, rng, groups)
    iterations = reward_updates(learner, config, rng)
    return _run(iterations, learner, demonstrations, apart, config, rng, progress, resumed=start is not None)


def bootstrap_agents(who: NDArray[np.str_], n_heads: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draws bootstrap counts (trips, heads): first agents, then their trips; ``who`` is the agent of each trip.

    Counts are Poisson(1), the limit of drawing n out of n with replacement, so that an agent's trips need not add up to
    anything.
    """
    trips = rng.poisson(1.0, (len(who), n_heads))
    agents, number = np.unique(who, return_inverse=True)
    return trips * rng.poisson(1.0, (len(agents), n_heads))[number] if len(agents) > 1 else trips


def reward_updates(learner: Learner, config: LearnConfig, rng: np.random.Generator) -> Iterator[Measures]:
    """Runs Algorithm 1 without its policy: samples a head, updates the reward, and yields the measures."""
    for _ in range(config.iterations):
        k = int(rng.integers(learner.reward.n_heads))
        yield {"head": k} | algorithm_2(learner, None if config.all_heads else k, config, rng)


# -------------------------------------------------------------------- the background without a policy


def fill_backgrounds(
    agents: Sequence[Demonstrator],
    others: Sequence[Sized | None],
    config: LearnConfig,
    rng: np.random.Generator,
    earlier: Mapping[str, Background] | None = None,
    log_start: LogStart | None = None,
) -> dict[str, Background]:
    """Returns the background of each aspect: counterfactuals of the agents' trips, and other agents' trips.

    Only the first aspect has other agents (and the policy) in its background. New rows are added to the ``earlier``
    backgrounds. ``log_start`` is the log-density of first states, if rollouts do not begin where demonstrations do.
    """
    aspects = explorers_of(config)
    first, *_ = aspects
    share = max(1, config.imagined // len(agents))
    seed = int(rng.integers(2**32)) if config.objective == "trajectory" else 0  # of clones
    backgrounds = {}
    for aspect, explorers in aspects.items():
        weights = dict(config.weights) if aspect == first else {"explore": 1.0}
        weighed = Proposals(config.horizon, log_start, seed) if config.objective == "trajectory" else None
        background = Background(weights if explorers else weights | {"explore": 0.0}, config.capacity, weighed)
        background = (earlier or {}).get(aspect, background)
        for agent, population in zip(agents, others, strict=True):
            if explorers:
                background.append("explore", agent.imagine(share, explorers, rng))
            if population is not None and len(population) and background.weights.get("population", 0.0) > 0:
                background.append("population", agent.others(population))
        backgrounds[aspect] = background
    return backgrounds


# -------------------------------------------------------------------- what both share


def _number_trips(agents: Sequence[Demonstrator]) -> Rows:
    """Joins the demonstrations of all agents; numbers the second agent's trips after the first's, and so on."""
    starts = itertools.accumulate([0, *(len(a.names) for a in agents)])
    parts = [a.demonstrations() for a in agents]
    return Rows.concat([replace(p, trip=p.trip + first) for p, first in zip(parts, starts, strict=False)])


def hold_out(
    names: Sequence[TripId] | Sequence[str], present: NDArray[np.int64], config: LearnConfig
) -> NDArray[np.bool_]:
    """Returns a mask (trips, heads) of the demonstrations that are held out from all heads of a network."""
    networks, heads = config.reward.networks, config.reward.heads
    if config.crosses:
        return cross_fit(names, present, networks, heads)
    apart = np.zeros((len(names), networks * heads), np.bool_)
    apart[held_out(names, present, config.held_out)] = True
    return apart


def _learner(
    reward: RewardHeads,
    generator: Generator | None,
    demonstrations: Rows,
    apart: NDArray[np.bool_],
    who: NDArray[np.str_],
    backgrounds: Mapping[str, Background],
    config: LearnConfig,
    rng: np.random.Generator,
    groups: Sequence[NDArray[np.bool_]] = (),
) -> Learner:
    """Assembles a learner that holds out the trips ``apart`` from heads; ``who`` is the agent of each trip."""
    training = demonstrations[~np.asarray(apart.all(axis=1))[demonstrations.trip]]
    trips = np.unique(training.trip)
    by_trip = config.objective == "trajectory"
    counts = bootstrap(len(who), reward.n_heads, rng) if by_trip else bootstrap_agents(who, reward.n_heads, rng)
    drawn = np.where(apart, 0, counts)
    none = drawn[trips].sum(axis=0) == 0  # a head that drew no trip to learn from gets each trip once
    drawn[:, none] = ~apart[:, none]
    # Trips of one agent are similar, so only agents count as independent demonstrations.
    independent = len(trips) if len(np.unique(who)) == 1 else len(np.unique(who[trips]))
    evidence = Evidence(training, backgrounds, torch.as_tensor(drawn, dtype=torch.float32), _made(apart, config))
    estimate: Estimate = partial(step_estimate, groups=groups) if config.objective == "step" else trajectory_estimate
    independent = independent if config.divide_prior else 1
    optimiser = torch.optim.Adam(reward.parameters(), lr=config.learning_rate)
    steps = config.iterations * config.updates
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, LAST_RATE, total_iters=steps)
    return Learner(reward, generator, evidence, independent, estimate, optimiser, schedule)


def _made(apart: NDArray[np.bool_], config: LearnConfig) -> torch.Tensor | None:
    """Returns (trips + 1, heads): 1 where a head may learn from counterfactuals of a trip; last: from those of none."""
    if not config.crosses:
        return None
    return torch.as_tensor(np.vstack([~apart, np.ones_like(apart[:1])]), dtype=torch.float32)


def _run(
    iterations: Iterator[Measures],
    learner: Learner,
    demonstrations: Rows,
    apart: NDArray[np.bool_],
    config: LearnConfig,
    rng: np.random.Generator,
    progress: Progress | None,
    *,
    resumed: bool,
) -> Learned:
    """Runs iterations until the loss stops falling, and returns the reward.

    If trips are held out (``apart``), the loss is measured on them, each by the heads that it is held out from, and
    the result is the reward with the lowest loss.
    """
    seed = int(rng.integers(2**32))
    reward, evidence = learner.reward, learner.evidence
    counted = apart if apart.any() else np.ones_like(apart)
    rows = evidence.demonstrations  # if nothing is held out: their densities are known
    if apart.any():
        rows = demonstrations[np.asarray(apart.any(axis=1))[demonstrations.trip]]
    tested = replace(evidence, demonstrations=rows, bootstrap=torch.as_tensor(counted, dtype=torch.float32))
    history: list[Measures] = []
    lowest, best, since = np.inf, copy.deepcopy(reward.state_dict()), 0
    for number, measures in enumerate(iterations):
        measures = {"iteration": number} | measures | measure(reward, tested, config, seed)
        history.append(measures)
        if progress is not None:
            progress(number + 1, config.iterations, measures)
        since += 1
        if measures["held_out_loss"] < lowest - PLATEAU:
            lowest, best, since = measures["held_out_loss"], copy.deepcopy(reward.state_dict()), 0
        if since >= config.patience:
            break
    if config.held_out or config.crosses:
        reward.load_state_dict(best)
    # There is no record of the trips that an earlier reward has learned from: assume all but the held-out ones.
    unseen = (evidence.bootstrap.numpy() == 0) & (not resumed)
    unseen |= apart
    kept = dict(evidence.backgrounds)
    return Learned(reward.posterior(), pl.DataFrame(history), unseen, apart, reward, learner.generator, kept)


@torch.no_grad()
def measure(reward: RewardHeads, tested: Evidence, config: LearnConfig, seed: int) -> Measures:
    """Returns the loss on demonstrations, and the spread over the heads on demonstrations and on background.

    The same ``seed`` draws the same rows, which makes iterations comparable.
    """
    rng, demonstrations, backgrounds = np.random.default_rng(seed), tested.demonstrations, tested.backgrounds
    estimate: Estimate = step_estimate if config.objective == "step" else trajectory_estimate
    loss = estimate(reward, tested, config, rng)
    posterior = reward.posterior()
    own = posterior(demonstrations.features[demonstrations.draw(MEASURED, rng)])
    other = np.concatenate([posterior(b.draw_rows(MEASURED // len(backgrounds), rng)) for b in backgrounds.values()])
    if not (np.isfinite(own).all() and np.isfinite(other).all()):
        raise TrainingError("the reward exploded, so the model was not changed", remedy="lower learning_rate")
    return {
        "held_out_loss": float(loss.per_head.mean()) / len(backgrounds),
        "head_spread": float(own.std(axis=2).mean()),
        "background_head_spread": float(other.std(axis=2).mean()),
    }
