"""Learns the shared reward from many agents, or from a pool, whose trips are treated as one agent's.

The statistics of a trip are relative to its agent's memory, so a reward that was learned from some agents serves all,
even new ones. Their trips are compared with other agents' trips and with counterfactuals. Every agent demonstrates
several times, with memories of different lengths, so that the reward learns how little a short history means.

A fleet's agents continue to teach the whole reward. The population of a model of one agent teaches a second stage
(:mod:`astray.irl.second_stage`), in seconds, which is kept only if agents that were held out of it are better for it.

A pool, such as the taxis of a town, does not have the habits of a person, so the shared reward detects little in it.
So the reward continues to learn from the pool itself: it compares the pool's trips with counterfactuals in another
place, on another route, at another pace or hour.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import DataError, Option, Remedy
from astray.core.extras import require_extra
from astray.core.threads import one_thread
from astray.core.trajectories import Trajectories
from astray.features.featurizer import Featurizer, FeaturizerConfig, Prepared
from astray.features.popularity import Popularity
from astray.irl import second_stage
from astray.irl.demonstrations import held_out
from astray.irl.keyed_trips import KeyedTrips
from astray.irl.posterior import RewardPosterior
from astray.irl.second_stage import Compared
from astray.irl.shared import BANDS, Reference, Reward, band_of, trip_rewards
from astray.irl.trip_demonstrator import TripDemonstrator
from astray.model.checkpoint import restore_reward
from astray.model.configuration import aspect_weights
from astray.model.parameters import Parameters
from astray.model.plain_values import configured
from astray.model.trip_selection import drawn, remember, sample
from astray.scoring.normality import over_heads
from astray.scoring.own_scale import SeenTrips, lowest_running
from astray.scoring.scale_config import ScaleConfig

if TYPE_CHECKING:
    from astray.irl.learn_config import LearnConfig

Array = NDArray[Any]
Progress = Callable[[int, int, Mapping[str, float]], None]

STEP_TEACHERS = 200  # the most teachers that the step reward learns from
STEP_IMAGINED = 10  # counterfactual trips for each teacher of the step reward
IN_A_BAND = 10  # the fewest memories in each band of history for the reference
SHORTEST = 3.0  # the fewest trips of a shortened memory
STEP_TRIPS = 10  # trips of each memory whose steps enter the reference


@dataclass(frozen=True)
class SharingConfig:
    """The settings of learning a shared reward from agents."""

    max_agents: int = 64  # the most agents of a place that teach, drawn at random
    least_agents: int = 2  # with fewer teaching agents nothing is learned
    least_trips: int = 10  # an agent with fewer does not teach
    max_trips: int = 400  # the most trips of one agent
    memories: int = 3  # memories of each agent: one of all its trips, the others shorter
    shortest: int = 3  # the fewest trips of a shorter memory
    longest: int = 120  # the most trips of a shorter memory
    demonstrations: int = 100  # trips that an agent demonstrates with its whole memory
    short_demonstrations: int = 60  # trips that an agent demonstrates with a shorter memory
    others: float = 2.0  # trips of other agents for each demonstration
    imagined: int = 30  # counterfactual trips for each aspect and memory
    reference: int = 200  # normal trips in each band of history; their rewards are the reference


class Teacher(NamedTuple):
    """An agent with a memory: its demonstrations, and the other agents' trips that they are compared with."""

    world: TripDemonstrator
    others: KeyedTrips


