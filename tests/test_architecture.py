"""Tests which packages of astray import which others."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

import astray
from astray.model.worlds import WORLDS
from markers import MARKED

ROOT = Path(astray.__file__).parent


def package_of(module: str) -> str:
    """Returns the part of astray that a module belongs to: a package, or a module outside of all packages.

    >>> package_of("astray.features.featurizer"), package_of("astray.core.errors")
    ('features', 'core')
    """
    return module.split(".")[1] if "." in module else ""


def imported(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yields the imports of a module that may run, even those in functions, but not those under TYPE_CHECKING."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from imported(other)
        else:
            yield from imported(child)


def imports() -> dict[str, dict[str, set[str]]]:
    """Returns the packages that each package imports, with the modules that do so."""
    graph: dict[str, dict[str, set[str]]] = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        module = ".".join(("astray", *(part for part in parts if part != "__init__")))
        mine = graph.setdefault(package_of(module), {})
        for node in imported(ast.parse(path.read_text("utf-8"))):
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


def test_packages_do_not_import_each_other_in_circles_not_even_in_functions():
    graph = imports()
    assert {"features", "irl", "model", "readers", "cli"} <= set(graph)
    assert "astray.detector" in graph["detector"]["runtime"], "an import in a function counts"
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        circle: list[str] = error.args[1][::-1]
        who = [f"{a} imports {b} in {', '.join(sorted(graph[a][b]))}" for a, b in pairwise(circle)]
        pytest.fail("; ".join(who))


def test_modules_do_not_import_each_other_in_circles_not_even_in_functions():
    """A package whose __init__ only collects names is not asked for by its own modules."""
    modules = {
        ".".join(("astray", *(p for p in path.relative_to(ROOT).with_suffix("").parts if p != "__init__"))): path
        for path in ROOT.rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        used = graph.setdefault(module, set())
        for node in imported(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
            else:
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                used |= {name if name in modules else node.module or "" for name in whole}
        used &= modules.keys() - {module}
    assert "astray.model.worlds" in graph["astray.model.gps_trips"]
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1][::-1]))


def test_no_file_name_occurs_twice():
    """Except for __init__.py and __main__.py, whose names have a meaning in Python."""
    names = Counter(path.name for path in ROOT.rglob("*.py") if path.name not in ("__init__.py", "__main__.py"))
    assert len(names) > 100
    assert [name for name, n in names.items() if n > 1] == []


def test_only_worlds_and_readers_ask_whether_trajectories_are_gps_fixes():
    worlds = {place.split(":")[0].removeprefix("astray.").replace(".", "/") + ".py" for place in WORLDS.values()}
    asking = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "is_gps"
    }
    assert asking & worlds
    assert {file for file in asking - worlds if not file.startswith("readers/")} == set()


def test_the_service_uses_no_name_with_an_underscore_of_another_module():
    """This includes names that it inherits."""
    allowed = {"_replace", "_asdict", "_make", "_fields"}  # public in spite of their names
    allowed |= {"_captured_signals"}  # of uvicorn, which has no other way to stop cleanly
    found = []
    for path in (ROOT / "service").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
        own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
        own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("astray"):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute):
                is_own = ast.unparse(node.value) in ("self", "cls") and node.attr in own
                names = [] if is_own else [node.attr]
            else:
                continue
            private = [name for name in names if name.startswith("_") and not name.startswith("__")]
            found += [f"{path.name}:{node.lineno} {name}" for name in private if name not in allowed]
    assert found == []


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
    """This includes imports in functions: the benchmark adds its command by an entry point."""
    who = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "astray_benchmark" in ast.unparse(node)
    }
    assert who == set()


def test_every_test_that_the_fast_run_leaves_out_exists():
    folder = Path(__file__).parent
    places = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.py")}
    places |= {path.relative_to(folder.parent).as_posix(): path for path in folder.parent.glob("benchmark/tests/*.py")}
    for marker, beginnings in MARKED.items():
        for beginning in beginnings:
            file, _, name = beginning.partition("::")
            files = [path for place, path in places.items() if place.startswith(file)]
            assert files, f"{marker}: no file of tests begins with {file}"
            assert not name or f"def {name}" in files[0].read_text("utf-8"), f"{marker}: {beginning}"
