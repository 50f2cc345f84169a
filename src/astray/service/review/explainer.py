"""Explains flagged trips and alerts from the store, in a separate process."""

from __future__ import annotations

import warnings
import zlib
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from astray.core.errors import UnknownAgentWarning
from astray.core.threads import one_thread
from astray.explain import Explanation, Way
from astray.scoring.decisions import NORMAL
from astray.service import preferences, served_model
from astray.service.scoring.event_rows import trip_name
from astray.service.scoring.scorer import Scorer, stored_trip
from astray.service.store import Address, Connection, connect

MOST = 10  # explanations requested at a time
NO_WORDS = "no explanation could be made"


class Task(NamedTuple):
    """A trip to explain or, for an alert, the beginning of the trip until the alert opened."""

    agent: str
    trip: str
    alert: str = ""  # the id of the alert, if an alert is explained


class Made(NamedTuple):
    """A finished explanation."""

    words: str  # one line
    data: bytes  # everything, as compressed JSON


def explanations_to_make(connection: Connection) -> list[Task]:
    """Lists the trips and alerts that need an explanation."""
    trips = connection.rows("SELECT agent, trip FROM scores WHERE data IS NULL ORDER BY agent, trip LIMIT ?", (MOST,))
    alerts = connection.rows("SELECT agent, trip, id FROM alerts WHERE told = '' ORDER BY at, id LIMIT ?", (MOST,))
    return [*(Task(*row) for row in alerts), *(Task(*row) for row in trips)]


class Explainer:
    """Explains trips in the separate process, with a connection that only reads."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Connection | None = None

    def __call__(self, task: Task) -> Made | None:
        """Explains a trip of the store; returns None if the trip is gone."""
        if self._connection is None:
            self._connection = connect(self._address, write=False)
        with one_thread():
            return explain(self._connection, task)


@lru_cache(2)
def _model(connection: Connection, version: int) -> served_model.ServedModel:
    return served_model.ServedModel.open(connection, version)


def explain(connection: Connection, task: Task) -> Made | None:
    """Explains a trip by the model and memory that scored it."""
    found = _of_alert(connection, task) if task.alert else _of_trip(connection, task)
    if found is None:
        return None
    model = _model(connection, found.model)
    model.read_again(connection)
    model.detector.false_alarm_rate = preferences.load(connection).false_alarm_rate
    detector = model.detector if found.member is None else model.as_of(task.agent, found.member)
    trip = stored_trip(connection, task.agent, task.trip, found.start, found.end)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownAgentWarning)  # the first trip of an agent
        return packed(detector.explain(trip)) if trip.n_rows else None


class _Found(NamedTuple):
    """The part of a trip to explain, and the model that explains it."""

    start: float
    end: float
    model: int
    member: bytes | None  # the agent's memory at that time; None for the current one


def _of_trip(connection: Connection, task: Task) -> _Found | None:
    row = connection.row(
        "SELECT t.started, t.ended, t.model, s.member FROM trips t LEFT JOIN scores s "
        "ON s.agent = t.agent AND s.trip = t.trip WHERE t.agent = ? AND t.trip = ?",
        (task.agent, task.trip),
    )
    if row is None:
        return None
    start, end, model, member = row
    if not connection.rows("SELECT 1 FROM models WHERE version = ? LIMIT 1", (model,)):  # a newer one has replaced it
        model = served_model.version_in_use(connection)
    return _Found(start, end, int(model), None if member is None else bytes(member))


def _of_alert(connection: Connection, task: Task) -> _Found | None:
    row = connection.row("SELECT began, opened FROM alerts WHERE id = ?", (task.alert,))
    if row is None:
        return None
    pin = connection.row("SELECT model, data FROM pins WHERE agent = ?", (task.agent,))
    if pin is not None:
        return _Found(row[0], row[1], int(pin[0]), bytes(pin[1]))
    return _Found(row[0], row[1], served_model.version_in_use(connection), None)


def packed(explanation: Explanation) -> Made:
    """Packs an explanation as the page expects it."""
    e = explanation

    def numbers(values: Any, digits: int) -> list[float | None]:
        return [round(v, digits) if np.isfinite(v) else None for v in np.asarray(values, float).tolist()]

    ways = [{"type": "Feature", "properties": {"trips": 1}, "geometry": _line(way)} for way in e.habitual]
    whole = {
        "words": list(e.words) or ([e.lowest] if e.lowest else []),
        "eps": round(e.eps, 4),
        "leave": round(e.leave, 4),
        "rates": e.rates,
        "history": e.history,
        "track": {
            "time": e.time.tolist(),
            "lat": e.lat.tolist(),
            "lon": e.lon.tolist(),
            "n": numbers(e.normality, 3),
            "low": numbers(e.lo, 3),
            "high": numbers(e.hi, 3),
            "fault": e.fault.tolist(),
            "passed": numbers(e.passed, 1),
        },
        "segments": [
            {"start": s.start_time, "end": s.end_time, "normality": round(s.normality, 3), "words": str(s)}
            for s in e.segments
        ],
        "ways": {"type": "FeatureCollection", "features": ways},
        "expected": _line(e.expected[0]) if e.expected else None,
    }
    words = (
        "; ".join(reason.words for reason in e.reasons[:2]) or e.lowest or ("" if e.decision == NORMAL else "unusual")
    )
    return Made(words, zlib.compress(msgspec.json.encode(whole), 6))


def _line(way: Way) -> dict[str, Any]:
    """Returns a way as GeoJSON."""
    lat, lon = way
    return {"type": "LineString", "coordinates": np.round(np.column_stack([lon, lat]), 6).tolist()}


def unpacked(data: bytes) -> dict[str, Any]:
    """Unpacks an explanation."""
    found: dict[str, Any] = msgspec.json.decode(zlib.decompress(data))
    return found


def write_explanation(scorer: Scorer, task: Task, made: Made | None) -> None:
    """Stores an explanation, or that there is none; then decides whether the alert is sent."""
    if task.alert:
        scorer.tell(task.alert, "" if made is None else made.words)
        return
    words, data = (NO_WORDS, zlib.compress(b"{}")) if made is None else made
    scorer.connection.run(
        "UPDATE scores SET data = ?, member = NULL WHERE agent = ? AND trip = ?", (data, task.agent, task.trip)
    )
    scorer.connection.run("UPDATE trips SET words = ? WHERE agent = ? AND trip = ?", (words, task.agent, task.trip))
    scorer.news.append(("review", trip_name(task.agent, task.trip)))
