"""Maps agents to memories: reads each one when it is first asked for, and holds changed ones until they are saved."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import replace
from functools import cached_property

from astray.core.errors import ModelFileError
from astray.core.zones import Zone
from astray.model.agent_memory import AgentMemory
from astray.model.memory_bytes import MemoryCodec
from astray.model.store import Row, Store

HELD_BYTES = 256 << 20  # the most bytes of unsaved memories in RAM; more wait on the disk
READY_BYTES = 32 << 20  # the most bytes of unchanged memories that stay in RAM after they were read

Measure = Callable[[str, AgentMemory], AgentMemory]


class Memories(MutableMapping[str, AgentMemory]):
    """Maps agents to what the model knows of them.

    It reads a memory from the store when somebody asks for it. It holds changed memories apart from the store until
    they are saved: up to :data:`HELD_BYTES` in RAM, the others in a temporary file without a name. If the counts of a
    memory have changed, ``measure`` scores its trips when somebody asks for it.
    """

    def __init__(self, codec: MemoryCodec, measure: Measure, store: Store | None = None) -> None:
        self.codec, self.measure, self.store = codec, measure, store
        self._lock = threading.RLock()  # several threads may score
        self.discard()

    def discard(self) -> None:
        """Drops all changes: the memories are again as the store has them."""
        self._ready = _Held()
        self._clear()

    def _clear(self) -> None:
        self._changed = _Held()
        self._waiting = _Waiting()
        self._gone: set[str] = set()
        self._known_as: dict[str, bytes | None] = {}  # checksums of the changed memories before the change

    # ---------------------------------------------------------------- a mapping

    def __getitem__(self, agent: str) -> AgentMemory:
        with self._lock:
            found = self.peek(agent)
            if found is None:
                raise KeyError(agent)
            if not found.measured:
                found = self.measure(agent, found)
                if agent in self._changed:
                    self._changed[agent] = found
        return found

    def peek(self, agent: str) -> AgentMemory | None:
        """Returns the memory of an agent, measured or not; None if the agent is unknown."""
        if agent in self._changed:
            return self._changed[agent]
        if agent in self._waiting.rows:
            return self._unpacked(agent, self._waiting.read(agent))
        if agent in self._gone or self.store is None:
            return None
        entry = self.store.entry(agent)
        if entry is None:
            return None
        if agent in self._ready and self._known_as.get(agent) == entry.checksum:
            self._keep_ready(agent, self._ready[agent])
            return self._ready[agent]
        found = self.store.read(agent)
        if found is None:
            return None
        data, entry = found
        memory = self._unpacked(agent, data)
        if entry.version != self.store.version:  # the reward of another model gave its trips their scores
            memory = replace(memory, measured=False)
        self._known_as[agent] = entry.checksum
        self._keep_ready(agent, memory)
        return memory

    def _keep_ready(self, agent: str, memory: AgentMemory) -> None:
        self._ready[agent] = memory
        while self._ready.nbytes > READY_BYTES and len(self._ready) > 1:
            self._ready.pop(next(iter(self._ready)))

    def _unpacked(self, agent: str, data: bytes) -> AgentMemory:
        try:
            return self.codec.unpack(data)
        except (LookupError, TypeError, ValueError) as error:
            assert self.store is not None
            raise self.store.wrong(f"what is known of agent {agent!r} does not fit together ({error})") from error

    def __setitem__(self, agent: str, memory: AgentMemory) -> None:
        self._note(agent)
        self._changed[agent] = memory
        if self._changed.nbytes > HELD_BYTES:
            self._waiting.put((name, self.codec.row(changed)) for name, changed in self._changed.items())
            self._changed = _Held()

    def _note(self, agent: str) -> None:
        """Notes what the store holds of a memory before its first change."""
        if agent in self._gone or self._is_changed(agent):
            return
        if self._ready.pop(agent) is None and agent not in self._known_as:
            entry = None if self.store is None else self.store.entry(agent)
            self._known_as[agent] = None if entry is None else entry.checksum

    def __delitem__(self, agent: str) -> None:
        if agent not in self:
            raise KeyError(agent)
        self._note(agent)
        self._changed.pop(agent)
        self._waiting.remove(agent)
        self._gone.add(agent)

    def __contains__(self, agent: object) -> bool:
        if self._is_changed(agent):
            return True
        if agent in self._gone or self.store is None:
            return False
        return self.store.entry(str(agent)) is not None

    def _is_changed(self, agent: object) -> bool:
        return agent in self._changed or agent in self._waiting.rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> list[str]:
        """Returns all agents, sorted by name."""
        there = () if self.store is None else (agent for agent, _ in self.store.entries() if agent not in self._gone)
        return sorted({*self.changed, *there})

    def __len__(self) -> int:
        if self.store is None:
            return len(self.changed)
        new = sum(self.store.entry(agent) is None for agent in self.changed)
        return len(self.store) + new - len(self._removed)

    @property
    def _removed(self) -> list[str]:
        """The agents that are still in the store and are to be removed from it."""
        return [a for a in self._gone if self._known_as.get(a) is not None and not self._is_changed(a)]

    # ---------------------------------------------------------------- without reading memories

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yields all agents with their rows, sorted by name; the rows lack their bytes."""
        return ((agent, row) for agent in self.names() if (row := self.glance(agent)) is not None)

    def glance(self, agent: str) -> Row | None:
        """Returns an agent's row without its bytes, and without scoring trips; None if the agent is unknown."""
        with self._lock:
            if agent in self._changed:
                return self.codec.glance(self._changed[agent])
            if agent in self._waiting.rows:
                return self._waiting.rows[agent]
            entry = None if self.store is None or agent in self._gone else self.store.entry(agent)
            return None if entry is None else entry.row()

    def zone(self, agent: str) -> Zone | None:
        """Returns the time zone in which an agent lives; None if it is not known."""
        row = self.glance(agent)
        return Zone.of(row.zone) if row is not None and row.zone else None

    def with_waiting_trips(self) -> list[str]:
        """Returns the agents with flagged trips that wait for a person."""
        entries = () if self.store is None else self.store.entries()
        there = {agent for agent, entry in entries if entry.waiting} - self._gone - self.changed
        return sorted(there.union(a for a in self.changed if (row := self.glance(a)) is not None and row.waiting))

    # ---------------------------------------------------------------- changes

    @property
    def changed(self) -> set[str]:
        """The agents whose memories were changed or added since the last save."""
        return {*self._changed, *self._waiting.rows}

    def changes(self, *, measured: bool = True) -> Iterator[tuple[str, Row | None, bytes | None]]:
        """Yields what is to be written: agent, row (None if it was removed), and the checksum that it had before.

        If ``measured`` is False, memories that were not measured yet are written as they are.
        """
        for agent in self._removed:
            yield agent, None, self._known_as[agent]
        for agent in sorted(self.changed):
            memory = self[agent] if measured else self.peek(agent)
            assert memory is not None
            yield agent, self.codec.row(memory), self._known_as.get(agent)

    def everybody(self) -> Iterator[tuple[str, Row]]:
        """Yields all rows, sorted by name; unchanged ones as the store has them."""
        changed = self.changed
        for agent in self.names():
            yield agent, self.codec.row(self[agent]) if agent in changed else self._stored_row(agent)

    def _stored_row(self, agent: str) -> Row:
        assert self.store is not None
        found = self.store.read(agent)
        if found is None:
            raise ModelFileError(
                f"agent {agent!r} is gone: another process has changed the file",
                place=self.store.name,
                remedy="load the model again",
            )
        data, entry = found
        if entry.version != self.store.version:
            return self.codec.row(self[agent])
        return entry.row(data)

    def saved(self, store: Store) -> None:
        """Notes that all changes were written to ``store``, which holds the memories from now on."""
        if store is not self.store:
            self.store = store
            self.discard()
            return
        changed, known_as = self._changed, self._known_as
        self._clear()
        # What was read from the store or written to it need not be read again.
        self._known_as = {agent: known_as[agent] for agent in self._ready}
        for agent, memory in changed.items():
            entry = store.entry(agent)
            if entry is not None:
                self._known_as[agent] = entry.checksum
                self._keep_ready(agent, memory)


