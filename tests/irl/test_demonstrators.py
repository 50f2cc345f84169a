"""What the learner can see, try and imagine: counterfactual trips, context, and the two worlds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from astray import Trajectories, TripId
from astray.core.errors import DataError
from astray.core.projection import Projection
from astray.features.context import Context, ContextSpec
from astray.features.familiarity import DAY, WEEK, Habit
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.memory import Memory
from astray.features.paths import make_paths
from astray.features.steps import Steps
from astray.irl.counterfactuals import BORROW_WITHIN, COUNTERFACTUALS, KINDS, NEAR, Path, explore
from astray.irl.demonstrations import Rows
from astray.irl.dynamics import Integrator
from astray.irl.gps_demonstrator import GpsDemonstrator
from astray.irl.policy import Rollout
from astray.irl.step_demonstrator import StepDemonstrator

Array = NDArray[Any]

INTERVAL = 30.0
HERE = Projection(45.0, 7.0)


def curve(k: int, n: int = 40) -> Array:
    """The places of trip ``k``: bent, at about 10 m/s, from a start of its own, never twice at one place."""
    heading = 0.7 * k + 0.9 * np.sin(np.arange(n) / 9 + k)
    stride = 300.0 + 30.0 * np.cos(np.arange(n) / 5 + k)
    moves = stride[:, None] * np.column_stack([np.cos(heading), np.sin(heading)])
    return np.array([1000.0 * k, -500.0 * k]) + np.cumsum(moves, axis=0)


def some_paths(n: int = 5) -> Trajectories:
    """Paths of different lengths, already on the grid of the interval."""
    parts = [curve(k, 40 + 3 * k) for k in range(n)]
    times = [1.7e9 + k * DAY + INTERVAL * np.arange(len(p)) for k, p in enumerate(parts)]
    return make_paths(np.concatenate(times), np.concatenate(parts), np.r_[0, np.cumsum([len(p) for p in parts])])


def one(paths: Trajectories, i: int) -> tuple[Array, Array]:
    return paths[i].columns["time"], paths[i].columns["xy"]


def at(time: Array, xy: Array, when: Array) -> Array:
    """Where a path was at some times."""
    return np.column_stack([np.interp(when, time, xy[:, k]) for k in (0, 1)])


def make(name: str, seed: int, i: int = 1) -> tuple[Array, Array, Path]:
    """A path, and a counterfactual of it as it is made, before it is resampled."""
    paths = some_paths()
    time, xy = one(paths, i)
    kept = time.copy(), xy.copy()
    path = COUNTERFACTUALS[name](time, xy, paths, np.random.default_rng(seed))
    np.testing.assert_array_equal(time, kept[0])  # the original is left as it was
    np.testing.assert_array_equal(xy, kept[1])
    return time, xy, path


SEEDS = range(20)

# ---------------------------------------------------------------- counterfactuals


@pytest.mark.parametrize("seed", SEEDS)
def test_shift_is_the_same_trip_elsewhere(seed: int):
    time, xy, path = make("shift", seed)
    moved = path.xy - xy
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], xy.shape), atol=1e-6)
    assert NEAR <= np.hypot(*moved[0]) <= 30_000
    np.testing.assert_array_equal(path.time, time)


@pytest.mark.parametrize("seed", SEEDS)
def test_rotate_keeps_the_start_and_every_distance_from_it(seed: int):
    time, xy, path = make("rotate", seed)
    np.testing.assert_allclose(path.xy[0], xy[0])
    np.testing.assert_allclose(np.hypot(*(path.xy - xy[0]).T), np.hypot(*(xy - xy[0]).T), atol=1e-6)
    chord = np.hypot(*(path.xy - xy)[1:].T) / np.hypot(*(xy - xy[0])[1:].T)  # 2 sin(angle / 2)
    assert (chord >= 2 * np.sin(0.075 * np.pi) - 1e-9).all()
    np.testing.assert_array_equal(path.time, time)


@pytest.mark.parametrize("seed", SEEDS)
def test_transplant_starts_where_another_trip_of_the_person_does(seed: int):
    _, xy, path = make("transplant", seed)
    starts = some_paths().columns["xy"][some_paths().offsets[:-1]]
    nearest = np.hypot(*(starts - path.xy[0]).T)
    assert nearest.min() < 1e-6
    assert nearest.argmin() != 1  # not its own
    np.testing.assert_allclose(path.xy - path.xy[0], xy - xy[0], atol=1e-6)


def test_transplant_of_somebody_who_always_starts_at_home_goes_elsewhere():
    home = [curve(k) - curve(k)[0] for k in range(3)]
    time = np.tile(np.arange(40) * INTERVAL, 3)
    paths = make_paths(time, np.concatenate(home), np.arange(4) * 40)
    for seed in SEEDS:
        path = COUNTERFACTUALS["transplant"](*one(paths, 0), paths, np.random.default_rng(seed))
        assert np.hypot(*path.xy[0]) >= NEAR


@pytest.mark.parametrize("seed", SEEDS)
def test_walk_keeps_the_start_and_the_speeds(seed: int):
    time, xy, path = make("walk", seed)
    np.testing.assert_allclose(path.xy[0], xy[0])
    np.testing.assert_allclose(np.hypot(*np.diff(path.xy, axis=0).T), np.hypot(*np.diff(xy, axis=0).T))
    assert np.hypot(*(path.xy[-1] - xy[-1])) > 10.0
    np.testing.assert_array_equal(path.time, time)


@pytest.mark.parametrize("seed", SEEDS)
def test_turn_off_is_the_same_up_to_a_point_and_turned_after_it(seed: int):
    time, xy, path = make("turn_off", seed)
    before = time <= path.changed[0]
    assert 0 < before.sum() < len(time)
    np.testing.assert_array_equal(path.xy[before], xy[before])
    np.testing.assert_allclose(np.hypot(*np.diff(path.xy, axis=0).T), np.hypot(*np.diff(xy, axis=0).T))
    assert (np.hypot(*(path.xy - xy)[~before].T) > 50.0).all()
    assert path.changed[1] == time[-1]


def crossing_paths() -> Trajectories:
    """Four trips: one going east, its twin, one that turns north halfway, and one far away."""
    east = np.column_stack([np.arange(40) * 200.0, np.zeros(40)])
    north = east.copy()
    north[20:] = east[20] + np.column_stack([np.zeros(20), np.arange(20) * 200.0])
    places = np.concatenate([east, east + 20.0, north, east + 50_000.0])
    return make_paths(np.tile(np.arange(40) * INTERVAL, 4), places, np.arange(5) * 40)


@pytest.mark.parametrize("seed", SEEDS)
def test_borrow_follows_another_trip_from_where_they_part(seed: int):
    paths = crossing_paths()
    time, xy = one(paths, 0)
    path = COUNTERFACTUALS["borrow"](time, xy, paths, np.random.default_rng(seed))
    changed = (path.time > path.changed[0]) & (path.time <= path.changed[1])
    assert changed.any()
    assert not changed[0]
    # What is not called changed went the person's way; what is has left it, for good in this town.
    np.testing.assert_array_less(np.abs(path.xy[~changed, 1]), BORROW_WITHIN)
    from_own = np.array([np.hypot(*(xy - p).T).min() for p in path.xy[changed]])
    assert from_own.max() > BORROW_WITHIN
    borrowed = np.isin(path.xy[changed], paths[2].columns["xy"]).all()
    turned = np.allclose(np.hypot(*np.diff(path.xy, axis=0).T), 200.0)  # no trip met in eight draws: it turns off
    assert borrowed or turned


def test_borrow_mostly_finds_a_trip_to_follow():
    paths = crossing_paths()
    ends = [COUNTERFACTUALS["borrow"](*one(paths, 0), paths, np.random.default_rng(s)).xy[-1] for s in range(50)]
    assert np.mean([np.allclose(end, paths[2].columns["xy"][-1]) for end in ends]) > 0.6


@pytest.mark.parametrize("seed", SEEDS)
def test_detour_bulges_sideways_and_comes_back(seed: int):
    time, xy, path = make("detour", seed)
    inside = (time > path.changed[0]) & (time < path.changed[1])
    np.testing.assert_allclose(path.xy[~inside], xy[~inside], atol=1e-6)
    np.testing.assert_allclose(path.xy[[0, -1]], xy[[0, -1]], atol=1e-6)
    off = np.hypot(*(path.xy - xy)[inside].T)
    assert (off > 1.0).all()
    assert off.max() >= 0.2 * 500.0 * np.sin(np.pi / 3)
    assert 0.1 * len(time) <= inside.sum() <= 0.5 * len(time)
    np.testing.assert_array_equal(path.time, time)


def test_reverse_is_the_same_set_of_places_in_the_opposite_order():
    time, xy, path = make("reverse", 0)
    np.testing.assert_array_equal(path.xy, xy[::-1])
    assert path.time[[0, -1]].tolist() == time[[0, -1]].tolist()
    np.testing.assert_allclose(np.diff(path.time), np.diff(time)[::-1])


@pytest.mark.parametrize("seed", SEEDS)
def test_pace_scales_the_duration_and_keeps_the_way(seed: int):
    time, xy, path = make("pace", seed)
    np.testing.assert_array_equal(path.xy, xy)
    factor = (path.time - path.time[0])[1:] / (time - time[0])[1:]
    np.testing.assert_allclose(factor, factor[0], rtol=1e-6)
    assert 1.5 - 1e-6 <= max(factor[0], 1 / factor[0]) <= 4 + 1e-6
    assert path.time[0] == time[0]


def test_pace_goes_both_ways():
    factors = [np.ptp(make("pace", seed)[2].time) / np.ptp(make("pace", seed)[0]) for seed in SEEDS]
    assert min(factors) < 1 < max(factors)


@pytest.mark.parametrize("seed", SEEDS)
def test_stop_adds_a_pause_and_continues_later(seed: int):
    time, xy, path = make("stop", seed)
    start, end = path.changed
    pause = end - start
    assert 300.0 <= pause <= 3600.0
    standing = at(path.time, path.xy, np.linspace(start, end, 50))
    np.testing.assert_allclose(standing, np.broadcast_to(standing[0], standing.shape), atol=1e-6)
    early, late = time[time <= start], time[time >= start]
    np.testing.assert_allclose(at(path.time, path.xy, early), xy[: len(early)], atol=1e-6)
    np.testing.assert_allclose(at(path.time, path.xy, late + pause), xy[-len(late) :], atol=1e-3)
    assert np.ptp(path.time) == pytest.approx(np.ptp(time) + pause)


@pytest.mark.parametrize("seed", SEEDS)
def test_hour_keeps_the_places_and_changes_the_hour(seed: int):
    time, xy, path = make("hour", seed)
    np.testing.assert_array_equal(path.xy, xy)
    later = path.time - time
    np.testing.assert_allclose(later, later[0], atol=1e-6)
    assert 2 * 3600 - 1e-3 <= later[0] % DAY <= 22 * 3600 + 1e-3
    assert 0 < later[0] < WEEK


@pytest.mark.parametrize("name", COUNTERFACTUALS)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_shortest_paths_have_counterfactuals_too(name: str, n: int):
    paths = make_paths(np.arange(n) * INTERVAL, curve(0, n), np.array([0, n]))
    for seed in SEEDS:
        path = COUNTERFACTUALS[name](*one(paths, 0), paths, np.random.default_rng(seed))
        assert len(path.time) == len(path.xy)
        assert (np.diff(path.time) > 0).all()
        assert np.isfinite(path.xy).all()
        if name == "turn_off" and n > 1:
            assert (path.xy != paths.columns["xy"]).any()  # something is left to go another way


def test_an_excursion_leaves_the_way_and_comes_back_to_it():
    paths = some_paths()
    drawn, changed = explore(paths, 60, ["excursion"], INTERVAL, np.random.default_rng(5))
    row = drawn.trajectory_of_row
    for i in range(len(drawn)):
        _, xy = one(drawn, i)
        _, original = one(paths, int(drawn.context["trip"][i]))
        other = changed[row == i]
        assert other.any()
        np.testing.assert_allclose(xy[[0, -1]], original[[0, -1]], atol=1.0)
        apart = np.hypot(*np.moveaxis(xy[~other][:, None] - original[None], -1, 0)).min(axis=1)
        assert np.median(apart) < 200.0  # the points between two of the original's lie beside them


@pytest.mark.parametrize("name", [name for name in COUNTERFACTUALS if name not in ("borrow", "excursion")])
def test_points_that_are_not_marked_as_changed_stay_in_place(name: str):
    paths = some_paths()
    drawn, changed = explore(paths, 60, [name], INTERVAL, np.random.default_rng(5))
    assert len(drawn) == 60
    spacing = np.diff(drawn.columns["time"])
    spacing = np.delete(spacing, drawn.offsets[1:-1] - 1)
    assert (np.abs(spacing - INTERVAL) < 0.5 * INTERVAL).all()
    row = drawn.trajectory_of_row
    for i in range(len(drawn)):
        time, xy = one(drawn, i)
        original_time, original = one(paths, int(drawn.context["trip"][i]))
        other = changed[row == i]
        assert other.any()
        pause = np.ptp(time) - np.ptp(original_time) if name == "stop" else 0.0
        # After a stop the trip goes on as before, later.
        end = time[other][-1]
        when = np.where(time > end, time - pause, time)[~other]
        np.testing.assert_allclose(xy[~other], at(original_time, original, when), atol=1.0)
        if name in ("turn_off", "detour"):
            # ... and what is called changed has moved, or (the last point of a detour) was reached another way.
            off = np.hypot(*(xy - at(original_time, original, time)).T)
            assert (off[other][: -1 if name == "detour" else None] > 1.0).all()
        elif name == "stop":
            assert np.hypot(*np.diff(xy[other], axis=0).T).max() < 1e-6
        else:
            assert other.all()


def test_only_the_named_counterfactuals_are_drawn():
    paths = some_paths()
    drawn, _ = explore(paths, 80, ["hour", "pace"], INTERVAL, np.random.default_rng(0))
    durations = np.array([np.ptp(d.columns["time"]) for d in drawn])
    originals = np.array([np.ptp(paths[int(t)].columns["time"]) for t in drawn.context["trip"]])
    starts = np.array([d.columns["time"][0] for d in drawn])
    began = np.array([paths[int(t)].columns["time"][0] for t in drawn.context["trip"]])
    another_hour, another_pace = starts != began, ~np.isclose(durations, originals)
    assert (another_hour ^ another_pace).all()
    assert 20 < another_hour.sum() < 60
    for i, d in enumerate(drawn):
        _, xy = one(paths, int(drawn.context["trip"][i]))
        np.testing.assert_allclose(d.columns["xy"][[0, -1]], xy[[0, -1]], atol=1e-3)


def test_a_counterfactual_keeps_the_context_of_its_trip():
    paths = some_paths()
    paths.context["given"] = np.arange(5.0)[:, None]
    drawn, _ = explore(paths, 30, list(COUNTERFACTUALS), INTERVAL, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn.context["given"][:, 0], drawn.context["trip"])
    assert len(set(drawn.context["trip"].tolist())) == 5


def test_the_same_seed_draws_the_same_counterfactuals():
    a, b = (explore(some_paths(), 30, list(COUNTERFACTUALS), INTERVAL, np.random.default_rng(3))[0] for _ in "ab")
    np.testing.assert_array_equal(a.columns["xy"], b.columns["xy"])


def test_unknown_counterfactuals_are_refused():
    for names, complaint in ((["shift", "abduct"], "'abduct'"), ([], "none")):
        with pytest.raises(DataError, match=f"no counterfactual named .*{complaint}.*give some of shift, rotate"):
            explore(some_paths(), 3, names, INTERVAL, np.random.default_rng(0))


def test_every_counterfactual_is_of_one_kind():
    assert sorted(name for names in KINDS.values() for name in names) == sorted(COUNTERFACTUALS)


# ---------------------------------------------------------------- context


def steps_at(time: Array, location: Array | None = None, given: Array | None = None) -> Steps:
    n = len(time)
    zero = np.zeros((n, 2))
    return Steps(
        location=zero if location is None else location,
        velocity=zero,
        window=np.zeros(n),
        origin=zero,
        elapsed=np.zeros(n),
        time=np.asarray(time, np.float64),
        trail=np.zeros((n, 0, 2)),
        trip=np.zeros(n, int),
        first=np.zeros(n, bool),
        given=np.zeros((n, 0)) if given is None else given,
    )


def trips_with(**context: Any) -> Trajectories:
    n = len(next(iter(context.values())))
    return Trajectories.from_fixes(
        time=np.zeros(n), lat=np.full(n, 45.0), lon=np.full(n, 7.0), trajectory=np.arange(n), context=context
    )


def test_cycles_run_on_over_midnight_and_over_the_end_of_the_week():
    context = Context(ContextSpec(time_of_day=True, weekday=True))
    assert context.names == ["sin of day", "cos of day", "sin of week", "cos of week"]
    minutes = context.encode(steps_at(np.arange(0, 2 * WEEK, 60.0)))
    step = np.hypot(*np.diff(minutes[:, :2], axis=0).T), np.hypot(*np.diff(minutes[:, 2:], axis=0).T)
    np.testing.assert_allclose(step[0], 2 * np.sin(np.pi * 60 / DAY), rtol=1e-2)
    np.testing.assert_allclose(step[1], 2 * np.sin(np.pi * 60 / WEEK), rtol=2e-2)
    np.testing.assert_allclose(minutes[:1440, :2], minutes[1440:2880, :2], atol=1e-5)
    assert np.abs(minutes[0, :2] - minutes[720, :2]).max() == pytest.approx(2.0)  # noon is opposite to midnight


def test_the_time_of_day_is_local():
    spec = ContextSpec(time_of_day=True)
    utc, tokyo = Context(spec), Context(spec, utc_offset=9 * 3600.0)
    np.testing.assert_allclose(tokyo.encode(steps_at([0.0])), utc.encode(steps_at([9 * 3600.0])), atol=1e-6)


def test_labels_are_one_hot_and_an_unknown_one_is_all_zeros():
    spec = ContextSpec(categorical=("call",), numeric=("fare",))
    known = trips_with(call=["phone", "stand", "phone"], fare=[1, 2, 3])
    context = Context.of(spec, known, HERE)
    assert context.names == ["fare", "call = phone", "call = stand"]
    new = trips_with(call=["stand", "drone"], fare=[7.5, 0.0])
    assert context.given(new).tolist() == [[7.5, 0.0, 1.0], [0.0, 0.0, 0.0]]
    encoded = context.encode(steps_at(np.zeros(2), given=context.given(new)))
    assert encoded.tolist() == context.given(new).tolist()


def test_a_landmark_is_a_distance():
    here, there = (45.0, 7.0), tuple(float(v[0]) for v in HERE.to_degrees(np.array([[3000.0, 4000.0]])))
    context = Context.of(ContextSpec(landmarks=(here, there)), trips_with(x=[1]), HERE)
    assert context.names == ["landmark 0", "landmark 1"]
    got = context.encode(steps_at(np.zeros(2), location=np.array([[0.0, 0.0], [3000.0, 4000.0]])))
    np.testing.assert_allclose(got, np.log1p([[0, 50], [50, 0]]), atol=1e-4)  # in units of 100 m


def test_missing_context_is_refused_by_name():
    spec = ContextSpec(numeric=("fare",), categorical=("call",))
    with pytest.raises(DataError, match=r"no context column 'fare' in these trajectories \(there are: call\)"):
        Context.of(spec, trips_with(call=["a"]), HERE)
    with pytest.raises(DataError, match=r"no context column 'call' in these trajectories \(there are: fare\)"):
        Context.of(spec, trips_with(fare=[1.0]), HERE)
    context = Context.of(spec, trips_with(fare=[1.0], call=["a"]), HERE)
    for fare in ([np.nan], [np.inf], ["cheap"]):
        with pytest.raises(DataError, match="context column 'fare' is not a finite number"):
            context.given(trips_with(fare=fare, call=["a"]))
    with pytest.raises(DataError, match="no context column 'call'"):
        context.given(trips_with(fare=[1.0]))


def test_no_context_adds_no_feature():
    trips = fixes_of([curve(0)])
    featurizer = Featurizer.of(trips, FeaturizerConfig(), np.random.default_rng(0))
    assert featurizer.context.names == []
    assert featurizer.featurize(trips).features.shape[1] == len(featurizer.encoder.names)


def test_context_stands_behind_the_encoders_features_on_every_step_of_its_trip():
    spec = ContextSpec(time_of_day=True, categorical=("call",))
    trips = fixes_of([curve(0), curve(1)]).with_columns(context={"call": ["a", "b"]})
    featurizer = Featurizer.of(trips, FeaturizerConfig(context=spec), np.random.default_rng(0))
    featurized = featurizer.featurize(trips)
    assert featurizer.names[-4:] == ["sin of day", "cos of day", "call = a", "call = b"]
    np.testing.assert_array_equal(featurized.features[:, -1], featurized.steps.trip)
    np.testing.assert_array_equal(featurized.features[:, -2], 1 - featurized.steps.trip)


# ---------------------------------------------------------------- the world of fixes


def fixes_of(places: list[Array], agent: str = "ana", names: list[str] | None = None) -> Trajectories:
    """One trip a list of places, a fix every interval, a day apart."""
    lat, lon = HERE.to_degrees(np.concatenate(places))
    lengths = [len(p) for p in places]
    time = np.concatenate([1.7e9 + k * DAY + INTERVAL * np.arange(n) for k, n in enumerate(lengths)])
    ids = names or [f"{k}" for k in range(len(places))]
    return Trajectories.from_fixes(time=time, lat=lat, lon=lon, agent=agent, trajectory=np.repeat(ids, lengths))


def world_of(fixes: Trajectories, **config: Any) -> GpsDemonstrator:
    at_interval = FeaturizerConfig(interval=INTERVAL, **config)
    return GpsDemonstrator.of(fixes, Featurizer.of(fixes, at_interval, np.random.default_rng(0)))


def habits(world: GpsDemonstrator, rows: Rows) -> Array:
    return rows.features[:, : len(world.featurizer.config.habits)]


def roll(world: GpsDemonstrator, actions: Array, lengths: list[int], seed: int = 0) -> Rollout:
    """A rollout of given actions (n, horizon, 2), from starts drawn by the world's dynamics."""
    rng = np.random.default_rng(seed)
    states = world.dynamics.reset(len(actions), rng)
    return roll_from(world, states, actions, lengths)


