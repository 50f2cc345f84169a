"""Decodes plain fixes: a JSON object, an array, or one per line (NDJSON), with the names of ``astray watch``."""

from __future__ import annotations

from typing import Any

import msgspec

from astray.runtime.json_fixes import Refused, understood
from astray.service.batches import Batch, FeedFix
from astray.service.feeds.row_checks import Sent, batch, document, metres, whole

EXAMPLE = '{"agent": "ana", "time": 1372636858, "lat": 41.15, "lon": -8.61}'
ACCURACY = ("accuracy", "acc", "horizontal_accuracy")


def decode(sent: Sent) -> Batch:
    r"""Decodes fixes such as ``{"agent": "ana", "time": 1372636858, "lat": 41.15, "lon": -8.61}``.

    A body that is one JSON value must be an object or an array. Any other body is read line by line, and a line that
    is not JSON is refused. Fixes that name no agent belong to ``?agent=ana`` or to the parameter ``agent``.

    >>> decode(Sent(b'[{"uid": 17, "tst": 60, "lat": 45, "lng": 7}, 3]', {}, {}, now=60))
    Batch(fixes=[FeedFix(agent='17', time=60.0, lat=45.0, lon=7.0, trip='', destination=None, accuracy=None)],
          refused=[RefusedRow(index=1, reason='not a JSON object', agent=None)])
    """
    said, agent = document(sent.body), sent.query.get("agent") or sent.agent
    if isinstance(said, Batch):
        lines = [line for line in sent.body.splitlines() if line.strip()]
        if len(lines) < 2:
            return said
        said = [_line(line) for line in lines]
    elif not isinstance(said, (dict, list)):
        return whole(f"the body is neither a JSON object nor an array of them; a fix is {EXAMPLE}")
    return batch(said if isinstance(said, list) else [said], lambda row: _row(row, agent), sent.now)


def _line(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return Refused(f"not JSON: {str(error)[:100]}")


def _row(said: Any, agent: str | None) -> FeedFix | Refused:
    if isinstance(said, Refused):
        return said
    if not isinstance(said, dict):
        return Refused("not a JSON object")
    message = understood(said)
    if isinstance(message, Refused):
        return message
    if message.kind != "fix":
        return Refused(f"type {message.kind} is for astray watch; the service ends trips by itself", message.agent)
    who = message.agent or agent
    if who is None:
        return Refused("the fix names no agent")
    exact = next((metres(message.context[name]) for name in ACCURACY if name in message.context), None)
    return FeedFix(who, message.time, message.lat, message.lon, message.trip, message.destination, exact)
