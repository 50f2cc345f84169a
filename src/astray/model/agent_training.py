"""Learns the reward of a single agent by Algorithm 1 of the paper, sets the scale of its scores, and saves both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.extras import require_extra
from astray.core.settings import PAPER_PRESETS
from astray.core.threads import one_thread
from astray.core.trajectories import Trajectories
from astray.features.featurizer import Featurizer, Prepared
from astray.irl.demonstrations import held_out
from astray.irl.dynamics import Dynamics, LearnedDynamics
from astray.irl.gps_demonstrator import GpsDemonstrator
from astray.irl.posterior import RewardPosterior
from astray.irl.shared import Reward
from astray.irl.step_demonstrator import StepDemonstrator
from astray.model.checkpoint import PolicyCheckpoint
from astray.model.configuration import own_explorers, scale_config
from astray.model.overlapping_runs import warn_of_overlap
from astray.model.packing import Contents
from astray.model.parameters import Parameters
from astray.model.parts import (
    featurizer_fields,
    trip_fields,
    unpack_calibration,
    unpack_featurizer,
    unpack_policy,
    unpack_reward,
    unpack_trips,
)
from astray.model.trip_selection import check_steps, drawn, sample, thin
from astray.scoring.normality import Calibration, calibrate, out_of_bag
from astray.scoring.scale_config import ScaleConfig
from astray.scoring.scores import CHUNK_FIXES

if TYPE_CHECKING:
    from astray.irl.learn_config import LearnConfig
    from astray.irl.trainer import Learned

Array = NDArray[Any]

WINDOW = 120.0  # seconds of a window
WINDOW_STEPS = 10.0  # steps of a window of states and actions


# -------------------------------------------------------------------- what is learned


class NoDynamics:
    """Takes the place of the dynamics, which a model file does not hold, and refuses to let a policy act."""

    def reset(self, n: int, rng: np.random.Generator) -> Array:
        """Raises a DataError."""
        raise DataError(
            "a model file holds no dynamics", remedy="call set_params(dynamics=...) before letting a policy act"
        )

    def step(self, states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        """Raises a DataError."""
        return self.reset(len(states), rng), np.zeros(len(states), bool)


@dataclass(frozen=True, eq=False)
class StepModel:
    """The result of learning a reward of steps."""

    reward: Reward
    calibration: Calibration  # the scale of the scores
    featurizer: Featurizer | None  # of GPS trips
    world: StepDemonstrator | None  # of states and actions
    kept: Trajectories  # some past trajectories, thinned
    generated: PolicyCheckpoint | None = None  # the policy and its critic

    def pack(self) -> dict[str, Any]:
        """Returns the values that a model file holds."""
        w = self.world
        return {
            "reward": self.reward,
            "calibration": self.calibration,
            "featurizer": None if self.featurizer is None else featurizer_fields(self.featurizer),
            "world": None if w is None else {"mean": w.mean, "scale": w.scale, "waves": w.frequencies},
            "kept": trip_fields(self.kept),
            "policy": self.generated,
        }

    @classmethod
    def unpack(cls, model: Contents) -> StepModel:
        """Reads the result from a model file."""
        reward, kept = unpack_reward(model, "reward"), unpack_trips(model.within("kept"))
        featurizer, world = None, None
        if model.values.get("featurizer") is not None:
            featurizer = unpack_featurizer(model.within("featurizer"))
            n_features = len(featurizer.names)
        else:
            width = sum(kept.columns[name].shape[1] for name in ("state", "action"))
            inside = model.within("world")
            mean, scale = (inside.array(part, np.float64, width) for part in ("mean", "scale"))
            waves = inside.array("waves", np.float64, width, None)
            world = StepDemonstrator(kept, NoDynamics(), mean, scale, waves)
            n_features = width + 2 * waves.shape[1]
        if n_features != len(reward.step.mean):
            raise model.wrong(f"its reward sees {len(reward.step.mean)} features, its featurizer gives {n_features}")
        calibration, policy = unpack_calibration(model, "calibration"), unpack_policy(model, "policy")
        return cls(reward, calibration, featurizer, world, kept, policy)


# -------------------------------------------------------------------- demonstrators


def _check_learning(parameters: Parameters) -> None:
    """Raises an error if a reward must be learned, but there are no iterations or torch is missing."""
    if parameters.iterations == 0:
        raise DataError(
            "iterations is 0, and no reward ships for these trips", remedy="give at least 1, or leave it out"
        )
    require_extra("learn", "learning a reward", "torch")


def gps_demonstrator(
    parameters: Parameters, past: Prepared, featurizer: Featurizer, rng: np.random.Generator
) -> GpsDemonstrator:
    """Returns the agent as a demonstrator of GPS trips."""
    _check_learning(parameters)
    some = past[drawn(len(past.trips), parameters.max_trips, rng)]
    return GpsDemonstrator.of(some.trips, featurizer, own_explorers(parameters.explorers), some.paths)


def step_demonstrator(
    parameters: Parameters, trips: Trajectories, config: LearnConfig, rng: np.random.Generator
) -> StepDemonstrator:
    """Returns the agent as a demonstrator of states and actions."""
    _check_learning(parameters)
    some = sample(trips, parameters.max_trips, rng)
    dynamics = _dynamics(parameters, some, config, rng)
    return StepDemonstrator.of(some, dynamics, rng, config.waves, config.capacity, own_explorers(parameters.explorers))


def replace_runs(
    parameters: Parameters,
    known: StepDemonstrator,
    trips: Trajectories,
    config: LearnConfig,
    rng: np.random.Generator,
) -> StepDemonstrator:
    """Returns the demonstrator ``known`` with the runs replaced by ``trips``."""
    dynamics = _dynamics(parameters, trips, config, rng)
    explorers = own_explorers(parameters.explorers)
    return replace(known, trajectories=trips, dynamics=dynamics, most=config.capacity, explorers=explorers)


def _dynamics(parameters: Parameters, trips: Trajectories, config: LearnConfig, rng: np.random.Generator) -> Dynamics:
    """Returns the dynamics that were given, or learns them from the runs that are not held out."""
    warn_of_overlap(trips)
    if parameters.dynamics is not None:
        return parameters.dynamics
    return LearnedDynamics.fit(_not_held_out(trips, config), rng)


def _not_held_out(trips: Trajectories, config: LearnConfig) -> Trajectories:
    if config.crosses:  # every trip is held out from a network only
        return trips
    out = held_out(trips.ids, np.arange(len(trips)), config.held_out)
    return trips[~np.isin(np.arange(len(trips)), out)]


def _background(
    parameters: Parameters, trips: Trajectories, config: LearnConfig, rng: np.random.Generator
) -> Trajectories | None:
    """Calls the user's background function with the trips that are not held out, and checks what it returns."""
    if parameters.background is None:
        return None
    made = parameters.background(_not_held_out(trips, config), rng)
    if not isinstance(made, Trajectories) or not len(made) or not made.is_like(trips):
        raise DataError(f"the background gave {made!r}", remedy="return Trajectories of the kind that it was given")
    if made.holds("state"):
        check_steps(made, trips, "the background's ")
    return made


