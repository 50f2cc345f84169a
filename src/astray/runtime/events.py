"""Writes events as numbered JSON lines; after a restart the numbers tell a reader which events it has read before."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from astray.core.atomic import changing
from astray.core.errors import DataError
from astray.core.zones import Zone
from astray.explain import ASPECTS
from astray.runtime.live_scores import LiveSegment, Score, TripScore
from astray.scoring.scores import p_name

BEGINNING = b'{"sequence": '
"""The first bytes of every event, and so of every file of events."""

_ENCODER = json.JSONEncoder(allow_nan=False)


class Events:
    """Writes events to ``out``, each with the next number, and skips those that ``out`` holds already.

    ``standing`` are the numbers and lines of the events in ``out`` after number ``sequence``. As long as incoming
    events equal these, in that order, they are not written again. The first one that differs is new: it and all further
    events are numbered after those in ``out``.
    """

    def __init__(self, out: TextIO, sequence: int = 0, standing: Iterable[tuple[int, str]] = ()) -> None:
        self.out, self.sequence, self.standing = out, sequence, iter(standing)
        self.fresh = self.unsafe = False  # True if something was written since the last flush, the last sync

    def say(self, event: str, **fields: Any) -> None:
        """Writes one event."""
        text = _ENCODER.encode({"event": event, **{k: _plain(v) for k, v in fields.items()}})
        for number, line in self.standing:
            self.sequence = number
            if line == _numbered(number, text):
                return
        self.sequence += 1
        self.out.write(_numbered(self.sequence, text))
        self.fresh = self.unsafe = True

    def flush(self, durable: bool = False) -> None:
        """Flushes what was written; ``durable`` also syncs the file to disk, as a state will count these events."""
        if self.fresh:
            self.out.flush()
            self.fresh = False
        if durable and self.unsafe:
            if _is_file(self.out):
                os.fsync(self.out.fileno())
            self.unsafe = False


@contextmanager
def reopened(path: Path, after: int | None = None) -> Iterator[Events]:
    """Opens a file to append events to it, and cuts off a half-written line at its end.

    A restart repeats the events after number ``after``; those that the file holds already are not written a second
    time. By default every event is new, and numbered after the last one. Only one process can append to a file.

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
            reason, remedy = "it does not hold events", "name another file for the events"
            raise DataError(reason, place=path, remedy=remedy)
        file.seek(0)
        file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))


def _is_file(out: TextIO) -> bool:
    """Returns True for a file that can be synced to disk, unlike a pipe or an object without a file number."""
    try:
        return stat.S_ISREG(os.fstat(out.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _standing(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the numbers and lines of the events in a file, which may be long; skips other lines."""
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            with suppress(ValueError, RecursionError):
                event = json.loads(line)
                if isinstance(event, dict) and type(number := event.get("sequence")) is int:
                    yield number, line


def _numbered(number: int, text: str) -> str:
    return f'{{"sequence": {number}, {text[1:]}\n'


def of_trip(trip: TripScore, zone: Zone) -> dict[str, Any]:
    """Returns the fields of an event about a finished trip, with times in a zone."""
    fields: dict[str, Any] = {"agent": trip.agent, "trip": trip.trip} | trip._asdict()
    del fields["id"], fields["segment"], fields["p_aspects"]
    fields |= {"start": zone.iso(trip.start), "end": zone.iso(trip.end), "zone": str(zone)}
    why = _because(trip) if trip.history > 0 else "no past trip of this agent"
    fields["because"] = "" if trip.decision == "normal" else why
    return fields | _of_aspects(trip) | _segment(trip.segment, zone)


def of_alert(score: Score, trip: TripScore, zone: Zone) -> dict[str, Any]:
    """Returns the fields of an event about an alert."""
    return {
        "agent": trip.agent,
        "trip": trip.trip,
        "time": zone.iso(score.time),
        "zone": str(zone),
        "decision": score.alert or None,
        "normality": trip.normality,
        "uncertainty": trip.uncertainty,
        "p_value": trip.p_value,
        **_of_aspects(trip),
        "aspect": trip.aspect,
        "because": _because(trip),
        "history": trip.history,
        **_segment(score.segment or trip.segment, zone),
    }


def of_fix(agent: str, score: Score, zone: Zone) -> dict[str, Any]:
    """Returns the fields of an event about the score of a fix."""
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


def _of_aspects(trip: TripScore) -> dict[str, float | None]:
    """Returns the p-values of the aspects under the names that they have in tables."""
    return {p_name(aspect): trip.p_aspects.get(aspect) for aspect in ASPECTS}


def _because(trip: TripScore) -> str:
    return ASPECTS.get(trip.aspect, f"unusual {trip.aspect}")


def _segment(segment: LiveSegment | None, zone: Zone) -> dict[str, Any]:
    start, end, normality = segment or (None, None, None)
    times = {f"segment_{name}": None if t is None else zone.iso(t) for name, t in (("start", start), ("end", end))}
    return {**times, "segment_normality": normality}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
