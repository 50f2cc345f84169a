"""Trajectories, the data structure of astray: columns of rows, and offsets that divide them into trajectories.

The same structure holds GPS fixes (columns ``time``, ``lat``, ``lon``) and the steps that a learner sees (columns
``state``, ``action``). Its constructor checks the data, and its arrays are read-only, so slices need no check and share
the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import DataError, instead_of
from astray.core.grouping import FIX_COLUMNS, Grouped, as_text, check
from astray.core.trajectory_inputs import group_fixes, group_frame, join_steps
from astray.core.trip_ids import TripId

Array = NDArray[Any]


class Trajectories:
    """A set of trajectories: arrays of rows, offsets, and the agent and id of each trajectory.

    Parameters
    ----------
    columns
        Name to array, one row for each fix, trajectories one after the other. ``time`` is in seconds since
        1970 (UTC) and must not run backwards inside a trajectory; ``lat`` and ``lon`` are degrees. Other columns may
        have any number of dimensions.
    offsets
        ``n + 1`` integers; trajectory ``i`` is the rows ``offsets[i]:offsets[i + 1]``.
    agent_ids, trajectory_ids
        One for each trajectory; stored as text.
    context
        Name to array, one row for each trajectory (the kind of call, the vehicle, ...).

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

    columns: Mapping[str, Array]
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
        given = Grouped(
            {name: np.asarray(values).view() for name, values in columns.items()},
            np.asarray(offsets, dtype=np.int64).view(),
            as_text(agent_ids),
            as_text(trajectory_ids),
            {name: np.asarray(values).view() for name, values in (context or {}).items()},
        )
        check(given)
        self._hold(given)

    def _hold(self, given: Grouped) -> None:
        """Stores the arrays and makes them read-only."""
        columns, offsets, agent_ids, trajectory_ids, context = given
        for values in (*columns.values(), offsets, agent_ids, trajectory_ids, *context.values()):
            if values.flags.writeable:  # slices of read-only arrays are not
                values.setflags(write=False)
        self.columns, self.context = MappingProxyType(columns), context
        self.offsets, self.agent_ids, self.trajectory_ids = offsets, agent_ids, trajectory_ids

    def __reduce__(self) -> tuple[Any, ...]:
        return self.unchecked, tuple(self._grouped())

    def _grouped(self) -> Grouped:
        """Returns the arrays."""
        return Grouped(dict(self.columns), self.offsets, self.agent_ids, self.trajectory_ids, self.context)

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
        """Groups flat arrays of fixes, in any order, by agent and trajectory; sorts each trajectory by time.

        ``agent`` and ``trajectory`` are one label for each fix, or one for all. Without ``trajectory`` each agent has
        one long trajectory (gaps split it later). ``columns`` and ``context`` hold further values, one for each fix;
        of ``context``, the first value of each trajectory is kept.
        """
        return cls(*group_fixes(time, lat, lon, agent, trajectory, columns, context))

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
        """Makes trajectories from a polars, pandas or pyarrow table with one fix per row.

        Times are date-times (naive ones are read as UTC) or seconds since 1970. If the table has no column ``agent``,
        all fixes belong to one agent; without a column ``trajectory`` each agent has one trajectory.

        >>> frame = pl.DataFrame({"time": [0, 1], "lat": [0.0, 0.1], "lon": [9.0, 9.1], "agent": ["x", "x"]})
        >>> Trajectories.from_frame(frame)
        <Trajectories: 1 trajectory of 1 agent, 2 rows of time, lat, lon>
        """
        return cls(*group_frame(frame, time, lat, lon, agent, trajectory, columns, context))

    @classmethod
    def from_steps(
        cls,
        states: Iterable[ArrayLike],
        actions: Iterable[ArrayLike],
        *,
        n_actions: int | None = None,
        agent_ids: ArrayLike = "",
        trajectory_ids: ArrayLike | None = None,
    ) -> Trajectories:
        """Makes trajectories from states and actions of any kind: one pair of arrays per trajectory, one row per step.

        If a state or an action is a single number, its array may be flat. Without ``trajectory_ids`` each name is made
        from the content, so the same trajectory always gets the same name.

        With ``n_actions`` actions are discrete: each is one of the whole numbers from 0 to ``n_actions - 1``, whose
        order and distance have no meaning. The column ``action`` is then one-hot: it has a column of type ``bool`` for
        each possible action. Without ``n_actions`` actions are quantities, even if they are whole numbers.

        >>> Trajectories.from_steps([np.zeros((5, 3)), np.ones((4, 3))], [np.zeros((5, 1)), np.ones((4, 1))])
        <Trajectories: 2 trajectories of 1 agent, 9 rows of state, action>
        >>> Trajectories.from_steps([np.zeros((2, 3))], [[1, 0]], n_actions=2).columns["action"]
        array([[False,  True],
               [ True, False]])
        """
        return cls(*join_steps(states, actions, n_actions, agent_ids, trajectory_ids))

    @classmethod
    def concat(cls, parts: Iterable[Trajectories]) -> Trajectories:
        """Joins sets of trajectories; drops columns that not all of them have."""
        parts = list(parts)
        if not parts:
            raise DataError("nothing to concatenate", remedy="give at least one set of trajectories")
        if len(parts) == 1:
            return parts[0]
        columns = [name for name in parts[0].columns if all(name in p.columns for p in parts)]
        if "action" in columns and len({p.has_discrete_actions for p in parts}) > 1:
            raise DataError(
                "some of these trajectories have discrete actions, others have not",
                remedy="make all of them with the same n_actions",
            )
        context = [name for name in parts[0].context if all(name in p.context for p in parts)]
        if not columns:
            raise DataError(
                "these sets of trajectories have no column in common", remedy="concatenate fixes or steps, not both"
            )
        return cls.unchecked(
            {name: np.concatenate([p.columns[name] for p in parts]) for name in columns},
            np.r_[0, np.cumsum(np.concatenate([p.lengths for p in parts]))].astype(np.int64),
            np.concatenate([p.agent_ids for p in parts]),
            np.concatenate([p.trajectory_ids for p in parts]),
            {name: np.concatenate([p.context[name] for p in parts]) for name in context},
        )

    @classmethod
    def unchecked(
        cls,
        columns: dict[str, Array],
        offsets: NDArray[np.int64],
        agent_ids: NDArray[np.str_],
        trajectory_ids: NDArray[np.str_],
        context: dict[str, Array],
    ) -> Trajectories:
        """Builds trajectories from parts that were checked before, without checking them again."""
        self = object.__new__(cls)
        self._hold(Grouped(columns, offsets, agent_ids, trajectory_ids, context))
        return self

    def with_columns(
        self, columns: Mapping[str, ArrayLike] | None = None, context: Mapping[str, ArrayLike] | None = None
    ) -> Trajectories:
        """Returns the trajectories with columns (a value per row) or context (one per trajectory) added or replaced."""
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
        """Returns the number of rows (fixes or steps)."""
        return int(self.offsets[-1] - self.offsets[0])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Returns the number of rows of each trajectory."""
        return np.diff(self.offsets)

    @property
    def agents(self) -> list[str]:
        """Returns the distinct agents, in the order of their first trajectories."""
        return list(dict.fromkeys(self.agent_ids.tolist()))

    @property
    def ids(self) -> list[TripId]:
        """Returns the full name of each trajectory: its agent and its id."""
        return list(map(TripId, self.agent_ids.tolist(), self.trajectory_ids.tolist()))

    @property
    def trajectory_of_row(self) -> NDArray[np.int64]:
        """Returns, for each row, the position of its trajectory."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def is_gps(self) -> bool:
        """Returns True if these are GPS fixes (``time``, ``lat``, ``lon``)."""
        return self.holds(*FIX_COLUMNS)

    @property
    def has_discrete_actions(self) -> bool:
        """Returns True if these are steps with discrete actions (``from_steps`` with ``n_actions``)."""
        return "action" in self.columns and self.columns["action"].dtype == np.bool_

    def holds(self, *columns: str) -> bool:
        """Returns True if all these columns exist."""
        return all(name in self.columns for name in columns)

    def is_like(self, other: Trajectories) -> bool:
        """Returns True if one of the two has all columns of the other, so that they hold the same kind of data."""
        return self.holds(*other.columns) or other.holds(*self.columns)

    # ---------------------------------------------------------------- slicing

    def __getitem__(self, which: int | slice | ArrayLike) -> Trajectories:
        if isinstance(which, (int, np.integer)):
            i = int(which) + (len(self) if which < 0 else 0)
            if not 0 <= i < len(self):
                raise IndexError(f"there is no trajectory {which} among {len(self)}")
            return self._run(i, i + 1)
        if isinstance(which, slice):
            start, stop, step = which.indices(len(self))
            if step == 1:
                return self._run(start, max(start, stop))
            return self._take(np.arange(start, stop, step))
        index = np.atleast_1d(which)
        if index.dtype == bool:
            if index.shape != (len(self),):
                raise IndexError(f"the mask has the shape {index.shape} for {len(self)} trajectories")
            if index.all():
                return self._run(0, len(self))
            index = np.flatnonzero(index)
        elif index.size == 0:
            index = index.astype(np.int64)
        return self._take(index)

    def _run(self, start: int, stop: int) -> Trajectories:
        """Returns the trajectories from ``start`` to ``stop`` as views of the same memory."""
        lo, hi = self.offsets[start], self.offsets[stop]
        return self.unchecked(
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
        return self.unchecked(
            {name: values[rows] for name, values in self.columns.items()},
            offsets,
            self.agent_ids[index],
            self.trajectory_ids[index],
            {name: values[index] for name, values in self.context.items()},
        )

    def __iter__(self) -> Iterator[Trajectories]:
        return (self._run(i, i + 1) for i in range(len(self)))

    def agent(self, agent_id: str) -> Trajectories:
        """Returns the trajectories of one agent."""
        chosen = self.agent_ids == str(agent_id)
        if not chosen.any():
            raise DataError(f"no trajectory of agent {agent_id!r}", remedy=instead_of(str(agent_id), self.agents))
        return self[chosen]

    def isin(self, ids: Iterable[TripId]) -> NDArray[np.bool_]:
        """Returns a mask of the trajectories with one of these ids.

        >>> trips = Trajectories.from_fixes(time=[0, 0], lat=[0, 0], lon=[0, 0], agent=["a", "b"], trajectory="1")
        >>> trips.isin([TripId("b", "1")])
        array([False,  True])
        """
        wanted = set(ids)
        return np.array([trip in wanted for trip in self.ids], np.bool_)

    def without(self, agent_id: str) -> Trajectories:
        """Returns the trajectories of all other agents."""
        return self[self.agent_ids != str(agent_id)]

    # ---------------------------------------------------------------- leaving

    def to_frame(self) -> pl.DataFrame:
        """Returns a polars data frame with one row per fix; agent, trajectory and context are repeated on each row."""
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
