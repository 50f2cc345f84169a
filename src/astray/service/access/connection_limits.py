"""Connections: not too many, of nobody too many, and none that never says what it wants."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from astray.service.access.client_limits import Limits


def bounded(limits: Limits) -> type[HttpToolsProtocol]:
    """The protocol of uvicorn (its option ``http``) with limits: what is beyond them is closed without an answer."""
    addresses: Counter[str] = Counter()

    class Bounded(HttpToolsProtocol):
        """One connection."""

        _address: str | None = None
        _late: asyncio.TimerHandle | None = None
        _head = 0  # bytes of a head that is not complete yet

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Take a connection, or close it at once if there are too many."""
            super().connection_made(transport)
            address = self.client[0] if self.client else ""
            if len(self.connections) > limits.connections or addresses[address] >= limits.connections_each:
                transport.abort()
                return
            self._address = address
            addresses[address] += 1
            self._wait_for_head()

        def connection_lost(self, exc: Exception | None) -> None:
            """Forget a connection."""
            self._stop_waiting()
            if self._address is not None:
                addresses[self._address] -= 1
                if not addresses[self._address]:
                    del addresses[self._address]
                self._address = None
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            """Take some bytes; those that begin a request begin the time in which its head must be there."""
            if self._late is None and (self.cycle is None or self.cycle.response_complete):
                self._wait_for_head()
            super().data_received(data)
            self._head = 0 if self._late is None else self._head + len(data)
            if self._head > limits.head:
                self.transport.abort()

        def on_headers_complete(self) -> None:
            """Go on with a request whose head is there."""
            self._stop_waiting()
            super().on_headers_complete()

        def _wait_for_head(self) -> None:
            self._late = self.loop.call_later(limits.header_seconds, self._give_up)

        def _stop_waiting(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _give_up(self) -> None:
            self._late = None
            transport: Any = self.transport
            if not transport.is_closing():
                transport.abort()

    return Bounded
