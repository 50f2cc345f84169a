"""A world of whole trips: what demonstrations and the background see is a memory that lacks one trip."""

from __future__ import annotations

import numpy as np
import pytest

from astray import Trajectories
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.statistics import SEEN, members
from astray.irl.keyed_trips import KeyedTrips
from astray.irl.learn_config import LearnConfig, explorers_of
from astray.irl.trip_demonstrator import TripDemonstrator
from astray.simulate import city

N = 12


def way(agent: str, day: int, north: float = 0.0) -> Trajectories:
    """The same way as every day, two kilometres to the east in ten minutes."""
    time = 1.7e9 + 86_400.0 * day + 10.0 * np.arange(61)
    lat, lon = np.full(61, 45.0 + north), 7.0 + 4.2e-4 * np.arange(61)
    return Trajectories.from_fixes(time=time, lat=lat, lon=lon, agent=agent, trajectory=f"{agent}-{day}")


def saturated(seed: int = 0) -> tuple[TripDemonstrator, KeyedTrips]:
    """Somebody who has gone one way every day, and others who go the same one."""
    mine = Trajectories.concat([way("ann", day) for day in range(N)])
    others = Trajectories.concat([way("bob", day) for day in range(N)])
    featurizer = Featurizer.of(mine, FeaturizerConfig(), np.random.default_rng(0)).remember(mine)
    world = TripDemonstrator.of(mine, featurizer, np.random.default_rng(seed))
    assert world is not None
    return world, KeyedTrips.of(others, featurizer)


def test_own_trips_and_those_of_others_see_the_same_count_where_all_have_been() -> None:
    world, population = saturated()
    parts = world.demonstrations(), world.others(population), world.imagine(20, ("hour",), world.rng)
    names = [s.name for s in world.featurizer.statistics]
    for name in ("cell 150 m: mean", "start 500 m", "past trips"):
        at = names.index(name)
        for rows in parts:
            count = np.expm1(rows.features[:, at])
            assert count == pytest.approx(np.full(len(count), N - 1), rel=1e-4), name


def test_the_trip_that_others_do_not_see_is_drawn_at_random() -> None:
    mine = Trajectories.concat([way("ann", day, north=0.1 * day) for day in range(N)])  # each day elsewhere
    featurizer = Featurizer.of(mine, FeaturizerConfig(), np.random.default_rng(0)).remember(mine)
    world = TripDemonstrator.of(mine, featurizer, np.random.default_rng(0))
    assert world is not None
    at = [s.name for s in featurizer.statistics].index("cell 150 m: mean")
    # Left out of the memory, no demonstration has been there before.
    assert not world.demonstrations().features[:, at].any()
    same = KeyedTrips.of(Trajectories.concat([way("bob", 100 + k, north=0.1) for k in range(300)]), featurizer)
    seen = world.others(same).features[:, at] > 0
    assert 1 - seen.mean() == pytest.approx(1 / N, abs=0.06)


def test_every_trip_occurs_whole_and_as_a_prefix() -> None:
    trips = city(people=2, days=8, seed=0).trips
    mine = trips.agent("p00")
    featurizer = Featurizer.of(mine, FeaturizerConfig(), np.random.default_rng(0)).remember(mine)
    world = TripDemonstrator.of(mine, featurizer, np.random.default_rng(0))
    assert world is not None
    known = featurizer.statistics[SEEN]
    ends = members(known, "end") & ~members(known, "population")  # nobody else is known
    for rows, n in (
        (world.demonstrations(), len(mine)),
        (world.others(KeyedTrips.of(trips.agent("p01"), featurizer)), len(trips.agent("p01"))),
        (world.imagine(15, explorers_of(LearnConfig())["route"], world.rng), 15),
    ):
        assert len(rows) == rows.n_paths == 2 * n
        whole = ~np.isnan(rows.features[:, ends]).any(axis=1)
        assert whole.sum() == n
    demonstrations = world.demonstrations()
    assert np.array_equal(demonstrations.trip, np.repeat(np.arange(len(mine)), 2))
    seen = featurizer.featurize(mine, every=False).statistics
    assert seen is not None
    whole = ~np.isnan(demonstrations.features[:, ends]).any(axis=1)
    assert (whole[::2] & ~whole[1::2]).all()
    # The learner looks at equally spaced points, scoring at the fixes themselves: about the same.
    close = np.isclose(demonstrations.features[whole], seen[:, SEEN], atol=0.3, equal_nan=True)
    assert close.mean() > 0.9
    assert set(world.names) == set(featurizer.memory.trip_ids)


def test_statistics_that_may_be_missing_are_hidden_in_groups() -> None:
    world, _ = saturated()
    groups = world.groups
    assert len(groups) == 2  # prefixes see to the third
    assert not any((group & members(world.featurizer.statistics[SEEN], "end")).all() for group in groups)


def test_trips_without_a_step_give_no_demonstrator() -> None:
    one = Trajectories.from_fixes(time=[0.0], lat=[45.0], lon=[7.0], agent="a", trajectory="t")
    featurizer = Featurizer.of(one, FeaturizerConfig(), np.random.default_rng(0))
    assert TripDemonstrator.of(one, featurizer, np.random.default_rng(0)) is None
