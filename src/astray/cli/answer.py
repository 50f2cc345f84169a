"""``astray answer``: what the model asks about the trips that it has flagged, and a person's answer."""

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
    from astray.model.agent import IRLDetector
    from astray.model.fleet import FleetDetector


@o.with_settings()
def command(
    settings: Settings,
    model: o.Model,
    trips: Annotated[
        list[str] | None,
        Argument(
            metavar="[TRIP]...",
            help="Waiting trips: a name, or agent/name. One that a question was asked about stands for all "
            "that it is about.",
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

    The trips of --mine are learned, as a new habit. Those of --not-mine are known as anomalous: they are never
    learned from, and what is alike is refused from then on.

    [b]Examples[/b]

      [dim]# what is asked[/dim]
      astray answer me.astray
      astray answer me.astray alice/2024-05-03 --mine
      astray answer fleet.astray taxi-7/1042 taxi-7/1043 --not-mine
    """
    from astray.model.loading import load

    if not trips:
        if mine is not None:
            remedy = "name one of each question; astray answer MODEL lists them"
            raise AstrayError("it is not said which trips are meant", remedy=remedy)
        _list(load(model), settings)
        return
    if mine is None:
        raise AstrayError("it is not said whether these trips were the agent's own", remedy="add --mine or --not-mine")
    with changing(model):
        detector = load(model)
        said = _answer(detector, trips, mine)
        o.save(detector, model, new_model)
    say("\n".join(said), quiet=settings.quiet)


def _list(detector: IRLDetector | FleetDetector, settings: Settings) -> None:
    """What is asked, and what else waits."""
    groups = {str(question): question.trips for question in detector.questions_}
    asked = {trip for trips in groups.values() for trip in trips}
    if others := tuple(trip for trip in detector.waiting_ if trip not in asked):
        what = "Unlike the others:" if asked else "Waiting:" if len(others) == 1 else "No two of them are alike:"
        groups[what] = others
    for what, trips in groups.items():
        tell("\n".join([what, *(f"  {harmless(str(trip))}" for trip in trips)]))
    waiting = number_of(len(detector.waiting_), "trip")
    say(f"{number_of(len(detector.questions_), 'question')}; {waiting} waiting", quiet=settings.quiet)


def _answer(detector: IRLDetector | FleetDetector, trips: list[str], mine: bool) -> list[str]:
    """Let the model know the answer; gives what to say when it is saved."""
    from astray.core.trip_ids import find_trips

    named = find_trips(trips, detector.waiting_, among="trips that wait for an answer")
    groups = {trip: group for group in detector.questions_ for trip in group.trips}
    done = "learned as the agent's own" if mine else "known as anomalous; what is alike is refused from now on"
    said = []
    for meant in dict.fromkeys(groups[trip].trips if trip in groups else (trip,) for trip in named):
        detector.answer(meant, mine)
        said.append(f"{', '.join(map(str, meant))}: {done}")
    return said
