"""Messages: fixes as JSON lines, checked. What cannot be used is refused with a reason; nothing raises."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from astray.errors import DataError
from astray.live.fix import read_fix
from astray.readers.columns import ALIASES, plain

Line = str | bytes

MAX_LINE = 65_536  # bytes; no fix is longer
MAX_NAME = 200  # letters of an agent's name
KINDS = ("fix", "end", "clock")

_ROLES = {alias: (role, rank) for role, aliases in ALIASES.items() for rank, alias in enumerate(aliases)}
# A number is taken for a unit of time if it then lies between 1973 and 2201, as in files.
_UNITS = ((7.3e9, 0.0, 1.0), (7.3e12, 1e11, 1e3), (7.3e15, 1e14, 1e6), (7.3e18, 1e17, 1e9))


class Message(NamedTuple):
    """A line that was understood."""

    kind: str  # 'fix', 'end' (the agent's trip is over) or 'clock' (what time it is, for those who are silent)
    agent: str | None
    time: float
    lat: float
    lon: float
    context: Mapping[str, Any]


class Refused(NamedTuple):
    """A line that was not, and why."""

    reason: str
    agent: str | None = None


def parse(line: Line) -> Message | Refused:
    """One line of JSON.

    A fix has ``time`` (seconds since 1970, or ms, us, ns by their magnitude, or ISO 8601 text; UTC where no zone is
    named), ``lat``, ``lon`` and ``agent``; the names that tables use (``lng``, ``user_id``, ``timestamp``, ...) are
    understood, and further entries are kept as context. ``type`` is ``fix`` by default; ``end`` ends an agent's trip;
    ``clock`` tells the time, by which the trips of agents that have been silent for too long are over.

    >>> parse('{"uid": 17, "tst": "1970-01-01T00:01:00Z", "lat": 45, "lng": 7}')
    Message(kind='fix', agent='17', time=60.0, lat=45.0, lon=7.0, context={})
    >>> parse('{"uid": 17, "tst": 60, "lat": NaN, "lng": 7}')
    Refused(reason='not JSON: NaN is not a number', agent=None)
    >>> parse('{"agent": "a", "time": 0, "lat": 95, "lon": 7}')
    Refused(reason='latitude 95.0 is outside [-90, 90]; are lat and lon swapped?', agent='a')
    """
    if len(line) > MAX_LINE:
        return Refused(f"the line is longer than {MAX_LINE} bytes")
    if not line.strip():
        return Refused("the line is empty")
    try:
        said = _DECODER.decode(line if isinstance(line, str) else line.decode())
    except (ValueError, RecursionError) as error:
        return Refused(f"not JSON: {str(error).splitlines()[0]:.100}")
    if not isinstance(said, dict):
        return Refused('not a JSON object; a fix is one, such as {"agent": "a", "time": 0, "lat": 45, "lon": 7}')
    kind = said.pop("type", "fix")
    if kind not in KINDS:
        return Refused(f"unknown type {str(kind)[:40]!r}; there are {', '.join(KINDS)}")
    parts, context = _roles(said)
    agent: str | None = None
    try:
        agent = _agent(parts.get("agent"))
        if kind == "end":
            return Message(kind, agent, math.nan, math.nan, math.nan, context)
        missing = [name for name in (("time",) if kind == "clock" else ("time", "lat", "lon")) if name not in parts]
        if missing:
            return Refused(f"{missing[0]} is missing", agent)
        time = _time(parts["time"])
        if kind == "clock":
            return Message(kind, agent, time, math.nan, math.nan, context)
        return Message(
            kind, agent, *read_fix((time, _number("lat", parts["lat"]), _number("lon", parts["lon"]))), context
        )
    except DataError as error:
        return Refused(str(error), agent)


def bounded(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines of an open file or any iterable; of a line that is too long only the beginning is ever held.

    >>> import io
    >>> [len(line) for line in bounded(io.BytesIO(b"short\\n" + b"x" * 1_000_000 + b"\\nshort\\n"))]
    [5, 65537, 5]
    """
    readline = getattr(lines, "readline", None)
    if readline is None:
        for line in lines:
            yield line.rstrip("\r\n") if isinstance(line, str) else line.rstrip(b"\r\n")
        return
    while line := readline(MAX_LINE + 2):
        end = "\n" if isinstance(line, str) else b"\n"
        rest = line
        while not rest.endswith(end) and len(rest) == MAX_LINE + 2:
            rest = readline(MAX_LINE + 2)
        yield (line.rstrip("\r\n") if isinstance(line, str) else line.rstrip(b"\r\n"))[: MAX_LINE + 1]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _roles(said: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Which entry plays which part, and the others."""
    parts: dict[str, tuple[int, Any]] = {}
    context = {}
    for name, value in said.items():
        role, rank = _ROLES.get(name) or _ROLES.get(plain(name)) or ("", 0)
        if not role:
            context[name] = value
        elif role not in parts or rank < parts[role][0]:
            parts[role] = (rank, value)
    return {role: value for role, (_, value) in parts.items()}, context


def _agent(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise DataError("the agent is neither a text nor a whole number")
    name = str(value)
    if not name or len(name) > MAX_NAME:
        raise DataError(f"the agent's name is empty or longer than {MAX_NAME} letters")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError("the agent's name is not text that can be written down") from None
    return name


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise DataError(f"{name} is not a number")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise DataError(f"{name} is not a number") from None


def _time(value: Any) -> float:
    try:
        number = _number("time", value)
    except DataError:
        if not isinstance(value, str):
            raise
        return _of_text(value)
    for most, least, unit in _UNITS:
        if least <= abs(number) <= most:
            return number / unit
    raise DataError("time is no plausible number of s, ms, us or ns since 1970")


def _of_text(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise DataError("time is neither a number nor ISO 8601 text, such as 2013-07-01T00:00:58Z") from None
