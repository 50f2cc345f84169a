"""Writes events, alerts and the audit. The same fixes give the same events and alerts, so a replay adds none."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from astray.core.errors import DataError
from astray.core.trip_ids import TripId
from astray.service.store import Connection


def trip_name(agent: str, trip: str) -> str:
    """Returns the name of a trip in an address: the agent and the trip, each percent-encoded.

    >>> trip_name("a/b", "1970-01-01T00:00:00Z")
    'a%2Fb/1970-01-01T00%3A00%3A00Z'
    """
    return f"{quote(agent, safe='')}/{quote(trip, safe='')}"


def trip_of(name: str) -> TripId:
    """Returns the trip that an address names.

    >>> trip_of("a%2Fb/1")
    TripId(agent='a/b', trajectory='1')
    """
    agent, slash, trip = name.partition("/")
    if not (agent and slash and trip) or "/" in trip:
        raise DataError("this is not a trip's name", remedy="give agent/trip, each percent-encoded")
    return TripId(unquote(agent), unquote(trip))


def finite(value: float | None) -> float | None:
    """Returns a number; None instead of NaN and infinity, which JSON and SQL columns lack."""
    return None if value is None or not math.isfinite(value) else float(value)


class Alert(NamedTuple):
    """A row of the table of alerts."""

    id: str
    agent: str
    trip: str
    began: float  # when the trip began
    opened: float  # the time of the fix at which it opened
    closed: float | None
    level: str  # "anomaly", or "review" where the model is not sure
    words: str
    told: str = ""  # yes if it is sent, held or no; empty until that is decided
    reason: str = ""  # why it is held or not sent
    late: bool = False  # True if its fixes came after the trip was over
    at: float = 0.0  # when it was written, by the service's clock

    @classmethod
    def of(cls, row: Sequence[Any]) -> Alert:
        """Makes an alert from the columns :data:`ALERT` of a row."""
        alert = cls(*row)
        return alert._replace(late=bool(alert.late))


ALERT = ", ".join(Alert._fields)


def alert_id(agent: str, trip: str, ordinal: int) -> str:
    """Returns the id of an alert, which is the same when the same fixes are scored again."""
    return hashlib.blake2b(f"{agent}\0{trip}\0{ordinal}".encode(), digest_size=10).hexdigest()


def read_alert(connection: Connection, alert: str) -> Alert | None:
    """Reads an alert by its id; None if there is none."""
    row = connection.row(f"SELECT {ALERT} FROM alerts WHERE id = ?", (alert,))
    return None if row is None else Alert.of(row)


def put_alert(connection: Connection, alert: Alert) -> None:
    """Writes a new alert."""
    connection.run(
        f"INSERT INTO alerts ({ALERT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        (*alert[:10], int(alert.late), alert.at),
    )


def put_event(
    connection: Connection, agent: str, trip: str, kind: str, ordinal: int, time: float, data: dict[str, Any]
) -> None:
    """Writes an event, unless it was written before."""
    connection.run(
        "INSERT INTO events (number, agent, trip, kind, ordinal, time, data) "
        "SELECT coalesce(max(number), 0) + 1, ?, ?, ?, ?, ?, ? FROM events WHERE true "
        "ON CONFLICT (agent, trip, kind, ordinal) DO NOTHING",
        (agent, trip, kind, ordinal, time, msgspec.json.encode(data).decode()),
    )


def put_audit(connection: Connection, at: float, who: str, what: str, agent: str | None, details: str) -> None:
    """Writes a line of the audit: who did what."""
    connection.run(
        "INSERT INTO audit (number, at, who, what, agent, details) "
        "SELECT coalesce(max(number), 0) + 1, ?, ?, ?, ?, ? FROM audit",
        (at, who, what, agent, details),
    )
