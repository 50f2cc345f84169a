"""Builds trips from fixes: checks them, collects them, groups them, cuts them, and reports odd trips."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import DataError, Option
from astray.core.fixes import Fault, label_faults, numbers, place_faults, refuse_swapped, wrapped
from astray.core.grouping import KEYS, ROWS, Grouped, as_text, numbered, put_in_order
from astray.core.text import number_of
from astray.core.times import UTC_OFFSET, Clock
from astray.core.trajectories import Trajectories
from astray.core.trips import TripRules, cut_raw
from astray.readers.read_report import Intake

TRIPS = ("as-given", "cut")

MANY = 20
"""The reader reports that most trips have a single fix only if there are at least this many trips."""

LABEL = "label"
"""The name of a temporary column: the number of the row's agent and trajectory."""


def check_fixes(
    labels: Mapping[str, pl.Series], raw: Mapping[str, pl.Series], clock: Clock, *, zero_ok: bool, is_first: bool
) -> tuple[pl.DataFrame, list[Fault]]:
    """Returns fixes (labels, time, lat, lon and, if known, the offset of their clock from UTC) and their faults.

    ``raw`` holds time, lat and lon as the file writes them. In the first block of a file (``is_first``), swapped
    degrees are an error.
    """
    lat, lon = numbers("lat", raw["lat"]), numbers("lon", raw["lon"])
    if is_first:
        refuse_swapped(lat, lon)
    time, time_faults = clock.seconds(raw["time"])
    ahead = clock.offsets(raw["time"], time)
    faults = [fault for role, label in labels.items() for fault in label_faults(role, label)]
    faults += [*place_faults(lat, lon, (raw["lat"], raw["lon"]), zero_ok=zero_ok), *time_faults]
    found = {**labels, "time": pl.Series(time), "lat": pl.Series(lat), "lon": pl.Series(wrapped(lon))}
    if ahead is not None:
        found[UTC_OFFSET] = pl.Series(ahead.astype(np.float32))
    return pl.DataFrame(found), faults


class FixCollector:
    """Collects checked fixes in any order, block by block, so that ten million of them take little memory.

    Numbers go into arrays that grow in place. One number stands for a row's agent, trajectory and context; the text
    itself is held once for each block.

    >>> fixes = FixCollector()
    >>> fixes.add(pl.DataFrame({"agent": ["ana", "bob"], "trajectory": "1", "time": [9.0, 7.0], "lat": 45.0}))
    >>> fixes.add(pl.DataFrame({"agent": ["ana"], "trajectory": ["1"], "time": [8.0], "lat": [44.0]}))
    >>> trips = fixes.grouped()
    >>> trips.agent_ids.tolist(), trips.offsets.tolist(), trips.columns["lat"].tolist()
    (['ana', 'bob'], [0, 2, 3], [44.0, 45.0, 45.0])
    """

    def __init__(self, context: Sequence[str] = ()) -> None:
        self._context = list(context)
        self._numbers: dict[str, array[float]] = {}
        self._codes: array[int] = array("i")
        self._labels: list[pl.DataFrame] = []
        self._n_labels = 0

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, fixes: pl.DataFrame) -> None:
        """Adds fixes: agent and trajectory are text, context has any type, all other columns are numbers.

        A column that some blocks lack is NaN there.
        """
        codes, labels = numbered(fixes.select(*KEYS, *self._context))
        numbers = {n: fixes[n].to_numpy() for n in fixes.columns if n not in (*KEYS, *self._context)}
        for name in (n for n in numbers if n not in self._numbers):
            missing = np.full(len(self), np.nan, numbers[name].dtype)
            self._numbers[name] = array(missing.dtype.char, missing.tobytes())
        for name, held in self._numbers.items():
            held.frombytes(numbers.get(name, np.full(fixes.height, np.nan, held.typecode)).tobytes())
        self._codes.frombytes((codes + np.int32(self._n_labels)).tobytes())
        self._labels.append(labels)
        self._n_labels += labels.height

    def varied_context(self) -> dict[str, int]:
        """Returns the context columns with several values in one trajectory, and the number of such trajectories."""
        labels = pl.concat(self._labels, how="vertical_relaxed")
        several = labels.group_by(KEYS).agg(pl.col(self._context).n_unique() > 1).select(pl.col(self._context).sum())
        return {name: int(count) for name, count in several.to_dicts()[0].items() if count}

    def grouped(self) -> Grouped:
        """Returns the trajectories in the order of their first rows, each with the context of its first fix.

        The collector is empty afterwards.
        """
        labels = pl.concat(self._labels, how="vertical_relaxed")
        of_label, keys = numbered(labels.select(KEYS))
        numbers, self._numbers = self._numbers, {}
        columns = {name: np.frombuffer(numbers[name], numbers.pop(name).typecode) for name in list(numbers)}
        codes, self._codes = np.frombuffer(self._codes, np.int32), array("i")
        if self._context:
            columns[LABEL] = codes.copy()
        for low in range(0, len(codes), ROWS):
            codes[low : low + ROWS] = of_label[codes[low : low + ROWS]]
        offsets = put_in_order(columns, codes)
        context = {}
        if self._context:
            first = labels[columns.pop(LABEL)[offsets[:-1]]]
            context = {name: _context(first[name]) for name in self._context}
        agents, trajectories = (as_text(keys[role].to_numpy()) for role in KEYS)
        return Grouped(columns, offsets, agents, trajectories, context)


