"""Computes metrics from scores: a row for every draw and method, and means with intervals.

A method may decide in several ways, which tables list as separate contenders: by its score, by N(tau) alone ("mean
only"), and, if it has an uncertainty, by its score but only where it is certain ("+ uncertainty").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import polars as pl

from astray.irl import kdd19
from astray.scoring.decisions import doubt
from astray_benchmark import metrics
from astray_benchmark.array_types import Bools, Floats
from astray_benchmark.calibration import RATE
from astray_benchmark.metrics import Interval
from astray_benchmark.protocols import Setting

EPS, GAMMA = kdd19.EPSILON, kdd19.GAMMA
GAMMAS = (np.inf, 3.0, 2.0, GAMMA, 1.0, 0.5, 0.25)
BUFFER = 10  # fixes: the longest buffer of VUS-PR, fixed before any score was seen
PROMISED = (0.01, 0.02, 0.05, 0.1)
PROMISE = f"rate_{RATE:g}"
REVIEWED = (0.05, 0.1, 0.2)
MEAN_ONLY, SURE = ", mean only", " + uncertainty"

SETTING = tuple(f.name for f in fields(Setting))
KEY = (*SETTING, "family", "subject", "seed", "method")
DRAW = (*SETTING, "subject", "seed")
_CITY = r"^(city \d+), "  # in the names of simulated people
_CITIES = 4  # with fewer, an interval over cities would be useless


def of_setting(frame: pl.LazyFrame, settings: Sequence[Setting]) -> pl.DataFrame:
    """Returns the rows of some settings."""
    wanted = [pl.all_horizontal(pl.col(name) == getattr(s, name) for name in SETTING) for s in settings]
    return frame.filter(pl.any_horizontal(wanted)).collect()


def cases_of(rows: pl.DataFrame, *more: str) -> Iterator[tuple[dict[str, Any], pl.DataFrame]]:
    """Yields the key of each draw and method, and its rows; ``more`` are further columns of the key."""
    for case in rows.partition_by(*KEY, *more, maintain_order=True):
        yield {name: case[name][0] for name in KEY}, case


def contenders(case: pl.DataFrame) -> Iterator[tuple[str, Floats, Bools]]:
    """Yields a method's ways to decide one case: the name, the score for ranking, and a mask of the flagged trips."""
    method = str(case["method"][0])
    score, normality = (_numbers(case, name) for name in ("score", "normality"))
    flagged = score <= EPS
    yield method, score, flagged
    if not np.array_equal(score, normality):
        yield method + MEAN_ONLY, normality, normality <= EPS
    if case["uncertainty"].count():
        sure = case["uncertainty"].fill_null(np.inf).to_numpy() <= GAMMA
        yield method + SURE, score, flagged & sure


def of_trips(trips: pl.DataFrame, *, by_kind: bool = False) -> pl.DataFrame:
    """Computes AUROC, AP, recall, precision and F1 of each draw and contender; by kind, each against all normal trips.

    ``f1_default`` is the F1 of flags by the p-value, astray's default, which a heavy tail of the scores does not
    affect. ``false_alarm_rate`` is the share of normal trips with such a flag. Both are NaN for a method without
    p-values. ``f1_matched`` is the F1 at the threshold at which a method flags 2 % of the normal trips.
    """
    rows = []
    for key, case in cases_of(trips):
        normal = case["kind"].to_numpy() == ""
        kinds = sorted(set(case["kind"].to_list()) - {""}) if by_kind else [""]
        rare = case["p_value"].fill_null(1.0).to_numpy() <= RATE
        ranked: dict[tuple[int, str], dict[str, float]] = {}  # several ways to decide may have the same ranking
        for name, score, flagged in contenders(case):
            for kind in kinds:
                chosen = normal | (case["kind"].to_numpy() == kind) if kind else np.ones(len(case), bool)
                label, same = ~normal[chosen], (id(score), kind)
                if same not in ranked:
                    ranked[same] = _ranked(score[chosen], label)
                row = ranked[same] | metrics.decisions(flagged[chosen], label)._asdict()
                has_p = name == key["method"] and case["p_value"].count() > 0  # other ways decide by scores alone
                row["f1_default"] = metrics.decisions(rare[chosen], label).f1 if has_p else float("nan")
                alarms = has_p and normal.any()
                row["false_alarm_rate"] = float(rare[normal].mean()) if alarms else float("nan")
                rows.append({**key, "method": name, "kind": kind, **row})
    return pl.DataFrame(rows, infer_schema_length=None)


