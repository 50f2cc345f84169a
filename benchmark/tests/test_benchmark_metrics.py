"""Metrics of the benchmark: closed forms, cases computed by hand, what chance gets, and what must not matter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, precision_recall_fscore_support, roc_auc_score

from astray.core.errors import DataError
from astray_benchmark import metrics
from astray_benchmark.metrics.vus import soft_labels

unhurried = settings(deadline=None, max_examples=60)

ALL = [0, 10]


def flags(text: str) -> np.ndarray:
    return np.array([c == "1" for c in text.replace("|", "")])


def cuts(text: str) -> np.ndarray:
    return np.r_[0, np.cumsum([len(part) for part in text.split("|")])]


@st.composite
def marked_trips(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Flags, truth with at least one anomaly, and offsets of a few trips."""
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    n = sum(lengths)
    masks = st.lists(st.booleans(), min_size=n, max_size=n).map(np.array)
    truth = draw(masks)
    truth[draw(st.integers(0, n - 1))] = True
    return draw(masks), truth, np.r_[0, np.cumsum(lengths)]


# ---------------------------------------------------------------- ranking


def test_the_lowest_normality_is_the_most_anomalous() -> None:
    label = np.array([True, True, False, False, False])
    assert metrics.auroc([-9, -8, 0, 1, 2], label) == 1.0
    assert metrics.auroc([9, 8, 0, 1, 2], label) == 0.0
    # Falling: normal -3, anomaly -2, normal -1, anomaly 0. Precision at the anomalies: 1/2 and 2/4.
    assert metrics.average_precision([-2, 0, -3, -1], [1, 1, 0, 0]) == pytest.approx((1 / 2 + 2 / 4) / 2)
    # Of the four pairs (anomaly, normal) the pair (-2, -1) alone is in order.
    assert metrics.auroc([-2, 0, -3, -1], [1, 1, 0, 0]) == 1 / 4


@unhurried
@given(st.lists(st.tuples(st.integers(-4, 4), st.booleans(), st.booleans()), min_size=2, max_size=40))
def test_figures_are_those_of_scikit_learn(cases: list[tuple[int, bool, bool]]) -> None:
    score, label, flagged = (np.array(column) for column in zip(*cases, strict=True))
    expected = precision_recall_fscore_support(label, flagged, average="binary", zero_division=0.0)[:3]
    assert tuple(metrics.decisions(flagged, label)) == pytest.approx(expected)
    if 0 < label.sum() < len(label):
        assert metrics.auroc(score, label) == pytest.approx(roc_auc_score(label, -score))
        assert metrics.average_precision(score, label) == pytest.approx(average_precision_score(label, -score))


def test_a_constant_score_has_an_auroc_of_one_half_and_the_share_of_anomalies_as_ap() -> None:
    label = np.arange(400) < 20
    assert metrics.auroc(np.zeros(400), label) == 0.5
    assert metrics.average_precision(np.zeros(400), label) == pytest.approx(0.05)
    rng = np.random.default_rng(0)
    scores = rng.random((200, 400))
    assert np.mean([metrics.auroc(s, label) for s in scores]) == pytest.approx(0.5, abs=0.02)
    assert np.mean([metrics.average_precision(s, label) for s in scores]) == pytest.approx(0.06, abs=0.015)


@unhurried
@given(st.lists(st.integers(-5, 5), min_size=4, max_size=30))
def test_ranking_depends_on_the_order_alone(values: list[int]) -> None:
    label = np.arange(len(values)) % 3 == 0
    score = np.array(values, float)
    for metric in (metrics.auroc, metrics.average_precision):
        assert metric(np.exp(score) * 3 - 7, label) == pytest.approx(metric(score, label))
    assert metrics.auroc(-score, label) == pytest.approx(1 - metrics.auroc(score, label))


