"""Fits the reward and the memories of a model of GPS trips: for one agent, for a pool, or for many agents."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from astray.core.errors import DataError
from astray.core.projection import Projection
from astray.core.settings import PAPER_PRESETS
from astray.core.trajectories import Trajectories
from astray.features.context import Context
from astray.features.encoders import OwnEncoder
from astray.features.featurizer import Featurizer, FeaturizerConfig, Prepared, sampling_interval
from astray.features.popularity import Counted, Keys, Popularity, Visits
from astray.irl.keyed_trips import KeyedTrips
from astray.irl.shared import Reward
from astray.model.agent_memory import FINE, AgentMemory, as_kept
from astray.model.configuration import featurizer_config, hours_from, observing_config, own_explorers, scale_config
from astray.model.inbox import Inbox
from astray.model.parameters import Parameters
from astray.model.plain_values import plain
from astray.model.pretrained import pretrained, read_reward
from astray.model.shared_training import add_second_stage, go_on, pool_reward, popularity_of
from astray.model.trip_selection import drawn, thin, without
from astray.scoring.own_scale import fits, scored_past

OF_PAPER = dict(
    zip(PAPER_PRESETS, (FeaturizerConfig(encoder=e, interval=900.0) for e in ("raw", "fourier")), strict=True)
)
"""The featurizers of the presets that follow the paper."""


# -------------------------------------------------------------------- which featurizer


def blank_featurizer(parameters: Parameters, trips: Trajectories, rng: np.random.Generator) -> Featurizer:
    """Returns the featurizer of one agent's or one pool's trips, with nothing remembered yet."""
    if parameters.dynamics is not None:
        raise DataError(
            "dynamics are for states and actions, but these are GPS trips, which move by their velocity",
            remedy="leave dynamics out",
        )
    named = parameters.encoder if isinstance(parameters.encoder, str) else None
    own = None if parameters.encoder is None or named else OwnEncoder(parameters.encoder)
    return Featurizer.of(trips, _config_of(parameters, trips, named), rng, own)


def _config_of(parameters: Parameters, trips: Trajectories, encoder: str | None = None) -> FeaturizerConfig:
    default = OF_PAPER.get(parameters.preset) or FeaturizerConfig(interval=sampling_interval(trips))
    hours = hours_from(parameters.time_zone, trips)
    return featurizer_config(
        default, parameters.featurizer, interval=parameters.interval, utc_offset=hours, encoder=encoder
    )


def shared_featurizer(parameters: Parameters, trips: Trajectories) -> FeaturizerConfig:
    """Returns the configuration of the featurizer that many agents share."""
    config = _config_of(parameters, trips)
    if parameters.encoder not in (None, "familiarity") or config.encoder != "familiarity" or config.context.landmarks:
        raise DataError(
            "many agents share a reward for the encoder familiarity, without landmarks, which belong to one place",
            remedy="leave encoder and landmarks out, or fit one agent, or a pool (pooled=True)",
        )
    return config


# -------------------------------------------------------------------- which reward


def shared_reward(parameters: Parameters, featurizer: Featurizer) -> Reward | None:
    """Returns the shared reward; None if these parameters make the agent learn its own."""
    own = parameters.background or own_explorers(parameters.explorers)
    if parameters.preset in PAPER_PRESETS or not featurizer.counts or own:
        return None
    reward = first_reward(parameters)
    if fits(reward, featurizer):
        return reward
    if parameters.reward is not None:
        raise _reward_does_not_fit()
    return None


def first_reward(parameters: Parameters) -> Reward:
    """Returns the reward that learning begins with: the shipped one, or one from a file."""
    return pretrained() if parameters.reward is None else read_reward(parameters.reward)


def _reward_does_not_fit() -> DataError:
    return DataError(
        "the reward was learned with other habits or another context than those of this featurizer",
        remedy="give the featurizer that it was learned with, or another reward",
    )


# -------------------------------------------------------------------- one agent, or one pool


class Enrolled(NamedTuple):
    """An agent or pool whose past trips a reward has scored."""

    reward: Reward
    popularity: Popularity  # of places among others
    memory: AgentMemory


def enrol_one(
    parameters: Parameters,
    past: Prepared,
    featurizer: Featurizer,
    population: Trajectories | None,
    rng: np.random.Generator,
    reward: Reward,
    weights: tuple[float, ...],
) -> Enrolled:
    """Scores an agent's past trips by the shared reward, which first learns a second stage from the population."""
    if population is not None:
        featurizer = featurizer.among(population)
        # A pool's reward learns nothing from the trips of single agents.
        if not reward.of_a_pool and parameters.iterations != 0:
            learning = (parameters.sharing, rng, parameters.progress)
            reward = add_second_stage(reward, population, featurizer, *learning) or reward
    if len(past.trips.agents) == 1:
        featurizer = replace(featurizer, popularity=featurizer.popularity.excluding(past.trips.agents[0]))
    how = (scale_config(parameters), parameters.suspect)
    featurizer, own, suspects = scored_past(past, featurizer, reward, weights, *how)
    kept = without(thin(past[drawn(len(past.trips), parameters.keep, rng)], featurizer), suspects)
    kept = as_kept(kept[kept.isin(featurizer.memory.trip_ids)], featurizer.config, FINE)
    memory = AgentMemory(
        featurizer.memory,
        kept if len(kept) else None,
        own,
        inbox=Inbox(tokens=observing_config(parameters).tokens),
        frame=featurizer.frame,
        suspects=suspects,
    )
    return Enrolled(reward, replace(featurizer.popularity, excluded=None), memory)


