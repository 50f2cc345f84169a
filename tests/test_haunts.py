"""Haunts: how many others go to a place; nobody is an other to itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import astray
from astray import FleetDetector, IRLDetector, Trajectories
from astray.detectors.sharing import Pupil, SharingConfig, _among
from astray.errors import DataError
from astray.mdp.haunts import Haunts
from astray.mdp.projection import Projection
from astray.mdp.view import View, ViewConfig
from astray.mdp.world import GeoWorld
from astray.modelfile import read, write
from astray.simulate import city

QUICK: dict[str, Any] = {
    "iterations": 2,
    "config": {"updates": 5, "rollouts": 0, "imagined": 60},
    "seed": 0,
}
SHARING = {"demonstrations": 10, "short_demonstrations": 5, "others": 5}


FEW = 10


@pytest.fixture(scope="module", autouse=True)
def few_are_enough() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("astray.mdp.haunts.FEWEST", FEW)
        yield


@pytest.fixture(scope="module")
def people() -> Trajectories:
    return city(people=FEW + 2, days=5, seed=0).trips


@pytest.fixture(scope="module")
def mine(people: Trajectories) -> Trajectories:
    return people.agent("p00")


@pytest.fixture(scope="module")
def others(people: Trajectories) -> Trajectories:
    return people.without("p00")


@pytest.fixture(scope="module")
def detector(mine: Trajectories, others: Trajectories) -> IRLDetector:
    return IRLDetector(**QUICK).fit(mine[:-5], population=others)


@pytest.fixture(scope="module")
def fleet(people: Trajectories) -> FleetDetector:
    return FleetDetector(iterations=2, sharing=SHARING, seed=0).fit(people)


def seen(haunts: Haunts, lat: float, lon: float, own: list[str] | None = None) -> list[int]:
    """How many agents go there, by each size of cell."""
    number = None if own is None else haunts.number_of(own)
    return [round(float(np.expm1(log))) for log in haunts.encode(np.array([lat]), np.array([lon]), number)[0]]


class TestCounting:
    """In a square of streets that ann, bob and cid share."""

    haunts = Haunts((100.0, 1000.0)).visited(
        ["ann", "bob", "cid"],
        np.array([0, 1, 2, 0]),
        np.array([41.15, 41.15, 41.1520, 41.15]),
        np.array([-8.61] * 4),
    )

    def test_agents_are_counted_once_by_each_size_of_cell(self) -> None:
        assert seen(self.haunts, 41.15, -8.61) == [2, 3]
        assert seen(self.haunts, 41.1520, -8.61) == [1, 3]
        assert seen(self.haunts, 42.0, -8.61) == [0, 0]

    def test_who_made_the_trip_and_who_looks_do_not_count(self) -> None:
        assert seen(self.haunts, 41.15, -8.61, ["ann"]) == [1, 2]
        assert seen(self.haunts, 41.15, -8.61, ["cid"]) == [2, 2]
        assert seen(self.haunts, 41.15, -8.61, ["dot"]) == [2, 3]
        by_ann = self.haunts.seen_by("ann")
        assert seen(by_ann, 41.15, -8.61) == [1, 2]
        assert seen(by_ann, 41.15, -8.61, ["bob"]) == [0, 1]
        assert seen(by_ann, 41.15, -8.61, ["ann"]) == [1, 2]  # once, and not twice
        assert seen(self.haunts.seen_by("dot"), 41.15, -8.61) == [2, 3]

    def test_further_places_of_an_agent_are_added(self) -> None:
        both = self.haunts.visited(["ann", "cid"], np.array([0, 1]), np.array([42.0, 41.15]), np.array([-8.61] * 2))
        assert seen(both, 41.15, -8.61) == [3, 3]
        assert seen(both, 42.0, -8.61) == [1, 1]
        assert seen(both, 42.0, -8.61, ["ann"]) == [0, 0]

    def test_what_is_taken_out_leaves_nothing(self) -> None:
        left = self.haunts.without(["ann", "nobody"])
        places = np.array([41.15, 41.1520]), np.array([-8.61] * 2)
        again = Haunts((100.0, 1000.0)).visited(["bob", "cid"], np.arange(2), *places)
        assert left.agents.trip_ids == again.agents.trip_ids
        assert np.array_equal(left.agents.keys, again.agents.keys)
        assert np.array_equal(left.agents.trips, again.agents.trips)

    def test_a_cell_is_as_wide_as_it_is_high_anywhere(self) -> None:
        for lat in (0.0, 41.15, 65.0):
            metre = 1 / (111_195.0 * np.cos(np.radians(lat)))
            steps = np.arange(0, 10_000, 20) * metre
            haunts = Haunts((500.0,)).visited(["ann"], np.zeros(len(steps), int), np.full(len(steps), lat), 7.0 + steps)
            # Ten kilometres, on two grids: twenty cells and a broken one on each.
            assert 40 <= len(haunts.agents.keys) <= 43

    def test_one_place_is_seen_as_many_are(self) -> None:
        rng = np.random.default_rng(0)
        lat, lon = 41.0 + 0.01 * rng.random(400), -8.0 + 0.01 * rng.random(400)
        haunts = Haunts((150.0, 500.0)).visited([*"012345678"], rng.integers(0, 9, 300), lat[:300], lon[:300])
        for eyes in (haunts, haunts.seen_by("3"), haunts.seen_by("nobody")):
            at_once = eyes.encode(lat, lon)
            assert np.array_equal(
                [eyes.encode_one(*place) for place in zip(lat.tolist(), lon.tolist(), strict=True)], at_once
            )
            # Whatever was seen before, and whoever made the trip.
            own = rng.integers(-1, 9, 400)
            rows = [eyes.encode(lat[i : i + 1], lon[i : i + 1], own[i : i + 1])[0] for i in range(400)]
            assert np.array_equal(rows, eyes.encode(lat, lon, own))


class TestInAView:
    """A reward sees them beside what its agent remembers."""

    def test_only_of_enough_agents_and_only_where_others_teach(
        self, mine: Trajectories, others: Trajectories, detector: IRLDetector
    ) -> None:
        assert detector.view_ is not None
        assert detector.view_.names[-2:] == ["others, cell 150 m", "others, cell 500 m"]
        few = others[np.isin(others.agent_ids, [f"p{i:02d}" for i in range(1, FEW)])]
        for quiet in (
            IRLDetector(**QUICK).fit(mine, population=few),
            IRLDetector(**QUICK).fit(mine),
            IRLDetector(**QUICK, weights={"explore": 1.0}).fit(mine, population=others),
            IRLDetector(**QUICK, view={"haunts": ()}).fit(mine, population=others),
            IRLDetector(**QUICK, encoder="raw").fit(mine, population=others),
        ):
            assert quiet.view_ is not None
            assert not quiet.view_.haunts.cells
            assert not any(name.startswith("others") for name in quiet.view_.names)

    def test_where_an_agent_lives_does_not_matter(self, mine: Trajectories, others: Trajectories) -> None:
        view = View.of(mine, ViewConfig(), np.random.default_rng(0)).among(others)
        shifted = replace(view, projection=Projection(view.projection.lat + 0.03, view.projection.lon - 0.05))
        one, other = (v.look(mine).features[:, -2:] for v in (view, shifted))
        # A fix on an edge may fall to either side of it.
        assert np.mean(one == other) > 0.999
        assert one.max() > 0

    def test_nobody_is_an_other_to_itself(self, mine: Trajectories, others: Trajectories) -> None:
        view = View.of(mine, ViewConfig(), np.random.default_rng(0)).among(others)
        theirs = others.agent("p03")
        rest = replace(view, haunts=view.haunts.without(["p03"]))
        for look in (lambda v: v.look(theirs).features, lambda v: GeoWorld.of(mine, v).others(theirs).features):
            assert np.array_equal(look(view), look(rest))
        assert not np.array_equal(
            view.look(claimed(theirs, "p00")).features, rest.look(claimed(theirs, "p00")).features
        )

    def test_who_has_no_name_does_not_count(self, mine: Trajectories, others: Trajectories) -> None:
        view = View.of(mine, ViewConfig(), np.random.default_rng(0))
        both = view.among(Trajectories.concat([others, claimed(others, "")])).haunts
        assert both.agents.trip_ids == view.among(others).haunts.agents.trip_ids
        assert np.array_equal(both.agents.keys, view.among(others).haunts.agents.keys)
        assert not view.among(claimed(others, "")).haunts.cells

    @pytest.mark.parametrize("cells", [(0.0,), (-5.0, 500.0), (float("nan"),), (float("inf"),)])
    def test_cells_have_a_size(self, cells: tuple[float, ...]) -> None:
        with pytest.raises(DataError, match="positive"):
            ViewConfig(haunts=cells)

    def test_they_stay_as_they_were_when_rows_are_seen_again(self, mine: Trajectories, others: Trajectories) -> None:
        world = GeoWorld.of(mine, View.of(mine, ViewConfig(), np.random.default_rng(0)).among(others))
        rows = world.others(others)
        assert np.array_equal(world.refresh(rows).features, rows.features)


class TestADetector:
    """Kept, updated, forgotten."""

    def test_a_file_holds_them(self, detector: IRLDetector, others: Trajectories, tmp_path: Path) -> None:
        detector.save(tmp_path / "model")
        back = astray.load(tmp_path / "model")
        assert back.score(others[:9]).equals(detector.score(others[:9]))

    def test_an_update_puts_others_in_and_whoever_joins_out(self, mine: Trajectories, others: Trajectories) -> None:
        known, new = others.without("p05"), others.agent("p05")
        detector = IRLDetector(**QUICK).fit(mine[:-5], population=known)
        detector.partial_fit(mine[-5:], population=new)
        assert detector.view_ is not None
        assert set(detector.view_.haunts.agents.trip_ids) == set(others.agents)
        detector.partial_fit(others.agent("p04")[:5])
        assert set(detector.view_.haunts.agents.trip_ids) == {*others.agents} - {"p04"}
        # So many join that few others are left; and who has joined is an other neither now nor later.
        detector.partial_fit(others.agent("p03")[:5], population=others)
        assert set(detector.view_.haunts.agents.trip_ids) == {*others.agents} - {"p03", "p04"}
        assert len(detector.view_.haunts.agents) < FEW
        assert detector.population_ is not None
        assert not {"p03", "p04"} & set(detector.population_.agents)
        assert np.isfinite(detector.score_samples(mine)).all()

    def test_a_file_whose_cells_have_no_size_is_refused(self, detector: IRLDetector, tmp_path: Path) -> None:
        detector.save(tmp_path / "model")
        model = read(tmp_path / "model")
        write(tmp_path / "forged", model.kind, model.values | {"view.haunts": (0.0, 500.0)}, model.arrays)
        with pytest.raises(astray.errors.ModelFileError, match="no size"):
            astray.load(tmp_path / "forged")


class TestAFleet:
    """What all see, each without itself."""

    def test_agents_that_taught_do_not_count_for_themselves(self, fleet: FleetDetector, people: Trajectories) -> None:
        assert set(fleet.haunts_.agents.trip_ids) == set(people.agents)
        one = people.agent("p02")
        view = fleet.lens("p02").view
        world, without = (GeoWorld.seen(one, v) for v in (view, replace(view, haunts=view.haunts.without(["p02"]))))
        assert world is not None
        assert without is not None
        assert np.array_equal(world.demonstrations().features, without.demonstrations().features)
        assert np.array_equal(
            view.look(one).features, replace(view, haunts=view.haunts.without(["p02"])).look(one).features
        )

    def test_a_file_holds_them_and_forgetting_takes_them_out(
        self, fleet: FleetDetector, people: Trajectories, tmp_path: Path
    ) -> None:
        fleet.save(tmp_path / "fleet")
        back = astray.load(tmp_path / "fleet")
        assert isinstance(back, FleetDetector)
        assert back.score(people[:20]).equals(fleet.score(people[:20]))
        back.forget("p07")
        assert "p07" not in back.haunts_.agents.trip_ids
        assert np.array_equal(back.haunts_.agents.keys, fleet.haunts_.without(["p07"]).agents.keys)

    def test_a_file_whose_reward_sees_more_than_its_view_is_refused(self, fleet: FleetDetector, tmp_path: Path) -> None:
        fleet.save(tmp_path / "fleet")
        model = read(tmp_path / "fleet")
        values = {name: value for name, value in model.values.items() if name != "haunts"}
        write(tmp_path / "without", model.kind, values, model.arrays)
        with pytest.raises(astray.errors.ModelFileError, match="do not fit together"):
            astray.load(tmp_path / "without")

    def test_nor_do_they_while_they_teach(self, people: Trajectories) -> None:
        rng = np.random.default_rng(0)
        pupils, everybody = _among(
            [Pupil.of(people.agent(a), ViewConfig(), SharingConfig(), rng) for a in people.agents]
        )
        for pupil in pupils[:3]:
            rest = replace(pupil.view, haunts=everybody.without([pupil.agent]))
            for trips in (pupil.training, pupil.left_out):
                one, other = (GeoWorld.seen(trips, v) for v in (pupil.view, rest))
                assert one is not None
                assert other is not None
                assert np.array_equal(one.demonstrations().features, other.demonstrations().features)
            theirs = [GeoWorld.of(pupil.training, v).others(pupils[5].training).features for v in (pupil.view, rest)]
            assert np.array_equal(*theirs)

    def test_an_agent_with_a_reward_of_its_own_sees_them_too(self, people: Trajectories) -> None:
        least = int(np.unique(people.agent_ids, return_counts=True)[1].min())
        able = FleetDetector(iterations=2, sharing=SHARING, tuning={"iterations": 1, "least_trips": least}, seed=0)
        able.fit(people)
        able.fine_tune(people, agents=["p01"])
        spread = able.tuned_["p01"].posterior.scale[-2:]
        assert (spread > 0.1).all()  # that of a constant would be nothing, or 1
        assert (spread != 1.0).all()
        assert np.isfinite(able.score_samples(people.agent("p01"))).all()


def claimed(trips: Trajectories, agent: str) -> Trajectories:
    names = [f"{a}-{t}" for a, t in zip(trips.agent_ids.tolist(), trips.trajectory_ids.tolist(), strict=True)]
    return Trajectories(trips.columns, trips.offsets, [agent] * len(trips), names, trips.context)
