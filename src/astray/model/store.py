"""Where a model is kept: one set of tables, in a model file, in the service's SQLite database or in PostgreSQL.

``models`` holds what all agents share, in named parts; ``memories`` has one row for each agent. Every row has a
checksum over its place and its contents. Agents belong to shards by a hash of their names; ``shards`` has the number of
agents in each and their combined checksum. So if an agent is not found, its shard proves that it really is not there,
and SQLite or a checksum detects every damaged page. The checksums have no key: they find accidents, not forgery.

:class:`Tables` runs the statements on any connection; :class:`~astray.model.file.ModelFile` does so on a file. Another
place with the methods of :class:`Store` can replace them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

from astray.core.errors import InUseError, ModelFileError, Place

MODEL, POPULARITY, ANOMALOUS = "model", "popularity", "anomalous"
PARTS = (MODEL, POPULARITY, ANOMALOUS)
"""Parts that all agents share: reward and settings, how many agents went where, which trips were anomalous."""

SHARDS = 256
SCHEMA = (
    "CREATE TABLE models (version INTEGER NOT NULL, part TEXT NOT NULL, checksum BLOB NOT NULL, data BLOB NOT NULL, "
    "PRIMARY KEY (version, part)) STRICT",
    # version: the model whose reward gave the agent's trips their scores.
    "CREATE TABLE memories (agent TEXT PRIMARY KEY, checksum BLOB NOT NULL, shard INTEGER NOT NULL, trips INTEGER NOT "
    "NULL, first REAL, last REAL, waiting INTEGER NOT NULL, zone TEXT NOT NULL, version INTEGER NOT NULL, data BLOB "
    "NOT NULL) STRICT",
    "CREATE INDEX memories_of_shard ON memories (shard, agent, checksum)",
    "CREATE TABLE shards (shard INTEGER PRIMARY KEY, agents INTEGER NOT NULL, checksum BLOB NOT NULL) STRICT",
)

_ENTRY = "checksum, trips, first, last, waiting, zone, version"
# One statement each, so that both tables are seen as they were at one moment.
_LIST_SHARD = (
    "SELECT agent, checksum, -1 FROM memories WHERE shard = ? "
    "UNION ALL SELECT '', checksum, agents FROM shards WHERE shard = ?"
)
_LIST_ALL = (
    f"SELECT agent, {_ENTRY} FROM memories UNION ALL SELECT '', checksum, agents, NULL, NULL, shard, '', -1 FROM shards"
)
_PUT_PART = (
    "INSERT INTO models (version, part, checksum, data) VALUES (?, ?, ?, ?) ON CONFLICT (version, part) DO UPDATE SET "
    "checksum = excluded.checksum, data = excluded.data"
)
_PUT_MEMORY = (
    "INSERT INTO memories (agent, checksum, shard, trips, first, last, waiting, zone, version, data) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (agent) DO UPDATE SET checksum = excluded.checksum, "
    "trips = excluded.trips, first = excluded.first, last = excluded.last, waiting = excluded.waiting, "
    "zone = excluded.zone, version = excluded.version, data = excluded.data"
)
_PUT_SHARD = (
    "INSERT INTO shards (shard, agents, checksum) VALUES (?, ?, ?) ON CONFLICT (shard) DO UPDATE SET "
    "agents = excluded.agents, checksum = excluded.checksum"
)


class Row(NamedTuple):
    """What a store writes of an agent: its memory, and a summary."""

    data: bytes
    trips: int  # that are remembered
    first: float  # when the first of them began, and the last; NaN if there is none
    last: float
    waiting: bool  # whether flagged trips wait
    zone: str


class Entry(NamedTuple):
    """What a store says of an agent without reading its memory."""

    checksum: bytes  # differs if anything about the agent differs
    trips: int
    first: float
    last: float
    waiting: bool
    zone: str
    version: int  # of the model whose reward gave the agent's trips their scores

    def row(self, data: bytes = b"") -> Row:
        """Returns the row that has this summary."""
        return Row(data, *self[1:6])


class Change(Protocol):
    """A change of a store that is under way."""

    def share(self, part: str, data: bytes) -> None:
        """Replaces one of :data:`PARTS`."""

    def put(self, agent: str, row: Row | None, before: bytes | None) -> None:
        """Replaces the row of an agent, or removes it if ``row`` is None.

        ``before`` is the checksum that the agent had when it was read, None if it was not there. Raises an
        :class:`~astray.core.errors.InUseError` if somebody else has changed the agent since.
        """


class Store(Protocol):
    """Keeps a model. Several threads may read it at once while others change it.

    A store checks what it reads: if that is not what was written, it raises the error that :meth:`wrong` makes.
    """

    name: str  # in messages
    version: int  # of the model that is read and written

    def shared(self, part: str) -> bytes:
        """Returns one of :data:`PARTS`."""

    def entry(self, agent: str) -> Entry | None:
        """Returns the entry of an agent as it is now; None if it is not there."""

    def read(self, agent: str) -> tuple[bytes, Entry] | None:
        """Returns the memory of an agent and its entry; None if it is not there."""

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Yields all agents, in any order."""

    def __len__(self) -> int:
        """Returns the number of agents."""

    def changing(self) -> AbstractContextManager[Change]:
        """Changes the store: all at once when the block ends, or not at all if it raises; others must wait."""

    def wrong(self, what: str) -> ModelFileError:
        """Returns an error that says what is wrong with the store."""


