"""Opens the fleet in the tables of the service's store, and lets it learn from a trip or from a verdict."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.core.zones import home_of
from astray.features.context import Context
from astray.features.featurizer import FeaturizerConfig
from astray.features.memory import Memory
from astray.features.popularity import Counted, Popularity, Visits
from astray.model.agents import Codec, Member
from astray.model.configuration import aspect_weights, featurizer_config
from astray.model.fleet import FleetDetector
from astray.model.inbox import Inbox
from astray.model.loading import load
from astray.model.members import Members
from astray.model.observing import LEARNED, Question
from astray.model.pretrained import pretrained
from astray.model.store import Entry, Tables, TablesChange, checksum
from astray.runtime.trip import OpenTrip
from astray.service.preferences import put_setting
from astray.service.store import Connection

VERSION = "model version"  # the setting that says which model is in use
SOURCE = "model source"  # the setting that says which file it came from: a checksum, or nothing
KNOWN = 20_000  # entries of agents that are held ready


class CachedTables(Tables):
    """The tables of a model in the service's database, which nobody else writes: entries of agents are held ready."""

    def __init__(self, connection: Connection, version: int) -> None:
        super().__init__(connection, version)
        self._known: OrderedDict[str, Entry | None] = OrderedDict()

    def entry(self, agent: str) -> Entry | None:
        """Returns the entry of an agent; None if it is not there."""
        if agent in self._known:
            self._known.move_to_end(agent)
            return self._known[agent]
        found = self._known[agent] = super().entry(agent)
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)
        return found

    @contextmanager
    def changing(self) -> Iterator[TablesChange]:
        """Changes the tables inside the transaction that is open, which makes that whole or nothing."""
        with super().changing() as change:
            try:
                yield change
            finally:
                for agent in change.changed:
                    self._known.pop(agent, None)


# -------------------------------------------------------------------- the fleet


def blank_fleet() -> FleetDetector:
    """A fleet that knows nobody yet, with the reward that ships with astray."""
    fleet = FleetDetector()
    fleet.reward_ = pretrained()
    fleet.featurizer_config_ = featurizer_config(FeaturizerConfig(), None)
    fleet.context_ = Context()
    fleet.popularity_ = Popularity(fleet.featurizer_config_.popularity, Visits(Counted()))
    fleet.aspect_weights_ = aspect_weights(fleet.reward_.aspects, None)
    fleet.anomalous_ = frozenset()
    fleet.members_ = Members(Codec.of(fleet.featurizer_config_, fleet.reward_), fleet._measured)
    return fleet


def begin(connection: Connection, model: Path | None) -> None:
    """Put a model into a store that has none yet: a fleet's file, or nobody and the reward that ships with astray."""
    source = "" if model is None else checksum("model", model.read_bytes()).hex()
    known = connection.value("SELECT value FROM settings WHERE name = ?", (SOURCE,))
    if known is not None:
        if source not in ("", known):
            raise DataError(
                "the store was begun with another model", place=model or "", remedy="name a new folder, or leave it out"
            )
        return
    fleet = blank_fleet() if model is None else load(model)
    if not isinstance(fleet, FleetDetector):
        raise DataError("a model of one agent", place=model or "", remedy="give a fleet: astray fit with many agents")
    fleet.to_store(CachedTables(connection, 1))
    put_setting(connection, SOURCE, source)
    put_setting(connection, VERSION, "1")


def open_fleet(connection: Connection, version: int | None = None) -> FleetDetector:
    """The fleet in a store, by the model that is in use or by an earlier one."""
    return FleetDetector.from_store(CachedTables(connection, version or version_in_use(connection)))


def version_in_use(connection: Connection) -> int:
    """The version of the model that new trips are scored by."""
    return int(connection.value("SELECT value FROM settings WHERE name = ?", (VERSION,)))


def as_of(fleet: FleetDetector, agent: str, data: bytes) -> FleetDetector:
    """A fleet that knows of one agent what these bytes say, nothing if there are none, and of nobody else."""
    then = copy.copy(fleet)
    then.members_ = Members(fleet.members_.codec, then._measured)
    if data:
        then.members_[agent] = fleet.members_.codec.unpack(agent, data)
    return then


