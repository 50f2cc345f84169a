"""Attacks on a running service, bounded and on this machine alone: it refuses them, and serves everybody else."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from astray.cli.serve_token import tokens as command
from serving import Running, serving

NOW = int(time.time()) - 40_000


def fix(agent: str, i: int = 0) -> dict[str, Any]:
    return {"agent": agent, "time": NOW + i, "lat": 45.123456, "lon": 7.654321 + i / 1e4}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("attacked") / "data", "--known-agents", "500") as running:
        yield running
        assert "Traceback" not in running.log
        assert "45.123456" not in running.log, "no coordinates in logs"


def connection(service: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port), timeout=30)


def test_a_flood_is_answered_with_200_or_429_and_others_are_served(service: Running):
    statuses: Counter[int] = Counter()

    def flood(number: int) -> None:
        with httpx.Client(base_url=service.url, timeout=120) as client:
            for i in range(30):
                statuses[client.post("/api/fixes", json=fix(f"flood {number}", i)).status_code] += 1

    threads = [threading.Thread(target=flood, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    assert service.client.get("/healthz").status_code == 200
    assert service.client.get("/api/agents").status_code == 200
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 429}
    assert statuses.total() == 20 * 30


@pytest.mark.parametrize("path", ["/pub", "/overland", "/osmand", "/traccar", "/gpslogger", "/api/fixes"])
def test_a_megabyte_of_garbage_gets_4xx(service: Running, path: str):
    for body in (b"[" * 1_000_000, b'{"a":' * 200_000, b"\x00" * 1_000_000, b"&a=1" * 250_000, b"9" * 1_000_000):
        answer = service.client.post(path, content=body)
        assert 400 <= answer.status_code < 500
        assert answer.json()["error"]["reason"]
    assert service.client.post(path, content=b" " * 2_000_000).status_code == 413


def test_a_megabyte_of_fixes_is_taken(service: Running):
    lines = "\n".join(json.dumps(fix("large", i)) for i in range(10_000))
    answer = service.client.post("/api/fixes", content=lines.encode()).json()
    assert answer["accepted"] == 10_000


def test_slow_clients_do_not_delay_others(service: Running):
    slow = [connection(service) for _ in range(60)]
    for i, one in enumerate(slow):
        one.sendall(b"POST /pub HTTP/1.1\r\nHost: 127.0.0.1\r\n" + (b"Content-Length: 100\r\n\r\n{" if i % 2 else b""))
    assert service.post([fix("quick")])["accepted"] == 1
    assert service.client.get("/api/agents").status_code == 200
    for one in slow:
        one.close()


def test_endless_new_agents_take_bounded_memory(service: Running):
    process = psutil.Process(service.process.pid)
    for i in range(3):
        service.client.post("/api/fixes", json=[fix(f"warm {i} {k}") for k in range(1000)])
    before = process.memory_info().rss
    refused = 0
    for i in range(20):
        answer = service.client.post("/api/fixes", json=[fix(f"unknown {i} {k}") for k in range(1000)])
        assert answer.status_code in (200, 422, 429)
        refused += len(answer.json().get("refused", []))
    assert refused > 15_000, "beyond those that the store may know, agents are refused"
    assert process.memory_info().rss - before < 100e6
    assert service.get("/api/agents", limit=1)["total"] <= 500
    assert service.client.get("/healthz").status_code == 200


def test_other_sites_and_other_names_are_refused(service: Running):
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert service.client.put("/api/settings", headers=headers, json={}).status_code in (403, 421)
        assert service.client.post("/api/fixes", headers=headers, json=fix("evil")).status_code in (403, 421)
        assert service.client.get("/osmand?id=evil&lat=1&lon=1", headers=headers).status_code in (403, 421)


def test_a_token_of_one_agent_sees_and_changes_nothing_of_another(tmp_path: Path):
    run = CliRunner().invoke
    (tmp_path / "data").mkdir()
    one = run(command, ["add", str(tmp_path / "data"), "one", "--agent", "ana", "--send", "--read", "--write"])
    every = run(command, ["add", str(tmp_path / "data"), "every", "--send", "--write"])
    ana, all_ = ({"Authorization": f"Bearer {made.stdout.strip()}"} for made in (one, every))
    with serving(tmp_path / "data") as running:
        client = running.client
        for agent in ("ana", "secret-bob"):
            rows = [fix(agent, 30 * i) for i in range(40)]
            assert client.post("/api/fixes", json=rows, headers=all_).json()["accepted"] == 40
        mixed = client.post("/api/fixes", json=[fix("ana", 5000), fix("secret-bob", 5000)], headers=ana).json()
        assert mixed["accepted"] == 1
        assert mixed["refused"][0]["reason"] == "this token may not send fixes of this agent"
        assert "secret-bob" in client.get("/api/agents", headers=all_).text
        for path in (
            *("/api/agents", "/api/agents?q=secret", "/api/review", "/api/alerts", "/api/health", "/metrics"),
            *(f"/api/export/{what}.csv" for what in ("trips", "fixes", "alerts", "reviews")),
            *("/api/agents/secret-bob/ways", "/api/agents/secret-bob/trips", "/api/settings"),
        ):
            answer = client.get(path, headers=ana)
            assert answer.status_code < 500
            assert answer.status_code >= 400 or "secret-bob" not in answer.text, path
            assert client.get(path).status_code == 401, path
        for method, path, body in (
            ("DELETE", "/api/agents/secret-bob", None),
            ("POST", "/api/agents/secret-bob/pause", {"until": NOW}),
            ("PUT", "/api/settings", {"undo_minutes": 1}),
        ):
            answer = client.request(method, path, json=body, headers=ana)
            assert answer.status_code in (403, 404), (method, path, answer.text)
        assert "secret-bob" in client.get("/api/agents", headers=all_).text
        with client.stream("GET", "/api/events", headers=ana) as events:
            client.post("/api/fixes", json=[fix("secret-bob", 6000), fix("ana", 6000)], headers=all_)
            for line in events.iter_lines():
                assert "secret-bob" not in line
                if '"ana"' in line:
                    break


@pytest.mark.parametrize("flags", [["--host", "0.0.0.0"], ["--behind-proxy"]])
def test_beyond_loopback_the_service_does_not_start_without_tls_or_a_token(tmp_path: Path, flags: list[str]):
    started = subprocess.run(
        [sys.executable, "-m", "astray.cli", "serve", str(tmp_path), "--port", "0", *flags],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert started.returncode == 1
    assert "give --certificate" in started.stderr or "there is no token" in started.stderr
