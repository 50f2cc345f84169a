"""Runs the service for tests: the real command in a separate process, on a free port of this machine."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from astray import Trajectories
from peers import publish, until

POSTGRES = os.environ.get("ASTRAY_POSTGRES", "postgresql://127.0.0.1:5432/test")
PATIENCE = 60.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Running:
    """A running service, and a client of it."""

    def __init__(self, folder: Path, *flags: str, port: int | None = None, store: str | None = None) -> None:
        self.folder, self.flags, self.port = folder, flags, port or free_port()
        self.store = store
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=60.0)
        self.process = self.start()

    def start(self, patience: float = PATIENCE) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "astray.cli", "serve", str(self.folder), "--port", str(self.port), *self.flags]
        command += [] if self.store is None else ["--store", self.store]
        self.folder.mkdir(exist_ok=True, parents=True)
        with open(self.folder.parent / f"{self.folder.name}.log", "ab") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log)
        until = time.monotonic() + patience
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise AssertionError(f"it ended with {self.process.returncode}: {self.log}")
            try:
                if self.client.get("/healthz").status_code == 200:
                    return self.process
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError(f"it did not answer: {self.log}")

    @property
    def log(self) -> str:
        return (self.folder.parent / f"{self.folder.name}.log").read_text()

    def end(self) -> None:
        """Kills the process, whatever it is doing."""
        self.client.close()
        if self.process.poll() is None:
            self.kill()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def post(self, fixes: Sequence[dict[str, Any]]) -> dict[str, Any]:
        answer = self.client.post("/api/fixes", json=list(fixes))
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def get(self, path: str, **query: Any) -> Any:
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def until(self, path: str, holds: Any, seconds: float = PATIENCE) -> Any:
        """Gets a path again and again until the answer meets a condition; returns that answer."""
        until = time.monotonic() + seconds
        while True:
            found = self.get(path)
            if holds(found):
                return found
            assert time.monotonic() < until, found
            time.sleep(0.1)


@contextmanager
def serving(folder: Path, *flags: str, store: str | None = None) -> Iterator[Running]:
    running = Running(folder, *flags, store=store)
    try:
        yield running
    finally:
        running.end()


def fixes_of(trips: Trajectories) -> list[dict[str, Any]]:
    """Returns trips as the fixes of a feed, in the order of time."""
    rows = []
    for trip in trips:
        (agent,) = trip.agents
        columns = (trip.columns[name].tolist() for name in ("time", "lat", "lon"))
        rows += [{"agent": agent, "time": t, "lat": lat, "lon": lon} for t, lat, lon in zip(*columns, strict=True)]
    return sorted(rows, key=lambda row: row["time"])


def sent_through_kills(
    running: Running,
    batches: Sequence[Sequence[dict[str, Any]]],
    kills: int,
    chance: random.Random,
    recovering: bool = False,
) -> None:
    """Sends batches one after the other, each until it is acknowledged; kills the service ``kills`` times meanwhile.

    If ``recovering``, kills it once more each time, while it starts.
    """

    def try_once(batch: Sequence[dict[str, Any]]) -> None:
        with contextlib.suppress(httpx.TransportError):
            running.client.post("/api/fixes", json=list(batch))

    for batch, is_last in _between_kills(batches, kills):
        if is_last:
            _killed_during(running, lambda batch=batch: try_once(batch), chance, recovering)
        running.post(batch)


def published_through_kills(
    running: Running,
    port: int,
    batches: Sequence[Sequence[dict[str, Any]]],
    kills: int,
    chance: random.Random,
    recovering: bool = False,
) -> None:
    """Publishes batches through a broker and kills the service; the broker must repeat what was not acknowledged."""
    running.until("/api/health", lambda health: health["broker"]["connected"])
    time.sleep(0.5)  # the subscription follows the connection
    for batch, is_last in _between_kills(batches, kills):
        if is_last:
            _killed_during(running, lambda batch=batch: publish(port, ("fleet", list(batch))), chance, recovering)
        else:
            publish(port, ("fleet", list(batch)))
    different = len({(fix["agent"], fix["time"], fix["lat"], fix["lon"]) for batch in batches for fix in batch})
    with contextlib.closing(_reader(running)) as reader:
        until(lambda: reader.value("SELECT count(*) FROM fixes") == different, PATIENCE)


def _between_kills(batches: Sequence[Any], kills: int) -> Iterator[tuple[Any, bool]]:
    """Yields each batch, and True if the service must be killed while it takes that batch."""
    every = len(batches) // (kills + 1)
    for i, batch in enumerate(batches):
        yield batch, bool(kills and i and i % every == 0 and i // every <= kills)


def _killed_during(running: Running, send: Callable[[], None], chance: random.Random, recovering: bool) -> None:
    killer = threading.Timer(chance.uniform(0.0, 0.05), running.kill)
    killer.start()
    send()
    killer.join()
    if recovering:
        with contextlib.suppress(AssertionError):
            running.start(patience=chance.uniform(0.0, 3.0))
        running.kill()
    running.start()


TABLES = {
    "agents": "agent, n, time, lat, lon, trip, normality, alert, trips, zone, late_from, drift",
    "fixes": "agent, time, lat, lon, n",
    "trips": "*",
    "events": "agent, trip, kind, ordinal, time, data",
    "alerts": "id, agent, trip, began, opened, closed, level, words, late",
    "reviews": "item, kind, agent, trips, score, verdict",
    "memories": "agent, checksum, trips, waiting, zone",
    "scores": "*",
    "pins": "agent",
}
"""The columns that must not depend on kills: all except times by the service's clock."""


def _reader(running: Running) -> Any:
    from astray.service.store import connect

    return connect(running.store or running.folder / "astray.db", write=False)


def settled_tables(running: Running) -> dict[str, list[Any]]:
    """Waits for all explanations, stops the service, and returns its tables."""
    reader = _reader(running)
    asked = "SELECT (SELECT count(*) FROM scores WHERE data IS NULL) + (SELECT count(*) FROM alerts WHERE told = '')"
    until(lambda: reader.value(asked) == 0, PATIENCE)
    assert running.stop() == 0, running.log
    found = {name: sorted(reader.rows(f"SELECT {what} FROM {name}"), key=repr) for name, what in TABLES.items()}
    reader.close()
    return found


def why_no_postgres() -> str:
    """Returns why the tests of PostgreSQL cannot run; an empty text if they can."""
    try:
        import psycopg

        psycopg.connect(POSTGRES, connect_timeout=2).close()
    except Exception as error:
        return f"no PostgreSQL answers at {POSTGRES}: {error}"
    return ""


@contextmanager
def schema() -> Iterator[str]:
    """Makes a schema on the test server, yields its URL, and removes it afterwards."""
    import psycopg

    name = f"astray_test_{secrets.token_hex(6)}"
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        try:
            yield f"{POSTGRES}?options=-csearch_path%3D{name}"
        finally:
            connection.execute(f"DROP SCHEMA {name} CASCADE")
