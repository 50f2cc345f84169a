"""Scoring: a group of batches becomes rows, all inside one transaction. The log of fixes comes first.

Everything that follows from a fix (the trip that it ends, alerts, what is learned) is written in the transaction that
writes the fix. So a restart has nothing to write: an agent's session is restored from its last snapshot and takes in
the few fixes that came after it, when the agent sends its next one. A snapshot is taken every :data:`SNAPSHOT_EVERY`
fixes and whenever a trip begins or ends, so that no restart crosses the border of a trip.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from astray.core.snapshot import Snapshot
from astray.core.trajectories import Trajectories
from astray.core.zones import Zone
from astray.model.observing import WAITING, Question
from astray.runtime.agent_stream import AgentStream, AlertClosed, AlertOpened, Event, TripEnded
from astray.runtime.live_scores import TripScore
from astray.runtime.trip import OpenTrip, score_open
from astray.scoring.decisions import NORMAL
from astray.service import preferences as prefs
from astray.service import served_model
from astray.service.alerts.notifications import tell, tell_change
from astray.service.batches import MAX_AHEAD, Batch, FeedFix, Receipt, RefusedRow
from astray.service.review.review_queue import DOUBT, FLAGGED, sync_questions, wait_for_review, wait_no_more
from astray.service.scoring.event_rows import Alert, alert_id, cause, finite, put_alert, put_event, trip_name
from astray.service.scoring.tracking import Tracked
from astray.service.store import Connection

SNAPSHOT_EVERY = 16
AGENT = (
    *("agent", "since", "n", "time", "lat", "lon", "arrived", "delay", "trip", "normality", "alert", "trips", "zone"),
    *("late_from", "late_until", "drift"),
)
TRIP = (
    *("agent", "trip", "started", "ended", "fixes", "faults", "score", "normality", "p_value", "uncertainty"),
    *("decision", "aspect", "history", "why", "state", "words", "late", "model"),
)


def _upsert(table: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    rest = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in keys)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {rest}"
    )


PUT_AGENT = _upsert("agents", AGENT, ["agent"])
PUT_TRIP = _upsert("trips", TRIP, ["agent", "trip"])
PUT_SNAPSHOT = _upsert("snapshots", ("agent", "n", "model", "data"), ["agent"])
PUT_FIX = (
    "INSERT INTO fixes (agent, time, lat, lon, n, trip, to_lat, to_lon, accuracy) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT DO NOTHING"
)


@dataclass(frozen=True)
class Limits:
    """What keeps the service within bounds."""

    agents: int = 100_000  # that the store knows, at most
    held: int = 400_000_000  # bytes of sessions in memory, about; agents whose last fix is oldest leave
    early: float = MAX_AHEAD  # seconds that a fix may be ahead of our clock


class Scorer:
    """The model, the agents' sessions, and the connection that writes; for the one thread that scores."""

    def __init__(self, connection: Connection, limits: Limits | None = None, address: str = "") -> None:
        self.connection, self.limits, self.address = connection, limits or Limits(), address
        self.now = 0.0
        self.touched: dict[str, Tracked] = {}  # agents that this transaction has changed
        self.news: list[tuple[str, str]] = []  # what else it has changed: alert or review, and its id
        self.refused: dict[str, list[float]] = {}  # reason to how often, and when last
        self._agents: OrderedDict[str, Tracked] = OrderedDict()
        self._held = 0
        self.reopen()

    def reopen(self) -> None:
        """Forget everything that is not in the store: after a transaction that failed, or with another model."""
        self.served = served_model.ServedModel.open(self.connection)
        self.preferences = prefs.load(self.connection)
        self.served.detector.false_alarm_rate = self.preferences.false_alarm_rate
        self._agents.clear()
        self.touched, self.news = {}, []
        self._held = 0
        self.known = int(self.connection.value("SELECT count(*) FROM agents"))

    @property
    def version(self) -> int:
        """The version of the model in use."""
        return self.served.version

    # ---------------------------------------------------------------- fixes

    def take(self, batches: Sequence[Batch], now: float) -> list[Receipt]:
        """Write fixes and all that follows from them; gives what becomes of each batch once that is committed."""
        self.now = now
        receipts = [self._accept(batch) for batch in batches]
        fresh = [tracked for tracked in self.touched.values() if tracked.fresh]
        self.connection.many(PUT_FIX, (row for tracked in fresh for row in _log_rows(tracked)))
        self._score([(tracked, tracked.fresh) for tracked in fresh])
        for tracked in fresh:
            tracked.fresh = []
        return receipts

    def _accept(self, batch: Batch) -> Receipt:
        refused, duplicates = batch.refused, 0
        for position, fix in enumerate(batch.fixes):
            reason = self._reason(fix)
            if reason:
                if refused is batch.refused:
                    refused = list(refused)
                refused.append(RefusedRow(_index(position, batch.refused), reason, fix.agent))
            elif self._is_known(fix):
                duplicates += 1
        for row in refused:
            count = self.refused.setdefault(row.reason.partition(" (")[0][:80], [0, 0.0])
            count[0], count[1] = count[0] + 1, self.now
        accepted = len(batch.fixes) - (len(refused) - len(batch.refused))
        return Receipt(accepted, sorted(refused), duplicates)

    def _reason(self, fix: FeedFix) -> str:
        """Why a fix cannot be taken in; empty if it can."""
        if fix.time > self.now + self.limits.early:
            return "the fix is from the future"
        if self.known >= self.limits.agents and self.tracked(fix.agent, new=False) is None:
            return f"the store knows {self.limits.agents} agents already"
        return ""

    def _is_known(self, fix: FeedFix) -> bool:
        """Whether a fix is in the log already; otherwise it will be."""
        tracked = self.tracked(fix.agent)
        assert tracked is not None
        if fix.time <= tracked.newest:
            same = (fix.agent, fix.time, fix.lat, fix.lon)
            asked = "SELECT 1 FROM fixes WHERE agent = ? AND time = ? AND lat = ? AND lon = ?"
            if any(f.time == fix.time and (f.lat, f.lon) == (fix.lat, fix.lon) for f in tracked.fresh):
                return True
            if self.connection.rows(asked, same):
                return True
        else:
            tracked.newest, tracked.place = fix.time, (fix.lat, fix.lon)
        tracked.delay += 0.2 * (max(self.now - fix.time, 0.0) - tracked.delay)
        tracked.arrived = self.now
        tracked.fresh.append(fix)
        self.touched[fix.agent] = tracked
        return False

    def _score(self, fixes: Iterable[tuple[Tracked, Sequence[FeedFix]]]) -> None:
        """Score the fixes of some agents: the first of each together, then the second of each, and so on."""
        for together in zip_longest(*([(tracked, fix) for fix in own] for tracked, own in fixes)):
            advanced = [
                (tracked, tracked.advance(fix))
                for tracked, fix in filter(None, together)
                if self._is_next(tracked, fix)
            ]
            score_open(trip for tracked, _ in advanced if (trip := tracked.due) is not None)
            for tracked, advance in advanced:
                tracked.finish(advance)

    def _is_next(self, tracked: Tracked, fix: FeedFix) -> bool:
        """Whether a fix goes on where its agent's session is; otherwise it is noted that it came late."""
        late = tracked.is_late(fix) or bool(fix.trip and fix.trip != tracked.open_trip and self._is_stored(fix))
        if late:
            first, last = tracked.late or (math.inf, -math.inf)
            tracked.late = min(first, fix.time), max(last, fix.time)
        return not late

    def _is_stored(self, fix: FeedFix) -> bool:
        """Whether the trip that a fix names is over and stored."""
        asked = "SELECT 1 FROM trips WHERE agent = ? AND trip = ?"
        return bool(self.connection.rows(asked, (fix.agent, fix.trip)))

    # ---------------------------------------------------------------- agents

    def tracked(self, agent: str, new: bool = True) -> Tracked | None:
        """What is held of an agent; read from the store if it is not in memory. None for a new one, if none may be."""
        tracked = self._agents.get(agent)
        if tracked is not None:
            self._agents.move_to_end(agent)
            return tracked
        row = self.connection.row(f"SELECT {', '.join(AGENT)} FROM agents WHERE agent = ?", (agent,))
        if row is None and not new:
            return None
        tracked = Tracked(self.served.detector, agent, self.record)
        if row is None:
            tracked.since, self.known = self.now, self.known + 1
        else:
            self._restore(tracked, dict(zip(AGENT, row, strict=True)))
        self._agents[agent] = tracked
        return tracked

    def drop(self, agent: str) -> None:
        """Hold nothing of an agent any more."""
        self._agents.pop(agent, None)
        self.touched.pop(agent, None)
        self.known = int(self.connection.value("SELECT count(*) FROM agents"))

    def set_preferences(self, wanted: prefs.Preferences) -> None:
        """Go by other preferences from now on; trips that are under way keep their thresholds."""
        self.preferences = wanted
        self.served.detector.false_alarm_rate = wanted.false_alarm_rate

    def use_model(self, version: int) -> None:
        """Score new trips by another model; those under way keep the one that they began with."""
        self.served.write()
        self.served = served_model.ServedModel.open(self.connection, version)
        self.served.detector.false_alarm_rate = self.preferences.false_alarm_rate
        for tracked in self._agents.values():
            tracked.detector = self.served.detector

    def replace(self, tracked: Tracked) -> None:
        """Go on with another session of an agent."""
        self._agents[tracked.agent] = tracked

    def _restore(self, tracked: Tracked, row: dict[str, Any]) -> None:
        """Bring a session to where the log of its agent ends."""
        agent = tracked.agent
        tracked.since, tracked.newest, tracked.place = row["since"], row["time"], (row["lat"], row["lon"])
        tracked.arrived, tracked.delay, tracked.past = row["arrived"], row["delay"], row["trips"]
        tracked.drift = row["drift"]
        tracked.late = None if row["late_from"] is None else (row["late_from"], row["late_until"])
        found = self.connection.row("SELECT n, model, data FROM snapshots WHERE agent = ?", (agent,))
        if found is not None:
            tracked.n, tracked.model = int(found[0]), int(found[1])
            pin = self.connection.row("SELECT model, data FROM pins WHERE agent = ?", (agent,))
            if pin is not None:  # what was known when its trip began
                then = served_model.ServedModel.open(self.connection, int(pin[0]))
                then.detector.false_alarm_rate = self.served.detector.false_alarm_rate
                tracked.detector = then.as_of(agent, bytes(pin[1]))
            tracked.restore(Snapshot(np.frombuffer(found[2], np.float64)))
            tracked.detector = self.served.detector
        since = -math.inf if tracked.settled is None else tracked.settled
        tracked.emit = _written_before
        asked = (
            "SELECT time, lat, lon, trip, to_lat, to_lon FROM fixes WHERE agent = ? AND time >= ? AND n > ? ORDER BY n"
        )
        for time, lat, lon, trip, *to in self.connection.rows(asked, (agent, max(since, -1e300), tracked.n)):
            fix = FeedFix(agent, time, lat, lon, trip or "", None if to[0] is None else (to[0], to[1]))
            if not tracked.is_late(fix):
                tracked.take_fix(fix)
        tracked.emit = self.record
        tracked.kept, tracked.n = tracked.n, int(row["n"])
        tracked.turned = False

    def end_silent(self, now: float) -> None:
        """End the trips of agents from whom nothing came for so long that a trip is over."""
        self.now = now
        gap = self.served.world.config.faults.gap
        asked = "SELECT agent FROM agents WHERE trip IS NOT NULL AND arrived < ? AND time < ? ORDER BY agent LIMIT 200"
        for (agent,) in self.connection.rows(asked, (now - gap, now - gap)):
            tracked = self.tracked(str(agent))
            if tracked is not None and tracked.late is None:
                tracked.close("gap")
                self.touched[str(agent)] = tracked

    def write_agents(self) -> None:
        """Write the rows of the agents that were changed, their snapshots where one is due, and what was learned."""
        self.served.write()
        rows, snapshots = [], []
        for agent, t in self.touched.items():
            late_from, late_until = t.late or (None, None)
            zone = str(t.zone)
            normality = finite(t.normality)
            times = (t.since, t.n, t.newest, *t.place, t.arrived, t.delay)
            rows.append((agent, *times, t.open_trip, normality, t.alert, t.past, zone, late_from, late_until, t.drift))
            if t.turned or t.n - t.kept >= SNAPSHOT_EVERY:
                snapshots.append(self._snapshot(t))
        self.connection.many(PUT_AGENT, rows)
        self.connection.many(PUT_SNAPSHOT, snapshots)
        self._make_room()

    def _snapshot(self, tracked: Tracked) -> tuple[str, int, int, bytes]:
        tracked.kept, tracked.turned = tracked.n, False
        return tracked.agent, tracked.n, self.version, tracked.snapshot().numbers.tobytes()

    def _make_room(self) -> None:
        """Put away the agents whose last fix is oldest; their trips do not end."""
        self._held += sum(tracked.nbytes for tracked in self.touched.values())  # about: each change counts anew
        if self._held <= self.limits.held:
            return
        self._held = sum(tracked.nbytes for tracked in self._agents.values())
        while self._held > 0.7 * self.limits.held and len(self._agents) > 1:
            _, gone = self._agents.popitem(last=False)
            self._held -= gone.nbytes
            if gone.n != gone.kept:
                self.connection.run(PUT_SNAPSHOT, self._snapshot(gone))

    # ---------------------------------------------------------------- alerts

    def record(self, tracked: AgentStream, event: Event) -> None:
        """Writes what happened to an agent's trips."""
        assert isinstance(tracked, Tracked)
        if isinstance(event, AlertOpened):
            self.open_alert(event.trip, event.ordinal, event.time, event.level)
        elif isinstance(event, AlertClosed):
            self.close_alert(tracked, event.trip.trip, event.time, event.why, event.ordinal)
        elif isinstance(event, TripEnded):
            self._end(tracked, event)

    def open_alert(
        self, trip: TripScore, ordinal: int, time: float, level: str, *, closed: bool = False, late: bool = False
    ) -> None:
        """Write an alert, of a trip that is over a closed one; who is told is decided when its words are there."""
        alert = Alert(
            alert_id(trip.agent, trip.trip, ordinal),
            *(
                trip.agent,
                trip.trip,
                trip.start,
                time,
                time if closed else None,
                level,
                cause(trip),
                "",
                "",
                late,
                self.now,
            ),
        )
        put_alert(self.connection, alert)
        self.news.append(("alert", alert.id))
        told = {"alert": alert.id, "level": level, "normality": finite(trip.normality), "p_value": finite(trip.p_value)}
        put_event(self.connection, trip.agent, trip.trip, "alert_opened", ordinal, time, told)

    def tell(self, alert: str, words: str) -> None:
        """Say in words what an alert is about, and decide who is told of it."""
        if words:
            self.connection.run("UPDATE alerts SET words = ? WHERE id = ?", (words, alert))
        row = self.connection.row(
            "SELECT al.closed, a.zone FROM alerts al JOIN agents a ON a.agent = al.agent WHERE al.id = ?", (alert,)
        )
        if row is not None:
            zone = Zone.of(row[1])
            tell(self.connection, alert, zone, self.now, self.address)
            if row[0] is not None:
                tell_change(self.connection, alert, "closed", zone, self.now, self.address)
            self.news.append(("alert", alert))

    def close_alert(self, tracked: Tracked, trip: str, time: float, why: str, ordinal: int) -> None:
        """Closes an alert of a trip, and tells whoever was told of it."""
        alert = alert_id(tracked.agent, trip, ordinal)
        self.connection.run("UPDATE alerts SET closed = ? WHERE id = ?", (time, alert))
        put_event(self.connection, tracked.agent, trip, "alert_closed", ordinal, time, {"alert": alert, "why": why})
        tell_change(self.connection, alert, "closed", tracked.zone, self.now, self.address)
        self.news.append(("alert", alert))

    # ---------------------------------------------------------------- trips

    def _end(self, tracked: Tracked, event: TripEnded) -> None:
        """Stores a trip that is over, and learns from it or lets it wait for review."""
        trip = event.trip
        flagged = self.store_trip(tracked, trip, event.was, late=False)
        # Only the whole trip shows it, if it had no alert while it was under way.
        if flagged and not event.alerts and trip.history >= self.served.detector.min_history:
            self.open_alert(trip, 1, trip.end, trip.decision, closed=True)
        self.connection.run("DELETE FROM pins WHERE agent = ?", (trip.agent,))

    def store_trip(self, tracked: Tracked, trip: TripScore, was: OpenTrip, *, late: bool) -> bool:
        """Write a trip that is over, and learn from it or let it wait; whether it was flagged."""
        flagged = bool(trip.score <= was.eps)
        pin = self.connection.row("SELECT model, data FROM pins WHERE agent = ?", (trip.agent,))
        model = self.version if pin is None else int(pin[0])
        known = None
        if flagged:
            known = self.known_of(trip.agent) if pin is None else bytes(pin[1])
        lesson = self.served.learn(self.fixes_of(trip), flagged, trip.p_value, was)
        tracked.past, tracked.drift = self.past(trip.agent), lesson.drift or None
        decision = trip.decision if flagged else NORMAL
        scores = (finite(v) for v in (trip.score, trip.normality, trip.p_value, trip.uncertainty))
        of_trip = (*trip.id, trip.start, trip.end, trip.fixes, trip.faults, *scores)
        rest = (decision, trip.aspect, trip.history, trip.ended, lesson.became, None, int(late), model)
        self.connection.run(PUT_TRIP, (*of_trip, *rest))
        put_event(self.connection, *trip.id, "trip_ended", 0, trip.end, {"decision": decision, "why": trip.ended})
        if flagged:
            self.connection.run(
                _upsert("scores", ("agent", "trip", "data", "member"), ["agent", "trip"]), (*trip.id, None, known)
            )
        if lesson.became == WAITING:
            wait_for_review(self.connection, trip, self.now, FLAGGED if flagged else DOUBT)
        elif late:
            wait_no_more(self.connection, trip)
        if late or (not flagged and lesson.became == WAITING):  # a flagged one is told of with its words
            self.news.append(("review", trip_name(*trip.id)))
        self.ask(trip.agent, lesson.questions)
        return flagged

    def ask(self, agent: str, questions: Iterable[Question]) -> None:
        """Bring the questions about an agent up to date."""
        changed = sync_questions(self.connection, agent, list(questions), self.now)
        self.news += [("review", item) for item in changed]

    def known_of(self, agent: str) -> bytes:
        """What is known of an agent, to explain a trip with later; nothing of a stranger."""
        memory = self.served.memories.get(agent)
        return b"" if memory is None else self.served.memories.codec.pack(memory)

    def past(self, agent: str) -> int:
        """How many trips of an agent are remembered."""
        memory = self.served.memories.peek(agent)
        return 0 if memory is None else len(memory.counts)

    def fixes_of(self, trip: TripScore) -> Trajectories:
        """The fixes of a trip, from the log."""
        return stored_trip(self.connection, *trip.id, trip.start, trip.end)