def test_a_score_at_the_threshold_is_an_anomaly() -> None:
    found = metrics.at_threshold([-2.0, -2.0, -1.9, -5.0], [1, 0, 1, 1], eps=-2.0)
    assert found == metrics.Decisions(precision=2 / 3, recall=2 / 3, f1=pytest.approx(2 / 3))
    assert metrics.at_threshold([0.0, 1.0], [1, 0], eps=-2.0) == metrics.Decisions(0.0, 0.0, 0.0)


def test_curves_run_from_no_alarm_to_every_alarm() -> None:
    score, label = [-3, -2, -1, 0], [1, 0, 1, 0]
    roc = metrics.roc_curve(score, label)
    assert (roc.x[0], roc.y[0], roc.x[-1], roc.y[-1]) == (0, 0, 1, 1)
    assert np.trapezoid(roc.y, roc.x) == pytest.approx(metrics.auroc(score, label))
    curve = metrics.precision_recall_curve(score, label)
    assert (curve.x[0], curve.y[0], curve.x[-1], curve.y[-1]) == (0, 1, 1, 0.5)
    steps = np.diff(curve.x) * curve.y[1:]
    assert steps.sum() == pytest.approx(metrics.average_precision(score, label))


def test_scores_that_cannot_be_ranked_are_refused() -> None:
    with pytest.raises(DataError, match=r"1 of 2 scores are not finite.*unscored_as_normal"):
        metrics.auroc([np.nan, 1.0], [True, False])
    with pytest.raises(DataError, match="0 of 2 cases are anomalies"):
        metrics.average_precision([0.0, 1.0], [False, False])
    with pytest.raises(DataError, match="2 scores for 3 labels"):
        metrics.auroc([0.0, 1.0], [True, False, True])
    with pytest.raises(DataError, match="booleans, or 0 and 1"):
        metrics.decisions([0, 2], [0, 1])
    assert metrics.auroc(metrics.unscored_as_normal([np.nan, -1.0, 3.0]), [False, True, False]) == 1.0


# ---------------------------------------------------------------- ranges


def test_runs_end_where_trips_end() -> None:
    found = metrics.runs(flags("011|110|1"), cuts("011|110|1"))
    assert found.start.tolist() == [1, 3, 6]
    assert found.stop.tolist() == [3, 5, 7]
    assert found.trip.tolist() == [0, 1, 2]


def test_range_scores_by_hand() -> None:
    # True ranges: A = fixes 1-4, B = fixes 7-8. Flagged: P = 0-1, Q = 3-4, R = 9.
    truth, flagged = flags("0111100110"), flags("1101100001")
    # A is covered in 3 of 4 fixes by 2 pieces: (3/4) / 2; B in none. Recall (3/8 + 0) / 2 = 3/16.
    # P is right in 1 of 2 fixes, Q in 2 of 2, R in none: precision (1/2 + 1 + 0) / 3 = 1/2.
    p, r, f1 = metrics.range_decisions(flagged, truth, ALL)
    assert (p, r) == (pytest.approx(1 / 2), pytest.approx(3 / 16))
    assert f1 == pytest.approx(2 * (1 / 2) * (3 / 16) / (1 / 2 + 3 / 16))
    # Without the cardinality factor: (3/4 + 0) / 2. With existence alone: (1 + 0) / 2.
    assert metrics.range_decisions(flagged, truth, ALL, cardinality="one").recall == pytest.approx(3 / 8)
    assert metrics.range_decisions(flagged, truth, ALL, alpha=1.0).recall == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("bias", "reward"),
    # One true range of 4 fixes, of which the first is flagged. Weights 1111, 4321, 1221, 1234.
    [("flat", 1 / 4), ("front", 4 / 10), ("middle", 1 / 6), ("back", 1 / 10)],
)
def test_positional_bias_by_hand(bias: str, reward: float) -> None:
    found = metrics.range_decisions(flags("0100000000"), flags("0111100000"), ALL, bias=bias)  # type: ignore[arg-type]
    assert found.recall == pytest.approx(reward)


def test_ranges_of_one_fix_give_the_classical_precision_and_recall() -> None:
    rng = np.random.default_rng(1)
    truth, flagged = rng.random(60) < 0.4, rng.random(60) < 0.5
    apart = np.arange(61)  # every trip has one fix
    classical = metrics.decisions(flagged, truth)
    assert metrics.range_decisions(flagged, truth, apart) == pytest.approx(classical)


