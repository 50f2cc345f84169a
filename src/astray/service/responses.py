"""Answers below the web framework: one form of refusal for guard, feeds and API, and how an ASGI server is sent one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

import msgspec

from astray.core.text import harmless

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON = "application/json"


class Answer(NamedTuple):
    """An answer to a request."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class Refusal(Exception):
    """A request that the service does not serve.

    Parameters
    ----------
    status
        The HTTP status.
    reason, remedy
        What is wrong, and what the client can do about it.
    headers
        Further headers of the answer.
    field
        The part of the request that is wrong, if it is one.
    more
        Further members of the answer, beside ``error``.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        remedy: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        field: str | None = None,
        **more: Any,
    ) -> None:
        super().__init__(reason)
        error = {"reason": harmless(reason), "remedy": remedy} | ({} if field is None else {"field": field})
        body = msgspec.json.encode({"error": error, **more})
        self.answer = Answer(status, body, {"content-type": JSON, "cache-control": "no-store", **(headers or {})})


async def send_answer(send: Send, answer: Answer) -> None:
    """Sends an answer through an ASGI server."""
    pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers.items()]
    pairs.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
    await send({"type": "http.response.body", "body": answer.body})
