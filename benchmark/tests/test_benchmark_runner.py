"""The benchmark: cases are pure functions of their keys, runs resume, and every method is treated alike."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil
import pytest
import torch

from astray.cli import main
from astray.cli.running import run as run_command
from astray.core.errors import DataError, TrainingError
from astray.core.trajectories import Trajectories
from astray.model.pretrained import pretrained
from astray_benchmark import manifest, metrics, runner
from astray_benchmark.astray_methods import STREAMING, FittedDetector, Shared, _fleets
from astray_benchmark.baselines import COMPARISONS
from astray_benchmark.calibration import standardise
from astray_benchmark.command import command
from astray_benchmark.contenders import Fitted, Lesson, Person, Seconds, Strangers
from astray_benchmark.methods import METHODS, OWN_BACKGROUND, REFITTED, TREES, method, methods
from astray_benchmark.protocols import PREFIXES, PROTOCOLS, Case, Setting, Trial, cases, prefixes, protocols
from astray_benchmark.runner import Job, run
from astray_benchmark.simulated_data import Simulated

torch.set_num_threads(1)

TINY = Simulated(people=2, days=21)


@dataclass(frozen=True)
class FarFromTheMiddle:
    """A method that takes no time: how far a trip's middle is from the middle of the training trips, in degrees."""

    name: str = "middle"
    broken_for: str = ""

    def fit(self, lesson: Lesson, seed: int) -> Fitted:
        if lesson.train.agents == [self.broken_for]:
            raise TrainingError("the loss became nan; lower the learning rate")
        return _Middle(float(lesson.train.columns["lat"].mean()), float(lesson.train.columns["lon"].mean()))


@dataclass(frozen=True)
class _Middle:
    lat: float
    lon: float
    seconds: Seconds = Seconds(0.5)

    def fixes(self, test: Trajectories) -> np.ndarray:
        return -np.hypot(test.columns["lat"] - self.lat, test.columns["lon"] - self.lon)

    def trips(self, test: Trajectories) -> pl.DataFrame:
        score = np.add.reduceat(self.fixes(test), test.offsets[:-1]) / test.lengths
        nothing = [None] * len(test)
        return pl.DataFrame(
            {
                "normality": score,
                "score": score,
                "uncertainty": pl.Series(nothing, dtype=pl.Float64),
                "p_value": np.full(len(test), 0.5),
                "aspect": pl.Series(nothing, dtype=pl.String),
                "part": pl.Series(nothing, dtype=pl.Float64),
            }
        )

    def begun(self, test: Trajectories) -> np.ndarray:
        return self.trips(test)["score"].to_numpy()


def files(out: Path, table: str = runner.TRIPS) -> dict[str, bytes]:
    return {str(p.relative_to(out / table)): p.read_bytes() for p in sorted((out / table).rglob("*.parquet"))}


def scores(out: Path) -> pl.DataFrame:
    found = runner.results(out)
    assert found is not None
    return found.select("subject", "seed", "method", "rate", "split", "trip", "score").collect().sort(pl.all())


# -------------------------------------------------------------------- cases and trials


def test_every_protocol_of_every_data_set_is_a_list_of_distinct_settings():
    for dataset, known in PROTOCOLS.items():
        for settings in known.values():
            assert len({s.name for s in settings}) == len(settings) > 0, dataset


def test_the_cases_of_a_person_follow_each_other_one_seed_after_the_other():
    order = [(case.seed, case.subject) for case in cases(TINY, ["p6", "p9"], seeds=[1, 0])]
    people = TINY.subjects(Setting())
    assert list(dict.fromkeys(order)) == [(seed, person) for seed in (1, 0) for person in people]
    assert len(order) == 2 * len(people) * 8  # four contaminations and five histories, one of them the same
    assert order == sorted(order, key=lambda at: (-at[0], people.index(at[1])))


def test_protocols_that_look_at_the_same_scores_share_their_cases():
    all_cases = cases(TINY, protocols("simulated", ["all"]), seeds=[0])
    assert len({case.name for case in all_cases}) == len(all_cases)
    assert set(cases(TINY, ["p5"], [0])) <= set(cases(TINY, ["p1"], [0]))
    assert cases(TINY, ["p4"], [0]) == cases(TINY, ["p3"], [0])
    uncontaminated = Setting()
    assert {uncontaminated} == set(PROTOCOLS["simulated"]["p6"]) & set(PROTOCOLS["simulated"]["p1"])


def test_an_unknown_protocol_is_refused_with_those_that_there_are():
    with pytest.raises(DataError, match=r"p2.*there are p1, p3"):
        protocols("simulated", ["p2"])


def test_rates_and_splits_choose_among_the_settings_of_the_protocols():
    part = cases(TINY, ["p1", "p6"], [0], rates=[0.1], splits=["random"])
    assert {case.setting for case in part} == {Setting(rate=0.1)}
    assert set(part) < set(cases(TINY, ["p1", "p6"], [0]))
    whole = [cases(TINY, ["p1"], [0], splits=[split]) for split in ("random", "chronological")]
    assert {case for half in whole for case in half} == set(cases(TINY, ["p1"], [0]))
    with pytest.raises(DataError, match=r"p6 on simulated: nothing is left with --rate 0.1; .* rates 0.05 .* random"):
        cases(TINY, ["p6"], [0], rates=[0.1])


