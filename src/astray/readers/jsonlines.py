"""JSON lines: one fix per line, as in the live feed, or a list of fixes; also from OwnTracks and Traccar.

A line may begin with the time and kind of message, which the Recorder of OwnTracks writes into its store
(``rec/ana/phone/2024-05.rec``), or with the topic, which ``mosquitto_sub -v`` writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from astray.core.errors import DataError
from astray.core.fixes import no_location, optional_label, split_fix
from astray.readers import geojson
from astray.readers.column_roles import marked_bad
from astray.readers.json_files import iter_list
from astray.readers.position_files import Position, position_reader
from astray.readers.read_report import Intake, Progress
from astray.readers.text_files import decoded, first_bytes, numbered_lines

SUFFIXES = (".jsonl", ".ndjson", ".geojsonl", ".rec")
STORE = ".rec"
_GEOJSON = ("Feature", "FeatureCollection")
# A list, or an object that contains one: the Recorder of OwnTracks answers in this form, and apps export it.
_LIST = re.compile(r"^\s*(?:\{[^\[\]{}]*\"(?:data|locations|positions|points)\"\s*:\s*)?\[\s*(?=[{\]])")
_BEFORE = re.compile(r"(?:[0-9-]{10}T[0-9:.]+Z\s+[^{\n]*|(?P<topic>[^\s{\"',;]+/[^\s{\"',;]+)\s)\s*(?=\{)")


def is_jsonlines(path: Path, text: str) -> bool:
    """Returns True if the text begins as a list, or if its first line is a whole object and not GeoJSON."""
    if path.suffix.lower() in SUFFIXES or _LIST.match(text) or _BEFORE.match(text):
        return bool(text)
    first, end, more = text.partition("\n")
    try:
        entry = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(entry, dict) and ("_type" in entry or bool(more.strip()) or (bool(end) and "type" not in entry))


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """Yields the fixes of JSON lines: ``{"agent": "ana", "time": 1372636858, "lat": 41.15, "lon": -8.61}``.

    The reader knows the names that tables use. Of OwnTracks it reads the messages of ``_type`` location: ``tst`` is the
    time, and the agent comes from the ``topic`` (``owntracks/ana/phone`` is ana/phone), else from the ``tid``; it skips
    other messages, and positions that Traccar marks as not valid. An encrypted message is an error.
    """
    is_list = _LIST.match(decoded(file, first_bytes(file), None).lstrip("\ufeff")) is not None
    unit = "entry" if is_list else "line"
    lines = ((row, line) for row, line in numbered_lines(file, intake, progress) if line.strip())
    for row, written in enumerate(iter_list(file, _LIST), start=1) if is_list else lines:
        try:
            entry = _object(_with_topic(file, written))
            if reason := no_location(entry):
                intake.skip(file, row, reason)
            elif reason := marked_bad(entry):
                intake.skip(file, row, reason, unit=unit)
            elif entry.get("type") in _GEOJSON or isinstance(entry.get("locations"), list):  # Overland sends the latter
                for feature in geojson.features(entry):
                    yield from geojson.fixes(feature, row, f"{file.stem}-{row}")
            else:
                fix = split_fix(entry)
                agent, trip = optional_label("agent", fix.agent), optional_label("trajectory", fix.trajectory)
                yield Position(row, agent or None, trip, fix.time, fix.lat, fix.lon)
        except DataError as error:
            intake.refuse(file, row, error.reason, error.remedy, unit=unit)


def _with_topic(file: Path, written: Any) -> Any:
    """Returns a line; adds the topic, which names the sender, if it precedes the JSON or is in the file's path."""
    before = _BEFORE.match(written) if isinstance(written, str) else None
    if before is None:
        return written
    entry = _object(written[before.end() :])
    user, device = file.resolve().parts[-3:-1] if file.suffix == STORE else ("", "")
    topic = before["topic"] or f"owntracks/{user}/{device}"
    return {"topic": topic, **entry} if before["topic"] or user else entry


def _object(written: Any) -> dict[str, Any]:
    if isinstance(written, str):
        try:
            written = json.loads(written)
        except (ValueError, RecursionError) as error:
            raise DataError(f"not JSON ({str(error)[:80]})", remedy="write the line again") from error
    if not isinstance(written, dict):
        raise DataError("not a JSON object", remedy='write a fix as {"time": 0, "lat": 45, "lon": 7}')
    if written.get("_type") == "encrypted":
        raise DataError("an encrypted message of OwnTracks", remedy="decrypt it first")
    return written


READER = position_reader(positions, "line", lambda sample: is_jsonlines(sample.name, sample.text), SUFFIXES)
