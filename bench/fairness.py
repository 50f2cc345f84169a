"""What rivals would gain from what astray is given and they are not: its others, and its interval.

    python bench/fairness.py GEOLIFE [--draws 1]     (about six minutes a draw)

On the first table's draws (P1, 5 % somebody else's trips, random split): `familiarity` and `cell-ratio` with the
strangers that `astray-shared` learns from instead of the population, and baselines of steps with fixes about every
15 s, as astray takes them of GeoLife, instead of 30 s.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse

import numpy as np
import polars as pl

from astray.core.threads import one_thread
from astray_benchmark.baseline_methods import BaselineMethod
from astray_benchmark.measures import difference
from astray_benchmark.metrics import average_precision
from astray_benchmark.people_data import GeoLife
from astray_benchmark.protocols import Case, Setting

WITH_OTHERS = ("familiarity", "cell-ratio")
OF_STEPS = ("knn-location", "lof", "iforest")
INTERVAL = 15.0


def main() -> None:
    """Print a line for each rival."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("geolife")
    parser.add_argument("--draws", type=int, default=1)
    given = parser.parse_args()
    data, rows = GeoLife(given.geolife), []
    for seed in range(given.draws):
        for person in data.subjects(Setting()):
            trial = data.trial(Case(Setting(), person, seed))
            assert trial.lesson.strangers is not None
            strangers = trial.lesson._replace(population=trial.lesson.strangers.trips())
            label = trial.kind != ""
            for name in (*WITH_OTHERS, *OF_STEPS):
                usual = BaselineMethod(name, name)
                if name in WITH_OTHERS:
                    fitted = usual.fit(trial.lesson, seed), BaselineMethod(f"{name} 2", name).fit(strangers, seed)
                else:
                    options = {"interval": INTERVAL}
                    fitted = usual.fit(trial.lesson, seed), BaselineMethod(name, name, options).fit(trial.lesson, seed)
                for way, model in zip(("usual", "as astray"), fitted, strict=True):
                    score = model.trips(trial.test)["score"].fill_null(np.inf).to_numpy()
                    ap = average_precision(score, label)
                    rows.append({"method": name, "way": way, "subject": person, "seed": seed, "ap": ap})
    found = pl.DataFrame(rows)
    print(f"{'AP':<16}{'usual':>8}{'as astray':>11}{'difference':>12}")
    for (name,), part in found.group_by("method", maintain_order=True):
        usual, ours = (part.filter(pl.col("way") == way) for way in ("usual", "as astray"))
        gain = difference(ours, usual, "ap", on=("subject", "seed"))
        means = (float(np.mean(of["ap"].to_numpy())) for of in (usual, ours))
        print("{:<16}{:>8.3f}{:>11.3f}".format(name, *means), f"{gain.mean:>+8.3f} [{gain.low:+.3f}, {gain.high:+.3f}]")


if __name__ == "__main__":
    with one_thread():
        main()
