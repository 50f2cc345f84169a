"""Pictures: a trip on its map over its normality in time, what learning did, and how scores are distributed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from astray.atomic import replacing
from astray.errors import AstrayError, DataError
from astray.explain import Explanation, Stretch
from astray.mdp.projection import Projection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure

Array = NDArray[Any]
Floats = NDArray[np.float64]

LOWEST, HIGHEST = -4.0, 1.0  # normality at the two ends of the colours, the same in every picture
STOOD = 5.0  # minutes of standing that a map mentions
SAID = 3  # stretches that are put into words under the map, at most
FORMATS = (".png", ".svg")

# Orange for what is odd, blue for what is normal: told apart with any kind of colour vision, and in grey by the ends,
# both of which are dark, together with the numbers of the stretches.
_COLOURS = (
    (-4.0, "#7f2704"),
    (-3.0, "#c9480a"),
    (-2.0, "#f79420"),
    (-1.0, "#a9cfe8"),
    (0.0, "#3f8fc9"),
    (1.0, "#0b4a8f"),
)
_INK, _GREY, _PALE = "#222222", "#8a8a8a", "#bcbcbc"
_NORMAL, _ODD = "#3f8fc9", "#d1560f"

_MEASURES = (  # column of a history, title
    ("loss", "loss"),
    ("reward_gap", "reward gap to the background"),
    ("effective_sample_size", "effective sample size (share)"),
    ("policy_reward", "reward of the policy's own trips"),
    ("kl", "KL divergence of the policy's step"),
    ("entropy", "entropy of the policy"),
    ("head_spread", "spread over the heads"),
    ("held_out_score", "score of left-out trips"),
)


# -------------------------------------------------------------------- one trip


def explanation_figure(explanation: Explanation) -> Figure:
    """A trip on its map, coloured by normality, over its normality in time.

    The map shows the agent's habitual ways in grey, the stretches that are not normal with a halo and a number, and
    dashed where the agent would rather have gone. Under it stand normality, its band of two spreads over the heads
    either side, and the thresholds at which a stretch opens and closes. For states and actions there is no map.

    Parameters
    ----------
    explanation
        What a detector's ``explain`` gives.

    Examples
    --------
    >>> from astray import IRLDetector
    >>> from astray.simulate import city
    >>> trips = city(people=2, days=7, seed=0).trips
    >>> detector = IRLDetector(iterations=2, seed=0).fit(trips.agent("p00"), population=trips.agent("p01"))
    >>> len(explanation_figure(detector.explain(trips.agent("p01"))).axes)  # the map, its colours, the time
    3
    """
    e = explanation
    on_map = len(e.lat) > 0
    said = _said(e)
    # Inches, from the bottom up; set by hand, so that the map's shape is known when its limits are chosen.
    left, wide, time_at, time_high = 0.65, 6.45, 0.62, 1.9
    map_at, map_high = time_at + time_high + 0.17 * len(said) + 0.5, 4.5
    figure = _figure(8.0, (map_at + map_high if on_map else map_at - 0.3) + 0.85, layout=None)

    def panel(x: float, y: float, width: float, height: float) -> Axes:
        w, h = figure.get_size_inches()
        return figure.add_axes((x / w, y / h, width / w, height / h))

    if on_map:
        trip = _draw_map(panel(left, map_at, wide, map_high), e, wide / map_high)
        colours = panel(left + wide + 0.1, map_at, 0.14, map_high)
        figure.colorbar(trip, cax=colours, extend="min", extendfrac=0.03, label="normality n(s, a) of each fix")
        colours.axhline(e.eps, color=_INK, lw=1.2)
        colours.tick_params(labelsize=8.5)
    below = panel(left, time_at, wide, time_high)
    _draw_time(below, e)
    below.set_title("\n".join(said), loc="left", fontsize=9, color=_INK, linespacing=1.35)
    heading, details = _headings(e)
    top = 1.0 - 0.12 / figure.get_size_inches()[1]
    figure.text(left / 8.0, top, heading, va="top", fontsize=13, fontweight="bold", color=_INK)
    top -= 0.3 / figure.get_size_inches()[1]
    figure.text(left / 8.0, top, details, va="top", fontsize=9, color=_INK, linespacing=1.35)
    return figure


def _headings(e: Explanation) -> tuple[str, str]:
    """The decision in words, and the scores behind it."""
    verdict = {"anomaly": "Anomaly", "review": "For review", "normal": "Normal"}.get(e.decision, e.decision)
    whose = f" of {e.agent}" if e.agent else ""
    when = f", {_moment(e.time[0]):%a %d %b %Y, %H:%M} UTC" if len(e.lat) else ""
    if np.isnan(e.score):
        return f"{verdict}: trip {e.trajectory}{whose}{when}", "no usable fix, so no score"
    against = "at or under" if e.score <= e.eps else "above"
    chance = f"p = {e.p_value:.2g}: {_frequency(e.p_value)}" if np.isfinite(e.p_value) else "no p-value"
    details = (
        f"N(τ) = {e.trip_normality:.1f} ± {e.trip_uncertainty:.1f} for the whole trip, {e.worst_window:.1f} for its "
        f"worst window; the lower is {against} the threshold of {e.eps:g}\n"
        f"{chance}; {e.history:.0f} past trips were learned from"
    )
    return f"{verdict}: trip {e.trajectory}{whose}{when}", details.replace("-", "\N{MINUS SIGN}")


def _frequency(p: float) -> str:
    """A p-value in words.

    >>> _frequency(0.037), _frequency(0.6)
    ('about 1 normal trip in 27 scores as low', 'about 60 % of normal trips score as low')
    """
    if p <= 0.25:
        return f"about 1 normal trip in {1 / max(p, 1e-9):.0f} scores as low"
    return f"about {100 * p:.0f} % of normal trips score as low"


def _moment(time: float) -> datetime:
    return datetime.fromtimestamp(float(time), UTC)


# -------------------------------------------------------------------- the map


def _draw_map(axes: Axes, e: Explanation, shape: float) -> LineCollection:
    """Draw the map on axes that are ``shape`` times as wide as high; gives the trip, for its colours."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Patch

    centre = Projection.centred_on(e.lat, e.lon)
    path = centre.to_metres(e.lat, e.lon) / 1000.0
    habitual = [centre.to_metres(*way) / 1000.0 for way in e.habitual]
    expected = [centre.to_metres(*way) / 1000.0 for way in e.expected]
    usable = _usable(e)
    _frame(axes, path, expected, habitual, shape)

    grey = LineCollection(habitual, colors=_PALE, linewidths=1.5, alpha=0.75, label="habitual ways", zorder=1)
    axes.add_collection(grey, autolim=False)
    for number, stretch in enumerate(e.segments, 1):
        inside = _rows(stretch, usable)
        axes.plot(*path[inside].T, color=_ODD, lw=15, alpha=0.22, solid_capstyle="round", zorder=2)
        _number(axes, number, path[inside[len(inside) // 2]], offset=14)
    axes.plot(*path[usable].T, color=_INK, lw=4.6, solid_capstyle="round", solid_joinstyle="round", zorder=3)
    trip = _coloured(path[usable], e.normality[usable], 3.2)
    axes.add_collection(trip, autolim=False)
    # The first expected way is the likeliest; the others show how sure that is.
    for way in expected[1:]:
        axes.plot(*way.T, color=_INK, lw=1.0, ls=(0, (1, 2)), alpha=0.45, zorder=2.5)
    for way in expected[:1]:
        axes.plot(*way.T, color=_INK, lw=2.0, ls=(0, (4, 2.5)), zorder=5, label="expected way")
    if not usable.all():
        axes.plot(*path[~usable].T, "x", color=_GREY, ms=5, zorder=4, label="faulty fixes")
    start, end = path[np.flatnonzero(usable)[[0, -1]]] if usable.any() else path[[0, -1]]
    mark: dict[str, Any] = {"mec": _INK, "mew": 1.6, "ls": "none", "zorder": 7}
    axes.plot(*start, "o", mfc="white", ms=9, label="start", **mark)
    axes.plot(*end, "s", mfc=_INK, ms=8, label="end", **mark)
    stop, minutes = _longest_stop(path[usable], e.time[usable])
    if minutes >= STOOD:
        axes.plot(*stop, "h", mfc="white", ms=11, label=f"stood {minutes:.0f} minutes", **mark)

    shown, _ = axes.get_legend_handles_labels()
    shown = [handle for handle in shown if handle is not grey or habitual]
    halo = [Patch(color=_ODD, alpha=0.3, lw=0, label="not normal")] if e.segments else []
    axes.legend(
        handles=[*shown[:1], *halo, *shown[1:]],
        loc="upper left",
        bbox_to_anchor=(-0.01, -0.005),
        ncols=7,
        fontsize=8.2,
        frameon=False,
        handlelength=1.9,
        columnspacing=1.1,
    )
    _scale_bar(axes)
    return trip


def _frame(axes: Axes, path: Floats, expected: Sequence[Floats], habitual: Sequence[Floats], shape: float) -> None:
    """Show the whole trip, and enough habitual ways beside it to compare with."""
    shown = np.concatenate([path, *expected])
    low, high = shown.min(axis=0), shown.max(axis=0)
    margin = max(0.1 * float((high - low).max()), 0.15)
    past = np.concatenate([np.zeros((0, 2)), *habitual])
    if len(past) and not ((past > low - margin) & (past < high + margin)).all(axis=1).any():
        low, high = np.minimum(low, past.min(axis=0)), np.maximum(high, past.max(axis=0))
    middle, (wide, tall) = (low + high) / 2, high - low + 2 * margin
    half = np.array([max(wide, shape * tall), max(tall, wide / shape)]) / 2
    axes.set(xlim=(middle[0] - half[0], middle[0] + half[0]), ylim=(middle[1] - half[1], middle[1] + half[1]))
    axes.set(xticks=[], yticks=[], facecolor="#fafaf8", aspect="equal")  # kilometres both ways
    axes.autoscale(False)
    axes.spines[:].set_color(_PALE)


def _scale_bar(axes: Axes) -> None:
    """A round length of about a fifth of the map's width, at the lower left."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    wanted = (right - left) / 5
    power = 10.0 ** np.floor(np.log10(wanted))
    length = float(max(n * power for n in (1, 2, 5) if n * power <= wanted))
    x, y = left + 0.03 * (right - left), bottom + 0.04 * (top - bottom)
    axes.plot([x, x + length], [y, y], color=_INK, lw=2.5, solid_capstyle="butt", zorder=6)
    said = f"{length:g} km" if length >= 1 else f"{1000 * length:g} m"
    axes.annotate(said, (x + length / 2, y), (0, 4), textcoords="offset points", ha="center", fontsize=9, zorder=6)
    axes.annotate("N ↑", (0.98, 0.03), xycoords="axes fraction", ha="right", fontsize=10, color=_INK)


def _longest_stop(path: Floats, time: Floats) -> tuple[Floats, float]:
    """Where a trip (kilometres, seconds) stayed longest within 60 metres, and for how many minutes.

    >>> stood = np.array([[0.0, 0.0], [1.0, 0.0], [1.01, 0.0], [2.0, 0.0]])
    >>> _longest_stop(stood, np.array([0.0, 60.0, 660.0, 720.0]))
    (array([1., 0.]), 10.0)
    """
    place, longest = np.zeros(2), 0.0
    for i in range(len(path)):
        away = np.flatnonzero(np.hypot(*(path[i:] - path[i]).T) > 0.06)
        last = i + (int(away[0]) if len(away) else len(path) - i) - 1
        if time[last] - time[i] > longest:
            place, longest = path[i], float(time[last] - time[i])
    return place, longest / 60.0


def _coloured(points: Floats, values: Floats, width: float) -> LineCollection:
    """A line each piece of which has the colour of the lower of its two ends."""
    from matplotlib.collections import LineCollection

    colours, scale = _palette()
    pieces = np.stack([points[:-1], points[1:]], axis=1)
    line = LineCollection(list(pieces), cmap=colours, norm=scale, linewidths=width, capstyle="round", zorder=4)
    line.set_array(np.minimum(values[:-1], values[1:]))
    return line


def _palette() -> tuple[Colormap, Normalize]:
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    places = [((n - LOWEST) / (HIGHEST - LOWEST), colour) for n, colour in _COLOURS]
    return LinearSegmentedColormap.from_list("normality", places), Normalize(LOWEST, HIGHEST)


def _usable(e: Explanation) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(e.normality) & (e.fault == ""))


def _rows(stretch: Stretch, usable: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The usable fixes of a stretch."""
    return stretch.start + np.flatnonzero(usable[stretch.start : stretch.stop])


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
        bbox={"boxstyle": "circle,pad=0.25", "fc": _ODD, "ec": "white", "lw": 1.0},
        zorder=8,
    )


# -------------------------------------------------------------------- in time


def _draw_time(axes: Axes, e: Explanation) -> None:
    from matplotlib.ticker import MaxNLocator

    usable = _usable(e)
    in_minutes = len(e.lat) > 0
    since = (e.time - e.time[0]) / 60.0 if in_minutes else e.time
    bottom = min(LOWEST - 0.3, float(np.nanmin(e.lo, initial=0.0)) - 0.3)
    top = max(HIGHEST + 0.5, float(np.nanmax(e.hi, initial=0.0)) + 0.3)
    leave = max(e.eps, e.eps / 2)  # where a stretch that opened at eps closes again

    for i, stretch in enumerate(e.segments, 1):
        inside = _rows(stretch, usable)
        axes.axvspan(float(since[inside[0]]), float(since[inside[-1]]), color=_ODD, alpha=0.14, lw=0)
        _number(axes, i, np.array([(since[inside[0]] + since[inside[-1]]) / 2, top - 0.09 * (top - bottom)]))
    axes.axhline(e.eps, color=_INK, lw=1.1)
    axes.axhline(leave, color=_INK, lw=0.9, ls=(0, (2, 2)))
    for height, said in ((e.eps, f"opens: {e.eps:g}"), (leave, f"closes: {leave:g}")):
        said = said.replace("-", "\N{MINUS SIGN}")
        axes.annotate(said, (1.005, height), xycoords=("axes fraction", "data"), va="center", fontsize=8.5)
    x, n, lo, hi = (values[usable] for values in (since, e.normality, e.lo, e.hi))
    # Nothing is drawn across a gap: a row that is not a number breaks line and band.
    apart = np.diff(x)
    gaps = np.flatnonzero(apart > 10 * np.median(apart[apart > 0])) + 1 if (apart > 0).any() else np.zeros(0, np.intp)
    bx, bn, blo, bhi = (np.insert(values, gaps, np.nan) for values in (x, n, lo, hi))
    axes.fill_between(bx, blo, bhi, color=_GREY, alpha=0.4, lw=0, label="± 2 spreads over the heads")
    axes.plot(bx, bn, color=_GREY, lw=0.8, zorder=3)
    colours, scale = _palette()
    axes.scatter(x, n, c=n, cmap=colours, norm=scale, s=9, zorder=4, linewidths=0)
    if not usable.all():
        wrong = since[~usable]
        axes.plot(wrong, np.full(len(wrong), bottom + 0.25), "x", color=_GREY, ms=5, label="faulty fixes")
    axes.set(ylim=(bottom, top), xlabel="minutes since the start" if in_minutes else "step", ylabel="normality n(s, a)")
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(9, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.legend(loc="upper right", bbox_to_anchor=(1.01, -0.1), fontsize=8, frameon=False, ncols=2)
    _plain(axes)


def _said(e: Explanation) -> list[str]:
    """The worst stretches in words, in their order, as lines."""
    worst = sorted(range(len(e.segments)), key=lambda i: e.segments[i].normality)[:SAID]
    lines = []
    for i in sorted(worst):
        s = e.segments[i]
        at = f"{s.start_time:.0f}–{s.end_time:.0f}"
        if len(e.lat):
            at = f"{_moment(s.start_time):%H:%M}–{_moment(s.end_time):%H:%M}"
        lines += textwrap.wrap(f"{i + 1}   {at}  {s.words}", 112, subsequent_indent="      ")
    return lines


# -------------------------------------------------------------------- learning and scores


def history_figure(history: pl.DataFrame) -> Figure:
    """What learning did, measure by measure, one small picture each.

    Parameters
    ----------
    history
        A detector's ``history_``: one row an iteration. Measures that it does not have are left out.
    """
    shown = [(name, title) for name, title in _MEASURES if name in history.columns and history[name].count()]
    if not shown:
        raise DataError(f"the history has none of {', '.join(name for name, _ in _MEASURES)}; give a fitted history_")
    columns = min(len(shown), 4)
    rows = -(-len(shown) // columns)
    figure = _figure(3.0 * columns, 2.2 * rows + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    iteration = np.arange(1, history.height + 1)
    for axes, (name, title) in zip(panels, shown, strict=False):
        values = history[name].cast(pl.Float64).to_numpy()
        axes.plot(iteration, values, color=_NORMAL, lw=1.8, marker="o", ms=2.5)
        axes.set_title(title, loc="left", fontsize=9)
        if name == "held_out_score" and np.isfinite(values).any():
            best = int(np.nanargmax(values))
            axes.plot(iteration[best], values[best], "o", color=_ODD, ms=6)
            axes.annotate("best", (iteration[best], values[best]), (0, 7), textcoords="offset points", ha="center")
            axes.margins(y=0.15)
        _plain(axes)
    for axes in panels[len(shown) :]:
        axes.remove()
    for axes in panels[max(0, len(shown) - columns) : len(shown)]:
        axes.set_xlabel("iteration", fontsize=9)
        axes.tick_params(labelbottom=True)
    figure.suptitle("What learning did", x=0.02, ha="left", fontsize=13, fontweight="bold")
    return figure


def scores_figure(
    scores: ArrayLike, labels: Sequence[str] | Array | None = None, eps: float = -2.0, *, name: str = "normality N(τ)"
) -> Figure:
    """How scores are distributed, and where the threshold lies.

    Parameters
    ----------
    scores
        One a trip; those that are not a number are left out.
    labels
        What each trip is known to be; an empty text is normal. Each label gets a row of dots.
    eps
        Scores of at most this are anomalies.
    name
        What the scores are.
    """
    values = np.asarray(scores, np.float64)
    kinds = np.full(len(values), "") if labels is None else np.asarray(labels, dtype=np.str_)
    if values.ndim != 1 or kinds.shape != values.shape:
        raise DataError(f"{kinds.shape} labels for {values.shape} scores; give one of each a trip")
    known = np.isfinite(values)
    values, kinds = values[known], kinds[known]
    if not len(values):
        raise DataError("no score is a number, so there is nothing to draw; give scores of trips with usable fixes")
    normal = kinds == ""
    names = ["", *sorted(set(kinds[~normal].tolist()))] if labels is not None else []
    figure = _figure(8.0, 3.4 + 0.27 * len(names))
    if names:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3.0, 0.35 * len(names)))
    else:
        above = below = figure.subplots()
    low, high = min(float(values.min()), eps) - 0.2, float(values.max()) + 0.2
    # A bin ends at the threshold, so that no bar is half below it.
    bins = eps + 0.25 * np.arange(np.floor((low - eps) / 0.25), np.ceil((high - eps) / 0.25) + 1)
    parts = [values[normal], values[~normal]] if names else [values]
    said = [f"normal ({normal.sum()})", f"anomalous ({(~normal).sum()})"] if names else ["trips"]
    above.hist(
        parts, bins=list(bins), stacked=True, color=[_NORMAL, _ODD][: len(parts)], label=said, ec="white", lw=0.6
    )
    above.set_ylabel("trips")
    above.yaxis.get_major_locator().set_params(integer=True)
    for axes in {above, below}:
        axes.axvline(eps, color=_INK, lw=1.2)
        _plain(axes)
    threshold = f"threshold {eps:g}: {(values <= eps).sum()} of {len(values)} trips at or under it"
    above.annotate(
        threshold.replace("-", "\N{MINUS SIGN}"),
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
            below.scatter(x, np.full(len(x), row), s=26, color=_ODD if kind else _NORMAL, alpha=0.7, linewidths=0)
        below.set_yticks(range(len(names)), [kind or "normal" for kind in names])
        below.set_ylim(len(names) - 0.4, -0.6)
    below.set_xlabel(name)
    figure.suptitle("How the trips score", x=0.02, ha="left", fontsize=13, fontweight="bold")
    return figure


# -------------------------------------------------------------------- canvas and files


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a PNG or SVG file, by the name's extension; whole or not at all.

    The same figure gives the same bytes. The text of an SVG file stays text.
    """
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise DataError(f"{target}: pictures are written as {' or '.join(FORMATS)}; give a name that ends so")
    if not target.parent.is_dir():
        raise DataError(f"{target}: there is no folder {target.parent}; make it first")
    options: dict[str, Any] = {"format": "svg", "metadata": {"Date": None}}
    if target.suffix.lower() == ".png":
        options = {"format": "png", "metadata": {"Software": None}, "pil_kwargs": {"optimize": True}, "dpi": 100}
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "astray"}), replacing(target) as file:
        figure.savefig(file, facecolor="white", **options)


def _figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """A figure of its own, in inches: no window, no state shared with others."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise AstrayError("pictures need matplotlib, which is not installed; pip install matplotlib") from error
    return Figure(figsize=(width, height), layout=layout, facecolor="white")


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_GREY)
    axes.tick_params(labelsize=8.5, color=_GREY)
    axes.grid(axis="y", color="#eeeeee", lw=0.8)
    axes.set_axisbelow(True)
