"""JSON lines, OwnTracks, and trackers' tables under their own names; files in data/ follow the published schemas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from astray.cli import main
from astray.core.errors import DataError
from astray.readers import Report, read, recognise
from astray.runtime.json_fixes import Message, Refused, parse

DATA = Path(__file__).parents[1] / "data"


def test_owntracks_topics_name_the_agents_and_only_locations_count() -> None:
    report = Report()
    trips = read(DATA / "owntracks.jsonl", report=report)
    assert (trips.agent_ids.tolist(), trips.lengths.tolist()) == (["jane/phone", "MX"], [2, 1])
    assert trips.columns["time"].tolist() == [1497476456.0, 1497476486.0, 1497476500.0]
    assert trips.columns["lat"].tolist() == [48.85833, 48.85901, 48.86]
    assert {s.row: s.reason for s in report.skipped} == {
        2: "a message of OwnTracks that is not a location (transition)",
        4: "a message of OwnTracks that is not a location (lwt)",
    }


def test_owntracks_messages_give_the_same_fixes_live_and_in_a_file() -> None:
    first, second, *_ = (DATA / "owntracks.jsonl").read_text().splitlines()
    message = parse(first)
    assert isinstance(message, Message)
    assert message[:5] == ("fix", "jane/phone", 1497476456.0, 48.85833, 2.29513)
    assert parse(second) == Refused("a message of OwnTracks that is not a location (transition)")


LOCATION = '{"_type": "location", "tid": "ja", "tst": 1497476456, "lat": 48.85833, "lon": 2.29513}'


@pytest.mark.parametrize(
    ("name", "content", "agent"),
    [
        ("rec/jane/phone/2017-06.rec", f"2017-06-14T21:40:56Z\t*                 \t{LOCATION}\n", "jane/phone"),
        ("rec/jane/tablet/2023-02.rec", f"2023-02-20T18:46:22Z  *                   {LOCATION}\n", "jane/tablet"),
        ("mosquitto.txt", f"owntracks/jane/phone {LOCATION}\n", "jane/phone"),
        ("phone.json", '{"count": 1, "data": [' + LOCATION + "]}", "ja"),
    ],
)
def test_the_topic_or_the_path_of_the_store_names_the_agent_of_owntracks_messages(
    name: str, content: str, agent: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    for asked in (file, tmp_path / "rec") if name.startswith("rec") else (file,):
        assert recognise(asked) == "jsonlines"
        trips = read(asked, report=Report())
        assert (trips.agents, trips.columns["lat"].tolist()) == ([agent], [48.85833])
    file.write_text(content.replace("48.85833", '"north"'))
    with pytest.raises(DataError, match=r"(line|entry) 1: latitude is missing"):
        read(file, report=Report())


def test_lines_may_hold_geojson_and_batches_of_overland(tmp_path: Path) -> None:
    batch = json.loads((DATA / "overland.json").read_text())
    whole = read(DATA / "overland.json", report=Report())
    for lines in ([batch], [batch, batch], batch["locations"]):
        file = tmp_path / "log.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        trips = read(file, report=Report(), trips="as-given")
        assert trips.agents == [whole.agents[0], tmp_path.name]
        assert set(trips.columns["time"].tolist()) == set(whole.columns["time"].tolist())


def test_an_encrypted_owntracks_message_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    file.write_text('{"_type": "encrypted", "data": "WmVuZGVudCBpcyBv"}\n')
    with pytest.raises(DataError, match=r"e\.jsonl, line 1: an encrypted message of OwnTracks; decrypt it first"):
        read(file)


def test_json_lines_give_the_same_fixes_live_and_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "feed.txt"
    lines = [
        {"uid": 17, "tst": 1497476456000 + 1000 * i, "lat": 45, "lng": 7 + i / 1000, "trip": "a"} for i in range(3)
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    assert recognise(file) == "jsonlines"
    trips = read(file)
    assert (trips.agent_ids.tolist(), trips.trajectory_ids.tolist()) == (["17"], ["a"])
    assert trips.columns["time"].tolist() == [1497476456.0 + i for i in range(3)]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{", "not JSON"),
        ("[1, 2]", "not a JSON object"),
        ('{"agent": ["a"], "time": 2, "lat": 45, "lon": 7}', "the agent is neither text nor a number"),
        ('{"agent": "a", "time": 2, "lat": 95, "lon": 7}', "latitude outside"),
        ('{"agent": "a", "time": 2, "lat": 45}', "longitude is missing"),
        ('{"agent": "a", "time": "soon", "lat": 45, "lon": 7}', "time is missing or not understood"),
        ('{"agent": "a", "time": 2, "lat": 0, "lon": 0}', "a receiver without a fix"),
    ],
)
def test_an_error_in_a_json_line_names_the_line_or_the_line_is_skipped(tmp_path: Path, bad: str, reason: str) -> None:
    good = [json.dumps({"agent": "a", "time": i, "lat": 45, "lon": 7}) for i in range(3)]
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join([good[0], bad, *good[1:]]))
    with pytest.raises(DataError, match=rf"a\.jsonl, line 2: .*{reason}"):
        read(file)
    report = Report()
    assert read(file, skip_bad=True, report=report).n_rows == 3
    assert (report.skipped[0].row, report.skipped[0].unit) == (2, "line")


def test_what_simulate_writes_as_json_lines_is_read_back(tmp_path: Path) -> None:
    for name in ("city.jsonl", "city.parquet"):
        assert main(["simulate", "-o", str(tmp_path / name), "--people", "2", "--days", "3", "--quiet"]) == 0
    lines, table = read(tmp_path / "city.jsonl"), read(tmp_path / "city.parquet")
    assert lines.trajectory_ids.tolist() == table.trajectory_ids.tolist()
    assert lines.agent_ids.tolist() == table.agent_ids.tolist()
    assert abs(lines.columns["time"] - table.columns["time"]).max() < 1e-3


@pytest.mark.parametrize(
    "header",
    [
        "# Timestamp,Type of mobile,MMSI,Latitude,Longitude",  # of the Danish Maritime Authority
        "date_time_utc,source,mmsi,lat,lon",  # of Statsat
    ],
)
def test_column_names_of_marinecadastre_are_known(header: str, tmp_path: Path) -> None:
    file = tmp_path / "ais.csv"
    file.write_text(f"{header}\n31/12/2015 23:59:59,Class A,219000001,57.8794,17.9125\n")
    trips = read(file, report=Report())
    assert (trips.agents, trips.columns["time"].tolist()) == (["219000001"], [1451606399.0])


@pytest.mark.parametrize(
    ("name", "agents"),
    [
        ("movebank.csv", ["Redrunner", "Borni"]),
        ("marinecadastre.csv", ["538009563", "367481660"]),
        ("marinecadastre-2025.csv", ["538009563", "367481660"]),  # new names, and longitude before latitude
    ],
)
def test_column_names_of_trackers_are_known(name: str, agents: list[str]) -> None:
    report = Report()
    trips = read(DATA / name, report=report)
    assert (trips.agents, trips.lengths.tolist()) == (agents, [2, 1])
    outliers = {"marked as not visible, which is how Movebank marks outliers": 1}
    assert report.counts == (outliers if name == "movebank.csv" else {})


def test_an_object_may_hold_the_list_of_fixes(tmp_path: Path) -> None:
    fixes = [{"lat": 52.52 + i / 1000, "lon": 13.405, "time": f"2024-06-01T10:0{i}:00Z"} for i in range(3)]
    (tmp_path / "locations.json").write_text(json.dumps({"locations": fixes}, indent=2))
    assert read(tmp_path / "locations.json").columns["lat"].tolist() == [fix["lat"] for fix in fixes]


def test_without_a_time_the_date_counts_in_files_and_live(tmp_path: Path) -> None:
    fix = {"agent": "ana", "lat": 52.5, "lon": 13.4, "date": "2024-06-01T10:00:00Z"}
    (tmp_path / "a.jsonl").write_text(json.dumps(fix))
    live = parse(json.dumps(fix))
    assert isinstance(live, Message)
    assert read(tmp_path / "a.jsonl").columns["time"].tolist() == [live.time] == [1717236000.0]
