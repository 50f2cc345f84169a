"""The shipped reward: learned from simulated people of many towns, by a recipe that anybody can run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from astray.core.threads import one_thread
from astray.core.trajectories import Trajectories
from astray.features.featurizer import FeaturizerConfig
from astray.irl.shared import Reward
from astray.model.fleet_training import SharingConfig, share
from astray.model.values import plain
from astray.simulate import Variety, world

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Recipe:
    """How the shipped reward is made. The same recipe makes the same reward."""

    towns: int = 14  # simulated ones, each of its own kind
    cities: int = 3  # and some of the kind that astray's examples are of, but others
    people: int = 25  # in each of them
    days: int = 60  # of their lives
    first_seed: int = 1000  # of the first town; the others follow. Those of tests and examples have lower ones
    seed: int = 0  # of learning
    iterations: int = 80  # N of Algorithm 1
    variety: Variety = Variety()
    sharing: SharingConfig = SharingConfig(memories=2)

    def places(self) -> Iterator[Trajectories]:
        """The trips of each town; no two people of different towns have the same name."""
        for number in range(self.towns + self.cities):
            variety = self.variety if number < self.towns else Variety.none()
            trips = world(self.first_seed + number, people=self.people, days=self.days, variety=variety).trips
            names = [f"{number}-{agent}" for agent in trips.agent_ids.tolist()]
            yield Trajectories(trips.columns, trips.offsets, names, trips.trajectory_ids, trips.context)


def pretrain(recipe: Recipe | None = None, progress: Progress | None = None) -> Reward:
    """Learn a reward from simulated people; ``progress`` is called with the share that is done.

    >>> from astray.model.fleet_training import SharingConfig
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

    def learned(iteration: int, iterations: int, measures: Mapping[str, float]) -> None:
        done(0.6 + 0.3 * iteration / iterations)

    with one_thread():
        reward = share(
            places(),
            FeaturizerConfig(),
            replace(TRIPS, iterations=recipe.iterations),
            recipe.sharing,
            np.random.default_rng(recipe.seed),
            step_learning=replace(STEPS, iterations=min(STEPS.iterations, recipe.iterations)),
            progress=learned,
        )
    if reward is None:
        raise ValueError("a recipe of so few people and days makes too few trips to learn from")
    made: dict[str, Any] = plain(recipe)
    return replace(reward, made=made)
