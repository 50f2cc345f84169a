"""Styles shared by the figures of a results folder: colours and marks of methods, headings, captions and legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import polars as pl

from astray.plots.style import INK
from astray_benchmark import measures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinct for every kind of colour vision, and two more. A method has the same colour in every
# folder; its variant, such as one that uses only the location, has this colour, too, with dashes and a hollow mark.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8a8a8a")
SOLID, DASHED, DOTTED = "-", (0, (4, 1.6)), (0, (1.4, 1.4))
_MARKS = "osD^vPX*<>"
_LOOKS: dict[str, tuple[str, str, Any]] = {
    "astray": ("#0072B2", "o", SOLID),
    "astray-alone": ("#56B4E9", "s", SOLID),
    "astray-shared": ("#332288", "D", SOLID),
    "astray-pretrained": ("#44AA99", "p", SOLID),
    "kdd19": ("#000000", "*", SOLID),
    "kdd19-fourier": ("#000000", "*", DASHED),
    "knn-location": ("#D55E00", "^", SOLID),
    "knn-location-start": ("#D55E00", "v", DASHED),
    "lof": ("#009E73", "P", SOLID),
    "lof-location": ("#009E73", "P", DASHED),
    "ocsvm": ("#CC79A7", "X", SOLID),
    "ocsvm-location": ("#CC79A7", "X", DASHED),
    "iforest": ("#E69F00", "<", SOLID),
    "iforest-location": ("#E69F00", "<", DASHED),
    "fnn-ae": ("#7a4a1e", ">", SOLID),
    "lstm-ae": ("#8a8a8a", "h", SOLID),
    "cell-counts": ("#882255", "d", SOLID),
    "cell-trigram": ("#882255", "d", DASHED),
    "length": ("#999933", "1", SOLID),
    "familiarity": ("#117733", "8", SOLID),
    "cell-ratio": ("#AA4499", "H", SOLID),
    "trigram-ratio": ("#AA4499", "H", DASHED),
    "pyod-ecod": ("#661100", "<", SOLID),
    "pyod-ecod-familiarity": ("#661100", "<", DASHED),
    "pyod-knn": ("#6699CC", "v", SOLID),
    "pyod-knn-familiarity": ("#6699CC", "v", DASHED),
    "lm-tad": ("#DDCC77", "X", SOLID),
    "lm-tad-alone": ("#DDCC77", "X", DASHED),
    "gm-vsae": ("#CC6677", "s", SOLID),
    "gm-vsae-alone": ("#CC6677", "s", DASHED),
    "recorder-interval": ("#BBBBBB", ".", SOLID),
}


def style(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns a colour, a dash and a mark for each method, the same in every figure."""
    others = zip(cycle(COLOURS), cycle(_MARKS), cycle([DOTTED]), strict=True)
    looks = {method: _LOOKS.get(method) or next(others) for method in methods}
    return {
        method: {"color": colour, "marker": mark, "ls": dash, "lw": 1.7, "mfc": "white" if dash == DASHED else colour}
        for method, (colour, mark, dash) in looks.items()
    }


def titled(figure: Figure, heading: str, title: str, caption: str) -> None:
    """Writes a heading above a figure, and a caption below it."""
    figure.suptitle(f"{heading}: {title}", x=0.01, ha="left", fontsize=11.5, fontweight="bold", color=INK)
    figure.supxlabel(caption, x=0.01, ha="left", fontsize=8, color=INK)


def legend(axes: Axes, title: str | None = None, *, of: Iterable[Axes] = ()) -> None:
    """Puts a legend beside the axes, where it covers nothing, for these axes or for all axes in ``of``."""
    named: dict[str, Any] = {}
    for panel in (*of,) or (axes,):
        handles, labels = panel.get_legend_handles_labels()
        named = dict(zip(labels, handles, strict=True)) | named
    axes.legend(
        list(named.values()),
        list(named),
        fontsize=8,
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        title=title,
        title_fontsize=8,
        alignment="left",
        handlelength=2.6,
    )


def draws(shown: Sequence[tuple[str, pl.DataFrame]], per: Sequence[str] = measures.DRAW) -> str:
    """Returns a sentence with the number of draws of the methods in a figure."""
    found = sorted({part.select(per).n_unique() for _, part in shown})
    return f"Draws of a method: {' to '.join(map(str, dict.fromkeys([found[0], found[-1]])))}."
