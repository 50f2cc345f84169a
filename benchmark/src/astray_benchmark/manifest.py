"""The manifest of a results folder records the methods, data and code of its runs, so that it never mixes them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import astray
import astray_benchmark
from astray.core.atomic import replacing
from astray.core.errors import DataError
from astray_benchmark import runner
from astray_benchmark.protocols import Dataset, slug

NAME = "manifest.json"
PACKAGES = ("astray", "astray-benchmark", "numpy", "polars", "torch", "scikit-learn", "pyod", "river")
_PACKAGES = {module.__name__: Path(str(module.__file__)).parent for module in (astray, astray_benchmark)}
# Code that only shows results cannot change them.
_NO_MATTER = {
    "astray": {
        *("cli", "plots", "explain", "runtime", "service", "jobs"),
        *("core/writers.py", "core/processes.py"),
    },
    "astray_benchmark": {
        *("command.py", "examples.py", "kept_scores.py", "manifest.py", "measures.py", "metrics", "reporting"),
        *("paper_study.py", "study.py"),
    },
}


@dataclass(frozen=True)
class Asked:
    """The choices of a command."""

    command: str
    protocols: Sequence[str]
    methods: Sequence[str]
    seeds: Sequence[int]
    sources: Mapping[str, str] = field(default_factory=dict)  # external detector to the hash of its code


def record(folder: Path, dataset: Dataset, asked: Asked, *, changed_code: bool = False) -> dict[str, Any]:
    """Writes the manifest of a folder, or adds further choices to it.

    Seeds, methods, protocols, rates and splits may be added later, because each case depends only on its key. Other
    data, other settings or (unless ``changed_code``) other code would give other scores under the same names, so they
    are errors. ``codes`` lists all versions of the code that were run, with their commits; ``sources`` lists those of
    external detectors; the versions of libraries and the machine are those of the first run.
    """
    now = {
        "dataset": dataset.name,
        "settings": dict(dataset.settings),
        "data_sha256": dataset.fingerprint,
    }
    code = {"sha256": code_hash(), "commit": commit()}
    earlier = read(folder) or {}
    sources: dict[str, list[str]] = earlier.get("sources", {})
    if earlier:
        for key, said in now.items():
            if earlier.get(key) != said:
                raise DataError(
                    f"{folder} holds results of {_difference(key, earlier, now)}", remedy="give another --out"
                )
        if not changed_code and code["sha256"] not in (known := [c["sha256"] for c in earlier["codes"]]):
            raise DataError(
                f"{folder} holds results of other code ({', '.join(known)}, now {code['sha256']})",
                remedy="give another --out, or --changed-code to add to them anyway",
            )
        for name, source in asked.sources.items():
            if not changed_code and source not in sources.get(name, [source]) and _has_results(folder, name):
                raise DataError(
                    f"{folder} holds results of another version of {name}",
                    remedy="give another --out, or --changed-code to add to them anyway",
                )
    for name, source in asked.sources.items():
        sources[name] = _added(sources[name], [source]) if name in sources and _has_results(folder, name) else [source]
    codes = earlier.get("codes", [])
    manifest = now | {
        "codes": codes if code in codes else [*codes, code],
        "protocols": _added(earlier.get("protocols", []), asked.protocols),
        "methods": _added(earlier.get("methods", []), asked.methods),
        **({"sources": sources} if sources else {}),
        "seeds": sorted(_added(earlier.get("seeds", []), asked.seeds)),
        "commands": _added(earlier.get("commands", []), [asked.command]),
        "versions": earlier.get("versions", _versions()),
        "machine": earlier.get("machine", f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"),
    }
    with replacing(folder / NAME) as file:
        file.write(json.dumps(manifest, indent=2, ensure_ascii=False).encode() + b"\n")
    return manifest


def _has_results(folder: Path, method: str) -> bool:
    """Returns True if a case of a method is finished in a folder."""
    return any((folder / runner.TRIPS).rglob(f"{slug(method)}.parquet"))


def command(
    dataset: str,
    protocols: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    more: Mapping[str, str | bool],
) -> str:
    """Returns the command for a report: with placeholders for paths, without flags that do not change scores.

    It leaves out flags whose value is empty or False.

    >>> command("geolife", ["p1"], ["astray", "lof"], [0, 1], {"--rate": "0.05", "--users": ""})
    'astray benchmark geolife --data DATA -p p1 -m astray,lof --seeds 0-1 --rate 0.05 -o FOLDER'
    """
    run = list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    flags: dict[str, str | bool] = {
        "--data": "" if dataset == "simulated" else "DATA",
        "-p": ",".join(protocols),
        "-m": ",".join(methods),
        "--seeds": f"{seeds[0]}-{seeds[-1]}" if run else ",".join(map(str, seeds)),
        **more,
        "-o": "FOLDER",
    }
    typed = [flag if value is True else f"{flag} {shlex.quote(str(value))}" for flag, value in flags.items() if value]
    return " ".join(["astray benchmark", dataset, *typed])


def _difference(key: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describes what differs from the earlier manifest."""
    if key != "settings":
        return f"another {key.replace('_', ' ')} ({before.get(key)}, now {now[key]})"
    was, is_ = before.get(key, {}), now[key]
    changed = [name for name in dict.fromkeys([*was, *is_]) if was.get(name) != is_.get(name)]
    return "other settings (" + ", ".join(f"{n}: {was.get(n)}, now {is_.get(n)}" for n in changed) + ")"


def read(folder: Path) -> dict[str, Any] | None:
    """Returns the manifest of a folder; None if there is none.

    It converts an old manifest, which stores the first code separately, to a list of codes.
    """
    try:
        found = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / NAME} cannot be read ({error})", remedy="give another --out") from None
    if not isinstance(found, dict) or not found.keys() & {"codes", "code_sha256"}:
        raise DataError(f"{folder / NAME} is not a manifest", remedy="give another --out")
    if "codes" not in found:
        later = [{"sha256": code, "commit": ""} for code in found.pop("later_code_sha256", [])]
        found["codes"] = [{"sha256": found.pop("code_sha256"), "commit": found.pop("commit", "")}, *later]
    return found


def no_results(folder: Path) -> DataError:
    """Returns the error for a folder without results."""
    return DataError(f"{folder} holds no results yet", remedy=f"run astray benchmark with --out {folder} first")


@cache
def code_hash() -> str:
    """Returns a hash of the code of both packages that scores depend on."""
    digest = hashlib.sha256()
    for package, folder in _PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            place = path.relative_to(folder)
            if not _NO_MATTER[package].isdisjoint([place.as_posix(), *(p.as_posix() for p in place.parents)]):
                continue
            digest.update(f"{package}/{place.as_posix()}".encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def commit() -> str:
    """Returns the commit of astray's repository, with "+" if files have changed since; empty outside a repository."""
    astray_package, own_package = map(str, _PACKAGES.values())

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", astray_package, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # fails in another repository that astray is installed in
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", ".", own_package) else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _versions() -> dict[str, str]:
    def version(package: str) -> str:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return "not installed"

    return {name: version(name) for name in PACKAGES} | {"python": platform.python_version()}


def _added(before: Iterable[Any], more: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys([*before, *more]))
