"""Learns the reward that ships with astray from simulated people of many towns, by a recipe that anybody can repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from astray.core.threads import one_thread
from astray.core.trajectories import Trajectories
from astray.features.featurizer import FeaturizerConfig
from astray.irl.shared import Reward
from astray.model.plain_values import plain
from astray.model.shared_training import SharingConfig, refer_again, share
from astray.simulate import Variety, world

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Recipe:
    """The recipe of the shipped reward. The same recipe makes the same reward."""

    towns: int = 14  # simulated towns, each of a different kind
    cities: int = 3  # towns of the kind that astray's examples use, with other seeds
    people: int = 25  # in each town
    days: int = 60  # of simulated trips
    first_seed: int = 1000  # of the first town; the others follow. Tests and examples use lower seeds
    seed: int = 0  # for learning
    iterations: int = 80  # N of Algorithm 1
    variety: Variety = Variety()
    sharing: SharingConfig = SharingConfig(memories=2)

    def places(self) -> Iterator[Trajectories]:
        """Yields the trips of each town; people of different towns have different names."""
        for number in range(self.towns + self.cities):
            variety = self.variety if number < self.towns else Variety.none()
            trips = world(self.first_seed + number, people=self.people, days=self.days, variety=variety).trips
            names = [f"{number}-{agent}" for agent in trips.agent_ids.tolist()]
            yield Trajectories(trips.columns, trips.offsets, names, trips.trajectory_ids, trips.context)


def pretrain(recipe: Recipe | None = None, progress: Progress | None = None, learned: Reward | None = None) -> Reward:
    """Learns a reward from simulated people, and returns it; ``progress`` is called with the finished share.

    If ``learned`` is given, that reward stays as it is, and only its reference is measured anew.

    >>> from astray.model.shared_training import SharingConfig
    >>> little = SharingConfig(memories=1, demonstrations=8, imagined=4, reference=20)
    >>> reward = pretrain(Recipe(towns=1, cities=0, people=3, days=21, iterations=1, sharing=little))
    >>> reward.aspects, reward.made["towns"]
    (('place', 'route', 'manner', 'time'), 1)
    """
    from astray.irl.learn_config import STEPS, TRIPS

    recipe = Recipe() if recipe is None else recipe
    done = progress or (lambda share: None)

    def places() -> Iterator[Trajectories]:
        for number, trips in enumerate(recipe.places()):
            yield trips
            done(0.6 * (number + 1) / (recipe.towns + recipe.cities))

    def learning(iteration: int, iterations: int, measures: Mapping[str, float]) -> None:
        done(0.6 + 0.3 * iteration / iterations)

    if learned is not None:
        return refer_again(learned, places(), FeaturizerConfig(), recipe.sharing, np.random.default_rng(recipe.seed))
    with one_thread():
        reward = share(
            places(),
            FeaturizerConfig(),
            replace(TRIPS, iterations=recipe.iterations),
            recipe.sharing,
            np.random.default_rng(recipe.seed),
            step_learning=replace(STEPS, iterations=min(STEPS.iterations, recipe.iterations)),
            progress=learning,
        )
    if reward is None:
        raise ValueError("the recipe has too few people and days: they make too few trips to learn from")
    made: dict[str, Any] = plain(recipe)
    return replace(reward, made=made)
