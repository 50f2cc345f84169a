"""Reasons: which statistics of a trip decided its score, said with the trip's own counts.

The statistics are put into groups that a person has a word for. A group's effect is how much N(tau) rises when its
statistics are put back to those of a typical normal trip: on average over all orders in which the groups can be put
back (Shapley values; Lundberg and Lee 2017), since several groups often say the same and one alone changes little.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import factorial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.irl.shared import Reward, band_of, trip_rewards
from astray.mdp.familiarity import Habit
from astray.mdp.statistics import END_CELLS, MOTION, OVER_STEPS, TRIP_HABITS, TripHabit
from astray.normality import Calibration, over_heads

Array = NDArray[Any]
Floats = NDArray[np.float64]

MATERIAL = 0.3  # units of N that a reason must be worth
MOST = 3  # reasons that are given
SHARE = 0.05  # of the way that is worth a word
OVER_OTHERS = ("mean", "first", "last", "where new")  # the statistics of how many others go somewhere
PAST = "past trips"


@dataclass(frozen=True)
class Reason:
    """Something about a trip that lowered its score."""

    words: str
    effect: float  # by how much N(tau) would be higher if this were as in a typical normal trip
    group: str  # of statistics: a key of GROUPS_IN_WORDS

    def __str__(self) -> str:
        return self.words


class Facts(NamedTuple):
    """A trip's statistics beside those of a typical one, found by what they are statistics of."""

    column: dict[Hashable, int]
    habits: tuple[Habit, ...]
    cells: tuple[float, ...]  # in which others are counted
    own: Floats
    typical: Floats
    others: int  # agents whose places are known

    @property
    def past(self) -> int:
        """How many past trips there are."""
        return round(float(np.expm1(self[PAST])))

    def __getitem__(self, what: Hashable) -> float:
        """A statistic of the trip."""
        return float(self.own[self.column[what]])

    def fewer(self, what: Hashable) -> bool:
        """Whether the trip has less of it than a typical one."""
        return self[what] < float(self.typical[self.column[what]])

    def count(self, what: Hashable) -> int:
        """How many past trips a statistic stands for; 0 only if there is none."""
        mean = float(np.expm1(self[what]))
        return max(1, round(mean)) if mean > 0 else 0

    def times(self, did: str, what: Hashable) -> str:
        """That the agent never, or rarely, did something; nothing if it did so as often as is typical."""
        n = self.count(what)
        if n == 0:
            return f"never {did} before (0 of {self.past} past trips)"
        return f"{did} in {n} of {self.past} past trips" if self.fewer(what) else ""

    def trips(self, were: str, what: Hashable) -> str:
        """That no, or hardly any, past trip was like this one; nothing if as many were as is typical."""
        n = self.count(what)
        if n == 0:
            return f"no past trip {were}"
        return f"{n} of {self.past} past trips {were}" if self.fewer(what) else ""

    @property
    def smallest(self) -> Habit | None:
        """The smallest place whose visits are counted."""
        return min((h for h in self.habits if _is_place(h)), key=lambda h: h.cell or 0.0, default=None)

    def rarely(self, of: Sequence[tuple[str, str]]) -> str:
        """Which part of the way is known, but not like this; ``of`` are fields of habits, and words for them."""
        found = []
        for field, said in of:
            for habit in self.habits:
                known = self._without(habit, field)
                if known is not None:
                    found.append((self[habit, "new"] - self[known, "new"], said))
        much = max(found, key=lambda f: f[0], default=(0.0, ""))
        return f"{_percent(much[0])} of the way never {much[1]} before" if much[0] >= SHARE else ""

    def _without(self, habit: Habit, field: str) -> Habit | None:
        """The habit that asks the same but for one thing; or the largest place that is not larger. None if none."""
        nothing = getattr(Habit(), field)
        if getattr(habit, field) == nothing or habit.cell is None:
            return None
        same = replace(habit, **{field: nothing})
        if same in self.habits:
            return same
        others = [f for f in ("origin", "heading", "speed", "hours", "weekend", "trail") if f != field]
        if any(getattr(habit, f) != getattr(Habit(), f) for f in others):
            return None
        places = [h for h in self.habits if _is_place(h) and (h.cell or 0.0) <= habit.cell]
        return max(places, key=lambda h: h.cell or 0.0, default=None)


def _is_place(habit: Habit) -> bool:
    return habit.cell is not None and habit == Habit(cell=habit.cell)


def _percent(share: float) -> str:
    return "all" if share >= 0.995 else f"{100 * share:.0f} %"


