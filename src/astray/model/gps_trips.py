"""The world of GPS trips: one reward for everybody, and one memory for each agent."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import Call, DataError, some_names
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.core.zones import Zone, home_of
from astray.explain import Explanation, explain_fixes
from astray.features.context import Context
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.memory import Forgetting, Memory
from astray.features.popularity import Keys, Popularity, Visits
from astray.irl.shared import Reward
from astray.model import gps_fitting, many_agents, observing
from astray.model.agent_memory import AgentMemory, Common, centre_of, centres
from astray.model.configuration import aspect_weights, featurizer_config, learn_config, observing_config, scale_config
from astray.model.memories import Memories
from astray.model.memory_bytes import (
    MemoryCodec,
    pack_anomalous,
    pack_popularity,
    unpack_anomalous,
    unpack_popularity,
)
from astray.model.observing import LEARNED, Observed, Outcome, Question, drift_of, questions_of
from astray.model.packing import Contents
from astray.model.parameters import Parameters
from astray.model.parts import unpack_reward, unpack_weights
from astray.model.steps_world import learn_own_reward
from astray.model.store import ANOMALOUS, POPULARITY, Change, Row, Store
from astray.model.trip_selection import given_again, kept_ways, others, remember, sample, sort_out, teachable, without
from astray.model.worlds import IsLow, World
from astray.scoring.decisions import Bounds
from astray.scoring.normality import Calibration
from astray.scoring.own_scale import fits
from astray.scoring.scores import AgentModel, Chunk, Scores

Array = NDArray[Any]

POOL = ""
"""The name of a pool's memory."""


