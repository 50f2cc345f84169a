"""The reward that serves every agent: of steps, of whole trips, and the scores that normal trips get from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.irl.posterior import RewardPosterior, combined

Array = NDArray[Any]
Floats = NDArray[np.float64]

BANDS = (5.0, 20.0, 50.0, 200.0)
"""The edges of the bands of history; a history is the number of an agent's past trips."""


def band_of(history: Array | float) -> NDArray[np.int64]:
    """Returns the band of a history: 0 below the first edge, 1 below the second, and so on.

    >>> band_of(np.array([0, 4, 5, 60])).tolist()
    [0, 0, 1, 3]
    """
    return np.asarray(np.searchsorted(np.asarray(BANDS), history, side="right"), np.int64)


@dataclass(frozen=True, eq=False)
class Reference:
    """The rewards of normal trips of many agents, by band of history.

    The scores of an agent with few past trips are scaled by it; the more past trips the agent has, the less it counts.

    Attributes
    ----------
    trips, prefixes
        Rewards of normal trips, whole and unfinished, as means over the heads: (bands, trips, aspects).
    steps
        Rewards of normal steps, in the same form.
    typical
        The median statistics of normal trips, by band; explanations compare a trip with them.
    noise
        The standard deviation of a trip's reward over the choice of the past trips: with n of them it is
        noise / sqrt(1 + n).
    """

    trips: NDArray[np.float32]
    prefixes: NDArray[np.float32]
    steps: NDArray[np.float32]
    typical: NDArray[np.float32]
    noise: float

    def rewards(self, what: str, history: float, weights: Sequence[float]) -> Floats:
        """Returns the combined rewards of normal ``trips``, ``prefixes`` or ``steps`` of agents with such a history."""
        some = getattr(self, what)[int(band_of(history))]
        return combined(some[:, :, None], weights)[:, 0]


@dataclass(frozen=True, eq=False)
class Reward:
    """The reward r(s, a) of steps and, where it was learned, R(tau) of trips.

    Attributes
    ----------
    step
        The heads that reward a step; they show where and when a trip goes wrong.
    trip
        The heads that reward a whole trip by its statistics; they decide whether it does.
    reference
        The rewards of normal trips of many agents, if the reward serves every agent.
    made
        How the reward was made, in plain values.
    history
        The measures of the last training, one row for each iteration; empty if unknown.
    """

    step: RewardPosterior
    trip: RewardPosterior | None = None
    reference: Reference | None = None
    made: dict[str, Any] = field(default_factory=dict)
    history: pl.DataFrame = field(default_factory=pl.DataFrame)

    @property
    def of_a_pool(self) -> bool:
        """True if the reward of trips was learned from a pool of agents, and serves this pool alone."""
        return "pool" in self.made

    @property
    def aspects(self) -> tuple[str, ...]:
        """The names of the aspects."""
        return self.step.aspects if self.trip is None else self.trip.aspects


def trip_rewards(reward: RewardPosterior, statistics: Array) -> NDArray[np.float64]:
    """Returns the rewards of trips, (trips, aspects, heads); NaN for a trip whose statistics are all missing."""
    known = ~np.isnan(statistics).all(axis=1)
    found = np.full((len(statistics), len(reward.aspects), reward.n_heads), np.nan)
    found[known] = reward(statistics[known])
    return found
