"""Anybody's detector in the benchmark: found by the place of its class, calibrated, and failing by itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from astray.cli.running import run as run_command
from astray.core.errors import DataError
from astray_benchmark import measures, runner
from astray_benchmark.command import command
from astray_benchmark.external_detectors import ExternalDetector, import_class
from astray_benchmark.methods import method, methods
from astray_benchmark.protocols import cases
from astray_benchmark.runner import Job, run
from astray_benchmark.simulated_data import Simulated

TINY = Simulated(people=2, days=21)
WORDS = ["simulated", "--people", "2", "--days", "21", "-p", "p1", "--rate", "0.1", "--split", "random"]
WORDS += ["--seeds", "1", "--no-figures"]

SOURCE = """
import numpy as np

class Middle:
    def __init__(self, seed=-1, factor=1.0):
        self.seed, self.factor = seed, factor

    def fit(self, trips):
        self.at = trips.columns["lat"].mean(), trips.columns["lon"].mean()

    def score_fixes(self, trips):
        return -self.factor * np.hypot(trips.columns["lat"] - self.at[0], trips.columns["lon"] - self.at[1])

    def score_samples(self, trips):
        return np.add.reduceat(self.score_fixes(trips), trips.offsets[:-1]) / trips.lengths

class Among(Middle):
    def fit(self, trips, population=None):
        super().fit(trips)
        self.others = None if population is None else population.agents

class Learner(Middle):
    def fit(self, trips):
        super().fit(trips)
        self.learned, self.told = 0, []

    def learn(self, trip, flagged):
        self.learned += 1
        self.told.append(flagged)

class Wanting(Middle):
    def fit(self, trips, others):
        super().fit(trips)

class Broken(Middle):
    def score_samples(self, trips):
        raise ZeroDivisionError("nothing to divide by")

class Leaving(Middle):
    def score_samples(self, trips):
        raise SystemExit(3)

class OfTrips:
    def fit(self, trips):
        self.usual = trips.lengths.mean()

    def score_samples(self, trips):
        return -np.abs(trips.lengths - self.usual)

class Short(Middle):
    def score_samples(self, trips):
        return np.zeros(len(trips) - 1)

class Words(Middle):
    def score_samples(self, trips):
        return ["low"] * len(trips)

class Unfit:
    def score_samples(self, trips):
        return np.zeros(len(trips))

number = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of somebody's in it."""
    (tmp_path / "somebodys.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "somebodys", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    import_class.cache_clear()
    return tmp_path


def test_a_class_is_a_method_and_its_options_follow() -> None:
    found = method("somebodys:Middle:factor=2.5")
    assert isinstance(found, ExternalDetector)
    assert found.name == "somebodys:Middle:factor=2.5"
    assert found.options == {"factor": 2.5}
    with pytest.raises(DataError, match="Middle has no parameter 'C1'"):
        method("somebodys:Middle:C1=2")
    assert [m.name for m in methods(["lof,somebodys:Middle"])] == ["lof", "somebodys:Middle"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nobodys:Middle", "no module named 'nobodys'"),
        ("somebodys:Muddle", "has no 'Muddle'"),
        ("somebodys:Unfit", "has no method fit"),
        ("somebodys:number", "is not a class"),
        ("middle", "no method named 'middle'.*package.module:Class"),
    ],
)
def test_a_class_that_is_no_detector_is_refused_before_anything_runs(spec: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        method(spec)


def test_a_detector_gets_seed_and_population_and_is_calibrated_on_left_out_trips() -> None:
    (case, *_) = cases(TINY, ["p1"], [3])
    trial = TINY.trial(case)
    fitted = method("somebodys:Among").fit(trial.lesson, 3)
    assert fitted.model.seed == 3
    assert trial.lesson.population is not None
    assert fitted.model.others == trial.lesson.population.agents
    assert len(fitted.left_out.trips) >= min(50, len(trial.lesson.train))
    table = fitted.trips(trial.test)
    assert table.columns == ["normality", "score", "uncertainty", "p_value", "aspect", "part"]
    raw = fitted.model.score_samples(trial.test)
    assert np.array_equal(np.argsort(table["score"].to_numpy()), np.argsort(raw))
    assert table["p_value"].is_between(0, 1).all()
    own = table.filter(pl.Series(trial.kind == ""))
    assert abs(own["normality"].mean()) < 1.0
    fixes = fitted.fixes(trial.test)
    assert abs(fixes[np.repeat(trial.kind == "", trial.test.lengths)].mean()) < 1.0
    far = method("somebodys:Among:factor=1e6").fit(trial.lesson, 3)  # in another unit
    assert np.allclose(far.fixes(trial.test), fixes)
    assert np.array_equal(fitted.begun(trial.test), table["score"].to_numpy())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Broken", r"ZeroDivisionError: nothing to divide by \(somebodys.py, line \d+\)"),
        ("Short", r"DataError: score_samples returned the shape \(\d+,\) for \d+ trips"),
        ("Words", "DataError: score_samples did not return numbers"),
        ("Leaving", r"SystemExit: 3 \(somebodys.py, line \d+\)"),
    ],
)
def test_the_report_says_why_a_method_failed_and_the_others_continue(name: str, said: str, folder: Path) -> None:
    (case, *_) = cases(TINY, ["p1"], [0])
    both = methods([f"somebodys:{name}", "somebodys:Middle"])
    outcome = run(TINY, both, [case], folder / "out")
    assert outcome.ran == 1
    (failed,) = outcome.failed
    assert failed.job.method == f"somebodys:{name}"
    assert pl.Series([failed.error]).str.contains(said).all()
    kept = runner.results(folder / "out", runner.FAILED)
    assert kept is not None
    assert kept.collect()["why"].to_list() == [failed.error]
    # Mended, it leaves the list.
    runner.write(folder / "out", Job(case, f"somebodys:{name}"), {runner.TRIPS: pl.DataFrame({"a": [1]})})
    assert runner.results(folder / "out", runner.FAILED) is None


