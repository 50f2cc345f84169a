"""The worlds a policy acts in: exact where they are known, bounded where they are learned."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from astray.core.errors import DataError
from astray.core.trajectories import Trajectories
from astray.features.normal_scores import NormalScores, StepScores
from astray.irl.dynamics import GymDynamics, Integrator, LearnedDynamics, ScoredIntegrator, standard_scale


def pendulum(n: int, steps: int = 200, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> Any:
    return gymnasium.make_vec(
        "Pendulum-v1",
        n,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        max_episode_steps=steps,
    )


def walk(world: Any, n: int, steps: int, rng: np.random.Generator, torque: float = 1.2) -> tuple[Any, Any, Any]:
    """States (steps + 1, n, d), actions and who is alive after each step, under random torques."""
    states, actions, alive = [world.reset(n, rng)], [], []
    for _ in range(steps):
        actions.append(rng.normal(0.0, torque, (n, 1)))
        following, living = world.step(states[-1], actions[-1], rng)
        states.append(following)
        alive.append(living)
    return np.stack(states), np.stack(actions), np.stack(alive)


# ---------------------------------------------------------------- on the earth


def test_constant_velocity_moves_in_a_straight_line_and_context_stays():
    rng = np.random.default_rng(0)
    start = np.array([[100.0, -50.0, 10.0, 20.0, 60.0, 7.0, 8.0]])
    world = Integrator(start, interval=15.0)
    states = world.reset(3, rng)
    before = states.copy()
    for _ in range(10):
        states, alive = world.step(states, np.tile([2.0, -1.0], (3, 1)), rng)
        assert alive.all()
    expected = [100.0 + 2.0 * 150.0, -50.0 - 150.0, 10.0, 20.0, 60.0 + 150.0, 7.0, 8.0]
    np.testing.assert_array_equal(states, np.tile(expected, (3, 1)))
    np.testing.assert_array_equal(before, np.tile(start, (3, 1)))  # a step changes nobody's array
    np.testing.assert_array_equal(world.starts, start)


def test_resets_are_uniform_over_the_starts():
    starts = np.zeros((4, 5))
    starts[:, 0] = np.arange(4)
    drawn = Integrator(starts, 1.0).reset(4000, np.random.default_rng(0))[:, 0].astype(int)
    counts = np.bincount(drawn, minlength=4)
    assert np.abs(counts - 1000).max() < 4 * np.sqrt(4000 * 0.25 * 0.75)


@pytest.mark.parametrize(
    ("starts", "interval", "said"),
    [
        (np.zeros((3, 4)), 1.0, "shape"),
        (np.zeros((0, 5)), 1.0, "shape"),
        ([[0.0, 0.0, 0.0, np.nan, 0.0]], 1.0, "row 0"),
        (np.zeros((1, 5)), 0.0, "interval"),
        (np.zeros((1, 5)), np.nan, "interval"),
    ],
)
def test_impossible_starts_and_intervals_are_refused(starts, interval, said):
    with pytest.raises(DataError, match=said):
        Integrator(starts, interval)


# ---------------------------------------------------------------- Gymnasium


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_no_state_of_the_next_episode_leaks_whatever_the_autoreset_mode(mode):
    steps, limit = 14, 5  # the environment would begin a second and a third episode
    world = GymDynamics(lambda n: pendulum(n, limit, mode))
    states, actions, alive = walk(world, 3, steps, np.random.default_rng(7))
    assert alive[: limit - 1].all()
    assert not alive[limit - 1 :].any()
    assert (states[limit:] == states[limit]).all()  # an ended trajectory stays where it ended

    # The same episodes, one plain environment at a time.
    seed = int(np.random.default_rng(7).integers(2**31))
    for i in range(3):
        plain = gymnasium.make("Pendulum-v1")
        observation, _ = plain.reset(seed=seed + i)
        np.testing.assert_array_equal(states[0, i], observation)
        for t in range(limit):
            observation, *_ = plain.step(np.clip(actions[t, i], -2.0, 2.0).astype(np.float32))
            np.testing.assert_array_equal(states[t + 1, i], observation)


def test_slots_may_end_at_different_times():
    class Countdown(gymnasium.Env[np.ndarray, np.ndarray]):
        observation_space = gymnasium.spaces.Box(-100.0, 100.0, (1,))
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

        def __init__(self, lives: int) -> None:
            self.lives = lives

        def reset(self, *, seed=None, options=None):
            self.t = 0
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.t += 1
            return np.full(1, self.t, np.float32), 0.0, self.t == self.lives, False, {}

    env = gymnasium.vector.SyncVectorEnv([lambda k=k: Countdown(k) for k in (1, 3, 9)])
    states, _, alive = walk(GymDynamics(env), 3, 6, np.random.default_rng(0))
    assert states[:, :, 0].T.tolist() == [[0, 1, 1, 1, 1, 1, 1], [0, 1, 2, 3, 3, 3, 3], [0, 1, 2, 3, 4, 5, 6]]
    assert alive.sum(axis=0).tolist() == [0, 2, 6]


def test_actions_are_clipped_inside_the_environment_only():
    world = GymDynamics(pendulum)
    given = np.array([[50.0], [-50.0]])
    wild, _ = world.step(world.reset(2, np.random.default_rng(1)), given, np.random.default_rng(2))
    tame, _ = world.step(world.reset(2, np.random.default_rng(1)), np.array([[2.0], [-2.0]]), np.random.default_rng(2))
    np.testing.assert_array_equal(wild, tame)
    assert given.tolist() == [[50.0], [-50.0]]


def test_the_generator_decides_the_episodes():
    def path(seed: int) -> np.ndarray:
        return walk(GymDynamics(pendulum), 4, 10, np.random.default_rng(seed))[0]

    np.testing.assert_array_equal(path(3), path(3))
    assert (path(3) != path(4)).any()


def test_a_factory_serves_any_number_and_an_environment_its_own():
    rng = np.random.default_rng(0)
    world = GymDynamics(pendulum)
    assert world.reset(2, rng).shape == (2, 3)
    assert world.reset(5, rng).shape == (5, 3)
    world.close()
    single = GymDynamics(pendulum(4))
    with pytest.raises(DataError, match="call reset"):
        single.step(np.zeros((4, 3)), np.zeros((4, 1)), rng)
    assert single.reset(4, rng).shape == (4, 3)
    with pytest.raises(DataError, match="5 trajectories are wanted, but the environment has 4 copies"):
        single.reset(5, rng)


def cartpole(n: int) -> Any:
    return gymnasium.make_vec("CartPole-v1", n, vectorization_mode="sync")


def test_a_discrete_action_is_that_of_the_environment():
    rng, actions = np.random.default_rng(7), np.random.default_rng(1).integers(0, 2, (6, 3))
    world = GymDynamics(cartpole)
    states = [world.reset(3, rng)]
    for chosen in actions:
        following, _ = world.step(states[-1], np.eye(2, dtype=bool)[chosen], rng)
        states.append(following)
    seed = int(np.random.default_rng(7).integers(2**31))
    for i in range(3):
        plain = gymnasium.make("CartPole-v1")
        observation, _ = plain.reset(seed=seed + i)
        for t, chosen in enumerate(actions[:, i]):
            np.testing.assert_array_equal(states[t][i], observation)
            observation, *_ = plain.step(chosen)


def test_discrete_actions_count_from_the_start_of_their_space():
    class Echo(gymnasium.Env[np.ndarray, int]):
        observation_space = gymnasium.spaces.Box(-100.0, 100.0, (1,))
        action_space = gymnasium.spaces.Discrete(3, start=-1)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.full(1, action, np.float32), 0.0, False, False, {}

    world = GymDynamics(gymnasium.vector.SyncVectorEnv([Echo] * 3))
    states, _ = world.step(world.reset(3, np.random.default_rng(0)), np.eye(3, dtype=bool), np.random.default_rng(0))
    assert states[:, 0].tolist() == [-1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("env", "actions", "said"),
    [
        (cartpole, np.zeros((2, 1)), "Discrete.2., but the actions are float64 .*give n_actions=2"),
        (cartpole, np.eye(3, dtype=bool)[:2], "give n_actions=2"),
        (pendulum, np.eye(3, dtype=bool)[:2], "leave n_actions of from_steps out"),
    ],
)
def test_actions_of_another_kind_than_the_environments_are_refused(env, actions, said):
    world, rng = GymDynamics(env), np.random.default_rng(0)
    with pytest.raises(DataError, match=said):
        world.step(world.reset(2, rng), actions, rng)


def test_an_environment_with_other_spaces_is_refused():
    class Keys(gymnasium.Env[np.ndarray, np.ndarray]):
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
        action_space = gymnasium.spaces.MultiBinary(2)

    world = GymDynamics(gymnasium.vector.SyncVectorEnv([Keys]))
    with pytest.raises(DataError, match=r"action space is MultiBinary\(2\)"):
        world.reset(1, np.random.default_rng(0))


def test_dynamics_load_neither_gymnasium_nor_torch():
    code = "import sys, astray.irl.dynamics; print([m for m in ('torch', 'gymnasium') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


# ---------------------------------------------------------------- learned


def demonstrations(n: int, seed: int) -> Trajectories:
    states, actions, _ = walk(GymDynamics(pendulum), n, 199, np.random.default_rng(seed))
    return Trajectories.from_steps(list(states[:-1].swapaxes(0, 1)), list(actions.swapaxes(0, 1)))


@pytest.fixture(scope="module")
def learned_pendulum() -> LearnedDynamics:
    return LearnedDynamics.fit(demonstrations(20, seed=0), np.random.default_rng(0))


def test_learned_pendulum_predicts_the_next_state(learned_pendulum):
    fresh = demonstrations(10, seed=1)
    states, actions = fresh.columns["state"], fresh.columns["action"]
    before = np.setdiff1d(np.arange(fresh.n_rows), fresh.offsets[1:] - 1)
    true = states[before + 1] - states[before]
    error = learned_pendulum.predict(states[before], actions[before]) - states[before + 1]
    r2 = 1.0 - (error**2).sum(axis=0) / ((true - true.mean(axis=0)) ** 2).sum(axis=0)
    assert (r2 > [0.999, 0.999, 0.99]).all()


def test_learned_dynamics_know_what_a_discrete_action_does():
    rng, plant = np.random.default_rng(0), GymDynamics(cartpole)
    states, chosen = [plant.reset(50, rng)], []
    for _ in range(8):
        chosen.append(rng.integers(0, 2, 50))
        states.append(plant.step(states[-1], np.eye(2, dtype=bool)[chosen[-1]], rng)[0])
    runs = Trajectories.from_steps(list(np.stack(states[:-1], 1)), list(np.stack(chosen, 1)), n_actions=2)
    learned = LearnedDynamics.fit(runs, rng)
    here = states[4][:10]
    for k in range(2):
        action = np.eye(2, dtype=bool)[np.full(10, k)]
        pushed = here[:, 1] + (1, -1)[k == 0] * 0.195  # 10 N for 0.02 s on about 1 kg
        np.testing.assert_allclose(learned.predict(here, action)[:, 1], pushed, atol=0.02)


def test_learned_rollouts_stay_bounded_under_wild_actions(learned_pendulum):
    rng = np.random.default_rng(2)
    states, _, alive = walk(learned_pendulum, 32, 500, rng, torque=100.0)
    assert alive.all()
    assert np.isfinite(states).all()
    assert np.abs(states[..., :2]).max() < 1.3  # cosine and sine, and a margin of a tenth of their range
    assert np.abs(states[..., 2]).max() < 8.0 * 1.3


def test_a_learned_world_that_grows_is_stopped_at_the_margin():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(30, 1, 1))
    states = first * 1.2 ** np.arange(10)[None, :, None]  # s' = 1.2 s
    world = LearnedDynamics.fit(Trajectories.from_steps(list(states), list(np.zeros((30, 10, 1)))), rng, margin=0.5)
    far, _, _ = walk(world, 16, 100, rng)
    low, high, reach = states.min(), states.max(), 0.5 * np.ptp(states)
    assert far.min() >= low - reach
    assert far.max() <= high + reach
    assert np.abs(far[-1]).max() > high  # it did grow


def test_actions_beyond_the_demonstrated_range_count_as_the_nearest(learned_pendulum):
    states = learned_pendulum.reset(4, np.random.default_rng(0))
    limit = learned_pendulum.upper[3]
    np.testing.assert_array_equal(
        learned_pendulum.predict(states, np.full((4, 1), 1e6)),
        learned_pendulum.predict(states, np.full((4, 1), limit)),
    )


def test_learned_resets_are_first_states_of_demonstrations(learned_pendulum):
    demos = demonstrations(20, seed=0)
    firsts = {tuple(row) for row in demos.columns["state"][demos.offsets[:-1]]}
    assert {tuple(row) for row in learned_pendulum.reset(50, np.random.default_rng(0))} <= firsts


def test_learned_noise_has_the_covariance_of_the_world():
    rng = np.random.default_rng(0)
    root = np.array([[0.3, 0.0], [0.2, 0.1]])
    states, actions = [np.zeros((50, 2))], []
    for _ in range(100):
        actions.append(rng.normal(size=(50, 1)))
        states.append(0.9 * states[-1] + actions[-1] * [0.0, 0.5] + rng.normal(size=(50, 2)) @ root.T)
    demos = Trajectories.from_steps(list(np.stack(states[:-1], 1)), list(np.stack(actions, 1)))
    world = LearnedDynamics.fit(demos, rng)
    here, push = np.tile([0.2, -0.1], (20_000, 1)), np.full((20_000, 1), 0.4)
    drawn, _ = world.step(here, push, rng)
    np.testing.assert_allclose(drawn.mean(axis=0), [0.18, 0.11], atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T), root @ root.T, atol=0.006)


def test_columns_that_do_not_change_are_carried_along_exactly():
    rng = np.random.default_rng(0)
    context = rng.normal(size=(30, 1, 1)) * np.ones((30, 20, 1))
    clock = np.tile(np.arange(20.0)[None, :, None], (30, 1, 1))
    demos = Trajectories.from_steps(
        list(np.concatenate([rng.normal(size=(30, 20, 1)), context, clock], axis=2)),
        list(rng.normal(size=(30, 20, 1))),
    )
    world = LearnedDynamics.fit(demos, rng)
    states = world.reset(8, rng)
    following, _ = world.step(states, np.zeros((8, 1)), rng)
    np.testing.assert_allclose(following[:, 1], states[:, 1], atol=1e-12)
    np.testing.assert_allclose(following[:, 2], states[:, 2] + 1.0, atol=1e-12)


def test_fitting_says_what_is_missing():
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="1 transitions are too few"):
        LearnedDynamics.fit(Trajectories.from_steps([np.zeros((2, 1))], [np.zeros((2, 1))]), rng)
    fixes = Trajectories.from_fixes(time=[0, 1], lat=[0, 0], lon=[0, 0])
    with pytest.raises(DataError, match="column 'state'"):
        LearnedDynamics.fit(fixes, rng)


def test_the_same_generator_fits_the_same_world():
    demos = demonstrations(3, seed=5)
    states, actions = demos.columns["state"], demos.columns["action"]
    one, two = (LearnedDynamics.fit(demos, np.random.default_rng(9)) for _ in range(2))
    np.testing.assert_array_equal(one.predict(states, actions), two.predict(states, actions))


def test_scale_of_a_constant_column_is_one():
    assert standard_scale(np.array([[1.0, 5e8, 0.0], [3.0, 5e8, 0.0]])).tolist() == [1.0, 1.0, 1.0]


# ---------------------------------------------------------------- GPS trips in normal scores


def scored_integrator() -> tuple[ScoredIntegrator, StepScores]:
    rng = np.random.default_rng(0)
    places, clock = 800.0 * rng.standard_normal((500, 2)), 600.0 * rng.random((500, 1))
    scores = StepScores(*(NormalScores.fit(part) for part in (places, clock, 5.0 * rng.standard_normal((500, 2)))))
    starts = np.zeros((3, 5))
    starts[:, :2] = starts[:, 2:4] = [[0.0, 0.0], [900.0, -500.0], [-300.0, 200.0]]
    return ScoredIntegrator(Integrator(starts, 60.0), scores), scores


def test_trajectories_in_scores_move_as_those_in_metres_do():
    dynamics, scores = scored_integrator()
    rng = np.random.default_rng(1)
    first = dynamics.reset(40, rng)
    before = dynamics.metres.copy()
    np.testing.assert_allclose(scores.metres_and_seconds(first), before, atol=1e-6)
    assert np.array_equal(before[:, :2], before[:, 2:4])  # a trip begins at its start
    velocity = rng.normal(size=(40, 2))
    after, alive = dynamics.step(first, scores.velocity(velocity), rng)
    assert alive.all()
    np.testing.assert_allclose(dynamics.metres[:, :2], before[:, :2] + 60.0 * velocity, atol=1e-6)
    np.testing.assert_allclose(dynamics.metres[:, 4], before[:, 4] + 60.0)
    np.testing.assert_allclose(after, scores.states(dynamics.metres))


def test_the_density_of_starts_is_that_of_the_starts_that_are_drawn():
    dynamics, _ = scored_integrator()
    axis = np.linspace(-14.0, 14.0, 281)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    density = np.exp(dynamics.log_start(np.hstack([grid, grid, np.zeros((len(grid), 1))])))
    assert density.sum() * (axis[1] - axis[0]) ** 2 == pytest.approx(1.0, abs=5e-3)
    drawn = dynamics.reset(20_000, np.random.default_rng(2))[:, :2]
    for low, high in (((-1.0, -1.0), (0.5, 0.5)), ((0.5, -2.0), (2.0, 0.0)), ((2.0, 2.0), (9.0, 9.0))):
        inside = ((grid >= low) & (grid < high)).all(axis=1)
        expected = density[inside].sum() * (axis[1] - axis[0]) ** 2
        assert ((drawn >= low) & (drawn < high)).all(axis=1).mean() == pytest.approx(expected, abs=0.02)
