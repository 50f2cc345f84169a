"""Injected anomalies: what each kind changes, what it leaves alone, and what a labelled test set promises."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astray import Trajectories
from astray.core.errors import DataError
from astray.core.projection import Projection
from astray_benchmark import injectors
from astray_benchmark.injections import inject
from astray_benchmark.injectors import INJECTORS, NEED_A_POOL, Injected

HERE = Projection(41.15, -8.61)
EVERY = 15.0
unhurried = settings(deadline=None, max_examples=40)


def trips_of(*paths: np.ndarray, agents: list[str] | None = None, start: float = 1.4e9) -> Trajectories:
    """Trips along paths in metres, a fix every 15 s, an hour apart."""
    lat, lon = HERE.to_degrees(np.concatenate(paths))
    lengths = [len(p) for p in paths]
    time = np.concatenate([start + 3600.0 * i + EVERY * np.arange(n) for i, n in enumerate(lengths)])
    names = [f"t{i}" for i in range(len(paths))]
    return Trajectories(
        {"time": time, "lat": lat.round(6), "lon": lon.round(6)},
        np.r_[0, np.cumsum(lengths)],
        agents or ["ana"] * len(paths),
        names,
        {"call": np.array(names)},
    )


def line(n: int = 41, to: tuple[float, float] = (6000.0, 0.0), start: tuple[float, float] = (0.0, 0.0)) -> np.ndarray:
    return np.linspace(start, to, n)


def arch(n: int = 41, height: float = 1500.0) -> np.ndarray:
    """Another way between the ends of :func:`line`: the same for its first 40 %, then round a block."""
    x = np.linspace(0, 6000, n)
    return np.column_stack([x, height * np.sin(np.pi * np.clip((x - 2400) / 3600, 0, 1))])


def xy(trips: Trajectories) -> np.ndarray:
    return HERE.to_metres(trips.columns["lat"], trips.columns["lon"])


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def one(made: Injected) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times since the start, places and truth of the only mutant."""
    assert len(made.trips) == 1
    time = made.trips.columns["time"]
    return time - time[0], xy(made.trips), made.truth


@pytest.fixture(scope="module")
def town() -> Trajectories:
    """Sixty trips of six people, straight and round about, of different lengths."""
    draw = np.random.default_rng(0)
    paths = [(line, arch)[i % 2](int(draw.integers(30, 60))) + draw.normal(scale=5, size=2) for i in range(60)]
    return trips_of(*paths, agents=[f"p{i % 6}" for i in range(60)])


@pytest.fixture(scope="module")
def elsewhere() -> Trajectories:
    """A pool that shares no trip with the town."""
    paths = [(arch, line)[i % 2](35 + i) for i in range(30)]
    made = trips_of(*paths, agents=[f"q{i % 5}" for i in range(30)])
    return Trajectories(made.columns, made.offsets, made.agent_ids, [f"other-{i}" for i in range(30)], made.context)


def run(kind: str, trips: Trajectories, pool: Trajectories, generator: np.random.Generator, **more: object) -> Injected:
    return INJECTORS[kind](trips, generator, **({"pool": pool} if kind in NEED_A_POOL else {}), **more)


# ---------------------------------------------------------------- what every kind promises


@pytest.mark.parametrize("kind", INJECTORS)
def test_mutants_keep_their_names_have_a_truth_and_differ(
    kind: str, town: Trajectories, elsewhere: Trajectories
) -> None:
    made = run(kind, town, elsewhere, rng())
    assert len(made.trips) == len(made.source) >= 25
    assert len(made.truth) == made.trips.n_rows
    assert made.trips.agent_ids.tolist() == town.agent_ids[made.source].tolist()
    assert made.trips.trajectory_ids.tolist() == town.trajectory_ids[made.source].tolist()
    assert made.trips.context["call"].tolist() == town.context["call"][made.source].tolist()
    assert np.logical_or.reduceat(made.truth, made.trips.offsets[:-1]).all()
    for mutant, source in zip(made.trips, made.source, strict=True):
        before = town[int(source)]
        same = len(mutant.columns["time"]) == len(before.columns["time"]) and all(
            np.array_equal(mutant.columns[name], before.columns[name]) for name in ("time", "lat", "lon")
        )
        assert not same


@pytest.mark.parametrize("kind", [k for k in INJECTORS if k not in ("reverse", "agent-swap", "splice")])
def test_end_points_stay(kind: str, town: Trajectories, elsewhere: Trajectories) -> None:
    made = run(kind, town, elsewhere, rng())
    for edge in (made.trips.offsets[:-1], made.trips.offsets[1:] - 1):
        which = town.offsets[:-1] if edge[0] == 0 else town.offsets[1:] - 1
        for name in ("lat", "lon"):
            np.testing.assert_array_equal(made.trips.columns[name][edge], town.columns[name][which[made.source]])
    starts = made.trips.columns["time"][made.trips.offsets[:-1]]
    np.testing.assert_array_equal(starts, town.columns["time"][town.offsets[:-1][made.source]])


