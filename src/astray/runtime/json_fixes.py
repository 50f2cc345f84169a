"""Reads and checks live fixes: JSON lines, and other objects with a time, a latitude and a longitude."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from astray.core.errors import DataError
from astray.core.fixes import REQUIRED, label, no_location, optional_label, parts, place, split_fix
from astray.core.fixes import Refused as Refused
from astray.core.projection import Place
from astray.core.times import seconds_of

Line = str | bytes

MAX_LINE = 65_536  # bytes; no fix is longer
KINDS = ("fix", "end", "clock")


class Message(NamedTuple):
    """A checked message."""

    kind: str  # 'fix', 'end' (ends the agent's trip) or 'clock' (tells the time, which ends trips of silent agents)
    agent: str | None
    time: float
    lat: float
    lon: float
    context: Mapping[str, Any]
    trip: str = ""  # the name of the trip, if the feed names trips
    destination: Place | None = None  # where the trip is meant to end (lat, lon), if the feed knows it


def parse(line: Line, time_zone: str | None = None) -> Message | Refused:
    """Parses one line of JSON; returns a :class:`Refused` if it cannot be used.

    A fix has ``time`` (seconds since 1970; or ms, us, ns, recognised by magnitude; or ISO 8601 text, which without a
    zone is in ``time_zone`` or else UTC), ``lat``, ``lon`` and ``agent``; ``trip`` if the feed names trips; and
    ``destination`` ([lat, lon]) if the feed knows where the trip is meant to end. The names that tables use (``lng``,
    ``user_id``, ``timestamp``, ...) and the locations of OwnTracks are understood too; further entries are context.
    ``type`` is ``fix`` by default. A message of type ``end`` ends an agent's trip; one of type ``clock`` gives the
    time, and ends the trips of agents that have been silent for too long.

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
        entries = _DECODER.decode(text.removeprefix("\ufeff"))  # the byte-order mark that some programs write
    except (ValueError, RecursionError) as error:
        return Refused(f"not JSON: {str(error).splitlines()[0]:.100}")
    if not isinstance(entries, dict):
        return Refused('not a JSON object; a fix is one, such as {"agent": "a", "time": 0, "lat": 45, "lon": 7}')
    return understood(entries, time_zone)


def understood(entries: dict[str, Any], time_zone: str | None = None) -> Message | Refused:
    """Checks a decoded JSON object as :func:`parse` does, and removes the entries that it uses.

    >>> understood({"type": "end", "agent": "a"}).kind
    'end'
    """
    kind = entries.pop("type", "fix")
    if kind not in KINDS:
        return Refused(f"unknown type {str(kind)[:40]!r}; there are {', '.join(KINDS)}")
    if reason := no_location(entries):
        return Refused(reason)
    goal = entries.pop("destination", None)
    agent: str | None = None
    try:
        fix = split_fix(entries)
        agent = None if fix.agent is None else label("agent", fix.agent)
        if kind == "end":
            return Message(kind, agent, math.nan, math.nan, math.nan, fix.others)
        if kind == "clock":
            return Message(kind, agent, seconds_of(fix.time, time_zone), math.nan, math.nan, fix.others)
        time, lat, lon = read_fix((fix.time, fix.lat, fix.lon), time_zone)
        trip, destination = optional_label("trajectory", fix.trajectory), None if goal is None else _destination(goal)
        return Message(kind, agent, time, lat, lon, fix.others, trip, destination)
    except DataError as error:
        return Refused(error.reason, agent)


def read_fix(fix: Any, time_zone: str | None = None) -> tuple[float, float, float]:
    """Returns the checked time, latitude and longitude of a fix; a time without a zone is in ``time_zone``, or UTC.

    >>> read_fix({"time": 0, "lat": 45, "lon": 7}), read_fix((0, 45, 7))
    ((0.0, 45.0, 7.0), (0.0, 45.0, 7.0))
    >>> read_fix((0, 91, 7))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    astray.core.errors.DataError: latitude outside [-90, 90] (91); correct the fix (...)
    """
    if type(fix) is tuple and len(fix) >= 3:
        given = fix[:3]
    elif isinstance(fix, Mapping):
        found = parts(fix)[0]
        given = tuple(found.get(role) for role in REQUIRED)
    elif hasattr(fix, "lat"):
        given = tuple(getattr(fix, role, None) for role in REQUIRED)
    elif isinstance(fix, (Sequence, np.ndarray)) and len(fix) >= 3 and not isinstance(fix, str):
        given = tuple(fix[:3])
    else:
        raise DataError(f"{fix!r:.100} is not a fix", remedy="give time, lat and lon as numbers")
    lat, lon = place(*given[1:])
    return seconds_of(given[0], time_zone), lat, lon


def _destination(given: object) -> Place:
    """Returns a destination, checked like a fix.

    >>> _destination([45, 7]), _destination({"lat": 45, "lng": 7})
    ((45.0, 7.0), (45.0, 7.0))
    """
    if isinstance(given, Mapping):
        found = parts(given)[0]
        given = [found.get("lat"), found.get("lon")]
    if not isinstance(given, list) or len(given) != 2:
        raise DataError(f"the destination {given!r:.60} is not a place", remedy="give it as [lat, lon]")
    return place(*given)


def bounded(lines: Iterable[Line]) -> Iterator[Line]:
    """Yields the lines of an open file or any iterable; keeps only the beginning of a line that is too long.

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
