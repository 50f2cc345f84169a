"""Feeds over HTTP: a request is decoded, queued, and answered when its fixes are on the disk."""

from __future__ import annotations

import asyncio
import threading
import time as clock
from collections import deque
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from astray.service.access.tokens import EVERYBODY, Identity, narrowed
from astray.service.feeds import FORMATS, Answer, Format
from astray.service.feeds.answers import error
from astray.service.fixes import Busy, Receipt
from astray.service.service import Service


class Waiters:
    """Requests that wait for the scoring thread; those of one group are woken together."""

    def __init__(self) -> None:
        self._done: deque[tuple[asyncio.Future[Receipt], Receipt]] = deque()
        self._lock = threading.Lock()
        self._woken = False

    def done(self, waiter: asyncio.Future[Receipt], receipt: Receipt) -> None:
        """Note what became of a batch, from the scoring thread."""
        with self._lock:
            self._done.append((waiter, receipt))
            if self._woken:
                return
            self._woken = True
        waiter.get_loop().call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        with self._lock:
            done, self._done, self._woken = self._done, deque(), False
        for waiter, receipt in done:
            if not waiter.done():  # who waited may have left
                waiter.set_result(receipt)


def feed_routes(service: Service) -> list[Route]:
    """A route for each format of the feeds."""
    waiters = Waiters()
    return [
        Route(path, _endpoint(service, waiters, form), methods=list(form.methods))
        for form in FORMATS.values()
        for path in form.paths
        if "{" not in path  # the guard has taken a token out of the path
    ]


def _endpoint(service: Service, waiters: Waiters, form: Format) -> Callable[[Request], Awaitable[Response]]:
    async def take(request: Request) -> Response:
        identity: Identity = request.scope.get("state", {}).get("identity", EVERYBODY)
        body = await request.body()
        batch = form.decode(body, request.query_params, request.headers, clock.time(), identity.only_agent)
        waiter: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        try:
            service.submit(narrowed(identity, batch), lambda receipt: waiters.done(waiter, receipt))
        except Busy as busy:
            return _response(error(429, busy.reason, str(busy.remedy)), {"retry-after": "1"})
        receipt = await waiter
        if receipt.failed:
            return _response(error(503, receipt.failed, "send it again later"), {"retry-after": "5"})
        return _response(form.answer(receipt))

    return take


def _response(answer: Answer, more: dict[str, str] | None = None) -> Response:
    return Response(answer.body, answer.status, {**answer.headers, **(more or {})})
