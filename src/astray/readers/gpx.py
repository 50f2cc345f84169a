"""GPX 1.0 and 1.1 (topografix.com/GPX/1/1/gpx.xsd): one trajectory a track, its segments joined.

Segments mark where reception was lost; a track is a trip all the same, unless trips are to be cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from astray.errors import DataError, Place
from astray.readers.markup import Document
from astray.readers.positions import Position, track_names
from astray.readers.refusals import Intake, Progress


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """The track points of a file; a trajectory is named as its file, with a number behind if that holds several."""
    document = _Gpx(file)
    document.walk()
    tracks = [track for track in document.tracks if track]
    if not tracks:
        remedy = "routes and waypoints are not read, record a track"
        raise DataError("no track points (<trkpt>)", place=Place(str(file)), remedy=remedy)
    if all(point.time is None for track in tracks for point in track):
        remedy = "export the track with times (a route drawn on a map has none)"
        raise DataError("the track points have no <time>", place=Place(str(file)), remedy=remedy)
    for name, track in zip(track_names(file, len(tracks)), tracks, strict=True):
        for point in track:
            yield Position(point.line, None, name, point.time, point.lat, point.lon)


@dataclass(slots=True)
class _Point:
    line: int
    lat: str | None
    lon: str | None
    time: str | None = None


class _Gpx(Document):
    root = "gpx"

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.tracks: list[list[_Point]] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "trk":
            self.tracks.append([])
        elif name == "trkpt" and "trk" in self.path:
            self.tracks[-1].append(_Point(self.line, attributes.get("lat"), attributes.get("lon")))

    def end(self, name: str, text: str) -> None:
        if name == "time" and self.path[-1:] == ["trkpt"] and self.tracks and self.tracks[-1]:
            self.tracks[-1][-1].time = text
