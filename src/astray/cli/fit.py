"""``astray fit``: learns what is normal from past trips, and writes a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from astray.cli import options as o
from astray.cli.console import learning, progress, say, say_suspected
from astray.core.atomic import changing, check_target, keep_from
from astray.core.errors import AstrayError
from astray.core.settings import PAPER_PRESETS, FleetOnly, ItsOwn, OneAgent, OwnReward, Settings, SettingsError, flag_of
from astray.core.text import harmless, number_of, shortened

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from astray.cli.inputs import Source
    from astray.core.trajectories import Trajectories
    from astray.detector import Detector


@o.with_settings(*o.FITTING)
def command(
    settings: Settings,
    file: o.Trips,
    output: Annotated[Path, o.output("MODEL", "The model's file, such as me.astray.")],
    agent: Annotated[
        str | None,
        Option("--agent", metavar="NAME", help="Learn this agent, and tell it from the other agents in the file."),
    ] = None,
    pooled: Annotated[bool, Option("--pooled", help="Learn all agents as if they were one.")] = False,
    population: Annotated[
        Path | None, Option("--population", metavar="FILE", help="Trips of other agents, to tell the learned one from.")
    ] = None,
    anomalous: Annotated[
        list[str] | None,
        o.anomalous("A trip that you know to be anomalous: the model does not learn from it."),
    ] = None,
    part: o.Part = None,
) -> None:
    """Learn what is normal from a file of past trips, and write a model.

    If all trips are of one agent, or with [b]--agent[/b], the model is of that agent. From the trips of the others in
    the file it learns to tell the agent from them, which makes it sharper. A file with many agents makes a
    [b]fleet[/b] model: one reward for all agents, and a memory for each; astray enroll adds agents later by counting
    their trips. With [b]--pooled[/b] the model learns all agents as if they were one, and asks of a trip: is this
    normal for anybody here? Use it for taxis and other vehicles that go where they are sent.

    The reward that judges trips ships with astray, so fitting one agent means counting its trips and takes a second. If
    a dozen others have ten trips each, it learns a second stage from them in seconds, and keeps it only if people held
    out of it are better for it. For a fleet of a dozen or for a pool the reward continues learning from their own trips
    for some tens of seconds (--preset shared leaves a pool's as it is); this needs torch (pip install
    'astray\\[learn]'). With --iterations 0 the reward stays as it ships.

    If the trips of a fleet do not fit into memory, astray streams the files: it learns the reward from a sample of the
    agents, and then enrols all agents. With [b]--part[/b] it enrols only the agents of that part; the reward is the
    same for every part. If the command is killed, run it again: it continues where it was.

    The trips should be normal ones; name those that you know to be wrong with --anomalous. astray leaves trips that
    look like another agent's out of the memory, and names them.

    [b]Examples[/b]

      astray fit past.csv -o fleet.astray
      astray fit past.csv -o ana.astray --agent ana
      [dim]# several files, of any format that astray reads; they may be compressed[/dim]
      astray fit 'tracks/*.gpx' more-tracks.zip -o me.astray --agent me
      [dim]# only where she goes and when; one false alarm in two hundred[/dim]
      astray fit past.csv -o ana.astray --agent ana --look-for place,time \\
        --false-alarm-rate 0.005
      [dim]# columns whose names astray does not know; bad rows left out and listed[/dim]
      astray fit log.csv -o me.astray --columns lat=Breite,lon=Laenge --skip-bad
      [dim]# a folder of Parquet files; the workers of a cluster count the trips[/dim]
      astray fit trips/ -o fleet.astray --cluster tls://scheduler:8786
      [dim]# GeoLife, one person told from the others[/dim]
      astray fit Data/ -o 017.astray --agent 017 --cache geolife.parquet
    """
    import numpy as np

    from astray.cli.inputs import Source
    from astray.core.trajectories import Trajectories
    from astray.core.trip_ids import find_trips

    if agent is not None and pooled:
        raise AstrayError("--agent and --pooled contradict each other", remedy="give one of them")
    check_target(output)
    source = Source(file, settings, owner=agent, one_agent=agent is not None)
    source.keep_from(output)
    for held, kept in (("the reward is", settings.reward), ("the fixes of GeoLife are", settings.cache)):
        keep_from(output, [] if kept is None else [Path(kept)], f"{held} kept in this file")
    simple_fleet = not (agent or pooled or anomalous or population)
    if part is not None and not simple_fleet:
        raise AstrayError("--part is for a fleet of trips that are all normal", remedy="leave out the other flags")
    if part is not None or (source.streamed_files and simple_fleet):
        learned = _streamed(source, output, part)
        if learned is not None:
            _say_learned(output, learned, settings)
            return
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
    mine = past if agent is None else past.agent(agent)
    among = f"trips{'' if agent is None else f' of {agent}'} in {source.name}"
    marks = np.where(mine.isin(find_trips(anomalous or [], mine.ids, among=among)), -1, 1)
    if agent is not None:
        rest = [trips for trips in (past.without(agent), others) if trips is not None and len(trips)]
        others = Trajectories.concat(rest) if rest else None
    model = _learned(mine, settings, marks, pooled=pooled or (None if alone else False), population=others)
    with changing(output):
        model.save(output)
    _say_learned(output, model, settings)


def _say_learned(output: Path, model: Detector, settings: Settings) -> None:
    if model.is_one:
        whose = f" of {harmless(shortened(model.agents[0]))}" if len(model.agents) == 1 and model.agents[0] else ""
        said = f"learned from {number_of(model.n_trips_, 'trip')}{whose}; astray score MODEL FILE scores new ones"
    else:
        said = f"a fleet of {number_of(len(model.memories_), 'agent')}; astray score MODEL FILE scores their new trips"
    say(f"{output}: {said}", quiet=settings.quiet)
    if model.is_one and model.n_trips_ < model.min_history:
        few = f"with fewer than {model.min_history:g} past trips (--min-history), everything unusual goes to review"
        say(f"{few}; astray update MODEL FILE adds further trips", quiet=settings.quiet)
    say_suspected(model.suspects_, quiet=settings.quiet)


def _streamed(source: Source, output: Path, part: str | None) -> Detector | None:
    """Learns a fleet from a sample of its agents, then enrols all agents, without loading all trips at once.

    Returns None if all trips are of one agent, which makes another kind of model.
    """
    from astray.cli.inputs import read_part
    from astray.cli.workers import enrol
    from astray.detector import load
    from astray.jobs.slabs import part_of, sampled
    from astray.jobs.work import unfinished_work
    from astray.readers import Report

    settings, chosen = source.settings, read_part(part)
    with unfinished_work(output, source.files, settings.of_results(), part) as unfinished:
        if not unfinished.exists():
            with progress(f"reading {source.name}", quiet=settings.quiet) as done:
                first = replace(source, report=Report())  # the second reading reports what is left out
                some, is_whole = sampled(first.batches(), settings.seed, watch=done)
            if len(some.agents) == 1 and is_whole and part is None:
                return None
            _check_kind(source.name, False, False, settings)
            fleet = _learned(some, settings, pooled=False)
            if chosen is not None:
                number, n = chosen
                for who in fleet.agents:
                    if part_of(who, n) != number:
                        del fleet.memories_[who]  # it still counts for the popularity, as in every part
            fleet.save(unfinished)
        enrol(unfinished, source, chosen)
        learned = load(unfinished)
        with changing(output):
            learned.save(output)
    source.say_left_out()
    return learned


def _check_kind(file: str, alone: bool, has_population: bool, settings: Settings) -> None:
    """Raises an error for settings that this kind of model does not use; to ignore them would hide a mistake."""
    if has_population and not alone:
        raise SettingsError("--population is for a model of one agent", remedy="add --agent NAME or --pooled")
    learns_its_own = settings.preset in PAPER_PRESETS or settings.encoder in ("fourier", "raw")
    several = f"is for a model of one agent or pool, and {file} makes a fleet, since its trips are of several agents"
    begins = "says how a reward of the agent's own is learned; this model begins with the one that serves everybody"
    of_one = settings.of(FleetOnly), "is for a fleet, and this model is of one agent or pool", "leave it out"
    of_many = settings.of(OneAgent, ItsOwn, OwnReward), several, "add --agent NAME or --pooled, or leave it out"
    shared = settings.given(("look_for", "reward")), "is of the reward that serves everybody"
    own = settings.of(OwnReward), begins, "add --preset kdd19, or leave it out"
    for given, why, remedy in (
        of_one if alone else of_many,
        (*shared, "leave out --preset and --encoder") if learns_its_own else own,
    ):
        for name in given:
            raise SettingsError(f"{flag_of(name)} {why}", remedy=remedy)


def _learned(
    trips: Trajectories,
    settings: Settings,
    marks: NDArray[np.int64] | None = None,
    *,
    pooled: bool | None,
    population: Trajectories | None = None,
) -> Detector:
    """Fits a model of one agent (``pooled`` is None), of a pool (True) or of a fleet (False)."""
    from astray.detector import Detector

    given = settings.of(Detector)
    if pooled:  # the default preset would not take a pool whose trips name one agent for a pool
        given.setdefault("preset", "own")
    whose = f" of {number_of(len(trips.agents), 'agent')}" if pooled is False else ""
    others = 0 if population is None else len(population.agents)
    among = f" and those of {number_of(others, 'other agent')}" if others else ""
    what = f"learning from {number_of(len(trips), 'trip')}{whose}{among}"
    with learning(what, quiet=settings.quiet) as progress:
        return Detector(pooled=pooled, progress=progress, **given).fit(trips, marks, population=population)
