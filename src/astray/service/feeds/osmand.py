"""Decodes the OsmAnd protocol: one fix in the fields of an address or a form, https://www.traccar.org/osmand/.

OsmAnd's live tracking, Traccar Client up to version 8 and many small trackers use it. astray computes speed and course
from the fixes, and ignores those that are sent.
"""

from __future__ import annotations

from collections.abc import Mapping

from astray.runtime.json_fixes import Refused
from astray.service.batches import Batch
from astray.service.feeds import traccar
from astray.service.feeds.row_checks import Row, Sent, batch, fields, whole


def decode(sent: Sent) -> Batch:
    """Decodes one fix: ``id`` or ``deviceid``; ``lat`` and ``lon``, or ``location``; ``timestamp`` (default: now).

    A JSON body comes from Traccar Client, version 9 or later.

    >>> decode(Sent(b"", {"id": "17", "location": "60.0,30.0", "timestamp": "1377177267"}, {}, now=1.5e9)).fixes
    [FeedFix(agent='17', time=1377177267.0, lat=60.0, lon=30.0, trip='', destination=None, accuracy=None)]
    """
    if sent.headers.get("content-type", "").startswith("application/json") and not sent.query.get("lat"):
        return traccar.decode(sent)
    found = fields(sent)
    if isinstance(found, Batch):
        return found
    return one(found, found.get("id") or found.get("deviceid") or sent.agent, sent.now)


def one(found: Mapping[str, str], who: str | None, now: float) -> Batch:
    """Reads one fix from fields."""
    if not who:
        return whole("the fix names no agent; put id=NAME into the address")
    if found.get("valid", "true").lower() not in ("true", "1"):
        return batch([found], lambda _: Refused("the receiver says that the position is not valid"), now)
    lat, lon = found.get("lat"), found.get("lon")
    if lat is None and lon is None and "location" in found:
        lat, _, lon = found["location"].partition(",")
    time = found.get("timestamp") or now
    return batch([Row(who, time, lat, lon, found.get("accuracy") or found.get("acc"))], lambda row: row, now)
