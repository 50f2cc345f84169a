"""Words: what is unfamiliar about a segment of a trip, said as a person would, and the counts behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.features.encoders import FamiliarityEncoder
from astray.features.familiarity import Habit, keys_of
from astray.features.steps import Steps
from astray.text import number_of

Array = NDArray[Any]
Floats = NDArray[np.float64]

ASPECTS = {  # what is unusual when an aspect of the reward is low
    "place": "out of place",
    "route": "unusual way",
    "manner": "unusual speed or stop",
    "time": "unusual time",
}

MANNERS = {  # what a habit asks beside the place, in words
    "heading": "in this direction",
    "speed": "at such a speed",
    "hours": "at this hour",
    "weekend": "on such a day",
    "origin": "from this start",
    "trail": "having come this way",
}

ASKED = {"route": ("heading", "origin", "trail"), "manner": ("speed",), "time": ("hours", "weekend")}
"""Which of them an aspect of the reward is about."""

SOME = 3  # trips that came by, at least, among which a share means something


def worst_aspect(aspects: Sequence[str], which: Array, normality: Array) -> str:
    """The aspect in which some steps lost most: the name, of ``aspects``, of the one that is lowest where it matters.

    >>> worst_aspect(("place", "time"), np.array([0, 0, 1]), np.array([-0.5, -0.5, -3.0]))
    'time'
    """
    lost = np.bincount(which, np.maximum(-normality, 1e-9), len(aspects))
    return str(aspects[int(lost.argmax())])


def familiar_counts(steps: Steps, encoder: FamiliarityEncoder, number: int) -> Floats:
    """How many past trips share each habit with each step: (steps, habits).

    ``number`` is the trip's own number in the memory, which does not count; -1 if it is not remembered.
    """
    keys = keys_of(steps, encoder.habits, encoder.frame)
    without = np.full((len(steps), 1, 1), number)
    return np.asarray(encoder.memory.counts(keys, without).mean(axis=2), np.float64)


def passed_here(counts: Array, encoder: FamiliarityEncoder) -> Floats:
    """Of counts (steps, habits) those of the smallest place: how many past trips came through here."""
    sizes = [h.cell if h.cell and h == Habit(h.cell) else np.inf for h in encoder.habits]
    return np.asarray(counts[:, int(np.argmin(sizes))] if np.isfinite(sizes).any() else np.zeros(0), np.float64)


def familiar_words(
    steps: Steps, encoder: FamiliarityEncoder, number: int, aspect: str = ""
) -> tuple[str, dict[str, float]]:
    """What a memory says of a segment, in words, and the counts behind them: medians over the segment.

    ``number`` is the trip's own number in the memory, which does not count; -1 if it is not remembered. What speaks for
    the ``aspect`` that the segment is said to be unusual in stands first.
    """
    return counts_in_words(familiar_counts(steps, encoder, number), encoder, number, aspect)


def counts_in_words(
    counts: Array, encoder: FamiliarityEncoder, number: int, aspect: str = ""
) -> tuple[str, dict[str, float]]:
    """The same of the :func:`familiar_counts` of a segment."""
    typical = np.median(counts, axis=0)
    history = len(encoder.memory) - int(number >= 0)
    by_name = {h.name: float(c) for h, c in zip(encoder.habits, typical, strict=True)}
    places = sorted((h.cell, c) for h, c in zip(encoder.habits, typical, strict=True) if h.cell and h == Habit(h.cell))
    if not places:
        return f"{number_of(history, 'past trip')} to compare with", by_name
    said = [f"{places[0][1]:.0f} of {number_of(history, 'past trip')} came through this {_area(places[0][0])}"]
    # The next larger place says more if more trips went there; if none is, the district will do.
    wider = [p for p in places[1:] if round(p[1]) > round(places[0][1])] or places[len(places) // 2 : -1] or places[1:]
    if round(places[0][1]) < history:
        said += [f"{c:.0f} through this {_area(cell)}" for cell, c in wider[:1]]
    there, manners = ", ".join(said), _manners(encoder.habits, typical, places)
    evidence = _evidence(encoder.habits, typical, places, history, aspect)
    if not evidence:
        return "; ".join([there, *([" and ".join(manners)] if manners else [])]), by_name
    others = [words for words in manners if words != evidence]
    return "; ".join([evidence, there, *others[:1]]), by_name


def _evidence(
    habits: Sequence[Habit], counts: Array, places: Sequence[tuple[float, float]], history: int, aspect: str
) -> str:
    """How many past trips did like this what an aspect is about: went this way, at such a speed, at this hour.

    Nothing for the aspect of places, of which all counts speak.
    """
    asked = ASKED.get(aspect, ())
    rarest: tuple[float, int, str] | None = None
    for habit, count in zip(habits, counts, strict=True):
        names = [name for name in MANNERS if getattr(habit, name) not in (None, False)]
        if habit.cell is None or not names or not set(names) <= set(asked):
            continue
        here = next((c for cell, c in places if cell >= habit.cell), 0.0)
        manner = " ".join(MANNERS[name] for name in names)
        if here >= SOME:
            words = f"{count:.0f} of the {here:.0f} trips around here went {manner}"
        else:
            words = f"{count:.0f} of {number_of(history, 'past trip')} came by {manner}"
        rarer = (count / max(here, 1.0), len(names), words)
        rarest = rarer if rarest is None or rarer < rarest else rarest
    return "" if rarest is None else rarest[2]


def _manners(habits: Sequence[Habit], counts: Array, places: Sequence[tuple[float, float]]) -> list[str]:
    """What was unusual in the way of being somewhere that is not: few of those who came there did it like this."""
    rare: list[tuple[int, float, tuple[str, ...], str]] = []
    for habit, count in zip(habits, counts, strict=True):
        here = [c for cell, c in places if habit.cell is not None and cell >= habit.cell]
        manner = tuple(phrase for name, phrase in MANNERS.items() if getattr(habit, name) not in (None, False))
        if manner and here and here[0] >= SOME and count <= 0.15 * here[0]:
            words = f"{count:.0f} of the {here[0]:.0f} trips around here went {' '.join(manner)}"
            rare.append((len(manner), count / here[0], manner, words))
    said: list[tuple[tuple[str, ...], str]] = []
    # The fewest words first; what is said already is not said again with more.
    for _, _, manner, words in sorted(
        rare, key=lambda r: (r[0], round(r[1], 1), list(MANNERS.values()).index(r[2][0]))
    ):
        if not any(set(before) <= set(manner) for before, _ in said):
            said.append((manner, words))
    return [words for _, words in said[:2]]


def _area(cell: float) -> str:
    sizes = ((200, "street"), (800, "block"), (2500, "neighbourhood"), (8000, "district"))
    return next((name for size, name in sizes if cell <= size), "region")


def motion_words(steps: Steps) -> str:
    """What can be said of a segment without a memory."""
    speed = np.hypot(*steps.velocity.T)
    way = float(np.hypot(*np.diff(steps.location, axis=0).T).sum()) / 1000.0
    return f"{way:.1f} km at {3.6 * float(np.median(speed)):.0f} km/h that the reward finds unlike the past"