def roll_from(world: GpsDemonstrator, states: Array, actions: Array, lengths: list[int]) -> Rollout:
    n, horizon, _ = actions.shape
    mask = np.arange(horizon) < np.array(lengths)[:, None]
    before, after = [], []
    for h in range(horizon):
        before.append(states)
        states, _ = world.dynamics.step(states, actions[:, h], np.random.default_rng(0))
        after.append(states)
    cut = mask[:, :, None]
    return Rollout(
        states=np.stack(before, 1) * cut,
        actions=actions * cut,
        log_prob=np.zeros((n, horizon)),
        mask=mask,
        next_states=np.stack(after, 1) * cut,
        ended=np.zeros(n, bool),
    )


def test_a_demonstration_does_not_count_its_own_visit():
    alone = world_of(fixes_of([curve(0)]))
    assert len(alone.featurizer.memory) == 1
    assert not habits(alone, alone.demonstrations()).any()
    twice = world_of(fixes_of([curve(0), curve(0)]), habits=(Habit(cell=500),), popularity=())
    familiar = habits(twice, twice.demonstrations())
    np.testing.assert_allclose(familiar, np.log(2), rtol=1e-6)  # the one other trip


def test_demonstrations_carry_the_number_of_their_trip():
    fixes = fixes_of([curve(0, 10), curve(1, 1), curve(2, 20)])
    late = np.where(np.arange(fixes.n_rows) >= 20, 5000.0, 0.0)  # a gap in the middle of the last trip
    fixes = fixes.with_columns({"time": fixes.columns["time"] + late})
    world = world_of(fixes)
    rows = world.demonstrations()
    assert len(world.names) == 3
    assert np.unique(rows.trip).tolist() == [0, 2]  # a single fix is no step
    assert rows.path.tolist() == [0] * 9 + [1] * 8 + [2] * 10
    assert rows.trip[rows.path == 2].tolist() == [2] * 10
    assert rows.n_paths == 3
    assert len(world.featurizer.memory) == 3