# -------------------------------------------------------------------- in words


def _same(*parts: str, size: float = 0.0) -> TripHabit:
    return TripHabit(parts, parts, size)


NEAR, AROUND = END_CELLS[0], END_CELLS[-1]
BETWEEN, BACK = _same("start", "stop", size=NEAR), TripHabit(("stop", "start"), ("start", "stop"), NEAR)


def _end(facts: Facts) -> str:
    return facts.times("ended here", _same("stop", size=NEAR))


def _start(facts: Facts) -> str:
    return facts.times("began here", _same("start", size=NEAR))


def _between(facts: Facts) -> str:
    back = facts.count(BACK)
    if facts.count(BETWEEN) == 0 and back:
        return f"no past trip from its start to its end, but {back} the other way"
    return facts.trips("between these two places", BETWEEN)


def _place(facts: Facts) -> str:
    place = facts.smallest
    if place is None:
        return ""
    new = facts[place, "new"]
    if new >= SHARE:
        return f"{_percent(new)} of the way is new"
    few = facts.count((place, "lowest"))
    return f"a part of the way was taken in {few} of {facts.past} past trips" if facts.fewer((place, "lowest")) else ""


def _direction(facts: Facts) -> str:
    said = facts.rarely([("heading", "in this direction"), ("trail", "in this order"), ("origin", "from this start")])
    if said:
        return said
    for habit in facts.habits:
        if habit == Habit(cell=habit.cell, heading=True) and facts.fewer((habit, "mean")):
            return f"in this direction in about {facts.count((habit, 'mean'))} of {facts.past} past trips"
    return ""


def _hour(facts: Facts) -> str:
    if facts.count(_same("hour")) == 0:
        return facts.times("under way at this hour", _same("hour"))
    at = {part: _same(part, "hour", size=NEAR) for part in ("start", "stop")}
    # Where the agent has never been at all, the hour is not what is new.
    never = [p for p, habit in at.items() if facts[habit] == 0 and facts[_same(p, size=NEAR)] > 0]
    said = {"start": "began", "stop": "ended"}
    if never:
        return f"never {' or '.join(said[part] for part in never)} here at this hour before"
    part_of_way = facts.rarely([("hours", "at this hour")])
    rare = [facts.times(f"{said[p]} here at this hour", habit) for p, habit in at.items() if facts[habit] > 0]
    return part_of_way or next(filter(None, rare), facts.trips("began at about this hour", _same("hour")))


def _as_long(facts: Facts, band: str, were: str) -> str:
    """Of past trips between the same places, or else of all, how many were like this one."""
    for size, where in ((NEAR, "between these two places"), (AROUND, "between these two neighbourhoods")):
        between, like = _same("start", "stop", size=size), _same("start", "stop", band, size=size)
        if facts[between] > 0 and facts[like] == 0:
            n = facts.count(between)
            none_of = f"none of the {n} past trips" if n > 1 else "not the one past trip"
            return f"{none_of} {where} {were}"
    return facts.trips(were, _same(band))


def _length(facts: Facts) -> str:
    return _as_long(facts, "length", f"was about as long ({np.expm1(facts['length']) / 1000.0:.1f} km)")


def _duration(facts: Facts) -> str:
    return _as_long(facts, "duration", f"took about as long ({np.exp(facts['duration']) / 60.0:.0f} minutes)")


def _standing(facts: Facts) -> str:
    return f"stood still for {100 * facts['standing']:.0f} % of the time" if facts["standing"] >= SHARE else ""


def _speed(facts: Facts) -> str:
    trips = facts.trips(f"was about as fast ({3.6 * np.expm1(facts['speed']):.0f} km/h)", _same("speed"))
    return facts.rarely([("speed", "at such a speed")]) or trips


def _others(facts: Facts) -> str:
    """How many others go where the agent has never been; if it knows all of the way, how many go there."""
    size = min(facts.cells)
    new = facts[Habit(cell=size), "new"]
    log, where = (facts[size, "where new"] / new, "where it is new") if new >= SHARE else (facts[size, "mean"], "here")
    n = round(float(np.expm1(log)))
    if n == 0:
        return f"none of {facts.others} others goes {where}"
    return f"about {n} of {facts.others} others {'go' if n > 1 else 'goes'} {where}"


GROUPS_IN_WORDS: dict[str, Callable[[Facts], str]] = {
    "end": _end,
    "start": _start,
    "between": _between,
    "place": _place,
    "direction": _direction,
    "hour": _hour,
    "length": _length,
    "duration": _duration,
    "standing": _standing,
    "speed": _speed,
    "others": _others,
}
"""The groups of statistics, each with what is said of it; nothing if the trip has nothing unusual of the kind."""


