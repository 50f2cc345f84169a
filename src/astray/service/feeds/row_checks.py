"""Checks the rows of all feeds' messages: each becomes a fix or a refusal."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from astray.core.errors import DataError
from astray.core.fixes import label, number
from astray.runtime.json_fixes import Refused, read_fix
from astray.service.batches import MAX_AHEAD, Batch, FeedFix, RefusedRow

WHOLE = -1
"""The position that stands for the message as a whole."""

MAX_FIELDS = 100
"""The most fields that a query or a form may have."""

_COUNT = re.compile(r"[0-9]{1,19}([.][0-9]{1,9})?")


class Sent(NamedTuple):
    """A message as decoders get it."""

    body: bytes
    query: Mapping[str, str]
    headers: Mapping[str, str]  # with names in lower case
    now: float
    agent: str | None = None  # the agent of rows that name none


class Row(NamedTuple):
    """The values of a row, before any check."""

    agent: Any
    time: Any
    lat: Any
    lon: Any
    accuracy: Any = None


def whole(reason: str) -> Batch:
    """Refuses a message as a whole."""
    return Batch([], [RefusedRow(WHOLE, reason)])


def batch(rows: Iterable[Any], read: Callable[[Any], Row | FeedFix | Refused | None], now: float) -> Batch:
    """Checks the rows of a message; ``read`` returns a row's values, why it is refused, or None if it is not a fix.

    >>> batch([(0, 45), (60, 95)], lambda given: Row("ana", given[0], given[1], 7), now=60)
    Batch(fixes=[FeedFix(agent='ana', time=0.0, lat=45.0, lon=7.0, trip='', destination=None, accuracy=None)],
          refused=[RefusedRow(index=1, reason='latitude outside [-90, 90] (95)', agent='ana')])
    """
    fixes: list[FeedFix] = []
    refused: list[RefusedRow] = []
    for index, given in enumerate(rows):
        found = read(given)
        if isinstance(found, Row):
            found = checked(found)
        if isinstance(found, FeedFix) and found.time > now + MAX_AHEAD:
            found = Refused("the time lies in the future; is the sender's clock right?", found.agent)
        if isinstance(found, FeedFix):
            fixes.append(found)
        elif found is not None:
            refused.append(RefusedRow(index, found.reason, found.agent))
    return Batch(fixes, refused)


def checked(row: Row) -> FeedFix | Refused:
    """Checks one row by the rules for files."""
    if row.agent is None:
        return Refused("the fix names no agent")
    agent: str | None = None
    try:
        agent = label("agent", row.agent)
        time, lat, lon = read_fix((_count(row.time), row.lat, row.lon))
    except DataError as error:
        return Refused(error.reason, agent)
    return FeedFix(agent, time, lat, lon, accuracy=metres(row.accuracy))


def metres(accuracy: Any) -> float | None:
    """Returns the accuracy of a fix in metres; None if the receiver does not report it."""
    found = number(accuracy)
    return found if 0 <= found < math.inf else None


def document(body: bytes) -> Any:
    """Returns the JSON value of a body, or a :class:`~astray.service.batches.Batch` that refuses it."""
    if not body.strip():
        return whole("the body is empty")
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return whole(f"not JSON: {str(error)[:100]}")


def fields(sent: Sent) -> Mapping[str, str] | Batch:
    """Returns the fields of a query or, without one, of a form in the body; or a refusal."""
    if sent.query:
        return sent.query
    try:
        found = dict(parse_qsl(sent.body.decode("utf-8", "replace").strip(), max_num_fields=MAX_FIELDS))
    except ValueError:
        return whole(f"more than {MAX_FIELDS} fields")
    return found or whole("neither the address nor the body has fields")


def text(value: Any) -> str:
    """Returns a text or a number as text; an empty text for anything else."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    return str(value).strip()


def mapping(value: Any) -> Mapping[str, Any]:
    """Returns the value if it is an object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def _count(time: Any) -> Any:
    """Returns a time as a number if its text is one, because values in an address are always text."""
    return float(time) if isinstance(time, str) and _COUNT.fullmatch(time) else time
