"""The members of a fleet by name: read from where it is kept when asked for, held until they are saved if changed."""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import replace
from functools import cached_property

from astray.core.errors import ModelFileError
from astray.core.zones import Zone
from astray.model.agents import Codec, Member
from astray.model.store import Entry, Row, Store

HELD_BYTES = 256 << 20  # of members that were changed; what is more waits on the disk until it is saved
READY_BYTES = 32 << 20  # of members that were read, and may be asked for again

Measure = Callable[[str, Member], Member]


class Members(MutableMapping[str, Member]):
    """Agent to what is known of it.

    Only who is asked for is read. What is changed is held apart from the file until :meth:`save`, the most of it in
    memory, and what is more in a temporary file without a name.

    Parameters
    ----------
    codec
        How members are written and read.
    measure
        Gives a member whose trips were counted the scores of its trips; it is asked when the member is.
    store
        Where they are kept; None if they are nowhere yet.
    """

    def __init__(self, codec: Codec, measure: Measure, store: Store | None = None) -> None:
        self.codec, self.measure, self.store = codec, measure, store
        self._lock = threading.RLock()  # several threads may score
        self._ready: OrderedDict[str, Member] = OrderedDict()
        self._ready_bytes = 0
        self._clear()

    def _clear(self) -> None:
        self._changed: OrderedDict[str, Member] = OrderedDict()
        self._changed_bytes = 0
        self._waiting = _Waiting()
        self._gone: set[str] = set()
        self._known_as: dict[str, bytes | None] = {}  # the checksums of what was changed, before that

    # ---------------------------------------------------------------- a mapping

    def __getitem__(self, agent: str) -> Member:
        with self._lock:
            found = self.counted(agent)
            if found is None:
                raise KeyError(agent)
            if not found.measured:
                found = self.measure(agent, found)
                if agent in self._changed:
                    self._changed[agent] = found
        return found

    def counted(self, agent: str) -> Member | None:
        """A member whose trips may still have to be measured; None if there is none of this name."""
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
            self._ready.move_to_end(agent)
            return self._ready[agent]
        found = self.store.read(agent)
        if found is None:
            return None
        member = self._as_of_this_model(self._unpacked(agent, found[0]), found[1])
        self._known_as[agent] = found[1].checksum
        self._keep_ready(agent, member)
        return member

    def _as_of_this_model(self, member: Member, entry: Entry) -> Member:
        """Returns a member that must be measured again, if the reward of another model gave its trips their scores."""
        is_current = self.store is None or entry.version == self.store.version
        return member if is_current else replace(member, measured=False)

    def _keep_ready(self, agent: str, member: Member) -> None:
        self._ready_bytes += member.nbytes
        if agent in self._ready:
            self._ready_bytes -= self._ready.pop(agent).nbytes
        self._ready[agent] = member
        while self._ready_bytes > READY_BYTES and len(self._ready) > 1:
            self._ready_bytes -= self._ready.popitem(last=False)[1].nbytes

    def _unpacked(self, agent: str, data: bytes) -> Member:
        try:
            return self.codec.unpack(agent, data)
        except (LookupError, TypeError, ValueError) as error:
            assert self.store is not None
            raise self.store.wrong(f"what is known of agent {agent!r} does not fit together ({error})") from error

    def __setitem__(self, agent: str, member: Member) -> None:
        self._note(agent)
        if agent in self._changed:
            self._changed_bytes -= self._changed.pop(agent).nbytes
        self._changed[agent] = member
        self._changed_bytes += member.nbytes
        if self._changed_bytes > HELD_BYTES:
            self._put_aside()

    def _note(self, agent: str) -> None:
        """Remember what the file held when a member is changed for the first time."""
        if agent in self._gone or self._is_changed(agent):
            return
        member = self._ready.pop(agent, None)
        if member is not None:
            self._ready_bytes -= member.nbytes
        elif agent not in self._known_as:
            entry = None if self.store is None else self.store.entry(agent)
            self._known_as[agent] = None if entry is None else entry.checksum

    def _put_aside(self) -> None:
        """Let the members that were changed wait on the disk."""
        self._waiting.put((agent, self.codec.row(member)) for agent, member in self._changed.items())
        self._changed.clear()
        self._changed_bytes = 0

    def __delitem__(self, agent: str) -> None:
        if agent not in self:
            raise KeyError(agent)
        self._note(agent)
        if agent in self._changed:
            self._changed_bytes -= self._changed.pop(agent).nbytes
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
        """All agents by name, in the order of their names."""
        there = () if self.store is None else (agent for agent, _ in self.store.entries() if agent not in self._gone)
        return sorted({*self.changed, *there})

    def __len__(self) -> int:
        if self.store is None:
            return len(self.changed)
        new = sum(self.store.entry(agent) is None for agent in self.changed)
        return len(self.store) + new - len(self._removed)

    @property
    def _removed(self) -> list[str]:
        """Who is in the file, and is no longer to be."""
        return [a for a in self._gone if self._known_as.get(a) is not None and not self._is_changed(a)]

    # ---------------------------------------------------------------- at a glance

    def rows(self) -> Iterator[tuple[str, Row]]:
        """All agents with what the directory says of them, in the order of their names; blobs are left empty."""
        return ((agent, row) for agent in self.names() if (row := self.glance(agent)) is not None)

    def glance(self, agent: str) -> Row | None:
        """What the directory says of an agent, its blob left empty; nothing is measured for it. None if it is gone."""
        with self._lock:
            if agent in self._changed:
                return self.codec.glance(self._changed[agent])
            if agent in self._waiting.rows:
                return self._waiting.rows[agent]
            entry = None if self.store is None or agent in self._gone else self.store.entry(agent)
            return None if entry is None else entry.row()

    def zone(self, agent: str) -> Zone | None:
        """By which clocks an agent lives; None if it is not known."""
        row = self.glance(agent)
        return Zone.of(row.zone) if row is not None and row.zone else None

    def with_waiting_trips(self) -> list[str]:
        """The agents of whom flagged trips wait."""
        entries = () if self.store is None else self.store.entries()
        there = {agent for agent, entry in entries if entry.waiting} - self._gone - self.changed
        return sorted(there.union(a for a in self.changed if (row := self.glance(a)) is not None and row.waiting))

    # ---------------------------------------------------------------- what is changed

    @property
    def changed(self) -> set[str]:
        """The agents that were changed since the file was read, and are still there."""
        return {*self._changed, *self._waiting.rows}

    def changes(self, *, measured: bool = True) -> Iterator[tuple[str, Row | None, bytes | None]]:
        """What is to be written: agents with their rows, or None for who is gone, and the checksums they had.

        Without ``measured`` those whose trips are still to be measured stay so.
        """
        for agent in self._removed:
            yield agent, None, self._known_as[agent]
        for agent in sorted(self.changed):
            member = self[agent] if measured else self.counted(agent)
            assert member is not None
            yield agent, self.codec.row(member), self._known_as.get(agent)

    def discard(self) -> None:
        """Be as the store is: what was changed is lost."""
        self._ready.clear()
        self._ready_bytes = 0
        self._clear()

    def everybody(self) -> Iterator[tuple[str, Row]]:
        """All rows, in the order of the names; those that were not changed as the file has them."""
        changed = self.changed
        for agent in self.names():
            yield agent, self.codec.row(self[agent]) if agent in changed else self._as_it_is(agent)

    def _as_it_is(self, agent: str) -> Row:
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
        """Go on from a store that holds all this."""
        if store is not self.store:
            self.store = store
            self.discard()
            return
        changed, known_as = self._changed, self._known_as
        self._clear()
        # Who was read from it, or written to it, need not be read again.
        self._known_as = {agent: known_as[agent] for agent in self._ready}
        for agent, member in changed.items():
            entry = store.entry(agent)
            if entry is not None:
                self._known_as[agent] = entry.checksum
                self._keep_ready(agent, member)


class _Waiting:
    """Members that wait to be saved, in a temporary file that is gone when the process is."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}  # their blobs are on the disk

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode=OFF", "synchronous=OFF", "temp_store=FILE", "cache_size=-8192"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("CREATE TABLE members (name TEXT PRIMARY KEY, data BLOB) WITHOUT ROWID")
        return connection

    def put(self, members: Iterable[tuple[str, Row]]) -> None:
        """Keep some members; those of the same names are replaced."""
        self._connection.execute("BEGIN")
        for agent, row in members:
            self._connection.execute("INSERT OR REPLACE INTO members VALUES (?, ?)", (agent, row.data))
            self.rows[agent] = row._replace(data=b"")
        self._connection.execute("COMMIT")

    def read(self, agent: str) -> bytes:
        """What is known of an agent."""
        (data,) = self._connection.execute("SELECT data FROM members WHERE name = ?", (agent,)).fetchone()
        return bytes(data)

    def remove(self, agent: str) -> None:
        """Keep an agent no longer."""
        if self.rows.pop(agent, None) is not None:
            self._connection.execute("DELETE FROM members WHERE name = ?", (agent,))