def test_trips_that_the_featurizer_remembers_are_not_remembered_twice():
    fixes = fixes_of([curve(0), curve(1)])
    featurizer = Featurizer.of(fixes, FeaturizerConfig(), np.random.default_rng(0)).remember(fixes[:1])
    assert GpsDemonstrator.of(fixes, featurizer).featurizer.memory.trip_ids == (TripId("ana", "0"), TripId("ana", "1"))


def test_a_demonstrator_needs_at_least_one_step():
    with pytest.raises(DataError, match="two usable fixes"):
        world_of(fixes_of([curve(0, 1), curve(1, 1)]))


def test_counterfactual_rows_belong_to_no_trip_and_their_source_does_not_count():
    world = world_of(fixes_of([curve(0)]))
    rows = world.imagine(40, ["reverse", "pace", "hour", "detour"], np.random.default_rng(0))
    assert (rows.trip == -1).all()
    assert rows.n_paths == 40
    assert not habits(world, rows).any()
    # Only the changed steps of a detour are background.
    bent = world.imagine(40, ["detour"], np.random.default_rng(0))
    assert np.bincount(bent.path).max() <= 21
    with pytest.raises(DataError, match="no counterfactual named 'nap'"):
        world.imagine(3, ["nap"], np.random.default_rng(0))


