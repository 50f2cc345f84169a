"""Draws figures from recipes: curves, marks of people and kinds, lines against a setting, promises, risk and streams.

Every function in ``DRAWINGS`` takes a recipe and the results of a protocol, and yields figures with the names of their
files, or none if there is nothing to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.plots import save_figure
from astray.plots.style import GREY, INK, PALE, canvas, plain
from astray_benchmark import manifest as manifests
from astray_benchmark import measures, metrics
from astray_benchmark.array_types import Floats
from astray_benchmark.protocols import PROTOCOLS
from astray_benchmark.reporting import printed
from astray_benchmark.reporting.figure_style import COLOURS, DASHED, DOTTED, SOLID, draws, legend, style, titled
from astray_benchmark.reporting.recipes import FigureRecipe, figure_recipes
from astray_benchmark.reporting.results import Kept, Results, in_words, mean_of, of_what, parts_of, percent, read
from astray_benchmark.variants import VARIANTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Drawn = Iterator[tuple[str, "Figure"]]

_GRID = np.linspace(0.0, 1.0, 201)
_SPREAD = 0.7  # the share of a row's height that its marks cover
_READINGS = {"strangers": ("o", INK), "intruder": ("D", GREY)}
_ORDERS = {
    "p-value": ("p-value", SOLID),
    "heads": ("spread of the heads", SOLID),
    "threshold": ("distance from the threshold", DASHED),
    "doubt": ("doubt, of the last two", DOTTED),
}


def draw(out: Path, kept: Kept | None = None) -> list[Path]:
    """Draws every figure for which a folder has results, as PNG and SVG, into ``figures/``; returns the files.

    It leaves out the variants of an ablation, which have a table and would cover each other in a figure. ``kept`` holds
    numbers that a report has computed before.
    """
    manifest = manifests.read(out)
    scores = None if manifest is None else read(out, manifest)
    if manifest is None or scores is None:
        raise manifests.no_results(out)
    manifest = manifest | {"methods": [name for name in manifest["methods"] if name not in VARIANTS]}
    scores = scores.filter(pl.col("method").is_in(manifest["methods"]))
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    written = []
    kept = {} if kept is None else kept
    for protocol, settings in PROTOCOLS[manifest["dataset"]].items():
        trips = measures.of_setting(scores, settings) if protocol in manifest["protocols"] else pl.DataFrame()
        for recipe in figure_recipes(protocol) if len(trips) else ():
            for name, figure in DRAWINGS[recipe.kind](recipe, Results(out, manifest, settings, trips, kept)):
                for ending in (".png", ".svg"):
                    save_figure(figure, folder / f"{name}{ending}")
                    written.append(folder / f"{name}{ending}")
    return written


# -------------------------------------------------------------------- of each setting


def curves(recipe: FigureRecipe, results: Results) -> Drawn:
    """Draws ROC and precision-recall curves, each the mean over draws at the same values of x."""
    for s in results.settings:
        trips = measures.of_setting(results.trips.lazy(), [s])
        if not len(trips):
            continue
        figure = canvas(10.5, 4.2)
        left, right = figure.subplots(1, 2)
        looks, shown = style(results.manifest["methods"]), parts_of(trips, results.manifest["methods"])
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
            look = {k: looks[method][k] for k in ("color", "ls", "lw")}
            left.plot(_GRID, np.mean(roc, axis=0), **look)
            right.plot(_GRID, np.mean(pr, axis=0), label=f"{method}  {auroc:.3f} / {ap:.3f}", **look)
        left.plot([0, 1], [0, 1], color=PALE, lw=1, ls=":")
        right.axhline(float((trips["kind"] != "").mean()), color=PALE, lw=1, ls=":")  # type: ignore[arg-type]
        left.set(xlabel="false-positive rate", ylabel="recall", xlim=(0, 1), ylim=(0, 1.01))
        right.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.01))
        for axes in (left, right):
            plain(axes)
        legend(right, "AUROC / AP")
        said = "Means over draws at equal places; the areas under them are the mean AUROC and AP. Dotted: a guess."
        titled(figure, recipe.heading, f"{results.dataset}, {of_what(s)}", f"{said} {draws(shown)}")
        yield recipe.name.format(setting=s.reading or f"{s.split}_{s.rate:g}"), figure


def precision_at(grid: Floats, score: Floats, label: NDArray[np.bool_]) -> Floats:
    """Returns the precision at the first threshold that reaches each recall; the area below is the average precision.

    >>> precision_at(np.array([0.5, 1.0]), np.array([-3.0, -1.0, 0.0, -2.0]), np.array([True, True, False, False]))
    array([1.        , 0.66666667])
    """
    recall, precision = metrics.precision_recall_curve(score, label)
    found = recall > 0.0  # leaves out the point where nothing is flagged
    return np.asarray(precision[found][np.searchsorted(recall[found], grid - 1e-9)])


def people(recipe: FigureRecipe, results: Results) -> Drawn:
    """Draws every person's F1 at the fixed threshold, as the mean over draws."""
    every = results.frame("trips")
    assert every is not None
    for s in results.settings:
        figures = measures.of_setting(every.lazy(), [s])
        who = figures["subject"].unique(maintain_order=True).to_list()
        if len(who) < 2:
            continue
        looks, shown = style(results.manifest["methods"]), parts_of(figures, results.manifest["methods"])
        figure = canvas(8.6, 1.8 + min(0.6, 0.2 + 0.05 * len(shown)) * (len(who) + 1))
        axes = figure.subplots()
        for i, (method, part) in enumerate(shown):
            mark = {k: looks[method][k] for k in ("color", "marker", "mfc")} | {"ls": "none", "ms": 5.5}
            values = [mean_of(part.filter(pl.col("subject") == person), "f1") for person in who]
            at = np.arange(len(who)) + _lift(i, len(shown))
            axes.plot([np.nan if v is None else v for v in values], at, label=method, **mark)
            mean, y = measures.interval(part, "f1"), len(who) + _lift(i, len(shown))
            if np.isfinite(mean.low):
                axes.plot([mean.low, mean.high], [y, y], color=mark["color"], lw=1.4)
            axes.plot([mean.mean], [y], **mark)
        theirs = printed.beside(results.dataset, s) if results.dataset == "geolife" else {}
        for name, dash in (("IRL-AD", "--"), ("IRL-ADU", ":")):
            if theirs:
                axes.axvline(theirs[name].f1, color=INK, lw=1, ls=dash, label=f"{name} as printed")
        _shade(axes, len(who))
        axes.axhline(len(who) - 0.5, color=GREY, lw=0.8)
        axes.set_yticks(range(len(who) + 1), [*who, "mean"])
        words = f"F1 at a score of {measures.EPS:g} or less"
        axes.set(ylim=(len(who) + 0.55, -0.5), xlim=(-0.02, 1.02), xlabel=words)
        _upright(axes)
        legend(axes)
        said = "A mark: the mean of a person's draws. Bars: 95 % intervals of the mean over people."
        titled(figure, recipe.heading, f"{results.dataset}, {of_what(s)}", f"{said} {draws(shown)}")
        yield recipe.name.format(setting=s.reading or f"{s.split}_{s.rate:g}"), figure


