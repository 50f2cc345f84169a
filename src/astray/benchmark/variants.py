"""astray in parts: the default with one thing changed at a time, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from astray.mdp.counterfactuals import DEFAULT_EXPLORERS, KINDS
from astray.mdp.familiarity import HEADING, ORIGIN, PLACE

WHOLE = "astray"
"""What every variant differs from in one thing."""

_LIKE_INJECTED = {
    "no detours": ("detour", "borrow", "turn_off"),
    "no reversing": ("reverse",),
    "no stops": ("stop",),
    "no other pace": ("pace",),
    "no other hour": ("hour",),
}
"""Which counterfactuals look like an injected anomaly: without them its kind is new to the reward."""

VARIANTS: dict[str, Mapping[str, Any]] = {
    "encoder: fourier": {"encoder": "fourier"},
    "encoder: raw": {"encoder": "raw"},
    "habits: place and heading and origin": {"view": {"habits": PLACE + HEADING + ORIGIN}},
    "haunts: none": {"view": {"haunts": ()}},
    "background: no policy": {"config": {"rollouts": 0}},
    "background: policy alone": {"weights": {"policy": 1.0}},
    "background: population alone": {"weights": {"population": 1.0}, "config": {"rollouts": 0}},
    "background: explorers alone": {"weights": {"explore": 1.0}, "config": {"rollouts": 0}},
    "explorers: of place alone": {"explorers": KINDS["place"]},
    **{
        f"explorers: {name}": {"explorers": tuple(e for e in DEFAULT_EXPLORERS if e not in alike)}
        for name, alike in _LIKE_INJECTED.items()
    },
    "one aspect": {"config": {"aspects": False}},
    "strays: all teach": {"config": {"suspicion": 0.0}},
    "objective: Eq. 9 with T = horizon": {"objective": "trajectory"},
    "objective: Eq. 9 with T = 1": {"objective": "trajectory", "config": {"temperature": 1.0}},
    "heads: one an iteration": {"config": {"all_heads": False}},
    "heads: 10 networks of 1": {"heads": 1, "networks": 10},
    "heads: randomised priors": {"config": {"reward": {"random_prior": 1.0}}},
    "preset: kdd19": {"preset": "kdd19"},
}
"""Options of an :class:`~astray.IRLDetector`; the population is at hand in all of them."""
