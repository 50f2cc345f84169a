"""Scoring in the service: which rows fixes become, in whatever order they come and whatever process is killed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.service import preferences, served_model
from astray.service.batches import MAX_AHEAD, Batch, FeedFix, Receipt, RefusedRow
from astray.service.preferences import Preferences, PreferencesError
from astray.service.review.erasure import erase, remove_old
from astray.service.review.explainer import Task, explain, unpacked
from astray.service.review.review_queue import TaughtError, give_verdict, undo_verdict
from astray.service.review.teach import teach_due
from astray.service.scoring.event_rows import trip_name
from astray.service.scoring.late import rescore_late
from astray.service.scoring.scorer import Limits, Scorer, stored_trip
from astray.service.store import Store, open_store
from astray.service.store.schema import OF_AN_AGENT
from astray.service.web import health, queries
from astray.simulate import city
from serving import fixes_of, schema, why_no_postgres

NOW = 2e9
KINDS = [
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.skipif(bool(why_no_postgres()), reason=why_no_postgres())),
]


@lru_cache(1)
def life() -> tuple[FeedFix, ...]:
    """A week of two people, thinned; then one of them goes the other's ways."""
    rows = fixes_of(city(people=2, days=8, seed=3).trips)[::7]
    odd = [dict(row, agent="p00", time=row["time"] + 20 * 86_400.0) for row in rows if row["agent"] == "p01"]
    return tuple(FeedFix(**row) for row in [*rows, *odd[:130]])


