"""Connects to the database with the service's tables. One thread writes, any number read."""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from astray.core.errors import AstrayError
from astray.service.store.schema import FIRST, MIGRATIONS, NEWEST

P = ParamSpec("P")
T = TypeVar("T")
Row = tuple[Any, ...]
Address = Path | str  # of a store: a file, or the URL of a server

READERS = 4  # connections of a pool
READER_PATIENCE = 20.0  # seconds that a thread waits for one of them


class StoreError(AstrayError, RuntimeError):
    """Raised if the store cannot be opened, read or written; it still holds what was acknowledged."""


class Connection(ABC):
    """A connection to a database, for one thread at a time. Statements have ``?`` for values.

    A subclass sets ``driver``, the connection of its library, and ``driver_error``, which that library raises.
    """

    driver: Any
    driver_error: type[Exception]

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Runs a statement and returns all rows of its answer."""
        try:
            found: list[Row] = self.driver.execute(self.in_dialect(statement), values).fetchall()
        except self.driver_error as error:
            raise self.refusal(error) from error
        return found

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Runs a statement and returns the number of rows that it changed."""
        try:
            return int(self.driver.execute(self.in_dialect(statement), values).rowcount)
        except self.driver_error as error:
            raise self.refusal(error) from error

    def many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Runs a statement once for each row of values."""
        try:
            self.driver.cursor().executemany(self.in_dialect(statement), values)
        except self.driver_error as error:
            raise self.refusal(error) from error

    def row(self, statement: str, values: Sequence[Any] = ()) -> Row | None:
        """Returns the first row of an answer; None if it has none."""
        found = self.rows(statement, values)
        return found[0] if found else None

    def value(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Returns the first value of the first row of an answer; None if it has no row."""
        found = self.row(statement, values)
        return None if found is None else found[0]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commits what the block writes when the block ends; writes nothing if the block raises."""
        self.run("BEGIN")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            if self.in_transaction:
                self.driver.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Closes the connection."""
        self.driver.close()

    def in_dialect(self, statement: str) -> str:
        """Translates a statement from SQLite's dialect to this database's."""
        return statement

    @property
    @abstractmethod
    def in_transaction(self) -> bool:
        """True if a transaction may be open, which must be rolled back after a failure."""

    @staticmethod
    @abstractmethod
    def refusal(error: Any) -> StoreError:
        """Converts an error of the driver to an error of the store."""


class Store(ABC):
    """A database that holds the service's tables."""

    kind: str
    address: Address
    writer: Connection  # for the one thread that writes

    @abstractmethod
    def reader(self) -> Connection:
        """Opens a connection that only reads."""

    def revive(self) -> None:  # noqa: B027  (a file is never lost)
        """Opens the writing connection again if it was lost."""

    @abstractmethod
    def bytes(self) -> int:
        """Returns the size of the store."""

    @abstractmethod
    def scrub(self) -> None:
        """Overwrites deleted rows, so that no trace stays; the writing thread calls it between transactions."""

    @abstractmethod
    def close(self) -> None:
        """Closes the writing connection, so that another process can open the store."""

    def upgrade(self) -> int:
        """Runs the migrations that the store lacks, and returns their number."""
        writer = self.writer
        with writer.transaction():
            writer.run("CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY)")
            done = int(writer.value("SELECT coalesce(max(number), 0) FROM migrations"))
            if 0 < done < FIRST:
                raise StoreError(
                    "the store was written by astray 0.2, whose models this version cannot read",
                    remedy="fit the model again with astray fit, and serve it from a new store",
                )
            if done > NEWEST:
                raise StoreError(
                    f"the store was written by a newer astray (migration {done}, this one knows {NEWEST})",
                    remedy="upgrade astray",
                )
            missing = range(max(done + 1, FIRST), NEWEST + 1)
            for number in missing:
                for statement in MIGRATIONS[number - FIRST]:
                    writer.run(statement)
                writer.run("INSERT INTO migrations VALUES (?)", (number,))
        return len(missing)


class ReadPool:
    """Lends up to four connections that only read, each to one thread at a time; opens them when they are needed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._free: queue.LifoQueue[Connection | None] = queue.LifoQueue()
        for _ in range(READERS):
            self._free.put(None)

    def use(self, look: Callable[Concatenate[Connection, P], T], *values: P.args, **named: P.kwargs) -> T:
        """Calls a function with a connection, and returns what it returns."""
        try:
            connection = self._free.get(timeout=READER_PATIENCE)
        except queue.Empty:
            raise StoreError("too many requests read at once", remedy="ask again") from None
        try:
            if connection is None:
                connection = self._store.reader()
            return look(connection, *values, **named)
        except StoreError:
            if connection is not None:
                connection.close()
            connection = None  # so that the next thread opens a new one
            raise
        finally:
            self._free.put(connection)
