"""Tables that no recipe can describe: the paper's own, the ablation, costs, and failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from astray_benchmark import kept_scores, measures, runner
from astray_benchmark.measures import MEAN_ONLY
from astray_benchmark.protocols import Setting
from astray_benchmark.reporting import printed
from astray_benchmark.reporting.results import INTERVALS, Results, flagging, mean_of, parts_of, percent
from astray_benchmark.reporting.table import Cell, Table
from astray_benchmark.variants import VARIANTS, WHOLE

# -------------------------------------------------------------------- beside the paper


def printed_users(results: Results) -> list[Table]:
    """Makes the paper's Tables 2 and 3 as printed, for results on GeoLife."""
    if results.dataset != "geolife":
        return []
    made = []
    for rate, users in printed.GEOLIFE_USERS.items():
        n = len(next(iter(users.values())))
        rows: list[tuple[Cell, ...]] = [(f"U{i + 1}", *(x for name in users for x in users[name][i])) for i in range(n)]
        rows.append(("Avg", *(x for name in users for x in printed.GEOLIFE[rate][name])))
        columns = ("Data", *(f"{name} | {short}" for name in users for short in ("R", "P", "F1")))
        title = f"The paper's own figures by person, GeoLife, {percent(rate)}"
        note = "The paper does not say who its ten users are."
        made.append(Table(f"paper_{rate:g}_users", title, columns, tuple(rows), note))
    return made


def table_1_people(results: Results) -> list[Table]:
    """Makes the paper's Table 1 for GeoLife at the 10 % rate, beside our figures."""
    if results.dataset != "geolife":
        return []
    ours = _chosen(results, {"GeoLife, ours": {"rate": 0.1, "split": "random"}})
    return [_table_1(ours, "GeoLife, paper", printed.GEOLIFE[0.1], results.methods)] if ours else []


def table_1_pool(results: Results) -> list[Table]:
    """Makes the paper's Table 1 for Porto, beside the figures of our readings."""
    wanted = {f"TST, ours ({s.reading})": {"reading": s.reading} for s in results.settings}
    return [_table_1(_chosen(results, wanted), "TST, paper", printed.PORTO, results.methods)]


def _chosen(results: Results, wanted: Mapping[str, Mapping[str, str | float]]) -> dict[str, pl.DataFrame]:
    """Returns, for each head, the draws with the wanted values; leaves out heads without draws."""
    figures = results.frame("trips")
    assert figures is not None
    found = {head: figures.filter(pl.col(k) == v for k, v in values.items()) for head, values in wanted.items()}
    return {head: part for head, part in found.items() if len(part)}


def _table_1(
    ours: Mapping[str, pl.DataFrame], head: str, theirs: Mapping[str, printed.Printed], methods: Sequence[str]
) -> Table:
    """Makes a table in the form of the paper's Table 1, with rows for the recall, precision and F1 of each method."""
    found = {title: dict(parts_of(figures, methods)) for title, figures in ours.items()}
    present = [method for method in methods if any(method in parts for parts in found.values())]
    rows: list[tuple[Cell, ...]] = []
    for method in present:
        beside = theirs.get(printed.PAPER_NAMES.get(method, ""))
        for i, (metric, said) in enumerate({"recall": "Recall", "precision": "Precision", "f1": "F1 score"}.items()):
            mine = (mean_of(parts[method], metric) if method in parts else None for parts in found.values())
            rows.append((method if i == 0 else "", said, *mine, beside[i] if beside else None))
    title = "Average F1, recall and precision beside the paper's Table 1"
    return Table("table_1", title, ("Method", "", *found, head), tuple(rows), flagging(present))


TABLES: dict[str, Callable[[Results], list[Table]]] = {
    "printed_users": printed_users,
    "table_1_people": table_1_people,
    "table_1_pool": table_1_pool,
}
"""The tables that a recipe may name as ``irregular``."""

# -------------------------------------------------------------------- of the whole folder


def ablation(scores: pl.LazyFrame, methods: Sequence[str]) -> list[Table]:
    """Compares the variants of astray with the default on the same draws; returns an empty list if none was run.

    It uses N(tau) for foreign trips, and the score for injected anomalies.
    """
    present = [m for m in methods if m in VARIANTS]
    if not present:
        return []
    chosen = scores.filter(pl.col("method").is_in([WHOLE, *present]))
    usual: dict[str, Any] = {"family": "person", "contamination": 0.0, "history": 0, "split": "random"}
    swapped = chosen.filter(pl.col(column) == value for column, value in usual.items()).collect()
    injected = measures.of_setting(chosen, [Setting(injected=True)])
    columns: dict[str, list[Cell]] = {}
    if len(swapped):
        figures = measures.of_trips(swapped)
        columns |= _against_the_whole(figures, "auroc", MEAN_ONLY, "somebody else's trips | AUROC", present)
        columns |= _against_the_whole(figures, "ap", MEAN_ONLY, "somebody else's trips | AP", present)
    if len(injected):
        figures = measures.of_trips(injected, by_kind=True)
        columns |= _against_the_whole(figures, "auroc", "", "injected, mean of kinds | AUROC", present)
    seconds = dict(measures.costs(chosen.collect()).select("method", "fit_seconds").iter_rows())
    columns["fit | s"] = [seconds.get(m) for m in (WHOLE, *present)]
    rows = tuple((m, *(cells[i] for cells in columns.values())) for i, m in enumerate((WHOLE, *present)))
    note = (
        "Each row changes one thing about the first. Differences are means over the draws that both have. Seconds: "
        f"median processor time of a fit. {INTERVALS}"
    )
    return [Table("ablation", "What each part brings", ("", *columns), rows, note)]


