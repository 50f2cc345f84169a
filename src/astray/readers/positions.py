"""Positions of a file, each with what it says of itself, to trajectories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl

from astray.core.fixes import label_faults, number, numbers, place_faults, refuse_swapped, wrapped
from astray.core.text import harmless, printable
from astray.core.times import UTC_OFFSET, Clock
from astray.core.trajectories import Trajectories
from astray.readers.assembling import Fixes, in_trips
from astray.readers.markup import Point
from astray.readers.refusals import FilePath, Intake, Progress, Report, refusing, share_of


@dataclass(frozen=True)
class FixOptions:
    """How files that are no tables are read.

    Parameters
    ----------
    agent
        Whose trajectories these are, where the file does not say; by default the name of the file's folder.
    time_unit, time_zone, date_order
        See :class:`astray.core.times.Clock`.
    zero_ok
        Whether a fix at exactly (0, 0) is meant.
    """

    agent: str | None = None
    time_unit: str | None = None
    time_zone: str | None = None
    date_order: str | None = None
    zero_ok: bool = False


class Position(NamedTuple):
    """One position: where it stands in the file, whose it is, and its degrees and time as they stand there.

    ``agent`` is None where the file does not say; ``trajectory`` is empty for raw fixes, which are cut into trips.
    """

    row: int
    agent: str | None
    trajectory: str
    time: object
    lat: object
    lon: object
    ahead: float | None = None  # seconds that clocks were ahead of UTC, where the file says so beside the time


PositionsOf: TypeAlias = Callable[[Path, Intake, Progress | None], Iterable[Position]]


def read_positions(
    positions_of: PositionsOf,
    unit: str,
    files: Sequence[FilePath],
    *,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    trips: str | None = None,
    options: FixOptions | None = None,
    owner: Callable[[Path], str] = lambda file: file.resolve().parent.name,
    in_utc: bool = False,
) -> Trajectories:
    """Read files of a format, given how its positions are found.

    ``unit`` is what their rows are called, ``owner`` whose the fixes of a file are that do not say it, and ``in_utc``
    whether the format itself says what its times mean.
    """
    options = options or FixOptions()
    paths = [Path(file) for file in files]
    found: list[Trajectories] = []
    with Intake(skip_bad, report) as intake:
        for i, file in enumerate(paths):
            with intake.sparing_the_rest(file, of=len(paths)):
                positions = list(positions_of(file, intake, share_of(progress, i, len(paths))))
                if not positions:
                    raise intake.nothing(file, "position")
                found.append(_trajectories(file, positions, options, intake, unit, owner))
            if progress is not None:
                progress(i + 1, len(paths))
        if not found:
            raise intake.nothing(paths[0], "position")
        if in_utc:
            intake.report.times = "in UTC, as the format has them"
        return in_trips(Trajectories.concat(found)._grouped(), trips, intake)


def _trajectories(
    file: Path,
    positions: Sequence[Position],
    options: FixOptions,
    intake: Intake,
    unit: str,
    owner: Callable[[Path], str],
) -> Trajectories:
    """Trajectories of the positions that can be used; the others are refused or left out."""
    clock = Clock(options.time_unit, options.time_zone, date_order=options.date_order)
    lats, lons = _series([p.lat for p in positions]), _series([p.lon for p in positions])
    with refusing(file, "the positions could not be read", "check them"):
        lat, lon = numbers("lat", lats), numbers("lon", lons)
        refuse_swapped(lat, lon)
        moments = _series([p.time for p in positions])
        time, faults = clock.seconds(moments)
        ahead = clock.offsets(moments, time)
    said = np.array([p.ahead for p in positions], np.float64)  # not a number for None
    if np.isfinite(said).any():
        ahead = said
    rows = np.array([p.row for p in positions], dtype=np.int64)
    agents = pl.Series([p.agent for p in positions], dtype=pl.String)
    trips = pl.Series([p.trajectory for p in positions], dtype=pl.String)
    labels = [*label_faults("agent", agents.fill_null("?")), *label_faults("trajectory", trips)]
    faults = [*labels, *place_faults(lat, lon, (lats, lons), zero_ok=options.zero_ok), *faults]
    good = intake.sift(file, rows, faults, unit=unit)
    intake.take_times(file, clock)
    if not good.any():
        raise intake.nothing(file, "position")
    if agents.null_count():
        agent = options.agent
        if agent is None:
            agent = harmless(owner(file))
            intake.report.named_after[agent] = "folder"
        agents = agents.fill_null(agent)
    further = {} if ahead is None or not np.nan_to_num(ahead).any() else {UTC_OFFSET: ahead.astype(np.float32)}
    fixes = pl.DataFrame(
        {"agent": agents, "trajectory": trips, "time": time, "lat": lat, "lon": wrapped(lon), **further}
    )
    collected = Fixes()
    collected.add(fixes.filter(good))
    return Trajectories(*collected.grouped())


def of_tracks(file: Path, tracks: Sequence[Sequence[Point]]) -> Iterator[Position]:
    """The positions of tracks, each of which is a trajectory."""
    for name, track in zip(track_names(file, len(tracks)), tracks, strict=True):
        for point in track:
            yield Position(point.line, None, name, point.time, point.lat, point.lon)


def track_names(file: Path, n: int) -> list[str]:
    """The names of a file's tracks: as the file, with a number behind if there are several."""
    name = harmless(file.stem)
    return [name] if n == 1 else [f"{name}-{i + 1}" for i in range(n)]


def _series(values: Sequence[object]) -> pl.Series:
    """Values as numbers if all are, else as text."""
    if all(type(value) in (int, float) or value is None for value in values):
        return pl.Series([None if value is None else number(value) for value in values], dtype=pl.Float64)
    return pl.Series([None if value is None else printable(str(value)) for value in values], dtype=pl.String)
