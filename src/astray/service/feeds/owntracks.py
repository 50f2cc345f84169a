"""Decodes OwnTracks, over HTTP and MQTT: https://owntracks.org/booklet/tech/json/ and .../tech/http/.

A message is one JSON object with ``_type``. Only locations are fixes; transitions, waypoints, last wills and the like
are ignored. An empty body means that a friend was deleted. The agent is ``user/device``.
"""

from __future__ import annotations

from typing import Any

from astray.service.batches import Batch
from astray.service.feeds.row_checks import Row, Sent, batch, document, mapping, text, whole

ENCRYPTED = "the message is encrypted; turn encryption off in the application, and use https or TLS instead"


def decode(sent: Sent) -> Batch:
    """Decodes one posted message, or a list of them.

    The agent is the first of: the address (``?u=ana&d=phone``), the headers ``X-Limit-U`` and ``X-Limit-D``, the
    message's ``topic``, the parameter ``agent``, the message's ``tid``.

    >>> body = b'{"_type": "location", "lat": 48.85, "lon": 2.295, "tid": "JJ", "tst": 1497476456}'
    >>> decode(Sent(body, {"u": "jane", "d": "phone"}, {}, now=1.5e9)).fixes[0].agent
    'jane/phone'
    """
    if not sent.body.strip():
        return Batch([], [])
    said = document(sent.body)
    if isinstance(said, Batch):
        return said
    names = sent.query.get("u"), sent.query.get("d")
    who = _joined(*names) or _joined(sent.headers.get("x-limit-u"), sent.headers.get("x-limit-d"))
    return locations(said, who, sent.now, sent.agent)


def locations(said: Any, who: str, now: float, agent: str | None = None) -> Batch:
    """Reads the locations in one message or several; ``who`` takes precedence over the names in a message."""
    rows = said if isinstance(said, list) else [said]
    if not all(isinstance(row, dict) and isinstance(row.get("_type"), str) for row in rows):
        return whole("this is not an OwnTracks message: it is not a JSON object with a _type")
    if any(row["_type"] == "encrypted" for row in rows):
        return whole(ENCRYPTED)
    found = batch(rows, lambda row: _location(row, who, agent), now)
    if not found.fixes and found.refused and all(row.agent is None for row in found.refused):
        return whole("the location names no agent; enter a user name and a device in the application")
    return found


def of_topic(topic: str) -> str:
    """Returns the agent of a topic.

    >>> of_topic("owntracks/ana/phone"), of_topic("owntracks")
    ('ana/phone', '')
    """
    parts = topic.split("/")
    return _joined(*parts[-2:]) if len(parts) >= 3 else ""


def _location(said: Any, who: str, agent: str | None) -> Row | None:
    said = mapping(said)
    if said["_type"] != "location":
        return None
    named = who or of_topic(text(said.get("topic"))) or agent or text(said.get("tid")) or None
    return Row(named, said.get("tst"), said.get("lat"), said.get("lon"), said.get("acc"))


def _joined(user: str | None, device: str | None) -> str:
    return "/".join(part.strip() for part in (user, device) if part and part.strip())
