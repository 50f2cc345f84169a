"""The parts of a model as a file holds them: reward, view, memory, scales, kept trips, policy; packed and unpacked.

Each ``pack_*`` gives plain values and arrays under names that begin with ``name``; each ``unpack_*`` takes them out of
a :class:`~astray.modelfile.ModelFile` again and checks that they fit together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.decide import ByContext, ByHour, Threshold
from astray.errors import ModelFileError
from astray.irl.actor import Actor
from astray.irl.posterior import RewardPosterior
from astray.mdp.context import Context
from astray.mdp.encoders import Encoder, FamiliarityEncoder, FourierEncoder, RawEncoder
from astray.mdp.haunts import Haunts
from astray.mdp.memory import Forgetting, Memory
from astray.mdp.projection import Projection
from astray.mdp.view import View, ViewConfig
from astray.modelfile import ModelFile, pack_text, plain
from astray.normality import Calibration, Location, Overall, Scale
from astray.trajectories import FIX_COLUMNS, Trajectories

Array = NDArray[Any]
Names = tuple[str, ...]
Layers = tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]


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


def unpack_posterior(model: ModelFile, name: str) -> RewardPosterior:
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
    return RewardPosterior(mean, scale, layers, prior, shape.value("clip", float), aspects)


def _unpack_layers(model: ModelFile, name: str, n: int, width: int) -> Layers:
    layers = []
    networks: int | None = None
    for i in range(n):
        weight = model.array(f"{name}.{i}.weight", np.float32, networks, width, None)
        networks, width = weight.shape[0], weight.shape[2]
        layers.append((weight, model.array(f"{name}.{i}.bias", np.float32, networks, 1, width)))
    return tuple(layers)


def pack_actor(name: str, actor: Actor) -> Packed:
    """The policy."""
    parts = ("state_mean", "state_scale", "action_mean", "action_scale", "theta")
    return Packed({name: {"hidden": actor.hidden}}, {f"{name}.{p}": getattr(actor, p) for p in parts})


def unpack_actor(model: ModelFile, name: str) -> Actor:
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


# -------------------------------------------------------------------- the view and its memory


def pack_memory(name: str, memory: Memory) -> Packed:
    """The postings of a memory and the names of its trips; the way of forgetting belongs to the view."""
    return Packed(
        {},
        {
            **pack_text(f"{name}.trip_ids", memory.trip_ids),
            f"{name}.times": memory.times,
            f"{name}.keys": memory.keys,
            f"{name}.trips": memory.trips,
        },
    )


def unpack_memory(model: ModelFile, name: str, forgetting: Forgetting) -> Memory:
    """A memory."""
    trip_ids = tuple(model.text(f"{name}.trip_ids"))
    keys = model.array(f"{name}.keys", np.uint64, None)
    memory = Memory(
        trip_ids,
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


def pack_view(name: str, view: View) -> Packed:
    """A view with its memory."""
    values: dict[str, Any] = {
        name: {"config": plain(view.config), "projection": plain(view.projection), "context": plain(view.context)}
    }
    if isinstance(view.encoder, FamiliarityEncoder):
        values[name]["utc_offset"] = view.encoder.utc_offset
        parts = [
            Packed(values, {}),
            pack_memory(f"{name}.memory", view.memory),
            pack_haunts(f"{name}.haunts", view.haunts),
        ]
        return Packed.together(parts)
    if isinstance(view.encoder, FourierEncoder):
        return Packed(values, {f"{name}.frequencies": view.encoder.frequencies})
    return Packed(values, {})


def unpack_view(model: ModelFile, name: str) -> View:
    """A view with its memory."""
    inside = model.within(name)
    config = inside.value("config", ViewConfig)
    encoder: Encoder = RawEncoder()
    if config.encoder == "fourier":
        encoder = FourierEncoder(model.array(f"{name}.frequencies", np.float64, 2, None))
    elif config.encoder == "familiarity":
        memory = unpack_memory(model, f"{name}.memory", config.forgetting)
        encoder = FamiliarityEncoder(memory, config.habits, config.lags, inside.value("utc_offset", float))
    haunts = unpack_haunts(model, f"{name}.haunts")
    return View(config, inside.value("projection", Projection), encoder, inside.value("context", Context), haunts)


def pack_haunts(name: str, haunts: Haunts) -> Packed:
    """Where other agents go; nothing, where that is not looked at."""
    if not haunts.cells:
        return Packed({}, {})
    return Packed.together([Packed({name: haunts.cells}, {}), pack_memory(name, haunts.agents)])


def unpack_haunts(model: ModelFile, name: str) -> Haunts:
    """Where other agents go."""
    if name not in model.values:
        return Haunts()
    cells = model.value(name, tuple[float, ...])
    if not all(0 < size < np.inf for size in cells):
        raise model.wrong(f"the cells of {name} have no size")
    return Haunts(cells, unpack_memory(model, name, Forgetting()))


# -------------------------------------------------------------------- scales and thresholds


def pack_scales(name: str, scales: Sequence[Scale]) -> Packed:
    """What scores are measured on."""
    values, arrays = [], {}
    for i, scale in enumerate(scales):
        c = scale.calibration
        values.append(
            {
                "aspects": c.aspects,
                "tolerance": c.tolerance,
                "softness": c.softness,
                "step": c.step,
                "trip": c.trip,
                "window": c.window,
                "overall": c.overall,
                "window_seconds": c.window_seconds,
                "scale": c.scale,
                "step_noise": scale.step_noise,
                "trip_noise": scale.trip_noise,
            }
        )
        arrays[f"{name}.{i}.trips"] = c.trips
    return Packed({name: values}, arrays)


def unpack_scales(model: ModelFile, name: str) -> tuple[Scale, ...]:
    """What scores are measured on."""
    scales = []
    for i, said in enumerate(model.value(name, tuple[dict[str, Any], ...])):
        inside = replace(model, values=said)
        aspects, tolerance = inside.value("aspects", Names), inside.value("tolerance", tuple[float, ...])
        softness = inside.value("softness", tuple[float, ...]) if "softness" in said else (0.0,) * len(aspects)
        step, trip, window, overall = (_locations(inside, part) for part in ("step", "trip", "window", "overall"))
        parts = (tolerance, softness, step, trip, window)
        if any(len(part) != len(aspects) for part in parts) or len(overall) != 3:
            raise model.wrong(f"{name} has scales for other than its {len(aspects)} aspects")
        if any(t < 0.0 for t in softness):
            raise model.wrong(f"{name} has a softness below 0")
        calibration = Calibration(
            aspects,
            tolerance,
            softness,
            step,
            trip,
            window,
            Overall(*overall),
            model.array(f"{name}.{i}.trips", np.float64, None),
            inside.value("window_seconds", float),
            inside.value("scale", str),
        )
        scales.append(Scale(calibration, inside.value("step_noise", float), inside.value("trip_noise", float)))
    if not scales:
        raise model.wrong(f"{name} is empty")
    return tuple(scales)


def _locations(model: ModelFile, name: str) -> tuple[Location, ...]:
    return tuple(Location(*pair) for pair in model.value(name, tuple[tuple[float, float], ...]))


_THRESHOLDS = {"hour": ByHour, "context": ByContext}


def plain_threshold(name: str, value: Threshold) -> Any:
    """A threshold as a file holds it; a function of one's own is refused."""
    if not callable(value):
        return float(value)
    for kind, cls in _THRESHOLDS.items():
        if isinstance(value, cls):
            return {"by": kind, **plain(value)}
    raise ModelFileError(
        f"{name} is a function, which no file can hold; set_params({name}=...) to a number before saving"
    )


