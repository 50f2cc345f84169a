"""``astray score``: writes how normal each trip, or each fix, of a file is."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from astray.cli import options as o
from astray.cli.console import say
from astray.core.errors import some_names
from astray.core.settings import Deciding, LocalTime, Reading, Settings, Streaming
from astray.core.text import harmless, number_of

if TYPE_CHECKING:
    import polars as pl

SHOWN = 20
"""The most trips to show on a terminal."""


@o.with_settings(Deciding, Reading, LocalTime, Streaming)
def command(
    settings: Settings,
    model: o.Model,
    file: o.Trips,
    output: o.Output = None,
    fixes: Annotated[bool, Option("--fixes", help="Write a row for each fix instead of one for each trip.")] = False,
    to: o.To = "csv",
    agent: o.OnlyAgent = None,
    part: o.Part = None,
) -> None:
    """Write a table that says how normal each trip, or each fix, of a file is.

    The table has a row for each trip. Its normality is about 0, give or take 1, if the trip is like the past ones, and
    falls the more it differs. The p-value is the share of normal trips that score as low. The decision is
    [b]anomaly[/b] if the p-value is at most the false-alarm rate, 2 in a hundred by default; otherwise it is
    [b]normal[/b]. It is [b]review[/b] instead of anomaly if the model is uncertain or has too few past trips, and for
    every trip of an agent that the model does not know. With --eps the score decides instead of the p-value. The aspect
    says what speaks most against a trip: its place, route, manner or time. p_place, p_route, p_manner and p_time are
    the p-values of each aspect alone; with a false-alarm rate for some of them, astray flags a trip if any of these is
    within its rate. astray streams large files on all cores.

    A terminal shows the trips with the lowest scores; a file or pipe gets the whole table. The last line, on standard
    error, counts the decisions.

    [b]Examples[/b]

      astray score me.astray new.csv
      astray score me.astray new.csv --to jsonl | jq .trajectory
      astray score fleet.astray new.parquet -o scores.parquet
      [dim]# flag about one normal trip in a hundred[/dim]
      astray score me.astray new.csv -o scores.csv --false-alarm-rate 0.01
      [dim]# flag unusual places and an unusual manner, and nothing else[/dim]
      astray score me.astray new.csv --false-alarm-rate place=0.015,manner=0.01
      [dim]# the second of four jobs that score everybody[/dim]
      astray score fleet.astray all.parquet --part 2/4 -o scores-2.parquet
      [dim]# a folder of Parquet files, by the workers of a cluster[/dim]
      astray score fleet.astray trips/ -o scores.parquet \\
        --cluster tls://scheduler:8786
      [dim]# every fix, to look at on a map[/dim]
      astray score me.astray new.csv --fixes -o fixes.geojson
    """
    from astray.cli.inputs import Source, only_agent, read_part
    from astray.cli.workers import at_work
    from astray.core.writers import table_writer
    from astray.jobs.scoring import Scorer, scored
    from astray.jobs.slabs import in_part
    from astray.jobs.work import unfinished_work

    scorer = Scorer(model.absolute(), settings, fixes)
    source = Source.of(file, settings, scorer.detector, agent)
    source.keep_from(output, model)
    chosen = read_part(part)
    batches, few = source.weighed()
    to_a_person = output is None and not fixes and to == "csv" and sys.stdout.isatty()
    decisions: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    shown: list[pl.DataFrame] = []
    with ExitStack() as stack:
        kept = None
        if output is not None and not few:
            of = (settings.of_results(), fixes, agent, part)
            kept = stack.enter_context(unfinished_work(output, [model, *source.files], *of))
        write = None if to_a_person else stack.enter_context(table_writer(output, to))
        workers, watch = stack.enter_context(at_work(f"scoring {source.name}", settings, few=few))
        tables = scored(scorer, in_part(batches, chosen), workers, watch, kept)
        for table, trips in stack.enter_context(closing(tables)):
            if write is None:
                shown.append(table)
            else:
                write(table, trips)
            for who in scorer.detector.unknown_agents(trips):
                unknown[who] += int((trips.agent_ids == who).sum())
            if not fixes:
                decisions.update(table["decision"].to_list())
    if to_a_person:
        _show(shown)
    source.say_left_out()
    if not fixes:
        say(_summary(decisions), quiet=settings.quiet)
    if unknown:
        only, n = only_agent(scorer.detector), unknown.total()
        theirs = "their one trip is" if n == 1 else f"their {n:,} trips are"
        enroll = "astray enroll MODEL FILE lets it know them"
        remedy = enroll if only is None else f"--agent {shlex.quote(only)} leaves them out"
        say(f"the model does not know {some_names(list(unknown))}: {theirs} for review; {remedy}", quiet=settings.quiet)


def _summary(decisions: Mapping[str, int]) -> str:
    """Returns the counts of the decisions in words.

    >>> _summary({"normal": 1000, "review": 1}), _summary({"anomaly": 1})
    ('1,001 trips: 1,000 normal, 0 anomalies, 1 for review', '1 trip: 0 normal, 1 anomaly, 0 for review')
    """
    normal, anomalies, review = (decisions.get(kind, 0) for kind in ("normal", "anomaly", "review"))
    wrong = f"{anomalies:,} anomal{'y' if anomalies == 1 else 'ies'}"
    return f"{number_of(sum(decisions.values()), 'trip')}: {normal:,} normal, {wrong}, {review:,} for review"


def _show(tables: list[pl.DataFrame]) -> None:
    """Prints the trips with the lowest scores for a person at a terminal."""
    import polars as pl
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    everything = pl.concat(tables).sort("score", nulls_last=True)
    headings = {"score": "score", "uncertainty": "+-", "p_value": "p", "decision": "decision", "aspect": "in"}
    zones = everything["zone"].unique().to_list() if "zone" in everything.columns else []
    shown = everything.head(SHOWN)
    note = f"; times are of {zones[0]}" if len(zones) == 1 else ""
    table = Table(title=f"Lowest scores first{note}", title_justify="left", box=None, header_style="bold")
    table.pad_edge, table.padding = False, (0, 1, 0, 0)
    # Names are wrapped but never cut, because a person copies them for astray explain.
    table.add_column("agent", overflow="fold", min_width=5)
    table.add_column("trajectory", overflow="fold", min_width=10)
    for name in headings:
        table.add_column(headings[name], justify="right" if shown[name].dtype.is_numeric() else "left", no_wrap=True)
    for name in [*(["start"] if zones else []), "worst segment"]:
        table.add_column(name, no_wrap=True)
    if len(zones) > 1:
        table.add_column("zone", overflow="fold")
    styles = {"anomaly": "bold red", "review": "yellow"}
    for row in shown.iter_rows(named=True):
        cells = [row["agent"], row["trajectory"], *(_cell(row[name]) for name in headings), *_times(row)]
        cells += [row["zone"]] if len(zones) > 1 else []
        # As Text, because [red] in a name is not markup.
        table.add_row(*(Text(harmless(cell)) for cell in cells), style=styles.get(row["decision"]))
    console = Console(highlight=False)
    console.print(table)
    if everything.height > SHOWN:
        console.print(f"and {everything.height - SHOWN:,} more; -o scores.csv writes all of them", style="dim")


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "-" if value is None else str(value)


def _times(row: Mapping[str, Any]) -> list[str]:
    """Returns when a trip began, and when its worst segment began and ended, in local time or in steps."""
    start, end = row["segment_start"], row["segment_end"]
    if "zone" not in row:
        return ["" if start is None else f"{start:.0f}-{end:.0f}"]
    from astray.core.zones import Zone

    zone = Zone.of(row["zone"])
    began = f"{zone.clock(row['start'].timestamp()):%Y-%m-%d %H:%M}"
    if start is None:
        return [began, ""]
    return [began, "-".join(f"{zone.clock(time.timestamp()):%H:%M}" for time in (start, end))]
