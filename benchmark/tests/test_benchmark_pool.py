"""A pool of agents: its reward learns from the pool's own trips, and finds what the shared reward misses."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import average_precision_score

from astray import Detector
from astray.simulate import city
from astray_benchmark.astray_methods import Own
from astray_benchmark.contenders import Lesson
from astray_benchmark.injections import inject


def test_a_pools_own_reward_finds_stops_and_reversed_trips_that_the_shared_reward_misses() -> None:
    trips = city(people=30, days=6, seed=5).trips
    rng = np.random.default_rng(0)
    order = rng.permutation(len(trips))
    test = inject(trips[np.sort(order[:250])], ["loiter", "reverse"], 0.1, rng)
    past = trips[np.sort(order[250:])]
    found = {
        preset: average_precision_score(
            test.label, -Detector(preset=preset, pooled=True).fit(past).score_samples(test.trips)
        )
        for preset in ("default", "shared")
    }
    assert found["default"] > found["shared"] + 0.1, found


def test_astrays_method_learns_a_pool_reward_only_where_the_lesson_is_pooled() -> None:
    method, one = Own(options={"iterations": 2}), city(people=5, days=7, seed=3).trips.agent("p00")
    assert method.fit(Lesson(one, pooled=True), 0).detector.reward_.of_a_pool
    assert not method.fit(Lesson(one), 0).detector.reward_.of_a_pool
