"""``astray fit``: learn what is normal from past trips, and write a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from astray.atomic import changing
from astray.cli import options as o
from astray.cli.console import Advance, leaving_at_once, progress, say, say_suspects
from astray.errors import AstrayError
from astray.settings import (
    Chance,
    Deciding,
    FleetOnly,
    ItsOwn,
    Learning,
    LocalTime,
    OneAgent,
    OwnReward,
    Reading,
    Settings,
    SettingsError,
    flag_of,
)
from astray.text import harmless, number_of, shortened

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from astray.detectors.agent import IRLDetector
    from astray.detectors.fleet import FleetDetector
    from astray.trajectories import Trajectories


@o.with_settings(Learning, OneAgent, FleetOnly, ItsOwn, OwnReward, Deciding, Reading, LocalTime, Chance)
def command(
    settings: Settings,
    file: o.Trips,
    output: Annotated[
        Path, Option("--output", "-o", metavar="MODEL", help="The model's file, such as me.astray.", show_default=False)
    ],
    agent: Annotated[
        str | None,
        Option("--agent", metavar="NAME", help="Learn this agent; the others in the file are who it is told from."),
    ] = None,
    pooled: Annotated[bool, Option("--pooled", help="Learn all agents as if they were one.")] = False,
    population: Annotated[
        Path | None, Option("--population", metavar="FILE", help="Trips of others, to tell one agent from.")
    ] = None,
    anomalous: Annotated[
        list[str] | None,
        Option(
            "--anomalous", metavar="TRIP", help="A trip known to be anomalous, which must not teach. May be repeated."
        ),
    ] = None,
) -> None:
    """Learn what is normal from a file of past trips, and write a model.

    If all trips are of one agent, the model is of that agent. With [b]--agent[/b] it is of that one, told from the
    others in the file, which makes it sharper. A file with many agents makes a [b]fleet[/b] model: one reward for all,
    a memory for each, and new agents are enrolled later by counting. With [b]--pooled[/b] all agents are learned as if
    they were one: is this normal for anybody here?

    The reward that judges trips ships with astray, so one agent alone takes a second: its trips are counted. Where
    there are a dozen others with ten trips each, the reward goes on learning from them for some tens of seconds.

    The trips should be normal ones; name those you know to be wrong with --anomalous. Trips that are probably
    somebody else's are taken out of the memory, and named.

    [b]Examples[/b]

      astray fit past.csv -o fleet.astray
      astray fit past.csv -o ana.astray --agent ana
      [dim]# several files, of any format that astray reads; they may be packed[/dim]
      astray fit 'tracks/*.gpx' more-tracks.zip -o me.astray --agent me
      [dim]# only where she goes and when; one false alarm in two hundred[/dim]
      astray fit past.csv -o ana.astray --agent ana --look-for place,time \\
        --false-alarm-rate 0.005
      [dim]# columns with names of their own; bad rows left out and listed[/dim]
      astray fit log.csv -o me.astray --columns lat=Breite,lon=Laenge --skip-bad
      [dim]# GeoLife, one person told from the others[/dim]
      astray fit Data/ -o 017.astray --agent 017 --cache geolife.parquet
    """
    from astray.cli.reading import Source
    from astray.detectors.agent import IRLDetector

    _check(output, agent, pooled)
    source = Source(file, settings, owner=agent, one_agent=agent is not None)
    source.keep_from(output)
    past = source.load()
    source.say_left_out()
    others = None
    if population is not None:
        given = Source(population, settings)
        given.keep_from(output)
        others = given.load()
        given.say_left_out()
    alone = agent is not None or pooled or len(past.agents) == 1
    _check_kind(source.name, alone, others is not None, settings)
    marks = _marks(past, agent, anomalous or [], source.name)
    with leaving_at_once():
        model = _one(past, marks, agent, others, settings) if alone else _fleet(past, marks, settings)
    with changing(output):
        model.save(output)
    say(f"{output}: {_described(model)}", quiet=settings.quiet)
    if isinstance(model, IRLDetector):
        say_suspects(model.suspects_, quiet=settings.quiet)


def _check(output: Path, agent: str | None, pooled: bool) -> None:
    """Refuse what cannot be meant, before anything takes long."""
    if agent is not None and pooled:
        raise AstrayError("--agent and --pooled contradict each other; give one of them")
    if (output.exists() and not output.is_file()) or not output.parent.is_dir():
        raise AstrayError(f"{output}: the model cannot be written there; name a file in a folder that exists")


def _check_kind(file: str, alone: bool, has_population: bool, settings: Settings) -> None:
    """Refuse what the kind of model that is made does not know, instead of ignoring it."""
    if has_population and not alone:
        raise SettingsError("--population is for a model of one agent; add --agent NAME or --pooled")
    for name in settings.of(*([FleetOnly] if alone else [OneAgent, ItsOwn, OwnReward])):
        flag = flag_of(name)
        if alone:
            raise SettingsError(f"{flag} is for a fleet, and this model is of one agent or pool; leave it out")
        raise SettingsError(
            f"{flag} is for a model of one agent or pool, and {file} makes a fleet, since its trips are of several "
            "agents; add --agent NAME or --pooled, or leave it out"
        )
    learns_its_own = settings.preset == "kdd19" or settings.encoder in ("fourier", "raw")
    for name in settings.given(("look_for", "reward")) if learns_its_own else settings.of(OwnReward):
        flag = flag_of(name)
        if learns_its_own:
            raise SettingsError(f"{flag} is of the reward that serves everybody; leave out --preset and --encoder")
        raise SettingsError(
            f"{flag} says how a reward of the agent's own is learned, and this model begins with the one that serves "
            "everybody; add --preset kdd19 or --encoder fourier, or leave it out"
        )


def _marks(trips: Trajectories, agent: str | None, anomalous: list[str], file: str) -> NDArray[np.int64]:
    """-1 for the trips, of the agent that is learned, that are named as anomalous, else 1."""
    import numpy as np

    from astray.trip_ids import find_trips

    mine = trips if agent is None else trips.agent(agent)
    whose = "" if agent is None else f" of {agent}"
    return np.where(trips.isin(find_trips(anomalous, mine.ids, among=f"trips{whose} in {file}")), -1, 1)


def _one(
    trips: Trajectories, marks: NDArray[np.int64], agent: str | None, others: Trajectories | None, settings: Settings
) -> IRLDetector:
    from astray.detectors.agent import IRLDetector
    from astray.trajectories import Trajectories

    mine, y = trips, marks
    if agent is not None:
        mine, y = trips.agent(agent), y[trips.agent_ids == agent]
        rest = [given for given in (trips.without(agent), others) if given is not None and len(given)]
        others = Trajectories.concat(rest) if rest else None
    what = f"learning from {number_of(len(mine), 'trip')}"
    with progress(what, quiet=settings.quiet) as done:
        detector = IRLDetector(progress=_iterations(done), **settings.of(IRLDetector))
        return detector.fit(mine, y, population=others)


def _fleet(trips: Trajectories, marks: NDArray[np.int64], settings: Settings) -> FleetDetector:
    from astray.detectors.fleet import FleetDetector

    what = f"learning from {number_of(len(trips), 'trip')} of {number_of(len(trips.agents), 'agent')}"
    with progress(what, quiet=settings.quiet) as done:
        fleet = FleetDetector(progress=_iterations(done), **settings.of(FleetDetector))
        return fleet.fit(trips, marks)


def _iterations(done: Advance) -> Callable[[int, int, Mapping[str, float]], None]:
    return lambda iteration, iterations, measures: done(iteration / max(iterations, 1))


def _described(model: IRLDetector | FleetDetector) -> str:
    from astray.detectors.fleet import FleetDetector

    if isinstance(model, FleetDetector):
        return f"a fleet of {number_of(len(model.agents), 'agent')}; astray score MODEL FILE scores their new trips"
    whose = f" of {harmless(shortened(model.agents[0]))}" if len(model.agents) == 1 and model.agents[0] else ""
    return f"learned from {number_of(model.n_trips_, 'trip')}{whose}; astray score MODEL FILE scores new ones"