@dataclass(eq=False)
class GpsTrips(World):
    """A model of GPS trips: a reward, and a mapping from agents to memories.

    A model with one memory compares every trip with it, whoever made the trip. With several, each trip is compared
    with its own agent's memory, and agents that the model does not know have a blank one.
    """

    kind: ClassVar[str] = "trips"
    sees: ClassVar[str] = "GPS fixes (time, lat, lon)"
    is_timed = True

    parameters: Parameters
    reward: Reward
    weights: tuple[float, ...]
    config: FeaturizerConfig
    context: Context
    popularity: Popularity
    anomalous: frozenset[TripId] = frozenset()
    updates: int = 0
    is_one: bool = False  # True: every trip is compared with the only memory, which has a frame
    memories: Memories = field(init=False)

    def __post_init__(self) -> None:
        self.memories = Memories(MemoryCodec.of(self.config, self.reward), self.measure)
        self.uncounted: list[Keys] = []  # cells of agents who were forgotten since the last save
        self._popularity_before, self._anomalous_before = self.popularity, self.anomalous

    @property
    def common(self) -> Common:
        """The settings and the reward that all agents share."""
        scaling, asking = scale_config(self.parameters), observing_config(self.parameters)
        return Common(self.config, self.context, self.reward, self.weights, self.popularity, scaling, asking)

    def measure(self, agent: str, memory: AgentMemory) -> AgentMemory:
        """Returns the memory with the scores of its trips."""
        return many_agents.measure(agent, memory, self.common)

    # ---------------------------------------------------------------- fitting

    @classmethod
    def takes(cls, trips: Trajectories) -> bool:
        """Returns True for trajectories of fixes."""
        return trips.is_gps

    @classmethod
    def fit(
        cls, parameters: Parameters, trips: Trajectories, anomalous: Trajectories, population: Trajectories | None
    ) -> World:
        """Fits one agent, a pool, or many agents; some parameters make the agent learn its own reward."""
        rng = np.random.default_rng(parameters.seed)
        if parameters.pooled is False or (parameters.pooled is None and len(trips.agents) > 1):
            if population is not None:
                raise DataError(
                    "many agents are compared with each other; a population is for one agent or a pool",
                    remedy="leave population out, or give pooled=True",
                )
            return cls._fit_many(parameters, trips, anomalous, rng)
        return cls._fit_one(parameters, trips, anomalous, population, rng)

    @classmethod
    def begin(cls, parameters: Parameters) -> GpsTrips:
        """Returns a world that knows nobody yet, with the reward that ships with astray."""
        reward, config = gps_fitting.first_reward(parameters), featurizer_config(FeaturizerConfig(), None)
        weights = aspect_weights(reward.aspects, parameters.look_for)
        return cls(parameters, reward, weights, config, Context(), gps_fitting.no_popularity(config))

    @classmethod
    def _fit_many(
        cls, parameters: Parameters, trips: Trajectories, anomalous: Trajectories, rng: np.random.Generator
    ) -> GpsTrips:
        learned = gps_fitting.learn_shared(parameters, trips, rng)
        weights = aspect_weights(learned.reward.aspects, parameters.look_for)
        shared = (learned.config, learned.context, learned.popularity)
        world = cls(parameters, learned.reward, weights, *shared, frozenset(anomalous.ids))
        for agent, memory in many_agents.enrol(trips, lambda _: None, world.common):
            world.memories[agent] = replace(memory, cells=learned.cells.get(agent, memory.cells))
        return world

    @classmethod
    def _fit_one(
        cls,
        parameters: Parameters,
        trips: Trajectories,
        anomalous: Trajectories,
        population: Trajectories | None,
        rng: np.random.Generator,
    ) -> World:
        learn_config(parameters, gps=True)  # raises an error for unknown settings, even where none of them is used
        rest = None if population is None else others(population, trips, parameters.max_population, rng)
        blank = gps_fitting.blank_featurizer(parameters, trips, rng)
        past = blank.prepare(trips)
        featurizer = remember(blank, past)
        reward = gps_fitting.shared_reward(parameters, featurizer)
        if reward is None:
            return learn_own_reward(parameters, trips, anomalous, rest, rng, past, featurizer)
        pool = parameters.preset == "own" or (parameters.preset == "default" and len(trips.agents) > 1)
        weights = aspect_weights(reward.aspects, parameters.look_for, pool)
        enrol = gps_fitting.enrol_pool if pool else gps_fitting.enrol_one
        enrolled = enrol(parameters, past, featurizer, rest, rng, reward, weights)
        weights = aspect_weights(reward.aspects, parameters.look_for, enrolled.reward.of_a_pool)
        shared = (featurizer.config, featurizer.context, enrolled.popularity)
        world = cls(parameters, enrolled.reward, weights, *shared, frozenset(anomalous.ids), is_one=True)
        name = trips.agents[0] if len(trips.agents) == 1 else POOL
        world.memories[name] = replace(enrolled.memory, zone=home_of(trips))
        world._reject(name, anomalous)
        return world

    # ---------------------------------------------------------------- learning further trips

    def update(
        self,
        trips: Trajectories | None,
        y: ArrayLike | None,
        anomalous: Iterable[TripId | str],
        population: Trajectories | None,
    ) -> None:
        """Continues to learn with further trips; takes out those that proved anomalous."""
        if self.is_one:
            self._update_one(trips, y, anomalous, population)
            return
        if population is not None:
            raise DataError("many agents are compared with each other", remedy="leave population out")
        named = list(anomalous)
        refused = sort_out(trips, y, named, self.known_trips if named else ()).refused
        for trip in refused - self.anomalous:
            if trip.agent in self.memories:
                self.forget_trips(trip.agent, [trip.trajectory], anomalous=True)
            else:
                self.anomalous |= {trip}
        if trips is not None:
            self.enroll(trips)
        self.updates += 1

    def _update_one(
        self,
        trips: Trajectories | None,
        y: ArrayLike | None,
        anomalous: Iterable[TripId | str],
        population: Trajectories | None,
    ) -> None:
        name, memory = self.sole
        given = trips if trips is None else self.check(trips)
        new, learned, refused = sort_out(given, y, anomalous, self.known_trips, self.anomalous)
        if new is not None and y is None:
            again = given_again(self._count(name, new), memory.inbox.rejected)
            new, learned = without(new, again), learned - again
        proved = self._proved(name, memory, given, refused)
        if new is not None and len(new):
            self._continue(name, memory, new, refused, learned, population)
        else:
            self.memories[name] = memory.forget(refused)
        memory = self.memories[name]
        inbox = memory.inbox.without(learned).allow(learned).reject(refused).know(proved)
        suspects = tuple(trip for trip in memory.suspects if trip not in refused)
        after = replace(memory, inbox=inbox, suspects=suspects)
        if name and any(trip.agent not in (name, "") for trip in after.counts.trip_ids):
            del self.memories[name]  # others have joined the agent: from now on it is one of a pool
            name = POOL
        self.memories[name] = after
        self.anomalous = (self.anomalous | refused) - learned

    def _continue(
        self,
        name: str,
        memory: AgentMemory,
        new: Trajectories,
        refused: Collection[TripId],
        learned: Collection[TripId],
        population: Trajectories | None,
    ) -> None:
        parameters = self.parameters
        rng = np.random.default_rng([parameters.seed, self.updates + 1])
        rest = None
        if population is not None:
            rest = others(population, new, parameters.max_population, rng, self.agents)
        featurizer = self._featurizer(name, memory)
        featurizer = remember(featurizer.forget(refused), featurizer.prepare(new))
        featurizer = replace(featurizer, popularity=featurizer.popularity.without(new.agents))
        past = [sample(new, parameters.max_trips, rng)]
        if memory.kept is not None:
            # Trips that the memory has dropped must not come back with the kept trips.
            kept = without(memory.kept, {*refused, *learned})
            past.insert(0, kept[kept.isin(featurizer.memory.trip_ids)])
        prepared = featurizer.prepare(Trajectories.concat([part for part in past if len(part)]))
        enrolled = gps_fitting.enrol_one(parameters, prepared, featurizer, rest, rng, self.reward, self.weights)
        # For trips that were given again, the new fit decides whether they are suspected.
        suspects = tuple(trip for trip in memory.suspects if trip not in set(new.ids))
        self.reward, self.popularity = enrolled.reward, enrolled.popularity
        self.memories[name] = replace(
            enrolled.memory,
            inbox=memory.inbox,
            cells=memory.cells,
            zone=memory.zone,
            suspects=(*suspects, *enrolled.memory.suspects),
        )
        self.updates += 1

    def _featurizer(self, name: str, memory: AgentMemory) -> Featurizer:
        return replace(memory, counts=replace(memory.counts)).featurizer(name, self.common)

    def enroll(self, trips: Trajectories) -> int:
        """Counts trips of new agents, or further trips of known ones; trains nothing.

        Leaves out trips that it remembers already, and trips that proved anomalous, under whatever name. Returns the
        number of trips that it counted.
        """
        if self.is_one:
            raise DataError(
                "the model is of one agent or one pool", remedy="fit it with many agents to enrol further ones"
            )
        known_anomalous = trips[trips.isin(self.anomalous)]
        for agent in known_anomalous.agents:
            self.reject(known_anomalous.agent(agent))
        new = self._new(trips)
        counted = set(new.ids)
        for agent, memory in many_agents.enrol(new, self.memories.peek, self.common):
            self.memories[agent] = replace(memory, inbox=memory.inbox.without(counted))
        return len(new)

    def _new(self, trips: Trajectories) -> Trajectories:
        """Returns the trips that are neither remembered nor known to be anomalous."""
        teachable(self.check(trips))
        known = set(self.anomalous)
        rejected: dict[str, Memory] = {}
        for agent in trips.agents:
            memory = self.memories.peek(agent)
            if memory is not None:
                known.update(memory.counts.trip_ids)
                rejected |= {agent: memory.inbox.rejected} if len(memory.inbox.rejected) else {}
        new = trips[~trips.isin(known)]
        again = {
            trip
            for agent in new.agents
            if agent in rejected
            for trip in given_again(self._count(agent, new.agent(agent)), rejected[agent])
        }
        return new[~new.isin(again)]

    def _count(self, name: str, trips: Trajectories) -> Memory:
        """Returns the counts of these trips alone, made as those in the memory of this name."""
        if not len(trips):
            return Memory()
        memory = self.memories.peek(name)
        if memory is not None and memory.frame is not None:
            return self._featurizer(name, memory).with_memory(Memory()).remember(trips).memory
        counted = many_agents.count(trips[many_agents.by_agent(trips)], self.common)
        return counted.get(trips.agents[0], Memory())

    def reject(self, anomalous: Trajectories) -> None:
        """Records one agent's trips that proved anomalous: the model then refuses them, even under other names."""
        (agent,) = anomalous.agents
        self._reject(self.name_of(agent), anomalous)

    def _reject(self, name: str, anomalous: Trajectories) -> None:
        memory = self.memories.peek(name)
        if memory is not None and len(anomalous):
            self.memories[name] = replace(memory, inbox=memory.inbox.know(self._count(name, anomalous)))

    def _proved(self, name: str, memory: AgentMemory, given: Trajectories | None, trips: Collection[TripId]) -> Memory:
        """Counts trips that proved anomalous: remembered ones, and new ones among the given trips."""
        remembered = replace(memory.counts)
        remembered = replace(remembered.remove(set(remembered.trip_ids) - set(trips)), forgetting=Forgetting())
        if given is None:
            return remembered
        new = self._count(name, given[given.isin(trips)])
        return new.merge(remembered.remove(new.trip_ids))

    # ---------------------------------------------------------------- trip by trip

    def observe(self, trips: Trajectories, is_low: IsLow) -> Observed:
        """Scores trips in the order of time, and learns from each that is normal."""
        given = trips[~self.check(trips).isin(self.anomalous)]
        common, after = self.common, dict[str, AgentMemory]()
        outcomes: dict[int, Outcome] = {}
        for name, at in self._by_memory(given):
            after[name], found = observing.observe(name, self.memory(name), common, given[at], is_low)
            outcomes.update(zip(at.tolist(), found, strict=True))
        # Scoring may fail, so the model is changed only now.
        learned = given[[outcomes[i].became == LEARNED for i in range(len(given))]] if len(given) else given
        for name, memory in after.items():
            mine = learned if self.is_one else learned[learned.agent_ids == name]
            self.memories[name] = memory.keeping(mine, common)
        rows = [(*outcome.trip, *outcome[1:]) for _, outcome in sorted(outcomes.items())]
        columns = ["agent", "trajectory", "score", "p_value", "became"]
        texts = dict.fromkeys(("agent", "trajectory", "became"), pl.String)
        table = pl.DataFrame(rows, columns, schema_overrides=texts, orient="row")
        questions = tuple(q for name, memory in after.items() for q in questions_of(name, memory))
        drifts = (drift_of(name, memory, common.observing) for name, memory in after.items())
        return Observed(table, questions, tuple(drift for drift in drifts if drift))

    def _by_memory(self, trips: Trajectories) -> Iterator[tuple[str, Array]]:
        """Yields each memory's name and the positions of its trips; raises a DataError for unknown agents."""
        unknown = self.unknown_agents(trips)
        if self.is_one:
            name, _ = self.sole
            if unknown:
                raise DataError(
                    f"the model is of {name}, not of {some_names(unknown)}", remedy=f"give trips.agent({name!r})"
                )
            yield name, np.arange(len(trips))
            return
        if unknown:
            raise DataError(f"agent {unknown[0]!r} is not enrolled", remedy=("call ", Call("enroll"), " first"))
        order = many_agents.by_agent(trips)
        for agent, run in many_agents.runs(trips[order]):
            yield agent, order[run]

    def take_trip(self, trip: Trajectories, flagged: bool, p_value: float, seen: Any = None) -> tuple[str, AgentMemory]:
        """Learns from a trip that is already scored, or lets it wait; enrols its agent if that is unknown.

        Returns what became of the trip, and the agent's memory afterwards.
        """
        (agent,) = trip.agents
        memory = self.memories.get(agent)
        if memory is None:
            memory = replace(AgentMemory.blank(self.common), zone=home_of(trip))
        after, became = observing.take_trip(agent, memory, self.common, trip, flagged, p_value, seen)
        if became == LEARNED:
            after = after.keeping(trip, self.common)
        self.memories[agent] = after
        return became, after

    def answer(self, trips: Sequence[TripId], mine: bool) -> None:
        """Learns from waiting trips if they are ``mine``, otherwise rejects them."""
        whose = [
            name for name, memory in self._with_waiting() if set(trips).intersection(memory.inbox.waiting.trip_ids)
        ]
        if not whose:
            raise DataError("no trip was named", remedy="name waiting trips, or give one of the questions")
        if len(whose) > 1:
            raise DataError(f"the trips are of {some_names(whose)}", remedy="answer for one agent at a time")
        self.memories[whose[0]] = observing.answer(self.memory(whose[0]), trips, mine)
        if not mine:
            self.anomalous |= set(trips)

    def _with_waiting(self) -> Iterator[tuple[str, AgentMemory]]:
        for name in self.memories.with_waiting_trips():
            memory = self.memories.peek(name)
            if memory is not None:
                yield name, memory

    def alone(self, agent: str, memory: AgentMemory | None) -> GpsTrips:
        """Returns a copy of the world that knows only this agent, with this memory, and is not in any store."""
        found = copy.copy(self)
        found.memories = Memories(self.memories.codec, found.measure)
        if memory is not None:
            found.memories[agent] = memory
        return found

    # ---------------------------------------------------------------- forgetting

    def forget(self, agent: str) -> None:
        """Removes all that the model knows of an agent, of an agent in its pool, or of one in the population."""
        if self.is_one:
            self._forget_other(agent)
        else:
            cells = self.memory(agent).cells
            del self.memories[agent]
            self._uncount(cells)
        self.anomalous = frozenset(trip for trip in self.anomalous if trip.agent != agent)

    def _forget_other(self, agent: str) -> None:
        name, memory = self.sole
        if agent == name:
            raise DataError(f"the model is of {agent!r} alone", remedy="delete its file to forget this agent")
        inbox = memory.inbox
        held = memory.learned | self.anomalous | {*inbox.waiting.trip_ids, *inbox.rejected.trip_ids}
        gone = {trip for trip in held if trip.agent == agent}
        is_other = not isinstance(self.popularity.agents, Visits) and agent in self.popularity.by_name.trip_ids
        if not gone and not is_other:
            raise DataError(
                f"the model knows nobody named {agent!r}, so there is nothing to forget", remedy="check the name"
            )
        left = memory.forget(gone)
        inbox = replace(inbox.without(gone), rejected=inbox.rejected.remove(gone))
        suspects = tuple(trip for trip in memory.suspects if trip not in gone)
        self.memories[name] = replace(left, inbox=inbox, suspects=suspects)
        if is_other:
            self.popularity = self.popularity.without([agent])

    def _uncount(self, cells: Keys) -> None:
        agents = self.popularity.agents
        if isinstance(agents, Visits):
            self.popularity = Popularity(self.popularity.cells, Visits(agents.counted.without(cells)))
            self.uncounted.append(cells)

    def forget_trips(self, agent: str, trajectories: Iterable[str], *, anomalous: bool = False) -> int:
        """Takes trips out of an agent's memory, permanently if they proved ``anomalous``; returns how many it held."""
        name = self.name_of(agent)
        memory = self.memory(name)
        trips = {TripId(agent, t) for t in trajectories}
        left = memory.forget(trips)
        gone = len(memory.counts) - len(left.counts)
        inbox = memory.inbox.without(trips)
        if anomalous:
            inbox = memory.inbox.reject(trips).know(self._proved(name, memory, None, trips))
            self.anomalous |= trips
        measured = left.measured and (not gone or left.frame is not None)
        self.memories[name] = replace(left, inbox=inbox, measured=measured)
        return gone

    # ---------------------------------------------------------------- what is known

    @property
    def sole(self) -> tuple[str, AgentMemory]:
        """The only memory of a model of one agent or pool, with its name."""
        (name,) = self.memories.names()
        return name, self.memories[name]

    def name_of(self, agent: str) -> str:
        """Returns the name of the memory that an agent's trips belong to."""
        return self.sole[0] if self.is_one else agent

    def memory(self, agent: str) -> AgentMemory:
        """Returns the memory of an agent; raises a DataError for an unknown one."""
        memory = self.memories.get(agent)
        if memory is None:
            raise DataError(
                f"agent {agent!r} is not enrolled (there are {len(self.memories)} agents)",
                remedy="check the name, or enroll the agent first",
            )
        return memory

    @property
    def agents(self) -> list[str]:
        """The agents whose trips the model has learned from, sorted by name."""
        if not self.is_one:
            return self.memories.names()
        name, memory = self.sole
        return [name] if name else sorted({trip.agent for trip in memory.counts.trip_ids})

    def unknown_agents(self, trips: Trajectories) -> list[str]:
        """Returns the agents of these trips that the model does not know; a pool scores anybody."""
        if not self.is_one:
            return [agent for agent in trips.agents if agent not in self.memories]
        name, _ = self.sole
        return [agent for agent in trips.agents if self._is_stranger(name, agent)]

    @staticmethod
    def _is_stranger(name: str, agent: str) -> bool:
        return bool(name and agent and agent != name)  # a trip without a name may be the agent's own

    @property
    def n_trips(self) -> int:
        """The number of trips that the model has learned from, including suspects."""
        if self.is_one:
            return len(self.sole[1].learned)
        return sum(row.trips for _, row in self.memories.rows())

    @property
    def known_trips(self) -> set[TripId]:
        """The trips that the model knows: learned, waiting, or known as anomalous."""
        return {*self.learned_of(self.memories), *self.suspects, *self.waiting, *self.anomalous}

    def learned_of(self, agents: Iterable[str]) -> set[TripId]:
        """Returns the trips that the model has learned from, of these agents."""
        memories = (self.memories.peek(self.name_of(agent)) for agent in agents)
        return {trip for memory in memories if memory is not None for trip in memory.counts.trip_ids}

    @property
    def suspects(self) -> tuple[TripId, ...]:
        """Past trips that look like somebody else's, and are not remembered."""
        return self.sole[1].suspects if self.is_one else ()

    @property
    def waiting(self) -> tuple[TripId, ...]:
        """The flagged trips that wait for a person."""
        return tuple(trip for _, memory in self._with_waiting() for trip in memory.inbox.waiting.trip_ids)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The model's open questions to a person."""
        return tuple(q for name, memory in self._with_waiting() for q in questions_of(name, memory))

    @property
    def n_others(self) -> int:
        """The number of agents that the popularity of places counts."""
        return len(self.popularity.agents)

    @property
    def starts(self) -> list[float]:
        """The starts of the remembered trips in a model of one agent or pool."""
        return [float(time) for time in self.sole[1].counts.times]

    def home(self, agent: str) -> Zone | None:
        """Returns the time zone in which an agent lives; None if it is not known."""
        return self.sole[1].zone if self.is_one else self.memories.zone(agent)

    # ---------------------------------------------------------------- looking

    def check(self, trips: Trajectories) -> Trajectories:
        """Returns the trips if they are GPS fixes."""
        if not trips.is_gps:
            raise self.of_another_kind(trips)
        return trips

    def order(self, trips: Trajectories) -> Array | None:
        """Returns an order in which each agent's trips are adjacent."""
        return None if self.is_one else many_agents.by_agent(self.check(trips))

    def _owners(self, trips: Trajectories) -> list[tuple[str, AgentMemory]]:
        """Returns the agent and the memory that each trip is compared with."""
        if self.is_one:
            return [self.sole] * len(trips)
        nobody = AgentMemory.blank(self.common)
        found = {agent: (agent, self.memories.get(agent, nobody)) for agent in trips.agents}
        return [found[agent] for agent in trips.agent_ids.tolist()]

    def featurize(self, trips: Trajectories, every: bool = False) -> Chunk:
        """Returns the features of a chunk of trips: of ``every`` fix, or of about one fix per interval."""
        owners = self._owners(self.check(trips))
        featurized = many_agents.featurize(trips, owners, self.common, every)
        number = {owner: i for i, owner in enumerate(dict.fromkeys(owners))}
        owner_of = np.array([number[owner] for owner in owners], np.int64)
        remembered = trips.isin(trip for _, memory in number for trip in memory.counts.trip_ids)
        history = np.maximum(np.array([memory.history for _, memory in number])[owner_of] - remembered, 0.0)
        history[np.isin(trips.agent_ids, self.unknown_agents(trips))] = 0.0
        scales = self._scales(trips, owners)
        place = {scale: i for i, scale in enumerate(dict.fromkeys(scales))}
        return Chunk.of_fixes(featurized, history, np.array([place[scale] for scale in scales], np.int64))

    def calibrations(self, trips: Trajectories | None) -> Sequence[Calibration]:
        """Returns one calibration for each scale, in the order in which the trips first need them."""
        common = self.common
        if trips is None:
            return [self.sole[1].scale(common).calibration()]
        scales = dict.fromkeys(self._scales(trips, self._owners(trips)))
        return [memory.scale(common).calibration(stale=stale) for (_, memory), stale in scales]

    def _scales(
        self, trips: Trajectories, owners: Sequence[tuple[str, AgentMemory]]
    ) -> list[tuple[tuple[str, AgentMemory], bool]]:
        """Returns, for each trip, the agent and memory that it is compared with, and whether that memory is stale."""
        scaling, began = self.common.scaling, trips.columns["time"][trips.offsets[:-1]]
        known_until = {owner: owner[1].counts.times.max(initial=-np.inf) for owner in dict.fromkeys(owners)}
        newest = np.array([known_until[owner] for owner in owners])
        stale = np.isfinite(newest) & (began > newest + scaling.stale_after)
        return list(zip(owners, stale.tolist(), strict=True))

    def agent_model(
        self, agent: str, near: tuple[float, float] | None = None, began: float | None = None
    ) -> AgentModel:
        """Returns how one agent's trips are scored fix by fix; for a stranger, around a place (lat, lon).

        ``began`` is when the trip began; without it, the memory counts as fresh.
        """
        common, centre = self.common, None if near is None else centre_of(*near)
        if self.is_one:
            name, memory = self.sole
            history = 0.0 if self._is_stranger(name, agent) else memory.history
        else:
            name = agent
            memory = self.memory(agent) if near is None else self.memories.get(agent, AgentMemory.blank(common))
            history = memory.history
        featurizer = memory.featurizer(name, common, centre)
        stale = began is not None and memory.is_stale(began, common.scaling)
        measured = partial(memory.scale(common).calibration, stale=stale)
        return AgentModel(featurizer, history, measured, common.scaling)

    def explain(self, trip: Trajectories, scores: Scores, bounds: Bounds) -> Explanation:
        """Explains one trip, given the scores of all its fixes."""
        common, ((name, memory),) = self.common, self._owners(trip)
        featurizer = memory.featurizer(name, common, centres(trip)[0])
        if memory.frame is None:
            habitual = many_agents.ways_of(memory, common, self.parameters.ways)
        else:
            habitual = kept_ways(memory.kept, trip)
        return explain_fixes(scores, bounds, featurizer, trip.ids[0], habitual)

    # ---------------------------------------------------------------- keeping

    def pack(self) -> dict[str, Any]:
        """Returns reward and configuration as a model file holds them."""
        return {
            "featurizer_config": self.config,
            "context": self.context,
            "aspect_weights": self.weights,
            "updates": self.updates,
            "is_one": self.is_one,
            "reward": self.reward,
        }

    def parts(self) -> dict[str, bytes]:
        """Returns the popularity of places and the ids of anomalous trips, as a store keeps them."""
        return {**super().parts(), POPULARITY: pack_popularity(self.popularity)}

    def rows(self) -> Iterable[tuple[str, Row]]:
        """Yields each agent's memory as a store keeps it, sorted by name."""
        return self.memories.everybody()

    @classmethod
    def unpack(cls, parameters: Parameters, model: Contents, store: Store) -> Self:
        """Returns the world that a store holds."""
        reward = unpack_reward(model, "reward")
        config = model.value("featurizer_config", FeaturizerConfig)
        world = cls(
            parameters,
            reward,
            unpack_weights(model, reward),
            config,
            model.value("context", Context),
            unpack_popularity(store, config),
            unpack_anomalous(store),
            model.value("updates", int),
            model.value("is_one", bool),
        )
        if world.is_one and len(store) != 1:
            raise model.wrong("a model of one agent or pool that does not have exactly one memory")
        if not fits(reward, AgentMemory().featurizer("", world.common)):
            raise model.wrong("its reward and its featurizer do not fit together")
        world.opened_with(store)
        return world

    def write_changes(self, store: Store, change: Change) -> Callable[[], None]:
        """Writes the changed memories and parts; keeps changes that other processes have made meanwhile."""
        popularity, anomalous = self.popularity, self.anomalous
        for agent, row, before in self.memories.changes():
            change.put(agent, row, before)
        if self.uncounted:
            there = unpack_popularity(store, self.config).agents
            assert isinstance(there, Visits)
            counted = there.counted
            for cells in self.uncounted:
                counted = counted.without(cells)
            popularity = Popularity(popularity.cells, Visits(counted))
        if popularity is not self._popularity_before:
            change.share(POPULARITY, pack_popularity(popularity))
        if anomalous != self._anomalous_before:
            there_now = unpack_anomalous(store)
            anomalous = (there_now | (anomalous - self._anomalous_before)) - (self._anomalous_before - anomalous)
            change.share(ANOMALOUS, pack_anomalous(anomalous))

        def committed() -> None:
            self.popularity, self.anomalous = popularity, anomalous

        return committed

    def opened_with(self, store: Store | None) -> None:
        """Notes that the store is up to date."""
        if store is not None:
            self.memories.saved(store)
        self._popularity_before, self._anomalous_before, self.uncounted = self.popularity, self.anomalous, []
