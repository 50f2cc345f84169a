"""JSON lines: one fix a line, as the live feed takes them, or a list of fixes; also those of OwnTracks and Traccar.

Before the JSON of a line may stand what OwnTracks' Recorder puts into its store (``rec/ana/phone/2024-05.rec``: the
time and the kind of message), or the topic, as ``mosquitto_sub -v`` writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from astray.core.errors import DataError
from astray.core.fixes import label, parts
from astray.readers import geojson, jsontext
from astray.readers.columns import marked_bad
from astray.readers.line_blocks import blocks_of_lines, decoded, opening
from astray.readers.positions import Position
from astray.readers.refusals import Intake, Progress

SUFFIXES = (".jsonl", ".ndjson", ".geojsonl", ".rec")
STORE = ".rec"
_GEOJSON = ("Feature", "FeatureCollection")
# A list, or one inside an object, as OwnTracks' Recorder answers and as apps export it.
_LIST = re.compile(r"^\s*(?:\{[^\[\]{}]*\"(?:data|locations|positions|points)\"\s*:\s*)?\[\s*(?=[{\]])")
_BEFORE = re.compile(r"(?:[0-9-]{10}T[0-9:.]+Z\s+[^{\n]*|(?P<topic>[^\s{\"',;]+/[^\s{\"',;]+)\s)\s*(?=\{)")


def is_jsonlines(path: Path, text: str) -> bool:
    """Whether the beginning of a file is a list, or its first line is an object by itself, and not GeoJSON."""
    if path.suffix.lower() in SUFFIXES or _LIST.match(text) or _BEFORE.match(text):
        return True
    first, end, more = text.partition("\n")
    try:
        said = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and ("_type" in said or bool(more.strip()) or (bool(end) and "type" not in said))


def positions(file: Path, intake: Intake, progress: Progress | None = None) -> Iterator[Position]:
    """The fixes of JSON lines: ``{"agent": "ana", "time": 1372636858, "lat": 41.15, "lon": -8.61}``.

    The names that tables use are understood. Of OwnTracks the messages of ``_type`` location are read: ``tst`` is the
    time, and the agent is what the ``topic`` says (``owntracks/ana/phone`` is ana/phone), else the ``tid``; other
    messages are left out and counted, and encrypted ones are refused. So are positions that Traccar marks as not valid.
    """
    is_list = _LIST.match(decoded(file, opening(file), None).lstrip("\ufeff")) is not None
    unit = "entry" if is_list else "line"
    found = enumerate(jsontext.entries(file, _LIST), start=1) if is_list else _lines(file, intake, progress)
    for row, said in found:
        try:
            said = _object(_with_topic(file, said))
            if said.get("_type", "location") != "location":
                intake.leave_out(file, row, f"a message of OwnTracks that is no location ({said['_type']!s:.20})")
            elif reason := marked_bad(said):
                intake.leave_out(file, row, reason, unit=unit)
            elif said.get("type") in _GEOJSON or isinstance(said.get("locations"), list):  # or what Overland sends
                for feature in geojson.features(said):
                    yield from geojson.fixes(feature, row, f"{file.stem}-{row}")
            else:
                yield _position(said, row)
        except DataError as error:
            intake.refuse(file, row, error.reason, error.remedy, unit=unit)


def _lines(file: Path, intake: Intake, progress: Progress | None) -> Iterator[tuple[int, str]]:
    row = 0
    for block in blocks_of_lines(file, intake, progress=progress):
        for text in block.decode("utf-8").removeprefix("\ufeff").splitlines():
            row += 1
            if text.strip():
                yield row, text


def _with_topic(file: Path, said: Any) -> Any:
    """A line; with the topic, that is whose message it is, where that stands before it or in the path of the store."""
    before = _BEFORE.match(said) if isinstance(said, str) else None
    if before is None:
        return said
    said = _object(said[before.end() :])
    user, device = file.resolve().parts[-3:-1] if file.suffix == STORE else ("", "")
    topic = before["topic"] or f"owntracks/{user}/{device}"
    return {"topic": topic, **said} if before["topic"] or user else said


def _object(said: Any) -> dict[str, Any]:
    if isinstance(said, str):
        try:
            said = json.loads(said)
        except (ValueError, RecursionError) as error:
            raise DataError(f"not JSON ({str(error)[:80]})", remedy="write the line again") from error
    if not isinstance(said, dict):
        raise DataError("not a JSON object", remedy='write a fix as {"time": 0, "lat": 45, "lon": 7}')
    if said.get("_type") == "encrypted":
        raise DataError("an encrypted message of OwnTracks", remedy="decrypt it first")
    return said


def _position(said: Mapping[str, Any], row: int) -> Position:
    found, _ = parts(said)
    agent = None if found.get("agent") in (None, "") else label("agent", found["agent"])
    trip = "" if found.get("trajectory") in (None, "") else label("trajectory", found["trajectory"])
    return Position(row, agent, trip, found.get("time"), found.get("lat"), found.get("lon"))
