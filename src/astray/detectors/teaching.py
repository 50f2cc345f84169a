"""Teaching a detector: which trips teach, what is remembered of them, and what is kept of it all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.aggregate import SOFTNESS, trip_means
from astray.detectors.continuation import Generated, one_thread
from astray.detectors.scoring import chunks
from astray.errors import DataError
from astray.irl.posterior import RewardPosterior
from astray.mdp.memory import Memory
from astray.mdp.paths import resample
from astray.mdp.view import View, trip_names
from astray.mdp.world import GeoWorld, Rows, StepWorld
from astray.modelfile import ModelFile
from astray.modelfile.parts import (
    Packed,
    pack_posterior,
    pack_scales,
    pack_table,
    pack_trips,
    pack_view,
    unpack_posterior,
    unpack_scales,
    unpack_table,
    unpack_trips,
    unpack_view,
)
from astray.normality import Calibration, Scale, calibrate, locate, out_of_bag
from astray.trajectories import Trajectories

if TYPE_CHECKING:
    from astray.irl.config import LearnConfig
    from astray.irl.learn import Learned

Array = NDArray[Any]
Progress = Callable[[int, int, Mapping[str, float]], None]

REMEMBER_FIXES = 500_000  # looked at in one go while remembering
FEW_LEFT_OUT = 10  # with fewer left-out trips than this, all demonstrations set the scale
LEAST_JUDGES = 3  # heads that must not have learned from a trip for it to set the scale
WINDOW = 120.0  # seconds of the worst window
WINDOW_STEPS = 10.0  # and steps, where there is no time


# -------------------------------------------------------------------- which trips teach


def teachable(
    trips: Trajectories, y: ArrayLike | None = None, refused: Iterable[str] = (), known: frozenset[str] = frozenset()
) -> NDArray[np.bool_]:
    """Which trips may teach.

    Not those marked -1, not those named in ``refused``, and not those that are ``known`` to be anomalous, unless they
    are marked +1 now. Two trips of one name are refused altogether.

    >>> trips = Trajectories.from_fixes(time=[0, 0, 0], lat=[0, 0, 0], lon=[0, 0, 0], agent="a", trajectory=[*"xyz"])
    >>> teachable(trips, [1, -1, 1], refused=["z"]).tolist()
    [True, False, False]
    """
    names = trip_names(trips)
    if len(set(names)) < len(names):
        distinct, times = np.unique(names, return_counts=True)
        twice = str(distinct[np.argmax(times)])
        raise DataError(f"two trajectories are called {twice!r}; give each trajectory of an agent an id of its own")
    unwanted = trips.called(refused)
    if y is None:
        return ~unwanted & ~np.isin(names, sorted(known))
    labels = np.asarray(y)
    if labels.shape not in ((), (len(trips),)) or not np.isin(labels, (-1, 1)).all():
        raise DataError(f"y must be +1 (normal) or -1 (anomalous), one for each of the {len(trips)} trajectories")
    return np.asarray(~unwanted & (labels == 1), bool)


def without(trips: Trajectories, names: Iterable[str]) -> Trajectories:
    """The trips that are not called one of these full names."""
    return trips[~np.isin(trip_names(trips), sorted(names))]


def sample(trips: Trajectories, most: int, rng: np.random.Generator) -> Trajectories:
    """At most so many trips, drawn at random, in their order."""
    return trips if len(trips) <= most else trips[np.sort(rng.choice(len(trips), most, replace=False))]


def others(
    population: Trajectories, mine: Trajectories, most: int, rng: np.random.Generator, known: Iterable[str] = ()
) -> Trajectories:
    """At most so many trips of a population, none of them by the agents of ``mine`` or by ``known`` ones."""
    if population.is_gps != mine.is_gps:
        raise DataError("the population and the trips must be of one kind: fixes, or states and actions")
    # Agents without a name cannot be told apart, so nobody is left out by it.
    found = population[~np.isin(population.agent_ids, [a for a in {*mine.agents, *known} if a])]
    if not len(found):
        raise DataError("the population has no trip of another agent; leave it out, or give others' trips")
    return sample(found, most, rng)


# -------------------------------------------------------------------- what is remembered, what is kept


def remember(view: View, trips: Trajectories) -> View:
    """A view that remembers these trips too; those that it remembered under the same names are replaced."""
    again = set(view.memory.trip_ids).intersection(trip_names(trips))
    view = view.forget(sorted(again)) if again else view
    blank = view.with_memory(Memory())
    # In pieces, so that looking at very many trips takes little memory; merged in pairs, so that none moves too often.
    memories = [blank.remember(trips[chunk]).memory for chunk in chunks(trips.lengths, REMEMBER_FIXES)]
    while len(memories) > 1:
        merged = [a.merge(b) for a, b in zip(memories[::2], memories[1::2], strict=False)]
        memories = merged + memories[2 * len(merged) :]
    return view.with_memory(view.memory.merge(memories[0])) if memories else view


def thin(trips: Trajectories, view: View) -> Trajectories:
    """The same trips as a model keeps them: resampled to the view's interval, without faulty fixes."""
    paths = resample(view.paths(trips), view.config.interval)
    lat, lon = view.projection.to_degrees(paths.columns["xy"])
    lengths = np.bincount(paths.context["trip"], paths.lengths, len(trips)).astype(np.int64)
    present = lengths > 0
    wanted = (*view.config.context.numeric, *view.config.context.categorical)
    return Trajectories(
        {"time": paths.columns["time"], "lat": lat, "lon": lon},
        np.r_[0, np.cumsum(lengths[present])],
        trips.agent_ids[present],
        trips.trajectory_ids[present],
        {name: trips.context[name][present] for name in wanted},
    )


