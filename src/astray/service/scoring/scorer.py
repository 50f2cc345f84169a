"""Scores groups of batches, and writes each group in one transaction, first its fixes to the log.

The transaction that writes a fix also writes everything that follows from it: the trip that it ends, alerts, what the
model learns. So a restart need not write anything: when an agent sends its next fix, the service restores its stream
from the last snapshot, and takes in the few logged fixes after that. It takes a snapshot every :data:`SNAPSHOT_EVERY`
fixes and whenever a trip begins or ends, so a restart never replays the end of a trip.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from astray.core.errors import DataError, spelled
from astray.core.settings import ASPECTS
from astray.core.snapshot import Snapshot
from astray.core.trajectories import Trajectories
from astray.core.zones import Zone
from astray.explain import segment_phrases
from astray.model.observing import WAITING, Question
from astray.runtime.agent_stream import AgentStream, AlertClosed, AlertOpened, Event, TripEnded
from astray.runtime.live_scores import TripScore
from astray.runtime.trip import OpenTrip, score_open
from astray.scoring.decisions import NORMAL, rate_level
from astray.scoring.scores import p_name
from astray.service import preferences as prefs
from astray.service.alerts.notifications import tell, tell_closed
from astray.service.batches import MAX_AHEAD, Batch, FeedFix, Receipt, RefusedRow
from astray.service.review.review_queue import DOUBT, FLAGGED, sync_questions, wait_for_review, wait_no_more
from astray.service.scoring.event_rows import Alert, alert_id, finite, put_alert, put_event, read_alert, trip_name
from astray.service.scoring.tracking import Tracked
from astray.service.served_model import ServedModel
from astray.service.store import Connection, Row

SNAPSHOT_EVERY = 16
AGENT = (
    *("agent", "since", "n", "time", "lat", "lon", "arrived", "delay", "trip", "normality", "alert", "trips", "zone"),
    *("late_from", "late_until", "drift"),
)
P_ASPECTS = tuple(map(p_name, ASPECTS))
"""The columns of a trip with the p-value of each aspect."""
TRIP = (
    *("agent", "trip", "started", "ended", "fixes", "faults", "score", "normality", "p_value", "uncertainty"),
    *("decision", "aspect", "history", "why", "state", "words", "late", *P_ASPECTS),
)
FIX = "time, lat, lon, trip, to_lat, to_lon"


def _upsert(table: str, columns: Sequence[str], *keys: str) -> str:
    rest = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in keys)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {rest}"
    )


PUT_AGENT = _upsert("agents", AGENT, "agent")
PUT_TRIP = _upsert("trips", (*TRIP, "model"), "agent", "trip")
PUT_SCORES = _upsert("scores", ("agent", "trip", "data", "member"), "agent", "trip")
PUT_SNAPSHOT = _upsert("snapshots", ("agent", "n", "model", "data"), "agent")
PUT_FIX = (
    "INSERT INTO fixes (agent, time, lat, lon, n, trip, to_lat, to_lon, accuracy) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT DO NOTHING"
)


@dataclass(frozen=True)
class Limits:
    """Limits what the service keeps."""

    agents: int = 100_000  # the most agents in the store
    held: int = 400_000_000  # about how many bytes of streams stay in memory; the longest silent agents leave first


class Scorer:
    """Holds the model, the agents' streams and the connection that writes; only the scoring thread may use it."""

    def __init__(self, connection: Connection, limits: Limits | None = None, address: str = "") -> None:
        self.connection, self.limits, self.address = connection, limits or Limits(), address
        self.now = 0.0
        self.refused: dict[str, list[float]] = {}  # reason to how often and when last
        self._agents: OrderedDict[str, Tracked] = OrderedDict()
        self.reopen()

    def reopen(self) -> None:
        """Reads everything from the store again, after a transaction has failed."""
        self.preferences = prefs.load(self.connection)
        self.served = self._opened()
        self._agents.clear()
        self._held = 0
        self.touched: dict[str, Tracked] = {}  # agents that this transaction has changed
        self.news: list[tuple[str, str]] = []  # what else it has changed: alert or review, and its id
        self._count_agents()

    def _opened(self, version: int | None = None) -> ServedModel:
        """Opens a version of the model, by default the one in use, with the false-alarm rate from the settings."""
        served = ServedModel.open(self.connection, version)
        served.detector.false_alarm_rate = self.preferences.false_alarm_rate
        return served

    def _count_agents(self) -> None:
        self.known = int(self.connection.value("SELECT count(*) FROM agents"))

    @property
    def version(self) -> int:
        """The version of the model in use."""
        return self.served.version

    # ---------------------------------------------------------------- fixes

    def take(self, batches: Sequence[Batch], now: float) -> list[Receipt]:
        """Writes fixes and all that follows from them; returns the receipts to send after the commit."""
        self.now = now
        receipts = [self._accept(batch) for batch in batches]
        fresh = [tracked for tracked in self.touched.values() if tracked.fresh]
        self.connection.many(PUT_FIX, (row for tracked in fresh for row in _log_rows(tracked)))
        self._score([(tracked, tracked.fresh) for tracked in fresh])
        for tracked in fresh:
            tracked.fresh = []
        return receipts

    def _accept(self, batch: Batch) -> Receipt:
        refused, duplicates = list(batch.refused), 0
        for position, fix in enumerate(batch.fixes):
            if reason := self._reason(fix):
                refused.append(RefusedRow(_index(position, batch.refused), reason, fix.agent))
            elif self._is_known(fix):
                duplicates += 1
        for row in refused:
            count = self.refused.setdefault(row.reason.partition(" (")[0][:80], [0, 0.0])
            count[0], count[1] = count[0] + 1, self.now
        accepted = len(batch.fixes) - (len(refused) - len(batch.refused))
        return Receipt(accepted, sorted(refused), duplicates)

    def _reason(self, fix: FeedFix) -> str:
        """Returns why a fix is refused; an empty text if it is accepted."""
        if fix.time > self.now + MAX_AHEAD:
            return "the fix is from the future"
        if self.known >= self.limits.agents and self.tracked(fix.agent, new=False) is None:
            return f"the store knows {self.limits.agents} agents already"
        return ""

    def _is_known(self, fix: FeedFix) -> bool:
        """Returns True if the log already holds a fix; otherwise marks it to be logged."""
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
        """Scores fixes: first the first fix of every agent, all together, then the second ones, and so on."""
        for together in zip_longest(*([(tracked, fix) for fix in own] for tracked, own in fixes)):
            advanced = [
                (tracked, tracked.begin(*fix.step))
                for tracked, fix in filter(None, together)
                if self._is_next(tracked, fix)
            ]
            score_open(trip for tracked, _ in advanced if (trip := tracked.due) is not None)
            for tracked, advance in advanced:
                tracked.finish(advance)

    def _is_next(self, tracked: Tracked, fix: FeedFix) -> bool:
        """Returns True if a fix continues the stream of its agent; otherwise records it as late."""
        late = tracked.comes_late(fix.time, fix.trip)
        if not late and fix.trip and fix.trip != tracked.open_trip:  # a fix of a stored trip is late, too
            asked = "SELECT 1 FROM trips WHERE agent = ? AND trip = ?"
            late = bool(self.connection.rows(asked, (fix.agent, fix.trip)))
        if late:
            first, last = tracked.late or (math.inf, -math.inf)
            tracked.late = min(first, fix.time), max(last, fix.time)
        return not late

    # ---------------------------------------------------------------- agents

    def tracked(self, agent: str, new: bool = True) -> Tracked | None:
        """Returns the stream of an agent; restores it if it is not in memory.

        For an agent that is not in the store, returns a new stream if ``new``, else None.
        """
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
        """Drops the stream of an erased agent."""
        self._agents.pop(agent, None)
        self.touched.pop(agent, None)
        self._count_agents()

    def replace(self, tracked: Tracked) -> None:
        """Replaces the stream of an agent."""
        self._agents[tracked.agent] = tracked

    def check_preferences(self, wanted: prefs.Preferences) -> None:
        """Raises a PreferencesError if the model cannot promise the false-alarm rate to an agent without past trips."""
        rate, detector = wanted.false_alarm_rate, self.served.detector
        try:
            rate_level(rate, detector.agent_model("", (0.0, 0.0)).calibration, detector.fitted.rates(rate))
        except DataError as error:
            raise prefs.PreferencesError(error.reason, "false_alarm_rate", spelled(error.remedy)) from error

    def set_preferences(self, wanted: prefs.Preferences) -> None:
        """Applies new settings; open trips keep their thresholds."""
        self.preferences = wanted
        self.served.detector.false_alarm_rate = wanted.false_alarm_rate

    def use_model(self, version: int) -> None:
        """Switches to another model for new trips; open trips keep the model that they began with."""
        self.served.write()
        self.served = self._opened(version)
        for tracked in self._agents.values():
            tracked.detector = self.served.detector

    def _restore(self, tracked: Tracked, row: dict[str, Any]) -> None:
        """Restores a stream to the end of its agent's log."""
        agent = tracked.agent
        tracked.since, tracked.newest, tracked.place = row["since"], row["time"], (row["lat"], row["lon"])
        tracked.arrived, tracked.delay, tracked.past = row["arrived"], row["delay"], row["trips"]
        tracked.drift = row["drift"]
        tracked.late = None if row["late_from"] is None else (row["late_from"], row["late_until"])
        found = self.connection.row("SELECT n, data FROM snapshots WHERE agent = ?", (agent,))
        if found is not None:
            tracked.n = int(found[0])
            if pin := self._pin_of(agent):  # the model and the memory with which the open trip began
                tracked.detector = self._opened(pin[0]).as_of(agent, pin[1])
            tracked.restore(Snapshot(np.frombuffer(found[1], np.float64)))
            tracked.detector = self.served.detector
        since = -1e300 if tracked.settled is None else tracked.settled
        tracked.emit = _ignore  # the events were written before the restart
        asked = f"SELECT {FIX} FROM fixes WHERE agent = ? AND time >= ? AND n > ? ORDER BY n"
        for logged in self.connection.rows(asked, (agent, since, tracked.n)):
            fix = logged_fix(agent, logged)
            if not tracked.comes_late(fix.time, fix.trip):
                tracked.take(*fix.step)
        tracked.emit = self.record
        tracked.kept, tracked.n = tracked.n, int(row["n"])
        tracked.turned = False

    def end_silent(self, now: float) -> None:
        """Ends the trips of agents that have been silent for too long."""
        self.now = now
        gap = self.served.world.config.faults.gap
        asked = "SELECT agent FROM agents WHERE trip IS NOT NULL AND arrived < ? AND time < ? ORDER BY agent LIMIT 200"
        for (agent,) in self.connection.rows(asked, (now - gap, now - gap)):
            tracked = self.tracked(str(agent))
            if tracked is not None and tracked.late is None:
                tracked.close("gap")
                self.touched[str(agent)] = tracked

    def write_agents(self) -> None:
        """Writes the changed agents, the snapshots that are due, and what the model learned."""
        self.served.write()
        rows, snapshots = [], []
        for agent, t in self.touched.items():
            times = (t.since, t.n, t.newest, *t.place, t.arrived, t.delay)
            of_trip = (t.open_trip, finite(t.normality), t.alert, t.past, str(t.zone))
            rows.append((agent, *times, *of_trip, *(t.late or (None, None)), t.drift))
            if t.turned or t.n - t.kept >= SNAPSHOT_EVERY:
                snapshots.append(self._snapshot(t))
        self.connection.many(PUT_AGENT, rows)
        self.connection.many(PUT_SNAPSHOT, snapshots)
        self._make_room()

    def _snapshot(self, tracked: Tracked) -> tuple[str, int, int, bytes]:
        tracked.kept, tracked.turned = tracked.n, False
        return tracked.agent, tracked.n, self.version, tracked.snapshot().numbers.tobytes()

    def _make_room(self) -> None:
        """Removes the longest silent agents from memory; their trips stay open."""
        self._held += sum(tracked.nbytes for tracked in self.touched.values())  # too much: it counts repeatedly
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
        """Writes an alert, ``closed`` if its trip is over; :meth:`tell` decides on sending it once it has words."""
        words = segment_phrases.ASPECTS.get(trip.aspect, f"unusual {trip.aspect}")
        alert = Alert(
            alert_id(trip.agent, trip.trip, ordinal),
            trip.agent,
            trip.trip,
            trip.start,
            time,
            time if closed else None,
            level,
            words,
            late=late,
            at=self.now,
        )
        put_alert(self.connection, alert)
        self.news.append(("alert", alert.id))
        told = {"alert": alert.id, "level": level, "normality": finite(trip.normality), "p_value": finite(trip.p_value)}
        told |= dict(zip(P_ASPECTS, _p_aspects(trip), strict=True))
        put_event(self.connection, trip.agent, trip.trip, "alert_opened", ordinal, time, told)

    def tell(self, alert: str, words: str) -> None:
        """Stores the words of an alert, and decides whether it is sent."""
        if words:
            self.connection.run("UPDATE alerts SET words = ? WHERE id = ?", (words, alert))
        found = read_alert(self.connection, alert)
        if found is not None:
            zone = Zone.of(self.connection.value("SELECT zone FROM agents WHERE agent = ?", (found.agent,)))
            tell(self.connection, alert, zone, self.now, self.address)
            if found.closed is not None:
                tell_closed(self.connection, alert, zone, self.now, self.address)
            self.news.append(("alert", alert))

    def close_alert(self, tracked: Tracked, trip: str, time: float, why: str, ordinal: int) -> None:
        """Closes a trip's alert, and informs the programs that got a message about it."""
        alert = alert_id(tracked.agent, trip, ordinal)
        self.connection.run("UPDATE alerts SET closed = ? WHERE id = ?", (time, alert))
        put_event(self.connection, tracked.agent, trip, "alert_closed", ordinal, time, {"alert": alert, "why": why})
        tell_closed(self.connection, alert, tracked.zone, self.now, self.address)
        self.news.append(("alert", alert))

    # ---------------------------------------------------------------- trips

    def _end(self, tracked: Tracked, event: TripEnded) -> None:
        """Stores a trip that has just ended, and opens an alert if only the whole trip proved unusual."""
        trip = event.trip
        flagged = self.store_trip(tracked, trip, event.was, late=False)
        if flagged and not event.alerts and trip.history >= self.served.detector.min_history:
            self.open_alert(trip, 1, trip.end, trip.decision, closed=True)
        self.connection.run("DELETE FROM pins WHERE agent = ?", (trip.agent,))

    def store_trip(self, tracked: Tracked, trip: TripScore, was: OpenTrip, *, late: bool) -> bool:
        """Writes a finished trip, and learns from it or lets it wait; returns True if it was flagged.

        It reads the trip's fixes from the log: that takes about a hundredth of the time to score them, and after
        a restart it would be necessary anyway.
        """
        flagged = was.is_low(trip)
        model, memory = self._pin_of(trip.agent) or (self.version, self.memory_of(trip.agent) if flagged else b"")
        fixes = stored_trip(self.connection, *trip.id, trip.start, trip.end)
        lesson = self.served.learn(fixes, flagged, trip.p_value, was)
        tracked.past, tracked.drift = self.past(trip.agent), lesson.drift or None
        decision = trip.decision if flagged else NORMAL
        scores = (finite(v) for v in (trip.score, trip.normality, trip.p_value, trip.uncertainty))
        of_trip = (*trip.id, trip.start, trip.end, trip.fixes, trip.faults, *scores)
        rest = (decision, trip.aspect, trip.history, trip.ended, lesson.became, None, int(late))
        self.connection.run(PUT_TRIP, (*of_trip, *rest, *_p_aspects(trip), model))
        put_event(self.connection, *trip.id, "trip_ended", 0, trip.end, {"decision": decision, "why": trip.ended})
        if flagged:
            self.connection.run(PUT_SCORES, (*trip.id, None, memory))
        if lesson.became == WAITING:
            wait_for_review(self.connection, trip, self.now, FLAGGED if flagged else DOUBT)
        elif late:
            wait_no_more(self.connection, trip)
        if late or (not flagged and lesson.became == WAITING):  # pages get a flagged trip when it has its words
            self.news.append(("review", trip_name(*trip.id)))
        self.ask(trip.agent, lesson.questions)
        return flagged

    def ask(self, agent: str, questions: Iterable[Question]) -> None:
        """Updates the questions about an agent in the review queue."""
        changed = sync_questions(self.connection, agent, list(questions), self.now)
        self.news += [("review", item) for item in changed]

    def pin(self, agent: str) -> None:
        """Keeps the current model and memory of an agent for its open trip, before they change."""
        tracked = self.tracked(agent)
        if tracked is not None and tracked.open_trip is not None:
            self.connection.run(
                "INSERT INTO pins VALUES (?, ?, ?) ON CONFLICT (agent) DO NOTHING",
                (agent, self.version, self.memory_of(agent)),
            )

    def _pin_of(self, agent: str) -> tuple[int, bytes] | None:
        """Returns the model and memory that are kept for an agent's open trip; None if it has the current ones."""
        found = self.connection.row("SELECT model, data FROM pins WHERE agent = ?", (agent,))
        return None if found is None else (int(found[0]), bytes(found[1]))

    def memory_of(self, agent: str) -> bytes:
        """Returns the memory of an agent as bytes, to explain a trip with it later; no bytes for an unknown agent."""
        memory = self.served.memories.get(agent)
        return b"" if memory is None else self.served.memories.codec.pack(memory)

    def past(self, agent: str) -> int:
        """Returns how many trips of an agent the model remembers."""
        memory = self.served.memories.peek(agent)
        return 0 if memory is None else len(memory.counts)


