"""The command ``astray benchmark``: runs protocols on a data set, or continues a run; writes tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from astray.core.errors import DataError

if TYPE_CHECKING:
    from astray_benchmark.protocols import Dataset


def command(
    dataset: Annotated[
        str,
        Argument(
            metavar="geolife|porto|simulated|trips|labelled|paper|report",
            help="What to test on; paper: the paper's tables beside ours; report: no run.",
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
    geolife: Annotated[
        Path | None, Option("--geolife", metavar="DIR", help="Paper: your copy of GeoLife, or set ASTRAY_GEOLIFE.")
    ] = None,
    porto: Annotated[
        Path | None, Option("--porto", metavar="PATH", help="Paper: your copy of Porto's taxis, or set ASTRAY_PORTO.")
    ] = None,
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
      [dim]# the tables of the paper, as printed and as measured here: FOLDER/paper.md[/dim]
      astray benchmark paper --geolife Data --porto train.csv -w 2 -o paper
      [dim]# the tables and figures once more, from the scores that are kept[/dim]
      astray benchmark report results/geolife
    """
    from astray_benchmark import runner
    from astray_benchmark.labelled_data import LabelledTrips
    from astray_benchmark.methods import FOLLOWING, METHODS, OWN_BACKGROUND, QUICK, QUICK_POOL
    from astray_benchmark.methods import methods as by_name
    from astray_benchmark.paper_study import run_paper
    from astray_benchmark.people_data import AgentsTrips, GeoLife
    from astray_benchmark.porto_data import Porto
    from astray_benchmark.protocols import PROTOCOLS, chosen, protocols
    from astray_benchmark.simulated_data import Simulated
    from astray_benchmark.study import CACHE, Running, asked_of, existing, raise_if_failed, run_cases, say, write_report

    if dataset == "report":
        write_report(folder or out, figures, quiet)
        return
    if dataset not in (*PROTOCOLS, "paper"):
        raise DataError(f"no data set named {dataset!r}", remedy=f"there are {', '.join(PROTOCOLS)} and paper")
    if folder is not None:
        raise DataError(
            f"the folder {folder} has no flag", remedy="name results as -o FOLDER, and your copy of data as --data"
        )
    if out is None:
        raise DataError("no folder is given for the results", remedy=f"give astray benchmark {dataset} -o FOLDER")
    draws, tested, running = numbers(seeds), tuple(words([users or ""])), Running(workers, figures, changed_code, quiet)
    if dataset == "paper":
        if data or protocol or rate or split:
            raise DataError(
                "the paper's data sets and protocols are fixed", remedy="leave out --data, -p, --rate and --split"
            )
        run_paper(out, {"geolife": geolife, "porto": porto}, methods or (), draws, tested, cache, running)
        return
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
        say(f"not for {', '.join(asked_for)}, and left out: {', '.join(idle)}")
    past_file = None if past is None else existing(dataset, past, "--past")
    sources: dict[str, Callable[[str], Dataset]] = {
        "geolife": lambda path: GeoLife(path, tested, cache=str(out / CACHE) if cache else None),
        "porto": lambda path: Porto(path, pairs=pairs),
        "trips": lambda path: AgentsTrips(path, tested),
        "labelled": lambda path: LabelledTrips(path, label, past_file, tested, pooled),
    }
    simulated, labelled = dataset == "simulated", dataset == "labelled"
    source = Simulated(people, days) if simulated else sources[dataset](existing(dataset, data))
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
    asked = asked_of(dataset, wanted, contenders, draws, flags)
    outcome = run_cases(out, source, contenders, asked, running, rates, splits)
    write_report(out, figures and runner.results(out) is not None, quiet)
    if examples:
        from astray_benchmark.examples import draw_examples

        draw_examples(out, source)
    raise_if_failed(outcome.failed)


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
