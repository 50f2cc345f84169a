"""Readers: files to trajectories.

:func:`read` recognises the format and reads the whole; :func:`iter_read` streams what does not fit into
memory. What cannot be used is refused with its file, row and remedy, or, with ``skip_bad=True``, left out,
counted and listed in a :class:`Report`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from astray.errors import Call, DataError, Place
from astray.readers.geojson import read_geojson
from astray.readers.geolife import read_geolife
from astray.readers.gpx import GpxOptions, read_gpx
from astray.readers.grouping import in_trips
from astray.readers.jsonlines import read_jsonlines
from astray.readers.porto import PortoOptions, iter_porto, read_porto
from astray.readers.positions import JsonOptions
from astray.readers.recognise import FORMATS, files_of, recognise
from astray.readers.refusals import Assumption, FilePath, Intake, Progress, ReadWarning, Report, Skipped
from astray.readers.table import TableOptions, iter_table, read_table
from astray.trajectories import Trajectories

__all__ = [
    "FORMATS",
    "Assumption",
    "GpxOptions",
    "JsonOptions",
    "PortoOptions",
    "ReadWarning",
    "Report",
    "Skipped",
    "TableOptions",
    "iter_porto",
    "iter_read",
    "iter_table",
    "read",
    "read_geojson",
    "read_geolife",
    "read_gpx",
    "read_jsonlines",
    "read_porto",
    "read_table",
    "recognise",
]

_Options = TypeVar("_Options")


def read(
    path: FilePath,
    format: str | None = None,
    *,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    trips: str | None = None,
    **options: Any,
) -> Trajectories:
    """Read trajectories from a file or folder of any known format.

    Parameters
    ----------
    path
        A CSV or Parquet table, Porto's ``train.csv`` (or the same as Parquet), a GPX or GeoJSON file,
        JSON lines (also of OwnTracks), a folder of such files, or GeoLife's folder ``Data``.
    format
        ``"geolife"``, ``"porto"``, ``"table"``, ``"gpx"``, ``"geojson"`` or ``"jsonlines"``; recognised by default.
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
        at gaps and stays, as the live feed does it (see :mod:`astray.trips`). By default only those are cut that the
        file does not name; the report says how many trips that made.
    **options
        Of the format: ``users``, ``cache`` for GeoLife; the fields of :class:`PortoOptions`,
        :class:`TableOptions`, :class:`GpxOptions`, :class:`JsonOptions` for the others.

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
    source = Path(path)
    kind = _kind(source, format, options)
    if kind == "geolife":
        _check_names(options, ("users", "cache"), kind)
        people = read_geolife(source, skip_bad=skip_bad, report=report, progress=progress, **options)
        return in_trips(people, trips, Intake(skip_bad, report))
    files = files_of(source, kind)
    match kind:
        case "porto":
            porto = _options(PortoOptions, options, kind)
            rides = read_porto(*files, skip_bad=skip_bad, report=report, progress=progress, options=porto)
            return in_trips(rides, trips, Intake(skip_bad, report))
        case "table":
            table = _options(TableOptions, options, kind)
            return read_table(*files, skip_bad=skip_bad, report=report, progress=progress, trips=trips, options=table)
        case "gpx":
            gpx = _options(GpxOptions, options, kind)
            return read_gpx(*files, skip_bad=skip_bad, report=report, progress=progress, trips=trips, options=gpx)
        case "jsonlines":
            lines = _options(JsonOptions, options, kind)
            told: dict[str, Any] = {"skip_bad": skip_bad, "report": report, "progress": progress, "trips": trips}
            return read_jsonlines(*files, options=lines, **told)
        case _:
            geo = _options(JsonOptions, options, kind)
            return read_geojson(*files, skip_bad=skip_bad, report=report, progress=progress, trips=trips, options=geo)


def iter_read(
    path: FilePath,
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
    source = Path(path)
    if source.is_dir():
        raise DataError(
            "a folder where a file was expected",
            place=Place(str(source)),
            remedy=("stream its files one by one, or use ", Call("read")),
        )
    kind = _kind(source, format, options)
    if kind == "table":
        table = _options(TableOptions, options, kind)
        return iter_table(
            source, batch_rows, skip_bad=skip_bad, report=report, progress=progress, trips=trips, options=table
        )
    if kind == "porto":
        porto = _options(PortoOptions, options, kind)
        batch = max(1, batch_rows // 50)  # a Porto trip has about 50 fixes
        rides = iter_porto(source, batch, skip_bad=skip_bad, report=report, progress=progress, options=porto)
        return (in_trips(some, trips, Intake(skip_bad, report)) for some in rides)
    raise DataError(f"{kind} is not streamed", place=Place(str(source)), remedy=("use ", Call("read")))


def _kind(path: Path, format: str | None, options: Mapping[str, Any]) -> str:
    if format is None:
        # Who gives the names of the columns knows that it is a table without a header line.
        return "table" if options.get("names") else recognise(path)
    kind = {"csv": "table", "parquet": "table"}.get(format, format)
    if kind not in FORMATS:
        remedy = f"give one of {', '.join(FORMATS)}, or leave it out"
        raise DataError(f"format={format!r} is unknown", remedy=remedy)
    return kind


def _options(kind: Callable[..., _Options], given: dict[str, Any], format: str) -> _Options:
    _check_names(given, [field.name for field in fields(kind)], format)  # type: ignore[arg-type]
    return kind(**given)


def _check_names(given: dict[str, Any], known: tuple[str, ...] | list[str], format: str) -> None:
    for name in given:
        if name not in known:
            remedy = f"it takes {', '.join(known)}"
            raise DataError(f"the option {name!r} means nothing for the format {format}", remedy=remedy)