# -------------------------------------------------------------------- a row for each kind or method


def kinds(recipe: FigureRecipe, results: Results) -> Drawn:
    """Draws the average precision by kind, with a row for each kind and a mark for each method.

    The kinds are sorted by the first method, the best on top.
    """
    methods, figures = results.manifest["methods"], results.frame("kinds")
    assert figures is not None
    shown, looks = parts_of(figures, methods), style(methods)
    rows = shown[0][1].group_by("kind").agg(pl.col("ap").mean()).sort("ap", "kind", descending=True)["kind"].to_list()
    figure = canvas(8.6, 1.6 + min(0.62, 0.2 + 0.06 * len(shown)) * len(rows))
    axes = figure.subplots()
    for i, (method, part) in enumerate(shown):
        found = [measures.interval(part.filter(pl.col("kind") == kind), "ap") for kind in rows]
        at = np.arange(len(rows)) + _lift(i, len(shown))
        axes.plot([f.mean for f in found], at, label=method, ms=5.5, **looks[method] | {"ls": "none"})
        _bars(axes, found, at, looks[method]["color"])
    axes.axvline(0.05, color=PALE, lw=1, ls=":")
    axes.set(xlim=(-0.02, 1.02), xlabel="average precision")
    _rows(axes, rows)
    legend(axes)
    over = recipe.over or measures.clusters(figures)[1]
    said = f"Each kind against all normal trips, at 5 %; 95 % intervals over {over}. Dotted: a guess."
    titled(figure, recipe.heading, results.dataset, f"{said} {draws(shown, per=('subject', 'seed'))}")
    yield recipe.name, figure