@pytest.mark.parametrize("setting", [Setting(), Setting(injected=True), Setting(split="chronological", rate=0.1)])
def test_a_trial_is_a_pure_function_of_its_key(setting: Setting):
    case = Case(setting, "p01", seed=3)
    first = TINY.trial(case)
    TINY.trial(Case(setting, "p00", seed=4))  # another one in between
    again = Simulated(people=2, days=21).trial(case)
    for name in ("time", "lat", "lon"):
        assert np.array_equal(first.test.columns[name], again.test.columns[name])
        assert np.array_equal(first.lesson.train.columns[name], again.lesson.train.columns[name])
    assert np.array_equal(first.kind, again.kind)


def test_no_test_trip_is_in_the_lesson_and_no_person_is_both_injected_and_background():
    trial = TINY.trial(Case(Setting(contamination=0.1), "p00", seed=0))

    def starts(trips: Trajectories) -> set[tuple[float, float]]:
        at = trips.offsets[:-1]
        return set(zip(trips.columns["lat"][at].tolist(), trips.columns["lon"][at].tolist(), strict=True))

    assert not starts(trial.test) & starts(trial.lesson.train)
    assert not starts(trial.test) & starts(trial.lesson.population)
    injected = {name.split("/")[0] for name in trial.source[trial.kind != ""]}
    assert injected == {"p01"}
    assert not injected & set(trial.lesson.population.agents)
    assert trial.test.agents == trial.lesson.train.agents == ["p00"]
    assert len(set(trial.test.trajectory_ids) & set(trial.lesson.train.trajectory_ids)) == 0


def test_rate_contamination_and_history_are_what_was_asked_for():
    clean = TINY.trial(Case(Setting(rate=0.1), "p00", 0))
    assert (clean.kind != "").mean() == pytest.approx(0.1, abs=0.04)
    dirty = TINY.trial(Case(Setting(contamination=0.1), "p00", 0))
    n = len(clean.lesson.train)
    assert len(dirty.lesson.train) - n == round(n / 9)
    few = TINY.trial(Case(Setting(history=5), "p00", 0))
    assert len(few.lesson.train) == 5
    # Neither changes what is tested.
    plain = TINY.trial(Case(Setting(), "p00", 0))
    for other in (dirty, few):
        assert np.array_equal(other.test.columns["lat"], plain.test.columns["lat"])


def test_a_chronological_split_trains_on_the_past():
    trial = TINY.trial(Case(Setting(split="chronological"), "p00", 0))
    own = trial.test[np.flatnonzero(trial.kind == "")]
    assert trial.lesson.train.columns["time"].max() < own.columns["time"].min()


def test_injected_trips_know_which_of_their_fixes_are_wrong():
    trial = TINY.trial(Case(Setting(injected=True), "p00", 0))
    assert trial.truth is not None
    anomalous = np.logical_or.reduceat(trial.truth, trial.test.offsets[:-1])
    assert np.array_equal(anomalous, trial.kind != "")
    counts = Counter(trial.kind.tolist())
    assert {"detour", "loiter", "reverse", "speed", "driven detour"} <= set(counts)
    # Each kind is measured against all normal trips, at about 5 %.
    assert max(counts[k] for k in counts if k) <= max(1, round(counts[""] / 19))


def test_labels_must_fit_the_trips():
    trial = TINY.trial(Case(Setting(), "p00", 0))
    with pytest.raises(DataError, match="give one per trip"):
        Trial(trial.lesson, trial.test, trial.kind[1:], trial.source)
    folds = tuple(np.zeros(len(trips), np.int64) for trips in (trial.lesson.train, trial.test))
    with pytest.raises(DataError, match="cannot be combined with folds"):
        Trial(trial.lesson, trial.test, trial.kind, trial.source, np.zeros(trial.test.n_rows, bool), folds)


def test_prefixes_begin_where_trips_begin_and_the_last_is_the_whole():
    trips = TINY.trial(Case(Setting(), "p00", 0)).test
    tenth, whole = prefixes(trips, PREFIXES[0]), prefixes(trips, PREFIXES[-1])
    assert np.array_equal(whole.columns["lat"], trips.columns["lat"])
    assert np.array_equal(tenth.columns["lat"][tenth.offsets[:-1]], trips.columns["lat"][trips.offsets[:-1]])
    assert (tenth.lengths == np.maximum(2, np.ceil(0.1 * trips.lengths - 1e-9))).all()


# -------------------------------------------------------------------- running


def test_each_case_is_a_file_and_a_second_run_has_nothing_to_do(tmp_path: Path):
    wanted = cases(TINY, ["p1"], seeds=[0, 1])
    outcome = run(TINY, [FarFromTheMiddle()], wanted, tmp_path)
    assert (outcome.ran, outcome.skipped, outcome.failed) == (len(wanted), 0, ())
    before = files(tmp_path)
    assert len(before) == len(wanted) == 2 * 2 * 4
    again = run(TINY, [FarFromTheMiddle()], wanted, tmp_path)
    assert (again.ran, again.skipped) == (0, len(wanted))
    assert files(tmp_path) == before


