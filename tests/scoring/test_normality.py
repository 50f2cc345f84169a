"""From rewards to scores: closed forms, brute force, and p-values that keep their promise."""

from __future__ import annotations

import subprocess
import sys
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.irl.posterior import RewardPosterior, combined
from astray.scoring.lengths import LengthScale, lowest_of, so_far
from astray.scoring.normality import (
    Calibration,
    Location,
    Sample,
    calibrate,
    locate,
    lowest_aspect,
    mean_normality,
    over_heads,
    shrunk,
    step_normality,
    trip_normality,
)
from astray.scoring.segments import Segment, segments
from astray.scoring.windows import Runs, lowest_windows

Array = NDArray[Any]


def rewarded(n_trips: int, seed: int = 0, heads: int = 4, aspects: int = 1) -> dict[str, Array]:
    """Rewards (rows, aspects, heads) of trips of different lengths and rates, as a detector has them."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 60, n_trips)
    since = [np.r_[0.0, rng.integers(1, 60, m - 1)] for m in lengths]
    level = rng.normal(size=(n_trips, aspects, 1))
    trip = np.repeat(np.arange(n_trips), lengths)
    noise = rng.normal(size=(len(trip), aspects, heads)) + 0.3 * rng.normal(size=heads)
    return {
        "rewards": level[trip] + noise,
        "trip": trip,
        "time": np.concatenate([1.7e9 + k * 86_400 + np.cumsum(s) for k, s in enumerate(since)]),
        "weight": np.concatenate([np.minimum(s, 30.0) for s in since]),
    }


# ---------------------------------------------------------------- the scale


def test_r_bar_and_sigma_bar_are_the_mean_and_the_deviation_of_the_mean_reward():
    data = rewarded(30)
    calibration = calibrate(**data)
    mean_reward = data["rewards"][:, 0].mean(axis=1)
    assert calibration.step.centre == pytest.approx(mean_reward.mean())
    assert calibration.step.spread == pytest.approx(mean_reward.std())
    n, spread, _ = step_normality(data["rewards"], calibration)
    np.testing.assert_allclose(n, (mean_reward - mean_reward.mean()) / mean_reward.std())
    np.testing.assert_allclose(spread, data["rewards"][:, 0].std(axis=1) / mean_reward.std())
    assert n.mean() == pytest.approx(0.0, abs=1e-9)
    assert n.std() == pytest.approx(1.0)


def test_left_out_trips_are_the_unit_of_trip_scores():
    data = rewarded(50)
    calibration = calibrate(**data)
    scores = mean_normality(**data, calibration=calibration, n_trips=50)
    assert scores.normality.mean() == pytest.approx(0.0, abs=1e-9)
    assert scores.normality.std() == pytest.approx(1.0)
    assert scores.score.mean() == pytest.approx(0.0, abs=1e-9)  # the lower of mean and window, in its own units
    assert scores.score.std() == pytest.approx(1.0)
    assert (np.argsort(scores.score) != np.argsort(scores.normality)).any()  # a window that is worse decides
    np.testing.assert_array_equal(np.sort(scores.score), calibration.normal.scores)


def test_the_papers_trip_score_is_the_plain_mean_of_n():
    data = rewarded(20)
    calibration = calibrate(**data, scale="step")
    scores = mean_normality(**data, calibration=calibration, n_trips=20)
    n = step_normality(data["rewards"], calibration).normality
    means = [np.average(n[data["trip"] == k], weights=data["weight"][data["trip"] == k]) for k in range(20)]
    np.testing.assert_allclose(scores.normality, means)
    np.testing.assert_array_equal(scores.score, scores.normality)  # and it alone decides
    with pytest.raises(DataError, match="scale is 'week'; give 'trip' or 'step'"):
        calibrate(**data, scale="week")


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize(("factor", "offset"), [(1e3, 0.0), (0.01, 7.0), (3.0, -1e4)])
def test_scores_do_not_depend_on_the_scale_and_zero_of_the_reward(robust: bool, factor: float, offset: float):
    left_out, new = rewarded(40, seed=1), rewarded(15, seed=2)
    results = []
    for a, b in ((1.0, 0.0), (factor, offset)):
        calibration = calibrate(**{**left_out, "rewards": a * left_out["rewards"] + b}, robust=robust)
        rewards = a * new["rewards"] + b
        scores = mean_normality(**{**new, "rewards": rewards}, calibration=calibration, n_trips=15)
        results.append([*step_normality(rewards, calibration), *scores])
    for before, after in zip(*results, strict=True):
        np.testing.assert_allclose(after, before, atol=1e-6)


def test_the_uncertainty_of_a_trip_is_the_deviation_of_its_mean_over_the_heads():
    calibration = calibrate(**rewarded(30, seed=1))
    data = rewarded(10, seed=3)
    scores = mean_normality(**data, calibration=calibration, n_trips=10)
    for k in range(10):
        own = data["trip"] == k
        per_head = np.average(data["rewards"][own, 0], axis=0, weights=data["weight"][own])
        n = calibration.step.standardise(per_head)
        unit = calibration.by_length.standardise(0.0, 0.0, data["weight"][own].sum())[2]
        assert scores.uncertainty[k] == pytest.approx(n.std() / (unit * calibration.trip.spread))
    agreed = {**data, "rewards": np.repeat(data["rewards"][:, :, :1], 4, axis=2)}
    assert mean_normality(**agreed, calibration=calibration, n_trips=10).uncertainty == pytest.approx(0.0, abs=1e-12)


def test_the_robust_scale_bears_five_per_cent_of_wild_values():
    rng = np.random.default_rng(0)
    values = rng.normal(10.0, 2.0, 4000)
    clean = locate(values, robust=True)
    assert clean.centre == pytest.approx(10.0, abs=0.15)
    assert clean.spread == pytest.approx(2.0, rel=0.05)  # for a Gaussian both definitions agree
    values[:200] = -1e6
    wild = locate(values, robust=True)
    assert wild.centre == pytest.approx(10.0, abs=0.3)
    assert wild.spread == pytest.approx(2.0, rel=0.25)
    assert locate(values).spread > 1e5  # which the plain scale does not


def test_values_without_spread_keep_the_unit_of_the_reward():
    assert locate(np.array([3.0])) == Location(3.0, 1.0)
    constant = np.full(10_007, np.float32(1000.1))  # in single precision its deviation would be 6e-5
    assert locate(constant).spread == 1.0
    assert Location(3.0, 1.0).standardise(np.array([5.0])).tolist() == [2.0]
    with pytest.raises(DataError, match="at least one trajectory"):
        locate(np.zeros(0))


def test_one_held_out_trip_is_enough_to_set_the_scale():
    data = rewarded(1)
    scores = mean_normality(**data, calibration=calibrate(**data), n_trips=1)
    assert np.isfinite([scores.normality[0], scores.score[0], scores.p_value[0]]).all()


def test_trips_may_have_any_numbers_when_the_scale_is_set():
    data = rewarded(12)
    sparse = calibrate(**{**data, "trip": data["trip"] * 7 + 100})
    np.testing.assert_array_equal(sparse.normal.scores, calibrate(**data).normal.scores)


def test_few_values_are_shrunk_towards_what_everybody_has():
    everybody = Location(0.0, 1.0)
    assert shrunk(np.zeros(0), everybody, 10.0) == everybody
    half = shrunk(np.tile([-4.0, 0.0], 5), everybody, 10.0)
    assert half.centre == pytest.approx(-1.0)
    assert half.spread == pytest.approx(np.sqrt((4.0 + 1.0) / 2))
    assert shrunk(np.tile([-4.0, 0.0], 5000), everybody, 10.0) == pytest.approx((-2.0, 2.0), rel=0.01)


# ---------------------------------------------------------------- aspects

rewards_of_aspects = st.integers(1, 4).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(-20, 20), min_size=n, max_size=n), st.lists(st.floats(0.01, 5.0), min_size=n, max_size=n)
    )
)


@settings(max_examples=200, deadline=None)
@given(rewards_of_aspects)
def test_aspects_combined_are_the_log_ratio_to_the_mixture(case: tuple[list[float], list[float]]):
    rewards, weights = (np.array(part) for part in case)
    got = combined(rewards[None, :, None], weights)[0, 0]
    # p(own) / sum_a w_a p_a, where R_a = log p(own) / p_a.
    assert got == pytest.approx(-np.log(np.sum(weights / weights.sum() * np.exp(-rewards))), rel=1e-6, abs=1e-9)
    assert rewards.min() - 1e-9 <= got <= rewards.max() + 1e-9
    assert combined(rewards[None, :, None], 7.0 * weights)[0, 0] == pytest.approx(got, abs=1e-9)
    assert combined(rewards[None, :, None] + 3.0, weights)[0, 0] == pytest.approx(got + 3.0, abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(rewards_of_aspects, st.integers(0, 3), st.floats(0.1, 10.0))
def test_a_higher_reward_of_one_aspect_never_lowers_the_combined_reward(
    case: tuple[list[float], list[float]], which: int, more: float
):
    rewards, weights = (np.array(part) for part in case)
    which %= len(rewards)
    raised = rewards.copy()
    raised[which] += more
    before, after = (combined(r[None, :, None], weights)[0, 0] for r in (rewards, raised))
    assert after >= before
    if rewards[which] == rewards.min():
        assert after > before


def test_an_aspect_of_weight_0_changes_nothing():
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(50, 3, 4))
    wild = rewards.copy()
    wild[:, 1] -= 40.0
    weights = (0.3, 0.0, 1.0)
    np.testing.assert_allclose(combined(wild, weights), combined(rewards, weights), atol=1e-9)
    np.testing.assert_allclose(combined(rewards, weights), combined(rewards[:, [0, 2]], (0.3, 1.0)), atol=1e-9)
    assert not (lowest_aspect(wild.mean(axis=2), weights) == 1).any()


def test_the_combined_reward_far_from_every_alternative_is_finite():
    for far in (-1e6, 1e6):
        assert combined(np.array([[[far], [0.0]]]), (1.0, 1.0))[0, 0] == pytest.approx(min(far, 0.0) + np.log(2.0))


def trip_scale(n: int = 3, noise: float = 0.0) -> Calibration:
    weights = (1.0, *[0.3] * (n - 1))
    normal = Sample.of(np.linspace(-3, 3, 99))
    aspects = ("place", "route", "manner", "time")[:n]
    return Calibration(aspects, weights, Location(0.0, 1.0), Location(2.0, 4.0), normal=normal, trip_noise=noise)


def test_trips_are_standardised_by_their_trip_rewards():
    rewards = np.random.default_rng(0).normal(size=(30, 3, 5)) * 5.0
    rewards[7] = np.nan  # not one usable fix
    got = trip_normality(rewards, trip_scale(noise=0.3))
    known = np.arange(30) != 7
    n = (over_heads(rewards[known], (1.0, 0.3, 0.3)) - 2.0) / 4.0
    np.testing.assert_allclose(got.normality[known], n)
    np.testing.assert_array_equal(got.score, got.normality)
    heads = combined(rewards[known], (1.0, 0.3, 0.3)).std(axis=1) / 4.0
    np.testing.assert_allclose(got.uncertainty[known], np.sqrt(heads**2 + 0.3**2))
    np.testing.assert_array_equal(got.p_value[known], trip_scale().normal.p_values(n))
    assert np.isnan([got.normality[7], got.uncertainty[7], got.score[7], got.p_value[7]]).all()
    assert got.aspect[7] == -1


def test_the_aspect_that_lowers_a_trip_most_is_named():
    rewards = np.zeros((2, 3, 2))
    rewards[0, 1] = -20.0
    rewards[1] = [[20.0], [20.0], [10.0]]
    assert trip_normality(rewards, trip_scale()).aspect.tolist() == [1, 2]
    # A little lower is not enough for an aspect that counts little.
    rewards[1] = [[0.0], [-0.5], [0.0]]
    assert trip_normality(rewards, trip_scale()).aspect[1] == 0
    steps = step_normality(rewards, calibrate(**rewarded(9, aspects=3), aspects=("place", "route", "manner")))
    assert steps.aspect.tolist() == [1, 1]


# ---------------------------------------------------------------- trips


def test_the_mean_of_a_trip_weighs_its_rows_by_their_seconds():
    values, trip = np.array([1.0, 5.0, 9.0, 4.0, 6.0]), np.array([0, 0, 0, 2, 2])
    weight = np.array([0.0, 10.0, 30.0, 0.0, 0.0])
    runs = Runs.of(trip, 4)
    means = runs.means(values, runs.shares(weight))
    assert means[[0, 2]].tolist() == [8.0, 5.0]  # where nothing has weight, the plain mean
    assert np.isnan(means[[1, 3]]).all()


def test_a_trip_without_a_usable_row_scores_nan():
    calibration = calibrate(**rewarded(20))
    data = rewarded(3)
    kept = data["trip"] != 1
    scores = mean_normality(**{k: v[kept] for k, v in data.items()}, calibration=calibration, n_trips=4)
    for values in scores[:4]:
        assert np.isnan(values).tolist() == [False, True, False, True]
    assert scores.aspect.tolist() == [0, -1, 0, -1]
    nothing = mean_normality(**{k: v[:0] for k, v in data.items()}, calibration=calibration, n_trips=2)
    assert np.isnan(nothing.p_value).all()


def worst_windows(
    n: Array, trip: Array, time: Array, weight: Array, seconds: float, n_trips: int | None = None
) -> Array:
    runs = Runs.of(trip, n_trips)
    return lowest_windows(n, runs.means(n, runs.shares(weight)), trip, time, weight, seconds)


def slow_worst_windows(n: Array, trip: Array, time: Array, weight: Array, seconds: float, n_trips: int) -> list[float]:
    """Window by window, as the definition reads."""
    worst = []
    for k in range(n_trips):
        rows = np.flatnonzero(trip == k)
        if not len(rows):
            worst.append(np.nan)
            continue
        lowest = np.average(n[rows], weights=weight[rows] if weight[rows].sum() > 0 else None)
        begin = rows[0]
        for i in rows:
            begin = i if weight[i] == 0 else begin
            window = [r for r in range(begin, i + 1) if time[r] > time[i] - seconds]
            if time[i] - time[begin] >= seconds / 2 and weight[window].sum() > 0:
                lowest = min(lowest, np.average(n[window], weights=weight[window]))
        worst.append(float(lowest))
    return worst


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),  # which trip
            st.sampled_from([1, 5, 10, 29, 30, 60, 100, 400]),  # seconds since the row before
            st.sampled_from([0.0, 1.0, 10.0, 30.0]),  # weight
            st.floats(-5, 5),
        ),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([60.0, 300.0]),
)
def test_worst_windows_are_those_of_a_search_window_by_window(
    rows: list[tuple[int, int, float, float]], seconds: float
):
    rows = sorted(rows, key=lambda row: row[0])
    trip, since, weight, n = (np.array(column) for column in zip(*rows, strict=True))
    time = 1.7e9 + np.cumsum(since).astype(float) - 5000.0 * trip  # the trips overlap in time
    got = worst_windows(n, trip, time, weight, seconds, 5)
    np.testing.assert_allclose(got, slow_worst_windows(n, trip, time, weight, seconds, 5), atol=1e-9)


def test_a_short_detour_shows_in_the_worst_window_but_hides_in_the_mean():
    time = np.arange(0, 3600, 10.0)
    n = np.where((time > 1500) & (time <= 1800), -4.0, 0.0)
    trip, weight = np.zeros(len(time), int), np.full(len(time), 10.0)
    assert worst_windows(n, trip, time, weight, 300.0)[0] == pytest.approx(-4.0)
    assert np.average(n, weights=weight) > -0.5


@pytest.mark.parametrize("odd", [1, 101])
def test_one_odd_fix_at_a_start_is_no_window(odd: int):
    # Row 100 comes after a gap: like the first of all it begins a path and weighs nothing.
    time = np.r_[np.arange(100) * 10.0, 9000.0 + np.arange(100) * 10.0]
    weight = np.full(200, 10.0)
    weight[[0, 100]] = 0.0
    n = np.zeros(200)
    n[odd] = -20.0
    worst = worst_windows(n, np.zeros(200, int), time, weight, 300.0)[0]
    assert worst >= -20.0 / 15  # diluted by half a window at least


# ---------------------------------------------------------------- by length


def process(lengths: list[int], seed: int, transient: float = 0.0) -> dict[str, Array]:
    """Trips of one process: each has its own level, and steps that depend a little on those before; one a second.

    Steps are skewed: low ones are lower than high ones are high. A transient lowers the first twenty.
    """
    rng = np.random.default_rng(seed)
    parts = []
    for n in lengths:
        noise = 1.0 - rng.exponential(size=n + 20)
        steps = np.convolve(noise, np.full(5, 5**-0.5), mode="same")[10:-10] + 0.5 * rng.normal()
        parts.append(steps - transient * (np.arange(n) < 20))
    return {
        "rewards": np.concatenate(parts)[:, None, None],
        "trip": np.repeat(np.arange(len(lengths)), lengths),
        "time": np.concatenate([np.arange(n, dtype=float) for n in lengths]),
        "weight": np.ones(sum(lengths)),
    }


def flagged_by_length(calibration: Calibration, transient: float = 0.0) -> list[float]:
    """How often normal trips of 60, 300 and 1,500 steps have p <= .05."""
    found = []
    for n in (60, 300, 1500):
        scores = mean_normality(**process([n] * 300, n, transient), calibration=calibration, n_trips=300)
        found.append(float((scores.p_value <= 0.05).mean()))
    return found


@pytest.mark.parametrize("transient", [0.0, 2.0])
@pytest.mark.parametrize("lengths", [(60, 61), (300, 301), (1500, 1501), (60, 1500)], ids=str)
def test_trips_of_one_process_are_flagged_alike_however_long(lengths: tuple[int, int], transient: float):
    known = np.random.default_rng(0).integers(*lengths, 300).tolist()
    shares = flagged_by_length(calibrate(**process(known, 1, transient), window_length=10.0), transient)
    assert 0.005 <= min(shares) <= max(shares) < 0.12
    # Unless a trip is compared with trips of any length.
    if lengths == (60, 61) and not transient:
        flat = calibrate(**process(known, 1, transient), window_length=10.0)
        assert flat.by_length is not None
        at_60 = LengthScale(flat.by_length.lengths[:1], *(s[:, [10]] for s in flat.by_length[1:]))
        short, _, long = flagged_by_length(replace(flat, by_length=at_60), transient)
        assert long > short + 0.2


def test_a_short_odd_part_is_found_in_a_long_trip():
    calibration = calibrate(**process([1500] * 100, 1), window_length=10.0)
    data = process([1500] * 50, 2)
    at = np.flatnonzero((data["time"] >= 700) & (data["time"] < 720))
    data["rewards"][at] -= 6.0
    scores = mean_normality(**data, calibration=calibration, n_trips=50)
    assert (scores.p_value <= 0.02).mean() > 0.9
    assert np.median(scores.normality) > -1.0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30), st.floats(0, 50), st.floats(0, 50))
def test_the_lowest_of_more_values_is_lower(values: list[float], few: float, more: float):
    of = np.array(values)
    fewer, most = (np.sort(lowest_of(of, of, times)) for times in sorted([few, more]))
    assert (most <= fewer).all()
    assert set(fewer) <= set(values)


def test_time_so_far_is_that_of_the_trip_in_any_order():
    trip, weight = np.array([1, 0, 1, 0]), np.array([1.0, 5.0, 2.0, 7.0])
    assert so_far(trip, weight).tolist() == [1.0, 5.0, 3.0, 12.0]


# ---------------------------------------------------------------- p-values


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=20), st.lists(st.integers(-6, 6), max_size=10))
def test_p_values_count_the_left_out_trips_that_score_as_low(left_out: list[int], new: list[int]):
    got = Sample.of(np.array(left_out, float)).p_values(np.array(new, float))
    expected = [(1 + sum(s <= x for s in left_out)) / (1 + len(left_out)) for x in new]
    np.testing.assert_allclose(got, expected)


def test_without_normal_trips_no_p_value_is_known():
    assert np.isnan(Sample().p_values(np.array([-9.0, 0.0]))).all()
    assert np.isnan(Sample().p_value(-9.0))


@pytest.mark.parametrize("ties", [False, True])
def test_p_values_are_valid_for_exchangeable_trips(ties: bool):
    rng = np.random.default_rng(0)
    n, repeats = 39, 40_000
    scores = rng.standard_t(3, size=(repeats, n + 1))
    scores = scores.round() if ties else scores
    p = np.array([Sample.of(row[1:]).p_values(row[:1])[0] for row in scores])
    for alpha in (0.025, 0.05, 0.1, 0.25, 0.5, 0.9):
        share, error = (p <= alpha).mean(), 4 * np.sqrt(alpha * (1 - alpha) / repeats)
        assert share <= alpha + error
        if not ties:  # and exact where alpha (n + 1) is whole
            assert share >= alpha - error


def test_a_trip_that_weighs_more_counts_as_several():
    weighed = Sample.of(np.array([2.0, -1.0, 0.0]), np.array([1.0, 3.0, 2.0]))
    several = Sample.of(np.array([2.0, -1.0, -1.0, -1.0, 0.0, 0.0]))
    new = np.array([-2.0, -1.0, -0.5, 0.0, 5.0])
    assert weighed.total == several.total == 6.0
    np.testing.assert_allclose(weighed.p_values(new), several.p_values(new))
    assert np.isnan(weighed.p_values(np.array([np.nan]))).all()


def test_the_p_value_of_a_whole_pipeline_is_close_to_valid():
    # Trips of one distribution, half of them left out to set every scale and to be compared with.
    low = []
    for seed in range(150):
        data = rewarded(60, seed=seed)
        old = data["trip"] < 30
        calibration = calibrate(**{k: v[old] for k, v in data.items()})
        new = {k: v[~old] for k, v in data.items()}
        scores = mean_normality(**{**new, "trip": new["trip"] - 30}, calibration=calibration, n_trips=30)
        low.append((scores.p_value <= 0.1).mean())
    assert np.mean(low) < 0.1 + 4 * np.std(low) / np.sqrt(len(low))


# ---------------------------------------------------------------- segments


def slow_segments(
    n: list[float], trip: list[int], time: list[float], enter: float, leave: float, min_seconds: float
) -> list[tuple[int, int, int]]:
    """Row by row, with one state: inside or outside."""
    found, start = [], None

    def close(stop: int) -> None:
        whole = (start == 0 or trip[start - 1] != trip[start]) and (stop == len(n) or trip[stop] != trip[start])
        if whole or time[stop - 1] - time[start] >= min_seconds:
            found.append((trip[start], start, stop))

    for i, value in enumerate(n):
        if start is not None and (trip[i] != trip[start] or value > leave):
            close(i)
            start = None
        if start is None and value <= enter:
            start = i
    if start is not None:
        close(len(n))
    return found


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([-3.0, -2.0, -1.5, -1.0, 0.0]), st.sampled_from([5, 30, 60])),
        max_size=60,
    ),
    st.sampled_from([(-2.0, -1.0), (-2.0, -2.0), (-1.0, -0.5)]),
    st.sampled_from([0.0, 60.0, 120.0]),
)
def test_segments_are_those_of_a_state_machine(
    rows: list[tuple[int, float, int]], levels: tuple[float, float], min_seconds: float
):
    rows = sorted(rows, key=lambda row: row[0])
    trip, n = [r[0] for r in rows], [r[1] for r in rows]
    time = np.cumsum([r[2] for r in rows]).astype(float)
    got = segments(np.array(n), np.array(trip, int), time, *levels, min_seconds)
    assert [s[:3] for s in got] == slow_segments(n, trip, time.tolist(), *levels, min_seconds)
    for s in got:
        assert s.normality == pytest.approx(np.mean(n[s.start : s.stop]))


def test_a_segment_opens_low_and_closes_high():
    n = np.array([-1.5, -2.0, -1.1, -1.9, -1.0, -0.9, -3.0, -3.0])
    got = segments(n, np.zeros(8, int), np.arange(8) * 60.0)
    assert [(s.start, s.stop) for s in got] == [(1, 5), (6, 8)]


def test_a_blip_is_noise_unless_it_is_the_whole_trip():
    n, time = np.array([0.0, -5.0, 0.0, -5.0]), np.array([0.0, 10.0, 20.0, 0.0])
    assert segments(n, np.array([0, 0, 0, 1]), time) == [Segment(1, 3, 4, -5.0)]


def test_a_segment_must_not_close_below_where_it_opens():
    with pytest.raises(DataError, match=r"closes .* below where it opens"):
        segments(np.zeros(2), np.zeros(2, int), np.arange(2.0), enter=-1.0, leave=-2.0)


def test_segments_of_very_many_trips_are_all_found():
    trip = np.repeat(np.arange(40_000), 3)
    n = np.tile([0.0, -3.0, -3.0], 40_000)
    got = segments(n, trip, np.tile([0.0, 60.0, 120.0], 40_000))
    assert len(got) == 40_000
    assert got[-1] == Segment(39_999, 119_998, 120_000, -3.0)


# ---------------------------------------------------------------- without the training library


def test_scoring_does_not_import_torch():
    code = """
