"""Finds runs that overlap: the same steps in two runs are evidence once, not twice."""

from __future__ import annotations

import warnings

import numpy as np

from astray.core.errors import OverlapWarning
from astray.core.trajectories import Trajectories
from astray.features.hashing import mix

SPAN = 10  # consecutive steps that two runs must share to count as overlapping
SHARE = 0.05  # warn if more than this share of all steps overlaps; runs that only begin alike share fewer
DISTINCT = 0.5  # check only runs of which this share of steps differ: with few possible steps, runs are alike


def warn_of_overlap(runs: Trajectories) -> None:
    """Warns if runs of states and actions share steps: sliding windows of one recording, or a run given twice."""
    shared, example = overlap(runs)
    if shared > SHARE:
        one, other = (str(runs.ids[i]) for i in example)
        warnings.warn(
            f"{shared:.0%} of the steps are in two runs or more, such as {one} and {other}. The model then also learns "
            "from held-out runs, and its p-values promise too much. Cut a recording into runs that do not overlap",
            OverlapWarning,
            stacklevel=6,  # where fit was called
        )


def overlap(runs: Trajectories) -> tuple[float, tuple[int, int]]:
    """Returns the share of steps that another run repeats, :data:`SPAN` or more in a row, and two such runs.

    >>> recording = np.random.default_rng(0).normal(size=(120, 2))
    >>> windows = [recording[i : i + 40] for i in (0, 20, 80)]  # the first two share twenty steps
    >>> shared, example = overlap(Trajectories.from_steps(windows, windows))
    >>> round(shared, 2), example
    (0.33, (0, 1))
    """
    run, length = runs.trajectory_of_row, int(min(SPAN, runs.lengths.min()))
    steps = np.zeros(len(run), np.uint64)
    for name in ("state", "action"):
        for column in np.ascontiguousarray(runs.columns[name], np.float64).view(np.uint64).T:
            steps = mix(steps, column)
    if len(np.unique(mix(run.astype(np.uint64), steps))) < DISTINCT * len(steps):
        return 0.0, (0, 0)
    starts = np.flatnonzero(run[: len(run) - length + 1] == run[length - 1 :])
    spans = steps[starts]
    for k in range(1, length):
        spans = mix(spans, steps[starts + k])
    order = np.lexsort((run[starts], spans))
    spans, starts = spans[order], starts[order]
    again = np.flatnonzero((spans[1:] == spans[:-1]) & (run[starts[1:]] != run[starts[:-1]]))
    if not len(again):
        return 0.0, (0, 0)
    begins = np.zeros(len(run) + 1, np.int64)
    for of in (starts[again], starts[again + 1]):
        np.add.at(begins, of, 1)
        np.add.at(begins, of + length, -1)
    return float((np.cumsum(begins[:-1]) > 0).mean()), (int(run[starts[again[0]]]), int(run[starts[again[0] + 1]]))
