"""Trip statistics against a slow reference: counted by hand, window by window, trip by trip."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from astray import Trajectories
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.grid import cells
from astray.features.row_windows import windows
from astray.features.statistics import GROUPS, OVER_STEPS, WAY, members, statistics_of
from astray.features.trip_rows import END_CELLS, HOURS, LENGTH_BANDS, SPEED_BANDS, TRIP_HABITS, TripRows
from astray.irl.keyed_trips import KeyedTrips
from astray.simulate import city

Array = NDArray[Any]


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    return city(people=4, days=8, seed=0).trips


@pytest.fixture(scope="module")
def mine(trips: Trajectories) -> Trajectories:
    return trips.agent("p00")


@pytest.fixture(scope="module")
def featurizer(mine: Trajectories, trips: Trajectories) -> Featurizer:
    blank = Featurizer.of(mine, FeaturizerConfig(), np.random.default_rng(0))
    return blank.remember(mine[:-5]).among(trips.without("p00"))


def columns(featurizer: Featurizer) -> dict[str, int]:
    return {s.name: i for i, s in enumerate(featurizer.statistics)}


def looked(featurizer: Featurizer, trips: Trajectories) -> Array:
    found = featurizer.featurize(trips, every=False).statistics
    assert found is not None
    return found


# ---------------------------------------------------------------- windows


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.floats(-5, 5), min_size=1, max_size=12), min_size=1, max_size=6), st.integers(1, 15))
def test_the_lowest_and_highest_windows_are_those_of_a_search(trips: list[list[float]], size: int) -> None:
    lengths = np.array([len(t) for t in trips])
    starts = np.cumsum(lengths) - lengths
    low, high = windows(np.concatenate(trips)[:, None], starts, lengths, size)
    for k, trip in enumerate(trips):
        wide = min(size, len(trip))
        means = [np.mean(trip[i : i + wide]) for i in range(len(trip) - wide + 1)]
        assert low[k, 0] == pytest.approx(min(means), abs=1e-9)
        assert high[k, 0] == pytest.approx(max(means), abs=1e-9)


# ---------------------------------------------------------------- over steps


def test_statistics_of_steps_equal_a_loop_over_them(featurizer: Featurizer, mine: Trajectories) -> None:
    found = looked(featurizer, mine)
    featurized = featurizer.featurize(mine, every=False)
    familiar = featurized.features[:, : len(featurizer.config.habits)]
    size = round(120.0 / featurizer.config.interval)
    for trip in range(0, len(mine), 4):
        rows = familiar[featurized.steps.trip == trip]
        wide = min(size, len(rows))
        means = [rows[i : i + wide].mean(axis=0) for i in range(len(rows) - wide + 1)]
        expected = (
            rows.mean(axis=0), np.min(means, axis=0), np.max(means, axis=0), rows[0], rows[-1], (rows == 0).mean(axis=0)
        )  # fmt: skip
        got = found[trip, : len(OVER_STEPS) * len(featurizer.config.habits)].reshape(-1, len(OVER_STEPS))
        np.testing.assert_allclose(got, np.stack(expected, axis=1), atol=1e-5)


# ---------------------------------------------------------------- whole trips


def ends(featurizer: Featurizer, trips: Trajectories, size: float, shift: float) -> tuple[list[Any], list[Any]]:
    """The cells in which trips begin and end, place by place."""
    found: tuple[list[Any], list[Any]] = ([], [])
    for trip in trips:
        for which, places in ((0, found[0]), (-1, found[1])):
            lat, lon = trip.columns["lat"][which], trip.columns["lon"][which]
            grid = featurizer.projection.to_grid(featurizer.projection.to_metres(np.array([lat]), np.array([lon])))
            places.append(tuple(int(values[0]) for values in cells(grid, size, shift)))
    return found


def test_ends_are_counted_by_hand_each_trip_left_out(featurizer: Featurizer, mine: Trajectories) -> None:
    """In how many past trips it began or ended here, travelled this way, or back."""
    found, column = looked(featurizer, mine), columns(featurizer)
    remembered = {trip.trajectory for trip in featurizer.memory.trip_ids}
    past = [i for i, name in enumerate(mine.trajectory_ids.tolist()) if name in remembered]
    assert 0 < len(past) < len(mine)
    for size in END_CELLS:
        grids = [ends(featurizer, mine, size, shift) for shift in (0.0, 0.5)]
        same = {
            f"start {size:g} m": lambda s, e, i, j: s[i] == s[j],
            f"stop {size:g} m": lambda s, e, i, j: e[i] == e[j],
            f"start where past trips stop {size:g} m": lambda s, e, i, j: s[i] == e[j],
            f"stop where past trips start {size:g} m": lambda s, e, i, j: e[i] == s[j],
            f"start and stop {size:g} m": lambda s, e, i, j: (s[i], e[i]) == (s[j], e[j]),
            f"the way back {size:g} m": lambda s, e, i, j: (e[i], s[i]) == (s[j], e[j]),
        }
        for name, alike in same.items():
            for i in range(len(mine)):
                logs = [np.log1p(sum(alike(s, e, i, j) for j in past if j != i)) for s, e in grids]
                assert found[i, column[name]] == pytest.approx(np.mean(logs), abs=1e-5), (name, i)
    assert (found[:, column["start 500 m"]] > 0).any()


def test_bands_of_hour_length_and_speed_are_counted_by_hand(featurizer: Featurizer, mine: Trajectories) -> None:
    found = looked(featurizer, mine)
    remembered = set(featurizer.memory.trip_ids)
    past = [i for i, name in enumerate(mine.ids) if name in remembered]
    names = {s.name: i for i, s in enumerate(featurizer.statistics)}
    of_motion = found[:, len(featurizer.statistics) - 2 - 4 * len(featurizer.popularity.cells) - 7 :]
    length, speed = of_motion[:, 0].astype(np.float64), of_motion[:, 2].astype(np.float64)
    began = np.array([t.columns["time"][0] for t in mine]) + featurizer.context.utc_offset
    values = {
        "hour": began % 86_400 / 3600.0 / HOURS,
        "length": LENGTH_BANDS * length,
        "speed": SPEED_BANDS * speed,
    }
    first = len(featurizer.config.habits) * len(OVER_STEPS)
    at = {habit.name: first + k for k, habit in enumerate(TRIP_HABITS)}
    assert len(names) < len(featurizer.statistics)  # a band and what it is of are called the same
    for name, value in values.items():
        slots = round(24 / HOURS) if name == "hour" else 10**9
        for i in range(len(mine)):
            logs = []
            for shift in (0.0, 0.5):
                band = np.floor(value + shift).astype(int) % slots
                logs.append(np.log1p(sum(band[j] == band[i] for j in past if j != i)))
            assert found[i, at[name]] == pytest.approx(np.mean(logs), abs=1e-4), (name, i)


def test_motion_is_that_of_the_rows(featurizer: Featurizer) -> None:
    """A straight way of ten minutes at 10 m/s, then ten minutes of standing."""
    time = 1.7e9 + 10.0 * np.arange(121)
    metres = 100.0 * np.minimum(np.arange(121), 60)
    lat, lon = featurizer.projection.to_degrees(np.column_stack([np.zeros(121), metres]))
    trip = Trajectories.from_fixes(time=time, lat=lat, lon=lon, agent="a", trajectory="t")
    motion = featurizer.rows(trip).motion[0]
    assert np.expm1(motion[0]) == pytest.approx(6000.0, rel=1e-6)
    assert np.exp(motion[1]) == pytest.approx(1200.0)
    assert np.expm1(motion[2]) == pytest.approx(5.0)
    assert motion[3] == pytest.approx(6000.0 / 6100.0)
    assert motion[4] == pytest.approx(0.5, abs=0.03)  # the share of standing
    assert np.expm1(motion[5]) == pytest.approx(10.0)
    assert np.expm1(motion[6]) == pytest.approx(5.0, rel=0.02)  # the spread of two speeds


def test_how_many_others_go_there_is_counted_by_hand(featurizer: Featurizer, mine: Trajectories) -> None:
    found, column = looked(featurizer, mine), columns(featurizer)
    rows = featurizer.rows(mine)
    for size in featurizer.popularity.cells:
        there = featurizer.popularity.encode(rows.keys, featurizer.config.habits)[
            :, featurizer.popularity.cells.index(size)
        ]
        own = featurizer.featurize(mine, every=False).features[
            :, [h.name for h in featurizer.config.habits].index(f"cell {size:g} m")
        ]
        for trip in range(0, len(mine), 3):
            some = there[rows.steps.trip == trip]
            new = own[rows.steps.trip == trip] == 0
            for what, expected in (
                ("mean", some.mean()), ("first", some[0]), ("last", some[-1]), ("where new", (some * new).mean())
            ):  # fmt: skip
                assert found[trip, column[f"others {size:g} m: {what}"]] == pytest.approx(expected, abs=1e-5)


def test_the_number_of_past_trips_leaves_out_the_trip_itself(featurizer: Featurizer, mine: Trajectories) -> None:
    past = np.expm1(looked(featurizer, mine)[:, columns(featurizer)["past trips"]])
    n = len(featurizer.memory)
    assert past[:-5] == pytest.approx(np.full(len(mine) - 5, n - 1), rel=1e-5)
    assert past[-5:] == pytest.approx(np.full(5, n), rel=1e-5)


# ---------------------------------------------------------------- what may be missing


def test_an_open_trip_lacks_the_statistics_of_its_end_and_no_others(featurizer: Featurizer, mine: Trajectories) -> None:
    rows = featurizer.rows(mine)
    part = rows.prefixes(np.full(len(mine), 0.5))
    _, found = featurizer.measure(part)
    missing = members(featurizer.statistics, "end") | members(featurizer.statistics, "destination")
    assert np.array_equal(np.isnan(found).all(axis=0), missing)
    assert np.isnan(found).any(axis=0).sum() == missing.sum()
    assert not np.isnan(featurizer.measure(rows)[1]).any()
    lengths = np.ceil(0.5 * rows.lengths)
    assert np.array_equal(part.lengths, lengths)


def test_a_known_destination_gives_an_open_trip_its_stop(featurizer: Featurizer, mine: Trajectories) -> None:
    rows, told = featurizer.rows(mine), np.arange(len(mine)) % 2 == 0
    whole = featurizer.measure(rows)[1]
    stops = rows.steps.location[rows.starts + rows.lengths - 1]
    stops = np.where(told[:, None], stops, np.nan)
    found = featurizer.measure(replace(rows.prefixes(np.full(len(mine), 0.5)), destinations=stops))[1]
    where, end = (members(featurizer.statistics, group) for group in ("destination", "end"))
    np.testing.assert_array_equal(found[told][:, where], whole[told][:, where])
    assert np.isnan(found[~told][:, where]).all()
    assert np.isnan(found[:, end]).all()


def test_without_other_agents_their_statistics_are_missing(mine: Trajectories) -> None:
    alone = Featurizer.of(mine, FeaturizerConfig(), np.random.default_rng(0)).remember(mine)
    missing = np.isnan(looked(alone, mine)).all(axis=0)
    assert np.array_equal(missing, members(alone.statistics, "population"))


def test_every_group_has_members_and_names_tell_what_is_meant(featurizer: Featurizer) -> None:
    known = statistics_of(featurizer.config.habits, featurizer.popularity.cells)
    assert known == featurizer.statistics
    for group in GROUPS:
        assert 0 < members(known, group).sum() < len(known) / 2
    for statistic in known:
        if {"end", "destination"} & statistic.groups:
            assert any(word in statistic.name for word in ("stop", "way back", "last", WAY))


def test_a_trip_without_a_usable_fix_has_no_statistics(featurizer: Featurizer, mine: Trajectories) -> None:
    rows = featurizer.rows(mine[:3])
    kept = rows.steps.trip != 1
    gap = TripRows(rows.steps[kept], rows.keys[kept], rows.frame, 3, rows.finished)
    found = featurizer.measure(gap)[1]
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False]
    whole = featurizer.measure(rows)[1]
    np.testing.assert_allclose(found[[0, 2]], whole[[0, 2]], atol=1e-5)


# ---------------------------------------------------------------- keyed once, seen by anybody


def test_rows_made_once_are_measured_by_each_memory_as_if_made_for_it(trips: Trajectories) -> None:
    theirs = trips.agent("p03")
    views = []
    for agent in ("p00", "p01"):
        own = trips.agent(agent)
        views.append(Featurizer.of(own, FeaturizerConfig(utc_offset=0.0), np.random.default_rng(0)).remember(own))
    keyed = views[0].rows(theirs)
    for featurizer in views:
        _, found = featurizer.measure(keyed)
        seen = looked(featurizer, theirs)
        # Two centres measure metres a little differently, and an edge may lie between.
        assert np.mean(np.isclose(found, seen, atol=0.02, equal_nan=True)) > 0.99
    assert not np.allclose(*(np.nan_to_num(v.measure(keyed)[1]) for v in views), atol=0.1)


def test_some_trips_of_many_in_any_order(featurizer: Featurizer, trips: Trajectories) -> None:
    rows = featurizer.rows(trips)
    chosen = np.array([7, 2, 2, 30, 0])
    found = featurizer.measure(rows)[1]
    np.testing.assert_allclose(featurizer.measure(rows[chosen])[1], found[chosen], atol=1e-5)


def test_others_of_a_population_are_never_the_agents_own(featurizer: Featurizer, trips: Trajectories) -> None:
    population = KeyedTrips.of(trips, featurizer)
    rng = np.random.default_rng(0)
    some = population.others("p00", 20, rng)
    assert len(some) == 20
    assert "p00" not in some.agents
    assert len(population.others("p00", 10_000, rng)) == len(trips.without("p00"))
    np.testing.assert_allclose(
        featurizer.measure(some.rows)[1], featurizer.measure(population.all_rows)[1][some.which], atol=1e-5
    )


def test_the_maker_of_a_trip_does_not_count_among_the_others(featurizer: Featurizer, trips: Trajectories) -> None:
    theirs = trips.agent("p02")
    rest = replace(featurizer, popularity=featurizer.popularity.without(["p02"]))
    np.testing.assert_allclose(looked(featurizer, theirs), looked(rest, theirs), atol=1e-6)
