"""Learning a reward of one's own: which trips teach, what is remembered of them, and what is kept of it all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from astray.detectors.inbox import Inbox, pack_inboxes, unpack_inboxes
from astray.detectors.resuming import Generated
from astray.errors import DataError
from astray.features.featurizer import Featurizer, Prepared
from astray.features.memory import Memory
from astray.features.paths import resample
from astray.irl.posterior import RewardPosterior
from astray.irl.shared import Reward
from astray.irl.step_world import StepWorld
from astray.irl.world import GeoWorld
from astray.scoring.config import ScaleConfig
from astray.scoring.normality import Calibration, Location, calibrate, out_of_bag
from astray.scoring.own_scale import OwnScores
from astray.scoring.scores import CHUNK_FIXES, chunks
from astray.storage import ModelFile
from astray.storage.parts import (
    Packed,
    pack_calibration,
    pack_featurizer,
    pack_ids,
    pack_reward,
    pack_trips,
    unpack_calibration,
    unpack_featurizer,
    unpack_ids,
    unpack_reward,
    unpack_table,
    unpack_trips,
)
from astray.threads import one_thread
from astray.trajectories import Trajectories
from astray.trip_ids import TripId

if TYPE_CHECKING:
    from astray.irl.config import LearnConfig
    from astray.irl.learn import Learned

Array = NDArray[Any]
Progress = Callable[[int, int, Mapping[str, float]], None]

REMEMBER_FIXES = 500_000  # looked at in one go while remembering
WINDOW = 120.0  # seconds of the worst window
WINDOW_STEPS = 10.0  # and steps, where there is no time


# -------------------------------------------------------------------- which trips teach


def teachable(
    trips: Trajectories,
    y: ArrayLike | None = None,
    refused: Iterable[TripId] = (),
    known: frozenset[TripId] = frozenset(),
) -> NDArray[np.bool_]:
    """Which trips may teach.

    Not those marked -1, not those named in ``refused``, and not those that are ``known`` to be anomalous, unless they
    are marked +1 now. Two trips of one name are refused altogether.

    >>> trips = Trajectories.from_fixes(time=[0, 0, 0], lat=[0, 0, 0], lon=[0, 0, 0], agent="a", trajectory=[*"xyz"])
    >>> teachable(trips, [1, -1, 1], refused=[TripId("a", "z")]).tolist()
    [True, False, False]
    """
    for trip, times in Counter(trips.ids).most_common(1):
        if times > 1:
            raise DataError(f"two trajectories are called '{trip}'; give each trajectory of an agent an id of its own")
    unwanted = trips.isin(refused)
    if y is None:
        return ~unwanted & ~trips.isin(known)
    labels = np.asarray(y)
    if labels.shape not in ((), (len(trips),)) or not np.isin(labels, (-1, 1)).all():
        raise DataError(f"y must be +1 (normal) or -1 (anomalous), one for each of the {len(trips)} trajectories")
    return np.asarray(~unwanted & (labels == 1), bool)


def without(trips: Trajectories, ids: Iterable[TripId]) -> Trajectories:
    """The trips that have none of these ids."""
    return trips[~trips.isin(ids)]


def drawn(n: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The positions of at most so many of ``n`` trips, drawn at random, rising."""
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def sample(trips: Trajectories, most: int, rng: np.random.Generator) -> Trajectories:
    """At most so many trips, drawn at random, in their order."""
    return trips if len(trips) <= most else trips[drawn(len(trips), most, rng)]


def check_steps(given: Trajectories, known: Trajectories, whose: str = "") -> None:
    """Refuse what does not hold states and actions as wide as the known ones."""
    for name in ("state", "action"):
        if name not in given.columns:
            held = ", ".join(given.columns)
            raise DataError(f"{whose}{name}s are missing: there is {held}; Trajectories.from_steps makes them")
        columns, wanted = given.columns[name].shape[1], known.columns[name].shape[1]
        if columns != wanted:
            raise DataError(f"{whose}{name}s have {columns} columns, not {wanted} as those that were learned from")


def others(
    population: Trajectories, mine: Trajectories, most: int, rng: np.random.Generator, known: Iterable[str] = ()
) -> Trajectories:
    """At most so many trips of a population, none of them by the agents of ``mine`` or by ``known`` ones."""
    if population.is_gps != mine.is_gps:
        raise DataError("the population and the trips must be of one kind: fixes, or states and actions")
    if not mine.is_gps:
        check_steps(population, mine, "the population's ")
    # Agents without a name cannot be told apart, so nobody is left out by it.
    found = population[~np.isin(population.agent_ids, [a for a in {*mine.agents, *known} if a])]
    if not len(found):
        raise DataError("the population has no trip of another agent; leave it out, or give others' trips")
    return sample(found, most, rng)


