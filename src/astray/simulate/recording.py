"""What GPS loggers make of journeys: fixes at intervals, with errors, gaps and missing ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from astray.simulate.loggers import Logger
from astray.simulate.movement import HOUR, Motion
from astray.simulate.streets import Floats, Ints

SLOW_NOISE, WHITE_NOISE = 2.8, 1.3
"""Standard deviations, per axis in metres, of the GPS error that drifts and of the one that does not."""

_DRIFT = 40.0
"""Seconds over which the drifting GPS error renews itself."""

_LONG_STAND = 240.0
"""Seconds of standing from which on people are indoors."""

_INDOORS = 2.5
"""How much greater the error is indoors, where there are fixes at all."""

_SPIKE = 70.0
"""Standard deviation in metres, per axis, of the error of a fix that is thrown off."""

_SHORTEST, _MARKS = 4, 3
"""Fixes that a record keeps at least, whatever is lost: in all, and of the marked stretch."""


@dataclass(frozen=True, eq=False)
class Fixes:
    """What loggers recorded: journey, seconds since departure, noisy position, and whether it is marked."""

    journey: Ints
    seconds: Floats
    xy: Floats
    marked: NDArray[np.bool_]


def record(
    motion: Motion,
    interval: ArrayLike,
    marked: ArrayLike,
    rng: np.random.Generator,
    *,
    loggers: Sequence[Logger] = (),
    late: ArrayLike = 0.0,
    early: ArrayLike = 0.0,
) -> Fixes:
    """Sample the motion as GPS loggers do; every argument has one value a journey.

    A journey's first and last moments are recorded; between them fixes come about ``interval`` seconds apart.
    The error of the position is one that drifts plus a white one. What is lost in gaps, under ground and at
    the ends (``late`` and ``early`` seconds) is never all of the ``marked`` stretch.
    """
    n = len(motion.duration)
    kit = loggers or [Logger()] * n
    steps = np.maximum(np.ceil(motion.duration / np.asarray(interval)), 1).astype(np.int64)
    count = steps + 1
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    of = np.repeat(np.arange(n), count)
    step = np.arange(count.sum()) - first[of]
    inner = (step > 0) & (step < steps[of])
    jitter = np.array([logger.jitter for logger in kit])[of]
    moment = step + np.where(inner, rng.uniform(-0.35, 0.35, len(of)) * jitter, 0.0)
    seconds = np.minimum(moment * (motion.duration / steps)[of], motion.duration[of])
    clock = motion.begin[of] + seconds
    xy, arc = motion.at(clock)
    metres = arc - motion.origin[of]
    bounds = np.asarray(marked, dtype=np.float64).reshape(-1, 2)[of]
    inside = (metres >= bounds[:, 0]) & (metres <= bounds[:, 1])
    truth = np.bincount(of[inside], minlength=n)

    def spare(lost: NDArray[np.bool_], marks: int, least: int) -> NDArray[np.bool_]:
        """What is lost of journeys that keep so many fixes of the marked stretch, and in all."""
        left = np.bincount(of[inside & ~lost], minlength=n)
        rest = np.bincount(of[~lost], minlength=n)
        return np.asarray(lost & ((left >= np.minimum(truth, marks)) & (rest >= least))[of])

    off = np.zeros(len(of), dtype=bool)
    ends = np.broadcast_to(late, (n,)), np.broadcast_to(early, (n,))
    if np.any(ends):
        rest = np.maximum(0.15 * motion.duration, (_SHORTEST + 1) * np.asarray(interval))
        fits = np.clip((motion.duration - rest) / np.maximum(ends[0] + ends[1], 1e-9), 0.0, 1.0)
        before, after = ends[0] * fits, motion.duration - ends[1] * fits
        off = spare((seconds < before[of]) | (seconds > after[of]), _MARKS, _SHORTEST)
    least = _SHORTEST if off.any() else 2  # the first and the last fix are never in a gap
    has_gap = (rng.random(n) < [logger.gaps for logger in kit]) & (motion.duration > 600)
    opens = rng.uniform(0.1, 0.6, n) * motion.duration
    closes = opens + rng.uniform(90, 300, n)
    gone = spare(off | (inner & has_gap[of] & (seconds > opens[of]) & (seconds < closes[of])), 5, least) | off
    lost = gone.copy()
    scale = np.array([logger.noise for logger in kit])[of]
    if motion.underground.any():
        lost |= motion.hidden(arc)
    indoors, rests = (np.array([getattr(logger, name) for logger in kit]) for name in ("indoors", "rests"))
    if indoors.any() or rests.any():
        point, stand = motion.standing(clock)
        inert = stand > _LONG_STAND
        scale = np.where(inert, _INDOORS, 1.0) * scale
        lost |= inert & (rng.random(len(motion.tape))[point] < indoors[of])
        lost |= inner & (stand > 0) & (rng.random(len(of)) < rests[of])
    dropouts = np.array([logger.dropouts for logger in kit])
    if dropouts.any():
        lost |= _dropped(motion.duration, dropouts, of, seconds, rng)
    if (lost & ~gone).any():
        lost &= ~_first(inside & ~gone, lost, of, _MARKS)
        lost &= ~_first(~gone, lost, of, _SHORTEST)

    white = scale * np.array([logger.white for logger in kit])[of]
    noisy = xy + _drift(clock, rng) * scale[:, None] + rng.normal(0, WHITE_NOISE, xy.shape) * white[:, None]
    spikes = np.array([logger.spikes for logger in kit])
    if spikes.any():
        noisy += np.where(rng.random((len(of), 1)) < spikes[of, None], rng.normal(0, _SPIKE, xy.shape), 0.0)
    return Fixes(of[~lost], seconds[~lost], noisy[~lost], inside[~lost])


def _first(wanted: NDArray[np.bool_], lost: NDArray[np.bool_], of: Ints, least: int) -> NDArray[np.bool_]:
    """The first of the wanted fixes of those journeys that would keep fewer of them than so many."""
    rank = np.cumsum(wanted)
    count = np.bincount(of, wanted)
    rank = rank - (np.cumsum(count) - count)[of]
    short = np.bincount(of, wanted & ~lost) < least
    return np.asarray(wanted & short[of] & (rank <= least))


def _dropped(duration: Floats, rate: Floats, of: Ints, seconds: Floats, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which fixes fall into gaps that come at random, so many an hour, mostly of one to four minutes."""
    gap = np.repeat(np.arange(len(duration)), rng.poisson(rate * duration / HOUR))
    opens = rng.uniform(0, 1, len(gap)) * duration[gap]
    closes = np.minimum(opens + 120.0 * np.exp(rng.normal(0, 0.9, len(gap))), duration[gap])
    apart = float(duration.max()) + 1.0  # the journeys one after the other on one axis
    axis = of * apart + seconds
    change = np.zeros(len(of) + 1, dtype=np.int64)
    np.add.at(change, np.searchsorted(axis, gap * apart + opens), 1)
    np.add.at(change, np.searchsorted(axis, gap * apart + closes), -1)
    return np.asarray(np.cumsum(change)[:-1] > 0)


def _drift(clock: Floats, rng: np.random.Generator) -> Floats:
    """A Gaussian error of constant variance that drifts: independent knots, blended in between."""
    knots = rng.normal(0, SLOW_NOISE, (int(clock.max() // _DRIFT) + 2, 2))
    k = (clock // _DRIFT).astype(np.int64)
    share = (clock / _DRIFT - k)[:, None]
    blend = (1 - share) * knots[k] + share * knots[k + 1]
    return np.asarray(blend / np.sqrt((1 - share) ** 2 + share**2))
