"""Functions that the data sets share to make trials: they choose, rename, move and order foreign trips."""

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
    """Returns the number of anomalies to add to ``normal`` trips for this rate; at least one.

    >>> anomalies_for(190, 0.05), anomalies_for(90, 0.1)
    (10, 10)
    """
    return max(1, round(normal * rate / (1.0 - rate)))


def in_time(trips: Trajectories) -> Trajectories:
    """Sorts trips by their starts, so that the position in the set does not give foreign trips away."""
    return trips[np.argsort(trips.columns["time"][trips.offsets[:-1]], kind="stable")]


def claim(trips: Trajectories, person: str, prefix: str) -> Trajectories:
    """Renames trips as one person's, with neutral names."""
    ids = [f"{prefix}-{i:05d}" for i in range(len(trips))]
    columns = {name: trips.columns[name] for name in FIX_COLUMNS}
    return Trajectories(columns, trips.offsets, np.full(len(trips), person), ids)


def submitted(trips: Trajectories, foreign: Ints, own: Ints, period: float = WEEK) -> Trajectories:
    """Submits others' trips as a person's, each moved to about the time of one of the person's own."""
    moved = [submitted_as(trips[int(i)], trips[int(j)], period) for i, j in zip(foreign, own, strict=True)]
    return Trajectories.concat(moved) if moved else trips[:0]


def shuffled(
    lesson: Lesson,
    test: Trajectories,
    kind: NDArray[np.str_],
    truth: NDArray[np.bool_] | None,
    rng: np.random.Generator,
) -> Trial:
    """Makes a trial with its test trips, submitted as the subject's own, in random order."""
    source = np.array(list(map(str, test.ids)))
    order = rng.permutation(len(test))
    marked = test.with_columns({"truth": np.zeros(test.n_rows, np.bool_) if truth is None else truth})[order]
    claimed = claim(marked, str(lesson.train.agent_ids[0]), "test")
    return Trial(lesson, claimed, kind[order], source[order], None if truth is None else marked.columns["truth"])


# -------------------------------------------------------------------- an intruder in a stream (P7)


def intruder(trips: Trajectories, foreign: Ints, wanted: int, rng: np.random.Generator) -> Ints:
    """Draws ``wanted`` consecutive trips of a stranger with at least that many; returns their positions."""
    who, count = np.unique(trips.agent_ids[foreign], return_counts=True)
    if not (count >= wanted).any():
        raise DataError(f"nobody who may be injected has {wanted} trips", remedy="read more people")
    theirs = foreign[trips.agent_ids[foreign] == rng.choice(who[count >= wanted])]
    theirs = theirs[np.argsort(trips.columns["time"][trips.offsets[theirs]], kind="stable")]
    first = int(rng.integers(len(theirs) - wanted + 1))
    return np.asarray(theirs[first : first + wanted])


def intrusion(own: int, foreign: int, rng: np.random.Generator) -> Ints:
    """Draws the days of an intruder's trips: half of 2 ``foreign`` trips in a row, in the middle of the stream.

    Returns, for each foreign trip, the number of the person's trip whose day it moves to. The caller sorts the stream
    by time, so that the order of its trips agrees with their dates.

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
