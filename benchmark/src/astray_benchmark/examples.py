"""Chooses and draws the paper's three example trips: a normal one, one with an anomalous part, and a foreign one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from astray.core.errors import DataError
from astray.core.projection import Projection
from astray.core.trajectories import Trajectories
from astray.plots import Known, save_figure, trips_figure
from astray_benchmark import manifest as manifests
from astray_benchmark import measures
from astray_benchmark.array_types import Ints
from astray_benchmark.astray_methods import Own, Shared
from astray_benchmark.injectors import Injected, half_sine_detour
from astray_benchmark.kept_scores import read_kept
from astray_benchmark.methods import method
from astray_benchmark.protocols import Case, Dataset, Setting
from astray_benchmark.runner import TRIPS

SETTING = Setting()  # P1 at the 5 % rate, random split
PICTURE = "figures/examples.png"  # in the folder of results
SHORTEST, LONGEST = 600.0, 7200.0  # seconds
FAR = 2000.0  # metres between the ends of a trip for a detour that is seen on a map


class Chosen(NamedTuple):
    """A draw, and positions of its test trips, the best examples first."""

    subject: str
    seed: int
    normal: Ints  # the person's own trips, those nearest to the upper quartile of their scores first
    own: Ints  # the same trips, those nearest to the median first
    foreign: Ints  # the others' trips, those nearest to the lower quartile first


def draw_examples(out: Path, dataset: Dataset, preset: str = "") -> Path:
    """Draws three trips of one person into ``figures/``; fits the model of the draw anew for that.

    The choice is automatic (:func:`choose`). The model is the first of the command's methods that can explain its
    scores and whose name begins with ``preset``. The trip with an anomalous part is the person's own, with a detour put
    into it.
    """
    manifest, kept = manifests.read(out), read_kept(out, TRIPS)
    if manifest is None or kept is None:
        raise manifests.no_results(out)
    able = (made for name in manifest["methods"] if isinstance(made := method(name), Own | Shared))
    contender = next((made for made in able if made.name.startswith(preset)), None)
    trips = measures.of_setting(kept, [SETTING])
    trips = trips.filter(pl.col("method") == contender.name) if contender else trips[:0]
    if contender is None or not len(trips):
        raise DataError(
            "the examples are of P1 at the 5 % rate with an astray method", place=out, remedy="run that first"
        )
    found = choose(trips)
    trial = dataset.trial(Case(SETTING, found.subject, found.seed))
    detector: Any = contender.fit(trial.lesson, found.seed).detector
    normal, own, foreign = (legible(trial.test[rows]) for rows in (found.normal, found.own, found.foreign))
    bent = detour(own, np.random.default_rng([found.seed, 8]))
    explained = [detector.explain(trips) for trips in (normal[:1], bent.trips, foreign[:1])]
    said = ("A normal trip", "The person's own trip with a detour put into it", "Somebody else's trip")
    path = out / PICTURE
    path.parent.mkdir(parents=True, exist_ok=True)
    save_figure(trips_figure(explained, said, {1: Known("the detour", bent.truth)}), path)
    return path


def choose(trips: pl.DataFrame) -> Chosen:
    """Chooses a draw, the one of median AUROC, and ranks its trips as examples, by fixed rules.

    ``trips`` is the table of one method (:mod:`astray_benchmark.runner`). The upper quartile of the person's own trips
    is clearly normal; the lower quartile of the others' is clearly not.
    """
    known = trips.drop_nulls("score")
    figures = measures.of_trips(known).filter(pl.col("method") == known["method"][0])
    ranked = figures.drop_nans("auroc").sort("auroc", "subject", "seed")
    if not len(ranked):
        raise DataError("no draw has both normal and anomalous trips", remedy="run more draws")
    middle = ranked.row((len(ranked) - 1) // 2, named=True)
    who, seed = str(middle["subject"]), int(middle["seed"])
    mine = known.filter((pl.col("subject") == who) & (pl.col("seed") == seed)).sort("score", "trip")
    usual, foreign = (mine.filter(kind)["trip"].to_numpy() for kind in (pl.col("kind") == "", pl.col("kind") != ""))
    return Chosen(who, seed, _nearest(usual, 0.75), _nearest(usual, 0.5), _nearest(foreign, 0.25))


def _nearest(ranked: Ints, share: float) -> Ints:
    """Sorts trips, which are in the order of their scores, by their distance from a quantile.

    >>> _nearest(np.array([7, 8, 9]), 0.5).tolist()
    [8, 7, 9]
    """
    apart = np.abs(np.arange(len(ranked)) - share * (len(ranked) - 1))
    return ranked[np.argsort(apart, kind="stable")].astype(np.int64)


def legible(trips: Trajectories) -> Trajectories:
    """Returns the trips that a picture can show: of ten minutes to two hours; all trips if there are none."""
    time, begin = trips.columns["time"], trips.offsets[:-1]
    lasts = time[trips.offsets[1:] - 1] - time[begin]
    some = np.flatnonzero((lasts >= SHORTEST) & (lasts <= LONGEST))
    return trips[some] if len(some) else trips


def detour(trips: Trajectories, rng: np.random.Generator) -> Injected:
    """Puts a detour into the first trip that it suits, if possible one whose ends are at least 2 km apart."""
    first, last = trips.offsets[:-1], trips.offsets[1:] - 1
    lat, lon = trips.columns["lat"], trips.columns["lon"]
    ends = [
        Projection(lat[a], lon[a]).to_metres(lat[b : b + 1], lon[b : b + 1]) for a, b in zip(first, last, strict=True)
    ]
    far = np.hypot(*np.concatenate(ends).T) >= FAR
    for some in (trips[np.flatnonzero(far)], trips):
        made = half_sine_detour(some, rng, most=1)
        if len(made.trips):
            return made
    raise DataError("no trip suits a detour: all end near where they began", remedy="test another person")
