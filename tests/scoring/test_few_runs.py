"""A model of a few dozen runs keeps its promise of false alarms: each run is scored by a network that never saw it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from astray import Detector, Trajectories
from astray.irl.background import Background
from astray.irl.demonstrations import Rows, cross_fit
from astray.irl.kdd19 import Evidence
from astray.irl.learn_config import STATES, LearnConfig, RewardConfig
from astray.irl.objective import step_estimate
from astray.irl.reward import RewardHeads
from astray.irl.trainer import hold_out
from astray.scoring.decisions import least_rate, level

torch.set_num_threads(1)


def plant(n: int, rng: np.random.Generator, steps: int = 60) -> Trajectories:
    """Simulates a linear plant with Gaussian noise, held at 0 by a proportional controller."""
    x, states, actions = rng.normal(size=(n, 2)), [], []
    for _ in range(steps):
        action = -0.5 * x[:, :1] + 0.2 * rng.normal(size=(n, 1))
        states.append(x)
        actions.append(action)
        x = 0.8 * x + np.hstack([action, 0.3 * x[:, :1]]) + 0.2 * rng.normal(size=(n, 2))
    return Trajectories.from_steps(list(np.stack(states, axis=1)), list(np.stack(actions, axis=1)))


@pytest.fixture(scope="module")
def few() -> Detector:
    return Detector(iterations=3, seed=0).fit(plant(20, np.random.default_rng(0)))


# ---------------------------------------------------------------- the promise


def test_sixty_runs_are_enough_for_two_percent_of_false_alarms() -> None:
    """The rate of a single model varies around the promised one, so this is the mean of three models."""
    shares = []
    for seed in (1, 2, 3):
        rng = np.random.default_rng(seed)
        detector = Detector(seed=seed, iterations=10).fit(plant(60, rng, steps=40))
        assert detector.fitted.eps is None, "-2 decides, and no rate"
        shares.append((detector.decide(plant(300, rng, steps=40)) != "normal").mean())
    assert np.mean(shares) < 0.03


def test_all_runs_give_p_values(few: Detector) -> None:
    assert few.calibration_.normal.total == 20


def test_with_too_few_runs_for_the_rate_an_anomaly_scores_lower_than_all_of_them(few: Detector) -> None:
    normal = few.calibration_.normal
    assert isinstance(few.fitted.eps, float)
    assert few.fitted.eps < normal.scores[0]
    assert few.fitted.eps <= -2.0
    assert few.fitted.eps == min(-2.0, level(least_rate(20), normal))


# ---------------------------------------------------------------- what is held out


def test_each_run_is_held_out_from_one_network_and_always_from_the_same() -> None:
    names = [f"run-{i}" for i in range(200)]
    out = cross_fit(names, np.arange(200), networks=4, heads=3).reshape(200, 4, 3)
    assert (out == out[:, :, :1]).all(), "heads of one network share layers, so they must hold out the same runs"
    assert (out[:, :, 0].sum(axis=1) == 1).all()
    assert out[:, :, 0].sum(axis=0).min() > 25
    fewer = cross_fit(names[:50], np.arange(50), networks=4, heads=3)
    assert (fewer == out.reshape(200, 12)[:50]).all()


def test_a_single_run_is_learned_from_by_all_networks() -> None:
    assert not cross_fit(["only"], np.arange(1), networks=5, heads=2).any()


@pytest.mark.parametrize(
    "config", [LearnConfig(), replace(STATES, objective="trajectory"), replace(STATES, reward=RewardConfig())]
)
def test_elsewhere_the_same_fifth_is_held_out_from_all_heads(config: LearnConfig) -> None:
    out = hold_out([f"run-{i}" for i in range(200)], np.arange(200), config)
    assert (out == out[:, :1]).all()
    assert 0.1 < out[:, 0].mean() < 0.3


def test_a_network_learns_neither_from_the_runs_that_it_holds_out_nor_from_their_counterfactuals() -> None:
    """Moves two runs and what was made from them: only the network that learns from them notices."""
    reward = RewardHeads(2, RewardConfig(heads=1, networks=2), np.random.default_rng(0))
    config = replace(STATES, reward=reward.config, batch_rows=64)
    trip = np.repeat(np.arange(4), 10)
    out = np.array([[True, False], [True, False], [False, True], [False, True]])

    def losses(moved: float) -> torch.Tensor:
        features = np.random.default_rng(1).normal(size=(40, 2)).astype(np.float32)
        features[trip < 2] += moved
        rows = Rows(features, trip, features, features, trip)
        background = Background({"explore": 1.0})
        background.append("explore", replace(rows, features=features + np.float32(0.5)))
        made = torch.as_tensor(np.vstack([~out, [[True, True]]]), dtype=torch.float32)
        evidence = Evidence(rows, {"behaviour": background}, torch.as_tensor(~out, dtype=torch.float32), made)
        return step_estimate(reward, evidence, config, np.random.default_rng(2)).per_head.detach()

    before, after = losses(0.0), losses(3.0)
    assert before[0] == after[0]
    assert before[1] != after[1]
