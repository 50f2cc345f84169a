"""Advances one agent's stream by a pure function: state and inputs in, state and events out.

``advance`` keeps nothing between two calls: the state, as versioned bytes, holds all that an agent's stream needs. The
same inputs give the same bytes and events, however they are split into calls, so any stream engine can run it.
``astray watch`` and the service run the same :class:`~astray.runtime.agent_stream.AgentStream` and keep it in memory.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from astray.core.errors import DataError
from astray.core.snapshot import Snapshot
from astray.core.threads import one_thread
from astray.core.trajectories import Trajectories
from astray.model.gps_trips import GpsTrips
from astray.model.observing import Question, questions_of
from astray.model.packing import pack, unpack
from astray.runtime.agent_stream import AgentStream, AlertClosed, AlertOpened, Event, FixScored, TripEnded
from astray.runtime.live_scores import TripScore
from astray.runtime.session import Advance

if TYPE_CHECKING:
    from astray.core.projection import Place
    from astray.detector import Detector

KIND, VERSION = "agent", 1


class Fix(NamedTuple):
    """An input: where the agent was, in degrees, and when, in seconds since 1970."""

    time: float
    lat: float
    lon: float
    trip: str = ""  # the name of its trip, if the sender knows it
    destination: Place | None = None  # where the trip is meant to end (lat, lon), if that is known


class Tick(NamedTuple):
    """An input: the current time. It ends the trip of an agent that has been silent for long."""

    time: float


class TripFinished(NamedTuple):
    """A trip is over."""

    trip: TripScore
    became: str  # learned, waiting, refused or known; empty if the memory does not learn


Output = FixScored | AlertOpened | AlertClosed | TripFinished | Question


@one_thread()
def advance(
    model: Detector, agent: str, state: bytes, inputs: Iterable[Fix | Tick], *, learn: bool = True
) -> tuple[bytes, tuple[Output, ...]]:
    """Takes in one agent's fixes and clock ticks, in order; returns the agent's new state and what happened.

    Parameters
    ----------
    model
        A fitted detector of GPS trips; it is only read.
    agent
        The agent that the inputs are about.
    state
        The state that the last call returned; at first empty bytes, which stand for the agent's memory in the model.
    inputs
        Fixes and ticks in the order of time. A fix that is older than the last one is reported as late.
    learn
        True: the agent's memory learns from normal trips, and asks about flagged ones that are alike.

    Examples
    --------
    >>> from astray import Detector
    >>> from astray.simulate import city
    >>> trips = city(people=3, days=14, seed=0).trips
    >>> model = Detector(iterations=1).fit(trips)
    >>> last = trips.agent("p00")[-1:]
    >>> fixes = [Fix(*fix) for fix in zip(*(last.columns[name].tolist() for name in ("time", "lat", "lon")))]
    >>> state, outputs = advance(model, "p00", b"", fixes)
    >>> state, outputs = advance(model, "p00", state, [Tick(fixes[-1].time + 86_400)])
    >>> [type(output).__name__ for output in outputs]
    ['TripFinished']
    """
    stream = _ResumedStream(model, agent, state, learn)
    for one in inputs:
        if isinstance(one, Tick):
            if stream.silent_since(one.time):
                stream.close("gap")
        elif stream.is_late(one.time):
            stream.outputs += [FixScored(score) for score in stream.push(one[:3], one.trip, one.destination)]
        else:
            stream.take(*one)
    return stream.to_bytes(), tuple(stream.outputs)


class _ResumedStream(AgentStream):
    """A stream that continues from a state; it keeps the fixes of an open trip, and learns from them when it ends."""

    def __init__(self, model: Detector, agent: str, state: bytes, learn: bool) -> None:
        world = model.fitted
        if not isinstance(world, GpsTrips):
            raise DataError("advance needs a model with the shared reward of GPS trips", remedy="use Detector.open")
        self.name = world.name_of(agent)
        self.outputs: list[Output] = []
        self.log: list[tuple[float, ...]] = []  # the fixes of the open trip
        self.learns = learn and not (world.is_one and agent != self.name)
        memory, session = world.memories.get(self.name), None
        if state:
            held = unpack(state, f"the state of {agent!r}")
            if held.kind != KIND or held.value("version", int) != VERSION or held.value("agent", str) != agent:
                raise DataError(f"not a state of {agent!r} that this astray wrote", remedy="begin with an empty one")
            data = held.array("memory", np.uint8, None).tobytes()
            memory = world.memories.codec.unpack(data) if data else None
            session = Snapshot(held.array("session", np.float64, None, unbounded=True))
            self.log = [tuple(fix) for fix in held.array("log", np.float64, None, 3).tolist()]
        copied = copy.copy(model)
        copied.world_ = self.world = world.alone(self.name, memory).with_parameters(copied)
        super().__init__(copied, agent, self._take, least_history=float(model.min_history), score_steps=False)
        if session is not None:
            self.restore(session)

    def begin(self, time: float, lat: float, lon: float, trip: str = "", destination: Place | None = None) -> Advance:
        if self._open is None:
            self.log = self.log[-1:]  # a trip begins with the last fix before the agent moves again
        self.log.append((time, lat, lon))
        return super().begin(time, lat, lon, trip, destination)

    def is_late(self, time: float) -> bool:
        """Returns True if a newer fix was scored already."""
        return self._settled is not None and time < self._settled

    def _take(self, stream: AgentStream, event: Event) -> None:
        """Adds an event to the outputs; learns from a finished trip."""
        if not isinstance(event, TripEnded):
            self.outputs.append(event)
            return
        trip, fixes = event.trip, self._fixes_of(event.trip)
        if not self.learns or math.isnan(trip.score):
            self.outputs.append(TripFinished(trip, ""))
            return
        asked = set(self._questions())
        became, _ = self.world.take_trip(fixes, event.was.is_low(trip), trip.p_value, event.was.seen)
        self.outputs.append(TripFinished(trip, became))
        self.outputs += [question for question in self._questions() if question not in asked]

    def _fixes_of(self, trip: TripScore) -> Trajectories:
        """Removes the fixes of a finished trip from the log, and returns them."""
        rows = np.array([fix for fix in self.log if trip.start <= fix[0] <= trip.end])
        self.log = [fix for fix in self.log if fix[0] >= trip.end]
        return Trajectories.from_fixes(
            time=rows[:, 0], lat=rows[:, 1], lon=rows[:, 2], agent=trip.agent, trajectory=trip.trip
        )

    def _questions(self) -> tuple[Question, ...]:
        memory = self.world.memories.peek(self.name)
        return () if memory is None else questions_of(self.name, memory)

    def to_bytes(self) -> bytes:
        """Returns everything that the stream needs to continue."""
        memory = self.world.memories.peek(self.name)
        data = b"" if memory is None else self.world.memories.codec.pack(self.world.memories[self.name])
        arrays = {
            "memory": np.frombuffer(data, np.uint8),
            "session": np.array(self.snapshot().numbers),
            "log": np.array(self.log, np.float64).reshape(-1, 3),
        }
        return pack(KIND, {"version": VERSION, "agent": self.agent}, arrays)
