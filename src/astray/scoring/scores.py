"""Computes scores, segments and tables from the features of a chunk of trips. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.core.faults import FAULT_NAMES
from astray.core.trajectories import Trajectories
from astray.features.featurizer import Featurized, Featurizer
from astray.features.steps import Steps
from astray.irl.shared import Reward, trip_rewards
from astray.scoring.decisions import BAND, Levels, Rate, aspect_levels, rate_level
from astray.scoring.normality import (
    AspectScores,
    Calibration,
    StepScores,
    TripScores,
    aspect_means,
    aspect_scores,
    mean_normality,
    step_normality,
    trip_normality,
)
from astray.scoring.scale_config import ScaleConfig
from astray.scoring.segments import Segment, leaving, segments

Array = NDArray[Any]
Floats = NDArray[np.float64]

CHUNK_FIXES = 50_000


class Chunk(NamedTuple):
    """The features of a chunk of trips: one row for each usable fix, or about one per interval."""

    features: NDArray[np.float32]
    trip: NDArray[np.int64]
    time: Floats
    weight: Floats
    row: NDArray[np.int64]  # the position of the fix in the chunk
    fault: NDArray[np.int8]  # the fault of each fix of the chunk
    history: Floats  # for each trip, the number of past trips that its score is based on
    scale: NDArray[np.int64]  # for each trip, the number of its calibration in the detector
    steps: Steps | None = None
    statistics: NDArray[np.float32] | None = None  # (trips, statistics)

    @classmethod
    def of_fixes(cls, featurized: Featurized, history: Floats, scale: NDArray[np.int64]) -> Chunk:
        """Makes a chunk of GPS trips from their features."""
        s = featurized.steps
        features, _, row, weight, fault, statistics = featurized
        return cls(features, s.trip, s.time, weight, row, fault, history, scale, s, statistics)

    @classmethod
    def of_steps(cls, trips: Trajectories, features: NDArray[np.float32], history: Floats) -> Chunk:
        """Makes a chunk of states and actions: every row is usable and weighs the same; steps replace seconds."""
        n, rows, trip = len(trips), np.arange(trips.n_rows), trips.trajectory_of_row
        step = (rows - trips.offsets[:-1][trip]).astype(np.float64)
        no_fault, one_scale = np.zeros(len(rows), np.int8), np.zeros(n, np.int64)
        return cls(features, trip, step, np.ones(len(rows)), rows, no_fault, history, one_scale)


@dataclass(frozen=True, eq=False)
class AgentModel:
    """The data of one agent for live scoring: how to featurize and scale its GPS trips."""

    featurizer: Featurizer
    history: float  # the number of past trips
    measured: Callable[[bool], Calibration]  # returns the scales; takes True for unfinished trips
    scaling: ScaleConfig = ScaleConfig()

    @cached_property
    def calibration(self) -> Calibration:
        """The scale of whole trips."""
        return self.measured(False)

    @cached_property
    def unfinished(self) -> Calibration:
        """The scale of open trips."""
        return self.measured(True)


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of the rows and trips of a chunk."""

    trips: Trajectories
    chunk: Chunk
    reward: Reward
    calibrations: Sequence[Calibration]

    @property
    def aspects(self) -> tuple[str, ...]:
        """The aspects of the reward."""
        return self.reward.aspects

    @cached_property
    def rewards(self) -> NDArray[np.float32]:
        """The rewards of the rows: (rows, aspects, heads)."""
        return self.reward.step(self.chunk.features)

    def _rewards_of(self, rows: Array) -> Array:
        """Returns the rewards of some rows, stored like those of all rows, so that sums round in the same way."""
        return self.rewards.transpose(1, 2, 0).take(rows, axis=2).transpose(2, 0, 1)

    @cached_property
    def of_steps(self) -> StepScores:
        """The scores of each row; computed on first use, because the scores of trips do not need them."""
        n = len(self.chunk.trip)
        found = StepScores(np.empty(n), np.empty(n), np.empty(n, np.int64))
        of_row = self.chunk.scale[self.chunk.trip]
        scales = np.unique(of_row)
        if len(scales) == 1:
            return step_normality(self.rewards, self.calibrations[scales[0]])
        for k in scales:
            rows = np.flatnonzero(of_row == k)
            for all_rows, those in zip(
                found, step_normality(self._rewards_of(rows), self.calibrations[k]), strict=True
            ):
                all_rows[rows] = those
        return found

    @property
    def normality(self) -> Floats:
        """n(s, a) of each row."""
        return self.of_steps.normality

    @property
    def uncertainty(self) -> Floats:
        """The standard deviation over the heads of n(s, a) of each row."""
        return self.of_steps.uncertainty

    @cached_property
    def of_trips(self) -> TripScores:
        """The scores of each trip."""
        chunk, n = self.chunk, len(self.trips)
        found = TripScores._make([*np.full((4, n), np.nan), np.full(n, -1)])
        whole = self._trip_rewards
        for k in np.unique(chunk.scale):
            chosen, calibration = chunk.scale == k, self.calibrations[k]
            if whole is not None:
                scores = trip_normality(whole[chosen], calibration)
            else:
                rows = np.flatnonzero(chosen[chunk.trip])
                number = np.cumsum(chosen) - 1
                of = (number[chunk.trip[rows]], chunk.time[rows], chunk.weight[rows])
                scores = mean_normality(self._rewards_of(rows), *of, calibration, int(chosen.sum()))
            for all_trips, those in zip(found, scores, strict=True):
                all_trips[chosen] = those
        return found

    @cached_property
    def _trip_rewards(self) -> NDArray[np.float64] | None:
        """The rewards of trips by their statistics, (trips, aspects, heads); None if steps alone are rewarded."""
        if self.reward.trip is None or self.chunk.statistics is None:
            return None
        return trip_rewards(self.reward.trip, self.chunk.statistics)

    @cached_property
    def of_aspects(self) -> AspectScores:
        """The scores of each aspect of each trip."""
        chunk, whole = self.chunk, self._trip_rewards
        if not any(calibration.by_aspect for calibration in self.calibrations):
            return AspectScores(*np.full((2, len(self.trips), len(self.aspects)), np.nan))
        if whole is None:
            means = aspect_means(self.rewards, chunk.trip, chunk.weight, len(self.trips))
        else:
            means = whole.mean(axis=2)
        found = AspectScores(*np.full((2, *means.shape), np.nan))
        for k in np.unique(chunk.scale):
            chosen = chunk.scale == k
            for all_trips, those in zip(found, aspect_scores(means[chosen], self.calibrations[k]), strict=True):
                all_trips[chosen] = those
        return found

    def levels(self, rate: Rate, rates: tuple[float, ...] = ()) -> Levels:
        """Returns the thresholds of each trip for a false-alarm rate; ``rates`` are those by aspect, if it has them."""
        used = {k: rate_level(rate, self.calibrations[k], rates) for k in np.unique(self.chunk.scale)}
        return Levels(np.array([used[k] for k in self.chunk.scale], np.float64), rates)

    def low(self, levels: Levels) -> NDArray[np.bool_]:
        """Returns a mask of the trips that are low."""
        if levels.rates:
            return np.asarray(levels.low_aspects(self.of_aspects).any(axis=1))
        with np.errstate(invalid="ignore"):
            return np.asarray(self.of_trips.score <= levels.eps)

    def above(self, levels: Levels) -> Floats:
        """Returns how far each trip is above its threshold; by aspects, how far the one nearest to its own is."""
        if not levels.rates:
            return np.asarray(self.of_trips.score - levels.eps)
        of = {k: aspect_levels(levels.rates, self.calibrations[k]) for k in np.unique(self.chunk.scale)}
        bars = np.array([of[k] for k in self.chunk.scale]).reshape(len(self.trips), -1)
        asked = np.array(levels.rates) > 0
        return np.asarray((self.of_aspects.score[:, asked] - bars[:, asked]).min(axis=1, initial=np.inf))

    def segments(self, levels: Levels) -> tuple[Segment, ...]:
        """Finds the anomalous segments of trips; they open at ``levels.eps``.

        If a trip is low although none of its rows is, its worst row opens a segment.
        """
        chunk, normality, enter = self.chunk, self.normality, levels.eps
        opens = enter[chunk.trip]
        found = segments(normality, chunk.trip, chunk.time, opens, leaving(opens), self.calibrations[0].least_segment)
        low = self.low(levels)
        low[[s.trip for s in found]] = False
        rows = np.flatnonzero(low[chunk.trip])
        if len(rows):
            worst = np.full(len(low), np.inf)
            np.minimum.at(worst, chunk.trip[rows], normality[rows])
            bar = worst[chunk.trip[rows]]
            inside = segments(normality[rows], chunk.trip[rows], chunk.time[rows], bar, leaving(bar), 0.0)
            found += [Segment(s.trip, int(rows[s.start]), int(rows[s.stop - 1]) + 1, s.normality) for s in inside]
        return tuple(sorted(found, key=lambda s: s.start))


