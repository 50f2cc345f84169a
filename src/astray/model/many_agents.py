"""Featurises, counts and measures the trips of many agents in one pass, each trip with its own agent's memory.

Agent by agent, this would take a few milliseconds each, however few the fixes, and a model may have a hundred thousand
agents. Paths and steps do not depend on a memory: they are computed for all agents together, and only the counts are
looked up agent by agent. Trips are sorted by agent, and an agent's trips by where they begin (:func:`by_agent`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from astray.core.projection import Projection
from astray.core.trajectories import Trajectories
from astray.core.zones import home_of
from astray.features.familiarity import Frame
from astray.features.featurizer import Featurized
from astray.features.memory import Memory
from astray.features.paths import paths_of
from astray.features.popularity import Popularity
from astray.features.steps import looked_at, steps_of
from astray.model.agent_memory import RECENT, AgentMemory, Common, Degrees, centres, started
from astray.scoring.normality import Location
from astray.scoring.own_scale import OwnScores, own_scores
from astray.scoring.scores import chunks

Array = NDArray[Any]
Owner = tuple[str, AgentMemory]
T = TypeVar("T")
P = TypeVar("P")

WAY_POINTS = 32  # points of each past route that an explanation shows
ENROL_FIXES = 100_000  # about how many fixes are counted at a time


@dataclass(frozen=True)
class _Projected(Projection):
    """A projection of fixes whose metres are already known."""

    xy: Array = field(default_factory=lambda: np.zeros((0, 2)))

    def to_metres(self, lat: Array, lon: Array) -> NDArray[np.float64]:
        """Returns the known metres."""
        return np.asarray(self.xy, np.float64)


def featurize(trips: Trajectories, owners: Sequence[Owner], common: Common, every: bool = False) -> Featurized:
    """Featurises trips, each with its owner's memory, as :meth:`Featurizer.featurize` does with one memory.

    Each agent's trips must be adjacent, and share one owner object. With ``every``, every fix becomes a row; without
    it, about one fix per interval, and only then are there trip statistics.
    """
    config = common.featurizer
    frames = [memory.frame_of(common, centre) for (_, memory), centre in zip(owners, centres(trips), strict=True)]
    paths, fault = paths_of(trips, _projected(trips, frames), config.faults)
    paths.context["given"] = common.context.given(trips)[paths.context["trip"]]
    kept, steps, weight = looked_at(steps_of(paths, config.interval, config.lags), config.interval, every)
    ids = trips.ids
    features, found = [], []
    counts, last = Memory(), None
    for (agent, memory), frame, run in _runs(owners, frames):
        if memory is not last:
            # A copy for each agent: the cached look-up tables of all agents would take much room.
            counts, last = memory.counts if memory.frame is not None else replace(memory.counts), memory
        featurizer = replace(memory, counts=counts).featurizer(agent, common, frame.projection)
        here = steps[slice(*np.searchsorted(steps.trip, [run.start, run.stop]))]
        here = replace(here, trip=here.trip - run.start)
        rows = featurizer.trip_rows(here, run.stop - run.start)
        number = featurizer.memory.number_of(ids[run])
        without = number if (number >= 0).any() else None
        familiar = featurizer.familiarity(rows, without)
        features.append(featurizer.features(here, familiar))
        if not every:
            maker = featurizer.popularity.number_of(trips.agent_ids[run])
            of_trips = (rows, familiar, without, maker if (maker >= 0).any() else None)
            found.append(featurizer.trip_statistics(*of_trips))
    statistics = None if every else np.concatenate(found)
    return Featurized(np.concatenate(features), steps, paths.columns["row"][kept], weight, fault, statistics)


def count(trips: Trajectories, common: Common) -> dict[str, Memory]:
    """Returns the counts of each agent's trips; each agent's trips must be adjacent."""
    found: dict[str, Memory] = {}
    for chunk in chunks(trips.lengths, ENROL_FIXES):
        part = trips[chunk]
        for agent, centre, run in _runs(part.agent_ids.tolist(), centres(part)):
            blank = common.seen_from(common.frame_at(centre), Memory(), Popularity())
            counted = blank.remember(part[run]).memory
            found[agent] = found[agent].merge(counted) if agent in found else counted
    return found


def measure(agent: str, memory: AgentMemory, common: Common) -> AgentMemory:
    """Returns the memory with the scores of the trips that it keeps, each by the trips before it.

    Trips that were forgotten leave no trace in the scores of later ones. Older trips lose their scores: an agent is
    measured on its newest ones.
    """
    if memory.kept is None:
        return replace(memory, measured=True)
    counts, trips = replace(memory.counts), memory.kept[_by_centre(memory.kept)]
    number = counts.number_of(trips.ids)
    own = memory.own.of_aspects(len(common.reward.aspects)).copy()
    own[: max(len(counts) - RECENT, 0)] = np.nan
    scales: list[tuple[int, Location]] = []
    for _, centre, run in _runs([agent] * len(trips), centres(trips)):
        featurizer = replace(memory, counts=counts).featurizer(agent, common, centre)
        rows = featurizer.rows(trips[run])
        fresh = own_scores(rows, featurizer, number[run], common.reward, common.weights, common.scaling)
        own[number[run]] = fresh.trips
        scales += [] if fresh.step is None else [(run.stop - run.start, fresh.step)]
    return replace(memory, own=OwnScores(own, _mean_location(scales) or memory.own.step), measured=True)


def _mean_location(scales: Sequence[tuple[int, Location]]) -> Location | None:
    """Returns the mean of several locations of scores, each with its number of trips as its weight."""
    total = sum(n for n, _ in scales)
    return Location(*(sum(n * s[i] for n, s in scales) / total for i in (0, 1))) if scales else None


def _projected(trips: Trajectories, frames: Sequence[Frame]) -> Projection:
    lat, lon = trips.columns["lat"], trips.columns["lon"]
    parts = []
    for _, frame, run in _runs([None] * len(frames), frames):
        rows = slice(int(trips.offsets[run.start]), int(trips.offsets[run.stop]))
        parts.append(frame.projection.to_metres(lat[rows], lon[rows]))
    return _Projected(0.0, 0.0, np.concatenate(parts) if parts else np.zeros((0, 2)))


def _runs(owners: Sequence[T], places: Sequence[P]) -> Iterator[tuple[T, P, slice]]:
    """Yields owner, place and slice of each run of adjacent trips that share the owner and the starting place."""
    start = 0
    for i in range(1, len(owners) + 1):
        if i == len(owners) or owners[i] != owners[start] or places[i] != places[start]:
            yield owners[start], places[start], slice(start, i)
            start = i


def ways_of(memory: AgentMemory, common: Common, most: int) -> list[Degrees]:
    """Returns an agent's latest routes to show: the longest path of each kept trip, reduced to a few points."""
    found: list[Degrees] = []
    n = 0 if memory.kept is None else len(memory.kept)
    for i in range(max(n - most, 0), n):
        assert memory.kept is not None
        trip = memory.kept[i : i + 1]
        frame = memory.frame_of(common, centres(trip)[0])
        paths = common.seen_from(frame, Memory(), Popularity()).paths(trip)
        longest = int(paths.lengths.argmax()) if len(paths) else 0
        if not len(paths) or paths.lengths[longest] < 2:
            continue
        a, b = int(paths.offsets[longest]), int(paths.offsets[longest + 1])
        rows = np.unique(np.linspace(a, b - 1, min(b - a, WAY_POINTS)).astype(int))
        found.append(frame.projection.to_degrees(paths.columns["xy"][rows]))
    return found


