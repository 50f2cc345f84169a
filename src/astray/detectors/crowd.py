"""Many agents at once: each fix seen through its own agent's memory, with one pass over all of them.

Looking agent by agent costs a few milliseconds each, however few the fixes; a fleet may have a hundred thousand agents.
What does not depend on the memory (paths, steps, keys) is computed for all together; only the counts are looked up
agent by agent. Trips stand agent by agent (:func:`by_agent`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.detectors.members import XY, Common, Member
from astray.detectors.personal import RECENT, own_scores
from astray.detectors.scoring import Seen, chunks, score_chunk
from astray.detectors.sharing import band_of
from astray.mdp.encoders import FamiliarityEncoder
from astray.mdp.familiarity import GRIDS, familiarity, keys_by_trip, keys_of
from astray.mdp.haunts import Haunts
from astray.mdp.memory import Memory
from astray.mdp.paths import paths_of, resample, trace
from astray.mdp.projection import Projection
from astray.mdp.steps import Steps, steps_of
from astray.mdp.view import Sight, ViewConfig, trip_names
from astray.trajectories import Trajectories

Array = NDArray[Any]

WAY_POINTS = 32  # of a past way that is kept to be shown
ENROL_FIXES = 100_000  # counted in one go


@dataclass(frozen=True)
class _Projected(Projection):
    """A projection of fixes whose metres are known already."""

    xy: Array = field(default_factory=lambda: np.zeros((0, 2)))

    def to_metres(self, lat: Array, lon: Array) -> NDArray[np.float64]:
        """The metres that are known."""
        return np.asarray(self.xy, np.float64)


def look(trips: Trajectories, members: Sequence[Member], common: Common) -> Sight:
    """The features of every good fix, seen by the trip's own agent; to the last bit as that agent's view sees them.

    Parameters
    ----------
    trips
        Trips, those of an agent next to each other.
    members
        The member that each trip is of; the same object for neighbours of one agent.
    common
        What all of them look at.
    """
    config, context = common.view, common.context
    paths, fault = paths_of(trips, _projected(trips, members), config.faults)
    paths.context["given"] = context.given(trips)[paths.context["trip"]]
    steps = steps_of(paths, config.interval, config.lags)
    since = np.diff(steps.time, prepend=steps.time[:1])
    weight = np.where(steps.first, 0.0, np.minimum(since, config.interval))
    counts = np.empty((len(steps), len(config.habits)), np.float32)
    history = np.empty(len(steps), np.float32)
    surroundings = np.empty((len(steps), len(context.names)), np.float32)
    offset = np.array([m.utc_offset for m in members])[steps.trip]
    keys = np.empty((len(steps), len(config.habits), GRIDS), np.uint64)
    for local in np.unique(offset):
        rows = offset == local
        here = steps if rows.all() else steps[rows]
        keys[rows] = keys_of(here, config.habits, local)
        surroundings[rows] = replace(context, utc_offset=local).encode(here)
    names = np.array(trip_names(trips))
    for member, run in _runs(members):
        rows_of_member = slice(*np.searchsorted(steps.trip, [run.start, run.stop]))
        memory = replace(member.memory)
        own = memory.number_of(names[run])[steps.trip[rows_of_member] - run.start] if len(memory) else None
        counts[rows_of_member] = familiarity(keys[rows_of_member], memory, own)
        history[rows_of_member] = np.log1p(memory.history)
    # The rest of an encoder's features do not depend on habits or memory; its last one is the history.
    motion = FamiliarityEncoder(Memory(), (), config.lags).encode(steps)[:, :-1]
    others = _frequented(trips, members, steps, common.haunts)
    features = np.column_stack([counts, motion, history, surroundings, others])
    return Sight(features, steps, paths.columns["row"], weight, fault)


def remember(
    trips: Trajectories, members: Sequence[Member], config: ViewConfig, keep_ways: int = 0
) -> Iterator[tuple[int, Member]]:
    """The members with their trips remembered, and the position of the first trip of each.

    Trips must not be remembered already. ``keep_ways`` of the last ways are kept to be shown.
    """
    paths, _ = paths_of(trips, _projected(trips, members), config.faults)
    fine = trace(resample(paths, config.trace_interval), config.trace_spacing)
    steps = steps_of(fine, config.interval, config.lags)
    offset = np.array([m.utc_offset for m in members])[steps.trip]
    keys: dict[int, Array] = {}
    for local in np.unique(offset):
        rows = offset == local
        keys |= keys_by_trip(steps if rows.all() else steps[rows], config.habits, local)
    number, first = np.unique(steps.trip, return_index=True)
    began = dict(zip(number.tolist(), steps.time[first].tolist(), strict=True))
    names = trip_names(trips)
    shown = _ways(paths, len(trips)) if keep_ways else [None] * len(trips)
    for member, run in _runs(members):
        present = [i for i in range(run.start, run.stop) if i in keys]
        memory = member.memory.add({names[i]: keys[i] for i in present}, {names[i]: began[i] for i in present})
        ways = [*member.ways, *(w for w in shown[run] if w is not None)][-keep_ways or len(trips) :]
        yield run.start, replace(member.with_memory(memory), ways=tuple(ways))


def measure(trips: Trajectories, members: Sequence[Member], common: Common) -> Iterator[tuple[int, Member]]:
    """The members with the scores of these trips, which they remember; and the position of the first trip of each.

    Every trip is left out of its own counts, and measured on the scale of agents with as much history.
    """
    history = histories(members)
    seen = Seen.of_fixes(look(trips, members, common), history, band_of(history, common.bands))
    scores = own_scores(score_chunk(trips, seen, common.posterior, common.scales).of_trips)
    names = np.array(trip_names(trips))
    for member, run in _runs(members):
        number = replace(member.memory).number_of(names[run])
        own = member.scores.copy()
        own[number[number >= 0]] = scores[run][number >= 0]
        yield run.start, replace(member, scores=own)


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


def _frequented(trips: Trajectories, members: Sequence[Member], steps: Steps, haunts: Haunts) -> NDArray[np.float32]:
    """How many others go where each step is."""
    lat, lon = np.empty((2, len(steps)))
    for member, run in _runs(members) if haunts.cells else ():
        rows = slice(*np.searchsorted(steps.trip, [run.start, run.stop]))
        lat[rows], lon[rows] = member.projection.to_degrees(steps.location[rows])
    return haunts.encode(lat, lon, haunts.of_trips(trips.agent_ids, steps.trip))


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


def _newest(trips: Trajectories, most: int) -> NDArray[np.bool_]:
    """Which trips, those of an agent together, are among the last ``most`` of their agent."""
    chosen = np.zeros(len(trips), bool)
    for _, run in runs(trips):
        chosen[max(run.start, run.stop - most) : run.stop] = True
    return chosen


def enrol(trips: Trajectories, members: Mapping[str, Member], common: Common, keep_ways: int) -> dict[str, Member]:
    """The members with these trips counted and, the newest of them, measured; the others are not in the answer.

    Somebody who is not among ``members`` yet begins with nothing. ``keep_ways`` of the last ways are kept to be shown.
    """
    ordered = trips[by_agent(trips)]
    begun = {a: members.get(a) or Member.of(ordered[run], common.view) for a, run in runs(ordered)}
    counted = _each(ordered, partial(remember, config=common.view, keep_ways=keep_ways), begun)
    # When all are counted, so that none is measured against a part of the history.
    return _each(ordered[_newest(ordered, RECENT)], partial(measure, common=common), counted)


def _each(
    trips: Trajectories,
    change: Callable[[Trajectories, list[Member]], Iterator[tuple[int, Member]]],
    members: Mapping[str, Member],
) -> dict[str, Member]:
    """The members, changed by each chunk of their trips in turn."""
    changed = dict(members)
    for chunk in chunks(trips.lengths, ENROL_FIXES):
        part = trips[chunk]
        for first, member in change(part, [changed[a] for a in part.agent_ids.tolist()]):
            changed[str(part.agent_ids[first])] = member
    return changed
