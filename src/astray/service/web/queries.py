"""Reads what the page shows, as plain values for JSON: agents, ways, trips, the review queue, alerts."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from astray.core.zones import UTC_ZONE, Zone
from astray.service.review.explainer import unpacked
from astray.service.review.review_queue import DOUBT, QUESTION
from astray.service.scoring.event_rows import Alert, finite, trip_name, trip_of
from astray.service.scoring.scorer import P_ASPECTS, TRIP
from astray.service.scoring.tracking import Tracked
from astray.service.store import Connection

Json = dict[str, Any]

LEARNING = 5  # past trips below which the service is still learning an agent
SILENT = 1200.0  # seconds without a fix after which a moving agent is silent
IN_DOUBT = "not flagged, but not learned: too many trips were flagged lately"
WAYS, WAY_POINTS = 30, 60  # habitual ways, and points of each
AGENT = "agent, time, lat, lon, arrived, trip, normality, alert, trips, zone, paused_until"


def zone_of(text: str) -> Zone:
    """Returns the time zone that the store names."""
    return Zone.of(text) if text else UTC_ZONE


def _state(trip: str | None, alert: str | None, past: int, arrived: float, now: float) -> str:
    if alert is not None:
        return "alert"
    if trip is not None:
        return "silent" if now - arrived > SILENT else "moving"
    return "learning" if past < LEARNING else "at rest"


def agent_of(tracked: Tracked, now: float) -> Json:
    """Returns an agent as the list of agents shows it, from its stream in memory."""
    t = tracked
    row = (t.agent, t.newest, *t.place, t.arrived, t.open_trip, finite(t.normality), t.alert, t.past, str(t.zone), None)
    found = _agent(row, now)
    del found["paused_until"]  # only the store knows it
    return found


def _agent(row: Sequence[Any], now: float) -> Json:
    agent, time, lat, lon, arrived, trip, normality, alert, past, zone, paused = row
    return {
        "agent": agent,
        "state": _state(trip, alert, past, arrived, now),
        "time": time,
        "local": zone_of(zone).iso(time),
        "zone": zone,
        "lat": lat,
        "lon": lon,
        "trips": past,
        "normality": normality,
        "alert": alert,
        "trip": None if trip is None else trip_name(agent, trip),
        "paused_until": paused,
    }


def among(column: str, only: Sequence[str] | None) -> tuple[str, tuple[str, ...]]:
    """Returns an SQL condition for some agents, and its values; None: all agents.

    >>> among("agent", None), among("agent", ["ana", "bob"])
    (('true', ()), ('agent IN (?, ?)', ('ana', 'bob')))
    """
    if only is None:
        return "true", ()
    return (f"{column} IN ({', '.join('?' * len(only))})", tuple(only)) if only else ("false", ())


def agents(
    connection: Connection,
    now: float,
    query: str = "",
    limit: int = 1000,
    offset: int = 0,
    only: Sequence[str] | None = None,
) -> Json:
    """Lists the agents whose names contain a text, by name."""
    where, values = among("agent", only)
    # Compares the name with and without the text, because in a LIKE pattern some characters are special.
    if query:
        where, values = f"{where} AND replace(lower(agent), ?, '') <> lower(agent)", (*values, query.lower())
    asked = f"SELECT {AGENT} FROM agents WHERE {where} ORDER BY agent LIMIT ? OFFSET ?"
    rows = connection.rows(asked, (*values, limit, offset))
    total = connection.value(f"SELECT count(*) FROM agents WHERE {where}", values)
    return {"agents": [_agent(row, now) for row in rows], "total": total}


# -------------------------------------------------------------------- trips

_TRIPS = (
    f"SELECT {', '.join(f't.{name}' for name in TRIP)}, a.zone "
    "FROM trips t JOIN agents a ON a.agent = t.agent WHERE t.agent = ?"
)
NO_WAYS: Json = {"type": "FeatureCollection", "features": []}
UNEXPLAINED: Json = {"eps": None, "leave": None, "rates": {}, "segments": [], "ways": NO_WAYS, "expected": None}


def _trip(row: Sequence[Any]) -> Json:
    """Returns a row of :data:`_TRIPS` as lists show it."""
    t = dict(zip((*TRIP, "zone"), row, strict=True))
    name = trip_name(t["agent"], t["trip"])
    same = ("agent", "zone", "score", "p_value", *P_ASPECTS, "uncertainty", "decision", "aspect", "fixes", "faults")
    return {
        "id": name,
        "kind": "trip",
        "trips": [name],
        "start": t["started"],
        "end": t["ended"],
        "local": zone_of(t["zone"]).iso(t["started"]),
        "minutes": round((t["ended"] - t["started"]) / 60.0, 1),
        **{key: t[key] for key in (*same, "state")},
        "words": t["words"] or "",
        "late": bool(t["late"]),
    }


def trips(connection: Connection, agent: str, limit: int = 50, before: float | None = None) -> Json:
    """Lists the trips of an agent, newest first."""
    asked = f"{_TRIPS} AND t.started < ? ORDER BY t.started DESC LIMIT ?"
    rows = connection.rows(asked, (agent, 1e300 if before is None else before, limit))
    return {"trips": [_trip(row) for row in rows]}


def trip(connection: Connection, name: str, explanation: Json | None = None) -> Json | None:
    """Returns a trip with its track and its explanation, if there is one; None if there is no such trip."""
    agent, trajectory = trip_of(name)
    row = connection.row(f"{_TRIPS} AND t.trip = ?", (agent, trajectory))
    if row is None:
        return None
    found = _trip(row)
    data = connection.value("SELECT data FROM scores WHERE agent = ? AND trip = ?", (agent, trajectory))
    told = unpacked(bytes(data)) if data is not None else explanation or {}
    words = told.get("words") or ([found["words"]] if found["words"] else [])
    found |= UNEXPLAINED | {"open": False, "history": row[TRIP.index("history")]} | told | {"words": words}
    if "track" not in found:
        found["track"] = _track(connection, agent, found["start"], found["end"])
    found["verdict"] = _verdict(connection, name, zone_of(found["zone"]))
    return found


def _track(connection: Connection, agent: str, start: float, end: float) -> Json:
    asked = "SELECT time, lat, lon FROM fixes WHERE agent = ? AND time >= ? AND time <= ? ORDER BY time, n"
    rows = connection.rows(asked, (agent, start, end))
    numbers = dict.fromkeys(("n", "low", "high"), [None] * len(rows))
    of_fixes = {name: [row[i] for row in rows] for i, name in enumerate(("time", "lat", "lon"))}
    return of_fixes | numbers | {"fault": [""] * len(rows), "passed": []}


def _verdict(connection: Connection, item: str, zone: Zone) -> Json | None:
    row = connection.row("SELECT verdict, by, at, teaches_at, taught_at FROM reviews WHERE item = ?", (item,))
    if row is None or row[0] is None:
        return None
    verdict, by, at, teaches_at, taught_at = row
    told = {"verdict": verdict, "by": by, "local": zone.iso(at)}
    return told | {"teaches_at": teaches_at, "taught": taught_at is not None}


def open_trip(connection: Connection, name: str, now: float) -> Json | None:
    """Returns the open trip with this name, so far; None if there is none."""
    agent, trajectory = trip_of(name)
    row = connection.row(f"SELECT {AGENT} FROM agents WHERE agent = ? AND trip = ?", (agent, trajectory))
    if row is None:
        return None
    entry = _agent(row, now)
    asked = "SELECT max(ended) FROM trips WHERE agent = ?"
    after = connection.value(asked, (agent,))
    since = -1e300 if after is None else math.nextafter(after, math.inf)
    track = _track(connection, agent, since, entry["time"])
    start = track["time"][0] if track["time"] else entry["time"]
    return UNEXPLAINED | {
        **{"id": name, "agent": agent, "open": True, "start": start, "end": entry["time"], "zone": entry["zone"]},
        **{"local": zone_of(entry["zone"]).iso(start), "score": entry["normality"], "p_value": None},
        **dict.fromkeys(P_ASPECTS),
        **{"uncertainty": None, "decision": "open", "aspect": "", "words": [], "track": track, "verdict": None},
        **{"history": entry["trips"], "late": False, "minutes": round((entry["time"] - start) / 60.0, 1)},
    }


def ways(connection: Connection, agent: str) -> Json:
    """Returns the habitual ways of an agent: its last normal trips, thinned; similar ways are counted together."""
    asked = "SELECT started, ended FROM trips WHERE agent = ? AND state = 'learned' ORDER BY started DESC LIMIT ?"
    lines: dict[tuple[tuple[float, float], ...], Json] = {}
    for start, end in connection.rows(asked, (agent, WAYS)):
        log = "SELECT lon, lat FROM fixes WHERE agent = ? AND time >= ? AND time <= ? ORDER BY time, n"
        points = connection.rows(log, (agent, start, end))
        if len(points) < 2:
            continue
        rows = np.unique(np.linspace(0, len(points) - 1, min(len(points), WAY_POINTS)).astype(int)).tolist()
        line = [[round(points[i][0], 5), round(points[i][1], 5)] for i in rows]
        # Similar: the same start, middle and end to a hundredth of a degree, about a kilometre.
        like = tuple((round(line[i][0], 2), round(line[i][1], 2)) for i in (0, len(line) // 2, -1))
        if like in lines:
            lines[like]["properties"]["trips"] += 1
        else:
            geometry = {"type": "LineString", "coordinates": line}
            lines[like] = {"type": "Feature", "properties": {"trips": 1}, "geometry": geometry}
    return NO_WAYS | {"features": list(lines.values())}


# -------------------------------------------------------------------- review and alerts

_REVIEW = "SELECT r.item, r.kind, r.agent, r.trips, r.opened, a.zone FROM reviews r JOIN agents a ON a.agent = r.agent"


def review(connection: Connection, limit: int = 100, only: Sequence[str] | None = None) -> Json:
    """Lists what waits for a verdict, worst first and trips in doubt last, and verdicts that can be undone."""
    where, values = among("r.agent", only)
    asked = f"{_REVIEW} WHERE r.verdict IS NULL AND {where} "
    asked += "ORDER BY r.kind = ?, r.score IS NULL, r.score, r.item LIMIT ?"
    rows = connection.rows(asked, (*values, DOUBT, limit))
    total = connection.value(f"SELECT count(*) FROM reviews r WHERE r.verdict IS NULL AND {where}", values)
    undoable = connection.rows(
        "SELECT r.item, r.agent, r.verdict, r.teaches_at FROM reviews r "
        f"WHERE r.verdict IS NOT NULL AND r.taught_at IS NULL AND {where} ORDER BY r.at",
        values,
    )
    pending = [
        {"id": item, "agent": agent, "verdict": verdict, "teaches_at": at, "item": review_item(connection, item, True)}
        for item, agent, verdict, at in undoable
    ]
    items = [found for row in rows if (found := _item(connection, row)) is not None]
    return {"items": sorted(items, key=_worst), "total": total, "pending": pending}


def _worst(item: Json) -> tuple[bool, float, str]:
    return item["kind"] == DOUBT, math.inf if item["score"] is None else item["score"], item["id"]


def review_item(connection: Connection, item: str, decided: bool = False) -> Json | None:
    """Returns one item of the queue; None if it is not there. ``decided`` includes items with a verdict."""
    only = "" if decided else " AND r.verdict IS NULL"
    row = connection.row(f"{_REVIEW} WHERE r.item = ?{only}", (item,))
    return None if row is None else _item(connection, row)


def _item(connection: Connection, row: Sequence[Any]) -> Json | None:
    item, kind, agent, names, _, zone = row
    rows = [connection.row(f"{_TRIPS} AND t.trip = ?", (agent, name)) for name in json.loads(names)]
    found = [_trip(row) for row in rows if row is not None]
    if not found:
        return None
    worst = min(found, key=_worst)
    if kind != QUESTION:
        return worst | {"id": item, "kind": kind} | ({"words": IN_DOUBT} if kind == DOUBT else {})
    start, end = min(t["start"] for t in found), max(t["end"] for t in found)
    return worst | {
        **{"id": item, "kind": QUESTION, "trips": [t["id"] for t in found], "start": start, "end": end},
        **{"local": zone_of(zone).iso(start), "minutes": round(sum(t["minutes"] for t in found), 1)},
        "words": f"{len(found)} unusual trips are alike: a new habit?",
    }


_ALERT = (
    f"SELECT {', '.join('al.' + name for name in Alert._fields)}, a.zone "
    "FROM alerts al JOIN agents a ON a.agent = al.agent"
)


def _alert_of(row: Sequence[Any]) -> Json:
    alert, zone = Alert.of(row[:-1]), row[-1]
    return alert._asdict() | {
        "trip": trip_name(alert.agent, alert.trip),
        "local": zone_of(zone).iso(alert.opened),
        "zone": zone,
        "told": alert.told or "no",
    }


def alert(connection: Connection, name: str) -> Json | None:
    """Returns an alert; None if there is no such alert."""
    row = connection.row(f"{_ALERT} WHERE al.id = ?", (name,))
    return None if row is None else _alert_of(row)


def alerts(
    connection: Connection, *, only_open: bool = False, limit: int = 100, only: Sequence[str] | None = None
) -> Json:
    """Lists alerts, newest first."""
    where, values = among("al.agent", only)
    where += " AND al.closed IS NULL" if only_open else ""
    rows = connection.rows(f"{_ALERT} WHERE {where} ORDER BY al.opened DESC, al.id LIMIT ?", (*values, limit))
    total = connection.value(f"SELECT count(*) FROM alerts al WHERE {where}", values)
    return {"alerts": [_alert_of(row) for row in rows], "total": total}
