"""astray: is this behaviour still normal for this agent?"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from astray import simulate
    from astray.core.trajectories import Trajectories
    from astray.core.trip_ids import TripId
    from astray.deprecated import FleetDetector, IRLDetector
    from astray.detector import Detector, load
    from astray.explain import Explanation
    from astray.readers import read
    from astray.scoring.decisions import ByContext, ByHour

__version__ = "0.3.0"

__all__ = [
    "ByContext",
    "ByHour",
    "Detector",
    "Explanation",
    "FleetDetector",
    "IRLDetector",
    "Trajectories",
    "TripId",
    "__version__",
    "load",
    "read",
    "simulate",
]

# Imported when first asked for, so that ``import astray`` is quick.
_HOMES = {
    "ByContext": "astray.scoring.decisions",
    "ByHour": "astray.scoring.decisions",
    "Detector": "astray.detector",
    "Explanation": "astray.explain",
    "FleetDetector": "astray.deprecated",
    "IRLDetector": "astray.deprecated",
    "Trajectories": "astray.core.trajectories",
    "TripId": "astray.core.trip_ids",
    "load": "astray.detector",
    "read": "astray.readers",
}


def __getattr__(name: str) -> Any:
    if name == "simulate":
        return importlib.import_module("astray.simulate")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'astray' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
