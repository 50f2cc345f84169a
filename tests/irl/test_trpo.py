"""TRPO: each piece against its closed form, the whole against a task with a known optimum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from astray.core.errors import DataError, TrainingError
from astray.irl.categorical_policy import CategoricalPolicy, policy_for
from astray.irl.dynamics import Integrator
from astray.irl.network import MLP
from astray.irl.policy import GaussianPolicy, Generator, Policy, Rollout, rollout
from astray.irl.trpo import TRPO, TRPOConfig, conjugate_gradient, fisher_product, gae

torch.set_num_threads(1)  # faster than more for networks as small as these

GOAL = np.array([300.0, -200.0])


def made_policy(seed: int = 0, dtype: torch.dtype = torch.float32, hidden: tuple[int, ...] = (64, 64)):
    """A policy for a point mass within a kilometre of the origin, at a few metres a second."""
    rng = np.random.default_rng(seed)
    states = rng.uniform(-1000.0, 1000.0, (500, 5))
    states[:, 4] = rng.uniform(0.0, 1200.0, 500)
    actions = rng.normal([1.0, -2.0], [5.0, 10.0], (500, 2))
    return GaussianPolicy(states, actions, rng, hidden=hidden, dtype=dtype)


def made_choice(seed: int = 0, dtype: torch.dtype = torch.float32, hidden: tuple[int, ...] = (64, 64)):
    """A policy that chooses one of four ways for a point mass within a kilometre of the origin."""
    rng = np.random.default_rng(seed)
    states = rng.uniform(-1000.0, 1000.0, (500, 5))
    states[:, 4] = rng.uniform(0.0, 1200.0, 500)
    return CategoricalPolicy(states, 4, rng, hidden=hidden, dtype=dtype)


def scattered(policy: Policy, seed: int = 1, size: float = 0.3) -> Policy:
    """The policy with parameters that are nowhere special."""
    with torch.no_grad():
        policy.theta += size * torch.from_numpy(np.random.default_rng(seed).normal(size=len(policy.theta)))
    return policy


def distribution(policy: Policy, states) -> torch.distributions.Distribution:
    """The distribution of the action in each state, as torch's own object."""
    if isinstance(policy, CategoricalPolicy):
        logits = policy.net.forward(policy.theta, policy.standardise_states(states))
        return torch.distributions.OneHotCategorical(logits=logits)
    return torch.distributions.Independent(torch.distributions.Normal(policy.mean(states), policy.std), 1)


def point_mass() -> Integrator:
    at = np.random.default_rng(42).uniform(-1000.0, 1000.0, (200, 2))
    return Integrator(np.concatenate([at, at, np.zeros((200, 1))], axis=1), interval=30.0)


class FourWays(Integrator):
    """The same plane for discrete actions: 10 m/s to the east, north, west or south."""

    WAYS = 10.0 * np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])

    def step(self, states, actions, rng):
        assert actions.dtype == bool
        assert (actions.sum(axis=1) == 1).all()
        return super().step(states, actions @ self.WAYS, rng)


def four_ways() -> FourWays:
    return FourWays(point_mass().starts, 30.0)


KINDS = [(made_policy, point_mass), (made_choice, four_ways)]


def minus_distance(drawn: Rollout) -> np.ndarray:
    return -np.linalg.norm(drawn.next_states[..., :2] - GOAL, axis=-1)


def drawn_and_generator(seed: int = 0, config: TRPOConfig | None = None, lengths=None):
    rng = np.random.default_rng(seed)
    generator = TRPO(made_policy(seed), rng, config)
    return generator.rollout(point_mass(), 16, 20, rng, lengths), generator


def parameters(generator: TRPO) -> list[bytes]:
    return [generator.policy.theta.detach().numpy().tobytes(), generator.critic.theta.numpy().tobytes()]


# ---------------------------------------------------------------- derivatives


