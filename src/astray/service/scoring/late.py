"""Cuts and scores stored trips again when late fixes belong to them; each of these trips raises at most one alert."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from astray.core.trip_ids import TripId
from astray.core.trips import Cutter, TripRules
from astray.runtime.agent_stream import AgentStream, Event, TripEnded
from astray.runtime.live_scores import TripScore
from astray.runtime.trip import OpenTrip
from astray.service.batches import FeedFix
from astray.service.review.teach import note_taught
from astray.service.scoring.event_rows import trip_name
from astray.service.scoring.scorer import FIX, Scorer, logged_fix, stored_trip
from astray.service.scoring.tracking import Tracked
from astray.service.store import Connection


def rescore_late(scorer: Scorer, now: float) -> list[str]:
    """Scores trips again for agents with late fixes; returns these agents."""
    asked = "SELECT agent FROM agents WHERE late_from IS NOT NULL ORDER BY agent LIMIT 20"
    agents = [str(agent) for (agent,) in scorer.connection.rows(asked)]
    scorer.now = now
    for agent in agents:
        _rescore(scorer, agent)
    return agents


def _rescore(scorer: Scorer, agent: str) -> None:
    """Cuts and scores an agent's trips again, from the first to the last that late fixes change."""
    before = scorer.tracked(agent)
    if before is None or before.late is None:
        return
    since = _begin(scorer, before, before.late[0])
    asked = "SELECT trip, started FROM trips WHERE agent = ? AND started >= ?"
    stored = {str(trip): float(started) for trip, started in scorer.connection.rows(asked, (agent, since))}
    logged = f"SELECT {FIX} FROM fixes WHERE agent = ? AND time >= ? ORDER BY time, n"
    log = [logged_fix(agent, row) for row in scorer.connection.rows(logged, (agent, since))]
    met = _first_unchanged(log, before.rules, set(stored.values()), before.late[1])
    # A trip must not be compared with itself.
    again = [trip for trip, started in stored.items() if started < met]
    scorer.served.unlearn([TripId(agent, trip) for trip in again])
    found: set[str] = set()

    def store(tracked: AgentStream, event: Event) -> None:
        if isinstance(event, TripEnded):
            assert isinstance(tracked, Tracked)
            found.add(event.trip.trip)
            _store(scorer, tracked, event.trip, event.was)

    after = Tracked(scorer.served.detector, agent, store)
    for fix in log:
        after.take(*fix.step)
        if after.open_since >= met:
            break
    _remove(scorer.connection, agent, [trip for trip in again if trip not in found])
    kept = before if math.isfinite(met) else _take_over(scorer, before, after)
    kept.late, kept.past = None, scorer.past(agent)
    scorer.touched[agent] = kept


def _begin(scorer: Scorer, tracked: Tracked, first: float) -> float:
    """Returns the start of the last stored trip before the first late fix, which may belong to it."""
    if tracked.open_since <= first:
        return tracked.open_since
    asked = "SELECT max(started) FROM trips WHERE agent = ? AND started <= ?"
    found = scorer.connection.value(asked, (tracked.agent, first))
    return first if found is None else float(found)


def _first_unchanged(log: Iterable[FeedFix], rules: TripRules, starts: Collection[float], last: float) -> float:
    """Returns the first start after the last late fix at which a stored trip begins, too: later trips are unchanged."""
    cutter, named = Cutter(rules), ""
    for fix in log:
        if fix.trip != named:
            cutter, named = Cutter(rules), fix.trip
        begun = cutter.update(fix.time, fix.lat, fix.lon, named=bool(named)).start
        if begun is not None and begun[0] > last and begun[0] in starts:
            return begun[0]
    return math.inf


def _store(scorer: Scorer, tracked: Tracked, trip: TripScore, was: OpenTrip) -> None:
    """Stores a trip that was scored again; a person's verdict stays valid."""
    flagged = scorer.store_trip(tracked, trip, was, late=True)
    verdict = scorer.connection.value(
        "SELECT verdict FROM reviews WHERE item = ? AND taught_at IS NOT NULL", (trip_name(*trip.id),)
    )
    if verdict in ("normal", "anomaly"):
        scorer.served.teach(stored_trip(scorer.connection, *trip.id, trip.start, trip.end), verdict == "normal")
        note_taught(scorer.connection, trip.agent, [trip.trip], verdict == "normal")
    alerted = "SELECT 1 FROM alerts WHERE agent = ? AND trip = ?"
    if flagged and trip.history >= scorer.served.detector.min_history and not scorer.connection.rows(alerted, trip.id):
        scorer.open_alert(trip, 1, trip.end, trip.decision, closed=True, late=True)


def _remove(connection: Connection, agent: str, trips: Iterable[str]) -> None:
    """Removes the trips that the new ones replace."""
    for trip in trips:
        connection.run("DELETE FROM reviews WHERE item = ? AND verdict IS NULL", (trip_name(agent, trip),))
        for table in ("trips", "scores"):
            connection.run(f"DELETE FROM {table} WHERE agent = ? AND trip = ?", (agent, trip))


def _take_over(scorer: Scorer, before: Tracked, after: Tracked) -> Tracked:
    """Continues the agent with the stream that includes the late fixes, and returns it."""
    for name in ("n", "newest", "place", "since", "arrived", "delay", "drift"):
        setattr(after, name, getattr(before, name))
    if after.open_trip == before.open_trip:
        after.alerting, after.alerts = before.alerting, before.alerts
    elif before.alerting:
        scorer.close_alert(before, before.open_trip or "", before.newest, "the trip is another one", before.alerts)
    scorer.connection.run("DELETE FROM pins WHERE agent = ?", (before.agent,))
    after.emit, after.turned = scorer.record, True
    scorer.replace(after)
    return after
