"""Draws all trips on one small map, as a picture or as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.projection import middle_longitude
from astray.core.text import drawn, number_of, shortened
from astray.core.trajectories import Trajectories
from astray.plots.style import GREY, canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 200_000
"""The most fixes to draw; if there are more, only every second, third, ... is drawn."""

NAMED = 8
"""The most agents that get their own colour and name."""

SHADES = " .:*#"
ASPECT = 2.0
"""Height of a letter divided by its width."""


def fixes_figure(trips: Trajectories) -> Figure:
    """Draws the trips on a map, one colour per agent."""
    if not trips.holds("time", "lat", "lon") or not trips.n_rows:
        raise DataError("there are no fixes to draw", remedy="give trips with time, lat and lon")
    figure = canvas(6.0, 6.0)
    axes = figure.add_subplot()
    lat, lon = trips.columns["lat"], trips.columns["lon"]
    east, agents = centred(lon), trips.agents
    colours = {agent: f"C{i}" for i, agent in enumerate(agents[:NAMED])}
    step = max(1, trips.n_rows // MOST_ROWS)
    for i, agent in enumerate(trips.agent_ids.tolist()):
        rows = slice(int(trips.offsets[i]), int(trips.offsets[i + 1]), step)
        axes.plot(east[rows], lat[rows], color=colours.get(agent, GREY), lw=0.7, marker=".", ms=1.5, alpha=0.7)
    axes.set_aspect(1.0 / max(float(np.cos(np.radians(np.median(lat)))), 0.01), adjustable="datalim")
    axes.set_xlabel("longitude", fontsize=9)
    axes.set_ylabel("latitude", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.ticklabel_format(useOffset=False)
    for agent, colour in colours.items():
        axes.plot([], [], color=colour, label=drawn(shortened(agent)))
    if len(agents) > NAMED:
        axes.plot([], [], color=GREY, label=f"{len(agents) - NAMED:,} more")
    axes.legend(fontsize=8, frameon=False)
    axes.set_title(f"{number_of(len(trips), 'trip')} of {number_of(len(agents), 'agent')}", loc="left", fontsize=11)
    return figure


def centred(lon: NDArray[Any]) -> NDArray[np.float64]:
    """Returns longitudes around their middle on the circle, so that they do not jump at the antimeridian.

    >>> centred(np.array([179.5, -179.5])).tolist()
    [179.5, 180.5]
    """
    middle = middle_longitude(lon)
    return np.asarray((lon - middle + 180.0) % 360.0 - 180.0 + middle, np.float64)


def text_map(lat: NDArray[Any], lon: NDArray[Any], width: int = 60, height: int = 20) -> list[str]:
    """Draws a map in lines of letters, north up: the more fixes in a cell, the darker.

    >>> text_map(np.array([0.0, 1.0]), np.array([0.0, 1.0]), width=6, height=3)
    ['    .', '', '.']
    """
    x, y = centred(lon) * np.cos(np.radians(np.median(lat))), np.asarray(lat, np.float64)
    span = max(np.ptp(x) / (width - 1), np.ptp(y) / (height - 1) / ASPECT, 1e-9)
    columns = np.rint((x - x.min()) / span).astype(np.int64)
    rows = np.rint((y.max() - y) / (span * ASPECT)).astype(np.int64)
    counts = np.zeros((int(rows.max()) + 1, int(columns.max()) + 1), np.int64)
    np.add.at(counts, (rows, columns), 1)
    shade = np.zeros_like(counts)
    some = counts > 0
    share = np.log1p(counts[some]) / np.log1p(counts.max()) if counts.max() > 1 else np.zeros(int(some.sum()))
    shade[some] = 1 + np.minimum((share * (len(SHADES) - 1)).astype(np.int64), len(SHADES) - 2)
    return ["".join(SHADES[s] for s in row).rstrip() for row in shade.tolist()]
