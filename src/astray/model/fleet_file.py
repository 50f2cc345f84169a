"""A fleet's file: an SQLite database with one row an agent, opened lazily and changed in transactions.

Three tables. ``shared`` holds what all agents share, ``agents`` a blob an agent, and ``directory`` who there is: agents
by a hash of their names in :data:`SHARDS` rows, each with the number and the checksum of its blob. Nobody is found but
through the directory, and every row of ``shared`` and ``directory`` has a checksum over its place and its blob. So a
damaged page is either refused by SQLite, or a checksum tells, also where an agent seems not to be there. The checksums
have no key: they tell accidents, not intent.

Whoever writes holds SQLite's lock; a second one waits, and is then refused. A process that was killed leaves a journal,
and the next one that opens the file takes its half-written changes back.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

import numpy as np

from astray.core import atomic
from astray.core.errors import InUseError, ModelFileError, Place
from astray.model.compact import TEXTS, as_texts, pack_arrays, texts, unpack_arrays
from astray.model.container import FilePath, damaged, not_saved, not_whole, refuse_folder, too_new
from astray.model.fleet_store import Entry, Row

VERSION = 6  # of the format; up to 5 a fleet was one safetensors file
APPLICATION = 0x61737472  # "astr"
OLDEST_SQLITE = (3, 37)  # the first with strict tables
SHARDS = 256  # rows of the directory
PAGE_BYTES = 2048  # most agents have some kilobytes
CACHE_KB = 16_384  # of pages that a connection holds
LISTED = 200_000  # agents of the directory that are held ready
SCHEMA = (
    "CREATE TABLE shared (part INTEGER PRIMARY KEY, checksum BLOB NOT NULL, data BLOB NOT NULL) STRICT",
    "CREATE TABLE directory (shard INTEGER PRIMARY KEY, agents INTEGER NOT NULL, checksum BLOB NOT NULL, "
    "data BLOB NOT NULL) STRICT",
    "CREATE TABLE agents (number INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT",
)
READ_ONLY, BUSY, NOT_A_DATABASE = 8, (5, 6), 26  # SQLite's codes of errors


_ENTRY = (np.int64, np.uint8, np.uint32, np.float64, np.float64, np.uint8)
_DIRECTORY = (np.uint32, *_ENTRY, *TEXTS)


def checksum(place: str, data: bytes) -> bytes:
    """What tells whether a blob is the one that was written to this place."""
    digest = hashlib.blake2b(place.encode(), digest_size=16)
    digest.update(b"\0")
    digest.update(data)
    return digest.digest()


def _matches(place: str, data: object, told: object) -> bool:
    """Whether a blob is what was written to this place; what a damaged row holds may not even be a blob."""
    return isinstance(data, bytes) and checksum(place, data) == told


def shard_of(agent: str) -> int:
    """The row of the directory in which an agent stands."""
    return hashlib.blake2b(agent.encode(), digest_size=1).digest()[0]


def _pack_shard(entries: Mapping[str, Entry]) -> bytes:
    names = sorted(entries)
    rows = [entries[name] for name in names]
    lengths, letters = texts(names)
    # The names stand as they are: who looks for somebody in the file finds a name, or it is not there.
    return (
        len(letters).to_bytes(4, "little")
        + letters.tobytes()
        + pack_arrays(
            [
                lengths,
                np.array([row.number for row in rows], np.int64),
                np.frombuffer(b"".join(row.checksum for row in rows), np.uint8),
                np.array([row.trips for row in rows], np.uint32),
                np.array([row.first for row in rows], np.float64),
                np.array([row.last for row in rows], np.float64),
                np.array([row.waiting for row in rows], np.uint8),
                *texts(row.zone for row in rows),
            ]
        )
    )


def _unpack_shard(data: bytes) -> dict[str, Entry]:
    end = 4 + int.from_bytes(data[:4], "little")
    lengths, number, sums, trips, first, last, waiting, *zone = unpack_arrays(data[end:], _DIRECTORY)
    names = as_texts([lengths, np.frombuffer(data[4:end], np.uint8)])
    n, whole = len(names), sums.tobytes()
    if {len(a) for a in (number, trips, first, last, waiting)} != {n} or len(whole) != 16 * n or len(set(names)) < n:
        raise ValueError("its directory does not fit together")
    zones = as_texts(zone, n)
    columns = zip(number.tolist(), trips.tolist(), first.tolist(), last.tolist(), waiting.tolist(), zones, strict=True)
    return {
        name: Entry(row[0], whole[16 * i : 16 * i + 16], row[1], row[2], row[3], bool(row[4]), row[5])
        for i, (name, row) in enumerate(zip(names, columns, strict=True))
    }


def _entry(agent: str, number: int, row: Row) -> Entry:
    return Entry(number, checksum(f"agent {number} {agent}", row.data), *row[1:])


class FleetFile:
    """An open fleet's file, for reading; :meth:`changing` changes it. May be used by several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._shards: OrderedDict[int, dict[str, Entry]] = OrderedDict()
        self._seen = -1  # SQLite's number for the state of the file in which the shards were read
        self._process = -1
        self._connection: sqlite3.Connection
        self._connect()

    @classmethod
    def open(cls, path: FilePath) -> FleetFile | None:
        """Open a file, and check that it is what astray writes; None if it is no SQLite database at all."""
        source = Path(path)
        if not source.is_file() or source.stat().st_size == 0:
            return None
        try:
            return cls(source.resolve())
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) == NOT_A_DATABASE:
                return None
            raise _refusal(source, error) from error

    def _connect(self) -> None:
        """A connection of this process: one that a fork has copied must not be used."""
        self._process = os.getpid()
        self._status = self.path.stat()
        # Only who may write can take back what a killed process has left half-written.
        mode = "rw" if os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK) else "ro"
        address = f"file:{quote(str(self.path))}?mode={mode}"
        self._connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        ask = self._connection.execute
        for setting in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", f"cache_size=-{CACHE_KB}"):
            ask(f"PRAGMA {setting}")
        ask(f"PRAGMA busy_timeout={round(1000 * atomic.PATIENCE)}")
        # What was deleted is overwritten; a commit is on the disk, with its folder, when it is said to be done.
        for setting in ("secure_delete=ON", "synchronous=EXTRA", "temp_store=FILE"):
            ask(f"PRAGMA {setting}")
        tables = ask("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid").fetchall()
        if ask("PRAGMA application_id").fetchone() != (APPLICATION,):
            raise self.wrong("an SQLite database, but not a model of astray")
        (version,) = ask("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise too_new(self.path, version, VERSION)
        if version != VERSION or tables != [("table", name, name, sql) for name, sql in _tables()]:
            raise self.wrong("its tables are not those that astray makes")
        if ask("PRAGMA journal_mode").fetchone() != ("delete",):
            raise self.wrong("it keeps its journal in another way than astray does")

    @property
    def name(self) -> str:
        """What to call it in messages: its path."""
        return str(self.path)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def wrong(self, what: str) -> ModelFileError:
        """An error that says what is wrong with this file."""
        return damaged(self.path, what)

    def is_at(self, path: FilePath) -> bool:
        """Whether this open file is the one that has this name now."""
        other = Path(path)
        return other.exists() and os.path.samestat(self._status, other.stat())

    # ---------------------------------------------------------------- reading

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._process != os.getpid():
                self._connect()
            try:
                yield self._connection
            except sqlite3.Error as error:
                raise _refusal(self.path, error) from error

    def shared(self, part: int) -> bytes:
        """What all agents share: one of :data:`PARTS`."""
        with self._reading() as connection:
            found = connection.execute("SELECT checksum, data FROM shared WHERE part = ?", (part,)).fetchone()
        if found is None or not _matches(f"shared {part}", found[1], found[0]):
            raise self.wrong("what all agents share does not match its checksum")
        return bytes(found[1])

    def shard(self, number: int) -> dict[str, Entry]:
        """A row of the directory."""
        with self._reading() as connection:
            (state,) = connection.execute("PRAGMA data_version").fetchone()
            if state != self._seen:  # another process has written
                self._shards.clear()
                self._seen = state
            if number in self._shards:
                self._shards.move_to_end(number)
                return self._shards[number]
            asked = "SELECT agents, checksum, data FROM directory WHERE shard = ?"
            found = connection.execute(asked, (number,)).fetchone()
            if found is None or not _matches(f"directory {number} {found[0]}", found[2], found[1]):
                raise self.wrong("its directory does not match its checksum")
            try:
                entries = _unpack_shard(found[2])
            except (ValueError, OverflowError) as error:
                raise self.wrong(f"its parts do not fit together ({error})") from error
            if len(entries) != found[0] or any(shard_of(name) != number for name in entries):
                raise self.wrong("its directory does not fit together")
            self._shards[number] = entries
            while len(self._shards) > 1 and sum(map(len, self._shards.values())) > LISTED:
                self._shards.popitem(last=False)
            return entries

    def entry(self, agent: str) -> Entry | None:
        """What the directory says of an agent; None if it is not there."""
        return self.shard(shard_of(agent)).get(agent)

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """All agents, in no order."""
        for number in range(SHARDS):
            yield from self.shard(number).items()

    def __len__(self) -> int:
        with self._reading() as connection:
            (found,) = connection.execute("SELECT sum(agents) FROM directory").fetchone()
        if not isinstance(found, int):
            raise self.wrong("its directory does not say how many agents there are")
        return found

    def _blob(self, agent: str, entry: Entry) -> bytes | None:
        """What is known of an agent; None if another process has changed it since the entry was read."""
        with self._reading() as connection:
            found = connection.execute("SELECT data FROM agents WHERE number = ?", (entry.number,)).fetchone()
            if found is not None and _matches(f"agent {entry.number} {agent}", found[0], entry.checksum):
                return bytes(found[0])
            if connection.execute("PRAGMA data_version").fetchone() != (self._seen,):
                return None
        raise self.wrong(f"what is known of agent {agent!r} does not match its checksum")

    def read(self, agent: str) -> tuple[bytes, Entry] | None:
        """What is known of an agent, and its entry; None if it is not there."""
        while (entry := self.entry(agent)) is not None:
            data = self._blob(agent, entry)
            if data is not None:
                return data, entry
        return None

    # ---------------------------------------------------------------- changing

    @contextlib.contextmanager
    def changing(self) -> Iterator[Change]:
        """Change the file, all at once or not at all; nobody else changes it meanwhile.

        Raises
        ------
        InUseError
            If another process does not let go of the file in time; nothing was changed.
        """
        with self._reading() as connection:
            connection.execute(f"PRAGMA busy_timeout={round(1000 * atomic.PATIENCE)}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                change = Change(self, connection)
                yield change
                change.finish()
                connection.execute("COMMIT")
            except BaseException:
                self._shards.clear()
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


class Change:
    """A change of a fleet's file, inside a transaction."""

    def __init__(self, file: FleetFile, connection: sqlite3.Connection) -> None:
        self._file, self._connection = file, connection
        self._touched: dict[int, dict[str, Entry]] = {}
        (most,) = connection.execute("SELECT max(number) FROM agents").fetchone()
        self._next = 1 + (most or 0)

    def share(self, part: int, data: bytes) -> None:
        """Put something in place of what all agents share."""
        self._connection.execute(
            "UPDATE shared SET checksum = ?, data = ? WHERE part = ?", (checksum(f"shared {part}", data), data, part)
        )

    def put(self, agent: str, row: Row | None, before: bytes | None) -> None:
        """Put a row in place of an agent's, or with None take it out; refused unless it has this checksum now.

        ``before`` is None for an agent that is not there.
        """
        number = shard_of(agent)
        entries = self._touched[number] if number in self._touched else self._file.shard(number)
        known = entries.get(agent)
        if (None if known is None else known.checksum) != before:
            raise InUseError(
                f"another process has changed what is known of {agent!r} since this model was opened",
                place=Place(str(self._file.path)),
                remedy="open the model again, and repeat the change",
            )
        self._touched[number] = entries
        if row is None:
            assert known is not None
            self._connection.execute("DELETE FROM agents WHERE number = ?", (known.number,))
            del entries[agent]
            return
        if known is None:
            entry = _entry(agent, self._next, row)
            self._connection.execute("INSERT INTO agents VALUES (?, ?)", (self._next, row.data))
            self._next += 1
        else:
            entry = _entry(agent, known.number, row)
            self._connection.execute("UPDATE agents SET data = ? WHERE number = ?", (row.data, known.number))
        entries[agent] = entry

    def finish(self) -> None:
        """Write the rows of the directory that have changed."""
        for number, entries in sorted(self._touched.items()):
            data = _pack_shard(entries)
            self._connection.execute(
                "UPDATE directory SET agents = ?, checksum = ?, data = ? WHERE shard = ?",
                (len(entries), checksum(f"directory {number} {len(entries)}", data), data, number),
            )


def write(path: FilePath, shared: Mapping[int, bytes], rows: Iterable[tuple[str, Row]]) -> None:
    """Write a fleet's file anew, whole or not at all; equal contents, in the same order, give equal bytes."""
    target = Path(path)
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise ModelFileError("a fleet's file needs SQLite 3.37 or newer", place=target, remedy="use a newer Python")
    refuse_folder(target)
    try:
        _settle(target)
        with atomic.replacing(target) as file:
            _build(Path(file.name), shared, rows)
    except (OSError, sqlite3.Error) as error:
        raise not_saved(target, error) from error


def _build(path: Path, shared: Mapping[int, bytes], rows: Iterable[tuple[str, Row]]) -> None:
    shards: list[dict[str, Entry]] = [{} for _ in range(SHARDS)]
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        # Nobody sees the file before it is whole, so it needs no journal.
        for setting in (f"page_size={PAGE_BYTES}", "journal_mode=OFF", "synchronous=OFF", f"cache_size=-{CACHE_KB}"):
            connection.execute(f"PRAGMA {setting}")
        for _, statement in _tables():
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION}")
        connection.execute(f"PRAGMA user_version={VERSION}")
        connection.execute("BEGIN")
        for part, data in sorted(shared.items()):
            connection.execute("INSERT INTO shared VALUES (?, ?, ?)", (part, checksum(f"shared {part}", data), data))
        for number, (agent, row) in enumerate(rows, start=1):
            connection.execute("INSERT INTO agents VALUES (?, ?)", (number, row.data))
            shards[shard_of(agent)][agent] = _entry(agent, number, row)
        for number, entries in enumerate(shards):
            data = _pack_shard(entries)
            sums = checksum(f"directory {number} {len(entries)}", data)
            connection.execute("INSERT INTO directory VALUES (?, ?, ?, ?)", (number, len(entries), sums, data))
        connection.execute("COMMIT")
    finally:
        connection.close()


def _settle(target: Path) -> None:
    """Let nothing be left beside a file that would be taken for the journal of the one which takes its place."""
    journal = target.resolve().with_name(f"{target.resolve().name}-journal")
    if journal.exists():
        with contextlib.suppress(ModelFileError):
            file = FleetFile.open(target)  # takes back what a killed process has left half-written
            if file is not None:
                file.close()
        journal.unlink(missing_ok=True)


def _tables() -> list[tuple[str, str]]:
    return [(statement.split()[2], statement) for statement in SCHEMA]


def _refusal(path: Path, error: sqlite3.Error) -> ModelFileError | InUseError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in BUSY:
        return InUseError("another process is changing it", place=Place(str(path)), remedy="try again when it is done")
    if code == READ_ONLY:
        return ModelFileError(
            "it may not be written to, or a killed process has left a change half-done, which only a writer can undo",
            place=path,
            remedy="open it as somebody who may write it",
        )
    if code in (10, 13):  # a failing or a full disk
        return not_saved(path, error)
    return not_whole(path, error)
