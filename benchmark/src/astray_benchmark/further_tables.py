"""The tables of P3, P4, P6 and P9: kinds of anomaly, where and when, contamination, from nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from astray_benchmark import measures
from astray_benchmark.protocols import PREFIXES
from astray_benchmark.results import (
    INTERVALS,
    Results,
    deciding,
    draws_of,
    flagging,
    mean_of,
    parts_of,
    percent,
)
from astray_benchmark.tables import Cell, Table

_FEW = (
    "A baseline whose own left-out trips are fewer than 49 has no p-value so low, and flags nothing; astray's p-values "
    "borrow other people's trips while the person has few."
)


def p3(results: Results) -> list[Table]:
    """Kinds of injected anomaly: of trips and of single fixes."""
    figures = measures.of_trips(results.trips, by_kind=True)
    made = [
        by_kind(f"p3_{m}", f"P3 {results.dataset}: {said} of trips, by kind, at 5 % each", figures, m, results.methods)
        for m, said in (
            ("ap", "average precision"),
            ("auroc", "AUROC"),
            ("f1", "F1 at the fixed threshold"),
            ("f1_default", f"F1 at p ≤ {measures.RATE:g}"),
        )
    ]
    fixes = results.fixes()
    if fixes is not None:
        title = f"P3 {results.dataset}: average precision of single fixes, by kind"
        made.append(by_kind("p3_fix_ap", title, fixes, "fix_ap", results.methods))
    return made


def by_kind(name: str, title: str, figures: pl.DataFrame, metric: str, methods: Sequence[str]) -> Table:
    """One row a method, one column a kind of anomaly, and their mean."""
    kinds = sorted(figures["kind"].unique().to_list())
    rows: list[tuple[Cell, ...]] = []
    for method, part in parts_of(figures, deciding(methods, metric)):
        by_kind = [mean_of(part.filter(pl.col("kind") == kind), metric) for kind in kinds]
        rows.append((method, *by_kind, measures.interval(part, metric), draws_of(part)))
    rule = f" {flagging(str(row[0]) for row in rows)}" if metric == "f1" else ""
    note = f"Each kind against all normal trips.{rule} {INTERVALS}"
    return Table(name, title, ("method", *kinds, "mean", "draws"), tuple(rows), note)


def p4(results: Results) -> list[Table]:
    """Where and when."""
    made: list[Table] = []
    fixes, prefixes = results.fixes(), results.prefixes()
    if fixes is not None:
        made.append(_localisation(fixes, results))
    if prefixes is not None:
        made += _observed(prefixes, results)
    return made


def _localisation(figures: pl.DataFrame, results: Results) -> Table:
    columns = {
        "AUROC": "fix_auroc",
        "AP": "fix_ap",
        "VUS-PR": "vus_pr",
        "affiliation | P": "affiliation_precision",
        "affiliation | R": "affiliation_recall",
        "range-F1": "range_f1",
        "noticed": "detected",
        "delay | fixes": "delay_fixes",
        "delay | s": "delay_seconds",
        "false alarms": "false_alarms",
        "normal trips with an alarm": "alarmed_trips",
    }

    def cell(part: pl.DataFrame, metric: str) -> Cell:
        if metric.startswith("delay"):
            return float(part[metric].median())  # type: ignore[arg-type]  # a mean of infinite delays says nothing
        return measures.interval(part, metric) if metric == "fix_ap" else mean_of(part, metric)

    rows = [
        (method, *(cell(part, metric) for metric in columns.values()), draws_of(part))
        for method, part in parts_of(figures, results.methods)
    ]
    note = (
        "Baselines of steps have a step about every 30 s, astray every 15 s or as the data have them; a fix has the "
        f"score of its step. Means over kinds. A fix is flagged at a normality of {measures.EPS:g} or less. VUS-PR "
        f"with buffers up to {measures.BUFFER} fixes, never across the end of a trip. Affiliation and range-F1 leave "
        "out the kinds that make every fix of a trip anomalous, for there any flag is in the right place. Noticed: the "
        "share of anomalies flagged before they ended. Delays: the median over draws and kinds of the median over "
        "anomalies, a missed one counting as infinite (∞: in half of these or more, most were missed). False "
        "alarms: runs of flagged fixes per 1,000 normal fixes; normal trips with an alarm: the share of them in which "
        "any fix is flagged. "
        f"{INTERVALS}"
    )
    heads = ("method", *columns, "draws")
    return Table("p4_where", f"P4 {results.dataset}: where and when", heads, tuple(rows), note)


def _observed(figures: pl.DataFrame, results: Results) -> list[Table]:
    made = []
    figures = measures.on_the_same_draws(figures, "ratio")
    for metric, said in (("auroc", "AUROC"), ("ap", "average precision")):
        rows: list[tuple[Cell, ...]] = [
            (method, *_by_ratio(part, metric), draws_of(part)) for method, part in parts_of(figures, results.methods)
        ]
        note = (
            "A prefix is anomalous only if its anomaly has begun in it. All kinds together. astray knows that a prefix "
            "is not finished, and leaves out where it ends; other methods score it as if it were a whole trip."
        )
        if metric == "ap":
            # The truth is the same whoever scores it.
            every = figures.unique([*measures.DRAW, "ratio"], maintain_order=True)
            rows.append(("base rate", *_by_ratio(every, "share_begun"), draws_of(every)))
            note += " Base rate: the share of anomalous prefixes, which is the average precision of a guess."
        title = f"P4 {results.dataset}: {said} when a share of each trip has been seen"
        columns = ("method", *(percent(r) for r in PREFIXES), "draws")
        made.append(Table(f"p4_seen_{metric}", title, columns, tuple(rows), note))
    return made


def _by_ratio(figures: pl.DataFrame, metric: str) -> list[float | None]:
    return [mean_of(figures.filter(pl.col("ratio") == ratio), metric) for ratio in PREFIXES]


def p6(results: Results) -> list[Table]:
    """Contaminated training."""
    title = f"P6 {results.dataset}: {{}} with others' trips left in the training set"
    metrics = {"ap": "average precision", "f1": "F1", "f1_default": f"F1 at p ≤ {measures.RATE:g}"}
    return _against("p6", title, results, "contamination", percent, metrics, changed=(0.05,))


def p9(results: Results) -> list[Table]:
    """From nothing: after few trips."""
    title = f"P9 {results.dataset}: {{}} after so many trips"
    metrics = {
        "auroc": "AUROC",
        "ap": "average precision",
        "f1": "F1",
        "f1_default": f"F1 at p ≤ {measures.RATE:g}",
        "false_alarm_rate": f"false alarms at p ≤ {measures.RATE:g}",
    }
    return _against("p9", title, results, "history", lambda n: str(n) if n else "all", metrics)


def _against(
    name: str,
    title: str,
    results: Results,
    column: str,
    said: Callable[[Any], str],
    metrics: Mapping[str, str],
    changed: Sequence[float] = (),
) -> list[Table]:
    """One row a method, one column a value of the setting, and what a change of it costs, all on the same draws."""
    figures = measures.on_the_same_draws(results.figures(), column)
    known = set(figures[column].to_list())  # a study may have been run in part
    first = getattr(results.settings[0], column)
    values = [v for s in results.settings if (v := getattr(s, column)) in known]
    changes = [v for v in changed if v in values and first in values]
    heads = ("method", *(said(v) for v in values), *(f"change at {said(v)}" for v in changes), "draws")
    made: list[Table] = []
    for metric, words in metrics.items():
        rows: list[tuple[Cell, ...]] = []
        for method, part in parts_of(figures, deciding(results.methods, metric)):
            found = {v: part.filter(pl.col(column) == v) for v in values}
            cells: list[Cell] = [measures.interval(draws, metric) if len(draws) else None for draws in found.values()]
            cells += [measures.difference(found[v], found[first], metric, ("subject", "seed")) for v in changes]
            rows.append((method, *cells, part.select("subject", "seed").n_unique()))
        rule = f" {flagging(str(row[0]) for row in rows)}" if metric == "f1" else ""
        rule += f" {_FEW}" if metric == "f1_default" and column == "history" else ""
        note = f"Each row is of the draws that its method has in every column with a figure.{rule} {INTERVALS}"
        if rows:
            made.append(Table(f"{name}_{metric}", title.format(words), heads, tuple(rows), note))
    return made