def chunks(lengths: Array, most: int) -> Iterator[slice]:
    """Yields slices of trips with at most ``most`` fixes together; a longer trip is alone.

    >>> list(chunks(np.array([3, 3, 9, 1]), most=6))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    start, size = 0, 0
    for i, n in enumerate(lengths.tolist()):
        if size and size + n > most:
            yield slice(start, i)
            start, size = i, 0
        size += n
    if start < len(lengths):
        yield slice(start, len(lengths))


# -------------------------------------------------------------------- tables


def worst_segments(scores: Scores, levels: Levels) -> list[Segment | None]:
    """Returns, for each trip, the segment with the greatest loss: mean normality times duration."""
    worst: list[Segment | None] = [None] * len(scores.trips)
    lowest = [0.0] * len(scores.trips)
    for segment in scores.segments(levels):
        lasted = float(scores.chunk.time[segment.stop - 1] - scores.chunk.time[segment.start])
        lost = segment.normality * max(lasted, 1.0)
        if worst[segment.trip] is None or lost < lowest[segment.trip]:
            worst[segment.trip], lowest[segment.trip] = segment, lost
    return worst


class Columns(Protocol):
    """The interface for the columns of tables that say when and where rows are, and what the aspects are called."""

    @property
    def table_aspects(self) -> tuple[str, ...]:
        """The aspects that have a column of p-values."""

    def trip_columns(self, trips: Trajectories) -> Mapping[str, pl.Series]:
        """Returns further columns of the table of trips."""

    def fix_columns(self, trips: Trajectories) -> Mapping[str, Any]:
        """Returns the columns that identify the fix or step of each row."""

    def when(self, seconds: Sequence[float | None]) -> pl.Series:
        """Returns times as a column."""


def p_name(aspect: str) -> str:
    """Returns the name of the column with the p-values of an aspect.

    >>> p_name("place")
    'p_place'
    """
    return f"p_{aspect}"


def trip_table(scores: Scores, levels: Levels, columns: Columns) -> pl.DataFrame:
    """Returns the table of trips, one row for each, without the decisions."""
    worst = worst_segments(scores, levels)
    of_aspects = dict(zip(scores.aspects, scores.of_aspects.p_value.T, strict=True))
    unknown = np.full(len(scores.trips), np.nan)
    time = scores.chunk.time
    starts = [None if s is None else float(time[s.start]) for s in worst]
    ends = [None if s is None else float(time[s.stop - 1]) for s in worst]
    return pl.DataFrame(
        {
            "agent": _texts(scores.trips.agent_ids),
            "trajectory": _texts(scores.trips.trajectory_ids),
            **scores.of_trips._asdict(),
            **{p_name(aspect): of_aspects.get(aspect, unknown) for aspect in columns.table_aspects},
            "aspect": _named(scores.aspects, levels.aspect(scores.of_trips.aspect, scores.of_aspects)),
            "history": scores.chunk.history,
            **columns.trip_columns(scores.trips),
            "segment_start": columns.when(starts),
            "segment_end": columns.when(ends),
            "segment_normality": pl.Series([None if s is None else s.normality for s in worst], dtype=pl.Float64),
            "low": scores.low(levels),
        }
    )


def _texts(values: NDArray[np.str_]) -> pl.Series:
    """Returns text as a polars column, made from a list because that is three times as fast as from an array."""
    return pl.Series(values.tolist(), dtype=pl.String)


def _named(aspects: tuple[str, ...], which: NDArray[np.int64]) -> pl.Series:
    """Returns the names of aspects; null for -1."""
    names = pl.Series([*aspects, None], dtype=pl.String)
    return names.gather(np.where(which < 0, len(aspects), which))


def fix_table(scores: Scores, columns: Columns) -> pl.DataFrame:
    """Returns the table of fixes, one row for each; a faulty fix has no scores."""
    trips, chunk = scores.trips, scores.chunk
    fix = trips.trajectory_of_row
    normality, uncertainty, aspect = scores.of_steps
    low, high = normality - BAND * uncertainty, normality + BAND * uncertainty
    which = np.full(trips.n_rows, -1)
    which[chunk.row] = aspect
    scored = {}
    for name, values in zip(("normality", "uncertainty", "lo", "hi"), (normality, uncertainty, low, high), strict=True):
        scored[name] = np.full(trips.n_rows, np.nan)
        scored[name][chunk.row] = values
    return pl.DataFrame(
        {
            "agent": _texts(trips.agent_ids).gather(fix),
            "trajectory": _texts(trips.trajectory_ids).gather(fix),
            **columns.fix_columns(trips),
            **scored,
            "aspect": _named(scores.aspects, which),
            "fault": pl.Series(FAULT_NAMES).gather(chunk.fault.astype(np.int64)),
        }
    ).with_columns(pl.col(*scored).fill_nan(None))
