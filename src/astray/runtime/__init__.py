"""Scores trips while they happen: one agent's in a session or by a pure function, many agents' in one stream."""

from __future__ import annotations

from astray.runtime.agent_step import Fix, Tick, TripFinished, advance
from astray.runtime.agent_stream import AgentStream, AlertClosed, AlertOpened, FixScored, TripEnded
from astray.runtime.live_scores import LiveSegment, Score, TripScore
from astray.runtime.session import Session
from astray.runtime.stream import Summary
from astray.runtime.watcher import watch

__all__ = [
    "AgentStream",
    "AlertClosed",
    "AlertOpened",
    "Fix",
    "FixScored",
    "LiveSegment",
    "Score",
    "Session",
    "Summary",
    "Tick",
    "TripEnded",
    "TripFinished",
    "TripScore",
    "advance",
    "watch",
]
