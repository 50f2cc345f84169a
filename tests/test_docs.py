"""Tests the documentation: every example prints what its page shows, and the site is built from the code."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import torch

from astray.cli import COMMANDS
from astray.core.settings import NAMES

torch.set_num_threads(1)

ROOT = Path(__file__).resolve().parent.parent


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


run_examples, make_results = script("run_examples"), script("make_results")
PAGES = {page.relative_to(ROOT).as_posix(): page for page in run_examples.PAGES}
WITH_EXAMPLES = [name for name, page in PAGES.items() if run_examples.examples(page)]


NUMBER = re.compile(r"(?<![\w:.-])-?\d[\d,]*(?:\.\d+)?%?(?![\w:-])")


def tolerance(number: str) -> float:
    """Returns how far a number on a page may be off: a count must be exact, and a percentage may be off by 1.

    Other numbers may be off by the largest of 5 %, 0.1 (0.01 below 1), and one in the last digit.
    """
    value, (_, point, decimals) = abs(value_of(number)), number.strip("%").partition(".")
    if not point:
        return 1.0 if number.endswith("%") else 0.0
    return max(0.05 * value, 0.1 if value >= 1 else 0.01, 10.0 ** -len(decimals))


def value_of(number: str) -> float:
    return float(number.strip("%").replace(",", ""))


def differences(printed: str, page: str) -> list[str]:
    """Returns the differences between a page and what was printed.

    Words and whole numbers must be equal, except for the alignment of tables. Other numbers may differ a little,
    because other processors round differently, and learning amplifies that.
    """
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", page).split():
        return [f"{page!r} is now {printed!r}"]
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(page), strict=True)
    return [
        f"{said} is now {now}" for now, said in pairs if abs(value_of(now) - value_of(said)) > tolerance(said) * 1.001
    ]


def test_numbers_are_told_from_names_and_times():
    line = "p00-0130  -6.08 2,254 of 10 at 2025-02-19 19:45-19:47: 3%, p = 0.0078, 12:00:40.162Z"
    assert NUMBER.findall(line) == ["-6.08", "2,254", "10", "3%", "0.0078"]
    assert not differences("a  -6.11 p = 0.0081", "a -6.08  p = 0.0078")
    for wrong in ("a -6.5 p = 0.0078", "a -6.08 p = 0.02", "b -6.08 p = 0.0078", "a 6.08 p = 0.0078"):
        assert differences(wrong, "a -6.08 p = 0.0078")
    assert differences("p00-0130", "p00-0131")
    assert differences("2,254 fixes", "2,255 fixes")


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_no_number_that_a_page_shows_can_be_changed_unnoticed(name: str):
    for example in run_examples.examples(PAGES[name]):
        page = example.printed or ""
        for found in NUMBER.finditer(page):
            decimals = len(found[0].strip("%").partition(".")[2])
            other = f"{value_of(found[0]) - 2 * tolerance(found[0]) - (not tolerance(found[0])):,.{decimals}f}"
            changed = f"{page[: found.start()]}{other}{'%' * found[0].endswith('%')}{page[found.end() :]}"
            assert differences(page, changed), f"{example.place}: {found[0]}"


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_every_example_of_a_page_prints_what_the_page_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for example, printed in run_examples.run(PAGES[name]):
        if example.printed is not None:
            now = run_examples.shown(example.printed, printed)
            assert not differences(now, example.printed), f"{example.place}: make pages writes it anew"


OF_A_RUNNING_SERVICE = {"api.md", "feeds.md", "review.md", "serve.md"}
"""Pages whose examples need a running service or a phone; the tests of the service check what they say."""


def test_the_pages_that_must_have_examples_have_some():
    assert {"README.md", "docs/tutorial.md"} <= set(WITH_EXAMPLES)
    pages = {page.name for page in (ROOT / "docs/how-to").glob("*.md")} - OF_A_RUNNING_SERVICE
    assert {Path(name).name for name in WITH_EXAMPLES if "how-to" in name} >= pages


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of the site, built so that a warning is an error."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        build, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_every_page_of_its_navigation_and_every_public_name(site: Path):
    import astray

    text = "\n".join(page.read_text("utf-8") for page in (site / "reference").glob("*.html"))
    deprecated = {"IRLDetector", "FleetDetector"}  # their warnings name what replaces them
    for name in set(astray.__all__) - deprecated - {"__version__", "simulate"}:
        assert re.search(rf'id="astray\.([\w.]+\.)?{name}"', text), name
    for page in ("index", "tutorial", "how-to/fleet", "algorithm", "results/index", "scale", "threat-model"):
        assert (site / f"{page}.html").is_file(), page


@pytest.mark.slow
def test_the_site_shows_the_commands_and_settings_of_the_code(site: Path):
    commands = (site / "reference" / "command-line.html").read_text("utf-8")
    for name in (*COMMANDS, "serve token add"):
        assert f'id="astray-{name.replace(" ", "-")}"' in commands, name
    assert "--false-alarm-rate SHARE" in commands
    shown = (site / "reference" / "settings.html").read_text("utf-8")
    assert not [name for name in NAMES if f"<code>{name}</code>" not in shown]


@pytest.mark.slow
def test_the_site_loads_nothing_from_other_hosts(site: Path):
    loaded = re.compile(
        r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(?:https?:)?//|<link[^>]*href=[\"']?(?:https?:)?//"
    )
    for page in site.rglob("*.html"):
        found = [tag[0] for tag in loaded.finditer(page.read_text("utf-8")) if 'rel="canonical"' not in tag[0]]
        assert not found, (page.name, found)
    assert "var __index" in (site / "search" / "search_index.js").read_text("utf-8")[:20], (
        "search works without a server"
    )


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").rglob("*.md")) + sorted(ROOT.glob("*.md")), ids=lambda p: p.name
)
def test_links_to_files_lead_somewhere(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_contributing_names_only_files_and_folders_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    files = (path for folder in ("src", "tests", "docs", "bench", "benchmark") for path in (ROOT / folder).rglob("*.*"))
    there = [path.relative_to(ROOT).as_posix() for path in files]
    folders = {folder.rsplit("/", 1)[0] + "/" for folder in there} | {"bench/", "site/"}
    for named in set(re.findall(r"`([a-z_/]+(?:\.py|/))`", text)):
        assert any(f"/{path}".endswith(f"/{named}") for path in (*there, *folders)), named


# -------------------------------------------------------------------- results


@pytest.mark.parametrize("page", make_results.PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_shows_the_results_that_are_kept(page: Path):
    text = page.read_text("utf-8")
    assert make_results.filled(text, make_results.recipes()) == text, "run make pages"


def test_the_readme_has_a_table_of_results():
    assert len(make_results.BLOCK.findall((ROOT / "README.md").read_text("utf-8"))) == 1


def test_a_table_of_results_is_that_of_its_recipe(tmp_path: Path):
    folder = tmp_path / "town" / "tables"
    folder.mkdir(parents=True)
    (folder / "p1.csv").write_text("method,AP,AP low,AP high,F1,draws\na,0.5,0.4,0.6,0.25,10\nb,0.75,0.7,0.8,,10\n")
    (folder / "p2.csv").write_text("method,AP\na,0.125\n")
    page = "Before.\n<!-- results: found -->\nwhat was here\n<!-- /results -->\nAfter."
    shown = tomllib.loads("""
