"""A model of many agents: one reward serves all; enrolling an agent trains nothing; forgetting leaves no trace."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

import astray
from astray import Detector, Trajectories, TripId
from astray.core.errors import DataError, NotFittedError
from astray.explain import ways_on
from astray.features.context import Context, ContextSpec
from astray.features.featurizer import Featurizer, FeaturizerConfig
from astray.features.memory import Forgetting, Memory
from astray.features.popularity import Counted, Popularity, Visits
from astray.irl.posterior import combined
from astray.model import many_agents
from astray.model.agent_memory import AgentMemory, Common, centres
from astray.model.pretrained import pretrained
from astray.scoring.normality import step_normality
from astray.scoring.own_scale import SCALES, OwnScores
from astray.scoring.scale_config import ScaleConfig
from astray.simulate import Simulation, city
from fitted import QUICK

ONCE: dict[str, Any] = {
    "iterations": 1,
    "sharing": {"least_agents": 2, "memories": 1, "demonstrations": 4, "imagined": 2, "reference": 10},
}
TRAINED = [f"p{i:02d}" for i in range(6)]
NEW = ["p06", "p07", "p08"]


@pytest.fixture(scope="module")
def sim() -> Simulation:
    return city(people=9, days=21, seed=1)


@pytest.fixture(scope="module")
def past(sim: Simulation) -> Trajectories:
    return sim.split(0.3)[0]


@pytest.fixture(scope="module")
def future(sim: Simulation) -> Trajectories:
    return sim.split(0.3)[1]


@pytest.fixture(scope="module")
def fitted(past: Trajectories, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a fleet of six; each test opens its own."""
    path = tmp_path_factory.mktemp("models") / "fleet.astray"
    Detector(**QUICK, seed=0).fit(some(past, TRAINED)).save(path)
    return path


@pytest.fixture
def fleet(fitted: Path) -> Detector:
    return opened(fitted)


def opened(path: Path) -> Detector:
    fleet = astray.load(path)
    assert isinstance(fleet, Detector)
    return fleet


def some(trips: Trajectories, agents: list[str]) -> Trajectories:
    return trips[np.isin(trips.agent_ids, agents)]


def handed(trips: Trajectories, agent: str) -> Trajectories:
    """The same trips in somebody else's name."""
    ids = [f"as-{agent}-{t}" for t in trips.trajectory_ids.tolist()]
    return Trajectories(trips.columns, trips.offsets, [agent] * len(trips), ids, trips.context)


def line(n: int, agent: str, name: str, lon: float = 7.0, start: float = 1.7e9) -> Trajectories:
    time = start + 10.0 * np.arange(n)
    return Trajectories.from_fixes(
        time=time, lat=45 + 4.5e-4 * np.arange(n), lon=np.full(n, lon), agent=agent, trajectory=name
    )


def named(trips: Trajectories, agent: str, prefix: str) -> Trajectories:
    columns = {name: trips.columns[name] for name in ("time", "lat", "lon")}
    return Trajectories(columns, trips.offsets, [agent] * len(trips), [f"{prefix}/{i}" for i in range(len(trips))])


