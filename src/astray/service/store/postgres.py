"""Keeps the store in a PostgreSQL database, in the schema that the URL's ``search_path`` names."""

from __future__ import annotations

import re
from functools import lru_cache

from astray.core.errors import InUseError
from astray.service.store.database import Connection, Store, StoreError
from astray.service.store.schema import OF_AN_AGENT

try:
    import psycopg
except ImportError as _error:
    raise StoreError("PostgreSQL needs a driver", remedy='pip install "astray[postgres]"') from _error

LOCK = 0x61737376  # "assv": the key of the lock that a service holds on its schema
WORDS = {"REAL": "DOUBLE PRECISION", "INTEGER": "BIGINT", "BLOB": "BYTEA"}


@lru_cache(1024)
def translated(statement: str) -> str:
    """Returns a statement in PostgreSQL's words.

    >>> translated("CREATE TABLE a (b REAL, c BLOB) STRICT, WITHOUT ROWID"), translated("SELECT ? WHERE a LIKE '%b'")
    ('CREATE TABLE a (b DOUBLE PRECISION, c BYTEA)', "SELECT %s WHERE a LIKE '%%b'")
    """
    if statement.startswith(("CREATE", "ALTER")):
        statement = re.sub(r"(\) STRICT)?(, WITHOUT ROWID)?$", lambda found: ")" if found[1] else "", statement)
        statement = re.sub(r"\b(REAL|INTEGER|BLOB)\b", lambda found: WORDS[found[1]], statement)
    return statement.replace("%", "%%").replace("?", "%s")


class PostgresConnection(Connection):
    """A connection to a PostgreSQL database."""

    driver_error = psycopg.Error

    def __init__(self, url: str, *, write: bool) -> None:
        try:
            self.driver = psycopg.connect(url, autocommit=True, connect_timeout=10, prepare_threshold=2)
            if not write:
                self.driver.execute("SET default_transaction_read_only = on")
        except psycopg.Error as error:
            raise self.refusal(error) from error

    def in_dialect(self, statement: str) -> str:
        """Returns a statement in PostgreSQL's words."""
        return translated(statement)

    @property
    def lost(self) -> bool:
        """True if the connection to the server was lost."""
        return bool(self.driver.closed or self.driver.broken)

    @property
    def in_transaction(self) -> bool:
        """True if a transaction may be open; the server ends it if the connection is lost."""
        return not self.lost

    @staticmethod
    def refusal(error: psycopg.Error) -> StoreError:
        """Converts an error of PostgreSQL to an error of the store."""
        said = str(error).strip().splitlines()[0] if str(error) else repr(error)
        return StoreError(f"the store refuses ({said})", remedy="look at the server's log")


class PostgresStore(Store):
    """The store in a schema of a PostgreSQL database; only one process at a time can open it."""

    kind = "PostgreSQL"
    address: str
    writer: PostgresConnection

    def __init__(self, url: str) -> None:
        self.address = url
        self._connect()
        try:
            self.upgrade()
        except BaseException:
            self.writer.close()
            raise

    def _connect(self) -> None:
        self.writer = PostgresConnection(self.address, write=True)
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
        """Connects and locks the store again if the connection was lost."""
        if self.writer.lost:
            self.writer.close()
            self._connect()

    def reader(self) -> Connection:
        """Opens a connection that only reads."""
        return PostgresConnection(self.address, write=False)

    def bytes(self) -> int:
        """Returns the size of the tables."""
        asked = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE c.relnamespace = "
        connection = self.reader()
        try:
            return int(connection.value(asked + "current_schema()::regnamespace AND c.relkind = 'r'") or 0)
        finally:
            connection.close()

    def scrub(self) -> None:
        """Rewrites the tables without deleted rows; it cannot clean the server's logs and backups."""
        for table in (*OF_AN_AGENT, "agents", "models", "shards"):
            self.writer.run(f"VACUUM (FULL, ANALYZE) {table}")
            if not self.writer.rows(f"SELECT 1 FROM {table} LIMIT 1"):
                self._forget_statistics(table)

    def _forget_statistics(self, table: str) -> None:
        """Removes the sample values that the server keeps of an emptied table; ANALYZE would leave them."""
        asked = (
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a JOIN pg_stats s ON s.attname = "
            "a.attname WHERE a.attrelid = ?::regclass AND s.schemaname = current_schema() AND s.tablename = ?"
        )
        for column, kind in self.writer.rows(asked, (table, table)):
            # The type stays the same: this rewrites nothing, but drops the statistics of the column.
            self.writer.run(f'ALTER TABLE {table} ALTER COLUMN "{column}" TYPE {kind}')

    def close(self) -> None:
        """Closes the writing connection, so that another process can open the store."""
        self.writer.close()
