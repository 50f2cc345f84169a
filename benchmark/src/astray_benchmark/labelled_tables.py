"""The tables of P10: what is found of what somebody has called wrong."""

from __future__ import annotations

from astray_benchmark import measures
from astray_benchmark.further_tables import by_kind
from astray_benchmark.paper_tables import averages
from astray_benchmark.results import Results
from astray_benchmark.tables import Table


def p10(results: Results) -> list[Table]:
    """All labels together, and by kind where there are several."""
    title = "P10: labelled trips"
    made = [averages("p10", title, results.figures(), results.methods, {})]
    figures = measures.of_trips(results.trips, by_kind=True)
    if figures["kind"].n_unique() > 1:
        for metric, said in (("ap", "average precision"), ("auroc", "AUROC")):
            made.append(by_kind(f"p10_kinds_{metric}", f"{title}, {said} by kind", figures, metric, results.methods))
    return made
