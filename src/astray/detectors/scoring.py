"""Scoring: from what is seen of a chunk of trips to scores, segments and tables. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.decide import Segment, leaving, level, segments
from astray.irl.posterior import RewardPosterior
from astray.mdp.faults import FAULT_NAMES
from astray.mdp.steps import Steps
from astray.mdp.view import Sight, View
from astray.normality import (
    Calibration,
    Location,
    Scale,
    StepScores,
    TripScores,
    lowest_of_steps,
    step_normality,
    trip_normality,
)
from astray.trajectories import Trajectories

Array = NDArray[Any]
Floats = NDArray[np.float64]

CHUNK_FIXES = 50_000
LEAST_SEGMENT = 60.0  # seconds of a segment; what is shorter is noise
LEAST_STEPS = 2.0  # and steps, where there is no time
BAND = 2.0  # lo and hi lie so many standard deviations over the heads below and above the normality


class Seen(NamedTuple):
    """A chunk of trips as a detector sees them; one row a usable fix."""

    features: NDArray[np.float32]
    trip: NDArray[np.int64]
    time: Floats
    weight: Floats
    row: NDArray[np.int64]  # which fix of the chunk
    fault: NDArray[np.int8]  # one a fix of the chunk
    history: Floats  # one a trip: how many past trips stand behind its score
    scale: NDArray[np.int64]  # one a trip: which of the detector's scales it is measured on
    least_segment: float  # seconds; what is shorter is noise
    steps: Steps | None = None

    @classmethod
    def of_fixes(cls, sight: Sight, history: Floats, scale: NDArray[np.int64]) -> Seen:
        """GPS trips, as a view sees them."""
        s = sight.steps
        return cls(
            sight.features, s.trip, s.time, sight.weight, sight.row, sight.fault, history, scale, LEAST_SEGMENT, s
        )

    @classmethod
    def of_steps(cls, trips: Trajectories, features: NDArray[np.float32], history: float) -> Seen:
        """Trajectories of states and actions: every row is usable and weighs the same; steps stand for seconds."""
        n, rows, trip = len(trips), np.arange(trips.n_rows), trips.trajectory_of_row
        step = (rows - trips.offsets[:-1][trip]).astype(np.float64)
        no_fault, one_scale = np.zeros(len(rows), np.int8), np.zeros(n, np.int64)
        past = np.full(n, history)
        return cls(features, trip, step, np.ones(len(rows)), rows, no_fault, past, one_scale, LEAST_STEPS)


class Lens(NamedTuple):
    """How one agent's GPS trips are seen and measured, and how many past trips stand behind it: for scoring live."""

    view: View
    scale: Scale
    history: float


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of a chunk of trips: of each usable fix, and of each trip."""

    trips: Trajectories
    seen: Seen
    rewards: NDArray[np.float32]  # (fixes, aspects, heads)
    aspects: tuple[str, ...]
    scales: Sequence[Scale]
    normality: Floats  # n(s, a) of each usable fix
    of_trips: TripScores

    @cached_property
    def of_steps(self) -> StepScores:
        """The scores of each usable fix; who asks for those of trips alone need not wait for them."""
        n = len(self.rewards)
        of_steps = StepScores(self.normality, np.empty(n), np.empty(n, np.int64))
        for rows, _, scale in _alike(self.seen, self.scales):
            found = step_normality(self.rewards[rows], scale.calibration)
            of_steps.uncertainty[rows] = np.hypot(found.uncertainty, scale.step_noise)
            of_steps.aspect[rows] = found.aspect
        return of_steps

    @property
    def uncertainty(self) -> Floats:
        """Its standard deviation over the heads."""
        return self.of_steps.uncertainty

    def levels(self, false_alarm_rate: float) -> Floats:
        """The thresholds at which at most such a share of normal trips scores low, one a trip."""
        used = {k: level(false_alarm_rate, self.scales[k].calibration.trips) for k in np.unique(self.seen.scale)}
        return np.array([used[k] for k in self.seen.scale], np.float64)

    def segments(self, enter: Floats) -> tuple[Segment, ...]:
        """Where the trips are not normal: what opens at ``enter``, a level for each trip, closes half-way back.

        A trip may score low without a single fix that is: then the bar is its own worst window.
        """
        seen, normality, of_trips = self.seen, self.normality, self.of_trips
        alike = len(enter) > 0 and (enter == enter[0]).all()
        opens = enter[:1] if alike else enter[seen.trip]
        found = segments(normality, seen.trip, seen.time, opens, leaving(opens), seen.least_segment)
        with np.errstate(invalid="ignore"):
            low = of_trips.score <= enter
        low[[s.trip for s in found]] = False
        if low.any():
            bar = np.zeros(len(low))
            for k in np.unique(seen.scale[low]):
                trips = np.flatnonzero(low & (seen.scale == k))
                calibration = self.scales[k].calibration
                bar[trips] = _worst_step(calibration, of_trips.aspect[trips], of_trips.worst_window[trips])
            rows = np.flatnonzero(low[seen.trip])
            trip = seen.trip[rows]
            worst = bar[trip]
            inside = segments(normality[rows], trip, seen.time[rows], worst, leaving(worst), 0.0)
            found += [Segment(s.trip, int(rows[s.start]), int(rows[s.stop - 1]) + 1, s.normality) for s in inside]
        return tuple(sorted(found, key=lambda s: s.start))


def score_chunk(trips: Trajectories, seen: Seen, posterior: RewardPosterior, scales: Sequence[Scale]) -> Scores:
    """Rewards and normality of a chunk."""
    rewards = posterior(seen.features)
    normality = np.empty(len(rewards))
    of_trips = TripScores._make([*np.full((5, len(trips)), np.nan), np.full(len(trips), -1)])
    for rows, chosen, scale in _alike(seen, scales):
        these, calibration = rewards[rows], scale.calibration
        n = calibration.of_steps(these)
        normality[rows] = lowest_of_steps(calibration, n)
        found = trip_normality(these, seen.trip[rows], seen.time[rows], seen.weight[rows], calibration, len(trips), n)
        found = found._replace(uncertainty=np.hypot(found.uncertainty, scale.trip_noise))
        for all_trips, those in zip(of_trips, found, strict=True):
            all_trips[chosen] = those[chosen]
    return Scores(trips, seen, rewards, posterior.aspects, scales, normality, of_trips)


def _alike(seen: Seen, scales: Sequence[Scale]) -> Iterator[tuple[slice | NDArray[np.bool_], NDArray[np.bool_], Scale]]:
    """Trips whose scales differ in nothing but where trips and windows lie overall: rows, trips, one scale for all.

    Agents' own scales differ from everybody's by that alone, and a chunk may hold very many agents.
    """
    which = seen.scale
    if len(scales) == 1:
        yield slice(None), np.ones(len(which), bool), scales[0]
        return
    kinds = [(s.calibration.step, s.step_noise, s.trip_noise) for s in scales]
    number = {kind: i for i, kind in enumerate(dict.fromkeys(kinds))}
    kind_of = np.array([number[kind] for kind in kinds], np.int64)[which]
    for kind in np.unique(kind_of):
        chosen = kind_of == kind
        scale = scales[which[np.argmax(chosen)]]
        overall = [scales[k].calibration.overall for k in which]
        # A centre and a spread for each trip of the chunk, where one scale has one for all.
        trip, window = (
            Location(*np.array(part).T) for part in ([o.trip for o in overall], [o.window for o in overall])
        )
        joint = replace(scale.calibration, overall=scale.calibration.overall._replace(trip=trip, window=window))
        rows = slice(None) if chosen.all() else chosen[seen.trip]
        yield rows, chosen, replace(scale, calibration=joint)


def _worst_step(calibration: Calibration, aspect: NDArray[np.int64], worst_window: Floats) -> Floats:
    """The n(s, a) that trips' worst windows have in the mean: their scores, taken back to the scale of single steps."""
    step, window = calibration.overall.step, calibration.overall.window
    lowest = window.centre + window.spread * worst_window
    centre, spread = np.array(calibration.window)[aspect].T
    tolerance = np.array(calibration.tolerance)[aspect]
    return step.standardise((centre + spread * lowest * tolerance) / tolerance) + 1e-9


