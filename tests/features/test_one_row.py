"""One engine: a live feed, row by row, computes what a file gives for the same rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from astray import Trajectories
from astray.features.context import ContextSpec
from astray.features.familiarity import AT_ONCE, DEFAULT_HABITS, GRIDS, Habit, StepKeys, familiarity_to_each, keys_of
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.memory import Forgetting
from astray.features.statistics import RunningStatistics, count_rows, statistics_so_far
from astray.features.steps import OpenPath, Step, Steps, chosen
from astray.features.trip_rows import MOTION
from astray.scoring.normality import Calibration, Location, normality_of, step_normality, trip_normality
from astray.scoring.segments import lasting_segment, leaving, segments

METRE = 1 / 111_195.0  # a metre in degrees of latitude
AGENTS = ("ann", "bob", "eve")
HABITS = (*DEFAULT_HABITS, Habit(cell=100, weekend=True, trail=1), Habit(trail=0), Habit(speed=True, hours=6))


@dataclass(frozen=True)
class World:
    """A trip, the featurizer that it is scored by, and the agent's number among the others."""

    trip: Trajectories
    featurizer: Featurizer
    maker: int
    exact: bool  # whether past trips count 1
    destination: tuple[float, float] | None = None  # in metres


def walk(rng: np.random.Generator, lat: float, lon: float, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A walk that stands, strolls and drives, with fixes at whole or broken seconds; no fix is a fault."""
    every = rng.choice([0.3, 1.0, 3.0, 10.0, 30.0, 45.0, 400.0])
    since = np.where(rng.random(n) < 0.1, rng.choice([2.0, 31.0, 600.0], n), every)
    if rng.random() < 0.5:
        since = since * rng.uniform(0.7, 1.3, n)
    speed = np.repeat(rng.choice([0.0, 0.3, 1.5, 9.0, 30.0], n // 8 + 1), 8)[:n]
    heading = np.cumsum(rng.normal(0, 0.4, n))
    north = np.cumsum(speed * since * np.sin(heading)) * METRE
    east = np.cumsum(speed * since * np.cos(heading)) * METRE / np.cos(np.radians(lat))
    # A clock that begins near zero rounds what is added to it differently than one that counts from 1970.
    start = rng.choice([0.1, rng.uniform(0, 1000), *(rng.uniform(0, 7 * 86_400.0) + np.array([-1e9, 1.7e9]))])
    return start + np.cumsum(since), lat + north, (lon + east + 180.0) % 360.0 - 180.0


@st.composite
def worlds(draw: st.DrawFn) -> World:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lat, lon = draw(st.sampled_from([(45.0, 7.0), (-33.9, 151.2), (0.0, 179.999), (69.6, -179.995), (1.3, 103.8)]))
    half_life = draw(st.sampled_from([None, 86_400.0]))
    config = FeaturizerConfig(
        habits=HABITS,
        forgetting=Forgetting(half_life=half_life),
        context=ContextSpec(time_of_day=draw(st.booleans())),
        interval=draw(st.sampled_from([30.0, 30.0, 60.0, 300.0])),
    )
    time, lats, lons = walk(rng, lat, lon, draw(st.integers(1, 150)))
    trip = Trajectories(
        {"time": time, "lat": lats, "lon": lons}, [0, len(time)], [draw(st.sampled_from(AGENTS))], ["now"]
    )
    # The past: the same way up to a point, a little beside it, on other days; by the agent itself and by others.
    parts = []
    for i in range(draw(st.integers(1, 4))):
        n = int(rng.integers(1, len(time) + 1))
        beside = rng.normal(0, 40 * METRE, 2)
        columns = {"time": time[:n] - 86_400.0 * (i + 1), "lat": lats[:n] + beside[0], "lon": lons[:n] + beside[1]}
        parts.append(Trajectories(columns, [0, n], [AGENTS[i % 3]], [f"past {i}"]))
    past = Trajectories.concat(parts)
    featurizer = Featurizer.of(past, config, rng).remember(past)
    if draw(st.booleans()):
        featurizer = featurizer.among(past)
    if draw(st.booleans()):
        featurizer = replace(featurizer, popularity=featurizer.popularity.excluding(draw(st.sampled_from(AGENTS))))
    destination = None
    if draw(st.booleans()):  # where the last past trip ended, or nearby
        beside = rng.normal(0, draw(st.sampled_from([0.0, 400.0])), 2)
        x, y = featurizer.projection.place(float(parts[-1].columns["lat"][-1]), float(parts[-1].columns["lon"][-1]))
        destination = x + float(beside[0]), y + float(beside[1])
    maker = int(featurizer.popularity.number_of(trip.agent_ids.tolist())[0])
    return World(trip, featurizer, maker, half_life is None, destination)


def same(one: object, many: object) -> None:
    np.testing.assert_array_equal(np.asarray(one), np.asarray(many), strict=True)


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_live_equals_batch(world: World) -> None:
    """Row by row as in a file.

    To the last bit: places, steps, keys, every feature of a step (also under a half-life, and with a context), and the
    statistics of the trip so far, but for its motion, and but for sums of counts under a half-life: these to rounding.
    """
    trip, featurizer = world.trip, world.featurizer
    paths = featurizer.paths(trip)
    steps = featurizer.steps(paths)
    assert len(steps) == trip.n_rows  # nothing is a fault, nor a gap: otherwise another trip would be compared
    features = featurizer.encode(steps)
    kept = chosen(steps, featurizer.config.interval)
    rows = featurizer.trip_rows(steps, 1)
    path = OpenPath(featurizer.config.interval, featurizer.encoder.lags)
    given_ = featurizer.context.given(trip)[0]
    keys_of_step = StepKeys(featurizer.config.habits, featurizer.frame)
    running = RunningStatistics(
        featurizer.config.habits,
        featurizer.memory,
        featurizer.popularity,
        featurizer.frame,
        window=featurizer.config.window_rows,
        maker=world.maker,
        destination=world.destination,
    )
    there = None if world.destination is None else np.array([world.destination])
    maker = np.array([world.maker]) if world.maker >= 0 else None
    motion = np.isin([s.name for s in featurizer.statistics], MOTION)
    so_far: list[int] = []
    for i, (time, lat, lon) in enumerate(zip(*(trip.columns[c].tolist() for c in ("time", "lat", "lon")), strict=True)):
        place = featurizer.projection.place(lat, lon)
        same(place, steps.location[i])
        step = path.step(time, place)
        for name, values in vars(step.row(given_)).items():
            same(values[0], vars(steps)[name][i])
        assert Step.of(step.numbers()) == step
        keys = keys_of_step(step)[None].copy()
        same(keys[0], rows.keys[i])
        familiar = familiarity_to_each(keys, [featurizer.memory])
        same(featurizer.features_of_step(step, familiar[0], given_)[0], features[i])
        if kept[i]:
            count_rows([running], [step], keys, familiar)
            so_far.append(i)
            if len(so_far) < 8 or len(so_far) % 5 == 0:
                prefix = featurizer.trip_rows(steps[np.array(so_far)], 1)
                prefix = replace(prefix, finished=np.array([False]), destinations=there)
                expected = featurizer.measure(prefix, None, maker)[1][0]
                (found,) = statistics_so_far([running])
                same(np.isnan(found), np.isnan(expected))
                bits = ~motion if world.exact else np.zeros(len(motion), bool)
                same(found[bits], expected[bits])
                np.testing.assert_allclose(found[~bits], expected[~bits], rtol=2e-6, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(worlds(), st.sampled_from([HABITS, (Habit(),), (Habit(origin=500), Habit(weekend=True))]))
def test_few_steps_have_the_keys_that_they_have_among_many(world: World, habits: tuple[Habit, ...]) -> None:
    featurizer = world.featurizer
    steps = featurizer.steps(featurizer.paths(world.trip))
    many = Steps.concat([steps] * (AT_ONCE // len(steps) + 1))
    assert len(many) > AT_ONCE >= len(steps)
    same(keys_of(steps, habits, featurizer.frame), keys_of(many, habits, featurizer.frame)[: len(steps)])
    assert keys_of(steps[:0], habits, featurizer.frame).shape == (0, len(habits), GRIDS)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), aspects=st.integers(1, 5), heads=st.integers(1, 12), scale=st.floats(0.01, 60.0))
def test_rows_of_rewards_score_alone_as_in_an_array(seed: int, aspects: int, heads: int, scale: float) -> None:
    """Each by its own weights and scale; to rounding as in an array, to the last bit alone as among others."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(3, aspects, heads)) * scale
    weights = [tuple(rng.choice([0.1, 0.5, 1.0], aspects).tolist()) for _ in range(3)]
    if aspects > 1:
        weights = [(0.0, *own[1:]) for own in weights]  # an aspect that is not asked about
    scales = [Location(float(rng.normal()), float(rng.uniform(0.1, 3.0))) for _ in range(3)]
    together = normality_of(rewards, weights, scales)
    for i, (own, at) in enumerate(zip(weights, scales, strict=True)):
        calibration = Calibration(("",) * aspects, own, at, at, step_weights=own)
        many, whole = step_normality(rewards, calibration), trip_normality(rewards, calibration)
        alone = normality_of(rewards[i : i + 1], [own], [at])
        assert [values[0] for values in alone] == [values[i] for values in together]
        n, spread, aspect = (values[i] for values in together)
        np.testing.assert_allclose([n, n], [many.normality[i], whole.normality[i]], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose([spread] * 2, [many.uncertainty[i], whole.uncertainty[i]], rtol=1e-9, atol=1e-9)
        assert aspect == many.aspect[i] == whole.aspect[i]


@settings(max_examples=300, deadline=None)
@given(
    n=st.lists(st.sampled_from([-4.0, -2.0, -1.5, -1.0, -0.5, 1.0]), min_size=1, max_size=40),
    every=st.sampled_from([10.0, 30.0, 100.0]),
    enter=st.sampled_from([-2.0, -1.0, 0.5]),
)
def test_a_lasting_segment_is_the_last_one_of_the_rows_so_far(n: list[float], every: float, enter: float) -> None:
    leave, time = float(leaving(enter)), every * np.arange(len(n))
    for i in range(len(n)):
        rows = np.array(n[: i + 1])
        found = segments(rows, np.zeros(i + 1, np.int64), time[: i + 1], enter, leave, 60.0)
        lasting = lasting_segment(rows, time[: i + 1], enter, leave, 60.0)
        if not found or found[-1].stop <= i:
            assert lasting is None
        else:
            assert lasting is not None
            assert lasting[:3] == found[-1][:3]
            np.testing.assert_allclose(lasting.normality, found[-1].normality, rtol=1e-12)