def test_other_agents_trips_are_seen_through_this_agents_memory():
    world = world_of(fixes_of([curve(0), curve(1)]))
    rows = world.others(fixes_of([curve(0), curve(9)], agent="bob"))
    assert (rows.trip == -1).all()
    follower, stranger = (habits(world, rows)[rows.path == i, 0] for i in (0, 1))
    assert (follower > 0).all()
    assert not stranger.any()


def test_rollouts_start_in_demonstrated_states_half_of_them_at_the_start_of_a_trip():
    world = world_of(fixes_of([curve(k) for k in range(3)]))
    dynamics = world.dynamics
    assert isinstance(dynamics, Integrator)
    demonstrated = {tuple(s) for s in world.demonstrations().states.round(6)}
    assert {tuple(s) for s in dynamics.starts.round(6)} == demonstrated
    drawn = dynamics.reset(4000, np.random.default_rng(0))
    at_start = drawn[:, 4] == 0
    assert 0.48 < at_start.mean() < 0.57
    np.testing.assert_allclose(drawn[at_start, :2], drawn[at_start, 2:4], atol=1e-6)


def test_the_rows_of_a_rollout_stand_in_the_order_of_its_mask():
    world = world_of(fixes_of([curve(k) for k in range(3)]))
    rng = np.random.default_rng(1)
    lengths = [5, 1, 12, 8, 12, 3]
    rollout = roll(world, rng.normal(scale=8, size=(6, 12, 2)), lengths)
    rows = world.realise(rollout)
    assert rows.path.tolist() == np.repeat(np.arange(6), lengths).tolist()
    assert (rows.trip == -1).all()
    np.testing.assert_allclose(rows.actions, rollout.actions[rollout.mask], atol=1e-6)
    np.testing.assert_allclose(rows.states, rollout.states[rollout.mask], atol=1e-5)
    assert rows.steps is not None
    np.testing.assert_allclose(rows.steps.location, rollout.next_states[rollout.mask][:, :2], atol=1e-6)
    np.testing.assert_allclose(rows.steps.elapsed, rollout.next_states[rollout.mask][:, 4], atol=1e-6)
    # So a reward a row can be scattered back over the rollout: the step counter comes out as it should.
    dense = np.full(rollout.mask.shape, -1.0)
    dense[rollout.mask] = (rows.steps.elapsed - rollout.states[:, 0, 4][rows.path]) / INTERVAL - 1
    np.testing.assert_allclose(dense, np.where(rollout.mask, np.arange(12), -1), atol=1e-6)


