"""The figures of P5: promised against observed false alarms, and the risk of what is decided without review."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.plots.style import GREY, INK, PALE, canvas, plain
from astray_benchmark import measures, metrics
from astray_benchmark.figure_parts import COLOURS, DASHED, DOTTED, WHOLE, Named, clusters, draws, legend, style, titled
from astray_benchmark.results import Results, of_what, parts_of, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

_GRID = np.linspace(0.0, 1.0, 201)
_ORDERS = ("p-value", "spread of the heads", "distance from the threshold", "doubt, of the last two")


def trust(results: Results) -> Named:
    """Every figure of P5 that there are scores for."""
    return [*_promised(results), *_review(results)]


def _promised(results: Results) -> Named:
    """A panel for each split, a line for each method; rivals are grey beside methods with heads. Means over people."""
    figures = measures.of_promises(results.trips)
    if not len(figures):
        return []
    share = float(figures["rate"].to_numpy().min())
    figures = figures.filter(pl.col("rate") == share)  # which every method was run at
    known = set(figures["split"].to_list())
    splits = [split for split in dict.fromkeys(s.split for s in results.settings) if split in known]
    figure = canvas(4.0 * len(splits) + 2.4, 3.9)
    panels = figure.subplots(1, len(splits), squeeze=False, sharey=True)[0]
    looks = style(results.manifest["methods"])
    rates = np.array(measures.PROMISED)
    front = set(_with_heads(results)["method"].to_list()) or set(results.manifest["methods"])
    for axes, split in zip(panels, splits, strict=True):
        every = parts_of(figures.filter(pl.col("split") == split), results.manifest["methods"])
        for method, part in every:
            if method not in front:
                means = [measures.interval(part, f"rate_{rate:g}").mean for rate in measures.PROMISED]
                axes.plot(rates, means, color=PALE, lw=1.0, label="rivals", zorder=1)
        shown = [(method, part) for method, part in every if method in front]
        for i, (method, part) in enumerate(shown):
            found = [measures.interval(part, f"rate_{rate:g}") for rate in measures.PROMISED]
            mean, low, high = np.array(found).T
            at = rates * 1.02 ** (i - 0.5 * (len(shown) - 1))  # side by side
            axes.plot(at, mean, ms=4.5, label=method, **looks[method])
            axes.vlines(at, low, high, color=looks[method]["color"], lw=0.9, alpha=0.7)
        axes.plot(rates, rates, color=INK, lw=1.2, ls=":")
        axes.set(xscale="log", xlabel="promised", xticks=rates)
        axes.set_xticks(rates, [f"{100 * rate:g} %" for rate in rates])
        axes.minorticks_off()
        axes.set_title(f"{split} split", fontsize=9, loc="left")
        plain(axes)
    highest = max(np.max(line.get_ydata()) for axes in panels for line in axes.lines)
    panels[0].set(ylabel="share of normal trips flagged", ylim=(0.0, 1.4 * highest))  # few people: no bound
    legend(panels[-1], of=panels)
    said = f"{percent(share)} anomalies; means with 95 % intervals over {clusters(figures)}. Dotted: as promised."
    titled(figure, "False alarms, promised and observed", results.dataset, said)
    return [("promised", figure)]


def _with_heads(results: Results) -> pl.DataFrame:
    """The trips of methods that say how sure they are."""
    return results.trips.filter(pl.col("uncertainty").is_not_null().any().over("method"))


def _review(results: Results) -> Named:
    known = _with_heads(results)
    shown = parts_of(known, results.manifest["methods"])
    if not shown:
        return []
    figure = canvas(3.5 * len(shown) + 3.4, 3.9)
    panels = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    for axes, (method, part) in zip(panels, shown, strict=True):
        _risk(axes, part)
        axes.set_title(method, fontsize=9, loc="left")
        axes.set_xlabel("share decided, the most certain first")
        plain(axes)
    panels[0].set_ylim(0, 1.05 * max(np.max(line.get_ydata()) for axes in panels for line in axes.lines))
    panels[0].set_ylabel("share of them decided wrongly")
    legend(panels[-1])
    pooled = [s for s in results.settings if len(measures.of_setting(known.lazy(), [s]))]
    said = f"Means over the draws of: {'; '.join(of_what(s) for s in pooled)}."
    titled(figure, "Risk against coverage", results.dataset, f"{said} {draws(shown)}")
    return [("risk_coverage", figure)]


def _risk(axes: Axes, trips: pl.DataFrame) -> None:
    """The mean risk-coverage curve of a method: by its heads, the distance from the threshold, both, and at random."""
    by: dict[str, list[Floats]] = {name: [] for name in _ORDERS}
    errors, anomalies = [], []
    for case in trips.partition_by(*measures.DRAW):
        _, score, flagged = next(iter(measures.contenders(case)))
        label = case["kind"].to_numpy() != ""
        wrong = flagged != label
        errors.append(wrong.mean())
        anomalies.append(label.mean())
        for curves, doubt in zip(by.values(), measures.orders_of_deferral(case, score).values(), strict=True):
            found = metrics.risk_coverage(wrong, doubt)
            curves.append(np.interp(_GRID[10:], found.coverage, found.risk))
    for (name, curves), colour, dash in zip(by.items(), COLOURS, (WHOLE, WHOLE, DASHED, DOTTED), strict=False):
        axes.plot(_GRID[10:], np.mean(curves, axis=0), color=colour, ls=dash, lw=1.8, label=name)
    axes.axhline(float(np.mean(errors)), color=GREY, lw=1.2, ls=":", label="at random")
    axes.axhline(float(np.mean(anomalies)), color=INK, lw=1, ls=(0, (6, 2, 1, 2)), label="if nothing is flagged")
    axes.set_xlim(0, 1)
