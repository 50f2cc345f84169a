"""From checked columns of fixes to trajectories: how fixes are grouped, put in order and cut into trips."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.errors import DataError
from astray.readers.refusals import Intake
from astray.trajectories import Trajectories
from astray.trips import cut

KEYS = ("agent", "trajectory")
TRIPS = ("as-given", "cut")


def time_ordered(time: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The order that sorts each trajectory by time (equal times keep theirs); None if all are sorted."""
    backwards = np.diff(time) < 0
    ends = offsets[1:-1]
    backwards[ends[(ends > 0) & (ends < len(time))] - 1] = False
    if not backwards.any():
        return None
    return np.lexsort((time, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))))


def run_starts(keys: pl.DataFrame) -> NDArray[np.int64]:
    """Where the key differs from the row before."""
    if not keys.height:
        return np.zeros(0, np.int64)
    change = np.zeros(keys.height, dtype=np.bool_)
    for series in keys:
        change |= (series != series.shift(1)).fill_null(True).to_numpy()
    change[0] = True
    return np.flatnonzero(change)


def grouped(fixes: pl.DataFrame, columns: Sequence[str] = (), context: Sequence[str] = ()) -> Trajectories:
    """Trajectories of checked fixes in any order; they keep the order in which they first appear.

    ``fixes`` has the columns agent, trajectory (text), time, lat, lon (numbers) and those named in
    ``columns`` (one value a fix) and ``context`` (the first of each trajectory is kept). Keys are compared
    run by run, not row by row, so a file that is grouped already costs little.
    """
    starts = run_starts(fixes.select(KEYS))
    lengths = np.diff(np.r_[starts, fixes.height])
    heads = fixes.select(KEYS)[starts].with_row_index("run")
    first = heads.group_by(KEYS, maintain_order=True).agg(pl.col("run").first().alias("first"))
    time = fixes["time"].to_numpy()
    if first.height == len(starts):
        order = time_ordered(time, np.r_[starts, fixes.height])
    else:
        runs = heads.join(first, on=KEYS, how="left", maintain_order="left")["first"].to_numpy()
        codes = np.repeat(runs, lengths)
        order = np.lexsort((time, codes))
        sorted_codes = codes[order]
        starts = np.flatnonzero(np.r_[True, sorted_codes[1:] != sorted_codes[:-1]])

    def column(name: str) -> NDArray[np.generic]:
        values = fixes[name].to_numpy()
        return values if order is None else values[order]

    trips = fixes[starts if order is None else order[starts]]
    return Trajectories(
        {name: column(name) for name in ("time", "lat", "lon", *columns)},
        np.r_[starts, fixes.height],
        trips["agent"].to_numpy(),
        trips["trajectory"].to_numpy(),
        {name: _context(trips[name]) for name in context},
    )


def in_trips(fixes: Trajectories, how: str | None, intake: Intake) -> Trajectories:
    """Trips of trajectories, of which raw fixes have no name: these are cut, or kept as they are, or all are cut."""
    if how not in (None, *TRIPS):
        raise DataError(f"trips={how!r} is unknown", remedy=f"give {' or '.join(TRIPS)}, or leave it out")
    raw = np.full(len(fixes), how == "cut") | (fixes.trajectory_ids == "")
    if not raw.any():
        return fixes
    if how == "as-given":
        names = np.where(raw, fixes.agent_ids, fixes.trajectory_ids)
        return Trajectories._trusted(dict(fixes.columns), fixes.offsets, fixes.agent_ids, names, fixes.context)
    made = cut(_interrupted(fixes[raw], fixes[~raw]))
    intake.report.cut += len(made)
    intake.supposed_trips |= how is None
    return made if raw.all() else Trajectories.concat([fixes[~raw], made])


def _interrupted(raw: Trajectories, named: Trajectories) -> Trajectories:
    """Raw fixes, parted where fixes of a trip with a name come between them: there a live trip ends, too."""
    both = set(raw.agent_ids.tolist()) & set(named.agent_ids.tolist())
    if not both:
        return raw
    starts: list[int] = []
    whose: list[int] = []
    for i, agent in enumerate(raw.agent_ids.tolist()):
        time, begins = raw[i].columns["time"], [0]
        if agent in both:
            passed = np.searchsorted(np.sort(named.agent(agent).columns["time"]), time)
            begins += (np.flatnonzero(np.diff(passed)) + 1).tolist()
        starts += [int(raw.offsets[i]) + begin for begin in begins]
        whose += [i] * len(begins)
    return Trajectories._trusted(
        dict(raw.columns),
        np.array([*starts, raw.n_rows], np.int64),
        raw.agent_ids[whose],
        raw.trajectory_ids[whose],
        {name: values[whose] for name, values in raw.context.items()},
    )


def _context(series: pl.Series) -> NDArray[np.generic]:
    """One value a trajectory; text that is missing is empty text."""
    if series.dtype.is_numeric() or series.dtype == pl.Boolean:
        return series.to_numpy()
    return series.cast(pl.String).fill_null("").to_numpy().astype(np.str_)
