"""The shared reward: which agents teach it, with which memories, and how it continues to learn."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from astray import Trajectories
from astray.core.errors import DataError
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.irl import second_stage
from astray.irl.learn_config import STEPS, TRIPS
from astray.irl.shared import BANDS, Reward, band_of
from astray.model.pretrained import pretrained
from astray.model.shared_training import (
    GoingOnConfig,
    SharingConfig,
    _shortened,
    add_second_stage,
    go_on,
    popularity_of,
    share,
    teachers,
)
from astray.scoring.own_scale import fits
from astray.simulate import city

LITTLE = SharingConfig(memories=3, demonstrations=12, short_demonstrations=8, imagined=4, reference=30)
A_LITTLE_MORE = GoingOnConfig(
    least_agents=2, memories=3, demonstrations=12, short_demonstrations=8, imagined=4, reference=30
)


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    return city(people=4, days=14, seed=0).trips


def among(trips: Trajectories) -> Featurizer:
    return Featurizer.of(trips, FeaturizerConfig(), np.random.default_rng(0)).among(trips)


def arrays(reward: Reward) -> list[np.ndarray]:
    assert reward.trip is not None
    assert reward.reference is not None
    r = reward.reference
    of = [a for part in (reward.step, reward.trip) for layer in part.layers for a in layer]
    return [*of, r.trips, r.under_way, r.steps, r.typical, np.array(r.noise)]


class TestTeachers:
    def test_each_agent_teaches_with_its_whole_memory_and_with_shorter_ones(self, trips: Trajectories) -> None:
        taught = teachers(trips, FeaturizerConfig(), LITTLE, np.random.default_rng(0))
        assert len(taught) == 12
        for i, (world, others) in enumerate(taught):
            own = len(trips.agent(world.agent))
            remembered = set(world.featurizer.memory.trip_ids)
            if i % 3 == 0:
                assert len(remembered) == own
                assert set(world.names) <= remembered
            else:
                assert LITTLE.shortest <= len(remembered) < own
                # Half of the demonstrations are new to a shorter memory.
                assert 1 <= len(set(world.names) - remembered) <= LITTLE.short_demonstrations // 2
            assert world.agent not in others.agents
            assert len(others) == pytest.approx(2 * len(world.names), abs=1)
            assert world.featurizer.popularity.excluded == world.agent

    def test_an_agent_with_few_trips_or_no_name_does_not_teach(self, trips: Trajectories) -> None:
        few = Trajectories.concat([trips.agent("p00"), trips.agent("p01"), trips.agent("p02")[:9]])
        assert {t.world.agent for t in teachers(few, FeaturizerConfig(), LITTLE, np.random.default_rng(0))} == {
            "p00",
            "p01",
        }
        unnamed = trips.agent("p03")
        unnamed = Trajectories(unnamed.columns, unnamed.offsets, [""] * len(unnamed), unnamed.trajectory_ids)
        both = Trajectories.concat([few, unnamed])
        assert "" not in {t.world.agent for t in teachers(both, FeaturizerConfig(), LITTLE, np.random.default_rng(0))}
        # A single agent has no others to be compared with.
        assert teachers(trips.agent("p00"), FeaturizerConfig(), LITTLE, np.random.default_rng(0)) == []

    def test_at_most_max_agents_teach(self, trips: Trajectories) -> None:
        two = replace(LITTLE, max_agents=2, memories=1)
        assert len(teachers(trips, FeaturizerConfig(), two, np.random.default_rng(0))) == 2

    def test_memories_are_shortened_for_bands_of_history_that_have_few(self, trips: Trajectories) -> None:
        whole = [
            t.world for t in teachers(trips, FeaturizerConfig(), replace(LITTLE, memories=1), np.random.default_rng(0))
        ]
        longest = band_of(np.array([w.featurizer.memory.history for w in whole]))
        assert longest.min() == 2
        found = _shortened(whole, np.random.default_rng(0))
        history = np.array([w.featurizer.memory.history for w in found])
        # All four agents in the two lowest bands, and in the next band those that have more trips.
        assert np.bincount(band_of(history), minlength=3).tolist() == [4, 4, (longest > 2).sum()]
        assert history.min() >= 3
        assert {w.agent for w in found} == set(trips.agents)
        # Where there are enough memories, none is shortened.
        assert _shortened([*whole, *found] * 10, np.random.default_rng(0)) == []


class TestSharing:
    def test_continued_learning_is_reproducible_and_keeps_the_step_reward(self, trips: Trajectories) -> None:
        begun = pretrained()
        first, again = (
            go_on(begun, trips, FeaturizerConfig(), A_LITTLE_MORE, np.random.default_rng(3), 1) for _ in range(2)
        )
        assert first is not None
        assert again is not None
        assert first.step is begun.step
        assert all(np.array_equal(a, b) for a, b in zip(arrays(first), arrays(again), strict=True))
        assert not all(np.array_equal(a, b) for a, b in zip(arrays(first), arrays(begun), strict=False))
        assert fits(first, Featurizer.of(trips, FeaturizerConfig(), np.random.default_rng(0)))

    def test_too_few_agents_leave_the_reward_unchanged(self, trips: Trajectories) -> None:
        assert (
            go_on(pretrained(), trips.agent("p00"), FeaturizerConfig(), A_LITTLE_MORE, np.random.default_rng(0), 1)
            is None
        )

    def test_a_new_reward_needs_the_settings_of_the_step_reward(self, trips: Trajectories) -> None:
        quick = replace(TRIPS, iterations=1, updates=1)
        rng = np.random.default_rng(0)
        with pytest.raises(DataError, match="give step_learning"):
            share([trips], FeaturizerConfig(), quick, LITTLE, rng)
        reward = share(
            [trips], FeaturizerConfig(), quick, LITTLE, rng, step_learning=replace(STEPS, iterations=1, updates=1)
        )
        assert reward is not None
        assert reward.reference is not None
        assert reward.reference.trips.shape == (len(BANDS) + 1, LITTLE.reference, len(reward.aspects))
        assert np.isfinite(reward.reference.trips).all()
        assert np.isfinite(reward.reference.under_way).all()
        assert reward.reference.noise > 0
        assert reward.aspects == reward.step.aspects == ("place", "route", "manner", "time")

    def test_popularity_counts_every_agent_and_excludes_none(self, trips: Trajectories) -> None:
        popularity = popularity_of(trips, FeaturizerConfig())
        assert set(popularity.agents.trip_ids) == set(trips.agents)
        assert popularity.excluded is None


class TestSecondStage:
    def test_it_is_kept_if_held_out_agents_are_better_for_it(
        self, trips: Trajectories, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun = pretrained()
        monkeypatch.setattr(second_stage, "is_better", lambda before, after: True)
        first, again = (
            add_second_stage(begun, trips, among(trips), A_LITTLE_MORE, np.random.default_rng(3)) for _ in range(2)
        )
        assert first is not None
        assert again is not None
        assert all(np.array_equal(a, b) for a, b in zip(arrays(first), arrays(again), strict=True))
        assert first.made["second_stages"] == [{"people": 4, "kept": True}]
        assert first.step is begun.step
        assert fits(first, Featurizer.of(trips, FeaturizerConfig(), np.random.default_rng(0)))
        # Only the reward of place differs; the reference is that of the new reward.
        assert first.trip is not None
        assert begun.trip is not None
        assert begun.reference is not None
        assert first.reference is not None
        changed = first.trip(begun.reference.typical[:, :-1]) - begun.trip(begun.reference.typical[:, :-1])
        assert np.abs(changed[:, 0]).max() > 0.01
        assert np.abs(changed[:, 1:]).max() < 1e-4
        assert first.reference.trips.shape == (len(BANDS) + 1, A_LITTLE_MORE.reference, len(begun.aspects))
        assert np.array_equal(first.reference.steps, begun.reference.steps)

    def test_otherwise_the_reward_judges_as_before_and_says_so(
        self, trips: Trajectories, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun = pretrained()
        monkeypatch.setattr(second_stage, "is_better", lambda before, after: False)
        found = add_second_stage(begun, trips, among(trips), A_LITTLE_MORE, np.random.default_rng(3))
        assert found is not None
        assert (found.step, found.trip, found.reference) == (begun.step, begun.trip, begun.reference)
        assert found.made["second_stages"] == [{"people": 4, "kept": False}]
        assert found.history.height == 2

    def test_too_few_agents_teach_none(self, trips: Trajectories) -> None:
        alone = trips.agent("p00")
        rng = np.random.default_rng(0)
        assert add_second_stage(pretrained(), alone, among(alone), A_LITTLE_MORE, rng) is None

    def test_it_takes_seconds_and_not_more_with_more_agents(self) -> None:
        many = city(people=40, days=14, seed=3).trips
        pretrained()
        began = time.process_time()
        found = add_second_stage(pretrained(), many, among(many), None, np.random.default_rng(0))
        assert time.process_time() - began < 20.0  # 5 seconds on a machine that does nothing else
        assert found is not None
        assert found.made["second_stages"][0]["people"] == GoingOnConfig().stage_agents


def test_band_of_counts_the_edges_up_to_a_history() -> None:
    assert band_of(np.array([0, 4.9, 5, 19, 20, 50, 199, 200, 1e6])).tolist() == [0, 0, 1, 1, 2, 3, 3, 4, 4]
