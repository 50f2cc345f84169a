"""Limits the requests and connections of each client, so that the others are served."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


@dataclass(frozen=True)
class ClientLimits:
    """Limits for clients; the service refuses what exceeds them."""

    body: int = 1_048_576  # bytes of a request
    head: int = 65_536  # bytes of the head of a request
    body_seconds: float = 20.0  # in which the body of a request must arrive
    header_seconds: float = 10.0  # in which the head of a request must arrive
    requests: int = 500  # at the same time, of all clients
    connections: int = 1_000  # of all clients
    connections_each: int = 250  # of one address
    rate: float = 3_000.0  # requests a second of one client, in the long run
    burst: float = 6_000.0  # requests of one client at once
    failures: float = 20.0  # wrong tokens from one address at once; then one in 6 s
    clients: int = 10_000  # whose requests are counted


class Buckets:
    """Token buckets: each client may send ``burst`` requests at once, and ``rate`` a second in the long run.

    >>> buckets = Buckets(rate=1.0, burst=2.0, clients=10)
    >>> [buckets.wait("ana", now) for now in (0.0, 0.0, 0.0, 1.0)], buckets.wait("bob", 1.0)
    ([0.0, 0.0, 1.0, 0.0], 0.0)
    """

    def __init__(self, rate: float, burst: float, clients: int) -> None:
        self.rate, self.burst, self.clients = rate, burst, clients
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, now: float, cost: float = 1.0) -> float:
        """Takes ``cost`` from a client's bucket and returns 0, or returns the seconds until there is enough."""
        left, since = self._left.get(client, (self.burst, now))
        left = min(self.burst, left + (now - since) * self.rate)
        short = cost - left
        self._left[client] = (left if short > 0 else left - cost, now)
        self._left.move_to_end(client)
        if len(self._left) > self.clients:
            self._left.popitem(last=False)
        return short / self.rate if short > 0 else 0.0


def bounded(limits: ClientLimits) -> type[HttpToolsProtocol]:
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
            """Stops waiting: the head of a request is complete."""
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
