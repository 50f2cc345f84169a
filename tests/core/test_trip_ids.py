"""A trip has the same name in a file, live, in an alert and in a model; a name that a person types means one trip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import astray
from astray import Detector, Trajectories, TripId
from astray.cli import main
from astray.core.errors import DataError
from astray.core.trip_ids import find_trips
from astray.simulate import city

PARTS = st.text("ab/", max_size=3)
IDS = st.builds(TripId, PARTS, PARTS)


@given(st.lists(IDS, unique=True), PARTS)
def test_a_name_finds_one_known_trip_or_is_an_error(known: list[TripId], name: str) -> None:
    whole = [trip for trip in known if str(trip) == name]
    meant = whole or [trip for trip in known if trip.trajectory == name]
    if len(meant) == 1:
        assert find_trips([name], known) == meant
        return
    reason = f"is the name of {len(meant)} trips: " if meant else f"is among the {len(known)} trips"
    with pytest.raises(DataError, match=reason):
        find_trips([name], known)


@given(st.lists(IDS, unique=True, min_size=1))
def test_an_id_means_itself_whatever_its_parts_hold(known: list[TripId]) -> None:
    assert find_trips(known, known) == known
    with pytest.raises(DataError, match="no trip named"):
        find_trips([known[0]], known[1:])


def test_two_trips_with_the_same_text_are_distinguished(people: Trajectories) -> None:
    mine = people.agent("p00")
    names = [("a", "b/1"), ("a/b", "1")]
    trips = Trajectories(mine[:2].columns, mine[:2].offsets, *zip(*names, strict=True))
    fleet = Detector(iterations=1).fit(
        Trajectories.concat([trips, people.without("p00").with_columns(context={}), mine])
    )
    assert fleet.enroll(trips) == 0
    fleet.forget_trips("a", ["b/1"], anomalous=True)
    assert fleet.score(trips)["history"].to_list() == [0.0, 0.0]  # the other one's memory still holds its trip
    assert [len(fleet.memories_[agent].counts) for agent in ("a", "a/b")] == [0, 1]
    fleet.forget("a/b")
    assert fleet.anomalous_ == {TripId("a", "b/1")}
    with pytest.raises(DataError, match="2 trips: 'b/1' of 'a', '1' of 'a/b'; name it by its trajectory alone"):
        find_trips(["a/b/1"], trips.ids)
    assert find_trips(["b/1", "1"], trips.ids) == trips.ids


# -------------------------------------------------------------------- from the feed to the alert to the model


@pytest.fixture(scope="module")
def people() -> Trajectories:
    return city(people=3, days=21, seed=3).trips


@pytest.fixture(scope="module")
def model(people: Trajectories, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet of two people whose raw fixes were cut into trips."""
    folder = tmp_path_factory.mktemp("fleet")
    fixes(people).filter(pl.col("agent") != "p02", pl.col("time") < middle(people)).write_csv(folder / "past.csv")
    assert main(["fit", str(folder / "past.csv"), "-o", str(folder / "fleet.astray"), "--iterations", "1", "-q"]) == 0
    return folder / "fleet.astray"


def fixes(trips: Trajectories) -> pl.DataFrame:
    return trips.to_frame().select("agent", "time", "lat", "lon").sort("time", maintain_order=True)


def middle(trips: Trajectories) -> float:
    return float(np.median(trips.columns["time"]))


def later(people: Trajectories) -> pl.DataFrame:
    """Fixes of p01, who lends p00 the vehicle: all of them are p00's."""
    new = fixes(people).filter(pl.col("agent") == "p01", pl.col("time") >= middle(people))
    return new.with_columns(agent=pl.lit("p00"))


