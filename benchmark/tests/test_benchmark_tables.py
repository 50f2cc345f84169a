"""Figures, tables and pictures of benchmark results, checked on scores whose answers are known."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from astray import Detector
from astray.core.errors import DataError
from astray.model.pretrained import pretrained
from astray.simulate import city
from astray_benchmark import kept_scores, manifest, measures, runner
from astray_benchmark.measures import MEAN_ONLY, SURE
from astray_benchmark.methods import METHODS, methods
from astray_benchmark.metrics import Interval, average_precision
from astray_benchmark.protocols import PREFIXES, PROTOCOLS, Case, Setting
from astray_benchmark.reporting import printed
from astray_benchmark.reporting.figure_style import style
from astray_benchmark.reporting.figures import DRAWINGS, draw, precision_at
from astray_benchmark.reporting.irregular_tables import TABLES, ablation
from astray_benchmark.reporting.recipes import figure_recipes, table_recipes
from astray_benchmark.reporting.report import key, report
from astray_benchmark.reporting.results import deciding, flagging
from astray_benchmark.reporting.table import Table, write
from astray_benchmark.reporting.table import said as said_in
from astray_benchmark.reporting.tabulate import STATISTICS
from astray_benchmark.variants import VARIANTS, WHOLE


def case_table(
    case: Case,
    method: str,
    kind: list[str],
    score: list[float | None],
    normality: list[float | None] | None = None,
    uncertainty: list[float] | None = None,
) -> pl.DataFrame:
    """The table of one case as the runner writes it."""
    n = len(kind)
    key = {**asdict(case.setting), "subject": case.subject, "seed": case.seed}
    return pl.DataFrame(
        {
            "normality": pl.Series(normality or score, dtype=pl.Float64),
            "score": pl.Series(score, dtype=pl.Float64),
            "uncertainty": pl.Series(uncertainty or [None] * n, dtype=pl.Float64),
            "p_value": np.linspace(1 / n, 1, n),
            "aspect": pl.Series([None] * n, dtype=pl.String),
            "part": pl.Series([None] * n, dtype=pl.Float64),
        }
    ).with_columns(
        *(pl.lit(value).alias(name) for name, value in key.items()),
        pl.lit(case.setting.family).alias("family"),
        pl.lit(method).alias("method"),
        pl.Series("trip", np.arange(n, dtype=np.int32)),
        pl.Series("source", [f"{case.subject}/{i}" for i in range(n)]),
        pl.Series("kind", kind),
        pl.lit(2.0).alias("fit_seconds"),
        pl.lit(0.5).alias("calibrate_seconds"),
        pl.lit(0.0).alias("shared_seconds"),
        pl.lit(0.1).alias("score_seconds"),
        pl.lit(100).alias("n_train"),
    )


KIND = ["", "", "", "", "agent-swap", "agent-swap"]
CASE = Case(Setting(), "017", 0)


# -------------------------------------------------------------------- figures of one case


def test_the_figures_of_a_case_are_those_of_the_rule():
    # Of two anomalies one is flagged; of four normal trips one is.
    table = case_table(CASE, "lof", KIND, [0.0, 1.0, -2.0, 0.5, -3.0, -1.0])
    row = measures.of_trips(table).row(0, named=True)
    assert (row["recall"], row["precision"], row["f1"]) == (0.5, 0.5, 0.5)
    assert row["auroc"] == pytest.approx(7 / 8)  # of 8 pairs one is the wrong way round
    assert row["ap"] == pytest.approx((1 + 2 / 3) / 2)
    assert row["method"] == "lof"


def test_p_values_decide_too_for_a_heavy_tail_may_spoil_a_threshold():
    kind = [""] * 40 + ["agent-swap"]
    table = case_table(CASE, "lof", kind, [0.0] * 40 + [-1.0])
    table = table.with_columns(pl.Series("p_value", [0.02] + [0.021] * 39 + [0.01]))
    row = measures.of_trips(table).row(0, named=True)
    assert (row["f1"], row["f1_default"]) == (0.0, pytest.approx(2 / 3))  # one alarm is right, one false
    assert row["false_alarm_rate"] == 1 / 40


def test_as_many_normal_trips_of_every_method_are_flagged_where_thresholds_are_matched():
    normal = np.linspace(0.0, 1.0, 100)
    kind = [""] * 100 + ["agent-swap"] * 4
    found = [-1.0, 0.005, 0.015, 0.5]  # below all normal trips, between the first and the second, the second and third
    for scale in (1.0, 1000.0):  # whatever the method's own threshold would make of it
        table = case_table(CASE, "lof", kind, (scale * np.r_[normal, found]).tolist())
        row = measures.of_trips(table).row(0, named=True)
        assert row["f1_matched"] == pytest.approx(2 * 3 / (5 + 4))  # 2 of 100 normal trips, and 3 of the 4


def test_people_of_one_city_are_one_cluster_where_there_are_enough_cities():
    def figures(cities: int) -> pl.DataFrame:
        people = [(f"city {c}, p{i:02d}", 0.2 * c + 0.01 * i) for c in range(cities) for i in range(9)]
        return pl.DataFrame(people, schema=["subject", "ap"], orient="row").with_columns(pl.lit(0).alias("seed"))

    means = figures(4).group_by(pl.col("subject").str.slice(0, 6)).agg(pl.col("ap").mean(), pl.col("seed").first())
    assert measures.interval(figures(4), "ap") == pytest.approx(measures.interval(means, "ap"))
    assert [measures.clusters(figures(n))[1] for n in (1, 3, 4)] == ["people", "people", "cities"]


def test_only_the_way_that_has_p_values_is_judged_by_them():
    table = case_table(CASE, "astray", KIND, [0.0] * 6, uncertainty=[0.1] * 6).with_columns(p_value=0.01)
    found = {row["method"]: row for row in measures.of_trips(table).iter_rows(named=True)}
    assert (found["astray"]["f1_default"], found["astray"]["false_alarm_rate"]) == (0.5, 1.0)
    assert np.isnan(found["astray" + SURE]["f1_default"])
    assert deciding(list(found), "f1_default") == ["astray"]


def test_a_method_without_p_values_has_no_figures_by_them(tmp_path: Path):
    paper = case_table(CASE, "kdd19", KIND, [0.0, -0.5, 0.1, 0.2, -3.0, -4.0], uncertainty=[0.1] * 6)
    paper = paper.with_columns(pl.lit(None, pl.Float64).alias("p_value"))
    (row, sure) = measures.of_trips(paper).iter_rows(named=True)
    assert np.isnan([row["f1_default"], row["false_alarm_rate"], sure["f1_default"]]).all()
    assert row["f1"] == 1.0
    assert "p-value" not in set(measures.of_uncertainty(paper)["order"])
    for job, table in (("kdd19", paper), ("lof", case_table(CASE, "lof", KIND, [0.0] * 6))):
        runner.write(tmp_path, runner.Job(CASE, job), {runner.TRIPS: table})
    said = {"dataset": "geolife", "settings": {}, "data_sha256": "d", "codes": [], "versions": {}, "machine": ""}
    said |= {"protocols": ["p1", "p5"], "methods": ["kdd19", "lof"], "seeds": [0], "commands": []}
    (tmp_path / manifest.NAME).write_text(json.dumps({**said, "codes": [{"sha256": "c", "commit": ""}]}))
    tables = {table.name: table for table in report(tmp_path)}
    rows = {
        row[0]: dict(zip(tables["p1_random_0.05"].heads, row, strict=True)) for row in tables["p1_random_0.05"].rows
    }
    assert said_in(rows["kdd19"]["p ≤ 0.02 F1"]) == said_in(rows["kdd19"]["p ≤ 0.02 false alarms"]) == "–"
    assert said_in(rows["lof"]["p ≤ 0.02 F1"]) == "0.000"
    draw(tmp_path)
    assert ">p-value<" not in (tmp_path / "figures" / "risk_coverage.svg").read_text()


def test_a_method_is_also_judged_by_its_mean_alone_and_by_what_it_is_sure_of():
    table = case_table(
        CASE,
        "astray",
        KIND,
        score=[0.0, 0.0, -2.5, 0.0, -3.0, -3.0],
        normality=[0.0, 0.0, -1.0, 0.0, -3.0, -1.5],
        uncertainty=[0.1, 0.1, 9.0, 0.1, 0.1, 0.1],
    )
    found = {row["method"]: row for row in measures.of_trips(table).iter_rows(named=True)}
    assert list(found) == ["astray", "astray" + MEAN_ONLY, "astray" + SURE]
    assert found["astray"]["precision"] == pytest.approx(2 / 3)
    assert (found["astray" + MEAN_ONLY]["recall"], found["astray" + MEAN_ONLY]["precision"]) == (0.5, 1.0)
    assert found["astray" + SURE]["f1"] == 1.0  # the false alarm was the uncertain one


def test_a_trip_without_a_score_raises_no_alarm_and_ranks_last():
    table = case_table(CASE, "lof", KIND, [0.0, 0.0, 0.0, 0.0, -3.0, None])
    row = measures.of_trips(table).row(0, named=True)
    assert row["recall"] == 0.5
    assert row["auroc"] == pytest.approx((4 + 4 * 0.5) / 8)


def test_each_kind_is_measured_against_all_normal_trips():
    kind = ["", "", "", "detour", "loiter", "loiter"]
    table = case_table(Case(Setting(injected=True), "p00", 0), "lof", kind, [0.0, 0.1, 0.2, -9.0, 1.0, 2.0])
    found = dict(measures.of_trips(table, by_kind=True).select("kind", "auroc").iter_rows())
    assert found == {"detour": 1.0, "loiter": 0.0}


def test_fixes_that_are_found_exactly_have_every_figure_at_its_best():
    key = case_table(CASE, "lof", [""], [0.0]).select(measures.KEY).row(0, named=True)
    truth = [False] * 5 + [False, True, True, False, False]
    fixes = pl.DataFrame(
        {
            "trip": [0] * 5 + [1] * 5,
            "kind": [""] * 5 + ["detour"] * 5,
            "seconds": [0.0, 15, 30, 45, 60] * 2,
            "truth": truth,
            "normality": np.where(truth, -3.0, 0.0).astype(np.float32),
        }
    ).with_columns(pl.lit(value).alias(name) for name, value in key.items())
    row = measures.of_fixes(fixes).row(0, named=True)
    for name in ("fix_auroc", "fix_ap", "affiliation_precision", "affiliation_recall", "range_f1", "detected"):
        assert row[name] == pytest.approx(1.0), name
    assert (row["delay_fixes"], row["delay_seconds"]) == (0.0, 0.0)
    assert (row["false_alarms"], row["alarmed_trips"]) == (0.0, 0.0)


def fixes_of(case: Case, method: str, trips: list[tuple[str, str, str]]) -> pl.DataFrame:
    """The table of single fixes as the runner writes it, of trips given as (kind, truth, flagged), one digit a fix."""
    key = case_table(case, method, [""], [0.0]).select(measures.KEY).row(0, named=True)
    parts = [
        pl.DataFrame(
            {
                "trip": [i] * len(truth),
                "kind": [kind] * len(truth),
                "seconds": 15.0 * np.arange(len(truth)),
                "truth": [x == "1" for x in truth],
                "normality": np.where(np.array(list(flagged)) == "1", -3.0, 0.0).astype(np.float32),
            }
        )
        for i, (kind, truth, flagged) in enumerate(trips)
    ]
    return pl.concat(parts).with_columns(pl.lit(value).alias(name) for name, value in key.items())


TRIPS_OF_FIXES = [
    ("", "00000", "01010"),
    ("", "00000", "00000"),
    ("detour", "01110", "00011"),
    ("detour", "01110", "00000"),
    ("detour", "01110", "00000"),
    ("reverse", "11111", "10000"),
]


def test_a_missed_anomaly_counts_as_infinitely_late_and_a_normal_trip_with_any_flag_as_alarmed():
    found = {row["kind"]: row for row in measures.of_fixes(fixes_of(CASE, "lof", TRIPS_OF_FIXES)).iter_rows(named=True)}
    assert found["detour"]["detected"] == pytest.approx(1 / 3)
    assert (found["detour"]["delay_fixes"], found["detour"]["delay_seconds"]) == (np.inf, np.inf)
    assert found["reverse"]["delay_fixes"] == 0.0
    assert found["detour"]["alarmed_trips"] == found["reverse"]["alarmed_trips"] == 0.5


def test_affiliation_and_range_f1_are_nan_where_every_fix_is_anomalous():
    found = {row["kind"]: row for row in measures.of_fixes(fixes_of(CASE, "lof", TRIPS_OF_FIXES)).iter_rows(named=True)}
    for name in ("affiliation_precision", "affiliation_recall", "range_f1"):
        assert np.isnan(found["reverse"][name]), name
        assert 0.0 < found["detour"][name] < 1.0, name


def test_a_prefix_counts_as_anomalous_only_once_its_anomaly_has_begun():
    key = case_table(CASE, "lof", [""], [0.0]).select(measures.KEY).row(0, named=True)
    seen = pl.DataFrame(
        {
            "score": [0.0, -1.0, 0.0, -5.0],
            "trip": [0, 1, 0, 1],
            "ratio": [0.1, 0.1, 1.0, 1.0],
            "begun": [False, False, False, True],
        }
    ).with_columns(pl.lit(value).alias(name) for name, value in key.items())
    found = measures.of_prefixes(seen)
    assert found.select("ratio", "auroc").rows() == [(1.0, 1.0)]  # at a tenth there was nothing to find


def test_sending_the_uncertain_to_review_removes_the_wrong_decisions_if_they_are_the_uncertain_ones():
    score = [0.0] * 8 + [-3.0, -3.0]
    kind = [""] * 9 + ["agent-swap"]  # the ninth is a false alarm
    doubt = [0.1] * 8 + [5.0, 0.2]
    found = measures.of_uncertainty(case_table(CASE, "astray", kind, score, uncertainty=doubt))
    heads = found.filter(pl.col("order") == "heads").row(0, named=True)
    assert heads["errors"] == pytest.approx(0.1)
    assert (heads["removed_0.1"], heads["precision_0.1"], heads["error_auroc"]) == (1.0, 1.0, 1.0)
    # Near the threshold in units of what the heads disagree by: the ninth again, though as far from it as the tenth.
    doubtful = found.filter(pl.col("order") == "doubt").row(0, named=True)
    assert (doubtful["removed_0.1"], doubtful["error_auroc"]) == (1.0, 1.0)
    assert not len(measures.of_uncertainty(case_table(CASE, "lof", kind, score)))


def test_a_mean_counts_every_person_the_same_and_has_an_interval_around_it():
    figures = pl.DataFrame(
        {"method": ["a"] * 4, "subject": ["x", "x", "x", "y"], "seed": [0, 1, 2, 0], "ap": [1.0, 1, 1, 0]}
    )
    found = measures.interval(figures, "ap")
    assert found.mean == 0.5
    assert found.low < 0.5 < found.high


def stream_of(case: Case, method: str, kind: list[str], flagged: list[bool], answers: int = 0) -> pl.DataFrame:
    """The table of a stream as the runner writes it; what is flagged scores lowest."""
    key = case_table(case, method, [""], [0.0]).select(measures.KEY).row(0, named=True)
    rows = {
        "score": np.where(flagged, -3.0, 0.0),
        "flagged": flagged,
        "trip": np.arange(len(kind)),
        "kind": kind,
        "answers": [answers] + [0] * (len(kind) - 1),
    }
    return pl.DataFrame(rows).with_columns(pl.lit(value).alias(name) for name, value in key.items())


STREAM = Setting(split="chronological", reading="strangers")


def test_false_alarms_of_a_stream_are_those_of_its_first_and_last_third():
    kind = ["", "", "strangers", "", "", "", "", "strangers", ""]
    flagged = [True, False, True, False, True, False, False, False, False]
    case = Case(STREAM, "017", 0)
    table = stream_of(case, "stream-c-asked", kind, flagged, answers=3)
    row = measures.of_streams(table[::-1]).row(0, named=True)  # whatever order the rows are read in
    assert (row["early"], row["late"], row["answers"]) == (0.5, 0.0, 3)
    assert (row["recall"], row["precision"]) == (0.5, pytest.approx(1 / 3))


# -------------------------------------------------------------------- tables


def test_the_printed_averages_are_the_averages_of_the_printed_rows():
    for rate, users in printed.GEOLIFE_USERS.items():
        for name, rows in users.items():
            assert len(rows) == 10
            assert np.allclose(np.mean(rows, axis=0), printed.GEOLIFE[rate][name], atol=0.0011), (rate, name)
    assert set(printed.PAPER_NAMES.values()) <= set(printed.PORTO) == set(printed.GEOLIFE[0.05])


def test_a_table_is_the_same_in_its_three_forms(tmp_path: Path):
    table = Table(
        "t_1",
        "5 % & more",
        ("method", "LOF | R", "LOF | P", "AP"),
        (("a_b", 0.5, None, Interval(0.25, 0.2, 0.3)), ("Avg", 1.0, float("nan"), 7)),
        note="n",
    )
    write([table], tmp_path)
    assert (tmp_path / "t_1.md").read_text().splitlines()[2:5] == [
        "| method | LOF R | LOF P | AP |",
        "|---|---|---|---|",
        "| a_b | 0.500 |  | 0.250 [0.200, 0.300] |",
    ]
    read = pl.read_csv(tmp_path / "t_1.csv")
    assert read.columns == ["method", "LOF R", "LOF P", "AP", "AP low", "AP high"]
    assert read["AP low"].to_list() == [0.2, None]
    latex = (tmp_path / "t_1.tex").read_text()
    assert r"\multicolumn{2}{c}{LOF}" in latex
    assert r"\cmidrule(lr){2-3}" in latex
    assert r"a\_b & 0.500 &  & 0.250 [0.200, 0.300] \\" in latex
    assert r"\caption{5 \% \& more}" in latex
    assert latex.index(r"\midrule", latex.index("a\\_b")) < latex.index("Avg")


def test_a_row_that_does_not_fit_its_heads_is_refused():
    with pytest.raises(DataError, match="2 cells under 1 heads"):
        Table("t", "t", ("a",), (("x", "y"),))


def test_recipes_name_only_statistics_drawings_and_tables_that_there_are():
    protocols = {protocol for known in PROTOCOLS.values() for protocol in known}
    compared = {"count", "printed", "behind", "gained", "change"}
    for protocol in protocols:
        recipes = table_recipes(protocol)
        assert recipes, protocol
        for recipe in recipes:
            assert recipe.irregular in {"", *TABLES}, recipe.name
            used = {said.split(" ")[0] for said in recipe.columns.values()} | set(recipe.last.values())
            assert used <= compared | set(STATISTICS), recipe.name
            assert set(recipe.nesting) <= set(recipe.rows.values()), recipe.name
        assert {recipe.kind for recipe in figure_recipes(protocol)} <= set(DRAWINGS), protocol
    names = [recipe.name for protocol in protocols for recipe in figure_recipes(protocol)]
    assert {"contamination", "from_nothing", "streams"} <= set(names)


# -------------------------------------------------------------------- a whole folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of P1 and P6 on two GeoLife users, made up: astray finds everything, LOF knows nothing."""
    out = tmp_path_factory.mktemp("results")
    rng = np.random.default_rng(0)
    kind = [""] * 18 + ["agent-swap"] * 2
    settings = dict.fromkeys([*PROTOCOLS["geolife"]["p1"], *PROTOCOLS["geolife"]["p6"]])
    for setting in settings:
        for subject in ("128", "017"):
            for seed in (0, 1):
                case = Case(setting, subject, seed)
                good = [0.0] * 17 + [-0.5] + [-4.0] * 2
                worst = [*good[:17], -2.5, *good[18:]]
                tables = {
                    "astray": case_table(case, "astray", kind, worst, good, uncertainty=[0.1] * 17 + [3.0] + [0.1] * 2),
                    "lof": case_table(case, "lof", kind, rng.normal(size=20).tolist()),
                }
                for name, table in tables.items():
                    runner.write(out, runner.Job(case, name), {runner.TRIPS: table})
    said = {
        "dataset": "geolife",
        "settings": {"people": ["128", "017"], "population": 600},
        "data_sha256": "d" * 64,
        "codes": [{"sha256": "c" * 64, "commit": "f00"}, {"sha256": "e" * 64, "commit": "ba4"}],
        "protocols": ["p1", "p5", "p6"],
        "methods": ["astray", "lof"],
        "seeds": [0, 1],
        "commands": ["astray benchmark geolife --out results"],
        "versions": {"astray": "0"},
        "machine": "a machine",
    }
    (out / manifest.NAME).write_text(json.dumps(said))
    return out


