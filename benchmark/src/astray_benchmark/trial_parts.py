"""Parts of trials that the data sets share: which foreign trips are submitted when, under which names and order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.grouping import FIX_COLUMNS
from astray.core.trajectories import Trajectories
from astray_benchmark.array_types import Ints
from astray_benchmark.contenders import Lesson
from astray_benchmark.injectors import WEEK, submitted_as
from astray_benchmark.protocols import Trial


def anomalies_for(normal: int, rate: float) -> int:
    """Returns how many anomalies beside ``normal`` trips make a rate; at least one.

    >>> anomalies_for(190, 0.05), anomalies_for(90, 0.1)
    (10, 10)
    """
    return max(1, round(normal * rate / (1.0 - rate)))


def in_time(trips: Trajectories) -> Trajectories:
    """Sorts trips by their starts, so that the place in the set does not betray foreign trips."""
    return trips[np.argsort(trips.columns["time"][trips.offsets[:-1]], kind="stable")]


def claim(trips: Trajectories, person: str, prefix: str) -> Trajectories:
    """Renames trips as one person's own, under names that tell nothing."""
    ids = [f"{prefix}-{i:05d}" for i in range(len(trips))]
    columns = {name: trips.columns[name] for name in FIX_COLUMNS}
    return Trajectories(columns, trips.offsets, np.full(len(trips), person), ids)


def submitted(trips: Trajectories, foreign: Ints, own: Ints, period: float = WEEK) -> Trajectories:
    """Submits others' trips as a person's, each at about the time of one of the person's own."""
    moved = [submitted_as(trips[int(i)], trips[int(j)], period) for i, j in zip(foreign, own, strict=True)]
    return Trajectories.concat(moved) if moved else trips[:0]


def shuffled(
    lesson: Lesson,
    test: Trajectories,
    kind: NDArray[np.str_],
    truth: NDArray[np.bool_] | None,
    rng: np.random.Generator,
) -> Trial:
    """Makes a trial whose test trips, submitted as the subject's own, stand in an order that tells nothing."""
    source = np.array(list(map(str, test.ids)))
    order = rng.permutation(len(test))
    marked = test.with_columns({"truth": np.zeros(test.n_rows, np.bool_) if truth is None else truth})[order]
    claimed = claim(marked, str(lesson.train.agent_ids[0]), "test")
    return Trial(lesson, claimed, kind[order], source[order], None if truth is None else marked.columns["truth"])


# -------------------------------------------------------------------- an intruder in a stream (P7)


def intruder(trips: Trajectories, foreign: Ints, wanted: int, rng: np.random.Generator) -> Ints:
    """Draws ``wanted`` consecutive trips of one stranger who has that many; returns their positions."""
    who, count = np.unique(trips.agent_ids[foreign], return_counts=True)
    if not (count >= wanted).any():
        raise DataError(f"nobody who may be injected has {wanted} trips", remedy="read more people")
    theirs = foreign[trips.agent_ids[foreign] == rng.choice(who[count >= wanted])]
    theirs = theirs[np.argsort(trips.columns["time"][trips.offsets[theirs]], kind="stable")]
    first = int(rng.integers(len(theirs) - wanted + 1))
    return np.asarray(theirs[first : first + wanted])


def intrusion(own: int, foreign: int, rng: np.random.Generator) -> Ints:
    """Draws when an intruder's trips come: half of 2 ``foreign`` trips in a row, in the middle of the stream.

    Returns, for each foreign trip, the number of the own trip on whose day it is made. The stream is then put in the
    order of time, so that the order of its trips and their dates agree.

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
