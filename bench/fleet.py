"""A fleet of very many agents: enrolled, saved, opened and scored, with time, file size and memory.

    python bench/fleet.py [--agents 20000] [--trips 2]        (about two minutes; --agents 100000 for the whole)

The shipped reward goes on learning from a few simulated people, quickly. The agents are made of them: each has some
trips in a row of one of those people, moved somewhere else and to other days, under a name of its own, and one more
trip that is scored. They come in batches, as a feed would bring them, so that no more fixes are in memory than a batch
has.

Times are processor seconds on one core. Counting and scoring are done in a process each, whose peak of memory is its
own; some of it is the program itself. Below, for comparison, a tenth of the agents has ten times the trips.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import astray
from astray import FleetDetector, Trajectories
from astray.simulate import city

BATCH = 2_000  # agents that come together
COMPARED = 20_000  # agents, at most, whose trips are given to a tenth of them
DAY = 86_400.0
WIDTHS = (34, 9, 12, 12, 10, 12)


def people() -> Trajectories:
    """Simulated people, of whose fixes every third is heard: one in some ten seconds, as trackers send them."""
    trips = city(people=12, days=21, seed=0).trips
    heard = (np.arange(trips.n_rows) - trips.offsets[:-1][trips.trajectory_of_row]) % 3 == 0
    lengths = np.bincount(trips.trajectory_of_row[heard], minlength=len(trips))
    columns = {name: values[heard] for name, values in trips.columns.items()}
    return Trajectories(columns, np.r_[0, np.cumsum(lengths)], trips.agent_ids, trips.trajectory_ids)


def agents(trips: Trajectories, n: int, each: int, first: int) -> Iterator[Trajectories]:
    """Batches of agents, each with some trips in a row of the person that it is made of, from the ``first`` one on."""
    names = trips.agents
    start = {a: int(np.flatnonzero(trips.agent_ids == a)[0]) for a in names}
    count = {a: int((trips.agent_ids == a).sum()) for a in names}
    for begin in range(0, n, BATCH):
        number = np.arange(begin, min(begin + BATCH, n))
        # Those who are made of one person begin on different days of its life.
        person = [names[i % len(names)] for i in number]
        turn = number // len(names) * 5
        rows = [
            start[p] + (t % (count[p] - 12) + np.arange(first, first + each)) % count[p]
            for p, t in zip(person, turn.tolist(), strict=True)
        ]
        part = trips[np.concatenate(rows)]
        of_fix = np.repeat(number, each)[part.trajectory_of_row]
        moved = {
            "time": part.columns["time"] + 7 * DAY * (of_fix % 50),
            "lat": part.columns["lat"] + 1e-4 * (of_fix % 997),
            "lon": part.columns["lon"] + 1e-4 * (of_fix // 997),
        }
        ids = [f"{t}-{first + k % each}" for k, t in enumerate(part.trajectory_ids.tolist())]
        yield Trajectories(moved, part.offsets, [f"agent-{i:06d}" for i in np.repeat(number, each).tolist()], ids)


def enrol(model: Path, n: int, each: int) -> dict[str, float]:
    fleet = astray.load(model)
    assert isinstance(fleet, FleetDetector)
    for agent in fleet.agents:
        fleet.forget(agent)
    trips = people()
    began, spent, fixes = time.process_time(), 0.0, 0
    for batch in agents(trips, n, each, 0):
        began = time.process_time()
        fleet.enroll(batch)
        spent += time.process_time() - began
        fixes += batch.n_rows
    held = peak()
    began = time.process_time()
    fleet.save(model.with_suffix(".fleet"))
    saved = time.process_time() - began
    return {"enrol": spent, "fixes": fixes, "held": held, "save": saved, "peak": peak()}


def score(model: Path, n: int, each: int) -> dict[str, float]:
    began = time.process_time()
    fleet = astray.load(model.with_suffix(".fleet"))
    opened, held = time.process_time() - began, peak()
    trips = people()
    spent, fixes, low = 0.0, 0, 0
    for batch in agents(trips, n, 1, each):
        began = time.process_time()
        table = fleet.score(batch)
        spent += time.process_time() - began
        fixes += batch.n_rows
        low += int((table["decision"] != "normal").sum())
    return {"open": opened, "held": held, "score": spent, "fixes": fixes, "peak": peak(), "low": low}


def peak() -> float:
    """The most memory that this process has had, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # elsewhere the figure may be that of the process which started this one
        return float(status.read_text().split("VmHWM:")[1].split()[0]) / 1024.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def alone(call: Callable[..., dict[str, float]], *args: Any) -> dict[str, float]:
    """What a call says in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_tell, args=(theirs, call, args))
    process.start()
    theirs.close()
    said: dict[str, float] = ours.recv()
    process.join()
    return said


def _tell(to: Connection, call: Callable[..., dict[str, float]], args: tuple[Any, ...]) -> None:
    to.send(call(*args))


def row(*cells: object) -> None:
    first, *rest = zip(cells, WIDTHS, strict=False)
    print(f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in rest), flush=True)


def run(model: Path, n: int, each: int) -> None:
    done = alone(enrol, model, n, each)
    size = model.with_suffix(".fleet").stat().st_size / 1e6
    name = f"{n:,} agents x {each} trips"
    row(f"{name}: enrol", f"{done['enrol']:.1f}", f"{1e3 * done['enrol'] / n:.2f}", "", "", f"{done['held']:.0f}")
    cells = (f"{done['save']:.1f}", f"{1e3 * done['save'] / n:.2f}", f"{size:.0f}", f"{1e3 * size / n / each:.1f}")
    row("  save", *cells, f"{done['peak']:.0f}")
    seen = alone(score, model, n, each)
    row("  open", f"{seen['open']:.1f}", f"{1e3 * seen['open'] / n:.2f}", "", "", f"{seen['held']:.0f}")
    row("  score a trip each", f"{seen['score']:.1f}", f"{1e3 * seen['score'] / n:.2f}", "", "", f"{seen['peak']:.0f}")
    rate = seen["fixes"] / seen["score"]
    low = 100 * seen["low"] / n
    print(f"    {rate:,.0f} fixes a second; {low:.1f} % of the trips are not called normal", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=20_000)
    parser.add_argument("--trips", type=int, default=2)
    parser.add_argument("--folder", help="for the model files; by default a temporary one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        model = Path(folder, "reward.astray")
        began = time.process_time()
        FleetDetector(iterations=5, max_agents=8, seed=0).fit(people()).save(model)
        row("", "seconds", "ms/agent", "file MB", "kB/trip", "peak MB")
        row("go on learning from 8 people", f"{time.process_time() - began:.1f}")
        run(model, args.agents, args.trips)
        run(model, max(1, min(args.agents, COMPARED) // 10), 10 * args.trips)


if __name__ == "__main__":
    main()
