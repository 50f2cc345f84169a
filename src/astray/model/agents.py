"""The members of a fleet: what it knows of each agent, and what all of them share; also as a row of its file."""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from astray.features.memory import Forgetting, Memory
from astray.features.popularity import NO_KEYS, Counted, Keys, Popularity, Visits
from astray.irl.shared import Reward
from astray.model.compact import (
    KEYS,
    POSTINGS,
    TEXTS,
    as_postings,
    as_rising,
    as_texts,
    pack_arrays,
    postings,
    rising,
    texts,
    unpack_arrays,
)
from astray.model.inbox import Inbox, ObservingConfig, flags_of, postings_by_trip
from astray.model.store import Row
from astray.scoring.normality import Location
from astray.scoring.own_scale import OwnScale, OwnScores, own_scale
from astray.scoring.scale_config import ScaleConfig

Array = NDArray[Any]
Degrees = tuple[Array, Array]

RECENT = 300  # of an agent's trips, the newest, are kept as they are, and set its scale
PER_DEGREE, PER_SECOND = 1e7, 1e3  # of what is kept of them: centimetres and milliseconds
CENTRES = 2.0, 1.0  # to a degree of latitude and of longitude: where metres begin
SOLAR_SECONDS = 240.0  # that the sun is earlier a degree further east
FARTHEST = 89.0  # degrees of latitude: at a pole there is no east


def centre_of(lat: float, lon: float) -> Projection:
    """Where the metres of a trip begin that starts here: the next of a few places all over the earth.

    It depends on the trip alone, not on what else is known of its agent: so the same trips give the same counts,
    however they come.

    >>> centre_of(45.3, 7.6), centre_of(45.2, 7.4)
    (Projection(lat=45.5, lon=8.0), Projection(lat=45.0, lon=7.0))
    """
    north = min(max(round(lat * CENTRES[0]) / CENTRES[0], -FARTHEST), FARTHEST)
    return Projection(north, round(lon * CENTRES[1]) / CENTRES[1])


def centres(trips: Trajectories) -> list[Projection]:
    """Where the metres of each trip begin."""
    first = trips.offsets[:-1]
    return [
        centre_of(*place) for place in zip(*(trips.columns[c][first].tolist() for c in ("lat", "lon")), strict=True)
    ]