def test_a_policy_that_repeats_a_demonstration_has_its_features():
    spec = ContextSpec(time_of_day=True, weekday=True, numeric=("fare",))
    fixes = fixes_of([curve(0), curve(1), curve(5)]).with_columns(context={"fare": [3.0, 5.0, 9.0]})
    world = world_of(fixes, context=spec, utc_offset=9 * 3600.0)
    demonstrated = world.demonstrations()
    per_trip = len(demonstrated) // 3
    starts = demonstrated.states[::per_trip]
    rollout = roll_from(world, starts, demonstrated.actions.reshape(3, per_trip, 2), [per_trip] * 3)
    rows = world.realise(rollout)
    assert demonstrated.steps is not None
    seen = world.featurizer.encode(demonstrated.steps)  # as a stranger would be seen: nothing left out
    np.testing.assert_allclose(rows.features, seen, atol=2e-3)
    np.testing.assert_allclose(rows.states, demonstrated.states, atol=1e-3)
    assert rows.steps is not None
    weeks = (rows.steps.time - demonstrated.steps.time) / WEEK
    np.testing.assert_allclose(weeks, weeks.round(), atol=1e-9)  # the same second of some week


def test_refreshed_rows_are_seen_with_the_present_memory():
    fixes = fixes_of([curve(0), curve(1)])
    before = world_of(fixes)
    rows = before.others(fixes_of([curve(7)], agent="bob"))
    assert not habits(before, rows)[:, 0].any()
    after = replace(before, featurizer=before.featurizer.remember(fixes_of([curve(7)], names=["new"])))
    again = after.refresh(rows)
    assert (habits(after, again)[:, 0] > 0).all()
    np.testing.assert_array_equal(again.states, rows.states)
    with pytest.raises(DataError, match="do not contain their steps"):
        after.refresh(replace(rows, steps=None))