@pytest.fixture(scope="module")
def tables(folder: Path) -> dict[str, Table]:
    return {table.name: table for table in report(folder)}


def test_a_report_sets_the_papers_figures_beside_ours(tables: dict[str, Table]):
    average = tables["p1_random_0.05"]
    rows = {row[0]: dict(zip(average.heads, row, strict=True)) for row in average.rows}
    assert list(rows) == ["astray", "astray" + MEAN_ONLY, "astray" + SURE, "lof"]
    assert rows["astray" + MEAN_ONLY]["ours F1"].mean == 1.0
    assert rows["astray"]["ours P"] == pytest.approx(2 / 3)
    assert (rows["astray"]["paper F1"], rows["astray" + SURE]["paper F1"], rows["lof"]["paper F1"]) == (
        0.264,
        0.292,
        0.146,
    )
    assert rows["astray" + MEAN_ONLY]["paper F1"] is None
    assert rows["lof"]["draws"] == 4


def test_a_report_has_a_row_for_every_person_as_the_papers_tables_have(tables: dict[str, Table]):
    users = tables["p1_chronological_0.1_users"]
    assert [row[0] for row in users.rows] == ["017", "128", "Avg"]
    assert users.columns[1:4] == ("astray | R", "astray | P", "astray | F1")
    assert not [column for column in users.columns if SURE in column]  # too many columns for what is nearly the same
    printed = tables["paper_0.05_users"]
    assert len(printed.rows) == 11
    assert tables["table_1"].rows[0][:2] == ("astray", "Recall")


