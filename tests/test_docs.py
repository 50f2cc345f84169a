"""The documentation keeps its word: every example runs, and says what the page says; the reference is the code's."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

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


run_examples, make_reference = script("run_examples"), script("make_reference")
PAGES = {page.relative_to(ROOT).as_posix(): page for page in run_examples.PAGES}
WITH_EXAMPLES = [name for name, page in PAGES.items() if run_examples.examples(page)]


NUMBER = re.compile(r"(?<![\w:.-])-?\d[\d,]*(?:\.\d+)?%?(?![\w:-])")


def numbers(printed: str) -> list[float]:
    return [float(found.strip("%").replace(",", "")) for found in NUMBER.findall(printed)]


def words(printed: str) -> list[str]:
    """Everything but the numbers; how a table is aligned depends on these."""
    return NUMBER.sub("#", printed).split()


def test_numbers_are_told_from_names_and_times():
    line = "p00-0130  -6.08 2,254 of 10 at 2025-02-19 19:45-19:47: 3%, p = 0.0078, 12:00:40.162Z"
    assert numbers(line) == [-6.08, 2254.0, 10.0, 3.0, 0.0078]
    assert words("a  1.5") == words("a -12.5") == ["a", "#"]
    assert words("p00-0130") != words("p00-0131")


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_every_example_of_a_page_prints_what_the_page_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for example, printed in run_examples.run(PAGES[name]):
        if example.printed is not None:
            now, remedy = run_examples.shown(example.printed, printed), f"{example.place}: make docs writes it anew"
            assert words(now) == words(example.printed), remedy
            # Other processors round differently, and learning carries that on.
            assert numbers(now) == pytest.approx(numbers(example.printed), rel=0.05, abs=0.1), remedy


def test_the_pages_that_must_have_examples_have_some():
    assert {"README.md", "docs/tutorial.md"} <= set(WITH_EXAMPLES)
    assert len([name for name in WITH_EXAMPLES if "how-to" in name]) == len(list((ROOT / "docs/how-to").glob("*.md")))


def test_the_reference_is_up_to_date():
    made = make_reference.pages()
    assert {path.name for path in make_reference.FOLDER.glob("*.md")} == set(made)
    stale = [name for name, text in made.items() if (make_reference.FOLDER / name).read_text("utf-8") != text]
    assert not stale, "run make docs"


def test_everything_public_has_a_place_in_the_reference():
    import astray

    reference = "\n".join(make_reference.pages().values())
    for name in set(astray.__all__) - {"__version__", "simulate"}:
        assert re.search(rf"^## `astray\.(\w+\.)*{name}`$", reference, re.MULTILINE), name


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").rglob("*.md")) + sorted(ROOT.glob("*.md")), ids=lambda p: p.name
)
def test_links_to_files_lead_somewhere(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target