def test_rows_are_selected_and_concatenated():
    world = world_of(fixes_of([curve(0, 5), curve(1, 4), curve(2, 6)]))
    rows = world.demonstrations()
    some = rows[rows.trip != 1]
    assert some.path.tolist() == [0] * 4 + [1] * 5  # counted anew
    assert some.trip.tolist() == [0] * 4 + [2] * 5
    both = Rows.concat([some, rows])
    assert both.n_paths == 5
    assert both.path.tolist() == some.path.tolist() + (rows.path + 2).tolist()
    assert both.steps is not None
    assert len(both.steps) == len(both) == len(both.features)
    nothing = rows[np.zeros(len(rows), bool)]
    assert (len(nothing), nothing.n_paths) == (0, 0)
    assert Rows.concat([nothing, rows]).path.tolist() == rows.path.tolist()


@pytest.mark.parametrize("encoder", ["raw", "fourier"])
def test_a_demonstrator_without_memory_works_the_same_way(encoder: str):
    world = world_of(fixes_of([curve(0), curve(1)]), encoder=encoder)
    assert isinstance(world.featurizer.memory, Memory)
    rows = world.demonstrations()
    assert rows.features.shape == (78, len(world.featurizer.names))
    assert len(world.imagine(5, ["shift"], np.random.default_rng(0))) > 0


