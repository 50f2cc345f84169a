"""A world: what the learner can see, try and imagine; here the one of GPS trips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.features.familiarity import WEEK
from astray.features.featurizer import Featurizer
from astray.features.hashing import changes
from astray.features.paths import make_paths, of_trips, resample
from astray.features.steps import Steps
from astray.irl.counterfactuals import Counterfactual, explore
from astray.irl.dynamics import Dynamics, Integrator
from astray.irl.population import Population

if TYPE_CHECKING:
    from astray.irl.policy import Rollout

Array = NDArray[Any]


@dataclass(frozen=True)
class Rows:
    """Steps as the learner takes them.

    Attributes
    ----------
    features
        What the reward sees: (n, features).
    path
        Which trajectory each row is of, counting from 0: what Eq. 9 sums over.
    states, actions
        What the policy sees and does: (n, d) and (n, a).
    trip
        For demonstrations the position of the trip in the training set; -1 for what nobody demonstrated.
    steps
        What the features were made of, if they can be made again (after the memory has changed).
    """

    features: NDArray[np.float32]
    path: NDArray[np.int64]
    states: Array
    actions: Array
    trip: NDArray[np.int64]
    steps: Steps | None = None

    def __len__(self) -> int:
        return len(self.path)

    @property
    def n_paths(self) -> int:
        """The number of trajectories."""
        return int(self.path[-1]) + 1 if len(self.path) else 0

    @property
    def n_trips(self) -> int:
        """The number of trips."""
        return len(self._trips[0])

    def draw(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """The positions of ``n`` rows, drawn with replacement: a trip first, then one of its rows.

        A trip is judged as a whole, however long it is, so a long one must not count for more than a short one.
        """
        starts, lengths = self._trips
        chosen = rng.integers(len(starts), size=n)
        return np.asarray(starts[chosen] + rng.integers(lengths[chosen]), np.int64)

    @cached_property
    def _trips(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where each trip starts, and how many rows it has; of the background each trajectory is a trip."""
        new = np.ones(len(self), np.bool_)
        new[1:] = (self.trip[1:] != self.trip[:-1]) | ((self.trip[1:] < 0) & (self.path[1:] != self.path[:-1]))
        starts = np.flatnonzero(new)
        return starts, np.diff(starts, append=len(self))

    def __getitem__(self, keep: Array) -> Rows:
        """Some rows; trajectories are counted anew."""
        path = self.path[keep]
        return Rows(
            self.features[keep],
            np.cumsum(changes(path)) - 1,
            self.states[keep],
            self.actions[keep],
            self.trip[keep],
            None if self.steps is None else self.steps[keep],
        )

    @staticmethod
    def concat(parts: Sequence[Rows]) -> Rows:
        """Rows one after the other; the trajectories of each part stay apart."""
        paths = np.cumsum([0, *(p.n_paths for p in parts)])
        steps = [p.steps for p in parts if p.steps is not None]
        return Rows(
            np.concatenate([p.features for p in parts]),
            np.concatenate([p.path + start for p, start in zip(parts, paths, strict=False)]),
            np.concatenate([p.states for p in parts]),
            np.concatenate([p.actions for p in parts]),
            np.concatenate([p.trip for p in parts]),
            Steps.concat(steps) if len(steps) == len(parts) else None,
        )


class World(Protocol):
    """What learning needs of a world."""

    @property
    def agent(self) -> str:
        """Who acts in it."""

    @property
    def names(self) -> Sequence[TripId]:
        """What the demonstrations are called."""

    def demonstrations(self) -> Rows:
        """What the agent did; no trip counts towards its own familiarity."""

    def imagine(self, n: int, names: Sequence[str], rng: np.random.Generator) -> Rows:
        """``n`` counterfactual trips, of the named kinds."""

    def others(self, population: Any) -> Rows:
        """What other agents did, compared with this one's past."""


class ActingWorld(World, Protocol):
    """A world in which a policy can act, and whose rows can be made anew."""

    @property
    def dynamics(self) -> Dynamics:
        """What happens when the policy acts."""

    def realise(self, rollout: Rollout) -> Rows:
        """The policy's trajectories; rows in the order of ``rollout.mask``."""

    def refresh(self, rows: Rows) -> Rows:
        """The same rows, seen with what the world knows now."""

    def __getitem__(self, which: NDArray[np.bool_]) -> ActingWorld:
        """The world of some of the demonstrations."""


