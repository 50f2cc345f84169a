"""The background mixes its sources by weight and stays bounded; densities of trajectories are proper densities."""

from __future__ import annotations

import numpy as np
import pytest

from astray.core.errors import DataError
from astray.irl.background import Background, CloneDensity, clone, take_paths
from astray.irl.demonstrations import Rows
from astray.irl.discrete_clone import DiscreteClone


def rows(n_paths: int, length: int, value: float) -> Rows:
    n = n_paths * length
    return Rows(
        np.full((n, 2), value, np.float32),
        np.repeat(np.arange(n_paths), length),
        np.zeros((n, 1)),
        np.random.default_rng(0).normal(size=(n, 1)),
        np.full(n, -1),
    )


def test_a_draw_mixes_the_sources_by_weight_and_a_full_source_drops_its_oldest():
    background = Background({"policy": 1.0, "explore": 3.0, "population": 5.0}, capacity=100)
    background.append("policy", rows(4, 10, 1.0))
    background.append("explore", rows(4, 10, 2.0))
    drawn = background.draw_rows(4000, np.random.default_rng(0))[:, 0]
    # The population is empty, so its share goes to the others.
    assert (drawn == 1.0).mean() == pytest.approx(0.25, abs=0.03)
    for i in range(20):
        background.append("policy", rows(4, 10, float(i)))
    assert len(background.rows["policy"]) <= 100
    assert background.rows["policy"].features.max() == 19.0, "the newest are kept"


def test_an_empty_background_and_an_unknown_source_raise_an_error():
    with pytest.raises(DataError, match="empty"):
        Background({"policy": 1.0}).draw_rows(1, np.random.default_rng(0))
    with pytest.raises(DataError, match="policy, explore, population"):
        Background({"crowd": 1.0})


def test_drawn_trajectories_are_parts_of_at_most_the_horizon():
    taken = take_paths(rows(5, 30, 0.0), 7, 12, np.random.default_rng(0))
    assert np.bincount(taken.path).tolist() == [12] * 7


def test_a_source_of_weight_0_is_not_kept() -> None:
    background = Background({"policy": 1.0, "explore": 0.0})
    background.append("explore", rows(4, 10, 2.0))
    assert background.rows == {}


def test_a_clone_density_integrates_to_one():
    rng = np.random.default_rng(0)
    states = rng.normal(size=(300, 2))
    actions = states @ np.array([[1.0], [-2.0]]) + rng.normal(scale=0.5, size=(300, 1))
    clone = CloneDensity.fit(states, actions)
    grid = np.linspace(-10, 10, 4001)[:, None]
    density = np.exp(clone.log_prob(np.tile(states[:1], (len(grid), 1)), grid))
    assert np.trapezoid(density, grid[:, 0]) == pytest.approx(1.0, abs=1e-3)


def test_the_probabilities_of_discrete_actions_sum_to_one_even_far_away():
    rng = np.random.default_rng(0)
    states, chosen = rng.normal(size=(200, 2)), np.eye(3, dtype=bool)[rng.integers(0, 2, 200)]  # never the third
    fitted = DiscreteClone.fit(states, chosen)
    for where in (states, 1e6 * states):
        logs = [fitted.log_prob(where, np.eye(3, dtype=bool)[np.full(200, k)]) for k in range(3)]
        np.testing.assert_allclose(np.exp(logs).sum(axis=0), 1.0)
        assert np.min(logs) >= np.log(0.01 / 3)


def test_a_clone_of_discrete_actions_is_the_exact_posterior_where_its_model_holds():
    rng = np.random.default_rng(0)
    share, centres = np.array([0.5, 0.3, 0.2]), np.array([[0.0, 0.0], [2.0, 0.0], [0.0, -1.0]])
    chosen = rng.choice(3, 200_000, p=share)
    states = centres[chosen] + rng.normal(size=(200_000, 2))
    fitted = clone(Rows(np.zeros((200_000, 1), np.float32), chosen, states, np.eye(3, dtype=bool)[chosen], chosen))
    some = states[:500]
    joint = share * np.exp(-0.5 * np.square(some[:, None] - centres).sum(axis=2))
    exact = 0.99 * joint / joint.sum(axis=1, keepdims=True) + 0.01 / 3
    found = np.exp([fitted.log_prob(some, np.eye(3, dtype=bool)[np.full(500, k)]) for k in range(3)]).T
    np.testing.assert_allclose(found, exact, atol=0.01)


def test_a_batch_of_discrete_actions_has_the_density_of_its_mixture():
    rng = np.random.default_rng(0)

    def of(n: int) -> Rows:
        chosen = rng.integers(0, 2, 10 * n)
        path, none = np.repeat(np.arange(n), 10), np.full(10 * n, -1)
        return Rows(
            np.zeros((10 * n, 2), np.float32), path, rng.normal(size=(10 * n, 1)), np.eye(2, dtype=bool)[chosen], none
        )

    background = Background({"explore": 1.0})
    background.append("explore", of(500))
    batch = background.draw_paths(40, of(40), 10, rng)
    # Actions are tossed coins everywhere, so every trajectory of ten steps has the probability 2^-10.
    np.testing.assert_allclose(batch.log_q, -10 * np.log(2.0), atol=0.5)
