"""States and actions that are not GPS: names, refusals, bounds, overlaps, lengths, explanations."""

from __future__ import annotations

import re
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import astray
from astray import Detector, Trajectories
from astray.core.errors import DataError, OverlapWarning
from astray.irl.dynamics import LearnedDynamics
from astray.irl.step_demonstrator import PIECE, StepDemonstrator, pieces
from astray.model.overlapping_runs import overlap
from fitted import kept_of

Array = NDArray[Any]

QUICK = {"updates": 10, "rollouts": 8, "clone_updates": 20, "imagined": 100}


def runs(n: int, steps: int = 40, seed: int = 0, gain: float = 1.0, agent: str = "") -> Trajectories:
    """A controller that brings a noisy plant to the origin: a = -gain x."""
    rng = np.random.default_rng(seed)
    states, actions = np.zeros((n, steps, 2)), np.zeros((n, steps, 1))
    x = rng.normal(size=(n, 2))
    for t in range(steps):
        a = -gain * x[:, :1] + 0.1 * rng.normal(size=(n, 1))
        states[:, t], actions[:, t] = x, a
        x = 0.95 * x + 0.2 * np.hstack([a, x[:, :1]]) + 0.1 * rng.normal(size=(n, 2))
    return Trajectories.from_steps(list(states), list(actions), agent_ids=agent)


@pytest.fixture(scope="module")
def detector() -> Detector:
    return Detector(iterations=12, seed=0).fit(runs(80))


# ---------------------------------------------------------------- names


def test_the_name_of_a_run_depends_on_its_content() -> None:
    first, second = runs(3, seed=0), runs(3, seed=1)
    assert len({*first.trajectory_ids.tolist(), *second.trajectory_ids.tolist()}) == 6
    again = Trajectories.from_steps(*([t.columns[c] for t in first[1:]] for c in ("state", "action")))
    assert again.trajectory_ids.tolist() == first.trajectory_ids[1:].tolist()
    one = first[0].columns
    twice = Trajectories.from_steps([one["state"]] * 2, [one["action"]] * 2)
    assert len(set(twice.trajectory_ids.tolist())) == 2


def test_observing_new_runs_keeps_the_old_ones(detector: Detector, tmp_path: Path) -> None:
    detector.save(tmp_path / "m")
    learner = astray.load(tmp_path / "m")
    assert isinstance(learner, Detector)
    learner.partial_fit(runs(3, seed=9))
    assert learner.n_trips_ == 83
    assert len(kept_of(learner)) == 83


# ---------------------------------------------------------------- refusals

S, A = np.zeros((5, 3)), np.zeros((5, 1))


