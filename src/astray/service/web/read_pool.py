"""Lends connections that only read to one thread at a time."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from astray.service.store import Connection, Store, StoreError

P = ParamSpec("P")
T = TypeVar("T")

CONNECTIONS = 4
PATIENCE = 20.0  # seconds that a thread waits for a connection


class ReadPool:
    """Up to four connections to a store, opened when they are first needed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._free: queue.LifoQueue[Connection | None] = queue.LifoQueue()
        for _ in range(CONNECTIONS):
            self._free.put(None)

    def use(self, look: Callable[Concatenate[Connection, P], T], *values: P.args, **named: P.kwargs) -> T:
        """Calls a function with a connection, and returns what it returns."""
        try:
            connection = self._free.get(timeout=PATIENCE)
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
