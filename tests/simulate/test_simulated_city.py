"""The simulated city: plausible people on plausible streets, and anomalies with the truth of every fix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

import astray.simulate as simulate
from astray import Trajectories
from astray.core.errors import DataError
from astray.core.projection import Projection
from astray.simulate import ANOMALY_KINDS, EPOCH, Simulation
from astray.simulate.city_plan import city_streets
from astray.simulate.gps_loggers import SLOW_NOISE, WHITE_NOISE, Logger, record
from astray.simulate.movement import CRUISE, HOUR, move
from astray.simulate.route_choice import IMPROVISED, Traveller
from astray.simulate.routes import DRIVE, MODES, WALK, Journey, Route
from astray.simulate.streets import CENTRE, cheapest_paths, trace_path

CITY = Projection(*CENTRE)

NOISE = 25.0
"""The largest possible GPS error in metres: eight standard deviations of one axis."""


def metres(trips: Trajectories) -> np.ndarray:
    return CITY.to_metres(trips.columns["lat"], trips.columns["lon"])


def off(points: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns the distance from each point to the nearest segment from ``a`` to ``b``."""
    along = b - a
    nearest = np.empty(len(points))
    for i in range(0, len(points), 2000):
        part = points[i : i + 2000, None, :] - a
        share = np.clip((part * along).sum(2) / np.maximum((along**2).sum(1), 1e-9), 0, 1)
        nearest[i : i + 2000] = np.linalg.norm(part - share[..., None] * along, axis=2).min(axis=1)
    return nearest


def off_route(sim: Simulation, trip: Trajectories) -> np.ndarray:
    """Returns the distances of a trip's fixes from the route of the normal trip of the same name."""
    way = CITY.to_metres(*sim.route(str(trip.trajectory_ids[0])))
    return off(metres(trip), way[:-1], way[1:])


def original(sim: Simulation, trip: Trajectories) -> Trajectories:
    return sim.trips[sim.trips.trajectory_ids == trip.trajectory_ids[0]]


def departures(trips: Trajectories) -> np.ndarray:
    return trips.columns["time"][trips.offsets[:-1]] - EPOCH


def durations(trips: Trajectories) -> np.ndarray:
    return trips.columns["time"][trips.offsets[1:] - 1] - trips.columns["time"][trips.offsets[:-1]]


def plan_of(sim: Simulation, trip: Trajectories) -> int:
    return int(np.flatnonzero(sim.trips.trajectory_ids == trip.trajectory_ids[0])[0])


# ---------------------------------------------------------------- streets and routes


def test_city_streets_are_connected_and_three_to_five_bridges_cross_the_river():
    for seed in range(5):
        streets = city_streets(np.random.default_rng(seed))
        least, _ = cheapest_paths(streets, [1.0] * (2 * len(streets.edges)), 0)
        assert np.isfinite(least).all()
        a, b = streets.xy[streets.edges[:, 0]], streets.xy[streets.edges[:, 1]]
        p, q = streets.river[:-1], streets.river[1:]

        def side(o: np.ndarray, d: np.ndarray, x: np.ndarray) -> np.ndarray:
            """Returns the side of the lines from o to d on which the points x lie."""
            u, v = d - o, x - o
            return np.sign(u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0])

        a, b, p, q = a[:, None], b[:, None], p[None], q[None]
        bridges = ((side(a, b, p) != side(a, b, q)) & (side(p, q, a) != side(p, q, b))).any(axis=1)
        assert 3 <= bridges.sum() <= 5


