"""Raw fixes become the same trips in a file and live."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astray import Detector, Trajectories
from astray.cli import main
from astray.core.errors import DataError
from astray.core.snapshot import Snapshot
from astray.core.trips import Cutter, Fix, TripRules, cut
from astray.features.featurizer import INTERVALS
from astray.readers import ReadWarning, Report, iter_read, read
from astray.runtime.trip import MAX_ROWS
from astray.simulate import city

DEGREE = 111_195.0  # metres of latitude


@pytest.fixture(scope="module")
def people() -> Trajectories:
    return city(people=2, days=12, seed=3).trips


@pytest.fixture(scope="module")
def detector(people: Trajectories) -> Detector:
    return Detector().fit(people.agent("p00"))


def life(fixes: list[Fix]) -> Trajectories:
    time, lat, lon = (list(values) for values in zip(*fixes, strict=True))
    return Trajectories.from_fixes(time=time, lat=lat, lon=lon, agent="p00")


def fixes_of(trips: Trajectories) -> list[Fix]:
    return list(zip(*(trips.columns[name].tolist() for name in ("time", "lat", "lon")), strict=True))


def live(detector: Detector, fixes: list[Fix]) -> list[tuple[str, float, float, int, int]]:
    """Name, begin, end, fixes and faults of each trip, fed one by one; the session is saved and restored on the way."""
    session, ended = detector.open("p00"), []
    for i, fix in enumerate(fixes):
        ended.append(session.update(fix).ended)
        if i % 50 == 49:
            snapshot, session = Snapshot(session.snapshot().numbers), detector.open("p00")
            session.restore(snapshot)
    ended.append(session.close())
    return [(t.trip, t.start, t.end, t.fixes, t.faults) for t in ended if t is not None]


def in_a_file(fixes: list[Fix]) -> list[tuple[str, float, int]]:
    trips = cut(life(fixes))
    starts = trips.columns["time"][trips.offsets[:-1]].tolist()
    return list(zip(trips.trajectory_ids.tolist(), starts, trips.lengths.tolist(), strict=True))


def assert_same(detector: Detector, fixes: list[Fix]) -> int:
    as_live = live(detector, fixes)
    assert [(name, start, n) for name, start, _, n, _ in as_live] == in_a_file(fixes)
    return len(as_live)


def test_a_simulated_person_has_the_same_trips_live_and_in_a_file(detector: Detector, people: Trajectories) -> None:
    whole = Trajectories.from_fixes(**{n: people.agent("p00").columns[n] for n in ("time", "lat", "lon")})
    assert assert_same(detector, fixes_of(whole)) > 20


@st.composite
def walks(draw: st.DrawFn) -> list[Fix]:
    """Legs of walking, staying, silence, jumps and repeated times; radius and gap are often just met or just missed."""
    time, north, east = 1.7e9, 0.0, 0.0
    fixes = []
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["walk", "stay", "gap", "jump", "repeat"]))
        if kind == "gap":
            time += draw(st.sampled_from([1199.0, 1200.0, 1201.0, 90_000.0]))
        elif kind == "jump":
            north += draw(st.sampled_from([-50_000.0, 50_000.0]))
        for _ in range(draw(st.integers(1, 12))):
            time += 0.0 if kind == "repeat" else draw(st.sampled_from([1.0, 30.0, 300.0]))
            if kind == "walk":
                north += draw(st.sampled_from([40.0, 149.9, 150.1, 400.0]))
            elif kind == "stay":
                east += draw(st.sampled_from([-60.0, 0.0, 60.0]))
            fixes.append((time, 45.0 + north / DEGREE, 7.0 + east / DEGREE))
    return fixes


@given(walks())
@settings(max_examples=60, deadline=None)
def test_any_walk_has_the_same_trips_live_and_in_a_file(detector: Detector, fixes: list[Fix]) -> None:
    assert_same(detector, fixes)


def walk(start: float, minutes: int, lat: float) -> list[Fix]:
    return [(start + 60.0 * i, lat + 0.005 * i, 7.0) for i in range(minutes)]


def test_a_stay_ends_a_trip_and_the_next_begins_with_the_last_fix_at_rest() -> None:
    there = walk(0, 10, 45.0)
    at_work = [(600.0 + 60.0 * i, 45.045, 7.0) for i in range(60)]
    back = [(4200.0 + 60.0 * i, 45.05 + 0.005 * i, 7.0) for i in range(10)]
    trips = cut(life([*there, *at_work, *back]))
    assert trips.trajectory_ids.tolist() == ["1970-01-01T00:00:00Z", "1970-01-01T01:09:00Z"]
    first, second = (trips[i].columns["time"].tolist() for i in range(2))
    assert (first[0], first[-1]) == (0.0, 540.0 + 1200.0)
    assert (second[0], second[1], second[-1]) == (4140.0, 4200.0, 4740.0)


@pytest.mark.parametrize("rules", [TripRules(), TripRules(stay=300.0, longest=3600.0), TripRules(stay=None)])
def test_arrays_and_the_cutter_find_the_same_trips(rules: TripRules, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lives of rides, walks, stays, gaps around the limit, jumps and repeated times."""
    rng = np.random.default_rng(7)
    metres = {"ride": 10.0, "walk": 0.3, "stay": 0.0, "gap": 10.0, "jump": 10.0}  # a second
    lives = []
    for _ in range(60):
        fixes = [(0.0, 45.0, 7.0)]
        for kind in rng.choice(list(metres), 6).tolist():
            for _ in range(int(rng.integers(1, 80))):
                time, lat, lon = fixes[-1]
                dt = float(rng.choice([0, 1, 5, 30, 60]))
                fixes.append((time + dt, lat + dt * metres[kind] * rng.normal(1.0, 0.3) / 111e3, lon))
            time, lat, lon = fixes[-1]
            if kind in ("gap", "jump"):
                pause = float(rng.choice([1199, 1200, 1201])) if kind == "gap" else 10.0
                fixes.append((time + pause, lat + (0.5 if kind == "jump" else 0.0), lon))
        lives.append(life(fixes))
    by_arrays = [cut(one, rules) for one in lives]
    monkeypatch.setattr("astray.core.trips.FEWEST_ROWS", 10**9)
    one_by_one = [cut(one, rules) for one in lives]
    assert [trips.ids for trips in by_arrays] == [trips.ids for trips in one_by_one]
    assert [fixes_of(trips) for trips in by_arrays] == [fixes_of(trips) for trips in one_by_one]