def _p_aspects(trip: TripScore) -> list[float | None]:
    """Returns the p-values of the aspects in the order of :data:`P_ASPECTS`; None for an unknown one."""
    return [finite(trip.p_aspects.get(aspect)) for aspect in ASPECTS]


def stored_trip(connection: Connection, agent: str, trip: str, start: float, end: float) -> Trajectories:
    """Reads the fixes of a trip from the log."""
    asked = "SELECT time, lat, lon FROM fixes WHERE agent = ? AND time >= ? AND time <= ? ORDER BY time, n"
    found = np.array(connection.rows(asked, (agent, start, end)), np.float64).reshape(-1, 3)
    columns = {"time": found[:, 0].copy(), "lat": found[:, 1].copy(), "lon": found[:, 2].copy()}
    return Trajectories.unchecked(columns, np.array([0, len(found)]), np.array([agent]), np.array([trip]), {})


def trip_by_name(connection: Connection, agent: str, trip: str) -> Trajectories | None:
    """Reads a finished trip from the log by its name; None if it or all its fixes are gone."""
    times = connection.row("SELECT started, ended FROM trips WHERE agent = ? AND trip = ?", (agent, trip))
    found = None if times is None else stored_trip(connection, agent, trip, *times)
    return found if found is not None and found.n_rows else None


def logged_fix(agent: str, row: Row) -> FeedFix:
    """Makes a fix from the columns :data:`FIX` of the log."""
    time, lat, lon, trip, to_lat, to_lon = row
    return FeedFix(agent, time, lat, lon, trip or "", None if to_lat is None else (to_lat, to_lon))


def _log_rows(tracked: Tracked) -> Iterator[tuple[Any, ...]]:
    """Yields an agent's new fixes as rows of the log, numbered, in the order of time."""
    tracked.fresh.sort(key=lambda fix: fix.time)
    for fix in tracked.fresh:
        tracked.n += 1
        to_lat, to_lon = fix.destination or (None, None)
        yield *fix[:4], tracked.n, fix.trip or None, to_lat, to_lon, fix.accuracy


def _index(position: int, refused: Sequence[RefusedRow]) -> int:
    """Converts a position among the accepted fixes of a message to the index in the message.

    >>> _index(1, [RefusedRow(0, ""), RefusedRow(2, "")])
    3
    """
    for index in sorted(row.index for row in refused):
        position += index <= position
    return position


def _ignore(tracked: AgentStream, event: Event) -> None:
    """Writes nothing."""