@dataclass(frozen=True, eq=False)
class GeoWorld:
    """GPS trips of one agent, in metres and seconds.

    Parameters
    ----------
    featurizer
        How trips are looked at; it must remember the demonstrations (:meth:`of` sees to that).
    fixes
        The demonstrations.
    explorers
        Counterfactuals of one's own, by name.
    """

    featurizer: Featurizer
    fixes: Trajectories
    paths: Trajectories = field(repr=False)
    explorers: Mapping[str, Counterfactual] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        fixes: Trajectories,
        featurizer: Featurizer,
        explorers: Mapping[str, Counterfactual] | None = None,
        paths: Trajectories | None = None,
    ) -> GeoWorld:
        """The world of an agent; trips that the featurizer does not remember yet are remembered.

        ``paths`` are those of the trips, if they are known already.
        """
        new = ~fixes.isin(featurizer.memory.trip_ids)
        world = cls.seen(fixes, featurizer.remember(fixes[new]) if new.any() else featurizer, paths)
        if world is None:
            raise DataError(
                "no trajectory has two usable fixes at different times, so there is nothing to learn from",
                remedy="give trips with more fixes",
            )
        return replace(world, explorers=explorers or {})

    @classmethod
    def seen(cls, fixes: Trajectories, featurizer: Featurizer, paths: Trajectories | None = None) -> GeoWorld | None:
        """The world of some trips, none of which is remembered by being here; None if they hold no step."""
        if not len(fixes):
            return None
        paths = resample(featurizer.paths(fixes) if paths is None else paths, featurizer.config.interval)
        paths = paths[paths.lengths > 1]  # a path of one point holds no step
        return cls(featurizer, fixes, paths) if len(paths) else None

    def __getitem__(self, which: NDArray[np.bool_]) -> GeoWorld:
        """The world of some of the demonstrations; the others are remembered, but nothing more is learned from them."""
        return replace(self, fixes=self.fixes[which], paths=of_trips(self.paths, np.flatnonzero(which)))

    @property
    def agent(self) -> str:
        """Who made the demonstrations."""
        return str(self.fixes.agent_ids[0])

    @property
    def names(self) -> list[TripId]:
        """What the demonstrations are called."""
        return self.fixes.ids

    def demonstrations(self) -> Rows:
        """What the agent did; no trip counts towards its own familiarity."""
        trip = self.paths.context["trip"]
        rows = self._rows(self.paths, self._number(trip))
        return replace(rows, trip=trip[rows.path])

    def imagine(self, n: int, names: Sequence[str], rng: np.random.Generator) -> Rows:
        """``n`` counterfactual trips: only the steps that were changed; the trip changed does not count for them."""
        paths, changed = explore(self.paths, n, names, self.featurizer.config.interval, rng, self.explorers)
        return self._rows(paths, self._number(paths.context["trip"]), keep=changed)

    def others(self, population: Trajectories | Population) -> Rows:
        """What other agents did, compared with this one's past."""
        if isinstance(population, Population):
            steps = population.rows.steps
            return self._encoded(steps, steps.trip, ~steps.first)
        return self._rows(resample(self.featurizer.paths(population), self.featurizer.config.interval))

    def realise(self, rollout: Rollout) -> Rows:
        """The policy's trajectories; rows in the order of ``rollout.mask``."""
        lengths = rollout.lengths
        offsets = np.r_[0, np.cumsum(lengths + 1)]
        start = rollout.states[:, 0]
        xy = np.empty((offsets[-1], 2))
        elapsed = np.empty(offsets[-1])
        first = np.zeros(offsets[-1], bool)
        first[offsets[:-1]] = True
        xy[first], elapsed[first] = start[:, :2], 0.0
        xy[~first] = rollout.next_states[rollout.mask][:, :2]
        elapsed[~first] = rollout.next_states[rollout.mask][:, 4] - np.repeat(start[:, 4], lengths)
        begin = np.repeat(start[:, 5] + start[:, 4], lengths + 1)
        paths = make_paths(begin + elapsed, xy, offsets)
        paths.context["given"] = start[:, 6:]
        steps = self.featurizer.steps(paths)
        # A rollout may begin in the middle of a trip: its start is where that trip began.
        ahead = np.repeat(start[:, 4], lengths + 1)
        steps = replace(steps, origin=np.repeat(start[:, 2:4], lengths + 1, axis=0), elapsed=steps.elapsed + ahead)
        return self._encoded(steps, paths.trajectory_of_row, ~first)

    def refresh(self, rows: Rows) -> Rows:
        """The same rows, seen with what the memory holds now."""
        if rows.steps is None:
            raise DataError("these rows do not say what they were made of", remedy="give rows that keep their steps")
        return replace(rows, features=self.featurizer.encode(rows.steps))

    @property
    def dynamics(self) -> Dynamics:
        """The integrator; half of the rollouts start where trips start, the others in the middle of one."""
        steps = self.featurizer.steps(self.paths)
        states = policy_states(steps[~steps.first], self._utc_offset)
        starts = states[np.isclose(states[:, 4], 0.0)]
        half = np.resize(np.arange(len(starts)), len(states))
        return Integrator(np.vstack([states, starts[half]]), self.featurizer.config.interval)

    @property
    def _utc_offset(self) -> float:
        return self.featurizer.context.utc_offset

    def _number(self, trip: Array) -> NDArray[np.int64]:
        return self.featurizer.memory.number_of(self.fixes.ids)[trip]

    def _rows(self, paths: Trajectories, without: Array | None = None, keep: Array | None = None) -> Rows:
        steps = self.featurizer.steps(paths)
        chosen = ~steps.first if keep is None else ~steps.first & keep
        path = paths.trajectory_of_row
        return self._encoded(steps, path, chosen, None if without is None else without[path][chosen])

    def _encoded(self, steps: Steps, path: Array, chosen: Array, without: Array | None = None) -> Rows:
        kept, of = steps[chosen], path[chosen]
        return Rows(
            features=self.featurizer.encode(kept, without),
            path=np.cumsum(changes(of)) - 1,
            states=policy_states(kept, self._utc_offset),
            actions=kept.velocity,
            trip=np.full(len(kept), -1),
            steps=kept,
        )


def policy_states(steps: Steps, utc_offset: float) -> NDArray[np.float64]:
    """What the policy knows before a step: location, start, time since then, when in the week it began, context."""
    left = steps.location - steps.velocity * steps.window[:, None]
    began = (steps.time - steps.elapsed + utc_offset) % WEEK - utc_offset
    return np.column_stack([left, steps.origin, steps.elapsed - steps.window, began, steps.given])
