"""Compares who does the jobs: this process, several processes, or two Dask workers; in processor time and memory.

    python bench/jobs.py [--agents 5000]        (about four minutes on a quiet machine)

Agents are those of ``bench/fleet.py``. The cluster is a scheduler and two workers on loopback, which this script starts
and ends. There are eight jobs or more. Processor time is that of all processes together, from when they are ready: it
includes the start of a pool's processes, but not that of the scheduler and the workers. Dask's processes also take time
while they wait (together about 4.5 % of a core), so the ratio depends on how long a run lasts. Memory is the peak of a
process.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED"] = "False"

import argparse
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import psutil

import astray
from astray import Detector, Trajectories
from astray.core.settings import Settings
from astray.jobs import slabs
from astray.jobs.cluster import connected
from astray.jobs.enrolment import enrolled
from astray.jobs.scoring import Scorer, scored
from astray.jobs.slabs import Batch
from astray.jobs.work import Workers
from fleet import agents, people

PORT = 18786


def batches(trips: list[Trajectories]) -> Iterator[Batch]:
    return ((some, (k + 1) / len(trips)) for k, some in enumerate(trips))


def score(model: Path, trips: list[Trajectories], workers: Workers) -> None:
    for _ in scored(Scorer(model, Settings()), batches(trips), workers):
        pass


@contextmanager
def dask(*command: object, until: str) -> Iterator[psutil.Process]:
    """Starts a process of Dask, and yields it once its output holds ``until``."""
    words = [sys.executable, "-m", "dask", *map(str, command), "--host", "127.0.0.1", "--no-dashboard"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        next(line for line in process.stderr if until in line)
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def spent(others: list[psutil.Process]) -> float:
    """Returns the processor seconds of this process, its children that have ended, and the ``others``."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used) + sum(sum(other.cpu_times()[:2]) for other in others)


def measured(call: Callable[[], object], others: list[psutil.Process] | None = None) -> tuple[float, float]:
    """Returns the processor seconds of a call, and the peak memory in MB of the processes that it started."""
    peaks: dict[int, float] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            for child in psutil.Process().children():
                try:
                    status = Path(f"/proc/{child.pid}/status").read_text()
                    peaks[child.pid] = float(status.split("VmHWM:")[1].split()[0]) / 1024
                except (OSError, IndexError):
                    continue  # it has just ended

    looking = threading.Thread(target=look)
    looking.start()
    before = spent(others or [])
    try:
        call()
    finally:
        over.set()
        looking.join()
    return spent(others or []) - before, max(peaks.values(), default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=5_000)
    parser.add_argument("--folder", help="for the model files; by default a temporary one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, ExitStack() as stack:
        empty = Path(folder, "empty.astray").resolve()
        fleet = Detector(iterations=1, max_agents=4, seed=0).fit(people())
        for agent in fleet.agents:
            fleet.forget(agent)
        fleet.save(empty)
        known, new = (list(agents(people(), args.agents, n, first)) for n, first in ((2, 0), (1, 2)))
        fixes = sum(some.n_rows for some in known)
        slabs.AT_A_TIME = min(slabs.AT_A_TIME, fixes // 8)
        print(f"{args.agents:,} agents x 2 trips, {fixes:,} fixes, two workers", flush=True)

        def copy(name: str) -> Path:
            astray.load(empty).save(empty.with_name(name))
            return empty.with_name(name)

        pool, model = Workers(2), copy("pool.astray")
        of_pool, _ = measured(lambda: enrolled(model, batches(known), pool))
        print(f"enrol, two processes of the pool   {of_pool:7.1f} s", flush=True)
        address = f"tcp://127.0.0.1:{PORT}"
        running = [stack.enter_context(dask("scheduler", "--port", PORT, until="Scheduler at:"))]
        worker = ("worker", address, "--nthreads", 1, "--no-nanny")
        running += [stack.enter_context(dask(*worker, until="Registered to")) for _ in range(2)]
        workers, other = stack.enter_context(connected(address)), copy("dask.astray")
        of_dask, _ = measured(lambda: enrolled(other, batches(known), workers), running)
        print(f"enrol, two workers of Dask         {of_dask:7.1f} s   {of_dask / of_pool:.2f} x", flush=True)
        for file in (model, other):
            astray.load(file).save(file.with_suffix(".anew"))
        same = model.with_suffix(".anew").read_bytes() == other.with_suffix(".anew").read_bytes()
        print(f"the same bytes: {same}", flush=True)

        of_pool, _ = measured(lambda: score(model, new, pool))
        of_dask, _ = measured(lambda: score(model, new, workers), running)
        print(
            f"score, pool and Dask               {of_pool:7.1f} s {of_dask:7.1f} s   {of_dask / of_pool:.2f} x",
            flush=True,
        )
        together = Trajectories.concat(new)
        mixed = together[np.random.default_rng(0).permutation(len(together))]
        cut = [mixed[k : k + 500] for k in range(0, len(mixed), 500)]
        grouped, in_order = (measured(lambda t=t: score(model, t, Workers()))[0] for t in (new, cut))
        print(
            f"score, by agent and in any order   {grouped:7.1f} s {in_order:7.1f} s   {in_order / grouped:.2f} x",
            flush=True,
        )
        _, memory = measured(lambda: score(model, new, Workers(4)))
        print(f"score by four processes: each at most {memory:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
