"""Decodes GPSLogger: one fix in the query of an address that the user writes, https://gpslogger.app (Custom URL)."""

from __future__ import annotations

from astray.core.fixes import parts
from astray.service.batches import Batch
from astray.service.feeds.osmand import one
from astray.service.feeds.row_checks import Sent, fields


def decode(sent: Sent) -> Batch:
    """Decodes one fix: ``?lat=%LAT&lon=%LON&timestamp=%TIMESTAMP&acc=%ACC&id=ana``, or ``?%ALL``.

    The agent is the first of: ``id``, a name that tables use (``agent``, ``user``, ``device``, ...), the parameter
    ``agent``, the phone's serial number (``ser=%SER``; new phones hide it), Android's identifier (``aid=%AID``).
    """
    found = fields(sent)
    if isinstance(found, Batch):
        return found
    serial = found.get("ser", "")
    who = (
        found.get("id")
        or parts(found)[0].get("agent")
        or sent.agent
        or (serial if serial.lower() != "unknown" else "")
        or found.get("aid")
    )
    time = found.get("timestamp") or found.get("timeoffset") or found.get("time") or ""
    return one({**found, "timestamp": time}, who, sent.now)