class TestNewAgents:
    def test_enrolling_is_counting_and_the_reward_knows_people_it_has_never_met(
        self, fleet: Detector, past: Trajectories, future: Trajectories
    ) -> None:
        reward, popularity = fleet.reward_, fleet.world_.popularity
        assert reward is not pretrained()
        assert fleet.enroll(some(past, NEW)) == len(some(past, NEW))
        assert fleet.reward_ is reward
        assert fleet.world_.popularity is popularity
        assert fleet.agents == TRAINED + NEW
        areas = []
        for agent in NEW:
            own, strange = future.agent(agent), handed(future.without(agent)[::3], agent)
            score = fleet.score_samples(Trajectories.concat([own, strange]))
            areas.append(roc_auc_score(np.r_[np.ones(len(own)), np.zeros(len(strange))], score))
        assert np.mean(areas) > 0.9

    def test_a_score_says_how_much_history_stands_behind_it(self, fleet: Detector, past: Trajectories) -> None:
        trips = past.agent("p06")
        for n in (3, 10, 25):
            fleet.enroll(trips[:n])
            assert fleet.score(trips[25:30])["history"].to_list() == [n] * 5
        # A remembered trip does not vouch for itself.
        assert fleet.score(trips[:4])["history"].to_list() == [24] * 4

    def test_trips_of_an_unknown_agent_are_for_review_at_worst(self, fleet: Detector, future: Trajectories) -> None:
        table = fleet.score(future.agent("p08"))
        assert set(table["history"]) == {0.0}
        assert "anomaly" not in set(table["decision"])
        assert "p08" not in fleet.agents

    def test_a_cold_start_widens_the_uncertainty(self, past: Trajectories) -> None:
        fleet = Detector().fit(some(past, TRAINED))  # as shipped: the reference of so few agents is of few trips
        trips = past.agent("p07")
        uncertainty = []
        for n in (3, 10, 30):
            fleet.enroll(trips[:n])
            uncertainty.append(fleet.score(trips[-10:])["uncertainty"].mean())
        assert uncertainty[0] > uncertainty[1] > uncertainty[2] > 0

    def test_a_rate_of_false_alarms_means_the_same_with_little_history_as_with_much(
        self, past: Trajectories, future: Trajectories
    ) -> None:
        fleet = Detector().fit(some(past, TRAINED))  # as shipped: too few agents to go on learning from
        normal = some(future, NEW)
        for n in (3, 10, 25):
            for agent in NEW:
                fleet.enroll(past.agent(agent)[:n])
            assert abs(np.mean(fleet.score_samples(normal))) < 1.0
            assert np.mean(fleet.predict(normal) == -1) < 0.1

    def test_agent_model_gives_the_scores_of_the_table(self, fleet: Detector, past: Trajectories) -> None:
        trips = past.agent("p06")
        fleet.enroll(trips[:30])
        for agent, near in (
            ("p06", None),
            ("stranger", (float(trips.columns["lat"][0]), float(trips.columns["lon"][0]))),
        ):
            trip = handed(trips[35:36], agent)
            agent_model = fleet.agent_model(agent, near)
            n = step_normality(
                fleet.posterior_(agent_model.featurizer.featurize(trip).features), agent_model.calibration
            ).normality
            assert np.allclose(n, fleet.score_fixes(trip)["normality"].to_numpy(), atol=1e-3)
            assert fleet.score(trip)["history"].to_list() == [agent_model.history]

    def test_trips_in_any_order_get_the_same_scores(
        self, fleet: Detector, past: Trajectories, future: Trajectories
    ) -> None:
        fleet.enroll(some(past, NEW))
        order = np.random.default_rng(0).permutation(len(future))
        ordered, mixed = fleet.score(future), fleet.score(future[order])
        assert mixed["trajectory"].to_list() == future.trajectory_ids[order].tolist()
        assert np.allclose(mixed["score"].to_numpy(), ordered["score"].to_numpy()[order], atol=1e-5)
        alone = np.concatenate([fleet.score_samples(future[i]) for i in range(0, len(future), 9)])
        assert np.allclose(alone, ordered["score"].to_numpy()[::9], atol=1e-5)
        by_fix = fleet.score_fixes(future[order[:20]])
        assert by_fix["trajectory"].to_list() == future[order[:20]].to_frame()["trajectory"].to_list()
        assert by_fix["lat"].to_list() == future[order[:20]].columns["lat"].tolist()


