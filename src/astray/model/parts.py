"""The parts of a model as a file holds them: reward, featurizer, memory, scales, kept trips, policy.

Each ``pack_*`` gives plain values and arrays under names that begin with ``name``; each ``unpack_*`` takes them out of
:class:`~astray.model.packing.Contents` again and checks that they fit together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
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
from astray.features.popularity import Popularity
from astray.irl.actor import Actor
from astray.irl.posterior import RewardPosterior
from astray.irl.shared import BANDS, Reference, Reward
from astray.model.packing import Contents, pack_text
from astray.model.plain_values import plain
from astray.scoring.decisions import ByContext, ByHour, Threshold
from astray.scoring.lengths import LengthScale
from astray.scoring.normality import Calibration, Location, Sample

Array = NDArray[Any]
Names = tuple[str, ...]
Layers = tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]

STEP_COLUMNS = ("state", "action")
LARGEST = 1e9
"""No weight of a reward, and no mean or scale of a feature, is as large."""


class Packed(NamedTuple):
    """A part of a model, packed."""

    values: dict[str, Any]
    arrays: dict[str, Any]

    @staticmethod
    def together(parts: Sequence[Packed]) -> Packed:
        """Several parts as one."""
        return Packed(
            {k: v for p in parts for k, v in p.values.items()}, {k: v for p in parts for k, v in p.arrays.items()}
        )


# -------------------------------------------------------------------- the reward and the policy


def pack_posterior(name: str, posterior: RewardPosterior) -> Packed:
    """The reward heads."""
    arrays = {f"{name}.mean": posterior.mean, f"{name}.scale": posterior.scale}
    for what, layers in (("layer", posterior.layers), ("prior", posterior.prior)):
        for i, (weight, bias) in enumerate(layers):
            arrays |= {f"{name}.{what}.{i}.weight": weight, f"{name}.{what}.{i}.bias": bias}
    shape = {
        "layers": len(posterior.layers),
        "prior": len(posterior.prior),
        "clip": posterior.clip,
        "aspects": posterior.aspects,
    }
    return Packed({name: shape}, arrays)


def unpack_posterior(model: Contents, name: str) -> RewardPosterior:
    """The reward heads."""
    shape = model.within(name)
    mean = model.array(f"{name}.mean", np.float32, None)
    n_layers, n_prior, aspects = shape.value("layers", int), shape.value("prior", int), shape.value("aspects", Names)
    if n_layers < 1 or n_prior not in (0, n_layers):
        raise model.wrong(f"{name} has {n_layers} layers and {n_prior} prior ones")
    layers = _unpack_layers(model, f"{name}.layer", n_layers, len(mean))
    prior = _unpack_layers(model, f"{name}.prior", n_prior, len(mean))
    if prior and prior[-1][0].shape != layers[-1][0].shape:
        raise model.wrong(f"{name} and its prior differ in shape")
    if not aspects or layers[-1][0].shape[2] % len(aspects):
        raise model.wrong(f"{name} has {layers[-1][0].shape[2]} heads for {len(aspects)} aspects")
    scale = model.array(f"{name}.scale", np.float32, len(mean))
    clip = shape.value("clip", float)
    numbers = (mean, scale, *(array for layer in (*layers, *prior) for array in layer), np.array(clip))
    least = min(clip, float(scale.min(initial=np.inf)))
    if least < 1.0 / LARGEST or any(np.abs(array).max(initial=0.0) > LARGEST for array in numbers):
        raise model.wrong(f"{name} holds numbers that no reward has")
    return RewardPosterior(mean, scale, layers, prior, clip, aspects)


def _unpack_layers(model: Contents, name: str, n: int, width: int) -> Layers:
    layers = []
    networks: int | None = None
    for i in range(n):
        weight = model.array(f"{name}.{i}.weight", np.float32, networks, width, None)
        networks, width = weight.shape[0], weight.shape[2]
        layers.append((weight, model.array(f"{name}.{i}.bias", np.float32, networks, 1, width)))
    return tuple(layers)


def pack_reward(name: str, reward: Reward) -> Packed:
    """A reward of steps and, where there are, of trips, with what is usual by it."""
    parts = [Packed({f"{name}.made": reward.made}, {}), pack_posterior(f"{name}.step", reward.step)]
    if reward.history.width:
        parts.append(pack_table(f"{name}.history", reward.history))
    if reward.trip is not None:
        parts.append(pack_posterior(f"{name}.trip", reward.trip))
    if reward.reference is not None:
        r = reward.reference
        arrays = {f"{name}.usual.{part}": getattr(r, part) for part in ("trips", "prefixes", "steps", "typical")}
        parts.append(Packed({f"{name}.usual": {"noise": r.noise}}, arrays))
    return Packed.together(parts)


def unpack_reward(model: Contents, name: str) -> Reward:
    """A reward of steps and, where there are, of trips."""
    step = unpack_posterior(model, f"{name}.step")
    made = model.value(f"{name}.made", dict[str, Any])
    known = f"{name}.history" in model.values
    history = unpack_table(model, f"{name}.history") if known else pl.DataFrame()
    if f"{name}.trip" not in model.values:
        return Reward(step, made=made, history=history)
    trip = unpack_posterior(model, f"{name}.trip")
    bands, noise = len(BANDS) + 1, model.within(f"{name}.usual").value("noise", float)
    usual = {
        part: model.array(f"{name}.usual.{part}", np.float32, bands, None, len(of.aspects))
        for part, of in (("trips", trip), ("prefixes", trip), ("steps", step))
    }
    typical = model.array(f"{name}.usual.typical", np.float32, bands, len(trip.mean))
    if not all(len(part[0]) for part in usual.values()):
        raise model.wrong(f"{name} says of no trip what is usual")
    return Reward(step, trip, Reference(**usual, typical=typical, noise=noise), made, history)


def pack_actor(name: str, actor: Actor) -> Packed:
    """The policy."""
    parts = ("state_mean", "state_scale", "action_mean", "action_scale", "theta")
    return Packed({name: {"hidden": actor.hidden}}, {f"{name}.{p}": getattr(actor, p) for p in parts})


def unpack_actor(model: Contents, name: str) -> Actor:
    """The policy."""
    hidden = model.value(name, dict[str, tuple[int, ...]])["hidden"]
    states = model.array(f"{name}.state_mean", np.float64, None)
    actions = model.array(f"{name}.action_mean", np.float64, None)
    actor = Actor(
        states,
        model.array(f"{name}.state_scale", np.float64, len(states)),
        actions,
        model.array(f"{name}.action_scale", np.float64, len(actions)),
        hidden,
        model.array(f"{name}.theta", np.float32, None),
    )
    if len(actor.theta) != actor.n_parameters:
        raise model.wrong(f"{name} has {len(actor.theta)} parameters, not {actor.n_parameters}")
    return actor


# -------------------------------------------------------------------- the featurizer and its memory


def pack_ids(name: str, trips: Sequence[TripId]) -> dict[str, Array]:
    """The names of trips, their two parts apart."""
    return {
        **pack_text(f"{name}.agents", [trip.agent for trip in trips]),
        **pack_text(f"{name}.trajectories", [trip.trajectory for trip in trips]),
    }


def unpack_ids(model: Contents, name: str) -> list[TripId]:
    """Returns the names of trips."""
    agents = model.text(f"{name}.agents")
    return list(map(TripId, agents, model.text(f"{name}.trajectories", len(agents))))


def pack_postings(name: str, memory: Memory[Any]) -> Packed:
    """The postings of a memory, without its names; the way of forgetting belongs to the featurizer."""
    return Packed(
        {},
        {f"{name}.times": memory.times, f"{name}.keys": memory.keys, f"{name}.trips": memory.trips},
    )


def unpack_memory(model: Contents, name: str, trip_ids: Sequence[Name], forgetting: Forgetting) -> Memory[Name]:
    """A memory of what has these names."""
    keys = model.array(f"{name}.keys", np.uint64, None)
    memory = Memory(
        tuple(trip_ids),
        model.array(f"{name}.times", np.float64, len(trip_ids)),
        keys,
        model.array(f"{name}.trips", np.int32, len(keys)),
        forgetting,
    )
    if not sound(memory.keys, memory.trips, len(trip_ids)):
        raise model.wrong(f"the postings of {name} are not sorted, or speak of trips that are not there")
    return memory


def sound(keys: Array, trips: Array, n_trips: int) -> bool:
    """Whether postings are sorted by key and their trips are among the ``n_trips``."""
    inside = not len(trips) or (trips.min() >= 0 and trips.max() < n_trips)
    return bool(inside and (keys[1:] >= keys[:-1]).all())


def pack_featurizer(name: str, featurizer: Featurizer) -> Packed:
    """A featurizer with its memory."""
    values: dict[str, Any] = {
        name: {
            "config": plain(featurizer.config),
            "projection": plain(featurizer.projection),
            "context": plain(featurizer.context),
        }
    }
    if isinstance(featurizer.encoder, FamiliarityEncoder):
        parts = [
            Packed(values, {}),
            pack_postings(f"{name}.memory", featurizer.memory),
            Packed({}, pack_ids(f"{name}.memory.trip_ids", featurizer.memory.trip_ids)),
            pack_popularity(f"{name}.popularity", featurizer.popularity),
        ]
        return Packed.together(parts)
    if isinstance(featurizer.encoder, OwnEncoder):
        raise ModelFileError(
            "the encoder is an object of your own, which no file can hold",
            remedy="keep the program that fits the model",
        )
    if isinstance(featurizer.encoder, FourierEncoder):
        return Packed(values, {f"{name}.frequencies": featurizer.encoder.frequencies})
    return Packed(values, {})


def unpack_featurizer(model: Contents, name: str) -> Featurizer:
    """A featurizer with its memory."""
    inside = model.within(name)
    config = inside.value("config", FeaturizerConfig)
    projection, context = inside.value("projection", Projection), inside.value("context", Context)
    encoder: Encoder = RawEncoder()
    if config.encoder == "fourier":
        encoder = FourierEncoder(model.array(f"{name}.frequencies", np.float64, 2, None))
    if config.encoder != "familiarity":
        return Featurizer(config, projection, encoder, context)
    trips = unpack_ids(model, f"{name}.memory.trip_ids")
    memory = unpack_memory(model, f"{name}.memory", trips, config.forgetting)
    encoder = FamiliarityEncoder(memory, config.habits, config.lags, Frame(projection, context.utc_offset))
    popularity = unpack_popularity(model, f"{name}.popularity", config)
    return Featurizer(config, projection, encoder, context, popularity)


def pack_popularity(name: str, popularity: Popularity) -> Packed:
    """How many agents go where; what sizes of cells are counted belongs to the featurizer."""
    named = Packed({name: popularity.excluded}, pack_text(f"{name}.trip_ids", popularity.by_name.trip_ids))
    return Packed.together([named, pack_postings(name, popularity.by_name)])


def unpack_popularity(model: Contents, name: str, config: FeaturizerConfig) -> Popularity:
    """How many agents go where."""
    excluded = model.value(name, str | None)
    agents = unpack_memory(model, name, model.text(f"{name}.trip_ids"), Forgetting())
    return Popularity(config.popularity, agents, excluded)


# -------------------------------------------------------------------- scales and thresholds


def pack_calibration(name: str, calibration: Calibration) -> Packed:
    """What scores are measured on."""
    c = calibration
    said = {
        "aspects": c.aspects,
        "weights": c.weights,
        "step_weights": c.step_weights,
        "step": c.step,
        "trip": c.trip,
        "by_length": None if c.by_length is None else np.vstack(c.by_length).tolist(),
        "window_length": c.window_length,
        "scale": c.scale,
        "trip_noise": c.trip_noise,
        "lowest": c.lowest,
        "least_segment": c.least_segment,
    }
    return Packed({name: said}, {f"{name}.scores": c.normal.scores, f"{name}.weights": c.normal.weights})


def unpack_calibration(model: Contents, name: str) -> Calibration:
    """Returns what scores are measured on."""
    inside = model.within(name)
    scores = model.array(f"{name}.scores", np.float64, None)
    by_length = inside.value("by_length", tuple[tuple[float, ...], ...] | None)
    if by_length is not None and (len(by_length) != 5 or len({len(row) for row in by_length}) != 1):
        raise model.wrong("its scales by length do not fit together")
    return Calibration(
        inside.value("aspects", Names),
        inside.value("weights", tuple[float, ...]),
        Location(*inside.value("step", tuple[float, float])),
        Location(*inside.value("trip", tuple[float, float])),
        None if by_length is None else LengthScale(np.array(by_length[0]), *np.split(np.array(by_length[1:]), 2)),
        Sample(scores, model.array(f"{name}.weights", np.float64, len(scores))),
        inside.value("window_length", float),
        inside.value("scale", str),
        inside.value("trip_noise", float),
        Location(*inside.value("lowest", tuple[float, float])),
        inside.value("step_weights", tuple[float, ...]),
        inside.value("least_segment", float),
    )


_THRESHOLDS = {"hour": ByHour, "context": ByContext}


def plain_threshold(name: str, value: Threshold) -> Any:
    """A threshold as a file holds it; a function of one's own is refused."""
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
    """A threshold."""
    said = model.value(name, float | dict[str, Any])
    if isinstance(said, float):
        return said
    inside = model.within(name)
    otherwise = inside.value("otherwise", float)
    if said.get("by") == "hour":
        hours = {int(h): t for h, t in inside.value("hours", dict[str, float]).items()}
        return ByHour(hours, otherwise, inside.value("utc_offset", float | None))
    return ByContext(inside.value("column", str), inside.value("thresholds", dict[str, float]), otherwise)


