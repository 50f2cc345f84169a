"""GPX 1.0 and 1.1 (topografix.com/GPX/1/1/gpx.xsd): each track is a trajectory, with its segments joined.

A new segment begins where reception was lost; the track is still one trip, unless the caller asks to cut trips.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from astray.core.errors import DataError
from astray.readers.position_files import Position, position_reader, positions_of_tracks
from astray.readers.read_report import Intake, Progress
from astray.readers.xml_tracks import Point, TrackDocument


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """Yields the track points of a file; a trajectory is named after its file, and numbered if there are several."""
    document = _Gpx(file)
    document.parse(intake)
    tracks = [track for track in document.tracks if track]
    if not tracks:
        raise DataError("no track points (<trkpt>)", remedy="routes and waypoints are not read, record a track")
    if all(point.time is None for track in tracks for point in track):
        remedy = "export the track with times (a route drawn on a map has none)"
        raise DataError("the track points have no <time>", remedy=remedy)
    return positions_of_tracks(file, tracks)


class _Gpx(TrackDocument):
    root = "gpx"

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "trk":
            self.tracks.append([])
        elif name == "trkpt" and "trk" in self.path:
            self.tracks[-1].append(Point(self.line, None, attributes.get("lat"), attributes.get("lon")))

    def end(self, name: str, text: str) -> None:
        if name == "time" and self.path[-1:] == ["trkpt"] and self.tracks and self.tracks[-1]:
            self.tracks[-1][-1].time = text


# The reader of GPX also gets unknown XML; its error names the element that it expected.
READER = position_reader(positions, "line", lambda sample: sample.xml_root in ("gpx", ""), (".gpx",))
