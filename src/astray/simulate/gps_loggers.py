"""GPS loggers: the way people use them, and the fixes that they record, with errors, gaps and missing ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from astray.simulate.movement import HOUR, Motion
from astray.simulate.routes import NOWHERE
from astray.simulate.streets import Bools, Floats, Ints

SLOW_NOISE, WHITE_NOISE = 2.8, 1.3
"""The standard deviations, in metres per axis, of the drifting and of the independent GPS error."""

_DRIFT = 40.0  # seconds after which the drifting GPS error is independent of what it was
_LONG_STAND = 240.0  # a person who stands for more seconds than this is indoors
_INDOORS = 2.5  # factor on the GPS error of fixes indoors
_SPIKE = 70.0  # standard deviation in metres, per axis, of the error of an outlier

_SHORTEST, _MARKS = 4, 3
"""The fewest fixes that a recording keeps after all losses: in total, and in the marked (anomalous) stretch."""


@dataclass(frozen=True)
class Logger:
    """One person's logger and how carefully the person uses it. By default it records every trip from end to end."""

    interval: float  # typical seconds between two fixes
    noise: float = 1.0  # factor on the error of the positions
    white: float = 1.0  # factor on the independent part of the error; receivers that fix often smooth it away
    jitter: float = 1.0  # factor on the irregularity of the intervals
    gaps: float = 0.08  # share of trips with a gap of minutes
    dropouts: float = 0.0  # further gaps per hour, at random moments
    indoors: float = 0.0  # share of long stands during which the logger receives nothing
    rests: float = 0.0  # share of fixes that the logger leaves out while the person stands
    spikes: float = 0.0  # share of fixes that are outliers, about 100 m off
    share: float = 1.0  # share of trips that the person records; whole days make up about half of the missing ones
    late: float = 0.0  # share of trips for which the person switches the logger on late
    early: float = 0.0  # share of trips for which the person switches the logger off early
    minutes: float = 0.0  # typical minutes that the logger is switched on late or off early; it idles twice as long
    idle: float = 0.0  # share of trips before which the logger already runs, and of trips after which it still runs
    runs_on: float = 0.0  # probability that the logger runs through a stop, so that one recording contains two trips
    stop: float = 0.0  # the longest such stop, in minutes
    cuts: float = 0.0  # share of recordings that break in the middle and continue as another recording
    span: tuple[float, float] = (0.0, 1.0)  # the first and the last recorded day, as shares of all days

    @property
    def is_default(self) -> bool:
        """True if the logger differs from the city's default only in its interval."""
        return self == Logger(self.interval)


def draw_logger(rng: np.random.Generator, life: str) -> Logger:
    """Draws the logger of a person with this kind of life."""
    interval = float(np.exp(rng.uniform(np.log(1.0), np.log(120.0))))
    busy = life in ("taxi", "courier")
    interval = max(interval, 4.0) if busy else interval
    share = float(rng.choice([1.0, np.exp(rng.uniform(np.log(0.1), 0.0))]))
    begin = float(rng.choice([0.0, rng.uniform(0.0, 0.5)]))
    end = float(rng.choice([1.0, rng.uniform(begin + 0.35, 1.0)]))
    all_day = busy and rng.random() < (0.5 if life == "courier" else 0.1)
    runs_on = float(rng.choice([0.0, rng.uniform(0.1, 0.9), rng.uniform(0.5, 1.0)]))
    return Logger(
        interval,
        noise=float(np.exp(rng.normal(0.1, 0.45))),
        white=float(min(interval / 6.0, 1.0) ** 0.8),
        jitter=float(rng.choice([0.02, 0.3, 1.0])),
        gaps=float(rng.uniform(0.0, 0.25)),
        dropouts=float(np.exp(rng.uniform(np.log(0.3), np.log(12.0)))),
        indoors=float(rng.beta(1.5, 1.0)),
        rests=float(rng.choice([0.0, 0.0, 0.9])),
        spikes=float(rng.choice([0.0, 0.002])),
        share=share * (0.4 if busy and not all_day else 1.0),
        late=float(rng.beta(0.8, 1.5)),
        early=float(rng.beta(0.8, 1.5)),
        minutes=float(rng.uniform(1.0, 12.0)),
        idle=float(rng.choice([0.0, rng.uniform(0.0, 0.8), rng.uniform(0.0, 0.8)])),
        runs_on=0.95 if all_day else 0.0 if busy else runs_on,
        stop=float(np.exp(rng.uniform(np.log(10.0), np.log(150.0)))),
        cuts=float(rng.choice([0.0, rng.uniform(0.0, 0.25)])),
        span=(begin, end),
    )


@dataclass(frozen=True, eq=False)
class Fixes:
    """Recorded fixes."""

    journey: Ints  # the journey of each fix
    seconds: Floats  # seconds since its departure
    xy: Floats  # the noisy position
    marked: Bools  # True on the marked stretch of the journey


