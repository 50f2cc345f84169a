"""Measures time, file size and memory of a huge fleet: to enrol, save, open, score and change it.

    python bench/fleet.py [--agents 100000] [--enrolled 1000] [--trips 2]        (about three minutes)
    python bench/fleet.py --agents 100000 --enrolled 100000                      (about ten minutes on a quiet machine)
    python bench/fleet.py --porto                             (all trips of Porto, if ASTRAY_PORTO names their folder)

The shipped reward also learns quickly from a few simulated people. Agents are made from these people: each has some
consecutive trips of one person, moved to another place and other days, under a new name, and one more trip to score.
They come in batches, as from a feed, so that no more fixes are in memory than a slab has. ``--enrolled`` of them are
enrolled; the others are copies of these under other names, written to the file.

Times are processor seconds on one core; the load of the machine changes them, so compare only times of one run. Each
line is measured in a separate process; its peak of memory includes the program itself. Bytes written are those that
the process gave to the kernel (/proc/self/io). Here one process does all jobs; ``bench/jobs.py`` compares workers.
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
from astray import Detector, Trajectories
from astray.core.settings import Settings
from astray.jobs.enrolment import enrolled
from astray.jobs.scoring import Scorer, scored
from astray.model.file import ModelFile, write_model
from astray.model.store import PARTS, Row
from astray.simulate import city

BATCH = 2_000  # agents that come together
DAY = 86_400.0
WIDTHS = (34, 9, 12, 12, 10, 12)


def people() -> Trajectories:
    """Simulates people, and keeps every third fix: one in about ten seconds, as trackers send them."""
    trips = city(people=12, days=21, seed=0).trips
    heard = (np.arange(trips.n_rows) - trips.offsets[:-1][trips.trajectory_of_row]) % 3 == 0
    lengths = np.bincount(trips.trajectory_of_row[heard], minlength=len(trips))
    columns = {name: values[heard] for name, values in trips.columns.items()}
    return Trajectories(columns, np.r_[0, np.cumsum(lengths)], trips.agent_ids, trips.trajectory_ids)


def agents(trips: Trajectories, n: int, each: int, first: int) -> Iterator[Trajectories]:
    """Yields batches of agents, each with consecutive trips of the person that it is made from, after the ``first``."""
    names = trips.agents
    start = {a: int(np.flatnonzero(trips.agent_ids == a)[0]) for a in names}
    count = {a: int((trips.agent_ids == a).sum()) for a in names}
    for begin in range(0, n, BATCH):
        number = np.arange(begin, min(begin + BATCH, n))
        # Agents made from one person begin on different days of its life.
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


def enrol(model: Path, n: int, made: int, each: int) -> dict[str, float]:
    """Enrols some agents, and writes a file with ``n`` agents; the others are copies."""
    fleet = astray.load(model)
    assert isinstance(fleet, Detector)
    for agent in fleet.agents:
        fleet.forget(agent)
    trips = people()
    fleet.save(model.with_suffix(".fleet"))
    began = time.process_time()
    enrolled(model.with_suffix(".fleet"), ((batch, 0.0) for batch in agents(trips, made, each, 0)))
    done = {"enrol": time.process_time() - began, "peak": peak()}
    if made == n:
        return done | {"write": 0.0}
    file = ModelFile.open(model.with_suffix(".fleet"))
    rows = [(name, row(file, name)) for name, _ in sorted(file.entries())]
    copies = ((f"agent-{i:06d}", rows[i % made][1]) for i in range(n))
    began = time.process_time()
    write_model(model.with_suffix(".fleet"), {part: file.shared(part) for part in PARTS}, copies)
    return done | {"write": time.process_time() - began}


def row(file: ModelFile, agent: str) -> Row:
    """Returns the row of an agent in a file."""
    found = file.read(agent)
    assert found is not None
    data, entry = found
    return entry.row(data)


def score(model: Path, n: int, made: int, each: int) -> dict[str, float]:
    """Scores a new trip of each enrolled agent by the whole fleet."""
    began = time.process_time()
    astray.load(model.with_suffix(".fleet"))
    opened, held = time.process_time() - began, peak()
    trips = people()
    began = time.process_time()
    tables = scored(Scorer(model.with_suffix(".fleet"), Settings()), ((b, 0.0) for b in agents(trips, made, 1, each)))
    low = sum(int((table["decision"] != "normal").sum()) for table, _ in tables)
    return {"open": opened, "held": held, "score": time.process_time() - began, "peak": peak(), "low": low}


def one_trip(model: Path, each: int) -> dict[str, float]:
    """Opens a fleet to score one agent's new trip, then enrols the trip and saves the fleet."""
    file = model.with_suffix(".fleet")
    few = next(agents(people(), 12, 1, each))
    last, again = few[-1:], few[-2:-1]
    before = peak()
    began = time.process_time()
    fleet = astray.load(file)
    assert isinstance(fleet, Detector)
    fleet.score(last)
    scored, held = time.process_time() - began, peak()
    fleet.enroll(again)  # the first change also loads modules
    fleet.save(file)
    written, began = _written(), time.process_time()
    fleet.enroll(last)
    fleet.save(file)
    return {
        "score": scored,
        "before": before,
        "held": held,
        "enrol": time.process_time() - began,
        "written": _written() - written,
    }