class Serving:
    """A store with a scorer, without threads and network: each group is one transaction, as in the service."""

    def __init__(self, store: Store, limits: Limits | None = None) -> None:
        self.store = store
        with store.writer.transaction():
            served_model.begin(store.writer, None)
        self.scorer = Scorer(store.writer, limits)

    def do(self, work: Callable[[Scorer], Any], now: float = NOW) -> Any:
        with self.store.writer.transaction():
            self.scorer.now = now
            found = work(self.scorer)
            self.scorer.write_agents()
        self.scorer.touched, self.scorer.news = {}, []
        return found

    def take(self, fixes: Sequence[FeedFix], refused: Sequence[RefusedRow] = ()) -> Receipt:
        (receipt,) = self.do(lambda scorer: scorer.take([Batch(list(fixes), list(refused))], NOW))
        return receipt

    def live(self, fixes: Sequence[FeedFix], after: Callable[[int], object] = lambda group: None) -> None:
        for i in range(0, len(fixes), 40):
            self.take(fixes[i : i + 40])
            after(i // 40)

    def tables(self) -> dict[str, list[Any]]:
        """What must not depend on how it came about."""
        wanted = {
            "agents": "agent, n, time, lat, lon, trip, normality, alert, trips, zone, late_from, drift",
            "fixes": "*",
            "events": "agent, trip, kind, ordinal, time, data",
            **dict.fromkeys(("trips", "alerts", "reviews", "memories", "scores", "outbox", "pins"), "*"),
        }
        rows = self.store.writer.rows
        return {table: sorted(rows(f"SELECT {what} FROM {table}"), key=repr) for table, what in wanted.items()}


def made_once(folder: Path, make: Callable[[Serving], object]) -> Path:
    """Makes a store, and closes it; tests work on copies of its folder, which costs far less."""
    serving = Serving(open_store(folder / "made"))
    make(serving)
    serving.store.close()
    return folder / "made"


@contextmanager
def copied(made: Path, folder: Path) -> Iterator[Serving]:
    """Opens a copy of a store."""
    serving = Serving(open_store(Path(shutil.copytree(made, folder / "copy"))))
    yield serving
    serving.store.close()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with ExitStack() as stack:
        url = stack.enter_context(schema()) if request.param == "postgres" else None
        opened = open_store(tmp_path / "store", url)
        yield opened
        opened.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "sqlite")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which everything of :func:`life` was scored."""
    return made_once(tmp_path_factory.mktemp("lived"), lambda serving: serving.live(life()))


@pytest.fixture(scope="module")
def undisturbed(lived: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with copied(lived, tmp_path_factory.mktemp("undisturbed")) as serving:
        yield serving


# -------------------------------------------------------------------- restarts


def test_restarts_between_groups_change_nothing(undisturbed: Serving, store: Store):
    serving = Serving(store)
    serving.live(life(), lambda group: serving.scorer.reopen() if group % 2 else None)
    assert serving.tables() == undisturbed.tables()


def test_evicted_agents_resume_where_they_were(undisturbed: Serving, sqlite: Store):
    serving = Serving(sqlite, Limits(held=1))
    serving.live(life())
    assert serving.tables() == undisturbed.tables()


def test_a_group_that_fails_leaves_nothing_behind(undisturbed: Serving, sqlite: Store):
    serving = Serving(sqlite)

    def fail(scorer: Scorer, fixes: list[FeedFix]) -> None:
        scorer.take([Batch(fixes, [])], NOW)
        raise OSError("the disk is full")

    fixes = list(life())
    for i in range(0, len(fixes), 40):
        some = fixes[i : i + 40]
        if i % 120 == 0:
            with pytest.raises(OSError, match="full"):
                serving.do(lambda scorer, some=some: fail(scorer, some))
            serving.scorer.reopen()
        serving.take(some)
    assert serving.tables() == undisturbed.tables()


def test_the_same_fixes_in_other_groups_give_the_same_trips(undisturbed: Serving, sqlite: Store):
    serving = Serving(sqlite)
    for i in range(0, len(life()), 333):
        serving.take(life()[i : i + 333])
    assert serving.tables()["trips"] == undisturbed.tables()["trips"]
    assert serving.tables()["memories"] == undisturbed.tables()["memories"]


# -------------------------------------------------------------------- scores


def test_the_scores_are_those_of_the_fleet_for_the_same_trips(undisturbed: Serving, sqlite: Store):
    serving, fixes = Serving(sqlite), [fix for fix in life() if fix.agent == "p01"]
    p_values = ("p_value", "p_place", "p_route", "p_manner", "p_time")
    asked = f"SELECT trip, started, ended, score, {', '.join(p_values)} FROM trips WHERE agent = 'p01' ORDER BY started"
    *_, (name, start, end, score, *stored) = undisturbed.store.writer.rows(asked)
    serving.live([fix for fix in fixes if fix.time <= start])  # the last of these ends the trip before
    fleet = served_model.ServedModel.open(sqlite.writer).detector
    table = fleet.score(stored_trip(undisturbed.store.writer, "p01", name, start, end))
    assert table["score"][0] == pytest.approx(score, abs=2e-3)
    assert table.select(p_values).row(0) == pytest.approx(stored, abs=2e-2)


def test_rates_by_aspect_of_the_settings_decide_and_explain(sqlite: Store):
    serving, rates = Serving(sqlite), {"place": 0.05, "time": 0.02}
    serving.do(lambda scorer: scorer.set_preferences(Preferences(false_alarm_rate=rates)))
    with sqlite.writer.transaction():
        preferences.save(sqlite.writer, Preferences(false_alarm_rate=rates))
    serving.live(life())
    asked = "SELECT trip, decision, aspect, p_place, p_time FROM trips WHERE agent = 'p00' AND history > 0"
    rows = sqlite.writer.rows(asked)
    low = {trip: place <= rates["place"] or time <= rates["time"] for trip, _, _, place, time in rows}
    assert {decision != "normal" for _, decision, *_ in rows} == {True, False}
    for trip, decision, aspect, *_ in rows:
        assert (decision != "normal") == low[trip]
        assert not low[trip] or aspect in rates
    flagged = next(trip for trip, is_low in low.items() if is_low)
    made = explain(sqlite.writer, Task("p00", flagged))
    assert made is not None
    assert unpacked(made.data)["rates"] == rates


def test_a_rate_that_the_model_cannot_promise_is_refused_before_it_is_used(sqlite: Store):
    scorer = Serving(sqlite).scorer
    for rate in (0.001, {"place": 0.1, "manner": 0.001}):
        with pytest.raises(PreferencesError, match="cannot be told from 100 past trips") as refused:
            scorer.check_preferences(Preferences(false_alarm_rate=rate))
        assert refused.value.field == "false_alarm_rate"
    scorer.check_preferences(Preferences(false_alarm_rate={"place": 0.01}))


def test_the_first_trips_are_learned_and_none_of_them_is_called_an_anomaly(undisturbed: Serving):
    asked = "SELECT decision, state, history FROM trips WHERE agent = 'p01' ORDER BY started LIMIT 5"
    first = undisturbed.store.writer.rows(asked)
    assert first[0][2] == 0
    assert all(decision != "anomaly" for decision, *_ in first)
    assert any(state == "learned" for _, state, _ in first)


def test_trips_of_somebody_else_wait_for_review_and_raise_a_question(undisturbed: Serving):
    rows = undisturbed.store.writer.rows("SELECT kind, agent, trips FROM reviews ORDER BY item")
    flagged = {trip for kind, agent, trips in rows if kind == "trip" for trip in json.loads(trips) if agent == "p00"}
    asked = {trip for kind, _, trips in rows if kind == "question" for trip in json.loads(trips)}
    assert len(flagged) >= 2
    assert asked <= flagged
    assert len(asked) >= 2
    told = dict(undisturbed.store.writer.rows("SELECT trip, decision FROM trips WHERE agent = 'p00'"))
    assert {told[trip] for trip in flagged} <= {"anomaly", "review"}
    alerts = undisturbed.store.writer.rows("SELECT trip, level, closed FROM alerts")
    assert {trip for trip, *_ in alerts} >= {trip for trip in flagged if told[trip] == "anomaly"}


# -------------------------------------------------------------------- feeds as they are


def test_a_batch_that_comes_twice_is_stored_once(sqlite: Store):
    serving = Serving(sqlite)
    some = life()[:30]
    assert serving.take(some) == Receipt(30, [], 0)
    before = serving.tables()
    assert serving.take(some) == Receipt(30, [], 30)
    assert serving.take([*some, *some]).duplicates == 60
    assert serving.tables() == before


def test_duplicates_within_a_batch_are_found(sqlite: Store):
    serving = Serving(sqlite)
    one = life()[0]
    elsewhere = one._replace(lat=one.lat + 0.001)
    assert serving.take([one, one, elsewhere, one]) == Receipt(4, [], 2)
    assert sqlite.writer.value("SELECT count(*) FROM fixes") == 2  # two positions with one time are both kept


def test_a_fix_from_the_future_is_refused_with_its_position(sqlite: Store):
    serving = Serving(sqlite)
    good, bad = life()[0], life()[1]._replace(time=NOW + 3600.0)
    receipt = serving.take([good, bad], [RefusedRow(0, "latitude outside [-90, 90]")])
    assert receipt.accepted == 1
    assert receipt.refused == [
        RefusedRow(0, "latitude outside [-90, 90]"),
        RefusedRow(2, "the fix is from the future", bad.agent),
    ]


def test_a_clock_a_few_minutes_ahead_is_accepted(sqlite: Store):
    serving, fix = Serving(sqlite), life()[0]
    assert serving.take([fix._replace(time=NOW + MAX_AHEAD - 1.0)]).accepted == 1
    assert serving.take([fix._replace(time=NOW + MAX_AHEAD + 1.0)]).accepted == 0


def test_new_agents_beyond_the_limit_are_refused(sqlite: Store):
    serving = Serving(sqlite, Limits(agents=3))
    fix = life()[0]
    receipt = serving.take([fix._replace(agent=f"x{i}") for i in range(10)])
    assert (receipt.accepted, len(receipt.refused)) == (3, 7)
    assert serving.take([fix._replace(agent="x1", time=fix.time + 60)]).accepted == 1  # a known agent is still accepted
    assert sqlite.writer.value("SELECT count(*) FROM agents") == 3


def test_a_late_batch_gives_the_same_trips_as_in_time(undisturbed: Serving, sqlite: Store):
    serving = Serving(sqlite)
    mine = [fix for fix in life() if fix.agent == "p01"]
    held = mine[len(mine) // 2 : len(mine) // 2 + 90]
    late = set(held)
    serving.live([fix for fix in life() if fix not in late])
    serving.live(held)
    serving.do(lambda scorer: rescore_late(scorer, NOW))
    cut = "SELECT agent, trip, started, ended, fixes, faults, why FROM trips ORDER BY agent, started"
    assert sqlite.writer.rows(cut) == undisturbed.store.writer.rows(cut)
    assert sqlite.writer.value("SELECT count(*) FROM trips WHERE late = 1") >= 1
    learned = [
        served_model.ServedModel.open(s.writer).detector.memories_["p01"].counts.trip_ids
        for s in (sqlite, undisturbed.store)
    ]
    assert set(learned[0]) == set(learned[1])
    assert sqlite.writer.value("SELECT count(*) FROM agents WHERE late_from IS NOT NULL") == 0
    ids = sqlite.writer.rows("SELECT agent, trip, count(*) FROM alerts WHERE late = 1 GROUP BY agent, trip")
    assert all(count == 1 for *_, count in ids)


def test_a_trip_that_arrives_last_fix_first_is_one_trip(sqlite: Store):
    serving = Serving(sqlite)
    agent = life()[0].agent
    first = [fix for fix in life() if fix.agent == agent][:60]
    for fix in reversed(first):
        serving.take([fix])
    serving.do(lambda scorer: rescore_late(scorer, NOW))
    other = Serving(open_store(sqlite.address.parent / "in order"))  # type: ignore[union-attr]
    other.take(first)
    state = "SELECT agent, time, trip FROM agents"
    assert sqlite.writer.rows(state) == other.store.writer.rows(state)
    assert sqlite.writer.rows("SELECT trip FROM trips") == other.store.writer.rows("SELECT trip FROM trips")
    other.store.close()


def test_the_trip_of_a_silent_agent_ends_and_a_late_fix_still_joins_it(sqlite: Store):
    serving = Serving(sqlite)
    mine = [fix for fix in life() if fix.agent == "p00"]
    gap = next(i for i in range(1, len(mine)) if mine[i].time - mine[i - 1].time > 1200)
    trip = mine[:gap]
    serving.take(trip[:-5])
    serving.do(lambda scorer: scorer.end_silent(NOW + 5000.0), NOW + 5000.0)
    asked = "SELECT fixes, why, late FROM trips"
    assert sqlite.writer.rows(asked) == [(len(trip) - 5, "gap", 0)]
    serving.take(trip[-5:])
    serving.take([mine[gap]])
    serving.do(lambda scorer: rescore_late(scorer, NOW))
    assert sqlite.writer.rows(f"{asked} ORDER BY started LIMIT 1") == [(len(trip), "gap", 1)]


def test_trips_named_by_the_feed_are_cut_by_name(sqlite: Store):
    serving = Serving(sqlite)
    mine = [fix for fix in life() if fix.agent == "p00"][:60]
    named = [fix._replace(trip="abc"[i // 20]) for i, fix in enumerate(mine)]
    serving.take(named)
    assert [name for (name,) in sqlite.writer.rows("SELECT trip FROM trips ORDER BY started")] == ["a", "b"]
    serving.take([named[10]._replace(time=named[10].time + 0.5)])  # one more of a trip that is over
    serving.do(lambda scorer: rescore_late(scorer, NOW))
    found = dict(sqlite.writer.rows("SELECT trip, fixes FROM trips"))
    assert found == {"a": 21, "b": 20}


# -------------------------------------------------------------------- verdicts


def flagged(serving: Serving) -> list[str]:
    asked = "SELECT item FROM reviews WHERE kind = 'trip' AND verdict IS NULL ORDER BY item"
    return [item for (item,) in serving.store.writer.rows(asked)]


@pytest.fixture
def reviewed(lived: Path, tmp_path: Path) -> Iterator[Serving]:
    with copied(lived, tmp_path) as serving:
        yield serving


def remembered(serving: Serving) -> set[str]:
    memory = served_model.ServedModel.open(serving.store.writer).detector.memories_["p00"].counts
    return {trip_name(*trip) for trip in memory.trip_ids}


def test_a_verdict_teaches_after_its_delay_and_can_be_undone_before(reviewed: Serving):
    item = flagged(reviewed)[0]
    teaches = reviewed.do(lambda s: give_verdict(s.connection, item, "normal", "ana", NOW, 600.0))
    assert teaches == NOW + 600.0
    reviewed.do(lambda s: teach_due(s, NOW + 599.0), NOW + 599.0)
    assert item not in remembered(reviewed)
    reviewed.do(lambda s: undo_verdict(s.connection, item))
    reviewed.do(lambda s: teach_due(s, NOW + 601.0), NOW + 601.0)
    assert item not in remembered(reviewed)
    assert item in flagged(reviewed)
    reviewed.do(lambda s: give_verdict(s.connection, item, "normal", "ana", NOW, 600.0))
    reviewed.do(lambda s: teach_due(s, NOW + 601.0), NOW + 601.0)
    assert item in remembered(reviewed)
    with pytest.raises(TaughtError):
        reviewed.do(lambda s: undo_verdict(s.connection, item))
    audit = reviewed.store.writer.rows("SELECT who, what, details FROM audit")
    assert audit == [("ana", "verdict: normal", item)]


def test_a_confirmed_anomaly_never_teaches(reviewed: Serving):
    before = remembered(reviewed)
    for item in flagged(reviewed):
        reviewed.do(lambda s, item=item: give_verdict(s.connection, item, "anomaly", "ana", NOW, 0.0))
    reviewed.do(lambda s: teach_due(s, NOW + 1.0), NOW + 1.0)
    assert remembered(reviewed) == before
    # The same ways again, later: they are not learned either.
    again = [fix for fix in life() if fix.time > life()[0].time + 15 * 86_400.0]
    reviewed.live([fix._replace(time=fix.time + 7 * 86_400.0) for fix in again])
    states = reviewed.store.writer.rows("SELECT state FROM trips WHERE started > ?", (again[-1].time + 3600.0,))
    assert states
    assert all(state != "learned" for (state,) in states)


def test_unsure_teaches_nothing_and_leaves_the_queue(reviewed: Serving):
    before, item = remembered(reviewed), flagged(reviewed)[0]
    reviewed.do(lambda s: give_verdict(s.connection, item, "unsure", "ana", NOW, 0.0))
    reviewed.do(lambda s: teach_due(s, NOW + 1.0), NOW + 1.0)
    assert remembered(reviewed) == before
    assert item not in flagged(reviewed)


def test_all_trips_of_a_confirmed_new_habit_are_learned(reviewed: Serving):
    (question,) = [i for (i,) in reviewed.store.writer.rows("SELECT item FROM reviews WHERE kind = 'question'")]
    trips = json.loads(reviewed.store.writer.value("SELECT trips FROM reviews WHERE item = ?", (question,)))
    reviewed.do(lambda s: give_verdict(s.connection, question, "normal", "ana", NOW, 0.0))
    reviewed.do(lambda s: teach_due(s, NOW + 1.0), NOW + 1.0)
    assert {trip_name("p00", trip) for trip in trips} <= remembered(reviewed)
    assert not set(flagged(reviewed)) & {trip_name("p00", trip) for trip in trips}


# -------------------------------------------------------------------- trips in doubt, and those nobody is asked about


@pytest.fixture(scope="module")
def lived_on(lived: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same store after trips of p00 at other hours: not flagged, but not clearly normal either."""
    own = [fix for fix in life() if fix.agent == "p00"][:200]
    folder = tmp_path_factory.mktemp("lived_on")
    with copied(lived, folder) as serving:
        serving.live([fix._replace(time=fix.time + 28 * 86_400.0 + 4 * 3600.0) for fix in own])
    return folder / "copy"