def _ranked(score: Floats, label: Bools) -> dict[str, float]:
    return {
        "auroc": metrics.auroc(score, label),
        "ap": metrics.average_precision(score, label),
        "f1_matched": metrics.decisions(lowest(score, score[~label], RATE), label).f1,
    }


def lowest(score: Floats, normal: Floats, share: float) -> Bools:
    """Marks scores below all but a share of the normal ones, but at least one, to give methods equally many alarms.

    >>> lowest(np.array([-3.0, -1.0, 0.5]), np.array([-2.0, 0.0, 1.0, 2.0]), 0.25).tolist()
    [True, True, False]
    """
    allowed = min(max(1, round(share * len(normal))), len(normal) - 1)
    return np.asarray(score < np.sort(normal)[allowed]) if len(normal) else np.zeros(len(score), np.bool_)


def of_fixes(fixes: pl.DataFrame) -> pl.DataFrame:
    """Measures the detection of single fixes, for each draw, method and kind, against all normal trips.

    A fix is flagged at a normality of -2 or less. The delay is measured from the first anomalous fix; that of a missed
    anomaly is infinite. If a kind makes every fix of its trips anomalous, any flag is in the right place, so
    affiliation and range-F1, which measure the distance of flags from the truth, are NaN.
    """
    rows = []
    for key, case in cases_of(fixes):
        if case["normality"].fill_nan(None).null_count() == len(case):
            continue  # the method does not score fixes
        kinds = case["kind"].to_numpy()
        for kind in sorted(set(kinds.tolist()) - {""}):
            part = case.filter(pl.Series((kinds == "") | (kinds == kind)))
            trip, truth = part["trip"].to_numpy(), part["truth"].to_numpy()
            if not truth.any():
                continue
            offsets = np.r_[0, np.flatnonzero(np.diff(trip)) + 1, len(trip)]
            score = metrics.unscored_as_normal(part["normality"].to_numpy().astype(np.float64))
            flagged = score <= EPS
            placed = not truth[part["kind"].to_numpy() == kind].all()
            near = metrics.affiliation(flagged, truth, offsets)
            delay = metrics.detection_delay(flagged, truth, offsets, part["seconds"].to_numpy())
            alarms = metrics.false_alarms(flagged, truth, offsets)
            rows.append(
                {
                    **key,
                    "kind": kind,
                    "fix_auroc": metrics.auroc(score, truth),
                    "fix_ap": metrics.average_precision(score, truth),
                    "vus_pr": metrics.vus_pr(score, truth, offsets, BUFFER),
                    "affiliation_precision": near.precision if placed else np.nan,
                    "affiliation_recall": near.recall if placed else np.nan,
                    "range_f1": metrics.range_decisions(flagged, truth, offsets).f1 if placed else np.nan,
                    "detected": delay.detected,
                    "delay_fixes": delay.median_fixes,
                    "delay_seconds": delay.median_seconds,
                    "false_alarms": alarms.alarms,
                    "alarmed_trips": alarms.trips,
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)


def of_prefixes(prefixes: pl.DataFrame) -> pl.DataFrame:
    """Measures early detection: AUROC and AP of the first tenth, two tenths, ... of each trip, over all kinds together.

    A prefix is positive only if its anomaly has begun. If none has, there is no row, because there is nothing to rank.
    """
    rows = []
    for key, case in cases_of(prefixes, "ratio"):
        begun = case["begun"].to_numpy()
        if begun.any() and not begun.all():
            score = _numbers(case, "score")
            found = metrics.decisions(score <= EPS, begun)
            rows.append(
                {
                    **key,
                    "ratio": case["ratio"][0],
                    "auroc": metrics.auroc(score, begun),
                    "ap": metrics.average_precision(score, begun),
                    "recall": found.recall,
                    "share_begun": float(begun.mean()),
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)


def of_streams(streams: pl.DataFrame) -> pl.DataFrame:
    """Measures the streams of each draw and method: the ranking, the decisions when they were made, and the questions.

    ``early`` and ``late`` are the shares of normal trips that were flagged in the first and in the last third.
    """
    rows = []
    for key, case in cases_of(streams.sort("trip")):
        score, label = _numbers(case, "score"), case["kind"].to_numpy() != ""
        flagged, third = case["flagged"].to_numpy(), max(len(case) // 3, 1)
        alarms = [flagged[part][~label[part]] for part in (slice(third), slice(-third, None))]
        rows.append(
            {
                **key,
                **_ranked(score, label),
                **metrics.decisions(flagged, label)._asdict(),
                **{w: float(a.mean()) if len(a) else np.nan for w, a in zip(("early", "late"), alarms, strict=True)},
                "answers": int(case["answers"].sum()),
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def of_uncertainty(trips: pl.DataFrame) -> pl.DataFrame:
    """Measures the gain from review in four orders, for each draw of the methods with an uncertainty.

    "p-value" puts the trips with the lowest p-values first, if there are any; "heads" those on which the heads disagree
    most; "threshold" those with a score nearest to eps, which needs no uncertainty; "doubt" combines the last two
    (:func:`astray.scoring.decisions.doubt`). Review in random order removes the reviewed share of the errors.
    """
    rows = []
    for key, case in cases_of(trips.filter(pl.col("uncertainty").is_not_null().any().over(*KEY))):
        score, label = _numbers(case, "score"), case["kind"].to_numpy() != ""
        flagged = score <= EPS
        for order, doubts in orders_of_deferral(case, score).items():
            curve = metrics.risk_coverage(flagged != label, doubts)
            row: dict[str, Any] = {
                **key,
                "order": order,
                "errors": float((flagged != label).mean()),
                "silent_errors": float(label.mean()),  # if nothing were flagged
                "aurc": curve.aurc,
                "excess": curve.excess,
                "error_auroc": metrics.error_auroc(flagged != label, doubts),
            }
            for share in REVIEWED:
                kept = metrics.review(flagged, label, doubts, share)
                row |= {f"removed_{share:g}": kept.errors_removed, f"precision_{share:g}": kept.precision}
                # If nothing were flagged, all anomalies would be wrong decisions; review finds this share of them.
                nothing = np.zeros(len(label), bool)
                row[f"found_{share:g}"] = metrics.review(nothing, label, doubts, share).errors_removed
            rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def of_gamma(trips: pl.DataFrame) -> pl.DataFrame:
    """Measures IRL-ADU at several thresholds gamma, for each draw of the methods with an uncertainty.

    A trip that is flagged by its score stays flagged if its uncertainty is at most gamma. With an infinite gamma that
    is IRL-AD. ``alarms_dropped`` counts the false alarms that are no longer flagged, ``anomalies_dropped`` the others.
    """
    rows = []
    for key, case in cases_of(trips.filter(pl.col("uncertainty").is_not_null().any().over(*KEY))):
        found, label = kdd19.irl_ad(_numbers(case, "score"), EPS), case["kind"].to_numpy() != ""
        spread = case["uncertainty"].fill_null(np.inf).to_numpy()
        for gamma in GAMMAS:
            kept = kdd19.irl_adu(found, spread, gamma)
            dropped = found & ~kept
            row = {"gamma": gamma, "flagged": int(found.sum()), "dropped": int(dropped.sum())}
            row |= {"alarms_dropped": int((dropped & ~label).sum()), "anomalies_dropped": int((dropped & label).sum())}
            rows.append({**key, **row, **metrics.decisions(kept, label)._asdict()})
    return pl.DataFrame(rows, infer_schema_length=None)


def orders_of_deferral(case: pl.DataFrame, score: Floats) -> dict[str, Floats]:
    """Returns the orders in which to review a draw's trips, as numbers; the highest come first."""
    spread = case["uncertainty"].fill_null(np.inf).to_numpy()
    rare = -case["p_value"].cast(pl.Float64).fill_null(1.0).to_numpy()
    orders = {"p-value": rare} if case["p_value"].count() else {}
    return orders | {"heads": spread, "threshold": -np.abs(score - EPS), "doubt": doubt(score, spread, EPS)}


def of_promises(trips: pl.DataFrame) -> pl.DataFrame:
    """Returns, for each draw and method, the share of normal trips whose p-value is at most a promised rate.

    The columns are ``rate_0.02`` and so on; ``first`` and ``last`` are the shares at :data:`RATE` in the first and the
    last third of the test period, if the order of the trips is known.
    """
    rows = []
    for key, case in cases_of(trips.filter((pl.col("kind") == "") & pl.col("p_value").is_not_null())):
        p = case["p_value"].cast(pl.Float64).to_numpy()
        row: dict[str, Any] = {f"rate_{rate:g}": float((p <= rate).mean()) for rate in PROMISED}
        row |= {"first": np.nan, "last": np.nan}
        if "nth" in case.columns and case["nth"].count() == len(case):
            in_time = p[np.argsort(case["nth"].to_numpy(), kind="stable")] <= RATE
            third = max(len(p) // 3, 1)
            row |= {"first": float(in_time[:third].mean()), "last": float(in_time[-third:].mean())}
        rows.append({**key, **row})
    return pl.DataFrame(rows, infer_schema_length=None)


def costs(trips: pl.DataFrame) -> pl.DataFrame:
    """Returns each method's median processor seconds to fit, to calibrate, for both, to score, and for shared parts."""
    seconds = ("fit_seconds", "calibrate_seconds", "score_seconds", "shared_seconds")
    each = trips.group_by(*KEY, maintain_order=True).agg(pl.col(*seconds).first())
    each = each.with_columns((pl.col("fit_seconds") + pl.col("calibrate_seconds")).alias("learn_seconds"))
    return each.group_by("method", maintain_order=True).agg(
        pl.col(*seconds, "learn_seconds").median(), pl.len().alias("draws")
    )


def on_the_same_draws(figures: pl.DataFrame, column: str) -> pl.DataFrame:
    """Keeps a method's draws that exist for every value of a setting; leaves out methods with only one value.

    So all means in a row are over the same people and seeds.
    """
    values = pl.col(column).n_unique()
    every = values.over("method")
    return figures.filter((every > 1) & (values.over("method", "subject", "seed") == every))


SHARE, DIFFERENCE, COUNT = (0.0, 1.0), (-1.0, 1.0), (0.0, np.inf)


def bounds(name: str) -> tuple[float, float]:
    """Returns the bounds of a figure's mean; most figures are shares.

    >>> bounds("ap"), bounds("ap_cost")
    ((0.0, 1.0), (-1.0, 1.0))
    """
    return COUNT if name == "answers" else DIFFERENCE if name.endswith("_cost") else SHARE


def difference(part: pl.DataFrame, base: pl.DataFrame, name: str, on: Sequence[str] = (*DRAW, "kind")) -> Interval:
    """Returns the mean difference of a figure between two tables, over the draws that both have."""
    both = part.join(base, on=on, suffix="_base")
    return interval(both.with_columns(pl.col(name) - pl.col(f"{name}_base")), name, DIFFERENCE)


def interval(figures: pl.DataFrame, name: str, within: tuple[float, float] = SHARE) -> Interval:
    """Returns the mean of a figure over people and draws, with its 95 % interval (:func:`~metrics.mean_interval`).

    The clusters are those of :func:`clusters`. Draws without the figure are left out, such as the share of errors
    removed in a draw without errors. The interval is clipped to the bounds ``within``: 0 and 1 for shares, -1 and 1 for
    their differences.
    """
    known = figures.filter(pl.col(name).is_not_null() & pl.col(name).is_finite())
    if not len(known):
        return Interval(float("nan"), float("nan"), float("nan"))
    values, grouped = known[name].to_numpy(), clusters(known)[0].to_numpy()
    return metrics.mean_interval(values, grouped, np.random.default_rng(0), within=within)


def clusters(figures: pl.DataFrame) -> tuple[pl.Series, str]:
    """Returns the cluster of each figure, and the kind of cluster; intervals assume that clusters are independent.

    Clusters are people, or the draws of one pool, or cities of simulated people, who share the streets of their city.

    >>> clusters(pl.DataFrame({"subject": ["017", "128"], "seed": [0, 0]}))[1]
    'people'
    """
    cities = figures["subject"].str.extract(_CITY)
    if cities.drop_nulls().n_unique() >= _CITIES:
        return cities.fill_null(figures["subject"]), "cities"
    if figures["subject"].n_unique() > 1:
        return figures["subject"], "people"
    return figures["seed"].cast(pl.String), "draws"


def _numbers(case: pl.DataFrame, name: str) -> Floats:
    """Returns the scores of trips, so that a trip without a score raises no alarm and ranks last."""
    values = case[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
    return metrics.unscored_as_normal(values)