def test_a_report_shows_the_cost_of_contamination_and_drift_on_the_same_draws(tables: dict[str, Table]):
    p6 = tables["p6_ap"]
    assert p6.columns == ("method", "0 %", "2 %", "5 %", "10 %", "change at 5 %", "draws")
    astray = dict(zip(p6.columns, p6.rows[0], strict=True))
    assert (astray["0 %"].mean, astray["change at 5 %"].mean) == (1.0, 0.0)
    drift = {(row[0], row[1]): row[2] for row in tables["p1_drift"].rows}
    assert drift["5 %", "astray"].mean == 0.0
    assert drift["5 %", "lof"].mean != 0.0


def test_a_row_against_contamination_is_of_the_same_draws_from_end_to_end(folder: Path, tmp_path: Path):
    (tmp_path / manifest.NAME).write_bytes((folder / manifest.NAME).read_bytes())
    kept = [("lof", contamination, seed) for contamination in (0.0, 0.05) for seed in (0, 1)]
    kept = [
        *kept[:3],
        ("astray", 0.0, 0),
        ("astray", 0.0, 1),
    ]  # LOF clean twice and contaminated once; astray clean only
    for name, contamination, seed in kept:
        job = runner.Job(Case(Setting(contamination=contamination), "017", seed), name)
        runner.write(tmp_path, job, {runner.TRIPS: pl.read_parquet(folder / runner.TRIPS / job.path)})
    table = next(table for table in report(tmp_path) if table.name == "p6_ap")
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert [row[0] for row in table.rows] == ["lof"]
    assert row["draws"] == 1
    assert row["change at 5 %"].mean == pytest.approx(row["5 %"].mean - row["0 %"].mean)
    draw(tmp_path)
    svg = (tmp_path / "figures" / "contamination.svg").read_text()
    assert ">lof<" in svg
    assert ">astray<" not in svg  # a single point is no line
    assert "Draws of a method: 1." in svg


