"""Live: trips scored as they happen. One agent's open trip, and many agents in one stream of JSON lines."""

from __future__ import annotations

from astray.live.score import LiveSegment, Score, TripScore
from astray.live.session import Session
from astray.live.stream import Summary
from astray.live.watch import watch

__all__ = ["LiveSegment", "Score", "Session", "Summary", "TripScore", "watch"]
