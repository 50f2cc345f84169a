"""Tests what `pip install astray` gives: without torch, everything works except for learning a reward."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from astray import Detector
from astray.core.errors import AstrayError
from astray.simulate import city

BLOCK = "import sys\nsys.modules['torch'] = None  # importing it fails, in worker processes too\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with past and new trips of two people, and a module that hides torch from Python."""
    made = tmp_path_factory.mktemp("without_torch")
    (made / "sitecustomize.py").write_text(BLOCK)
    past, new = city(people=2, days=14, seed=2).split(0.2)
    past.to_frame().write_csv(made / "past.csv")
    new.to_frame().write_csv(made / "new.csv")
    fixes = new.agent("p00").to_frame().select("agent", "time", "lat", "lon")
    fixes.write_ndjson(made / "fixes.jsonl")
    return made


def astray(folder: Path, *arguments: str, feed: str = "") -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder), *(path for path in [os.environ.get("PYTHONPATH")] if path)])
    return subprocess.run(
        [sys.executable, "-m", "astray", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        input=feed,
        capture_output=True,
        text=True,
        check=False,
    )


def test_check_fit_score_explain_and_watch_run_without_torch(folder: Path):
    hidden = subprocess.run([sys.executable, "-c", "import torch"], cwd=folder, env={"PYTHONPATH": str(folder)})
    assert hidden.returncode, "the test hides torch, or it would prove nothing"
    fixes = (folder / "fixes.jsonl").read_text("utf-8")
    commands = {
        "check": ("check", "past.csv"),
        "fit": ("fit", "past.csv", "-o", "p00.astray", "--agent", "p00"),
        "score": ("score", "p00.astray", "new.csv", "--agent", "p00", "-o", "scores.parquet"),
        "explain": ("explain", "p00.astray", "new.csv", "--agent", "p00", "-o", "why.html"),
        "watch": ("watch", "p00.astray", "-o", "events.jsonl"),
        "a fleet": ("fit", "past.csv", "-o", "fleet.astray"),
        "observe": ("observe", "p00.astray", "new.csv", "--agent", "p00"),
    }
    for what, arguments in commands.items():
        done = astray(folder, *arguments, feed=fixes if what == "watch" else "")
        assert done.returncode == 0, f"{what}: {done.stderr}"
    assert {"normality", "decision"} <= set(pl.read_parquet(folder / "scores.parquet").columns)
    assert "<html" in (folder / "why.html").read_text("utf-8")
    assert "trip" in (folder / "events.jsonl").read_text("utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "past.csv", "-o", "pool.astray", "--pooled"),
        ("fit", "past.csv", "-o", "paper.astray", "--agent", "p00", "--preset", "kdd19"),
        ("pretrain", "-o", "reward.safetensors", "--towns", "1", "--people", "3", "--days", "7"),
    ],
    ids=["pool", "kdd19", "pretrain"],
)
def test_learning_without_torch_is_refused_with_the_line_that_installs_it(folder: Path, arguments: tuple[str, ...]):
    done = astray(folder, *arguments)
    assert done.returncode == 1
    assert "needs torch; pip install 'astray[learn]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / arguments[arguments.index("-o") + 1]).exists()


def test_a_pool_is_fitted_without_torch_if_the_reward_stays_as_it_is(folder: Path):
    refused = astray(folder, "fit", "past.csv", "-o", "pool.astray", "--pooled")
    assert "or pass --iterations 0 to leave the reward as it is" in refused.stderr
    done = astray(folder, "fit", "past.csv", "-o", "pool.astray", "--pooled", "--iterations", "0")
    assert done.returncode == 0, done.stderr


def test_no_iterations_leave_the_reward_as_it_ships():
    trips = city(people=3, days=14, seed=2).trips
    mine, others, sharing = trips.agent("p00"), trips.without("p00"), {"least_agents": 2, "least_trips": 3}
    shipped = Detector(seed=0).fit(mine, population=others)
    kept = Detector(seed=0, iterations=0, sharing=sharing).fit(mine, population=others)
    tried = Detector(seed=0, sharing=sharing).fit(mine, population=others)
    assert kept.score(mine)["score"].to_list() == shipped.score(mine)["score"].to_list()
    assert ["second_stages" in detector.reward_.made for detector in (shipped, kept, tried)] == [False, False, True]


def test_a_second_stage_is_learned_from_a_population_without_torch(folder: Path):
    program = """
from astray import Detector
from astray.simulate import city
trips = city(people=7, days=14, seed=2).trips
sharing = {"least_agents": 2, "reference": 40}
detector = Detector(seed=0, sharing=sharing).fit(trips.agent("p00"), population=trips.without("p00"))
print(detector.reward_.made["second_stages"])
"""
    paths = os.pathsep.join([str(folder), *(path for path in [os.environ.get("PYTHONPATH")] if path)])
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "'people': 6" in done.stdout


def test_no_iterations_are_refused_where_no_reward_ships():
    trips = city(people=1, days=7, seed=2).trips
    with pytest.raises(AstrayError, match="iterations is 0, and no reward ships for these trips; give at least 1"):
        Detector(preset="kdd19", iterations=0).fit(trips)