# -------------------------------------------------------------------- groups


@lru_cache(maxsize=16)
def columns(habits: tuple[Habit, ...], cells: tuple[float, ...]) -> tuple[tuple[Hashable, str], ...]:
    """What each of the trip statistics is of, and the group that it belongs to, in their order.

    A habit of steps comes with what is taken over the steps, a size of cells with what is known of others there.
    """
    return (
        *(((habit, what), _group_of_steps(habit, what)) for habit in habits for what in OVER_STEPS),
        *((habit, _group_of_trips(habit)) for habit in TRIP_HABITS),
        *((what, _GROUPS_OF_MOTION[what]) for what in MOTION),
        *(((size, what), "others") for size in cells for what in OVER_OTHERS),
        (PAST, ""),
    )


def _group_of_steps(habit: Habit, what: str) -> str:
    if habit.hours is not None or habit.weekend:
        return "hour"
    if habit.speed:
        return "speed"
    if not _is_place(habit):
        return "direction"
    return {"first": "start", "last": "end"}.get(what, "place")


def _group_of_trips(habit: TripHabit) -> str:
    for part in ("hour", "length", "duration", "speed"):
        if part in habit.now:
            return part
    return {("start",): "start", ("stop",): "end"}.get(habit.now, "between")


_GROUPS_OF_MOTION = {
    "length": "length",
    "duration": "duration",
    "speed": "speed",
    "straightness": "length",
    "standing": "standing",
    "highest speed": "speed",
    "spread of speed": "speed",
}


# -------------------------------------------------------------------- what decided


def reasons(
    statistics: Array,
    reward: Reward,
    calibration: Calibration,
    *,
    habits: tuple[Habit, ...],
    cells: tuple[float, ...],
    history: float,
    others: int = 0,
) -> tuple[Reason, ...]:
    """What lowered a trip's score most, the most important first; nothing for an agent without a past.

    Parameters
    ----------
    statistics
        Those of the trip.
    reward, calibration
        What it was scored by.
    habits, cells
        What the statistics are of: habits of steps, and sizes of the cells in which others are counted.
    history
        How many past trips stand behind the score.
    others
        Of how many other agents the places are known.
    """
    own = np.asarray(statistics, np.float64)
    if reward.trip is None or reward.reference is None or np.isnan(own).all() or history < 1:
        return ()
    known = columns(habits, cells)
    typical = np.asarray(reward.reference.typical[int(band_of(history))], np.float64)
    facts = Facts({what: i for i, (what, _) in enumerate(known)}, habits, cells, own, typical, others)
    group = np.array([group for _, group in known])
    members = np.array([group == name for name in GROUPS_IN_WORDS]) & ~np.isnan(own) & ~np.isnan(typical)

    def normality(back: NDArray[np.bool_]) -> Floats:
        """N of the trip with some groups put back: (sets, groups) to (sets,)."""
        rewards = trip_rewards(reward.trip, np.where(back @ members, typical, own))
        return calibration.trip.standardise(over_heads(rewards, calibration.weights))

    effects = dict(zip(GROUPS_IN_WORDS, shapley(normality, len(members)).tolist(), strict=True))
    found: list[Reason] = []
    for name in sorted(effects, key=lambda name: -effects[name]):
        said = GROUPS_IN_WORDS[name](facts) if effects[name] >= MATERIAL else ""
        if said:
            found.append(Reason(said, effects[name], name))
    return tuple(found[:MOST])


def shapley(value: Callable[[NDArray[np.bool_]], Floats], n: int) -> Floats:
    """What each of ``n`` players adds to the value of a set, on average over all orders in which they may join.

    ``value`` is given sets, one a row; there are two to the power of ``n``.

    >>> shapley(lambda sets: sets @ np.array([1.0, 2.0]) + 4.0 * sets.all(axis=1), 2).tolist()
    [3.0, 4.0]
    """
    sets = np.arange(2**n)[:, None] >> np.arange(n) & 1 > 0
    values, size = value(sets), sets.sum(axis=1)
    weight = np.array([factorial(k) * factorial(n - k - 1) / factorial(n) for k in range(n)])
    found = np.empty(n)
    for player in range(n):
        without = np.flatnonzero(~sets[:, player])
        found[player] = weight[size[without]] @ (values[without + 2**player] - values[without])
    return found
