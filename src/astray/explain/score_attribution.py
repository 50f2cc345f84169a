"""Finds the reasons for a trip's score: how much each group of its statistics lowered it.

Each group has a plain name, such as the hour. Its effect is how much N(tau) rises when its statistics are replaced by
those of a typical normal trip, averaged over all orders in which the groups can be replaced (Shapley values; Lundberg
and Lee 2017): groups often overlap, and then one alone changes little.

Where an agent has never been, it has never been at this hour either. So the count of a place at an hour is compared
with the count of the place. To replace the place also replaces the count at the hour, unless that is rarer than is
typical for the place; the hour is blamed only for the rest. The same holds for directions and speeds, and for pairs of
places and their two ends.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import factorial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.explain.trip_phrases import NEAR, PAST, PHRASES, Facts, alike, is_place, same_but
from astray.features.familiarity import Habit
from astray.features.featurizer import Featurizer
from astray.features.statistics import OVER_OTHERS, OVER_STEPS, WAY
from astray.features.trip_rows import (
    DURATION_BANDS,
    LENGTH_BANDS,
    MOTION,
    SPEED_BANDS,
    TRIP_HABITS,
    TripHabit,
    TripRows,
)
from astray.irl.shared import band_of, trip_rewards
from astray.scoring.normality import over_heads

if TYPE_CHECKING:
    from astray.scoring.scores import Scores

Array = NDArray[Any]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MATERIAL = 0.3  # the least units of N that a reason must cost
MOST = 3  # the most reasons
BANDS = {"length": LENGTH_BANDS, "duration": DURATION_BANDS, "speed": SPEED_BANDS}
REACH = 16  # how many bands on either side of the trip's band are counted


@dataclass(frozen=True)
class Reason:
    """Something about a trip that lowered its score."""

    words: str
    effect: float  # how much higher N(tau) would be if this were as in a typical normal trip
    group: str  # the group of statistics, such as "end", "place", "hour"

    def __str__(self) -> str:
        return self.words


class Column(NamedTuple):
    """A trip statistic that can be replaced by the typical one."""

    what: Hashable  # a habit of steps with its aggregate; a trip habit; a name
    group: str
    relative_to: tuple[Hashable, ...] = ()  # statistics that bound this one: it is replaced as far as they are
    needs: Hashable = None  # a count; if that is zero, this one is zero, too


@lru_cache(maxsize=16)
def columns(habits: tuple[Habit, ...], cells: tuple[float, ...]) -> tuple[Column, ...]:
    """Returns the trip statistics in the order of :func:`astray.features.statistics.statistics_of`."""
    return (
        *(_of_steps(habit, what, habits) for habit in habits for what in OVER_STEPS),
        *(_of_trips(habit) for habit in TRIP_HABITS),
        *(Column(what, _MOTIONS[what]) for what in MOTION),
        *(_of_others(size, what) for size in cells for what in OVER_OTHERS),
        Column(PAST, ""),
        Column(WAY, "direction"),
    )


def _of_steps(habit: Habit, what: str, habits: tuple[Habit, ...]) -> Column:
    if is_place(habit):
        return Column((habit, what), {"first": "start", "last": "end"}.get(what, "place"))
    hour = habit.hours is not None or habit.weekend
    group = "hour" if hour else "speed" if habit.speed else "direction"
    fields = {"hour": ("hours", "weekend"), "speed": ("speed",), "direction": ("heading", "trail", "origin")}[group]
    known = next(filter(None, (same_but(habit, field, habits) for field in fields)), None)
    began = alike("start", size=NEAR) if habit.origin else None
    return Column((habit, what), group, () if known is None else ((known, what),), began)


def _of_trips(habit: TripHabit) -> Column:
    """Returns the column of a trip habit: of an end, of both ends, or of what trips between them have in common."""
    ends = tuple(part for part in habit.now if part in ("start", "stop"))
    group = next((part for part in habit.now if part not in ends), None)
    if group is not None:
        return Column(habit, group, (alike(*ends, size=habit.size),) if ends else ())
    if len(ends) == 1:
        return Column(habit, {"start": "start", "stop": "end"}[ends[0]])
    both = zip(habit.now, habit.past, strict=True)
    return Column(habit, "between", tuple(TripHabit((now,), (past,), habit.size) for now, past in both))


def _of_others(size: float, what: str) -> Column:
    return Column((size, what), "others", ((Habit(cell=size), "new"), (size, "mean")) if what == "where new" else ())


_MOTIONS = {
    "length": "length",
    "duration": "duration",
    "speed": "speed",
    "straightness": "length",
    "standing": "standing",
    "highest speed": "speed",
    "spread of speed": "speed",
}


# -------------------------------------------------------------------- the effects


def reasons(
    scores: Scores, featurizer: Featurizer, sides: Mapping[TripHabit, tuple[float, float]], aspect: str = ""
) -> tuple[Reason, ...]:
    """Returns what lowered one trip's score most, the most important first; nothing for an agent without past trips.

    If an ``aspect`` is named, it is what lowered the score of this aspect alone. ``sides`` are the numbers of past
    trips that were shorter and longer, quicker and slower: see :func:`either_side`.
    """
    chunk, trip_reward, reference = scores.chunk, scores.reward.trip, scores.reward.reference
    if chunk.statistics is None or trip_reward is None or reference is None:
        return ()
    own, history = np.asarray(chunk.statistics[0], np.float64), float(chunk.history[0])
    if np.isnan(own).all() or history < 1:
        return ()
    habits, popularity = featurizer.config.habits, featurizer.popularity
    others = len(popularity.agents) - int(popularity.excluded in popularity.agents.trip_ids)
    known, calibration = columns(habits, popularity.cells), scores.calibrations[int(chunk.scale[0])]
    typical = np.asarray(reference.typical[int(band_of(history))], np.float64)
    weights, scale = calibration.weights, calibration.trip
    if aspect:
        weights = tuple(float(name == aspect) for name in calibration.aspects)
        scale = calibration.by_aspect[calibration.aspects.index(aspect)].location

    def normality(back: Bools) -> Floats:
        rewards = trip_rewards(trip_reward, put_back(known, own, typical, back))
        return scale.standardise(over_heads(rewards, weights))

    effects = dict(zip(PHRASES, shapley(normality, len(PHRASES)).tolist(), strict=True))
    number = {column.what: i for i, column in enumerate(known)}
    facts = Facts(number, habits, popularity.cells, own, typical, others, sides)
    found: list[Reason] = []
    for group in sorted(effects, key=lambda group: -effects[group]):
        said = PHRASES[group](facts) if effects[group] >= MATERIAL else ""
        if said:
            found.append(Reason(said, effects[group], group))
    return tuple(found[:MOST])


def put_back(known: tuple[Column, ...], own: Floats, typical: Floats, back: Bools) -> Floats:
    """Returns a trip's statistics with the groups in ``back`` replaced by typical values.

    ``back`` is a mask (sets of groups, groups); the result is (sets, statistics).

    Missing statistics stay missing.
    """
    number = {column.what: i for i, column in enumerate(known)}
    chosen = {name: back[:, i] for i, name in enumerate(PHRASES)}
    missing = np.isnan(own) | np.isnan(typical)
    found: dict[int, Floats] = {}

    def value(i: int) -> Floats:
        if i not in found:
            found[i] = made(i)
        return found[i]

    def made(i: int) -> Floats:
        column = known[i]
        if missing[i] or column.group not in chosen:
            return np.full(len(back), own[i])
        limits = [number[what] for what in column.relative_to if not missing[number[what]]]
        if column.group == "others" and limits:
            return where_new(i, *limits)
        needed = number.get(column.needs)
        if needed is not None and own[needed] == 0:
            # It holds no information, and is replaced together with the count that it needs.
            able = chosen[known[needed].group]
            return np.asarray(np.where(able, relative(i, limits, np.ones(len(back), np.bool_)), own[i]), np.float64)
        return relative(i, limits, chosen[column.group])

    def relative(i: int, limits: list[int], usual: Bools) -> Floats:
        """Keeps a distance from the limits: the typical one where ``usual``, otherwise the trip's if that is larger."""
        if not limits:
            return np.asarray(np.where(usual, typical[i], own[i]), np.float64)
        is_share = known[i].what in shares
        sign, least, most = (-1.0, -1.0, 0.0) if is_share else (1.0, 0.0, np.inf)
        was, is_typical = sign * own[i], sign * typical[i]
        limit = np.min([sign * value(b) for b in limits], axis=0)
        limit_was, limit_typical = (float(np.min(sign * values[limits])) for values in (own, typical))
        gap = limit_typical - is_typical
        moved = np.clip(limit - np.where(usual, gap, max(gap, limit_was - was)), least, most)
        stays = np.where(usual, np.maximum(moved, was), was)
        return np.asarray(sign * np.where(limit == limit_was, stays, moved), np.float64)

    def where_new(i: int, new: int, mean: int) -> Floats:
        """Scales the number of others who go where the way is new by the share of the way that is new."""
        usual = typical[i] / typical[new] if typical[new] > 0 else typical[mean]
        rate = own[i] / own[new] if own[new] > 0 else usual
        return np.asarray(value(new) * np.where(chosen["others"], usual, rate), np.float64)

    shares = {column.what for column in known if isinstance(column.what, tuple) and column.what[-1] == "new"}
    return np.column_stack([value(i) for i in range(len(known))])


