"""GeoJSON: lines with a time for every vertex, and points with a time each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from astray.errors import DataError, Place
from astray.fixes import ALIASES, label, numbers, place_faults, plain, refuse_swapped, wrapped
from astray.readers.grouping import grouped, in_trips
from astray.readers.refusals import FilePath, Intake, Progress, Report, refusing
from astray.readers.text import decoded, opening
from astray.times import Clock
from astray.trajectories import Trajectories

LINE_TIMES = ("coordtimes", "coordinatetimes", "times", "timestamps", "time", "timestamp", "datetimes")
"""The properties in which exporters keep the times of a line's vertices."""


@dataclass(frozen=True)
class GeoJsonOptions:
    """How GeoJSON is read.

    Parameters
    ----------
    agent
        Whose trajectories these are, where the features do not say; by default the name of the file's folder.
    time_unit, time_zone
        See :class:`astray.times.Clock`.
    zero_ok
        Whether a fix at exactly (0, 0) is meant.
    """

    agent: str | None = None
    time_unit: str | None = None
    time_zone: str | None = None
    zero_ok: bool = False


@dataclass(frozen=True)
class _Fix:
    """One position: degrees and time as they stand in the file, whose it is, and the feature it came from."""

    feature: int
    agent: str
    trajectory: str
    time: object
    lat: object
    lon: object


def read_geojson(
    path: FilePath,
    *more: FilePath,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    trips: str | None = None,
    options: GeoJsonOptions | None = None,
) -> Trajectories:
    """Read GeoJSON files of LineString, MultiLineString and Point features.

    A line is a trajectory; its times stand in a property with one time a vertex (``coordTimes``, ``times``,
    ...), nested as its coordinates are. Points have a time each and are grouped by their properties
    (``uid``, ``trip_id``, ...); points that name none are cut into trips (``trips`` as for
    :func:`read`). A third coordinate (height) is passed over.
    """
    options = options or GeoJsonOptions()
    files = [Path(p) for p in (path, *more)]
    parts: list[Trajectories] = []
    with Intake(skip_bad, report) as intake:
        for i, file in enumerate(files):
            with intake.sparing_the_rest(file, of=len(files)):
                parts.append(_trajectories(file, options, intake))
            if progress is not None:
                progress(i + 1, len(files))
        if not parts:
            raise intake.nothing(files[0], "feature")
        return in_trips(Trajectories.concat(parts), trips, intake)


def _loaded(file: Path) -> Any:
    opening(file, 8)
    with refusing(file, "the file could not be read", "check it"):
        content = file.read_bytes()
    try:
        return json.loads(decoded(file, content, None).lstrip("\ufeff"))
    except json.JSONDecodeError as error:
        place, remedy = Place(str(file), error.lineno, "line"), "the JSON is broken there, export it again"
        raise DataError(error.msg, place=place, remedy=remedy) from error
    except (ValueError, RecursionError) as error:
        place = Place(str(file))
        raise DataError(f"the JSON cannot be read ({error})", place=place, remedy="export it again") from error


def _features(file: Path) -> list[Any]:
    """The features of any GeoJSON object."""
    document = _loaded(file)
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "FeatureCollection" and isinstance(document.get("features"), list):
        features: list[Any] = document["features"]
        return features
    if kind == "Feature":
        return [document]
    if kind in ("Point", "LineString", "MultiLineString"):
        return [{"type": "Feature", "geometry": document, "properties": {}}]
    reason = f"not GeoJSON (its type is {str(kind)[:40]!r})"
    raise DataError(reason, place=Place(str(file), 1, "line"), remedy="give a FeatureCollection")


def _trajectories(file: Path, options: GeoJsonOptions, intake: Intake) -> Trajectories:
    fixes: list[_Fix] = []
    owner = options.agent if options.agent is not None else file.resolve().parent.name
    features = _features(file)
    for number, feature in enumerate(features, start=1):
        try:
            name = file.stem if len(features) == 1 else f"{file.stem}-{number}"
            found = list(_fixes(feature, number, owner, name))
            if not found:
                raise DataError("a line without positions", remedy="delete the feature")
            fixes += found
        except DataError as error:
            intake.refuse(file, number, error.reason, error.remedy, unit="feature")
    if not fixes:
        raise intake.nothing(file, "feature")
    clock = Clock(options.time_unit, options.time_zone)
    with refusing(file, "the positions could not be read", "check them"):
        lat = numbers("lat", _series([fix.lat for fix in fixes]))
        lon = numbers("lon", _series([fix.lon for fix in fixes]))
        refuse_swapped(lat, lon)
        time, faults = clock.seconds(_series([fix.time for fix in fixes]))
    rows = np.array([fix.feature for fix in fixes], dtype=np.int64)
    good = intake.sift(file, rows, [*place_faults(lat, lon, zero_ok=options.zero_ok), *faults], unit="feature")
    for remark in clock.remarks():
        intake.report.assume(file, *remark)
    if not good.any():
        raise intake.nothing(file, "position")
    table = pl.DataFrame(
        {
            "agent": [fix.agent for fix in fixes],
            "trajectory": [fix.trajectory for fix in fixes],
            "time": time,
            "lat": lat,
            "lon": wrapped(lon),
        }
    )
    return grouped(table.filter(good))


def _fixes(feature: Any, number: int, owner: str, name: str) -> Iterator[_Fix]:
    """The positions of one feature."""
    geometry = feature.get("geometry") if isinstance(feature, dict) else None
    if not isinstance(geometry, dict):
        raise DataError("a feature without a geometry", remedy="delete it")
    properties = feature.get("properties") or {}
    if not isinstance(properties, dict):
        raise DataError("the properties are no object", remedy="correct the feature")
    named = {plain(str(key)): value for key, value in properties.items()}
    agent = _label(named, "agent", owner)
    coordinates = geometry.get("coordinates")
    match geometry.get("type"):
        case "Point":
            time = next((named[alias] for alias in ALIASES["time"] if alias in named), None)
            lon, lat = _position(coordinates)
            yield _Fix(number, agent, _label(named, "trajectory", ""), time, lat, lon)
        case "LineString" | "MultiLineString" as kind:
            trajectory = _label(named, "trajectory", name)
            lines = coordinates if kind == "MultiLineString" else [coordinates]
            times = _line_times(named)
            for line, stamps in zip(*_matched(lines, times), strict=True):
                for point, stamp in zip(line, stamps, strict=True):
                    lon, lat = _position(point)
                    yield _Fix(number, agent, trajectory, stamp, lat, lon)
        case other:
            remedy = "only Point, LineString and MultiLineString are read"
            raise DataError(f"a geometry of type {str(other)[:40]!r}", remedy=remedy)


def _label(named: Mapping[str, Any], role: str, otherwise: str) -> str:
    value = next((named[alias] for alias in ALIASES[role] if named.get(alias) is not None), None)
    return label(role, value) if value is not None and str(value).strip() else otherwise


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


def _series(values: Sequence[object]) -> pl.Series:
    """Values of JSON as numbers if all are, else as text."""
    if all(type(value) in (int, float) or value is None for value in values):
        try:
            return pl.Series([None if value is None else float(value) for value in values], dtype=pl.Float64)  # type: ignore[arg-type]
        except OverflowError as error:
            raise DataError(f"a number too large to be a time or a place ({error})", remedy="correct it") from error
    return pl.Series([None if value is None else str(value) for value in values], dtype=pl.String)
