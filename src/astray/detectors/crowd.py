"""Many agents at once: each fix seen through its own agent's memory, with one pass over all of them.

Looking agent by agent costs a few milliseconds each, however few the fixes; a fleet may have a hundred thousand agents.
What does not depend on the memory (paths, steps, keys) is computed for all together; only the counts are looked up
agent by agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.mdp.context import Context
from astray.mdp.encoders import FamiliarityEncoder
from astray.mdp.familiarity import GRIDS, familiarity, keys_by_trip, keys_of
from astray.mdp.memory import Memory
from astray.mdp.paths import paths_of, resample, trace
from astray.mdp.projection import Projection
from astray.mdp.steps import steps_of
from astray.mdp.view import Sight, View, ViewConfig, trip_names
from astray.modelfile import ModelFile, pack_text
from astray.modelfile.parts import Packed, sound
from astray.trajectories import Trajectories

Array = NDArray[Any]
XY = NDArray[np.float32]

WAY_POINTS = 32  # of a past way that is kept to be shown


@dataclass(frozen=True, eq=False)
class Member:
    """What a fleet knows of one agent: where it lives, what it remembers, and some of its ways."""

    projection: Projection
    utc_offset: float
    memory: Memory = field(default_factory=Memory)
    ways: tuple[XY, ...] = ()  # metres, the last ones

    @classmethod
    def of(cls, trips: Trajectories, config: ViewConfig) -> Member:
        """A member centred on its first trips, with nothing remembered."""
        return cls.around(trips.columns["lat"], trips.columns["lon"], config)

    @classmethod
    def around(cls, lat: Array, lon: Array, config: ViewConfig) -> Member:
        """A member centred on some fixes, with nothing remembered."""
        projection = Projection.centred_on(lat, lon)
        offset = 3600.0 * round(projection.lon / 15.0) if config.utc_offset is None else config.utc_offset
        return cls(projection, offset, Memory(forgetting=config.forgetting))

    def view(self, config: ViewConfig, context: Context) -> View:
        """How this agent's trips are seen, one agent at a time."""
        encoder = FamiliarityEncoder(self.memory, config.habits, config.lags, self.utc_offset)
        return View(config, self.projection, encoder, replace(context, utc_offset=self.utc_offset))


@dataclass(frozen=True)
class _Projected(Projection):
    """A projection of fixes whose metres are known already."""

    xy: Array = field(default_factory=lambda: np.zeros((0, 2)))

    def to_metres(self, lat: Array, lon: Array) -> NDArray[np.float64]:
        """The metres that are known."""
        return np.asarray(self.xy, np.float64)


def look(trips: Trajectories, members: Sequence[Member], config: ViewConfig, context: Context) -> Sight:
    """The features of every good fix, seen by the trip's own agent; to the last bit as that agent's view sees them.

    Parameters
    ----------
    trips
        Trips, those of an agent next to each other.
    members
        The member that each trip is of; the same object for neighbours of one agent.
    config, context
        What all of them look at.
    """
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
        # A copy, whose look-up table is let go of: kept tables would be larger than the memories.
        memory = replace(member.memory)
        own = memory.number_of(names[run])[steps.trip[rows_of_member] - run.start] if len(memory) else None
        counts[rows_of_member] = familiarity(keys[rows_of_member], memory, own)
        history[rows_of_member] = np.log1p(memory.history)
    # The rest of an encoder's features do not depend on habits or memory; its last one is the history.
    motion = FamiliarityEncoder(Memory(), (), config.lags).encode(steps)[:, :-1]
    features = np.column_stack([counts, motion, history, surroundings])
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
        yield run.start, replace(member, memory=memory, ways=tuple(ways))


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


# -------------------------------------------------------------------- as a file holds them


def pack_members(members: Mapping[str, Member]) -> Packed:
    """All memories, one after the other, with offsets; nothing is copied."""
    everybody = list(members.values())
    ways = [w for m in everybody for w in m.ways]

    def offsets(counts: Iterable[int]) -> NDArray[np.int64]:
        return np.cumsum([0, *counts], dtype=np.int64)

    def whole(part: Callable[[Member], Array], blank: Array) -> list[Array]:
        return [part(m) for m in everybody] or [blank]

    return Packed(
        {},
        {
            **pack_text("agents", list(members)),
            **pack_text("trips.ids", [t for m in everybody for t in m.memory.trip_ids]),
            "agents.centre": np.array([[m.projection.lat, m.projection.lon] for m in everybody]).reshape(-1, 2),
            "agents.utc_offset": np.array([m.utc_offset for m in everybody], np.float64),
            "agents.trips": offsets(len(m.memory) for m in everybody),
            "agents.postings": offsets(len(m.memory.keys) for m in everybody),
            "agents.ways": offsets(len(m.ways) for m in everybody),
            "trips.times": whole(lambda m: m.memory.times, np.zeros(0)),
            "postings.keys": whole(lambda m: m.memory.keys, np.zeros(0, np.uint64)),
            "postings.trips": whole(lambda m: m.memory.trips, np.zeros(0, np.int32)),
            "ways.points": offsets(len(w) for w in ways),
            "ways.xy": ways or np.zeros((0, 2), np.float32),
        },
    )


def unpack_members(model: ModelFile, config: ViewConfig) -> dict[str, Member]:
    """The members that :func:`pack_members` packed."""
    agents = model.text("agents")
    n = len(agents)
    centre = model.array("agents.centre", np.float64, n, 2)
    utc_offset = model.array("agents.utc_offset", np.float64, n)
    ids = model.text("trips.ids")
    times = model.array("trips.times", np.float64, len(ids))
    keys = model.array("postings.keys", np.uint64, None)
    trips = model.array("postings.trips", np.int32, len(keys))
    xy = model.array("ways.xy", np.float32, None, 2)
    points = model.offsets("ways.points", len(xy))
    of_trips = model.offsets("agents.trips", len(ids), n)
    of_postings = model.offsets("agents.postings", len(keys), n)
    of_ways = model.offsets("agents.ways", len(points) - 1, n)
    members = {}
    for i, agent in enumerate(agents):
        t, p, w = (slice(int(o[i]), int(o[i + 1])) for o in (of_trips, of_postings, of_ways))
        memory = Memory(tuple(ids[t]), times[t], keys[p], trips[p], config.forgetting)
        if not sound(memory.keys, memory.trips, len(memory)):
            raise model.wrong(f"the memory of agent {agent!r} is not sorted, or speaks of trips that are not there")
        ways = tuple(xy[points[k] : points[k + 1]] for k in range(w.start, w.stop))
        members[agent] = Member(Projection(*centre[i].tolist()), float(utc_offset[i]), memory, ways)
    return members
