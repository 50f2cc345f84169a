"""The shipped reward: it matches its recipe, is small, and the recipe is reproducible."""

from __future__ import annotations

from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from astray import Detector
from astray.core.errors import DataError, ModelFileError
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.statistics import SEEN
from astray.irl.shared import BANDS
from astray.model.packing import read
from astray.model.plain_values import plain
from astray.model.pretrained import KIND, pretrained, read_reward, write_reward
from astray.model.pretraining import Recipe, pretrain
from astray.model.shared_training import SharingConfig
from astray.scoring.own_scale import fits
from astray.simulate import city

SHIPPED = Path(str(files("astray.model") / "pretrained.safetensors"))
TINY = Recipe(
    towns=1,
    cities=1,
    people=3,
    days=21,
    iterations=1,
    sharing=SharingConfig(memories=2, demonstrations=8, short_demonstrations=6, imagined=4, reference=20),
)


@pytest.mark.parametrize("field", [f.name for f in fields(Recipe)])
def test_the_file_records_the_present_recipe(field: str) -> None:
    assert pretrained().made[field] == plain(Recipe())[field]


def test_the_file_records_nothing_but_the_recipe() -> None:
    assert set(pretrained().made) == {f.name for f in fields(Recipe)}


def test_it_has_four_aspects_and_fits_the_default_features() -> None:
    assert read(SHIPPED).kind == KIND == "reward"
    reward = pretrained()
    assert reward.aspects == ("place", "route", "manner", "time")
    assert reward.trip is not None
    featurizer = Featurizer.of(city(people=1, days=3, seed=0).trips, FeaturizerConfig(), np.random.default_rng(0))
    assert len(reward.trip.mean) == len(featurizer.statistics[SEEN])
    assert fits(reward, featurizer)
    assert reward.trip.n_heads >= 5


def test_its_reference_has_finite_rewards_in_every_band_of_history() -> None:
    reference = pretrained().reference
    assert reference is not None
    for part in (reference.trips, reference.under_way, reference.steps):
        assert part.shape[0] == len(BANDS) + 1
        assert part.shape[1] >= 100
        assert np.isfinite(part).all()
    # The more past trips an agent has, the higher the reward of its own trips.
    place = reference.trips[:, :, 0].mean(axis=1)
    assert (np.diff(place[:3]) > 0).all()
    assert reference.noise > 0


def test_the_file_is_smaller_than_300_kB() -> None:
    assert SHIPPED.stat().st_size < 300_000


def test_a_recipe_makes_the_same_bytes_twice_and_its_file_can_be_used(tmp_path: Path) -> None:
    shares: list[float] = []
    for name in ("a", "b"):
        write_reward(tmp_path / name, pretrain(TINY, shares.append))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert read_reward(tmp_path / "a").made == plain(TINY)
    assert all(0 < s <= 1 for s in shares)
    # A user's own file serves as the shipped one does.
    trips = city(people=1, days=10, seed=0).trips
    detector = Detector(reward=str(tmp_path / "a")).fit(trips[:-3])
    assert detector.reward_.made["towns"] == 1
    assert np.isfinite(detector.score_samples(trips[-3:])).all()
    detector.save(tmp_path / "detector")
    with pytest.raises(ModelFileError, match="a model, not a reward; give a file that astray pretrain wrote"):
        read_reward(tmp_path / "detector")
    with pytest.raises(DataError, match="other habits"):
        Detector(reward=str(tmp_path / "a"), featurizer={"context": {"weekday": True}}).fit(trips)


def test_another_seed_makes_another_reward() -> None:
    rewards = [pretrain(replace(TINY, cities=0, seed=seed)) for seed in (0, 1)]
    one, other = (r.trip for r in rewards)
    assert one is not None
    assert other is not None
    assert not np.array_equal(one.layers[0][0], other.layers[0][0])


def test_the_reference_of_a_reward_can_be_measured_again_without_learning() -> None:
    reward = pretrain(TINY)
    assert reward.reference is not None
    again = pretrain(TINY, learned=replace(reward, reference=None))
    assert again.trip is reward.trip
    assert again.made == reward.made
    assert again.reference is not None
    for field in fields(reward.reference):
        np.testing.assert_allclose(
            getattr(again.reference, field.name), getattr(reward.reference, field.name), rtol=1e-5
        )
