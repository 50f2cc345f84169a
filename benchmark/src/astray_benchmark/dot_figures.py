"""Figures with a row for each kind of anomaly (P3, P8) or way to go on (P7), and a mark with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from astray.plots.style import GREY, INK, PALE, canvas, plain
from astray_benchmark import measures
from astray_benchmark.figure_parts import Named, clusters, draws, legend, style, titled
from astray_benchmark.metrics.intervals import Interval
from astray_benchmark.results import Results, parts_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PER = ("subject", "seed")
_SPREAD = 0.7  # of a row's height, that its marks are spread over
_READINGS = {"strangers": ("o", INK), "intruder": ("D", GREY)}


def kinds(results: Results) -> Named:
    """P3: how well each kind of injected anomaly is found."""
    return [("kinds", kinds_figure(results, "What kinds are found"))]


def routes(results: Results) -> Named:
    """P8: how well each kind of changed route is found, and the trips that are unusually long."""
    return [("routes", kinds_figure(results, "Between two places", over="pairs of places"))]


def kinds_figure(results: Results, heading: str, over: str = "") -> Figure:
    """The average precision of every kind: a row a kind, a mark a method; what the first method finds best on top."""
    methods = results.manifest["methods"]
    figures = measures.of_trips(results.trips, by_kind=True)
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
    over = over or clusters(figures)
    said = f"Each kind against all normal trips, at 5 %; 95 % intervals over {over}. Dotted: a guess."
    titled(figure, heading, results.dataset, f"{said} {draws(shown, per=_PER)}")
    return figure


def streams(results: Results) -> Named:
    """P7: average precision, and false alarms at the beginning and at the end, of every way to follow a stream."""
    figures = results.streams()
    if figures is None:
        return []
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
    _rows(left, [method for method, _ in shown])
    _rows(right, [method for method, _ in shown])
    legend(right)
    said = f"Means; 95 % intervals over {clusters(figures)}. An intruder makes 10 of 20 trips in a row."
    titled(figure, "A stream", results.dataset, f"{said} {draws(shown, per=_PER)}")
    return [("streams", figure)]


def _lift(i: int, of: int) -> float:
    """How far the i-th of so many marks stands from the middle of its row."""
    return _SPREAD * (i / max(1, of - 1) - 0.5)


def _bars(axes: Axes, found: list[Interval], at: np.ndarray, colour: str) -> None:
    known = [(f.low, f.high, y) for f, y in zip(found, at.tolist(), strict=True) if np.isfinite(f.low)]
    if known:
        low, high, y = zip(*known, strict=True)
        axes.hlines(y, low, high, color=colour, lw=0.9, alpha=0.7)


def _rows(axes: Axes, names: list[str]) -> None:
    """Names beside the rows, from the top, every other one shaded."""
    for row in range(0, len(names), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="#f4f4f4", lw=0, zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    plain(axes)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color="#e4e4e4", lw=0.8)
