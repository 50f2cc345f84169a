"""A model file: an SQLite database with the tables of a store, read on demand and changed in transactions.

A writer holds SQLite's lock; a second writer waits, and is refused after a while. A process that was killed leaves a
journal, and the next process that opens the file undoes its half-written changes.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from astray.core import atomic
from astray.core.errors import InUseError, ModelFileError, Place
from astray.model.packing import (
    FilePath,
    check_readable,
    damaged,
    not_a_model,
    not_saved,
    not_whole,
    outdated,
    read,
    refuse_folder,
    too_new,
)
from astray.model.store import SCHEMA, Row, Tables, TablesChange

VERSION = 7  # of the format; 0.2 wrote version 6 of it, and safetensors files
APPLICATION = 0x61737472  # "astr"
OLDEST_SQLITE = (3, 37)  # the first with strict tables
PAGE_BYTES = 2048  # most agents have some kilobytes
CACHE_KB = 16_384  # of pages that a connection holds
MAGIC = b"SQLite format 3\0"
READ_ONLY, BUSY, DISK_FAILED, DISK_FULL, NOT_A_DATABASE = 8, (5, 6), 10, 13, 26  # SQLite's codes of errors


class ModelFile(Tables):
    """An open model file. Several threads may read it at once; :meth:`changing` changes it.

    All threads of a process have one connection; after a fork each process has its own.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(self, 1, str(path))
        self.path = path
        self._lock = threading.RLock()
        self._connect()

    @classmethod
    def open(cls, path: FilePath) -> ModelFile:
        """Opens a model file; raises a ModelFileError for anything else."""
        source = Path(path)
        check_readable(source)
        try:
            if is_database(source):
                return cls(source.resolve())
            if not _may_be_cut_or_packed(source):
                raise not_a_model(source)
        except (OSError, sqlite3.Error) as error:
            raise _refusal(source, error) from error
        other = read(source)
        if other.kind in ("detector", "fleet"):
            raise outdated(source)
        raise not_a_model(source, f"a {other.kind}, not a model")

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._sqlite.close()

    def wrong(self, what: str) -> ModelFileError:
        """Returns an error that says what is wrong with this file."""
        return damaged(self.path, what)

    def is_at(self, path: FilePath) -> bool:
        """Returns True if this open file is the one that has this name now."""
        other = Path(path)
        return other.exists() and os.path.samestat(self._status, other.stat())

    @contextlib.contextmanager
    def changing(self) -> Iterator[TablesChange]:
        """Changes the file, all at once or not at all; other threads and processes wait meanwhile.

        Raises
        ------
        InUseError
            If another process does not release the file in time; nothing was changed.
        """
        with self._connected() as connection:
            connection.execute(f"PRAGMA busy_timeout={round(1000 * atomic.PATIENCE)}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                with super().changing() as change:
                    yield change
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    # ---------------------------------------------------------------- its connection

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs a statement and returns all rows of its answer."""
        with self._connected() as connection:
            return connection.execute(statement, values).fetchall()

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Runs a statement and returns the number of rows that it changed."""
        with self._connected() as connection:
            return connection.execute(statement, values).rowcount

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._process != os.getpid():
                self._connect()
            try:
                yield self._sqlite
            except sqlite3.Error as error:
                raise _refusal(self.path, error) from error

    def _connect(self) -> None:
        """Connects this process: a connection that a fork has copied must not be used."""
        self._process = os.getpid()
        self._status = self.path.stat()
        # Only a process that may write can undo what a killed one has left half-written.
        mode = "rw" if os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK) else "ro"
        address = f"file:{quote(str(self.path))}?mode={mode}"
        self._sqlite = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
        try:
            self._prepare()
        except BaseException:
            self._sqlite.close()
            raise

    def _prepare(self) -> None:
        ask = self._sqlite.execute
        for setting in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", f"cache_size=-{CACHE_KB}"):
            ask(f"PRAGMA {setting}")
        ask(f"PRAGMA busy_timeout={round(1000 * atomic.PATIENCE)}")
        # Deleted bytes are overwritten; a commit returns when it is on the disk, with its folder.
        for setting in ("secure_delete=ON", "synchronous=EXTRA", "temp_store=FILE"):
            ask(f"PRAGMA {setting}")
        tables = _tables(self._sqlite)
        if ask("PRAGMA application_id").fetchone() != (APPLICATION,):
            raise damaged(self.path, "an SQLite database, but not a model of astray")
        (version,) = ask("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise too_new(self.path, version, VERSION)
        if version < VERSION:
            raise outdated(self.path)
        if tables != _expected_tables():
            raise damaged(self.path, "its tables are not those that astray makes")
        if ask("PRAGMA journal_mode").fetchone() != ("delete",):
            raise damaged(self.path, "its journal mode is not the one that astray uses")
        (pages,), (page_bytes,) = (ask(f"PRAGMA {size}").fetchone() for size in ("page_count", "page_size"))
        if self.path.stat().st_size < pages * page_bytes:  # SQLite would read missing pages as zeros
            raise not_whole(self.path, "it ends before its last page does")


def is_database(path: Path) -> bool:
    """Returns True if a file begins as SQLite databases do."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _may_be_cut_or_packed(path: Path) -> bool:
    """Returns True if a file may be the first bytes of a database, or a packed file; text never is."""
    with path.open("rb") as file:
        head = file.read(len(MAGIC))
    return MAGIC.startswith(head) or (head[5:8] == bytes(3) and head[8:9] in (b"", b"{"))


def _tables(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid").fetchall()


@cache
def _expected_tables() -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for statement in SCHEMA:
            connection.execute(statement)
        return _tables(connection)


# -------------------------------------------------------------------- writing a whole file


def write_model(path: FilePath, parts: Mapping[str, bytes], rows: Iterable[tuple[str, Row]] = ()) -> None:
    """Writes a new model file, whole or not at all; equal contents in the same order give equal bytes."""
    target = Path(path)
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise ModelFileError("a model file needs SQLite 3.37 or newer", place=target, remedy="use a newer Python")
    refuse_folder(target)
    try:
        _settle(target)
        with atomic.replacing(target) as file:
            _build(Path(file.name), parts, rows)
    except (OSError, sqlite3.Error) as error:
        raise not_saved(target, error) from error


class _NewFile:
    """Writes to a file that nobody sees before it is complete, and that needs no journal."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        return self._connection.execute(statement, values).rowcount


def _build(path: Path, parts: Mapping[str, bytes], rows: Iterable[tuple[str, Row]]) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for setting in (f"page_size={PAGE_BYTES}", "journal_mode=OFF", "synchronous=OFF", f"cache_size=-{CACHE_KB}"):
            connection.execute(f"PRAGMA {setting}")
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION}")
        connection.execute(f"PRAGMA user_version={VERSION}")
        connection.execute("BEGIN")
        with Tables(_NewFile(connection), 1, str(path)).changing() as change:
            for part, data in sorted(parts.items()):
                change.share(part, data)
            for agent, row in rows:
                change.put(agent, row, None)
        connection.execute("COMMIT")


def _settle(target: Path) -> None:
    """Removes an old file's journal, which SQLite would mistake for the new file's."""
    journal = target.resolve().with_name(f"{target.resolve().name}-journal")
    if journal.exists():
        with contextlib.suppress(ModelFileError):
            ModelFile.open(target).close()  # undoes what a killed process has left half-written
        journal.unlink(missing_ok=True)


def _refusal(path: Path, error: Exception) -> ModelFileError | InUseError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in BUSY:
        return InUseError("another process is changing it", place=Place(str(path)), remedy="try again when it is done")
    if code == READ_ONLY:
        return ModelFileError(
            "it may not be written to, or a killed process has left a change half-done, which only a writer can undo",
            place=path,
            remedy="open it as a user who may write it",
        )
    if code in (DISK_FAILED, DISK_FULL):
        return not_saved(path, error)
    return not_whole(path, error)
