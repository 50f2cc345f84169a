"""Explains a trip's score: as data, in words, and with the route that was expected instead."""

from __future__ import annotations

from astray.explain.expected_route import HABITUAL, Way, ways_on
from astray.explain.explanation import (
    ExplainedSegment,
    Explanation,
    explain_fixes,
    explain_segments,
    explain_steps,
    position_of,
)
from astray.explain.score_attribution import Reason
from astray.explain.segment_phrases import ASPECTS, counts_in_words, familiar_counts

__all__ = [
    "ASPECTS",
    "HABITUAL",
    "ExplainedSegment",
    "Explanation",
    "Reason",
    "Way",
    "counts_in_words",
    "explain_fixes",
    "explain_segments",
    "explain_steps",
    "familiar_counts",
    "position_of",
    "ways_on",
]
