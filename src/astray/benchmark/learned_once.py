"""What a baseline learns from other people before it meets anybody who is tested: once a draw, kept in this process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from astray.baselines import CellGenerator
from astray.benchmark.guards import fingerprint
from astray.errors import DataError

if TYPE_CHECKING:
    from astray.baselines.generators import Learned
    from astray.benchmark.methods import Lesson


class _Kept(NamedTuple):
    others: tuple[str, int]  # the set of people, and the seed
    learned: Learned | None
    seconds: float


_kept: dict[str, _Kept] = {}
"""The last that each method has learned; there need not be two in memory."""


def learned_once(method: str, model: CellGenerator, lesson: Lesson, seed: int) -> tuple[Learned | None, float]:
    """What a model learns from others, and the processor seconds that it took, now or when it was learned.

    The others are the strangers, none of whom is tested, so that they are the same in every case of a draw; where there
    are none, the population.
    """
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
