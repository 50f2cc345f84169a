"""TCX, Garmin's Training Center format (TrainingCenterDatabasev2.xsd): each activity is a trajectory, laps joined."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from astray.core.errors import DataError
from astray.readers.position_files import Position, position_reader, positions_of_tracks
from astray.readers.read_report import Intake, Progress
from astray.readers.xml_tracks import Point, TrackDocument


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """Yields the track points of recorded activities; points without a position (a pause, indoors) are skipped.

    A course is a plan, not a recording, and is not read.
    """
    document = _Tcx(file)
    document.parse(intake)
    for point in (point for activity in document.tracks for point in activity if point.lat is None):
        intake.skip(file, point.line, "a track point without a position", unit="line")
    placed = ([point for point in activity if point.lat is not None] for activity in document.tracks)
    recorded = [activity for activity in placed if activity]
    if not recorded:
        remedy = "courses and indoor activities are not read; export an activity recorded outdoors"
        raise DataError("no recorded activity with positions", remedy=remedy)
    return positions_of_tracks(file, recorded)


class _Tcx(TrackDocument):
    root = "TrainingCenterDatabase"

    _point: Point | None = None  # the current one

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "activity":
            self.tracks.append([])
        elif name == "trackpoint" and "activity" in self.path:
            self._point = Point(self.line)
            self.tracks[-1].append(self._point)

    def end(self, name: str, text: str) -> None:
        if self._point is None:
            return
        match name:
            case "trackpoint":
                self._point = None
            case "time" if self.path[-1:] == ["trackpoint"]:
                self._point.time = text
            case "latitudedegrees":
                self._point.lat = text
            case "longitudedegrees":
                self._point.lon = text


READER = position_reader(positions, "line", lambda sample: sample.xml_root == "TrainingCenterDatabase", (".tcx",))
