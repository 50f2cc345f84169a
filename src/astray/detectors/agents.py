"""The members of a fleet: what it knows of each agent, and what all of them share; in memory and in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.detectors.inbox import Inbox, ObservingConfig, pack_inboxes, unpack_inboxes
from astray.features.context import Context
from astray.features.encoders import FamiliarityEncoder
from astray.features.familiarity import Frame
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.memory import Memory
from astray.features.popularity import Popularity
from astray.features.projection import Projection
from astray.irl.shared import Reward
from astray.scoring.config import ScaleConfig
from astray.scoring.normality import Calibration, Location
from astray.scoring.own_scale import OwnScores, own_calibration
from astray.storage import ModelFile, pack_text
from astray.storage.parts import Packed, sound
from astray.trajectories import Trajectories
from astray.trip_ids import TripId
from astray.zones import Zone, by_place, home_of

Array = NDArray[Any]
XY = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Common:
    """What all agents of a fleet share: how trips are seen, what rewards them, and how popular places are."""

    featurizer: FeaturizerConfig
    context: Context
    reward: Reward
    weights: tuple[float, ...]  # of the aspects that are asked about
    popularity: Popularity = field(default_factory=Popularity)
    scaling: ScaleConfig = ScaleConfig()
    observing: ObservingConfig = ObservingConfig()


@dataclass(frozen=True, eq=False)
class Member:
    """What a fleet knows of one agent: where it lives, what it remembers, how that scores, and some of its ways."""

    projection: Projection
    utc_offset: float
    memory: Memory = field(default_factory=Memory)
    ways: tuple[XY, ...] = ()  # metres, the last ones
    own: OwnScores = field(default_factory=OwnScores)  # of the remembered trips, each left out
    inbox: Inbox = field(default_factory=Inbox)  # flagged trips that nothing was learned from
    zone: Zone | None = None  # by which clocks it lives

    @classmethod
    def of(cls, trips: Trajectories, config: FeaturizerConfig) -> Member:
        """A member centred on its first trips, with nothing remembered."""
        return replace(cls.around(trips.columns["lat"], trips.columns["lon"], config), zone=home_of(trips))

    @classmethod
    def around(cls, lat: Array, lon: Array, config: FeaturizerConfig) -> Member:
        """A member centred on some fixes, with nothing remembered."""
        projection = Projection.centred_on(lat, lon)
        offset = projection.solar_offset if config.utc_offset is None else config.utc_offset
        return cls(projection, offset, Memory(forgetting=config.forgetting))

    @property
    def history(self) -> float:
        """The number of trips that stand behind the counts, by weight."""
        # Of a copy, here and below: what a memory keeps ready for look-ups would be larger than the memory.
        return replace(self.memory).history

    @property
    def frame(self) -> Frame:
        """Where its metres begin, and what local time is there."""
        return Frame(self.projection, self.utc_offset)

    def with_memory(self, memory: Memory) -> Member:
        """The same member after some trips were added or forgotten; what stayed has the scores that it had."""
        return replace(self, memory=memory, own=self.own.follow(replace(self.memory), memory))

    def featurizer(self, agent: str, common: Common) -> Featurizer:
        """How this agent's trips are seen, one agent at a time."""
        config, context = common.featurizer, replace(common.context, utc_offset=self.utc_offset)
        encoder = FamiliarityEncoder(self.memory, config.habits, config.lags, self.frame)
        return Featurizer(config, self.projection, encoder, context, common.popularity.excluding(agent))

    def calibration(self, common: Common, unfinished: bool = False) -> Calibration:
        """What its trips are measured on."""
        of = (common.reward, common.weights, self.own, self.history)
        return own_calibration(*of, common.scaling, unfinished=unfinished)


# -------------------------------------------------------------------- as a file holds them


