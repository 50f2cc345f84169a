"""``astray forget``: take an agent, or some of its trips, out of a model."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from astray.cli import options as o
from astray.cli.console import say
from astray.errors import AstrayError
from astray.settings import Settings
from astray.text import number_of


@o.with_settings()
@o.changes_model
def command(
    settings: Settings,
    model: o.Model,
    agent: Annotated[str, Argument(metavar="AGENT", help="Who is to be forgotten.", show_default=False)],
    trip: Annotated[
        list[str] | None,
        Option("--trip", metavar="TRIP", help="Only this trip. May be repeated.", show_default=False),
    ] = None,
    output: o.NewModel = None,
) -> None:
    """Remove an agent, or some of its trips, from a fleet model.

    The agent's memory, its kept ways and its name leave the file. The shared reward stays: it is a few thousand
    numbers learned from many agents, and holds no places. To say that a trip proved anomalous, which also keeps it
    from being learned again, use astray update --anomalous.

    [b]Examples[/b]

      astray forget fleet.astray taxi-42
      astray forget fleet.astray taxi-42 --trip 20140213-3 --trip 20140214-1
    """
    from astray.detectors.fleet import FleetDetector
    from astray.storage import load
    from astray.trip_ids import find_trips

    fleet = load(model)
    if not isinstance(fleet, FleetDetector):
        raise AstrayError(
            f"{model}: a model of one agent or pool is forgotten by deleting its file; "
            "a single trip is taken out with astray update MODEL --anomalous TRIP"
        )
    if trip:
        if agent in fleet.members_:
            remembered = fleet.members_[agent].memory.trip_ids
            meant = find_trips(trip, remembered, among=f"trips that are remembered of {agent}")
            trip = [found.trajectory for found in meant]
        gone = fleet.forget_trips(agent, trip)
        said = f"{number_of(gone, 'trip')} of {agent} forgotten"
    else:
        fleet.forget(agent)
        said = f"{agent} forgotten; {number_of(len(fleet.agents), 'agent')} left"
    fleet.save(output or model)
    say(said, quiet=settings.quiet)
