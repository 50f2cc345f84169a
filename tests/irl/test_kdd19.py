"""The paper's definitions against exact answers: a small MDP solved by dynamic programming, a Gaussian, arithmetic."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, fields

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from astray.irl.kdd19 import (
    EPSILON,
    GAMMA,
    KDD19,
    KDD19_FOURIER,
    bootstrap,
    irl_ad,
    irl_adu,
    mean_reward,
    normality_score,
    reward_deviation,
    trajectory_loss,
    trajectory_normality,
)
from astray.irl.proposals import fused_log_density

torch.set_num_threads(1)

SIDE, HORIZON = 4, 6
MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])


@dataclass(frozen=True)
class Grid:
    """A 4 x 4 grid, five deterministic moves, a reward linear in features of the cell reached, six steps."""

    features: NDArray[np.float64]  # (cells, d)
    after: NDArray[np.int64]  # (cells, moves): the cell reached

    @classmethod
    def make(cls) -> Grid:
        rng = np.random.default_rng(0)
        cells = np.array([(i, j) for i in range(SIDE) for j in range(SIDE)])
        reached = np.clip(cells[:, None] + MOVES, 0, SIDE - 1)
        return cls(rng.normal(size=(SIDE * SIDE, 3)), reached[..., 0] * SIDE + reached[..., 1])

    def soft_values(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """V_t(s) by backward induction: log of the summed exponentiated returns; V_0(start) = log Z."""
        reward = self.features @ theta
        values = np.zeros((HORIZON + 1, SIDE * SIDE))
        for t in reversed(range(HORIZON)):
            q = reward[self.after] + values[t + 1][self.after]
            values[t] = np.logaddexp.reduce(q, axis=1)
        return values

    def log_z(self, theta: NDArray[np.float64]) -> float:
        return float(self.soft_values(theta)[0, 0])

    def expectations(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """The feature expectations of the soft-optimal policy, which are the gradient of log Z."""
        reward, values = self.features @ theta, self.soft_values(theta)
        occupancy, total = np.zeros(SIDE * SIDE), np.zeros(3)
        occupancy[0] = 1.0
        for t in range(HORIZON):
            q = reward[self.after] + values[t + 1][self.after]
            flow = occupancy[:, None] * np.exp(q - values[t][:, None])
            occupancy = np.bincount(self.after.ravel(), flow.ravel(), SIDE * SIDE)
            total += occupancy @ self.features
        return total

    def sample(
        self, theta: NDArray[np.float64], n: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Summed features (n, d) and log-densities of trajectories of the soft-optimal policy under ``theta``."""
        reward, values = self.features @ theta, self.soft_values(theta)
        cell = np.zeros(n, np.int64)
        total, log_q = np.zeros((n, 3)), np.zeros(n)
        for t in range(HORIZON):
            log_pi = reward[self.after[cell]] + values[t + 1][self.after[cell]] - values[t][cell][:, None]
            move = (np.cumsum(np.exp(log_pi), axis=1) > rng.random(n)[:, None]).argmax(axis=1)
            log_q += log_pi[np.arange(n), move]
            cell = self.after[cell, move]
            total += self.features[cell]
        return total, log_q


GRID = Grid.make()
TRUTH = np.array([0.6, -0.4, 0.3])
HALFWAY = TRUTH / 2  # a policy that has not caught up with the reward yet: what importance weights are for


def estimate(n: int, rng: np.random.Generator) -> tuple[float, NDArray[np.float64]]:
    """log Z and its gradient at TRUTH, from n trajectories of a lagging policy, through the loss that is trained."""
    features, log_q = GRID.sample(HALFWAY, n, rng)
    theta = torch.tensor(TRUTH, requires_grad=True)
    returns = (torch.tensor(features) @ theta)[:, None]
    loss = trajectory_loss(torch.zeros(1, 1, dtype=torch.float64), returns, torch.tensor(log_q))
    loss.per_head.sum().backward()
    assert theta.grad is not None
    return float(loss.per_head[0].detach()), theta.grad.numpy()


