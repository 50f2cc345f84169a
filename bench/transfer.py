"""Measures what the reward of trips needs to distinguish people it has not met: statistics, teachers, heads, aspects.

    python bench/transfer.py GEOLIFE [--cache FILE] [--workers 2]     (about 20 min)

The users of GeoLife outside the ten of the published tables are split in halves. A reward learns from one half and is
tested on the other: 150 trips of strangers among each person's unseen ones, weighted to 5 %; on a random split, and by
time. Each row learns anew from the same trips, with one thing changed. AP is the mean over people; differences below
.01 mean nothing. GEOLIFE is the folder `Data` of your copy.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from astray.core.processes import spread
from astray.core.trajectories import Trajectories
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.irl.demonstrations import Rows
from astray.irl.learn_config import TRIPS, LearnConfig
from astray.irl.posterior import RewardPosterior, combined
from astray.irl.shared import trip_rewards
from astray.irl.trainer import learn_shared_reward
from astray.model.checkpoint import restore_reward
from astray.model.pretrained import pretrained
from astray.model.shared_training import GoingOnConfig, Teacher, able_agents, popularity_of, teachers
from astray_benchmark.people_data import PEOPLE, GeoLife, halves, split

LEAST = 60  # people with fewer trips are not tested
STRANGERS = 150
TESTED, MOST = 0.4, 190  # the share of a person's trips to test, and the most trips
RATE = 0.05

GROUPS = {
    "cells": r"^cell \d+ m: ",
    "first and last step": r": (first|last)$",
    "lowest and highest two minutes": r": (lowest|highest)$",
    "heading and way": r"heading: |, way \d",
    "origin": r"origin",
    "hours": r"hour|h of day",
    "speed of steps": r"speed: ",
    "ends and their pair": r"^(start|stop|the way back)",
    "length, duration, speed, shape": r"^(length|duration|speed|straightness|standing|highest speed|spread of speed)$",
    "others (popularity)": r"^others",
    "number of past trips": r"^past trips$",
}


@dataclass(frozen=True)
class Row:
    """One row of the table: from what a reward learns, and how."""

    name: str
    hidden: str | None = None  # statistics that match are hidden
    learning: Mapping[str, Any] = field(default_factory=dict)
    reward: Mapping[str, Any] = field(default_factory=dict)
    start: bool = True  # starts from the shipped reward
    learns: bool = True
    weights: Sequence[float] = (1.0, 0.3, 0.3, 0.3)


ROWS = (
    Row("as it is: shipped, then learned from these people"),
    Row("shipped alone", learns=False),
    Row("these people alone", start=False, reward={"prior_variance": 1.0}),
    Row("these people alone, one head", start=False, reward={"prior_variance": 1.0, "heads": 1, "networks": 1}),
    Row("place alone", weights=(1.0, 0.0, 0.0, 0.0)),
    Row("all aspects alike", weights=(1.0, 1.0, 1.0, 1.0)),
    *(Row(f"without {name}", hidden=pattern) for name, pattern in GROUPS.items()),
)


class Recorded:
    """Replays a teacher's rows, which were made once, with some statistics hidden."""

    def __init__(self, teacher: Teacher, imagined: int, rng: np.random.Generator) -> None:
        self.world, self.population = teacher.world, teacher.others
        self.names, self.agent, self.groups = teacher.world.names, teacher.world.agent, teacher.world.groups
        self.shown, self.told_from = self.world.demonstrations(), self.world.others(self.population)
        self._imagined = imagined
        self._rng, self._counterfactuals = rng, {}
        self.hide: NDArray[np.bool_] | None = None

    def demonstrations(self) -> Rows:
        """Returns the agent's trips."""
        return self._hidden(self.shown)

    def imagine(self, n: int, names: Sequence[str], rng: np.random.Generator) -> Rows:
        """Returns counterfactual trips, the same ones each time."""
        key = tuple(names)
        if key not in self._counterfactuals:
            self._counterfactuals[key] = self.world.imagine(self._imagined, names, self._rng)
        return self._hidden(self._counterfactuals[key])

    def others(self, population: object) -> Rows:
        """Returns other agents' trips."""
        return self._hidden(self.told_from)

    def _hidden(self, rows: Rows) -> Rows:
        if self.hide is None:
            return rows
        features = rows.features.copy()
        features[:, self.hide] = np.nan
        return replace(rows, features=features)


