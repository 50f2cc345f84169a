"""Writes the report of a results folder: the tables of every protocol that was run, costs, and failures."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from astray.core.atomic import replacing
from astray_benchmark import manifest as manifests
from astray_benchmark import measures
from astray_benchmark.baselines.familiarity import STATISTICS
from astray_benchmark.kept_scores import pack
from astray_benchmark.measures import MEAN_ONLY, SURE
from astray_benchmark.protocols import PROTOCOLS
from astray_benchmark.reporting import irregular_tables, tabulate
from astray_benchmark.reporting.results import Kept, Results, read
from astray_benchmark.reporting.table import Table, write
from astray_benchmark.variants import VARIANTS


def report(out: Path, kept: Kept | None = None) -> list[Table]:
    """Makes all tables for which a folder has results, and writes them to ``tables/`` and ``report.md``.

    It first packs the results into ``scores/`` and makes the tables from there, so that these few files and the
    manifest suffice to make the same tables again. ``kept`` receives the computed numbers, to pass them to
    :func:`astray_benchmark.reporting.figures.draw`.
    """
    manifest = manifests.read(out)
    pack(out)
    scores = None if manifest is None else read(out, manifest)
    failed = irregular_tables.failures(out)
    if manifest is None or (scores is None and not failed):
        raise manifests.no_results(out)
    made: list[Table] = []
    about: list[str] = []
    if scores is not None:
        kept = {} if kept is None else kept
        for protocol, settings in PROTOCOLS[manifest["dataset"]].items():
            trips = measures.of_setting(scores, settings) if protocol in manifest["protocols"] else pl.DataFrame()
            made += tabulate.tables(Results(out, manifest, settings, trips, kept), protocol) if len(trips) else []
        made += irregular_tables.ablation(scores, manifest["methods"])
        every = scores.filter(pl.col("method").is_in(manifest["methods"])).collect()
        present = [m for m in manifest["methods"] if m in set(every["method"].unique())]
        made += irregular_tables.costs(every, present, manifest["commands"])
        about = [*key(present, manifest), ""]
    made += irregular_tables.missing(out, manifest)
    write(made, out / "tables")
    with replacing(out / "report.md") as file:
        file.write("\n".join([_head(manifest), *about, *(table.markdown() for table in made)]).encode())
    return made


def _head(manifest: Mapping[str, Any]) -> str:
    """Returns the head of a report: the commands, the code and the data."""
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    commits = dict.fromkeys(code["commit"] or "unknown" for code in manifest["codes"])
    lines = [
        f"# Results: {manifest['dataset']}",
        "",
        *(f"    {command}" for command in manifest["commands"]),
        "",
        f"Seeds asked for: {', '.join(map(str, manifest['seeds']))}; each table says how many draws it is of. "
        f"Run at commit {', '.join(commits)}; tables made at commit {manifests.commit() or 'unknown'}. "
        f"Data SHA-256 {manifest['data_sha256']}; {versions}; {manifest['machine']}.",
        "",
        *(f"- {name}: {value}" for name, value in manifest["settings"].items()),
        "",
    ]
    return "\n".join(lines)


def key(present: Sequence[str], manifest: Mapping[str, Any]) -> list[str]:
    """Describes each method in a line."""
    known = _descriptions()
    crowd = f"up to {size} trips" if (size := manifest["settings"].get("population")) else "trips"
    lines = ["Methods:", ""]
    for name in present:
        base, _, options = name.partition(":")
        entry = "astray of a pool" if base == "astray" and manifest["dataset"] == "porto" else base
        said = known.get(entry, "").format(crowd=crowd, statistics=len(STATISTICS))
        if base not in known:
            said = f"a class of one's own, {name}"
        elif options:
            said = f"{base} with {options}"
        lines.append(f"- {name}: {'astray with one thing changed' if name in VARIANTS else said}")
    if any(name in VARIANTS or name.startswith("astray") for name in present):
        lines.append(f"- …{MEAN_ONLY}: {known['mean only']}")
        lines.append(f"- …{SURE}: flags only what the heads agree on")
    return lines


@cache
def _descriptions() -> dict[str, str]:
    """Reads the description of each method."""
    return tomllib.loads(files(__package__).joinpath("method_descriptions.toml").read_text("utf-8"))
