"""The background mixes its sources by weight and stays bounded; densities of trajectories are proper densities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from astray.core.errors import DataError
from astray.irl.background import Background
from astray.irl.demonstrations import Rows
from astray.irl.proposals import Proposals, clone


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


def test_trajectories_are_drawn_whole_or_in_parts_of_at_most_the_horizon():
    for horizon, lengths in ((None, {30}), (12, {12, 6})):
        background = Background({"policy": 1.0}, proposals=Proposals(horizon))
        background.append("policy", rows(5, 30, 0.0))
        demonstrations, rng = rows(3, 30, 1.0).cut(horizon), np.random.default_rng(0)
        batch = background.draw_paths(20, demonstrations, np.array([0, 2]), rng)
        assert set(np.bincount(batch.path).tolist()) == lengths
        assert len(batch.log_q) == 22
        assert set(batch.features[batch.path >= 20].ravel().tolist()) == {1.0}  # demonstrations come last


def test_a_source_of_weight_0_is_not_kept() -> None:
    background = Background({"policy": 1.0, "explore": 0.0})
    background.append("explore", rows(4, 10, 2.0))
    assert background.rows == {}


def of_pairs(states: NDArray[np.float64], actions: NDArray[Any]) -> Rows:
    n = len(states)
    return Rows(np.zeros((n, 1), np.float32), np.arange(n), states, actions, np.full(n, -1))


def test_a_clone_has_the_density_of_the_actions_that_it_imitates():
    rng = np.random.default_rng(0)
    states = rng.normal(size=(3000, 2))
    actions = np.sin(2.0 * states[:, :1]) + rng.normal(scale=0.5, size=(3000, 1))
    log_prob = clone(of_pairs(states, actions), rng)
    grid = np.linspace(-10, 10, 4001)[:, None]
    density = np.exp(log_prob(np.tile(states[:1], (len(grid), 1)), grid))
    assert np.trapezoid(density, grid[:, 0]) == pytest.approx(1.0, abs=1e-3)
    exact = -0.5 * ((actions - np.sin(2.0 * states[:, :1]))[:, 0] / 0.5) ** 2 - np.log(0.5 * np.sqrt(2 * np.pi))
    assert np.mean(exact - log_prob(states, actions)) < 0.05  # KL; 0.3 around a linear function of the state


def test_a_clone_of_discrete_actions_has_their_probabilities():
    rng = np.random.default_rng(0)
    share, centres = np.array([0.5, 0.3, 0.2]), np.array([[0.0, 0.0], [2.0, 0.0], [0.0, -1.0]])
    chosen = rng.choice(3, 20_000, p=share)
    states = centres[chosen] + rng.normal(size=(20_000, 2))
    log_prob = clone(of_pairs(states, np.eye(3, dtype=bool)[chosen]), rng)
    some = states[:500]
    joint = share * np.exp(-0.5 * np.square(some[:, None] - centres).sum(axis=2))
    exact = joint / joint.sum(axis=1, keepdims=True)
    found = np.exp([log_prob(some, np.eye(3, dtype=bool)[np.full(500, k)]) for k in range(3)]).T
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-5)
    assert np.abs(found - exact).mean() < 0.03


def test_a_batch_of_discrete_actions_has_the_density_of_its_mixture():
    rng = np.random.default_rng(0)

    def of(n: int) -> Rows:
        chosen = rng.integers(0, 2, 10 * n)
        path, none = np.repeat(np.arange(n), 10), np.full(10 * n, -1)
        return Rows(
            np.zeros((10 * n, 2), np.float32), path, rng.normal(size=(10 * n, 1)), np.eye(2, dtype=bool)[chosen], none
        )

    background = Background({"explore": 1.0}, proposals=Proposals())
    background.append("explore", of(500))
    batch = background.draw_paths(40, of(40), np.arange(40), rng)
    # Actions are tossed coins everywhere, so every trajectory of ten steps has the probability 2^-10.
    np.testing.assert_allclose(batch.log_q, -10 * np.log(2.0), atol=0.5)
