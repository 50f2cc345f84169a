"""Names of version 0.2 that still work in 0.3, with a warning, and are gone in 0.4."""

from __future__ import annotations

import warnings
from typing import Any, Self

from numpy.typing import ArrayLike

from astray.core.trajectories import Trajectories
from astray.detector import Detector
from astray.features.featurizer import Featurizer
from astray.model.configuration import learn_config
from astray.model.memories import Memories
from astray.model.plain_values import plain
from astray.model.steps_world import Steps


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

    @property
    def config_(self) -> dict[str, Any]:
        """The settings of learning, as plain values."""
        _warn("config_", "get_params()")
        world = self.fitted
        return world.learning if isinstance(world, Steps) else dict(plain(learn_config(self, gps=True)))

    @property
    def featurizer_(self) -> Featurizer | None:
        """How GPS trips are seen; None for states and actions."""
        _warn("featurizer_", "agent_model().featurizer")
        world = self.fitted
        return world.featurizer if isinstance(world, Steps) else self.agent_model().featurizer

    @property
    def kept_(self) -> Trajectories | None:
        """Some of the past trips; None if none is kept."""
        _warn("kept_", "memories_[agent].kept")
        world = self.fitted
        return world.trained.kept if isinstance(world, Steps) else next(iter(self.memories_.values())).kept


class FleetDetector(Detector):
    """A :class:`~astray.Detector` of many agents."""

    def __init__(self, **parameters: Any) -> None:
        _warn("FleetDetector", "Detector")
        super().__init__(**{"pooled": False, **parameters})

    @property
    def members_(self) -> Memories:
        """What the model knows of each agent."""
        _warn("members_", "memories_")
        return self.memories_
