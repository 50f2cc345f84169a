"""What happens, as rows that a replay would write again the same: events, alerts, and what is told of them."""

from __future__ import annotations

import hashlib
import math
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from astray.core.errors import DataError
from astray.core.trip_ids import TripId
from astray.explain.segment_phrases import ASPECTS
from astray.runtime.live_scores import TripScore
from astray.service.store import Connection


def trip_name(agent: str, trip: str) -> str:
    """What a trip is called in an address: its two names, each percent-encoded.

    >>> trip_name("a/b", "1970-01-01T00:00:00Z")
    'a%2Fb/1970-01-01T00%3A00%3A00Z'
    """
    return f"{quote(agent, safe='')}/{quote(trip, safe='')}"


def trip_of(name: str) -> TripId:
    """The trip that an address names.

    >>> trip_of("a%2Fb/1")
    TripId(agent='a/b', trajectory='1')
    """
    agent, slash, trip = name.partition("/")
    if not (agent and slash and trip) or "/" in trip:
        raise DataError("this is no trip's name", remedy="give agent/trip, each percent-encoded")
    return TripId(unquote(agent), unquote(trip))


def alert_id(agent: str, trip: str, ordinal: int) -> str:
    """The identity of an alert: the same whenever the same fixes are looked at again."""
    return hashlib.blake2b(f"{agent}\0{trip}\0{ordinal}".encode(), digest_size=10).hexdigest()


def finite(value: float | None) -> float | None:
    """A number, or None where there is none."""
    return None if value is None or not math.isfinite(value) else float(value)


def cause(trip: TripScore) -> str:
    """Why a trip is flagged, in a few words."""
    return ASPECTS.get(trip.aspect, f"unusual {trip.aspect}")


class Alert(NamedTuple):
    """An alert as the table has it."""

    id: str
    agent: str
    trip: str
    began: float  # the trip
    opened: float
    closed: float | None
    level: str  # anomaly or review
    words: str
    told: str  # yes, held or no; empty until that is decided
    reason: str
    late: bool
    at: float  # on our clock


ALERT = ", ".join(Alert._fields)


def put_alert(connection: Connection, alert: Alert) -> None:
    """Write an alert that is new."""
    connection.run(
        f"INSERT INTO alerts ({ALERT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        (*alert[:10], int(alert.late), alert.at),
    )


def put_event(
    connection: Connection, agent: str, trip: str, kind: str, ordinal: int, time: float, data: dict[str, Any]
) -> None:
    """Write an event; one that stands there already stays as it is."""
    connection.run(
        "INSERT INTO events (number, agent, trip, kind, ordinal, time, data) "
        "SELECT coalesce(max(number), 0) + 1, ?, ?, ?, ?, ?, ? FROM events WHERE true "
        "ON CONFLICT (agent, trip, kind, ordinal) DO NOTHING",
        (agent, trip, kind, ordinal, time, msgspec.json.encode(data).decode()),
    )