def test_feature_expectations_are_the_gradient_of_log_z():
    """The dynamic programme of this file agrees with finite differences."""
    step = 1e-5
    numeric = [(GRID.log_z(TRUTH + step * e) - GRID.log_z(TRUTH - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(GRID.expectations(TRUTH), numeric, atol=1e-8)


def test_the_sampled_log_z_and_gradient_converge_like_one_over_root_n():
    sizes, repeats = (100, 400, 1600, 6400), 40
    rng = np.random.default_rng(1)
    errors = []
    for n in sizes:
        runs = [estimate(n, rng) for _ in range(repeats)]
        log_z = np.sqrt(np.mean([(z - GRID.log_z(TRUTH)) ** 2 for z, _ in runs]))
        gradient = np.sqrt(np.mean([np.sum((g - GRID.expectations(TRUTH)) ** 2) for _, g in runs]))
        errors.append((log_z, gradient))
    slopes = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    np.testing.assert_allclose(slopes, -0.5, atol=0.12)
    assert errors[-1][0] < 0.03
    assert errors[-1][1] < 0.15


def test_the_learned_reward_matches_the_demonstrators_feature_expectations():
    """Ziebart et al. 2008: at the optimum the policy of the learned reward does what was demonstrated, on average."""
    rng = np.random.default_rng(2)
    demonstrated, _ = GRID.sample(TRUTH, 2000, rng)
    theta = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([theta], lr=0.05)
    for _ in range(300):
        # The policy follows the reward, as TRPO would make it; samples come with their exact densities.
        background, log_q = GRID.sample(theta.detach().numpy(), 500, rng)
        batch = torch.tensor(demonstrated[rng.integers(len(demonstrated), size=500)])
        loss = trajectory_loss(
            (batch @ theta)[:, None], (torch.tensor(background) @ theta)[:, None], torch.tensor(log_q)
        )
        optimiser.zero_grad()
        loss.per_head.sum().backward()
        optimiser.step()
    reached = GRID.expectations(theta.detach().numpy())
    np.testing.assert_allclose(reached, demonstrated.mean(axis=0), atol=0.12)
    np.testing.assert_allclose(theta.detach().numpy(), TRUTH, atol=0.1)


def test_the_partition_function_of_a_gaussian_is_within_its_monte_carlo_error_with_fused_proposals():
    """R(x) = -x^2 / 2 s^2 has Z = s sqrt(2 pi). Two proposals, one too narrow and one off centre, are fused."""
    s, n = 1.5, 4000
    proposals = [(0.0, 0.7), (2.0, 1.5)]
    log_z = np.log(s * np.sqrt(2 * np.pi))

    def log_normal(x: NDArray[np.float64], mean: float, scale: float) -> NDArray[np.float64]:
        return -0.5 * ((x - mean) / scale) ** 2 - np.log(scale * np.sqrt(2 * np.pi))

    errors = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        x = np.concatenate([rng.normal(m, scale, n // 2) for m, scale in proposals])
        log_q = fused_log_density(np.column_stack([log_normal(x, *p) for p in proposals]), np.array([1, 1]))
        returns = torch.tensor(-(x**2) / (2 * s**2))[:, None]
        loss = trajectory_loss(torch.zeros(1, 1, dtype=torch.float64), returns, torch.tensor(log_q))
        weights = np.exp(returns.numpy()[:, 0] - log_q)
        standard_error = weights.std() / np.sqrt(n) / weights.mean()
        errors.append((float(loss.per_head[0]) - log_z) / standard_error)
    # Standardised errors are about standard normal: unbiased, and of the size that they claim.
    assert abs(np.mean(errors)) < 0.5
    assert 0.6 < np.std(errors) < 1.5


def test_one_narrow_proposal_alone_is_off_where_the_fused_ones_are_not():
    """Why the densities are fused: weights under one proposal that hardly ever reaches the tails collapse."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0, 0.5, 500), rng.normal(0, 3.0, 500)])
    logs = np.column_stack([-0.5 * (x / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi)) for sd in (0.5, 3.0)])
    returns = torch.tensor(-(x**2) / 8)[:, None]
    zero = torch.zeros(1, 1, dtype=torch.float64)
    alone = trajectory_loss(zero, returns, torch.tensor(logs[:, 0]))
    fused = trajectory_loss(zero, returns, torch.tensor(fused_log_density(logs, np.array([1, 1]))))
    assert alone.effective_sample_size.item() < 0.02
    assert fused.effective_sample_size.item() > 0.3


def test_bootstrap_weights_leave_out_what_a_head_did_not_draw():
    returns = torch.tensor([[1.0, 1.0], [5.0, 5.0]])
    weights = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    background = torch.zeros(3, 2)
    loss = trajectory_loss(returns, background, torch.zeros(3), weights)
    torch.testing.assert_close(loss.per_head, torch.tensor([-1.0, -5.0]))


def test_the_gradient_is_equation_3_with_weights_w_over_big_w():
    rng = np.random.default_rng(3)
    own, other = torch.tensor(rng.normal(size=(4, 1))), torch.tensor(rng.normal(size=(7, 1)))
    log_q = torch.tensor(rng.normal(size=7))
    own.requires_grad_(), other.requires_grad_()
    trajectory_loss(own, other, log_q).per_head.sum().backward()
    w = np.exp(other.detach().numpy()[:, 0] - log_q.numpy())
    np.testing.assert_allclose(-own.grad.numpy()[:, 0], np.full(4, 1 / 4))  # 1 / |T_d|
    np.testing.assert_allclose(-other.grad.numpy()[:, 0], -w / w.sum())  # - w_j / W


def test_a_bootstrap_leaves_1_over_e_of_the_trips_out_and_has_as_many_on_average():
    drawn = bootstrap(2000, 10, np.random.default_rng(0))
    assert drawn.shape == (2000, 10)
    assert (drawn == 0).mean() == pytest.approx(np.exp(-1), abs=0.02)
    assert drawn.mean() == pytest.approx(1.0, abs=0.03)


def test_normality_is_the_mean_reward_of_all_heads_in_standard_deviations():
    rewards = np.array([[1.0, 3.0], [5.0, 7.0]])  # (steps, K)
    n = normality_score(mean_reward(rewards), r_bar=4.0, sigma_bar=2.0)
    assert n.tolist() == [-1.0, 1.0]  # Eq. 4
    assert reward_deviation(rewards).tolist() == [1.0, 1.0]  # Section 4.5
    assert trajectory_normality(n, np.array([0])).tolist() == [0.0]
    assert trajectory_normality(n, np.array([0, 1])).tolist() == [-1.0, 1.0]
    assert trajectory_normality(n, np.array([0]), share=np.array([0.25, 0.75])).tolist() == [0.5]


def test_irl_ad_decides_by_epsilon_and_irl_adu_also_by_gamma():
    n, sigma = np.array([-2.0, -2.1, -1.9, np.nan]), np.array([1.5, 1.6, 0.1, 0.1])
    assert irl_ad(n).tolist() == [True, True, False, False]
    assert irl_adu(irl_ad(n), sigma).tolist() == [True, False, False, False]
    assert irl_ad(n, epsilon=np.array([-3.0, -2.1, 0.0, 0.0])).tolist() == [False, True, True, False]


def test_the_settings_are_those_that_the_paper_prints():
    assert KDD19.reward.hidden == (64, 16)
    assert KDD19.reward.heads == 10
    assert KDD19.reward.initial_variance == 0.1
    assert (KDD19.objective, KDD19.temperature, KDD19.all_heads) == ("trajectory", 1.0, False)
    assert dict(KDD19.weights) == {"policy": 1.0}
    assert (EPSILON, GAMMA) == (-2.0, 1.5)


def test_scoring_by_the_paper_does_not_import_torch():
    code = "import sys, astray.irl.kdd19, astray.irl.shared, astray.irl.actor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_preset_of_ours_departs_from_the_papers_settings_in_two():
    paper, ours = KDD19, KDD19_FOURIER
    differing = {f.name for f in fields(paper) if getattr(paper, f.name) != getattr(ours, f.name)}
    assert differing == {"waves", "all_heads"}
    assert not paper.all_heads  # Algorithm 1 updates the head that it sampled
