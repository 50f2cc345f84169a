"""Times the parts whose slowness users would notice, in processor seconds.

python bench/parts.py            (half a minute)
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from astray.features.memory import Memory
from astray.scoring.segments import segments
from astray.simulate import city, world


def look_ups() -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    pool = rng.integers(0, 2**64, 300_000, np.uint64)
    memory = Memory().add({f"{i}": rng.choice(pool, 3000) for i in range(200)})
    query = np.concatenate([rng.choice(pool, 500_000), rng.integers(0, 2**64, 500_000, np.uint64)])
    memory.counts(query[:1])  # builds the index
    return lambda: memory.counts(query, np.zeros(len(query), np.int64))


def many_segments() -> Callable[[], Any]:
    n, time = np.tile([0.0, -3.0, -3.0], 40_000), np.tile([0.0, 60.0, 120.0], 40_000)
    return lambda: segments(n, np.repeat(np.arange(40_000), 3), time)


PARTS: dict[str, tuple[Callable[[], Callable[[], Any]], float]] = {
    "a million look-ups in a memory of 200 trips": (look_ups, 1.5),
    "segments of 40,000 trips": (many_segments, 5.0),
    "a city of 20 people for 60 days": (lambda: lambda: city(people=20, days=60, seed=0), 10.0),
    "a world of 40 people for 60 days": (lambda: lambda: world(0), 15.0),
}


def main() -> None:
    for name, (prepared, most) in PARTS.items():
        call = prepared()
        began = time.process_time()
        call()
        took = time.process_time() - began
        print(f"{name:<50}{took:6.2f} s   at most {most:g} s: {'met' if took <= most else 'MISSED'}", flush=True)


if __name__ == "__main__":
    main()
