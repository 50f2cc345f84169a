"""One reward for many agents: learned on long and short histories, measured on trips that no history holds.

A reward that looks at familiarity alone can serve everybody, also agents it has never met. So that it knows what little
a short history means, each agent stands in the training several times, with memories of different lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from astray.aggregate import trip_means
from astray.detectors.continuation import one_thread
from astray.detectors.personal import RECENT, Own, own_scores
from astray.detectors.teaching import Progress, calibrated, remember, sample, thin
from astray.errors import DataError
from astray.irl.posterior import RewardPosterior
from astray.mdp.haunts import Haunts
from astray.mdp.view import View, ViewConfig, trip_names
from astray.mdp.world import GeoWorld, Rows
from astray.normality import Calibration, Scale, TripScores, step_normality, trip_normality
from astray.trajectories import Trajectories

if TYPE_CHECKING:
    from astray.irl.config import LearnConfig
    from astray.irl.learn import Learned

Array = NDArray[Any]


@dataclass(frozen=True)
class SharingConfig:
    """How agents stand in the training of a shared reward."""

    max_agents: int = 64  # agents that teach, drawn at random
    max_trips: int = 400  # of one agent
    left_out: float = 0.2  # share of an agent's trips that only set the scales
    demonstrations: int = 60  # trips of an agent with its whole history
    short_demonstrations: int = 24  # and with a shortened one
    others: int = 24  # trips of other agents for each history
    imagined: int = 10  # counterfactual trips for each history, and no fewer in all than the learner's own setting


@dataclass(frozen=True, eq=False)
class Pupil:
    """An agent that teaches: a view that remembers its training trips, these trips, and those left out, thinned."""

    agent: str
    view: View
    training: Trajectories
    left_out: Trajectories

    @classmethod
    def of(cls, trips: Trajectories, view: ViewConfig, sharing: SharingConfig, rng: np.random.Generator) -> Pupil:
        """An agent's trips, split."""
        chosen = sample(trips, sharing.max_trips, rng)
        n = len(chosen)
        # One trip has to teach, and one has to be in its history.
        left_out = rng.permutation(n)[: min(max(1, round(sharing.left_out * n)), n - 2) if n > 2 else 0]
        names = np.delete(trip_names(chosen), left_out)
        seen = remember(View.of(chosen, view, rng), chosen[np.isin(trip_names(chosen), names)])
        thinned = thin(chosen, seen)
        taught = np.isin(trip_names(thinned), names)
        return cls(trips.agents[0], seen, thinned[taught], thinned[~taught])

    def with_history(self, trips: Array) -> View:
        """The view of an agent that remembers only these of the training trips."""
        kept = set(np.array(trip_names(self.training))[trips].tolist())
        return self.view.forget([t for t in self.view.memory.trip_ids if t not in kept])


class _Measured(NamedTuple):
    """Trips that no history holds, and those that this one does: everybody's scale, and the agent's own."""

    left_out: GeoWorld
    own: GeoWorld | None

    @classmethod
    def of(cls, pupil: Pupil, view: View) -> list[_Measured]:
        """An agent with the history of this view; nothing where no trip was left out."""
        left_out = GeoWorld.seen(pupil.left_out, view)
        remembered = np.flatnonzero(np.isin(trip_names(pupil.training), view.memory.trip_ids))
        return [] if left_out is None else [cls(left_out, GeoWorld.seen(pupil.training[remembered[-RECENT:]], view))]


@dataclass(frozen=True, eq=False)
class _Lesson:
    """One agent with one history: what it demonstrates, and what it is measured on, by two histories where possible."""

    world: GeoWorld | None
    band: int
    measured: tuple[_Measured, ...]


@dataclass(frozen=True, eq=False)
class Shared:
    """A reward for everybody, and a scale for each band of history."""

    posterior: RewardPosterior
    scales: tuple[Scale, ...]
    history: pl.DataFrame
    haunts: Haunts