def restore_threshold(model: ModelFile, name: str) -> Threshold:
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
    columns = FIX_COLUMNS if trips.is_gps else ("state", "action")
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


def unpack_trips(model: ModelFile, name: str) -> Trajectories:
    """Kept trajectories."""
    inside = model.within(name)
    names = inside.value("columns", tuple[str, ...])
    if names not in (FIX_COLUMNS, ("state", "action")):
        raise model.wrong(f"{name} has the columns {names}")
    flat = names == FIX_COLUMNS
    columns = {c: model.array(f"{name}.{c}", np.float64, *((None,) if flat else (None, None))) for c in names}
    offsets = model.offsets(f"{name}.offsets", len(columns[names[0]]))
    n = len(offsets) - 1
    context: dict[str, Array] = {}
    for i, (column, kind) in enumerate(inside.value("context", dict[str, str]).items()):
        place = f"{name}.context.{i}"
        context[column] = model.array(place, np.float64, n) if kind == "number" else np.array(model.text(place, n))
    return Trajectories(columns, offsets, model.text(f"{name}.agents", n), model.text(f"{name}.ids", n), context)


def pack_table(name: str, table: pl.DataFrame) -> Packed:
    """A table of numbers, such as the history of learning."""
    return Packed({name: table.columns}, {f"{name}.{c}": table[c].cast(pl.Float64).to_numpy() for c in table.columns})


def unpack_table(model: ModelFile, name: str) -> pl.DataFrame:
    """A table of numbers."""
    columns = model.value(name, tuple[str, ...])
    height = len(model.array(f"{name}.{columns[0]}", np.float64, None)) if columns else 0
    return pl.DataFrame({c: model.array(f"{name}.{c}", np.float64, height) for c in columns})
