"""Compares detection by the default detector and by baselines on simulated people, for each kind of anomaly.

    python bench/detection.py [--seeds 3] [--people 10] [--others 10] [--workers 2] [--quick]

Each city has twenty people: ten are watched, the other ten are the population that the reward also learns from. So no
person is in both groups, and the reward has never met the people whose trips are swapped in. Each kind is injected into
a fifth of a person's unseen trips. Figures are means over people and seeds, with the standard error of the mean over
people. The last lines give the shares of normal and of anomalous trips that the default decision flags.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from typing import Any

import numpy as np
import polars as pl
from sklearn.metrics import average_precision_score, roc_auc_score

from astray import Detector, Trajectories, simulate
from astray.core.processes import spread
from astray_benchmark.baselines import BASELINES
from astray_benchmark.variants import VARIANTS

CLASSIC = ("knn-location", "lof", "ocsvm", "iforest")


def watch(job: tuple[int, int, int, int, bool]) -> list[dict[str, object]]:
    """Fits all methods to one person of one city, and scores every kind of anomaly."""
    seed, person, people, others, quick = job
    sim = simulate.city(people=people + others, days=60, seed=seed)
    train, test = sim.split(test_share=0.25)
    watched = set(train.agents[:people])
    name = train.agents[person]
    mine = train.agent(name)
    population = train[np.array([a not in watched for a in train.agent_ids.tolist()])]
    unseen = test[np.array([a in watched for a in test.agent_ids.tolist()])]
    cases: dict[str, tuple[Trajectories, np.ndarray]] = {}
    for kind in simulate.ANOMALY_KINDS:
        trips = sim.inject(unseen, kinds=(kind,), rate=0.2, seed=seed + 1000).agent(name)
        label = trips.context["kind"] != ""
        if 0 < label.sum() < len(label):
            cases[kind] = (trips, label)

    rows: list[dict[str, object]] = []

    def record(
        method: str, kind: str, label: np.ndarray, score: np.ndarray, seconds: float, flagged: np.ndarray | None = None
    ) -> None:
        rows.append(
            {
                "method": method,
                "kind": kind,
                "seed": seed,
                "person": name,
                "auroc": roc_auc_score(label, -score),
                "ap": average_precision_score(label, -score),
                "fit_seconds": seconds,
                "false_alarms": None if flagged is None else float(flagged[~label].mean()),
                "found": None if flagged is None else float(flagged[label].mean()),
            }
        )

    def astray(method: str, crowd: Trajectories | None, **options: Any) -> None:
        began = time.process_time()
        fitted = Detector(seed=seed, **options).fit(mine, population=crowd)
        seconds = time.process_time() - began
        for kind, (trips, label) in cases.items():
            table = fitted.score(trips)
            flagged = (table["decision"] != "normal").to_numpy()
            record(method, kind, label, table["score"].to_numpy(), seconds, flagged)

    astray("astray", population)
    astray("astray, no population", None)
    if not quick:
        for variant in VARIANTS:
            astray(variant, population, **VARIANTS[variant])
    for method in CLASSIC:
        began = time.process_time()
        fitted = BASELINES[method](seed=seed).fit(mine)
        seconds = time.process_time() - began
        for kind, (trips, label) in cases.items():
            record(method, kind, label, fitted.score_samples(trips), seconds)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=50)
    parser.add_argument("--people", type=int, default=10)
    parser.add_argument("--others", type=int, default=10, help="people of the population")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="skip the variants of the ablation")
    args = parser.parse_args()
    jobs = [
        (args.first_seed + s, p, args.people, args.others, args.quick)
        for s in range(args.seeds)
        for p in range(args.people)
    ]
    rows: list[dict[str, object]] = []
    began = time.perf_counter()
    with closing(spread(watch, jobs, args.workers)) as parts:
        for done, part in enumerate(parts, 1):
            rows += part
            left = (time.perf_counter() - began) / done * (len(jobs) - done)
            print(f"\r{done}/{len(jobs)} people, {left:.0f} s left ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    frame = pl.DataFrame(rows, infer_schema_length=None)
    kinds = [k for k in simulate.ANOMALY_KINDS if k in frame["kind"].unique().to_list()]
    for measure in ("auroc", "ap"):
        print(f"\n{measure.upper()}, mean over {args.seeds} x {args.people} people (standard error)\n")
        print("| method | " + " | ".join(kinds) + " |")
        print("|---|" + "---|" * len(kinds))
        for method in frame["method"].unique(maintain_order=True):
            cells = []
            for kind in kinds:
                values = frame.filter(method=method, kind=kind)[measure].to_numpy()
                error = values.std() / max(len(values), 1) ** 0.5 if len(values) else np.nan
                cells.append(f"{values.mean():.3f} ({error:.3f})" if len(values) else "")
            print(f"| {method} | " + " | ".join(cells) + " |")
    times = frame.group_by("method", maintain_order=True).agg(pl.col("fit_seconds").median().round(1))
    print("\nmedian seconds to fit one person:", dict(times.iter_rows()))
    rates = frame.drop_nulls("found").group_by("method", maintain_order=True)
    for method, false_alarms, found in rates.agg(pl.col("false_alarms", "found").mean()).iter_rows():
        print(f"{method}: flags {100 * false_alarms:.1f} % of normal trips, {100 * found:.0f} % of anomalous ones")


if __name__ == "__main__":
    main()