def test_cheapest_paths_satisfy_the_optimality_conditions_and_avoid_closed_crossings():
    streets = city_streets(np.random.default_rng(1))
    n = len(streets.edges)
    cost = np.random.default_rng(2).uniform(1, 9, 2 * n)
    least, before = cheapest_paths(streets, cost.tolist(), 7)
    distance = np.array(least)
    tail = np.concatenate([streets.edges[:, 0], streets.edges[:, 1]])
    head = np.concatenate([streets.edges[:, 1], streets.edges[:, 0]])
    assert (distance[head] <= distance[tail] + cost + 1e-9).all()
    way = trace_path(before, 7, 400)
    assert cost[streets.arcs_along(way)].sum() == pytest.approx(distance[400])
    closed = set(way[1:-1])
    longer, round_about = cheapest_paths(streets, cost.tolist(), 7, 400, closed=closed)
    assert longer[400] > distance[400]
    assert not closed & set(trace_path(round_about, 7, 400))


def test_two_people_take_different_routes_between_the_same_doors(sim: Simulation):
    travellers = [Traveller(sim.town, who) for who in sim.people]
    doors = np.random.default_rng(0).choice(sim.places.of_kind("home"), (40, 2))
    doors = doors[sim.places.distance(doors[:, 0], doors[:, 1]) > 2000]
    assert len(doors) >= 10
    same = [
        a.path(*sim.places.node[pair].tolist(), DRIVE) == b.path(*sim.places.node[pair].tolist(), DRIVE)
        for pair in doors
        for i, a in enumerate(travellers)
        for b in travellers[:i]
    ]
    assert np.mean(same) < 0.25


# ---------------------------------------------------------------- movement


def test_motion_respects_limits_of_speed_and_acceleration_and_arrives():
    streets = city_streets(np.random.default_rng(0))
    cost = (np.tile(streets.length, 2)).tolist()
    way = trace_path(cheapest_paths(streets, cost, 0)[1], 0, 500)
    edge = np.array(streets.edges_along(way))
    routes = [Route.by_mode(streets.xy[way], np.array(way), np.append(edge, -1), mode) for mode in range(3)]
    journeys = [Journey(route, mode, 3 * HOUR, 1.0) for mode, route in enumerate(routes) for _ in range(4)]
    motion = move(streets, journeys, np.random.default_rng(1))
    for k, journey in enumerate(journeys):
        t = np.arange(0, motion.duration[k], 0.25)
        position, arc = motion.at(motion.begin[k] + t)
        speed = np.diff(arc) / 0.25
        assert (speed >= -1e-6).all()
        assert speed.max() < 1.5 * CRUISE[journey.mode].max()
        assert np.abs(np.diff(speed)).max() / 0.25 < 2.0
        np.testing.assert_allclose(position[0], journey.route.xy[0], atol=1e-6)
        end, far = motion.at(motion.begin[[k]] + motion.duration[k])
        np.testing.assert_allclose(end[0], journey.route.xy[-1], atol=1e-3)
        assert far[0] - motion.origin[k] == pytest.approx(journey.route.arc[-1], abs=1e-3)


def test_normal_fixes_lie_within_gps_noise_of_their_route_and_of_a_street(sim: Simulation):
    for trip in sim.trips[::40]:
        assert off_route(sim, trip).max() < NOISE
    a, b = sim.streets.xy[sim.streets.edges[:, 0]], sim.streets.xy[sim.streets.edges[:, 1]]
    distance = off(metres(sim.trips)[::89], a, b)
    assert distance.max() < NOISE
    assert 1.0 < np.median(distance) < 4.0


def test_gps_error_is_correlated_over_seconds_and_independent_over_minutes():
    route = Route.by_mode(np.array([[0.0, 0.0], [0.5, 0.0], [1.0, 0.0]]), np.full(3, -1), np.array([0, 0, -1]), WALK)
    waiting = Journey(route, WALK, 0.0, 1.0, halt=(1, 40_000.0))
    motion = move(city_streets(np.random.default_rng(0)), [waiting], np.random.default_rng(0))
    error = record(motion, [Logger(5.0)], np.random.default_rng(3)).xy[:, 1]
    assert error.std() == pytest.approx(np.hypot(SLOW_NOISE, WHITE_NOISE), rel=0.1)
    assert np.corrcoef(error[:-1], error[1:])[0, 1] > 0.5
    assert abs(np.corrcoef(error[:-30], error[30:])[0, 1]) < 0.1