# -------------------------------------------------------------------- trips and tables


def pack_trips(name: str, trips: Trajectories) -> Packed:
    """Kept trajectories: fixes, or states and actions; context columns as numbers or text."""
    arrays: dict[str, Any] = {
        f"{name}.offsets": trips.offsets,
        **pack_text(f"{name}.agents", trips.agent_ids.tolist()),
        **pack_text(f"{name}.ids", trips.trajectory_ids.tolist()),
    }
    columns = tuple(c for c in (*FIX_COLUMNS, *STEP_COLUMNS) if c in trips.columns)
    arrays |= {f"{name}.{c}": trips.columns[c].astype(np.float64) for c in columns}
    context = {}
    for i, (column, values) in enumerate(trips.context.items()):
        numeric = values.dtype.kind in "fiub"
        context[column] = "number" if numeric else "text"
        if numeric:
            arrays[f"{name}.context.{i}"] = values.astype(np.float64)
        else:
            arrays |= pack_text(f"{name}.context.{i}", values.astype(str).tolist())
    return Packed({name: {"columns": columns, "context": context}}, arrays)


def unpack_trips(model: Contents, name: str) -> Trajectories:
    """Kept trajectories."""
    inside = model.within(name)
    names = inside.value("columns", tuple[str, ...])
    if names not in (FIX_COLUMNS, STEP_COLUMNS):
        raise model.wrong(f"{name} has the columns {names}")
    flat = names == FIX_COLUMNS
    columns = {c: model.array(f"{name}.{c}", np.float64, *((None,) if flat else (None, None))) for c in names}
    offsets = model.offsets(f"{name}.offsets", len(columns[names[0]]))
    n = len(offsets) - 1
    context: dict[str, Array] = {}
    for i, (column, kind) in enumerate(inside.value("context", dict[str, str]).items()):
        place = f"{name}.context.{i}"
        if kind == "number":
            context[column] = model.array(place, np.float64, n, unbounded=True)
        else:
            context[column] = np.array(model.text(place, n))
    return Trajectories(columns, offsets, model.text(f"{name}.agents", n), model.text(f"{name}.ids", n), context)


def pack_table(name: str, table: pl.DataFrame) -> Packed:
    """A table of numbers, such as the history of learning."""
    return Packed({name: table.columns}, {f"{name}.{c}": table[c].cast(pl.Float64).to_numpy() for c in table.columns})


def unpack_table(model: Contents, name: str) -> pl.DataFrame:
    """A table of numbers."""
    columns = model.value(name, tuple[str, ...])
    height = len(model.array(f"{name}.{columns[0]}", np.float64, None, unbounded=True)) if columns else 0
    return pl.DataFrame({c: model.array(f"{name}.{c}", np.float64, height, unbounded=True) for c in columns})