def enrol_pool(
    parameters: Parameters,
    past: Prepared,
    featurizer: Featurizer,
    population: Trajectories | None,
    rng: np.random.Generator,
    reward: Reward,
    weights: tuple[float, ...],
) -> Enrolled:
    """Scores a pool's held-out trips by the shared reward, which first continues to learn from the pool's others."""
    others = None
    if population is not None:
        featurizer = featurizer.among(population)
        others = KeyedTrips.of(population, featurizer)
    learned = pool_reward(parameters, past, featurizer, others, rng, reward)
    if learned is not None:
        reward, past = learned
    return enrol_one(parameters, past, featurizer, None, rng, reward, weights)


# -------------------------------------------------------------------- many agents


class Shared(NamedTuple):
    """What many agents share, and where each of them goes."""

    reward: Reward
    config: FeaturizerConfig
    context: Context
    popularity: Popularity
    cells: dict[str, Keys]


def _refuse_own_reward(parameters: Parameters) -> None:
    """Raises a DataError for parameters that make an agent learn its own reward, which many agents cannot share."""
    asked = {"background": parameters.background, "explorers": parameters.explorers}
    names = [name for name, value in asked.items() if value is not None]
    if parameters.preset in ("own", *PAPER_PRESETS):
        names.append(f"preset={parameters.preset!r}")
    if names:
        raise DataError(
            f"{names[0]} asks for a reward of one agent or pool, but these trips are of several agents",
            remedy="give one agent's trips, or pooled=True",
        )


def learn_shared(parameters: Parameters, trips: Trajectories, rng: np.random.Generator) -> Shared:
    """Lets the shared reward continue to learn from many agents, and counts where they go."""
    _refuse_own_reward(parameters)
    config = shared_featurizer(parameters, trips)
    begun = first_reward(parameters)
    if not fits(begun, Featurizer.of(trips, config, np.random.default_rng(0))):
        raise _reward_does_not_fit()
    sharing = {"max_agents": parameters.max_agents, **plain(parameters.sharing or {})}
    learned = go_on(begun, trips, config, sharing, rng, parameters.iterations, parameters.progress) or begun
    context = Context.of(config.context, trips, Projection(0.0, 0.0))
    popularity, cells = _without_names(popularity_of(trips, config))
    return Shared(learned, config, context, popularity, cells)


def _without_names(popularity: Popularity) -> tuple[Popularity, dict[str, Keys]]:
    """Splits a popularity into anonymous counts and the cells of each agent."""
    agents = popularity.by_name
    order = np.argsort(agents.trips, kind="stable")
    cuts = np.searchsorted(agents.trips[order], np.arange(1, len(agents)))
    cells = dict(zip(agents.trip_ids, np.split(agents.keys[order], cuts), strict=True)) if len(agents) else {}
    return Popularity(popularity.cells, Visits(Counted.of(agents))), cells


def no_popularity(config: FeaturizerConfig) -> Popularity:
    """Returns a popularity that counts nobody yet."""
    return Popularity(config.popularity, Visits(Counted()))