class Connection(Protocol):
    """A connection to a database. Statements have ``?`` for values."""

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs a statement and returns all rows of its answer."""

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Runs a statement and returns the number of rows that it changed."""


# -------------------------------------------------------------------- checksums


def checksum(place: str, data: bytes, size: int = 16) -> bytes:
    """Returns a checksum of bytes and of the place where they are stored."""
    digest = hashlib.blake2b(place.encode(), digest_size=size)
    digest.update(b"\0")
    digest.update(data)
    return digest.digest()


def shard_of(agent: str) -> int:
    """Returns the shard of an agent: a hash of its name."""
    return hashlib.blake2b(agent.encode(), digest_size=1).digest()[0]


def _seal(agent: str, summary: Sequence[Any], of_data: bytes) -> bytes:
    """Returns a row's checksum in two halves: over the memory, and over the summary and the first half."""
    return of_data + checksum(f"agent {agent}", repr(tuple(summary)).encode() + of_data, 8)


def _total(listed: Mapping[str, bytes]) -> tuple[int, bytes]:
    """Returns the number of agents, and a checksum of their names and checksums."""
    whole = hashlib.blake2b(digest_size=16)
    for agent in sorted(listed):
        whole.update(agent.encode() + b"\0" + listed[agent])
    return len(listed), whole.digest()


# -------------------------------------------------------------------- the tables


