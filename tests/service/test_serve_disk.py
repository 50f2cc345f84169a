"""A full disk is reported, loses nothing that was acknowledged, and the service recovers when there is room again."""

from __future__ import annotations

import resource
import sqlite3
from pathlib import Path

import pytest

from astray.simulate import city
from serving import fixes_of, serving

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process need Linux")


def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path):
    fixes = fixes_of(city(people=1, days=4, seed=1).trips)[::4]
    batches = [fixes[i : i + 50] for i in range(0, len(fixes), 50)]
    with serving(tmp_path / "data") as running:
        running.post(batches[0])
        acknowledged, refused = list(batches[0]), 0
        room = sum(file.stat().st_size for file in (tmp_path / "data").iterdir()) + 60_000
        everything = resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (room, everything[1]))
        for batch in batches[1:]:
            answer = running.client.post("/api/fixes", json=batch)
            if answer.status_code == 200:
                acknowledged += batch
                continue
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            assert answer.json()["error"]["reason"]
            refused += 1
            assert running.client.get("/healthz").status_code == 503
            if refused == 3:
                break
        assert refused == 3
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, everything)
        for batch in batches:
            running.post(batch)
        assert running.client.get("/healthz").status_code == 200
        assert running.stop() == 0
        connection = sqlite3.connect(tmp_path / "data" / "astray.db")
        stored = {row[0] for row in connection.execute("SELECT time FROM fixes")}
        connection.close()
    assert {fix["time"] for fix in acknowledged} <= stored
    assert stored == {fix["time"] for fix in fixes}
