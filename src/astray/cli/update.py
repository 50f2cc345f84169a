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
    from astray.model.agent import IRLDetector
    from astray.model.fleet import FleetDetector


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
            help="A trip, new or past, that proved anomalous: its name, or agent/name. It is taken out if it was "
            "learned, and never learned from again. May be repeated.",
            show_default=False,
        ),
    ] = None,
    output: o.NewModel = None,
    agent: o.OnlyAgent = None,
) -> None:
    """Go on learning from further trips; what proved anomalous is never learned from.

    The trips are counted: those of the agent that the model is of, or of agents that a fleet has enrolled. That takes
    a second; only a reward of the agent's own (--preset kdd19) goes on training. Give only trips that are known, or
    believed, to be normal: what a model learns becomes normal.

    [b]Examples[/b]

      astray update me.astray october.csv
      [dim]# all of them but two[/dim]
      astray update me.astray october.csv --anomalous trip-17 --anomalous trip-31
      [dim]# a trip that was learned last month proved to be theft[/dim]
      astray update fleet.astray --anomalous taxi-42/20140213-3
    """
    if not file and not anomalous:
        raise AstrayError("there is nothing to learn", remedy="give a FILE of trips, or --anomalous TRIP")
    from astray.cli.inputs import Source, refuse_unknown
    from astray.model.agent import IRLDetector
    from astray.model.fleet import FleetDetector
    from astray.model.loading import load

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
        if isinstance(detector, FleetDetector):
            said = _fleet(detector, further, names)
        else:
            detector.set_params(progress=lambda i, n, measures: done(i / max(n, 1)))
            said = _one(detector, further, names)
    o.save(detector, model, output)
    say(said, quiet=settings.quiet)
    if isinstance(detector, IRLDetector):
        say_suspected(detector.suspects_, quiet=settings.quiet)
    drift.say(detector)


def _one(detector: IRLDetector, trips: Trajectories | None, anomalous: list[str]) -> str:
    before = detector.n_trips_
    detector.partial_fit(trips, anomalous=anomalous)
    now = number_of(detector.n_trips_, "trip")
    return f"learned from {now} now, {before:,} before; {len(detector.anomalous_):,} anomalous"


def _fleet(fleet: FleetDetector, trips: Trajectories | None, anomalous: list[str]) -> str:
    """Take out first, so that what proved anomalous is not counted again."""
    from astray.model.updating import proved_anomalous

    proved = proved_anomalous(anomalous, fleet.known_trips_ if anomalous else (), trips) - fleet.anomalous_
    gone = sum(fleet.forget_trips(trip.agent, [trip.trajectory], anomalous=True) for trip in proved)
    counted = 0 if trips is None else fleet.enroll(trips)
    return f"{number_of(counted, 'trip')} counted, {gone:,} taken out; {len(fleet.anomalous_):,} known as anomalous"
