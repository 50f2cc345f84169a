"""FleetDetector: one shared reward, one memory per agent; a new agent is enrolled by counting its trips."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from astray.detectors import fleet_features
from astray.detectors.agents import Common, Member, pack_members, unpack_members
from astray.detectors.configuration import (
    aspect_weights,
    featurizer_config,
    hours_from,
    observing_config,
    scale_config,
)
from astray.detectors.fleet_training import go_on, popularity_of
from astray.detectors.inbox import Inbox
from astray.detectors.observing import Learner, Observing
from astray.detectors.parameters import FleetParameters
from astray.detectors.updating import first_lesson, given_again, teachable
from astray.errors import Call, DataError
from astray.explain import Explanation, explain_fixes
from astray.features.context import Context
from astray.features.featurizer import Featurizer, FeaturizerConfig, sampling_interval
from astray.features.memory import Forgetting, Memory
from astray.features.popularity import Popularity
from astray.features.projection import Projection
from astray.irl.shared import Reward
from astray.scoring.decisions import Bounds
from astray.scoring.normality import Calibration
from astray.scoring.own_scale import fits
from astray.scoring.scores import AgentModel, Chunk, Scores
from astray.settings import check_parameters
from astray.storage import ModelFile, plain
from astray.storage.parts import (
    Packed,
    pack_ids,
    pack_popularity,
    pack_reward,
    unpack_ids,
    unpack_popularity,
    unpack_reward,
)
from astray.storage.pretrained import pretrained, read_reward
from astray.threads import one_thread
from astray.trajectories import Trajectories
from astray.trip_ids import TripId
from astray.zones import Zone

Array = NDArray[Any]


class FleetDetector(FleetParameters, Observing):
    """One reward for many agents, each with a memory of its own.

    The reward looks at a trip only through its agent's memory (how often was this agent here, did it ever stop here, at
    this hour, ...). So it serves agents it has never met: they are enrolled by counting their trips, and go on learning
    by counting further ones. It begins with the reward that ships with astray, and goes on learning from the agents
    that it is fitted on, if a dozen of them or more have ten trips each.

    Scores are measured against the agent's own past trips, each left out of the memory, and, while these are few,
    against normal trips of agents with about as much history, so that a rate of false alarms means the same for a new
    agent as for an old one. A short history widens the uncertainty.

    Attributes
    ----------
    reward_
        The shared reward of steps and trips.
    training_history_
        How the reward was learned, one row an iteration, as far as that is known.
    members_
        Agent to :class:`~astray.detectors.agents.Member`: its centre, memory, scores and some ways.
    popularity_
        Where the agents that the fleet was fitted on go.
    aspect_weights_
        How much each aspect of the reward counts.
    anomalous_
        The trips confirmed as anomalous, which never teach.

    Examples
    --------
    >>> from astray.simulate import city
    >>> trips = city(people=4, days=14, seed=0).trips
    >>> fleet = FleetDetector(iterations=1).fit(trips.without("p03"))
    >>> new = trips.agent("p03")
    >>> fleet.enroll(new[:30])
    30
    >>> fleet.score(new[30:33])["history"].to_list()
    [30.0, 30.0, 30.0]
    >>> fleet.forget("p03")
    >>> "p03" in fleet.agents
    False
    """

    KIND: ClassVar[str] = "fleet"

    reward_: Reward
    members_: dict[str, Member]
    anomalous_: frozenset[TripId]
    featurizer_config_: FeaturizerConfig
    context_: Context
    popularity_: Popularity
    aspect_weights_: tuple[float, ...]

    # ---------------------------------------------------------------- learning

    @one_thread()
    def fit(self, trips: Trajectories, y: ArrayLike | None = None) -> Self:
        """Learn the shared reward, and enrol everybody in ``trips``; those marked -1 in ``y`` do not teach."""
        check_parameters(self)
        self._check(trips)
        good = first_lesson(trips, y)
        rng = np.random.default_rng(self.seed)
        mine = trips[good]
        default = FeaturizerConfig(interval=sampling_interval(mine))
        featurizer = featurizer_config(default, self.featurizer, utc_offset=hours_from(self.time_zone, mine))
        if featurizer.encoder != "familiarity" or featurizer.context.landmarks:
            raise DataError("a fleet sees trips by their familiarity, without landmarks: those belong to one place")
        begun = pretrained() if self.reward is None else read_reward(self.reward)
        if not fits(begun, Featurizer.of(mine, featurizer, np.random.default_rng(0))):
            raise DataError("the reward was learned with other habits or another context than this featurizer has")
        given = {"max_agents": self.max_agents, **plain(self.sharing or {})}
        learned = go_on(begun, mine, featurizer, given, rng, self.iterations, self.progress) or begun
        context = Context.of(featurizer.context, mine, Projection(0.0, 0.0))
        popularity = popularity_of(mine, featurizer)
        weights = aspect_weights(learned.aspects, self.look_for)
        common = Common(featurizer, context, learned, weights, popularity, scale_config(self), observing_config(self))
        members = fleet_features.enrol(mine, {}, common, self.ways)
        # Nothing has been changed so far; now everything is, at once.
        self.reward_, self.featurizer_config_, self.context_ = learned, featurizer, context
        self.popularity_, self.members_, self.aspect_weights_ = popularity, members, common.weights
        self.anomalous_ = frozenset(trips[~good].ids)
        return self

    # ---------------------------------------------------------------- agents and their memories

    @property
    def agents(self) -> list[str]:
        """The agents that are enrolled."""
        self._require_fitted()
        return list(self.members_)

    def unknown_agents(self, trips: Trajectories) -> list[str]:
        """The agents of these trips that are not enrolled."""
        self._require_fitted()
        return [agent for agent in trips.agents if agent not in self.members_]

    @one_thread()
    def enroll(self, trips: Trajectories) -> int:
        """Count the trips of new agents, or further trips of known ones; nothing is trained.

        Trips that are remembered already, or confirmed as anomalous, under whatever name, are left out. Returns how
        many were counted.
        """
        self._require_fitted()
        self._know(trips[trips.isin(self.anomalous_)])
        new = self._unknown(trips)
        enrolled = fleet_features.enrol(new, self.members_, self._common, self.ways)
        counted = set(new.ids)
        self.members_.update({a: replace(m, inbox=m.inbox.without(counted)) for a, m in enrolled.items()})
        return len(new)

    def _unknown(self, trips: Trajectories) -> Trajectories:
        """The trips that are neither remembered nor known to be anomalous."""
        teachable(self._check(trips))
        known = {t for a in trips.agents if a in self.members_ for t in self.members_[a].memory.trip_ids}
        new = trips[~trips.isin(known | self.anomalous_)]
        rejecting = [a for a in new.agents if a in self.members_ and len(self.members_[a].inbox.rejected)]
        again = {
            trip
            for agent in rejecting
            for trip in given_again(self._counted(new.agent(agent)), self.members_[agent].inbox.rejected)
        }
        return new[~new.isin(again)]

    def _counted(self, trips: Trajectories) -> Memory:
        """What would be remembered of the trips of one agent."""
        agent = trips.agents[0]
        return self._member(agent).featurizer(agent, self._common).with_memory(Memory()).remember(trips).memory

    def _know(self, anomalous: Trajectories) -> None:
        """Know trips that proved anomalous, whatever name they come under."""
        for agent in anomalous.agents:
            if agent in self.members_:
                member = self.members_[agent]
                self.members_[agent] = replace(member, inbox=member.inbox.know(self._counted(anomalous.agent(agent))))

    def _learner(self, agent: str) -> Learner:
        member, common = self._member(agent), self._common
        featurizer = replace(member, memory=replace(member.memory)).featurizer(agent, common)
        known = (featurizer, member.own, member.inbox, common.reward, common.weights)
        return Learner(agent, *known, common.scaling, common.observing)

    def _inboxes(self) -> Mapping[str, Inbox]:
        return {agent: member.inbox for agent, member in self.members_.items()}

    def _learned(self) -> Iterator[TripId]:
        return (trip for member in self.members_.values() for trip in member.memory.trip_ids)

    def _by_learner(self, trips: Trajectories) -> Mapping[str, Array]:
        unknown = self.unknown_agents(trips)
        if unknown:
            raise DataError(f"agent {unknown[0]!r} is not enrolled", remedy=("call ", Call("enroll"), " first"))
        order = fleet_features.by_agent(trips)
        return {agent: order[run] for agent, run in fleet_features.runs(trips[order])}

    def _keep(self, learner: Learner, new: int) -> None:
        self.members_[learner.agent] = replace(
            self._member(learner.agent),
            memory=replace(learner.featurizer.memory),
            own=learner.own,
            inbox=learner.inbox,
        )

    def forget(self, agent: str) -> None:
        """Remove an agent and all that is known of it."""
        self._member(agent)
        del self.members_[agent]
        self.popularity_ = self.popularity_.without([agent])
        self.anomalous_ = frozenset(trip for trip in self.anomalous_ if trip.agent != agent)

    def forget_trips(self, agent: str, trajectories: Iterable[str], *, anomalous: bool = False) -> int:
        """Take trips out of an agent's memory; with ``anomalous`` they proved so, and are never counted again.

        Returns how many were remembered. Where others see the agent go stays as it is; :meth:`forget` takes that out.
        """
        member = self._member(agent)
        trips = {TripId(agent, t) for t in trajectories}
        memory = member.memory.remove(trips)
        gone = len(member.memory) - len(memory)
        # Ways have no names: after a removal none of them is sure to be innocent.
        inbox = member.inbox.without(trips)
        if anomalous:
            proved = replace(member.memory.remove(set(member.memory.trip_ids) - trips), forgetting=Forgetting())
            inbox = member.inbox.reject(trips).know(proved)
        self.members_[agent] = replace(member.with_memory(memory), ways=() if gone else member.ways, inbox=inbox)
        if anomalous:
            self.anomalous_ |= trips
        return gone

    def agent_model(self, agent: str, near: tuple[float, float] | None = None) -> AgentModel:
        """How one agent's trips are seen and measured, fix by fix; for a stranger, around a place (lat, lon)."""
        self._require_fitted()
        if agent in self.members_ or near is None:
            member = self._member(agent)
        else:
            lat, lon = near
            member = Member.around(np.array([lat]), np.array([lon]), self.featurizer_config_)
        common = self._common
        return AgentModel(
            member.featurizer(agent, common),
            member.calibration(common),
            member.calibration(common, True),
            member.history,
        )

    @property
    def _common(self) -> Common:
        known = (self.featurizer_config_, self.context_, self.reward_, self.aspect_weights_, self.popularity_)
        return Common(*known, scale_config(self), observing_config(self))

    def _home(self, agent: str) -> Zone | None:
        return self.members_[agent].zone if agent in self.members_ else None

    def _member(self, agent: str) -> Member:
        self._require_fitted()
        if agent not in self.members_:
            raise DataError(f"agent {agent!r} is not enrolled; there are {len(self.members_)} agents")
        return self.members_[agent]

    # ---------------------------------------------------------------- looking

    def _check(self, trips: Trajectories) -> Trajectories:
        if not trips.is_gps:
            raise DataError(f"a fleet is of GPS trips (time, lat, lon); these hold {', '.join(trips.columns)}")
        return trips

    def _order(self, trips: Trajectories) -> Array:
        return fleet_features.by_agent(trips)

    def _found(self, trips: Trajectories) -> dict[str, Member]:
        """The members whose trips these are; somebody who is not enrolled has no history."""
        return {
            a: self.members_.get(a) or Member.of(trips[run], self.featurizer_config_)
            for a, run in fleet_features.runs(trips)
        }

    def _featurize(self, trips: Trajectories, every: bool = False) -> Chunk:
        self._check(trips)
        found = self._found(trips)
        members = [found[a] for a in trips.agent_ids.tolist()]
        featurized = fleet_features.featurize(trips, members, self._common, every)
        own = trips.isin(t for m in found.values() for t in m.memory.trip_ids)
        history = np.maximum(fleet_features.histories(members) - own, 0.0)
        number = {agent: i for i, agent in enumerate(found)}
        return Chunk.of_fixes(featurized, history, np.array([number[a] for a in trips.agent_ids.tolist()], np.int64))

    def _calibrations(self, trips: Trajectories) -> Sequence[Calibration]:
        # One for each agent, in the order in which the trips of a chunk stand.
        common = self._common
        return [member.calibration(common) for member in self._found(trips).values()]

    def _explain(self, trip: Trajectories, scores: Scores, whole: Scores, bounds: Bounds) -> Explanation:
        # The expected ways are those on which the agent's past trips went on: a fleet has no policy.
        member = self.members_.get(trip.agents[0]) or Member.of(trip, self.featurizer_config_)
        habitual = [member.projection.to_degrees(way.astype(np.float64)) for way in member.ways]
        featurizer = member.featurizer(trip.agents[0], self._common)
        return explain_fixes(scores, whole, bounds, featurizer, trip.ids[0], habitual)

    # ---------------------------------------------------------------- keeping

    def _pack(self) -> Packed:
        own = {
            "featurizer_config": plain(self.featurizer_config_),
            "context": plain(self.context_),
            "aspect_weights": self.aspect_weights_,
        }
        return Packed.together(
            [
                Packed(own, pack_ids("anomalous", sorted(self.anomalous_))),
                pack_reward("reward", self.reward_),
                pack_members(self.members_, len(self.reward_.aspects)),
                pack_popularity("popularity", self.popularity_),
            ]
        )

    @classmethod
    def from_file(cls, model: ModelFile) -> Self:
        """The fleet that a file holds; see :func:`astray.load`."""
        fleet = cls._of_parameters(model)
        fleet.reward_ = unpack_reward(model, "reward")
        fleet.featurizer_config_ = model.value("featurizer_config", FeaturizerConfig)
        fleet.context_ = model.value("context", Context)
        fleet.popularity_ = unpack_popularity(model, "popularity", fleet.featurizer_config_)
        fleet.members_ = unpack_members(model, fleet.featurizer_config_, len(fleet.reward_.aspects))
        fleet.anomalous_ = frozenset(unpack_ids(model, "anomalous"))
        fleet.aspect_weights_ = cls._unpack_weights(model, fleet.reward_)
        if not fits(fleet.reward_, Member(Projection(0.0, 0.0), 0.0).featurizer("", fleet._common)):
            raise model.wrong("its reward and its featurizer do not fit together")
        return fleet
