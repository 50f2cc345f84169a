"""A reward that serves every agent: of steps, of whole trips, and what people like the agent usually score by it."""

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
"""Edges of the bands of history, in trips."""


def band_of(history: Array | float) -> NDArray[np.int64]:
    """The band that a history of so many trips lies in: up to the first edge, then up to the second, ...

    >>> band_of(np.array([0, 4, 5, 60])).tolist()
    [0, 0, 1, 3]
    """
    return np.asarray(np.searchsorted(np.asarray(BANDS), history, side="right"), np.int64)


@dataclass(frozen=True, eq=False)
class Reference:
    """What normal trips of many agents score, by the number of past trips that stand behind them.

    An agent of which little is known is measured by it; the more is known of the agent itself, the less it counts.

    Attributes
    ----------
    trips, prefixes
        Trip rewards of normal trips, whole or unfinished, mean over the heads: (bands, trips, aspects).
    steps
        Step rewards of normal steps, likewise.
    typical
        The median statistics of normal trips, by band: what a trip is compared with to say what is unusual about it.
    noise
        How far a trip's reward would move had another past trip been the only one, in units of reward; with n past
        trips it is this over the root of 1 + n.
    """

    trips: NDArray[np.float32]
    prefixes: NDArray[np.float32]
    steps: NDArray[np.float32]
    typical: NDArray[np.float32]
    noise: float

    def rewards(self, what: str, history: float, weights: Sequence[float]) -> Floats:
        """The combined rewards of normal ``trips``, ``prefixes`` or ``steps`` of agents with so much history."""
        some = getattr(self, what)[int(band_of(history))]
        return combined(some[:, :, None], weights)[:, 0]


@dataclass(frozen=True, eq=False)
class Reward:
    """r(s, a) and, where it is learned, R(tau).

    Attributes
    ----------
    step
        The heads that reward a step: where and when a trip goes wrong.
    trip
        The heads that reward a whole trip by its statistics: whether it does.
    reference
        What normal trips of many agents score; for a reward that serves everybody.
    made
        How it came about, in plain values.
    history
        How it was learned, the last time: a table with one row an iteration; empty if that is not known.
    """

    step: RewardPosterior
    trip: RewardPosterior | None = None
    reference: Reference | None = None
    made: dict[str, Any] = field(default_factory=dict)
    history: pl.DataFrame = field(default_factory=pl.DataFrame)

    @property
    def of_a_pool(self) -> bool:
        """Whether the reward of trips has learned from a pool of agents, and serves nobody else."""
        return "pool" in self.made

    @property
    def aspects(self) -> tuple[str, ...]:
        """What it is asked about."""
        return self.step.aspects if self.trip is None else self.trip.aspects


def trip_rewards(reward: RewardPosterior, statistics: Array) -> NDArray[np.float64]:
    """The rewards of trips, (trips, aspects, heads); of a trip of which nothing is known, not numbers."""
    known = ~np.isnan(statistics).all(axis=1)
    found = np.full((len(statistics), len(reward.aspects), reward.n_heads), np.nan)
    found[known] = reward(statistics[known])
    return found