def test_speeds_are_plausible_for_each_mode_and_lower_in_the_rush_hour(sim: Simulation):
    trips = sim.trips[::4]
    ways = [CITY.to_metres(*sim.route(str(name))) for name in trips.trajectory_ids]
    length = np.array([np.linalg.norm(np.diff(way, axis=0), axis=1).sum() for way in ways])
    speed, mode = length / durations(trips), trips.context["mode"]
    for name, low, high in (("walk", 0.8, 1.7), ("cycle", 2.0, 5.5), ("drive", 2.5, 13.0)):
        assert (mode == name).sum() >= 10
        assert ((speed > low) & (speed < high))[mode == name].mean() > 0.97
    hour, weekday = departures(trips) / HOUR % 24, departures(trips) // 86_400 % 7 < 5
    busy = weekday & ((np.abs(hour - 8) < 0.7) | (np.abs(hour - 17.3) < 0.7))
    quiet = ~weekday | (np.abs(hour - 12.5) < 2.5) | (hour > 20)
    drives = mode == "drive"
    assert np.median(speed[drives & busy]) < 0.8 * np.median(speed[drives & quiet])


def test_loggers_keep_their_persons_interval_irregularly_and_with_some_gaps_of_minutes(sim: Simulation):
    gaps = [np.diff(trip.columns["time"]) for trip in sim.trips]
    owner = sim.plans.person
    pace = [np.median(np.concatenate([gaps[k] for k in np.flatnonzero(owner == i)])) for i in range(8)]
    np.testing.assert_allclose(pace, [who.interval for who in sim.people], rtol=0.15)
    assert max(pace) > 2 * min(pace)
    assert all(gap.std() > 0 for gap in gaps)
    longest = np.array([gap.max() for gap in gaps])
    assert 0.02 < (longest > 80).mean() < 0.12
    assert longest.max() < 330


# ---------------------------------------------------------------- habits


def test_people_make_two_to_four_trips_a_day_of_plausible_duration(sim: Simulation):
    per_day = np.unique(sim.trips.agent_ids, return_counts=True)[1] / 42
    assert ((per_day > 1.8) & (per_day < 4.5)).all()
    minutes = durations(sim.trips) / 60
    assert 10 < np.median(minutes) < 25
    assert ((minutes > 3) & (minutes < 75)).mean() > 0.99
    assert 100 < np.median(sim.trips.lengths) < 600


def test_each_trip_begins_after_and_where_the_persons_previous_trip_ended(sim: Simulation):
    for i in range(len(sim.people)):
        mine = sim.plans.of(i)
        assert mine.origin[0] == sim.people[i].home
        assert (mine.destination[:-1] == mine.origin[1:]).all()
        trips = sim.trips[sim.plans.person == i]
        assert (departures(trips)[1:] > departures(trips)[:-1] + durations(trips)[:-1]).all()


def test_most_trips_are_commutes_at_regular_hours(sim: Simulation):
    shares = []
    for i, who in enumerate(sim.people):
        mine = sim.plans.of(i)
        # A commute leads from home to work or back, errands included. Lunches are not commutes.
        anchors = np.flatnonzero((mine.destination == who.home) | (mine.destination == who.work))
        ends = np.append(who.home, mine.destination[anchors])
        shares.append(np.diff(anchors, prepend=-1)[ends[1:] != ends[:-1]].sum() / len(mine.origin))
        if who.school < 0:
            out = (mine.origin == who.home) & (mine.destination == who.work)
            assert out.sum() > 15
            assert np.std(mine.depart[out] / HOUR % 24) < 0.5
            assert np.mean(mine.depart[out] / HOUR % 24) == pytest.approx(who.leaves, abs=0.3)
    assert np.mean(shares) > 0.5


