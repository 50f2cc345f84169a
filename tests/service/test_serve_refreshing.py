"""Refreshing: agents are recalibrated, the reward is trained further, and both take effect between trips."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_serve_scoring import NOW, Serving, copied, life, made_once

from astray.core.processes import Aside
from astray.core.trajectories import Trajectories
from astray.model.shared_training import GoingOnConfig
from astray.service import served_model
from astray.service import service as services
from astray.service.batches import Batch, FeedFix, Receipt
from astray.service.review import refresh
from astray.service.review.explainer import Task, explain
from astray.service.review.refresh import (
    Last,
    NewReward,
    Recalibration,
    Refresher,
    last_refresh,
    note_refresh,
    swap_in,
    to_refresh,
)
from astray.service.scoring.event_rows import trip_name
from astray.service.scoring.scorer import stored_trip
from astray.service.service import Service
from astray.service.store import Store, open_store
from astray.service.web import queries
from astray.simulate import city


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which the trips of p01 were scored."""
    own = [fix for fix in life() if fix.agent == "p01"]
    return made_once(tmp_path_factory.mktemp("lived"), lambda serving: serving.live(own))


@pytest.fixture
def serving(lived: Path, tmp_path: Path) -> Iterator[Serving]:
    with copied(lived, tmp_path) as serving:
        yield serving