def test_an_alarm_does_not_reach_into_the_next_trip() -> None:
    # Taken as one trip, the flagged range 2-3 would be one range, half right.
    p, r, _ = metrics.range_decisions(flags("00110000"), flags("00010000"), [0, 3, 8])
    assert (p, r) == (pytest.approx(1 / 2), 1.0)
    assert metrics.runs(flags("00110000"), [0, 3, 8]).start.tolist() == [2, 3]


@unhurried
@given(marked_trips())
def test_perfect_alarms_are_perfect_and_silence_gets_nothing(case: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    _, truth, offsets = case
    for metric in (metrics.range_decisions, metrics.affiliation):
        assert metric(truth, truth, offsets) == pytest.approx((1.0, 1.0, 1.0))
        assert metric(np.zeros_like(truth), truth, offsets) == (0.0, 0.0, 0.0)


@unhurried
@given(marked_trips())
def test_nothing_depends_on_the_direction_of_time(case: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    flagged, truth, offsets = case
    back = np.r_[0, np.cumsum(np.diff(offsets)[::-1])]
    for metric in (metrics.range_decisions, metrics.affiliation):
        assert metric(flagged[::-1], truth[::-1], back) == pytest.approx(metric(flagged, truth, offsets))
    score = -np.cumsum(flagged) % 4.0
    assert metrics.vus_pr(score[::-1], truth[::-1], back, 5) == pytest.approx(metrics.vus_pr(score, truth, offsets, 5))


# ---------------------------------------------------------------- affiliation


def test_affiliation_by_hand() -> None:
    # One trip of 10 fixes, the anomaly is [4, 6), the alarm is [7, 8).
    # Precision: from 1 to 2 away; a random place is d or more away with probability ((4 - d) + (4 - d)) / 10, on
    # average at d = 1.5: 0.5. Recall: y in [4, 6) is 7 - y away, 2 on average, and a random place is that far or
    # farther with probability 1 - 2 (7 - y) / 10: 0.6.
    p, r, f1 = metrics.affiliation(flags("0000000100"), flags("0000110000"), ALL)
    assert (p, r) == (pytest.approx(0.5), pytest.approx(0.6))
    assert f1 == pytest.approx(2 * 0.5 * 0.6 / 1.1)


def test_affiliation_with_two_anomalies_by_hand() -> None:
    # Anomalies [1, 2) and [6, 7): zones [0, 4) and [4, 10). The alarm [3, 4) is the first one's alone.
    # Precision in zone 1: 1 to 2 away, mean of ((1 - d)+ + (2 - d)) / 4 over d in [1, 2] = 0.5 / 4 = 0.125.
    # Recall in zone 1: y in [1, 2), 3 - y away; places within that of y: from max(2y - 3, 0) to 3.
    # For y < 1.5: 3 of 4; for y >= 1.5: 3 - (2y - 3) = 6 - 2y, on average 2.5 of 4.
    # So (1 - 3/4) / 2 + (1 - 2.5/4) / 2 = 0.3125. Zone 2 has no alarm: recall 0, no precision.
    p, r, _ = metrics.affiliation(flags("0001000000"), flags("0100001000"), ALL)
    assert p == pytest.approx(0.125)
    assert r == pytest.approx((0.3125 + 0.0) / 2)


@unhurried
@given(marked_trips())
def test_affiliation_agrees_with_integration_on_a_fine_grid(case: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    flagged, truth, offsets = case
    fine = 24  # cells a fix
    precision, recall = [], []
    events = metrics.runs(truth, offsets)
    for start, stop, trip in zip(*events, strict=True):
        x = (np.arange(offsets[trip] * fine, offsets[trip + 1] * fine) + 0.5) / fine
        mine = [(a, b) for a, b, t in zip(*events, strict=True) if t == trip]
        away = np.array([np.maximum(np.maximum(a - x, x - b), 0) for a, b in mine])
        zone = x[away.argmin(axis=0) == mine.index((start, stop))]
        alarms = zone[flagged[zone.astype(int)]]
        if not len(alarms):
            recall.append(0.0)
            continue
        far = np.maximum(np.maximum(start - zone, zone - stop), 0)
        d = np.maximum(np.maximum(start - alarms, alarms - stop), 0)
        precision.append(np.where(d == 0, 1.0, (far >= d[:, None]).mean(axis=1)).mean())
        inside = zone[(zone > start) & (zone < stop)]
        d = np.abs(inside[:, None] - alarms).min(axis=1)
        recall.append(np.where(d == 0, 1.0, (np.abs(zone - inside[:, None]) >= d[:, None]).mean(axis=1)).mean())
    p, r, _ = metrics.affiliation(flagged, truth, offsets)
    assert r == pytest.approx(np.mean(recall), abs=0.06)
    assert p == pytest.approx(np.mean(precision) if precision else 0.0, abs=0.06)


def test_random_alarms_get_about_one_half() -> None:
    rng = np.random.default_rng(2)
    truth = np.zeros(2000, bool)
    truth[1000:1010] = True
    alarms = [rng.permutation(2000) < 1 for _ in range(300)]
    assert np.mean([metrics.affiliation(a, truth, [0, 2000]).precision for a in alarms]) == pytest.approx(0.5, abs=0.05)


# ---------------------------------------------------------------- VUS-PR


def test_soft_labels_fall_off_as_a_square_root() -> None:
    away = np.array([0.0, 1.0, 2.0, 3.0, np.inf])
    assert soft_labels(away, 4) == pytest.approx([1, np.sqrt(3 / 4), np.sqrt(2 / 4), 0, 0])
    assert soft_labels(away, 0).tolist() == [1, 0, 0, 0, 0]


def test_vus_pr_by_hand() -> None:
    # Five fixes, the third anomalous; most anomalous first: fix 1, fix 2, then 4, 0, 3 (places from 0).
    score, truth = [-2.0, -5.0, -4.0, -1.0, -3.0], flags("00100")
    # Lengths 0 and 1 reach nowhere: found second, precision 1/2.
    plain = 1 / 2
    # Length 2: labels 0, s, 1, s, 0 with s = sqrt(1/2); positives (1 + 1 + 2 s) / 2 = 1 + s.
    # Flagged 1: hit s, precision s, recall s / (1 + s). Flagged 2: hit 1 + s, precision (1 + s) / 2, recall 1.
    # Existence is 1 from the first, which lies in the buffer; later thresholds add no recall.
    s = np.sqrt(0.5)
    soft = s * s / (1 + s) + (1 + s) / 2 * (1 - s / (1 + s))
    assert metrics.vus_pr(score, truth, [0, 5], buffer=0) == pytest.approx(plain)
    assert metrics.vus_pr(score, truth, [0, 5], buffer=2) == pytest.approx((plain + plain + soft) / 3)


def test_existence_holds_back_the_recall_until_every_anomaly_is_touched() -> None:
    # Two anomalies of one fix. First flagged: the one, precision 1, recall 1/2 x existence 1/2 = 1/4;
    # second: a normal fix; third: the other, precision 2/3, recall 1.
    score, truth = [-4.0, -1.0, -3.0, 0.0, -2.0], flags("10001")
    assert metrics.vus_pr(score, truth, [0, 5], buffer=0) == pytest.approx(1 * 1 / 4 + 2 / 3 * 3 / 4)


def test_the_buffer_does_not_cross_the_end_of_a_trip() -> None:
    score, truth = [-1.0, -2.0, -4.0, -5.0, -3.0, -0.5], flags("001000")
    # Cut after the anomaly, the alarm on fix 3 is in another trip and no near miss.
    assert metrics.vus_pr(score, truth, [0, 3, 6], 4) < metrics.vus_pr(score, truth, [0, 6], 4)
    # What happens in the other trip is nothing but other fixes: their order among themselves does not matter.
    mirrored = score[:3] + score[3:][::-1]
    assert metrics.vus_pr(score, truth, [0, 3, 6], 4) == pytest.approx(metrics.vus_pr(mirrored, truth, [0, 3, 6], 4))


@unhurried
@given(st.lists(st.integers(-3, 3), min_size=5, max_size=40), st.data())
def test_without_a_buffer_and_with_one_anomaly_it_is_average_precision(values: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(values) - 2))
    stop = data.draw(st.integers(start + 1, len(values) - 1))
    truth = (np.arange(len(values)) >= start) & (np.arange(len(values)) < stop)
    expected = average_precision_score(truth, -np.array(values, float))
    assert metrics.vus_pr(values, truth, [0, len(values)], 0) == pytest.approx(expected)


def test_a_constant_score_gets_the_rate_of_soft_labels_and_a_random_one_hardly_more() -> None:
    rng = np.random.default_rng(3)
    truth = np.zeros(3000, bool)
    truth[500:600] = truth[2000:2050] = True
    away = np.abs(np.arange(3000)[:, None] - np.flatnonzero(truth)).min(axis=1).astype(float)
    rate = np.mean([soft_labels(away, length).mean() for length in range(11)])
    assert metrics.vus_pr(np.zeros(3000), truth, [0, 3000], 10) == pytest.approx(rate)
    found = np.mean([metrics.vus_pr(rng.random(3000), truth, [0, 3000], 10) for _ in range(10)])
    assert found == pytest.approx(rate, abs=0.01)
    assert metrics.vus_pr(away, truth, [0, 3000], 10) > 0.85


# ---------------------------------------------------------------- delay and false alarms


def test_the_delay_is_from_the_onset_to_the_first_alarm_inside() -> None:
    text = "00111|01100|0110"
    flagged, truth = flags("10001|00011|1100"), flags(text)
    time = np.r_[np.arange(5) * 15.0, np.arange(5) * 10.0, [0.0, 7.0, 9.0, 12.0]]
    delays = metrics.detection_delay(flagged, truth, cuts(text), time)
    # First trip: onset at fix 2, alarm at fix 4. Second: the alarm comes after the end. Third: it already stands.
    assert delays.fixes == pytest.approx([2, np.nan, 0], nan_ok=True)
    assert delays.seconds == pytest.approx([30, np.nan, 0], nan_ok=True)
    assert delays.detected == pytest.approx(2 / 3)
    assert (delays.median_fixes, delays.median_seconds) == (2, 30)
    late = metrics.detection_delay(flagged, truth, cuts(text), time, grace=1)
    assert late.fixes == pytest.approx([2, 2, 0])
    assert late.seconds == pytest.approx([30, 20, 0])


def test_an_alarm_in_the_next_trip_is_no_detection() -> None:
    delays = metrics.detection_delay(flags("000100"), flags("001000"), [0, 3, 6], np.arange(6), grace=5)
    assert np.isnan(delays.fixes).all()
    assert delays.median_fixes == np.inf


def test_false_alarms_are_counted_in_fixes_and_in_alarms() -> None:
    # 8 normal fixes, of which 4 are flagged; the alarm 1-3 touches the anomaly, those at 5 and at 8-9 do not.
    truth, flagged = flags("0011000000"), flags("0111010011")
    found = metrics.false_alarms(flagged, truth, ALL)
    assert (found.fixes, found.alarms) == (500.0, 250.0)
    assert np.isnan(found.trips)  # there is no normal trip
    # Of three normal trips one has an alarm; that of the anomalous trip does not count.
    assert metrics.false_alarms(flags("01000010"), flags("00000011"), [0, 2, 4, 6, 8]).trips == pytest.approx(1 / 3)
    # Cut between 8 and 9 the last alarm is two.
    assert metrics.false_alarms(flagged, truth, [0, 9, 10]).alarms == 375.0


def test_a_prefix_is_positive_once_the_onset_lies_inside() -> None:
    truth, offsets = flags("00110|0000|1000"), cuts("00110|0000|1000")
    assert metrics.onsets(truth, offsets).tolist() == [2, -1, 0]
    assert metrics.begun(truth, offsets, [2, 4, 1]).tolist() == [False, False, True]
    assert metrics.begun(truth, offsets, [3, 4, 1]).tolist() == [True, False, True]


def test_offsets_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match="offsets do not rise from 0"):
        metrics.runs(flags("0101"), [0, 5])
    with pytest.raises(DataError, match="no fix is anomalous"):
        metrics.vus_pr(np.zeros(4), flags("0000"), [0, 4], 2)
    with pytest.raises(DataError, match="every fix is anomalous"):
        metrics.false_alarms(flags("1111"), flags("1111"), [0, 4])


# ---------------------------------------------------------------- uncertainty


def test_risk_coverage_by_hand() -> None:
    # By rising uncertainty: right, wrong, right, wrong. Risks 0, 1/2, 1/3, 2/4.
    curve = metrics.risk_coverage([0, 1, 1, 0], [0.1, 0.4, 0.2, 0.3])
    assert curve.coverage == pytest.approx([0.25, 0.5, 0.75, 1])
    assert curve.risk == pytest.approx([0, 1 / 2, 1 / 3, 1 / 2])
    assert curve.aurc == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    # The best order is right, right, wrong, wrong: 0, 0, 1/3, 1/2.
    assert curve.excess == pytest.approx(curve.aurc - (1 / 3 + 1 / 2) / 4)


@unhurried
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=1, max_size=30))
def test_uncertainty_is_judged_by_its_order_and_ties_share_their_mean(cases: list[tuple[bool, int]]) -> None:
    wrong, spread = np.array(cases).T
    curve = metrics.risk_coverage(wrong, spread)
    assert metrics.risk_coverage(wrong[::-1], np.exp(spread[::-1])).risk == pytest.approx(curve.risk)
    assert curve.excess >= -1e-12
    assert metrics.risk_coverage(wrong, np.zeros(len(wrong))).aurc == pytest.approx(wrong.mean())