class TestMemories:
    def test_what_is_counted_becomes_familiar(self, fleet: Detector, past: Trajectories, future: Trajectories) -> None:
        fleet.enroll(past.agent("p06"))
        moved = handed(past.agent("p07"), "p06")
        before = fleet.score_samples(moved[:10]).mean()
        assert fleet.enroll(moved[10:]) == len(moved) - 10
        assert fleet.score_samples(moved[:10]).mean() > before + 0.5

    def test_the_same_trip_twice_counts_once(self, fleet: Detector, past: Trajectories) -> None:
        trips = past.agent("p06")
        assert fleet.enroll(trips[:10]) == 10
        assert fleet.enroll(trips[:12]) == 2
        assert fleet.enroll(trips[:12]) == 0
        assert len(fleet.memories_["p06"].counts) == 12
        with pytest.raises(DataError, match="two trajectories are called"):
            fleet.enroll(Trajectories.concat([trips[12:13], trips[12:13]]))

    def test_an_unknown_agent_cannot_be_observed_or_forgotten(self, fleet: Detector, past: Trajectories) -> None:
        with pytest.raises(DataError, match="'p06' is not enrolled; call enroll"):
            fleet.observe(past.agent("p06"))
        for asked in (fleet.forget, fleet.agent_model):
            with pytest.raises(DataError, match="'p06' is not enrolled"):
                asked("p06")

    def test_a_forgotten_agent_leaves_no_trace(
        self, fleet: Detector, fitted: Path, past: Trajectories, tmp_path: Path
    ) -> None:
        fleet.enroll(past.agent("p06"))
        fleet.forget_trips("p06", ["p06-0003"], anomalous=True)
        fleet.save(tmp_path / "with")
        assert b"p06" in (tmp_path / "with").read_bytes()
        fleet.forget("p06")
        fleet.save(tmp_path / "without")
        assert (tmp_path / "without").read_bytes() == fitted.read_bytes()
        # Of one that the fleet was fitted on, nor does it count where it went.
        fleet.forget("p02")
        fleet.save(tmp_path / "without")
        assert b"p02" not in (tmp_path / "without").read_bytes()
        assert "p02" not in fleet.world_.popularity.agents.trip_ids

    def test_a_trip_that_proved_anomalous_is_taken_out_and_never_counted_again(
        self, fleet: Detector, past: Trajectories, future: Trajectories
    ) -> None:
        fleet.enroll(past.agent("p06"))
        poison = handed(future.agent("p07")[:8], "p06")
        later = handed(poison, "p06")
        clean = fleet.score_samples(later)
        fleet.enroll(poison)
        fooled = fleet.score_samples(later)
        assert (fooled > clean).all()
        assert fleet.forget_trips("p06", poison.trajectory_ids.tolist(), anomalous=True) == 8
        assert np.allclose(fleet.score_samples(later), clean, atol=1e-5)
        assert fleet.enroll(poison) == 0
        assert len(fleet.observe(poison).table) == 0
        assert np.array_equal(fleet.score_samples(later), clean)

    def test_a_trip_may_be_forgotten_and_come_back(self, fleet: Detector, past: Trajectories) -> None:
        trips = past.agent("p06")
        fleet.enroll(trips)
        before = fleet.score_samples(trips)
        assert fleet.forget_trips("p06", [str(trips.trajectory_ids[4]), "unheard"]) == 1
        assert fleet.enroll(trips) == 1
        assert np.allclose(fleet.score_samples(trips), before, atol=1e-5)

    def test_scoring_changes_nothing(self, fleet: Detector, fitted: Path, future: Trajectories, tmp_path: Path) -> None:
        fleet.score(future)
        fleet.score_fixes(future[:5])
        fleet.explain(future, 0)
        fleet.save(tmp_path / "m")
        assert (tmp_path / "m").read_bytes() == fitted.read_bytes()

    def test_the_setting_of_forgetting_applies_to_every_memory(self, past: Trajectories) -> None:
        featurizer = FeaturizerConfig(forgetting=Forgetting(max_trips=7))
        fleet = Detector(**ONCE, featurizer=featurizer).fit(past[::6])
        fleet.enroll(past.agent("p00"))
        assert len(fleet.memories_["p00"].counts) == 7