import sys
import numpy as np
import astray, astray.features.featurizer, astray.irl.gps_demonstrator, astray.scoring.normality, astray.irl.posterior
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.scoring.segments import segments
from astray.scoring.normality import calibrate, mean_normality, step_normality

rng = np.random.default_rng(0)
trips = astray.Trajectories.from_fixes(
    time=np.arange(300) * 10.0, lat=45 + np.cumsum(rng.normal(size=300)) * 1e-4, lon=np.full(300, 7.0),
    trajectory=np.repeat(["a", "b", "c"], 100))
featurizer = Featurizer.of(trips, FeaturizerConfig(), rng).remember(trips)
featurized = featurizer.featurize(trips)
d = len(featurizer.names)
layer = rng.normal(size=(1, d, 5)), np.zeros((1, 1, 5))
posterior = astray.irl.posterior.RewardPosterior(np.zeros(d), np.ones(d), (layer,))
rewards = posterior(featurized.features)
rows = (featurized.steps.trip, featurized.steps.time, featurized.weight)
calibration = calibrate(rewards, *rows)
scores = mean_normality(rewards, *rows, calibration, len(trips))
segments(step_normality(rewards, calibration).normality, *rows[:2])
assert np.isfinite(scores.normality).all() and rewards.shape == (300, 1, 5)
print([m for m in ("torch", "sklearn", "pandas") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_a_reward_without_references_is_freed():
    layer = np.ones((1, 2, 3), np.float32), np.zeros((1, 1, 3), np.float32)
    posterior = RewardPosterior(np.zeros(2, np.float32), np.ones(2, np.float32), (layer,))
    assert posterior(np.ones((4, 2), np.float32)).shape == (4, 1, 3)
    held = weakref.ref(posterior)
    del posterior
    assert held() is None
