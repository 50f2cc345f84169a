"""Tables of fixes (CSV and its cousins, Parquet, Arrow) whose columns go by many names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import Call, DataError, Option, Part, Place
from astray.core.fixes import (
    as_labels,
    label_faults,
    numbers,
    place_faults,
    refuse_swapped,
    without_null_words,
    wrapped,
)
from astray.core.grouping import KEYS, Grouped, run_starts
from astray.core.text import harmless, number_of
from astray.core.times import UTC_OFFSET, Clock
from astray.core.trajectories import Trajectories
from astray.readers import columnar, delimited
from astray.readers.assembling import Fixes, in_trips
from astray.readers.columns import MARKS, Roles, is_false, like_ids, marks, position, recognised, resolve
from astray.readers.datetimes import is_time_of_day, joined
from astray.readers.refusals import FilePath, Intake, Progress, Report, refusing, share_of

AGAIN = 5
"""So many rows, on average, have each value of a column that may tell agents apart."""

TABLE = Path("the table")
"""What a table in memory is called in messages."""


@dataclass(frozen=True)
class TableOptions:
    """How a table is to be read; everything has a default that looks at the file.

    Parameters
    ----------
    time, date, lat, lon, agent, trajectory
        The column that plays the part; by default found by its name (``lng``, ``uid``, ``tst``,
        ``trip_id``, ...). A column of dates counts where the one of times holds times of day. Without an
        agent column the file's name is the agent; without a trajectory column the fixes of each agent are
        cut into trips.
    one_agent
        Whether, without an agent column, all fixes of a file are one agent's, though a column that is not used looks
        as if it told several apart; otherwise that is refused.
    context, columns
        Further columns to keep: one value a trajectory (as text if the file is text), and one number a fix.
    time_unit, time_zone, time_format, date_order
        See :class:`astray.core.times.Clock`.
    delimiter, encoding, names
        Of text files only. ``names`` are the columns of a file without a header line.
    zero_ok
        Whether a fix at exactly (0, 0) is meant.
    """

    time: str | None = None
    date: str | None = None
    lat: str | None = None
    lon: str | None = None
    agent: str | None = None
    trajectory: str | None = None
    context: Sequence[str] = ()
    columns: Sequence[str] = ()
    time_unit: str | None = None
    time_zone: str | None = None
    time_format: str | None = None
    date_order: str | None = None
    delimiter: str | None = None
    encoding: str | None = None
    names: Sequence[str] | None = None
    zero_ok: bool = False
    one_agent: bool = False

    @property
    def kept(self) -> dict[str, str]:
        """Columns to keep beside the fixes: their name while reading to their name in the file."""
        return {f"column {name}": name for name in self.columns} | {f"context {name}": name for name in self.context}


def read_table(
    path: FilePath,
    *more: FilePath,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    trips: str | None = None,
    options: TableOptions | None = None,
) -> Trajectories:
    """Read tables of fixes, in any order of rows, into one set of trajectories; ``trips`` as for :func:`read`."""
    options = options or TableOptions()
    files = [Path(p) for p in (path, *more)]
    found = _collected(options)
    with Intake(skip_bad, report) as intake:
        for i, file in enumerate(files):
            with intake.sparing_the_rest(file, of=len(files)):
                for fixes, _ in _fixes(file, options, intake, share_of(progress, i, len(files))):
                    found.add(fixes)
        if not len(found):
            raise intake.nothing(files[0], "fix")
        with refusing(files[0], "its columns and those of the other files differ", "convert them to one type"):
            _say_what_varies(str(files[0]), found, options, intake)
            return in_trips(_grouped(found, options), trips, intake)


def read_frame(
    table: pl.DataFrame,
    *,
    skip_bad: bool = False,
    report: Report | None = None,
    trips: str | None = None,
    options: TableOptions | None = None,
) -> Trajectories:
    """Read a table in memory as a file is read; its first row is row 0, and an agent that it does not name is empty."""
    options = options or TableOptions()
    names, rows = table.columns, np.arange(table.height)
    with Intake(skip_bad, report) as intake:
        parts = _good(
            TABLE,
            "",
            names,
            lambda wanted: iter([delimited.selected(delimited.Block(table, rows), names, wanted)]),
            options,
            intake,
        )
        found = _collected(options, *(fixes for fixes, _ in parts))
        if not len(found):
            raise intake.nothing(TABLE, "fix")
        _say_what_varies(str(TABLE), found, options, intake)
        return in_trips(_grouped(found, options), trips, intake)


def iter_table(
    path: FilePath,
    batch_rows: int = 1_000_000,
    *,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    trips: str | None = None,
    options: TableOptions | None = None,
) -> Iterator[Trajectories]:
    """Read a table that is grouped by agent and trajectory, a batch of whole trajectories at a time.

    Memory is bounded by ``batch_rows`` and the longest trajectory, whatever the size of the file. A file in
    which a trajectory goes on after another one has begun is refused where that is seen: sort it, or read
    it whole.
    """
    options = options or TableOptions()
    if batch_rows < 1:
        raise DataError(f"batch_rows={batch_rows} cannot be used", remedy="give at least 1")
    file = Path(path)
    seen: set[int] = set()
    held: list[tuple[pl.DataFrame, NDArray[np.int64]]] = []
    n_held, n_batches = 0, 0
    with Intake(skip_bad, report) as intake:
        for part in _fixes(file, options, intake, progress):
            held.append(part)
            n_held += part[0].height
            if n_held < batch_rows:
                continue
            fixes, rows = _joined(held)
            cut = int(run_starts(fixes.select(KEYS))[-1])
            held, n_held = [(fixes[cut:], rows[cut:])], fixes.height - cut
            if cut:
                n_batches += 1
                yield in_trips(_batch(file, fixes[:cut], rows[:cut], seen, options), trips, intake)
        if n_held:
            n_batches += 1
            yield in_trips(_batch(file, *_joined(held), seen, options), trips, intake)
        if not n_batches:
            raise intake.nothing(file, "fix")


@dataclass
class _Source:
    """One table that has been looked at: where its columns are, and how its times are written."""

    file: Path
    owner: str  # of fixes whose agent no column tells
    roles: Roles
    clock: Clock
    options: TableOptions
    looked: bool = field(default=False)
    dated: bool | None = None  # whether a column of dates counts; as soon as some times were seen

    def checked(self, block: delimited.Block, intake: Intake) -> tuple[pl.DataFrame, NDArray[np.int64]]:
        """The good fixes of a block (agent, trajectory, time, lat, lon), and the rows they stood in."""
        with refusing(self.file, "a column could not be converted", "store numbers, text or date-times"):
            return self._checked(block, intake)

    def _checked(self, block: delimited.Block, intake: Intake) -> tuple[pl.DataFrame, NDArray[np.int64]]:
        block = self._unmarked(block, intake)
        frame, file, roles = block.frame, self.file, self.roles.positions
        lat, lon = numbers("lat", frame["lat"]), numbers("lon", frame["lon"])
        if not self.looked:
            refuse_swapped(lat, lon)
            self.looked = True
        moments = self._moments(frame)
        seconds, time_faults = self.clock.seconds(moments)
        ahead = self.clock.offsets(moments, seconds)
        # Only empty text is no label: an agent may be called NA.
        labels = {role: without_null_words(as_labels(frame[role]), [""]) for role in KEYS if role in roles}
        faults = [fault for role, label in labels.items() for fault in label_faults(role, label)]
        faults += [*place_faults(lat, lon, (frame["lat"], frame["lon"]), zero_ok=self.options.zero_ok)]
        faults += time_faults
        good = intake.sift(file, block.rows, faults)
        n = frame.height
        agent = labels.get("agent", pl.repeat(self.owner, n, dtype=pl.String, eager=True))
        data = {"agent": agent, "trajectory": labels.get("trajectory", pl.repeat("", n, dtype=pl.String, eager=True))}
        data |= {"time": pl.Series(seconds), "lat": pl.Series(lat), "lon": pl.Series(wrapped(lon))}
        data |= {} if ahead is None else {UTC_OFFSET: pl.Series(ahead.astype(np.float32))}
        for key, name in self.options.kept.items():
            is_column = key.startswith("column ")
            data[key] = pl.Series(numbers(name, frame[key])) if is_column else frame[key]
        fixes = pl.DataFrame(data)
        return (fixes, block.rows) if good.all() else (fixes.filter(good), block.rows[good])

    def _moments(self, frame: pl.DataFrame) -> pl.Series:
        """The times; with the dates beside them, if they are times of day."""
        if "date" not in frame.columns:
            return frame["time"]
        if self.dated is None:
            self.dated = is_time_of_day(frame["time"])
        return joined(frame["date"], frame["time"]) if self.dated else frame["time"]

    def _unmarked(self, block: delimited.Block, intake: Intake) -> delimited.Block:
        """The rows that no column marks as not to be used; the others are left out and counted."""
        for mark, reason in MARKS.items():
            if f"mark {mark}" not in block.frame.columns:
                continue
            bad = is_false(block.frame[f"mark {mark}"])
            intake.leave_out_all(self.file, block.rows[bad], reason)
            block = delimited.Block(block.frame.filter(~bad), block.rows[~bad])
        return block


def _fixes(
    file: Path, options: TableOptions, intake: Intake, progress: Progress | None
) -> Iterator[tuple[pl.DataFrame, NDArray[np.int64]]]:
    """The good fixes of one table, block by block."""
    if columnar.columnar(file):
        names = columnar.column_names(file)
        stored = partial(columnar.blocks, file, names, progress=progress)
        return _good(file, harmless(file.stem), names, stored, options, intake)
    dialect = delimited.sniff(
        file, recognised, delimiter=options.delimiter, encoding=options.encoding, names=options.names
    )
    if dialect.above:
        intake.report.note(f"{file}: passed over {number_of(dialect.above, 'line')} above the column names")
    written = partial(delimited.blocks, file, dialect, intake=intake, progress=progress)
    return _good(file, harmless(file.stem), dialect.names, written, options, intake)


def _good(
    file: Path,
    owner: str,
    names: Sequence[str],
    blocks_of: Callable[[Mapping[str, int]], Iterator[delimited.Block]],
    options: TableOptions,
    intake: Intake,
) -> Iterator[tuple[pl.DataFrame, NDArray[np.int64]]]:
    """The good fixes of a table whose columns have these names; ``owner`` is the agent where no column is."""
    asked = {role: getattr(options, role) for role in ("time", "date", "lat", "lon", "agent", "trajectory")}
    roles = resolve(file, names, asked, list(options.kept.values()))
    wanted = dict(roles.positions) | {f"mark {mark}": i for mark, i in marks(names).items()}
    wanted |= {key: position(file, names, name) for key, name in options.kept.items()}
    suspects = like_ids(roles.unused) if "agent" not in roles.positions and not options.one_agent else []
    wanted |= {f"suspect {name}": position(file, names, name) for name in suspects}
    clock = Clock(options.time_unit, options.time_zone, options.time_format, options.date_order)
    source = _Source(file, owner, roles, clock, options)
    for rival in roles.rivals:
        intake.report.assume(file, rival, "name the column if that is wrong")
    if "agent" not in roles.positions:
        intake.report.named_after[owner] = "file"
        if roles.unused:
            reason = f"no column for the agent was recognised, so all fixes are of one, {owner!r}"
            unused = f"; not used are {', '.join(map(repr, roles.unused[:20]))}"
            intake.report.assume(file, reason + unused, ("name it if there is one: ", Option("agent", "NAME")))
    intake.report.columns = {role: names[i] for role, i in roles.positions.items()}
    intake.report.unused = list(dict.fromkeys([*intake.report.unused, *roles.unused]))
    told: dict[str, set[object]] = {name: set() for name in suspects}
    n = 0
    for block in blocks_of(wanted):
        n += block.frame.height
        _refuse_merging(file, block.frame, told, n)
        fixes, rows = source.checked(block, intake)
        if fixes.height:
            yield fixes, rows
    intake.take_times(file, clock)


def _refuse_merging(file: Path, frame: pl.DataFrame, told: dict[str, set[object]], rows: int) -> None:
    """Refuse to take all fixes for one agent's where a column looks as if it told several apart.

    ``told`` are the values of such columns so far, in so many ``rows``: the second agent of a table that is sorted may
    come late. A column that has many values in its first rows already tells no agents apart, and is let go; so is one
    of numbers that has no name, as pandas writes its index.
    """
    for name in list(told):
        told[name].update(frame[f"suspect {name}"].unique())
        n = len(told[name])
        if n > rows / AGAIN or (not name and all(isinstance(value, str) and value.isdigit() for value in told[name])):
            del told[name]
        elif n > 1:
            meant: tuple[str | Part, ...] = ("name that column, and pass ", Option("agent", "NAME"))
            if name:
                meant = ("pass ", Option("agent", name))
            raise DataError(
                f"no column for the agent was recognised, and {name!r} has {n:,} different values",
                place=Place(str(file), 1),
                remedy=(
                    "if these are the agents, ",
                    *meant,
                    "; if all fixes are of one, pass ",
                    Option("one_agent", True),
                ),
            )


def _joined(parts: list[tuple[pl.DataFrame, NDArray[np.int64]]]) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    return pl.concat([fixes for fixes, _ in parts], how="diagonal"), np.concatenate([rows for _, rows in parts])


def _batch(file: Path, fixes: pl.DataFrame, rows: NDArray[np.int64], seen: set[int], options: TableOptions) -> Grouped:
    """Trajectories of a batch, none of which may have been seen before."""
    starts = run_starts(fixes.select(KEYS))
    heads = fixes.select(KEYS)[starts]
    for i, key in enumerate(heads.hash_rows().to_list()):
        if key in seen:
            agent, trajectory = heads.row(i)
            what = f"trajectory {trajectory!r}" if trajectory else "the list of fixes"
            raise DataError(
                f"{what} of agent {agent!r} goes on after another one had begun, so the file cannot be streamed",
                place=Place(str(file), int(rows[starts[i]])),
                remedy=("sort it by agent and trajectory, or read it whole with ", Call("read")),
            )
        seen.add(key)
    return _grouped(_collected(options, fixes), options)


def _collected(options: TableOptions, *fixes: pl.DataFrame) -> Fixes:
    """Fixes, collected with the context that is to be kept; more may be added."""
    found = Fixes([key for key in options.kept if key.startswith("context ")])
    for some in fixes:
        found.add(some)
    return found


def _say_what_varies(place: str, fixes: Fixes, options: TableOptions, intake: Intake) -> None:
    """Record context of which trajectories have several values."""
    for key, count in fixes.varied().items() if options.context else ():
        name = options.kept[key]
        intake.report.varied[name] = count
        intake.report.assume(
            place, f"{name!r} is not the same all along {count:,} trajectories; that of the first fix is taken"
        )


def _grouped(fixes: Fixes, options: TableOptions) -> Grouped:
    """Trajectories under the names that their columns have in the file."""
    found, kept = fixes.grouped(), options.kept
    columns = {kept.get(name, name): found.columns.pop(name) for name in list(found.columns)}
    if UTC_OFFSET in columns and not (np.abs(columns[UTC_OFFSET]) > 0).any():
        del columns[UTC_OFFSET]  # it says nothing
    return found._replace(columns=columns, context={kept[name]: values for name, values in found.context.items()})
