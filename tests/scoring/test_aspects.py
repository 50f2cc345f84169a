"""Each aspect by itself: its p-values are calibrated, its own kind of anomaly lowers it most, and rates add up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from astray import Detector, Trajectories, load
from astray.core.errors import DataError
from astray.core.settings import ASPECTS
from astray.irl.shared import BANDS
from astray.model.pretrained import pretrained
from astray.scoring.decisions import aspect_levels, aspect_rates, level, rate_level, total_rate
from astray.scoring.normality import (
    AspectScale,
    Calibration,
    Location,
    Sample,
    aspect_means,
    aspect_scores,
    aspect_scores_of_one,
    locate,
)
from astray.scoring.own_scale import OwnScale, OwnScores
from astray.scoring.scale_config import ScaleConfig
from astray.scoring.scores import p_name
from astray.simulate import city

RATES = {"place": 0.02, "manner": 0.01}
P = [p_name(aspect) for aspect in ASPECTS]


@pytest.fixture(scope="module")
def people() -> list[tuple[Trajectories, Trajectories]]:
    """Past and new normal trips of simulated people: the last third of each person's trips is new."""
    found = []
    for seed in (20, 21, 22):
        trips = city(people=5, days=70, seed=seed).trips
        for agent in trips.agents:
            own = trips.agent(agent)
            order = np.argsort(own.columns["time"][own.offsets[:-1]])
            third = len(own) // 3
            if len(own) >= 60:
                found.append((own[np.sort(order[:-third])], own[np.sort(order[-third:])]))
    return found


@pytest.fixture(scope="module")
def normal(people: list[tuple[Trajectories, Trajectories]]) -> pl.DataFrame:
    """The table of new normal trips, decided by rates of aspects."""
    return pl.concat([Detector().fit(past).score(new, false_alarm_rate=RATES) for past, new in people])


@pytest.mark.parametrize("aspect", ASPECTS)
def test_the_p_values_of_an_aspect_promise_no_more_than_they_hold(normal: pl.DataFrame, aspect: str) -> None:
    p = normal[p_name(aspect)].to_numpy()
    assert len(p) >= 800
    # They are careful, because past trips were scored by fewer trips than the new ones are.
    assert 0.005 <= (p <= 0.05).mean() <= 0.07
    assert (p <= 0.02).mean() <= 0.03
    assert 0.06 <= (p <= 0.25).mean() <= 0.31
    assert 0.2 <= (p <= 0.5).mean() <= 0.55


def test_rates_by_aspect_flag_at_most_about_their_sum_of_normal_trips(normal: pl.DataFrame) -> None:
    assert (normal["decision"] != "normal").sum() <= 1.2 * total_rate(RATES) * normal.height
    for rates in ({"route": 0.05, "time": 0.05}, {"manner": 0.1, "time": 0.1}, dict.fromkeys(ASPECTS, 0.05)):
        low = normal.select(pl.any_horizontal(pl.col(p_name(a)) <= rate for a, rate in rates.items())).to_series()
        assert 0.3 * total_rate(rates) <= low.sum() / normal.height <= 1.05 * total_rate(rates)


def test_a_trip_is_flagged_if_any_aspect_is_within_its_rate_and_is_named_after_it(normal: pl.DataFrame) -> None:
    within = {aspect: normal[p_name(aspect)] <= rate for aspect, rate in RATES.items()}
    assert ((normal["decision"] != "normal") == (within["place"] | within["manner"])).all()
    for aspect, other in (("place", "manner"), ("manner", "place")):
        alone = normal.filter(within[aspect] & ~within[other])
        assert set(alone["aspect"]) == {aspect}


def test_a_kind_of_anomaly_lowers_the_p_value_of_its_own_aspect_most() -> None:
    tables = []
    for seed in (31, 32):
        simulation = city(people=6, days=60, seed=seed)
        past, new = simulation.split(0.25)
        kinds = ("agent-swap", "detour", "speeding", "wrong-time")
        wrong = simulation.inject(new, kinds=kinds, rate=0.5, seed=seed)
        for agent in past.agents:
            trips = wrong.agent(agent)
            table = Detector().fit(past.agent(agent)).score(trips)
            tables.append(table.with_columns(pl.Series("kind", trips.context["kind"])))
    rarity = pl.concat(tables).group_by("kind").agg(pl.len(), *(-pl.col(p).log().mean() for p in P))
    for kind, aspect in zip(("agent-swap", "detour", "speeding", "wrong-time"), ASPECTS, strict=True):
        row = rarity.row(by_predicate=pl.col("kind") == kind, named=True)
        assert row["len"] >= 40
        others = max(row[p] for p in P if p != p_name(aspect))
        assert row[p_name(aspect)] > others + 1.0, kind  # e times as rare as in any other aspect


