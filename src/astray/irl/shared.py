"""The reward of steps and of whole trips, and the rewards of normal trips of many agents, for reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.features.statistics import SEEN
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

    It scales the scores of agents with few past trips; the more past trips an agent has, the less it weighs.

    Attributes
    ----------
    trips, under_way
        Rewards of normal trips, each by the trips before it, as means over the heads: (bands, trips, aspects). The band
        is that of the number of trips before it. ``trips`` are the rewards of whole trips, ``under_way`` those at the
        look at which the combined reward of the trip so far is lowest, with all aspects alike.
    steps
        Rewards of normal steps, in the same form.
    typical
        The median statistics of normal trips, by band, with which explanations compare a trip.
    noise
        A trip's reward depends on which n trips happen to be in the memory; its standard deviation over them is
        noise / sqrt(1 + n).
    """

    trips: NDArray[np.float32]
    under_way: NDArray[np.float32]
    steps: NDArray[np.float32]
    typical: NDArray[np.float32]
    noise: float

    def rewards(self, what: str, history: float, weights: Sequence[float]) -> Floats:
        """Returns the combined rewards of ``trips``, ``under_way`` or ``steps`` of agents with such a history."""
        some = getattr(self, what)[int(band_of(history))]
        return combined(some[:, :, None], weights)[:, 0]


@dataclass(frozen=True, eq=False)
class Reward:
    """The reward r(s, a) of steps and, if it was learned, R(tau) of trips.

    Attributes
    ----------
    step
        The heads for steps; they show where and when a trip goes wrong.
    trip
        The heads for the statistics of whole trips; they decide whether a trip goes wrong.
    reference
        The rewards of normal trips of many agents, if the reward serves every agent.
    made
        A record, in plain values, of how the reward was made.
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
        """True if the reward of trips was learned from one pool of agents and is only for this pool."""
        return "pool" in self.made

    @property
    def aspects(self) -> tuple[str, ...]:
        """The names of the aspects."""
        return self.step.aspects if self.trip is None else self.trip.aspects


ROUTE = "route"
UNEXPECTED = 0.3
"""The reward that the route of a trip loses for each standard deviation by which its way was unexpected."""


def trip_rewards(reward: RewardPosterior, statistics: Array) -> NDArray[np.float64]:
    """Returns the rewards of trips, (trips, aspects, heads); NaN for a trip whose statistics are all missing.

    The network rewards the statistics that it has learned from. The last statistic, the unexpected way, is evidence of
    its own about the route, so its log-ratio is added to that of the route.
    """
    known = ~np.isnan(statistics).all(axis=1)
    found = np.full((len(statistics), len(reward.aspects), reward.n_heads), np.nan)
    found[known] = reward(statistics[known, SEEN])
    if ROUTE in reward.aspects:
        unexpected = np.maximum(np.nan_to_num(statistics[:, -1].astype(np.float64)), 0.0)
        found[:, reward.aspects.index(ROUTE)] -= UNEXPECTED * unexpected[:, None]
    return found
