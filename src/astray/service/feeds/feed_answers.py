"""What a sender is answered: exactly what its protocol wants, and which rows were refused wherever that allows it.

A row that can never be used is answered with success. Phones keep what was not taken and send it again before all
else, so that one bad row would hold back all later ones. A message that nobody could use, because the application is
not set up right, is answered with 422: the application shows that, and keeps its fixes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

import msgspec

from astray.core.text import harmless
from astray.service.batches import Receipt
from astray.service.feeds.row_checks import WHOLE

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

JSON = "application/json"
REFUSED_HEADER = "x-refused"
"""The header that says how many rows were refused, and why the first one was, where the answer has no room for it."""


class Answer(NamedTuple):
    """An answer to a feed."""

    status: int
    body: bytes
    headers: dict[str, str]


async def send_answer(send: Send, answer: Answer) -> None:
    """Send an answer (ASGI)."""
    headers = {"content-type": JSON, **answer.headers} if answer.body else answer.headers
    pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    pairs.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
    await send({"type": "http.response.body", "body": answer.body})


def error(status: int, reason: str, remedy: str = "", **more: Any) -> Answer:
    """A refusal, as every part of the service writes it."""
    said = {"error": {"reason": harmless(reason), "remedy": remedy}, **more}
    return Answer(status, msgspec.json.encode(said), {"content-type": JSON})


def empty_list(receipt: Receipt) -> Answer:
    """``[]``: OwnTracks takes an array of messages, and there are none for it."""
    return _unusable(receipt) or Answer(200, b"[]", _headers(receipt))


def result_ok(receipt: Receipt) -> Answer:
    """``{"result":"ok"}``: Overland sends everything again if it is answered anything else."""
    return _unusable(receipt) or Answer(200, b'{"result":"ok"}', _headers(receipt))


def listed(receipt: Receipt) -> Answer:
    """How many fixes were taken, and which rows were not, for senders that look at the status alone."""
    return _unusable(receipt) or Answer(200, msgspec.json.encode(_counts(receipt)), _headers(receipt))


def listed_strictly(receipt: Receipt) -> Answer:
    """The same for a program that is written for this service: 422 if it sent rows and none of them could be used."""
    if receipt.refused and not receipt.accepted:
        return _unusable(receipt) or error(
            422, receipt.refused[0].reason, "correct the fixes and send them again", **_counts(receipt)
        )
    return listed(receipt)


def _counts(receipt: Receipt) -> dict[str, Any]:
    refused = [{"index": row.index, "reason": harmless(row.reason)} for row in receipt.refused]
    return {"accepted": receipt.accepted, "duplicates": receipt.duplicates, "refused": refused}


def _unusable(receipt: Receipt) -> Answer | None:
    reasons = [row.reason for row in receipt.refused if row.index == WHOLE]
    return error(422, reasons[0], "docs/how-to/feeds.md says how to set up what sends") if reasons else None


def _headers(receipt: Receipt) -> dict[str, str]:
    headers = {"content-type": JSON}
    if receipt.refused:
        first = receipt.refused[0].reason.encode("ascii", "backslashreplace").decode()
        headers[REFUSED_HEADER] = f"{len(receipt.refused)}; {harmless(first)}"
    return headers
