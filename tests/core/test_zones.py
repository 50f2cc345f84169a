"""Local time: in tables, words, pictures, pages and events, with the zone named."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import astray
from astray import Detector, load
from astray.cli import main
from astray.core import zones
from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.core.writers import write_table
from astray.core.zones import Zone, by_place, home_of, standard_offset, zones_of
from astray.plots import explanation_page
from astray.readers import Report, read
from astray.runtime.json_fixes import Message, parse
from astray.runtime.watcher import watch
from astray.simulate import city
from fitted import featurizer_of

SPRING = datetime(2024, 3, 31, 1, tzinfo=UTC).timestamp()  # clocks go from 1 to 2 in Lisbon, from 2 to 3 in Rome


@pytest.fixture
def no_finder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides timezonefinder, as if it were not installed."""
    monkeypatch.setattr(zones, "_finder", lambda: None)


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    return city(people=2, days=8, seed=0).trips


@pytest.fixture(scope="module")
def in_lisbon(trips: Trajectories) -> Detector:
    return Detector(time_zone="Europe/Lisbon").fit(trips.agent("p00"))


def at(lat: float, lon: float, time: float = 0.0, **columns: float) -> Trajectories:
    more = {name: [value] * 2 for name, value in columns.items()}
    return Trajectories.from_fixes(time=[time, time + 60], lat=[lat, lat], lon=[lon, lon], agent="ana", columns=more)


# -------------------------------------------------------------------- zones


def test_offsets_follow_daylight_saving_time() -> None:
    lisbon = Zone.of("Europe/Lisbon")
    assert lisbon.iso(SPRING - 1) == "2024-03-31T00:59:59+00:00"
    assert lisbon.iso(SPRING) == "2024-03-31T02:00:00+01:00"
    assert lisbon.offsets(np.array([SPRING - 1, SPRING])).tolist() == [0.0, 3600.0]
    assert Zone.of("UTC+5:30").iso(SPRING) == "2024-03-31T06:30:00+05:30"


def test_hours_of_the_day_are_counted_by_standard_time() -> None:
    for time in (SPRING - 1, SPRING + 90 * 86_400):
        assert standard_offset("Europe/Rome", time) == 3600.0
        assert standard_offset("America/Santiago", time) == -4 * 3600.0
        assert standard_offset("Asia/Kolkata", time) == 19_800.0


@pytest.mark.parametrize("name", ["Mars/Base", "", "utc+", "+99999"])
def test_an_unknown_zone_is_rejected(name: str) -> None:
    with pytest.raises(DataError, match="no time zone is named"):
        Zone.of(name)


def test_the_zone_of_a_place_has_its_name() -> None:
    pytest.importorskip("timezonefinder")
    assert str(by_place(41.15, -8.61)) == "Europe/Lisbon"
    assert str(by_place(39.9, 116.4 - 360)) == "Asia/Shanghai"
    assert str(by_place(0.0, -150.0)) == "UTC-10, by longitude"  # at sea
    assert str(home_of(at(41.15, -8.61))) == "Europe/Lisbon"


@pytest.mark.usefixtures("no_finder")
def test_without_timezonefinder_the_zone_says_by_longitude() -> None:
    assert str(by_place(39.9, 116.4)) == "UTC+8, by longitude"
    assert str(zones_of(at(45.0, 7.0))[0]) == "UTC+0, by longitude"


def test_a_given_zone_wins_over_the_file_and_the_file_over_the_place() -> None:
    trip = at(41.15, -8.61, SPRING, utc_offset=32_400.0)
    assert str(zones_of(trip, Zone("Asia/Kolkata"))[0]) == "Asia/Kolkata"
    assert str(zones_of(trip)[0]) == "UTC+9, as in the file"
    home = {"ana": Zone("Asia/Tokyo")}
    assert str(zones_of(trip, homes=home)[0]) == "Asia/Tokyo", "its clocks show what the file says"
    assert str(zones_of(at(41.15, -8.61), homes=home)[0]) == "Asia/Tokyo", "of the agent, not of the place"


@pytest.mark.usefixtures("no_finder")
def test_a_home_is_found_by_the_offsets_of_its_file() -> None:
    assert str(home_of(at(41.15, -8.61, utc_offset=3600.0))) == "UTC+1, as in the file"


# -------------------------------------------------------------------- files


