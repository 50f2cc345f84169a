"""Answers senders of fixes as each protocol requires, and reports refused rows wherever there is room for them.

The answer is a success even if it refuses a row. A phone keeps what the service did not take, and sends that again
before all else, so one bad row would hold back all later ones. If nothing in a message can be used, because the
application is set up wrongly, the answer is 422: the application shows that, and keeps its fixes.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from astray.core.text import harmless
from astray.service.batches import Receipt
from astray.service.feeds.row_checks import WHOLE
from astray.service.responses import JSON, Refusal

REFUSED_HEADER = "x-refused"
"""The header with the number of refused rows and the first reason, for answers that have no room for these."""

SET_UP = (
    "correct the settings of the sender: its address ends in /pub for OwnTracks, /overland for Overland, /traccar for "
    "the Traccar server, /osmand for Traccar Client and OsmAnd, /gpslogger for GPSLogger, /api/fixes for a program of "
    "your own; the sender must name its agent, and must not encrypt (TLS does)"
)
"""What to do if nothing in a message can be used."""


def empty_list(receipt: Receipt) -> Response:
    """Answers ``[]``: OwnTracks expects an array of messages, and the service has none for it."""
    return _answer(receipt, b"[]")


def result_ok(receipt: Receipt) -> Response:
    """Answers ``{"result":"ok"}``: after any other answer Overland sends everything again."""
    return _answer(receipt, b'{"result":"ok"}')


def listed(receipt: Receipt) -> Response:
    """Answers with the number of accepted fixes and the refused rows, for senders that only look at the status."""
    return _answer(receipt, msgspec.json.encode(_counts(receipt)))


def listed_strictly(receipt: Receipt) -> Response:
    """Answers like :func:`listed`, but with 422 if no row could be used, for programs written for this service."""
    if receipt.refused and not receipt.accepted and not _unusable(receipt):
        reason, remedy = receipt.refused[0].reason, "correct the fixes and send them again"
        return Refusal(422, reason, remedy, **_counts(receipt)).response
    return listed(receipt)


def _answer(receipt: Receipt, body: bytes) -> Response:
    if reason := _unusable(receipt):
        return Refusal(422, reason, SET_UP).response
    headers = {}
    if receipt.refused:
        first = receipt.refused[0].reason.encode("ascii", "backslashreplace").decode()
        headers[REFUSED_HEADER] = f"{len(receipt.refused)}; {harmless(first)}"
    return Response(body, headers=headers, media_type=JSON)


def _counts(receipt: Receipt) -> dict[str, Any]:
    refused = [{"index": row.index, "reason": harmless(row.reason)} for row in receipt.refused]
    return {"accepted": receipt.accepted, "duplicates": receipt.duplicates, "refused": refused}


def _unusable(receipt: Receipt) -> str:
    """Returns why the message as a whole cannot be used; an empty text if it can."""
    return next((row.reason for row in receipt.refused if row.index == WHOLE), "")
