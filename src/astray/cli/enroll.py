"""``astray enroll``: adds agents to a fleet model by counting their trips."""

from __future__ import annotations

from astray.cli import options as o
from astray.cli.console import say
from astray.cli.drift import Drift
from astray.core.errors import AstrayError
from astray.core.settings import LocalTime, Reading, Settings, Streaming
from astray.core.text import number_of


@o.with_settings(Reading, LocalTime, Streaming, "verbose")
@o.changes_model
def command(
    settings: Settings,
    model: o.Model,
    file: o.Trips,
    output: o.NewModel = None,
    part: o.Part = None,
) -> None:
    """Add new agents to a fleet model, or further trips of known agents, by counting trips.

    This takes seconds, because nothing is trained: the fleet's reward compares a trip with its agent's memory, and this
    command fills the memories. You can score a new agent from its first trips on; until it has some history, low scores
    are for review. Trips that the model knows already are left out, so you can run a killed command again.

    [b]Examples[/b]

      astray enroll fleet.astray newcomers.csv
      astray enroll fleet.astray newcomers.parquet -o larger.astray
      [dim]# a folder of Parquet files; the workers of a cluster count the trips[/dim]
      astray enroll fleet.astray trips/ --cluster tls://scheduler:8786
      [dim]# the second of four jobs that together enrol all agents[/dim]
      astray enroll fleet.astray all.csv --part 2/4
    """
    from astray.cli.inputs import Source, read_part
    from astray.cli.workers import enrol
    from astray.detector import load
    from astray.jobs.work import unfinished_work

    fleet = load(model)
    if fleet.is_one:
        reason, remedy = "a model of one agent or pool, which enrols nobody", "astray update adds trips to it"
        raise AstrayError(reason, place=model, remedy=remedy)
    before, chosen = len(fleet.memories_), read_part(part)
    source = Source.of(file, settings, fleet)
    source.keep_from(output)
    drift = Drift(fleet, model, settings.quiet)
    if output is None or (output.exists() and output.samefile(model)):
        counted = enrol(model, source, chosen, drift.look)
        now = load(model)
    else:
        with unfinished_work(output, [model, *source.files], settings.of_results(), part) as copy:
            if not copy.exists():
                fleet.save(copy)
            counted = enrol(copy, source, chosen, drift.look)
            now = load(copy)
            o.save(now, model, output)
    source.say_left_out()
    there = len(now.memories_)
    counts = f"{number_of(counted, 'trip')} counted, {number_of(there - before, 'new agent')}"
    say(f"{counts}; {number_of(there, 'agent')} now", quiet=settings.quiet)
    drift.say(now)
