"""Porto taxi trips (ECML/PKDD 2015): one trip per row; its route is a JSON list of [lon, lat] every 15 seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.errors import DataError, Place
from astray.core.fixes import Fault, place_faults, plain, without_null_words
from astray.core.times import POLARS_ERRORS
from astray.core.trajectories import Trajectories
from astray.readers.column_roles import is_porto
from astray.readers.read_report import FilePath, Intake, Progress, Report, share_of
from astray.readers.reader import InputFile, Reader, Request
from astray.readers.table_blocks import Block
from astray.readers.trip_building import build_trips

SECONDS_BETWEEN_FIXES = 15.0
CONTEXT = ("CALL_TYPE", "ORIGIN_CALL", "ORIGIN_STAND", "DAY_TYPE")
NEEDED = ("TRIP_ID", "TAXI_ID", "TIMESTAMP", "POLYLINE")
BATCH = 20_000  # trips read at a time
FIXES_PER_TRIP = 50  # about


@dataclass(frozen=True)
class PortoOptions:
    """The options for Porto trips.

    Parameters
    ----------
    keep_missing
        Keep trips marked ``MISSING_DATA``. Some of their fixes are missing, so later times are too early; by default
        the reader skips and counts such trips.
    delimiter, encoding
        For text files; by default found in the file.
    """

    keep_missing: bool = False
    delimiter: str | None = None
    encoding: str | None = None


def read_porto(
    path: FilePath,
    *more: FilePath,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    options: PortoOptions | None = None,
) -> Trajectories:
    """Reads whole Porto files, CSV or Parquet. See :func:`iter_porto`."""
    with Intake(skip_bad, report) as intake:
        files = [InputFile(Path(p)) for p in (path, *more)]
        return _read(files, Request(options or PortoOptions(), intake, progress))


def iter_porto(
    path: FilePath,
    batch: int = 20_000,
    *,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    options: PortoOptions | None = None,
) -> Iterator[Trajectories]:
    """Reads a Porto file, CSV or Parquet, at most ``batch`` trips at a time.

    The agent is TAXI_ID, the trajectory TRIP_ID; CALL_TYPE, ORIGIN_CALL, ORIGIN_STAND and DAY_TYPE are context, empty
    text where they are null. The reader skips and counts trips without a fix (``[]``) and trips marked MISSING_DATA; a
    column that is all null skips none. A TRIP_ID that a spreadsheet turned into 1.37E+018 is restored: it is TIMESTAMP,
    6 and TAXI_ID written one after the other.
    """
    with Intake(skip_bad, report) as intake:
        yield from _batches(InputFile(Path(path)), batch, Request(options or PortoOptions(), intake, progress))


def _read(files: Sequence[InputFile], request: Request) -> Trajectories:
    parts: list[Trajectories] = []
    for i, file in enumerate(files):
        with request.intake.skipping_bad_file(file.path, n_files=len(files)):
            share = share_of(request.progress, i, len(files))
            parts += _batches(file, BATCH, request._replace(progress=share))
    if not parts:
        raise request.intake.nothing_usable(files[0].path, "trip")
    return build_trips(Trajectories.concat(parts)._grouped(), request.trips, request.intake)


def _stream(file: InputFile, batch_rows: int, request: Request) -> Iterator[Trajectories]:
    for trips in _batches(file, max(1, batch_rows // FIXES_PER_TRIP), request):
        yield build_trips(trips._grouped(), request.trips, request.intake)


def _batches(file: InputFile, batch: int, request: Request) -> Iterator[Trajectories]:
    if batch < 1:
        raise DataError(f"batch={batch} cannot be used", remedy="give at least 1")
    path, options, intake, n_trips = file.path, request.options, request.intake, 0
    table = file.open(options.delimiter, options.encoding)
    wanted = _positions(path, table.names)
    for block in table.blocks(wanted, intake, request.progress, batch):
        trips = _trips(path, block, options, intake)
        if trips is not None:
            n_trips += len(trips)
            yield trips
    if not n_trips:
        raise intake.nothing_usable(path, "trip")


def _positions(file: Path, names: Sequence[str]) -> dict[str, int]:
    have = {plain(name).upper(): i for i, name in reversed(list(enumerate(names)))}
    missing = [name for name in NEEDED if name not in have]
    if missing:
        remedy = f"Porto's columns are {', '.join(NEEDED)}, ..."
        raise DataError(f"the column {missing[0]} is missing", place=Place(str(file), 1), remedy=remedy)
    return {name: have[name] for name in (*NEEDED, "MISSING_DATA", *CONTEXT) if name in have}


def _trips(file: Path, block: Block, options: PortoOptions, intake: Intake) -> Trajectories | None:
    """Returns the good trips of a block of rows, or None if there are none."""
    frame, rows = block
    text = {name: without_null_words(frame[name]) for name in frame.columns if name != "POLYLINE"}
    route = frame["POLYLINE"].cast(pl.String).str.strip_chars()
    if "MISSING_DATA" in text and not options.keep_missing:
        incomplete = text["MISSING_DATA"].str.to_lowercase().is_in(["true", "1"]).fill_null(False)
    else:
        incomplete = pl.repeat(False, frame.height, dtype=pl.Boolean, eager=True)
    empty = route.is_in(["[]", "[[]]"]).fill_null(False)
    for mask, reason in (
        (incomplete, "MISSING_DATA: fixes are missing in this trip"),
        (empty & ~incomplete, "a trip without fixes"),
    ):
        for i in mask.arg_true().to_list():
            intake.skip(file, int(rows[i]), reason)
    left = ~(incomplete | empty)
    if not left.all():
        text = {name: values.filter(left) for name, values in text.items()}
        route, rows = route.filter(left), rows[left.to_numpy()]

    stamp = text["TIMESTAMP"].cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    trip = _restored_ids(file, text, intake)
    faults = [
        Fault(
            trip.is_null().to_numpy(),
            "TRIP_ID is missing or mangled beyond repair",
            "export it as text",
            text["TRIP_ID"],
        ),
        Fault(text["TAXI_ID"].is_null().to_numpy(), "TAXI_ID is missing", "fill it in"),
        Fault(
            ~((stamp > 1e8) & (stamp < 7.3e9)),
            "TIMESTAMP is not a number of seconds since 1970",
            "correct it",
            text["TIMESTAMP"],
        ),
    ]
    lon, lat, lengths, unreadable = parse_polylines(route)
    remedy = "restore the POLYLINE from the original file (spreadsheets cut long cells)"
    faults.append(Fault(unreadable, "POLYLINE is not a JSON list of [lon, lat]", remedy, route))
    faults += [_trips_with(fault, lengths) for fault in place_faults(lat, lon)]
    good = intake.good_rows(file, rows, faults)
    if not good.any():
        return None
    if not good.all():
        fixes = np.repeat(good, lengths)
        lon, lat, lengths, stamp = lon[fixes], lat[fixes], lengths[good], stamp[good]
        trip, text = trip.filter(good), {name: values.filter(good) for name, values in text.items()}
    offsets = np.r_[0, np.cumsum(lengths)]
    step = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    time = np.repeat(stamp, lengths) + SECONDS_BETWEEN_FIXES * step
    context = {name: text[name].fill_null("").to_numpy().astype(np.str_) for name in CONTEXT if name in text}
    return Trajectories(
        {"time": time, "lat": lat, "lon": lon}, offsets, text["TAXI_ID"].to_numpy(), trip.to_numpy(), context
    )


def _trips_with(fault: Fault, lengths: NDArray[np.int64]) -> Fault:
    """Converts a fault of fixes to a fault of the trips that contain such a fix."""
    trip = np.repeat(np.arange(len(lengths)), lengths)
    bad = np.zeros(len(lengths), dtype=np.bool_)
    bad[trip[fault.rows]] = True
    return Fault(bad, f"in POLYLINE: {fault.reason}", "correct the trip")


def _restored_ids(file: Path, text: dict[str, pl.Series], intake: Intake) -> pl.Series:
    """Returns the TRIP_IDs; those that a spreadsheet wrote as powers of ten are rebuilt from TIMESTAMP and TAXI_ID."""
    trip = text["TRIP_ID"]
    mangled = trip.str.contains(r"^[0-9][.,]?[0-9]*[eE]\+?[0-9]+$").fill_null(False)
    if not mangled.any():
        return trip
    whole = text["TIMESTAMP"].str.contains(r"^[0-9]{10}$") & text["TAXI_ID"].str.contains(r"^[0-9]{8}$")
    made = text["TIMESTAMP"] + "6" + text["TAXI_ID"]
    # The digits that are left must agree; otherwise the columns do not belong together.
    power = trip.str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)
    agree = whole & ((power / made.cast(pl.Float64, strict=False) - 1).abs() < 0.05)
    intake.report.note(f"{file}: TRIP_IDs written as powers of ten were restored from TIMESTAMP and TAXI_ID")
    return (
        pl.DataFrame({"trip": trip, "made": made, "mangled": mangled, "agree": agree.fill_null(False)})
        .select(
            pl.when(~pl.col("mangled")).then("trip").when(pl.col("agree")).then("made").otherwise(None).alias("trip")
        )
        .to_series()
    )


def parse_polylines(
    route: pl.Series,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the longitudes and latitudes of all routes, the number of fixes in each, and a mask of unreadable ones.

    All routes are joined into one two-column text, a fix per line, which polars parses at once. If a route is not
    written as expected, each is parsed by itself.

    >>> routes = pl.Series(["[[-8.6,41.1],[-8.7,41.2]]", "[[-8.5, 41.0]", None])
    >>> lon, lat, lengths, bad = parse_polylines(routes)
    >>> lon.tolist(), lengths.tolist(), bad.tolist()
    ([-8.6, -8.7], [2, 0, 0], [False, True, True])
    """
    shaped = (route.str.starts_with("[[") & route.str.ends_with("]]")).fill_null(False)
    compact = route.str.replace_all(" ", "", literal=True) if route.str.contains(" ", literal=True).any() else route
    sound = _parse_compact(compact) if shaped.all() and len(route) else None
    return _parse_singly(route) if sound is None else sound