def test_a_table_has_the_notes_that_apply_to_it(tables: dict[str, Table]):
    for name in ("p6_ap",):
        assert "flagged" not in tables[name].note, name
    for name in ("p6_f1", "p1_drift", "p1_random_0.05", "p1_random_0.05_users", "table_1", "p5_review"):
        assert "A trip is flagged at -2 or less" in tables[name].note, name
    assert "conformal" in tables["p1_random_0.05"].note
    assert "conformal" not in tables["p6_f1"].note
    assert "spread" not in tables["p1_random_0.05_users"].note
    assert "kdd19" not in tables["p6_f1"].note
    assert "kdd19 are of single steps" in flagging(["astray", "kdd19"])
    assert "random split, 5 % anomalies; random split, 10 % anomalies" in tables["p5_review"].note
    assert "chronological split" in tables["p5_review_by_time"].note


def test_the_error_rate_without_flags_stands_beside_the_error_rate(tables: dict[str, Table]):
    review = tables["p5_review"]
    row = dict(zip(review.heads, review.rows[0], strict=True))
    # Of 20 trips 2 are anomalies, and astray has one false alarm.
    assert (row["wrong"], row["wrong if nothing is flagged"]) == pytest.approx((0.05, 0.1))


def test_differences_from_the_first_row_are_measured_on_the_same_draws(folder: Path, tmp_path: Path):
    said = json.loads((folder / manifest.NAME).read_text()) | {"methods": ["knn-location", "lof"]}
    (tmp_path / manifest.NAME).write_text(json.dumps(said))
    for subject in ("017", "128"):
        for name, score, seeds in (("lof", [0.0, -3.0, -2.0], (0, 1)), ("knn-location", [0.0, -2.0, -3.0], (0,))):
            for seed in seeds:
                case = Case(Setting(), subject, seed)
                # On the second seed, which the neighbour distance does not have, LOF is at its worst.
                table = case_table(case, name, ["", "", "agent-swap"], score if seed == 0 else [-4.0, -3.0, -2.0])
                runner.write(tmp_path, runner.Job(case, name), {runner.TRIPS: table})
    average = next(table for table in report(tmp_path) if table.name == "p1_random_0.05")
    rows = {row[0]: dict(zip(average.heads, row, strict=True)) for row in average.rows}
    assert rows["lof"]["AP less the first row's"].mean == pytest.approx(0.5 - 1.0)
    assert rows["knn-location"]["AP less the first row's"] is None


