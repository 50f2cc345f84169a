"""The tables of P1 and P2, laid out like the paper's Tables 1 to 3, its figures beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from astray_benchmark import measures, paper
from astray_benchmark.measures import SURE
from astray_benchmark.results import INTERVALS, Results, draws_of, flagging, mean_of, parts_of, percent
from astray_benchmark.tables import Cell, Table

_DECIDED = ("recall", "precision", "f1")
_KNOWN = ("f1", "f1_default", "false_alarm_rate", "f1_matched", "auroc", "ap")
_MATCHED = f"F1 at {percent(measures.RATE)} false alarms"
_BEHIND = "AP less the first row's"
_LENGTH_TELLS = (
    "In this reading every anomaly has 100 steps and most normal trips have fewer, so that the number of fixes alone "
    "tells them apart (AUROC about .96): it says how methods compare with the paper's, not how good they are. "
)
_DEFAULT = (
    f"p ≤ {measures.RATE:g}: flagged by the conformal p-value instead, as astray does by default, so that a heavy tail "
    "of a method's scores does not spoil its threshold; false alarms: the share of normal trips that are then flagged. "
    "With fewer than 49 left-out trips no p-value is so low, and nothing is; where they are few, p-values are coarse, "
    f"and fewer trips are flagged than might be. So {_MATCHED}: thresholds at which as many normal test trips of every "
    "method are flagged, one at least. Nobody could set them so, but they are the same demand of all."
)
_SAME_DRAWS = f"{_BEHIND}: the mean difference on the draws that both have, which compares rows of unequally many."


def p1(results: Results) -> list[Table]:
    """One model a person: averages, person by person, and what drift costs."""
    figures = results.figures()
    made: list[Table] = []
    for s in results.settings:
        part = figures.filter((pl.col("rate") == s.rate) & (pl.col("split") == s.split))
        if len(part):
            printed = paper.GEOLIFE.get(s.rate, {}) if results.dataset == "geolife" else {}
            title = f"{results.dataset}: {percent(s.rate)} somebody else's trips, {s.split} split"
            made.append(averages(f"p1_{s.split}_{s.rate:g}", f"P1 {title}", part, results.methods, printed))
            made.append(_by_user(f"p1_{s.split}_{s.rate:g}_users", f"P1 by person, {title}", part, results.methods))
    if results.dataset == "geolife":
        rows = figures.filter((pl.col("rate") == 0.1) & (pl.col("split") == "random"))
        made += [_paper_users(rate) for rate in paper.GEOLIFE_USERS]
        if len(rows):
            heads = {"GeoLife, ours": rows}
            made.append(_table_1(heads, "GeoLife, paper", paper.GEOLIFE[0.1], results.methods))
    drift = _drift(figures, results.methods)
    return [*made, *([drift] if drift else [])]


def p2(results: Results) -> list[Table]:
    """One pooled model: both readings."""
    figures = results.figures()
    made: list[Table] = []
    heads: dict[str, pl.DataFrame] = {}
    for s in results.settings:
        part = figures.filter(pl.col("reading") == s.reading)
        if len(part):
            title = f"P2 Porto, reading “{s.reading}”: {percent(s.rate)} beginnings of trips over 50 minutes"
            printed = paper.PORTO if s.reading == "cap" else {}
            warning = _LENGTH_TELLS if s.reading == "cap" else ""
            made.append(averages(f"p2_{s.reading}", title, part, results.methods, printed, warning))
            heads[f"TST, ours ({s.reading})"] = part
    return [*made, _table_1(heads, "TST, paper", paper.PORTO, results.methods)]


def averages(
    name: str,
    title: str,
    figures: pl.DataFrame,
    methods: Sequence[str],
    printed: Mapping[str, paper.Printed],
    warning: str = "",
) -> Table:
    """One row a method: the means over people and draws, the paper's beside them, and what the first is ahead."""
    parts = dict(parts_of(figures, methods))
    first, *others = parts
    rows: list[tuple[Cell, ...]] = []
    for method, part in parts.items():
        beside = printed.get(paper.PAPER_NAMES.get(method, ""))
        theirs: tuple[Cell, ...] = tuple(beside) if beside else (None, None, None)
        mean = [measures.interval(part, m).mean for m in _DECIDED]
        known: list[Cell] = [measures.interval(part, m) for m in _KNOWN]
        behind: list[Cell] = [None if method == first else measures.difference(part, parts[first], "ap")]
        known += behind if others else []
        rows.append((method, *mean[:2], known[0], *(theirs if printed else ()), *known[1:], draws_of(part)))
    ours = "ours" if printed else f"at {measures.EPS:g}"
    columns: tuple[str, ...] = ("method", f"{ours} | R", f"{ours} | P", f"{ours} | F1")
    columns += ("paper | R", "paper | P", "paper | F1") if printed else ()
    columns += (f"p ≤ {measures.RATE:g} | F1", f"p ≤ {measures.RATE:g} | false alarms", _MATCHED, "AUROC", "AP")
    columns += (*([_BEHIND] if others else []), "draws")
    notes = [flagging(parts), _DEFAULT, *([_SAME_DRAWS] if others else []), INTERVALS]
    return Table(name, title, columns, tuple(rows), warning + " ".join(notes))