class _Held(dict[str, AgentMemory]):
    """Maps agents to memories, the last one set at the end, and counts the bytes that they take."""

    nbytes = 0

    def __setitem__(self, agent: str, memory: AgentMemory) -> None:
        self.pop(agent)
        super().__setitem__(agent, memory)
        self.nbytes += memory.nbytes

    def pop(self, agent: str) -> AgentMemory | None:  # type: ignore[override]
        """Takes a memory out and returns it; None if it is not there."""
        memory = super().pop(agent, None)
        self.nbytes -= 0 if memory is None else memory.nbytes
        return memory


class _Waiting:
    """Changed memories in a temporary file, which vanishes with the process."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}  # their blobs are on the disk

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode=OFF", "synchronous=OFF", "temp_store=FILE", "cache_size=-8192"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("CREATE TABLE memories (name TEXT PRIMARY KEY, data BLOB) WITHOUT ROWID")
        return connection

    def put(self, memories: Iterable[tuple[str, Row]]) -> None:
        """Writes memories; replaces those of the same names."""
        self._connection.execute("BEGIN")
        for agent, row in memories:
            self._connection.execute("INSERT OR REPLACE INTO memories VALUES (?, ?)", (agent, row.data))
            self.rows[agent] = row._replace(data=b"")
        self._connection.execute("COMMIT")

    def read(self, agent: str) -> bytes:
        """Reads the bytes of a memory."""
        (data,) = self._connection.execute("SELECT data FROM memories WHERE name = ?", (agent,)).fetchone()
        return bytes(data)

    def remove(self, agent: str) -> None:
        """Removes a memory."""
        if self.rows.pop(agent, None) is not None:
            self._connection.execute("DELETE FROM memories WHERE name = ?", (agent,))
