"""Feeds over HTTP: a request is decoded, queued, and answered when its fixes are on the disk."""

from __future__ import annotations

import asyncio
import logging
import threading
import time as clock
from collections import deque
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from astray.service.access.tokens import EVERYBODY, Identity, narrowed
from astray.service.batches import Busy, Receipt
from astray.service.feeds import FORMATS, Answer, Format
from astray.service.feeds.feed_answers import App, Message, Receive, Send, error, send_answer
from astray.service.service import Service

log = logging.getLogger("astray.serve")


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


class Feeds:
    """Answers what senders of fixes ask, and hands everything else on (ASGI).

    Parameters
    ----------
    service
        What takes the fixes.
    app
        What answers all other requests. Where a request has come so far, its body is whole: see the guard.
    """

    def __init__(self, service: Service, app: App) -> None:
        self.service, self.app, self._waiters = service, app, Waiters()
        # Where a path holds a token, the guard has taken it out.
        self._forms = {path: form for form in FORMATS.values() for path in form.paths if "{" not in path}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        form = self._forms.get(scope["path"]) if scope["type"] == "http" else None
        if form is None:
            await self.app(scope, receive, send)
            return
        try:
            answer = await self._answer(form, scope, await receive())
        except Exception:
            log.exception("fixes could not be taken: %s %s", scope["method"], scope["path"])
            answer = error(500, "an error inside astray serve", "look at its log")
        await send_answer(send, answer)

    async def _answer(self, form: Format, scope: MutableMapping[str, Any], message: Message) -> Answer:
        if scope["method"] not in form.methods:
            return _with(error(405, "not with this method"), allow=", ".join(form.methods))
        identity: Identity = scope.get("state", {}).get("identity", EVERYBODY)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        batch = form.decode(message["body"], query, headers, clock.time(), identity.only_agent)
        waiter: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        try:
            self.service.submit(narrowed(identity, batch), lambda receipt: self._waiters.done(waiter, receipt))
        except Busy as busy:
            return _with(error(429, busy.reason, str(busy.remedy)), retry_after="1")
        receipt = await waiter
        if receipt.failed:
            return _with(error(503, receipt.failed, "send it again later"), retry_after="5")
        return form.answer(receipt)


def _with(answer: Answer, **headers: str) -> Answer:
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return answer._replace(headers={**answer.headers, **more})