def test_a_recalibrated_agent_keeps_its_old_memory_for_its_open_trip(serving: Serving, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(refresh, "LEAST_TRIPS", 5)
    (task,) = to_refresh(serving.store.writer, 1, Last(0.0))
    assert task == Recalibration("p01", 1)
    made = Refresher(serving.store.address)(task)
    before = serving.store.writer.value("SELECT checksum FROM memories")
    assert serving.store.writer.value("SELECT trip FROM agents") is not None  # a trip is open
    serving.do(lambda scorer: swap_in(scorer, made))
    assert serving.store.writer.value("SELECT checksum FROM memories") != before
    assert serving.store.writer.value("SELECT count(*) FROM pins") == 1
    serving.do(lambda scorer: swap_in(scorer, made))  # it has changed meanwhile: nothing happens
    fleet = served_model.ServedModel.open(serving.store.writer).detector
    assert fleet.memories_["p01"].measured


def test_a_new_reward_scores_new_trips_and_recalibrates_everybody(serving: Serving):
    connection = serving.store.writer
    fleet = served_model.ServedModel.open(connection).detector
    parts = dict(fleet.shared_parts)
    before = fleet.memories_["p01"].own.trips
    trip = connection.value("SELECT trip FROM agents")
    serving.do(lambda scorer: swap_in(scorer, NewReward(1, 100, tuple(parts.items()))))
    assert served_model.version_in_use(connection) == 2
    assert connection.rows("SELECT agent, model FROM pins") == [("p01", 1)]
    assert connection.value("SELECT count(*) FROM models WHERE version = 1") == len(parts)  # a trip is scored by it
    again = served_model.ServedModel.open(connection).detector.memories_["p01"]
    assert again.measured
    assert again.own.trips.shape == before.shape
    serving.scorer.reopen()
    last = [fix for fix in life() if fix.agent == "p01"][-1]
    serving.take([last._replace(time=last.time + 7200.0)])  # after a gap: the trip is over
    assert connection.value("SELECT model FROM trips WHERE trip = ?", (trip,)) == 1
    assert connection.value("SELECT count(*) FROM pins") == 0
    assert last.time < NOW


def test_a_trip_of_an_earlier_model_can_still_be_explained(serving: Serving):
    connection = serving.store.writer
    parts = tuple(served_model.ServedModel.open(connection).detector.shared_parts.items())
    serving.do(lambda scorer: scorer.end_silent(NOW + 5000.0), NOW + 5000.0)
    trip = connection.value("SELECT trip FROM trips WHERE state = 'learned' ORDER BY started DESC LIMIT 1")
    before = explain(connection, Task("p01", trip))
    serving.do(lambda scorer: swap_in(scorer, NewReward(1, 100, parts)))
    assert connection.value("SELECT count(*) FROM models WHERE version = 1") == 0  # no open trip uses it
    after = explain(connection, Task("p01", trip))
    assert before is not None
    assert after is not None
    assert after.words == before.words  # the new reward is the old one


def test_the_first_trip_of_a_new_agent_keeps_its_model_after_a_restart(tmp_path: Path):
    fixes = [fix for fix in life() if fix.agent == "p01"][:14]
    found = []
    for restart in (False, True):
        stranger = Serving(open_store(tmp_path / str(restart)))
        stranger.take(fixes[:7])
        parts = tuple(served_model.ServedModel.open(stranger.store.writer).detector.shared_parts.items())
        stranger.do(lambda scorer, parts=parts: swap_in(scorer, NewReward(1, 100, parts)))
        if restart:
            stranger.scorer.reopen()
        stranger.take(fixes[7:])
        stranger.do(lambda scorer: scorer.end_silent(NOW + 5000.0), NOW + 5000.0)
        found.append(stranger.store.writer.rows("SELECT * FROM trips"))
        assert stranger.store.writer.value("SELECT model FROM trips") == 1
        stranger.store.close()
    assert found[0] == found[1]


# -------------------------------------------------------------------- for real, in the other process

SMALL = GoingOnConfig(memories=1, demonstrations=10, imagined=1, iterations=1)
"""As little learning as there can be, from as few agents as there must be."""


def thinned(trips: Trajectories, step: int) -> Trajectories:
    kept = []
    for trip in trips:
        rows = np.unique(np.r_[0 : trip.n_rows : step, trip.n_rows - 1])
        columns = {name: trip.columns[name][rows].copy() for name in ("time", "lat", "lon")}
        kept.append(Trajectories(columns, [0, len(rows)], trip.agent_ids, trip.trajectory_ids))
    return Trajectories.concat(kept)


def learned_store(folder: Path, past: Trajectories) -> Store:
    """A store that has learned trips, without having scored each of them."""
    fleet = served_model.blank_model()
    fleet.enroll(past)
    fleet.save(folder / "fleet.astray")
    store = open_store(folder / "store")
    with store.writer.transaction():
        served_model.begin(store.writer, folder / "fleet.astray")
        n = dict.fromkeys(past.agents, 0)
        for trip in past:
            ((agent, name),) = trip.ids
            rows = list(zip(*(trip.columns[c].tolist() for c in ("time", "lat", "lon")), strict=True))
            store.writer.many(
                "INSERT INTO fixes (agent, time, lat, lon, n) VALUES (?, ?, ?, ?, ?)",
                [(agent, *row, n[agent] + i + 1) for i, row in enumerate(rows)],
            )
            n[agent] += len(rows)
            store.writer.run(
                "INSERT INTO trips (agent, trip, started, ended, fixes, faults, score, normality, p_value, "
                "uncertainty, decision, aspect, history, why, state, words, late, model) "
                "VALUES (?, ?, ?, ?, ?, 0, 0, 0, 1, 0, 'normal', '', 9, 'gap', ?, NULL, 0, 1)",
                (agent, name, rows[0][0], rows[-1][0], len(rows), "learned"),
            )
        note_refresh(store.writer, Last(0.0))  # so that it is due
    return store


class Live:
    """A service that runs, with the process that refreshes, and is looked at through a connection that reads."""

    def __init__(self, store: Store) -> None:
        self.service = Service(store, refresh_hours=1.0)
        self.service.refresher = Aside(Refresher(store.address, SMALL))
        self.reader = store.reader()
        self.service.start()

    def send(self, fixes: list[FeedFix]) -> float:
        """How many seconds passed until they were on the disk."""
        done: Future[Receipt] = Future()
        began = time.monotonic()
        self.service.submit(Batch(fixes, []), done.set_result)
        assert done.result(60).accepted == len(fixes)
        return time.monotonic() - began

    def until(self, holds: Callable[[], Any], seconds: float = 120.0) -> Any:
        end = time.monotonic() + seconds
        while not (found := holds()):
            assert time.monotonic() < end, "it did not come about"
            time.sleep(0.05)
        return found

    def end(self) -> None:
        self.service.stop()
        self.reader.close()


def test_the_reward_is_trained_further_in_another_process_and_open_trips_keep_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(services, "SILENCE", 0.2)
    monkeypatch.setattr(refresh, "LEAST_TRIPS", 11)
    trips = thinned(city(people=refresh.LEAST_AGENTS, days=5, seed=3).trips, 25)
    past = Trajectories.concat([trips.agent(agent)[: refresh.LEAST_EACH] for agent in trips.agents])
    first, second = (thinned(trips.agent("p00")[10 + i : 11 + i], 1) for i in range(2))
    store = learned_store(tmp_path, past)
    fixes = [
        [FeedFix("p00", *row) for row in zip(*(t.columns[c].tolist() for c in ("time", "lat", "lon")), strict=True)]
        for t in (first, second)
    ]
    live = Live(store)
    try:
        under_way, rest = fixes[0][:4], fixes[0][4:]
        live.send(under_way)
        assert served_model.version_in_use(live.reader) == 1
        before = served_model.ServedModel.open(live.reader).detector
        live.until(lambda: served_model.version_in_use(live.reader) == 2)
        after = served_model.ServedModel.open(live.reader).detector
        assert after.reward_.made["went_on"] == before.reward_.made.get("went_on", 0) + 1
        assert after.score(past[:12])["score"].to_list() != before.score(past[:12])["score"].to_list()
        # The open trip is scored by the model that it began with, the next one by the new one.
        assert live.reader.rows("SELECT agent, model FROM pins") == [("p00", 1)]
        live.send(rest)
        live.send(fixes[1])
        live.send([fixes[1][-1]._replace(time=fixes[1][-1].time + 7200.0)])
        asked = "SELECT trip, started, ended, score, model FROM trips WHERE agent = 'p00' ORDER BY started DESC LIMIT 2"
        new, old = live.reader.rows(asked)
        assert (old[4], new[4]) == (1, 2)
        assert live.reader.value("SELECT count(*) FROM pins") == 0
        assert before.score(stored_trip(live.reader, "p00", *old[:3]))["score"][0] == pytest.approx(old[3], abs=2e-3)
        told = live.reader.rows("SELECT who, what FROM audit")
        assert told == [("astray", "reward refreshed")]
        last = last_refresh(live.reader)
        assert last is not None
        assert last.trips == len(past)
        # The process is gone, and the next refresh recalibrates agents.
        live.until(lambda: not live.service._refreshing and live.service.refresher._pool is None)
        checksum = "SELECT checksum FROM memories WHERE agent = 'p00'"
        was = live.reader.value(checksum)
        live.service.write(lambda connection: note_refresh(connection, Last(0.0, 10_000))).result(60)
        live.until(lambda: live.reader.value(checksum) != was)
        assert served_model.version_in_use(live.reader) == 2
        # A trip of the first model is explained by the one in use.
        name = past.agent("p00").ids[0]
        told_of = live.service.explainer.submit(Task(*name)).result(60)
        assert told_of is not None
        assert queries.trip(live.reader, trip_name(*name)) is not None
    finally:
        live.end()
        store.close()
