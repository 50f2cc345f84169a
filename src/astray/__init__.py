"""astray: is this behaviour still normal for this agent?"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from astray import simulate
    from astray.decide import ByContext, ByHour
    from astray.detectors.detector import IRLDetector
    from astray.detectors.fleet import FleetDetector
    from astray.explain import Explanation
    from astray.modelfile import load
    from astray.readers import read
    from astray.trajectories import Trajectories

__version__ = "0.2.0"

__all__ = [
    "ByContext",
    "ByHour",
    "Explanation",
    "FleetDetector",
    "IRLDetector",
    "Trajectories",
    "__version__",
    "load",
    "read",
    "simulate",
]

# Imported when first asked for, so that ``import astray`` is quick.
_HOMES = {
    "ByContext": "astray.decide",
    "ByHour": "astray.decide",
    "Explanation": "astray.explain",
    "FleetDetector": "astray.detectors.fleet",
    "IRLDetector": "astray.detectors.detector",
    "Trajectories": "astray.trajectories",
    "load": "astray.modelfile",
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
