"""Makes trajectories from what a caller gives: flat arrays, data frames, or pairs of states and actions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import DataError
from astray.core.fixes import as_labels
from astray.core.grouping import KEYS, MOST_SECONDS, YEAR, Array, Grouped, as_text, numbered, put_in_order


def group_fixes(
    time: ArrayLike,
    lat: ArrayLike,
    lon: ArrayLike,
    agent: ArrayLike | pl.Series,
    trajectory: ArrayLike | pl.Series | None,
    columns: Mapping[str, ArrayLike] | None,
    context: Mapping[str, ArrayLike] | None,
) -> Grouped:
    """Groups fixes in any order by agent and trajectory; see :meth:`astray.Trajectories.from_fixes`."""
    rows = {name: _numbers(name, values) for name, values in (("time", time), ("lat", lat), ("lon", lon))}
    n = rows["time"].size
    agents = _labels("agent", agent, n)
    trajectories = agents if trajectory is None else _labels("trajectory", trajectory, n)
    rows |= {name: np.array(values) for name, values in (columns or {}).items()}
    kept = {f"context {name}": np.array(values) for name, values in (context or {}).items()}
    for name, values in (rows | kept).items():
        if values.shape[:1] != (n,):
            what = name.removeprefix("context ")
            raise DataError(
                f"column {what!r} has the shape {values.shape} for {n} times", remedy="give one value for each fix"
            )
    codes, labels = numbered(pl.DataFrame({"agent": agents, "trajectory": trajectories}))
    rows |= kept
    offsets = put_in_order(rows, codes)
    first = {name.removeprefix("context "): rows.pop(name)[offsets[:-1]] for name in kept}
    agent_ids, trajectory_ids = (as_text(labels[role].to_numpy()) for role in KEYS)
    return Grouped(rows, offsets, agent_ids, trajectory_ids, first)


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
    """Groups the fixes of a table by agent and trajectory; see :meth:`astray.Trajectories.from_frame`."""
    table = as_polars(frame)
    # A column may be absent only if the caller left its name at the default; any other missing name is a mistake.
    labels = [name for name in (agent, trajectory) if name not in (None, "agent", "trajectory")]
    wanted = (time, lat, lon, *columns, *context, *labels)
    missing = [name for name in wanted if name not in table.columns]
    if missing:
        raise DataError(f"no column named {missing[0]!r}", remedy=f"the table has {', '.join(table.columns)}")

    def optional(name: str | None) -> pl.Series | None:
        return as_labels(table[name]) if name is not None and name in table.columns else None

    agents, trips = optional(agent), optional(trajectory)
    for role, series in (("agent", agents), ("trajectory", trips)):
        if series is not None and series.null_count():
            row = int(series.is_null().arg_max() or 0)
            raise DataError(f"the {role} is missing", place=f"row {row}", remedy="fill it in or drop the row")
    return group_fixes(
        time=_seconds(table[time]),
        lat=_degrees(table[lat]),
        lon=_degrees(table[lon]),
        agent="" if agents is None else agents,
        trajectory=trips,
        columns={name: table[name].to_numpy() for name in columns},
        context={name: table[name].to_numpy() for name in context},
    )


def join_steps(
    states: Iterable[ArrayLike],
    actions: Iterable[ArrayLike],
    n_actions: int | None,
    agent_ids: ArrayLike,
    trajectory_ids: ArrayLike | None,
) -> Grouped:
    """Joins pairs of arrays, one pair for each trajectory; see :meth:`astray.Trajectories.from_steps`."""
    s, a = _matrices("states", states), _matrices("actions", actions)
    if n_actions is not None:
        a = [_one_hot(i, rows, n_actions) for i, rows in enumerate(a)]
    if len(s) != len(a):
        raise DataError(
            f"{len(s)} arrays of states but {len(a)} of actions", remedy="give one pair for each trajectory"
        )
    if not s:
        raise DataError("no trajectories were given", remedy="give at least one")
    for i, (si, ai) in enumerate(zip(s, a, strict=True)):
        if len(si) != len(ai):
            raise DataError(
                f"trajectory {i} has {len(si)} states and {len(ai)} actions", remedy="give one action for each state"
            )
        if not len(si):
            raise DataError(f"trajectory {i} is empty", remedy="leave it out")
        for name, rows, first in (("states", si, s[0]), ("actions", ai, a[0])):
            if rows.shape[1] != first.shape[1]:
                raise DataError(
                    f"trajectory {i} has {rows.shape[1]} columns of {name}, trajectory 0 has {first.shape[1]}",
                    remedy="give the same number in every trajectory",
                )
    agents = as_text(agent_ids)
    if agents.shape not in ((), (1,), (len(s),)):
        raise DataError(
            f"agent_ids have the shape {agents.shape} for {len(s)} trajectories", remedy="give one for each trajectory"
        )
    return Grouped(
        {"state": np.concatenate(s), "action": np.concatenate(a)},
        np.r_[0, np.cumsum([len(x) for x in s])],
        np.broadcast_to(agents, len(s)),
        as_text(_names_of(s, a) if trajectory_ids is None else trajectory_ids),
        {},
    )


def _names_of(states: Sequence[Array], actions: Sequence[Array]) -> list[str]:
    """Returns a name for each trajectory, made from its content.

    Trajectories that are equal to the last bit get the same name; repeats within a set are numbered.
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
    """Returns a polars data frame, given any data frame with the Arrow stream protocol, or a mapping of arrays."""
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if not (isinstance(frame, Mapping) or hasattr(frame, "__arrow_c_stream__")):
        raise DataError(f"not a data frame, but {type(frame).__name__}", remedy="give one of polars, pandas or pyarrow")
    try:
        return pl.DataFrame(frame)  # raises an ImportError if pandas needs pyarrow, which is missing
    except (ValueError, TypeError, NotImplementedError, OverflowError, pl.exceptions.PolarsError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        remedy = "give each column a different name and values of one kind: numbers, text or date-times"
        raise DataError(f"the table cannot be converted ({said:.200})", remedy=remedy) from error


def _seconds(series: pl.Series) -> Array:
    """Returns times as seconds since 1970 in UTC."""
    if series.dtype == pl.Date:
        series = series.cast(pl.Datetime("us"))
    if isinstance(series.dtype, pl.Datetime):
        return series.dt.timestamp("us").to_numpy() / 1e6
    if not series.dtype.is_numeric():
        raise DataError(f"column {series.name!r} holds {series.dtype}", remedy="give date-times or seconds since 1970")
    seconds = series.cast(pl.Float64).to_numpy()
    if len(seconds) and np.nanmin(np.abs(seconds)) > MOST_SECONDS:
        raise DataError(
            f"column {series.name!r} would lie after the year {1970 + MOST_SECONDS / YEAR:.0f}",
            remedy="if it holds milliseconds, divide it by 1000, or give date-times",
        )
    return seconds


def _degrees(series: pl.Series) -> Array:
    try:
        return series.cast(pl.Float64).to_numpy()
    except pl.exceptions.PolarsError:
        raise DataError(f"column {series.name!r} holds {series.dtype}", remedy="give degrees as numbers") from None


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    if np.ma.is_masked(values):
        raise DataError(f"column {name!r} has masked values", remedy="fill or drop those fixes")
    try:
        given = np.asarray(values)
        if name == "time" and given.dtype.kind == "M":
            moments = given.astype("datetime64[us]")
            return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 1e6)
        if given.dtype.kind in "mM":
            raise DataError(f"column {name!r} holds {given.dtype}, not numbers", remedy="give one number for each fix")
        return np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"column {name!r} does not hold numbers", remedy="give one number for each fix") from None


