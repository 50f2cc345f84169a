"""How fast fixes are scored as they come, and how much an open trip holds.

    python bench/live.py             (about a minute; --quick for a first look)

Everything runs on one core with one thread. The data are made by `astray.simulate`: one fix every few seconds, so that
nearly every fix is somewhere new. A fleet is fitted once; its agents are then enrolled under many names, so that as
many memories are looked into as there are agents. Latencies are those of each single update: by the clock on the wall,
in which other programs on the machine count as well, and in processor time, in which they do not.

1. One agent: `session.update(fix)`, one trip after the other.
2. Many agents, interleaved: the same, each fix another agent's; every memory is cold in the cache.
3. The whole of `watch`: JSON lines in, events out, scores every minute; without and with a state file.
4. What an open trip holds: memory of the process for each further session, at one fix a second over ten minutes; and
   how large it is in a state file.

Wanted: at least 2,000 fixes a second, and 99 of 100 updates under 2 ms.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import gc
import io
import json
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from astray import FleetDetector, Trajectories
from astray.live import Session, watch
from astray.simulate import city

Fix = tuple[float, float, float]

WANTED_RATE, WANTED_P99 = 2000, 2e-3
WIDTHS = (34, 10, 12, 12, 11, 11, 11, 11, 9)


def row(*cells: object) -> None:
    first, *rest = zip(cells, WIDTHS, strict=False)
    print(f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in rest), flush=True)


def fixes_of(trips: Trajectories) -> list[Fix]:
    return list(zip(*(trips.columns[name].tolist() for name in ("time", "lat", "lon")), strict=True))


def renamed(trips: Trajectories, agent: str) -> Trajectories:
    return Trajectories(trips.columns, trips.offsets, np.full(len(trips), agent), trips.trajectory_ids)


def interleaved(trips: dict[str, list[Fix]]) -> Iterator[tuple[str, Fix]]:
    """One fix of each agent, then the next of each, and so on."""
    longest = max(map(len, trips.values()))
    for i in range(longest):
        for agent, fixes in trips.items():
            if i < len(fixes):
                yield agent, fixes[i]


def measure(name: str, updates: list[Callable[[], object]]) -> None:
    """Time each update by the wall and in processor time, and print a row."""
    wall, busy = np.empty(len(updates)), np.empty(len(updates))
    gc.collect()
    for i, update in enumerate(updates):
        begin, spent = time.perf_counter(), time.process_time()
        update()
        wall[i], busy[i] = time.perf_counter() - begin, time.process_time() - spent
    rate = len(updates) / busy.sum()
    p99 = float(np.quantile(busy, 0.99))
    met = rate >= WANTED_RATE and p99 < WANTED_P99
    latencies = [f"{1e3 * q:.2f}" for values in (busy, wall) for q in np.quantile(values, [0.5, 0.99])]
    row(name, f"{len(updates):,}", f"{rate:,.0f}", f"{len(updates) / wall.sum():,.0f}", *latencies, _verdict(met))


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def measure_watch(name: str, fleet: FleetDetector, lines: list[str], state: Path | None) -> None:
    out = io.StringIO()
    begin, spent = time.perf_counter(), time.process_time()
    watch(fleet, lines, out, state=state, scores=60.0)
    wall, busy = time.perf_counter() - begin, time.process_time() - spent
    met = _verdict(len(lines) / busy >= WANTED_RATE)
    row(name, f"{len(lines):,}", f"{len(lines) / busy:,.0f}", f"{len(lines) / wall:,.0f}", *["-"] * 4, met)


def measure_memory(fleet: FleetDetector, agents: list[str]) -> None:
    sessions = []
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for agent in agents:
        session = fleet.open(agent)
        for second in range(600):
            session.update((1.7e9 + second, 45.0 + second * 1e-4, 7.0))
        sessions.append(session)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    saved = 8 * sum(len(s.snapshot().numbers) for s in sessions)
    print(f"\nan open trip at one fix a second, {len(sessions)} sessions, each after ten minutes:")
    print(f"  {held / len(sessions) / 1024:.1f} KiB in memory, {saved / len(sessions) / 1024:.1f} KiB in a state file")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a quarter of the data: only a first look")
    part = 4 if parser.parse_args().quick else 1

    people = city(people=12, days=28, seed=0).trips
    past = people[np.arange(len(people)) % 4 != 0]
    new = people[np.arange(len(people)) % 4 == 0]
    fleet = FleetDetector(iterations=5, seed=0).fit(past)
    names = [f"a{i:04d}" for i in range(400 // part)]
    few = [past.agent(agent)[:20] for agent in past.agents]
    fleet.enroll(Trajectories.concat([renamed(few[i % len(few)], name) for i, name in enumerate(names)]))
    history = fleet.lens("p00", None)
    memory = len(history.view.memory.keys)
    print(f"{len(fleet.agents)} agents; p00 has {history.history:.0f} past trips, {memory:,} postings")
    print("latencies in milliseconds; 'busy' is processor time, 'wall' the clock\n")
    row("", "fixes", "busy 1/s", "wall 1/s", "busy p50", "busy p99", "wall p50", "wall p99", "wanted")

    session = fleet.open("p00")
    one = fixes_of(new.agent("p00"))
    measure("one agent", [lambda fix=fix: session.update(fix) for fix in one])  # type: ignore[misc]

    trips = {name: fixes_of(new.agent(new.agents[i % 12])[i % 5 :][:1])[:50] for i, name in enumerate(names)}
    mixed = list(interleaved(trips))
    sessions: dict[str, Session] = {name: fleet.open(name) for name in names}
    measure(
        f"{len(names)} agents, interleaved",
        [lambda agent=agent, fix=fix: sessions[agent].update(fix) for agent, fix in mixed],  # type: ignore[misc]
    )
    lines = [json.dumps({"agent": a, "time": t, "lat": lat, "lon": lon}) for a, (t, lat, lon) in mixed]
    measure_watch("watch, JSON lines", fleet, lines, None)
    with tempfile.TemporaryDirectory() as folder:
        measure_watch("watch, with a state file", fleet, lines, Path(folder, "state"))
    measure_memory(fleet, names[:20])


if __name__ == "__main__":
    main()