@pytest.mark.parametrize("kind", INJECTORS)
def test_the_recorders_interval_does_not_betray_a_mutant(
    kind: str, town: Trajectories, elsewhere: Trajectories
) -> None:
    made = run(kind, town, elsewhere, rng())
    for trip in made.trips:
        assert np.diff(trip.columns["time"]) == pytest.approx(EVERY)


@pytest.mark.parametrize("kind", INJECTORS)
def test_the_same_seed_gives_the_same_mutants_and_the_input_is_untouched(
    kind: str, town: Trajectories, elsewhere: Trajectories
) -> None:
    before = {name: values.copy() for name, values in town.columns.items()}
    one, two = run(kind, town, elsewhere, rng()), run(kind, town, elsewhere, rng())
    for name in ("time", "lat", "lon"):
        np.testing.assert_array_equal(one.trips.columns[name], two.trips.columns[name])
        np.testing.assert_array_equal(town.columns[name], before[name])
    np.testing.assert_array_equal(one.truth, two.truth)
    assert len(run(kind, town, elsewhere, rng(), most=3).trips) == 3


@pytest.mark.parametrize("kind", ["point-jitter", "segment-shift", "detour", "loiter"])
def test_fixes_that_are_not_marked_are_those_of_the_original(kind: str, town: Trajectories) -> None:
    made = run(kind, town, town, rng())
    for trip, source in zip(range(len(made.trips)), made.source, strict=True):
        rows = slice(made.trips.offsets[trip], made.trips.offsets[trip + 1])
        left = ~made.truth[rows]
        place = np.column_stack([made.trips.columns[name][rows][left] for name in ("lat", "lon")])
        original = town[int(source)]
        places = np.column_stack([original.columns["lat"], original.columns["lon"]])
        kept = (places[:, None] == place).all(axis=2).any(axis=0)
        assert kept.all()


@unhurried
@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.sampled_from(sorted(INJECTORS)), st.integers(0, 99))
def test_trips_of_a_few_fixes_are_changed_or_left_out_but_never_break_anything(
    sizes: list[int], kind: str, seed: int
) -> None:
    paths = [np.random.default_rng(seed + n).normal(scale=900, size=(n, 2)) for n in sizes]
    trips = trips_of(*paths)
    pool = trips_of(line(5), line(2), agents=["bob", "bob"])
    made = run(kind, trips, pool, np.random.default_rng(seed))
    assert len(made.truth) == made.trips.n_rows
    assert len(made.trips) == len(made.source) <= len(trips)


def test_a_trip_that_stands_still_is_the_same_backwards_and_fast() -> None:
    still = trips_of(np.zeros((20, 2)))
    there_and_back = trips_of(np.vstack([line(20), line(20)[::-1]]))
    assert len(INJECTORS["reverse"](still, rng()).trips) == 0
    assert len(INJECTORS["reverse"](there_and_back, rng()).trips) == 0
    assert len(INJECTORS["speed"](still, rng()).trips) == 0
    assert len(INJECTORS["detour"](still, rng()).trips) == 0
    assert len(INJECTORS["detour"](there_and_back, rng()).trips) == 0


def test_nothing_is_shared_with_what_detectors_learn_from() -> None:
    for module in ("injectors.py", "injections.py"):
        tree = ast.parse((Path(injectors.__file__).parent / module).read_text(encoding="utf-8"))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not {name for name in imported if "counterfactuals" in str(name) or "simulate" in str(name)}


# ---------------------------------------------------------------- kind by kind


def test_jitter_moves_a_share_of_the_interior_fixes_by_king_moves() -> None:
    time, place, truth = one(INJECTORS["point-jitter"](trips_of(line(2002)), rng(), alpha=0.25, d=2))
    moved = np.abs(place - line(2002))
    np.testing.assert_allclose(moved[~truth], 0, atol=0.1)
    kings = moved[truth].round(-1)
    assert set(map(tuple, kings.tolist())) == {(200.0, 0.0), (0.0, 200.0), (200.0, 200.0)}
    assert truth.mean() == pytest.approx(0.25, abs=0.04)
    assert time.tolist() == (EVERY * np.arange(2002)).tolist()


