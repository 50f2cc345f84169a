"""Events as JSON lines, numbered, so that whoever reads them after a restart can tell what it has read before."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TextIO

from astray.live.score import Score, Stretch, TripScore, moment

ASPECTS = {  # what is said where an aspect is the lowest
    "behaviour": "unusual behaviour",
    "place": "an unusual place",
    "route": "an unusual way",
    "manner": "an unusual manner of moving",
    "time": "an unusual time",
}


_ENCODER = json.JSONEncoder(allow_nan=False)


class Events:
    """Writes events, each with the next number; those that ``out`` holds already (up to ``written``) are left out."""

    def __init__(self, out: TextIO, sequence: int = 0, written: int = 0) -> None:
        self.out, self.sequence, self.written = out, sequence, written
        self.fresh = False

    def say(self, event: str, **fields: Any) -> None:
        """Write one event."""
        self.sequence += 1
        if self.sequence <= self.written:
            return
        said = {"sequence": self.sequence, "event": event, **fields}
        self.out.write(_ENCODER.encode({k: _plain(v) for k, v in said.items()}) + "\n")
        self.fresh = True

    def flush(self) -> None:
        """Hand on what was written."""
        if self.fresh:
            self.out.flush()
            self.fresh = False


def reopen(path: Path) -> tuple[TextIO, int]:
    """Open a file of events to append to it, and the number of the last event in it; a half-written line is cut off.

    With it a watch that writes to a file writes every event exactly once, however often it is killed::

        out, written = reopen(path)
        watch(model, lines, out, state=state, written=written)

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "events.jsonl")
    ...     _ = path.write_text('{"sequence": 1, "event": "score"}\\n{"sequence": 2, "ev')
    ...     out, written = reopen(path)
    ...     out.close()
    ...     path.read_text(), written
    ('{"sequence": 1, "event": "score"}\\n', 1)
    """
    path.touch()
    last, whole = 0, 0
    with open(path, "rb+") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            try:
                last = max(last, int(json.loads(line)["sequence"]))
            except (ValueError, TypeError, KeyError):
                continue
        file.truncate(whole)
    return open(path, "a", encoding="utf-8"), last


def of_trip(trip: TripScore) -> dict[str, Any]:
    """A trip, as an event tells it."""
    fields = trip._asdict()
    stretch: Stretch | None = fields.pop("stretch")
    fields |= {"start": moment(trip.start), "end": moment(trip.end)}
    fields["because"] = "" if trip.decision == "normal" else ASPECTS.get(trip.aspect, f"unusual {trip.aspect}")
    fields |= {f"stretch_{name}": value for name, value in _stretch(stretch).items()}
    return fields


def of_alert(score: Score, trip: TripScore) -> dict[str, Any]:
    """How an alert stands."""
    return {
        "agent": trip.agent,
        "trip": trip.trip,
        "time": moment(score.time),
        "decision": score.alert or None,
        "window": score.window,
        "normality": trip.normality,
        "uncertainty": trip.uncertainty,
        "p_value": trip.p_value,
        "aspect": trip.aspect,
        "because": ASPECTS.get(trip.aspect, f"unusual {trip.aspect}"),
        "history": trip.history,
        **{f"stretch_{name}": value for name, value in _stretch(score.stretch or trip.stretch).items()},
    }


def of_fix(agent: str, score: Score) -> dict[str, Any]:
    """The score of a fix."""
    trip = score.trip
    return {
        "agent": agent,
        "trip": None if trip is None else trip.trip,
        "time": moment(score.time),
        "normality": score.normality,
        "uncertainty": score.uncertainty,
        "aspect": score.aspect or None,
        "window": score.window,
        "alert": score.alert or None,
        "trip_normality": None if trip is None else trip.normality,
        "trip_uncertainty": None if trip is None else trip.uncertainty,
        "p_value": None if trip is None else trip.p_value,
    }


def _stretch(stretch: Stretch | None) -> dict[str, Any]:
    if stretch is None:
        return {"start": None, "end": None, "normality": None}
    return {"start": moment(stretch.start), "end": moment(stretch.end), "normality": stretch.normality}


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
