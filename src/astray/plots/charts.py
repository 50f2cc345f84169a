"""Draws the charts of a model: the distribution of its scores, and the course of its training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.core.errors import DataError
from astray.core.text import drawn, number_of, shortened
from astray.plots.style import INK, NORMAL, ODD, canvas, plain
from astray.plots.trip_text import minus

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[Any]


def scores_figure(
    scores: ArrayLike, labels: Sequence[str] | Array | None = None, eps: float = -2.0, *, name: str = "normality N(τ)"
) -> Figure:
    """Draws the distribution of scores, and the threshold.

    Parameters
    ----------
    scores
        One per trip; NaN is left out.
    labels
        The known kind of each trip; an empty text is normal. Each label gets a row of dots.
    eps
        The threshold: scores up to this are anomalies.
    name
        The name of the scores.
    """
    values = np.asarray(scores, np.float64)
    kinds = np.full(len(values), "") if labels is None else np.asarray(labels, dtype=np.str_)
    if values.ndim != 1 or kinds.shape != values.shape:
        raise DataError(f"{kinds.shape} labels for {values.shape} scores", remedy="give one label per score")
    known = np.isfinite(values)
    values, kinds = values[known], kinds[known]
    if not len(values):
        raise DataError(
            "no score is a number: there is nothing to draw", remedy="give scores of trips with usable fixes"
        )
    normal = kinds == ""
    names = ["", *sorted(set(kinds[~normal].tolist()))] if labels is not None else []
    figure = canvas(8.0, 3.4 + 0.27 * len(names))
    if names:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3.0, 0.35 * len(names)))
    else:
        above = below = figure.subplots()
    low, high = min(float(values.min()), eps) - 0.2, float(values.max()) + 0.2
    # A bin ends at the threshold, so that no bar crosses it.
    bins = eps + 0.25 * np.arange(np.floor((low - eps) / 0.25), np.ceil((high - eps) / 0.25) + 1)
    parts = [values[normal], values[~normal]] if names else [values]
    said = [f"normal ({normal.sum()})", f"anomalous ({(~normal).sum()})"] if names else ["trips"]
    above.hist(parts, bins=list(bins), stacked=True, color=[NORMAL, ODD][: len(parts)], label=said, ec="white", lw=0.6)
    above.set_ylabel("trips")
    above.yaxis.get_major_locator().set_params(integer=True)
    for axes in {above, below}:
        axes.axvline(eps, color=INK, lw=1.2)
        plain(axes)
    low_ones = f"{(values <= eps).sum()} of {number_of(len(values), 'trip')}"
    threshold = f"threshold {round(eps, 2):g}: {low_ones} at or under it"
    above.annotate(
        minus(threshold),
        (eps, 1.0),
        (0, 4),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="center",
        fontsize=9,
    )
    if names:
        above.legend(fontsize=9, frameon=False, loc="upper left")
        for row, kind in enumerate(names):
            x = values[kinds == kind]
            below.scatter(x, np.full(len(x), row), s=26, color=ODD if kind else NORMAL, alpha=0.7, linewidths=0)
        below.set_yticks(range(len(names)), [drawn(shortened(kind)) or "normal" for kind in names])
        below.set_ylim(len(names) - 0.4, -0.6)
    below.set_xlabel(name)
    figure.suptitle("How the trips score", x=0.02, ha="left", fontsize=13, fontweight="bold")
    return figure


# -------------------------------------------------------------------- training


_MEASURES = (  # column of a history, title
    ("loss", "loss"),
    ("reward_gap", "reward gap to the background"),
    ("effective_sample_size", "effective sample size (share)"),
    ("policy_reward", "reward of the policy's own trips"),
    ("kl", "KL divergence of the policy's step"),
    ("entropy", "entropy of the policy"),
    ("head_spread", "spread over the heads"),
    ("held_out_loss", "loss on held-out trips"),
)


def history_figure(history: pl.DataFrame) -> Figure:
    """Draws the training history: one small chart for each measure.

    Parameters
    ----------
    history
        A detector's ``training_history_``: one row per iteration. Missing measures are left out.
    """
    shown = [(name, title) for name, title in _MEASURES if name in history.columns and history[name].count()]
    if not shown:
        none = ", ".join(name for name, _ in _MEASURES)
        raise DataError(f"the history has none of {none}", remedy="give the training_history_ of a detector")
    columns = min(len(shown), 4)
    rows = -(-len(shown) // columns)
    figure = canvas(3.0 * columns, 2.2 * rows + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    iteration = np.arange(1, history.height + 1)
    for axes, (name, title) in zip(panels, shown, strict=False):
        values = history[name].cast(pl.Float64).to_numpy()
        axes.plot(iteration, values, color=NORMAL, lw=1.8, marker="o", ms=2.5)
        axes.set_title(title, loc="left", fontsize=9)
        if name == "held_out_loss" and np.isfinite(values).any():
            best = int(np.nanargmin(values))
            axes.plot(iteration[best], values[best], "o", color=ODD, ms=6)
            axes.annotate("best", (iteration[best], values[best]), (0, -13), textcoords="offset points", ha="center")
            axes.margins(y=0.15)
        plain(axes)
    for axes in panels[len(shown) :]:
        axes.remove()
    for axes in panels[max(0, len(shown) - columns) : len(shown)]:
        axes.set_xlabel("iteration", fontsize=9)
        axes.tick_params(labelbottom=True)
    figure.suptitle("What learning did", x=0.02, ha="left", fontsize=13, fontweight="bold")
    return figure