@pytest.mark.parametrize(
    ("states", "actions", "said"),
    [
        ([S], [np.zeros(4)], "trajectory 0 has 5 states and 4 actions"),
        ([S, np.zeros((5, 2))], [A, A], "trajectory 1 has 2 columns of states, trajectory 0 has 3"),
        ([S, S], [A, np.zeros((5, 2))], "trajectory 1 has 2 columns of actions, trajectory 0 has 1"),
        ([S], [A, A], "1 arrays of states but 2 of actions"),
        ([], [], "give at least one"),
        ([S, S[:0]], [A, A[:0]], "trajectory 1 is empty"),
        ([S, []], [A, []], "trajectory 1 is empty"),
        (S, A, r"one array of the shape \(5, 3\).*\[states\]"),
        (np.zeros(5), [A], r"one array of the shape \(5,\)"),
        ([np.zeros((2, 5, 3))], [A], r"the states of trajectory 0 have the shape \(2, 5, 3\)"),
        ([np.zeros((5, 0))], [A], r"the shape \(5, 0\)"),
        ([1.0], [A], r"the states of trajectory 0 have the shape \(\)"),
        (3.0, [A], "the states are float"),
        ([[["a"], ["b"]]], [np.zeros(2)], "the states of trajectory 0 are not numbers"),
        ([np.array([{}, {}], object)], [np.zeros(2)], "are not numbers"),
        ([[[1.0, 2.0], [3.0]]], [np.zeros(2)], "are not numbers"),
        ([S + 1j], [A], "are not numbers"),
        ([np.zeros(5, "datetime64[s]")], [A], "are not numbers"),
        ([np.ma.masked_equal(np.arange(5.0), 3.0)], [A], "masked"),
        ([np.where(np.arange(5) == 3, np.nan, 0.0)], [A], "step 3: state is not a finite number"),
        ([S], [np.where(np.arange(5) == 2, np.inf, 0.0)], "step 2: action is not a finite number"),
    ],
)
def test_invalid_runs_are_rejected(states: Any, actions: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Trajectories.from_steps(states, actions)


def test_each_run_needs_one_name() -> None:
    with pytest.raises(DataError, match="agent_ids have the shape"):
        Trajectories.from_steps([S, S], [A, A], agent_ids=["a", "b", "c"])
    with pytest.raises(DataError, match="trajectory_ids"):
        Trajectories.from_steps([S, S], [A, A], trajectory_ids=["a"])
    with pytest.raises(DataError, match=r"column 'state' has the shape \(5,\)"):
        Trajectories({"state": np.zeros(5), "action": A}, [0, 5], [""], ["x"])


def test_states_may_be_numbers_of_any_type() -> None:
    for states in (np.arange(5), np.arange(5, dtype=np.float32), [True, False] * 2 + [True], np.arange(5).tolist()):
        t = Trajectories.from_steps([states], (np.zeros(5) for _ in range(1)))
        assert t.columns["state"].shape == (5, 1)
        assert t.columns["state"].dtype == np.float64


def test_the_error_about_another_width_or_kind_names_both(detector: Detector) -> None:
    wide, acting = Trajectories.from_steps([S], [A]), Trajectories.from_steps([S[:, :2]], [np.zeros((5, 2))])
    for use in (detector.score, detector.score_samples, detector.score_fixes, detector.explain, detector.partial_fit):
        with pytest.raises(DataError, match="states have 3 columns, not 2"):
            use(wide)
        with pytest.raises(DataError, match="actions have 2 columns, not 1"):
            use(acting)
    for population, said in ((wide, "population's states have 3 columns, not 2"), (acting, "population's actions")):
        with pytest.raises(DataError, match=said):
            Detector().fit(runs(5), population=population)
        with pytest.raises(DataError, match=said):
            detector.partial_fit(runs(2, seed=5), population=population)
    half = Trajectories({"state": np.zeros((5, 2))}, [0, 5], [""], ["x"])
    for use in (Detector().fit, detector.score):
        with pytest.raises(DataError, match="actions are missing"):
            use(half)


class Narrow:
    """Dynamics that forget a column."""

    def __init__(self, begin: int, then: int) -> None:
        self.begin, self.then = begin, then

    def reset(self, n: int, rng: np.random.Generator) -> Array:
        return np.zeros((n, self.begin))

    def step(self, states: Array, actions: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        return np.zeros((len(states), self.then)), np.ones(len(states), bool)


@pytest.mark.parametrize(("begin", "then", "said"), [(3, 3, "reset"), (2, 1, "step")])
def test_dynamics_of_another_width_are_refused(begin: int, then: int, said: str) -> None:
    with pytest.raises(DataError, match=rf"the dynamics .* {said}\("):
        Detector(dynamics=Narrow(begin, then), iterations=1, config=QUICK).fit(runs(12))


# ---------------------------------------------------------------- overlaps


def test_fit_warns_of_runs_that_share_steps() -> None:
    rng = np.random.default_rng(0)
    recording = np.cumsum(rng.normal(size=(400, 2)), axis=0)
    windows = [recording[i : i + 40] for i in range(0, 360, 4)]
    sliding = Trajectories.from_steps(windows, [w[:, :1] for w in windows])
    assert overlap(sliding)[0] > 0.9
    with pytest.warns(OverlapWarning, match=r"% of the steps are in two runs or more, such as run-\w+ and run-\w+\."):
        learned = Detector(iterations=1, config=QUICK).fit(sliding)
    apart = [recording[i : i + 40] for i in range(0, 400, 40)]
    assert overlap(Trajectories.from_steps(apart, [w[:, :1] for w in apart])) == (0.0, (0, 0))
    copy = Trajectories.from_steps(windows[:40], [w[:, :1] for w in windows[:40]], agent_ids="b")
    with pytest.warns(OverlapWarning):
        learned.partial_fit(copy)


def test_similar_runs_of_a_small_world_do_not_count_as_overlapping() -> None:
    rng = np.random.default_rng(0)
    clicks = [rng.integers(0, 3, 60) for _ in range(50)]
    assert overlap(Trajectories.from_steps(clicks, clicks))[0] == 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error", OverlapWarning)
        Detector(iterations=1, config=QUICK).fit(runs(12))


# ---------------------------------------------------------------- long runs


def test_sampled_pieces_are_whole_and_spread_evenly_over_the_runs() -> None:
    lengths = np.array([7, 5000, 300, 90_000])
    rows, piece, run = pieces(lengths, 3000)
    assert len(rows) <= 3000
    taken = np.bincount(run)
    assert taken[0] == 7
    assert taken[2] == 300
    assert taken[1] == taken[3] > 1000
    begins = np.cumsum(lengths) - lengths
    for i, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
        own = rows[run == i]
        assert begin <= own.min()
        assert own.max() < begin + length
        assert len(set(own.tolist())) == len(own)
        if i in (1, 3):
            assert own.min() == begin
            assert own.max() == begin + length - 1
    for k in range(int(piece.max()) + 1):
        own = rows[piece == k]
        assert (np.diff(own) == 1).all()
        assert len(own) in (7, 300) or len(own) >= PIECE
    # More runs than rows: one row of each.
    assert np.bincount(pieces(np.full(50, 9), 10)[2]).tolist() == [1] * 50
    assert pieces(lengths, 10**6)[0].tolist() == list(range(int(lengths.sum())))


def test_the_number_of_rows_to_learn_from_is_bounded() -> None:
    rng = np.random.default_rng(0)
    t = Trajectories.from_steps([rng.normal(size=(2000, 3))] * 9, [rng.normal(size=(2000, 1)) for _ in range(9)])
    world = StepDemonstrator.of(t, Narrow(3, 3), rng, waves=4, most=1000)
    for rows in (world.demonstrations(), world.imagine(50, ["perturb", "exchange"], rng), world.others(t)):
        assert len(rows) <= 1000
        assert rows.n_paths in (9, 50)
    assert world.demonstrations().n_trips == 9
    few, many = (LearnedDynamics.fit(t, np.random.default_rng(0), most=most) for most in (500, 10**6))
    assert np.array_equal(few.lower, many.lower)
    assert np.abs(few.predict(np.zeros((1, 3)), np.zeros((1, 1)))).max() < 0.5


def test_memory_does_not_grow_with_the_length_of_the_runs() -> None:
    """Two hundred runs of 3,000 steps took 2.4 GB; they are 14 MB themselves."""
    rng = np.random.default_rng(0)
    t = Trajectories.from_steps(list(rng.normal(size=(200, 3000, 2))), list(rng.normal(size=(200, 3000, 1))))
    fitted = Detector(iterations=1, config=QUICK | {"capacity": 20_000}, keep=20)
    tracemalloc.start()
    try:
        fitted.fit(t)
        fit = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        fitted.score(t)
        scored = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert fit < 300e6
    assert scored < 150e6


# ---------------------------------------------------------------- what is held out


def test_no_counterfactual_is_made_from_held_out_runs() -> None:
    """Otherwise the reward would learn to dislike them, and normal runs would look too good."""
    from astray.irl.demonstrations import held_out
    from astray.irl.learn_config import LearnConfig
    from astray.irl.trainer import learn_agent_reward

    # Each run holds its own number, which its perturbations and exchanges keep.
    n, rng = 40, np.random.default_rng(0)
    states = [np.column_stack([np.full(30, i), rng.normal(size=30)]) for i in range(n)]
    t = Trajectories.from_steps(states, [rng.normal(size=(30, 1)) for _ in range(n)])
    world = StepDemonstrator.of(t, Narrow(2, 2), rng)
    config = LearnConfig(iterations=1, updates=1, rollouts=0, explorers=("exchange",), imagined=400)
    learned = learn_agent_reward(world, config, rng)
    spared = set(held_out(world.names, np.arange(n), config.held_out).tolist())
    assert len(spared) >= 4
    made = {round(s) for b in learned.backgrounds.values() for s in b.rows["explore"].states[:, 0].tolist()}
    assert made
    assert not made & spared


def test_held_out_runs_score_as_new_ones(detector: Detector) -> None:
    assert detector.calibration_.normal.total >= 10
    new = detector.score(runs(300, seed=7))
    assert abs(new["normality"].mean()) < 0.5  # it was -0.6, on a scale that the learned runs had set
    assert 0.4 < new["p_value"].mean() < 0.65


def test_the_length_of_a_run_does_not_change_how_often_it_is_flagged(detector: Detector) -> None:
    share = {n: (detector.score(runs(150, n, seed=n))["p_value"] <= 0.1).mean() for n in (10, 40, 160, 640)}
    assert max(share.values()) - min(share.values()) < 0.12
    assert max(share.values()) < 0.25


# ---------------------------------------------------------------- explanations


def explained(detector: Detector, states: Array, actions: Array, step: int) -> str:
    """Returns the words about the segment of a step."""
    said = detector.explain(Trajectories.from_steps([states], [actions]), eps=-1.0)
    (segment,) = (s for s in said.segments if s.start <= step < s.stop)
    assert segment.start <= int(segment.words.split()[2].rstrip(",")) < segment.stop
    assert segment.words in str(said)
    return segment.words


def test_an_explanation_compares_an_action_with_those_in_similar_states(detector: Detector) -> None:
    """The odd action lies in the middle of all actions: only in its state nobody took it."""
    usual = runs(1, 40, seed=3)
    states, actions = (usual.columns[name].copy() for name in ("state", "action"))
    states[15:30, 0], actions[15:30, 0] = 0.5, 0.5
    words = explained(detector, states, actions, 20)
    assert "action 0 was 0.5; in the 25 past steps most like this one it was -0." in words
    low, high = (float(word) for word in words.split(" it was ")[1].split(";")[0].split(" to "))
    assert low <= -0.5 <= high


def test_an_explanation_names_an_odd_state(detector: Detector) -> None:
    usual = runs(1, 40, seed=3)
    states, actions = (usual.columns[name].copy() for name in ("state", "action"))
    states[10:20, 1] += 30.0
    assert re.search(r"at step 1\d, state 1 was (29|3\d)", explained(detector, states, actions, 15))