def test_people_take_usual_and_improvised_routes_and_visit_new_places(sim: Simulation):
    usual = (sim.plans.variant == 0).mean()
    improvised = (sim.plans.variant >= IMPROVISED).mean()
    assert 0.5 < usual < 0.75
    assert 0.1 < improvised < 0.25
    once = [(np.unique(sim.plans.of(i).destination, return_counts=True)[1] == 1).sum() for i in range(8)]
    assert 2 <= np.mean(once) <= 0.2 * len(sim.trips) / 8


# ---------------------------------------------------------------- reproducibility


def test_the_same_seed_makes_identical_cities_and_anomalies():
    a, b, c = (simulate.city(people=3, days=5, seed=seed) for seed in (4, 4, 5))
    for name in ("time", "lat", "lon"):
        np.testing.assert_array_equal(a.trips.columns[name], b.trips.columns[name])
    x, y, z = (sim.inject(sim.trips, rate=0.4, seed=1) for sim in (a, b, a))
    for other in (y, z):
        np.testing.assert_array_equal(x.columns["lat"], other.columns["lat"])
        np.testing.assert_array_equal(x.context["kind"], other.context["kind"])
    assert a.inject(a.trips, rate=0.4, seed=2).context["kind"].tolist() != x.context["kind"].tolist()
    assert a.streets.xy.shape != c.streets.xy.shape or not np.array_equal(a.streets.xy, c.streets.xy)


def test_a_persons_trips_do_not_depend_on_the_other_people_of_the_city(sim: Simulation):
    few, alone = (simulate.city(people=people, days=42, seed=3) for people in (2, [1]))
    for other in (few, alone):
        np.testing.assert_array_equal(other.trips.agent("p01").columns["lat"], sim.trips.agent("p01").columns["lat"])
    assert alone.trips.agents == ["p01"]
    assert alone.trips.trajectory_ids[0] == "p01-0000"


def test_the_default_city_has_two_to_four_trips_per_person_and_day():
    sim = simulate.city(people=20, days=60, seed=0, interval=(60, 120))
    assert 20 * 60 * 2 < len(sim.trips) < 20 * 60 * 4


# ---------------------------------------------------------------- splitting and injecting


def test_split_takes_each_persons_last_trips_or_random_ones_on_request(sim: Simulation):
    train, test = sim.split(0.25)
    assert len(train) + len(test) == len(sim.trips)
    for who in sim.trips.agents:
        assert departures(train.agent(who)).max() < departures(test.agent(who)).min()
        assert len(test.agent(who)) == round(0.25 * len(sim.trips.agent(who)))
    mixed, rest = sim.split(0.25, random=1)
    assert len(rest) == len(test)
    assert departures(mixed.agent("p00")).max() > departures(rest.agent("p00")).min()
    assert not set(mixed.trajectory_ids.tolist()) & set(rest.trajectory_ids.tolist())


def test_injection_keeps_the_rate_and_spreads_kinds_and_people_evenly(sim: Simulation):
    _, test = sim.split()
    labelled = sim.inject(test, rate=0.2, seed=1)
    kinds, counts = np.unique(labelled.context["kind"], return_counts=True)
    assert set(kinds) == {"", *ANOMALY_KINDS}
    assert counts[1:].sum() == round(0.2 * len(test))
    assert np.ptp(counts[1:]) <= 1
    even = sim.inject(test, ("speeding",), rate=0.1, seed=1)
    for who in even.agents:
        mine = even.agent(who)
        assert abs((mine.context["kind"] != "").sum() - 0.1 * len(mine)) < 1