class TestOwnScales:
    """Everybody is measured by everybody's trips at first, and the longer the more by its own."""

    def test_an_agent_that_is_unlike_others_is_measured_on_its_own_trips(
        self, fleet: Detector, past: Trajectories
    ) -> None:
        trips = past.agent("p06")
        fleet.enroll(trips[:30])
        memory = fleet.memories_["p06"]
        locations = []
        for shift in (5.0, 10.0):  # so high that no aspect counts less
            shifted = replace(memory.own, trips=memory.own.trips + np.float32(shift))
            fleet.memories_["p06"] = replace(memory, own=shifted)
            locations.append(fleet.agent_model("p06").calibration.trip)
        # Had its past trips all scored higher, twenty of them against ten of everybody would say so.
        n = 30 - ScaleConfig.least_before
        assert locations[1].centre - locations[0].centre == pytest.approx(5.0 * n / (n + 10), rel=1e-5)
        assert locations[1].spread == pytest.approx(locations[0].spread, rel=1e-5)

    def test_p_values_are_read_from_the_scores_of_remembered_trips(self, fleet: Detector, past: Trajectories) -> None:
        trips = past.agent("p06")[:25]
        fleet.enroll(trips)
        scale = fleet.agent_model("p06").calibration
        rewards = fleet.memories_["p06"].own.known(4)[:, :, None]
        own = scale.trip.standardise(combined(rewards, scale.weights)[:, 0])
        assert scale.normal.total == pytest.approx(ScaleConfig.stand_in_up_to)
        # They are what p-values are read from; the first ones have too little before them.
        assert (scale.normal.weights == ScaleConfig.replaces).sum() == 25 - ScaleConfig.least_before
        assert np.allclose(scale.normal.scores[scale.normal.weights == ScaleConfig.replaces], np.sort(own), atol=1e-4)

    def test_own_scores_do_not_depend_on_how_many_fixes_are_counted_at_a_time(
        self, fleet: Detector, past: Trajectories, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trips = some(past, NEW)
        fleet.enroll(trips)
        whole = {a: fleet.memories_[a] for a in NEW}
        for agent in NEW:
            fleet.forget(agent)
        monkeypatch.setattr(many_agents, "ENROL_FIXES", 3000)
        fleet.enroll(trips)
        for agent, memory in whole.items():
            again = fleet.memories_[agent]
            assert np.array_equal(again.counts.keys, memory.counts.keys)
            assert np.array_equal(again.own.trips, memory.own.trips, equal_nan=True)
            assert again.own.step == memory.own.step

    def test_forgetting_a_trip_removes_its_own_score(self, fleet: Detector, fitted: Path, past: Trajectories) -> None:
        trips = past.agent("p06")
        fleet.enroll(trips[:20])
        before = fleet.memories_["p06"].own.trips
        assert not np.isnan(before[ScaleConfig.least_before :, 0]).any()
        fleet.forget_trips("p06", trips.trajectory_ids[3:5].tolist())
        # As if they had never been; the others are measured against what is left.
        assert len(fleet.memories_["p06"].own.trips) == 18
        without = opened(fitted)
        without.enroll(Trajectories.concat([trips[:3], trips[5:20]]))
        assert np.array_equal(fleet.memories_["p06"].own.trips, without.memories_["p06"].own.trips, equal_nan=True)
        fleet.enroll(trips[3:5])
        assert fleet.memories_["p06"].counts.trip_ids == tuple(trips[:20].ids)
        assert np.array_equal(fleet.memories_["p06"].own.trips, before, equal_nan=True)

    def test_a_memory_that_drops_trips_drops_their_scores(self) -> None:
        keys = np.arange(3, dtype=np.uint64)
        a, b, c = (TripId("p", name) for name in "abc")
        counts = Memory(forgetting=Forgetting(max_trips=2)).add({a: keys, b: keys}, {a: 0.0, b: 1.0})
        memory = AgentMemory(counts, own=OwnScores(np.repeat(np.array([[[1]], [[2]]], np.float32), SCALES, axis=1)))
        grown = memory.with_counts(counts.add({c: keys}, {c: 2.0}))
        assert grown.counts.trip_ids == (b, c)
        assert np.array_equal(grown.own.trips[:, :, 0], [[2] * SCALES, [np.nan] * SCALES], equal_nan=True)


class TestManyAtOnce:
    """Featurising many agents at once gives what each agent alone would give."""

    @pytest.mark.parametrize("spec", [ContextSpec(), ContextSpec(True, True, categorical=("mode",))])
    @pytest.mark.parametrize("every", [False, True])
    def test_features_of_many_agents_equal_those_of_each_alone_to_the_last_bit(
        self, past: Trajectories, spec: ContextSpec, every: bool
    ) -> None:
        config = FeaturizerConfig(context=spec)
        trips = past[::4]
        far = Trajectories(
            trips.columns | {"lon": trips.columns["lon"] + 90.0},
            trips.offsets,
            [f"far-{a}" for a in trips.agent_ids.tolist()],
            trips.trajectory_ids,
            trips.context,
        )
        everybody = Trajectories.concat([trips, far])
        assert len({centre.lon for centre in centres(everybody)}) == 2
        context = Context.of(spec, everybody, centres(everybody)[0])
        counted = everybody[~np.isin(everybody.agent_ids, everybody.agents[:2])]
        popularity = Featurizer.of(trips, config, np.random.default_rng(0)).among(counted).popularity
        assert isinstance(popularity.agents, Memory)
        common = Common(
            config,
            context,
            pretrained(),
            (1.0,) * 4,
            Popularity(popularity.cells, Visits(Counted.of(popularity.agents))),
        )
        memories = dict(many_agents.enrol(everybody, lambda _: None, common))
        featurized = many_agents.featurize(
            everybody, [(a, memories[a]) for a in everybody.agent_ids.tolist()], common, every
        )
        at = 0
        for agent in everybody.agents:
            mine = everybody.agent(agent)
            (centre,) = set(centres(mine))
            alone = memories[agent].featurizer(agent, common, centre)
            own = common.seen_from(common.frame_at(centre), Memory(), Popularity()).remember(mine)
            assert np.array_equal(own.memory.keys, alone.memory.keys)
            assert np.array_equal(own.memory.trips, alone.memory.trips)
            assert own.memory.trip_ids == alone.memory.trip_ids
            assert np.array_equal(own.memory.times, alone.memory.times)
            assert len(many_agents.ways_of(memories[agent], common, 3)) == min(3, len(mine))
            seen = alone.featurize(mine, every)
            rows = slice(at, at + len(seen.features))
            assert np.array_equal(featurized.features[rows], seen.features)
            assert np.array_equal(featurized.weight[rows][1:], seen.weight[1:])
            if not every:
                assert featurized.statistics is not None
                assert seen.statistics is not None
                of_agent = featurized.statistics[everybody.agent_ids == agent]
                assert np.allclose(of_agent, seen.statistics, atol=1e-6, equal_nan=True)
            at += len(seen.features)
        assert at == len(featurized.features)

    def test_memories_do_not_keep_the_tables_for_look_ups(
        self, fleet: Detector, past: Trajectories, future: Trajectories
    ) -> None:
        fleet.score(future)
        fleet.enroll(past.agent("p06"))
        made_for_look_ups = {"_index", "_numbers", "_weights"}
        assert not any(made_for_look_ups & vars(m.counts).keys() for m in fleet.memories_.values())

    def test_a_model_file_grows_with_its_trips_not_with_its_agents(self, fleet: Detector, tmp_path: Path) -> None:
        sizes = []
        for agents, trips in ((30, 1), (30, 3), (90, 1)):
            crowd_of = [
                line(20, f"a{i}", f"t{k}", lon=7.0 + 0.1 * k, start=1.7e9 + 1e6 * k)
                for i in range(agents)
                for k in range(trips)
            ]
            fleet.enroll(Trajectories.concat(crowd_of))
            fleet.save(tmp_path / "m")
            sizes.append((tmp_path / "m").stat().st_size)
            for i in range(agents):
                fleet.forget(f"a{i}")
        fleet.save(tmp_path / "m")
        empty = (tmp_path / "m").stat().st_size
        one, by_trips, by_agents = (s - empty for s in sizes)
        assert by_agents == pytest.approx(3 * one, rel=0.1)
        assert by_trips < by_agents < 1.6 * by_trips


class TestFiles:
    def test_save_load_score_is_bit_identical_and_the_same_seed_gives_the_same_bytes(
        self, past: Trajectories, future: Trajectories, fitted: Path, tmp_path: Path
    ) -> None:
        first = Detector(**QUICK, seed=0).fit(some(past, TRAINED))
        first.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == fitted.read_bytes()
        loaded = opened(fitted)
        assert loaded.get_params() == first.get_params()
        for fleet in (first, loaded):
            fleet.enroll(some(past, NEW))
        assert loaded.score(future).equals(first.score(future), null_equal=True)
        assert loaded.score_fixes(future[:9]).equals(first.score_fixes(future[:9]), null_equal=True)
        for fleet, name in ((first, "a"), (loaded, "b")):
            fleet.save(tmp_path / name)
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()

    def test_enrolling_and_scoring_need_no_torch(
        self, fleet: Detector, fitted: Path, past: Trajectories, tmp_path: Path
    ) -> None:
        new = past.agent("p06")
        new.to_frame().write_parquet(tmp_path / "trips.parquet")
        code = """
            import sys
            import astray, polars as pl
            trips = astray.Trajectories.from_frame(pl.read_parquet(sys.argv[2]))
            fleet = astray.load(sys.argv[1])
            fleet.enroll(trips[:20])
            fleet.explain(trips, 25)
            fleet.score(trips).write_parquet(sys.argv[3])
            assert "torch" not in sys.modules
            """
        arguments = [str(fitted), str(tmp_path / "trips.parquet"), str(tmp_path / "scores.parquet")]
        subprocess.run([sys.executable, "-c", textwrap.dedent(code), *arguments], check=True)
        fleet.enroll(new[:20])
        assert pl.read_parquet(tmp_path / "scores.parquet").equals(fleet.score(new), null_equal=True)

    def test_a_model_without_agents_can_be_saved_and_enrolls_again(
        self, fleet: Detector, past: Trajectories, tmp_path: Path
    ) -> None:
        for agent in fleet.agents:
            fleet.forget(agent)
        fleet.save(tmp_path / "m")
        loaded = opened(tmp_path / "m")
        assert loaded.agents == []
        assert loaded.enroll(past.agent("p01")) == len(past.agent("p01"))


class TestLearning:
    def test_a_few_agents_with_few_trips_leave_the_shipped_reward_as_it_is(self, past: Trajectories) -> None:
        fleet = Detector(**ONCE).fit(Trajectories.concat([past.agent(a)[:5] for a in TRAINED]))
        assert fleet.reward_ is pretrained()
        assert fleet.agents == TRAINED

    def test_a_model_of_many_agents_can_be_cloned(self, fleet: Detector) -> None:
        copy = clone(fleet)
        assert copy.get_params() == fleet.get_params()
        with pytest.raises(NotFittedError, match="Detector has not been fitted"):
            _ = copy.agents
        assert repr(Detector(max_agents=3)) == "Detector(max_agents=3)"

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"look_for": ("speed",)}, "give some of place, route, manner, time"),
            ({"featurizer": FeaturizerConfig(context=ContextSpec(weekday=True))}, "another context"),
            ({"featurizer": {"encoder": "raw"}}, "share a reward for the encoder familiarity"),
            ({"featurizer": FeaturizerConfig(context=ContextSpec(landmarks=((45.0, 7.0),)))}, "landmarks"),
            ({"sharing": {"pupils": 3}}, "no field named 'pupils'"),
        ],
    )
    def test_fit_refuses_wrong_parameters(self, params: dict[str, Any], message: str, past: Trajectories) -> None:
        with pytest.raises(DataError, match=message):
            Detector(**params, pooled=False).fit(past[:20])

    def test_many_agents_need_gps_trips(self, fleet: Detector) -> None:
        steps = Trajectories.from_steps([np.zeros((3, 2))], [np.zeros((3, 1))])
        for asked in (Detector(pooled=False).fit, fleet.enroll, fleet.score):
            with pytest.raises(DataError, match="GPS"):
                asked(steps)

    def test_anomalous_trips_do_not_teach(self, past: Trajectories) -> None:
        trips = past[::6]
        marks = np.where(np.arange(len(trips)) % 5 == 0, -1, 1)
        fleet = Detector(**ONCE).fit(trips, marks)
        remembered = {t for m in fleet.memories_.values() for t in m.counts.trip_ids}
        assert len(remembered) == (marks == 1).sum()
        assert len(fleet.anomalous_) == (marks == -1).sum()
        assert not remembered & fleet.anomalous_
        clean = Detector(**ONCE).fit(trips[marks == 1])
        assert np.array_equal(clean.score_samples(trips), fleet.score_samples(trips))

    @pytest.mark.parametrize("case", ["one trip", "two fixes", "one trip each", "never moves"])
    def test_few_or_motionless_trips_are_fitted_scored_and_saved(self, case: str, tmp_path: Path) -> None:
        match case:
            case "one trip":
                trips = line(60, "a", "t")
            case "two fixes":
                trips = line(2, "a", "t")
            case "one trip each":
                trips = Trajectories.concat([line(60, f"a{i}", "t", lon=7 + 0.1 * i) for i in range(4)])
            case _:
                days = [line(30, "a", f"t{i}", start=1.7e9 + 86_400 * i) for i in range(8)]
                trips = Trajectories.concat(days)
                trips = trips.with_columns({"lat": np.full(trips.n_rows, 45.0)})
        fleet = Detector(**ONCE).fit(trips)
        table = fleet.score(trips)
        assert np.isfinite(table["score"].to_numpy()).all()
        assert str(fleet.explain(trips))
        fleet.save(tmp_path / "m")
        assert opened(tmp_path / "m").score(trips).equals(table, null_equal=True)

    def test_fit_refuses_trips_that_are_all_anomalous(self) -> None:
        # One fix is counted, and nothing is called an anomaly by it.
        assert Detector().fit(line(1, "a", "t")).decide(line(60, "a", "u"))[0] in ("normal", "review")
        with pytest.raises(DataError, match="no trajectory to learn from"):
            Detector().fit(line(9, "a", "t"), y=-1)