def test_the_offsets_of_a_file_are_kept_fix_by_fix(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    rows = ["ana,2024-03-30T23:00:00+00:00,41,-8", "ana,2024-04-01T08:00:00+01:00,41.1,-8"]
    file.write_text("agent,time,lat,lon\n" + "\n".join(rows))
    trips = read(file, report=Report(), trips="cut")
    assert trips.columns["utc_offset"].tolist() == [0.0, 3600.0]
    file.write_text("agent,time,lat,lon\n" + "\n".join(row.replace("+01:00", "Z") for row in rows))
    assert "utc_offset" not in read(file, report=Report()).columns, "UTC says nothing of the place"


def test_times_read_in_a_zone_keep_its_offsets(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("agent,time,lat,lon\nana,2024-07-01 08:00:00,41,-8\nana,2024-07-01 08:01:00,41.1,-8\n")
    trips = read(file, report=Report(), time_zone="Asia/Tokyo")
    assert trips.columns["utc_offset"].tolist() == [32_400.0] * 2
    frame = pl.DataFrame({"time": [datetime(2024, 7, 1)] * 2, "lat": [41.0, 41.1], "lon": [-8.0, -8.0]})
    frame.with_columns(pl.col("time").dt.replace_time_zone("Asia/Tokyo")).write_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", report=Report()).columns["utc_offset"].tolist() == [32_400.0] * 2


def test_a_phone_timeline_keeps_the_offset_of_its_clock(tmp_path: Path) -> None:
    path = [{"point": f"48.{85 + i}°, 2.29°", "time": f"2024-06-01T0{6 + i}:00:00.000Z"} for i in range(2)]
    segment = {"startTime": "2024-06-01T08:00:00.000+02:00", "endTime": "2024-06-01T10:00:00.000+02:00"}
    (tmp_path / "Timeline.json").write_text(json.dumps({"semanticSegments": [segment | {"timelinePath": path}]}))
    trips = read(tmp_path / "Timeline.json", report=Report(), trips="as-given")
    assert trips.columns["utc_offset"].tolist() == [7200.0] * 2


# -------------------------------------------------------------------- tables


def test_tables_hold_the_moment_and_text_the_local_time_with_its_offset(
    trips: Trajectories, in_lisbon: Detector, tmp_path: Path
) -> None:
    summer = Trajectories(
        {**trips.columns, "time": trips.columns["time"] + 180 * 86_400.0},
        trips.offsets,
        trips.agent_ids,
        np.char.add(trips.trajectory_ids, "s"),
    )
    both = Trajectories.concat([trips[:1], summer[:1]])
    table = in_lisbon.score(both)
    assert table["zone"].to_list() == ["Europe/Lisbon"] * 2
    starts = both.columns["time"][both.offsets[:-1]]
    assert [moment.timestamp() for moment in table["start"]] == pytest.approx(starts.tolist())
    for name in ("scores.csv", "scores.jsonl"):
        write_table(table, tmp_path / name)
    texts = [json.loads(line)["start"] for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [text[-6:] for text in texts] == ["+00:00", "+01:00"]
    assert [datetime.fromisoformat(text).timestamp() for text in texts] == pytest.approx(starts.tolist())
    assert pl.read_csv(tmp_path / "scores.csv", try_parse_dates=False)["start"].to_list() == texts
    write_table(in_lisbon.score_fixes(both), tmp_path / "fixes.csv")
    assert "+01:00" in pl.read_csv(tmp_path / "fixes.csv", try_parse_dates=False)["time"][-1]


def test_the_hour_of_the_day_is_that_of_the_zone(trips: Trajectories) -> None:
    fitted = Detector(time_zone="Asia/Tokyo").fit(trips.agent("p00"))
    assert featurizer_of(fitted).frame.utc_offset == 32_400.0
    fleet = Detector(time_zone="Asia/Tokyo", iterations=1).fit(trips)
    assert {fleet.agent_model(agent).featurizer.frame.utc_offset for agent in fleet.agents} == {32_400.0}


# -------------------------------------------------------------------- models


def test_a_model_remembers_the_zone(trips: Trajectories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timezonefinder")
    Detector().fit(trips.agent("p00")).save(tmp_path / "one.astray")
    Detector(iterations=1).fit(trips).save(tmp_path / "fleet.astray")
    Detector(time_zone="Asia/Tokyo").fit(trips.agent("p00")).save(tmp_path / "given.astray")
    monkeypatch.setattr(zones, "_finder", lambda: None)
    for name, zone in {"one": "Europe/Rome", "fleet": "Europe/Rome", "given": "Asia/Tokyo"}.items():
        assert set(astray.load(tmp_path / f"{name}.astray").score(trips.agent("p00"))["zone"]) == {zone}


# -------------------------------------------------------------------- words, pages, events


def test_words_and_pages_say_local_time_and_name_the_zone(trips: Trajectories) -> None:
    mine = trips.agent("p00")
    moved = mine.columns["time"] - mine.columns["time"][0] + SPRING - 300  # clocks change on the first trip
    mine = mine.with_columns({"time": moved})
    explanation = Detector(time_zone="Europe/Lisbon").fit(mine).explain(mine, 0)
    assert str(explanation).splitlines()[0].endswith("; began Sun 31 Mar 2024, 00:55 (Europe/Lisbon)")
    page = explanation_page(explanation)
    assert ", Sun 31 Mar 2024, 00:55 (Europe/Lisbon)</title>" in page
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])["trips"][0]
    changed = int(np.searchsorted(explanation.time, SPRING))
    assert data["zone"] == "Europe/Lisbon"
    assert data["ahead"] == [[0, 0], [changed, 3600]]


def test_events_say_local_time_and_name_the_zone(trips: Trajectories, in_lisbon: Detector) -> None:
    last = trips.agent("p00")[-1:]
    later = last.columns["time"] + 180 * 86_400.0
    fixes = zip(later.tolist(), last.columns["lat"].tolist(), last.columns["lon"].tolist(), strict=True)
    lines = [json.dumps({"agent": "p00", "time": t, "lat": lat, "lon": lon}) for t, lat, lon in fixes]
    out = io.StringIO()
    watch(in_lisbon, lines, out, scores=0)
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {event["zone"] for event in events} == {"Europe/Lisbon"}
    ended = events[-1]
    assert ended["start"].endswith("+01:00")
    assert datetime.fromisoformat(ended["start"]).timestamp() == pytest.approx(later[0], abs=1e-3)


def test_live_times_without_a_zone_are_in_the_zone_of_the_model() -> None:
    line = '{"agent": "a", "time": "2024-07-01 08:00:00", "lat": 41, "lon": -8}'
    in_utc, in_tokyo = parse(line), parse(line, "Asia/Tokyo")
    assert isinstance(in_utc, Message)
    assert isinstance(in_tokyo, Message)
    assert in_utc.time - in_tokyo.time == 32_400.0
    zoned = line.replace("08:00:00", "08:00:00+00:00")
    assert parse(zoned, "Asia/Tokyo") == parse(zoned)


# -------------------------------------------------------------------- the command line


def test_the_command_line_from_end_to_end(
    trips: Trajectories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = trips.agent("p00")
    naive = pl.col("time").cast(pl.Int64).cast(pl.Datetime("ms")).dt.strftime("%Y-%m-%d %H:%M:%S")
    frame = mine.to_frame().with_columns(pl.col("time") * 1000).with_columns(naive)
    frame.write_csv("past.csv")
    assert main(["fit", "past.csv", "-o", "me.astray", "--timezone", "Asia/Tokyo"]) == 0
    fitted = load("me.astray")
    assert fitted.time_zone == "Asia/Tokyo"
    first = float(mine.columns["time"][0])
    capsys.readouterr()
    assert main(["score", "me.astray", "past.csv", "-o", "scores.csv"]) == 0
    assert "read as Asia/Tokyo, the model's; pass theirs if not, such as --time-zone UTC" in capsys.readouterr().err
    scores = pl.read_csv("scores.csv", try_parse_dates=False)
    assert datetime.fromisoformat(scores["start"][0]).timestamp() == pytest.approx(first - 32_400.0, abs=1.0)
    assert scores["start"][0].endswith("+09:00")
    assert main(["score", "me.astray", "past.csv", "-o", "scores.csv", "--time-zone", "Europe/Lisbon"]) == 0
    assert set(pl.read_csv("scores.csv")["zone"]) == {"Europe/Lisbon"}
    assert main(["check", "past.csv", "--time-zone", "Asia/Tokyo"]) == 0
    assert "zone      Asia/Tokyo" in capsys.readouterr().out
    assert main(["info", "me.astray"]) == 0
    assert "Asia/Tokyo" in capsys.readouterr().out
    assert main(["check", "past.csv", "--time-zone", "Mars/Base"]) == 2
    assert "give the name of a time zone" in capsys.readouterr().err
