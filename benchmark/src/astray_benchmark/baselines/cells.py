"""Baselines that see trips as sequences of cells: they count the trips in each cell, and which cell follows which.

The cells are those of one grid over the earth. A trip's sequence has one entry for each time that it enters a cell,
however long it stays there. Between two points a trip is assumed to follow the straight line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.projection import Projection
from astray.core.trajectories import Trajectories
from astray.features.featurizer import Featurizer
from astray.features.grid import cells
from astray.features.paths import resample, trace
from astray.features.steps import Steps
from astray_benchmark.array_types import Array
from astray_benchmark.baselines.baseline import Baseline, Rows

Keys = NDArray[np.int64]

A_CELL = 3.0  # points are interpolated so that a trip that crosses a whole cell has at least this number in it
NOWHERE = -1  # stands for the cell before the first one of a path


def cell_keys(projection: Projection, places: Array, size: float) -> Keys:
    """Returns the number of the cell of each place in metres; the numbers are unique on earth."""
    row, column = cells(projection.to_grid(places), size, 0.0)
    return np.asarray((row.astype(np.int64) << 32) + column.astype(np.int64))


def look_up(keys: Keys, values: Array, wanted: Array) -> Array:
    """Returns the values of ``wanted`` keys; 0 where a key is unknown. ``keys`` are sorted."""
    if not len(keys):
        return np.zeros(len(wanted), values.dtype)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], values.dtype.type(0))


def joined(*keys: Array) -> Keys:
    """Hashes each row of keys to one number; two rows collide with a probability of about 10^-19."""
    found = np.zeros(len(keys[0]), np.uint64)
    for key in keys:
        found = (found ^ key.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(29)
    return found.view(np.int64)


class Counts(NamedTuple):
    """The number of times that each key occurred."""

    keys: Keys
    counts: NDArray[np.float64]

    @classmethod
    def of(cls, keys: Array) -> Counts:
        """Counts how often each key occurs.

        >>> Counts.of(np.array([7, 7, 9]))(np.array([9, 8, 7])).tolist()
        [1.0, 0.0, 2.0]
        """
        found, counts = np.unique(keys, return_counts=True)
        return cls(found, counts.astype(np.float64))

    def __call__(self, keys: Array) -> NDArray[np.float64]:
        """Returns the count of each of these keys."""
        return look_up(self.keys, self.counts, keys)


class Sequence(NamedTuple):
    """Cells, each with the two cells before it on its path, or :data:`NOWHERE`."""

    cell: Keys
    last: Keys
    before: Keys

    @classmethod
    def of(cls, cell: Keys, path: Array) -> Sequence:
        """Returns the sequences of several paths, one after the other.

        >>> Sequence.of(np.array([4, 5, 6, 7]), np.array([0, 0, 0, 1])).before.tolist()
        [-1, -1, 4, -1]
        """
        at = np.arange(len(cell)) - np.searchsorted(path, path)  # in its path
        earlier = [np.where(at >= lag, np.roll(cell, lag), NOWHERE) for lag in (1, 2)]
        return cls(cell, *earlier)


@dataclass(frozen=True, eq=False)
class Trigram:
    """A model of the probability of each cell after the two cells before it.

    If these two are rare, the model backs off to one cell before, and then to none, by the rule of Witten and Bell
    (1991): the more different cells have followed, the more probable is a new one. At last it backs off to equal
    probabilities, or to the model ``beyond``.

    Examples
    --------
    >>> model = Trigram.of(Sequence.of(np.array([1, 2, 3, 1, 2, 3, 1, 2, 4]), np.repeat([0, 1, 2], 3)))
    >>> after = Sequence.of(np.array([1, 2, 3, 1, 2, 4]), np.repeat([0, 1], 3))
    >>> np.exp(model.log_probability(after)).round(2).tolist()
    [0.96, 0.96, 0.59, 0.96, 0.96, 0.3]
    """

    grams: tuple[Counts, Counts, Counts]  # cells; cells after one; after two
    contexts: tuple[Counts, Counts, Counts]  # how many cells followed no, one or two given cells
    followers: tuple[Counts, Counts, Counts]  # how many different cells followed
    beyond: Trigram | None = None

    @classmethod
    def of(cls, met: Sequence, beyond: Trigram | None = None) -> Trigram:
        """Counts which cell followed which."""
        grams, contexts, followers = [], [], []
        for context in _contexts(met):
            gram = joined(context, met.cell)
            _, first = np.unique(gram, return_index=True)
            grams.append(Counts.of(gram))
            contexts.append(Counts.of(context))
            followers.append(Counts.of(context[first]))
        return cls((*grams,), (*contexts,), (*followers,), beyond)  # type: ignore[arg-type]

    def log_probability(self, met: Sequence, order: int = 3) -> NDArray[np.float64]:
        """Returns each cell's log probability given two cells before it (order 3), one (order 2), or none (order 1)."""
        if self.beyond is None:
            probability = np.full(len(met.cell), 1.0 / (len(self.grams[0].keys) + 1.0))
        else:
            probability = np.exp(self.beyond.log_probability(met, 1))
        for n, context in enumerate(_contexts(met)[:order]):
            total, different = self.contexts[n](context), self.followers[n](context)
            seen = self.grams[n](joined(context, met.cell))
            known = total > 0
            mixed = (seen + different * probability) / np.where(known, total + different, 1.0)
            probability = np.where(known, mixed, probability)
        return np.asarray(np.log(probability))


