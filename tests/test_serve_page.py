"""The page of ``astray serve`` in a real browser: used by keyboard, on a phone, in the dark, by a thousand agents.

``python tests/test_serve_page.py docs/images/review.png`` draws the picture of the documentation with the same browser.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from astray import FleetDetector, Trajectories
from astray.simulate import city

pytest.importorskip("starlette", reason="the service's packages are not installed: pip install '.[serve]'")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no chromium is installed, so the page cannot be opened", allow_module_level=True)

VIEWS = ("/live", "/review", "/health", "/settings", "/export")
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 800}
HARMFUL = "<img src=x onerror=\"document.title='harmed'\"> & <b>bob</b>"
WEEK = 7 * 86_400
PATIENCE = 60_000  # milliseconds: other people may use the machine
# A map without a graphics card; and nothing that a browser does on its own.
FLAGS = [
    *("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


# -------------------------------------------------------------------- a service to look at


class Served(NamedTuple):
    """A running service."""

    url: str
    process: subprocess.Popen[str]

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Origin": self.url} if data is not None else {}
        asked = urllib.request.Request(self.url + path, data, headers, method=method)
        while True:
            try:
                with urllib.request.urlopen(asked, timeout=60) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                if error.code != 429:  # it has enough to do: later
                    raise
                time.sleep(float(error.headers.get("Retry-After", 1)))

    def feed(self, fixes: list[dict[str, Any]], together: int = 2000) -> None:
        for first in range(0, len(fixes), together):
            answer = self.ask("/api/fixes", fixes[first : first + together])
            assert not answer.get("refused"), answer

    def until(self, holds: Callable[[], Any]) -> Any:
        for _ in range(600):
            if found := holds():
                return found
            time.sleep(0.1)
        raise AssertionError("it did not come about within a minute")


@contextlib.contextmanager
def serving(folder: Path, *flags: str) -> Iterator[Served]:
    """``astray serve`` on a free port of this machine."""
    command = [sys.executable, "-m", "astray.cli", "serve", str(folder), *(flags or ("--port", "0"))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if found := re.search(r"https?://[\w.:\[\]]+", line):
                break
        else:
            raise AssertionError(f"it did not start: {said}")
        yield Served(found[0], process)
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.stdout.close()


def fixes_of(trips: Trajectories, names: dict[str, str]) -> list[dict[str, Any]]:
    """Fixes as a feed sends them: everybody's, in the order of time."""
    frame = trips.to_frame().sort("time")
    rows = frame.select("agent", "trajectory", "time", "lat", "lon").iter_rows()
    return [
        {"agent": names.get(agent, agent), "trip": trip, "time": at, "lat": lat, "lon": lon}
        for agent, trip, at, lat, lon in rows
    ]


def lately(fixes: list[dict[str, Any]], now: float) -> list[dict[str, Any]]:
    """The same some weeks later, so that the last one is not older than a week; hours and days of the week stay."""
    weeks = WEEK * int((now - fixes[-1]["time"]) // WEEK)
    return [{**fix, "time": fix["time"] + weeks} for fix in fixes]


class Days(NamedTuple):
    """A fleet that has learned, and what its agents do next."""

    model: Path
    fixes: list[dict[str, Any]]
    names: dict[str, str]


def made_days(folder: Path) -> Days:
    """Eight people who have been watched for some weeks, and days of which a quarter of the trips went wrong."""
    simulation = city(people=8, days=28, seed=3)
    past, new = simulation.split(0.25)
    wrong = simulation.inject(new, kinds=("agent-swap", "new-destination", "detour"), rate=0.3, seed=1)
    names = {"p00": "ana", "p01": HARMFUL, "p02": "cem", "p03": "dora", "p04": "eli", "p05": "fatma", "p06": "van 7", "p07": "Oma Inge"}
    renamed = Trajectories(past.columns, past.offsets, [names[a] for a in past.agent_ids.tolist()], past.trajectory_ids, past.context)
    model = folder / "fleet.astray"
    FleetDetector(seed=0).fit(renamed).save(model)
    return Days(model, lately(fixes_of(wrong, names), time.time()), names)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Days:
    return made_days(tmp_path_factory.mktemp("days"))