@pytest.fixture(scope="module")
def cities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    """The tables of p00 of two simulated cities: of somebody else's trips, and of injected anomalies."""
    out = tmp_path_factory.mktemp("cities")
    for seed in (0, 1):
        swapped, injected = (Case(Setting(injected=which), "p00", seed) for which in (False, True))
        runner.write(out, runner.Job(swapped, "lof"), {runner.TRIPS: case_table(swapped, "lof", KIND, [0.0] * 6)})
        kind = [kind for kind, _, _ in TRIPS_OF_FIXES]
        trips = case_table(injected, "lof", kind, [0.0] * 6)
        key = trips.select(measures.KEY).row(0, named=True)
        seen = pl.DataFrame(
            {
                "score": [0.0, -1.0, 0.0, -5.0],
                "trip": [0, 1, 0, 1],
                "kind": ["", "detour"] * 2,
                "ratio": [0.9, 0.9, 1.0, 1.0],
                "begun": [False, True] * 2,
            }
        ).with_columns(pl.lit(value).alias(name) for name, value in key.items())
        fixes = fixes_of(injected, "lof", TRIPS_OF_FIXES)
        job = runner.Job(injected, "lof")
        runner.write(out, job, {runner.TRIPS: trips, runner.FIXES: fixes, runner.PARTS: seen})
    said = {
        "dataset": "simulated",
        "settings": {},
        "data_sha256": "d" * 64,
        "codes": [],
        "protocols": ["p1", "p3", "p4"],
        "methods": ["lof"],
        "seeds": [0, 1],
        "commands": ["astray benchmark simulated"],
        "versions": {},
        "machine": "a machine",
    }
    (out / manifest.NAME).write_text(json.dumps(said))
    return {table.name: table for table in report(out)}


def test_people_of_the_same_name_in_two_cities_are_two_people(cities: dict[str, Table]):
    assert [row[0] for row in cities["p1_random_0.05_users"].rows] == ["city 0, p00", "city 1, p00", "Avg"]
    average = cities["p1_random_0.05"]
    auroc = dict(zip(average.heads, average.rows[0], strict=True))["AUROC"]
    assert np.isfinite([auroc.low, auroc.high]).all()  # which one person would not have


def test_an_infinite_median_delay_is_shown_where_most_anomalies_were_missed(cities: dict[str, Table]):
    table = cities["p4_where"]
    row = dict(zip(table.heads, table.rows[0], strict=True))
    assert row["delay fixes"] == np.inf
    assert "| ∞ |" in table.markdown()
    assert row["normal trips with an alarm"] == 0.5
    # The mean is that of detours, for the flags of trips that are anomalous from end to end cannot be misplaced.
    detours = fixes_of(CASE, "lof", TRIPS_OF_FIXES[:5])
    assert row["affiliation R"] == pytest.approx(measures.of_fixes(detours)["affiliation_recall"][0])
    assert row["draws"] == 2


def test_the_table_of_prefixes_ends_with_the_figures_of_a_guess(cities: dict[str, Table]):
    table = cities["p4_seen_ap"]
    last = dict(zip(table.heads, table.rows[-1], strict=True))
    assert (last["method"], last["90 %"], last["10 %"]) == ("base rate", 0.5, None)
    assert [row[0] for row in cities["p4_seen_auroc"].rows] == ["lof"]


def test_a_stream_has_a_table_for_strangers_and_one_for_an_intruder_with_the_gain_on_the_same_draws(tmp_path: Path):
    ways = ["stream-a-nothing", "stream-b-unflagged"]
    for reading, hits in (("strangers", (False, True)), ("intruder", (True, False))):
        for subject in ("017", "128"):
            case = Case(Setting(split="chronological", reading=reading), subject, 0)
            for way, hit in zip(ways, hits, strict=True):
                stream = stream_of(case, way, ["", "", "", reading], [False, False, False, hit])
                trips = case_table(case, way, ["", "", "", reading], [0.0, 0.0, 0.0, -3.0 * hit])
                runner.write(tmp_path, runner.Job(case, way), {runner.TRIPS: trips, runner.STREAMS: stream})
    said = {
        **{"dataset": "geolife", "settings": {}, "data_sha256": "d" * 64, "codes": [], "protocols": ["p7"]},
        **{"methods": ways, "seeds": [0], "commands": ["astray benchmark geolife"], "versions": {}, "machine": "a"},
    }
    (tmp_path / manifest.NAME).write_text(json.dumps(said))
    found = {table.name: table for table in report(tmp_path)}
    assert set(found) == {"p7_strangers", "p7_intruder", "costs_stream"}
    for name, gain in (("p7_strangers", 0.75), ("p7_intruder", -0.75)):
        nothing, unflagged = (dict(zip(found[name].heads, row, strict=True)) for row in found[name].rows)
        assert nothing["AP gained"] is None
        assert unflagged["AP gained"].mean == pytest.approx(gain)
        assert (unflagged["F1"].mean, unflagged["draws"]) == (1.0 if gain > 0 else 0.0, 2)
    head = (tmp_path / "report.md").read_text().split("###")[0]
    assert "- stream-b-unflagged: astray-shared in a stream, which learns from every trip that it does not flag" in head
    draw(tmp_path)
    svg = (tmp_path / "figures" / "streams.svg").read_text()
    assert all(f">{words}<" in svg for words in (*ways, "strangers, first third", "intruder, last third"))
    assert "Draws of a method: 2." in svg


