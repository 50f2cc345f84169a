"""Writes the texts of pictures and pages about a trip, and selects the fixes that they draw."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.text import harmless, number_of
from astray.explain import ExplainedSegment, Explanation

Floats = NDArray[np.float64]

STOOD = 5.0  # a map marks a place where a trip stood still for this many minutes
SAME_PLACE = 60.0  # a trip stands still while it is within this many metres of where it stopped
IN_SECONDS = 180.0  # shorter times are counted in seconds
IN_MINUTES = 3 * 3600.0  # longer times are counted in hours

VERDICTS = {"anomaly": "Anomaly", "review": "For review", "normal": "Normal"}


def heading(e: Explanation) -> str:
    """Returns a heading with the decision and the trip."""
    whose = f" of {harmless(e.agent)}" if e.agent else ""
    when = f", {e.began}" if e.began else ""
    return f"{VERDICTS.get(e.decision, e.decision)}: trip {harmless(e.trajectory)}{whose}{when}"


def grounds(e: Explanation) -> list[str]:
    """Returns lines with the reasons against the trip, if any, and with the scores behind the decision."""
    if np.isnan(e.score):
        return ["no usable fix, so no score"]
    threshold = f"{round(e.eps, 2):g}"
    chance = f"p = {e.p_value:.2g}: {frequency(e.p_value)}" if np.isfinite(e.p_value) else "no p-value"
    scores = f"N(τ) = {e.trip_normality:.1f} ± {e.trip_uncertainty:.1f}"
    # A reward of steps alone also looks for the worst part of a trip.
    scores += "" if e.score == e.trip_normality else f", the worst of it {e.score:.1f}"
    lines = [e.why[0].upper() + e.why[1:]] if e.why else []
    if e.rates:
        within = " and ".join(e.low_aspects) or "no aspect"
        lines.append(f"{minus(scores)}; within its rate of false alarms: {within}")
    else:
        against = "at or under" if e.score <= e.eps else "above"
        lines.append(minus(f"{scores}: {against} the threshold of {threshold}"))
    if e.is_low and e.lowest:
        lines.append(e.lowest)
    if e.aspects_in_words:
        lines.append(e.aspects_in_words)
    lines.append(f"{chance}; learned from {number_of(e.history, 'past trip')}")
    usable = usable_fixes(e)
    if e.segments and min(e.normality[rows_of(s, usable)].min() for s in e.segments) > e.eps:
        lines.append(minus(f"no single fix is at or under {threshold}; the worst part of the trip is marked"))
    return lines


def frequency(p: float) -> str:
    """Returns a p-value in words.

    >>> frequency(0.037), frequency(0.6)
    ('about 1 normal trip in 27 scores as low', 'about 60 % of normal trips score as low')
    """
    if p <= 0.25:
        return f"about 1 normal trip in {1 / max(p, 1e-9):.0f} scores as low"
    return f"about {100 * p:.0f} % of normal trips score as low"


def span(e: Explanation, segment: ExplainedSegment) -> str:
    """Returns the time span of a segment: hours and minutes, with seconds if it is short; or steps."""
    if not len(e.lat):
        return f"{segment.start_time:.0f}–{segment.end_time:.0f}"
    as_clock = "%H:%M:%S" if segment.end_time - segment.start_time < IN_SECONDS else "%H:%M"
    return f"{e.zone.clock(segment.start_time):{as_clock}}–{e.zone.clock(segment.end_time):{as_clock}}"


class Unit(NamedTuple):
    """A unit of time."""

    name: str
    seconds: float


def clock_unit(e: Explanation) -> Unit | None:
    """Returns the best unit for the time since the start of a trip; None for states and actions, which have steps."""
    if not len(e.lat):
        return None
    lasts = float(e.time[-1] - e.time[0])
    if lasts < IN_SECONDS:
        return Unit("seconds", 1.0)
    return Unit("minutes", 60.0) if lasts <= IN_MINUTES else Unit("hours", 3600.0)


def minus(words: str) -> str:
    """Replaces hyphens by minus signs, which are as wide as a plus.

    >>> minus("-2")
    '−2'
    """
    return words.replace("-", "\N{MINUS SIGN}")


def usable_fixes(e: Explanation) -> NDArray[np.bool_]:
    """Returns a mask of the fixes that have a score."""
    return np.asarray(np.isfinite(e.normality) & (e.fault == ""))


def rows_of(segment: ExplainedSegment, usable: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Returns the positions of the usable fixes of a segment."""
    return segment.start + np.flatnonzero(usable[segment.start : segment.stop])


class Stop(NamedTuple):
    """A place where a trip stood still."""

    place: Floats
    minutes: float


def long_stop(path: Floats, time: Floats) -> Stop | None:
    """Returns where a trip (metres, seconds) stayed longest in one place; None if it stayed nowhere for long.

    >>> stood = np.array([[0.0, 0.0], [1000.0, 0.0], [1010.0, 0.0], [2000.0, 0.0]])
    >>> long_stop(stood, np.array([0.0, 60.0, 660.0, 720.0]))
    Stop(place=array([1000.,    0.]), minutes=10.0)
    """
    place, longest, i = np.zeros(2), 0.0, 0
    while i < len(path):
        last = _stays_until(path, i)
        if time[last] - time[i] > longest:
            place, longest = path[i], float(time[last] - time[i])
        i = max(last, i + 1)
    return Stop(place, longest / 60.0) if longest >= 60.0 * STOOD else None


def _stays_until(path: Floats, first: int) -> int:
    """Returns the last fix before the trip leaves the place of ``first``; searches in windows that double."""
    at, size = first, 16
    while at < len(path):
        away = np.flatnonzero(np.hypot(*(path[at : at + size] - path[first]).T) > SAME_PLACE)
        if len(away):
            return at + int(away[0]) - 1
        at, size = at + size, 2 * size
    return len(path) - 1
