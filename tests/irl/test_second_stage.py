"""The second stage of the trip reward: exact in the network, learned by logistic regression, kept if it helps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from astray.irl.posterior import RewardPosterior
from astray.irl.second_stage import (
    Compared,
    SecondStage,
    add_linear,
    is_better,
    learn_second_stage,
    measure_held_out,
    ridge_logistic,
    standardised,
)
from astray.model.pretrained import pretrained


def shipped() -> RewardPosterior:
    trip = pretrained().trip
    assert trip is not None
    return trip


def trips_of(agents: int, truth: np.ndarray, seed: int = 0, each: int = 60) -> Compared:
    """Returns trips that are the agent's own by the place reward plus a linear function of the statistics."""
    rng, reward = np.random.default_rng(seed), shipped()
    n = agents * each
    statistics = (reward.mean + reward.scale * rng.normal(size=(n, len(reward.mean)))).astype(np.float32)
    logit = reward(statistics)[:, 0].mean(axis=1) + standardised(reward, statistics) @ truth
    made = logit + rng.logistic(size=n) > np.median(logit)
    who = np.repeat([f"p{i:02}" for i in range(agents)], each)
    return Compared(statistics, made, who, np.where(made, who, "somebody"))


def skewed() -> np.ndarray:
    truth = np.zeros(len(shipped().mean))
    truth[:6] = [1.0, -1.0, 1.0, -1.0, 1.0, -1.0]
    return truth


class TestNetwork:
    def test_the_new_reward_is_the_old_one_plus_the_linear_function(self) -> None:
        reward, rng = shipped(), np.random.default_rng(1)
        stage = SecondStage(rng.normal(size=(reward.n_heads, len(reward.mean))), rng.normal(size=reward.n_heads))
        statistics = (reward.mean + 3 * reward.scale * rng.normal(size=(200, len(reward.mean)))).astype(np.float32)
        statistics[rng.random(statistics.shape) < 0.1] = np.nan  # counts as the mean
        for aspect in (0, 2):
            changed = add_linear(reward, reward.aspects[aspect], stage)(statistics) - reward(statistics)
            wanted = standardised(reward, statistics) @ stage.weights.T + stage.bias
            assert np.allclose(changed[:, aspect], wanted, atol=1e-3)
            assert np.allclose(np.delete(changed, aspect, axis=1), 0.0, atol=1e-4)

    def test_a_second_stage_of_zeros_changes_nothing_that_matters(self) -> None:
        reward = shipped()
        none = SecondStage(np.zeros((reward.n_heads, len(reward.mean))), np.zeros(reward.n_heads))
        trips = trips_of(2, skewed())
        again = add_linear(add_linear(reward, "place", none), "place", none)
        assert np.allclose(again(trips.statistics), reward(trips.statistics), atol=1e-5)
        assert (again.n_heads, again.aspects) == (reward.n_heads, reward.aspects)


class TestRegression:
    def test_the_gradient_vanishes_at_the_solution(self) -> None:
        rng = np.random.default_rng(0)
        x, offset, weights = rng.normal(size=(300, 4)), rng.normal(size=300), rng.uniform(0.5, 2.0, 300)
        made = rng.random(300) < 0.4
        w = ridge_logistic(x, made, weights, offset, 5.0)
        residual = weights * (1.0 / (1.0 + np.exp(-(offset + x @ w[:-1] + w[-1]))) - made)
        assert np.allclose(x.T @ residual + 5.0 * w[:-1], 0.0, atol=1e-3)
        assert residual.sum() == pytest.approx(0.0, abs=1e-3)

    def test_without_inputs_the_bias_is_the_log_odds(self) -> None:
        made = np.arange(100) < 20
        w = ridge_logistic(np.zeros((100, 2)), made, np.ones(100), np.zeros(100), 1.0)
        assert w == pytest.approx([0.0, 0.0, np.log(0.2 / 0.8)], abs=1e-4)

    def test_trips_that_a_plane_separates_give_finite_weights(self) -> None:
        x = np.linspace(-1.0, 1.0, 50)[:, None]
        assert np.isfinite(ridge_logistic(x, x[:, 0] > 0, np.ones(50), np.zeros(50), 0.1)).all()

    def test_the_same_seed_gives_the_same_stage_and_heads_differ(self) -> None:
        trips = trips_of(12, skewed())
        first, again, other = (
            learn_second_stage(shipped(), trips, "place", 50.0, np.random.default_rng(seed)) for seed in (0, 0, 1)
        )
        assert np.array_equal(first.weights, again.weights)
        assert np.array_equal(first.bias, again.bias)
        assert not np.array_equal(first.weights, other.weights)
        assert first.weights.std(axis=0).max() > 0.0


