"""Messages: fixes as JSON lines, checked. What cannot be used is refused with a reason; nothing raises."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from astray.core.errors import DataError
from astray.core.fixes import REQUIRED, label, parts, place
from astray.core.projection import Place
from astray.core.times import seconds_of
from astray.runtime.fix import read_fix

Line = str | bytes

MAX_LINE = 65_536  # bytes; no fix is longer
KINDS = ("fix", "end", "clock")


class Message(NamedTuple):
    """A line that was understood."""

    kind: str  # 'fix', 'end' (the agent's trip is over) or 'clock' (what time it is, for those who are silent)
    agent: str | None
    time: float
    lat: float
    lon: float
    context: Mapping[str, Any]
    trip: str = ""  # its name, where the feed names trips
    destination: Place | None = None  # where the trip is meant to end (lat, lon), where the feed knows that


class Refused(NamedTuple):
    """A line that was not, and why."""

    reason: str
    agent: str | None = None


def parse(line: Line, time_zone: str | None = None) -> Message | Refused:
    """One line of JSON.

    A fix has ``time`` (seconds since 1970, or ms, us, ns by their magnitude, or ISO 8601 text; where it names no zone,
    it is of ``time_zone``, or else UTC), ``lat``, ``lon`` and ``agent``; ``trip`` where the feed names trips, and
    ``destination`` ([lat, lon]) where it knows where the trip is meant to end. The names that tables use (``lng``,
    ``user_id``, ``timestamp``, ...) and the locations of OwnTracks are understood, and further entries are kept as
    context. ``type`` is ``fix`` by default; ``end`` ends an agent's trip; ``clock`` tells the time, by which the trips
    of agents that have been silent for too long are over.

    >>> parse('{"uid": 17, "tst": "1970-01-01T00:01:00Z", "lat": 45, "lng": 7}')
    Message(kind='fix', agent='17', time=60.0, lat=45.0, lon=7.0, context={}, trip='', destination=None)
    >>> parse('{"uid": 17, "tst": 60, "lat": NaN, "lng": 7}')
    Refused(reason='not JSON: NaN is not a number', agent=None)
    >>> parse('{"agent": "a", "time": 0, "lat": 95, "lon": 7}')
    Refused(reason='latitude outside [-90, 90] (95)', agent='a')
    """
    if len(line) > MAX_LINE:
        return Refused(f"the line is longer than {MAX_LINE} bytes")
    if not line.strip():
        return Refused("the line is empty")
    try:
        text = line if isinstance(line, str) else line.decode()
        said = _DECODER.decode(text.removeprefix("\ufeff"))  # a mark that some programs put before the first line
    except (ValueError, RecursionError) as error:
        return Refused(f"not JSON: {str(error).splitlines()[0]:.100}")
    if not isinstance(said, dict):
        return Refused('not a JSON object; a fix is one, such as {"agent": "a", "time": 0, "lat": 45, "lon": 7}')
    return understood(said, time_zone)


def understood(said: dict[str, Any], time_zone: str | None = None) -> Message | Refused:
    """One JSON object that is read already, as :func:`parse` understands it; what it has taken is gone from it.

    >>> understood({"type": "end", "agent": "a"}).kind
    'end'
    """
    kind = said.pop("type", "fix")
    if kind not in KINDS:
        return Refused(f"unknown type {str(kind)[:40]!r}; there are {', '.join(KINDS)}")
    if said.get("_type", "location") != "location":
        return Refused(f"a message of OwnTracks that is no location ({said['_type']!s:.20})")
    goal = said.pop("destination", None)
    found, context = parts(said)
    agent: str | None = None
    try:
        agent = None if found.get("agent") is None else label("agent", found["agent"])
        if kind == "end":
            return Message(kind, agent, math.nan, math.nan, math.nan, context)
        if kind == "clock":
            return Message(kind, agent, seconds_of(found.get("time"), time_zone), math.nan, math.nan, context)
        time, lat, lon = read_fix(tuple(found.get(role) for role in REQUIRED), time_zone)
        trip = "" if found.get("trajectory") in (None, "") else label("trajectory", found["trajectory"])
        return Message(kind, agent, time, lat, lon, context, trip, None if goal is None else _destination(goal))
    except DataError as error:
        return Refused(error.reason, agent)


def _destination(given: object) -> Place:
    """A destination, checked as a fix is.

    >>> _destination([45, 7]), _destination({"lat": 45, "lng": 7})
    ((45.0, 7.0), (45.0, 7.0))
    """
    if isinstance(given, Mapping):
        found = parts(given)[0]
        given = [found.get("lat"), found.get("lon")]
    if not isinstance(given, list) or len(given) != 2:
        raise DataError(f"the destination {given!r:.60} is no place", remedy="give it as [lat, lon]")
    return place(*given)


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
