"""Real data for the protocols: what is dropped is said, and no leak gets past the guards."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from astray import Trajectories
from astray.core.errors import DataError
from astray_benchmark import guards
from astray_benchmark.people_data import AgentsTrips, Cleaned, GeoLife, clean, draw, halves
from astray_benchmark.porto_data import CITY, Porto, catalogue, gather
from astray_benchmark.porto_pairs import FOLDS, ROUTES, frequent, neighbours, unusual
from astray_benchmark.protocols import Case, Setting, Trial

HEADER = "Geolife trajectory\r\nWGS 84\r\nAltitude is in Feet\r\nReserved 3\r\n0,2,255,My Track,0,0,2,8421376\r\n0\r\n"
DAY, WEEK = 86_400, 604_800


def walk(rng: np.random.Generator, n: int, start: float, agent: str, name: str) -> Trajectories:
    step = rng.normal(scale=1e-4, size=(n, 2)).cumsum(axis=0).round(6)
    return Trajectories(
        {"time": start + 5.0 * np.arange(n), "lat": 40 + step[:, 0], "lon": 116 + step[:, 1]}, [0, n], [agent], [name]
    )


def part(trip: Trajectories, rows: slice, agent: str, name: str) -> Trajectories:
    columns = {key: values[rows] for key, values in trip.columns.items()}
    return Trajectories(columns, [0, len(columns["time"])], [agent], [name])


@pytest.fixture(scope="module")
def people() -> Trajectories:
    """Twelve people with 40 trips each, in random order."""
    rng = np.random.default_rng(0)
    made = [
        walk(rng, int(rng.integers(100, 130)), 1.2e9 + 90_000.0 * k + 600 * p, f"{p:03d}", f"t{k}")
        for p in range(12)
        for k in range(40)
    ]
    return Trajectories.concat([made[i] for i in rng.permutation(len(made))])


def of(trial: Trial, kind: str) -> list[str]:
    """The sources of the test trips of a kind."""
    return trial.source[trial.kind == kind].tolist()


def paths(trips: Trajectories) -> list[bytes]:
    """Fingerprints that do not depend on when a trip was made, or whose it is said to be."""
    lat, lon = trips.columns["lat"], trips.columns["lon"]
    return [lat[a:b].tobytes() + lon[a:b].tobytes() for a, b in pairwise(trips.offsets.tolist())]


# ---------------------------------------------------------------- guards


def test_a_leak_is_an_error() -> None:
    with pytest.raises(DataError, match="twice in train"):
        guards.no_trip_twice(train=[1, 1])
    with pytest.raises(DataError, match="2 trips are both in train and in test"):
        guards.no_trip_twice(train=[1, 2, 3], test=[3, 4, 2])
    with pytest.raises(DataError, match="'b' is both in anomalies and in population"):
        guards.nobody_in_both(subject=["a"], anomalies=["b"], population=["c", "b"])
    rng = np.random.default_rng(1)
    trip, other = walk(rng, 9, 0.0, "a", "1"), walk(rng, 9, 0.0, "b", "2")
    guards.no_path_twice(trip, other)
    with pytest.raises(DataError, match=r"test trip 1 .*is a copy of a training trip"):
        guards.no_path_twice(trip, Trajectories.concat([other, part(trip, slice(None), "c", "3")]))


def test_the_fingerprint_of_a_set_is_its_content_and_not_its_order(people: Trajectories) -> None:
    mixed = people[np.random.default_rng(0).permutation(len(people))]
    assert guards.fingerprint(people) == guards.fingerprint(mixed)
    lat = people.columns["lat"].copy()
    lat[77] += 1e-6
    assert guards.fingerprint(people.with_columns({"lat": lat})) != guards.fingerprint(people)


def test_copies_under_two_people_all_go_and_of_one_person_the_longest_stays() -> None:
    rng = np.random.default_rng(2)
    a, b, c, d = (walk(rng, 200, 1e6 * k, "a", f"a{k}") for k in range(4))
    trips = Trajectories.concat(
        [
            a,
            part(a, slice(None), "b", "the same"),
            b,
            part(b, slice(0, 120), "b", "the same but shorter"),
            c,
            part(c, slice(50, 160), "a", "a part of her own"),
            d,
            part(d, slice(0, 30), "c", "a few fixes"),
            walk(rng, 200, 1e6, "c", "another at the same time"),
        ]
    )
    # 30 of the shorter one's 30 fixes are the same, so that one is a copy too; it shares all that it has.
    assert guards.copies(trips).tolist() == [True, True, True, True, False, True, True, True, False]
    assert not guards.copies(trips, share=1.01).any()


def alongside(trip: Trajectories, metres: float, agent: str) -> Trajectories:
    """The same outing as another receiver wrote it: every other second fix, some metres to the north."""
    time, lat, lon = (trip.columns[name] for name in ("time", "lat", "lon"))
    between = time[:-1] + 2.0
    moved = {
        "time": between,
        "lat": np.interp(between, time, lat) + metres / 111_195.0,
        "lon": np.interp(between, time, lon),
    }
    return Trajectories(moved, [0, len(between)], [agent], ["beside"])


def test_two_receivers_on_one_outing_are_found_although_they_share_no_fix() -> None:
    rng = np.random.default_rng(0)
    first, later = walk(rng, 120, 1e9, "ana", "a"), walk(rng, 120, 1e9 + 1e6, "ana", "b")
    trips = Trajectories.concat(
        [first, later, alongside(first, 30.0, "bob"), alongside(first, 3000.0, "cem"), alongside(later, 30.0, "ana")]
    )
    # Near, at the same time, and of two people: only all three make an outing together.
    assert guards.together(trips).tolist() == [[0, 2]]
    assert not guards.copies(trips).any()


def test_trips_made_together_with_the_person_are_never_injected(people: Trajectories) -> None:
    person = people.agents[0]
    mine = people.agent(person)
    both = Trajectories.concat([people, *(alongside(mine[i], 20.0, f"with {i}") for i in range(len(mine)))])
    cleaned = clean(both, GeoLife.min_fixes)
    assert len(cleaned.together) == len(mine)
    beside = cleaned.companions([person])
    assert [a.startswith("with") for a in cleaned.trips.agent_ids[beside]] == [True] * len(mine)
    for seed in range(3):
        case = Case(Setting(rate=0.5, contamination=0.3), person, seed)
        trial = draw(cleaned.trips, case, 10_000, None, cleaned.together)
        assert trial.lesson.population is not None
        assert not any(a.startswith("with") for a in trial.lesson.population.agents)
        assert not any(source.startswith("with") for source in trial.source)
        assert set(paths(trial.lesson.train)).isdisjoint(paths(cleaned.trips[beside]))


def test_the_background_leaves_out_trips_made_together_with_an_injected_person(people: Trajectories) -> None:
    injected, background = halves(people, 0)
    pairs = np.array([[injected[0], background[0]], [background[1], injected[1]], [injected[2], injected[3]]])
    one, two = halves(people, 0, pairs)
    assert one.tolist() == injected.tolist()
    assert two.tolist() == background[2:].tolist()


def test_repeated_fixes_of_a_standing_logger_are_not_copies() -> None:
    still = Trajectories({"time": np.zeros(50), "lat": np.zeros(50), "lon": np.zeros(50)}, [0, 50], ["a"], ["1"])
    moving = walk(np.random.default_rng(0), 50, 0.0, "b", "2")
    assert not guards.copies(Trajectories.concat([still, moving])).any()


# ---------------------------------------------------------------- GeoLife


def write_plt(root: Path, trip: Trajectories) -> None:
    file = root / str(trip.agent_ids[0]) / "Trajectory" / f"{trip.trajectory_ids[0]}.plt"
    file.parent.mkdir(parents=True, exist_ok=True)
    stamps = pl.from_epoch(pl.Series(trip.columns["time"].astype(np.int64))).dt.strftime("%Y-%m-%d,%H:%M:%S")
    rows = zip(trip.columns["lat"].tolist(), trip.columns["lon"].tolist(), stamps.to_list(), strict=True)
    file.write_text(HEADER + "".join(f"{lat:.6f},{lon:.6f},0,0,0,{stamp}\r\n" for lat, lon, stamp in rows), newline="")


def test_dropped_trips_of_geolife_are_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    shared, cut = walk(rng, 150, 1.21e9, "000", "20080101"), walk(rng, 150, 1.22e9, "000", "20080102")
    for trip in (
        shared,
        part(shared, slice(None), "001", "20080109"),
        cut,
        part(cut, slice(0, 140), "002", "20080103"),
        walk(rng, 99, 1.23e9, "001", "20080104"),
        *(walk(rng, 100 + k, 1.24e9 + 1e4 * k, "002", f"2008020{k}") for k in range(4)),
    ):
        write_plt(tmp_path / "Data", trip)
    data = GeoLife(str(tmp_path / "Data"), cache=str(tmp_path / "cache.parquet"))
    assert data.data.account == {
        "trips read": 9,
        "users": 3,
        "byte-identical trips": 2,
        "groups of byte-identical trips": 1,
        "dropped: under 100 fixes": 1,
        "dropped: byte-identical": 2,
        "dropped: the same but for some fixes": 2,
        "trips left": 4,
        "users left": 1,
        "pairs made together by two users": 0,
    }
    assert data.data.most_active == ("002", "000", "001")
    assert data.subjects(Setting()) == ("002", "000", "001")
    assert len(data.fingerprint) == 64
    assert data.settings["dropped: byte-identical"] == 2
    again = GeoLife(str(tmp_path), cache=None)
    assert again.fingerprint == data.fingerprint


def test_no_person_is_in_both_halves_and_the_seed_decides_who_is_where(people: Trajectories) -> None:
    one, two = halves(people, 0)
    assert sorted(np.r_[one, two].tolist()) == list(range(len(people)))
    guards.nobody_in_both(one=people.agent_ids[one], two=people.agent_ids[two])
    assert len(set(people.agent_ids[one])) == 6
    assert halves(people, 0)[0].tolist() == one.tolist() != halves(people, 1)[0].tolist()
    # The order in which trips are read does not matter.
    mixed = people[::-1]
    assert set(mixed.agent_ids[halves(mixed, 0)[0]]) == set(people.agent_ids[one])


@pytest.mark.parametrize("how", ["random", "chronological"])
def test_a_draw_obeys_the_guards(people: Trajectories, how: str) -> None:
    for seed, person in enumerate(("000", "003", "007")):
        trial = draw(people, Case(Setting(rate=0.5, split=how, contamination=0.1), person, seed), population=100)
        swapped, own = of(trial, "agent-swap"), of(trial, "")
        assert (len(swapped), len(own)) == (10, 10)
        assert len(set(swapped)) == 10
        assert {source.split("/")[0] for source in own} == {person}
        injected = {source.split("/")[0] for source in swapped}
        assert person not in injected
        crowd = trial.lesson.population
        assert crowd is not None
        assert len(crowd) == 100
        assert injected.isdisjoint(crowd.agents)
        assert person not in crowd.agents
        # Whatever their dates and names, no test path is learned from.
        assert set(paths(trial.test)).isdisjoint(paths(trial.lesson.train) + paths(crowd))
        assert len(set(paths(trial.lesson.train))) == len(trial.lesson.train)
        assert trial.test.agents == trial.lesson.train.agents == [person]
        mine = set(paths(people.agent(person)))
        strays = [path for path in paths(trial.lesson.train) if path not in mine]
        assert len(strays) == 3  # 10 % of 33
        assert set(strays).isdisjoint(paths(crowd))


def test_place_name_and_date_of_a_test_trip_do_not_betray_an_anomaly(people: Trajectories) -> None:
    trial = draw(people, Case(Setting(rate=0.5, split="chronological"), "005", 0))
    wrong = trial.kind != ""
    assert 0 < np.flatnonzero(wrong).mean() < 19
    assert len({name[:5] for name in trial.test.trajectory_ids.tolist()}) == 1
    starts = trial.test.columns["time"][trial.test.offsets[:-1]]
    assert starts[wrong].min() >= starts[~wrong].min() - WEEK / 2
    assert starts[wrong].max() <= starts[~wrong].max() + WEEK / 2
    before = {
        f"{a}/{t}": people.columns["time"][o]
        for a, t, o in zip(people.agent_ids, people.trajectory_ids, people.offsets, strict=False)
    }
    moved = starts[wrong] - [before[source] for source in of(trial, "agent-swap")]
    assert (moved % WEEK).tolist() == [0] * 10


def test_the_past_is_learned_from_and_the_future_tested(people: Trajectories) -> None:
    trial = draw(people, Case(Setting(rate=0.5, split="chronological"), "005", 0))
    ends = trial.lesson.train.columns["time"][trial.lesson.train.offsets[1:] - 1]
    starts = trial.test.columns["time"][trial.test.offsets[:-1]]
    assert ends.max() < starts[trial.kind == ""].min()
    assert len(trial.lesson.train) == 30


def test_rates_are_ten_anomalies_among_as_many_normal_trips_as_it_takes(people: Trajectories) -> None:
    for rate, normal in ((0.5, 10), (0.4, 15), (0.25, 30)):
        trial = draw(people, Case(Setting(rate=rate), "001", 3))
        assert ((trial.kind == "").sum(), (trial.kind != "").sum()) == (normal, 10)
    with pytest.raises(DataError, match=r"'001' has 40 trips; the test takes 190"):
        draw(people, Case(Setting(rate=0.05), "001", 3))


def test_history_and_contamination_change_the_lesson_and_not_the_test(people: Trajectories) -> None:
    plain, short, dirty = (
        draw(people, Case(Setting(rate=0.5, history=history, contamination=share), "002", 5))
        for history, share in ((0, 0.0), (7, 0.0), (0, 0.1))
    )
    for other in (short, dirty):
        assert other.source.tolist() == plain.source.tolist()
        np.testing.assert_array_equal(other.test.columns["time"], plain.test.columns["time"])
    assert (len(plain.lesson.train), len(short.lesson.train), len(dirty.lesson.train)) == (30, 7, 33)
    recent = draw(people, Case(Setting(rate=0.5, split="chronological", history=7), "002", 5)).lesson.train
    every = draw(people, Case(Setting(rate=0.5, split="chronological"), "002", 5)).lesson.train
    assert paths(recent) == paths(every)[-7:]


def test_the_same_key_gives_the_same_draw_and_another_seed_another(people: Trajectories) -> None:
    one, two, three = (draw(people, Case(Setting(rate=0.5), "004", seed)) for seed in (0, 0, 1))
    assert one.source.tolist() == two.source.tolist() != three.source.tolist()
    np.testing.assert_array_equal(one.lesson.train.columns["lat"], two.lesson.train.columns["lat"])


def test_a_stream_is_that_of_the_draw_by_time_and_an_intruder_is_one_stranger(people: Trajectories) -> None:
    by_time, stream, intruded = (
        draw(people, Case(Setting(rate=0.4, split="chronological", reading=reading), "006", 2))
        for reading in ("", "strangers", "intruder")
    )
    starts = stream.test.columns["time"][stream.test.offsets[:-1]]
    assert (np.diff(starts) >= 0).all()
    assert sorted(stream.source.tolist()) == sorted(by_time.source.tolist())
    assert of(stream, "") == of(intruded, "") == sorted(of(by_time, ""), key=lambda name: int(name.split("/t")[1]))
    assert paths(intruded.lesson.train) == paths(by_time.lesson.train)
    at = np.flatnonzero(intruded.kind == "intruder")
    assert len(at) == 10
    assert at[-1] - at[0] < 20
    names = [name.split("/t") for name in of(intruded, "intruder")]
    assert len({who for who, _ in names}) == 1
    numbers = [int(number) for _, number in names]
    assert numbers == list(range(numbers[0], numbers[0] + 10))  # one after the other, as they were made
    population = intruded.lesson.population
    assert population is not None
    assert names[0][0] not in {"006", *population.agents}
    # Neither the order of the stream nor its dates tell an intruder's trips.
    starts = intruded.test.columns["time"][intruded.test.offsets[:-1]]
    assert (np.diff(starts) >= 0).all()
    own = starts[intruded.kind == ""]
    assert np.abs(starts[at][:, None] - own).min(axis=1).max() <= DAY / 2


def test_a_stream_that_is_too_short_for_an_intruder_is_refused(people: Trajectories) -> None:
    with pytest.raises(DataError, match=r"10 trips are too few for an intruder who makes 10 of 20 in a row"):
        draw(people, Case(Setting(rate=0.5, split="chronological", reading="intruder"), "006", 2))


def test_strangers_include_neither_tested_nor_injected_people(
    people: Trajectories, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned: Cleaned = clean(people, GeoLife.min_fixes)
    assert cleaned.account["trips left"] == len(people)
    monkeypatch.setattr("astray_benchmark.people_data._loaded", lambda *_: cleaned)
    monkeypatch.setattr("astray_benchmark.people_data.PEOPLE", 4)
    data = GeoLife("unused")
    tested = data.subjects(Setting())
    assert len(tested) == 4
    for seed in range(3):
        trial = data.trial(Case(Setting(rate=0.5), tested[0], seed))
        assert trial.lesson.strangers is not None
        strangers = trial.lesson.strangers.trips()
        assert set(strangers.agents).isdisjoint(tested)
        assert set(strangers.agents).isdisjoint(source.split("/")[0] for source in of(trial, "agent-swap"))
    with pytest.raises(DataError, match="no pool trials"):
        data.trial(Case(Setting(reading="cap"), tested[0], 0))


def test_a_file_of_trips_tests_at_most_half_of_a_persons_trips(people: Trajectories, tmp_path: Path) -> None:
    file = tmp_path / "mine.parquet"
    people.to_frame().write_parquet(file)
    data = AgentsTrips(str(file))
    tested = data.subjects(Setting())
    assert len(tested) == len(people.agents) // 3
    trial = data.trial(Case(Setting(), tested[0], 0))
    n = int((people.agent_ids == tested[0]).sum())
    assert len(trial.lesson.train) == n - n // 2
    assert Counter(trial.kind.tolist()) == {"": n // 2, "agent-swap": max(1, round(n // 2 / 19))}
    assert trial.lesson.strangers is not None
    assert set(trial.lesson.strangers.trips().agents).isdisjoint(tested)
    assert AgentsTrips(str(file), people=("006",)).subjects(Setting()) == ("006",)
    assert data.settings["trips left"] == len(people)
    with pytest.raises(DataError, match=r"nobody called 'x' has trips of 10 fixes or more; there are "):
        AgentsTrips(str(file), people=("006", "x")).subjects(Setting())


def test_a_file_with_too_few_agents_is_refused(people: Trajectories, tmp_path: Path) -> None:
    file = tmp_path / "few.parquet"
    people[np.isin(people.agent_ids, people.agents[:3])].to_frame().write_parquet(file)
    with pytest.raises(DataError, match=r"there are 3 with trips of 10 fixes or more; give trips of 4 agents or more"):
        AgentsTrips(str(file)).subjects(Setting())


def test_behaviour_that_goes_wrong_is_made_of_unseen_trips_of_the_person(people: Trajectories) -> None:
    trial = draw(people, Case(Setting(rate=0.3, injected=True), "006", 1))
    assert set(trial.kind.tolist()) > {"", "loiter", "reverse"}
    assert {source.split("/")[0] for source in trial.source.tolist()} == {"006"}
    assert trial.test.agents == trial.lesson.train.agents == ["006"]
    assert set(paths(trial.lesson.train)).isdisjoint(paths(trial.test))
    assert trial.truth is not None
    wrong = np.array([trial.truth[a:b].any() for a, b in pairwise(trial.test.offsets.tolist())])
    assert wrong.tolist() == (trial.kind != "").tolist()
    population = trial.lesson.population
    assert population is not None
    assert "006" not in population.agents


# ---------------------------------------------------------------- Porto


def taxi_trips(n_days: int = 9, a_day: int = 60) -> list[dict[str, object]]:
    """Trips of some days: most of 12 to 60 fixes between three places, some long, some far, some hardly begun."""
    rng = np.random.default_rng(4)
    places = np.array(CITY[::-1]) + rng.uniform(-0.03, 0.03, (3, 2))
    rows: list[dict[str, object]] = []
    for day in range(n_days):
        for k in range(a_day):
            n = int(rng.integers(12, 60)) if k % 10 else 260
            n = 5 if k == 1 else n
            a, b = places[rng.choice(3, 2, replace=False)]
            u = np.linspace(0, 1, n)[:, None]
            bend = np.sin(np.pi * np.clip(2 * u - 0.6, 0, 1)) * [[0.0, 0.015 * (k % 3)]]
            route = a + (b - a) * u + bend + rng.normal(scale=5e-5, size=(n, 2))
            if k == 2:
                route[n // 2, 0] += 3.0
            stamp = 1_372_636_800 + 86_400 * day + 600 * k
            rows.append(
                {
                    "TRIP_ID": f"{stamp}620000{k:03d}",
                    "TAXI_ID": f"20000{k:03d}",
                    "TIMESTAMP": stamp,
                    "MISSING_DATA": "True" if k == 3 else "False",
                    "POLYLINE": json.dumps(route.round(6).tolist()),
                }
            )
    return rows


@pytest.fixture(scope="module")
def porto(tmp_path_factory: pytest.TempPathFactory) -> Porto:
    folder = tmp_path_factory.mktemp("porto")
    pl.DataFrame(taxi_trips()).write_parquet(folder / "porto_trips.parquet", row_group_size=100)
    return Porto(str(folder), train=100, sizes=(("matched", (90, 10)), ("cap", (15, 15))), injected=150, partners=150)


def test_dropped_trips_of_porto_are_counted(porto: Porto, tmp_path: Path) -> None:
    assert porto.data.account == {
        "trips read": 531,
        "not read: MISSING_DATA: fixes are missing in this trip": 9,
        "dropped: leave 0.5 degrees around the city": 9,
        "dropped: under 10 fixes": 9,
        "normal trips": 459,
        "trips over 50 minutes": 54,
    }
    assert porto.settings["normal trips"] == 459
    assert len(porto.fingerprint) == 64
    text = tmp_path / "train.csv"
    pl.DataFrame(taxi_trips()).write_csv(text)
    assert catalogue(text).account == porto.data.account
    assert catalogue(text).fixes.tolist() == porto.data.fixes.tolist()


def test_exactly_fifty_minutes_are_normal(tmp_path: Path) -> None:
    rows = taxi_trips(1, 4)[:2]
    for row, n in zip(rows, (201, 202), strict=True):
        row["POLYLINE"] = json.dumps([[CITY[1] + 1e-5 * i, CITY[0]] for i in range(n)])
    pl.DataFrame(rows).write_parquet(tmp_path / "a.parquet")
    listed = catalogue(tmp_path / "a.parquet")
    assert (listed.normal.tolist(), listed.long.tolist()) == ([True, False], [False, True])


def test_trips_are_fetched_in_the_order_asked_for(porto: Porto) -> None:
    whole = gather(porto.file, np.arange(531))
    some = gather(porto.file, np.array([500, 3, 77]))
    assert some.trajectory_ids.tolist() == whole.trajectory_ids[[500, 3, 77]].tolist()
    assert some.lengths.tolist() == porto.data.fixes[[500, 3, 77]].tolist()
    with pytest.raises(DataError, match="does not have"):
        gather(porto.file, np.array([531]))


def legs(trips: Trajectories) -> set[tuple[float, ...]]:
    """Every two fixes that follow each other; single ones may be the same by chance, where trips begin."""
    place = np.column_stack([trips.columns["lat"], trips.columns["lon"]])
    return set(map(tuple, np.hstack([place[:-1], place[1:]]).tolist()))


def begun_on(trips: Trajectories) -> set[int]:
    """The days of trips, from their first fixes."""
    return set((trips.columns["time"][trips.offsets[:-1]] // 86_400).astype(int).tolist())


def day_of(names: list[str]) -> set[int]:
    """The days of trips, from their names: those begin with the time."""
    return {int(name.split("/")[-1][:10]) // 86_400 for name in names}


@pytest.mark.parametrize("how", ["random", "chronological"])
@pytest.mark.parametrize(("reading", "rate"), [("matched", 0.1), ("cap", 0.5)])
def test_both_readings_obey_the_guards(porto: Porto, reading: str, rate: float, how: str) -> None:
    trial = porto.trial(Case(Setting(rate=rate, reading=reading, split=how), "pool", 1))
    wrong = trial.kind != ""
    assert wrong.mean() == rate
    assert set(trial.kind.tolist()) == {"", "long"}
    assert trial.truth is None
    assert len(trial.lesson.train) == 100
    assert trial.test.agents == trial.lesson.train.agents == ["pool"]
    assert len(set(trial.source.tolist())) == len(trial.test)
    train_days = begun_on(trial.lesson.train)
    assert train_days.isdisjoint(day_of(trial.source.tolist()))
    if how == "chronological":
        assert max(train_days) < min(day_of(trial.source.tolist()))
    lengths = trial.test.lengths
    if reading == "cap":
        assert (lengths[wrong] == 101).all()
    else:
        counts = np.bincount(lengths[~wrong], minlength=300)
        assert (np.bincount(lengths[wrong], minlength=300) <= counts).all()  # each length from another normal trip


def test_a_cropped_trip_is_the_beginning_of_the_long_one(porto: Porto) -> None:
    trial = porto.trial(Case(Setting(rate=0.5, reading="cap"), "pool", 2))
    whole = gather(porto.file, np.flatnonzero(porto.data.long))
    named = dict(zip(whole.trajectory_ids.tolist(), whole, strict=True))
    for i in np.flatnonzero(trial.kind == "long").tolist():
        source = named[trial.source[i].split("/")[1]]
        for column in ("time", "lat", "lon"):
            np.testing.assert_array_equal(trial.test[i].columns[column], source.columns[column][:101])


def test_injections_into_porto_have_every_kind_and_the_truth_of_every_fix(porto: Porto) -> None:
    trial = porto.trial(Case(Setting(rate=0.05, injected=True), "pool", 0))
    kinds, counts = np.unique(trial.kind, return_counts=True)
    assert set(kinds.tolist()) == set(porto.settings["kinds"]) | {""}
    assert set(counts[kinds != ""].tolist()) == {6}  # 0.05 * 150 / (0.95 + 0.05 * 7) = 5.8
    assert trial.truth is not None
    marked = np.logical_or.reduceat(trial.truth, trial.test.offsets[:-1])
    np.testing.assert_array_equal(marked, trial.kind != "")
    train_days = begun_on(trial.lesson.train)
    assert train_days.isdisjoint(day_of(trial.source.tolist()))
    # Spliced fixes are of trips that nobody learns from.
    assert legs(trial.lesson.train).isdisjoint(legs(trial.test))
    again = porto.trial(Case(Setting(rate=0.05, injected=True), "pool", 0))
    np.testing.assert_array_equal(again.test.columns["lat"], trial.test.columns["lat"])


def test_draws_that_porto_does_not_have_are_refused(porto: Porto, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a protocol that Porto does not have; give p2"):
        porto.trial(Case(Setting(), "pool", 0))
    with pytest.raises(DataError, match="no reading 'guessed'"):
        porto.trial(Case(Setting(reading="guessed"), "pool", 0))
    with pytest.raises(DataError, match=r"train\.csv nor porto_trips\.parquet"):
        _ = Porto(str(tmp_path)).file
    with pytest.raises(DataError, match="5000 trips to learn from are needed"):
        Porto(porto.path, sizes=porto.sizes).trial(Case(Setting(reading="cap"), "pool", 0))


# ---------------------------------------------------------------- the real ones


def test_the_ten_of_geolife_and_its_copies() -> None:
    if "ASTRAY_GEOLIFE" not in os.environ:
        pytest.skip("ASTRAY_GEOLIFE does not point to GeoLife's folder Data")
    data = GeoLife(os.environ["ASTRAY_GEOLIFE"])
    assert data.subjects(Setting()) == ("128", "153", "163", "025", "062", "041", "144", "068", "085", "017")
    assert data.data.account["byte-identical trips"] == 1677
    assert data.data.account["groups of byte-identical trips"] == 821
    assert data.data.account["dropped: the same but for some fixes"] == 71
    assert not guards.copies(data.data.trips).any()
    for rate, size in ((0.05, 200), (0.1, 100)):
        for person in data.subjects(Setting()):
            trial = data.trial(Case(Setting(rate=rate, split="chronological"), person, 0))
            assert (len(trial.test), (trial.kind != "").sum()) == (size, 10)
            assert len(trial.lesson.train) >= 150


def test_the_real_porto_has_enough_long_trips() -> None:
    if "ASTRAY_PORTO" not in os.environ:
        pytest.skip("ASTRAY_PORTO does not point to a folder with the Porto files")
    data = Porto(os.environ["ASTRAY_PORTO"])
    assert data.data.account["trips over 50 minutes"] > 2500
    trial = data.trial(Case(Setting(rate=0.5, reading="cap"), "pool", 0))
    assert (len(trial.test), (trial.kind == "long").sum(), len(trial.lesson.train)) == (1200, 600, 5000)


# ---------------------------------------------------------------- pairs of places

ROUTES_CASE, UNUSUAL_CASE = (Setting(reading=reading) for reading in ("routes", "unusual"))


@pytest.fixture(scope="module")
def between(porto: Porto) -> Porto:
    return replace(porto, pairs=3, least=40, others=60)


def test_pairs_are_different_cells_with_enough_trips_the_most_frequent_first(between: Porto) -> None:
    found = frequent(between.data, 40)
    sizes = [len(at) for at in found.values()]
    assert sizes == sorted(sizes, reverse=True)
    assert min(sizes) >= 40
    assert len(frequent(between.data, max(sizes) + 1)) == 0
    guards.no_trip_twice(**found)
    for at in found.values():
        ends = between.data.ends[at]
        assert np.ptp(ends, axis=0).max() < 0.006  # 400 m are 0.0036 degrees north, and 0.0048 east
        assert between.data.normal[at].all()
        assert (np.abs(ends[:, :2] - ends[:, 2:]).max(axis=1) > 1e-3).all()
        beside = neighbours(between.data, at)
        assert not set(beside.tolist()) & set(at.tolist())
    names = between.subjects(ROUTES_CASE)
    assert len(names) == min(3, len(found))
    assert set(names) <= set(found)
    assert between.subjects(Setting(injected=True)) == ["pool"]


def test_every_trip_of_a_pair_is_scored_by_what_was_learned_from_the_others(between: Porto) -> None:
    pair = between.subjects(ROUTES_CASE)[0]
    for setting in (ROUTES_CASE, UNUSUAL_CASE):
        trial = between.trial(Case(setting, pair, 1))
        recorded = paths(trial.lesson.train)
        assert trial.test.agents == trial.lesson.train.agents == ["pool"]
        tested = []
        for lesson, at in trial.parts():
            assert len(lesson.train) + len(at) == len(trial.test) == len(recorded)
            own = {recorded[i] for i in np.flatnonzero(trial.folds[0] == trial.folds[1][at[0]])}
            assert own.isdisjoint(paths(lesson.train))
            normal = at[trial.kind[at] == ""]
            assert set(paths(trial.test[normal])) <= own
            tested += at.tolist()
        assert sorted(tested) == list(range(len(trial.test)))
        assert len(np.unique(trial.folds[1])) == FOLDS
        crowd = trial.lesson.population
        assert crowd is not None
        assert set(paths(crowd)).isdisjoint(recorded)
        assert np.unique(crowd.agent_ids, return_counts=True)[1].max() <= 5


def test_routes_are_changed_by_the_kinds_that_change_routes_and_seeds_differ(between: Porto) -> None:
    pair = between.subjects(ROUTES_CASE)[0]
    one, again, other = (between.trial(Case(ROUTES_CASE, pair, seed)) for seed in (0, 0, 1))
    assert set(one.kind.tolist()) - {""} <= set(ROUTES)
    assert {"point-jitter", "segment-shift", "detour"} <= set(one.kind.tolist())
    assert np.unique(one.kind[one.kind != ""], return_counts=True)[1].max() <= max(1, 0.06 * len(one.test))
    assert one.source.tolist() == again.source.tolist() != other.source.tolist()
    np.testing.assert_array_equal(one.test.columns["lat"], again.test.columns["lat"])
    # How many pairs are tested changes none of them.
    more = replace(between, pairs=1)
    assert more.subjects(ROUTES_CASE) == [pair]
    np.testing.assert_array_equal(more.trial(Case(ROUTES_CASE, pair, 0)).test.columns["lat"], one.test.columns["lat"])


def test_the_unusual_ones_are_the_longest_and_a_jump_of_the_receiver_is_no_length(between: Porto) -> None:
    trial = between.trial(Case(UNUSUAL_CASE, between.subjects(UNUSUAL_CASE)[0], 0))
    wrong = trial.kind == "unusual"
    assert wrong.sum() == round(0.05 * len(wrong))
    time = 15.0 * np.arange(40)
    lat = 41.15 + 1e-3 * np.arange(40)
    jump = lat.copy()
    jump[20] += 0.3
    rows = [lat, lat + 1e-4 * np.sin(np.arange(40)), jump, 41.15 + 1.5e-3 * np.arange(40)]
    trips = Trajectories.concat(
        [
            Trajectories({"time": time, "lat": north, "lon": np.full(40, -8.6)}, [0, 40], ["a"], [f"{i}"])
            for i, north in enumerate(rows)
        ]
    )
    assert unusual(trips).tolist() == [False, False, False, True]


def test_a_pair_that_is_not_tested_and_data_without_pairs_are_refused(between: Porto) -> None:
    with pytest.raises(DataError, match="no pair of places 'home-work'; there are 41"):
        between.trial(Case(ROUTES_CASE, "home-work", 0))
    with pytest.raises(DataError, match="no two places have 1000 trips"):
        replace(between, least=1000).subjects(ROUTES_CASE)