@pytest.fixture
def doubted(lived_on: Path, tmp_path: Path) -> Iterator[Serving]:
    with copied(lived_on, tmp_path) as serving:
        yield serving


def in_state(serving: Serving, state: str) -> list[str]:
    asked = "SELECT agent, trip FROM trips WHERE agent = 'p00' AND decision = 'normal' AND state = ? ORDER BY started"
    return [trip_name(*row) for row in serving.store.writer.rows(asked, (state,))]


def test_trips_in_doubt_come_after_flagged_trips_in_the_queue(doubted: Serving):
    found = queries.review(doubted.store.writer)
    kinds = [item["kind"] for item in found["items"]]
    doubts = [item for item in found["items"] if item["kind"] == "doubt"]
    assert {item["id"] for item in doubts} == set(in_state(doubted, "waiting"))
    assert len(doubts) >= 2
    assert "doubt" not in kinds[: -len(doubts)]
    assert [item["score"] for item in doubts] == sorted(item["score"] for item in doubts)
    assert all("not learned" in item["words"] for item in doubts)
    assert queries.review(doubted.store.writer, 1)["items"][0]["kind"] != "doubt"


def test_a_trip_in_doubt_called_normal_is_learned_and_counts_as_no_false_alarm(doubted: Serving):
    yes, no, *_ = in_state(doubted, "waiting")
    before = health._false_alarms(doubted.store.writer, "true", ())
    doubted.do(lambda s: give_verdict(s.connection, yes, "normal", "ana", NOW, 0.0))
    doubted.do(lambda s: give_verdict(s.connection, no, "anomaly", "ana", NOW, 0.0))
    doubted.do(lambda s: teach_due(s, NOW + 1.0), NOW + 1.0)
    assert yes in remembered(doubted)
    assert no not in remembered(doubted)
    assert not {yes, no} & {item["id"] for item in queries.review(doubted.store.writer)["items"]}
    assert health._false_alarms(doubted.store.writer, "true", ()) == before


