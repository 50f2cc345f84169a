"""Streams (P7): when an intruder comes, and who it is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from astray.errors import DataError
from astray.trajectories import Trajectories

Ints = NDArray[np.int64]


def intruder(trips: Trajectories, foreign: Ints, wanted: int, rng: np.random.Generator) -> Ints:
    """The positions of so many consecutive trips of one stranger, drawn from those who have so many."""
    who, count = np.unique(trips.agent_ids[foreign], return_counts=True)
    if not (count >= wanted).any():
        raise DataError(f"nobody who may be injected has {wanted} trips", remedy="read more people")
    theirs = foreign[trips.agent_ids[foreign] == rng.choice(who[count >= wanted])]
    theirs = theirs[np.argsort(trips.columns["time"][trips.offsets[theirs]], kind="stable")]
    first = int(rng.integers(len(theirs) - wanted + 1))
    return np.asarray(theirs[first : first + wanted])


def intrusion(own: int, foreign: int, rng: np.random.Generator) -> Ints:
    """When an intruder's trips come: they are half of twice as many in a row, somewhere in the middle of the stream.

    Gives, for each foreign trip, the number of the own one on whose day it is made. The stream is then put in the order
    of time, so that the order of its trips and their dates say the same.

    >>> intrusion(8, 2, np.random.default_rng(0)).tolist()
    [7, 7]
    """
    first, last = own // 4, min(3 * own // 4, own - foreign)
    if last < first:
        raise DataError(
            f"{own} trips are too few for an intruder who makes {foreign} of {2 * foreign} in a row",
            remedy="choose another person",
        )
    begin = int(rng.integers(first, last + 1))
    theirs = rng.permutation(2 * foreign) < foreign
    return np.asarray(np.minimum(begin + np.cumsum(~theirs)[theirs], own - 1))
