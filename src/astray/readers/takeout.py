"""Google's location history: Takeout's Records.json and monthly files, and the Timeline.json that a phone exports.

Google publishes no schema. The fields used here are those of its exports: ``locations`` with ``latitudeE7`` (Records),
``timelineObjects`` with ``activitySegment`` (Semantic Location History), ``semanticSegments`` with ``timelinePath``
(Timeline.json of Android), and a list of the same segments (location-history.json of iOS).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from astray.core.errors import DataError
from astray.core.times import moment, seconds_of
from astray.readers import jsontext
from astray.readers.positions import Position
from astray.readers.refusals import Intake, Progress

BESIDE = ("Settings.json", "Timeline Edits.json", "Tombstones.csv", "Encrypted Backups.txt", "archive_browser.html")
"""Files that Takeout puts beside the history, and which hold none."""

_OWN_FOLDERS = re.compile(r"Takeout|.*Location History.*|[0-9]{4}|Timeline", re.IGNORECASE)
_KEYS = re.compile(r'"(timelineObjects|semanticSegments|rawSignals|latitudeE7|timelinePath|topCandidate)"\s*:')
_RECORDS = re.compile(r'^\s*\{\s*"locations"\s*:\s*\[')
_POINT = re.compile(r"(?:geo:)?\s*(-?[0-9.]+)\s*°?\s*,\s*(-?[0-9.]+)\s*°?")
_AHEAD = re.compile(r"T.*([+-])([0-9]{2}):?([0-9]{2})$")
E7 = 1e7


def is_takeout(text: str) -> bool:
    """Whether the beginning of a JSON file is a location history of Google."""
    return _KEYS.search(text) is not None and '"FeatureCollection"' not in text


def owner(file: Path) -> str:
    """Whose history it is: the name of the folder above those that Takeout makes."""
    folders = [folder.name for folder in file.resolve().parents]
    return next((name for name in folders if name and not _OWN_FOLDERS.fullmatch(name)), folders[0])


def chosen(files: Sequence[Path], intake: Intake) -> list[Path]:
    """The records where there are some, else the monthly files, which tell the same a second time."""
    records = [file for file in files if file.name == "Records.json"]
    owners = {owner(file) for file in records}
    kept = [file for file in files if file in records or owner(file) not in owners]
    for file in files:
        if file not in kept:
            intake.leave_out(file, None, "Records.json beside it holds the same, in more detail")
    return kept


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """The fixes of a history: of an activity segment one trip, all others are cut into trips."""
    with open(file, encoding="utf-8-sig", errors="replace") as stream:
        is_records = _RECORDS.match(stream.read(4096)) is not None
    if is_records:
        yield from _records(file, intake)
        return
    document = jsontext.loaded(file)
    if isinstance(document, list):
        yield from _each(file, document, "entry", intake, _segment)
    elif isinstance(document, dict) and isinstance(document.get("timelineObjects"), list):
        yield from _each(file, document["timelineObjects"], "entry", intake, _month)
    elif isinstance(document, dict) and document.get("semanticSegments"):
        if document.get("rawSignals"):
            intake.report.note(f"{file}: rawSignals, the last weeks in more detail, are not read")
        yield from _each(file, document["semanticSegments"], "entry", intake, _segment)
    elif isinstance(document, dict) and document.get("rawSignals"):
        yield from _each(file, document["rawSignals"], "entry", intake, _signal)
    else:
        remedy = "give Records.json, a monthly file or Timeline.json"
        raise DataError("no location history of Google in it", remedy=remedy)


def _each(file: Path, found: Any, unit: str, intake: Intake, read: Any) -> Iterator[Position]:
    """The positions of each entry; those that cannot be understood are refused by their number."""
    for row, entry in enumerate(found, start=1):
        try:
            if not isinstance(entry, dict):
                raise DataError("an entry that is no object", remedy="export the history again")
            some = list(read(row, entry))
        except DataError as error:
            intake.refuse(file, row, error.reason, error.remedy, unit=unit)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            detail = f" ({str(error)[:60]} is missing)" if isinstance(error, KeyError) else f" ({str(error)[:60]})"
            intake.refuse(file, row, "an entry of another form", "export the history again", detail=detail, unit=unit)
        else:
            if not some:
                intake.leave_out(file, row, _without(entry), unit=unit)
            yield from some


def _without(entry: Mapping[str, Any]) -> str:
    """Why an entry has no fixes."""
    if "placeVisit" in entry or "visit" in entry:
        return "a visit, which is no way"
    return "an entry without positions and times"


def _records(file: Path, intake: Intake) -> Iterator[Position]:
    def read(row: int, entry: Mapping[str, Any]) -> Iterator[Position]:
        if "latitudeE7" in entry and "longitudeE7" in entry:
            lat, lon = _e7(entry["latitudeE7"]), _e7(entry["longitudeE7"])
            yield Position(row, None, "", _time(entry, "timestamp"), lat, lon)

    return _each(file, jsontext.entries(file, _RECORDS), "entry", intake, read)


def _month(row: int, entry: Mapping[str, Any]) -> Iterator[Position]:
    """An activity segment: where it began, the places on its way that have times, where it ended."""
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
    """A segment of a phone's timeline: the places on its way, and where an activity began and ended."""
    ahead = _ahead(entry)
    for point in entry.get("timelinePath") or []:
        if "time" in point:
            time = seconds_of(point["time"])
        else:
            time = seconds_of(entry["startTime"]) + 60.0 * float(point["durationMinutesOffsetFromStartTime"])
        yield Position(row, None, "", time, *_place(point["point"]), ahead)
    activity = entry.get("activity")
    if activity:
        for which in ("start", "end"):
            if activity.get(which):
                yield Position(row, None, "", seconds_of(entry[f"{which}Time"]), *_place(activity[which]), ahead)