def test_pages_get_events_about_trips_in_doubt_and_questions(sqlite: Store):
    serving, told = Serving(sqlite), set()
    own = [fix for fix in life() if fix.agent == "p00"]
    later = [fix._replace(time=fix.time + 28 * 86_400.0 + 4 * 3600.0) for fix in own[:200]]
    for fixes in (own, later):
        for i in range(0, len(fixes), 40):
            with sqlite.writer.transaction():
                serving.scorer.take([Batch(list(fixes[i : i + 40]), [])], NOW)
                serving.scorer.write_agents()
            told |= set(serving.scorer.news)
            serving.scorer.touched, serving.scorer.news = {}, []
    rows = sqlite.writer.rows("SELECT kind, item FROM reviews WHERE kind IN ('doubt', 'question')")
    assert {kind for kind, _ in rows} == {"doubt", "question"}
    assert {("review", item) for _, item in rows} <= told


def test_a_learned_trip_called_an_anomaly_is_unlearned(reviewed: Serving):
    item = in_state(reviewed, "learned")[3]
    assert item in remembered(reviewed)
    queued = queries.review(reviewed.store.writer)["total"]
    reviewed.do(lambda s: give_verdict(s.connection, item, "anomaly", "ana", NOW, 600.0))
    found = queries.review(reviewed.store.writer)
    assert (found["total"], [entry["id"] for entry in found["pending"]]) == (queued, [item])
    reviewed.do(lambda s: undo_verdict(s.connection, item))
    reviewed.do(lambda s: teach_due(s, NOW + 601.0), NOW + 601.0)
    found = queries.review(reviewed.store.writer)
    assert (found["total"], found["pending"]) == (queued, [])  # as if nothing had been said
    assert item in remembered(reviewed)
    reviewed.do(lambda s: give_verdict(s.connection, item, "anomaly", "ana", NOW, 600.0))
    reviewed.do(lambda s: teach_due(s, NOW + 601.0), NOW + 601.0)
    member = served_model.ServedModel.open(reviewed.store.writer).detector.memories_["p00"]
    assert item not in remembered(reviewed)
    assert item in {trip_name(*trip) for trip in member.inbox.rejected.trip_ids}
    assert item not in {trip_name(*trip) for trip in member.kept.ids}
    assert item not in in_state(reviewed, "learned")
    told = queries.trip(reviewed.store.writer, item)
    assert (told["state"], told["verdict"]["taught"]) == ("refused", True)
    with pytest.raises(TaughtError):
        reviewed.do(lambda s: undo_verdict(s.connection, item))
    # The same way at the same hour some weeks later: it is not learned either.
    start, end = (told[name] for name in ("start", "end"))
    again = [fix for fix in life() if fix.agent == "p00" and start <= fix.time <= end]
    reviewed.live([fix._replace(time=fix.time + 35 * 86_400.0) for fix in again])
    reviewed.do(lambda s: s.end_silent(NOW + 5000.0), NOW + 5000.0)
    state = "SELECT state FROM trips WHERE agent = 'p00' ORDER BY started DESC LIMIT 1"
    assert reviewed.store.writer.value(state) != "learned"


