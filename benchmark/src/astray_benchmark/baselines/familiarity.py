"""A logistic regression on statistics of whole trips: their familiarity to the person and popularity with others.

Like the shared reward of astray, it learns from many people, each with a separate memory, to distinguish a person's own
trips from foreign ones. It also learns from the tested person.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray_benchmark.array_types import Array, Floats, Ints
from astray_benchmark.baselines.baseline import Rows, Scaling
from astray_benchmark.baselines.cells import Counts, Keys, cell_keys, joined
from astray_benchmark.baselines.comparisons import Comparison, Crowd
from astray_benchmark.libraries import library

WIDE, PLACE = 1000.0, 500.0  # metres: sizes of the cells for districts, and for the starts and ends of trips
DAY, AN_HOUR = 86_400.0, 3600.0
LEAST_TRIPS = 10  # agents with fewer trips are not learned from
MOST_TRIPS = 300  # the most trips in a memory
SHOWN = 60  # own trips, and as many foreign ones, to learn from for each agent and memory
SHORTEST = 4  # trips in a short memory
MINE = 400  # own trips, and as many foreign ones, to learn from for the tested person

STATISTICS = (
    "mean familiarity of cells",
    "familiarity of the least familiar tenth",
    "share of new cells",
    "mean familiarity of districts",
    "share of new districts",
    "share of new turns from cell to cell",
    "familiarity of the start",
    "familiarity of the end",
    "familiarity of start and end together",
    "share of past trips at this time of the day",
    "mean popularity of cells",
    "mean popularity of new cells",
    "familiarity against popularity",
)
"""The features of a trip: familiarities are logarithms of numbers of past trips, popularities those of other agents."""


@dataclass(frozen=True, eq=False)
class Seen:
    """The keys of some trips: one row for each cell that they enter, and one for each trip."""

    trip: Ints  # of each cell
    cell: Keys
    wide: Keys
    turn: Keys
    start: Keys  # of each trip
    end: Keys
    both: Keys
    clock: Floats

    @classmethod
    def of(cls, rows: Rows, cell: Keys, n_trips: int) -> Seen:
        """Makes the keys of ``n_trips`` trips; those of a trip without a cell match nothing."""
        trip = rows.steps.trip.astype(np.int64)
        wide, place = (cell_keys(rows.around, rows.steps.location, size) for size in (WIDE, PLACE))
        last = np.where(np.diff(rows.path, prepend=-1) != 0, -1, np.roll(cell, 1))
        every = np.arange(n_trips)
        first, final = np.searchsorted(trip, every), np.searchsorted(trip, every, "right") - 1

        def at(values: Array, where: Ints) -> Array:
            return np.where(final >= first, np.append(values, -1)[np.minimum(where, len(values))], -1)

        return cls(
            *(trip, cell, wide, joined(last, cell)),
            *(at(place, first), at(place, final), joined(at(wide, first), at(wide, final))),
            at(rows.steps.time % DAY, first).astype(np.float64),
        )

    def __len__(self) -> int:
        return len(self.start)

    def some(self, trips: Ints) -> Seen:
        """Returns some of the trips, renumbered."""
        number = np.full(len(self), -1)
        number[trips] = np.arange(len(trips))
        kept = np.flatnonzero(number[self.trip] >= 0)
        kept = kept[np.argsort(number[self.trip[kept]], kind="stable")]
        return Seen(
            trip=number[self.trip[kept]],
            cell=self.cell[kept],
            wide=self.wide[kept],
            turn=self.turn[kept],
            start=self.start[trips],
            end=self.end[trips],
            both=self.both[trips],
            clock=self.clock[trips],
        )

    def a_trip(self, values: Array, among: Array | None = None) -> Floats:
        """Returns the mean over each trip's cells, or over those in the mask ``among``; 0 for a trip without any."""
        weight = np.ones(len(values)) if among is None else among.astype(np.float64)
        total = np.bincount(self.trip, weight, len(self))
        return np.bincount(self.trip, weight * values, len(self)) / np.maximum(total, 1.0)


