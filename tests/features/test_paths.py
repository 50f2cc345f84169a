"""From fixes to steps: faults told apart, gaps cut, and motion that does not depend on how often the receiver spoke."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from astray import Trajectories
from astray.core.faults import GOOD, REPEATED, TELEPORT, FaultFilter, FaultRules, find_faults
from astray.core.projection import EARTH_RADIUS, Projection
from astray.features.paths import locations_before, make_paths, paths_of, resample, trace
from astray.features.steps import Steps, steps_of

Array = NDArray[Any]


def path(time: ArrayLike, xy: ArrayLike) -> Trajectories:
    """One path."""
    time = np.asarray(time, np.float64)
    return make_paths(time, np.asarray(xy, np.float64), np.array([0, len(time)]))


def straight(time: ArrayLike, velocity: tuple[float, float] = (3.0, -4.0)) -> Trajectories:
    """Constant velocity from (100, 200) on."""
    time = np.asarray(time, np.float64)
    return path(time, np.array([100.0, 200.0]) + (time - time[0])[:, None] * np.array(velocity))


def paths(*parts: Trajectories) -> Trajectories:
    """Several paths, each a trip of its own."""
    return make_paths(
        np.concatenate([p.columns["time"] for p in parts]),
        np.concatenate([p.columns["xy"] for p in parts]),
        np.r_[0, np.cumsum([p.n_rows for p in parts])],
    )


# ---------------------------------------------------------------- projection

somewhere = st.tuples(st.floats(-85, 85), st.floats(-180, 180))


@settings(max_examples=100, deadline=None)
@given(somewhere, st.floats(-50e3, 50e3), st.floats(-50e3, 50e3))
def test_metres_to_degrees_and_back(centre: tuple[float, float], east: float, north: float):
    here = Projection(*centre)
    xy = np.array([[east, north]])
    np.testing.assert_allclose(here.to_metres(*here.to_degrees(xy)), xy, atol=1e-4)


@settings(max_examples=100, deadline=None)
@given(somewhere, st.floats(-2e3, 2e3), st.floats(-2e3, 2e3))
def test_distances_near_the_centre_are_great_circle_distances(centre: tuple[float, float], east: float, north: float):
    here = Projection(*centre)
    lat, lon = here.to_degrees(np.array([[east, north]]))
    a, b = np.radians(centre), np.radians([lat[0], lon[0]])
    haversine = np.sin((a[0] - b[0]) / 2) ** 2 + np.cos(a[0]) * np.cos(b[0]) * np.sin((a[1] - b[1]) / 2) ** 2
    assert np.hypot(east, north) == pytest.approx(2 * EARTH_RADIUS * np.arcsin(np.sqrt(haversine)), rel=3e-3, abs=1.0)


def test_the_centre_of_fixes_on_both_sides_of_the_antimeridian_lies_between_them():
    here = Projection.centred_on(np.array([10.0, 10.0, 10.0]), np.array([179.0, -179.0, 180.0]))
    assert abs(here.lon) == pytest.approx(180.0)
    # 359.5 and -0.5 degrees are one place.
    np.testing.assert_allclose(
        Projection(0, 0).to_metres(np.zeros(2), np.array([359.5, -0.5])), [[-55597.54, 0.0]] * 2, atol=0.01
    )


@pytest.mark.parametrize("pole", [90.0, -90.0])
def test_a_centre_at_a_pole_still_tells_longitudes_apart(pole: float):
    here = Projection(pole, 0.0)
    lat, lon = np.full(4, pole), np.array([-120.0, 0.0, 1.0, 90.0])
    xy = here.to_metres(lat, lon)
    assert (np.diff(xy[:, 0]) > 100.0).all()
    np.testing.assert_allclose(here.to_degrees(xy)[1], lon)


# ---------------------------------------------------------------- faults


def judge(time: ArrayLike, xy: ArrayLike, rules: FaultRules | None = None) -> tuple[list[int], list[bool]]:
    """The verdicts of the filter, one fix at a time."""
    one_by_one = FaultFilter(rules or FaultRules())
    verdicts = [one_by_one.update(float(t), float(x), float(y)) for t, (x, y) in zip(time, xy, strict=True)]
    return [v.fault for v in verdicts], [v.begins for v in verdicts]


wild_fix = st.tuples(
    st.sampled_from([0.0, 0.0, 1.0, 1.0, 2.5, 10.0, 60.0, 1199.0, 1201.0, 5000.0]),  # seconds since the last
    st.sampled_from([0.0, 0.0, 0.0, 10.0, 90.0, 100.0, 250.0, 1e3, 1e5]),  # metres moved
    st.integers(0, 3),  # in which direction
    st.booleans(),  # and back, the next time: a spike
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(wild_fix, min_size=1, max_size=25), min_size=1, max_size=4),
    st.builds(
        FaultRules,
        gap=st.sampled_from([30.0, 1200.0]),
        top_speed=st.sampled_from([10.0, 100.0]),
        confirmations=st.integers(1, 4),
    ),
)
def test_a_batch_is_judged_as_its_fixes_one_by_one(
    trips: list[list[tuple[float, float, int, bool]]], rules: FaultRules
):
    times, places, faults, begins = [], [], [], []
    for trip in trips:
        time, xy, at = [0.0], [np.zeros(2)], np.zeros(2)
        for seconds, metres, direction, spike in trip:
            move = metres * np.array([np.cos(direction * np.pi / 2), np.sin(direction * np.pi / 2)])
            time.append(time[-1] + seconds)
            xy.append(at + move)
            at = at if spike else at + move
        fault, begin = judge(time, xy, rules)
        times.append(time)
        places.append(xy)
        faults += fault
        begins += begin
    offsets = np.r_[0, np.cumsum([len(t) for t in times])]
    batch = find_faults(np.concatenate(times), np.concatenate(places), offsets, rules)
    assert batch[0].tolist() == faults
    assert batch[1].tolist() == begins


def test_an_aeroplane_is_fast_but_no_teleport():
    time = np.arange(0, 1200, 10.0)
    speed = np.clip(2.0 * time, 0, 250)  # 2 m/s^2 along the runway and after, then steady
    x = np.cumsum(speed * 10)
    fault, begins = judge(time, np.column_stack([x, 0.3 * x]))
    assert set(fault) == {GOOD}
    assert sum(begins) == 1


def test_a_spike_is_one_fault_and_the_trip_continues():
    time = np.arange(20) * 10.0
    xy = np.column_stack([time * 10, np.zeros(20)])
    xy[7] += 50_000
    fault, begins = judge(time, xy)
    assert fault == [TELEPORT if i == 7 else GOOD for i in range(20)]
    assert begins == [i == 0 for i in range(20)]


def test_a_receiver_that_wakes_up_elsewhere_begins_a_new_trip_once_confirmed():
    time = np.arange(10) * 10.0
    xy = np.column_stack([time * 10, np.zeros(10)])
    xy[5:] += 80_000
    fault, begins = judge(time, xy, FaultRules(confirmations=3))
    assert fault == [GOOD] * 5 + [TELEPORT] * 2 + [GOOD] * 3
    assert begins == [True] + [False] * 6 + [True] + [False] * 2


def test_a_receiver_that_jumps_about_confirms_nothing():
    rng = np.random.default_rng(0)
    time = np.arange(12) * 10.0
    xy = rng.uniform(-1e6, 1e6, (12, 2))
    xy[0] = 0.0
    assert judge(time, xy)[0] == [GOOD] + [TELEPORT] * 11


def test_a_receiver_that_flickers_between_two_places_stays_at_the_first():
    time = np.arange(20) * 10.0
    xy = np.column_stack([np.where(np.arange(20) % 2, 9e4, 0.0), np.zeros(20)])
    fault, begins = judge(time, xy)
    assert fault == [GOOD, TELEPORT] * 10
    assert sum(begins) == 1


def test_a_far_fix_sent_three_times_is_still_one_witness():
    fault, begins = judge([0, 10, 10, 10, 20], [[0, 0], [9e4, 0], [9e4, 0], [9e4, 0], [50, 0]])
    assert fault == [GOOD, TELEPORT, REPEATED, REPEATED, GOOD]
    assert sum(begins) == 1


def test_a_repeated_time_is_a_fault_and_a_silence_ends_the_trip():
    fault, begins = judge([0, 10, 10, 10 + 1200, 1211 + 1200], np.zeros((5, 2)), FaultRules(gap=1200))
    assert fault == [GOOD, GOOD, REPEATED, GOOD, GOOD]
    assert begins == [True, False, False, False, True]


# ---------------------------------------------------------------- from fixes to paths


def degrees(time: ArrayLike, xy: ArrayLike, centre: Projection, **names: Any) -> Trajectories:
    lat, lon = centre.to_degrees(np.asarray(xy, np.float64))
    return Trajectories.from_fixes(time=time, lat=lat, lon=lon, **names)


def test_gaps_split_a_trajectory_and_faults_are_left_out():
    here = Projection(45.0, 7.0)
    time = np.r_[0, 10, 10, 20, 5000, 5010, 0, 10]
    xy = np.column_stack([np.arange(8) * 5.0, np.zeros(8)])
    xy[3] += 1e5
    fixes = degrees(time, xy, here, trajectory=["x"] * 6 + ["y"] * 2)
    got, fault = paths_of(fixes, here)
    assert fault.tolist() == [0, 0, REPEATED, TELEPORT, 0, 0, 0, 0]
    assert got.context["trip"].tolist() == [0, 0, 1]
    assert got.trajectory_ids.tolist() == ["x", "x", "y"]
    assert got.lengths.tolist() == [2, 2, 2]
    assert got.columns["row"].tolist() == [0, 1, 4, 5, 6, 7]
    np.testing.assert_allclose(got.columns["xy"], xy[[0, 1, 4, 5, 6, 7]], atol=1e-6)


def test_no_fixes_have_no_paths():
    nothing = Trajectories.from_fixes(time=[], lat=[], lon=[])
    got, fault = paths_of(nothing, Projection(0, 0))
    assert len(got) == len(fault) == 0
    for same in (resample(got, 30.0), trace(got, 100.0)):
        assert len(same) == 0
    assert len(steps_of(got, 30.0, (60.0,))) == 0


def test_a_path_across_the_antimeridian_is_continuous():
    lon = np.r_[np.arange(179.99, 180.0, 0.001), np.arange(-180.0, -179.99, 0.001)]
    fixes = Trajectories.from_fixes(time=np.arange(len(lon)) * 10.0, lat=np.zeros(len(lon)), lon=lon)
    here = Projection.centred_on(fixes.columns["lat"], fixes.columns["lon"])
    got, fault = paths_of(fixes, here)
    assert not fault.any()
    assert len(got) == 1
    velocity = steps_of(got, 30.0).velocity[1:]
    np.testing.assert_allclose(velocity, np.tile([11.119508, 0.0], (len(velocity), 1)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("pole", [90.0, -90.0])
def test_a_walk_at_a_pole_stays_finite_and_near(pole: float):
    lon = np.linspace(-180, 180, 60)
    fixes = Trajectories.from_fixes(time=np.arange(60) * 60.0, lat=np.full(60, pole * 0.99999), lon=lon)
    here = Projection.centred_on(fixes.columns["lat"], fixes.columns["lon"])
    got, _ = paths_of(fixes, here)
    assert np.abs(got.columns["xy"]).max() < 40_000
    steps = steps_of(got, 30.0, (60.0,))
    assert np.isfinite(steps.state).all()
    assert np.isfinite(steps.velocity).all()


# ---------------------------------------------------------------- resampling and tracing


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.1, 300.0), min_size=1, max_size=30),
    st.sampled_from([0.0, 1.7e9]),
    st.sampled_from([1.0, 7.0, 30.0]),
)
def test_resampling_keeps_the_ends_and_spaces_the_points_evenly(gaps: list[float], epoch: float, interval: float):
    rng = np.random.default_rng(len(gaps))
    time = epoch + np.r_[0.0, np.cumsum(gaps)]
    original = path(time, rng.normal(scale=100, size=(len(time), 2)))
    got = resample(original, interval)
    new, duration = got.columns["time"], time[-1] - time[0]
    assert new[[0, -1]] == pytest.approx(time[[0, -1]], abs=1e-6)
    np.testing.assert_allclose(got.columns["xy"][[0, -1]], original.columns["xy"][[0, -1]], atol=1e-2)
    spacing = np.diff(new)
    np.testing.assert_allclose(spacing, duration / len(spacing), atol=1e-6)
    # As near to the interval as both end points allow: one piece more or less is not nearer.
    pieces = len(spacing)
    assert pieces == max(1, round(duration / interval)) or abs(pieces - duration / interval) <= 0.5 + 1e-6


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.1, 200.0), min_size=1, max_size=30), st.sampled_from([1.0, 13.0, 30.0]))
def test_interpolation_is_exact_on_a_straight_line_whatever_the_sampling(gaps: list[float], interval: float):
    got = resample(straight(np.r_[0.0, np.cumsum(gaps)]), interval)
    expected = np.array([100.0, 200.0]) + got.columns["time"][:, None] * np.array([3.0, -4.0])
    np.testing.assert_allclose(got.columns["xy"], expected, atol=1e-6)


def test_a_path_of_one_point_stays_one_point():
    got = resample(paths(path([5.0], [[1.0, 2.0]]), straight([0.0, 3.0])), 30.0)
    assert got.lengths.tolist() == [1, 2]
    assert got.columns["xy"][0].tolist() == [1.0, 2.0]


def test_many_paths_are_resampled_as_each_alone():
    rng = np.random.default_rng(1)
    parts = []
    for n in (1, 2, 40, 3, 1, 17):
        time = 1.6e9 + rng.uniform(0, 1e6) + np.cumsum(rng.integers(1, 60, n)).astype(float)
        parts.append(path(time, rng.normal(scale=1000, size=(n, 2))))
    for change in (lambda p: resample(p, 30.0), lambda p: trace(p, 50.0)):
        together = change(paths(*parts))
        for i, part in enumerate(parts):
            alone = change(part)
            np.testing.assert_allclose(together[i].columns["time"], alone.columns["time"], atol=1e-6)
            np.testing.assert_allclose(together[i].columns["xy"], alone.columns["xy"], atol=1e-3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-500, 500), st.floats(-500, 500)), min_size=1, max_size=20),
    st.sampled_from([20.0, 100.0]),
)
def test_a_trace_has_no_hole_wider_than_its_spacing_and_keeps_every_point(
    places: list[tuple[float, float]], spacing: float
):
    original = path(np.arange(len(places)) * 60.0, places)
    got = trace(original, spacing)
    assert (np.hypot(*np.diff(got.columns["xy"], axis=0).T) <= spacing + 1e-6).all()
    assert (np.diff(got.columns["time"]) > 0).all()
    kept = np.isin(got.columns["time"], original.columns["time"])
    np.testing.assert_array_equal(got.columns["xy"][kept], original.columns["xy"])
    # Points are put in on the straight line between their neighbours, in proportion to the time.
    expected = [np.interp(got.columns["time"], original.columns["time"], original.columns["xy"][:, k]) for k in (0, 1)]
    np.testing.assert_allclose(got.columns["xy"], np.column_stack(expected), atol=1e-6)


def test_a_trace_does_not_bridge_two_paths():
    got = trace(paths(straight([0.0, 10.0]), path([0.0, 10.0], [[9e5, 9e5], [9e5, 9e5]])), 10.0)
    assert got.lengths.tolist() == [6, 2]


def test_the_location_before_is_interpolated_and_stops_at_the_start():
    two = paths(straight([0.0, 10.0, 40.0]), path([1000.0], [[7.0, 7.0]]))
    now, before = locations_before(two, [0.0, 15.0])
    np.testing.assert_allclose(now, two.columns["xy"])
    np.testing.assert_allclose(before, [[100, 200], [100, 200], [100 + 3 * 25, 200 - 4 * 25], [7, 7]])


# ---------------------------------------------------------------- steps

SAMPLINGS = {
    "1 s": np.arange(0, 601, 1.0),
    "7 s": np.arange(0, 603, 7.0),
    "60 s": np.arange(0, 601, 60.0),
    "irregular": np.cumsum(np.random.default_rng(3).uniform(0.5, 90.0, 60)),
    "fractions at 2024": 1.7e9 + np.arange(0, 600, 0.7),
}


@pytest.mark.parametrize("time", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_straight_motion_has_one_velocity_however_it_is_sampled(time: Array):
    steps = steps_of(straight(time), 30.0)
    np.testing.assert_allclose(steps.velocity[1:], np.tile([3.0, -4.0], (len(time) - 1, 1)), atol=1e-5)
    assert steps.velocity[0].tolist() == [0.0, 0.0]
    assert steps.first.tolist() == [True] + [False] * (len(time) - 1)
    np.testing.assert_allclose(steps.elapsed, time - time[0])
    # The velocity looks back over the interval: less near the start, more where fixes are further apart.
    expected = np.maximum(np.minimum(30.0, time - time[0]), np.r_[0.0, np.diff(time)])
    np.testing.assert_allclose(steps.window, expected, atol=1e-6)


def test_the_velocity_of_a_turn_is_the_mean_over_the_interval():
    # 10 m/s east for 15 s, then 10 m/s north; at 30 s the mean is 5 m/s each way.
    steps = steps_of(path([0, 15, 30, 45], [[0, 0], [150, 0], [150, 150], [150, 300]]), 30.0)
    np.testing.assert_allclose(steps.velocity, [[0, 0], [10, 0], [5, 5], [0, 10]])


def test_the_state_is_where_the_step_began():
    steps = steps_of(straight(1000.0 + np.arange(0, 100, 10.0)), 30.0)
    state = steps.state[5]  # reached 50 s after the start, having looked back 30 s
    np.testing.assert_allclose(state, [100 + 3 * 20, 200 - 4 * 20, 100, 200, 20, 1020])
    # Location + velocity x window is the place reached: the dynamics are known.
    np.testing.assert_allclose(steps.state[:, :2] + steps.velocity * steps.window[:, None], steps.location)


def test_standing_still_has_no_velocity():
    steps = steps_of(path(np.arange(50) * 3.0, np.tile([5.0, 5.0], (50, 1))), 30.0, (60.0,))
    assert not steps.velocity.any()
    np.testing.assert_array_equal(steps.trail[:, 0], steps.location)


def test_a_trip_of_one_fix_and_of_two():
    one = steps_of(path([50.0], [[1.0, 2.0]]), 30.0, (60.0, 300.0))
    assert len(one) == 1
    assert one.first.tolist() == [True]
    assert one.velocity.tolist() == [[0.0, 0.0]]
    assert one.trail.tolist() == [[[1.0, 2.0], [1.0, 2.0]]]
    two = steps_of(path([0.0, 100.0], [[0.0, 0.0], [100.0, 0.0]]), 30.0)
    assert two.velocity.tolist() == [[0.0, 0.0], [1.0, 0.0]]
    assert two.window.tolist() == [0.0, 100.0]


def test_the_trail_is_where_the_agent_was():
    time = np.arange(0, 601, 10.0)
    steps = steps_of(straight(time), 30.0, (60.0, 300.0))
    for k, lag in enumerate((60.0, 300.0)):
        ago = np.maximum(time - lag, 0.0)
        np.testing.assert_allclose(steps.trail[:, k], np.array([100.0, 200.0]) + ago[:, None] * np.array([3.0, -4.0]))


def test_every_path_starts_anew():
    two = paths(straight([0.0, 10.0, 20.0]), straight([5000.0, 5010.0], (0.0, 1.0)))
    steps = steps_of(two, 30.0)
    assert steps.first.tolist() == [True, False, False, True, False]
    assert steps.elapsed.tolist() == [0, 10, 20, 0, 10]
    assert steps.trip.tolist() == [0, 0, 0, 1, 1]
    np.testing.assert_allclose(steps.velocity[3:], [[0, 0], [0, 1]])


def test_steps_are_chosen_and_put_together_again():
    steps = steps_of(straight(np.arange(10) * 10.0), 30.0, (60.0,))
    again = Steps.concat([steps[:4], steps[np.arange(4, 10)]])
    for name, values in vars(steps).items():
        np.testing.assert_array_equal(getattr(again, name), values)
