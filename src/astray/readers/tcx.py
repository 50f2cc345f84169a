"""TCX, Garmin's Training Center Database (TrainingCenterDatabasev2.xsd): a trajectory an activity, its laps joined."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from astray.core.errors import DataError
from astray.readers.markup import Document, Point
from astray.readers.positions import Position, of_tracks
from astray.readers.refusals import Intake, Progress


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """The track points of recorded activities; those without a position (a pause, a hall) are left out and counted.

    A course is a plan, not something that was done, and is not read.
    """
    document = _Tcx(file)
    document.walk(intake)
    for point in (point for activity in document.tracks for point in activity if point.lat is None):
        intake.leave_out(file, point.line, "a track point without a position", unit="line")
    placed = ([point for point in activity if point.lat is not None] for activity in document.tracks)
    recorded = [activity for activity in placed if activity]
    if not recorded:
        remedy = "courses and activities in a hall are not read; export an activity recorded outdoors"
        raise DataError("no recorded activity with positions", remedy=remedy)
    return of_tracks(file, recorded)


class _Tcx(Document):
    root = "TrainingCenterDatabase"

    _point: Point | None = None  # the one that is being read

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