def test_between_two_places_injected_and_real_anomalies_stand_in_tables_apart(tmp_path: Path):
    for pair in ("41,-8-41,-9", "41,-8-42,-8"):
        for reading, kinds in (("routes", ["detour", "splice"]), ("unusual", ["unusual", "unusual"])):
            case = Case(Setting(reading=reading), pair, 0)
            table = case_table(case, "cell-trigram", ["", "", *kinds], [0.0, -1.0, -2.0, -0.5])
            runner.write(tmp_path, runner.Job(case, "cell-trigram"), {runner.TRIPS: table})
    said = {
        **{"dataset": "porto", "settings": {}, "data_sha256": "d" * 64, "codes": [], "protocols": ["p8"]},
        **{"methods": ["cell-trigram"], "seeds": [0], "commands": ["x"], "versions": {}, "machine": "a"},
    }
    (tmp_path / manifest.NAME).write_text(json.dumps(said))
    found = {table.name: table for table in report(tmp_path)}
    assert set(found) == {"p8_routes_ap", "p8_routes_auroc", "p8_routes_f1_default", "p8_unusual", "costs"}
    routes = dict(zip(found["p8_routes_auroc"].heads, found["p8_routes_auroc"].rows[0], strict=True))
    assert (routes["detour"], routes["splice"], routes["draws"]) == (1.0, 0.5, 2)
    real = dict(zip(found["p8_unusual"].heads, found["p8_unusual"].rows[0], strict=True))
    assert real["AUROC"].mean == 0.75
    assert "by definition" in found["p8_unusual"].note
    draw(tmp_path)
    svg = (tmp_path / "figures" / "routes.svg").read_text()
    places = [svg.index(f">{kind}<") for kind in ("detour", "unusual", "splice")]
    assert places == sorted(places)  # what is found best stands on top
    assert "95 % intervals over pairs of places" in svg


def test_tables_leave_out_what_was_not_run(folder: Path, tmp_path: Path):
    (tmp_path / manifest.NAME).write_bytes((folder / manifest.NAME).read_bytes())
    kept = [("lof", Setting(contamination=0.05), 0), ("lof", Setting(contamination=0.1), 0)]
    kept += [("lof", Setting(rate=0.1), 0), ("astray", Setting(rate=0.1), 0), ("astray", Setting(rate=0.1), 1)]
    for name, setting, seed in kept:
        job = runner.Job(Case(setting, "017", seed), name)
        rows = pl.read_parquet(folder / runner.TRIPS / job.path).with_columns(fit_seconds=pl.lit(2.0 + 98.0 * seed))
        runner.write(tmp_path, job, {runner.TRIPS: rows})
    found = {table.name: table for table in report(tmp_path)}
    assert {name for name in found if name.startswith("p1")} == {"p1_random_0.1", "p1_random_0.1_users"}
    # Nothing clean to compare with, so no change is said.
    assert found["p6_ap"].columns == ("method", "5 %", "10 %", "draws")
    assert [(row[0], row[-1]) for row in found["p6_ap"].rows] == [("lof", 1)]
    assert draw(tmp_path)
    # Costs are of the draws that all methods have in common: not of the second seed, which one alone has.
    assert [(row[0], row[1], row[-1]) for row in found["costs"].rows] == [("astray", 2.0, 1), ("lof", 2.0, 1)]


def test_a_report_names_what_was_asked_for_and_is_not_finished(folder: Path, tmp_path: Path):
    (tmp_path / manifest.NAME).write_bytes((folder / manifest.NAME).read_bytes())
    jobs = [
        runner.Job(Case(Setting(rate=rate), "017", seed), m) for rate in (0.05, 0.1) for seed in (0, 1) for m in "ab"
    ]
    kept_scores.ask(tmp_path, jobs[:6])
    kept_scores.ask(tmp_path, jobs)  # later more seeds
    for job in jobs:
        if job.method == "a" and (job.case.setting.rate, job.case.seed) != (0.1, 1):
            runner.write(tmp_path, job, {runner.TRIPS: case_table(job.case, "a", KIND, [0.0] * 6)})
    (missing,) = (table for table in report(tmp_path) if table.name == "unfinished")
    low, high = ("person/rate=0.05,split=random", "person/rate=0.1,split=random")
    # The manifest of the folder names two more methods, of which nobody knows the cases.
    shutil.rmtree(tmp_path / kept_scores.FOLDER)
    (tmp_path / manifest.NAME).write_text((folder / manifest.NAME).read_text().replace('"astray", "lof"', '"a"'))
    report(tmp_path)
    assert not (tmp_path / "tables" / "unfinished.md").exists()  # nothing is missing any more
    assert missing.rows == (
        ("b", low, 0, 2),
        ("a", high, 1, 2),
        ("b", high, 0, 2),
        ("astray", "", 0, None),
        ("lof", "", 0, None),
    )


def test_being_sure_does_not_appear_where_only_the_ranking_counts(tables: dict[str, Table]):
    assert not any(str(row[0]).endswith(SURE) for row in tables["p6_ap"].rows)
    assert any(str(row[0]).endswith(SURE) for row in tables["p6_f1"].rows)


def test_costs_are_ratios_to_the_first_method(tables: dict[str, Table]):
    costs = tables["costs"]
    row = dict(zip(costs.heads, costs.rows[1], strict=True))
    assert (row["seconds fit"], row["seconds calibrate"], row["seconds once for all"]) == (2.0, 0.5, None)


