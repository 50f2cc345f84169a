"""Baselines that generate trips cell by cell: on small towns they do what their papers' abstracts say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from astray import Trajectories
from astray.core.errors import DataError
from astray.core.projection import Projection
from astray_benchmark.baseline_methods import learn_from_others
from astray_benchmark.baselines import GENERATORS, CellGenerator, CellTransformer, MixtureSequenceAutoencoder, Training
from astray_benchmark.baselines.cell_networks import UNKNOWN, CellTable, Transformer
from astray_benchmark.baselines.generators import ME, Vocabulary
from astray_benchmark.baselines.networks import Sequences, drawn_from, errors
from astray_benchmark.contenders import Lesson, Strangers

torch.set_num_threads(1)

HERE = Projection(45.0, 7.0)
QUICK = Training(batch=16, learning_rate=5e-3, budget=60_000, patience=6, most_epochs=60)

# Ways from one corner of the town to the other, by their turns: metres east and north.
NORTH_FIRST = [(0, 0), (0, 3000), (3000, 3000)]
EAST_FIRST = [(0, 0), (3000, 0), (3000, 3000)]
MIDDLE = [(0, 0), (1500, 0), (1500, 3000), (3000, 3000)]
DETOUR = [(0, 0), (0, 1500), (-1500, 1500), (-1500, 3000), (3000, 3000)]


def drive(way: list[tuple[int, int]], rng: np.random.Generator) -> np.ndarray:
    """Points every 100 m or so along a way, not quite on it."""
    turns = np.array(way, float)
    lengths = np.hypot(*np.diff(turns, axis=0).T)
    along = np.arange(0.0, lengths.sum(), rng.uniform(90.0, 110.0))
    at = np.r_[0.0, np.cumsum(lengths)]
    places = np.column_stack([np.interp(along, at, turns[:, i]) for i in range(2)])
    return places + np.array([60.0, 60.0]) + rng.normal(0.0, 8.0, places.shape)


def trips_of(ways: list[list[tuple[int, int]]], agent: str, seed: int) -> Trajectories:
    """One trip a day along each of these ways."""
    rng = np.random.default_rng(seed)
    paths = [drive(way, rng) for way in ways]
    lat, lon = HERE.to_degrees(np.concatenate(paths))
    time = np.concatenate([86_400.0 * day + 15.0 * np.arange(len(path)) for day, path in enumerate(paths)])
    offsets = np.cumsum([0, *map(len, paths)])
    names = [f"{agent}-{i}" for i in range(len(paths))]
    return Trajectories({"time": time, "lat": lat, "lon": lon}, offsets, np.full(len(paths), agent), names)


@pytest.fixture(scope="module")
def others() -> Trajectories:
    """Three people who go east first, as most do in this town."""
    return Trajectories.concat([trips_of([EAST_FIRST] * 16, f"other-{i}", 10 + i) for i in range(3)])


@pytest.fixture(scope="module")
def transformer(others: Trajectories) -> CellTransformer:
    """Of ana, who goes north first."""
    model = CellTransformer(training=QUICK, tuning=QUICK, width=32, layers=1, heads=2)
    return model.fit(trips_of([NORTH_FIRST] * 16, "ana", 0), others)


def test_a_trip_usual_in_the_town_is_unusual_for_an_agent_who_never_made_it(transformer: CellTransformer):
    # The claim of LM-TAD: what is normal depends on the agent, and the agent's token says so.
    mine, theirs = transformer.score_samples(trips_of([NORTH_FIRST, EAST_FIRST], "ana", 5))
    assert mine > theirs + 0.5
    rows = transformer.featurize(trips_of([EAST_FIRST], "ana", 5))
    assert transformer.vocabulary_ is not None
    cell = transformer.vocabulary_(transformer.cells(rows))
    other = transformer._sequences(cell, np.full(len(cell), 1), rows.path)
    as_other = -errors(transformer.network_, other).mean()
    assert as_other > theirs + 0.2  # the same cells by the same network, with another's token in front


def test_the_surprise_is_highest_where_a_trip_leaves_its_route(transformer: CellTransformer):
    # The claim of LM-TAD: the surprisal of single locations says where.
    trip = trips_of([DETOUR], "ana", 6)
    steps = transformer.featurize(trip).steps
    anomaly, _ = transformer.score_steps(trip)
    # It leaves the way for the west after 1500 m and is back on it in the end.
    before = np.hypot(*(steps.location - steps.origin).T) < 1300
    after_leaving = np.flatnonzero(~before)[:4]
    assert anomaly[after_leaving].max() > 2.0 * anomaly[before][1:].max()


@pytest.fixture(scope="module")
def mixture() -> MixtureSequenceAutoencoder:
    """Of somebody with three ways from home to work."""
    model = MixtureSequenceAutoencoder(training=QUICK, tuning=QUICK, hidden=32, code=8, components=3)
    return model.fit(trips_of([NORTH_FIRST, EAST_FIRST, MIDDLE] * 8, "ana", 0))


def test_kinds_of_routes_become_components_of_the_prior(mixture: MixtureSequenceAutoencoder):
    # The claim of GM-VSAE: it discovers the types of normal routes. Each way has a component of its own, and most
    # of its trips are nearest to that. With more components than ways the third way is not told apart so well.
    ways = [NORTH_FIRST, EAST_FIRST, MIDDLE]
    rows = mixture.featurize(trips_of(ways * 4, "ana", 7))
    assert mixture.vocabulary_ is not None
    cell = mixture.vocabulary_(mixture.cells(rows))
    codes = mixture.network_.codes(mixture._sequences(cell, np.full(len(cell), ME), rows.path))
    centres = mixture.network_.centres.detach().numpy()
    nearest = np.square(codes[:, None] - centres).sum(axis=2).argmin(axis=1).reshape(4, 3)
    usual = [np.bincount(column).argmax() for column in nearest.T]
    assert len(set(usual)) == 3
    assert (nearest == usual).mean() > 0.8


def test_a_route_of_no_component_has_a_low_score(mixture: MixtureSequenceAutoencoder):
    # The claim of GM-VSAE: detection via generation. A switch between two normal routes is worse than any of them.
    switch = [(0, 0), (0, 1500), (1500, 1500), (1500, 3000), (3000, 3000)]
    scores = mixture.score_samples(trips_of([NORTH_FIRST, EAST_FIRST, MIDDLE, switch, DETOUR], "ana", 8))
    assert scores[:3].min() > scores[3:].max()


@pytest.mark.parametrize("name", ["lm-tad", "gm-vsae"])
def test_both_generators_stop_on_a_plateau_and_repeat_their_scores(name: str, others: Trajectories):
    quick = Training(batch=16, learning_rate=5e-3, budget=8_000, patience=3, least_epochs=2, most_epochs=6)
    make = GENERATORS[name]
    train, test = trips_of([NORTH_FIRST] * 8, "ana", 0), trips_of([NORTH_FIRST, DETOUR], "ana", 1)
    model = make(seed=3, training=quick, tuning=quick)
    again = make(seed=3, training=quick, tuning=quick)
    first = model.fit(train, others[:12]).score_samples(test)
    assert first.tolist() == again.fit(train, again.others(others[:12], train)).score_samples(test).tolist()
    held_out = [epoch.held_out for epoch in model.history_]
    assert min(held_out) < held_out[0]
    # Without anybody else they learn from the agent alone.
    alone = make(seed=3, training=quick, tuning=quick).fit(train)
    assert np.isfinite(alone.score_samples(test)).all()
    # And so they do if they are told to, whoever else there is.
    told = GENERATORS[f"{name}-alone"](seed=3, training=quick, tuning=quick)
    assert told.fit(train, others[:12]).score_samples(test).tolist() == alone.score_samples(test).tolist()
    assert alone.score_samples(test).tolist() != first.tolist()


def test_the_estimate_of_a_softmax_over_many_cells_is_that_of_all_of_them():
    with drawn_from(np.random.default_rng(0)):
        table = CellTable(4000, 8)
        table.frequency = torch.rand(4000) + 0.1
        state, cell = torch.randn(400, 8), torch.randint(1, 4000, (400,))
        exact = table.eval().surprise(state, cell).mean().item()
        table.train()
        estimates = [table.surprise(state, cell).mean().item() for _ in range(20)]
    assert np.mean(estimates) == pytest.approx(exact, abs=0.1)


def test_no_cell_is_predicted_from_itself_or_from_what_follows():
    with drawn_from(np.random.default_rng(0)):
        network = Transformer(9, 2, longest=6, width=8, layers=1, heads=2, dropout=0.0)
    tokens = np.column_stack([[1, 2, 3, 4, 5, 6], [0] * 6])
    changed = tokens.copy()
    changed[4:, 0] = [7, 8]
    first, second = (errors(network, Sequences(part, np.array([0, 6]))) for part in (tokens, changed))
    assert first[:4].tolist() == second[:4].tolist()
    assert first[5] != second[5]


def test_a_cell_entered_by_one_trip_only_counts_as_unknown():
    cell, trip = np.array([7, 9, 7, 8, 7]), np.array([0, 0, 1, 1, 1])
    words = Vocabulary.of(cell, trip, most=10)
    assert words(np.array([7, 8, 9, 1])).tolist() == [1, UNKNOWN, UNKNOWN, UNKNOWN]
    more = Vocabulary.of(np.array([9, 9, 7]), np.array([0, 1, 1]), 10, words)
    assert more(np.array([7, 9])).tolist() == [1, 2]


class Counting(CellTransformer):
    """Counts how often it learns from others."""

    times = 0

    def know(self, crowd):
        type(self).times += 1
        return super().know(crowd)


def test_strangers_are_learned_from_once_a_draw_and_never_include_the_tested(others: Trajectories):
    quick = Training(budget=500, least_epochs=1, most_epochs=1)
    model: CellGenerator = Counting(training=quick, tuning=quick, width=8, layers=1, heads=1)
    strangers = Strangers("town", lambda: others)
    Counting.times = 0
    for agent in ("ana", "bob"):
        lesson = Lesson(trips_of([NORTH_FIRST] * 3, agent, 0), None, strangers)
        learned, _ = learn_from_others("counting", model, lesson, 0)
        assert learned is not None
    assert Counting.times == 1
    learn_from_others("counting", model, lesson, 1)  # another draw
    assert Counting.times == 2
    tested = Lesson(trips_of([NORTH_FIRST] * 3, "other-1", 0), None, Strangers("town with her", lambda: others))
    with pytest.raises(DataError, match="'other-1' is tested"):
        learn_from_others("counting", model, tested, 0)
