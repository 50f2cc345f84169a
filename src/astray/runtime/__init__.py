"""Live: trips scored as they happen. One agent's open trip, and many agents in one stream of JSON lines."""

from __future__ import annotations

from astray.runtime.live_scores import LiveSegment, Score, TripScore
from astray.runtime.session import Session
from astray.runtime.stream import Summary
from astray.runtime.watcher import watch

__all__ = ["LiveSegment", "Score", "Session", "Summary", "TripScore", "watch"]
