"""``astray answer``: lists a model's questions about flagged trips, and takes a person's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from astray.cli import options as o
from astray.cli.console import say, tell
from astray.core.atomic import changing
from astray.core.errors import AstrayError
from astray.core.settings import Settings
from astray.core.text import harmless, number_of

if TYPE_CHECKING:
    from astray.detector import Detector


@o.with_settings()
def command(
    settings: Settings,
    model: o.Model,
    trips: Annotated[
        list[str] | None,
        Argument(
            metavar="TRIP",
            help="Waiting trips: a name, or agent/name. One trip of a question stands for all of its trips.",
            show_default=False,
        ),
    ] = None,
    mine: Annotated[
        bool | None,
        Option("--mine/--not-mine", help="Whether the agent made these trips itself.", show_default=False),
    ] = None,
    new_model: o.NewModel = None,
) -> None:
    """List the questions that astray observe has raised, or answer one.

    Without a TRIP it prints each question with its trips. With --mine the model learns the trips, as a new habit. With
    --not-mine it knows them as anomalous: it never learns from them, and astray observe refuses trips that are like
    them.

    [b]Examples[/b]

      [dim]# list the questions[/dim]
      astray answer me.astray
      astray answer me.astray alice/2024-05-03 --mine
      astray answer fleet.astray taxi-7/1042 taxi-7/1043 --not-mine
    """
    from astray.detector import load

    if not trips:
        if mine is not None:
            remedy = "name one trip of each question; astray answer MODEL lists them"
            raise AstrayError("no trip is named", remedy=remedy)
        _list(load(model), settings)
        return
    if mine is None:
        raise AstrayError("were these trips the agent's own or not?", remedy="add --mine or --not-mine")
    with changing(model):
        detector = load(model)
        lines = _answer(detector, trips, mine)
        o.save(detector, model, new_model)
    say("\n".join(lines), quiet=settings.quiet)


def _list(detector: Detector, settings: Settings) -> None:
    """Prints the questions, and the other trips that wait."""
    groups = {str(question): question.trips for question in detector.questions_}
    asked = {trip for trips in groups.values() for trip in trips}
    if others := tuple(trip for trip in detector.waiting_ if trip not in asked):
        what = "Unlike the others:" if asked else "Waiting:" if len(others) == 1 else "No two of them are alike:"
        groups[what] = others
    for what, trips in groups.items():
        tell("\n".join([what, *(f"  {harmless(str(trip))}" for trip in trips)]))
    waiting = number_of(len(detector.waiting_), "trip")
    say(f"{number_of(len(detector.questions_), 'question')}; {waiting} waiting", quiet=settings.quiet)


def _answer(detector: Detector, trips: list[str], mine: bool) -> list[str]:
    """Passes the answer to the model; returns the lines to print after saving it."""
    from astray.core.trip_ids import find_trips

    named = find_trips(trips, detector.waiting_, among="trips that wait for an answer")
    groups = {trip: group for group in detector.questions_ for trip in group.trips}
    done = "learned as the agent's own" if mine else "known as anomalous; what is alike is refused from now on"
    lines = []
    for meant in dict.fromkeys(groups[trip].trips if trip in groups else (trip,) for trip in named):
        detector.answer(meant, mine)
        lines.append(f"{', '.join(map(str, meant))}: {done}")
    return lines
