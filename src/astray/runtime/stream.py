"""Scores the fixes of many agents in one stream, each agent in its own session, and writes what happens as events."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from astray.core.errors import DataError
from astray.core.snapshot import Snapshot
from astray.core.times import moment
from astray.runtime.agent_stream import AgentStream, AlertClosed, AlertOpened, Event, FixScored
from astray.runtime.events import Events, of_alert, of_fix, of_trip
from astray.runtime.json_fixes import Line, Message, Refused, parse
from astray.runtime.live_scores import Score
from astray.runtime.session import LATE
from astray.runtime.state import State
from astray.scoring.decisions import ByContext, Threshold

if TYPE_CHECKING:
    from astray.detector import Detector


class Needed(NamedTuple):
    """The context that every fix must have, because the model or a threshold uses it."""

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]

    @classmethod
    def of(cls, model: Detector, *thresholds: Threshold | None) -> Needed:
        """Returns the context that a model and thresholds use."""
        spec = model.agent_model("", (0.0, 0.0)).featurizer.context.spec
        asked = [t.column for t in (model.eps, model.gamma, *thresholds) if isinstance(t, ByContext)]
        return cls(spec.numeric, tuple(dict.fromkeys((*spec.categorical, *asked))))

    @property
    def blank(self) -> dict[str, Any]:
        """Returns an empty value for each context column."""
        return dict.fromkeys(self.numeric, 0.0) | dict.fromkeys(self.categorical, "")

    def context(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Returns the context of a fix, and what is wrong with it (empty if nothing is)."""
        found: dict[str, Any] = {}
        for name in self.numeric:
            value = given.get(name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                return {}, f"{name} is not a finite number; the model needs it"
            found[name] = float(value)
        for name in self.categorical:
            if not isinstance(given.get(name), (str, int, float)):
                return {}, f"{name} is missing; the model or a threshold needs it"
            found[name] = str(given[name])
        return found, ""


class _Agent(AgentStream):
    """An agent's stream, and the time of the last score that was written."""

    last_score = -math.inf

    def snapshot(self) -> Snapshot:
        snapshot = super().snapshot()
        snapshot.put(self.last_score)
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        super().restore(snapshot)
        self.last_score = snapshot.take()

    def at(self, time: float) -> dict[str, str]:
        """Returns a time as the fields of an event."""
        return {"time": self.zone.iso(time), "zone": str(self.zone)}


class Summary(NamedTuple):
    """What a watch has counted, in all runs with the same state file."""

    lines: int
    fixes: int
    refused: int
    faults: int
    trips: int
    alerts: int
    closed: int  # agents closed to make room
    agents: int  # open now
    sequence: int  # the number of the last event
    first_refused: str = ""  # why the first line that this run refused was refused


class Stream:
    """Scores the fixes of many agents; deterministic except for the clock ``now``.

    ``session`` holds the arguments of every agent's :class:`~astray.runtime.Session`; the other parameters are those of
    :func:`~astray.runtime.watch`.
    """

    def __init__(
        self,
        model: Detector,
        events: Events,
        kept: State,
        session: Mapping[str, Any],
        *,
        max_agents: int,
        max_early: float,
        scores: float | None,
        strangers: bool,
        now: Callable[[], float],
    ) -> None:
        self.model, self.events, self.state, self.session = model, events, kept, session
        self.max_agents, self.max_early, self.scores = max_agents, max_early, scores
        self.strangers, self.now = strangers, now
        self.known = frozenset(model.agents)
        self.only = next(iter(self.known)) if len(self.known) == 1 else None
        self.needed = Needed.of(model, session["eps"], session["gamma"])
        self.counts = dict.fromkeys(("fixes", "refused", "faults", "trips", "alerts", "closed"), 0) | kept.counts
        self.urgent, self.first_refused = False, ""
        # The agents whose last fix is oldest come first. Strangers have their own mapping: they are closed first.
        self.enrolled: OrderedDict[str, _Agent] = OrderedDict()
        self.foreign: OrderedDict[str, _Agent] = OrderedDict()
        for agent, snapshot in kept.agents.items():
            self._room(agent)[agent] = self._opened(agent, self.needed.blank)
            self._room(agent)[agent].restore(snapshot)
        self.state.agents = {}

    def _opened(self, agent: str, context: Mapping[str, Any]) -> _Agent:
        return _Agent(self.model, agent, self._write, context=context, **self.session)

    @property
    def summary(self) -> Summary:
        """Returns the counts so far."""
        agents = len(self.enrolled) + len(self.foreign)
        so_far: dict[str, Any] = {"agents": agents, "sequence": self.events.sequence}
        return Summary(self.state.position.lines, **self.counts, **so_far, first_refused=self.first_refused)

    def snapshot(self) -> State:
        """Returns everything that a restart needs."""
        everybody = [*self.foreign.items(), *self.enrolled.items()]
        agents = {agent: state.snapshot() for agent, state in everybody}
        return replace(self.state, sequence=self.events.sequence, counts=dict(self.counts), agents=agents)

    # ---------------------------------------------------------------- lines

    def take(self, line: Line) -> bool:
        """Takes in a line; returns True if the state should now be saved, so that no alert or trip is written twice."""
        self.urgent = False
        self.state.position.advance(line)
        message = parse(line, self.model.time_zone)
        if isinstance(message, Refused):
            self._refuse(*message)
        elif message.kind == "clock":
            self._close_all("gap", lambda agent: agent.silent_since(message.time))
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
            if (state := self._room(agent).pop(agent, None)) is not None:
                state.close()
            return None
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
        scores = state.push(fix, message.trip, message.destination)
        if scores and scores[-1].fault == LATE:
            when = state.zone.iso(message.time)
            self._refuse(f"the fix is late ({when}); newer ones are settled", agent)
        return None

    def _of(self, agent: str, context: Mapping[str, Any]) -> _Agent:
        """Returns the stream of an agent; opens it if necessary, and closes others to make room."""
        room = self._room(agent)
        state = room.get(agent)
        if state is not None:
            room.move_to_end(agent)
            state.context = dict(context)
            return state
        state = self._opened(agent, context)
        most = self.max_agents if room is self.enrolled else max(1, self.max_agents // 4)
        while len(room) >= most or len(self.enrolled) + len(self.foreign) >= self.max_agents:
            full = room if len(room) >= most else self.foreign or self.enrolled
            oldest, gone = full.popitem(last=False)
            gone.close("evicted")
            self.counts["closed"] += 1
            self.events.say("agent_closed", agent=oldest, reason=f"room for {most} agents; its last fix is the oldest")
        room[agent] = state
        if room is self.foreign:
            self.events.say("agent_unknown", agent=agent, reason="no past trip of it: whatever it does is for review")
        return state

    def _room(self, agent: str) -> OrderedDict[str, _Agent]:
        return self.foreign if self.known and agent not in self.known else self.enrolled

    def _close_all(self, why: str, over: Callable[[_Agent], bool]) -> None:
        for room in (self.foreign, self.enrolled):
            for agent, state in list(room.items()):
                if over(state):
                    del room[agent]
                    state.close(why)

    def finish(self) -> None:
        """Ends all trips, because the input is over."""
        self._close_all("closed", lambda agent: True)
        self.events.flush()

    # ---------------------------------------------------------------- events

    def _refuse(self, reason: str, agent: str | None = None) -> None:
        self.counts["refused"] += 1
        self.first_refused = self.first_refused or f"line {self.state.position.lines}: {reason}"
        self.events.say("refused", line=self.state.position.lines, agent=agent, reason=reason)

    def _write(self, state: AgentStream, event: Event) -> None:
        """Writes an event of an agent's stream as a line."""
        assert isinstance(state, _Agent)
        if isinstance(event, FixScored):
            self._write_score(state, event.score)
            return
        self.urgent = True
        trip = event.trip
        if isinstance(event, AlertOpened):
            self.counts["alerts"] += 1
            fields = of_alert(event.score, trip, state.zone)
            self.events.say("alert_opened", alert=event.ordinal, **fields, words=state.describe())
        elif isinstance(event, AlertClosed):
            fields = {"agent": trip.agent, "trip": trip.trip, **state.at(event.time)}
            if event.score is not None:
                fields = of_alert(event.score, trip, state.zone)
            self.events.say("alert_closed", alert=event.ordinal, **fields, why=event.why)
        else:
            self.counts["trips"] += 1
            self.events.say("trip_ended", **of_trip(trip, state.zone))

    def _write_score(self, state: _Agent, score: Score) -> None:
        self.counts["fixes"] += 1
        if score.fault:
            self.counts["faults"] += 1
            self.events.say("fault", agent=state.agent, **state.at(score.time), fault=score.fault)
        elif self.scores is not None and score.time - state.last_score >= self.scores:
            state.last_score = score.time
            self.events.say("score", **of_fix(state.agent, score, state.zone))