class Tables:
    """The tables of :data:`SCHEMA` on a connection; :meth:`changing` writes inside a transaction that is open."""

    def __init__(self, connection: Connection, version: int = 1, name: str = "the store") -> None:
        self._connection, self.version, self.name = connection, version, name
        self._change: TablesChange | None = None

    def wrong(self, what: str) -> ModelFileError:
        """Returns an error that says what is wrong with the store."""
        return ModelFileError(what, place=self.name, remedy="it is damaged: restore a backup")

    def shared(self, part: str) -> bytes:
        """Returns one of :data:`PARTS`."""
        asked = "SELECT checksum, data FROM models WHERE version = ? AND part = ?"
        for told, data in self._connection.rows(asked, (self.version, part)):
            if checksum(f"{self.version} {part}", _bytes(data)) == _bytes(told):
                return _bytes(data)
        raise self.wrong(f"the part {part!r} of the model is missing or does not match its checksum")

    def entry(self, agent: str) -> Entry | None:
        """Returns the entry of an agent as it is now; None if it is not there."""
        found = self._found(agent, _ENTRY)
        return None if found is None else self._entry(agent, found)

    def read(self, agent: str) -> tuple[bytes, Entry] | None:
        """Returns the memory of an agent and its entry; None if it is not there."""
        found = self._found(agent, f"{_ENTRY}, data")
        if found is None:
            return None
        entry, data = self._entry(agent, found), _bytes(found[7])
        if checksum("memory", data, 8) != entry.checksum[:8]:
            raise self._damaged_agent(agent)
        return data, entry

    def _found(self, agent: str, columns: str) -> tuple[Any, ...] | None:
        for _ in range(3):
            rows = self._connection.rows(f"SELECT {columns} FROM memories WHERE agent = ?", (agent,))
            if rows:
                return rows[0]
            if agent not in self._listed(shard_of(agent)):
                return None
            # Another process may have written it just now; otherwise the index is damaged.
        raise self._damaged_agent(agent)

    def _entry(self, agent: str, found: Sequence[Any]) -> Entry:
        told, trips, first, last, waiting, zone, version = found[:7]
        begun, ended = (math.nan if time is None else time for time in (first, last))
        entry = Entry(_bytes(told), trips, begun, ended, bool(waiting), zone, version)
        if _seal(agent, entry[1:], entry.checksum[:8]) != entry.checksum:
            raise self._damaged_agent(agent)
        return entry

    def _damaged_agent(self, agent: str) -> ModelFileError:
        return self.wrong(f"what is known of agent {agent!r} does not match its checksum")

    def _listed(self, shard: int) -> dict[str, bytes]:
        """Returns the agents of a shard with their checksums."""
        if self._change is not None and shard in self._change.touched:
            return self._change.touched[shard]
        rows = self._connection.rows(_LIST_SHARD, (shard, shard))
        listed = {str(agent): _bytes(told) for agent, told, n in rows if n == -1}
        sums = [(n, _bytes(told)) for _, told, n in rows if n != -1]
        if sums != ([_total(listed)] if listed else []):
            raise self._damaged_list()
        return listed

    def _damaged_list(self) -> ModelFileError:
        return self.wrong("its list of agents does not match its checksum")

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Yields all agents, in any order."""
        listed: dict[int, dict[str, bytes]] = {}
        sums: dict[int, tuple[int, bytes]] = {}
        for name, *found in self._connection.rows(_LIST_ALL):
            if found[6] == -1:
                sums[found[4]] = found[1], _bytes(found[0])
                continue
            agent = str(name)
            entry = self._entry(agent, found)
            listed.setdefault(shard_of(agent), {})[agent] = entry.checksum
            yield agent, entry
        if sums != {shard: _total(agents) for shard, agents in listed.items()}:
            raise self._damaged_list()

    def __len__(self) -> int:
        ((rows, counted),) = self._connection.rows(
            "SELECT (SELECT count(*) FROM memories), (SELECT coalesce(sum(agents), 0) FROM shards)"
        )
        if rows != counted:
            raise self._damaged_list()
        return int(rows)

    @contextmanager
    def changing(self) -> Iterator[TablesChange]:
        """Changes the tables inside the open transaction, so all at once or not at all."""
        self._change = TablesChange(self, self._connection)
        try:
            yield self._change
            self._change.finish()
        finally:
            self._change = None


class TablesChange:
    """A change of :class:`Tables` that is under way."""

    def __init__(self, tables: Tables, connection: Connection) -> None:
        self._tables, self._connection = tables, connection
        self.touched: dict[int, dict[str, bytes]] = {}  # shard to agents with their checksums, as changed
        self.changed: set[str] = set()

    def share(self, part: str, data: bytes) -> None:
        """Replaces one of :data:`PARTS`."""
        version = self._tables.version
        self._connection.run(_PUT_PART, (version, part, checksum(f"{version} {part}", data), data))

    def put(self, agent: str, row: Row | None, before: bytes | None) -> None:
        """Replaces or removes the row of an agent; raises an InUseError if its checksum is not ``before``."""
        shard = shard_of(agent)
        listed = self.touched.setdefault(shard, self._tables._listed(shard))
        if listed.get(agent) != before:
            raise InUseError(
                f"another process has changed what is known of {agent!r} since this model was opened",
                place=Place(self._tables.name),
                remedy="open the model again, and repeat the change",
            )
        self.changed.add(agent)
        if row is None:
            self._connection.run("DELETE FROM memories WHERE agent = ?", (agent,))
            del listed[agent]
            return
        first, last, version = float(row.first), float(row.last), self._tables.version
        summary = (int(row.trips), first, last, bool(row.waiting), row.zone, version)
        listed[agent] = told = _seal(agent, summary, checksum("memory", row.data, 8))
        times = (None if math.isnan(time) else time for time in (first, last))
        values = (agent, told, shard, int(row.trips), *times, int(row.waiting), row.zone, version, row.data)
        self._connection.run(_PUT_MEMORY, values)

    def finish(self) -> None:
        """Writes the number of agents and the checksum of every shard that was touched."""
        for shard, listed in sorted(self.touched.items()):
            if listed:
                self._connection.run(_PUT_SHARD, (shard, *_total(listed)))
            else:
                self._connection.run("DELETE FROM shards WHERE shard = ?", (shard,))


def _bytes(value: Any) -> bytes:
    """Returns a blob as bytes; none if a damaged row holds no blob."""
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else b""