def test_wrong_decisions_ranked_by_their_spread() -> None:
    assert metrics.error_auroc([1, 0, 0, 1], [9.0, 1.0, 2.0, np.inf]) == 1.0
    assert np.isnan(metrics.error_auroc([0, 0], [1.0, 2.0]))


def test_review_of_the_most_uncertain_by_hand() -> None:
    # Ten cases; 3 flagged (2 rightly), 3 anomalies (1 missed). The most uncertain is the false alarm, then the miss.
    flagged, label = flags("1110000000"), flags("1101000000")
    spread = np.array([0.1, 0.2, 0.9, 0.8, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3])
    none = metrics.review(flagged, label, spread, 0.0)
    assert none == pytest.approx((2 / 3, 2 / 3, 2 / 3, 0.0))
    assert metrics.review(flagged, label, spread, 0.1) == pytest.approx((1.0, 2 / 3, 0.8, 0.5))
    assert metrics.review(flagged, label, spread, 0.2) == pytest.approx((1.0, 1.0, 1.0, 1.0))
    # Without an order a tenth of the errors is found, and precision stays.
    assert metrics.review(flagged, label, np.zeros(10), 0.1) == pytest.approx((2 / 3, 2 / 3, 2 / 3, 0.1))
    assert np.isnan(metrics.review(label, label, spread, 0.1).errors_removed)


