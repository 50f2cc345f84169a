"""``astray fit``: learn what is normal from past trips, and write a model."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from astray.cli import options as o
from astray.cli.console import (
    Advance,
    leaving_at_once,
    leaving_when_tidied,
    progress,
    say,
    say_if_several,
    say_suspects,
)
from astray.errors import AstrayError
from astray.settings import SettingsError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from astray.detectors.detector import IRLDetector
    from astray.detectors.fleet import FleetDetector
    from astray.settings import Settings
    from astray.trajectories import Trajectories

LEARNING = "Learning"
EVERYBODY = ("iterations", "heads", "networks", "explorers", "eps", "gamma", "min_history", "robust", "window")
ONE = ("preset", "encoder", "objective", "interval", "max_trips", "max_population", "keep")
FLEET = ("max_agents",)


def command(
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
    fine_tune: Annotated[
        bool,
        Option(
            "--fine-tune",
            help="For a fleet: also a reward of its own for each agent, on all cores. Takes long; if "
            "it is killed, the same command goes on from there.",
        ),
    ] = False,
    checkpoints: Annotated[
        Path | None,
        Option(
            "--checkpoints",
            metavar="FOLDER",
            help="Where finished agents are kept. Default: MODEL.parts, which is removed when the model is whole.",
        ),
    ] = None,
    preset: Annotated[
        str | None, Option("--preset", help="default, or kdd19: the paper to the letter.", rich_help_panel=LEARNING)
    ] = None,
    encoder: Annotated[
        str | None,
        Option(
            "--encoder", help="What the reward sees of a step: familiarity, fourier or raw.", rich_help_panel=LEARNING
        ),
    ] = None,
    objective: Annotated[
        str | None, Option("--objective", help="step, or trajectory: the paper's Eq. 9.", rich_help_panel=LEARNING)
    ] = None,
    interval: Annotated[
        float | None,
        Option("--interval", help="Seconds between the steps that are learned from.", rich_help_panel=LEARNING),
    ] = None,
    iterations: Annotated[
        int | None, Option("--iterations", help="Iterations of learning.", rich_help_panel=LEARNING)
    ] = None,
    heads: Annotated[
        int | None, Option("--heads", help="Reward heads: their spread is the uncertainty.", rich_help_panel=LEARNING)
    ] = None,
    networks: Annotated[
        int | None, Option("--networks", help="Independent networks of so many heads each.", rich_help_panel=LEARNING)
    ] = None,
    explorers: Annotated[
        str | None,
        Option(
            "--explorers",
            metavar="A,B,...",
            help="Counterfactuals in the background, by name: the ways of going wrong to look for.",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    window: Annotated[
        float | None,
        Option("--window", help="Seconds of the worst window, which finds what is short.", rich_help_panel=LEARNING),
    ] = None,
    robust: Annotated[
        bool | None,
        Option(
            "--robust",
            help="Scales by median and quantile, for heavy tails.",
            rich_help_panel=LEARNING,
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        int | None,
        Option(
            "--keep", help="Past trips that the model keeps, thinned, to go on learning from.", rich_help_panel=LEARNING
        ),
    ] = None,
    max_trips: Annotated[
        int | None,
        Option(
            "--max-trips",
            help="Learn the reward from at most so many trips; all are remembered.",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    max_population: Annotated[
        int | None, Option("--max-population", help="At most so many trips of others.", rich_help_panel=LEARNING)
    ] = None,
    max_agents: Annotated[
        int | None,
        Option(
            "--max-agents",
            help="Learn a fleet's reward from at most so many agents; all are enrolled.",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    eps: o.Eps = None,
    gamma: o.Gamma = None,
    min_history: o.MinHistory = None,
    format: o.Format = None,
    columns: o.Columns = None,
    time_unit: o.TimeUnit = None,
    time_zone: o.TimeZone = None,
    users: o.Users = None,
    cache: o.Cache = None,
    read: o.ReadOptions = None,
    skip_bad: o.SkipBad = None,
    workers: o.Workers = None,
    seed: o.Seed = None,
    config: o.Config = None,
    quiet: o.Quiet = None,
) -> None:
    """Learn what is normal from a file of past trips, and write a model.

    If all trips are of one agent, the model is of that agent. With [b]--agent[/b] it is of that one, told from the
    others in the file, which makes it sharper. A file with many agents makes a [b]fleet[/b] model: one reward for all,
    a memory for each, and new agents are enrolled later by counting. With [b]--pooled[/b] all agents are learned as if
    they were one: is this normal for anybody here?

    The trips should be normal ones; name those you know to be wrong with --anomalous. Told from others, an agent is
    also guarded against trips that look like theirs: they do not teach, and are named.

    [b]Examples[/b]

      astray fit past.csv -o fleet.astray
      astray fit past.csv -o ana.astray --agent ana
      [dim]# columns with names of their own; bad rows left out and listed[/dim]
      astray fit log.csv -o me.astray --columns lat=Breite,lon=Laenge --skip-bad
      [dim]# GeoLife, one person told from the others[/dim]
      astray fit Data/ -o 017.astray --agent 017 --cache geolife.parquet
    """
    settings = o.gathered(locals())
    from astray.cli.reading import Source
    from astray.detectors.detector import IRLDetector
    from astray.detectors.fleet import FleetDetector

    _check(output, agent, pooled, fine_tune, checkpoints)
    source = Source(file, settings)
    trips = source.load()
    source.say_left_out()
    others = None
    if population is not None:
        crowd = Source(population, settings)
        others = crowd.load()
        crowd.say_left_out()
    alone = agent is not None or pooled or len(trips.agents) == 1
    _check_kind(file, alone, others is not None, fine_tune, settings)
    marks = _marks(trips, anomalous or [], settings)
    with leaving_at_once():
        model = _one(trips, marks, agent, others, settings) if alone else _fleet(trips, marks, settings)
    if fine_tune and isinstance(model, FleetDetector):
        _fine_tune(model, trips, checkpoints or _parts(output), settings)
    model.save(output)
    if fine_tune and checkpoints is None:
        shutil.rmtree(_parts(output), ignore_errors=True)
    say(f"{output}: {_described(model)}", quiet=settings.quiet)
    if isinstance(model, IRLDetector):
        say_suspects(model.suspects_, quiet=settings.quiet)


def _check(output: Path, agent: str | None, pooled: bool, fine_tune: bool, checkpoints: Path | None) -> None:
    """Refuse what cannot be meant, before anything takes long."""
    if agent is not None and pooled:
        raise AstrayError("--agent and --pooled contradict each other; give one of them")
    if fine_tune and (agent is not None or pooled):
        raise AstrayError("--fine-tune is for a fleet; without --agent and --pooled a file with many agents makes one")
    if checkpoints is not None and not fine_tune:
        raise SettingsError("--checkpoints is for --fine-tune; add that, or leave it out")
    if output.is_dir() or not output.parent.is_dir():
        raise AstrayError(f"{output}: the model cannot be written there; name a file in a folder that exists")


def _check_kind(file: Path, alone: bool, has_population: bool, fine_tune: bool, settings: Settings) -> None:
    """Refuse what the kind of model that is made, of one agent or pool or of a fleet, does not know."""
    for name in settings.given(FLEET if alone else ONE):
        flag = f"--{name.replace('_', '-')}"
        if alone:
            raise SettingsError(f"{flag} is for a fleet, and this model is of one agent or pool; leave it out")
        raise SettingsError(
            f"{flag} is for a model of one agent or pool, and {file} makes a fleet, since its trips are of several "
            "agents; add --agent NAME or --pooled, or leave it out"
        )
    if has_population and not alone:
        raise SettingsError("--population is for a model of one agent; add --agent NAME or --pooled")
    if fine_tune and alone:
        raise SettingsError(f"{file}: all trips are of one agent; --fine-tune is for a fleet of many")


def _parts(output: Path) -> Path:
    """Where the rewards of agents wait until the model is whole."""
    return output.with_name(f"{output.name}.parts")


def _marks(trips: Trajectories, anomalous: list[str], settings: Settings) -> NDArray[np.int64]:
    """-1 for the trips that are named as anomalous, else 1."""
    import numpy as np

    from astray.mdp.view import trip_names

    for name in anomalous:
        meant = trip_names(trips[trips.called([name])])
        if not meant:
            raise AstrayError(f"--anomalous {name}: there is no such trip in the file")
        say_if_several(name, meant, quiet=settings.quiet)
    return np.where(trips.called(anomalous), -1, 1)


def _one(
    trips: Trajectories, marks: NDArray[np.int64], agent: str | None, others: Trajectories | None, settings: Settings
) -> IRLDetector:
    from astray.detectors.detector import IRLDetector
    from astray.trajectories import Trajectories

    mine, y = trips, marks
    if agent is not None:
        mine, y = trips.agent(agent), y[trips.agent_ids == agent]
        rest = [crowd for crowd in (trips.without(agent), others) if crowd is not None and len(crowd)]
        others = Trajectories.concat(rest) if rest else None
    what = f"learning from {len(mine):,} trips"
    with progress(what, quiet=settings.quiet) as done:
        detector = IRLDetector(seed=settings.seed, progress=_iterations(done), **settings.given(EVERYBODY + ONE))
        return detector.fit(mine, y, population=others)


def _fleet(trips: Trajectories, marks: NDArray[np.int64], settings: Settings) -> FleetDetector:
    from astray.detectors.fleet import FleetDetector

    what = f"learning from {len(trips):,} trips of {len(trips.agents):,} agents"
    with progress(what, quiet=settings.quiet) as done:
        fleet = FleetDetector(seed=settings.seed, progress=_iterations(done), **settings.given(EVERYBODY + FLEET))
        return fleet.fit(trips, marks)


def _fine_tune(fleet: FleetDetector, trips: Trajectories, folder: Path, settings: Settings) -> None:
    with leaving_when_tidied(), progress("fine-tuning agents", quiet=settings.quiet) as done:
        fleet.fine_tune(trips, n_jobs=settings.workers or -1, folder=folder, progress=_iterations(done))


def _iterations(done: Advance) -> Callable[[int, int, Mapping[str, float]], None]:
    return lambda iteration, iterations, measures: done(iteration / max(iterations, 1))


def _described(model: IRLDetector | FleetDetector) -> str:
    from astray.detectors.fleet import FleetDetector

    if isinstance(model, FleetDetector):
        return f"a fleet of {len(model.agents):,} agents; astray score MODEL FILE scores their new trips"
    return f"learned from {model.n_trips_:,} trips; astray score MODEL FILE scores new ones"
