"""Opens a store: the SQLite database in a folder, or a PostgreSQL server. PostgreSQL's library loads when asked for."""

from __future__ import annotations

from pathlib import Path

from astray.service.store.database import Address, Connection, Store, StoreError
from astray.service.store.sqlite import SqliteConnection, SqliteStore


def open_store(folder: Path, url: str | None = None) -> Store:
    """Opens the store in a folder, or the one at a URL (``postgresql://...``), and brings its tables up to date."""
    if url is None:
        return SqliteStore(folder)
    if url.startswith(("postgresql://", "postgres://")):
        from astray.service.store.postgres import PostgresStore

        return PostgresStore(url)
    raise StoreError(f"no store is called {url!r:.60}", remedy="give postgresql://user@host/database, or leave it out")


def connect(address: Address, *, write: bool) -> Connection:
    """Opens a further connection to a store, which another process may hold."""
    if isinstance(address, Path):
        return SqliteConnection(address, write=write)
    from astray.service.store.postgres import PostgresConnection

    return PostgresConnection(address, write=write)
