"""Google's location history: Takeout's Records.json and monthly files, and the Timeline.json that a phone exports.

Google publishes no schema. This reader uses the fields of its exports: ``locations`` with ``latitudeE7`` (Records),
``timelineObjects`` with ``activitySegment`` (Semantic Location History), ``semanticSegments`` with ``timelinePath``
(Timeline.json of Android), and a list of the same segments (location-history.json of iOS).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from astray.core.errors import DataError
from astray.core.times import moment, seconds_of
from astray.readers.json_files import iter_list, load_json
from astray.readers.position_files import Position, position_reader
from astray.readers.read_report import Intake, Progress

BESIDE = ("Settings.json", "Timeline Edits.json", "Tombstones.csv", "Encrypted Backups.txt", "archive_browser.html")
"""Files in an export of Takeout that hold no history."""

_OWN_FOLDERS = re.compile(r"Takeout|.*Location History.*|[0-9]{4}|Timeline", re.IGNORECASE)
_KEYS = re.compile(r'"(timelineObjects|semanticSegments|rawSignals|latitudeE7|timelinePath|topCandidate)"\s*:')
_RECORDS = re.compile(r'^\s*\{\s*"locations"\s*:\s*\[')
_POINT = re.compile(r"(?:geo:)?\s*(-?[0-9.]+)\s*°?\s*,\s*(-?[0-9.]+)\s*°?")
_OFFSET = re.compile(r"T.*([+-])([0-9]{2}):?([0-9]{2})$")
E7 = 1e7

ReadEntry: TypeAlias = Callable[[int, Mapping[str, Any]], Iterator[Position]]


def is_takeout(text: str) -> bool:
    """Returns True if the text is the beginning of a location history of Google."""
    return _KEYS.search(text) is not None and '"FeatureCollection"' not in text


def agent_of(file: Path) -> str:
    """Returns the name of the folder that contains Takeout's folders, to use as the agent."""
    folders = [folder.name for folder in file.resolve().parents]
    return next((name for name in folders if name and not _OWN_FOLDERS.fullmatch(name)), folders[0])


def select_files(files: Sequence[Path], intake: Intake) -> list[Path]:
    """Returns each person's Records.json or, if there is none, the monthly files, which hold the same data."""
    records = [file for file in files if file.name == "Records.json"]
    agents = {agent_of(file) for file in records}
    kept = [file for file in files if file in records or agent_of(file) not in agents]
    for file in files:
        if file not in kept:
            intake.skip(file, None, "Records.json beside it holds the same, in more detail")
    return kept


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """Yields the fixes of a history: an activity segment is one trip, all other fixes are cut into trips."""
    with open(file, encoding="utf-8-sig", errors="replace") as stream:
        is_records = _RECORDS.match(stream.read(4096)) is not None
    if is_records:
        yield from _each(file, iter_list(file, _RECORDS), intake, _record)
        return
    document = load_json(file)
    if isinstance(document, list):
        yield from _each(file, document, intake, _segment)
    elif isinstance(document, dict) and isinstance(document.get("timelineObjects"), list):
        yield from _each(file, document["timelineObjects"], intake, _month)
    elif isinstance(document, dict) and document.get("semanticSegments"):
        if document.get("rawSignals"):
            intake.report.note(f"{file}: rawSignals, the last weeks in more detail, are not read")
        yield from _each(file, document["semanticSegments"], intake, _segment)
    elif isinstance(document, dict) and document.get("rawSignals"):
        yield from _each(file, document["rawSignals"], intake, _signal)
    else:
        remedy = "give Records.json, a monthly file or Timeline.json"
        raise DataError("it holds no location history of Google", remedy=remedy)


def _each(file: Path, found: Iterable[Any], intake: Intake, read: ReadEntry) -> Iterator[Position]:
    """Yields the positions of each entry; an entry of an unknown form is bad data."""
    for row, entry in enumerate(found, start=1):
        try:
            if not isinstance(entry, dict):
                raise DataError("an entry that is not an object", remedy="export the history again")
            some = list(read(row, entry))
        except DataError as error:
            intake.refuse(file, row, error.reason, error.remedy, unit="entry")
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            detail = f" ({str(error)[:60]} is missing)" if isinstance(error, KeyError) else f" ({str(error)[:60]})"
            intake.refuse(
                file, row, "an entry of an unknown form", "export the history again", detail=detail, unit="entry"
            )
        else:
            if not some:
                is_visit = "placeVisit" in entry or "visit" in entry
                reason = "a visit, not a movement" if is_visit else "an entry without positions and times"
                intake.skip(file, row, reason, unit="entry")
            yield from some


