"""``astray forget``: take an agent, or some of its trips, out of a model."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from astray.cli import options as o
from astray.cli.console import say
from astray.core.errors import AstrayError
from astray.core.settings import Settings
from astray.core.text import number_of


@o.with_settings()
@o.changes_model
def command(
    settings: Settings,
    model: o.Model,
    agent: Annotated[str, Argument(metavar="AGENT", help="Who is to be forgotten.", show_default=False)],
    trip: Annotated[
        list[str] | None,
        Option("--trip", metavar="TRIP", help="Only this trip, of a fleet. May be repeated.", show_default=False),
    ] = None,
    output: o.NewModel = None,
) -> None:
    """Remove an agent, or some of its trips, from a model.

    The agent's memory, its kept ways and its name leave the file; so do the cells that somebody of the population has
    been in, which a model of one agent holds under the name. What is left is the reward: it is a few thousand numbers
    learned from many agents, and holds no places. To say that a trip proved anomalous, which also keeps it from being
    learned again, use astray update --anomalous.

    [b]Examples[/b]

      astray forget fleet.astray taxi-42
      [dim]# bob was among the others when the model of ana was fitted[/dim]
      astray forget ana.astray bob
      astray forget fleet.astray taxi-42 --trip 20140213-3 --trip 20140214-1
    """
    from astray.core.trip_ids import find_trips
    from astray.detector import load

    detector = load(model)
    if not trip:
        detector.forget(agent)
        left = len(detector.agents) if detector.is_one else len(detector.memories_)
        said = f"{agent} forgotten; {number_of(left, 'agent')} left"
    elif not detector.is_one:
        if agent in detector.memories_:
            remembered = detector.memories_[agent].counts.trip_ids
            meant = find_trips(trip, remembered, among=f"trips that are remembered of {agent}")
            trip = [found.trajectory for found in meant]
        said = f"{number_of(detector.forget_trips(agent, trip), 'trip')} of {agent} forgotten"
    else:
        remedy = "astray update MODEL --anomalous TRIP takes a single trip out of a model of one agent or pool"
        raise AstrayError("--trip is for a fleet", place=model, remedy=remedy)
    o.save(detector, model, output)
    say(said, quiet=settings.quiet)
