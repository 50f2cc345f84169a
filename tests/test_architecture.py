"""The packages of astray: who imports whom."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

import astray
from conftest import MARKED

ROOT = Path(astray.__file__).parent


def package_of(module: str) -> str:
    """The part of astray that a module belongs to: a package, or a module that stands alone.

    >>> package_of("astray.features.featurizer"), package_of("astray.core.errors")
    ('features', 'core')
    """
    return module.split(".")[1] if "." in module else ""


def module_level(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run when a module is imported; not those in functions or under TYPE_CHECKING."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from module_level(node.body + node.orelse)
        elif isinstance(node, (ast.Try, ast.With, ast.ClassDef)):
            yield from module_level(node.body)


def imports() -> dict[str, dict[str, set[str]]]:
    """Package to the packages that it imports, each with the modules that do so."""
    graph: dict[str, dict[str, set[str]]] = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(("astray", *(part for part in parts if part != "__init__")))
        mine = graph.setdefault(package_of(module), {})
        for node in module_level(ast.parse(path.read_text("utf-8")).body):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif node.module == "astray":
                names = [f"astray.{alias.name}" for alias in node.names]
            else:
                names = [node.module or ""]
            for name in names:
                if name.startswith("astray.") and package_of(name) != package_of(module):
                    mine.setdefault(package_of(name), set()).add(module)
    return graph


def test_packages_do_not_import_each_other_in_circles():
    graph = imports()
    assert {"features", "irl", "model", "readers", "cli"} <= set(graph)
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle: list[str] = error.args[1][::-1]
        who = [f"{a} imports {b} in {', '.join(sorted(graph[a][b]))}" for a, b in pairwise(circle)]
        pytest.fail("; ".join(who))


def test_one_module_starts_processes_and_holds_signals_back():
    """The command line decides what an interrupt does; nothing in the package runs another program."""
    allowed = {
        "multiprocessing": {"core/processes.py"},
        "signal": {"core/processes.py", "cli/__init__.py", "cli/console.py"},
        "subprocess": set(),
    }
    found: dict[str, set[str]] = {name: set() for name in allowed}
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            module = [node.module or ""] if isinstance(node, ast.ImportFrom) else names
            used = {name.split(".")[0] for name in module} | ({"multiprocessing"} & {n.split(".")[-1] for n in module})
            used |= {"multiprocessing"} if "ProcessPoolExecutor" in names else set()
            for name in used & set(found):
                found[name].add(path.relative_to(ROOT).as_posix())
    assert found == allowed


def test_the_rules_of_the_house():
    graph = imports()
    reading, reward = {"readers"}, {"irl", "model", "scoring"}
    assert not set(graph["irl"]) & (reading | {"model", "cli"}), "irl knows nothing of files"
    assert not set(graph["readers"]) & reward, "readers know nothing of rewards"
    who = [package for package, uses in graph.items() if "cli" in uses]
    assert who == ["__main__"], "nobody needs the command line but who runs it"


def test_astray_does_not_import_the_benchmark_which_depends_on_it():
    """Not even in a function: the benchmark adds its command by an entry point."""
    who = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "astray_benchmark" in ast.unparse(node)
    }
    assert who == set()


def test_every_test_that_the_fast_run_leaves_out_exists():
    folder = Path(__file__).parent
    for marker, beginnings in MARKED.items():
        for beginning in beginnings:
            file, _, name = beginning.partition("::")
            files = [path for path in folder.rglob("*.py") if path.relative_to(folder).as_posix().startswith(file)]
            assert files, f"{marker}: no file of tests begins with {file}"
            assert not name or f"def {name}" in files[0].read_text("utf-8"), f"{marker}: {beginning}"
