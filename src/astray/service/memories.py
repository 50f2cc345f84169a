"""The served model: its memories live in the store's tables, and it learns from trips and from verdicts."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from astray.core.errors import DataError, InUseError, ModelFileError
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.detector import Detector, load
from astray.features.memory import Memory
from astray.model.fleet_file import checksum
from astray.model.fleet_store import Entry, Row
from astray.model.gps_trips import GpsTrips
from astray.model.memories import Memories
from astray.model.memory_bytes import MemoryCodec
from astray.model.observing import Question, answer, drift_of, questions_of
from astray.runtime.trip import OpenTrip
from astray.service.preferences import put_setting
from astray.service.store import Connection

VERSION = "model version"  # the setting that says which model is in use
SOURCE = "model source"  # the setting that says which file it came from: a checksum, or nothing
KNOWN = 20_000  # entries of agents that are held ready


class FleetTables:
    """A fleet in the tables ``models`` and ``members``; written inside the transaction that is open."""

    name = "the store"

    def __init__(self, connection: Connection, version: int) -> None:
        self._connection, self.version = connection, version
        self.codec: MemoryCodec | None = None
        self._known: OrderedDict[str, Entry | None] = OrderedDict()

    def shared(self, part: int) -> bytes:
        """What all agents share: one of the parts of a fleet."""
        found = self._connection.value("SELECT data FROM models WHERE version = ? AND part = ?", (self.version, part))
        if found is None:
            raise self.wrong(f"part {part} of model {self.version} is missing")
        return bytes(found)

    def entry(self, agent: str) -> Entry | None:
        """What is said of an agent; None if it is not there."""
        if agent in self._known:
            self._known.move_to_end(agent)
            return self._known[agent]
        found = self._connection.row(
            "SELECT checksum, trips, first, last, waiting, zone FROM members WHERE agent = ?", (agent,)
        )
        return self._know(agent, None if found is None else _entry(found))

    def _know(self, agent: str, entry: Entry | None) -> Entry | None:
        self._known[agent] = entry
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)
        return entry

    def read(self, agent: str) -> tuple[bytes, Entry] | None:
        """What is known of an agent, and its entry; None if it is not there."""
        found = self._connection.row(
            "SELECT checksum, trips, first, last, waiting, zone, data, model FROM members WHERE agent = ?", (agent,)
        )
        if found is None:
            return None
        data, entry = bytes(found[6]), _entry(found)
        if checksum(agent, data) != entry.checksum:
            raise self.wrong(f"what is known of agent {agent!r} does not match its checksum")
        if found[7] != self.version and self.codec is not None:  # another reward gave its trips their scores
            data = self.codec.pack(replace(self.codec.unpack(data), measured=False))
        return data, entry

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """All agents, in no order."""
        asked = "SELECT agent, checksum, trips, first, last, waiting, zone FROM members"
        return ((str(row[0]), _entry(row[1:])) for row in self._connection.rows(asked))

    def __len__(self) -> int:
        return int(self._connection.value("SELECT count(*) FROM members"))

    @contextmanager
    def changing(self) -> Iterator[FleetTables]:
        """Change it; the transaction that is open makes that whole or nothing."""
        yield self

    def share(self, part: int, data: bytes) -> None:
        """Put something in place of what all agents share."""
        self._connection.run(
            "INSERT INTO models VALUES (?, ?, ?) ON CONFLICT (version, part) DO UPDATE SET data = excluded.data",
            (self.version, part, data),
        )

    def put(self, agent: str, row: Row | None, before: bytes | None) -> None:
        """Put a row in place of an agent's, or with None take it out."""
        known = self.entry(agent)
        if (None if known is None else known.checksum) != before:
            raise InUseError(f"agent {agent!r} was changed by somebody else", remedy="start the service again")
        if row is None:
            self._connection.run("DELETE FROM members WHERE agent = ?", (agent,))
            self._know(agent, None)
            return
        told = checksum(agent, row.data)
        first, last = (None if math.isnan(time) else time for time in (row.first, row.last))
        self._connection.run(
            "INSERT INTO members (agent, checksum, trips, first, last, waiting, zone, model, data) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (agent) DO UPDATE SET checksum = excluded.checksum, "
            "trips = excluded.trips, first = excluded.first, last = excluded.last, waiting = excluded.waiting, "
            "zone = excluded.zone, model = excluded.model, data = excluded.data",
            (agent, told, row.trips, first, last, int(row.waiting), row.zone, self.version, row.data),
        )
        self._know(agent, Entry(0, told, *row[1:]))

    def wrong(self, what: str) -> ModelFileError:
        """An error that says what is wrong with the store."""
        return ModelFileError(what, place=self.name, remedy="it is damaged: restore a backup")