def test_calibration_counts_as_learning_time():
    inside = case_table(CASE, "astray", KIND, [0.0] * 6).with_columns(fit_seconds=2.5, calibrate_seconds=0.0)
    beside = case_table(CASE, "lof", KIND, [0.0] * 6)  # 2 s and half a second
    found = dict(measures.costs(pl.concat([inside, beside])).select("method", "learn_seconds").iter_rows())
    assert found == {"astray": 2.5, "lof": 2.5}


def test_an_ablation_compares_each_variant_on_the_draws_that_both_have():
    better, worse = [1.0, 1.0, 1.0, 1.0, -3.0, -3.0], [1.0, 1.0, 1.0, -9.0, -3.0, -3.0]
    people = [
        case_table(Case(setting, person, 0), method, kinds, score, normality)
        for person in ("a", "b", "c")
        for setting, kinds in ((Setting(), KIND), (Setting(injected=True), [*KIND[:4], "detour", "reverse"]))
        for method, score, normality in (
            ("astray", better, [2.0, *better[1:]]),
            ("encoder: raw", worse, [2.0, *worse[1:]]),
            ("preset: kdd19", better, better),  # decides by the mean, so that there is no second way
        )
        if (person, method) != ("c", "encoder: raw")
    ]
    (made,) = ablation(pl.concat(people).lazy(), ["astray", "encoder: raw", "preset: kdd19", "lof"])
    whole, raw, kdd19 = (dict(zip(made.columns, row, strict=True)) for row in made.rows)
    assert (whole[""], raw[""], kdd19[""]) == ("astray", "encoder: raw", "preset: kdd19")
    assert whole["somebody else's trips | AUROC"] == 1.0
    assert whole["somebody else's trips | AUROC, difference"] is None
    # One of the four normal trips stands before both anomalies.
    assert raw["somebody else's trips | AUROC"] == pytest.approx(0.75)
    assert raw["somebody else's trips | AUROC, difference"] == pytest.approx(Interval(-0.25, -0.25, -0.25))
    assert raw["injected, mean of kinds | AUROC, difference"] == pytest.approx(Interval(-0.25, -0.25, -0.25))
    assert kdd19["somebody else's trips | AP, difference"] == pytest.approx(Interval(0.0, 0.0, 0.0))
    assert ablation(pl.concat(people).lazy(), ["astray", "lof"]) == []


def test_every_variant_is_a_method_that_a_detector_can_be_made_of():
    made = methods(["ablation,lof"])
    assert [m.name for m in made] == [WHOLE, *VARIANTS, "lof"]
    assert [m.name for m in methods([",".join(VARIANTS)])] == [*VARIANTS]  # as a manifest repeats them
    trips = city(people=3, days=7, seed=0).trips
    mine, theirs = trips.agent("p00"), trips.without("p00")
    quick = {"iterations": 1, "updates": 1, "clone_updates": 1, "imagined": 8, "rollouts": 2}
    scores = []
    for name, variant in {WHOLE: {}, **VARIANTS}.items():
        options = {"sharing": {"least_agents": 2}, **variant}  # so few others teach only if that is asked for
        fitted = Detector(config=quick, iterations=1, **options).fit(mine, population=theirs)
        assert (fitted.reward_.trip is not None) == (name not in ("encoder: fourier", "encoder: raw", "preset: kdd19"))
        assert (fitted.reward_ is pretrained()) == (name == "reward: pretrained alone")
        # Nobody strays here, and so few others teach nothing that holds for one of them.
        if name not in ("strays: all remembered", "reward: pretrained alone"):
            scores.append(fitted.score_samples(theirs[:5]))
    assert not any(np.allclose(one, other) for i, one in enumerate(scores) for other in scores[:i])


def test_the_report_names_command_seeds_commit_and_data(folder: Path, tables: dict[str, Table]):
    assert tables
    head = (folder / "report.md").read_text().split("###")[0]
    for said in (
        "astray benchmark geolife --out results",
        "Seeds asked for: 0, 1;",
        "Run at commit f00, ba4;",
        "d" * 64,
    ):
        assert said in head
    assert f"tables made at commit {manifest.commit() or 'unknown'}" in head


def test_the_report_describes_each_of_its_methods(folder: Path, tables: dict[str, Table]):
    assert tables
    head = (folder / "report.md").read_text().split("###")[0]
    assert "- astray: one model a person, learned against up to 600 trips of other people, which most baselines" in head
    assert "- lof: Local Outlier Factor" in head
    assert "ocsvm" not in head
    said = {"dataset": "porto", "settings": {}}
    lines = key([*METHODS, "astray:heads=20", *VARIANTS], said)
    assert "- astray: one model of the whole pool, or of a pair of places" in lines
    assert "- lof-location: lof on the location alone" in lines
    assert "- astray:heads=20: astray with heads=20" in lines
    assert "- encoder: raw: astray with one thing changed" in lines
    assert not [name for name in METHODS if f"- {name}: {name}" in lines]  # each has words of its own


def test_every_figure_is_written_as_png_and_svg(folder: Path):
    written = draw(folder)
    names = {path.stem for path in written}
    assert {"curves_random_0.05", "people_random_0.1", "contamination", "risk_coverage"} <= names
    for path in written:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG" if path.suffix == ".png" else b"<?xml")
    svg = (folder / "figures" / "people_random_0.05.svg").read_text()
    assert "IRL-ADU as printed" in svg
    assert "128" in svg
    assert "Bars: 95 % intervals of the mean over people. Draws of a method: 4." in svg
    assert "if nothing is flagged" in (folder / "figures" / "risk_coverage.svg").read_text()


def test_no_two_methods_look_alike_and_those_on_the_location_alone_are_akin():
    names = [*METHODS, *VARIANTS]
    looks = style(names)
    for told_by in (("color", "ls"), ("color", "marker", "mfc")):  # lines, and marks without lines
        known = [tuple(str(looks[name][part]) for part in told_by) for name in METHODS]
        assert len(set(known)) == len(METHODS), told_by
    assert len({tuple(map(str, featurize.values())) for featurize in looks.values()}) == len(names)
    for name in ("lof", "ocsvm", "iforest"):
        assert looks[name]["color"] == looks[f"{name}-location"]["color"]
    assert style(["lof", "astray"])["astray"] == looks["astray"]