def test_where_no_alarm_is_left_there_is_no_precision() -> None:
    flagged, label, spread = flags("1000"), flags("1001"), np.array([0.9, 0.1, 0.1, 0.1])
    left = metrics.review(flagged, label, spread, 0.25)
    assert np.isnan(left.precision)
    assert (left.recall, left.f1) == (0.0, 0.0)


def test_random_uncertainty_removes_as_many_errors_as_it_reviews() -> None:
    rng = np.random.default_rng(4)
    flagged, label = rng.random(500) < 0.2, rng.random(500) < 0.2
    removed = [metrics.review(flagged, label, rng.random(500), 0.2).errors_removed for _ in range(100)]
    assert np.mean(removed) == pytest.approx(0.2, abs=0.02)


def test_valid_p_values_lie_on_the_diagonal_and_wrong_ones_off_it() -> None:
    p = (np.arange(1000) + 0.5) / 1000
    found = metrics.reliability(p, [0.01, 0.1, 0.5])
    assert found.observed == pytest.approx([0.01, 0.1, 0.5])
    assert ((found.low < found.nominal) & (found.nominal < found.high)).all()
    bold = metrics.reliability(p**2, [0.01, 0.1])
    assert bold.observed == pytest.approx([0.1, 0.316])  # P(u^2 <= a) = sqrt(a)
    assert (bold.low > bold.nominal).all()


