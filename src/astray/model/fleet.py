"""FleetDetector: one shared reward, one memory per agent; a new agent is enrolled by counting its trips."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import Call, DataError, InUseError, ModelFileError, Place
from astray.core.projection import Projection
from astray.core.settings import check_parameters
from astray.core.threads import one_thread
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.core.zones import Zone
from astray.explain import Explanation, explain_fixes
from astray.features.context import Context
from astray.features.featurizer import Featurizer, FeaturizerConfig, sampling_interval
from astray.features.memory import Forgetting, Memory
from astray.features.popularity import Counted, Keys, Popularity, Visits
from astray.irl.shared import Reward
from astray.model import fleet_features
from astray.model.agents import Codec, Common, Member, centre_of, centres, unpack_members
from astray.model.compact import KEYS, TEXTS, as_rising, as_texts, pack_arrays, rising, texts, unpack_arrays
from astray.model.configuration import (
    aspect_weights,
    featurizer_config,
    hours_from,
    observing_config,
    scale_config,
)
from astray.model.container import packed, parse
from astray.model.files import FilePath, ModelFile, plain
from astray.model.fleet_file import FleetFile, write
from astray.model.fleet_store import ANOMALOUS, COUNTED, MODEL, FleetStore
from astray.model.fleet_training import go_on, popularity_of
from astray.model.inbox import Inbox
from astray.model.members import Members
from astray.model.observing import LEARNED, Learner, Observed, Observing
from astray.model.parameters import FleetParameters
from astray.model.parts import Packed, pack_reward, unpack_ids, unpack_popularity, unpack_reward
from astray.model.pretrained import pretrained, read_reward
from astray.model.updating import first_lesson, given_again, teachable
from astray.scoring.decisions import Bounds
from astray.scoring.normality import Calibration
from astray.scoring.own_scale import fits
from astray.scoring.scores import AgentModel, Chunk, Scores

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class FleetLearner(Learner):
    """What is known of an agent of a fleet: each of its trips is seen from where it begins."""

    common: Common

    def at(self, trip: Trajectories) -> Self:
        """The same, to look at a trip from where it begins."""
        (centre,) = centres(trip)
        seen = self.common.seen_from(centre, self.featurizer.memory, self.featurizer.popularity)
        return replace(self, featurizer=seen)


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
        Agent to :class:`~astray.model.agents.Member`: its memory, its newest trips, and what these score.
        Those of a fleet that was loaded are read from its file when they are asked for.
    popularity_
        How many of the agents that the fleet was fitted on go where.
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
    members_: Members
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
            raise DataError(
                "a fleet sees trips by their familiarity, without landmarks, which belong to one place",
                remedy="leave encoder and landmarks out of featurizer",
            )
        begun = pretrained() if self.reward is None else read_reward(self.reward)
        if not fits(begun, Featurizer.of(mine, featurizer, np.random.default_rng(0))):
            raise DataError(
                "the reward was learned with other habits or another context than this featurizer has",
                remedy="give the featurizer that it was learned with, or another reward",
            )
        given = {"max_agents": self.max_agents, **plain(self.sharing or {})}
        learned = go_on(begun, mine, featurizer, given, rng, self.iterations, self.progress) or begun
        context = Context.of(featurizer.context, mine, Projection(0.0, 0.0))
        popularity, visitors = _counted_apart(popularity_of(mine, featurizer))
        weights = aspect_weights(learned.aspects, self.look_for)
        known = (featurizer, context, learned, weights, _counted(popularity))
        common = Common(*known, scale_config(self), observing_config(self))
        members = Members(Codec.of(featurizer, learned), self._measured)
        for agent, member in fleet_features.enrol(mine, lambda _: None, common):
            members[agent] = replace(member, cells=visitors.get(agent, member.cells))
        # Nothing has been changed so far; now everything is, at once.
        self.reward_, self.featurizer_config_, self.context_ = learned, featurizer, context
        self.popularity_, self.members_, self.aspect_weights_ = popularity, members, weights
        self.anomalous_ = frozenset(trips[~good].ids)
        self._opened_with(None)
        return self

    # ---------------------------------------------------------------- agents and their memories

    @property
    def agents(self) -> list[str]:
        """The agents that are enrolled, in the order of their names."""
        self._require_fitted()
        return self.members_.names()

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
        counted = set(new.ids)
        for agent, member in fleet_features.enrol(new, self.members_.counted, self._common):
            self.members_[agent] = replace(member, inbox=member.inbox.without(counted))
        return len(new)

    def _unknown(self, trips: Trajectories) -> Trajectories:
        """The trips that are neither remembered nor known to be anomalous."""
        teachable(self._check(trips))
        known = set(self.anomalous_)
        rejected: dict[str, Memory] = {}
        for agent in trips.agents:
            # What is remembered is looked at; what it scores need not be measured for that.
            member = self.members_.counted(agent)
            if member is not None:
                known.update(member.memory.trip_ids)
                rejected |= {agent: member.inbox.rejected} if len(member.inbox.rejected) else {}
        new = trips[~trips.isin(known)]
        again = {
            trip
            for agent in new.agents
            if agent in rejected
            for trip in given_again(self._counted(new.agent(agent)), rejected[agent])
        }
        return new[~new.isin(again)]

    def _counted(self, trips: Trajectories) -> Memory:
        """What would be remembered of the trips of one agent."""
        counted = fleet_features.count(trips[fleet_features.by_agent(trips)], self._common)
        return counted.get(trips.agents[0], Memory())

    def _know(self, anomalous: Trajectories) -> None:
        """Know trips that proved anomalous, whatever name they come under."""
        for agent in anomalous.agents:
            member = self.members_.counted(agent)
            if member is not None:
                self.members_[agent] = replace(member, inbox=member.inbox.know(self._counted(anomalous.agent(agent))))

    def _learner(self, agent: str) -> Learner:
        member, common = self._member(agent), self._common
        featurizer = replace(member, memory=replace(member.memory)).featurizer(agent, common)
        known = (featurizer, member.own, member.inbox, common.reward, common.weights, common.scaling, common.observing)
        return FleetLearner(agent, *known, common)

    def _inboxes(self) -> Mapping[str, Inbox]:
        return {agent: member.inbox for agent, member in self._as_counted(self.members_.with_waiting_trips())}

    def _learned(self) -> Iterator[TripId]:
        return (trip for _, member in self._as_counted(self.members_) for trip in member.memory.trip_ids)

    def _as_counted(self, agents: Iterable[str]) -> Iterator[tuple[str, Member]]:
        """Members whose trips need not be measured for what is asked of them."""
        found = ((agent, self.members_.counted(agent)) for agent in agents)
        return ((agent, member) for agent, member in found if member is not None)

    def _by_learner(self, trips: Trajectories) -> Mapping[str, Array]:
        unknown = self.unknown_agents(trips)
        if unknown:
            raise DataError(f"agent {unknown[0]!r} is not enrolled", remedy=("call ", Call("enroll"), " first"))
        order = fleet_features.by_agent(trips)
        return {agent: order[run] for agent, run in fleet_features.runs(trips[order])}

    def _keep(self, learner: Learner, new: int) -> None:
        memory = replace(learner.featurizer.memory)
        known = replace(self._member(learner.agent), memory=memory, own=learner.own, inbox=learner.inbox)
        self.members_[learner.agent] = known.with_memory(memory)

    def observe(self, trips: Trajectories) -> Observed:  # noqa: D102  (as Observing has it)
        observed = super().observe(trips)
        rows = observed.table.filter(observed.table["became"] == LEARNED).select("agent", "trajectory").rows()
        learned = trips[trips.isin(TripId(*row) for row in rows)]
        for agent in learned.agents:
            self.members_[agent] = self._member(agent).keeping(learned.agent(agent), self._common)
        return observed

    def forget(self, agent: str) -> None:
        """Remove an agent and all that is known of it."""
        cells = self._member(agent).cells
        del self.members_[agent]
        self.popularity_ = _popularity(self.popularity_.cells, _counted(self.popularity_).without(cells))
        self._uncounted.append(cells)
        self.anomalous_ = frozenset(trip for trip in self.anomalous_ if trip.agent != agent)

    def forget_trips(self, agent: str, trajectories: Iterable[str], *, anomalous: bool = False) -> int:
        """Take trips out of an agent's memory; with ``anomalous`` they proved so, and are never counted again.

        Returns how many were remembered. Where others see the agent go stays as it is; :meth:`forget` takes that out.
        """
        member = self._member(agent)
        trips = {TripId(agent, t) for t in trajectories}
        memory = member.memory.remove(trips)
        gone = len(member.memory) - len(memory)
        inbox = member.inbox.without(trips)
        if anomalous:
            proved = replace(member.memory.remove(set(member.memory.trip_ids) - trips), forgetting=Forgetting())
            inbox = member.inbox.reject(trips).know(proved)
        # Ways have no names: after a removal none of them is sure to be innocent.
        left = replace(member.with_memory(memory), inbox=inbox)
        self.members_[agent] = replace(left, ways=(), measured=False) if gone else left
        if anomalous:
            self.anomalous_ |= trips
        return gone

    def agent_model(self, agent: str, near: tuple[float, float] | None = None) -> AgentModel:
        """How one agent's trips are seen and measured, fix by fix; for a stranger, around a place (lat, lon)."""
        self._require_fitted()
        known = agent in self.members_ or near is None
        member = self._member(agent) if known else Member.blank(self.featurizer_config_)
        common = self._common
        return AgentModel(
            member.featurizer(agent, common, None if near is None else centre_of(*near)),
            member.history,
            member.scale(common).calibration,
            common.scaling,
        )

    @property
    def _common(self) -> Common:
        known = (self.featurizer_config_, self.context_, self.reward_, self.aspect_weights_, _counted(self.popularity_))
        return Common(*known, scale_config(self), observing_config(self))

    def _home(self, agent: str) -> Zone | None:
        return self.members_.zone(agent)

    def _member(self, agent: str) -> Member:
        self._require_fitted()
        member = self.members_.get(agent)
        if member is None:
            raise DataError(
                f"agent {agent!r} is not enrolled (there are {len(self.members_)} agents)",
                remedy="check the name, or enroll the agent first",
            )
        return member

    def _measured(self, agent: str, member: Member) -> Member:
        return fleet_features.measured(agent, member, self._common)

    # ---------------------------------------------------------------- looking

    def _check(self, trips: Trajectories) -> Trajectories:
        if not trips.is_gps:
            raise DataError(
                f"a fleet is of GPS trips, but these hold {', '.join(trips.columns)}",
                remedy="give trips with time, lat and lon",
            )
        return trips

    def _order(self, trips: Trajectories) -> Array:
        return fleet_features.by_agent(self._check(trips))

    def _found(self, trips: Trajectories) -> dict[str, Member]:
        """The members whose trips these are; somebody who is not enrolled has no history."""
        nobody = Member.blank(self.featurizer_config_)
        return {a: self.members_.get(a, nobody) for a, _ in fleet_features.runs(trips)}

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
        return [member.scale(common).calibration() for member in self._found(trips).values()]

    def _explain(self, trip: Trajectories, scores: Scores, bounds: Bounds) -> Explanation:
        # The expected ways are those on which the agent's past trips went on: a fleet has no policy.
        common, (agent,) = self._common, trip.agents
        member = self._found(trip)[agent]
        habitual = fleet_features.ways_of(member, common, self.ways)
        featurizer = member.featurizer(agent, common, centres(trip)[0])
        return explain_fixes(scores, bounds, featurizer, trip.ids[0], habitual)

    # ---------------------------------------------------------------- keeping

    def save(self, path: FilePath) -> None:
        """Write the fleet to a file; :func:`astray.load` opens it again.

        In the file that the fleet was opened from, only the agents are written that were changed, all at once or not at
        all; another file is written whole. The file is an SQLite database, holds no code, and equal fleets, written
        whole, give equal bytes. It grows with the trips that are remembered, and is as private as they are. Functions
        given as parameters are not saved.

        Raises
        ------
        InUseError
            If another process is changing the file, or has changed the same agents since this fleet was opened;
            nothing was written.
        """
        self._require_fitted()
        store = self.members_.store
        if isinstance(store, FleetFile) and store.is_at(path):
            self.save_changes()
        else:
            self._write(path)

    def save_changes(self) -> None:
        """Write what was changed to where the fleet was opened from, all at once or not at all.

        Raises
        ------
        InUseError
            If somebody else is changing the store, or has changed the same agents since they were read; nothing was
            written.
        """
        self._require_fitted()
        store = self.members_.store
        if store is None:
            raise ModelFileError("this fleet was not opened from anywhere", remedy="save it to a file first")
        model, popularity, anomalous = self._model_there, self.popularity_, self.anomalous_
        with store.changing() as change:
            if self.saved_parameters != self._parameters_before:
                if store.shared(MODEL) != model:
                    raise InUseError(
                        "another process has changed the settings of this model since it was opened",
                        place=Place(store.name),
                        remedy="open the model again, and repeat the change",
                    )
                model = self._model()
                change.share(MODEL, model)
            for agent, row, before in self.members_.changes():
                change.put(agent, row, before)
            # What others have changed of it meanwhile stays; only the difference is written.
            if self._uncounted:
                counted = _unpack_counted(store, store.shared(COUNTED))
                for cells in self._uncounted:
                    counted = counted.without(cells)
                change.share(COUNTED, _pack_counted(counted))
                popularity = _popularity(popularity.cells, counted)
            if anomalous != self._anomalous_before:
                there = _unpack_anomalous(store, store.shared(ANOMALOUS))
                anomalous = (there | (anomalous - self._anomalous_before)) - (self._anomalous_before - anomalous)
                change.share(ANOMALOUS, _pack_anomalous(anomalous))
        self.anomalous_, self.popularity_ = anomalous, popularity
        self._opened_with(store, model)

    def _write(self, path: FilePath) -> None:
        """Write the whole fleet to a file that it is not opened from."""
        store = self.members_.store
        if isinstance(store, FleetFile) and Path(path).resolve() == store.path and Path(path).exists():
            raise InUseError(
                "another process has put another file in its place since it was opened",
                place=Place(str(path)),
                remedy="open it again, or save this one under another name",
            )
        shared = self._shared()
        write(path, shared, self.members_.everybody())
        if store is None:
            self._opened_with(FleetFile.open(path), shared[MODEL])

    def _shared(self) -> dict[int, bytes]:
        """What all agents share, as a store keeps it."""
        return {
            MODEL: self._model(),
            COUNTED: _pack_counted(_counted(self.popularity_)),
            ANOMALOUS: _pack_anomalous(self.anomalous_),
        }

    def _opened_with(self, store: FleetStore | None, model: bytes = b"") -> None:
        """Note how the store has what may be changed from now on."""
        if store is not None:
            self.members_.saved(store)
        self._model_there, self._parameters_before = model, self.saved_parameters
        self._anomalous_before, self._uncounted = self.anomalous_, list[Keys]()

    def _model(self) -> bytes:
        """What all agents share but for places: reward and settings, as a small model file."""
        whole = self._values_and_arrays()
        return b"".join(packed(self.KIND, whole.values, whole.arrays))

    def _pack(self) -> Packed:
        own = {
            "featurizer_config": plain(self.featurizer_config_),
            "context": plain(self.context_),
            "aspect_weights": self.aspect_weights_,
        }
        return Packed.together([Packed(own, {}), pack_reward("reward", self.reward_)])

    @classmethod
    def from_store(cls, store: FleetStore) -> Self:
        """The fleet that a store holds, such as a file; see :func:`astray.load`."""
        data = store.shared(MODEL)
        model = parse(BytesIO(data), len(data), Path(store.name))
        with model.fitting_together():
            fleet = cls._of_shared(model)
            fleet.popularity_ = _popularity(
                fleet.featurizer_config_.popularity, _unpack_counted(store, store.shared(COUNTED))
            )
            fleet.anomalous_ = _unpack_anomalous(store, store.shared(ANOMALOUS))
            fleet._check_parts(model)
            fleet.members_ = Members(Codec.of(fleet.featurizer_config_, fleet.reward_), fleet._measured, store)
            fleet._opened_with(store, data)
        return fleet

    def to_store(self, store: FleetStore) -> None:
        """Write everybody, and what all share, to an empty store; the fleet itself stays where it is."""
        self._require_fitted()
        with store.changing() as change:
            for part, data in self._shared().items():
                change.share(part, data)
            for agent, row in self.members_.everybody():
                change.put(agent, row, None)

    @classmethod
    def from_file(cls, model: ModelFile) -> Self:
        """The fleet that a file up to version 5 holds; see :func:`astray.load`."""
        fleet = cls._of_shared(model)
        config = fleet.featurizer_config_
        fleet.popularity_, visitors = _counted_apart(unpack_popularity(model, "popularity", config))
        fleet.anomalous_ = frozenset(unpack_ids(model, "anomalous"))
        fleet._check_parts(model)
        fleet.members_ = Members(Codec.of(config, fleet.reward_), fleet._measured)
        for agent, member in unpack_members(model, config, len(fleet.reward_.aspects)).items():
            fleet.members_[agent] = replace(member, cells=visitors.get(agent, member.cells))
        fleet._opened_with(None)
        return fleet

    @classmethod
    def _of_shared(cls, model: ModelFile) -> Self:
        fleet = cls._of_parameters(model)
        fleet.reward_ = unpack_reward(model, "reward")
        fleet.featurizer_config_ = model.value("featurizer_config", FeaturizerConfig)
        fleet.context_ = model.value("context", Context)
        fleet.aspect_weights_ = cls._unpack_weights(model, fleet.reward_)
        return fleet

    def _check_parts(self, model: ModelFile) -> None:
        if not fits(self.reward_, Member().featurizer("", self._common)):
            raise model.wrong("its reward and its featurizer do not fit together")


