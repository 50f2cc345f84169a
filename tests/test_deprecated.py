"""The names of version 0.2 still work, and warn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import astray
from astray import Detector, Trajectories
from astray.core.errors import DataError
from astray.simulate import city


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    return city(people=3, days=7, seed=0).trips


def test_irl_detector_warns_and_is_a_detector_of_one_agent(trips: Trajectories) -> None:
    mine = trips.agent("p00")
    with pytest.warns(
        DeprecationWarning, match=r"IRLDetector is deprecated .* astray 0\.4: use Detector, with pooled="
    ):
        old = astray.IRLDetector(min_history=7)
    old.fit(mine[:-3], population=trips.without("p00"))
    new = Detector(min_history=7).fit(mine[:-3], population=trips.without("p00"))
    assert old.score(mine[-3:]).equals(new.score(mine[-3:]), null_equal=True)
    assert old.is_one


def test_the_attributes_of_version_0_2_still_work_and_name_the_new_ones(trips: Trajectories) -> None:
    def old(detector: Detector, name: str, new: str) -> Any:
        with pytest.warns(DeprecationWarning, match=f"{name} is deprecated .* use {re.escape(new)}"):
            return getattr(detector, name)

    with pytest.warns(DeprecationWarning, match="Detector"):
        one, many, steps = astray.IRLDetector(), astray.FleetDetector(), astray.IRLDetector(iterations=1)
    one.fit(trips.agent("p00"))
    many.fit(trips.agent("p00"))
    steps.fit(Trajectories.from_steps([np.zeros((9, 2))] * 9, [np.zeros((9, 1))] * 9))
    memory = one.memories_["p00"]
    assert old(one, "config_", "get_params()")["iterations"] > old(steps, "config_", "get_params()")["iterations"] == 1
    assert old(one, "featurizer_", "agent_model().featurizer").memory.trip_ids == memory.counts.trip_ids
    assert old(steps, "featurizer_", "agent_model().featurizer") is None
    assert old(one, "kept_", "memories_[agent].kept") is memory.kept
    assert len(old(steps, "kept_", "memories_[agent].kept")) == 9
    assert old(many, "members_", "memories_") is many.memories_


def test_irl_detector_takes_trips_of_several_agents_for_a_pool(trips: Trajectories, tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="IRLDetector"):
        old = astray.IRLDetector(iterations=1)
    old.fit(trips)
    assert old.is_one
    assert old.reward_.of_a_pool
    assert old.unknown_agents(trips) == []
    old.save(tmp_path / "model.astray")
    loaded = astray.load(tmp_path / "model.astray")
    assert type(loaded) is Detector
    assert np.array_equal(loaded.score_samples(trips), old.score_samples(trips))


def test_fleet_detector_warns_and_has_a_memory_for_each_agent_even_of_one(trips: Trajectories) -> None:
    with pytest.warns(DeprecationWarning, match=r"FleetDetector is deprecated .* astray 0\.4: use Detector"):
        old = astray.FleetDetector()
    old.fit(trips.agent("p00"))
    assert not old.is_one
    assert old.enroll(trips.agent("p01")) == len(trips.agent("p01"))
    assert old.agents == ["p00", "p01"]
    new = Detector(pooled=False).fit(trips.agent("p00"))
    new.enroll(trips.agent("p01"))
    assert old.score(trips[:20]).equals(new.score(trips[:20]), null_equal=True)


def test_fleet_detector_refuses_states_and_actions() -> None:
    with pytest.warns(DeprecationWarning, match="FleetDetector"):
        old = astray.FleetDetector()
    with pytest.raises(DataError, match="only GPS trips make one of many agents"):
        old.fit(Trajectories.from_steps([np.zeros((9, 2))], [np.zeros((9, 1))]))
