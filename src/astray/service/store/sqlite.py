"""Keeps the store in a folder: one SQLite database with a write-ahead log, synced at every commit."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import ExitStack
from pathlib import Path

from astray.core.atomic import alone
from astray.core.errors import DataError, InUseError
from astray.service.store.database import Connection, Store, StoreError

NAME = "astray.db"
APPLICATION = 0x61737376  # "assv": a store of the service
OLDEST = (3, 37)  # the first version with strict tables
CACHE_KB = 32_768
PATIENCE = 5.0  # seconds that a checkpoint waits for readers


class SqliteConnection(Connection):
    """A connection to an SQLite database."""

    driver_error = sqlite3.Error

    def __init__(self, path: Path, *, write: bool) -> None:
        self.driver = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
        settings = ["trusted_schema=OFF", "busy_timeout=10000", f"cache_size=-{CACHE_KB if write else 4096}"]
        settings += ["journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", "temp_store=MEMORY"] if write else []
        settings += [] if write else ["query_only=ON"]
        for setting in settings:
            self.driver.execute(f"PRAGMA {setting}")

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open."""
        return bool(self.driver.in_transaction)

    @staticmethod
    def refusal(error: sqlite3.Error) -> StoreError:
        """Converts an error of SQLite to an error of the store."""
        full = getattr(error, "sqlite_errorname", "") == "SQLITE_FULL" or "disk I/O" in str(error)
        remedy = "make room on the disk; what was acknowledged is stored" if full else ""
        return StoreError(f"the store refuses ({error})", remedy=remedy)


class SqliteStore(Store):
    """The store in a folder; only one process at a time can open it."""

    kind = "SQLite"

    def __init__(self, folder: Path) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise StoreError(
                f"SQLite {sqlite3.sqlite_version} is too old", remedy=f"use Python with {'.'.join(map(str, OLDEST))}"
            )
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = folder / NAME
        self.address = self.path
        with ExitStack() as held:
            try:
                held.enter_context(alone(self.path))
            except InUseError as error:
                raise InUseError(
                    "another astray serve has this store", place=folder, remedy="end it, or name another folder"
                ) from error
            new = not self.path.exists()
            if new:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))  # only its owner may read it
            self.writer = self._opened(new)
            held.callback(self.writer.close)
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

    def reader(self) -> Connection:
        """Opens a connection that only reads."""
        return SqliteConnection(self.path, write=False)

    def bytes(self) -> int:
        """Returns the size of the database and of its write-ahead log."""
        files = (self.path, self.path.with_name(f"{NAME}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def scrub(self) -> None:
        """Writes the write-ahead log back and truncates it; SQLite has overwritten deleted rows in place."""
        until = time.monotonic() + PATIENCE
        while True:
            blocked = self.writer.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
            if not blocked:
                return
            if time.monotonic() > until:
                raise StoreError("a reader holds on to old pages of the store", remedy="try again")
            time.sleep(0.02)

    def close(self) -> None:
        """Closes the writing connection, so that another process can open the store."""
        self._held.close()


def copy_database(source: Path, target: Path) -> None:
    """Copies a database, as it is at one moment, to a new file; others may keep using the database."""
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
        raise SqliteConnection.refusal(error) from error
    finally:
        temporary.unlink(missing_ok=True)