def _by_user(name: str, title: str, figures: pl.DataFrame, methods: Sequence[str]) -> Table:
    """The layout of the paper's Tables 2 and 3: people down, methods across, recall, precision and F1 under each."""
    parts = dict(parts_of(figures, [m for m in methods if not m.endswith(SURE)]))  # nearly the same, person by person
    people = figures["subject"].unique(maintain_order=True).to_list()
    rows: list[tuple[Cell, ...]] = []
    for person in people:
        mine = [part.filter(pl.col("subject") == person) for part in parts.values()]
        rows.append((person, *(mean_of(part, m) for part in mine for m in _DECIDED)))
    rows.append(("Avg", *(measures.interval(part, m).mean for part in parts.values() for m in _DECIDED)))
    columns = ("Data", *(f"{method} | {short}" for method in parts for short in ("R", "P", "F1")))
    return Table(name, title, columns, tuple(rows), flagging(parts))


def _paper_users(rate: float) -> Table:
    """The paper's Table 2 or 3 as printed."""
    users, average = paper.GEOLIFE_USERS[rate], paper.GEOLIFE[rate]
    n = len(next(iter(users.values())))
    rows: list[tuple[Cell, ...]] = [(f"U{i + 1}", *(x for name in users for x in users[name][i])) for i in range(n)]
    rows.append(("Avg", *(x for name in users for x in average[name])))
    columns = ("Data", *(f"{name} | {short}" for name in users for short in ("R", "P", "F1")))
    title = f"The paper's own figures by person, GeoLife, {percent(rate)}"
    return Table(f"paper_{rate:g}_users", title, columns, tuple(rows), "The paper does not say who its ten users are.")


def _table_1(
    ours: Mapping[str, pl.DataFrame], head: str, printed: Mapping[str, paper.Printed], methods: Sequence[str]
) -> Table:
    """The layout of the paper's Table 1: for each method recall, precision and F1 below each other."""
    found = {title: dict(parts_of(figures, methods)) for title, figures in ours.items()}
    present = [method for method in methods if any(method in parts for parts in found.values())]
    rows: list[tuple[Cell, ...]] = []
    for method in present:
        beside = printed.get(paper.PAPER_NAMES.get(method, ""))
        for i, metric in enumerate(("recall", "precision", "f1")):
            mine = (mean_of(parts[method], metric) if method in parts else None for parts in found.values())
            theirs = beside[i] if beside else None
            rows.append((method if i == 0 else "", ("Recall", "Precision", "F1 score")[i], *mine, theirs))
    title = "Average F1, recall and precision beside the paper's Table 1"
    return Table("table_1", title, ("Method", "", *found, head), tuple(rows), flagging(present))


def _drift(figures: pl.DataFrame, methods: Sequence[str]) -> Table | None:
    """What it costs to test on the future: the same people and seeds, split by time instead of at random."""
    past = figures.filter(pl.col("split") == "random")
    future = figures.filter(pl.col("split") == "chronological")
    both = past.join(future, on=["rate", "subject", "seed", "method"], suffix="_later")
    if not len(both):
        return None
    both = both.with_columns((pl.col(f"{m}_later") - pl.col(m)).alias(f"{m}_cost") for m in ("auroc", "ap", "f1"))
    rows: list[tuple[Cell, ...]] = [
        (
            *(percent(rate), method),
            *(measures.interval(part, f"{m}_cost", measures.DIFFERENCE) for m in ("auroc", "ap", "f1")),
            draws_of(part),
        )
        for rate in sorted(both["rate"].unique())
        for method, part in parts_of(both.filter(pl.col("rate") == rate), methods)
    ]
    columns = ("rate", "method", "AUROC", "AP", "F1", "draws")
    note = f"On the people and seeds that a method has with both splits. F1: {flagging(str(row[1]) for row in rows)}"
    title = "P1: what drift costs (chronological less random split)"
    return Table("p1_drift", title, columns, tuple(rows), f"{note} {INTERVALS}")
