"""Reads tables of fixes (CSV and the like, Parquet, Arrow, data frames), whose columns have many possible names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.dates import is_time_of_day, join_dates_and_times
from astray.core.errors import Call, DataError, Option, Part, Place, Remedy
from astray.core.fixes import TEXTUAL, as_labels, as_numbers, numbers, without_null_words
from astray.core.grouping import KEYS, Grouped, run_starts
from astray.core.text import harmless, number_of
from astray.core.times import UTC_OFFSET, Clock
from astray.core.trajectories import Trajectories
from astray.readers.column_roles import MARKS, Roles, is_false, like_ids, marks, position, resolve
from astray.readers.frames import as_table
from astray.readers.parquet import ARROW, PARQUET
from astray.readers.read_report import FilePath, Intake, Progress, Report, raising_data_errors, share_of
from astray.readers.reader import InputFile, Reader, Request
from astray.readers.table_blocks import ROWS, Block, Table, frame_table
from astray.readers.trip_building import FixCollector, build_trips, check_fixes

ROWS_PER_AGENT = 5
"""A column may distinguish agents only if each of its values occurs in at least this many rows on average."""

LEAST_JUMP = 1e-3
"""Degrees between the places of different agents, at least; about a hundred metres."""

FRAME = Path("the table")
"""The name of a table in memory, for messages."""


@dataclass(frozen=True)
class TableOptions:
    """The options for tables; every default depends on the file.

    Parameters
    ----------
    time, date, lat, lon, agent, trajectory
        The name of the column; by default one of the usual names (``lng``, ``uid``, ``tst``, ``trip_id``, ...). The
        date column is used if the time column holds times of day. Without an agent column, the file's name is the
        agent; without a trajectory column, astray cuts the fixes of each agent into trips.
    one_agent
        All fixes belong to one agent, although an unused column looks like the names of several. By default such a
        column is an error.
    context, columns
        Further columns to keep: one value for each trajectory (text if the file is text), and one number for each fix.
    time_unit, time_zone, time_format, date_order
        See :class:`astray.core.times.Clock`.
    delimiter, encoding, names
        For text files only. ``names`` are the columns of a file without a header line.
    zero_ok
        Accept fixes at exactly (0, 0).
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
        """Returns the further columns: their names while reading, mapped to their names in the file."""
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
    """Reads tables of fixes, with rows in any order, into one set of trajectories; ``trips`` as for :func:`read`."""
    with Intake(skip_bad, report) as intake:
        files = [InputFile(Path(p)) for p in (path, *more)]
        return _read(files, Request(options or TableOptions(), intake, progress, trips))


def read_frame(
    table: Any,
    *,
    skip_bad: bool = False,
    report: Report | None = None,
    trips: str | None = None,
    options: TableOptions | None = None,
) -> Trajectories:
    """Reads a table in memory as if it were a file; its first row is row 0, and an unnamed agent is empty text."""
    frame = as_table(table)
    with Intake(skip_bad, report) as intake:
        request = Request(options or TableOptions(), intake, None, trips)
        found = _collector(request.options)
        for fixes, _ in _good_fixes(FRAME, "", frame_table(frame), request):
            found.add(fixes)
        return _trips(FRAME, found, request)


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
    """Reads a table in batches of whole trajectories; the table must be grouped by agent and trajectory.

    The memory depends on ``batch_rows`` and the longest trajectory, not on the size of the file. A trajectory that
    continues after another one has begun is an error: sort the file, or read it whole.
    """
    with Intake(skip_bad, report) as intake:
        yield from _stream(
            InputFile(Path(path)), batch_rows, Request(options or TableOptions(), intake, progress, trips)
        )


def _read(files: Sequence[InputFile], request: Request) -> Trajectories:
    found, n = _collector(request.options), len(files)
    for i, file in enumerate(files):
        with request.intake.skipping_bad_file(file.path, n_files=n):
            for fixes, _ in _fixes(file, request._replace(progress=share_of(request.progress, i, n))):
                found.add(fixes)
    return _trips(files[0].path, found, request)


