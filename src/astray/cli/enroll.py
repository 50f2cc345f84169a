"""``astray enroll``: new agents for a fleet model, by counting their trips."""

from __future__ import annotations

from astray.cli import options as o
from astray.cli.console import progress, say
from astray.cli.drift import Drift
from astray.errors import AstrayError
from astray.settings import LocalTime, Reading, Settings
from astray.text import number_of


@o.with_settings(Reading, LocalTime, "whole")
@o.changes_fleet
def command(
    settings: Settings,
    model: o.Model,
    file: o.Trips,
    output: o.NewModel = None,
    part: o.Part = None,
) -> None:
    """Let a fleet model know new agents, or further trips of known ones, by counting them.

    Nothing is trained, so this takes seconds: the fleet's reward looks at a trip through its agent's memory, and here
    memories are made. A new agent can be scored from its first trips on; until it has some history, low scores are for
    review. Trips that the model knows already are left out.

    [b]Examples[/b]

      astray enroll fleet.astray newcomers.csv
      astray enroll fleet.astray newcomers.parquet -o larger.astray
      [dim]# on four cores, or by four jobs of a cluster that share a disk[/dim]
      for i in 1 2 3 4; do astray enroll fleet.astray all.csv --part $i/4 & done
    """
    from astray.cli.reading import Source, in_part, joined, read_part
    from astray.detectors.fleet import FleetDetector
    from astray.storage import load

    fleet = load(model)
    if not isinstance(fleet, FleetDetector):
        reason, remedy = "a model of one agent or pool, which enrols nobody", "astray update adds trips to it"
        raise AstrayError(reason, place=model, remedy=remedy)
    before = len(fleet.members_)
    source = Source.of(file, settings, fleet)
    source.keep_from(output)
    counted, drift = 0, Drift(fleet, settings.quiet)
    with progress(f"counting {source.name}", quiet=settings.quiet) as done:
        # Many trips at a time, so that what is known of an agent is read and written once.
        for batch, share in joined(in_part(source.batches(), read_part(part))):
            drift.look(batch)
            counted += fleet.enroll(batch)
            done(share)
    o.save(fleet, model, output)
    source.say_left_out()
    now = len(fleet.members_)
    counts = f"{number_of(counted, 'trip')} counted, {number_of(now - before, 'new agent')}"
    say(f"{counts}; {number_of(now, 'agent')} now", quiet=settings.quiet)
    drift.say()
