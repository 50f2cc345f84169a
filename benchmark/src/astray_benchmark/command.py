"""The command ``astray benchmark``: runs protocols on a data set, or continues a run; writes tables and figures."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from astray.core.errors import AstrayError, DataError

if TYPE_CHECKING:
    from astray_benchmark.protocols import Dataset
    from astray_benchmark.reporting.results import Kept
    from astray_benchmark.runner import Progress

EVERY = 10.0  # seconds between two lines of progress if there is no terminal
WHERE = {"geolife": "ASTRAY_GEOLIFE", "porto": "ASTRAY_PORTO"}


def command(
    dataset: Annotated[
        str,
        Argument(
            metavar="geolife|porto|simulated|trips|labelled|report",
            help="What to test on, or report.",
            show_default=False,
        ),
    ],
    folder: Annotated[
        Path | None,
        Argument(metavar="[FOLDER]", help="report: the folder whose tables and figures are made anew."),
    ] = None,
    out: Annotated[
        Path | None, Option("--output", "--out", "-o", metavar="FOLDER", help="Where results go.", show_default=False)
    ] = None,
    data: Annotated[
        Path | None,
        Option(
            "--data",
            metavar="PATH",
            help="Your copy of the data, or set ASTRAY_GEOLIFE or ASTRAY_PORTO; trips: any file that astray reads; "
            "labelled: a table.",
        ),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        Option("--protocol", "-p", metavar="P1,...", help="p1 to p10, or all, where the data allow it."),
    ] = None,
    methods: Annotated[
        list[str] | None,
        Option(
            "--methods",
            "-m",
            metavar="A,B,...",
            help="Methods; all by default, for trips those that take seconds. astray:encoder=raw sets options; "
            "ablation: astray in parts; stream: P7; package.module:Class: your own.",
        ),
    ] = None,
    seeds: Annotated[str, Option("--seeds", help="How many draws; or which: 0,3,7 or 5-9.")] = "5",
    workers: Annotated[int, Option("--workers", "-w", min=1, help="Processes.")] = 1,
    rate: Annotated[
        list[str] | None,
        Option("--rate", metavar="0.05,...", help="Only draws with these shares of anomalies; all by default."),
    ] = None,
    split: Annotated[
        list[str] | None,
        Option("--split", metavar="random,...", help="Only draws with these splits: random, chronological."),
    ] = None,
    users: Annotated[
        str | None,
        Option("--users", metavar="128,153", help="GeoLife, trips, labelled: who is tested, if not the usual ones."),
    ] = None,
    label: Annotated[
        str,
        Option("--label", metavar="COLUMN", help="Labelled: what is wrong with a trip; empty, 0 or normal: nothing."),
    ] = "label",
    past: Annotated[
        Path | None,
        Option("--past", metavar="FILE", help="Labelled: trips to learn from; if not the labelled ones, in folds."),
    ] = None,
    pooled: Annotated[bool, Option("--pooled", help="Labelled: everybody's trips are those of one pool.")] = False,
    pairs: Annotated[int, Option("--pairs", min=1, help="Porto: how many pairs of places P8 tests.")] = 20,
    people: Annotated[int, Option("--people", min=2, help="Simulated: how many are tested in a city.")] = 10,
    days: Annotated[int, Option("--days", min=7, help="Simulated: for how many days.")] = 90,
    cache: Annotated[
        bool, Option("--cache", help="GeoLife: keep what was parsed in the folder, as data.parquet, to start sooner.")
    ] = False,
    figures: Annotated[bool, Option("--figures/--no-figures", help="Draw figures.")] = True,
    examples: Annotated[
        bool, Option("--examples", help="Draw the paper's three example trips (P1); fits one model anew.")
    ] = False,
    changed_code: Annotated[
        bool, Option("--changed-code", help="Add to results of other code; the manifest says so.")
    ] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Measure astray and its rivals by fixed protocols, on your copy of the data.

    Every finished case is a file in the folder, so you may stop a run at any time: the same command continues it. You
    may add seeds, methods, protocols, rates and splits later, and so run a study in parts. A folder never mixes data,
    people or code.
    Tables (Markdown, CSV, LaTeX) go to FOLDER/tables and FOLDER/report.md, figures to FOLDER/figures. All numbers come
    from FOLDER/scores, a few small files: report makes them again from there, and runs nothing.

    [b]Examples[/b]

      astray benchmark simulated --out results/simulated --people 5 --seeds 2
      astray benchmark geolife --data Data -p p1 --workers 4 -o results/geolife
      [dim]# what each part brings; or a part of your own[/dim]
      astray benchmark simulated -p p1,p3 -m ablation -o ablation
      astray benchmark geolife --data Data -m astray,astray:heads=20 -o heads
      [dim]# on trips of your own, of a dozen agents or more[/dim]
      astray benchmark trips --data fleet.csv -p p1 -o results/fleet
      [dim]# on trips whose column kind says what is wrong with them[/dim]
      astray benchmark labelled --data new.csv --label kind -o results/labelled
      [dim]# your own detector beside them: a class with fit and score_samples[/dim]
      astray benchmark geolife --data Data -m lof,my_module:MyDetector -o mine
      [dim]# the tables and figures once more, from the scores that are kept[/dim]
      astray benchmark report results/geolife
    """
    from astray_benchmark import kept_scores, manifest, runner
    from astray_benchmark.external_detectors import ExternalDetector
    from astray_benchmark.labelled_data import LabelledTrips
    from astray_benchmark.methods import FOLLOWING, METHODS, OWN_BACKGROUND, QUICK, QUICK_POOL
    from astray_benchmark.methods import methods as by_name
    from astray_benchmark.people_data import AgentsTrips, GeoLife
    from astray_benchmark.porto_data import Porto
    from astray_benchmark.protocols import PROTOCOLS, cases, chosen, protocols
    from astray_benchmark.simulated_data import Simulated

    if dataset == "report":
        _report(folder or out, figures, quiet)
        return
    if dataset not in PROTOCOLS:
        raise DataError(f"no data set named {dataset!r}", remedy=f"there are {', '.join(PROTOCOLS)}")
    if folder is not None:
        raise DataError(
            f"the folder {folder} has no flag", remedy="name results as -o FOLDER, and your copy of data as --data"
        )
    if out is None:
        raise DataError("no folder is given for the results", remedy=f"give astray benchmark {dataset} -o FOLDER")
    rates, splits = shares(rate or []), words(split or [])
    asked_for = chosen(dataset, protocols(dataset, protocol or ["all"]), rates, splits)
    usual = {"porto": OWN_BACKGROUND, "trips": (*QUICK, *FOLLOWING), "labelled": QUICK_POOL if pooled else QUICK}
    contenders = by_name(methods or usual.get(dataset, (*METHODS, *FOLLOWING)))
    able = {p: [m.name for m in contenders if any(runner.able(m, s) for s in asked_for[p])] for p in asked_for}
    wanted = [p for p, those in able.items() if those]
    if not wanted:
        streams = all(s.family == "stream" for settings in asked_for.values() for s in settings)
        raise DataError(
            f"none of the methods is for {', '.join(asked_for)}",
            remedy=f"give some of {', '.join(FOLLOWING if streams else QUICK)}",
        )
    idle = [m.name for m in contenders if not any(m.name in those for those in able.values())]
    if idle and methods and not quiet:
        _say(f"not for {', '.join(asked_for)}, and left out: {', '.join(idle)}")
    draws = numbers(seeds)
    tested = tuple(words([users or ""]))
    past_file = None if past is None else _existing(dataset, past, "--past")
    sources: dict[str, Callable[[str], Dataset]] = {
        "geolife": lambda path: GeoLife(path, tested, cache=str(out / "data.parquet") if cache else None),
        "porto": lambda path: Porto(path, pairs=pairs),
        "trips": lambda path: AgentsTrips(path, tested),
        "labelled": lambda path: LabelledTrips(path, label, past_file, tested, pooled),
    }
    simulated, labelled = dataset == "simulated", dataset == "labelled"
    source = Simulated(people, days) if simulated else sources[dataset](_existing(dataset, data))
    out.mkdir(parents=True, exist_ok=True)
    names = [m.name for m in contenders]
    flags = {
        "--rate": ",".join(f"{r:g}" for r in rates),
        "--split": ",".join(splits),
        "--users": users or "",
        "--pairs": str(pairs) if "p8" in wanted else "",
        "--people": str(people) if simulated else "",
        "--days": str(days) if simulated else "",
        "--label": label if labelled else "",
        "--past": "PAST" if labelled and past else "",
        "--pooled": labelled and pooled,
    }
    typed = manifest.command(dataset, wanted, names, draws, flags)
    external = {m.name: m.source for m in contenders if isinstance(m, ExternalDetector)}
    asked = manifest.Asked(typed, wanted, names, draws, external)
    manifest.record(out, source, asked, changed_code=changed_code)
    with _shown(quiet) as show:
        every = cases(source, wanted, draws, rates, splits)
        kept_scores.ask(out, runner.jobs_of(contenders, every))
        outcome = runner.run(source, contenders, every, out, workers=workers, progress=show)
    failed = outcome.failed
    if not quiet:
        _say(f"{outcome.ran} cases run, {outcome.skipped} were there already, {len(failed)} failed")
    _report(out, figures and runner.results(out) is not None, quiet)
    if examples:
        from astray_benchmark.examples import draw_examples

        draw_examples(out, source)
    if failed:
        first = failed[0]
        raise AstrayError(
            f"{len(failed)} cases failed, the first: {first.job.case.name}, {first.job.method}: {first.error}",
            remedy="the same command tries them again",
        )