def _record(row: int, entry: Mapping[str, Any]) -> Iterator[Position]:
    """Yields the fix of an entry of Records.json."""
    if "latitudeE7" in entry and "longitudeE7" in entry:
        lat, lon = _e7(entry["latitudeE7"]), _e7(entry["longitudeE7"])
        yield Position(row, None, "", _time(entry, "timestamp"), lat, lon)


def _month(row: int, entry: Mapping[str, Any]) -> Iterator[Position]:
    """Yields the start, the end and the points with times of an activity segment."""
    segment = entry.get("activitySegment")
    if not segment:
        return
    start, end = (_time(segment["duration"], f"{which}Timestamp") for which in ("start", "end"))
    name = moment(start)
    for time, place in ((start, segment.get("startLocation")), (end, segment.get("endLocation"))):
        if place and "latitudeE7" in place:
            yield Position(row, None, name, time, _e7(place["latitudeE7"]), _e7(place["longitudeE7"]))
    for point in (segment.get("simplifiedRawPath") or {}).get("points", []):
        yield Position(row, None, name, _time(point, "timestamp"), _e7(point["latE7"]), _e7(point["lngE7"]))


def _segment(row: int, entry: Mapping[str, Any]) -> Iterator[Position]:
    """Yields the points of a segment of a phone's timeline, and the start and end of its activity."""
    offset = _utc_offset(entry)
    for point in entry.get("timelinePath") or []:
        if "time" in point:
            time = seconds_of(point["time"])
        else:
            time = seconds_of(entry["startTime"]) + 60.0 * float(point["durationMinutesOffsetFromStartTime"])
        yield Position(row, None, "", time, *_place(point["point"]), offset)
    activity = entry.get("activity")
    if activity:
        for which in ("start", "end"):
            if activity.get(which):
                yield Position(row, None, "", seconds_of(entry[f"{which}Time"]), *_place(activity[which]), offset)


def _utc_offset(entry: Mapping[str, Any]) -> float | None:
    """Returns the seconds by which the phone's clock was ahead of UTC; None if the entry does not say.

    >>> _utc_offset({"startTime": "2024-06-01T08:00:00.000+01:00"}), _utc_offset({"startTime": "2024-06-01T08:00:00Z"})
    (3600.0, None)
    """
    minutes = entry.get("startTimeTimezoneUtcOffsetMinutes")
    if minutes is not None:
        return 60.0 * float(minutes)
    written = _OFFSET.search(str(entry.get("startTime", "")))
    return None if written is None else float(f"{written[1]}1") * (3600.0 * int(written[2]) + 60.0 * int(written[3]))


def _signal(row: int, entry: Mapping[str, Any]) -> Iterator[Position]:
    """Yields the fix of a raw signal."""
    position = entry.get("position")
    if position:
        yield Position(row, None, "", seconds_of(position["timestamp"]), *_place(position["LatLng"]))


def _time(entry: Mapping[str, Any], name: str) -> float:
    """Returns a time from ISO 8601 (new exports) or from milliseconds (old exports)."""
    return seconds_of(entry[name]) if name in entry else float(entry[f"{name}Ms"]) / 1e3


def _e7(value: int) -> float:
    """Returns degrees from ten-millionths of a degree; repairs negative numbers that overflowed in old exports.

    >>> _e7(411456789), _e7(4208967296)
    (41.1456789, -8.6)
    """
    return (value - 2**32 if value > 180 * E7 else value) / E7


def _place(given: Any) -> tuple[float, float]:
    """Returns latitude and longitude from a text, or from an object that holds it.

    >>> _place("48.8583°, 2.2945°"), _place("geo:48.8583,-2.2945"), _place({"latLng": "1.5°, 2.5°"})
    ((48.8583, 2.2945), (48.8583, -2.2945), (1.5, 2.5))
    """
    text = given.get("latLng", "") if isinstance(given, dict) else str(given)
    found = _POINT.fullmatch(text)
    if found is None:
        raise DataError(f"an invalid place ({text[:40]})", remedy="export the history again")
    return float(found[1]), float(found[2])


READER = position_reader(
    positions,
    "entry",
    lambda sample: sample.is_json and is_takeout(sample.text),
    agent_of=agent_of,
    in_utc=True,
    select_files=select_files,
    ignored_files=BESIDE,
)
