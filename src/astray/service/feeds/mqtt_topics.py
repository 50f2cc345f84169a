"""Decodes messages of an MQTT broker: the topic gives the agent, the payload its format."""

from __future__ import annotations

import msgspec

from astray.service.batches import Batch
from astray.service.feeds import owntracks, plain_json, traccar

OWNTRACKS = "owntracks"


def decode(topic: str, payload: bytes, prefix: str, now: float) -> Batch:
    """Decodes a message under ``owntracks/USER/DEVICE``, ``PREFIX`` or ``PREFIX/AGENT``.

    Under the prefix there may be plain fixes, locations of OwnTracks, or positions that Traccar forwards
    (``forward.type=mqtt``). An agent's name may have slashes.

    >>> decode("fleet/van/3", b'{"time": 0, "lat": 45, "lon": 7}', "fleet", now=0.0).fixes[0].agent
    'van/3'
    """
    if not payload.strip():
        return Batch([], [])  # the broker deletes the retained message of this topic
    if topic.startswith(f"{OWNTRACKS}/"):
        return owntracks.decode(payload, {"u": owntracks.of_topic(topic)}, {}, now)
    agent = topic.removeprefix(prefix).strip("/") or None
    try:
        said = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        said = None  # several lines, or no JSON
    if isinstance(said, dict) and "_type" in said:
        return owntracks.locations(said, agent or "", now)
    if isinstance(said, dict) and ("position" in said or "location" in said):
        return traccar.positions(said, now, agent)
    return plain_json.decode(payload, {}, {}, now, agent)