def pack_members(members: Mapping[str, Member], aspects: int) -> Packed:
    """All memories, one after the other, with offsets; nothing is copied."""
    everybody = list(members.values())
    ways = [w for m in everybody for w in m.ways]

    def offsets(counts: Iterable[int]) -> NDArray[np.int64]:
        return np.cumsum([0, *counts], dtype=np.int64)

    def whole(part: Callable[[Member], Array], blank: Array) -> list[Array]:
        return [part(m) for m in everybody] or [blank]

    inboxes = pack_inboxes("inbox", [m.inbox for m in everybody])
    return Packed(
        inboxes.values,
        {
            **inboxes.arrays,
            **pack_text("agents", list(members)),
            **pack_text("trips.trajectories", [t.trajectory for m in everybody for t in m.memory.trip_ids]),
            "agents.centre": np.array([[m.projection.lat, m.projection.lon] for m in everybody]).reshape(-1, 2),
            **pack_text("agents.zone", [str(m.zone or "") for m in everybody]),
            "agents.utc_offset": np.array([m.utc_offset for m in everybody], np.float64),
            "agents.trips": offsets(len(m.memory) for m in everybody),
            "agents.postings": offsets(len(m.memory.keys) for m in everybody),
            "agents.ways": offsets(len(m.ways) for m in everybody),
            "trips.times": whole(lambda m: m.memory.times, np.zeros(0)),
            "trips.scores": whole(lambda m: m.own.of_aspects(aspects), OwnScores.unknown(0, aspects).trips),
            "agents.step": np.array([m.own.step or (np.nan, np.nan) for m in everybody]).reshape(-1, 2),
            "postings.keys": whole(lambda m: m.memory.keys, np.zeros(0, np.uint64)),
            "postings.trips": whole(lambda m: m.memory.trips, np.zeros(0, np.int32)),
            "ways.points": offsets(len(w) for w in ways),
            "ways.xy": ways or np.zeros((0, 2), np.float32),
        },
    )


def unpack_members(model: ModelFile, config: FeaturizerConfig, aspects: int) -> dict[str, Member]:
    """The members that :func:`pack_members` packed."""
    agents = model.text("agents")
    n = len(agents)
    centre = model.array("agents.centre", np.float64, n, 2)
    utc_offset = model.array("agents.utc_offset", np.float64, n)
    zones = model.text("agents.zone", n) if "agents.zone.ends" in model.arrays else [""] * n  # of an earlier version
    glued = "trips.ids.utf8" in model.arrays  # up to version 4: agent/trajectory
    names = model.text("trips.ids" if glued else "trips.trajectories")
    times = model.array("trips.times", np.float64, len(names))
    scores = model.array("trips.scores", np.float32, len(names), 2, aspects, gaps=True)
    step = model.array("agents.step", np.float64, n, 2, gaps=True)
    keys = model.array("postings.keys", np.uint64, None)
    trips = model.array("postings.trips", np.int32, len(keys))
    xy = model.array("ways.xy", np.float32, None, 2)
    points = model.offsets("ways.points", len(xy))
    of_trips = model.offsets("agents.trips", len(names), n)
    of_postings = model.offsets("agents.postings", len(keys), n)
    of_ways = model.offsets("agents.ways", len(points) - 1, n)
    inboxes = unpack_inboxes(model, "inbox", n)
    members = {}
    for i, agent in enumerate(agents):
        t, p, w = (slice(int(o[i]), int(o[i + 1])) for o in (of_trips, of_postings, of_ways))
        ids = tuple(TripId(agent, name[len(agent) + 1 :] if glued else name) for name in names[t])
        memory = Memory(ids, times[t], keys[p], trips[p], config.forgetting)
        if not sound(memory.keys, memory.trips, len(memory)):
            raise model.wrong(f"the memory of agent {agent!r} is not sorted, or speaks of trips that are not there")
        ways = tuple(xy[points[k] : points[k + 1]] for k in range(w.start, w.stop))
        own = OwnScores(scores[t], None if np.isnan(step[i]).any() else Location(*step[i].tolist()))
        place = Projection(*centre[i].tolist())
        zone = Zone.of(zones[i]) if zones[i] else by_place(place.lat, place.lon)
        members[agent] = Member(place, float(utc_offset[i]), memory, ways, own, inboxes[i], zone)
    return members
