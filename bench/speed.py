"""Compares the speed of fitting and scoring with an LSTM autoencoder and LOF, and measures how both costs grow.

    python bench/speed.py            (three or four minutes; --quick for a first look in one)

Everything is measured in one run, on one core with one thread, in processor seconds. Two contenders take turns, and
ratios are within one turn, so that the load of the machine cancels out.

The data are made by `astray.simulate`. Its trips are short, so consecutive trips of a person, a minute apart, are
joined into outings of 43 minutes: about 100 steps of 30 s, and some 800 fixes. The person has lived in the city for
years; the first outings are for fitting, later ones for scoring. To score more fixes than the person has made, the
same outings are repeated weeks later under new names. Other people's outings are the population.

1. Fit: 400 outings with the default settings, which only counts them; and with the shipped reward that also learns
   from the population; compared with an LSTM autoencoder, trained on the same outings until its held-out error stops
   falling. Goal for both: astray / LSTM-AE at most 1.
2. Score: unseen outings, trip by trip as `score` does and fix by fix as `score_fixes` does, against LOF fitted on the
   30 s steps of the same 400 outings, which gets the states and actions of the same fixes. LOF is timed on a part of
   the fixes, and its time, which is linear, is scaled up. Goal for both: LOF / astray at least 10.
3. Growth: microseconds a fix to fit; microseconds a fix and peak memory to score. Each size is scored in a separate
   process, whose peak is counted above its start.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from astray import Detector, Trajectories
from astray.simulate import city
from astray_benchmark.baselines import LOF, KNNLocation, LSTMAutoencoder

MINUTES = 43.0  # the least duration of an outing
PAUSE = 60.0  # seconds between the trips of an outing
CHUNK = 40_000  # fixes that are scored at a time
WEEK = 7 * 86_400.0


def outings(trips: Trajectories) -> Trajectories:
    """Joins a person's consecutive trips into outings that last long enough."""
    clock = trips.columns["time"]
    first, last = clock[trips.offsets[:-1]], clock[trips.offsets[1:] - 1]
    begins, shift = np.zeros(len(trips), bool), np.zeros(len(trips))
    start = now = -np.inf
    for i in range(len(trips)):
        if i == 0 or trips.agent_ids[i] != trips.agent_ids[i - 1] or now - start >= 60 * MINUTES:
            begins[i], start, now = True, first[i], first[i]
        shift[i] = now - first[i]
        now += last[i] - first[i] + PAUSE
    heads = np.flatnonzero(begins)
    return Trajectories(
        {"time": clock + shift[trips.trajectory_of_row], "lat": trips.columns["lat"], "lon": trips.columns["lon"]},
        np.append(trips.offsets[heads], trips.n_rows),
        trips.agent_ids[heads],
        trips.trajectory_ids[heads],
    )


def later(trips: Trajectories, n_fixes: int) -> Iterator[Trajectories]:
    """Yields chunks of about 40,000 fixes, ``n_fixes`` in all: the outings, then the same weeks later, and so on."""
    size = max(1, round(CHUNK / float(trips.lengths.mean())))
    span = WEEK * np.ceil(np.ptp(trips.columns["time"]) / WEEK)
    made = again = 0
    while made < n_fixes:
        for i in range(0, len(trips), size):
            part = trips[i : i + size]
            names = np.char.add(part.trajectory_ids, f"-{again}")
            moved = {**part.columns, "time": part.columns["time"] + again * span}
            yield Trajectories(moved, part.offsets, part.agent_ids, names)
            made += part.n_rows
            if made >= n_fixes:
                return
        again += 1


def timed(call: Callable[..., Any], *args: Any, **settings: Any) -> tuple[float, Any]:
    """Returns the processor seconds of a call, and its result."""
    begin = time.process_time()
    result = call(*args, **settings)
    return time.process_time() - begin, result


def row(widths: tuple[int, ...], *cells: object) -> None:
    first, *rest = zip(cells, widths, strict=False)
    print(f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in rest), flush=True)


COMPARED = (58, 10, 10, 8, 22)


def verdict(met: bool, wanted: str) -> str:
    return f"{wanted}: {'met' if met else 'MISSED'}"


def compare_fit(train: Trajectories, population: Trajectories, turns: int) -> Detector:
    detector: Detector
    alone, among, theirs = [], [], []
    for _ in range(turns):
        alone.append(timed(Detector().fit, train)[0])
        spent, detector = timed(Detector().fit, train, population=population)
        among.append(spent)
        spent, recurrent = timed(LSTMAutoencoder().fit, train)
        theirs.append(spent)
    for name, ours in (
        (f"fit {len(train)} outings", alone),
        (f"    against {len(population)} outings of others", among),
    ):
        ratio = float(np.median(np.array(ours) / np.array(theirs)))
        wanted = verdict(ratio <= 1.0, "at most 1")
        row(
            COMPARED,
            f"{name}: astray, LSTM-AE (s)",
            f"{np.median(ours):.1f}",
            f"{np.median(theirs):.1f}",
            f"{ratio:.2f}",
            wanted,
        )
    row(COMPARED, "    epochs to the plateau", "", len(recurrent.history_))
    return detector