def test_a_shift_moves_one_run_across_the_direction_of_travel() -> None:
    for alpha, n in ((0.3, 12), (0.5, 41), (1.0, 7)):
        _, place, truth = one(INJECTORS["segment-shift"](trips_of(line(n)), rng(), alpha=alpha, d=3))
        assert truth.sum() == int(alpha * (n - 2))
        assert np.flatnonzero(truth).tolist() == list(range(np.argmax(truth), np.argmax(truth) + truth.sum()))
        moved = place - line(n)
        assert np.abs(moved[truth, 1]) == pytest.approx(300, abs=0.2)
        assert moved[:, 0] == pytest.approx(0, abs=0.2)
        assert len(np.unique(np.sign(moved[truth, 1]))) == 1


def test_a_run_of_less_than_one_fix_is_no_anomaly() -> None:
    assert len(INJECTORS["segment-shift"](trips_of(line(4)), rng(), alpha=0.3).trips) == 0  # floor(0.3 * 2) = 0
    assert len(INJECTORS["segment-shift"](trips_of(line(4)), rng(), alpha=0.5).trips) == 1


def test_a_detour_is_a_half_sine_as_high_as_it_says_and_takes_the_time_of_its_length() -> None:
    n, alpha, h = 102, 0.5, 0.2
    time, place, truth = one(INJECTORS["detour"](trips_of(line(n)), rng(), alpha=alpha, h=h))
    height = np.abs(place[:, 1])
    assert height.max() == pytest.approx(h * 6000, rel=0.01)
    assert height[~truth].max() < 0.1
    # The bent run is a half sine over the segment from the fix before to the fix after it.
    first, last = np.flatnonzero(truth)[[0, -1]]
    u = (place[truth, 0] - place[first - 1, 0]) / (place[last + 1, 0] - place[first - 1, 0])
    assert height[truth] == pytest.approx(1200 * np.sin(np.pi * u), abs=1.0)
    # Its speed is that of the run before: as much longer, so much later.
    length = np.hypot(*np.diff(place[first - 1 : last + 2], axis=0).T).sum()
    straight = 6000 / (n - 1)  # metres in 15 s
    assert (last + 1 - (first - 1)) == pytest.approx(length / straight, rel=0.02)
    assert len(place) > n
    assert time[-1] == EVERY * (len(place) - 1)


def test_loitering_is_a_stop_in_the_middle_half_and_delays_the_rest() -> None:
    time, place, truth = one(INJECTORS["loiter"](trips_of(line()), rng(), minutes=10))
    assert truth.sum() == 40
    first = int(np.argmax(truth))
    assert 10 <= first - 1 < 31
    assert np.hypot(*(place[truth] - place[first - 1]).T).max() < 30
    assert time[-1] == EVERY * 40 + 600
    np.testing.assert_allclose(place[~truth], line(), atol=0.1)


def test_the_way_back_starts_where_the_trip_ended() -> None:
    time, place, truth = one(INJECTORS["reverse"](trips_of(arch()), rng()))
    np.testing.assert_allclose(place, arch()[::-1], atol=0.1)
    assert truth.all()
    assert time[-1] == EVERY * 40


@pytest.mark.parametrize(("k", "n"), [(2.0, 21), (4.0, 11), (0.5, 81), (3.0, 14)])
def test_speed_goes_the_same_way_in_less_time(k: float, n: int) -> None:
    _, place, truth = one(INJECTORS["speed"](trips_of(line()), rng(), k=k))
    assert len(place) == n  # 40 intervals / k, rounded, and one more fix
    assert truth.all()
    np.testing.assert_allclose(place, line(n), atol=0.1)
    with pytest.raises(DataError, match="k is 1"):
        INJECTORS["speed"](trips_of(line()), rng(), k=1)


def test_irregular_intervals_stay_those_of_the_recorder() -> None:
    gaps = np.random.default_rng(3).integers(1, 9, 40)
    lat, lon = HERE.to_degrees(line())
    trip = Trajectories.from_fixes(time=np.r_[0, np.cumsum(gaps)], lat=lat, lon=lon)
    fast = INJECTORS["speed"](trip, rng(), k=2).trips.columns["time"]
    assert np.diff(fast).tolist() == gaps[: len(fast) - 1].tolist()
    assert fast[-1] == pytest.approx(gaps.sum() / 2, abs=9)


def test_a_splice_begins_on_one_way_and_ends_on_the_other() -> None:
    pool = trips_of(arch(60), agents=["bob"])
    made = INJECTORS["splice"](trips_of(line()), rng(), pool=pool)
    time, place, truth = one(made)
    first = int(np.argmax(truth))
    np.testing.assert_allclose(place[:10], line()[:10], atol=0.1)
    assert (place[truth, 1] > 99).all()  # more than a cell away from the straight way
    assert (place[~truth, 1] <= 101).all()
    assert first > 10
    assert time[-1] == EVERY * (len(place) - 1)
    np.testing.assert_allclose(place[-1], arch()[-1], atol=0.1)


