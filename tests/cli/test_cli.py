"""The command line, as a person at a terminal meets it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import psutil
import pytest
from polars.testing import assert_frame_equal

import astray
from astray import Trajectories, TripId
from astray.cli import COMMANDS, main
from astray.cli.drift import Drift
from astray.core.atomic import changing
from astray.core.times import moment
from astray.core.writers import fixes_and_trips, write_table
from astray.model.agent_memory import AgentMemory
from astray.model.file import ModelFile
from astray.model.pretrained import pretrained, read_reward
from astray.model.store import POPULARITY
from astray.scoring.decisions import ByContext
from astray.simulate import city
from fitted import featurizer_of

ASTRAY = [sys.executable, "-m", "astray.cli"]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a folder with past and new trips of four people, and quick models of one of them and of all."""
    folder = tmp_path_factory.mktemp("home")
    people = ["--people", "4", "--days", "21", "--seed", "3"]
    wrong = ["--new", str(folder / "new.csv"), "--inject", "all", "--rate", "0.2"]
    assert main(["simulate", "-o", str(folder / "past.csv"), *people, *wrong]) == 0
    past = str(folder / "past.csv")
    assert main(["fit", past, "-o", str(folder / "p00.astray"), "--agent", "p00", "--iterations", "2"]) == 0
    assert main(["fit", past, "-o", str(folder / "fleet.astray"), "--iterations", "2"]) == 0
    return folder


@pytest.fixture(scope="module")
def large(home: Path) -> Path:
    """Writes the new trips many times: enough for seconds of work on several cores."""
    trips = astray.read(home / "new.csv")
    copies = -(-800_000 // trips.n_rows)
    names = [np.char.add(trips.trajectory_ids, f"-{i}") for i in range(copies)]
    many = [Trajectories(trips.columns, trips.offsets, trips.agent_ids, name) for name in names]
    file = home / "large.parquet"
    write_table(fixes_and_trips(Trajectories.concat(many), file), file)
    return file


# -------------------------------------------------------------------- help


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from astray.cli import main; main(['--help']); "
        "heavy = {'numpy', 'polars', 'torch', 'rich', 'typer'} & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("module", ["astray", "astray.cli"])
def test_python_m_astray_runs_the_command(module: str):
    for arguments, code in ((["--version"], 0), (["no-such-command"], 2)):
        ran = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
        assert (ran.returncode, "Traceback" in ran.stderr) == (code, False)
        assert code or ran.stdout == f"astray {astray.__version__}\n"


def test_help_lists_every_command(capsys: Captured):
    assert main([]) == 0
    said = capsys.readouterr().out
    listed = " ".join(said.split())
    assert all(f" {name} {says} " in listed for name, says in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_a_usage_line_and_an_example(name: str, capsys: Captured):
    assert main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert f"Usage: astray {name}" in said
    assert re.search(rf"Examples?\s+.*astray {name}", said, re.DOTALL)


def test_a_command_of_another_distribution_is_listed_and_is_imported_only_when_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
):
    info = tmp_path / "astray_weather-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: astray-weather\nVersion: 1.0\nSummary: Blame rain.\n")
    (info / "entry_points.txt").write_text("[astray.commands]\nweather = astray_weather:command\n")
    (tmp_path / "astray_weather.py").write_text(
        'def command(city: str) -> None:\n    """Blames the rain in a city."""\n    print(f"it rained in {city}")\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["--help"]) == 0
    assert re.search(r"^  weather +Blame rain\.$", capsys.readouterr().out, re.MULTILINE)
    assert "astray_weather" not in sys.modules
    assert main(["weather", "Porto"]) == 0
    assert capsys.readouterr().out == "it rained in Porto\n"


def test_the_benchmark_command_says_how_to_install_it_if_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())
    assert main(["benchmark", "simulated", "-o", "x"]) == 2
    assert capsys.readouterr().err == (
        "astray: the command benchmark is not installed; pip install astray-benchmark adds it\n"
    )
    assert main(["--help"]) == 0
    assert "\n  benchmark " not in capsys.readouterr().out


def test_version_prints_the_version_of_the_package(capsys: Captured):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"astray {astray.__version__}\n"


# -------------------------------------------------------------------- from trips to scores


def test_simulate_writes_the_kind_of_anomaly_into_new_trips_only(home: Path):
    past, new = pl.read_csv(home / "past.csv"), pl.read_csv(home / "new.csv")
    assert "kind" not in past.columns
    assert new["kind"].n_unique() > 4
    assert (new["anomalous"] == "true").any() if new["anomalous"].dtype == pl.String else new["anomalous"].any()
    assert past["agent"].unique().sort().to_list() == ["p00", "p01", "p02", "p03"]


def test_the_same_seed_writes_the_same_bytes_for_any_number_of_people_simulated_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    files = [str(tmp_path / f"{i}.csv") for i in range(2)]
    assert main(["simulate", "-o", files[0], "--people", "5", "--days", "3", "--seed", "1"]) == 0
    monkeypatch.setattr("astray.cli.simulate.AT_A_TIME", 2)
    assert main(["simulate", "-o", files[1], "--people", "5", "--days", "3", "--seed", "1"]) == 0
    assert Path(files[0]).read_bytes() == Path(files[1]).read_bytes()


def test_fit_makes_a_model_of_the_named_agent_or_one_with_a_memory_for_each_agent(home: Path):
    one, fleet = astray.load(home / "p00.astray"), astray.load(home / "fleet.astray")
    assert (one.is_one, one.agents) == (True, ["p00"])
    assert (fleet.is_one, list(fleet.memories_)) == (False, ["p00", "p01", "p02", "p03"])


def test_fit_warns_if_everything_unusual_goes_to_review_because_there_are_few_trips(
    home: Path, tmp_path: Path, capsys: Captured
):
    trips = astray.read(home / "past.csv").agent("p00")
    for n, warned in ((1, True), (4, True), (5, False)):
        trips[:n].to_frame().write_parquet(tmp_path / "few.parquet")
        capsys.readouterr()
        assert main(["fit", str(tmp_path / "few.parquet"), "-o", str(tmp_path / "few.astray")]) == 0
        said = "with fewer than 5 past trips (--min-history), everything unusual goes to review"
        assert (said in capsys.readouterr().err) == warned