def _trips(file: Path, found: FixCollector, request: Request) -> Trajectories:
    intake = request.intake
    if not len(found):
        raise intake.nothing_usable(file, "fix")
    with raising_data_errors(file, "its columns and those of the other files differ", "convert them to one type"):
        _report_varied_context(str(file), found, request.options, intake)
        return build_trips(_grouped(found, request.options), request.trips, intake)


def _stream(file: InputFile, batch_rows: int, request: Request) -> Iterator[Trajectories]:
    if batch_rows < 1:
        raise DataError(f"batch_rows={batch_rows} cannot be used", remedy="give at least 1")
    seen: set[int] = set()
    held: list[tuple[pl.DataFrame, NDArray[np.int64]]] = []
    n_held, n_batches = 0, 0
    for part in _fixes(file, request):
        held.append(part)
        n_held += part[0].height
        if n_held < batch_rows:
            continue
        fixes, rows = _joined(held)
        cut = int(run_starts(fixes.select(KEYS))[-1])
        held, n_held = [(fixes[cut:], rows[cut:])], fixes.height - cut
        if cut:
            n_batches += 1
            yield _batch(file.path, fixes[:cut], rows[:cut], seen, request)
    if n_held:
        n_batches += 1
        yield _batch(file.path, *_joined(held), seen, request)
    if not n_batches:
        raise request.intake.nothing_usable(file.path, "fix")


@dataclass
class _Source:
    """Checks the rows of one table; its first block of rows determines the form of the times."""

    file: Path
    owner: str  # the agent of all fixes if no column names the agents
    clock: Clock
    options: TableOptions
    is_first: bool = True  # until the first block is checked
    has_times_of_day: bool | None = None  # known after the first block; if True, the date column is used

    def checked(self, block: Block, intake: Intake) -> tuple[pl.DataFrame, NDArray[np.int64]]:
        """Returns the good fixes of a block (agent, trajectory, time, lat, lon) and their row numbers."""
        frame, rows = self._without_marked(block, intake)
        raw = {"time": self._moments(frame), "lat": frame["lat"], "lon": frame["lon"]}
        # Only empty text is a missing label: an agent may be called NA.
        labels = {role: without_null_words(as_labels(frame[role]), [""]) for role in KEYS if role in frame.columns}
        fixes, faults = check_fixes(labels, raw, self.clock, zero_ok=self.options.zero_ok, is_first=self.is_first)
        self.is_first = False
        good = intake.good_rows(self.file, rows, faults)
        unnamed = {"agent": self.owner, "trajectory": ""}
        fixes = fixes.with_columns(
            *(pl.lit(unnamed[role]).alias(role) for role in KEYS if role not in labels),
            *(
                pl.Series(key, numbers(name, frame[key])) if key.startswith("column ") else frame[key]
                for key, name in self.options.kept.items()
            ),
        )
        return (fixes, rows) if good.all() else (fixes.filter(good), rows[good])

    def _moments(self, frame: pl.DataFrame) -> pl.Series:
        """Returns the times, joined with the dates if they are times of day."""
        if "date" not in frame.columns:
            return frame["time"]
        if self.has_times_of_day is None:
            self.has_times_of_day = is_time_of_day(frame["time"])
        return join_dates_and_times(frame["date"], frame["time"]) if self.has_times_of_day else frame["time"]

    def _without_marked(self, block: Block, intake: Intake) -> Block:
        """Skips the rows that a column marks as not to be used."""
        for mark, reason in MARKS.items():
            if f"mark {mark}" in block.frame.columns:
                bad = is_false(block.frame[f"mark {mark}"])
                intake.skip_rows(self.file, block.rows[bad], reason)
                block = block.filter(~bad)
        return block