def watched(model: Path, table: pl.DataFrame, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    table.write_ndjson(folder / "feed.jsonl")
    with open(folder / "feed.jsonl") as feed:
        monkeypatch.setattr("sys.stdin", feed)
        assert main(["watch", str(model), "-o", str(folder / "events.jsonl"), "-q"]) == 0
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def read_trips(file: str | Path) -> Trajectories:
    """The trips of a file that names none."""
    return astray.read(file, trips="cut")


def ended(events: list[dict[str, Any]]) -> list[TripId]:
    return [TripId(event["agent"], event["trip"]) for event in events if event["event"] == "trip_ended"]


def test_raw_fixes_are_the_same_trips_in_a_feed_and_in_a_file(
    model: Path, people: Trajectories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = fixes(people).filter(pl.col("agent") != "p02", pl.col("time") >= middle(people))
    live = sorted(ended(watched(model, both, tmp_path, monkeypatch)))
    assert len(live) > 20
    for form, write in (("csv", both.write_csv), ("jsonl", both.write_ndjson), ("parquet", both.write_parquet)):
        file = tmp_path / f"new.{form}"
        write(file)
        assert sorted(read_trips(file).ids) == live, form


def test_a_feed_that_names_trips_has_the_names_of_a_file(
    model: Path, people: Trajectories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = people.agent("p00")[-6:]
    table = named.to_frame().select("agent", "time", "lat", "lon", trip_id="trajectory")
    table.write_csv(tmp_path / "new.csv")
    assert ended(watched(model, table, tmp_path, monkeypatch)) == astray.read(tmp_path / "new.csv").ids == named.ids


def test_where_a_feed_names_some_trips_the_others_are_those_of_a_file(
    model: Path, people: Trajectories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody names a part of a journey that has no name before and after it."""
    walk = pl.DataFrame({"agent": "p00", "time": middle(people) + 30.0 * np.arange(60), "lon": 7.0})
    walk = walk.with_columns(lat=45.0 + pl.int_range(60) * 0.001)
    part = pl.int_range(60).is_between(20, 39)
    table = walk.with_columns(trip=pl.when(part).then(pl.lit("errand")))
    live = ended(watched(model, table, tmp_path, monkeypatch))
    assert [trip.trajectory == "errand" for trip in live] == [False, True, False]
    assert sorted(live) == sorted(astray.read(tmp_path / "feed.jsonl", skip_bad=True).ids)


def test_what_an_alert_names_can_be_explained_answered_and_taken_out(
    model: Path,
    people: Trajectories,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, fleet = later(people), tmp_path / "fleet.astray"
    fleet.write_bytes(model.read_bytes())
    events = watched(fleet, table, tmp_path, monkeypatch)
    alerts = [TripId(event["agent"], event["trip"]) for event in events if event["event"] == "alert_opened"]
    file, known = str(tmp_path / "new.csv"), astray.load(model).known_trips_
    table.write_csv(file)
    assert alerts
    assert not known & set(alerts)
    # The model has not seen the trip: to say "accepted" would be to do nothing.
    assert main(["update", str(fleet), "--anomalous", str(alerts[0])]) == 1
    assert f"no trip named '{alerts[0]}'" in capsys.readouterr().err
    assert main(["update", str(fleet), file, "--anomalous", str(alerts[0]), "-o", str(tmp_path / "updated")]) == 0
    updated = astray.load(tmp_path / "updated")
    assert updated.anomalous_ == {alerts[0]}
    assert updated.known_trips_ - known == set(read_trips(file).ids)
    assert main(["explain", str(fleet), file, str(alerts[0]), "-q"]) == 0
    assert f"Trip {alerts[0].trajectory} of p00: " in capsys.readouterr().out
    assert main(["observe", str(fleet), file, "-q"]) == 0
    waiting = [trip for trip in astray.load(fleet).waiting_ if trip in alerts]
    assert waiting
    capsys.readouterr()
    assert main(["answer", str(fleet), waiting[0].trajectory, "--not-mine", "-q"]) == 0
    assert waiting[0] in astray.load(fleet).anomalous_