def test_a_detector_without_scores_of_fixes_has_no_figures_of_fixes(folder: Path) -> None:
    (case, *_) = cases(TINY, ["p3"], [0])
    assert not run(TINY, methods(["somebodys:OfTrips", "somebodys:Middle"]), [case], folder / "out").failed
    kept = runner.results(folder / "out", runner.FIXES)
    assert kept is not None
    assert set(measures.of_fixes(kept.collect())["method"]) == {"somebodys:Middle"}


def test_the_command_reports_what_failed_beside_the_rest(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "out"
    assert run_command("benchmark", command, [*WORDS, "-m", "somebodys:Middle,somebodys:Broken", "-o", str(out)]) != 0
    said = capsys.readouterr()
    assert "somebodys:Middle" in said.out
    report = (out / "report.md").read_text("utf-8")
    assert "### Failed" in report
    assert "ZeroDivisionError: nothing to divide by (somebodys.py" in report
    assert (out / "tables" / "failed.csv").exists()
    missing = pl.read_csv(out / "tables" / "unfinished.csv")
    assert missing.rows() == [("somebodys:Broken", "person/rate=0.1,split=random", 0, 2)]
    assert "Asked for, and not finished" in report
    # Alone, it is told as well.
    assert run_command("benchmark", command, [*WORDS, "-m", "somebodys:Broken", "-o", str(folder / "alone")]) != 0
    assert "ZeroDivisionError" in (folder / "alone" / "report.md").read_text("utf-8")


def test_results_of_another_version_of_the_class_are_not_mixed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*WORDS, "-q", "-m", "somebodys:Middle", "-o", str(folder / "out")]
    assert run_command("benchmark", command, words) == 0
    (folder / "somebodys.py").write_text(SOURCE + "\n# changed\n")
    assert run_command("benchmark", command, words) != 0
    assert "another version of" in capsys.readouterr().err
    assert run_command("benchmark", command, [*words, "--changed-code"]) == 0
    (both,) = json.loads((folder / "out" / "manifest.json").read_text())["sources"].values()
    assert len(both) == 2


def test_a_class_without_results_may_still_be_changed(folder: Path) -> None:
    words = [*WORDS, "-q", "-m", "somebodys:Broken", "-o", str(folder / "out")]
    assert run_command("benchmark", command, words) != 0
    (folder / "somebodys.py").write_text(SOURCE.replace('raise ZeroDivisionError("nothing to divide by")', "return 0"))
    assert run_command("benchmark", command, words) != 0  # not the shape that is wanted
    (folder / "somebodys.py").write_text(SOURCE.partition("class Broken")[0] + "class Broken(Middle):\n    ...\n")
    sys.modules.pop("somebodys")
    import_class.cache_clear()
    assert run_command("benchmark", command, words) == 0
    (source,) = json.loads((folder / "out" / "manifest.json").read_text())["sources"].values()
    assert len(source) == 1


def test_a_detector_that_can_learn_also_follows_streams(folder: Path):
    learner = method("somebodys:Learner")
    case = cases(TINY, ["p7"], [0])[0]
    trial = TINY.trial(case)
    assert [runner.able(learner, c.setting) for c in (case, cases(TINY, ["p1"], [0])[0])] == [True, True]
    assert not runner.able(method("somebodys:Middle"), case.setting)
    stream = runner.score(trial, case, learner)[runner.STREAMS]
    assert len(stream) == len(trial.test)
    follower = learner.begin(trial.lesson, 0)  # type: ignore[union-attr]
    follower.score(trial.test[:1])
    assert follower.learn(trial.test[:1], lambda names: pytest.fail("nobody is asked")) == 0
    assert (follower.fitted.model.learned, follower.fitted.model.told) == (1, [bool(stream["flagged"][0])])


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("somebodys:Wanting", "its fit requires 'others', which the benchmark does not give; fit gets the trips and"),
        ("somebodys:Middle:colour=3", "Middle has no parameter 'colour'; there are seed, factor"),
        ("somebodys.Middle", "a class of your own is somebodys:Middle, with a colon"),
        ("slip:Middle", "the module 'slip' cannot be imported"),
    ],
)
def test_a_misspelt_external_detector_is_refused_before_anything_runs(folder: Path, spec: str, says: str):
    (folder / "slip.py").write_text("class Middle(:\n")
    with pytest.raises(DataError) as refused:
        method(spec)
    assert says in str(refused.value)


def test_an_error_inside_a_package_is_reported_with_the_line_of_the_users_file(tmp_path: Path):
    def wrong() -> None:
        pl.DataFrame({"a": [1]}).select(pl.col("a").dt.total_seconds())

    with pytest.raises(pl.exceptions.PolarsError) as error:
        wrong()
    assert "(test_benchmark_external.py, line" in runner.reason(error.value)
