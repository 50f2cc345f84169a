"""``make serve``: simulated people, an alert, the page's address; and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from astray.service.demo_feed import DAY, NAMES, _steps, story

NOW = 1_763_380_000.0


@pytest.mark.parametrize("hours", [0, 7, 50, 100, 160])
def test_the_demo_story_ends_now_and_has_anomalies_at_any_hour_of_the_week(hours: int):
    now = NOW + 3600 * hours
    told = story(now)
    assert told.wrong > 0
    for fixes in (told.past, told.day):
        assert (np.diff(fixes.time) >= 0).all()
    assert set(told.past.agent.tolist()) == set(NAMES)
    assert now - DAY < told.day.time[0]
    assert told.day.time[-1] <= now
    assert told.past.time[0] < now - 14 * DAY


def test_every_fix_of_the_day_is_sent_once_in_its_order():
    times = np.sort(np.random.default_rng(0).uniform(0, DAY, 500))
    sent = [i for start, end in _steps(times, 5.0) for i in range(start, end)]
    assert sent == list(range(500))


def test_the_demo_raises_an_alert_and_leaves_nothing_behind(tmp_path: Path):
    command = [sys.executable, "-u", "-m", "astray.cli", "serve", "demo"]  # as make serve does
    process = subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(tmp_path), "ASTRAY_PORT": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: list[str] = []
    assert process.stdout is not None
    reading = threading.Thread(target=lambda: lines.extend(iter(process.stdout.readline, "")), daemon=True)
    reading.start()
    try:
        until = time.monotonic() + 300
        while not any(line.startswith("ALERT") for line in lines):
            assert process.poll() is None, lines
            assert time.monotonic() < until, lines
            time.sleep(0.1)
        address = next(word for line in lines for word in line.split() if word.startswith("http://"))
        assert httpx.get(address).status_code == 200
        assert {one["agent"] for one in httpx.get(f"{address}api/agents").json()["agents"]} == set(NAMES)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)
        reading.join(10)
        assert "Traceback" not in "".join(lines)
        assert list(tmp_path.iterdir()) == []
    finally:
        process.kill()
        process.wait()
