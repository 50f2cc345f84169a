"""The training history of a detector, for each kind of reward and after loading a file."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from astray import Detector, Trajectories, load
from astray.model.pretrained import pretrained, read_reward, write_reward
from astray.simulate import city

FEW = {"least_agents": 2, "memories": 1, "demonstrations": 8, "imagined": 4, "reference": 20}


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    return city(people=4, days=14, seed=0).trips


def test_continued_learning_records_a_loss_for_every_iteration(trips: Trajectories, tmp_path: Path) -> None:
    mine, rest = trips.agent("p00"), trips.without("p00")
    fleet = Detector(iterations=3, sharing=FEW).fit(trips)
    told = fleet.training_history_
    assert told["iteration"].to_list() == [0, 1, 2]
    assert told["loss"].is_finite().all()
    assert told["held_out_loss"].is_finite().all()
    fleet.save(tmp_path / "m.astray")
    assert load(tmp_path / "m.astray").training_history_.equals(told.cast(pl.Float64))
    # A second stage has two rows: held-out people before it, and with it.
    one = Detector(sharing=FEW).fit(mine, population=rest)
    told = one.training_history_
    assert told["iteration"].to_list() == [0, 1]
    assert told["held_out_loss"].is_finite().all()
    assert told["held_out_auroc"].is_between(0.0, 1.0).all()
    one.save(tmp_path / "one.astray")
    loaded = load(tmp_path / "one.astray")
    assert loaded.training_history_.equals(told.cast(pl.Float64))
    assert loaded.reward_.made["second_stages"] == one.reward_.made["second_stages"]


def test_the_shipped_reward_has_the_history_of_its_file(trips: Trajectories, tmp_path: Path) -> None:
    alone = Detector().fit(trips.agent("p00"))
    assert alone.training_history_.equals(pretrained().history)
    went_on = Detector(sharing=FEW).fit(trips.agent("p00"), population=trips.without("p00"))
    write_reward(tmp_path / "r.safetensors", went_on.reward_)
    assert read_reward(tmp_path / "r.safetensors").history.height == 2
    assert Detector(reward=str(tmp_path / "r.safetensors")).fit(trips.agent("p00")).training_history_.height == 2


def test_an_update_adds_to_the_history_and_earlier_files_keep_theirs(trips: Trajectories, tmp_path: Path) -> None:
    own = Detector(preset="kdd19", iterations=3).fit(trips.agent("p00")[:10])
    assert own.training_history_.height == 3
    own.partial_fit(trips.agent("p00")[10:15])
    assert own.training_history_.height == 4
    own.save(tmp_path / "now.astray")
    assert load(tmp_path / "now.astray").training_history_.equals(own.training_history_.cast(pl.Float64))