def test_injection_leaves_normal_trips_names_and_order_unchanged(sim: Simulation):
    labelled = sim.inject(sim.trips, rate=0.1, seed=7)
    assert labelled.trajectory_ids.tolist() == sim.trips.trajectory_ids.tolist()
    assert labelled.agent_ids.tolist() == sim.trips.agent_ids.tolist()
    normal = labelled.context["kind"] == ""
    for name in ("time", "lat", "lon"):
        np.testing.assert_array_equal(labelled[normal].columns[name], sim.trips[normal].columns[name])
    assert not labelled[normal].columns["anomalous"].any()
    marked = np.bincount(labelled.trajectory_of_row, labelled.columns["anomalous"])
    assert (marked[~normal] >= 3).all()
    for trip in labelled[~normal]:
        before = original(sim, trip)
        assert len(trip.columns["lat"]) != len(before.columns["lat"]) or not np.array_equal(
            trip.columns["lat"], before.columns["lat"]
        )


def test_a_second_injection_keeps_the_anomalies_of_the_first(sim: Simulation):
    once = sim.inject(sim.trips, ("loiter",), rate=0.05, seed=1)
    twice = sim.inject(once, ("speeding",), rate=0.05, seed=2)
    before = once.context["kind"] == "loiter"
    assert (twice.context["kind"][before] == "loiter").all()
    np.testing.assert_array_equal(twice[before].columns["anomalous"], once[before].columns["anomalous"])
    assert (twice.context["kind"] == "speeding").sum() == before.sum()


def test_contaminate_replaces_a_share_by_other_peoples_trips_and_labels_them(sim: Simulation):
    train, _ = sim.split()
    dirty = sim.contaminate(train, rate=0.05, seed=2)
    assert (dirty.context["kind"] == "agent-swap").sum() == round(0.05 * len(train))
    assert dirty[dirty.context["kind"] != ""].columns["anomalous"].all()


def test_trips_of_one_person_are_swapped_with_trips_of_people_outside_the_selection(sim: Simulation):
    mine = sim.trips.agent("p02")
    assert (sim.inject(mine, ("agent-swap",), rate=0.1).context["kind"] == "agent-swap").sum() == round(0.1 * len(mine))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda sim: simulate.city(people=0), "one or more"),
        (lambda sim: simulate.city(people=[1, 1]), "nobody twice"),
        (lambda sim: simulate.city(people=1, interval=(0, 5)), "interval"),
        (lambda sim: sim.split(1.0), "test_share"),
        (lambda sim: sim.inject(sim.trips, ("teleport",)), "agent-swap"),
        (lambda sim: sim.inject(sim.trips, rate=1.5), "rate"),
        (lambda sim: sim.route("p99-0000"), "not of this simulation"),
        (lambda sim: simulate.city(people=1, days=3).inject(sim.trips), "not of this simulation"),
        (
            lambda sim: (one := simulate.city(people=1, days=3)).inject(one.trips, ("agent-swap",), 0.5),
            "more people",
        ),
    ],
)
def test_invalid_arguments_raise_an_error_with_a_remedy(sim: Simulation, call, text):
    with pytest.raises(DataError, match=text):
        call(sim)


# ---------------------------------------------------------------- the labels of each kind


def test_agent_swap_is_another_persons_whole_trip_with_this_persons_day_and_logger(sim: Simulation, anomalies):
    places = sim.places
    for trip in anomalies["agent-swap"]:
        assert trip.columns["anomalous"].all()
        ends = metres(trip)[[0, -1]]
        who = sim.trips.agent_ids[plan_of(sim, trip)]
        others = sim.plans.person != int(who[1:])
        fits = np.hypot(*(places.xy[sim.plans.origin] - ends[0]).T) < NOISE
        fits &= np.hypot(*(places.xy[sim.plans.destination] - ends[1]).T) < NOISE
        assert (fits & others).any()
        # The trip keeps the day and this person's logger.
        assert departures(trip)[0] // 86_400 == departures(original(sim, trip))[0] // 86_400
        assert np.median(np.diff(trip.columns["time"])) == pytest.approx(sim.people[int(who[1:])].interval, rel=0.3)


