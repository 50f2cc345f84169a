"""astray in parts: the default with one thing changed at a time, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WHOLE = "astray"
"""What every variant differs from in one thing."""

PRETRAINED: Mapping[str, Any] = {"preset": "shared", "sharing": {"max_agents": 1}}
"""One agent cannot be told from others: so the shipped reward learns nothing, and only counts where they go."""

VARIANTS: dict[str, Mapping[str, Any]] = {
    "look for: place alone": {"look_for": ("place",)},
    "look for: all alike": {"look_for": ("place", "route", "manner", "time")},
    "reward: pretrained alone": PRETRAINED,
    "strays: all remembered": {"suspect": False},
    "encoder: fourier": {"encoder": "fourier"},
    "encoder: raw": {"encoder": "raw"},
    "preset: kdd19": {"preset": "kdd19"},
}
"""Options of an :class:`~astray.Detector`; the population is at hand in all of them.

The reward of the last three is the person's own, and of steps: the shared one does not know what they see.
"""