# -------------------------------------------------------------------- what is shared, in a file


def _popularity(cells: tuple[float, ...], counted: Counted) -> Popularity:
    return Popularity(cells, Visits(counted))


def _counted(popularity: Popularity) -> Counted:
    assert isinstance(popularity.agents, Visits)
    return popularity.agents.counted


def _counted_apart(popularity: Popularity) -> tuple[Popularity, dict[str, Keys]]:
    """How many agents go where, without their names; and where each of them goes."""
    agents = popularity.agents
    assert isinstance(agents, Memory)
    order = np.argsort(agents.trips, kind="stable")
    cuts = np.searchsorted(agents.trips[order], np.arange(1, len(agents)))
    visitors = dict(zip(agents.trip_ids, np.split(agents.keys[order], cuts), strict=True)) if len(agents) else {}
    return _popularity(popularity.cells, Counted.of(agents)), visitors


_COUNTED = (*KEYS, np.uint32, np.int64)


def _pack_counted(counted: Counted) -> bytes:
    return pack_arrays([rising(counted.keys), counted.agents.astype(np.uint32), np.array([counted.total], np.int64)])


def _unpack_counted(store: FleetStore, data: bytes) -> Counted:
    with _of_parts(store):
        steps, agents, total = unpack_arrays(data, _COUNTED)
        if len(steps) != len(agents) or len(total) != 1 or not 0 <= total[0] < 2**31 or (agents > total[0]).any():
            raise ValueError("how many agents have been where is not told")
        return Counted(as_rising(steps), agents.astype(np.int32), int(total[0]))


def _pack_anomalous(trips: Iterable[TripId]) -> bytes:
    known = sorted(trips)
    return pack_arrays([*texts(trip.agent for trip in known), *texts(trip.trajectory for trip in known)])


def _unpack_anomalous(store: FleetStore, data: bytes) -> frozenset[TripId]:
    with _of_parts(store):
        arrays = unpack_arrays(data, (*TEXTS, *TEXTS))
        return frozenset(map(TripId, as_texts(arrays[:2]), as_texts(arrays[2:], len(arrays[0]))))


@contextmanager
def _of_parts(store: FleetStore) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise store.wrong(f"its parts do not fit together ({error})") from error
