"""``astray check``: shows how a file of trips is read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Exit

from astray.cli import options as o
from astray.cli.console import say, tell, tell_facts
from astray.cli.running import as_flag
from astray.core.atomic import check_target
from astray.core.errors import Columns, DataError, some_names
from astray.core.settings import LocalTime, Reading, Settings
from astray.core.text import number_of

if TYPE_CHECKING:
    from astray.cli.inputs import Source
    from astray.core.trajectories import Trajectories
    from astray.readers import Report


@o.with_settings(Reading, LocalTime)
def command(
    settings: Settings,
    file: o.Trips,
    output: Annotated[Path | None, o.output("PICTURE", "Draw the trips: .png or .svg.")] = None,
    agent: o.OnlyAgent = None,
) -> None:
    """Show how astray reads a file of trips: columns, times, agents, trips, refused rows.

    Prints what astray recognises in the file, and a small map of the trips. It learns and writes nothing. Rows that
    cannot be used are listed with the reason. If there are any, or if the file cannot be read at all, the exit code is
    1. If astray does not recognise the columns, it suggests the flag that names them.

    [b]Examples[/b]

      astray check past.csv
      astray check 'tracks/*.gpx' -o tracks.png
      astray check log.csv --columns lat=Breite,lon=Laenge --time-zone Asia/Tokyo
    """
    if output is not None:
        check_target(output, (".png", ".svg"))
    from astray.cli.inputs import Source
    from astray.plots.trips_map import fixes_figure, text_map

    source = Source(file, replace(settings, skip_bad=True), agent)
    source.keep_from(output)
    try:
        trips = source.load()
    except DataError as error:
        raise _with_columns(error, source) from error
    tell_facts(dict(_facts(source, trips)))
    tell("\n" + "\n".join(f"  {line}" for line in text_map(trips.columns["lat"], trips.columns["lon"])))
    report = source.report
    if report.counts or report.assumptions:
        tell("\n" + report.told(as_flag))
    if output is not None:
        from astray.plots.style import save_figure

        save_figure(fixes_figure(trips), output)
        say(f"drawn in {output}", quiet=settings.quiet)
    if report.refused:
        them = "it" if report.refused == 1 else "them"
        rows = number_of(report.refused, "row")
        say(f"{rows} would be refused; correct {them}, or add --skip-bad to leave {them} out")
        raise Exit(1)


def _facts(source: Source, trips: Trajectories) -> Iterator[tuple[str, str]]:
    """Yields headings with the facts about the trips."""
    import numpy as np

    from astray.core.zones import Zone, by_place, home_of
    from astray.plots.trips_map import centred

    report, time, lat = source.report, trips.columns["time"], trips.columns["lat"]
    yield "files", source.name
    yield "format", ", ".join(source.formats)
    if report.columns:
        yield "columns", ", ".join(f"{role}={name}" for role, name in report.columns.items())
        yield "not used", some_names(report.unused) or "none"
    yield "times", report.times or "as the format has them"
    yield "agents", f"{len(trips.agents):,}: {some_names(trips.agents)}{_named_after(report)}"
    yield "trips", f"{len(trips):,}, {_how_cut(report.cut, len(trips))}"
    steps = np.diff(time)[np.diff(trips.trajectory_of_row) == 0]
    often = f", about one every {np.median(steps):.0f} s" if len(steps) else ""
    yield "fixes", f"{trips.n_rows:,}{often}"
    zone = home_of(trips) if source.settings.time_zone is None else Zone.of(source.settings.time_zone)
    yield "from", f"{zone.clock(float(time.min())):%Y-%m-%d %H:%M:%S}"
    yield "to", f"{zone.clock(float(time.max())):%Y-%m-%d %H:%M:%S}"
    yield "zone", str(zone)
    east = centred(trips.columns["lon"])
    yield "area", f"latitude {lat.min():.4f} to {lat.max():.4f}, longitude {east.min():.4f} to {east.max():.4f}"
    if np.abs(trips.columns["lon"]).max() <= 90:
        other = by_place(float(np.median(trips.columns["lon"])), float(np.median(lat)))
        yield "swapped?", f"the numbers alone do not tell; exchanged, the places would lie in {other}"


def _how_cut(cut: int, trips: int) -> str:
    """Says how many trips astray has cut out of longer recordings, because the fixes name no trip.

    >>> _how_cut(0, 7), _how_cut(7, 7), _how_cut(3, 7)
    ('as the file has them', 'cut at gaps and stays', '3 of them cut at gaps and stays')
    """
    if not cut:
        return "as the file has them"
    return "cut at gaps and stays" if cut == trips else f"{cut:,} of them cut at gaps and stays"


def _named_after(report: Report) -> str:
    kinds = set(report.named_after.values())
    return f" (named after the {kinds.pop()}, for the data name none)" if len(kinds) == 1 else ""


def _with_columns(error: DataError, source: Source) -> DataError:
    """Returns the error; if columns are missing, its remedy is one flag that names all of them."""
    parts = [part for part in error.remedy if isinstance(part, Columns)] if isinstance(error.remedy, tuple) else []
    if not parts:
        return error
    from astray.readers.input_files import open_files
    from astray.readers.read_report import Intake
    from astray.readers.suggest_columns import suggest_columns

    missing = parts[0].roles
    with open_files(source.path, Intake(skip_bad=True, report=source.report)) as given:
        found = suggest_columns(given.files[0], missing, source.options.get("delimiter"))
    names = ",".join(f"{role}={found.get(role, 'NAME')}" for role in (*missing, *(found.keys() - set(missing))))
    doubt = "check that these are the right ones" if found else "put the columns' names for NAME"
    flag = f"try --columns {shlex.quote(names)} ({doubt}; agent=NAME and trajectory=NAME may stand there, too)"
    return DataError(error.reason, place=error.place, remedy=flag)
