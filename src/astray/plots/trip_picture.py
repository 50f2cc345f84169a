"""Draws one trip: a map coloured by normality, and under it normality over time."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.text import drawn
from astray.explain import Explanation
from astray.plots.map_extent import LEAST_MARGIN, MARGIN, Frame, frame
from astray.plots.style import GREY, HIGHEST, INK, LOWEST, ODD, PALE, canvas, palette, plain
from astray.plots.trip_text import (
    clock_unit,
    grounds,
    heading,
    long_stop,
    minus,
    rows_of,
    span,
    usable_fixes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

Array = NDArray[Any]
Floats = NDArray[np.float64]

SAID = 12  # at most this many segments, the worst, get a number and words
LETTERS = 106  # in a line
TITLE_LETTERS = 62  # in a line of the title
FEW = 60  # a trip of at most this many fixes has larger points in time


def explanation_figure(explanation: Explanation) -> Figure:
    """Draws a trip on a map, coloured by normality, and under it normality over time.

    The map shows the agent's habitual ways in grey, the segments that are not normal with a halo and a number, and the
    expected ways dashed. The curve of normality has a band of two spreads over the heads to either side, and the
    thresholds at which a segment begins and ends. For states and actions there is no map.

    Parameters
    ----------
    explanation
        The result of a detector's ``explain``.

    Examples
    --------
    >>> from astray import Detector
    >>> from astray.simulate import city
    >>> trips = city(people=2, days=7, seed=0).trips
    >>> detector = Detector(iterations=2, seed=0).fit(trips.agent("p00"), population=trips.agent("p01"))
    >>> len(explanation_figure(detector.explain(trips.agent("p01"))).axes)  # the map, its colours, the time
    3
    """
    e = explanation
    on_map = len(e.lat) > 0
    said, why = _said(e), [line for ground in grounds(e) for line in textwrap.wrap(ground, LETTERS)]
    title = textwrap.wrap(heading(e), TITLE_LETTERS)
    # Inches, from the bottom up; set here, so that the map's shape is known when its limits are chosen.
    left, wide, time_at, time_high = 0.65, 6.45, 0.62, 1.9
    map_at, map_high = time_at + time_high + 0.17 * len(said) + 0.5, 4.5
    above = 0.31 + 0.22 * len(title) + 0.16 * len(why)
    figure = canvas(8.0, (map_at + map_high if on_map else map_at - 0.3) + above, layout=None)

    def panel(x: float, y: float, width: float, height: float) -> Axes:
        w, h = figure.get_size_inches()
        return figure.add_axes((x / w, y / h, width / w, height / h))

    if on_map:
        trip = _draw_map(panel(left, map_at, wide, map_high), e, wide / map_high)
        colours = panel(left + wide + 0.1, map_at, 0.14, map_high)
        figure.colorbar(trip, cax=colours, extend="min", extendfrac=0.03, label="normality n(s, a) of each fix")
        colours.axhline(e.eps, color=INK, lw=1.2)
        colours.tick_params(labelsize=8.5)
    below = panel(left, time_at, wide, time_high)
    _draw_time(below, e)
    below.set_title(drawn("\n".join(said)), loc="left", fontsize=9, color=INK, linespacing=1.35)
    top = 1.0 - 0.12 / figure.get_size_inches()[1]
    figure.text(left / 8.0, top, drawn("\n".join(title)), va="top", fontsize=13, fontweight="bold", color=INK)
    top -= (0.08 + 0.22 * len(title)) / figure.get_size_inches()[1]
    figure.text(left / 8.0, top, drawn("\n".join(why)), va="top", fontsize=9, color=INK, linespacing=1.35)
    return figure


class Known(NamedTuple):
    """Fixes of a trip that are known to be wrong."""

    words: str
    fixes: NDArray[np.bool_]


def trips_figure(
    explanations: Sequence[Explanation],
    titles: Sequence[str],
    known: Mapping[int, Known] | None = None,
) -> Figure:
    """Draws trips one below the other: each on a map at the left, and its normality over time at the right.

    The axes of time are for normality itself: they cut off the band of the spreads where it is wider.

    Parameters
    ----------
    explanations
        The results of a detector's ``explain``, of GPS trips.
    titles
        A heading for each; the trip's normality and uncertainty follow it.
    known
        What is known to be wrong with a trip, by its position.

    Examples
    --------
    >>> from astray import Detector
    >>> from astray.simulate import city
    >>> trips = city(people=2, days=7, seed=0).trips
    >>> detector = Detector(iterations=2, seed=0).fit(trips.agent("p00"), population=trips.agent("p01"))
    >>> both = [detector.explain(trips.agent(who)) for who in ("p00", "p01")]
    >>> len(trips_figure(both, ["Own", "Another's"]).axes)
    4
    """
    # Inches, from the top down.
    left, wide, gap, time_wide, high, row_high = 0.2, 3.7, 0.75, 5.4, 2.7, 3.6
    width, height = left + wide + gap + time_wide + 0.95, row_high * len(explanations)
    figure = canvas(width, height, layout=None)
    for row, (e, title) in enumerate(zip(explanations, titles, strict=True)):
        bottom = height - row * row_high - 0.38 - high
        panels = [
            figure.add_axes((x / width, bottom / height, w / width, high / height))
            for x, w in ((left, wide), (left + wide + gap, time_wide))
        ]
        wrong = (known or {}).get(row)
        _draw_map(panels[0], e, wide / high, wrong, columns=3)
        _draw_time(panels[1], e, wrong, brief=True)
        scores = minus(f"N(τ) = {e.trip_normality:.1f} ± {e.trip_uncertainty:.1f}")
        figure.text(
            left / width,
            (bottom + high + 0.1) / height,
            drawn(f"{title}: {scores}"),
            fontsize=11,
            fontweight="bold",
            color=INK,
        )
    return figure


# -------------------------------------------------------------------- the map


def _draw_map(axes: Axes, e: Explanation, shape: float, known: Known | None = None, columns: int = 7) -> LineCollection:
    """Draws the map on axes that are ``shape`` times as wide as high; returns the coloured line of the trip.

    The legend below it has a number of columns.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Patch

    shown, usable = frame(e), usable_fixes(e)
    centre = shown.centre
    path = centre.to_metres(e.lat, e.lon) / 1000.0
    habitual = [centre.to_metres(*way) / 1000.0 for way in e.habitual]
    expected = [centre.to_metres(*way) / 1000.0 for way in e.expected]
    _look_at(axes, shown, shape)
    if shown.away is not None:
        axes.annotate(
            str(shown.away), (0.5, 0.985), xycoords="axes fraction", ha="center", va="top", fontsize=9, color=INK
        )

    grey = LineCollection(habitual, colors=PALE, linewidths=1.5, alpha=0.75, label="habitual ways", zorder=1)
    axes.add_collection(grey, autolim=False)
    for number, segment in enumerate(e.segments, 1):
        inside = rows_of(segment, usable)
        axes.plot(*path[inside].T, color=ODD, lw=15, alpha=0.22, solid_capstyle="round", zorder=2)
        if number in _numbered(e):
            _number(axes, number, path[inside[len(inside) // 2]], offset=14)
    if known is not None:
        axes.plot(
            *path[known.fixes].T, color=INK, lw=11, alpha=0.3, solid_capstyle="round", zorder=2.2, label=known.words
        )
    axes.plot(*path[usable].T, color=INK, lw=4.6, solid_capstyle="round", solid_joinstyle="round", zorder=3)
    trip = _coloured(path[usable], e.normality[usable], 3.2)
    axes.add_collection(trip, autolim=False)
    # The first expected way is the likeliest; the others show how sure that is.
    for way in expected[1:]:
        axes.plot(*way.T, color=INK, lw=1.0, ls=(0, (1, 2)), alpha=0.45, zorder=2.5)
    for way in expected[:1]:
        axes.plot(*way.T, color=INK, lw=2.0, ls=(0, (4, 2.5)), zorder=5, label="expected way")
    left, right, bottom, top = axes.axis()
    faulty = [(x, y) for x, y in path[~usable].tolist() if left <= x <= right and bottom <= y <= top]
    if faulty:
        axes.plot(*np.transpose(faulty), "x", color=GREY, ms=5, zorder=4, label="faulty fixes")
    start, end = path[np.flatnonzero(usable)[[0, -1]]] if usable.any() else path[[0, -1]]
    mark: dict[str, Any] = {"mec": INK, "mew": 1.6, "ls": "none", "zorder": 7}
    axes.plot(*start, "o", mfc="white", ms=9, label="start", **mark)
    axes.plot(*end, "s", mfc=INK, ms=8, label="end", **mark)
    stop = long_stop(1000.0 * path[usable], e.time[usable])
    if stop is not None:
        axes.plot(*(stop.place / 1000.0), "h", mfc="white", ms=11, label=f"stood {stop.minutes:.0f} minutes", **mark)

    keys, _ = axes.get_legend_handles_labels()
    keys = [handle for handle in keys if handle is not grey or (habitual and shown.away is None)]
    halo = [Patch(color=ODD, alpha=0.3, lw=0, label="not normal")] if e.segments else []
    axes.legend(
        handles=[*keys[:1], *halo, *keys[1:]] if grey in keys else [*halo, *keys],
        loc="upper left",
        bbox_to_anchor=(-0.01, -0.005),
        ncols=columns,
        fontsize=8.2,
        frameon=False,
        handlelength=1.9,
        columnspacing=1.1,
    )
    _scale_bar(axes)
    return trip


def _look_at(axes: Axes, shown: Frame, shape: float) -> None:
    """Sets the limits of axes that are ``shape`` times as wide as high, in kilometres."""
    low, high = shown.low / 1000.0, shown.high / 1000.0
    margin = max(MARGIN * float((high - low).max()), LEAST_MARGIN / 1000.0)
    middle, (wide, tall) = (low + high) / 2, high - low + 2 * margin
    half = np.array([max(wide, shape * tall), max(tall, wide / shape)]) / 2
    axes.set(xlim=(middle[0] - half[0], middle[0] + half[0]), ylim=(middle[1] - half[1], middle[1] + half[1]))
    axes.set(xticks=[], yticks=[], facecolor="#fafaf8", aspect="equal")  # kilometres both ways
    axes.autoscale(False)
    axes.spines[:].set_color(PALE)


def _scale_bar(axes: Axes) -> None:
    """Draws a scale bar of a round length, about a fifth of the map's width, at the lower left."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    wanted = (right - left) / 5
    power = 10.0 ** np.floor(np.log10(wanted))
    length = float(max(n * power for n in (1, 2, 5) if n * power <= wanted))
    x, y = left + 0.03 * (right - left), bottom + 0.04 * (top - bottom)
    axes.plot([x, x + length], [y, y], color=INK, lw=2.5, solid_capstyle="butt", zorder=6)
    said = f"{length:g} km" if length >= 1 else f"{1000 * length:g} m"
    axes.annotate(said, (x + length / 2, y), (0, 4), textcoords="offset points", ha="center", fontsize=9, zorder=6)
    axes.annotate("N ↑", (0.98, 0.03), xycoords="axes fraction", ha="right", fontsize=10, color=INK)


def _coloured(points: Floats, values: Floats, width: float) -> LineCollection:
    """Returns a line; each piece has the colour of its less normal end."""
    from matplotlib.collections import LineCollection

    colours, scale = palette()
    pieces = np.stack([points[:-1], points[1:]], axis=1)
    line = LineCollection(list(pieces), cmap=colours, norm=scale, linewidths=width, capstyle="round", zorder=4)
    line.set_array(np.minimum(values[:-1], values[1:]))
    return line


def _number(axes: Axes, number: int, at: Array, offset: float = 0.0) -> None:
    axes.annotate(
        str(number),
        (float(at[0]), float(at[1])),
        (offset, offset),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=9,
        fontweight="bold",
        color="white",
        bbox={"boxstyle": "circle,pad=0.25", "fc": ODD, "ec": "white", "lw": 1.0},
        zorder=8,
    )


# -------------------------------------------------------------------- in time


def _draw_time(axes: Axes, e: Explanation, known: Known | None = None, brief: bool = False) -> None:
    """Draws normality over time; ``brief`` draws the threshold alone, over the range of normality alone."""
    from matplotlib.ticker import MaxNLocator

    usable = usable_fixes(e)
    unit = clock_unit(e)
    since = e.time if unit is None else (e.time - e.time[0]) / unit.seconds
    lowest, highest = (e.normality, e.normality) if brief else (e.lo, e.hi)
    bottom = min(LOWEST - 0.3, float(np.nanmin(lowest, initial=0.0)) - 0.3)
    top = max(HIGHEST + 0.5, float(np.nanmax(highest, initial=0.0)) + 0.3)

    for i, segment in enumerate(e.segments, 1):
        inside = rows_of(segment, usable)
        axes.axvspan(float(since[inside[0]]), float(since[inside[-1]]), color=ODD, alpha=0.14, lw=0)
        if i in _numbered(e):
            _number(axes, i, np.array([(since[inside[0]] + since[inside[-1]]) / 2, top - 0.09 * (top - bottom)]))
    axes.axhline(e.eps, color=INK, lw=1.1)
    named = {"threshold": e.eps} if brief else {"opens": e.eps, "closes": e.leave}
    if not brief:
        axes.axhline(e.leave, color=INK, lw=0.9, ls=(0, (2, 2)))
    for does, height in named.items():
        axes.annotate(
            minus(f"{does}: {round(height, 2):g}"),
            (1.005, height),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8.5,
        )
    x, n, lo, hi = (values[usable] for values in (since, e.normality, e.lo, e.hi))
    # A row of NaN breaks line and band, so that nothing is drawn across a gap.
    apart = np.diff(x)
    gaps = np.flatnonzero(apart > 10 * np.median(apart[apart > 0])) + 1 if (apart > 0).any() else np.zeros(0, np.intp)
    bx, bn, blo, bhi = (np.insert(values, gaps, np.nan) for values in (x, n, lo, hi))
    axes.fill_between(bx, blo, bhi, color=GREY, alpha=0.4, lw=0, label="± 2 spreads over the heads")
    axes.plot(bx, bn, color=GREY, lw=0.8, zorder=3)
    colours, scale = palette()
    axes.scatter(x, n, c=n, cmap=colours, norm=scale, s=9 if len(x) > FEW else 25, zorder=4, linewidths=0)
    if not usable.all():
        faulty = since[~usable]
        axes.plot(faulty, np.full(len(faulty), bottom + 0.25), "x", color=GREY, ms=5, label="faulty fixes")
    if known is not None:
        bar = np.full(int(known.fixes.sum()), bottom + 0.04 * (top - bottom))
        axes.plot(since[known.fixes], bar, color=INK, lw=4, solid_capstyle="butt", label=known.words)
    axes.set(ylim=(bottom, top), ylabel="normality n(s, a)")
    # At the left, since the legend is at the right.
    axes.set_xlabel("step" if unit is None else f"{unit.name} since the start", loc="left")
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(9, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.legend(loc="upper right", bbox_to_anchor=(1.01, -0.1), fontsize=8, frameon=False, ncols=2)
    plain(axes)


def _numbered(e: Explanation) -> list[int]:
    """Returns the numbers of the segments with words."""
    worst = sorted(range(len(e.segments)), key=lambda i: e.segments[i].normality)[:SAID]
    return sorted(i + 1 for i in worst)


def _said(e: Explanation) -> list[str]:
    """Returns lines that describe the worst segments, in the order of the trip."""
    lines = []
    for number in _numbered(e):
        segment = e.segments[number - 1]
        lines += textwrap.wrap(f"{number}   {span(e, segment)}  {segment}", LETTERS, subsequent_indent="      ")
    return lines
