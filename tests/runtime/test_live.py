"""Live sessions: the scores of an open trip, which end where scoring the whole file ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import astray
from astray import ByContext, ByHour, Detector, Trajectories
from astray.core.errors import DataError, NotFittedError
from astray.core.snapshot import Snapshot
from astray.features.memory import Forgetting, Memory
from astray.irl.posterior import RewardPosterior
from astray.irl.shared import trip_rewards
from astray.model.steps_world import Steps
from astray.runtime import Score, Session, TripScore
from astray.runtime.session import MAX_RATE
from astray.runtime.trip import TOGETHER, score_open
from astray.scoring.normality import trip_normality
from astray.scoring.scale_config import ScaleConfig
from astray.simulate import city
from fitted import QUICK, claimed, featurizer_of

Fix = tuple[float, float, float]

OWN: dict[str, Any] = {
    "preset": "kdd19",
    "iterations": 2,
    "config": {"updates": 5, "rollouts": 4, "clone_updates": 10},
    "seed": 0,
}
EPS = -0.5  # a third of normal trips is lower: what happens below it is seen in a few trips
METRE = 1 / 111_195.0  # a metre in degrees of latitude


def in_double(posterior: RewardPosterior) -> RewardPosterior:
    """Returns a reward in double precision, in which the reward of a row hardly depends on other rows."""
    return replace(
        posterior,
        mean=posterior.mean.astype(np.float64),
        scale=posterior.scale.astype(np.float64),
        layers=tuple((w.astype(np.float64), b.astype(np.float64)) for w, b in posterior.layers),
        prior=tuple((w.astype(np.float64), b.astype(np.float64)) for w, b in posterior.prior),
    )


def precisely(detector: Detector) -> None:
    """Makes a detector score in double precision."""
    reward = detector.reward_
    trip = None if reward.trip is None else in_double(reward.trip)
    world, precise = detector.fitted, replace(reward, step=in_double(reward.step), trip=trip)
    if isinstance(world, Steps):
        world.trained = replace(world.trained, reward=precise)
    else:
        world.reward = precise


@pytest.fixture(scope="module")
def people() -> Trajectories:
    return city(people=5, days=12, seed=0).trips


def one_of(people: Trajectories, population: Trajectories | None) -> Detector:
    own = people.agent("p00")[:-10]
    fitted = Detector(**QUICK, eps=EPS, seed=0).fit(own, population=population)
    precisely(fitted)
    return fitted


@pytest.fixture(scope="module")
def detector(people: Trajectories) -> Detector:
    """Fits a detector with a population."""
    others = people[np.isin(people.agent_ids, ["p01", "p03", "p04"])]
    fitted = one_of(people, others)
    assert featurizer_of(fitted).popularity.agents.trip_ids == ("p01", "p03", "p04")
    return fitted


@pytest.fixture(scope="module")
def alone(people: Trajectories) -> Detector:
    """Fits a detector without a population that decides by the false-alarm rate."""
    fitted = one_of(people, None)
    return fitted.set_params(eps=None)


@pytest.fixture(scope="module")
def raw(people: Trajectories) -> Detector:
    """Fits the paper's detector: a reward of steps learned from these trips, and no memory."""
    fitted = Detector(**OWN).fit(people.agent("p00")[:15])
    precisely(fitted)
    return fitted


@pytest.fixture(scope="module")
def fleet(people: Trajectories) -> Detector:
    fitted = Detector(**QUICK, seed=0).fit(people[people.agent_ids != "p04"])
    precisely(fitted)
    return fitted


@pytest.fixture(scope="module")
def unseen(people: Trajectories) -> Trajectories:
    """Returns trips of the agent, and of another person under its name."""
    return Trajectories.concat([people.agent("p00")[-5:], claimed(people.agent("p02")[-7:], "p00")])


def fixes_of(trips: Trajectories) -> list[Fix]:
    return list(zip(*(trips.columns[name].tolist() for name in ("time", "lat", "lon")), strict=True))


def as_trip(fixes: Sequence[Fix], agent: str = "p00", **context: list[str]) -> Trajectories:
    time, lat, lon = np.array(fixes).T
    return Trajectories({"time": time, "lat": lat, "lon": lon}, [0, len(time)], [agent], ["live"], context)


def live(session: Session, fixes: Iterable[Fix], name: str = "") -> tuple[list[Score], TripScore]:
    scores = [score for fix in fixes for score in session.push(fix, name)] + session.settle()
    final = session.close()
    assert final is not None
    return scores, final