def _matrices(name: str, arrays: Iterable[ArrayLike]) -> list[Array]:
    """Returns one array of numbers for each trajectory, rows by columns; anything else is an error."""
    if isinstance(arrays, np.ndarray) and arrays.ndim < 3 and arrays.dtype != object:
        raise DataError(
            f"the {name} are one array of the shape {arrays.shape}",
            remedy=f"give a list with one array for each trajectory: [{name}] for one, list({name}) if each row is one",
        )
    if isinstance(arrays, (str, bytes)) or not isinstance(arrays, Iterable):
        raise DataError(
            f"the {name} are {type(arrays).__name__}", remedy="give a list with one array for each trajectory"
        )
    return [_matrix(f"the {name} of trajectory {i}", values) for i, values in enumerate(arrays)]


def _matrix(what: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        given = np.asarray(values)
        rows = given.astype(np.float64) if given.dtype.kind in "biufO" else None
    except (TypeError, ValueError, OverflowError):
        rows = None
    if rows is None:
        raise DataError(f"{what} are not numbers, rows by columns", remedy="convert them, or leave that trajectory out")
    if np.ma.is_masked(values):
        raise DataError(f"{what} have masked values", remedy="fill or drop those steps")
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2 or not rows.shape[1]:
        raise DataError(f"{what} have the shape {rows.shape}", remedy="give one row per step, one column per number")
    return rows


def _one_hot(trajectory: int, actions: Array, n: int) -> NDArray[np.bool_]:
    """Returns the discrete actions of a trajectory as rows in which one of ``n`` columns is true."""
    if n < 2:
        raise DataError(f"n_actions is {n}", remedy="give the number of possible actions, at least 2")
    if actions.shape[1] != 1:
        raise DataError(
            f"the discrete actions of trajectory {trajectory} have {actions.shape[1]} columns",
            remedy=f"give one whole number from 0 to {n - 1} for each step",
        )
    chosen = actions == np.arange(n)
    unknown = ~chosen.any(axis=1)
    if unknown.any():
        step = int(np.argmax(unknown))
        raise DataError(
            f"{actions[step, 0]:g} is not one of the {n} actions",
            place=f"trajectory {trajectory}, step {step}",
            remedy=f"number the actions from 0 to {n - 1}, or give a higher n_actions",
        )
    return np.asarray(chosen)


def _labels(role: str, values: ArrayLike | pl.Series, n: int) -> pl.Series:
    labels = values if isinstance(values, pl.Series) else as_text(values)
    if not isinstance(values, pl.Series) and (absent := _absent(values)).any():
        remedy = "fill it in or drop the fix"
        raise DataError(f"the {role} is missing", place=f"fix {int(np.argmax(absent))}", remedy=remedy)
    if labels.shape not in ((), (1,), (n,)):
        raise DataError(
            f"the labels for the {role} have the shape {labels.shape} for {n} fixes", remedy="give one for each fix"
        )
    if isinstance(labels, pl.Series):
        return labels
    return pl.Series(labels) if labels.shape == (n,) else pl.repeat(str(labels.item()), n, dtype=pl.String, eager=True)


def _absent(values: ArrayLike) -> NDArray[np.bool_]:
    """Returns a mask of labels that are None or NaN."""
    given = np.atleast_1d(np.asarray(values))
    if given.dtype.kind == "O":
        return np.array([v is None or (isinstance(v, float) and v != v) for v in given.flat], np.bool_)
    return np.asarray(np.isnan(given) if given.dtype.kind == "f" else np.zeros(given.shape, np.bool_)).ravel()
