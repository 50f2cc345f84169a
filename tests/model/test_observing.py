"""Learning on, trip by trip: what enters the memory, what waits, what is asked, and what an answer does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import astray
from astray import Detector, Trajectories, TripId
from astray.core.errors import DataError
from astray.features.memory import Memory
from astray.model.inbox import Inbox, ObservingConfig
from astray.model.observing import Question, alike, take_trip
from astray.simulate import city
from fitted import featurizer_of, memory_of


@pytest.fixture(scope="module")
def people() -> Trajectories:
    return city(people=3, days=35, seed=0).trips


def submitted(trips: Trajectories, agent: str, prefix: str) -> Trajectories:
    """Trips under another agent's name."""
    names = [f"{prefix}{i}" for i in range(len(trips))]
    return Trajectories(dict(trips.columns), trips.offsets, np.full(len(trips), agent), np.array(names), {})


@pytest.fixture
def detector(people: Trajectories) -> Detector:
    return Detector().fit(people.agent("p00")[:60])


def test_normal_trips_are_learned_and_flagged_ones_are_not(detector: Detector, people: Trajectories) -> None:
    own = people.agent("p00")[60:90]
    observed = detector.observe(own)
    learned = observed.table.filter(observed.table["became"] == "learned")
    assert len(learned) >= 0.8 * len(own)
    assert (
        detector.n_trips_
        == 60 + len(learned)
        == len(featurizer_of(detector).memory)
        == len(memory_of(detector).own.trips)
    )
    waiting = set(observed.table.filter(observed.table["became"] == "waiting")["trajectory"].to_list())
    assert waiting == {trip.trajectory for trip in memory_of(detector).inbox.waiting.trip_ids}
    assert not waiting & {trip.trajectory for trip in featurizer_of(detector).memory.trip_ids}


def test_what_a_trip_became_follows_from_its_score_at_that_time(detector: Detector, people: Trajectories) -> None:
    for i in range(60, 70):
        trip = people.agent("p00")[i : i + 1]
        flagged = detector.predict(trip)[0] < 0
        score = detector.score_samples(trip)[0]
        doubt = min(2.0 * sum(memory_of(detector).inbox.flags) / 20, 0.5)
        row = detector.observe(trip).table.row(0, named=True)
        assert (row["became"] == "waiting") == (flagged or row["p_value"] <= doubt)
        assert row["score"] == pytest.approx(score, abs=1e-6)


def test_the_more_was_flagged_lately_the_more_normal_a_trip_must_be_to_be_learned(
    detector: Detector, people: Trajectories
) -> None:
    own, theirs = people.agent("p00"), submitted(people.agent("p01")[:6], "p00", "x")
    trusting = Detector(observing={"doubt": 0.0}).fit(own[:60])
    for each in (detector, trusting):
        each.observe(theirs)
    assert sum(memory_of(detector).inbox.flags) >= 5
    learned = [each.observe(own[60:90]).table.filter(pl.col("became") == "learned") for each in (detector, trusting)]
    assert 0 < len(learned[0]) < len(learned[1])
    flags = memory_of(detector).inbox.flags
    assert len(flags) == 20
    # What waits in doubt was not flagged: it does not raise the doubt further.
    assert sum(flags) <= (detector.score(own[60:90])["decision"] != "normal").sum() + 6


def test_a_trip_that_is_known_is_not_learned_twice(detector: Detector, people: Trajectories) -> None:
    own = people.agent("p00")[60:64]
    detector.observe(own)
    n = detector.n_trips_
    assert set(detector.observe(own).table["became"]) == {"known"}
    assert detector.n_trips_ == n


def test_a_stranger_who_returns_is_asked_about_and_never_learned(detector: Detector, people: Trajectories) -> None:
    theirs = submitted(people.agent("p01")[:20], "p00", "x")
    observed = detector.observe(theirs)
    flagged = observed.table.filter(observed.table["became"] != "learned")
    assert len(flagged) >= 15
    assert observed.questions == detector.questions_
    assert 1 <= len(observed.questions) <= 2.0 + 0.05 * len(theirs)
    assert "new habit?" in str(observed.questions[0])
    assert "were flagged" in observed.drift[0]
    before = detector.score_samples(theirs[5:10])
    detector.answer(detector.questions_[0], mine=False)
    assert set(theirs.ids) & detector.anomalous_
    np.testing.assert_allclose(detector.score_samples(theirs[5:10]), before, atol=1e-6)
    again = submitted(people.agent("p01")[:20], "p00", "again")
    assert (detector.observe(again).table["became"] == "refused").sum() >= 5  # what is alike does not even wait


