"""Which trips teach: at first, and in an update, which also takes trips out, new or past, for ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from astray.detectors.training import teachable
from astray.errors import DataError
from astray.features.featurizer import trip_names
from astray.trajectories import Trajectories


def first_lesson(trips: Trajectories, y: ArrayLike | None) -> NDArray[np.bool_]:
    """Which trips teach a detector that knows nothing yet: at least one."""
    good = teachable(trips, y)
    if not good.any():
        raise DataError("no trajectory to learn from; give at least one that is not marked anomalous")
    return good


class Update(NamedTuple):
    """Trips that teach, their names, and the names of those that proved anomalous."""

    new: Trajectories | None
    taught: frozenset[str]
    refused: frozenset[str]


def sort_out(
    trips: Trajectories | None,
    y: ArrayLike | None,
    anomalous: Sequence[str],
    past: set[str],
    known: frozenset[str],
    agents: Iterable[str],
) -> Update:
    """Sort out new trips by their marks, and past ones by their names.

    Parameters
    ----------
    trips, y
        New trips, or None; +1 for normal ones, -1 for anomalous ones.
    anomalous
        Names of trips, new or past, that proved anomalous: trajectories alone, or agent/trajectory.
    past
        Full names of the trips that were learned from.
    known
        Full names of those that are known to be anomalous.
    agents
        Whose trips were learned from.
    """
    meant = {w: {w, *(f"{agent}/{w}" for agent in agents)} & past for w in anomalous}
    refused = set[str]().union(*meant.values())
    taught: set[str] = set()
    if trips is not None:
        good = teachable(trips, y, anomalous, known)
        meant = {w: found | set(trip_names(trips[trips.called([w])])) for w, found in meant.items()}
        refused |= set(trip_names(trips[~good]))
        trips = trips[good]
        taught = set(trip_names(trips))
    unknown = [w for w, found in meant.items() if not found]
    if unknown:
        raise DataError(f"no trip named {unknown[0]!r} was learned from or given, so it cannot be taken out")
    return Update(trips, frozenset(taught), frozenset(refused))
