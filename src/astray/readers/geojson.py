"""GeoJSON: lines with a time for every vertex, and points with a time each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from astray.core.errors import DataError
from astray.core.fixes import label, parts, plain
from astray.readers import jsontext
from astray.readers.positions import Position
from astray.readers.refusals import Intake, Progress

LINE_TIMES = ("coordtimes", "coordinatetimes", "times", "timestamps", "time", "timestamp", "datetimes")
"""The properties in which exporters keep the times of a line's vertices."""


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """The positions of LineString, MultiLineString and Point features, also in a batch that Overland sent.

    A line is a trajectory; its times stand in a property with one time a vertex (``coordTimes``, ``times``,
    ...), nested as its coordinates are. Points have a time each and are grouped by their properties
    (``uid``, ``trip_id``, ...); points that name none are cut into trips. A third coordinate (height) is passed over.
    """
    held = features(jsontext.loaded(file))
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
    """The features of any GeoJSON object."""
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "FeatureCollection" and isinstance(document.get("features"), list):
        held: list[Any] = document["features"]
        return held
    if kind is None and isinstance(document, dict) and isinstance(document.get("locations"), list):
        sent: list[Any] = document["locations"]  # a batch of Overland, as github.com/aaronpk/Overland-iOS tells
        return sent
    if kind == "Feature":
        return [document]
    if kind in ("Point", "LineString", "MultiLineString"):
        return [{"type": "Feature", "geometry": document, "properties": {}}]
    reason = "JSON that is not understood" if kind is None else f"not GeoJSON (its type is {str(kind)[:40]!r})"
    raise DataError(reason, remedy="give GeoJSON, JSON lines or a location history of Google")


def fixes(feature: Any, number: int, name: str) -> Iterator[Position]:
    """The positions of one feature."""
    geometry = feature.get("geometry") if isinstance(feature, dict) else None
    if not isinstance(geometry, dict):
        raise DataError("a feature without a geometry", remedy="delete it")
    properties = feature.get("properties") or {}
    if not isinstance(properties, dict):
        raise DataError("the properties are no object", remedy="correct the feature")
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
        raise DataError("a line without times", remedy='add a property "coordTimes" with one time a vertex')
    return found


def _matched(lines: Any, times: list[Any]) -> tuple[Sequence[list[Any]], Sequence[list[Any]]]:
    """Lines and times of the same shape; times may be nested as the lines are, or run through all of them."""
    if not isinstance(lines, list) or not all(isinstance(line, list) for line in lines):
        raise DataError("the coordinates are no list of lines", remedy="correct the feature")
    if not all(isinstance(stamps, list) for stamps in times):
        ends = np.cumsum([len(line) for line in lines]).tolist()
        if ends[-1:] != [len(times)]:
            reason = f"{len(times)} times for {ends[-1] if ends else 0} vertices"
            raise DataError(reason, remedy="give one time a vertex")
        times = [times[end - len(line) : end] for line, end in zip(lines, ends, strict=True)]
    if [len(line) for line in lines] != [len(stamps) for stamps in times]:
        raise DataError("the times are not nested as the coordinates are", remedy="give one time a vertex")
    return lines, times
