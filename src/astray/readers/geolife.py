"""GeoLife GPS Trajectories: a folder per person, a ``.plt`` file per trajectory.

A ``.plt`` file has six header lines and then ``lat,lon,0,altitude,days,date,time`` (GMT) to the line. The
files are small and many, so some megabytes of them at a time are put one after the other and parsed at
once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import DataError, Place
from astray.core.fixes import Fault, place_faults
from astray.core.grouping import sort_by_time
from astray.core.times import POLARS_ERRORS
from astray.core.trajectories import Trajectories
from astray.readers import cache as caching
from astray.readers.refusals import FilePath, Intake, Progress, Report, refusing

HEADER_LINES = 6
FIRST_YEAR = 1_167_609_600  # 2007-01-01: GeoLife was collected from April 2007 on
WORKERS = 2
GROUP_BYTES = 16 << 20
_VERSION = 2  # of what is kept in a cache; raise it when the parsed values would differ

_COLUMNS = ("lat", "lon", "zero", "altitude", "days", "date", "clock", "more")
_SCHEMA = {name: pl.Float64 if name in ("lat", "lon") else pl.String for name in _COLUMNS}
_TITLE = b"geolife trajectory"


@dataclass(frozen=True)
class _Plt:
    """One file of the folder."""

    path: Path
    agent: str
    size: int
    modified: int


@dataclass(frozen=True)
class _Parsed:
    """The rows of some files, one after the other, and what is wrong with some of them."""

    files: Sequence[_Plt]
    broken: dict[int, DataError]
    lengths: NDArray[np.int64]
    time: NDArray[np.float64]
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    faults: Sequence[Fault]


def read_geolife(
    path: FilePath,
    *,
    users: str | int | Iterable[str | int] | None = None,
    cache: FilePath | None = None,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
) -> Trajectories:
    """Read a GeoLife folder (its ``Data``, one person's folder, or one ``.plt`` file).

    Agents are the persons' folders, trajectories the files' names. Altitudes are not kept.

    Parameters
    ----------
    users
        Only these persons: ``["000", "128"]``, ``[0, 128]`` or ``"128"``.
    cache
        A Parquet file to keep the result in. It is used as long as names, sizes and times of the source files
        are what they were, and written anew otherwise; what was left out is kept with it and said again.
    """
    with Intake(skip_bad, report) as intake:
        chosen = [users] if isinstance(users, (str, int)) else users
        files = _listed(Path(path), None if chosen is None else [_user(user) for user in chosen])
        if cache is None:
            return _parsed(files, intake, progress)
        target = Path(cache)
        caching.refuse_unusable(target)
        key = _key(files, skip_bad)
        trips = caching.load(target, key, intake)
        if trips is None:
            # What this reading says is kept with it, apart from what the report may hold of earlier ones.
            fresh = Intake(skip_bad, Report())
            trips = _parsed(files, fresh, progress)
            caching.save(target, key, trips, fresh)
            intake.report.update(fresh.report.to_dict())
        elif progress is not None:
            total = sum(file.size for file in files)
            progress(total, total)
        return trips


def is_geolife(path: Path) -> bool:
    """Whether a folder or file looks like GeoLife."""
    if path.is_file():
        return path.suffix.lower() == ".plt"
    return any(True for _ in _folders(path))


def _user(name: str | int) -> str:
    return f"{name:03d}" if isinstance(name, int) else str(name)


def _folders(path: Path) -> Iterator[tuple[str, Path]]:
    """The persons' names and the folders with their ``.plt`` files."""
    if path.name == "Trajectory" or any(path.glob("*.plt")):
        yield (path.resolve().parent.name if path.name == "Trajectory" else path.resolve().name), path
    elif (path / "Trajectory").is_dir():
        yield path.resolve().name, path / "Trajectory"
    else:
        root = path / "Data" if (path / "Data").is_dir() else path
        for person in sorted(root.iterdir()):
            if (person / "Trajectory").is_dir():
                yield person.name, person / "Trajectory"


def _listed(path: Path, users: list[str] | None) -> list[_Plt]:
    with refusing(path, "the folder could not be listed", "check it"):
        if not path.is_dir():
            parent = path.resolve().parent
            agent = parent.parent.name if parent.name == "Trajectory" else parent.name
            status = path.stat()
            return [_Plt(path, agent, status.st_size, status.st_mtime_ns)]
        folders = dict(_folders(path))
        if users is not None:
            unknown = [user for user in users if user not in folders]
            if unknown:
                known = ", ".join(list(folders)[:5]) or "nobody"
                remedy = f"there are {len(folders)}: {known}, ..."
                raise DataError(f"no person {unknown[0]!r}", remedy=remedy)
            folders = {user: folders[user] for user in dict.fromkeys(users)}
        files = []
        for agent, folder in folders.items():
            with os.scandir(folder) as entries:
                found = sorted((entry.name, entry.stat()) for entry in entries if entry.name.lower().endswith(".plt"))
            files += [_Plt(folder / name, agent, stat.st_size, stat.st_mtime_ns) for name, stat in found]
    if not files:
        remedy = "give the folder Data with a folder a person in it"
        raise DataError("no .plt files were found", place=Place(str(path)), remedy=remedy)
    return files


def _key(files: Sequence[_Plt], skip_bad: bool) -> str:
    """A fingerprint of what would be parsed and how."""
    content = [[file.agent, file.path.name, file.size, file.modified] for file in files]
    return hashlib.sha256(json.dumps([_VERSION, skip_bad, content]).encode()).hexdigest()


def _parsed(files: Sequence[_Plt], intake: Intake, progress: Progress | None) -> Trajectories:
    groups = _groups(files)
    total, done = sum(file.size for file in files), 0
    columns: dict[str, list[NDArray[np.float64]]] = {"time": [], "lat": [], "lon": []}
    kept: list[_Plt] = []
    lengths: list[NDArray[np.int64]] = []
    for parsed in _in_parallel(groups):
        good, counts = _sifted(parsed, intake)
        for name, values in (("time", parsed.time), ("lat", parsed.lat), ("lon", parsed.lon)):
            columns[name].append(values if good is None else values[good])
        kept += [file for file, count in zip(parsed.files, counts.tolist(), strict=True) if count]
        lengths.append(counts[counts > 0])
        done += sum(file.size for file in parsed.files)
        if progress is not None:
            progress(done, total)
    if not kept:
        raise intake.nothing(files[0].path, "fix")
    offsets = np.r_[0, np.cumsum(np.concatenate(lengths))]
    # One column at a time, each freed as it is joined: the peak is the result and a third.
    arrays = {name: np.concatenate(columns.pop(name)) for name in ("time", "lat", "lon")}
    sort_by_time(arrays, offsets)
    for i in np.flatnonzero(arrays["time"][offsets[:-1]] < FIRST_YEAR).tolist():
        intake.report.assume(
            kept[i].path,
            "dated before GeoLife began, so the logger's clock had been reset; the trajectory is kept, its hours "
            "mean nothing",
        )
    return Trajectories(arrays, offsets, [file.agent for file in kept], [file.path.stem for file in kept])


def _groups(files: Sequence[_Plt]) -> list[list[_Plt]]:
    groups: list[list[_Plt]] = [[]]
    size = 0
    for file in files:
        if size > GROUP_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return groups


def _in_parallel(groups: list[list[_Plt]]) -> Iterator[_Parsed]:
    """Parse groups on a few threads, in order, never far ahead of the taker, and stop when that stops."""
    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="geolife")
    waiting: deque[Future[_Parsed]] = deque()
    try:
        for group in groups:
            waiting.append(pool.submit(_parse, group))
            if len(waiting) > 2 * WORKERS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _parse(files: Sequence[_Plt]) -> _Parsed:
    """Read and parse some files at once."""
    broken: dict[int, DataError] = {}
    bodies: list[bytes] = []
    lengths = np.zeros(len(files), np.int64)
    for i, file in enumerate(files):
        try:
            bodies.append(_body(file.path))
        except DataError as error:
            broken[i] = error
        else:
            lengths[i] = bodies[-1].count(b"\n")
    frame = _table(bodies)
    if frame is None or frame.height != lengths.sum():
        # Some file is no text, or its rows are not its lines; one file at a time finds it.
        if len(files) > 1:
            return _joined(files, [_parse([file]) for file in files])
        broken[0] = DataError("the file is not text", place=Place(str(files[0].path)), remedy="fetch it again")
        frame, lengths = pl.DataFrame(schema=_SCHEMA), np.zeros(1, np.int64)
    # A number cut short is still a number, so the length of the text decides whether date and time are whole.
    whole = (frame["date"].str.len_bytes() == 10) & (frame["clock"].str.len_bytes() == 8) & frame["more"].is_null()
    stamps = (frame["date"] + " " + frame["clock"]).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="ms")
    time = stamps.dt.epoch("s").cast(pl.Float64).fill_null(np.nan).to_numpy()
    lat, lon = (frame[name].fill_null(np.nan).to_numpy() for name in ("lat", "lon"))
    cut = ~whole.fill_null(False).to_numpy() | np.isnan(time)
    faults = [Fault(cut, "not seven fields ending in a date and a time", ""), *place_faults(lat, lon)]
    faults = [fault._replace(remedy="correct or delete the line") for fault in faults]
    return _Parsed(files, broken, lengths, time, lat, lon, faults)