def started(trips: Trajectories) -> list[tuple[float, str]]:
    """When each trip began, and its name: by this trips of an agent are in order."""
    starts = trips.columns["time"][trips.offsets[:-1]].tolist()
    return list(zip(starts, trips.trajectory_ids.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Common:
    """What all agents of a fleet share: how trips are seen, what rewards them, and how popular places are."""

    featurizer: FeaturizerConfig
    context: Context
    reward: Reward
    weights: tuple[float, ...]  # of the aspects that are asked about
    counted: Counted = field(default_factory=Counted)  # how many of them have been where
    scaling: ScaleConfig = ScaleConfig()
    observing: ObservingConfig = ObservingConfig()

    def seen_from(self, centre: Projection, memory: Memory, popularity: Popularity) -> Featurizer:
        """How trips that begin near a place are seen by an agent who remembers this."""
        config = self.featurizer
        # By the sun, a little later every degree: whole hours would split a habit where one ends and the next begins.
        offset = SOLAR_SECONDS * centre.lon if config.utc_offset is None else config.utc_offset
        encoder = FamiliarityEncoder(memory, config.habits, config.lags, Frame(centre, offset))
        return Featurizer(config, centre, encoder, replace(self.context, utc_offset=offset), popularity)


@dataclass(frozen=True, eq=False)
class Member:
    """What a fleet knows of one agent.

    Attributes
    ----------
    memory
        The trips that are remembered, in the order of time.
    recent
        The newest of them as they are, in the order of time, to measure and to show; None if there are none.
    own
        What they score, each left out of the memory.
    measured
        Whether that was measured since the memory changed.
    inbox
        Flagged trips that nothing was learned from.
    cells
        Where the agent counts among those that others are compared with.
    zone
        By which clocks it lives.
    ways
        Some of its ways (lat, lon), where an earlier version kept no trips.
    """

    memory: Memory = field(default_factory=Memory)
    recent: Trajectories | None = None
    own: OwnScores = field(default_factory=OwnScores)
    measured: bool = True
    inbox: Inbox = field(default_factory=Inbox)
    cells: Keys = field(default_factory=lambda: NO_KEYS)
    zone: Zone | None = None
    ways: tuple[Degrees, ...] = ()

    @classmethod
    def blank(cls, config: FeaturizerConfig) -> Member:
        """Somebody of whom nothing is known."""
        return cls(Memory(forgetting=config.forgetting))

    @property
    def history(self) -> float:
        """The number of trips that stand behind the counts, by weight."""
        # Of a copy, here and below: what a memory keeps ready for look-ups would be larger than the memory.
        return replace(self.memory).history

    @property
    def nbytes(self) -> int:
        """The room that it takes, about."""
        fixes = 0 if self.recent is None else self.recent.n_rows
        return 12 * len(self.memory.keys) + 24 * fixes + 8 * len(self.cells) + 300 * len(self.memory) + 2_000

    @property
    def home(self) -> Projection:
        """Where its last trip began: the centre where no trip is given."""
        if self.recent is not None:
            return centres(self.recent[-1:])[0]
        lat, lon = (float(self.ways[-1][i][0]) for i in (0, 1)) if self.ways else (0.0, 0.0)
        return centre_of(lat, lon)

    def with_memory(self, memory: Memory) -> Member:
        """The same member after some trips were added or forgotten; what stayed has the scores that it had."""
        ordered = memory.ordered()
        own = self.own.follow(replace(self.memory), replace(ordered))
        recent = self.recent
        if recent is not None:
            recent = recent[recent.isin(ordered.trip_ids)]
        kept = recent if recent is not None and len(recent) else None
        return replace(self, memory=ordered, own=own, recent=kept)

    def keeping(self, trips: Trajectories, common: Common) -> Member:
        """The same member with the newest of these trips and of those that it kept; all are in the memory."""
        known = as_kept(trips[trips.isin(self.memory.trip_ids)], common.featurizer)
        both = [t for t in (self.recent, known) if t is not None and len(t)]
        if not both:
            return self
        together = Trajectories.concat(both)
        when = started(together)
        order = sorted(range(len(when)), key=when.__getitem__)[-RECENT:]
        return replace(self, recent=together[np.array(order)])

    def featurizer(self, agent: str, common: Common, centre: Projection | None = None) -> Featurizer:
        """How this agent's trips are seen, those that begin in one place; by default where the last one did."""
        visits = Visits(common.counted, agent, self.cells)
        popularity = Popularity(common.featurizer.popularity, visits, agent)
        return common.seen_from(centre or self.home, self.memory, popularity)

    def scale(self, common: Common) -> OwnScale:
        """What its trips are measured on."""
        return own_scale(common.reward, common.weights, self.own, self.history, common.scaling)


def as_kept(trips: Trajectories, config: FeaturizerConfig) -> Trajectories:
    """Trips as they are kept: to the centimetre and the millisecond, with the context that the featurizer looks at."""
    rounded = {"time": PER_SECOND, "lat": PER_DEGREE, "lon": PER_DEGREE}
    columns = {name: np.rint(trips.columns[name] * per) / per for name, per in rounded.items()}
    context = {name: trips.context[name] for name in (*config.context.numeric, *config.context.categorical)}
    return Trajectories._trusted(columns, trips.offsets, trips.agent_ids, trips.trajectory_ids, context)


# -------------------------------------------------------------------- as a row of a file


_NAMED_KEYS = (*TEXTS, *TEXTS, np.float64, np.uint32, *KEYS)  # trips that wait, or that were rejected
_MEMBER = (
    *(np.float64, np.int64),  # the numbers of the member
    *(*TEXTS, np.float64, *POSTINGS),  # the memory
    np.float32,  # scores
    *(np.uint32, np.uint32, np.int64, np.int64, np.int64),  # kept trips: which, how many fixes, time, lat, lon
    *KEYS,  # cells
    *_NAMED_KEYS,
    *_NAMED_KEYS,
    *(np.uint32, np.float32, np.float32),  # ways
    np.uint8,  # the rest, as JSON
)


@dataclass(frozen=True)
class Codec:
    """How members are written to a fleet's file and read from it."""

    forgetting: Forgetting
    aspects: int
    context: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # columns of trips, numbers and texts, that are kept

    @classmethod
    def of(cls, config: FeaturizerConfig, reward: Reward) -> Codec:
        """That of a fleet."""
        return cls(config.forgetting, len(reward.aspects), (config.context.numeric, config.context.categorical))

    def row(self, member: Member) -> Row:
        """A member as a row of the file."""
        return self.glance(member)._replace(data=self.pack(member))

    @staticmethod
    def glance(member: Member) -> Row:
        """The same without what is known of it: what the directory says."""
        times = member.memory.times
        first, last = (float(times.min()), float(times.max())) if len(times) else (np.nan, np.nan)
        waiting = bool(len(member.inbox.waiting) or member.inbox.asked)
        return Row(b"", len(member.memory), first, last, waiting, str(member.zone or ""))

    def pack(self, member: Member) -> bytes:
        """A member as bytes."""
        memory, inbox, step = member.memory, member.inbox, member.own.step
        scores = member.own.of_aspects(self.aspects)
        asked = [[list(trip) for trip in group] for group in inbox.asked]
        rest: dict[str, Any] = {"zone": str(member.zone or ""), "asked": asked}
        kept = member.recent
        if kept is not None and any(self.context):
            numeric, categorical = self.context
            rest["numbers"] = {name: kept.context[name].astype(float).tolist() for name in numeric}
            rest["texts"] = {name: kept.context[name].astype(str).tolist() for name in categorical}
        numbers = [*(step or (np.nan, np.nan)), inbox.tokens]
        arrays = [
            np.array(numbers, np.float64),
            np.array([inbox.bits, member.measured], np.int64),
            *texts(trip.trajectory for trip in memory.trip_ids),
            memory.times,
            *postings(memory.keys, memory.trips),
            scores.reshape(-1),
            *self._pack_recent(member),
            rising(member.cells),
            *_pack_named(inbox.waiting),
            *_pack_named(inbox.rejected),
            np.array([len(lat) for lat, _ in member.ways], np.uint32),
            *(np.concatenate([np.zeros(0), *(w[i] for w in member.ways)]).astype(np.float32) for i in (0, 1)),
            np.frombuffer(json.dumps(rest, separators=(",", ":"), allow_nan=False).encode(), np.uint8),
        ]
        return pack_arrays(arrays)

    @staticmethod
    def _pack_recent(member: Member) -> list[Array]:
        kept = member.recent
        if kept is None:
            return [np.zeros(0, t) for t in (np.uint32, np.uint32, np.int64, np.int64, np.int64)]
        which = replace(member.memory).number_of(kept.ids)
        columns = (("time", PER_SECOND), ("lat", PER_DEGREE), ("lon", PER_DEGREE))
        whole = [np.rint(kept.columns[name] * per).astype(np.int64) for name, per in columns]
        return [which.astype(np.uint32), kept.lengths.astype(np.uint32), *(np.diff(v, prepend=0) for v in whole)]

    def unpack(self, agent: str, data: bytes) -> Member:
        """The member that :meth:`pack` packed; ``ValueError`` if it is not one."""
        parts = iter(unpack_arrays(data, _MEMBER))

        def take(n: int) -> list[Array]:
            return [next(parts) for _ in range(n)]

        numbers, bits = take(2)
        if len(numbers) != 3 or len(bits) != 2 or bits[0] < 1 or bits[1] not in (0, 1) or not np.isfinite(numbers[2]):
            raise ValueError("its numbers are not those of an agent")
        names = as_texts(take(2))
        (times,) = take(1)
        n = len(names)
        if len(times) != n or not np.isfinite(times).all() or len(set(names)) < n:
            raise ValueError("its trips do not fit together")
        ids = tuple(TripId(agent, name) for name in names)
        memory = Memory(ids, times, *as_postings(take(3), n), self.forgetting)
        own = self._own(take(1)[0], n, numbers[:2])
        recent, (cells,) = take(5), take(1)
        inbox = Inbox(
            _unpack_named(take(7)),
            _unpack_named(take(7)),
            tokens=float(numbers[2]),
            flags=flags_of(int(bits[0])),
        )
        lengths, lat, lon = take(3)
        if len(lat) != len(lon) or lengths.sum(dtype=np.int64) != len(lat):
            raise ValueError("its ways do not fit together")
        cuts = np.cumsum(lengths)[:-1]
        pairs = zip(np.split(lat.astype(float), cuts), np.split(lon.astype(float), cuts), strict=True)
        ways = tuple(pairs) if len(lengths) else ()
        rest = json.loads(take(1)[0].tobytes())
        asked = tuple(tuple(TripId(str(a), str(t)) for a, t in group) for group in rest["asked"])
        return Member(
            memory,
            self._unpack_recent(agent, memory, recent, rest),
            own,
            bool(bits[1]),
            replace(inbox, asked=asked),
            as_rising(cells),
            Zone.of(rest["zone"]) if rest["zone"] else None,
            ways,
        )

    def _own(self, scores: Array, n: int, step: Array) -> OwnScores:
        if len(scores) != n * 2 * self.aspects or (np.isnan(step).any() and not np.isnan(step).all()):
            raise ValueError("its scores are not one for each trip")
        location = None if np.isnan(step).any() else Location(*step.tolist())
        return OwnScores(scores.reshape(n, 2, self.aspects), location)

    def _unpack_recent(
        self, agent: str, memory: Memory, recent: Sequence[Array], rest: dict[str, Any]
    ) -> Trajectories | None:
        which, lengths, *columns = recent
        n_fixes = int(lengths.sum(dtype=np.int64))
        if (
            len(which) != len(lengths)
            or any(len(c) != n_fixes for c in columns)
            or (len(which) and which.max() >= len(memory))
        ):
            raise ValueError("its trips do not fit together")
        if not len(which):
            return None
        time, lat, lon = (
            np.cumsum(c) / per for c, per in zip(columns, (PER_SECOND, PER_DEGREE, PER_DEGREE), strict=True)
        )
        context: dict[str, Array] = {}
        if any(self.context):
            context = {name: np.array(rest["numbers"][name], np.float64) for name in self.context[0]}
            context |= {name: np.array(rest["texts"][name], np.str_) for name in self.context[1]}
        names = [memory.trip_ids[i].trajectory for i in which.tolist()]
        offsets = np.cumsum(np.r_[0, lengths.astype(np.int64)])
        later = np.diff(time, prepend=time[:1])
        later[offsets[:-1][lengths > 0]] = 0.0
        possible = (
            (lengths > 0).all() and (later >= 0).all() and (np.abs(lat) <= 90).all() and (np.abs(lon) <= 360).all()
        )
        if not possible or any(len(values) != len(names) for values in context.values()):
            raise ValueError("its trips are none that anybody can make")
        whose = np.full(len(names), agent)
        return Trajectories._trusted({"time": time, "lat": lat, "lon": lon}, offsets, whose, np.array(names), context)


def _pack_named(memory: Memory) -> list[Array]:
    """Trips that wait or were rejected: their names, times and keys."""
    keys, sizes = postings_by_trip(memory)
    return [
        *texts(trip.agent for trip in memory.trip_ids),
        *texts(trip.trajectory for trip in memory.trip_ids),
        memory.times,
        sizes.astype(np.uint32),
        keys,
    ]


def _unpack_named(arrays: Sequence[Array]) -> Memory:
    agents, trajectories = as_texts(arrays[:2]), as_texts(arrays[2:4])
    times, sizes, keys = arrays[4:]
    if len({len(agents), len(trajectories), len(times), len(sizes)}) > 1 or sizes.sum(dtype=np.int64) != len(keys):
        raise ValueError("its waiting trips do not fit together")
    ids = [TripId(*names) for names in zip(agents, trajectories, strict=True)]
    if len(set(ids)) < len(ids) or not np.isfinite(times).all():
        raise ValueError("its waiting trips do not fit together")
    cut = np.split(keys, np.cumsum(sizes)[:-1]) if len(ids) else []
    return Memory().add(dict(zip(ids, cut, strict=True)), dict(zip(ids, times.tolist(), strict=True)))