def test_a_trip_never_lasts_longer_than_the_longest_time() -> None:
    trips = cut(life(walk(0, 200, 0.0)), TripRules(longest=3600.0))
    assert [t.columns["time"][0] for t in trips] == [0.0, 3600.0, 7200.0, 10_800.0]


def test_a_live_trip_can_be_as_long_as_a_trip_in_a_file() -> None:
    assert TripRules().longest / INTERVALS[0] + 1 < MAX_ROWS


def test_cutting_keeps_agents_context_and_columns_apart() -> None:
    both = Trajectories.from_fixes(
        time=[0, 60, 0, 9000], lat=[45, 45.01, 45, 45], lon=[7] * 4, agent=["a", "a", "b", "b"],
        columns={"speed": [1, 2, 3, 4]}, context={"car": ["x", "x", "y", "y"]},
    )  # fmt: skip
    trips = cut(both)
    assert (trips.agent_ids.tolist(), trips.lengths.tolist()) == (["a", "b", "b"], [2, 1, 1])
    assert (trips.context["car"].tolist(), trips.columns["speed"].tolist()) == (["x", "y", "y"], [1, 2, 3, 4])


def test_a_restored_cutter_continues_as_if_never_stopped() -> None:
    fixes = [*walk(0, 10, 45.0), *((600.0 + 60.0 * i, 45.045, 7.0) for i in range(40)), *walk(9000, 10, 45.1)]
    whole, restarted = Cutter(TripRules()), Cutter(TripRules())
    for fix in fixes:
        snapshot = Snapshot()
        restarted.save(snapshot)
        restarted = Cutter(TripRules())
        restarted.restore(snapshot)
        assert restarted.update(*fix) == whole.update(*fix)


def test_the_next_fix_after_a_closed_trip_begins_another(detector: Detector) -> None:
    session = detector.open("p00")
    fixes = walk(0, 10, 45.0)
    for fix in fixes[:5]:
        session.update(fix)
    assert session.close() is not None
    score = session.update(fixes[5])
    assert score.trip is not None
    assert (score.trip.start, score.trip.fixes) == (300.0, 1)


