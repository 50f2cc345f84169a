"""The eye: one step seen and rewarded, in the same arithmetic as a whole file but without its cost."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.detectors.scoring import Lens
from astray.irl.posterior import RewardPosterior
from astray.live.motion import Step
from astray.mdp.encoders import FamiliarityEncoder
from astray.mdp.familiarity import GRIDS, StepKeys

Array = NDArray[Any]


class Eye:
    """A lens and a reward, for one step after another.

    The familiarity encoder has a way of its own for single steps; the others, and a context, go through the same code
    as a file's rows do.
    """

    __slots__ = (
        "_context",
        "_degrees",
        "_familiarity",
        "_haunts",
        "_keys",
        "_log_history",
        "_memory",
        "_posterior",
        "lens",
    )

    def __init__(self, lens: Lens, posterior: RewardPosterior) -> None:
        self.lens = lens
        self._posterior = posterior
        encoder = lens.view.encoder
        self._keys: StepKeys | None = None
        self._context = lens.view.context if lens.view.context.names else None
        self._haunts = lens.view.haunts if lens.view.haunts.names else None
        self._degrees = lens.view.projection.to_degrees
        if isinstance(encoder, FamiliarityEncoder):
            self._memory = encoder.memory
            self._keys = StepKeys(encoder.habits, encoder.frame)
            self._familiarity: Array = np.zeros(len(encoder.habits), np.float32)
            self._log_history = float(np.log1p(encoder.memory.history))

    def features(self, step: Step, given: Array) -> NDArray[np.float32]:
        """What the reward sees of a step: (1, features)."""
        if self._keys is None:
            return self.lens.view.encode(step.row(given))
        keys = self._keys(step.time, (step.location, step.origin, *step.trail), step.velocity)
        if self._keys.changed:
            logs = np.log1p(self._memory.few_counts(keys)).reshape(-1, GRIDS)
            self._familiarity = np.add.reduce(logs, axis=1) / GRIDS
        vx, vy = step.velocity
        motion = (float(np.log1p(np.hypot(vx, vy))), vx / 10.0, vy / 10.0, float(np.log1p(step.elapsed / 60.0)))
        surroundings = () if self._context is None else self._context.encode(step.row(given))[0]
        others = (
            () if self._haunts is None else self._haunts.encode_one(*map(float, self._degrees(np.array(step.location))))
        )
        habits = len(self._familiarity)
        features = np.empty((1, habits + 5 + len(surroundings) + len(others)), np.float32)
        features[0, :habits] = self._familiarity
        features[0, habits:] = (*motion, self._log_history, *surroundings, *others)
        return features

    def rewards(self, step: Step, given: Array) -> NDArray[np.float32]:
        """The reward of a step under every head: (aspects, heads)."""
        return np.asarray(self._posterior(self.features(step, given))[0])
