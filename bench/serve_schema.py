"""Sends random requests to all operations of the service, by its own description: no answer may be a 5xx.

    python bench/serve_schema.py [--examples 50] [--postgres]

Needs schemathesis (``pip install ".[bench]"``). Prints the numbers of requests and of their answers. With
``--postgres`` the store is a schema of the test server, as in the tests.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from astray.service.web.table_export import FORMATS, TABLES
from astray.simulate import city
from serving import Running, fixes_of, schema, serving

ENDLESS = "/api/events"  # never ends
ERASE = "DELETE /api/agents/{agent}"  # not tested, because it removes everything


Known = dict[str, list[str]]
"""Maps names of parameters in addresses to values that exist."""


def known_names(running: Running) -> Known:
    """Returns existing values: agents, trips, items of the queue, and files to export."""
    agents = [agent["agent"] for agent in running.get("/api/agents")["agents"]]
    trips = [trip["id"] for trip in running.get(f"/api/agents/{agents[0]}/trips")["trips"]]
    files = [f"{table}.{ending}" for table in TABLES for ending in FORMATS]
    return {"agent": agents, "trip": trips, "item": [*trips, f"question/{trips[0]}"], "file": files}


def asked(operation: Any, examples: int, known: Known, statuses: Counter[tuple[str, int]]) -> None:
    """Calls one operation in many ways, every other time with existing names."""
    name = f"{operation.method.upper()} {operation.path}"
    turns = itertools.count()

    @given(case=operation.as_strategy())
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: schemathesis.Case) -> None:
        turn = next(turns)
        for parameter in case.path_parameters if turn % 2 and name != ERASE else ():
            there = known[parameter]
            case.path_parameters[parameter] = quote(there[turn // 2 % len(there)], safe="")
        statuses[name, case.call(timeout=60).status_code] += 1

    ask()


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--examples", type=int, default=50)
    arguments.add_argument("--postgres", action="store_true")
    wanted = arguments.parse_args()
    statuses: Counter[tuple[str, int]] = Counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        schema() if wanted.postgres else nullcontext() as store,
        serving(Path(folder) / "data", store=store) as running,
    ):
        running.post(fixes_of(city(people=1, days=3, seed=0).trips)[::5][:400])
        known = known_names(running)
        described = schemathesis.openapi.from_url(f"{running.url}/openapi.json")
        for result in described.get_all_operations():
            operation = result.ok()
            if operation.path != ENDLESS:
                asked(operation, wanted.examples, known, statuses)
        alive = running.client.get("/healthz").status_code
    for (name, status), count in sorted(statuses.items()):
        print(f"{name}: {status} x {count}")
    broken = sum(count for (_, status), count in statuses.items() if status >= 500)
    print(f"{sum(statuses.values())} requests, {broken} answered with 5xx; healthy afterwards: {alive == 200}")
    return int(bool(broken) or alive != 200)


if __name__ == "__main__":
    sys.exit(main())
