"""The results of one protocol, as its tables and figures want them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from astray_benchmark import measures, runner
from astray_benchmark.measures import MEAN_ONLY, SURE
from astray_benchmark.metrics.intervals import FEW
from astray_benchmark.packed import unpacked
from astray_benchmark.protocols import Setting

INTERVALS = (
    "Intervals: 95 %, over people (over cities where they are of four or more simulated ones, over draws where there "
    f"is one pool): by bootstrap, or Student's where there are fewer than {FEW}."
)

Kept = dict[Any, pl.DataFrame | None]
"""What has been computed already, for the tables and figures that want it again."""


class Results:
    """The results of one protocol."""

    def __init__(
        self,
        out: Path,
        manifest: Mapping[str, Any],
        settings: tuple[Setting, ...],
        trips: pl.DataFrame,
        kept: Kept | None = None,
    ) -> None:
        self.out, self.manifest, self.settings, self.trips = out, manifest, settings, trips
        self._kept: Kept = {} if kept is None else kept

    @property
    def dataset(self) -> str:
        """geolife, porto, simulated or trips."""
        return str(self.manifest["dataset"])

    @property
    def methods(self) -> list[str]:
        """All ways to decide that there may be, in the order of the command."""
        return in_order(self.manifest["methods"])

    def figures(self) -> pl.DataFrame:
        """The figures of trips; see :func:`astray_benchmark.measures.of_trips`. Protocols share settings."""
        for setting in self.settings:
            if setting not in self._kept:
                rows = measures.of_setting(self.trips.lazy(), [setting])
                self._kept[setting] = measures.of_trips(rows) if len(rows) else None
        found = [figures for s in self.settings if (figures := self._kept[s]) is not None]
        return pl.concat(found, how="diagonal_relaxed")

    def fixes(self) -> pl.DataFrame | None:
        """The figures of single fixes, if any were scored; see :func:`astray_benchmark.measures.of_fixes`."""
        return self._figures(runner.FIXES)

    def prefixes(self) -> pl.DataFrame | None:
        """The figures of trips that have been seen in part; see :func:`astray_benchmark.measures.of_prefixes`."""
        return self._figures(runner.PARTS)

    def streams(self) -> pl.DataFrame | None:
        """The figures of streams; see :func:`astray_benchmark.measures.of_streams`."""
        rows = self._figures(runner.STREAMS)
        return None if rows is None else measures.of_streams(rows)

    def _figures(self, table: str) -> pl.DataFrame | None:
        """The rows of a table that are of these settings and of the methods shown; None if there are none."""
        scores = read(self.out, self.manifest, table)
        if scores is None:
            return None
        found = measures.of_setting(scores.filter(pl.col("method").is_in(self.manifest["methods"])), self.settings)
        return found if len(found) else None


def read(out: Path, manifest: Mapping[str, Any], table: str = runner.TRIPS) -> pl.LazyFrame | None:
    """All results of a folder; None if there are none.

    Every seed of the simulated data is another city, whose p01 is another person: they are named by their cities.
    """
    scores = unpacked(out, table)
    if scores is None or manifest["dataset"] != "simulated":
        return scores
    return scores.with_columns(pl.format("city {}, {}", "seed", "subject").alias("subject"))


def flagging(shown: Iterable[str]) -> str:
    """What to know of the threshold under a table of some methods."""
    names = list(shown)
    words = [f"A trip is flagged at {measures.EPS:g} or less, in standard deviations of left-out training trips."]
    if any("kdd19" in name for name in names):
        words.append("Those of kdd19 are of single steps, as in the paper, so that its threshold is another demand.")
    if any(name.endswith(SURE) for name in names):
        words.append(f"“{SURE.strip()}”: only if the heads' spread is at most {measures.GAMMA:g}.")
    return " ".join(words)


def of_what(setting: Setting) -> str:
    """A setting in words.

    >>> of_what(Setting(rate=0.1)), of_what(Setting(rate=0.0, reading="labelled"))
    ('random split, 10 % anomalies', 'as labelled')
    """
    said = setting.reading or f"{setting.split} split"
    return f"{said}, {percent(setting.rate)} anomalies" if setting.rate else f"as {said}"


def in_order(methods: Iterable[str]) -> list[str]:
    """Methods, each followed by its other ways to decide."""
    return [name for method in methods for name in (method, method + MEAN_ONLY, method + SURE)]


def deciding(methods: Iterable[str], metric: str) -> list[str]:
    """The ways to decide that a metric can tell apart: being sure does not change a ranking, nor a p-value."""
    if metric in ("f1_default", "false_alarm_rate"):
        return [m for m in methods if not m.endswith((SURE, MEAN_ONLY))]
    return [m for m in methods if metric in ("recall", "precision", "f1") or not m.endswith(SURE)]


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.05)
    '5 %'
    """
    return f"{100 * share:.0f} %"


def parts_of(figures: pl.DataFrame, methods: Sequence[str]) -> list[tuple[str, pl.DataFrame]]:
    """The rows of each method that has any, in the order given."""
    found = figures.partition_by("method", as_dict=True)
    return [(method, found[(method,)]) for method in methods if (method,) in found]


def draws_of(figures: pl.DataFrame) -> int:
    """How many draws some figures are of."""
    return figures.select(measures.DRAW).n_unique()


def mean_of(figures: pl.DataFrame, name: str) -> float | None:
    """The plain mean of a figure over the draws that have it; None if none has."""
    known = figures[name].drop_nulls().drop_nans()
    return float(known.mean()) if len(known) else None  # type: ignore[arg-type]
