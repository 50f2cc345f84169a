"""What a feed brings: fixes that can be used, and rows that cannot, with the reason; and what became of a batch."""

from __future__ import annotations

from typing import NamedTuple

from astray.core.errors import AstrayError
from astray.core.projection import Place

MAX_AHEAD = 600.0
"""Seconds that a sender's clock may be ahead of ours; a fix that is further ahead would make all others late."""


class FeedFix(NamedTuple):
    """One fix of an agent, checked: seconds since 1970 and degrees."""

    agent: str
    time: float
    lat: float
    lon: float
    trip: str = ""  # its name, where the feed names trips
    destination: Place | None = None  # where the trip is meant to end (lat, lon), where the feed knows that
    accuracy: float | None = None  # in metres, where the receiver says it


class RefusedRow(NamedTuple):
    """A row of a message that cannot be used: its position, why, and whose it is if that is known."""

    index: int  # type: ignore[assignment]  # a tuple has a method of that name
    reason: str
    agent: str | None = None


class Batch(NamedTuple):
    """What one message of a feed holds."""

    fixes: list[FeedFix]
    refused: list[RefusedRow]


class Receipt(NamedTuple):
    """What became of a batch, once that is on the disk."""

    accepted: int  # fixes that are stored, those that were stored before among them
    refused: list[RefusedRow]
    duplicates: int = 0  # fixes that were stored before
    failed: str = ""  # why nothing of it could be stored; the sender should send it again


class Busy(AstrayError):
    """The queue of the service is full; the sender should try again later."""