class Unknown:
    """The dynamics of a world that came out of a file: it can be looked at, but not acted in."""

    def reset(self, n: int, rng: np.random.Generator) -> Array:
        """Refuse to begin."""
        raise DataError("a model file holds no dynamics; set_params(dynamics=...) before letting a policy act")

    def step(self, states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        """Refuse to go on."""
        return self.reset(len(states), rng), np.zeros(len(states), bool)


@dataclass(frozen=True, eq=False)
class Taught:
    """All that a detector has after learning, and all that its file holds beside the parameters."""

    posterior: RewardPosterior
    scale: Scale
    view: View | None  # for GPS
    world: StepWorld | None  # for states and actions
    history: pl.DataFrame
    generated: Generated | None
    kept: Trajectories
    population: Trajectories | None
    suspects: tuple[str, ...] = ()  # names of demonstrations that taught nothing, being likely strays

    def pack(self) -> Packed:
        """As a model file holds it."""
        parts = [
            pack_posterior("reward", self.posterior),
            pack_scales("scales", [self.scale]),
            pack_table("history", self.history),
            pack_trips("kept", self.kept),
            Packed({"suspects": list(self.suspects)}, {}),
        ]
        if self.view is not None:
            parts.append(pack_view("view", self.view))
        if self.world is not None:
            w = self.world
            parts.append(Packed({}, {"world.mean": w.mean, "world.scale": w.scale, "world.waves": w.frequencies}))
        if self.population is not None and len(self.population):
            parts.append(pack_trips("population", self.population))
        if self.generated is not None:
            parts.append(self.generated.pack("policy"))
        return Packed.together(parts)

    @classmethod
    def unpack(cls, model: ModelFile) -> Taught:
        """Out of a model file."""
        posterior, kept = unpack_posterior(model, "reward"), unpack_trips(model, "kept")
        view = unpack_view(model, "view") if kept.is_gps else None
        world = None
        if view is None:
            width = sum(kept.columns[name].shape[1] for name in ("state", "action"))
            mean, scale = (model.array(f"world.{part}", np.float64, width) for part in ("mean", "scale"))
            world = StepWorld(kept, Unknown(), mean, scale, model.array("world.waves", np.float64, width, None))
        n_features = len(view.names) if view is not None else len(mean) + 2 * world.frequencies.shape[1] if world else 0
        if n_features != len(posterior.mean):
            raise model.wrong(f"its reward sees {len(posterior.mean)} features, its view gives {n_features}")
        return cls(
            posterior,
            unpack_scales(model, "scales")[0],
            view,
            world,
            unpack_table(model, "history"),
            Generated.unpack(model, "policy") if "policy.critic" in model.values else None,
            kept,
            unpack_trips(model, "population") if "population" in model.values else None,
            model.value("suspects", tuple[str, ...]) if "suspects" in model.values else (),
        )


def teach(
    world: GeoWorld | StepWorld,
    config: LearnConfig,
    rng: np.random.Generator,
    *,
    population: Trajectories | None,
    start: Learned | None = None,
    keep: int = 300,
    robust: bool = False,
    scale: str = "trip",
    window: float | None = None,
    progress: Progress | None = None,
) -> Taught:
    """Algorithm 1, then the scales, then what is kept.

    Every trip sets the scales by the rewards of the heads whose bootstrap has left it out (out of bag, Breiman 1996).
    The heads share a trunk, which has learned from it all the same: so p-values are read from held-out trips alone, and
    of few trips they promise little.
    Where the paper's own scale is asked for, and no trip is held out, all heads judge all trips.

    Where there are other agents' trips to compare with, a first look finds likely strays among the demonstrations. They
    are remembered, but teach nothing.
    """
    from astray.irl.learn import held_out, learn

    rows, suspected = world.demonstrations(), np.zeros(len(world.names), np.bool_)
    compared = dict(config.weights).get("population", 0.0) > 0
    with one_thread():
        if population is not None and len(population) and compared and config.suspicion > 0:
            suspected = suspects(world, config, rng, population, _half(progress, 0))
            progress = _half(progress, 1)
        learned = learn(world[~suspected], config, rng, population=population, start=start, progress=progress)
    unseen = np.ones((len(suspected), learned.unseen.shape[1]), np.bool_)
    unseen[~suspected] = learned.unseen
    rewards, judged = learned.posterior(rows.features), judges(unseen)[rows.trip]
    measured = np.any(judged, axis=1)
    # Of a handful of trips the spread cannot be told: then all heads must judge all, each trip left out of its counts.
    if (scale == "trip" or config.held_out) and _n_trips(rows, measured) >= FEW_LEFT_OUT:
        rows, rewards = rows[measured], out_of_bag(rewards[measured], judged[measured])
    promised = np.isin(rows.trip, held_out(world.names, np.unique(rows.trip), config.held_out))
    calibration = calibrated(learned, rows, rewards, robust, scale, window, promised, suspected[rows.trip])
    names = tuple(name for name, doubted in zip(world.names, suspected.tolist(), strict=True) if doubted)
    world = world[~suspected]
    if isinstance(world, GeoWorld):
        view, kept = world.view, thin(sample(world.fixes, keep, rng), world.view)
        others = None if population is None else thin(sample(population, keep // 3, rng), view)
    else:
        view, kept = None, sample(world.trajectories, keep, rng)
        others = None if population is None else sample(population, keep // 3, rng)
    steps = None if isinstance(world, GeoWorld) else replace(world, trajectories=kept)
    history, generated = learned.history, Generated.of(learned)
    return Taught(learned.posterior, Scale(calibration), view, steps, history, generated, kept, others, names)


def suspects(
    world: GeoWorld | StepWorld,
    config: LearnConfig,
    rng: np.random.Generator,
    population: Trajectories,
    progress: Progress | None = None,
) -> NDArray[np.bool_]:
    """Which demonstrations look like other agents' trips (:mod:`astray.irl.strays`), all judged out of bag.

    They are looked at by a reward that tells the agent from half of the others and nothing else, which is quickly
    learned; the other half, from which it has not learned either, is what they are compared with.
    """
    from astray.irl.learn import learn
    from astray.irl.strays import likely_strays

    met = np.arange(len(population)) % 2 == 0
    scouting = replace(config, weights=(("population", 1.0),), rollouts=0)
    scout = learn(world, scouting, rng, population=population[met], progress=progress)
    unseen = scout.unseen | ~scout.unseen.any(axis=1, keepdims=True)
    own, others = world.demonstrations(), world.others(population[~met])
    rewards = out_of_bag(scout.posterior(own.features), unseen[own.trip])[:, 0, 0]
    scale = locate(rewards)
    mine, theirs = (scale.standardise(r) for r in (rewards, scout.posterior(others.features)[:, 0].mean(axis=1)))
    # A path ends at a gap, and a soft mean of a whole trip is not that of its paths.
    of = others.path if others.steps is None else np.unique(others.steps.trip, return_inverse=True)[1]
    return likely_strays(
        trip_means(mine, own.trip, np.ones(len(own)), len(unseen), SOFTNESS),
        trip_means(theirs, of, np.ones(len(others)), softness=SOFTNESS),
        config.suspicion,
    )


def _half(progress: Progress | None, half: int) -> Progress | None:
    """Progress of the first (0) or the second half (1) of the work."""
    if progress is None:
        return None
    return lambda iteration, n, measures: progress(half * n + iteration, 2 * n, measures)


def _n_trips(rows: Rows, which: NDArray[np.bool_]) -> int:
    return len(np.unique(rows.trip[which]))


def judges(unseen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which heads judge each demonstration, from (trips, heads) that say which have not learned from it.

    A trip that nearly every head has learned from is judged by none: one or two heads are a noisy jury.

    >>> judges(np.array([[True, True, True, True], [False, True, False, False]])).sum(axis=1).tolist()
    [4, 0]
    """
    enough = unseen.sum(axis=1) >= min(LEAST_JUDGES, unseen.shape[1])
    return np.asarray(unseen & enough[:, None])


def calibrated(
    learned: Learned,
    rows: Rows,
    rewards: Array,
    robust: bool,
    scale: str = "trip",
    window: float | None = None,
    unseen: NDArray[np.bool_] | None = None,
    doubted: NDArray[np.bool_] | None = None,
) -> Calibration:
    """The scales that demonstrations set, from the rewards of their rows.

    Of several aspects the one that was learned against other agents' trips says who it was: its mean over a trip is
    soft. A single one has to find what went wrong as well.
    """
    if rows.steps is None:
        time = np.arange(len(rows)) - np.searchsorted(rows.path, rows.path).astype(np.float64)
        seconds = WINDOW_STEPS if window is None else window
    else:
        time, seconds = rows.steps.time, WINDOW if window is None else window
    several = len(learned.backgrounds) > 1
    return calibrate(
        rewards,
        rows.trip,
        time,
        np.ones(len(rows)),
        aspects=learned.posterior.aspects,
        softness=[SOFTNESS if several and "population" in b.rows else 0.0 for b in learned.backgrounds.values()],
        backgrounds=learned.background_rewards(),
        unseen=unseen,
        doubted=doubted,
        robust=robust,
        scale=scale,
        window_seconds=seconds,
    )