def streams(recipe: FigureRecipe, results: Results) -> Drawn:
    """Draws average precision, and early and late false alarms, of every way to follow a stream."""
    figures = results.frame("streams")
    if figures is None:
        return
    shown = parts_of(figures, results.manifest["methods"])
    figure = canvas(9.6, 1.6 + 0.55 * len(shown))
    left, right = figure.subplots(1, 2, sharey=True)
    for k, (reading, (mark, colour)) in enumerate(_READINGS.items()):
        parts = [part.filter(pl.col("reading") == reading) for _, part in shown]
        at = np.arange(len(shown)) + _lift(k, 2) / 2
        found = [measures.interval(part, "ap") for part in parts]
        left.plot([f.mean for f in found], at, mark, color=colour, ms=5.5, label=reading)
        _bars(left, found, at, colour)
        first, last = ([measures.interval(part, name).mean for part in parts] for name in ("early", "late"))
        right.hlines(at, first, last, color=colour, lw=1.2)
        right.plot(first, at, mark, color=colour, ms=5.5, mfc="white", label=f"{reading}, first third")
        right.plot(last, at, mark, color=colour, ms=5.5, label=f"{reading}, last third")
    left.set(xlabel="average precision", xlim=(-0.02, 1.02))
    right.set(xlabel="normal trips flagged", xlim=(0.0, None))
    for axes in (left, right):
        _rows(axes, [method for method, _ in shown])
    legend(right)
    over = measures.clusters(figures)[1]
    said = f"Means; 95 % intervals over {over}. An intruder makes 10 of 20 trips in a row."
    titled(figure, recipe.heading, results.dataset, f"{said} {draws(shown, per=('subject', 'seed'))}")
    yield recipe.name, figure


def _lift(i: int, of: int) -> float:
    """Returns the offset of the i-th mark in a row from the row's middle."""
    return _SPREAD * (i / max(1, of - 1) - 0.5)


def _bars(axes: Axes, found: Sequence[metrics.Interval], at: NDArray[Any], colour: str) -> None:
    known = [(f.low, f.high, y) for f, y in zip(found, at.tolist(), strict=True) if np.isfinite(f.low)]
    if known:
        low, high, y = zip(*known, strict=True)
        axes.hlines(y, low, high, color=colour, lw=0.9, alpha=0.7)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    """Writes names beside the rows, from the top."""
    _shade(axes, len(names))
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    _upright(axes)


def _shade(axes: Axes, n: int) -> None:
    """Shades every other row."""
    for row in range(0, n, 2):
        axes.axhspan(row - 0.5, row + 0.5, color="#f4f4f4", lw=0, zorder=0)


def _upright(axes: Axes) -> None:
    """Keeps upright grid lines only."""
    plain(axes)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color="#e4e4e4", lw=0.8)


# -------------------------------------------------------------------- lines against something


def lines(recipe: FigureRecipe, results: Results) -> Drawn:
    """Draws means with intervals against a setting: a panel for each metric, a line for each method."""
    figures = results.frame(recipe.source)
    if figures is None:
        return
    figures = measures.on_the_same_draws(figures, recipe.x)
    shown = parts_of(figures, results.manifest["methods"])
    if not shown:
        return
    figure = canvas(4.4 * len(recipe.panels) + 1.8, 3.9)
    panels = figure.subplots(1, len(recipe.panels), squeeze=False)[0]
    looks = style(results.manifest["methods"])
    values = sorted(figures[recipe.x].unique().to_list(), key=lambda v: (recipe.x == "history" and v == 0, v))
    for axes, (metric, name) in zip(panels, recipe.panels.items(), strict=True):
        for i, (method, part) in enumerate(shown):
            found = [measures.interval(part.filter(pl.col(recipe.x) == v), metric) for v in values]
            mean, low, high = np.array(found).T
            # Shift the lines a little, so that one interval does not hide another.
            at = np.arange(len(values)) + 0.03 * (i - 0.5 * (len(shown) - 1))
            axes.plot(at, mean, ms=5, label=method, **looks[method])
            axes.vlines(at, low, high, color=looks[method]["color"], lw=0.9, alpha=0.7)
        axes.set_ylabel(name)
        axes.set_xlabel(recipe.label)
        said = [in_words(recipe.x, v).removesuffix(" %" if "percent" in recipe.label else "") for v in values]
        axes.set_xticks(range(len(values)), said)
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, -0.02), min(top, 1.02))  # Student's interval of two draws may be very wide
        plain(axes)
    legend(panels[-1])
    over = measures.clusters(figures)[1]
    bars = f"Means with 95 % intervals over {over}, a line on the same draws from end to end."
    titled(figure, recipe.heading, results.dataset, f"{bars} {draws(shown, per=('subject', 'seed'))}")
    yield recipe.name, figure


