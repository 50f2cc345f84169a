"""The results that the repository keeps: their tables come from their scores."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from astray_benchmark.reporting.paper_page import parts, write_page
from astray_benchmark.reporting.report import report

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "docs" / "results"
KEPT = sorted(path.parent.parent for path in RESULTS.glob("**/scores/trips.parquet"))
STUDIES = sorted(path.parent for path in RESULTS.glob("*/paper.md"))


def test_the_scores_that_are_kept_are_small():
    assert sum(path.stat().st_size for path in RESULTS.glob("**/*.parquet")) < 5_000_000


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: str(folder.relative_to(RESULTS)))
def test_kept_tables_are_those_of_the_kept_scores(folder: Path, tmp_path: Path):
    shutil.copytree(folder / "scores", tmp_path / "scores")
    shutil.copy(folder / "manifest.json", tmp_path)
    for table in report(tmp_path):
        for ending, text in (("csv", table.csv()), ("md", table.markdown()), ("tex", table.latex())):
            assert (folder / "tables" / f"{table.name}.{ending}").read_text("utf-8") == text, f"{table.name}.{ending}"


@pytest.mark.parametrize("folder", STUDIES, ids=lambda folder: folder.name)
def test_the_kept_tables_of_the_paper_are_those_of_the_kept_scores(folder: Path, tmp_path: Path):
    for part in parts(folder):
        shutil.copytree(part / "scores", tmp_path / part.name / "scores")
        shutil.copy(part / "manifest.json", tmp_path / part.name)
    for table in write_page(tmp_path):
        assert (folder / "tables" / f"{table.name}.csv").read_text("utf-8") == table.csv(), table.name
