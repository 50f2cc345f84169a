"""Measures peak memory and time to read large tables, each in a separate process (on Linux).

    python bench/reading.py                  (10 million rows, some five minutes on one core; 2 GB of disk)
    python bench/reading.py --rows 1000000

Four files hold the same fixes of 200 vehicles: with trips; without trips, so that fixes are cut into trips; with trips
and date-times that name an offset; and with trips, but in the order of time, as a feed writes them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

AGENTS = 200
LENGTH = 500  # fixes of a trip
LIMIT = 500  # MB
MB = 1e6


def write(folder: Path, rows: int) -> dict[str, Path]:
    """Writes the four files."""
    each = np.arange(rows // AGENTS)
    begun, chance = 1_600_000_000, np.random.default_rng(0)
    fixes = pl.concat(
        pl.DataFrame(
            {
                "agent": pl.repeat(f"vehicle-{agent:04}", len(each), eager=True),
                "trip": each // LENGTH,
                "time": begun + agent + 5 * each + 7200 * (each // LENGTH),
                "lat": (41.0 + 0.1 * np.sin(each / 400) + chance.normal(0, 1e-5, len(each))).round(6),
                "lon": (-8.6 + 0.1 * np.cos(each / 400)).round(6),
            }
        )
        for agent in range(AGENTS)
    )
    moments = pl.from_epoch("time").dt.strftime("%Y-%m-%dT%H:%M:%S+01:00")
    tables = {
        "with trips": fixes,
        "without trips": fixes.drop("trip"),
        "with trips, times with an offset": fixes.with_columns(moments),
        "with trips, in the order of time": fixes.sort("time", maintain_order=True),
    }
    files = {}
    for i, (name, table) in enumerate(tables.items()):
        files[name] = folder / f"{i}.csv"
        table.write_csv(files[name])
    return files


def measure(file: Path) -> None:
    """Reads a file, and prints time and memory."""
    from astray.readers import Report, read

    begun = time.process_time()
    trips = read(file, report=Report())
    seconds = time.process_time() - begun
    # Not from getrusage, which also counts what the process was before it became this one.
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024 / MB
    print(f"{trips.n_rows} {len(trips)} {seconds:.1f} {peak:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--file", type=Path, help="read this file, here")
    options = parser.parse_args()
    if options.file is not None:
        measure(options.file)
        return
    print("| table | rows | trips | processor seconds | peak memory, MB |\n|---|---|---|---|---|")
    most = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, file in write(Path(folder), options.rows).items():
            command = [sys.executable, __file__, "--file", str(file)]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            rows, trips, seconds, peak = map(float, told)
            most = max(most, int(peak))
            print(f"| {name} | {rows:,.0f} | {trips:,.0f} | {seconds:.0f} | {peak:.0f} |", flush=True)
    if most >= LIMIT:
        sys.exit(f"{most} MB at the peak, {LIMIT} are allowed")


if __name__ == "__main__":
    main()