@dataclass(frozen=True, eq=False)
class Past:
    """A person's past: the number of trips in which each key occurred."""

    cells: Counts
    wides: Counts
    turns: Counts
    ends: Counts
    both: Counts
    clocks: Floats

    @classmethod
    def of(cls, seen: Seen) -> Past:
        """Counts the keys of some trips."""
        every = np.arange(len(seen))
        ends = _in_trips(np.r_[seen.start, seen.end], np.r_[every, every])
        cells, wides, turns = (_in_trips(keys, seen.trip) for keys in (seen.cell, seen.wide, seen.turn))
        return cls(cells, wides, turns, ends, Counts.of(seen.both), np.sort(seen.clock))

    def at_this_hour(self, clock: Floats) -> Floats:
        """Counts the past trips that began within an hour of these times of the day."""
        around = np.concatenate([self.clocks - DAY, self.clocks, self.clocks + DAY])
        within = np.searchsorted(around, clock + AN_HOUR, "right") - np.searchsorted(around, clock - AN_HOUR)
        return np.asarray(within, np.float64)


def _in_trips(keys: Array, trip: Array) -> Counts:
    """Counts the trips in which each key occurs."""
    _, once = np.unique(joined(keys, trip), return_index=True)
    return Counts.of(keys[once])


def statistics(seen: Seen, past: Past, inside: bool, others: Floats) -> Floats:
    """Returns the statistics of trips: (trips, :data:`STATISTICS`).

    If ``inside`` is True, the trips are among the past ones, and the statistics of each ignore that trip itself.
    ``others`` is the number of other agents that go to each cell.
    """
    left_out = float(inside)
    n = max(len(past.clocks) - left_out, 1.0)
    visits = past.cells(seen.cell) - left_out
    familiar, popular = np.log1p(visits), np.log1p(others)
    wide = past.wides(seen.wide) - left_out
    order = np.lexsort((familiar, seen.trip))
    begin = np.searchsorted(seen.trip, np.arange(len(seen)))
    size = np.bincount(seen.trip, minlength=len(seen))
    tenth = np.append(familiar[order], 0.0)[np.where(size > 0, begin + (size - 1) // 10, len(order))]
    new = visits == 0
    return np.column_stack(
        [
            *(seen.a_trip(familiar), tenth, seen.a_trip(new)),
            *(seen.a_trip(np.log1p(wide)), seen.a_trip(wide == 0)),
            seen.a_trip(past.turns(seen.turn) == left_out),
            *(np.log1p(past.ends(end) - left_out) for end in (seen.start, seen.end)),
            np.log1p(past.both(seen.both) - left_out),
            (past.at_this_hour(seen.clock) - left_out) / n,
            *(seen.a_trip(popular), seen.a_trip(popular, new)),
            seen.a_trip(familiar - np.log1p(n) - popular),
        ]
    )


class Taught(NamedTuple):
    """Training data: the statistics of a person's own trips and of foreign ones."""

    features: Floats
    foreign: NDArray[np.bool_]
    weight: Floats  # the weight of each trip

    @classmethod
    def of(cls, own: Floats, foreign: Floats) -> Taught:
        """Weights trips so that own and foreign ones have the same total weight, and all together 1."""
        label = np.repeat([False, True], [len(own), len(foreign)])
        return cls(
            np.vstack([own, foreign]), label, np.repeat([0.5 / len(own), 0.5 / len(foreign)], [len(own), len(foreign)])
        )

    @staticmethod
    def together(parts: list[Taught]) -> Taught:
        """Joins several sets of training data."""
        return Taught(*(np.concatenate(values) for values in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class Known:
    """The data of others: their trips, the cells that they enter, and training data from them."""

    seen: Seen
    agent: Ints  # the number of each trip's agent
    goers: Counts  # the number of agents that enter each cell
    gone: Counts  # the pairs of a cell and an agent that enters it

    @classmethod
    def of(cls, seen: Seen, agents: NDArray[np.str_]) -> Known:
        """Counts some people's trips."""
        agent = np.unique(agents, return_inverse=True)[1]
        pairs, once = np.unique(joined(seen.cell, agent[seen.trip]), return_index=True)
        return cls(seen, agent, Counts.of(seen.cell[once]), Counts.of(pairs))

    def visitors(self, seen: Seen, *without: Ints) -> Floats:
        """Counts the agents that go to each cell; each array in ``without`` gives one agent per trip to ignore."""
        found = self.goers(seen.cell)
        for number in without:
            found -= self.gone(joined(seen.cell, number[seen.trip]))
        return found

    def strangers(self, agent: int, count: int, rng: np.random.Generator) -> Ints:
        """Draws trips of other agents."""
        others = np.flatnonzero(self.agent != agent)
        return rng.choice(others, min(count, len(others)), replace=False)

    @cached_property
    def taught(self) -> list[Taught]:
        """Makes training data from the agents with enough trips, each with a long memory and with a short one."""
        rng = np.random.default_rng(0)
        numbers, count = np.unique(self.agent, return_counts=True)
        found = []
        for agent in numbers[count >= LEAST_TRIPS].tolist() if len(numbers) > 1 else []:
            own = rng.permutation(np.flatnonzero(self.agent == agent))[:MOST_TRIPS]
            short = round(float(np.exp(rng.uniform(np.log(SHORTEST), np.log(len(own))))))
            for size in (len(own), short):
                past, shown = Past.of(self.seen.some(own[:size])), own[: min(size, SHOWN)]
                foreign = self.strangers(agent, len(shown), rng)
                mine, theirs = self.seen.some(shown), self.seen.some(foreign)
                me = np.full(len(foreign), agent)
                # Ignore the maker of a foreign trip: that of a tested foreign trip is not among the others, either.
                found.append(
                    Taught.of(
                        statistics(mine, past, True, self.visitors(mine, me[: len(shown)])),
                        statistics(theirs, past, False, self.visitors(theirs, me, self.agent[foreign])),
                    )
                )
        return found


@dataclass(eq=False)
class FamiliarityBaseline(Comparison):
    """A model of the standardised :data:`STATISTICS` of trips; all cells of a trip have the same anomaly."""

    known_: Known = field(init=False, repr=False)
    past_: Past = field(init=False, repr=False)
    scaling_of_: Scaling = field(init=False, repr=False)
    model_: Any = field(default=None, init=False, repr=False)

    def know(self, crowd: Crowd) -> Known:
        """See :meth:`Comparison.know`."""
        seen = Seen.of(crowd.rows, self.cells(crowd.rows), len(crowd.agents))
        return Known.of(seen, crowd.agents)

    @abstractmethod
    def _learn_trips(self, mine: Seen, rng: np.random.Generator) -> None:
        """Learns ``scaling_of_`` and ``model_`` from the person's own trips."""

    @abstractmethod
    def _anomaly_of_trips(self, features: Floats, trip: Array) -> Floats:
        """Returns the anomaly of trips from their standardised features; only those of trips in ``trip`` are used."""

    def _learn(self, rows: Rows, rng: np.random.Generator) -> None:
        mine = self._seen(rows)
        mine = mine.some(np.unique(mine.trip))
        self.past_ = Past.of(mine)
        self._learn_trips(mine, rng)

    def _anomaly(self, rows: Rows) -> Array:
        seen = self._seen(rows)
        features = statistics(seen, self.past_, False, self.known_.visitors(seen))
        return self._anomaly_of_trips(self.scaling_of_.standardise(features), seen.trip)[seen.trip]

    def _seen(self, rows: Rows) -> Seen:
        return Seen.of(rows, self.cells(rows), int(rows.steps.trip.max(initial=-1)) + 1)


@dataclass(eq=False)
class FamiliarityRegression(FamiliarityBaseline):
    """A logistic regression on :data:`STATISTICS`, which estimates the probability that a trip is foreign."""

    name: ClassVar[str] = "familiarity regression"

    def _learn_trips(self, mine: Seen, rng: np.random.Generator) -> None:
        known = self.known_
        shown = mine.some(rng.permutation(len(mine))[:MINE])
        foreign = known.strangers(-1, MINE, rng)
        theirs = known.seen.some(foreign)
        own = Taught.of(
            statistics(shown, self.past_, True, known.visitors(shown)),
            statistics(theirs, self.past_, False, known.visitors(theirs, known.agent[foreign])),
        )
        taught = Taught.together([*known.taught, own])
        self.scaling_of_ = Scaling.of(taught.features)
        self.model_ = library("sklearn.linear_model").LogisticRegression(max_iter=1000)
        features = self.scaling_of_.standardise(taught.features)
        self.model_.fit(features, taught.foreign, taught.weight / taught.weight.mean())

    def _anomaly_of_trips(self, features: Floats, trip: Array) -> Floats:
        return np.asarray(self.model_.decision_function(features))
