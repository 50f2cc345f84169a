"""Asks the service, at random but by its own description, everything that it offers: no answer may be a 5xx.

    python bench/serve_schema.py [--examples 50]

Needs schemathesis (``pip install ".[bench]"``). Prints what it asked and how that was answered.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from astray.simulate import city
from serving import fixes_of, serving

ENDLESS = "/api/events"  # never ends


def asked(operation: Any, examples: int, statuses: Counter[tuple[str, int]]) -> None:
    """Ask for one operation in many ways."""
    name = f"{operation.method.upper()} {operation.path}"

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
        statuses[name, case.call(timeout=60).status_code] += 1

    ask()


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--examples", type=int, default=50)
    wanted = arguments.parse_args()
    statuses: Counter[tuple[str, int]] = Counter()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "data") as running:
        running.post(fixes_of(city(people=1, days=3, seed=0).trips)[::5][:400])
        schema = schemathesis.openapi.from_url(f"{running.url}/openapi.json")
        for result in schema.get_all_operations():
            operation = result.ok()
            if operation.path != ENDLESS:
                asked(operation, wanted.examples, statuses)
        alive = running.client.get("/healthz").status_code
    for (name, status), count in sorted(statuses.items()):
        print(f"{name}: {status} x {count}")
    broken = sum(count for (_, status), count in statuses.items() if status >= 500)
    print(f"{sum(statuses.values())} requests, {broken} answered with 5xx; healthy afterwards: {alive == 200}")
    return int(bool(broken) or alive != 200)


if __name__ == "__main__":
    sys.exit(main())
