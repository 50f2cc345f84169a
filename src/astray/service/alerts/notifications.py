"""Decides on each alert and writes its messages to the outbox, in the transaction of the alert."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote

import msgspec

from astray.core.zones import Zone
from astray.service import preferences
from astray.service.alerts.notify_rules import WEEK, PastAlert, decide
from astray.service.alerts.outlets import OUTLETS, OutletAddress
from astray.service.preferences import Preferences
from astray.service.scoring.event_rows import Alert, read_alert, trip_name
from astray.service.store import Connection

EVENTS = ("opened", "closed")
"""The events of an alert that have messages, in their order."""


def tell(connection: Connection, alert: str, zone: Zone, now: float, address: str = "") -> str:
    """Decides whether an alert is sent, and puts the messages about it into the outbox.

    ``address`` is that of the service's page, for the link. Returns the decision: yes, held or no.
    """
    wanted, found = preferences.load(connection), read_alert(connection, alert)
    if found is None:
        return "no"
    past = connection.rows("SELECT agent, at, told FROM alerts WHERE at > ? AND id <> ?", (now - WEEK, alert))
    paused = connection.value("SELECT paused_until FROM agents WHERE agent = ?", (found.agent,))
    decision = decide(found, (PastAlert(*row) for row in past), wanted, now, zone, paused)
    connection.run(
        "UPDATE alerts SET told = ?, reason = ? WHERE id = ? AND told = ''", (decision.told, decision.reason, alert)
    )
    if decision.told != "no":
        _put(connection, found, "opened", wanted, zone, decision.when, address)
    return decision.told


def tell_closed(connection: Connection, alert: str, zone: Zone, now: float, address: str = "") -> None:
    """Puts messages to programs into the outbox when an alert that was sent has ended."""
    found = read_alert(connection, alert)
    if found is not None and found.told in ("yes", "held"):
        _put(connection, found, "closed", preferences.load(connection), zone, now, address)


def message(alert: Alert, event: str, zone: Zone, address: str = "") -> dict[str, Any]:
    """Returns the message about an alert: fields for programs, ``title`` and ``text`` for people; places are left out.

    >>> alert = Alert("1f", "ana", "1", 0.0, 0.0, None, "anomaly", "never began here before (0 of 128 past trips)")
    >>> message(alert, "opened", Zone("Asia/Tokyo"))["text"]
    'ana, 09:00 on 1970-01-01 (Asia/Tokyo): never began here before (0 of 128 past trips)'
    """
    when = f"{zone.clock(alert.opened):%H:%M on %Y-%m-%d} ({zone.name})"
    late = ", reported late" if alert.late else ""
    said = "unusual trip" if event == "opened" else "usual again"
    return {
        "id": alert.id,
        "event": event,
        "agent": alert.agent,
        "trip": alert.trip,
        "time": alert.opened,
        "local": zone.iso(alert.opened),
        "zone": str(zone),
        "level": alert.level,
        "late": alert.late,
        "words": alert.words,
        "title": f"{alert.agent}: {said}{late}",
        "text": f"{alert.agent}, {when}: {alert.words}",
        "link": f"{address}/trip/{quote(trip_name(alert.agent, alert.trip), safe='')}" if address else None,
    }


def key_of(alert: str, event: str, outlet: OutletAddress) -> str:
    """Returns the key of a message, which stays the same if the service decides on the alert again."""
    return hashlib.blake2b(f"{alert}\0{event}\0{outlet.kind}\0{outlet.to}".encode(), digest_size=16).hexdigest()


def _put(
    connection: Connection, alert: Alert, event: str, wanted: Preferences, zone: Zone, when: float, address: str
) -> None:
    payload = msgspec.json.encode(message(alert, event, zone, address)).decode()
    for outlet in wanted.outlets:
        if event == "opened" or OUTLETS[outlet.kind].for_programs:
            connection.run(
                "INSERT INTO outbox (id, agent, outlet, payload, attempts, next_try) VALUES (?, ?, ?, ?, 0, ?) "
                "ON CONFLICT (id) DO NOTHING",
                (key_of(alert.id, event, outlet), alert.agent, f"{outlet.kind} {outlet.to}", payload, when),
            )
