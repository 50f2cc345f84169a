"""Measures how well the reward detects a kind of anomaly that it has never seen.

    python bench/left_out.py [--towns 6] [--people 20] [--draws 2]     (about 20 minutes)

The reward of trips learns from counterfactuals: detours, stops, other hours, ... A small reward is learned by the
recipe of the shipped one, first from all counterfactuals, then without those that resemble one kind of anomaly. Each
reward is tested on simulated people of other cities: AP of trips of that kind among normal ones.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from astray.core.threads import one_thread
from astray.features.featurizer import FeaturizerConfig
from astray.irl.learn_config import STEPS, TRIPS, LearnConfig
from astray.irl.shared import Reward
from astray.model.pretrained import write_reward
from astray.model.pretraining import Recipe
from astray.model.shared_training import SharingConfig, share
from astray_benchmark.methods import method
from astray_benchmark.metrics import average_precision
from astray_benchmark.protocols import Case, Setting, Trial
from astray_benchmark.simulated_data import Simulated

ALIKE = {
    "driven detour": ("turn_off", "borrow", "detour", "excursion"),
    "driven loiter": ("stop",),
    "driven reversed": ("reverse",),
    "driven wrong-time": ("hour",),
    "driven speeding": ("pace",),
    "driven new-destination": ("turn_off", "borrow"),
}
"""Maps kinds of anomalies to the counterfactuals that resemble them."""


def learned(recipe: Recipe, without: tuple[str, ...]) -> Reward:
    """Learns the reward of a recipe, without some counterfactuals."""

    def lesson(of: LearnConfig, iterations: int) -> LearnConfig:
        return replace(of, iterations=iterations, explorers=tuple(e for e in of.explorers if e not in without))

    of_steps = lesson(STEPS, min(STEPS.iterations, recipe.iterations))
    given = (recipe.places(), FeaturizerConfig(), lesson(TRIPS, recipe.iterations), recipe.sharing)
    with one_thread():
        reward = share(*given, np.random.default_rng(recipe.seed), step_learning=of_steps)
    assert reward is not None
    return reward


def found(reward: Reward, trials: list[Trial], kinds: list[str], folder: str) -> dict[str, float]:
    """Returns the AP of each kind, as the mean over people."""
    file = Path(folder, "reward.safetensors")
    write_reward(file, reward)
    by_kind: dict[str, list[float]] = {kind: [] for kind in kinds}
    for trial in trials:
        detector = method(f"astray-pretrained:reward={file}").fit(trial.lesson, 0)
        scores = np.nan_to_num(detector.trips(trial.test)["score"].to_numpy())
        for kind in kinds:
            some = (trial.kind == "") | (trial.kind == kind)
            if (trial.kind == kind).any():
                by_kind[kind].append(average_precision(scores[some], trial.kind[some] != ""))
    return {kind: float(np.mean(values)) for kind, values in by_kind.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--towns", type=int, default=6)
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument("--draws", type=int, default=2)
    given = parser.parse_args()
    sharing = SharingConfig(memories=2)
    recipe = Recipe(towns=given.towns, cities=0, people=given.people, days=45, iterations=40, sharing=sharing)
    data, setting = Simulated(), Setting(injected=True)
    trials = [data.trial(Case(setting, who, s)) for s in range(given.draws) for who in data.subjects(setting)]
    with tempfile.TemporaryDirectory() as folder:
        everything = found(learned(recipe, ()), trials, list(ALIKE), folder)
        print("| kind | learned from all | without what is like it | left out |\n|---|---|---|---|", flush=True)
        for kind, alike in ALIKE.items():
            without = found(learned(recipe, alike), trials, [kind], folder)[kind]
            print(f"| {kind} | {everything[kind]:.3f} | {without:.3f} | {', '.join(alike)} |", flush=True)


if __name__ == "__main__":
    main()
