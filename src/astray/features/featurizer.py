"""The featurizer: how the fixes of an agent become the features that its reward sees. Needs no training library."""

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
from astray.features.encoders import Encoder, FamiliarityEncoder, FourierEncoder, RawEncoder, StepEncoder
from astray.features.familiarity import DEFAULT_HABITS, DEFAULT_LAGS, GRIDS, Frame, Habit, familiarity, keys_of
from astray.features.memory import Forgetting, Memory
from astray.features.paths import of_trips, paths_of, resample, trace
from astray.features.popularity import Popularity
from astray.features.statistics import Statistic, statistics, statistics_of
from astray.features.steps import Step, Steps, chosen, looked_at, steps_of
from astray.features.trip_rows import TRIP_HABITS, TripRows

Array = NDArray[Any]

ENCODERS = ("familiarity", "fourier", "raw")


LEAST = 1e-3  # seconds or metres: nothing is recorded as finely


@dataclass(frozen=True)
class FeaturizerConfig:
    """How trips are looked at."""

    encoder: str = "familiarity"  # 'familiarity', 'fourier', or the paper's 'raw'
    interval: float = 15.0  # seconds between the steps that are looked at; velocities look back as far
    habits: tuple[Habit, ...] = DEFAULT_HABITS  # of the familiarity encoder
    lags: tuple[float, ...] = DEFAULT_LAGS  # seconds by which habits of the way taken look back
    trace_interval: float = 10.0  # seconds between the points that are remembered of a trip
    trace_spacing: float = 100.0  # metres, at most, between those points
    popularity: tuple[float, ...] = (150.0, 500.0)  # metres: cells of which it is known how many other agents go there
    window: float = 120.0  # seconds of the least and of the most familiar part of a trip
    faults: FaultRules = FaultRules()
    forgetting: Forgetting = Forgetting()
    context: ContextSpec = ContextSpec()
    utc_offset: float | None = None  # seconds that local time is ahead of UTC; None: by the longitude

    def __post_init__(self) -> None:
        for name in ("interval", "trace_interval", "trace_spacing", "window"):
            if not getattr(self, name) >= LEAST:
                raise DataError(f"{name} is {getattr(self, name)}", remedy=f"give a number from {LEAST} on")
        if not {Habit(cell=size) for size in self.popularity} <= set(self.habits):
            raise DataError(
                f"popularity is of cells of {self.popularity} metres, but not all of them are habits",
                remedy="give sizes of habits, or ()",
            )
        if any(h.trail is not None and not 0 <= h.trail < len(self.lags) for h in self.habits):
            raise DataError(
                f"a habit looks back by a lag that is not among the {len(self.lags)} lags", remedy="add it there"
            )

    @property
    def window_rows(self) -> int:
        """Rows of a window, at least one."""
        return max(1, round(self.window / self.interval))


INTERVALS = (15.0, 30.0)
"""Seconds: a shorter interval costs more than it tells, a longer one tells less."""


def sampling_interval(trips: Trajectories) -> float:
    """The seconds between fixes, in the median, within :data:`INTERVALS`: what steps to look at trips by.

    >>> every_20_s = Trajectories.from_fixes(time=np.arange(9) * 20.0, lat=np.zeros(9), lon=np.zeros(9))
    >>> sampling_interval(every_20_s)
    20.0
    """
    apart = np.diff(trips.columns["time"])[np.diff(trips.trajectory_of_row) == 0]
    return float(np.clip(np.median(apart), *INTERVALS)) if len(apart) else INTERVALS[0]


@dataclass(frozen=True, eq=False)
class Prepared:
    """Trips that were projected, cleaned and cut into steps once, for all that is made of them.

    Attributes
    ----------
    trips
        The trips.
    paths
        Their paths, in metres, without faulty fixes, with their context.
    steps
        One step about every interval.
    """

    trips: Trajectories
    paths: Trajectories
    steps: Steps

    def __getitem__(self, trips: Array) -> Prepared:
        """Some of the trips, by their positions in rising order."""
        number = np.full(len(self.trips), -1)
        number[trips] = np.arange(len(trips))
        steps = self.steps[number[self.steps.trip] >= 0]
        steps = replace(steps, trip=number[steps.trip])
        return Prepared(self.trips[trips], of_trips(self.paths, trips), steps)


class Featurized(NamedTuple):
    """Fixes as a featurizer gives them; one row a good fix, or one about every interval."""

    features: NDArray[np.float32]
    steps: Steps
    row: NDArray[np.int64]  # which fix of the input this is
    weight: NDArray[np.float64]  # seconds that the row stands for in its trip's mean
    fault: NDArray[np.int8]  # one a fix of the input: 0, or what is wrong with it
    statistics: NDArray[np.float32] | None = None  # (trips, statistics), where there is a memory


