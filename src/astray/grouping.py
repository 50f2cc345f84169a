"""Arrays and tables grouped into trajectories, one row a fix or step, and what is refused of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.errors import DataError, Remedy
from astray.fixes import place_faults

Array = NDArray[Any]

YEAR = 365.25 * 86_400.0
MOST_SECONDS = 230 * YEAR  # since 1970; milliseconds, mistaken for seconds, lie thousands of years ahead
FIX_COLUMNS = ("time", "lat", "lon")


class Grouped(NamedTuple):
    """What :class:`~astray.Trajectories` are made of."""

    columns: dict[str, Array]  # one row a fix or step, trajectories one after the other
    offsets: NDArray[np.int64]  # where each trajectory begins, and where the last one ends
    agent_ids: NDArray[np.str_]  # one a trajectory
    trajectory_ids: NDArray[np.str_]
    context: dict[str, Array]  # one row a trajectory


def group_fixes(
    time: ArrayLike,
    lat: ArrayLike,
    lon: ArrayLike,
    agent: ArrayLike,
    trajectory: ArrayLike | None,
    columns: Mapping[str, ArrayLike] | None,
    context: Mapping[str, ArrayLike] | None,
) -> Grouped:
    """Fixes in any order, by agent and trajectory; see :meth:`astray.Trajectories.from_fixes`."""
    rows = {name: _numbers(name, values) for name, values in (("time", time), ("lat", lat), ("lon", lon))}
    n = rows["time"].size
    agent = _labels("agent", agent, n)
    trajectory = agent if trajectory is None else _labels("trajectory", trajectory, n)
    rows |= {name: np.asarray(values) for name, values in (columns or {}).items()}
    trips = {name: np.asarray(values) for name, values in (context or {}).items()}
    for name, values in (rows | trips).items():
        if values.shape[:1] != (n,):
            raise DataError(f"column {name!r} has the shape {values.shape} for {n} times; give one value a fix")

    frame = pl.DataFrame({"agent": agent, "trajectory": trajectory, "time": rows["time"]}).with_row_index("row")
    # Trajectories keep the order in which they first appear; fixes of equal time keep theirs.
    frame = frame.with_columns(pl.col("row").min().over("agent", "trajectory").alias("first"))
    frame = frame.sort("first", "time", maintain_order=True)
    order = frame["row"].to_numpy()
    first = frame["first"].to_numpy()
    starts = np.flatnonzero(np.r_[True, first[1:] != first[:-1]]) if n else np.zeros(0, np.int64)
    heads = order[starts]
    return Grouped(
        {name: values[order] for name, values in rows.items()},
        np.r_[starts, n],
        agent[heads],
        trajectory[heads],
        {name: values[heads] for name, values in trips.items()},
    )


def group_frame(
    frame: Any,
    time: str,
    lat: str,
    lon: str,
    agent: str | None,
    trajectory: str | None,
    columns: Sequence[str],
    context: Sequence[str],
) -> Grouped:
    """Fixes of a table, by agent and trajectory; see :meth:`astray.Trajectories.from_frame`."""
    table = as_polars(frame)
    # Only under its usual name may a column be absent: another name that is not there is a slip of the pen.
    labels = [name for name in (agent, trajectory) if name not in (None, "agent", "trajectory")]
    wanted = (time, lat, lon, *columns, *context, *labels)
    missing = [name for name in wanted if name not in table.columns]
    if missing:
        raise DataError(f"no column named {missing[0]!r}; the table has {', '.join(table.columns)}")

    def optional(name: str | None) -> pl.Series | None:
        return table[name].cast(pl.String) if name is not None and name in table.columns else None

    agents, trips = optional(agent), optional(trajectory)
    for role, series in (("agent", agents), ("trajectory", trips)):
        if series is not None and series.null_count():
            row = int(series.is_null().arg_max() or 0)
            raise DataError(f"the {role} is missing", place=f"row {row}", remedy="fill it in or drop the row")
    return group_fixes(
        time=_seconds(table[time]),
        lat=_degrees(table[lat]),
        lon=_degrees(table[lon]),
        agent="" if agents is None else agents.to_numpy(),
        trajectory=None if trips is None else trips.to_numpy(),
        columns={name: table[name].to_numpy() for name in columns},
        context={name: table[name].to_numpy() for name in context},
    )


def join_steps(
    states: Iterable[ArrayLike], actions: Iterable[ArrayLike], agent_ids: ArrayLike, trajectory_ids: ArrayLike | None
) -> Grouped:
    """One pair of arrays a trajectory, joined; see :meth:`astray.Trajectories.from_steps`."""
    s, a = _matrices("states", states), _matrices("actions", actions)
    if len(s) != len(a):
        raise DataError(f"{len(s)} arrays of states but {len(a)} of actions; give one of each a trajectory")
    if not s:
        raise DataError("no trajectories were given; at least one is needed")
    for i, (si, ai) in enumerate(zip(s, a, strict=True)):
        if len(si) != len(ai):
            raise DataError(f"trajectory {i} has {len(si)} states and {len(ai)} actions; they come in pairs")
        if not len(si):
            raise DataError(f"trajectory {i} is empty; leave it out")
        for name, rows, first in (("states", si, s[0]), ("actions", ai, a[0])):
            if rows.shape[1] != first.shape[1]:
                raise DataError(
                    f"the {name} of trajectory {i} have {rows.shape[1]} columns, those of trajectory 0 "
                    f"{first.shape[1]}; they must have the same width in every trajectory"
                )
    agents = as_text(agent_ids)
    if agents.shape not in ((), (1,), (len(s),)):
        raise DataError(f"there are agent_ids of the shape {agents.shape} for {len(s)} trajectories; give one of each")
    return Grouped(
        {"state": np.concatenate(s), "action": np.concatenate(a)},
        np.r_[0, np.cumsum([len(x) for x in s])],
        np.broadcast_to(agents, len(s)),
        as_text(_names_of(s, a) if trajectory_ids is None else trajectory_ids),
        {},
    )


def _names_of(states: Sequence[Array], actions: Sequence[Array]) -> list[str]:
    """A name for each run that tells it from every other run, here or given later: it is made of what the run holds.

    Runs that are equal to the last bit are one run; where a set holds it twice, they are numbered.
    """
    names: dict[str, int] = {}
    found = []
    for pair in zip(states, actions, strict=True):
        told = hashlib.blake2b(digest_size=6)
        for rows in pair:
            told.update(np.ascontiguousarray(rows).tobytes())
        name = f"run-{told.hexdigest()}"
        names[name] = names.get(name, 0) + 1
        found.append(name if names[name] == 1 else f"{name}-{names[name]}")
    return found


def as_polars(frame: Any) -> pl.DataFrame:
    """A polars data frame of anything that is one, or speaks the Arrow stream protocol, or is a mapping of arrays."""
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame
    if hasattr(frame, "__arrow_c_stream__") or isinstance(frame, Mapping):
        return pl.DataFrame(frame)
    raise DataError(f"a data frame was expected (polars, pandas, pyarrow), not {type(frame).__name__}")


def _seconds(series: pl.Series) -> Array:
    """Times as seconds since 1970 in UTC."""
    if series.dtype == pl.Date:
        series = series.cast(pl.Datetime("us"))
    if isinstance(series.dtype, pl.Datetime):
        return series.dt.timestamp("us").to_numpy() / 1e6
    if not series.dtype.is_numeric():
        raise DataError(f"column {series.name!r} holds {series.dtype}; times are date-times or seconds since 1970")
    seconds = series.cast(pl.Float64).to_numpy()
    if len(seconds) and np.nanmin(np.abs(seconds)) > MOST_SECONDS:
        raise DataError(
            f"column {series.name!r} would lie after the year {1970 + MOST_SECONDS / YEAR:.0f}; if it holds "
            "milliseconds, divide it by 1000, or give date-times"
        )
    return seconds


def _degrees(series: pl.Series) -> Array:
    try:
        return series.cast(pl.Float64).to_numpy()
    except pl.exceptions.PolarsError:
        raise DataError(f"column {series.name!r} holds {series.dtype}; degrees are numbers") from None


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise DataError(f"column {name!r} must hold numbers, one a fix") from None


def _matrices(name: str, arrays: Iterable[ArrayLike]) -> list[NDArray[np.float64]]:
    """Arrays of numbers, one a trajectory, as rows by columns; what is no such thing is refused."""
    if isinstance(arrays, np.ndarray) and arrays.ndim < 3 and arrays.dtype != object:
        raise DataError(
            f"the {name} are one array of the shape {arrays.shape}",
            remedy=f"give a list with one array a trajectory: [{name}] for one, list({name}) if each row is one",
        )
    if isinstance(arrays, (str, bytes)) or not isinstance(arrays, Iterable):
        raise DataError(f"the {name} are {type(arrays).__name__}; give a list with one array a trajectory")
    return [_matrix(f"the {name} of trajectory {i}", values) for i, values in enumerate(arrays)]


def _matrix(what: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        given = np.asarray(values)
        rows = given.astype(np.float64) if given.dtype.kind in "biufO" else None
    except (TypeError, ValueError, OverflowError):
        rows = None
    if rows is None:
        raise DataError(f"{what} are not numbers, rows by columns; convert them, or leave that trajectory out")
    if np.ma.is_masked(values):
        raise DataError(f"{what} have masked values; fill or drop those steps")
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2 or not rows.shape[1]:
        raise DataError(f"{what} have the shape {rows.shape}; give one row a step, one column a number")
    return rows


def _labels(role: str, values: ArrayLike, n: int) -> NDArray[np.str_]:
    labels = as_text(values)
    if labels.shape not in ((), (1,), (n,)):
        raise DataError(f"there are labels of the shape {labels.shape} for the {role} of {n} fixes; give one a fix")
    return np.broadcast_to(labels, n)


def as_text(values: ArrayLike) -> NDArray[np.str_]:
    """Labels as text."""
    return np.asarray(values).astype(np.str_)


def check(t: Grouped) -> None:
    """Refuse what is no set of trajectories, or holds impossible values."""
    n_rows = {name: len(values) if values.ndim else 0 for name, values in t.columns.items()}
    if not n_rows:
        raise DataError("trajectories need at least one column")
    if len(set(n_rows.values())) > 1:
        raise DataError(f"columns have different numbers of rows: {n_rows}")
    rows = next(iter(n_rows.values()))
    if t.offsets.ndim != 1 or len(t.offsets) < 1 or t.offsets[0] != 0 or t.offsets[-1] != rows:
        raise DataError(f"offsets must run from 0 to the number of rows ({rows})")
    lengths = np.diff(t.offsets)
    if (lengths <= 0).any():
        raise DataError(f"trajectory {int(np.argmin(lengths))} is empty; leave it out")
    for name, values in {"agent_ids": t.agent_ids, "trajectory_ids": t.trajectory_ids, **t.context}.items():
        if values.shape[:1] != (len(lengths),):
            raise DataError(f"{name!r} must have one value a trajectory ({len(lengths)}), not {values.shape}")

    def where(row: int) -> str:
        i = int(np.searchsorted(t.offsets, row, side="right")) - 1
        what = "step" if "state" in t.columns else "fix"
        return f"trajectory {str(t.trajectory_ids[i])!r} of agent {str(t.agent_ids[i])!r}, {what} {row - t.offsets[i]}"

    def refuse(bad: NDArray[np.bool_], what: str, remedy: Remedy) -> None:
        if bad.any():
            raise DataError(what, place=where(int(np.argmax(bad))), remedy=remedy)

    for name in (*FIX_COLUMNS, "state", "action"):
        if name not in t.columns:
            continue
        values = t.columns[name]
        if values.dtype.kind not in "fiu":
            raise DataError(f"column {name!r} must hold numbers, not {values.dtype}")
        if name in FIX_COLUMNS and values.ndim != 1:
            raise DataError(f"column {name!r} has the shape {values.shape}; give one number a fix")
        if name in ("state", "action") and (values.ndim != 2 or not values.shape[1]):
            raise DataError(f"column {name!r} has the shape {values.shape}; give one row a step, one column a number")
        if name not in ("lat", "lon"):
            bad = ~np.isfinite(values)
            refuse(bad.any(axis=tuple(range(1, bad.ndim))), f"{name} is not a finite number", "drop or repair it")
    if all(name in t.columns for name in FIX_COLUMNS):
        for fault in place_faults(t.columns["lat"], t.columns["lon"], zero_ok=True):
            refuse(fault.rows, fault.reason, fault.remedy)
    if "time" in t.columns and rows:
        backwards = np.r_[False, np.diff(t.columns["time"]) < 0]
        backwards[t.offsets[:-1]] = False
        refuse(backwards, "time runs backwards", "sort the fixes (Trajectories.from_fixes does)")
