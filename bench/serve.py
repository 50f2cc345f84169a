"""Measures the service: fixes a second in batches and in single posts, latencies, and the size of 10,000 agents.

Prints a table. Processor time is that of the service's process alone; the clients run in another one. Figures are worse
on a busy machine: compare processor time, or ratios within one run.

    python bench/serve.py [--quick] [--store postgresql://...]
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from astray.core.threads import one_thread
from astray.service.served_model import blank_model
from astray.simulate import city
from serving import Running, fixes_of

Fixes = list[dict[str, Any]]
STAGGERED = 37  # fixes between two copies of a person


def lives(people: int, days: int) -> list[Fixes]:
    """Returns the fixes of simulated people, one list for each; further agents are copies under other names."""
    trips = city(people=people, days=days, seed=0).trips
    return [fixes_of(trips.agent(agent))[::3] for agent in trips.agents]


def interleaved(base: list[Fixes], agents: int, fixes_each: int, begin: int = 0) -> Fixes:
    """Returns the fixes of many agents in turns, as from a feed.

    Copies of one person begin at different points: otherwise dozens of trips would end at the same moment.
    """
    rows = []
    for i in range(fixes_each):
        for k in range(agents):
            own = base[k % len(base)]
            at = begin + i + STAGGERED * (k // len(base)) % len(own)
            row = own[at % len(own)]
            later = 400 * 86_400.0 * (at // len(own))
            rows.append(dict(row, agent=f"a{k:05}", time=row["time"] + later))
    return rows


def bodies(rows: Fixes, senders: int, size: int) -> list[list[bytes]]:
    """Returns the requests of each sender, ``size`` fixes each; an agent has one sender, so its fixes stay in order."""
    own: list[Fixes] = [[] for _ in range(senders)]
    for one in rows:
        own[int(one["agent"][1:]) % senders].append(one)
    return [[msgspec.json.encode(some[i : i + size]) for i in range(0, len(some), size)] for some in own]


class Client:
    """Sends requests by several senders at once, with little overhead, and notes how long each waited."""

    def __init__(self, url: str) -> None:
        self.host, _, port = url.removeprefix("http://").partition(":")
        self.port, self.waits = int(port), list[float]()

    async def send(self, requests: list[list[bytes]], rate: float | None = None) -> float:
        """Sends all requests, at a total rate or as fast as they are answered; returns the seconds that it took."""
        began = time.perf_counter()

        async def sender(own: list[bytes], number: int) -> None:
            reader, writer = await asyncio.open_connection(self.host, self.port)
            for i, body in enumerate(own):
                due = time.perf_counter()
                if rate is not None:
                    due = began + (i * len(requests) + number) / rate
                    await asyncio.sleep(max(due - time.perf_counter(), 0))
                head = (
                    f"POST /api/fixes HTTP/1.1\r\nhost: {self.host}:{self.port}\r\ncontent-length: {len(body)}\r\n\r\n"
                )
                writer.write(head.encode() + body)
                answer = await reader.readuntil(b"\r\n\r\n")
                assert answer.startswith(b"HTTP/1.1 200"), answer
                length = re.search(rb"content-length: (\d+)", answer)
                assert length is not None
                await reader.readexactly(int(length[1]))
                self.waits.append(time.perf_counter() - due)
            writer.close()

        await asyncio.gather(*(sender(own, number) for number, own in enumerate(requests)))
        return time.perf_counter() - began


def processor(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measured(running: Running, work: Callable[[Client], Any]) -> tuple[float, Any, Client]:
    """Returns the processor seconds of the service during ``work``, the result of ``work``, and the client."""
    process, client = psutil.Process(running.process.pid), Client(running.url)
    before = processor(process)
    found = work(client)
    return processor(process) - before, found, client


def alone(rows: Fixes) -> float:
    """Returns fixes a second of processor time in sessions alone, without store and learning, for comparison."""
    fleet, sessions = blank_model(), dict[str, Any]()
    some = [one for one in rows if int(one["agent"][1:]) < 20]
    began = time.process_time()
    with one_thread():
        for one in some:
            if one["agent"] not in sessions:
                sessions[one["agent"]] = fleet.open(one["agent"])
            sessions[one["agent"]].push((one["time"], one["lat"], one["lon"]))
    return len(some) / (time.process_time() - began)


def row(what: str, figure: str, asked: str) -> None:
    print(f"| {what} | {figure} | {asked} |", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--store")
    given = arguments.parse_args()
    agents, each = (60, 60) if given.quick else (240, 200)
    base = lives(6, 10)
    print("| | measured | asked |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder) / "data", store=given.store)
        try:
            rows = interleaved(base, agents, each)
            row("for comparison, sessions alone: fixes a second of processor time", f"{alone(rows):,.0f}", "")
            used, took, _ = measured(running, lambda c: asyncio.run(c.send(bodies(rows, 8, 100))))
            row(
                f"batches of 100, {agents} agents: fixes a second of processor time",
                f"{len(rows) / used:,.0f}",
                "3,000",
            )
            row("the same by the clock", f"{len(rows) / took:,.0f}", "")

            more = max(each // 10, 20)
            singles = interleaved(base, agents, more, begin=each)
            used, took, _ = measured(running, lambda c: asyncio.run(c.send(bodies(singles, 60, 1))))
            row("single posts a second of processor time", f"{len(singles) / used:,.0f}", "1,500")
            row("the same by the clock", f"{len(singles) / took:,.0f}", "")

            rate = 0.5 * len(singles) / max(used, took)
            paced = interleaved(base, agents, more, begin=each + more)
            _, _, client = measured(running, lambda c: asyncio.run(c.send(bodies(paced, 60, 1), rate)))
            p50, p99 = (1000 * float(np.percentile(client.waits, q)) for q in (50, 99))
            what = f"single posts at half of that ({rate:,.0f} a second): median, 99th percentile"
            row(what, f"{p50:.0f}, {p99:.0f} ms", "99th: 100 ms")

            known = 1_000 if given.quick else 10_000
            many = interleaved(base, known, 3, begin=each + 2 * more)
            measured(running, lambda c: asyncio.run(c.send(bodies(many, 4, 500))))
            memory = psutil.Process(running.process.pid).memory_info().rss / 1e6
            row(f"memory with {known:,} agents known", f"{memory:,.0f} MB", "1,000 MB")
            size = running.get("/api/health")["store"]["bytes"] / 1e6
            row("the store then", f"{size:,.0f} MB", "")
        finally:
            running.end()


if __name__ == "__main__":
    main()