def test_no_splice_without_another_way_between_the_same_places() -> None:
    trip = trips_of(line())
    for other in (line(50), arch() + 900.0, line(50, (9000.0, 0.0)), arch()[::-1]):
        assert len(INJECTORS["splice"](trip, rng(), pool=trips_of(other, agents=["bob"])).trips) == 0


def test_a_swapped_trip_keeps_hour_and_weekday_and_comes_to_the_date_of_the_trip() -> None:
    mine = trips_of(line(), line(30), start=1.4e9)
    theirs = trips_of(arch(), arch(50), arch(20), agents=["bob", "ana", "cid"], start=1.2e9)
    made = INJECTORS["agent-swap"](mine, rng(), pool=theirs)
    assert made.trips.agent_ids.tolist() == ["ana", "ana"]
    assert sorted(made.trips.lengths.tolist()) == [20, 41]  # never her own trip of 50 fixes, and none twice
    starts = made.trips.columns["time"][made.trips.offsets[:-1]]
    assert np.abs(starts - mine.columns["time"][mine.offsets[:-1]]).max() <= 604_800 / 2
    assert set((starts % 604_800).tolist()) <= {(1.2e9 + 3600 * i) % 604_800 for i in range(3)}
    assert made.truth.all()


def test_a_copy_of_the_trip_under_another_name_is_no_swap() -> None:
    copied = trips_of(line(), agents=["bob"])
    assert len(INJECTORS["agent-swap"](trips_of(line()), rng(), pool=copied).trips) == 0


# ---------------------------------------------------------------- a labelled test set


def test_a_rate_is_the_share_of_one_kind_among_itself_and_the_normal_trips(
    town: Trajectories, elsewhere: Trajectories
) -> None:
    test = inject(town, ["reverse"], 0.1, rng())
    assert (test.label.sum(), len(test.trips)) == (6, 60)
    kinds = ["reverse", "splice", "loiter", "agent-swap"]
    test = inject(town, kinds, 0.1, rng(), pool=elsewhere)
    counts = {kind: int((test.kind == kind).sum()) for kind in kinds}
    assert set(counts.values()) == {5}  # 0.1 * 60 / (0.9 + 0.1 * 4) = 4.6; 5 of 45 is 11 %
    assert (~test.label).sum() == 40


def test_labels_truth_and_trips_belong_together(town: Trajectories, elsewhere: Trajectories) -> None:
    test = inject(town, list(INJECTORS), 0.05, rng(), pool=elsewhere)
    assert test.trips.trajectory_ids.tolist() == town.trajectory_ids.tolist()
    assert test.trips.agent_ids.tolist() == town.agent_ids.tolist()
    assert len(test.truth) == test.trips.n_rows
    np.testing.assert_array_equal(np.logical_or.reduceat(test.truth, test.trips.offsets[:-1]), test.label)
    for i in np.flatnonzero(~test.label).tolist():
        np.testing.assert_array_equal(test.trips[i].columns["lat"], town[i].columns["lat"])


def test_the_same_seed_gives_the_same_test_set_and_another_seed_another(town: Trajectories) -> None:
    one, two, three = (inject(town, ["detour"], 0.2, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.trips.columns["lat"], two.trips.columns["lat"])
    assert one.kind.tolist() == two.kind.tolist() != three.kind.tolist()


def test_a_trip_that_cannot_carry_its_kind_stays_normal_and_another_takes_its_place() -> None:
    trips = trips_of(*[line(41 if i % 4 == 0 else 2) for i in range(40)])
    test = inject(trips, ["detour"], 0.2, rng())
    assert test.label.sum() == 8
    assert (np.flatnonzero(test.label) % 4 == 0).all()
    with pytest.raises(DataError, match=r"only 10 of 20 trips.*'detour'.*lower the rate"):
        inject(trips, ["detour"], 0.5, rng())


def test_a_pool_that_holds_test_trips_is_refused(town: Trajectories, elsewhere: Trajectories) -> None:
    both = Trajectories.concat([elsewhere, town[3]])
    for kind in NEED_A_POOL:
        with pytest.raises(DataError, match=r"'t3' of agent 'p3' is both in the test set and in the pool"):
            inject(town, [kind], 0.05, rng(), pool=both)
        with pytest.raises(DataError, match="needs other trips"):
            inject(town, [kind], 0.05, rng())
    with pytest.raises(DataError, match="too few for a rate"):
        inject(town[:3], ["loiter"], 0.05, rng())
