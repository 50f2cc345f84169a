"""Measures how much recorders help to distinguish people: P1 as it is, and with trips thinned to equal intervals.

    python bench/recorder.py GEOLIFE [--draws 1] [--seconds 20]     (about ten minutes a draw)

It uses the draws of the first table (5 % somebody else's trips, random split). The training trips, those of others and
the test trips are thinned, so that recorders which write a fix every 1, 2 or 5 seconds look alike. Recorders that write
fewer fixes than that still differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from astray import Trajectories
from astray_benchmark.contenders import Lesson, Strangers
from astray_benchmark.methods import method
from astray_benchmark.protocols import Trial
from first_table import arguments, compare

METHODS = ("recorder-interval", "astray-shared", "astray-pretrained", "familiarity", "cell-trigram", "knn-location")


def thinned(trips: Trajectories, seconds: float) -> Trajectories:
    """Returns the trips with their first fix, and each fix that comes ``seconds`` after the last one kept."""
    time, kept = trips.columns["time"], np.zeros(trips.n_rows, np.bool_)
    for begin, end in zip(trips.offsets[:-1].tolist(), trips.offsets[1:].tolist(), strict=True):
        at = begin
        while at < end:
            kept[at] = True
            at = max(at + 1, begin + int(np.searchsorted(time[begin:end], time[at] + seconds)))
    lengths = np.add.reduceat(kept, trips.offsets[:-1])
    columns = {name: values[kept] for name, values in trips.columns.items()}
    return Trajectories(columns, np.r_[0, np.cumsum(lengths)], trips.agent_ids, trips.trajectory_ids)


def thin_lesson(lesson: Lesson, seconds: float) -> Lesson:
    """Returns a lesson with thinned trips."""
    assert lesson.population is not None
    assert lesson.strangers is not None
    strangers = lesson.strangers
    return lesson._replace(
        train=thinned(lesson.train, seconds),
        population=thinned(lesson.population, seconds),
        strangers=Strangers(f"{strangers.key}-thinned", lambda: thinned(strangers.trips(), seconds)),
    )


def as_recorded(trial: Trial, given: Any) -> Iterator[tuple[Any, ...]]:
    """Yields the methods with the trips as they are."""
    for name in METHODS:
        yield name, method(name), trial.lesson, trial.test


def thin(trial: Trial, given: Any) -> Iterator[tuple[Any, ...]]:
    """Yields the methods with thinned trips."""
    lesson, test = thin_lesson(trial.lesson, given.seconds), thinned(trial.test, given.seconds)
    for name in METHODS:
        yield name, method(name), lesson, test


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    compare(parser.parse_args(), {"as recorded": as_recorded, "thinned": thin})
