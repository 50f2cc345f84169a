"""GeoLife GPS Trajectories: a folder per person, a ``.plt`` file per trajectory.

A ``.plt`` file has six header lines, then lines of ``lat,lon,0,altitude,days,date,time`` (GMT). The files are many and
small, so the reader joins some megabytes of them and parses these at once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import DataError, Place
from astray.core.fixes import Fault, place_faults
from astray.core.grouping import FIX_COLUMNS, sort_by_time
from astray.core.times import POLARS_ERRORS
from astray.core.trajectories import Trajectories
from astray.readers.geolife_cache import read_cached
from astray.readers.read_report import FilePath, Intake, Progress, Report, raising_data_errors
from astray.readers.reader import InputFile, Reader, Request
from astray.readers.trip_building import build_trips

HEADER_LINES = 6
FIRST_YEAR = 1_167_609_600  # 2007-01-01: GeoLife was collected from April 2007 on
WORKERS = 2
GROUP_BYTES = 16 << 20
_VERSION = 2  # of the cache; raise it if the parsed values change

_COLUMNS = ("lat", "lon", "zero", "altitude", "days", "date", "clock", "more")
_SCHEMA = {name: pl.Float64 if name in ("lat", "lon") else pl.String for name in _COLUMNS}
_TITLE = b"geolife trajectory"


class _Plt(NamedTuple):
    """One file of the folder."""

    path: Path
    agent: str
    size: int
    modified: int


class _Parsed(NamedTuple):
    """The rows of some files, one after the other, or the one file that has faults or an error."""

    files: Sequence[_Plt]
    lengths: NDArray[np.int64]
    columns: dict[str, NDArray[np.float64]]
    faults: Sequence[Fault]
    error: DataError | None = None


@dataclass(frozen=True)
class GeolifeOptions:
    """The options for GeoLife; see :func:`read_geolife`."""

    users: str | int | Iterable[str | int] | None = None
    cache: FilePath | None = None


def read_geolife(
    path: FilePath,
    *,
    users: str | int | Iterable[str | int] | None = None,
    cache: FilePath | None = None,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
) -> Trajectories:
    """Reads a GeoLife folder (its ``Data``, one person's folder, or one ``.plt`` file).

    The names of the persons' folders are the agents, the names of the files the trajectories. Altitudes are dropped.

    Parameters
    ----------
    users
        Only these persons: ``["000", "128"]``, ``[0, 128]`` or ``"128"``.
    cache
        A Parquet file that stores the result. It is used as long as the names, sizes and times of the source files do
        not change, and written again otherwise; it includes the report of what was skipped.
    """
    with Intake(skip_bad, report) as intake:
        return _read_folder(Path(path), Request(GeolifeOptions(users, cache), intake, progress))


def _read_folder(path: Path, request: Request) -> Trajectories:
    options, intake, progress = request.options, request.intake, request.progress
    users = [options.users] if isinstance(options.users, (str, int)) else options.users
    names = None if users is None else [f"{user:03d}" if isinstance(user, int) else str(user) for user in users]
    files = _list_files(path, names)
    if options.cache is None:
        return _parse_files(files, intake, progress)
    key = _key(files, intake.skip_bad)
    trips = read_cached(Path(options.cache), key, intake, lambda fresh: _parse_files(files, fresh, progress))
    if progress is not None:
        total = sum(file.size for file in files)
        progress(total, total)
    return trips


def _read(files: Sequence[InputFile], request: Request) -> Trajectories:
    people = Trajectories.concat(_read_folder(file.path, request) for file in files)
    return build_trips(people._grouped(), request.trips, request.intake)


def is_geolife(path: Path) -> bool:
    """Returns True for a folder with GeoLife's layout, and for a ``.plt`` file."""
    if path.is_file():
        return path.suffix.lower() == ".plt"
    return any(True for _ in _folders(path))


def _folders(path: Path) -> Iterator[tuple[str, Path]]:
    """Yields the persons' names and the folders with their ``.plt`` files."""
    if path.name == "Trajectory" or any(path.glob("*.plt")):
        yield (path.resolve().parent.name if path.name == "Trajectory" else path.resolve().name), path
    elif (path / "Trajectory").is_dir():
        yield path.resolve().name, path / "Trajectory"
    else:
        root = path / "Data" if (path / "Data").is_dir() else path
        for person in sorted(root.iterdir()):
            if (person / "Trajectory").is_dir():
                yield person.name, person / "Trajectory"


def _list_files(path: Path, users: list[str] | None) -> list[_Plt]:
    with raising_data_errors(path, "the folder could not be listed", "check it"):
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
    """Returns a key for the cache that changes with the files and with the way they are parsed."""
    content = [[file.agent, file.path.name, file.size, file.modified] for file in files]
    return hashlib.sha256(json.dumps([_VERSION, skip_bad, content]).encode()).hexdigest()


def _parse_files(files: Sequence[_Plt], intake: Intake, progress: Progress | None) -> Trajectories:
    total, done = sum(file.size for file in files), 0
    columns: dict[str, list[NDArray[np.float64]]] = {name: [] for name in FIX_COLUMNS}
    kept: list[_Plt] = []
    lengths: list[NDArray[np.int64]] = []
    pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="geolife")
    try:
        for group in pool.map(_parse, _groups(files)):
            for parsed in group:
                counts, found = _good_rows(parsed, intake)
                for name, values in found.items():
                    columns[name].append(values)
                kept += [file for file, count in zip(parsed.files, counts.tolist(), strict=True) if count]
                lengths.append(counts[counts > 0])
                done += sum(file.size for file in parsed.files)
            if progress is not None:
                progress(done, total)
    finally:
        pool.shutdown(cancel_futures=True)
    if not kept:
        raise intake.nothing_usable(files[0].path, "fix")
    offsets = np.r_[0, np.cumsum(np.concatenate(lengths))]
    # One column at a time, each freed as it is joined: the peak is 4/3 of the result.
    arrays = {name: np.concatenate(columns.pop(name)) for name in FIX_COLUMNS}
    sort_by_time(arrays, offsets)
    for i in np.flatnonzero(arrays["time"][offsets[:-1]] < FIRST_YEAR).tolist():
        intake.report.assume(
            kept[i].path,
            "dated before GeoLife began, so the logger's clock had been reset; the trajectory is kept, but its times "
            "are wrong",
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


def _parse(files: Sequence[_Plt]) -> list[_Parsed]:
    """Parses files together or, if one of them has an error or a fault, each by itself."""
    try:
        parsed = _parse_together(files)
    except DataError as error:
        parsed = _Parsed(files, np.zeros(len(files), np.int64), {}, [], error)
    if len(files) > 1 and (parsed.error is not None or any(fault.rows.any() for fault in parsed.faults)):
        return [part for file in files for part in _parse([file])]
    return [parsed]


def _parse_together(files: Sequence[_Plt]) -> _Parsed:
    bodies = [_body(file.path) for file in files]
    lengths = np.array([body.count(b"\n") for body in bodies], np.int64)
    not_text = DataError("the file is not text", place=Place(str(files[0].path)), remedy="fetch it again")
    try:
        frame = pl.read_csv(
            b"".join([",".join(_COLUMNS).encode() + b"\n", *bodies]),
            schema=_SCHEMA,
            columns=["lat", "lon", "date", "clock", "more"],
            quote_char=None,
            ignore_errors=True,
            truncate_ragged_lines=True,
        )
    except POLARS_ERRORS as error:
        raise not_text from error
    if frame.height != lengths.sum():
        raise not_text
    # A truncated number is still a number, so the length of the text shows whether date and time are whole.
    whole = (frame["date"].str.len_bytes() == 10) & (frame["clock"].str.len_bytes() == 8) & frame["more"].is_null()
    stamps = (frame["date"] + " " + frame["clock"]).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="ms")
    time = stamps.dt.epoch("s").cast(pl.Float64).fill_null(np.nan).to_numpy()
    lat, lon = (frame[name].fill_null(np.nan).to_numpy() for name in ("lat", "lon"))
    cut = ~whole.fill_null(False).to_numpy() | np.isnan(time)
    faults = [Fault(cut, "not seven fields ending in a date and a time", ""), *place_faults(lat, lon)]
    faults = [fault._replace(remedy="correct or delete the line") for fault in faults]
    return _Parsed(files, lengths, {"time": time, "lat": lat, "lon": lon}, faults)


def _body(path: Path) -> bytes:
    """Returns the lines after the header, each with its line end."""
    with raising_data_errors(path, "the file could not be read", "check it"), open(path, "rb") as file:
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


def _good_rows(parsed: _Parsed, intake: Intake) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]:
    """Returns the number of good rows in each file, and these rows."""
    first = parsed.files[0].path
    if parsed.error is not None:
        with intake.skipping_bad_file(first, n_files=2):
            raise parsed.error
    if len(parsed.files) > 1:
        return parsed.lengths, parsed.columns
    good = intake.good_rows(first, np.arange(parsed.lengths[0]) + HEADER_LINES + 1, parsed.faults)
    return np.array([good.sum()]), {name: values[good] for name, values in parsed.columns.items()}


READER = Reader(
    recognises=lambda sample: sample.name.suffix.lower() == ".plt",
    read=_read,
    options=GeolifeOptions,
    claims=is_geolife,
)