def assert_equal(final: TripScore, detector: Detector, trip: Trajectories, tolerance: float = 1e-7) -> None:
    """Asserts that the final scores of a live trip, with the segment, are those of the table."""
    row = detector.score(trip).row(0, named=True)
    for name in ("normality", "uncertainty", "score", "p_value", "history"):
        expected = math.nan if row[name] is None else row[name]
        assert getattr(final, name) == pytest.approx(expected, abs=tolerance, nan_ok=True), name
    assert (final.aspect, final.decision) == (row["aspect"], row["decision"])
    if row["segment_start"] is None:
        assert final.segment is None
    else:
        said = (row["segment_start"].timestamp(), row["segment_end"].timestamp(), row["segment_normality"])
        assert final.segment == pytest.approx(said, abs=max(tolerance, 1e-6))  # times are rounded to microseconds


# ---------------------------------------------------------------- the same as the whole file


@pytest.mark.parametrize("which", ["detector", "alone"])
def test_a_finished_live_trip_has_the_scores_of_the_table(
    request: pytest.FixtureRequest, unseen: Trajectories, which: str
) -> None:
    detector: Detector = request.getfixturevalue(which)
    decisions, segments = set(), set()
    for i in range(len(unseen)):
        trip = unseen[i : i + 1]
        _, final = live(detector.open("p00", stay=None), fixes_of(trip))
        assert_equal(final, detector, trip)
        decisions.add(final.decision)
        segments.add(final.segment is None)
    assert len(decisions) > 1  # otherwise nothing was tested
    assert len(segments) > 1


def test_a_model_without_a_memory_scores_live_as_in_a_file(raw: Detector, people: Trajectories) -> None:
    for i in range(16, 20):
        trip = people.agent("p00")[i : i + 1]
        _, final = live(raw.open("p00", stay=None), fixes_of(trip))
        assert_equal(final, raw, trip, tolerance=1e-6)


def test_an_agent_of_the_population_is_not_counted_among_the_others_for_its_own_trips(
    detector: Detector, people: Trajectories
) -> None:
    trip = people.agent("p03")[-1:]
    _, final = live(detector.open("p03", stay=None), fixes_of(trip))
    assert_equal(final, detector, trip)
    _, as_another = live(detector.open("p00", stay=None), fixes_of(trip))
    assert as_another.normality != final.normality


def test_every_fix_has_the_scores_of_the_table_of_fixes(detector: Detector, unseen: Trajectories) -> None:
    table = detector.score_fixes(unseen)
    scores = [
        score
        for i in range(len(unseen))
        for score in live(detector.open("p00", stay=None), fixes_of(unseen[i : i + 1]))[0]
    ]
    for name in ("normality", "uncertainty"):
        np.testing.assert_allclose([getattr(s, name) for s in scores], table[name].to_numpy(), atol=1e-9)
    assert [s.aspect for s in scores] == table["aspect"].to_list()


def test_with_the_shipped_reward_live_and_file_scores_agree_to_single_precision(people: Trajectories) -> None:
    shipped = Detector().fit(people.agent("p00")[:-10])
    for i in (-1, -4):
        trip = people.agent("p00")[[i]]
        _, final = live(shipped.open("p00", stay=None), fixes_of(trip))
        assert_equal(final, shipped, trip, tolerance=1e-4)


@pytest.mark.parametrize("agent", ["p00", "p03"])
def test_a_fleet_scores_its_members_live_as_in_a_file(fleet: Detector, people: Trajectories, agent: str) -> None:
    moved = people.agent("p04")[-3:]
    for i in range(len(moved)):
        fixes = fixes_of(moved[i : i + 1])
        _, final = live(fleet.open(agent, stay=None), fixes)
        assert_equal(final, fleet, as_trip(fixes, agent))


def test_a_fleet_scores_a_stranger_with_no_history(fleet: Detector, people: Trajectories) -> None:
    trip = people.agent("p04")[:1]
    _, final = live(fleet.open("p04", stay=None), fixes_of(trip))
    assert final.history == 0.0
    assert final.decision in ("normal", "review")
    # Its projection is centred on the first fix, not on the middle of the trip.
    assert final.normality == pytest.approx(fleet.score_samples(trip)[0], abs=0.05)


def test_a_model_of_one_agent_calls_no_live_trip_of_another_normal(detector: Detector, people: Trajectories) -> None:
    trips = people.agent("p00")[-10:]
    normal = next(trips[i : i + 1] for i in range(len(trips)) if detector.decide(trips[i : i + 1])[0] == "normal")
    _, final = live(detector.open("stranger", stay=None), fixes_of(normal))
    assert (final.decision, final.history) == ("review", 0.0)


def test_a_fourier_encoder_scores_live_as_well(people: Trajectories) -> None:
    own = Detector(**OWN, encoder="fourier").fit(people.agent("p00")[:15])
    precisely(own)
    trip = people.agent("p00")[20:21]
    _, final = live(own.open("p00", stay=None), fixes_of(trip))
    assert_equal(final, own, trip, tolerance=1e-6)


