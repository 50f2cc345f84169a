"""Watches many agents in one stream of JSON lines: fixes in, events out, in bounded memory; no bad line stops it.

``docs/how-to/live.md`` says what a restart guarantees. It is possible because the state holds the position in the
input, the number of the last event and every open trip. It is saved whole, after the events that it counts are flushed.
The same lines give the same events with the same numbers, so a restart recognises events that are in the file already,
and does not write them again. Only the clock is not in the input: a fix that is refused because it is "from the future"
may be accepted when it is read again.
"""

from __future__ import annotations

import math
import os
import time as clock
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from astray.core.atomic import alone, check_target, keep_from, lock_of
from astray.core.errors import DataError
from astray.core.threads import one_thread
from astray.model.packing import FilePath
from astray.runtime.events import Events, reopened
from astray.runtime.json_fixes import Line, bounded
from astray.runtime.state import State, fingerprint
from astray.runtime.stream import Stream, Summary
from astray.scoring.decisions import Rate, Threshold, rate_level

if TYPE_CHECKING:
    from astray.detector import Detector

SAVING_SHARE = 0.05  # the largest share of the time that saving the state may take


def watch(
    model: Detector,
    lines: Iterable[Line],
    out: TextIO | FilePath,
    *,
    state: FilePath | None = None,
    eps: Threshold | None = None,
    gamma: Threshold | None = None,
    false_alarm_rate: Rate | None = None,
    max_agents: int = 10_000,
    max_late: float = 0.0,
    max_early: float = 60.0,
    stay: float | None = 1200.0,
    stay_radius: float = 150.0,
    scores: float | None = None,
    strangers: bool | None = None,
    finish: bool | None = None,
    save_every: float = 1.0,
    now: Callable[[], float] = clock.time,
) -> Summary:
    """Scores the fixes of any number of agents as they come, and writes what happens as JSON lines.

    Events are ``score``; ``alert_opened`` and ``alert_closed``; ``trip_ended`` with its final scores; ``fault`` (a fix
    that is a fault of the receiver, for example a teleport); ``refused`` (a line that cannot be used, and why);
    ``agent_unknown`` (the model has no past trip of the agent); and ``agent_closed`` (to make room for others). Each
    has a ``sequence`` number. An alert opens when the trip so far scores low, compared with past trips that were cut
    off in the same way; it closes when the score is half-way back to normal, or with the trip. A trip is scored about
    once per interval of the model, so a normal trip has several chances of an alert: slightly more normal trips raise
    an alert than score low in the end.

    Parameters
    ----------
    model
        A fitted detector; it is only read.
    lines
        Fixes as JSON lines (see :func:`astray.runtime.json_fixes.parse`): an open file or any iterable of lines. If the
        model knows only one agent, lines without an agent are of that agent.
    out
        An open file for the events, or the name of a file to which they are appended.
    state
        A file that is kept up to date, from which a restart continues.
    eps, gamma, false_alarm_rate
        Thresholds that replace the model's own.
    max_agents
        The most agents with open trips. To make room for others, the agents whose last fix is oldest are closed, and
        an event says so. At most a quarter of the agents are strangers to the model, so that a flood of new names
        cannot push out the agents that it knows.
    max_late
        A fix that comes up to this many seconds after a newer one of its agent is put in order; scores wait for that
        long. A fix that comes even later is refused.
    max_early
        A fix may be this many seconds ahead of this machine's clock.
    stay, stay_radius
        As for :class:`~astray.runtime.Session`.
    scores
        Write the score of an agent's fixes at most every this many seconds; 0 writes every fix, None writes none.
    strangers
        Whether to score agents that the model does not know. By default a fleet scores them: without past trips, every
        trip is for review. A model of one agent refuses them, because it cannot judge others.
    finish
        Whether to end the trips that are open at the end of the input. By default only without a state: with one, the
        input may continue later.
    save_every
        Seconds between two saves of the state while lines come in; more if saving takes long.
    now
        The clock that says which fixes are from the future, in seconds since 1970.

    Examples
    --------
    >>> import io
    >>> from astray import Detector
    >>> from astray.simulate import city
    >>> trips = city(people=1, days=10, seed=0).trips
    >>> model = Detector().fit(trips[:-1])
    >>> fixes = zip(*(trips[-1:].columns[name].tolist() for name in ("time", "lat", "lon")))
    >>> lines = ['{"agent": "p00", "time": %r, "lat": %r, "lon": %r}' % fix for fix in fixes]
    >>> out = io.StringIO()
    >>> summary = watch(model, [*lines, "not JSON"], out)
    >>> summary.fixes == len(lines), summary.refused, summary.trips
    (True, 1, 1)
    >>> "trip_ended" in out.getvalue().splitlines()[-1]
    True
    """
    strangers = not model.fitted.is_one if strangers is None else strangers
    if false_alarm_rate is not None:
        # Raises an error if the model has too few past trips for this rate.
        rates = model.fitted.rates(false_alarm_rate)
        rate_level(false_alarm_rate, model.agent_model("", (0.0, 0.0)).calibration, rates)
    if max_agents < 1:
        raise DataError(f"max_agents is {max_agents}", remedy="give at least 1")
    for name, seconds in (("scores", scores), ("max_late", max_late)):
        if seconds is not None and not 0 <= seconds < math.inf:
            raise DataError(f"{name} is {seconds}", remedy="give seconds, 0 or more")
    kept_in = None if state is None else Path(state)
    of_model = "" if kept_in is None else fingerprint(model)
    with one_thread(), nullcontext() if kept_in is None else alone(kept_in):
        kept = State.load(kept_in, of_model) if kept_in is not None and kept_in.exists() else State(of_model)
        session: dict[str, Any] = {"reorder": max_late, "stay": stay, "stay_radius": stay_radius}
        session |= {"eps": eps, "gamma": gamma, "false_alarm_rate": false_alarm_rate}
        opened: AbstractContextManager[Events]
        if isinstance(out, str | os.PathLike):
            _check_output(Path(out), kept_in)
            opened = reopened(Path(out), None if state is None else kept.sequence)
        else:
            opened = nullcontext(Events(out, kept.sequence))
        with opened as events:
            stream = Stream(
                model,
                events,
                kept,
                session,
                max_agents=max_agents,
                max_early=max_early,
                scores=scores,
                strangers=strangers,
                now=now,
            )
            saving = _Saving(kept_in, save_every)
            whole = True  # False while a line is being taken in
            try:
                for line in kept.position.unread(bounded(lines)):
                    whole = False
                    urgent = stream.take(line)
                    whole = True
                    if saving.due(urgent):
                        saving.save(stream)
                if finish or (finish is None and state is None):
                    whole = False
                    stream.finish()
                    whole = True
            finally:
                # An interruption while waiting for input leaves everything in order; one within a line does not.
                if whole:
                    saving.save(stream)
        return stream.summary


def _check_output(out: Path, state: Path | None) -> None:
    """Raises a DataError if ``out`` is a device, a folder, or the state's file."""
    if out.exists() and not out.is_file():
        raise DataError("no file that events could be appended to", place=out, remedy="name a file")
    check_target(out)
    if state is not None:
        keep_from(out, (state, lock_of(state)), "this is the file of the state, or its lock")


class _Saving:
    """Saves the state at intervals, and at once after an alert; limits the share of time that saving takes."""

    def __init__(self, path: Path | None, every: float) -> None:
        self.path, self.every = path, every
        self.last, self.cost = clock.monotonic(), 0.0

    def due(self, urgent: bool) -> bool:
        if self.path is None:
            return False
        least = self.cost / SAVING_SHARE
        return clock.monotonic() - self.last >= (least if urgent else max(self.every, least))

    def save(self, stream: Stream) -> None:
        if self.path is None:
            return
        begin = clock.monotonic()
        stream.events.flush(durable=True)
        stream.snapshot().save(self.path)
        self.last = clock.monotonic()
        self.cost = self.last - begin