def test_the_area_under_the_drawn_precision_is_the_average_precision():
    rng = np.random.default_rng(0)
    score, label = rng.normal(size=60).round(1), np.arange(60) < 7
    grid = (np.arange(7000) + 0.5) / 7000
    assert precision_at(grid, score, label).mean() == pytest.approx(average_precision(score, label))
    assert precision_at(np.zeros(1), np.array([-3.0, -1.0]), np.array([False, True])) == 0.5  # the first that finds one


def test_report_and_draw_refuse_a_folder_without_results(tmp_path: Path):
    with pytest.raises(DataError, match="holds no results yet"):
        report(tmp_path)
    with pytest.raises(DataError, match="holds no results yet"):
        draw(tmp_path)


def test_prefixes_run_from_a_tenth_to_the_whole():
    assert PREFIXES[0] == 0.1
    assert PREFIXES[-1] == 1.0
    assert len(PREFIXES) == 10


# -------------------------------------------------------------------- scores that are kept


def test_kept_scores_alone_give_the_same_tables(folder: Path, tmp_path: Path):
    before = {table.name: table.csv() for table in report(folder)}
    (tmp_path / kept_scores.FOLDER).mkdir()
    for path in [folder / manifest.NAME, *(folder / kept_scores.FOLDER).iterdir()]:
        (tmp_path / path.relative_to(folder)).write_bytes(path.read_bytes())
    assert {table.name: table.csv() for table in report(tmp_path)} == before
    assert not (tmp_path / runner.TRIPS).exists()


def test_a_study_continues_from_its_kept_scores(tmp_path: Path):
    def run(method: str, score: list[float | None]) -> None:
        table = case_table(CASE, method, KIND, score)
        runner.write(tmp_path, runner.Job(CASE, method), {runner.TRIPS: table})

    run("lof", [0.0] * len(KIND))
    run("iforest", [1.0] * len(KIND))
    kept_scores.pack(tmp_path)
    shutil.rmtree(tmp_path / runner.TRIPS)  # as of a folder that was published
    run("lof", [-3.0] * len(KIND))  # run again, and one more
    run("ocsvm", [2.0] * len(KIND))
    kept_scores.pack(tmp_path)
    kept = kept_scores.read_kept(tmp_path, runner.TRIPS)
    assert kept is not None
    by_method = dict(kept.collect().group_by("method").agg(pl.col("score").unique()).rows())
    assert by_method == {"lof": [-3.0], "iforest": [1.0], "ocsvm": [2.0]}


def test_a_packed_score_keeps_its_side_of_every_threshold(tmp_path: Path):
    score = [-2.0, -1.99999, 0.1, None, -2.00001, 0.10001]
    kind = KIND
    table = case_table(CASE, "lof", kind, score, normality=[-2.0, -1.0, 0.1, None, -2.00001, 0.0])
    table = table.with_columns(pl.Series("p_value", [0.02, 0.0200001, 0.5, None, 0.01, 0.5]))
    runner.write(tmp_path, runner.Job(CASE, "lof"), {runner.TRIPS: table})
    kept_scores.pack(tmp_path)
    kept = kept_scores.read_kept(tmp_path, runner.TRIPS)
    assert kept is not None
    found = kept.collect()
    assert (found["score"] <= measures.EPS).to_list() == [True, False, False, None, True, False]
    assert found["score"].drop_nulls().to_list() == pytest.approx([x for x in score if x is not None], rel=1e-4)
    assert found["score"][5] > found["score"][2]  # trips that were told apart still are
    assert found["normality"].to_list()[:2] == [-2.0, -1.0]
    assert (found["p_value"] <= 0.02).to_list() == [True, False, False, None, True, False]
    assert "source" not in found.columns


# -------------------------------------------------------------------- promised and observed


def test_a_promise_is_measured_over_people_and_over_time():
    parts = []
    for subject, alarms in (("017", [0, 1]), ("128", [0, 1, 2, 3])):
        case = Case(Setting(split="chronological"), subject, 0)
        p = np.full(31, 0.5)
        p[alarms] = 0.02
        p[30] = 0.001  # the anomaly counts for nothing
        table = case_table(case, "lof", [""] * 30 + ["agent-swap"], [0.0] * 31)
        # The rows stand in an order that tells nothing; the alarms come in the last third.
        parts.append(table.with_columns(pl.Series("p_value", p), pl.Series("nth", np.arange(31)[::-1])))
    found = measures.of_promises(pl.concat(parts))
    assert found["rate_0.02"].to_list() == pytest.approx([2 / 30, 4 / 30])
    assert found["rate_0.01"].to_list() == [0.0, 0.0]
    assert found["first"].to_list() == [0.0, 0.0]
    assert found["last"].to_list() == pytest.approx([0.2, 0.4])


def test_promises_are_of_draws_with_as_many_anomalies(tmp_path: Path):
    for rate, p in ((0.05, 0.5), (0.1, 0.01)):
        case = Case(Setting(rate=rate, split="chronological"), "017", 0)
        table = case_table(case, "lof", [""] * 30 + ["agent-swap"], [0.0] * 31)
        runner.write(tmp_path, runner.Job(case, "lof"), {runner.TRIPS: table.with_columns(p_value=p)})
    said = {
        **{"dataset": "geolife", "settings": {}, "data_sha256": "d" * 64, "codes": [], "protocols": ["p5"]},
        **{"methods": ["lof"], "seeds": [0], "commands": ["astray benchmark geolife"], "versions": {}, "machine": "a"},
    }
    (tmp_path / manifest.NAME).write_text(json.dumps(said))
    rows = {row[2]: row for row in {t.name: t for t in report(tmp_path)}["p5_promised"].rows}
    assert {share: row[4].mean for share, row in rows.items()} == {"5 %": 0.0, "10 %": 1.0}


def test_review_by_p_value_finds_the_anomalies_and_by_uncertainty_what_is_uncertain():
    kind = [""] * 18 + ["agent-swap"] * 2
    table = case_table(CASE, "astray", kind, [0.0] * 20, uncertainty=[1.0] * 5 + [0.1] * 15)
    table = table.with_columns(pl.Series("p_value", [0.5] * 18 + [0.03, 0.04]))
    found = {row["order"]: row for row in measures.of_uncertainty(table).iter_rows(named=True)}
    assert found["p-value"]["found_0.1"] == 1.0
    assert found["heads"]["found_0.1"] == 0.0
    assert found["threshold"]["found_0.1"] == pytest.approx(0.1)  # all are as near: as if drawn at random
