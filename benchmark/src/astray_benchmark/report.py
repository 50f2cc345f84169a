"""The report of a results folder: the tables of every protocol that was run, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from astray.atomic import replacing
from astray.errors import DataError
from astray_benchmark import (
    ablation,
    further_tables,
    labelled_tables,
    measures,
    pair_tables,
    paper_tables,
    runner,
    stream_tables,
    trust_tables,
)
from astray_benchmark import manifest as manifests
from astray_benchmark.baselines.familiarity import STATISTICS
from astray_benchmark.measures import MEAN_ONLY, SURE
from astray_benchmark.methods import REFITTED, STREAMING
from astray_benchmark.packed import pack
from astray_benchmark.protocols import PROTOCOLS
from astray_benchmark.results import Kept, Results, read
from astray_benchmark.tables import Table, write
from astray_benchmark.variants import VARIANTS

_TABLES: dict[str, Callable[[Results], list[Table]]] = {
    "p1": paper_tables.p1,
    "p2": paper_tables.p2,
    "p3": further_tables.p3,
    "p4": further_tables.p4,
    "p5": trust_tables.p5,
    "p6": further_tables.p6,
    "p7": stream_tables.p7,
    "p8": pair_tables.p8,
    "p9": further_tables.p9,
    "p10": labelled_tables.p10,
}

_ALSO = "it gets other people's trips"
_FIRST = "where there are others it learns from their trips first, and then from the person's"
_FOLLOWING = "astray-shared in a stream"
_FEATURES = "location, start, time since the start and velocity of each step"
_KEY = {
    "astray-alone": "astray without other people's trips",
    "astray-shared": "one reward learned from people none of whom is tested; a person's own trips are only counted",
    "astray-pretrained": "the reward that ships with astray, which learns nothing here: trips are only counted",
    "kdd19": "the paper to the letter (raw coordinates, the policy alone as background, Eq. 9)",
    "knn-location": "the mean distance to the 5 nearest places of the training trips, on a logarithmic scale",
    "knn-location-start": "knn-location among places that were reached from near the same start",
    "lof": f"Local Outlier Factor on {_FEATURES}",
    "ocsvm": f"one-class support vector machine on {_FEATURES}",
    "iforest": f"Isolation Forest on {_FEATURES}",
    **{f"{name}-location": f"{name} on the location alone" for name in ("lof", "ocsvm", "iforest")},
    "fnn-ae": f"feed-forward autoencoder of {_FEATURES}, by its error",
    "lstm-ae": f"LSTM autoencoder of {_FEATURES}, by its error",
    "cell-counts": "the mean logarithm of how many training trips went through each 150 m cell of a trip",
    "cell-trigram": "how probable each 150 m cell of a trip is after the two before it (Witten and Bell's back-off)",
    "length": "how long a trip is, and nothing else: the longer, the more anomalous",
    "familiarity": f"logistic regression on {len(STATISTICS)} trip statistics of familiarity and popularity; {_ALSO}",
    "cell-ratio": f"how much more probable a trip's 150 m cells are in the person's trips than in others'; {_ALSO}",
    "trigram-ratio": f"the same for each cell after the two before it; {_ALSO}",
    "pyod-ecod": "PyOD's ECOD on where a trip begins, ends and is, how long, fast and straight it is, and its hour",
    "pyod-knn": "PyOD's distance to the fifth nearest training trip, in the same numbers",
    "pyod-ecod-familiarity": f"PyOD's ECOD on the statistics of “familiarity”; {_ALSO}",
    "pyod-knn-familiarity": f"PyOD's distance to the fifth nearest training trip in these; {_ALSO}",
    "lm-tad": f"causal transformer over 150 m cells, the agent its first token, by perplexity; {_FIRST}",
    "gm-vsae": f"Gaussian-mixture variational autoencoder of 150 m cells, by its best component; {_FIRST}",
    **{f"{name}-alone": f"{name} that learns from the person's own trips alone" for name in ("lm-tad", "gm-vsae")},
    "recorder-interval": "a control: the seconds between a trip's fixes against the person's, and no place at all",
    "river-trees": "river's Half-Space Trees in a stream, on the numbers that pyod-ecod sees; they learn every trip",
    "river-trees-unflagged": "the same, learning from every trip that they do not flag",
    **{
        name: f"{of} in a stream, fitted anew with every ten trips that it has not flagged"
        for name, of in REFITTED.items()
    },
} | {
    name: f"{_FOLLOWING}, {learned}"
    for name, learned in zip(
        STREAMING,
        (
            "which learns nothing after the training period",
            "which learns from every trip that it does not flag",
            "likewise, and asks about flagged trips that are alike; somebody who knows answers",
            "which learns from every trip",
            "which learns from every trip of the person's own: a bound, for nobody knows them",
        ),
        strict=True,
    )
}


def report(out: Path, kept: Kept | None = None) -> list[Table]:
    """All tables that the results in a folder allow; they are also written to ``tables/`` and ``report.md``.

    What was run is packed into ``scores/`` first, and the tables are made from there: whoever has these few files and
    the manifest gets the same tables without running anything.

    ``kept`` holds what has been computed, for whoever draws figures of it.
    """
    manifest = manifests.read(out)
    pack(out)
    scores = None if manifest is None else read(out, manifest)
    if manifest is not None and scores is None and (failures := _failures(out)):
        write(failures, out / "tables")
        with replacing(out / "report.md") as file:
            file.write("\n".join([_head(manifest), *(table.markdown() for table in failures)]).encode())
        return failures
    if manifest is None or scores is None:
        raise DataError(f"{out} holds no results yet", remedy=f"run astray benchmark with --out {out} first")
    made: list[Table] = []
    kept = {} if kept is None else kept
    for protocol, settings in PROTOCOLS[manifest["dataset"]].items():
        if protocol in manifest["protocols"]:
            trips = measures.of_setting(scores, settings)
            if len(trips):
                made += _TABLES[protocol](Results(out, manifest, settings, trips, kept))
    parts = ablation.table(scores, manifest["methods"])
    made += [parts] if parts else []
    every = scores.filter(pl.col("method").is_in(manifest["methods"])).collect()
    present = [m for m in manifest["methods"] if m in set(every["method"].unique())]
    in_stream = pl.col("family") == "stream"
    for name, title, part in (("costs", "Costs", ~in_stream), ("costs_stream", "Costs of a stream", in_stream)):
        trips = every.filter(part)
        those = [m for m in present if m in set(trips["method"].unique())]
        made += [_costs(name, title, trips, those, manifest["commands"])] if those else []
    made += _failures(out)
    write(made, out / "tables")
    text = "\n".join([_head(manifest), *key(present, manifest), "", *(table.markdown() for table in made)])
    with replacing(out / "report.md") as file:
        file.write(text.encode())
    return made


def _costs(name: str, title: str, trips: pl.DataFrame, present: Sequence[str], commands: Sequence[str]) -> Table:
    """Processor seconds, and how many times those of the first method they are."""
    alike = trips.filter(pl.col("method").n_unique().over(*measures.DRAW) == len(present))
    found = measures.costs(alike if len(alike) else trips)
    seconds = {row["method"]: row for row in found.iter_rows(named=True)}
    base = seconds[present[0]]
    rows = [
        (
            m,
            seconds[m]["fit_seconds"],
            seconds[m]["calibrate_seconds"] or None,
            seconds[m]["score_seconds"],
            seconds[m]["shared_seconds"] or None,
            _ratio(seconds[m]["learn_seconds"], base["learn_seconds"]),
            _ratio(seconds[m]["score_seconds"], base["score_seconds"]),
            seconds[m]["draws"],
        )
        for m in present
    ]
    columns = ("method", *(f"seconds | {what}" for what in ("fit", "calibrate", "score", "once for all")))
    columns += (*(f"relative to {present[0]} | {what}" for what in ("fit + calibrate", "score")), "draws")
    same = "all methods on the same draws" if len(alike) else "methods on different draws, so that they do not compare"
    note = f"Median processor seconds of a draw, {same}, one thread each. astray calibrates itself as part of its fit."
    if len(commands) > 1:
        note += " Not all rows come from one command, so that the machine may have been more or less busy."
    return Table(name, title, columns, tuple(rows), note)


def _failures(out: Path) -> list[Table]:
    """What failed, and why; nothing if nothing did."""
    failed = runner.results(out, runner.FAILED)
    if failed is None:
        return []
    counted = failed.group_by("method", "why", maintain_order=True).agg(pl.len(), pl.col("case").sort().first())
    rows = tuple(counted.select("method", "len", "why", "case").collect().iter_rows())
    note = "These cases are missing in the tables above. The same command tries them again."
    return [Table("failed", "Failed", ("method", "cases", "why", "such as"), rows, note)]


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None


def _head(manifest: Mapping[str, Any]) -> str:
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
    """What each method is, a line each."""
    crowd = f"up to {size} trips" if (size := manifest["settings"].get("population")) else "trips"
    model = f"one model a person, learned against {crowd} of other people, which most baselines do not get"
    known = _KEY | {
        "astray": "one model of the whole pool, or of a pair of places" if manifest["dataset"] == "porto" else model
    }
    lines = ["Methods:", ""]
    for name in present:
        base, _, options = name.partition(":")
        said = f"{base} with {options}" if options else known.get(base, base)
        said = said if base in known else f"a class of one's own, {name}"
        lines.append(f"- {name}: {'astray with one thing changed' if name in VARIANTS else said}")
    if any(name in VARIANTS or name.startswith("astray") for name in present):
        lines.append(
            f"- …{MEAN_ONLY}: where a reward of steps decides, by the normality of the whole trip, N(tau), and not by "
            "its worst window too"
        )
        lines.append(f"- …{SURE}: flags only what the heads agree on")
    return lines
