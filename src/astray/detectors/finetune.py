"""Fine-tuning: an agent's own reward that starts from the shared one; many agents over many processes, resumable.

What is learned for an agent depends on its task alone, whose random numbers are seeded by the agent's name: not on the
number of processes, nor on who is finished first, nor on whether a run was killed and begun again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from astray.detectors.continuation import revive
from astray.detectors.members import Common, Member
from astray.detectors.teaching import Progress, teach
from astray.errors import DataError
from astray.irl.posterior import RewardPosterior
from astray.mdp.view import View, trip_names
from astray.mdp.world import GeoWorld
from astray.modelfile import FilePath, ModelFile, pack_text, plain, read, write
from astray.modelfile.parts import Packed, pack_posterior, pack_scales, unpack_posterior, unpack_scales
from astray.normality import Scale
from astray.processes import spread
from astray.trajectories import Trajectories

if TYPE_CHECKING:
    from astray.irl.config import LearnConfig

Array = NDArray[Any]

KIND = "fine-tuned reward"
SUFFIX = ".reward"


@dataclass(frozen=True)
class TuningConfig:
    """How the reward of one agent is learned, starting from the shared one."""

    iterations: int = 10  # of Algorithm 1
    learning_rate: float = 6e-3  # at first, falling linearly
    imagined: int = 400  # counterfactual trips of each aspect
    others: int = 300  # trips of other agents in the background
    max_trips: int = 1000  # of the agent, drawn at random
    least_trips: int = 20  # agents with fewer keep the shared reward
    held_out: float = 0.2  # share of the agent's trips that nothing is learned from

    def learning(self, config: LearnConfig) -> LearnConfig:
        """The configuration that the shared reward was learned with, as an agent's own takes it."""
        return replace(
            config,
            iterations=self.iterations,
            learning_rate=self.learning_rate,
            imagined=self.imagined,
            held_out=self.held_out,
            suspicion=0.0,  # the shared reward, which it starts from, has learned from agents of all kinds
        )

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.least_trips < 2:
            raise DataError("fine-tuning takes at least 1 iteration, and at least 2 trips of an agent")


@dataclass(frozen=True, eq=False)
class Tuned:
    """An agent's own reward, and the scale that its trips are measured on."""

    posterior: RewardPosterior
    scale: Scale


@dataclass(frozen=True, eq=False)
class Mixed(RewardPosterior):
    """The shared reward of some rows, where the trips of certain agents have their own."""

    own: tuple[tuple[slice, RewardPosterior], ...] = ()

    @classmethod
    def of(
        cls, shared: RewardPosterior, own: Sequence[tuple[slice, RewardPosterior]], trip: NDArray[np.int64]
    ) -> RewardPosterior:
        """The rewards of a chunk whose rows are of these trips: the shared one, but for some runs of trips."""
        rows = (slice(*np.searchsorted(trip, [run.start, run.stop]).tolist()) for run, _ in own)
        given = {f.name: getattr(shared, f.name) for f in fields(shared)}
        return cls(**given, own=tuple(zip(rows, (p for _, p in own), strict=True))) if own else shared

    def __call__(self, features: Array) -> NDArray[np.float32]:
        """The reward of every row under every head: (rows, aspects, heads)."""
        rewards = super().__call__(features)
        for rows, posterior in self.own:
            rewards[rows] = posterior(features[rows])
        return rewards


def alike(one: RewardPosterior, other: RewardPosterior) -> bool:
    """Whether two rewards see the same number of features and have the same heads."""
    shapes = ([w.shape for w, _ in r.layers] for r in (one, other))
    return one.aspects == other.aspects and next(shapes) == next(shapes)


# -------------------------------------------------------------------- one agent


@dataclass(frozen=True, eq=False)
class Task:
    """All that an agent's own reward depends on."""

    trips: Trajectories
    view: View  # with the agent's memory
    others: Trajectories | None
    start: RewardPosterior
    like: Scale  # of agents with as much history
    config: LearnConfig
    robust: bool
    window: float | None
    rng: np.random.Generator