def band_of(history: Array | float, bands: Sequence[float]) -> NDArray[np.int64]:
    """The band that a history of so many trips lies in: up to the first edge, then up to the second, ...

    >>> band_of(np.array([0, 4, 5, 60]), (5, 20, 50)).tolist()
    [0, 0, 1, 3]
    """
    return np.asarray(np.searchsorted(np.asarray(bands, np.float64), history, side="right"), np.int64)


def share(
    trips: Trajectories,
    view: ViewConfig,
    config: LearnConfig,
    sharing: SharingConfig,
    bands: Sequence[float],
    rng: np.random.Generator,
    *,
    robust: bool = False,
    window: float | None = None,
    progress: Progress | None = None,
) -> Shared:
    """Learn one reward from many agents, and set its scales.

    No policy is learned, for each agent would need its own.
    """
    from astray.irl.learn import learn

    agents, counts = np.unique(trips.agent_ids, return_counts=True)
    # An agent of one trip has no history to compare it with: it teaches only if there is nobody else.
    able = agents[counts >= 2] if (counts >= 2).any() else agents
    chosen = np.sort(rng.choice(able, min(sharing.max_agents, len(able)), replace=False))
    pupils = [Pupil.of(trips.agent(a), view, sharing, rng) for a in chosen]
    pupils, haunts = _among([p for p in pupils if len(p.training)])
    lessons = [lesson for p in pupils for lesson in _lessons(p, sharing, bands, rng)]
    worlds = [lesson.world for lesson in lessons if lesson.world is not None]
    if not worlds:
        raise DataError("no trajectory has two usable fixes at different times; there is nothing to learn from")
    everybody = Trajectories.concat([p.training for p in pupils])
    crowds = [_others(everybody, w, sharing.others, rng) for w in worlds]
    config = replace(config, imagined=max(config.imagined, sharing.imagined * len(worlds)))
    with one_thread():
        learned = learn(worlds, config, rng, population=crowds, progress=progress)
    scales = _scales(learned, lessons, len(bands) + 1, robust, window)
    return Shared(learned.posterior, scales, learned.history, haunts)


def _among(pupils: Sequence[Pupil]) -> tuple[list[Pupil], Haunts]:
    """The pupils, each knowing where the others go; and where all of them go."""
    haunts = Haunts()
    for pupil in pupils:
        haunts = pupil.view.haunts_of(Trajectories.concat([pupil.training, pupil.left_out]), haunts)
    haunts = haunts.of_enough()
    return [replace(p, view=replace(p.view, haunts=haunts.seen_by(p.agent))) for p in pupils], haunts