# -------------------------------------------------------------------- what is remembered, what is kept


def remember(featurizer: Featurizer, of: Prepared) -> Featurizer:
    """A featurizer that remembers these trips too; those that it remembered under the same names are replaced."""
    featurizer = featurizer.forget(of.trips.ids)
    blank = featurizer.with_memory(Memory())
    # In pieces, so that looking at very many trips takes little memory; merged in pairs, so that none moves too often.
    pieces = [np.arange(len(of.trips))[chunk] for chunk in chunks(of.trips.lengths, REMEMBER_FIXES)]
    memories = [blank.remember(of if len(pieces) == 1 else of[piece]).memory for piece in pieces]
    while len(memories) > 1:
        merged = [a.merge(b) for a, b in zip(memories[::2], memories[1::2], strict=False)]
        memories = merged + memories[2 * len(merged) :]
    return featurizer.with_memory(featurizer.memory.merge(memories[0])) if memories else featurizer


def thin(of: Prepared, featurizer: Featurizer) -> Trajectories:
    """Trips as a model keeps them: resampled to the featurizer's interval, without faulty fixes."""
    trips, paths = of.trips, resample(of.paths, featurizer.config.interval)
    lat, lon = featurizer.projection.to_degrees(paths.columns["xy"])
    lengths = np.bincount(paths.context["trip"], paths.lengths, len(trips)).astype(np.int64)
    present = lengths > 0
    wanted = (*featurizer.config.context.numeric, *featurizer.config.context.categorical)
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
class Trained:
    """All that a detector has after learning, and all that its file holds beside the parameters."""

    reward: Reward
    calibration: Calibration | None  # of a reward of the agent's own; None: by its own past trips
    featurizer: Featurizer | None  # for GPS
    world: StepWorld | None  # for states and actions
    kept: Trajectories
    generated: Generated | None = None
    own: OwnScores = field(default_factory=OwnScores)  # what the remembered trips score by a shared reward
    suspects: tuple[TripId, ...] = ()  # past trips that were taken for somebody else's
    inbox: Inbox = field(default_factory=Inbox)  # flagged trips that nothing was learned from

    def pack(self) -> Packed:
        """As a model file holds it."""
        parts = [
            pack_reward("reward", self.reward),
            pack_trips("kept", self.kept),
            Packed({}, pack_ids("suspects", self.suspects)),
        ]
        if self.calibration is not None:
            parts.append(pack_calibration("calibration", self.calibration))
        else:
            parts.append(Packed({"own_step": self.own.step}, {"own_scores": self.own.trips}))
            parts.append(pack_inboxes("inbox", [self.inbox]))
        if self.featurizer is not None:
            parts.append(pack_featurizer("featurizer", self.featurizer))
        if self.world is not None:
            w = self.world
            parts.append(Packed({}, {"world.mean": w.mean, "world.scale": w.scale, "world.waves": w.frequencies}))
        if self.generated is not None:
            parts.append(self.generated.pack("policy"))
        return Packed.together(parts)

    @classmethod
    def unpack(cls, model: ModelFile) -> Trained:
        """Out of a model file."""
        reward, kept = unpack_reward(model, "reward"), unpack_trips(model, "kept")
        if "history" in model.values:  # files of version 4 hold it beside the reward
            reward = replace(reward, history=unpack_table(model, "history"))
        featurizer = unpack_featurizer(model, "featurizer") if kept.is_gps else None
        world = None
        if featurizer is None:
            width = sum(kept.columns[name].shape[1] for name in ("state", "action"))
            mean, scale = (model.array(f"world.{part}", np.float64, width) for part in ("mean", "scale"))
            world = StepWorld(kept, Unknown(), mean, scale, model.array("world.waves", np.float64, width, None))
        n_features = (
            len(featurizer.names)
            if featurizer is not None
            else len(mean) + 2 * world.frequencies.shape[1]
            if world
            else 0
        )
        if n_features != len(reward.step.mean):
            raise model.wrong(f"its reward sees {len(reward.step.mean)} features, its featurizer gives {n_features}")
        own, calibration, inbox = OwnScores(), None, Inbox()
        if "calibration" in model.values:
            least_segment = ScaleConfig.least_segment if kept.is_gps else ScaleConfig.least_segment_steps
            calibration = unpack_calibration(model, "calibration", least_segment)
        else:
            if featurizer is None or reward.trip is None or len(reward.trip.mean) != len(featurizer.statistics):
                raise model.wrong("its trip reward and its featurizer do not fit together")
            step = model.value("own_step", tuple[float, float] | None)
            scores = model.array("own_scores", np.float32, len(featurizer.memory), 2, len(reward.aspects), gaps=True)
            own = OwnScores(scores, None if step is None else Location(*step))
            inbox = unpack_inboxes(model, "inbox", 1)[0]
        return cls(
            reward,
            calibration,
            featurizer,
            world,
            kept,
            Generated.unpack(model, "policy") if "policy.critic" in model.values else None,
            own,
            tuple(unpack_ids(model, "suspects")),
            inbox,
        )


