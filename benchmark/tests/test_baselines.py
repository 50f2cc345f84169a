"""Baselines: all of them find the obvious, say the same twice, and see what the reward sees."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from astray import Trajectories
from astray.core.errors import AstrayError, DataError, NotFittedError
from astray.core.projection import Projection
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.irl.gps_demonstrator import GpsDemonstrator
from astray_benchmark.baselines import (
    BASELINES,
    COMPARISONS,
    Baseline,
    CellCounts,
    CellTrigram,
    FNNAutoencoder,
    IsolationForest,
    KNNLocation,
    LSTMAutoencoder,
    OneClassSVM,
    Training,
    TripLength,
)
from astray_benchmark.baselines.autoencoders import stretches
from astray_benchmark.baselines.familiarity import STATISTICS, Known, Past, Seen, statistics
from astray_benchmark.baselines.networks import FeedForward, Recurrent, Sequences, drawn_from, errors, train_to_plateau

HERE = Projection(45.0, 7.0)

every_baseline = pytest.mark.parametrize("name", BASELINES)


def trips_of(paths: list[np.ndarray], interval: float = 15.0) -> Trajectories:
    """Trips along points in metres, one a day, a fix every ``interval`` seconds."""
    lat, lon = HERE.to_degrees(np.concatenate(paths))
    time = [86_400.0 * day + interval * np.arange(len(p)) for day, p in enumerate(paths)]
    return Trajectories(
        {"time": np.concatenate(time), "lat": lat, "lon": lon},
        np.cumsum([0, *(len(p) for p in paths)]),
        np.full(len(paths), "ana"),
        np.arange(len(paths)),
    )


def commute(rng: np.random.Generator) -> np.ndarray:
    """A trip from home along the same bend as ever, a little faster or slower, further or less far."""
    along = np.cumsum(rng.normal(150.0, 20.0, rng.integers(24, 56)))
    return np.column_stack([along, 0.05 * along**1.2]) + rng.normal(0.0, 15.0, (len(along), 2))


def elsewhere(rng: np.random.Generator, n: int = 50) -> np.ndarray:
    """A fast trip the other way from another part of town."""
    return np.column_stack([-4000.0 - 300.0 * np.arange(n), np.full(n, 6000.0)]) + rng.normal(0.0, 15.0, (n, 2))


@pytest.fixture(scope="module")
def train() -> Trajectories:
    rng = np.random.default_rng(0)
    return trips_of([commute(rng) for _ in range(30)])


@pytest.fixture(scope="module")
def unseen() -> Trajectories:
    """Twelve trips as usual, then one that is not."""
    rng = np.random.default_rng(1)
    return trips_of([*(commute(rng) for _ in range(12)), elsewhere(rng)])


@pytest.fixture(scope="module")
def fitted(train: Trajectories) -> dict[str, Baseline]:
    impatient = {"training": Training(batch=128, patience=4)}
    return {name: make(**(impatient if name.endswith("-ae") else {})).fit(train) for name, make in BASELINES.items()}


# ------------------------------------------------------------------ every baseline


@every_baseline
def test_an_obvious_outlier_scores_lowest(name: str, fitted: dict[str, Baseline], unseen: Trajectories) -> None:
    scores = fitted[name].score_samples(unseen)
    assert scores.shape == (13,)
    assert scores[12] < scores[:12].min()


OF_TRIPS = ("length", "pyod-ecod", "pyod-knn")  # these judge trips as a whole


@pytest.mark.parametrize("name", [name for name in BASELINES if name not in OF_TRIPS])
def test_a_trip_that_leaves_the_usual_way_is_anomalous_from_there(name: str, fitted: dict[str, Baseline]) -> None:
    way = np.column_stack([np.full(60, 150.0).cumsum(), np.zeros(60)])
    way[:, 1] = 0.05 * way[:, 0] ** 1.2
    way[30:, 1] += 600.0 * np.arange(30)
    anomaly, trip = fitted[name].score_steps(trips_of([way]))
    assert (trip == 0).all()
    before, after = anomaly[: len(anomaly) // 2], anomaly[-len(anomaly) // 3 :]
    assert before.mean() < after.mean()


@every_baseline
def test_a_trips_score_is_minus_the_mean_anomaly_of_its_steps(
    name: str, fitted: dict[str, Baseline], unseen: Trajectories
) -> None:
    anomaly, trip = fitted[name].score_steps(unseen)
    by_hand = [-anomaly[trip == k].mean() for k in range(len(unseen))]
    np.testing.assert_allclose(fitted[name].score_samples(unseen), by_hand)


@every_baseline
def test_a_trips_score_does_not_depend_on_its_company(
    name: str, fitted: dict[str, Baseline], unseen: Trajectories
) -> None:
    together = fitted[name].score_samples(unseen)
    alone = [fitted[name].score_samples(trip)[0] for trip in unseen]
    np.testing.assert_allclose(alone, together, rtol=1e-4, atol=1e-9)


@every_baseline
def test_the_same_seed_gives_the_same_scores(name: str, train: Trajectories, unseen: Trajectories) -> None:
    brief = {"training": Training(batch=16, most_epochs=3)} if name.endswith("-ae") else {}
    once, again = (BASELINES[name](seed=7, **brief).fit(train).score_samples(unseen) for _ in range(2))
    np.testing.assert_array_equal(once, again)


@pytest.mark.parametrize("make", [IsolationForest, FNNAutoencoder, LSTMAutoencoder])
def test_another_seed_gives_other_scores(
    make: type[IsolationForest | FNNAutoencoder | LSTMAutoencoder], train: Trajectories, unseen: Trajectories
) -> None:
    brief = {} if make is IsolationForest else {"training": Training(batch=16, most_epochs=1)}
    one, other = (make(seed=seed, **brief).fit(train).score_samples(unseen) for seed in (0, 1))
    assert (one != other).any()


@every_baseline
def test_fewer_than_two_trips_are_refused(name: str, train: Trajectories) -> None:
    with pytest.raises(DataError, match="no trajectories were given"):
        BASELINES[name]().fit(train[:0])
    with pytest.raises(DataError, match="give at least two such trips"):
        BASELINES[name]().fit(train[:1])


def test_trips_of_a_single_fix_are_not_trips_to_learn_from(train: Trajectories) -> None:
    single = trips_of([np.zeros((1, 2)), np.ones((1, 2)), np.zeros((9, 2))])
    with pytest.raises(DataError, match="1 of the 3 training trips have two usable fixes"):
        KNNLocation().fit(single)


def test_nothing_to_score_is_refused(fitted: dict[str, Baseline], train: Trajectories) -> None:
    with pytest.raises(DataError, match="no trajectories were given to score"):
        fitted["lof"].score_samples(train[:0])


def test_states_without_places_are_refused() -> None:
    with pytest.raises(DataError, match="no columns time, lat and lon"):
        KNNLocation().fit(Trajectories.from_steps([np.zeros((5, 2))] * 2, [np.zeros((5, 1))] * 2))


@every_baseline
def test_scoring_before_fitting_is_refused(name: str, unseen: Trajectories) -> None:
    with pytest.raises(NotFittedError, match="call fit"):
        BASELINES[name]().score_samples(unseen)


@every_baseline
def test_a_trip_of_one_fix_has_no_score(name: str, fitted: dict[str, Baseline]) -> None:
    one_fix, trip = np.zeros((1, 2)), commute(np.random.default_rng(2))
    scores = fitted[name].score_samples(trips_of([one_fix, trip]))
    assert np.isnan(scores[0])
    assert np.isfinite(scores[1])
    assert np.isnan(fitted[name].score_samples(trips_of([one_fix]))).all()


def test_baselines_see_the_steps_that_the_reward_learns_from(train: Trajectories) -> None:
    config = FeaturizerConfig(encoder="raw", interval=30.0)
    world = GpsDemonstrator.of(train, Featurizer.of(train, config, np.random.default_rng(0)))
    rows = world.demonstrations()
    seen = KNNLocation().fit(train).featurize(train)
    np.testing.assert_array_equal(seen.steps.location, rows.steps.location)
    np.testing.assert_array_equal(seen.steps.trip, rows.trip)
    raw = rows.features.astype(np.float64)
    np.testing.assert_allclose(seen.features, (raw - raw.mean(axis=0)) / raw.std(axis=0), atol=1e-6)


def test_a_feature_that_never_varies_is_zero() -> None:
    same_start = [np.column_stack([np.arange(20) * v, np.zeros(20)]) for v in (50.0, 100.0, 150.0)]
    knn = KNNLocation().fit(trips_of(same_start))
    features = knn.featurize(trips_of(same_start)).features
    assert np.isfinite(features).all()
    np.testing.assert_allclose(features[:, [1, 2, 3]], 0.0, atol=1e-6)


def test_every_baseline_has_its_own_name() -> None:
    assert len({make().name for make in BASELINES.values()}) == len(BASELINES)


def test_importing_the_baselines_loads_neither_torch_nor_scikit_learn() -> None:
    code = "import sys, astray_benchmark.baselines; print(sorted({'torch', 'sklearn'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_scikit_learn_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, train: Trajectories
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.neighbors", None)
    with pytest.raises(AstrayError, match="needs scikit-learn; install it with: pip install 'astray-benchmark"):
        KNNLocation().fit(train)


# ------------------------------------------------------------------ neighbours and boundaries


@pytest.mark.parametrize(("start", "distance"), [(False, 400.0), (True, 400.0 * np.sqrt(2.0))])
def test_the_anomaly_of_a_parallel_way_is_the_logarithm_of_the_distance_to_it(start: bool, distance: float) -> None:
    way = np.column_stack([np.zeros(51), 200.0 * np.arange(-25, 26)])
    knn = KNNLocation(start=start).fit(trips_of([way] * 5, interval=30.0))
    aside = trips_of([way + np.array([400.0, 0.0])], interval=30.0)
    np.testing.assert_allclose(knn.score_samples(aside), -np.log1p(distance), rtol=1e-4)


def test_fewer_places_than_neighbours_will_do() -> None:
    knn = KNNLocation(neighbours=50).fit(trips_of([np.zeros((3, 2)), np.zeros((3, 2))], interval=30.0))
    away = trips_of([np.full((3, 2), 30.0)])
    np.testing.assert_allclose(knn.score_samples(away), -np.log1p(30.0 * np.sqrt(2.0)), rtol=1e-4)


def test_the_one_class_svm_trains_on_a_limited_number_of_rows(train: Trajectories) -> None:
    svm = OneClassSVM(most_rows=200).fit(train)
    assert svm.estimator_.shape_fit_ == (200, 7)


# ------------------------------------------------------------------ cells


def road(*corners: tuple[float, float], step: float = 75.0) -> np.ndarray:
    """Points every so many metres along straight lines between corners."""
    parts = []
    for a, b in itertools.pairwise(np.array(corners, np.float64)):
        n = max(int(np.hypot(*(b - a)) // step), 1)
        parts.append(a + (b - a) * np.arange(n)[:, None] / n)
    return np.vstack([*parts, [corners[-1]]])


def test_how_often_the_receiver_spoke_does_not_change_the_cells_of_a_trip() -> None:
    way = ((0.0, 0.0), (3000.0, 0.0), (3000.0, 2000.0))
    often, seldom = trips_of([road(*way, step=50.0)] * 3, 5.0), trips_of([road(*way, step=500.0)], 50.0)
    counts = CellCounts().fit(often)
    assert len(counts.featurize(seldom).path) == len(counts.featurize(often[0]).path)
    np.testing.assert_allclose(counts.score_samples(seldom), np.log(4.0))  # three trips went everywhere there


def test_standing_in_a_cell_counts_once() -> None:
    way = road((0.0, 0.0), (2000.0, 0.0))
    stood = np.vstack([way[:10], np.repeat(way[10:11], 200, axis=0), way[10:]])
    counts = CellCounts().fit(trips_of([way, way + 3000.0]))
    np.testing.assert_allclose(counts.score_samples(trips_of([stood])), counts.score_samples(trips_of([way])))


def test_a_trigram_flags_a_new_order_of_known_cells_and_counts_do_not() -> None:
    way = road((0.0, 0.0), (3000.0, 0.0), (3000.0, 2000.0))
    there, back = trips_of([way]), trips_of([way[::-1]])
    train = trips_of([way] * 5)
    counts, trigram = CellCounts().fit(train), CellTrigram().fit(train)
    np.testing.assert_allclose(counts.score_samples(back), counts.score_samples(there))
    assert trigram.score_samples(back)[0] < trigram.score_samples(there)[0] - 0.5


def test_a_trip_twice_as_long_as_usual_is_anomalous_by_the_logarithm_of_two() -> None:
    usual, double = road((0.0, 0.0), (3000.0, 0.0)), road((0.0, 0.0), (6000.0, 0.0))
    length = TripLength().fit(trips_of([usual, usual, usual, double]))
    found = length.score_samples(trips_of([usual, double, road((0.0, 0.0), (1500.0, 0.0))]))
    np.testing.assert_allclose(found, -np.log([1.0, 2.0, 0.5]), atol=1e-3)


# ------------------------------------------------------------------ compared with others


def of(agent: str, trips: Trajectories) -> Trajectories:
    return Trajectories(dict(trips.columns), trips.offsets, np.full(len(trips), agent), trips.trajectory_ids)


@pytest.fixture(scope="module")
def neighbourhood() -> dict[str, Trajectories]:
    """Six people with 24 trips each, from home over the same bridge to somewhere of their own."""
    rng = np.random.default_rng(5)
    found = {}
    for k, agent in enumerate(("ana", "bob", "cem", "dia", "eva", "fay")):
        home, work = (-3000.0 - 600.0 * k, 400.0 * k), (2500.0 + 500.0 * k, -900.0 * k)
        ways = [road(home, (-500.0, 0.0), (500.0, 0.0), work) for _ in range(24)]
        found[agent] = of(agent, trips_of([w + rng.normal(0, 12.0, w.shape) for w in ways]))
    return found


@pytest.mark.parametrize("name", COMPARISONS)
def test_familiarity_ranks_somebody_elses_trip_below_the_persons_own_though_both_cross_the_bridge(
    name: str, neighbourhood: dict[str, Trajectories]
) -> None:
    others = Trajectories.concat([neighbourhood[a] for a in ("bob", "cem", "dia", "eva")])
    mine, theirs = neighbourhood["ana"], neighbourhood["fay"]  # fay is nobody whom it has met
    model = COMPARISONS[name]().fit(mine[:16], others)
    own, foreign = model.score_samples(mine[16:]), model.score_samples(theirs)
    assert foreign.max() < own.min()
    # What is known of others may be used again, and oneself is nobody else.
    again = COMPARISONS[name]().fit(mine[:16], model.others(Trajectories.concat([others, mine]), mine))
    np.testing.assert_array_equal(again.score_samples(mine[16:]), own)
    one_fix = model.score_samples(Trajectories.concat([of("ana", trips_of([np.zeros((1, 2))])), mine[16]]))
    assert np.isnan(one_fix[0])
    np.testing.assert_allclose(one_fix[1], own[0])


@pytest.mark.parametrize("name", COMPARISONS)
def test_without_others_there_is_no_comparison(name: str, train: Trajectories) -> None:
    for nobody in (None, train):
        with pytest.raises(DataError, match="give a population"):
            COMPARISONS[name]().fit(train, nobody)


def seen(trips: Trajectories) -> Seen:
    look = CellCounts().fit(trips)
    rows = look.featurize(trips)
    return Seen.of(rows, look.cells(rows), len(trips))


def test_a_trip_among_the_past_ones_is_seen_as_if_it_were_not(neighbourhood: dict[str, Trajectories]) -> None:
    every = seen(neighbourhood["ana"])
    for k in (0, 7, 23):
        one, rest = every.some(np.array([k])), every.some(np.delete(np.arange(24), k))
        others = np.arange(len(one.cell)) % 3.0
        left_out = statistics(one, Past.of(every), True, others)
        assert left_out.shape == (1, len(STATISTICS))
        np.testing.assert_allclose(left_out, statistics(one, Past.of(rest), False, others))


def test_popularity_does_not_count_the_trips_own_maker(neighbourhood: dict[str, Trajectories]) -> None:
    agents = ("bob", "cem", "dia")
    trips = Trajectories.concat([neighbourhood[a] for a in agents])
    known = Known.of(seen(trips), trips.agent_ids)
    theirs = known.seen.some(np.array([0, 30]))  # one of bob's, one of cem's
    everybody, others = known.visitors(theirs), known.visitors(theirs, np.array([0, 1]))
    np.testing.assert_array_equal(everybody - others, 1.0)
    assert others.min() == 0.0  # at home
    assert everybody.max() == 3.0  # on the bridge
    # Whoever has never been there is none of them anyway.
    bridge = everybody == 3.0
    np.testing.assert_array_equal(known.visitors(theirs, np.array([2, 2]))[bridge], 2.0)


# ------------------------------------------------------------------ autoencoders


@pytest.mark.parametrize("name", ["fnn-ae", "lstm-ae"])
def test_training_reproduces_trips_ever_better(name: str, fitted: dict[str, Baseline]) -> None:
    history = fitted[name].history_
    assert history[-1].trained < 0.5 * history[0].trained
    assert min(epoch.held_out for epoch in history) < 0.5 * history[0].held_out


def test_training_stops_at_the_plateau_with_the_best_network() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 2))
    sequences = Sequences(features, np.arange(301))
    held_out = np.arange(300) < 100
    with drawn_from(rng):
        network = FeedForward(2, (8, 1, 8))
    training = Training(batch=50, patience=3)
    history = train_to_plateau(network, sequences, held_out, training, rng)
    missed = np.array([epoch.held_out for epoch in history])
    assert len(history) < training.most_epochs
    # The last three epochs gained nothing on the network that was kept.
    best = errors(network, sequences)[:100].mean()
    np.testing.assert_allclose(best, missed[-4])
    assert (missed[-3:] >= best * (1.0 - training.least_gain)).all()


def test_the_feed_forward_autoencoder_has_the_papers_layers(fitted: dict[str, Baseline]) -> None:
    layers = list(fitted["fnn-ae"].network_.layers)
    assert [layer.out_features for layer in layers[::2]] == [64, 16, 64, 7]
    assert all(isinstance(layer, torch.nn.ReLU) for layer in layers[1::2])


def test_padding_does_not_change_what_the_recurrent_autoencoder_reproduces() -> None:
    rng = np.random.default_rng(0)
    with drawn_from(rng):
        network = Recurrent(3, 8)
    x = torch.from_numpy(rng.normal(size=(1, 6, 3)).astype(np.float32))
    padded = torch.cat([x, torch.full((1, 5, 3), 1e3)], dim=1)
    alone, padded_out = network(x, torch.tensor([6])), network(padded, torch.tensor([6]))
    torch.testing.assert_close(padded_out[:, :6], alone)


def test_the_recurrent_autoencoder_remembers_the_whole_way() -> None:
    rng = np.random.default_rng(0)
    with drawn_from(rng):
        network = Recurrent(3, 8)
    x = torch.from_numpy(rng.normal(size=(1, 6, 3)).astype(np.float32))
    changed = x.clone()
    changed[0, 0] += 1.0
    assert (network(x, torch.tensor([6]))[0, 5] != network(changed, torch.tensor([6]))[0, 5]).all()


def test_paths_longer_than_a_stretch_are_scored_step_by_step(train: Trajectories) -> None:
    short = LSTMAutoencoder(longest=10, training=Training(batch=32, most_epochs=2)).fit(train)
    scores = short.score_steps(train)
    assert len(scores.anomaly) == len(short.featurize(train).path)
    assert (scores.anomaly > 0).all()


@given(lengths=st.lists(st.integers(1, 400), min_size=1, max_size=8), longest=st.integers(1, 120))
def test_stretches_cut_every_path_into_equal_parts(lengths: list[int], longest: int) -> None:
    offsets = stretches(np.repeat(np.arange(len(lengths)), lengths), longest)
    ends = np.cumsum(lengths)
    assert {0, *ends.tolist()} <= set(offsets.tolist())
    assert np.diff(offsets).min() >= 1
    assert np.diff(offsets).max() <= longest
    for begin, end in zip(ends - lengths, ends, strict=True):
        parts = np.diff(offsets[(offsets >= begin) & (offsets <= end)])
        assert len(parts) == -(-(end - begin) // longest)
        assert np.ptp(parts) <= 1


def test_autoencoders_leave_the_global_random_state_alone(train: Trajectories) -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    FNNAutoencoder(training=Training(most_epochs=1)).fit(train)
    torch.testing.assert_close(torch.rand(3), expected, rtol=0.0, atol=0.0)
