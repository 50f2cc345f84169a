"""Normal scores: numbers on the scale of a standard normal distribution, by their quantiles among demonstrated ones.

Coordinates of people have heavy tails: one flight makes the standard deviation of the places a thousand times the size
of the town where everything else happens. Scores spread the usual places evenly, however far the farthest one is.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from astray.features.steps import Steps

Array = NDArray[Any]
Floats = NDArray[np.float64]

KNOTS = 100
SPAN = 2.5  # the scores of the lowest and the highest knot; beyond, scores rise with the logarithm of the distance
FARTHEST = 12.0  # the most that a score may be beyond the knots, so that the number is not infinite: 160,000 spreads
BEND = 0.01  # the least rise from the first knot to the last, in spreads: equal numbers must not make a step
EQUAL = 1e-9  # metres, seconds or metres per second: numbers no farther apart count as equal

_SHARES = np.linspace(NormalDist().cdf(-SPAN), NormalDist().cdf(SPAN), KNOTS)
_SCORES = np.array([NormalDist().inv_cdf(share) for share in _SHARES])


@dataclass(frozen=True, eq=False)
class NormalScores:
    """A rising function for each column, from numbers to normal scores and back.

    >>> numbers = np.random.default_rng(0).lognormal(size=(5000, 1)) ** 3
    >>> scores = NormalScores.fit(numbers)
    >>> float(scores(numbers).std().round(1)), np.allclose(scores.inverse(scores(numbers)), numbers)
    (1.0, True)
    """

    knots: Floats  # (columns, KNOTS): numbers, rising
    spread: Floats  # (columns,): half the width of the middle of the numbers, the unit beyond the knots

    @classmethod
    def fit(cls, rows: Array) -> Self:
        """Fits the scores to rows of numbers."""
        knots = np.quantile(rows, _SHARES, axis=0).T
        spread = np.array([_spread(column) for column in rows.T])
        return cls(knots + BEND * spread[:, None] * np.linspace(-1.0, 1.0, KNOTS), spread)

    def __call__(self, rows: Array) -> Floats:
        """Returns the scores of rows of numbers."""
        found = np.empty(rows.shape)
        for j, (knots, spread) in enumerate(zip(self.knots, self.spread, strict=True)):
            beyond = np.maximum(rows[:, j] - knots[-1], 0.0) - np.maximum(knots[0] - rows[:, j], 0.0)
            found[:, j] = np.interp(rows[:, j], knots, _SCORES) + np.sign(beyond) * np.log1p(np.abs(beyond) / spread)
        return found

    def inverse(self, scores: Array) -> Floats:
        """Returns the numbers with these scores."""
        found = np.empty(scores.shape)
        for j, (knots, spread) in enumerate(zip(self.knots, self.spread, strict=True)):
            beyond = np.sign(scores[:, j]) * np.clip(np.abs(scores[:, j]) - SPAN, 0.0, FARTHEST)
            found[:, j] = np.interp(scores[:, j], _SCORES, knots) + spread * np.sign(beyond) * np.expm1(np.abs(beyond))
        return found


def _spread(numbers: Array) -> float:
    """Returns half the width of the middle 68 %; of more, if these are all equal."""
    for share in (0.68, 0.9, 0.98, 1.0):
        low, high = np.quantile(numbers, [0.5 - share / 2, 0.5 + share / 2])
        if high - low > EQUAL:
            return float(high - low) / 2
    return 1.0


@dataclass(frozen=True, eq=False)
class StepScores:
    """The paper's state (location, start, time since the start) and action (velocity) of GPS trips as normal scores.

    Locations and starts have the same scores.
    """

    place: NormalScores
    elapsed: NormalScores
    velocity: NormalScores

    @classmethod
    def fit(cls, steps: Steps) -> Self:
        """Fits the scores to the steps of past trips."""
        moved = steps[~steps.first] if not steps.first.all() else steps
        state = moved.state
        of = NormalScores.fit
        return cls(of(state[:, :2]), of(state[:, 4:5]), of(moved.velocity))

    def states(self, states: Array) -> Floats:
        """Returns the scores of states: x, y, x0, y0 in metres, seconds since the start; other columns as they are."""
        places = [self.place(states[:, :2]), self.place(states[:, 2:4])]
        return np.hstack([*places, self.elapsed(states[:, 4:5]), states[:, 5:]])

    def metres_and_seconds(self, scores: Array) -> Floats:
        """Returns the states with these scores."""
        places = [self.place.inverse(scores[:, :2]), self.place.inverse(scores[:, 2:4])]
        return np.hstack([*places, self.elapsed.inverse(scores[:, 4:5]), scores[:, 5:]])