def teachers(
    trips: Trajectories,
    config: FeaturizerConfig,
    sharing: SharingConfig,
    rng: np.random.Generator,
    blank: Featurizer | None = None,
) -> list[Teacher]:
    """Returns the agents of one place as teachers, each with several memories.

    ``blank`` is a featurizer that remembers no trip but knows where these agents go, if the caller has one.
    """
    agents, able = np.unique(trips.agent_ids), able_agents(trips, sharing)
    chosen = np.sort(rng.choice(able, min(sharing.max_agents, len(able)), replace=False))
    if len(chosen) < max(sharing.least_agents, 2):
        return []
    some = Trajectories.concat([sample(trips.agent(a), sharing.max_trips, rng) for a in agents])
    known = Featurizer.of(some, config, rng) if blank is None else blank
    prepared = known.prepare(some)
    blank = known.among(some, prepared.paths) if blank is None else blank
    population = KeyedTrips.of(some, blank, prepared.paths)
    found = []
    for agent in chosen.tolist():
        at = np.flatnonzero(some.agent_ids == agent)
        own = prepared[at]
        whole = remember(replace(blank, popularity=blank.popularity.excluding(agent)), own)
        ids = own.trips.ids
        for turn in range(sharing.memories):
            order = rng.permutation(len(ids))
            low, high = np.log(sharing.shortest), np.log(max(min(len(ids) - 1, sharing.longest), sharing.shortest))
            size = len(ids) if turn == 0 else min(round(np.exp(rng.uniform(low, high))), len(ids) - 1)
            featurizer = whole.forget(ids[i] for i in order[size:])
            shown = order[: sharing.demonstrations if turn == 0 else sharing.short_demonstrations]
            if turn:  # half of the demonstrations are new to a shorter memory
                half = sharing.short_demonstrations // 2
                shown = np.concatenate([order[:size][:half], order[size:][:half]])
            world = TripDemonstrator.among(population, at[np.sort(shown)], featurizer, rng)
            if world is not None:
                others = population.others(agent, round(sharing.others * len(shown)), rng)
                found.append(Teacher(world, others))
    return found


def able_agents(trips: Trajectories, sharing: SharingConfig) -> NDArray[np.str_]:
    """Returns the agents of one place that have enough trips to learn from."""
    agents, counts = np.unique(trips.agent_ids, return_counts=True)
    return np.asarray(agents[(counts >= sharing.least_trips) & (agents != "")])


def share(
    places: Iterable[Trajectories],
    config: FeaturizerConfig,
    learning: LearnConfig,
    sharing: SharingConfig,
    rng: np.random.Generator,
    *,
    start: Reward | None = None,
    step_learning: LearnConfig | None = None,
    progress: Progress | None = None,
) -> Reward | None:
    """Learns a reward from the agents of several places; returns None if they have too few trips.

    Each place has trips of many agents, and an agent is compared with others of the same place. ``start`` is an earlier
    reward to continue, whose step reward does not change; without it, the step reward is learned by ``step_learning``.
    """
    taught, of_reference = _taught(places, config, sharing, rng)
    if not taught:
        return None
    if start is None and step_learning is None:
        raise DataError("there is no step reward to start from", remedy="give step_learning, the settings to learn one")
    kept: Remedy = "" if start is None else ("pass ", Option("iterations", 0), " to leave the reward as it is")
    require_extra("learn", "learning a reward from several agents", "torch", otherwise=kept)
    from astray.irl.trainer import learn_shared_reward  # which takes seconds to import

    worlds, others = [t.world for t in taught], [t.others for t in taught]
    learning = replace(learning, imagined=sharing.imagined * len(worlds))
    with one_thread():
        begun = None if start is None or start.trip is None else restore_reward(start.trip, learning, rng)
        learned = learn_shared_reward(
            worlds, learning, rng, others=others, groups=worlds[0].groups, start=begun, progress=progress
        )
        if start is not None:
            step = start.step
        else:
            assert step_learning is not None  # checked above
            step = _step_reward(taught, step_learning, rng)
    reference = refer(worlds, Reward(step, learned.posterior), sharing.reference, of_reference)
    return Reward(step, learned.posterior, reference, history=learned.history)


def refer_again(
    reward: Reward,
    places: Iterable[Trajectories],
    config: FeaturizerConfig,
    sharing: SharingConfig,
    rng: np.random.Generator,
) -> Reward:
    """Returns the same reward with its reference measured anew: the one that :func:`share` gives it, to rounding."""
    taught, of_reference = _taught(places, config, sharing, rng)
    if not taught:
        raise DataError("the agents have too few trips for a reference", remedy="give more trips of each agent")
    with one_thread():
        return replace(reward, reference=refer([t.world for t in taught], reward, sharing.reference, of_reference))