def test_a_memory_without_a_trip_reward_scores_live_as_well(people: Trajectories) -> None:
    own = Detector(**OWN, encoder="familiarity").fit(people.agent("p00")[:15])
    precisely(own)
    assert own.reward_.trip is None
    trip = people.agent("p00")[20:21]
    _, final = live(own.open("p00", stay=None), fixes_of(trip))
    assert_equal(final, own, trip, tolerance=1e-6)


@pytest.mark.parametrize("steps", [True, False])
def test_trips_that_are_scored_together_score_as_each_alone(people: Trajectories, steps: bool) -> None:
    """They agree to the last bit in single precision, so a restart may group fixes in another way."""
    fleet = Detector(**QUICK, eps=EPS, seed=0).fit(people.without("p04"))
    trips = [people.agent(agent)[-k] for agent in people.agents for k in (1, 2)]
    assert len(trips) > TOGETHER

    def opened() -> list[Session]:
        return [fleet.open(trip.agents[0], score_steps=steps) for trip in trips]

    alone = [live(session, fixes_of(trip))[0] for session, trip in zip(opened(), trips, strict=True)]
    together: list[list[Score]] = [[] for _ in trips]
    sessions = opened()
    for i in range(max(map(len, alone))):
        some = [k for k, trip in enumerate(trips) if i < trip.n_rows]
        advanced = [sessions[k].begin(*fixes_of(trips[k])[i]) for k in some]
        score_open(due for k in some if (due := sessions[k].due) is not None)
        for k, advance in zip(some, advanced, strict=True):
            together[k].append(sessions[k].finish(advance))
    assert max(map(len, together)) > 50
    assert repr(together) == repr(alone)


def test_without_single_fixes_trips_score_the_same(detector: Detector, unseen: Trajectories) -> None:
    trip = unseen[0]
    steps, final = live(detector.open("p00"), fixes_of(trip))
    without, same = live(detector.open("p00", score_steps=False), fixes_of(trip))
    assert same == final._replace(segment=None)
    assert [score.trip for score in without] == [score.trip for score in steps]
    assert all(math.isnan(score.normality) and score.segment is None for score in without)


def test_live_scores_use_the_context(people: Trajectories) -> None:
    some = people.agent("p00")[:20]
    calls = np.array(["phone", "street"])[np.arange(20) % 2]
    marked = Trajectories(some.columns, some.offsets, some.agent_ids, some.trajectory_ids, {"call": calls})
    featurizer = {"context": {"categorical": ["call"], "time_of_day": True}}
    own = Detector(**OWN, featurizer=featurizer).fit(marked[:15])
    precisely(own)
    fixes = fixes_of(some[17:18])
    _, final = live(own.open("p00", stay=None, context={"call": "street"}), fixes)
    assert_equal(final, own, as_trip(fixes, call=["street"]), tolerance=1e-6)
    with pytest.raises(DataError, match="call"):
        own.open("p00")


def test_a_trip_of_one_fix_has_the_scores_of_the_table(detector: Detector, unseen: Trajectories) -> None:
    fixes = fixes_of(unseen[:1])[:1]
    _, final = live(detector.open("p00"), fixes)
    assert_equal(final, detector, as_trip(fixes))


# ---------------------------------------------------------------- the trip so far


def test_the_running_score_is_that_of_the_rows_so_far_measured_as_an_unfinished_trip(
    detector: Detector, unseen: Trajectories
) -> None:
    featurizer = featurizer_of(detector)
    assert featurizer is not None
    assert detector.reward_.trip is not None
    whole = fixes_of(unseen[:1])
    half = len(whole) // 2
    broken = whole[:half] + [(time + 7200.0, lat, lon) for time, lat, lon in whole[half:]]  # by a gap, under one name
    for fixes, name in ((whole, ""), (fixes_of(unseen[7:8]), ""), (broken, "t1")):
        scores, final = live(detector.open("p00", stay=None), fixes, name)
        assert_equal(final, detector, as_trip(fixes))
        rows, agent_model = featurizer.rows(as_trip(fixes)), detector.agent_model("p00", began=fixes[0][0])
        starts = rows.steps.time.tolist()[:-1]  # the last fix is a row of the whole trip alone
        for k, (begin, end) in enumerate(pairwise([*starts, math.inf])):
            prefix = rows.prefixes(np.array([(k + 0.5) / len(rows.steps)]))
            assert (len(prefix.steps), prefix.finished.tolist()) == (k + 1, [False])
            reward = trip_rewards(detector.reward_.trip, featurizer.measure(prefix)[1])
            expected = trip_normality(reward, agent_model.unfinished)
            said = [s for s in scores if begin <= s.time < end and s.time < rows.steps.time[-1]]
            assert said
            for s in said:  # between two looks the last one stands
                assert s.trip is not None
                assert s.trip.normality == pytest.approx(expected.normality[0], abs=1e-9)
                assert s.trip.p_value == pytest.approx(expected.p_value[0], abs=1e-9)
                assert s.trip.end == s.time


