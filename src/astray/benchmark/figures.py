"""Figures of a results folder: curves, the per-person table as a plot, contamination, review, and what is seen when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.benchmark import manifest as manifests
from astray.benchmark import measures, metrics, paper, runner
from astray.benchmark.measures import EPS
from astray.benchmark.protocols import PROTOCOLS
from astray.benchmark.results import Kept, Results, mean_of, parts_of, percent
from astray.errors import DataError
from astray.plots import save_figure
from astray.plots.style import GREY, INK, PALE, canvas, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

# Okabe and Ito's colours, which every kind of colour vision tells apart; after eight, other dashes and marks as well.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8a8a8a")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
_MARKS = "osD^vPX*<>"
_GRID = np.linspace(0.0, 1.0, 201)


def draw(out: Path, kept: Kept | None = None) -> list[Path]:
    """Draw every figure that the results in a folder allow, as PNG and SVG, into ``figures/``.

    ``kept`` is what a report has computed already.
    """
    manifest, scores = manifests.read(out), runner.results(out)
    if manifest is None or scores is None:
        raise DataError(f"{out} holds no results yet; run astray benchmark with --out {out} first")
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    written = []
    kept = {} if kept is None else kept
    for protocol, settings in PROTOCOLS[manifest["dataset"]].items():
        if protocol in manifest["protocols"] and protocol in _FIGURES:
            trips = measures.of_setting(scores, settings)
            if len(trips):
                for name, figure in _FIGURES[protocol](Results(out, manifest, settings, trips, kept)):
                    for ending in (".png", ".svg"):
                        save_figure(figure, folder / f"{name}{ending}")
                        written.append(folder / f"{name}{ending}")
    return written


Named = list[tuple[str, "Figure"]]


def style(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A colour, a dash and a mark for each method; the same in every figure of a folder."""
    looks = zip(methods, cycle(_COLOURS), cycle(_MARKS), strict=False)
    return {
        method: {"color": colour, "marker": mark, "ls": _DASHES[i // len(_COLOURS) % len(_DASHES)], "lw": 1.7}
        for i, (method, colour, mark) in enumerate(looks)
    }


# -------------------------------------------------------------------- P1 and P2


def _detection(results: Results) -> Named:
    made: Named = []
    figures = results.figures()
    for s in results.settings:
        here = pl.all_horizontal(pl.col(n) == getattr(s, n) for n in measures.SETTING)
        trips, part = results.trips.filter(here), figures.filter(here)
        if len(trips):
            name = s.reading or f"{s.split}_{s.rate:g}"
            said = f"{results.dataset}, {s.reading or s.split + ' split'}, {percent(s.rate)} anomalies"
            made.append((f"curves_{name}", curves_figure(trips, results.manifest["methods"], said)))
            printed = paper.GEOLIFE.get(s.rate) if results.dataset == "geolife" else None
            if part["subject"].n_unique() > 1:
                figure = people_figure(part, results.manifest["methods"], said, printed)
                made.append((f"people_{name}", figure))
    return made


def curves_figure(trips: pl.DataFrame, methods: Sequence[str], title: str) -> Figure:
    """ROC and precision-recall curves, each the mean over draws of its heights at equal places."""
    figure = canvas(9.5, 4.4)
    left, right = figure.subplots(1, 2)
    looks = style(methods)
    for method, part in parts_of(trips, methods):
        roc, pr, areas = [], [], []
        for case in part.partition_by(*measures.DRAW):
            _, score, _ = next(iter(measures.contenders(case)))
            label = case["kind"].to_numpy() != ""
            x, y = metrics.roc_curve(score, label)
            roc.append(np.interp(_GRID, x, y))
            recall, precision = (values[1:] for values in metrics.precision_recall_curve(score, label))
            # The best precision at this recall or more: the envelope, which draws of few anomalies can be averaged by.
            best = np.maximum.accumulate(precision[::-1])[::-1]
            pr.append(best[np.minimum(np.searchsorted(recall, _GRID - 1e-9), len(best) - 1)])
            areas.append((metrics.auroc(score, label), metrics.average_precision(score, label)))
        auroc, ap = np.mean(areas, axis=0)
        look = {k: v for k, v in looks[method].items() if k != "marker"}
        left.plot(_GRID, np.mean(roc, axis=0), label=f"{method}  {auroc:.3f}", **look)
        right.plot(_GRID, np.mean(pr, axis=0), label=f"{method}  {ap:.3f}", **look)
    left.plot([0, 1], [0, 1], color=PALE, lw=1, ls=":")
    left.set(xlabel="false-positive rate", ylabel="recall", xlim=(0, 1), ylim=(0, 1.01))
    right.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.01))
    for axes, area, where in ((left, "AUROC", "lower right"), (right, "average precision", "best")):
        axes.legend(fontsize=7.5, frameon=False, title=area, title_fontsize=8, loc=where)
        plain(axes)
    _titled(figure, "ROC and precision-recall", title)
    return figure