def _entry(row: Sequence[Any]) -> Entry:
    told, trips, first, last, waiting, zone = row[:6]
    begun, ended = (math.nan if time is None else float(time) for time in (first, last))
    return Entry(0, bytes(told), int(trips), begun, ended, bool(waiting), str(zone))


# -------------------------------------------------------------------- the model


def blank_model() -> Detector:
    """Returns a model that knows nobody yet, with the reward that ships with astray."""
    return Detector(pooled=False).begin()


def begin(connection: Connection, model: Path | None) -> None:
    """Puts a model into a store that has none yet: that of a file, or one that knows nobody."""
    source = "" if model is None else checksum("model", model.read_bytes()).hex()
    known = connection.value("SELECT value FROM settings WHERE name = ?", (SOURCE,))
    if known is not None:
        if source not in ("", known):
            raise DataError(
                "the store was begun with another model", place=model or "", remedy="name a new folder, or leave it out"
            )
        return
    detector = blank_model() if model is None else load(model)
    if detector.is_one:
        raise DataError("a model of one agent", place=model or "", remedy="give a fleet: astray fit with many agents")
    detector.to_store(FleetTables(connection, 1))
    put_setting(connection, SOURCE, source)
    put_setting(connection, VERSION, "1")


class ServedModel:
    """A model of many agents whose memories live in the tables of a store."""

    def __init__(self, tables: FleetTables) -> None:
        self.tables, self.detector = tables, Detector.from_store(tables)
        world = self.detector.fitted
        if not isinstance(world, GpsTrips):
            raise tables.wrong("a model that is not of GPS trips")
        self.world = world
        tables.codec = world.memories.codec

    @classmethod
    def open(cls, connection: Connection, version: int | None = None) -> ServedModel:
        """Opens the model that is in use, or an earlier one."""
        return cls(FleetTables(connection, version or version_in_use(connection)))

    @property
    def version(self) -> int:
        """The version of the model."""
        return self.tables.version

    @property
    def memories(self) -> Memories:
        """What is known of each agent."""
        return self.world.memories

    def as_of(self, agent: str, data: bytes) -> Detector:
        """Returns a detector that knows one agent by these bytes, or not at all without any, and nobody else."""
        then = copy.copy(self.detector)
        then.world_ = self.world.alone(agent, self.memories.codec.unpack(data) if data else None)
        return then

    def read_again(self, connection: Connection) -> None:
        """Forgets what was read of its agents: others may have changed it."""
        self.tables = FleetTables(connection, self.version)
        self.tables.codec = self.memories.codec
        self.memories.saved(self.tables)

    def write(self) -> None:
        """Writes the memories that were changed to their tables."""
        changes = list(self.memories.changes())
        for agent, row, before in changes:
            self.tables.put(agent, row, before)
        if changes:
            self.memories.saved(self.tables)

    # ---------------------------------------------------------------- learning

    def learn(self, trip: Trajectories, flagged: bool, p_value: float, was: OpenTrip) -> Lesson:
        """Remembers a trip that was not flagged; lets a flagged one wait, and perhaps asks about it.

        What decides is its score by the model that it began with, which the open trip that it ``was`` has.
        """
        (agent,) = trip.agents
        seen = was.seen if self._knows_as_then(agent, was) else None
        became, memory = self.world.take_trip(trip, flagged, p_value, seen)
        drift = drift_of(agent, memory, self.world.common.observing)
        return Lesson(became, questions_of(agent, memory), drift)

    def _knows_as_then(self, agent: str, was: OpenTrip) -> bool:
        """Returns True if an agent, and whom it is compared with, are known as when an open trip began."""
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
        gone = trips[~trips.isin(waiting)]  # too many waited, and these have left
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
        """Takes trips out of what is known of their agent, to look at them again."""
        for agent in {trip.agent for trip in trips}:
            if agent in self.memories:
                self.world.forget_trips(agent, [trip.trajectory for trip in trips if trip.agent == agent])

    def forget(self, agent: str) -> None:
        """Removes an agent and all that is known of it, also where others are compared with it."""
        if agent in self.memories:
            self.world.forget(agent)
        self.detector.save_changes()


def version_in_use(connection: Connection) -> int:
    """Returns the version of the model that new trips are scored by."""
    return int(connection.value("SELECT value FROM settings WHERE name = ?", (VERSION,)))


class Lesson(NamedTuple):
    """What became of a trip that is over."""

    became: str  # learned, waiting, refused or known
    questions: tuple[Question, ...]  # that are open about its agent
    drift: str  # a warning if many trips were flagged lately
