"""Detector: what it says of trips, what it keeps, what it forgets, and what it never learns."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone

import astray
from astray import ByContext, ByHour, Detector, Trajectories, TripId
from astray.core.errors import DataError, ModelFileError, NotFittedError, TrainingError, UnknownAgentWarning
from astray.explain import counts_in_words, familiar_counts
from astray.features.context import ContextSpec
from astray.features.encoders import FamiliarityEncoder
from astray.features.featurizer import FeaturizerConfig
from astray.features.memory import Forgetting
from astray.irl.dynamics import Integrator
from astray.irl.learn_config import LearnConfig
from astray.irl.policy import rollout
from astray.irl.shared import trip_rewards
from astray.model.checkpoint import PolicyCheckpoint, restore_learner
from astray.model.gps_trips import GpsTrips
from astray.model.plain_values import restore
from astray.model.pretrained import pretrained
from astray.scoring.decisions import decide, level
from astray.scoring.normality import Sample, step_normality, trip_normality
from astray.simulate import Simulation, city
from fitted import QUICK, claimed, contents_of, featurizer_of, kept_of, memory_of, write_contents

# A reward of the agent's own, by Algorithm 1.
OWN: dict[str, Any] = {
    "encoder": "fourier",
    "iterations": 4,
    "config": {"updates": 15, "rollouts": 8, "imagined": 120, "clone_updates": 30},
}
ONCE: dict[str, Any] = {
    "encoder": "fourier",
    "iterations": 1,
    "config": {"updates": 1, "rollouts": 0, "imagined": 10},
}


@pytest.fixture(scope="module")
def sim() -> Simulation:
    return city(people=4, days=21, seed=0)


@pytest.fixture(scope="module")
def mine(sim: Simulation) -> Trajectories:
    return sim.split(0.25)[0].agent("p00")


@pytest.fixture(scope="module")
def others(sim: Simulation) -> Trajectories:
    return sim.trips.without("p00")


@pytest.fixture(scope="module")
def new(sim: Simulation) -> Trajectories:
    return sim.split(0.25)[1].agent("p00")


@pytest.fixture(scope="module")
def fitted(mine: Trajectories, others: Trajectories, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a detector; each test opens its own."""
    path = tmp_path_factory.mktemp("models") / "p00.astray"
    Detector(**QUICK, seed=0).fit(mine, population=others[::3]).save(path)
    return path


@pytest.fixture
def detector(fitted: Path) -> Detector:
    return opened(fitted)