def read_again(fleet: FleetDetector, connection: Connection) -> None:
    """Forget what was read of its agents: others may have changed it."""
    tables = fleet.members_.store
    assert isinstance(tables, CachedTables)
    fleet.members_.saved(CachedTables(connection, tables.version))


def write(fleet: FleetDetector) -> None:
    """Write the members that were changed to their tables."""
    tables = fleet.members_.store
    assert isinstance(tables, CachedTables)
    changes = list(fleet.members_.changes())
    if changes:
        with tables.changing() as change:
            for agent, row, before in changes:
                change.put(agent, row, before)
        fleet.members_.saved(tables)


# -------------------------------------------------------------------- learning


class Lesson(NamedTuple):
    """What became of a trip that is over."""

    became: str  # learned, waiting, refused or known
    questions: tuple[Question, ...]  # that are open about its agent
    drift: str  # what is said if many trips were flagged lately


def learn(fleet: FleetDetector, trip: Trajectories, flagged: bool, p_value: float, was: OpenTrip) -> Lesson:
    """Remember a trip that was not flagged; let a flagged one wait, and perhaps ask about it.

    What decides is its score by the model that it began with, as the open trip that it was has it.
    """
    (agent,) = trip.agents
    seen = was.seen if _is_known_as_then(fleet, agent, was) else None
    if agent not in fleet.members_:
        blank, tokens = Member.blank(fleet.featurizer_config_), fleet._common.observing.tokens
        fleet.members_[agent] = replace(blank, inbox=Inbox(tokens=tokens), zone=home_of(trip))
    learner, became = fleet._learner(agent).take(trip, flagged, p_value, seen)
    fleet._keep(learner, int(became == LEARNED))
    if became == LEARNED:
        fleet.members_[agent] = fleet._member(agent).keeping(trip, fleet._common)
    return Lesson(became, learner.questions, learner.drift)


def _is_known_as_then(fleet: FleetDetector, agent: str, was: OpenTrip) -> bool:
    """Whether an agent, and whom it is compared with, are known as they were when an open trip began."""
    member, then = fleet.members_.counted(agent), was.agent_model.featurizer
    memory = Memory() if member is None else member.memory
    is_same = memory is then.memory or not (len(memory) or len(then.memory))
    return is_same and was.reward is fleet.reward_ and then.popularity.of_the_same(fleet.popularity_)


def teach(fleet: FleetDetector, trips: Trajectories, mine: bool) -> tuple[Question, ...]:
    """A person has said whether trips of one agent were its own; gives the questions that are still open.

    Confirmed anomalies never teach: what is like them is refused from then on.
    """
    (agent,) = trips.agents
    named = set(trips.ids)
    inbox = fleet._member(agent).inbox
    waiting = [trip for trip in inbox.waiting.trip_ids if trip in named]
    if waiting:
        fleet._keep(fleet._learner(agent).answer(waiting, mine), len(waiting) if mine else 0)
    gone = trips[~trips.isin(waiting)]  # too many waited, and these have left
    if len(gone):
        if mine:
            fleet.enroll(gone)
        else:
            fleet.forget_trips(agent, gone.trajectory_ids.tolist(), anomalous=True)
            fleet._know(gone)
    if mine:
        fleet.members_[agent] = fleet._member(agent).keeping(trips, fleet._common)
    fleet.anomalous_ = frozenset()  # the table of reviews knows them
    return tuple(Question(agent, group) for group in fleet._member(agent).inbox.asked)


def unlearn(fleet: FleetDetector, trips: Sequence[TripId]) -> None:
    """Take trips out of what is known of their agent, to look at them again."""
    for agent in {trip.agent for trip in trips}:
        if agent in fleet.members_:
            fleet.forget_trips(agent, [trip.trajectory for trip in trips if trip.agent == agent])


def forget(fleet: FleetDetector, agent: str) -> None:
    """Remove an agent and all that is known of it, also where others are compared with it."""
    if agent in fleet.members_:
        fleet.forget(agent)
    fleet.save_changes()