class TestExplaining:
    def test_an_explanation_shows_where_the_past_trips_went_on(self, fleet: Detector) -> None:
        # Nobody else was ever there, so there is no street to plan a way on.
        past = [line(80, "a", f"t{i}", lon=8.0, start=1.7e9 + 86_400 * i) for i in range(12)]
        fleet.enroll(Trajectories.concat(past))
        lat = 45 + 4.5e-4 * np.minimum(np.arange(80), 30)
        lon = 8 + 6e-4 * np.maximum(np.arange(80) - 30, 0)
        time = 1.7e9 + 86_400 * 20 + 10.0 * np.arange(80)
        turned = Trajectories.from_fixes(time=time, lat=lat, lon=lon, agent="a", trajectory="turned")
        known, strange = (
            float(np.median(fleet.explain(turned).normality[part])) for part in (slice(30), slice(40, 80))
        )
        assert strange < known
        said = fleet.set_params(eps=(known + strange) / 2).explain(turned)
        assert len(said.habitual) == 12
        assert said.segments
        assert "0 of 12 past trips came through this street" in str(said)
        assert said.segments[-1].stop == 80
        assert said.expected
        for north, east in said.expected:
            assert north[-1] > said.lat.max()
            assert np.allclose(east, 8.0, atol=1e-3)

    def test_past_ways_are_followed_in_the_direction_of_travel(self) -> None:
        north = np.column_stack([np.zeros(50), np.arange(50) * 100.0])
        found = ways_on([north[::-1], north, north + 5000.0], np.array([10.0, 1000.0]), np.array([0.0, 5.0]), most=1)
        assert len(found) == 1
        assert found[0][0].tolist() == [0.0, 1000.0]
        assert found[0][-1].tolist() == [0.0, 4900.0]


