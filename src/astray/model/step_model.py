"""All that learning a reward of steps gives, and how a model file holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.features.featurizer import Featurizer
from astray.irl.shared import Reward
from astray.irl.step_demonstrator import StepDemonstrator
from astray.model.checkpoint import PolicyCheckpoint
from astray.model.packing import Contents
from astray.model.parts import (
    featurizer_fields,
    trip_fields,
    unpack_calibration,
    unpack_featurizer,
    unpack_policy,
    unpack_reward,
    unpack_trips,
)
from astray.scoring.normality import Calibration

Array = NDArray[Any]


class NoDynamics:
    """The dynamics of a world that came out of a file: a model file holds none, so nobody can act in it."""

    def reset(self, n: int, rng: np.random.Generator) -> Array:
        """Refuses to begin."""
        raise DataError(
            "a model file holds no dynamics", remedy="call set_params(dynamics=...) before letting a policy act"
        )

    def step(self, states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        """Refuses to go on."""
        return self.reset(len(states), rng), np.zeros(len(states), bool)


@dataclass(frozen=True, eq=False)
class StepModel:
    """All that learning a reward of steps gives."""

    reward: Reward
    calibration: Calibration  # what scores are measured on
    featurizer: Featurizer | None  # of GPS trips
    world: StepDemonstrator | None  # of states and actions
    kept: Trajectories  # some past trajectories, thinned
    generated: PolicyCheckpoint | None = None  # the policy and its critic

    def fields(self) -> dict[str, Any]:
        """Returns what a model file holds of it."""
        w = self.world
        return {
            "reward": self.reward,
            "calibration": self.calibration,
            "featurizer": None if self.featurizer is None else featurizer_fields(self.featurizer),
            "world": None if w is None else {"mean": w.mean, "scale": w.scale, "waves": w.frequencies},
            "kept": trip_fields(self.kept),
            "policy": self.generated,
        }

    @classmethod
    def unpack(cls, model: Contents) -> StepModel:
        """Reads it from a model file."""
        reward, kept = unpack_reward(model, "reward"), unpack_trips(model.within("kept"))
        featurizer, world = None, None
        if model.values.get("featurizer") is not None:
            featurizer = unpack_featurizer(model.within("featurizer"))
            n_features = len(featurizer.names)
        else:
            width = sum(kept.columns[name].shape[1] for name in ("state", "action"))
            inside = model.within("world")
            mean, scale = (inside.array(part, np.float64, width) for part in ("mean", "scale"))
            waves = inside.array("waves", np.float64, width, None)
            world = StepDemonstrator(kept, NoDynamics(), mean, scale, waves)
            n_features = width + 2 * waves.shape[1]
        if n_features != len(reward.step.mean):
            raise model.wrong(f"its reward sees {len(reward.step.mean)} features, its featurizer gives {n_features}")
        calibration, policy = unpack_calibration(model, "calibration"), unpack_policy(model, "policy")
        return cls(reward, calibration, featurizer, world, kept, policy)
