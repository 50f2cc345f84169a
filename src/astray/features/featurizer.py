"""The featurizer, which turns an agent's fixes into the inputs of its reward. It does not need torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.core.faults import FaultRules
from astray.core.projection import Projection
from astray.core.trajectories import Trajectories
from astray.core.trip_ids import TripId
from astray.features.context import Context, ContextSpec
from astray.features.encoders import WAVES, Encoder, FamiliarityEncoder, FourierEncoder, RawEncoder
from astray.features.familiarity import DEFAULT_HABITS, DEFAULT_LAGS, GRIDS, Frame, Habit, familiarity, keys_of
from astray.features.memory import Forgetting, Memory
from astray.features.moves import moves_of, remembered
from astray.features.normal_scores import StepScores
from astray.features.paths import of_trips, paths_of, resample, trace
from astray.features.popularity import Popularity
from astray.features.statistics import Statistic, statistics, statistics_of
from astray.features.steps import Step, Steps, chosen, looked_at, steps_of
from astray.features.trip_looks import statistics_at
from astray.features.trip_rows import TRIP_HABITS, TripRows

Array = NDArray[Any]

ENCODERS = ("familiarity", "fourier", "raw")
LEAST = 1e-3  # seconds or metres, the smallest valid setting: no receiver is more precise


@dataclass(frozen=True)
class FeaturizerConfig:
    """The settings for turning fixes into features."""

    encoder: str = "familiarity"  # 'familiarity', 'fourier', or the paper's 'raw'
    interval: float = 15.0  # seconds between two steps of a trip, over which velocities are measured
    habits: tuple[Habit, ...] = DEFAULT_HABITS  # of the familiarity encoder
    lags: tuple[float, ...] = DEFAULT_LAGS  # seconds by which habits with a trail look back
    trace_interval: float = 10.0  # seconds between the points of a trip that the memory counts
    trace_spacing: float = 100.0  # metres, at most, between those points
    popularity: tuple[float, ...] = (150.0, 500.0)  # metres: sizes of the cells in which other agents are counted
    window: float = 120.0  # seconds of the least and of the most familiar part of a trip
    faults: FaultRules = FaultRules()
    forgetting: Forgetting = Forgetting()
    context: ContextSpec = ContextSpec()
    utc_offset: float | None = None  # seconds by which local time is ahead of UTC; None: by the longitude

    def __post_init__(self) -> None:
        for name in ("interval", "trace_interval", "trace_spacing", "window"):
            if not getattr(self, name) >= LEAST:
                raise DataError(f"{name} is {getattr(self, name)}", remedy=f"give at least {LEAST}")
        if not {Habit(cell=size) for size in self.popularity} <= set(self.habits):
            raise DataError(
                f"popularity has cells of {self.popularity} metres, but not every size has a habit",
                remedy="give sizes of cells that habits have, or ()",
            )
        if any(h.trail is not None and not 0 <= h.trail < len(self.lags) for h in self.habits):
            raise DataError(
                f"a habit looks back by a lag that is not among the {len(self.lags)} lags", remedy="add it there"
            )

    @property
    def window_rows(self) -> int:
        """Returns the number of rows in a window, at least one."""
        return max(1, round(self.window / self.interval))


INTERVALS = (15.0, 30.0)
"""The least and the greatest interval in seconds; a shorter one takes longer without better scores."""


def sampling_interval(trips: Trajectories) -> float:
    """Returns the interval between steps for these trips: the median seconds between fixes, within :data:`INTERVALS`.

    >>> every_20_s = Trajectories.from_fixes(time=np.arange(9) * 20.0, lat=np.zeros(9), lon=np.zeros(9))
    >>> sampling_interval(every_20_s)
    20.0
    """
    apart = np.diff(trips.columns["time"])[np.diff(trips.trajectory_of_row) == 0]
    return float(np.clip(np.median(apart), *INTERVALS)) if len(apart) else INTERVALS[0]


@dataclass(frozen=True, eq=False)
class Prepared:
    """Trips that are already projected, cleaned and cut into steps."""

    trips: Trajectories
    paths: Trajectories  # in metres, without faulty fixes, with their context
    steps: Steps  # about one per interval

    def __getitem__(self, trips: Array) -> Prepared:
        """Returns some of the trips, by their positions in rising order."""
        number = np.full(len(self.trips), -1)
        number[trips] = np.arange(len(trips))
        steps = self.steps[number[self.steps.trip] >= 0]
        steps = replace(steps, trip=number[steps.trip])
        return Prepared(self.trips[trips], of_trips(self.paths, trips), steps)


class Featurized(NamedTuple):
    """The features of fixes: one row for every good fix, or about one per interval."""

    features: NDArray[np.float32]
    steps: Steps
    row: NDArray[np.int64]  # the position of the row's fix in the input
    weight: NDArray[np.float64]  # the row's weight in its trip's mean, in seconds
    fault: NDArray[np.int8]  # one for each fix of the input: 0, or the number of its fault
    statistics: NDArray[np.float32] | None = None  # (trips, statistics); None without a memory


@dataclass(frozen=True, eq=False)
class Featurizer:
    """Turns an agent's fixes into features; holds a projection, an encoder with its memory, a context, a popularity.

    >>> trips = Trajectories.from_fixes(time=np.arange(100) * 10, lat=45 + np.arange(100) * 1e-4, lon=np.full(100, 7.0))
    >>> featurizer = Featurizer.of(trips, FeaturizerConfig(), np.random.default_rng(0)).remember(trips)
    >>> featurized = featurizer.featurize(trips)
    >>> featurized.features.shape[0], len(featurizer.names) == featurized.features.shape[1]
    (100, True)
    """

    config: FeaturizerConfig
    projection: Projection
    encoder: Encoder
    context: Context = field(default_factory=Context)
    popularity: Popularity = field(default_factory=Popularity)

    @classmethod
    def of(
        cls, fixes: Trajectories, config: FeaturizerConfig, rng: np.random.Generator, encoder: Encoder | None = None
    ) -> Featurizer:
        """Makes a featurizer with an empty memory, centred on some fixes; ``encoder`` replaces the configured one."""
        if not fixes.holds("time", "lat", "lon"):
            raise DataError(
                "these trajectories have no columns time, lat and lon",
                remedy="use a StepDemonstrator for states and actions",
            )
        if not len(fixes):
            raise DataError("no trajectories were given", remedy="give at least one")
        projection = Projection.centred_on(fixes.columns["lat"], fixes.columns["lon"])
        offset = projection.solar_offset if config.utc_offset is None else config.utc_offset
        if encoder is None and config.encoder not in ENCODERS:
            raise DataError(f"no encoder named {config.encoder!r}", remedy=f"give one of {', '.join(ENCODERS)}")
        # Drawn for every encoder, so that whatever is drawn next does not depend on it.
        noise = rng.normal(size=(2, WAVES))
        if encoder is None and config.encoder == "familiarity":
            memory = Memory(forgetting=config.forgetting)
            encoder = FamiliarityEncoder(memory, config.habits, config.lags, Frame(projection, offset))
        if encoder is None:
            scores = StepScores.fit(_learnable_steps(fixes, config, projection))
            encoder = RawEncoder(scores) if config.encoder == "raw" else FourierEncoder.of(scores, noise)
        context = Context.of(config.context, fixes, projection, offset)
        return cls(config, projection, encoder, context, Popularity(config.popularity))

    @property
    def names(self) -> list[str]:
        """Returns one name for each feature of a step."""
        return [*self.encoder.names, *self.context.names]

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """Returns the statistics of a whole trip; empty if the encoder has no memory."""
        return statistics_of(self.config.habits, self.popularity.cells) if self.counts else ()

    @property
    def counts(self) -> bool:
        """Returns True if the featurizer counts past trips."""
        return isinstance(self.encoder, FamiliarityEncoder)

    @property
    def memory(self) -> Memory:
        """Returns the memory of past trips; an empty one if the encoder has none."""
        return self.encoder.memory if isinstance(self.encoder, FamiliarityEncoder) else Memory()

    # ---------------------------------------------------------------- remembering

    def prepare(self, fixes: Trajectories) -> Prepared:
        """Projects and cleans trips and cuts them into steps; the result does not depend on memory or popularity."""
        paths = self.paths(fixes)
        return Prepared(fixes, paths, self.chosen_steps(paths))

    def chosen_steps(self, paths: Trajectories) -> Steps:
        """Returns about one step per interval of the paths."""
        steps = self.steps(paths)
        return steps[chosen(steps, self.config.interval)]

    def remember(self, trips: Trajectories | Prepared, rows: TripRows | None = None) -> Featurizer:
        """Returns a featurizer that also remembers these trips; ``rows`` are their rows, if the caller has them."""
        if not isinstance(self.encoder, FamiliarityEncoder):
            return self
        of = trips if isinstance(trips, Prepared) else self.prepare(trips)
        whole = TripRows.of(of.steps, (), self.frame, len(of.trips)) if rows is None else rows
        keys = whole.remembered.reshape(len(whole.present), len(TRIP_HABITS) * GRIDS)
        steps = steps_of(self._traces(of.paths), self.config.interval, self.encoder.lags)
        moved = _parted(remembered(whole.moves), whole.moves.trip, whole.n_trips)
        of_whole = {
            i: np.concatenate([own, moved[i].ravel()]) for i, own in zip(whole.present.tolist(), keys, strict=True)
        }
        return replace(self, encoder=self.encoder.remember(steps, of.trips.ids, of_whole))

    def among(self, others: Trajectories, paths: Trajectories | None = None) -> Featurizer:
        """Returns a featurizer that also knows where others go; ``paths`` are theirs, if the caller has them."""
        if not self.counts or not self.popularity.cells:
            return self
        paths = self.paths(others) if paths is None else paths
        steps, moves = (
            steps_of(self._traces(paths), self.config.interval),
            moves_of(self.chosen_steps(paths), self.frame),
        )
        keys, made = keys_of(steps, self.popularity.habits, self.frame), remembered(moves)
        agents, of_trip = np.unique(others.agent_ids.astype(str), return_inverse=True)
        here = _parted(keys.reshape(len(steps), -1), of_trip[steps.trip], len(agents))
        moved = _parted(made, of_trip[moves.trip], len(agents))
        visited = {
            agent: np.unique(np.concatenate([places.ravel(), ways.ravel()]))
            for agent, places, ways in zip(agents.tolist(), here, moved, strict=True)
            if len(places)
        }
        return replace(self, popularity=self.popularity.visited(visited))

    @property
    def frame(self) -> Frame:
        """Returns the projection and the offset of local time from UTC."""
        return Frame(self.projection, self.context.utc_offset)

    def forget(self, trip_ids: Iterable[TripId]) -> Featurizer:
        """Returns a featurizer that does not remember these trips."""
        return self.with_memory(self.memory.remove(trip_ids))

    def with_memory(self, memory: Memory) -> Featurizer:
        """Returns the same featurizer with another memory."""
        if not isinstance(self.encoder, FamiliarityEncoder):
            return self
        return replace(self, encoder=self.encoder.with_memory(memory))

    def _traces(self, paths: Trajectories) -> Trajectories:
        """Returns the paths with the points that a memory counts."""
        return trace(resample(paths, self.config.trace_interval), self.config.trace_spacing)

    # ---------------------------------------------------------------- looking

    def paths(self, fixes: Trajectories) -> Trajectories:
        """Returns the paths of fixes with their context, in metres around this featurizer's centre."""
        return self._paths(fixes)[0]

    def _paths(self, fixes: Trajectories) -> tuple[Trajectories, NDArray[np.int8]]:
        paths, fault = paths_of(fixes, self.projection, self.config.faults)
        paths.context["given"] = self.context.given(fixes)[paths.context["trip"]]
        return paths, fault

    def steps(self, paths: Trajectories) -> Steps:
        """Returns the steps of paths, with the lags that the encoder needs."""
        return steps_of(paths, self.config.interval, self.encoder.lags)

    def encode(self, steps: Steps, without: Array | None = None) -> NDArray[np.float32]:
        """Returns the features of steps; ``without`` is, for each, the number of a remembered trip to ignore, or -1."""
        return np.ascontiguousarray(self._in_context(steps, self.encoder.encode(steps, without)))

    def _in_context(self, steps: Steps, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.hstack([features, self.context.encode(steps)]) if self.context.names else features

    def trip_rows(self, steps: Steps, n_trips: int) -> TripRows:
        """Returns steps as rows of trips, with the keys to look them up in any memory."""
        return TripRows.of(steps, self.config.habits, self.frame, n_trips)

    def rows(self, trips: Trajectories | Prepared) -> TripRows:
        """Returns trips as rows, about one per interval, with the keys to look them up in any memory."""
        of = trips if isinstance(trips, Prepared) else self.prepare(trips)
        return self.trip_rows(of.steps, len(of.trips))

    def measure(
        self,
        rows: TripRows,
        without: Array | None = None,
        maker: Array | None = None,
        before: Array | None = None,
        way: bool = True,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Returns the familiarity of rows and the statistics of their trips.

        For each trip, ``without`` is the number of a remembered trip to ignore, and ``maker`` the number (in the
        popularity) of the agent that made the trip, to ignore there; -1 for none. ``before`` is how many of the
        memory's first trips to compare the trip with; by default all. If ``way`` is False, the last statistic, which
        takes longest and which the network does not see, is NaN.
        """
        familiar = self.familiarity(rows, without, before)
        return familiar, self.trip_statistics(rows, familiar, without, maker, before, way)

    def familiarity(
        self, rows: TripRows, without: Array | None = None, before: Array | None = None
    ) -> NDArray[np.float32]:
        """Returns the familiarity of rows, (rows, habits); ``without`` and ``before`` as for :meth:`measure`."""
        of_rows = [None if of_trip is None else of_trip[rows.steps.trip] for of_trip in (without, before)]
        return familiarity(rows.keys, self.memory, *of_rows)

    def trip_statistics(
        self,
        rows: TripRows,
        familiar: NDArray[np.float32],
        without: Array | None = None,
        maker: Array | None = None,
        before: Array | None = None,
        way: bool = True,
    ) -> NDArray[np.float32]:
        """Returns the statistics of trips whose rows' familiarity is known; for the rest see :meth:`measure`."""
        seen = (rows, familiar, self.config.habits, self.memory, self.popularity)
        window = self.config.window_rows
        return statistics(*seen, window=window, without=without, maker=maker, before=before, way=way)

    def statistics_at(
        self,
        ends: Array,
        rows: TripRows,
        familiar: NDArray[np.float32],
        without: Array | None = None,
        maker: Array | None = None,
        before: Array | None = None,
    ) -> NDArray[np.float32]:
        """Returns the statistics of trips up to each of the rows ``ends``; for the others see :meth:`measure`."""
        seen = (ends, rows, familiar, self.config.habits, self.memory, self.popularity)
        return statistics_at(*seen, window=self.config.window_rows, without=without, maker=maker, before=before)

    def features(self, steps: Steps, familiar: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the features of steps whose familiarity is known."""
        assert isinstance(self.encoder, FamiliarityEncoder)
        return self._in_context(steps, self.encoder.features(steps, familiar))

    def features_of_step(self, step: Step, familiar: NDArray[np.float32], given: Array) -> NDArray[np.float32]:
        """Returns the features of one step of an open trip: (1, features); ``given`` is the trip's context."""
        if not isinstance(self.encoder, FamiliarityEncoder):
            return self.encode(step.row(given))
        features = self.encoder.features_of_step(step, familiar)
        return self._in_context(step.row(given), features) if self.context.names else features

    def featurize(self, fixes: Trajectories, every: bool = True) -> Featurized:
        """Returns the features of every good fix, or of about one per interval, with the statistics of the trips.

        A remembered trip does not count towards its own familiarity.
        """
        paths, fault = self._paths(fixes)
        every = every or not self.counts
        kept, steps, weight = looked_at(self.steps(paths), self.config.interval, every)
        number = self.memory.number_of(fixes.ids)
        # Usually the trips are new and not in the memory.
        without = number if (number >= 0).any() else None
        row = paths.columns["row"][kept]
        if every or not isinstance(self.encoder, FamiliarityEncoder):
            features = self.encoder.encode(steps, None if without is None else without[steps.trip])
            return Featurized(self._in_context(steps, features), steps, row, weight, fault)
        maker = self.popularity.number_of(fixes.agent_ids)
        rows = self.trip_rows(steps, len(fixes))
        familiar, found = self.measure(rows, without, maker if (maker >= 0).any() else None)
        return Featurized(self.features(steps, familiar), steps, row, weight, fault, found)


def _parted(rows: Array, owner: Array, n: int) -> list[Array]:
    """Returns the rows of each of ``n`` owners, given by their numbers."""
    order = np.argsort(owner, kind="stable")
    return np.split(rows[order], np.searchsorted(owner[order], np.arange(1, n)))


def _learnable_steps(fixes: Trajectories, config: FeaturizerConfig, projection: Projection) -> Steps:
    """Returns the steps between points at equal intervals, from which a reward of steps learns."""
    return steps_of(resample(paths_of(fixes, projection, config.faults)[0], config.interval), config.interval)
