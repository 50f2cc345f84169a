"""Connections that only read, lent to one thread at a time."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from astray.service.store import Connection, Store, StoreError

P = ParamSpec("P")
T = TypeVar("T")

MOST = 4
PATIENCE = 20.0  # seconds that one waits for a connection


class Readers:
    """A few connections to a store, opened when they are needed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._free: queue.LifoQueue[Connection | None] = queue.LifoQueue()
        for _ in range(MOST):
            self._free.put(None)

    def use(self, look: Callable[Concatenate[Connection, P], T], *values: P.args, **named: P.kwargs) -> T:
        """What a function finds with a connection."""
        try:
            connection = self._free.get(timeout=PATIENCE)
        except queue.Empty:
            raise StoreError("too many ask at once", remedy="ask again") from None
        try:
            if connection is None:
                connection = self._store.reader()
            return look(connection, *values, **named)
        except StoreError:
            if connection is not None:
                connection.close()
            connection = None  # the next one is a new one
            raise
        finally:
            self._free.put(connection)

    def close(self) -> None:
        """Close those that are open and free."""
        while True:
            try:
                connection = self._free.get_nowait()
            except queue.Empty:
                return
            if connection is not None:
                connection.close()
