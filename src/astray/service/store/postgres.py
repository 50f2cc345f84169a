"""The store in a PostgreSQL database, in the schema that the URL's ``search_path`` names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from astray.core.errors import InUseError
from astray.service.store.database import Address, Connection, Row, Store, StoreError

try:
    import psycopg
except ImportError as _error:
    raise StoreError("PostgreSQL needs a driver", remedy='pip install "astray[postgres]"') from _error

LOCK = 0x61737376  # "assv": the key of the lock that the one service on a schema holds
WORDS = {"REAL": "DOUBLE PRECISION", "INTEGER": "BIGINT", "BLOB": "BYTEA"}


@lru_cache(1024)
def translated(statement: str) -> str:
    """A statement in PostgreSQL's words.

    >>> translated("CREATE TABLE a (b REAL, c BLOB) STRICT, WITHOUT ROWID"), translated("SELECT ? WHERE a LIKE '%b'")
    ('CREATE TABLE a (b DOUBLE PRECISION, c BYTEA)', "SELECT %s WHERE a LIKE '%%b'")
    """
    if statement.startswith("CREATE"):
        statement = re.sub(r"(\) STRICT)?(, WITHOUT ROWID)?$", lambda found: ")" if found[1] else "", statement)
        statement = re.sub(r"\b(REAL|INTEGER|BLOB)\b", lambda found: WORDS[found[1]], statement)
    return statement.replace("%", "%%").replace("?", "%s")


class PostgresConnection(Connection):
    """A connection to a PostgreSQL database."""

    def __init__(self, url: str, *, write: bool) -> None:
        try:
            self._connection = psycopg.connect(url, autocommit=True, connect_timeout=10, prepare_threshold=2)
            if not write:
                self._connection.execute("SET default_transaction_read_only = on")
        except psycopg.Error as error:
            raise _refusal(error) from error

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run a statement and give all rows of its answer."""
        try:
            return self._connection.execute(translated(statement), values or None).fetchall()
        except psycopg.Error as error:
            raise _refusal(error) from error

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement and give the number of rows that it changed."""
        try:
            return self._connection.execute(translated(statement), values or None).rowcount
        except psycopg.Error as error:
            raise _refusal(error) from error

    def many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""
        try:
            with self._connection.cursor() as cursor:
                cursor.executemany(translated(statement), values)
        except psycopg.Error as error:
            raise _refusal(error) from error

    @property
    def lost(self) -> bool:
        """Whether the server is no longer there for it."""
        return self._connection.closed or self._connection.broken

    def _take_back(self) -> None:
        if not self.lost:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close it."""
        self._connection.close()


class PostgresStore(Store):
    """A schema of a PostgreSQL database; one process at a time has it."""

    kind = "PostgreSQL"
    writer: PostgresConnection

    def __init__(self, url: str) -> None:
        self.address = Address(None, url)
        self._connect()
        try:
            self.upgrade()
        except BaseException:
            self.writer.close()
            raise

    def _connect(self) -> None:
        self.writer = PostgresConnection(str(self.address.url), write=True)
        try:
            schema = self.writer.value("SELECT current_schema()")
            if schema is None:
                raise StoreError("the schema of the search_path is not there", remedy="create it first")
            if not self.writer.value("SELECT pg_try_advisory_lock(?, hashtext(?))", (LOCK, schema)):
                raise InUseError("another astray serve has this store", remedy="end it, or name another schema")
        except BaseException:
            self.writer.close()
            raise

    def revive(self) -> None:
        """Connect anew if the connection was lost, and hold the store again."""
        if self.writer.lost:
            self.writer.close()
            self._connect()

    def bytes(self) -> int:
        """How large its tables are."""
        asked = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE c.relnamespace = "
        connection = self.reader()
        try:
            return int(connection.value(asked + "current_schema()::regnamespace AND c.relkind = 'r'") or 0)
        finally:
            connection.close()

    def scrub(self) -> None:
        """Have deleted rows overwritten, and statistics made anew; the server's logs and backups are its operator's."""
        from astray.service.store.schema import OF_AN_AGENT

        for table in (*OF_AN_AGENT, "agents", "models", "shards"):
            self.writer.run(f"VACUUM (FULL, ANALYZE) {table}")
            if not self.writer.rows(f"SELECT 1 FROM {table} LIMIT 1"):
                self._forget_statistics(table)

    def _forget_statistics(self, table: str) -> None:
        """Remove the samples of values that the server keeps of a table: of an empty one it makes no new ones."""
        asked = (
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a JOIN pg_stats s ON s.attname = "
            "a.attname WHERE a.attrelid = ?::regclass AND s.schemaname = current_schema() AND s.tablename = ?"
        )
        for column, kind in self.writer.rows(asked, (table, table)):
            # The type that it has: nothing is rewritten, but what is known of its values goes.
            self.writer.run(f'ALTER TABLE {table} ALTER COLUMN "{column}" TYPE {kind}')

    def close(self) -> None:
        """Close the connection that writes, which lets another process open the store."""
        self.writer.close()


def _refusal(error: psycopg.Error) -> StoreError:
    said = str(error).strip().splitlines()[0] if str(error) else repr(error)
    return StoreError(f"the store refuses ({said})", remedy="look at the server's log")