def test_a_new_habit_that_is_confirmed_becomes_normal(detector: Detector, people: Trajectories) -> None:
    theirs = submitted(people.agent("p01")[:20], "p00", "x")
    detector.observe(theirs)
    question = max(detector.questions_, key=lambda q: len(q.trips))
    later = submitted(people.agent("p01")[20:40], "p00", "later")
    before = detector.score_samples(later).mean()
    n = detector.n_trips_
    detector.answer(question, mine=True)
    assert detector.n_trips_ == n + len(question.trips)
    assert question.trips not in [q.trips for q in detector.questions_]
    assert detector.score_samples(later).mean() > before


def test_nobody_else_is_observed_in_the_agents_name(detector: Detector, people: Trajectories) -> None:
    n = detector.n_trips_
    with pytest.raises(DataError, match=r"the model is of p00, not of p01; give trips.agent\('p00'\)"):
        detector.observe(people[-20:] if "p01" in people[-20:].agents else people.agent("p01")[:3])
    assert detector.n_trips_ == n
    assert not detector.waiting_


def test_only_waiting_trips_can_be_answered(detector: Detector) -> None:
    with pytest.raises(DataError, match="no trip named 'p00/nothing' is among the 0 trips that wait for an answer"):
        detector.answer(Question("p00", (TripId("p00", "nothing"),)), mine=True)
    with pytest.raises(DataError, match="no trip was named"):
        detector.answer([], mine=True)


def test_a_file_holds_waiting_trips_and_questions(detector: Detector, people: Trajectories, tmp_path: Path) -> None:
    detector.observe(submitted(people.agent("p01")[:12], "p00", "x"))
    detector.save(tmp_path / "m.astray")
    loaded = astray.load(tmp_path / "m.astray")
    assert isinstance(loaded, Detector)
    assert loaded.questions_ == detector.questions_ != ()
    assert (memory_of(loaded).inbox.tokens, memory_of(loaded).inbox.flags) == (
        memory_of(detector).inbox.tokens,
        memory_of(detector).inbox.flags,
    )
    for kind in ("waiting", "rejected"):
        one, other = getattr(memory_of(loaded).inbox, kind), getattr(memory_of(detector).inbox, kind)
        assert one.trip_ids == other.trip_ids
        np.testing.assert_array_equal(one.keys, other.keys)
    more = submitted(people.agent("p01")[12:20], "p00", "y")
    assert loaded.observe(more).table.equals(detector.observe(more).table)


def test_a_fleet_observes_agent_by_agent(people: Trajectories, tmp_path: Path) -> None:
    fleet = Detector().fit(people[people.agent_ids != "p02"])
    fleet.enroll(people.agent("p02")[:80])
    with pytest.raises(DataError, match="not enrolled"):
        fleet.observe(submitted(people.agent("p00")[:1], "nobody", "x"))
    mixed = Trajectories.concat([people.agent("p02")[80:100], submitted(people.agent("p00")[:15], "p02", "x")])
    observed = fleet.observe(mixed)
    became = dict(zip(observed.table["trajectory"].to_list(), observed.table["became"].to_list(), strict=True))
    own = [became[t] for t in people.agent("p02")[80:100].trajectory_ids.tolist()]
    assert own.count("learned") >= 7  # after so many of somebody else's trips, what is not clearly normal waits
    assert sum(became[f"x{i}"] == "learned" for i in range(15)) <= 3
    assert {q.agent for q in fleet.questions_} <= {"p02"}
    fleet.save(tmp_path / "f.astray")
    loaded = astray.load(tmp_path / "f.astray")
    assert isinstance(loaded, Detector)
    assert loaded.questions_ == fleet.questions_
    for question in fleet.questions_:
        loaded.answer(question, mine=False)
        assert set(question.trips) <= loaded.anomalous_


