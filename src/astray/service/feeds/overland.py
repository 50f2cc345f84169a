"""Decodes Overland: batches of GeoJSON points, https://github.com/aaronpk/Overland-iOS#api."""

from __future__ import annotations

from typing import Any

from astray.core.fixes import number
from astray.runtime.json_fixes import Refused
from astray.service.batches import Batch
from astray.service.feeds.row_checks import Row, Sent, batch, document, mapping, text, whole


def decode(sent: Sent) -> Batch:
    """Decodes a batch; ignores the members ``current`` and ``trip``, because a later batch repeats them.

    The agent is the first of: the point's ``device_id``, the address (``?agent=ana``), the parameter ``agent``, the
    phone's ``unique_id``.
    """
    said = document(sent.body)
    if isinstance(said, Batch):
        return said
    rows = said.get("locations") if isinstance(said, dict) else None
    if not isinstance(rows, list):
        return whole('this is not an Overland batch: it has no list "locations"')
    named = sent.query.get("agent") or sent.agent
    found = batch(rows, lambda row: _point(row, named), sent.now)
    if not found.fixes and found.refused and all(row.agent is None for row in found.refused):
        return whole(found.refused[0].reason + "; enter a Device ID in the application")
    return found


def _point(said: Any, agent: str | None) -> Row | Refused | None:
    said = mapping(said)
    about, geometry = mapping(said.get("properties")), mapping(said.get("geometry"))
    if about.get("type") == "trip" or "action" in about:  # the record of a whole trip; a visit, a pause
        return None
    place = geometry.get("coordinates")
    if geometry.get("type") != "Point" or not isinstance(place, list) or len(place) < 2:
        return Refused("this is not a GeoJSON point")
    if number(about.get("horizontal_accuracy")) < 0:
        return Refused("the phone says that the position is not valid (horizontal_accuracy below 0)")
    who = text(about.get("device_id")) or agent or text(about.get("unique_id")) or None
    return Row(who, about.get("timestamp"), place[1], place[0], about.get("horizontal_accuracy"))
