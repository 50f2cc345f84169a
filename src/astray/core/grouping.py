"""Groups rows into trajectories, puts them in order, and checks the result."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import DataError, Remedy
from astray.core.fixes import place_faults

Array = NDArray[Any]

YEAR = 365.25 * 86_400.0
MOST_SECONDS = 7.3e9  # since 1970, as in the readers; larger numbers are probably milliseconds
FIX_COLUMNS = ("time", "lat", "lon")
KEYS = ("agent", "trajectory")
ROWS = 1 << 18
"""The number of rows to work on at a time where all at once would take too much memory."""


class Grouped(NamedTuple):
    """The arrays of a :class:`~astray.Trajectories`."""

    columns: dict[str, Array]  # one row for each fix or step, trajectories one after the other
    offsets: NDArray[np.int64]  # the first row of each trajectory, and the end of the last one
    agent_ids: NDArray[np.str_]  # one for each trajectory
    trajectory_ids: NDArray[np.str_]
    context: dict[str, Array]  # one row for each trajectory


def numbered(labels: pl.DataFrame) -> tuple[NDArray[np.int32], pl.DataFrame]:
    """Numbers the distinct labels in the order of their first rows; returns each row's number, and the labels.

    A table that is already grouped takes little time, because equal labels in a row are looked up once.

    >>> codes, known = numbered(pl.DataFrame({"agent": ["ana", "ana", "bob", "ana"]}))
    >>> codes.tolist(), known["agent"].to_list()
    ([0, 0, 1, 0], ['ana', 'bob'])
    """
    starts = run_starts(labels)
    runs = labels[starts]
    known = runs.unique(keep="first", maintain_order=True)
    of_run = np.arange(len(starts), dtype=np.int32)
    if known.height < runs.height:
        found = runs.join(known.with_row_index("code"), on=labels.columns, how="left", nulls_equal=True)
        of_run = found["code"].to_numpy().astype(np.int32)
    return np.repeat(of_run, np.diff(np.r_[starts, labels.height])), known


def run_starts(labels: pl.DataFrame) -> NDArray[np.int64]:
    """Returns the rows that differ from the row before."""
    change = np.zeros(labels.height, dtype=np.bool_)
    change[:1] = True
    for series in labels:
        change |= series.ne_missing(series.shift(1)).to_numpy()
    return np.flatnonzero(change)


def put_in_order(columns: dict[str, Array], codes: NDArray[np.int32]) -> NDArray[np.int64]:
    """Sorts rows by the numbers of their trajectories, then by time; returns the offsets of the trajectories.

    Rows of equal times keep their order. ``columns`` are replaced in place, one after the other, so that at most one is
    in memory twice; ``codes`` are overwritten.

    >>> columns = {"time": np.array([5.0, 1.0, 3.0]), "lat": np.array([0.5, 0.1, 0.3])}
    >>> put_in_order(columns, np.array([0, 1, 0], np.int32)).tolist(), columns["lat"].tolist()
    ([0, 2, 3], [0.3, 0.5, 0.1])
    """
    parts = [slice(low, low + ROWS) for low in range(0, len(codes), ROWS)]
    lengths = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    for part in parts:
        lengths += np.bincount(codes[part], minlength=len(lengths))
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if (codes[1:] < codes[:-1]).any():
        targets = _targets(codes, offsets[:-1].copy())
        for name in columns:
            moved = np.empty_like(columns[name])
            for part in parts:
                moved[targets[part]] = columns[name][part]
            columns[name] = moved
    sort_by_time(columns, offsets)
    return offsets


def _targets(codes: NDArray[np.int32], free: NDArray[np.int64]) -> NDArray[np.int32 | np.int64]:
    """Overwrites each row's code with the row where it belongs; ``free`` holds the next free row of each code."""
    targets: NDArray[np.int32 | np.int64] = codes if len(codes) < 2**31 else codes.astype(np.int64)
    for low in range(0, len(codes), ROWS):
        here = targets[low : low + ROWS]
        order = np.argsort(here, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(here[order]) != 0])
        lengths = np.diff(np.r_[starts, len(here)])
        found = here[order[starts]]
        here[order] = np.arange(len(here)) + np.repeat(free[found] - starts, lengths)
        free[found] += lengths
    return targets