def _table(bodies: Sequence[bytes]) -> pl.DataFrame | None:
    """All lines as one table, or None if they cannot be parsed together."""
    try:
        return pl.read_csv(
            b"".join([",".join(_COLUMNS).encode() + b"\n", *bodies]),
            schema=_SCHEMA,
            columns=["lat", "lon", "date", "clock", "more"],
            quote_char=None,
            ignore_errors=True,
            truncate_ragged_lines=True,
        )
    except POLARS_ERRORS:
        return None


def _joined(files: Sequence[_Plt], parts: Sequence[_Parsed]) -> _Parsed:
    faults = [
        Fault(np.concatenate([part.faults[j].rows for part in parts]), fault.reason, fault.remedy)
        for j, fault in enumerate(parts[0].faults)
    ]
    return _Parsed(
        files,
        {i: part.broken[0] for i, part in enumerate(parts) if part.broken},
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.time for part in parts]),
        np.concatenate([part.lat for part in parts]),
        np.concatenate([part.lon for part in parts]),
        faults,
    )


def _body(path: Path) -> bytes:
    """The lines after the header, each with its end."""
    with refusing(path, "the file could not be read", "check it"), open(path, "rb") as file:
        content = file.read()
    if not content.strip():
        reason = f"the file is empty ({len(content)} bytes)"
        raise DataError(reason, place=Place(str(path)), remedy="delete it or fetch it again")
    if content[: len(_TITLE) + 3].removeprefix(b"\xef\xbb\xbf")[: len(_TITLE)].lower() != _TITLE:
        remedy = "the first line must be 'Geolife trajectory'"
        raise DataError("no GeoLife header", place=Place(str(path), 1), remedy=remedy)
    end = -1
    for _ in range(HEADER_LINES):
        end = content.find(b"\n", end + 1)
        if end < 0:
            break
    body = content[end + 1 :].rstrip() if end >= 0 else b""
    if not body:
        remedy = "delete the file or fetch it again"
        raise DataError("a header without fixes", place=Place(str(path)), remedy=remedy)
    return body + b"\n"


def _sifted(parsed: _Parsed, intake: Intake) -> tuple[NDArray[np.bool_] | None, NDArray[np.int64]]:
    """Which rows are good (None: all), and how many of each file; the others are refused or left out."""
    for i, error in parsed.broken.items():
        with intake.sparing_the_rest(parsed.files[i].path, of=2):
            raise error
    counts = parsed.lengths.copy()
    bad = np.logical_or.reduce([fault.rows for fault in parsed.faults])
    if not bad.any():
        return None, counts
    good = np.ones(len(parsed.time), dtype=np.bool_)
    starts = np.r_[0, np.cumsum(parsed.lengths)]
    for i in np.unique(np.searchsorted(starts, np.flatnonzero(bad), side="right") - 1).tolist():
        here = slice(starts[i], starts[i + 1])
        faults = [
            Fault(f.rows[here], f.reason, f.remedy, None if f.values is None else f.values[here]) for f in parsed.faults
        ]
        lines = np.arange(parsed.lengths[i]) + HEADER_LINES + 1
        good[here] = intake.sift(parsed.files[i].path, lines, faults)
        counts[i] = good[here].sum()
    return good, counts
