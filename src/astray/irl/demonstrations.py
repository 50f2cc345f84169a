"""Rows of demonstrations, from which the learner draws, and the interface of a demonstrator, which provides them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from astray.core.trip_ids import TripId
from astray.features.hashing import changes
from astray.features.steps import Steps
from astray.irl.dynamics import Dynamics

if TYPE_CHECKING:
    from astray.irl.policy import Rollout

Array = NDArray[Any]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Rows to learn from: steps of trajectories, or whole trips."""

    features: NDArray[np.float32]  # the inputs of the reward network: (n, features)
    path: NDArray[np.int64]  # the trajectory of each row, counted from 0; R(tau) is the sum over its rows
    states: Array  # the inputs of the policy: (n, d)
    actions: Array  # its outputs: (n, a)
    trip: NDArray[np.int64]  # the position in the training set of the trip that a row is of, or made from; -1: of none
    steps: Steps | None = None  # from which to recompute the features when the memory changes; None if they stay

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
        """Draws the positions of ``n`` rows with replacement: first a trip, then one of its rows.

        The detector scores whole trips, so a long trip must not weigh more than a short one.
        """
        starts, lengths = self._trips
        chosen = rng.integers(len(starts), size=n)
        return np.asarray(starts[chosen] + rng.integers(lengths[chosen]), np.int64)

    @cached_property
    def _trips(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first row and the length of each trip; rows of no trip count by trajectory."""
        new = np.ones(len(self), np.bool_)
        new[1:] = (self.trip[1:] != self.trip[:-1]) | ((self.trip[1:] < 0) & (self.path[1:] != self.path[:-1]))
        starts = np.flatnonzero(new)
        return starts, np.diff(starts, append=len(self))

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """The first row of each trajectory."""
        return np.flatnonzero(changes(self.path))

    def rows_of(self, paths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the rows of some trajectories, one trajectory after the other, and the length of each."""
        length = np.diff(self.first, append=len(self))[paths]
        shift = self.first[paths] - (np.cumsum(length) - length)
        return np.arange(length.sum()) + np.repeat(shift, length), length

    def cut(self, most: int | None) -> Rows:
        """Returns the same rows, with trajectories cut into parts of at most ``most`` steps; None: not cut.

        >>> none = np.zeros((5, 1))
        >>> Rows(none.astype(np.float32), np.array([0, 0, 0, 1, 1]), none, none, np.full(5, -1)).cut(2).path.tolist()
        [0, 0, 1, 2, 2]
        """
        if most is None or not len(self):
            return self
        step = np.arange(len(self)) - self.first[self.path]
        begins = changes(self.path) | (step % most == 0)
        return replace(self, path=np.cumsum(begins) - 1)

    def __getitem__(self, keep: Array) -> Rows:
        """Returns some of the rows, with their trajectories numbered from 0."""
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
        """Concatenates rows; trajectories of different parts stay different."""
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


def held_out(names: Sequence[TripId] | Sequence[str], present: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """Selects the demonstrations to hold out: no head learns from them; they decide when to stop and scale the scores.

    A hash of the names decides, so an update holds out the same ones. Demonstrations with the same name are held out
    together. At least one name is held out, unless ``share`` is 0 or there is only one name, and never all.

    >>> held_out(["a", "b", "c", "d"], np.arange(4), 0.5)
    array([0, 1, 2])
    """
    known = sorted({names[i] for i in present})
    if share == 0 or len(known) < 2:
        return present[:0]
    uniform = _uniform(known)
    n = np.clip(np.count_nonzero(uniform < share), 1, len(known) - 1)
    out = {known[i] for i in np.argsort(uniform)[:n]}
    return present[[names[i] in out for i in present]]


def cross_fit(
    names: Sequence[TripId] | Sequence[str], present: NDArray[np.int64], networks: int, heads: int
) -> NDArray[np.bool_]:
    """Returns a mask (trips, networks x heads) of where a demonstration is held out: from all heads of one network.

    A hash of the name chooses the network, so an update holds out the same ones. A network that would be left with
    nothing to learn from holds nothing out.

    >>> cross_fit(["d", "e", "f"], np.arange(3), networks=2, heads=1).tolist()
    [[True, False], [True, False], [False, True]]
    """
    out = np.zeros((len(names), networks), np.bool_)
    out[present, [int(uniform * networks) for uniform in _uniform([names[i] for i in present])]] = True
    out &= ~out[present].all(axis=0)
    return np.repeat(out, heads, axis=1)


def _uniform(names: Sequence[TripId] | Sequence[str]) -> Floats:
    """Returns a number in [0, 1) for each name: a hash of it."""
    texts = (name if isinstance(name, str) else "/".join(name) for name in names)
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
    return np.array([int.from_bytes(d, "little") for d in digests]) / 2.0**64


class Demonstrator(Protocol):
    """The agent to learn from: its demonstrations, and the alternatives to compare them with."""

    @property
    def agent(self) -> str:
        """The agent's name."""

    @property
    def names(self) -> Sequence[TripId]:
        """The ids of the demonstrated trips."""

    def demonstrations(self) -> Rows:
        """Returns the agent's steps or trips; the familiarity of each trip ignores that trip itself."""

    def imagine(self, n: int, names: Sequence[str], rng: np.random.Generator) -> Rows:
        """Draws ``n`` counterfactual trips, each by one of the named counterfactuals."""

    def others(self, population: Any) -> Rows:
        """Returns the steps or trips of other agents, with features computed from this agent's memory."""


class ActingDemonstrator(Demonstrator, Protocol):
    """A demonstrator whose environment is known, so that a policy can act in its place."""

    @property
    def dynamics(self) -> Dynamics:
        """The environment that the policy acts in."""

    def realise(self, rollout: Rollout) -> Rows:
        """Turns the policy's trajectories into rows, in the order of ``rollout.mask``."""

    def refresh(self, rows: Rows) -> Rows:
        """Returns the rows with features recomputed from the present memory."""

    def __getitem__(self, which: NDArray[np.bool_]) -> ActingDemonstrator:
        """Returns a demonstrator of some of the demonstrations."""
