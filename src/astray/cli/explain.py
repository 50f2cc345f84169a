"""``astray explain``: explains in words and pictures why a trip scored as it did."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from astray.cli import options as o
from astray.cli.console import say, tell
from astray.core.atomic import check_target
from astray.core.errors import AstrayError, UnknownAgentWarning
from astray.core.settings import Deciding, LocalTime, Reading, Settings

if TYPE_CHECKING:
    from astray.cli.inputs import Source
    from astray.core.trajectories import Trajectories
    from astray.detector import Detector


@o.with_settings(Deciding, Reading, LocalTime, "whole")
def command(
    settings: Settings,
    model: o.Model,
    file: o.TripsOfOne,
    trip: Annotated[
        str | None,
        Argument(
            metavar="TRIP",
            help="The trip: its name, or agent/name. By default the one with the lowest score.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        o.output(
            "PICTURE", "Draw the trip: .png, .svg, or .html, which is a page with an interactive map, also offline."
        ),
    ] = None,
    agent: o.OnlyAgent = None,
) -> None:
    """Explain in words and pictures why a trip scored as it did.

    The words, on standard output, name the segments that are not normal and say how often the agent did something
    similar before: "0 of 304 past trips came through here". With -o, a picture shows the trip on a map, coloured by its
    normality, over the agent's habitual ways in grey, with the way that was expected; below the map it shows
    normality against time.

    [b]Examples[/b]

      astray explain me.astray new.csv
      astray explain me.astray new.csv trip-17 -o trip-17.png
      astray explain fleet.astray new.csv taxi-42/trip-17 -o trip-17.html
    """
    if output is not None:
        check_target(output, (".png", ".svg", ".html"))
    from astray.cli.inputs import Source
    from astray.detector import load

    detector = load(model)
    source = Source.of(file, settings, detector, agent)
    source.keep_from(output, model)
    detector.set_params(**settings.given(["min_history", "time_zone"]))
    one = _lowest(detector, source) if trip is None else _found(source, trip)
    _check_known(detector, one, settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownAgentWarning)  # said above
        explanation = detector.explain(one, **settings.given(["eps", "gamma", "false_alarm_rate"]))
    source.say_left_out()
    tell(explanation)
    if output is not None:
        from astray.plots import explanation_figure, explanation_page, save_figure, save_page

        if output.suffix.lower() == ".html":
            save_page(explanation_page(explanation), output)
        else:
            save_figure(explanation_figure(explanation), output)
        say(f"drawn in {output}", quiet=settings.quiet)


def _check_known(detector: Detector, one: Trajectories, settings: Settings) -> None:
    """Handles a trip of an unknown agent: an error for a model of one agent, a remark for a fleet."""
    from astray.cli.inputs import only_agent, refuse_unknown

    if only_agent(detector) is not None:
        refuse_unknown(detector, one)
    for who in detector.unknown_agents(one):
        say(f"the model does not know {who}: there is no past trip to measure this one by", quiet=settings.quiet)


def _found(source: Source, trip: str) -> Trajectories:
    """Returns the trip of this name; given the full name, with the agent, it stops reading there."""
    from astray.core.trajectories import Trajectories
    from astray.explain import position_of

    n, called = 0, []
    for trips, _ in source.batches():
        n += len(trips)
        ids = trips.ids
        called.append(trips[[found.is_called(trip) for found in ids]])
        if any(str(found) == trip for found in ids):
            break
    candidates = Trajectories.concat(called)
    if not len(candidates):
        reason = f"no trip is named {trip!r} among its {n:,}"
        raise AstrayError(reason, place=source.name, remedy="astray score lists their names")
    return candidates[position_of(candidates, trip)]


def _lowest(detector: Detector, source: Source) -> Trajectories:
    """Returns the trip with the lowest score, if possible of an agent that the model knows."""
    import numpy as np

    lowest, least = None, float("inf")
    for trips, _ in source.batches():
        known = trips[~np.isin(trips.agent_ids, detector.unknown_agents(trips))]
        trips = known if len(known) else trips
        scores = detector.score_samples(trips)
        if np.nanmin(scores, initial=np.inf) < least:
            position = int(np.nanargmin(scores))
            lowest, least = trips[position], float(scores[position])
    if lowest is None:
        raise AstrayError("no trip in it has a score", place=source.name, remedy="name one")
    return lowest