def _fixes(file: InputFile, request: Request) -> Iterator[tuple[pl.DataFrame, NDArray[np.int64]]]:
    """Yields the good fixes of one table, block by block, with their row numbers."""
    options = request.options
    table = file.open(options.delimiter, options.encoding, options.names)
    if table.lines_above:
        lines = number_of(table.lines_above, "line")
        request.intake.report.note(f"{file.path}: ignored {lines} above the column names")
    return _good_fixes(file.path, harmless(file.path.stem), table, request)


def _good_fixes(
    file: Path, owner: str, table: Table, request: Request
) -> Iterator[tuple[pl.DataFrame, NDArray[np.int64]]]:
    """Yields the good fixes of an open table; ``owner`` is the agent if no column names the agents."""
    options, intake, names = request.options, request.intake, table.names
    asked = {role: getattr(options, role) for role in ("time", "date", "lat", "lon", "agent", "trajectory")}
    roles = resolve(file, names, asked, list(options.kept.values()))
    wanted = dict(roles.positions) | {f"mark {mark}": i for mark, i in marks(names).items()}
    wanted |= {key: position(file, names, name) for key, name in options.kept.items()}
    suspects = like_ids(roles.unused) if "agent" not in roles.positions and not options.one_agent else []
    wanted |= {f"suspect {name}": position(file, names, name) for name in suspects}
    clock = Clock(options.time_unit, options.time_zone, options.time_format, options.date_order)
    source = _Source(file, owner, clock, options)
    for rival in roles.rivals:
        intake.report.assume(file, rival, "name the column if that is wrong")
    if "agent" not in roles.positions:
        intake.report.named_after[owner] = "file"
        if roles.unused:
            # With one_agent the caller names the agent.
            so = "" if options.one_agent else f", so all fixes belong to one agent, {owner!r}"
            reason = f"no column for the agent was recognised{so}"
            unused = f"; not used are {', '.join(map(repr, roles.unused[:20]))}"
            remedy: Remedy = ("name it if there is one: ", Option("agent", "NAME"))
            if name := _like_agents(table, roles, options):
                unused += f"; {name!r} changes back and forth, and the place with it"
                remedy = ("if these are the agents, pass ", Option("agent", name))
            intake.report.assume(file, reason + unused, remedy)
    intake.report.columns = {role: names[i] for role, i in roles.positions.items()}
    intake.report.unused = list(dict.fromkeys([*intake.report.unused, *roles.unused]))
    values: dict[str, set[object]] = {name: set() for name in suspects}
    n = 0
    for block in table.blocks(wanted, intake, request.progress, ROWS):
        n += block.frame.height
        _refuse_several_agents(file, block.frame, values, n)
        with raising_data_errors(file, "a column could not be converted", "store numbers, text or date-times"):
            fixes, rows = source.checked(block, intake)
        if fixes.height:
            yield fixes, rows
    intake.record_times(file, clock)


def _like_agents(table: Table, roles: Roles, options: TableOptions) -> str:
    """Returns the first unused column that may name the agents, by the first rows of the table; empty text if none.

    Such a column holds text, each value in several rows. In the order of time the values change back and forth, and
    with them the place jumps: it does not if they say how one agent travels.
    """
    wanted = {role: i for role, i in roles.positions.items() if role in ("time", "date", "lat", "lon")}
    wanted |= {f"unused {name}": list(table.names).index(name) for name in roles.unused}
    block = next(table.blocks(wanted, Intake(True, None), None, ROWS), None)
    if block is None:
        return ""
    clock = Clock(options.time_unit, options.time_zone, options.time_format, options.date_order)
    try:
        time, _ = clock.seconds(_Source(FRAME, "", clock, options)._moments(block.frame))
        places = np.column_stack([numbers(role, block.frame[role]) for role in ("lat", "lon")])
    except DataError:
        return ""  # it is raised again when the rows are read
    known = np.flatnonzero(np.isfinite(time) & np.isfinite(places).all(axis=1))
    order = known[np.argsort(time[known], kind="stable")]
    steps = np.abs(np.diff(places[order], axis=0)).max(axis=1, initial=0.0)
    for name in roles.unused:
        if block.frame[f"unused {name}"].dtype not in TEXTUAL:
            continue
        values = without_null_words(block.frame[f"unused {name}"][order]).fill_null("")
        n, changes = values.n_unique(), values.ne_missing(values.shift()).to_numpy()[1:]
        if 2 <= n <= len(values) / ROWS_PER_AGENT and changes.sum() >= 2 * n and not as_numbers(values).count():
            usual = 0.0 if changes.all() else float(np.median(steps[~changes]))
            if np.median(steps[changes]) > max(10 * usual, LEAST_JUMP):
                return name
    return ""


