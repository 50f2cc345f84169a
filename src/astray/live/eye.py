"""One step seen, in the same arithmetic as a whole file but without its cost."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.live.motion import Step
from astray.mdp.encoders import FamiliarityEncoder
from astray.mdp.familiarity import GRIDS, StepKeys
from astray.mdp.memory import Memory
from astray.mdp.view import View

Array = NDArray[Any]


def few_familiar(keys: Array, memory: Memory) -> NDArray[np.float32]:
    """The familiarity of keys (..., grids), as in :func:`~astray.mdp.familiarity.familiarity`: no table is made."""
    logs = np.log1p(memory.few_counts(keys.ravel())).reshape(keys.shape)
    found: NDArray[np.float32] = np.add.reduce(logs, axis=-1) / GRIDS
    return found


class Eye:
    """A view, for one step after another.

    The familiarity encoder has a way of its own for single steps; the others, and a context, go through the same code
    as a file's rows do.
    """

    __slots__ = ("_context", "_keys", "_log_history", "_memory", "familiar", "keys", "view")

    def __init__(self, view: View) -> None:
        self.view = view
        self.keys: Array = np.zeros((0, GRIDS), np.uint64)  # of the last step: (habits, grids)
        self.familiar: Array = np.zeros(0, np.float32)  # of the last step: (habits,)
        encoder = view.encoder
        self._keys: StepKeys | None = None
        self._context = view.context if view.context.names else None
        if isinstance(encoder, FamiliarityEncoder):
            self._memory = encoder.memory
            self._keys = StepKeys(encoder.habits, encoder.frame)
            self._log_history = float(np.log1p(encoder.memory.history))

    def features(self, step: Step, given: Array) -> NDArray[np.float32]:
        """What the reward sees of a step: (1, features)."""
        if self._keys is None:
            return self.view.encode(step.row(given))
        keys = self._keys(step.time, (step.location, step.origin, *step.trail), step.velocity)
        if self._keys.changed:
            self.keys = keys.reshape(-1, GRIDS).copy()
            self.familiar = few_familiar(self.keys, self._memory)
        vx, vy = step.velocity
        motion = (float(np.log1p(np.hypot(vx, vy))), vx / 10.0, vy / 10.0, float(np.log1p(step.elapsed / 60.0)))
        surroundings = () if self._context is None else self._context.encode(step.row(given))[0]
        habits = len(self.familiar)
        features = np.empty((1, habits + 5 + len(surroundings)), np.float32)
        features[0, :habits] = self.familiar
        features[0, habits:] = (*motion, self._log_history, *surroundings)
        return features
