"""Measures what rivals would gain from two advantages of astray: trips of all strangers, and its shorter interval.

    python bench/fairness.py GEOLIFE [--draws 1]     (about six minutes a draw)

It uses the draws of the first table (P1, 5 % somebody else's trips, random split). `familiarity` and `cell-ratio` get
the strangers that `astray-shared` learns from instead of the population; baselines of steps get fixes about every 15 s,
as astray does on GeoLife, instead of every 30 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from astray_benchmark.baseline_methods import BaselineMethod
from astray_benchmark.protocols import Trial
from first_table import arguments, compare

WITH_OTHERS = ("familiarity", "cell-ratio")
OF_STEPS = ("knn-location", "lof", "iforest")
INTERVAL = 15.0


def usual(trial: Trial, given: Any) -> Iterator[tuple[Any, ...]]:
    """Yields the rivals as they are in the tables."""
    for name in (*WITH_OTHERS, *OF_STEPS):
        yield name, BaselineMethod(name, name), trial.lesson, trial.test


def as_astray(trial: Trial, given: Any) -> Iterator[tuple[Any, ...]]:
    """Yields the rivals with astray's strangers or interval."""
    assert trial.lesson.strangers is not None
    strangers = trial.lesson._replace(population=trial.lesson.strangers.trips())
    for name in WITH_OTHERS:
        yield name, BaselineMethod(name, name), strangers, trial.test
    for name in OF_STEPS:
        yield name, BaselineMethod(name, name, {"interval": INTERVAL}), trial.lesson, trial.test


if __name__ == "__main__":
    compare(arguments(__doc__).parse_args(), {"usual": usual, "as astray": as_astray})
