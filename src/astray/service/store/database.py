"""A store: connections to one database that hold the tables of the service. One thread writes, any number read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from astray.core.errors import AstrayError
from astray.service.store.schema import FIRST, MIGRATIONS, NEWEST

Row = tuple[Any, ...]


class StoreError(AstrayError, RuntimeError):
    """The store cannot be opened, read or written; what was acknowledged is in it."""


class Connection(ABC):
    """A connection to a database, for one thread at a time. Statements have ``?`` for values."""

    @abstractmethod
    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and give all rows of its answer."""

    @abstractmethod
    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement and give the number of rows that it changed."""

    @abstractmethod
    def many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    def row(self, statement: str, values: Sequence[Any] = ()) -> Row | None:
        """The first row of an answer; None if there is none."""
        found = self.rows(statement, values)
        return found[0] if found else None

    def value(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """The first value of the first row of an answer; None if there is none."""
        found = self.row(statement, values)
        return None if found is None else found[0]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written in the block is there when it ends, or nothing of it if it raises."""
        self.run("BEGIN")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            self._take_back()
            raise

    @abstractmethod
    def _take_back(self) -> None:
        """Roll the open transaction back, if there still is one."""


class Address(NamedTuple):
    """Where a store is: a file, or a URL."""

    file: Path | None
    url: str | None


class Store(ABC):
    """A database that holds the service's tables."""

    kind: str
    address: Address
    writer: Connection  # of the thread that writes

    def reader(self) -> Connection:
        """A new connection that only reads."""
        return open_reader(self.address)

    def revive(self) -> None:  # noqa: B027  (a file is never lost)
        """Make the connection that writes anew, if it was lost."""

    @abstractmethod
    def bytes(self) -> int:
        """How large it is."""

    @abstractmethod
    def scrub(self) -> None:
        """Leave no trace of rows that were deleted; call it between transactions, from the thread that writes."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection that writes, and let another process open the store."""

    def upgrade(self) -> int:
        """Bring the tables up to date; gives how many migrations that took."""
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


def open_store(folder: Path, url: str | None = None) -> Store:
    """The store in a folder, or the one that a URL names (``postgresql://...``); with its tables up to date."""
    from astray.service.store.sqlite import SqliteStore

    if url is None:
        return SqliteStore(folder)
    if url.startswith(("postgresql://", "postgres://")):
        from astray.service.store.postgres import PostgresStore

        return PostgresStore(url)
    raise _unknown(url)


def open_reader(address: Address) -> Connection:
    """A connection to a store that only reads."""
    if address.file is not None:
        from astray.service.store.sqlite import SqliteConnection

        return SqliteConnection(address.file, write=False)
    from astray.service.store.postgres import PostgresConnection

    return PostgresConnection(str(address.url), write=False)


def _unknown(url: str) -> StoreError:
    return StoreError(f"no store is called {url!r:.60}", remedy="give postgresql://user@host/database, or leave it out")