def _taught(
    places: Iterable[Trajectories], config: FeaturizerConfig, sharing: SharingConfig, rng: np.random.Generator
) -> tuple[list[Teacher], np.random.Generator]:
    """Returns the teachers, and a generator for the reference, which so does not depend on what learning draws."""
    taught = [teacher for place in places for teacher in teachers(place, config, sharing, rng)]
    return taught, np.random.default_rng(rng.integers(2**63))


def _step_reward(taught: Sequence[Teacher], learning: LearnConfig, rng: np.random.Generator) -> RewardPosterior:
    """Learns the reward of steps from the same agents and memories."""
    from astray.irl.trainer import learn_shared_reward

    some = rng.permutation(len(taught))[:STEP_TEACHERS]
    both = [(taught[i].world.steps(len(taught[i].world.trips)), taught[i].others) for i in some]
    able = [(world, others) for world, others in both if world is not None]
    learning = replace(learning, imagined=STEP_IMAGINED * len(able))
    return learn_shared_reward([w for w, _ in able], learning, rng, others=[o for _, o in able]).posterior


def refer(
    worlds: Sequence[TripDemonstrator],
    reward: Reward,
    n: int,
    rng: np.random.Generator,
    weights: Sequence[float] | None = None,
    config: ScaleConfig | None = None,
    earlier: Reference | None = None,
) -> Reference:
    """Returns the rewards of normal trips, each by the trips before it: ``n`` in each band of the number of these.

    ``weights`` are those of the aspects by which a trip's lowest running score is found; by default those of one agent.
    If an ``earlier`` reference is given, its steps and its noise stay, and only trips are measured.
    """
    assert reward.trip is not None
    weights = aspect_weights(reward.aspects, None) if weights is None else weights
    n_bands = len(BANDS) + 1
    parts: list[list[list[Array]]] = [[[] for _ in range(n_bands)] for _ in range(4)]
    trips, under_way, steps, typical = parts
    moved: list[float] = []
    for world in worlds:
        past = _past_of(world, reward, weights, config or ScaleConfig())
        for band in range(n_bands):
            here = (band_of(past.before) == band) & ~np.isnan(past.whole).any(axis=1)
            for part, values in ((trips, past.whole), (under_way, past.lowest), (typical, past.statistics)):
                part[band].append(values[here])
    for world in [*worlds, *_shortened(worlds, rng)] if earlier is None else ():
        stepped, band = world.steps(STEP_TRIPS), int(band_of(world.featurizer.memory.history))
        if stepped is not None:
            steps[band].append(reward.step(stepped.demonstrations().features).mean(axis=2))
        moved += _variance_by_memory(world, reward.trip, rng)

    def of_bands(parts: Sequence[Sequence[Array]]) -> list[Array]:
        """Concatenates the parts of each band; an empty band takes those of the nearest one, preferring shorter."""
        filled = [b for b in range(n_bands) if sum(map(len, parts[b]))]
        return [np.concatenate(parts[min(filled, key=lambda f: (abs(f - b), f))]) for b in range(n_bands)]

    def drawn(parts: Sequence[Sequence[Array]]) -> NDArray[np.float32]:
        return np.stack([p[rng.choice(len(p), n, replace=len(p) < n)] for p in of_bands(parts)]).astype(np.float32)

    with warnings.catch_warnings():  # the median of a statistic that is always missing is NaN
        warnings.simplefilter("ignore", RuntimeWarning)
        medians = np.stack([np.nanmedian(p, axis=0) for p in of_bands(typical)]).astype(np.float32)
    medians = np.where(
        np.isnan(medians), np.append(reward.trip.mean, np.float32(0.0)), medians
    )  # the reward, too, replaces missing values by the mean
    if earlier is not None:
        return replace(earlier, trips=drawn(trips), under_way=drawn(under_way), typical=medians)
    noise = float(np.sqrt(np.mean(moved))) if moved else 0.0
    return Reference(drawn(trips), drawn(under_way), drawn(steps), medians, noise)


