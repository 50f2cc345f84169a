"""A pool of agents: its reward goes on learning from the pool's own trips."""

from __future__ import annotations

from pathlib import Path

import pytest

import astray
from astray import Detector, Trajectories
from astray.cli import main
from astray.scoring.scale_config import ScaleConfig
from astray.simulate import city
from fitted import featurizer_of, kept_of, memory_of

LITTLE = {"iterations": 2}


@pytest.fixture(scope="module")
def vehicles() -> Trajectories:
    return city(people=5, days=7, seed=3).trips


@pytest.fixture(scope="module")
def pool(vehicles: Trajectories) -> Detector:
    return Detector(**LITTLE, pooled=True).fit(vehicles)


def test_pooled_trips_make_a_reward_of_the_pool_and_trips_of_one_agent_do_not(
    vehicles: Trajectories, pool: Detector
) -> None:
    assert pool.reward_.of_a_pool
    one = vehicles.agent("p00")
    assert not Detector(**LITTLE).fit(one).reward_.of_a_pool
    assert not Detector(preset="shared", **LITTLE, pooled=True).fit(vehicles).reward_.of_a_pool
    assert Detector(preset="own", **LITTLE).fit(one).reward_.of_a_pool


def test_the_scale_of_a_pool_is_set_by_trips_that_it_has_not_learned_from(
    vehicles: Trajectories, pool: Detector
) -> None:
    learned, known = pool.reward_.made["pool"], memory_of(pool).own.known(len(pool.reward_.aspects))
    # They are kept, too: an update must not measure by what the reward has learned from.
    held_out = len(kept_of(pool))
    assert learned + held_out == len(vehicles)
    assert held_out == pytest.approx(len(vehicles) / 5, rel=0.5)
    assert held_out - ScaleConfig.least_before <= len(known) <= held_out  # the first ones have too little before them
    assert featurizer_of(pool).memory.history == len(vehicles)


def test_further_trips_are_counted_and_the_reward_stays(vehicles: Trajectories, pool: Detector, tmp_path: Path) -> None:
    pool.save(tmp_path / "pool.astray")
    again = astray.load(tmp_path / "pool.astray")
    assert again.score(vehicles).equals(pool.score(vehicles), null_equal=True)
    before, new = again.reward_.trip, city(people=13, days=8, seed=4).trips
    again.partial_fit(new.agent("p12"), population=new.without("p12"))
    assert again.reward_.trip is before
    assert again.reward_.of_a_pool
    assert again.n_trips_ == len(vehicles) + len(new.agent("p12"))


def test_the_flag_makes_a_pool_of_trips_that_name_no_agent(
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
