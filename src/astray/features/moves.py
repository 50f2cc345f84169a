"""Moves: the way of a trip over cells of 150 m, as moves of a chess king, and how unexpected they are.

What an agent does next depends on the cell where it is and on the move that took it there. The probability of a move
backs off (Witten and Bell 1991): from what this agent did here after the same move, to what it did here at all, to what
other agents did here, to all eight moves alike. Counts are numbers of trips and of agents, as everywhere in a memory.

An agent that heads for a goal also prefers moves towards it. In a linearly solvable decision process (Todorov 2007)
with these probabilities as its passive dynamics and a cost of c for each cell of way, the maximum-entropy policy is
p(move) exp(-c length) z(next cell), up to a constant. Over open ground z is exp(-c distance to the goal), which needs
no solving: the policy is p(move) exp(c (progress - length)). The greater c, the more direct the agent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.projection import METRES_A_DEGREE
from astray.features.familiarity import Frame
from astray.features.hashing import changes, mix
from astray.features.memory import Memory
from astray.features.popularity import Popularity
from astray.features.steps import Steps

Array = NDArray[Any]
Keys = NDArray[np.uint64]
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

SIZE = 150.0  # metres: the cells
MARGIN = 20.0  # metres: a point nearer to the edge of its cell does not show that the trip went there
SPACING = SIZE / 3  # metres, at most, between the points of a trip that are looked at
BAND = 0.5  # degrees of latitude over which cells are aligned; between two bands a way begins anew
FARTHEST = 1000  # cells; a longer move is a gap, or crosses the antimeridian

MOVES = np.array([(1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1)])  # rows and columns: N, NE, ...
NONE = len(MOVES)  # stands for the move before the first one
ALIKE = 1.0 / len(MOVES)  # the probability of a move where nothing is known
CONTEXTS = 2  # the cell alone; the cell and the move before
DIRECTNESS = 0.5
"""The cost c of a cell of way. The past trips of real people are most likely with about .5 (eight GeoLife users outside
the benchmark), those of simulated people with about 1.5."""
LEAST_VARIANCE = 4.0  # added to the variance of a trip's surprise, so that a few moves do not deviate much

_HERE = np.zeros((1, 2), np.int64)
_LENGTHS = np.hypot(*MOVES.T).astype(np.float32)
_NUMBER = np.full((3, 3), NONE)
_NUMBER[MOVES[:, 0], MOVES[:, 1]] = np.arange(len(MOVES))  # -1 takes the last row or column
_SALTS = np.array([0x6D6F7665 + context for context in range(CONTEXTS)], np.uint64)
_WORDS = np.arange(len(MOVES), dtype=np.uint64)


class Moves(NamedTuple):
    """The moves of trips, trip by trip."""

    trip: Ints
    band: Doubles  # of latitude
    cell: Ints  # (moves, 2): where the move began, as row and column
    last: Ints  # the number of the move before; NONE for the first of a way
    move: Ints  # its number in MOVES


class _Points(NamedTuple):
    """Points of ways, each in its cell."""

    at: Ints  # (2, points)
    band: Doubles
    begins: NDArray[np.bool_]  # True for the first point of a way
    row: Ints  # the row of steps that the point belongs to


def moves_of(steps: Steps, frame: Frame) -> Moves:
    """Returns the moves of trips.

    >>> from astray.features.paths import make_paths
    >>> from astray.features.steps import steps_of
    >>> east = 75.0 + np.column_stack([np.arange(5) * 150.0, np.zeros(5)])
    >>> paths = make_paths(np.arange(5) * 60.0, east, np.array([0, 5]))
    >>> moves = moves_of(steps_of(paths, 15.0), Frame())
    >>> moves.move.tolist(), moves.last.tolist()
    ([2, 2, 2, 2], [8, 2, 2, 2])
    """
    location = steps.location.T
    before = location[:, np.maximum(np.arange(len(steps)) - 1, 0)]
    return _between(_points(location, before, steps.first, frame), steps.trip)


def _points(location: Array, before: Array, first: Array, frame: Frame) -> _Points:
    """Returns the points on the way to each location, (2, n), that show in which cell the agent was."""
    apart = location - before
    distance = np.where(first, 0.0, np.hypot(*apart))
    parts = np.clip(np.ceil(distance / SPACING), 1, FARTHEST).astype(np.int64)
    row = np.repeat(np.arange(len(parts)), parts)
    left = (np.cumsum(parts)[row] - 1 - np.arange(len(row))) / parts[row]  # the share of the way still to go
    left[first[row]] = 0.0
    x, y = frame.projection.to_grid((location[:, row] - left * apart[:, row]).T)
    band = np.floor(y / METRES_A_DEGREE / BAND + 0.5)
    places = in_cells(x, y, band)
    at = np.floor(places)
    shows = np.abs(places - at - 0.5).max(axis=0, initial=0.0) <= 0.5 - MARGIN / SIZE
    kept = np.flatnonzero(shows | first[row])
    return _Points(at[:, kept].astype(np.int64), band[kept], first[row[kept]], row[kept])


def in_cells(x: Array, y: Array, band: Array) -> Doubles:
    """Returns places on the grid of the earth in cells of a band of latitude: (2, n), rows and columns."""
    return np.stack([y, x * np.cos(np.radians(band * BAND))]) / SIZE


def _between(points: _Points, trip: Array) -> Moves:
    """Returns the moves of a king from point to point."""
    apart = np.diff(points.at, axis=1, prepend=points.at[:, :1])
    begins = points.begins | changes(points.band) | (np.abs(apart).max(axis=0, initial=0) > FARTHEST)
    apart[:, begins] = 0
    n = np.abs(apart).max(axis=0, initial=0)
    to = np.repeat(np.arange(len(n)), n)
    place = np.arange(len(to)) - np.repeat(np.cumsum(n) - n, n)
    whole = apart[:, to]
    done, after = (np.sign(whole) * np.minimum(place + k, np.abs(whole)) for k in (0, 1))
    move = _NUMBER[tuple(after - done)]
    last = np.where(changes(np.cumsum(begins)[to]), NONE, np.roll(move, 1))
    return Moves(trip[points.row[to]], points.band[to], (points.at[:, to] - whole + done).T, last, move)


# -------------------------------------------------------------------- counting


def _contexts(moves: Moves) -> Keys:
    """Returns the words of the contexts of moves: (moves, contexts)."""
    row, column = moves.cell.T.view(np.uint64)
    cell = mix(mix(row, column), moves.band.astype(np.int64).view(np.uint64))
    return np.stack([mix(_SALTS[0], cell), mix(mix(_SALTS[1], cell), moves.last.view(np.uint64))], axis=1)


def remembered(moves: Moves) -> Keys:
    """Returns the keys by which a memory counts moves: (moves, contexts)."""
    return mix(_contexts(moves), moves.move.view(np.uint64)[:, None])


def looked_up(moves: Moves) -> Keys:
    """Returns the keys of all eight moves that were possible: (moves, contexts, 8)."""
    return mix(_contexts(moves)[:, :, None], _WORDS)


def probabilities(counts: Array, beyond: Array | float = ALIKE) -> Floats:
    """Returns the probability of each of the eight moves: (moves, 8).

    ``counts`` are (moves, contexts, 8), the context that says least first. A context with n counts of d different moves
    takes the share n / (n + d) of the probability, and leaves the rest to the context before; the first one leaves it
    to ``beyond`` (Witten and Bell 1991).

    >>> probabilities(np.eye(8, dtype=np.float32)[None, :1])[0, :2].tolist()
    [0.5625, 0.0625]
    """
    found = np.broadcast_to(np.float32(beyond), (len(counts), len(MOVES)))
    total, kinds = counts.sum(axis=2), np.count_nonzero(counts, axis=2).astype(np.float32)
    for context in range(counts.shape[1]):
        # Where nothing was counted, d / (n + d) is 1.
        d, all_counts = kinds[:, context], total[:, context] + kinds[:, context]
        none = all_counts == 0
        share = 1.0 / (all_counts + none)
        found = counts[:, context] * share[:, None] + found * ((d + none) * share)[:, None]
    return found


def expect(
    moves: Moves,
    memory: Memory,
    popularity: Popularity,
    without: Array | None = None,
    maker: Array | None = None,
    before: Array | None = None,
) -> Floats:
    """Returns what was expected instead of each move: the probabilities of all eight, (moves, 8).

    ``without``, ``maker`` and ``before`` are those of :meth:`~astray.features.featurizer.Featurizer.measure`, one for
    each move.
    """
    keys = looked_up(moves)
    if before is None:
        counts = memory.counts(keys, None if without is None else without[:, None, None])
    else:
        each = keys[0].size if len(keys) else 1
        counts = memory.earlier_counts(keys.ravel(), np.repeat(before, each)).reshape(keys.shape)
    return probabilities(counts, probabilities(popularity.counts(keys, maker)))


def deviation(moves: Moves, p: Floats, n_trips: int, goals: Array) -> Floats:
    """Returns by how many standard deviations the surprise of trips exceeds what was expected: (trips,).

    The surprise of a move is -log of its probability under the policy that heads for the trip's goal, given what was
    expected of the agent, ``p``. ``goals`` are the places where trips end on the grid of the earth, (2, trips). It is 0
    for a trip without moves.
    """
    found = np.zeros(n_trips, np.float32)
    if not len(moves.trip):
        return found
    towards = _progress(moves, goals[:, moves.trip]) - _LENGTHS
    excess, variance = _surprise(np.log(p) + np.float32(DIRECTNESS) * towards, moves.move)
    starts = np.flatnonzero(changes(moves.trip))
    spread = np.sqrt(np.add.reduceat(variance, starts, dtype=np.float64) + LEAST_VARIANCE)
    found[moves.trip[starts]] = np.add.reduceat(excess, starts, dtype=np.float64) / spread
    return found


def _progress(moves: Moves, goals: Array) -> Floats:
    """Returns by how many cells each of the eight moves comes nearer to the goal: (moves, 8)."""
    away = moves.cell + 0.5 - in_cells(goals[0], goals[1], moves.band).T
    left = [np.sqrt(np.square(away[:, :1] + of[:, 0]) + np.square(away[:, 1:] + of[:, 1])) for of in (_HERE, MOVES)]
    return np.asarray(left[0] - left[1], np.float32)


def _surprise(log: Floats, move: Array) -> tuple[Floats, Floats]:
    """Returns -log p of each move less its expectation, and its variance; ``log`` is log p up to a constant."""
    log = log - log.max(axis=1, keepdims=True)
    p = np.exp(log)
    p /= p.sum(axis=1, keepdims=True)
    weighed = p * log
    mean = weighed.sum(axis=1)
    variance = (weighed * log).sum(axis=1) - mean * mean
    return mean - log[np.arange(len(log)), move], np.maximum(variance, 0.0)