class TestScale:
    """The scale of an aspect is made as that of all together."""

    SCALE = ScaleConfig()

    def mine(self, n: int) -> OwnScores:
        rewards = np.random.default_rng(0).normal(9.0, 0.5, (n, 2, 4)).astype(np.float32)
        return OwnScores(rewards, Location(1.0, 2.0) if n else None)

    @pytest.mark.parametrize("unfinished", [False, True])
    @pytest.mark.parametrize("history", [0.0, 30.0, 1000.0])
    def test_without_own_trips_it_is_that_of_the_reference(self, history: float, unfinished: bool) -> None:
        reward = pretrained()
        assert reward.reference is not None
        scales = OwnScale(reward, (1.0,) * 4, self.mine(0), history, self.SCALE).calibration(unfinished).by_aspect
        everybody = reward.reference.under_way if unfinished else reward.reference.trips
        of_band = everybody[int(np.searchsorted(BANDS, history, side="right"))]
        for k, scale in enumerate(scales):
            assert scale.location == pytest.approx(locate(of_band[:, k]))
            assert scale.normal.total == pytest.approx(self.SCALE.stand_in_up_to)

    def test_own_trips_replace_those_of_others_one_by_one(self) -> None:
        for n in (30, 100, 250):
            scales = OwnScale(pretrained(), (1.0,) * 4, self.mine(n), n, self.SCALE).calibration().by_aspect
            assert {round(scale.normal.total, 6) for scale in scales} == {max(n, self.SCALE.stand_in_up_to)}

    def test_an_aspect_that_is_not_looked_for_has_none(self) -> None:
        scales = OwnScale(pretrained(), (0.0, 0.0, 1.0, 1.0), self.mine(30), 30.0, self.SCALE).calibration().by_aspect
        assert [len(scale.normal.scores) > 0 for scale in scales] == [False, False, True, True]

    def test_one_trip_scores_as_it_does_among_many(self) -> None:
        calibration = OwnScale(pretrained(), (1.0, 0.0, 1.0, 1.0), self.mine(30), 30.0, self.SCALE).calibration()
        means = np.random.default_rng(1).normal(8.0, 3.0, (40, 4))
        together = aspect_scores(means, calibration)
        for i, row in enumerate(means.tolist()):
            scores, p_values = aspect_scores_of_one(row, calibration)
            np.testing.assert_allclose(scores, together.score[i], rtol=1e-12)
            np.testing.assert_array_equal(p_values, together.p_value[i])

    def test_of_a_reward_of_steps_it_is_the_mean_over_the_rows(self) -> None:
        rewards = np.arange(12.0).reshape(3, 2, 2)
        means = aspect_means(rewards, np.array([0, 0, 1]), np.array([0.0, 2.0, 1.0]), 3)
        np.testing.assert_allclose(means[:2], [[4.5, 6.5], [8.5, 10.5]])
        assert np.isnan(means[2]).all()


class TestRates:
    """Rates by aspect, and what contradicts them."""

    def scale(self, n: int) -> Calibration:
        samples = [AspectScale(normal=Sample.of(np.random.default_rng(k).normal(size=n))) for k in range(4)]
        normal = Sample.of(np.random.default_rng(9).normal(size=n))
        flat = Location(0.0, 1.0)
        return Calibration(ASPECTS, (1.0,) * 4, flat, flat, normal=normal, by_aspect=tuple(samples))

    @given(st.integers(20, 300), st.floats(0.05, 0.4), st.floats(-4.0, 4.0))
    def test_an_aspect_at_its_level_has_a_p_value_at_its_rate(self, n: int, rate: float, score: float) -> None:
        calibration = self.scale(n)
        levels = aspect_levels((0.0, rate, 0.0, 0.0), calibration)
        assert np.isneginf([levels[0], *levels[2:]]).all()
        p = calibration.by_aspect[1].normal.p_value(score)
        assert (score <= levels[1]) == (p <= rate)

    def test_segments_open_at_the_level_of_their_sum(self) -> None:
        calibration = self.scale(100)
        rates = aspect_rates(RATES, ASPECTS, (1.0,) * 4)
        assert rate_level(RATES, calibration, rates) == level(0.03, calibration.normal)
        assert rate_level(0.03, calibration) == level(0.03, calibration.normal)

    def test_a_rate_that_is_too_low_for_the_history_is_refused_by_name(self) -> None:
        rate = {"time": 0.1, "manner": 0.005}
        with pytest.raises(DataError, match=r"0\.005 for manner cannot be told from 50 past trips") as error:
            rate_level(rate, self.scale(50), aspect_rates(rate, ASPECTS, (1.0,) * 4))
        assert "at least 0.02 for manner" in str(error.value)

    def test_without_scales_of_aspects_no_rate_of_one_is_promised(self) -> None:
        with pytest.raises(DataError, match="no scale for each aspect"):
            aspect_levels((0.1, 0.0, 0.0, 0.0), replace(self.scale(50), by_aspect=()))

    @pytest.mark.parametrize(
        ("rate", "words"),
        [
            ({"pace": 0.1}, "'pace', which is no aspect"),
            ({"time": 0.1}, "a rate for time, which look_for leaves out"),
            ({"place": 0.0}, "0.0 for place; give a share between 0 and 1"),
            ({"place": 0.6, "manner": 0.5}, "whose sum is below 1"),
            ({}, "whose sum is below 1"),
        ],
    )
    def test_contradictions_are_refused(self, rate: dict[str, float], words: str) -> None:
        with pytest.raises(DataError, match=words):
            aspect_rates(rate, ASPECTS, (1.0, 1.0, 1.0, 0.0))

    def test_a_reward_without_aspects_has_no_rates_by_aspect(self) -> None:
        with pytest.raises(DataError, match="has no aspects"):
            aspect_rates(RATES, ("behaviour",), (1.0,))


