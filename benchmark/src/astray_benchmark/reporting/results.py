"""The results of one protocol: the numbers for its tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from astray_benchmark import measures, runner
from astray_benchmark.kept_scores import read_kept
from astray_benchmark.measures import MEAN_ONLY, SURE
from astray_benchmark.metrics.intervals import FEW
from astray_benchmark.protocols import Setting

INTERVALS = (
    "Intervals: 95 %, over people (over cities where they are of four or more simulated ones, over draws where there "
    f"is one pool): by bootstrap, or Student's where there are fewer than {FEW}."
)

Kept = dict[Any, pl.DataFrame | None]
"""A cache of computed numbers that several tables and figures need."""

BASE_RATE = "base rate"
"""The name of guessing in the tables of prefixes."""


@dataclass(frozen=True, eq=False)
class Results:
    """The results of one protocol."""

    out: Path
    manifest: Mapping[str, Any]
    settings: tuple[Setting, ...]
    trips: pl.DataFrame
    kept: Kept

    @property
    def dataset(self) -> str:
        """Returns geolife, porto, simulated, trips or labelled."""
        return str(self.manifest["dataset"])

    @property
    def methods(self) -> list[str]:
        """Returns the methods in the order of the command, each followed by its other ways to decide."""
        return [name for method in self.manifest["methods"] for name in (method, method + MEAN_ONLY, method + SURE)]

    def frame(self, source: str) -> pl.DataFrame | None:
        """Returns the figures of a source, with a row for each draw and method; computed once; None without rows.

        "trips", and "kinds" (by kind of anomaly): :func:`astray_benchmark.measures.of_trips`; "fixes": ``of_fixes``;
        "prefixes": ``of_prefixes``, and the base rate as a method; "streams": ``of_streams``; "promises":
        ``of_promises``; "review": ``of_uncertainty``; "drift": the cost of a split by time.
        """
        if source == "trips":
            return self._of_trips()
        key = (source, self.settings, tuple(self.manifest["methods"]))
        if key not in self.kept:
            found = _SOURCES[source](self)
            self.kept[key] = found if found is not None and len(found) else None
        return self.kept[key]

    def rows(self, table: str) -> pl.DataFrame | None:
        """Returns the rows of a table with these settings and methods; None if there are none."""
        scores = read(self.out, self.manifest, table)
        if scores is None:
            return None
        found = measures.of_setting(scores.filter(pl.col("method").is_in(self.manifest["methods"])), self.settings)
        return found if len(found) else None

    def _of_trips(self) -> pl.DataFrame:
        """Computes the figures of trips for each setting separately, because protocols share settings."""
        for setting in self.settings:
            if setting not in self.kept:
                rows = measures.of_setting(self.trips.lazy(), [setting])
                self.kept[setting] = measures.of_trips(rows) if len(rows) else None
        found = [figures for s in self.settings if (figures := self.kept[s]) is not None]
        return pl.concat(found, how="diagonal_relaxed")


def _prefixes(results: Results) -> pl.DataFrame | None:
    """Adds guessing as a method, with the same figures for every method's draws."""
    figures = results.rows(runner.PARTS)
    if figures is None:
        return None
    figures = measures.on_the_same_draws(figures, "ratio")
    guess = figures.unique([*measures.DRAW, "ratio"], maintain_order=True).with_columns(
        pl.lit(BASE_RATE).alias("method"), pl.lit(None, pl.Float64).alias("auroc"), pl.col("share_begun").alias("ap")
    )
    return pl.concat([figures, guess])


def _streams(results: Results) -> pl.DataFrame | None:
    rows = results.rows(runner.STREAMS)
    return None if rows is None else measures.of_streams(rows)


def _promises(results: Results) -> pl.DataFrame:
    """Drops the first and last third except for splits by time."""
    figures = measures.of_promises(results.trips)
    if not len(figures):
        return figures
    by_time = pl.col("split") == "chronological"
    return figures.with_columns(pl.when(by_time).then(pl.col(name)).alias(name) for name in ("first", "last"))