def _ahead(entry: Mapping[str, Any]) -> float | None:
    """Seconds that the phone's clock was ahead of UTC; None if the entry does not say it.

    >>> _ahead({"startTime": "2024-06-01T08:00:00.000+01:00"}), _ahead({"startTime": "2024-06-01T08:00:00Z"})
    (3600.0, None)
    """
    minutes = entry.get("startTimeTimezoneUtcOffsetMinutes")
    if minutes is not None:
        return 60.0 * float(minutes)
    said = _AHEAD.search(str(entry.get("startTime", "")))
    return None if said is None else float(f"{said[1]}1") * (3600.0 * int(said[2]) + 60.0 * int(said[3]))


def _signal(row: int, entry: Mapping[str, Any]) -> Iterator[Position]:
    position = entry.get("position")
    if position:
        yield Position(row, None, "", seconds_of(position["timestamp"]), *_place(position["LatLng"]))


def _time(entry: Mapping[str, Any], name: str) -> float:
    """A time as new exports write it (text), or as old ones do (text of milliseconds)."""
    return seconds_of(entry[name]) if name in entry else float(entry[f"{name}Ms"]) / 1e3


def _e7(value: int) -> float:
    """Degrees of ten-millionths; some old exports let negative ones overflow.

    >>> _e7(411456789), _e7(4208967296)
    (41.1456789, -8.6)
    """
    return (value - 2**32 if value > 180 * E7 else value) / E7


def _place(said: Any) -> tuple[float, float]:
    """Latitude and longitude of a text, or of a place that holds it.

    >>> _place("48.8583°, 2.2945°"), _place("geo:48.8583,-2.2945"), _place({"latLng": "1.5°, 2.5°"})
    ((48.8583, 2.2945), (48.8583, -2.2945), (1.5, 2.5))
    """
    text = said.get("latLng", "") if isinstance(said, dict) else str(said)
    found = _POINT.fullmatch(text)
    if found is None:
        raise DataError(f"a place that is none ({text[:40]})", remedy="export the history again")
    return float(found[1]), float(found[2])