def test_a_detector_refuses_rates_that_contradict_its_other_parameters(
    people: list[tuple[Trajectories, Trajectories]],
) -> None:
    past, new = people[0]
    for words, parameters in (
        ("eps and false_alarm_rate", {"eps": -2.0}),
        ("the preset kdd19 has no aspects", {"preset": "kdd19"}),
        ("manner, which look_for leaves out", {"look_for": ("place", "time")}),
    ):
        with pytest.raises(DataError, match=words):
            Detector(false_alarm_rate=RATES, **parameters).fit(past)
    detector = Detector(look_for=("place", "time")).fit(past)
    table = detector.score(new)
    assert table["p_route"].null_count() == table["p_manner"].null_count() == len(new)
    assert table["p_place"].null_count() == table["p_time"].null_count() == 0
    with pytest.raises(DataError, match="manner, which look_for leaves out"):
        detector.score(new, false_alarm_rate=RATES)
    with pytest.raises(DataError, match="not both"):
        detector.set_params(eps=-2.0, false_alarm_rate={"place": 0.1})


def test_everything_decides_by_the_same_rates(people: list[tuple[Trajectories, Trajectories]]) -> None:
    past, new = people[1]
    rates = {"route": 0.2, "time": 0.1}
    detector = Detector(false_alarm_rate=rates).fit(past)
    table = detector.score(new)
    low = (table["p_route"] <= 0.2) | (table["p_time"] <= 0.1)
    assert low.any()
    assert not low.all()
    assert ((table["decision"] != "normal") == low).all()
    assert np.array_equal(detector.predict(new) == -1, low.to_numpy())
    assert np.array_equal(detector.decision_function(new) <= 0.0, low.to_numpy())
    assert table.equals(Detector().fit(past).score(new, false_alarm_rate=rates))
    for i in range(12):
        said = detector.explain(new, i)
        row = table.row(i, named=True)
        assert (said.decision, said.aspect, said.rates) == (row["decision"], row["aspect"], rates)
        assert said.p_aspects == pytest.approx({aspect: row[p_name(aspect)] for aspect in ASPECTS}, rel=1e-4)
        assert said.is_low == low[i]
        assert bool(said.segments) or not said.is_low
    observed = Detector(false_alarm_rate=rates).fit(past).observe(new[:1]).table
    assert (observed["became"][0] == "learned") == (not low[0])


def test_rates_by_aspect_are_saved_with_the_model(
    people: list[tuple[Trajectories, Trajectories]], tmp_path: Path
) -> None:
    past, new = people[2]
    detector = Detector(false_alarm_rate=RATES).fit(past)
    detector.save(tmp_path / "model.astray")
    loaded = load(tmp_path / "model.astray")
    assert loaded.false_alarm_rate == RATES
    assert loaded.score(new).equals(detector.score(new))


def test_a_reward_of_ones_own_has_p_values_of_its_aspects(
    people: list[tuple[Trajectories, Trajectories]], tmp_path: Path
) -> None:
    """They are measured on held-out trips, and kept in the file."""
    past, new = people[0]
    detector = Detector(encoder="raw", iterations=2, seed=0, false_alarm_rate=0.2).fit(past[:60])
    table = detector.score(new[:10])
    assert detector.calibration_.aspects == ASPECTS
    assert table.select(P).null_count().sum_horizontal().item() == 0
    detector.save(tmp_path / "own.astray")
    assert load(tmp_path / "own.astray").score(new[:10]).equals(table)


def test_states_and_actions_have_no_aspects() -> None:
    rng = np.random.default_rng(0)
    runs = Trajectories.from_steps([rng.normal(size=(20, 2)) for _ in range(8)], [np.zeros((20, 1))] * 8)
    detector = Detector(iterations=1, seed=0).fit(runs)
    assert not set(P) & set(detector.score(runs).columns)
    with pytest.raises(DataError, match="has no aspects"):
        detector.score(runs, false_alarm_rate={"place": 0.2})
