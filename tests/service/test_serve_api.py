"""astray serve as its users have it: the real command, asked over HTTP."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from astray.core.settings import ASPECTS
from astray.simulate import city
from serving import Running, fixes_of, serving


@pytest.fixture(scope="module")
def life() -> list[dict]:
    """Nine days of one person, thinned, then three trips of somebody else under its name."""
    trips = city(people=2, days=9, seed=3).trips
    rows = fixes_of(trips.agent("p00"))[::7]
    odd = fixes_of(trips.agent("p01")[:4])[::7]
    later = 86_400.0 * round((rows[-1]["time"] - odd[0]["time"]) / 86_400.0 + 2)
    return [*rows, *(dict(row, agent="p00", time=row["time"] + later) for row in odd)]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, life: list[dict]) -> Iterator[Running]:
    """A service that has seen all of it; every tests leaves it as it was."""
    with serving(tmp_path_factory.mktemp("service") / "data") as running:
        for i in range(0, len(life), 100):
            running.post(life[i : i + 100])
        running.until("/api/review", lambda found: found["items"] and all(item["words"] for item in found["items"]))
        yield running


def test_agents_are_listed_with_state_place_and_local_time(service: Running, life: list[dict]):
    (agent,) = service.get("/api/agents")["agents"]
    assert agent["agent"] == "p00"
    assert (agent["time"], agent["lat"], agent["lon"]) == tuple(life[-1][key] for key in ("time", "lat", "lon"))
    assert agent["state"] in ("moving", "at rest", "alert", "silent")
    assert agent["trips"] > 5
    assert agent["zone"] == "Europe/Rome"
    assert agent["local"].endswith("+01:00")
    assert service.get("/api/agents", q="P0")["total"] == 1
    assert service.get("/api/agents", q="%")["total"] == 0


def test_flagged_trips_wait_in_review_worst_first_with_words(service: Running):
    found = service.get("/api/review")
    scores = [item["score"] for item in found["items"]]
    assert scores == sorted(scores)
    assert found["total"] == len(found["items"]) >= 2
    trip = next(item for item in found["items"] if item["kind"] == "trip")
    assert trip["decision"] in ("anomaly", "review")
    assert "past trips" in trip["words"] or "%" in trip["words"]
    assert trip["trips"] == [trip["id"]]


def test_a_flagged_trip_has_track_band_and_reasons(service: Running):
    item = next(item for item in service.get("/api/review")["items"] if item["kind"] == "trip")
    trip = service.get(f"/api/trips/{quote(item['id'], safe='')}")
    track = trip["track"]
    assert {len(track[name]) for name in ("time", "lat", "lon", "n", "low", "high", "fault")} == {trip["fixes"]}
    assert all(low <= n <= high for low, n, high in zip(track["low"], track["n"], track["high"], strict=True) if n)
    assert trip["score"] <= trip["eps"]
    assert trip["rates"] == {}
    assert all(0.0 < trip[f"p_{aspect}"] <= 1.0 for aspect in ASPECTS)
    assert min(trip[f"p_{aspect}"] for aspect in ASPECTS) < 0.1
    assert trip["words"]
    assert trip["ways"]["features"]
    assert (trip["open"], trip["verdict"]) == (False, None)


def test_a_normal_trip_is_explained_on_request(service: Running):
    normal = next(trip for trip in service.get("/api/agents/p00/trips")["trips"] if trip["decision"] == "normal")
    trip = service.get(f"/api/trips/{quote(normal['id'], safe='')}")
    assert trip["eps"] is not None
    assert any(n is not None for n in trip["track"]["n"])


def test_an_open_trip_can_be_read(service: Running):
    (agent,) = service.get("/api/agents")["agents"]
    trip = service.get(f"/api/trips/{quote(agent['trip'], safe='')}")
    assert trip["open"] is True
    assert trip["track"]["time"][-1] == agent["time"]


def test_habitual_ways_are_lines_that_count_trips(service: Running):
    ways = service.get("/api/agents/p00/ways")["features"]
    assert ways
    assert sum(way["properties"]["trips"] for way in ways) <= 30
    assert all(way["geometry"]["type"] == "LineString" for way in ways)


def test_an_item_can_be_addressed_by_the_name_of_its_trip(service: Running):
    item = service.get("/api/review")["items"][0]["id"]
    once = f"/api/review/{item}/verdict"  # encoded once: a trip is found so, too
    assert service.client.get(f"/api/trips/{item}").status_code == 200
    assert service.client.post(once, json={"verdict": "unsure"}).json()["id"] == item
    assert service.client.delete(once).json() == {"id": item, "verdict": None}


def test_a_verdict_can_be_undone_and_then_given_again(service: Running):
    item = service.get("/api/review")["items"][-1]["id"]
    address = f"/api/review/{quote(item, safe='')}/verdict"
    given = service.client.post(address, json={"verdict": "unsure"}).json()
    assert given["verdict"] == "unsure"
    waiting = service.get("/api/review")
    assert item not in [i["id"] for i in waiting["items"]]
    assert [p["id"] for p in waiting["pending"]] == [item]
    assert service.client.delete(address).status_code == 200
    assert item in [i["id"] for i in service.get("/api/review")["items"]]
    assert service.client.post(address, json={"verdict": "perhaps"}).status_code == 422
    assert service.client.post("/api/review/p00%2Fnothing/verdict", json={"verdict": "normal"}).status_code == 404


def test_health_and_metrics_report_counts(service: Running, life: list[dict]):
    health = service.get("/api/health")
    assert health["status"] == "ok"
    assert health["store"]["kind"] == "SQLite"
    assert health["false_alarms"]["promised"] == 0.02
    text = service.client.get("/metrics").text
    assert f"astray_fixes_total {len(life)}" in text
    assert "p00" not in text


def test_settings_are_stored_and_wrong_ones_are_refused_with_their_field(service: Running):
    before = service.get("/api/settings")
    changed = service.client.put("/api/settings", json=before | {"undo_minutes": 7.0})
    assert changed.json()["undo_minutes"] == 7.0
    wrong = service.client.put("/api/settings", json=before | {"quiet_hours": {"from": "x", "to": "07:00"}})
    assert wrong.status_code == 422
    assert wrong.json()["error"]["field"] == "quiet_hours.from"
    assert service.get("/api/settings")["undo_minutes"] == 7.0
    service.client.put("/api/settings", json=before)


@pytest.mark.parametrize("table", ["trips", "fixes", "alerts", "reviews"])
@pytest.mark.parametrize("ending", ["csv", "geojson", "parquet"])
def test_every_table_is_exported_in_every_format(service: Running, table: str, ending: str):
    answer = service.client.get(f"/api/export/{table}.{ending}", params={"agent": "p00"})
    assert answer.status_code == 200
    if ending == "geojson":
        assert json.loads(answer.content)["features"]
    else:
        assert len(answer.content) > 100
    nobody = service.client.get(f"/api/export/{table}.{ending}", params={"agent": "nobody"})
    assert nobody.status_code == 200
    assert len(nobody.content) < len(answer.content)


def test_exported_trips_can_be_read_again(service: Running, tmp_path: Path):
    from astray import read

    (tmp_path / "trips.geojson").write_bytes(service.client.get("/api/export/trips.geojson").content)
    assert len(read(tmp_path / "trips.geojson")) == len(service.get("/api/agents/p00/trips")["trips"])


def test_changes_are_pushed_and_can_be_resumed(service: Running, life: list[dict]):
    events: list[str] = []
    ready, seen = threading.Event(), threading.Event()

    def listen() -> None:
        with httpx.stream("GET", f"{service.url}/api/events", timeout=60) as lines:
            for line in lines.iter_lines():
                ready.set()
                events.append(line)
                if line.startswith("data:"):
                    seen.set()
                    return

    thread = threading.Thread(target=listen)
    thread.start()
    assert ready.wait(60)
    service.post([dict(life[-1], time=life[-1]["time"] + 15.0)])
    assert seen.wait(60)
    thread.join()
    number = next(line for line in events if line.startswith("id:")).split()[1]
    data = json.loads(next(line for line in events if line.startswith("data:"))[5:])
    assert data["agent"] == "p00"
    with httpx.stream("GET", f"{service.url}/api/events", headers={"Last-Event-ID": str(int(number) - 1)}) as lines:
        assert any(line == f"id: {number}" for line in lines.iter_lines())  # what was missed comes again
    with httpx.stream("GET", f"{service.url}/api/events", headers={"Last-Event-ID": "1"}) as lines:
        assert any(line == "event: reset" for line in lines.iter_lines())  # too long ago


def test_the_page_and_its_files_are_served(service: Running):
    index = service.client.get("/review")
    assert index.status_code == 200
    assert "text/html" in index.headers["content-type"]
    assert "script-src 'self'" in index.headers["content-security-policy"]
    name = next(part for part in index.text.split('"') if part.startswith("/static/"))
    file = service.client.get(name)
    assert file.status_code == 200
    assert "immutable" in file.headers["cache-control"]
    assert service.client.get("/static/../app.py").status_code == 404
    assert service.client.get("/static/no-such-file.js").status_code == 404


def test_the_openapi_document_describes_every_operation(service: Running):
    paths = service.get("/openapi.json")["paths"]
    assert {"/api/fixes", "/api/agents", "/api/review/{item}/verdict", "/pub", "/overland", "/healthz"} <= set(paths)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/nothing", 404),
        ("GET", "/api/agents?limit=x", 422),
        ("GET", "/api/agents?limit=0", 422),
        ("GET", "/api/agents?limit=99999999999999999999", 422),
        ("GET", "/api/trips/p00", 422),
        ("GET", "/api/trips/p00%2F%00", 404),
        ("GET", "/api/trips/a%2Fb%2Fc", 422),
        ("GET", "/api/agents/nobody/trips", 200),
        ("GET", "/api/export/trips.exe", 404),
        ("GET", "/api/tiles", 404),
        ("DELETE", "/api/agents/nobody", 404),
        ("POST", "/api/agents", 405),
        ("PUT", "/api/settings", 422),
        ("POST", "/api/agents/p00/pause", 422),
        ("GET", "/api/agents?q=%ff%fe", 200),
    ],
)
def test_requests_that_cannot_be_served_are_refused_in_json(service: Running, method: str, path: str, status: int):
    answer = service.client.request(method, path)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert answer.json()["error"]["reason"]


def test_no_coordinates_and_no_names_are_in_the_log(service: Running):
    service.client.post("/api/fixes", json=[{"agent": "p00", "time": 1, "lat": 95.123, "lon": 7.77777}])
    assert "95.123" not in service.log
    assert "7.77777" not in service.log
    assert "p00" not in service.log


def test_an_agents_alerts_can_be_paused(service: Running):
    answer = service.client.post("/api/agents/p00/pause", json={"until": 2e9})
    assert answer.json() == {"agent": "p00", "paused_until": 2e9}
    assert service.get("/api/agents")["agents"][0]["paused_until"] == 2e9
    service.client.post("/api/agents/p00/pause", json={"until": None})


# -------------------------------------------------------------------- starting and stopping


def test_without_its_packages_serve_says_what_to_install(tmp_path: Path):
    code = """
