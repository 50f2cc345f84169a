"""Readers: files to trajectories.

:func:`read` recognises the format and reads the whole; :func:`iter_read` streams what does not fit into
memory. What cannot be used is refused with its file, row and remedy, or, with ``skip_bad=True``, left out,
counted and listed in a :class:`Report`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from astray.core.errors import Call, DataError, Place
from astray.core.settings import FORMATS
from astray.core.trajectories import Trajectories
from astray.readers import garmin_fit, geojson, gpx, jsonlines, kml, nmea, takeout, tcx
from astray.readers.assembling import in_trips, look_over
from astray.readers.frames import as_table
from astray.readers.geolife import read_geolife
from astray.readers.porto import PortoOptions, iter_porto, read_porto
from astray.readers.positions import FixOptions, read_positions
from astray.readers.recognise import by_format, format_of, has_positions, recognise, recognised_formats
from astray.readers.refusals import Assumption, Intake, Progress, ReadWarning, Report, Skipped, share_of
from astray.readers.sources import Asked, Opened, opened, shown
from astray.readers.table import TableOptions, iter_table, read_frame, read_table

__all__ = [
    "FORMATS",
    "Assumption",
    "FixOptions",
    "PortoOptions",
    "ReadWarning",
    "Report",
    "Skipped",
    "TableOptions",
    "iter_porto",
    "iter_read",
    "iter_table",
    "read",
    "read_geolife",
    "read_porto",
    "read_table",
    "recognise",
    "recognised_formats",
]

_POSITIONS = {
    "gpx": partial(read_positions, gpx.positions, "line"),
    "kml": partial(read_positions, kml.positions, "line"),
    "tcx": partial(read_positions, tcx.positions, "line"),
    "fit": partial(read_positions, garmin_fit.positions, "record", in_utc=True),
    "nmea": partial(read_positions, nmea.positions, "line", in_utc=True),
    "geojson": partial(read_positions, geojson.positions, "feature"),
    "jsonlines": partial(read_positions, jsonlines.positions, "line"),
    "takeout": partial(read_positions, takeout.positions, "entry", owner=takeout.owner, in_utc=True),
}
"""How files are read that are no tables."""


def read(
    path: Asked | Any,
    format: str | None = None,
    *,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    trips: str | None = None,
    **options: Any,
) -> Trajectories:
    """Read trajectories from files of any known format.

    Parameters
    ----------
    path
        A file, a folder, a pattern such as ``tracks/*.gpx``, or a list of them: tables (CSV, Parquet, GeoParquet,
        Feather, also of Movebank, Traccar and MarineCadastre), GPX, KML, TCX, FIT, NMEA 0183, GeoJSON (also of
        Overland), JSON lines (also of OwnTracks), Google's location history, GeoLife's folder ``Data``, Porto's
        ``train.csv``. All may be packed (zip, gzip, bzip2, xz, Zstandard). Files of several formats are read each in
        its own. Or a table in memory, of polars, pandas, pyarrow, GeoPandas, MovingPandas or trackintel.
    format
        One of :data:`FORMATS`; recognised by default.
    skip_bad
        Leave out rows and files that cannot be used, instead of refusing the whole.
    report
        An empty :class:`Report` that receives what was left out and supposed. Without one it is said in a
        :class:`ReadWarning`; nothing is dropped in silence.
    progress
        Called as ``progress(done, total)`` now and then (in bytes, rows or files), at the end with
        ``done == total``.
    trips
        ``"as-given"``: as the file names them, and where it names none, all fixes of an agent are one. ``"cut"``: cut
        at gaps and stays, as the live feed does it (see :mod:`astray.core.trips`). By default only those are cut that
        the file does not name; the report says how many trips that made.
    **options
        Of the format: ``users``, ``cache`` for GeoLife; the fields of :class:`PortoOptions`,
        :class:`TableOptions`, :class:`FixOptions` for the others.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "walks.csv")
    >>> rows = "ana;1372636858000;41,14;-8,61\\nana;1372636873000;41,15;-8,62\\n"
    >>> _ = file.write_text("uid;tst;lat;lng\\n" + rows)
    >>> walks = read(file)
    >>> walks
    <Trajectories: 1 trajectory of 1 agent, 2 rows of time, lat, lon>
    >>> walks.columns["lat"], walks.columns["time"] - 1372636858
    (array([41.14, 41.15]), array([ 0., 15.]))
    >>> _ = file.write_text("uid,t,lat,lon\\nana,0,41.1,-8.6\\nana,1,91,-8.6\\n")
    >>> report = Report()
    >>> len(read(file, skip_bad=True, report=report)), report.counts
    (1, {'latitude outside [-90, 90]': 1})
    >>> folder.cleanup()
    """
    if not isinstance(path, (str, PathLike, list, tuple)):
        _check_names(options, ["table"])
        table = as_table(path)
        return read_frame(table, skip_bad=skip_bad, report=report, trips=trips, options=TableOptions(**options))
    with Intake(skip_bad, report) as intake, opened(path, intake) as given:
        groups = _chosen(path, given, format, options)
        _check_names(options, groups)
        if len(groups) > 1:
            groups = _without_other_tables(groups, options, intake)
        sets = []
        for i, (kind, files) in enumerate(groups.items()):
            told: dict[str, Any] = {"skip_bad": skip_bad, "report": intake.report}
            told["progress"] = share_of(progress, i, len(groups))
            mine = {name: value for name, value in options.items() if name in _names_of(kind)}
            sets.append(_read_as(kind, files, mine, trips, intake, told))
        found = Trajectories.concat(sets)
        given.rename(intake.report)
        if trips is None:
            look_over(found, intake)
        intake.supposed_trips = bool(intake.report.cut) and trips is None
        return found


def _read_as(
    kind: str, files: list[Path], options: dict[str, Any], trips: str | None, intake: Intake, told: dict[str, Any]
) -> Trajectories:
    """Files of one format."""
    if kind == "geolife":
        people = Trajectories.concat(read_geolife(file, **told, **options) for file in files)
        return in_trips(people._grouped(), trips, intake)
    if kind == "porto":
        return in_trips(read_porto(*files, options=PortoOptions(**options), **told)._grouped(), trips, intake)
    if kind == "table":
        return read_table(*files, options=TableOptions(**options), trips=trips, **told)
    if kind == "takeout":
        files = takeout.chosen(files, intake)
    return _POSITIONS[kind](files, options=FixOptions(**options), trips=trips, **told)


def _without_other_tables(
    groups: dict[str, list[Path]], options: Mapping[str, Any], intake: Intake
) -> dict[str, list[Path]]:
    """Files by format, without the tables that hold no positions: exports have them beside the tracks."""
    if "table" not in groups or "lat" in options or "names" in options:
        return groups
    tables = [file for file in groups["table"] if has_positions(file)]
    for file in groups["table"]:
        if file not in tables:
            intake.leave_out(file, None, "a table without latitude and longitude, among files of other formats")
    others = {kind: files for kind, files in groups.items() if kind != "table"}
    return others | ({"table": tables} if tables else {})


def iter_read(
    path: Asked,
    batch_rows: int = 1_000_000,
    format: str | None = None,
    *,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    trips: str | None = None,
    **options: Any,
) -> Iterator[Trajectories]:
    """Stream a table or a Porto file in batches of whole trajectories of about ``batch_rows`` fixes.

    A table must be grouped by agent and trajectory; one that is not is refused at the row where that shows
    (see :func:`iter_table`). The other formats are small enough to be read whole, and refused here.
    """
    with Intake(skip_bad, report) as intake, opened(path, intake) as given:
        groups = _chosen(path, given, format, options)
        _check_names(options, groups)
        kind, files = next(iter(groups.items()))
        if len(groups) > 1 or len(files) > 1 or files[0].is_dir():
            remedy = ("stream the files one by one, or use ", Call("read"))
            raise DataError("several files where one was expected", place=Place(shown(path)), remedy=remedy)
        told: dict[str, Any] = {"skip_bad": skip_bad, "report": intake.report, "progress": progress}
        if kind == "table":
            table = TableOptions(**options)
            yield from iter_table(files[0], batch_rows, options=table, trips=trips, **told)
        elif kind == "porto":
            porto = PortoOptions(**options)
            batch = max(1, batch_rows // 50)  # a Porto trip has about 50 fixes
            for some in iter_porto(files[0], batch, options=porto, **told):
                yield in_trips(some._grouped(), trips, intake)
        else:
            raise DataError(f"{kind} is not streamed", place=Place(shown(path)), remedy=("use ", Call("read")))
        given.rename(intake.report)
        intake.supposed_trips = bool(intake.report.cut) and trips is None


def _chosen(path: Asked, given: Opened, format: str | None, options: Mapping[str, Any]) -> dict[str, list[Path]]:
    """The files by their format; of a format that is asked for, those that are of it."""
    if format is None:
        # Who gives the names of the columns knows that it is a table without a header line.
        return {"table": given.files} if options.get("names") else by_format(given.files)
    kind = {"csv": "table", "parquet": "table"}.get(format, format)
    if kind not in FORMATS:
        remedy = f"give one of {', '.join(FORMATS)}, or leave it out"
        raise DataError(f"format={format!r} is unknown", remedy=remedy)
    if len(given.files) == 1:
        return {kind: given.files}
    alike = ("table", "porto") if kind in ("table", "porto") else (kind,)
    files = [file for file in given.files if format_of(file, alone=False) in alike]
    if not files:
        raise DataError(
            f"there are no {kind} files", place=Place(shown(path)), remedy="leave the format out, or give others"
        )
    return {kind: files}


def _names_of(format: str) -> list[str]:
    """The options of a format."""
    if format == "geolife":
        return ["users", "cache"]
    kind: type = {"porto": PortoOptions, "table": TableOptions}.get(format, FixOptions)
    return [field.name for field in fields(kind)]


def _check_names(given: Mapping[str, Any], formats: Iterable[str]) -> None:
    """Refuse an option that none of the formats has."""
    known = list(dict.fromkeys(name for format in formats for name in _names_of(format)))
    for name in given:
        if name not in known:
            reason = f"the option {name!r} means nothing for the format {' or '.join(formats)}"
            raise DataError(reason, remedy=f"it takes {', '.join(known)}")
