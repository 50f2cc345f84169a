"""What an agent has done before: counts that a dictionary of sets would give, and features made of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from astray import Trajectories, TripId
from astray.core.errors import DataError
from astray.core.faults import REPEATED, TELEPORT
from astray.core.projection import Projection
from astray.features.encoders import FamiliarityEncoder, FourierEncoder, RawEncoder
from astray.features.familiarity import DAY, DEFAULT_HABITS, Frame, Habit, familiarity, keys_by_trip, keys_of
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.memory import Forgetting, Memory
from astray.features.normal_scores import NormalScores, StepScores
from astray.features.steps import Steps

Array = NDArray[Any]

SPREAD = np.uint64(0x9E3779B97F4A7C15)  # makes small numbers look like the hashes that a memory expects


def hashed(keys: ArrayLike) -> NDArray[np.uint64]:
    return np.asarray(keys, np.uint64) * SPREAD


def same(a: Memory, b: Memory) -> bool:
    """Whether two memories hold the same trips in the same order."""
    return (
        a.trip_ids == b.trip_ids
        and np.array_equal(a.times, b.times)
        and np.array_equal(a.keys, b.keys)
        and np.array_equal(a.trips, b.trips)
        and a.keys.dtype == b.keys.dtype == np.uint64
        and a.trips.dtype == b.trips.dtype == np.int32
    )


# ---------------------------------------------------------------- counting

trips_of_keys = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=3), st.lists(st.integers(0, 12), max_size=12), max_size=8
)
raw_or_hashed = st.sampled_from([np.uint64(1), SPREAD])


@settings(max_examples=150, deadline=None)
@given(trips_of_keys, st.lists(st.tuples(st.integers(0, 14), st.integers(-1, 9)), max_size=30), raw_or_hashed)
def test_counts_are_those_of_a_dictionary_of_sets(
    trips: dict[str, list[int]], asked: list[tuple[int, int]], factor: np.uint64
):
    memory = Memory().add({name: np.array(keys, np.uint64) * factor for name, keys in trips.items()})
    sets = [set(keys) for keys in trips.values()]
    query = np.array([k for k, _ in asked], np.uint64) * factor
    without = np.array([w if w < len(sets) else -1 for _, w in asked], np.int64)
    assert memory.counts(query).tolist() == [sum(k in s for s in sets) for k, _ in asked]
    expected = [sum(k in s for i, s in enumerate(sets) if i != w) for (k, _), w in zip(asked, without, strict=True)]
    assert memory.counts(query, without).tolist() == expected
    assert memory.history == len(memory) == len(trips)


def test_counts_of_many_trips_are_those_of_a_table():
    rng = np.random.default_rng(0)
    table = rng.random((300, 50)) < rng.uniform(0, 1, 50)  # trip by key, some keys in hardly any, some in nearly all
    memory = Memory().add({f"{i}": hashed(np.flatnonzero(row)) for i, row in enumerate(table)})
    key, trip = rng.integers(0, 60, 20_000), rng.integers(-1, 300, 20_000)
    known = np.where(key < 50, key, 0)
    total = np.where(key < 50, table.sum(axis=0)[known], 0)
    own = (key < 50) & (trip >= 0) & table[trip, known]
    np.testing.assert_array_equal(memory.counts(hashed(key)), total)
    np.testing.assert_array_equal(memory.counts(hashed(key), trip), total - own)


def test_counts_have_the_shape_of_the_keys_and_a_trip_is_left_out_by_broadcasting():
    memory = Memory().add({"a": hashed([1, 2, 3]), "b": hashed([2])})
    query = hashed(np.arange(6).reshape(2, 3, 1))
    assert memory.counts(query).shape == (2, 3, 1)
    assert memory.counts(query, np.array([0, 1])[:, None, None])[:, :, 0].tolist() == [[0, 0, 1], [1, 0, 0]]


@settings(max_examples=80, deadline=None)
@given(trips_of_keys, trips_of_keys, trips_of_keys, st.permutations(range(3)))
def test_adding_in_any_order_and_merging_in_any_grouping_gives_the_same_counts(
    a: dict[str, list[int]], b: dict[str, list[int]], c: dict[str, list[int]], order: list[int]
):
    parts = [Memory().add({f"{i}{n}": hashed(k) for n, k in p.items()}) for i, p in enumerate((a, b, c))]
    one, two, three = parts
    assert same(one.merge(two).merge(three), one.merge(two.merge(three)))
    at_once = Memory().add({f"{i}{n}": hashed(k) for i, p in enumerate((a, b, c)) for n, k in p.items()})
    assert same(at_once, one.merge(two).merge(three))
    shuffled = Memory()
    for i in order:
        shuffled = shuffled.merge(parts[i])
    query = hashed(np.arange(14))
    assert shuffled.counts(query).tolist() == at_once.counts(query).tolist()
    names = np.array(at_once.trip_ids[:14])
    for memory in (at_once, shuffled):  # the number of a trip differs, what is left out does not
        left = memory.counts(query[: len(names)], memory.number_of(names))
        sets = {f"{i}{n}": set(k) for i, p in enumerate((a, b, c)) for n, k in p.items()}
        assert left.tolist() == [sum(k in s for n, s in sets.items() if n != me) for k, me in enumerate(names)]


@settings(max_examples=80, deadline=None)
@given(trips_of_keys, trips_of_keys)
def test_removing_undoes_adding_and_nothing_changes_in_place(a: dict[str, list[int]], b: dict[str, list[int]]):
    before = Memory().add({f"a{n}": hashed(k) for n, k in a.items()}, {f"a{n}": float(i) for i, n in enumerate(a)})
    as_was = Memory(before.trip_ids, before.times.copy(), before.keys.copy(), before.trips.copy())
    query = hashed(np.arange(14))
    counted = before.counts(query)
    after = before.add({f"b{n}": hashed(k) for n, k in b.items()}, {f"b{n}": 99.0 for n in b})
    assert same(after.remove(f"b{n}" for n in b), before)
    # Removing what was there first leaves what was added, numbered anew.
    added = Memory().add({f"b{n}": hashed(k) for n, k in b.items()}, {f"b{n}": 99.0 for n in b})
    assert same(after.remove([f"a{n}" for n in a]), added)
    assert same(after.remove(["unknown"]), after)
    assert same(before, as_was)
    assert before.counts(query).tolist() == counted.tolist()


def test_a_trip_is_remembered_once():
    memory = Memory().add({"a": hashed([1])})
    with pytest.raises(DataError, match="'a' is remembered already; remove it first"):
        memory.add({"a": hashed([2])})
    with pytest.raises(DataError, match="'a' is remembered already"):
        memory.merge(Memory().add({"b": hashed([1]), "a": hashed([1])}))


def test_an_empty_memory_counts_nothing():
    assert Memory().counts(hashed([0, 1, 2]), np.zeros(3, int)).tolist() == [0, 0, 0]
    assert Memory().history == 0.0
    assert len(Memory().add({}).remove(["a"])) == 0
    assert Memory().add({"a": hashed([])}).counts(hashed([1]), np.array([0])).tolist() == [0]


# ---------------------------------------------------------------- forgetting


def test_a_window_forgets_what_is_older():
    memory = Memory(forgetting=Forgetting(window=100.0))
    for i, when in enumerate((0.0, 59.0, 60.0, 160.0)):
        memory = memory.add({f"{i}": hashed([7])}, {f"{i}": when})
    assert memory.trip_ids == ("2", "3")  # 100 s ago is not older than 100 s
    assert memory.counts(hashed([7])).tolist() == [2]


def test_the_newest_trips_are_kept_whatever_the_order_of_adding():
    times = {"old": 1.0, "new": 3.0, "middle": 2.0}
    memory = Memory(forgetting=Forgetting(max_trips=2))
    for name, when in times.items():
        memory = memory.add({name: hashed([1])}, {name: when})
    assert set(memory.trip_ids) == {"new", "middle"}
    at_once = Memory(forgetting=Forgetting(max_trips=2)).add({n: hashed([1]) for n in times}, times)
    assert set(at_once.trip_ids) == {"new", "middle"}


def test_of_trips_of_no_known_time_the_last_added_are_the_newest():
    memory = Memory(forgetting=Forgetting(max_trips=2))
    for name in "abcd":
        memory = memory.add({name: hashed([1])})
    assert memory.trip_ids == ("c", "d")


def test_a_window_and_a_number_hold_together():
    rule = Forgetting(max_trips=2, window=10.0)
    memory = Memory(forgetting=rule).add({n: hashed([1]) for n in "abcd"}, {"a": 0.0, "b": 95.0, "c": 97.0, "d": 100.0})
    assert memory.trip_ids == ("c", "d")
    memory = memory.add({"e": hashed([1])}, {"e": 500.0})
    assert memory.trip_ids == ("e",)


def test_a_half_life_weighs_a_trip_by_its_age():
    times = {"a": 0.0, "b": 30.0, "c": 40.0}
    keys = {"a": hashed([1, 2]), "b": hashed([2]), "c": hashed([2, 3])}
    memory = Memory(forgetting=Forgetting(half_life=10.0)).add(keys, times)
    weight = {name: 0.5 ** ((40.0 - when) / 10.0) for name, when in times.items()}
    np.testing.assert_allclose(
        memory.counts(hashed([1, 2, 3, 4])), [weight["a"], sum(weight.values()), weight["c"], 0.0], rtol=1e-6
    )
    np.testing.assert_allclose(
        memory.counts(hashed([1, 2, 3]), np.array([0, 1, 0])), [0.0, weight["a"] + weight["c"], weight["c"]], rtol=1e-6
    )
    assert memory.history == pytest.approx(sum(weight.values()))
    # A newer trip makes the others older.
    later = memory.add({"d": hashed([9])}, {"d": 50.0})
    np.testing.assert_allclose(later.counts(hashed([3])), [0.5 * weight["c"]], rtol=1e-6)


# ---------------------------------------------------------------- habits and keys


def steps(
    location: ArrayLike,
    velocity: ArrayLike = (1.0, 0.0),
    origin: ArrayLike = (0.0, 0.0),
    time: ArrayLike = 0.0,
    trail: ArrayLike | None = None,
    trip: ArrayLike = 0,
) -> Steps:
    """Steps of given places, the rest the same for all."""
    location = np.atleast_2d(np.asarray(location, np.float64))
    n = len(location)
    return Steps(
        location=location,
        velocity=np.broadcast_to(np.asarray(velocity, np.float64), (n, 2)),
        window=np.full(n, 30.0),
        origin=np.broadcast_to(np.asarray(origin, np.float64), (n, 2)),
        elapsed=np.full(n, 60.0),
        time=np.broadcast_to(np.asarray(time, np.float64), n),
        trail=np.zeros((n, 2, 2)) if trail is None else np.asarray(trail, np.float64),
        trip=np.broadcast_to(np.asarray(trip), n),
        first=np.zeros(n, bool),
        given=np.zeros((n, 0)),
    )


def alike(a: Steps, b: Steps, habit: Habit) -> float:
    """On which share of the grids two steps are the same to a habit."""
    return float((keys_of(a, [habit]) == keys_of(b, [habit])).mean())


@pytest.mark.parametrize("habit", [Habit(cell=150), Habit(cell=500, heading=True), Habit(cell=300, trail=0)])
def test_every_cell_of_a_large_grid_has_a_key_of_its_own(habit: Habit):
    i, j = np.meshgrid(np.arange(-150, 150), np.arange(-150, 150))
    centres = (np.column_stack([i.ravel(), j.ravel()]) + 0.25) * habit.cell
    keys = keys_of(steps(centres), [habit])
    for grid in range(2):
        assert len(np.unique(keys[:, 0, grid])) == 90_000
    assert len(np.unique(keys)) == 180_000


def test_keys_are_spread_over_the_whole_range():
    i, j = np.meshgrid(np.arange(300), np.arange(300))
    keys = keys_of(steps(np.column_stack([i.ravel(), j.ravel()]) * 150.0), [Habit(cell=150)])
    share = np.bincount((keys.ravel() >> np.uint64(56)).astype(int), minlength=256) / keys.size
    assert (np.abs(share * 256 - 1) < 0.25).all()


def test_no_two_habits_share_a_key_and_one_habit_has_the_same_wherever_it_stands():
    keys = keys_of(steps(np.zeros((1, 2))), DEFAULT_HABITS)
    assert len(np.unique(keys)) == keys.size
    again = keys_of(steps(np.zeros((1, 2))), DEFAULT_HABITS[::-1])
    assert np.array_equal(again, keys[:, ::-1])


def test_a_cell_is_shared_on_both_grids_on_one_or_on_none():
    habit = Habit(cell=100)
    # Grid 0 has its lines at 0, 100, ...; grid 1 at 50, 150, ...
    assert alike(steps([10, 10]), steps([40, 40]), habit) == 1.0
    assert alike(steps([40, 10]), steps([60, 10]), habit) == 0.5
    assert alike(steps([90, 10]), steps([110, 10]), habit) == 0.5
    assert alike(steps([10, 10]), steps([160, 10]), habit) == 0.0


def test_shifted_grids_average():
    habits = (Habit(cell=100),)
    past = keys_by_trip(steps([40.0, 10.0]), habits)
    memory = Memory().add({"a": past[0], "b": keys_by_trip(steps([41.0, 11.0]), habits)[0]})
    got = familiarity(keys_of(steps([[40, 10], [60, 10], [500, 500]]), habits), memory)
    np.testing.assert_allclose(got[:, 0], [np.log(3), np.log(3) / 2, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("habit", "one", "other", "expected"),
    [
        (Habit(heading=True), {"velocity": (5, 1)}, {"velocity": (20, 3)}, 1.0),
        (Habit(heading=True), {"velocity": (5, 1)}, {"velocity": (-5, -1)}, 0.0),
        (Habit(heading=True), {"velocity": (-5, 0.0)}, {"velocity": (-5, -0.0)}, 1.0),  # due west is one direction
        (Habit(heading=True), {"velocity": (5, 0.1)}, {"velocity": (5, -0.1)}, 0.5),
        (Habit(heading=True), {"velocity": (0.1, 0)}, {"velocity": (-0.3, 0.2)}, 1.0),  # both stand
        (Habit(heading=True), {"velocity": (0.1, 0)}, {"velocity": (5, 0)}, 0.0),
        (Habit(speed=True), {"velocity": (10, 0)}, {"velocity": (0, 10)}, 1.0),
        (Habit(speed=True), {"velocity": (10, 0)}, {"velocity": (20, 0)}, 0.0),
        (Habit(speed=True), {"velocity": (0, 0)}, {"velocity": (0.4, 0)}, 1.0),
        (Habit(origin=1000), {"origin": (10, 10)}, {"origin": (400, 400)}, 1.0),
        (Habit(origin=1000), {"origin": (10, 10)}, {"origin": (1600, 10)}, 0.0),
        (Habit(cell=300, trail=1), {"trail": [[[0, 0], [10, 10]]]}, {"trail": [[[9e3, 9], [11, 11]]]}, 1.0),
        (Habit(cell=300, trail=1), {"trail": [[[0, 0], [10, 10]]]}, {"trail": [[[0, 0], [900, 10]]]}, 0.0),
        (Habit(hours=2), {"time": 8.1 * 3600}, {"time": 8.2 * 3600 + 3 * DAY}, 1.0),
        (Habit(hours=2), {"time": 9.9 * 3600}, {"time": 10.1 * 3600}, 0.5),
        (Habit(hours=2), {"time": 23.9 * 3600}, {"time": DAY + 0.1 * 3600}, 0.5),  # midnight is an hour like others
        (Habit(hours=2), {"time": 8.1 * 3600}, {"time": 20.1 * 3600}, 0.0),
        (Habit(weekend=True), {"time": 0.0}, {"time": 1.9 * DAY}, 1.0),  # Thursday and Friday
        (Habit(weekend=True), {"time": 1.9 * DAY}, {"time": 2.1 * DAY}, 0.0),  # Friday and Saturday
        (Habit(weekend=True), {"time": 2.1 * DAY}, {"time": 3.9 * DAY}, 1.0),  # Saturday and Sunday
        (Habit(weekend=True), {"time": 3.9 * DAY}, {"time": 4.1 * DAY}, 0.0),  # Sunday and Monday
    ],
)
def test_steps_are_alike_where_a_habit_says_so(habit: Habit, one: Any, other: Any, expected: float):
    assert alike(steps([0, 0], **one), steps([0, 0], **other), habit) == expected


def test_the_hour_and_the_weekend_are_local():
    habit = Habit(hours=2, weekend=True)
    friday_evening_utc, saturday = steps([0, 0], time=1.95 * DAY), steps([0, 0], time=2.2 * DAY)
    here = keys_of(friday_evening_utc, [habit], Frame(utc_offset=0.25 * DAY))
    assert (here == keys_of(saturday, [habit])).all()


def test_a_trip_gives_each_key_once():
    there_and_back = steps([[0, 0], [900, 0], [10, 0], [900, 0], [900, 0]], trip=[3, 3, 3, 3, 5])
    keys = keys_by_trip(there_and_back, [Habit(cell=500)])
    assert set(keys) == {3, 5}
    assert len(keys[3]) == 4  # two cells on two grids
    assert len(keys[5]) == 2
    assert np.isin(keys[5], keys[3]).all()


# ---------------------------------------------------------------- encoders


def test_raw_features_are_the_papers_state_and_action_in_normal_scores():
    rng = np.random.default_rng(0)
    n = 4000
    places, starts = 500.0 * rng.standard_normal((n, 2)), 500.0 * rng.standard_normal((n, 2))
    past = replace(
        steps(places, velocity=(0.0, 0.0)),
        location=places,
        origin=starts,
        velocity=3.0 * rng.standard_normal((n, 2)),
        elapsed=600.0 + 60.0 * rng.standard_normal(n),
        first=np.zeros(n, np.bool_),
    )
    encoder = RawEncoder(StepScores.fit(past))
    got = encoder.encode(past)
    assert encoder.names == ["x", "y", "x0", "y0", "elapsed", "vx", "vy"]
    np.testing.assert_allclose(got.mean(axis=0), 0.0, atol=0.08)
    np.testing.assert_allclose(got.std(axis=0), 1.0, atol=0.08)
    usual = np.abs(past.velocity) < 6.0
    np.testing.assert_allclose(got[:, 5:][usual], past.velocity[usual] / 3.0, atol=0.25)
    # One score for places and starts, so that a trip that stays where it began has equal numbers.
    still = encoder.encode(steps([[120.0, -340.0]], velocity=(0.0, 0.0), origin=(120.0, -340.0)))[0]
    assert still[0] == still[2]
    assert still[1] == still[3]


def test_fourier_features_have_the_gaussian_kernel_of_their_width():
    past = np.random.default_rng(1).standard_normal((4000, 2))
    scores = StepScores(*(NormalScores.fit(part) for part in (past, past[:, :1], past)))
    encoder = FourierEncoder.of(scores, np.random.default_rng(0).normal(size=(2, 2000)), width=0.5)
    at = encoder.encode(steps([[0, 0], [0.5, 0], [1.0, 0], [300, 0]]))
    assert at.shape == (4, len(encoder.names))
    waves, z = at[:, 9 : 9 + 4000].astype(float), at[:, 7:9].astype(float)
    # The inner product of random Fourier features approaches the kernel that their frequencies are drawn for.
    apart = np.square(z - z[0]).sum(axis=1)
    np.testing.assert_allclose(waves @ waves[0] / 2000, np.exp(-apart / (2 * 0.5**2)), atol=0.07)


def test_fourier_features_show_the_place_that_a_step_leads_to():
    past = np.random.default_rng(1).standard_normal((4000, 2)) * 100.0
    scores = StepScores(*(NormalScores.fit(part) for part in (past, past[:, :1], past)))
    encoder = FourierEncoder.of(scores, np.random.default_rng(0).normal(size=(2, 8)))
    # Two trips that begin at the same place and go to the two sides of it, in one step.
    left, right = encoder.encode(steps([[-60.0, 0.0], [60.0, 0.0]], velocity=(0.0, 0.0)))
    reached = np.array([name.startswith(("x reached", "y reached", "reached")) for name in encoder.names])
    start = np.array([name.startswith("start") or name in ("x0", "y0") for name in encoder.names])
    assert (reached.sum(), start.sum()) == (2 + 2 * 8, 2 + 2 * 8)
    np.testing.assert_array_equal(left[start], right[start])
    np.testing.assert_allclose([left[7], right[7]], [-0.6, 0.6], atol=0.1)
    assert np.abs(left[reached] - right[reached]).max() > 0.5


def test_familiarity_counts_the_other_trips_that_did_the_same():
    habits = (Habit(cell=500),)
    encoder = FamiliarityEncoder(habits=habits)
    for day in range(5):
        encoder = encoder.remember(steps([[0, 0], [10, 0], [5000, 5000]], time=day * DAY), [f"{day}"])
    assert encoder.memory.trip_ids == tuple("01234")
    assert encoder.memory.times.tolist() == [day * DAY for day in range(5)]
    got = encoder.encode(steps([[5, 0], [9e5, 9e5]]))
    assert got.shape == (2, len(encoder.names))
    np.testing.assert_allclose(np.expm1(got[:, 0]), [5.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(np.expm1(got[:, encoder.names.index("history")]), 5.0, rtol=1e-5)
    own = encoder.encode(steps([[5, 0]]), without=np.array([2]))
    np.testing.assert_allclose(np.expm1(own[:, 0]), 4.0, rtol=1e-5)


def test_two_trips_of_one_name_are_refused():
    with pytest.raises(DataError, match="two trips are called 'x'"):
        FamiliarityEncoder().remember(steps([[0, 0], [1, 1]], trip=[0, 1]), ["x", "x"])


# ---------------------------------------------------------------- the featurizer

HERE = Projection(45.0, 7.0)


def wander(n: int, every: float, seed: int = 0, duration: float = 3600.0) -> Trajectories:
    """``n`` smooth trips through one town, fixes ``every`` so many seconds."""
    rng = np.random.default_rng(seed)
    parts = []
    for k in range(n):
        second = np.arange(0.0, duration + 1)
        bend, speed = rng.uniform(0, 2 * np.pi, 3), rng.uniform(3, 8)
        heading = bend[0] + 0.8 * np.sin(second / 600 + bend[1]) + 0.5 * np.sin(second / 250 + bend[2])
        xy = np.cumsum(speed * np.column_stack([np.cos(heading), np.sin(heading)]), axis=0)
        spoken = second % every == 0
        lat, lon = HERE.to_degrees(xy[spoken])
        time = 1.7e9 + k * DAY + second[spoken]
        parts.append(Trajectories.from_fixes(time=time, lat=lat, lon=lon, agent="ana", trajectory=f"{k}"))
    return Trajectories.concat(parts)


def featurizer_of(fixes: Trajectories, **config: Any) -> Featurizer:
    return Featurizer.of(fixes, FeaturizerConfig(**config), np.random.default_rng(0)).remember(fixes)


def n_habits(featurizer: Featurizer) -> int:
    return len(featurizer.config.habits)


def test_a_trip_seen_once_is_not_familiar_with_itself():
    trip = wander(1, 5.0)
    featurizer = featurizer_of(trip)
    assert len(featurizer.memory) == 1
    featurized = featurizer.featurize(trip)
    assert not featurized.features[:, : n_habits(featurizer)].any()
    # Under another name the same fixes are familiar everywhere.
    twin = Trajectories(trip.columns, trip.offsets, ["ana"], ["twin"])
    familiar = featurizer.featurize(twin).features[:, : n_habits(featurizer)]
    assert (familiar.mean(axis=0) > 0.5 * np.log(2)).all()


def test_a_remembered_trip_is_measured_as_if_it_were_forgotten():
    trips = wander(6, 10.0)
    featurizer = featurizer_of(trips)
    blind = featurizer.forget([TripId("ana", "3")])
    assert blind.memory.trip_ids == tuple(TripId("ana", f"{k}") for k in (0, 1, 2, 4, 5))
    n = n_habits(featurizer)
    np.testing.assert_array_equal(
        featurizer.featurize(trips[3]).features[:, :n], blind.featurize(trips[3]).features[:, :n]
    )


def test_repeated_trips_are_familiar_and_new_ones_are_not():
    trips = wander(5, 10.0)
    featurizer = featurizer_of(trips)
    again = Trajectories.concat([trips[:1], wander(1, 10.0, seed=99)])
    again = Trajectories(again.columns, again.offsets, ["ana", "ana"], ["again", "elsewhere"])
    featurized = featurizer.featurize(again)
    familiar = [featurized.features[featurized.steps.trip == i, : n_habits(featurizer)].mean() for i in (0, 1)]
    assert familiar[0] > 2 * familiar[1]


def test_another_memory_gives_another_familiarity():
    trips = wander(4, 10.0)
    town = Featurizer.of(
        trips, FeaturizerConfig(), np.random.default_rng(0)
    )  # one centre for both, or their cells would differ
    mine, other = town.remember(trips[:1]), town.remember(trips[1:])
    made = town.featurize(trips).steps
    np.testing.assert_array_equal(mine.with_memory(other.memory).encode(made), other.encode(made))
    assert (mine.encode(made) != other.encode(made)).any()
    assert (len(town.memory), len(mine.memory), len(other.memory)) == (0, 1, 3)


def test_an_encoder_without_memory_remembers_nothing():
    trips = wander(2, 30.0)
    raw = Featurizer.of(trips, FeaturizerConfig(encoder="raw"), np.random.default_rng(0))
    assert raw.remember(trips) is raw
    assert len(raw.with_memory(featurizer_of(trips).memory).memory) == 0


def test_weights_are_seconds_capped_by_the_interval_and_rows_map_back_to_fixes():
    here = HERE
    time = np.array([0, 10, 10, 20, 80, 90, 5000, 5010.0])
    xy = np.zeros((8, 2))
    xy[3] += 1e5
    lat, lon = here.to_degrees(xy)
    fixes = Trajectories.from_fixes(time=time, lat=lat, lon=lon)
    featurized = featurizer_of(fixes).featurize(fixes)
    assert featurized.fault.tolist() == [0, 0, REPEATED, TELEPORT, 0, 0, 0, 0]
    assert featurized.row.tolist() == [0, 1, 4, 5, 6, 7]
    assert featurized.weight.tolist() == [0, 10, 15, 10, 0, 10]  # 70 s of silence weigh no more than the interval
    assert featurized.steps.time.tolist() == time[featurized.row].tolist()
    assert len(featurized.features) == len(featurized.row)


def test_rows_of_several_trips_map_back_to_their_fixes():
    trips = wander(3, 30.0)
    featurizer = featurizer_of(trips)
    featurized = featurizer.featurize(trips)
    assert featurized.row.tolist() == list(range(trips.n_rows))
    np.testing.assert_array_equal(featurized.steps.trip, trips.trajectory_of_row)
    at = featurizer.projection.to_metres(trips.columns["lat"], trips.columns["lon"])
    np.testing.assert_array_equal(featurized.steps.location, at[featurized.row])


@pytest.mark.parametrize("encoder", ["familiarity", "fourier", "raw"])
def test_the_mean_over_a_trip_does_not_depend_on_how_often_the_receiver_reported(encoder: str):
    past = wander(8, 5.0)
    featurizer = Featurizer.of(past, FeaturizerConfig(encoder=encoder), np.random.default_rng(0)).remember(past)
    means = {}
    for every in (2.0, 5.0, 10.0):
        trip = wander(8, every)[2]
        featurized = featurizer.featurize(trip)
        means[every] = np.average(featurized.features, axis=0, weights=featurized.weight)
    spread = featurizer.featurize(past).features.std(axis=0)
    for every in (2.0, 10.0):
        assert (np.abs(means[every] - means[5.0]) < 0.03 * spread + 1e-3).all()


def test_a_memory_does_not_depend_on_how_often_the_receiver_reported():
    counts = [len(featurizer_of(wander(3, every)).memory.keys) for every in (2.0, 5.0, 10.0, 30.0)]
    assert max(counts) < 1.1 * min(counts)


def test_trips_are_remembered_by_agent_and_trajectory():
    fixes = Trajectories.from_fixes(time=[0, 0], lat=[45, 45], lon=[7, 7], agent=["a", "b"], trajectory=["1", "1"])
    assert featurizer_of(fixes).memory.trip_ids == (TripId("a", "1"), TripId("b", "1"))


def test_no_trips_give_no_rows():
    fixes = wander(1, 30.0)
    featurizer = featurizer_of(fixes)
    featurized = featurizer.featurize(fixes[:0])
    assert featurized.features.shape == (0, len(featurizer.names))
    assert len(featurizer.remember(fixes[:0]).memory) == 1


def test_a_featurizer_forgets_by_its_rule():
    trips = wander(5, 30.0)
    featurizer = featurizer_of(trips, forgetting=Forgetting(max_trips=2))
    assert featurizer.memory.trip_ids == (TripId("ana", "3"), TripId("ana", "4"))


def test_the_longitude_sets_the_local_time_unless_it_is_given():
    fixes = Trajectories.from_fixes(time=[0, 1], lat=[39.9, 39.9], lon=[116.4, 116.4])
    assert featurizer_of(fixes).context.utc_offset == 8 * 3600
    assert featurizer_of(fixes, utc_offset=-1800.0).context.utc_offset == -1800.0


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"encoder": "magic"}, "no encoder named 'magic'; give one of familiarity, fourier, raw"),
        ({"interval": 0.0}, "interval is 0.0; give at least 0.001"),
        ({"trace_spacing": float("nan")}, "trace_spacing is nan"),
        ({"lags": (60.0,)}, "not among the 1 lags"),
        ({"popularity": (123.0,)}, "give sizes of cells that habits have"),
    ],
)
def test_an_impossible_configuration_is_refused(config: dict[str, Any], complaint: str):
    with pytest.raises(DataError, match=complaint):
        Featurizer.of(wander(1, 60.0), FeaturizerConfig(**config), np.random.default_rng(0))


def test_a_featurizer_needs_fixes():
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="no columns time, lat and lon"):
        Featurizer.of(Trajectories.from_steps([np.zeros((2, 2))], [np.zeros((2, 1))]), FeaturizerConfig(), rng)
    with pytest.raises(DataError, match="at least one"):
        Featurizer.of(wander(1, 60.0)[:0], FeaturizerConfig(), rng)


@pytest.mark.parametrize("wrong", [{"max_trips": 0}, {"window": -1.0}, {"half_life": 0.0}, {"half_life": float("nan")}])
def test_a_rule_that_forgets_everything_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(DataError, match="give a number above 0"):
        Forgetting(**wrong)


@settings(max_examples=150, deadline=None)
@given(trips_of_keys, st.one_of(st.none(), st.floats(0.5, 20.0)), st.integers(0, 2**32 - 1), raw_or_hashed)
def test_counts_of_earlier_trips_are_those_of_a_memory_of_these_trips_alone(
    trips: dict[str, list[int]], half_life: float | None, seed: int, factor: np.uint64
):
    """Many keys are looked up in a table, few by bisection; both must agree."""
    rule, times = Forgetting(half_life=half_life), np.random.default_rng(seed).uniform(0.0, 50.0, len(trips))
    keys = {name: np.array(keys, np.uint64) * factor for name, keys in trips.items()}
    memory = replace(Memory(), forgetting=rule).add(keys, dict(zip(trips, times.tolist(), strict=True))).ordered()
    asked = np.arange(14).astype(np.uint64) * factor
    for before in range(len(trips) + 1):
        alone = memory.remove(memory.trip_ids[before:])
        for query in (asked, np.tile(asked, 9)):
            found = memory.earlier_counts(query, np.full(len(query), before))
            np.testing.assert_allclose(found, alone.counts(query), rtol=1e-6)
        np.testing.assert_allclose(memory.earlier_history(np.array([before])), [alone.history], rtol=1e-9)
