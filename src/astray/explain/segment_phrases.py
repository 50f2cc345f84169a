"""Says what is unfamiliar about a segment of a trip, with the counts behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from astray.core.text import number_of
from astray.explain.trip_phrases import is_place
from astray.features.encoders import FamiliarityEncoder
from astray.features.familiarity import Habit, keys_of
from astray.features.steps import Steps

Array = NDArray[Any]
Floats = NDArray[np.float64]

ASPECTS = {  # what a low aspect of the reward means
    "place": "out of place",
    "route": "unusual way",
    "manner": "unusual speed or stop",
    "time": "unusual time",
}

MANNERS = {  # the conditions of a habit beside the place, and what a past trip did that met them
    "heading": "went in this direction",
    "speed": "went at about this speed",
    "hours": "passed at this hour",
    "weekend": "passed on this kind of day",
    "origin": "began where this one did",
    "trail": "came the same way",
}

ASKED = {"route": ("heading", "origin", "trail"), "manner": ("speed",), "time": ("hours", "weekend")}
"""The conditions that each aspect of the reward is about."""

SOME = 3  # of fewer trips a share is not meaningful


def familiar_counts(
    steps: Steps, encoder: FamiliarityEncoder, number: int, habits: Sequence[Habit] | None = None
) -> Floats:
    """Counts the past trips that share each habit with each step: (steps, habits).

    ``number`` is the trip's number in the memory, so that it does not count itself; -1 if the memory does not hold it.
    """
    keys = keys_of(steps, encoder.habits if habits is None else habits, encoder.frame)
    without = np.full((len(steps), 1, 1), number)
    return np.asarray(encoder.memory.counts(keys, without).mean(axis=2), np.float64)


def passed_here(steps: Steps, encoder: FamiliarityEncoder, number: int) -> Floats:
    """Counts the past trips that came through the place of each step; empty if no habit is about places."""
    place = min((h for h in encoder.habits if is_place(h)), key=lambda h: h.cell or np.inf, default=None)
    return np.zeros(0) if place is None else familiar_counts(steps, encoder, number, [place])[:, 0]


def counts_in_words(
    counts: Array, encoder: FamiliarityEncoder, number: int, aspect: str = ""
) -> tuple[str, dict[str, float]]:
    """Puts the :func:`familiar_counts` of a segment into words; returns them with the medians behind them.

    Counts that support the segment's unusual ``aspect`` stand first.
    """
    typical = np.median(counts, axis=0)
    history = len(encoder.memory) - int(number >= 0)
    by_name = {h.name: float(c) for h, c in zip(encoder.habits, typical, strict=True)}
    places = sorted((h.cell, c) for h, c in zip(encoder.habits, typical, strict=True) if h.cell and is_place(h))
    if not places:
        return f"{number_of(history, 'past trip')} to compare with", by_name
    said = [f"{places[0][1]:.0f} of {number_of(history, 'past trip')} came through this {_area(places[0][0])}"]
    # Prefer the next larger place with more trips; otherwise a middle-sized one.
    wider = [p for p in places[1:] if round(p[1]) > round(places[0][1])] or places[len(places) // 2 : -1] or places[1:]
    if round(places[0][1]) < history:
        said += [f"{c:.0f} through this {_area(cell)}" for cell, c in wider[:1]]
    there, manners = ", ".join(said), _manners(encoder.habits, typical, places, history)
    # Counts that support the aspect; none for places, since all counts are about places.
    evidence = min((m for m in manners if set(m.asks) <= set(ASKED.get(aspect, ()))), default=None)
    rare: list[Manner] = []
    # Shortest first; a longer phrase must not repeat a shorter one.
    for manner in sorted(manners, key=lambda m: (len(m.asks), round(m.share, 1), list(MANNERS).index(m.asks[0]))):
        if manner.is_rare and not any(set(before.asks) <= set(manner.asks) for before in rare):
            rare.append(manner)
    if evidence is not None:
        others = [str(m) for m in rare[:2] if str(m) != str(evidence)]
        return "; ".join([str(evidence), there, *others[:1]]), by_name
    if len(rare) > 1 and rare[0].among == rare[1].among:
        among = rare[1].among.removesuffix(" trips around here")
        return f"{there}; {rare[0]}, and {rare[1].found} of {among} {rare[1].did}", by_name
    return "; ".join([there, *map(str, rare[:2])]), by_name


class Manner(NamedTuple):
    """How many of the past trips through a place met the conditions of a habit; orders by rarity."""

    share: float
    n: int  # the number of conditions
    found: str  # how many
    among: str  # the trips that were counted, such as "the 39 trips around here"
    did: str  # what the counted trips did
    asks: tuple[str, ...]  # the conditions of the habit except the place
    is_rare: bool  # True if few trips met them, of enough to tell

    def __str__(self) -> str:
        return f"{self.found} of {self.among} {self.did}"


def _manners(
    habits: Sequence[Habit], counts: Array, places: Sequence[tuple[float, float]], history: int
) -> list[Manner]:
    """Returns how many past trips met each habit that has more conditions than a place."""
    found = []
    for habit, count in zip(habits, counts.tolist(), strict=True):
        asks = tuple(name for name in MANNERS if getattr(habit, name) not in (None, False))
        if habit.cell is None or not asks:
            continue
        here = next((c for cell, c in places if cell >= habit.cell), 0.0)
        among, did = f"the {here:.0f} trips around here", " and ".join(MANNERS[name] for name in asks)
        if here < SOME:
            among, did = number_of(history, "past trip"), f"came by and {did}"
        is_rare = here >= SOME and count <= 0.15 * here
        found.append(Manner(count / max(here, 1.0), len(asks), f"{count:.0f}", among, did, asks, is_rare))
    return found


def _area(cell: float) -> str:
    """Names a cell by its size."""
    sizes = ((200, "street"), (800, "block"), (2500, "neighbourhood"), (8000, "district"))
    return next((name for size, name in sizes if cell <= size), "region")


def motion_words(steps: Steps) -> str:
    """Describes how far and how fast a segment went, for a model without a memory."""
    speed = np.hypot(*steps.velocity.T)
    way = float(np.hypot(*np.diff(steps.location, axis=0).T).sum()) / 1000.0
    return f"{way:.1f} km at {3.6 * float(np.median(speed)):.0f} km/h, which the reward finds unlike past trips"
