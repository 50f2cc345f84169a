"""The tally: what is summed up over an open trip, so that its scores are known at every fix. O(1) a fix.

The sums are those of :mod:`astray.aggregate`, kept as plain numbers: a call of numpy for one trip costs as much as
for a thousand. The scores of a finished trip equal those of the whole file to rounding.
"""

from __future__ import annotations

import math
from array import array
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.aggregate import MOST_EVIDENCE
from astray.decide import leaving
from astray.detectors.scoring import LEAST_SEGMENT
from astray.live.score import Stretch
from astray.live.tape import Tape
from astray.normality import Location, Scale

Array = NDArray[Any]


class Lowest(NamedTuple):
    """The value of the lowest aspect, and which that is."""

    value: float
    aspect: int


class Gauge:
    """A scale in plain numbers: what :class:`~astray.normality.Calibration` measures, one row at a time."""

    def __init__(self, scale: Scale) -> None:
        c = scale.calibration
        self.aspects, self.seconds, self.by_mean = c.aspects, c.window_seconds, c.scale == "step"
        self._tolerance, self._softness = tuple(float(t) for t in c.tolerance), c.softness
        self._step, self._trip, self._window, self._overall = c.step, c.trip, c.window, c.overall
        self._units = [s.spread * t * c.overall.step.spread for s, t in zip(c.step, self._tolerance, strict=True)]
        self._trips = c.trips
        self._step_noise, self._trip_noise = scale.step_noise, scale.trip_noise

    def of_aspects(self, rewards: Array) -> list[float]:
        """n(s, a) of each aspect, from rewards (aspects, heads)."""
        means = (np.add.reduce(rewards, axis=1, dtype=np.float64) / rewards.shape[1]).tolist()
        return [(m - s.centre) / s.spread for m, s in zip(means, self._step, strict=True)]

    def _lowest(self, values: list[float], scales: tuple[Location, ...], overall: Location) -> Lowest:
        over = [(v - s.centre) / s.spread / t for v, s, t in zip(values, scales, self._tolerance, strict=True)]
        value = min(over)
        return Lowest((value - overall.centre) / overall.spread, over.index(value))

    def step(self, n: list[float]) -> Lowest:
        """n(s, a) of a step, from that of its aspects."""
        over = [v / t for v, t in zip(n, self._tolerance, strict=True)]
        value = min(over)
        return Lowest((value - self._overall.step.centre) / self._overall.step.spread, over.index(value))

    def lifted(self, n: list[float]) -> list[float]:
        """What each aspect averages over a trip, of one row: exp(n / T) where its mean is soft, n where it is plain."""
        most = MOST_EVIDENCE
        return [math.exp(min(max(v / t, -most), most)) if t else v for v, t in zip(n, self._softness, strict=True)]

    def trip(self, means: list[float]) -> Lowest:
        """N(tau), from the mean of what each aspect averages."""
        soft = [t * math.log(m) if t else m for m, t in zip(means, self._softness, strict=True)]
        return self._lowest(soft, self._trip, self._overall.trip)

    def window(self, means: list[float]) -> Lowest:
        """A window, from its mean n of each aspect."""
        return self._lowest(means, self._window, self._overall.window)

    def step_uncertainty(self, rewards: Array, aspect: int) -> float:
        """The spread over the heads of a step, in units of n(s, a)."""
        heads = rewards[aspect].astype(np.float64)
        off = heads - np.add.reduce(heads) / len(heads)
        return math.hypot(float(np.sqrt(np.add.reduce(off * off) / len(heads))) / self._units[aspect], self._step_noise)

    def trip_uncertainty(self, head_means: Array, aspect: int) -> float:
        """The spread over the heads of a trip's plain mean, in the same unit."""
        return math.hypot(_spread(head_means[aspect].tolist()) / self._units[aspect], self._trip_noise)

    def p_value(self, score: float) -> float:
        """The share of left-out trips, this one counted, that score as low."""
        return (1.0 + int(np.searchsorted(self._trips, score, side="right"))) / (1.0 + len(self._trips))