def record(
    motion: Motion,
    loggers: Sequence[Logger],
    rng: np.random.Generator,
    *,
    marked: ArrayLike = NOWHERE,
    late: ArrayLike = 0.0,
    early: ArrayLike = 0.0,
) -> Fixes:
    """Samples the motion as GPS loggers do. Every argument has one value per journey.

    A logger records the first and the last moment of a journey, and fixes about ``interval`` seconds apart in between.
    The position error is the sum of a drifting and an independent one. Fixes are lost in gaps, underground and at the
    ends (``late`` and ``early`` seconds, if positive), but some fixes of the ``marked`` stretch always remain.
    """
    n = len(motion.duration)

    def setting(name: str) -> Floats:
        return np.array([getattr(logger, name) for logger in loggers])

    interval = setting("interval")
    steps = np.maximum(np.ceil(motion.duration / interval), 1).astype(np.int64)
    count = steps + 1
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    of = np.repeat(np.arange(n), count)
    step = np.arange(count.sum()) - first[of]
    inner = (step > 0) & (step < steps[of])
    moment = step + np.where(inner, rng.uniform(-0.35, 0.35, len(of)) * setting("jitter")[of], 0.0)
    seconds = np.minimum(moment * (motion.duration / steps)[of], motion.duration[of])
    clock = motion.begin[of] + seconds
    xy, arc = motion.at(clock)
    metres = arc - motion.origin[of]
    bounds = np.broadcast_to(np.asarray(marked, dtype=np.float64), (n, 2))[of]
    inside = (metres >= bounds[:, 0]) & (metres <= bounds[:, 1])
    truth = np.bincount(of[inside], minlength=n)

    def affordable(lost: Bools, marks: int, least: int) -> Bools:
        """Returns the losses without those of journeys that would keep too few fixes: marked, or in total."""
        left = np.bincount(of[inside & ~lost], minlength=n)
        rest = np.bincount(of[~lost], minlength=n)
        return np.asarray(lost & ((left >= np.minimum(truth, marks)) & (rest >= least))[of])

    off = np.zeros(len(of), dtype=bool)
    ends = [np.maximum(np.broadcast_to(end, (n,)), 0.0) for end in (late, early)]
    if np.any(ends):
        rest = np.maximum(0.15 * motion.duration, (_SHORTEST + 1) * interval)
        fits = np.clip((motion.duration - rest) / np.maximum(ends[0] + ends[1], 1e-9), 0.0, 1.0)
        before, after = ends[0] * fits, motion.duration - ends[1] * fits
        off = affordable((seconds < before[of]) | (seconds > after[of]), _MARKS, _SHORTEST)
    least = _SHORTEST if off.any() else 2  # a gap never contains the first or the last fix
    has_gap = (rng.random(n) < setting("gaps")) & (motion.duration > 600)
    opens = rng.uniform(0.1, 0.6, n) * motion.duration
    closes = opens + rng.uniform(90, 300, n)
    gone = affordable(off | (inner & has_gap[of] & (seconds > opens[of]) & (seconds < closes[of])), 5, least) | off
    lost = gone.copy()
    scale = setting("noise")[of]
    if motion.underground.any():
        lost |= motion.hidden(arc)
    indoors, rests = setting("indoors"), setting("rests")
    if indoors.any() or rests.any():
        point, stand = motion.standing(clock)
        inert = stand > _LONG_STAND
        scale = np.where(inert, _INDOORS, 1.0) * scale
        lost |= inert & (rng.random(len(motion.tape))[point] < indoors[of])
        lost |= inner & (stand > 0) & (rng.random(len(of)) < rests[of])
    dropouts = setting("dropouts")
    if dropouts.any():
        lost |= _in_dropouts(motion.duration, dropouts, of, seconds, rng)
    if (lost & ~gone).any():
        lost &= ~_first_fixes(inside & ~gone, lost, of, _MARKS)
        lost &= ~_first_fixes(~gone, lost, of, _SHORTEST)

    white = scale * setting("white")[of]
    noisy = xy + _drift(clock, rng) * scale[:, None] + rng.normal(0, WHITE_NOISE, xy.shape) * white[:, None]
    spikes = setting("spikes")
    if spikes.any():
        noisy += np.where(rng.random((len(of), 1)) < spikes[of, None], rng.normal(0, _SPIKE, xy.shape), 0.0)
    return Fixes(of[~lost], seconds[~lost], noisy[~lost], inside[~lost])


def _first_fixes(wanted: Bools, lost: Bools, of: Ints, least: int) -> Bools:
    """Returns a mask of the fixes to restore: the first ``least`` wanted ones of journeys that would keep fewer."""
    rank = np.cumsum(wanted)
    count = np.bincount(of, wanted)
    rank = rank - (np.cumsum(count) - count)[of]
    short = np.bincount(of, wanted & ~lost) < least
    return np.asarray(wanted & short[of] & (rank <= least))


def _in_dropouts(duration: Floats, rate: Floats, of: Ints, seconds: Floats, rng: np.random.Generator) -> Bools:
    """Returns a mask of the fixes in random gaps: ``rate`` per hour, mostly of one to four minutes."""
    gap = np.repeat(np.arange(len(duration)), rng.poisson(rate * duration / HOUR))
    opens = rng.uniform(0, 1, len(gap)) * duration[gap]
    closes = np.minimum(opens + 120.0 * np.exp(rng.normal(0, 0.9, len(gap))), duration[gap])
    apart = float(duration.max()) + 1.0  # all journeys lie end to end on one axis
    axis = of * apart + seconds
    change = np.zeros(len(of) + 1, dtype=np.int64)
    np.add.at(change, np.searchsorted(axis, gap * apart + opens), 1)
    np.add.at(change, np.searchsorted(axis, gap * apart + closes), -1)
    return np.asarray(np.cumsum(change)[:-1] > 0)


def _drift(clock: Floats, rng: np.random.Generator) -> Floats:
    """Draws a drifting Gaussian error of constant variance, interpolated between independent knots."""
    knots = rng.normal(0, SLOW_NOISE, (int(clock.max() // _DRIFT) + 2, 2))
    k = (clock // _DRIFT).astype(np.int64)
    share = (clock / _DRIFT - k)[:, None]
    blend = (1 - share) * knots[k] + share * knots[k + 1]
    return np.asarray(blend / np.sqrt((1 - share) ** 2 + share**2))