def test_the_interval_of_a_rate_is_wilsons() -> None:
    # 0 of 10: centre and half-width are both z^2 / (2 (n + z^2)), so from 0 to z^2 / (n + z^2) = 3.8415 / 13.8415.
    found = metrics.reliability(np.ones(10), [0.5])
    assert (found.low[0], found.high[0]) == (pytest.approx(0.0), pytest.approx(3.8415 / 13.8415, abs=1e-4))
    with pytest.raises(DataError, match="p-value is not from 0 to 1"):
        metrics.reliability([0.1, np.nan])


# ---------------------------------------------------------------- intervals


def test_people_count_alike_however_many_draws_they_have() -> None:
    found = metrics.mean_interval([1.0, 1.0, 1.0, 0.0], list("aaab"), np.random.default_rng(0))
    assert found.mean == 0.5


def test_the_interval_is_about_students_and_comes_again_from_the_same_seed() -> None:
    means = np.random.default_rng(5).normal(size=10)
    values, who = np.repeat(means, 5), np.repeat(np.arange(10), 5)
    one = metrics.mean_interval(values, who, np.random.default_rng(1))
    assert one == metrics.mean_interval(values, who, np.random.default_rng(1))
    # t(0.975, 9) = 2.262; draws of one person bring no certainty, so n is 10 and not 50.
    half = 2.262 * means.std(ddof=1) / np.sqrt(10)
    assert one.high - one.low == pytest.approx(2 * half, rel=0.12)


