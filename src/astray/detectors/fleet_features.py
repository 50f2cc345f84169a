"""Many agents at once: each fix seen through its own agent's memory, with one pass over all of them.

Looking agent by agent costs a few milliseconds each, however few the fixes; a fleet may have a hundred thousand agents.
What does not depend on the memory (paths, steps, keys) is computed for all together; only the counts are looked up
agent by agent. Trips stand agent by agent (:func:`by_agent`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.detectors.agents import XY, Common, Member
from astray.detectors.inbox import Inbox
from astray.detectors.training import remember
from astray.features.featurizer import Featurized
from astray.features.paths import paths_of
from astray.features.projection import Projection
from astray.features.steps import chosen, steps_of
from astray.scoring.own_scale import own_scores
from astray.trajectories import Trajectories

Array = NDArray[Any]

WAY_POINTS = 32  # of a past way that is kept to be shown
RECENT = 300  # of an agent's trips, the newest, set its scale


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
    paths, fault = paths_of(trips, _projected(trips, members), config.faults)
    paths.context["given"] = common.context.given(trips)[paths.context["trip"]]
    steps = steps_of(paths, config.interval, config.lags)
    kept = np.arange(len(steps)) if every else np.flatnonzero(chosen(steps, config.interval))
    steps = steps if len(kept) == len(steps) else steps[kept]
    since = np.diff(steps.time, prepend=steps.time[:1])
    weight = np.where(steps.first, 0.0, np.minimum(since, config.interval))
    ids, agents = trips.ids, trips.agent_ids.tolist()
    features, found = [], []
    for member, run in _runs(members):
        featurizer = replace(member, memory=replace(member.memory)).featurizer(agents[run.start], common)
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


def histories(members: Sequence[Member]) -> NDArray[np.float64]:
    """The history of the member that each trip is of."""
    return np.concatenate(
        [np.full(run.stop - run.start, member.history) for member, run in _runs(members)] or [np.zeros(0)]
    )


def _projected(trips: Trajectories, members: Sequence[Member]) -> Projection:
    lat, lon = trips.columns["lat"], trips.columns["lon"]
    parts = []
    for member, run in _runs(members):
        rows = slice(int(trips.offsets[run.start]), int(trips.offsets[run.stop]))
        parts.append(member.projection.to_metres(lat[rows], lon[rows]))
    return _Projected(0.0, 0.0, np.concatenate(parts) if parts else np.zeros((0, 2)))


def _runs(members: Sequence[Member]) -> Iterator[tuple[Member, slice]]:
    """The members, each with the trips that are its own."""
    start = 0
    for i in range(1, len(members) + 1):
        if i == len(members) or members[i] is not members[start]:
            yield members[start], slice(start, i)
            start = i


def _ways(paths: Trajectories, n: int) -> list[XY | None]:
    """The longest path of each trip, in a few points."""
    longest: list[XY | None] = [None] * n
    lengths = np.zeros(n, np.int64)
    for i, trip in enumerate(paths.context["trip"].tolist()):
        if paths.lengths[i] > max(lengths[trip], 1):
            a, b = int(paths.offsets[i]), int(paths.offsets[i + 1])
            rows = np.unique(np.linspace(a, b - 1, min(b - a, WAY_POINTS)).astype(int))
            longest[trip], lengths[trip] = paths.columns["xy"][rows].astype(np.float32), b - a
    return longest


# -------------------------------------------------------------------- trips, agent by agent


def by_agent(trips: Trajectories) -> NDArray[np.int64]:
    """The order in which the trips of each agent stand together, agents by their first trip."""
    _, first, agent = np.unique(trips.agent_ids, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(first[agent], kind="stable"), np.int64)


def runs(trips: Trajectories) -> Iterator[tuple[str, slice]]:
    """The agents of trips that stand together, each with its own."""
    ids = trips.agent_ids
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]][: len(ids)]).tolist()
    for start, stop in pairwise([*starts, len(ids)]):
        yield str(ids[start]), slice(start, stop)


def enrol(trips: Trajectories, members: Mapping[str, Member], common: Common, keep_ways: int) -> dict[str, Member]:
    """The members with these trips counted and, the newest of them, measured; the others are not in the answer.

    Somebody who is not among ``members`` yet begins with nothing. ``keep_ways`` of the last ways are kept to be shown.
    """
    ordered = trips[by_agent(trips)]
    blank = Inbox(tokens=common.observing.tokens)
    found = {}
    for agent, run in runs(ordered):
        here = ordered[run]
        begun = members.get(agent) or replace(Member.of(here, common.featurizer), inbox=blank)
        found[agent] = _enrolled(agent, here, begun, common, keep_ways)
    return found


def _enrolled(agent: str, trips: Trajectories, member: Member, common: Common, keep_ways: int) -> Member:
    """A member with trips of its own counted, and the newest of them measured, each held out of the memory."""
    featurizer = member.featurizer(agent, common)
    prepared = featurizer.prepare(trips)
    shown = [w for w in _ways(prepared.paths, len(trips)) if w is not None] if keep_ways else []
    ways = [*member.ways, *shown][-keep_ways or len(trips) :]
    member = replace(member.with_memory(remember(featurizer, prepared).memory), ways=tuple(ways))
    # Of a copy: what a memory keeps ready for look-ups would be larger than the memory.
    featurizer = replace(member, memory=replace(member.memory)).featurizer(agent, common)
    newest = prepared[np.arange(len(trips))[-RECENT:]] if len(trips) > RECENT else prepared
    number = featurizer.memory.number_of(newest.trips.ids)
    of = (featurizer.rows(newest), featurizer, number, common.reward, common.weights, common.scaling)
    return replace(member, own=member.own.with_scores(own_scores(*of), number))
