"""The paper's experiments as one command and one page: its tables beside ours, what is missing, and the pictures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from astray import Trajectories
from astray.cli.running import run as run_command
from astray.core.errors import DataError
from astray_benchmark import kept_scores, manifest, measures, runner
from astray_benchmark.command import command
from astray_benchmark.examples import choose, detour, legible
from astray_benchmark.measures import GAMMAS
from astray_benchmark.metrics import Interval
from astray_benchmark.protocols import Case, Setting
from astray_benchmark.reporting import printed
from astray_benchmark.reporting.paper_page import METHODS, settings, write_page
from astray_benchmark.reporting.report import report
from astray_benchmark.reporting.table import Table

KIND = [""] * 6 + ["agent-swap"] * 2
SURE_OF = [9.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 9.0]  # uncertain of the false alarm, and of one of the two anomalies
SCORE = [-3.0, 0.0, 0.1, 0.2, 0.3, 0.4, -4.0, -2.5]


def case_table(case: Case, method: str, score: list[float], uncertainty: list[float] | None = None) -> pl.DataFrame:
    """The table of one case as the runner writes it; without held-out trips, as for kdd19."""
    n = len(score)
    return pl.DataFrame(
        {
            "normality": score,
            "score": score,
            "uncertainty": pl.Series(uncertainty or [None] * n, dtype=pl.Float64),
            "p_value": pl.Series([None] * n, dtype=pl.Float64),
            "trip": np.arange(n, dtype=np.int32),
            "kind": KIND,
        }
    ).with_columns(
        *(pl.lit(value).alias(name) for name, value in runner.Job(case, method).key.items()),
        *(
            pl.lit(s).alias(f"{name}_seconds")
            for name, s in (("fit", 2.0), ("calibrate", 0.5), ("shared", 0.0), ("score", 0.1))
        ),
        pl.lit(100).alias("n_train"),
    )


def made(out: Path, dataset: str, jobs: list[runner.Job]) -> None:
    """Writes results of kdd19, and of LOF, which flags nothing and lacks the second draw of those asked for."""
    said = {"dataset": dataset, "settings": {}, "data_sha256": "d" * 64, "codes": [{"sha256": "c", "commit": "f00"}]}
    said |= {"protocols": ["p1" if dataset == "geolife" else "p2"], "methods": ["lof", "kdd19"], "seeds": [0, 1]}
    said |= {"commands": [f"astray benchmark {dataset} -o FOLDER"], "versions": {}, "machine": "a machine"}
    if dataset == "geolife":
        said["settings"] = {"people": ["017", "128"]}
    kept_scores.ask(out, jobs)
    (out / manifest.NAME).write_text(json.dumps(said))
    for job in jobs:
        if job.method == "kdd19":
            runner.write(out, job, {runner.TRIPS: case_table(job.case, "kdd19", SCORE, SURE_OF)})
        elif job.case.seed == 0:
            runner.write(out, job, {runner.TRIPS: case_table(job.case, "lof", [0.0] * 7 + [-1.0])})
    report(out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with made-up results on GeoLife and on Porto."""
    out = tmp_path_factory.mktemp("paper")
    for dataset, people in (("geolife", ("017", "128")), ("porto", ("pool",))):
        drawn = [Case(setting, who, seed) for seed in (0, 1) for who in people for setting in settings(dataset)]
        made(out / dataset, dataset, [runner.Job(case, name) for case in drawn for name in ("lof", "kdd19")])
    return out


@pytest.fixture(scope="module")
def tables(folder: Path) -> dict[str, Table]:
    return {table.name: table for table in write_page(folder)}


def rows_of(table: Table, *keys: str) -> dict[tuple[object, ...], dict[str, object]]:
    rows = [dict(zip(table.heads, row, strict=True)) for row in table.rows]
    return {tuple(row[key] for key in keys): row for row in rows}


