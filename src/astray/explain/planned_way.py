"""Plans the way that was expected of a trip, given where it ended, and measures how long a detour the trip was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.projection import METRES_A_DEGREE
from astray.explain.expected_route import Way
from astray.features.featurizer import Featurizer
from astray.features.moves import BAND, FARTHEST, MOVES, NONE, SIZE, Moves, in_cells, moves_of
from astray.features.steps import Steps
from astray.features.trip_rows import TripRows
from astray.irl.cell_graph import Window, cell_graph
from astray.irl.planning import cost_of, hard_values, planned, regrets, states_on

Array = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

C = 0.25
"""The cost of a cell of way. The greater it is, the sooner a plan leaves the known ways to cut across. Past trips keep
closest to the ways that are planned with .1 to .5 (twenty GeoLife users outside the benchmark, simulated people)."""
MARGIN = 8  # cells around a trip, at least, in which ways are planned
MARGIN_SHARE = 0.25  # of the longer side of the rectangle around the trip, if that is more
MOST_CELLS = 10_000  # of the window, such as 15 by 15 km: more would take longer than a tenth of a second
LEAST_REGRET = 5.0  # nats: a trip that is nearly as probable as the plan may well have been expected
LEFT = 0.1  # the share of a trip's regret with which it counts as having left the planned way
KNOWN = 0.5  # the least share of moves that somebody made: on unknown ground a plan knows no streets. And the least
# share that the agent made itself, for which words say how much longer the trip was
STAY = 900.0  # seconds within a cell's size after which a trip has reached a goal, and goes on to another one
DETOUR, DETOUR_SHARE = 500.0, 0.2  # metres, and a share of the planned way, by which a detour is longer
ROUNDING = 1e-6  # nats
PLACES_A_CELL = 3  # of habitual ways that are looked at


class PlannedWay(NamedTuple):
    """The planned way to where a trip ended, from where the trip left it."""

    lat: Floats
    lon: Floats
    regret: float  # nats by which the trip is less probable than the planned way from its start
    taken: float  # metres of the trip, along the cells
    planned: float  # metres of the planned way from its start, along the cells; on unknown ground along a square grid
    is_own: bool  # True if the agent knows the planned way, and not only others

    @property
    def longer(self) -> float:
        """Returns by how many metres the trip is a detour from the agent's own ways; 0 if it is hardly one."""
        longer = self.taken - self.planned
        return longer if self.is_own and longer >= max(DETOUR, DETOUR_SHARE * self.planned) else 0.0


def planned_way(
    rows: TripRows, featurizer: Featurizer, habitual: Sequence[Way] = (), number: int = -1, maker: int = -1
) -> PlannedWay | None:
    """Returns the way that was expected of one finished trip, given where it ended; None if there is none.

    It is the most probable way between the trip's ends by the memory and the popularity of the ``featurizer``, without
    the trip itself (``number`` in the memory) and its agent (``maker`` in the popularity); -1 for none. Of a trip with
    gaps or long stays it is that of the part with most moves. There is none if the trip kept to it or is nearly as
    probable, if the trip was an excursion, which went farther away than to where it ended, if the planned way leads
    over unknown ground, or if the window around the trip is too large.

    The line runs from where the trip left the planned way to where it came back for good. Where ``habitual`` ways pass
    through a cell of the planned way, it runs along them.
    """
    moves = _longest_part(rows)
    if not len(moves.move):
        return None
    cells = np.concatenate([moves.cell, moves.cell[-1:] + MOVES[moves.move[-1]]])
    extent = int(np.ptp(cells, axis=0).max())
    window = Window.around(cells, float(moves.band[0]), max(MARGIN, round(MARGIN_SHARE * extent)))
    if (cells[0] == cells[-1]).all() or len(window) > MOST_CELLS:
        return None
    world = cell_graph(window, featurizer.memory, featurizer.popularity, number, maker)
    cost, after, goal = world.graph.cost(C), world.graph.after, world.goal(cells[-1])
    start = world.start(cells[0], int(moves.last[0]))
    # From no state of the trip does the planned way cost more than the trip did.
    most = cost_of(cost, after, start, moves.move) + ROUNDING
    values = hard_values(cost, after, goal, most)
    so_far = np.append(0.0, np.cumsum(regrets(cost, after, values, start, moves.move)))
    whole = planned(cost, after, values, start)
    if so_far[-1] < LEAST_REGRET or np.hypot(*(cells - cells[0]).T).max() > world.graph.length[whole].sum():
        return None
    left = int(np.flatnonzero(so_far <= LEFT * so_far[-1])[-1])
    best = planned(cost, after, values, int(states_on(after, start, moves.move)[left]))
    way = world.cells_on(cells[left], best)
    apart = np.abs(way[:, None] - cells[None]).max(axis=2).min(axis=1)
    if apart.max() <= 1:
        return None
    elsewhere = int(np.flatnonzero(apart > 1)[-1])
    back = elsewhere + int((apart[elsewhere:] == 0).argmax())  # the plan ends where the trip ended, so it comes back
    way = way[: back + 1]
    shown = world.window.number(way[:-1]), best[:back]
    if world.made_by_any[shown].mean() < KNOWN:
        return None
    known = world.made_by_any[world.window.number(world.cells_on(cells[0], whole)[:-1]), whole]
    length = np.where(known, world.graph.length[whole], np.abs(MOVES[whole]).sum(axis=1)).sum()
    x, y = rows.frame.projection.to_grid(rows.steps.location)
    track = _dense(in_cells(x, y, np.array(window.band)).T)
    lat, lon = _drawn(way, track, window, habitual)
    taken = SIZE * float(world.graph.length[moves.move].sum())
    is_own = bool(world.made[shown].mean() >= KNOWN)
    return PlannedWay(lat, lon, float(so_far[-1]), taken, SIZE * float(length), is_own)


