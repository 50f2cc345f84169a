"""Decodes Traccar: its phone application since version 9, and its server's forwarded positions.

The application sends ``{"device_id": ..., "location": {"timestamp": ..., "coords": {...}}}``, the server (with
``forward.type=json``) ``{"position": {...}, "device": {...}}``: https://github.com/traccar/traccar,
OsmAndProtocolDecoder and PositionData.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from astray.runtime.json_fixes import Refused
from astray.service.batches import Batch
from astray.service.feeds.row_checks import Row, Sent, batch, document, mapping, text, whole


def decode(sent: Sent) -> Batch:
    """Decodes a message of the application or of the server; the body shows which of them sent it."""
    said = document(sent.body)
    return said if isinstance(said, Batch) else positions(said, sent.now, sent.agent)


def positions(said: Any, now: float, agent: str | None = None) -> Batch:
    """Reads the positions in a message that is already parsed."""
    said = mapping(said)
    if "position" in said:
        device = mapping(said.get("device"))
        who = text(device.get("uniqueId")) or text(device.get("name")) or agent or ""
        if not who:
            return whole("the position names no agent; there is no uniqueId of a device")
        return batch([said["position"]], lambda given: _forwarded(mapping(given), who), now)
    if "location" in said:
        who = text(said.get("device_id")) or agent or ""
        if not who:
            return whole("the location names no agent; there is no device_id")
        given = said["location"]
        return batch(given if isinstance(given, list) else [given], lambda row: _of_phone(mapping(row), who), now)
    return whole('this is not a Traccar message: it has neither a "location" nor a "position"')


def _forwarded(position: Mapping[str, Any], who: str) -> Row | Refused:
    if position.get("outdated") is True:
        return Refused("Traccar says that the position is outdated")
    if position.get("valid") is False:
        return Refused("Traccar says that the position is not valid")
    accuracy = position.get("accuracy") or None  # 0 if the tracker does not report it
    return Row(who, position.get("fixTime"), position.get("latitude"), position.get("longitude"), accuracy)


def _of_phone(location: Mapping[str, Any], who: str) -> Row:
    coords = mapping(location.get("coords"))
    return Row(who, location.get("timestamp"), coords.get("latitude"), coords.get("longitude"), coords.get("accuracy"))