def forgotten(model: Path, n: int) -> dict[str, float]:
    """Forgets one agent, and saves the fleet."""
    file = model.with_suffix(".fleet")
    fleet = astray.load(file)
    assert isinstance(fleet, Detector)
    name = f"agent-{n // 2:06d}"
    written, began = _written(), time.process_time()
    fleet.forget(name)
    fleet.save(file)
    return {"forget": time.process_time() - began, "written": _written() - written}


def _written() -> float:
    """Returns the bytes that this process has written so far."""
    return float(Path("/proc/self/io").read_text().split("wchar:")[1].split()[0])


def peak() -> float:
    """Returns the peak memory of this process, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # on other systems the figure may be that of the parent process
        return float(status.read_text().split("VmHWM:")[1].split()[0]) / 1024.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def alone(call: Callable[..., dict[str, float]], *args: Any) -> dict[str, float]:
    """Runs a call in a separate process, and returns its result."""
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


def line(*cells: object) -> None:
    first, *rest = zip(cells, WIDTHS, strict=False)
    print(f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in rest), flush=True)


def run(model: Path, n: int, made: int, each: int) -> None:
    done = alone(enrol, model, n, made, each)
    size = model.with_suffix(".fleet").stat().st_size / 1e6
    name = f"{made:,} agents x {each} trips"
    line(f"{name}: enrol", f"{done['enrol']:.1f}", f"{1e3 * done['enrol'] / made:.2f}", "", "", f"{done['peak']:.0f}")
    kb = f"{1e3 * size / n / each:.1f}"
    line(f"  a file of {n:,}", f"{done['write']:.1f}", f"{1e3 * done['write'] / n:.2f}", f"{size:.0f}", kb)
    seen = alone(score, model, n, made, each)
    line("  open", f"{seen['open']:.3f}", "", "", "", f"{seen['held']:.0f}")
    ms = f"{1e3 * seen['score'] / made:.2f}"
    line(f"  score a trip each of {made:,}", f"{seen['score']:.1f}", ms, "", "", f"{seen['peak']:.0f}")
    one = alone(one_trip, model, each)
    line("  open and score one trip", f"{one['score']:.3f}", "", "", "", f"{one['held']:.0f}")
    line("  enrol one trip and save", f"{one['enrol']:.3f}")
    print(f"    {one['written'] / 1e3:,.0f} kB written", flush=True)
    gone = alone(forgotten, model, n)
    line("  forget one agent and save", f"{gone['forget']:.3f}")
    print(f"    {gone['written'] / 1e3:,.0f} kB written", flush=True)


def porto(model: Path) -> dict[str, float]:
    """Enrols all trips of Porto, by the command, into a fleet without agents."""
    from astray.cli import main as command

    fleet = astray.load(model)
    assert isinstance(fleet, Detector)
    for agent in fleet.agents:
        fleet.forget(agent)
    file = model.with_suffix(".porto")
    fleet.save(file)
    source = Path(os.environ["ASTRAY_PORTO"], "porto_trips.parquet")
    began = time.process_time()
    if command(["enroll", str(file), str(source), "--workers", "1"]) != 0:
        raise SystemExit("porto was not enrolled")
    return {"enrol": time.process_time() - began, "peak": peak(), "MB": file.stat().st_size / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--enrolled", type=int, default=1_000)
    parser.add_argument("--trips", type=int, default=2)
    parser.add_argument("--folder", help="for the model files; by default a temporary one")
    parser.add_argument("--porto", action="store_true", help="enrol all trips of Porto instead")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        model = Path(folder, "reward.astray")
        began = time.process_time()
        Detector(iterations=5, max_agents=8, seed=0).fit(people()).save(model)
        line("", "seconds", "ms/agent", "file MB", "kB/trip", "peak MB")
        line("learn from 8 people", f"{time.process_time() - began:.1f}")
        if args.porto:
            found = alone(porto, model)
            line("Porto: enrol, save", f"{found['enrol']:.1f}", "", f"{found['MB']:.0f}", "", f"{found['peak']:.0f}")
            return
        run(model, args.agents, min(args.enrolled, args.agents), args.trips)


if __name__ == "__main__":
    main()