@pytest.fixture(scope="module")
def fitted_alone(mine: Trajectories, others: Trajectories, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a detector with a reward of its own."""
    path = tmp_path_factory.mktemp("models") / "own.astray"
    Detector(**OWN, seed=0).fit(mine, population=others[:60]).save(path)
    return path


@pytest.fixture
def alone(fitted_alone: Path) -> Detector:
    return opened(fitted_alone)


def opened(path: Path) -> Detector:
    detector = astray.load(path)
    assert isinstance(detector, Detector)
    return detector


def fixes(
    lat: NDArray[Any], lon: NDArray[Any], *, start: float = 1.7e9, every: float = 10.0, name: str
) -> Trajectories:
    time = start + every * np.arange(len(lat))
    return Trajectories.from_fixes(time=time, lat=lat, lon=lon, agent="a", trajectory=name)


def straight(n: int, name: str, start: float = 1.7e9, offset: float = 0.0) -> Trajectories:
    """A way north at 5 m/s, a fix every ten seconds."""
    return fixes(45.0 + 4.5e-4 * np.arange(n), np.full(n, 7.0 + offset), start=start, name=name)


def renamed(trips: Trajectories, *names: str) -> Trajectories:
    return Trajectories(trips.columns, trips.offsets, trips.agent_ids, names, trips.context)


class TestParameters:
    def test_the_constructor_only_stores(self) -> None:
        weights = {"explore": 1.0}
        detector = Detector(weights=weights, iterations=-3, preset="none such")
        assert detector.weights is weights
        assert detector.get_params()["iterations"] == -3
        assert not [name for name in vars(detector) if name.endswith("_")]

    def test_scikit_learn_clones_it_without_what_was_learned(self, detector: Detector) -> None:
        detector.set_params(eps=-3.0, weights={"explore": 1.0})
        copy = clone(detector)
        assert copy is not detector
        assert copy.get_params() == detector.get_params()
        with pytest.raises(NotFittedError):
            copy.score_samples(straight(5, "x"))

    def test_unknown_parameters_are_refused(self) -> None:
        with pytest.raises(DataError, match="no parameter 'epsilon'"):
            Detector().set_params(epsilon=1)

    def test_the_representation_shows_the_parameters_that_differ_from_the_default(self) -> None:
        assert repr(Detector(seed=3, eps=None)) == "Detector(seed=3)"

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"preset": "kdd20"}, "preset is 'kdd20'; give one of default, shared, own, kdd19"),
            ({"encoder": "cosine"}, "encoder is 'cosine'; give one of familiarity"),
            ({"featurizer": {"encoder": "cosine"}}, "no encoder named 'cosine'"),
            ({"objective": "steps"}, "objective is 'steps'; give one of step, trajectory"),
            ({"config": {"itterations": 3}}, "no field named 'itterations'"),
            ({"explorers": ["teleport"], "encoder": "raw"}, "no counterfactual named 'teleport'"),
            ({"weights": {"people": 1.0}, "encoder": "raw"}, "background weights"),
            ({"look_for": ("speed",)}, "give some of place, route, manner, time"),
            ({"look_for": ()}, "give some of place"),
            ({"look_for": {"place": -1.0}}, "give some of place"),
            ({"dynamics": Integrator(np.zeros((1, 5)), 1.0)}, "dynamics are for states and actions"),
        ],
    )
    def test_fit_refuses_wrong_parameters_of_any_kind(
        self, params: dict[str, Any], message: str, mine: Trajectories
    ) -> None:
        with pytest.raises(DataError, match=message):
            Detector(**params).fit(mine[:3])

    def test_a_parameter_may_be_a_whole_configuration(self, mine: Trajectories) -> None:
        given = LearnConfig(iterations=9, updates=2, rollouts=0, imagined=20)
        featurizer = FeaturizerConfig(encoder="fourier", interval=60.0)
        detector = Detector(config=given, featurizer=featurizer, iterations=1, heads=3).fit(mine[:6])
        assert restore(LearnConfig, detector.world_.learning).updates == 2
        assert len(detector.training_history_) == 1
        assert detector.posterior_.n_heads == 3
        assert featurizer_of(detector).config.interval == 60.0

    def test_the_preset_of_the_paper_sees_raw_coordinates_and_takes_plain_means(self, mine: Trajectories) -> None:
        config = {"updates": 2, "rollouts": 8}
        detector = Detector(preset="kdd19", iterations=2, config=config).fit(mine[:8])
        assert featurizer_of(detector).names == ["x", "y", "x0", "y0", "elapsed", "vx", "vy"]
        table = detector.score(mine[:8])
        assert table["score"].equals(table["normality"].alias("score"))
        assert table["history"].to_list() == [8.0] * 8
        # The paper's threshold decides, unless another one is given.
        score = table["score"].to_numpy()
        assert np.array_equal(detector.decision_function(mine[:8]), score + 2.0)
        assert np.array_equal(detector.set_params(eps=-1.0).decision_function(mine[:8]), score + 1.0)

    def test_features_that_the_shared_reward_does_not_know_make_the_agent_learn_its_own(
        self, mine: Trajectories
    ) -> None:
        own = {k: v for k, v in ONCE.items() if k != "encoder"}
        by_clock = FeaturizerConfig(context=ContextSpec(weekday=True))
        for params, shared in (({}, True), ({"featurizer": by_clock}, False), ({"encoder": "raw"}, False)):
            detector = Detector(**own, **params).fit(mine[:8])
            assert (detector.reward_.trip is not None) == shared
            assert np.isfinite(detector.score_samples(mine[8:12])).all()


class TestScores:
    def test_trips_of_strangers_score_lower_than_the_agents_own(
        self, detector: Detector, new: Trajectories, others: Trajectories
    ) -> None:
        own, strange = detector.score_samples(new), detector.score_samples(others[60:])
        assert np.median(own) > np.median(strange) + 3.0
        assert (detector.predict(others[60:]) == -1).mean() > 0.8
        assert (detector.predict(new) == -1).mean() < 0.15

    def test_trips_of_strangers_score_lower_without_a_population_too(
        self, mine: Trajectories, new: Trajectories, sim: Simulation
    ) -> None:
        detector = Detector().fit(mine)
        assert detector.reward_ is pretrained()
        assert (detector.predict(sim.trips.agent("p02")) == -1).mean() > 0.8
        assert (detector.predict(new) == -1).mean() < 0.15

    def test_score_predict_decide_and_decision_function_agree(
        self, detector: Detector, new: Trajectories, others: Trajectories
    ) -> None:
        trips = Trajectories.concat([new, claimed(others[-10:], "p00")])
        table = detector.score(trips)
        score = table["score"].to_numpy()
        assert table["trajectory"].to_list() == trips.trajectory_ids.tolist()
        assert np.array_equal(detector.score_samples(trips), score)
        began = trips.columns["time"][trips.offsets[:-1]]
        low = np.array([level(0.02, detector.agent_model("p00", began=at).calibration.normal) for at in began.tolist()])
        assert len(set(low)) == 2  # of trips soon after the newest past one, and of later ones
        assert np.array_equal(detector.decision_function(trips), score - low)
        assert np.array_equal(detector.predict(trips), np.where(score <= low, -1, 1))
        assert np.array_equal(detector.predict(trips) == -1, table["p_value"].to_numpy() <= 0.02)
        assert detector.decide(trips).tolist() == table["decision"].to_list()
        assert np.array_equal(score, table["normality"].to_numpy())  # the whole trip decides
        assert set(table["decision"]) >= {"normal", "anomaly"}
        assert table.columns == [
            *("agent", "trajectory", "normality", "uncertainty", "score", "p_value"),
            *("p_place", "p_route", "p_manner", "p_time", "aspect", "decision", "history"),
            *("start", "zone", "segment_start", "segment_end", "segment_normality"),
        ]

    def test_trips_score_the_same_one_by_one_together_and_in_any_order(
        self, detector: Detector, new: Trajectories, others: Trajectories
    ) -> None:
        trips = Trajectories.concat([new[:6], others[-6:]])
        together = detector.score_samples(trips)
        alone = np.concatenate([detector.score_samples(trip) for trip in trips])
        assert np.allclose(alone, together, atol=1e-5)
        order = np.random.default_rng(0).permutation(len(trips))
        assert np.allclose(detector.score_samples(trips[order]), together[order], atol=1e-5)

    def test_every_trip_that_scores_low_has_a_segment(self, detector: Detector, others: Trajectories) -> None:
        table = detector.score(others)
        low = table.filter(pl.col("p_value") <= 0.02)
        assert len(low) > 20
        assert low["segment_start"].null_count() == 0
        assert (low["segment_end"] >= low["segment_start"]).all()
        assert (low["segment_normality"] < 0).all()
        assert low["aspect"].is_in(["place", "route", "manner", "time"]).all()

    def test_one_trip_through_the_lens(self, detector: Detector, new: Trajectories) -> None:
        agent_model = detector.agent_model("p00")
        assert detector.reward_.trip is not None
        featurized = agent_model.featurizer.featurize(new[0])
        n = step_normality(detector.posterior_(featurized.features), agent_model.calibration).normality
        assert np.allclose(n, detector.score_fixes(new[0])["normality"].to_numpy(), atol=1e-5)
        statistics = agent_model.featurizer.featurize(new[0], every=False).statistics
        whole = trip_normality(trip_rewards(detector.reward_.trip, statistics), agent_model.calibration)
        table = detector.score(new[0])
        assert whole.score == pytest.approx(table["score"].to_numpy(), abs=1e-5)
        assert table["history"].to_list() == [agent_model.history]
        assert agent_model.unfinished.trip != agent_model.calibration.trip

    def test_scores_do_not_depend_on_chunks_and_threads(
        self, detector: Detector, others: Trajectories, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trips = others[:40]
        whole, per_fix = detector.score(trips), detector.score_fixes(trips)
        sizes: list[int] = []
        see = GpsTrips.featurize

        def watched(self: GpsTrips, part: Trajectories, every: bool = False) -> Any:
            sizes.append(part.n_rows)
            return see(self, part, every)

        monkeypatch.setattr(GpsTrips, "featurize", watched)
        monkeypatch.setattr("astray.detector.CHUNK_FIXES", 1000)
        threaded = detector.set_params(n_jobs=2)
        assert np.allclose(threaded.score(trips)["score"].to_numpy(), whole["score"].to_numpy(), atol=1e-5)
        assert threaded.score(trips)["decision"].equals(whole["decision"])
        again = detector.score_fixes(trips)
        assert again["time"].equals(per_fix["time"])
        assert np.allclose(again["normality"].to_numpy(), per_fix["normality"].to_numpy(), atol=1e-5)
        assert len(sizes) > 3
        assert max(sizes) <= max(1000, int(trips.lengths.max()))

    def test_every_fix_has_a_row_and_the_receiver_s_faults_have_no_score(self, detector: Detector) -> None:
        jump = straight(40, "jump")
        lat = jump.columns["lat"].copy()
        lat[20] += 3.0
        time = jump.columns["time"].copy()
        time[30] = time[29]
        trip = Trajectories.from_fixes(time=time, lat=lat, lon=jump.columns["lon"], agent="a", trajectory="jump")
        table = detector.score_fixes(trip)
        assert len(table) == 40
        assert table.filter(pl.col("fault") != "")["fault"].to_list() == ["teleport", "repeated time"]
        faulty = table[[20, 30]]
        assert all(faulty[name].null_count() == 2 for name in ("normality", "uncertainty", "lo", "hi"))
        good = table.filter(pl.col("fault") == "")
        assert good["normality"].null_count() == 0
        assert (good["lo"] <= good["normality"]).all()
        assert table["time"].dt.epoch("s").to_list() == time.astype(int).tolist()

    def test_a_trip_without_a_usable_fix_is_for_review(self, detector: Detector, monkeypatch: Any) -> None:
        see = GpsTrips.featurize

        def blind(self: GpsTrips, trips: Trajectories, every: bool = False) -> Any:
            seen = see(self, trips, every)
            keep = np.zeros(len(seen.trip), bool)
            rows = {name: getattr(seen, name)[keep] for name in ("features", "trip", "time", "weight", "row")}
            return seen._replace(**rows, statistics=np.full_like(seen.statistics, np.nan))

        monkeypatch.setattr(GpsTrips, "featurize", blind)
        table = detector.score(straight(5, "blind"))
        assert table["decision"].to_list() == ["review"]
        assert table["score"].null_count() == 1
        assert table["aspect"].null_count() == 1

    def test_scoring_never_changes_the_model(
        self, detector: Detector, fitted: Path, new: Trajectories, tmp_path: Path
    ) -> None:
        detector.score(new)
        detector.score_fixes(new)
        detector.explain(new)
        detector.save(tmp_path / "after")
        assert (tmp_path / "after").read_bytes() == fitted.read_bytes()

    def test_somebody_elses_trips_are_unknown_and_never_normal(
        self, detector: Detector, alone: Detector, new: Trajectories
    ) -> None:
        # The agent's own trips in another name: so normal that only the name speaks against them.
        for model in (detector, alone):
            both = Trajectories.concat([new, claimed(new, "stranger")])
            with pytest.warns(UnknownAgentWarning, match="does not know stranger: such trips are for review"):
                table = model.score(both)
            own, stranger = (table.filter(agent=agent) for agent in ("p00", "stranger"))
            assert "normal" in own["decision"]
            assert set(stranger["decision"]) == {"review"}
            assert set(stranger["history"]) == {0.0}
            assert np.allclose(stranger["score"], own["score"], atol=1e-4)  # they are measured all the same
            with pytest.warns(UnknownAgentWarning):
                assert model.explain(both, -1).decision == "review"
            assert model.unknown_agents(both) == ["stranger"]

    def test_trips_without_a_name_may_be_the_agents_own(self, detector: Detector, new: Trajectories) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UnknownAgentWarning)
            assert "normal" in detector.decide(claimed(new, ""))

    def test_trajectories_that_cannot_be_scored_are_refused(self, detector: Detector, new: Trajectories) -> None:
        with pytest.raises(DataError, match="fitted on GPS fixes"):
            detector.score(Trajectories.from_steps([np.zeros((3, 2))], [np.zeros((3, 1))]))
        with pytest.raises(DataError, match="no trajectories"):
            detector.score(new[:0])
        assert len(detector.score_samples(new[:0])) == 0
        with pytest.raises(NotFittedError, match="call fit"):
            Detector().score(new)


class TestNames:
    def test_a_name_does_not_mean_a_trip_whose_name_only_ends_alike(self) -> None:
        trips = city(people=1, days=6, seed=0).trips
        renamed = Trajectories(
            trips.columns, trips.offsets, trips.agent_ids, [f"2008/{i}" if i % 2 else f"{i}" for i in range(len(trips))]
        )
        quick = Detector().fit(renamed)
        quick.partial_fit(anomalous=["2", "p00/2008/3"])
        assert quick.anomalous_ == {TripId("p00", "2"), TripId("p00", "2008/3")}
        with pytest.raises(DataError, match="'1'"):
            quick.partial_fit(anomalous=["1"])

    def test_a_pool_knows_all_its_agents_however_few_trips_are_kept(self, sim: Simulation, tmp_path: Path) -> None:
        quick = Detector(keep=1, iterations=1).fit(sim.trips[::5])
        assert sorted(quick.agents) == ["p00", "p01", "p02", "p03"]
        quick.save(tmp_path / "pool.astray")
        assert opened(tmp_path / "pool.astray").agents == quick.agents


class TestDecisions:
    def test_low_scores_are_anomalies_only_if_the_heads_agree_and_history_stands_behind_them(
        self, detector: Detector, others: Trajectories
    ) -> None:
        trips = claimed(others[60:], "p00")
        usual = detector.decide(trips)
        assert (usual == "anomaly").any()
        doubtful = detector.decide(trips, gamma=0.0)
        assert np.array_equal(doubtful == "review", usual != "normal")
        assert np.array_equal(doubtful == "normal", usual == "normal")
        short = detector.set_params(min_history=10_000).decide(trips)
        assert np.array_equal(short, doubtful)

    def test_thresholds_may_be_changed_after_fitting(self, detector: Detector, others: Trajectories) -> None:
        trips = claimed(others[60:], "p00")
        loose, strict = (int((detector.decide(trips, eps=e) != "normal").sum()) for e in (-1.0, -4.0))
        assert loose > strict
        detector.set_params(eps=-4.0)
        assert int((detector.predict(trips) == -1).sum()) == strict
        # Instead of the rate, which counts again where it is asked for.
        with pytest.raises(DataError, match="not both"):
            detector.decide(trips, eps=-4.0, false_alarm_rate=0.02)
        p = detector.score(trips)["p_value"].to_numpy()
        assert np.array_equal(detector.decide(trips, false_alarm_rate=0.1) != "normal", p <= 0.1)
        detector.set_params(eps=None, false_alarm_rate=0.3)
        assert np.array_equal(detector.predict(trips) == -1, p <= 0.3)

    def test_thresholds_by_hour_and_by_context(self, detector: Detector, others: Trajectories) -> None:
        trips = claimed(others[60:], "p00")
        score = detector.score(trips)["score"].to_numpy()
        hour = (trips.columns["time"][trips.offsets[:-1]] % 86_400 // 3600).astype(int)
        at_night = ByHour(dict.fromkeys(range(12), -9.0), otherwise=-1.0, utc_offset=0.0)
        expected = score <= np.where(hour < 12, -9.0, -1.0)
        assert np.array_equal(detector.decide(trips, eps=at_night) != "normal", expected)
        by_mode = ByContext("mode", {"walk": -np.inf}, otherwise=-1.0)
        walking = trips.context["mode"] == "walk"
        assert np.array_equal(detector.decide(trips, eps=by_mode) != "normal", (score <= -1.0) & ~walking)
        assert np.array_equal(detector.decide(trips, eps=lambda t: np.full(len(t), -1.0)) != "normal", score <= -1.0)
        with pytest.raises(DataError, match="no context column 'call'"):
            detector.decide(trips, eps=ByContext("call", {}, -2.0))
        with pytest.raises(DataError, match="not an hour"):
            detector.decide(trips, eps=ByHour({24: -2.0}, -2.0))
        with pytest.raises(DataError, match="for each of the"):
            detector.decide(trips, eps=lambda t: np.zeros(3))

    def test_a_rate_of_false_alarms_is_a_bound_on_p_values(self, detector: Detector, others: Trajectories) -> None:
        trips = claimed(others[60:], "p00")
        p = detector.score(trips)["p_value"].to_numpy()
        # The least p-values of two scales may differ in the last bit.
        for rate in (0.02, 0.2, 0.3, float(p.min()) * (1.0 + 1e-12), float(np.median(p)) * (1.0 + 1e-12)):
            assert np.array_equal(detector.decide(trips, false_alarm_rate=rate) != "normal", p <= rate)
        with pytest.raises(DataError, match="cannot be told from"):
            detector.decide(trips, false_alarm_rate=1e-4)
        with pytest.raises(DataError, match="between 0 and 1"):
            detector.decide(trips, false_alarm_rate=2.0)

    def test_a_false_alarm_rate_may_be_given_wherever_a_threshold_may(
        self, detector: Detector, others: Trajectories
    ) -> None:
        trips = claimed(others[60:], "p00")

        def at_rate(some: Trajectories) -> np.ndarray:
            began = some.columns["time"][some.offsets[:-1]].tolist()
            scales = [detector.agent_model("p00", began=at).calibration for at in began]
            return np.array([level(0.5, scale.normal) for scale in scales])

        by_rate, by_eps = detector.score(trips, false_alarm_rate=0.5), detector.score(trips, eps=at_rate)
        assert by_rate.equals(by_eps)  # segments open at it as well
        assert not by_rate["segment_start"].equals(detector.score(trips)["segment_start"])
        for i in range(3):
            why = detector.explain(trips, i, false_alarm_rate=0.5)
            assert (why.eps, why.decision) == (at_rate(trips[i : i + 1])[0], by_rate["decision"][i])

    @given(
        st.lists(st.floats(-5, 5), min_size=1, max_size=30),
        st.lists(st.floats(-6, 6), min_size=1, max_size=10),
        st.floats(0.01, 0.99),
    )
    def test_scores_at_or_below_the_level_of_a_rate_have_p_values_at_or_below_the_rate(
        self, left_out: list[float], scores: list[float], rate: float
    ) -> None:
        calibration, new = Sample.of(np.array(left_out)), np.array([*scores, *left_out])
        p = calibration.p_values(new)
        if 1 / (1 + len(left_out)) > rate:
            with pytest.raises(DataError, match="cannot be told"):
                level(rate, calibration)
        else:
            assert np.array_equal(new <= level(rate, calibration), p <= rate)

    def test_without_held_out_trips_no_false_alarm_rate_is_promised(self) -> None:
        with pytest.raises(DataError, match="decide by eps"):
            level(0.5, Sample())
        borrowed = Sample.of(np.arange(202.0), np.r_[1.0, 1.0, np.full(200, 98 / 200)])
        with pytest.raises(DataError, match=r"100 past trips \(2 of the agent, 98 borrowed from others\)"):
            level(0.001, borrowed)

    def test_few_held_out_trips_promise_only_a_high_rate(self, mine: Trajectories) -> None:
        detector = Detector(**ONCE).fit(mine[:30])
        held_out = len(detector.calibration_.normal.scores)
        assert 1 <= held_out <= 12  # a fifth, by chance of their names; no trip that the heads have learned from
        with pytest.raises(DataError, match="cannot be told"):
            detector.decide(mine[30:], false_alarm_rate=0.9 / (1 + held_out))
        # What the detector's own rate cannot promise is decided as the paper does.
        score = detector.score_samples(mine[30:])
        assert np.array_equal(detector.decision_function(mine[30:]), score + 2.0)
        detector.set_params(false_alarm_rate=0.9)
        assert np.array_equal(detector.decision_function(mine[30:]), score - level(0.9, detector.calibration_.normal))

    def test_with_the_shared_reward_a_few_trips_promise_the_rate(self, mine: Trajectories) -> None:
        detector = Detector().fit(mine[:3])
        assert detector.calibration_.normal.total >= 99
        assert set(detector.decide(mine[30:])) <= {"normal", "review"}

    def test_the_rule_of_decisions(self) -> None:
        low = np.array([False, True, True, True, False, False])
        uncertainty = np.array([0.0, 1.5, 1.6, 0.0, np.nan, 0.0])
        history = np.array([1, 5, 5, 4, 9, 0])
        decided = decide(low, uncertainty, history, gamma=1.5, min_history=5)
        assert decided.tolist() == ["normal", "anomaly", "review", "review", "review", "review"]


class TestFiles:
    def test_save_load_score_is_bit_identical(
        self, mine: Trajectories, others: Trajectories, new: Trajectories, tmp_path: Path, fitted: Path
    ) -> None:
        detector = Detector(**QUICK, seed=0).fit(mine, population=others[::3])
        detector.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == fitted.read_bytes()  # the same seed, the same bytes
        loaded = opened(fitted)
        assert loaded.score(new).equals(detector.score(new), null_equal=True)
        assert loaded.score_fixes(new).equals(detector.score_fixes(new), null_equal=True)
        assert loaded.get_params() == detector.get_params()
        assert loaded.training_history_.equals(detector.training_history_.cast(pl.Float64))
        bent = bytearray(fitted.read_bytes())
        bent[len(bent) // 2] ^= 4
        (tmp_path / "bent").write_bytes(bent)
        with pytest.raises(ModelFileError):
            astray.load(tmp_path / "bent")

    def test_save_load_score_is_bit_identical_for_a_reward_of_its_own(
        self, mine: Trajectories, others: Trajectories, new: Trajectories, tmp_path: Path, fitted_alone: Path
    ) -> None:
        detector = Detector(**OWN, seed=0).fit(mine, population=others[:60])
        detector.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == fitted_alone.read_bytes()
        loaded = opened(fitted_alone)
        assert loaded.score(new).equals(detector.score(new), null_equal=True)
        assert loaded.training_history_.equals(detector.training_history_.cast(pl.Float64))
        assert len(loaded.training_history_) == OWN["iterations"]

    def test_another_seed_is_another_model(self, mine: Trajectories, tmp_path: Path) -> None:
        files = []
        for seed in (0, 0, 1):
            Detector(**ONCE, seed=seed).fit(mine[:5]).save(tmp_path / "m")
            files.append(contents_of(tmp_path / "m").arrays["reward.step.layers.0.0"])
        assert np.array_equal(files[0], files[1])
        assert not np.array_equal(files[0], files[2])

    @pytest.mark.parametrize(
        "featurizer",
        [
            {"encoder": "fourier"},
            FeaturizerConfig(context=ContextSpec(True, True, ((45.0, 7.0),), ("number",), ("mode", "colour"))),
        ],
    )
    def test_save_load_score_is_bit_identical_for_every_featurizer(
        self, featurizer: Any, mine: Trajectories, new: Trajectories, tmp_path: Path
    ) -> None:
        def dressed(trips: Trajectories) -> Trajectories:
            i = np.arange(len(trips))
            return trips.with_columns(context={"number": i, "colour": np.where(i % 3 == 0, "red", "blue")})

        quick = {
            "iterations": 1,
            "config": {"updates": 2, "rollouts": 4, "imagined": 10, "reward": {"random_prior": 0.5}},
        }
        detector = Detector(**quick, featurizer=featurizer, networks=2, heads=3).fit(dressed(mine[:8]))
        detector.save(tmp_path / "m")
        loaded = opened(tmp_path / "m")
        assert loaded.posterior_.n_heads == 6
        for d in (detector, loaded):
            d.partial_fit(dressed(new[:3]))
        assert loaded.score(dressed(new)).equals(detector.score(dressed(new)), null_equal=True)
        assert str(loaded.explain(dressed(new)))

    def test_loading_scoring_and_explaining_need_no_torch(
        self, detector: Detector, fitted: Path, new: Trajectories, tmp_path: Path
    ) -> None:
        table = tmp_path / "trips.parquet"
        new.to_frame().write_parquet(table)
        code = """
            import sys
            import astray, polars as pl
            assert "polars" in sys.modules and not any(m in sys.modules for m in ("torch", "sklearn"))
            trips = astray.Trajectories.from_frame(pl.read_parquet(sys.argv[2]))
            detector = astray.load(sys.argv[1])
            detector.score(trips).write_parquet(sys.argv[3])
            detector.score_fixes(trips)
            assert len(str(detector.explain(trips)))
            detector.save(sys.argv[1] + ".copy")
            assert "torch" not in sys.modules
            """
        arguments = [str(fitted), str(table), str(tmp_path / "scores.parquet")]
        subprocess.run([sys.executable, "-c", textwrap.dedent(code), *arguments], check=True)
        assert pl.read_parquet(tmp_path / "scores.parquet").equals(detector.score(new), null_equal=True)

    def test_fitting_by_counting_needs_no_torch(self, new: Trajectories, tmp_path: Path) -> None:
        table = tmp_path / "trips.parquet"
        new.to_frame().write_parquet(table)
        code = """
            import sys
            import astray, polars as pl
            trips = astray.Trajectories.from_frame(pl.read_parquet(sys.argv[1]))
            detector = astray.Detector().fit(trips[:-2])
            detector.partial_fit(trips[-2:-1]).score(trips[-1])
            others = astray.Trajectories(trips.columns, trips.offsets, ["else"] * len(trips), trips.trajectory_ids)
            astray.Detector().fit(trips[:-2], population=others)  # too few to learn from
            assert not [m for m in ("torch", "sklearn") if m in sys.modules]
            """
        subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(table)], check=True)

    def test_a_file_holds_thresholds_and_functions_are_refused(self, detector: Detector, tmp_path: Path) -> None:
        by_hour, by_call = ByHour({3: -3.0}, -2.0), ByContext("call", {"b": 1.0}, 2.0)
        detector.set_params(eps=by_hour, gamma=by_call).save(tmp_path / "m")
        loaded = opened(tmp_path / "m")
        assert (loaded.eps, loaded.gamma) == (by_hour, by_call)
        with pytest.raises(ModelFileError, match="eps is a function"):
            detector.set_params(eps=lambda t: np.zeros(len(t))).save(tmp_path / "m")
        for wrong in ([-1.0, -2.0], "low"):
            with pytest.raises(ModelFileError, match="eps is not one number; set it to one before saving"):
                detector.set_params(eps=wrong).save(tmp_path / "m")
        assert opened(tmp_path / "m").eps == by_hour

    def test_a_forged_array_of_another_shape_or_type_is_refused(self, fitted: Path, tmp_path: Path) -> None:
        model = contents_of(fitted)
        assert model.arrays
        for name, array in model.arrays.items():
            for forged in (array[:-1], array.astype(np.float64 if array.dtype != np.float64 else np.float32), None):
                arrays = {k: v for k, v in model.arrays.items() if k != name}
                if forged is not None and forged.dtype == array.dtype and not len(array):
                    continue  # nothing was taken away
                if forged is not None:
                    arrays[name] = forged
                write_contents(tmp_path / "forged", model.kind, model.values, arrays, fitted)
                with pytest.raises(ModelFileError):
                    astray.load(tmp_path / "forged")

    @pytest.mark.parametrize(
        ("name", "number"),
        [
            ("reward.reference.trips", np.nan),
            ("reward.trip.layers.0.0", 1e30),
            ("reward.step.mean", -1e30),
            ("reward.step.scale", 0.0),
        ],
    )
    def test_a_reward_with_impossible_numbers_is_refused(
        self, fitted: Path, tmp_path: Path, name: str, number: float
    ) -> None:
        model = contents_of(fitted)
        bent = model.arrays[name].copy()
        bent.reshape(-1)[0] = number
        write_contents(tmp_path / "m", model.kind, model.values, dict(model.arrays) | {name: bent}, fitted)
        with pytest.raises(ModelFileError, match=r"not finite|no reward has"):
            astray.load(tmp_path / "m")

    def test_forged_values_are_refused(self, fitted: Path, tmp_path: Path) -> None:
        model = contents_of(fitted)
        reward = model.values["reward"]
        for name in (*model.values, *(f"reward {part}" for part in reward)):
            for forged in ("nonsense", 7, {"unheard": 1}, None):
                changed = {name: forged}
                if name.startswith("reward "):
                    changed = {"reward": reward | {name.removeprefix("reward "): forged}}
                write_contents(tmp_path / "forged", model.kind, model.values | changed, model.arrays, fitted)
                if (name, forged) in (("updates", 7), ("reward made", {"unheard": 1})):
                    continue
                with pytest.raises(ModelFileError):
                    astray.load(tmp_path / "forged")

    @pytest.mark.parametrize(
        ("name", "forged"),
        [
            (("parameters", "n_jobs"), "3"),
            (("parameters", "min_history"), "../x"),
            (("parameters", "false_alarm_rate"), 7),
            (("reward", "step", "clip"), 5e300),
            (("reward", "step", "clip"), -1.0),
            (("featurizer_config", "interval"), 1e-320),
            (("aspect_weights",), [-1.0, 0.3, 0.3, 0.3]),
            (("aspect_weights",), [0.0] * 4),
        ],
    )
    def test_forged_numbers_are_refused_before_anything_is_scored(
        self, fitted: Path, tmp_path: Path, name: tuple[str, ...], forged: object
    ) -> None:
        model = contents_of(fitted)
        values = json.loads(json.dumps(model.values))
        inside = values
        for part in name[:-1]:
            inside = inside[part]
        assert name[-1] in inside
        inside[name[-1]] = forged
        write_contents(tmp_path / "forged", model.kind, values, model.arrays, fitted)
        with warnings.catch_warnings(action="error"), pytest.raises(ModelFileError):
            astray.load(tmp_path / "forged")


@pytest.fixture(scope="module")
def with_strays() -> tuple[Trajectories, Trajectories, set[TripId]]:
    """Of one person, with a trip of eight others each among them; of three further people; and the eight names."""
    trips = city(people=12, days=21, seed=0).trips
    strays = Trajectories.concat([trips.agent(f"p{i:02d}")[3:4] for i in range(4, 12)])
    mixed = Trajectories.concat([trips.agent("p00"), renamed(strays, *(f"stray-{i}" for i in range(8)))])
    mine = Trajectories(mixed.columns, mixed.offsets, np.full(len(mixed), "p00"), mixed.trajectory_ids)
    crowd = Trajectories.concat([trips.agent(f"p{i:02d}") for i in (1, 2, 3)])
    return mine, crowd, {TripId("p00", f"stray-{i}") for i in range(8)}


@pytest.fixture(scope="module")
def suspicious(with_strays: tuple[Trajectories, Trajectories, set[TripId]]) -> Detector:
    mine, crowd, _ = with_strays
    return Detector(**QUICK, seed=0).fit(mine, population=crowd)


class TestStrays:
    """Somebody else's trips among those that it is to learn from."""

    def test_strays_are_suspected_and_neither_remembered_nor_kept(
        self, suspicious: Detector, with_strays: tuple[Trajectories, Trajectories, set[TripId]]
    ) -> None:
        found, (mine, _, strays) = set(suspicious.suspects_), with_strays
        assert found
        assert found <= strays
        assert set(featurizer_of(suspicious).memory.trip_ids) == set(mine.ids) - found
        assert not found & set(kept_of(suspicious).ids)
        assert len(memory_of(suspicious).own.trips) == len(featurizer_of(suspicious).memory)

    def test_the_agents_own_trips_are_hardly_ever_suspected_and_never_with_suspect_false(
        self, with_strays: tuple[Trajectories, Trajectories, set[TripId]], mine: Trajectories
    ) -> None:
        mixed, others, strays = with_strays
        assert Detector().fit(mixed).suspects_ == ()  # nobody else is known whose they could be
        trusting = Detector(suspect=False).fit(mixed)
        assert trusting.suspects_ == ()
        assert strays <= set(featurizer_of(trusting).memory.trip_ids)
        assert len(Detector().fit(mine, population=others).suspects_) <= 1

    def test_further_rounds_suspect_more_trips_of_one_stranger(
        self, with_strays: tuple[Trajectories, Trajectories, set[TripId]]
    ) -> None:
        mine, crowd, strays = with_strays
        theirs = renamed(city(people=12, days=21, seed=0).trips.agent("p05")[5:9], "a", "b", "c", "d")
        more = Trajectories.concat([mine, theirs])
        mixed = Trajectories(more.columns, more.offsets, np.full(len(more), "p00"), more.trajectory_ids)
        once, again = (Detector(scaling={"rounds": n}).fit(mixed, population=crowd).suspects_ for n in (1, 5))
        assert len(again) > len(once)
        assert set(again) <= strays | {TripId("p00", name) for name in "abcd"}

    def test_a_file_holds_the_names_of_suspects(self, suspicious: Detector, tmp_path: Path) -> None:
        suspicious.save(tmp_path / "m.astray")
        assert opened(tmp_path / "m.astray").suspects_ == suspicious.suspects_

    def test_confirmed_suspects_are_anomalous_and_no_longer_suspected(
        self, suspicious: Detector, tmp_path: Path
    ) -> None:
        suspicious.save(tmp_path / "m.astray")
        again = opened(tmp_path / "m.astray")
        again.partial_fit(anomalous=again.suspects_[:2])
        assert again.suspects_ == suspicious.suspects_[2:]
        assert not set(suspicious.suspects_[:2]) & set(featurizer_of(again).memory.trip_ids)

    def test_suspects_that_are_given_again_are_judged_again(
        self, suspicious: Detector, with_strays: tuple[Trajectories, Trajectories, set[TripId]], tmp_path: Path
    ) -> None:
        suspicious.save(tmp_path / "m.astray")
        mine, first = with_strays[0], suspicious.suspects_[0]
        for suspect in (True, False):
            again = opened(tmp_path / "m.astray").set_params(suspect=suspect)
            again.partial_fit(mine[mine.isin([first])])
            doubted = first in again.suspects_
            assert doubted or not suspect
            assert len(set(again.suspects_)) == len(again.suspects_)
            assert (first in featurizer_of(again).memory.trip_ids) != doubted


class TestGoingOn:
    def test_a_loaded_model_continues_to_learn_as_the_saved_one_would(
        self, mine: Trajectories, others: Trajectories, new: Trajectories, tmp_path: Path, fitted: Path
    ) -> None:
        first = Detector(**QUICK, seed=0).fit(mine, population=others[::3])
        for detector, name in ((first, "a"), (opened(fitted), "b")):
            detector.partial_fit(new[:6]).partial_fit(new[6:8])
            detector.save(tmp_path / name)
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
        assert first.n_updates_ == 2
        assert first.n_trips_ == len(mine) + 8

    def test_a_loaded_reward_of_its_own_continues_to_learn_as_the_saved_one_would(
        self, mine: Trajectories, others: Trajectories, new: Trajectories, tmp_path: Path, fitted_alone: Path
    ) -> None:
        first = Detector(**OWN, seed=0).fit(mine, population=others[:60])
        for detector, name in ((first, "a"), (opened(fitted_alone), "b")):
            detector.partial_fit(new[:6])
            detector.save(tmp_path / name)
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
        assert len(first.training_history_) > OWN["iterations"]

    def test_a_model_that_keeps_few_trips_continues_to_learn(self, mine: Trajectories, new: Trajectories) -> None:
        forgetful = Detector(keep=2).fit(mine)
        forgetful.partial_fit(new)
        assert forgetful.n_trips_ == len(mine) + len(new)
        assert len(memory_of(forgetful).own.trips) == len(mine) + len(new)
        assert np.isfinite(forgetful.score_samples(new)).all()

    def test_a_population_teaches_later_too(self, mine: Trajectories, new: Trajectories, others: Trajectories) -> None:
        detector = Detector(**QUICK).fit(mine)
        assert detector.reward_ is pretrained()
        detector.partial_fit(new[:3], population=others[::3])
        assert detector.reward_ is not pretrained()
        assert set(featurizer_of(detector).popularity.agents.trip_ids) == set(others.agents)
        learned = detector.reward_
        assert detector.partial_fit(new[3:5]).reward_ is learned

    def test_new_habits_become_normal(self, detector: Detector, others: Trajectories) -> None:
        moved = others.agent("p01")[:20]
        before = detector.score_samples(moved[:10]).mean()
        detector.partial_fit(moved[10:])
        assert detector.score_samples(moved[:10]).mean() > before + 0.5

    def test_a_trip_given_again_is_not_counted_twice(self, detector: Detector, mine: Trajectories) -> None:
        remembered = len(featurizer_of(detector).memory)
        detector.partial_fit(mine[:3])
        assert len(featurizer_of(detector).memory) == remembered
        assert detector.n_trips_ == len(mine)

    def test_confirmed_anomalies_never_teach(self, detector: Detector, others: Trajectories, new: Trajectories) -> None:
        poison = others[60:70]
        scored = detector.score(Trajectories.concat([poison, new]))
        for k in range(3):
            detector.partial_fit(renamed(poison, *(f"{k}-{i}" for i in range(10))), y=-1)
        detector.partial_fit(poison, y=np.full(10, -1))
        # Given again without a mark they are known.
        detector.partial_fit(poison)
        again = detector.score(Trajectories.concat([poison, new]))
        assert again.equals(scored, null_equal=True)
        assert len(detector.anomalous_) == 40

    def test_anomalies_among_normal_trips_do_not_teach_either(
        self, detector: Detector, others: Trajectories, new: Trajectories
    ) -> None:
        poison = others[60:66]
        mixed = Trajectories.concat([new[:4], poison])
        detector.partial_fit(mixed, y=[1] * 4 + [-1] * 6)
        assert not {*featurizer_of(detector).memory.trip_ids, *kept_of(detector).ids} & set(poison.ids)
        assert set(new[:4].trajectory_ids.tolist()) <= set(kept_of(detector).trajectory_ids.tolist())

    def test_past_trips_that_proved_anomalous_are_taken_out_of_the_memory(
        self, detector: Detector, others: Trajectories
    ) -> None:
        poison, later = others[60:64], renamed(others[60:64], *"wxyz")
        clean = detector.score_samples(later)
        detector.partial_fit(poison)
        fooled = detector.score_samples(later)
        assert (fooled > clean).all()
        weights = detector.posterior_
        detector.partial_fit(anomalous=poison.trajectory_ids.tolist())
        assert detector.posterior_ is weights
        assert (detector.score_samples(later) < fooled).all()
        assert not set(poison.trajectory_ids.tolist()) & set(kept_of(detector).trajectory_ids.tolist())
        assert not any(t.agent == "p01" for t in featurizer_of(detector).memory.trip_ids)

    def test_all_past_trips_may_prove_anomalous(self, tmp_path: Path) -> None:
        trips = straight(50, "t0")
        detector = Detector().fit(trips).partial_fit(anomalous=["a/t0"])
        detector.save(tmp_path / "m")
        loaded = opened(tmp_path / "m")
        table = loaded.score(trips)
        assert table["history"].to_list() == [0.0]
        assert table["decision"].to_list() != ["anomaly"]
        assert loaded.explain(trips).habitual == ()
        loaded.partial_fit(straight(50, "t1"))  # the same trip under another name
        assert kept_of(loaded).trajectory_ids.tolist() == []
        loaded.partial_fit(straight(60, "t2"))
        assert kept_of(loaded).trajectory_ids.tolist() == ["t2"]

    def test_an_unknown_trip_that_is_named_as_anomalous_is_refused(self, detector: Detector) -> None:
        with pytest.raises(DataError, match="no trip named 'p00-9999'"):
            detector.partial_fit(anomalous=["p00-9999"])
        with pytest.raises(DataError, match="'p00-9999'"):
            Detector(**QUICK).partial_fit(kept_of(detector), anomalous=["p00-9999"])

    def test_labels_are_plus_or_minus_one(self, detector: Detector, new: Trajectories) -> None:
        with pytest.raises(DataError, match=r"\+1 \(normal\) or -1"):
            detector.partial_fit(new, y=[0] * len(new))
        with pytest.raises(DataError, match="no trajectory to learn from"):
            Detector().fit(new, y=-1)

    def test_the_first_call_of_partial_fit_fits(self, mine: Trajectories) -> None:
        quick = Detector()
        quick.partial_fit(mine[:5], anomalous=[str(mine.trajectory_ids[0])])
        assert quick.n_trips_ == 4
        assert quick.anomalous_ == {mine.ids[0]}
        with pytest.raises(DataError, match="nothing to learn from"):
            Detector().partial_fit()

    def test_trips_that_the_memory_drops_do_not_come_back(self, mine: Trajectories, new: Trajectories) -> None:
        featurizer = FeaturizerConfig(forgetting=Forgetting(max_trips=10))
        detector = Detector(featurizer=featurizer).fit(mine)
        detector.partial_fit(new[:4])
        names = {t.trajectory for t in featurizer_of(detector).memory.trip_ids}
        assert names == {*mine.trajectory_ids[-6:].tolist(), *new.trajectory_ids[:4].tolist()}
        assert set(kept_of(detector).trajectory_ids.tolist()) <= names

    def test_an_error_while_learning_leaves_the_model_as_it_was(
        self, alone: Detector, fitted_alone: Path, new: Trajectories, tmp_path: Path
    ) -> None:
        learned_with = alone.world_.learning
        alone.world_.learning = learned_with | {"learning_rate": 1e25}
        with pytest.raises(TrainingError):
            alone.partial_fit(new[:5])
        alone.world_.learning = {"unheard": 1}
        with pytest.raises(DataError, match="no field named 'unheard'"):
            alone.partial_fit(new[:5])
        alone.world_.learning = learned_with
        alone.save(tmp_path / "after")
        assert (tmp_path / "after").read_bytes() == fitted_alone.read_bytes()

    def test_the_policy_from_a_file_is_the_policy_that_was_saved(self, alone: Detector) -> None:
        actor = alone.world_.trained.generated.actor
        config = restore(LearnConfig, alone.world_.learning)
        learned = restore_learner(alone.posterior_, alone.world_.trained.generated, config, np.random.default_rng(0))
        start = np.array([[1.0, 0.5, 0.0, 0.0, -1.0]])
        made = rollout(learned.generator.policy, Integrator(start, 30.0), 1, 5, np.random.default_rng(1))  # type: ignore[union-attr]
        noise = np.random.default_rng(1).standard_normal((5, 1, 2))
        acted = actor.mean(made.states[0]) + actor.std * noise[:, 0]
        assert np.allclose(acted, made.actions[0], atol=1e-3)
        again = PolicyCheckpoint.of(learned)
        assert again is not None
        assert np.array_equal(again.actor.theta, actor.theta)
        assert np.array_equal(again.critic, alone.world_.trained.generated.critic)
        features = np.random.default_rng(2).normal(size=(9, len(alone.posterior_.mean))).astype(np.float32)
        assert np.array_equal(learned.reward.posterior()(features), alone.posterior_(features))

    def test_population_is_of_others(self, mine: Trajectories) -> None:
        with pytest.raises(DataError, match="no trip of another agent"):
            Detector().fit(mine, population=mine)
        with pytest.raises(DataError, match="two trajectories are called 'p00/p00-0000'"):
            Detector().fit(Trajectories.concat([mine, mine[:1]]))


@pytest.fixture(scope="module")
def walker() -> Detector:
    """Somebody who has gone the same way north twenty times."""
    trips = Trajectories.concat([straight(60, f"t{i}", start=1.7e9 + 86_400 * i) for i in range(20)])
    return Detector().fit(trips)


class TestExplanations:
    def test_a_place_never_visited_in_words(self, walker: Detector) -> None:
        away = fixes(45.0 + 4.5e-4 * np.arange(60), 7.0 + 6e-4 * np.arange(60), name="away", start=1.7e9 + 86_400 * 30)
        said = walker.explain(away, eps=-2.0)
        assert said.decision in ("anomaly", "review")
        assert "0 of 20 past trips came through this street, " in said.segments[-1].words
        assert said.segments[-1].counts["cell 150 m"] == 0.0
        assert said.segments[-1].stop == 60
        text = str(said)
        assert "away of a" in text
        assert "0 of 20 past trips" in text

    def test_an_odd_hour_or_direction_in_words(self, walker: Detector) -> None:
        assert isinstance(featurizer_of(walker).encoder, FamiliarityEncoder)
        late = featurizer_of(walker).featurize(straight(60, "late", start=1.7e9 + 86_400 * 40 + 9 * 3600)).steps
        encoder = featurizer_of(walker).encoder
        words, _ = counts_in_words(familiar_counts(late, encoder, -1), encoder, -1)
        assert words.startswith("20 of 20 past trips came through this street")
        assert "0 of the 20 trips around here passed at this hour" in words
        back = straight(60, "back", start=1.7e9 + 86_400 * 40)
        back = fixes(back.columns["lat"][::-1], back.columns["lon"], name="back", start=1.7e9 + 86_400 * 40)
        returning = featurizer_of(walker).featurize(back).steps[np.arange(20, 50)]
        words, _ = counts_in_words(familiar_counts(returning, encoder, -1), encoder, -1)
        assert "in this direction" in words

    def test_a_remembered_trip_does_not_vouch_for_itself(self, walker: Detector) -> None:
        assert isinstance(featurizer_of(walker).encoder, FamiliarityEncoder)
        steps = featurizer_of(walker).featurize(straight(60, "t3", start=1.7e9 + 86_400 * 3)).steps
        encoder = featurizer_of(walker).encoder
        words, counts = counts_in_words(familiar_counts(steps, encoder, 3), encoder, 3)
        assert words.startswith("19 of 19 past trips")
        assert counts["cell 150 m"] == 19.0

    def test_plain_data_for_a_picture(self, detector: Detector, new: Trajectories, others: Trajectories) -> None:
        trips = others[60:]
        worst = int(np.argmin(detector.score_samples(trips)))
        said = detector.explain(trips, worst)
        n = int(trips.lengths[worst])
        for name in ("time", "lat", "lon", "normality", "uncertainty", "lo", "hi", "fault"):
            assert getattr(said, name).shape == (n,)
        row = detector.score(trips).row(worst, named=True)
        assert said.decision == row["decision"]
        assert said.score == pytest.approx(row["score"], abs=1e-5)
        assert said.trip_normality == pytest.approx(row["normality"], abs=1e-5)
        assert said.score <= said.eps
        assert said.segments
        assert all(0 <= s.start < s.stop <= n for s in said.segments)
        assert 0 < len(said.habitual) <= 50
        assert all(lat.shape == lon.shape and len(lat) > 1 for lat, lon in said.habitual)
        assert len(said.expected) <= 5  # a stranger may be nowhere near a way that the agent goes

    def test_a_policy_says_where_the_agent_would_rather_have_gone(self, alone: Detector, others: Trajectories) -> None:
        trips = others[60:]
        said = alone.explain(trips, int(np.argmin(alone.score_samples(trips))))
        assert 1 <= len(said.expected) <= 5
        leaves = said.segments[0].start
        for lat, lon in said.expected:
            # It starts where the trip was before it left the normal way.
            assert abs(lat[0] - said.lat[leaves]) < 0.01
            assert abs(lon[0] - said.lon[leaves]) < 0.01
            assert np.isfinite(lat).all()

    def test_a_table_and_an_explanation_tell_of_the_same_segments(
        self, detector: Detector, others: Trajectories
    ) -> None:
        """Also where the threshold is a function of the trips, and another one is asked for."""
        trips = others[60:]
        strict = copy.copy(detector).set_params(eps=ByHour({}, otherwise=-3.0))
        table = strict.score(trips)
        assert table.drop("decision").equals(detector.score(trips, eps=-3.0).drop("decision"))
        worst = int(table["segment_normality"].arg_min())
        start = table["segment_start"][worst].timestamp()
        apart = 15.0  # seconds: the table looks at a row about every interval, an explanation at every fix
        segments = strict.explain(trips, worst).segments
        assert any(s.start_time - apart <= start <= s.end_time + apart for s in segments)

    def test_a_trip_is_found_by_id_or_position(self, detector: Detector, new: Trajectories) -> None:
        name = str(new.trajectory_ids[2])
        assert detector.explain(new, name).trajectory == name
        assert detector.explain(new, f"p00/{name}").trajectory == name
        assert detector.explain(new, TripId("p00", name)).id == TripId("p00", name)
        assert detector.explain(new, -1).trajectory == str(new.trajectory_ids[-1])
        with pytest.raises(DataError, match="no trip named 'x'"):
            detector.explain(new, "x")
        with pytest.raises(DataError, match="2 trajectories are called"):
            detector.explain(Trajectories.concat([new, new]), name)
        with pytest.raises(DataError, match="there is no trajectory"):
            detector.explain(new, len(new))


class TestStatesAndActions:
    @staticmethod
    def driven(gain: float, n: int, seed: int) -> Trajectories:
        """A damped mass that a controller holds at the origin: a = -gain x."""
        rng = np.random.default_rng(seed)
        states, actions = np.zeros((n, 30, 2)), np.zeros((n, 30, 1))
        x = rng.normal(size=(n, 2))
        for t in range(30):
            a = -gain * x[:, :1] + 0.1 * rng.normal(size=(n, 1))
            states[:, t], actions[:, t] = x, a
            x = x + 0.1 * np.hstack([x[:, 1:], a - x[:, 1:]])
        return Trajectories.from_steps(list(states), list(actions), trajectory_ids=[f"{gain}-{i}" for i in range(n)])

    def test_another_controller_is_detected_and_explained_also_after_loading(self, tmp_path: Path) -> None:
        usual, other = self.driven(1.0, 60, 0), self.driven(-2.0, 10, 1)
        detector = Detector(iterations=6, config={"updates": 25, "rollouts": 8, "clone_updates": 30}).fit(usual[:50])
        normal, strange = detector.score_samples(usual[50:]), detector.score_samples(other)
        assert np.median(strange) < np.median(normal) - 1.0
        detector.save(tmp_path / "m")
        loaded = opened(tmp_path / "m")
        assert np.array_equal(loaded.score_samples(other), strange)
        table = loaded.score_fixes(other[:2])
        assert table.columns[2] == "step"
        assert table["step"].to_list() == [*range(30), *range(30)]
        worst = int(np.argmin(strange))
        said = loaded.explain(other, worst)
        assert said.segments
        assert "past steps most like this one" in said.segments[0].words
        assert "step" in str(said)
        loaded.partial_fit(usual[50:])
        detector.partial_fit(usual[50:])
        assert np.array_equal(loaded.score_samples(other), detector.score_samples(other))
        with pytest.raises(DataError, match="states have 3 columns, not 2"):
            loaded.score(Trajectories.from_steps([np.zeros((3, 3))], [np.zeros((3, 1))]))
        with pytest.raises(DataError, match="no time"):
            loaded.decide(other, eps=ByHour({}, -2.0))


class TestHardData:
    @pytest.mark.parametrize("preset", ["default", "own", "kdd19"])
    @pytest.mark.parametrize("case", ["one", "two fixes", "identical", "never moves", "one very long"])
    def test_few_short_long_or_motionless_trips_are_fitted_scored_saved_and_learned_from_again(
        self, case: str, preset: str, tmp_path: Path
    ) -> None:
        match case:
            case "one":
                trips = straight(100, "t")
            case "two fixes":
                trips = straight(2, "t")
            case "identical":
                trips = Trajectories.concat([straight(50, f"t{i}") for i in range(10)])
            case "never moves":
                still = np.zeros(50)
                days = [fixes(45 + still, 7 + still, start=1.7e9 + 86_400 * i, name=f"t{i}") for i in range(10)]
                trips = Trajectories.concat(days)
            case _:
                long = fixes(45 + 1e-6 * np.arange(60_000), np.full(60_000, 7.0), every=2.0, name="long")
                days = [straight(100, f"t{i}", start=1.6e9 + 86_400 * i) for i in range(40)]
                trips = Trajectories.concat([long, *days])
        quick = {"updates": 2, "rollouts": 4, "imagined": 20, "clone_updates": 2}
        detector = Detector(preset=preset, iterations=2, config=quick).fit(trips)
        table = detector.score(trips)
        assert np.isfinite(table["score"].to_numpy()).all()
        assert len(detector.score_fixes(trips)) == trips.n_rows
        assert str(detector.explain(trips))
        detector.save(tmp_path / "m")
        loaded = opened(tmp_path / "m")
        assert loaded.score(trips).equals(table, null_equal=True)
        loaded.partial_fit(straight(30, "new"))

    def test_learning_needs_a_trip_with_two_usable_fixes(self) -> None:
        with pytest.raises(DataError, match="two usable fixes"):
            Detector(preset="kdd19").fit(straight(1, "t"))
        # Where nothing is trained, one fix is counted, and nothing is called an anomaly by it.
        assert Detector().fit(straight(1, "t")).decide(straight(60, "u"))[0] in ("normal", "review")
        with pytest.raises(DataError):
            Detector().fit(straight(5, "t")[:0])