class _Past(NamedTuple):
    """An agent's trips, each by the trips before it; NaN for a trip without a step."""

    before: NDArray[np.int64]  # how many came before each
    whole: NDArray[np.float64]  # the rewards of whole trips: (trips, aspects)
    lowest: NDArray[np.float64]  # the rewards at the lowest running score: (trips, aspects)
    statistics: NDArray[np.float32]


def _past_of(world: TripDemonstrator, reward: Reward, weights: Sequence[float], config: ScaleConfig) -> _Past:
    """Scores an agent's demonstrations by those trips of its memory that came before each of them."""
    assert reward.trip is not None
    memory, rows = world.featurizer.memory.ordered(), world.rows
    featurizer, number = world.featurizer.with_memory(memory), memory.number_of(world.names)
    began = world.trips.columns["time"][world.trips.offsets[:-1]]
    before = np.where(number >= 0, number, np.searchsorted(memory.times, began))
    familiar, statistics = featurizer.measure(rows, before=before)
    seen = SeenTrips(rows, familiar, trip_rewards(reward.trip, statistics), before)
    lowest = lowest_running(seen, featurizer, reward, weights, config)
    return _Past(before, seen.rewards.mean(axis=2), lowest, statistics)


def _shortened(worlds: Sequence[TripDemonstrator], rng: np.random.Generator) -> list[TripDemonstrator]:
    """Returns the same agents with shorter memories, to fill bands of history that have few memories."""
    band = band_of(np.array([world.featurizer.memory.history for world in worlds]))
    found = []
    for b, (low, high) in enumerate(zip((SHORTEST, *BANDS[:-1]), BANDS, strict=True)):
        longer = np.flatnonzero(band > b)
        lacking = max(IN_A_BAND - int((band == b).sum()), 0)
        for i in rng.permutation(longer)[:lacking].tolist():
            ids = worlds[i].featurizer.memory.trip_ids
            order, kept = rng.permutation(len(ids)), int(rng.integers(int(low), int(high)))
            found.append(replace(worlds[i], featurizer=worlds[i].featurizer.forget(ids[k] for k in order[kept:])))
    return found


def _variance_by_memory(world: TripDemonstrator, reward: RewardPosterior, rng: np.random.Generator) -> list[float]:
    """Returns how much rewards vary with the memory: the variance between two halves, times the trips in a half."""
    ids = list(world.featurizer.memory.trip_ids)
    half = len(ids) // 2
    if half < 2:
        return []
    order = rng.permutation(len(ids))
    both = []
    for part in (order[:half], order[half : 2 * half]):
        featurizer = world.featurizer.forget([ids[i] for i in order if i not in set(part.tolist())])
        rows = world.rows[np.arange(min(world.rows.n_trips, 20))]
        number = featurizer.memory.number_of(world.names[: rows.n_trips])
        statistics = featurizer.measure(rows, number)[1]
        both.append(over_heads(trip_rewards(reward, statistics), [1.0] * len(reward.aspects)))
    apart = both[0] - both[1]
    # The difference of two equally uncertain scores has twice the variance of one.
    return [float(np.nanmean(np.square(apart))) / 2.0 * (1.0 + half)]


