"""Dynamics, the environments in which a policy acts: motion on the earth, Gymnasium, or a fitted model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.features.normal_scores import StepScores

Array = NDArray[Any]
Mask = NDArray[np.bool_]

# The kernel of the Fourier features is a Gaussian of this width times sqrt(number of inputs). It is wide because one
# step changes little.
WIDTH = 3.0


class Dynamics(Protocol):
    """An environment, which draws initial states and returns the state that follows a state and an action.

    States are rows (n x d), actions are rows (n x a); discrete actions are one-hot rows of type ``bool``. An
    environment may keep the state of its n trajectories, so ``step`` must get the states that ``reset`` or the last
    ``step`` returned, in their order.
    """

    def reset(self, n: int, rng: np.random.Generator) -> Array:
        """Draws n initial states (n, d)."""

    def step(self, states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, Mask]:
        """Returns the next states (n, d), and a mask of the trajectories that have not ended."""


class Integrator:
    """The dynamics of GPS trips: the next location is the location plus velocity times the interval.

    The columns of a state are ``x, y`` (metres), ``x0, y0`` (where the trip began), ``elapsed`` (seconds since then)
    and any context, which does not change. An action is a velocity in m/s. No trajectory ends by itself.

    Parameters
    ----------
    starts
        States (rows x 5 or more) from which initial states are drawn: first states of trips, and states in the
        middle of trips if rollouts should begin there too.
    interval
        The duration of a step in seconds.

    Examples
    --------
    >>> dynamics = Integrator([[0.0, 0.0, 0.0, 0.0, 0.0, 7.0]], interval=30.0)
    >>> rng = np.random.default_rng(0)
    >>> states, alive = dynamics.step(dynamics.reset(1, rng), np.array([[1.0, -2.0]]), rng)
    >>> states.tolist(), alive.tolist()
    ([[30.0, -60.0, 0.0, 0.0, 30.0, 7.0]], [True])
    """

    def __init__(self, starts: ArrayLike, interval: float) -> None:
        self.starts = np.asarray(starts, np.float64)
        self.interval = float(interval)
        if self.starts.ndim != 2 or not len(self.starts) or self.starts.shape[1] < 5:
            shape = self.starts.shape
            raise DataError(
                f"starts have the shape {shape}", remedy="give rows of x, y, x0, y0, elapsed and any context"
            )
        if not np.isfinite(self.starts).all():
            row = int(np.argmax(~np.isfinite(self.starts).all(axis=1)))
            raise DataError(f"row {row} of the starts is not finite", remedy="leave it out")
        if not (np.isfinite(self.interval) and self.interval > 0):
            raise DataError(f"the interval is {interval}", remedy="give a positive number of seconds")

    def reset(self, n: int, rng: np.random.Generator) -> Array:
        """Draws n of the starts, with replacement."""
        return self.starts[rng.integers(len(self.starts), size=n)]

    def step(self, states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, Mask]:
        """Returns the states one interval later; no trajectory ends."""
        moved = states.copy()
        moved[:, :2] += actions * self.interval
        moved[:, 4] += self.interval
        return moved, np.ones(len(states), dtype=bool)


class ScoredIntegrator:
    """The dynamics of GPS trips for a policy that sees the paper's state, and acts, in normal scores.

    It keeps the states in metres and seconds; further columns than the paper's five stay as they are.

    Trajectories begin anywhere, because the partition function Z of Eq. 1 sums over all trajectories, and a reward that
    is never compared elsewhere says nothing about other places. Half begin near a demonstrated start, the others
    in a wide Gaussian around all places; :meth:`log_start` is the density, a part of q(tau).
    """

    wide = 0.5  # the share of trajectories that begin in the wide Gaussian
    widths = (0.15, 2.5)  # standard deviations around a demonstrated start, and of the wide Gaussian, in scores

    def __init__(self, motion: Integrator, scores: StepScores) -> None:
        self.metres = motion.starts[:0]  # the latest states
        self._motion, self._scores = motion, scores
        self._starts = scores.place(motion.starts[:, :2])

    def reset(self, n: int, rng: np.random.Generator) -> Array:
        """Draws n initial states."""
        chosen = rng.integers(len(self._starts), size=n)
        near, wide = (width * rng.standard_normal((n, 2)) for width in self.widths)
        states = self._motion.starts[chosen]
        place = self._scores.place.inverse(np.where(rng.random((n, 1)) < self.wide, wide, self._starts[chosen] + near))
        states[:, :2] = states[:, 2:4] = place
        return self.begin(states)

    def log_start(self, states: Array) -> Array:
        """Returns the log-density of the places of initial states, as scores."""
        place = states[:, :2]
        near = _log_normal(place[:, None] - self._starts, self.widths[0])
        near = np.logaddexp.reduce(near, axis=1) - np.log(len(self._starts))
        return np.asarray(
            np.logaddexp(np.log1p(-self.wide) + near, np.log(self.wide) + _log_normal(place, self.widths[1]))
        )

    def begin(self, states: Array) -> Array:
        """Continues from states in metres and seconds; returns them as scores."""
        self.metres = states
        return self._scores.states(states)

    def step(self, states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, Mask]:
        """Returns the states one interval later; no trajectory ends."""
        moved, alive = self._motion.step(self.metres, self._scores.velocity.inverse(actions), rng)
        return self.begin(moved), alive


def _log_normal(places: Array, width: float) -> Array:
    """Returns the log-density of places (..., 2) under a Gaussian around 0 with this standard deviation."""
    return np.asarray(-0.5 * np.square(places / width).sum(axis=-1) - math.log(2.0 * math.pi * width**2))


class GymDynamics:
    """The dynamics of a Gymnasium vector environment; its rewards are ignored.

    WARNING: variable horizon. Termination and truncation both end a trajectory. An environment that resets itself does
    not revive it: the trajectory keeps its last state and stays ended until the next ``reset``.

    Parameters
    ----------
    env
        A function that makes a vector environment of n copies, or one vector environment with a fixed n.
        Observations must be arrays (``Box``); actions arrays or one of several (``Discrete``).

    Examples
    --------
    >>> import gymnasium
    >>> dynamics = GymDynamics(lambda n: gymnasium.make_vec("Pendulum-v1", n, vectorization_mode="sync"))
    >>> rng = np.random.default_rng(0)
    >>> states, alive = dynamics.step(dynamics.reset(4, rng), np.zeros((4, 1)), rng)
    >>> states.shape, alive.tolist()
    ((4, 3), [True, True, True, True])
    >>> dynamics.close()
    """

    def __init__(self, env: Callable[[int], Any] | Any) -> None:
        # Only a vector environment has a number of copies; anything else is a function that makes one.
        self._make: Callable[[int], Any] | None = None if hasattr(env, "num_envs") else env
        self._env: Any = env if self._make is None else None
        self._alive: Mask | None = None

    def reset(self, n: int, rng: np.random.Generator) -> Array:
        """Begins n new episodes, seeded from ``rng``."""
        if self._make is not None and (self._env is None or self._env.num_envs != n):
            self.close()
            self._env = self._make(n)
        if self._env.num_envs != n:
            raise DataError(
                f"{n} trajectories are wanted, but the environment has {self._env.num_envs} copies",
                remedy="give a function that makes a vector environment of n copies",
            )
        self._check_spaces()
        observations, _ = self._env.reset(seed=int(rng.integers(2**31)))
        self._alive = np.ones(n, dtype=bool)
        self._finished = np.zeros(n, dtype=bool)  # the copies whose episode ended with the latest step
        return self._rows(observations)

    def step(self, states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, Mask]:
        """Steps every environment once; actions that are quantities are clipped to the action space."""
        if self._alive is None:
            raise DataError("the environment has not been reset", remedy="call reset(n, rng) before step")
        autoreset = self._autoreset
        if autoreset == "DISABLED" and self._finished.any():
            # Without automatic resets, a finished episode must not be stepped, so reset it; nobody sees the result.
            self._env.reset(options={"reset_mask": self._finished})
        observations, _, terminated, truncated, info = self._env.step(self._within_space(actions))
        self._finished = np.asarray(terminated) | np.asarray(truncated)
        following = self._rows(observations)
        if autoreset == "SAME_STEP":
            # The observation belongs to the next episode; the last one of this episode is in the info.
            for i in np.flatnonzero(self._finished):
                following[i] = np.ravel(info["final_obs"][i])
        following = np.where(self._alive[:, None], following, states)
        self._alive &= ~self._finished
        return following, self._alive.copy()

    def close(self) -> None:
        """Closes the environment, if this object made it."""
        if self._make is not None and self._env is not None:
            self._env.close()
            self._env = self._alive = None

    @property
    def _autoreset(self) -> str:
        # Gymnasium 1.0 has no such entry and resets at the next step.
        return getattr(self._env.metadata.get("autoreset_mode"), "name", "NEXT_STEP")

    def _check_spaces(self) -> None:
        from gymnasium.spaces import Box, Discrete

        for what, known in (("observation", Box), ("action", Box | Discrete)):
            space = getattr(self._env, f"single_{what}_space")
            if not isinstance(space, known):
                raise DataError(
                    f"the {what} space is {space}",
                    remedy="use an environment whose observations are arrays (Box) and whose actions Box or Discrete",
                )

    def _within_space(self, actions: Array) -> Array:
        """Returns actions as the environment takes them."""
        space, one = self._env.action_space, self._env.single_action_space
        n = getattr(one, "n", None)  # the number of discrete actions
        if (actions.shape[1] if actions.dtype == np.bool_ else None) != n:
            raise DataError(
                f"the action space is {one}, but the actions are {actions.dtype} of the shape {actions.shape}",
                remedy="leave n_actions of from_steps out" if n is None else f"give n_actions={n} to from_steps",
            )
        if n is not None:
            return np.asarray(one.start + actions.argmax(axis=1), space.dtype)
        return np.asarray(np.clip(actions.reshape(space.shape), space.low, space.high), space.dtype)

    def _rows(self, observations: Any) -> Array:
        return np.array(observations, dtype=np.float64).reshape(self._env.num_envs, -1)


@dataclass(frozen=True, eq=False)
class LearnedDynamics:
    """Dynamics fitted to demonstrations, for unknown environments; made by :meth:`fit`.

    The standardised difference of successive states is a ridge regression on the state, the action and random Fourier
    features of both (Rahimi & Recht 2007), plus Gaussian noise with the covariance of the held-out residuals. The fit
    is a closed form; on Pendulum it predicts better than a (64, 64) network trained ten times as long, and away from
    the data Fourier features stay bounded where polynomials explode. States and actions are clipped to the demonstrated
    range and a margin around it, so rollouts of any length stay finite. No trajectory ends by itself.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> actions = rng.normal(size=(40, 30, 1))
    >>> states = np.cumsum(0.1 * actions, axis=1) - 0.1 * actions  # s' = s + 0.1 a
    >>> dynamics = LearnedDynamics.fit(Trajectories.from_steps(list(states), list(actions)), rng)
    >>> dynamics.predict(np.array([[0.2]]), np.array([[1.0]])).round(3).tolist()
    [[0.3]]
    """

    starts: Array
    lower: Array  # of (state, action)
    upper: Array
    features: _FourierFeatures
    coefficients: Array  # (features, d)
    drift: Array  # (d,) the mean difference
    noise: Array  # (d, d) a square root of the residuals' covariance

    @classmethod
    def fit(
        cls,
        demonstrations: Trajectories,
        rng: np.random.Generator,
        *,
        n_features: int = 128,
        margin: float = 0.1,
        n_folds: int = 5,
        most: int = 50_000,
    ) -> LearnedDynamics:
        """Fits dynamics to the columns ``state`` and ``action`` of demonstrations.

        Parameters
        ----------
        demonstrations
            At least ``n_folds`` transitions from one state to the next, in all.
        rng
            Draws the Fourier features.
        n_features
            The number of Fourier features beside the state and the action themselves.
        margin
            The distance that a state or action may go beyond the demonstrated range, as a fraction of that range.
        n_folds
            The number of folds of cross-validation, which chooses the ridge penalty.
        most
            The most transitions to fit to; from more, it draws a random sample, to limit memory.
        """
        for name in ("state", "action"):
            if name not in demonstrations.columns:
                raise DataError(
                    f"the demonstrations lack the column {name!r}", remedy="make them with Trajectories.from_steps"
                )
        states, actions = (demonstrations.columns[name] for name in ("state", "action"))
        has_next = np.ones(len(states), dtype=bool)
        has_next[demonstrations.offsets[1:] - 1] = False
        before = np.flatnonzero(has_next)
        if len(before) < n_folds:
            raise DataError(
                f"{len(before)} transitions are too few for {n_folds} folds", remedy="give longer demonstrations"
            )
        if len(before) > most:
            before = np.sort(rng.choice(before, most, replace=False))
        lower, upper = (np.concatenate([end(states, axis=0), end(actions, axis=0)]) for end in (np.min, np.max))
        reach = margin * (upper - lower)
        pairs = np.concatenate([states[before], actions[before]], axis=1).astype(np.float64)
        difference = states[before + 1].astype(np.float64) - pairs[:, : states.shape[1]]
        drift, scale = difference.mean(axis=0), standard_scale(difference)
        features = _FourierFeatures.draw(pairs, n_features, rng)
        coefficients, residuals = _ridge(features(pairs), (difference - drift) / scale, n_folds)
        # A square root of the covariance that works for columns without noise, too.
        eigenvalues, vectors = np.linalg.eigh(residuals.T @ residuals / len(residuals))
        noise = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
        return cls(
            starts=states[demonstrations.offsets[:-1]].astype(np.float64),
            lower=lower - reach,
            upper=upper + reach,
            features=features,
            coefficients=coefficients * scale,
            drift=drift,
            noise=scale[:, None] * noise,
        )

    def reset(self, n: int, rng: np.random.Generator) -> Array:
        """Draws n of the demonstrations' first states, with replacement."""
        return self.starts[rng.integers(len(self.starts), size=n)]

    def predict(self, states: Array, actions: Array) -> Array:
        """Returns the expected next states, before noise and clipping."""
        pairs = np.clip(np.concatenate([states, actions], axis=1), self.lower, self.upper)
        following: Array = states + self.drift + self.features(pairs) @ self.coefficients
        return following

    def step(self, states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, Mask]:
        """Draws the next states."""
        following = self.predict(states, actions)
        following += rng.standard_normal(following.shape) @ self.noise.T
        d = following.shape[1]
        return np.clip(following, self.lower[:d], self.upper[:d]), np.ones(len(states), dtype=bool)