# -------------------------------------------------------------------- trips, agent by agent


def by_agent(trips: Trajectories) -> NDArray[np.int64]:
    """Returns an order in which each agent's trips are adjacent: agents by their first trip, trips by place."""
    _, first, agent = np.unique(trips.agent_ids, return_index=True, return_inverse=True)
    return np.lexsort((_place_numbers(trips), first[agent]))


def _by_centre(trips: Trajectories) -> NDArray[np.int64]:
    """Returns an order in which trips that begin in the same place are adjacent."""
    return np.argsort(_place_numbers(trips), kind="stable")


def _place_numbers(trips: Trajectories) -> NDArray[np.int64]:
    """Returns a number for the place where each trip begins."""
    places = [(place.lat, place.lon) for place in centres(trips)]
    numbers = {place: i for i, place in enumerate(sorted(set(places)))}
    return np.array([numbers[place] for place in places], np.int64)


def runs(trips: Trajectories) -> Iterator[tuple[str, slice]]:
    """Yields each agent and the slice of its trips, which must be adjacent."""
    ids = trips.agent_ids
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]][: len(ids)]).tolist()
    for start, stop in pairwise([*starts, len(ids)]):
        yield str(ids[start]), slice(start, stop)


def enrol(
    trips: Trajectories, known: Callable[[str], AgentMemory | None], common: Common
) -> Iterator[tuple[str, AgentMemory]]:
    """Yields each agent with its memory after counting these trips; the memory is not measured yet.

    An agent that is not ``known`` begins with a blank memory.
    """
    ordered = trips[by_agent(trips)]
    blank = AgentMemory.blank(common)
    # A few agents at a time, to bound the memory that this takes.
    whole = list(runs(ordered))
    sizes = np.array([ordered.offsets[run.stop] - ordered.offsets[run.start] for _, run in whole], np.int64)
    for some in chunks(sizes, ENROL_FIXES):
        here = ordered[whole[some][0][1].start : whole[some][-1][1].stop]
        counted = count(here, common)
        for agent, run in runs(here):
            memory = known(agent) or blank
            yield agent, _grown(memory, here[run], counted.get(agent), common)


def _grown(memory: AgentMemory, trips: Trajectories, counted: Memory | None, common: Common) -> AgentMemory:
    """Returns a memory with these trips added, except those that another process has added meanwhile."""
    known = trips.isin(memory.counts.trip_ids)
    if known.all():
        return memory
    trips = trips[~known]
    counted = None if counted is None else counted.remove(memory.counts.trip_ids)
    when, zone, counts = started(trips), memory.zone, memory.counts
    first = min(range(len(when)), key=when.__getitem__)
    # The earliest trip says where an agent lives, even if it is added late.
    if zone is None or not len(counts) or when[first] < (counts.times[0], counts.trip_ids[0].trajectory):
        zone = home_of(trips[first : first + 1])
    grown = memory if counted is None else memory.with_counts(counts.merge(counted))
    return replace(grown.keeping(trips, common), zone=zone, measured=False)
