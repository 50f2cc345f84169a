"""A stream: the fixes of many agents, each agent with its session; what happens is written as events."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from astray.errors import DataError
from astray.live.events import Events, of_alert, of_fix, of_trip
from astray.live.messages import Line, Message, Refused, parse
from astray.live.score import Score, TripScore
from astray.live.session import LATE, Session
from astray.live.state import State
from astray.scoring.decisions import ByContext, Threshold
from astray.snapshot import Snapshot
from astray.times import moment

if TYPE_CHECKING:
    from astray.detectors.estimator import Detector


class Needed(NamedTuple):
    """The context that every fix must bring, because the model or a threshold looks at it."""

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]

    @classmethod
    def of(cls, model: Detector, *thresholds: Threshold | None) -> Needed:
        """What a model and thresholds look at."""
        spec = model.agent_model("", (0.0, 0.0)).featurizer.context.spec
        asked = [t.column for t in (model.eps, model.gamma, *thresholds) if isinstance(t, ByContext)]
        return cls(spec.numeric, tuple(dict.fromkeys((*spec.categorical, *asked))))

    @property
    def blank(self) -> dict[str, Any]:
        """A context in which nothing is said."""
        return dict.fromkeys(self.numeric, 0.0) | dict.fromkeys(self.categorical, "")

    def context(self, said: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """The context of a fix, and what is wrong with it."""
        found: dict[str, Any] = {}
        for name in self.numeric:
            value = said.get(name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                return {}, f"{name} is not a finite number; the model looks at it"
            found[name] = float(value)
        for name in self.categorical:
            if not isinstance(said.get(name), (str, int, float)):
                return {}, f"{name} is missing; the model or a threshold looks at it"
            found[name] = str(said[name])
        return found, ""


class _Agent:
    """What is kept of one agent."""

    __slots__ = ("alerts", "last_score", "open", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.alerts = 0  # of the open trip
        self.open = False
        self.last_score = -math.inf

    def snapshot(self) -> Snapshot:
        snapshot = self.session.snapshot()
        snapshot.put(self.alerts, self.open, self.last_score)
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        self.session.restore(snapshot)
        self.alerts, self.open, self.last_score = snapshot.count(), bool(snapshot.take()), snapshot.take()


class Summary(NamedTuple):
    """What a watch has seen, all its runs counted that shared a state file."""

    lines: int
    fixes: int
    refused: int
    faults: int
    trips: int
    alerts: int
    closed: int  # agents closed to make room
    agents: int  # open now
    sequence: int  # the number of the last event


class Stream:
    """The agents whose fixes come in one stream; deterministic, but for the clock ``now``."""

    def __init__(
        self,
        opened: Callable[[str, Mapping[str, Any]], Session],
        known: frozenset[str],
        needed: Needed,
        events: Events,
        kept: State,
        *,
        max_agents: int,
        max_early: float,
        scores: float | None,
        strangers: bool,
        now: Callable[[], float],
        time_zone: str | None = None,
    ) -> None:
        self.opened, self.known, self.needed, self.events = opened, known, needed, events
        self.max_agents, self.max_early, self.scores = max_agents, max_early, scores
        self.strangers, self.now, self.time_zone = strangers, now, time_zone
        self.state = kept
        self.only = next(iter(known)) if len(known) == 1 else None
        self.counts = dict.fromkeys(("fixes", "refused", "faults", "trips", "alerts", "closed"), 0) | kept.counts
        self.urgent = False
        # Those whose last fix is oldest first; strangers apart, for they make room first.
        self.enrolled: OrderedDict[str, _Agent] = OrderedDict()
        self.foreign: OrderedDict[str, _Agent] = OrderedDict()
        for agent, snapshot in kept.agents.items():
            state = _Agent(opened(agent, needed.blank))
            state.restore(snapshot)
            self._room(agent)[agent] = state
        self.state.agents = {}

    @property
    def summary(self) -> Summary:
        """What has been seen so far."""
        agents = len(self.enrolled) + len(self.foreign)
        return Summary(self.state.position.lines, **self.counts, agents=agents, sequence=self.events.sequence)

    def snapshot(self) -> State:
        """All that a restart needs."""
        everybody = [*self.foreign.items(), *self.enrolled.items()]
        agents = {agent: state.snapshot() for agent, state in everybody}
        return replace(self.state, sequence=self.events.sequence, counts=dict(self.counts), agents=agents)

    # ---------------------------------------------------------------- lines

    def take(self, line: Line) -> bool:
        """Take in a line; whether something happened that should not be written twice."""
        self.urgent = False
        self.state.position.advance(line)
        message = parse(line, self.time_zone)
        if isinstance(message, Refused):
            self._refuse(*message)
        elif message.kind == "clock":
            self._pass_time(message.time)
        else:
            self._take_message(message)
        self.events.flush()
        return self.urgent

    def _take_message(self, message: Message) -> None:
        agent = message.agent or self.only
        if agent is None:
            return self._refuse("agent is missing, and the model knows more than one")
        if self.known and agent not in self.known and not self.strangers:
            return self._refuse("the model does not know this agent", agent)
        if message.kind == "end":
            state = self._room(agent).pop(agent, None)
            return None if state is None else self._close(agent, state, "closed")
        if message.time > self.now() + self.max_early:
            return self._refuse(f"the fix is from the future ({moment(message.time)})", agent)
        context, wrong = self.needed.context(message.context)
        if wrong:
            return self._refuse(wrong, agent)
        try:
            state = self._of(agent, context)
        except DataError as error:
            return self._refuse(error.reason, agent)
        fix = message.time, message.lat, message.lon
        for score in state.session.push(fix, message.trip, message.destination):
            self._report(agent, state, score)
        return None

    def _of(self, agent: str, context: Mapping[str, Any]) -> _Agent:
        """What is kept of the agent that sent a fix; others are closed if there is no room."""
        room = self._room(agent)
        state = room.get(agent)
        if state is not None:
            room.move_to_end(agent)
            state.session.context = dict(context)
            return state
        state = _Agent(self.opened(agent, context))
        most = self.max_agents if room is self.enrolled else max(1, self.max_agents // 4)
        while len(room) >= most or len(self.enrolled) + len(self.foreign) >= self.max_agents:
            full = room if len(room) >= most else self.foreign or self.enrolled
            oldest, gone = full.popitem(last=False)
            self._close(oldest, gone, "evicted")
            self.counts["closed"] += 1
            self.events.say("agent_closed", agent=oldest, reason=f"room for {most} agents; the least recently heard")
        room[agent] = state
        if room is self.foreign:
            self.events.say("agent_unknown", agent=agent, reason="no past trip of it: whatever it does is for review")
        return state

    def _room(self, agent: str) -> OrderedDict[str, _Agent]:
        return self.foreign if self.known and agent not in self.known else self.enrolled

    def _pass_time(self, time: float) -> None:
        """Those who have been silent for too long have ended their trips."""
        for room in (self.foreign, self.enrolled):
            for agent, state in list(room.items()):
                if state.session.silent_since(time):
                    del room[agent]
                    self._close(agent, state, "gap")

    def finish(self) -> None:
        """The input is over, and so are the trips."""
        for room in (self.foreign, self.enrolled):
            while room:
                agent, state = room.popitem(last=False)
                self._close(agent, state, "closed")
        self.events.flush()

    # ---------------------------------------------------------------- events

    def _refuse(self, reason: str, agent: str | None = None) -> None:
        self.counts["refused"] += 1
        self.events.say("refused", line=self.state.position.lines, agent=agent, reason=reason)

    def _close(self, agent: str, state: _Agent, why: str) -> None:
        for score in state.session.settle():
            self._report(agent, state, score)
        final = state.session.close(why)
        if final is not None:
            self._end(state, final)

    def _report(self, agent: str, state: _Agent, score: Score) -> None:
        """Write what a settled fix has brought about."""
        if score.fault == LATE:
            when = state.session.zone.iso(score.time)
            return self._refuse(f"the fix is late ({when}); newer ones are settled", agent)
        self.counts["fixes"] += 1
        at_once = score.ended is not None and score.trip is score.ended  # a stay: the fix is the last of its trip
        if score.ended is not None and not at_once:
            self._end(state, score.ended)
        if score.fault:
            self.counts["faults"] += 1
            return self.events.say("fault", agent=agent, **self._at(state, score.time), fault=score.fault)
        if self.scores is not None and score.time - state.last_score >= self.scores:
            state.last_score = score.time
            self.events.say("score", **of_fix(agent, score, state.session.zone))
        if score.trip is not None and bool(score.alert) != state.open:
            state.open = bool(score.alert)
            self._alert(state, score, score.trip)
        if score.ended is not None and at_once:
            self._end(state, score.ended)
        return None

    def _at(self, state: _Agent, time: float) -> dict[str, str]:
        zone = state.session.zone
        return {"time": zone.iso(time), "zone": str(zone)}

    def _alert(self, state: _Agent, score: Score, trip: TripScore) -> None:
        self.urgent = True
        fields = of_alert(score, trip, state.session.zone)
        if state.open:
            state.alerts += 1
            self.counts["alerts"] += 1
            self.events.say("alert_opened", alert=state.alerts, **fields, words=state.session.describe())
        else:
            self.events.say("alert_closed", alert=state.alerts, **fields, why="back to normal")

    def _end(self, state: _Agent, trip: TripScore) -> None:
        self.urgent = True
        self.counts["trips"] += 1
        if state.open:
            self.events.say(
                "alert_closed",
                alert=state.alerts,
                agent=trip.agent,
                trip=trip.trip,
                **self._at(state, trip.end),
                why="trip ended",
            )
        state.open, state.alerts = False, 0
        self.events.say("trip_ended", **of_trip(trip, state.session.zone))
