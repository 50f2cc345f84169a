"""``astray answer``: what the model asks about the trips that it has flagged, and a person's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from astray.atomic import changing
from astray.cli import options as o
from astray.cli.console import say, tell
from astray.errors import AstrayError
from astray.settings import Settings
from astray.text import harmless, number_of

if TYPE_CHECKING:
    from astray.detectors.agent import IRLDetector
    from astray.detectors.fleet import FleetDetector


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

    The trips of --mine are learned, as a new habit. Those of --not-mine are known as anomalous: they never teach, and
    what is alike is refused from then on.

    [b]Examples[/b]

      [dim]# what is asked[/dim]
      astray answer me.astray
      astray answer me.astray alice/2024-05-03 --mine
      astray answer fleet.astray taxi-7/1042 taxi-7/1043 --not-mine
    """
    from astray.storage import load

    if not trips:
        if mine is not None:
            raise AstrayError("which trips are meant? Name one of each question; astray answer MODEL lists them")
        _list(load(model), settings)
        return
    if mine is None:
        raise AstrayError("were these trips the agent's own? Say --mine or --not-mine")
    with changing(model):
        detector = load(model)
        _answer(detector, trips, mine, settings)
        o.save(detector, model, new_model)


def _list(detector: IRLDetector | FleetDetector, settings: Settings) -> None:
    """What is asked, and what else waits."""
    for question in detector.questions_:
        tell("\n".join([str(question), *(f"  {harmless(str(trip))}" for trip in question.trips)]))
    asked = {trip for question in detector.questions_ for trip in question.trips}
    others = [trip for trip in detector.waiting_ if trip not in asked]
    if others:
        tell("\n".join([_apart(len(others), bool(asked)), *(f"  {harmless(str(trip))}" for trip in others)]))
    waiting = number_of(len(detector.waiting_), "trip")
    say(f"{number_of(len(detector.questions_), 'question')}; {waiting} waiting", quiet=settings.quiet)


def _answer(detector: IRLDetector | FleetDetector, trips: list[str], mine: bool, settings: Settings) -> None:
    from astray.trip_ids import find_trips

    named = find_trips(trips, detector.waiting_, among="trips that wait for an answer")
    groups = {trip: group for group in detector.questions_ for trip in group.trips}
    done = "learned as the agent's own" if mine else "known as anomalous; what is alike is refused from now on"
    for meant in dict.fromkeys(groups[trip].trips if trip in groups else (trip,) for trip in named):
        detector.answer(meant, mine)
        say(f"{', '.join(map(str, meant))}: {done}", quiet=settings.quiet)


def _apart(n: int, asked: bool) -> str:
    """How the waiting trips are called that no question is about.

    >>> _apart(1, asked=True), _apart(2, asked=False), _apart(1, asked=False)
    ('Unlike the others:', 'No two of them are alike:', 'Waiting:')
    """
    return "Unlike the others:" if asked else "Waiting:" if n == 1 else "No two of them are alike:"
