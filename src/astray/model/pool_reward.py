"""Learns a reward from a pool: trips of many agents, such as the taxis of a town, that are treated as one agent's.

A pool does not have the habits of a person, so the shared reward detects little in it. That reward continues to learn
from the pool itself: it compares the pool's trips with counterfactuals in another place, by another way, at another
pace or hour.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from astray.core.errors import Option
from astray.core.extras import require_extra
from astray.core.threads import one_thread
from astray.features.featurizer import Featurizer, Prepared
from astray.irl.demonstrations import held_out
from astray.irl.keyed_trips import KeyedTrips
from astray.irl.shared import Reward
from astray.irl.trip_demonstrator import TripDemonstrator
from astray.model.checkpoint import restore_reward
from astray.model.parameters import Parameters
from astray.model.shared_training import refer
from astray.model.trip_samples import drawn


@dataclass(frozen=True)
class PoolConfig:
    """The settings of learning from a pool."""

    held_out: float = 0.2  # share of the trips to hold out; they set the scale of normal scores
    max_trips: int = 2000  # the most trips that the reward of trips learns from
    step_trips: int = 400  # the most trips that the reward of steps learns from
    imagined: int = 1  # counterfactual trips for each aspect and each trip
    least_imagined: int = 600  # the fewest counterfactual trips for each aspect
    reference: int = 200  # normal trips whose rewards are the reference


class PoolReward(NamedTuple):
    """A reward that was learned from a pool, and the trips of the pool that were held out."""

    reward: Reward
    held_out: Prepared


def pool_reward(
    parameters: Parameters,
    past: Prepared,
    featurizer: Featurizer,
    population: KeyedTrips | None,
    rng: np.random.Generator,
    start: Reward,
) -> PoolReward | None:
    """Continues to learn a shared reward from a pool, whose trips the featurizer remembers, and returns it.

    Returns None if the pool has too few trips, or if ``iterations`` is 0.
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
    reward = replace(reward, reference=refer([reference], reward, pool.reference, rng))
    return PoolReward(reward, past[np.setdiff1d(np.arange(len(past.trips)), shown)])
