"""Runs the cases that a folder of results lacks, shows the progress, and writes the report."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from astray.core.errors import AstrayError, DataError

if TYPE_CHECKING:
    from astray_benchmark.contenders import Contender
    from astray_benchmark.manifest import Asked
    from astray_benchmark.protocols import Dataset
    from astray_benchmark.reporting.results import Kept
    from astray_benchmark.reporting.table import Table
    from astray_benchmark.runner import Done, Outcome, Progress

EVERY = 10.0  # seconds between two lines of progress if there is no terminal
WHERE = {"geolife": "ASTRAY_GEOLIFE", "porto": "ASTRAY_PORTO"}
CACHE = "data.parquet"  # in the folder of results


class Running(NamedTuple):
    """How to run, whatever is run."""

    workers: int = 1
    figures: bool = True
    changed_code: bool = False
    quiet: bool = False


def existing(name: str, path: Path | None, flag: str = "--data") -> str:
    """Returns the path of the data, by default from the environment; raises an error if it does not exist."""
    if path is None and (found := os.environ.get(WHERE.get(name, ""))):
        path = Path(found)
    if path is None or not path.exists():
        where = f"{path} does not exist" if path else "no path is given for the data"
        remedy = f"give your copy as {flag}, or set {WHERE[name]}" if name in WHERE else f"give a file as {flag}"
        raise DataError(f"{name}: {where}", remedy=remedy)
    return str(path)


def asked_of(
    dataset: str,
    protocols: Sequence[str],
    contenders: Sequence[Contender],
    draws: Sequence[int],
    flags: Mapping[str, str | bool],
) -> Asked:
    """Returns what a command asks for, as the manifest keeps it."""
    from astray_benchmark import manifest
    from astray_benchmark.external_detectors import ExternalDetector

    names = [m.name for m in contenders]
    typed = manifest.command(dataset, protocols, names, draws, flags)
    external = {m.name: m.source for m in contenders if isinstance(m, ExternalDetector)}
    return manifest.Asked(typed, protocols, names, draws, external)


def run_cases(
    out: Path,
    source: Dataset,
    contenders: Sequence[Contender],
    asked: Asked,
    running: Running,
    rates: Sequence[float] = (),
    splits: Sequence[str] = (),
) -> Outcome:
    """Runs the cases that a folder of results lacks, only those with the given rates and splits if there are any."""
    from astray_benchmark import kept_scores, manifest, runner
    from astray_benchmark.protocols import cases

    out.mkdir(parents=True, exist_ok=True)
    manifest.record(out, source, asked, changed_code=running.changed_code)
    every = cases(source, asked.protocols, asked.seeds, rates, splits)
    kept_scores.ask(out, runner.jobs_of(contenders, every))
    with _shown(running.quiet) as show:
        outcome = runner.run(source, contenders, every, out, workers=running.workers, progress=show)
    if not running.quiet:
        say(f"{outcome.ran} cases run, {outcome.skipped} were there already, {len(outcome.failed)} failed")
    return outcome


def raise_if_failed(failed: Sequence[Done]) -> None:
    """Raises an error that names the first of the cases that failed."""
    if failed:
        first = failed[0]
        raise AstrayError(
            f"{len(failed)} cases failed, the first: {first.job.case.name}, {first.job.method}: {first.error}",
            remedy="the same command tries them again",
        )


def write_report(out: Path | None, figures: bool, quiet: bool) -> None:
    """Writes the tables and figures of a folder, and prints the tables."""
    from astray_benchmark import runner
    from astray_benchmark.kept_scores import read_kept
    from astray_benchmark.reporting import paper_page

    if out is None:
        raise DataError("no folder is given", remedy="give astray benchmark report FOLDER")
    if parts := paper_page.parts(out):
        for part in parts:
            if runner.results(part) is not None or read_kept(part, runner.TRIPS) is not None:
                write_report(part, figures, quiet=True)
        made = paper_page.write_page(out)
    else:
        made = _report(out, figures)
    if not quiet:
        print_tables(made)


def _report(out: Path, figures: bool) -> list[Table]:
    from astray_benchmark.reporting.report import report

    kept: Kept = {}
    made = report(out, kept)
    if figures:
        from astray_benchmark.reporting.figures import draw

        draw(out, kept)
    return made


def print_tables(tables: Sequence[Table]) -> None:
    """Prints tables, but for those of single people, which are long."""
    for table in tables:
        if "users" not in table.name:
            print(table.markdown())


# -------------------------------------------------------------------- progress


@contextmanager
def _shown(quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """Shows the progress of a run and the time left: a bar on a terminal, otherwise a line every few seconds."""
    if quiet:
        yield lambda progress: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bars

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task("", total=None)
            yield lambda p: bars.update(task, total=p.total, completed=p.finished, description=_words(p))
    else:
        last = time.monotonic() - EVERY

        def line(p: Progress) -> None:
            nonlocal last
            if time.monotonic() - last >= EVERY or p.finished == p.total:
                last = time.monotonic()
                say(f"{p.finished}/{p.total} cases, {_words(p)}")

        yield line


def _words(p: Progress) -> str:
    where = f"{p.last.job.method} on {p.last.job.case.subject} took {duration(p.last.seconds)}"
    return f"about {duration(p.left)} left ({where}{'; failed' if p.last.error else ''})"


def duration(seconds: float) -> str:
    """Describes a duration.

    >>> duration(4.2), duration(200), duration(8000)
    ('4 s', '3 min', '2.2 h')
    """
    if not seconds < 90:
        return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
    return f"{seconds:.0f} s"


def say(words: str) -> None:
    """Prints a remark to standard error."""
    print(words, file=sys.stderr, flush=True)
