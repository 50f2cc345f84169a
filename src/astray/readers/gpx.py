"""GPX 1.0 and 1.1 (topografix.com/GPX/1/1/gpx.xsd): one trajectory a track, its segments joined.

Segments mark where reception was lost; a track is a trip all the same, unless trips are to be cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from astray.core.errors import DataError
from astray.readers.markup import Document, Point
from astray.readers.positions import Position, of_tracks
from astray.readers.refusals import Intake, Progress


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """The track points of a file; a trajectory is named as its file, with a number behind if that holds several."""
    document = _Gpx(file)
    document.walk(intake)
    tracks = [track for track in document.tracks if track]
    if not tracks:
        raise DataError("no track points (<trkpt>)", remedy="routes and waypoints are not read, record a track")
    if all(point.time is None for track in tracks for point in track):
        remedy = "export the track with times (a route drawn on a map has none)"
        raise DataError("the track points have no <time>", remedy=remedy)
    return of_tracks(file, tracks)


class _Gpx(Document):
    root = "gpx"

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "trk":
            self.tracks.append([])
        elif name == "trkpt" and "trk" in self.path:
            self.tracks[-1].append(Point(self.line, None, attributes.get("lat"), attributes.get("lon")))

    def end(self, name: str, text: str) -> None:
        if name == "time" and self.path[-1:] == ["trkpt"] and self.tracks and self.tracks[-1]:
            self.tracks[-1][-1].time = text
