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
    Packed,
    pack_calibration,
    pack_featurizer,
    pack_reward,
    pack_trips,
    unpack_calibration,
    unpack_featurizer,
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

    def pack(self) -> Packed:
        """Returns it as a model file holds it."""
        parts = [
            pack_reward("reward", self.reward),
            pack_trips("kept", self.kept),
            pack_calibration("calibration", self.calibration),
        ]
        if self.featurizer is not None:
            parts.append(pack_featurizer("featurizer", self.featurizer))
        if self.world is not None:
            w = self.world
            parts.append(Packed({}, {"world.mean": w.mean, "world.scale": w.scale, "world.waves": w.frequencies}))
        if self.generated is not None:
            parts.append(self.generated.pack("policy"))
        return Packed.together(parts)

    @classmethod
    def unpack(cls, model: Contents) -> StepModel:
        """Reads it from a model file."""
        reward, kept = unpack_reward(model, "reward"), unpack_trips(model, "kept")
        featurizer, world = None, None
        if "featurizer" in model.values:
            featurizer = unpack_featurizer(model, "featurizer")
            n_features = len(featurizer.names)
        else:
            width = sum(kept.columns[name].shape[1] for name in ("state", "action"))
            mean, scale = (model.array(f"world.{part}", np.float64, width) for part in ("mean", "scale"))
            world = StepDemonstrator(
                kept, NoDynamics(), mean, scale, model.array("world.waves", np.float64, width, None)
            )
            n_features = width + 2 * world.frequencies.shape[1]
        if n_features != len(reward.step.mean):
            raise model.wrong(f"its reward sees {len(reward.step.mean)} features, its featurizer gives {n_features}")
        generated = PolicyCheckpoint.unpack(model, "policy") if "policy.critic" in model.values else None
        return cls(reward, unpack_calibration(model, "calibration"), featurizer, world, kept, generated)
