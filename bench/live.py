"""Measures how fast live fixes are scored, and how much memory an open trip takes.

    python bench/live.py             (about three minutes; --quick for a first look)

Everything runs on one core with one thread. `astray.simulate` makes the data: one fix every few seconds, so that nearly
every fix is at a new place. A fleet is fitted once; its agents are then enrolled under many names, so that every agent
has its own memory to look into. Latencies are those of single updates: by the wall clock, which includes other
programs on the machine, and in processor time, which does not.

1. One agent with 400 past trips: `session.update(fix)`, one trip after the other.
2. Many agents, interleaved: the same, but each fix is another agent's, so that every memory is cold in the cache. The
   first fix of each trip, for which the agent's scale is computed, is measured separately.
3. The whole of `watch`: JSON lines in, events out, scores every minute; without and with a state file.
4. The size of an open trip: memory of the process for each further session, at one fix a second over ten minutes; and
   bytes in a state file.
5. Micro-batches, the alternative to one-row forms: the fixes that came in while the last batch was scored go through
   the code for files, as the open trips of their agents; compared with the one-row forms at the same rates. Also, what
   the newest rows would cost without scores of their trips: the keys of all agents in one call, the counts agent by
   agent, the rewards in one call.

Goals: at least 2,000 fixes a second, and 99 of 100 updates under 1 ms; for a feed, 99 of 100 answers within 50 ms.
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

from astray import Detector, Trajectories
from astray.features.familiarity import familiarity, keys_of
from astray.features.steps import Step, as_steps
from astray.runtime import Session, watch
from astray.scoring.normality import step_normality
from astray.simulate import city

Fix = tuple[float, float, float]

WANTED_RATE, WANTED_P99, WANTED_BATCH_P99 = 2000, 1e-3, 50e-3
FEED_RATES = (50, 200, 1000, 2000)  # fixes a second
BEHIND = 2.0  # seconds of delay after which the engine has failed to keep up with a feed
WIDTHS = (34, 10, 12, 12, 11, 11, 11, 11, 9)


def row(*cells: object) -> None:
    first, *rest = zip(cells, WIDTHS, strict=False)
    print(f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in rest), flush=True)


def fixes_of(trips: Trajectories) -> list[Fix]:
    return list(zip(*(trips.columns[name].tolist() for name in ("time", "lat", "lon")), strict=True))


def renamed(trips: Trajectories, agent: str) -> Trajectories:
    return Trajectories(trips.columns, trips.offsets, np.full(len(trips), agent), trips.trajectory_ids)


def interleaved(trips: dict[str, list[Fix]]) -> Iterator[tuple[str, Fix]]:
    """Yields the first fix of each agent, then the second of each, and so on."""
    longest = max(map(len, trips.values()))
    for i in range(longest):
        for agent, fixes in trips.items():
            if i < len(fixes):
                yield agent, fixes[i]


def measure(name: str, updates: list[Callable[[], object]]) -> None:
    """Times each update by the wall clock and in processor time, and prints a row."""
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


def measure_watch(name: str, fleet: Detector, lines: list[str], state: Path | None) -> None:
    out = io.StringIO()
    begin, spent = time.perf_counter(), time.process_time()
    watch(fleet, lines, out, state=state, scores=60.0)
    wall, busy = time.perf_counter() - begin, time.process_time() - spent
    met = _verdict(len(lines) / busy >= WANTED_RATE)
    row(name, f"{len(lines):,}", f"{len(lines) / busy:,.0f}", f"{len(lines) / wall:,.0f}", *["-"] * 4, met)


def measure_memory(fleet: Detector, agents: list[str]) -> None:
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


# -------------------------------------------------------------------- micro-batches


def open_trips(trips: dict[str, list[Fix]]) -> Trajectories:
    """Returns the fixes of some agents so far as trips, as from a file."""
    columns = np.array([fix for fixes in trips.values() for fix in fixes]).T
    return Trajectories(
        dict(zip(("time", "lat", "lon"), columns, strict=True)),
        np.cumsum([0, *map(len, trips.values())]),
        np.array(list(trips)),
        np.full(len(trips), "open"),
    )


def feed(rate: float, fixes: list[tuple[str, Fix]], score: Callable[[list[tuple[str, Fix]]], object]) -> list[float]:
    """Returns the time from each fix to its answer, if the fixes that came in meanwhile are scored together.

    It uses processor time as the clock, so that other programs do not count.
    """
    now, done, waited = 0.0, 0, []
    while done < len(fixes):
        now = max(now, done / rate)
        upto = min(max(int(now * rate), done) + 1, len(fixes))
        begin = time.process_time()
        score(fixes[done:upto])
        now += time.process_time() - begin
        waited += [now - i / rate for i in range(done, upto)]
        done = upto
        if waited[-1] > BEHIND:
            break
    return waited


class MicroBatches:
    """Scores the open trips of the agents with new fixes by the code for files."""

    name = "micro-batches, as files are scored"

    def __init__(self, fleet: Detector) -> None:
        self.fleet, self.sizes = fleet, [0]
        self.so_far: dict[str, list[Fix]] = {}

    def __call__(self, batch: list[tuple[str, Fix]]) -> None:
        """Scores a batch."""
        self.sizes.append(len(batch))
        for agent, fix in batch:
            self.so_far.setdefault(agent, []).append(fix)
        trips = open_trips({agent: self.so_far[agent] for agent in dict(batch)})
        self.fleet.score_samples(trips)
        self.fleet.score_fixes(trips)


class OneRow:
    """Scores new fixes one by one, in sessions."""

    name = "one row at a time"

    def __init__(self, fleet: Detector) -> None:
        self.sizes = [0]
        self.sessions = {agent: fleet.open(agent) for agent in fleet.agents}

    def __call__(self, batch: list[tuple[str, Fix]]) -> None:
        """Scores a batch."""
        self.sizes.append(len(batch))
        for agent, fix in batch:
            self.sessions[agent].update(fix)


def measure_feeds(fleet: Detector, fixes: list[tuple[str, Fix]]) -> None:
    print("\nfrom a fix to its answer at some rates of a feed, in milliseconds:\n")
    row("", "rate 1/s", "answered", "p50", "p99", "a batch", "wanted")
    for rate in FEED_RATES:
        for way in (MicroBatches(fleet), OneRow(fleet)):
            waited = feed(rate, fixes, way)
            p50, p99 = (f"{1e3 * q:.2f}" for q in np.quantile(waited, [0.5, 0.99]))
            behind = waited[-1] > BEHIND
            verdict = "BEHIND" if behind else _verdict(float(np.quantile(waited, 0.99)) < WANTED_BATCH_P99)
            row(way.name, f"{rate:,}", f"{len(waited):,}", p50, p99, f"<= {max(way.sizes)}", verdict)


def measure_newest_rows(fleet: Detector, sessions: dict[str, Session]) -> None:
    print("\nthe newest rows alone in a micro-batch, in milliseconds:\n")
    row("", "agents", "a batch", "a fix", "1/s")
    moving = {agent: session._open for agent, session in sessions.items() if session._open is not None}
    steps: dict[str, Step] = {agent: trip._last for agent, trip in moving.items() if trip._last is not None}
    common = fleet.agent_model(next(iter(steps)), None)
    for size in (1, 10, 100):
        some = list(steps)[:size]
        rows = as_steps(np.array([steps[agent].numbers() for agent in some]), np.zeros(0))
        memories = [fleet.agent_model(agent, None).featurizer.memory for agent in some]
        times = []
        for _ in range(20):
            begin = time.process_time()
            keys = keys_of(rows, common.featurizer.config.habits, common.featurizer.frame)
            familiar = np.concatenate([familiarity(keys[i : i + 1], memory) for i, memory in enumerate(memories)])
            step_normality(fleet.reward_.step(common.featurizer.features(rows, familiar)), common.calibration)
            times.append(time.process_time() - begin)
        spent = float(np.median(times))
        row("", len(some), f"{1e3 * spent:.2f}", f"{1e3 * spent / len(some):.2f}", f"{len(some) / spent:,.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a quarter of the data: only a first look")
    part = 4 if parser.parse_args().quick else 1

    people = city(people=12, days=28, seed=0).trips
    past = people[np.arange(len(people)) % 4 != 0]
    new = people[np.arange(len(people)) % 4 == 0]
    fleet = Detector(iterations=5, seed=0).fit(past)
    names = [f"a{i:04d}" for i in range(400 // part)]
    few = [past.agent(agent)[:20] for agent in past.agents]
    fleet.enroll(Trajectories.concat([renamed(few[i % len(few)], name) for i, name in enumerate(names)]))
    # A person with a long past, from whom the fleet's reward has not learned.
    life = city(people=2, days=170 // part, seed=5).trips.agent("p00")
    known = 400 // part
    fleet.enroll(renamed(life[:known], "long"))
    history = fleet.agent_model("long", None)
    memory = len(history.featurizer.memory.keys)
    print(f"{len(fleet.agents)} agents; one has {history.history:.0f} past trips, {memory:,} postings")
    print("latencies in milliseconds; 'busy' is processor time, 'wall' the clock\n")
    row("", "fixes", "busy 1/s", "wall 1/s", "busy p50", "busy p99", "wall p50", "wall p99", "wanted")

    session = fleet.open("long")
    one = fixes_of(life[known:])[:12_000]
    measure(f"one agent, {known} past trips", [lambda fix=fix: session.update(fix) for fix in one])  # type: ignore[misc]

    trips = {name: fixes_of(new.agent(new.agents[i % 12])[i % 5 :][:1])[:50] for i, name in enumerate(names)}
    mixed = list(interleaved(trips))
    sessions: dict[str, Session] = {name: fleet.open(name) for name in names}
    updates = [lambda agent=agent, fix=fix: sessions[agent].update(fix) for agent, fix in mixed]  # type: ignore[misc]
    measure(f"{len(names)} agents, first fixes", updates[: len(names)])
    measure("  interleaved", updates[len(names) :])
    lines = [json.dumps({"agent": a, "time": t, "lat": lat, "lon": lon}) for a, (t, lat, lon) in mixed]
    measure_watch("watch, JSON lines", fleet, lines, None)
    with tempfile.TemporaryDirectory() as folder:
        measure_watch("watch, with a state file", fleet, lines, Path(folder, "state"))
    measure_memory(fleet, names[:20])
    measure_feeds(fleet, mixed)
    measure_newest_rows(fleet, sessions)


if __name__ == "__main__":
    main()
