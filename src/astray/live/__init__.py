"""Live: trips scored as they happen. One agent's open trip, and many agents in one stream of JSON lines."""

from __future__ import annotations

from astray.live.score import Score, Stretch, TripScore
from astray.live.session import Session
from astray.live.stream import Summary
from astray.live.watch import watch

__all__ = ["Score", "Session", "Stretch", "Summary", "TripScore", "watch"]
