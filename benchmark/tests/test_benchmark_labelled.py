"""Trips that somebody has labelled: each is tested by what others taught, and nobody is shown a label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from astray import Trajectories, read
from astray.cli import main
from astray.core.errors import DataError
from astray.readers import ReadWarning
from astray.simulate import city
from astray_benchmark import guards
from astray_benchmark.calibration import FOLDS
from astray_benchmark.labelled_data import POOL, LabelledTrips
from astray_benchmark.protocols import Case, Setting, slug

SETTING = Setting(rate=0.0, reading="labelled")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Three people's past, and their labelled trips, every sixth of which is somebody else's."""
    home = tmp_path_factory.mktemp("labelled")
    trips = city(people=3, days=20, seed=3).trips
    start = trips.columns["time"][trips.offsets[:-1]]
    later = start > np.quantile(start, 0.6)
    new = trips[later].to_frame()
    names = new.select("agent", "trajectory").unique(maintain_order=True).with_row_index("i")
    swapped = pl.col("i") % 6 == 0
    others = pl.col("agent").replace_strict({"p00": "p01", "p01": "p02", "p02": "p00"})
    labels = names.with_columns(
        label=pl.when(swapped).then(pl.lit("swapped")).otherwise(pl.lit("normal")),
        whose=pl.when(swapped).then(others).otherwise("agent"),
    )
    joined = new.join(labels, on=["agent", "trajectory"]).with_columns(agent="whose").drop("whose", "i")
    trips[~later].to_frame().write_parquet(home / "past.parquet")
    joined.write_parquet(home / "new.parquet")
    return home / "past.parquet", home / "new.parquet"


def marks(trips: Trajectories) -> set[bytes]:
    return set(guards.fingerprints(trips))


def test_without_a_past_every_trip_is_scored_by_what_the_other_folds_taught(files: tuple[Path, Path]):
    data = LabelledTrips(str(files[1]), "label")
    assert data.subjects(SETTING) == ["p00", "p01", "p02"]
    trial = data.trial(Case(SETTING, "p01", 0))
    assert set(trial.kind.tolist()) == {"", "swapped"}
    assert set(trial.test.columns) == {"time", "lat", "lon"}
    assert not trial.test.context
    met: list[int] = []
    for lesson, at in trial.parts():
        assert marks(lesson.train).isdisjoint(marks(trial.test[at]))
        assert len(lesson.train) + len(at) == len(trial.test)  # the labels choose nobody
        assert lesson.population is not None
        assert set(lesson.population.agents) == {"p00", "p02"}
        met += at.tolist()
    assert sorted(met) == list(range(len(trial.test)))
    assert len(list(trial.parts())) == FOLDS
    assert marks(data.trial(Case(SETTING, "p01", 1)).test) == marks(trial.test)


def test_with_a_past_methods_learn_from_the_past_alone(files: tuple[Path, Path]):
    past, new = files
    trial = LabelledTrips(str(new), "label", str(past)).trial(Case(SETTING, "p02", 0))
    known = pl.read_parquet(past).filter(pl.col("agent") == "p02")["trajectory"].n_unique()
    ((lesson, at),) = trial.parts()
    assert (len(lesson.train), len(at)) == (known, len(trial.test))
    assert lesson.population is not None
    assert marks(lesson.population).isdisjoint(marks(trial.test))
    assert len(lesson.population) == pl.read_parquet(past)["trajectory"].n_unique() - known


def test_a_tested_trip_is_never_learned_from_and_copies_are_dropped(files: tuple[Path, Path], tmp_path: Path):
    past, new = (pl.read_parquet(file) for file in files)
    copy = new.filter(pl.col("agent") == "p00").filter(pl.col("trajectory") == pl.col("trajectory").first())
    rounded = copy.select(past.columns).with_columns(pl.col("lat", "lon").round(4))
    pl.concat([past, rounded, rounded.with_columns(agent=pl.lit("p01"))]).write_parquet(tmp_path / "past.parquet")
    pl.concat([new, copy.with_columns(trajectory=pl.lit("again"))]).write_parquet(tmp_path / "new.parquet")
    data = LabelledTrips(str(tmp_path / "new.parquet"), "label", str(tmp_path / "past.parquet"))
    assert data.settings["left out: twice"] == 1
    assert data.settings["left out: past trips that are labelled ones"] == 2
    trial, before = (d.trial(Case(SETTING, "p00", 0)) for d in (data, LabelledTrips(str(files[1]), "label")))
    assert marks(trial.test) == marks(before.test)
    assert len(trial.test) == len(before.test)
    assert trial.lesson.population is not None
    learned = Trajectories.concat([trial.lesson.train, trial.lesson.population])
    assert set(starts(learned)).isdisjoint(starts(trial.test))


