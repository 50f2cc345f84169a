"""The tables of P5: does the promised rate of false alarms hold, over people and over time; what does review buy?"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from astray_benchmark import measures
from astray_benchmark.protocols import Setting
from astray_benchmark.results import INTERVALS, Results, draws_of, flagging, mean_of, of_what, parts_of, percent
from astray_benchmark.tables import Cell, Table

_BY_TIME = "chronological"
_ORDERS = (
    "by its p-value, the lowest first; by the heads' spread; by how near the score is to the threshold; or by doubt, "
    "which is that spread over this distance"
)


def p5(results: Results) -> list[Table]:
    """Promised and observed false alarms; and what review buys, by time apart from the rest."""
    later = [s for s in results.settings if s.split == _BY_TIME]
    others = [s for s in results.settings if s.split != _BY_TIME]
    found = [
        *_promised(results),
        _review(results, others, "p5_review", ""),
        _review(results, later, "p5_review_by_time", ", by time"),
    ]
    return [table for table in found if table is not None]


def _promised(results: Results) -> list[Table]:
    """One row a split, share of anomalies and method: the share of normal trips flagged at each promised rate.

    Shares apart, because by time fewer anomalies mean a longer test period.
    """
    figures = measures.of_promises(results.trips)
    if not len(figures):
        return []
    rates = [f"rate_{rate:g}" for rate in measures.PROMISED]
    rows: list[tuple[Cell, ...]] = []
    for split, share in dict.fromkeys((s.split, s.rate) for s in results.settings):
        of_both = figures.filter(pl.col("split") == split, pl.col("rate") == share)
        for method, part in parts_of(of_both, results.methods):
            people = part.group_by("subject").agg(pl.col(measures.PROMISE).mean())[measures.PROMISE]
            over_time = [mean_of(part, when) if split == _BY_TIME else None for when in ("first", "last")]
            ends: list[Cell] = [float(v) for v in (people.min(), people.max())]  # type: ignore[arg-type]
            cells = [measures.interval(part, rate) for rate in rates]
            rows.append((method, split, percent(share), *cells, *ends, *over_time, draws_of(part)))
    two = percent(measures.RATE)
    columns = ("method", "split", "anomalies", *(f"promised | {percent(rate)}" for rate in measures.PROMISED))
    columns += tuple(f"at {two} | {who}" for who in ("lowest person", "highest person", "first third", "last third"))
    note = (
        "The share of normal trips whose p-value is at most the promised rate: the mean over people and draws, the "
        "people with the lowest and the highest mean, and, by time, the first and the last third of the test period. "
        f"{INTERVALS}"
    )
    title = f"P5 {results.dataset}: false alarms, promised and observed"
    return [Table("p5_promised", title, (*columns, "draws"), tuple(rows), note)]


def _review(results: Results, settings: Sequence[Setting], name: str, said: str) -> Table | None:
    """One row a method and order of review; None if no method knows its uncertainty, or nothing was run."""
    run = [s for s in settings if len(measures.of_setting(results.trips.lazy(), [s]))]
    figures = measures.of_uncertainty(measures.of_setting(results.trips.lazy(), run)) if run else pl.DataFrame()
    if not len(figures):
        return None
    shares = measures.REVIEWED
    columns = [f"{what}_{share:g}" for what in ("found", "removed", "precision") for share in shares]
    rows = [
        (
            *(method, order, percent(rate)),
            *(mean_of(part, metric) for metric in ("errors", "silent_errors")),
            *(measures.interval(part, metric) for metric in ("error_auroc", "aurc", "excess", *columns)),
            draws_of(part),
        )
        for method, whole in parts_of(figures, results.methods)
        for (rate, order), part in whole.group_by("rate", "order", maintain_order=True)
    ]
    heads: tuple[str, ...] = ("wrong", "wrong if nothing is flagged", "AUROC of errors", "AURC", "excess AURC")
    for what in ("anomalies among the reviewed", "wrong decisions removed", "precision of the rest"):
        heads += tuple(f"{what} | {percent(share)}" for share in shares)
    note = (
        f"The draws of: {'; '.join(of_what(s) for s in run)}. {flagging(str(row[0]) for row in rows)} Wrong: the "
        f"share of trips decided wrongly. A share of the trips is sent to a person, first: {_ORDERS}. Anomalies among "
        "the reviewed: the share of all anomalies, flagged or not, that the person gets to see. Review in random order "
        "finds 5, 10 and 20 % of the anomalies and removes as many of the wrong decisions. A draw in which no alarm is "
        f"left has no precision and is left out of its mean. {INTERVALS}"
    )
    title = f"P5 {results.dataset}: what review buys{said}"
    return Table(name, title, ("method", "first", "anomalies", *heads, "draws"), tuple(rows), note)
