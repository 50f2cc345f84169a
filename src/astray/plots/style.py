"""Defines the style that all pictures share, and writes pictures to files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from astray.core.atomic import check_target, replacing
from astray.core.extras import require_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure

LOWEST, HIGHEST = -4.0, 1.0  # the normality at the two ends of the colour scale, in every picture
FORMATS = (".png", ".svg")

# Orange for unusual, blue for normal: they differ for every kind of colour vision; in grey the ends are the darkest.
COLOURS = (
    (-4.0, "#7f2704"),
    (-3.0, "#c9480a"),
    (-2.0, "#f79420"),
    (-1.0, "#a9cfe8"),
    (0.0, "#3f8fc9"),
    (1.0, "#0b4a8f"),
)
INK, GREY, PALE = "#222222", "#8a8a8a", "#bcbcbc"
NORMAL, ODD = "#3f8fc9", "#c04f0c"  # white digits are readable on the second


def palette() -> tuple[Colormap, Normalize]:
    """Returns the colours of normality, and their scale."""
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    places = [((n - LOWEST) / (HIGHEST - LOWEST), colour) for n, colour in COLOURS]
    return LinearSegmentedColormap.from_list("normality", places), Normalize(LOWEST, HIGHEST)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Writes a figure to a PNG or SVG file, by the name's extension; whole or not at all.

    The same figure gives the same bytes. The text of an SVG file stays text.
    """
    target = Path(path)
    check_target(target, FORMATS)
    options: dict[str, Any] = {"format": "svg", "metadata": {"Date": None}}
    if target.suffix.lower() == ".png":
        options = {"format": "png", "metadata": {"Software": None}, "pil_kwargs": {"optimize": True}, "dpi": 100}
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "astray"}), replacing(target) as file:
        figure.savefig(file, facecolor="white", **options)


def canvas(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """Returns a new figure, sized in inches, without a window or shared state."""
    require_extra("plots", "drawing a picture", "matplotlib")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout, facecolor="white")


def plain(axes: Axes) -> None:
    """Styles axes: two spines, small labels and faint horizontal lines."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(labelsize=8.5, color=GREY)
    axes.grid(axis="y", color="#eeeeee", lw=0.8)
    axes.set_axisbelow(True)
