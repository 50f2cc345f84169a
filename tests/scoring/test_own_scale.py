"""An agent's own scale: honest p-values from its own past, everybody's where that is short, and strays found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astray import Detector, Trajectories, load
from astray.core.errors import DataError
from astray.core.projection import Projection
from astray.irl.posterior import combined
from astray.irl.shared import BANDS
from astray.model.pretrained import pretrained
from astray.scoring.normality import Location, locate
from astray.scoring.own_scale import OwnScale, OwnScores, most_suspect, own_weights, somebody_elses
from astray.scoring.scale_config import ScaleConfig
from astray.simulate import city, world

WEIGHTS = (1.0, 0.3, 0.3, 0.3)
SCALE = ScaleConfig()


def test_unseen_normal_trips_are_flagged_about_as_often_as_promised() -> None:
    """Simulated people of towns that the reward was not learned from; some trips of each left out at random."""
    p_values = []
    for seed in (11, 12):
        trips = world(seed, people=10, days=60).trips
        for agent in trips.agents:
            own = trips.agent(agent)
            order = np.random.default_rng(0).permutation(len(own))
            if len(own) >= 60:
                detector = Detector(suspect=False).fit(own[np.sort(order[:-20])])
                p_values.append(detector.score(own[np.sort(order[-20:])])["p_value"].to_numpy())
    found = np.concatenate(p_values)
    assert len(found) >= 160
    assert 0.005 <= (found <= 0.02).mean() <= 0.04
    assert (found <= 0.2).mean() == pytest.approx(0.2, abs=0.1)


class TestFewTrips:
    """Everybody's trips say what is normal, as long as the agent's own are few."""

    @staticmethod
    def mine(n: int) -> OwnScores:
        rewards = np.random.default_rng(0).normal(9.0, 0.5, (n, 4, 4)).astype(np.float32)
        return OwnScores(rewards, Location(1.0, 2.0) if n else None)

    @pytest.mark.parametrize("unfinished", [False, True])
    @pytest.mark.parametrize("history", [0.0, 30.0, 1000.0])
    def test_without_own_trips_the_scale_is_that_of_the_reference(self, history: float, unfinished: bool) -> None:
        reward = pretrained()
        assert reward.reference is not None
        got = OwnScale(reward, WEIGHTS, self.mine(0), history, SCALE).calibration(unfinished)
        everybody = reward.reference.rewards("under_way" if unfinished else "trips", history, got.weights)
        assert got.trip == pytest.approx(locate(everybody))
        assert got.normal.total == pytest.approx(SCALE.stand_in_up_to)
        assert np.allclose(got.normal.scores, np.sort(locate(everybody).standardise(everybody)))
        steps = reward.reference.rewards("steps", history, got.step_weights)
        assert got.step == pytest.approx(locate(steps))

    def test_the_more_own_trips_there_are_the_more_they_count(self) -> None:
        reward = pretrained()
        assert reward.reference is not None
        for n in (1, 10, 90):
            got = OwnScale(reward, WEIGHTS, self.mine(n), 30.0, SCALE).calibration()
            usual = locate(reward.reference.rewards("trips", 30.0, got.weights))
            mine = combined(self.mine(n).trips[:, 0, :, None], got.weights)
            share = n / (n + SCALE.prior_trips)
            assert got.trip.centre == pytest.approx(share * mine.mean() + (1 - share) * usual.centre, rel=1e-5)
            own = got.normal.weights[got.normal.weights >= 1.0]
            assert own.tolist() == pytest.approx([min(SCALE.replaces, SCALE.stand_in_up_to / n)] * n)
            assert got.normal.total == pytest.approx(SCALE.stand_in_up_to)

    def test_a_trip_without_a_score_does_not_change_the_scale(self) -> None:
        own = self.mine(10)
        gap = OwnScores(np.concatenate([own.trips, np.full((5, 4, 4), np.nan, np.float32)]), own.step)
        one, other = (OwnScale(pretrained(), WEIGHTS, o, 30.0, SCALE).calibration() for o in (own, gap))
        assert one.trip == other.trip
        assert np.array_equal(one.normal.scores, other.normal.scores)

    def test_an_aspect_that_finds_the_agents_own_trips_odd_counts_less(self) -> None:
        own = self.mine(200)
        base = own_weights(pretrained(), WEIGHTS, own, 200.0, SCALE)
        own.trips[:20, 0, 1] = -3.0
        assert own_weights(pretrained(), WEIGHTS, own, 200.0, SCALE) == pytest.approx(
            (base[0], base[1] * np.exp(-3.0), *base[2:])
        )
        own.trips[:20, 0, 0] = -3.0  # place alone keeps its weight
        assert own_weights(pretrained(), WEIGHTS, own, 200.0, SCALE)[0] == base[0]
        own.trips[2:20, 0, 1] = 9.0  # as few as may be odd
        assert own_weights(pretrained(), WEIGHTS, own, 200.0, SCALE)[1] == base[1]

    def test_manner_counts_less_than_place_while_the_history_is_short(self) -> None:
        own = self.mine(200)  # all of these trips are clearly its own, in every aspect
        for history, known in ((0.0, 1 / 11), (9.0, 1 / 2), (200.0, 201 / 211)):
            expected = (1.0, *(0.3 * known for _ in range(3)))
            assert own_weights(pretrained(), WEIGHTS, own, history, SCALE) == pytest.approx(expected)
        # Nobody who asks about one aspect is left without an answer.
        assert own_weights(pretrained(), (0.0, 0.0, 1.0, 0.0), own, 0.0, SCALE)[2] > 0.0

    def test_a_longer_history_is_less_uncertain(self) -> None:
        scales = [OwnScale(pretrained(), WEIGHTS, self.mine(0), h, SCALE).calibration() for h in (0.0, 4.0)]
        noise = [scale.trip_noise * scale.trip.spread for scale in scales]  # in units of reward
        assert noise[0] == pytest.approx(noise[1] * np.sqrt(5.0), rel=1e-6)
        assert len(BANDS) == 4


def test_the_uncertainty_of_the_same_trips_falls_as_history_grows() -> None:
    trips = city(people=3, days=30, seed=2).trips
    fleet = Detector().fit(Trajectories.concat([trips.agent("p01")[:5], trips.agent("p02")[:5]]))
    assert fleet.reward_ is pretrained()  # so few teach nothing
    mine = trips.agent("p00")
    fleet.set_params(eps=9.0, min_history=0)  # so that gamma alone decides between an anomaly and a review
    mean, decided = [], []
    for n in (0, 1, 3, 10, 40):
        if n:
            fleet.enroll(mine[:n])
        table = fleet.score(mine[-15:])
        mean.append(table["uncertainty"].mean())
        decided.append(set(table["decision"]))
    assert mean == sorted(mean, reverse=True)
    assert mean[0] > 2 * mean[-1]
    assert decided[0] == decided[1] == {"review"}
    assert decided[-1] == {"anomaly"}


@pytest.fixture(scope="module")
def trips() -> Trajectories:
    return city(people=1, days=30, seed=3).trips


class TestLookFor:
    """The same trips, asked about in another way."""

    @staticmethod
    def loitering(trip: Trajectories, name: str) -> Trajectories:
        """The same way, but in the middle of it up and down the same street for half an hour."""
        time, half = trip.columns["time"], len(trip.columns["time"]) // 2
        here = Projection(float(trip.columns["lat"][half]), float(trip.columns["lon"][half]))
        xy = here.to_metres(trip.columns["lat"], trip.columns["lon"])
        extra = 10.0 * np.arange(180)
        wander = xy[half] + np.column_stack([15.0 * np.sin(extra / 40.0), 15.0 * np.sin(extra / 25.0)])
        lat, lon = here.to_degrees(np.concatenate([xy[:half], wander, xy[half:]]))
        when = np.concatenate([time[:half], time[half] + extra, time[half:] + 1800.0])
        return Trajectories.from_fixes(time=when, lat=lat, lon=lon, agent="p00", trajectory=name)

    def test_loitering_is_found_when_manner_is_looked_for(self, trips: Trajectories) -> None:
        long = np.flatnonzero(trips.lengths >= 40)[-12:]
        odd = Trajectories.concat([self.loitering(trips[i], f"odd-{i}") for i in long])
        past = trips[np.setdiff1d(np.arange(len(trips)), long)]
        by = {aspect: Detector(look_for=(aspect,)).fit(past).score_samples(odd) for aspect in ("manner", "place")}
        assert np.median(by["manner"]) < np.median(by["place"]) - 1.0
        assert (by["manner"] < by["place"]).mean() > 0.8

    def test_the_aspects_to_look_for_may_change_after_fitting(self, trips: Trajectories) -> None:
        detector = Detector(look_for=("place",)).fit(trips[:-9])
        first = detector.reward_
        assert detector.aspect_weights_ == (1.0, 0.0, 0.0, 0.0)
        weighted = Detector(look_for={"place": 1.0, "time": 0.5}).fit(trips[:-9])
        assert weighted.reward_ is first
        assert weighted.aspect_weights_ == (1.0, 0.0, 0.0, 0.5)
        assert set(detector.score(trips[-9:])["aspect"]) == {"place"}
        assert set(weighted.score(trips[-9:])["aspect"]) <= {"place", "time"}


def test_simulated_people_are_flagged_as_often_as_promised_on_days_to_come() -> None:
    flagged = []
    for seed in (7, 8):
        train, test = city(people=6, days=60, seed=seed).split(0.25)
        for agent in train.agents:
            p_values = Detector().fit(train.agent(agent)).score(test.agent(agent))["p_value"].to_numpy()
            flagged.append((p_values <= 0.02).mean())
    assert np.mean(flagged) <= 0.035


class TestStrays:
    """Somebody else's among the past trips, told by their log-ratio."""

    @staticmethod
    def mixture(own: int, strays: int, seed: int = 0, apart: float = 3.0) -> np.ndarray:
        """Log-ratios of two normal distributions of spread 1, one ``2 apart`` above the other."""
        rng = np.random.default_rng(seed)
        x = np.r_[rng.normal(apart, 1.0, own), rng.normal(-apart, 1.0, strays)]
        return 2.0 * apart * x

    @staticmethod
    def usual(apart: float = 3.0) -> Location:
        """How the log-ratios of own trips lie."""
        return Location(2.0 * apart**2, 2.0 * apart)

    @pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
    def test_the_share_of_somebody_elses_trips_is_estimated(self, share: float) -> None:
        n = round(2000 * share)
        found = somebody_elses(self.mixture(2000 - n, n), self.usual())
        assert found.mean() == pytest.approx(share, rel=0.1)
        assert (found[2000 - n :] > 0.95).mean() > 0.97
        assert (found[: 2000 - n] > 0.95).mean() < 0.002

    def test_no_clean_trip_is_suspected(self) -> None:
        for seed in range(5):
            assert not len(most_suspect(somebody_elses(self.mixture(200, 0, seed), self.usual()), SCALE.mistaken))
            # Nor where the reward can hardly tell.
            assert not len(
                most_suspect(somebody_elses(self.mixture(200, 0, seed, 0.5), self.usual(0.5)), SCALE.mistaken)
            )

    def test_an_odd_trip_is_a_stray_among_a_regular_agents_trips_but_not_among_an_explorers(self) -> None:
        rng, usual = np.random.default_rng(0), Location(4.0, 2.0)
        regular, explorer = rng.normal(5.0, 0.5, 60), rng.normal(2.0, 3.0, 60)
        assert somebody_elses(np.r_[regular, -5.0], usual)[-1] > 0.95
        assert somebody_elses(np.r_[explorer, -5.0], usual)[-1] < 0.8

    def test_a_trip_without_a_score_is_not_suspected(self) -> None:
        found = somebody_elses(np.r_[self.mixture(50, 5), np.nan], self.usual())
        assert found[-1] == 0.0
        assert most_suspect(found, SCALE.mistaken).tolist() == [50, 51, 52, 53, 54]
        assert not somebody_elses(np.full(3, np.nan), self.usual()).any()

    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
    def test_it_is_a_probability_and_falls_with_the_ratio(self, ratios: list[float]) -> None:
        found = somebody_elses(np.array(ratios), self.usual())
        assert ((found >= 0) & (found <= 1)).all()
        assert (np.diff(found[np.argsort(ratios)]) <= 1e-12).all()


