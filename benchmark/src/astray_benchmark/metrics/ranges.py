"""Ranges of fixes inside trips, and range-based precision and recall (Tatbul et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from astray.core.errors import DataError
from astray_benchmark.array_types import Bools, Floats, Ints
from astray_benchmark.metrics.ranking import Decisions, as_flags

Bias = Literal["flat", "front", "middle", "back"]
Cardinality = Literal["reciprocal", "one"]


class Ranges(NamedTuple):
    """Runs of neighbouring fixes: the first row, the row after the last, and the trip of each."""

    start: Ints
    stop: Ints
    trip: Ints


def runs(flags: ArrayLike, offsets: ArrayLike) -> Ranges:
    """Returns the runs of true values; none crosses the end of a trip.

    >>> runs([True, True, True, False, True], [0, 2, 5])
    Ranges(start=array([0, 2, 4]), stop=array([2, 3, 5]), trip=array([0, 1, 1]))
    """
    values, cuts = rows_of_trips(flags, offsets)
    begins, ends = values.copy(), values.copy()
    begins[1:] &= ~values[:-1]
    ends[:-1] &= ~values[1:]
    first, last = cuts[:-1], cuts[1:] - 1
    begins[first], ends[last] = values[first], values[last]
    start = np.flatnonzero(begins)
    return Ranges(start, np.flatnonzero(ends) + 1, np.searchsorted(cuts, start, side="right") - 1)


def rows_of_trips(flags: ArrayLike, offsets: ArrayLike, name: str = "truth") -> tuple[Bools, Ints]:
    """Returns flags and offsets as arrays; raises an error unless there is one flag for each row of the trips."""
    values, cuts = as_flags(flags, name), np.asarray(offsets, np.int64)
    if cuts.ndim != 1 or len(cuts) < 1 or cuts[0] != 0 or cuts[-1] != len(values) or (np.diff(cuts) <= 0).any():
        raise DataError(
            f"the offsets do not rise from 0 to the number of fixes ({len(values)})",
            remedy=f"give offsets of trips, and one value of {name} per fix",
        )
    return values, cuts


def range_decisions(
    flagged: ArrayLike,
    truth: ArrayLike,
    offsets: ArrayLike,
    *,
    alpha: float = 0.0,
    bias: Bias = "flat",
    cardinality: Cardinality = "reciprocal",
) -> Decisions:
    """Returns range-based precision, recall and F1 (Tatbul et al., NeurIPS 2018).

    A true range scores ``alpha`` if it is touched at all, plus ``1 - alpha`` times its overlap reward; a flagged range
    scores its overlap reward. The overlap reward is the covered share of the range (weighted by position if there is a
    bias), divided by the number of pieces that cover it unless ``cardinality`` is "one". Recall is the mean over true
    ranges, precision the mean over flagged ranges; no range crosses the end of a trip.

    Parameters
    ----------
    alpha
        The weight, in the recall, of being touched at all; 0 is the authors' default. Precision does not use it.
    bias
        The positions of a range with more weight: none ("flat"), early ones ("front"), late ones ("back") or the
        middle.

    Examples
    --------
    >>> truth = np.array([0, 1, 1, 1, 1, 0, 0, 0])
    >>> flagged = np.array([0, 0, 1, 1, 0, 0, 0, 1])
    >>> range_decisions(flagged, truth, [0, 8])  # half of the true range; one flagged range right, one wrong
    Decisions(precision=0.5, recall=0.5, f1=0.5)
    """
    found, cuts = rows_of_trips(flagged, offsets, "flagged")
    real, _ = rows_of_trips(truth, offsets)
    if not 0.0 <= alpha <= 1.0:
        raise DataError(f"alpha is {alpha}", remedy="give a weight from 0 to 1")
    if not real.any():
        raise DataError("no fix is anomalous, so there is no range to find", remedy="measure false alarms instead")
    reward, touched = _overlap(real, found, cuts, bias, cardinality)
    recall = float((alpha * touched + (1.0 - alpha) * reward).mean())
    precision = float(_overlap(found, real, cuts, bias, cardinality)[0].mean()) if found.any() else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return Decisions(precision, recall, f1)


def _overlap(of: Bools, by: Bools, cuts: Ints, bias: Bias, cardinality: Cardinality) -> tuple[Floats, Floats]:
    """Returns the overlap reward of each range in a mask by the ranges in another, and True if it is touched."""
    ranges = runs(of, cuts)
    size = ranges.stop - ranges.start
    rows = np.flatnonzero(of)
    length = np.repeat(size, size)
    place = rows - np.repeat(ranges.start, size)  # from 0
    delta = _BIAS[bias](place, length)
    first = np.cumsum(size) - size
    covered = np.add.reduceat(delta * by[rows], first) / np.add.reduceat(delta, first)
    # Each covered piece of a range belongs to a different range of the other mask.
    pieces = np.bincount(np.searchsorted(ranges.stop, runs(of & by, cuts).start, side="right"), minlength=len(size))
    factor = 1.0 / np.maximum(pieces, 1) if cardinality == "reciprocal" else 1.0
    return covered * factor, (pieces > 0).astype(np.float64)


_BIAS: dict[Bias, Callable[[Ints, Ints], Ints]] = {
    "flat": lambda place, length: np.ones_like(place),
    "front": lambda place, length: length - place,
    "middle": lambda place, length: np.minimum(place + 1, length - place),
    "back": lambda place, length: place + 1,
}
