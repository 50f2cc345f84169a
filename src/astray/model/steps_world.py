"""The world of steps: a reward of single steps that is learned for one agent or pool, by Algorithm 1 of the paper.

Its trajectories are states and actions of any kind, or GPS trips where the shared reward does not serve: for the preset
``kdd19``, for encoders and contexts that the shared reward does not know, and with the user's own counterfactuals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import DataError
from astray.core.settings import PAPER_PRESETS
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.core.zones import Zone, home_of
from astray.explain import Explanation, explain_fixes, explain_steps
from astray.features.featurizer import Featurizer, Prepared
from astray.irl.gps_demonstrator import GpsDemonstrator
from astray.irl.shared import Reward
from astray.irl.step_demonstrator import StepDemonstrator
from astray.model.agent_training import StepModel, gps_demonstrator, replace_runs, step_demonstrator, train
from astray.model.checkpoint import restore_learner
from astray.model.configuration import aspect_weights, learn_config, own_explorers, preset, scale_config
from astray.model.memory_bytes import unpack_anomalous
from astray.model.packing import Contents
from astray.model.parameters import Parameters
from astray.model.parts import unpack_weights
from astray.model.plain_values import configured, plain
from astray.model.store import Store
from astray.model.trip_selection import check_steps, kept_ways, others, remember, sample, sort_out, without
from astray.model.worlds import World
from astray.scoring.decisions import PAPER_EPS, Bounds, Threshold, least_rate, level
from astray.scoring.normality import Calibration
from astray.scoring.scores import AgentModel, Chunk, Scores

if TYPE_CHECKING:
    from astray.irl.learn_config import LearnConfig

Array = NDArray[Any]


def learn_own_reward(
    parameters: Parameters,
    trips: Trajectories,
    anomalous: Trajectories,
    population: Trajectories | None,
    rng: np.random.Generator,
    past: Prepared | None = None,
    featurizer: Featurizer | None = None,
) -> Steps:
    """Learns a reward for this agent alone; GPS trips come with ``past`` and ``featurizer``."""
    config = learn_config(parameters, gps=featurizer is not None)
    world: GpsDemonstrator | StepDemonstrator
    if past is not None and featurizer is not None:
        world = gps_demonstrator(parameters, past, featurizer, rng)
    else:
        world = step_demonstrator(parameters, trips, config, rng)
    trained = train(parameters, world, config, rng, population)
    return Steps(
        parameters,
        trained,
        aspect_weights(trained.reward.aspects, None, trained.reward.of_a_pool),
        plain(config),
        tuple(trips.agents),
        None if featurizer is None else home_of(trips),
        frozenset(anomalous.ids),
        len(trips),
    )


@dataclass(eq=False)
class Steps(World):
    """A model that has learned a reward of steps from one agent's or one pool's trajectories."""

    kind: ClassVar[str] = "steps"

    parameters: Parameters
    trained: StepModel
    weights: tuple[float, ...]
    learning: dict[str, Any]  # the configuration that it learned with, as plain values
    names: tuple[str, ...]  # of the agents whose trajectories it has learned from
    zone: Zone | None = None  # in which they live; None for states and actions
    anomalous: frozenset[TripId] = frozenset()
    n_trips: int = 0
    updates: int = 0

    @property
    def reward(self) -> Reward:  # type: ignore[override]
        """The learned reward."""
        return self.trained.reward

    @property
    def sees(self) -> str:  # type: ignore[override]
        """What its trajectories hold, as messages say it."""
        return "GPS fixes (time, lat, lon)" if self.is_timed else "states and actions"

    @property
    def is_timed(self) -> bool:  # type: ignore[override]
        """True if its trajectories are GPS trips."""
        return self.featurizer is not None

    @property
    def featurizer(self) -> Featurizer | None:
        """The featurizer of GPS trips; None for states and actions."""
        return self.trained.featurizer

    # ---------------------------------------------------------------- learning

    @classmethod
    def takes(cls, trips: Trajectories) -> bool:
        """Returns True for states and actions; :class:`GpsTrips` passes on the GPS trips that belong here."""
        return "state" in trips.columns or "action" in trips.columns

    @classmethod
    def fit(
        cls, parameters: Parameters, trips: Trajectories, anomalous: Trajectories, population: Trajectories | None
    ) -> World:
        """Learns a reward from states and actions."""
        if parameters.pooled is False:
            raise DataError(
                "states and actions make a model of one agent or one pool; only GPS trips make one of many agents",
                remedy="leave pooled out, or give fixes (time, lat, lon)",
            )
        rng = np.random.default_rng(parameters.seed)
        check_steps(trips, trips)
        rest = None if population is None else others(population, trips, parameters.max_population, rng)
        return learn_own_reward(parameters, trips, anomalous, rest, rng)

    def update(
        self,
        trips: Trajectories | None,
        y: ArrayLike | None,
        anomalous: Iterable[TripId | str],
        population: Trajectories | None,
    ) -> None:
        """Continues to learn for a third of the iterations, on the kept past trajectories and the new ones together."""
        before = self.learned_of(self.names)
        given = trips if trips is None else self.check(trips)
        new, learned, refused = sort_out(given, y, anomalous, self.known_trips, self.anomalous)
        if new is not None and len(new):
            self._continue(new, refused, learned, population)
            self.names = tuple(dict.fromkeys([*self.names, *new.agents]))
            self.n_trips += len(learned - before)
        else:
            self._forget(refused)  # the reward stays
        self.n_trips -= len(refused & before)
        self.anomalous = (self.anomalous | refused) - learned

    def _continue(
        self,
        new: Trajectories,
        refused: Iterable[TripId],
        learned: Iterable[TripId],
        population: Trajectories | None,
    ) -> None:
        parameters, featurizer = self.parameters, self.featurizer
        rng = np.random.default_rng([parameters.seed, self.updates + 1])
        rest = None
        if population is not None:
            rest = others(population, new, parameters.max_population, rng, self.names)
        kept = without(self.trained.kept, {*refused, *learned})
        if featurizer is not None:
            featurizer = remember(featurizer.forget(refused), featurizer.prepare(new))
        if featurizer is not None and featurizer.counts:
            # Trips that the memory has dropped must not come back with the kept trips.
            kept = kept[kept.isin(featurizer.memory.trip_ids)]
            featurizer = replace(featurizer, popularity=featurizer.popularity.without(new.agents))
        both = Trajectories.concat([kept, sample(new, parameters.max_trips, rng)])
        config: LearnConfig = configured(preset("default"), self.learning)
        world: GpsDemonstrator | StepDemonstrator
        if featurizer is not None:
            world = GpsDemonstrator.of(both, featurizer, own_explorers(parameters.explorers))
        else:
            assert self.trained.world is not None
            world = replace_runs(parameters, self.trained.world, both, config, rng)
        config = replace(config, iterations=max(1, config.iterations // 3))
        start = restore_learner(self.reward.step, self.trained.generated, config, rng)
        trained = train(parameters, world, config, rng, rest, start)
        past = [self.reward.history, trained.reward.history]
        history = pl.concat(past, how="diagonal_relaxed")
        self.trained = replace(trained, reward=replace(trained.reward, history=history))
        self.updates += 1

    def forget(self, agent: str) -> None:
        """Removes the trajectories of one agent of a pool, or of the population; the learned numbers stay."""
        if self.names == (agent,):
            raise DataError(f"the model is of {agent!r} alone", remedy="delete its file to forget this agent")
        learned = self.learned_of(self.names)
        gone = {trip for trip in learned | self.anomalous if trip.agent == agent}
        others = () if self.featurizer is None else self.featurizer.popularity.agents.trip_ids
        if agent not in (*self.names, *others) and not gone:
            raise DataError(
                f"the model knows nobody named {agent!r}, so there is nothing to forget", remedy="check the name"
            )
        self._forget(gone)
        if self.featurizer is not None:
            popularity = self.featurizer.popularity.without([agent])
            self.trained = replace(self.trained, featurizer=replace(self.featurizer, popularity=popularity))
        self.names = tuple(other for other in self.names if other != agent)
        self.n_trips -= len(gone & learned)
        self.anomalous -= gone

    def _forget(self, trips: Iterable[TripId]) -> None:
        featurizer = None if self.featurizer is None else self.featurizer.forget(trips)
        self.trained = replace(self.trained, kept=without(self.trained.kept, set(trips)), featurizer=featurizer)

    # ---------------------------------------------------------------- what is known

    @property
    def is_one(self) -> bool:
        """True: the model compares every trip with the same past."""
        return True

    @property
    def agents(self) -> list[str]:
        """The agents whose trajectories it has learned from."""
        return list(self.names)

    def unknown_agents(self, trips: Trajectories) -> list[str]:
        """Returns the agents of these trips that are not the model's agent; none for a pool, which scores anybody."""
        name = self.names[0] if len(self.names) == 1 else ""
        return [agent for agent in trips.agents if name and agent and agent != name]

    @property
    def known_trips(self) -> set[TripId]:
        """The trips that it has learned from and still remembers, and those that proved anomalous."""
        return self.learned_of(self.names) | self.anomalous

    def learned_of(self, agents: Iterable[str]) -> set[TripId]:
        """Returns the trips of these agents that it remembers or keeps."""
        remembered = () if self.featurizer is None else self.featurizer.memory.trip_ids
        wanted = set(agents)
        return {trip for trip in (*self.trained.kept.ids, *remembered) if trip.agent in wanted}

    @property
    def n_others(self) -> int:
        """The number of agents that the popularity of places counts."""
        return 0 if self.featurizer is None else len(self.featurizer.popularity.agents)

    @property
    def starts(self) -> list[float]:
        """The starts of the remembered or kept trips; empty for states and actions."""
        if self.featurizer is None:
            return []
        kept = self.trained.kept
        times = self.featurizer.memory.times if len(self.featurizer.memory) else kept.columns["time"][kept.offsets[:-1]]
        return [float(time) for time in times]

    def home(self, agent: str) -> Zone | None:
        """Returns the time zone in which the agents live; None for states and actions."""
        return self.zone

    # ---------------------------------------------------------------- looking

    def check(self, trips: Trajectories) -> Trajectories:
        """Returns the trips, or raises a DataError if they are not of the kind that the model was fitted on."""
        if trips.is_gps != (self.featurizer is not None):
            raise self.of_another_kind(trips)
        if self.featurizer is None:
            check_steps(trips, self.trained.kept)
        return trips

    def featurize(self, trips: Trajectories, every: bool = False) -> Chunk:
        """Returns the features of every usable step."""
        self.check(trips)
        unknown = np.isin(trips.agent_ids, self.unknown_agents(trips))
        if self.featurizer is None:
            assert self.trained.world is not None
            return Chunk.of_steps(trips, self.trained.world.featurize(trips), np.where(unknown, 0.0, self._history))
        own = self.featurizer.memory.number_of(trips.ids) >= 0
        past = np.where(unknown, 0.0, np.maximum(self._history - own, 0.0))
        return Chunk.of_fixes(self.featurizer.featurize(trips, every), past, np.zeros(len(trips), np.int64))

    @property
    def _history(self) -> float:
        """The number of past trips behind a score."""
        if self.featurizer is not None and self.featurizer.counts:
            return self.featurizer.memory.history
        return float(self.n_trips)

    @property
    def calibration(self) -> Calibration:
        """The scale of the scores."""
        return self.trained.calibration

    def calibrations(self, trips: Trajectories | None) -> Sequence[Calibration]:
        """Returns the one calibration."""
        return [self.calibration]

    @property
    def eps(self) -> Threshold | None:
        """The threshold, or None where the false-alarm rate decides.

        If too few trips were held out to promise that rate, a trip is low if it scores at most as the paper says, and
        lower than each of them: n held-out trips promise a rate of 1 / (n + 1).
        """
        if self.parameters.eps is not None:
            return self.parameters.eps
        if self.parameters.preset in PAPER_PRESETS:
            return PAPER_EPS
        normal = self.calibration.normal
        rate = self.parameters.false_alarm_rate
        if least_rate(normal.total) <= (min(rate.values()) if isinstance(rate, Mapping) else rate):
            return None
        return min(PAPER_EPS, level(least_rate(normal.total), normal)) if normal.total else PAPER_EPS

    def agent_model(
        self, agent: str, near: tuple[float, float] | None = None, began: float | None = None
    ) -> AgentModel:
        """Returns how GPS trips are scored fix by fix; a stranger has no past trips."""
        if self.featurizer is None:
            return super().agent_model(agent, near, began)
        name = self.names[0] if len(self.names) == 1 else ""
        history = 0.0 if name and agent and agent != name else self._history
        calibration = self.calibration
        return AgentModel(self.featurizer, history, lambda unfinished: calibration, scale_config(self.parameters))

    def explain(self, trip: Trajectories, scores: Scores, bounds: Bounds) -> Explanation:
        """Explains one trip, given the scores of all its fixes."""
        if self.featurizer is None:
            assert self.trained.world is not None
            return explain_steps(scores, bounds, self.trained.world)
        habitual = kept_ways(self.trained.kept, trip)
        actor = None if self.trained.generated is None else self.trained.generated.actor
        return explain_fixes(scores, bounds, self.featurizer, trip.ids[0], habitual, actor)

    # ---------------------------------------------------------------- keeping

    def pack(self) -> dict[str, Any]:
        """Returns all that was learned, as a model file holds it."""
        return {
            "config": self.learning,
            "agents": self.names,
            "zone": "" if self.zone is None else str(self.zone),
            "n_trips": self.n_trips,
            "updates": self.updates,
            "aspect_weights": self.weights,
            **self.trained.pack(),
        }

    @classmethod
    def unpack(cls, parameters: Parameters, model: Contents, store: Store) -> Self:
        """Returns the model that a store holds."""
        trained, zone = StepModel.unpack(model), model.value("zone", str)
        return cls(
            parameters,
            trained,
            unpack_weights(model, trained.reward),
            model.value("config", dict[str, Any]),
            model.value("agents", tuple[str, ...]),
            Zone.of(zone) if zone else None,
            unpack_anomalous(store),
            model.value("n_trips", int),
            model.value("updates", int),
        )
