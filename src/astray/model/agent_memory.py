"""What a model knows of one agent, and what all agents of a model share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.projection import Projection
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.core.zones import Zone
from astray.features.context import Context
from astray.features.encoders import FamiliarityEncoder
from astray.features.familiarity import Frame
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.memory import Memory
from astray.features.popularity import NO_KEYS, Keys, Popularity, Visits
from astray.irl.shared import Reward
from astray.model.inbox import Inbox, ObservingConfig
from astray.scoring.own_scale import OwnScale, OwnScores, own_scale
from astray.scoring.scale_config import ScaleConfig

Array = NDArray[Any]
Degrees = tuple[Array, Array]

RECENT = 300  # the newest trips of an agent that are kept as they are, and set its scale
COARSE = {"time": 1e3, "lat": 1e7, "lon": 1e7}  # precision of kept trips: milliseconds and centimetres
FINE = {"time": 1e6, "lat": 1e11, "lon": 1e11}  # precision of thinned trips, whose fixes were computed
CENTRES = 2.0, 1.0  # map origins for each degree of latitude, and of longitude
SOLAR_SECONDS = 240.0  # the sun rises that much earlier a degree further east
FARTHEST = 89.0  # the highest latitude of an origin, in degrees: at a pole there is no east


def centre_of(lat: float, lon: float) -> Projection:
    """Returns the origin of the map of a trip that starts here: the nearest point of a fixed grid over the earth.

    It does not depend on the agent's other trips, so trips give the same counts however they are split into batches.

    >>> centre_of(45.3, 7.6), centre_of(45.2, 7.4)
    (Projection(lat=45.5, lon=8.0), Projection(lat=45.0, lon=7.0))
    """
    north = min(max(round(lat * CENTRES[0]) / CENTRES[0], -FARTHEST), FARTHEST)
    return Projection(north, round(lon * CENTRES[1]) / CENTRES[1])


def centres(trips: Trajectories) -> list[Projection]:
    """Returns the origin of each trip's map."""
    first = trips.offsets[:-1]
    return [
        centre_of(*place) for place in zip(*(trips.columns[c][first].tolist() for c in ("lat", "lon")), strict=True)
    ]