def test_trips_that_all_begin_at_the_same_time_are_no_copies(files: tuple[Path, Path], tmp_path: Path):
    whole = LabelledTrips(str(files[1]), "label").trial(Case(SETTING, "p00", 0))
    counted = pl.int_range(pl.len()).over("agent", "trajectory")
    pl.read_parquet(files[1]).with_columns(time=15 * counted + 1e9).write_parquet(tmp_path / "timeless.parquet")
    data = LabelledTrips(str(tmp_path / "timeless.parquet"), "label")
    assert len(data.trial(Case(SETTING, "p00", 0)).test) == len(whole.test)


def starts(trips: Trajectories) -> list[float]:
    return trips.columns["time"][trips.offsets[:-1]].tolist()


def test_an_unlabelled_trip_is_not_tested_unless_only_wrong_trips_have_labels(files: tuple[Path, Path], tmp_path: Path):
    whole = LabelledTrips(str(files[1]), "label").trial(Case(SETTING, "p00", 0))
    new = pl.read_parquet(files[1])
    named = new.filter(pl.col("agent") == "p00", pl.col("label") == "normal")["trajectory"][0]
    some = new.with_columns(label=pl.when(pl.col("trajectory") != named).then("label"))
    some.write_parquet(tmp_path / "some.parquet")
    data = LabelledTrips(str(tmp_path / "some.parquet"), "label")
    assert len(data.trial(Case(SETTING, "p00", 0)).test) == len(whole.test) - 1
    assert data.settings["left out: without a label"] == 1
    wrong = new.with_columns(label=pl.when(pl.col("label") != "normal").then("label"))
    wrong.write_parquet(tmp_path / "wrong.parquet")
    trial = LabelledTrips(str(tmp_path / "wrong.parquet"), "label").trial(Case(SETTING, "p00", 0))
    assert (len(trial.test), sorted(trial.kind)) == (len(whole.test), sorted(whole.kind))


def test_a_label_is_that_of_a_whole_trip(files: tuple[Path, Path], tmp_path: Path):
    of_fixes = pl.read_parquet(files[1]).with_columns(label=pl.int_range(pl.len()) % 2)
    of_fixes.write_csv(tmp_path / "fixes.csv")
    with pytest.raises(DataError, match=r"'label' has several values within \d+ trips; give each trip one label"):
        LabelledTrips(str(tmp_path / "fixes.csv"), "label").subjects(SETTING)
    with pytest.warns(
        ReadWarning, match=r"'label' has several values in \d+ trajectories; the value of the first fix is used"
    ):
        read(tmp_path / "fixes.csv", context=("label",))


def test_a_pool_is_one_agent(files: tuple[Path, Path]):
    data = LabelledTrips(str(files[1]), "label", pooled=True)
    assert data.subjects(SETTING) == [POOL]
    trial = data.trial(Case(SETTING, POOL, 0))
    assert trial.lesson.pooled
    assert trial.lesson.population is None
    assert len(trial.test) == pl.read_parquet(files[1]).select("agent", "trajectory").n_unique()


def test_labels_that_are_all_alike_are_refused(files: tuple[Path, Path], tmp_path: Path):
    pl.read_parquet(files[1]).with_columns(label=pl.lit(0)).write_parquet(tmp_path / "calm.parquet")
    with pytest.raises(DataError, match="nobody has labelled trips that are normal, others that are not"):
        LabelledTrips(str(tmp_path / "calm.parquet"), "label").settings  # noqa: B018
    with pytest.raises(DataError, match="nobody is called 'p09'; there are p00, p01, p02"):
        LabelledTrips(str(files[1]), "label", people=("p09",)).subjects(SETTING)
    with pytest.raises(DataError, match="no column named 'truth'"):
        LabelledTrips(str(files[1]), "truth").subjects(SETTING)


def test_the_command_tests_labelled_trips_and_an_agents_name_cannot_leave_the_results_folder(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    sly = pl.read_parquet(files[1]).with_columns(agent=pl.col("agent").replace("p00", "../../p00"))
    sly.write_parquet(tmp_path / "new.parquet")
    out = tmp_path / "out"
    asked = ["--data", str(tmp_path / "new.parquet"), "-m", "knn-location,cell-trigram", "--seeds", "2", "-o", str(out)]
    assert main(["benchmark", "labelled", *asked, "-q", "--no-figures"]) == 0
    said = capsys.readouterr()
    found = pl.read_csv(out / "tables" / "p10.csv")
    assert found["method"].to_list() == ["knn-location", "cell-trigram"]
    assert found["draws"].to_list() == [6, 6]
    assert found["AUROC"].min() > 0.6, said  # type: ignore[operator]
    assert "--label label" in (out / "report.md").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"new.parquet", "out"}
    assert {path.name for path in (out / "trips" / "labelled" / SETTING.name).iterdir()} == {
        *("p01", "p02"),
        slug("../../p00"),
    }
