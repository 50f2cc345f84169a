"""Measures what each kind of variety among simulated people contributes to the detection on real ones.

    python bench/variety.py GEOLIFE [--cache FILE] [--towns 6] [--people 20]     (about half an hour)

The shipped reward is learned from simulated people of many kinds (`astray.simulate.Variety`). Here smaller rewards are
learned by the same recipe: from all kinds of variety, from all but one, and from plain cities. Each is then tested,
without further learning, on GeoLife users outside the ten of the published table: 10 trips of strangers in 100.
GEOLIFE is the folder `Data` of your copy.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from astray.model.pretrained import write_reward
from astray.model.pretraining import Recipe, pretrain
from astray.model.shared_training import SharingConfig
from astray.simulate import Variety
from astray_benchmark.methods import method
from astray_benchmark.metrics import auroc, average_precision
from astray_benchmark.people_data import GeoLife
from astray_benchmark.protocols import Case, Setting

PEOPLE = ("004", "140", "003", "030", "014", "039", "084", "034", "011", "112", "002", "010")
RATE = 0.1  # of strangers in a test set: 10 of 100 trips


def recipes(towns: int, people: int) -> Iterator[tuple[str, Recipe]]:
    """Yields the small recipe with all kinds of variety, without each of them, and with none."""
    small = Recipe(towns=towns, cities=0, people=people, days=45, iterations=40, sharing=SharingConfig(memories=2))
    yield "all kinds", small
    for kind in fields(Variety):
        yield f"without {kind.name}", replace(small, variety=replace(Variety(), **{kind.name: False}))
    yield "none", replace(small, variety=Variety.none())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--cache")
    parser.add_argument("--towns", type=int, default=6)
    parser.add_argument("--people", type=int, default=20)
    given = parser.parse_args()
    data = GeoLife(given.folder, PEOPLE, cache=given.cache)
    trials = [data.trial(Case(Setting(rate=RATE), who, 0)) for who in PEOPLE]
    print(f"{'':24}{'AUROC':>8}{'AP':>8}{'s':>8}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, recipe in recipes(given.towns, given.people):
            began = time.process_time()
            file = Path(folder, "reward.safetensors")
            write_reward(file, pretrain(recipe))
            took = time.process_time() - began
            found = []
            for trial in trials:
                detector = method(f"astray-pretrained:reward={file}").fit(trial.lesson, 0)
                scores = np.nan_to_num(detector.trips(trial.test)["score"].to_numpy())
                found.append((auroc(scores, trial.kind != ""), average_precision(scores, trial.kind != "")))
            print(f"{name:24}" + "".join(f"{v:8.3f}" for v in np.mean(found, axis=0)) + f"{took:8.0f}", flush=True)


if __name__ == "__main__":
    main()
