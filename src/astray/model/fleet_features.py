"""Many agents at once: each fix seen through its own agent's memory, with one pass over all of them.

Looking agent by agent costs a few milliseconds each, however few the fixes; a fleet may have a hundred thousand agents.
What does not depend on the memory (paths, steps, keys) is computed for all together; only the counts are looked up
agent by agent. Trips stand agent by agent, and those of an agent by where they begin (:func:`by_agent`).
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
from astray.features.featurizer import Featurized
from astray.features.memory import Memory
from astray.features.paths import paths_of
from astray.features.popularity import Popularity
from astray.features.steps import looked_at, steps_of
from astray.model.agents import RECENT, Common, Degrees, Member, centres, started
from astray.model.inbox import Inbox
from astray.scoring.normality import Location
from astray.scoring.own_scale import OwnScores, own_scores
from astray.scoring.scores import chunks

Array = NDArray[Any]
T = TypeVar("T")
P = TypeVar("P")

WAY_POINTS = 32  # of a past way that is shown
ENROL_FIXES = 100_000  # counted in one go


@dataclass(frozen=True)
class _Projected(Projection):
    """A projection of fixes whose metres are known already."""

    xy: Array = field(default_factory=lambda: np.zeros((0, 2)))

    def to_metres(self, lat: Array, lon: Array) -> NDArray[np.float64]:
        """The metres that are known."""
        return np.asarray(self.xy, np.float64)


def featurize(trips: Trajectories, members: Sequence[Member], common: Common, every: bool = False) -> Featurized:
    """Trips seen by their own agents, as :meth:`~astray.features.featurizer.Featurizer.featurize` does for one.

    Parameters
    ----------
    trips
        Trips, those of an agent next to each other.
    members
        The member that each trip is of; the same object for neighbours of one agent.
    common
        What all of them look at.
    every
        Whether every fix is looked at, or one about every interval.
    """
    config = common.featurizer
    places = centres(trips)
    paths, fault = paths_of(trips, _projected(trips, places), config.faults)
    paths.context["given"] = common.context.given(trips)[paths.context["trip"]]
    kept, steps, weight = looked_at(steps_of(paths, config.interval, config.lags), config.interval, every)
    ids, agents = trips.ids, trips.agent_ids.tolist()
    features, found = [], []
    memory, last = Memory(), None
    for member, centre, run in _runs(members, places):
        if member is not last:  # of a copy: its table of look-ups is not kept
            memory, last = replace(member.memory), member
        featurizer = replace(member, memory=memory).featurizer(agents[run.start], common, centre)
        here = steps[slice(*np.searchsorted(steps.trip, [run.start, run.stop]))]
        here = replace(here, trip=here.trip - run.start)
        n = run.stop - run.start
        rows = featurizer.trip_rows(here, n)
        number = featurizer.memory.number_of(ids[run])
        made_by = featurizer.popularity.number_of(agents[run.start : run.start + 1])
        familiar, statistics = featurizer.measure(
            rows, number if (number >= 0).any() else None, np.repeat(made_by, n) if made_by[0] >= 0 else None
        )
        features.append(featurizer.features(here, familiar))
        found.append(statistics)
    return Featurized(np.concatenate(features), steps, paths.columns["row"][kept], weight, fault, np.concatenate(found))


def count(trips: Trajectories, common: Common) -> dict[str, Memory]:
    """What each agent would remember of its trips alone, in the order of time; those of an agent stand together."""
    found: dict[str, Memory] = {}
    for chunk in chunks(trips.lengths, ENROL_FIXES):
        part = trips[chunk]
        for agent, centre, run in _runs(part.agent_ids.tolist(), centres(part)):
            blank = common.seen_from(centre, Memory(), Popularity())
            counted = blank.remember(part[run]).memory
            found[agent] = found[agent].merge(counted) if agent in found else counted
    return found


def measured(agent: str, member: Member, common: Common) -> Member:
    """The same member, with the scores of the trips that it keeps, each held out of the memory.

    Older trips have no score any more: an agent is measured on its newest ones.
    """
    if member.recent is None:
        return replace(member, measured=True)
    memory, trips = replace(member.memory), member.recent[_by_centre(member.recent)]
    number = memory.number_of(trips.ids)
    own = member.own.of_aspects(len(common.reward.aspects)).copy()
    own[: max(len(memory) - RECENT, 0)] = np.nan
    scales: list[tuple[int, Location]] = []
    for _, centre, run in _runs([agent] * len(trips), centres(trips)):
        featurizer = replace(member, memory=memory).featurizer(agent, common, centre)
        rows = featurizer.rows(trips[run])
        fresh = own_scores(rows, featurizer, number[run], common.reward, common.weights, common.scaling)
        own[number[run]] = fresh.trips
        scales += [] if fresh.step is None else [(run.stop - run.start, fresh.step)]
    return replace(member, own=OwnScores(own, _together(scales) or member.own.step), measured=True)


def _together(scales: Sequence[tuple[int, Location]]) -> Location | None:
    """Centre and spread over places, by how many trips began there."""
    total = sum(n for n, _ in scales)
    return Location(*(sum(n * s[i] for n, s in scales) / total for i in (0, 1))) if scales else None


def histories(members: Sequence[Member]) -> NDArray[np.float64]:
    """The history of the member that each trip is of."""
    lengths = [(member.history, run) for member, _, run in _runs(members, [None] * len(members))]
    return np.concatenate([np.full(run.stop - run.start, history) for history, run in lengths] or [np.zeros(0)])


def _projected(trips: Trajectories, places: Sequence[Projection]) -> Projection:
    lat, lon = trips.columns["lat"], trips.columns["lon"]
    parts = []
    for _, centre, run in _runs([None] * len(places), places):
        rows = slice(int(trips.offsets[run.start]), int(trips.offsets[run.stop]))
        parts.append(centre.to_metres(lat[rows], lon[rows]))
    return _Projected(0.0, 0.0, np.concatenate(parts) if parts else np.zeros((0, 2)))


def _runs(owners: Sequence[T], places: Sequence[P]) -> Iterator[tuple[T, P, slice]]:
    """Neighbouring trips of one owner that begin in one place: whose they are, where, and which."""
    start = 0
    for i in range(1, len(owners) + 1):
        if i == len(owners) or owners[i] != owners[start] or places[i] != places[start]:
            yield owners[start], places[start], slice(start, i)
            start = i


def ways_of(member: Member, common: Common, most: int) -> list[Degrees]:
    """The last ways of an agent, to be shown: the longest path of each trip, in a few points."""
    if member.recent is None or not most:
        return list(member.ways)
    found: list[Degrees] = []
    for i in range(max(len(member.recent) - most, 0), len(member.recent)):
        trip = member.recent[i : i + 1]
        (centre,) = centres(trip)
        paths = common.seen_from(centre, Memory(), Popularity()).paths(trip)
        longest = int(paths.lengths.argmax()) if len(paths) else 0
        if not len(paths) or paths.lengths[longest] < 2:
            continue
        a, b = int(paths.offsets[longest]), int(paths.offsets[longest + 1])
        rows = np.unique(np.linspace(a, b - 1, min(b - a, WAY_POINTS)).astype(int))
        found.append(centre.to_degrees(paths.columns["xy"][rows]))
    return [*member.ways, *found][-most:]


# -------------------------------------------------------------------- trips, agent by agent


def by_agent(trips: Trajectories) -> NDArray[np.int64]:
    """The order in which the trips of each agent stand together, agents by their first trip, and trips by place."""
    _, first, agent = np.unique(trips.agent_ids, return_index=True, return_inverse=True)
    return np.lexsort((_place_numbers(trips), first[agent]))


def _by_centre(trips: Trajectories) -> NDArray[np.int64]:
    """The order in which trips that begin in one place stand together."""
    return np.argsort(_place_numbers(trips), kind="stable")


def _place_numbers(trips: Trajectories) -> NDArray[np.int64]:
    """A number for where each trip begins."""
    places = [(place.lat, place.lon) for place in centres(trips)]
    numbers = {place: i for i, place in enumerate(sorted(set(places)))}
    return np.array([numbers[place] for place in places], np.int64)


def runs(trips: Trajectories) -> Iterator[tuple[str, slice]]:
    """The agents of trips that stand together, each with its own."""
    ids = trips.agent_ids
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]][: len(ids)]).tolist()
    for start, stop in pairwise([*starts, len(ids)]):
        yield str(ids[start]), slice(start, stop)


def enrol(trips: Trajectories, known: Callable[[str], Member | None], common: Common) -> Iterator[tuple[str, Member]]:
    """The agents with these trips counted, one after the other; what they score is to be measured anew.

    Of whom nothing is ``known`` yet begins with nothing.
    """
    ordered = trips[by_agent(trips)]
    blank = replace(Member.blank(common.featurizer), inbox=Inbox(tokens=common.observing.tokens))
    # Some agents at a time, so that no more than they take is held.
    whole = list(runs(ordered))
    sizes = np.array([ordered.offsets[run.stop] - ordered.offsets[run.start] for _, run in whole], np.int64)
    for some in chunks(sizes, ENROL_FIXES):
        here = ordered[whole[some][0][1].start : whole[some][-1][1].stop]
        counted = count(here, common)
        for agent, run in runs(here):
            member = known(agent) or blank
            yield agent, _grown(member, here[run], counted.get(agent), common)


def _grown(member: Member, trips: Trajectories, counted: Memory | None, common: Common) -> Member:
    """A member with further trips; those that another process has added meanwhile are left out."""
    known = trips.isin(member.memory.trip_ids)
    if known.all():
        return member
    trips = trips[~known]
    counted = None if counted is None else counted.remove(member.memory.trip_ids)
    when, zone, memory = started(trips), member.zone, member.memory
    first = min(range(len(when)), key=when.__getitem__)
    # Its trips are in the order of time: by the first of all it is said where it lives, whenever that one came.
    if zone is None or not len(memory) or when[first] < (memory.times[0], memory.trip_ids[0].trajectory):
        zone = home_of(trips[first : first + 1])
    grown = member if counted is None else member.with_memory(member.memory.merge(counted))
    return replace(grown.keeping(trips, common), zone=zone, measured=False)
