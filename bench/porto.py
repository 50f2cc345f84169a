"""Reading and scoring a year of Porto taxi trips: how long, against reading alone, and with how much memory.

    ASTRAY_PORTO=folder python bench/porto.py       (a few minutes; --trips for a first look)

The folder holds `porto_trips.parquet`, or `train.csv` of the ECML/PKDD 2015 challenge. A pooled model is fitted on the
first trips; then the whole file is read in one process, and read and scored by `astray score` on all cores, both as a
user would do it, with the start of the processes and the writing of the scores. Wanted: at most 3 times the time of
reading alone, on two cores, and a peak of memory, all processes together, below 2 GB.

Memory is the resident set of every process, looked at twenty times a second; pages that processes share are counted
once for each of them. Where other programs keep the machine busy, seconds on the clock say little: the processor
seconds, divided by the cores, are the least time that an idle machine would take.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from astray import Detector, Trajectories
from astray.readers import iter_read

CORES = 2
FILES = ("porto_trips.parquet", "train.csv")
READING = """
import sys
from astray.readers import Report, iter_read
trips = fixes = 0
for batch in iter_read(sys.argv[1], 250_000, report=Report()):
    trips, fixes = trips + len(batch), fixes + batch.n_rows
print(f"{trips:,} trips, {fixes:,} fixes")
"""


class Cost(NamedTuple):
    """What a command took: seconds on the clock, processor seconds, and the peak of resident megabytes."""

    wall: float
    processor: float
    megabytes: float


def measured(command: list[str]) -> Cost:
    """Run a command to its end, and count what it and its children take."""
    begin = time.perf_counter()
    process = psutil.Popen(command)
    peak = 0
    spent: dict[int, float] = {}
    while process.poll() is None:
        resident = 0
        for one in (process, *_children(process)):
            try:
                resident += one.memory_info().rss
                times = one.cpu_times()
                spent[one.pid] = times.user + times.system
            except psutil.Error:
                continue  # it has just ended
        peak = max(peak, resident)
        time.sleep(0.05)
    wall = time.perf_counter() - begin
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Cost(wall, sum(spent.values()), peak / 1e6)


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def fitted(file: Path, trips: int, model: Path) -> None:
    """A pooled model of the first trips of the file."""
    batches = iter_read(file, 250_000)
    first = next(batches)
    while len(first) < trips:
        first = Trajectories.concat([first, next(batches)])
    Detector(seed=0, keep=100, pooled=True).fit(first[:trips]).save(model)


def row(name: str, cost: Cost) -> None:
    print(f"{name:<16}{cost.wall:>9.1f}{cost.processor:>15.1f}{cost.megabytes:>11.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trips", type=int, default=3000, help="that the model remembers (default: 3000)")
    parser.add_argument("--turns", type=int, default=2, help="reading, and reading and scoring, so many times")
    args = parser.parse_args()
    folder = os.environ.get("ASTRAY_PORTO")
    found = [Path(folder, name) for name in FILES if folder and Path(folder, name).is_file()]
    if not found:
        raise SystemExit(f"set ASTRAY_PORTO to a folder with {' or '.join(FILES)}")
    with tempfile.TemporaryDirectory() as scratch:
        model, scores = Path(scratch, "pooled.astray"), Path(scratch, "scores.parquet")
        fitted(found[0], args.trips, model)
        score = [sys.executable, "-m", "astray.cli", "score", str(model), str(found[0]), "-o", str(scores)]
        print(f"{'':<16}{'seconds':>9}{'processor s':>15}{'peak MB':>11}")
        reading, scoring = [], []
        for _ in range(args.turns):
            reading.append(measured([sys.executable, "-c", READING, str(found[0])]))
            row("read", reading[-1])
            scoring.append(measured([*score, "--workers", str(CORES)]))
            row("read and score", scoring[-1])
    wall = min(s.wall for s in scoring) / min(r.wall for r in reading)
    least = min(s.processor for s in scoring) / CORES / min(r.processor for r in reading)
    peak = max(s.megabytes for s in scoring)
    for what, value, wanted, met in (
        ("time, on the clock", f"{wall:.1f} x reading", "at most 3", wall <= 3),
        ("time, by processor seconds", f"{least:.1f} x reading", "at most 3", least <= 3),
        ("memory", f"{peak:.0f} MB", "below 2000", peak < 2000),
    ):
        print(f"{what:<28}{value:>16}   {wanted}: {'met' if met else 'MISSED'}")


if __name__ == "__main__":
    main()