def test_a_trip_that_was_seen_live_teaches_what_it_does_from_its_fixes(people: Trajectories) -> None:
    mine = people.agent("p00")
    fleet = Detector(iterations=1, seed=0).fit(people[~people.isin(mine[-2:].ids)])
    for trip in (mine[-2:-1], mine[-1:]):
        session = fleet.open("p00", stay=None, score_steps=False)
        for fix in zip(*(trip.columns[name].tolist() for name in ("time", "lat", "lon")), strict=True):
            session.update(fix)
        was = session._open
        assert was is not None
        final = session.close()
        assert final is not None
        assert was.seen is not None
        memory, common = fleet.memories_["p00"], fleet.world_.common
        (live, became), (again, same) = (
            take_trip("p00", memory, common, trip, False, final.p_value, seen) for seen in (was.seen, None)
        )
        assert became == same == "learned"
        np.testing.assert_array_equal(live.own.trips, again.own.trips)
        for name in ("keys", "trips", "times"):
            np.testing.assert_array_equal(*(getattr(one.counts, name) for one in (live, again)))


def test_a_reward_of_one_agent_cannot_learn_trip_by_trip(people: Trajectories) -> None:
    own = people.agent("p00")
    detector = Detector(preset="kdd19", iterations=1).fit(own[:10])
    with pytest.raises(DataError, match="partial_fit"):
        detector.observe(own[10:11])


def test_tokens_and_waiting_trips_are_bounded() -> None:
    inbox, config = Inbox(), ObservingConfig(most_waiting=9, lately=7)
    for i in range(12):
        one = Memory().add({f"t{i}": np.array([i], np.uint64)}, {f"t{i}": float(i)})
        inbox = inbox.with_flag(i % 2 == 0, config).add(one, config)
    assert inbox.waiting.trip_ids == tuple(f"t{i}" for i in range(3, 12))
    assert len(inbox.flags) == 7
    for _ in range(200):
        inbox = inbox.with_flag(False, config)
    assert inbox.tokens == config.most_tokens


def test_a_question_stays_open_as_long_as_it_is_about_several_trips() -> None:
    one, two, three, alone = (TripId("ana", name) for name in ("1", "2", "3", "alone"))
    inbox = Inbox(asked=((one, two, three), (alone,)))
    assert inbox.without([one]).asked == ((two, three), (alone,))
    assert inbox.without([one, two]).asked == ((alone,),)
    assert inbox.without([alone]).asked == ((one, two, three),)


def test_the_settings_of_observing_decide_when_the_model_asks(detector: Detector, people: Trajectories) -> None:
    """Of one agent and of a fleet: no tokens, no questions; a group of one is asked about at once."""
    own, theirs = people.agent("p00")[:60], submitted(people.agent("p01")[:12], "p00", "x")
    assert detector.observe(theirs).questions
    assert not Detector(observing={"together": 99}).fit(own).observe(theirs).questions
    alone = ObservingConfig(together=1, alike=1.0, tokens=1.0, tokens_a_trip=0.0)
    assert [len(q.trips) for q in Detector(observing=alone).fit(own).observe(theirs).questions] == [1]
    fleet = Detector(observing={"tokens": 0.0, "tokens_a_trip": 0.0}).fit(people[people.agent_ids != "p02"])
    assert fleet.memories_["p00"].inbox.tokens == 0.0
    assert not fleet.observe(submitted(people.agent("p02")[:12], "p00", "x")).questions
    with pytest.raises(DataError, match="no field named 'tokens_per_trip'"):
        Detector(observing={"tokens_per_trip": 1.0}).fit(people.agent("p00")[:10])


def test_alike_trips_share_a_tenth_of_what_is_new() -> None:
    one = np.arange(100, dtype=np.uint64)
    assert alike(one, one[-10:].copy(), 0.1)
    assert alike(one, np.arange(90, 190, dtype=np.uint64), 0.1)
    assert not alike(one, np.arange(91, 191, dtype=np.uint64), 0.1)
    assert not alike(one, one[:0], 0.1)


def test_waiting_trips_may_be_decided_on_by_an_update(detector: Detector, people: Trajectories) -> None:
    theirs = submitted(people.agent("p01")[:12], "p00", "x")
    detector.observe(theirs)
    first, second, *_ = memory_of(detector).inbox.waiting.trip_ids
    detector.partial_fit(anomalous=[first])
    assert first in detector.anomalous_
    assert first in memory_of(detector).inbox.rejected.trip_ids
    detector.partial_fit(theirs[theirs.ids.index(second)])
    assert second in (*featurizer_of(detector).memory.trip_ids, *detector.suspects_)
    assert not {first, second} & set(memory_of(detector).inbox.waiting.trip_ids)
    assert not {first, second} & {trip for question in detector.questions_ for trip in question.trips}