def tune(task: Task) -> Tuned | None:
    """The agent's own reward; None if its trips hold no step."""
    world = GeoWorld.seen(task.trips, task.view)
    if world is None:
        return None
    taught = teach(
        world,
        task.config,
        task.rng,
        population=task.others,
        start=revive(task.start, None, task.config, task.rng),
        keep=0,
        robust=task.robust,
        window=task.window,
    )
    # How far scores would move had other trips been seen is taken from agents with as much history.
    scale = replace(taught.scale, step_noise=task.like.step_noise, trip_noise=task.like.trip_noise)
    return Tuned(taught.posterior, scale)


def seeded(seed: int, agent: str) -> np.random.Generator:
    """The random numbers of one agent, whoever else there is.

    >>> seeded(0, "anna").random() == seeded(0, "anna").random() != seeded(0, "bert").random()
    True
    """
    digest = hashlib.blake2b(agent.encode(), digest_size=16).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest, "<u4").tolist()])


# -------------------------------------------------------------------- many agents


@dataclass(frozen=True, eq=False)
class Lessons:
    """What all agents' own rewards are learned from: the fleet, its trips, and how.

    ``trips`` are those that may teach; an agent's own are the remembered ones among them.
    """

    common: Common
    members: Mapping[str, Member]
    trips: Trajectories
    tuning: TuningConfig
    config: LearnConfig
    robust: bool
    window: float | None
    seed: int

    def able(self, agents: Sequence[str] | None = None) -> list[str]:
        """Those of whom enough trips are remembered; somebody asked for who has too few is an error."""
        remembered = self.trips.agent_ids[self._remembered()]
        counts = dict(zip(*(a.tolist() for a in np.unique(remembered, return_counts=True)), strict=True))
        least = self.tuning.least_trips
        for agent in agents or ():
            if counts.get(agent, 0) < least:
                raise DataError(
                    f"{counts.get(agent, 0)} remembered trips of agent {agent!r} were given, {least} are needed for a "
                    "reward of its own; give more of its trips, or leave it out"
                )
        wanted = self.trips.agents if agents is None else dict.fromkeys(agents)
        return [a for a in wanted if counts.get(a, 0) >= least]

    def tasks(self, agents: Sequence[str]) -> Iterator[tuple[str, Task]]:
        """The tasks of some agents, each made when it is asked for."""
        remembered = self._remembered()
        # What is kept ready for look-ups is not for the journey to another process.
        common = replace(self.common, haunts=replace(self.common.haunts, agents=replace(self.common.haunts.agents)))
        code = {agent: i for i, agent in enumerate(self.trips.agents)}
        of_trip = np.array([code[a] for a in self.trips.agent_ids.tolist()])
        for agent in agents:
            rng, member = seeded(self.seed, agent), self.members[agent]
            own = of_trip == code[agent]
            others = self.trips[_some(~own, self.tuning.others, rng)]
            yield (
                agent,
                Task(
                    self.trips[_some(own & remembered, self.tuning.max_trips, rng)],
                    member.view(agent, common),
                    others if len(others) else None,
                    self.common.posterior,
                    self.common.like(member),
                    self.config,
                    self.robust,
                    self.window,
                    rng,
                ),
            )

    def mark(self) -> str:
        """A digest of all this: other fleets, trips and settings have other ones."""
        common, trips = self.common, self.trips
        packed = Packed.together([pack_posterior("reward", common.posterior), pack_scales("scales", common.scales)])
        settings = (self.tuning, self.config, self.robust, self.window, self.seed)
        said = plain([settings, common.view, common.context, common.bands, packed.values, list(trips.context)])
        arrays = [*packed.arrays.values(), *trips.columns.values(), *trips.context.values()]
        arrays += [trips.offsets, trips.agent_ids, trips.trajectory_ids]
        for agent in trips.agents:
            memory = self.members[agent].memory
            arrays += [np.array(memory.trip_ids), memory.times, memory.keys, memory.trips]
        others = common.haunts.agents
        arrays += [np.array(others.trip_ids), others.keys, others.trips]
        digest = hashlib.blake2b(json.dumps(said).encode(), digest_size=16)
        for array in arrays:
            digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    def _remembered(self) -> NDArray[np.bool_]:
        known = {t for agent in self.trips.agents for t in self.members[agent].memory.trip_ids}
        return np.array([name in known for name in trip_names(self.trips)], bool)