def people_figure(
    figures: pl.DataFrame, methods: Sequence[str], title: str, printed: dict[str, paper.Printed] | None = None
) -> Figure:
    """F1 at the fixed threshold of every person: the per-user table as a plot, means over draws."""
    people = figures["subject"].unique(maintain_order=True).to_list()
    figure = canvas(8.0, 1.6 + 0.33 * (len(people) + 1))
    axes = figure.subplots()
    looks = style(methods)
    shown = parts_of(figures, methods)
    for i, (method, part) in enumerate(shown):
        look = looks[method]
        lift = 0.55 * (i / max(1, len(shown) - 1) - 0.5)
        values = [mean_of(part.filter(pl.col("subject") == person), "f1") for person in people]
        at = np.arange(len(people)) + lift
        mark = {"color": look["color"], "marker": look["marker"], "ls": "none"}
        axes.plot([np.nan if v is None else v for v in values], at, ms=4.5, alpha=0.9, label=method, **mark)
        mean = measures.interval(part, "f1")
        y = len(people) + 0.3 + lift
        if np.isfinite(mean.low):
            axes.plot([mean.low, mean.high], [y, y], color=look["color"], lw=1.6)
        axes.plot([mean.mean], [y], ms=6, **mark)
    for name, height in (("IRL-AD", "--"), ("IRL-ADU", ":")):
        if printed:
            axes.axvline(printed[name].f1, color=INK, lw=1, ls=height, label=f"{name} as printed")
    axes.axhline(len(people) - 0.35, color=GREY, lw=0.8)
    axes.set_yticks([*range(len(people)), len(people) + 0.3], [*people, "mean"])
    axes.set(ylim=(len(people) + 0.85, -0.6), xlim=(-0.02, 1.02), xlabel=f"F1 at a score of {EPS:g} or less")
    axes.legend(fontsize=7.5, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    plain(axes)
    axes.grid(axis="x", color="#eeeeee", lw=0.8)
    _titled(figure, "F1 of every person", title)
    return figure


# -------------------------------------------------------------------- what changes with something


def lines_figure(
    figures: pl.DataFrame, methods: Sequence[str], x: str, columns: Sequence[tuple[str, str]], heading: str, title: str
) -> Figure:
    """Means with intervals against a setting, a panel for each figure, a line for each method."""
    figure = canvas(4.4 * len(columns) + 1.4, 3.8)
    panels = figure.subplots(1, len(columns), squeeze=False)[0]
    looks = style(methods)
    values = sorted(figures[x].unique().to_list())
    for axes, (column, said) in zip(panels, columns, strict=True):
        for i, (method, part) in enumerate(parts_of(figures, methods)):
            found = [measures.interval(part.filter(pl.col(x) == v), column) for v in values]
            mean, low, high = np.array(found).T
            # Side by side, so that one interval does not hide another.
            at = np.arange(len(values)) + 0.02 * (i - 0.5 * (len(looks) - 1))
            axes.plot(at, mean, ms=4.5, label=method, **looks[method])
            axes.vlines(at, low, high, color=looks[method]["color"], lw=0.9, alpha=0.7)
        axes.set_ylabel(said)
        plain(axes)
    panels[-1].legend(fontsize=7.5, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    _titled(figure, heading, title)
    return figure


def _ticks(figure: Figure, labels: Sequence[str], said: str) -> Figure:
    for axes in figure.axes:
        axes.set_xticks(range(len(labels)), labels)
        axes.set_xlabel(said)
    return figure


def _contamination(results: Results) -> Named:
    figures = results.figures()
    columns = (("ap", "average precision"), ("f1", "F1 at the fixed threshold"))
    heading = "Contaminated training"
    figure = lines_figure(figures, results.manifest["methods"], "contamination", columns, heading, results.dataset)
    shares = [percent(c) for c in sorted(figures["contamination"].unique().to_list())]
    return [("contamination", _ticks(figure, shares, "other people's trips in the training set"))]


def _cold_start(results: Results) -> Named:
    # All trips come last, not first.
    figures = results.figures().with_columns(
        pl.when(pl.col("history") == 0).then(10**9).otherwise(pl.col("history")).alias("history")
    )
    columns = (("auroc", "AUROC"), ("ap", "average precision"))
    figure = lines_figure(figures, results.manifest["methods"], "history", columns, "Cold start", results.dataset)
    trips = ["all" if n == 10**9 else str(n) for n in sorted(figures["history"].unique().to_list())]
    return [("cold_start", _ticks(figure, trips, "trips learned from"))]


def _observed(results: Results) -> Named:
    figures = results.prefixes()
    if figures is None:
        return []
    columns = (("auroc", "AUROC"), ("ap", "average precision"))
    heading = "What is known when a share of the trip has been seen"
    figure = lines_figure(figures, results.manifest["methods"], "ratio", columns, heading, results.dataset)
    shares = [f"{100 * r:.0f}" for r in sorted(figures["ratio"].unique().to_list())]
    return [("observed_ratio", _ticks(figure, shares, "share of the trip, in percent"))]


# -------------------------------------------------------------------- uncertainty


def _review(results: Results) -> Named:
    known = results.trips.filter(pl.col("uncertainty").is_not_null().any().over("method"))
    shown = parts_of(known, results.manifest["methods"])
    if not shown:
        return []
    figure = canvas(3.9 * len(shown) + 0.6, 3.6)
    panels = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    for axes, (method, part) in zip(panels, shown, strict=True):
        _risk(axes, part)
        axes.set_title(method, fontsize=9, loc="left")
        axes.set_xlabel("share decided, the most certain first")
        plain(axes)
    panels[0].set_ylim(0, 1.05 * max(np.max(line.get_ydata()) for axes in panels for line in axes.lines))
    panels[0].set_ylabel("share of them decided wrongly")
    panels[0].legend(fontsize=8, frameon=False)
    _titled(figure, "Risk against coverage", results.dataset)
    return [("risk_coverage", figure)]


def _risk(axes: Axes, trips: pl.DataFrame) -> None:
    """The mean risk-coverage curve of a method: by its heads, the distance from the threshold, both, and at random."""
    by: dict[str, list[Floats]] = {"spread of the heads": [], "distance from the threshold": [], "doubt, of both": []}
    errors = []
    for case in trips.partition_by(*measures.DRAW):
        _, score, flagged = next(iter(measures.contenders(case)))
        wrong = flagged != (case["kind"].to_numpy() != "")
        errors.append(wrong.mean())
        for curves, doubt in zip(by.values(), measures.orders_of_deferral(case, score).values(), strict=True):
            found = metrics.risk_coverage(wrong, doubt)
            curves.append(np.interp(_GRID[10:], found.coverage, found.risk))
    for (name, curves), colour, dash in zip(by.items(), _COLOURS, _DASHES, strict=False):
        axes.plot(_GRID[10:], np.mean(curves, axis=0), color=colour, ls=dash, lw=1.8, label=name)
    axes.axhline(float(np.mean(errors)), color=GREY, lw=1.2, ls=":", label="at random")
    axes.set_xlim(0, 1)


def _titled(figure: Figure, heading: str, title: str) -> None:
    figure.suptitle(f"{heading}: {title}", x=0.01, ha="left", fontsize=11.5, fontweight="bold", color=INK)


_FIGURES: dict[str, Callable[[Results], Named]] = {
    "p1": _detection,
    "p2": _detection,
    "p4": _observed,
    "p5": _review,
    "p6": _contamination,
    "cold-start": _cold_start,
}