@pytest.mark.parametrize("made", [made_policy, made_choice])
@pytest.mark.parametrize("hidden", [(), (7,), (16, 3, 8)])
def test_fisher_product_is_the_hessian_of_the_kl(hidden, made):
    policy = scattered(made(dtype=torch.float64, hidden=hidden))
    rng = np.random.default_rng(2)
    states = rng.uniform(-1000.0, 1000.0, (50, 5))
    v = torch.from_numpy(rng.normal(size=len(policy.theta)))

    # By double back-propagation of KL(old || new) at new = old.
    new = distribution(policy, states)
    with torch.no_grad():
        old = distribution(policy, states)
    kl = torch.distributions.kl_divergence(old, new).mean()
    (gradient,) = torch.autograd.grad(kl, policy.theta, create_graph=True)
    (expected,) = torch.autograd.grad(gradient @ v, policy.theta)

    weights, constants = policy.split(policy.theta.detach())
    at = policy.net.linearise(weights, policy.standardise_states(states))
    here = policy.distribution(at.output, constants)
    product = fisher_product(at, here, damping=0.0)(v)
    torch.testing.assert_close(product, expected, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(fisher_product(at, here, damping=0.5)(v), expected + 0.5 * v)


@pytest.mark.parametrize(("made", "world"), KINDS)
def test_densities_divergences_and_entropies_are_those_of_torch(made, world):
    policy, other = (scattered(made(dtype=torch.float64, hidden=(6,)), seed) for seed in (1, 2))
    rng = np.random.default_rng(3)
    drawn = rollout(policy, world(), 8, 10, rng)
    states, actions = drawn.states[drawn.mask], drawn.actions[drawn.mask]
    one, two = distribution(policy, states), distribution(other, states)
    taken = torch.from_numpy(actions).double()
    expected = one.log_prob(taken)
    torch.testing.assert_close(policy.log_prob(states, actions), expected)
    torch.testing.assert_close(torch.from_numpy(drawn.log_prob[drawn.mask]), expected.detach())
    torch.testing.assert_close(policy.entropy(states), one.entropy().mean())

    inputs, encoded = policy.standardise_states(states), policy.encode(actions)
    (weights, constants), (elsewhere, others) = policy.split(policy.theta), other.split(other.theta)
    old = policy.distribution(policy.net.forward(weights, inputs), constants)
    new = other.distribution(other.net.forward(elsewhere, inputs), others)
    ratio = old.log_prob(encoded) - new.log_prob(encoded)
    torch.testing.assert_close(ratio, expected - two.log_prob(taken))
    torch.testing.assert_close(old.kl(new), torch.distributions.kl_divergence(one, two).mean())
    torch.testing.assert_close(old.entropy() - new.entropy(), (one.entropy() - two.entropy()).mean())

    # The written-out gradients, by automatic differentiation.
    importance = torch.from_numpy(rng.normal(size=len(states)))
    output = policy.net.forward(weights, inputs)
    old = policy.distribution(output, constants)
    for by, value in (
        (old.gradient(encoded, importance), (importance * old.log_prob(encoded)).mean()),
        (old.entropy_gradient(), old.entropy()),
    ):
        found = torch.autograd.grad(value, (output, constants), retain_graph=True, materialize_grads=True)
        torch.testing.assert_close(by, found)


@pytest.mark.parametrize("sizes", [(3, 2), (3, 9, 2), (5, 4, 6, 1)])
def test_jacobian_products_agree_with_automatic_differentiation(sizes):
    net = MLP(sizes)
    rng = np.random.default_rng(0)
    theta, v = torch.from_numpy(rng.normal(size=(2, net.n_parameters)))
    inputs = torch.from_numpy(rng.normal(size=(11, sizes[0])))
    u = torch.from_numpy(rng.normal(size=(11, sizes[-1])))
    jacobian = torch.autograd.functional.jacobian(lambda t: net.forward(t, inputs), theta)
    for at, rows in (
        (net.linearise(theta, inputs), slice(None)),
        (net.linearise(theta, inputs).every(3), slice(None, None, 3)),
    ):
        torch.testing.assert_close(at.output, net.forward(theta, inputs)[rows])
        torch.testing.assert_close(at.jvp(v), jacobian[rows] @ v)
        torch.testing.assert_close(at.vjp(u[rows]), torch.einsum("no,nop->p", u[rows], jacobian[rows]))


def test_conjugate_gradient_solves_a_positive_definite_system():
    rng = np.random.default_rng(0)
    root = torch.from_numpy(rng.normal(size=(12, 12)))
    matrix, b = root @ root.T + torch.eye(12), torch.from_numpy(rng.normal(size=12))
    x, residual = conjugate_gradient(lambda v: matrix @ v, b, iterations=50, tolerance=1e-24)
    torch.testing.assert_close(x, torch.linalg.solve(matrix, b), rtol=1e-9, atol=1e-9)
    x, residual = conjugate_gradient(lambda v: matrix @ v, b, iterations=3)
    torch.testing.assert_close(residual, b - matrix @ x)  # also when it has not converged


# ---------------------------------------------------------------- advantages


def test_gae_of_a_constant_value_function_has_a_closed_form():
    gamma, value, reward = 0.9, 3.0, 2.0
    lengths = np.array([1, 4, 7])
    mask = np.arange(7) < lengths[:, None]
    values = np.full(mask.shape, value)
    left = np.maximum(lengths[:, None] - np.arange(7), 0)  # steps until the end
    # Whatever stands where no step was taken must not matter.
    rewards = np.where(mask, reward, 1e9)

    one_step = gae(rewards, values, values, mask, gamma, lam=0.0)
    np.testing.assert_allclose(one_step, np.where(mask, reward + gamma * value - value, 0.0))

    # lambda = 1: the discounted return, bootstrapped at the end, minus the value.
    returns = reward * (1.0 - gamma**left) / (1.0 - gamma) + gamma**left * value - value
    np.testing.assert_allclose(gae(rewards, values, values, mask, gamma, lam=1.0), np.where(mask, returns, 0.0))

    # Between them: a geometric series of the same delta.
    lam, delta = 0.5, reward + gamma * value - value
    between = delta * (1.0 - (gamma * lam) ** left) / (1.0 - gamma * lam)
    np.testing.assert_allclose(gae(rewards, values, values, mask, gamma, lam), np.where(mask, between, 0.0))


def test_nothing_follows_an_end_but_something_follows_a_cut():
    drawn, _ = drawn_and_generator()
    rewards = minus_distance(drawn)

    def stepped(after: float, ended: bool, bootstrap: bool = True) -> bytes:
        """The policy's parameters if the state after the last one lay ``after`` metres further."""
        fresh = drawn_and_generator(config=TRPOConfig(bootstrap=bootstrap))[1]
        following = drawn.next_states.copy()
        following[::2, -1, 0] += after
        fresh.improve(replace(drawn, next_states=following, ended=np.full(16, ended)), rewards)
        return parameters(fresh)[0]

    assert stepped(0.0, ended=True) == stepped(5000.0, ended=True)
    assert stepped(0.0, ended=False) != stepped(5000.0, ended=False)
    assert stepped(0.0, ended=False, bootstrap=False) == stepped(5000.0, ended=False, bootstrap=False)


def test_without_bootstrap_the_critic_knows_how_much_is_still_to_come():
    """A reward of 1 a step is worth the steps left, which no state tells; a trajectory may end before its limit."""
    lengths = np.random.default_rng(3).integers(2, 20, 16)
    losses = {}
    for bootstrap in (True, False):
        config = TRPOConfig(bootstrap=bootstrap, discount=1.0, gae_lambda=1.0)
        drawn, generator = drawn_and_generator(config=config, lengths=lengths)
        assert drawn.limits is not None
        assert drawn.limits.tolist() == lengths.tolist()
        unseen = replace(drawn, states=np.zeros_like(drawn.states), ended=np.ones(16, np.bool_))
        losses[bootstrap] = [generator.improve(unseen, unseen.mask.astype(float)).value_loss for _ in range(10)][-1]
    assert losses[False] < 0.05 < 0.8 < losses[True]


def test_the_trust_region_shrinks_to_the_last_one():
    config = TRPOConfig(max_kl=0.1, last_kl=0.001)
    drawn, _ = drawn_and_generator()
    generator = TRPO(made_policy(0), np.random.default_rng(0), config, improvements=3)
    found = []
    for _ in range(4):
        drawn = generator.rollout(point_mass(), 16, 20, np.random.default_rng(1))
        found.append(generator.improve(drawn, minus_distance(drawn)).kl)
    for kl, bound in zip(found, (0.1, 0.01, 0.001, 0.001), strict=True):
        assert 0.1 * bound < kl <= bound
    with pytest.raises(DataError, match="last_kl is 0"):
        TRPOConfig(last_kl=0.0)


# ---------------------------------------------------------------- densities and rollouts


def test_log_prob_is_the_density_of_the_action_in_its_own_units():
    policy = scattered(made_policy(dtype=torch.float64))
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(-1000.0, 1000.0, (40, 5)), rng.normal(0.0, 10.0, (40, 2))
    weights, log_std = policy.split(policy.theta.detach())
    output = policy.net.forward(weights, policy.standardise_states(states))
    mean = policy.action_mean + policy.action_scale * output
    std = policy.action_scale * log_std.exp()
    expected = torch.distributions.Normal(mean, std).log_prob(torch.from_numpy(actions)).sum(dim=1)
    torch.testing.assert_close(policy.log_prob(states, actions).detach(), expected)
    torch.testing.assert_close(distribution(policy, states).log_prob(torch.from_numpy(actions)).detach(), expected)


def test_densities_integrate_to_one():
    rng = np.random.default_rng(0)
    policy = GaussianPolicy(rng.normal(size=(50, 3)), rng.normal(2.0, 7.0, (50, 1)), rng)
    grid = np.linspace(-80.0, 80.0, 4001)[:, None]
    density = np.exp(TRPO(policy, rng).log_prob(np.zeros((4001, 3)), grid))
    assert np.trapezoid(density, grid[:, 0]) == pytest.approx(1.0, abs=1e-5)
    entropy = -np.trapezoid(density * np.log(np.maximum(density, 1e-300)), grid[:, 0])
    assert policy.entropy().item() == pytest.approx(entropy, abs=1e-4)


def test_output_zero_is_the_mean_action_and_noise_moves_it_by_the_standard_deviation():
    policy = made_policy()
    with torch.no_grad():
        policy.theta.zero_()
        states, noise = np.zeros((3, 5)), np.array([[0.0, 0.0], [1.0, 0.0], [0.0, -2.0]])
        moved = (policy.actor()(states, noise) - policy.action_mean) / policy.action_scale
    torch.testing.assert_close(moved, torch.from_numpy(noise))


def test_rollout_densities_are_those_of_the_policy():
    drawn, generator = drawn_and_generator(lengths=np.arange(16) % 5 + 3)
    recomputed = generator.log_prob(drawn.states, drawn.actions)
    assert recomputed.shape == drawn.mask.shape
    np.testing.assert_allclose(drawn.log_prob[drawn.mask], recomputed[drawn.mask], atol=1e-4)
    assert not drawn.log_prob[~drawn.mask].any()
    assert drawn.lengths.tolist() == (np.arange(16) % 5 + 3).tolist()


def test_rollouts_follow_the_dynamics():
    drawn, _ = drawn_and_generator()
    np.testing.assert_array_equal(drawn.states[:, 1:], drawn.next_states[:, :-1])
    np.testing.assert_allclose(drawn.next_states[..., :2], drawn.states[..., :2] + 30.0 * drawn.actions, rtol=1e-12)
    assert not drawn.ended.any()


def test_a_trajectory_that_ends_has_no_steps_afterwards():
    class Mortal(Integrator):
        """Trajectory i dies with its step i + 1; afterwards its state is meaningless."""

        def step(self, states, actions, rng):
            following, alive = super().step(states, actions, rng)
            age = np.nan_to_num(following[:, 4], nan=1e9) / self.interval
            dead = age > np.arange(len(states))
            following[age > np.arange(len(states)) + 1] = np.nan
            return following, alive & ~dead

    drawn = rollout(made_policy(), Mortal(np.zeros((1, 5)), 1.0), 4, 10, np.random.default_rng(0), [9, 9, 2, 9])
    assert drawn.lengths.tolist() == [1, 2, 2, 4]
    assert drawn.ended.tolist() == [True, True, False, True]
    assert np.isfinite(drawn.states).all()
    assert not drawn.next_states[~drawn.mask].any()


def test_impossible_rollouts_are_refused():
    for n, horizon, lengths in ((0, 5, None), (2, 0, None), (2, 5, [1, 0]), (2, 5, [1, 2, 3])):
        with pytest.raises(DataError, match="at least 1"):
            rollout(made_policy(), point_mass(), n, horizon, np.random.default_rng(0), lengths)


def test_large_offsets_do_not_cost_precision():
    rng = np.random.default_rng(0)
    states = rng.normal(size=(100, 3))
    near = GaussianPolicy(states, rng.normal(size=(100, 1)), np.random.default_rng(1))
    far = GaussianPolicy(states + 1e9, rng.normal(size=(100, 1)), np.random.default_rng(1))
    torch.testing.assert_close(
        near.standardise_states(states), far.standardise_states(states + 1e9), rtol=0.0, atol=1e-5
    )


# ---------------------------------------------------------------- the step


@pytest.mark.parametrize(("made", "world"), KINDS)
def test_a_small_step_is_the_natural_gradient(made, world):
    rng = np.random.default_rng(0)
    config = TRPOConfig(max_kl=1e-10, cg_iterations=200, entropy_bonus=0.05, bootstrap=False)
    generator = TRPO(scattered(made(dtype=torch.float64, hidden=(4,))), rng, config)
    generator.critic = replace(generator.critic, theta=torch.zeros_like(generator.critic.theta))
    policy, drawn = generator.policy, generator.rollout(world(), 16, 20, rng, np.arange(16) + 5)
    rewards, nothing, mask = minus_distance(drawn), np.zeros(drawn.mask.shape), drawn.mask

    # Gradient by automatic differentiation, Fisher matrix written out, linear system solved exactly.
    advantages = gae(rewards, nothing, nothing, mask, config.discount, config.gae_lambda)[mask]
    advantages = torch.from_numpy((advantages - advantages.mean()) / advantages.std())
    states = drawn.states[mask]
    log_prob = policy.log_prob(states, drawn.actions[mask])
    surrogate = (torch.exp(log_prob - log_prob.detach()) * advantages).mean() + 0.05 * policy.entropy(states)
    (gradient,) = torch.autograd.grad(surrogate, policy.theta)
    weights, constants = policy.split(policy.theta.detach())
    at = policy.net.linearise(weights, policy.standardise_states(states))
    product = fisher_product(at, policy.distribution(at.output, constants), config.cg_damping)
    fisher = torch.stack([product(row) for row in torch.eye(len(gradient), dtype=torch.float64)])
    natural = torch.linalg.solve(fisher, gradient)

    before = policy.theta.detach().clone()
    assert generator.improve(drawn, rewards).accepted
    taken = policy.theta.detach() - before
    torch.testing.assert_close(taken / taken.norm(), natural / natural.norm(), rtol=0.0, atol=1e-4)
    assert float(0.5 * taken @ fisher @ taken) == pytest.approx(1e-10, rel=1e-3)


@pytest.mark.parametrize(("made", "world"), KINDS)
@pytest.mark.parametrize("max_kl", [0.01, 3.0])  # beyond a small one the line search has to shrink the step
def test_every_step_stays_in_the_trust_region(max_kl, made, world):
    rng = np.random.default_rng(0)
    generator = TRPO(made(), rng, TRPOConfig(max_kl=max_kl, cg_damping=1e-3, line_search_steps=40))
    tried = []
    for _ in range(6):
        drawn = generator.rollout(world(), 16, 20, rng)
        states = drawn.states[drawn.mask]
        with torch.no_grad():
            old = distribution(generator.policy, states)
            done = generator.improve(drawn, minus_distance(drawn))
            kl = torch.distributions.kl_divergence(old, distribution(generator.policy, states)).mean()
        assert done.accepted
        assert done.surrogate_gain > 0.0
        assert 0.0 < kl <= max_kl * (1.0 + 1e-4)
        assert done.kl == pytest.approx(float(kl), rel=1e-3)
        assert done.entropy == pytest.approx(generator.policy.entropy(states).item())
        tried.append(done.line_search_steps)
    assert max(tried) > 1


def test_a_failed_line_search_leaves_the_policy_as_it_was():
    drawn, generator = drawn_and_generator(config=TRPOConfig(max_kl=1000.0, line_search_steps=1))
    before = parameters(generator)
    done = generator.improve(drawn, minus_distance(drawn))
    assert not done.accepted
    assert (done.kl, done.surrogate_gain, done.line_search_steps) == (0.0, 0.0, 1)
    assert parameters(generator)[0] == before[0]
    assert parameters(generator)[1] != before[1]  # the critic learns all the same


def test_without_any_advantage_the_policy_stays_and_a_bonus_widens_it():
    drawn, generator = drawn_and_generator()
    blank = replace(generator.critic, theta=torch.zeros_like(generator.critic.theta))
    generator.critic = blank
    before = parameters(generator)
    assert not generator.improve(drawn, np.zeros(drawn.mask.shape)).accepted
    assert parameters(generator)[0] == before[0]

    curious = TRPO(made_policy(), np.random.default_rng(0), TRPOConfig(entropy_bonus=0.1))
    curious.critic = blank
    entropy = curious.policy.entropy().item()
    assert curious.improve(drawn, np.zeros(drawn.mask.shape)).entropy > entropy


def test_steps_that_were_not_taken_do_not_matter():
    lengths = np.arange(16) % 7 + 2
    drawn, generator = drawn_and_generator(lengths=lengths)
    rewards = minus_distance(drawn)
    generator.improve(drawn, rewards)
    other = drawn_and_generator(lengths=lengths)[1]
    states = np.where(drawn.mask[:, :, None], drawn.states, np.nan)
    other.improve(replace(drawn, states=states), np.where(drawn.mask, rewards, np.nan))
    assert parameters(other) == parameters(generator)


@pytest.mark.parametrize("place", ["rewards", "states", "next_states", "actions"])
def test_a_number_that_is_not_finite_is_refused_and_nothing_changes(place):
    drawn, generator = drawn_and_generator()
    before = parameters(generator)
    rewards = minus_distance(drawn)
    if place == "rewards":
        rewards[3, 4] = np.nan
    else:
        broken = getattr(drawn, place).copy()
        broken[3, 4, 1] = np.inf
        drawn = replace(drawn, **{place: broken})
    with pytest.raises(TrainingError, match="trajectory 3 at step 4"):
        generator.improve(drawn, rewards)
    assert parameters(generator) == before


@pytest.mark.filterwarnings("ignore:overflow")
def test_an_exploding_reward_is_refused_and_nothing_changes():
    drawn, generator = drawn_and_generator()
    before = parameters(generator)
    with pytest.raises(TrainingError, match="exploding"):
        generator.improve(drawn, np.full(drawn.mask.shape, 1.5e308))  # finite, but no sum of two is
    assert parameters(generator) == before


def test_the_scale_of_the_reward_does_not_matter():
    drawn, generator = drawn_and_generator()
    generator.improve(drawn, minus_distance(drawn))
    for factor in (1e-100, 1e100):
        other = drawn_and_generator()[1]
        other.critic = replace(other.critic, scale=factor)  # the first values, in the same proportion
        other.improve(drawn, factor * minus_distance(drawn))
        torch.testing.assert_close(other.policy.theta, generator.policy.theta, rtol=1e-3, atol=1e-4)


def test_rewards_of_another_shape_are_refused():
    drawn, generator = drawn_and_generator()
    with pytest.raises(DataError, match="one a step"):
        generator.improve(drawn, np.zeros(16))


def test_impossible_settings_are_refused():
    for wrong in ({"max_kl": 0.0}, {"discount": 1.5}, {"gae_lambda": -0.1}):
        with pytest.raises(DataError, match=next(iter(wrong))):
            TRPOConfig(**wrong)


# ---------------------------------------------------------------- the critic


def test_the_critic_fits_targets_of_any_scale_and_offset():
    rng = np.random.default_rng(0)
    critic = TRPO(made_policy(), rng).critic
    rows = rng.normal(size=(800, 5))
    inputs = torch.from_numpy(rows).float()
    for scale, offset in ((1.0, 0.0), (1e6, -1e8), (-1e-6, 0.5)):
        targets = offset + scale * (np.sin(2.0 * rows[:, 0]) + rows[:, 1] * rows[:, 2])
        for _ in range(6):
            critic = critic.fit(inputs, critic.values(inputs), targets, TRPOConfig())
        assert np.mean((critic.values(inputs) - targets) ** 2) < 0.05 * np.var(targets)


def test_no_fit_makes_the_critic_worse():
    # Hardly any damping and few rows: such Gauss-Newton steps often overshoot.
    config = TRPOConfig(critic_damping=1e-6, critic_cg_iterations=40, critic_rounds=1)
    rng = np.random.default_rng(0)
    critic = TRPO(made_policy(), rng).critic
    inputs = torch.from_numpy(3.0 * rng.normal(size=(40, 5))).float()
    for _ in range(20):
        targets = rng.normal(size=40)
        critic = critic.fit(inputs, critic.values(inputs), targets, config)
        assert np.mean((critic.values(inputs) - targets) ** 2) < 1.0001 * np.var(targets)


def test_a_new_offset_and_scale_of_the_value_cost_no_learning():
    rng = np.random.default_rng(0)
    critic = TRPO(made_policy(dtype=torch.float64), rng).critic
    inputs = torch.from_numpy(rng.normal(size=(100, 5)))
    values = critic.values(inputs)
    at_once = critic.fit(inputs, values, 500.0 - 30.0 * values, TRPOConfig(critic_rounds=0))
    np.testing.assert_allclose(at_once.values(inputs), 500.0 - 30.0 * values, rtol=1e-12)


def test_the_critic_of_targets_that_never_differ_is_that_constant():
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.normal(size=(50, 5))).float()
    critic = TRPO(made_policy(), rng).critic
    for _ in range(2):  # the second time its values do not differ either
        critic = critic.fit(inputs, critic.values(inputs), np.full(50, -7.0), TRPOConfig())
        np.testing.assert_allclose(critic.values(inputs), -7.0, atol=1e-6)


