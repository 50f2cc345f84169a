"""The losses against their exact minima, which are log-ratios of densities."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from astray.irl.kdd19 import trajectory_loss
from astray.irl.objective import hide_groups, step_loss

torch.set_num_threads(1)


def test_the_step_reward_is_the_log_ratio_of_two_densities():
    """Four states: the step loss is smallest at R with p = q exp(R), the model of relative-entropy IRL, and Z = 1."""
    own, other = torch.tensor([4, 3, 2, 1]), torch.tensor([1, 2, 3, 4])  # how often each state was met
    reward = torch.zeros(4, 1, requires_grad=True)
    optimiser = torch.optim.LBFGS([reward], max_iter=100, tolerance_grad=1e-10)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = step_loss(reward.repeat_interleave(own, 0), reward.repeat_interleave(other, 0)).per_head.sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    torch.testing.assert_close(reward.detach()[:, 0], torch.log(own / other), atol=1e-3, rtol=0)


@pytest.mark.parametrize("temperature", [1.0, 5.0])
def test_a_tempered_trajectory_reward_is_not_that_of_the_paper(temperature: float):
    """Four trajectories: the minimum is T log p - (T - 1) log q, which is log p (Eq. 1) only for T = 1."""
    p, q = torch.tensor([0.4, 0.3, 0.2, 0.1]).double(), torch.tensor([0.1, 0.2, 0.3, 0.4]).double()
    background = torch.arange(4).repeat_interleave((10 * q).long())  # as many of each as q says
    reward = torch.zeros(4, 1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([reward], max_iter=200, tolerance_grad=1e-12)

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = trajectory_loss(reward, reward[background], q.log()[background], 4 * p[:, None], temperature)
        loss.per_head.sum().backward()
        return loss.per_head.sum()

    optimiser.step(closure)
    found = reward.detach()[:, 0]
    expected = temperature * p.log() - (temperature - 1.0) * q.log()
    torch.testing.assert_close(found - found.mean(), expected - expected.mean(), atol=1e-4, rtol=0)


def test_a_group_of_features_is_hidden_together_in_a_share_of_the_rows() -> None:
    group = np.array([True, False, True])
    features = hide_groups(np.ones((10_000, 3), np.float32), [group], 0.25, np.random.default_rng(0))
    hidden = np.isnan(features)
    assert not hidden[:, 1].any()
    assert (hidden[:, 0] == hidden[:, 2]).all()
    assert abs(hidden[:, 0].mean() - 0.25) < 0.02
