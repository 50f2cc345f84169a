"""Does anybody tell people by their recorders? P1 as it is, and with every trip thinned to one fix in so many seconds.

    python bench/recorder.py GEOLIFE [--draws 1] [--seconds 20]     (about ten minutes a draw)

On the first table's draws (5 % somebody else's trips, random split). Thinned are the trips that are learned from, those
of others and those that are tested, so that recorders which write a fix every 1, 2 or 5 seconds look alike; those that
write fewer than one in that time still tell themselves.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse

import numpy as np
import polars as pl

from astray import Trajectories
from astray.core.threads import one_thread
from astray_benchmark.contenders import Lesson, Method, Strangers
from astray_benchmark.measures import difference
from astray_benchmark.methods import method
from astray_benchmark.metrics import average_precision
from astray_benchmark.people_data import GeoLife
from astray_benchmark.protocols import Case, Setting

METHODS = ("recorder-interval", "astray-shared", "astray-pretrained", "familiarity", "cell-trigram", "knn-location")


def thinned(trips: Trajectories, seconds: float) -> Trajectories:
    """The trips with their first fix, and each that comes so many seconds after the last one kept."""
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
    """What is learned from, thinned."""
    assert lesson.population is not None
    assert lesson.strangers is not None
    strangers = lesson.strangers
    return lesson._replace(
        train=thinned(lesson.train, seconds),
        population=thinned(lesson.population, seconds),
        strangers=Strangers(f"{strangers.key}-thinned", lambda: thinned(strangers.trips(), seconds)),
    )


def main() -> None:
    """Print a line for each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("geolife")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    data, rows = GeoLife(given.geolife), []
    for way in ("as recorded", "thinned"):  # one after the other: a fleet's reward is learned once for each
        for seed in range(given.draws):
            for person in data.subjects(Setting()):
                trial = data.trial(Case(Setting(), person, seed))
                thin = way == "thinned"
                lesson = thin_lesson(trial.lesson, given.seconds) if thin else trial.lesson
                test = thinned(trial.test, given.seconds) if thin else trial.test
                for name in METHODS:
                    contender = method(name)
                    assert isinstance(contender, Method)
                    score = contender.fit(lesson, seed).trips(test)["score"].fill_null(np.inf).to_numpy()
                    ap = average_precision(score, trial.kind != "")
                    rows.append({"method": name, "way": way, "subject": person, "seed": seed, "ap": ap})
    found = pl.DataFrame(rows)
    print(f"{'AP':<20}{'as recorded':>12}{'thinned':>10}{'difference':>12}")
    for (name,), part in found.group_by("method", maintain_order=True):
        recorded, thin_rows = (part.filter(pl.col("way") == way) for way in ("as recorded", "thinned"))
        apart = difference(thin_rows, recorded, "ap", on=("subject", "seed"))
        means = [float(values["ap"].mean()) for values in (recorded, thin_rows)]  # type: ignore[arg-type]
        print(f"{name:<20}{means[0]:>12.3f}{means[1]:>10.3f}{apart.mean:>12.3f} [{apart.low:.3f}, {apart.high:.3f}]")


if __name__ == "__main__":
    with one_thread():
        main()
