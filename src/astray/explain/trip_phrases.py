"""Puts the statistics of a trip into words, group by group, with the trip's own counts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.text import number_of
from astray.features.familiarity import Habit
from astray.features.trip_rows import END_CELLS, TripHabit

Floats = NDArray[np.float64]

SHARE = 0.05  # smaller shares of the way are not mentioned
ALL = 0.995  # from this share on, words say the whole way
FEW = float(np.log(2.0))  # few are half as many as is typical; a difference of logarithms
PAST = "past trips"
NEW_MOVES = ("own", "new", 0.0)  # the share of a trip's moves that its agent never made there


class Facts(NamedTuple):
    """The statistics of a trip and of a typical one, looked up by what they count."""

    column: dict[Hashable, int]
    habits: tuple[Habit, ...]
    cells: tuple[float, ...]  # sizes of the cells in which other agents are counted
    own: Floats
    typical: Floats
    others: int = 0  # agents whose places are known
    sides: Mapping[TripHabit, tuple[float, float]] = {}  # numbers of past trips in lower and in higher bands

    @property
    def past(self) -> int:
        """The number of past trips."""
        return round(float(np.expm1(self.of(PAST))))

    def of(self, what: Hashable) -> float:
        """Returns a statistic of the trip."""
        return float(self.own[self.column[what]])

    def few(self, what: Hashable) -> bool:
        """Returns True if a statistic counts at most half as many past trips as is typical."""
        return self.of(what) <= float(self.typical[self.column[what]]) - FEW

    def count(self, what: Hashable) -> int:
        """Returns how many past trips a statistic counts, rounded, but 0 only if there is none."""
        mean = float(np.expm1(self.of(what)))
        return max(1, round(mean)) if mean > 0 else 0

    def times(self, did: str, what: Hashable) -> str:
        """Says that the agent never or rarely did something; an empty text if it did so about as often as usual."""
        if self.of(what) == 0:
            return f"never {did} before (0 of {number_of(self.past, 'past trip')})"
        return f"{did} in only {self.count(what)} of {number_of(self.past, 'past trip')}" if self.few(what) else ""

    def trips(self, were: str, what: Hashable) -> str:
        """Says that no or hardly any past trip was like this one; an empty text if about as many were as is typical."""
        if self.of(what) == 0:
            return f"no past trip {were}"
        return f"only {self.count(what)} of {number_of(self.past, 'past trip')} {were}" if self.few(what) else ""

    def rarely(self, *of: tuple[str, str]) -> str:
        """Says how much of the way is known, but not in one manner; ``of`` holds fields of habits and their words."""
        much, how = 0.0, ""
        for field, said in of:
            for habit in self.habits:
                known = same_but(habit, field, self.habits)
                if known is not None and self.of((habit, "new")) - self.of((known, "new")) > much:
                    much, how = self.of((habit, "new")) - self.of((known, "new")), said
        if much >= ALL:
            return f"no part of the way was travelled {how} before"
        return f"{percent(much)} of the way was never travelled {how} before" if much >= SHARE else ""


def is_place(habit: Habit) -> bool:
    """Returns True if a habit only asks for a place."""
    return habit.cell is not None and habit == Habit(cell=habit.cell)


def same_but(habit: Habit, field: str, habits: tuple[Habit, ...]) -> Habit | None:
    """Returns the habit without one condition, or else the largest place that is no larger; None if there is none.

    >>> same_but(Habit(cell=300, heading=True), "heading", (Habit(cell=150), Habit(cell=500)))
    Habit(cell=150, origin=None, heading=False, speed=False, hours=None, weekend=False, trail=None)
    """
    anything = Habit()
    if getattr(habit, field) == getattr(anything, field) or habit.cell is None:
        return None
    less = replace(habit, **{field: getattr(anything, field)})
    if less in habits:
        return less
    places = [h for h in habits if is_place(h) and (h.cell or 0.0) <= habit.cell]
    return max(places, key=lambda h: h.cell or 0.0, default=None) if is_place(less) else None


def percent(share: float) -> str:
    """Returns a share in words.

    >>> percent(0.614), percent(1.0)
    ('61 %', 'all')
    """
    return "all" if share >= ALL else f"{100 * share:.0f} %"


def alike(*parts: str, size: float = 0.0) -> TripHabit:
    """Returns the trip habit of having these parts in common."""
    return TripHabit(parts, parts, size)


# -------------------------------------------------------------------- one function for each group

NEAR, AROUND = END_CELLS[0], END_CELLS[-1]
BACK = TripHabit(("stop", "start"), ("start", "stop"), NEAR)


def _between(facts: Facts) -> str:
    there = alike("start", "stop", size=NEAR)
    if facts.of(there) == 0 and facts.of(BACK) > 0:
        return f"no past trip went from this start to this end, but {facts.count(BACK)} went the other way"
    return facts.trips("went between these two places", there)


def _place(facts: Facts) -> str:
    place = min((h for h in facts.habits if is_place(h)), key=lambda h: h.cell or 0.0, default=None)
    if place is None:
        return ""
    if facts.of((place, "new")) >= SHARE:
        return f"{percent(facts.of((place, 'new')))} of the way is new"
    rarest = (place, "lowest")
    if facts.of(rarest) == 0:
        return "part of the way is new"
    few = f"part of the way was taken in only {facts.count(rarest)} of {number_of(facts.past, 'past trip')}"
    return few if facts.few(rarest) else ""


def _direction(facts: Facts) -> str:
    said = facts.rarely(
        ("heading", "in this direction"), ("trail", "in this order"), ("origin", "from this starting point")
    )
    if said:
        return said
    place = min((h for h in facts.habits if is_place(h)), key=lambda h: h.cell or 0.0)
    turns = facts.of(NEW_MOVES)
    if turns - facts.of((place, "new")) >= SHARE:
        return f"left the ways that it knows: {percent(turns)} of its moves from place to place are new"
    for habit in facts.habits:
        if habit == Habit(cell=habit.cell, heading=True) and facts.few((habit, "mean")):
            among = number_of(facts.past, "past trip")
            return f"travelled in this direction in only about {facts.count((habit, 'mean'))} of {among}"
    return ""


def _hour(facts: Facts) -> str:
    said = {"start": "began", "stop": "ended"}
    known = [part for part in said if facts.of(alike(part, size=NEAR)) > 0]
    if facts.of(alike("hour")) == 0:
        return facts.times("under way at this hour", alike("hour"))
    # If the agent has never been there at all, the hour does not matter.
    at = {part: alike(part, "hour", size=NEAR) for part in known}
    never = [said[part] for part, habit in at.items() if facts.of(habit) == 0]
    if never:
        return f"never {' or '.join(never)} here at this hour before"
    rare = [facts.times(f"{said[part]} here at this hour", habit) for part, habit in at.items()]
    part_of_way = facts.rarely(("hours", "at this hour"))
    return part_of_way or next(filter(None, rare), facts.trips("began at about this hour", alike("hour")))


COMPARED: dict[str, tuple[str, str, str, Callable[[float], str]]] = {
    "length": ("shorter than", "longer than", "went about as far", lambda v: f"{np.expm1(v) / 1000.0:.1f} km"),
    "duration": (
        "took less time than",
        "took longer than",
        "took about as long",
        lambda v: f"{np.exp(v) / 60:.0f} minutes",
    ),
    "speed": ("slower than", "faster than", "went about as fast", lambda v: f"{3.6 * np.expm1(v):.0f} km/h"),
}
"""Words for a trip with a lower, higher or similar value than past ones, and how the value is written."""


def _compared(facts: Facts, band: str) -> str:
    """Compares a trip with past trips between the same places, or else with all; returns "" if it is as usual."""
    less, more, same, written = COMPARED[band]
    value = written(facts.of(band))

    def beyond(habit: TripHabit) -> str:
        below, above = facts.sides.get(habit, (0.0, 0.0))
        return more if below > 0 == above else less if above > 0 == below else ""

    for size, where in ((NEAR, "between these two places"), (AROUND, "between these two neighbourhoods")):
        between, like = alike("start", "stop", size=size), alike("start", "stop", band, size=size)
        n = facts.count(between)
        if n > 1 and like in facts.column and facts.of(like) == 0:
            if beyond(like):
                return f"{beyond(like)} all {n} past trips {where} ({value})"
            return f"none of the {n} past trips {where} {same} ({value})"
    if facts.of(alike(band)) == 0 and beyond(alike(band)):
        return f"{beyond(alike(band))} any past trip ({value})"
    return facts.trips(f"{same} ({value})", alike(band))


def _standing(facts: Facts) -> str:
    still = facts.of("standing")
    more = still >= float(facts.typical[facts.column["standing"]]) + SHARE
    return f"stood still for {100 * still:.0f} % of the time" if more else ""


def _speed(facts: Facts) -> str:
    return facts.rarely(("speed", "at about this speed")) or _compared(facts, "speed")


def _others(facts: Facts) -> str:
    """Says how many other agents go where the way is new; if no part of it is new, how many go along it."""
    size = min(facts.cells)
    new = facts.of((Habit(cell=size), "new"))
    some = new >= SHARE
    n = round(float(np.expm1(facts.of((size, "where new")) / new if some else facts.of((size, "mean")))))
    where = "where the way is new" if some else "here"
    others = number_of(facts.others, "other agent")
    if n == 0:
        return f"none of {others} goes {where}"
    return f"about {n} of {others} {'go' if n > 1 else 'goes'} {where}"


PHRASES: dict[str, Callable[[Facts], str]] = {
    "end": lambda facts: facts.times("ended here", alike("stop", size=NEAR)),
    "start": lambda facts: facts.times("began here", alike("start", size=NEAR)),
    "between": _between,
    "place": _place,
    "direction": _direction,
    "hour": _hour,
    "length": lambda facts: _compared(facts, "length"),
    "duration": lambda facts: _compared(facts, "duration"),
    "standing": _standing,
    "speed": _speed,
    "others": _others,
}
"""The groups of statistics, each with a function that describes it; an empty text if nothing is unusual."""