def _report(out: Path | None, figures: bool, quiet: bool) -> None:
    """Writes the tables and figures of a folder, and prints the tables."""
    from astray_benchmark.reporting.report import report

    if out is None:
        raise DataError("no folder is given", remedy="give astray benchmark report FOLDER")
    kept: Kept = {}
    made = report(out, kept)
    if figures:
        from astray_benchmark.reporting.figures import draw

        draw(out, kept)
    for table in made:
        if not quiet and "users" not in table.name:
            print(table.markdown())


def _existing(name: str, path: Path | None, flag: str = "--data") -> str:
    """Returns the path of the data, by default from the environment; raises an error if it does not exist."""
    if path is None and (found := os.environ.get(WHERE.get(name, ""))):
        path = Path(found)
    if path is None or not path.exists():
        where = f"{path} does not exist" if path else "no path is given for the data"
        remedy = f"give your copy as {flag}, or set {WHERE[name]}" if name in WHERE else f"give a file as {flag}"
        raise DataError(f"{name}: {where}", remedy=remedy)
    return str(path)


def numbers(text: str) -> list[int]:
    """Parses seeds: a single number is how many, from 0 on; any other text is a list of numbers and ranges.

    >>> numbers("3"), numbers("0,5-7"), numbers("4-4")
    ([0, 1, 2], [0, 5, 6, 7], [4])
    """
    try:
        if text.strip().isdigit():
            found = list(range(int(text)))
        else:
            ends = [part.split("-") for part in text.split(",") if part.strip()]
            found = [n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)]
    except ValueError:
        found = []
    if not found:
        raise DataError(
            f"--seeds {text!r} cannot be used", remedy="give how many, such as 5, or which, such as 0,3,7 or 5-9"
        )
    return list(dict.fromkeys(found))


def words(given: Iterable[str]) -> list[str]:
    """Splits texts at commas; returns each word once.

    >>> words(["random", "a, b"])
    ['random', 'a', 'b']
    """
    return list(dict.fromkeys(word.strip() for text in given for word in text.split(",") if word.strip()))


def shares(given: Iterable[str]) -> list[float]:
    """Parses shares of anomalies.

    >>> shares(["0.05,.1"])
    [0.05, 0.1]
    """
    try:
        return [float(word) for word in words(given)]
    except ValueError:
        raise DataError(
            f"--rate {','.join(given)!r} cannot be used", remedy="give shares, such as 0.05 or 0.05,0.1"
        ) from None


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
                _say(f"{p.finished}/{p.total} cases, {_words(p)}")

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


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