# -------------------------------------------------------------------- learning


def train(
    parameters: Parameters,
    demonstrator: GpsDemonstrator | StepDemonstrator,
    config: LearnConfig,
    rng: np.random.Generator,
    population: Trajectories | None,
    start: Learned | None = None,
) -> StepModel:
    """Learns a reward from a demonstrator, continuing from ``start``; returns the fitted parts of a detector."""
    from astray.irl.trainer import learn_agent_reward

    trips = demonstrator.fixes if isinstance(demonstrator, GpsDemonstrator) else demonstrator.trajectories
    given = _background(parameters, trips, config, rng)
    progress = parameters.progress
    with one_thread():
        learned = learn_agent_reward(
            demonstrator, config, rng, population=population, given=given, start=start, progress=progress
        )
    calibration = calibrate_scores(parameters, demonstrator, config, learned)
    reward, generated = Reward(learned.posterior, history=learned.history), PolicyCheckpoint.of(learned)
    kept = sample(trips, parameters.keep, rng)
    if isinstance(demonstrator, GpsDemonstrator):
        thinned = thin(demonstrator.featurizer.prepare(kept), demonstrator.featurizer)
        return StepModel(reward, calibration, demonstrator.featurizer, None, thinned, generated)
    return StepModel(reward, calibration, None, replace(demonstrator, trajectories=kept), kept, generated)


