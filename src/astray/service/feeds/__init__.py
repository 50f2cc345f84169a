"""Takes feeds: has a decoder for each format that trackers send, and the answer that its sender expects.

To add a feed, write a file with a decoder and name it in :data:`FORMATS`. A decoder is a pure function that returns a
:class:`~astray.service.batches.Batch` and never raises. Every fix in the batch has passed the checks that files and
``astray watch`` apply (:mod:`astray.core.fixes`, :mod:`astray.core.times`). Rows that cannot be used are in
``refused``, with their position and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from starlette.responses import Response

from astray.service.batches import Batch, Receipt
from astray.service.feeds import gpslogger, osmand, overland, owntracks, plain_json, traccar
from astray.service.feeds.feed_answers import empty_list, listed, listed_strictly, result_ok
from astray.service.feeds.row_checks import Sent

__all__ = ["FEEDS", "FORMATS", "Format"]


class Format(NamedTuple):
    """A format: its address and methods, its decoder and its answer."""

    path: str
    methods: tuple[str, ...]
    decode: Callable[[Sent], Batch]
    answer: Callable[[Receipt], Response]


FORMATS: Mapping[str, Format] = {
    "owntracks": Format("/pub", ("POST",), owntracks.decode, empty_list),
    "overland": Format("/overland", ("POST",), overland.decode, result_ok),
    "osmand": Format("/osmand", ("GET", "POST"), osmand.decode, listed),
    "traccar": Format("/traccar", ("POST",), traccar.decode, listed),
    "gpslogger": Format("/gpslogger", ("GET", "POST"), gpslogger.decode, listed),
    "plain": Format("/api/fixes", ("POST",), plain_json.decode, listed_strictly),
}
"""Maps names to formats."""

FEEDS: Mapping[str, Format] = {form.path: form for form in FORMATS.values()}
"""Maps addresses to formats; a sender may append its token to an address (``/osmand/TOKEN``)."""
