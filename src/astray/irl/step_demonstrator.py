"""The demonstrator of states and actions of any kind, which limits the number of steps to learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.irl.demonstrations import Rows
from astray.irl.dynamics import Dynamics

if TYPE_CHECKING:
    from astray.irl.policy import Rollout

Array = NDArray[Any]

StepCounterfactual = Callable[[Array, Array, np.random.Generator], tuple[Array, Array]]
"""Returns the states and actions of an alternative to a run, in the same shapes and types, given those of the run."""

STEP_COUNTERFACTUALS = ("perturb", "exchange")
BATCH = 8192  # rows encoded at a time
PIECE = 100  # consecutive steps in each piece of a run that is too long to use as a whole


@dataclass(frozen=True, eq=False)
class StepDemonstrator:
    """An agent that demonstrates states and actions; its features are these, standardised, and random Fourier waves."""

    trajectories: Trajectories  # the demonstrations, with columns ``state`` and ``action``
    dynamics: Dynamics  # the environment that the policy acts in
    mean: Array  # of states and actions side by side
    scale: Array
    frequencies: Array  # of random Fourier features beside the raw numbers
    most: int = 100_000  # the most steps of demonstrations, of a population, and of counterfactuals
    explorers: Mapping[str, StepCounterfactual] = field(default_factory=dict)  # the user's own counterfactuals

    @classmethod
    def of(
        cls,
        trajectories: Trajectories,
        dynamics: Dynamics,
        rng: np.random.Generator,
        waves: int = 32,
        most: int = 100_000,
        explorers: Mapping[str, StepCounterfactual] | None = None,
    ) -> StepDemonstrator:
        """Makes a demonstrator of runs (trajectories of states and actions); their spread scales the features."""
        if "state" not in trajectories.columns or "action" not in trajectories.columns:
            raise DataError(
                "these trajectories have no columns state and action", remedy="make them with Trajectories.from_steps"
            )
        pairs = _excerpt(trajectories, most)
        scale = pairs.std(axis=0)
        return cls(
            trajectories,
            dynamics,
            pairs.mean(axis=0),
            np.where(scale > 1e-9, scale, 1.0),
            rng.normal(size=(pairs.shape[1], waves)),
            most,
            explorers or {},
        )

    def __getitem__(self, which: NDArray[np.bool_]) -> StepDemonstrator:
        """Returns a demonstrator of some of the demonstrations, with the same scales."""
        return replace(self, trajectories=self.trajectories[which])

    @property
    def agent(self) -> str:
        """The agent's name; the first one's if there are several."""
        return str(self.trajectories.agent_ids[0])

    @property
    def names(self) -> list[TripId]:
        """The ids of the demonstrated runs."""
        return self.trajectories.ids

    def encode(self, states: Array, actions: Array) -> NDArray[np.float32]:
        """Returns standardised states and actions, then their waves."""
        width, waves = self.frequencies.shape
        features = np.empty((len(states), width + 2 * waves), np.float32)
        for start in range(0, len(states), BATCH):
            some = slice(start, start + BATCH)
            z = (np.hstack([states[some], actions[some]]) - self.mean) / self.scale
            phase = z @ self.frequencies
            features[some] = np.hstack([z, np.sin(phase), np.cos(phase)])
        return features

    def featurize(self, trajectories: Trajectories) -> NDArray[np.float32]:
        """Returns the features of every row of trajectories, for scoring."""
        return self.encode(trajectories.columns["state"], trajectories.columns["action"])

    def excerpt(self, most: int) -> NDArray[np.float64]:
        """Returns at most ``most`` steps of the demonstrations: states and actions side by side."""
        return _excerpt(self.trajectories, most)

    def demonstrations(self) -> Rows:
        """Returns the agent's steps; a long run contributes evenly spread pieces."""
        return self._pieces(self.trajectories, demonstrated=True)

    def imagine(self, n: int, names: Sequence[str], rng: np.random.Generator) -> Rows:
        """Draws ``n`` counterfactual runs: ``perturb`` shifts states and actions, ``exchange`` swaps actions.

        Perturbations have no preferred scale (0.1 to 10 standard deviations); exchanged actions are demonstrated ones
        in the wrong state. A discrete action is perturbed as a vector, and the action nearest to the result replaces
        it: at a small scale it stays, at a large one it is a random action. The user's own counterfactuals receive one
        run at a time.
        """
        known = (*STEP_COUNTERFACTUALS, *self.explorers)
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise DataError(f"no counterfactual named {unknown or names}", remedy=f"give some of {', '.join(known)}")
        t = self.trajectories
        which = rng.integers(len(t), size=n)
        states, actions, path = self._drawn(which, rng)
        kind = np.array([known.index(name) for name in names])[rng.integers(len(names), size=n)]
        perturb, exchange = (kind[path] == known.index(name) for name in STEP_COUNTERFACTUALS)
        scale = np.exp(rng.uniform(np.log(0.1), np.log(10.0), n))[path][perturb, None]
        noise = scale * rng.normal(size=(int(perturb.sum()), len(self.scale))) * self.scale
        states[perturb] += noise[:, : states.shape[1]]
        if actions.dtype == np.bool_:
            shifted = actions[perturb] + scale * rng.normal(size=(len(noise), actions.shape[1]))
            actions[perturb] = np.eye(actions.shape[1], dtype=bool)[shifted.argmax(axis=1)]
        else:
            actions[perturb] += noise[:, states.shape[1] :]
        actions[exchange] = actions[exchange][rng.permutation(int(exchange.sum()))]
        for i in np.flatnonzero(kind >= len(STEP_COUNTERFACTUALS)):
            rows = slice(*np.searchsorted(path, [i, i + 1]))
            states[rows], actions[rows] = self._explored(known[kind[i]], states[rows], actions[rows], rng)
        return self._rows(states, actions, path, which[path])

    def _explored(self, name: str, states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Applies one of the user's own counterfactuals to a run, and checks the result."""
        made = self.explorers[name](states.copy(), actions.copy(), rng)
        shapes = [np.shape(part) for part in made] if isinstance(made, tuple) else [np.shape(made)]
        if shapes != [states.shape, actions.shape] or not all(np.isfinite(part).all() for part in made):
            raise DataError(
                f"the explorer {name!r} returned arrays of the shapes {shapes}",
                remedy=f"return finite states and actions of the shapes given, {states.shape} and {actions.shape}",
            )
        if actions.dtype == np.bool_ and (np.asarray(made[1], np.float64).sum(axis=1) != 1.0).any():
            raise DataError(
                f"the explorer {name!r} chose no action, or several, in one step",
                remedy="return discrete actions as it gets them: bool, with one true column in each row",
            )
        return made

    def others(self, population: Trajectories) -> Rows:
        """Returns the steps of other agents, at most as many as those of the demonstrations."""
        return self._pieces(population)

    def realise(self, rollout: Rollout) -> Rows:
        """Turns the policy's trajectories into rows, in the order of ``rollout.mask``."""
        path = np.repeat(np.arange(len(rollout.mask)), rollout.lengths)
        return self._rows(rollout.states[rollout.mask], rollout.actions[rollout.mask], path)

    def refresh(self, rows: Rows) -> Rows:
        """Returns the rows unchanged, because their features depend on no memory."""
        return rows

    def _pieces(self, t: Trajectories, demonstrated: bool = False) -> Rows:
        rows, path, run = pieces(t.lengths, self.most)
        return self._rows(t.columns["state"][rows], t.columns["action"][rows], path, run if demonstrated else None)

    def _drawn(self, which: Array, rng: np.random.Generator) -> tuple[Array, Array, NDArray[np.int64]]:
        """Returns the states and actions of runs, or of random parts if they are too long, and the run of each row."""
        t = self.trajectories
        begin, length = t.offsets[:-1][which], t.lengths[which]
        if length.sum() > self.most:
            part = np.minimum(length, max(self.most // len(which), 1))
            begin, length = begin + rng.integers(length - part + 1), part
        rows, path = spans(begin, length)
        return t.columns["state"][rows], t.columns["action"][rows], path

    def _rows(self, states: Array, actions: Array, path: Array, trip: Array | None = None) -> Rows:
        none = np.full(len(path), -1)
        return Rows(self.encode(states, actions), path, states, actions, none if trip is None else trip)


def _excerpt(t: Trajectories, most: int) -> NDArray[np.float64]:
    rows, _, _ = pieces(t.lengths, most)
    return np.hstack([t.columns["state"][rows], t.columns["action"][rows]])


def pieces(lengths: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Selects at most ``most`` rows, the same number from each run or all if it has fewer.

    Returns the rows, and the piece and run of each. A run that is too long contributes pieces of consecutive rows,
    evenly spread over it, and at least one row.

    >>> rows, piece, run = pieces(np.array([3, 1000, 800]), most=403)
    >>> np.bincount(run).tolist(), np.bincount(piece).tolist()
    ([3, 200, 200], [3, 100, 100, 100, 100])
    >>> rows[[0, 3, 102, 103, -1]].tolist()
    [0, 3, 102, 903, 1802]
    """
    begins = np.cumsum(lengths) - lengths
    share = _fair_share(lengths, most)
    count = np.where(lengths > share, max(share // PIECE, 1), 1)
    size = np.where(lengths > share, share // count, lengths)
    run = np.repeat(np.arange(len(lengths)), count)
    number = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)
    room = (lengths - size)[run]
    start = begins[run] + np.where(count[run] > 1, number * room // np.maximum(count[run] - 1, 1), room // 2)
    rows, piece = spans(start, size[run])
    return rows, piece, run[piece]


def _fair_share(lengths: NDArray[np.int64], most: int) -> int:
    """Returns the largest number of rows per run with which the total is at most ``most``; at least 1."""
    rising = np.sort(lengths)
    before = np.cumsum(rising) - rising
    left = np.arange(len(rising), 0, -1)
    # Runs shorter than this share are whole; the others contribute equally.
    share = (most - before) // left
    fits = np.flatnonzero(share < rising)
    return int(max(share[fits[0]], 1)) if len(fits) else int(rising[-1])


def spans(begin: NDArray[np.int64], length: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the rows of spans, one span after the other, and the span of each row.

    >>> spans(np.array([10, 3]), np.array([2, 3]))
    (array([10, 11,  3,  4,  5]), array([0, 0, 1, 1, 1]))
    """
    of = np.repeat(np.arange(len(begin)), length)
    return np.arange(len(of)) + (begin - (np.cumsum(length) - length))[of], of
