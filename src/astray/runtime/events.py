"""Events as JSON lines, numbered, so that a reader can tell after a restart which of them it has read before."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from astray.core.atomic import changing
from astray.core.errors import DataError
from astray.core.zones import Zone
from astray.explain import ASPECTS
from astray.runtime.live_scores import LiveSegment, Score, TripScore

BEGINNING = b'{"sequence": '
"""How every event begins, and so a file of events."""

_ENCODER = json.JSONEncoder(allow_nan=False)


class Events:
    """Writes events, each with the next number; one that comes again is left out where it stands in ``out`` already.

    ``standing`` are the numbers and lines of events in ``out`` that come after number ``sequence``. As long as what
    comes is found there, in that order, it is not written again. What is not found is new: it is numbered after all of
    them, and from then on everything is.
    """

    def __init__(self, out: TextIO, sequence: int = 0, standing: Iterable[tuple[int, str]] = ()) -> None:
        self.out, self.sequence, self.standing = out, sequence, iter(standing)
        self.fresh = self.unsafe = False  # whether something was written since the last flush, the last sync

    def say(self, event: str, **fields: Any) -> None:
        """Write one event."""
        said = _ENCODER.encode({"event": event, **{k: _plain(v) for k, v in fields.items()}})
        for number, line in self.standing:
            self.sequence = number
            if line == _numbered(number, said):
                return
        self.sequence += 1
        self.out.write(_numbered(self.sequence, said))
        self.fresh = self.unsafe = True

    def flush(self, durable: bool = False) -> None:
        """Hand on what was written; ``durable``: a power cut must not lose it, for a state says that it is there."""
        if self.fresh:
            self.out.flush()
            self.fresh = False
        if durable and self.unsafe:
            if _is_file(self.out):
                os.fsync(self.out.fileno())
            self.unsafe = False


@contextmanager
def reopened(path: Path, after: int | None = None) -> Iterator[Events]:
    """Events that are appended to a file; a half-written line at its end is cut off.

    Those up to number ``after`` are known to be in the file; the later ones in it are not written a second time when
    they come again. By default nothing comes again: whatever comes is new, and numbered after the last one. A second
    process that would append to the file is refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "events.jsonl")
    ...     _ = path.write_text('{"sequence": 1, "event": "a"}\\n{"sequence": 2, "event": "b"}\\n{"sequence": 3, "ev')
    ...     with reopened(path, after=1) as events:
    ...         events.say("b")
    ...         events.say("c")
    ...     print(path.read_text(), end="")
    {"sequence": 1, "event": "a"}
    {"sequence": 2, "event": "b"}
    {"sequence": 3, "event": "c"}
    """
    path.touch()
    with changing(path, patience=0.0), open(path, "a", encoding="utf-8", newline="\n") as out:
        _cut_off_half_a_line(path)
        if after is None:
            yield Events(out, max((number for number, _ in _standing(path)), default=0))
        else:
            yield Events(out, after, (event for event in _standing(path) if event[0] > after))


def _cut_off_half_a_line(path: Path) -> None:
    with open(path, "rb+") as file:
        begun = file.read(len(BEGINNING))
        if not BEGINNING.startswith(begun):
            reason = "it holds something else than events"
            raise DataError(reason, place=path, remedy="name another file for the events")
        file.seek(0)
        file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))


def _is_file(out: TextIO) -> bool:
    """Whether there is a file to sync: a pipe has none, and what only looks like a file has no number."""
    try:
        return stat.S_ISREG(os.fstat(out.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _standing(path: Path) -> Iterator[tuple[int, str]]:
    """The numbers and lines of the events in a file, one at a time, for it may be long."""
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            number = _sequence(line)
            if number is not None:
                yield number, line


def _sequence(line: str) -> int | None:
    """The number of an event; None of a line that is somebody else's."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    number = said.get("sequence") if isinstance(said, dict) else None
    return number if type(number) is int else None


def _numbered(number: int, said: str) -> str:
    return f'{{"sequence": {number}, {said[1:]}\n'


def of_trip(trip: TripScore, zone: Zone) -> dict[str, Any]:
    """A trip, as an event tells it, in the local time of a zone."""
    fields: dict[str, Any] = {"agent": trip.agent, "trip": trip.trip} | trip._asdict()
    del fields["id"]
    segment: LiveSegment | None = fields.pop("segment")
    fields |= {"start": zone.iso(trip.start), "end": zone.iso(trip.end), "zone": str(zone)}
    why = ASPECTS.get(trip.aspect, f"unusual {trip.aspect}") if trip.history > 0 else "no past trip of this agent"
    fields["because"] = "" if trip.decision == "normal" else why
    fields |= {f"segment_{name}": value for name, value in _segment(segment, zone).items()}
    return fields


def of_alert(score: Score, trip: TripScore, zone: Zone) -> dict[str, Any]:
    """How an alert stands."""
    return {
        "agent": trip.agent,
        "trip": trip.trip,
        "time": zone.iso(score.time),
        "zone": str(zone),
        "decision": score.alert or None,
        "normality": trip.normality,
        "uncertainty": trip.uncertainty,
        "p_value": trip.p_value,
        "aspect": trip.aspect,
        "because": ASPECTS.get(trip.aspect, f"unusual {trip.aspect}"),
        "history": trip.history,
        **{f"segment_{name}": value for name, value in _segment(score.segment or trip.segment, zone).items()},
    }


def of_fix(agent: str, score: Score, zone: Zone) -> dict[str, Any]:
    """The score of a fix."""
    trip = score.trip
    return {
        "agent": agent,
        "trip": None if trip is None else trip.trip,
        "time": zone.iso(score.time),
        "zone": str(zone),
        "normality": score.normality,
        "uncertainty": score.uncertainty,
        "aspect": score.aspect or None,
        "alert": score.alert or None,
        "trip_normality": None if trip is None else trip.normality,
        "trip_uncertainty": None if trip is None else trip.uncertainty,
        "p_value": None if trip is None else trip.p_value,
    }


def _segment(segment: LiveSegment | None, zone: Zone) -> dict[str, Any]:
    if segment is None:
        return {"start": None, "end": None, "normality": None}
    return {"start": zone.iso(segment.start), "end": zone.iso(segment.end), "normality": segment.normality}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