def _lessons(pupil: Pupil, sharing: SharingConfig, bands: Sequence[float], rng: np.random.Generator) -> list[_Lesson]:
    n = len(pupil.training)
    demonstrated = sample(pupil.training, sharing.demonstrations, rng)
    whole = GeoWorld.seen(demonstrated, pupil.view)
    lessons = [_Lesson(whole, int(band_of(float(n), bands)), tuple(_Measured.of(pupil, pupil.view)))]
    edges = [1.0, *bands, np.inf]
    for band, (low, high) in enumerate(pairwise(edges)):
        most = int(min(high - 1, n // 2))
        if most < low:
            continue
        # Two histories of one length that share no trip: how much their scores differ is what a short history is worth.
        size = int(rng.integers(int(low), most + 1))
        order = rng.permutation(n)
        one, other = pupil.with_history(order[:size]), pupil.with_history(order[size : 2 * size])
        # The whole history stands for the last band; the demonstrations of a short one are trips that it does not hold.
        rest = order[size:][: sharing.short_demonstrations]
        taught = None if band == len(bands) else GeoWorld.seen(pupil.training[np.sort(rest)], one)
        lessons.append(_Lesson(taught, band, (*_Measured.of(pupil, one), *_Measured.of(pupil, other))))
    return lessons


def _others(everybody: Trajectories, world: GeoWorld, n: int, rng: np.random.Generator) -> Trajectories | None:
    others = np.flatnonzero(everybody.agent_ids != world.fixes.agent_ids[0])
    return everybody[np.sort(rng.choice(others, min(n, len(others)), replace=False))] if len(others) else None


def _scales(
    learned: Learned, lessons: Sequence[_Lesson], n_bands: int, robust: bool, window: float | None
) -> tuple[Scale, ...]:
    """A scale for each band; a band that nobody's history reaches has the nearest one's, the shorter first."""
    found: dict[int, Scale] = {}
    noise: dict[int, tuple[float, float]] = {}
    for band in range(n_bands):
        here = [lesson.measured for lesson in lessons if lesson.band == band and lesson.measured]
        if here:
            rows = [[m.left_out.demonstrations() for m in both] for both in here]
            every = [r for both in rows for r in both]
            own = [None if m.own is None else m.own.demonstrations() for both in here for m in both]
            found[band] = _personal(learned.posterior, _scale(learned, every, robust, window), every, own)
            pairs = [both for both in rows if len(both) == 2]
            if pairs:
                noise[band] = _noise(learned.posterior, found[band], pairs)
    if not found:
        # Nobody has a trip to spare: those that taught must do, each left out of its own counts.
        taught = [lesson.world.demonstrations() for lesson in lessons if lesson.world is not None]
        found[0] = _scale(learned, taught, robust, window)
    scales = (found[_nearest(band, found)] for band in range(n_bands))
    noises = (noise[_nearest(band, noise)] if noise else (0.0, 0.0) for band in range(n_bands))
    return tuple(Scale(s.calibration, *n) for s, n in zip(scales, noises, strict=True))


def _nearest(band: int, known: Iterable[int]) -> int:
    return min(known, key=lambda other: (abs(other - band), other))


def _scale(learned: Learned, rows: Sequence[Rows], robust: bool, window: float | None) -> Scale:
    start = np.cumsum([0, *(int(r.trip.max()) + 1 for r in rows)])
    pooled = Rows.concat([replace(r, trip=r.trip + s) for r, s in zip(rows, start, strict=False)])
    return Scale(calibrated(learned, pooled, learned.posterior(pooled.features), robust, window=window))


def _personal(posterior: RewardPosterior, scale: Scale, left_out: Sequence[Rows], own: Sequence[Rows | None]) -> Scale:
    """The same scale, with p-values read from left-out trips that each agent measures on its own scale, as it will."""
    scores = []
    for rows, remembered in zip(left_out, own, strict=True):
        mine = scale
        if remembered is not None:
            mine = Own.of(own_scores(_trip_scores(posterior, remembered, scale.calibration))).scale(scale)
        scores.append(_trip_scores(posterior, rows, mine.calibration).score)
    return replace(scale, calibration=replace(scale.calibration, trips=np.sort(np.concatenate(scores))))


def _trip_scores(posterior: RewardPosterior, rows: Rows, calibration: Calibration) -> TripScores:
    assert rows.steps is not None
    _, trip = np.unique(rows.trip, return_inverse=True)
    weight = np.ones(len(rows))
    return trip_normality(posterior(rows.features), trip, rows.steps.time, weight, calibration, int(trip.max()) + 1)


def _noise(posterior: RewardPosterior, scale: Scale, pairs: Sequence[Sequence[Rows]]) -> tuple[float, float]:
    """How far the scores of steps and trips move from one history to another of the same length.

    The difference of two scores that are equally uncertain has twice the variance of one.
    """
    by_step, by_trip = [], []
    for one, other in pairs:
        a, b = (step_normality(posterior(r.features), scale.calibration).normality for r in (one, other))
        _, trip = np.unique(one.trip, return_inverse=True)
        by_step.append(a - b)
        by_trip.append(trip_means(a - b, trip, np.ones(len(trip))))
    step, trip_mean = (float(np.sqrt(np.mean(np.concatenate(d) ** 2) / 2)) for d in (by_step, by_trip))
    return step, trip_mean
