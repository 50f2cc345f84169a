"""The planned way: what was expected of a trip, given where it ended, and how long a detour it was."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from astray import Detector, Trajectories
from astray.core.projection import Projection
from astray.explain import planned_way as planning
from astray.explain.planned_way import PlannedWay, planned_way
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.moves import SIZE
from astray.service.review.explainer import packed, unpacked

TOWN = Projection(45.0, 7.0)
HOME, CORNER, WORK = (0.0, 0.0), (3000.0, 0.0), (3000.0, 3000.0)
NORTH_EAST = (0.0, 3000.0)  # the corner of the other way from home to work
USUAL, DETOUR = (HOME, CORNER, WORK), (HOME, (1500.0, 0.0), (1500.0, -1500.0), (3000.0, -1500.0), CORNER, WORK)


def drive(name: str, *stops: tuple[float, float], agent: str = "ann", day: int = 0, near: Projection = TOWN):
    """A trip along some corners, in metres, at 8 m/s, with a fix every ten seconds."""
    corners = np.array(stops)
    reached = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(corners, axis=0).T))])
    along = np.append(np.arange(0.0, reached[-1], 80.0), reached[-1])
    lat, lon = near.to_degrees(np.column_stack([np.interp(along, reached, column) for column in corners.T]))
    time = 1.7e9 + 86_400.0 * day + 10.0 * np.arange(len(along))
    return Trajectories.from_fixes(time=time, lat=lat, lon=lon, agent=agent, trajectory=name)


def past(*corners: tuple[float, float], n: int = 10, agent: str = "ann", near: Projection = TOWN) -> Trajectories:
    return Trajectories.concat([drive(f"{agent}{i}", *corners, agent=agent, day=i, near=near) for i in range(n)])


def remembering(trips: Trajectories) -> Featurizer:
    return Featurizer.of(trips, FeaturizerConfig(), np.random.default_rng(0)).remember(trips)


def plan_of(featurizer: Featurizer, trip: Trajectories, habitual: Trajectories | None = None) -> PlannedWay | None:
    number = int(featurizer.memory.number_of(trip.ids)[0])
    ways = [] if habitual is None else [(way.columns["lat"], way.columns["lon"]) for way in habitual]
    return planned_way(featurizer.rows(trip), featurizer, ways, number)


def apart(plan: PlannedWay, *corners: tuple[float, float]) -> float:
    """The greatest distance of a planned way from a way along corners, in metres."""
    places = TOWN.to_metres(plan.lat, plan.lon)
    dense = np.concatenate([np.linspace(a, b, 100) for a, b in pairwise(np.array(corners))])
    return float(np.hypot(*(places[:, None] - dense[None]).transpose(2, 0, 1)).min(axis=1).max())


def test_a_detour_leaves_the_planned_way_and_comes_back_to_it() -> None:
    known = past(*USUAL)
    plan = plan_of(remembering(known), drive("detour", *DETOUR), known)
    assert plan is not None
    assert apart(plan, *USUAL) < 30.0
    (x0, y0), (x1, y1) = TOWN.to_metres(plan.lat, plan.lon)[[0, -1]].tolist()
    assert x0 == pytest.approx(1500.0, abs=2 * SIZE)
    assert y0 == pytest.approx(0.0, abs=30.0)
    assert (x1, y1) == pytest.approx((3000.0, 0.0), abs=2 * SIZE)
    assert plan.longer == pytest.approx(3000.0, abs=2 * SIZE)
    assert plan.planned == pytest.approx(6000.0, abs=2 * SIZE)
    assert plan.regret > 10.0


def test_without_past_ways_to_draw_it_runs_through_the_middles_of_cells() -> None:
    plan = plan_of(remembering(past(*USUAL)), drive("detour", *DETOUR))
    assert plan is not None
    assert 0.0 < apart(plan, *USUAL) < SIZE


def test_the_memory_that_plans_a_trip_does_not_hold_it() -> None:
    """With and without the trip among the past ones the plan is the same."""
    detour = drive("detour", *DETOUR, day=20)
    without, held = (plan_of(remembering(trips), detour) for trips in (past(*USUAL), _joined(past(*USUAL), detour)))
    assert without is not None
    assert held is not None
    np.testing.assert_array_equal(held.lat, without.lat)
    assert held.regret == pytest.approx(without.regret, rel=1e-5)
    # A second trip of the same way does count.
    again = drive("again", *DETOUR, day=21)
    both = plan_of(remembering(_joined(past(*USUAL), detour, again)), detour)
    assert both is None or both.regret < held.regret - 5.0


def _joined(*trips: Trajectories) -> Trajectories:
    return Trajectories.concat(list(trips))


def test_a_trip_that_keeps_to_the_planned_way_has_none_to_show() -> None:
    assert plan_of(remembering(past(*USUAL)), drive("usual", *USUAL, day=30)) is None


def test_where_the_agent_never_was_the_ways_of_others_are_expected() -> None:
    elsewhere = past((-9000.0, 0.0), (-6000.0, 0.0))
    strange = drive("strange", HOME, NORTH_EAST, WORK, day=30)
    featurizer = remembering(elsewhere)
    others = Trajectories.concat([past(*USUAL, agent=f"p{i}", n=1) for i in range(8)])
    plan = plan_of(featurizer.among(others), strange)
    assert plan is not None
    assert apart(plan, *USUAL) < SIZE
    assert not plan.longer, "what others do is not expected of the agent"
    assert plan_of(featurizer, strange) is None, "on unknown ground there is nothing to expect"


def test_a_plan_to_an_end_where_the_agent_never_was_uses_known_ways_as_far_as_they_go() -> None:
    beyond = (4500.0, 3000.0)
    trip = drive("new end", HOME, NORTH_EAST, WORK, beyond, day=30)
    plan = plan_of(remembering(past(*USUAL)), trip)
    assert plan is not None
    assert apart(plan, *USUAL, beyond) < 2 * SIZE


def test_a_way_round_a_block_of_unknown_streets_is_no_detour() -> None:
    """A plan over unknown ground may lead straight across, which no street need do."""
    trip = drive("new end", (0.0, 3000.0), HOME, (1500.0, 0.0), (1500.0, -3000.0), day=30)
    plan = plan_of(remembering(past((0.0, 3000.0), *USUAL)), trip)
    assert plan is None or plan.longer == 0.0


def test_there_is_no_plan_for_round_trips_for_trips_in_one_cell_and_for_those_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    featurizer = remembering(past(*USUAL))
    assert plan_of(featurizer, drive("round", HOME, NORTH_EAST, WORK, CORNER, HOME)) is None
    assert plan_of(featurizer, drive("short", HOME, (20.0, 20.0))) is None
    detour = drive("detour", *DETOUR)
    assert plan_of(featurizer, detour) is not None
    monkeypatch.setattr(planning, "MOST_CELLS", 400)
    assert plan_of(featurizer, detour) is None


def test_of_a_trip_with_a_gap_the_longer_part_is_planned() -> None:
    first, second = drive("both", (0.0, -9000.0), (1000.0, -9000.0)), drive("both", *DETOUR)
    columns = {name: np.append(first.columns[name], second.columns[name]) for name in ("lat", "lon")}
    later = second.columns["time"] + 3000.0 + first.columns["time"][-1] - second.columns["time"][0]
    both = Trajectories.from_fixes(
        time=np.append(first.columns["time"], later), **columns, agent="ann", trajectory="both"
    )
    featurizer = remembering(past(*USUAL))
    whole, part = plan_of(featurizer, both), plan_of(featurizer, drive("detour", *DETOUR))
    assert whole is not None
    assert part is not None
    np.testing.assert_allclose([whole.lat, whole.lon], [part.lat, part.lon], atol=1e-4)


def test_an_excursion_has_its_goal_where_it_turned() -> None:
    """It ended a block from where it began: the way there says nothing about the way that it took."""
    featurizer = remembering(_joined(past(*USUAL), past((0.0, 600.0), HOME, agent="ben")))
    assert (
        plan_of(featurizer, drive("out", HOME, NORTH_EAST, WORK, (1500.0, 3000.0), (1500.0, 0.0), (600.0, 0.0))) is None
    )


def test_after_a_long_stay_a_trip_goes_on_to_another_goal() -> None:
    """To work by a detour, and home in the evening: the longer part counts, which is the detour."""
    there, back = drive("day", *DETOUR), drive("day", *USUAL[::-1])
    for hours, is_stay in ((8.0, True), (0.05, False)):
        pause = 3600.0 * hours
        waits = np.arange(60.0, pause, 60.0) + there.columns["time"][-1]
        after = back.columns["time"] - back.columns["time"][0] + there.columns["time"][-1] + pause
        at = {name: np.full(len(waits), there.columns[name][-1]) for name in ("lat", "lon")}
        lat, lon = (np.concatenate([there.columns[n], at[n], back.columns[n]]) for n in ("lat", "lon"))
        time = np.concatenate([there.columns["time"], waits, after])
        day = Trajectories.from_fixes(time=time, lat=lat, lon=lon, agent="ann", trajectory="day")
        plan = plan_of(remembering(past(*USUAL)), day)
        assert (plan is not None) == is_stay
        if plan is not None:
            assert apart(plan, *USUAL) < SIZE
            assert plan.longer == pytest.approx(3000.0, abs=2 * SIZE)


def test_between_two_bands_of_latitude_the_longer_part_is_planned() -> None:
    border = Projection(45.25, 7.0)  # the cells of the north are aligned anew
    usual = ((0.0, 500.0), (0.0, -3000.0), (3000.0, -3000.0))
    featurizer = remembering(past(*usual, near=border))
    around = (usual[0], (0.0, -1000.0), (-1500.0, -1000.0), (-1500.0, -3000.0), *usual[1:])
    plan = plan_of(featurizer, drive("across", *around, near=border))
    assert plan is not None
    assert plan.longer == pytest.approx(3000.0, abs=2 * SIZE)
    assert (plan.lat < 45.25).all()


@pytest.mark.parametrize(("taken", "planned", "longer"), [(3000, 2000, 1000), (2400, 2000, 0), (9500, 8500, 0)])
def test_small_differences_are_no_detour(taken: float, planned: float, longer: float) -> None:
    assert PlannedWay(np.zeros(2), np.zeros(2), 5.0, taken, planned, True).longer == longer


def test_an_explanation_shows_the_planned_way_and_says_how_much_longer_the_trip_was() -> None:
    detector = Detector(seed=0, eps=-1.0).fit(past(*USUAL, n=40))
    said = detector.explain(drive("detour", *DETOUR, day=50))
    assert said.decision != "normal"
    ((lat, lon),) = said.expected
    assert apart(PlannedWay(lat, lon, 0.0, 0.0, 0.0, True), *USUAL) < 30.0
    assert said.longer == pytest.approx(3000.0, abs=2 * SIZE)
    assert said.words[-1] == f"about {said.longer / 1000:.1f} km longer than the way that was expected of it"
    assert said.words[-1] in said.why
    assert said.words[-1] in str(said)
    of_page = unpacked(packed(said).data)
    assert of_page["words"] == list(said.words)
    np.testing.assert_allclose(of_page["expected"]["coordinates"], np.column_stack([lon, lat]), atol=1e-6)
    usual = detector.explain(drive("usual", *USUAL, day=50))
    assert usual.longer == 0.0
    assert "longer than the way" not in str(usual)
