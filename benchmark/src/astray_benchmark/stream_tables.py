"""The tables of P7: what a deployment lives through, with strangers and with an intruder."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from astray_benchmark import measures
from astray_benchmark.methods import STREAMING
from astray_benchmark.results import INTERVALS, Results, draws_of, parts_of
from astray_benchmark.tables import Cell, Table

_STREAMS = {
    "strangers": "a person's stream, 5 % strangers spread over it",
    "intruder": "a person's stream, in which one stranger makes 10 of 20 trips in a row",
}
_FIGURES = {
    "AUROC": "auroc",
    "AP": "ap",
    "F1": "f1",
    "false alarms | first third": "early",
    "false alarms | last third": "late",
    "answers": "answers",
}


def p7(results: Results) -> list[Table]:
    """One table for each kind of stream that was run."""
    figures = results.streams()
    if figures is None:
        return []
    return [
        _table(s.reading, results, part)
        for s in results.settings
        if (part := parts_of(figures.filter(pl.col("reading") == s.reading), results.manifest["methods"]))
    ]


def _table(stream: str, results: Results, parts: Sequence[tuple[str, pl.DataFrame]]) -> Table:
    base = dict(parts).get(STREAMING[0])
    rows: list[tuple[Cell, ...]] = []
    for method, part in parts:
        cells = [
            measures.interval(part, metric, measures.COUNT if metric == "answers" else measures.SHARE)
            for metric in _FIGURES.values()
        ]
        gain = None if base is None or part is base else measures.difference(part, base, "ap", measures.DRAW)
        rows.append((method, *cells, gain, draws_of(part)))
    note = (
        "Every trip is scored and decided as it comes, and then learned from, or not. F1 and false alarms are of the "
        "decisions as they were made; false alarms are shares of the person's own trips. Answers: how many a person "
        f"was asked for in a stream. AP gained: against {STREAMING[0]}, on the draws that both have; what gains on "
        f"strangers and loses on an intruder is no gain. {INTERVALS}"
    )
    title = f"P7 {results.dataset}: {_STREAMS[stream]}"
    return Table(f"p7_{stream}", title, ("method", *_FIGURES, "AP gained", "draws"), tuple(rows), note)