def stored_trip(connection: Connection, agent: str, trip: str, start: float, end: float) -> Trajectories:
    """A trip's fixes as the log has them."""
    asked = "SELECT time, lat, lon FROM fixes WHERE agent = ? AND time >= ? AND time <= ? ORDER BY time, n"
    found = np.array(connection.rows(asked, (agent, start, end)), np.float64).reshape(-1, 3)
    columns = {"time": found[:, 0].copy(), "lat": found[:, 1].copy(), "lon": found[:, 2].copy()}
    return Trajectories.unchecked(columns, np.array([0, len(found)]), np.array([agent]), np.array([trip]), {})


def _log_rows(tracked: Tracked) -> Iterable[tuple[Any, ...]]:
    """The fresh fixes of an agent as rows, in the order of time; they are numbered as they go into the log."""
    tracked.fresh.sort(key=lambda fix: fix.time)
    for fix in tracked.fresh:
        tracked.n += 1
        to_lat, to_lon = fix.destination or (None, None)
        yield *fix[:4], tracked.n, fix.trip or None, to_lat, to_lon, fix.accuracy


def _index(position: int, refused: Sequence[RefusedRow]) -> int:
    """The index in the message of the fix at a position among those that were not refused.

    >>> _index(1, [RefusedRow(0, ""), RefusedRow(2, "")])
    3
    """
    for index in sorted(row.index for row in refused):
        position += index <= position
    return position


def _written_before(tracked: AgentStream, event: Event) -> None:
    """Writes nothing: what a replay of the log brings about was written before the restart."""
