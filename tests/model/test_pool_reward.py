"""A pool of agents: its reward learns from the pool's own trips, and detects what the shared reward misses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

import astray
from astray import IRLDetector, Trajectories
from astray.benchmark.injections import inject
from astray.benchmark.methods import Lesson, Own
from astray.cli import main
from astray.simulate import city

LITTLE = {"iterations": 2}


@pytest.fixture(scope="module")
def vehicles() -> Trajectories:
    return city(people=5, days=7, seed=3).trips


@pytest.fixture(scope="module")
def pool(vehicles: Trajectories) -> IRLDetector:
    return IRLDetector(**LITTLE).fit(vehicles)


def test_trips_of_several_agents_are_a_pool_and_those_of_one_are_not(vehicles: Trajectories, pool: IRLDetector) -> None:
    assert pool.reward_.of_a_pool
    one = vehicles.agent("p00")
    assert not IRLDetector(**LITTLE).fit(one).reward_.of_a_pool
    assert not IRLDetector(preset="shared", **LITTLE).fit(vehicles).reward_.of_a_pool
    assert IRLDetector(preset="own", **LITTLE).fit(one).reward_.of_a_pool


def test_held_out_trips_of_the_pool_set_its_scale(vehicles: Trajectories, pool: IRLDetector) -> None:
    learned, known = pool.reward_.made["pool"], pool.own_.known(len(pool.reward_.aspects))
    assert learned + len(known) == len(vehicles)
    assert len(known) == pytest.approx(len(vehicles) / 5, rel=0.5)
    # The model keeps the same trips: an update must not set the scale by trips that the reward learned from.
    assert len(pool.kept_) == len(known)
    assert pool.featurizer_ is not None
    assert pool.featurizer_.memory.history == len(vehicles)


def test_further_trips_are_counted_and_the_reward_stays(
    vehicles: Trajectories, pool: IRLDetector, tmp_path: Path
) -> None:
    pool.save(tmp_path / "pool.astray")
    again = astray.load(tmp_path / "pool.astray")
    assert again.score(vehicles).equals(pool.score(vehicles), null_equal=True)
    before, new = again.reward_.trip, city(people=13, days=8, seed=4).trips
    again.partial_fit(new.agent("p12"), population=new.without("p12"))
    assert again.reward_.trip is before
    assert again.reward_.of_a_pool
    assert again.n_trips_ == len(vehicles) + len(new.agent("p12"))


def test_a_pool_detects_stops_and_reversed_trips_that_the_shared_reward_misses() -> None:
    trips = city(people=40, days=8, seed=5).trips
    rng = np.random.default_rng(0)
    order = rng.permutation(len(trips))
    test = inject(trips[np.sort(order[:250])], ["loiter", "reverse"], 0.1, rng)
    past = trips[np.sort(order[250:])]
    found = {
        preset: average_precision_score(test.label, -IRLDetector(preset=preset).fit(past).score_samples(test.trips))
        for preset in ("default", "shared")
    }
    assert found["default"] > found["shared"] + 0.1, found


def test_the_flag_pooled_makes_a_pool_of_trips_without_agents(
    vehicles: Trajectories, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, model = tmp_path / "trips.csv", tmp_path / "pool.astray"
    vehicles[:60].to_frame().drop("agent").write_csv(file)
    assert main(["fit", str(file), "-o", str(model), "--pooled", "--iterations", "1", "--look-for", "route"]) == 0
    detector = astray.load(model)
    assert detector.reward_.of_a_pool
    assert detector.aspect_weights_ == (0.0, 1.0, 0.0, 0.0)
    capsys.readouterr()
    assert main(["info", str(model)]) == 0
    assert f"then from {detector.reward_.made['pool']} trips of this pool" in " ".join(capsys.readouterr().out.split())
    assert main(["fit", str(file), "-o", str(model), "--pooled", "--preset", "shared"]) == 0
    assert not astray.load(model).reward_.of_a_pool


def test_the_benchmark_s_method_learns_from_a_pool(vehicles: Trajectories) -> None:
    method, one = Own(options=LITTLE), vehicles.agent("p00")
    assert method.fit(Lesson(one, pooled=True), 0).detector.reward_.of_a_pool
    assert not method.fit(Lesson(one), 0).detector.reward_.of_a_pool