def train(
    world: GeoWorld | StepWorld,
    config: LearnConfig,
    rng: np.random.Generator,
    *,
    population: Trajectories | None,
    given: Trajectories | None = None,
    start: Learned | None = None,
    keep: int = 300,
    robust: bool = False,
    scale: str = "trip",
    window: float | None = None,
    scaling: ScaleConfig | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Algorithm 1, then the scales, then what is kept.

    Held-out trips set the scales. Every trip, by the rewards of the heads that it was held out from (out of bag,
    Breiman 1996), tells what the length of a trip does to its score, and sets the scales where too few are held out.
    The heads share a trunk, which has learned from it all the same: so p-values are read from held-out trips alone,
    and of few trips they promise little.
    """
    from astray.irl.learn import held_out, learn

    with one_thread():
        learned = learn(world, config, rng, population=population, given=given, start=start, progress=progress)
    present = np.unique(world.paths.context["trip"]) if isinstance(world, GeoWorld) else np.arange(len(world.names))
    scaling = scaling or ScaleConfig()
    heads = held_out_heads(learned.unseen, present, scaling)
    if scale == "step" and not config.held_out:  # the paper's own
        heads = np.ones_like(heads)
    steps = held_out_steps(world, learned.posterior, heads)
    timed = isinstance(world, GeoWorld)
    calibration = calibrate(
        *steps,
        aspects=learned.posterior.aspects,
        held_out=np.isin(steps.trip, held_out(world.names, present, config.held_out)),
        robust=robust,
        scale=scale,
        window_length=window or (WINDOW if timed else WINDOW_STEPS),
        least_segment=scaling.least_segment if timed else scaling.least_segment_steps,
        config=scaling,
    )
    reward, generated = Reward(learned.posterior, history=learned.history), Generated.of(learned)
    if isinstance(world, GeoWorld):
        kept = thin(world.featurizer.prepare(sample(world.fixes, keep, rng)), world.featurizer)
        return Trained(reward, calibration, world.featurizer, None, kept, generated)
    kept = sample(world.trajectories, keep, rng)
    return Trained(reward, calibration, None, replace(world, trajectories=kept), kept, generated)


def held_out_heads(held_out: NDArray[np.bool_], present: NDArray[np.int64], scaling: ScaleConfig) -> NDArray[np.bool_]:
    """Which heads reward each demonstration, from (trips, heads) that say which it was held out from.

    A trip that nearly every head has learned from is rewarded by none: one or two heads are noisy. But of a handful of
    trips the spread cannot be told: then all heads reward all.

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
    """The steps of demonstrations, whole trips one after the other."""

    rewards: NDArray[np.float64]  # (steps, aspects, 1): by the heads that the trip was held out from
    trip: NDArray[np.int64]
    time: NDArray[np.float64]  # seconds, or steps where there is no time
    weight: NDArray[np.float64]  # how long a step takes, likewise


def held_out_steps(world: GeoWorld | StepWorld, posterior: RewardPosterior, heads: NDArray[np.bool_]) -> HeldOutSteps:
    """How some heads of each trip, of (trips, heads), reward its steps; trips without a head are not among them."""
    wanted = np.asarray(heads.any(axis=1))
    if isinstance(world, GeoWorld):
        rows = world.demonstrations()
        rows = rows[wanted[rows.trip]]
        assert rows.steps is not None
        rewards = out_of_bag(posterior(rows.features), heads[rows.trip])
        weight = np.full(len(rows), world.featurizer.config.interval)
        return HeldOutSteps(rewards, rows.trip, rows.steps.time, weight)
    runs = world.trajectories[wanted]
    trip = np.flatnonzero(wanted)[runs.trajectory_of_row]
    step = np.arange(runs.n_rows) - np.repeat(runs.offsets[:-1], runs.lengths)
    states, actions = runs.columns["state"], runs.columns["action"]
    rewards = np.empty((len(trip), len(posterior.aspects), 1))
    # Runs may be long, so their features are not held all at once.
    for start in range(0, len(trip), CHUNK_FIXES):
        some = slice(start, start + CHUNK_FIXES)
        rewards[some] = out_of_bag(posterior(world.encode(states[some], actions[some])), heads[trip[some]])
    return HeldOutSteps(rewards, trip, step.astype(np.float64), np.ones(len(trip)))
