"""Finds and draws the paper's three example trips: a normal one, one with an anomalous part, and a foreign one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from astray.core.errors import DataError
from astray.plots import explanation_figure, save_figure
from astray_benchmark import manifest as manifests
from astray_benchmark import measures, runner
from astray_benchmark.astray_methods import Own, Shared
from astray_benchmark.calibration import RATE
from astray_benchmark.measures import EPS
from astray_benchmark.methods import method
from astray_benchmark.protocols import Case, Dataset, Setting

SETTING = Setting()  # P1 at the 5 % rate, random split
NAMES = ("normal", "partly_anomalous", "somebody_elses")


def draw_examples(out: Path, dataset: Dataset) -> list[Path]:
    """Draws three trips of one person into ``figures/``; refits the model of the draw for that.

    The choice is automatic. The person is the one with the clearest trip that is normal as a whole and anomalous in a
    part: of all trips that are not flagged, it has the lowest worst segment. The model is the first of the command's
    methods that can explain its scores.
    """
    manifest, found = manifests.read(out), runner.results(out)
    if manifest is None or found is None:
        raise manifests.no_results(out)
    able = [contender for name in manifest["methods"] if isinstance(contender := method(name), Own | Shared)]
    trips = measures.of_setting(found, [SETTING])
    trips = trips.filter(pl.col("method") == able[0].name) if able else trips[:0]
    if not len(trips):
        raise DataError(
            "the examples are of P1 at the 5 % rate with an astray method", place=out, remedy="run that first"
        )
    person, seed, rows = choose(trips)
    trial = dataset.trial(Case(SETTING, person, seed))
    detector: Any = able[0].fit(trial.lesson, seed).detector
    folder = out / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"example_{name}.png" for name in NAMES]
    for path, row in zip(written, rows, strict=True):
        save_figure(explanation_figure(detector.explain(trial.test, row)), path)
    return written


def choose(trips: pl.DataFrame) -> tuple[str, int, tuple[int, int, int]]:
    """Returns a person, a seed, and the positions of three test trips: normal, partly anomalous, foreign.

    ``trips`` is the table of one method (:mod:`astray_benchmark.runner`).
    """
    known = trips.drop_nulls(["normality", "score"])
    own = known.filter(pl.col("kind") == "")
    # The lowest segment among trips that are normal as a whole; if there is no such trip, the lowest trip.
    partly = own.filter((pl.col("p_value").fill_null(1.0) > RATE) & (pl.col("score") > EPS)).sort(
        "part", "score", nulls_last=True
    )
    partly = partly if len(partly) else own.sort("score")
    who, seed = str(partly["subject"][0]), int(partly["seed"][0])
    mine = known.filter((pl.col("subject") == who) & (pl.col("seed") == seed))
    usual = mine.filter(pl.col("kind") == "").sort("score")
    foreign = mine.filter(pl.col("kind") != "").sort("score")
    if not len(usual) or not len(foreign):
        raise DataError(
            f"{who} has no normal or no anomalous test trip, so there are no examples to draw",
            remedy="choose another person",
        )
    # The upper quartile is clearly normal; the lower quartile of the others' trips is clearly not.
    normal = usual["trip"][int(np.floor(0.75 * (len(usual) - 1)))]
    other = foreign["trip"][int(np.floor(0.25 * (len(foreign) - 1)))]
    return who, seed, (int(normal), int(partly["trip"][0]), int(other))