class Running(NamedTuple):
    """The scores of a trip so far."""

    normality: float
    uncertainty: float
    worst_window: float
    score: float
    p_value: float
    aspect: int


class Tally:
    """The sums of one trip.

    Parameters
    ----------
    gauge
        What scores are measured on.
    enter
        A stretch opens at a normality of this, and closes half-way back to normal.
    """

    __slots__ = (
        *("_cumulative", "_enter", "_first", "_gauge", "_head", "_heads", "_leave", "_lifted", "_lowest", "_masses"),
        *("_stretch", "_sums", "_times", "_total", "_whole", "_worst_span", "end", "rows", "start", "window"),
        "worst_stretch",
    )

    def __init__(self, gauge: Gauge, enter: float) -> None:
        aspects = len(gauge.aspects)
        self._gauge = gauge
        self._enter, self._leave = enter, float(leaving(enter))
        self.rows = 0
        self.start = self.end = math.nan
        # Weighted sums, of n and of what is averaged; the first row weighs nothing and counts only while it is alone.
        self._total = 0.0
        self._sums, self._lifted = [0.0] * aspects, [0.0] * aspects
        self._heads: Array = np.zeros((aspects, 0))
        self._first: tuple[list[float], Array] | None = None
        # Of the rows of the last window: their time, and what the sums were before them.
        self._times, self._masses, self._cumulative = array("d"), array("d"), array("d")
        self._head = 0
        self._lowest = [math.inf] * aspects
        self._worst_span = (math.inf, math.nan, math.nan, math.nan)  # its value, its times, its mean n(s, a)
        self.window = math.nan
        # The open stretch: when it began, its sum of n, its rows; whether all rows so far lie in it.
        self._stretch: tuple[float, float, int] | None = None
        self._whole = True
        self.worst_stretch: Stretch | None = None

    # ---------------------------------------------------------------- adding

    def add(self, time: float, weight: float, n: list[float], rewards: Array, normality: float) -> None:
        """Count a row: n of each aspect, rewards (aspects, heads), and n(s, a)."""
        if not self.rows:
            self.start = time
            self._first = (n, rewards.astype(np.float64))
            self._heads = np.zeros(rewards.shape)
        else:
            self._first = None
        self.rows += 1
        self._times.append(time)
        self._masses.append(self._total)
        self._cumulative.extend(self._sums)
        self._total += weight
        self._sums = [s + weight * v for s, v in zip(self._sums, n, strict=True)]
        self._lifted = [s + weight * v for s, v in zip(self._lifted, self._gauge.lifted(n), strict=True)]
        self._heads += weight * rewards.astype(np.float64)
        self._count_window(time)
        self._count_stretch(time, normality)
        self.end = time

    def _count_window(self, time: float) -> None:
        seconds, times, aspects = self._gauge.seconds, self._times, len(self._sums)
        oldest = time - seconds
        while times[self._head] <= oldest:
            self._head += 1
        low = self._head
        mass = self._total - self._masses[low]
        self.window = math.nan
        if time - self.start >= seconds / 2 and mass > 0:
            before = self._cumulative[low * aspects : (low + 1) * aspects]
            means = [(s - b) / mass for s, b in zip(self._sums, before, strict=True)]
            self._lowest = [min(a, b) for a, b in zip(self._lowest, means, strict=True)]
            self.window = self._gauge.window(means).value
            if self.window < self._worst_span[0]:
                self._worst_span = (self.window, times[low], time, self._gauge.step(means).value)
        if low > 32 and 2 * low > len(times):
            del times[:low], self._masses[:low], self._cumulative[: low * aspects]
            self._head = 0

    def _count_stretch(self, time: float, normality: float) -> None:
        if self._stretch is not None and normality <= self._leave:
            start, total, rows = self._stretch
            self._stretch = (start, total + normality, rows + 1)
        elif normality <= self._enter:
            self._stretch = (time, normality, 1)
        else:
            self._whole = False
            self._close_stretch()

    def _close_stretch(self) -> None:
        """The open stretch is over; what is too short is noise, unless it is the whole trip."""
        if self._stretch is None:
            return
        found = self.stretch
        assert found is not None
        self._stretch = None
        if self._whole or found.end - found.start >= LEAST_SEGMENT:
            worst = self.worst_stretch
            if worst is None or _lost(found) < _lost(worst):
                self.worst_stretch = found

    # ---------------------------------------------------------------- asking

    @property
    def stretch(self) -> Stretch | None:
        """The stretch that is not normal and still lasts."""
        if self._stretch is None:
            return None
        start, total, rows = self._stretch
        return Stretch(start, self.end, total / rows)

    def running(self) -> Running:
        """The scores of the trip so far."""
        gauge = self._gauge
        if self._first is not None:
            means, lifted, heads = self._first[0], gauge.lifted(self._first[0]), self._first[1]
        else:
            means, lifted = ([s / self._total for s in sums] for sums in (self._sums, self._lifted))
            heads = self._heads / self._total
        mean = gauge.trip(lifted)
        window = gauge.window([min(a, b) for a, b in zip(self._lowest, means, strict=True)])
        by_window = window.value < mean.value and not gauge.by_mean
        decisive = window if by_window else mean
        return Running(
            mean.value,
            gauge.trip_uncertainty(heads, decisive.aspect),
            window.value,
            decisive.value,
            gauge.p_value(decisive.value),
            decisive.aspect,
        )

    def worst(self, score: float) -> Stretch | None:
        """The stretch in which most normality was lost, the open one counted.

        A trip may score low without a single fix that does; then it is the worst window.
        """
        found, worst = self.stretch, self.worst_stretch
        if found is not None and (self._whole or found.end - found.start >= LEAST_SEGMENT):
            worst = found if worst is None or _lost(found) < _lost(worst) else worst
        if worst is None and score <= self._enter and math.isfinite(self._worst_span[0]):
            return Stretch(*self._worst_span[1:])
        return worst

    # ---------------------------------------------------------------- keeping

    def freeze(self, tape: Tape) -> None:
        """Put the sums on a tape."""
        tape.put(self.rows, self.start, self.end, self._total, self.window, *self._worst_span, self._whole)
        tape.put_many(self._sums)
        tape.put_many(self._lifted)
        tape.put_many(self._lowest)
        tape.put_many(self._heads.ravel().tolist())
        tape.put_many([] if self._first is None else [*self._first[0], *self._first[1].ravel().tolist()])
        low = self._head
        tape.put_many(self._times[low:])
        tape.put_many(self._masses[low:])
        tape.put_many(self._cumulative[low * len(self._sums) :])
        tape.put_many([] if self._stretch is None else self._stretch)
        tape.put_many([] if self.worst_stretch is None else self.worst_stretch)

    def thaw(self, tape: Tape) -> None:
        """Take them off again."""
        aspects = len(self._gauge.aspects)
        self.rows, self.start, self.end = tape.count(), tape.take(), tape.take()
        self._total, self.window = tape.take(), tape.take()
        self._worst_span = (tape.take(), tape.take(), tape.take(), tape.take())
        self._whole = bool(tape.take())
        self._sums, self._lifted, self._lowest = (tape.many().tolist() for _ in range(3))
        self._heads = np.array(tape.many()).reshape(aspects, -1)
        first = np.array(tape.many())
        if len(first):
            self._first = (first[:aspects].tolist(), first[aspects:].reshape(aspects, -1))
        self._head = 0
        self._times, self._masses, self._cumulative = tape.many(), tape.many(), tape.many()
        stretch, worst = tape.many().tolist(), tape.many().tolist()
        self._stretch = (stretch[0], stretch[1], int(stretch[2])) if stretch else None
        self.worst_stretch = Stretch(*worst) if worst else None


def _spread(values: list[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum([(v - mean) ** 2 for v in values]) / len(values))


def _lost(stretch: Stretch) -> float:
    return stretch.normality * max(stretch.end - stretch.start, 1.0)