def test_the_averages_are_beside_the_papers_with_intervals_and_what_it_lacks(tables: dict[str, Table]) -> None:
    rows = rows_of(tables["averages"], "data", "method")
    ad, adu = (rows["GeoLife, 5 %", name] for name in ("IRL-AD", "IRL-ADU"))
    assert (ad["paper F1"], adu["paper F1"]) == (0.264, 0.292)
    # IRL-AD flags both anomalies and one normal trip; of these IRL-ADU is sure of one anomaly alone.
    assert ad["ours F1"] == pytest.approx(Interval(0.8, 0.8, 0.8))
    assert [adu[f"ours {x}"].mean for x in ("R", "P", "F1")] == pytest.approx([0.5, 1.0, 2 / 3])
    assert ad["ours AUROC"].mean == pytest.approx(11 / 12)
    assert (ad["seconds of a fit"], ad["draws"], rows["GeoLife, 5 %", "LOF"]["draws"]) == (2.5, 4, 2)
    assert {data for data, _ in rows} == {"GeoLife, 5 %", "GeoLife, 10 %", "TST, matched", "TST, cap"}


def test_a_method_of_the_paper_that_was_not_run_has_dashes(tables: dict[str, Table]) -> None:
    row = rows_of(tables["averages"], "data", "method")["TST, cap", "LSTM-AE"]
    assert (row["paper F1"], row["draws"]) == (0.678, 0)
    assert np.isnan(row["ours F1"])
    assert "| TST, cap | LSTM-AE | 0.555 | 0.871 | 0.678 | – | – | – | – | – | – | 0 |" in tables["averages"].markdown()


def test_table_1_has_the_papers_form(tables: dict[str, Table]) -> None:
    table = tables["table_1"]
    assert table.heads[2:] == ["GeoLife paper", "GeoLife ours", "TST paper", "TST ours, matched", "TST ours, cap"]
    at = [row[0] for row in table.rows].index("IRL-ADU")
    recall, precision, f1, auroc, _ = table.rows[at : at + 5]
    assert [row[2] for row in (recall, precision, f1)] == list(printed.GEOLIFE[0.1]["IRL-ADU"])
    assert [row[4] for row in (recall, precision, f1)] == list(printed.PORTO["IRL-ADU"])
    assert recall[3].mean == recall[5].mean == recall[6].mean == 0.5
    assert (auroc[1], auroc[2]) == ("AUROC", None)  # the paper has none


def test_tables_2_and_3_have_a_row_for_each_person_and_the_averages(tables: dict[str, Table]) -> None:
    for name, rate in (("table_2_users", 0.05), ("table_3_users", 0.1)):
        rows = rows_of(tables[name], "Data")
        theirs = [f"paper, U{i}" for i in range(1, 11)]
        assert [key for (key,) in rows] == [*theirs, "paper, average", "ours, 017", "ours, 128", "ours, average"]
        assert rows[("paper, U4",)]["IRL-ADU F1"] == printed.GEOLIFE_USERS[rate]["IRL-ADU"][3].f1
        assert rows[("ours, 128",)]["IRL-AD F1"] == pytest.approx(0.8)
        assert rows[("ours, average",)]["IRL-AD F1"] == pytest.approx(Interval(0.8, 0.8, 0.8))


def test_what_gamma_changes_is_counted_from_the_scores(tables: dict[str, Table]) -> None:
    rows = rows_of(tables["gamma"], "data", "gamma")
    without, papers = rows["GeoLife, 5 %", "without"], rows["GeoLife, 5 %", "1.5"]
    assert len([key for key in rows if key[0] == "TST, cap"]) == len(GAMMAS)
    # Four draws, in each of which three trips are flagged and two of these are uncertain.
    assert (without["flagged"], without["too uncertain"], without["P"].mean) == (12, 0, pytest.approx(2 / 3))
    assert (papers["flagged"], papers["too uncertain"], papers["share"]) == (12, 8, pytest.approx(2 / 3))
    assert (papers["false alarms among these"], papers["anomalies among these"]) == (4, 4)
    assert [papers[x].mean for x in ("P", "R", "F1")] == pytest.approx([1.0, 0.5, 2 / 3])
    of = rows_of(tables["uncertainty"], "data", "flagged")
    assert of["TST, cap", "false alarms"]["trips"] == 2
    assert of["TST, cap", "false alarms"]["uncertainty median"] == 9.0
    assert of["TST, cap", "anomalies"]["uncertainty 10 %"] == pytest.approx(0.1, rel=1e-3)