def test_detour_leaves_the_route_returns_to_it_and_takes_longer(sim: Simulation, anomalies):
    growth = []
    for trip in anomalies["detour"]:
        marked, distance = trip.columns["anomalous"], off_route(sim, trip)
        assert distance[~marked].max() < NOISE
        assert (distance[marked] > NOISE).mean() > 0.6
        where = np.flatnonzero(marked)
        assert (np.diff(where) == 1).all()
        assert 0 < where[0] <= where[-1] < len(marked) - 1
        before = original(sim, trip)
        np.testing.assert_allclose(metres(trip)[[0, -1]], metres(before)[[0, -1]], atol=2 * NOISE)
        assert departures(trip)[0] == pytest.approx(departures(before)[0])
        growth.append(durations(trip)[0] / durations(before)[0])
    assert np.median(growth) > 1.15
    assert np.mean(np.array(growth) > 1) > 0.85


def test_loiter_is_labelled_while_the_person_stands_at_an_unusual_spot(sim: Simulation, anomalies):
    for trip in anomalies["loiter"]:
        marked, t = trip.columns["anomalous"], trip.columns["time"]
        spot = metres(trip)[marked]
        assert np.hypot(*np.ptp(spot, axis=0)) < 60
        assert 400 < np.ptp(t[marked]) < 1550
        assert off_route(sim, trip).max() < NOISE
        mine = sim.plans.of(int(sim.plans.person[plan_of(sim, trip)]))
        doors = sim.places.xy[np.concatenate([mine.origin, mine.destination])]
        assert np.hypot(*(doors - spot.mean(axis=0)).T).min() > 170
        moving = np.hypot(*(metres(trip)[~marked] - spot.mean(axis=0)).T)
        assert (moving > 15).mean() > 0.9


def test_reversed_is_the_same_route_backwards_at_the_same_hour(sim: Simulation, anomalies):
    for trip in anomalies["reversed"]:
        before = original(sim, trip)
        assert trip.columns["anomalous"].all()
        assert off_route(sim, trip).max() < NOISE
        np.testing.assert_allclose(metres(trip)[[0, -1]], metres(before)[[-1, 0]], atol=2 * NOISE)
        assert departures(trip)[0] == pytest.approx(departures(before)[0])


def test_wrong_time_is_a_habitual_trip_hours_away_from_its_usual_departures(sim: Simulation, anomalies):
    for trip in anomalies["wrong-time"]:
        assert trip.columns["anomalous"].all()
        assert off_route(sim, trip).max() < NOISE
        plan = plan_of(sim, trip)
        mine = sim.plans.of(int(sim.plans.person[plan]))
        same = (mine.origin == sim.plans.origin[plan]) & (mine.destination == sim.plans.destination[plan])
        apart = np.abs(mine.depart[same] - departures(trip)[0]) % 86_400
        assert same.sum() >= 3
        assert np.minimum(apart, 86_400 - apart).min() >= 2.5 * HOUR - 1
        assert departures(trip)[0] // 86_400 == sim.plans.depart[plan] // 86_400


def test_speeding_is_the_same_route_two_to_three_times_faster(sim: Simulation, anomalies):
    ratio = []
    for trip in anomalies["speeding"]:
        assert trip.columns["anomalous"].all()
        assert off_route(sim, trip).max() < NOISE
        before = original(sim, trip)
        np.testing.assert_allclose(metres(trip)[[0, -1]], metres(before)[[0, -1]], atol=2 * NOISE)
        ratio.append(durations(before)[0] / durations(trip)[0])
    # Traffic lights differ from drive to drive, so single ratios scatter, but their mean does not.
    assert min(ratio) > 1.1
    assert 2.2 < np.mean(ratio) < 2.8


