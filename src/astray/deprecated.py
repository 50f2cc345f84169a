"""Names of version 0.2 that still work in 0.3, with a warning, and are gone in 0.4."""

from __future__ import annotations

import warnings
from typing import Any, Self

from numpy.typing import ArrayLike

from astray.core.trajectories import Trajectories
from astray.detector import Detector


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is deprecated and will be removed in astray 0.4: use {new}", DeprecationWarning, stacklevel=3)


class IRLDetector(Detector):
    """A :class:`~astray.Detector` that takes trips of several agents for a pool."""

    def __init__(self, **parameters: Any) -> None:
        _warn("IRLDetector", "Detector, with pooled=True for a pool of agents")
        super().__init__(**parameters)

    def fit(self, trips: Trajectories, y: ArrayLike | None = None, population: Trajectories | None = None) -> Self:
        """Learns what is normal for one agent, or for one pool."""
        self.pooled = len(trips.agents) > 1 or None
        return super().fit(trips, y, population)


class FleetDetector(Detector):
    """A :class:`~astray.Detector` of many agents."""

    def __init__(self, **parameters: Any) -> None:
        _warn("FleetDetector", "Detector")
        super().__init__(**{"pooled": False, **parameters})
