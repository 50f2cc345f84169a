"""``astray watch``: score live fixes, and raise alerts."""

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
            "Append events to this file. With --state it holds each exactly once, however often the watch is killed "
            "and started again on the same lines. By default they go to standard output.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        Option(
            "--state",
            metavar="FILE",
            help="Keep open trips and alerts here: killed and started on the same lines, it goes on where it was.",
            show_default=False,
        ),
    ] = None,
    scores: Annotated[
        float | None,
        Option("--scores", metavar="SECONDS", help="Say an agent's running score every so often; 0 is at every fix."),
    ] = None,
    max_agents: Annotated[
        int, Option("--max-agents", min=1, help="Agents with open trips, at most: memory stays bounded.")
    ] = 10_000,
    max_late: Annotated[
        float, Option("--max-late", min=0, help="Seconds that a fix may come late and still be put in its place.")
    ] = 0.0,
    strangers: Annotated[
        bool | None,
        Option(
            "--strangers/--no-strangers",
            help="Whether agents are scored that the model does not know; by default a fleet model does.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Score live fixes from standard input, and raise alerts.

    Reads one fix a line as JSON, of any number of agents: {"agent": "ana", "time": 1372636858, "lat": 41.15, "lon":
    -8.61}; times may be ISO 8601 text, and the names that tables use (uid, lng, timestamp, ...) are understood. Writes
    one event a line as JSON: alerts that open and close, trips that end with their final score, scores if wanted,
    faulty fixes, lines that were refused, agents that the model does not know, whose trips are all for review. Their
    times are local, with the offset; the zone is named. The model never changes.

    [b]Examples[/b]

      tail -f fixes.jsonl | astray watch me.astray
      [dim]# a score every minute; only alerts to the log[/dim]
      cat fixes.jsonl | astray watch fleet.astray --scores 60 | grep alert_opened
      [dim]# survives a crash: give the same lines again[/dim]
      astray watch fleet.astray --state w.state -o events.jsonl < fixes.jsonl
    """
    from astray.cli.inputs import only_agent
    from astray.model.loading import load
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
    said = ", ".join(number_of(n, what) for what, n in counts.items())
    say(f"{said} refused", quiet=settings.quiet)