def chunks(lengths: Array, most: int = CHUNK_FIXES) -> Iterator[slice]:
    """Runs of neighbouring trips of at most ``most`` fixes together, or of one trip that is longer.

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


def worst_segments(scores: Scores, enter: Floats) -> list[Segment | None]:
    """Of each trip the segment that it lost most normality in: the mean times the duration."""
    worst: list[Segment | None] = [None] * len(scores.trips)
    lowest = [0.0] * len(scores.trips)
    for segment in scores.segments(enter):
        lasted = float(scores.seen.time[segment.stop - 1] - scores.seen.time[segment.start])
        lost = segment.normality * max(lasted, 1.0)
        if worst[segment.trip] is None or lost < lowest[segment.trip]:
            worst[segment.trip], lowest[segment.trip] = segment, lost
    return worst


def trip_table(scores: Scores, enter: Floats) -> pl.DataFrame:
    """One row a trip, without the decision."""
    worst = worst_segments(scores, enter)
    time = scores.seen.time
    starts = [None if s is None else float(time[s.start]) for s in worst]
    ends = [None if s is None else float(time[s.stop - 1]) for s in worst]
    moments = _as_moments if scores.trips.is_gps else partial(pl.Series, dtype=pl.Float64)
    return pl.DataFrame(
        {
            "agent": _texts(scores.trips.agent_ids),
            "trajectory": _texts(scores.trips.trajectory_ids),
            **scores.of_trips._asdict(),
            "aspect": _named(scores.aspects, scores.of_trips.aspect),
            "history": scores.seen.history,
            "segment_start": moments(starts),
            "segment_end": moments(ends),
            "segment_normality": pl.Series([None if s is None else s.normality for s in worst], dtype=pl.Float64),
            "level": enter,
        }
    )


def _as_moments(seconds: list[float | None]) -> pl.Series:
    """Seconds since 1970 as date-times in UTC."""
    whole = [None if s is None else round(s * 1e6) for s in seconds]
    return pl.Series(whole, dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))


def _texts(values: NDArray[np.str_]) -> pl.Series:
    """Text as polars has it: of a list three times as fast as of an array."""
    return pl.Series(values.tolist(), dtype=pl.String)


def _named(aspects: tuple[str, ...], which: NDArray[np.int64]) -> pl.Series:
    """The names of aspects; null where there is none (-1)."""
    names = pl.Series([*aspects, None], dtype=pl.String)
    return names.gather(np.where(which < 0, len(aspects), which))


def fix_table(scores: Scores) -> pl.DataFrame:
    """One row a fix; a faulty fix has no scores."""
    trips, seen = scores.trips, scores.seen
    fix = trips.trajectory_of_row
    normality, uncertainty, aspect = scores.of_steps
    low, high = normality - BAND * uncertainty, normality + BAND * uncertainty
    which = np.full(trips.n_rows, -1)
    which[seen.row] = aspect
    scored = {}
    for name, values in zip(("normality", "uncertainty", "lo", "hi"), (normality, uncertainty, low, high), strict=True):
        scored[name] = np.full(trips.n_rows, np.nan)
        scored[name][seen.row] = values
    where = {name: trips.columns[name] for name in ("time", "lat", "lon")} if trips.is_gps else {}
    step = {} if trips.is_gps else {"step": np.arange(trips.n_rows) - trips.offsets[:-1][fix]}
    table = pl.DataFrame(
        {
            "agent": _texts(trips.agent_ids).gather(fix),
            "trajectory": _texts(trips.trajectory_ids).gather(fix),
            **where,
            **step,
            **scored,
            "aspect": _named(scores.aspects, which),
            "fault": pl.Series(FAULT_NAMES).gather(seen.fault.astype(np.int64)),
        }
    ).with_columns(pl.col(*scored).fill_nan(None))
    if not trips.is_gps:
        return table
    return table.with_columns((pl.col("time") * 1e6).round().cast(pl.Int64).cast(pl.Datetime("us", "UTC")))