def _contexts(met: Sequence) -> tuple[Keys, Keys, Keys]:
    return np.zeros_like(met.cell), joined(met.last), joined(met.last, met.before)


def entered(
    featurizer: Featurizer, fixes: Trajectories, interval: float, cell: float
) -> tuple[Steps, NDArray[np.int64]]:
    """Returns the steps that enter a cell, and the path of each; the first step of a path always counts as such.

    Trips are resampled to ``interval`` seconds.
    """
    paths = trace(resample(featurizer.paths(fixes), interval), cell / A_CELL)
    kept = np.ones(paths.n_rows, np.bool_)
    kept[paths.offsets[:-1]] = False
    path = paths.trajectory_of_row[kept]
    key = cell_keys(featurizer.projection, paths.columns["xy"][kept], cell)
    kept[kept] = np.r_[True, (np.diff(key) != 0) | (np.diff(path) != 0)][: len(key)]
    return featurizer.steps(paths)[kept], paths.trajectory_of_row[kept]


@dataclass(eq=False)
class CellDetector(Baseline):
    """A baseline that sees only the cells that a trip enters.

    Parameters
    ----------
    cell
        The size of a cell in metres.
    """

    interval: float = 15.0
    cell: float = 150.0

    def _moves(self, featurizer: Featurizer, fixes: Trajectories) -> tuple[Steps, NDArray[np.int64]]:
        return entered(featurizer, fixes, self.interval, self.cell)

    def cells(self, rows: Rows) -> Keys:
        """Returns the cell of each row."""
        return cell_keys(rows.around, rows.steps.location, self.cell)

    def sequence(self, rows: Rows) -> Sequence:
        """Returns the sequences of all paths, one after the other."""
        return Sequence.of(self.cells(rows), rows.path)


@dataclass(eq=False)
class CellCounts(CellDetector):
    """Scores a trip by the mean, over its cells, of the logarithm of the number of trips through each."""

    counts_: Counts = field(init=False, repr=False)

    name: ClassVar[str] = "cell counts"

    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        cell = self.cells(rows)
        _, once = np.unique(joined(cell, rows.steps.trip), return_index=True)
        self.counts_ = Counts.of(cell[once])

    def _anomaly(self, rows: Rows) -> Array:
        return -np.log1p(self.counts_(self.cells(rows)))


@dataclass(eq=False)
class CellTrigram(CellDetector):
    """Scores each cell of a trip by its improbability after the two before it (:class:`Trigram`)."""

    model_: Trigram = field(init=False, repr=False)

    name: ClassVar[str] = "cell trigram"

    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        self.model_ = Trigram.of(self.sequence(rows))

    def _anomaly(self, rows: Rows) -> Array:
        return -self.model_.log_probability(self.sequence(rows))


@dataclass(eq=False)
class TripLength(Baseline):
    """Scores a trip by its length relative to the median, on a logarithmic scale: the longer, the more anomalous.

    All steps of a trip have the same anomaly.
    """

    interval: float = 15.0
    usual_: float = field(default=0.0, init=False, repr=False)

    name: ClassVar[str] = "length"

    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        lengths = self._lengths(rows)
        self.usual_ = float(np.median(lengths[np.unique(rows.steps.trip)]))

    def _anomaly(self, rows: Rows) -> Array:
        return (self._lengths(rows) - self.usual_)[rows.steps.trip]

    def _lengths(self, rows: Rows) -> NDArray[np.float64]:
        """Returns the logarithm of each trip's length plus a metre, which is finite for a length of 0."""
        here = rows.steps.location
        begins = np.diff(rows.path, prepend=-1) != 0
        came_from = np.where(begins[:, None], rows.steps.origin, np.roll(here, 1, axis=0))
        return np.log1p(np.bincount(rows.steps.trip, np.hypot(*(here - came_from).T)))
