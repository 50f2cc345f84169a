"""Takes fixes over HTTP: decodes a request, queues its fixes, and answers when they are on the disk."""

from __future__ import annotations

import asyncio
import logging
import threading
import time as clock
from collections import deque
from urllib.parse import parse_qsl

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from astray.service.access.tokens import EVERYBODY, Identity, narrowed
from astray.service.batches import Busy, Receipt
from astray.service.feeds import FEEDS, Format
from astray.service.feeds.row_checks import Sent
from astray.service.responses import Refusal
from astray.service.service import Service

log = logging.getLogger("astray.serve")


class Waiters:
    """Wakes the requests that wait for the scoring thread; all requests of one group at the same time."""

    def __init__(self) -> None:
        self._done: deque[tuple[asyncio.Future[Receipt], Receipt]] = deque()
        self._lock = threading.Lock()
        self._woken = False

    def done(self, waiter: asyncio.Future[Receipt], receipt: Receipt) -> None:
        """Passes the receipt of a batch to its request; the scoring thread calls this."""
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
            if not waiter.done():  # the client may have left
                waiter.set_result(receipt)


class Feeds:
    """Answers requests from feeds, and passes all others on to ``app`` (ASGI).

    The guard comes first: it has taken tokens out of paths, and has read the whole body.
    """

    def __init__(self, service: Service, app: ASGIApp) -> None:
        self.service, self.app, self._waiters = service, app, Waiters()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        form = FEEDS.get(scope["path"]) if scope["type"] == "http" else None
        if form is None:
            await self.app(scope, receive, send)
            return
        try:
            response = await self._answer(form, scope, await receive())
        except Refusal as refusal:
            response = refusal.response
        except Exception:
            log.exception("fixes could not be taken: %s %s", scope["method"], scope["path"])
            response = Refusal(500, "an error inside astray serve", "look at its log").response
        await response(scope, receive, send)

    async def _answer(self, form: Format, scope: Scope, message: Message) -> Response:
        if scope["method"] not in form.methods:
            raise Refusal(405, "this address does not take this method", headers={"allow": ", ".join(form.methods)})
        identity: Identity = scope.get("state", {}).get("identity", EVERYBODY)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        batch = form.decode(Sent(message["body"], query, headers, clock.time(), identity.only_agent))
        waiter: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        try:
            self.service.submit(narrowed(identity, batch), lambda receipt: self._waiters.done(waiter, receipt))
        except Busy as busy:
            raise Refusal(429, busy.reason, str(busy.remedy), headers={"retry-after": "1"}) from busy
        receipt = await waiter
        if receipt.failed:
            raise Refusal(503, receipt.failed, "send it again later", headers={"retry-after": "5"})
        return form.answer(receipt)
