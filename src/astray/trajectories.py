"""The one data structure: a columnar set of trajectories.

Every per-row quantity is one flat array; ``offsets`` says where each trajectory begins and ends. The same structure
holds GPS fixes (columns ``time``, ``lat``, ``lon``) and the steps that a learner sees (columns ``state``, ``action``).
Data are checked once, when the structure is made; slices share that guarantee and, where they can, the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.errors import DataError, Remedy
from astray.fixes import place_faults

Array = NDArray[Any]

YEAR = 365.25 * 86_400.0
MOST_SECONDS = 230 * YEAR  # since 1970; milliseconds, mistaken for seconds, lie thousands of years ahead
FIX_COLUMNS = ("time", "lat", "lon")


class Trajectories:
    """A set of trajectories: arrays, offsets, and who made which one.

    Parameters
    ----------
    columns
        Name to array, one row a fix, all of one length, trajectories one after the other. ``time`` is in seconds since
        1970 (UTC) and must not run backwards inside a trajectory; ``lat`` and ``lon`` are degrees. Other columns may
        have any number of dimensions.
    offsets
        ``n + 1`` integers; trajectory ``i`` is the rows ``offsets[i]:offsets[i + 1]``.
    agent_ids, trajectory_ids
        One a trajectory; kept as text.
    context
        Name to array, one row a trajectory (the kind of call, the vehicle, ...).

    Examples
    --------
    >>> trips = Trajectories.from_fixes(
    ...     time=[0, 10, 20, 0, 10], lat=[41.1, 41.2, 41.3, 41.1, 41.2], lon=[-8.6] * 5,
    ...     agent=["ana", "ana", "ana", "bob", "bob"], trajectory=["a1", "a1", "a1", "b1", "b1"])
    >>> trips
    <Trajectories: 2 trajectories of 2 agents, 5 rows of time, lat, lon>
    >>> trips.lengths
    array([3, 2])
    >>> trips.agent("bob").columns["lat"]
    array([41.1, 41.2])
    >>> len(trips[trips.lengths > 2]), len(trips.without("ana")), len(trips[0])
    (1, 1, 1)
    """

    __slots__ = ("agent_ids", "columns", "context", "offsets", "trajectory_ids")

    columns: dict[str, Array]
    offsets: NDArray[np.int64]
    agent_ids: NDArray[np.str_]
    trajectory_ids: NDArray[np.str_]
    context: dict[str, Array]

    def __init__(
        self,
        columns: Mapping[str, ArrayLike],
        offsets: ArrayLike,
        agent_ids: ArrayLike,
        trajectory_ids: ArrayLike,
        context: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        self.columns = {name: np.asarray(values) for name, values in columns.items()}
        self.offsets = np.asarray(offsets, dtype=np.int64)
        self.agent_ids = _as_text(agent_ids)
        self.trajectory_ids = _as_text(trajectory_ids)
        self.context = {name: np.asarray(values) for name, values in (context or {}).items()}
        _check(self)

    # ---------------------------------------------------------------- making

    @classmethod
    def from_fixes(
        cls,
        *,
        time: ArrayLike,
        lat: ArrayLike,
        lon: ArrayLike,
        agent: ArrayLike = "",
        trajectory: ArrayLike | None = None,
        columns: Mapping[str, ArrayLike] | None = None,
        context: Mapping[str, ArrayLike] | None = None,
    ) -> Trajectories:
        """Group flat arrays of fixes, in any order, by agent and trajectory; each trajectory is sorted by time.

        ``agent`` and ``trajectory`` are one label a fix, or one for all. Without ``trajectory`` each agent has one
        long trajectory (gaps split it later). ``columns`` and ``context`` hold further values, all one a fix;
        of ``context`` the first value of each trajectory is kept.
        """
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
        return cls(
            {name: values[order] for name, values in rows.items()},
            np.r_[starts, n],
            agent[heads],
            trajectory[heads],
            {name: values[heads] for name, values in trips.items()},
        )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        time: str = "time",
        lat: str = "lat",
        lon: str = "lon",
        agent: str | None = "agent",
        trajectory: str | None = "trajectory",
        columns: Sequence[str] = (),
        context: Sequence[str] = (),
    ) -> Trajectories:
        """Make trajectories of a polars, pandas or pyarrow table with one fix a row.

        Times are date-times (naive ones are read as UTC) or numbers of seconds. Where a table has no column ``agent``
        or ``trajectory``, all fixes belong to one agent, and to one trajectory an agent.

        >>> frame = pl.DataFrame({"time": [0, 1], "lat": [0.0, 0.1], "lon": [9.0, 9.1], "agent": ["x", "x"]})
        >>> Trajectories.from_frame(frame)
        <Trajectories: 1 trajectory of 1 agent, 2 rows of time, lat, lon>
        """
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
        return cls.from_fixes(
            time=_seconds(table[time]),
            lat=_degrees(table[lat]),
            lon=_degrees(table[lon]),
            agent="" if agents is None else agents.to_numpy(),
            trajectory=None if trips is None else trips.to_numpy(),
            columns={name: table[name].to_numpy() for name in columns},
            context={name: table[name].to_numpy() for name in context},
        )

    @classmethod
    def from_steps(
        cls,
        states: Sequence[ArrayLike],
        actions: Sequence[ArrayLike],
        *,
        agent_ids: ArrayLike = "",
        trajectory_ids: ArrayLike | None = None,
    ) -> Trajectories:
        """Make trajectories of states and actions of any kind: one pair of arrays a trajectory, one row a step.

        Where a state or an action is a single number, the array may be flat.

        >>> Trajectories.from_steps([np.zeros((5, 3)), np.ones((4, 3))], [np.zeros((5, 1)), np.ones((4, 1))])
        <Trajectories: 2 trajectories of 1 agent, 9 rows of state, action>
        """
        if len(states) != len(actions):
            raise DataError(
                f"{len(states)} arrays of states but {len(actions)} of actions; give one of each a trajectory"
            )
        if not len(states):
            raise DataError("no trajectories were given; at least one is needed")
        s = [_matrix("states", x) for x in states]
        a = [_matrix("actions", x) for x in actions]
        for i, (si, ai) in enumerate(zip(s, a, strict=True)):
            if len(si) != len(ai):
                raise DataError(f"trajectory {i} has {len(si)} states and {len(ai)} actions; they come in pairs")
            if si.shape[1:] != s[0].shape[1:] or ai.shape[1:] != a[0].shape[1:]:
                raise DataError(f"trajectory {i}: states and actions must have the same width in every trajectory")
        ids = [f"{i}" for i in range(len(s))] if trajectory_ids is None else trajectory_ids
        return cls(
            {"state": np.concatenate(s), "action": np.concatenate(a)},
            np.r_[0, np.cumsum([len(x) for x in s])],
            np.broadcast_to(_as_text(agent_ids), len(s)),
            ids,
        )

    @classmethod
    def concat(cls, parts: Iterable[Trajectories]) -> Trajectories:
        """Put sets of trajectories one after the other; columns that not all of them have are left out."""
        parts = list(parts)
        if not parts:
            raise DataError("nothing to concatenate; give at least one set of trajectories")
        if len(parts) == 1:
            return parts[0]
        columns = [name for name in parts[0].columns if all(name in p.columns for p in parts)]
        context = [name for name in parts[0].context if all(name in p.context for p in parts)]
        if not columns:
            raise DataError("these sets of trajectories have no column in common; concatenate fixes or steps, not both")
        return cls._trusted(
            {name: np.concatenate([p.columns[name] for p in parts]) for name in columns},
            np.r_[0, np.cumsum(np.concatenate([p.lengths for p in parts]))].astype(np.int64),
            np.concatenate([p.agent_ids for p in parts]),
            np.concatenate([p.trajectory_ids for p in parts]),
            {name: np.concatenate([p.context[name] for p in parts]) for name in context},
        )

    @classmethod
    def _trusted(
        cls,
        columns: dict[str, Array],
        offsets: NDArray[np.int64],
        agent_ids: NDArray[np.str_],
        trajectory_ids: NDArray[np.str_],
        context: dict[str, Array],
    ) -> Trajectories:
        """Build without checking, from parts of what was checked before."""
        self = object.__new__(cls)
        self.columns, self.offsets, self.context = columns, offsets, context
        self.agent_ids, self.trajectory_ids = agent_ids, trajectory_ids
        return self

    def with_columns(
        self, columns: Mapping[str, ArrayLike] | None = None, context: Mapping[str, ArrayLike] | None = None
    ) -> Trajectories:
        """The same trajectories with columns (one value a row) or context (one a trajectory) added or replaced."""
        return Trajectories(
            {**self.columns, **(columns or {})},
            self.offsets,
            self.agent_ids,
            self.trajectory_ids,
            {**self.context, **(context or {})},
        )

    # ---------------------------------------------------------------- looking

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        agents = len(self.agents)
        return (
            f"<Trajectories: {len(self):,} trajector{'y' if len(self) == 1 else 'ies'} of {agents:,} "
            f"agent{'' if agents == 1 else 's'}, {self.n_rows:,} rows of {', '.join(self.columns)}>"
        )

    @property
    def n_rows(self) -> int:
        """How many rows (fixes or steps) there are in all."""
        return int(self.offsets[-1] - self.offsets[0])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of rows of each trajectory."""
        return np.diff(self.offsets)

    @property
    def agents(self) -> list[str]:
        """The distinct agents, in the order of their first trajectory."""
        return list(dict.fromkeys(self.agent_ids.tolist()))

    @property
    def trajectory_of_row(self) -> NDArray[np.int64]:
        """For each row the position of its trajectory."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def is_gps(self) -> bool:
        """Whether these are fixes on the earth (``time``, ``lat``, ``lon``)."""
        return all(name in self.columns for name in FIX_COLUMNS)

    # ---------------------------------------------------------------- slicing

    def __getitem__(self, which: int | slice | ArrayLike) -> Trajectories:
        if isinstance(which, (int, np.integer)):
            i = int(which) + (len(self) if which < 0 else 0)
            if not 0 <= i < len(self):
                raise IndexError(f"trajectory {which} asked of {len(self)}")
            return self._run(i, i + 1)
        if isinstance(which, slice):
            start, stop, step = which.indices(len(self))
            if step == 1:
                return self._run(start, max(start, stop))
            return self._take(np.arange(start, stop, step))
        index = np.atleast_1d(which)
        if index.dtype == bool:
            if index.shape != (len(self),):
                raise IndexError(f"a mask of shape {index.shape} for {len(self)} trajectories")
            index = np.flatnonzero(index)
        elif index.size == 0:
            index = index.astype(np.int64)
        return self._take(index)

    def _run(self, start: int, stop: int) -> Trajectories:
        """Neighbouring trajectories, as views of the same memory."""
        lo, hi = self.offsets[start], self.offsets[stop]
        return self._trusted(
            {name: values[lo:hi] for name, values in self.columns.items()},
            self.offsets[start : stop + 1] - lo,
            self.agent_ids[start:stop],
            self.trajectory_ids[start:stop],
            {name: values[start:stop] for name, values in self.context.items()},
        )

    def _take(self, index: NDArray[np.int64]) -> Trajectories:
        lengths = self.lengths[index]
        offsets = np.r_[0, np.cumsum(lengths)].astype(np.int64)
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][index] - offsets[:-1], lengths)
        return self._trusted(
            {name: values[rows] for name, values in self.columns.items()},
            offsets,
            self.agent_ids[index],
            self.trajectory_ids[index],
            {name: values[index] for name, values in self.context.items()},
        )

    def __iter__(self) -> Iterator[Trajectories]:
        return (self._run(i, i + 1) for i in range(len(self)))

    def agent(self, agent_id: str) -> Trajectories:
        """The trajectories of one agent."""
        chosen = self.agent_ids == str(agent_id)
        if not chosen.any():
            known = ", ".join(self.agents[:5])
            raise DataError(f"no trajectory of agent {agent_id!r}; there are {len(self.agents)} agents: {known}, ...")
        return self[chosen]

    def called(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """Which trajectories are meant by names: ids of trajectories, or, where agents share ids, agent/trajectory.

        >>> trips = Trajectories.from_fixes(time=[0, 0], lat=[0, 0], lon=[0, 0], agent=["a", "b"], trajectory="1")
        >>> trips.called(["1"]), trips.called(["b/1"])
        (array([ True,  True]), array([False,  True]))
        """
        wanted = set(names)
        pairs = zip(self.agent_ids.tolist(), self.trajectory_ids.tolist(), strict=True)
        return np.array([trip in wanted or f"{agent}/{trip}" in wanted for agent, trip in pairs], np.bool_)

    def without(self, agent_id: str) -> Trajectories:
        """The trajectories of everybody else."""
        return self[self.agent_ids != str(agent_id)]

    # ---------------------------------------------------------------- leaving

    def to_frame(self) -> pl.DataFrame:
        """One row a fix, as a polars data frame, with agent, trajectory and context repeated on each row."""
        row = self.trajectory_of_row
        flat = {name: values for name, values in self.columns.items() if values.ndim == 1}
        wide = {
            f"{name}_{j}": values[:, j]
            for name, values in self.columns.items()
            if values.ndim == 2
            for j in range(values.shape[1])
        }
        labels = {"agent": self.agent_ids[row], "trajectory": self.trajectory_ids[row]}
        return pl.DataFrame(labels | flat | wide | {name: values[row] for name, values in self.context.items()})


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


def _matrix(name: str, values: ArrayLike) -> NDArray[np.float64]:
    rows = _numbers(name, values)
    return rows[:, None] if rows.ndim == 1 else rows


def _labels(role: str, values: ArrayLike, n: int) -> NDArray[np.str_]:
    labels = _as_text(values)
    if labels.shape not in ((), (1,), (n,)):
        raise DataError(f"there are labels of the shape {labels.shape} for the {role} of {n} fixes; give one a fix")
    return np.broadcast_to(labels, n)


def _as_text(values: ArrayLike) -> NDArray[np.str_]:
    return np.asarray(values).astype(np.str_)


def _check(t: Trajectories) -> None:
    n_rows = {name: len(values) if values.ndim else 0 for name, values in t.columns.items()}
    if not n_rows:
        raise DataError("trajectories need at least one column")
    if len(set(n_rows.values())) > 1:
        raise DataError(f"columns have different numbers of rows: {n_rows}")
    rows = next(iter(n_rows.values()))
    if t.offsets.ndim != 1 or len(t.offsets) < 1 or t.offsets[0] != 0 or t.offsets[-1] != rows:
        raise DataError(f"offsets must run from 0 to the number of rows ({rows})")
    if (t.lengths <= 0).any():
        raise DataError(f"trajectory {int(np.argmin(t.lengths))} is empty; leave it out")
    for name, values in {"agent_ids": t.agent_ids, "trajectory_ids": t.trajectory_ids, **t.context}.items():
        if values.shape[:1] != (len(t),):
            raise DataError(f"{name!r} must have one value a trajectory ({len(t)}), not {values.shape}")

    def where(row: int) -> str:
        i = int(np.searchsorted(t.offsets, row, side="right")) - 1
        return f"trajectory {str(t.trajectory_ids[i])!r} of agent {str(t.agent_ids[i])!r}, fix {row - t.offsets[i]}"

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
        if name not in ("lat", "lon"):
            bad = ~np.isfinite(values)
            refuse(bad.any(axis=tuple(range(1, bad.ndim))), f"{name} is not a finite number", "drop or repair that fix")
    if t.is_gps:
        for fault in place_faults(t.columns["lat"], t.columns["lon"], zero_ok=True):
            refuse(fault.rows, fault.reason, fault.remedy)
    if "time" in t.columns and rows:
        backwards = np.r_[False, np.diff(t.columns["time"]) < 0]
        backwards[t.offsets[:-1]] = False
        refuse(backwards, "time runs backwards", "sort the fixes (Trajectories.from_fixes does)")