import sys
for name in ("msgspec", "starlette", "uvicorn", "httptools", "paho", "psycopg"):
    sys.modules[name] = None
from astray.cli import main
sys.exit(main(["serve", sys.argv[1]]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x")], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 1
    assert "pip install 'astray[serve]'" in ended.stderr
    assert not (tmp_path / "x").exists()


def test_the_service_stops_at_once_while_a_page_listens(tmp_path: Path):
    with serving(tmp_path / "data") as running, httpx.stream("GET", f"{running.url}/api/events", timeout=60) as lines:
        events = lines.iter_lines()
        assert next(events) == ": astray"
        assert running.stop() == 0
        assert all(not line or line.startswith(":") for line in events)  # it has ended, and was not cut off


def test_an_empty_service_starts_learns_stops_and_resumes(tmp_path: Path, life: list[dict]):
    with serving(tmp_path / "data") as running:
        running.post(life[:150])
        (before,) = running.get("/api/agents")["agents"]
        assert before["state"] in ("learning", "moving", "silent")
        assert running.stop() == 0
        running.start()
        (after,) = running.get("/api/agents")["agents"]
        assert after == before
        assert running.post(life[:150])["duplicates"] == 150
        erased = running.client.delete("/api/agents/p00").json()
        assert erased["erased"] > 150
        assert running.get("/api/agents")["total"] == 0
        assert running.stop() == 0
    assert b"p00" not in (tmp_path / "data" / "astray.db").read_bytes()
    assert sqlite3.connect(tmp_path / "data" / "astray.db").execute("SELECT what FROM audit").fetchall() == [
        ("erased",)
    ]


def test_a_taken_port_and_an_unprotected_address_are_refused(tmp_path: Path, service: Running):
    def refused(*flags: str) -> str:
        command = [sys.executable, "-m", "astray.cli", "serve", str(tmp_path / "data"), *flags]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 1, ended.stderr
        return ended.stderr

    assert "cannot listen" in refused("--port", str(service.port))
    assert "--behind-proxy" in refused("--host", "0.0.0.0", "--port", "0")
    assert (
        "another astray serve"
        in subprocess.run(
            [sys.executable, "-m", "astray.cli", "serve", str(service.folder), "--port", "0"],
            capture_output=True,
            text=True,
            timeout=120,
        ).stderr
    )