def test_named_trips_end_by_their_names_not_by_gaps(detector: Detector) -> None:
    fixes = [*walk(0, 10, 45.0), *walk(9000, 10, 45.2)]
    session = detector.open("p00")
    assert not any(session.update(fix, "t1").ended for fix in fixes)
    ended = session.update((20_000.0, 45.0, 7.0), "t2").ended
    assert ended is not None
    assert (ended.trip, ended.ended, ended.fixes, ended.start, ended.end) == ("t1", "next", 20, 0.0, 9540.0)
    trip = Trajectories.from_fixes(**dict(zip(("time", "lat", "lon"), np.array(fixes).T, strict=True)), agent="p00")
    table = detector.score(trip)
    assert ended.normality == pytest.approx(table["normality"][0], abs=1e-3)
    assert ended.score == pytest.approx(table["score"][0], abs=1e-3)


# ---------------------------------------------------------------- files


ROWS = [f"ana,{t:.0f},{lat},{lon}\n" for t, lat, lon in walk(0, 10, 45) + walk(9000, 9, 45)]
RAW = "".join(["agent,time,lat,lon\n", *ROWS])


def written(folder: Path, text: str) -> Path:
    file = folder / "fixes.csv"
    file.write_text(text)
    return file


def test_a_table_without_trips_is_cut_and_the_number_of_trips_reported(tmp_path: Path) -> None:
    file = written(tmp_path, RAW)
    report = Report()
    trips = read(file, report=report)
    assert (trips.lengths.tolist(), report.cut) == ([10, 9], 2)
    assert trips.trajectory_ids.tolist() == ["1970-01-01T00:00:00Z", "1970-01-01T02:30:00Z"]
    assert "cut at gaps and stays into trips: 2; pass trips='as-given'" in str(report)
    with pytest.warns(ReadWarning, match="into trips: 2"):
        read(file)


def test_trips_as_given_and_trips_cut_override_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, RAW)
    assert read(file, trips="as-given", report=Report()).trajectory_ids.tolist() == ["ana"]
    named = written(tmp_path, RAW.replace("lat,lon", "lat,lon,trip").replace(",7.0\n", ",7.0,x\n"))
    assert read(named, report=Report()).trajectory_ids.tolist() == ["x"]
    assert len(read(named, trips="cut", report=Report())) == 2
    with pytest.raises(DataError, match="trips='yes' is unknown; give as-given or cut"):
        read(named, trips="yes")


def test_a_table_without_trips_is_cut_while_it_is_streamed(tmp_path: Path) -> None:
    file = written(tmp_path, RAW + RAW.removeprefix("agent,time,lat,lon\n").replace("ana", "bob"))
    report = Report()
    batches = list(iter_read(file, 5, report=report))
    assert [(b.agents, b.lengths.tolist()) for b in batches] == [(["ana"], [10, 9]), (["bob"], [10, 9])]
    assert report.cut == 4


def test_geojson_points_without_a_trip_name_are_cut(tmp_path: Path) -> None:
    points = [
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [lon, lat]}, "properties": {"time": t}}
        for t, lat, lon in walk(0, 3, 45) + walk(9000, 2, 45)
    ]
    file = tmp_path / "fixes.geojson"
    file.write_text(json.dumps({"type": "FeatureCollection", "features": points}))
    assert read(file, report=Report()).lengths.tolist() == [3, 2]


def test_the_command_line_cuts_raw_fixes_and_reports_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], people: Trajectories
) -> None:
    mine = people.agent("p00")
    raw, named = tmp_path / "raw.parquet", tmp_path / "named.parquet"
    mine.to_frame().drop("trajectory").write_parquet(raw)
    mine.to_frame().write_parquet(named)
    model = str(tmp_path / "m.astray")
    assert main(["fit", str(raw), "-o", model]) == 0
    assert re.search(r"cut at gaps and stays into trips: \d\d; pass --trips as-given", capsys.readouterr().err)
    assert main(["fit", str(named), "-o", model]) == 0
    assert "cut at gaps" not in capsys.readouterr().err
    scores = tmp_path / "scores.csv"
    assert main(["score", model, str(raw), "--trips", "as-given", "-o", str(scores)]) == 0
    assert len(scores.read_text().splitlines()) == 2
    assert main(["score", model, str(named), "--trips", "cut", "-o", str(scores), "--quiet"]) == 0
    assert len(scores.read_text().splitlines()) > 20
    assert main(["score", model, str(raw), "--trips", "sometimes"]) == 2
    assert "give one of as-given, cut" in capsys.readouterr().err
