"""Measures what fitting, enrolling, scoring and live scoring cost, as ratios to an earlier version.

    git worktree add ../before 6462ae8        (the last commit of version 0.1)
    python bench/costs.py ../before           (about ten minutes)

Both versions get the same simulated trips, take turns, and run in separate processes with one thread each. Times are
processor seconds. Version 0.1 had no reward of a fleet, so only this version learns one, from 40 people.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

from astray.simulate import city

HERE = Path(__file__).resolve().parent.parent

TASKS = {
    "fit one person with 400 trips": """
        began = now()
        detector = Detector().fit(mine[:400])
        print(now() - began)
    """,
    "score a million fixes": """
        detector = Detector(**QUICK).fit(mine[:400])
        rest = mine[400:]
        copies = -(-1_000_000 // rest.n_rows)
        many = Trajectories.concat([named(rest, f"-{i}") for i in range(copies)])
        began = now()
        detector.score(many)
        print((now() - began) / many.n_rows * 1e6)
    """,
    "enrol, ms a trip": """
        fleet = Fleet(**QUICK).fit(trips.without("p00"))
        began = now()
        fleet.enroll(mine)
        # Reading the memory also measures the trips, in versions that measure them only when somebody asks.
        memories = fleet.memories_ if hasattr(fleet, "memories_") else getattr(fleet, "members_", {})
        memories.get("p00")
        print((now() - began) / len(mine) * 1e3)
    """,
    "live, 99th percentile, ms": """
        detector = Detector(**QUICK).fit(mine[:400])
        session, took = detector.open("p00"), []
        for trip in range(400, min(len(mine), 440)):
            for fix in zip(*(mine[trip : trip + 1].columns[name].tolist() for name in ("time", "lat", "lon"))):
                began = now()
                session.update(fix)
                took.append(now() - began)
        print(np.percentile(took, 99) * 1e3)
    """,
}

FLEET = """
        from astray.simulate import city
        many = city(people=40, days=60, seed=1).trips
        began = now()
        Detector().fit(many)
        print(now() - began)
    """

COMMON = """
    import sys
    from time import process_time as now
    import numpy as np
    import astray
    from astray import Trajectories
    # Versions before 0.3 have a class for one agent and a class for many.
    Detector = astray.Detector if hasattr(astray, "Detector") else astray.IRLDetector
    Fleet = astray.Detector if hasattr(astray, "Detector") else astray.FleetDetector
    QUICK = {"iterations": 1}
    data = np.load(sys.argv[1], allow_pickle=False)
    columns = {name: data[name] for name in ("time", "lat", "lon")}
    trips = Trajectories(columns, data["offsets"], data["agents"], data["names"])
    mine = trips.agent("p00")

    def named(some, suffix):
        return Trajectories(some.columns, some.offsets, some.agent_ids, np.char.add(some.trajectory_ids, suffix))
"""


def measured(checkout: Path, task: str, data: Path) -> float:
    """Returns the time that a task takes in a version."""
    program = "\n".join(line.removeprefix("    ") for line in COMMON.splitlines())
    program += "\n".join(line.removeprefix("        ") for line in task.splitlines())
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(data)], env=environment, check=True, capture_output=True, text=True
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of the earlier version")
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    trips = city(people=4, days=150, seed=0).trips
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "trips.npz")
        names = {"agents": trips.agent_ids.astype(str), "names": trips.trajectory_ids.astype(str)}
        np.savez(data, offsets=trips.offsets, **names, **{c: trips.columns[c] for c in ("time", "lat", "lon")})
        print("| | before | now | ratio |\n|---|---|---|---|", flush=True)
        for name, task in TASKS.items():
            turns = [(measured(given.before, task, data), measured(HERE, task, data)) for _ in range(given.turns)]
            before, now = (median(column) for column in zip(*turns, strict=True))
            ratio = median(after / earlier for earlier, after in turns)
            print(f"| {name} | {before:.3g} | {now:.3g} | {ratio:.3g} |", flush=True)
        learned = measured(HERE, FLEET, data)
        print(f"| learn a fleet's reward from 40 people and enrol them, s | | {learned:.3g} | |")


if __name__ == "__main__":
    main()