# ---------------------------------------------------------------- the whole


def learned(seed: int, iterations: int, dtype: torch.dtype = torch.float32) -> tuple[list[float], TRPO]:
    rng = np.random.default_rng(seed)
    trpo = TRPO(made_policy(seed, dtype, hidden=(32, 32)), rng, TRPOConfig(critic_hidden=(32, 32)))
    generator: Generator = trpo
    returns = []
    for _ in range(iterations):
        drawn = generator.rollout(point_mass(), 32, 40, rng)
        rewards = minus_distance(drawn)
        returns.append(float(rewards.sum(axis=1).mean()))
        generator.improve(drawn, rewards)
    return returns, trpo


def test_a_point_mass_learns_to_go_to_its_goal():
    # The goal can be reached with the first step and held, so the best return is 0.
    returns, trpo = learned(seed=0, iterations=50)
    assert returns[-1] > 0.03 * returns[0]
    here = np.array([[-500.0, 400.0, -500.0, 400.0, 0.0], [*GOAL, 0.0, 0.0, 600.0]])
    with torch.no_grad():
        arrived = here[:, :2] + 30.0 * trpo.policy.mean(here).numpy()
    assert (np.linalg.norm(arrived - GOAL, axis=1) < [300.0, 60.0]).all()


def test_a_choice_among_four_ways_leads_to_the_goal():
    rng = np.random.default_rng(0)
    trpo = TRPO(made_choice(hidden=(32, 32)), rng, TRPOConfig(critic_hidden=(32, 32)))
    returns, entropies = [], []
    for _ in range(50):
        drawn = trpo.rollout(four_ways(), 32, 40, rng)
        returns.append(float(minus_distance(drawn).sum(axis=1).mean()))
        entropies.append(trpo.improve(drawn, minus_distance(drawn)).entropy)
    assert entropies[0] == pytest.approx(np.log(4), abs=0.05)
    assert returns[-1] > 0.25 * returns[0]  # a stride is 300 metres, and the way there takes time
    with torch.no_grad():
        east = trpo.policy.log_prob([[-900.0, GOAL[1], -900.0, GOAL[1], 0.0]], np.eye(4, dtype=bool)[:1]).exp()
    assert east > 0.9


