"""Saves and checks those parts of a model for which copying the fields is not enough.

:func:`~astray.model.packing.pack` saves dataclasses, arrays and tables as they are. A ``*_fields`` function here says
what is saved of an object that holds more; an ``unpack_*`` function checks that what was read fits together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import ModelFileError
from astray.core.grouping import FIX_COLUMNS
from astray.core.projection import Projection
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.features.context import Context
from astray.features.encoders import Encoder, FamiliarityEncoder, FourierEncoder, OwnEncoder, RawEncoder
from astray.features.familiarity import Frame
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.memory import Forgetting, Memory, Name
from astray.features.normal_scores import KNOTS, StepScores
from astray.features.popularity import Popularity
from astray.irl.posterior import RewardPosterior
from astray.irl.shared import BANDS, Reward
from astray.model.checkpoint import PolicyCheckpoint
from astray.model.packing import Contents
from astray.model.plain_values import check_shape, plain
from astray.scoring.decisions import ByContext, ByHour, Threshold
from astray.scoring.normality import Calibration

Array = NDArray[Any]

STEP_COLUMNS = ("state", "action")
LARGEST = 1e9
"""The weights of a reward, and the means and scales of features, are smaller than this."""


# -------------------------------------------------------------------- the reward and the policy


def unpack_reward(model: Contents, name: str) -> Reward:
    """Reads a reward, and checks the shapes of its networks and of its reference."""
    reward: Reward = model.value(name, Reward)
    with model.fitting_together(name):
        _check_posterior(f"{name}.step", reward.step)
        if (reward.trip is None) != (reward.reference is None):
            raise ValueError("a reward of trips has a reference, and no other has")
        if reward.trip is not None and reward.reference is not None:
            _check_posterior(f"{name}.trip", reward.trip)
            usual = (("trips", reward.trip), ("under_way", reward.trip), ("steps", reward.step))
            for part, posterior in usual:
                rewards = getattr(reward.reference, part)
                check_shape(f"{name}.reference.{part}", rewards, len(BANDS) + 1, None, len(posterior.aspects))
                if not rewards.size:
                    raise ValueError(f"the array {name}.reference.{part} is empty")
            typical = reward.reference.typical
            check_shape(f"{name}.reference.typical", typical, len(BANDS) + 1, len(reward.trip.mean) + 1)
    return reward


def unpack_weights(model: Contents, reward: Reward) -> tuple[float, ...]:
    """Reads how much each aspect of a reward counts."""
    weights: tuple[float, ...] = model.value("aspect_weights", tuple[float, ...])
    if len(weights) != len(reward.aspects) or min(weights, default=0.0) < 0 or not any(weights):
        raise model.wrong("its aspects and their weights do not fit together")
    return weights


def _check_posterior(name: str, posterior: RewardPosterior) -> None:
    mean, layers, prior = posterior.mean, posterior.layers, posterior.prior
    check_shape(f"{name}.mean", mean, None)
    check_shape(f"{name}.scale", posterior.scale, len(mean))
    if not layers or len(prior) not in (0, len(layers)):
        raise ValueError(f"{name} has {len(layers)} layers and {len(prior)} prior ones")
    for what, network in (("layers", layers), ("prior", prior)):
        width = len(mean)
        for i, (weight, bias) in enumerate(network):
            check_shape(f"{name}.{what}.{i}.0", weight, len(network[0][0]), width, None)
            width = weight.shape[2]
            check_shape(f"{name}.{what}.{i}.1", bias, len(weight), 1, width)
    if prior and prior[-1][0].shape != layers[-1][0].shape:
        raise ValueError(f"{name} and its prior differ in shape")
    if not posterior.aspects or layers[-1][0].shape[2] % len(posterior.aspects):
        raise ValueError(f"{name} has {layers[-1][0].shape[2]} heads for {len(posterior.aspects)} aspects")
    numbers = (mean, posterior.scale, *(a for layer in (*layers, *prior) for a in layer), np.array(posterior.clip))
    least = min(posterior.clip, float(posterior.scale.min(initial=np.inf)))
    if least < 1.0 / LARGEST or any(np.abs(array).max(initial=0.0) > LARGEST for array in numbers):
        raise ValueError(f"{name} holds numbers that no reward has")


def unpack_policy(model: Contents, name: str) -> PolicyCheckpoint | None:
    """Reads the policy and its critic, if the model has them."""
    policy: PolicyCheckpoint | None = model.value(name, PolicyCheckpoint | None)
    if policy is not None:
        actor, n_states = policy.actor, len(policy.actor.state_mean)
        critic = sum((n_in + 1) * n_out for n_in, n_out in pairwise((policy.critic_inputs, *policy.critic_hidden, 1)))
        with model.fitting_together(name):
            if policy.critic_inputs not in (n_states, n_states + 1):
                raise ValueError(f"its critic has {policy.critic_inputs} inputs for {n_states} columns of a state")
            check_shape(f"{name}.actor.state_mean", actor.state_mean, None)
            check_shape(f"{name}.actor.state_scale", actor.state_scale, n_states)
            check_shape(f"{name}.actor.action_mean", actor.action_mean, None)
            check_shape(f"{name}.actor.action_scale", actor.action_scale, len(actor.action_mean))
            check_shape(f"{name}.actor.theta", actor.theta, actor.n_parameters)
            check_shape(f"{name}.critic", policy.critic, critic)
    return policy


# -------------------------------------------------------------------- the featurizer and its memory


def featurizer_fields(featurizer: Featurizer) -> dict[str, Any]:
    """Returns what is saved of a featurizer: its memory and popularity too, if its encoder counts."""
    encoder = featurizer.encoder
    fields = {"config": featurizer.config, "projection": featurizer.projection, "context": featurizer.context}
    if isinstance(encoder, OwnEncoder):
        raise ModelFileError(
            "the encoder is an object of your own, which no file can hold",
            remedy="keep the program that fits the model",
        )
    if isinstance(encoder, RawEncoder | FourierEncoder):
        fields["scores"] = encoder.scores
    if isinstance(encoder, FourierEncoder):
        fields["frequencies"] = encoder.frequencies
    if isinstance(encoder, FamiliarityEncoder):
        trips, popularity = featurizer.memory.trip_ids, featurizer.popularity
        fields["memory"] = {
            "agents": np.array([trip.agent for trip in trips], np.str_),
            "trajectories": np.array([trip.trajectory for trip in trips], np.str_),
            **_postings(featurizer.memory),
        }
        fields["popularity"] = {
            "excluded": popularity.excluded,
            "agents": np.array(popularity.by_name.trip_ids, np.str_),
            **_postings(popularity.by_name),
        }
    return fields


def unpack_featurizer(model: Contents) -> Featurizer:
    """Reads a featurizer with its memory."""
    config = model.value("config", FeaturizerConfig)
    projection, context = model.value("projection", Projection), model.value("context", Context)
    encoder: Encoder
    if config.encoder != "familiarity":
        scores = unpack_scores(model, "scores")
        encoder = RawEncoder(scores)
        if config.encoder == "fourier":
            encoder = FourierEncoder(scores, model.array("frequencies", np.float64, 2, None))
        return Featurizer(config, projection, encoder, context)
    counts, others = model.within("memory"), model.within("popularity")
    agents = counts.text("agents")
    trips = list(map(TripId, agents, counts.text("trajectories", len(agents))))
    memory = _unpack_memory(counts, trips, config.forgetting)
    encoder = FamiliarityEncoder(memory, config.habits, config.lags, Frame(projection, context.utc_offset))
    by_name = _unpack_memory(others, others.text("agents"), Forgetting())
    return Featurizer(
        config,
        projection,
        encoder,
        context,
        Popularity(config.popularity, by_name, others.value("excluded", str | None)),
    )


def unpack_scores(model: Contents, name: str) -> StepScores:
    """Reads the normal scores of steps."""
    scores: StepScores = model.value(name, StepScores)
    with model.fitting_together(name):
        for part, columns in ((scores.place, 2), (scores.elapsed, 1), (scores.velocity, 2)):
            check_shape(f"{name}.knots", part.knots, columns, KNOTS)
            check_shape(f"{name}.spread", part.spread, columns)
            if not (np.diff(part.knots, axis=1) > 0).all() or not (part.spread > 0).all():
                raise ValueError(f"{name} does not rise")
    return scores


def _postings(memory: Memory[Any]) -> dict[str, Array]:
    return {"times": memory.times, "keys": memory.keys, "trips": memory.trips}


def _unpack_memory(model: Contents, names: Sequence[Name], forgetting: Forgetting) -> Memory[Name]:
    times, keys = model.array("times", np.float64, len(names)), model.array("keys", np.uint64, None)
    trips = model.array("trips", np.int32, len(keys))
    outside = len(trips) and (trips.min() < 0 or trips.max() >= len(names))
    if outside or (keys[1:] < keys[:-1]).any():
        raise model.wrong(f"the postings of {model.path[:-1]} are not sorted, or name trips that are not there")
    return Memory(tuple(names), times, keys, trips, forgetting)


# -------------------------------------------------------------------- scales and thresholds


def unpack_calibration(model: Contents, name: str) -> Calibration:
    """Reads the scale of the scores."""
    calibration: Calibration = model.value(name, Calibration)
    with model.fitting_together(name):
        scores, by_length = calibration.normal.scores, calibration.by_length
        check_shape(f"{name}.normal.scores", scores, None)
        check_shape(f"{name}.normal.weights", calibration.normal.weights, len(scores))
        for i, aspect in enumerate(calibration.by_aspect):
            place, normal = f"{name}.by_aspect.{i}.normal", aspect.normal
            check_shape(f"{place}.scores", normal.scores, None)
            check_shape(f"{place}.weights", normal.weights, len(normal.scores))
        if len(calibration.by_aspect) not in (0, len(calibration.aspects)):
            raise ValueError(f"{name} has {len(calibration.by_aspect)} scales of aspects")
        if by_length is not None:
            check_shape(f"{name}.by_length.0", by_length.lengths, None)
            for i, scale in enumerate(by_length[1:], start=1):
                check_shape(f"{name}.by_length.{i}", scale, 2, len(by_length.lengths))
    return calibration


_THRESHOLDS = {"hour": ByHour, "context": ByContext}


def plain_threshold(name: str, value: Threshold) -> Any:
    """Returns a threshold as a plain value; raises a ModelFileError for a user's function."""
    if not callable(value):
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise ModelFileError(f"{name} is not one number", remedy="set it to one before saving") from error
    for kind, cls in _THRESHOLDS.items():
        if isinstance(value, cls):
            return {"by": kind, **plain(value)}
    raise ModelFileError(
        f"{name} is a function, which no file can hold", remedy=f"set_params({name}=...) to a number before saving"
    )


