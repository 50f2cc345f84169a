"""JSON lines: one fix a line, as the live feed takes them; also what OwnTracks publishes and its recorder stores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from astray.errors import DataError
from astray.fixes import label, parts
from astray.readers.grouping import in_trips
from astray.readers.positions import JsonOptions, Position, trajectories_of
from astray.readers.refusals import FilePath, Intake, Progress, Report, share_of
from astray.readers.text import blocks_of_lines
from astray.trajectories import Trajectories

SUFFIXES = (".jsonl", ".ndjson")


def read_jsonlines(
    path: FilePath,
    *more: FilePath,
    skip_bad: bool = False,
    report: Report | None = None,
    progress: Progress | None = None,
    trips: str | None = None,
    options: JsonOptions | None = None,
) -> Trajectories:
    """Read files of JSON lines: ``{"agent": "ana", "time": 1372636858, "lat": 41.15, "lon": -8.61}``.

    The names that tables use are understood. Of OwnTracks the messages of ``_type`` location are read: ``tst`` is the
    time, and the agent is what the ``topic`` says (``owntracks/ana/phone`` is ana/phone), else the ``tid``; other
    messages are left out and counted, and encrypted ones are refused.
    """
    options = options or JsonOptions()
    files = [Path(p) for p in (path, *more)]
    found: list[Trajectories] = []
    with Intake(skip_bad, report) as intake:
        for i, file in enumerate(files):
            with intake.sparing_the_rest(file, of=len(files)):
                positions = list(_positions(file, options, intake, share_of(progress, i, len(files))))
                if not positions:
                    raise intake.nothing(file, "line")
                found.append(trajectories_of(file, positions, options, intake, unit="line"))
        if not found:
            raise intake.nothing(files[0], "line")
        return in_trips(Trajectories.concat(found), trips, intake)


def is_jsonlines(path: Path, text: str) -> bool:
    """Whether the beginning of a file is JSON lines: its first line is an object by itself, and not GeoJSON."""
    if path.suffix.lower() in SUFFIXES:
        return True
    first, more, _ = text.partition("\n")
    try:
        said = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and ("_type" in said or (bool(more) and "type" not in said))


def _positions(file: Path, options: JsonOptions, intake: Intake, progress: Progress | None) -> Iterator[Position]:
    owner, row = options.owner(file), 0
    for block in blocks_of_lines(file, intake, progress=progress):
        for text in block.decode("utf-8").removeprefix("\ufeff").splitlines():
            row += 1
            if not text.strip():
                continue
            try:
                said = _object(text)
                if said.get("_type", "location") != "location":
                    intake.leave_out(file, row, f"a message of OwnTracks that is no location ({said['_type']!s:.20})")
                    continue
                yield _position(said, row, owner)
            except DataError as error:
                intake.refuse(file, row, error.reason, error.remedy, unit="line")


def _object(text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON ({str(error)[:80]})", remedy="write the line again") from error
    if not isinstance(said, dict):
        raise DataError("not a JSON object", remedy='write a fix as {"time": 0, "lat": 45, "lon": 7}')
    if said.get("_type") == "encrypted":
        raise DataError("an encrypted message of OwnTracks", remedy="decrypt it first")
    return said


def _position(said: Mapping[str, Any], row: int, owner: str) -> Position:
    found, _ = parts(said)
    agent = owner if found.get("agent") in (None, "") else label("agent", found["agent"])
    trip = "" if found.get("trajectory") in (None, "") else label("trajectory", found["trajectory"])
    return Position(row, agent, trip, found.get("time"), found.get("lat"), found.get("lon"))
