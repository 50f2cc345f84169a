"""Learning: the same seed gives the same model, heads disagree where nothing was seen, errors change nothing."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from astray import Trajectories, simulate
from astray.core.errors import DataError, TrainingError
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.irl.demonstrations import held_out
from astray.irl.dynamics import LearnedDynamics
from astray.irl.gps_demonstrator import GpsDemonstrator
from astray.irl.kdd19 import KDD19
from astray.irl.learn_config import TRIPS, LearnConfig, RewardConfig, explorers_of
from astray.irl.policy import Improvement, Rollout
from astray.irl.step_demonstrator import StepDemonstrator
from astray.irl.trainer import Learned, bootstrap_agents, learn_agent_reward, learn_shared_reward

torch.set_num_threads(1)

CHANCE = 2 * np.log(2.0)  # the loss of a reward that tells nothing apart
QUICK = LearnConfig(iterations=6, updates=15, rollouts=16, horizon=20, imagined=150, clone_updates=30)


def world_of(trips: Trajectories, seed: int = 0, **featurizer: object) -> GpsDemonstrator:
    rng = np.random.default_rng(seed)
    return GpsDemonstrator.of(trips, Featurizer.of(trips, FeaturizerConfig(**featurizer), rng))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    return simulate.city(people=3, days=21, seed=5).trips


@pytest.fixture(scope="module")
def mine(trips: Trajectories) -> Trajectories:
    return trips.agent(trips.agents[0])


@pytest.fixture(scope="module")
def learned(trips: Trajectories, mine: Trajectories) -> Learned:
    others = trips.without(trips.agents[0])
    return learn_agent_reward(world_of(mine), QUICK, np.random.default_rng(0), population=others)


@pytest.fixture(scope="module")
def half_learned(trips: Trajectories, mine: Trajectories) -> Learned:
    """The reward of the first half of the trips, from which learning continues."""
    others = trips.without(trips.agents[0])
    return learn_agent_reward(world_of(mine[: len(mine) // 2]), QUICK, np.random.default_rng(0), population=others)


def test_the_same_seed_gives_the_same_model_bit_for_bit(mine: Trajectories, trips: Trajectories, learned: Learned):
    again = learn_agent_reward(
        world_of(mine), QUICK, np.random.default_rng(0), population=trips.without(trips.agents[0])
    )
    for (w1, b1), (w2, b2) in zip(learned.posterior.layers, again.posterior.layers, strict=True):
        np.testing.assert_array_equal(w1, w2)
        np.testing.assert_array_equal(b1, b2)
    assert learned.history.equals(again.history)


def test_the_history_has_one_row_for_each_iteration_with_all_measures(learned: Learned):
    history = learned.history
    wanted = {
        "iteration",
        "loss",
        "reward_gap",
        "effective_sample_size",
        "kl",
        "entropy",
        "head_spread",
        "held_out_loss",
    }
    assert wanted <= set(history.columns)
    assert len(history) <= QUICK.iterations
    assert history["kl"].max() <= QUICK.policy.max_kl * 1.01
    assert history["reward_gap"][-1] > history["reward_gap"][0]


def test_held_out_demonstrations_get_more_reward_than_other_peoples_trips(
    learned: Learned, mine: Trajectories, trips: Trajectories
):
    world = world_of(mine)
    rows = world.demonstrations()
    own = learned.posterior(rows.features[learned.unseen.all(axis=1)[rows.trip]]).mean()
    other = learned.posterior(world.others(trips.without(trips.agents[0])).features).mean()
    assert own > other + 1.0


@pytest.mark.parametrize("reward", [RewardConfig(), RewardConfig(random_prior=1.0), RewardConfig(heads=1, networks=10)])
def test_heads_disagree_far_from_the_training_data(reward: RewardConfig):
    """Demonstrations lie on a line in a plane; at a distance the spread over the heads is at least twice as large."""
    rng = np.random.default_rng(0)
    states = [np.column_stack([np.linspace(-1, 1, 40), rng.normal(0, 0.1, 40)]) for _ in range(40)]
    actions = [rng.normal(0, 0.3, (40, 1)) for _ in range(40)]
    trajectories = Trajectories.from_steps(states, actions)
    dynamics = LearnedDynamics.fit(trajectories, rng)
    world = StepDemonstrator.of(trajectories, dynamics, rng, waves=0)
    config = replace(QUICK, reward=reward, rollouts=0, explorers=("exchange",), iterations=6, held_out=0.0)
    result = learn_agent_reward(world, config, rng)
    near = result.posterior(world.demonstrations().features).std(axis=2).mean()
    far = rng.normal(size=(500, 2)) * 0.3 + np.array([6.0, 6.0]) * rng.choice([-1, 1], (500, 2))
    away = result.posterior(world.encode(far, rng.normal(0, 0.3, (500, 1)))).std(axis=2).mean()
    assert away > 2.0 * near


def test_the_trajectory_objective_separates_own_trips_from_others(mine: Trajectories, trips: Trajectories):
    others = trips.without(trips.agents[0])
    config = replace(QUICK, objective="trajectory", rollouts=0, iterations=4, batch_paths=16)
    world = world_of(mine)
    result = learn_agent_reward(world, config, np.random.default_rng(0), population=others)
    rows = world.demonstrations()
    own = result.posterior(rows.features[result.unseen.all(axis=1)[rows.trip]])[:, 0].mean(axis=1)
    other = result.posterior(world.others(others).features)[:, 0].mean(axis=1)
    assert own.mean() - other.mean() > 0.5 * np.hypot(own.std(), other.std())


def test_the_settings_of_the_paper_run_and_their_importance_weights_collapse(mine: Trajectories):
    config = replace(KDD19, iterations=3, updates=5, rollouts=16, horizon=30)
    result = learn_agent_reward(world_of(mine, encoder="raw"), config, np.random.default_rng(0))
    assert result.posterior.n_heads == 10
    assert 0.0 < result.history["effective_sample_size"].min() < 0.5


@pytest.mark.parametrize(("heads", "networks"), [(4, 1), (2, 3)])
def test_unseen_marks_the_trips_that_each_head_has_not_learned_from(mine: Trajectories, heads: int, networks: int):
    config = replace(QUICK, iterations=1, updates=1, imagined=30, reward=RewardConfig(heads=heads, networks=networks))
    unseen = learn_agent_reward(world_of(mine), config, np.random.default_rng(0)).unseen
    assert unseen.shape == (len(mine), heads * networks)
    held_out = unseen.all(axis=1)
    assert 0.1 < held_out.mean() < 0.35
    # A bootstrap leaves 1/e of the trips out.
    assert unseen[~held_out].mean() == pytest.approx(np.exp(-1), abs=0.12)


def test_an_update_holds_out_what_was_held_out_before(mine: Trajectories, half_learned: Learned):
    half = len(mine) // 2
    once = replace(QUICK, iterations=1, updates=1)
    later = learn_agent_reward(world_of(mine), once, np.random.default_rng(8), start=half_learned)
    held_out = half_learned.unseen.all(axis=1)
    assert (later.unseen[:half].all(axis=1) == held_out).all()
    assert not later.unseen[:half][~held_out].any(), "what the earlier reward has learned from is not unseen"


def test_a_loss_that_is_not_finite_raises_a_training_error_and_changes_nothing(mine: Trajectories, learned: Learned):
    world = world_of(mine)
    before = copy.deepcopy(learned.reward.state_dict())
    broken = replace(QUICK, learning_rate=1e30)
    with pytest.raises(TrainingError, match="learning_rate"):
        learn_agent_reward(world, broken, np.random.default_rng(0), start=learned)
    for name, value in learned.reward.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_continued_learning_keeps_the_reward_the_background_and_the_memory(mine: Trajectories, half_learned: Learned):
    first, earlier = half_learned, world_of(mine[: len(mine) // 2]).featurizer
    world = GpsDemonstrator.of(mine, earlier)
    assert set(earlier.memory.trip_ids) < set(world.featurizer.memory.trip_ids)
    once = replace(QUICK, iterations=1, updates=1)
    later = learn_agent_reward(world, once, np.random.default_rng(1), start=first)
    assert len(later.backgrounds["place"].rows["population"]) == len(first.backgrounds["place"].rows["population"])
    assert len(later.backgrounds["place"].rows["policy"]) >= len(first.backgrounds["place"].rows["policy"])
    # It goes on where it was: one small step does not undo what was learned.
    assert later.history["held_out_loss"][0] < (first.history["held_out_loss"][-1] + CHANCE) / 2


def test_a_shared_reward_also_serves_an_agent_that_it_was_not_learned_from(trips: Trajectories):
    agents = trips.agents
    worlds = [world_of(trips.agent(a)) for a in agents[:2]]
    result = learn_shared_reward(worlds, QUICK, np.random.default_rng(0), others=[trips.without(a) for a in agents[:2]])
    assert result.generator is None
    # The third agent was never seen: its own left-out trips still stand above other people's.
    world = world_of(trips.agent(agents[2]))
    own = result.posterior(world.demonstrations().features).mean()
    other = result.posterior(world.others(trips.agent(agents[0])).features).mean()
    assert own > other + 0.3


def test_progress_is_called_after_every_iteration(mine: Trajectories):
    seen: list[tuple[int, int]] = []
    config = replace(QUICK, iterations=3, updates=2, imagined=30, rollouts=0)
    learn_agent_reward(world_of(mine), config, np.random.default_rng(0), progress=lambda i, n, _: seen.append((i, n)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


class StandStill:
    """A generator that never moves, and counts how often it was asked to improve."""

    def __init__(self) -> None:
        self.improved = 0

    def rollout(self, dynamics, n, horizon, rng, lengths=None):
        states = dynamics.reset(n, rng)
        actions = np.zeros((n, 1, 2))
        after, _ = dynamics.step(states, actions[:, 0], rng)
        return Rollout(
            states[:, None], actions, np.zeros((n, 1)), np.ones((n, 1), bool), after[:, None], np.zeros(n, bool)
        )

    def improve(self, rollout, rewards):
        self.improved += 1
        return Improvement(0.0, 0.0, 0.0, 0.0, 0, False)

    def log_prob(self, states, actions):
        return np.zeros(len(states))


def test_another_generator_can_replace_trpo(mine: Trajectories):
    generator = StandStill()
    config = replace(QUICK, iterations=2, updates=2, imagined=30)
    result = learn_agent_reward(world_of(mine), config, np.random.default_rng(0), generator=generator)
    assert generator.improved == 2
    assert result.generator is generator
    assert len(result.backgrounds["place"].rows["policy"]) == 2 * config.rollouts


def line(n: int, seed: int = 0, trip: str = "t", spacing: float = 10.0) -> Trajectories:
    rng = np.random.default_rng(seed)
    lat = 45 + 1e-4 * np.arange(n) + rng.normal(0, 1e-5, n)
    return Trajectories.from_fixes(
        time=spacing * np.arange(n), lat=lat, lon=np.full(n, 7.0), agent="a", trajectory=trip
    )


@pytest.mark.parametrize(
    "demonstrations",
    [
        pytest.param(line(100), id="one trajectory"),
        pytest.param(line(2), id="two fixes"),
        pytest.param(
            Trajectories.concat([line(100), *(line(1, 0, f"t{i}") for i in range(30))]),
            id="one beside thirty of one fix",
        ),
        pytest.param(Trajectories.concat([line(100, 0, f"t{i}") for i in range(10)]), id="all identical"),
        pytest.param(
            Trajectories.from_fixes(
                time=np.tile(np.arange(100) * 10.0, 5),
                lat=np.full(500, 45.0),
                lon=np.full(500, 7.0),
                trajectory=np.repeat([f"t{i}" for i in range(5)], 100),
            ),
            id="never moves",
        ),
        pytest.param(
            Trajectories.concat([line(60_000, 0, "long"), *(line(100, i, f"t{i}") for i in range(40))]),
            id="one of 60,000 fixes beside forty of 100",
        ),
    ],
)
def test_learning_from_degenerate_training_sets_gives_finite_rewards(demonstrations: Trajectories):
    config = replace(QUICK, iterations=2, updates=5, imagined=30)
    result = learn_agent_reward(world_of(demonstrations), config, np.random.default_rng(0))
    assert np.isfinite(result.posterior(world_of(demonstrations).demonstrations().features)).all()


def test_a_very_long_trip_is_drawn_as_often_as_a_short_one():
    trips = Trajectories.concat([line(20_000, 0, "long"), *(line(100, i, f"t{i}") for i in range(9))])
    rows = world_of(trips).demonstrations()
    drawn = rows.draw(20_000, np.random.default_rng(0))
    assert np.bincount(rows.trip[drawn]) / 20_000 == pytest.approx(np.full(10, 0.1), abs=0.01)
    of_the_long_one = drawn[rows.trip[drawn] == 0]
    assert of_the_long_one.mean() == pytest.approx(np.flatnonzero(rows.trip == 0).mean(), rel=0.05)


def test_a_trip_of_one_fix_raises_an_error():
    with pytest.raises(DataError, match="two usable fixes"):
        world_of(line(1))


def test_trips_of_one_agent_are_bootstrapped_and_held_out_together() -> None:
    whose = np.array(["ann"] * 30 + ["bob"] * 30 + ["ann"] * 30 + ["cat"] * 30)
    drawn = bootstrap_agents(whose, 200, np.random.default_rng(0))
    ann, bob, cat = (drawn[whose == name].sum(axis=0) for name in ("ann", "bob", "cat"))
    for of_one in (ann, bob, cat):  # one head in e draws nothing of somebody at all
        assert 0.2 < (of_one == 0).mean() < 0.5
    halves = [drawn[:30].sum(axis=0) == 0, drawn[60:90].sum(axis=0) == 0]
    np.testing.assert_array_equal(*halves)
    spared = held_out(whose.tolist(), np.arange(len(whose)), 0.3)
    left = {name: np.isin(np.flatnonzero(whose == name), spared) for name in ("ann", "bob", "cat")}
    assert all(one.all() or not one.any() for one in left.values())
    assert 1 <= sum(one.all() for one in left.values()) <= 2


def test_the_aspect_of_place_has_no_counterfactuals_in_the_shared_reward() -> None:
    aspects = explorers_of(TRIPS)
    assert aspects["place"] == ()
    assert all(aspects[name] for name in ("route", "manner", "time"))
