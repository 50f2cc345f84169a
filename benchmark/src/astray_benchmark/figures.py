"""Figures of a results folder: curves, the per-person table as a plot, and what changes with something."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.errors import DataError
from astray.plots import save_figure
from astray.plots.style import GREY, INK, PALE, canvas, plain
from astray_benchmark import dot_figures, measures, metrics, paper
from astray_benchmark import manifest as manifests
from astray_benchmark.figure_parts import Named, clusters, draws, legend, style, titled
from astray_benchmark.measures import EPS
from astray_benchmark.protocols import PROTOCOLS
from astray_benchmark.results import Kept, Results, mean_of, of_what, parts_of, percent, read
from astray_benchmark.trust_figure import trust
from astray_benchmark.variants import VARIANTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

_GRID = np.linspace(0.0, 1.0, 201)


def draw(out: Path, kept: Kept | None = None) -> list[Path]:
    """Draw every figure that the results in a folder allow, as PNG and SVG, into ``figures/``.

    Variants of an ablation are for its table; here they would stand on top of each other. ``kept`` is what a report has
    computed already.
    """
    manifest = manifests.read(out)
    scores = None if manifest is None else read(out, manifest)
    if manifest is None or scores is None:
        raise DataError(f"{out} holds no results yet", remedy=f"run astray benchmark with --out {out} first")
    manifest = manifest | {"methods": [name for name in manifest["methods"] if name not in VARIANTS]}
    scores = scores.filter(pl.col("method").is_in(manifest["methods"]))
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


# -------------------------------------------------------------------- P1 and P2


def _detection(results: Results) -> Named:
    made: Named = []
    figures = results.figures()
    for s in results.settings:
        here = pl.all_horizontal(pl.col(n) == getattr(s, n) for n in measures.SETTING)
        trips, part = results.trips.filter(here), figures.filter(here)
        if len(trips):
            name = s.reading or f"{s.split}_{s.rate:g}"
            said = f"{results.dataset}, {of_what(s)}"
            made.append((f"curves_{name}", curves_figure(trips, results.manifest["methods"], said)))
            printed = paper.GEOLIFE.get(s.rate) if results.dataset == "geolife" else None
            if part["subject"].n_unique() > 1:
                figure = people_figure(part, results.manifest["methods"], said, printed)
                made.append((f"people_{name}", figure))
    return made


def curves_figure(trips: pl.DataFrame, methods: Sequence[str], title: str) -> Figure:
    """ROC and precision-recall curves, each the mean over draws of its heights at equal places."""
    figure = canvas(10.5, 4.2)
    left, right = figure.subplots(1, 2)
    looks, shown = style(methods), parts_of(trips, methods)
    for method, part in shown:
        roc, pr, areas = [], [], []
        for case in part.partition_by(*measures.DRAW):
            _, score, _ = next(iter(measures.contenders(case)))
            label = case["kind"].to_numpy() != ""
            x, y = metrics.roc_curve(score, label)
            roc.append(np.interp(_GRID, x, y))
            pr.append(precision_at(_GRID, score, label))
            areas.append((metrics.auroc(score, label), metrics.average_precision(score, label)))
        auroc, ap = np.mean(areas, axis=0)
        featurize = {k: looks[method][k] for k in ("color", "ls", "lw")}
        left.plot(_GRID, np.mean(roc, axis=0), **featurize)
        right.plot(_GRID, np.mean(pr, axis=0), label=f"{method}  {auroc:.3f} / {ap:.3f}", **featurize)
    left.plot([0, 1], [0, 1], color=PALE, lw=1, ls=":")
    right.axhline(float((trips["kind"] != "").mean()), color=PALE, lw=1, ls=":")  # type: ignore[arg-type]
    left.set(xlabel="false-positive rate", ylabel="recall", xlim=(0, 1), ylim=(0, 1.01))
    right.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.01))
    for axes in (left, right):
        plain(axes)
    legend(right, "AUROC / AP")
    said = "Means over draws at equal places; the areas under them are the mean AUROC and AP. Dotted: a guess."
    titled(figure, "ROC and precision-recall", title, f"{said} {draws(shown)}")
    return figure


def precision_at(grid: Floats, score: Floats, label: NDArray[np.bool_]) -> Floats:
    """The precision at the first threshold that reaches each recall: the steps whose area is the average precision.

    >>> precision_at(np.array([0.5, 1.0]), np.array([-3.0, -1.0, 0.0, -2.0]), np.array([True, True, False, False]))
    array([1.        , 0.66666667])
    """
    recall, precision = metrics.precision_recall_curve(score, label)
    found = recall > 0.0  # before that no threshold has reached anything
    return np.asarray(precision[found][np.searchsorted(recall[found], grid - 1e-9)])


def people_figure(
    figures: pl.DataFrame, methods: Sequence[str], title: str, printed: dict[str, paper.Printed] | None = None
) -> Figure:
    """F1 at the fixed threshold of every person: the per-user table as a plot, means over draws."""
    people = figures["subject"].unique(maintain_order=True).to_list()
    looks, shown = style(methods), parts_of(figures, methods)
    figure = canvas(8.6, 1.8 + min(0.6, 0.2 + 0.05 * len(shown)) * (len(people) + 1))
    axes = figure.subplots()
    for i, (method, part) in enumerate(shown):
        mark = {k: looks[method][k] for k in ("color", "marker", "mfc")} | {"ls": "none", "ms": 5.5}
        lift = 0.7 * (i / max(1, len(shown) - 1) - 0.5)
        values = [mean_of(part.filter(pl.col("subject") == person), "f1") for person in people]
        axes.plot([np.nan if v is None else v for v in values], np.arange(len(people)) + lift, label=method, **mark)
        mean = measures.interval(part, "f1")
        y = len(people) + lift
        if np.isfinite(mean.low):
            axes.plot([mean.low, mean.high], [y, y], color=mark["color"], lw=1.4)
        axes.plot([mean.mean], [y], **mark)
    for name, dash in (("IRL-AD", "--"), ("IRL-ADU", ":")):
        if printed:
            axes.axvline(printed[name].f1, color=INK, lw=1, ls=dash, label=f"{name} as printed")
    for row in range(0, len(people), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="#f4f4f4", lw=0, zorder=0)
    axes.axhline(len(people) - 0.5, color=GREY, lw=0.8)
    axes.set_yticks(range(len(people) + 1), [*people, "mean"])
    axes.set(ylim=(len(people) + 0.55, -0.5), xlim=(-0.02, 1.02), xlabel=f"F1 at a score of {EPS:g} or less")
    plain(axes)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color="#e4e4e4", lw=0.8)
    legend(axes)
    said = "A mark: the mean of a person's draws. Bars: 95 % intervals of the mean over people."
    titled(figure, "F1 of every person", title, f"{said} {draws(shown)}")
    return figure


# -------------------------------------------------------------------- what changes with something


def lines_figure(
    results: Results,
    figures: pl.DataFrame,
    x: tuple[str, str, Callable[[Any], str]],
    columns: Mapping[str, str],
    heading: str,
) -> Figure | None:
    """Means with intervals against a setting, a panel for each figure, a line for each method; None if nothing varies.

    ``x``: the column of the setting, what it is, and how a value of it is said.
    """
    column, label, said = x
    figures = measures.on_the_same_draws(figures, column)
    shown = parts_of(figures, results.manifest["methods"])
    if not shown:
        return None
    figure = canvas(4.4 * len(columns) + 1.8, 3.9)
    panels = figure.subplots(1, len(columns), squeeze=False)[0]
    looks = style(results.manifest["methods"])
    values = sorted(figures[column].unique().to_list())
    for axes, (metric, name) in zip(panels, columns.items(), strict=True):
        for i, (method, part) in enumerate(shown):
            found = [measures.interval(part.filter(pl.col(column) == v), metric) for v in values]
            mean, low, high = np.array(found).T
            # Side by side, so that one interval does not hide another.
            at = np.arange(len(values)) + 0.03 * (i - 0.5 * (len(shown) - 1))
            axes.plot(at, mean, ms=5, label=method, **looks[method])
            axes.vlines(at, low, high, color=looks[method]["color"], lw=0.9, alpha=0.7)
        axes.set_ylabel(name)
        axes.set_xlabel(label)
        axes.set_xticks(range(len(values)), [said(v) for v in values])
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, -0.02), min(top, 1.02))  # Student's interval of two draws knows no bounds
        plain(axes)
    legend(panels[-1])
    bars = f"Means with 95 % intervals over {clusters(figures)}, a line on the same draws from end to end."
    titled(figure, heading, results.dataset, f"{bars} {draws(shown, per=('subject', 'seed'))}")
    return figure


def _contamination(results: Results) -> Named:
    x = "contamination", "other people's trips in the training set", percent
    columns = {"ap": "average precision", "f1": "F1 at the fixed threshold"}
    figure = lines_figure(results, results.figures(), x, columns, "Contaminated training")
    return [("contamination", figure)] if figure else []


def _from_nothing(results: Results) -> Named:
    # All trips come last, not first.
    every = 10**9
    figures = results.figures().with_columns(pl.col("history").replace(0, every))
    x = "history", "trips learned from", lambda n: "all" if n == every else str(n)
    figure = lines_figure(results, figures, x, {"auroc": "AUROC", "ap": "average precision"}, "From nothing")
    return [("from_nothing", figure)] if figure else []


def _observed(results: Results) -> Named:
    figures = results.prefixes()
    if figures is None:
        return []
    x = "ratio", "share of the trip, in percent", lambda ratio: f"{100 * ratio:.0f}"
    columns = {"auroc": "AUROC", "ap": "average precision"}
    figure = lines_figure(results, figures, x, columns, "What is known when a share of the trip has been seen")
    return [("observed_ratio", figure)] if figure else []


_FIGURES: dict[str, Callable[[Results], Named]] = {
    "p1": _detection,
    "p2": _detection,
    "p3": dot_figures.kinds,
    "p4": _observed,
    "p5": trust,
    "p6": _contamination,
    "p7": dot_figures.streams,
    "p8": dot_figures.routes,
    "p9": _from_nothing,
    "p10": _detection,
}
