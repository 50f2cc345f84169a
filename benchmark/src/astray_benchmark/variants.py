"""The variants of the ablation: astray's default with one thing changed at a time, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WHOLE = "astray"
"""The default, from which every variant differs in one thing."""

PRETRAINED: Mapping[str, Any] = {"preset": "shared", "sharing": {"max_agents": 1}}
"""The shipped reward without further learning, for which one agent would not suffice; it counts where others go."""

VARIANTS: dict[str, Mapping[str, Any]] = {
    "look for: place alone": {"look_for": ("place",)},
    "look for: all alike": {"look_for": ("place", "route", "manner", "time")},
    "reward: pretrained alone": PRETRAINED,
    "strays: all remembered": {"suspect": False},
    "encoder: fourier": {"encoder": "fourier"},
    "encoder: raw": {"encoder": "raw"},
    "preset: kdd19": {"preset": "kdd19"},
}
"""The options of an :class:`~astray.Detector` that also gets the population.

The last three learn the person's own reward of steps, because the shared reward does not know their features.
"""
