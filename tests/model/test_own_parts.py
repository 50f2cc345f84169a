"""The user's own encoders, counterfactuals and backgrounds, given as objects and functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import astray
from astray import Detector, Trajectories
from astray.core.errors import DataError, ModelFileError
from astray.irl import counterfactuals
from astray.simulate import city
from fitted import featurizer_of

Array = NDArray[Any]

QUICK = {"updates": 5, "rollouts": 4, "clone_updates": 5, "imagined": 40}


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    return city(people=2, days=8, seed=0).trips


def runs(n: int = 30, seed: int = 0) -> Trajectories:
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n, 25, 2))
    return Trajectories.from_steps(list(states), list(states[:, :, :1] + 0.1 * rng.normal(size=(n, 25, 1))))


class Speed:
    """Encodes the speed of a step; with more columns than names it is invalid."""

    names = ("speed",)

    def __init__(self, columns: int = 1, value: float = 0.0) -> None:
        self.columns, self.value = columns, value

    def encode(self, steps: Any, without: Array | None = None) -> Array:
        return np.repeat(np.hypot(*steps.velocity.T)[:, None] + self.value, self.columns, axis=1)


def test_the_reward_sees_only_the_features_of_the_users_encoder(trips: Trajectories, tmp_path: Path) -> None:
    mine = trips.agent("p00")
    detector = Detector(encoder=Speed(), iterations=1, config=QUICK).fit(mine)
    assert not (detector.reward_.trip is not None)
    assert featurizer_of(detector).names == ["speed"]
    assert len(detector.posterior_.mean) == 1
    assert detector.score(mine[:3])["score"].is_finite().all()
    session = detector.open("p00")
    fixes = mine[0].columns
    for time, lat, lon in zip(fixes["time"], fixes["lat"], fixes["lon"], strict=True):
        session.update((time, lat, lon))
    assert detector.explain(mine, 0).normality.shape == fixes["time"].shape
    with pytest.raises(ModelFileError, match="object of your own"):
        detector.save(tmp_path / "m")


@pytest.mark.parametrize(
    ("encoder", "said"),
    [
        (Speed(columns=2), r"encoder Speed gave features of the shape \(\d+, 2\)"),
        (Speed(value=np.nan), "features that are not finite"),
        (object(), "the encoder object has no names"),
        ("fast", "encoder is 'fast'; give one of familiarity"),
    ],
)
def test_an_invalid_encoder_raises_an_error(trips: Trajectories, encoder: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Detector(encoder=encoder, iterations=1, config=QUICK).fit(trips.agent("p00"))


def test_the_users_counterfactual_is_in_the_background(trips: Trajectories, tmp_path: Path) -> None:
    seen: list[int] = []

    def to_the_pole(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> counterfactuals.Path:
        seen.append(len(others))
        return counterfactuals.Path(time, xy + np.array([0.0, 1e6]), (-np.inf, np.inf))

    mine = trips.agent("p00")
    detector = Detector(explorers=["shift", to_the_pole], iterations=1, config=QUICK).fit(mine)
    assert seen
    assert not (detector.reward_.trip is not None)
    assert detector.world_.learning["explorers"] == ["shift", "to_the_pole"]
    detector.save(tmp_path / "m")
    loaded = astray.load(tmp_path / "m")
    assert isinstance(loaded, Detector)
    assert np.array_equal(loaded.score_samples(mine[:3]), detector.score_samples(mine[:3]))
    again = mine[:2]
    with pytest.raises(DataError, match="no counterfactual named 'to_the_pole'"):
        loaded.partial_fit(again)
    before = len(seen)
    loaded.set_params(explorers=["shift", to_the_pole]).partial_fit(again)
    assert len(seen) > before


def test_an_explorer_of_runs_changes_what_the_reward_dislikes() -> None:
    def backwards(states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        return states, -actions

    fitted = Detector(explorers=(backwards,), iterations=6, seed=0).fit(runs(60))
    new = runs(20, seed=1)
    columns = new.columns
    turned = Trajectories(columns | {"action": -columns["action"]}, new.offsets, new.agent_ids, new.trajectory_ids)
    assert np.median(fitted.score_samples(turned)) < np.median(fitted.score_samples(new)) - 2.0


@pytest.mark.parametrize(
    ("explorer", "said"),
    [
        (lambda states, actions, rng: states, r"returned arrays of the shapes \[\(25, 2\)\]"),
        (lambda states, actions, rng: (states, actions[1:]), r"\(24, 1\)"),
        (lambda states, actions, rng: (states * np.nan, actions), "finite"),
        (7, "the explorer 'int' is not a function"),
    ],
)
def test_an_invalid_counterfactual_of_runs_raises_an_error(explorer: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Detector(explorers=(explorer,), iterations=1, config=QUICK).fit(runs())


def test_a_counterfactual_of_trips_that_returns_no_path_raises_an_error(trips: Trajectories) -> None:
    def nowhere(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Any:
        return time, xy

    def ago(time: Array, xy: Array, others: Trajectories, rng: np.random.Generator) -> Any:
        return counterfactuals.Path(-time, xy, (-np.inf, np.inf))

    for wrong in (nowhere, ago):
        with pytest.raises(DataError, match=f"the explorer '{wrong.__name__}' did not return a path"):
            Detector(explorers=(wrong,), iterations=1, config=QUICK).fit(trips.agent("p00"))


def test_the_reward_prefers_demonstrations_to_the_users_background(tmp_path: Path) -> None:
    given: list[Trajectories] = []

    def opposite(past: Trajectories, rng: np.random.Generator) -> Trajectories:
        given.append(past)
        return Trajectories.from_steps([r.columns["state"] for r in past], [-r.columns["action"] for r in past])

    only = {"policy": 0, "explore": 0, "given": 1}
    mine = runs(60)
    fitted = Detector(background=opposite, weights=only, iterations=6, seed=0).fit(mine)
    (past,) = given
    assert 0 < len(past) < len(mine)  # held-out runs are not passed to the function
    new = runs(20, seed=1)
    columns = new.columns
    turned = Trajectories(columns | {"action": -columns["action"]}, new.offsets, new.agent_ids, new.trajectory_ids)
    assert np.median(fitted.score_samples(turned)) < np.median(fitted.score_samples(new)) - 2.0
    fitted.save(tmp_path / "m")
    assert np.array_equal(astray.load(tmp_path / "m").score_samples(turned), fitted.score_samples(turned))


def test_a_background_of_gps_trips_makes_the_agent_learn_its_own_reward(trips: Trajectories) -> None:
    mine, other = trips.agent("p00"), trips.agent("p01")
    fitted = Detector(background=lambda past, rng: other, iterations=1, config=QUICK).fit(mine)
    assert not (fitted.reward_.trip is not None)


@pytest.mark.parametrize(
    ("background", "said"),
    [
        (lambda past, rng: None, "the background gave None"),
        (lambda past, rng: runs(3), "background's states have 2 columns, not 3"),
    ],
)
def test_an_invalid_background_raises_an_error(background: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Detector(background=background, iterations=1, config=QUICK).fit(
            Trajectories.from_steps(list(np.random.default_rng(0).normal(size=(9, 20, 3))), [np.zeros((20, 1))] * 9)
        )