def test_fit_says_from_how_many_other_agents_it_learns(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    told = []

    def learning(what: str, *, quiet: bool):
        told.append(what)
        return nullcontext(None)

    monkeypatch.setattr("astray.cli.fit.learning", learning)
    command = ["fit", str(home / "new.csv"), "-o", str(tmp_path / "m.astray"), "--iterations", "0", "-q"]
    assert main([*command, "--agent", "p00"]) == 0
    n = len(astray.read(home / "new.csv").agent("p00"))
    assert told == [f"learning from {n} trips and those of 3 other agents"]


def test_scores_are_those_of_the_library_whatever_the_format(home: Path, capsys: Captured):
    trips = astray.read(home / "new.csv")
    expected = astray.load(home / "fleet.astray").score(trips)
    command = ["score", str(home / "fleet.astray"), str(home / "new.csv")]
    for name in ("scores.parquet", "scores.csv", "scores.jsonl"):
        assert main([*command, "-o", str(home / name)]) == 0
    assert pl.read_parquet(home / "scores.parquet").equals(expected)
    for table in (pl.read_csv(home / "scores.csv"), pl.read_ndjson(home / "scores.jsonl", infer_schema_length=None)):
        assert table["trajectory"].to_list() == expected["trajectory"].to_list()
        assert table["decision"].to_list() == expected["decision"].to_list()
        np.testing.assert_array_equal(table["score"].to_numpy(), expected["score"].to_numpy())
    capsys.readouterr()
    assert main(command) == 0
    said = capsys.readouterr()
    assert said.out == (home / "scores.csv").read_text()
    assert re.search(rf"^{len(trips)} trips: \d+ normal, \d+ anomalies, \d+ for review$", said.err, re.MULTILINE)


def test_fixes_are_scored_one_by_one_and_drawn_as_points(home: Path):
    command = ["score", str(home / "p00.astray"), str(home / "new.csv"), "--fixes", "--agent", "p00"]
    assert main([*command, "-o", str(home / "fixes.geojson")]) == 0
    points = json.loads((home / "fixes.geojson").read_text())["features"]
    assert len(points) == astray.read(home / "new.csv").agent("p00").n_rows
    assert {"normality", "uncertainty", "lo", "hi", "fault"} <= set(points[0]["properties"])


def test_thresholds_given_to_score_override_those_of_the_model(home: Path, capsys: Captured):
    command = ["score", str(home / "fleet.astray"), str(home / "new.csv"), "-q"]

    def anomalies(*more: str) -> int:
        assert main([*command, *more]) == 0
        return sum(",normal," not in line for line in capsys.readouterr().out.splitlines()[1:])

    assert anomalies("--eps", "-1") > anomalies("--eps", "-3") > anomalies("--eps", "-20")
    assert anomalies("--false-alarm-rate", "0.2") > anomalies("--false-alarm-rate", "0.02") == anomalies()
    assert main([*command, "--min-history", "1000", "--eps", "0"]) == 0
    assert ",anomaly," not in capsys.readouterr().out


def test_any_number_of_workers_writes_the_same_scores(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("astray.cli.inputs.FEW_ROWS", 1)
    monkeypatch.setattr("astray.cli.inputs.LOADED_ROWS", 1000)
    for n in (1, 2, 3):
        command = ["score", str(home / "fleet.astray"), str(home / "new.csv"), "--workers", str(n), "-q"]
        assert main([*command, "-o", str(home / f"by{n}.parquet")]) == 0
    one, two, three = ((home / f"by{n}.parquet").read_bytes() for n in (1, 2, 3))
    assert one == two == three


def test_an_error_in_a_worker_is_reported_like_one_without_workers(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
):
    monkeypatch.setattr("astray.cli.inputs.FEW_ROWS", 1)
    command = ["score", str(home / "fleet.astray"), str(home / "new.csv"), "--false-alarm-rate", "1e-9"]
    alone, together = (refused([*command, "--workers", n, "-q"], capsys) for n in ("1", "2"))
    assert "cannot be told from" in alone
    assert together == alone


def test_a_streamed_table_scores_as_a_loaded_one(home: Path, monkeypatch: pytest.MonkeyPatch):
    command = ["score", str(home / "p00.astray"), str(home / "new.csv"), "-q", "--workers", "1"]
    assert main([*command, "-o", str(home / "loaded.parquet")]) == 0
    monkeypatch.setattr("astray.cli.inputs.STREAMED_BYTES", 1000)
    monkeypatch.setattr("astray.cli.inputs.BATCH_ROWS", 2000)
    assert main([*command, "-o", str(home / "streamed.parquet")]) == 0
    # Up to the last digits: matrices of another height are multiplied in another order.
    assert_frame_equal(pl.read_parquet(home / "streamed.parquet"), pl.read_parquet(home / "loaded.parquet"))


def test_an_agent_that_is_not_in_a_file_is_refused_however_it_is_read(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
):
    out = tmp_path / "scores.csv"
    command = ["score", str(home / "fleet.astray"), str(home / "new.csv"), "--agent", "nobody", "-q"]
    loaded = refused([*command, "-o", str(out)], capsys)
    assert "new.csv: no trip of agent 'nobody'; there are p00, p01, p02, p03" in loaded
    monkeypatch.setattr("astray.cli.inputs.STREAMED_BYTES", 0)
    assert refused([*command, "-o", str(out)], capsys) == loaded
    assert refused(command, capsys) == loaded
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert refused(command, capsys) == loaded
    assert not out.exists()


def test_a_large_table_that_is_not_grouped_names_the_flag_that_helps(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
):
    mixed = pl.read_csv(home / "new.csv").sort("time")
    mixed.write_csv(home / "mixed.csv")
    monkeypatch.setattr("astray.cli.inputs.STREAMED_BYTES", 1000)
    monkeypatch.setattr("astray.cli.inputs.BATCH_ROWS", 2000)
    command = ["score", str(home / "p00.astray"), str(home / "mixed.csv"), "-q", "--workers", "1"]
    assert main(command) == 1
    assert "read it whole with --whole" in capsys.readouterr().err
    assert main([*command, "--whole"]) == 0


def test_scoring_other_agents_trips_with_a_model_of_one_agent_names_the_flag_that_leaves_them_out(
    home: Path, capsys: Captured
):
    assert main(["score", str(home / "p00.astray"), str(home / "new.csv")]) == 0
    assert "--agent p00 leaves them out" in capsys.readouterr().err
    assert main(["score", str(home / "p00.astray"), str(home / "new.csv"), "--agent", "p00"]) == 0
    said = capsys.readouterr()
    assert "leaves them out" not in said.err
    assert all(line.startswith("p00,") for line in said.out.splitlines()[1:])


@pytest.fixture(scope="module")
def nameless(home: Path) -> Path:
    """Makes a folder with a person's past and new trips, in files without an agent, and a model of the past ones."""
    folder = home / "nameless"
    folder.mkdir()
    for name in ("past", "new"):
        trips = pl.read_csv(home / f"{name}.csv").filter(pl.col("agent") == "p00")
        trips.drop("agent").write_csv(folder / f"{name}.csv")
    assert main(["fit", str(folder / "past.csv"), "-o", str(folder / "me.astray"), "--iterations", "2"]) == 0
    return folder


def test_trips_without_an_agent_are_taken_as_trips_of_the_models_only_agent(nameless: Path, capsys: Captured):
    model, new = str(nameless / "me.astray"), str(nameless / "new.csv")
    assert main(["score", model, new]) == 0
    said = capsys.readouterr()
    assert "leaves them out" not in said.err
    assert all(line.startswith("past,") for line in said.out.splitlines()[1:])
    streamed = nameless / "streamed.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("astray.cli.inputs.STREAMED_BYTES", 0)
        assert main(["score", model, new, "-o", str(streamed)]) == 0
    assert streamed.read_text() == said.out
    assert main(["explain", model, new]) == 0
    assert " of past: " in capsys.readouterr().out
    assert main(["update", model, new, "-o", str(nameless / "updated.astray")]) == 0
    updated = astray.load(nameless / "updated.astray")
    assert {trip.agent for trip in featurizer_of(updated).memory.trip_ids} == {"past"}


def test_tracks_without_an_agent_are_taken_as_tracks_of_the_models_only_agent(nameless: Path, capsys: Captured):
    line = {"type": "LineString", "coordinates": [[7.0, 45.0], [7.01, 45.0]]}
    track = {"type": "Feature", "geometry": line, "properties": {"coordTimes": [1738100000, 1738100060]}}
    (nameless / "walk.geojson").write_text(json.dumps(track))
    assert main(["score", str(nameless / "me.astray"), str(nameless / "walk.geojson")]) == 0
    said = capsys.readouterr()
    assert "leaves them out" not in said.err
    assert said.out.splitlines()[1].startswith("past,walk")


def test_trips_with_an_agent_in_the_file_or_in_a_flag_keep_that_agent(nameless: Path, home: Path, capsys: Captured):
    model = str(nameless / "me.astray")
    assert main(["score", model, str(home / "new.csv")]) == 0
    assert "--agent past leaves them out" in capsys.readouterr().err
    assert main(["score", model, str(nameless / "new.csv"), "--agent", "new"]) == 0
    assert "the model does not know new: their 18 trips are for review" in capsys.readouterr().err


@pytest.fixture(scope="module")
def tracks(home: Path) -> Path:
    """Writes new trips as GPX files, in a folder for each of two people."""
    trips = astray.read(home / "new.csv")
    for trip in (*trips.agent("p00")[:3], *trips.agent("p01")[:3]):
        file = home / "tracks" / str(trip.agent_ids[0]) / f"{trip.trajectory_ids[0]}.gpx"
        file.parent.mkdir(parents=True, exist_ok=True)
        fixes = zip(*(trip.columns[name].tolist() for name in ("lat", "lon", "time")), strict=True)
        points = "".join(f'<trkpt lat="{y}" lon="{x}"><time>{moment(t)}</time></trkpt>' for y, x, t in fixes)
        file.write_text(f"<gpx><trk><trkseg>{points}</trkseg></trk></gpx>")
    return home / "tracks"


def decisions(said: str) -> list[tuple[str, str]]:
    table = pl.read_csv(said.encode())
    return list(zip(table["agent"].to_list(), table["decision"].to_list(), strict=True))


def test_names_of_folders_decide_whose_tracks_they_hold(home: Path, tracks: Path, capsys: Captured):
    for command in ([], ["--agent", "p00"]):
        assert main(["score", str(home / "p00.astray"), str(tracks), *command]) == 0
        said = capsys.readouterr()
        found = decisions(said.out)
        assert [agent for agent, _ in found] == ["p00"] * 3 + ([] if command else ["p01"] * 3)
        assert ("the model does not know p01: their 3 trips are for review" in said.err) is not bool(command)
        assert all(decision == "review" for agent, decision in found if agent == "p01")
        assert any(decision != "review" for agent, decision in found if agent == "p00")
    assert "no trip of agent 'eve'" in refused(
        ["score", str(home / "p00.astray"), str(tracks), "--agent", "eve"], capsys
    )
    # So it does where trips are explained and taught.
    model, changed, theirs = (
        str(home / "p00.astray"),
        str(home / "taught.astray"),
        next((tracks / "p01").iterdir()).stem,
    )
    assert "does not know p01" in refused(["explain", model, str(tracks), f"p01/{theirs}"], capsys)
    assert "no trip is named" in refused(["explain", model, str(tracks), theirs, "--agent", "p00"], capsys)
    assert "does not know p01" in refused(["update", model, str(tracks), "-o", changed], capsys)
    assert main(["update", model, str(tracks), "--agent", "p00", "-o", changed, "-q"]) == 0
    learned = astray.load(changed).known_trips_ - astray.load(model).known_trips_
    assert {trip.trajectory for trip in learned} == {file.stem for file in (tracks / "p00").iterdir()}


def test_tracks_in_one_folder_get_the_agent_of_the_flag_and_a_message_says_so(
    home: Path, tracks: Path, capsys: Captured
):
    pattern = str(tracks / "p01" / "*.gpx")
    assert main(["score", str(home / "p00.astray"), pattern, "--agent", "p00"]) == 0
    said = capsys.readouterr()
    assert {agent for agent, _ in decisions(said.out)} == {"p00"}
    assert "it does not say whose trips these are, so they are taken as trips of p00" in said.err
    assert main(["fit", str(tracks / "p01"), "-o", str(home / "me.astray"), "--agent", "me"]) == 0
    assert astray.load(home / "me.astray").agents == ["me"]


def test_a_file_with_an_unrecognised_agent_column_is_refused_unless_a_flag_names_one_agent(
    home: Path, tmp_path: Path, capsys: Captured
):
    new = pl.read_csv(home / "new.csv").rename({"agent": "Bus ID"})
    new.write_csv(tmp_path / "new.csv")
    command = ["fit", str(tmp_path / "new.csv"), "-o", str(tmp_path / "m.astray")]
    said = refused(command, capsys)
    assert "'Bus ID' has 4 different values; if these are the agents, pass --columns 'agent=Bus ID'" in said
    assert main([*command, "--agent", "me"]) == 0
    assert "so they are taken as trips of me" in capsys.readouterr().err
    assert astray.load(tmp_path / "m.astray").agents == ["me"]


def test_trips_of_unknown_agents_are_for_review_and_a_message_names_these_agents(
    home: Path, tmp_path: Path, capsys: Captured
):
    new = pl.read_csv(home / "new.csv").with_columns(pl.col("agent").replace({"p02": "eve", "p03": "kim"}))
    new.write_csv(tmp_path / "new.csv")
    assert main(["score", str(home / "fleet.astray"), str(tmp_path / "new.csv")]) == 0
    said = capsys.readouterr()
    found = decisions(said.out)
    assert {decision for agent, decision in found if agent in ("eve", "kim")} == {"review"}
    assert "normal" in {decision for agent, decision in found if agent == "p00"}
    assert "the model does not know eve, kim" in said.err
    assert "astray enroll MODEL FILE lets it know them" in said.err


def test_explain_update_and_observe_refuse_trips_of_agents_that_the_model_does_not_know(
    home: Path, tmp_path: Path, capsys: Captured
):
    model, new = str(home / "p00.astray"), str(home / "new.csv")
    before = Path(model).read_bytes()
    trip = astray.read(new).agent("p01").trajectory_ids[0]
    said = refused(["explain", model, new, f"p01/{trip}"], capsys)
    assert "the model does not know p01: it is of p00" in said
    for command in ("update", "observe"):
        assert "the model does not know p01, p02, p03: it is of p00; --agent p00" in refused(
            [command, model, new], capsys
        )
    assert Path(model).read_bytes() == before
    assert main(["explain", model, new]) == 0
    assert " of p00: " in capsys.readouterr().out.splitlines()[0]
    assert "can say nothing of others" in refused(["watch", model, "--strangers"], capsys)


def test_score_does_not_import_torch(home: Path):
    code = f"""
import sys
from astray.cli import main
main(["score", {str(home / "fleet.astray")!r}, {str(home / "new.csv")!r}, "-o", {str(home / "t.csv")!r}])
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -------------------------------------------------------------------- explaining and telling


def test_a_trip_is_explained_in_words_and_pictures(home: Path, capsys: Captured):
    trip = astray.read(home / "new.csv").agent("p01").trajectory_ids[0]
    command = ["explain", str(home / "fleet.astray"), str(home / "new.csv"), f"p01/{trip}"]
    for name in ("trip.png", "trip.svg", "trip.html"):
        assert main([*command, "-o", str(home / name)]) == 0
        assert capsys.readouterr().out.startswith(f"Trip {trip} of p01: ")
    assert (home / "trip.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (home / "trip.svg").read_text()
    assert "<!doctype html>" in (home / "trip.html").read_text().lower()


def test_without_a_name_the_trip_with_the_lowest_score_is_explained(home: Path, capsys: Captured):
    scores = astray.load(home / "fleet.astray").score(astray.read(home / "new.csv"))
    lowest = scores.sort("score", nulls_last=True)["trajectory"][0]
    assert main(["explain", str(home / "fleet.astray"), str(home / "new.csv")]) == 0
    assert capsys.readouterr().out.startswith(f"Trip {lowest} ")


@pytest.mark.parametrize("flags", [["--eps", "0.5", "--gamma", "9"], ["--false-alarm-rate", "0.3"]])
def test_explain_decides_as_score_does_with_the_same_thresholds(home: Path, capsys: Captured, flags: list[str]):
    model, new = str(home / "fleet.astray"), str(home / "new.csv")
    tables = []
    for more in ([], flags):
        assert main(["score", model, new, "-q", *more]) == 0
        tables.append(pl.read_csv(capsys.readouterr().out.encode()))
    others = tables[1].filter(tables[0]["decision"] != tables[1]["decision"]).head(2)
    assert others.height == 2
    for row in others.iter_rows(named=True):
        assert main(["explain", model, new, row["trajectory"], *flags]) == 0
        assert capsys.readouterr().out.startswith(f"Trip {row['trajectory']} of {row['agent']}: {row['decision']} ")


def test_info_names_all_agents_of_a_pool_that_keeps_few_trips(home: Path, capsys: Captured):
    model = str(home / "pool.astray")
    assert (
        main(["fit", str(home / "past.csv"), "-o", model, "--pooled", "--keep", "2", "--preset", "shared", "-q"]) == 0
    )
    capsys.readouterr()
    assert main(["info", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["names"] == ["p00", "p01", "p02", "p03"]


def test_info_describes_a_model_as_text_and_as_json(home: Path, capsys: Captured):
    mine = astray.read(home / "past.csv").agent("p00")
    days = [f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d}" for t in mine.columns["time"][[0, -1]].tolist()]
    made = pretrained().made
    towns = made["towns"] + made.get("cities", 0)
    assert main(["info", str(home / "fleet.astray")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^of +4 agents, with \d+ to \d+ trips each", said, re.MULTILINE)
    assert re.search(r"^others +where 4 agents go is known$", said, re.MULTILINE)
    assert main(["info", str(home / "p00.astray")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^of +p00$", said, re.MULTILINE)
    assert re.search(rf"^learned from +{len(mine)} trips, {days[0]} to {days[1]}$", said, re.MULTILINE)
    assert re.search(rf"^reward +learned from .* {towns} towns$", said, re.MULTILINE)
    assert re.search(r"^others +where 3 agents go is known$", said, re.MULTILINE)
    assert re.search(r"^anomaly +a score as low as at most 2 % of normal trips have$", said, re.MULTILINE)
    assert f"astray {astray.__version__}" in said
    for internal in ("head_spread", "trip_noise", "n_jobs", "held_out_loss"):
        assert internal not in said
    assert main(["info", str(home / "p00.astray"), "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["names"] == ["p00"]
    assert about["trips"] == astray.load(home / "p00.astray").n_trips_
    assert about["period"] == days
    assert about["popularity"] == 3
    assert about["thresholds"] == {"false_alarm_rate": 0.02, "eps": None, "gamma": 1.5, "min_history": 5}
    assert about["reward"]["made"]["towns"] == made["towns"]
    assert about["calibration"]["trips"] == pytest.approx(astray.load(home / "p00.astray").calibration_.normal.total)
    assert {"learning", "settings"} <= about.keys()


def test_thresholds_given_to_fit_are_saved_and_shown_by_info(nameless: Path, capsys: Captured):
    past, model = str(nameless / "past.csv"), str(nameless / "rule.astray")
    for flags, rule in (
        (["--false-alarm-rate", "0.05"], "a score as low as at most 5 % of normal trips have"),
        (["--eps", "-3"], "a score of -3 or less"),
        (
            ["--false-alarm-rate", "place=0.015,manner=0.01"],
            "a trip that is as unusual in place as at most 1.5 % of normal trips are, or in manner as 1 % are; in "
            "total at most 2.5 %",
        ),
    ):
        assert main(["fit", past, "-o", model, *flags]) == 0
        capsys.readouterr()
        assert main(["info", model]) == 0
        assert f"anomaly {rule} " in " ".join(capsys.readouterr().out.split())


def test_rates_by_aspect_flag_trips_by_the_p_values_of_their_aspects(nameless: Path, capsys: Captured):
    past, new, model = (str(nameless / name) for name in ("past.csv", "new.csv", "by_aspect.astray"))
    assert main(["fit", past, "-o", model, "--false-alarm-rate", "place=0.1,time=0.2"]) == 0
    capsys.readouterr()
    assert main(["score", model, new, "-q"]) == 0
    table = pl.read_csv(capsys.readouterr().out.encode())
    low = (table["p_place"] <= 0.1) | (table["p_time"] <= 0.2)
    assert ((table["decision"] != "normal") == low).all()
    assert table.columns[5:11] == ["p_value", "p_place", "p_route", "p_manner", "p_time", "aspect"]
    assert main(["explain", model, new, table["trajectory"][0]]) == 0
    said = capsys.readouterr().out
    assert re.search(r"\(p of place [\d.]+ against 0\.1, p of time [\d.]+ against 0\.2, uncertainty", said)
    assert main(["score", model, new, "-q", "--false-alarm-rate", "pace=0.1"]) == 2
    assert "such as place=0.015,manner=0.01" in " ".join(capsys.readouterr().err.split())
    assert main(["score", model, new, "-q", "--false-alarm-rate", "place=0.001"]) == 1
    assert "for place cannot be told from" in " ".join(capsys.readouterr().err.split())
    # A rate that is given to observe replaces the model's threshold by the score.
    assert main(["fit", past, "-o", model, "--eps", "-50"]) == 0
    assert main(["observe", model, new, "-q", "--false-alarm-rate", "place=0.5,route=0.4"]) == 0
    assert "waiting" in capsys.readouterr().out
    assert astray.load(model).eps == -50.0


def test_look_for_limits_the_aspects_that_a_model_scores(nameless: Path, capsys: Captured):
    past, new, model = (str(nameless / name) for name in ("past.csv", "new.csv", "when.astray"))
    assert main(["fit", past, "-o", model, "--look-for", "time, manner"]) == 0
    assert astray.load(model).aspect_weights_ == (0.0, 0.0, 1.0, 1.0)
    capsys.readouterr()
    assert main(["info", model]) == 0
    assert "asked about time, manner" in " ".join(capsys.readouterr().out.split())
    assert main(["score", model, new, "-q"]) == 0
    assert set(pl.read_csv(capsys.readouterr().out.encode())["aspect"]) <= {"time", "manner"}


def test_fit_takes_out_past_trips_that_look_like_other_agents_and_names_them(tmp_path: Path, capsys: Captured):
    trips = city(people=12, days=35, seed=0).trips
    theirs = Trajectories.concat([trips.agent(f"p{i:02d}")[3:4] for i in range(4, 12)])
    mixed = Trajectories.concat([trips.agent("p00"), theirs, *(trips.agent(f"p{i:02d}") for i in (1, 2, 3))])
    whose = np.where(np.isin(mixed.agent_ids, theirs.agents), "p00", mixed.agent_ids)
    past = Trajectories(mixed.columns, mixed.offsets, whose, mixed.trajectory_ids)
    write_table(fixes_and_trips(past, tmp_path / "past.csv"), tmp_path / "past.csv")
    model = str(tmp_path / "p00.astray")
    assert main(["fit", str(tmp_path / "past.csv"), "--agent", "p00", "-o", model, "--iterations", "4"]) == 0
    detector = astray.load(model)
    suspects = detector.suspects_
    assert len(set(suspects) & {TripId("p00", name) for name in theirs.trajectory_ids.tolist()}) >= 1
    assert not set(suspects) & set(featurizer_of(detector).memory.trip_ids)
    said = capsys.readouterr().err
    assert re.search(rf"{len(suspects)} trips? looks? like somebody else's, and w.+ taken out .+: {suspects[0]}", said)
    assert main(["info", model]) == 0
    shown = capsys.readouterr().out
    assert all(str(trip) in shown for trip in suspects)
    assert main(["info", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["suspects"] == [trip._asdict() for trip in suspects]


def test_info_shows_the_lowest_false_alarm_rate_that_score_accepts(home: Path, capsys: Captured):
    model, new = str(home / "p00.astray"), str(home / "new.csv")
    assert main(["info", model]) == 0
    said = re.search(r"--false-alarm-rate can be as low as (0\.\d+)", " ".join(capsys.readouterr().out.split()))
    assert said is not None
    assert main(["score", model, new, "-q", "--false-alarm-rate", said[1]]) == 0
    assert main(["score", model, new, "-q", "--false-alarm-rate", str(0.9 * float(said[1]))]) == 1


def test_info_shows_thresholds_by_context_updates_and_windows_of_steps(tmp_path: Path, capsys: Captured):
    rng = np.random.default_rng(0)
    walks = Trajectories.from_steps([rng.normal(size=(30, 2)) for _ in range(8)], [np.zeros((30, 1))] * 8)
    model = astray.Detector(iterations=1, eps=ByContext("shift", {"night": -3.0}, otherwise=-2.5)).fit(walks)
    model.partial_fit(Trajectories.from_steps([rng.normal(size=(30, 2))], [np.zeros((30, 1))], trajectory_ids=["new"]))
    model.save(tmp_path / "walk.astray")
    assert main(["info", str(tmp_path / "walk.astray")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "a score of -2.5 (otherwise by shift) or less, over the whole trip or its worst 10 steps" in said
    assert "updated once since it was fitted" in said


# -------------------------------------------------------------------- models that change


def test_enroll_update_and_forget_change_the_agents_and_trips_of_a_model(home: Path, capsys: Captured):
    changed = str(home / "changed.astray")
    assert main(["simulate", "-o", str(home / "more.csv"), "--people", "6", "--days", "7", "--seed", "3", "-q"]) == 0
    assert main(["enroll", str(home / "fleet.astray"), str(home / "more.csv"), "-o", changed, "-q"]) == 0
    fleet = astray.load(changed)
    assert fleet.agents[-2:] == ["p04", "p05"]
    trip = fleet.memories_["p05"].counts.trip_ids[0]
    assert main(["update", changed, "--anomalous", str(trip)]) == 0
    fleet = astray.load(changed)
    assert trip not in fleet.memories_["p05"].counts.trip_ids
    assert trip in fleet.anomalous_
    assert main(["update", changed, str(home / "new.csv"), "-q"]) == 0
    assert "does not know p04, p05: not enrolled; run astray enroll first" in refused(
        ["update", str(home / "fleet.astray"), str(home / "more.csv"), "-q"], capsys
    )
    capsys.readouterr()
    assert main(["forget", changed, "p05"]) == 0
    assert capsys.readouterr().err == "p05 forgotten; 5 agents left\n"
    fleet = astray.load(changed)
    assert "p05" not in fleet.agents
    assert fleet.anomalous_ == frozenset()
    trip = fleet.memories_["p04"].counts.trip_ids[0]
    assert main(["forget", changed, "p04", "--trip", trip.trajectory]) == 0
    said = refused(["forget", changed, "p04", "--trip", trip.trajectory], capsys)
    assert f"no trip named '{trip.trajectory}' is among the" in said
    assert "remembered of p04; there are p04/" in said
    assert main(["forget", changed, "p04", "--trip", str(fleet.memories_["p04"].counts.trip_ids[1])]) == 0
    assert len(astray.load(home / "fleet.astray").agents) == 4


def test_forget_removes_an_agent_of_the_population_from_a_model_of_one_agent(
    home: Path, tmp_path: Path, capsys: Captured
):
    model = tmp_path / "p00.astray"
    model.write_bytes((home / "p00.astray").read_bytes())
    popularity = ModelFile.open(model).shared(POPULARITY)
    assert popularity[-64:] in model.read_bytes()
    assert main(["forget", str(model), "p02"]) == 0
    assert astray.load(model).fitted.n_others == 2
    # The bytes that named this person and their places are overwritten, not only unlinked.
    assert popularity[-64:] not in model.read_bytes()
    assert main(["score", str(model), str(home / "new.csv"), "--agent", "p00", "-q"]) == 0
    assert "knows nobody named 'p02'" in refused(["forget", str(model), "p02"], capsys)
    assert "of 'p00' alone; delete its file" in refused(["forget", str(model), "p00"], capsys)
    assert "--trip is for a fleet" in refused(["forget", str(model), "p00", "--trip", "p00-0001"], capsys)


def test_commands_that_change_a_model_wait_for_each_other_and_readers_do_not(
    home: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
):
    model, file = tmp_path / "p00.astray", str(home / "new.csv")
    model.write_bytes((home / "p00.astray").read_bytes())
    before = model.read_bytes()
    monkeypatch.setattr("astray.core.atomic.PATIENCE", 0.05)
    with changing(model):
        for command in (
            ["answer", str(model), "p00/x", "--mine"],
            ["forget", str(model), "p01"],
            ["fit", file, "-o", str(model), "--agent", "p00", "--iterations", "1"],
            ["update", str(home / "p00.astray"), file, "--agent", "p00", "-o", str(model)],
        ):
            assert "another process is changing it" in refused([*command, "-q"], capsys)
        assert model.read_bytes() == before
        for command in (["answer", str(model)], ["info", str(model)], ["score", str(model), file]):
            assert main([*command, "-q"]) == 0
    # A new place that is the old one is no second lock.
    assert main(["forget", str(model), "p01", "-o", str(model), "-q"]) == 0


def test_update_learns_new_trips_except_those_named_as_anomalous(home: Path):
    changed = str(home / "p00-updated.astray")
    command = ["update", str(home / "p00.astray"), str(home / "new.csv"), "--agent", "p00", "-o", changed, "-q"]
    new = astray.read(home / "new.csv").agent("p00")
    assert main([*command, "--anomalous", str(new.trajectory_ids[0])]) == 0
    before, after = astray.load(home / "p00.astray"), astray.load(changed)
    assert after.n_trips_ == before.n_trips_ + len(new) - 1
    assert after.anomalous_ == {new.ids[0]}


def test_observe_asks_about_flagged_trips_and_answer_takes_the_reply(home: Path, tmp_path: Path, capsys: Captured):
    """The trips of another person come under p00's name, among some of p00's own."""
    trips = astray.read(home / "new.csv")
    own, theirs = trips.agent("p00")[:5], trips.agent("p02")[:6]
    file, model = tmp_path / "today.csv", str(tmp_path / "p00.astray")
    parts = [
        Trajectories({c: part.columns[c] for c in ("time", "lat", "lon")}, part.offsets, ["p00"] * len(part), names)
        for part, names in ((own, own.trajectory_ids), (theirs, [f"x{i}" for i in range(6)]))
    ]
    Trajectories.concat(parts).to_frame().write_csv(file)
    Path(model).write_bytes((home / "p00.astray").read_bytes())
    assert main(["observe", model, str(file)]) == 0
    said = capsys.readouterr()
    became = dict(line.split(",")[1::3] for line in said.out.splitlines()[1:])
    assert sum(became[f"x{i}"] == "waiting" for i in range(6)) >= 3
    learned = sum(what == "learned" for what in became.values())
    assert astray.load(model).n_trips_ == astray.load(home / "p00.astray").n_trips_ + learned
    assert "a new habit?" in said.err
    assert "astray answer MODEL p00/x" in said.err
    assert main(["answer", model]) == 0
    listed = capsys.readouterr().out
    asked = [line.strip() for line in listed.splitlines() if line.startswith("  p00/x")]
    assert len(asked) >= 2
    assert main(["answer", model, asked[0]]) == 1
    assert "--mine or --not-mine" in capsys.readouterr().err
    # One trip of a question stands for all of them.
    (question,) = [set(map(str, q.trips)) for q in astray.load(model).questions_ if asked[0] in map(str, q.trips)]
    assert len(question) >= 2
    assert main(["answer", model, asked[0], "--not-mine"]) == 0
    assert set(map(str, astray.load(model).anomalous_)) == question
    assert f"no trip named '{asked[0]}' is among the" in refused(["answer", model, asked[0], "--mine"], capsys)


KILLED_AT = """
import os, signal, sqlite3, sys
from functools import partial
from astray.cli import main

n, arguments = int(sys.argv[1]), sys.argv[2:]

class Connection(sqlite3.Connection):
    def execute(self, statement, *values):
        global n
        if statement.split()[0] in ("BEGIN", "INSERT", "UPDATE", "DELETE", "COMMIT"):
            n -= 1
            if n == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(statement, *values)

sqlite3.connect = partial(sqlite3.connect, factory=Connection)
sys.exit(main(arguments))
"""
"""Runs a command, and is killed just before it runs the n-th SQL statement that changes something."""


def test_a_killed_answer_leaves_the_model_with_the_whole_answer_or_without_it(home: Path, tmp_path: Path):
    model = tmp_path / "p00.astray"
    detector = astray.load(home / "p00.astray")
    theirs = astray.read(home / "new.csv").agent("p02")[:6]
    detector.observe(Trajectories(theirs.columns, theirs.offsets, ["p00"] * 6, [f"x{i}" for i in range(6)]))
    waiting = [str(trip) for trip in detector.waiting_]
    detector.save(model)
    before = model.read_bytes()
    codes = []
    for n in range(1, 20):
        model.write_bytes(before)
        command = [sys.executable, "-c", KILLED_AT, str(n), "answer", str(model), waiting[0], "--mine"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        codes.append(ran.returncode)
        still = [str(trip) for trip in astray.load(model).waiting_]
        if ran.returncode == 0:
            assert waiting[0] not in still
            break
        # What was not saved is not said to be done.
        assert (model.read_bytes(), still, ran.stderr) == (before, waiting, "")
    assert codes[-1] == 0
    assert codes.count(-signal.SIGKILL) == len(codes) - 1 >= 2
    assert [path.name for path in tmp_path.iterdir()] == ["p00.astray"]  # what the killed ones left is gone


@pytest.fixture
def shared(home: Path, tmp_path: Path) -> Path:
    """Writes new trips of two people with the same trip name, and of a third with a slash in a trip name."""
    trips = astray.read(home / "new.csv")
    first = Trajectories.concat([trips.agent(agent)[:2] for agent in ("p00", "p01", "p02")])
    names = ["t1", "t2", "t1", "t3", "p00/t1", "t4"]
    renamed = Trajectories(first.columns, first.offsets, first.agent_ids, names)
    write_table(fixes_and_trips(renamed, tmp_path / "shared.csv"), tmp_path / "shared.csv")
    return tmp_path / "shared.csv"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("t2", TripId("p00", "t2")),
        ("p01/t1", TripId("p01", "t1")),
        ("p00/t1", TripId("p00", "t1")),  # the whole name of a trip, though another one's trajectory is called so
        ("p02/p00/t1", TripId("p02", "p00/t1")),
    ],
)
def test_a_trip_name_selects_exactly_one_trip(home: Path, shared: Path, name: str, meant: TripId):
    changed = str(shared.with_name("changed.astray"))
    for command in (
        ["update", str(home / "fleet.astray"), str(shared), "--anomalous", name],
        ["fit", str(shared), "--pooled", "--preset", "shared", "--anomalous", name],
    ):
        assert main([*command, "-o", changed, "-q"]) == 0
        assert astray.load(changed).anomalous_ == {meant}


def test_ambiguous_and_unknown_trip_names_are_refused(home: Path, shared: Path, capsys: Captured):
    fleet, file, changed = str(home / "fleet.astray"), str(shared), shared.with_name("changed.astray")
    several = "'t1' is the name of 2 trips: 't1' of 'p00', 't1' of 'p01'; name it as agent/trajectory"
    for command in (["update", fleet, file], ["fit", file, "--pooled"]):
        assert several in refused([*command, "--anomalous", "t1", "-o", str(changed), "-q"], capsys)
        unknown = refused([*command, "--anomalous", "t9", "-o", str(changed), "-q"], capsys)
        assert "no trip named 't9' is among the" in unknown
    assert several in refused(["explain", fleet, file, "t1"], capsys)
    # What is not of the agent that is learned would be named in vain.
    command = ["fit", file, "--agent", "p00", "--anomalous", "t3", "-o", str(changed)]
    assert "no trip named 't3' is among the 2 trips of p00 in" in refused(command, capsys)
    assert not changed.exists()


def test_update_takes_out_a_past_trip_by_its_name(home: Path, shared: Path, capsys: Captured):
    known, changed = str(home / "fleet.astray"), str(shared.with_name("changed.astray"))
    assert main(["update", known, str(shared), "-o", changed, "-q"]) == 0
    assert "'t1' is the name of 2 trips" in refused(["update", changed, "--anomalous", "t1"], capsys)
    # Of an agent that is enrolled, and yet unheard of: to accept it would do nothing.
    unheard = refused(["update", changed, "--anomalous", "p02/t1"], capsys)
    assert "no trip named 'p02/t1' is among the" in unheard
    assert "give the trip as well" in unheard
    assert main(["update", changed, "--anomalous", "p02/p00/t1"]) == 0
    fleet = astray.load(changed)
    assert fleet.anomalous_ == {TripId("p02", "p00/t1")}
    assert TripId("p02", "p00/t1") not in fleet.memories_["p02"].counts.trip_ids
    assert TripId("p00", "t1") in fleet.memories_["p00"].counts.trip_ids
    assert main(["update", changed, "--anomalous", "p02/p00/t1"]) == 0


def test_two_updates_of_one_model_at_the_same_time_both_count(home: Path, tmp_path: Path):
    new = astray.read(home / "new.csv").agent("p00")
    model = tmp_path / "p00.astray"
    model.write_bytes((home / "p00.astray").read_bytes())
    model.chmod(0o600)
    running = []
    for name, part in (("a", new[:2]), ("b", new[2:4])):
        write_table(fixes_and_trips(part, tmp_path / f"{name}.csv"), tmp_path / f"{name}.csv")
        running.append(subprocess.Popen([*ASTRAY, "update", str(model), str(tmp_path / f"{name}.csv"), "-q"]))
    assert [process.wait() for process in running] == [0, 0]
    assert astray.load(model).n_trips_ == astray.load(home / "p00.astray").n_trips_ + 4
    assert oct(model.stat().st_mode & 0o777) == "0o600"


@pytest.mark.parametrize("flag", ["--output", "--state"])
def test_watch_does_not_write_into_its_model(home: Path, flag: str, capsys: Captured):
    model = str(home / "p00.astray")
    assert "this is the model; name another file" in refused(["watch", model, flag, model], capsys)
    assert "could be appended to" in refused(["watch", model, "-o", "/dev/null"], capsys)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names on Windows")
def test_devices_are_neither_written_over_nor_read(home: Path, capsys: Captured, tmp_path: Path):
    os.mkfifo(tmp_path / "device")
    assert main(["fit", str(home / "past.csv"), "-o", str(tmp_path / "device")]) == 1
    assert "a device where a file is to be written" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "device")]) == 1
    assert "a pipe or a device, which cannot be read twice; write it to a file first" in capsys.readouterr().err
    assert (tmp_path / "device").is_fifo()


def test_a_model_is_not_read_as_trips(home: Path, capsys: Captured):
    model = str(home / "fleet.astray")
    before = Path(model).read_bytes()
    assert main(["enroll", model, model]) == 1
    assert "fleet.astray: a model of a fleet, not trips; give the file of trips" in " ".join(
        capsys.readouterr().err.split()
    )
    assert Path(model).read_bytes() == before


def test_forgetting_changes_the_file_under_all_of_its_hard_links(home: Path, tmp_path: Path):
    model, fleet = tmp_path / "p00.astray", tmp_path / "fleet.astray"
    for file in (model, fleet):
        shutil.copy(home / file.name, file)
        os.link(file, tmp_path / f"also-{file.name}")
        assert main(["forget", str(file), "p01"]) == 0
    assert astray.load(tmp_path / "also-p00.astray").fitted.n_others == 2
    assert "p01" not in astray.load(tmp_path / "also-fleet.astray").agents


def test_update_warns_when_it_learns_trips_that_would_have_been_flagged(home: Path, capsys: Captured, tmp_path: Path):
    trips = pl.read_csv(home / "new.csv")
    trips.filter(pl.col("agent") == "p00").write_csv(tmp_path / "own.csv")
    trips.filter(pl.col("agent") == "p01").with_columns(agent=pl.lit("p00")).write_csv(tmp_path / "other.csv")
    model, changed = str(home / "p00.astray"), str(tmp_path / "m.astray")
    assert main(["update", model, str(tmp_path / "other.csv"), "-o", changed]) == 0
    said = " ".join(capsys.readouterr().err.split())
    found = re.search(r"(\d+) trips of (\d+) would have been flagged: .* was (-[\d.]+), and is (-?[\d.]+) now", said)
    assert found is not None
    assert float(found[3]) < -1.5 < float(found[4])
    theirs = trips.filter(pl.col("agent") == "p01")["trajectory"].unique().to_list()
    names = [argument for name in theirs for argument in ("--anomalous", name)]
    fleet = str(home / "fleet.astray")
    trips.filter(pl.col("agent") == "p01").with_columns(
        agent=pl.lit("p00"), trajectory=pl.lit("again ") + pl.col("trajectory")
    ).write_csv(tmp_path / "again.csv")
    for known in (model, fleet):
        assert main(["update", known, str(tmp_path / "other.csv"), "-o", changed, *names]) == 0
        assert "would have been flagged" not in capsys.readouterr().err
        # Under other names they are not learned either, and nothing else is said.
        assert main(["update", changed, str(tmp_path / "again.csv")]) == 0
        said = capsys.readouterr().err
        n = astray.load(known).n_trips_
        assert f"learned from {n} trips now, {n} before; {len(theirs)} anomalous" in said
        assert "would have been flagged" not in said


def test_another_persons_trips_are_reported_again_even_if_they_are_learned_one_at_a_time(
    home: Path, capsys: Captured, tmp_path: Path
):
    """Each learned trip makes the next one normal, and its low score stays: the model would flag only the first."""
    new = pl.read_csv(home / "new.csv")
    for name, command in (("p00", "update"), ("fleet", "enroll")):
        said: dict[str, list[str]] = {}
        for who in ("p01", "p00"):
            model = tmp_path / f"{name}.astray"
            shutil.copy(home / model.name, model)
            right = pl.col("kind").fill_null("").is_in(["", "normal"])
            trips = new.filter(pl.col("agent") == who, right | (who == "p01"))
            for trip in trips.with_columns(agent=pl.lit("p00")).partition_by("trajectory", maintain_order=True)[:7]:
                trip.write_csv(tmp_path / "one.csv")
                assert main([command, str(model), str(tmp_path / "one.csv")]) == 0
                said.setdefault(who, []).append(" ".join(capsys.readouterr().err.split()))
        assert "1 trip of 1 would have been flagged: in the median" in said["p01"][0]
        lately = [text for text in said["p01"][1:] if "flagged but for what was learned lately (p00/p01-" in text]
        assert lately, (command, said)
        assert not [text for text in said["p00"] if "flagged" in text]


def test_enrolling_new_agents_does_not_warn_of_drift(home: Path, capsys: Captured, tmp_path: Path):
    trips = pl.read_csv(home / "new.csv").with_columns(agent=pl.lit("new-") + pl.col("agent"))
    trips.write_csv(tmp_path / "newcomers.csv")
    shutil.copy(home / "fleet.astray", tmp_path / "fleet.astray")
    assert main(["enroll", str(tmp_path / "fleet.astray"), str(tmp_path / "newcomers.csv")]) == 0
    assert "would have been flagged" not in capsys.readouterr().err


def test_nothing_is_written_over_the_trips_that_are_read(home: Path, tmp_path: Path, capsys: Captured):
    trips = tmp_path / "new.csv"
    trips.write_bytes((home / "new.csv").read_bytes())
    link, model, fleet = tmp_path / "link.csv", str(home / "p00.astray"), str(home / "fleet.astray")
    link.symlink_to(trips)
    for command in (
        ["fit", str(trips)],
        ["fit", str(home / "past.csv"), "--population", str(trips), "--agent", "p00"],
        ["score", model, str(tmp_path / "*.csv")],
        ["observe", model, str(trips)],
        ["update", model, str(trips), "--agent", "p00"],
        ["enroll", fleet, str(trips)],
    ):
        assert "the trips are read from this file" in refused([*command, "-o", str(link), "-q"], capsys)
    assert trips.read_bytes() == (home / "new.csv").read_bytes()


def test_nothing_is_written_over_what_a_command_reads(home: Path, tmp_path: Path, capsys: Captured):
    """The name of a file does not matter: a model may end in .csv, and trips in .html."""
    folder, reward = tmp_path / "trips", tmp_path / "reward.safetensors"
    folder.mkdir()
    copies = {
        "m.csv": "p00.astray",
        "m.svg": "p00.astray",
        "t.html": "new.csv",
        "t.svg": "new.csv",
        "trips/t.csv": "new.csv",
    }
    for name, source in copies.items():
        shutil.copy(home / source, tmp_path / name)
    (tmp_path / "astray.toml").write_text("eps = -2.5")
    reward.write_bytes(b"a reward")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    new, model, fleet = str(home / "new.csv"), str(home / "p00.astray"), str(home / "fleet.astray")
    at = {name: str(tmp_path / name) for name in (*copies, "astray.toml", "trips", "s.csv")}
    fit = ["fit", new, "--agent", "p00"]
    for command, output, said in (
        (["score", at["m.csv"], new], at["m.csv"], "this is the model"),
        (["observe", at["m.csv"], new, "--agent", "p00"], at["m.csv"], "this is the model"),
        (["explain", at["m.svg"], new], at["m.svg"], "this is the model"),
        (["explain", model, at["t.html"]], at["t.html"], "the trips are read from this file"),
        (["check", at["t.svg"]], at["t.svg"], "the trips are read from this file"),
        (["score", fleet, at["trips"]], at["trips/t.csv"], "the trips are read from this file"),
        ([*fit, "--config", at["astray.toml"]], at["astray.toml"], "the settings are read from this file"),
        ([*fit, "--reward", str(reward)], str(reward), "the reward is kept in this file"),
        (["simulate", "--new", at["s.csv"]], at["s.csv"], "the past trips go to this file"),
    ):
        assert f"{said}; name another output" in refused([*command, "-o", output, "-q"], capsys), command
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_live_fixes_from_standard_input_become_events(home: Path):
    fixes = astray.read(home / "past.csv").agent("p00")[:3]
    lines = fixes_and_trips(fixes, None).with_columns(pl.col("time").dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ"))
    command = [*ASTRAY, "watch", str(home / "p00.astray"), "--scores", "0", "-o", str(home / "events.jsonl")]
    ran = subprocess.run(
        command, input=lines.write_ndjson() + "not JSON\n", text=True, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    counted = rf"^{fixes.n_rows} fixes, \d+ trips, \d+ alerts?, 1 line refused, "
    assert re.search(rf"{counted}first line {fixes.n_rows + 1}: not JSON", ran.stderr, re.MULTILINE)
    events = [json.loads(line) for line in (home / "events.jsonl").read_text().splitlines()]
    assert {"score", "trip_ended", "refused"} <= {event["event"] for event in events}


def test_without_held_out_trips_no_p_value_is_known_wherever_it_is_shown(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
):
    # The paper's preset learns from every trip, so that no normal trip is left to compare with.
    past, model, trips = str(home / "past.csv"), str(tmp_path / "paper.astray"), str(tmp_path / "new.csv")
    paper = ["--preset", "kdd19", "--iterations", "1", "--max-trips", "10", "--agent", "p00"]
    assert main(["fit", past, "-o", model, "-q", *paper]) == 0
    new = astray.read(home / "new.csv").agent("p00")
    write_table(fixes_and_trips(new[:3], Path(trips)), Path(trips))
    capsys.readouterr()
    assert main(["score", model, trips, "--to", "jsonl", "-q"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["p_value"], row["score"] is None) for row in rows] == [(None, False)] * 3
    of_aspects = {"p_place", "p_route", "p_manner", "p_time"}
    assert {row[name] for row in rows for name in of_aspects} == {None}
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")  # no colours
    assert main(["score", model, trips, "-q"]) == 0
    assert len(re.findall(r"p00-\d+ +-?[\d.]+ +[\d.]+ - ", capsys.readouterr().out)) == 3
    assert main(["explain", model, trips, str(new.trajectory_ids[0])]) == 0
    assert ", p = unknown, " in capsys.readouterr().out
    lines = fixes_and_trips(new[:1], None).with_columns(pl.col("time").dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ"))
    command = [*ASTRAY, "watch", model, "--scores", "0", "-o", str(tmp_path / "events.jsonl"), "-q"]
    subprocess.run(command, input=lines.write_ndjson(), text=True, check=True)
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert {event["p_value"] for event in events if "p_value" in event} == {None}
    assert {event[name] for event in events if event["event"] == "trip_ended" for name in of_aspects} == {None}
    assert "trip_ended" in {event["event"] for event in events}


def test_watch_appends_the_events_of_each_run_to_the_same_file(home: Path, tmp_path: Path):
    trips = astray.read(home / "new.csv").agent("p00")
    for i in range(2):
        lines = fixes_and_trips(trips[i], None).with_columns(pl.col("time").dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ"))
        command = [*ASTRAY, "watch", str(home / "p00.astray"), "-o", str(tmp_path / "events.jsonl"), "-q"]
        subprocess.run(command, input=lines.write_ndjson(), text=True, check=True)
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert len([event for event in events if event["event"] == "trip_ended"]) == 2


def test_pretrain_makes_a_reward_from_simulated_people_and_fit_begins_with_it(
    nameless: Path, tmp_path: Path, capsys: Captured
):
    reward, model = str(tmp_path / "small.safetensors"), str(tmp_path / "me.astray")
    small = ["--towns", "1", "--people", "3", "--days", "14", "--iterations", "1"]
    assert main(["pretrain", "-o", reward, *small]) == 0
    before = read_reward(reward).reference
    assert main(["pretrain", "-o", reward, "--keep", reward, *small]) == 0  # measures the same reference again
    after = read_reward(reward).reference
    assert before is not None
    assert after is not None
    np.testing.assert_allclose(after.under_way, before.under_way, rtol=1e-5)
    made = read_reward(reward).made
    assert (made["towns"], made["people"], made["days"], made["iterations"], made["seed"]) == (1, 3, 14, 1, 0)
    assert main(["fit", str(nameless / "past.csv"), "-o", model, "--reward", reward]) == 0
    assert astray.load(model).reward_.made == made
    capsys.readouterr()
    assert main(["info", model]) == 0
    assert "14 days of 3 simulated people in one town" in capsys.readouterr().out
    assert "not a reward" in refused(["fit", str(nameless / "past.csv"), "-o", reward, "--reward", model, "-q"], capsys)


# -------------------------------------------------------------------- errors


def refused(command: list[str], capsys: Captured, code: int = 1) -> str:
    """Runs a command that is refused, and returns the one line that it prints."""
    capsys.readouterr()
    assert main(command) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    return said.err


def test_errors_are_one_line_with_place_and_remedy(home: Path, tmp_path: Path, capsys: Captured):
    model, new = str(home / "p00.astray"), str(home / "new.csv")
    assert "nope.csv: there is no such file or folder" in refused(["score", model, "nope.csv"], capsys)
    assert "nope.astray: there is no such file" in refused(["score", "nope.astray", new], capsys)
    assert "new.csv: not a model of astray; give a file that astray fit has" in refused(["info", new], capsys)
    for command in ("score", "update"):
        exchanged = "new.csv: not a model of astray; are MODEL and FILE exchanged?"
        assert exchanged in refused([command, new, model], capsys)
    assert "x.xls: tables are written as .parquet" in refused(["score", model, new, "-o", "x.xls"], capsys)
    assert "no trip is named 'nobody'" in refused(["explain", model, new, "nobody"], capsys)
    assert "astray update adds trips to it" in refused(["enroll", model, new], capsys)
    assert "delete its file" in refused(["forget", model, "p00"], capsys)
    assert "agent 'nobody' is not enrolled" in refused(["forget", str(home / "fleet.astray"), "nobody"], capsys)
    assert "contradict" in refused(["fit", new, "-o", str(tmp_path / "m"), "--agent", "a", "--pooled"], capsys)
    assert "nothing to learn" in refused(["update", model], capsys)
    assert "--inject flying: no such kind" in refused(["simulate", "-o", "x.csv", "--inject", "flying"], capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "flag",
    [
        ["--preset", "kdd19"],
        ["--encoder", "raw"],
        ["--objective", "trajectory"],
        ["--interval", "10"],
        ["--keep", "5"],
        ["--max-trips", "5"],
        ["--max-population", "5"],
        ["--heads", "3"],
        ["--window", "60"],
        ["--population", "new.csv"],
    ],
)
def test_fit_of_many_agents_refuses_flags_for_one_agent(
    home: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, flag: list[str]
):
    monkeypatch.chdir(home)
    said = refused(["fit", "new.csv", "-o", str(tmp_path / "m"), "-q", *flag], capsys, code=2)
    assert f"{flag[0]} is for a model of one agent" in said
    assert "add --agent NAME or --pooled" in said


def test_fit_of_one_agent_refuses_flags_for_many_agents_from_the_command_or_the_environment(
    home: Path, nameless: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
):
    command = ["fit", str(home / "new.csv"), "-o", str(tmp_path / "m"), "-q"]
    assert "leave it out" in refused([*command, "--pooled", "--max-agents", "5"], capsys, code=2)
    alone = ["fit", str(nameless / "new.csv"), "-o", str(tmp_path / "m"), "-q"]
    assert "reward of the agent's own" in refused([*alone, "--heads", "3"], capsys, code=2)
    own = [*alone, "--preset", "kdd19"]
    assert "that serves everybody" in refused([*own, "--look-for", "place"], capsys, code=2)
    monkeypatch.setenv("ASTRAY_MAX_AGENTS", "5")
    assert "--max-agents is for a fleet" in refused(alone, capsys, code=2)


def test_a_column_that_is_not_recognised_is_named_by_a_flag(home: Path, tmp_path: Path, capsys: Captured):
    odd = tmp_path / "odd.csv"
    names = {"lat": "Breite", "lon": "Laenge", "time": "Zeit", "agent": "Wer", "trajectory": "Fahrt"}
    pl.read_csv(home / "new.csv").rename(names).write_csv(odd, separator=";")
    command = ["score", str(home / "fleet.astray"), str(odd)]
    assert "pass --columns time=NAME,lat=NAME,lon=NAME (known" in refused(command, capsys)
    roles = ",".join(f"{role}={name}" for role, name in names.items())
    assert main([*command, "--columns", roles, "-o", str(tmp_path / "odd.parquet")]) == 0
    assert main(["score", str(home / "fleet.astray"), str(home / "new.csv"), "-o", str(tmp_path / "new.parquet")]) == 0
    assert pl.read_parquet(tmp_path / "odd.parquet").equals(pl.read_parquet(tmp_path / "new.parquet"))


def test_bad_rows_are_refused_or_counted_and_listed(home: Path, tmp_path: Path, capsys: Captured):
    rows = (home / "new.csv").read_text().splitlines()
    rows[5] = re.sub(r",4\d\.\d+,", ",91.5,", rows[5], count=1)
    bad = tmp_path / "bad.csv"
    bad.write_text("\n".join(rows))
    command = ["score", str(home / "fleet.astray"), str(bad), "-o", str(tmp_path / "s.csv")]
    assert re.search(r"bad.csv, row 6: latitude outside.* pass --skip-bad", refused(command, capsys))
    assert not (tmp_path / "s.csv").exists()
    assert main([*command, "--skip-bad", "--quiet"]) == 0
    said = capsys.readouterr().err
    assert "1 left out: latitude outside [-90, 90]" in said
    assert "row 6" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["scoer"], "did you mean score?"),
        (["score", "model-only"], "Missing argument 'FILE'"),
        (["fit"], "Missing argument 'FILE"),
        (["score", "m", "f", "--eps", "low"], "--eps"),
        (["simulate", "--people", "3"], "Missing option '--output'"),
        (["info", "m", "--config", "nowhere.toml"], "nowhere.toml"),
        (["demo", "--out", "x", "--people", "1"], "--people"),
    ],
)
def test_wrong_usage_exits_with_code_2(arguments: list[str], said: str, capsys: Captured):
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_settings_come_from_file_environment_and_flags(
    home: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "astray.toml"
    file.write_text("eps = -100\nquiet = true\n")
    command = ["score", str(home / "fleet.astray"), str(home / "new.csv"), "--config", str(file)]
    assert main(command) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert ",anomaly," not in said.out
    monkeypatch.setenv("ASTRAY_EPS", "100")
    monkeypatch.setenv("ASTRAY_GAMMA", "1000")
    assert main(command) == 0
    assert ",normal," not in capsys.readouterr().out
    assert main([*command, "--eps", "-100"]) == 0
    assert ",anomaly," not in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        ["score", "fleet.astray", "new.csv", "--fixes", "-q"],
        ["score", "fleet.astray", "new.csv", "-o", "-", "-q"],
        ["explain", "fleet.astray", "new.csv"],
        ["info", "fleet.astray", "--json"],
        ["fit", "--help"],
        ["--help"],
    ],
)
def test_a_closed_pipe_on_standard_output_ends_a_command_without_a_message(home: Path, command: list[str]):
    ours, theirs = os.pipe()
    os.close(ours)  # before anything is written
    with os.fdopen(theirs, "w") as out:
        ran = subprocess.run(
            [*ASTRAY, *command], cwd=home, stdout=out, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
@pytest.mark.parametrize(
    "command", [["--help"], ["--version"], ["info", "p00.astray"], ["score", "p00.astray", "new.csv"]]
)
def test_a_full_disk_under_standard_output_is_reported_in_one_line(home: Path, command: list[str]):
    with open("/dev/full", "w") as out:
        ran = subprocess.run([*ASTRAY, *command], cwd=home, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 1
    assert re.fullmatch(r"astray.*: (\[Errno 28\] )?No space left on device\n", ran.stderr.splitlines(True)[0])
    assert "Traceback" not in ran.stderr


@pytest.mark.skipif(os.name == "nt", reason="there streams are not closed by number")
@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1, 2]], ids=str)
def test_commands_work_with_closed_standard_streams(home: Path, tmp_path: Path, closed: list[int]):
    out = tmp_path / "scores.csv"

    def run(*command: str) -> int:
        shut = " ".join(f"{number}>&-" for number in closed)
        return subprocess.run(["sh", "-c", f'"$@" {shut}', "sh", *ASTRAY, *command], cwd=home, check=False).returncode

    assert run("score", "p00.astray", "new.csv", "--agent", "p00", "-o", str(out)) == 0
    assert len(out.read_text().splitlines()) == 19
    assert run("score", "p00.astray", "new.csv", "--agent", "p00") == 0
    if 0 in closed:
        assert run("watch", "p00.astray", "-o", str(tmp_path / "events.jsonl")) == 0


def test_characters_that_the_terminal_cannot_show_are_escaped(tmp_path: Path):
    (tmp_path / "new.csv").write_text("agent,time,lat,lon\nZoë,0,45,7\nZoë,60,45.001,7\n", encoding="utf-8")
    ran = subprocess.run(
        [*ASTRAY, "check", "new.csv"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, "Zo\\xeb" in ran.stdout) == (0, True), ran.stderr


def test_score_finishes_when_standard_error_is_closed(home: Path, tmp_path: Path):
    ours, theirs = os.pipe()
    os.close(ours)
    command = ["score", str(home / "fleet.astray"), str(home / "new.csv"), "-o", str(tmp_path / "scores.csv")]
    with os.fdopen(theirs, "w") as unheard:
        ran = subprocess.run([*ASTRAY, *command], stdout=unheard, stderr=unheard, check=False, timeout=60)
    assert ran.returncode == 0
    assert (tmp_path / "scores.csv").exists()


# -------------------------------------------------------------------- kills and interrupts


def heed_interrupts() -> None:
    """Makes a process heed Ctrl-C, which the background jobs of a shell ignore."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def begun(command: list[str], folder: Path, pattern: str) -> subprocess.Popen[str]:
    """Starts a command, and waits until a file shows that it is in the middle of its work."""
    process = subprocess.Popen(
        [*ASTRAY, *command],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        preexec_fn=heed_interrupts,
    )
    deadline = time.monotonic() + 60
    while not list(folder.glob(pattern)):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return process


@pytest.fixture
def scoring(home: Path, large: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts ``astray score`` over an older file, and waits until its two workers run."""
    (tmp_path / "out.csv").write_text("older")
    command = ["score", str(home / "fleet.astray"), str(large), "--workers", "2", "-o", str(tmp_path / "out.csv")]
    process = begun(command, tmp_path, ".out.csv.*.tmp")
    parent = psutil.Process(process.pid)
    deadline = time.monotonic() + 60
    while len(parent.children()) < 3:  # two workers, and the tracker that multiprocessing starts
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    yield process
    process.kill()
    process.wait()


def test_a_killed_score_leaves_the_older_file_and_no_process(scoring: subprocess.Popen[str], tmp_path: Path):
    workers = psutil.Process(scoring.pid).children(recursive=True)
    scoring.send_signal(signal.SIGKILL)
    assert scoring.wait() == -signal.SIGKILL
    assert (tmp_path / "out.csv").read_text() == "older"
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_score_ends_and_tidies_up(
    scoring: subprocess.Popen[str], tmp_path: Path, number: signal.Signals, code: int
):
    workers = psutil.Process(scoring.pid).children(recursive=True)
    if number == signal.SIGINT:
        os.killpg(scoring.pid, number)  # as a terminal does: workers get it, too
    else:
        scoring.send_signal(number)
    assert scoring.wait(20) == code
    assert scoring.stderr is not None
    assert "Traceback" not in scoring.stderr.read()
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert (tmp_path / "out.csv").read_text() == "older"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_fit_leaves_the_older_model(home: Path, tmp_path: Path, number: signal.Signals):
    model, log = tmp_path / "model.astray", tmp_path / "log"
    model.write_bytes((home / "p00.astray").read_bytes())
    command = ["fit", str(home / "past.csv"), "-o", str(model), "--agent", "p01"]
    command += ["--preset", "kdd19", "--iterations", "5000"]
    with open(log, "wb") as errors:
        process = subprocess.Popen(
            [*ASTRAY, *command], stderr=errors, start_new_session=True, preexec_fn=heed_interrupts
        )
    time.sleep(3.0)  # importing, reading, learning: wherever it is
    assert process.poll() is None
    os.killpg(process.pid, number)
    assert process.wait(20) == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in log.read_text()
    assert astray.load(model).get_params() == astray.load(home / "p00.astray").get_params()
    assert {path.name for path in tmp_path.iterdir()} == {"model.astray", "log"}


# -------------------------------------------------------------------- the demonstration


def test_demo_prints_a_table_and_writes_pictures(tmp_path: Path, capsys: Captured):
    out = tmp_path / "out"
    assert main(["demo", "-o", str(out), "--people", "3", "--days", "14", "--iterations", "2"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^precision [01]\.\d\d \(\d+ of \d+\)", said, re.MULTILINE)
    assert re.search(r"^recall    [01]\.\d\d \(\d+ of \d+\)", said, re.MULTILINE)
    assert re.search(r"^p00-\d{4} .* anomaly", said, re.MULTILINE)
    assert "past trips" in said
    written = {path.name for path in out.iterdir()}
    assert {"scores.png", "astray.html"} < written
    assert written == set(re.findall(r"^  ([\w-]+\.(?:png|html))$", said, re.MULTILINE))


def test_enroll_and_score_in_parts_give_what_one_command_gives(
    home: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
):
    whole, parts = tmp_path / "whole.astray", tmp_path / "parts.astray"
    more = str(tmp_path / "more.csv")
    assert main(["simulate", "-o", more, "--people", "6", "--days", "4", "--seed", "3", "-q"]) == 0
    for model in (whole, parts):
        shutil.copy(home / "fleet.astray", model)
    assert main(["enroll", str(whole), more, "-q"]) == 0
    for i in (3, 1, 2):
        assert main(["enroll", str(parts), more, "--part", f"{i}/3", "-q"]) == 0
    for model in (whole, parts):
        astray.load(model).save(model.with_suffix(".anew"))
    assert parts.with_suffix(".anew").read_bytes() == whole.with_suffix(".anew").read_bytes()
    # Again, after a kill perhaps: nothing is counted twice.
    assert main(["enroll", str(parts), more, "--part", "2/3"]) == 0
    assert "0 trips counted, 0 new agents; 6 agents now" in capsys.readouterr().err

    command = ["score", str(whole), str(home / "new.csv"), "-q", "-o"]
    assert main([*command, str(tmp_path / "whole.parquet")]) == 0
    for i in (1, 2, 3):
        assert main([*command, str(tmp_path / f"{i}.parquet"), "--part", f"{i}/3"]) == 0
    found = pl.concat([pl.read_parquet(tmp_path / f"{i}.parquet") for i in (1, 2, 3)]).sort("agent", "trajectory")
    expected = pl.read_parquet(tmp_path / "whole.parquet")
    assert found.equals(expected.sort("agent", "trajectory"), null_equal=True)
    # Trips in the order of the file, however they were put together.
    monkeypatch.setattr("astray.jobs.slabs.AT_A_TIME", 500)
    trips = astray.read(home / "new.csv")
    mixed = trips[np.random.default_rng(0).permutation(len(trips))]
    mixed.to_frame().write_parquet(tmp_path / "mixed.parquet")
    for flags in ([], ["--fixes"]):
        command = [
            "score",
            str(whole),
            str(tmp_path / "mixed.parquet"),
            "-q",
            "-o",
            str(tmp_path / "t.parquet"),
            *flags,
        ]
        assert main(command) == 0
        told = astray.load(whole).score_fixes(mixed) if flags else astray.load(whole).score(mixed)
        assert pl.read_parquet(tmp_path / "t.parquet")["trajectory"].to_list() == told["trajectory"].to_list()
    for wrong in ("0/3", "4/3", "3", "a/b"):
        assert "is not a part" in refused(["enroll", str(parts), more, "--part", wrong], capsys)


def test_a_folder_of_parquet_is_streamed_file_by_file(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trips, folder = astray.read(home / "new.csv"), tmp_path / "days"
    folder.mkdir()
    for i in range(3):
        trips[i::3].to_frame().write_parquet(folder / f"{i}.parquet")
    for name, most in (("loaded", 1 << 30), ("streamed", 1)):
        monkeypatch.setattr("astray.cli.inputs.STREAMED_BYTES", most)
        monkeypatch.setattr("astray.cli.inputs.BATCH_ROWS", 500)
        model = tmp_path / f"{name}.astray"
        assert main(["enroll", str(home / "fleet.astray"), str(folder), "-o", str(model), "-q"]) == 0
        assert main(["score", str(model), str(folder), "-o", str(tmp_path / f"{name}.csv"), "-q"]) == 0
    assert (tmp_path / "loaded.astray").read_bytes() == (tmp_path / "streamed.astray").read_bytes()
    assert (tmp_path / "loaded.csv").read_bytes() == (tmp_path / "streamed.csv").read_bytes()
    assert len(astray.load(model).memories_["p00"].counts) > len(
        astray.load(home / "fleet.astray").memories_["p00"].counts
    )


def test_the_drift_check_does_not_measure_new_agents(home: Path) -> None:
    """A first enrolment has many batches, and measuring all agents in each would take longer than counting."""
    fleet = astray.load(home / "fleet.astray")

    def nobody(agent: str, memory: AgentMemory) -> AgentMemory:
        raise AssertionError(agent)

    fleet.memories_.measure = nobody
    drift = Drift(fleet, home / "fleet.astray", quiet=False)
    new = city(people=2, days=6, seed=9).trips
    trips = Trajectories(new.columns, new.offsets, [f"new {agent}" for agent in new.agent_ids], new.trajectory_ids)
    for half in (trips[::2], trips[1::2]):
        drift.look(half)
        fleet.enroll(half)
    assert not drift._looked
