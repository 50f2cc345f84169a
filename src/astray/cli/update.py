"""``astray update``: learns from further trips."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from astray.cli import options as o
from astray.cli.console import learning, say, say_suspected
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
        Argument(metavar="FILE", help="New trips, in any format that astray reads.", show_default=False),
    ] = None,
    anomalous: Annotated[
        list[str] | None,
        o.anomalous(
            "A trip, new or past, that proved anomalous: its name, or agent/name. The model forgets it if it has "
            "learned it, and never learns from it again."
        ),
    ] = None,
    output: o.NewModel = None,
    agent: o.OnlyAgent = None,
) -> None:
    """Learn from further trips, but never from those that proved anomalous.

    The model counts the trips of its agent, or of the agents that a fleet knows already; astray enroll adds new agents.
    Counting takes a second; only a model that learned its own reward (--preset kdd19) trains again. Give only trips
    that you believe to be normal, because what a model learns becomes normal: the command warns you if the model would
    have flagged some of them. The changed model replaces the old one, unless you give -o.

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
    drift, before = Drift(detector, model, settings.quiet), detector.n_trips_
    if file:
        source = Source.of(file, settings, detector, agent)
        source.keep_from(output)
        further = source.load()
        source.say_left_out()
        refuse_unknown(detector, further)
        drift.look(further)
    with learning("learning", quiet=settings.quiet) as progress:
        detector.set_params(progress=progress)
        detector.partial_fit(further, anomalous=anomalous or [])
    o.save(detector, model, output)
    now = number_of(detector.n_trips_, "trip")
    say(f"learned from {now} now, {before:,} before; {len(detector.anomalous_):,} anomalous", quiet=settings.quiet)
    say_suspected(detector.suspects_, quiet=settings.quiet)
    drift.say(detector)