def test_a_fit_settles_which_aspects_are_looked_for(tmp_path: Path) -> None:
    trips = city(people=2, days=14, seed=0).trips
    mine = trips.agent("p00")
    detector = Detector().fit(mine[:-5])
    before = detector.score_samples(trips)
    detector.set_params(look_for=("time",))
    np.testing.assert_array_equal(detector.score_samples(trips), before)
    detector.save(tmp_path / "m.astray")
    np.testing.assert_array_equal(load(tmp_path / "m.astray").score_samples(trips), before)
    assert not np.allclose(detector.fit(mine[:-5]).score_samples(trips), before)


class TestConfigured:
    """How scores are scaled is a configuration of every detector, which its file holds."""

    def test_scaling_shapes_the_scores_of_one_agent_and_of_many(self, tmp_path: Path) -> None:
        trips = city(people=3, days=14, seed=0).trips
        for known in (trips.agent("p00"), trips):
            usual = Detector().fit(known)
            own = Detector(scaling={"stand_in_up_to": 500.0, "prior_trips": 1.0}).fit(known)
            for model in (usual, own):
                model.save(tmp_path / "m.astray")
                np.testing.assert_array_equal(
                    load(tmp_path / "m.astray").score_samples(trips), model.score_samples(trips)
                )
            normal = own.agent_model("p00").calibration.normal
            assert normal.total == pytest.approx(500.0)
            assert not np.allclose(own.score_samples(trips), usual.score_samples(trips))

    def test_a_part_shorter_than_a_segment_is_noise_in_a_table_and_live(self) -> None:
        trips = city(people=2, days=14, seed=0).trips
        patient = Detector(scaling={"least_segment": 1e6}).fit(trips.agent("p00"))
        assert patient.agent_model("p00").calibration.least_segment == 1e6
        hasty = Detector(scaling={"least_segment": 0.0}).fit(trips.agent("p00"))
        lasted = [
            (table["segment_end"] - table["segment_start"]).dt.total_seconds().to_numpy()
            for table in (model.score(trips.agent("p01"), eps=-2.0) for model in (hasty, patient))
        ]
        assert not np.array_equal(*lasted, equal_nan=True)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"odd": 0.0},
            {"looks": 0},
            {"replaces": 0.5},
            {"staleness": -1.0},
            {"suspect_from": 2.0},
            {"prior_trips": 0.0},
            {"even": 1.0},
        ],
    )
    def test_impossible_scaling_is_refused(self, wrong: dict[str, float]) -> None:
        with pytest.raises(DataError, match=next(iter(wrong))):
            Detector(scaling=wrong).fit(city(people=1, days=7, seed=0).trips)