def _against_the_whole(
    figures: pl.DataFrame, metric: str, way: str, head: str, present: Sequence[str]
) -> dict[str, list[Cell]]:
    """Returns a column of means, and one of differences from the default."""
    # A method that decides only by N(tau), such as the paper's preset, has no separate row for that.
    ways = [dict(parts_of(figures, [name + way, name])) for name in (WHOLE, *present)]
    whole, *parts = [next(iter(found.values()), None) for found in ways]
    means: list[Cell] = [None if p is None else measures.interval(p, metric).mean for p in (whole, *parts)]
    differences: list[Cell] = [
        None if part is None or whole is None else measures.difference(part, whole, metric) for part in parts
    ]
    return {head: means, f"{head}, difference": [None, *differences]}


def costs(trips: pl.DataFrame, methods: Sequence[str], commands: Sequence[str]) -> list[Table]:
    """Compares processor seconds with those of the first method; puts streams into a separate table."""
    in_stream = pl.col("family") == "stream"
    made = []
    for name, title, chosen in (("costs", "Costs", ~in_stream), ("costs_stream", "Costs of a stream", in_stream)):
        part = trips.filter(chosen)
        present = [m for m in methods if m in set(part["method"].unique())]
        made += [_costs(name, title, part, present, commands)] if present else []
    return made


def _costs(name: str, title: str, trips: pl.DataFrame, present: Sequence[str], commands: Sequence[str]) -> Table:
    alike = trips.filter(pl.col("method").n_unique().over(*measures.DRAW) == len(present))
    found = measures.costs(alike if len(alike) else trips)
    seconds = {row["method"]: row for row in found.iter_rows(named=True)}
    base = seconds[present[0]]
    rows = [
        (
            m,
            seconds[m]["fit_seconds"],
            seconds[m]["calibrate_seconds"] or None,
            seconds[m]["score_seconds"],
            seconds[m]["shared_seconds"] or None,
            *(seconds[m][what] / base[what] if base[what] else None for what in ("learn_seconds", "score_seconds")),
            seconds[m]["draws"],
        )
        for m in present
    ]
    columns = ("method", *(f"seconds | {what}" for what in ("fit", "calibrate", "score", "once for all")))
    columns += (*(f"relative to {present[0]} | {what}" for what in ("fit + calibrate", "score")), "draws")
    same = "all methods on the same draws" if len(alike) else "methods on different draws, so that they do not compare"
    note = f"Median processor seconds of a draw, {same}, one thread each. astray calibrates itself as part of its fit."
    if len(commands) > 1:
        note += " Not all rows come from one command, so that the machine may have been more or less busy."
    return Table(name, title, columns, tuple(rows), note)


def missing(out: Path, manifest: Mapping[str, Any], name: str = "", title: str = "") -> list[Table]:
    """Lists what was asked for and has no scores, and the methods that failed; their names and titles have prefixes."""
    tables = unfinished(out, manifest) + failures(out)
    return [
        replace(t, name=name + t.name, title=title + t.title[0].lower() + t.title[1:]) if name else t for t in tables
    ]


def unfinished(out: Path, manifest: Mapping[str, Any]) -> list[Table]:
    """Lists what was asked for and has no scores; returns an empty list if everything is finished."""
    trips = kept_scores.read_kept(out, runner.TRIPS)
    present = [] if trips is None else trips.select("method").unique().collect()["method"].to_list()
    rows: list[tuple[Cell, ...]] = []
    for row in kept_scores.unfinished(out).iter_rows(named=True):
        setting = Setting(**{name: row[name] for name in measures.SETTING})
        rows.append((row["method"], f"{row['family']}/{setting.name}", row["finished"], row["asked"]))
    named = {row[0] for row in rows}
    rows += [(m, "", 0, None) for m in manifest["methods"] if m not in present and m not in named]
    if not rows:
        return []
    note = "The run was stopped, or these cases failed. The same command runs them."
    return [
        Table("unfinished", "Asked for, and not finished", ("method", "cases", "finished", "asked"), tuple(rows), note)
    ]


def failures(out: Path) -> list[Table]:
    """Lists the methods that failed, with the reasons; returns an empty list if none did."""
    failed = runner.results(out, runner.FAILED)
    if failed is None:
        return []
    counted = failed.group_by("method", "why", maintain_order=True).agg(pl.len(), pl.col("case").sort().first())
    rows = tuple(counted.select("method", "len", "why", "case").collect().iter_rows())
    note = "These cases are missing in the tables above. The same command tries them again."
    return [Table("failed", "Failed", ("method", "cases", "why", "such as"), rows, note)]
