"""The report of a results folder: the tables of every protocol that was run, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from astray.atomic import replacing
from astray.benchmark import ablation, further_tables, measures, paper_tables, runner
from astray.benchmark import manifest as manifests
from astray.benchmark.protocols import PROTOCOLS
from astray.benchmark.results import Kept, Results
from astray.benchmark.tables import Table, write
from astray.errors import DataError

_TABLES: dict[str, Callable[[Results], list[Table]]] = {
    "p1": paper_tables.p1,
    "p2": paper_tables.p2,
    "p3": further_tables.p3,
    "p4": further_tables.p4,
    "p5": further_tables.p5,
    "p6": further_tables.p6,
    "cold-start": further_tables.cold_start,
}


def report(out: Path, kept: Kept | None = None) -> list[Table]:
    """All tables that the results in a folder allow; they are also written to ``tables/`` and ``report.md``.

    ``kept`` holds what has been computed, for whoever draws figures of it.
    """
    manifest = manifests.read(out)
    scores = runner.results(out)
    if manifest is None or scores is None:
        raise DataError(f"{out} holds no results yet; run astray benchmark with --out {out} first")
    made: list[Table] = []
    kept = {} if kept is None else kept
    for protocol, settings in PROTOCOLS[manifest["dataset"]].items():
        if protocol in manifest["protocols"]:
            trips = measures.of_setting(scores, settings)
            if len(trips):
                made += _TABLES[protocol](Results(out, manifest, settings, trips, kept))
    parts = ablation.table(scores, manifest["methods"])
    made += [parts] if parts else []
    every = scores.collect()
    made.append(_costs(every, manifest["methods"]))
    write(made, out / "tables")
    text = "\n".join([_head(manifest), *(table.markdown() for table in made)])
    with replacing(out / "report.md") as file:
        file.write(text.encode())
    return made


def _costs(trips: pl.DataFrame, methods: Sequence[str]) -> Table:
    """Processor seconds, and how many times those of the first method they are."""
    present = [m for m in methods if m in set(trips["method"].unique())]
    alike = trips.filter(pl.col("method").n_unique().over(*measures.DRAW) == len(present))
    found = measures.costs(alike if len(alike) else trips)
    seconds = {row["method"]: row for row in found.iter_rows(named=True)}
    base = seconds[present[0]]
    rows = [
        (
            m,
            seconds[m]["fit_seconds"],
            seconds[m]["calibrate_seconds"],
            seconds[m]["score_seconds"],
            seconds[m]["shared_seconds"] or None,
            _ratio(seconds[m]["fit_seconds"], base["fit_seconds"]),
            _ratio(seconds[m]["score_seconds"], base["score_seconds"]),
            seconds[m]["draws"],
        )
        for m in present
    ]
    columns: tuple[str, ...] = (
        "method",
        *(f"seconds | {what}" for what in ("fit", "calibrate", "score", "once for all")),
    )
    columns += (f"relative to {present[0]} | fit", f"relative to {present[0]} | score", "draws")
    same = "all methods on the same draws" if len(alike) else "methods on different draws, so that they do not compare"
    note = f"Median processor seconds of a draw, {same}, one thread each."
    return Table("costs", "Costs", columns, tuple(rows), note)


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None


def _head(manifest: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    lines = [
        f"# Results: {manifest['dataset']}",
        "",
        *(f"    {command}" for command in manifest["commands"]),
        "",
        f"Seeds {', '.join(map(str, manifest['seeds']))}; commit {manifest['commit'] or 'unknown'}; "
        f"data SHA-256 {manifest['data_sha256']}; {versions}; {manifest['machine']}.",
        "",
        *(f"- {name}: {value}" for name, value in manifest["settings"].items()),
        "",
    ]
    return "\n".join(lines)
