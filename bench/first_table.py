"""Compares two ways to run methods on the draws of the first table: P1, 5 % foreign trips, random split."""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from astray.core.threads import one_thread
from astray_benchmark.contenders import Lesson, Method
from astray_benchmark.measures import difference
from astray_benchmark.metrics import average_precision
from astray_benchmark.people_data import GeoLife
from astray_benchmark.protocols import Case, Setting, Trial

Way = Callable[[Trial, Any], Iterator[tuple[str, Method, Lesson, Any]]]
"""A function of a trial and the arguments that yields the methods to run: name, method, lesson and test trips."""


def arguments(description: str) -> argparse.ArgumentParser:
    """Returns a parser of the arguments that all comparisons have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("geolife")
    parser.add_argument("--draws", type=int, default=1)
    return parser


def compare(given: argparse.Namespace, ways: dict[str, Way]) -> None:
    """Runs the methods in both ways, and prints for each method the AP of both and the difference."""
    data, rows = GeoLife(given.geolife), []
    with one_thread():
        for way, runs in ways.items():  # one way after the other, so that a fleet's reward is learned once for each
            for seed in range(given.draws):
                for person in data.subjects(Setting()):
                    trial = data.trial(Case(Setting(), person, seed))
                    for name, method, lesson, test in runs(trial, given):
                        score = method.fit(lesson, seed).trips(test)["score"].fill_null(np.inf).to_numpy()
                        ap = average_precision(score, trial.kind != "")
                        rows.append({"method": name, "way": way, "subject": person, "seed": seed, "ap": ap})
    print_table(pl.DataFrame(rows), list(ways))


def print_table(found: pl.DataFrame, ways: Sequence[str]) -> None:
    """Prints the mean AP of each method in both ways, and the mean difference with its interval."""
    print(f"{'AP':<20}" + "".join(f"{way:>12}" for way in ways) + f"{'difference':>12}")
    for (name,), part in found.group_by("method", maintain_order=True):
        before, after = (part.filter(pl.col("way") == way) for way in ways)
        gain = difference(after, before, "ap", on=("subject", "seed"))
        means = "".join(f"{np.mean(of['ap'].to_numpy()):>12.3f}" for of in (before, after))
        print(f"{name:<20}{means}{gain.mean:>+12.3f} [{gain.low:+.3f}, {gain.high:+.3f}]")