def test_missing_cases_are_run_again_with_the_same_result(tmp_path: Path):
    wanted = cases(TINY, ["p6"], seeds=[0])
    run(TINY, [FarFromTheMiddle()], wanted, tmp_path)
    before = scores(tmp_path)
    lost = tmp_path / runner.TRIPS / Job(wanted[3], "middle").path
    lost.unlink()
    outcome = run(TINY, [FarFromTheMiddle()], wanted, tmp_path)
    assert (outcome.ran, outcome.skipped) == (1, len(wanted) - 1)
    assert scores(tmp_path).equals(before)


def test_the_number_of_workers_changes_nothing(tmp_path: Path):
    wanted = cases(TINY, ["p6"], seeds=[0])[:2]
    run(TINY, [method("knn-location")], wanted, tmp_path / "one", workers=1)
    run(TINY, [method("knn-location")], wanted, tmp_path / "two", workers=2)
    assert scores(tmp_path / "one").equals(scores(tmp_path / "two"))


def test_one_failure_does_not_stop_the_others_and_is_tried_again(tmp_path: Path):
    wanted = cases(TINY, ["p9"], seeds=[0])
    outcome = run(TINY, [FarFromTheMiddle(broken_for="p01")], wanted, tmp_path)
    assert len(outcome.failed) == len(wanted) / 2
    assert "lower the learning rate" in outcome.failed[0].error
    assert all(done.job.case.subject == "p01" for done in outcome.failed)
    mended = run(TINY, [FarFromTheMiddle()], wanted, tmp_path)
    assert (mended.ran, mended.skipped, mended.failed) == (len(wanted) // 2, len(wanted) // 2, ())


def test_progress_counts_to_the_end_and_the_time_left_falls_to_nothing(tmp_path: Path):
    seen: list[runner.Progress] = []
    wanted = cases(TINY, ["p1"], seeds=[0])
    run(TINY, [FarFromTheMiddle()], wanted, tmp_path, progress=seen.append)
    assert [p.finished for p in seen] == list(range(1, len(wanted) + 1))
    assert seen[-1].left == 0.0


def test_injected_cases_hold_the_scores_of_fixes_and_of_prefixes(tmp_path: Path):
    case = Case(Setting(injected=True), "p00", 0)
    trial = TINY.trial(case)
    tables = runner.score(trial, case, FarFromTheMiddle())
    assert len(tables[runner.FIXES]) == trial.test.n_rows
    assert tables[runner.FIXES]["truth"].to_numpy().tolist() == trial.truth.tolist()
    parts = tables[runner.PARTS]
    assert len(parts) == len(PREFIXES) * len(trial.test)
    whole = parts.filter(pl.col("ratio") == 1.0)
    assert whole["score"].to_list() == tables[runner.TRIPS]["score"].to_list()
    assert whole["begun"].to_list() == (trial.kind != "").tolist()
    # What has begun goes on having begun.
    begun = parts.sort("trip", "ratio")["begun"].to_numpy().reshape(len(trial.test), -1)
    assert (np.diff(begun.astype(int), axis=1) >= 0).all()


def test_trips_that_are_learned_from_are_scored_fold_by_fold_and_keep_their_places():
    plain = TINY.trial(Case(Setting(), "p00", 0))
    both = plain.lesson.train[:12]
    fold = np.array([2, 0, 1] * 4)
    order = np.arange(12)[::-1]
    trial = Trial(Lesson(both), both[order], np.full(12, ""), np.full(12, "p00/x"), folds=(fold, fold[order]))
    found = runner.score(trial, Case(Setting(), "p00", 0), FarFromTheMiddle())[runner.TRIPS]
    for i, j in enumerate(order.tolist()):
        rest = FarFromTheMiddle().fit(Lesson(both[fold != fold[j]]), 0)
        assert found["score"][i] == pytest.approx(rest.trips(both[j])["score"][0])
    assert found["trip"].to_list() == list(range(12))
    assert found["fit_seconds"][0] == pytest.approx(3 * 0.5)


def test_models_of_several_folds_score_on_one_scale():
    train = TINY.trial(Case(Setting(), "p00", 0)).lesson.train
    fold = np.arange(len(train)) % 3
    trial = Trial(Lesson(train), train, np.full(len(train), ""), np.full(len(train), "p00/x"), folds=(fold, fold))
    found = runner.score(trial, Case(Setting(), "p00", 0), method("length"))[runner.TRIPS]
    models: list[Any] = [method("length").fit(Lesson(train[fold != k]), 0) for k in range(3)]
    left_out = np.concatenate([model.left_out.trips for model in models])
    for k, model in enumerate(models):
        raw = model.model.score_samples(train[fold == k])
        assert np.allclose(found["score"].to_numpy()[fold == k], (raw - left_out.mean()) / left_out.std())


def test_the_trips_file_is_written_last_because_it_marks_a_case_as_finished(tmp_path: Path, monkeypatch):
    order: list[str] = []
    replacing = runner.replacing
    monkeypatch.setattr(
        runner, "replacing", lambda path: order.append(path.parts[len(tmp_path.parts)]) or replacing(path)
    )
    run(TINY, [FarFromTheMiddle()], [Case(Setting(injected=True), "p00", 0)], tmp_path)
    assert order == [runner.FIXES, runner.PARTS, runner.TRIPS]


# -------------------------------------------------------------------- streams


STREAM = Setting(split="chronological", reading="strangers")
INTRUDER = Setting(split="chronological", reading="intruder")


@dataclass(eq=False)
class Diary:
    """A stream method that writes down what it is told, in the order in which it is told."""

    name: str = "diary"
    lines: list[tuple[str, str, bool]] = field(default_factory=list)
    seconds: Seconds = Seconds(0.5)

    def begin(self, lesson: Lesson, seed: int) -> Diary:
        self.lines.clear()
        return self

    def score(self, trip: Trajectories) -> pl.DataFrame:
        (name,) = trip.ids
        self.lines.append(("scored", name, False))
        middle = _Middle(39.9, 116.4).trips(trip)
        return middle.with_columns(flagged=pl.lit(len(self.lines) % 4 == 1))

    def learn(self, trip: Trajectories, person: Person) -> int:
        (name,) = trip.ids
        self.lines.append(("learned", name, person([name])))
        return len(self.lines) % 3


def test_a_stream_is_the_test_set_of_the_same_draw_in_the_order_of_time():
    plain, stream = (TINY.trial(Case(s, "p00", 0)) for s in (Setting(split="chronological"), STREAM))
    assert sorted(stream.source.tolist()) == sorted(plain.source.tolist())
    starts = stream.test.columns["time"][stream.test.offsets[:-1]]
    assert (np.diff(starts) >= 0).all()
    assert stream.lesson.train.columns["time"].max() < starts[stream.kind == ""].min()
    assert set(stream.source[stream.kind != ""]) == set(plain.source[plain.kind != ""])


def test_an_intruder_makes_half_of_the_trips_in_a_row_and_is_one_person():
    trial = Simulated(people=3, days=30).trial(Case(INTRUDER, "p00", 1))
    at = np.flatnonzero(trial.kind == "intruder")
    assert len(at) == min(10, len(trial.test) // 3)
    assert at[-1] - at[0] < 2 * len(at)
    intruders = {name.split("/")[0] for name in trial.source[at]}
    assert len(intruders) == 1
    assert intruders < {"p01", "p02"}  # of those who are tested; the crowd is what the reward learns from
    own = trial.test[np.flatnonzero(trial.kind == "")]
    assert (np.diff(own.columns["time"][own.offsets[:-1]]) > 0).all()


def test_every_trip_of_a_stream_is_scored_before_anything_is_learned_from_it():
    case, diary = Case(STREAM, "p00", 0), Diary()
    trial = TINY.trial(case)
    tables = runner.score(trial, case, diary)
    names = trial.test.ids
    assert [line[:2] for line in diary.lines] == [(what, n) for n in names for what in ("scored", "learned")]
    assert [own for what, _, own in diary.lines if what == "learned"] == (trial.kind == "").tolist()
    stream, trips = tables[runner.STREAMS], tables[runner.TRIPS]
    assert stream["answers"].to_list() == [(2 * i + 2) % 3 for i in range(len(names))]
    assert stream["flagged"].to_list() == [i % 2 == 0 for i in range(len(names))]
    assert stream["score"].to_list() == trips["score"].to_list()
    assert "flagged" not in trips.columns  # all tables of trips are alike


def test_streams_are_for_the_methods_that_follow_them_and_nothing_else_is(tmp_path: Path):
    wanted = [Case(STREAM, "p00", 0), Case(Setting(), "p00", 0)]
    outcome = run(TINY, [Diary(), FarFromTheMiddle()], wanted, tmp_path)
    assert (outcome.ran, outcome.failed) == (2, ())
    assert list(files(tmp_path)) == [
        "person/rate=0.05,split=random/p00/seed-0/middle.parquet",
        "stream/reading=strangers/p00/seed-0/diary.parquet",
    ]
    assert list(files(tmp_path, runner.STREAMS)) == ["stream/reading=strangers/p00/seed-0/diary.parquet"]


@pytest.fixture(scope="module")
def intruded() -> Trial:
    return Simulated(people=3, days=30).trial(Case(INTRUDER, "p00", 1))


def test_each_way_to_follow_a_stream_learns_what_its_name_says(intruded: Trial):
    case = Case(INTRUDER, "p00", 1)
    names, own = intruded.test.ids, intruded.kind == ""
    past = set(intruded.lesson.train.ids)
    for spec in STREAMING:
        contender = method(spec)
        stream = runner.score(intruded, case, contender)[runner.STREAMS]
        fleet = Shared().fit(intruded.lesson, 1).detector  # the same fleet, in which the person begins anew
        assert set(fleet.memories_["p00"].counts.trip_ids) == past
        follower = contender.begin(intruded.lesson, 1)
        assert follower.fleet is fleet
        answers = 0
        flagged = []
        for i in range(len(names)):
            trip = intruded.test[i : i + 1]
            flagged.append(follower.score(trip)["flagged"][0])
            answers += follower.learn(trip, lambda asked: all(own[names.index(n)] for n in asked))
        assert stream["flagged"].to_list() == flagged
        learned = set(fleet.memories_["p00"].counts.trip_ids) - past
        calm = {n for n, f in zip(names, flagged, strict=True) if not f}
        mine = {n for n, o in zip(names, own, strict=True) if o}
        expected = {
            "stream-a-nothing": set(),
            "stream-d-everything": set(names),
            "stream-e-normal": mine,
        }
        if spec == "stream-b-unflagged":  # without what is in doubt
            assert answers == 0
            assert set() < learned < calm
        elif spec == "stream-c-asked":
            assert answers == stream["answers"].sum() > 0
            assert set() < learned <= calm | mine
        else:
            assert (learned, answers) == (expected[spec], 0), spec


def test_the_number_of_workers_changes_nothing_in_a_stream(tmp_path: Path):
    data = Simulated(people=2, days=10)
    wanted = cases(data, ["p7"], seeds=[0])
    contenders = methods(["stream-b-unflagged,stream-d-everything"])
    run(data, contenders, wanted, tmp_path / "one", workers=1)
    run(data, contenders[::-1], wanted[::-1], tmp_path / "two", workers=2)
    assert scores(tmp_path / "one").equals(scores(tmp_path / "two"))
    assert len(scores(tmp_path / "one"))


# -------------------------------------------------------------------- the manifest


ASKED = manifest.Asked("astray benchmark", ["p1"], ["lof"], [0, 1])


def test_a_manifest_names_command_seeds_versions_and_hashes_and_grows(tmp_path: Path):
    manifest.record(tmp_path, TINY, ASKED)
    more = manifest.record(tmp_path, TINY, replace(ASKED, seeds=[1, 2], methods=["iforest"], command="again"))
    assert more == json.loads((tmp_path / manifest.NAME).read_text())
    assert more["seeds"] == [0, 1, 2]
    assert more["methods"] == ["lof", "iforest"]
    assert more["commands"] == ["astray benchmark", "again"]
    assert more["data_sha256"] == TINY.fingerprint
    assert {"numpy", "torch", "python"} <= set(more["versions"])


def test_other_settings_or_other_code_are_not_mixed_into_a_folder(tmp_path: Path, monkeypatch):
    manifest.record(tmp_path, TINY, ASKED)
    with pytest.raises(DataError, match=r"other settings \(people: 2, now 3\); give another --out"):
        manifest.record(tmp_path, Simulated(people=3, days=21), ASKED)
    monkeypatch.setattr(manifest, "code_hash", lambda: "changed")
    with pytest.raises(DataError, match="--changed-code"):
        manifest.record(tmp_path, TINY, ASKED)
    manifest.record(tmp_path, TINY, ASKED, changed_code=True)
    kept = manifest.record(tmp_path, TINY, ASKED)  # known from now on
    assert [code["sha256"] for code in kept["codes"]][1:] == ["changed"]


def test_the_code_hash_leaves_out_only_modules_that_exist():
    for package, folder in manifest._PACKAGES.items():
        assert [name for name in sorted(manifest._NO_MATTER[package]) if not (folder / name).exists()] == []


def test_every_commit_that_was_run_is_kept_with_the_versions_and_the_machine_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(manifest, "commit", lambda: "first")
    before = manifest.record(tmp_path, TINY, ASKED)
    monkeypatch.setattr(manifest, "commit", lambda: "second")
    monkeypatch.setattr(manifest.platform, "machine", lambda: "another")
    monkeypatch.setattr(manifest.platform, "python_version", lambda: "4.0")
    after = manifest.record(tmp_path, TINY, ASKED)
    assert [code["commit"] for code in after["codes"]] == ["first", "second"]
    assert (after["versions"], after["machine"]) == (before["versions"], before["machine"])


def test_a_manifest_that_names_the_first_code_alone_is_still_read(tmp_path: Path):
    manifest.record(tmp_path, TINY, ASKED)
    said = json.loads((tmp_path / manifest.NAME).read_text())
    old = {key: value for key, value in said.items() if key != "codes"}
    old |= {"code_sha256": said["codes"][0]["sha256"], "commit": "f00", "later_code_sha256": ["other"]}
    (tmp_path / manifest.NAME).write_text(json.dumps(old))
    found = manifest.record(tmp_path, TINY, ASKED)
    assert found["codes"][:2] == [
        {"sha256": said["codes"][0]["sha256"], "commit": "f00"},
        {"sha256": "other", "commit": ""},
    ]
    assert not {"code_sha256", "commit", "later_code_sha256"} & set(found)


def test_a_file_that_is_no_manifest_is_refused(tmp_path: Path):
    for text in ("[]", "{}"):
        (tmp_path / manifest.NAME).write_text(text)
        with pytest.raises(DataError, match="not a manifest"):
            manifest.record(tmp_path, TINY, ASKED)


# -------------------------------------------------------------------- methods


def test_every_method_has_a_name_and_an_unknown_one_is_refused():
    assert [m.name for m in methods([",".join(METHODS)])] == list(METHODS)
    assert [m.name for m in methods(["stream", "lof"])] == [*STREAMING, *TREES, *REFITTED, "lof"]
    with pytest.raises(DataError, match=r"no method named 'magic'; there are astray"):
        method("magic")


def test_standardised_scores_have_the_left_out_trips_at_mean_0_and_spread_1():
    left_out = np.array([3.0, 5.0, 10.0])
    scaled = standardise(left_out, left_out)
    assert scaled.mean() == pytest.approx(0.0)
    assert scaled.std() == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["knn-location", "lof", "iforest", "cell-trigram", "cell-ratio", "familiarity"])
def test_a_baseline_is_calibrated_without_changing_its_ranking(name: str):
    trial = TINY.trial(Case(Setting(rate=0.1), "p00", 0))
    fitted = method(name).fit(trial.lesson, 0)
    table = fitted.trips(trial.test)
    raw = fitted.model.score_samples(trial.test)  # type: ignore[attr-defined]
    assert np.array_equal(np.argsort(raw, kind="stable"), np.argsort(table["score"].to_numpy(), kind="stable"))
    normal = table["score"].to_numpy()[trial.kind == ""]
    assert abs(np.median(normal)) < 1.0  # unseen normal trips are where left-out ones are
    assert table["p_value"].is_between(0, 1).all()
    fixes = fitted.fixes(trial.test)
    assert np.isfinite(fixes).all()
    assert abs(np.median(fixes)) < 1.0


def test_a_shared_reward_is_learned_once_and_knows_only_the_tested_person_besides_strangers():
    shared = method("astray-shared:iterations=1")
    assert isinstance(shared, Shared)
    first, second = (TINY.trial(Case(Setting(), who, 0)) for who in ("p00", "p01"))
    crowd = Strangers("forty", lambda: first.lesson.population[:40])
    one = shared.fit(Lesson(first.lesson.train, strangers=crowd), 0)
    before = one.trips(first.test)
    two = shared.fit(Lesson(second.lesson.train, strangers=crowd), 0)
    assert two.detector is one.detector  # type: ignore[attr-defined]
    assert set(two.detector.agents) == {*first.lesson.population[:40].agents, "p01"}  # type: ignore[attr-defined]
    assert one.seconds.shared == two.seconds.shared > 0
    # Who was enrolled in between leaves no trace.
    again = shared.fit(Lesson(first.lesson.train, strangers=crowd), 0)
    assert again.trips(first.test).equals(before)


def test_a_person_among_the_strangers_is_refused_as_a_subject():
    trial = TINY.trial(Case(Setting(), "p00", 0))
    among = Strangers("themselves", lambda: trial.lesson.train)
    with pytest.raises(DataError, match="'p00' is tested"):
        method("astray-shared:iterations=1").fit(Lesson(trial.lesson.train, strangers=among), 0)


def test_the_recorders_interval_does_not_give_a_simulated_stranger_away():
    found = []
    for case in cases(Simulated(people=4, days=30), ["p1"], seeds=[0, 1], splits=["random"], rates=[0.1]):
        trial = Simulated(people=4, days=30).trial(case)
        score = method("recorder-interval").fit(trial.lesson, 0).trips(trial.test)["score"].to_numpy()  # type: ignore[union-attr]
        found.append(metrics.auroc(score, trial.kind != ""))
    assert 0.3 < np.mean(found) < 0.7


def test_a_method_is_shown_times_and_places_of_what_it_scores_and_nothing_else():
    seen: set[str] = set()

    class Curious:
        name, seconds = "curious", Seconds(0.0)

        def fit(self, lesson: Lesson, seed: int) -> Curious:
            return self

        def trips(self, test: Trajectories) -> pl.DataFrame:
            seen.update(test.columns, test.context)
            empty = {name: [0.0] * len(test) for name in ("normality", "score", "uncertainty", "p_value", "part")}
            return pl.DataFrame(empty | {"aspect": [None] * len(test)})

        def begun(self, test: Trajectories) -> np.ndarray:
            return self.trips(test)["score"].to_numpy()

        def fixes(self, test: Trajectories) -> np.ndarray:
            seen.update(test.columns, test.context)
            return np.zeros(test.n_rows)

    for case in cases(TINY, ["p1", "p3"], seeds=[0])[:5]:
        runner.score(TINY.trial(case), case, Curious())
    assert seen == {"time", "lat", "lon"}


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_needs_others(name: str):
    trial = TINY.trial(Case(Setting(), "p00", 0))
    with pytest.raises(DataError, match="give a population"):
        method(name).fit(Lesson(trial.lesson.train), 0)
    assert name not in OWN_BACKGROUND  # where there is one pool, there are none


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_population_is_featurised_once_for_all_cases_that_share_it(name: str, monkeypatch: pytest.MonkeyPatch):
    whole, short = (TINY.trial(Case(Setting(history=n), "p00", 0)) for n in (0, 10))
    monkeypatch.setattr("astray_benchmark.baseline_methods._kept", {})
    alone = method(name).fit(short.lesson, 0).trips(short.test)
    monkeypatch.setattr("astray_benchmark.baseline_methods._kept", {})
    kind, looked = type(method(name)._new(0)), []  # type: ignore[union-attr]
    others = kind.others
    monkeypatch.setattr(kind, "others", lambda *arguments: looked.append(name) or others(*arguments))
    first, second = (method(name).fit(trial.lesson, 0) for trial in (whole, short))
    assert looked == [name]
    assert first.seconds.shared == second.seconds.shared > 0
    assert second.trips(short.test).equals(alone)  # what was met before leaves no trace
    fewer = short.lesson._replace(population=short.lesson.population[:-1])
    method(name).fit(fewer, 0)
    assert looked == [name, name]  # another population


def test_a_shared_reward_needs_strangers():
    trial = TINY.trial(Case(Setting(), "p00", 0))
    with pytest.raises(DataError, match="not tested"):
        method("astray-shared").fit(Lesson(trial.lesson.train), 0)


def test_a_pretrained_reward_learns_nothing_and_knows_where_others_go():
    trial = TINY.trial(Case(Setting(), "p00", 0))
    fitted = method("astray-pretrained").fit(trial.lesson, 0)
    assert isinstance(fitted, FittedDetector)
    assert fitted.detector.reward_ is pretrained()
    others = trial.lesson.population
    assert others is not None
    popularity = fitted.detector.agent_model("p00").featurizer.popularity
    assert popularity is not None
    assert set(popularity.agents.trip_ids) == set(others.agents)


def test_an_unfinished_trip_is_scored_without_its_end():
    trial = TINY.trial(Case(Setting(), "p00", 0))
    for name in ("astray-alone", "kdd19:iterations=1", "lof"):
        fitted = method(name).fit(trial.lesson, 0)
        whole, begun = fitted.trips(trial.test)["score"].to_numpy(), fitted.begun(trial.test)
        assert np.isfinite(begun).all()
        assert np.allclose(whole, begun) == (name != "astray-alone")  # the others know nothing of ends
        if name == "astray-alone":
            assert np.corrcoef(whole, begun)[0, 1] > 0.5


@pytest.mark.parametrize("spec", ["astray:iterations=1", "kdd19:iterations=1"])
def test_astray_scores_trips_and_fixes_and_knows_its_uncertainty(spec: str):
    trial = TINY.trial(Case(Setting(), "p00", 0))
    fitted = method(spec).fit(trial.lesson, 0)
    table = fitted.trips(trial.test)
    assert (table["score"] <= table["normality"]).all()
    assert table["uncertainty"].null_count() == 0
    assert len(fitted.fixes(trial.test)) == trial.test.n_rows
    assert fitted.seconds.fit > 0
    if spec.startswith("kdd19"):
        assert table["score"].equals(table["normality"].rename("score"))


# -------------------------------------------------------------------- the command


def test_the_command_runs_resumes_and_writes_tables_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = [
        "simulated",
        "--people",
        "2",
        "--days",
        "21",
        "--seeds",
        "1",
        "-p",
        "p6",
        "-m",
        "knn-location,lof",
    ]
    assert run_command("benchmark", command, [*arguments, "-o", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "16 cases run, 0 were there already, 0 failed" in said.err
    assert "### P6 simulated: average precision" in said.out
    assert {"p6_f1.tex", "p6_ap.csv", "costs.md"} <= {p.name for p in (tmp_path / "tables").iterdir()}
    assert (tmp_path / "report.md").read_text().startswith("# Results: simulated")
    assert {"contamination.png", "contamination.svg"} == {p.name for p in (tmp_path / "figures").iterdir()}
    assert run_command("benchmark", command, [*arguments, "--no-figures", "-o", str(tmp_path)]) == 0
    assert "0 cases run, 16 were there already" in capsys.readouterr().err


def test_a_study_may_be_run_in_parts_into_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = str(tmp_path / "results")
    base = ["simulated", "--people", "2", "--days", "21", "-p", "p1", "--no-figures", "-o", out]
    parts = [
        ["--rate", "0.05", "--split", "random", "-m", "knn-location", "--seeds", "1"],
        ["--rate", "0.05", "--rate", "0.1", "--split", "random", "-m", "knn-location", "--seeds", "1"],
        ["--split", "chronological", "-m", "knn-location-start", "--seeds", "0-1"],
    ]
    tables = []
    for part, says in zip(parts, ("2 cases run, 0 were", "2 cases run, 2 were", "8 cases run, 0 were"), strict=True):
        assert run_command("benchmark", command, [*base, *part]) == 0
        assert says in capsys.readouterr().err
        tables.append({p.stem for p in (tmp_path / "results" / "tables").glob("p1_*.md")})
    assert tables[0] == {"p1_random_0.05", "p1_random_0.05_users"}
    assert tables[1] - tables[0] == {"p1_random_0.1", "p1_random_0.1_users"}
    assert tables[2] - tables[1] == {
        f"p1_chronological_{rate}{users}" for rate in (0.05, 0.1) for users in ("", "_users")
    }
    said = json.loads((tmp_path / "results" / manifest.NAME).read_text())
    assert (said["methods"], said["seeds"]) == (["knn-location", "knn-location-start"], [0, 1])
    assert said["commands"][0] == (
        "astray benchmark simulated -p p1 -m knn-location --seeds 0-0 --rate 0.05 --split random "
        "--people 2 --days 21 -o FOLDER"
    )
    for name in ("report.md", manifest.NAME):
        assert str(tmp_path) not in (tmp_path / "results" / name).read_text()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_a_signal_ends_a_run_with_its_workers_at_once_and_what_was_finished_stays(
    tmp_path: Path, number: signal.Signals, code: int, workers: int
):
    arguments = ["simulated", "--people", "2", "--days", "21", "-m", "iforest", "--seeds", "99", "-w", str(workers)]
    process = subprocess.Popen(
        [sys.executable, "-m", "astray.cli", "benchmark", *arguments, "-o", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs of a shell ignore it
    )
    try:
        deadline = time.monotonic() + 300
        while not list(tmp_path.glob("trips/**/*.parquet")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) >= (workers if workers > 1 else 0)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does: workers get it, too
        else:
            process.send_signal(number)
        assert process.wait(20) == code
        _, alive = psutil.wait_procs(started, timeout=20)
        assert not alive
    finally:
        process.kill()
        said = process.communicate()[1]
    assert "Traceback" not in said
    assert not list(tmp_path.glob("failed/**/*.parquet"))  # the case that was running is not finished, not failed
    for path in tmp_path.glob("trips/**/*.parquet"):
        assert len(pl.read_parquet(path))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tokyo", "-o", "x"], "there are geolife, porto, simulated"),
        (["geolife", "-o", "x", "--data", "nowhere"], "nowhere does not exist"),
        (["simulated", "-o", "x", "--seeds", "many"], "give how many"),
        (["simulated", "-o", "x", "--rate", "0.3"], "nothing is left with --rate 0.3; there are the rates 0.05, 0.1"),
        (["simulated", "-o", "x", "--rate", "few"], "give shares"),
        (["simulated", "-o", "x", "-m", "magic"], "no method named 'magic'"),
        (["report", "x"], "holds no results yet"),
        (["report"], "give astray benchmark report FOLDER"),
        (["simulated"], "give astray benchmark simulated -o FOLDER"),
        (["simulated", "-o", "x", "-p", "p7", "-m", "lof"], "give some of stream-a-nothing"),
    ],
)
def test_a_wrong_command_is_one_line_and_leaves_nothing(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert run_command("benchmark", command, arguments) == 1
    words = capsys.readouterr().err
    assert says in words
    assert words.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_wrong_usage_has_its_own_exit_code_and_help_has_examples(capsys: pytest.CaptureFixture[str]):
    assert main(["benchmark", "simulated", "--out", "x", "--people", "1"]) == 2
    assert "--people" in capsys.readouterr().err
    assert main(["benchmark", "--help"]) == 0
    said = capsys.readouterr().out
    assert "Usage: astray benchmark" in said
    assert re.search(r"Examples?\s+.*astray benchmark", said, re.DOTALL)


def test_the_distribution_adds_the_command_and_describes_it(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    first = " ".join(str(command.__doc__).partition("\n")[0].split())
    assert f"benchmark {first}" in " ".join(capsys.readouterr().out.split())


def test_a_stream_leaves_nothing_behind_for_the_next_person():
    # One fleet serves every case of a seed: what it learned in somebody's stream must be gone.
    def stream(person: str) -> pl.DataFrame:
        case = Case(Setting(split="chronological", reading="strangers"), person, 0)
        return runner.score(TINY.trial(case), case, method("stream-d-everything"))[runner.STREAMS]

    _fleets.clear()
    alone = stream("p01")
    stream("p00")
    assert stream("p01")["score"].to_list() == alone["score"].to_list()


@pytest.mark.parametrize("name", REFITTED)
def test_a_baseline_follows_a_stream_and_learns_what_it_has_not_flagged(name: str):
    case = Case(Setting(split="chronological", reading="intruder"), "p00", 0)
    trial = TINY.trial(case)
    follower = method(name).begin(trial.lesson, 0)  # type: ignore[union-attr]
    past, rows = list(trial.lesson.train.ids), []
    for i in range(len(trial.test)):
        trip = trial.test[i : i + 1]
        rows.append(follower.score(trip))
        assert rows[-1].equals(follower.score(trip))  # scoring learns nothing
        assert follower.learn(trip, lambda names: pytest.fail("nobody is asked")) == 0
    flagged = pl.concat(rows)["flagged"].to_list()
    calm = [t for t, f in zip(trial.test.ids, flagged, strict=True) if not f]
    assert follower.lesson.train.ids == past + calm[: len(calm) // 10 * 10]  # type: ignore[attr-defined]
    # The last model is the one that is fitted with these.
    fresh = method(name.removesuffix("-unflagged")).fit(follower.lesson, 0)  # type: ignore[attr-defined,union-attr]
    assert fresh.trips(trial.test).equals(follower.fitted.trips(trial.test))  # type: ignore[attr-defined]
    stream = runner.score(trial, case, method(name))[runner.STREAMS]
    assert stream["flagged"].to_list() == flagged


def test_half_space_trees_follow_a_stream_and_learn_all_trips_or_the_unflagged():
    pytest.importorskip("river")
    case = Case(Setting(split="chronological", reading="intruder"), "p00", 0)
    trial = TINY.trial(case)
    every, unflagged = (runner.score(trial, case, method(name))[runner.STREAMS] for name in TREES)
    assert every["score"].is_finite().all()
    follower = method("river-trees-unflagged").begin(trial.lesson, 0)  # type: ignore[union-attr]
    trip = trial.test[:1]
    first = follower.score(trip)
    assert first.equals(follower.score(trip))  # scoring learns nothing
    assert follower.learn(trip, lambda names: pytest.fail("nobody is asked")) == 0
    assert len(every) == len(unflagged) == len(trial.test)
