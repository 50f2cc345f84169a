"""Explanations: why a trip scored as it did, as plain data, in words, and the way that was expected instead."""

from __future__ import annotations

from astray.explain.expected_way import HABITUAL, Way, ways_on
from astray.explain.explanation import (
    ExplainedSegment,
    Explanation,
    explain_fixes,
    explain_segments,
    explain_steps,
    position_of,
)
from astray.explain.reasons import Reason
from astray.explain.segment_words import ASPECTS

__all__ = [
    "ASPECTS",
    "HABITUAL",
    "ExplainedSegment",
    "Explanation",
    "Reason",
    "Way",
    "explain_fixes",
    "explain_segments",
    "explain_steps",
    "position_of",
    "ways_on",
]