def promises(recipe: FigureRecipe, results: Results) -> Drawn:
    """Draws observed against promised false alarms: a panel for each split, a line for each method.

    Lines are means over people. Rivals are grey beside methods with heads.
    """
    figures = results.frame("promises")
    if figures is None:
        return
    share = float(figures["rate"].to_numpy().min())
    figures = figures.filter(pl.col("rate") == share)  # every method was run at this rate
    known = set(figures["split"].to_list())
    splits = [split for split in dict.fromkeys(s.split for s in results.settings) if split in known]
    figure = canvas(4.0 * len(splits) + 2.4, 3.9)
    panels = figure.subplots(1, len(splits), squeeze=False, sharey=True)[0]
    looks = style(results.manifest["methods"])
    rates = np.array(measures.PROMISED)
    front = set(_with_heads(results)["method"].to_list()) or set(results.manifest["methods"])
    for axes, split in zip(panels, splits, strict=True):
        every = [
            (method, [measures.interval(part, f"rate_{rate:g}") for rate in measures.PROMISED])
            for method, part in parts_of(figures.filter(pl.col("split") == split), results.manifest["methods"])
        ]
        for method, found in every:
            if method not in front:
                axes.plot(rates, [f.mean for f in found], color=PALE, lw=1.0, label="rivals", zorder=1)
        shown = [(method, found) for method, found in every if method in front]
        for i, (method, found) in enumerate(shown):
            mean, low, high = np.array(found).T
            at = rates * 1.02 ** (i - 0.5 * (len(shown) - 1))  # shifted, so that intervals do not hide each other
            axes.plot(at, mean, ms=4.5, label=method, **looks[method])
            axes.vlines(at, low, high, color=looks[method]["color"], lw=0.9, alpha=0.7)
        axes.plot(rates, rates, color=INK, lw=1.2, ls=":")
        axes.set(xscale="log", xlabel="promised", xticks=rates)
        axes.set_xticks(rates, [f"{100 * rate:g} %" for rate in rates])
        axes.minorticks_off()
        axes.set_title(f"{split} split", fontsize=9, loc="left")
        plain(axes)
    panels[0].set(ylabel="share of normal trips flagged", ylim=(0.0, 1.4 * _highest(panels)))  # few people: no bound
    legend(panels[-1], of=panels)
    over = measures.clusters(figures)[1]
    said = f"{percent(share)} anomalies; means with 95 % intervals over {over}. Dotted: as promised."
    titled(figure, recipe.heading, results.dataset, said)
    yield recipe.name, figure


def risk(recipe: FigureRecipe, results: Results) -> Drawn:
    """Draws the risk of the decisions left after review, with a panel for each method with an uncertainty."""
    known = _with_heads(results)
    shown = parts_of(known, results.manifest["methods"])
    if not shown:
        return
    figure = canvas(3.5 * len(shown) + 3.4, 3.9)
    panels = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
    for axes, (method, part) in zip(panels, shown, strict=True):
        _risk(axes, part)
        axes.set_title(method, fontsize=9, loc="left")
        axes.set_xlabel("share decided, the most certain first")
        plain(axes)
    panels[0].set_ylim(0, 1.05 * _highest(panels))
    panels[0].set_ylabel("share of them decided wrongly")
    legend(panels[-1])
    pooled = [s for s in results.settings if len(measures.of_setting(known.lazy(), [s]))]
    said = f"Means over the draws of: {'; '.join(of_what(s) for s in pooled)}."
    titled(figure, recipe.heading, results.dataset, f"{said} {draws(shown)}")
    yield recipe.name, figure


def _risk(axes: Axes, trips: pl.DataFrame) -> None:
    """Draws a method's mean risk-coverage curves, for each order of review and for a random order."""
    by: dict[str, list[Floats]] = {order: [] for order in _ORDERS}
    errors, anomalies = [], []
    for case in trips.partition_by(*measures.DRAW):
        _, score, flagged = next(iter(measures.contenders(case)))
        label = case["kind"].to_numpy() != ""
        wrong = flagged != label
        errors.append(wrong.mean())
        anomalies.append(label.mean())
        for order, doubt in measures.orders_of_deferral(case, score).items():
            curve = metrics.risk_coverage(wrong, doubt)
            by[order].append(np.interp(_GRID[10:], curve.coverage, curve.risk))
    for (order, found), colour in zip(by.items(), COLOURS, strict=False):
        if found:  # a method without p-values has no such order
            name, dash = _ORDERS[order]
            axes.plot(_GRID[10:], np.mean(found, axis=0), color=colour, ls=dash, lw=1.8, label=name)
    axes.axhline(float(np.mean(errors)), color=GREY, lw=1.2, ls=":", label="at random")
    axes.axhline(float(np.mean(anomalies)), color=INK, lw=1, ls=(0, (6, 2, 1, 2)), label="if nothing is flagged")
    axes.set_xlim(0, 1)


def _with_heads(results: Results) -> pl.DataFrame:
    """Returns the trips of methods with an uncertainty."""
    return results.trips.filter(pl.col("uncertainty").is_not_null().any().over("method"))


def _highest(panels: Sequence[Any]) -> float:
    return float(max(np.max(line.get_ydata()) for axes in panels for line in axes.lines))


DRAWINGS: dict[str, Callable[[FigureRecipe, Results], Drawn]] = {
    "curves": curves,
    "people": people,
    "kinds": kinds,
    "streams": streams,
    "lines": lines,
    "promises": promises,
    "risk": risk,
}
"""The drawings, by the kinds that a recipe may name."""