def test_the_page_names_what_was_asked_for_and_is_missing(folder: Path, tables: dict[str, Table]) -> None:
    missing = tables["geolife_unfinished"]
    assert missing.rows == tuple(("lof", f"person/{s.name}", 2, 4) for s in settings("geolife"))
    text = (folder / "paper.md").read_text("utf-8")
    assert "### geolife: asked for, and not finished" in text
    assert "The paper does not say who its ten users are" in text
    assert "People: 017, 128." in text
    assert "was not run" not in text


def test_the_page_of_one_data_set_says_that_the_other_was_not_run(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "geolife", tmp_path / "geolife")
    rows = rows_of({table.name: table for table in write_page(tmp_path)}["averages"], "data", "method")
    assert rows["GeoLife, 10 %", "IRL-AD"]["ours F1"].mean == pytest.approx(0.8)
    assert np.isnan(rows["TST, cap", "IRL-AD"]["ours F1"])
    assert "**porto was not run**" in (tmp_path / "paper.md").read_text("utf-8")


def test_kept_scores_alone_give_the_same_page(folder: Path, tables: dict[str, Table], tmp_path: Path) -> None:
    for name in ("geolife", "porto"):
        shutil.copytree(folder / name / kept_scores.FOLDER, tmp_path / name / kept_scores.FOLDER)
        shutil.copy(folder / name / manifest.NAME, tmp_path / name)
    assert run_command("benchmark", command, ["report", str(tmp_path), "--no-figures", "-q"]) == 0
    assert (tmp_path / "paper.md").read_text() == (folder / "paper.md").read_text()
    for table in tables.values():
        assert (tmp_path / "tables" / f"{table.name}.csv").read_text() == table.csv()


def test_the_page_can_be_made_while_a_data_set_has_no_results_yet(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "geolife", tmp_path / "geolife")
    (tmp_path / "porto").mkdir()
    shutil.copy(folder / "porto" / manifest.NAME, tmp_path / "porto")
    assert run_command("benchmark", command, ["report", str(tmp_path), "--no-figures", "-q"]) == 0
    missing = pl.read_csv(tmp_path / "tables" / "porto_unfinished.csv")
    assert missing["method"].to_list() == ["lof", "kdd19"]


def test_a_folder_without_results_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no results yet"):
        write_page(tmp_path)


# -------------------------------------------------------------------- the pictures


def test_the_examples_are_of_the_median_draw_and_at_fixed_quantiles() -> None:
    def draw(who: str, score: list[float]) -> pl.DataFrame:
        return case_table(Case(Setting(), who, 0), "kdd19", score, [0.1] * 8)

    normal = [0.5, 0.1, 0.4, 0.0, 0.3, 0.2]
    found = choose(
        pl.concat([draw("a", [*normal, -9.0, -9.0]), draw("b", [*normal, 0.25, -9.0]), draw("c", [*normal, 9.0, 9.0])])
    )
    assert (found.subject, found.seed) == ("b", 0)  # AUROC 1, 3/4 and 0
    assert found.normal.tolist()[:2] == [2, 4]  # 0.4 and 0.3, around the upper quartile of six
    assert found.own.tolist()[:2] == [5, 4]
    assert found.foreign.tolist() == [7, 6]