[found]
table = "town/p1"
columns = {AP = "AP", F1 = "F1", later = "town/p2: AP", draws = "draws"}
intervals = ["AP"]
plain = ["draws"]
rows = [{method = "b", said = "the second"}, {method = "a"}, {method = "c"}, {said = "*paper*", AP = "", F1 = "*.3*"}]
""")
    assert make_results.filled(page, shown, tmp_path).partition("-->\n")[2] == (
        "\n| method | AP | F1 | later | draws |\n|---|---|---|---|---|\n"
        "| the second | **.750 [.700, .800]** |  |  | 10 |\n"
        "| a | .500 [.400, .600] | .250 | .125 | 10 |\n| c | – | – | – | – |\n"
        "| *paper* |  | *.3* |  |  |\n\n<!-- /results -->\nAfter."
    )
    missing = make_results.filled(page, shown, tmp_path / "nowhere")
    assert make_results.MISSING in missing


def test_a_page_may_show_a_whole_table_or_a_picture(tmp_path: Path):
    (tmp_path / "town" / "tables").mkdir(parents=True)
    (tmp_path / "town" / "tables" / "t.md").write_text("### Title\n\n| a |\n|---|\n| 1 |\n\nA note.\n")
    page = "<!-- results: table -->\n<!-- /results -->\n<!-- results: map -->\n<!-- /results -->\n"
    shown = {"table": {"table": "town/t"}, "map": {"picture": "town/map.png", "says": "A map"}}
    filled = make_results.filled(page, shown, tmp_path)
    assert "-->\n\n| a |\n|---|\n| 1 |\n\nA note.\n\n<!--" in filled
    assert filled.count(make_results.MISSING) == 1
    (tmp_path / "town" / "map.png").touch()
    assert "![A map](town/map.png)" in make_results.filled(filled, shown, tmp_path)


def test_every_table_of_the_page_of_results_was_measured():
    blocks = [block for page in make_results.PAGES for block in make_results.BLOCK.findall(page.read_text("utf-8"))]
    recipes = make_results.recipes()
    assert {name for _, name, *_ in blocks} == set(recipes)
    assert len(blocks) > 10
    kept = {path.name for path in make_results.RESULTS.iterdir() if path.is_dir()}
    for _, name, shown, *_ in blocks:
        folder = (recipes[name].get("table") or recipes[name]["picture"]).partition("/")[0]
        assert make_results.MISSING not in shown or folder not in kept, name
