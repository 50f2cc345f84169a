"""KML: tracks with times (gx:Track, or Track in KML 2.3), and points with a time stamp.

The schemas are KML 2.2 and 2.3 of the Open Geospatial Consortium, and Google's extension ``gx``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from astray.core.errors import DataError
from astray.readers.position_files import Position, position_reader, track_names
from astray.readers.read_report import Intake, Progress
from astray.readers.xml_tracks import TrackDocument


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """Yields the fixes of a file: a placemark with tracks is a trajectory; points with time stamps are cut into trips.

    The reader skips and counts lines and areas, which have no time for each vertex.
    """
    document = _Kml(file)
    document.parse(intake)
    for mark in document.marks:
        if mark.drawn:
            reason = f"a {mark.drawn} without a time for each vertex"
            intake.skip(file, mark.line, reason, unit="line")
    tracks = [mark for mark in document.marks if mark.coords]
    points = [mark for mark in document.marks if mark.point is not None and not mark.coords]
    if not tracks and not any(mark.stamp for mark in points):
        remedy = "export the recording as a track with times (gx:Track), or as GPX"
        raise DataError("no track or point in it has times", remedy=remedy)
    for name, mark in zip(track_names(file, len(tracks)), tracks, strict=True):
        if len(mark.whens) != len(mark.coords):
            reason, remedy = f"{len(mark.whens)} times for {len(mark.coords)} positions", "export the track again"
            intake.refuse(file, mark.line, reason, remedy, unit="line")
            continue
        for when, (line, coord) in zip(mark.whens, mark.coords, strict=True):
            # A coordinate is empty if the receiver had no position at that time.
            if coord:
                yield Position(line, None, name, when, *_degrees(coord))
    for mark in points:
        if mark.stamp is None:
            intake.skip(file, mark.line, "a point without a time", unit="line")
            continue
        yield Position(mark.line, None, "", mark.stamp, *_degrees((mark.point or "").replace(",", " ").split()))


def _degrees(parts: list[str]) -> tuple[str | None, str | None]:
    """Returns latitude and longitude; KML writes longitude first."""
    return (parts[1], parts[0]) if len(parts) >= 2 else (None, None)


@dataclass
class _Mark:
    """The contents of one placemark."""

    line: int
    whens: list[str] = field(default_factory=list)
    coords: list[tuple[int, list[str]]] = field(default_factory=list)
    stamp: str | None = None
    point: str | None = None
    drawn: str = ""  # a geometry without times


class _Kml(TrackDocument):
    root = "kml"

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.marks: list[_Mark] = []

    @property
    def found(self) -> bool:
        return any(mark.coords or mark.point is not None for mark in self.marks)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "placemark":
            self.marks.append(_Mark(self.line))
        elif name in ("linestring", "polygon", "linearring") and "placemark" in self.path:
            self.marks[-1].drawn = self.marks[-1].drawn or {"linestring": "line"}.get(name, "polygon")

    def end(self, name: str, text: str) -> None:
        if "placemark" not in self.path:
            return
        mark, around = self.marks[-1], self.path[-1]
        match name:
            case "when" if around == "track":
                mark.whens.append(text)
            case "coord" if around == "track":
                mark.coords.append((self.line, text.split()))
            case "when" if around == "timestamp":
                mark.stamp = text
            case "coordinates" if around == "point":
                mark.point = text


READER = position_reader(positions, "line", lambda sample: sample.xml_root == "kml", (".kml",))
