"""The tables of P3 to P6 and of the cold start: kinds of anomaly, where and when, uncertainty, contamination."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from astray.benchmark import measures
from astray.benchmark.protocols import PREFIXES
from astray.benchmark.results import RULES, Results, deciding, mean_of, parts_of, percent
from astray.benchmark.tables import Cell, Table


def p3(results: Results) -> list[Table]:
    """Kinds of injected anomaly: of trips and of single fixes."""
    figures = measures.of_trips(results.trips, by_kind=True)
    made = [
        _by_kind(f"p3_{m}", f"P3 {results.dataset}: {said} of trips, by kind, at 5 % each", figures, m, results.methods)
        for m, said in (("ap", "average precision"), ("auroc", "AUROC"), ("f1", "F1 at the fixed threshold"))
    ]
    fixes = results.fixes()
    if fixes is not None:
        title = f"P3 {results.dataset}: average precision of single fixes, by kind"
        made.append(_by_kind("p3_fix_ap", title, fixes, "fix_ap", results.methods))
    return made


def _by_kind(name: str, title: str, figures: pl.DataFrame, metric: str, methods: Sequence[str]) -> Table:
    kinds = sorted(figures["kind"].unique().to_list())
    rows: list[tuple[Cell, ...]] = []
    for method, part in parts_of(figures, deciding(methods, metric)):
        by_kind = [mean_of(part.filter(pl.col("kind") == kind), metric) for kind in kinds]
        rows.append((method, *by_kind, measures.interval(part, metric)))
    return Table(name, title, ("method", *kinds, "mean"), tuple(rows), RULES)


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
    }
    rows = [
        (method, *(measures.interval(part, m) if m == "fix_ap" else mean_of(part, m) for m in columns.values()))
        for method, part in parts_of(figures, results.methods)
    ]
    note = (
        f"Means over kinds. A fix is flagged at a normality of {measures.EPS:g} or less. VUS-PR with buffers up to "
        f"{measures.BUFFER} fixes, never across the end of a trip. Delays are medians over the anomalies that were "
        "noticed before they ended; false alarms are runs of flagged fixes per 1,000 normal fixes."
    )
    return Table("p4_where", f"P4 {results.dataset}: where and when", ("method", *columns), tuple(rows), note)


def _observed(figures: pl.DataFrame, results: Results) -> list[Table]:
    made = []
    for metric, said in (("auroc", "AUROC"), ("ap", "average precision")):
        rows = [
            (method, *(mean_of(part.filter(pl.col("ratio") == ratio), metric) for ratio in PREFIXES))
            for method, part in parts_of(figures, results.methods)
        ]
        title = f"P4 {results.dataset}: {said} when a share of each trip has been seen"
        note = "A prefix is anomalous only if its anomaly has begun in it. All kinds together."
        made.append(Table(f"p4_seen_{metric}", title, ("method", *(percent(r) for r in PREFIXES)), tuple(rows), note))
    return made


def p5(results: Results) -> list[Table]:
    """Is the uncertainty worth something?"""
    figures = measures.of_uncertainty(results.trips)
    made: list[Table] = []
    if len(figures):
        shares = measures.REVIEWED
        columns = ["aurc", "excess", "error_auroc"]
        columns += [f"removed_{share:g}" for share in shares] + [f"precision_{share:g}" for share in shares]
        rows = [
            (method, order, mean_of(part, "errors"), *(measures.interval(part, m) for m in columns))
            for method, whole in parts_of(figures, results.methods)
            for (order,), part in whole.group_by("order", maintain_order=True)
        ]
        heads: tuple[str, ...] = ("wrong", "AURC", "excess AURC", "AUROC of errors")
        heads += tuple(f"wrong decisions removed | {percent(share)}" for share in shares)
        heads += tuple(f"precision of the rest | {percent(share)}" for share in shares)
        note = (
            "The most uncertain share is sent to review: by the heads' spread, by how near the score is to the "
            "threshold, or by doubt, which is both: that spread over the distance. Deferring at random "
            "removes 5, 10 and 20 % of the wrong decisions."
        )
        title = f"P5 {results.dataset}: what the uncertainty is worth"
        made.append(Table("p5_review", title, ("method", "deferred by", *heads), tuple(rows), note))
    alarms = measures.of_p_values(results.trips)
    if len(alarms):
        rates = alarms["nominal"].unique().sort().to_list()
        mean = alarms.group_by("method", "nominal").agg(pl.col("observed").mean())
        observed = {
            method: dict(part.select("nominal", "observed").iter_rows())
            for method, part in parts_of(mean, results.methods)
        }
        columns_ = ("method", *(f"nominal | {rate:g}" for rate in rates))
        table = tuple((method, *(found.get(rate) for rate in rates)) for method, found in observed.items())
        title = f"P5 {results.dataset}: observed rate of false alarms at each nominal one (conformal p-values)"
        made.append(Table("p5_calibration", title, columns_, table))
    return made


def p6(results: Results) -> list[Table]:
    """Contaminated training."""
    return [
        _against(
            "p6",
            f"P6 {results.dataset}: {said} with others' trips left in the training set",
            results,
            "contamination",
            percent,
            metric,
            changed=(0.05,),
        )
        for metric, said in (("ap", "average precision"), ("f1", "F1"))
    ]


def cold_start(results: Results) -> list[Table]:
    """After few trips."""
    return [
        _against(
            "cold_start",
            f"Cold start {results.dataset}: {said} after so many trips",
            results,
            "history",
            lambda n: str(n) if n else "all",
            metric,
        )
        for metric, said in (("auroc", "AUROC"), ("ap", "average precision"))
    ]


def _against(
    name: str,
    title: str,
    results: Results,
    column: str,
    said: Callable[[Any], str],
    metric: str,
    changed: Sequence[float] = (),
) -> Table:
    """One row a method, one column a value of the setting, and what the worst one costs on the same draws."""
    figures = results.figures()
    known = set(figures[column].to_list())  # a study may have been run in part
    first, *rest = (getattr(s, column) for s in results.settings)
    values = [v for v in (first, *rest) if v in known]
    changes = [v for v in changed if v in values and first in values]
    rows: list[tuple[Cell, ...]] = []
    for method, part in parts_of(figures, deciding(results.methods, metric)):
        found = {value: part.filter(pl.col(column) == value) for value in values}
        cells: list[Cell] = [measures.interval(draws, metric) for draws in found.values()]
        for value in changes:
            both = found[value].join(found[first], on=["subject", "seed"], suffix="_clean")
            change = both.with_columns((pl.col(metric) - pl.col(f"{metric}_clean")).alias("change"))
            cells.append(measures.interval(change, "change"))
        rows.append((method, *cells))
    heads = (*(said(v) for v in values), *(f"change at {said(v)}" for v in changes))
    return Table(f"{name}_{metric}", title, ("method", *heads), tuple(rows), RULES)
