"""Popularity: how many others go to a place; nobody is an other to itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import astray
from astray import Detector, Trajectories
from astray.core.errors import DataError
from astray.features.familiarity import Habit, keys_of
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.memory import Memory
from astray.features.paths import make_paths
from astray.features.popularity import Counted, Popularity, Visits
from astray.features.steps import Steps, steps_of
from astray.model.file import ModelFile
from astray.model.pretrained import pretrained
from astray.model.shared_training import popularity_of
from astray.model.store import POPULARITY
from astray.simulate import city
from fitted import claimed, featurizer_of, memory_of

QUICK: dict[str, Any] = {
    "iterations": 1,
    "sharing": {"least_agents": 2, "memories": 1, "demonstrations": 4, "imagined": 2, "reference": 10},
    "seed": 0,
}
HABITS = (Habit(cell=100), Habit(cell=1000))


@pytest.fixture(scope="module")
def people() -> Trajectories:
    return city(people=6, days=5, seed=0).trips


@pytest.fixture(scope="module")
def mine(people: Trajectories) -> Trajectories:
    return people.agent("p00")


@pytest.fixture(scope="module")
def others(people: Trajectories) -> Trajectories:
    return people.without("p00")


@pytest.fixture(scope="module")
def detector(mine: Trajectories, others: Trajectories) -> Detector:
    return Detector(**QUICK).fit(mine[:-5], population=others)


@pytest.fixture(scope="module")
def fleet(people: Trajectories) -> Detector:
    return Detector(**QUICK).fit(people)


def places(*metres: float) -> Steps:
    """Places so far to the north."""
    xy = np.column_stack([np.full(len(metres), 10.0), metres])
    return steps_of(make_paths(np.arange(float(len(metres))), xy, np.array([0, len(metres)])), 30.0)


def keys(*metres: float) -> np.ndarray[Any, Any]:
    return keys_of(places(*metres), HABITS)


def seen(popularity: Popularity, north: float, maker: str | None = None) -> list[int]:
    """How many agents go there, by each size of cell."""
    number = None if maker is None else popularity.number_of([maker])
    return [round(float(np.expm1(log))) for log in popularity.encode(keys(north), HABITS, number)[0]]


class TestCounting:
    """In a street that ann, bob and cid share; cid keeps to its far end."""

    popularity = Popularity((100.0, 1000.0)).visited(
        {"ann": keys(10, 11, 12).ravel(), "bob": keys(10).ravel(), "cid": keys(310).ravel()}
    )

    def test_agents_are_counted_once_by_each_size_of_cell(self) -> None:
        assert seen(self.popularity, 10) == [2, 3]
        assert seen(self.popularity, 310) == [1, 3]
        assert seen(self.popularity, 90_000) == [0, 0]

    def test_neither_the_maker_of_a_trip_nor_the_excluded_agent_counts(self) -> None:
        assert seen(self.popularity, 10, "ann") == [1, 2]
        assert seen(self.popularity, 10, "cid") == [2, 2]
        assert seen(self.popularity, 10, "dot") == [2, 3]
        by_ann = self.popularity.excluding("ann")
        assert seen(by_ann, 10) == [1, 2]
        assert seen(by_ann, 10, "bob") == [0, 1]
        assert seen(by_ann, 10, "ann") == [1, 2]  # once, and not twice
        assert seen(self.popularity.excluding("dot"), 10) == [2, 3]

    def test_further_places_of_an_agent_are_added(self) -> None:
        both = self.popularity.visited({"ann": keys(90_000).ravel(), "cid": keys(10).ravel()})
        assert seen(both, 10) == [3, 3]
        assert seen(both, 90_000) == [1, 1]
        assert seen(both, 90_000, "ann") == [0, 0]

    def test_a_removed_agent_leaves_no_counts(self) -> None:
        left = self.popularity.without(["ann", "nobody"])
        again = Popularity((100.0, 1000.0)).visited({"bob": keys(10).ravel(), "cid": keys(310).ravel()})
        assert left.agents.trip_ids == again.agents.trip_ids
        assert np.array_equal(left.agents.keys, again.agents.keys)
        assert np.array_equal(left.agents.trips, again.agents.trips)


class TestInAView:
    """A reward sees it beside what its agent remembers."""

    @staticmethod
    def statistics(featurizer: Featurizer, trips: Trajectories) -> np.ndarray[Any, Any]:
        found = featurizer.featurize(trips, every=False).statistics
        assert found is not None
        return found

    def test_an_agent_is_not_among_its_own_others(self, mine: Trajectories, others: Trajectories) -> None:
        featurizer = Featurizer.of(mine, FeaturizerConfig(), np.random.default_rng(0)).among(others)
        theirs = others.agent("p03")
        rest = replace(featurizer, popularity=featurizer.popularity.without(["p03"]))
        assert np.array_equal(self.statistics(featurizer, theirs), self.statistics(rest, theirs))
        # But in another's name it is.
        passed = claimed(theirs, "p00")
        assert not np.array_equal(self.statistics(featurizer, passed), self.statistics(rest, passed))

    def test_agents_without_a_name_do_not_count(self, mine: Trajectories, others: Trajectories) -> None:
        featurizer = Featurizer.of(mine, FeaturizerConfig(), np.random.default_rng(0))
        both = featurizer.among(Trajectories.concat([others, claimed(others, "")])).popularity
        assert both.agents.trip_ids == featurizer.among(others).popularity.agents.trip_ids
        assert np.array_equal(both.agents.keys, featurizer.among(others).popularity.agents.keys)

    def test_a_featurizer_may_do_without_popularity(self, mine: Trajectories, others: Trajectories) -> None:
        for config in (FeaturizerConfig(popularity=()), FeaturizerConfig(encoder="raw")):
            featurizer = Featurizer.of(mine, config, np.random.default_rng(0)).among(others)
            assert not len(featurizer.popularity.agents)


class TestADetector:
    """Kept, updated, forgotten."""

    def test_a_file_holds_the_popularity(self, detector: Detector, others: Trajectories, tmp_path: Path) -> None:
        assert set(featurizer_of(detector).popularity.agents.trip_ids) == set(others.agents)
        detector.save(tmp_path / "model")
        back = astray.load(tmp_path / "model")
        assert back.score(others[:9]).equals(detector.score(others[:9]))

    def test_where_others_go_is_known_even_if_they_are_too_few_to_teach(
        self, mine: Trajectories, others: Trajectories
    ) -> None:
        few = Trajectories.concat([others.agent(a)[:3] for a in ("p01", "p02")])
        alone, among = Detector(**QUICK).fit(mine[:-5]), Detector(**QUICK).fit(mine[:-5], population=few)
        assert among.reward_ is alone.reward_ is pretrained()
        assert not np.allclose(alone.score_samples(others[:9]), among.score_samples(others[:9]))

    def test_an_update_puts_others_in_and_whoever_joins_out(self, mine: Trajectories, others: Trajectories) -> None:
        known, new = others.without("p05"), others.agent("p05")
        detector = Detector(**QUICK).fit(mine[:-5], population=known)
        detector.partial_fit(mine[-5:], population=new)
        assert set(featurizer_of(detector).popularity.agents.trip_ids) == set(others.agents)
        detector.partial_fit(others.agent("p04")[:5])
        assert set(featurizer_of(detector).popularity.agents.trip_ids) == {*others.agents} - {"p04"}
        assert detector.agents == ["p00", "p04"]
        assert detector.unknown_agents(others) == []  # as with any pool
        # Who has joined is an other neither now nor later.
        detector.partial_fit(others.agent("p03")[:5], population=others)
        assert set(featurizer_of(detector).popularity.agents.trip_ids) == {*others.agents} - {"p03", "p04"}
        assert np.isfinite(detector.score_samples(mine)).all()


class TestForgetting:
    """Somebody of the population leaves a model that is another's."""

    @pytest.fixture
    def named(self, mine: Trajectories, others: Trajectories) -> Detector:
        """A model that holds somebody, whose name others' begin with, in every place that it can."""
        trips = Trajectories.concat([others.without("p02"), claimed(others.agent("p02"), "zoë")])
        trips = Trajectories.concat([trips, claimed(others.agent("p03")[:9], "zoë/b")])
        detector = Detector(**QUICK).fit(mine[:-5], population=trips)
        return detector.partial_fit(claimed(others.agent("p02")[:2], "zoë"), y=-1)

    def test_no_byte_of_the_name_or_of_the_places_is_left(
        self, named: Detector, mine: Trajectories, others: Trajectories, tmp_path: Path
    ) -> None:
        before = featurizer_of(named).popularity.agents
        number = before.trip_ids.index("zoë")
        elsewhere = np.union1d(before.keys[before.trips != number], featurizer_of(named).memory.keys)
        only_there = np.setdiff1d(before.keys[before.trips == number], elsewhere)
        assert len(only_there) > 10
        named.save(tmp_path / "model")
        assert holds(tmp_path / "model", "zoë", only_there)
        written = pieces(tmp_path / "model", POPULARITY)
        named.forget("zoë/b")
        named.forget("zoë")
        named.save(tmp_path / "model")
        assert not holds(tmp_path / "model", "zoë", only_there)
        gone, data = written - pieces(tmp_path / "model", POPULARITY), (tmp_path / "model").read_bytes()
        assert len(gone) > 100
        assert not [piece for piece in gone if piece in data]
        never = Detector(**QUICK).fit(mine[:-5], population=others.without("p02"))
        assert featurizer_of(named).popularity.agents.trip_ids == featurizer_of(never).popularity.agents.trip_ids
        assert np.array_equal(featurizer_of(named).popularity.agents.keys, featurizer_of(never).popularity.agents.keys)
        assert np.isfinite(astray.load(tmp_path / "model").score_samples(mine[-5:])).all()

    def test_an_agent_whose_name_only_begins_the_same_stays(self, named: Detector, others: Trajectories) -> None:
        named.partial_fit(claimed(others.agent("p03")[:1], "zoë/b"), y=-1)
        named.forget("zoë")
        assert "zoë/b" in featurizer_of(named).popularity.agents.trip_ids
        assert {trip.agent for trip in named.anomalous_} == {"zoë/b"}

    def test_a_member_of_a_pool_leaves_with_its_trips(self, people: Trajectories, tmp_path: Path) -> None:
        pool = people[np.isin(people.agent_ids, ["p00", "p01", "p02"])]
        detector = Detector(**QUICK, pooled=True).fit(pool, population=people.agent("p03"))
        detector.forget("p02")
        detector.save(tmp_path / "model")
        assert b"p02" not in (tmp_path / "model").read_bytes()
        assert detector.agents == ["p00", "p01"]
        assert detector.n_trips_ == len(pool.without("p02"))
        assert len(featurizer_of(detector).memory) == len(memory_of(detector).own.trips)

    def test_forgetting_an_unknown_agent_or_the_models_own_is_refused(self, named: Detector, tmp_path: Path) -> None:
        named.save(tmp_path / "before")
        with pytest.raises(DataError, match="knows nobody named 'nobody'"):
            named.forget("nobody")
        with pytest.raises(DataError, match="of 'p00' alone; delete its file"):
            named.forget("p00")
        named.save(tmp_path / "after")
        assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


