"""Simulated worlds: towns, modes, lives, loggers and changes that differ by seed, and the switches for each."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest

from astray import Trajectories
from astray.core.projection import Projection
from astray.simulate import ANOMALY_KINDS, Simulation, Variety, city, world
from astray.simulate.city_plan import city_streets
from astray.simulate.gps_loggers import Logger, record
from astray.simulate.movement import DAY, HOUR, move
from astray.simulate.route_choice import Traveller
from astray.simulate.routes import BUS, METRO, MODES, NOWHERE, WALK, Journey, Route, chain
from astray.simulate.street_plans import PLANS, gabriel_graph, lay_out
from astray.simulate.streets import cheapest_paths
from astray.simulate.town import make_town
from astray.simulate.transit import legs_of

SWITCHES = tuple(field.name for field in fields(Variety))
COLUMNS = ("time", "lat", "lon")

CITY_FIRST = (1736153750.8336697, 44.9697859993856, 6.971597813311713)
"""Time, latitude and longitude of the first fix in the city of seed 0."""


def digest(trips: Trajectories) -> str:
    return hashlib.sha256(b"".join(trips.columns[name].tobytes() for name in COLUMNS)).hexdigest()


def metres(sim: Simulation, trips: Trajectories) -> np.ndarray:
    return Projection(*sim.streets.centre).to_metres(trips.columns["lat"], trips.columns["lon"])


def only(name: str) -> Variety:
    return replace(Variety.none(), **{name: True})


# ---------------------------------------------------------------- reproducibility


def test_the_same_seed_makes_identical_worlds_changes_and_anomalies():
    a, b, c = (world(seed, people=2, days=14) for seed in (6, 6, 7))
    assert digest(a.trips) == digest(b.trips) != digest(c.trips)
    assert a.changes == b.changes
    x, y = (sim.inject(sim.trips, ("speeding", "loiter"), rate=0.1, seed=1) for sim in (a, b))
    assert digest(x) == digest(y)


def test_a_persons_trips_and_changes_do_not_depend_on_the_other_people(worlds: list[Simulation]):
    many, few, alone = worlds[2], world(2, people=[0, 3], days=42), world(2, people=[3], days=42)
    for sim in (few, alone):
        assert digest(sim.trips.agent("p03")) == digest(many.trips.agent("p03"))
        assert [c for c in sim.changes if c.person == "p03"] == [c for c in many.changes if c.person == "p03"]


def test_a_world_without_variety_is_the_city():
    assert digest(world(5, people=3, days=10, variety=Variety.none()).trips) == digest(city(3, 10, 5).trips)


def test_the_city_of_a_seed_is_the_same_as_in_earlier_versions():
    trips = city(people=2, days=7, seed=0).trips
    assert list(trips.context) == ["mode"]
    assert set(trips.context["mode"].tolist()) <= {"walk", "cycle", "drive"}
    first = np.array([trips.columns[name][0] for name in COLUMNS])
    np.testing.assert_allclose(first, CITY_FIRST, rtol=0, atol=1e-7)
    sparse = city(people=4, days=20, seed=9, interval=(100, 400)).trips  # where a gap takes most of a record
    assert sparse.n_rows == 2189
    assert sparse.columns["lat"].mean() == pytest.approx(44.99910838274678, abs=1e-9)


@pytest.mark.parametrize("name", SWITCHES)
def test_each_switch_of_variety_changes_only_its_own_subject(name: str):
    days = 42 if name == "drift" else 10
    plain, varied = (world(1, people=4, days=days, variety=v) for v in (Variety.none(), only(name)))
    assert digest(plain.trips) != digest(varied.trips)
    assert (varied.streets.centre != plain.streets.centre) == (name == "towns")
    assert bool(varied.town.lines) == (name == "modes")
    assert any(who.ride.fickle is not None for who in varied.people) == (name == "modes")
    assert any(who.life != "commuter" for who in varied.people) == (name == "lives")
    assert any(not who.logger.is_default for who in varied.people) == (name == "loggers")
    assert bool(varied.changes) == (name == "drift")
    assert bool((varied.trips.context["phase"] > 0).any()) == (name == "drift")


# ---------------------------------------------------------------- towns


def test_towns_differ_in_size_and_position_on_earth():
    towns = [make_town(seed, only("towns")) for seed in range(12)]
    reach = np.array([np.quantile(np.hypot(*town.places.xy.T), 0.95) for town in towns])
    assert reach.max() > 4 * reach.min()
    assert reach.min() > 800
    assert reach.max() < 25_000
    centres = np.array([town.streets.centre for town in towns])
    assert np.ptp(centres[:, 0]) > 30
    assert np.ptp(centres[:, 1]) > 90


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("radius", [2000.0, 18_000.0])
def test_the_streets_of_every_plan_are_connected(plan: str, radius: float):
    streets = lay_out(plan, radius, 200.0, (0.0, 0.0), np.random.default_rng(1))
    least, _ = cheapest_paths(streets, [1.0] * (2 * len(streets.edges)), 0)
    assert np.isfinite(least).all()
    assert 100 < len(streets.xy) < 4000
    assert streets.length.min() > 1.0
    assert np.hypot(*streets.xy.T).max() < 2 * radius


def test_gabriel_graph_joins_exactly_the_pairs_with_an_empty_circle():
    points = np.random.default_rng(0).uniform(0, 1, (60, 2))
    found = {tuple(pair) for pair in gabriel_graph(points, among=59).tolist()}
    for a in range(60):
        for b in range(a + 1, 60):
            others = np.delete(np.arange(60), [a, b])
            middle, reach = (points[a] + points[b]) / 2, np.hypot(*(points[a] - points[b])) / 2
            assert ((a, b) in found) == bool((np.hypot(*(points[others] - middle).T) >= reach).all())


def test_people_sleep_at_night_by_the_solar_hour_of_the_projection(worlds: list[Simulation]):
    hours = []
    for sim in [*worlds, *(world(seed, people=8, days=14) for seed in (11, 12, 13))]:
        trips = sim.trips[np.isin(sim.trips.context["life"], ["commuter", "parent", "pensioner"])]
        lat, lon = (float(np.median(trips.columns[name])) for name in ("lat", "lon"))
        ahead = Projection(lat, lon).solar_offset
        hours.append((trips.columns["time"][trips.offsets[:-1]] + ahead) / HOUR % 24)
    for hour in hours:
        assert ((hour > 5) & (hour < 24)).mean() > 0.95


# ---------------------------------------------------------------- modes


def test_a_ride_has_a_walk_to_the_stop_a_wait_and_a_walk_to_the_door(worlds: list[Simulation]):
    seen = 0
    for sim in worlds:
        for trip in np.flatnonzero((sim.plans.mode >= BUS) & (sim.plans.variant == 0))[:20].tolist():
            traveller = Traveller(sim.town, sim.people[int(sim.plans.person[trip])])
            origin, destination = int(sim.plans.origin[trip]), int(sim.plans.destination[trip])
            if sim.plans.via[trip]:
                continue
            route = traveller.route(origin, destination, BUS)
            mode = route.mode
            assert mode[0] == mode[-2] == WALK
            assert route.rides
            np.testing.assert_allclose(route.xy[[0, -1]], sim.places.xy[[origin, destination]])
            boards = np.flatnonzero((mode[1:] >= BUS) & (mode[:-1] == WALK)) + 1
            assert (route.dwell[boards] >= 60.0).all()
            seen += 1
    assert seen >= 10


def test_a_path_through_platforms_becomes_one_ride_with_its_stops(worlds: list[Simulation]):
    sim = max(worlds, key=lambda one: len(one.town.lines))
    line, network = sim.town.lines[0], sim.town.network
    first = len(sim.streets.xy)
    path = [line.path[line.stops[0]], first, first + 1, first + 2, line.path[line.stops[2]]]
    legs = legs_of(sim.streets, sim.town.lines, network, path)
    ride = next(leg for leg in legs if leg.rides)
    assert set(ride.mode.tolist()) == {line.mode}
    np.testing.assert_array_equal(ride.xy[[0, -1]], sim.streets.xy[[path[0], path[-1]]])
    assert (ride.dwell > 0).sum() == 3


def test_loggers_record_nothing_underground():
    xy = np.array([[0.0, 0.0], [300.0, 0.0], [4300.0, 0.0], [4600.0, 0.0]])
    route = Route(xy, np.full(4, -1), np.array([0, -1, 0, -1]), np.array([WALK, METRO, WALK, WALK]), np.zeros(4))
    motion = move(city_streets(np.random.default_rng(0)), [Journey(route, METRO, 0.0, 1.0)], np.random.default_rng(0))
    fixes = record(motion, [Logger(2.0)], np.random.default_rng(1))
    assert not ((fixes.xy[:, 0] > 330) & (fixes.xy[:, 0] < 4270)).any()
    assert (fixes.xy[:, 0] < 280).sum() > 50
    assert (fixes.xy[:, 0] > 4320).sum() > 50
    assert 150 < np.diff(fixes.seconds).max() < 400


def test_shares_of_modes_differ_between_towns(worlds: list[Simulation]):
    shares = np.array([np.bincount(sim.plans.mode, minlength=6) / len(sim.plans.mode) for sim in worlds])
    assert np.ptp(shares[:, BUS:].sum(axis=1)) > 0.03
    assert shares[:, BUS:].sum() > 0.1
    assert (shares[:, :3].mean(axis=0) > 0.02).all()


# ---------------------------------------------------------------- lives


def test_all_kinds_of_life_occur_and_taxis_visit_more_of_town_than_pensioners(worlds_of_lives: list[Simulation]):
    lives: dict[str, list[int]] = {}  # for each kind of life, the number of 200 m cells that each person visits
    for sim in worlds_of_lives:
        for who in sim.people:
            mine = np.unique(metres(sim, sim.trips.agent(who.id)) // 200, axis=0) if who.id in sim.trips.agents else []
            lives.setdefault(who.life, []).append(len(mine))
    assert set(lives) == {"commuter", "shift", "student", "pensioner", "parent", "courier", "taxi"}
    assert np.median(lives["taxi"]) > 3 * np.median(lives["pensioner"])
    assert np.median(lives["taxi"]) > np.median(lives["commuter"]) > np.median(lives["pensioner"])


def test_people_share_homes_and_workplaces(worlds_of_lives: list[Simulation]):
    people = worlds_of_lives[0].people
    homes, works = (len({getattr(who, name) for who in people}) for name in ("home", "work"))
    assert homes < 38
    assert works < 32


def test_shifts_rotate_weekly_and_students_go_out_at_night(worlds_of_lives: list[Simulation]):
    sim = worlds_of_lives[0]
    position = {life: [i for i, who in enumerate(sim.people) if who.life == life] for life in ("shift", "student")}
    starts = []
    for i in position["shift"]:
        mine, who = sim.plans.of(i), sim.people[i]
        to_work = (mine.destination == who.work) & (mine.origin == who.home)
        starts.append(np.unique(np.round((mine.depart[to_work] / HOUR % 24) / 8) % 3))
    assert np.mean([len(own) for own in starts]) == 3
    hour = np.concatenate([sim.plans.of(i).depart for i in position["student"]]) / HOUR % 24
    assert ((hour < 5) | (hour > 22)).mean() > 0.05


# ---------------------------------------------------------------- loggers


def test_numbers_of_trips_and_intervals_differ_widely_between_people():
    sim = world(3, people=25, days=60)
    counts = np.unique(sim.trips.agent_ids, return_counts=True)[1]
    assert counts.min() >= 5
    assert counts.max() > 150
    assert np.quantile(counts, 0.25) < 0.5 * np.quantile(counts, 0.75)
    intervals = np.array([who.interval for who in sim.people])
    assert intervals.min() < 3
    assert intervals.max() > 60
    assert sim.trips.n_rows < 5_000_000


def test_loggers_switched_on_late_or_off_early_miss_the_ends_of_trips(world_of_loggers: Simulation):
    sim = world_of_loggers
    at = metres(sim, sim.trips)
    first, last = at[sim.trips.offsets[:-1]], at[sim.trips.offsets[1:] - 1]
    off_start = np.hypot(*(first - sim.places.xy[sim.plans.origin]).T)
    off_end = np.hypot(*(last - sim.places.xy[sim.plans.destination]).T)
    began = sim.trips.columns["time"][sim.trips.offsets[:-1]] - sim.town.midnight - sim.plans.depart
    late, early = sim.plans.late > 120, sim.plans.early > 120
    assert 0.05 < late.mean() < 0.9
    assert np.median(off_start[late]) > 10 * np.median(off_start[sim.plans.late <= 0])
    assert np.median(off_end[early]) > 10 * np.median(off_end[sim.plans.early <= 0])
    assert (began[late] >= 0.8 * sim.plans.late[late]).mean() > 0.9
    shares = [(sim.plans.of(i).late > 0).mean() for i in range(8)]
    assert np.ptp(shares) > 0.2


def test_some_recordings_include_stops_and_some_break_in_two(worlds: list[Simulation]):
    stops = np.concatenate([[len(via) for via in sim.plans.via] for sim in worlds])
    assert 0.03 < (stops > 0).mean() < 0.6
    broken = [(np.diff(sim.plans.depart) == 0) & (np.diff(sim.plans.person) == 0) for sim in worlds]
    assert 0.005 < np.concatenate(broken).mean() < 0.2
    for sim, halves in zip(worlds, broken, strict=True):
        when = sim.trips.columns["time"]
        for k in np.flatnonzero(halves).tolist():
            assert when[sim.trips.offsets[k + 1] - 1] < when[sim.trips.offsets[k + 1]]


def test_recordings_of_one_person_do_not_overlap_and_times_increase(worlds: list[Simulation]):
    for sim in worlds:
        when, offsets = sim.trips.columns["time"], sim.trips.offsets
        same = np.diff(sim.plans.person) == 0
        assert (when[offsets[1:-1]] > when[offsets[1:-1] - 1])[same].all()
        assert (np.diff(when)[np.diff(sim.trips.trajectory_of_row) == 0] > 0).all()
        assert (sim.trips.lengths >= 2).all()


def test_loggers_lose_fixes_indoors_at_rest_and_in_dropouts_but_keep_labelled_ones():
    xy = np.array([[0.0, 0.0], [500.0, 0.0], [1000.0, 0.0]])
    route = Route.by_mode(xy, np.full(3, -1), np.array([0, 0, -1]), WALK)
    waiting = Journey(route, WALK, 0.0, 1.0, halt=(1, 900.0), marked=(499.0, 501.0))
    motion = move(
        city_streets(np.random.default_rng(0)), [waiting, replace(waiting, marked=NOWHERE)], np.random.default_rng(0)
    )

    def fixes(logger: Logger) -> list[np.ndarray]:
        taken = record(motion, [logger] * 2, np.random.default_rng(1), marked=[waiting.marked, NOWHERE])
        at_halt = np.abs(taken.xy[:, 0] - 500) < 40
        assert taken.marked[taken.journey == 0].sum() >= 3
        return [taken.seconds[(taken.journey == k) & at_halt] for k in range(2)]

    assert len(fixes(Logger(5.0, gaps=0))[1]) > 150
    wrong, normal = fixes(Logger(5.0, gaps=0, indoors=1.0))
    assert len(wrong) < 30
    assert np.diff(normal).max() > 800
    assert len(fixes(Logger(5.0, gaps=0, rests=0.9))[1]) < 50
    assert 0 < len(fixes(Logger(5.0, gaps=0, dropouts=20.0))[1]) < 150


def test_a_chain_of_routes_stays_between_its_legs():
    legs = [
        Route.by_mode(np.array([[a, 0.0], [a + 500.0, 0.0]]), np.full(2, -1), np.array([0, -1]), WALK)
        for a in (0.0, 500.0)
    ]
    route = chain(legs, [900.0])
    np.testing.assert_array_equal(route.xy[:, 0], [0.0, 500.0, 1000.0])
    np.testing.assert_array_equal(route.dwell, [0.0, 900.0, 0.0])
    motion = move(city_streets(np.random.default_rng(0)), [Journey(route, WALK, 0.0, 1.0)], np.random.default_rng(0))
    fixes = record(motion, [Logger(5.0)], np.random.default_rng(0))
    near = np.abs(fixes.xy[:, 0] - 500) < 20
    assert 300 < np.ptp(fixes.seconds[near]) < 1600


# ---------------------------------------------------------------- changes


def test_trips_follow_the_changes_in_their_persons_life(worlds_of_changes: list[Simulation]):
    seen = set()
    for sim in worlds_of_changes:
        at = metres(sim, sim.trips)
        first = at[sim.trips.offsets[:-1]]
        began = sim.trips.columns["time"][sim.trips.offsets[:-1]]
        phase = sim.trips.context["phase"]
        for i, who in enumerate(sim.people):
            mine = sim.plans.person == i
            changes = [change for change in sim.changes if change.person == who.id]
            now, times = who, [0.0, *(c.time for c in changes), np.inf]
            for k, (lo, hi) in enumerate(pairwise(times)):
                what, number = ("", 0) if k == 0 else (changes[k - 1].what, changes[k - 1].phase)
                now = who if k == 0 else changes[k - 1].who
                during = mine & (began >= lo) & (began < hi - 3 * HOUR)
                seen.add(what)
                if what == "break":
                    assert not during.any()
                    continue
                if what == "back":
                    assert number == phase[mine & (began < times[k - 1])][-1:]
                assert (phase[during] == number).mean() > 0.95
                from_home = during & (sim.plans.origin == now.home)
                assert from_home.sum() >= 0.2 * during.sum()
                assert np.hypot(*(first[from_home] - sim.places.xy[now.home]).T).max(initial=0) < 40
                if what == "move":
                    before = changes[k - 2].who if k > 1 else who
                    assert now.home != before.home
                    assert not (sim.plans.origin[during] == before.home).any()
    assert seen == {"", "move", "job", "away", "break", "back"}


def test_people_on_holiday_are_far_away_and_come_back(worlds_of_changes: list[Simulation]):
    for sim in worlds_of_changes:
        far = np.hypot(*sim.places.xy[sim.places.of_kind("resort")].T)
        assert far.min() > 20_000
        for change in (change for change in sim.changes if change.what == "away"):
            mine = sim.trips.agent(change.person)
            there = mine[mine.context["phase"] == change.phase]
            assert np.hypot(*metres(sim, there).T).max() > 20_000
            assert (there.columns["time"] >= change.time).all()
            assert (there.columns["time"] < change.time + 16 * DAY).all()


# ---------------------------------------------------------------- anomalies


@pytest.mark.parametrize("kind", ANOMALY_KINDS)
def test_every_kind_of_anomaly_is_injected_at_its_rate_and_labelled(worlds: list[Simulation], kind: str):
    for sim in worlds:
        _, test = sim.split(0.3)
        labelled = sim.inject(test, (kind,), rate=0.08, seed=3)
        wrong = labelled.context["kind"] == kind
        assert wrong.sum() == round(0.08 * len(test))
        assert set(labelled.context) == {"kind", "life", "mode", "phase"}
        marked = np.bincount(labelled.trajectory_of_row, labelled.columns["anomalous"], len(labelled))
        assert (marked[wrong] >= 1).all()
        assert (marked[~wrong] == 0).all()
        assert digest(labelled[~wrong]) == digest(test[~wrong])
        assert set(labelled.context["mode"].tolist()) <= set(MODES)


def test_anomalous_trips_miss_the_same_ends_as_the_normal_trips_they_replace(world_of_loggers: Simulation):
    sim = world_of_loggers
    labelled = sim.inject(sim.trips, ("speeding",), rate=0.3, seed=1)
    wrong = labelled.context["kind"] != ""
    first = metres(sim, labelled)[labelled.offsets[:-1]]
    off = np.hypot(*(first - sim.places.xy[sim.plans.origin]).T)
    late = sim.plans.late > 120
    assert np.median(off[wrong & late]) > 10 * np.median(off[wrong & (sim.plans.late <= 0)])
