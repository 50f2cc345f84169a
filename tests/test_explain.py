"""Explanations: past trips show the way on from where a trip left it, and each fix says how many came through."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from astray import IRLDetector, Trajectories
from astray.decide import ByHour
from astray.explain.ways import AHEAD, BESIDE, SHOWN, expected_ways, followed, ways_on
from astray.irl.actor import Actor
from astray.mdp.steps import Steps
from astray.mdp.view import View, ViewConfig

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


def test_it_does_not_matter_how_long_ago_the_trip_left() -> None:
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


def test_past_trips_that_came_along_for_long_count_most() -> None:
    joined = [np.concatenate([leg((2000, 3000), (0, -100), 30), leg((2000, 0), (100, 0), 30)])] * 2  # from the north
    track = leg((0, 0), (50, 0), 50)
    ways = followed([*joined, TURNS], track, np.tile(EAST, (50, 1)))
    assert ways[0][-1].tolist() == TURNS[-1].tolist()
    assert ways[1][-1].tolist() == joined[0][-1].tolist()


def test_on_a_round_trip_the_direction_of_travel_tells_which_time_it_is_meant() -> None:
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


def seen(trip: Trajectories) -> tuple[View, Steps]:
    view = View.of(trip, ViewConfig(), np.random.default_rng(0))
    return view, view.look(trip).steps


def test_the_policy_is_asked_only_where_no_past_trip_came() -> None:
    view, steps = seen(line(60, "t", 0))
    # A policy that goes east whatever the state (of six numbers) is.
    theta = np.zeros(6 * 2 + 2 + 2, np.float32)
    east = Actor(np.zeros(6), np.ones(6), np.array([5.0, 0.0]), np.full(2, 1e-6), (), theta)
    past = view.projection.to_degrees(np.array([[0.0, y] for y in range(-4000, 4000, 100)]))
    (way,) = expected_ways(steps, [30], [past], view, east)
    assert np.ptp(way[1]) < 1e-4
    assert way[0][-1] > way[0][0]
    ways = expected_ways(steps, [30], [], view, east)
    assert len(ways) == 5
    assert all(lon[-1] > lon[0] + 1e-3 for _, lon in ways)
    assert expected_ways(steps, [30], [], view, None) == []


def test_the_expected_way_ends_not_far_behind_the_trip() -> None:
    view, steps = seen(line(60, "t", 0))
    endless = view.projection.to_degrees(np.array([[0.0, y] for y in range(-2000, 200_000, 100)]))
    ((lat, _),) = expected_ways(steps, [30], [endless], view, None)
    rest = 4.5e-4 * 30 * 111_195
    assert (lat[-1] - lat[0]) * 111_195 == pytest.approx(max(2 * rest, SHOWN), abs=200.0)


@pytest.fixture(scope="module")
def walker() -> IRLDetector:
    past = Trajectories.concat([line(80, f"t{i}", i) for i in range(12)])
    return IRLDetector(iterations=1, seed=0).fit(past)


def test_each_fix_says_how_many_past_trips_came_through(walker: IRLDetector) -> None:
    known, elsewhere = line(80, "new", 30), line(80, "far", 30, lon=7.5)
    said = walker.explain(known)
    assert said.passed.shape == (80,)
    assert np.nanmax(said.passed) == 12.0
    assert (walker.explain(elsewhere).passed == 0.0).all()
    # A trip that is remembered does not count itself.
    assert np.nanmax(walker.explain(line(80, "t3", 3)).passed) == 11.0


def test_a_stretch_says_which_aspect_is_unusual_and_where_it_closes(walker: IRLDetector) -> None:
    said = walker.explain(line(80, "far", 30, lon=7.5))
    assert said.leave == said.eps / 2
    assert said.segments
    for stretch in said.segments:
        assert stretch.aspect in walker.posterior_.aspects
        assert (said.normality[stretch.start : stretch.stop] <= said.leave).all()
    assert said.aspect in walker.posterior_.aspects


def test_another_aspect_of_a_stretch_is_said_beside_that_of_the_trip(walker: IRLDetector) -> None:
    said = walker.explain(line(80, "far", 30, lon=7.5))
    (stretch, *_) = said.segments
    whole = replace(said, aspect="place", segments=(stretch,), score=-5.0, trip_normality=-5.0, worst_window=-3.0)
    alike = replace(whole, segments=(replace(stretch, aspect="place"),))
    assert alike.lowest == "over the whole trip: out of place"
    assert "\n  over the whole trip: out of place\n" in str(alike)
    other = replace(whole, segments=(replace(stretch, aspect="route"),))
    assert other.lowest == "over the whole trip: out of place; in stretch 1: unusual way"
    assert replace(alike, worst_window=-6.0, score=-6.0).lowest == "in the worst window: out of place"
    assert "out of place" not in str(replace(alike, score=0.0, segments=()))


def test_stretches_open_at_the_threshold_that_decides_on_the_trip(walker: IRLDetector) -> None:
    trip = line(80, "far", 30, lon=7.5)
    before = walker.explain(trip)
    lowest = min(float(np.nanmin(before.normality)), before.score)
    strict = IRLDetector.set_params(copy.copy(walker), eps=lambda trips: np.full(len(trips), lowest - 1.0))
    said = strict.explain(trip)
    assert (said.eps, said.leave) == (lowest - 1.0, (lowest - 1.0) / 2)
    assert said.decision == "normal"
    assert not said.segments
    by_hour = IRLDetector.set_params(copy.copy(walker), eps=ByHour({}, otherwise=-2.0))
    same, plain = by_hour.explain(trip), walker.explain(trip)
    assert [(s.start, s.stop) for s in same.segments] == [(s.start, s.stop) for s in plain.segments]