# ---------------------------------------------------------------- the world of states and actions


class Drift:
    """s' = s + a, from zero."""

    def reset(self, n: int, rng: np.random.Generator) -> Array:
        return np.zeros((n, 2))

    def step(self, states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        return states + actions, np.ones(len(states), bool)


def step_demonstrator(waves: int = 8) -> StepDemonstrator:
    rng = np.random.default_rng(0)
    states = [rng.normal(3.0, 2.0, (n, 2)) for n in (5, 9, 4, 30)]
    actions = [10.0 * s[:, :1] + rng.normal(size=(len(s), 1)) for s in states]
    return StepDemonstrator.of(Trajectories.from_steps(states, actions), Drift(), rng, waves)


def test_states_and_actions_are_seen_standardised_and_in_waves():
    world = step_demonstrator()
    rows = world.demonstrations()
    assert rows.features.shape == (48, 3 + 2 * 8)
    np.testing.assert_allclose(rows.features[:, :3].mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(rows.features[:, :3].std(axis=0), 1.0, atol=1e-5)
    np.testing.assert_allclose(rows.features[:, 3:11] ** 2 + rows.features[:, 11:] ** 2, 1.0, atol=1e-5)
    assert step_demonstrator(waves=0).demonstrations().features.shape == (48, 3)
    np.testing.assert_array_equal(world.featurize(world.trajectories), rows.features)
    assert rows.trip.tolist() == rows.path.tolist() == world.trajectories.trajectory_of_row.tolist()
    assert len(world.names) == 4


def test_a_constant_column_gives_finite_features():
    t = Trajectories.from_steps([np.ones((4, 2))], [np.zeros((4, 1))])
    features = StepDemonstrator.of(t, Drift(), np.random.default_rng(0)).featurize(t)
    assert not features[:, :3].any()


def test_a_rollout_of_states_and_actions_comes_back_as_it_was():
    world = step_demonstrator()
    rng = np.random.default_rng(1)
    mask = np.arange(6) < np.array([[6], [2], [4]])
    states, actions = rng.normal(size=(3, 6, 2)), rng.normal(size=(3, 6, 1))
    rollout = Rollout(states, actions, np.zeros((3, 6)), mask, states, np.zeros(3, bool))
    rows = world.realise(rollout)
    np.testing.assert_array_equal(rows.states, states[mask])
    np.testing.assert_array_equal(rows.actions, actions[mask])
    assert rows.path.tolist() == [0] * 6 + [1] * 2 + [2] * 4
    assert (rows.trip == -1).all()
    np.testing.assert_array_equal(rows.features, world.encode(states[mask], actions[mask]))
    assert world.refresh(rows) is rows
    same = world.others(Trajectories.from_steps([states[0]], [actions[0]]))
    np.testing.assert_array_equal(same.features, rows.features[:6])


def test_exchanged_actions_are_demonstrated_ones_in_the_wrong_state():
    world = step_demonstrator()
    rows = world.imagine(50, ["exchange"], np.random.default_rng(0))
    demonstrated = world.demonstrations()
    assert {tuple(s) for s in rows.states} <= {tuple(s) for s in demonstrated.states}
    assert set(rows.actions[:, 0]) <= set(demonstrated.actions[:, 0])
    own = {tuple(s): a for s, a in zip(demonstrated.states, demonstrated.actions[:, 0], strict=True)}
    wrong = [own[tuple(s)] != a for s, a in zip(rows.states, rows.actions[:, 0], strict=True)]
    assert np.mean(wrong) > 0.9


def test_perturbed_steps_have_no_preferred_scale():
    world = step_demonstrator()
    rng = np.random.default_rng(0)
    rows = world.imagine(400, ["perturb"], rng)
    nearest = [np.abs((world.demonstrations().states - s) / world.scale[:2]).max(axis=1).min() for s in rows.states]
    assert 0.1 < np.median(nearest) < 1.5
    assert np.max(nearest) > 10.0
    assert rows.n_paths == 400
    lengths = world.trajectories.lengths
    assert (np.bincount(rows.path) == lengths[rows.trip[rows.first]]).all(), "each names the run that it was made from"


def test_perturbed_discrete_actions_stay_discrete_and_change_more_at_larger_scales():
    rng = np.random.default_rng(0)
    held = [np.full((30, 2), x) for x in rng.normal(size=20)]  # every run holds one state and one action
    runs = Trajectories.from_steps(held, [np.full(30, i % 4) for i in range(20)], n_actions=4)
    rows = StepDemonstrator.of(runs, Drift(), rng).imagine(400, ["perturb"], rng)
    assert rows.actions.dtype == bool
    assert (rows.actions.sum(axis=1) == 1).all()
    scale = rows.states.reshape(400, 30, 2).std(axis=(1, 2))
    commonest = rows.actions.reshape(400, 30, 4).mean(axis=1).max(axis=1)
    assert (commonest[scale < 0.15] == 1.0).all()
    assert commonest[scale > 5.0].mean() < 0.5


def test_a_demonstrator_of_steps_refuses_trajectories_that_it_cannot_use():
    with pytest.raises(DataError, match="no columns state and action"):
        StepDemonstrator.of(fixes_of([curve(0)]), Drift(), np.random.default_rng(0))
    for names in (["nap"], []):
        with pytest.raises(DataError, match="give some of perturb, exchange"):
            step_demonstrator().imagine(3, names, np.random.default_rng(0))