def test_late_fixes_do_not_teach_what_a_person_called_an_anomaly(reviewed: Serving):
    item = in_state(reviewed, "learned")[3]
    reviewed.do(lambda s: give_verdict(s.connection, item, "anomaly", "ana", NOW, 0.0))
    reviewed.do(lambda s: teach_due(s, NOW + 1.0), NOW + 1.0)
    start = queries.trip(reviewed.store.writer, item)["start"]
    middle = next(fix for fix in life() if fix.agent == "p00" and fix.time > start)
    reviewed.take([middle._replace(time=middle.time + 0.5)])
    reviewed.do(lambda s: rescore_late(s, NOW))
    told = queries.trip(reviewed.store.writer, item)
    assert (told["late"], told["state"]) == (True, "refused")
    assert item not in remembered(reviewed)


def test_a_learned_trip_takes_only_the_verdict_anomaly(reviewed: Serving):
    item = in_state(reviewed, "learned")[0]
    for verdict in ("normal", "unsure"):
        with pytest.raises(DataError, match="has learned this trip already"):
            reviewed.do(lambda s, verdict=verdict: give_verdict(s.connection, item, verdict, "ana", NOW, 0.0))
    for name in ("p00/2025", "p%300/2025", f"question/{item}"):
        with pytest.raises(LookupError):
            reviewed.do(lambda s, name=name: give_verdict(s.connection, name, "anomaly", "ana", NOW, 0.0))
    assert reviewed.store.writer.value("SELECT count(*) FROM reviews WHERE verdict IS NOT NULL") == 0


