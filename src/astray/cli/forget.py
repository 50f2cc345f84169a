"""``astray forget``: removes an agent, or some of its trips, from a model."""

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
    agent: Annotated[str, Argument(metavar="AGENT", help="The agent to forget.", show_default=False)],
    trip: Annotated[
        list[str] | None,
        Option("--trip", metavar="TRIP", help="Forget only this trip of a fleet. May be repeated.", show_default=False),
    ] = None,
    output: o.NewModel = None,
) -> None:
    """Remove an agent, or some of its trips, from a model.

    The agent's name, memory and kept trips leave the file, and their bytes are overwritten. A model of one agent also
    holds, by name, the places where the agents of its population go; this command removes those, too. The reward stays:
    it is a few thousand numbers, learned from many agents, that hold no places. If a trip proved anomalous and the
    model must never learn it again, use astray update --anomalous instead.

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
        done = f"{agent} forgotten; {number_of(left, 'agent')} left"
    elif not detector.is_one:
        if agent in detector.memories_:
            remembered = detector.memories_[agent].counts.trip_ids
            meant = find_trips(trip, remembered, among=f"trips that are remembered of {agent}")
            trip = [found.trajectory for found in meant]
        done = f"{number_of(detector.forget_trips(agent, trip), 'trip')} of {agent} forgotten"
    else:
        remedy = "astray update MODEL --anomalous TRIP takes a single trip out of a model of one agent or pool"
        raise AstrayError("--trip is for a fleet", place=model, remedy=remedy)
    o.save(detector, model, output)
    say(done, quiet=settings.quiet)