def _longest_part(rows: TripRows) -> Moves:
    """Returns the moves of the longest part without a gap and without a long stay, in one band of latitude."""
    steps, moves = rows.steps, rows.moves
    ends = _ends_of_stays(steps)
    if ends:
        first = steps.first.copy()
        first[ends] = True
        moves = moves_of(replace(steps, first=first), rows.frame)
    part = np.cumsum(moves.last == NONE)
    return Moves(*(column[part == np.bincount(part, minlength=1).argmax()] for column in moves))


def _ends_of_stays(steps: Steps) -> list[int]:
    """Returns the last row of each stay: the agent was no farther than a cell from where it came to for long."""
    found, came = [], 0
    places, times = steps.location.tolist(), steps.time.tolist()
    for i in range(1, len(times)):
        if math.dist(places[i], places[came]) > SIZE:
            if times[i - 1] - times[came] >= STAY:
                found.append(i - 1)
            came = i
    return found


def _drawn(way: Ints, track: Floats, window: Window, habitual: Sequence[Way]) -> Way:
    """Returns a way over cells in degrees, from the track and back to it, both (n, 2) in cells.

    Between its ends it goes through the middles of the habitual ways in each cell, or else through that of the cell.
    """
    places = way + 0.5
    band = np.array(window.band)
    known = [_dense(in_cells(lon * METRES_A_DEGREE, lat * METRES_A_DEGREE, band).T) for lat, lon in habitual]
    among = np.concatenate([np.zeros((0, 2)), *known])
    number, of_place = window.number(way), window.number(np.floor(among).astype(np.int64))
    for i in np.flatnonzero(np.isin(number, of_place)):
        places[i] = np.median(among[of_place == number[i]], axis=0)
    for end in (0, -1):
        places[end] = track[np.square(track - places[end]).sum(axis=1).argmin()]
    north, east = SIZE / METRES_A_DEGREE * places.T
    return north, east / np.cos(np.radians(band * BAND))


def _dense(places: Floats) -> Floats:
    """Returns places along a way, a third of a cell apart at most, from its places in cells: (n, 2)."""
    far = np.abs(np.diff(places, axis=0)).max(axis=1, initial=0.0)
    parts = np.where(far < FARTHEST, np.maximum(np.ceil(PLACES_A_CELL * far), 1), 1).astype(np.int64)
    piece = np.repeat(np.arange(len(parts)), parts)
    share = (np.arange(len(piece)) - np.repeat(np.cumsum(parts) - parts, parts)) / parts[piece]
    return np.append(places[piece] + share[:, None] * (places[piece + 1] - places[piece]), places[-1:], axis=0)
