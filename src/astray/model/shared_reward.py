"""Measuring one agent by a reward that serves everybody: nothing is learned from the agent, its trips are counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.features.featurizer import Featurizer, Prepared
from astray.irl.shared import Reward
from astray.model.configuration import observing_config, own_explorers, scale_config
from astray.model.fleet_training import go_on
from astray.model.inbox import Inbox
from astray.model.parameters import AgentParameters
from astray.model.pretrained import pretrained, read_reward
from astray.model.trained import Trained
from astray.model.training import drawn, thin
from astray.model.updating import without
from astray.scoring.own_scale import fits, scored_past


def shared_reward(parameters: AgentParameters, featurizer: Featurizer) -> Reward | None:
    """The reward that serves everybody; None if the agent is to have its own."""
    own = parameters.background or own_explorers(parameters.explorers)
    if parameters.preset == "kdd19" or not featurizer.counts or own:
        return None
    reward = pretrained() if parameters.reward is None else read_reward(parameters.reward)
    if fits(reward, featurizer):
        return reward
    if parameters.reward is not None:
        raise DataError(
            "the reward was learned with other habits or another context than this featurizer has",
            remedy="give the featurizer that it was learned with, or another reward",
        )
    return None


def enrol(
    parameters: AgentParameters,
    past: Prepared,
    featurizer: Featurizer,
    population: Trajectories | None,
    rng: np.random.Generator,
    reward: Reward,
    weights: tuple[float, ...],
    suspected: tuple[TripId, ...] = (),
) -> Trained:
    """A shared reward, which goes on learning from a population, and what the agent's past trips score by it."""
    if population is not None:
        featurizer = featurizer.among(population)
        told = (parameters.sharing, rng, parameters.iterations, parameters.progress)
        if not reward.of_a_pool:  # which the ways of single agents would teach nothing
            reward = go_on(reward, population, featurizer.config, *told) or reward
    if len(past.trips.agents) == 1:
        featurizer = replace(featurizer, popularity=featurizer.popularity.excluding(past.trips.agents[0]))
    how = (scale_config(parameters), parameters.suspect)
    featurizer, own, found = scored_past(past, featurizer, reward, weights, *how)
    kept = without(thin(past[drawn(len(past.trips), parameters.keep, rng)], featurizer), found)
    inbox = Inbox(tokens=observing_config(parameters).tokens)
    return Trained(reward, None, featurizer, None, kept, None, own, (*suspected, *found), inbox)