def _refuse_several_agents(file: Path, frame: pl.DataFrame, values: dict[str, set[object]], rows: int) -> None:
    """Raises an error if a column that looks like an identifier has several values, but no agent column is known.

    ``values`` collects the values of such columns over the first ``rows`` rows, because in a sorted table the second
    agent may come late. A column with too many different values cannot name agents and is dropped; so is a column of
    numbers without a name, because pandas writes its index that way.
    """
    for name in list(values):
        values[name].update(frame[f"suspect {name}"].unique())
        n = len(values[name])
        is_index = not name and all(isinstance(value, str) and value.isdigit() for value in values[name])
        if n > rows / ROWS_PER_AGENT or is_index:
            del values[name]
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
                    "; if all fixes belong to one agent, pass ",
                    Option("one_agent", True),
                ),
            )


def _joined(parts: list[tuple[pl.DataFrame, NDArray[np.int64]]]) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    return pl.concat([fixes for fixes, _ in parts], how="diagonal"), np.concatenate([rows for _, rows in parts])


def _batch(file: Path, fixes: pl.DataFrame, rows: NDArray[np.int64], seen: set[int], request: Request) -> Trajectories:
    """Returns the trips of a batch; raises an error if an earlier batch held one of its trajectories."""
    starts = run_starts(fixes.select(KEYS))
    heads = fixes.select(KEYS)[starts]
    for i, key in enumerate(heads.hash_rows().to_list()):
        if key in seen:
            agent, trajectory = heads.row(i)
            what = f"trajectory {trajectory!r}" if trajectory else "the list of fixes"
            raise DataError(
                f"{what} of agent {agent!r} continues after another one has begun, so the file cannot be streamed",
                place=Place(str(file), int(rows[starts[i]])),
                remedy=("sort it by agent and trajectory, or read it whole with ", Call("read")),
            )
        seen.add(key)
    found = _collector(request.options)
    found.add(fixes)
    return build_trips(_grouped(found, request.options), request.trips, request.intake)


def _collector(options: TableOptions) -> FixCollector:
    """Returns an empty collector that keeps the requested context."""
    return FixCollector([key for key in options.kept if key.startswith("context ")])


def _report_varied_context(place: str, fixes: FixCollector, options: TableOptions, intake: Intake) -> None:
    """Records the context columns with several values in one trajectory."""
    for key, count in fixes.varied_context().items() if options.context else ():
        name = options.kept[key]
        intake.report.varied[name] = count
        intake.report.assume(
            place, f"{name!r} has several values in {count:,} trajectories; the value of the first fix is used"
        )


def _grouped(fixes: FixCollector, options: TableOptions) -> Grouped:
    """Returns the trajectories, their columns under the names in the file."""
    found, kept = fixes.grouped(), options.kept
    columns = {kept.get(name, name): found.columns.pop(name) for name in list(found.columns)}
    if UTC_OFFSET in columns and not (np.abs(columns[UTC_OFFSET]) > 0).any():
        del columns[UTC_OFFSET]  # programs write +00:00 for any place
    return found._replace(columns=columns, context={kept[name]: values for name, values in found.context.items()})


READER = Reader(
    recognises=lambda sample: True,
    read=_read,
    stream=_stream,
    options=TableOptions,
    suffixes=(".csv", ".tsv", ".txt", *PARQUET, *ARROW),
    is_table=True,
)
