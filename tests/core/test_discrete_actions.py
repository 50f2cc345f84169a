"""Discrete actions, from the arrays that a user gives to scores, words and a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import astray
from astray import Detector, Trajectories
from astray.core.errors import DataError
from fitted import kept_of

Array = NDArray[Any]

LOWER, HOLD, RAISE = range(3)


def runs(n: int, steps: int = 40, seed: int = 0, reversed_: bool = False, agent: str = "") -> Trajectories:
    """A room kept at 20 degrees by lowering, holding or raising its heating; ``reversed_`` turns the wrong way."""
    rng = np.random.default_rng(seed)
    states, actions = np.zeros((n, steps, 1)), np.zeros((n, steps), int)
    room = rng.uniform(15.0, 25.0, n)
    for t in range(steps):
        felt = room - 20.0 + rng.normal(0.0, 0.3, n)
        chosen = np.where(np.abs(felt) < 1.0, HOLD, np.where((felt > 0) != reversed_, LOWER, RAISE))
        states[:, t, 0], actions[:, t] = room, chosen
        room = np.clip(room + 0.8 * (chosen - 1) + rng.normal(0.0, 0.7, n), 12.0, 28.0)
    return Trajectories.from_steps(list(states), list(actions), n_actions=3, agent_ids=agent)


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector(iterations=8, seed=0).fit(runs(60))


# ---------------------------------------------------------------- giving them


def test_a_discrete_action_may_be_any_whole_number_type_and_is_held_one_hot() -> None:
    states = [np.zeros((3, 2))]
    wanted = [[False, True, False], [False, False, True], [True, False, False]]
    for actions in ([1, 2, 0], np.array([1, 2, 0], np.uint8), np.array([[1.0], [2.0], [0.0]])):
        t = Trajectories.from_steps(states, [actions], n_actions=3)
        assert t.columns["action"].tolist() == wanted
        assert t.has_discrete_actions
        assert t[:1].has_discrete_actions
        assert Trajectories.concat([t, t]).has_discrete_actions
    assert not Trajectories.from_steps(states, [[1, 2, 0]]).has_discrete_actions


@pytest.mark.parametrize(
    ("actions", "n_actions", "said"),
    [
        ([0, 2, 1], 2, r"trajectory 0, step 1: 2 is not one of the 2 actions.*from 0 to 1"),
        ([0, -1, 1], 2, "-1 is not one of the 2 actions"),
        ([0, 0.5, 1], 2, "0.5 is not one of the 2 actions"),
        ([0, np.nan, 1], 2, "nan is not one of the 2 actions"),
        (np.zeros((3, 2)), 2, "the discrete actions of trajectory 0 have 2 columns"),
        ([0, 0, 0], 1, "n_actions is 1"),
    ],
)
def test_what_is_not_one_of_the_actions_is_refused(actions: Any, n_actions: int, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Trajectories.from_steps([np.zeros((3, 2))], [actions], n_actions=n_actions)


def test_exactly_one_action_is_chosen_in_each_step() -> None:
    none = np.array([[True, False], [False, False]])
    with pytest.raises(DataError, match="step 1: not exactly one action is chosen"):
        Trajectories({"state": np.zeros((2, 1)), "action": none}, [0, 2], [""], ["x"])


def test_discrete_actions_and_quantities_do_not_mix(detector: Detector) -> None:
    discrete = runs(2, 5)
    states, numbers = list(np.zeros((2, 5, 1))), list(np.zeros((2, 5, 3)))
    quantities = Trajectories.from_steps(states, numbers)
    with pytest.raises(DataError, match="some of these trajectories have discrete actions, others have not"):
        Trajectories.concat([discrete, quantities])
    two = Trajectories.from_steps(states, list(np.zeros((2, 5))), n_actions=2)
    for use in (detector.score, detector.explain, detector.partial_fit):
        with pytest.raises(DataError, match="actions are quantities, in the past trajectories they are discrete"):
            use(quantities)
        with pytest.raises(DataError, match="actions have 2 possible values, not 3 as in the past trajectories"):
            use(two)
    with pytest.raises(DataError, match="the population's actions are discrete, in the past"):
        Detector().fit(quantities, population=discrete)


# ---------------------------------------------------------------- learning and scoring


@pytest.mark.parametrize("preset", ["default", "kdd19"])
def test_runs_with_the_wrong_actions_score_lower(detector: Detector, preset: str) -> None:
    learned = detector
    if preset == "kdd19":
        learned = Detector(preset="kdd19", iterations=40, config={"clone_updates": 300}, seed=0).fit(runs(60))
    usual, wrong = (learned.score_samples(runs(60, seed=1, reversed_=odd)) for odd in (False, True))
    assert (usual[:, None] > wrong[None]).mean() > 0.95


def test_an_action_that_was_never_demonstrated_scores_low() -> None:
    known = runs(60)
    actions = np.where(known.columns["action"].argmax(axis=1) == HOLD, LOWER, known.columns["action"].argmax(axis=1))
    states, cut = known.columns["state"], known.offsets[1:-1]
    never_held = Trajectories.from_steps(np.split(states, cut), np.split(actions, cut), n_actions=3)
    learned = Detector(iterations=8, seed=0).fit(never_held)
    assert (learned.score_samples(runs(60, seed=1)) < -3.0).all()


def test_a_saved_model_scores_and_continues_alike(detector: Detector, tmp_path: Path) -> None:
    detector.save(tmp_path / "m")
    loaded = astray.load(tmp_path / "m")
    assert isinstance(loaded, Detector)
    new = runs(5, seed=2)
    np.testing.assert_array_equal(loaded.score_samples(new), detector.score_samples(new))
    assert kept_of(loaded).has_discrete_actions
    assert str(loaded.explain(new, 0)) == str(detector.explain(new, 0))
    again = astray.load(tmp_path / "m")
    for learner in (loaded, again):
        learner.partial_fit(new)
    assert loaded.n_trips_ == 65
    np.testing.assert_array_equal(loaded.score_samples(new), again.score_samples(new))


def test_an_explanation_names_the_action_and_the_usual_one(detector: Detector) -> None:
    usual = runs(1, 40, seed=3)
    states, actions = usual.columns["state"].copy(), usual.columns["action"].argmax(axis=1)
    states[15:30], actions[15:30] = 23.0, RAISE
    said = detector.explain(Trajectories.from_steps([states], [actions], n_actions=3), eps=-1.0)
    (segment,) = (s for s in said.segments if s.start <= 20 < s.stop)
    assert "the action was 2; in 25 of the 25 past steps most like this one it was 0" in segment.words


# ---------------------------------------------------------------- counterfactuals


def test_a_users_explorer_gets_one_hot_actions_and_must_return_such() -> None:
    def always_raise(states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        assert actions.dtype == bool
        return states, np.eye(3, dtype=bool)[np.full(len(actions), RAISE)]

    def halves(states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        return states, np.full(actions.shape, 0.5)

    quick = {"updates": 10, "rollouts": 8, "clone_updates": 20, "imagined": 100}
    Detector(explorers=["perturb", always_raise], iterations=1, config=quick).fit(runs(20))
    with pytest.raises(DataError, match="explorer 'halves' chose no action, or several"):
        Detector(explorers=[halves], iterations=1, config=quick).fit(runs(20))