@pytest.mark.parametrize("people", [2, 3, 5, 8, 10])
def test_the_interval_covers_the_mean_about_as_often_as_it_says(people: int) -> None:
    rng = np.random.default_rng(people)
    who = np.repeat(np.arange(people), 3)
    inside = 0
    for _ in range(500):
        values = (rng.normal(size=(people, 1)) + 0.3 * rng.normal(size=(people, 3))).ravel()
        found = metrics.mean_interval(values, who, rng, resamples=1000)
        inside += found.low <= 0.0 <= found.high
    assert 0.92 <= inside / 500 <= 0.98


def test_the_interval_of_two_people_is_students() -> None:
    # t(0.975, 1) = 12.706 and s / sqrt(2) = 0.1.
    found = metrics.mean_interval([0.4, 0.6], ["a", "b"], np.random.default_rng(0))
    assert found == pytest.approx((0.5, 0.5 - 1.2706, 0.5 + 1.2706), abs=1e-4)


def test_one_person_has_no_interval_and_a_missing_figure_is_refused() -> None:
    found = metrics.mean_interval([0.5, 0.7], ["a", "a"], np.random.default_rng(0))
    assert found.mean == pytest.approx(0.6)
    assert np.isnan(found.low)
    assert np.isnan(found.high)
    with pytest.raises(DataError, match="not a finite number"):
        metrics.mean_interval([0.5, np.nan], ["a", "b"], np.random.default_rng(0))


def test_an_interval_of_shares_stays_between_0_and_1() -> None:
    rng = np.random.default_rng(0)
    values, who = [0.99, 1.0, 0.9], ["a", "b", "c"]
    assert metrics.mean_interval(values, who, rng).high > 1.0
    within = metrics.mean_interval(values, who, rng, within=(0.0, 1.0))
    assert 0.0 <= within.low < within.mean < within.high == 1.0
