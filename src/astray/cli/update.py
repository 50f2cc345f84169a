"""``astray update``: go on learning."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from astray.cli import options as o
from astray.cli.console import leaving_at_once, progress, say, say_suspected
from astray.cli.drift import Drift
from astray.core.errors import AstrayError
from astray.core.settings import LocalTime, Reading, Settings
from astray.core.text import number_of

if TYPE_CHECKING:
    from astray.core.trajectories import Trajectories


@o.with_settings(Reading, LocalTime)
@o.changes_model
def command(
    settings: Settings,
    model: o.Model,
    file: Annotated[
        list[Path] | None,
        Argument(metavar="[FILE]...", help="New trips, in any format that astray reads.", show_default=False),
    ] = None,
    anomalous: Annotated[
        list[str] | None,
        Option(
            "--anomalous",
            metavar="TRIP",
            help="A trip, new or past, that proved anomalous: its name, or agent/name. The model forgets it if it had "
            "learned it, and never learns from it again. May be repeated.",
            show_default=False,
        ),
    ] = None,
    output: o.NewModel = None,
    agent: o.OnlyAgent = None,
) -> None:
    """Go on learning from further trips, but never from those that proved anomalous.

    The model counts the trips: of its one agent, or of the agents that a fleet knows already. That takes a second; only
    a model that learned its own reward (--preset kdd19) trains again. Give only trips that you know, or believe, to be
    normal: what a model learns becomes normal.

    [b]Examples[/b]

      astray update me.astray october.csv
      [dim]# learn from all of them but two[/dim]
      astray update me.astray october.csv --anomalous trip-17 --anomalous trip-31
      [dim]# a trip that the model learned last month proved to be theft[/dim]
      astray update fleet.astray --anomalous taxi-42/20140213-3
    """
    if not file and not anomalous:
        raise AstrayError("there is nothing to learn", remedy="give a FILE of trips, or --anomalous TRIP")
    from astray.cli.inputs import Source, refuse_unknown
    from astray.detector import load

    detector = load(model)
    further: Trajectories | None = None
    if file:
        source = Source.of(file, settings, detector, agent)
        source.keep_from(output)
        further = source.load()
        source.say_left_out()
        refuse_unknown(detector, further)
    names = anomalous or []
    drift = Drift(detector, model, settings.quiet)
    if further is not None:
        drift.look(further)
    with leaving_at_once(), progress("learning", quiet=settings.quiet) as done:
        detector.set_params(progress=lambda i, n, measures: done(i / max(n, 1)))
        before = detector.n_trips_
        detector.partial_fit(further, anomalous=names)
        now = number_of(detector.n_trips_, "trip")
    o.save(detector, model, output)
    say(f"learned from {now} now, {before:,} before; {len(detector.anomalous_):,} anomalous", quiet=settings.quiet)
    say_suspected(detector.suspects_, quiet=settings.quiet)
    drift.say(detector)
