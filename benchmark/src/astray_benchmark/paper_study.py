"""Runs the paper's experiments: its methods on GeoLife and on Porto's taxis, and the page of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from astray.core.errors import DataError
from astray_benchmark import runner
from astray_benchmark.examples import PICTURE, draw_examples
from astray_benchmark.methods import methods as by_name
from astray_benchmark.people_data import GeoLife
from astray_benchmark.porto_data import Porto
from astray_benchmark.reporting.paper_page import METHODS, PROTOCOLS, VARIANTS, write_page
from astray_benchmark.runner import TRIPS
from astray_benchmark.study import (
    CACHE,
    Running,
    asked_of,
    existing,
    print_tables,
    raise_if_failed,
    run_cases,
    say,
    write_report,
)

if TYPE_CHECKING:
    from astray_benchmark.protocols import Dataset
    from astray_benchmark.runner import Done

PRESET = "kdd19"  # the method of the picture


def run_paper(
    out: Path,
    copies: Mapping[str, Path | None],
    methods: Sequence[str],
    draws: Sequence[int],
    users: tuple[str, ...],
    cache: bool,
    running: Running,
) -> None:
    """Runs the paper's methods on its data sets, each into a folder of its name, and writes the page of its tables.

    ``copies`` are the paths of the data sets, by default from the environment. If one is missing, the other one runs.
    """
    paths = {}
    for name, given in copies.items():
        try:
            paths[name] = existing(name, given, f"--{name}")
        except DataError as error:
            if given is not None:
                raise
            say(f"{error}; it is not run")
    if not paths:
        raise DataError("there is no copy of the paper's data", remedy="give --geolife DIR, --porto PATH or both")
    contenders = by_name(methods or (*METHODS, *VARIANTS))
    failed: list[Done] = []
    sources: dict[str, Dataset] = {}
    for name, path in paths.items():
        folder, protocol = out / name, PROTOCOLS[name]
        if name == "geolife":
            sources[name] = GeoLife(path, users, cache=str(folder / CACHE) if cache else None)
        else:
            sources[name] = Porto(path)
        flags = {"--split": "random", "--users": ",".join(users) if name == "geolife" else ""}
        asked = asked_of(name, [protocol], contenders, draws, flags)
        failed += run_cases(folder, sources[name], contenders, asked, running, splits=["random"]).failed
        scored = runner.results(folder) is not None
        write_report(folder, running.figures and scored, quiet=True)
        if scored:
            write_page(out)  # so that it is there while the other data set runs
    people, lives = out / "geolife", sources.get("geolife")
    learned = any((people / TRIPS).rglob(f"{PRESET}*.parquet"))
    if lives is not None and running.figures and learned and not (people / PICTURE).exists():
        draw_examples(people, lives, PRESET)
    if any(runner.results(out / name) is not None for name in sources):
        made = write_page(out)
        if not running.quiet:
            print_tables(made)
    raise_if_failed(failed)