def compare_scores(detector: Detector, train: Trajectories, unseen: Trajectories, fixes: int, share: float) -> None:
    lof = LOF().fit(train)
    assert lof.featurizer_ is not None
    assert lof.scaling_ is not None
    rng = np.random.default_rng(0)
    ours: dict[str, float] = dict.fromkeys(("trips", "fixes"), 0.0)
    theirs, n, points = 0.0, 0, 0
    for chunk in later(unseen, fixes):
        ours["trips"] += timed(detector.score_samples, chunk)[0]
        ours["fixes"] += timed(detector.score_fixes, chunk)[0]
        # The same fixes as states and actions for LOF; adjacent ones, as in real data.
        seen = lof.scaling_.standardise(lof.featurizer_.featurize(chunk).features)
        some = round(share * len(seen))
        begin = int(rng.integers(len(seen) - some + 1))
        theirs += timed(lof.estimator_.score_samples, seen[begin : begin + some])[0]
        n, points = n + chunk.n_rows, points + some
    its = 1e6 * theirs / points
    for what, spent in ours.items():
        mine = 1e6 * spent / n
        cells = (f"{mine:.2f}", f"{its:.1f}", f"{its / mine:.1f}", verdict(its >= 10.0 * mine, "at least 10"))
        row(COMPARED, f"score 1 M fixes, {what}: astray, LOF (s)", *cells)
    row(COMPARED, "    fixes that were timed", f"{n:,}", f"{points:,}")


def growth_of_fit(person: Trajectories, sizes: list[int]) -> None:
    widths = (10, 12, 12, 22)
    print("\nfit")
    row(widths, "outings", "fixes", "seconds", "microseconds a fix")
    for size in sizes:
        train = person[:size]
        spent, _ = timed(Detector().fit, train)
        row(widths, size, f"{train.n_rows:,}", f"{spent:.2f}", f"{1e6 * spent / train.n_rows:.2f}")


def growth_of_scoring(detector: Detector, unseen: Trajectories, sizes: list[int]) -> None:
    widths = (22, 22, 28)
    print("\nscore: chunk by chunk, each size in a separate process")
    row(widths, "fixes", "microseconds a fix", "peak above the start, MB")
    fork = multiprocessing.get_context("fork")
    for size in sizes:
        receive, send = fork.Pipe(duplex=False)
        child = fork.Process(target=score_apart, args=(detector, unseen, size, send))
        child.start()
        spent, n, peak = receive.recv()
        child.join()
        row(widths, f"{n:,}", f"{1e6 * spent / n:.2f}", f"{peak / 2**20:.0f}")


def score_apart(detector: Detector, unseen: Trajectories, fixes: int, answer: Connection) -> None:
    before, spent, n = peak_memory(), 0.0, 0
    for chunk in later(unseen, fixes):
        spent += timed(detector.score_samples, chunk)[0]
        n += chunk.n_rows
    answer.send((spent, n, peak_memory() - before))


def peak_memory() -> int:
    """Returns the peak resident size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a quarter of the data, one turn: only a first look")
    options = parser.parse_args()
    torch.set_num_threads(1)
    part = 4 if options.quick else 1

    n_train = 400 // part
    person = outings(city(people=[0], days=1000 // part).trips)
    others = outings(city(people=range(1, 20), days=60).trips)
    population = others[np.random.default_rng(0).permutation(len(others))[: 600 // part]]
    train, unseen = person[:n_train], person[n_train : 2 * n_train]
    steps = len(KNNLocation().fit(train).featurize(train).path) / n_train
    fixes = train.lengths.mean()
    print(f"{n_train} outings of {steps:.0f} steps and {fixes:.0f} fixes on average; one thread, processor seconds")
    print("a first look; what is wanted is wanted of the full run\n" if options.quick else "")

    row(COMPARED, "", "astray", "other", "ratio", "wanted")
    detector = compare_fit(train, population, turns=1 if options.quick else 2)
    compare_scores(detector, train, unseen, 1_000_000 // part, share=0.05)
    growth_of_fit(person, [size // part for size in (100, 200, 400, 800)])
    growth_of_scoring(detector, unseen, [size // part for size in (250_000, 500_000, 1_000_000, 2_000_000)])


if __name__ == "__main__":
    main()
