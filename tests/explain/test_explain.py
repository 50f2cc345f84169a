"""Explanations: why a trip scored as it did, the way on from where it left past trips, how many came through."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from astray import Detector, Trajectories
from astray.core.projection import Projection
from astray.core.settings import ASPECTS
from astray.explain import Explanation, Reason
from astray.explain.expected_route import AHEAD, BESIDE, SHOWN, expected_ways, followed, ways_on
from astray.explain.score_attribution import MATERIAL, columns, either_side, put_back, shapley
from astray.explain.segment_phrases import counts_in_words
from astray.explain.trip_phrases import PAST, PHRASES, Facts, alike
from astray.features.encoders import FamiliarityEncoder
from astray.features.familiarity import Habit
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.statistics import statistics_of
from astray.features.steps import Steps
from astray.features.trip_rows import TripHabit
from astray.irl.actor import Actor
from astray.scoring.decisions import ByHour
from fitted import featurizer_of

EAST, NORTH = np.array([10.0, 0.0]), np.array([0.0, 10.0])


def leg(start: tuple[float, float], step: tuple[float, float], n: int) -> np.ndarray:
    """A straight way: n places, a step apart."""
    return np.array(start) + np.arange(n)[:, None] * np.array(step)


ALONG = leg((0, 0), (100, 0), 60)  # 6 km eastwards
TURNS = np.concatenate([leg((0, 0), (100, 0), 30), leg((2900, 100), (0, 100), 30)])  # north after 2.9 km


# -------------------------------------------------------------------- ways on


def test_a_trip_is_followed_from_where_it_left_the_past_ways() -> None:
    track = np.concatenate([leg((0, 20), (50, 0), 41), leg((2000, -30), (0, -50), 30)])  # turns off southwards at 2 km
    velocity = np.concatenate([np.tile(EAST, (41, 1)), np.tile(-NORTH, (30, 1))])
    (way,) = followed([ALONG], track, velocity)
    assert np.abs(way[0] - [2000.0, 0.0]).max() <= BESIDE
    assert way[-1].tolist() == ALONG[-1].tolist()


def test_past_ways_that_led_the_other_way_are_not_followed() -> None:
    track = leg((0, 0), (50, 0), 40)
    assert followed([ALONG[::-1]], track, np.tile(EAST, (40, 1))) == []
    # Where nothing is known of the direction, they are.
    assert len(followed([ALONG[::-1]], track[-1:], np.zeros((1, 2)))) == 1


def test_past_ways_that_ended_there_or_passed_elsewhere_are_not_followed() -> None:
    place = np.array([1000.0, 0.0])
    assert ways_on([leg((0, 0), (100, 0), 11)], place, EAST) == []
    assert len(ways_on([leg((0, 0), (100, 0), 11 + int(AHEAD / 100))], place, EAST)) == 1
    assert ways_on([ALONG + np.array([0.0, BESIDE + 1.0])], place, EAST) == []


def test_the_expected_way_is_found_long_after_the_trip_left_the_past_ways() -> None:
    track = np.concatenate([leg((0, 0), (100, 0), 10), leg((900, -100), (0, -100), 900)])
    velocity = np.concatenate([np.tile(EAST, (10, 1)), np.tile(-NORTH, (900, 1))])
    (way,) = followed([ALONG], track, velocity)
    assert np.abs(way[0] - [900.0, 0.0]).max() <= 2 * BESIDE
    assert followed([ALONG], track[20:], velocity[20:]) == []


def test_the_most_travelled_way_comes_first_and_each_way_once() -> None:
    paths = [TURNS, ALONG + 5.0, ALONG - 5.0, ALONG, TURNS + 5.0]
    ways = ways_on(paths, np.array([1000.0, 0.0]), EAST)
    assert [np.hypot(*(way[-1] - end)) < 10.0 for way, end in zip(ways, (ALONG[-1], TURNS[-1]), strict=True)] == [
        True
    ] * 2
    assert len(ways_on(paths, np.array([1000.0, 0.0]), EAST, most=1)) == 1


def test_past_trips_that_followed_the_track_longest_count_most() -> None:
    joined = [np.concatenate([leg((2000, 3000), (0, -100), 30), leg((2000, 0), (100, 0), 30)])] * 2  # from the north
    track = leg((0, 0), (50, 0), 50)
    ways = followed([*joined, TURNS], track, np.tile(EAST, (50, 1)))
    assert ways[0][-1].tolist() == TURNS[-1].tolist()
    assert ways[1][-1].tolist() == joined[0][-1].tolist()


def test_on_a_round_trip_the_direction_of_travel_selects_the_pass() -> None:
    there_and_back = np.concatenate([ALONG, ALONG[::-1] + np.array([0.0, 10.0])])
    place = np.array([4000.0, 5.0])
    assert ways_on([there_and_back], place, EAST)[0][1].tolist() == [4100.0, 0.0]
    assert ways_on([there_and_back], place, -EAST)[0][1].tolist() == [3900.0, 10.0]


# -------------------------------------------------------------------- in an explanation


def line(n: int, name: str, day: int, lon: float = 7.0) -> Trajectories:
    """A trip northwards, a fix every ten seconds, about fifty metres apart."""
    time = 1.7e9 + 86_400.0 * day + 10.0 * np.arange(n)
    return Trajectories.from_fixes(
        time=time, lat=45 + 4.5e-4 * np.arange(n), lon=np.full(n, lon), agent="a", trajectory=name
    )


def seen(trip: Trajectories) -> tuple[Featurizer, Steps]:
    featurizer = Featurizer.of(trip, FeaturizerConfig(), np.random.default_rng(0))
    return featurizer, featurizer.featurize(trip).steps


def test_the_policy_is_used_only_where_no_past_trip_came_by() -> None:
    featurizer, steps = seen(line(60, "t", 0))
    # A policy that goes east whatever the state (of six numbers) is.
    theta = np.zeros(6 * 2 + 2 + 2, np.float32)
    east = Actor(np.zeros(6), np.ones(6), np.array([5.0, 0.0]), np.full(2, 1e-6), (), theta)
    past = featurizer.projection.to_degrees(np.array([[0.0, y] for y in range(-4000, 4000, 100)]))
    (way,) = expected_ways(steps, [30], [past], featurizer, east)
    assert np.ptp(way[1]) < 1e-4
    assert way[0][-1] > way[0][0]
    ways = expected_ways(steps, [30], [], featurizer, east)
    assert len(ways) == 5
    assert all(lon[-1] > lon[0] + 1e-3 for _, lon in ways)
    assert expected_ways(steps, [30], [], featurizer, None) == []


def test_the_expected_way_ends_not_far_behind_the_trip() -> None:
    featurizer, steps = seen(line(60, "t", 0))
    endless = featurizer.projection.to_degrees(np.array([[0.0, y] for y in range(-2000, 200_000, 100)]))
    ((lat, _),) = expected_ways(steps, [30], [endless], featurizer, None)
    rest = 4.5e-4 * 30 * 111_195
    assert (lat[-1] - lat[0]) * 111_195 == pytest.approx(max(2 * rest, SHOWN), abs=200.0)


@pytest.fixture(scope="module")
def walker() -> Detector:
    past = Trajectories.concat([line(80, f"t{i}", i) for i in range(12)])
    return Detector(iterations=1, seed=0).fit(past)


def test_each_fix_says_how_many_past_trips_came_through(walker: Detector) -> None:
    known, elsewhere = line(80, "new", 30), line(80, "far", 30, lon=7.5)
    said = walker.explain(known)
    assert said.passed.shape == (80,)
    assert np.nanmax(said.passed) == 12.0
    assert (walker.explain(elsewhere).passed == 0.0).all()
    # A trip that is remembered does not count itself.
    assert np.nanmax(walker.explain(line(80, "t3", 3)).passed) == 11.0


def test_a_segment_says_which_aspect_is_unusual_and_where_it_closes(walker: Detector) -> None:
    said = walker.explain(line(80, "far", 30, lon=7.5))
    assert said.leave == said.eps / 2
    assert said.segments
    for segment in said.segments:
        assert segment.aspect in walker.posterior_.aspects
        assert (said.normality[segment.start : segment.stop] <= said.leave).all()
    assert said.aspect in walker.posterior_.aspects


def test_the_words_name_the_aspect_of_the_trip_and_a_different_one_of_a_segment(walker: Detector) -> None:
    said = walker.explain(line(80, "far", 30, lon=7.5), eps=-2.0)
    (segment, *_) = said.segments
    whole = replace(said, aspect="place", segments=(segment,), score=-5.0, trip_normality=-5.0)
    alike = replace(whole, segments=(replace(segment, aspect="place"),))
    assert alike.lowest == "over the whole trip: out of place"
    assert "\n  over the whole trip: out of place\n" in str(alike)
    other = replace(whole, segments=(replace(segment, aspect="route"),))
    assert other.lowest == "over the whole trip: out of place; in segment 1: unusual way"
    assert "out of place" not in str(replace(alike, score=0.0, segments=()))


def test_segments_open_at_the_threshold_that_decides_on_the_trip(walker: Detector) -> None:
    trip = line(80, "far", 30, lon=7.5)
    before = walker.explain(trip)
    lowest = min(float(np.nanmin(before.normality)), before.score)
    strict = Detector.set_params(copy.copy(walker), eps=lambda trips: np.full(len(trips), lowest - 1.0))
    said = strict.explain(trip)
    assert (said.eps, said.leave) == (lowest - 1.0, (lowest - 1.0) / 2)
    assert said.decision == "normal"
    assert not said.segments
    plain = walker.explain(trip)
    by_hour = Detector.set_params(copy.copy(walker), eps=ByHour({}, otherwise=plain.eps))
    same = by_hour.explain(trip)
    assert [(s.start, s.stop) for s in same.segments] == [(s.start, s.stop) for s in plain.segments]


# -------------------------------------------------------------------- reasons

HOME, WORK, SHOP, GYM = (0.0, 0.0), (4000.0, 0.0), (1500.0, 2500.0), (-2000.0, 1500.0)
EIGHT, HALF_PAST_FIVE = 8 * 3600.0, 17.5 * 3600.0
TOWN = Projection(45.0, 7.0)


def drive(
    name: str, day: int, clock: float, *stops: tuple[float, float], speed: float = 8.0, agent: str = "ann"
) -> Trajectories:
    """A trip along some corners, in metres, at a local time of day; a fix every ten seconds."""
    corners, rng = np.array(stops), np.random.default_rng([day, round(clock)])
    reached = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(corners, axis=0).T))])
    along = np.arange(0.0, reached[-1], 10.0 * speed)
    xy = np.column_stack([np.interp(along, reached, column) for column in corners.T])
    lat, lon = TOWN.to_degrees(xy + rng.normal(0.0, 5.0, xy.shape))
    start = 19_000 * 86_400.0 + day * 86_400.0 + clock - TOWN.solar_offset
    return Trajectories.from_fixes(
        time=start + 10.0 * np.arange(len(along)), lat=lat, lon=lon, agent=agent, trajectory=name
    )


CORNER = (1500.0, 0.0)  # where the way to the shop leaves the one to work


def days(n: int) -> list[Trajectories]:
    """To work and back every day, and to the shop or the gym and back every other evening."""
    trips = []
    for day in range(n):
        late = 60.0 * (7 * day % 20)
        trips.append(drive(f"out{day}", day, EIGHT + late, HOME, WORK))
        trips.append(drive(f"back{day}", day, HALF_PAST_FIVE + late, WORK, HOME))
        there = (HOME, CORNER, SHOP) if day % 2 else (HOME, GYM)
        trips.append(drive(f"evening{day}", day, 19 * 3600.0 + late, *there))
        trips.append(drive(f"late{day}", day, 20.5 * 3600.0 + late, *there[::-1]))
    return trips


@pytest.fixture(scope="module")
def ann() -> Detector:
    return Detector(eps=-2.0, seed=0).fit(Trajectories.concat(days(28)))


def groups_of(said: Explanation) -> list[str]:
    return [reason.group for reason in said.reasons]


def test_the_scores_of_an_explanation_are_those_of_the_table(ann: Detector) -> None:
    trips = [drive("usual", 40, EIGHT, HOME, WORK), drive("new", 40, EIGHT, HOME, CORNER, (1500.0, -3000.0))]
    for trip in trips:
        said, (row,) = ann.explain(trip), ann.score(trip).rows(named=True)
        of_trip = {"normality": said.trip_normality, "uncertainty": said.trip_uncertainty}
        for name in ("score", "p_value", "aspect", "history", "decision"):
            of_trip[name] = getattr(said, name)
        assert of_trip == {name: row[name] for name in of_trip}


def test_a_trip_to_a_new_place_never_ended_there(ann: Detector) -> None:
    said = ann.explain(drive("new", 40, EIGHT, HOME, CORNER, (1500.0, -3000.0)))
    assert said.decision != "normal"
    assert "never ended here before (0 of 112 past trips)" in [reason.words for reason in said.reasons]
    assert "start" not in groups_of(said)
    assert str(said).splitlines()[1] == "  " + "; ".join(reason.words for reason in said.reasons)
    effects = [reason.effect for reason in said.reasons]
    assert effects == sorted(effects, reverse=True)
    assert min(effects) >= MATERIAL


def test_a_trip_of_somebody_else_is_entirely_new(ann: Detector) -> None:
    said = ann.explain(drive("strange", 40, EIGHT, (3000.0, 6000.0), (7000.0, 9000.0)))
    words = [reason.words for reason in said.reasons]
    assert "all of the way is new" in words
    assert {"never began here before (0 of 112 past trips)", "never ended here before (0 of 112 past trips)"} & set(
        words
    )
    assert "hour" not in groups_of(said)


def test_a_usual_trip_at_a_wrong_hour_names_the_hour(ann: Detector) -> None:
    said = ann.explain(drive("night", 40, 2.5 * 3600.0, HOME, WORK))
    assert said.decision != "normal"
    assert groups_of(said)[0] == "hour"
    assert said.reasons[0].words == "never under way at this hour before (0 of 112 past trips)"
    # An hour that is known, but not here.
    assert "at this hour" in ann.explain(drive("early", 40, 20.5 * 3600.0, HOME, WORK)).reasons[0].words


def test_a_speed_and_a_stop_are_named(ann: Detector) -> None:
    fast = ann.explain(drive("fast", 40, EIGHT, HOME, WORK, speed=40.0))
    assert groups_of(fast)[0] == "speed"
    waits = [drive("a", 40, EIGHT, HOME, (2000.0, 0.0)), drive("b", 40, EIGHT + 45 * 60.0, (2000.0, 0.0), WORK)]
    standing = np.linspace(waits[0].columns["time"][-1] + 10.0, waits[1].columns["time"][0] - 10.0, 240)
    lat, lon = (np.full(240, waits[1].columns[name][0]) for name in ("lat", "lon"))
    columns = {
        name: np.concatenate([waits[0].columns[name], middle, waits[1].columns[name]])
        for name, middle in (("time", standing), ("lat", lat), ("lon", lon))
    }
    stood = ann.explain(Trajectories.from_fixes(**columns, agent="ann", trajectory="stood"))
    assert stood.decision != "normal"
    assert {"duration", "standing"} & set(groups_of(stood))


def test_a_slow_trip_took_longer_than_those_between_the_same_places(ann: Detector) -> None:
    slow, usual = (drive(f"at{v}", 40, EIGHT, HOME, WORK, speed=v) for v in (2.5, 8.0))
    habit = alike("start", "stop", "duration", size=500.0)
    assert either_side(featurizer_of(ann), featurizer_of(ann).rows(slow), -1)[habit] == (28.0, 0.0)
    assert either_side(featurizer_of(ann), featurizer_of(ann).rows(usual), -1)[habit] == (0.0, 0.0)
    words = [reason.words for reason in ann.explain(slow).reasons]
    assert "took longer than all 28 past trips between these two places (27 minutes)" in words


def test_a_normal_trip_gives_no_reasons_in_words(ann: Detector) -> None:
    said = ann.explain(drive("usual", 40, EIGHT, HOME, WORK))
    assert said.decision == "normal"
    assert said.why == ""
    doubted = replace(
        said, decision="review", reasons=(Reason("one thing", 2.0, "end"), Reason("another", 1.0, "hour"))
    )
    assert doubted.why == "one thing; another"
    assert "\n  one thing; another\n" in str(doubted)


def test_the_reasons_mention_other_agents_if_they_matter(ann: Detector) -> None:
    featurizer = featurizer_of(ann)
    assert featurizer is not None
    crowd = Trajectories.concat(
        [drive(f"t{i}", 1, EIGHT, (0.0, 4000.0), (4000.0, 4000.0), agent=f"p{i}") for i in range(9)]
    )
    trip = drive("strange", 40, EIGHT, (0.0, 4000.0), (4000.0, 4000.0))
    seen = replace(featurizer_of(ann), popularity=featurizer.among(crowd).popularity).featurize(trip, every=False)
    assert seen.statistics is not None
    number = {column.what: i for i, column in enumerate(columns(featurizer.config.habits, featurizer.popularity.cells))}
    own = seen.statistics[0].astype(float)
    facts = Facts(number, featurizer.config.habits, featurizer.popularity.cells, own, own, 9)
    assert PHRASES["others"](facts) == "about 9 of 9 other agents go where the way is new"
    own[number[150.0, "where new"]] = 0.0
    assert PHRASES["others"](facts) == "none of 9 other agents goes where the way is new"


def test_two_rare_manners_of_a_segment_are_one_sentence_about_the_same_trips(ann: Detector) -> None:
    encoder = featurizer_of(ann).encoder
    assert isinstance(encoder, FamiliarityEncoder)
    counts = np.array([[20.0 if habit == Habit(cell=habit.cell) else 0.0 for habit in encoder.habits]])
    words, _ = counts_in_words(counts, encoder, -1)
    manners = "0 of the 20 trips around here went in this direction, and 0 of the 20 went at about this speed"
    assert words == f"20 of 112 past trips came through this street, 20 through this neighbourhood; {manners}"


def test_the_words_for_a_part_of_the_way_and_for_the_whole_way_differ() -> None:
    own, manner = np.zeros(len(KNOWN)), ("heading", "in this direction")
    facts = Facts(NUMBER, CONFIG.habits, CONFIG.popularity, own, own)
    own[NUMBER[Habit(cell=300, heading=True), "new"]] = 0.4
    assert facts.rarely(manner) == "40 % of the way was never travelled in this direction before"
    own[NUMBER[Habit(cell=300, heading=True), "new"]] = 1.0
    assert facts.rarely(manner) == "no part of the way was travelled in this direction before"


def test_rewards_without_a_trip_reward_are_explained_without_reasons() -> None:
    past = Trajectories.concat([line(40, f"t{i}", i) for i in range(6)])
    paper = Detector(preset="kdd19", iterations=1, seed=0).fit(past)
    said, (row,) = (
        paper.explain(line(40, "far", 30, lon=7.5)),
        paper.score(line(40, "far", 30, lon=7.5)).rows(named=True),
    )
    assert (said.trip_normality, said.score) == (row["normality"], row["score"])
    assert said.reasons == ()


# -------------------------------------------------------------------- what is put back

CONFIG = FeaturizerConfig()
KNOWN = columns(CONFIG.habits, CONFIG.popularity)
NUMBER = {column.what: i for i, column in enumerate(KNOWN)}


def test_the_columns_follow_the_order_of_the_statistics() -> None:
    def name(what: object) -> str:
        match what:
            case TripHabit():
                return what.name
            case (Habit() as habit, over):
                return f"{habit.name}: {over}"
            case (float() as size, over):
                return f"others {size:g} m: {over}"
        return str(what)

    assert [name(column.what) for column in KNOWN] == [s.name for s in statistics_of(CONFIG.habits, CONFIG.popularity)]
    assert {column.group for column in KNOWN} == {*PHRASES, ""}


def back(own: np.ndarray, typical: np.ndarray, *groups: str) -> np.ndarray:
    chosen = np.array([[name in groups for name in PHRASES]])
    return put_back(KNOWN, own, typical, chosen)[0]


def test_replacing_all_groups_gives_the_typical_trip_and_replacing_none_gives_the_trip(ann: Detector) -> None:
    assert ann.reward_.reference is not None
    typical = ann.reward_.reference.typical[3].astype(float)
    featurize = featurizer_of(ann).featurize(drive("new", 40, EIGHT, HOME, CORNER, (1500.0, -3000.0)), every=False)
    assert featurize.statistics is not None
    own = featurize.statistics[0].astype(float)
    others = np.isnan(own)
    assert others.any()  # nobody else is known: what is missing stays missing
    assert np.array_equal(back(own, typical), own, equal_nan=True)
    done = back(own, typical, *PHRASES)
    assert np.isnan(done[others]).all()
    past = NUMBER[PAST]
    others[past] = True
    assert np.allclose(done[~others], typical[~others])
    assert done[past] == own[past]  # the number of past trips is no reason


def test_the_hour_is_a_reason_only_at_known_places() -> None:
    typical = np.full(len(KNOWN), 3.0)
    stop, at_hour = NUMBER[alike("stop", size=500.0)], NUMBER[alike("stop", "hour", size=500.0)]
    typical[[stop, at_hour]] = 3.0, 2.0
    own = typical.copy()
    own[[stop, at_hour]] = 0.0, 0.0  # never here
    assert back(own, typical, "end")[at_hour] == 2.0
    assert back(own, typical, "hour")[at_hour] == 0.0
    own[[stop, at_hour]] = 3.0, 0.0  # often here, but never at this hour
    assert back(own, typical, "end")[at_hour] == 0.0
    assert back(own, typical, "hour")[at_hour] == 2.0


def test_the_direction_is_a_reason_only_on_known_ways() -> None:
    typical = np.zeros(len(KNOWN))
    place, heading = (NUMBER[habit, "new"] for habit in (Habit(cell=150), Habit(cell=300, heading=True)))
    own = typical.copy()
    own[[place, heading]] = 0.4, 0.4
    assert back(own, typical, "place")[heading] == 0.0
    own[[place, heading]] = 0.1, 0.7
    assert back(own, typical, "place")[heading] == pytest.approx(0.6)
    assert back(own, typical, "direction")[heading] == pytest.approx(0.1)


def test_the_effects_of_all_groups_sum_to_the_total_effect() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=2**4)
    effects = shapley(lambda sets: table[sets @ (1 << np.arange(4))], 4)
    assert effects.sum() == pytest.approx(table[-1] - table[0])


class TestAspects:
    """How unusual each aspect is by itself."""

    def test_an_explanation_says_it_in_one_line_the_rarest_first(self, ann: Detector) -> None:
        said = ann.explain(drive("new", 40, EIGHT, HOME, CORNER, (1500.0, -3000.0)))
        assert set(said.p_aspects) == set(ASPECTS)
        (line,) = [line.strip() for line in str(said).splitlines() if "is this unusual" in line]
        assert line == said.aspects_in_words
        rarest = min(said.p_aspects, key=lambda aspect: (said.p_aspects[aspect], aspect))
        assert line.startswith(f"{rarest}: about 1 normal trip in {1 / said.p_aspects[rarest]:.0f} is this unusual")

    def test_a_trip_flagged_by_an_aspect_has_reasons_for_that_aspect(self, ann: Detector) -> None:
        trip = drive("quick", 40, EIGHT, HOME, WORK, speed=20.0)
        by_score = ann.explain(trip, eps=-50.0)
        assert by_score.decision == "normal"
        said = ann.explain(trip, false_alarm_rate={"manner": 0.02})
        assert (said.decision, said.aspect, said.low_aspects) == ("anomaly", "manner", ["manner"])
        assert {"speed", "duration"} & set(groups_of(said))
        assert said.segments, "the worst part of a flagged trip"
        assert f"(p of manner {said.p_aspects['manner']:.2g} against 0.02, " in str(said)
