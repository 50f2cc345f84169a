"""The reward network: its prior, its scales, and the same numbers as the arrays that scoring uses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from astray.irl.learn_config import RewardConfig
from astray.irl.reward import RewardHeads

torch.set_num_threads(1)


def test_the_gaussian_prior_pulls_shared_weights_fully_and_those_of_a_head_by_1_over_k():
    """d(-log p)/d theta = theta / sigma^2 for the trunk, and 1/K of it for each head's own weights."""
    reward = RewardHeads(3, RewardConfig(hidden=(4,), heads=5, prior_variance=0.5), np.random.default_rng(0))
    reward.neg_log_prior().backward()
    trunk, heads = reward.weights
    torch.testing.assert_close(trunk.grad, trunk.detach() / 0.5)
    torch.testing.assert_close(heads.grad, heads.detach() / 0.5 / 5)


def test_a_reward_used_as_prior_is_pulled_towards_its_own_weights() -> None:
    reward = RewardHeads(3, RewardConfig(hidden=(4,), heads=2), np.random.default_rng(0))
    assert reward.neg_log_prior() > 0
    reward.use_as_prior()
    assert reward.neg_log_prior() == 0
    with torch.no_grad():
        reward.weights[0] += 1.0
    reward.neg_log_prior().backward()
    torch.testing.assert_close(reward.weights[0].grad, torch.full((1, 3, 4), 1 / 10.0))


def test_a_constant_feature_has_scale_1_over_many_rows() -> None:
    """Summed in single precision its spread would not be 0, and a small change would look large."""
    reward = RewardHeads(2, RewardConfig(), np.random.default_rng(0))
    rows = 300_000
    varied = np.random.default_rng(1).normal(size=rows)
    reward.standardise(np.column_stack([np.full(rows, 6.7012), varied]).astype(np.float32))
    assert reward.scale[0] == 1.0
    assert reward.mean[0] == pytest.approx(6.7012)
    assert reward.scale[1] == pytest.approx(varied.std(), rel=1e-4)


@pytest.mark.parametrize("config", [RewardConfig(), RewardConfig(heads=2, networks=3, random_prior=1.0)])
def test_the_arrays_and_the_network_give_the_same_reward(config: RewardConfig) -> None:
    rng = np.random.default_rng(0)
    reward = RewardHeads(5, config, rng, aspects=("place", "manner"))
    features = rng.normal(scale=3.0, size=(200, 5)).astype(np.float32)
    reward.standardise(features)
    with torch.no_grad():
        expected = reward(torch.from_numpy(features))
    torch.testing.assert_close(torch.from_numpy(reward.posterior()(features).copy()), expected, atol=1e-4, rtol=0)
