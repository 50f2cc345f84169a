"""The engine as the benchmarks use it: fit one agent, score its trips."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from astray import Trajectories
from astray.detectors.teaching import judges
from astray.irl.config import LearnConfig
from astray.irl.learn import Learned, learn
from astray.mdp.view import View, ViewConfig
from astray.mdp.world import GeoWorld
from astray.normality import Calibration, TripScores, calibrate, out_of_bag, trip_normality

torch.set_num_threads(1)


@dataclass(frozen=True)
class Engine:
    """A fitted agent."""

    view: View
    learned: Learned
    calibration: Calibration

    @classmethod
    def fit(
        cls,
        train: Trajectories,
        population: Trajectories | None,
        seed: int,
        config: LearnConfig | None = None,
        view: ViewConfig | None = None,
        scale: str = "trip",
    ) -> Engine:
        """Learn from one agent's trips; other agents' trips join the background where there are any."""
        rng = np.random.default_rng(seed)
        world = GeoWorld.of(train, View.of(train, view or ViewConfig(), rng))
        learned = learn(world, config or LearnConfig(), rng, population=population)
        judged = judges(learned.unseen)
        judged |= ~judged.any()  # of too few trips all heads judge all
        sight = world.view.look(train[judged.any(axis=1)])
        rewards = learned.posterior(sight.features)
        calibration = calibrate(
            out_of_bag(rewards, judged[judged.any(axis=1)][sight.steps.trip]),
            sight.steps.trip,
            sight.steps.time,
            sight.weight,
            aspects=learned.posterior.aspects,
            backgrounds=learned.background_rewards(),
            scale=scale,
        )
        return cls(world.view, learned, calibration)

    def score(self, trips: Trajectories) -> TripScores:
        """The scores of trips."""
        sight = self.view.look(trips)
        rewards = self.learned.posterior(sight.features)
        return trip_normality(rewards, sight.steps.trip, sight.steps.time, sight.weight, self.calibration, len(trips))