@dataclass(frozen=True)
class GoingOnConfig(SharingConfig):
    """The settings with which a shared reward continues to learn."""

    least_agents: int = 12  # fewer agents would teach their own habits as everybody's
    memories: int = 4
    demonstrations: int = 60
    short_demonstrations: int = 40
    imagined: int = 8
    iterations: int = 24  # N of Algorithm 1
    prior_variance: float = 0.05  # for the least number of agents; the prior's mean is the earlier reward
    slowing: float = 0.5  # the learning rate, as a share of that of a new reward
    # The others are for a second stage, which is what a model of one agent learns from a population.
    stage_agents: int = 24  # the most agents that teach it, drawn at random; more take longer and add little
    stage_demonstrations: int = 25  # trips that each of them demonstrates
    ridge: float = 50.0  # one over the variance of the Gaussian prior of its weights
    folds: int = 5  # groups of agents that are held out in turn, to measure whether it is better

    def variance(self, n_agents: int) -> float:
        """Returns the prior's variance; it grows with the square of the number of agents, as few agents vary little.

        >>> [round(GoingOnConfig().variance(n), 2) for n in (12, 24, 48)]
        [0.05, 0.2, 0.8]
        """
        return self.prior_variance * (min(n_agents, self.max_agents) / self.least_agents) ** 2


def go_on(
    reward: Reward,
    population: Trajectories,
    config: FeaturizerConfig,
    sharing: GoingOnConfig | Mapping[str, Any] | None,
    rng: np.random.Generator,
    iterations: int | None = None,
    progress: Progress | None = None,
) -> Reward | None:
    """Continues to learn a shared reward from the agents of a fleet, and returns it.

    Returns None, and leaves the reward as it is, if too few agents have enough trips or ``iterations`` is 0.
    """
    if iterations == 0:
        return None
    from astray.irl.learn_config import TRIPS

    going_on = configured(GoingOnConfig(), sharing)
    # The prior holds the reward back, so no agent needs to be held out to decide when to stop.
    learning = replace(
        TRIPS,
        reward=replace(TRIPS.reward, prior_variance=going_on.variance(max(len(able_agents(population, going_on)), 1))),
        learning_rate=going_on.slowing * TRIPS.learning_rate,
        iterations=iterations or going_on.iterations,
        held_out=0.0,
    )
    found = share([population], config, learning, going_on, rng, start=reward, progress=progress)
    return None if found is None else replace(found, made={**reward.made, "went_on": reward.made.get("went_on", 0) + 1})


def add_second_stage(
    reward: Reward,
    population: Trajectories,
    featurizer: Featurizer,
    sharing: GoingOnConfig | Mapping[str, Any] | None,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> Reward | None:
    """Learns a second stage of a shared reward from the agents of a population; needs no torch.

    The second stage is kept only if agents that were held out of it are better for it. If not, the reward judges as
    before. ``made`` says which it was; ``history`` has what was measured on those agents, before and with the stage.
    Returns None if too few agents have enough trips. The ``featurizer`` must know where the population goes; what it
    remembers does not matter.
    """
    going_on = configured(GoingOnConfig(), sharing)
    most = min(going_on.max_agents, going_on.stage_agents)
    few = replace(going_on, max_agents=most, memories=1, demonstrations=going_on.stage_demonstrations)
    with one_thread():
        blank = featurizer.forget(featurizer.memory.trip_ids)
        taught = teachers(population, featurizer.config, few, rng, blank)
        if not taught:
            return None
        assert reward.trip is not None
        place, trips = reward.aspects[0], compared(taught)
        both = second_stage.measure_held_out(reward.trip, trips, place, going_on.ridge, going_on.folds)
        kept = second_stage.is_better(*both)
        measures = [
            {"iteration": i, "held_out_loss": float(m.loss.mean()), "held_out_auroc": float(m.auroc.mean())}
            for i, m in enumerate(both)
        ]
        tried = [*reward.made.get("second_stages", ()), {"people": len(both[0].loss), "kept": kept}]
        found = replace(reward, made={**reward.made, "second_stages": tried}, history=pl.DataFrame(measures))
        if kept:
            stage = second_stage.learn_second_stage(reward.trip, trips, place, going_on.ridge, rng)
            found = replace(found, trip=second_stage.add_linear(reward.trip, place, stage))
            worlds = [teacher.world for teacher in taught]
            about = refer(worlds, found, going_on.reference, rng, earlier=reward.reference)
            found = replace(found, reference=about)
    if progress is not None:
        progress(1, 1, measures[1])
    return found


def compared(taught: Sequence[Teacher]) -> Compared:
    """Returns the whole trips of teachers, and others' trips, each compared with the memory of the teacher."""
    parts = []
    for world, others in taught:
        own, foreign = world.whole(), world.whole_of(others)
        made = np.repeat([True, False], [len(own), len(foreign)])
        maker = np.append(np.repeat(world.agent, len(own)), others.agents)
        of_agent = np.repeat(world.agent, len(made))
        part = Compared(np.concatenate([own, foreign]), made, of_agent, maker)
        parts.append(part[np.flatnonzero(~np.isnan(part.statistics).all(axis=1))])
    return Compared(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Compared)))


