"""The members of a fleet: what it knows of each agent, and what all of them share; in memory and in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.detectors.personal import OwnScores
from astray.detectors.sharing import band_of
from astray.irl.posterior import RewardPosterior
from astray.mdp.context import Context
from astray.mdp.encoders import FamiliarityEncoder
from astray.mdp.haunts import Haunts
from astray.mdp.memory import Memory
from astray.mdp.projection import Projection
from astray.mdp.view import View, ViewConfig
from astray.modelfile import ModelFile, pack_text
from astray.modelfile.parts import Packed, sound
from astray.normality import Scale
from astray.trajectories import Trajectories

Array = NDArray[Any]
XY = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Common:
    """What all agents of a fleet share: how trips are seen, what rewards them, and what they are measured on."""

    view: ViewConfig
    context: Context
    posterior: RewardPosterior
    scales: tuple[Scale, ...]  # of each band of history
    bands: tuple[float, ...]
    haunts: Haunts = field(default_factory=Haunts)  # of the agents that the reward was learned from

    def like(self, member: Member) -> Scale:
        """The scale of agents with as much history as this one."""
        return self.scales[int(band_of(member.history, self.bands))]


@dataclass(frozen=True, eq=False)
class Member:
    """What a fleet knows of one agent: where it lives, what it remembers, how that scores, and some of its ways."""

    projection: Projection
    utc_offset: float
    memory: Memory = field(default_factory=Memory)
    ways: tuple[XY, ...] = ()  # metres, the last ones
    scores: OwnScores = field(default_factory=lambda: _unknown(0))  # of the remembered trips, each left out

    @classmethod
    def of(cls, trips: Trajectories, config: ViewConfig) -> Member:
        """A member centred on its first trips, with nothing remembered."""
        return cls.around(trips.columns["lat"], trips.columns["lon"], config)

    @classmethod
    def around(cls, lat: Array, lon: Array, config: ViewConfig) -> Member:
        """A member centred on some fixes, with nothing remembered."""
        projection = Projection.centred_on(lat, lon)
        offset = projection.solar_offset if config.utc_offset is None else config.utc_offset
        return cls(projection, offset, Memory(forgetting=config.forgetting))

    @property
    def history(self) -> float:
        """The number of trips that stand behind the counts, by weight."""
        # Of a copy, here and below: what a memory keeps ready for look-ups would be larger than the memory.
        return replace(self.memory).history

    def with_memory(self, memory: Memory) -> Member:
        """The same member after some trips were added or forgotten; what stayed has the scores that it had."""
        before, after = self.memory.trip_ids, memory.trip_ids
        if after[: len(before)] == before:
            scores = np.concatenate([self.scores, _unknown(len(after) - len(before))])
        else:
            # The last row is that of trips which were not remembered before.
            scores = np.concatenate([self.scores, _unknown(1)])[self.memory.number_of(np.array(after))]
        return replace(self, memory=memory, scores=scores)

    def view(self, agent: str, common: Common) -> View:
        """How this agent's trips are seen, one agent at a time."""
        config, context = common.view, replace(common.context, utc_offset=self.utc_offset)
        encoder = FamiliarityEncoder(self.memory, config.habits, config.lags, self.utc_offset)
        return View(config, self.projection, encoder, context, common.haunts.seen_by(agent))


def _unknown(n: int) -> OwnScores:
    return np.full((n, 2), np.nan, np.float32)


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
            "trips.scores": whole(lambda m: m.scores, _unknown(0)),
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
    scores = model.array("trips.scores", np.float32, len(ids), 2) if "trips.scores" in model.arrays else None
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
        own = _unknown(len(memory)) if scores is None else scores[t]
        members[agent] = Member(Projection(*centre[i].tolist()), float(utc_offset[i]), memory, ways, own)
    return members
