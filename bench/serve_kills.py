"""Kills the service under load, again and again, and compares its tables with those of a quiet run.

    python bench/serve_kills.py [--kills 20] [--store postgresql] [--feed mqtt] [--during-recovery]

With ``--feed mqtt`` the fixes come through a Mosquitto broker, which the script starts. With ``--during-recovery`` the
service is killed once more while it starts. Prints the differences; the exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from astray.simulate import city
from peers import Mosquitto
from serving import Running, fixes_of, published_through_kills, schema, sent_through_kills, settled_tables


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--kills", type=int, default=20)
    arguments.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    arguments.add_argument("--feed", choices=("http", "mqtt"), default="http")
    arguments.add_argument("--during-recovery", action="store_true")
    given = arguments.parse_args()
    trips = city(people=4, days=12, seed=5).trips
    fixes = fixes_of(trips)[::6]
    # Somebody else's trips come last, so that there are alerts, reviews and explanations to lose.
    odd = [dict(row, agent="p00", time=row["time"] + 30 * 86_400.0) for row in fixes if row["agent"] == "p01"]
    fixes += odd[:400]
    batches = [fixes[i : i + 25] for i in range(0, len(fixes), 25)]
    found = []
    for kills in (0, given.kills):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            store = stack.enter_context(schema()) if given.store == "postgresql" else None
            chance, flags = random.Random(kills), []
            if given.feed == "mqtt":
                port = stack.enter_context(Mosquitto(Path(folder))).port
                flags = ["--mqtt", f"mqtt://127.0.0.1:{port}/fleet"]
            running = Running(Path(folder) / "data", *flags, store=store)
            stack.callback(running.end)
            if given.feed == "mqtt":
                published_through_kills(running, port, batches, kills, chance, recovering=given.during_recovery)
            else:
                sent_through_kills(running, batches, kills, chance, recovering=given.during_recovery)
            found.append(settled_tables(running))
            print(f"{given.store}, {given.feed}, {kills} kills: {len(fixes):,} fixes in {len(batches)} batches")
    quiet, killed = found
    for table, rows in quiet.items():
        differ = len(set(map(repr, rows)) ^ set(map(repr, killed[table])))
        print(f"  {table}: {len(rows):,} rows, {'equal' if not differ else f'{differ} differ'}")
    return int(quiet != killed)


if __name__ == "__main__":
    sys.exit(main())
