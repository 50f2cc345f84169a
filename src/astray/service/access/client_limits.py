"""Limits what one client may ask for, so that the others are served."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The most that the service takes from clients."""

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