@dataclass(frozen=True, eq=False)
class Featurizer:
    """A centre, an encoder with its memory, a context, and how popular places are.

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
        """A featurizer centred on some fixes, with an empty memory; with an encoder of one's own, or by its name."""
        if not fixes.holds("time", "lat", "lon"):
            raise DataError(
                "these trajectories have no columns time, lat and lon",
                remedy="use a StepDemonstrator for states and actions",
            )
        if not len(fixes):
            raise DataError("no trajectories were given", remedy="give at least one")
        projection = Projection.centred_on(fixes.columns["lat"], fixes.columns["lon"])
        offset = projection.solar_offset if config.utc_offset is None else config.utc_offset
        encoders: dict[str, Encoder] = {
            "raw": RawEncoder(),
            "fourier": FourierEncoder.draw(rng),
            "familiarity": FamiliarityEncoder(
                Memory(forgetting=config.forgetting), config.habits, config.lags, Frame(projection, offset)
            ),
        }
        if encoder is None and config.encoder not in encoders:
            raise DataError(f"no encoder named {config.encoder!r}", remedy=f"give one of {', '.join(ENCODERS)}")
        context = Context.of(config.context, fixes, projection, offset)
        sees = encoders[config.encoder] if encoder is None else encoder
        return cls(config, projection, sees, context, Popularity(config.popularity))

    @property
    def names(self) -> list[str]:
        """One name a feature of a step."""
        return [*self.encoder.names, *self.context.names]

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """What is known of a whole trip; nothing where the encoder has no memory."""
        return statistics_of(self.config.habits, self.popularity.cells) if self.counts else ()

    @property
    def counts(self) -> bool:
        """Whether the featurizer counts what was done before."""
        return isinstance(self.encoder, FamiliarityEncoder)

    @property
    def memory(self) -> Memory:
        """The trips that the featurizer remembers; empty where the encoder has no use for them."""
        return self.encoder.memory if isinstance(self.encoder, FamiliarityEncoder) else Memory()

    # ---------------------------------------------------------------- remembering

    def prepare(self, fixes: Trajectories) -> Prepared:
        """Trips as all that is made of them needs them; the memory and the popularity do not matter."""
        paths = self.paths(fixes)
        return Prepared(fixes, paths, self.chosen_steps(paths))

    def chosen_steps(self, paths: Trajectories) -> Steps:
        """One step of paths about every interval."""
        steps = self.steps(paths)
        return steps[chosen(steps, self.config.interval)]

    def remember(self, trips: Trajectories | Prepared, rows: TripRows | None = None) -> Featurizer:
        """A featurizer that remembers these trips as well; ``rows`` are theirs, if they are known already."""
        if not isinstance(self.encoder, FamiliarityEncoder):
            return self
        of = trips if isinstance(trips, Prepared) else self.prepare(trips)
        whole = TripRows.without_keys(of.steps, self.frame, len(of.trips)) if rows is None else rows
        keys = whole.remembered.reshape(len(whole.present), len(TRIP_HABITS) * GRIDS)
        steps = steps_of(self._traces(of.paths), self.config.interval, self.encoder.lags)
        of_whole = dict(zip(whole.present.tolist(), keys, strict=True))
        return replace(self, encoder=self.encoder.remember(steps, of.trips.ids, of_whole))

    def among(self, others: Trajectories, paths: Trajectories | None = None) -> Featurizer:
        """A featurizer that knows where these agents go, too; ``paths`` are those of their trips, if they are known."""
        if not self.counts or not self.popularity.cells:
            return self
        steps = steps_of(self._traces(self.paths(others) if paths is None else paths), self.config.interval)
        keys = keys_of(steps, self.popularity.habits, self.frame).reshape(len(steps), -1)
        agents, of_trip = np.unique(others.agent_ids.astype(str), return_inverse=True)
        order = np.argsort(of_trip[steps.trip], kind="stable")
        cuts = np.searchsorted(of_trip[steps.trip][order], np.arange(1, len(agents)))
        visited = {
            agent: np.unique(keys[rows])
            for agent, rows in zip(agents.tolist(), np.split(order, cuts), strict=True)
            if len(rows)
        }
        return replace(self, popularity=self.popularity.visited(visited))

    @property
    def frame(self) -> Frame:
        """Where the featurizer's metres begin, and what local time is there."""
        return Frame(self.projection, self.context.utc_offset)

    def forget(self, trip_ids: Iterable[TripId]) -> Featurizer:
        """A featurizer that does not remember these trips."""
        return self.with_memory(self.memory.remove(trip_ids))

    def with_memory(self, memory: Memory) -> Featurizer:
        """The same featurizer with another memory."""
        if not isinstance(self.encoder, FamiliarityEncoder):
            return self
        return replace(self, encoder=self.encoder.with_memory(memory))

    def _traces(self, paths: Trajectories) -> Trajectories:
        """Paths, point by point as they are remembered."""
        return trace(resample(paths, self.config.trace_interval), self.config.trace_spacing)

    # ---------------------------------------------------------------- looking

    def paths(self, fixes: Trajectories) -> Trajectories:
        """The paths of the fixes, in this featurizer's metres, with their context."""
        return self._paths(fixes)[0]

    def _paths(self, fixes: Trajectories) -> tuple[Trajectories, NDArray[np.int8]]:
        paths, fault = paths_of(fixes, self.projection, self.config.faults)
        paths.context["given"] = self.context.given(fixes)[paths.context["trip"]]
        return paths, fault

    def steps(self, paths: Trajectories) -> Steps:
        """The steps of paths, with the look-back that the encoder needs."""
        return steps_of(paths, self.config.interval, self.encoder.lags)

    def encode(self, steps: Steps, without: Array | None = None) -> NDArray[np.float32]:
        """The features of steps; ``without`` numbers the remembered trip that must not count, -1 for none."""
        return np.ascontiguousarray(self._in_context(steps, self.encoder.encode(steps, without)))

    def _in_context(self, steps: Steps, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.hstack([features, self.context.encode(steps)]) if self.context.names else features

    def trip_rows(self, steps: Steps, n_trips: int) -> TripRows:
        """Steps as the rows of trips, with the keys that any memory knows them by."""
        return TripRows.of(steps, self.config.habits, self.frame, n_trips)

    def rows(self, trips: Trajectories | Prepared) -> TripRows:
        """Trips as rows about every interval, with the keys that any memory knows them by."""
        of = trips if isinstance(trips, Prepared) else self.prepare(trips)
        return self.trip_rows(of.steps, len(of.trips))

    def measure(
        self, rows: TripRows, without: Array | None = None, maker: Array | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The familiarity of rows, and the statistics of their trips; one number a trip for ``without`` and ``maker``.

        ``without`` numbers the remembered trip that must not count, ``maker`` the agent of the popularity that made the
        trip; -1 for none.
        """
        familiar = self.familiarity(rows, without)
        return familiar, self.trip_statistics(rows, familiar, without, maker)

    def familiarity(self, rows: TripRows, without: Array | None = None) -> NDArray[np.float32]:
        """How familiar rows are: (rows, habits)."""
        return familiarity(rows.keys, self.memory, None if without is None else without[rows.steps.trip])

    def trip_statistics(
        self,
        rows: TripRows,
        familiar: NDArray[np.float32],
        without: Array | None = None,
        maker: Array | None = None,
    ) -> NDArray[np.float32]:
        """The statistics of trips, the familiarity of whose rows is known."""
        seen = (rows, familiar, self.config.habits, self.memory, self.popularity)
        return statistics(*seen, window=self.config.window_rows, without=without, maker=maker)

    def features(self, steps: Steps, familiar: NDArray[np.float32]) -> NDArray[np.float32]:
        """The features of steps whose familiarity is known already."""
        assert isinstance(self.encoder, FamiliarityEncoder)
        return self._in_context(steps, self.encoder.features(steps, familiar))

    def featurize(self, fixes: Trajectories, every: bool = True) -> Featurized:
        """The features of every good fix, or of one about every interval, with the statistics of the trips.

        A trip that is remembered itself does not count towards its own familiarity.
        """
        paths, fault = self._paths(fixes)
        every = every or not self.counts
        kept, steps, weight = looked_at(self.steps(paths), self.config.interval, every)
        number = self.memory.number_of(fixes.ids)
        # New trips, the usual case, have nothing of their own to hold out.
        without = number if (number >= 0).any() else None
        row = paths.columns["row"][kept]
        if every or not isinstance(self.encoder, FamiliarityEncoder):
            features = self.encoder.encode(steps, None if without is None else without[steps.trip])
            return Featurized(self._in_context(steps, features), steps, row, weight, fault)
        maker = self.popularity.number_of(fixes.agent_ids)
        rows = self.trip_rows(steps, len(fixes))
        familiar, found = self.measure(rows, without, maker if (maker >= 0).any() else None)
        return Featurized(self.features(steps, familiar), steps, row, weight, fault, found)


class StepFeatures:
    """The features of one step of a trip after another, for a live feed: those that :meth:`Featurizer.encode` gives.

    The familiarity encoder has a one-row form (:class:`~astray.features.encoders.StepEncoder`), equal to the last bit;
    the other encoders, and a context, go through the code for many rows.
    """

    __slots__ = ("_encoder", "_featurizer", "_given", "_has_context")

    def __init__(self, featurizer: Featurizer, given: Array) -> None:
        self._featurizer, self._given, self._has_context = featurizer, given, bool(featurizer.context.names)
        self._encoder = StepEncoder(featurizer.encoder) if isinstance(featurizer.encoder, FamiliarityEncoder) else None

    def encode(self, step: Step) -> NDArray[np.float32]:
        """The features of the next step: (1, features)."""
        if self._encoder is None:
            return self._featurizer.encode(step.row(self._given))
        features = self._encoder.encode(step)
        return self._featurizer._in_context(step.row(self._given), features) if self._has_context else features

    @property
    def keys(self) -> NDArray[np.uint64]:
        """The keys of the last step: (habits, grids); of an encoder without a memory, none."""
        return np.zeros((0, GRIDS), np.uint64) if self._encoder is None else self._encoder.keys

    @property
    def familiar(self) -> NDArray[np.float32]:
        """Their familiarity: (habits,)."""
        return np.zeros(0, np.float32) if self._encoder is None else self._encoder.familiar