def restore_threshold(model: Contents, name: str) -> Threshold:
    """Reads a threshold."""
    said = model.value(name, float | dict[str, Any])
    if isinstance(said, float):
        return said
    inside = model.within(name)
    otherwise = inside.value("otherwise", float)
    if said.get("by") == "hour":
        hours = {int(h): t for h, t in inside.value("hours", dict[str, float]).items()}
        return ByHour(hours, otherwise, inside.value("utc_offset", float | None))
    return ByContext(inside.value("column", str), inside.value("thresholds", dict[str, float]), otherwise)


# -------------------------------------------------------------------- trips


def trip_fields(trips: Trajectories) -> dict[str, Any]:
    """Returns what is saved of trajectories: fixes, or states and actions; context as numbers or text."""
    numeric = {column: values.dtype.kind in "fiub" for column, values in trips.context.items()}
    return {
        "columns": {
            c: trips.columns[c].astype(np.bool_ if c == "action" and trips.has_discrete_actions else np.float64)
            for c in (*FIX_COLUMNS, *STEP_COLUMNS)
            if c in trips.columns
        },
        "discrete": trips.has_discrete_actions,
        "offsets": trips.offsets,
        "agents": trips.agent_ids,
        "trajectories": trips.trajectory_ids,
        "context": {column: "number" if is_number else "text" for column, is_number in numeric.items()},
        # By position, not by name: a column may have any name.
        "values": [values.astype(float if numeric[column] else str) for column, values in trips.context.items()],
    }


def unpack_trips(model: Contents) -> Trajectories:
    """Reads trajectories."""
    inside = model.within("columns")
    if tuple(inside.values) not in (FIX_COLUMNS, STEP_COLUMNS):
        raise model.wrong(f"trajectories with the columns {', '.join(inside.values)}")
    shape = (None,) if "time" in inside.values else (None, None)
    discrete = model.value("discrete", bool)
    columns = {
        name: inside.array(name, np.bool_ if discrete and name == "action" else np.float64, *shape)
        for name in inside.values
    }
    offsets = model.offsets("offsets", len(next(iter(columns.values()))))
    n = len(offsets) - 1
    context: dict[str, Array] = {}
    for i, (column, kind) in enumerate(model.value("context", dict[str, str]).items()):
        if kind == "number":
            context[column] = model.array(f"values.{i}", np.float64, n, unbounded=True)
        else:
            context[column] = np.array(model.text(f"values.{i}", n))
    return Trajectories(columns, offsets, model.text("agents", n), model.text("trajectories", n), context)