def test_unknown_verdicts_and_unknown_items_are_refused(reviewed: Serving):
    with pytest.raises(ValueError, match="no verdict"):
        reviewed.do(lambda s: give_verdict(s.connection, flagged(reviewed)[0], "perhaps", "ana", NOW, 0.0))
    with pytest.raises(LookupError):
        reviewed.do(lambda s: give_verdict(s.connection, "p00/nothing", "normal", "ana", NOW, 0.0))


def test_a_trip_is_scored_by_the_memory_at_its_start_even_after_a_restart(tmp_path: Path):
    """A verdict teaches while a trip is open; with and without a restart the trip scores the same."""
    fixes = [fix for fix in life() if fix.agent == "p00"]
    found = []
    for restart in (False, True):
        serving = Serving(open_store(tmp_path / str(restart)))
        serving.live(fixes[:-20])
        assert serving.store.writer.value("SELECT trip FROM agents") is not None  # a trip is open
        for item in flagged(serving):
            serving.do(lambda s, item=item: give_verdict(s.connection, item, "normal", "ana", NOW, 0.0))
        serving.do(lambda s: teach_due(s, NOW + 1.0), NOW + 1.0)
        assert serving.store.writer.value("SELECT count(*) FROM pins") == 1
        if restart:
            serving.scorer.reopen()
        serving.live(fixes[-20:])
        found.append(serving.tables())
        serving.store.close()
    assert found[0] == found[1]


