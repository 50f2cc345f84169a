"""The store in a folder: one SQLite database, written ahead and synced at every commit."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from astray.core.atomic import alone
from astray.core.errors import DataError, InUseError
from astray.service.store.database import Address, Connection, Row, Store, StoreError

NAME = "astray.db"
APPLICATION = 0x61737376  # "assv": a store of the service
OLDEST = (3, 37)  # the first with strict tables
CACHE_KB = 32_768
PATIENCE = 5.0  # seconds that a checkpoint waits for readers


class SqliteConnection(Connection):
    """A connection to an SQLite database."""

    def __init__(self, path: Path, *, write: bool) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
        settings = ["trusted_schema=OFF", "busy_timeout=10000", f"cache_size=-{CACHE_KB if write else 4096}"]
        settings += ["journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", "temp_store=MEMORY"] if write else []
        settings += [] if write else ["query_only=ON"]
        for setting in settings:
            self._connection.execute(f"PRAGMA {setting}")

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and give all rows of its answer."""
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise _refusal(error) from error

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement and give the number of rows that it changed."""
        try:
            return self._connection.execute(statement, values).rowcount
        except sqlite3.Error as error:
            raise _refusal(error) from error

    def many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""
        try:
            self._connection.executemany(statement, values)
        except sqlite3.Error as error:
            raise _refusal(error) from error

    def _take_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close it."""
        self._connection.close()


class SqliteStore(Store):
    """The database in a folder; one process at a time has it."""

    kind = "SQLite"

    def __init__(self, folder: Path) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise StoreError(
                f"SQLite {sqlite3.sqlite_version} is too old", remedy=f"use Python with {'.'.join(map(str, OLDEST))}"
            )
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = folder / NAME
        self.address = Address(self.path, None)
        with ExitStack() as held:
            try:
                held.enter_context(alone(self.path))
            except InUseError as error:
                raise InUseError(
                    "another astray serve has this store", place=folder, remedy="end it, or name another folder"
                ) from error
            new = not self.path.exists()
            if new:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))  # nobody else's to read
            self.writer = self._opened(new)
            held.callback(lambda: self.writer.close())
            self.upgrade()
            self._held = held.pop_all()

    def _opened(self, new: bool) -> SqliteConnection:
        try:
            writer = SqliteConnection(self.path, write=True)
            if new or not writer.rows("SELECT 1 FROM sqlite_master"):
                writer.run(f"PRAGMA application_id={APPLICATION}")
            elif writer.value("PRAGMA application_id") != APPLICATION:
                writer.close()
                raise DataError("not a store of astray serve", place=self.path, remedy="name another folder")
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"not a store of astray serve ({error})",
                place=self.path,
                remedy="name another folder, or restore a backup",
            ) from error
        return writer

    def bytes(self) -> int:
        """How large it is, with what was written ahead."""
        files = (self.path, self.path.with_name(f"{NAME}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def scrub(self) -> None:
        """Write back what was written ahead, and truncate that file: deleted rows were overwritten in place."""
        until = time.monotonic() + PATIENCE
        while True:
            blocked = self.writer.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
            if not blocked:
                return
            if time.monotonic() > until:
                raise StoreError("a reader holds on to old pages of the store", remedy="try again")
            time.sleep(0.02)

    def close(self) -> None:
        """Close the connection that writes, and let another process open the store."""
        self._held.close()


def copy_database(source: Path, target: Path) -> None:
    """Copy a database, as it is at one moment, to a file that is not there yet; others may use it meanwhile."""
    if not source.is_file():
        raise DataError("there is no store", place=source, remedy="name the folder that astray serve was started on")
    if target.exists():
        raise DataError("the file is there already", place=target, remedy="name a new file")
    temporary = target.with_name(f".{target.name}.part")
    temporary.unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        whole, copy = sqlite3.connect(source), sqlite3.connect(temporary)
        try:
            whole.execute("PRAGMA busy_timeout=10000")
            whole.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
            found = copy.execute("PRAGMA integrity_check").fetchone()
            if found != ("ok",):
                raise StoreError(f"the copy is damaged ({found[0]})", remedy="look at the disk")
        finally:
            whole.close()
            copy.close()
        os.replace(temporary, target)
    except sqlite3.Error as error:
        raise _refusal(error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _refusal(error: sqlite3.Error) -> StoreError:
    full = getattr(error, "sqlite_errorname", "") == "SQLITE_FULL" or "disk I/O" in str(error)
    remedy = "make room on the disk; what was acknowledged is stored" if full else ""
    return StoreError(f"the store refuses ({error})", remedy=remedy)
