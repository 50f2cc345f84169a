"""Refreshing: scales and reward are made anew, and swapped in between trips."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from astray.service import memories
from astray.service.review import refreshing
from astray.service.review.refreshing import NewReward, Recalibration, Refresher, swap_in, to_refresh
from astray.service.store import open_store
from test_serve_scoring import NOW, Serving, life


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(open_store(tmp_path / "store"))
    serving.live([fix for fix in life() if fix.agent == "p01"])
    yield serving
    serving.store.close()


def test_an_agent_is_measured_anew_and_its_open_trip_keeps_what_it_began_with(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(refreshing, "LEAST_TRIPS", 5)
    (task,) = to_refresh(serving.store.writer, 1)
    assert task == Recalibration("p01", 1)
    made = Refresher(serving.store.address)(task)
    before = serving.store.writer.value("SELECT checksum FROM members")
    assert serving.store.writer.value("SELECT trip FROM agents") is not None  # it is under way
    serving.do(lambda scorer: swap_in(scorer, made))
    assert serving.store.writer.value("SELECT checksum FROM members") != before
    assert serving.store.writer.value("SELECT count(*) FROM pins") == 1
    serving.do(lambda scorer: swap_in(scorer, made))  # it has changed meanwhile: nothing happens
    fleet = memories.open_fleet(serving.store.writer)
    assert fleet.members_["p01"].measured


def test_a_new_reward_is_used_by_new_trips_and_measures_everybody_anew(serving: Serving):
    connection = serving.store.writer
    fleet = memories.open_fleet(connection)
    parts = dict(fleet._shared())
    before = fleet.members_["p01"].own.trips
    trip = connection.value("SELECT trip FROM agents")
    serving.do(lambda scorer: swap_in(scorer, NewReward(1, 100, tuple(parts.items()))))
    assert memories.version_in_use(connection) == 2
    assert connection.rows("SELECT agent, model FROM pins") == [("p01", 1)]
    assert connection.value("SELECT count(*) FROM models WHERE version = 1") == len(parts)  # a trip is scored by it
    again = memories.open_fleet(connection).members_["p01"]
    assert again.measured
    assert again.own.trips.shape == before.shape
    serving.scorer.reopen()
    last = [fix for fix in life() if fix.agent == "p01"][-1]
    serving.take([last._replace(time=last.time + 7200.0)])  # after a gap: the trip is over
    assert connection.value("SELECT model FROM trips WHERE trip = ?", (trip,)) == 1
    assert connection.value("SELECT count(*) FROM pins") == 0
    assert last.time < NOW