def calibrate_scores(
    parameters: Parameters, demonstrator: GpsDemonstrator | StepDemonstrator, config: LearnConfig, learned: Learned
) -> Calibration:
    """Sets the scales of the scores.

    Held-out trips set the scales and the p-values. With ``cross_fit`` these are all trips, each rewarded by the network
    that it was held out from. A new trip is rewarded by all networks, whose mean is steadier, so p-values rather err
    towards too few alarms. Otherwise, if too few are held out, all trips set the scales: each is rewarded by the heads
    whose bootstrap sample lacks it (out of bag, Breiman 1996). These rewards also show how a trip's length changes its
    score. P-values come from held-out trips alone, because all heads share layers that learned from the other trips.
    """
    scaling, timed = scale_config(parameters), isinstance(demonstrator, GpsDemonstrator)
    scale = "step" if parameters.preset in PAPER_PRESETS else "trip"
    present = (
        np.unique(demonstrator.paths.context["trip"])
        if isinstance(demonstrator, GpsDemonstrator)
        else np.arange(len(demonstrator.names))
    )
    if config.crosses and learned.apart.any():
        heads = learned.apart  # of a network that has not learned from the trip
    elif scale == "step" and not config.held_out:  # as in the paper
        heads = np.ones_like(learned.unseen)
    else:
        heads = held_out_heads(learned.unseen, present, scaling)
    steps = held_out_steps(demonstrator, learned.posterior, heads)
    return calibrate(
        *steps,
        aspects=learned.posterior.aspects,
        held_out=np.asarray(learned.apart.any(axis=1))[steps.trip],
        robust=parameters.robust,
        scale=scale,
        window_length=parameters.window or (WINDOW if timed else WINDOW_STEPS),
        least_segment=scaling.least_segment if timed else scaling.least_segment_steps,
        config=scaling,
    )


def held_out_heads(held_out: NDArray[np.bool_], present: NDArray[np.int64], scaling: ScaleConfig) -> NDArray[np.bool_]:
    """Selects the heads that reward each demonstration, given a mask (trips, heads) of where it was held out.

    A trip that nearly every head has learned from gets no head, because one or two heads are noisy. With only a handful
    of trips the spread cannot be estimated: then all heads reward all trips.

    >>> held_out = np.array([[True] * 4] * 10 + [[False, True, True, True], [False, True, False, False]])
    >>> held_out_heads(held_out, np.arange(12), ScaleConfig()).sum(axis=1).tolist()
    [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 0]
    >>> held_out_heads(held_out[-3:], np.arange(3), ScaleConfig()).sum(axis=1).tolist()
    [4, 4, 4]
    """
    enough = held_out.sum(axis=1) >= min(scaling.least_heads, held_out.shape[1])
    if np.count_nonzero(enough[present]) < scaling.least_held_out:
        return np.ones_like(held_out)
    return np.asarray(held_out & enough[:, None])


class HeldOutSteps(NamedTuple):
    """The steps of demonstrations, trip by trip."""

    rewards: NDArray[np.float64]  # (steps, aspects, 1): the mean over the heads that the trip was held out from
    trip: NDArray[np.int64]
    time: NDArray[np.float64]  # seconds; steps, if there is no time
    weight: NDArray[np.float64]  # the duration of a step, in the same unit


def held_out_steps(
    demonstrator: GpsDemonstrator | StepDemonstrator, posterior: RewardPosterior, heads: NDArray[np.bool_]
) -> HeldOutSteps:
    """Returns each step's reward by the heads that ``heads`` (trips, heads) selects; skips trips without heads."""
    wanted = np.asarray(heads.any(axis=1))
    if isinstance(demonstrator, GpsDemonstrator):
        rows = demonstrator.demonstrations()
        rows = rows[wanted[rows.trip]]
        assert rows.steps is not None
        rewards = out_of_bag(posterior(rows.features), heads[rows.trip])
        weight = np.full(len(rows), demonstrator.featurizer.config.interval)
        return HeldOutSteps(rewards, rows.trip, rows.steps.time, weight)
    runs = demonstrator.trajectories[wanted]
    trip = np.flatnonzero(wanted)[runs.trajectory_of_row]
    step = np.arange(runs.n_rows) - np.repeat(runs.offsets[:-1], runs.lengths)
    states, actions = runs.columns["state"], runs.columns["action"]
    rewards = np.empty((len(trip), len(posterior.aspects), 1))
    # Runs may be long: their features are computed in chunks.
    for start in range(0, len(trip), CHUNK_FIXES):
        some = slice(start, start + CHUNK_FIXES)
        rewards[some] = out_of_bag(posterior(demonstrator.encode(states[some], actions[some])), heads[trip[some]])
    return HeldOutSteps(rewards, trip, step.astype(np.float64), np.ones(len(trip)))