def test_haste_divides_the_duration_of_a_drive_by_nearly_its_factor(sim: Simulation):
    traveller = Traveller(sim.town, sim.people[0])
    usual = [sim.plans.journey(k, traveller) for k in range(60)]
    hasty = [replace(journey, haste=2.5) for journey in usual]
    # The same random numbers: only the haste differs.
    before, after = (move(sim.streets, drives, np.random.default_rng(1)).duration for drives in (usual, hasty))
    assert (before / after > 0.75 * 2.5).all()
    assert (before / after <= 2.5).all()


def test_new_destination_was_never_visited_and_is_labelled_from_where_the_routes_part(sim: Simulation, anomalies):
    for trip in anomalies["new-destination"]:
        marked = trip.columns["anomalous"]
        assert off_route(sim, trip)[~marked].max(initial=0) < NOISE
        assert (np.diff(marked.astype(int)) >= 0).all()
        assert marked[-1]
        assert departures(trip)[0] == pytest.approx(departures(original(sim, trip))[0])
        np.testing.assert_allclose(metres(trip)[0], metres(original(sim, trip))[0], atol=2 * NOISE)
        mine = sim.plans.of(int(sim.plans.person[plan_of(sim, trip)]))
        doors = sim.places.xy[np.concatenate([mine.origin, mine.destination])]
        assert np.hypot(*(doors - metres(trip)[-1]).T).min() > 300 - NOISE


def test_anomalous_trips_stay_on_streets_and_have_a_known_mode(sim: Simulation, anomalies):
    a, b = sim.streets.xy[sim.streets.edges[:, 0]], sim.streets.xy[sim.streets.edges[:, 1]]
    for trips in anomalies.values():
        assert off(metres(trips)[::41], a, b).max() < NOISE
        assert set(trips.context["mode"].tolist()) <= set(MODES)


# ---------------------------------------------------------------- how hard the anomalies are


def location_auroc(train: Trajectories, labelled: Trajectories) -> float:
    """Returns the AUROC, averaged over people, of a trip's mean distance to the five nearest past fixes."""

    def every_twenty_seconds(trips: Trajectories) -> np.ndarray:
        tick = trips.columns["time"] // 20
        return np.flatnonzero(np.r_[True, np.diff(tick) != 0])

    areas = []
    for who in train.agents:
        past, now = train.agent(who), labelled.agent(who)
        rows = every_twenty_seconds(now)
        neighbours = NearestNeighbors(n_neighbors=5).fit(metres(past)[every_twenty_seconds(past)])
        distance = neighbours.kneighbors(metres(now)[rows])[0].mean(axis=1)
        trip = now.trajectory_of_row[rows]
        score = np.bincount(trip, distance) / np.bincount(trip)
        areas.append(roc_auc_score(now.context["kind"] != "", score))
    return float(np.mean(areas))


def test_location_alone_does_not_find_the_anomalies(sim: Simulation):
    train, test = sim.split()
    hard = ("agent-swap", "detour", "loiter", "reversed", "speeding", "wrong-time")
    injected = {kind: sim.inject(test, (kind,), rate=0.3, seed=1) for kind in hard}
    area = {kind: location_auroc(train, labelled) for kind, labelled in injected.items()}
    for kind in ("loiter", "reversed", "speeding", "wrong-time"):
        assert area[kind] < 0.65, area
    assert area["detour"] < 0.9, area
    assert 0.75 < area["agent-swap"] < 0.97, area

    # Only habitual trips are made at a wrong time, so they look more usual than the average trip.
    # Among habitual trips, their places carry no information.
    labelled, habitual = injected["wrong-time"], []
    for trip in labelled:
        plan = plan_of(sim, trip)
        mine = sim.plans.of(int(sim.plans.person[plan]))
        same = (mine.origin == sim.plans.origin[plan]) & (mine.destination == sim.plans.destination[plan])
        habitual.append(same.sum() >= 3)
    assert 0.38 < location_auroc(train, labelled[np.array(habitual)]) < 0.62
