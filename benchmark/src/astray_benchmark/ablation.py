"""The ablation table: what astray does with one thing changed at a time, beside the whole, on the same draws."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from astray_benchmark import measures
from astray_benchmark.measures import MEAN_ONLY
from astray_benchmark.protocols import Setting
from astray_benchmark.results import INTERVALS, parts_of
from astray_benchmark.tables import Cell, Table
from astray_benchmark.variants import VARIANTS, WHOLE


def table(scores: pl.LazyFrame, methods: Sequence[str]) -> Table | None:
    """The variants that were run beside the whole, with the differences on the same draws; None if none was.

    Of somebody else's trips N(tau) counts, of injected ones the score that decides.
    """
    present = [m for m in methods if m in VARIANTS]
    if not present:
        return None
    chosen = scores.filter(pl.col("method").is_in([WHOLE, *present]))
    swapped = chosen.filter(
        (pl.col("family") == "person")
        & (pl.col("contamination") == 0.0)
        & (pl.col("history") == 0)
        & (pl.col("split") == "random")
    ).collect()
    injected = measures.of_setting(chosen, [Setting(injected=True)])
    columns: dict[str, list[Cell]] = {}
    if len(swapped):
        figures = measures.of_trips(swapped)
        columns |= _compared(figures, "auroc", MEAN_ONLY, "somebody else's trips | AUROC", present)
        columns |= _compared(figures, "ap", MEAN_ONLY, "somebody else's trips | AP", present)
    if len(injected):
        figures = measures.of_trips(injected, by_kind=True)
        columns |= _compared(figures, "auroc", "", "injected, mean of kinds | AUROC", present)
    seconds = dict(measures.costs(chosen.collect()).select("method", "fit_seconds").iter_rows())
    columns["fit | s"] = [seconds.get(m) for m in (WHOLE, *present)]
    rows = tuple((m, *(cells[i] for cells in columns.values())) for i, m in enumerate((WHOLE, *present)))
    note = (
        "Each row changes one thing about the first. Differences are means over the draws that both have. Seconds: "
        f"median processor time of a fit. {INTERVALS}"
    )
    return Table("ablation", "What each part brings", ("", *columns), rows, note)


def _compared(figures: pl.DataFrame, metric: str, way: str, head: str, present: Sequence[str]) -> dict[str, list[Cell]]:
    """A column of means, and one of differences from the whole."""
    # What decides by the mean alone, as the paper's preset does, has one way only.
    ways = {name: dict(parts_of(figures, [name + way, name])) for name in (WHOLE, *present)}
    parts = [next(iter(found.values()), None) for found in ways.values()]
    means: list[Cell] = [None if part is None else measures.interval(part, metric).mean for part in parts]
    differences: list[Cell] = [None, *(_difference(part, parts[0], metric) for part in parts[1:])]
    return {head: means, f"{head}, difference": differences}


def _difference(part: pl.DataFrame | None, whole: pl.DataFrame | None, metric: str) -> Cell:
    if part is None or whole is None:
        return None
    return measures.difference(part, whole, metric)
