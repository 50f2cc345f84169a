"""GeoJSON: lines with a time for every vertex, and points with a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from astray.core.errors import DataError
from astray.core.fixes import label, parts, plain
from astray.readers.json_files import load_json
from astray.readers.position_files import Position, position_reader
from astray.readers.read_report import Intake, Progress

LINE_TIMES = ("coordtimes", "coordinatetimes", "times", "timestamps", "time", "timestamp", "datetimes")
"""The properties in which exporters store the times of a line's vertices."""


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """Yields the positions of LineString, MultiLineString and Point features; reads a batch of Overland, too.

    A line is a trajectory; a property (``coordTimes``, ``times``, ...) holds one time for each vertex, nested as the
    coordinates are. Points are grouped by their properties (``uid``, ``trip_id``, ...); points without a trip name are
    cut into trips. The third coordinate (height) is ignored.
    """
    held = features(load_json(file))
    for number, feature in enumerate(held, start=1):
        try:
            name = file.stem if len(held) == 1 else f"{file.stem}-{number}"
            found = list(fixes(feature, number, name))
            if not found:
                raise DataError("a line without positions", remedy="delete the feature")
        except DataError as error:
            intake.refuse(file, number, error.reason, error.remedy, unit="feature")
        else:
            yield from found


def features(document: Any) -> list[Any]:
    """Returns the features of any GeoJSON object."""
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "FeatureCollection" and isinstance(document.get("features"), list):
        held: list[Any] = document["features"]
        return held
    if kind is None and isinstance(document, dict) and isinstance(document.get("locations"), list):
        sent: list[Any] = document["locations"]  # a batch of Overland, see github.com/aaronpk/Overland-iOS
        return sent
    if kind == "Feature":
        return [document]
    if kind in ("Point", "LineString", "MultiLineString"):
        return [{"type": "Feature", "geometry": document, "properties": {}}]
    reason = "JSON of an unknown kind" if kind is None else f"not GeoJSON (its type is {str(kind)[:40]!r})"
    raise DataError(reason, remedy="give GeoJSON, JSON lines or a location history of Google")


def fixes(feature: Any, number: int, name: str) -> Iterator[Position]:
    """Yields the positions of one feature."""
    geometry = feature.get("geometry") if isinstance(feature, dict) else None
    if not isinstance(geometry, dict):
        raise DataError("a feature without a geometry", remedy="delete it")
    properties = feature.get("properties") or {}
    if not isinstance(properties, dict):
        raise DataError("the properties are not an object", remedy="correct the feature")
    named = {plain(str(key)): value for key, value in properties.items() if value is not None and value != ""}
    roles, _ = parts({key: value for key, value in named.items() if key != "_type"})
    agent, trip = (label(role, roles[role]) if role in roles else None for role in ("agent", "trajectory"))
    coordinates = geometry.get("coordinates")
    match geometry.get("type"):
        case "Point":
            lon, lat = _position(coordinates)
            yield Position(number, agent, trip or "", roles.get("time"), lat, lon)
        case "LineString" | "MultiLineString" as kind:
            trajectory = trip or name
            lines = coordinates if kind == "MultiLineString" else [coordinates]
            times = _line_times(named)
            for line, stamps in zip(*_matched(lines, times), strict=True):
                for point, stamp in zip(line, stamps, strict=True):
                    lon, lat = _position(point)
                    yield Position(number, agent, trajectory, stamp, lat, lon)
        case other:
            remedy = "only Point, LineString and MultiLineString are read"
            raise DataError(f"a geometry of type {str(other)[:40]!r}", remedy=remedy)


def _position(point: Any) -> tuple[object, object]:
    if not isinstance(point, list) or len(point) < 2 or not all(type(v) in (int, float) for v in point[:2]):
        raise DataError("a position that is not [lon, lat] or [lon, lat, height]", remedy="correct the feature")
    return point[0], point[1]


def _line_times(named: Mapping[str, Any]) -> list[Any]:
    nested = named.get("coordinateproperties")
    if isinstance(nested, dict):
        named = {**named, **{plain(str(key)): value for key, value in nested.items()}}
    found: list[Any] | None = next((named[key] for key in LINE_TIMES if isinstance(named.get(key), list)), None)
    if not found:
        raise DataError("a line without times", remedy='add a property "coordTimes" with one time for each vertex')
    return found


def _matched(lines: Any, times: list[Any]) -> tuple[Sequence[list[Any]], Sequence[list[Any]]]:
    """Returns lines and times of the same shape; times may be given line by line or as one flat list."""
    if not isinstance(lines, list) or not all(isinstance(line, list) for line in lines):
        raise DataError("the coordinates are not a list of lines", remedy="correct the feature")
    if not all(isinstance(stamps, list) for stamps in times):
        ends = np.cumsum([len(line) for line in lines]).tolist()
        if ends[-1:] != [len(times)]:
            reason = f"{len(times)} times for {ends[-1] if ends else 0} vertices"
            raise DataError(reason, remedy="give one time for each vertex")
        times = [times[end - len(line) : end] for line, end in zip(lines, ends, strict=True)]
    if [len(line) for line in lines] != [len(stamps) for stamps in times]:
        raise DataError("the times are not nested as the coordinates are", remedy="give one time for each vertex")
    return lines, times


READER = position_reader(positions, "feature", lambda sample: sample.is_json, (".geojson", ".json"))
