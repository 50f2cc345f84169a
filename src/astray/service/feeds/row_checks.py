"""The border that every feed passes: what a row of a message says, to a fix or to a refusal."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from astray.core.errors import DataError
from astray.core.fixes import label, number
from astray.runtime.fix import read_fix
from astray.runtime.json_fixes import Refused
from astray.service.batches import MAX_AHEAD, Batch, FeedFix, RefusedRow

WHOLE = -1
"""The position of a refused row that is the message as a whole."""

MAX_FIELDS = 100
"""Fields of a query or a form, at most."""

_COUNT = re.compile(r"[0-9]{1,19}([.][0-9]{1,9})?")


class Row(NamedTuple):
    """What a row of a message says, as it stands there."""

    agent: Any
    time: Any
    lat: Any
    lon: Any
    accuracy: Any = None


def whole(reason: str) -> Batch:
    """A message that cannot be used at all."""
    return Batch([], [RefusedRow(WHOLE, reason)])


def batch(rows: Iterable[Any], read: Callable[[Any], Row | FeedFix | Refused | None], now: float) -> Batch:
    """Rows of a message, checked; ``read`` gives what a row says, or why it is refused, or None if it is no fix.

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
    """One row, checked as the rows of files are."""
    if row.agent is None:
        return Refused("nothing says whose fix it is")
    agent: str | None = None
    try:
        agent = label("agent", row.agent)
        time, lat, lon = read_fix((_count(row.time), row.lat, row.lon))
    except DataError as error:
        return Refused(error.reason, agent)
    return FeedFix(agent, time, lat, lon, accuracy=metres(row.accuracy))


def metres(accuracy: Any) -> float | None:
    """How exact a fix is, where the receiver says that."""
    found = number(accuracy)
    return found if 0 <= found < math.inf else None


def document(body: bytes) -> Any:
    """The JSON value that a body holds, or a :class:`~astray.service.batches.Batch` that refuses it."""
    if not body.strip():
        return whole("the body is empty")
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return whole(f"not JSON: {str(error)[:100]}")


def fields(body: bytes, query: Mapping[str, str]) -> dict[str, str] | Batch:
    """The fields of a query or, where there is none, of a form in the body; or a refusal."""
    if query:
        return dict(query)
    try:
        found = dict(parse_qsl(body.decode("utf-8", "replace").strip(), max_num_fields=MAX_FIELDS))
    except ValueError:
        return whole(f"more than {MAX_FIELDS} fields")
    return found or whole("there are no fields, neither in the address nor in the body")


def text(value: Any) -> str:
    """A text or a number as text; nothing for anything else."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    return str(value).strip()


def mapping(value: Any) -> Mapping[str, Any]:
    """An object of a message; an empty one if it is something else."""
    return value if isinstance(value, dict) else {}


def _count(time: Any) -> Any:
    """A time as a number where text holds one: what an address holds is always text."""
    return float(time) if isinstance(time, str) and _COUNT.fullmatch(time) else time
