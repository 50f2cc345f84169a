"""The loss of single steps against the exact answer: its minimum is the log-ratio of two densities."""

from __future__ import annotations

import numpy as np
import torch

from astray.irl.objective import hide_groups, step_loss

torch.set_num_threads(1)


def test_the_step_reward_is_the_log_ratio_of_two_densities():
    """A reward with one value a state, four states: the minimiser of the step loss is log p / q."""
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


def test_a_group_of_features_is_hidden_together_in_a_share_of_the_rows() -> None:
    group = np.array([True, False, True])
    features = hide_groups(np.ones((10_000, 3), np.float32), [group], 0.25, np.random.default_rng(0))
    hidden = np.isnan(features)
    assert not hidden[:, 1].any()
    assert (hidden[:, 0] == hidden[:, 2]).all()
    assert abs(hidden[:, 0].mean() - 0.25) < 0.02