def started(trips: Trajectories) -> list[tuple[float, str]]:
    """Returns the start and the name of each trip, by which an agent's trips are sorted."""
    starts = trips.columns["time"][trips.offsets[:-1]].tolist()
    return list(zip(starts, trips.trajectory_ids.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Common:
    """What all agents of a model share."""

    featurizer: FeaturizerConfig
    context: Context
    reward: Reward
    weights: tuple[float, ...]  # how much each aspect of the reward counts
    popularity: Popularity = field(default_factory=Popularity)
    scaling: ScaleConfig = ScaleConfig()
    observing: ObservingConfig = ObservingConfig()

    def frame_at(self, centre: Projection) -> Frame:
        """Returns the frame of trips that begin near this origin."""
        # Solar time, which differs a little with every degree: the border of a whole-hour zone would split habits.
        offset = self.featurizer.utc_offset
        return Frame(centre, SOLAR_SECONDS * centre.lon if offset is None else offset)

    def seen_from(self, frame: Frame, memory: Memory, popularity: Popularity) -> Featurizer:
        """Returns the featurizer of trips in a frame, with this memory and popularity."""
        config = self.featurizer
        encoder = FamiliarityEncoder(memory, config.habits, config.lags, frame)
        context = replace(self.context, utc_offset=frame.utc_offset)
        return Featurizer(config, frame.projection, encoder, context, popularity)


@dataclass(frozen=True, eq=False)
class AgentMemory:
    """What a model knows of one agent, or of one pool of agents: the only state of an agent.

    Attributes
    ----------
    counts
        The trips that are remembered, as sparse counts.
    kept
        Some of these trips, to measure, to show and to learn from later; None if there are none. With a ``frame`` they
        are a thinned sample, otherwise the newest trips as they are, in the order of time.
    own
        The scores of the remembered trips, each by the trips before it. A trip that is learned one by one keeps the
        score that it got then.
    measured
        True if ``own`` was measured after the last change of the counts.
    inbox
        Flagged trips that the model has not learned from.
    cells
        The grid cells in which the popularity of places counts this agent.
    zone
        The time zone in which the agent lives.
    frame
        The origin of its map, and local time there; None if each trip has the frame of the place where it begins.
    suspects
        Past trips that look like somebody else's; the model does not remember them.
    """

    counts: Memory = field(default_factory=Memory)
    kept: Trajectories | None = None
    own: OwnScores = field(default_factory=OwnScores)
    measured: bool = True
    inbox: Inbox = field(default_factory=Inbox)
    cells: Keys = field(default_factory=lambda: NO_KEYS)
    zone: Zone | None = None
    frame: Frame | None = None
    suspects: tuple[TripId, ...] = ()

    @classmethod
    def blank(cls, common: Common) -> AgentMemory:
        """Returns the memory of an unknown agent."""
        counts = Memory(forgetting=common.featurizer.forgetting)
        return cls(counts, inbox=Inbox(tokens=common.observing.tokens))

    @property
    def history(self) -> float:
        """The sum of the weights of the remembered trips."""
        # On a copy, here and below: the look-up tables that a memory caches are larger than the memory.
        return replace(self.counts).history

    @property
    def nbytes(self) -> int:
        """The approximate size in bytes."""
        fixes = 0 if self.kept is None else self.kept.n_rows
        return 12 * len(self.counts.keys) + 24 * fixes + 8 * len(self.cells) + 300 * len(self.counts) + 2_000

    @property
    def is_pool(self) -> bool:
        """True if several agents made the trips."""
        return len({trip.agent for trip in self.counts.trip_ids}) > 1

    @property
    def learned(self) -> set[TripId]:
        """The trips that the model was given to learn from: remembered ones, and suspects."""
        return {*self.counts.trip_ids, *self.suspects}

    def with_counts(self, counts: Memory) -> AgentMemory:
        """Returns the memory after trips were added or forgotten; the trips that stayed keep their scores."""
        ordered = counts.ordered()
        own = self.own.follow(replace(self.counts), replace(ordered))
        kept = self.kept
        if kept is not None:
            kept = kept[kept.isin(ordered.trip_ids)]
        return replace(self, counts=ordered, own=own, kept=kept if kept is not None and len(kept) else None)

    def forget(self, trips: Iterable[TripId]) -> AgentMemory:
        """Returns the memory without these trips."""
        return self.with_counts(self.counts.remove(trips))

    def keeping(self, trips: Trajectories, common: Common) -> AgentMemory:
        """Returns the memory that keeps the newest among these trips and those that it kept."""
        if self.frame is not None:  # keeps the sample that it was fitted on
            return self
        known = as_kept(trips[trips.isin(self.counts.trip_ids)], common.featurizer)
        both = [t for t in (self.kept, known) if t is not None and len(t)]
        if not both:
            return self
        together = Trajectories.concat(both)
        when = started(together)
        order = sorted(range(len(when)), key=when.__getitem__)[-RECENT:]
        return replace(self, kept=together[np.array(order)])

    def frame_of(self, common: Common, centre: Projection | None = None) -> Frame:
        """Returns the frame at this origin; by default at the origin of the last kept trip."""
        if self.frame is not None:
            return self.frame
        if centre is None:
            centre = centre_of(0.0, 0.0) if self.kept is None else centres(self.kept[-1:])[0]
        return common.frame_at(centre)

    def featurizer(self, agent: str, common: Common, centre: Projection | None = None) -> Featurizer:
        """Returns the featurizer of this agent's trips that begin near an origin."""
        popularity = common.popularity
        if isinstance(popularity.agents, Visits):
            visits = Visits(popularity.agents.counted, agent, self.cells)
            popularity = Popularity(popularity.cells, visits, agent)
        elif not self.is_pool:
            popularity = popularity.excluding(agent)
        return common.seen_from(self.frame_of(common, centre), self.counts, popularity)

    def scale(self, common: Common) -> OwnScale:
        """Returns the scales of the agent's scores."""
        return own_scale(common.reward, common.weights, self.own, self.history, common.scaling)

    def is_stale(self, began: float, scaling: ScaleConfig) -> bool:
        """Returns True for a trip that began long after the newest remembered one: the life may have gone on unseen."""
        times = self.counts.times
        return bool(len(times)) and began > times.max() + scaling.stale_after


def as_kept(trips: Trajectories, config: FeaturizerConfig, precision: Mapping[str, float] = COARSE) -> Trajectories:
    """Rounds trips to the precision of a file, and drops context columns that the featurizer does not use."""
    columns = {name: np.rint(trips.columns[name] * per) / per for name, per in precision.items()}
    context = {name: trips.context[name] for name in (*config.context.numeric, *config.context.categorical)}
    return Trajectories.unchecked(columns, trips.offsets, trips.agent_ids, trips.trajectory_ids, context)
