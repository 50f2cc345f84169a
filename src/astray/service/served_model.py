"""Serves a model whose memories are in the store's tables; it learns from trips and from verdicts."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.detector import Detector, load
from astray.features.memory import Memory
from astray.model.gps_trips import GpsTrips
from astray.model.memories import Memories
from astray.model.observing import Question, answer, drift_of, questions_of
from astray.model.store import Entry, Tables, TablesChange, checksum
from astray.runtime.trip import OpenTrip
from astray.service.preferences import put_setting, setting
from astray.service.store import Connection

VERSION = "model version"  # the setting with the version of the model in use
SOURCE = "model source"  # the setting with the checksum of the file that the model came from; empty for no file
KNOWN = 20_000  # cached entries of agents


class CachedTables(Tables):
    """The tables of a model in the service's database; caches entries, because no other process changes them."""

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
        """Changes the tables inside the open transaction, so all at once or not at all."""
        with super().changing() as change:
            try:
                yield change
            finally:
                for agent in change.changed:
                    self._known.pop(agent, None)


# -------------------------------------------------------------------- the model


def blank_model() -> Detector:
    """Returns a model without agents, with the reward that ships with astray."""
    return Detector(pooled=False).begin()


def begin(connection: Connection, model: Path | None) -> None:
    """Puts a model into a store that has none yet: the model in a file, or one without agents."""
    source = "" if model is None else checksum("model", model.read_bytes()).hex()
    known = setting(connection, SOURCE)
    if known is not None:
        if source not in ("", known):
            raise DataError(
                "this store began with another model", place=model or "", remedy="name a new folder, or leave it out"
            )
        return
    detector = blank_model() if model is None else load(model)
    if detector.is_one:
        raise DataError("a model of one agent", place=model or "", remedy="give a fleet: astray fit with many agents")
    detector.to_store(CachedTables(connection, 1))
    put_setting(connection, SOURCE, source)
    put_setting(connection, VERSION, "1")


class ServedModel:
    """A model of many agents whose memories are in the tables of a store."""

    def __init__(self, tables: CachedTables) -> None:
        self.tables, self.detector = tables, Detector.from_store(tables)
        world = self.detector.fitted
        if not isinstance(world, GpsTrips):
            raise tables.wrong("a model that is not of GPS trips")
        self.world = world

    @classmethod
    def open(cls, connection: Connection, version: int | None = None) -> ServedModel:
        """Opens the model that is in use, or an earlier one."""
        return cls(CachedTables(connection, version or version_in_use(connection)))

    @property
    def version(self) -> int:
        """The version of the model."""
        return self.tables.version

    @property
    def memories(self) -> Memories:
        """The memory of each agent."""
        return self.world.memories

    def as_of(self, agent: str, data: bytes) -> Detector:
        """Returns a detector that knows only this agent, by the memory in ``data``; without data it knows nobody."""
        then = copy.copy(self.detector)
        then.world_ = self.world.alone(agent, self.memories.codec.unpack(data) if data else None)
        return then

    def read_again(self, connection: Connection) -> None:
        """Drops what was read of agents, because the service may have changed it since."""
        self.tables = CachedTables(connection, self.version)
        self.memories.saved(self.tables)

    def write(self) -> None:
        """Writes changed memories to their tables."""
        changes = list(self.memories.changes())
        if changes:
            with self.tables.changing() as change:
                for agent, row, before in changes:
                    change.put(agent, row, before)
            self.memories.saved(self.tables)

    # ---------------------------------------------------------------- learning

    def learn(self, trip: Trajectories, flagged: bool, p_value: float, was: OpenTrip) -> Lesson:
        """Remembers a trip that was not flagged; lets a flagged trip wait, and may ask about it.

        ``flagged`` and ``p_value`` are by the model that the trip began with; ``was``, the open trip, has that model.
        """
        (agent,) = trip.agents
        seen = was.seen if self._is_unchanged(agent, was) else None
        became, memory = self.world.take_trip(trip, flagged, p_value, seen)
        drift = drift_of(agent, memory, self.world.common.observing)
        return Lesson(became, questions_of(agent, memory), drift)

    def _is_unchanged(self, agent: str, was: OpenTrip) -> bool:
        """Returns True if the memory of an agent, reward and popularity have not changed since its trip began."""
        memory, then = self.memories.peek(agent), was.agent_model.featurizer
        counts = Memory() if memory is None else memory.counts
        is_same = counts is then.memory or not (len(counts) or len(then.memory))
        return is_same and was.reward is self.world.reward and then.popularity.of_the_same(self.world.popularity)

    def teach(self, trips: Trajectories, mine: bool) -> tuple[Question, ...]:
        """Learns from a person's verdict on trips of one agent; returns the questions that are still open.

        Confirmed anomalies never teach: the model refuses trips like them from then on.
        """
        (agent,) = trips.agents
        named, memory = set(trips.ids), self.world.memory(agent)
        waiting = [trip for trip in memory.inbox.waiting.trip_ids if trip in named]
        if waiting:
            self.memories[agent] = answer(memory, waiting, mine)
        gone = trips[~trips.isin(waiting)]  # these were dropped when the inbox was full
        if len(gone):
            if mine:
                self.world.enroll(gone)
            else:
                self.world.forget_trips(agent, gone.trajectory_ids.tolist(), anomalous=True)
                self.world.reject(gone)
        if mine:
            self.memories[agent] = self.world.memory(agent).keeping(trips, self.world.common)
        self.world.anomalous = frozenset()  # the table of reviews knows them
        return questions_of(agent, self.world.memory(agent))

    def unlearn(self, trips: Sequence[TripId]) -> None:
        """Removes trips from the memory of their agent, so that they can be scored again."""
        for agent in {trip.agent for trip in trips}:
            if agent in self.memories:
                self.world.forget_trips(agent, [trip.trajectory for trip in trips if trip.agent == agent])

    def forget(self, agent: str) -> None:
        """Removes an agent from the memories and from the population that others are compared with."""
        if agent in self.memories:
            self.world.forget(agent)
        self.detector.save_changes()


def version_in_use(connection: Connection) -> int:
    """Returns the version of the model that new trips are scored by."""
    return int(setting(connection, VERSION) or 0)


class Lesson(NamedTuple):
    """What the model did with a finished trip."""

    became: str  # learned, waiting, refused or known
    questions: tuple[Question, ...]  # the open questions about its agent
    drift: str  # a warning if many trips were flagged lately