def test_an_open_trip_is_compared_with_past_trips_to_its_known_destination(
    detector: Detector, unseen: Trajectories
) -> None:
    featurizer = featurizer_of(detector)
    assert featurizer is not None
    assert detector.reward_.trip is not None
    fixes = fixes_of(unseen[:1])
    agent_model = detector.agent_model("p00", began=fixes[0][0])
    there, elsewhere = fixes[-1][1:], (fixes[0][1] + 0.02, fixes[0][2])
    rows = featurizer.rows(as_trip(fixes))
    half = rows.prefixes(np.array([0.5]))
    expected = {}
    for destination in (there, elsewhere, None):
        told = None if destination is None else np.array([featurizer.projection.place(*destination)])
        reward = trip_rewards(detector.reward_.trip, featurizer.measure(replace(half, destinations=told))[1])
        expected[destination] = trip_normality(reward, agent_model.unfinished).normality[0]
    assert len({round(float(n), 6) for n in expected.values()}) == 3
    until = float(half.steps.time[-1])
    for destination, normality in expected.items():
        session = detector.open("p00", stay=None)
        for k, fix in enumerate(fix for fix in fixes if fix[0] <= until):
            # It may become known on the way, and holds until another one is given.
            score = session.update(fix, "", elsewhere if k == 0 and destination else destination if k == 3 else None)
        assert score.trip is not None
        assert score.trip.normality == pytest.approx(normality, abs=1e-9)
        for fix in fixes:
            if fix[0] > until:
                session.update(fix)
        final = session.close()
        assert final is not None
        assert_equal(final, detector, as_trip(fixes))  # what counts in the end is where it did stop
        assert session.destination is None


@pytest.mark.parametrize("wrong", [(95.0, 7.0), (math.nan, 7.0)])
def test_a_destination_outside_the_globe_is_refused(detector: Detector, wrong: tuple[float, float]) -> None:
    with pytest.raises(DataError, match="latitude"):
        detector.open("p00").update((0.0, 45.0, 7.0), destination=wrong)