def test_a_habit_near_a_line_between_solar_hours_is_one_habit():
    """A trip that begins ten metres further east is at the same hour, wherever on the earth."""
    trip = city(people=1, days=2, seed=0).trips[:1]
    fleet = Detector(iterations=1).fit(city(people=2, days=4, seed=0).trips)

    def counted(first: float) -> set[int]:
        east = trip.columns["lon"] - trip.columns["lon"][0] + first
        moved = Trajectories({**trip.columns, "lon": east}, trip.offsets, trip.agent_ids, trip.trajectory_ids)
        return set(fleet.world_._count(moved.agents[0], moved).keys.tolist())

    def shared(east: float) -> float:
        here, there = counted(east - 5e-5), counted(east + 5e-5)
        return len(here & there) / len(here | there)

    assert shared(7.5) > shared(7.9) - 0.1  # ten metres move some points to the next cell


@pytest.mark.parametrize("wrong", [{"preset": "kdd19"}, {"preset": "own"}, {"explorers": ("detour",)}])
def test_a_reward_of_one_agent_is_refused_for_several_agents(wrong: dict[str, Any]) -> None:
    trips = city(people=2, days=3, seed=0).trips
    with pytest.raises(DataError, match="pooled=True"):
        Detector(**wrong).fit(trips)