def build_trips(fixes: Grouped, how: str | None, intake: Intake) -> Trajectories:
    """Builds trips: keeps named ones and cuts fixes without a trip name (empty text); ``how="cut"`` cuts all fixes.

    The columns are moved out of ``fixes``, so that they are not in memory twice.
    """
    if how not in (None, *TRIPS):
        raise DataError(f"trips={how!r} is unknown", remedy=f"give {' or '.join(TRIPS)}, or leave it out")
    raw = np.full(len(fixes.agent_ids), how == "cut") | (fixes.trajectory_ids == "")
    if not raw.any():
        return Trajectories(*fixes)
    if how == "as-given":
        return Trajectories(*fixes._replace(trajectory_ids=np.where(raw, fixes.agent_ids, fixes.trajectory_ids)))
    n_named = int((~raw).sum())
    trips = Trajectories.unchecked(*cut_raw(*_split_at_named_trips(fixes, raw)))
    intake.report.cut += len(trips) - n_named
    intake.warn_of_cut |= how is None
    return trips


def report_odd_trips(trips: Trajectories, intake: Intake) -> None:
    """Reports odd trips among those that the file names: they last days, have one fix, or occur twice."""
    time, first, last = trips.columns["time"], trips.offsets[:-1], trips.offsets[1:] - 1
    longest, remedy = TripRules().longest, ("pass ", Option("trips", "cut"), " to cut trips at gaps and stays")
    n_long = int((time[last] - time[first] > longest).sum())
    if n_long > len(trips) / 10:
        days = f"longer than {longest / 86_400:.0f} days"
        intake.report.assume("", f"as they are named, {n_long:,} of {len(trips):,} trips last {days}", remedy)
    n_single = int((trips.lengths == 1).sum())
    if n_single > len(trips) / 2 and len(trips) >= MANY:
        intake.report.assume("", f"as they are named, {n_single:,} of {len(trips):,} trips have one fix", remedy)
    n_repeated = int((np.diff(time)[np.diff(trips.trajectory_of_row) == 0] <= 0).sum())
    if 2 * n_repeated > len(time):
        reason = f"{n_repeated:,} of {len(time):,} fixes have the same time as the one before, and are not used"
        intake.report.assume("", reason, "write times with their seconds; are the times cut to minutes?")
    again = _repeated_trips(trips)
    if again:
        one, other = (str(trips.ids[i]) for i in again[0])
        reason = f"{number_of(len(again), 'trip')} with the same fixes as another one, first {other!r} as {one!r}"
        intake.report.assume("", reason, "leave them out: each counts as a separate trip")


def _repeated_trips(trips: Trajectories) -> list[tuple[int, int]]:
    """Returns pairs of trips with the same fixes, the earlier one first; ignores trips with one fix."""
    names = ("time", "lat", "lon")
    ends = {"first": trips.offsets[:-1], "last": trips.offsets[1:] - 1}
    looks = {f"{which} {name}": trips.columns[name][rows] for which, rows in ends.items() for name in names}
    codes, _ = numbered(pl.DataFrame({"length": trips.lengths, **looks}))
    found, earliest = [], np.unique(codes, return_index=True)[1][codes]
    for i in np.flatnonzero((earliest != np.arange(len(trips))) & (trips.lengths > 1)).tolist():
        one, other = (slice(trips.offsets[k], trips.offsets[k + 1]) for k in (earliest[i], i))
        if all(np.array_equal(trips.columns[name][one], trips.columns[name][other]) for name in names):
            found.append((int(earliest[i]), i))
    return found


def _split_at_named_trips(fixes: Grouped, raw: NDArray[np.bool_]) -> tuple[Grouped, NDArray[np.bool_]]:
    """Splits raw fixes where a named trip of the same agent comes between them, as the live feed does."""
    both = set(fixes.agent_ids[raw].tolist()) & set(fixes.agent_ids[~raw].tolist())
    if not both:
        return fixes, raw
    spans = [slice(low, high) for low, high in zip(fixes.offsets, fixes.offsets[1:], strict=False)]
    time, agents = fixes.columns["time"], fixes.agent_ids.tolist()
    named: dict[str, list[NDArray[np.float64]]] = {agent: [] for agent in both}
    for i in np.flatnonzero(~raw).tolist():
        if agents[i] in both:
            named[agents[i]].append(time[spans[i]])
    between = {agent: np.sort(np.concatenate(times)) for agent, times in named.items()}
    starts: list[int] = []
    of: list[int] = []
    for i, here in enumerate(spans):
        begins = [int(here.start)]
        if raw[i] and agents[i] in both:
            passed = np.searchsorted(between[agents[i]], time[here])
            begins += (here.start + np.flatnonzero(np.diff(passed)) + 1).tolist()
        starts += begins
        of += [i] * len(begins)
    parted = Grouped(
        fixes.columns,
        np.array([*starts, fixes.offsets[-1]], np.int64),
        fixes.agent_ids[of],
        fixes.trajectory_ids[of],
        {name: values[of] for name, values in fixes.context.items()},
    )
    return parted, raw[of]


def _context(series: pl.Series) -> NDArray[np.generic]:
    """Returns one value for each trajectory; missing text becomes empty text."""
    if series.dtype.is_numeric() or series.dtype == pl.Boolean:
        return series.to_numpy()
    return as_text(series.cast(pl.String).fill_null("").to_numpy())
