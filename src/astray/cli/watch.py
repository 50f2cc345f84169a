"""``astray watch``: scores live fixes, and raises alerts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from astray.cli import options as o
from astray.cli.console import say
from astray.core.errors import AstrayError
from astray.core.settings import Deciding, LocalTime, Settings
from astray.core.text import number_of


@o.with_settings(Deciding, LocalTime)
def command(
    settings: Settings,
    model: o.Model,
    output: Annotated[
        Path | None,
        o.output(
            "FILE",
            "Append the events to this file. With --state it holds each event exactly once, however often you kill the "
            "watch and start it again on the same lines. By default events go to standard output.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        Option(
            "--state",
            metavar="FILE",
            help="Keep open trips and alerts in this file: started again on the same lines, the watch continues where "
            "it was.",
            show_default=False,
        ),
    ] = None,
    scores: Annotated[
        float | None,
        Option(
            "--scores",
            metavar="SECONDS",
            help="Also write the score of an agent's trip so far, at most every this many seconds; 0 is at every fix.",
        ),
    ] = None,
    max_agents: Annotated[
        int, Option("--max-agents", min=1, help="The most agents with open trips, so that memory stays bounded.")
    ] = 10_000,
    max_late: Annotated[
        float, Option("--max-late", min=0, help="Wait this many seconds for late fixes, and put them in their place.")
    ] = 0.0,
    strangers: Annotated[
        bool | None,
        Option(
            "--strangers/--no-strangers",
            help="Whether to score agents that the model does not know. By default a fleet model does.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Score live fixes from standard input, and write alerts as JSON lines.

    Reads one fix per line as JSON, of any number of agents: {"agent": "ana", "time": 1372636858, "lat": 41.15, "lon":
    -8.61}. Times may be ISO 8601 text, and the names that tables use (uid, lng, timestamp, ...) are understood. Writes
    one event per line as JSON: alerts that open and close, trips that end with their final score, scores with --scores,
    faulty fixes, refused lines, and agents that the model does not know, whose trips are all for review. Times are
    local, with the offset and the name of the zone. The model never changes.

    [b]Examples[/b]

      tail -f fixes.jsonl | astray watch me.astray
      [dim]# a score every minute; only alerts to the log[/dim]
      cat fixes.jsonl | astray watch fleet.astray --scores 60 | grep alert_opened
      [dim]# it survives a crash: give the same lines again[/dim]
      astray watch fleet.astray --state w.state -o events.jsonl < fixes.jsonl
    """
    from astray.cli.inputs import only_agent
    from astray.detector import load
    from astray.runtime.watcher import watch

    for name, file in (("--output", output), ("--state", state)):
        if file is not None and file.exists() and file.samefile(model):
            raise AstrayError("this is the model", place=file, remedy=f"name another file for {name}")
    detector = load(model)
    if strangers and only_agent(detector) is not None:
        reason = "a model of one agent can say nothing of others"
        raise AstrayError(reason, place=model, remedy="leave out --strangers")
    detector.set_params(**settings.given(["min_history", "time_zone"]))
    seen = watch(
        detector,
        sys.stdin.buffer,
        output or sys.stdout,
        state=state,
        max_agents=max_agents,
        max_late=max_late,
        scores=scores,
        strangers=strangers,
        **settings.given(["eps", "gamma", "false_alarm_rate"]),
    )
    counts = {"fix": seen.fixes, "trip": seen.trips, "alert": seen.alerts, "line": seen.refused}
    words = ", ".join(number_of(n, what) for what, n in counts.items())
    first = f", first {seen.first_refused}" if seen.first_refused else ""
    say(f"{words} refused{first}", quiet=settings.quiet)
