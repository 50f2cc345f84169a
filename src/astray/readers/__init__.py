"""Reads trajectories from files.

:func:`read` recognises the format and reads everything; :func:`iter_read` streams what does not fit into memory. Bad
data raise an error with file, row and remedy; with ``skip_bad=True`` they are skipped, counted and listed in a
:class:`Report`. The formats are listed in ``formats.toml``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Any

from astray.core.errors import Call, DataError, Option, Place
from astray.core.fixes import candidates
from astray.core.trajectories import Trajectories
from astray.readers.formats import FORMATS, group_by_format, reader_of, recognise_file
from astray.readers.geolife import GeolifeOptions, read_geolife
from astray.readers.input_files import OpenFiles, PathOrPaths, find_files, open_files, shown
from astray.readers.porto import PortoOptions, iter_porto, read_porto
from astray.readers.position_files import FixOptions
from astray.readers.read_report import Assumption, Intake, Progress, ReadWarning, Report, Skipped, share_of
from astray.readers.reader import InputFile, Request
from astray.readers.table import TableOptions, iter_table, read_frame, read_table
from astray.readers.trip_building import report_odd_trips

__all__ = [
    "FORMATS",
    "Assumption",
    "FixOptions",
    "GeolifeOptions",
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

_TABLE_NAMES = {"csv": "table", "parquet": "table"}


def read(
    path: PathOrPaths | Any,
    format: str | None = None,
    *,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    trips: str | None = None,
    **options: Any,
) -> Trajectories:
    """Reads trajectories from files of any known format.

    Parameters
    ----------
    path
        A file, a folder, a pattern such as ``tracks/*.gpx``, or a list of them: tables (CSV, Parquet, GeoParquet,
        Feather; also those of Movebank, Traccar and MarineCadastre), GPX, KML, TCX, FIT, NMEA 0183, GeoJSON (also of
        Overland), JSON lines (also of OwnTracks), Google's location history, GeoLife's folder ``Data``, Porto's
        ``train.csv``. All may be compressed (zip, gzip, bzip2, xz, Zstandard). Files of several formats are read
        together. Or a table in memory, of polars, pandas, pyarrow, GeoPandas, MovingPandas or trackintel.
    format
        One of :data:`FORMATS`; recognised by default.
    skip_bad
        Skip rows and files that cannot be used, instead of raising an error.
    report
        An empty :class:`Report` that receives what was skipped and assumed. Without one, a :class:`ReadWarning` lists
        it; nothing is dropped silently.
    progress
        Called as ``progress(done, total)`` now and then (in bytes, rows or files), and at the end with
        ``done == total``.
    trips
        ``"as-given"``: trips as the file names them; if it names none, all fixes of an agent are one trip. ``"cut"``:
        cut at gaps and stays, as the live feed does (see :mod:`astray.core.trips`). By default only fixes without a
        trip name are cut; the report gives the number of trips.
    **options
        The options of the format: the fields of :class:`GeolifeOptions`, :class:`PortoOptions`, :class:`TableOptions`,
        and of :class:`FixOptions` for the others.

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
        _check_options(options, ["table"])
        return read_frame(path, skip_bad=skip_bad, report=report, trips=trips, options=TableOptions(**options))
    with Intake(skip_bad, report) as intake, open_files(path, intake) as given:
        groups = _choose_format(path, given, format, options)
        _check_options(options, groups)
        if len(groups) > 1:
            groups = _without_other_tables(groups, options, intake)
        sets = []
        for i, (name, files) in enumerate(groups.items()):
            request = Request(_options_of(name, options), intake, share_of(progress, i, len(groups)), trips)
            sets.append(reader_of(name).read(files, request))
        found = Trajectories.concat(sets)
        given.rename(intake.report)
        if trips is None:
            report_odd_trips(found, intake)
        intake.warn_of_cut = bool(intake.report.cut) and trips is None
        return found


def iter_read(
    path: PathOrPaths,
    batch_rows: int = 1_000_000,
    format: str | None = None,
    *,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    trips: str | None = None,
    **options: Any,
) -> Iterator[Trajectories]:
    """Streams a table or a Porto file in batches of whole trajectories of about ``batch_rows`` fixes.

    A table must be grouped by agent and trajectory; the first row that is not is an error (see :func:`iter_table`). So
    is a file of another format: these are small enough for :func:`read`.
    """
    with Intake(skip_bad, report) as intake, open_files(path, intake) as given:
        groups = _choose_format(path, given, format, options)
        _check_options(options, groups)
        name, files = next(iter(groups.items()))
        if len(groups) > 1 or len(files) > 1 or files[0].path.is_dir():
            remedy = ("stream the files one by one, or use ", Call("read"))
            raise DataError("several files where one was expected", place=Place(shown(path)), remedy=remedy)
        stream = reader_of(name).stream
        if stream is None:
            reason = f"files of the format {name} cannot be streamed"
            raise DataError(reason, place=Place(shown(path)), remedy=("use ", Call("read")))
        yield from stream(files[0], batch_rows, Request(_options_of(name, options), intake, progress, trips))
        given.rename(intake.report)
        intake.warn_of_cut = bool(intake.report.cut) and trips is None


def recognise(path: PathOrPaths) -> str:
    """Returns the format of a file, a folder or several files: one of :data:`astray.readers.FORMATS`."""
    found = recognised_formats(path)
    if len(found) > 1:
        kinds = " and ".join(found)
        raise DataError(
            f"it holds {kinds} files", place=Place(shown(path)), remedy=("choose with ", Option("format", found[0]))
        )
    return found[0]


def recognised_formats(path: PathOrPaths) -> list[str]:
    """Returns the formats of all files, sorted by name."""
    return list(group_by_format(find_files(path)))


def _choose_format(
    path: PathOrPaths, given: OpenFiles, format: str | None, options: Mapping[str, Any]
) -> dict[str, list[InputFile]]:
    """Returns the files by format; if the caller names a format, only the files of that format."""
    if format is None:
        # Only a table without a header line needs names.
        return {"table": list(map(InputFile, given.files))} if options.get("names") else group_by_format(given.files)
    name = _TABLE_NAMES.get(format, format)
    if name not in FORMATS:
        remedy = f"give one of {', '.join(FORMATS)}, or leave it out"
        raise DataError(f"format={format!r} is unknown", remedy=remedy)
    if len(given.files) == 1:
        return {name: [InputFile(given.files[0])]}
    alike = ("table", "porto") if name in ("table", "porto") else (name,)
    recognised = (recognise_file(file, alone=False) for file in given.files)
    files = [file for found, file in recognised if found in alike]
    if not files:
        raise DataError(
            f"there are no {name} files", place=Place(shown(path)), remedy="leave the format out, or give others"
        )
    return {name: files}


def _without_other_tables(
    groups: dict[str, list[InputFile]], options: Mapping[str, Any], intake: Intake
) -> dict[str, list[InputFile]]:
    """Skips tables without positions if there are files of other formats: exports contain such tables beside tracks."""
    if "table" not in groups or "lat" in options or "names" in options:
        return groups
    kept = []
    for file in groups["table"]:
        table = file.open()
        if {"lat", "lon"} <= candidates(table.names).keys():
            kept.append(file._replace(table=table))
        else:
            intake.skip(file.path, None, "a table without latitude and longitude, among files of other formats")
    others = {name: files for name, files in groups.items() if name != "table"}
    return others | ({"table": kept} if kept else {})


def _options_of(format: str, given: Mapping[str, Any]) -> Any:
    """Returns the options of a format; ignores given ones that only other formats have."""
    reader = reader_of(format)
    return reader.options(**{name: value for name, value in given.items() if name in reader.option_names})


def _check_options(given: Mapping[str, Any], formats: Iterable[str]) -> None:
    """Raises an error about an option that none of the formats has."""
    known = list(dict.fromkeys(name for format in formats for name in reader_of(format).option_names))
    for name in given:
        if name not in known:
            reason = f"the option {name!r} means nothing for the format {' or '.join(formats)}"
            raise DataError(reason, remedy=f"it takes {', '.join(known)}")