def _parse_compact(
    route: pl.Series,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]] | None:
    lengths = route.str.count_matches("],[", literal=True).to_numpy().astype(np.int64) + 1
    table = route.str.slice(2, route.str.len_chars() - 4).str.replace_all("],[", "\n", literal=True).str.join("\n")
    try:
        frame = pl.read_csv(
            b"lon,lat,more\n" + str(table[0]).encode() + b"\n",
            schema={"lon": pl.Float64, "lat": pl.Float64, "more": pl.String},
            quote_char=None,
            ignore_errors=True,
            truncate_ragged_lines=True,
        )
    except POLARS_ERRORS:
        return None
    if frame.height != lengths.sum() or frame["more"].null_count() != frame.height:
        return None
    if frame["lon"].null_count() or frame["lat"].null_count():
        return None
    return frame["lon"].to_numpy(), frame["lat"].to_numpy(), lengths, np.zeros(len(route), dtype=np.bool_)


def _parse_singly(
    route: pl.Series,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
    fixes = [_fixes_of(text) for text in route.to_list()]
    lengths = np.array([0 if f is None else len(f) for f in fixes], dtype=np.int64)
    flat = np.concatenate([np.zeros((0, 2)), *(f for f in fixes if f is not None)])
    return flat[:, 0], flat[:, 1], lengths, np.array([f is None for f in fixes], dtype=np.bool_)


def _fixes_of(text: str | None) -> NDArray[np.float64] | None:
    """Returns one route, or None if it is not a list of pairs of numbers."""
    try:
        pairs = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, list) or not pairs:
        return None
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(v) in (int, float) for v in pair)):
            return None
    try:
        return np.array(pairs, dtype=np.float64)
    except OverflowError:
        return None


READER = Reader(
    recognises=lambda sample: sample.table is not None and is_porto(sample.table.names),
    read=_read,
    stream=_stream,
    options=PortoOptions,
    is_table=True,
)
