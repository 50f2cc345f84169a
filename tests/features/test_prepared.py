"""Trips are projected and cleaned once: what is made of prepared ones is what is made of the trips."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astray import Detector, Trajectories
from astray.features import featurizer as looking
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.paths import paths_of
from astray.irl.keyed_trips import KeyedTrips
from astray.irl.trip_demonstrator import TripDemonstrator
from astray.model import many_agents
from astray.simulate import city


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    """Some of them with a gap and a teleport, so that they have several paths and faulty fixes."""
    made = city(people=3, days=7, seed=0).trips
    time, lat = made.columns["time"].copy(), made.columns["lat"].copy()
    for i in range(0, len(made), 3):
        middle, end = int(made.offsets[i : i + 2].mean()), int(made.offsets[i + 1])
        time[middle:end] += 3000.0
        lat[middle - 3] += 5.0
    return Trajectories({**made.columns, "time": time, "lat": lat}, made.offsets, made.agent_ids, made.trajectory_ids)


@pytest.fixture(scope="module")
def blank(trips: Trajectories) -> Featurizer:
    return Featurizer.of(trips, FeaturizerConfig(), np.random.default_rng(0))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_selected_prepared_trips_equal_selected_trips_prepared(
    trips: Trajectories, blank: Featurizer, data: st.DataObject
) -> None:
    which = np.array(sorted(data.draw(st.sets(st.integers(0, len(trips) - 1), max_size=12))), np.int64)
    some, alone = blank.prepare(trips)[which], blank.prepare(trips[which])
    assert some.trips.ids == alone.trips.ids
    assert np.array_equal(some.paths.offsets, alone.paths.offsets)
    for name in ("time", "xy"):
        assert np.array_equal(some.paths.columns[name], alone.paths.columns[name])
    assert np.array_equal(some.paths.context["trip"], alone.paths.context["trip"])
    for field in fields(some.steps):
        np.testing.assert_allclose(getattr(some.steps, field.name), getattr(alone.steps, field.name), rtol=1e-12)
    assert np.array_equal(blank.rows(some).keys, blank.rows(trips[which]).keys)


def test_prepared_trips_are_remembered_like_trips(trips: Trajectories, blank: Featurizer) -> None:
    one, other = blank.remember(trips).memory, blank.remember(blank.prepare(trips)).memory
    assert one.trip_ids == other.trip_ids
    assert np.array_equal(one.keys, other.keys)
    assert np.array_equal(one.trips, other.trips)


def test_a_demonstrator_among_a_population_equals_that_of_its_trips_alone(
    trips: Trajectories, blank: Featurizer
) -> None:
    which = np.flatnonzero(trips.agent_ids == "p01")[::2]
    among = TripDemonstrator.among(KeyedTrips.of(trips, blank), which, blank, np.random.default_rng(0))
    alone = TripDemonstrator.of(trips[which], blank, np.random.default_rng(0))
    assert among is not None
    assert alone is not None
    assert among.agent == alone.agent == "p01"
    for one, other in ((among, alone), (among.steps(5), alone.steps(5))):
        assert one is not None
        assert other is not None
        np.testing.assert_allclose(one.demonstrations().features, other.demonstrations().features, atol=1e-6)
        assert one.names == other.names


def test_a_fit_cleans_each_fix_once_in_each_frame_of_metres(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the agent: once. Those of others: where they go, and, if the reward goes on, as its teachers."""
    trips = city(people=14, days=5, seed=0).trips
    mine, rest = trips.agent("p00"), trips.without("p00")
    cleaned = dict.fromkeys(trips.agents, 0)

    def counted(fixes: Trajectories, *args: Any) -> Any:
        for agent in fixes.agents:
            cleaned[agent] += fixes.agent(agent).n_rows
        return paths_of(fixes, *args)

    for module in (looking, many_agents):
        monkeypatch.setattr(module, "paths_of", counted)

    def times() -> set[float]:
        found = {cleaned[agent] / rest.agent(agent).n_rows for agent in rest.agents}
        cleaned.update(dict.fromkeys(rest.agents, 0))
        return found

    Detector().fit(mine)
    assert cleaned["p00"] == mine.n_rows
    Detector(iterations=1).fit(mine, population=rest)
    assert cleaned["p00"] == 2 * mine.n_rows  # in the two fits
    assert times() == {2.0}
    Detector(iterations=1).fit(rest)
    assert max(times()) <= 3.0  # as teachers, where they go, and in each agent's own metres