@pytest.mark.parametrize("reward", [[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, -1.0, 0.0]])
def test_the_soft_return_of_a_choice_has_its_known_optimum(reward):
    """In a single step, maximising r - log pi gives pi proportional to exp r (maximum entropy)."""
    rng = np.random.default_rng(0)
    trpo = TRPO(scattered(made_choice(hidden=(8,)), size=0.1), rng, TRPOConfig(bootstrap=False))
    for _ in range(80):
        drawn = trpo.rollout(four_ways(), 400, 1, rng)
        trpo.improve(drawn, (drawn.actions @ np.array(reward)) - drawn.log_prob)
    states = drawn.states[:, 0]
    with torch.no_grad():
        found = distribution(trpo.policy, states).probs.numpy()
    best = np.exp(reward) / np.exp(reward).sum()
    assert (best * np.log(best / found)).sum(axis=1).mean() < 0.01


def test_the_policy_fits_the_kind_of_the_actions():
    rng = np.random.default_rng(0)
    states, chosen = rng.normal(size=(9, 2)), np.eye(3, dtype=bool)[[0, 1, 2] * 3]
    assert isinstance(policy_for(states, chosen, rng), CategoricalPolicy)
    assert isinstance(policy_for(states, chosen.astype(float), rng), GaussianPolicy)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_generator_gives_the_same_parameters_bit_for_bit(dtype):
    one, two, other = (learned(seed, 3, dtype)[1] for seed in (5, 5, 6))
    assert one.policy.theta.dtype == dtype
    assert parameters(one) == parameters(two)
    assert parameters(one) != parameters(other)


def test_torchs_own_random_state_is_neither_used_nor_changed():
    torch.manual_seed(1)
    one = parameters(learned(0, 2)[1])
    state = torch.get_rng_state()
    torch.manual_seed(2)
    two = parameters(learned(0, 2)[1])
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)
    assert one == two