def _drift(results: Results) -> pl.DataFrame | None:
    """Computes the cost of a split by time instead of at random, for the same people and seeds."""
    figures = results.frame("trips")
    assert figures is not None
    past, future = (figures.filter(pl.col("split") == split) for split in ("random", "chronological"))
    both = past.join(future, on=["rate", "subject", "seed", "method"], suffix="_later")
    return both.with_columns((pl.col(f"{m}_later") - pl.col(m)).alias(f"{m}_cost") for m in ("auroc", "ap", "f1"))


_SOURCES: dict[str, Callable[[Results], pl.DataFrame | None]] = {
    "kinds": lambda results: measures.of_trips(results.trips, by_kind=True),
    "fixes": lambda results: results.rows(runner.FIXES),
    "prefixes": _prefixes,
    "streams": _streams,
    "promises": _promises,
    "review": lambda results: measures.of_uncertainty(results.trips),
    "drift": _drift,
}


def read(out: Path, manifest: Mapping[str, Any], table: str = runner.TRIPS) -> pl.LazyFrame | None:
    """Reads all results of a folder; returns None if there are none.

    In simulated data every seed is a different city with a different p01, so the city is added to people's names.
    """
    scores = read_kept(out, table)
    if scores is None or manifest["dataset"] != "simulated":
        return scores
    return scores.with_columns(pl.format("city {}, {}", "seed", "subject").alias("subject"))


def flagging(shown: Iterable[str]) -> str:
    """Describes the threshold of the methods in a table."""
    names = list(shown)
    words = [f"A trip is flagged at {measures.EPS:g} or less, in standard deviations of left-out training trips."]
    if any("kdd19" in name for name in names):
        words.append("Those of kdd19 are of single steps, as in the paper, so that its threshold is another demand.")
    if any(name.endswith(SURE) for name in names):
        words.append(f"“{SURE.strip()}”: only if the heads' spread is at most {measures.GAMMA:g}.")
    return " ".join(words)


def of_what(setting: Setting) -> str:
    """Describes a setting.

    >>> of_what(Setting(rate=0.1)), of_what(Setting(rate=0.0, reading="labelled"))
    ('random split, 10 % anomalies', 'as labelled')
    """
    said = setting.reading or f"{setting.split} split"
    return f"{said}, {percent(setting.rate)} anomalies" if setting.rate else f"as {said}"


def deciding(methods: Iterable[str], metric: str) -> list[str]:
    """Returns the ways to decide that differ in a metric: "+ uncertainty" changes neither rankings nor p-values."""
    if metric in ("f1_default", "false_alarm_rate"):
        return [m for m in methods if not m.endswith((SURE, MEAN_ONLY))]
    return [m for m in methods if metric in ("recall", "precision", "f1") or not m.endswith(SURE)]


def percent(share: float) -> str:
    """Formats a share in percent.

    >>> percent(0.05)
    '5 %'
    """
    return f"{100 * share:.0f} %"


def parts_of(figures: pl.DataFrame, methods: Sequence[str]) -> list[tuple[str, pl.DataFrame]]:
    """Returns the rows of each method that has any, in the order given."""
    found = figures.partition_by("method", as_dict=True)
    return [(method, found[(method,)]) for method in methods if (method,) in found]


def draws_of(figures: pl.DataFrame) -> int:
    """Counts the draws of some figures."""
    return figures.select(measures.DRAW).n_unique()


def mean_of(figures: pl.DataFrame, name: str) -> float | None:
    """Returns the plain mean of a figure over the draws that have it; None if no draw has."""
    known = figures[name].drop_nulls().drop_nans()
    return float(known.mean()) if len(known) else None  # type: ignore[arg-type]


def in_words(column: str, value: Any) -> str:
    """Formats a value of a column, as a head or a label.

    >>> in_words("rate", 0.1), in_words("history", 0), in_words("history", 20), in_words("kind", "detour")
    ('10 %', 'all', '20', 'detour')
    """
    if column in ("rate", "contamination", "ratio"):
        return percent(value)
    return "all" if column == "history" and not value else str(value)