def either_side(featurizer: Featurizer, trip: TripRows, number: int) -> dict[TripHabit, tuple[float, float]]:
    """Counts the past trips in lower and in higher bands than this trip, for each trip habit that has bands.

    ``number`` is the trip's number in the memory, so that it does not count itself; -1 if the memory does not hold it.
    """
    if not len(trip.present):
        return {}
    steps = np.delete(np.arange(-REACH, REACH + 1), REACH)
    moved = trip[np.zeros(len(steps), np.int64)]
    motion = moved.motion.copy()
    for band, width in BANDS.items():
        motion[:, MOTION.index(band)] += steps / width
    vars(moved)["motion"] = motion  # as if the trip had been longer or slower
    counts = featurizer.memory.counts(moved.looked_up, np.array(number)).mean(axis=2)
    return {
        habit: (float(counts[steps < 0, h].sum()), float(counts[steps > 0, h].sum()))
        for h, habit in enumerate(TRIP_HABITS)
        if set(BANDS) & set(habit.now)
    }


def shapley(value: Callable[[Bools], Floats], n: int) -> Floats:
    """Returns how much each of ``n`` players adds to the value of a set, averaged over all orders in which they join.

    ``value`` gets all two to the power of ``n`` sets, one per row.

    >>> shapley(lambda sets: sets @ np.array([1.0, 2.0]) + 4.0 * sets.all(axis=1), 2).tolist()
    [3.0, 4.0]
    """
    sets = (np.arange(2**n)[:, None] >> np.arange(n) & 1) > 0
    values, size = value(sets), sets.sum(axis=1)
    weight = np.array([factorial(k) * factorial(n - k - 1) / factorial(n) for k in range(n)])
    found = np.empty(n)
    for player in range(n):
        without = np.flatnonzero(~sets[:, player])
        found[player] = weight[size[without]] @ (values[without + 2**player] - values[without])
    return found