def popularity_of(trips: Trajectories, config: FeaturizerConfig) -> Popularity:
    """Returns how many agents go to each place."""
    return Featurizer.of(trips, config, np.random.default_rng(0)).among(trips).popularity


# -------------------------------------------------------------------- a pool


@dataclass(frozen=True)
class PoolConfig:
    """The settings of learning from a pool."""

    held_out: float = 0.2  # share of the trips to hold out; they set the scale of normal scores
    max_trips: int = 2000  # the most trips that the reward of trips learns from
    step_trips: int = 400  # the most trips that the reward of steps learns from
    imagined: int = 1  # counterfactual trips for each aspect and each trip
    least_imagined: int = 600  # the fewest counterfactual trips for each aspect
    reference: int = 200  # normal trips whose rewards are the reference


def pool_reward(
    parameters: Parameters,
    past: Prepared,
    featurizer: Featurizer,
    population: KeyedTrips | None,
    rng: np.random.Generator,
    start: Reward,
) -> tuple[Reward, Prepared] | None:
    """Continues to learn a shared reward from a pool, whose trips the featurizer remembers.

    Returns the reward and the trips that it did not learn from; None if the pool has too few trips, or ``iterations``
    is 0.
    """
    if parameters.iterations == 0:
        return None
    kept = ("pass ", Option("iterations", 0), " to leave the reward as it is")
    require_extra("learn", "learning a reward from a pool", "torch", otherwise=kept)
    from astray.irl.learn_config import POOL, STEPS
    from astray.irl.trainer import learn_shared_reward

    assert start.trip is not None
    pool = PoolConfig()
    whole = KeyedTrips.of(past.trips, featurizer, past.paths)
    present = np.unique(whole.paths.context["trip"][whole.paths.lengths > 1])
    out = held_out(past.trips.ids, present, pool.held_out)
    shown = np.setdiff1d(present, out)
    shown = shown[drawn(len(shown), pool.max_trips, rng)]
    some = out[drawn(len(out), pool.reference, rng)]
    world, reference = (
        TripDemonstrator.among(whole, which, featurizer, rng) if len(which) else None for which in (shown, some)
    )
    steps = None if world is None else world.steps(pool.step_trips)
    if world is None or reference is None or steps is None:
        return None
    imagined = max(pool.imagined * len(shown), pool.least_imagined)
    learning = replace(POOL, iterations=parameters.iterations or POOL.iterations, imagined=imagined)
    step_learning = replace(STEPS, iterations=parameters.iterations or STEPS.iterations)
    with one_thread():
        learned = learn_shared_reward(
            [world],
            learning,
            rng,
            others=[population],
            groups=world.groups,
            start=restore_reward(start.trip, learning, rng),
            progress=parameters.progress,
        )
        step = learn_shared_reward([steps], step_learning, rng, others=[population]).posterior
    reward = Reward(step, learned.posterior, made={**start.made, "pool": len(shown)}, history=learned.history)
    reward = replace(
        reward,
        reference=refer([reference], reward, pool.reference, rng, aspect_weights(reward.aspects, None, pooled=True)),
    )
    return reward, past[np.setdiff1d(np.arange(len(past.trips)), shown)]
