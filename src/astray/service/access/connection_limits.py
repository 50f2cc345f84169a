"""Limits connections: in total, per client, and how long one may take to send the head of a request."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from astray.service.access.client_limits import Limits


def bounded(limits: Limits) -> type[HttpToolsProtocol]:
    """Returns uvicorn's protocol (its option ``http``) with limits; it closes connections beyond them."""
    addresses: Counter[str] = Counter()

    class Bounded(HttpToolsProtocol):
        """One connection."""

        _address: str | None = None
        _late: asyncio.TimerHandle | None = None
        _head = 0  # bytes of an incomplete head

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Accepts a connection, or closes it at once if there are too many."""
            super().connection_made(transport)
            address = self.client[0] if self.client else ""
            if len(self.connections) > limits.connections or addresses[address] >= limits.connections_each:
                transport.abort()
                return
            self._address = address
            addresses[address] += 1
            self._wait_for_head()

        def connection_lost(self, exc: Exception | None) -> None:
            """Forgets a connection."""
            self._stop_waiting()
            if self._address is not None:
                addresses[self._address] -= 1
                if not addresses[self._address]:
                    del addresses[self._address]
                self._address = None
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            """Takes bytes; the first bytes of a request start the time in which its head must be complete."""
            if self._late is None and (self.cycle is None or self.cycle.response_complete):
                self._wait_for_head()
            super().data_received(data)
            self._head = 0 if self._late is None else self._head + len(data)
            if self._head > limits.head:
                self.transport.abort()

        def on_headers_complete(self) -> None:
            """Goes on with a request whose head is complete."""
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
