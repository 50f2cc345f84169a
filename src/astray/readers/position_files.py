"""The reader that all formats share that give one position at a time: it makes trips of the positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl

from astray.core.fixes import number
from astray.core.grouping import FIX_COLUMNS
from astray.core.text import harmless, printable
from astray.core.times import UTC_OFFSET, Clock
from astray.core.trajectories import Trajectories
from astray.readers.read_report import Intake, Progress, raising_data_errors, share_of
from astray.readers.reader import InputFile, Reader, Request, Sample
from astray.readers.text_files import first_bytes
from astray.readers.trip_building import FixCollector, build_trips, check_fixes
from astray.readers.xml_tracks import Point


@dataclass(frozen=True)
class FixOptions:
    """The options for files that are not tables.

    Parameters
    ----------
    agent
        The agent, if the file does not name it; by default the name of the file's folder.
    time_unit, time_zone, date_order
        See :class:`astray.core.times.Clock`.
    zero_ok
        Accept fixes at exactly (0, 0).
    """

    agent: str | None = None
    time_unit: str | None = None
    time_zone: str | None = None
    date_order: str | None = None
    zero_ok: bool = False


class Position(NamedTuple):
    """One position: its row in the file, its agent, and its time and degrees as the file writes them.

    ``agent`` is None if the file does not name it; ``trajectory`` is empty for fixes to cut into trips.
    """

    row: int
    agent: str | None
    trajectory: str
    time: object
    lat: object
    lon: object
    utc_offset: float | None = None  # seconds, if the file gives it beside the time


PositionsOf: TypeAlias = Callable[[Path, Intake, Progress | None], Iterable[Position]]


def name_of_folder(file: Path) -> str:
    """Returns the name of a file's folder, to use as the agent if the file names none."""
    return file.resolve().parent.name


def position_reader(
    positions_of: PositionsOf,
    unit: str,
    recognises: Callable[[Sample], bool],
    suffixes: tuple[str, ...] = (),
    *,
    agent_of: Callable[[Path], str] = name_of_folder,
    in_utc: bool = False,
    select_files: Callable[[Sequence[Path], Intake], Sequence[Path]] | None = None,
    ignored_files: tuple[str, ...] = (),
) -> Reader:
    """Returns the reader of a format, given a function that yields the positions of a file.

    ``unit`` is the word for a row of the file in messages. ``agent_of`` returns the agent for a file that names none,
    and ``select_files`` chooses among files that may hold the same data. ``in_utc`` is True if the format defines its
    times to be in UTC.
    """

    def read(files: Sequence[InputFile], request: Request) -> Trajectories:
        intake, progress = request.intake, request.progress
        paths: Sequence[Path] = [file.path for file in files]
        paths = paths if select_files is None else select_files(paths, intake)
        found: list[Trajectories] = []
        for i, path in enumerate(paths):
            with intake.skipping_bad_file(path, n_files=len(paths)):
                first_bytes(path, 8)
                positions = list(positions_of(path, intake, share_of(progress, i, len(paths))))
                if not positions:
                    raise intake.nothing_usable(path, "position")
                found.append(_trajectories(path, positions, request.options, intake, unit, agent_of))
            if progress is not None:
                progress(i + 1, len(paths))
        if not found:
            raise intake.nothing_usable(paths[0], "position")
        if in_utc:
            intake.report.times = "in UTC, as the format requires"
        return build_trips(Trajectories.concat(found)._grouped(), request.trips, intake)

    return Reader(recognises, read, FixOptions, suffixes, ignored_files=ignored_files)


def _trajectories(
    file: Path,
    positions: Sequence[Position],
    options: FixOptions,
    intake: Intake,
    unit: str,
    agent_of: Callable[[Path], str],
) -> Trajectories:
    """Returns the trajectories of the good positions; raises an error for the others, or skips them."""
    clock = Clock(options.time_unit, options.time_zone, date_order=options.date_order)
    raw = {name: _series([getattr(position, name) for position in positions]) for name in FIX_COLUMNS}
    rows = np.array([p.row for p in positions], dtype=np.int64)
    agents = pl.Series([p.agent for p in positions], dtype=pl.String)
    trips = pl.Series([p.trajectory for p in positions], dtype=pl.String)
    labels = {"agent": agents.fill_null("?"), "trajectory": trips}
    with raising_data_errors(file, "the positions could not be read", "check them"):
        fixes, faults = check_fixes(labels, raw, clock, zero_ok=options.zero_ok, is_first=True)
    good = intake.good_rows(file, rows, faults, unit=unit)
    intake.record_times(file, clock)
    if not good.any():
        raise intake.nothing_usable(file, "position")
    if agents.null_count():
        agent = options.agent
        if agent is None:
            agent = harmless(agent_of(file))
            intake.report.named_after[agent] = "folder"
        fixes = fixes.with_columns(agents.fill_null(agent).alias("agent"))
    given = pl.Series(UTC_OFFSET, [p.utc_offset for p in positions], pl.Float32)
    if given.is_not_null().any():
        fixes = fixes.with_columns(given.fill_null(np.nan))
    if UTC_OFFSET in fixes.columns and not (fixes[UTC_OFFSET].fill_nan(0.0) != 0).any():
        fixes = fixes.drop(UTC_OFFSET)  # programs write +00:00 for any place
    collected = FixCollector()
    collected.add(fixes.filter(good))
    return Trajectories(*collected.grouped())


def positions_of_tracks(file: Path, tracks: Sequence[Sequence[Point]]) -> Iterator[Position]:
    """Yields the positions of tracks; each track is a trajectory."""
    for name, track in zip(track_names(file, len(tracks)), tracks, strict=True):
        for point in track:
            yield Position(point.line, None, name, point.time, point.lat, point.lon)


def track_names(file: Path, n: int) -> list[str]:
    """Returns names for a file's tracks: the name of the file, numbered if there are several."""
    name = harmless(file.stem)
    return [name] if n == 1 else [f"{name}-{i + 1}" for i in range(n)]


def _series(values: Sequence[object]) -> pl.Series:
    """Returns numbers if all values are numbers, else text."""
    if all(type(value) in (int, float) or value is None for value in values):
        return pl.Series([None if value is None else number(value) for value in values], dtype=pl.Float64)
    return pl.Series([None if value is None else printable(str(value)) for value in values], dtype=pl.String)
