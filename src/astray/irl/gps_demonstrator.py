"""The demonstrator of GPS trips: steps in metres and seconds, the counterfactuals of its trips, and its dynamics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.features.encoders import scores_of
from astray.features.familiarity import WEEK
from astray.features.featurizer import Featurizer
from astray.features.hashing import changes
from astray.features.paths import make_paths, of_trips, resample
from astray.features.steps import Steps
from astray.irl.counterfactuals import Counterfactual, explore
from astray.irl.demonstrations import Rows
from astray.irl.dynamics import Dynamics, Integrator, ScoredIntegrator
from astray.irl.keyed_trips import KeyedTrips

if TYPE_CHECKING:
    from astray.irl.policy import Rollout

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class GpsDemonstrator:
    """An agent that demonstrates GPS trips; steps are in metres and seconds."""

    featurizer: Featurizer  # its memory must hold the demonstrations (:meth:`of` adds them)
    fixes: Trajectories  # the demonstrations
    paths: Trajectories = field(repr=False)  # of the demonstrations, resampled to the featurizer's interval
    explorers: Mapping[str, Counterfactual] = field(default_factory=dict)  # the user's own counterfactuals

    @classmethod
    def of(
        cls,
        fixes: Trajectories,
        featurizer: Featurizer,
        explorers: Mapping[str, Counterfactual] | None = None,
        paths: Trajectories | None = None,
    ) -> GpsDemonstrator:
        """Makes a demonstrator of an agent's trips; adds trips to the featurizer's memory that are not there yet.

        ``paths`` are the paths of the trips, if the caller has them already.
        """
        new = ~fixes.isin(featurizer.memory.trip_ids)
        featurizer = featurizer.remember(fixes[new]) if new.any() else featurizer
        paths = resample(featurizer.paths(fixes) if paths is None else paths, featurizer.config.interval)
        paths = paths[paths.lengths > 1]  # a path of one point has no step
        if not len(paths):
            raise DataError(
                "no trajectory has two usable fixes at different times, so there is nothing to learn from",
                remedy="give trips with more fixes",
            )
        return cls(featurizer, fixes, paths, explorers or {})

    def __getitem__(self, which: NDArray[np.bool_]) -> GpsDemonstrator:
        """Returns a demonstrator of some of the demonstrations; the others stay in the memory."""
        return replace(self, fixes=self.fixes[which], paths=of_trips(self.paths, np.flatnonzero(which)))

    @property
    def agent(self) -> str:
        """The agent's name."""
        return str(self.fixes.agent_ids[0])

    @property
    def names(self) -> list[TripId]:
        """The ids of the demonstrated trips."""
        return self.fixes.ids

    def demonstrations(self) -> Rows:
        """Returns the agent's steps; the familiarity of each trip ignores that trip itself."""
        trip = self.paths.context["trip"]
        rows = self._rows(self.paths, self._number(trip))
        return replace(rows, trip=trip[rows.path])

    def imagine(self, n: int, names: Sequence[str], rng: np.random.Generator) -> Rows:
        """Draws ``n`` counterfactual trips and returns the changed steps; their familiarity ignores the original."""
        paths, changed = explore(self.paths, n, names, self.featurizer.config.interval, rng, self.explorers)
        return self._rows(paths, self._number(paths.context["trip"]), keep=changed)

    def others(self, population: Trajectories | KeyedTrips) -> Rows:
        """Returns the steps of other agents, with features computed from this agent's memory."""
        if isinstance(population, KeyedTrips):
            steps = population.rows.steps
            return self._encoded(steps, steps.trip, ~steps.first)
        return self._rows(resample(self.featurizer.paths(population), self.featurizer.config.interval))

    def realise(self, rollout: Rollout) -> Rows:
        """Turns the policy's trajectories into rows, in the order of ``rollout.mask``."""
        lengths = rollout.lengths
        offsets = np.r_[0, np.cumsum(lengths + 1)]
        start, reached = self._metres(rollout.states[:, 0]), self._metres(rollout.next_states[rollout.mask])
        xy = np.empty((offsets[-1], 2))
        elapsed = np.empty(offsets[-1])
        first = np.zeros(offsets[-1], bool)
        first[offsets[:-1]] = True
        xy[first], elapsed[first] = start[:, :2], 0.0
        xy[~first] = reached[:, :2]
        elapsed[~first] = reached[:, 4] - np.repeat(start[:, 4], lengths)
        began = start[:, 5] if self._sees_clock else np.zeros(len(start))
        paths = make_paths(np.repeat(began + start[:, 4], lengths + 1) + elapsed, xy, offsets)
        paths.context["given"] = start[:, 6:]
        steps = self.featurizer.steps(paths)
        # A rollout may begin in the middle of a trip: its origin is then that trip's start.
        ahead = np.repeat(start[:, 4], lengths + 1)
        steps = replace(steps, origin=np.repeat(start[:, 2:4], lengths + 1, axis=0), elapsed=steps.elapsed + ahead)
        return self._encoded(steps, paths.trajectory_of_row, ~first)

    def refresh(self, rows: Rows) -> Rows:
        """Returns the rows with features recomputed from the present memory."""
        if rows.steps is None:
            raise DataError("these rows do not contain their steps", remedy="give rows that a GpsDemonstrator made")
        return replace(rows, features=self.featurizer.encode(rows.steps))

    @property
    def dynamics(self) -> Dynamics:
        """The integrator. In scores, rollouts begin as trips do, near or far; otherwise half begin midway."""
        steps = self.featurizer.steps(self.paths)
        states = policy_states(steps[~steps.first], self.featurizer)
        starts = states[np.isclose(states[:, 4], 0.0)]
        interval, scores = self.featurizer.config.interval, scores_of(self.featurizer.encoder)
        if scores is not None:
            return ScoredIntegrator(Integrator(starts, interval), scores)
        half = np.resize(np.arange(len(starts)), len(states))
        return Integrator(np.vstack([states, starts[half]]), interval)

    @property
    def _sees_clock(self) -> bool:
        return sees_clock(self.featurizer)

    def _metres(self, states: Array) -> Array:
        """Returns the policy's states in metres and seconds."""
        scores = scores_of(self.featurizer.encoder)
        return states if scores is None else scores.metres_and_seconds(states)

    def _number(self, trip: Array) -> NDArray[np.int64]:
        return self.featurizer.memory.number_of(self.fixes.ids)[trip]

    def _rows(self, paths: Trajectories, without: Array | None = None, keep: Array | None = None) -> Rows:
        steps = self.featurizer.steps(paths)
        chosen = ~steps.first if keep is None else ~steps.first & keep
        path = paths.trajectory_of_row
        return self._encoded(steps, path, chosen, None if without is None else without[path][chosen])

    def _encoded(self, steps: Steps, path: Array, chosen: Array, without: Array | None = None) -> Rows:
        kept, of = steps[chosen], path[chosen]
        states, actions = policy_states(kept, self.featurizer), kept.velocity
        scores = scores_of(self.featurizer.encoder)
        if scores is not None:
            states, actions = scores.states(states), scores.velocity(actions)
        return Rows(
            features=self.featurizer.encode(kept, without),
            path=np.cumsum(changes(of)) - 1,
            states=states,
            actions=actions,
            trip=np.full(len(kept), -1),
            steps=kept,
        )


def policy_states(steps: Steps, featurizer: Featurizer) -> NDArray[np.float64]:
    """Returns the policy's inputs before a step, in metres and seconds.

    They are those of the paper: location, start, time since the start; then, if the reward depends on them, the time of
    the week at which the trip began, and the context.
    """
    left = steps.location - steps.velocity * steps.window[:, None]
    paper = np.column_stack([left, steps.origin, steps.elapsed - steps.window])
    if not sees_clock(featurizer):
        return paper
    utc_offset = featurizer.context.utc_offset
    began = (steps.time - steps.elapsed + utc_offset) % WEEK - utc_offset
    return np.column_stack([paper, began, steps.given])


def sees_clock(featurizer: Featurizer) -> bool:
    """Returns True if features depend on more than the paper's state and action."""
    return scores_of(featurizer.encoder) is None or bool(featurizer.context.names)