def sort_by_time(columns: dict[str, Array], offsets: NDArray[np.int64]) -> None:
    """Sorts the rows of each trajectory by time, in place; rows of equal times keep their order."""
    time = columns["time"]
    if not len(time):
        return
    backwards = np.r_[False, time[1:] < time[:-1]]
    backwards[offsets[:-1]] = False
    for i in np.flatnonzero(np.logical_or.reduceat(backwards, offsets[:-1])).tolist():
        here = slice(offsets[i], offsets[i + 1])
        order = np.argsort(time[here], kind="stable")
        for values in columns.values():
            values[here] = values[here][order]


def as_text(values: ArrayLike) -> NDArray[np.str_]:
    """Returns labels as text."""
    return np.asarray(values).astype(np.str_)


def check(t: Grouped) -> None:
    """Raises an error if the arrays do not form trajectories or hold impossible values."""
    n_rows = {name: len(values) if values.ndim else 0 for name, values in t.columns.items()}
    if not n_rows:
        raise DataError("trajectories without a column", remedy="give time, lat and lon, or state and action")
    if len(set(n_rows.values())) > 1:
        raise DataError(f"columns have different numbers of rows: {n_rows}", remedy="give one value for each row")
    rows = next(iter(n_rows.values()))
    if t.offsets.ndim != 1 or len(t.offsets) < 1 or t.offsets[0] != 0 or t.offsets[-1] != rows:
        raise DataError("the offsets do not fit the rows", remedy=f"let them run from 0 to the number of rows ({rows})")
    lengths = np.diff(t.offsets)
    if (lengths <= 0).any():
        raise DataError(f"trajectory {int(np.argmin(lengths))} is empty", remedy="leave it out")
    for name, values in {"agent_ids": t.agent_ids, "trajectory_ids": t.trajectory_ids, **t.context}.items():
        if values.shape[:1] != (len(lengths),):
            reason = f"{name!r} has the shape {values.shape} for {len(lengths)} trajectories"
            raise DataError(reason, remedy="give one value for each trajectory")

    def where(row: int) -> str:
        i = int(np.searchsorted(t.offsets, row, side="right")) - 1
        what = "step" if "state" in t.columns else "fix"
        return f"trajectory {str(t.trajectory_ids[i])!r} of agent {str(t.agent_ids[i])!r}, {what} {row - t.offsets[i]}"

    def refuse(bad: NDArray[np.bool_], what: str, remedy: Remedy, low: int = 0) -> None:
        if bad.any():
            raise DataError(what, place=where(low + int(np.argmax(bad))), remedy=remedy)

    for name in (*FIX_COLUMNS, "state", "action"):
        if name not in t.columns:
            continue
        values = t.columns[name]
        if name == "action" and values.dtype == np.bool_ and values.ndim == 2:
            refuse(values.sum(axis=1) != 1, "not exactly one action is chosen", "give n_actions to from_steps")
            continue
        if values.dtype.kind not in "fiu":
            raise DataError(f"column {name!r} holds {values.dtype}, not numbers", remedy="convert it")
        if name in FIX_COLUMNS and values.ndim != 1:
            raise DataError(f"column {name!r} has the shape {values.shape}", remedy="give one number for each fix")
        if name in ("state", "action") and (values.ndim != 2 or not values.shape[1]):
            raise DataError(
                f"column {name!r} has the shape {values.shape}", remedy="give one row per step, one column per number"
            )
        if name not in ("lat", "lon"):
            bad = ~np.isfinite(values)
            refuse(bad.any(axis=tuple(range(1, bad.ndim))), f"{name} is not a finite number", "drop or repair it")
    if all(name in t.columns for name in FIX_COLUMNS):
        time = t.columns["time"]
        # Looking at the extremes first avoids a copy of the column, which would be the peak of memory.
        if rows and max(float(time.max()), -float(time.min())) > MOST_SECONDS:
            far = f"time lies more than {MOST_SECONDS / YEAR:.0f} years from 1970"
            refuse(np.abs(time) > MOST_SECONDS, far, "give seconds since 1970")
        for low in range(0, rows, ROWS):
            lat, lon = (t.columns[name][low : low + ROWS] for name in ("lat", "lon"))
            for fault in place_faults(lat, lon, zero_ok=True):
                refuse(fault.rows, fault.reason, fault.remedy, low)
    if "time" in t.columns and rows:
        backwards = np.r_[False, t.columns["time"][1:] < t.columns["time"][:-1]]
        backwards[t.offsets[:-1]] = False
        refuse(backwards, "time runs backwards", "sort the fixes (Trajectories.from_fixes does)")