# -------------------------------------------------------------------- erasing and keeping


def everything(store: Store) -> tuple[bytes, str]:
    """All that a store holds: its files as bytes, and of PostgreSQL all tables as text, with its samples of them."""
    if isinstance(store.address, Path):
        return b"".join(file.read_bytes() for file in store.address.parent.iterdir()), ""
    rows = store.writer.rows
    store.writer.run("CHECKPOINT")  # so that the files are what the server has in memory
    mine = "relnamespace = current_schema()::regnamespace"
    files = rows(
        "SELECT pg_read_binary_file(pg_relation_filepath(oid)) FROM pg_class "
        "WHERE pg_relation_filepath(oid) IS NOT NULL "
        f"AND ({mine} OR oid IN (SELECT reltoastrelid FROM pg_class WHERE {mine}))"
    )
    tables = [name for (name,) in rows(f"SELECT relname FROM pg_class WHERE relkind = 'r' AND {mine}")]
    assert set(tables) >= {"agents", *OF_AN_AGENT}
    held = [row for name in tables for row in rows(f"SELECT t::text FROM {name} t")]
    held += rows("SELECT s::text FROM pg_stats s WHERE schemaname = current_schema()")
    return b"".join(bytes(file) for (file,) in files), "\n".join(text for (text,) in held)