def test_the_scores_of_a_trip_so_far_do_not_depend_on_later_fixes(detector: Detector, unseen: Trajectories) -> None:
    fixes = fixes_of(unseen[2:3])
    whole, _ = live(detector.open("p00", stay=None), fixes)
    half, _ = live(detector.open("p00", stay=None), fixes[: len(fixes) // 2])
    assert str(half) == str(whole[: len(half)])


# ---------------------------------------------------------------- order and duplicates


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_order_and_duplication_within_the_window_ends_in_the_same_scores(
    detector: Detector, unseen: Trajectories, data: st.DataObject
) -> None:
    which = data.draw(st.integers(0, len(unseen) - 1))
    fixes = fixes_of(unseen[which : which + 1])[:60]
    reorder = data.draw(st.sampled_from([5.0, 30.0, 90.0]))
    # A fix arrives late by anything up to the window, some twice or three times.
    delays = data.draw(st.lists(st.floats(0, reorder * 0.99), min_size=len(fixes), max_size=len(fixes)))
    again = data.draw(st.lists(st.integers(0, len(fixes) - 1), max_size=10))
    sent = [(fix[0] + delay, fix) for fix, delay in zip(fixes, delays, strict=True)]
    sent += [(fixes[i][0] + data.draw(st.floats(0, reorder * 0.99)), fixes[i]) for i in again]
    arrived = [fix for _, fix in sorted(sent, key=lambda s: s[0])]
    _, final = live(detector.open("p00", reorder=reorder, stay=None), arrived)
    assert_equal(final, detector, as_trip(fixes))
    assert (final.fixes, final.faults) == (len(arrived), len(again))


def test_scores_come_in_the_order_of_time_when_the_window_has_passed(detector: Detector) -> None:
    session = detector.open("p00", reorder=10.0)
    assert session.push((20.0, 45.0, 7.0)) == []
    waiting = session.update((12.0, 45.0, 7.0))
    assert (waiting.pending, math.isnan(waiting.normality), waiting.trip) == (2, True, None)
    assert [s.time for s in session.push((31.0, 45.0, 7.0))] == [12.0, 20.0]
    assert session.update((41.5, 45.0, 7.0)).time == 31.0
    assert [s.time for s in session.settle()] == [41.5]


def test_a_fix_older_than_a_settled_one_is_late_and_changes_nothing(detector: Detector) -> None:
    session = detector.open("p00")
    session.update((100.0, 45.0, 7.0))
    before = session.trip
    score = session.update((99.0, 46.0, 7.0))
    assert score.fault == "late"
    assert session.trip == before


def test_of_two_positions_with_one_time_the_first_counts(detector: Detector) -> None:
    session = detector.open("p00")
    session.update((100.0, 45.0, 7.0))
    score = session.update((100.0, 45.0001, 7.0))
    assert score.fault == "repeated time"
    assert math.isnan(score.normality)
    assert score.trip is not None
    assert (score.trip.fixes, score.trip.faults) == (2, 1)


# ---------------------------------------------------------------- where trips begin and end


def walk(start: float, seconds: int, lat: float = 45.0, speed: float = 5.0) -> list[Fix]:
    """Returns a walk northwards, with a fix every ten seconds."""
    return [(start + s, lat + s * speed * METRE, 7.0) for s in range(0, seconds, 10)]


def test_a_gap_ends_the_trip_and_begins_another(detector: Detector) -> None:
    session = detector.open("p00")
    first, second = walk(0.0, 300), walk(5000.0, 300, lat=45.1)
    scores = [session.update(fix) for fix in first + second]
    assert [s.time for s in scores if s.ended] == [5000.0]
    ended = scores[len(first)].ended
    assert ended is not None
    assert (ended.ended, ended.fixes, ended.end) == ("gap", len(first), first[-1][0])
    assert_equal(ended, detector, as_trip(first))
    final = session.close()
    assert final is not None
    assert_equal(final, detector, as_trip(second))


def test_a_teleport_is_a_fault_and_does_not_count_as_behaviour(detector: Detector) -> None:
    fixes = walk(0.0, 600)
    session = detector.open("p00")
    wild = (fixes[30][0] + 1.0, 47.0, 9.0)
    scores = [session.update(fix) for fix in [*fixes[:31], wild, *fixes[31:]]]
    assert [s.fault for s in scores if s.fault] == ["teleport"]
    final = session.close()
    assert final is not None
    assert final.faults == 1
    assert_equal(final, detector, as_trip(fixes))


def test_a_receiver_that_wakes_up_elsewhere_begins_a_trip_there(detector: Detector) -> None:
    here, there = walk(0.0, 300), walk(300.0, 300, lat=48.0)
    session = detector.open("p00")
    scores = [session.update(fix) for fix in here + there]
    assert [s.fault for s in scores if s.fault] == ["teleport", "teleport"]
    ended = [s.ended for s in scores if s.ended]
    assert [e.ended for e in ended] == ["elsewhere"]
    assert_equal(ended[0], detector, as_trip(here))
    final = session.close()
    assert final is not None
    assert_equal(final, detector, as_trip(there[2:]))


def test_a_long_stay_ends_the_trip_and_leaving_begins_the_next(detector: Detector) -> None:
    way, there = walk(0.0, 600), 45.0 + 595 * 5.0 * METRE
    rest = [(600.0 + 60 * i, there + (i % 3) * 5 * METRE, 7.0) for i in range(60)]
    leaving = walk(rest[-1][0] + 10.0, 300, lat=there + 200 * METRE)
    session = detector.open("p00", stay=900.0, stay_radius=100.0)
    scores = [session.update(fix) for fix in way + rest + leaving]
    ended = [s.ended for s in scores if s.ended]
    assert [e.ended for e in ended] == ["stay"]
    assert 900.0 <= ended[0].end - 600.0 < 1000.0
    assert_equal(ended[0], detector, as_trip([f for f in way + rest if f[0] <= ended[0].end]))
    # While the agent rests nothing is scored, and no trip is open.
    resting = [s for s in scores if ended[0].end < s.time <= rest[-1][0]]
    assert resting
    assert all(s.trip is None and math.isnan(s.normality) for s in resting)
    final = session.close()
    assert final is not None
    assert final.start == rest[-1][0]
    assert_equal(final, detector, as_trip([rest[-1], *leaving]))


def test_a_stay_does_not_end_a_trip_if_stay_is_none(detector: Detector) -> None:
    session = detector.open("p00", stay=None)
    scores = [session.update((60.0 * i, 45.0, 7.0)) for i in range(100)]
    assert not any(s.ended for s in scores)


# ---------------------------------------------------------------- alerts


def test_normal_trips_rarely_alert_and_those_of_a_stranger_mostly_do_before_their_end() -> None:
    people = city(people=4, days=30, seed=1).trips
    alerted: dict[bool, list[bool]] = {True: [], False: []}
    for agent, stranger in zip(people.agents, people.agents[1:] + people.agents[:1], strict=True):
        detector = Detector().fit(people.agent(agent)[:-15])
        own, other = people.agent(agent)[-15:], people.agent(stranger)[-8:]
        for trips in (own, other):
            for i in range(len(trips)):
                session = detector.open(agent, stay=None)
                # Every other fix is as good and half as long; the last one is not waited for.
                told = [session.update(fix).alert for fix in fixes_of(trips[i : i + 1])[:-1:2]]
                alerted[trips is own].append(any(told))
    assert (len(alerted[True]), len(alerted[False])) == (60, 32)
    assert np.mean(alerted[True]) < 0.15
    assert np.mean(alerted[False]) > 0.6


def test_an_alert_opens_at_the_threshold_and_closes_half_way_back_to_normal(
    detector: Detector, people: Trajectories
) -> None:
    turns, unseen = set(), people.agent("p00")[-10:]
    for eps in (EPS, -0.1):
        for i in range(len(unseen)):
            scores, final = live(detector.open("p00", stay=None, eps=eps), fixes_of(unseen[i : i + 1]))
            assert not scores[0].alert
            for before, after in pairwise(scores):
                assert after.trip is not None
                score = after.trip.score
                if after.time - final.start < ScaleConfig.settled:
                    assert not after.alert
                elif before.alert != after.alert:
                    assert score <= eps if after.alert else score > eps / 2
                    turns.add(after.alert)
                if after.alert:
                    assert score <= eps / 2
    assert turns >= {"", "anomaly"}


def test_the_false_alarm_rate_decides_an_open_trip_by_unfinished_past_trips(
    alone: Detector, unseen: Trajectories
) -> None:
    rate, decisions = 0.2, set()
    for i in range(len(unseen)):
        session = alone.open("p00", false_alarm_rate=rate, stay=None)
        for s in live(session, fixes_of(unseen[i : i + 1]))[0]:
            assert s.trip is not None
            assert (s.trip.decision != "normal") == (s.trip.p_value <= rate)
            decisions.add(s.trip.decision)
    assert len(decisions) > 1


def test_an_alert_is_for_review_if_the_agent_has_little_history(fleet: Detector, people: Trajectories) -> None:
    session = fleet.open("nobody", eps=100.0, stay=None)
    scores, final = live(session, fixes_of(people.agent("p04")[:1]))
    assert final.decision == "review"
    assert {s.alert for s in scores} == {"", "review"}


def test_thresholds_may_depend_on_the_hour_or_the_context(detector: Detector) -> None:
    fixes = walk(3600.0 * 3, 300)
    by_hour = ByHour({3: 100.0}, otherwise=-100.0, utc_offset=0.0)
    assert live(detector.open("p00", eps=by_hour, gamma=100.0), fixes)[1].decision == "anomaly"
    assert (
        live(detector.open("p00", eps=by_hour), [(t + 7200.0, lat, lon) for t, lat, lon in fixes])[1].decision
        == "normal"
    )
    by_call = ByContext("call", {"street": 100.0}, otherwise=-100.0)
    for call, decision in (("street", "anomaly"), ("phone", "normal")):
        session = detector.open("p00", eps=by_call, gamma=100.0, context={"call": call})
        assert live(session, fixes)[1].decision == decision


def test_a_false_alarm_rate_decides_by_the_p_value(detector: Detector, unseen: Trajectories) -> None:
    rate, decisions = 0.1, set()
    for i in range(len(unseen)):
        trip = unseen[i : i + 1]
        _, final = live(detector.open("p00", false_alarm_rate=rate, stay=None), fixes_of(trip))
        assert final.decision == detector.decide(trip, false_alarm_rate=rate)[0]
        assert (final.decision != "normal") == (final.p_value <= rate)
        decisions.add(final.decision)
    assert len(decisions) > 1
    with pytest.raises(DataError, match="past trips"):
        detector.open("p00", false_alarm_rate=1e-6)
    with pytest.raises(DataError, match="share between"):
        detector.open("p00", false_alarm_rate=2.0)
    with pytest.raises(DataError, match="not both"):
        detector.open("p00", false_alarm_rate=0.1, eps=-2.0)


class TestRatesByAspect:
    """A rate for each aspect decides live as in a table."""

    RATES: ClassVar[dict[str, float]] = {"route": 0.2, "manner": 0.1}

    def low(self, trip: TripScore) -> bool:
        return any(trip.p_aspects[aspect] <= rate for aspect, rate in self.RATES.items())

    def test_a_finished_trip_is_decided_as_in_the_table(self, detector: Detector, unseen: Trajectories) -> None:
        decisions = set()
        for i in range(len(unseen)):
            trip = unseen[i : i + 1]
            (row,) = detector.score(trip, false_alarm_rate=self.RATES).rows(named=True)
            for score_steps in (True, False):
                session = detector.open("p00", false_alarm_rate=self.RATES, stay=None, score_steps=score_steps)
                _, final = live(session, fixes_of(trip))
                assert (final.decision, final.aspect) == (row["decision"], row["aspect"])
                assert (final.decision != "normal") == self.low(final)
                for aspect, p in final.p_aspects.items():
                    assert p == pytest.approx(row[f"p_{aspect}"], abs=1e-6)
            decisions.add(final.decision)
        assert len(decisions) > 1

    def test_an_alert_opens_with_an_aspect_and_closes_when_all_are_half_way_back(
        self, detector: Detector, unseen: Trajectories
    ) -> None:
        turns = set()
        for i in range(len(unseen)):
            session = detector.open("p00", false_alarm_rate=self.RATES, stay=None)
            scores, final = live(session, fixes_of(unseen[i : i + 1]))
            for before, after in pairwise(scores):
                assert after.trip is not None
                if after.time - final.start < ScaleConfig.settled:
                    assert not after.alert
                elif before.alert != after.alert:
                    assert self.low(after.trip) == bool(after.alert)
                    turns.add(after.alert)
                if after.alert and self.low(after.trip):
                    assert after.trip.aspect in self.RATES
        assert "anomaly" in turns

    def test_a_restart_keeps_the_rates_with_which_a_trip_began(self, detector: Detector, unseen: Trajectories) -> None:
        fixes = fixes_of(unseen[-1:])
        first = detector.open("p00", false_alarm_rate=self.RATES, stay=None)
        for fix in fixes[: len(fixes) // 2]:
            first.update(fix)
        again = detector.open("p00", false_alarm_rate=0.02, stay=None)
        again.restore(Snapshot(first.snapshot().numbers))
        for fix in fixes[len(fixes) // 2 :]:
            one, other = first.update(fix), again.update(fix)
            assert (one.alert, one.trip) == (other.alert, other.trip)
        assert first.close() == again.close()

    def test_rates_that_cannot_be_promised_are_refused_when_it_opens(self, detector: Detector) -> None:
        with pytest.raises(DataError, match=r"for manner cannot be told from"):
            detector.open("p00", false_alarm_rate={"place": 0.1, "manner": 1e-6})
        with pytest.raises(DataError, match="no aspect of the reward"):
            detector.open("p00", false_alarm_rate={"pace": 0.1})


# ---------------------------------------------------------------- what goes in


class Spot(NamedTuple):
    lon: float
    lat: float
    time: float


def test_a_fix_is_anything_with_time_lat_and_lon(detector: Detector) -> None:
    given = [(0.0, 45.0, 7.0), [0, 45, 7], {"lat": 45, "lon": 7, "time": 0}, Spot(7.0, 45.0, 0.0), np.array([0, 45, 7])]
    said = {detector.open("p00").update(fix).normality for fix in given}
    assert len(said) == 1


@pytest.mark.parametrize(
    "fix", [(0.0, 91.0, 0.0), (0.0, 0.0, 400.0), (math.nan, 0.0, 0.0), (0.0, math.inf, 0.0), {"time": 0}, "now", None]
)
def test_an_invalid_fix_is_refused_and_changes_nothing(detector: Detector, fix: object) -> None:
    session = detector.open("p00")
    session.update((0.0, 45.0, 7.0))
    before = session.snapshot().numbers.tobytes()
    with pytest.raises(DataError):
        session.update(fix)
    assert session.snapshot().numbers.tobytes() == before


def test_only_a_fitted_detector_of_gps_trips_can_be_opened() -> None:
    with pytest.raises(NotFittedError):
        Detector().open("p00")
    rng = np.random.default_rng(0)
    steps = Trajectories.from_steps([rng.normal(size=(20, 2)) for _ in range(8)], [rng.normal(size=(20, 1))] * 8)
    with pytest.raises(DataError, match="states and actions"):
        Detector(**OWN).fit(steps).open()


@pytest.mark.parametrize("wrong", [{"reorder": -1.0}, {"stay": 0.0}, {"stay_radius": -5.0}, {"reorder": math.nan}])
def test_settings_that_make_no_sense_are_refused(detector: Detector, wrong: dict[str, float]) -> None:
    with pytest.raises(DataError):
        detector.open("p00", **wrong)


# ---------------------------------------------------------------- state and bounds


def test_scoring_never_changes_the_model(people: Trajectories, tmp_path_factory: pytest.TempPathFactory) -> None:
    single = Detector(**QUICK, seed=0).fit(people[people.agent_ids == "p00"])
    folder = tmp_path_factory.mktemp("models")
    single.save(folder / "before")
    for agent in ("p00", "nobody"):
        live(single.open(agent), fixes_of(people.agent("p04")[:2]))
    single.save(folder / "after")
    assert (folder / "before").read_bytes() == (folder / "after").read_bytes()


@pytest.mark.parametrize(("which", "reorder"), [("detector", 0.0), ("detector", 20.0), ("alone", 0.0), ("raw", 0.0)])
def test_a_session_saved_and_restored_at_any_fix_continues_with_the_same_scores(
    request: pytest.FixtureRequest, unseen: Trajectories, which: str, reorder: float
) -> None:
    detector: Detector = request.getfixturevalue(which)
    there = fixes_of(unseen[2:3])
    end = there[-1]
    stay = [(end[0] + 30.0 * i, end[1], end[2]) for i in range(1, 30)]
    wild = [(stay[-1][0] + 5.0, 10.0, 10.0)]
    back = [(stay[-1][0] + 10.0 + t, end[1] + t * 10 * METRE, end[2]) for t in range(0, 200, 10)]
    fixes = there + stay + wild + back
    make: Callable[[], Session] = lambda: detector.open("p00", reorder=reorder, stay=600.0)  # noqa: E731
    whole = make()
    goals = [end[1:] if i % 40 == 5 else None for i in range(len(fixes))]
    expected = [s for fix, goal in zip(fixes, goals, strict=True) for s in whole.push(fix, "", goal)]
    session, said = make(), []
    for i, fix in enumerate(fixes):
        if i % 7 == 0:
            snapshot = Snapshot(session.snapshot().numbers)
            session = make()
            session.restore(snapshot)
        said += session.push(fix, "", goals[i])
    assert str(said) == str(expected)  # as text, for not a number equals nothing
    assert str(session.close()) == str(whole.close())


def test_an_open_trip_grows_by_one_row_per_interval_at_any_rate_of_fixes(alone: Detector) -> None:
    def size_after(seconds: int, every: float) -> int:
        session = alone.open("p00", stay=None)
        for t in np.arange(0.0, seconds, every).tolist():
            session.update((t, 45.0 + 3 * t * METRE, 7.0))
        return len(session.snapshot().numbers)

    # What is looked back at for five minutes is kept fix by fix, the rest is not.
    short, long = (size_after(seconds, 2.0) for seconds in (600, 1800))
    assert 0 < long - short < 50 * 1200 / 30
    assert size_after(1800, 6.0) - size_after(600, 6.0) == pytest.approx(long - short, abs=20)


@pytest.mark.parametrize("which", ["alone", "raw"])
def test_a_trip_of_too_many_rows_ends_and_the_next_begins_where_it_was(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    monkeypatch.setattr("astray.runtime.trip.MAX_ROWS", 40)
    detector: Detector = request.getfixturevalue(which)
    fixes = [(30.0 * i, 45.0 + 300 * i * METRE, 7.0) for i in range(100)]
    session = detector.open("p00")
    ended = [s.ended for s in map(session.update, fixes) if s.ended]
    assert [(e.ended, e.start, e.end) for e in ended] == [("long", 0.0, 39 * 30.0), ("long", 39 * 30.0, 78 * 30.0)]
    assert_equal(ended[0], detector, as_trip(fixes[:40]), tolerance=1e-6)
    final = session.close()
    assert final is not None
    assert_equal(final, detector, as_trip(fixes[78:]), tolerance=1e-6)


def test_a_live_trip_needs_no_look_up_table_of_its_agents_memory(people: Trajectories, tmp_path: Path) -> None:
    Detector().fit(people.agent("p00")[:-10]).save(tmp_path / "model")
    loaded = astray.load(tmp_path / "model")
    assert isinstance(loaded, Detector)
    memory, fixes = featurizer_of(loaded).memory, fixes_of(people.agent("p00")[-1:])
    live(loaded.open("p00", stay=None), fixes)
    assert "_index" not in vars(memory)  # which would be kept, for each of many agents
    loaded.score(as_trip(fixes))  # one trip of a table is looked up in the same way
    assert "_index" not in vars(memory)
    loaded.score(people.agent("p00"))
    assert "_index" in vars(memory)


def test_fixes_that_come_too_often_are_skipped(detector: Detector) -> None:
    session = detector.open("p00")
    scores = [session.update((0.001 * i, 45.0, 7.0)) for i in range(1000)]
    assert [s.fault for s in scores].count("too often") == 1000 - MAX_RATE
    assert session.update((1.0, 45.0, 7.0)).fault == ""


@pytest.mark.parametrize("forgetting", [Forgetting(), Forgetting(half_life=10.0)])
def test_bisection_counts_as_the_look_up_table_does(forgetting: Forgetting) -> None:
    rng = np.random.default_rng(0)
    trips = {f"t{i}": rng.integers(0, 50, 30).astype(np.uint64) for i in range(20)}
    memory = Memory(forgetting=forgetting).add(trips, {t: float(i) for i, t in enumerate(trips)})
    keys, without = np.arange(60, dtype=np.uint64), np.arange(60) % 21 - 1
    for held_out in (None, without):
        many = memory.counts(np.tile(keys, 2), None if held_out is None else np.tile(held_out, 2))
        assert "_index" in vars(memory)  # so many keys are looked up in the table, the few below by bisection
        np.testing.assert_array_equal(memory.counts(keys, held_out), many[:60])