def holds(file: Path, name: str, keys: NDArray[Any]) -> bool:
    """Returns True if a model file holds a name or a key: in its bytes, or in what it says where others go."""
    data = file.read_bytes()
    encodings = (name.encode(), name.encode("unicode_escape"), json.dumps(name).strip('"').encode())
    others = featurizer_of(astray.load(file)).popularity.by_name
    return any(text in data for text in encodings) or name in others.trip_ids or bool(np.isin(keys, others.keys).any())


def pieces(file: Path, part: str) -> set[bytes]:
    """Returns the pieces of a part of a model file, so long that none is anywhere else by chance."""
    data = ModelFile.open(file).shared(part)
    found = (data[i : i + 16] for i in range(len(data) - 15))
    return {piece for piece in found if len(set(piece)) > 8}


class TestAFleet:
    """What all see, each without itself."""

    def test_agents_that_taught_do_not_count_for_themselves(self, fleet: Detector, people: Trajectories) -> None:
        assert len(fleet.world_.popularity.agents) == len(people.agents)
        one, featurizer = people.agent("p02"), fleet.agent_model("p02").featurizer
        visits = featurizer.popularity.agents
        assert isinstance(visits, Visits)
        fewer = Visits(visits.counted.without(visits.cells))
        rest = replace(featurizer, popularity=replace(featurizer.popularity, agents=fewer))
        assert np.array_equal(TestInAView.statistics(featurizer, one), TestInAView.statistics(rest, one))

    def test_a_file_holds_the_popularity_and_forgetting_takes_an_agent_out(
        self, fleet: Detector, people: Trajectories, tmp_path: Path
    ) -> None:
        fleet.save(tmp_path / "fleet")
        back = astray.load(tmp_path / "fleet")
        assert isinstance(back, Detector)
        assert back.score(people[:20]).equals(fleet.score(people[:20]))
        back.forget("p04")
        others = popularity_of(people.without("p04"), fleet.world_.config)
        assert isinstance(back.world_.popularity.agents, Visits)
        assert isinstance(others.agents, Memory)
        assert len(back.world_.popularity.agents) == len(people.agents) - 1
        left, counted = back.world_.popularity.agents.counted, Counted.of(others.agents)
        assert np.isin(left.keys, counted.keys).mean() > 0.99  # the projection has another centre
