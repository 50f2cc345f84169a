"""Defines what feeds and scoring exchange: a batch of checked fixes and refused rows, and its receipt."""

from __future__ import annotations

from typing import NamedTuple

from astray.core.errors import AstrayError
from astray.core.projection import Place

MAX_AHEAD = 600.0
"""How many seconds a sender's clock may be ahead; a fix further ahead would make all later ones count as late."""


class FeedFix(NamedTuple):
    """One fix of an agent, checked: seconds since 1970 and degrees."""

    agent: str
    time: float
    lat: float
    lon: float
    trip: str = ""  # the name of its trip, if the feed names trips
    destination: Place | None = None  # the planned end of the trip (lat, lon), if the feed knows it
    accuracy: float | None = None  # in metres, if the receiver reports it

    @property
    def step(self) -> tuple[float, float, float, str, Place | None]:
        """The fix as a stream takes it: time, place, trip and destination."""
        return self[1:6]


class RefusedRow(NamedTuple):
    """A row of a message that cannot be used: its position, the reason, and its agent if known."""

    index: int  # type: ignore[assignment]  # a tuple has a method of that name
    reason: str
    agent: str | None = None


class Batch(NamedTuple):
    """The contents of one message of a feed."""

    fixes: list[FeedFix]
    refused: list[RefusedRow]


class Receipt(NamedTuple):
    """What the service did with a batch; sent when the batch is on the disk."""

    accepted: int  # fixes that are stored, including those stored before
    refused: list[RefusedRow]
    duplicates: int = 0  # fixes that were stored before
    failed: str = ""  # why nothing could be stored; the sender should send the batch again


class Busy(AstrayError):
    """The queue of the service is full; the sender should try again later."""
