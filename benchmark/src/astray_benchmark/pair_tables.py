"""The tables of P8: routes between two places that were changed, and real ones that are unusually long."""

from __future__ import annotations

import polars as pl

from astray_benchmark import measures
from astray_benchmark.further_tables import by_kind
from astray_benchmark.results import INTERVALS, Results, deciding, draws_of, parts_of
from astray_benchmark.tables import Cell, Table

_LEARNED = "Every trip is scored by what was learned from three quarters of the pair's others, as they were recorded."
_METRICS = {
    "ap": "average precision",
    "auroc": "AUROC",
    "f1_default": f"F1 at p ≤ {measures.RATE:g}",
}


def p8(results: Results) -> list[Table]:
    """Injected kinds of P3 that change the route, and apart from them the trips that are longest for their pair."""
    of = {
        s.reading: results.trips.filter(pl.col("reading") == s.reading)
        for s in results.settings
        if (results.trips["reading"] == s.reading).any()
    }
    made: list[Table] = []
    if "routes" in of:
        figures = measures.of_trips(of["routes"], by_kind=True)
        for metric, said in _METRICS.items():
            title = f"P8 {results.dataset}: {said} between two places, by kind, at 5 % each"
            made.append(by_kind(f"p8_routes_{metric}", title, figures, metric, results.methods))
    if "unusual" in of:
        made.append(_unusual(measures.of_trips(of["unusual"]), results))
    return made


def _unusual(figures: pl.DataFrame, results: Results) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (method, *(measures.interval(part, metric) for metric in ("auroc", "ap")), draws_of(part))
        for method, part in parts_of(figures, deciding(results.methods, "ap"))
    ]
    note = (
        "The 5 % of a pair's trips that are longest are called unusual: nobody has said that they are anomalous, and "
        f"the length alone finds them by definition. Nothing was chosen by this table. {_LEARNED} {INTERVALS}"
    )
    title = f"P8 {results.dataset}: real trips that are unusually long for their pair of places"
    return Table("p8_unusual", title, ("method", "AUROC", "AP", "draws"), tuple(rows), note)
