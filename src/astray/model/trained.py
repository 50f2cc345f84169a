"""All that a detector of one agent has after learning, and how a model file holds it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.features.featurizer import Featurizer
from astray.irl.shared import Reward
from astray.irl.step_demonstrator import StepDemonstrator
from astray.model.checkpoint import PolicyCheckpoint
from astray.model.files import ModelFile
from astray.model.inbox import Inbox, pack_inbox, unpack_inboxes
from astray.model.parts import (
    Packed,
    pack_calibration,
    pack_featurizer,
    pack_ids,
    pack_reward,
    pack_trips,
    unpack_calibration,
    unpack_featurizer,
    unpack_ids,
    unpack_reward,
    unpack_table,
    unpack_trips,
)
from astray.scoring.normality import Calibration, Location
from astray.scoring.own_scale import OwnScores
from astray.scoring.scale_config import ScaleConfig

Array = NDArray[Any]


class Unknown:
    """The dynamics of a world that came out of a file: it can be looked at, but not acted in."""

    def reset(self, n: int, rng: np.random.Generator) -> Array:
        """Refuse to begin."""
        raise DataError(
            "a model file holds no dynamics", remedy="call set_params(dynamics=...) before letting a policy act"
        )

    def step(self, states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
        """Refuse to go on."""
        return self.reset(len(states), rng), np.zeros(len(states), bool)


@dataclass(frozen=True, eq=False)
class Trained:
    """All that a detector has after learning, and all that its file holds beside the parameters."""

    reward: Reward
    calibration: Calibration | None  # of a reward of the agent's own; None: by its own past trips
    featurizer: Featurizer | None  # for GPS
    world: StepDemonstrator | None  # for states and actions
    kept: Trajectories
    generated: PolicyCheckpoint | None = None
    own: OwnScores = field(default_factory=OwnScores)  # what the remembered trips score by a shared reward
    suspects: tuple[TripId, ...] = ()  # past trips that were taken for somebody else's
    inbox: Inbox = field(default_factory=Inbox)  # flagged trips that nothing was learned from

    def pack(self) -> Packed:
        """As a model file holds it."""
        parts = [
            pack_reward("reward", self.reward),
            pack_trips("kept", self.kept),
            Packed({}, pack_ids("suspects", self.suspects)),
        ]
        if self.calibration is not None:
            parts.append(pack_calibration("calibration", self.calibration))
        else:
            parts.append(Packed({"own_step": self.own.step}, {"own_scores": self.own.trips}))
            parts.append(pack_inbox("inbox", self.inbox))
        if self.featurizer is not None:
            parts.append(pack_featurizer("featurizer", self.featurizer))
        if self.world is not None:
            w = self.world
            parts.append(Packed({}, {"world.mean": w.mean, "world.scale": w.scale, "world.waves": w.frequencies}))
        if self.generated is not None:
            parts.append(self.generated.pack("policy"))
        return Packed.together(parts)

    @classmethod
    def unpack(cls, model: ModelFile) -> Trained:
        """Out of a model file."""
        reward, kept = unpack_reward(model, "reward"), unpack_trips(model, "kept")
        if "history" in model.values:  # files of version 4 hold it beside the reward
            reward = replace(reward, history=unpack_table(model, "history"))
        featurizer = unpack_featurizer(model, "featurizer") if kept.is_gps else None
        world, n_features = None, 0 if featurizer is None else len(featurizer.names)
        if featurizer is None:
            width = sum(kept.columns[name].shape[1] for name in ("state", "action"))
            mean, scale = (model.array(f"world.{part}", np.float64, width) for part in ("mean", "scale"))
            world = StepDemonstrator(kept, Unknown(), mean, scale, model.array("world.waves", np.float64, width, None))
            n_features = width + 2 * world.frequencies.shape[1]
        if n_features != len(reward.step.mean):
            raise model.wrong(f"its reward sees {len(reward.step.mean)} features, its featurizer gives {n_features}")
        own, calibration, inbox = OwnScores(), None, Inbox()
        if "calibration" in model.values:
            least_segment = ScaleConfig.least_segment if kept.is_gps else ScaleConfig.least_segment_steps
            calibration = unpack_calibration(model, "calibration", least_segment)
        else:
            if featurizer is None or reward.trip is None or len(reward.trip.mean) != len(featurizer.statistics):
                raise model.wrong("its trip reward and its featurizer do not fit together")
            step = model.value("own_step", tuple[float, float] | None)
            scores = model.array("own_scores", np.float32, len(featurizer.memory), 2, len(reward.aspects), gaps=True)
            own = OwnScores(scores, None if step is None else Location(*step))
            inbox = unpack_inboxes(model, "inbox", 1)[0]
        return cls(
            reward,
            calibration,
            featurizer,
            world,
            kept,
            PolicyCheckpoint.unpack(model, "policy") if "policy.critic" in model.values else None,
            own,
            tuple(unpack_ids(model, "suspects")),
            inbox,
        )
