"""From a broker to a webhook, through a service that is killed: every fix is stored, each alert told once."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from astray.simulate import city
from peers import Mosquitto, Receiver, publish, until
from serving import fixes_of, serving


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    if shutil.which("mosquitto") is None:
        pytest.skip("there is no mosquitto to start")
    (tmp_path / "broker").mkdir()
    with Mosquitto(tmp_path / "broker") as mosquitto:
        yield mosquitto


def life() -> list[dict[str, Any]]:
    """Nine days of one person, thinned, and then two trips of somebody else under its name, the last one just over."""
    trips = city(people=2, days=9, seed=3).trips
    rows = fixes_of(trips.agent("p00"))[::7]
    odd = fixes_of(trips.agent("p01")[:2])[::3]
    later = 86_400.0 * round((rows[-1]["time"] - odd[0]["time"]) / 86_400.0 + 2)
    rows += [dict(row, time=row["time"] + later) for row in odd]
    now = time.time() - rows[-1]["time"] - 60
    return [{name: row[name] + (now if name == "time" else 0) for name in ("time", "lat", "lon")} for row in rows]


def decided(alert: dict[str, Any]) -> bool:
    """Whether it is decided who is told; before that nobody is, for no reason."""
    return alert["told"] == "yes" or bool(alert["reason"])


def test_kills_between_broker_and_webhook_lose_nothing_and_send_nothing_twice(tmp_path: Path, broker: Mosquitto):
    receiver = Receiver()
    fixes = life()
    flags = ("--mqtt", f"mqtt://127.0.0.1:{broker.port}/fleet", "--address", "https://gps.example.org")
    with serving(tmp_path / "data", *flags) as running:
        wanted = {"outlets": [{"kind": "webhook", "to": f"{receiver.url}/hook"}]}
        assert running.client.put("/api/settings", json=wanted).status_code == 200
        running.until("/api/health", lambda found: found["broker"]["connected"])
        time.sleep(0.5)  # the subscription follows the connection
        part = len(fixes) // 3
        for i in range(3):
            publish(broker.port, *(("fleet/ana", fix) for fix in fixes[i * part : (i + 1) * part if i < 2 else None]))
            if i < 2:
                running.kill()
                running.start()
        running.until("/api/health", lambda found: found["broker"]["connected"])
        stored = "/api/export/fixes.csv"
        until(lambda: len(running.client.get(stored).text.splitlines()) == len(fixes) + 1, 120)
        found = running.until("/api/alerts", lambda found: found["alerts"] and all(map(decided, found["alerts"])))
        told = {alert["id"] for alert in found["alerts"] if alert["told"] == "yes"}
        assert told, [(alert["level"], alert["reason"]) for alert in found["alerts"]]
        until(lambda: {json.loads(body)["id"] for _, _, body in receiver.got} == told, 60)
        running.until("/api/health", lambda found: found["outbox"]["waiting"] == 0)
        opened = [json.loads(body) for _, _, body in receiver.got if json.loads(body)["event"] == "opened"]
        assert len({headers["idempotency-key"] for _, headers, _ in receiver.got}) == len(receiver.got)
        assert sorted(message["id"] for message in opened) == sorted(told)
        for message in opened:
            assert message["agent"] == "ana"
            assert message["words"]
            assert message["link"].startswith("https://gps.example.org/trip/ana%2F")
        assert not running.get("/api/health")["broker"]["warnings"]
    receiver.shutdown()
    receiver.server_close()
