"""What applications send: a decoder for each format, and the answer that its sender expects.

A decoder is a pure function. Whatever it is given it gives a :class:`~astray.service.batches.Batch`; nothing raises.
Every fix in it has passed the checks that files and ``astray watch`` apply (:mod:`astray.core.fixes`,
:mod:`astray.core.times`). What cannot be used is in ``refused``, with its position and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from astray.service.batches import Batch, Receipt
from astray.service.feeds import gpslogger, osmand, overland, owntracks, plain_json, traccar
from astray.service.feeds.feed_answers import Answer, empty_list, listed, listed_strictly, result_ok

__all__ = ["FORMATS", "Answer", "Decoder", "Format"]


class Decoder(Protocol):
    """How every decoder is called."""

    def __call__(
        self, body: bytes, query: Mapping[str, str], headers: Mapping[str, str], now: float, agent: str | None = None
    ) -> Batch:
        """What a request holds. ``agent`` is whose it is if it names nobody; names of headers are in lower case."""


class Format(NamedTuple):
    """One format: where it is sent to, how, and what reads and answers it."""

    paths: tuple[str, ...]
    methods: tuple[str, ...]
    decode: Decoder
    answer: Callable[[Receipt], Answer]


FORMATS: Mapping[str, Format] = {
    "owntracks": Format(("/pub",), ("POST",), owntracks.decode, empty_list),
    "overland": Format(("/overland",), ("POST",), overland.decode, result_ok),
    "osmand": Format(("/osmand", "/osmand/{token}"), ("GET", "POST"), osmand.decode, listed),
    "traccar": Format(("/traccar",), ("POST",), traccar.decode, listed),
    "gpslogger": Format(("/gpslogger",), ("GET", "POST"), gpslogger.decode, listed),
    "plain": Format(("/api/fixes",), ("POST",), plain_json.decode, listed_strictly),
}
"""Every format by its name."""
