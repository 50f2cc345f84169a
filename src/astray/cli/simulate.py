"""``astray simulate``: simulates a city, and writes the trips of its people to a file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from typer import Option

from astray.cli import options as o
from astray.cli.console import progress, say
from astray.core.atomic import keep_from
from astray.core.errors import AstrayError
from astray.core.settings import Settings
from astray.core.text import number_of

AT_A_TIME = 20
"""How many people are simulated at a time, if no anomalies are injected."""


@o.with_settings("seed")
def command(
    settings: Settings,
    output: Annotated[
        Path,
        Option("--output", "-o", metavar="FILE", help="The file for the trips: .parquet, .csv, .jsonl or .geojson."),
    ],
    people: Annotated[int, Option("--people", min=1, help="How many people live in the city.")] = 20,
    days: Annotated[
        int, Option("--days", min=1, help="How many days to simulate; each person makes two to four trips a day.")
    ] = 60,
    new: Annotated[
        Path | None,
        Option(
            "--new",
            metavar="FILE",
            help="Write the last part of everybody's trips to this file instead, to score them; only these have "
            "anomalies.",
        ),
    ] = None,
    new_share: Annotated[
        float, Option("--new-share", help="The share of the trips that goes to the file of --new.")
    ] = 0.25,
    inject: Annotated[
        list[str] | None,
        Option(
            "--inject",
            metavar="KIND,...",
            help="Make trips go wrong: all kinds, or some of agent-swap, detour, loiter, reversed, wrong-time, "
            "speeding, new-destination. The columns kind (of the trip) and anomalous (of each fix) hold the truth.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[float, Option("--rate", help="The share of the trips that goes wrong.")] = 0.1,
    fixes_every: Annotated[
        tuple[float, float], Option("--fixes-every", help="Shortest and longest typical seconds between two fixes.")
    ] = (2.0, 12.0),
) -> None:
    """Simulate a city and write the trips of its people.

    The people live, work, shop and visit, each by habitual ways; some trips are improvised. Writes a table with a row
    for each fix: agent, trajectory, time, lat and lon. With --inject some trips go wrong in known ways, so that you can
    see what a model finds. The same seed makes the same city.

    [b]Examples[/b]

      astray simulate -o trips.parquet --people 20 --days 60
      [dim]# something to fit, and something to score with a fifth of it wrong[/dim]
      astray simulate -o past.csv --new new.csv --inject all --rate 0.2
    """
    from astray.core.writers import check_target, fixes_and_trips, table_writer
    from astray.simulate import ANOMALY_KINDS, city

    kinds = [kind.strip() for part in inject or () for kind in part.split(",") if kind.strip()]
    kinds = list(ANOMALY_KINDS) if "all" in kinds else kinds
    unknown = [kind for kind in kinds if kind not in ANOMALY_KINDS]
    if unknown:
        there = f"there are all, {', '.join(ANOMALY_KINDS)}"
        raise AstrayError("no such kind", place=f"--inject {unknown[0]}", remedy=there)
    if new is not None:
        keep_from(new, [output], "the past trips go to this file")
    for target in (output, new):
        if target is not None:
            check_target(target)
    # One kind of anomaly is somebody else's trip, so all people must be simulated together.
    size = people if kinds else AT_A_TIME
    trips = fixes = 0
    whose = "1 person" if people == 1 else f"{people:,} people"
    with ExitStack() as stack:
        write = stack.enter_context(table_writer(output))
        write_new = None if new is None else stack.enter_context(table_writer(new))
        done = stack.enter_context(progress(f"simulating {whose} for {number_of(days, 'day')}", quiet=settings.quiet))
        for start in range(0, people, size):
            simulation = city(range(start, min(start + size, people)), days, settings.seed, interval=fixes_every)
            past, later = (simulation.trips, None) if new is None else simulation.split(new_share)
            if kinds and later is None:
                past = simulation.inject(past, kinds, rate, seed=settings.seed)
            elif kinds and later is not None:
                later = simulation.inject(later, kinds, rate, seed=settings.seed)
            write(fixes_and_trips(past, output), past)
            if later is not None and write_new is not None:
                write_new(fixes_and_trips(later, new), later)
            trips, fixes = trips + len(simulation.trips), fixes + simulation.trips.n_rows
            done(min(start + size, people) / people)
    say(f"{number_of(trips, 'trip')} of {whose}, {number_of(fixes, 'fix')}", quiet=settings.quiet)
