"""Draws the training history: one curve per measure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from astray.core.errors import DataError
from astray.plots.style import NORMAL, ODD, canvas, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    """Draws the training history, one small picture per measure.

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
