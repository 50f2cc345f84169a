"""GPX tracks: one trajectory a track, its segments joined.

Segments mark where reception was lost; a track is a trip all the same, unless trips are to be cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

import numpy as np
import polars as pl

from astray.errors import DataError, Place
from astray.fixes import numbers, place_faults, refuse_swapped, wrapped
from astray.readers.grouping import in_trips, time_ordered
from astray.readers.refusals import FilePath, Intake, Progress, Report, refusing
from astray.readers.text import opening
from astray.times import Clock
from astray.trajectories import Trajectories


@dataclass(frozen=True)
class GpxOptions:
    """How GPX is read.

    Parameters
    ----------
    agent
        Whose tracks these are; by default the name of the folder in which each file lies.
    zero_ok
        Whether a fix at exactly (0, 0) is meant.
    """

    agent: str | None = None
    zero_ok: bool = False


def read_gpx(
    path: FilePath,
    *more: FilePath,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    trips: str | None = None,
    options: GpxOptions | None = None,
) -> Trajectories:
    """Read GPX files. A trajectory is named as its file, with a number behind if that holds several tracks.

    A document type declaration is refused: GPX has none, and it is the way in for entity bombs.
    """
    options = options or GpxOptions()
    files = [Path(p) for p in (path, *more)]
    parts: list[Trajectories] = []
    with Intake(skip_bad, report) as intake:
        for i, file in enumerate(files):
            with intake.sparing_the_rest(file, of=len(files)):
                parts += _tracks(file, options, intake)
            if progress is not None:
                progress(i + 1, len(files))
        if not parts:
            raise intake.nothing(files[0], "track")
        return in_trips(Trajectories.concat(parts), trips, intake)


@dataclass
class _Track:
    """The track points of one track, as they stand in the file."""

    lat: list[str | None] = field(default_factory=list)
    lon: list[str | None] = field(default_factory=list)
    time: list[str | None] = field(default_factory=list)
    line: list[int] = field(default_factory=list)


class _Document:
    """Collects the tracks of a GPX document while expat walks through it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.tracks: list[_Track] = []
        self.root: str | None = None
        self._path: list[str] = []
        self._text: list[str] | None = None
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._data
        self.parser.StartDoctypeDeclHandler = self._doctype

    def _doctype(self, *_: object) -> None:
        place = Place(str(self.file), self.parser.CurrentLineNumber, "line")
        raise DataError("a document type declaration (entities could be a bomb)", place=place, remedy="delete it")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(" ")[2].lower()
        self.root = self.root or name
        if name == "trk":
            self.tracks.append(_Track())
        elif name == "trkpt" and self.tracks and "trk" in self._path:
            track = self.tracks[-1]
            track.lat.append(attributes.get("lat"))
            track.lon.append(attributes.get("lon"))
            track.time.append(None)
            track.line.append(self.parser.CurrentLineNumber)
        elif name == "time" and self._path[-1:] == ["trkpt"]:
            self._text = []
        self._path.append(name)

    def _data(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _end(self, _: str) -> None:
        if self._path.pop() == "time" and self._text is not None:
            if self.tracks and self.tracks[-1].time:
                self.tracks[-1].time[-1] = "".join(self._text)
            self._text = None


def _parsed(file: Path) -> _Document:
    opening(file, 8)
    document = _Document(file)
    try:
        with refusing(file, "the file could not be read", "check it"), open(file, "rb") as stream:
            document.parser.ParseFile(stream)
    except expat.ExpatError as error:
        place, remedy = Place(str(file), error.lineno, "line"), "the XML is broken there, export the track again"
        raise DataError(str(error), place=place, remedy=remedy) from error
    except DataError:
        raise
    except (ValueError, LookupError) as error:
        raise DataError(str(error), place=Place(str(file)), remedy="write the file in UTF-8") from error
    if document.root != "gpx":
        reason = f"<{document.root}> where <gpx> was expected"
        raise DataError(reason, place=Place(str(file), 1, "line"), remedy="give a GPX file")
    return document


def _tracks(file: Path, options: GpxOptions, intake: Intake) -> list[Trajectories]:
    tracks = [track for track in _parsed(file).tracks if track.lat]
    if not tracks:
        remedy = "routes and waypoints are not read, record a track"
        raise DataError("no track points (<trkpt>)", place=Place(str(file)), remedy=remedy)
    if all(time is None for track in tracks for time in track.time):
        remedy = "export the track with times (a route drawn on a map has none)"
        raise DataError("the track points have no <time>", place=Place(str(file)), remedy=remedy)
    agent = options.agent if options.agent is not None else file.resolve().parent.name
    names: Sequence[str] = [file.stem] if len(tracks) == 1 else [f"{file.stem}-{i + 1}" for i in range(len(tracks))]
    parts = [_trajectory(file, track, agent, name, options, intake) for track, name in zip(tracks, names, strict=True)]
    return [part for part in parts if part is not None]


def _trajectory(
    file: Path, track: _Track, agent: str, name: str, options: GpxOptions, intake: Intake
) -> Trajectories | None:
    shown = pl.Series(track.lat, dtype=pl.String), pl.Series(track.lon, dtype=pl.String)
    lat, lon = numbers("lat", shown[0]), numbers("lon", shown[1])
    with refusing(file, "the positions could not be read", "check them"):
        refuse_swapped(lat, lon)
    clock = Clock()
    times = pl.Series(track.time, dtype=pl.String)
    time, faults = clock.seconds(times)
    faults = [*place_faults(lat, lon, shown, zero_ok=options.zero_ok), *faults]
    good = intake.sift(file, np.asarray(track.line, np.int64), faults, unit="line")
    for remark in clock.remarks():
        intake.report.assume(file, *remark)
    if not good.any():
        return None
    columns = {"time": time[good], "lat": lat[good], "lon": wrapped(lon[good])}
    offsets = np.array([0, good.sum()])
    order = time_ordered(columns["time"], offsets)
    if order is not None:
        columns = {key: values[order] for key, values in columns.items()}
    return Trajectories(columns, offsets, [agent], [name])
