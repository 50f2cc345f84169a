"""Kills in the middle of the load: nothing that was acknowledged is lost, and the tables are those of a quiet run."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from astray.simulate import city
from serving import Running, fixes_of, schema, sent_through_kills, settled_tables, why_no_postgres

KILLS = 3


@pytest.mark.parametrize(
    "kind",
    ["sqlite", pytest.param("postgres", marks=pytest.mark.skipif(bool(why_no_postgres()), reason=why_no_postgres()))],
)
def test_kills_under_load_leave_the_tables_of_an_undisturbed_run(tmp_path: Path, kind: str):
    fixes = fixes_of(city(people=3, days=6, seed=5).trips)[::8]
    batches = [fixes[i : i + 25] for i in range(0, len(fixes), 25)]
    found = []
    for kills in (0, KILLS):
        with ExitStack() as stack:
            store = stack.enter_context(schema()) if kind == "postgres" else None
            running = Running(tmp_path / f"{kills}", store=store)
            stack.callback(running.end)
            sent_through_kills(running, batches, kills, random.Random(kills))
            found.append(settled_tables(running))
    assert found[1] == found[0]