def test_an_erased_person_leaves_no_byte_and_one_line_of_audit(store: Store):
    serving, writer = Serving(store), store.writer
    secret = "wanderer-7f3a"
    serving.live([fix._replace(agent=secret) if fix.agent == "p00" else fix for fix in life()])
    item = flagged(serving)[0]
    serving.do(lambda s: give_verdict(s.connection, item, "normal", "ana", NOW, 0.0))
    serving.do(lambda s: teach_due(s, NOW + 1.0), NOW + 1.0)
    shared = {fix.lat for fix in life() if fix.agent == "p01"}
    places = [fix for fix in life() if fix.agent == "p00" and fix.lat not in shared][::50]
    on_disk = isinstance(store.address, Path)
    order = ">f8" if on_disk else "<f8"
    traces = [secret.encode(), *(np.array([place.lat], order).tobytes() for place in places)]
    words = [] if on_disk else [secret, *(repr(place.lat) for place in places)]
    if not on_disk:
        writer.run("ANALYZE")  # as the server does by itself: its statistics have names and places

    def found() -> list[bytes | str]:
        held, told = everything(store)
        return [*(trace for trace in traces if trace in held), *(word for word in words if word in told)]

    assert found() == [*traces, *words]
    rows = serving.do(lambda s: erase(s, secret, "operator"))
    store.scrub()
    assert rows > 400
    assert found() == []
    assert writer.rows("SELECT agent FROM agents") == [("p01",)]
    ((who, what, agent, details),) = writer.rows("SELECT who, what, agent, details FROM audit")
    assert (who, what, agent) == ("operator", "erased", None)
    assert "sha256:" in details
    with pytest.raises(LookupError):
        serving.do(lambda s: erase(s, secret, "operator"))
    serving.take([life()[-1]._replace(agent=secret)])  # an erased agent that comes again is new
    assert writer.value("SELECT n FROM agents WHERE agent = ?", (secret,)) == 1


def test_rows_beyond_the_retention_time_are_deleted_and_memories_stay(reviewed: Serving):
    serving, sqlite = reviewed, reviewed.store
    preferences.save(sqlite.writer, Preferences(retention_days=10))
    serving.scorer.set_preferences(Preferences(retention_days=10))
    last = max(fix.time for fix in life())
    before = sqlite.writer.value("SELECT trips FROM agents WHERE agent = 'p01'")
    assert serving.do(lambda s: remove_old(s, last)) > 0
    assert sqlite.writer.value("SELECT min(ended) FROM trips") > last - 10 * 86_400.0
    assert sqlite.writer.value("SELECT count(*) FROM fixes WHERE agent = 'p01'") < 60  # of the trip under way
    assert sqlite.writer.value("SELECT trips FROM agents WHERE agent = 'p01'") == before
    assert serving.do(lambda s: remove_old(s, last)) == 0


def test_a_store_takes_one_model_and_refuses_another(tmp_path: Path):
    trips = city(people=2, days=6, seed=1).trips
    fleet = served_model.blank_model()
    fleet.enroll(trips)
    for name, some in (("one", trips), ("other", trips[:-1])):
        fleet = served_model.blank_model()
        fleet.enroll(Trajectories.concat([some]))
        fleet.save(tmp_path / f"{name}.astray")
    store = open_store(tmp_path / "store")
    with store.writer.transaction():
        served_model.begin(store.writer, tmp_path / "one.astray")
    known = served_model.ServedModel.open(store.writer).detector
    assert known.agents == ["p00", "p01"]
    assert known.score(trips[:3]).equals(served_model.load(tmp_path / "one.astray").score(trips[:3]))
    served_model.begin(store.writer, tmp_path / "one.astray")
    served_model.begin(store.writer, None)
    with pytest.raises(ValueError, match="another model"):
        served_model.begin(store.writer, tmp_path / "other.astray")
    store.close()
