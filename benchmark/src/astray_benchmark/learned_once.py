"""What a baseline knows of other people before it meets the person: once for the same people, kept in this process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from astray.errors import DataError
from astray_benchmark.baselines import CellGenerator, Comparison
from astray_benchmark.guards import fingerprint

if TYPE_CHECKING:
    from astray_benchmark.methods import Lesson


class _Kept(NamedTuple):
    others: tuple[str, int]  # the set of people, and the seed
    learned: Any
    seconds: float


_kept: dict[str, _Kept] = {}
"""The last that each method has learned; there need not be two in memory."""


def learned_once(method: str, model: Comparison, lesson: Lesson, seed: int) -> tuple[Any, float]:
    """What a model learns from others, and the processor seconds that it took, now or when it was learned.

    The others are the population, which is the same in all cases of a person and a draw but for those by time and of
    another rate. A generator, which takes minutes, learns from the strangers where there are any: they are the same in
    every case of a draw, because nobody among them is tested.
    """
    strangers = None
    if isinstance(model, CellGenerator):
        if model.alone or (lesson.strangers is None and lesson.population is None):
            return None, 0.0
        strangers = lesson.strangers
    key = strangers.key if strangers else fingerprint(lesson.population) if lesson.population else ""
    if method not in _kept or _kept[method].others != (key, seed):
        _kept.pop(method, None)
        others = strangers.trips() if strangers else lesson.population
        if others is not None and (among := set(others.agents).intersection(lesson.train.agents)):
            raise DataError(
                f"{min(among)!r} is tested, and stands among those that {method} learns from first",
                remedy="test other people",
            )
        began = time.process_time()
        learned = model.others(others, lesson.train)
        _kept[method] = _Kept((key, seed), learned, time.process_time() - began)
    return _kept[method].learned, _kept[method].seconds