@dataclass(frozen=True)
class Half:
    """A split of the users into those who are tested and those who teach."""

    data: GeoLife
    number: int

    @cached_property
    def sides(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the positions of both groups' trips, without the ten."""
        trips = self.data.data.trips
        both = halves(trips, 0)
        ten = np.isin(trips.agent_ids, self.data.data.most_active[:PEOPLE])
        tested, teaching = (half[~ten[half]] for half in (both if self.number == 0 else both[::-1]))
        return tested, teaching

    def cases(self) -> Iterator[tuple[str, Trajectories, Trajectories, Trajectories]]:
        """Yields for each person and split: how trips are split, training trips, test trips, and trips of strangers."""
        trips, (tested, _) = self.data.data.trips, self.sides
        for person in np.unique(trips.agent_ids[tested]).tolist():
            own = np.flatnonzero(trips.agent_ids == person)
            if len(own) < LEAST:
                continue
            rng = np.random.default_rng([5, int(person)])
            foreign = np.setdiff1d(tested[trips.agent_ids[tested] != person], self.data.data.companions([person]))
            strangers = trips[rng.permutation(foreign)[:STRANGERS]]
            for how in ("random", "chronological"):
                train, test = split(trips, own, min(MOST, int(TESTED * len(own))), how, rng)
                yield how, trips[train], trips[test], strangers


def weighed_ap(anomalous: NDArray[Any], normal: NDArray[Any]) -> float:
    """Returns the average precision, low scores first, with anomalies weighted to a rate."""
    weight = RATE / (1.0 - RATE) * len(normal) / len(anomalous)
    scores = np.r_[anomalous, normal]
    weights = np.r_[np.full(len(anomalous), weight), np.ones(len(normal))]
    order = np.argsort(scores, kind="stable")
    found = (order < len(anomalous)) * weights[order]
    return float((np.cumsum(found) / np.cumsum(weights[order])) @ found / found.sum())


def measured(job: tuple[GeoLife, int]) -> dict[str, dict[str, list[float]]]:
    """Runs every row on one half; returns, for each row, a mapping of splits to the APs of all people."""
    data, number = job
    half, config, sharing = Half(data, number), FeaturizerConfig(), GoingOnConfig()
    rng = np.random.default_rng(number)
    crowd = data.data.trips[half.sides[1]]
    worlds = [Recorded(t, sharing.imagined, rng) for t in teachers(crowd, config, sharing, rng)]
    blank = replace(Featurizer.of(crowd, config, rng), popularity=popularity_of(crowd, config))
    names = [s.name for s in blank.statistics]
    tests = []
    for how, train, test, strangers in half.cases():
        featurizer = blank.remember(train)
        tests.append((how, *(featurizer.measure(featurizer.rows(trips))[1] for trips in (strangers, test))))
    shipped = pretrained().trip
    assert shipped is not None
    variance = sharing.variance(len(able_agents(crowd, sharing)))
    found: dict[str, dict[str, list[float]]] = {}
    done: dict[object, RewardPosterior] = {}
    for row in ROWS:
        hide = np.array([bool(row.hidden and re.search(row.hidden, name)) for name in names])
        learning = replace(
            TRIPS,
            reward=replace(TRIPS.reward, **{"prior_variance": variance, **row.reward}),
            learning_rate=(sharing.slowing if row.start else 1.0) * TRIPS.learning_rate,
            **{"iterations": sharing.iterations, "held_out": 0.0, **row.learning},
        )
        key = (row.hidden, learning, row.start, row.learns)
        if key not in done:
            done[key] = _learned(worlds, hide, learning, shipped if row.start else None) if row.learns else shipped
        of_row: dict[str, list[float]] = {}
        for how, *both in tests:
            scores = []
            for statistics in both:
                rewards = trip_rewards(done[key], np.where(hide, np.nan, statistics).astype(np.float32)).mean(axis=2)
                known = rewards[~np.isnan(statistics[:, 0])]
                scores.append(combined(known[:, :, None], row.weights)[:, 0])
            of_row.setdefault(how, []).append(weighed_ap(*scores))
        found[row.name] = of_row
    return found


def _learned(
    worlds: Sequence[Recorded], hide: NDArray[np.bool_], learning: LearnConfig, shipped: RewardPosterior | None
) -> RewardPosterior:
    for world in worlds:
        world.hide = hide if hide.any() else None
    rng = np.random.default_rng(0)
    start = None if shipped is None else restore_reward(shipped, learning, rng)
    others = [w.population for w in worlds]
    return learn_shared_reward(worlds, learning, rng, others=others, groups=worlds[0].groups, start=start).posterior


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--cache")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    data = GeoLife(given.folder, cache=given.cache)
    with closing(spread(measured, [(data, 0), (data, 1)], given.workers)) as parts:
        both = list(parts)
    people = sum(len(part[ROWS[0].name]["random"]) for part in both)
    print(f"AP at {RATE:.0%}, mean over {people} people\n\n| | random split | by time |\n|---|---|---|")
    for row in ROWS:
        means = [np.mean([v for part in both for v in part[row.name][how]]) for how in ("random", "chronological")]
        print(f"| {row.name} | " + " | ".join(f"{mean:.3f}" for mean in means) + " |")


if __name__ == "__main__":
    main()