class _FourierFeatures(NamedTuple):
    """Features 1, the standardised inputs z, and sqrt(2) cos(z w + b) with frequencies w drawn once."""

    mean: Array
    scale: Array
    frequencies: Array
    phases: Array

    @classmethod
    def draw(cls, inputs: Array, n: int, rng: np.random.Generator) -> _FourierFeatures:
        width = WIDTH * np.sqrt(inputs.shape[1])
        frequencies = rng.standard_normal((inputs.shape[1], n)) / width
        return cls(inputs.mean(axis=0), standard_scale(inputs), frequencies, rng.uniform(0.0, 2.0 * np.pi, n))

    def __call__(self, inputs: Array) -> Array:
        z = (inputs - self.mean) / self.scale
        waves = np.sqrt(2.0) * np.cos(z @ self.frequencies + self.phases)
        return np.concatenate([np.ones((len(z), 1)), z, waves], axis=1)


def standard_scale(rows: Array) -> Array:
    """Returns the standard deviation of each column; 1 for a column that never changes."""
    scale = rows.std(axis=0)
    return np.where(scale > 1e-12 * np.abs(rows).max(axis=0), scale, 1.0)  # less is a rounding error


def _ridge(features: Array, targets: Array, n_folds: int) -> tuple[Array, Array]:
    """Fits a ridge regression, with the penalty by cross-validation; returns coefficients and held-out residuals.

    The folds are runs of neighbouring rows. Rows of one trajectory are similar, so with scattered folds the neighbours
    of a held-out row would predict it, and too small a penalty would win.
    """
    penalties = 10.0 ** np.arange(-8.0, 1.0)
    folds = [slice(*ends) for ends in pairwise(np.linspace(0, len(features), n_folds + 1).astype(int))]
    grams = np.stack([features[fold].T @ features[fold] for fold in folds])
    moments = np.stack([features[fold].T @ targets[fold] for fold in folds])
    residuals = np.empty((len(penalties), *targets.shape))
    for i, fold in enumerate(folds):
        n_rest = len(features) - (fold.stop - fold.start)
        eigenvalues, vectors = np.linalg.eigh((grams.sum(axis=0) - grams[i]) / n_rest)
        moment = vectors.T @ ((moments.sum(axis=0) - moments[i]) / n_rest)
        projected = features[fold] @ vectors
        for k, penalty in enumerate(penalties):
            residuals[k, fold] = targets[fold] - projected @ (moment / (eigenvalues + penalty)[:, None])
    best = int(np.argmin((residuals**2).mean(axis=(1, 2))))
    ridge = len(features) * penalties[best] * np.eye(features.shape[1])
    return np.linalg.solve(grams.sum(axis=0) + ridge, moments.sum(axis=0)), residuals[best]
