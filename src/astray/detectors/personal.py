"""An agent's own scale: that of agents with as much history, moved towards what its own trips score.

People differ: some hardly ever leave their ways, others do so every week. How much an agent does is seen in the scores
of its remembered trips, each left out of its own counts. A few trips say little, so their mean and variance are shrunk
towards everybody's (empirical Bayes, Efron and Morris 1975), which count as a few more trips of the agent's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.normality import WINDOW_TOLERANCE, Location, Scale, TripScores

Array = NDArray[Any]
OwnScores = NDArray[np.float32]  # (trips, 2): N(tau) and the worst window; not a number where they are not known

PSEUDO_TRIPS = 10.0  # that everybody's scale counts as, against the agent's own trips; 5 to 40 measure alike
RECENT = 100  # of an agent's trips, the newest, set its scale: habits change, and scores rise with the history


class Own(NamedTuple):
    """Centre and spread of an agent's own trips, in units of everybody's: of N(tau), and of the worst window."""

    trip: Location
    window: Location

    @classmethod
    def of(cls, scores: OwnScores) -> Own:
        """What an agent's trips tell of it; without any, it is like everybody."""
        trip, window = scores[~np.isnan(scores).any(axis=1)][-RECENT:].T
        return cls(shrunk(trip), shrunk(window, 1.0 / WINDOW_TOLERANCE))

    def scale(self, everybody: Scale) -> Scale:
        """The agent's own scale."""
        c = everybody.calibration
        overall = c.overall._replace(
            trip=_within(c.overall.trip, self.trip), window=_within(c.overall.window, self.window)
        )
        return replace(everybody, calibration=replace(c, overall=overall))


def shrunk(values: Array, everybody: float = 1.0) -> Location:
    """Centre of an agent's values and their spread over everybody's, shrunk towards everybody's: 0 and 1.

    >>> shrunk(np.zeros(0))
    Location(centre=0.0, spread=1.0)
    >>> shrunk(np.tile([-3.0, -1.0], 15)).centre
    -1.5
    """
    n = len(values)
    if not n:
        return Location(0.0, 1.0)
    weight = n / (n + PSEUDO_TRIPS)
    variance = float(np.var(values, dtype=np.float64)) / everybody**2
    return Location(weight * float(np.mean(values, dtype=np.float64)), float(np.sqrt(weight * variance + 1.0 - weight)))


def own_scores(scores: TripScores) -> OwnScores:
    """What is kept of an agent's trips."""
    return np.column_stack([scores.normality, scores.worst_window]).astype(np.float32)


def _within(outer: Location, inner: Location) -> Location:
    """The scale of values that are standardised by ``outer`` first, then by ``inner``."""
    return Location(outer.centre + outer.spread * inner.centre, outer.spread * inner.spread)