def _some(chosen: NDArray[np.bool_], most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The positions of at most so many of those chosen, drawn at random, in their order."""
    found = np.flatnonzero(chosen)
    return found if len(found) <= most else np.sort(rng.choice(found, most, replace=False))


def fine_tune(
    lessons: Lessons,
    agents: Sequence[str],
    *,
    processes: int = 1,
    folder: FilePath | None = None,
    progress: Progress | None = None,
) -> dict[str, Tuned]:
    """The agents' own rewards; those whose trips hold no step have none.

    What ``folder`` holds already is taken from there; every other reward is written there as soon as it is learned.
    """
    kept = None if folder is None else Folder.at(folder, lessons.mark())
    held = {} if kept is None else kept.read()
    found: dict[str, Tuned | None] = {a: held[a] for a in agents if a in held}
    todo = [a for a in agents if a not in found]
    work = partial(_work, kept)
    for agent, tuned in spread(work, ((a, (a, t)) for a, t in lessons.tasks(todo)), min(processes, len(todo))):
        found[agent] = tuned
        if progress is not None:
            progress(len(found), len(agents), {})
    # In their order, whoever was finished first.
    rewards = ((a, found[a]) for a in agents)
    return {a: tuned for a, tuned in rewards if tuned is not None}


def _work(folder: Folder | None, task: tuple[str, Task]) -> Tuned | None:
    agent, given = task
    tuned = tune(given)
    if folder is not None and tuned is not None:
        folder.write(agent, tuned)
    return tuned


# -------------------------------------------------------------------- as files hold them


@dataclass(frozen=True)
class Folder:
    """A folder of finished rewards, a small model file each, all of one run: ``mark`` says of which."""

    path: Path
    mark: str

    @classmethod
    def at(cls, path: FilePath, mark: str) -> Folder:
        """A folder, made if there is none."""
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise DataError(f"{folder}: a file where a folder for fine-tuned rewards was expected; name another")
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, mark)

    def read(self) -> dict[str, Tuned]:
        """The rewards that are finished."""
        found: dict[str, Tuned] = {}
        for path in sorted(self.path.glob(f"*{SUFFIX}")):
            model = read(path)
            if model.kind != KIND:
                raise model.wrong(f"a model of the kind {model.kind!r} among fine-tuned rewards")
            if model.value("mark", str) != self.mark:
                raise DataError(
                    f"{self.path}: the rewards in this folder were fine-tuned from another fleet, or with other trips "
                    "or settings; give an empty folder, or what they were made with"
                )
            found |= unpack_tuned(model)
        return found

    def write(self, agent: str, tuned: Tuned) -> None:
        """Put a finished reward into the folder, whole or not at all."""
        # A name may hold anything, so the file is not called by it.
        name = hashlib.blake2b(agent.encode(), digest_size=12).hexdigest()
        packed = pack_tuned({agent: tuned})
        write(self.path / f"{name}{SUFFIX}", KIND, {"mark": self.mark} | packed.values, packed.arrays)


def pack_tuned(tuned: Mapping[str, Tuned]) -> Packed:
    """Rewards of agents: all have the shape of the one they started from, and are held one after the other."""
    if not tuned:
        return Packed({}, {})
    rewards = [pack_posterior("tuned.reward", t.posterior) for t in tuned.values()]
    arrays = {name: [r.arrays[name] for r in rewards] for name in rewards[0].arrays}
    scales = pack_scales("tuned.scales", [t.scale for t in tuned.values()])
    return Packed.together([Packed(rewards[0].values, arrays), scales, Packed({}, pack_text("tuned.agents", [*tuned]))])


def unpack_tuned(model: ModelFile) -> dict[str, Tuned]:
    """The rewards that :func:`pack_tuned` packed; none if there are none."""
    if "tuned.reward" not in model.values:
        return {}
    agents, scales = model.text("tuned.agents"), unpack_scales(model, "tuned.scales")
    stacked = {name: array for name, array in model.arrays.items() if name.startswith("tuned.reward.")}
    if len(scales) != len(agents) or any(len(array) % len(agents) for array in stacked.values()):
        raise model.wrong(f"it does not hold a reward and a scale for each of {len(agents)} fine-tuned agents")
    found = {}
    for i, (agent, scale) in enumerate(zip(agents, scales, strict=True)):
        own = {name: array.reshape(len(agents), -1, *array.shape[1:])[i] for name, array in stacked.items()}
        found[agent] = Tuned(unpack_posterior(replace(model, arrays=own), "tuned.reward"), scale)
    return found