class TestKeeping:
    def test_what_holds_for_everybody_is_kept(self) -> None:
        trips, new = trips_of(12, skewed()), trips_of(6, skewed(), seed=7)
        before, after = measure_held_out(shipped(), trips, "place", 50.0, 5)
        assert len(before.loss) == len(after.loss) == 12
        assert is_better(before, after)
        # Agents that nothing was learned from are better for it, too.
        stage = learn_second_stage(shipped(), trips, "place", 50.0, np.random.default_rng(0))
        learned = add_linear(shipped(), "place", stage)
        apart = [
            np.subtract(*(r(new.statistics[new.made == own])[:, 0].mean() for own in (True, False)))
            for r in (learned, shipped())
        ]
        assert apart[0] > apart[1] + 0.3

    def test_habits_of_single_agents_are_not_kept(self) -> None:
        rng, n = np.random.default_rng(3), len(shipped().mean)
        parts = [trips_of(1, 2.0 * rng.normal(size=n) / np.sqrt(n), seed) for seed in range(12)]
        own = [replace(part, agent=np.full(len(part), f"p{i}")) for i, part in enumerate(parts)]
        trips = Compared(
            np.concatenate([p.statistics for p in own]),
            np.concatenate([p.made for p in own]),
            np.concatenate([p.agent for p in own]),
            np.concatenate([p.maker for p in own]),
        )
        before, after = measure_held_out(shipped(), trips, "place", 0.1, 5)
        assert not is_better(before, after)

    def test_what_is_learned_for_an_agent_knows_none_of_its_trips(self) -> None:
        trips = trips_of(10, skewed())
        before, after = measure_held_out(shipped(), trips, "place", 50.0, 5)
        # The trips of one group, wherever they occur, may say anything: the group's own measure moves only by them.
        out = np.unique(trips.agent)[0::5]
        among_others = np.flatnonzero(~np.isin(trips.agent, out))[::7]
        maker = trips.maker.astype("<U9")
        maker[among_others] = out[0]
        wild = trips.statistics.copy()
        wild[among_others] += 100.0
        _, strange = measure_held_out(shipped(), replace(trips, maker=maker), "place", 50.0, 5)
        _, stranger = measure_held_out(shipped(), replace(trips, maker=maker, statistics=wild), "place", 50.0, 5)
        assert np.array_equal(strange.loss[:2], stranger.loss[:2])
        assert not np.array_equal(strange.loss[2:], stranger.loss[2:])
        assert before.loss.mean() > after.loss.mean()

    def test_a_few_trips_of_others_among_the_own_ones_change_little(self) -> None:
        trips, new = trips_of(14, skewed()), trips_of(6, skewed(), seed=7)
        strays = trips.made | ((np.random.default_rng(5).random(len(trips)) < 0.025) & ~trips.made)
        stages = [
            learn_second_stage(shipped(), some, "place", 50.0, np.random.default_rng(0))
            for some in (trips, replace(trips, made=strays))
        ]
        place = [add_linear(shipped(), "place", stage)(new.statistics)[:, 0].mean(axis=1) for stage in stages]
        assert np.corrcoef(*place)[0, 1] > 0.99