def test_a_detour_is_put_into_a_trip_that_leaves_and_a_picture_shows_no_trip_of_days() -> None:
    def trip(name: str, metres: float, seconds: float) -> Trajectories:
        along = np.linspace(0.0, metres / 111_195.0, 200)
        return Trajectories(
            {"time": np.linspace(0.0, seconds, 200), "lat": 40.0 + along, "lon": np.full(200, 116.0)},
            [0, 200],
            ["a"],
            [name],
        )

    trips = Trajectories.concat(
        [trip("near", 500.0, 900.0), trip("days", 5000.0, 90_000.0), trip("far", 5000.0, 1200.0)]
    )
    seen = legible(trips)
    assert seen.trajectory_ids.tolist() == ["near", "far"]
    made = detour(seen, np.random.default_rng(0))
    assert made.trips.trajectory_ids.tolist() == ["far"]
    assert 0 < made.truth.sum() < len(made.truth)
    assert np.ptp(made.trips.columns["lon"][~made.truth]) < 1e-6 < np.ptp(made.trips.columns["lon"][made.truth])


# -------------------------------------------------------------------- the command

HEADER = "Geolife trajectory\r\nWGS 84\r\nAltitude is in Feet\r\nReserved 3\r\n0,2,255,My Track,0,0,2,8421376\r\n0\r\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like GeoLife's: a person with enough trips for the test, and four others."""
    root, rng = tmp_path_factory.mktemp("Data"), np.random.default_rng(0)
    for person, count in enumerate((200, 12, 12, 12, 12)):
        for k in range(count):
            time = 1.2e9 + 86_400.0 * k + 12.0 * np.arange(110)
            lat = 39.9 + 0.2 * person + np.linspace(0.0, 0.03, 110) + 1e-4 * rng.normal(size=110)
            lon = 116.3 + 0.01 * (k % 4) + 1e-4 * rng.normal(size=110)
            when = pl.from_epoch(pl.Series(time), time_unit="s").dt.strftime("%Y-%m-%d,%H:%M:%S")
            lines = [f"{y},{x},0,0,0,{t}" for y, x, t in zip(lat, lon, when, strict=True)]
            file = root / f"{person:03d}" / "Trajectory" / f"{k:03d}.plt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(HEADER + "\r\n".join(lines) + "\r\n")
    return root


def test_one_command_runs_what_is_there_says_what_is_not_and_continues(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ASTRAY_GEOLIFE", "ASTRAY_PORTO"):
        monkeypatch.delenv(name, raising=False)
    methods = 'cell-counts,kdd19:iterations=1:config={"updates": 2, "rollouts": 4}'
    words = ["paper", "--geolife", str(data), "--users", "000", "--seeds", "1", "-m", methods, "-o", str(tmp_path)]
    assert run_command("benchmark", command, words) == 0
    said = capsys.readouterr()
    assert "porto: no path is given for the data; give your copy as --porto, or set ASTRAY_PORTO" in said.err
    assert "4 cases run, 0 were there already, 0 failed" in said.err
    assert "### At a glance" in said.out
    page = (tmp_path / "paper.md").read_text("utf-8")
    assert "| GeoLife, 10 % | cell-counts |" in page
    assert "![A normal, a partly anomalous and a foreign trip](geolife/figures/examples.png)" in page
    assert (tmp_path / "geolife" / "figures" / "examples.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setenv("ASTRAY_GEOLIFE", str(data))
    assert run_command("benchmark", command, [w for w in words if w not in ("--geolife", str(data))]) == 0
    assert "0 cases run, 4 were there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-o", "x"], "give --geolife DIR, --porto PATH or both"),
        (["-o", "x", "--porto", "nowhere"], "nowhere does not exist"),
        (["-o", "x", "--geolife", ".", "-p", "p1"], "the paper's data sets and protocols are fixed"),
        ([], "give astray benchmark paper -o FOLDER"),
    ],
)
def test_a_command_for_the_paper_that_cannot_run_says_why(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ASTRAY_GEOLIFE", "ASTRAY_PORTO"):
        monkeypatch.delenv(name, raising=False)
    assert run_command("benchmark", command, ["paper", *words]) == 1
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_methods_of_the_study_are_the_papers() -> None:
    named = [printed.PAPER_NAMES[method] for method in METHODS]
    assert [*named, "IRL-ADU"] == list(printed.PORTO)
    assert measures.EPS == -2.0
    assert measures.GAMMA == 1.5
