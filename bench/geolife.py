"""One quick pass of protocol P1 on GeoLife: ten people, somebody else's trips injected at 5 %.

    ASTRAY_GEOLIFE=/path/to/Data python bench/geolife.py [--seeds 1] [--workers 2] [--methods ...]

Bring your own copy of GeoLife 1.3. Trips under 100 fixes, and byte-identical ones that stand under two users, are left
out. Each person has 190 unseen normal trips and 10 of other people; the rest is for training. The users are split in
halves: injected trips come from one half, the population from the other; the shared reward is learned from that other
half too, without any of the ten.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

sys.path.insert(0, str(Path(__file__).parent))
import astray
from astray import Trajectories
from astray.baselines import BASELINES
from astray.readers import Report
from engine import Engine

TEN = ("128", "153", "163", "025", "062", "041", "144", "068", "085", "017")
POPULATION = 600  # trips of other people in one person's background
EPS = -2.0

_trips: Trajectories | None = None
_fleets: dict[int, astray.FleetDetector] = {}


def load(folder: str) -> Trajectories:
    """GeoLife without short trips and without those that stand under two users."""
    trips = astray.read(folder, format="geolife", skip_bad=True, report=Report())
    owners: dict[bytes, set[str]] = defaultdict(set)
    prints = []
    for trip in trips:
        print_ = hashlib.sha256(b"".join(trip.columns[c].tobytes() for c in ("time", "lat", "lon"))).digest()
        prints.append(print_)
        owners[print_].add(str(trip.agent_ids[0]))
    single = np.array([len(owners[p]) == 1 for p in prints])
    return trips[single & (trips.lengths >= 100)]


def halves(trips: Trajectories, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two halves of the users: positions of the trips that may be injected, and of those for a background."""
    users = np.random.default_rng([seed, 1]).permutation(trips.agents)
    injected = np.isin(trips.agent_ids, users[: len(users) // 2])
    return np.flatnonzero(injected), np.flatnonzero(~injected)


def case(user: str, seed: int) -> tuple[Trajectories, Trajectories, np.ndarray, Trajectories]:
    """Training trips, test trips (as the person's own), labels, and the population."""
    assert _trips is not None
    rng = np.random.default_rng([seed, int(user)])
    own = rng.permutation(np.flatnonzero(_trips.agent_ids == user))
    normal, train = own[:190], own[190:]
    foreign, crowd = halves(_trips, seed)
    foreign, crowd = (half[_trips.agent_ids[half] != user] for half in (foreign, crowd))
    test = _trips[np.r_[normal, rng.choice(foreign, 10, replace=False)]]
    claimed = Trajectories(
        test.columns, test.offsets, np.full(len(test), user), [f"test-{i}" for i in range(len(test))]
    )
    label = np.r_[np.zeros(len(normal), int), np.ones(10, int)]
    population = _trips[rng.choice(crowd, min(POPULATION, len(crowd)), replace=False)]
    return _trips[np.sort(train)], claimed, label, population


def measure(score: np.ndarray, label: np.ndarray, fixed: bool) -> dict[str, float]:
    flagged = score <= EPS
    hits = int((flagged & (label == 1)).sum())
    f1 = 2 * hits / max(1, int(flagged.sum() + label.sum())) if fixed else np.nan
    return {
        "auroc": float(roc_auc_score(label, -score)),
        "ap": float(average_precision_score(label, -score)),
        "f1": f1,
    }


def run(job: tuple[str, int, tuple[str, ...]]) -> list[dict[str, object]]:
    user, seed, methods = job
    train, test, label, population = case(user, seed)
    rows: list[dict[str, object]] = []
    for method in methods:
        began = time.perf_counter()
        if method == "shared":
            fleet = _shared(seed)
            fleet.enroll(train)
            score = fleet.score_samples(test)
            fleet.forget(user)
        elif method.startswith("astray"):
            crowd = None if "no population" in method else population
            score = Engine.fit(train, crowd, seed).score(test).normality
        else:
            score = BASELINES[method](seed=seed).fit(train).score_samples(test)
        seconds = time.perf_counter() - began
        fixed = method == "shared" or method.startswith("astray")
        rows.append({"method": method, "user": user, "seed": seed, "seconds": seconds} | measure(score, label, fixed))
    return rows


def _shared(seed: int) -> astray.FleetDetector:
    """One reward for everybody, learned from the background half alone; fitted once in each process."""
    assert _trips is not None
    if seed not in _fleets:
        crowd = _trips[halves(_trips, seed)[1]]
        strangers = crowd[~np.isin(crowd.agent_ids, TEN)]
        _fleets[seed] = astray.FleetDetector(seed=seed).fit(strangers)
    return _fleets[seed]


def _open(folder: str) -> None:
    global _trips
    _trips = load(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("ASTRAY_GEOLIFE"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--methods", nargs="+", default=["astray", "astray, no population", "shared", "knn-location"])
    args = parser.parse_args()
    if not args.data:
        sys.exit("say where GeoLife's folder Data is: --data, or the environment variable ASTRAY_GEOLIFE")
    jobs = [(u, s, tuple(args.methods)) for s in range(args.seeds) for u in TEN]
    rows: list[dict[str, object]] = []
    with ProcessPoolExecutor(args.workers, initializer=_open, initargs=(args.data,)) as pool:
        for done, part in enumerate(pool.map(run, jobs), 1):
            rows += part
            print(f"\r{done}/{len(jobs)} people", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"GeoLife P1, 5 %, random split, {args.seeds} draw(s) of 10 people; F1 at eps = -2 of N(tau)\n")
    print("| method | AUROC | AP | F1 | median s per person (fit and score) |")
    print("|---|---|---|---|---|")
    for method in args.methods:
        mine = [r for r in rows if r["method"] == method]
        means = [np.mean([float(str(r[m])) for r in mine]) for m in ("auroc", "ap", "f1")]
        seconds = np.median([float(str(r["seconds"])) for r in mine])
        print(f"| {method} | " + " | ".join(f"{m:.3f}" for m in means) + f" | {seconds:.1f} |")


if __name__ == "__main__":
    main()
